//! Arrays as answers: allocated once, written by the core, as narrow as their numbers allow.

use numpy::ndarray::Dimension;
use numpy::{Element, PyArray, PyArrayMethods as _, ToNpyDims};
use pyo3::prelude::*;
use twinkle::{Answer, RankCell, Refusal};

use crate::error::Raise;

/// The largest array that is made.
const ARRAY_LIMIT: u64 = 1 << 33;

/// An array of this shape, filled by `write`: 32 bits wide where `highest` fits, else 64.
pub(crate) fn ranks_array<const AXES: usize>(
    py: Python<'_>,
    shape: [u64; AXES],
    highest: u64,
    narrow: impl FnOnce(&mut [i32]) -> Answer<()>,
    wide: impl FnOnce(&mut [i64]) -> Answer<()>,
) -> PyResult<Bound<'_, PyAny>>
where
    [usize; AXES]: numpy::ndarray::IntoDimension,
    <[usize; AXES] as numpy::ndarray::IntoDimension>::Dim: ToNpyDims + Dimension,
{
    if i32::try_from(highest).is_ok() { filled(py, shape, narrow) } else { filled(py, shape, wide) }
}

/// An array of this shape and cell, filled by `write`; refused above 2**33 bytes before it is allocated.
pub(crate) fn filled<Cell, const AXES: usize>(
    py: Python<'_>,
    shape: [u64; AXES],
    write: impl FnOnce(&mut [Cell]) -> Answer<()>,
) -> PyResult<Bound<'_, PyAny>>
where
    Cell: Element + RankCell,
    [usize; AXES]: numpy::ndarray::IntoDimension,
    <[usize; AXES] as numpy::ndarray::IntoDimension>::Dim: ToNpyDims + Dimension,
{
    let width = i128::try_from(size_of::<Cell>()).unwrap_or(8);
    let bytes = shape.iter().fold(width, |bytes, &length| bytes.saturating_mul(i128::from(length)));
    if bytes > i128::from(ARRAY_LIMIT) {
        return Err(Raise(Refusal::ArrayTooLarge { bytes, limit: ARRAY_LIMIT }).into());
    }
    let lengths = shape.map(|length| usize::try_from(length).unwrap_or(0));
    let array = PyArray::<Cell, _>::zeros(py, lengths, false);
    {
        let mut cells = array.readwrite();
        write(cells.as_slice_mut()?).map_err(Raise)?;
    }
    Ok(array.into_any())
}
