//! Layouts, as Python sees them; `twinkle.plan.Layout` is their face.

use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use twinkle::limits::{MOST_ITEMS, MOST_ROWS};
use twinkle::{Balance, Layout, ShardMove};

use crate::error::Raise;
use crate::pack::{packing, to_python};
use crate::plan_arguments::{count, items, line, lists, naturals, rows, runs, shard, table, word};

const METHODS: [(&str, Balance); 2] = [("greedy", Balance::Greedy), ("refined", Balance::Refined)];

#[pyclass(frozen, eq, hash, name = "Layout", module = "twinkle._core")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyLayout(pub(crate) Layout);

type Made = PyResult<PyLayout>;

fn made(layout: twinkle::Answer<Layout>) -> Made {
    Ok(PyLayout(layout.map_err(Raise)?))
}

pub(crate) fn moves_table<'py>(py: Python<'py>, moves: &[ShardMove]) -> Bound<'py, PyArray2<i64>> {
    let rows = moves
        .iter()
        .map(|step| [step.source.into(), step.source_start, step.target.into(), step.target_start, step.len]);
    table(py, rows)
}

#[pymethods]
impl PyLayout {
    #[staticmethod]
    fn even(n: &Bound<'_, PyAny>, shards: &Bound<'_, PyAny>, group: &Bound<'_, PyAny>) -> Made {
        made(Layout::even(rows("n", n)?, items("shards", shards)?, count("group", group, 1, MOST_ROWS)?))
    }

    #[staticmethod]
    fn padded(
        n: &Bound<'_, PyAny>,
        shards: &Bound<'_, PyAny>,
        multiple: &Bound<'_, PyAny>,
        group: &Bound<'_, PyAny>,
    ) -> Made {
        let multiple = count("multiple", multiple, 1, MOST_ITEMS)?;
        made(Layout::padded(rows("n", n)?, items("shards", shards)?, multiple, count("group", group, 1, MOST_ROWS)?))
    }

    #[staticmethod]
    fn balanced(
        py: Python<'_>,
        weights: &Bound<'_, PyAny>,
        shards: &Bound<'_, PyAny>,
        equal: bool,
        group: &Bound<'_, PyAny>,
        method: &Bound<'_, PyAny>,
    ) -> Made {
        let (weights, shards) = (naturals("weights", weights)?, items("shards", shards)?);
        let (group, method) = (count("group", group, 1, MOST_ROWS)?, word("method", method, &METHODS)?);
        made(py.detach(|| Layout::balanced(&weights, shards, equal, group, method)))
    }

    #[staticmethod]
    fn minibatched(
        n: &Bound<'_, PyAny>,
        shards: &Bound<'_, PyAny>,
        minibatches: &Bound<'_, PyAny>,
        rotate: bool,
        pad: bool,
        group: &Bound<'_, PyAny>,
    ) -> Made {
        let (n, shards, minibatches) = (rows("n", n)?, items("shards", shards)?, items("minibatches", minibatches)?);
        made(Layout::minibatched(n, shards, minibatches, rotate, pad, count("group", group, 1, MOST_ROWS)?))
    }

    #[staticmethod]
    fn chunked(n: &Bound<'_, PyAny>, size: &Bound<'_, PyAny>, group: &Bound<'_, PyAny>) -> Made {
        made(Layout::chunked(rows("n", n)?, count("size", size, 1, MOST_ROWS)?, count("group", group, 1, MOST_ROWS)?))
    }

    #[staticmethod]
    fn explicit(rows: &Bound<'_, PyAny>, pads: Option<&Bound<'_, PyAny>>, group: &Bound<'_, PyAny>) -> Made {
        let pads = pads.map(|pads| lists("pads", pads, naturals)).transpose()?;
        made(Layout::explicit(&lists("rows", rows, runs)?, pads, count("group", group, 1, MOST_ROWS)?))
    }

