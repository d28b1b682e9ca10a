//! What callers hand over, read as the core's types or refused by name.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFrozenSet, PyInt, PySet};
use twinkle::{Order, Refusal, Requested};

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

/// Reads a rank, position, data rank or stage.
pub(crate) fn rank_number(what: &str, value: &Bound<'_, PyAny>) -> PyResult<i128> {
    integer(value, |found| Refusal::RankNotAnInteger { what: what.to_owned(), found })
}

/// Reads a size, offset or row count.
pub(crate) fn size_number(what: &str, value: &Bound<'_, PyAny>) -> PyResult<i128> {
    integer(value, |found| Refusal::NotAnInteger { what: what.to_owned(), found })
}

/// Reads a size that may be left open.
pub(crate) fn open_size(what: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<i128>> {
    value.map(|value| size_number(what, value)).transpose()
}

/// A rank that can be looked up: negative or huge numbers are never in a mesh.
#[inline]
pub(crate) fn rank_to_find(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    // The common case first: an exact int of 64 bits.
    if let Ok(number) = value.cast_exact::<PyInt>()
        && let Ok(small) = number.extract::<i64>()
    {
        return Ok(u64::try_from(small).ok());
    }
    Ok(u64::try_from(rank_number("rank", value)?).ok())
}

/// Axis names: one, or a sequence of them.
pub(crate) enum Names {
    One(PyBackedStr),
    Many(Vec<PyBackedStr>),
}

impl Names {
    /// Reads a name or a sequence of names.
    pub(crate) fn read(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(name) = value.extract::<PyBackedStr>() {
            return Ok(Self::One(name));
        }
        let refused = || PyErr::from(Raise(Refusal::AxisNotText { found: found(value) }));
        // These iterate too, but not over the names somebody meant, or in no order.
        if value.is_instance_of::<PyBytes>()
            || value.is_instance_of::<PyDict>()
            || value.is_instance_of::<PySet>()
            || value.is_instance_of::<PyFrozenSet>()
        {
            return Err(refused());
        }
        let mut names = Vec::new();
        for name in value.try_iter().map_err(|_| refused())? {
            if names.len() >= 64 {
                return Err(refused());
            }
            names.push(name.map_err(|_| refused())?.extract::<PyBackedStr>().map_err(|_| refused())?);
        }
        Ok(Self::Many(names))
    }

    /// Hands the names to the core.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&[&str]) -> T) -> T {
        match self {
            Self::One(name) => ask(&[name]),
            Self::Many(names) => ask(&names.iter().map(|name| &**name).collect::<Vec<_>>()),
        }
    }
}

/// Names with a number each, in the order of the mapping.
pub(crate) fn named_numbers(
    what: &str,
    mapping: &Bound<'_, PyDict>,
    read: impl Fn(&str, &Bound<'_, PyAny>) -> PyResult<i128>,
) -> PyResult<Vec<(PyBackedStr, i128)>> {
    mapping
        .iter()
        .map(|(name, value)| {
            let text = name.extract::<PyBackedStr>();
            let text = text.map_err(|_| Raise(Refusal::AxisNotText { found: found(&name) }))?;
            let number = read(&format!("{what}{text}"), &value)?;
            Ok((text, number))
        })
        .collect()
}

/// The order of the axes: a Megatron string, or names outermost first.
pub(crate) fn order(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Order>> {
    let Some(value) = value else { return Ok(None) };
    if let Ok(text) = value.extract::<PyBackedStr>() {
        return Ok(Some(Order::Megatron(text.to_string())));
    }
    let names = Names::read(value)?;
    Ok(Some(Order::OutermostFirst(names.with(|names| names.iter().map(|&name| name.to_owned()).collect()))))
}

/// A switch: a bool and nothing that merely looks like one.
pub(crate) fn switch(what: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match value.cast::<PyBool>() {
        Ok(value) => Ok(value.is_true()),
        Err(_) => Err(Raise(Refusal::NotABool { what: what.to_owned(), found: found(value) }).into()),
    }
}

/// The options of a mesh, as the mapping that its constructors take.
pub(crate) fn requested(options: &Bound<'_, PyDict>) -> PyResult<Requested> {
    let mut requested = Requested::default();
    for (name, value) in options.iter() {
        let unknown = |_| Raise(Refusal::OptionUnknown { name: found(&name) });
        let name = name.extract::<PyBackedStr>().map_err(unknown)?;
        let size = |value: &Bound<'_, PyAny>| open_size(&name, (!value.is_none()).then_some(value));
        match &*name {
            "ulysses_size" => requested.ulysses_size = size(&value)?,
            "ep_size" => requested.ep_size = size(&value)?,
            "etp_size" => requested.etp_size = size(&value)?,
            "ep_fsdp_size" => requested.ep_fsdp_size = size(&value)?,
            "vpp_size" => requested.vpp_size = size(&value)?,
            "sequence_parallel" => requested.sequence_parallel = switch(&name, &value)?,
            _ => return Err(Raise(Refusal::OptionUnknown { name: name.to_string() }).into()),
        }
    }
    Ok(requested)
}
