//! Layout algebra: other rows out of the same stored pieces, without moving any.
//!
//! The rows of the answer are numbered anew; each stays in the shard that stores it. Pads and mini-batches do not survive.

use crate::csr::Csr;
use crate::error::{Answer, Refusal};
use crate::layout::{Copy, Layout, View};
use crate::limits::{self, MOST_ITEMS};
use crate::run::{Run, runs_of, total};

impl Layout {
    /// Row j of the answer is row `rows[j]`, which may repeat.
    ///
    /// Errors: a row that is not there.
    pub fn select(&self, rows: &[u64]) -> Answer<Self> {
        self.select_runs(&runs_of(rows.iter().copied()))
    }

    /// The rows from `start` up to `stop`, exclusive.
    ///
    /// Errors: bounds outside 0..=rows or the wrong way round.
    pub fn slice(&self, start: u64, stop: u64) -> Answer<Self> {
        limits::count("stop", stop.into(), 0, self.rows)?;
        limits::count("start", start.into(), 0, stop)?;
        self.select_runs(&[Run { start, len: stop - start }])
    }

    /// Every row `times` times, the copies of a row next to each other.
    ///
    /// Errors: more than 2^24 rows.
    pub fn repeat(&self, times: u64) -> Answer<Self> {
        if times == 1 {
            return self.slice(0, self.rows);
        }
        let made = self.rows.saturating_mul(times);
        limits::allowed("the rows of repeat", made, MOST_ITEMS)?;
        let rows: Vec<u64> = (0..self.rows).flat_map(|row| (0..times).map(move |_| row)).collect();
        self.select(&rows)
    }

    /// Row i `counts[i]` times, the copies of a row next to each other.
    ///
    /// Errors: a number of counts that is not the number of rows, more than 2^24 rows.
    pub fn expand(&self, counts: &[u64]) -> Answer<Self> {
        if counts.len() as u64 != self.rows {
            let (expected, found) = (self.rows, counts.len() as u64);
            return Err(Refusal::PlanCount { what: "counts, one per row".to_owned(), expected, found });
        }
        let made = counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
        limits::allowed("the rows of expand", made, MOST_ITEMS)?;
        let rows: Vec<u64> = (0..).zip(counts).flat_map(|(row, &count)| (0..count).map(move |_| row)).collect();
        self.select(&rows)
    }

    /// The rows of one mini-batch, in order.
    ///
    /// Errors: a layout without mini-batches, a mini-batch that is not there.
    pub fn minibatch(&self, index: u64) -> Answer<Self> {
        let none = || Refusal::NoMiniBatches { rows: self.rows, shards: self.shards() };
        let cuts = self.cuts.as_ref().ok_or_else(none)?;
        let minibatches = cuts.lists().next().map_or(0, |borders| borders.len() as u64 - 1);
        if minibatches == 0 {
            return Err(none());
        }
        let at = usize::try_from(limits::count("minibatch", index.into(), 0, minibatches - 1)?).unwrap_or(usize::MAX);
        let mut runs = Vec::new();
        for (shard, borders) in cuts.lists().enumerate() {
            let mut local = 0;
            for run in self.runs(shard) {
                let (start, stop) = (borders[at].max(local), borders[at + 1].min(local + run.len));
                if start < stop {
                    runs.push(Run { start: run.start + (start - local), len: stop - start });
                }
                local += run.len;
            }
        }
        runs.sort_unstable_by_key(|run| run.start);
        self.select_runs(&runs)
    }

