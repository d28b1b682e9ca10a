//! Whole answers: arrays of ranks or coordinates written in one pass, at the width their numbers need.

/// A cell of an answer array: 32 or 64 bits.
pub trait RankCell: Copy + Default {
    /// The cell that holds a number; the caller has chosen a width in which every number of the answer fits.
    fn from_rank(rank: i64) -> Self;
    /// The position a cell holds.
    fn to_position(self) -> u64;
    /// The sum of two cells.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

impl RankCell for i32 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the caller chose a width that fits")]
    fn from_rank(rank: i64) -> Self {
        rank as Self
    }

    #[inline]
    fn to_position(self) -> u64 {
        u64::from(self.cast_unsigned())
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl RankCell for i64 {
    #[inline]
    fn from_rank(rank: i64) -> Self {
        rank
    }

    #[inline]
    fn to_position(self) -> u64 {
        self.cast_unsigned()
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// The most cells a repeated pattern may have; it stays in the first-level cache.
const PATTERN_LIMIT: u64 = 2048;

/// Writes `base + sum(index * step)` for every index in row-major order of the `(size, step)` digits.
///
/// The inner digits become a pattern that is written once per index of the outer ones, so that the loop which writes is
/// long and has no branch in it.
pub(crate) fn fill<Cell: RankCell>(out: &mut [Cell], base: i64, digits: impl Iterator<Item = (u64, i64)>) {
    let mut outer: Vec<(u64, i64)> = Vec::new();
    for (size, step) in digits {
        match outer.last_mut() {
            _ if size == 1 => {}
            Some((sizes, stride)) if Some(*stride) == step.checked_mul(size.cast_signed()) => {
                (*sizes, *stride) = (*sizes * size, step);
            }
            _ => outer.push((size, step)),
        }
    }
    let mut pattern = vec![0_i64];
    let mut room = PATTERN_LIMIT;
    while let Some((size, step)) = outer.pop() {
        // All of the digit, or as large a power of two of it as fits.
        let taken = if size <= room { size } else { room.min(1 << size.trailing_zeros()) };
        if taken > 1 {
            pattern = (0..taken.cast_signed())
                .flat_map(|index| pattern.iter().map(move |offset| index * step + offset))
                .collect();
        }
        room /= taken;
        if taken < size {
            outer.push((size / taken, step * taken.cast_signed()));
            break;
        }
    }
    let pattern: Vec<Cell> = pattern.iter().map(|&offset| Cell::from_rank(offset)).collect();
    let mut bases = Odometer::new(base, &outer);
    for row in out.chunks_exact_mut(pattern.len()) {
        let base = Cell::from_rank(bases.next());
        for (cell, offset) in row.iter_mut().zip(&pattern) {
            *cell = base.plus(*offset);
        }
    }
}

/// Writes every coordinate of a mesh with these sizes, one row per position.
pub(crate) fn fill_coordinates<Cell: RankCell>(out: &mut [Cell], sizes: &[u64]) {
    match sizes.len() {
        1 => coordinate_rows::<Cell, 1>(out, sizes),
        2 => coordinate_rows::<Cell, 2>(out, sizes),
        3 => coordinate_rows::<Cell, 3>(out, sizes),
        4 => coordinate_rows::<Cell, 4>(out, sizes),
        5 => coordinate_rows::<Cell, 5>(out, sizes),
        6 => coordinate_rows::<Cell, 6>(out, sizes),
        7 => coordinate_rows::<Cell, 7>(out, sizes),
        8 => coordinate_rows::<Cell, 8>(out, sizes),
        axes => {
            let mut index = vec![0_u64; axes];
            for row in out.chunks_exact_mut(axes) {
                for (cell, &own) in row.iter_mut().zip(&index) {
                    *cell = Cell::from_rank(own.cast_signed());
                }
                advance(&mut index, sizes);
            }
        }
    }
}

/// Counts one position on.
fn advance(index: &mut [u64], sizes: &[u64]) {
    for (own, size) in index.iter_mut().zip(sizes).rev() {
        *own += 1;
        if *own < *size {
            return;
        }
        *own = 0;
    }
}

/// Rows of a known width: the innermost index counts in a register, the others change once per run of it.
fn coordinate_rows<Cell: RankCell, const AXES: usize>(out: &mut [Cell], sizes: &[u64]) {
    let (outer_sizes, inner) = (&sizes[..AXES - 1], sizes[AXES - 1]);
    let one = Cell::from_rank(1);
    let mut outer = [0_u64; AXES];
    let run = usize::try_from(inner).unwrap_or(usize::MAX);
    for rows in out.as_chunks_mut::<AXES>().0.chunks_mut(run) {
        let mut row = outer.map(|index| Cell::from_rank(index.cast_signed()));
        for place in rows {
            *place = row;
            row[AXES - 1] = row[AXES - 1].plus(one);
        }
        advance(&mut outer[..AXES - 1], outer_sizes);
    }
}

/// The values of `base + sum(index * step)` in row-major order.
struct Odometer<'mesh> {
    digits: &'mesh [(u64, i64)],
    index: Vec<u64>,
    value: i64,
}

impl<'mesh> Odometer<'mesh> {
    fn new(base: i64, digits: &'mesh [(u64, i64)]) -> Self {
        Self { digits, index: vec![0; digits.len()], value: base }
    }

    fn next(&mut self) -> i64 {
        let value = self.value;
        for (index, (size, step)) in self.index.iter_mut().zip(self.digits).rev() {
            *index += 1;
            self.value = self.value.wrapping_add(*step);
            if *index < *size {
                break;
            }
            self.value = self.value.wrapping_sub(step.wrapping_mul(size.cast_signed()));
            *index = 0;
        }
        value
    }
}
