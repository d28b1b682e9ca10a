//! Axes: the names a mesh may declare, what they are also called, and what a merged axis was made of.

use std::borrow::Cow;

use crate::error::{Answer, Refusal};

/// The names that a mesh may declare, in the order in which messages list them.
pub const KNOWN: [&str; 9] = ["dp", "fsdp", "tp", "pp", "cp", "ulysses", "ep", "etp", "ep_fsdp"];

/// Names that other projects use, and the name they are read as here.
pub const ALIASES: [(&str, &str); 4] = [("dp_replicate", "dp"), ("ddp", "dp"), ("dp_shard", "fsdp"), ("sp", "ulysses")];

/// The axes that cut rows, in data order: the data index of a rank is `dp * fsdp_size + fsdp`.
pub const DATA: [&str; 2] = ["dp", "fsdp"];

/// The axes that arrange experts; a mesh that declares one is a view for groups.
pub const EXPERT: [&str; 3] = ["ep", "etp", "ep_fsdp"];

/// The longest word that may be meant as a name.
const LONGEST_WORD: usize = 80;

/// More axes than any mesh has; keeps a coordinate on the stack.
pub const MAX_AXES: usize = 16;

/// An axis name: one of [`KNOWN`], or a name that `flatten` or `split` introduced.
pub type Name = Cow<'static, str>;

/// The canonical form of a known name or alias; None for any other word.
#[must_use]
pub fn known(name: &str) -> Option<&'static str> {
    let read_as = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, axis)| axis);
    KNOWN.iter().find(|axis| **axis == read_as).copied()
}

/// The canonical form of a name that a table or `from_axes` declares; any other word is refused with the nearest known one.
pub fn declared(name: &str) -> Answer<Name> {
    known(name).map(Cow::Borrowed).ok_or_else(|| unknown(name, KNOWN.iter().copied()))
}

/// A name that `flatten` or `split` gives: a known one in canonical form, or any identifier.
pub fn introduced(name: &str) -> Answer<Name> {
    if let Some(axis) = known(name) {
        return Ok(Cow::Borrowed(axis));
    }
    let mut letters = name.chars();
    let starts_well = letters.next().is_some_and(|letter| letter.is_alphabetic() || letter == '_');
    if starts_well && letters.all(|letter| letter.is_alphanumeric() || letter == '_') && name != "data" {
        return Ok(Cow::Owned(name.to_owned()));
    }
    Err(Refusal::AxisNotAnIdentifier { name: name.to_owned() })
}

/// The refusal of a word that names no axis, with the nearest name that does.
pub fn unknown<'names>(name: &str, accepted: impl Iterator<Item = &'names str>) -> Refusal {
    let accepted: Vec<String> = accepted.map(str::to_owned).collect();
    let spelled = ALIASES.iter().map(|(alias, _)| *alias).chain(accepted.iter().map(String::as_str));
    // A word is compared, and shown, only as far as one could be meant.
    let name: String = if name.chars().count() > LONGEST_WORD {
        name.chars().take(LONGEST_WORD).chain("...".chars()).collect()
    } else {
        name.to_owned()
    };
    let lower = name.to_lowercase();
    let nearest = spelled
        .map(|candidate| (strsim::damerau_levenshtein(&lower, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .map_or("dp", |(_, candidate)| candidate)
        .to_owned();
    Refusal::AxisUnknown { name, nearest, accepted }
}

/// One declared dimension of a mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Axis {
    pub(crate) name: Name,
    pub(crate) size: u64,
    /// What a merged axis was made of, in the order asked, each with its place among the axes of the unmerged mesh.
    pub(crate) parts: Vec<(u32, Axis)>,
}

impl Axis {
    /// An axis that was not merged from others.
    pub(crate) fn new(name: Name, size: u64) -> Self {
        Self { name, size, parts: Vec::new() }
    }

    /// The canonical name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many indices the axis has, at least 1.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The axes this one was merged from, outermost first; empty for an axis that was not merged.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        self.parts.iter().map(|(_, part)| part)
    }

    /// The name and size in a refusal's words: `dp=4`.
    pub(crate) fn worded(&self) -> String {
        format!("{}={}", self.name, self.size)
    }

    /// Whether the axis called `name` is a part of this one, at any depth.
    #[must_use]
    pub fn hides(&self, name: &str) -> bool {
        self.parts().any(|part| part.name == name || part.hides(name))
    }

    /// The size of the axis called `name` that is this one or a part of it, at any depth.
    #[must_use]
    pub fn size_of(&self, name: &str) -> Option<u64> {
        if self.name == name { Some(self.size) } else { self.parts().find_map(|part| part.size_of(name)) }
    }

    /// Whether a data axis was merged into this one.
    #[must_use]
    pub fn hides_data(&self) -> bool {
        DATA.iter().any(|name| self.hides(name))
    }
}
