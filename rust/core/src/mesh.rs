//! The mesh: axes, the ranks along them, and everything that follows for one rank.

use std::hash::{Hash, Hasher};

use crate::axis::{self, Axis, EXPERT, MAX_AXES, Name};
use crate::error::{Answer, Refusal};
use crate::options::{Options, Requested};
use crate::ranks::{Affine, Coordinate, Found, RANK_LIMIT, Ranks};

/// How processes are arranged along named axes. Immutable; equal meshes are equal values.
///
/// Hash covers axes and ranks, equality the options too.
#[derive(Debug, Clone)]
pub struct Mesh {
    axes: Vec<Axis>,
    ranks: Ranks,
    options: Options,
    /// Positions between neighbours along each axis: position = sum(index * step).
    steps: [u64; MAX_AXES],
    world_size: u64,
    data: Data,
    /// Whether an axis arranges experts or hides a data axis, so that rows have no owner here.
    view: bool,
}

/// How a coordinate becomes a data rank; derived from the axes and the ulysses option.
#[derive(Debug, Clone, Copy)]
struct Data {
    dp: Option<u8>,
    fsdp: Option<u8>,
    fsdp_size: u64,
    ulysses: u64,
    world_size: u64,
}

impl PartialEq for Mesh {
    fn eq(&self, other: &Self) -> bool {
        self.axes == other.axes && self.options == other.options && self.ranks == other.ranks
    }
}

impl Eq for Mesh {}

impl Hash for Mesh {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.axes, &self.ranks).hash(state);
    }
}

/// The product of sizes, refused at 2**63.
pub(crate) fn product(axes: &[Axis]) -> Answer<u64> {
    let world =
        axes.iter().try_fold(1_u64, |world, axis| world.checked_mul(axis.size).filter(|world| *world < RANK_LIMIT));
    world.ok_or_else(|| Refusal::WorldTooLarge {
        names: axes.iter().map(|axis| axis.name.to_string()).collect(),
        sizes: axes.iter().map(|axis| axis.size).collect(),
    })
}

impl Mesh {
    /// A mesh of consecutive ranks from `offset`, axes outermost first, innermost fastest.
    ///
    /// Refused: unknown or repeated names, sizes below 1, a rank at or beyond 2**63, options that contradict the axes.
    pub fn from_axes(sizes: &[(&str, i128)], offset: i128, requested: &Requested) -> Answer<Self> {
        let axes = sizes
            .iter()
            .map(|&(name, size)| {
                let name = axis::declared(name)?;
                let size = crate::options::checked_size(&name, Some(size), 1)?.unwrap_or(1);
                Ok(Axis::new(name, size))
            })
            .collect::<Answer<Vec<_>>>()?;
        let offset = u64::try_from(offset).map_err(|_| Refusal::OffsetOutOfRange { offset })?;
        product(&axes)?;
        let lengths: Vec<u64> = axes.iter().map(Axis::size).collect();
        let affine = Affine::row_major(&lengths, offset);
        let affine = affine.ok_or(Refusal::OffsetOutOfRange { offset: i128::from(offset) })?;
        Self::assemble(axes, Ranks::Affine(affine), requested)
    }

    /// A mesh with an explicit rank at every position, in row-major order of the named axes.
    pub fn from_table(names: &[&str], sizes: &[u64], ranks: Vec<u64>, requested: &Requested) -> Answer<Self> {
        let axes = Self::table_axes(names, sizes)?;
        let world = product(&axes)?;
        if usize::try_from(world) != Ok(ranks.len()) {
            let found = u64::try_from(ranks.len()).unwrap_or(u64::MAX);
            return Err(Refusal::TableLength { world_size: world, found });
        }
        Self::assemble(axes, Ranks::of_table(sizes, ranks)?, requested)
    }

    /// A mesh of evenly spaced ranks along one axis: `start`, `start + step`, ...
    pub fn from_range(name: &str, start: i128, step: i128, length: u64, requested: &Requested) -> Answer<Self> {
        let axes = Self::table_axes(&[name], &[length])?;
        let last = start.saturating_add(step.saturating_mul(i128::from(length) - 1));
        if let Some(rank) = [start, last].into_iter().find(|rank| *rank < 0) {
            return Err(Refusal::RankNegative { rank });
        }
        let too_large = Refusal::RankTooLarge { rank: start.max(last) };
        let (Ok(first), Ok(stride)) = (u64::try_from(start), i64::try_from(if length == 1 { 1 } else { step })) else {
            return Err(too_large);
        };
        let affine = Affine::new(&[length], first, &[stride]).ok_or(too_large)?;
        Self::assemble(axes, Ranks::Affine(affine), requested)
    }

