//! What callers hand over, read as the core's types or refused by name.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use twinkle::Refusal;

use crate::error::Raise;

/// Reads anything with `__index__` except a bool; a number beyond 128 bits reads as the nearest one that fits.
///
/// `refuse` makes the refusal from the words for what was found instead.
pub(crate) fn integer(value: &Bound<'_, PyAny>, refuse: impl FnOnce(String) -> Refusal) -> PyResult<i128> {
    if let Ok(number) = value.cast_exact::<PyInt>() {
        return Ok(saturated(number));
    }
    if !value.is_instance_of::<PyBool>()
        && let Ok(number) = value.call_method0("__index__")
        && let Ok(number) = number.cast::<PyInt>()
    {
        return Ok(saturated(number));
    }
    Err(Raise(refuse(found(value))).into())
}

fn saturated(number: &Bound<'_, PyInt>) -> i128 {
    if let Ok(small) = number.extract::<i64>() {
        return i128::from(small);
    }
    number.extract::<i128>().unwrap_or_else(|_| {
        let negative = number.lt(0).unwrap_or(false);
        if negative { i128::MIN } else { i128::MAX }
    })
}

/// Names a value for a message: its text if it is short, and always its type.
pub(crate) fn found(value: &Bound<'_, PyAny>) -> String {
    let kind = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    match value.repr() {
        Ok(text) if text.to_string_lossy().chars().count() <= 40 => format!("{text} ({kind})"),
        _ => format!("a {kind}"),
    }
}
