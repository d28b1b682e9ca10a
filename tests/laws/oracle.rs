//! Meshes as plain lists of ranks, every question answered by looking at all of them, and meshes to ask them about.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use twinkle::{Mesh, Requested};

/// Axes of a mesh that cuts rows; expert axes make views and have laws of their own.
pub(crate) const AXES: [&str; 6] = ["dp", "fsdp", "tp", "pp", "cp", "ulysses"];

/// A mesh as a list: the rank and the coordinate of every position.
#[derive(Debug, Clone)]
pub(crate) struct Naive {
    pub(crate) names: Vec<&'static str>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) ranks: Vec<u64>,
    pub(crate) ulysses: u64,
    pub(crate) coordinates: Vec<Vec<u64>>,
}

/// Every coordinate in row-major order, by one loop inside the other.
pub(crate) fn coordinates(sizes: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for &size in sizes {
        let mut longer = vec![];
        for coordinate in &all {
            for index in 0..size {
                let mut next: Vec<u64> = coordinate.clone();
                next.push(index);
                longer.push(next);
            }
        }
        all = longer;
    }
    all
}

impl Naive {
    pub(crate) fn new(names: Vec<&'static str>, sizes: Vec<u64>, ranks: Vec<u64>, ulysses: u64) -> Self {
        let coordinates = coordinates(&sizes);
        assert_eq!(coordinates.len(), ranks.len());
        Self { names, sizes, ranks, ulysses, coordinates }
    }

