//! Layouts: which rows sit in which shard, in which order.
//!
//! Twelve rows over four shards, cut evenly, and seven rows over two shards, dealt out by weight, the second shard padded:
//!
//! ```text
//! shard   rows             shard   rows       pads      the runs of the second
//!     0   0 1 2                0   0 1 4 6                  0: (0, 2) (4, 1) (6, 1)
//!     1   3 4 5                1   2 3 5      5             1: (2, 2) (5, 1)
//!     2   6 7 8
//!     3   9 10 11
//! ```
//!
//! A shard holds its rows in this order, then its pads, which are copies of rows; every row sits in exactly one place. Rows
//! that are neighbours are one run, so a layout costs its borders, not its rows.
//!
//! A *derived* layout (`select`, `repeat`, `concat` and the like) has moved no rows: it numbers new rows, and says for each
//! in which row of the stored pieces it is read. `take`, `copies` and `reshard` read there.

use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::csr::Csr;
use crate::error::{Answer, Refusal};
use crate::layout_wire::{Recipe, Wire};
use crate::limits::{self, MOST_NUMBERS};
use crate::run::{Run, read_through, starts_of, total, zip_runs};

/// Which rows sit in which shard, in which order; equal when all of that is equal, whatever the rows weigh.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Wire", try_from = "Wire")]
pub struct Layout {
    pub(crate) rows: u64,
    pub(crate) runs: Csr<Run>,
    pub(crate) pads: Csr<u64>,
    /// Per shard, the borders of its mini-batches, from 0 to its size.
    pub(crate) cuts: Option<Csr<u64>>,
    pub(crate) view: Option<View>,
    /// What the rows of each shard weigh together, where they were weighed.
    pub(crate) loads: Option<Vec<u64>>,
    /// How to make this layout again from a few numbers.
    pub(crate) recipe: Option<Recipe>,
    real: Vec<u64>,
    id: OnceLock<u128>,
}

/// Where a derived layout reads its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// How many rows the stored batch has.
    pub(crate) rows: u64,
    /// Per shard, the rows of the stored batch that its piece holds, pads included.
    pub(crate) stored: Csr<Run>,
    /// Per shard, in the order of its rows, the rows of the stored piece they are read from.
    pub(crate) source: Csr<Run>,
}

/// Rows of one shard that are neighbours both in the batch and in the stored piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Copy {
    /// The shard.
    pub shard: u32,
    /// The first row in the stored piece of the shard.
    pub local: u64,
    /// The first row in the batch.
    pub global: u64,
    /// How many rows.
    pub len: u64,
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
            && self.runs == other.runs
            && self.pads == other.pads
            && self.cuts == other.cuts
            && self.view == other.view
    }
}

impl Eq for Layout {}

impl Hash for Layout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl Layout {
    /// Joins the parts of a layout that its maker has proven to be right.
    pub(crate) fn assemble(rows: u64, runs: Csr<Run>, pads: Csr<u64>) -> Self {
        let real = runs.lists().map(total).collect();
        let (cuts, view, loads, recipe) = (None, None, None, None);
        Self { rows, runs, pads, cuts, view, loads, recipe, real, id: OnceLock::new() }
    }

    /// Reads rows through stored pieces; where that changes nothing, the layout is a plain one.
    pub(crate) fn viewed(mut self, view: View) -> Self {
        let plain = self.rows == view.rows
            && self.runs == view.stored
            && view.source.lists().zip(&self.real).all(|(source, &len)| match source {
                [] => true,
                [run] => run.start == 0 && run.len == len,
                _ => false,
            });
        self.view = (!plain).then_some(view);
        self
    }

    /// How many rows there are, pads not counted.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many shards there are.
    pub fn shards(&self) -> u32 {
        u32::try_from(self.runs.len()).unwrap_or(u32::MAX)
    }

    /// How many rows each shard holds, pads not counted.
    pub fn real_sizes(&self) -> &[u64] {
        &self.real
    }

    /// How many rows each shard holds, pads included.
    pub fn sizes(&self) -> Vec<u64> {
        self.real.iter().zip(self.pads.lists()).map(|(&real, pads)| real + pads.len() as u64).collect()
    }

