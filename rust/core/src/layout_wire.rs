//! Layouts as bytes: a few numbers where a rule makes the layout again, else its borders; checked when read back.

use serde::{Deserialize, Serialize};

use crate::csr::Csr;
use crate::error::{Answer, Refusal};
use crate::layout::{Layout, View};
use crate::limits::{MOST_ROWS, count};
use crate::placement::Placement;
use crate::run::{Run, total};
use crate::splits::partition;

/// The rule and the numbers that make a layout again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recipe {
    Even { rows: u64, shards: u32, group: u64 },
    Padded { rows: u64, shards: u32, multiple: u64, group: u64 },
    Minibatched { rows: u64, shards: u32, minibatches: u32, rotate: bool, pad: bool, group: u64 },
    Chunked { rows: u64, size: u64 },
}

impl Recipe {
    fn make(&self) -> Answer<Layout> {
        match *self {
            Self::Even { rows, shards, group } => Layout::even(rows, shards, group),
            Self::Padded { rows, shards, multiple, group } => Layout::padded(rows, shards, multiple, group),
            Self::Minibatched { rows, shards, minibatches, rotate, pad, group } => {
                Layout::minibatched(rows, shards, minibatches, rotate, pad, group)
            }
            Self::Chunked { rows, size } => Layout::chunked(rows, size, 1),
        }
    }
}

/// What travels for a layout.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Wire {
    Made(Recipe),
    Stored(Box<Stored>),
}

/// A layout that no short rule makes again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stored {
    rows: u64,
    runs: Runs,
    pads: Option<Numbers>,
    cuts: Option<Numbers>,
    loads: Option<Vec<u64>>,
    view: Option<(u64, Runs, Runs)>,
}

/// Lists of runs as gaps from the end of the run before: small numbers, which take few bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Runs {
    counts: Vec<u64>,
    gaps: Vec<i64>,
    lens: Vec<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Numbers {
    counts: Vec<u64>,
    numbers: Vec<u64>,
}

fn malformed(reason: &str) -> Refusal {
    Refusal::PlanMalformed { what: "layout".to_owned(), reason: reason.to_owned() }
}

impl From<&Csr<Run>> for Runs {
    fn from(lists: &Csr<Run>) -> Self {
        let mut end = 0;
        let gaps = lists.items().iter().map(|run| {
            let gap = run.start.cast_signed() - end;
            end = run.end().cast_signed();
            gap
        });
        Self {
            gaps: gaps.collect(),
            lens: lists.items().iter().map(|run| run.len).collect(),
            counts: lists.lists().map(|list| list.len() as u64).collect(),
        }
    }
}

impl From<&Csr<u64>> for Numbers {
    fn from(lists: &Csr<u64>) -> Self {
        let counts = lists.lists().map(|list| list.len() as u64).collect();
        Self { counts, numbers: lists.items().to_vec() }
    }
}

impl Runs {
    /// The runs again, in normal form: none empty, neighbours joined, every end below 2^63.
    fn read(&self) -> Answer<Csr<Run>> {
        if self.gaps.len() != self.lens.len() {
            return Err(malformed("gaps and lengths differ in number"));
        }
        let mut runs = self.gaps.iter().zip(&self.lens);
        let mut lists = Csr::with_capacity(self.counts.len(), self.lens.len());
        let mut end: u64 = 0;
        for &count in &self.counts {
            for _ in 0..count {
                let (&gap, &len) = runs.next().ok_or_else(|| malformed("fewer runs than counted"))?;
                let start = end.checked_add_signed(gap);
                let stop = start.and_then(|start| start.checked_add(len)).filter(|&stop| stop <= MOST_ROWS);
                let (Some(start), Some(stop)) = (start, stop) else {
                    return Err(malformed("a run ends beyond 2^63"));
                };
                end = stop;
                lists.extend_run(start, len);
            }
            lists.close();
        }
        if runs.next().is_some() {
            return Err(malformed("more runs than counted"));
        }
        Ok(lists)
    }
}

impl Numbers {
    fn read(self) -> Answer<Csr<u64>> {
        let mut numbers = self.numbers.into_iter();
        let mut lists = Csr::default();
        for &count in &self.counts {
            for _ in 0..count {
                lists.push(numbers.next().ok_or_else(|| malformed("fewer numbers than counted"))?);
            }
            lists.close();
        }
        match numbers.next() {
            None => Ok(lists),
            Some(_) => Err(malformed("more numbers than counted")),
        }
    }
}

impl Layout {
    /// The layout as a few bytes.
    pub fn to_bytes(&self) -> Answer<Vec<u8>> {
        to_bytes("layout", &Wire::from(self.clone()))
    }

    /// Reads what `to_bytes` wrote. Errors: bytes that are no layout.
    pub fn from_bytes(bytes: &[u8]) -> Answer<Self> {
        Self::try_from(from_bytes::<Wire>("layout", bytes)?)
    }
}