    fn table_axes(names: &[&str], sizes: &[u64]) -> Answer<Vec<Axis>> {
        if names.len() != sizes.len() {
            return Err(Refusal::NamesDisagree {
                names: names.iter().map(|&name| name.to_owned()).collect(),
                dimensions: u64::try_from(sizes.len()).unwrap_or(u64::MAX),
            });
        }
        names
            .iter()
            .zip(sizes)
            .map(|(name, &size)| {
                let name = axis::declared(name)?;
                let size = crate::options::checked_size(&name, Some(i128::from(size)), 1)?.unwrap_or(1);
                Ok(Axis::new(name, size))
            })
            .collect()
    }

    /// The one door: every mesh passes these checks.
    pub(crate) fn assemble(axes: Vec<Axis>, ranks: Ranks, requested: &Requested) -> Answer<Self> {
        if axes.is_empty() || axes.len() > MAX_AXES {
            let count = u64::try_from(axes.len()).unwrap_or(u64::MAX);
            return Err(Refusal::AxisCount { count, limit: 16 });
        }
        for (index, axis) in axes.iter().enumerate() {
            if axes[..index].iter().any(|earlier| earlier.name == axis.name) {
                return Err(Refusal::AxisRepeated { name: axis.name.to_string() });
            }
        }
        let world_size = product(&axes)?;
        let options = Options::checked(requested, &axes, world_size)?;
        let mut steps = [1; MAX_AXES];
        for index in (0..axes.len() - 1).rev() {
            steps[index] = steps[index + 1] * axes[index + 1].size;
        }
        let place =
            |name: &str| axes.iter().position(|axis| axis.name == name).and_then(|place| u8::try_from(place).ok());
        let size = |place: Option<u8>| place.map_or(1, |place| axes[usize::from(place)].size);
        let (dp, fsdp) = (place("dp"), place("fsdp"));
        let view = axes.iter().any(|axis| EXPERT.contains(&axis.name()) || axis.hides_data());
        // A view answers nothing about rows; a split brings the option back into force.
        let ulysses = options.ulysses.filter(|_| !view).unwrap_or(1);
        let data = Data { dp, fsdp, fsdp_size: size(fsdp), ulysses, world_size: size(dp) * size(fsdp) / ulysses };
        Ok(Self { axes, ranks, options, steps, world_size, data, view })
    }

    /// The same layout with other options.
    pub fn with_options(&self, requested: &Requested) -> Answer<Self> {
        Self::assemble(self.axes.clone(), self.ranks.clone(), requested)
    }

    /// The declared axes, outermost first.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Which rank sits where.
    #[must_use]
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The checked options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many positions there are.
    #[must_use]
    pub fn world_size(&self) -> u64 {
        self.world_size
    }

