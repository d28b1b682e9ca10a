//! Groups and the place of a rank inside its own.

use proptest::prelude::*;
use twinkle::{Family, Members, Mesh};

use crate::oracle::{Naive, hybrids, hybrids_and_axes, meshes, meshes_and_axes};

/// The ranks of a group; a range wherever they are evenly spaced.
fn members(mesh: &Mesh, axes: &[&str], rank: u64) -> Vec<u64> {
    let along = mesh.along(axes).unwrap();
    let members = mesh.group_of(&along, i128::from(rank)).unwrap();
    let ranks = members.to_vec();
    assert_eq!(members.len(), ranks.len() as u64);
    let steps: Vec<i128> = ranks.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect();
    let even = steps.windows(2).all(|pair| pair[0] == pair[1]);
    assert_eq!(matches!(members, Members::Range { .. }), even, "{members:?}");
    ranks
}

/// Every group row as one flat list.
fn written(mesh: &Mesh, axes: &[&str]) -> (usize, Vec<u64>) {
    let along = mesh.along(axes).unwrap();
    let (groups, size) = mesh.groups_shape(&along);
    assert_eq!(groups * size, mesh.world_size());
    let world = usize::try_from(mesh.world_size()).unwrap();
    let mut wide = vec![-1_i64; world];
    mesh.write_groups(&along, &mut wide).unwrap();
    if mesh.ranks().highest() < 1 << 31 {
        let mut narrow = vec![-1_i32; world];
        mesh.write_groups(&along, &mut narrow).unwrap();
        assert!(narrow.iter().zip(&wide).all(|(narrow, wide)| i64::from(*narrow) == *wide));
    }
    (usize::try_from(size).unwrap(), wide.iter().map(|rank| u64::try_from(*rank).unwrap()).collect())
}

/// The groups that an oracle's answer for each position makes, by lowest position.
fn partition(naive: &Naive, own: impl Fn(usize) -> Vec<usize>) -> Vec<Vec<u64>> {
    let firsts = (0..naive.world_size()).map(own).enumerate();
    let lowest = firsts.filter(|(position, group)| group.iter().min() == Some(position));
    lowest.map(|(_, group)| naive.ranks_at(&group)).collect()
}

fn checked(naive: &Naive, axes: &[&str], own: impl Fn(usize) -> Vec<usize>) {
    let mesh = naive.mesh();
    let along = mesh.along(axes).unwrap();
    for position in 0..naive.world_size() {
        let (group, rank) = (own(position), naive.ranks[position]);
        assert_eq!(members(&mesh, axes, rank), naive.ranks_at(&group), "{axes:?} of {rank}");
        let index = group.iter().position(|own| *own == position).unwrap();
        assert_eq!(mesh.index_in_group(&along, rank), Some(index as u64), "{axes:?} of {rank}");
    }
    let (size, flat) = written(&mesh, axes);
    let rows: Vec<Vec<u64>> = flat.chunks(size).map(<[u64]>::to_vec).collect();
    assert_eq!(rows, partition(naive, own), "{axes:?}");
}

