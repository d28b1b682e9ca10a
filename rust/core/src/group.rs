//! Groups: the ranks that differ only along some axes, in position order.

use crate::axis::{self, MAX_AXES};
use crate::error::{Answer, Refusal};
use crate::fill::{RankCell, fill};
use crate::mesh::Mesh;

/// The longest list of ranks that is ever made.
pub const LIST_LIMIT: u64 = 1 << 24;

/// Ranks in order: evenly spaced, or one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// `start`, `start + step`, ... , `length` of them.
    Range {
        /// The first rank.
        start: u64,
        /// From one rank to the next; negative where ranks descend, 1 for a single rank.
        step: i64,
        /// How many ranks, at least 1.
        length: u64,
    },
    /// Ranks that are not evenly spaced.
    List(Vec<u64>),
}

impl Members {
    /// How many ranks there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Range { length, .. } => *length,
            Self::List(ranks) => u64::try_from(ranks.len()).unwrap_or(u64::MAX),
        }
    }

    /// Whether there is no rank; never true for the group of a rank.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ranks one by one.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u64> {
        match self {
            Self::Range { start, step, length } => {
                (0..*length).map(|index| start.wrapping_add(index.wrapping_mul(step.cast_unsigned()))).collect()
            }
            Self::List(ranks) => ranks.clone(),
        }
    }

    fn of_list(ranks: Vec<u64>) -> Self {
        let step = match ranks[..] {
            [] => return Self::List(ranks),
            [_] => 1,
            [first, second, ..] => second.wrapping_sub(first).cast_signed(),
        };
        let even = ranks.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]).cast_signed() == step);
        match u64::try_from(ranks.len()) {
            Ok(length) if even => Self::Range { start: ranks[0], step, length },
            _ => Self::List(ranks),
        }
    }
}

/// The axes a group is asked along, resolved against one mesh.
#[derive(Debug, Clone, Copy, Default)]
pub struct Along {
    /// Which declared axes vary.
    free: [bool; MAX_AXES],
    /// Whether the sequence-parallel peers of the ulysses option vary too.
    ulysses: bool,
}

impl Along {
    /// The only axis that varies, if there is one alone.
    #[inline]
    fn only(&self) -> Option<usize> {
        let mut places = (0..MAX_AXES).filter(|place| self.free[*place]);
        let only = places.next().filter(|_| !self.ulysses)?;
        places.next().is_none().then_some(only)
    }
}

/// One digit of the index inside a group, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digit {
    /// An axis, by its place.
    Axis(usize),
    /// The data coordinates of one data rank, in data order.
    Peers,
}

/// Offsets of one digit from its index 0.
#[derive(Debug, Clone)]
enum Run {
    Even { size: u64, step: i64 },
    Listed(Vec<i64>),
}

impl Mesh {
    /// Resolves the names a question is asked along: declared axes, known undeclared ones (size 1), `data`, `ulysses`.
    pub fn along(&self, names: &[&str]) -> Answer<Along> {
        let mut along = Along::default();
        if let [name] = names
            && let Some(place) = self.place_of(name)
        {
            along.free[place] = true;
            return Ok(along);
        }
        let mut seen: Vec<&str> = Vec::with_capacity(names.len());
        for &name in names {
            let read_as = if name == "data" { name } else { axis::known(name).unwrap_or(name) };
            if seen.contains(&read_as) {
                return Err(Refusal::AxisRepeated { name: read_as.to_owned() });
            }
            seen.push(read_as);
            if read_as == "data" {
                self.not_a_view()?;
                for place in self.data_places().into_iter().flatten() {
                    along.free[place] = true;
                }
            } else if let Some(place) = self.declared_place(read_as)? {
                along.free[place] = true;
            } else {
                self.not_hidden(read_as)?;
                self.not_only_an_option(read_as)?;
                if read_as == "ulysses" && self.options().ulysses.is_some() {
                    self.not_a_view()?;
                    along.ulysses = true;
                }
            }
        }
        if let (true, Some(named)) = (seen.contains(&"data"), seen.iter().find(|name| axis::DATA.contains(name))) {
            return Err(Refusal::AxisRepeated { name: (*named).to_owned() });
        }
        if along.ulysses {
            let data = self.data_places().into_iter().flatten().filter(|place| self.axes()[*place].size() > 1);
            let (inside, outside): (Vec<usize>, Vec<usize>) = data.partition(|place| along.free[*place]);
            if let (Some(&named), Some(&missing)) = (inside.first(), outside.first()) {
                return Err(Refusal::UlyssesBesideData {
                    named: self.axes()[named].name().to_owned(),
                    missing: self.axes()[missing].name().to_owned(),
                });
            }
            // The peers of one data rank are part of all data ranks.
            along.ulysses = inside.is_empty();
        }
        Ok(along)
    }