    /// The size of each axis, outermost first.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(Axis::size).collect()
    }

    /// Positions between neighbours along each axis.
    pub(crate) fn steps(&self) -> &[u64] {
        &self.steps[..self.axes.len()]
    }

    /// The stride of each axis; an axis of size 1 reads the next axis's stride times its size, the innermost 1.
    #[must_use]
    pub fn strides(&self) -> Option<Vec<i128>> {
        let mut strides: Vec<i128> = self.ranks.strides()?.iter().copied().map(i128::from).collect();
        for index in (0..strides.len()).rev() {
            if self.axes[index].size == 1 {
                strides[index] = match self.axes.get(index + 1) {
                    Some(inner) => strides[index + 1] * i128::from(inner.size),
                    None => 1,
                };
            }
        }
        Some(strides)
    }

    /// Whether the ranks are consecutive from the offset, innermost axis fastest.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        self.ranks.strides().is_some_and(|strides| {
            strides
                .iter()
                .zip(self.steps())
                .zip(&self.axes)
                .all(|((&stride, &step), axis)| axis.size == 1 || i128::from(stride) == i128::from(step))
        })
    }

    /// The place of a declared axis among the axes.
    pub(crate) fn place_of(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    /// Whether an axis is declared; unknown names are refused with the nearest accepted one.
    pub fn has_dim(&self, name: &str) -> Answer<bool> {
        self.declared_place(name).map(|place| place.is_some())
    }

    /// The place of an axis, None for a known name that is not declared.
    pub(crate) fn declared_place(&self, name: &str) -> Answer<Option<usize>> {
        let read_as = axis::known(name).unwrap_or(name);
        match self.place_of(read_as) {
            Some(place) => Ok(Some(place)),
            None if axis::known(name).is_some() => Ok(None),
            None => {
                let custom = self.axes.iter().map(Axis::name).filter(|name| axis::known(name).is_none());
                Err(axis::unknown(name, axis::KNOWN.into_iter().chain(custom)))
            }
        }
    }

    /// The size of an axis: 1 where it is known but not declared, the option for `ulysses`.
    ///
    /// Refused: expert sizes above 1 that are only options (ask [`Mesh::expert_mesh`]), parts of a merged axis, other names.
    pub fn size_of(&self, name: &str) -> Answer<u64> {
        if let Some(place) = self.declared_place(name)? {
            return Ok(self.axes[place].size);
        }
        let name = axis::known(name).unwrap_or("dp");
        self.not_hidden(name)?;
        if name == "ulysses" {
            return Ok(self.options.ulysses.unwrap_or(1));
        }
        self.not_only_an_option(name)?;
        Ok(1)
    }

    pub(crate) fn not_only_an_option(&self, name: &str) -> Answer<()> {
        let option = match name {
            "ep" => self.options.ep,
            "etp" => self.options.etp,
            "ep_fsdp" => self.options.ep_fsdp,
            _ => None,
        };
        match option {
            Some(size) if size > 1 => Err(Refusal::OnlyAnOption { name: name.to_owned(), size }),
            _ => Ok(()),
        }
    }

    /// Refuses a name that was merged into another axis.
    pub(crate) fn not_hidden(&self, name: &str) -> Answer<()> {
        match self.axes.iter().find(|axis| axis.hides(name)) {
            Some(axis) => Err(Refusal::AxisMerged {
                name: name.to_owned(),
                axis: axis.name.to_string(),
                parts: axis.parts().map(Axis::worded).collect(),
            }),
            None => Ok(()),
        }
    }

    /// Refuses a question about rows on a mesh that only arranges groups.
    #[inline]
    pub(crate) fn not_a_view(&self) -> Answer<()> {
        if self.view { self.why_a_view() } else { Ok(()) }
    }

    #[cold]
    fn why_a_view(&self) -> Answer<()> {
        for axis in &self.axes {
            if EXPERT.contains(&axis.name()) {
                return Err(Refusal::ViewOfExperts { axis: axis.name.to_string() });
            }
            if axis.hides_data() {
                let parts = axis.parts().map(Axis::worded).collect();
                return Err(Refusal::ViewOfMerged { axis: axis.name.to_string(), parts });
            }
        }
        Ok(())
    }

    /// How many different shares the rows are cut into.
    pub fn data_world_size(&self) -> Answer<u64> {
        self.not_a_view()?;
        Ok(self.data.world_size)
    }

    /// The expert-parallel size: declared, else the option, else 1.
    #[must_use]
    pub fn ep_world_size(&self) -> u64 {
        self.declared_size("ep").or(self.options.ep).unwrap_or(1)
    }

    /// The expert tensor-parallel size: declared, else the option, else the tensor-parallel size.
    #[must_use]
    pub fn etp_world_size(&self) -> u64 {
        let tp = || self.axes.iter().find_map(|axis| axis.size_of("tp"));
        self.declared_size("etp").or(self.options.etp).or_else(tp).unwrap_or(1)
    }

    /// The expert sharding size: the option, else `world_size / ep` where ep is on.
    #[must_use]
    pub fn ep_fsdp_size(&self) -> Option<u64> {
        self.options.ep_fsdp.or(self.options.ep.map(|ep| self.world_size / ep))
    }

    pub(crate) fn declared_size(&self, name: &str) -> Option<u64> {
        self.place_of(name).map(|place| self.axes[place].size)
    }

    // Rank, position and coordinate.

    /// The coordinate of a rank, None where the mesh does not have it: `rank_of(coord_of(rank)) == rank`, and back.
    #[inline]
    #[must_use]
    pub fn coord_of(&self, rank: u64) -> Option<Coordinate> {
        match self.ranks.find(rank)? {
            Found::Coordinate(coordinate) => Some(coordinate),
            Found::Position(position) => Some(self.coordinate_at(position)),
        }
    }

    /// The coordinate of a rank that must be there.
    pub(crate) fn member(&self, rank: i128) -> Answer<Coordinate> {
        let found = u64::try_from(rank).ok().and_then(|rank| self.coord_of(rank));
        found.ok_or_else(|| self.no_such_rank(rank))
    }

    pub(crate) fn no_such_rank(&self, rank: i128) -> Refusal {
        let (lowest, highest) = (self.ranks.lowest(), self.ranks.highest());
        Refusal::RankOutside { rank, world_size: self.world_size, lowest, highest }
    }

    /// The rank at a coordinate with one index below its size per axis.
    #[inline]
    pub(crate) fn rank_at_coordinate(&self, coordinate: &[u64]) -> u64 {
        self.ranks.rank_at(coordinate, self.position_at(coordinate))
    }

    /// The rank with these coordinates. Axes of size 1 may be left out; undeclared ones may be given as 0.
    pub fn rank_of(&self, given: &[(&str, i128)]) -> Answer<u64> {
        let mut coordinate = Coordinate::origin(self.axes.len());
        let mut seen = [false; MAX_AXES];
        let mut undeclared: Vec<&str> = Vec::new();
        for &(name, index) in given {
            let Some(place) = self.declared_place(name)? else {
                self.size_of(name)?;
                let name = axis::known(name).unwrap_or("dp");
                if undeclared.contains(&name) {
                    return Err(Refusal::AxisRepeated { name: name.to_owned() });
                }
                if index != 0 {
                    return Err(Refusal::IndexOutside { axis: name.to_owned(), index, size: 1 });
                }
                undeclared.push(name);
                continue;
            };
            let axis = &self.axes[place];
            if seen[place] {
                return Err(Refusal::AxisRepeated { name: axis.name.to_string() });
            }
            let fits = u64::try_from(index).ok().filter(|index| *index < axis.size);
            coordinate[place] =
                fits.ok_or_else(|| Refusal::IndexOutside { axis: axis.name.to_string(), index, size: axis.size })?;
            seen[place] = true;
        }
        let left_out = |(place, axis): &(usize, &Axis)| !seen[*place] && axis.size > 1;
        if let Some((_, axis)) = self.axes.iter().enumerate().find(left_out) {
            return Err(Refusal::IndexMissing { axis: axis.name.to_string(), size: axis.size });
        }
        Ok(self.rank_at_coordinate(&coordinate))
    }

    /// The row-major position of a coordinate.
    #[inline]
    pub(crate) fn position_at(&self, coordinate: &[u64]) -> u64 {
        coordinate.iter().zip(&self.steps).map(|(index, step)| index * step).sum()
    }

    /// The coordinate of a position below the world size.
    #[inline]
    pub(crate) fn coordinate_at(&self, position: u64) -> Coordinate {
        let mut coordinate = Coordinate::origin(self.axes.len());
        let mut rest = position;
        for (index, step) in coordinate.iter_mut().zip(&self.steps) {
            *index = rest / step;
            rest %= step;
        }
        coordinate
    }

    /// The position of a rank, None where the mesh does not have it: the inverse of [`Mesh::rank_at`].
    #[must_use]
    pub fn position_of(&self, rank: u64) -> Option<u64> {
        match self.ranks.find(rank)? {
            Found::Coordinate(coordinate) => Some(self.position_at(&coordinate)),
            Found::Position(position) => Some(position),
        }
    }

    /// The rank at a position: the inverse of [`Mesh::position_of`].
    pub fn rank_at(&self, position: i128) -> Answer<u64> {
        let outside = Refusal::PositionOutside { position, world_size: self.world_size };
        let position = u64::try_from(position).ok().filter(|position| *position < self.world_size).ok_or(outside)?;
        Ok(self.rank_at_position(position))
    }

    #[inline]
    pub(crate) fn rank_at_position(&self, position: u64) -> u64 {
        match self.ranks.table() {
            Some(table) => table[usize::try_from(position).unwrap_or(usize::MAX)],
            None => self.ranks.rank_at(&self.coordinate_at(position), position),
        }
    }

    // Rows.

    /// The index of a coordinate among all data coordinates: `dp * fsdp_size + fsdp`.
    #[inline]
    pub(crate) fn data_index(&self, coordinate: &[u64]) -> u64 {
        let index = |place: Option<u8>| place.map_or(0, |place| coordinate[usize::from(place)]);
        index(self.data.dp) * self.data.fsdp_size + index(self.data.fsdp)
    }

    /// The data rank of a rank, None where the mesh does not have it.
    pub fn data_rank_of(&self, rank: u64) -> Answer<Option<u64>> {
        self.not_a_view()?;
        Ok(self.coord_of(rank).map(|coordinate| self.data_rank_at(&coordinate)))
    }

    #[inline]
    pub(crate) fn data_rank_at(&self, coordinate: &[u64]) -> u64 {
        let index = self.data_index(coordinate);
        if self.data.ulysses == 1 { index } else { index / self.data.ulysses }
    }

    /// Data ranks that share their rows because of the ulysses option.
    pub(crate) fn ulysses(&self) -> u64 {
        self.data.ulysses
    }

    /// The size of the fsdp axis, the inner one of the data order.
    pub(crate) fn fsdp_size(&self) -> u64 {
        self.data.fsdp_size
    }

    /// The places of the dp and fsdp axes.
    pub(crate) fn data_places(&self) -> [Option<usize>; 2] {
        [self.data.dp.map(usize::from), self.data.fsdp.map(usize::from)]
    }

    /// A copy of one axis name, for derived meshes.
    pub(crate) fn name_at(&self, place: usize) -> Name {
        self.axes[place].name.clone()
    }
}
