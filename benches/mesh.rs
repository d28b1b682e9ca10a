//! What the core's answers cost at 8 to 2**40 ranks, beside a search through a table of all ranks.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use twinkle::{Mesh, Requested};

/// Worlds of 8 ranks to 2**40, four axes each.
const WORLDS: [(u64, [i128; 4]); 5] = [
    (8, [2, 2, 1, 2]),
    (1 << 10, [16, 4, 2, 8]),
    (1 << 16, [16, 256, 2, 8]),
    (1 << 20, [16, 4096, 2, 8]),
    (1 << 40, [16, 1 << 32, 2, 8]),
];
/// The longest table that the plain side searches.
const SEARCHED: u64 = 1 << 20;

fn mesh(sizes: [i128; 4]) -> Option<Mesh> {
    let [pp, dp, cp, tp] = sizes;
    Mesh::from_axes(&[("pp", pp), ("dp", dp), ("cp", cp), ("tp", tp)], 0, &Requested::default()).ok()
}

fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core: build");
    for (world, sizes) in WORLDS {
        group.bench_with_input(BenchmarkId::new("twinkle", world), &sizes, |bencher, &sizes| {
            bencher.iter(|| mesh(black_box(sizes)));
        });
    }
    group.finish();
}

fn coordinate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core: coordinate of one rank");
    for (world, sizes) in WORLDS {
        let Some(mesh) = mesh(sizes) else { continue };
        let rank = world / 3 * 2 + 1;
        group.bench_function(BenchmarkId::new("twinkle", world), |bencher| {
            bencher.iter(|| mesh.coord_of(black_box(rank)));
        });
        if world <= SEARCHED {
            let table: Vec<u64> = (0..world).collect();
            group.bench_function(BenchmarkId::new("search through a table", world), |bencher| {
                bencher.iter(|| table.iter().position(|own| *own == black_box(rank)));
            });
        }
    }
    group.finish();
}

fn table(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core: position of one rank in a table");
    for world in [1_u64 << 10, 1 << 16, 1 << 20] {
        // Multiplying by an odd number permutes the ranks below a power of two, along no equation.
        let ranks: Vec<u64> = (0..world).map(|rank| (rank * 0x9E37_79B1 + rank * rank * 2) % world).collect();
        let searched = ranks.clone();
        let Ok(mesh) = Mesh::from_table(&["dp"], &[world], ranks, &Requested::default()) else { continue };
        let rank = world / 3 * 2 + 1;
        group.bench_function(BenchmarkId::new("twinkle", world), |bencher| {
            bencher.iter(|| mesh.position_of(black_box(rank)));
        });
        group.bench_function(BenchmarkId::new("search through a table", world), |bencher| {
            bencher.iter(|| searched.iter().position(|own| *own == black_box(rank)));
        });
    }
    group.finish();
}

fn one_rank(criterion: &mut Criterion) {
    for (world, sizes) in WORLDS {
        let Some(mesh) = mesh(sizes) else { continue };
        let rank = i128::from(world / 3 * 2 + 1);
        let Ok(along) = mesh.along(&["dp"]) else { continue };
        criterion.benchmark_group("core: own dp group").bench_function(BenchmarkId::new("twinkle", world), |bencher| {
            bencher.iter(|| mesh.group_of(&along, black_box(rank)));
        });
        criterion.benchmark_group("core: rows of one rank").bench_function(
            BenchmarkId::new("twinkle", world),
            |bencher| {
                bencher.iter(|| mesh.rows_of_rank(2048, black_box(rank)));
            },
        );
    }
}

fn whole(criterion: &mut Criterion) {
    const WORLD: u64 = 1 << 20;
    let Some(mesh) = mesh([16, 4096, 2, 8]) else { return };
    let mut cells = vec![0_i32; 1 << 22];
    let twinkle = || BenchmarkId::new("twinkle", WORLD);
    criterion.benchmark_group("core: all coordinates").bench_function(twinkle(), |bencher| {
        bencher.iter(|| mesh.write_coordinates(black_box(&mut cells)));
    });
    for axis in ["pp", "dp", "cp", "tp"] {
        let Ok(along) = mesh.along(&[axis]) else { continue };
        criterion.benchmark_group(format!("core: all {axis} groups")).bench_function(twinkle(), |bencher| {
            bencher.iter(|| mesh.write_groups(&along, black_box(&mut cells[..1 << 20])));
        });
    }
    criterion.benchmark_group("core: collect ranks of 4096 data ranks").bench_function(twinkle(), |bencher| {
        bencher.iter(|| mesh.collect_ranks());
    });
}

criterion_group!(benches, build, coordinate, table, one_rank, whole);
criterion_main!(benches);
