//! Whole answers about a mesh: every coordinate, every data rank, who is collected from, who stands at the end of an axis.

use crate::error::{Answer, Refusal};
use crate::fill::{RankCell, fill_coordinates};
use crate::group::LIST_LIMIT;
use crate::mesh::Mesh;
use crate::ranks::Coordinate;

impl Mesh {
    /// Writes the coordinate of every position, one row each.
    pub fn write_coordinates<Cell: RankCell>(&self, out: &mut [Cell]) {
        fill_coordinates(out, &self.shape());
    }

    /// Writes the coordinates of these ranks, one row each; refused at the first rank the mesh does not have.
    pub fn write_coordinates_of<Cell: RankCell>(&self, ranks: &[i64], out: &mut [Cell]) -> Answer<()> {
        for (row, &rank) in out.chunks_exact_mut(self.axes().len()).zip(ranks) {
            let coordinate = self.member(i128::from(rank))?;
            for (cell, &index) in row.iter_mut().zip(coordinate.iter()) {
                *cell = Cell::from_rank(index.cast_signed());
            }
        }
        Ok(())
    }

    /// Writes the data rank of every position.
    pub fn write_data_ranks<Cell: RankCell>(&self, out: &mut [Cell]) -> Answer<()> {
        self.not_a_view()?;
        let data = self.data_places().into_iter().flatten();
        let inner = data.map(|place| self.steps()[place]).min().unwrap_or(u64::MAX);
        // Positions below one step of the innermost data axis share their data rank.
        let run = usize::try_from(inner).unwrap_or(usize::MAX).min(out.len().max(1));
        for (position, cells) in (0..).step_by(run).zip(out.chunks_mut(run)) {
            cells.fill(Cell::from_rank(self.data_rank_at(&self.coordinate_at(position)).cast_signed()));
        }
        Ok(())
    }

    /// Writes the rank at every position.
    pub fn write_ranks<Cell: RankCell>(&self, out: &mut [Cell]) {
        match (self.ranks().table(), self.ranks().strides()) {
            (None, Some(strides)) => {
                let digits = self.axes().iter().map(super::axis::Axis::size).zip(strides.iter().copied());
                crate::fill::fill(out, self.ranks().offset().cast_signed(), digits);
            }
            (table, _) => {
                for (cell, &rank) in out.iter_mut().zip(table.unwrap_or_default()) {
                    *cell = Cell::from_rank(rank.cast_signed());
                }
            }
        }
    }

    /// The ranks whose outputs are collected, in data-rank order: the last pipeline stage, then the lowest position.
    pub fn collect_ranks(&self) -> Answer<Vec<u64>> {
        let shards = self.data_world_size()?;
        if shards > LIST_LIMIT {
            return Err(Refusal::ListTooLong { count: shards, limit: LIST_LIMIT });
        }
        let last_stage = self.last_stage()?;
        Ok((0..shards).map(|shard| self.lowest_of(shard, last_stage)).collect())
    }

    /// The rank whose output is collected for one data rank.
    pub fn representative(&self, data_rank: i128) -> Answer<u64> {
        let shards = self.data_world_size()?;
        match u64::try_from(data_rank) {
            Ok(shard) if shard < shards => Ok(self.lowest_of(shard, self.last_stage()?)),
            _ => Err(Refusal::DataRankOutside { data_rank, data_world_size: shards }),
        }
    }

    /// The coordinate of the first rank of the last pipeline stage.
    fn last_stage(&self) -> Answer<Coordinate> {
        self.not_hidden("pp")?;
        let mut coordinate = Coordinate::origin(self.axes().len());
        if let Some(place) = self.place_of("pp") {
            coordinate[place] = self.axes()[place].size() - 1;
        }
        Ok(coordinate)
    }

    /// The rank at the lowest position of a data rank, all other indices being those of `coordinate`.
    fn lowest_of(&self, shard: u64, mut coordinate: Coordinate) -> u64 {
        let peers = self.ulysses();
        let lowest = self.lowest_peer(shard * peers, peers);
        for (place, own) in self.data_places().into_iter().zip(self.split_data(lowest)) {
            if let Some(place) = place {
                coordinate[place] = own;
            }
        }
        self.rank_at_coordinate(&coordinate)
    }

    /// The ranks of one pipeline stage, ascending; without a pp axis every rank is in stage 0.
    pub fn stage_ranks(&self, stage: i128) -> Answer<Vec<u64>> {
        let stages = self.size_of("pp")?;
        let index = u64::try_from(stage).ok().filter(|index| *index < stages);
        let index = index.ok_or(Refusal::StageOutside { stage, stages, declared: self.declares("pp") })?;
        self.ranks_at("pp", index)
    }

    /// The ranks at the last index of an axis, ascending; all of them where it is not declared.
    pub fn last_ranks(&self, name: &str) -> Answer<Vec<u64>> {
        let last = self.size_of(name)? - 1;
        self.ranks_at(name, last)
    }

    fn declares(&self, name: &str) -> String {
        let verb = if self.place_of(name).is_some() { "is" } else { "is not" };
        format!("{name} {verb} declared")
    }

    /// The ranks at one index of an axis, ascending.
    fn ranks_at(&self, name: &str, index: u64) -> Answer<Vec<u64>> {
        let fixed = self.place_of(name);
        let count = self.world_size() / self.declared_size(name).unwrap_or(1);
        if count > LIST_LIMIT {
            return Err(Refusal::ListTooLong { count, limit: LIST_LIMIT });
        }
        if let Some(table) = self.ranks().table() {
            let size = fixed.map_or(1, |place| self.axes()[place].size());
            let step = fixed.map_or(1, |place| self.steps()[place]);
            let kept = |position: &u64| position / step % size == index;
            let mut ranks: Vec<u64> =
                (0..).zip(table).filter(|(position, _)| kept(position)).map(|(_, rank)| *rank).collect();
            ranks.sort_unstable();
            return Ok(ranks);
        }
        // Nesting strides ascend when the largest one counts slowest.
        let mut ranks = vec![self.ranks().lowest()];
        let flipped = |place: usize| self.ranks().strides().is_some_and(|strides| strides[place] < 0);
        for (place, size, stride) in self.ranks().levels() {
            let indices = match fixed {
                Some(own) if own == place => {
                    let found = if flipped(place) { size - 1 - index } else { index };
                    found..found + 1
                }
                _ => 0..size,
            };
            ranks = ranks.iter().flat_map(|rank| indices.clone().map(move |index| rank + index * stride)).collect();
        }
        Ok(ranks)
    }

    /// Whether a rank stands at the last (or first) index of an axis; false outside the mesh, true where the axis is not declared.
    pub fn is_at_end(&self, name: &str, rank: u64, last: bool) -> Answer<bool> {
        let size = self.size_of(name)?;
        let place = self.place_of(name);
        Ok(self.coord_of(rank).is_some_and(|coordinate| {
            let index = place.map_or(0, |place| coordinate[place]);
            index == if last { size - 1 } else { 0 }
        }))
    }
}