impl Placement {
    /// The placement as a few bytes.
    pub fn to_bytes(&self) -> Answer<Vec<u8>> {
        to_bytes("placement", self)
    }

    /// Reads what `to_bytes` wrote. Errors: bytes that are no placement.
    pub fn from_bytes(bytes: &[u8]) -> Answer<Self> {
        from_bytes("placement", bytes)
    }
}

fn to_bytes(what: &str, value: &impl Serialize) -> Answer<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|error| Refusal::PlanMalformed { what: what.to_owned(), reason: error.to_string() })
}

fn from_bytes<'a, T: Deserialize<'a>>(what: &str, bytes: &'a [u8]) -> Answer<T> {
    let refuse = |reason: &str| Refusal::PlanMalformed { what: what.to_owned(), reason: reason.to_owned() };
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(refuse(&format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(refuse(&error.to_string())),
    }
}

impl From<Layout> for Wire {
    fn from(layout: Layout) -> Self {
        match &layout.recipe {
            Some(recipe) if layout.view.is_none() => Self::Made(recipe.clone()),
            _ => Self::Stored(Box::new(Stored {
                rows: layout.rows,
                runs: Runs::from(&layout.runs),
                pads: (!layout.pads.items().is_empty()).then(|| Numbers::from(&layout.pads)),
                cuts: layout.cuts.as_ref().map(Numbers::from),
                loads: layout.loads.clone(),
                view: layout.view.as_ref().map(|view| (view.rows, Runs::from(&view.stored), Runs::from(&view.source))),
            })),
        }
    }
}

impl TryFrom<Wire> for Layout {
    type Error = Refusal;

    fn try_from(wire: Wire) -> Answer<Self> {
        match wire {
            Wire::Made(recipe) => recipe.make(),
            Wire::Stored(stored) => stored.read(),
        }
    }
}

impl Stored {
    fn read(self) -> Answer<Layout> {
        let runs = self.runs.read()?;
        if partition(&runs)? != self.rows {
            return Err(malformed("the shards do not hold the rows"));
        }
        let shards = runs.len();
        let pads = self.pads.map_or_else(|| Ok(Csr::empty(shards)), Numbers::read)?;
        if pads.len() != shards || pads.items().iter().any(|&row| row >= self.rows) {
            return Err(malformed("a pad repeats a row that is not there"));
        }
        let mut layout = Layout::assemble(self.rows, runs, pads);
        if let Some(loads) = &self.loads {
            let sum = loads.iter().try_fold(0, |sum: u64, &load| sum.checked_add(load));
            if loads.len() != shards || sum.is_none_or(|sum| sum > MOST_ROWS) {
                return Err(malformed("the loads are not those of the shards"));
            }
        }
        layout.loads = self.loads;
        if let Some(cuts) = self.cuts {
            layout.cuts = Some(read_cuts(cuts, &layout)?);
        }
        match self.view {
            None => Ok(layout),
            Some((rows, stored, source)) => {
                let view = View { rows, stored: stored.read()?, source: source.read()? };
                check_view(&view, &layout)?;
                Ok(layout.viewed(view))
            }
        }
    }
}

fn read_cuts(cuts: Numbers, layout: &Layout) -> Answer<Csr<u64>> {
    let cuts = cuts.read()?;
    let even = cuts.lists().map(<[u64]>::len).collect::<Vec<_>>().windows(2).all(|pair| pair[0] == pair[1]);
    let whole = cuts.len() == layout.runs.len()
        && cuts.lists().enumerate().all(|(shard, borders)| {
            borders.len() >= 2
                && borders.is_sorted()
                && borders.first() == Some(&0)
                && borders.last() == Some(&layout.size(shard))
        });
    if even && whole { Ok(cuts) } else { Err(malformed("the mini-batches do not cover the shards")) }
}

fn check_view(view: &View, layout: &Layout) -> Answer<()> {
    count("the rows of the stored batch", view.rows.into(), 0, MOST_ROWS)?;
    let shards = layout.runs.len();
    let inside = view.stored.items().iter().all(|run| run.end() <= view.rows);
    let matched = view.stored.len() == shards
        && view.source.len() == shards
        && (0..shards).all(|shard| {
            let stored = checked_total(view.stored.list(shard));
            let source = view.source.list(shard);
            stored.is_some_and(|stored| source.iter().all(|run| run.end() <= stored))
                && checked_total(source) == Some(total(layout.runs(shard)))
        });
    if inside && matched { Ok(()) } else { Err(malformed("rows are read from where none are stored")) }
}

fn checked_total(runs: &[Run]) -> Option<u64> {
    runs.iter().try_fold(0, |sum: u64, run| sum.checked_add(run.len)).filter(|&sum| sum <= MOST_ROWS)
}