    #[classmethod]
    #[pyo3(signature = (bytes: "bytes") -> "Layout")]
    fn from_bytes(_class: &Bound<'_, PyType>, bytes: &[u8]) -> Made {
        made(Layout::from_bytes(bytes))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes().map_err(Raise)?))
    }

    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py)?,)))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    #[getter]
    fn n(&self) -> u64 {
        self.0.rows()
    }

    #[getter]
    fn shards(&self) -> u32 {
        self.0.shards()
    }

    #[getter]
    fn id(&self) -> u128 {
        self.0.id()
    }

    #[getter]
    fn is_derived(&self) -> bool {
        self.0.is_derived()
    }

    #[getter]
    fn stored_rows(&self) -> u64 {
        self.0.stored_rows()
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn stored_sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        line(py, self.0.stored_sizes())
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        line(py, self.0.sizes())
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn real_sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        line(py, self.0.real_sizes().iter().copied())
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn loads<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        line(py, self.0.loads().iter().copied())
    }

    #[pyo3(signature = (shard: "object") -> "numpy.ndarray")]
    fn rows<'py>(&self, py: Python<'py>, shard: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        Ok(line(py, self.0.row_numbers(self.shard(shard)?).map_err(Raise)?))
    }

    #[pyo3(signature = (shard: "object") -> "numpy.ndarray")]
    fn pads<'py>(&self, py: Python<'py>, shard: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        Ok(line(py, self.0.pads(self.shard(shard)?).iter().copied()))
    }

    #[pyo3(signature = (shard: "object") -> "numpy.ndarray")]
    fn is_pad<'py>(&self, py: Python<'py>, shard: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<bool>>> {
        Ok(self.0.pad_mask(self.shard(shard)?).map_err(Raise)?.into_pyarray(py))
    }

    fn loss_scale(&self, shard: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(self.0.loss_scale(self.shard(shard)?).map_err(Raise)?)
    }

    #[pyo3(signature = (shard: "object") -> "numpy.ndarray | None")]
    fn cuts<'py>(&self, py: Python<'py>, shard: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyArray2<i64>>>> {
        let cuts = self.0.cuts(self.shard(shard)?);
        Ok(cuts.map(|cuts| table(py, cuts.into_iter().map(|(start, stop)| [start, stop]))))
    }

    #[pyo3(signature = (shard: "object") -> "numpy.ndarray")]
    fn reads<'py>(&self, py: Python<'py>, shard: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let reads = self.0.reads(self.shard(shard)?);
        Ok(table(py, reads.into_iter().map(|run| [run.start, run.end()])))
    }

    #[pyo3(signature = () -> "numpy.ndarray | None")]
    fn spans<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray2<i64>>> {
        self.0.spans().map(|spans| table(py, spans.into_iter().map(|(start, stop)| [start, stop])))
    }

    fn require_rows(&self) -> PyResult<()> {
        Ok(self.0.require_rows().map_err(Raise)?)
    }

    #[pyo3(signature = () -> "numpy.ndarray")]
    fn copies<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<i64>> {
        let copies = self.0.copies();
        table(py, copies.iter().map(|copy| [copy.shard.into(), copy.local, copy.global, copy.len]))
    }

    #[pyo3(signature = (other: "Layout") -> "numpy.ndarray")]
    fn reshard<'py>(&self, py: Python<'py>, other: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray2<i64>>> {
        Ok(moves_table(py, &self.0.reshard(&other.get().0).map_err(Raise)?))
    }

    #[pyo3(signature = (other: "Layout") -> "numpy.ndarray")]
    fn pad_moves<'py>(&self, py: Python<'py>, other: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray2<i64>>> {
        Ok(moves_table(py, &self.0.pad_moves(&other.get().0).map_err(Raise)?))
    }

    fn settled(&self) -> Self {
        Self(self.0.settled())
    }

    fn select(&self, rows: &Bound<'_, PyAny>) -> Made {
        made(self.0.select_runs(&runs("rows", rows)?))
    }

    fn slice(&self, start: &Bound<'_, PyAny>, stop: &Bound<'_, PyAny>) -> Made {
        made(self.0.slice(rows("start", start)?, rows("stop", stop)?))
    }

    fn repeat(&self, times: &Bound<'_, PyAny>) -> Made {
        made(self.0.repeat(rows("times", times)?))
    }

    fn expand(&self, counts: &Bound<'_, PyAny>) -> Made {
        made(self.0.expand(&naturals("counts", counts)?))
    }

    fn minibatch(&self, index: &Bound<'_, PyAny>) -> Made {
        made(self.0.minibatch(rows("minibatch", index)?))
    }

    #[pyo3(signature = (other: "Layout") -> "Layout")]
    fn concat(&self, other: &Bound<'_, Self>) -> Made {
        made(self.0.concat(&other.get().0))
    }

    fn rebalance(
        &self,
        py: Python<'_>,
        weights: &Bound<'_, PyAny>,
        equal: bool,
        group: &Bound<'_, PyAny>,
        method: &Bound<'_, PyAny>,
    ) -> Made {
        let weights = naturals("weights", weights)?;
        let (group, method) = (count("group", group, 1, MOST_ROWS)?, word("method", method, &METHODS)?);
        made(py.detach(|| self.0.rebalance(&weights, equal, group, method)))
    }

    #[pyo3(signature = (lengths: "object", cap: "object", align: "object", row_multiple: "object", fill: "object") -> "list[list[tuple[list[int], bool]]]")]
    fn pack<'py>(
        &self,
        py: Python<'py>,
        lengths: &Bound<'py, PyAny>,
        cap: &Bound<'py, PyAny>,
        align: &Bound<'py, PyAny>,
        row_multiple: &Bound<'py, PyAny>,
        fill: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (lengths, packing) = (naturals("lengths", lengths)?, packing(cap, align, row_multiple, fill)?);
        to_python(py, py.detach(|| self.0.pack(&lengths, packing)).map_err(Raise)?)
    }
}

impl PyLayout {
    fn shard(&self, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        shard(value, self.0.shards())
    }
}
