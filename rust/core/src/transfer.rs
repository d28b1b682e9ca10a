//! Transfers: from one layout to another of the same rows, with as few pieces as the borders allow.

use crate::algebra::follow;
use crate::error::{Answer, Refusal};
use crate::layout::Layout;
use crate::limits;
use crate::run::Run;

/// Rows that go from one shard to another, neighbours in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShardMove {
    /// The shard that has the rows.
    pub source: u32,
    /// The first row in its stored piece.
    pub source_start: u64,
    /// The shard that gets them.
    pub target: u32,
    /// The first row in its new piece.
    pub target_start: u64,
    /// How many rows.
    pub len: u64,
}

impl ShardMove {
    /// Reads a move from its five numbers. Errors: shards that are not there, negative starts, no rows.
    pub fn from_numbers(numbers: [i128; 5], sources: u32, targets: u32) -> Answer<Self> {
        let [source, source_start, target, target_start, len] = numbers;
        let number = |shard| u32::try_from(shard).unwrap_or(u32::MAX);
        Ok(Self {
            source: limits::shard(source, sources).map(number)?,
            source_start: limits::rows("the start of a move", source_start)?,
            target: limits::shard(target, targets).map(number)?,
            target_start: limits::rows("the start of a move", target_start)?,
            len: limits::count("the length of a move", len, 1, limits::MOST_ROWS)?,
        })
    }
}

impl Layout {
    /// The moves that turn pieces of this layout into pieces of `other`: by destination shard, then start; real rows only.
    ///
    /// A walk over the borders of both. Every row of every destination is written once. Errors: different numbers of rows.
    pub fn reshard(&self, other: &Self) -> Answer<Vec<ShardMove>> {
        self.same_rows(other)?;
        let copies = self.copies();
        let mut moves = Vec::with_capacity(copies.len() + other.runs.items().len());
        let mut hint = 0;
        for (target, runs) in (0..).zip(other.runs.lists()) {
            let mut at = 0;
            for &run in runs {
                follow(&copies, run, &mut hint, |copy, source_start, len| {
                    push(&mut moves, ShardMove { source: copy.shard, source_start, target, target_start: at, len });
                    at += len;
                });
            }
        }
        Ok(moves)
    }

    /// The further moves that `other` needs for pads whose row its shard does not hold: those of shards that hold only pads.
    ///
    /// Errors: different numbers of rows.
    pub fn pad_moves(&self, other: &Self) -> Answer<Vec<ShardMove>> {
        self.same_rows(other)?;
        let mut moves = Vec::new();
        if other.pads.items().is_empty() {
            return Ok(moves);
        }
        let copies = self.copies();
        let mut hint = 0;
        for (target, shard) in (0..).zip(0..other.runs.len()) {
            let mut held = other.runs(shard).to_vec();
            held.sort_unstable_by_key(|run| run.start);
            for (&row, at) in other.pads(shard).iter().zip(other.real_sizes()[shard]..) {
                let before = held.partition_point(|run| run.start <= row);
                if before > 0 && row < held[before - 1].end() {
                    continue;
                }
                follow(&copies, Run { start: row, len: 1 }, &mut hint, |copy, source_start, len| {
                    push(&mut moves, ShardMove { source: copy.shard, source_start, target, target_start: at, len });
                });
            }
        }
        Ok(moves)
    }

    fn same_rows(&self, other: &Self) -> Answer<()> {
        match (self.rows(), other.rows()) {
            (rows, others) if rows == others => Ok(()),
            (rows, other) => Err(Refusal::RowsDiffer { rows, other }),
        }
    }
}

/// Adds a move, joined to the one before where it continues it on both sides.
fn push(moves: &mut Vec<ShardMove>, next: ShardMove) {
    match moves.last_mut() {
        Some(last)
            if (last.source, last.target) == (next.source, next.target)
                && last.source_start + last.len == next.source_start
                && last.target_start + last.len == next.target_start =>
        {
            last.len += next.len;
        }
        _ => moves.push(next),
    }
}