    /// How many rows one shard holds, pads included.
    pub fn size(&self, shard: usize) -> u64 {
        self.real[shard] + self.pads.list(shard).len() as u64
    }

    /// What each shard weighs: the sum of its weights where the layout was made from weights, else its rows without pads.
    pub fn loads(&self) -> &[u64] {
        self.loads.as_deref().unwrap_or(&self.real)
    }

    /// The rows of one shard in local order, without its pads.
    pub fn runs(&self, shard: usize) -> &[Run] {
        self.runs.list(shard)
    }

    /// The rows that the pads of one shard copy.
    pub fn pads(&self, shard: usize) -> &[u64] {
        self.pads.list(shard)
    }

    /// Whether this layout reads its rows through pieces that were stored by another.
    pub fn is_derived(&self) -> bool {
        self.view.is_some()
    }

    /// How many rows the batch has that `take` reads: `rows()` unless derived.
    pub fn stored_rows(&self) -> u64 {
        self.view.as_ref().map_or(self.rows, |view| view.rows)
    }

    /// How long the stored piece of each shard is: `sizes()` unless derived.
    pub fn stored_sizes(&self) -> Vec<u64> {
        self.view.as_ref().map_or_else(|| self.sizes(), |view| view.stored.lists().map(total).collect())
    }

    /// The same rows as pieces of their own: the layout of what `take` has made.
    #[must_use]
    pub fn settled(&self) -> Self {
        let mut plain = Self::assemble(self.rows, self.runs.clone(), self.pads.clone());
        plain.cuts.clone_from(&self.cuts);
        plain.loads.clone_from(&self.loads);
        plain.recipe.clone_from(&self.recipe);
        plain
    }

    /// Where the mini-batches of one shard start and stop, from 0 to its size; None without mini-batches.
    pub fn cuts(&self, shard: usize) -> Option<Vec<(u64, u64)>> {
        self.cuts.as_ref().map(|cuts| cuts.list(shard).windows(2).map(|pair| (pair[0], pair[1])).collect())
    }

    /// What the loss of one shard, a mean over its real rows, counts in the mean over all: shards * real / rows.
    pub fn loss_scale(&self, shard: usize) -> Answer<f64> {
        if self.rows == 0 {
            return Err(Refusal::NoLossScale { shards: self.shards() });
        }
        #[expect(clippy::cast_precision_loss, reason = "a scale is a float; row counts above 2^53 may round")]
        let scale = f64::from(self.shards()) * self.real[shard] as f64 / self.rows as f64;
        Ok(scale)
    }

    /// Refuses a layout in which a shard would be empty, naming the shards.
    pub fn require_rows(&self) -> Answer<()> {
        let sizes = self.sizes();
        let empty: Vec<u32> = (0..self.shards()).filter(|&shard| sizes[shard as usize] == 0).collect();
        if empty.is_empty() && self.rows > 0 {
            return Ok(());
        }
        let shown = match empty.as_slice() {
            few if few.len() <= 12 => format!("{few:?}"),
            [first, second, third, .., last] => {
                format!("[{first}, {second}, {third}, ..., {last}] ({} of them)", empty.len())
            }
            _ => String::new(),
        };
        Err(Refusal::EmptyShards { counted: limits::counted(self.rows), shards: self.shards(), empty, shown })
    }

    /// The rows of the batch that `take` hands to one shard, in order, pads last.
    pub fn reads(&self, shard: usize) -> Vec<Run> {
        let mut reads = Csr::default();
        match &self.view {
            None => self.runs(shard).iter().for_each(|run| reads.extend_run(run.start, run.len)),
            Some(view) => {
                let stored = view.stored.list(shard);
                let starts = starts_of(stored);
                for &window in view.source.list(shard) {
                    read_through(stored, &starts, window, |start, len| reads.extend_run(start, len));
                }
            }
        }
        self.pads(shard).iter().for_each(|&row| reads.extend_run(row, 1));
        reads.close();
        reads.items().to_vec()
    }