proptest! {
    #[test]
    fn a_group_is_who_differs_only_along_its_axes_in_position_order((naive, axes) in meshes_and_axes()) {
        checked(&naive, &axes, |position| naive.peers(&axes, position));
    }

    #[test]
    fn data_names_the_members_of_all_data_axes(naive in meshes(), more in any::<bool>()) {
        let axes: &[&str] = if more { &["tp", "data"] } else { &["data"] };
        let along: &[&str] = if more { &["tp", "dp", "fsdp"] } else { &["dp", "fsdp"] };
        checked(&naive, axes, |position| naive.peers(along, position));
    }

    #[test]
    fn ulysses_names_who_shares_rows_in_data_order(naive in hybrids()) {
        checked(&naive, &["ulysses"], |position| naive.ulysses_peers(position));
    }

    #[test]
    fn ulysses_beside_all_data_axes_adds_nothing(naive in hybrids(), named in any::<bool>()) {
        let axes: &[&str] = if named { &["fsdp", "ulysses", "dp"] } else { &["ulysses", "data"] };
        checked(&naive, axes, |position| naive.peers(&["dp", "fsdp"], position));
    }

    #[test]
    fn ulysses_mixes_with_axes_that_cut_no_rows((naive, axes) in hybrids_and_axes()) {
        let mut others: Vec<&str> = axes.into_iter().filter(|name| !["dp", "fsdp"].contains(name)).collect();
        others.push("ulysses");
        let mesh = naive.mesh();
        let along = mesh.along(&others).unwrap();
        let (size, flat) = written(&mesh, &others);
        let rows: Vec<&[u64]> = flat.chunks(size).collect();
        let lowest = |row: &[u64]| row.iter().map(|rank| mesh.position_of(*rank)).min();
        prop_assert!(rows.windows(2).all(|pair| lowest(pair[0]) < lowest(pair[1])));
        for position in 0..naive.world_size() {
            let rank = naive.ranks[position];
            let mut around: Vec<&str> = others.clone();
            around.extend(["dp", "fsdp"]);
            let mut expected = naive.peers(&around, position);
            expected.retain(|peer| naive.data_rank(*peer) == naive.data_rank(position));
            let group = members(&mesh, &others, rank);
            let row = rows.iter().find(|row| row.contains(&rank)).unwrap();
            prop_assert_eq!(&group[..], *row);
            let index = mesh.index_in_group(&along, rank).unwrap();
            prop_assert_eq!(group[usize::try_from(index).unwrap()], rank);
            let (mut group, mut expected) = (group, naive.ranks_at(&expected));
            group.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(group, expected);
        }
    }

    #[test]
    fn ulysses_beside_one_of_two_data_axes_is_refused(naive in hybrids()) {
        for axis in ["dp", "fsdp"] {
            let refusal = naive.mesh().along(&["ulysses", axis]).unwrap_err();
            prop_assert_eq!(refusal.family(), Family::Axis);
            prop_assert!(refusal.to_string().contains("ulysses") && refusal.to_string().contains(axis));
        }
    }

    #[test]
    fn the_order_in_which_axes_are_named_changes_nothing((naive, axes) in meshes_and_axes()) {
        let mesh = naive.mesh();
        let backwards: Vec<&str> = axes.iter().rev().copied().collect();
        prop_assert_eq!(written(&mesh, &axes), written(&mesh, &backwards));
    }

    #[test]
    fn known_undeclared_axes_change_no_group((naive, axes) in meshes_and_axes()) {
        let mesh = naive.mesh();
        let mut more = axes.clone();
        more.extend(["ep", "etp", "ep_fsdp"]);
        prop_assert_eq!(written(&mesh, &axes), written(&mesh, &more));
    }

    #[test]
    fn nobody_outside_the_mesh_has_a_group((naive, axes) in meshes_and_axes(), other in 0_u64..2000) {
        if naive.ranks.contains(&other) {
            return Ok(());
        }
        let mesh = naive.mesh();
        let along = mesh.along(&axes).unwrap();
        prop_assert_eq!(mesh.index_in_group(&along, other), None);
        for rank in [i128::from(other), -1, i128::MAX] {
            let refusal = mesh.group_of(&along, rank).unwrap_err();
            prop_assert_eq!(refusal.family(), Family::Rank);
            prop_assert!(refusal.to_string().contains(&rank.to_string()));
        }
    }

    #[test]
    fn an_axis_named_twice_is_refused(naive in meshes()) {
        let mesh = naive.mesh();
        for twice in [["dp", "ddp"], ["fsdp", "dp_shard"], ["tp", "tp"], ["data", "data"], ["data", "dp"]] {
            prop_assert_eq!(mesh.along(&twice).unwrap_err().family(), Family::Axis);
        }
    }
}
