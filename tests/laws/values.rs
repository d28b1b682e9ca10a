//! Meshes as values: one form for equal arrangements, equal hashes for equal layouts.

use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use twinkle::{Family, Mesh, Requested};

use crate::oracle::{Naive, coordinates, equations, meshes, shapes};

pub(crate) fn hashed(mesh: &Mesh) -> u64 {
    let mut state = DefaultHasher::new();
    mesh.hash(&mut state);
    state.finish()
}

/// The step along each axis of a table in which every neighbour is as far as the first one, else None.
fn steps(naive: &Naive) -> Option<Vec<i128>> {
    let rank = |coordinate: &[u64]| {
        let found = naive.coordinates.iter().position(|own| own == coordinate);
        found.map(|position| i128::from(naive.ranks[position]))
    };
    let mut steps = vec![];
    for place in 0..naive.sizes.len() {
        let mut apart: Vec<i128> = vec![];
        for coordinate in &naive.coordinates {
            let mut next = coordinate.clone();
            next[place] += 1;
            if let Some(further) = rank(&next) {
                apart.push(further - rank(coordinate)?);
            }
        }
        if apart.iter().any(|step| *step != apart[0]) {
            return None;
        }
        steps.push(apart.first().copied().unwrap_or(0));
    }
    Some(steps)
}

/// Whether the largest step is at least the next one times the size of that one's axis, and so on down.
fn nest(steps: &[i128], sizes: &[u64]) -> bool {
    let mut levels: Vec<(i128, i128)> = steps
        .iter()
        .zip(sizes)
        .filter(|(_, size)| **size > 1)
        .map(|(step, size)| (step.abs(), i128::from(*size)))
        .collect();
    levels.sort_by_key(|(step, _)| -step);
    levels.windows(2).all(|pair| pair[0].0 >= pair[1].0 * pair[1].1)
}

