//! Device meshes: where is a rank, who is in its group, which rows are its own.

pub mod error;

pub use error::{Answer, Family, Refusal, Value};
