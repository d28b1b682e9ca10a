//! Device meshes: where is a rank, who is in its group, which rows are its own.

pub mod axis;
mod collect;
pub mod error;
mod expert;
mod fill;
pub mod group;
mod mesh;
pub mod options;
pub mod ranks;
mod reshape;
mod rows;
mod sizes;
mod wire;

pub use error::{Answer, Family, Refusal, Value};
pub use expert::ExpertLayout;
pub use fill::RankCell;
pub use group::{Along, Members};
pub use mesh::Mesh;
pub use options::{Options, Requested};
pub use ranks::Coordinate;
pub use rows::even_share;
pub use sizes::{Order, Sizes};
pub use wire::Entry;