proptest! {
    #[test]
    fn a_table_of_consecutive_ranks_is_the_mesh_made_from_sizes((names, sizes) in shapes(), offset in 0_u64..1 << 62) {
        let count = sizes.iter().product::<u64>();
        let ranks = (offset..offset + count).collect();
        let table = Mesh::from_table(&names, &sizes, ranks, &Requested::default()).unwrap();
        let given: Vec<(&str, i128)> = names.iter().copied().zip(sizes.iter().map(|size| i128::from(*size))).collect();
        let made = Mesh::from_axes(&given, i128::from(offset), &Requested::default()).unwrap();
        prop_assert_eq!(&table, &made);
        prop_assert_eq!(hashed(&table), hashed(&made));
        prop_assert!(table.is_row_major());
        prop_assert_eq!(table.ranks().table(), None);
        prop_assert_eq!(table.to_bytes().unwrap(), made.to_bytes().unwrap());
    }

    #[test]
    fn strides_are_known_exactly_where_an_equation_with_nesting_strides_holds(naive in meshes()) {
        let mesh = naive.mesh();
        let found = steps(&naive).filter(|steps| nest(steps, &naive.sizes));
        prop_assert_eq!(mesh.strides().is_some(), found.is_some());
        prop_assert_eq!(mesh.ranks().table().is_none(), found.is_some());
        if let (Some(strides), Some(found)) = (mesh.strides(), found) {
            for place in (0..naive.sizes.len()).rev() {
                let inner = naive.sizes.get(place + 1).map_or(1, |size| strides[place + 1] * i128::from(*size));
                prop_assert_eq!(strides[place], if naive.sizes[place] > 1 { found[place] } else { inner });
            }
        }
    }

    #[test]
    fn every_equation_is_recognised(
        (sizes, ranks) in shapes().prop_flat_map(|(_, sizes)| (Just(sizes.clone()), equations(sizes))),
    ) {
        let names = &crate::oracle::AXES[..sizes.len()];
        let mesh = Mesh::from_table(names, &sizes, ranks.clone(), &Requested::default()).unwrap();
        let strides = mesh.strides().unwrap();
        for (coordinate, rank) in coordinates(&sizes).iter().zip(&ranks) {
            let steps = coordinate.iter().zip(&strides).map(|(index, stride)| i128::from(*index) * stride);
            prop_assert_eq!(i128::from(mesh.ranks().offset()) + steps.sum::<i128>(), i128::from(*rank));
        }
    }

    #[test]
    fn meshes_are_equal_exactly_where_names_sizes_ranks_and_options_are(
        left in meshes(),
        right in meshes(),
        swap in any::<prop::sample::Index>(),
    ) {
        let layout = left.names == right.names && left.sizes == right.sizes && left.ranks == right.ranks;
        let alike = layout && left.ulysses == right.ulysses;
        prop_assert_eq!(left.mesh() == right.mesh(), alike);
        let other = swap.index(left.world_size());
        let mut swapped = left.clone();
        swapped.ranks.swap(0, other);
        prop_assert_eq!(left.mesh() == swapped.mesh(), other == 0);
        prop_assert_eq!(&left.mesh(), &left.mesh());
    }

    #[test]
    fn options_are_part_of_equality_and_not_of_the_hash(naive in meshes()) {
        let (mesh, plain) = (naive.mesh(), Naive { ulysses: 1, ..naive.clone() }.mesh());
        prop_assert_eq!(hashed(&mesh), hashed(&plain));
        prop_assert_eq!(mesh == plain, naive.ulysses == 1);
        prop_assert_eq!(&mesh.with_options(&Requested::default()).unwrap(), &plain);
        prop_assert_eq!(&plain.with_options(&naive.requested()).unwrap(), &mesh);
        prop_assert_eq!(&mesh.with_options(&mesh.options().requested()).unwrap(), &mesh);
    }

    #[test]
    fn a_rank_at_two_places_is_refused_with_both(
        naive in meshes(),
        first in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
    ) {
        let (first, second) = (first.index(naive.world_size()), second.index(naive.world_size()));
        if first == second {
            return Ok(());
        }
        let mut ranks = naive.ranks.clone();
        ranks[second] = ranks[first];
        let refusal = Mesh::from_table(&naive.names, &naive.sizes, ranks.clone(), &Requested::default()).unwrap_err();
        prop_assert_eq!(refusal.family(), Family::Rank);
        let (low, high) = (first.min(second), first.max(second));
        prop_assert_eq!(refusal.to_string(), format!("rank {} is at two positions, {low} and {high}", ranks[first]));
    }

    #[test]
    fn a_table_of_another_length_is_refused_with_both_lengths(naive in meshes(), less in any::<bool>()) {
        let mut ranks = naive.ranks.clone();
        if less { ranks.pop(); } else { ranks.push(1 << 55); }
        let made = Mesh::from_table(&naive.names, &naive.sizes, ranks.clone(), &Requested::default());
        let refusal = made.unwrap_err().to_string();
        prop_assert!(refusal.contains(&ranks.len().to_string()) && refusal.contains(&naive.world_size().to_string()));
    }

    #[test]
    fn a_range_is_the_table_of_its_ranks(start in 0_i128..100, step in -9_i128..10, length in 1_u64..12) {
        if step == 0 && length > 1 {
            return Ok(());
        }
        let ranks: Vec<i128> = (0..i128::from(length)).map(|index| start + index * step).collect();
        let made = Mesh::from_range("tp", start, step, length, &Requested::default());
        if ranks.iter().any(|rank| *rank < 0) {
            prop_assert_eq!(made.unwrap_err().family(), Family::Rank);
        } else {
            let ranks = ranks.iter().map(|rank| u64::try_from(*rank).unwrap()).collect();
            prop_assert_eq!(made, Mesh::from_table(&["tp"], &[length], ranks, &Requested::default()));
        }
    }
}
