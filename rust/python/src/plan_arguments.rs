//! What callers hand to a plan, read as the core's types or refused by name.

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyRange, PySet, PyString};
use twinkle::{Refusal, Run, limits};

use crate::arguments::{found, integer};
use crate::error::Raise;

fn not_an_integer(what: &str) -> impl FnOnce(String) -> Refusal {
    let what = what.to_owned();
    |found| Refusal::PlanNotAnInteger { what, found }
}

/// Reads a number from `least` to `most`.
pub(crate) fn count(what: &str, value: &Bound<'_, PyAny>, least: u64, most: u64) -> PyResult<u64> {
    Ok(limits::count(what, integer(value, not_an_integer(what))?, least, most).map_err(Raise)?)
}

/// Reads a number of rows.
pub(crate) fn rows(what: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count(what, value, 0, limits::MOST_ROWS)
}

/// Reads a number of shards, mini-batches and the like.
pub(crate) fn items(what: &str, value: &Bound<'_, PyAny>) -> PyResult<u32> {
    Ok(limits::items(what, integer(value, not_an_integer(what))?).map_err(Raise)?)
}

/// Reads a shard number.
pub(crate) fn shard(value: &Bound<'_, PyAny>, shards: u32) -> PyResult<usize> {
    Ok(limits::shard(integer(value, not_an_integer("shard"))?, shards).map_err(Raise)?)
}

/// Reads one of the known words.
pub(crate) fn word<T: Copy>(what: &str, value: &Bound<'_, PyAny>, words: &[(&str, T)]) -> PyResult<T> {
    let known = value.cast::<PyString>().ok().and_then(|text| {
        let text = text.to_string_lossy();
        words.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice)
    });
    known.ok_or_else(|| {
        let accepted = words.iter().map(|(word, _)| (*word).to_owned()).collect();
        Raise(Refusal::PlanUnknownWord { what: what.to_owned(), found: found(value), accepted }).into()
    })
}

fn not_numbers(what: &str, value: &Bound<'_, PyAny>) -> PyErr {
    Raise(Refusal::PlanNotNumbers { what: what.to_owned(), found: found(value) }).into()
}

/// The entries of a list, tuple, range, array or the like; a mapping, set or text has no order that could be meant.
pub(crate) fn entries<'py>(what: &str, value: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let unordered = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyDict>()
        || value.is_instance_of::<PySet>()
        || value.is_instance_of::<PyFrozenSet>();
    let Some(length) = value.len().ok().filter(|_| !unordered) else {
        return Err(not_numbers(what, value));
    };
    limits::allowed(what, length as u64, limits::MOST_ITEMS).map_err(Raise)?;
    let entries = value.try_iter().map_err(|_| not_numbers(what, value))?;
    entries.take(length).collect()
}

/// Reads a list of numbers that are not negative.
pub(crate) fn naturals(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if let Some(array) = integer_array(value)? {
        let array = array.readonly();
        return match array.as_slice() {
            Ok(numbers) => Ok(limits::naturals(what, numbers).map_err(Raise)?),
            Err(_) => Ok(limits::naturals(what, &array.as_array().to_vec()).map_err(Raise)?),
        };
    }
    let listed = match value.getattr("tolist") {
        Ok(tolist) => tolist.call0()?,
        Err(_) => value.clone(),
    };
    let read = |(index, entry): (usize, &Bound<'_, PyAny>)| rows(&format!("{what}[{index}]"), entry);
    let numbers = entries(what, &listed)?;
    // Naming an entry costs more than reading it: only a refused one is named.
    let plain = numbers.iter().map(|entry| rows(what, entry).ok()).collect::<Option<Vec<u64>>>();
    plain.map_or_else(|| numbers.iter().enumerate().map(read).collect(), Ok)
}

/// Reads a list of numbers of either sign.
pub(crate) fn integers(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<i128>> {
    entries(what, value)?.iter().map(|entry| integer(entry, not_an_integer(what))).collect()
}

/// A one-dimensional array of integers as int64, where the value is one that converts without loss.
fn integer_array<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyArray1<i64>>>> {
    if let Ok(array) = value.cast::<PyArray1<i64>>() {
        return Ok(Some(array.clone()));
    }
    let Ok(kind) = value.getattr("dtype").and_then(|dtype| dtype.getattr("kind")?.extract::<char>()) else {
        return Ok(None);
    };
    if !"iu".contains(kind) || value.getattr("ndim")?.extract::<usize>()? != 1 {
        return Ok(None);
    }
    let keywords = PyDict::new(value.py());
    keywords.set_item("casting", "safe")?;
    match value.call_method("astype", ("int64",), Some(&keywords)) {
        Ok(array) => Ok(array.cast_into::<PyArray1<i64>>().ok()),
        Err(_) => Ok(None),
    }
}

/// Reads the rows of one shard; a `range` of neighbours is one run whatever its length.
pub(crate) fn runs(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Run>> {
    if value.is_instance_of::<PyRange>() && value.getattr("step")?.eq(1)? {
        let start = rows(what, &value.getattr("start")?)?;
        let stop = rows(what, &value.getattr("stop")?)?;
        return Ok(Run::between(start, stop).into_iter().collect());
    }
    Ok(twinkle::run::runs_of(naturals(what, value)?))
}

/// Reads one list per shard.
pub(crate) fn lists<T>(
    what: &str,
    value: &Bound<'_, PyAny>,
    read: impl Fn(&str, &Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    entries(what, value)?.iter().enumerate().map(|(shard, list)| read(&format!("{what}[{shard}]"), list)).collect()
}

/// An int64 array of `(k, N)` from rows of N numbers.
pub(crate) fn table<const N: usize>(
    py: Python<'_>,
    rows: impl ExactSizeIterator<Item = [u64; N]>,
) -> Bound<'_, PyArray2<i64>> {
    let mut array = Array2::zeros((rows.len(), N));
    for (mut line, numbers) in array.rows_mut().into_iter().zip(rows) {
        for (cell, number) in line.iter_mut().zip(numbers) {
            *cell = number.cast_signed();
        }
    }
    array.into_pyarray(py)
}

/// An int64 array of numbers.
pub(crate) fn line(py: Python<'_>, numbers: impl IntoIterator<Item = u64>) -> Bound<'_, PyArray1<i64>> {
    numbers.into_iter().map(u64::cast_signed).collect::<Vec<_>>().into_pyarray(py)
}
