//! The doors of a plan: numbers from outside become counts, or are refused by name.

use crate::error::{Answer, Refusal};

/// The most rows a plan counts: every row number and every sum of them stays below 2^63.
pub const MOST_ROWS: u64 = i64::MAX as u64;
/// The most shards, mini-batches or listed items.
pub const MOST_ITEMS: u64 = 1 << 24;
/// The most numbers in one array: 2^33 bytes.
pub const MOST_NUMBERS: u64 = 1 << 30;

/// Reads a count that must lie between `least` and `most`.
pub fn count(what: &str, value: i128, least: u64, most: u64) -> Answer<u64> {
    match u64::try_from(value) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => {
            Err(Refusal::PlanOutOfRange { what: what.to_owned(), found: value, least: least.into(), most: most.into() })
        }
    }
}

/// Reads a number of rows: 0 up to 2^63 - 1.
pub fn rows(what: &str, value: i128) -> Answer<u64> {
    count(what, value, 0, MOST_ROWS)
}

/// Reads a number of shards, mini-batches or the like: 1 up to 2^24.
pub fn items(what: &str, value: i128) -> Answer<u32> {
    let number = count(what, value, 1, MOST_ITEMS)?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Reads a shard number below `shards`.
pub fn shard(value: i128, shards: u32) -> Answer<usize> {
    match usize::try_from(value) {
        Ok(number) if value < i128::from(shards) => Ok(number),
        _ => Err(Refusal::ShardBeyond { shard: value, shards }),
    }
}

/// Reads numbers that must not be negative, such as weights and lengths.
pub fn naturals(what: &str, values: &[i64]) -> Answer<Vec<u64>> {
    values
        .iter()
        .enumerate()
        .map(|(index, &value)| {
            u64::try_from(value).map_err(|_| Refusal::PlanOutOfRange {
                what: format!("{what}[{index}]"),
                found: value.into(),
                least: 0,
                most: MOST_ROWS.into(),
            })
        })
        .collect()
}

/// Refuses an answer of more than `most` items before it is made.
pub fn allowed(what: &str, items: u64, most: u64) -> Answer<()> {
    if items > most {
        return Err(Refusal::PlanTooLarge { what: what.to_owned(), items, most });
    }
    Ok(())
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(rows: u64) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") }
}
