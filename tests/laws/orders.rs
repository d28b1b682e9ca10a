//! Orders of an epoch: a permutation, its inverse, and what it depends on.

use proptest::prelude::*;
use twinkle::{Refusal, Shuffle};

fn order(seed: i128, epoch: i128, rows: i128) -> Vec<u64> {
    let order = Shuffle::new(seed, epoch, rows).unwrap();
    (0..order.rows()).map(|position| order.row_at(position).unwrap()).collect()
}

proptest! {
    #[test]
    fn every_row_has_exactly_one_position(seed in 0..i128::from(i64::MAX), epoch in 0..1000_i128, rows in 0..3000_i128) {
        let mut all = order(seed, epoch, rows);
        all.sort_unstable();
        let rows = u64::try_from(rows).unwrap();
        prop_assert_eq!(all, (0..rows).collect::<Vec<_>>());
    }

    #[test]
    fn position_of_is_the_inverse_of_row_at(seed in any::<u32>(), rows in 1..i64::MAX, place in any::<u64>()) {
        let order = Shuffle::new(seed.into(), 3, rows.into()).unwrap();
        let position = place % order.rows();
        let row = order.row_at(position).unwrap();
        prop_assert!(row < order.rows());
        prop_assert_eq!(order.position_of(row), Some(position));
        prop_assert_eq!(order.row_at(order.position_of(position).unwrap()), Some(position));
    }

    #[test]
    fn a_part_is_written_as_it_is_asked_one_by_one(seed in any::<u32>(), rows in 0..500_i128, cut in 0..500_u64, len in 0..50_usize) {
        let whole = order(seed.into(), 1, rows);
        let start = cut.min(whole.len() as u64);
        let mut cells = vec![-1; len];
        Shuffle::new(seed.into(), 1, rows).unwrap().write(start, &mut cells);
        let start = usize::try_from(start).unwrap();
        for (place, cell) in cells.iter().enumerate() {
            let expected = whole.get(start + place).map_or(-1, |row| row.cast_signed());
            prop_assert_eq!(*cell, expected);
        }
    }
}

#[test]
fn past_the_end_there_is_no_row_and_no_position() {
    let order = Shuffle::new(1, 1, 5).unwrap();
    assert_eq!((order.row_at(5), order.position_of(5), order.row_at(u64::MAX)), (None, None, None));
    assert_eq!(Shuffle::new(1, 1, 0).unwrap().row_at(0), None);
}

#[test]
fn an_order_is_the_same_in_every_version() {
    assert_eq!(order(42, 0, 10), [6, 9, 7, 3, 1, 4, 8, 5, 0, 2]);
    assert_eq!(order(42, 1, 10), [9, 3, 1, 2, 7, 5, 4, 8, 6, 0]);
    let far = Shuffle::new(7, 100, 1 << 62).unwrap();
    assert_eq!(far.row_at(1 << 61), Some(985_672_733_227_687_401));
}

#[test]
fn seeds_and_epochs_make_other_orders() {
    let mut seen: Vec<Vec<u64>> = (0..20).flat_map(|seed| (0..20).map(move |epoch| order(seed, epoch, 30))).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 400);
}

#[test]
fn every_row_is_about_as_often_at_every_position() {
    // Chi-squared over 8 rows at 8 positions, 4,000 orders: 56 degrees of freedom, where 110 is one in a hundred thousand.
    for rows in [2_u8, 5, 8] {
        let side = usize::from(rows);
        let mut counts = vec![0.0_f64; side * side];
        for seed in 0..4000 {
            for (position, row) in order(seed, 0, rows.into()).into_iter().enumerate() {
                counts[position * side + usize::try_from(row).unwrap()] += 1.0;
            }
        }
        let expected = 4000.0 / f64::from(rows);
        let deviation: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        assert!(deviation < 110.0, "{rows} rows deviate by {deviation}");
    }
}

#[test]
fn what_is_no_order_is_refused() {
    let words = |refusal: Refusal| refusal.to_string();
    assert_eq!(words(Shuffle::new(-1, 0, 3).unwrap_err()), "seed is -1; it must be at least 0 and below 2**63");
    assert_eq!(
        words(Shuffle::new(0, 1 << 63, 3).unwrap_err()),
        format!("epoch is {}; it must be at least 0 and below 2**63", 1_u64 << 63)
    );
    let order = Shuffle::new(0, 0, 3).unwrap();
    assert_eq!(order.span(1, 3), Ok((1, 3)));
    for (start, stop) in [(-1, 2), (2, 1), (0, 4)] {
        let expected = format!("positions {start}..{stop} are not within the 3 rows of the order");
        assert_eq!(words(order.span(start, stop).unwrap_err()), expected);
    }
}
