//! Refusals of the core become the exceptions of `twinkle.errors`; the only file that names them.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
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
    let class = class_of(py, refusal.family())?;
    Ok(PyErr::from_value(class.call((refusal.to_string(),), Some(&fields))?))
}

fn class_of(py: Python<'_>, family: Family) -> PyResult<&Bound<'_, PyType>> {
    static MESH: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static RANK: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static AXIS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static PLAN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static PLACEMENT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match family {
        Family::Mesh => MESH.import(py, "twinkle.errors", "MeshError"),
        Family::Rank => RANK.import(py, "twinkle.errors", "RankError"),
        Family::Axis => AXIS.import(py, "twinkle.errors", "AxisError"),
        Family::Plan => PLAN.import(py, "twinkle.errors", "PlanError"),
        Family::Placement => PLACEMENT.import(py, "twinkle.errors", "PlacementError"),
    }
}
