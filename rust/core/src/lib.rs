//! Device meshes: where is a rank, who is in its group, which rows are its own.
//!
//! # What a mesh is
//!
//! A job has processes numbered by *rank*. A mesh arranges ranks along named *axes*, outermost first. Eight ranks as two
//! pipeline stages of two data-parallel replicas of two tensor-parallel ranks (`pp=2, dp=2, tp=2`):
//!
//! ```text
//!               dp=0          dp=1
//!            tp=0  tp=1    tp=0  tp=1
//!   pp=0       0     1       2     3
//!   pp=1       4     5       6     7
//! ```
//!
//! Ranks that follow an equation are kept as one: an *offset* and a *stride* per axis. Above the offset is 0 and
//!
//! | axis | size | stride |
//! |---|---|---|
//! | pp | 2 | 4 |
//! | dp | 2 | 2 |
//! | tp | 2 | 1 |
//!
//! so the rank at coordinate `(pp, dp, tp) = (1, 0, 1)` is `0 + 1*4 + 0*2 + 1*1 = 5`, and 5 is read back by dividing by the
//! strides from the largest down: `5 = 1*4 + 0*2 + 1*1`. That is all the work there is, for eight ranks or for 2**62, and no
//! list of ranks is ever made for it. Strides may be negative or leave gaps; when they *nest* (each at least the next one times
//! that axis's size) a rank has one coordinate at most. Any other arrangement is a table with an inverse.
//!
//! # Groups
//!
//! The *group* of a rank along some axes is every rank that differs from it along those axes only, in position order, where
//! the *position* of a place is its row-major number. Along `dp` rank 5 is with 5 and 7: two ranks, one stride apart. Groups
//! along one axis are evenly spaced wherever the ranks follow an equation, so a group is three numbers.
//!
//! # Rows
//!
//! The data axes cut rows. In *data order* the index of a rank is `dp * fsdp_size + fsdp`, whatever the order of the axes; its
//! *data rank* is that index divided by the ulysses option, whose ranks share their rows. Everything else (tp, pp, cp, ...)
//! replicates. Of `n` rows over `k` data ranks each gets `n / k` neighbours, the first `n % k` one more. Above, 10 rows:
//!
//! ```text
//!   data rank 0 = ranks 0 1 4 5 -> rows 0..5      collected from rank 4: the last stage, then the lowest position
//!   data rank 1 = ranks 2 3 6 7 -> rows 5..10     collected from rank 6
//! ```
//!
//! ```
//! use twinkle::{Mesh, Requested};
//!
//! let mesh = Mesh::from_axes(&[("pp", 2), ("dp", 2), ("tp", 2)], 0, &Requested::default())?;
//! assert_eq!(&*mesh.coord_of(5).ok_or("not there")?, &[1, 0, 1]);
//! assert_eq!(mesh.group_of(&mesh.along(&["dp"])?, 5)?.to_vec(), [5, 7]);
//! assert_eq!(mesh.rows_of_rank(10, 5)?, (0, 5));
//! assert_eq!(mesh.collect_ranks()?, [4, 6]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms of this crate
//!
//! `axis` names, `ranks` arranges, `options` and `sizes` check what was asked for, `mesh` answers for one rank; `group`, `rows`
//! and `collect` answer for many, `fill` writes arrays; `reshape` and `expert` derive meshes; `wire` is their bytes; `error`
//! is every refusal in one table.

pub mod algebra;
pub mod axis;
pub mod balance;
mod collect;
pub mod csr;
pub mod error;
mod expert;
mod fill;
pub mod group;
pub mod layout;
mod layout_wire;
pub mod limits;
mod mesh;
pub mod options;
pub mod order;
pub mod pack;
pub mod placement;
pub mod ranks;
mod reshape;
pub mod route;
mod rows;
pub mod run;
mod sizes;
pub mod splits;
mod text;
pub mod transfer;
mod wire;

pub use balance::Balance;
pub use csr::Csr;
pub use error::{Answer, Family, Refusal, Value};
pub use expert::ExpertLayout;
pub use fill::RankCell;
pub use group::{Along, Members};
pub use layout::{Copy, Layout};
pub use mesh::Mesh;
pub use options::{Options, Requested};
pub use order::Shuffle;
pub use pack::{Bin, Fill, Packing, pack};
pub use placement::{CollectFrom, PlacedAxis, Placement, Workers};
pub use ranks::Coordinate;
pub use route::{Topology, WorkerMove, route};
pub use rows::even_share;
pub use run::Run;
pub use sizes::{Order, Sizes};
pub use transfer::ShardMove;
pub use wire::Entry;
