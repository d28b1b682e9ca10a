//! Which rank sits at which position: an equation where there is one, a table with an inverse where there is none.
//!
//! An affine arrangement is `offset + sum(coordinate * stride)`, one stride per axis; strides may be negative. It is kept only
//! when the absolute strides *nest*: sorted by size, each is at least the next one times that one's axis size. Then a rank has
//! at most one coordinate and is decoded by one division per axis. Every table that such an equation describes is recognised
//! and becomes the equation, so equal arrangements are equal values.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::axis::MAX_AXES;
use crate::error::{Answer, Refusal};

/// Ranks, and products of sizes, stay below this.
pub const RANK_LIMIT: u64 = 1 << 63;

/// The longest table of ranks that is accepted.
pub const TABLE_LIMIT: u64 = 1 << 28;

/// One index per axis, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coordinate {
    values: [u64; MAX_AXES],
    axes: u8,
}

impl Coordinate {
    /// The coordinate of position 0.
    #[must_use]
    pub fn origin(axes: usize) -> Self {
        Self { values: [0; MAX_AXES], axes: u8::try_from(axes.min(MAX_AXES)).unwrap_or(0) }
    }
}

impl std::ops::Deref for Coordinate {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.values[..usize::from(self.axes)]
    }
}

impl std::ops::DerefMut for Coordinate {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.values[..usize::from(self.axes)]
    }
}

/// How one axis is read off a rank; levels run from the largest absolute stride to the smallest.
#[derive(Debug, Clone, Copy)]
struct Level {
    axis: u8,
    flipped: bool,
    /// The binary logarithm of the stride where it is a power of two, else 64.
    shift: u8,
    stride: u64,
    size: u64,
}

/// Ranks that follow `offset + sum(coordinate * stride)`.
#[derive(Debug, Clone)]
pub struct Affine {
    offset: u64,
    /// One per axis; 0 for an axis of size 1, so that equal arrangements are equal.
    strides: Vec<i64>,
    lowest: u64,
    highest: u64,
    levels: Vec<Level>,
}

impl Affine {
    /// Consecutive ranks from `offset`, innermost axis fastest; None where a rank would pass 2**63.
    pub(crate) fn row_major(sizes: &[u64], offset: u64) -> Option<Self> {
        let mut strides = vec![0; sizes.len()];
        let mut step: u64 = 1;
        for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
            *stride = i64::try_from(step).ok()?;
            step = step.checked_mul(size)?;
        }
        Self::new(sizes, offset, &strides)
    }

    /// The arrangement with these strides; None where they do not nest or a rank leaves 0..2**63.
    pub(crate) fn new(sizes: &[u64], offset: u64, strides: &[i64]) -> Option<Self> {
        let (mut below, mut above) = (0_i128, 0_i128);
        let mut levels = Vec::with_capacity(sizes.len());
        let mut normal = vec![0; sizes.len()];
        for (axis, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
            if size == 1 {
                continue;
            }
            let reach = i128::from(stride) * i128::from(size - 1);
            *(if stride < 0 { &mut below } else { &mut above }) += reach;
            normal[axis] = stride;
            let width = stride.unsigned_abs();
            let shift = if width.is_power_of_two() { u8::try_from(width.trailing_zeros()).ok()? } else { 64 };
            levels.push(Level { axis: u8::try_from(axis).ok()?, flipped: stride < 0, shift, stride: width, size });
        }
        let lowest = u64::try_from(i128::from(offset) + below).ok()?;
        let highest = u64::try_from(i128::from(offset) + above).ok().filter(|rank| *rank < RANK_LIMIT)?;
        levels.sort_by_key(|level| std::cmp::Reverse(level.stride));
        let nest = levels.windows(2).all(|pair| pair[0].stride / pair[1].stride.max(1) >= pair[1].size);
        (nest && levels.iter().all(|level| level.stride > 0)).then_some(())?;
        Some(Self { offset, strides: normal, lowest, highest, levels })
    }

    /// The equation of a table, if it has one: its first rank, and the step to the next along each axis.
    fn of_table(sizes: &[u64], ranks: &[u64]) -> Option<Self> {
        let first = *ranks.first()?;
        let mut strides = vec![0_i64; sizes.len()];
        let mut step: u64 = 1;
        for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
            if size > 1 {
                let next = *ranks.get(usize::try_from(step).ok()?)?;
                *stride = i64::try_from(i128::from(next) - i128::from(first)).ok()?;
            }
            step = step.checked_mul(size)?;
        }
        let affine = Self::new(sizes, first, &strides)?;
        let mut expected = Walk::new(i128::from(first), sizes, &affine.strides);
        ranks.iter().all(|&rank| expected.next() == Some(i128::from(rank))).then_some(affine)
    }

    #[inline]
    pub(crate) fn rank_of(&self, coordinate: &[u64]) -> u64 {
        // Every partial sum stays within 0..2**63 of some rank, so wrapping arithmetic ends at the right one.
        coordinate
            .iter()
            .zip(&self.strides)
            .fold(self.offset, |rank, (&index, &stride)| rank.wrapping_add(index.wrapping_mul(stride.cast_unsigned())))
    }

    #[inline]
    pub(crate) fn coordinate_of(&self, rank: u64) -> Option<Coordinate> {
        if rank < self.lowest || rank > self.highest {
            return None;
        }
        let mut coordinate = Coordinate::origin(self.strides.len());
        let mut rest = rank - self.lowest;
        for level in &self.levels {
            let index = if level.shift < 64 { rest >> level.shift } else { rest / level.stride };
            if index >= level.size {
                return None;
            }
            rest -= index * level.stride;
            coordinate.values[usize::from(level.axis) % MAX_AXES] =
                if level.flipped { level.size - 1 - index } else { index };
        }
        (rest == 0).then_some(coordinate)
    }

    /// Place, size and absolute stride of the axes that hold more than one index, from the largest stride down.
    fn levels(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        self.levels.iter().map(|level| (usize::from(level.axis), level.size, level.stride))
    }
}

