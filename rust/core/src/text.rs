//! Layouts as text: one line per shard.

use std::fmt;

use crate::layout::Layout;
use crate::limits::counted;
use crate::run::{Run, runs_of};

/// How many shards a table shows.
const LINES: usize = 32;
/// How many characters of rows a line shows.
const WIDTH: usize = 44;

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.runs.len();
        let plural = if shards == 1 { "" } else { "s" };
        writeln!(formatter, "{} over {shards} shard{plural}", counted(self.rows()))?;
        let padded = !self.pads.items().is_empty();
        let weighed = self.loads.is_some();
        let mut table = vec![vec!["shard".to_owned(), "rows".to_owned(), "size".to_owned()]];
        for shard in 0..shards.min(LINES) {
            let size = self.size(shard).to_string();
            table.push(vec![shard.to_string(), ranges(self.runs(shard).iter().copied()), size]);
        }
        if padded {
            let pads =
                (0..shards.min(LINES)).map(|shard| ranges(runs_of(self.pads(shard).iter().copied()).into_iter()));
            insert(&mut table, 2, "pads", pads);
        }
        if weighed {
            insert(&mut table, if padded { 4 } else { 3 }, "load", self.loads().iter().map(u64::to_string));
        }
        let columns = table[0].len();
        let widths: Vec<usize> =
            (0..columns).map(|column| table.iter().map(|line| line[column].len()).max().unwrap_or(0)).collect();
        for (index, line) in table.iter().enumerate() {
            let cells = line.iter().enumerate().map(|(column, cell)| match table[0][column].as_str() {
                "rows" | "pads" => format!("{cell:<width$}", width = widths[column]),
                _ => format!("{cell:>width$}", width = widths[column]),
            });
            write!(formatter, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
            if index + 1 < table.len() {
                writeln!(formatter)?;
            }
        }
        if shards > LINES {
            write!(formatter, "\n... and {} more shards", shards - LINES)?;
        }
        Ok(())
    }
}

fn insert(table: &mut [Vec<String>], at: usize, title: &str, cells: impl Iterator<Item = String>) {
    for (line, cell) in table.iter_mut().zip(std::iter::once(title.to_owned()).chain(cells)) {
        line.insert(at, cell);
    }
}

/// `0-2 7`, cut short with dots.
fn ranges(runs: impl Iterator<Item = Run>) -> String {
    let mut text = String::new();
    for run in runs {
        let next = if run.len == 1 { run.start.to_string() } else { format!("{}-{}", run.start, run.end() - 1) };
        if text.len() + next.len() > WIDTH {
            return text + " ...";
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&next);
    }
    text
}
