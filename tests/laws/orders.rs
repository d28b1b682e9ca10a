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
    assert_eq!(order(42, 0, 10), [6, 4, 2, 1, 9, 5, 8, 7, 3, 0]);
    assert_eq!(order(42, 1, 10), [0, 5, 3, 1, 4, 8, 7, 6, 2, 9]);
    assert_eq!(order(42, 1, 33)[..5], [0, 5, 3, 21, 29]);
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

/// Chi-squared of how often each outcome came up, in standard deviations; of 6 there is one in a hundred million.
fn deviation(counts: &[u32]) -> f64 {
    let outcomes = f64::from(u32::try_from(counts.len()).unwrap());
    let (expected, free) = (f64::from(counts.iter().sum::<u32>()) / outcomes, outcomes - 1.0);
    let sum: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    (sum - free) / (2.0 * free).sqrt()
}

#[test]
fn every_order_of_few_rows_comes_up_as_often_as_any_other() {
    for (rows, orders) in [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720)] {
        let mut seen = std::collections::HashMap::new();
        for seed in 0..100 * orders {
            *seen.entry(order(seed, 0, rows)).or_insert(0) += 1;
        }
        let counts: Vec<u32> = seen.into_values().collect();
        assert_eq!(counts.len() as i128, orders);
        assert!(deviation(&counts) < 6.0, "{rows} rows deviate by {}", deviation(&counts));
    }
}

#[test]
fn every_pair_of_rows_comes_first_as_often_as_any_other() {
    for rows in [5_u8, 7, 8, 9, 16, 17, 31, 32, 33, 64] {
        for seeds in [true, false] {
            let side = usize::from(rows);
            let mut counts = vec![0; side * side];
            for number in 0..80_000 {
                let (seed, epoch) = if seeds { (number, 0) } else { (0, number) };
                let order = Shuffle::new(seed, epoch, rows.into()).unwrap();
                let [first, second] = [0, 1].map(|place| usize::try_from(order.row_at(place).unwrap()).unwrap());
                counts[first * side + second] += 1;
            }
            let counts: Vec<u32> =
                (0..side * side).filter(|cell| cell % (side + 1) != 0).map(|cell| counts[cell]).collect();
            assert!(deviation(&counts) < 6.0, "{rows} rows deviate by {}", deviation(&counts));
        }
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
