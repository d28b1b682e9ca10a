//! Refusals of the core become the exceptions of `twinkle.errors`; the only file that names them.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use twinkle::{Family, Refusal, Value};

/// A refusal on its way to Python: `?` in the binding turns one into the exception of its family.
pub(crate) struct Raise(pub(crate) Refusal);

impl From<Refusal> for Raise {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl From<Raise> for PyErr {
    fn from(raise: Raise) -> Self {
        Python::attach(|py| exception(py, &raise.0).unwrap_or_else(|error| error))
    }
}

fn exception(py: Python<'_>, refusal: &Refusal) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    for (name, value) in refusal.fields() {
        match value {
            Value::Int(number) => fields.set_item(name, number)?,
            Value::Text(word) => fields.set_item(name, word)?,
            Value::Ints(numbers) => fields.set_item(name, numbers)?,
            Value::Texts(words) => fields.set_item(name, words)?,
        }
    }
    let class = py.import("twinkle.errors")?.getattr(class_name(refusal.family()))?;
    Ok(PyErr::from_value(class.call((refusal.to_string(),), Some(&fields))?))
}

fn class_name(family: Family) -> &'static str {
    match family {
        Family::Mesh => "MeshError",
        Family::Rank => "RankError",
        Family::Axis => "AxisError",
        Family::Plan => "PlanError",
        Family::Placement => "PlacementError",
    }
}
