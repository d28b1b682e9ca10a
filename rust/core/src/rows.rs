//! Rows: the contiguous share of a batch that each data rank takes.

use crate::error::{Answer, Refusal};
use crate::mesh::Mesh;
use crate::ranks::RANK_LIMIT;

/// The half-open rows of one share: `total / shares` each, the first `total % shares` one more.
#[inline]
#[must_use]
pub fn even_share(total: u64, shares: u64, share: u64) -> (u64, u64) {
    let (each, more) = (total / shares, total % shares);
    let start = share * each + share.min(more);
    (start, start + each + u64::from(share < more))
}

impl Mesh {
    /// The rows of one data rank out of `total`.
    pub fn rows_of_data_rank(&self, total: i128, data_rank: i128) -> Answer<(u64, u64)> {
        let shares = self.data_world_size()?;
        let total = checked_total(total)?;
        match u64::try_from(data_rank) {
            Ok(share) if share < shares => Ok(even_share(total, shares, share)),
            _ => Err(Refusal::DataRankOutside { data_rank, data_world_size: shares }),
        }
    }

    /// The rows of one rank out of `total`.
    pub fn rows_of_rank(&self, total: i128, rank: i128) -> Answer<(u64, u64)> {
        let shares = self.data_world_size()?;
        let total = checked_total(total)?;
        Ok(even_share(total, shares, self.data_rank_at(&self.member(rank)?)))
    }

    /// The data rank of a rank that must be there.
    pub fn data_rank_of_member(&self, rank: i128) -> Answer<u64> {
        self.not_a_view()?;
        Ok(self.data_rank_at(&self.member(rank)?))
    }

    /// Writes start and stop of every data rank's rows, in data-rank order.
    pub fn write_slices(&self, total: i128, mut write: impl FnMut(u64, u64)) -> Answer<()> {
        let shares = self.data_world_size()?;
        let total = checked_total(total)?;
        let (each, more) = (total / shares, total % shares);
        let mut start = 0;
        for share in 0..shares {
            let stop = start + each + u64::from(share < more);
            write(start, stop);
            start = stop;
        }
        Ok(())
    }
}

/// A row count that is not negative and below 2**63.
fn checked_total(total: i128) -> Answer<u64> {
    u64::try_from(total).ok().filter(|total| *total < RANK_LIMIT).ok_or(Refusal::TotalOutOfRange { total })
}
