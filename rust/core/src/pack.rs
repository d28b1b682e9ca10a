//! Micro-batches: the rows of every shard packed under a token cap, the same number of bins on all shards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::csr::Csr;
use crate::error::{Answer, Refusal};
use crate::layout::Layout;
use crate::limits::{self, MOST_ITEMS, MOST_ROWS};

/// What a shard with too few rows does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fill {
    /// It is refused.
    Refuse,
    /// It adds bins of one row that it has already.
    Pad,
}

impl Fill {
    /// The words for them.
    pub const WORDS: [(&'static str, Self); 2] = [("refuse", Self::Refuse), ("pad", Self::Pad)];
}

/// One micro-batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bin {
    /// Local rows, ascending.
    pub rows: Vec<u64>,
    /// Whether it repeats a row only to fill up.
    pub pad: bool,
}

/// The numbers of `pack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// The most tokens of a bin with more than one row.
    pub cap: u64,
    /// The number of bins of a mini-batch is a multiple of this.
    pub align: u64,
    /// Lengths count as the next multiple of this.
    pub row_multiple: u64,
    /// What a shard with too few rows does.
    pub fill: Fill,
}

/// Packs the rows of each shard into bins of at most `cap` tokens; only a row longer than that exceeds it, alone in its bin.
///
/// `lengths` are per shard, per local row; `cuts` where its mini-batches start and stop, from 0 to its size, as many in every shard.
/// First fit by falling length, inside each mini-batch. All shards get as many bins as the one that needs most, rounded up
/// to `align`: the others split their heaviest bins. Errors: a cap, align or row multiple of 0, cuts that do not cover the
/// rows, a shard with fewer rows than bins (unless `Fill::Pad` and it has a row).
pub fn pack(lengths: &Csr<u64>, cuts: Option<&Csr<(u64, u64)>>, packing: Packing) -> Answer<Vec<Vec<Bin>>> {
    limits::count("cap", packing.cap.into(), 1, MOST_ROWS)?;
    limits::count("align", packing.align.into(), 1, MOST_ITEMS)?;
    limits::count("row_multiple", packing.row_multiple.into(), 1, MOST_ROWS)?;
    let borders = borders(lengths, cuts)?;
    let mut shards: Vec<Vec<Bin>> = vec![Vec::new(); lengths.len()];
    let minibatches = borders.first().map_or(0, |borders| borders.len() - 1);
    for minibatch in 0..minibatches {
        let mut packed = Vec::with_capacity(lengths.len());
        for (lengths, borders) in lengths.lists().zip(&borders) {
            let start = usize::try_from(borders[minibatch]).unwrap_or(usize::MAX);
            let stop = usize::try_from(borders[minibatch + 1]).unwrap_or(usize::MAX);
            packed.push(first_fit(&lengths[start..stop], borders[minibatch], packing)?);
        }
        let most = packed.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let count = most.div_ceil(packing.align) * packing.align;
        limits::allowed("the bins of all shards", count.saturating_mul(lengths.len() as u64), MOST_ITEMS)?;
        for (shard, open) in packed.into_iter().enumerate() {
            let cell = (borders[shard][minibatch], borders[shard][minibatch + 1]);
            let missing = split_to(count, open, &mut shards[shard]);
            if missing == 0 {
                continue;
            }
            let size = lengths.list(shard).len() as u64;
            if packing.fill == Fill::Refuse || size == 0 {
                let (shard, minibatch) =
                    (u32::try_from(shard).unwrap_or(u32::MAX), u32::try_from(minibatch).unwrap_or(u32::MAX));
                let advice = match packing.fill {
                    Fill::Refuse => "use a larger cap, a smaller align, or fill='pad'",
                    Fill::Pad => "the shard has no row at all that fill='pad' could repeat",
                };
                let (rows, advice) = (cell.1 - cell.0, advice.to_owned());
                return Err(Refusal::BinsShort { shard, minibatch, rows, bins: count, advice });
            }
            // The last row of the mini-batch, or of the shard where the mini-batch has none.
            let row = if cell.0 < cell.1 { cell.1 - 1 } else { size - 1 };
            shards[shard].extend((0..missing).map(|_| Bin { rows: vec![row], pad: true }));
        }
    }
    Ok(shards)
}

/// The borders of the mini-batches of each shard, from 0 to its size.
fn borders(lengths: &Csr<u64>, cuts: Option<&Csr<(u64, u64)>>) -> Answer<Vec<Vec<u64>>> {
    let Some(cuts) = cuts else {
        return Ok(lengths.lists().map(|list| vec![0, list.len() as u64]).collect());
    };
    let expect = |what: String, expected: u64, found: u64| {
        if expected == found { Ok(()) } else { Err(Refusal::PlanCount { what, expected, found }) }
    };
    expect("lists of cuts, one per shard".to_owned(), lengths.len() as u64, cuts.len() as u64)?;
    let minibatches = cuts.lists().next().map_or(0, <[_]>::len) as u64;
    let mut all = Vec::with_capacity(lengths.len());
    for (shard, (list, pairs)) in lengths.lists().zip(cuts.lists()).enumerate() {
        let (size, mut end) = (list.len() as u64, 0);
        expect(format!("mini-batches in the cuts of shard {shard}"), minibatches, pairs.len() as u64)?;
        let mut borders = vec![0];
        for (index, &(start, stop)) in pairs.iter().enumerate() {
            expect(format!("the start of cuts[{shard}][{index}]"), end, start)?;
            end = limits::count(&format!("the stop of cuts[{shard}][{index}]"), stop.into(), start, size)?;
            borders.push(end);
        }
        expect(format!("rows inside the cuts of shard {shard}"), size, end)?;
        all.push(borders);
    }
    Ok(all)
}

