//! Neighbouring rows as one value, so that a billion rows cost no more than their borders.

use crate::csr::Csr;

/// The rows `start..start + len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first row.
    pub start: u64,
    /// How many rows; never 0 inside a layout.
    pub len: u64,
}

impl Run {
    /// The rows from `start` up to `stop`, exclusive; None where there are none.
    pub fn between(start: u64, stop: u64) -> Option<Self> {
        stop.checked_sub(start).filter(|&len| len > 0).map(|len| Self { start, len })
    }

    /// The row after the last.
    pub fn end(self) -> u64 {
        self.start + self.len
    }

    /// The rows, one by one.
    pub fn rows(self) -> impl Iterator<Item = u64> {
        self.start..self.end()
    }
}

impl Csr<Run> {
    /// Adds rows to the open list in normal form: neighbours join, and no rows are no run.
    pub fn extend_run(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        match self.open_last() {
            Some(last) if last.end() == start => last.len += len,
            _ => self.push(Run { start, len }),
        }
    }
}

/// Turns row numbers into runs, neighbours joined.
pub fn runs_of(rows: impl IntoIterator<Item = u64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for row in rows {
        match runs.last_mut() {
            Some(last) if last.end() == row => last.len += 1,
            _ => runs.push(Run { start: row, len: 1 }),
        }
    }
    runs
}

/// How many rows the runs hold together.
pub(crate) fn total(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.len).sum()
}

/// Two lists of runs of the same total, cut at the borders of both: `(a, b, len)` with `a` from the first, `b` from the second.
pub(crate) fn zip_runs<'a>(first: &'a [Run], second: &'a [Run]) -> impl Iterator<Item = (u64, u64, u64)> + 'a {
    let (mut i, mut j, mut used_i, mut used_j) = (0, 0, 0, 0);
    std::iter::from_fn(move || {
        let (a, b) = (first.get(i)?, second.get(j)?);
        let len = (a.len - used_i).min(b.len - used_j);
        let piece = (a.start + used_i, b.start + used_j, len);
        used_i += len;
        used_j += len;
        if used_i == a.len {
            (i, used_i) = (i + 1, 0);
        }
        if used_j == b.len {
            (j, used_j) = (j + 1, 0);
        }
        Some(piece)
    })
}

/// Reads positions of a list of runs: what stands at `window` when the rows of `runs` are laid end to end.
///
/// `starts[i]` is where run `i` begins on that line; `window` lies inside it.
pub(crate) fn read_through(runs: &[Run], starts: &[u64], window: Run, mut emit: impl FnMut(u64, u64)) {
    let mut index = starts.partition_point(|&start| start <= window.start).saturating_sub(1);
    let mut at = window.start;
    while at < window.end() {
        let offset = at - starts[index];
        let len = (runs[index].len - offset).min(window.end() - at);
        emit(runs[index].start + offset, len);
        at += len;
        index += 1;
    }
}

/// Where each run begins when the rows of all are laid end to end.
pub(crate) fn starts_of(runs: &[Run]) -> Vec<u64> {
    let mut at = 0;
    runs.iter()
        .map(|run| {
            let start = at;
            at += run.len;
            start
        })
        .collect()
}
