//! `twinkle._core`: the core's types and functions as Python sees them.
#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod arguments;
mod arrays;
mod error;
mod layout;
mod mesh;
mod order;
mod pack;
mod placement;
mod plan_arguments;

/// The compiled core. Import `twinkle`, not this module.
#[pyo3::pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use crate::layout::PyLayout;
    #[pymodule_export]
    use crate::pack::pack_rows;
    #[pymodule_export]
    use crate::placement::{PyPlacement, route};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::mesh::Mesh;
    #[pymodule_export]
    use crate::order::permuted;
}
