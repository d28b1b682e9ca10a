//! Options: what a mesh is told about its ranks beside its axes, and when that contradicts them.

use serde::{Deserialize, Serialize};

use crate::axis::Axis;
use crate::error::{Answer, Refusal};

/// What was asked for, before it is checked; None leaves an option open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requested {
    /// Sequence-parallel ranks per data rank (Ulysses); they overlay `dp * fsdp`.
    pub ulysses_size: Option<i128>,
    /// Ranks over which the experts are spread.
    pub ep_size: Option<i128>,
    /// Tensor-parallel ranks inside an expert.
    pub etp_size: Option<i128>,
    /// Ranks that shard one expert's parameters.
    pub ep_fsdp_size: Option<i128>,
    /// Virtual pipeline stages per pipeline rank.
    pub vpp_size: Option<i128>,
    /// Whether activations are split along the sequence inside a tensor-parallel group.
    pub sequence_parallel: bool,
}

/// The checked options of a mesh; sizes of 1 that mean *off* are None.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Sequence-parallel ranks per data rank, above 1.
    pub ulysses: Option<u64>,
    /// Expert-parallel size, above 1.
    pub ep: Option<u64>,
    /// Expert tensor-parallel size; None follows tp.
    pub etp: Option<u64>,
    /// Expert sharding size; None is `world_size / ep` where ep is on.
    pub ep_fsdp: Option<u64>,
    /// Virtual pipeline stages, above 1.
    pub vpp: Option<u64>,
    /// Whether sequence parallelism is on.
    pub sequence_parallel: bool,
}

impl Options {
    /// The same options as a request, to be changed and checked again.
    #[must_use]
    pub fn requested(&self) -> Requested {
        let open = |size: Option<u64>| size.map(i128::from);
        Requested {
            ulysses_size: open(self.ulysses),
            ep_size: open(self.ep),
            etp_size: open(self.etp),
            ep_fsdp_size: open(self.ep_fsdp),
            vpp_size: open(self.vpp),
            sequence_parallel: self.sequence_parallel,
        }
    }

    /// Checks a request against the axes it is for.
    pub fn checked(requested: &Requested, axes: &[Axis], world_size: u64) -> Answer<Self> {
        let switch = |option, size| checked_size(option, size, 0).map(|size| size.filter(|size| *size > 1));
        let options = Self {
            ulysses: switch("ulysses_size", requested.ulysses_size)?,
            ep: switch("ep_size", requested.ep_size)?,
            etp: checked_size("etp_size", requested.etp_size, 1)?,
            ep_fsdp: checked_size("ep_fsdp_size", requested.ep_fsdp_size, 1)?,
            vpp: switch("vpp_size", requested.vpp_size)?,
            sequence_parallel: requested.sequence_parallel,
        };
        options.agree_with(axes, world_size)?;
        Ok(options)
    }

    fn agree_with(&self, axes: &[Axis], world_size: u64) -> Answer<()> {
        // A merged axis keeps the sizes of its parts, which a split brings back.
        let size_of = |name: &str| axes.iter().find_map(|axis| axis.size_of(name));
        let given = [("ulysses", self.ulysses), ("ep", self.ep), ("etp", self.etp), ("ep_fsdp", self.ep_fsdp)];
        for (axis, option) in given {
            if let (Some(declared), Some(option)) = (size_of(axis), option)
                && (axis == "ulysses" || declared != option)
            {
                return Err(Refusal::OptionBesideAxis { axis: axis.to_owned(), declared, option });
            }
        }
        if let Some(ulysses) = self.ulysses {
            let (dp, fsdp) = (size_of("dp").unwrap_or(1), size_of("fsdp").unwrap_or(1));
            // Both are factors of the world size, so their product fits.
            let data = dp.saturating_mul(fsdp);
            if !data.is_multiple_of(ulysses) {
                return Err(Refusal::UlyssesIndivisible { ulysses, dp, fsdp, data });
            }
        }
        let pp = size_of("pp").unwrap_or(1);
        let ep = size_of("ep").or(self.ep).unwrap_or(1);
        if self.ep.is_some() || self.etp.is_some() {
            let etp = size_of("etp").or(self.etp).or(size_of("tp")).unwrap_or(1);
            let product = i128::from(pp).saturating_mul(i128::from(ep)).saturating_mul(i128::from(etp));
            if product == 0 || i128::from(world_size) % product != 0 {
                return Err(Refusal::ExpertsIndivisible { pp, ep, etp, product, world_size });
            }
        }
        if let Some(ep_fsdp) = self.ep_fsdp {
            let product = i128::from(ep).saturating_mul(i128::from(ep_fsdp));
            if product != i128::from(world_size) {
                return Err(Refusal::ExpertShardsDisagree { ep, ep_fsdp, product, world_size });
            }
        }
        match self.vpp {
            Some(vpp) if pp == 1 => Err(Refusal::VirtualStagesAlone { vpp, pp }),
            _ => Ok(()),
        }
    }
}

/// A size that is at least `least` and below 2**63, or None.
pub(crate) fn checked_size(name: &str, size: Option<i128>, least: u64) -> Answer<Option<u64>> {
    let Some(size) = size else { return Ok(None) };
    match u64::try_from(size) {
        Ok(size) if size >= least && size < crate::ranks::RANK_LIMIT => Ok(Some(size)),
        _ => Err(Refusal::SizeOutOfRange { name: name.to_owned(), size, least }),
    }
}