impl PartialEq for Affine {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset && self.strides == other.strides
    }
}

impl Eq for Affine {}

impl Hash for Affine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.offset, &self.strides).hash(state);
    }
}

/// Where a table's ranks are found again.
#[derive(Debug)]
enum Inverse {
    /// One slot per rank between the lowest and the highest: its position, or `u32::MAX`.
    Dense(Vec<u32>),
    /// Positions in ascending order of their ranks.
    Sorted(Vec<u32>),
}

/// Distinct ranks that follow no equation, in position order.
#[derive(Debug)]
pub struct Table {
    ranks: Vec<u64>,
    lowest: u64,
    highest: u64,
    inverse: Inverse,
}

impl Table {
    fn new(ranks: Vec<u64>) -> Answer<Self> {
        let lowest = ranks.iter().copied().min().unwrap_or(0);
        let highest = ranks.iter().copied().max().unwrap_or(0);
        let count = u64::try_from(ranks.len()).unwrap_or(u64::MAX);
        let too_long = Refusal::TableTooLong { count, limit: TABLE_LIMIT };
        let length = u32::try_from(ranks.len()).map_err(|_| too_long)?;
        let spread = highest - lowest;
        let inverse = if spread / 4 < count {
            let mut slots = vec![u32::MAX; usize::try_from(spread).unwrap_or(0) + 1];
            for (position, &rank) in (0_u32..).zip(&ranks) {
                let slot = &mut slots[usize::try_from(rank - lowest).unwrap_or(0)];
                if *slot != u32::MAX {
                    return Err(Refusal::RankRepeated { rank, first: *slot, second: position });
                }
                *slot = position;
            }
            Inverse::Dense(slots)
        } else {
            let mut order: Vec<u32> = (0..length).collect();
            order.sort_by_key(|&position| ranks[position as usize]);
            for pair in order.windows(2) {
                if ranks[pair[0] as usize] == ranks[pair[1] as usize] {
                    return Err(Refusal::RankRepeated {
                        rank: ranks[pair[0] as usize],
                        first: pair[0],
                        second: pair[1],
                    });
                }
            }
            Inverse::Sorted(order)
        };
        Ok(Self { ranks, lowest, highest, inverse })
    }

    fn position_of(&self, rank: u64) -> Option<u64> {
        if rank < self.lowest || rank > self.highest {
            return None;
        }
        match &self.inverse {
            Inverse::Dense(slots) => {
                let slot = usize::try_from(rank - self.lowest).ok()?;
                slots.get(slot).filter(|position| **position != u32::MAX).map(|&position| u64::from(position))
            }
            Inverse::Sorted(order) => {
                let found = order.binary_search_by_key(&rank, |&position| self.ranks[position as usize]).ok()?;
                Some(u64::from(order[found]))
            }
        }
    }
}

/// Which rank sits at which position of a mesh.
#[derive(Debug, Clone)]
pub enum Ranks {
    /// An equation.
    Affine(Affine),
    /// A table.
    Table(Arc<Table>),
}

