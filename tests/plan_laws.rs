//! Laws of plans on random meshes and layouts, each against rows moved one by one.
//!
//! `PROPTEST_CASES=20000 cargo test --release --test plan_laws` runs them at length.

use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use twinkle::options::Requested;
use twinkle::{
    Balance, CollectFrom, Csr, Fill, Layout, Mesh, Packing, PlacedAxis, Placement, Refusal, Run, Topology, WorkerMove,
    Workers, pack, route,
};

/// A mesh with its axes in any order and any distinct ranks; its ulysses size divides the data ranks.
fn meshes() -> impl Strategy<Value = Mesh> {
    let axes = subsequence(vec!["dp", "fsdp", "pp", "tp", "cp"], 1..=4).prop_shuffle();
    let sized = axes.prop_flat_map(|names| {
        let sizes = prop::collection::vec(1..=3_u64, names.len());
        (Just(names), sizes, select(vec![1_u64, 2, 3]), any::<u64>())
    });
    sized.prop_filter_map("ulysses divides the data axes", |(names, sizes, ulysses, seed)| {
        let total: u64 = sizes.iter().product();
        let ranks = scattered(total, seed);
        let data: u64 =
            names.iter().zip(&sizes).filter(|(name, _)| ["dp", "fsdp"].contains(name)).map(|(_, s)| s).product();
        let ulysses_size = (ulysses > 1 && data.is_multiple_of(ulysses)).then_some(i128::from(ulysses));
        Mesh::from_table(&names, &sizes, ranks, &Requested { ulysses_size, ..Requested::default() }).ok()
    })
}

