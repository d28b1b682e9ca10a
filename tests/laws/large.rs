//! Meshes of up to 2**62 ranks: the same answers without a table, or a refusal where an answer would be a long list.

use proptest::prelude::*;
use proptest::sample::subsequence;
use twinkle::{Family, Members, Mesh, Requested};

use crate::oracle::AXES;

/// Axes whose sizes multiply to 2**40 .. 2**62 or a little less, an offset, and maybe the ulysses option.
fn meshes() -> impl Strategy<Value = (Mesh, Vec<&'static str>)> {
    let names = subsequence(AXES.to_vec(), 2..=6).prop_shuffle();
    let bits = (40_u32..=61, prop::collection::vec(1_u32..20, 6));
    (names, bits, any::<u64>(), 0_i128..1 << 61).prop_map(|(names, (world, weights), odd, offset)| {
        let total: u32 = weights[..names.len()].iter().sum();
        let sizes: Vec<(&str, i128)> = names
            .iter()
            .zip(&weights)
            .map(|(name, weight)| {
                let bits = world * weight / total;
                let size = (1_i128 << bits) - i128::from(odd >> bits & 1).min((1 << bits) - 1);
                (*name, size)
            })
            .collect();
        let size = |axis: &str| sizes.iter().find(|(name, _)| *name == axis).map_or(1, |(_, size)| *size);
        let data = size("dp") * size("fsdp");
        let declared = names.contains(&"ulysses") || data == 1;
        let ulysses = [size("fsdp"), size("dp"), data, 2].into_iter().find(|size| size % 2 == 0 && data % size == 0);
        let requested =
            Requested { ulysses_size: ulysses.filter(|_| !declared && odd % 3 > 0), ..Requested::default() };
        (Mesh::from_axes(&sizes, offset, &requested).unwrap(), names)
    })
}

