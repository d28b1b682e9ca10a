//! What the core promises, tested against an oracle that is too simple to be wrong.

#![expect(clippy::unwrap_used, reason = "an answer that is refused fails the law")]

#[path = "laws/bytes.rs"]
mod bytes;
#[path = "laws/coordinates.rs"]
mod coordinates;
#[path = "laws/derived.rs"]
mod derived;
#[path = "laws/ends.rs"]
mod ends;
#[path = "laws/experts.rs"]
mod experts;
#[path = "laws/groups.rs"]
mod groups;
#[path = "laws/large.rs"]
mod large;
#[path = "laws/oracle.rs"]
mod oracle;
#[path = "laws/orders.rs"]
mod orders;
#[path = "laws/rows.rs"]
mod rows;
#[path = "laws/sizes.rs"]
mod sizes;
#[path = "laws/values.rs"]
mod values;
