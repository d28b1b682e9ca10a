//! Orders of an epoch, as Python sees them.

use pyo3::prelude::*;
use twinkle::Shuffle;

use crate::arguments::size_number;
use crate::arrays::filled;
use crate::error::Raise;

/// The rows at positions `start..stop` of the order of `n` rows under a seed in an epoch, as an int64 array.
#[pyfunction]
#[pyo3(signature = (seed: "object", epoch: "object", n: "object", start: "object", stop: "object") -> "numpy.ndarray")]
pub(crate) fn permuted<'py>(
    py: Python<'py>,
    seed: &Bound<'py, PyAny>,
    epoch: &Bound<'py, PyAny>,
    n: &Bound<'py, PyAny>,
    start: &Bound<'py, PyAny>,
    stop: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let number = |what, value| size_number(what, value);
    let order = Shuffle::new(number("seed", seed)?, number("epoch", epoch)?, number("n", n)?).map_err(Raise)?;
    let (first, end) = order.span(number("start", start)?, number("stop", stop)?).map_err(Raise)?;
    filled(py, [end - first], |cells: &mut [i64]| {
        order.write(first, cells);
        Ok(())
    })
}
