//! Micro-batches, as Python sees them.

use pyo3::prelude::*;
use twinkle::limits::{MOST_ITEMS, MOST_ROWS};
use twinkle::{Bin, Csr, Fill, Packing};

use crate::error::Raise;
use crate::plan_arguments::{count, entries, lists, naturals, word};

pub(crate) fn packing(
    cap: &Bound<'_, PyAny>,
    align: &Bound<'_, PyAny>,
    row_multiple: &Bound<'_, PyAny>,
    fill: &Bound<'_, PyAny>,
) -> PyResult<Packing> {
    Ok(Packing {
        cap: count("cap", cap, 1, MOST_ROWS)?,
        align: count("align", align, 1, MOST_ITEMS)?,
        row_multiple: count("row_multiple", row_multiple, 1, MOST_ROWS)?,
        fill: word("fill", fill, &Fill::WORDS)?,
    })
}

/// Per shard, a list of `(rows, pad)`.
pub(crate) fn to_python(py: Python<'_>, shards: Vec<Vec<Bin>>) -> PyResult<Bound<'_, PyAny>> {
    let shards: Vec<Vec<(Vec<u64>, bool)>> =
        shards.into_iter().map(|bins| bins.into_iter().map(|bin| (bin.rows, bin.pad)).collect()).collect();
    shards.into_pyobject(py)?.into_any().cast_into().map_err(Into::into)
}

fn pair(what: &str, value: &Bound<'_, PyAny>) -> PyResult<(u64, u64)> {
    match naturals(what, value)?.as_slice() {
        &[start, stop] => Ok((start, stop)),
        other => {
            let (expected, found) = (2, other.len() as u64);
            Err(Raise(twinkle::Refusal::PlanCount { what: format!("numbers in {what}"), expected, found }).into())
        }
    }
}

#[pyfunction]
#[pyo3(
    name = "pack",
    signature = (lengths: "object", cap: "object", align: "object", cuts: "object", row_multiple: "object", fill: "object") -> "list[list[tuple[list[int], bool]]]"
)]
pub(crate) fn pack_rows<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    cap: &Bound<'py, PyAny>,
    align: &Bound<'py, PyAny>,
    cuts: Option<&Bound<'py, PyAny>>,
    row_multiple: &Bound<'py, PyAny>,
    fill: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let packing = packing(cap, align, row_multiple, fill)?;
    let lengths: Csr<u64> = lists("lengths", lengths, naturals)?.into_iter().collect();
    let pairs = |what: &str, list: &Bound<'_, PyAny>| {
        let pairs = entries(what, list)?;
        pairs
            .iter()
            .enumerate()
            .map(|(index, cut)| pair(&format!("{what}[{index}]"), cut))
            .collect::<PyResult<Vec<_>>>()
    };
    let cuts: Option<Csr<(u64, u64)>> =
        cuts.map(|cuts| lists("cuts", cuts, pairs)).transpose()?.map(|cuts| cuts.into_iter().collect());
    to_python(py, py.detach(|| twinkle::pack(&lengths, cuts.as_ref(), packing)).map_err(Raise)?)
}
