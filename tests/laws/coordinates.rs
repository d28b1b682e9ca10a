//! Rank, position and coordinate.

use proptest::prelude::*;

use crate::oracle::{Naive, meshes, meshes_and_axes};

fn named(naive: &Naive, position: usize) -> Vec<(&'static str, i128)> {
    let indices = naive.coordinates[position].iter().map(|index| i128::from(*index));
    naive.names.iter().copied().zip(indices).collect()
}

proptest! {
    #[test]
    fn every_rank_has_the_coordinate_the_table_says_and_back(naive in meshes()) {
        let mesh = naive.mesh();
        prop_assert_eq!(mesh.world_size(), naive.world_size() as u64);
        prop_assert_eq!(&mesh.shape(), &naive.sizes);
        for (position, &rank) in naive.ranks.iter().enumerate() {
            let coordinate = mesh.coord_of(rank).unwrap();
            prop_assert_eq!(&coordinate[..], &naive.coordinates[position][..]);
            prop_assert_eq!(mesh.rank_of(&named(&naive, position)), Ok(rank));
            prop_assert_eq!(mesh.position_of(rank), Some(position as u64));
            prop_assert_eq!(mesh.rank_at(position as i128), Ok(rank));
        }
    }

    #[test]
    fn a_number_that_is_no_rank_has_no_coordinate(naive in meshes(), other in 0_u64..2000, far in any::<u64>()) {
        let mesh = naive.mesh();
        for rank in [other, far] {
            let there = naive.ranks.contains(&rank);
            prop_assert_eq!(mesh.coord_of(rank).is_some(), there);
            prop_assert_eq!(mesh.position_of(rank).is_some(), there);
            prop_assert_eq!(mesh.data_rank_of(rank).unwrap().is_some(), there);
        }
    }

    #[test]
    fn positions_outside_the_mesh_are_refused(naive in meshes(), beyond in 0_u64..1 << 62) {
        let mesh = naive.mesh();
        let world_size = mesh.world_size();
        let further = i128::from(beyond);
        for position in [-1, -further - 1, i128::from(world_size), i128::from(world_size) + further, i128::MAX] {
            let refusal = mesh.rank_at(position).unwrap_err().to_string();
            prop_assert!(refusal.contains(&position.to_string()), "{}", refusal);
            prop_assert!(refusal.contains(&world_size.to_string()), "{}", refusal);
        }
    }

    #[test]
    fn whole_answers_are_the_single_answers_in_position_order(naive in meshes()) {
        let mesh = naive.mesh();
        let (world, axes) = (naive.world_size(), naive.names.len());
        let (mut narrow, mut wide) = (vec![0_i32; world * axes], vec![0_i64; world * axes]);
        mesh.write_coordinates(&mut narrow);
        mesh.write_coordinates(&mut wide);
        let flat: Vec<u64> = naive.coordinates.concat();
        prop_assert!(narrow.iter().zip(&flat).all(|(cell, index)| i64::from(*cell) == i64::try_from(*index).unwrap()));
        prop_assert!(wide.iter().zip(&flat).all(|(cell, index)| *cell == i64::try_from(*index).unwrap()));
        let mut ranks = vec![0_i64; world];
        mesh.write_ranks(&mut ranks);
        prop_assert!(ranks.iter().zip(&naive.ranks).all(|(cell, rank)| *cell == i64::try_from(*rank).unwrap()));
    }

    #[test]
    fn coordinates_of_chosen_ranks_stand_in_the_order_asked(
        naive in meshes(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mesh = naive.mesh();
        let positions: Vec<usize> = picks.iter().map(|pick| pick.index(naive.world_size())).collect();
        let ranks: Vec<i64> = positions.iter().map(|position| i64::try_from(naive.ranks[*position]).unwrap()).collect();
        let mut cells = vec![0_i64; ranks.len() * naive.names.len()];
        mesh.write_coordinates_of(&ranks, &mut cells).unwrap();
        let expected: Vec<u64> =
            positions.iter().flat_map(|position| naive.coordinates[*position].iter().copied()).collect();
        let cells: Vec<u64> = cells.iter().map(|cell| u64::try_from(*cell).unwrap()).collect();
        prop_assert_eq!(cells, expected);
    }

    #[test]
    fn an_index_beyond_its_axis_is_refused_with_axis_and_size((naive, axes) in meshes_and_axes(), beyond in 0_i128..5) {
        let mesh = naive.mesh();
        for axis in axes {
            let size = naive.size(axis);
            for index in [i128::from(size) + beyond, -1 - beyond] {
                let mut given = named(&naive, 0);
                given.iter_mut().filter(|(name, _)| *name == axis).for_each(|(_, own)| *own = index);
                let refusal = mesh.rank_of(&given).unwrap_err().to_string();
                prop_assert_eq!(refusal, format!("{axis}={index} is not in 0..{size}"));
            }
        }
    }

    #[test]
    fn only_axes_of_size_one_may_be_left_out(naive in meshes()) {
        let mesh = naive.mesh();
        let larger: Vec<_> = named(&naive, 0).into_iter().filter(|(name, _)| naive.size(name) > 1).collect();
        prop_assert_eq!(mesh.rank_of(&larger), Ok(naive.ranks[0]));
        for (left_out, _) in &larger {
            let rest: Vec<_> = larger.iter().copied().filter(|(name, _)| name != left_out).collect();
            let refusal = mesh.rank_of(&rest).unwrap_err();
            prop_assert_eq!(refusal.family(), twinkle::Family::Axis);
            prop_assert!(refusal.to_string().contains(left_out));
        }
    }

    #[test]
    fn undeclared_axes_accept_zero_and_nothing_else(naive in meshes()) {
        let mesh = naive.mesh();
        for name in ["dp", "fsdp", "tp", "pp", "cp", "ep", "etp", "ep_fsdp"] {
            if naive.names.contains(&name) {
                continue;
            }
            let mut given = named(&naive, 0);
            given.push((name, 0));
            prop_assert_eq!(mesh.rank_of(&given), Ok(naive.ranks[0]));
            given.last_mut().unwrap().1 = 1;
            prop_assert!(mesh.rank_of(&given).is_err());
        }
    }
}
