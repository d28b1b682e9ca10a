//! Splits: the rules by which rows are dealt out to shards.

use crate::csr::Csr;
use crate::error::{Answer, Refusal};
use crate::layout::Layout;
use crate::layout_wire::Recipe;
use crate::limits::{self, MOST_ITEMS, MOST_ROWS};
use crate::rows::even_share;
use crate::run::{Run, runs_of};

/// The share of `index` when `rows` are dealt out evenly: the first `rows % shares` get one more.
pub(crate) fn share_of(rows: u64, shares: u64, index: u64) -> Run {
    let (start, stop) = even_share(rows, shares, index);
    Run { start, len: stop - start }
}

/// Refuses rows that are no whole number of groups; else how many groups they are.
pub(crate) fn groups_in(what: &str, rows: u64, group: u64) -> Answer<u64> {
    limits::count("group", group.into(), 1, MOST_ROWS)?;
    if !rows.is_multiple_of(group) {
        return Err(Refusal::GroupsTorn { what: what.to_owned(), rows, group });
    }
    Ok(rows / group)
}

fn checked(rows: u64, shards: u32, group: u64) -> Answer<u64> {
    limits::rows("n", rows.into())?;
    limits::items("shards", shards.into())?;
    groups_in("n", rows, group)
}

impl Layout {
    /// Deals out `rows` in order, sizes that differ by at most one group and never increase; shards may be empty.
    ///
    /// Errors: rows that are no multiple of `group`.
    pub fn even(rows: u64, shards: u32, group: u64) -> Answer<Self> {
        let groups = checked(rows, shards, group)?;
        let mut layout = Self::assemble(rows, even_runs(groups, shards, group), Csr::empty(shards as usize));
        layout.recipe = Some(Recipe::Even { rows, shards, group });
        Ok(layout)
    }

    /// The even split with every shard filled up to one size, a multiple of `multiple` and of `group`.
    ///
    /// A short shard repeats its own last group, a shard without rows repeats group `shard % groups`. Errors: no rows, rows
    /// that are no multiple of `group`.
    pub fn padded(rows: u64, shards: u32, multiple: u64, group: u64) -> Answer<Self> {
        let groups = checked(rows, shards, group)?;
        let multiple = limits::count("multiple", multiple.into(), 1, MOST_ITEMS)?;
        if groups == 0 {
            return Err(Refusal::NothingToRepeat { shards });
        }
        let runs = even_runs(groups, shards, group);
        let step = u128::from(multiple / gcd(multiple, group)) * u128::from(group);
        let largest = u128::from(groups.div_ceil(shards.into())) * u128::from(group);
        let size = largest.div_ceil(step) * step;
        let room = (size * u128::from(shards)).saturating_sub(rows.into());
        limits::allowed("padding", u64::try_from(room).unwrap_or(u64::MAX), MOST_ITEMS)?;
        let mut pads = Csr::with_capacity(shards as usize, 0);
        for (shard, list) in (0..).zip(runs.lists()) {
            let held: u64 = list.iter().map(|run| run.len).sum();
            let first = list.last().map_or(shard % groups * group, |run| run.end() - group);
            let missing = u64::try_from(size).unwrap_or(u64::MAX) - held;
            for index in 0..missing {
                pads.push(first + index % group);
            }
            pads.close();
        }
        let mut layout = Self::assemble(rows, runs, pads);
        layout.recipe = Some(Recipe::Padded { rows, shards, multiple, group });
        Ok(layout)
    }

