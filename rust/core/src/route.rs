//! Routes: moves between shards become moves between workers, each read from the holder that is nearest.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap};

use crate::error::{Answer, Refusal};
use crate::limits::{self, MOST_NUMBERS};
use crate::placement::Placement;
use crate::transfer::ShardMove;

/// Rows that go from one worker to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkerMove {
    /// The worker that has the rows.
    pub source: u32,
    /// The first row in its piece.
    pub source_start: u64,
    /// The worker that gets them.
    pub target: u32,
    /// The first row in its piece.
    pub target_start: u64,
    /// How many rows.
    pub len: u64,
}

/// Who is near whom; empty where nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Per target worker, the source worker that lives in the same process.
    pub same_process: Option<Vec<Option<u32>>>,
    /// The node of each source worker and of each target worker.
    pub nodes: Option<(Vec<u32>, Vec<u32>)>,
}

/// Reads the source worker that shares a process with a target worker: -1 is none. Errors: a worker that is not there.
pub fn neighbour(worker: i128, workers: u32) -> Answer<Option<u32>> {
    match u32::try_from(worker) {
        _ if worker == -1 => Ok(None),
        Ok(number) if number < workers => Ok(Some(number)),
        _ => Err(Refusal::WorkerBeyond { what: "same_process".to_owned(), worker, workers: workers.into() }),
    }
}

/// Sends every move to every member of its target shard, ordered by target shard, start, then worker.
///
/// Each reads from a holder of the source shard: the one in its own process, else on its node, else the one that sends the
/// fewest rows so far (rows inside a process not counted), else the lowest. Errors: shards that a placement does not have, a
/// topology that does not name every worker, moves that a placement cannot hold.
pub fn route(
    moves: &[ShardMove],
    source: &Placement,
    target: &Placement,
    topology: &Topology,
) -> Answer<Vec<WorkerMove>> {
    check(moves, source, target, topology)?;
    let mut ordered: Vec<&ShardMove> = moves.iter().collect();
    ordered.sort_by_key(|step| (step.target, step.target_start));
    let count = ordered.iter().map(|step| target.members(step.target as usize).len() as u64).sum();
    limits::allowed("a route", count, MOST_NUMBERS / 5)?;
    let mut routed = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let mut choice = Choice::new(source, topology);
    for step in ordered {
        for &worker in target.members(step.target as usize) {
            routed.push(WorkerMove {
                source: choice.holder(step, worker),
                source_start: step.source_start,
                target: worker,
                target_start: step.target_start,
                len: step.len,
            });
        }
    }
    Ok(routed)
}

/// Holders by rows sent so far. A load only grows, so an entry that is behind is brought up to date when it comes to the top.
type Queue = BinaryHeap<Reverse<(u64, u32)>>;

struct Choice<'a> {
    source: &'a Placement,
    topology: &'a Topology,
    loads: Vec<u64>,
    by_shard: BTreeMap<u32, Queue>,
    by_node: BTreeMap<(u32, u32), Queue>,
}

impl<'a> Choice<'a> {
    fn new(source: &'a Placement, topology: &'a Topology) -> Self {
        let loads = vec![0; source.workers() as usize];
        Self { source, topology, loads, by_shard: BTreeMap::new(), by_node: BTreeMap::new() }
    }

    fn holder(&mut self, step: &ShardMove, worker: u32) -> u32 {
        let shard = step.source as usize;
        let near = self.topology.same_process.as_ref().and_then(|near| near[worker as usize]);
        if let Some(near) = near.filter(|&near| self.source.is_holder(near, shard)) {
            return near;
        }
        let holders = self.source.holders(shard);
        if let [only] = holders {
            return *only;
        }
        if let Entry::Vacant(unknown) = self.by_shard.entry(step.source) {
            unknown.insert(holders.iter().map(|&holder| Reverse((0, holder))).collect());
            if let Some((nodes, _)) = &self.topology.nodes {
                for &holder in holders {
                    let queue = self.by_node.entry((step.source, nodes[holder as usize])).or_default();
                    queue.push(Reverse((0, holder)));
                }
            }
        }
        let node = self.topology.nodes.as_ref().map(|(_, nodes)| (step.source, nodes[worker as usize]));
        let queue = match node {
            Some(key) if self.by_node.contains_key(&key) => self.by_node.get_mut(&key),
            _ => self.by_shard.get_mut(&step.source),
        };
        let chosen = queue.map_or(holders[0], |queue| least(queue, &self.loads));
        self.loads[chosen as usize] = self.loads[chosen as usize].saturating_add(step.len);
        chosen
    }
}

fn least(queue: &mut Queue, loads: &[u64]) -> u32 {
    while let Some(mut top) = queue.peek_mut() {
        let Reverse((load, worker)) = &mut *top;
        let now = loads[*worker as usize];
        if *load == now {
            return *worker;
        }
        *load = now;
    }
    0
}

fn check(moves: &[ShardMove], source: &Placement, target: &Placement, topology: &Topology) -> Answer<()> {
    for step in moves {
        limits::shard(step.source.into(), source.shards())?;
        limits::shard(step.target.into(), target.shards())?;
    }
    let workers = |what: &str, expected: u32, found: usize| {
        if found == expected as usize {
            return Ok(());
        }
        Err(Refusal::PlanCount {
            what: format!("{what}, one per worker"),
            expected: expected.into(),
            found: found as u64,
        })
    };
    if let Some(near) = &topology.same_process {
        workers("same_process", target.workers(), near.len())?;
        for &worker in near.iter().flatten() {
            neighbour(worker.into(), source.workers())?;
        }
    }
    if let Some((sources, targets)) = &topology.nodes {
        workers("source_node", source.workers(), sources.len())?;
        workers("target_node", target.workers(), targets.len())?;
    }
    Ok(())
}