    /// The digits of an index inside a group, outermost first: the data axes count as one, where the outermost of them is.
    fn digits(&self, along: &Along) -> impl Iterator<Item = Digit> {
        let slot = self.data_places().into_iter().flatten().min().filter(|_| along.ulysses);
        let free = along.free;
        (0..self.axes().len()).filter_map(move |place| {
            if Some(place) == slot { Some(Digit::Peers) } else { free[place].then_some(Digit::Axis(place)) }
        })
    }

    fn digit_size(&self, digit: Digit) -> u64 {
        match digit {
            Digit::Axis(place) => self.axes()[place].size(),
            Digit::Peers => self.ulysses(),
        }
    }

    /// How many ranks a group along these axes has.
    #[must_use]
    pub fn group_size(&self, along: &Along) -> u64 {
        self.digits(along).map(|digit| self.digit_size(digit)).product()
    }

    /// The place of a rank inside its group: `group_of(along, rank)[index_in_group(along, rank)] == rank`.
    #[must_use]
    pub fn index_in_group(&self, along: &Along, rank: u64) -> Option<u64> {
        let coordinate = self.coord_of(rank)?;
        let index = self.digits(along).fold(0, |index, digit| {
            let own = match digit {
                Digit::Axis(place) => coordinate[place],
                Digit::Peers => self.data_index(&coordinate) % self.ulysses(),
            };
            index * self.digit_size(digit) + own
        });
        Some(index)
    }

    /// The members of a rank's group in position order; ulysses peers stand in data order.
    ///
    /// Refused: a rank outside the mesh; more than 2**24 members that are not evenly spaced.
    pub fn group_of(&self, along: &Along, rank: i128) -> Answer<Members> {
        let mut coordinate = self.member(rank)?;
        if let (Some(strides), Some(place)) = (self.ranks().strides(), along.only()) {
            // One axis of an equation, the common question: three numbers.
            let (length, step) = (self.axes()[place].size(), strides[place]);
            let base = coordinate[place].wrapping_mul(step.cast_unsigned());
            let start = u64::try_from(rank).unwrap_or(0).wrapping_sub(base);
            return Ok(Members::Range { start, step: if length == 1 { 1 } else { step }, length });
        }
        let table = self.ranks().table();
        let mut block = 0;
        for digit in self.digits(along) {
            match digit {
                Digit::Axis(place) => coordinate[place] = 0,
                Digit::Peers => {
                    let index = self.data_index(&coordinate);
                    block = index - index % self.ulysses();
                    for (place, own) in self.data_places().into_iter().zip(self.split_data(block)) {
                        if let Some(place) = place {
                            coordinate[place] = own;
                        }
                    }
                }
            }
        }
        let runs = self.runs(along, block)?;
        let base = match table {
            Some(_) => self.position_at(&coordinate),
            None => self.rank_at_coordinate(&coordinate),
        };
        match (&runs[..], table) {
            ([], None) => Ok(Members::Range { start: base, step: 1, length: 1 }),
            (&[Run::Even { size, step }], None) => Ok(Members::Range { start: base, step, length: size }),
            (_, _) => {
                let offsets = offsets_of(&runs)?;
                let places = offsets.into_iter().map(|offset| base.wrapping_add(offset.cast_unsigned()));
                Ok(Members::of_list(match table {
                    Some(table) => places.map(|place| table[usize::try_from(place).unwrap_or(usize::MAX)]).collect(),
                    None => places.collect(),
                }))
            }
        }
    }

    /// What one step along an axis adds: to the rank where ranks follow an equation, else to the position.
    fn member_step(&self, place: usize) -> i64 {
        self.ranks().strides().map_or(self.steps()[place].cast_signed(), |strides| strides[place])
    }

