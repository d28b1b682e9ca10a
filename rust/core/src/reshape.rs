//! Derived meshes: a part of a mesh, or the same ranks with their axes reordered, merged or split.

use crate::axis::{self, Axis, Name};
use crate::error::{Answer, Refusal};
use crate::mesh::Mesh;
use crate::options::Requested;
use crate::ranks::{Affine, Ranks, TABLE_LIMIT, Walk};

impl Mesh {
    /// The part of the mesh through `rank`, with these axes in this order; an undeclared axis becomes one of size 1.
    ///
    /// Keeps `sequence_parallel`, keeps ulysses only with all data axes, drops the expert sizes and vpp.
    pub fn submesh(&self, names: &[&str], rank: i128) -> Answer<Self> {
        let coordinate = self.member(rank)?;
        let mut axes: Vec<Axis> = Vec::with_capacity(names.len());
        let mut places: Vec<Option<usize>> = Vec::with_capacity(names.len());
        for name in names {
            let place = self.declared_place(name)?;
            let mut part = match place {
                Some(place) => self.axes()[place].clone(),
                None => Axis::new(axis::declared(name)?, self.size_of(name)?),
            };
            if place.is_none() && part.size > 1 {
                return Err(Refusal::UlyssesHasNoAxis { size: part.size });
            }
            if axes.iter().any(|earlier| earlier.name == part.name) {
                return Err(Refusal::AxisRepeated { name: part.name.to_string() });
            }
            for (place, (own, _)) in (axes.len()..).zip(&mut part.parts) {
                // The other axes it was merged among are gone, so its parts return to where it stands now.
                *own = u32::try_from(place).unwrap_or(u32::MAX);
            }
            axes.push(part);
            places.push(place);
        }
        let cuts_rows = |axis: &Axis| axis.size > 1 && (axis::DATA.contains(&axis.name()) || axis.hides_data());
        let keeps_rows =
            self.axes().iter().enumerate().all(|(place, axis)| !cuts_rows(axis) || places.contains(&Some(place)));
        let requested = Requested {
            ulysses_size: self.options().ulysses.filter(|_| keeps_rows).map(i128::from),
            sequence_parallel: self.options().sequence_parallel,
            ..Requested::default()
        };
        let mut base = coordinate;
        for place in places.iter().copied().flatten() {
            base[place] = 0;
        }
        let position = self.position_at(&base);
        let first = self.ranks().rank_at(&base, position);
        let ranks = self.taken(&axes, &places, first, position)?;
        Self::assemble(axes, ranks, &requested)
    }

    /// The same mesh with its axes in another order; every axis once, options kept. Undone by permuting back.
    pub fn permute(&self, names: &[&str]) -> Answer<Self> {
        let mut places: Vec<Option<usize>> = Vec::with_capacity(names.len());
        for name in names {
            let place = self.declared_place(name)?;
            if place.is_some() && places.contains(&place) {
                return Err(Refusal::AxisRepeated { name: (*name).to_owned() });
            }
            places.push(place);
        }
        if places.len() != self.axes().len() || places.contains(&None) {
            return Err(Refusal::PermuteNames {
                given: names.iter().map(|&name| name.to_owned()).collect(),
                axes: self.axes().iter().map(|axis| axis.name.to_string()).collect(),
            });
        }
        let axes: Vec<Axis> = places.iter().copied().flatten().map(|place| self.axes()[place].clone()).collect();
        let first = self.ranks().offset();
        let ranks = self.taken(&axes, &places, first, 0)?;
        Self::assemble(axes, ranks, &self.options().requested())
    }

    /// The ranks of the axes at `places` (None: a new axis of size 1), starting from one rank and position.
    fn taken(&self, axes: &[Axis], places: &[Option<usize>], first: u64, position: u64) -> Answer<Ranks> {
        let sizes: Vec<u64> = axes.iter().map(Axis::size).collect();
        if let Some(strides) = self.ranks().strides() {
            let strides: Vec<i64> = places.iter().map(|place| place.map_or(0, |place| strides[place])).collect();
            // A part of nesting strides nests.
            let affine = Affine::new(&sizes, first, &strides);
            return affine.map(Ranks::Affine).ok_or(Refusal::RankTooLarge { rank: i128::from(first) });
        }
        let steps: Vec<i64> =
            places.iter().map(|place| place.map_or(0, |place| self.steps()[place].cast_signed())).collect();
        Ranks::of_table(&sizes, self.walked(position, &sizes, &steps))
    }