fn at(mesh: &Mesh, part: u64) -> u64 {
    let position = u128::from(mesh.world_size() - 1) * u128::from(part) / u128::from(u64::MAX);
    mesh.rank_at(i128::try_from(position).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn coordinates_need_no_table((mesh, names) in meshes(), part in any::<u64>()) {
        prop_assert!(mesh.world_size() >= 1 << 20);
        for rank in [at(&mesh, part), at(&mesh, 0), at(&mesh, u64::MAX)] {
            let coordinate = mesh.coord_of(rank).unwrap();
            let position = coordinate
                .iter()
                .zip(&mesh.shape())
                .fold(0_u128, |position, (index, size)| position * u128::from(*size) + u128::from(*index));
            prop_assert_eq!(u128::from(mesh.position_of(rank).unwrap()), position);
            prop_assert_eq!(u128::from(rank), u128::from(mesh.ranks().offset()) + position);
            let indices = coordinate.iter().map(|index| i128::from(*index));
            let given: Vec<(&str, i128)> = names.iter().copied().zip(indices).collect();
            prop_assert_eq!(mesh.rank_of(&given), Ok(rank));
        }
        let beyond = i128::from(mesh.world_size()) + i128::from(mesh.ranks().offset());
        prop_assert_eq!(mesh.coord_of(u64::try_from(beyond).unwrap()), None);
    }

    #[test]
    fn a_group_is_a_range_of_any_length_or_refused(
        (mesh, names) in meshes(),
        part in any::<u64>(),
        mask in any::<u8>(),
    ) {
        let rank = at(&mesh, part);
        let picked = names.iter().enumerate().filter(|(place, _)| mask >> place & 1 == 1);
        let picked: Vec<&str> = picked.map(|(_, name)| *name).collect();
        for axes in [&picked[..], &["data"], &["ulysses"], &names[..1], &names[..]] {
            let along = mesh.along(axes).unwrap();
            let size = mesh.group_size(&along);
            let index = mesh.index_in_group(&along, rank).unwrap();
            prop_assert!(index < size);
            match mesh.group_of(&along, i128::from(rank)) {
                Ok(Members::Range { start, step, length }) => {
                    prop_assert_eq!(length, size);
                    prop_assert_eq!(i128::from(start) + i128::from(index) * i128::from(step), i128::from(rank));
                }
                Ok(Members::List(ranks)) => {
                    prop_assert!(size <= 1 << 24);
                    prop_assert_eq!(ranks.len() as u64, size);
                    prop_assert_eq!(ranks[usize::try_from(index).unwrap()], rank);
                }
                Err(refusal) => {
                    prop_assert!(size > 1 << 24);
                    prop_assert!(refusal.to_string().contains(&size.to_string()), "{}", refusal);
                }
            }
        }
    }

    #[test]
    fn one_axis_is_always_a_range((mesh, names) in meshes(), part in any::<u64>()) {
        let rank = at(&mesh, part);
        for name in names {
            let group = mesh.group_of(&mesh.along(&[name]).unwrap(), i128::from(rank)).unwrap();
            let is_range = matches!(group, Members::Range { .. });
            prop_assert!(is_range);
        }
    }

    #[test]
    fn data_ranks_and_their_representatives_need_no_table((mesh, _) in meshes(), part in any::<u64>()) {
        let rank = at(&mesh, part);
        let data_rank = mesh.data_rank_of(rank).unwrap().unwrap();
        let shards = mesh.data_world_size().unwrap();
        prop_assert!(data_rank < shards);
        let representative = mesh.representative(i128::from(data_rank)).unwrap();
        prop_assert_eq!(mesh.data_rank_of(representative), Ok(Some(data_rank)));
        prop_assert_eq!(mesh.is_at_end("pp", representative, true), Ok(true));
        let (start, stop) = mesh.rows_of_rank((1 << 63) - 1, i128::from(rank)).unwrap();
        prop_assert!(start <= stop && stop < 1 << 63);
    }

    #[test]
    fn long_lists_are_refused_before_they_are_made((mesh, _) in meshes()) {
        let limit = 1_u64 << 24;
        let shards = mesh.data_world_size().unwrap();
        let long = |answer: twinkle::Answer<Vec<u64>>, count: u64| match answer {
            Ok(ranks) => ranks.len() as u64 == count && count <= limit,
            Err(refusal) => {
                count > limit && refusal.family() == Family::Mesh && refusal.to_string().contains(&count.to_string())
            }
        };
        if shards > limit || shards < 1 << 16 {
            prop_assert!(long(mesh.collect_ranks(), shards));
        }
        for axis in ["tp", "pp"] {
            let count = mesh.world_size() / mesh.size_of(axis).unwrap();
            if count > limit || count < 1 << 16 {
                prop_assert!(long(mesh.last_ranks(axis), count));
            }
        }
    }

    #[test]
    fn parts_and_other_orders_need_no_table((mesh, names) in meshes(), part in any::<u64>()) {
        let rank = at(&mesh, part);
        let sub = mesh.submesh(&names[1..], i128::from(rank)).unwrap();
        prop_assert!(sub.coord_of(rank).unwrap()[..] == mesh.coord_of(rank).unwrap()[1..]);
        let backwards: Vec<&str> = names.iter().rev().copied().collect();
        let permuted = mesh.permute(&backwards).unwrap();
        let mut coordinate = permuted.coord_of(rank).unwrap().to_vec();
        coordinate.reverse();
        prop_assert_eq!(&coordinate[..], &mesh.coord_of(rank).unwrap()[..]);
        prop_assert_eq!(&permuted.permute(&names).unwrap(), &mesh);
        let bytes = mesh.to_bytes().unwrap();
        prop_assert!(bytes.len() <= 250);
        prop_assert_eq!(&Mesh::from_bytes(&bytes).unwrap(), &mesh);
    }

    #[test]
    fn neighbours_merge_without_a_table_and_others_are_refused((mesh, names) in meshes()) {
        let sizes: Vec<(&str, i128)> = names.iter().copied().zip(mesh.shape().into_iter().map(i128::from)).collect();
        let merged = mesh.flatten(&names, "all").unwrap();
        prop_assert_eq!(merged.world_size(), mesh.world_size());
        prop_assert_eq!(&merged.split("all", &sizes).unwrap(), &mesh);
        let swapped: Vec<&str> = names.iter().rev().copied().collect();
        if mesh.shape().iter().filter(|size| **size > 1).count() > 1 {
            let refusal = mesh.flatten(&swapped, "all").unwrap_err().to_string();
            prop_assert!(refusal.contains(&mesh.world_size().to_string()));
        }
    }

    #[test]
    fn a_world_of_two_to_the_63rd_is_refused(first in 1_u32..63, more in 0_u32..60) {
        let second = 63 - first + more;
        let sizes = [("dp", 1_i128 << first), ("tp", 1_i128 << second.min(62)), ("pp", 1 << (second - second.min(62)))];
        prop_assert_eq!(Mesh::from_axes(&sizes, 0, &Requested::default()).unwrap_err().family(), Family::Mesh);
    }
}
