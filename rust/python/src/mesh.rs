//! The mesh as Python sees it: arguments in, answers out.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyRange, PyTuple};
use twinkle::{ExpertLayout, Members, Refusal, Requested, Sizes};

use crate::arguments::{self, Names, named_numbers, open_size, rank_number, rank_to_find, size_number};
use crate::arrays::{filled, ranks_array};
use crate::error::Raise;

/// An immutable mesh: axes, ranks and options. `twinkle.DeviceMesh` is its public face.
#[pyclass(frozen, eq, module = "twinkle._core")]
#[derive(PartialEq, Eq)]
pub(crate) struct Mesh(pub(crate) twinkle::Mesh);

fn raised<T>(answer: twinkle::Answer<T>) -> PyResult<T> {
    answer.map_err(|refusal| Raise(refusal).into())
}

fn not_negative(ranks: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<u64>> {
    let read = |&rank: &i64| u64::try_from(rank).map_err(|_| Raise(Refusal::RankNegative { rank: i128::from(rank) }));
    Ok(ranks.as_slice()?.iter().map(read).collect::<Result<Vec<u64>, Raise>>()?)
}

fn members(py: Python<'_>, members: Members) -> PyResult<Bound<'_, PyAny>> {
    match members {
        Members::Range { start, step, length } => {
            let end = i128::from(start) + i128::from(step) * i128::from(length);
            match i64::try_from(end) {
                Ok(end) => py.get_type::<PyRange>().call1((start, end, step)),
                Err(_) => py.get_type::<PyRange>().call1((start, end, step)),
            }
        }
        Members::List(ranks) => Ok(PyTuple::new(py, ranks)?.into_any()),
    }
}

#[pymethods]
impl Mesh {
    /// Reads the bytes that pickling wrote.
    #[new]
    #[pyo3(signature = (state: "bytes"))]
    fn new(state: &[u8]) -> PyResult<Self> {
        raised(twinkle::Mesh::from_bytes(state)).map(Self)
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>,)> {
        Ok((PyBytes::new(py, &raised(self.0.to_bytes())?),))
    }

    fn __hash__(&self) -> u64 {
        let mut state = DefaultHasher::new();
        self.0.hash(&mut state);
        state.finish()
    }

    /// A mesh from the sizes a training script knows.
    #[staticmethod]
    #[pyo3(signature = (world_size: "object", dp_size: "object", fsdp_size: "object", tp_size: "object", pp_size: "object", cp_size: "object", options: "dict[str, Any]", order: "object"))]
    #[expect(clippy::too_many_arguments, reason = "one per size that a script knows")]
    fn from_sizes(
        world_size: Option<&Bound<'_, PyAny>>,
        dp_size: Option<&Bound<'_, PyAny>>,
        fsdp_size: Option<&Bound<'_, PyAny>>,
        tp_size: Option<&Bound<'_, PyAny>>,
        pp_size: Option<&Bound<'_, PyAny>>,
        cp_size: Option<&Bound<'_, PyAny>>,
        options: &Bound<'_, PyDict>,
        order: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let sizes = Sizes {
            world_size: open_size("world_size", world_size)?,
            dp_size: open_size("dp_size", dp_size)?,
            fsdp_size: open_size("fsdp_size", fsdp_size)?,
            tp_size: open_size("tp_size", tp_size)?,
            pp_size: open_size("pp_size", pp_size)?,
            cp_size: open_size("cp_size", cp_size)?,
            options: arguments::requested(options)?,
            order: arguments::order(order)?,
        };
        raised(twinkle::Mesh::from_sizes(&sizes)).map(Self)
    }

    /// Consecutive ranks from `offset` along the axes of a mapping, outermost first.
    #[staticmethod]
    #[pyo3(signature = (sizes: "dict[str, int]", offset: "object", options: "dict[str, Any]"))]
    fn from_axes(sizes: &Bound<'_, PyDict>, offset: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let sizes = named_numbers("the size of ", sizes, size_number)?;
        let sizes: Vec<(&str, i128)> = sizes.iter().map(|(name, size)| (&**name, *size)).collect();
        let offset = size_number("offset", offset)?;
        raised(twinkle::Mesh::from_axes(&sizes, offset, &arguments::requested(options)?)).map(Self)
    }

    /// An explicit rank at every position, in row-major order of the named axes.
    #[staticmethod]
    #[pyo3(signature = (names: "object", shape: "tuple[int, ...]", ranks: "object", options: "dict[str, Any]"))]
    fn from_table(
        names: &Bound<'_, PyAny>,
        shape: Vec<u64>,
        ranks: PyReadonlyArray1<'_, i64>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let names = Names::read(names)?;
        let ranks = not_negative(&ranks)?;
        let requested = arguments::requested(options)?;
        raised(names.with(|names| twinkle::Mesh::from_table(names, &shape, ranks, &requested))).map(Self)
    }

    /// Evenly spaced ranks along one axis.
    #[staticmethod]
    #[pyo3(signature = (name: "str", start: "int", step: "int", length: "int", options: "dict[str, Any]"))]
    fn from_range(
        name: &str,
        start: &Bound<'_, PyAny>,
        step: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (start, step) = (rank_number("start", start)?, rank_number("step", step)?);
        let length = size_number("length", length)?;
        let too_large = Raise(Refusal::RankTooLarge { rank: length });
        let length = u64::try_from(length).map_err(|_| too_large)?;
        raised(twinkle::Mesh::from_range(name, start, step, length, &arguments::requested(options)?)).map(Self)
    }

    /// The mesh that `entries` and an equation or a table of ranks describe.
    #[staticmethod]
    #[pyo3(signature = (entries: "list[tuple[int, str, int, int]]", offset: "int", strides: "list[int]", ranks: "object", options: "dict[str, Any]"))]
    fn from_entries(
        entries: Vec<twinkle::Entry>,
        offset: u64,
        strides: Vec<i64>,
        ranks: Option<PyReadonlyArray1<'_, i64>>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let requested = arguments::requested(options)?;
        let mesh = match ranks {
            Some(ranks) => twinkle::Mesh::from_entries_and_table(entries, not_negative(&ranks)?, &requested),
            None => twinkle::Mesh::from_entries(entries, offset, &strides, &requested),
        };
        raised(mesh).map(Self)
    }

    /// The axes as plain numbers: place before merging, name, size, and how many of the next entries are its parts.
    #[getter]
    fn entries(&self) -> Vec<twinkle::Entry> {
        self.0.entries()
    }

    /// The same layout with some options changed.
    #[pyo3(signature = (options: "dict[str, Any]") -> "Mesh")]
    fn with_options(&self, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let own = self.0.options().requested();
        let changed = arguments::requested(options)?;
        let given = |name: &str| options.contains(name);
        let requested = Requested {
            ulysses_size: if given("ulysses_size")? { changed.ulysses_size } else { own.ulysses_size },
            ep_size: if given("ep_size")? { changed.ep_size } else { own.ep_size },
            etp_size: if given("etp_size")? { changed.etp_size } else { own.etp_size },
            ep_fsdp_size: if given("ep_fsdp_size")? { changed.ep_fsdp_size } else { own.ep_fsdp_size },
            vpp_size: if given("vpp_size")? { changed.vpp_size } else { own.vpp_size },
            sequence_parallel: if given("sequence_parallel")? {
                changed.sequence_parallel
            } else {
                own.sequence_parallel
            },
        };
        raised(self.0.with_options(&requested)).map(Self)
    }

    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.axes().iter().map(twinkle::axis::Axis::name))
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.strides().map(|strides| PyTuple::new(py, strides)).transpose()
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.0.ranks().offset()
    }

    #[getter]
    fn world_size(&self) -> u64 {
        self.0.world_size()
    }

    #[getter]
    fn data_world_size(&self) -> PyResult<u64> {
        raised(self.0.data_world_size())
    }

    /// The options that are set, in the form the constructors take.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let own = self.0.options();
        let options = PyDict::new(py);
        let sizes = [
            ("ulysses_size", own.ulysses),
            ("ep_size", own.ep),
            ("etp_size", own.etp),
            ("ep_fsdp_size", own.ep_fsdp),
            ("vpp_size", own.vpp),
        ];
        for (name, size) in sizes {
            options.set_item(name, size)?;
        }
        options.set_item("sequence_parallel", own.sequence_parallel)?;
        Ok(options)
    }

    #[getter]
    fn ep_fsdp_size(&self) -> Option<u64> {
        self.0.ep_fsdp_size()
    }

    #[getter]
    fn ep_world_size(&self) -> u64 {
        self.0.ep_world_size()
    }

    #[getter]
    fn etp_world_size(&self) -> u64 {
        self.0.etp_world_size()
    }

    #[getter]
    fn order(&self) -> PyResult<String> {
        raised(self.0.order())
    }

    fn has_dim(&self, name: &str) -> PyResult<bool> {
        raised(self.0.has_dim(name))
    }

    fn get_dim_size(&self, name: &str) -> PyResult<u64> {
        raised(self.0.size_of(name))
    }

    fn contains(&self, rank: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(rank_to_find(rank)?.is_some_and(|rank| self.0.position_of(rank).is_some()))
    }

    fn position_of(&self, rank: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        Ok(rank_to_find(rank)?.and_then(|rank| self.0.position_of(rank)))
    }

    fn rank_at(&self, position: &Bound<'_, PyAny>) -> PyResult<u64> {
        raised(self.0.rank_at(rank_number("position", position)?))
    }

    #[pyo3(signature = (rank: "object") -> "tuple[int, ...] | None")]
    fn coord_of<'py>(&self, py: Python<'py>, rank: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let coordinate = rank_to_find(rank)?.and_then(|rank| self.0.coord_of(rank));
        coordinate.map(|coordinate| PyTuple::new(py, coordinate.iter().copied())).transpose()
    }

    #[pyo3(signature = (coordinate: "dict[str, Any]") -> "int")]
    fn rank_of(&self, coordinate: &Bound<'_, PyDict>) -> PyResult<u64> {
        let given = named_numbers("", coordinate, rank_number)?;
        let given: Vec<(&str, i128)> = given.iter().map(|(name, index)| (&**name, *index)).collect();
        raised(self.0.rank_of(&given))
    }

    /// The index of a rank along one axis; None where the axis is not declared or the rank not there.
    fn index_along(&self, name: &str, rank: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let place = self.0.axes().iter().position(|axis| axis.name() == name);
        let Some(place) = place else { return Ok(None) };
        Ok(rank_to_find(rank)?.and_then(|rank| self.0.coord_of(rank)).map(|coordinate| coordinate[place]))
    }

    fn data_rank_of(&self, rank: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        match rank_to_find(rank)? {
            Some(rank) => raised(self.0.data_rank_of(rank)),
            None => raised(self.0.data_world_size()).map(|_| None),
        }
    }

    /// The data rank of a rank that must be there.
    fn data_rank_of_member(&self, rank: &Bound<'_, PyAny>) -> PyResult<u64> {
        raised(self.0.data_rank_of_member(rank_number("rank", rank)?))
    }

    /// The rows of one data rank.
    fn rows_of_data_rank(&self, total: &Bound<'_, PyAny>, data_rank: &Bound<'_, PyAny>) -> PyResult<(u64, u64)> {
        let total = size_number("total_length", total)?;
        raised(self.0.rows_of_data_rank(total, rank_number("data_rank", data_rank)?))
    }

    /// The rows of one rank.
    fn rows_of_rank(&self, total: &Bound<'_, PyAny>, rank: &Bound<'_, PyAny>) -> PyResult<(u64, u64)> {
        let total = size_number("total_length", total)?;
        raised(self.0.rows_of_rank(total, rank_number("rank", rank)?))
    }

    #[pyo3(signature = (total: "object") -> "numpy.ndarray")]
    fn slices<'py>(&self, py: Python<'py>, total: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let total = size_number("total_length", total)?;
        let shares = raised(self.0.data_world_size())?;
        raised(self.0.rows_of_data_rank(total, 0))?;
        filled(py, [shares, 2], |cells: &mut [i64]| {
            let mut rows = cells.as_chunks_mut::<2>().0.iter_mut();
            self.0.write_slices(total, |start, stop| {
                if let Some(row) = rows.next() {
                    *row = [start.cast_signed(), stop.cast_signed()];
                }
            })
        })
    }

    #[pyo3(signature = (axes: "object", rank: "object") -> "range | tuple[int, ...]")]
    fn group_of<'py>(
        &self,
        py: Python<'py>,
        axes: &Bound<'py, PyAny>,
        rank: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let along = raised(Names::read(axes)?.with(|names| self.0.along(names)))?;
        members(py, raised(self.0.group_of(&along, rank_number("rank", rank)?))?)
    }

    fn index_in_group(&self, axes: &Bound<'_, PyAny>, rank: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let along = raised(Names::read(axes)?.with(|names| self.0.along(names)))?;
        Ok(rank_to_find(rank)?.and_then(|rank| self.0.index_in_group(&along, rank)))
    }

    #[pyo3(signature = (axes: "object") -> "numpy.ndarray")]
    fn groups<'py>(&self, py: Python<'py>, axes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let along = raised(Names::read(axes)?.with(|names| self.0.along(names)))?;
        let (groups, size) = self.0.groups_shape(&along);
        let highest = self.0.ranks().highest();
        ranks_array(
            py,
            [groups, size],
            highest,
            |cells| self.0.write_groups(&along, cells),
            |cells| self.0.write_groups(&along, cells),
        )
    }

    #[pyo3(signature = (ranks: "object") -> "numpy.ndarray")]
    fn coords_of<'py>(
        &self,
        py: Python<'py>,
        ranks: Option<PyReadonlyArray1<'py, i64>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let axes = self.0.axes();
        let highest = axes.iter().map(|axis| axis.size() - 1).max().unwrap_or(0);
        let width = u64::try_from(axes.len()).unwrap_or(1);
        let Some(ranks) = ranks else {
            let write = |mesh: &twinkle::Mesh| (mesh.world_size(), width);
            let (rows, width) = write(&self.0);
            return ranks_array(
                py,
                [rows, width],
                highest,
                |cells| {
                    self.0.write_coordinates(cells);
                    Ok(())
                },
                |cells| {
                    self.0.write_coordinates(cells);
                    Ok(())
                },
            );
        };
        let ranks = ranks.as_slice()?;
        let rows = u64::try_from(ranks.len()).unwrap_or(u64::MAX);
        ranks_array(
            py,
            [rows, width],
            highest,
            |cells| self.0.write_coordinates_of(ranks, cells),
            |cells| self.0.write_coordinates_of(ranks, cells),
        )
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn data_ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let highest = raised(self.0.data_world_size())? - 1;
        ranks_array(
            py,
            [self.0.world_size()],
            highest,
            |cells| self.0.write_data_ranks(cells),
            |cells| self.0.write_data_ranks(cells),
        )
    }

    /// The rank at every position, flat.
    #[pyo3(signature = () -> "numpy.ndarray")]
    fn ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let world_size = self.0.world_size();
        if world_size > twinkle::ranks::TABLE_LIMIT {
            let limit = twinkle::ranks::TABLE_LIMIT;
            return Err(Raise(Refusal::TableTooLong { count: world_size, limit }).into());
        }
        filled(py, [world_size], |cells: &mut [i64]| {
            self.0.write_ranks(cells);
            Ok(())
        })
    }

    #[pyo3(signature = () -> "list[int]")]
    fn collect_ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, raised(self.0.collect_ranks())?)
    }

    /// The rank whose output is collected for one data rank.
    fn representative(&self, data_rank: &Bound<'_, PyAny>) -> PyResult<u64> {
        raised(self.0.representative(rank_number("data_rank", data_rank)?))
    }

    #[pyo3(signature = (stage: "object") -> "list[int]")]
    fn stage_ranks<'py>(&self, py: Python<'py>, stage: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, raised(self.0.stage_ranks(rank_number("stage", stage)?))?)
    }

    #[pyo3(signature = (name: "str") -> "list[int]")]
    fn last_ranks<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, raised(self.0.last_ranks(name))?)
    }

    fn is_at_end(&self, name: &str, rank: &Bound<'_, PyAny>, last: bool) -> PyResult<bool> {
        match rank_to_find(rank)? {
            Some(rank) => raised(self.0.is_at_end(name, rank, last)),
            None => raised(self.0.size_of(name)).map(|_| false),
        }
    }

    fn submesh(&self, axes: &Bound<'_, PyAny>, rank: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rank = rank_number("rank", rank)?;
        raised(Names::read(axes)?.with(|names| self.0.submesh(names, rank))).map(Self)
    }

    fn permute(&self, axes: &Bound<'_, PyAny>) -> PyResult<Self> {
        raised(Names::read(axes)?.with(|names| self.0.permute(names))).map(Self)
    }

    fn flatten(&self, axes: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        raised(Names::read(axes)?.with(|names| self.0.flatten(names, name))).map(Self)
    }

    #[pyo3(signature = (axis: "str", sizes: "dict[str, int]") -> "Mesh")]
    fn split(&self, axis: &str, sizes: &Bound<'_, PyDict>) -> PyResult<Self> {
        let sizes = named_numbers("the size of ", sizes, size_number)?;
        let sizes: Vec<(&str, i128)> = sizes.iter().map(|(name, size)| (&**name, *size)).collect();
        raised(self.0.split(axis, &sizes)).map(Self)
    }

    /// The mesh of experts: Megatron's layout, or `(ep, ep_fsdp)`.
    fn expert_mesh(&self, megatron: bool) -> PyResult<Self> {
        let layout = if megatron { ExpertLayout::Megatron } else { ExpertLayout::Fsdp };
        raised(self.0.expert_mesh(layout)).map(Self)
    }
}