    /// The (dp, fsdp) coordinates of a data index.
    pub(crate) fn split_data(&self, index: u64) -> [u64; 2] {
        [index / self.fsdp_size(), index % self.fsdp_size()]
    }

    /// How far the position of a data index is from that of data index 0.
    fn data_position(&self, index: u64) -> u64 {
        let indices = self.data_places().into_iter().zip(self.split_data(index));
        indices.map(|(place, own)| place.map_or(0, |place| self.steps()[place] * own)).sum()
    }

    /// The data index with the lowest position among `peers` of them from `first` on.
    pub(crate) fn lowest_peer(&self, first: u64, peers: u64) -> u64 {
        // Positions ascend along fsdp and along dp, so it is the first one or the first of the next dp index.
        let next = (first / self.fsdp_size() + 1) * self.fsdp_size();
        if next - first < peers && self.data_position(next) < self.data_position(first) { next } else { first }
    }

    /// The offsets inside a group, digit by digit; ulysses peers are those whose data indices start at `block`.
    fn runs(&self, along: &Along, block: u64) -> Answer<Vec<Run>> {
        let mut runs = Vec::with_capacity(2);
        for digit in self.digits(along) {
            match digit {
                Digit::Axis(place) => join(&mut runs, self.axes()[place].size(), self.member_step(place)),
                Digit::Peers => self.push_peers(&mut runs, block)?,
            }
        }
        Ok(runs)
    }

    /// Appends the ulysses peers whose data indices start at `block`.
    fn push_peers(&self, runs: &mut Vec<Run>, block: u64) -> Answer<()> {
        let [dp, fsdp] = self.data_places().map(|place| place.map_or(0, |place| self.member_step(place)));
        let (peers, inner) = (self.ulysses(), self.fsdp_size());
        if inner.is_multiple_of(peers) {
            join(runs, peers, fsdp);
        } else if peers.is_multiple_of(inner) {
            join(runs, peers / inner, dp);
            join(runs, inner, fsdp);
        } else {
            within_list_limit(peers)?;
            let [dp_start, fsdp_start] = self.split_data(block).map(u64::cast_signed);
            let offset = |index| {
                let [dp_index, fsdp_index] = self.split_data(index).map(u64::cast_signed);
                (dp_index - dp_start) * dp + (fsdp_index - fsdp_start) * fsdp
            };
            runs.push(Run::Listed((block..block + peers).map(offset).collect()));
        }
        Ok(())
    }

    /// All groups along these axes, as `(groups, members)`: how many groups, and how many ranks in each.
    #[must_use]
    pub fn groups_shape(&self, along: &Along) -> (u64, u64) {
        let size = self.group_size(along);
        (self.world_size() / size, size)
    }

    /// Writes every group, by lowest position, members as [`Mesh::group_of`] lists them, into one row-major array.
    ///
    /// `out` has `world_size` cells.
    pub fn write_groups<Cell: RankCell>(&self, along: &Along, out: &mut [Cell]) -> Answer<()> {
        let table = self.ranks().table();
        let origin = if table.is_some() { 0 } else { self.ranks().offset().cast_signed() };
        let step = |place: usize| self.member_step(place);
        let size = |place: usize| self.axes()[place].size();
        if let Some(spans) = self.spans(along) {
            // A span of a data axis counts inside its group, what is left of the axis outside.
            let (free, data) = (along.free, self.data_places());
            let outside = (0..self.axes().len()).filter(|place| !free[*place]);
            let outside = outside.map(|place| (size(place) / spans[place], step(place) * spans[place].cast_signed()));
            let inside = self.digits(along).flat_map(|digit| match digit {
                Digit::Axis(place) => [Some((size(place), step(place))), None],
                Digit::Peers => data.map(|place| place.map(|place| (spans[place], step(place)))),
            });
            fill(out, origin, outside.chain(inside.flatten()));
        } else {
            let (groups, members) = self.groups_shape(along);
            within_list_limit(groups)?;
            let members = usize::try_from(members).unwrap_or(usize::MAX);
            for (row, (_, base, block)) in out.chunks_exact_mut(members).zip(self.blocks(along)) {
                for (cell, offset) in row.iter_mut().zip(offsets_of(&self.runs(along, block)?)?) {
                    *cell = Cell::from_rank(origin + base + offset);
                }
            }
        }
        if let Some(table) = table {
            for cell in out {
                *cell = Cell::from_rank(table[usize::try_from(cell.to_position()).unwrap_or(usize::MAX)].cast_signed());
            }
        }
        Ok(())
    }