    /// The ranks met on a row-major walk from one position with these steps between positions.
    fn walked(&self, position: u64, sizes: &[u64], steps: &[i64]) -> Vec<u64> {
        let walk = Walk::new(i128::from(position), sizes, steps);
        let positions = walk.map(|position| u64::try_from(position).unwrap_or(u64::MAX));
        positions.map(|position| self.rank_at_position(position)).collect()
    }

    /// Merges axes, in the order asked, into one at the place of the outermost of them. Undone by [`Mesh::split`].
    ///
    /// The new axis takes any new identifier; data axes alone, in data order, may merge as `dp`. Otherwise a merged data axis
    /// makes the mesh a view. Merging neighbours follows an equation; other merges may need a table, up to 2**28 ranks.
    pub fn flatten(&self, names: &[&str], name: &str) -> Answer<Self> {
        let new = axis::introduced(name)?;
        let mut places: Vec<usize> = Vec::with_capacity(names.len());
        for asked in names {
            let place = self.declared_place(asked)?.ok_or_else(|| Refusal::AxisUndeclared {
                name: (*asked).to_owned(),
                axes: self.axes().iter().map(|axis| axis.name.to_string()).collect(),
            })?;
            if places.contains(&place) {
                return Err(Refusal::AxisRepeated { name: (*asked).to_owned() });
            }
            places.push(place);
        }
        let Some(&outermost) = places.iter().min() else {
            return Err(Refusal::NothingToMerge { name: new.into_owned() });
        };
        let as_data = new == "dp" && self.merges_data(&places);
        let taken = self.place_of(&new).is_some_and(|place| !(as_data && places.contains(&place)));
        if taken || (axis::known(&new).is_some() && !as_data) || self.axes().iter().any(|axis| axis.hides(&new)) {
            return Err(Refusal::MergedNameTaken {
                name: new.into_owned(),
                parts: places.iter().map(|&place| self.name_at(place).into_owned()).collect(),
            });
        }
        let order: Vec<usize> = (0..self.axes().len())
            .flat_map(|place| if place == outermost { places.clone() } else { vec![place] })
            .enumerate()
            .filter(|(index, place)| !places.contains(place) || (outermost..outermost + places.len()).contains(index))
            .map(|(_, place)| place)
            .collect();
        let size = places.iter().map(|&place| self.axes()[place].size).product();
        let mut merged = Axis::new(new, size);
        if !as_data {
            let numbered =
                places.iter().map(|&place| (u32::try_from(place).unwrap_or(u32::MAX), self.axes()[place].clone()));
            merged.parts = numbered.collect();
        }
        let mut axes: Vec<Axis> = Vec::with_capacity(self.axes().len());
        for &place in &order {
            if place == places[0] {
                axes.push(merged.clone());
            } else if !places.contains(&place) {
                axes.push(self.axes()[place].clone());
            }
        }
        let ranks = self.reordered(&axes, &order, outermost, places.len())?;
        Self::assemble(axes, ranks, &self.options().requested())
    }

    /// Whether these places are all the data axes that hold more than one index, in data order, and nothing else.
    fn merges_data(&self, places: &[usize]) -> bool {
        let [dp, fsdp] = self.data_places();
        let in_order = match places {
            [only] => [dp, fsdp].contains(&Some(*only)),
            [outer, inner] => dp == Some(*outer) && fsdp == Some(*inner),
            _ => false,
        };
        in_order
            && [dp, fsdp].into_iter().flatten().all(|place| places.contains(&place) || self.axes()[place].size == 1)
    }

    /// The ranks in row-major order of `order`, with `count` of its axes from `from` on read as one.
    fn reordered(&self, axes: &[Axis], order: &[usize], from: usize, count: usize) -> Answer<Ranks> {
        let sizes: Vec<u64> = axes.iter().map(Axis::size).collect();
        if let Some(strides) = self.ranks().strides() {
            let mut joined: Vec<i64> = Vec::with_capacity(sizes.len());
            joined.extend(order[..from].iter().map(|&place| strides[place]));
            if let Some(stride) = self.joined(&order[from..from + count], strides) {
                joined.push(stride);
                joined.extend(order[from + count..].iter().map(|&place| strides[place]));
                if let Some(affine) = Affine::new(&sizes, self.ranks().offset(), &joined) {
                    return Ok(Ranks::Affine(affine));
                }
            }
        }
        if self.world_size() > TABLE_LIMIT {
            return Err(Refusal::TableTooLong { count: self.world_size(), limit: TABLE_LIMIT });
        }
        let unmerged: Vec<u64> = order.iter().map(|&place| self.axes()[place].size).collect();
        let steps: Vec<i64> = order.iter().map(|&place| self.steps()[place].cast_signed()).collect();
        Ranks::of_table(&sizes, self.walked(0, &unmerged, &steps))
    }

