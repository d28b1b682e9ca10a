//! Splits by weight: token lengths dealt out so that no shard waits long for another.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap};

use crate::csr::Csr;
use crate::error::{Answer, Refusal};
use crate::layout::Layout;
use crate::limits::{self, MOST_ROWS};
use crate::splits::{groups_in, share_of};

/// How hard `balanced` tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Balance {
    /// Heaviest group first, each to the lightest shard that has room.
    Greedy,
    /// The greedy split, then swaps between the heaviest shard and light ones for as long as they lighten it.
    Refined,
}

/// How many light shards the heaviest one looks at before it is left as it is.
const PARTNERS: usize = 8;

impl Layout {
    /// Deals out one row per weight so that the shards weigh about the same; rows ascend inside a shard.
    ///
    /// Groups go by falling weight, then index, each to the lightest shard, of equals the lowest; with `equal` a shard takes
    /// no more groups than the even split gives it. Errors: a number of weights that is no multiple of `group`, weights
    /// that add up to 2^63 or more.
    pub fn balanced(weights: &[u64], shards: u32, equal: bool, group: u64, balance: Balance) -> Answer<Self> {
        let rows = limits::rows("n", weights.len() as i128)?;
        limits::items("shards", shards.into())?;
        let groups = groups_in("n", rows, group)?;
        limits::allowed("groups", groups, u32::MAX.into())?;
        let sum = weights.iter().try_fold(0u64, |sum, &weight| sum.checked_add(weight));
        if sum.is_none_or(|sum| sum > MOST_ROWS) {
            return Err(Refusal::LoadTooLarge { most: MOST_ROWS });
        }
        let size = usize::try_from(group).unwrap_or(usize::MAX);
        let group_weights: Vec<u64> = weights.chunks(size).map(|group| group.iter().sum()).collect();
        let mut shard_of = greedy(&group_weights, shards, equal);
        if balance == Balance::Refined {
            refine(&group_weights, shards, equal, &mut shard_of);
        }
        Ok(gather(rows, &group_weights, shards, group, &shard_of))
    }

    /// A target layout of the same rows over the same shards, balanced by `weights`: `reshard` to it to get there.
    ///
    /// Errors: those of `balanced`, and a number of weights that is not the number of rows.
    pub fn rebalance(&self, weights: &[u64], equal: bool, group: u64, balance: Balance) -> Answer<Self> {
        if weights.len() as u64 != self.rows() {
            let (expected, found) = (self.rows(), weights.len() as u64);
            return Err(Refusal::PlanCount { what: "weights, one per row".to_owned(), expected, found });
        }
        Self::balanced(weights, self.shards(), equal, group, balance)
    }
}

/// The layout in which each shard holds its groups in ascending order.
fn gather(rows: u64, weights: &[u64], shards: u32, group: u64, shard_of: &[u32]) -> Layout {
    let mut loads = vec![0; shards as usize];
    let mut next = vec![0usize; shards as usize + 1];
    for (&shard, &weight) in shard_of.iter().zip(weights) {
        loads[shard as usize] += weight;
        next[shard as usize + 1] += 1;
    }
    for shard in 0..shards as usize {
        next[shard + 1] += next[shard];
    }
    let mut ordered = vec![0u32; shard_of.len()];
    let bounds = next.clone();
    for (&shard, index) in shard_of.iter().zip(0..) {
        ordered[next[shard as usize]] = index;
        next[shard as usize] += 1;
    }
    let mut runs = Csr::with_capacity(shards as usize, ordered.len());
    for pair in bounds.windows(2) {
        for &index in &ordered[pair[0]..pair[1]] {
            runs.extend_run(u64::from(index) * group, group);
        }
        runs.close();
    }
    let mut layout = Layout::assemble(rows, runs, Csr::empty(shards as usize));
    layout.loads = Some(loads);
    layout
}

