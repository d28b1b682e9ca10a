//! Refusals: every way in which the core says no, in one table.
//!
//! A refusal knows its family (which Python exception it becomes), the numbers and names it is about, and the sentence
//! that tells a user what would be accepted. The binding turns families into exception classes and numbers into their
//! attributes; nothing else in the project writes such a sentence about the core's own rules.

use std::fmt;

/// Which kind of question was refused; each becomes one Python exception class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Sizes, options or a rank table that make no mesh.
    Mesh,
    /// A rank, position, data rank or stage that is not there.
    Rank,
    /// An axis name that is unknown, repeated, missing, or not answerable.
    Axis,
    /// Rows that do not fit a layout.
    Plan,
    /// Workers that do not fit a mesh.
    Placement,
}

/// One number or word that a refusal is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Int(i128),
    /// A word.
    Text(String),
    /// Several numbers.
    Ints(Vec<i128>),
    /// Several words.
    Texts(Vec<String>),
}

macro_rules! from_integers {
    ($($integer:ty),*) => {$(
        impl From<&$integer> for Value {
            fn from(value: &$integer) -> Self {
                Self::Int(i128::from(*value))
            }
        }
        impl From<&Vec<$integer>> for Value {
            fn from(values: &Vec<$integer>) -> Self {
                Self::Ints(values.iter().map(|&value| i128::from(value)).collect())
            }
        }
    )*};
}
from_integers!(i128, u64, u32);

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<&Vec<String>> for Value {
    fn from(values: &Vec<String>) -> Self {
        Self::Texts(values.clone())
    }
}

/// Writes the enum, its sentence, its family and its fields from one row per refusal.
macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident: $family:ident { $($field:ident: $kind:ty),* $(,)? } $sentence:literal;)*) => {
        /// Something the core will not do, with the numbers that say why.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $variant {
                $(#[doc = concat!("The `", stringify!($field), "` that the sentence names.")] $field: $kind,)*
            },)*
        }

        impl Refusal {
            /// The kind of question that was refused.
            #[must_use]
            pub fn family(&self) -> Family {
                match self {
                    $(Self::$variant { .. } => Family::$family,)*
                }
            }

            /// The numbers and names of the refusal, in the order of its fields.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, Value)> {
                match self {
                    $(Self::$variant { $($field),* } => vec![$((stringify!($field), Value::from($field))),*],)*
                }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant { $($field),* } => {
                        $(let _ = $field;)*
                        write!(formatter, $sentence)
                    })*
                }
            }
        }
    };
}

impl std::error::Error for Refusal {}

/// The answer to a question that can be refused.
pub type Answer<T> = Result<T, Refusal>;

refusals! {
    /// A value that is no whole number.
    NotAnInteger: Mesh { what: String, found: String }
        "{what} must be a whole number, not {found}";
}