    /// Where `take` cuts, `(start, stop)` per shard, when every shard is one cut of the batch; else None.
    pub fn spans(&self) -> Option<Vec<(u64, u64)>> {
        (0..self.runs.len())
            .map(|shard| match (&self.view, self.runs(shard), self.pads(shard)) {
                (None, [], []) => Some((0, 0)),
                (None, [run], []) => Some((run.start, run.end())),
                _ => match self.reads(shard).as_slice() {
                    [] => Some((0, 0)),
                    [run] => Some((run.start, run.end())),
                    _ => None,
                },
            })
            .collect()
    }

    /// The rows of one shard that are neighbours both in the batch and in its stored piece: `(global, local, len)`.
    pub(crate) fn pieces(&self, shard: usize) -> Vec<(u64, u64, u64)> {
        if let Some(view) = &self.view {
            return zip_runs(self.runs(shard), view.source.list(shard)).collect();
        }
        let mut local = 0;
        self.runs(shard)
            .iter()
            .map(|run| {
                let piece = (run.start, local, run.len);
                local += run.len;
                piece
            })
            .collect()
    }

    /// Where to read every row, in the order of the rows: the copies that put a batch together again. Pads are never read.
    pub fn copies(&self) -> Vec<Copy> {
        let mut copies = Vec::with_capacity(self.runs.items().len());
        for (shard, number) in (0..self.runs.len()).zip(0..) {
            let pieces = self.pieces(shard);
            copies.extend(pieces.into_iter().map(|(global, local, len)| Copy { shard: number, local, global, len }));
        }
        if !copies.is_sorted_by_key(|copy: &Copy| copy.global) {
            copies.sort_unstable_by_key(|copy| copy.global);
        }
        copies.dedup_by(|next, last| {
            let joins = last.shard == next.shard
                && last.global + last.len == next.global
                && last.local + last.len == next.local;
            if joins {
                last.len += next.len;
            }
            joins
        });
        copies
    }

    /// The row numbers of one shard, refused above 2^30 of them.
    pub fn row_numbers(&self, shard: usize) -> Answer<Vec<u64>> {
        limits::allowed("the rows of a shard", self.real[shard], MOST_NUMBERS)?;
        Ok(self.runs(shard).iter().flat_map(|run| run.rows()).collect())
    }

    /// For every local row of one shard, whether it is a pad; refused above 2^33 bytes.
    pub fn pad_mask(&self, shard: usize) -> Answer<Vec<bool>> {
        limits::allowed("the rows of a shard", self.size(shard), MOST_NUMBERS * 8)?;
        Ok((0..self.size(shard)).map(|local| local >= self.real[shard]).collect())
    }

    /// A fingerprint of which rows sit where: equal layouts have equal ones in every process and on every machine.
    pub fn id(&self) -> u128 {
        *self.id.get_or_init(|| {
            let mut digest = Digest::new();
            digest.add(self.rows);
            digest.runs(&self.runs);
            digest.numbers(&self.pads);
            if let Some(cuts) = &self.cuts {
                digest.add(1);
                digest.numbers(cuts);
            }
            if let Some(view) = &self.view {
                digest.add(2);
                digest.add(view.rows);
                digest.runs(&view.stored);
                digest.runs(&view.source);
            }
            digest.finish()
        })
    }
}

/// A 128-bit FNV-1a over words, with a last stir so that every bit of the answer depends on every word.
struct Digest(u128);

impl Digest {
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;

    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ u128::from(word)).wrapping_mul(Self::PRIME);
        self.0 ^= self.0 >> 67;
    }

    fn runs(&mut self, lists: &Csr<Run>) {
        self.add(lists.len() as u64);
        for list in lists.lists() {
            self.add(list.len() as u64);
            for run in list {
                self.add(run.start);
                self.add(run.len);
            }
        }
    }

    fn numbers(&mut self, lists: &Csr<u64>) {
        self.add(lists.len() as u64);
        for list in lists.lists() {
            self.add(list.len() as u64);
            for &number in list {
                self.add(number);
            }
        }
    }

    fn finish(mut self) -> u128 {
        for turn in 0..4 {
            self.add(turn);
        }
        self.0
    }
}