fn greedy(weights: &[u64], shards: u32, equal: bool) -> Vec<u32> {
    let even = |shard: u32| share_of(weights.len() as u64, shards.into(), shard.into()).len;
    let mut room: Vec<u64> = (0..shards).map(|shard| if equal { even(shard) } else { u64::MAX }).collect();
    // One number per group, falling weight first, then index; one per shard, load first, then shard: cheap to compare.
    let mut order: Vec<u128> =
        weights.iter().zip(0u32..).map(|(&weight, index)| key(u64::MAX - weight, index)).collect();
    order.sort_unstable();
    let open = (0..shards).filter(|&shard| room[shard as usize] > 0);
    let mut lightest: BinaryHeap<Reverse<u128>> = open.map(|shard| Reverse(key(0, shard))).collect();
    let mut shard_of = vec![0; weights.len()];
    for group in order.into_iter().map(low) {
        let Some(mut top) = lightest.peek_mut() else { break };
        let shard = low(top.0);
        shard_of[group as usize] = shard;
        top.0 += key(weights[group as usize], 0);
        room[shard as usize] -= 1;
        if room[shard as usize] == 0 {
            PeekMut::pop(top);
        }
    }
    shard_of
}

/// A number that sorts by `high`, then by `low`.
fn key(high: u64, low: u32) -> u128 {
    (u128::from(high) << 32) | u128::from(low)
}

fn low(key: u128) -> u32 {
    u32::try_from(key & u128::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Swaps groups between the heaviest shard and light ones while that lightens the pair; moves one over where counts may differ.
fn refine(weights: &[u64], shards: u32, equal: bool, shard_of: &mut [u32]) {
    let mut members: Vec<Vec<(u64, u32)>> = vec![Vec::new(); shards as usize];
    for ((&shard, &weight), index) in shard_of.iter().zip(weights).zip(0..) {
        members[shard as usize].push((weight, index));
    }
    let mut loads: BTreeSet<(u64, u32)> = BTreeSet::new();
    for (list, shard) in members.iter_mut().zip(0..) {
        list.sort_unstable();
        loads.insert((list.iter().map(|&(weight, _)| weight).sum(), shard));
    }
    for _ in 0..4 * shards as usize {
        let Some(&heavy) = loads.last() else { break };
        let best = loads.iter().take(PARTNERS).filter(|light| light.0 < heavy.0).find_map(|&light| {
            let (from, to) = (&members[heavy.1 as usize], &members[light.1 as usize]);
            best_swap(from, to, heavy.0 - light.0, equal).map(|(give, take, shift)| (light, give, take, shift))
        });
        let Some((light, give, take, shift)) = best else { break };
        for (pair, load) in [(heavy, heavy.0 - shift), (light, light.0 + shift)] {
            loads.remove(&pair);
            loads.insert((load, pair.1));
        }
        let given = members[heavy.1 as usize].remove(give);
        if let Some(take) = take {
            let taken = members[light.1 as usize].remove(take);
            insert(&mut members[heavy.1 as usize], taken);
            shard_of[taken.1 as usize] = heavy.1;
        }
        insert(&mut members[light.1 as usize], given);
        shard_of[given.1 as usize] = light.1;
    }
}

fn insert(sorted: &mut Vec<(u64, u32)>, item: (u64, u32)) {
    let at = sorted.partition_point(|other| other < &item);
    sorted.insert(at, item);
}

/// The swap that brings two loads `gap` apart closest together: what to give, what to take for it, and by how much they shift.
fn best_swap(from: &[(u64, u32)], to: &[(u64, u32)], gap: u64, equal: bool) -> Option<(usize, Option<usize>, u64)> {
    let mut best: Option<(u64, usize, Option<usize>, u64)> = None;
    let nothing = (!equal).then_some((0, None));
    let offers = nothing.into_iter().chain(to.iter().enumerate().map(|(index, &(weight, _))| (weight, Some(index))));
    let mut give = 0;
    for (taken, take) in offers {
        // The first weight to give that shifts at least half the gap; the one before it shifts less.
        while give < from.len() && from[give].0 < taken + gap.div_ceil(2) {
            give += 1;
        }
        for candidate in [give.checked_sub(1), Some(give).filter(|&give| give < from.len())].into_iter().flatten() {
            let Some(shift) = from[candidate].0.checked_sub(taken).filter(|&shift| 0 < shift && shift < gap) else {
                continue;
            };
            let left = gap.abs_diff(2 * shift);
            if best.is_none_or(|(least, ..)| left < least) {
                best = Some((left, candidate, take, shift));
            }
        }
    }
    best.map(|(_, give, take, shift)| (give, take, shift))
}
