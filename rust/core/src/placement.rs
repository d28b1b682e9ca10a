//! Placements: which worker holds which shard.
//!
//! Positions of a mesh count row-major, so the shard of a position is arithmetic: every data axis adds its coordinate times a
//! weight, and `divisor` neighbouring data coordinates (ulysses) share a shard. pp 2, dp 2, tp 2 with one position per worker:
//!
//! ```text
//! position   0 1 2 3 4 5 6 7      members of 0: 0 1 4 5   lead 0   representative 4 (last stage, then lowest)
//! stage      0 0 0 0 1 1 1 1      members of 1: 2 3 6 7   lead 2   representative 6
//! shard      0 0 1 1 0 0 1 1
//! ```

use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::axis::Axis;
use crate::csr::Csr;
use crate::error::{Answer, Refusal};
use crate::limits::{self, MOST_ITEMS};
use crate::mesh::Mesh;

/// The most positions of a placement.
const MOST_POSITIONS: u64 = MOST_ITEMS;

/// One axis of a mesh as a placement sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedAxis {
    /// How many coordinates it has.
    pub size: u64,
    /// What one step along it adds to the data coordinate: dp the size of fsdp, fsdp 1, every other axis 0.
    pub weight: u64,
    /// Whether it counts pipeline stages.
    pub stage: bool,
}

/// Which positions a worker owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workers {
    /// So many neighbouring positions each.
    Blocks(u64),
    /// The positions of each worker by name.
    Listed(Vec<Vec<u32>>),
}

/// Which workers have the output of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CollectFrom {
    /// The representative: the last pipeline stage, then the lowest position.
    PpLast,
    /// Its counterpart in the first stage.
    PpFirst,
    /// Every member; any of them may be read.
    Any,
    /// Every member; all of them are read.
    All,
}

impl CollectFrom {
    /// The words for them, in this order.
    pub const WORDS: [(&'static str, Self); 4] =
        [("pp_last", Self::PpLast), ("pp_first", Self::PpFirst), ("any", Self::Any), ("all", Self::All)];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, choice)| *choice == self).map_or("", |(word, _)| word)
    }

    /// Whether every member has the output, not just one.
    pub fn every_member(self) -> bool {
        matches!(self, Self::Any | Self::All)
    }
}

/// Which worker holds which shard; equal when every worker, lead and holder is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Wire", try_from = "Wire")]
pub struct Placement {
    wire: Wire,
    shards: u32,
    shard_of_worker: Vec<u32>,
    members: OnceLock<Csr<u32>>,
    firsts: OnceLock<Firsts>,
}

/// For each shard, its first worker and the one with the lowest position in the last and in the first stage.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Firsts {
    lead: Vec<u32>,
    last_stage: Vec<u32>,
    first_stage: Vec<u32>,
}

/// What travels for a placement: what made it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Wire {
    axes: Vec<PlacedAxis>,
    divisor: u64,
    workers: Workers,
    collect_from: CollectFrom,
}

impl From<Placement> for Wire {
    fn from(placement: Placement) -> Self {
        placement.wire
    }
}

impl TryFrom<Wire> for Placement {
    type Error = Refusal;

    fn try_from(wire: Wire) -> Answer<Self> {
        Self::new(wire.axes, wire.divisor, wire.workers, wire.collect_from)
    }
}

impl PartialEq for Placement {
    fn eq(&self, other: &Self) -> bool {
        self.wire.collect_from == other.wire.collect_from
            && self.shards == other.shards
            && self.shard_of_worker == other.shard_of_worker
            && self.firsts() == other.firsts()
    }
}

impl Eq for Placement {}

impl Hash for Placement {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.wire.collect_from, self.shards, self.shard_of_worker.len()).hash(state);
    }
}

impl Mesh {
    /// The axes of this mesh as a placement sees them, and how many data coordinates share a shard.
    ///
    /// Errors: a view for groups, a mesh whose pipeline axis is merged into another.
    pub fn placed_axes(&self) -> Answer<(Vec<PlacedAxis>, u64)> {
        self.not_a_view()?;
        self.not_hidden("pp")?;
        let weight = |name: &str| match name {
            "dp" => self.fsdp_size(),
            "fsdp" => 1,
            _ => 0,
        };
        let placed =
            |axis: &Axis| PlacedAxis { size: axis.size(), weight: weight(axis.name()), stage: axis.name() == "pp" };
        Ok((self.axes().iter().map(placed).collect(), self.ulysses()))
    }
}

