//! `from_sizes`: a mesh from the sizes a training script knows, with what was left open worked out.

use std::borrow::Cow;

use crate::axis::{self, Axis};
use crate::error::{Answer, Refusal};
use crate::mesh::{Mesh, product};
use crate::options::{Requested, checked_size};
use crate::ranks::{Affine, RANK_LIMIT, Ranks};

/// The axes `from_sizes` can declare, outermost first where no order is given: Megatron's default read backwards.
const DEFAULT_ORDER: [&str; 5] = ["fsdp", "pp", "dp", "cp", "tp"];

/// The order of the axes, as a caller gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Names, outermost first.
    OutermostFirst(Vec<String>),
    /// A Megatron string, leftmost fastest: `tp-cp-ep-dp-pp`.
    Megatron(String),
}

/// What `from_sizes` was given; None leaves a size open, -1 asks for what is left of the world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// How many ranks there are; None is the product of the sizes.
    pub world_size: Option<i128>,
    /// Data-parallel size; left open it is what remains of the world size, else 1.
    pub dp_size: Option<i128>,
    /// Sharded data-parallel size.
    pub fsdp_size: Option<i128>,
    /// Tensor-parallel size.
    pub tp_size: Option<i128>,
    /// Pipeline-parallel size.
    pub pp_size: Option<i128>,
    /// Context-parallel size.
    pub cp_size: Option<i128>,
    /// Sizes that are options, not axes.
    pub options: Requested,
    /// The order of the axes.
    pub order: Option<Order>,
}

impl Sizes {
    fn given(&self, name: &str) -> Option<i128> {
        match name {
            "dp" => self.dp_size,
            "fsdp" => self.fsdp_size,
            "tp" => self.tp_size,
            "pp" => self.pp_size,
            _ => self.cp_size,
        }
    }

    /// Every size that is known, with at most one axis left to be worked out.
    fn resolved(&self, world_size: Option<u64>) -> Answer<Vec<Axis>> {
        let mut axes: Vec<Axis> = Vec::with_capacity(DEFAULT_ORDER.len());
        let mut open: Option<&'static str> = None;
        for name in DEFAULT_ORDER {
            let size = match self.given(name) {
                Some(-1) => {
                    if let Some(first) = open {
                        return Err(Refusal::TwoOpenSizes { first: first.to_owned(), second: name.to_owned() });
                    }
                    if world_size.is_none() {
                        return Err(Refusal::OpenSizeWithoutWorld { name: name.to_owned() });
                    }
                    open = Some(name);
                    1
                }
                Some(size) => checked_size(&format!("{name}_size"), Some(size), 1)?.unwrap_or(1),
                None if name == "dp" => 1,
                None => continue,
            };
            axes.push(Axis::new(Cow::Borrowed(name), size));
        }
        if open.is_none() && self.dp_size.is_none() {
            open = Some("dp");
        }
        let known = product(&axes)?;
        let Some(world) = world_size else { return Ok(axes) };
        match open {
            Some(name) if world.is_multiple_of(known) => {
                if let Some(axis) = axes.iter_mut().find(|axis| axis.name == name) {
                    axis.size = world / known;
                }
                Ok(axes)
            }
            Some(name) => Err(Refusal::WorldIndivisible {
                world_size: world,
                product: known,
                sizes: worded(&axes, Some(name)),
                open: name.to_owned(),
                hint: self.hint(&axes, known, world),
            }),
            None if known == world => Ok(axes),
            None => Err(Refusal::ProductDisagrees {
                world_size: world,
                product: known,
                sizes: worded(&axes, None),
                hint: self.hint(&axes, known, world),
            }),
        }
    }

