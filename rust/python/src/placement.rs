//! Placements and routes, as Python sees them; `twinkle.plan.Placement` is their face.

use numpy::ndarray::ArrayView1;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyType};
use twinkle::limits::MOST_ITEMS;
use twinkle::{CollectFrom, Placement, Refusal, ShardMove, Topology, Workers};

use crate::error::Raise;
use crate::mesh::Mesh;
use crate::plan_arguments::{count, entries, integers, lists, shard, table, word};

#[pyclass(frozen, eq, hash, name = "Placement", module = "twinkle._core")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyPlacement(pub(crate) Placement);

fn numbers<'py>(py: Python<'py>, workers: &[u32]) -> Bound<'py, PyArray1<i32>> {
    workers.iter().map(|worker| worker.cast_signed()).collect::<Vec<_>>().into_pyarray(py)
}

/// Reads whose positions a worker owns: None, how many workers there are, or the positions of each.
fn workers(value: Option<&Bound<'_, PyAny>>, world_size: u64, gpus_per_worker: u64) -> PyResult<Workers> {
    let Some(value) = value else {
        return Ok(Workers::fit(world_size, None, gpus_per_worker).map_err(Raise)?);
    };
    if value.cast::<PyInt>().is_ok() || value.hasattr("__index__")? && value.len().is_err() {
        let workers = count("workers", value, 1, MOST_ITEMS)?;
        return Ok(Workers::fit(world_size, Some(workers), gpus_per_worker).map_err(Raise)?);
    }
    Ok(Workers::listed(&lists("workers", value, integers)?, world_size, gpus_per_worker).map_err(Raise)?)
}

#[pymethods]
impl PyPlacement {
    /// Places the shards of a mesh on its workers.
    #[staticmethod]
    #[pyo3(signature = (mesh: "Mesh", gpus_per_worker: "object", workers: "object", collect_from: "object") -> "Placement")]
    fn of_mesh(
        mesh: &Bound<'_, Mesh>,
        gpus_per_worker: &Bound<'_, PyAny>,
        workers: Option<&Bound<'_, PyAny>>,
        collect_from: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (axes, divisor) = mesh.get().0.placed_axes().map_err(Raise)?;
        let gpus_per_worker = count("gpus_per_worker", gpus_per_worker, 1, MOST_ITEMS)?;
        let collect_from = word("collect_from", collect_from, &CollectFrom::WORDS)?;
        let world_size = twinkle::placement::positions(&axes).map_err(Raise)?;
        let workers = self::workers(workers, world_size, gpus_per_worker)?;
        Ok(Self(Placement::new(axes, divisor, workers, collect_from).map_err(Raise)?))
    }

    #[classmethod]
    #[pyo3(signature = (bytes: "bytes") -> "Placement")]
    fn from_bytes(_class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self(Placement::from_bytes(bytes).map_err(Raise)?))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes().map_err(Raise)?))
    }

    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py)?,)))
    }

    #[getter]
    fn workers(&self) -> u32 {
        self.0.workers()
    }

    #[getter]
    fn shards(&self) -> u32 {
        self.0.shards()
    }

    #[getter]
    fn collect_from(&self) -> &'static str {
        self.0.collect_from().word()
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn shard_of_worker<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        numbers(py, self.0.shard_of_worker())
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn lead<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        numbers(py, self.0.lead())
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn representative<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        numbers(py, self.0.representative())
    }

    #[pyo3(signature = (shard: "object") -> "numpy.ndarray")]
    fn members<'py>(&self, py: Python<'py>, shard: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i32>>> {
        Ok(numbers(py, self.0.members(self.shard(shard)?)))
    }

    #[pyo3(signature = (shard: "object") -> "numpy.ndarray")]
    fn holders<'py>(&self, py: Python<'py>, shard: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i32>>> {
        Ok(numbers(py, self.0.holders(self.shard(shard)?)))
    }
}

impl PyPlacement {
    fn shard(&self, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        shard(value, self.0.shards())
    }
}

/// Reads `(k, 5)` moves.
fn moves(value: &Bound<'_, PyAny>, sources: u32, targets: u32) -> PyResult<Vec<ShardMove>> {
    let five = |what: String, found: usize| {
        let (expected, found) = (5, found as u64);
        if found == expected { Ok(()) } else { Err(Raise(Refusal::PlanCount { what, expected, found })) }
    };
    let read =
        |numbers: &[i128]| ShardMove::from_numbers(std::array::from_fn(|index| numbers[index]), sources, targets);
    if let Ok(array) = value.cast::<PyArray2<i64>>() {
        let array = array.readonly();
        let lines = array.as_array();
        five("columns of moves".to_owned(), lines.ncols())?;
        let read = |line: ArrayView1<'_, i64>| read(&line.iter().map(|&number| number.into()).collect::<Vec<_>>());
        return Ok(lines.outer_iter().map(read).collect::<twinkle::Answer<_>>().map_err(Raise)?);
    }
    let mut moves = Vec::new();
    for (index, line) in entries("moves", value)?.iter().enumerate() {
        let numbers = integers(&format!("moves[{index}]"), line)?;
        five(format!("numbers in moves[{index}]"), numbers.len())?;
        moves.push(read(&numbers).map_err(Raise)?);
    }
    Ok(moves)
}

/// Reads the source worker in the process of each target worker; -1 where there is none.
fn same_process(value: &Bound<'_, PyAny>, sources: u32) -> PyResult<Vec<Option<u32>>> {
    let workers = integers("same_process", value)?;
    let neighbours = workers.into_iter().map(|worker| twinkle::route::neighbour(worker, sources));
    Ok(neighbours.collect::<twinkle::Answer<_>>().map_err(Raise)?)
}

/// Nodes are numbers here, one per label that the caller used.
#[pyfunction]
#[pyo3(signature = (moves: "object", source: "Placement", target: "Placement", same_process: "object", nodes: "tuple[list[int], list[int]] | None") -> "numpy.ndarray")]
pub(crate) fn route<'py>(
    py: Python<'py>,
    moves: &Bound<'py, PyAny>,
    source: &Bound<'py, PyPlacement>,
    target: &Bound<'py, PyPlacement>,
    same_process: Option<&Bound<'py, PyAny>>,
    nodes: Option<(Vec<u32>, Vec<u32>)>,
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    let (source, target) = (&source.get().0, &target.get().0);
    let moves = self::moves(moves, source.shards(), target.shards())?;
    let same_process = same_process.map(|near| self::same_process(near, source.workers())).transpose()?;
    let topology = Topology { same_process, nodes };
    let routed = py.detach(|| twinkle::route(&moves, source, target, &topology)).map_err(Raise)?;
    let rows = routed
        .iter()
        .map(|step| [step.source.into(), step.source_start, step.target.into(), step.target_start, step.len]);
    Ok(table(py, rows))
}