impl Workers {
    /// Deals a mesh out to `workers` (None: as many as it takes): one position each, or `gpus_per_worker` neighbours each.
    ///
    /// Errors: any other number of workers.
    pub fn fit(world_size: u64, workers: Option<u64>, gpus_per_worker: u64) -> Answer<Self> {
        match workers {
            None if world_size.is_multiple_of(gpus_per_worker) => Ok(Self::Blocks(gpus_per_worker)),
            None => Err(Refusal::DevicesMisfit { world_size, gpus_per_worker }),
            Some(workers) if workers == world_size => Ok(Self::Blocks(1)),
            Some(workers) if workers.checked_mul(gpus_per_worker) == Some(world_size) => {
                Ok(Self::Blocks(gpus_per_worker))
            }
            Some(workers) => Err(Refusal::WorkersMisfit { world_size, workers, gpus_per_worker }),
        }
    }

    /// The positions of each worker, as the caller lists them.
    ///
    /// Errors: a position twice, one that is not there or is left out; with `gpus_per_worker` above 1, another number each.
    pub fn listed(lists: &[Vec<i128>], world_size: u64, gpus_per_worker: u64) -> Answer<Self> {
        let mut owners = vec![false; usize::try_from(world_size.min(MOST_POSITIONS)).unwrap_or(usize::MAX)];
        let mut workers = Vec::with_capacity(lists.len());
        for (list, worker) in lists.iter().zip(0..) {
            let found = list.len() as u64;
            if found == 0 || (gpus_per_worker > 1 && found != gpus_per_worker) {
                return Err(Refusal::WorkerMapSize { worker, found, expected: gpus_per_worker });
            }
            let mut positions = Vec::with_capacity(list.len());
            for &position in list {
                let refuse = |reason: &str| {
                    let reason = reason.to_owned();
                    Err(Refusal::WorkerMapPosition { worker, position, world_size, reason })
                };
                match usize::try_from(position).ok().and_then(|index| owners.get_mut(index)) {
                    None => return refuse("is not there"),
                    Some(true) => return refuse("is named before"),
                    Some(owned) => *owned = true,
                }
                positions.push(u32::try_from(position).unwrap_or(u32::MAX));
            }
            workers.push(positions);
        }
        match (0..).zip(&owners).find(|(_, owned)| !**owned) {
            Some((position, _)) => Err(Refusal::WorkerMapMissing { position, world_size }),
            None => Ok(Self::Listed(workers)),
        }
    }
}

impl Placement {
    /// Places the shards of a mesh on its workers; `axes` outermost first, `divisor` the ulysses size.
    ///
    /// Errors: a worker whose positions belong to different shards, workers that do not own every position once.
    pub fn new(axes: Vec<PlacedAxis>, divisor: u64, workers: Workers, collect_from: CollectFrom) -> Answer<Self> {
        let (positions, shards) = check_axes(&axes, divisor)?;
        let workers = match workers {
            Workers::Blocks(size) => {
                let size = limits::count("gpus_per_worker", size.into(), 1, MOST_POSITIONS)?;
                Workers::fit(positions, None, size)?
            }
            Workers::Listed(lists) => {
                let lists: Vec<Vec<i128>> = lists.iter().map(|list| list.iter().map(|&p| p.into()).collect()).collect();
                Workers::listed(&lists, positions, 1)?
            }
        };
        let table = table(&axes, divisor);
        let shard_of_worker = match &workers {
            Workers::Blocks(1) => table,
            Workers::Blocks(size) => {
                let size = usize::try_from(*size).unwrap_or(usize::MAX);
                let blocks = table.chunks(size).zip(0..).map(|(shards, worker)| {
                    let start = worker * u32::try_from(size).unwrap_or(u32::MAX);
                    one_shard(worker, shards.iter().copied(), (start..).take(size))
                });
                blocks.collect::<Answer<_>>()?
            }
            Workers::Listed(lists) => {
                let listed = lists.iter().zip(0..).map(|(list, worker)| {
                    one_shard(worker, list.iter().map(|&position| table[position as usize]), list.iter().copied())
                });
                listed.collect::<Answer<_>>()?
            }
        };
        let wire = Wire { axes, divisor, workers, collect_from };
        Ok(Self { wire, shards, shard_of_worker, members: OnceLock::new(), firsts: OnceLock::new() })
    }

