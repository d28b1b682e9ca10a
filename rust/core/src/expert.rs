//! Megatron's order of the axes, and the mesh on which experts are spread.

use std::borrow::Cow;

use crate::axis::Axis;
use crate::error::{Answer, Refusal};
use crate::mesh::{Mesh, product};
use crate::options::Requested;
use crate::ranks::{Affine, RANK_LIMIT, Ranks};

/// Megatron's axes of the dense mesh, fastest first.
const MEGATRON: [&str; 4] = ["tp", "cp", "dp", "pp"];

/// How experts are laid over the ranks of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertLayout {
    /// Megatron: ep inside expert data parallel, next to the pipeline stages.
    Megatron,
    /// Two axes, `ep` outside `ep_fsdp`.
    Fsdp,
}

impl Mesh {
    /// The order of the axes as Megatron writes it, fastest first and always full: `tp-cp-ep-dp-pp`.
    ///
    /// Refused: an axis above 1 that Megatron does not know, and ranks that are not consecutive in the order of the axes.
    pub fn order(&self) -> Answer<String> {
        Ok(self.megatron_order()?.join("-"))
    }

    fn megatron_order(&self) -> Answer<Vec<&'static str>> {
        if let Some(axis) = self.axes().iter().find(|axis| axis.size() > 1 && !MEGATRON.contains(&axis.name())) {
            return Err(Refusal::NoMegatronOrder { axis: axis.name().to_owned(), size: axis.size() });
        }
        self.row_major()?;
        let declared = self.axes().iter().rev();
        let mut order: Vec<&'static str> =
            declared.filter_map(|axis| MEGATRON.into_iter().find(|name| *name == axis.name())).collect();
        for (index, name) in MEGATRON.into_iter().enumerate() {
            if self.place_of(name).is_some() {
                continue;
            }
            let before = MEGATRON[..index].iter().rev().find(|name| self.place_of(name).is_some());
            let mut place =
                before.and_then(|name| order.iter().position(|own| own == name)).map_or(0, |place| place + 1);
            // Undeclared neighbours stand in Megatron's own order.
            while order.get(place).is_some_and(|own| self.place_of(own).is_none() && MEGATRON[..index].contains(own)) {
                place += 1;
            }
            order.insert(place, name);
        }
        let ep = order.iter().position(|name| ["dp", "pp"].contains(name)).unwrap_or(0);
        order.insert(ep, "ep");
        Ok(order)
    }

    fn row_major(&self) -> Answer<()> {
        if self.is_row_major() {
            return Ok(());
        }
        Err(Refusal::NotRowMajor { axes: self.axes().iter().map(Axis::worded).collect() })
    }

    /// The mesh on which experts are spread over the same ranks; a view, for groups only.
    ///
    /// Refused: ranks that are not consecutive, sizes that do not divide the world, and with Megatron's layout an fsdp axis above
    /// 1 or pipeline groups that are not the mesh's own.
    pub fn expert_mesh(&self, layout: ExpertLayout) -> Answer<Self> {
        let axes = match layout {
            ExpertLayout::Megatron => self.megatron_axes()?,
            ExpertLayout::Fsdp => {
                self.row_major()?;
                let ep = self.ep_world_size();
                if !self.world_size().is_multiple_of(ep) {
                    let world_size = self.world_size();
                    return Err(Refusal::ExpertsIndivisible { pp: 1, ep, etp: 1, product: i128::from(ep), world_size });
                }
                let shards = self.world_size() / ep;
                vec![Axis::new(Cow::Borrowed("ep"), ep), Axis::new(Cow::Borrowed("ep_fsdp"), shards)]
            }
        };
        product(&axes)?;
        let sizes: Vec<u64> = axes.iter().map(Axis::size).collect();
        let affine = Affine::row_major(&sizes, self.ranks().offset());
        let affine = affine.ok_or(Refusal::RankTooLarge { rank: i128::from(RANK_LIMIT) })?;
        let requested = Requested { sequence_parallel: self.options().sequence_parallel, ..Requested::default() };
        Self::assemble(axes, Ranks::Affine(affine), &requested)
    }

    fn megatron_axes(&self) -> Answer<Vec<Axis>> {
        let order = self.megatron_order()?;
        let pp = self.declared_size("pp").unwrap_or(1);
        let (ep, etp) = (self.ep_world_size(), self.etp_world_size());
        let product = i128::from(pp).saturating_mul(i128::from(ep)).saturating_mul(i128::from(etp));
        let world_size = self.world_size();
        let indivisible = Refusal::ExpertsIndivisible { pp, ep, etp, product, world_size };
        let inside =
            u64::try_from(product).ok().filter(|product| world_size.is_multiple_of(*product)).ok_or(indivisible)?;
        let axes: Vec<Axis> = order
            .iter()
            .rev()
            .filter_map(|name| match *name {
                "tp" => Some(Axis::new(Cow::Borrowed("etp"), etp)),
                "ep" => Some(Axis::new(Cow::Borrowed("ep"), ep)),
                "dp" => Some(Axis::new(Cow::Borrowed("dp"), world_size / inside)),
                "pp" => Some(Axis::new(Cow::Borrowed("pp"), pp)),
                _ => None,
            })
            .collect();
        let expert_stride: u64 = axes.iter().rev().take_while(|axis| axis.name() != "pp").map(Axis::size).product();
        let own_stride = self.place_of("pp").map_or(1, |place| self.steps()[place]);
        if pp > 1 && expert_stride != own_stride {
            return Err(Refusal::ExpertPipelineDiffers {
                pp,
                own: own_stride,
                expert: expert_stride,
                order: order.join("-"),
            });
        }
        Ok(axes)
    }
}
