//! Meshes as bytes: small at any size for an equation, the table once for a table, checked again when read.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::axis::{Axis, MAX_AXES, introduced, known};
use crate::error::{Answer, Refusal};
use crate::mesh::{Mesh, product};
use crate::options::{Options, Requested};
use crate::ranks::{Affine, Ranks, TABLE_LIMIT};

/// What is written: bump `VERSION` when it changes.
#[derive(Serialize, Deserialize)]
struct Wire {
    version: u8,
    axes: Vec<WireAxis>,
    ranks: WireRanks,
    options: Options,
}

const VERSION: u8 = 1;

/// One axis, followed by those it was merged from: a flat list, so that reading bytes never recurses deeper than it allows.
#[derive(Serialize, Deserialize)]
struct WireAxis {
    place: u32,
    name: Cow<'static, str>,
    size: u64,
    parts: u32,
}

#[derive(Serialize, Deserialize)]
enum WireRanks {
    Affine {
        offset: u64,
        strides: Vec<i64>,
    },
    /// Every rank less `lowest`, `width` bytes each, little-endian.
    Table {
        lowest: u64,
        width: u8,
        bytes: Vec<u8>,
    },
}

/// Parts of parts deeper than this are no mesh.
const DEPTH_LIMIT: usize = 64;

impl Mesh {
    /// The mesh as bytes, to be read by [`Mesh::from_bytes`].
    pub fn to_bytes(&self) -> Answer<Vec<u8>> {
        let ranks = match (self.ranks().strides(), self.ranks().table()) {
            (Some(strides), _) => WireRanks::Affine { offset: self.ranks().offset(), strides: strides.to_vec() },
            (None, table) => {
                let lowest = self.ranks().lowest();
                let spread = self.ranks().highest() - lowest;
                let width = spread.checked_ilog2().map_or(1, |bits| bits / 8 + 1);
                let mut bytes = Vec::with_capacity(table.map_or(0, <[u64]>::len) * width as usize);
                for rank in table.unwrap_or_default() {
                    bytes.extend_from_slice(&(rank - lowest).to_le_bytes()[..width as usize]);
                }
                WireRanks::Table { lowest, width: u8::try_from(width).unwrap_or(8), bytes }
            }
        };
        let mut axes = Vec::with_capacity(self.axes().len());
        for axis in self.axes() {
            written(0, axis, &mut axes);
        }
        let wire = Wire { version: VERSION, axes, ranks, options: *self.options() };
        postcard::to_stdvec(&wire).map_err(|error| Refusal::NotAMesh { why: error.to_string() })
    }

    /// The mesh that [`Mesh::to_bytes`] wrote; anything else is refused.
    pub fn from_bytes(bytes: &[u8]) -> Answer<Self> {
        let broken = |why: &str| Refusal::NotAMesh { why: why.to_owned() };
        let (wire, rest): (Wire, &[u8]) =
            postcard::take_from_bytes(bytes).map_err(|error| broken(&error.to_string()))?;
        if wire.version != VERSION || !rest.is_empty() {
            return Err(broken(&format!("version {} with {} bytes to spare", wire.version, rest.len())));
        }
        let axes = axes_of(wire.axes)?;
        let sizes: Vec<u64> = axes.iter().map(Axis::size).collect();
        let world_size = product(&axes)?;
        let ranks = match wire.ranks {
            WireRanks::Affine { offset, strides } if strides.len() == sizes.len() => {
                Ranks::Affine(Affine::new(&sizes, offset, &strides).ok_or_else(|| broken("strides that do not nest"))?)
            }
            WireRanks::Affine { .. } => return Err(broken("as many strides as axes are needed")),
            WireRanks::Table { lowest, width, bytes } => {
                let width = usize::from(width);
                let count = u64::try_from(bytes.len() / width.max(1)).unwrap_or(u64::MAX);
                if !(1..=8).contains(&width) || bytes.len() % width != 0 || count != world_size || count > TABLE_LIMIT {
                    return Err(broken("a table of another length"));
                }
                let read = |cell: &[u8]| {
                    let mut whole = [0; 8];
                    whole[..width].copy_from_slice(cell);
                    lowest.checked_add(u64::from_le_bytes(whole)).ok_or_else(|| broken("a rank above 2**63"))
                };
                Ranks::of_table(&sizes, bytes.chunks_exact(width).map(read).collect::<Answer<Vec<u64>>>()?)?
            }
        };
        Self::assemble(axes, ranks, &wire.options.requested())
    }
}