    /// How many indices of each axis one group of ulysses peers spans, 1 for an axis that cuts no rows; None where the peers
    /// fill neither a part of a row of fsdp nor whole rows.
    fn spans(&self, along: &Along) -> Option<[u64; MAX_AXES]> {
        let mut spans = [1; MAX_AXES];
        if !along.ulysses {
            return Some(spans);
        }
        let (peers, row) = (self.ulysses(), self.fsdp_size());
        let of_data = match (row.is_multiple_of(peers), peers.is_multiple_of(row)) {
            (true, _) => [1, peers],
            (false, true) => [peers / row, row],
            (false, false) => return None,
        };
        for (place, span) in self.data_places().into_iter().zip(of_data) {
            if let Some(place) = place {
                spans[place] = span;
            }
        }
        Some(spans)
    }

    /// For every group of ulysses peers: its lowest position, its member offset and its first data index, by lowest position.
    fn blocks(&self, along: &Along) -> Vec<(u64, i64, u64)> {
        let [dp, fsdp] = self.data_places();
        let size_of = |place: Option<usize>| place.map_or(1, |place| self.axes()[place].size());
        let (data, peers) = (size_of(dp) * size_of(fsdp), self.ulysses());
        let mut groups = vec![(0_u64, 0_i64)];
        let rest = |place: &usize| !along.free[*place] && !self.data_places().contains(&Some(*place));
        for place in (0..self.axes().len()).filter(rest) {
            let size = self.axes()[place].size();
            groups = groups
                .into_iter()
                .flat_map(|(position, base)| (0..size).map(move |index| (position, base, index)))
                .map(|(position, base, index)| {
                    (position + index * self.steps()[place], base + index.cast_signed() * self.member_step(place))
                })
                .collect();
        }
        let mut blocks = Vec::new();
        for block in (0..data).step_by(usize::try_from(peers).unwrap_or(usize::MAX)) {
            let indices = |index| self.data_places().into_iter().zip(self.split_data(index));
            let lowest = self.data_position(self.lowest_peer(block, peers));
            let step = |(place, own): (Option<usize>, u64)| {
                place.map_or(0, |place| self.member_step(place) * own.cast_signed())
            };
            let own: i64 = indices(block).map(step).sum();
            blocks.extend(groups.iter().map(|(position, base)| (position + lowest, base + own, block)));
        }
        blocks.sort_unstable();
        blocks
    }
}

/// Adds a digit to the inner side, joining it with its neighbour where the two are evenly spaced together.
fn join(runs: &mut Vec<Run>, size: u64, step: i64) {
    match runs.last_mut() {
        _ if size == 1 => {}
        Some(Run::Even { size: outer, step: stride }) if Some(*stride) == step.checked_mul(size.cast_signed()) => {
            (*outer, *stride) = (*outer * size, step);
        }
        _ => runs.push(Run::Even { size, step }),
    }
}

fn within_list_limit(count: u64) -> Answer<()> {
    if count > LIST_LIMIT { Err(Refusal::ListTooLong { count, limit: LIST_LIMIT }) } else { Ok(()) }
}

/// Every offset of a group, in order.
fn offsets_of(runs: &[Run]) -> Answer<Vec<i64>> {
    let sizes = runs.iter().map(|run| match run {
        Run::Even { size, .. } => *size,
        Run::Listed(offsets) => u64::try_from(offsets.len()).unwrap_or(u64::MAX),
    });
    within_list_limit(sizes.fold(1, u64::saturating_mul))?;
    let mut offsets = vec![0_i64];
    for run in runs {
        let own: Vec<i64> = match run {
            Run::Even { size, step } => (0..size.cast_signed()).map(|index| index * step).collect(),
            Run::Listed(own) => own.clone(),
        };
        offsets = offsets.iter().flat_map(|outer| own.iter().map(move |inner| outer + inner)).collect();
    }
    Ok(offsets)
}