    /// Cuts the rows into mini-batches, each dealt out evenly, so that mini-batch m is the same rows over any number of shards.
    ///
    /// `rotate` starts the spare groups of a mini-batch at the shard after the last one that got a spare. `pad` gives a shard
    /// without a row in a mini-batch one group of pads. Errors: a shard without a row in a mini-batch (unless `pad`), with
    /// `rotate` also when it is not the shard's last mini-batch; no rows to repeat.
    pub fn minibatched(rows: u64, shards: u32, minibatches: u32, rotate: bool, pad: bool, group: u64) -> Answer<Self> {
        let groups = checked(rows, shards, group)?;
        limits::items("minibatches", minibatches.into())?;
        limits::allowed("mini-batches of all shards", u64::from(shards) * u64::from(minibatches), MOST_ITEMS)?;
        if groups == 0 && pad {
            return Err(Refusal::NothingToRepeat { shards });
        }
        let first_shards = first_spare_shards(groups, shards, minibatches, rotate);
        let (lists, count) = (shards as usize, minibatches as usize);
        let mut runs = Csr::with_capacity(lists, lists * count);
        let mut pads: Csr<u64> = Csr::with_capacity(lists, 0);
        let mut cuts = Csr::with_capacity(lists, lists * (count + 1));
        for shard in 0..shards {
            let (mut held, mut last) = (0, None);
            cuts.push(0);
            for minibatch in 0..minibatches {
                let batch = share_of(groups, minibatches.into(), minibatch.into());
                let cell = rotated_share(batch, shards, first_shards[minibatch as usize], shard);
                if cell.len > 0 {
                    runs.extend_run(cell.start * group, cell.len * group);
                    held += cell.len * group;
                    last = Some(cell.end() - 1);
                } else if !pad || (rotate && minibatch + 1 < minibatches) {
                    let advice = if pad {
                        "with rotate only the last may be padded"
                    } else {
                        "hand over more rows, or set pad=True"
                    };
                    let (counted, advice) = (limits::counted(rows), advice.to_owned());
                    return Err(Refusal::EmptyCell { counted, shards, minibatches, shard, minibatch, advice });
                } else {
                    let first = last.unwrap_or_else(|| u64::from(shard) % groups) * group;
                    (first..first + group).for_each(|row| pads.push(row));
                    held += group;
                }
                cuts.push(held);
            }
            runs.close();
            pads.close();
            cuts.close();
        }
        let mut layout = Self::assemble(rows, runs, pads);
        layout.cuts = Some(cuts);
        layout.recipe = Some(Recipe::Minibatched { rows, shards, minibatches, rotate, pad, group });
        Ok(layout)
    }

    /// Cuts the rows into shards of `size`, the last one shorter: as many shards as that takes.
    ///
    /// Errors: a size of 0, rows or a size that are no multiple of `group`.
    pub fn chunked(rows: u64, size: u64, group: u64) -> Answer<Self> {
        limits::rows("n", rows.into())?;
        limits::count("size", size.into(), 1, MOST_ROWS)?;
        groups_in("n", rows, group)?;
        groups_in("size", size, group)?;
        let shards = rows.div_ceil(size);
        limits::allowed("chunks", shards, MOST_ITEMS)?;
        let mut runs = Csr::default();
        for shard in 0..shards {
            runs.extend_run(shard * size, size.min(rows - shard * size));
            runs.close();
        }
        let pads = Csr::empty(runs.len());
        let mut layout = Self::assemble(rows, runs, pads);
        layout.recipe = Some(Recipe::Chunked { rows, size });
        Ok(layout)
    }