    /// What a caller with a wrong product most likely meant.
    fn hint(&self, axes: &[Axis], product: u64, world: u64) -> String {
        let size_of = |name: &str| axes.iter().find(|axis| axis.name == name).map_or(1, Axis::size);
        for (option, factor) in [("ulysses", self.options.ulysses_size), ("ep", self.options.ep_size)] {
            let Some(factor) = factor.and_then(|factor| u64::try_from(factor).ok()).filter(|factor| *factor > 1) else {
                continue;
            };
            if product.checked_mul(factor) == Some(world) {
                let fsdp = size_of("fsdp") > 1 && self.dp_size.is_none_or(|dp| dp == 1);
                let grown = if fsdp { "fsdp" } else { "dp" };
                let mut call: Vec<String> = vec![format!("world_size={world}")];
                for axis in axes.iter().filter(|axis| axis.size > 1 || axis.name == grown) {
                    let size = if axis.name == grown { axis.size * factor } else { axis.size };
                    call.push(format!("{}_size={size}", axis.name));
                }
                call.push(format!("{option}_size={factor}"));
                return format!(
                    "; {option} ranks overlay dp * fsdp and are not counted in the product: \
                     DeviceMesh.from_sizes({}) works",
                    call.join(", ")
                );
            }
        }
        if size_of("cp") > 1 {
            return "; cp ranks are counted in the product, unlike ulysses ranks, which overlay dp * fsdp".to_owned();
        }
        String::new()
    }
}

fn worded(axes: &[Axis], open: Option<&str>) -> String {
    let factors = axes.iter().filter(|axis| Some(axis.name()) != open);
    let words: Vec<String> = factors.map(Axis::worded).collect();
    if words.is_empty() { "no other size".to_owned() } else { words.join(" * ") }
}

impl Mesh {
    /// A mesh from sizes: axes `fsdp, pp, dp, cp, tp` outermost first, those given plus always `dp`.
    ///
    /// Refused: a product that is not the world size, sizes below 1 (one may be -1), options that contradict the sizes, an
    /// order that lacks a size above 1.
    pub fn from_sizes(sizes: &Sizes) -> Answer<Self> {
        let world_size = checked_size("world_size", sizes.world_size, 1)?;
        let mut axes = sizes.resolved(world_size)?;
        if let Some(order) = &sizes.order {
            axes = ordered(axes, &outermost_first(order, &sizes.options)?)?;
        }
        let lengths: Vec<u64> = axes.iter().map(Axis::size).collect();
        let affine = Affine::row_major(&lengths, 0).ok_or(Refusal::RankTooLarge { rank: i128::from(RANK_LIMIT) })?;
        let mut requested = sizes.options;
        if requested.ep_size.is_some_and(|ep| ep > 1) {
            // Experts are whole on their ranks unless a script says otherwise.
            requested.etp_size = requested.etp_size.or(Some(1));
        }
        Self::assemble(axes, Ranks::Affine(affine), &requested)
    }
}

/// The known names of an order, outermost first.
fn outermost_first(order: &Order, options: &Requested) -> Answer<Vec<&'static str>> {
    let accepted = || axis::KNOWN.into_iter();
    let read = |name: &str| axis::known(name).ok_or_else(|| axis::unknown(name, accepted()));
    let names = match order {
        Order::OutermostFirst(names) => names.iter().map(|name| read(name)).collect::<Answer<Vec<_>>>()?,
        Order::Megatron(text) => {
            let fastest_first = text.split('-').map(read).collect::<Answer<Vec<_>>>()?;
            if options.ep_size.is_some_and(|ep| ep > 1)
                && let Some(found) = fastest_first.iter().position(|name| *name == "ep")
            {
                // The expert mesh counts ep right inside the first of dp and pp; another place would be ignored silently.
                // cp is no axis of the expert mesh, so it may stand between.
                let next = fastest_first[found + 1..].iter().find(|name| **name != "cp");
                let earlier = fastest_first[..found].iter().any(|name| ["dp", "pp"].contains(name));
                if earlier || next.is_some_and(|name| !["dp", "pp"].contains(name)) {
                    return Err(Refusal::ExpertOrder { order: text.clone() });
                }
            }
            fastest_first.into_iter().rev().collect()
        }
    };
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            return Err(Refusal::AxisRepeated { name: (*name).to_owned() });
        }
    }
    Ok(names)
}

/// The axes in the order of `names`; axes of size 1 that it lacks stay outermost.
fn ordered(axes: Vec<Axis>, names: &[&str]) -> Answer<Vec<Axis>> {
    let place = |axis: &Axis| names.iter().position(|name| *name == axis.name);
    if let Some(axis) = axes.iter().find(|axis| axis.size > 1 && place(axis).is_none()) {
        return Err(Refusal::OrderLacksAxis {
            axis: axis.name.to_string(),
            size: axis.size,
            order: names.iter().map(|&name| name.to_owned()).collect(),
        });
    }
    let mut axes = axes;
    axes.sort_by_key(|axis| place(axis).map_or(0, |place| place + 1));
    Ok(axes)
}
