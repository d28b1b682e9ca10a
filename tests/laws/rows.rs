//! Data ranks and the rows they get.

use proptest::prelude::*;
use twinkle::even_share;

use crate::oracle::{hybrids, meshes};

proptest! {
    #[test]
    fn data_ranks_are_counted_dp_outside_fsdp(naive in prop_oneof![meshes().boxed(), hybrids().boxed()]) {
        let mesh = naive.mesh();
        prop_assert_eq!(mesh.data_world_size(), Ok(naive.data_world_size()));
        let mut cells = vec![-1_i32; naive.world_size()];
        mesh.write_data_ranks(&mut cells).unwrap();
        for (position, &rank) in naive.ranks.iter().enumerate() {
            let expected = naive.data_rank(position);
            prop_assert_eq!(mesh.data_rank_of(rank), Ok(Some(expected)));
            prop_assert_eq!(mesh.data_rank_of_member(i128::from(rank)), Ok(expected));
            prop_assert_eq!(u64::try_from(cells[position]), Ok(expected));
        }
    }

    #[test]
    fn every_data_rank_has_as_many_ranks_as_every_other(naive in meshes()) {
        let mesh = naive.mesh();
        let mut held = vec![0; usize::try_from(naive.data_world_size()).unwrap()];
        for &rank in &naive.ranks {
            held[usize::try_from(mesh.data_rank_of(rank).unwrap().unwrap()).unwrap()] += 1;
        }
        prop_assert!(held.iter().all(|count| *count == naive.world_size() / held.len()));
    }

    #[test]
    fn shares_are_contiguous_cover_all_rows_and_the_first_have_one_more(total in 0_u64..10_000, shares in 1_u64..300) {
        let mut next = 0;
        for share in 0..shares {
            let (start, stop) = even_share(total, shares, share);
            prop_assert_eq!(start, next);
            prop_assert_eq!(stop - start, total / shares + u64::from(share < total % shares));
            next = stop;
        }
        prop_assert_eq!(next, total);
    }

    #[test]
    fn shares_of_huge_batches_do_not_overflow(
        total in 0_u64..1 << 63,
        shares in 1_u64..1 << 63,
        share in any::<u64>(),
    ) {
        let share = share % shares;
        let wide = |share: u64| {
            let (total, shares, share) = (u128::from(total), u128::from(shares), u128::from(share));
            share * (total / shares) + share.min(total % shares)
        };
        let (start, stop) = even_share(total, shares, share);
        prop_assert_eq!(u128::from(start), wide(share));
        prop_assert_eq!(u128::from(stop), wide(share + 1));
    }

    #[test]
    fn a_rank_gets_the_rows_of_its_data_rank(naive in meshes(), total in 0_u64..1000) {
        let mesh = naive.mesh();
        let mut slices = vec![];
        mesh.write_slices(i128::from(total), |start, stop| slices.push((start, stop))).unwrap();
        prop_assert_eq!(slices.len() as u64, naive.data_world_size());
        for (position, &rank) in naive.ranks.iter().enumerate() {
            let data_rank = naive.data_rank(position);
            let own = slices[usize::try_from(data_rank).unwrap()];
            prop_assert_eq!(own, even_share(total, naive.data_world_size(), data_rank));
            prop_assert_eq!(mesh.rows_of_rank(i128::from(total), i128::from(rank)), Ok(own));
            prop_assert_eq!(mesh.rows_of_data_rank(i128::from(total), i128::from(data_rank)), Ok(own));
        }
    }

    #[test]
    fn nobody_else_gets_rows(naive in meshes(), other in 0_i128..2000) {
        let mesh = naive.mesh();
        let shares = i128::from(naive.data_world_size());
        for data_rank in [-1, shares, shares + other, i128::MAX] {
            let refusal = mesh.rows_of_data_rank(10, data_rank).unwrap_err().to_string();
            prop_assert!(refusal.contains(&data_rank.to_string()) && refusal.contains(&shares.to_string()));
            prop_assert!(refusal.contains("global_rank"));
        }
        if !naive.ranks.iter().any(|rank| i128::from(*rank) == other) {
            prop_assert!(mesh.rows_of_rank(10, other).unwrap_err().to_string().contains(&other.to_string()));
        }
        for total in [-1, -other - 1, 1 << 63, i128::MAX] {
            prop_assert!(mesh.rows_of_data_rank(total, 0).unwrap_err().to_string().contains(&total.to_string()));
        }
    }
}