/// One axis as plain numbers: its place before it was merged, its name, its size, and how many of the next entries are its parts.
pub type Entry = (u32, String, u64, u32);

impl Mesh {
    /// The axes as a flat list, each followed by the axes it was merged from.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let mut axes = Vec::new();
        for axis in self.axes() {
            written(0, axis, &mut axes);
        }
        axes.into_iter().map(|axis| (axis.place, axis.name.into_owned(), axis.size, axis.parts)).collect()
    }

    /// The mesh that [`Mesh::entries`], an offset and strides describe.
    pub fn from_entries(entries: Vec<Entry>, offset: u64, strides: &[i64], requested: &Requested) -> Answer<Self> {
        let axes = axes_of(entries.into_iter().map(WireAxis::from).collect())?;
        let sizes: Vec<u64> = axes.iter().map(Axis::size).collect();
        product(&axes)?;
        let affine = if strides.len() == sizes.len() { Affine::new(&sizes, offset, strides) } else { None };
        let affine = affine.ok_or_else(|| Refusal::NotAMesh {
            why: format!("sizes {sizes:?} with offset {offset} and strides {strides:?}"),
        })?;
        Self::assemble(axes, Ranks::Affine(affine), requested)
    }

    /// The mesh that [`Mesh::entries`] and a table of ranks describe.
    pub fn from_entries_and_table(entries: Vec<Entry>, ranks: Vec<u64>, requested: &Requested) -> Answer<Self> {
        let axes = axes_of(entries.into_iter().map(WireAxis::from).collect())?;
        let sizes: Vec<u64> = axes.iter().map(Axis::size).collect();
        let world_size = product(&axes)?;
        let found = u64::try_from(ranks.len()).unwrap_or(u64::MAX);
        if found != world_size {
            return Err(Refusal::TableLength { world_size, found });
        }
        Self::assemble(axes, Ranks::of_table(&sizes, ranks)?, requested)
    }
}

impl From<Entry> for WireAxis {
    fn from((place, name, size, parts): Entry) -> Self {
        Self { place, name: Cow::Owned(name), size, parts }
    }
}

fn axes_of(entries: Vec<WireAxis>) -> Answer<Vec<Axis>> {
    let mut entries = entries.into_iter();
    let mut axes: Vec<Axis> = Vec::new();
    while let Some(entry) = entries.next() {
        axes.push(read(&entry, &mut entries, 0)?.1);
    }
    Ok(axes)
}

fn written(place: u32, axis: &Axis, out: &mut Vec<WireAxis>) {
    let parts = u32::try_from(axis.parts.len()).unwrap_or(0);
    out.push(WireAxis { place, name: axis.name.clone(), size: axis.size, parts });
    for (place, part) in &axis.parts {
        written(*place, part, out);
    }
}

/// One axis with its place, and the parts that follow it in the list.
fn read(entry: &WireAxis, entries: &mut impl Iterator<Item = WireAxis>, depth: usize) -> Answer<(u32, Axis)> {
    let broken = || Refusal::NotAMesh { why: format!("axis {:?} of size {}", entry.name, entry.size) };
    if depth > DEPTH_LIMIT || entry.size == 0 || entry.parts as usize > MAX_AXES {
        return Err(broken());
    }
    let name = introduced(&entry.name)?;
    let mut parts = Vec::new();
    for _ in 0..entry.parts {
        parts.push(read(&entries.next().ok_or_else(broken)?, entries, depth + 1)?);
    }
    let whole = parts.iter().fold(1_i128, |whole, (_, part)| whole.saturating_mul(i128::from(part.size)));
    if !parts.is_empty() && (whole != i128::from(entry.size) || known(&name).is_some()) {
        return Err(broken());
    }
    Ok((entry.place, Axis { name, size: entry.size, parts }))
}