    /// The rows of this layout, then those of `other`: shard by shard, the pieces of both end to end.
    ///
    /// Errors: different numbers of shards.
    pub fn concat(&self, other: &Self) -> Answer<Self> {
        if self.shards() != other.shards() {
            let (shards, other) = (self.shards(), other.shards());
            return Err(Refusal::ShardsDiffer { what: "concat".to_owned(), shards, other });
        }
        limits::rows("the rows of concat", i128::from(self.rows) + i128::from(other.rows))?;
        limits::rows("the stored rows of concat", i128::from(self.stored_rows()) + i128::from(other.stored_rows()))?;
        let (first, second) = (self.stored_view(), other.stored_view());
        let shards = self.runs.len();
        let mut runs = Csr::with_capacity(shards, self.runs.items().len() + other.runs.items().len());
        let mut stored = Csr::with_capacity(shards, first.stored.items().len() + second.stored.items().len());
        let mut source = Csr::with_capacity(shards, first.source.items().len() + second.source.items().len());
        for shard in 0..shards {
            let parts = [(&self.runs, &first, 0, 0, 0), {
                let length = total(first.stored.list(shard));
                (&other.runs, &second, self.rows, first.rows, length)
            }];
            for (rows, view, row_shift, stored_shift, local_shift) in parts {
                extend(&mut runs, rows.list(shard), row_shift);
                extend(&mut stored, view.stored.list(shard), stored_shift);
                extend(&mut source, view.source.list(shard), local_shift);
            }
            runs.close();
            stored.close();
            source.close();
        }
        let mut joined = Self::assemble(self.rows + other.rows, runs, Csr::empty(shards));
        if let (Some(first), Some(second)) = (&self.loads, &other.loads) {
            joined.loads = Some(first.iter().zip(second).map(|(a, b)| a.saturating_add(*b)).collect());
        }
        Ok(joined.viewed(View { rows: first.rows + second.rows, stored, source }))
    }

    /// `select`, with neighbouring rows as one run.
    ///
    /// Errors: a row that is not there.
    pub fn select_runs(&self, chosen: &[Run]) -> Answer<Self> {
        let rows = limits::rows("the rows of the answer", chosen.iter().map(|run| i128::from(run.len)).sum())?;
        if let Some(run) =
            chosen.iter().find(|run| run.len > 0 && (run.start >= self.rows || run.len > self.rows - run.start))
        {
            let row = run.start.max(self.rows).into();
            return Err(Refusal::RowBeyond { what: "select".to_owned(), row, rows: self.rows });
        }
        let copies = self.copies();
        let mut pieces: Vec<(u32, u64, u64, u64)> = Vec::with_capacity(chosen.len());
        let (mut next, mut hint) = (0, 0);
        for run in chosen {
            follow(&copies, *run, &mut hint, |copy, local, len| {
                pieces.push((copy.shard, next, local, len));
                next += len;
            });
        }
        // New numbers ascend, so a stable sort leaves every shard in the new order.
        pieces.sort_by_key(|piece| piece.0);
        let mut pieces = pieces.into_iter().peekable();
        let shards = self.runs.len();
        let (mut runs, mut source) = (Csr::with_capacity(shards, 0), Csr::with_capacity(shards, 0));
        for shard in 0..self.shards() {
            while let Some((_, row, local, len)) = pieces.next_if(|piece| piece.0 == shard) {
                runs.extend_run(row, len);
                source.extend_run(local, len);
            }
            runs.close();
            source.close();
        }
        let stored = self.stored_view();
        Ok(Self::assemble(rows, runs, Csr::empty(shards)).viewed(View { source, ..stored }))
    }

    /// The pieces as they are stored, and where in them the rows are.
    fn stored_view(&self) -> View {
        if let Some(view) = &self.view {
            return view.clone();
        }
        let shards = self.runs.len();
        let mut stored = Csr::with_capacity(shards, self.runs.items().len());
        let mut source = Csr::with_capacity(shards, shards);
        for shard in 0..shards {
            extend(&mut stored, self.runs(shard), 0);
            self.pads(shard).iter().for_each(|&row| stored.extend_run(row, 1));
            source.extend_run(0, self.real_sizes()[shard]);
            stored.close();
            source.close();
        }
        View { rows: self.rows, stored, source }
    }
}

fn extend(lists: &mut Csr<Run>, runs: &[Run], shift: u64) {
    for run in runs {
        lists.extend_run(run.start + shift, run.len);
    }
}

/// Finds where the rows of `run` are stored, piece by piece; `hint` is where the search starts, and where it ended.
///
/// `copies` are sorted and hold every row of `run`.
pub(crate) fn follow(copies: &[Copy], run: Run, hint: &mut usize, mut emit: impl FnMut(&Copy, u64, u64)) {
    let holds = |index: usize, row: u64| {
        copies.get(index).is_some_and(|copy| copy.global <= row && row - copy.global < copy.len)
    };
    let mut row = run.start;
    while row < run.end() {
        if !holds(*hint, row) {
            *hint += 1;
        }
        if !holds(*hint, row) {
            *hint = copies.partition_point(|copy| copy.global <= row).saturating_sub(1);
        }
        let copy = &copies[*hint];
        let offset = row - copy.global;
        let len = (copy.len - offset).min(run.end() - row);
        emit(copy, copy.local + offset, len);
        row += len;
    }
}