impl PartialEq for Ranks {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Affine(left), Self::Affine(right)) => left == right,
            (Self::Table(left), Self::Table(right)) => Arc::ptr_eq(left, right) || left.ranks == right.ranks,
            _ => false,
        }
    }
}

impl Eq for Ranks {}

impl Hash for Ranks {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Affine(affine) => affine.hash(state),
            Self::Table(table) => table.ranks.hash(state),
        }
    }
}

impl Ranks {
    /// The arrangement of an explicit table in position order, as an equation where there is one.
    pub(crate) fn of_table(sizes: &[u64], ranks: Vec<u64>) -> Answer<Self> {
        let count = u64::try_from(ranks.len()).unwrap_or(u64::MAX);
        if count > TABLE_LIMIT {
            return Err(Refusal::TableTooLong { count, limit: TABLE_LIMIT });
        }
        if let Some(&rank) = ranks.iter().find(|rank| **rank >= RANK_LIMIT) {
            return Err(Refusal::RankTooLarge { rank: i128::from(rank) });
        }
        match Affine::of_table(sizes, &ranks) {
            Some(affine) => Ok(Self::Affine(affine)),
            None => Ok(Self::Table(Arc::new(Table::new(ranks)?))),
        }
    }

    /// The rank at a coordinate; `position` is the same place as a row-major number.
    #[inline]
    pub(crate) fn rank_at(&self, coordinate: &[u64], position: u64) -> u64 {
        match self {
            Self::Affine(affine) => affine.rank_of(coordinate),
            Self::Table(table) => table.ranks[usize::try_from(position).unwrap_or(usize::MAX)],
        }
    }

    /// The coordinate of a rank, or its position where a table is searched; None for a rank that is not there.
    #[inline]
    pub(crate) fn find(&self, rank: u64) -> Option<Found> {
        match self {
            Self::Affine(affine) => affine.coordinate_of(rank).map(Found::Coordinate),
            Self::Table(table) => table.position_of(rank).map(Found::Position),
        }
    }

    /// The largest rank.
    #[must_use]
    pub fn highest(&self) -> u64 {
        match self {
            Self::Affine(affine) => affine.highest,
            Self::Table(table) => table.highest,
        }
    }

    /// The rank at position 0.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::Affine(affine) => affine.offset,
            Self::Table(table) => table.ranks.first().copied().unwrap_or(0),
        }
    }

    /// The lowest rank.
    #[must_use]
    pub fn lowest(&self) -> u64 {
        match self {
            Self::Affine(affine) => affine.lowest,
            Self::Table(table) => table.lowest,
        }
    }

    /// The strides of an equation, 0 for an axis of size 1.
    #[must_use]
    pub fn strides(&self) -> Option<&[i64]> {
        match self {
            Self::Affine(affine) => Some(&affine.strides),
            Self::Table(_) => None,
        }
    }

    /// Place, size and absolute stride of the axes of an equation that hold more than one index, largest stride first.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let affine = match self {
            Self::Affine(affine) => Some(affine),
            Self::Table(_) => None,
        };
        affine.into_iter().flat_map(Affine::levels)
    }

    /// The ranks of a table in position order; None for an equation.
    #[must_use]
    pub fn table(&self) -> Option<&[u64]> {
        match self {
            Self::Affine(_) => None,
            Self::Table(table) => Some(&table.ranks),
        }
    }
}

/// What a search for a rank finds.
pub(crate) enum Found {
    Coordinate(Coordinate),
    Position(u64),
}

/// Walks the values of `base + sum(index * stride)` in row-major order without a division.
pub(crate) struct Walk<'mesh> {
    sizes: &'mesh [u64],
    strides: &'mesh [i64],
    index: Vec<u64>,
    value: i128,
    done: bool,
}

impl<'mesh> Walk<'mesh> {
    pub(crate) fn new(base: i128, sizes: &'mesh [u64], strides: &'mesh [i64]) -> Self {
        Self { sizes, strides, index: vec![0; sizes.len()], value: base, done: false }
    }
}

impl Iterator for Walk<'_> {
    type Item = i128;

    fn next(&mut self) -> Option<i128> {
        if self.done {
            return None;
        }
        let value = self.value;
        for axis in (0..self.sizes.len()).rev() {
            self.index[axis] += 1;
            self.value += i128::from(self.strides[axis]);
            if self.index[axis] < self.sizes[axis] {
                return Some(value);
            }
            self.value -= i128::from(self.strides[axis]) * i128::from(self.sizes[axis]);
            self.index[axis] = 0;
        }
        self.done = true;
        Some(value)
    }
}