    /// How many workers there are.
    pub fn workers(&self) -> u32 {
        u32::try_from(self.shard_of_worker.len()).unwrap_or(u32::MAX)
    }

    /// How many shards there are.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// Which workers have the output of a call.
    pub fn collect_from(&self) -> CollectFrom {
        self.wire.collect_from
    }

    /// The shard of every worker.
    pub fn shard_of_worker(&self) -> &[u32] {
        &self.shard_of_worker
    }

    /// The workers of one shard, ascending: they get the same rows.
    pub fn members(&self, shard: usize) -> &[u32] {
        let members = self.members.get_or_init(|| {
            let mut next = vec![0usize; self.shards as usize + 1];
            for &shard in &self.shard_of_worker {
                next[shard as usize + 1] += 1;
            }
            for shard in 0..self.shards as usize {
                next[shard + 1] += next[shard];
            }
            let bounds = next.clone();
            let mut workers = vec![0; self.shard_of_worker.len()];
            for (&shard, worker) in self.shard_of_worker.iter().zip(0..) {
                workers[next[shard as usize]] = worker;
                next[shard as usize] += 1;
            }
            Csr::of_parts(bounds, workers)
        });
        members.list(shard)
    }

    /// The first worker of each shard: it gets the rows where one worker hands them on.
    pub fn lead(&self) -> &[u32] {
        &self.firsts().lead
    }

    /// The worker of each shard whose output is collected: last pipeline stage, then lowest position.
    pub fn representative(&self) -> &[u32] {
        &self.firsts().last_stage
    }

    /// The workers of one shard that have the output of a call, by `collect_from`.
    pub fn holders(&self, shard: usize) -> &[u32] {
        match self.wire.collect_from {
            CollectFrom::PpLast => &self.firsts().last_stage[shard..=shard],
            CollectFrom::PpFirst => &self.firsts().first_stage[shard..=shard],
            CollectFrom::Any | CollectFrom::All => self.members(shard),
        }
    }

    /// Whether a worker has the output of one shard.
    pub fn is_holder(&self, worker: u32, shard: usize) -> bool {
        if self.wire.collect_from.every_member() {
            return self.shard_of_worker.get(worker as usize).is_some_and(|&held| held as usize == shard);
        }
        self.holders(shard) == [worker]
    }

    fn firsts(&self) -> &Firsts {
        self.firsts.get_or_init(|| {
            let table = match self.wire.workers {
                Workers::Blocks(1) => None,
                _ => Some(table(&self.wire.axes, self.wire.divisor)),
            };
            let table = table.as_deref().unwrap_or(&self.shard_of_worker);
            let (stride, stages) = stages(&self.wire.axes);
            let owner = self.owner();
            let at_stage = |stage: usize| {
                let block = stage * stride;
                let positions = (0..table.len())
                    .step_by(stride * stages)
                    .flat_map(move |start| start + block..start + block + stride);
                let firsts = first_of_each(self.shards, positions.map(|position| (table[position], position)));
                firsts.into_iter().map(&owner).collect()
            };
            let lead = first_of_each(self.shards, self.shard_of_worker.iter().copied().zip(0..));
            Firsts {
                lead: lead.into_iter().map(|worker| u32::try_from(worker).unwrap_or(u32::MAX)).collect(),
                last_stage: at_stage(stages - 1),
                first_stage: at_stage(0),
            }
        })
    }

    /// Which worker owns a position.
    fn owner(&self) -> impl Fn(usize) -> u32 {
        let (size, listed) = match &self.wire.workers {
            Workers::Blocks(size) => (usize::try_from(*size).unwrap_or(1), None),
            Workers::Listed(lists) => {
                let mut owners = vec![0; lists.iter().map(Vec::len).sum()];
                for (list, worker) in lists.iter().zip(0u32..) {
                    for &position in list {
                        owners[position as usize] = worker;
                    }
                }
                (1, Some(owners))
            }
        };
        move |position| match &listed {
            None => u32::try_from(position / size).unwrap_or(u32::MAX),
            Some(owners) => owners[position],
        }
    }
}