    pub(crate) fn world_size(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn size(&self, name: &str) -> u64 {
        self.names.iter().position(|own| *own == name).map_or(1, |place| self.sizes[place])
    }

    pub(crate) fn index(&self, name: &str, position: usize) -> u64 {
        self.names.iter().position(|own| *own == name).map_or(0, |place| self.coordinates[position][place])
    }

    pub(crate) fn data_index(&self, position: usize) -> u64 {
        self.index("dp", position) * self.size("fsdp") + self.index("fsdp", position)
    }

    pub(crate) fn data_rank(&self, position: usize) -> u64 {
        self.data_index(position) / self.ulysses
    }

    pub(crate) fn data_world_size(&self) -> u64 {
        self.size("dp") * self.size("fsdp") / self.ulysses
    }

    /// Positions that agree with `position` on every axis but these, ascending.
    pub(crate) fn peers(&self, along: &[&str], position: usize) -> Vec<usize> {
        let agrees = |other: &usize| {
            (0..self.names.len())
                .filter(|place| !along.contains(&self.names[*place]))
                .all(|place| self.coordinates[*other][place] == self.coordinates[position][place])
        };
        (0..self.world_size()).filter(agrees).collect()
    }

    /// Positions with the same rows and the same other coordinates, in data order.
    pub(crate) fn ulysses_peers(&self, position: usize) -> Vec<usize> {
        let mut peers = self.peers(&["dp", "fsdp"], position);
        peers.retain(|peer| self.data_rank(*peer) == self.data_rank(position));
        peers.sort_by_key(|peer| self.data_index(*peer));
        peers
    }

    pub(crate) fn ranks_at(&self, positions: &[usize]) -> Vec<u64> {
        positions.iter().map(|position| self.ranks[*position]).collect()
    }

    pub(crate) fn requested(&self) -> Requested {
        let ulysses = (self.ulysses > 1).then(|| i128::from(self.ulysses));
        Requested { ulysses_size: ulysses, ..Requested::default() }
    }

    /// The core's mesh, from the table of ranks.
    pub(crate) fn mesh(&self) -> Mesh {
        Mesh::from_table(&self.names, &self.sizes, self.ranks.clone(), &self.requested()).unwrap()
    }
}

/// Ranks that follow an equation: strides that nest in some order of the axes, gaps between them, some axes backwards.
pub(crate) fn affine(
    sizes: &[u64],
    nesting: &[usize],
    gaps: &[u64],
    backwards: &[bool],
    offset: u64,
) -> (Vec<u64>, Vec<i64>) {
    let mut strides = vec![0_i64; sizes.len()];
    let mut width: u64 = 1;
    for (&place, &gap) in nesting.iter().zip(gaps) {
        width *= gap;
        strides[place] = i64::try_from(width).unwrap();
        width *= sizes[place];
    }
    let mut first = i64::try_from(offset).unwrap();
    for place in 0..sizes.len() {
        if backwards[place] {
            first += strides[place] * i64::try_from(sizes[place] - 1).unwrap();
            strides[place] = -strides[place];
        }
    }
    let rank = |coordinate: &Vec<u64>| {
        let steps = coordinate.iter().zip(&strides).map(|(index, stride)| i64::try_from(*index).unwrap() * stride);
        u64::try_from(first + steps.sum::<i64>()).unwrap()
    };
    (coordinates(sizes).iter().map(rank).collect(), strides)
}

/// Names and sizes of a small mesh, axes in any order.
pub(crate) fn shapes() -> impl Strategy<Value = (Vec<&'static str>, Vec<u64>)> {
    let names = subsequence(AXES.to_vec(), 1..=5).prop_shuffle();
    names.prop_flat_map(|names| {
        let most: u64 = if names.len() > 3 { 3 } else { 5 };
        let sizes = prop::collection::vec(1..=most, names.len());
        (Just(names), sizes)
    })
}

/// An equation for these sizes: its ranks, in position order.
pub(crate) fn equations(sizes: Vec<u64>) -> impl Strategy<Value = Vec<u64>> {
    let count = sizes.len();
    let nesting = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
    let (gaps, backwards) = (prop::collection::vec(1_u64..4, count), prop::collection::vec(any::<bool>(), count));
    (nesting, gaps, backwards, 0_u64..50)
        .prop_map(move |(nesting, gaps, backwards, offset)| affine(&sizes, &nesting, &gaps, &backwards, offset).0)
}

/// Any distinct ranks for these sizes: dense or sparse, in any order.
fn tables(sizes: &[u64]) -> impl Strategy<Value = Vec<u64>> + use<> {
    let count = sizes.iter().product::<u64>();
    let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
    let jitter = prop::collection::vec(any::<u64>(), usize::try_from(count).unwrap());
    let spread = select(vec![1_u64, 1, 3, 1 << 20, 1 << 52]);
    (order, jitter, spread).prop_map(|(order, jitter, spread)| {
        order.iter().zip(jitter).map(|(place, jitter)| place * spread + jitter % spread).collect()
    })
}

/// Small meshes of every kind: consecutive, strided, reversed, permuted, a subset; with and without the ulysses option.
pub(crate) fn meshes() -> impl Strategy<Value = Naive> {
    let ranked = shapes().prop_flat_map(|(names, sizes)| {
        let count = sizes.iter().product::<u64>();
        let consecutive = (0_u64..20).prop_map(move |offset| (offset..offset + count).collect::<Vec<u64>>());
        let ranks = prop_oneof![consecutive, equations(sizes.clone()), tables(&sizes)];
        (Just(names), Just(sizes), ranks)
    });
    ranked.prop_flat_map(|(names, sizes, ranks)| {
        let plain = Naive::new(names, sizes, ranks, 1);
        let data = if plain.names.contains(&"ulysses") { 1 } else { plain.size("dp") * plain.size("fsdp") };
        let divisors: Vec<u64> = (1..=data).filter(|divisor| data % divisor == 0).collect();
        select(divisors).prop_map(move |ulysses| Naive { ulysses, ..plain.clone() })
    })
}

/// Meshes with both data axes above 1, and the ulysses option over them.
pub(crate) fn hybrids() -> impl Strategy<Value = Naive> {
    let more = subsequence(vec!["tp", "pp", "cp"], 0..=2);
    let names = more.prop_map(|more| [vec!["dp", "fsdp"], more].concat()).prop_shuffle();
    let sized = names.prop_flat_map(|names| {
        let sizes = prop::collection::vec(2_u64..5, names.len());
        (Just(names), sizes)
    });
    let ranked = sized.prop_flat_map(|(names, sizes)| {
        let ranks = prop_oneof![equations(sizes.clone()), tables(&sizes)];
        (Just(names), Just(sizes), ranks)
    });
    ranked.prop_flat_map(|(names, sizes, ranks)| {
        let plain = Naive::new(names, sizes, ranks, 1);
        let data = plain.size("dp") * plain.size("fsdp");
        let divisors: Vec<u64> = (2..=data).filter(|divisor| data.is_multiple_of(*divisor)).collect();
        select(divisors).prop_map(move |ulysses| Naive { ulysses, ..plain.clone() })
    })
}

/// A mesh and some of its axes, in any order.
pub(crate) fn meshes_and_axes() -> impl Strategy<Value = (Naive, Vec<&'static str>)> {
    prop_oneof![3 => meshes().boxed(), 1 => hybrids().boxed()].prop_flat_map(|mesh| {
        let names = mesh.names.clone();
        let count = names.len();
        (Just(mesh), subsequence(names, 1..=count).prop_shuffle())
    })
}

/// A mesh with both data axes, and more than one of its axes in any order, a data axis among them.
pub(crate) fn hybrids_and_axes() -> impl Strategy<Value = (Naive, Vec<&'static str>)> {
    hybrids().prop_flat_map(|mesh| {
        let names = mesh.names.clone();
        let count = names.len();
        let enough = |axes: &Vec<&str>| axes.iter().any(|axis| ["dp", "fsdp"].contains(axis));
        (Just(mesh), subsequence(names, 2..=count).prop_shuffle().prop_filter("a data axis", enough))
    })
}