/// Distinct ranks in no order.
fn scattered(total: u64, seed: u64) -> Vec<u64> {
    let mut ranks: Vec<u64> = (0..total).map(|rank| rank * 7 + seed % 5).collect();
    ranks.sort_by_key(|rank| (rank ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ranks
}

fn placed(mesh: &Mesh, collect_from: CollectFrom) -> Result<Placement, Refusal> {
    let (axes, divisor) = mesh.placed_axes()?;
    Placement::new(axes, divisor, Workers::Blocks(1), collect_from)
}

fn collectors() -> impl Strategy<Value = CollectFrom> {
    select(vec![CollectFrom::PpLast, CollectFrom::PpFirst, CollectFrom::Any, CollectFrom::All])
}

/// How to cut rows, before it is known over how many shards.
#[derive(Debug, Clone)]
enum Split {
    Even,
    Padded(u64),
    Balanced(Vec<u64>, bool, Balance),
    Minibatched(u32),
    Scattered(u64),
}

fn splits() -> impl Strategy<Value = Split> {
    prop_oneof![
        Just(Split::Even),
        (1..5_u64).prop_map(Split::Padded),
        (prop::collection::vec(0..50_u64, 1..40), any::<bool>(), select(vec![Balance::Greedy, Balance::Refined]))
            .prop_map(|(weights, equal, balance)| Split::Balanced(weights, equal, balance)),
        (1..4_u32).prop_map(Split::Minibatched),
        any::<u64>().prop_map(Split::Scattered),
    ]
}

fn cut(split: &Split, rows: u64, shards: u32) -> Result<Layout, Refusal> {
    match split {
        Split::Even => Layout::even(rows, shards, 1),
        Split::Padded(multiple) => Layout::padded(rows, shards, *multiple, 1),
        Split::Balanced(weights, equal, balance) => {
            let weights: Vec<u64> = weights.iter().copied().cycle().take(to_index(rows)).collect();
            Layout::balanced(&weights, shards, *equal, 1, *balance)
        }
        Split::Minibatched(count) => Layout::minibatched(rows, shards, *count, false, true, 1),
        Split::Scattered(seed) => {
            let mut lists = vec![Vec::new(); shards as usize];
            for (at, row) in scattered(rows, *seed).into_iter().map(|rank| rank / 7).enumerate() {
                lists[(at + to_index(seed % 7)) * 5 % shards as usize].push(Run { start: row, len: 1 });
            }
            Layout::explicit(&lists, None, 1)
        }
    }
}

fn to_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// What each shard holds, row by row.
fn pieces(layout: &Layout) -> Vec<Vec<u64>> {
    (0..layout.shards() as usize).map(|shard| layout.reads(shard).iter().flat_map(|run| run.rows()).collect()).collect()
}

fn collect(layout: &Layout, parts: &[Vec<u64>]) -> Vec<u64> {
    let read = |copy: &twinkle::Copy| {
        let start = to_index(copy.local);
        parts[copy.shard as usize][start..start + to_index(copy.len)].to_vec()
    };
    layout.copies().iter().flat_map(read).collect()
}

/// Carries out a route; None where a row is written twice, never, or outside the piece.
fn deliver(routed: &[WorkerMove], held: &[Vec<u64>], target: &Placement, layout: &Layout) -> Option<Vec<Vec<u64>>> {
    let sizes = layout.real_sizes();
    let mut received: Vec<Vec<Option<u64>>> =
        target.shard_of_worker().iter().map(|&shard| vec![None; to_index(sizes[shard as usize])]).collect();
    for step in routed {
        for offset in 0..step.len {
            let row = *held[step.source as usize].get(to_index(step.source_start + offset))?;
            let place = received[step.target as usize].get_mut(to_index(step.target_start + offset))?;
            if place.replace(row).is_some() {
                return None;
            }
        }
    }
    received.into_iter().map(|piece| piece.into_iter().collect()).collect()
}

proptest! {
    #[test]
    fn dispatch_then_collect_is_the_identity(mesh in meshes(), split in splits(), more in 0..60_u64) {
        let placement = placed(&mesh, CollectFrom::PpLast)?;
        let rows = more + u64::from(placement.shards());
        let layout = cut(&split, rows, placement.shards())?;
        let parts = pieces(&layout);
        let sent: Vec<_> = placement.shard_of_worker().iter().map(|&shard| parts[shard as usize].clone()).collect();
        let returned: Vec<_> = placement.representative().iter().map(|&worker| sent[worker as usize].clone()).collect();
        prop_assert_eq!(collect(&layout, &returned), (0..rows).collect::<Vec<_>>());
        if matches!(split, Split::Even) {
            prop_assert_eq!(returned.concat(), (0..rows).collect::<Vec<_>>(), "in shard order rows ascend");
        }
    }

    #[test]
    fn dispatch_by_a_then_reshard_then_collect_by_b_is_the_identity(
        first in meshes(), second in meshes(), from in splits(), to in splits(), more in 0..60_u64, collect_from in collectors(),
    ) {
        let (source, target) = (placed(&first, collect_from)?, placed(&second, CollectFrom::PpLast)?);
        let rows = more + u64::from(source.shards()) + u64::from(target.shards());
        let (leaving, arriving) = (cut(&from, rows, source.shards())?, cut(&to, rows, target.shards())?);
        let parts = pieces(&leaving);
        let held: Vec<_> = source.shard_of_worker().iter().map(|&shard| parts[shard as usize].clone()).collect();
        let routed = route(&leaving.reshard(&arriving)?, &source, &target, &Topology::default())?;
        for step in &routed {
            let shard = source.shard_of_worker()[step.source as usize];
            prop_assert!(source.is_holder(step.source, shard as usize), "only holders are read");
        }
        let received = deliver(&routed, &held, &target, &arriving);
        prop_assert!(received.is_some(), "every row of every worker is written once");
        let received = received.unwrap_or_default();
        for shard in 0..target.shards() as usize {
            let members: Vec<_> = target.members(shard).iter().map(|&worker| &received[worker as usize]).collect();
            prop_assert!(members.windows(2).all(|pair| pair[0] == pair[1]), "replicas get equal rows");
        }
        let returned: Vec<_> = target.representative().iter().map(|&worker| received[worker as usize].clone()).collect();
        prop_assert_eq!(collect(&arriving, &returned), (0..rows).collect::<Vec<_>>());
    }

    #[test]
    fn reshard_by_way_of_another_layout_is_reshard(
        splits in prop::array::uniform3(splits()), shards in prop::array::uniform3(1..7_u32), rows in 1..60_u64,
    ) {
        let made: Vec<Layout> = splits.iter().zip(shards).map(|(split, shards)| cut(split, rows, shards)).collect::<Result<_, _>>()?;
        let direct = apply(&pieces(&made[0]), &made[0], &made[2])?;
        let between = apply(&pieces(&made[0]), &made[0], &made[1])?;
        prop_assert_eq!(apply(&between, &made[1], &made[2])?, direct);
        let pairs: std::collections::BTreeSet<_> = made[0].reshard(&made[1])?.iter().map(|step| (step.source, step.target)).collect();
        let meet = |a: usize, b: usize| {
            let held: std::collections::BTreeSet<u64> = made[0].runs(a).iter().flat_map(|run| run.rows()).collect();
            made[1].runs(b).iter().flat_map(|run| run.rows()).any(|row| held.contains(&row))
        };
        for a in 0..made[0].shards() {
            for b in 0..made[1].shards() {
                prop_assert_eq!(pairs.contains(&(a, b)), meet(a as usize, b as usize), "who shares rows moves rows");
            }
        }
    }

    #[test]
    fn even_layouts_move_once_per_border(rows in 1..5000_u64, from in 1..40_u32, to in 1..40_u32) {
        let (source, target) = (Layout::even(rows, from, 1)?, Layout::even(rows, to, 1)?);
        let borders = |layout: &Layout| layout.real_sizes().iter().scan(0, |at, size| { *at += size; Some(*at) }).collect::<Vec<_>>();
        let all: std::collections::BTreeSet<u64> = borders(&source).into_iter().chain(borders(&target)).filter(|&at| at < rows).collect();
        let moves = source.reshard(&target)?.len();
        prop_assert_eq!(moves, all.len() + 1);
        let (greatest, least) = (gcd(from, to), u64::from(from / gcd(from, to) * to));
        if rows.is_multiple_of(least) {
            prop_assert_eq!(moves, (from + to - greatest) as usize);
        }
    }

    #[test]
    fn layouts_partition_their_rows_and_keep_groups(groups in 0..60_u64, shards in 1..9_u32, group in 1..4_u64, split in splits()) {
        let rows = groups * group;
        let layout = match &split {
            Split::Padded(multiple) if groups > 0 => Layout::padded(rows, shards, *multiple, group)?,
            Split::Balanced(weights, equal, balance) => {
                let weights: Vec<u64> = weights.iter().copied().cycle().take(to_index(rows)).collect();
                Layout::balanced(&weights, shards, *equal, group, *balance)?
            }
            Split::Minibatched(count) if groups > 0 => Layout::minibatched(rows, shards, *count, false, true, group)?,
            _ => Layout::even(rows, shards, group)?,
        };
        let mut all: Vec<u64> = (0..shards as usize).flat_map(|shard| layout.runs(shard)).flat_map(|run| run.rows()).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..rows).collect::<Vec<_>>());
        for piece in pieces(&layout) {
            for whole in piece.chunks(to_index(group)) {
                prop_assert!(whole[0].is_multiple_of(group) && whole.iter().zip(whole[0]..).all(|(row, next)| *row == next));
            }
        }
        let again = Layout::from_bytes(&layout.to_bytes()?)?;
        prop_assert_eq!(again.id(), layout.id());
        prop_assert_eq!(again, layout);
    }

    #[test]
    fn mini_batches_do_not_depend_on_the_shards(rows in 1..80_u64, few in 1..6_u32, many in 1..6_u32, count in 1..5_u32, rotate: bool) {
        let cells = |shards| -> Option<Vec<Vec<u64>>> {
            let layout = Layout::minibatched(rows, shards, count, rotate, false, 1).ok()?;
            (0..count).map(|at| Some(collect(&layout.minibatch(at.into()).ok()?, &pieces(&layout)))).collect()
        };
        if let (Some(a), Some(b)) = (cells(few), cells(many)) {
            prop_assert_eq!(a, b);
        }
    }

    #[test]
    fn packing_keeps_rows_caps_and_counts(
        lengths in prop::collection::vec(prop::collection::vec(0..30_u64, 0..12), 1..5), cap in 1..40_u64, align in 1..4_u64, fill: bool,
    ) {
        let fill = if fill { Fill::Pad } else { Fill::Refuse };
        let csr: Csr<u64> = lengths.iter().cloned().collect();
        let Ok(packed) = pack(&csr, None, Packing { cap, align, row_multiple: 1, fill }) else {
            prop_assert!(fill == Fill::Refuse || lengths.iter().any(Vec::is_empty), "only a shard with too few rows is refused");
            return Ok(());
        };
        for (bins, lengths) in packed.iter().zip(&lengths) {
            prop_assert_eq!(bins.len(), packed[0].len());
            prop_assert!((bins.len() as u64).is_multiple_of(align));
            let mut rows: Vec<u64> = bins.iter().filter(|bin| !bin.pad).flat_map(|bin| bin.rows.clone()).collect();
            rows.sort_unstable();
            prop_assert_eq!(rows, (0..lengths.len() as u64).collect::<Vec<_>>());
            for bin in bins {
                let load: u64 = bin.rows.iter().map(|&row| lengths[to_index(row)]).sum();
                prop_assert!(!bin.rows.is_empty() && (load <= cap || bin.rows.len() == 1));
            }
        }
    }

    #[test]
    fn routes_never_move_more_between_processes_than_from_representatives(
        first in meshes(), second in meshes(), more in 1..40_u64, near in prop::collection::vec(any::<Option<Index>>(), 81),
    ) {
        let (any, representative) = (placed(&first, CollectFrom::Any)?, placed(&first, CollectFrom::PpLast)?);
        let target = placed(&second, CollectFrom::PpLast)?;
        let workers = 0..target.workers() as usize;
        let near: Vec<Option<u32>> = workers
            .map(|worker| near[worker].map(|index| u32::try_from(index.index(any.workers() as usize)).unwrap_or(0)))
            .collect();
        let moves = Layout::even(more, any.shards(), 1)?.reshard(&Layout::even(more, target.shards(), 1)?)?;
        let topology = Topology { same_process: Some(near.clone()), nodes: None };
        let remote = |source: &Placement| -> Result<u64, Refusal> {
            let routed = route(&moves, source, &target, &topology)?;
            Ok(routed.iter().filter(|step| near[step.target as usize] != Some(step.source)).map(|step| step.len).sum())
        };
        prop_assert!(remote(&any)? <= remote(&representative)?);
    }

    #[test]
    fn placements_of_axes_are_those_of_a_walk(mesh in meshes()) {
        let placement = placed(&mesh, CollectFrom::PpLast)?;
        let (axes, divisor) = mesh.placed_axes()?;
        let walk: Vec<(u64, u64)> = (0..mesh.world_size()).map(|position| walked(&axes, divisor, position)).collect();
        let last = axes.iter().find(|axis| axis.stage).map_or(0, |axis| axis.size - 1);
        for (worker, &(shard, _)) in walk.iter().enumerate() {
            prop_assert_eq!(u64::from(placement.shard_of_worker()[worker]), shard);
        }
        for shard in 0..u64::from(placement.shards()) {
            let first = |stage: Option<u64>| walk.iter().position(|&(held, at)| held == shard && stage.is_none_or(|stage| stage == at));
            prop_assert_eq!(Some(placement.lead()[to_index(shard)] as usize), first(None));
            prop_assert_eq!(Some(placement.representative()[to_index(shard)] as usize), first(Some(last)));
        }
        prop_assert_eq!(Placement::from_bytes(&placement.to_bytes()?)?, placement);
    }

    #[test]
    fn bytes_are_a_plan_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(layout) = Layout::from_bytes(&bytes) {
            prop_assert_eq!(Layout::from_bytes(&layout.to_bytes()?)?, layout);
        }
        if let Ok(placement) = Placement::from_bytes(&bytes) {
            prop_assert_eq!(Placement::from_bytes(&placement.to_bytes()?)?, placement);
        }
    }
}

fn apply(held: &[Vec<u64>], source: &Layout, target: &Layout) -> Result<Vec<Vec<u64>>, Refusal> {
    let mut written: Vec<Vec<u64>> = target.real_sizes().iter().map(|&size| vec![u64::MAX; to_index(size)]).collect();
    for step in source.reshard(target)? {
        for offset in 0..step.len {
            written[step.target as usize][to_index(step.target_start + offset)] =
                held[step.source as usize][to_index(step.source_start + offset)];
        }
    }
    Ok(written)
}

/// The shard and the stage of one position, by division.
fn walked(axes: &[PlacedAxis], divisor: u64, mut position: u64) -> (u64, u64) {
    let (mut data, mut stage) = (0, 0);
    for axis in axes.iter().rev() {
        let index = position % axis.size;
        position /= axis.size;
        data += index * axis.weight;
        stage += if axis.stage { index } else { 0 };
    }
    (data / divisor, stage)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