/// The first item of each shard, items in order; every shard has one.
fn first_of_each(shards: u32, items: impl Iterator<Item = (u32, usize)>) -> Vec<usize> {
    let mut firsts = vec![usize::MAX; shards as usize];
    let mut missing = shards;
    for (shard, item) in items {
        let first = &mut firsts[shard as usize];
        if *first == usize::MAX {
            *first = item;
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    firsts
}

/// The shard that all positions of a worker share, or the refusal that names them.
fn one_shard(
    worker: u32,
    shards: impl Iterator<Item = u32> + Clone,
    positions: impl Iterator<Item = u32>,
) -> Answer<u32> {
    let first = shards.clone().next().unwrap_or(0);
    if shards.clone().all(|shard| shard == first) {
        return Ok(first);
    }
    Err(Refusal::WorkerSpansShards { worker, positions: positions.collect(), shards: shards.collect() })
}

/// The shard of every position: blocks of the inner axes, repeated along each outer one.
fn table(axes: &[PlacedAxis], divisor: u64) -> Vec<u32> {
    let positions: u64 = axes.iter().map(|axis| axis.size).product();
    let mut table: Vec<u32> = Vec::with_capacity(usize::try_from(positions).unwrap_or(0));
    table.push(0);
    for axis in axes.iter().rev() {
        let block = table.len();
        let weight = u32::try_from(axis.weight).unwrap_or(u32::MAX);
        for _ in 1..axis.size {
            let last = table.len() - block;
            if weight == 0 {
                table.extend_from_within(last..);
            } else if block == 1 {
                table.push(table[last] + weight);
            } else {
                let start = table.len();
                table.extend_from_within(last..);
                for shard in &mut table[start..] {
                    *shard += weight;
                }
            }
        }
    }
    if divisor > 1 {
        let divisor = u32::try_from(divisor).unwrap_or(u32::MAX);
        for shard in &mut table {
            *shard /= divisor;
        }
    }
    table
}

/// The stride and size of the axis that counts stages.
fn stages(axes: &[PlacedAxis]) -> (usize, usize) {
    let mut stride: u64 = 1;
    let mut found = (1, 1);
    for axis in axes.iter().rev() {
        if axis.stage {
            found = (stride, axis.size);
        }
        stride *= axis.size;
    }
    (usize::try_from(found.0).unwrap_or(1), usize::try_from(found.1).unwrap_or(1))
}

/// How many positions the axes have together. Errors: an axis of no size, more than 2^24 positions.
pub fn positions(axes: &[PlacedAxis]) -> Answer<u64> {
    let mut positions: u64 = 1;
    for axis in axes {
        let size = limits::count("the size of an axis", axis.size.into(), 1, MOST_POSITIONS)?;
        positions = positions.saturating_mul(size);
    }
    limits::allowed("the positions of a placement", positions, MOST_POSITIONS)?;
    Ok(positions)
}

/// The number of positions and of shards, once the axes are known to give every shard a position in every stage.
fn check_axes(axes: &[PlacedAxis], divisor: u64) -> Answer<(u64, u32)> {
    let refuse = |reason: &str| Err(Refusal::PlacementShape { reason: reason.to_owned() });
    let positions = positions(axes)?;
    if axes.len() > 64 || axes.iter().filter(|axis| axis.stage).count() > 1 {
        return refuse("at most 64 axes, of which one counts stages");
    }
    let mut weighted: Vec<&PlacedAxis> = axes.iter().filter(|axis| axis.weight > 0 && axis.size > 1).collect();
    weighted.sort_unstable_by_key(|axis| axis.weight);
    let mut coordinates = 1;
    for axis in weighted {
        if axis.weight != coordinates || axis.stage {
            return refuse("the weights of the data axes are not those of nested coordinates");
        }
        coordinates *= axis.size;
    }
    if divisor == 0 || !coordinates.is_multiple_of(divisor) {
        return refuse("ulysses does not divide the data axes");
    }
    let shards = limits::count("shards", (coordinates / divisor).into(), 1, MOST_ITEMS)?;
    Ok((positions, u32::try_from(shards).unwrap_or(u32::MAX)))
}
