//! Orders: the permutation of the rows in one epoch, answered one position at a time.
//!
//! Nothing is drawn and nothing is stored: a position is enciphered under a key made of the seed and the epoch, so the row at
//! position 900,000 costs as much as the row at position 0, and every process that knows seed and epoch knows the order.
//!
//! ```text
//! position 5 of n = 40           6 bits: left 000, right 101
//!   -> 8 keyed rounds            left ^= f(right), right ^= f(left), ...
//!   -> 51                        not below 40: encipher again
//!   -> 2                         the row
//! ```
//!
//! The cipher (a Feistel network) permutes the smallest power of two that holds n, at least 64; enciphering again until the
//! number is below n permutes 0..n, after fewer than two turns on average (64 / n for few rows).

use crate::error::{Answer, Refusal};
use crate::ranks::RANK_LIMIT;

const ROUNDS: usize = 8;

/// Halves of fewer than 3 bits have too few round functions: some orders of 5 to 8 rows would come up a third too often.
const LEAST_BITS: u32 = 6;

/// The order of `n` rows under one seed in one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shuffle {
    rows: u64,
    right_bits: u32,
    left_mask: u64,
    right_mask: u64,
    keys: [u64; ROUNDS],
}

impl Shuffle {
    /// The order of `rows` rows; equal numbers make equal orders, on any machine and in any version.
    pub fn new(seed: i128, epoch: i128, rows: i128) -> Answer<Self> {
        let number = |what: &str, value: i128| {
            u64::try_from(value)
                .ok()
                .filter(|value| *value < RANK_LIMIT)
                .ok_or_else(|| Refusal::OrderNumber { what: what.to_owned(), value })
        };
        let (seed, epoch, rows) = (number("seed", seed)?, number("epoch", epoch)?, number("n", rows)?);
        let bits = (u64::BITS - rows.saturating_sub(1).leading_zeros()).max(LEAST_BITS);
        let right_bits = bits.div_ceil(2);
        let key = stirred(stirred(seed ^ 0x243f_6a88_85a3_08d3).wrapping_add(epoch));
        let mut keys = [0; ROUNDS];
        let mut state = key;
        for round in &mut keys {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *round = stirred(state);
        }
        Ok(Self {
            rows,
            right_bits,
            left_mask: (1 << (bits - right_bits)) - 1,
            right_mask: (1 << right_bits) - 1,
            keys,
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The row at a position, None past the end. The inverse of `position_of`.
    pub fn row_at(&self, position: u64) -> Option<u64> {
        self.walk(position, |value| self.enciphered(value))
    }

    /// The position of a row, None where there is no such row. The inverse of `row_at`.
    pub fn position_of(&self, row: u64) -> Option<u64> {
        self.walk(row, |value| self.deciphered(value))
    }

    /// Refuses positions that are not within the order, and gives back those that are.
    pub fn span(&self, start: i128, stop: i128) -> Answer<(u64, u64)> {
        match (u64::try_from(start), u64::try_from(stop)) {
            (Ok(first), Ok(end)) if first <= end && end <= self.rows => Ok((first, end)),
            _ => Err(Refusal::OrderSpan { start, stop, rows: self.rows }),
        }
    }

    /// Writes the rows at the positions from `start` on, as many as there is room for.
    pub fn write(&self, start: u64, cells: &mut [i64]) {
        for (cell, position) in cells.iter_mut().zip(start..self.rows) {
            if let Some(row) = self.row_at(position) {
                *cell = row.cast_signed();
            }
        }
    }

    fn walk(&self, from: u64, turn: impl Fn(u64) -> u64) -> Option<u64> {
        if from >= self.rows {
            return None;
        }
        let mut value = turn(from);
        while value >= self.rows {
            value = turn(value);
        }
        Some(value)
    }

    #[inline]
    fn enciphered(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.right_bits, value & self.right_mask);
        for pair in self.keys.chunks_exact(2) {
            left ^= stirred(right ^ pair[0]) & self.left_mask;
            right ^= stirred(left ^ pair[1]) & self.right_mask;
        }
        (left << self.right_bits) | right
    }

    #[inline]
    fn deciphered(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.right_bits, value & self.right_mask);
        for pair in self.keys.chunks_exact(2).rev() {
            right ^= stirred(left ^ pair[1]) & self.right_mask;
            left ^= stirred(right ^ pair[0]) & self.left_mask;
        }
        (left << self.right_bits) | right
    }
}

/// A number in which every bit depends on every bit of another (the finaliser of `SplitMix64`).
#[inline]
fn stirred(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
