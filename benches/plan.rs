//! What plans cost in the core alone.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use twinkle::{
    Balance, CollectFrom, Csr, Fill, Layout, Packing, PlacedAxis, Placement, Refusal, Topology, Workers, pack, route,
};

/// Weights like token lengths: log-normal, from a small generator so that every run has the same.
fn token_lengths(rows: usize) -> Vec<u64> {
    let mut state: u64 = 1;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        #[expect(clippy::cast_precision_loss, reason = "53 random bits")]
        let unit = ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        unit
    };
    let length = |_| {
        let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length is a small whole number")]
        let length = (6.0 + normal).exp() as u64 + 1;
        length
    };
    (0..rows).map(length).collect()
}

fn layouts(criterion: &mut Criterion) -> Result<(), Refusal> {
    let mut group = criterion.benchmark_group("core: even layout of 10^9 rows, shards");
    for shards in [4_096_u32, 100_000] {
        group.bench_with_input(BenchmarkId::new("twinkle", shards), &shards, |bencher, &shards| {
            bencher.iter(|| Layout::even(black_box(1_000_000_000), shards, 1));
        });
    }
    group.finish();
    let (source, target) = (Layout::even(1_000_000_000, 4_096, 1)?, Layout::even(1_000_000_000, 3_000, 1)?);
    let mut group = criterion.benchmark_group("core: of 4096 shards");
    group.bench_function(BenchmarkId::new("twinkle", "collect"), |bencher| bencher.iter(|| source.copies()));
    group.bench_function(BenchmarkId::new("twinkle", "reshard"), |bencher| bencher.iter(|| source.reshard(&target)));
    group.finish();
    Ok(())
}

fn balance(criterion: &mut Criterion) {
    let weights = token_lengths(1_000_000);
    let mut group = criterion.benchmark_group("core: balanced, 1000000 weights over 1024 shards");
    group.sample_size(10);
    for (name, balance) in [("greedy", Balance::Greedy), ("refined", Balance::Refined)] {
        group.bench_function(BenchmarkId::new("twinkle", name), |bencher| {
            bencher.iter(|| Layout::balanced(&weights, 1_024, true, 1, balance));
        });
    }
    group.finish();
    let lengths: Csr<u64> = weights.chunks(1_000).take(100).map(<[u64]>::to_vec).collect();
    let packing = Packing { cap: 8_192, align: 2, row_multiple: 1, fill: Fill::Refuse };
    let mut group = criterion.benchmark_group("core: micro-batches, 100 shards of 1000 rows");
    group.bench_function(BenchmarkId::new("twinkle", "pack"), |bencher| bencher.iter(|| pack(&lengths, None, packing)));
    group.finish();
}

fn placements(criterion: &mut Criterion) -> Result<(), Refusal> {
    let axis = |size, weight, stage| PlacedAxis { size, weight, stage };
    let sizes = vec![axis(16, 0, true), axis(4_096, 1, false), axis(2, 0, false), axis(8, 0, false)];
    let make = || Placement::new(sizes.clone(), 1, Workers::Blocks(1), CollectFrom::PpLast);
    let placement = make()?;
    let mut group = criterion.benchmark_group("core: placement of 1048576 workers");
    group.bench_function(BenchmarkId::new("twinkle", "shard of every worker"), |bencher| bencher.iter(make));
    group.bench_function(BenchmarkId::new("twinkle", "and representatives"), |bencher| {
        bencher.iter(|| make().map(|placement| placement.representative().len()));
    });
    group.finish();
    let small = Placement::new(vec![axis(4_096, 1, false)], 1, Workers::Blocks(1), CollectFrom::Any)?;
    let moves = Layout::even(1_000_000, 4_096, 1)?.reshard(&Layout::even(1_000_000, placement.shards(), 1)?)?;
    let mut group = criterion.benchmark_group("core: route to 1048576 workers");
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("twinkle", "route"), |bencher| {
        bencher.iter(|| route(&moves, &small, &placement, &Topology::default()));
    });
    group.finish();
    Ok(())
}

fn all(criterion: &mut Criterion) {
    let made = layouts(criterion).and_then(|()| placements(criterion));
    assert!(made.is_ok(), "{made:?}");
    balance(criterion);
}

criterion_group!(benches, all);
criterion_main!(benches);