impl Layout {
    /// Packs the rows of each shard, pads included, inside its mini-batches; `lengths` are per row of the batch.
    ///
    /// Errors: those of `pack`, and a number of lengths that is not the number of rows.
    pub fn pack(&self, lengths: &[u64], packing: Packing) -> Answer<Vec<Vec<Bin>>> {
        if lengths.len() as u64 != self.rows() {
            let (expected, found) = (self.rows(), lengths.len() as u64);
            return Err(Refusal::PlanCount { what: "lengths, one per row".to_owned(), expected, found });
        }
        let length = |row: u64| lengths[usize::try_from(row).unwrap_or(usize::MAX)];
        let shards = 0..self.runs.len();
        let local = |shard| {
            let rows = self.runs(shard).iter().flat_map(|run| run.rows());
            rows.chain(self.pads(shard).iter().copied()).map(length).collect::<Vec<_>>()
        };
        let cuts: Option<Csr<(u64, u64)>> = shards.clone().map(|shard| self.cuts(shard)).collect();
        pack(&shards.map(local).collect(), cuts.as_ref(), packing)
    }
}

/// A bin being filled: rows as `(length, local row)`.
struct Open {
    load: u64,
    rows: Vec<(u64, u64)>,
}

fn by_falling_length(rows: &mut [(u64, u64)]) {
    rows.sort_unstable_by_key(|&(length, row)| (Reverse(length), row));
}

fn first_fit(lengths: &[u64], first_row: u64, packing: Packing) -> Answer<Vec<Open>> {
    let mut rows = Vec::with_capacity(lengths.len());
    let mut sum: u64 = 0;
    for (&length, row) in lengths.iter().zip(first_row..) {
        let rounded = length.checked_next_multiple_of(packing.row_multiple);
        let total = rounded.and_then(|rounded| sum.checked_add(rounded)).filter(|&total| total <= MOST_ROWS);
        let (Some(rounded), Some(total)) = (rounded, total) else {
            return Err(Refusal::LoadTooLarge { most: MOST_ROWS });
        };
        sum = total;
        rows.push((rounded, row));
    }
    by_falling_length(&mut rows);
    let mut bins: Vec<Open> = Vec::new();
    let mut room = Room::new(rows.len());
    for (length, row) in rows {
        let index = match room.first(length) {
            Some(index) if length <= packing.cap => index,
            _ => {
                bins.push(Open { load: 0, rows: Vec::new() });
                bins.len() - 1
            }
        };
        bins[index].load += length;
        bins[index].rows.push((length, row));
        room.set(index, packing.cap.checked_sub(bins[index].load));
    }
    Ok(bins)
}

/// Splits the heaviest bins with more than one row until there are `count`, and adds them sorted; how many are missing.
fn split_to(count: u64, mut open: Vec<Open>, bins: &mut Vec<Bin>) -> u64 {
    // Of equal loads the bin opened first: the largest (load, earliest index) comes out on top.
    let mut heap: BinaryHeap<(u64, Reverse<usize>)> = open
        .iter()
        .enumerate()
        .filter(|(_, bin)| bin.rows.len() > 1)
        .map(|(index, bin)| (bin.load, Reverse(index)))
        .collect();
    while (open.len() as u64) < count {
        let Some((_, Reverse(index))) = heap.pop() else { break };
        let mut rows = std::mem::take(&mut open[index].rows);
        by_falling_length(&mut rows);
        let mut halves = [Open { load: 0, rows: Vec::new() }, Open { load: 0, rows: Vec::new() }];
        for (length, row) in rows {
            let half = usize::from(
                halves[1].load < halves[0].load || (halves[1].rows.is_empty() && !halves[0].rows.is_empty()),
            );
            halves[half].load += length;
            halves[half].rows.push((length, row));
        }
        let [first, second] = halves;
        open[index] = first;
        open.push(second);
        for index in [index, open.len() - 1] {
            if open[index].rows.len() > 1 {
                heap.push((open[index].load, Reverse(index)));
            }
        }
    }
    let missing = count - open.len() as u64;
    let mut made: Vec<Vec<u64>> = open
        .into_iter()
        .map(|bin| {
            let mut rows: Vec<u64> = bin.rows.into_iter().map(|(_, row)| row).collect();
            rows.sort_unstable();
            rows
        })
        .collect();
    made.sort_unstable();
    bins.extend(made.into_iter().map(|rows| Bin { rows, pad: false }));
    missing
}

/// How much room each bin has left, as a tree of maxima: the first bin with enough is found in O(log bins).
struct Room {
    leaves: usize,
    /// Room plus one; 0 where there is none, or no bin.
    most: Vec<u64>,
}

impl Room {
    fn new(bins: usize) -> Self {
        let leaves = bins.next_power_of_two();
        Self { leaves, most: vec![0; 2 * leaves] }
    }

    fn set(&mut self, index: usize, room: Option<u64>) {
        let mut node = self.leaves + index;
        self.most[node] = room.map_or(0, |room| room + 1);
        while node > 1 {
            node /= 2;
            self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]);
        }
    }

    fn first(&self, length: u64) -> Option<usize> {
        let fits = |node: usize| self.most[node] > length;
        if !fits(1) {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node = if fits(2 * node) { 2 * node } else { 2 * node + 1 };
        }
        Some(node - self.leaves)
    }
}