    /// The rows of each shard as given, and the rows that its pads copy.
    ///
    /// Errors: rows that are not 0, 1, 2, ... each once; a pad of a row that is not there; a group taken apart.
    pub fn explicit(lists: &[Vec<Run>], pads: Option<Vec<Vec<u64>>>, group: u64) -> Answer<Self> {
        let mut runs = Csr::with_capacity(lists.len(), lists.len());
        for list in lists {
            for run in list {
                limits::rows("a row", i128::from(run.start) + i128::from(run.len))?;
                runs.extend_run(run.start, run.len);
            }
            runs.close();
        }
        limits::allowed("shards", runs.len() as u64, MOST_ITEMS)?;
        let rows = partition(&runs)?;
        groups_in("n", rows, group)?;
        if let Some(run) =
            runs.items().iter().find(|run| !run.start.is_multiple_of(group) || !run.len.is_multiple_of(group))
        {
            let border = if run.start.is_multiple_of(group) { run.end() } else { run.start };
            let first = border / group * group;
            return Err(Refusal::GroupApart { first, last: first + group - 1, group });
        }
        let pads = match pads {
            None => Csr::empty(runs.len()),
            Some(pads) if pads.len() != runs.len() => {
                let (expected, found) = (runs.len() as u64, pads.len() as u64);
                return Err(Refusal::PlanCount { what: "lists of pads, one per shard".to_owned(), expected, found });
            }
            Some(pads) => pads.into_iter().collect(),
        };
        for (shard, list) in pads.lists().enumerate() {
            groups_in(&format!("the number of pads[{shard}]:"), list.len() as u64, group)?;
            if let Some(&row) = list.iter().find(|&&row| row >= rows) {
                return Err(Refusal::RowBeyond { what: format!("pads[{shard}]"), row: row.into(), rows });
            }
            let whole = |rows: &[u64]| rows[0].is_multiple_of(group) && runs_of(rows.iter().copied()).len() == 1;
            if let Some(torn) = list.chunks(usize::try_from(group).unwrap_or(usize::MAX)).find(|rows| !whole(rows)) {
                let first = torn[0] / group * group;
                return Err(Refusal::GroupApart { first, last: first + group - 1, group });
            }
        }
        Ok(Self::assemble(rows, runs, pads))
    }
}

fn even_runs(groups: u64, shards: u32, group: u64) -> Csr<Run> {
    let mut runs = Csr::with_capacity(shards as usize, shards as usize);
    for shard in 0..shards {
        let share = share_of(groups, shards.into(), shard.into());
        runs.extend_run(share.start * group, share.len * group);
        runs.close();
    }
    runs
}

/// For each mini-batch, the shard that gets the first of its spare groups.
fn first_spare_shards(groups: u64, shards: u32, minibatches: u32, rotate: bool) -> Vec<u64> {
    let mut next = 0;
    (0..minibatches)
        .map(|minibatch| {
            let first = next;
            if rotate {
                let spare = share_of(groups, minibatches.into(), minibatch.into()).len % u64::from(shards);
                next = (next + spare) % u64::from(shards);
            }
            first
        })
        .collect()
}

/// The share of one shard when a batch is dealt out evenly in shard order, the spare ones from shard `first` on, in a circle.
fn rotated_share(batch: Run, shards: u32, first: u64, shard: u32) -> Run {
    let (shards, shard) = (u64::from(shards), u64::from(shard));
    let (base, spare) = (batch.len / shards, batch.len % shards);
    let wrapped = (first + spare).saturating_sub(shards);
    let gets_spare = |index: u64| index < wrapped || (first <= index && index < first + spare);
    let spares_before = shard.min(wrapped) + shard.clamp(first, first + spare) - first;
    Run { start: batch.start + shard * base + spares_before, len: base + u64::from(gets_spare(shard)) }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Checks that the rows of all shards are 0, 1, 2, ... each once; the number of rows.
pub(crate) fn partition(runs: &Csr<Run>) -> Answer<u64> {
    let sum = runs.items().iter().try_fold(0u64, |sum, run| sum.checked_add(run.len)).unwrap_or(u64::MAX);
    let rows = limits::rows("the number of rows", sum.into())?;
    let mut ordered: Vec<(Run, u32)> = Vec::with_capacity(runs.items().len());
    for (shard, list) in (0..).zip(runs.lists()) {
        ordered.extend(list.iter().map(|&run| (run, shard)));
    }
    if !ordered.is_sorted_by_key(|(run, _)| run.start) {
        ordered.sort_unstable_by_key(|&(run, shard)| (run.start, shard));
    }
    let (mut end, mut holder) = (0, 0);
    for &(run, shard) in &ordered {
        if run.start > end {
            return Err(Refusal::RowMissing { row: end, rows });
        }
        if run.start < end {
            return Err(Refusal::RowTwice { row: run.start, first: holder, second: shard });
        }
        (end, holder) = (run.end(), shard);
    }
    Ok(rows)
}