    /// The stride of several axes read as one, where they are evenly spaced together.
    fn joined(&self, places: &[usize], strides: &[i64]) -> Option<i64> {
        let mut joined: Option<(u64, i64)> = None;
        for &place in places.iter().rev().filter(|place| self.axes()[**place].size > 1) {
            joined = Some(match joined {
                None => (self.axes()[place].size, strides[place]),
                Some((size, stride)) if stride.checked_mul(size.cast_signed()) == Some(strides[place]) => {
                    (size * self.axes()[place].size, stride)
                }
                Some(_) => return None,
            });
        }
        Some(joined.map_or(0, |(_, stride)| stride))
    }

    /// Splits one axis into several, outermost first. Undoes [`Mesh::flatten`]: a merged axis splits into its parts only, and
    /// they return to their places.
    pub fn split(&self, name: &str, sizes: &[(&str, i128)]) -> Answer<Self> {
        let place = self.declared_place(name)?.ok_or_else(|| Refusal::AxisUndeclared {
            name: name.to_owned(),
            axes: self.axes().iter().map(|axis| axis.name.to_string()).collect(),
        })?;
        let whole = &self.axes()[place];
        let mut parts: Vec<Axis> = Vec::with_capacity(sizes.len());
        for &(part, size) in sizes {
            let part = axis::introduced(part)?;
            let size = crate::options::checked_size(&part, Some(size), 1)?.unwrap_or(1);
            parts.push(Axis::new(part, size));
        }
        let product = parts.iter().fold(1_i128, |product, part| product.saturating_mul(i128::from(part.size)));
        if product != i128::from(whole.size) || parts.is_empty() {
            return Err(Refusal::SplitProduct { name: whole.name.to_string(), size: whole.size, product });
        }
        let mut axes = self.axes().to_vec();
        let mut strides = self.ranks().strides().map(<[i64]>::to_vec);
        if !whole.parts.is_empty() {
            let same =
                |(part, (_, merged)): (&Axis, &(u32, Axis))| part.name == merged.name && part.size == merged.size;
            if parts.len() != whole.parts.len() || !parts.iter().zip(&whole.parts).all(same) {
                return Err(Refusal::SplitParts {
                    name: whole.name.to_string(),
                    parts: whole.parts().map(Axis::worded).collect(),
                });
            }
            parts = whole.parts().cloned().collect();
        }
        let places: Vec<u32> = whole.parts.iter().map(|(place, _)| *place).collect();
        let count = parts.len();
        if let Some(strides) = &mut strides {
            let mut stride = strides[place];
            let mut inside: Vec<i64> = Vec::with_capacity(count);
            for part in parts.iter().rev() {
                inside.push(stride);
                stride = stride.saturating_mul(part.size.cast_signed());
            }
            strides.splice(place..=place, inside.into_iter().rev());
        }
        axes.splice(place..=place, parts);
        let lengths: Vec<u64> = axes.iter().map(Axis::size).collect();
        let ranks =
            match (strides.and_then(|strides| Affine::new(&lengths, self.ranks().offset(), &strides)), self.ranks()) {
                (Some(affine), _) => Ranks::Affine(affine),
                (None, ranks) => Ranks::of_table(&lengths, ranks.table().unwrap_or_default().to_vec())?,
            };
        let in_place = Self::assemble(axes, ranks, &self.options().requested())?;
        if places.is_empty() {
            return Ok(in_place);
        }
        in_place.returned(place, &places)
    }

    /// The mesh with the axes from `from` on moved to the places they had before they were merged.
    fn returned(&self, from: usize, places: &[u32]) -> Answer<Self> {
        let count = self.axes().len();
        let mut slots: Vec<Option<Name>> = vec![None; count];
        for (index, &place) in places.iter().enumerate() {
            let Some(slot) = usize::try_from(place).ok().and_then(|place| slots.get_mut(place)) else {
                return Ok(self.clone());
            };
            *slot = Some(self.name_at(from + index));
        }
        let mut others = (0..count).filter(|place| !(from..from + places.len()).contains(place));
        for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
            *slot = others.next().map(|place| self.name_at(place));
        }
        let names: Vec<Name> = slots.into_iter().flatten().collect();
        self.permute(&names.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }
}
