//! Room on the volume for copies of every byte, which take as much as there is to copy: what is
//! promised to those that are under way is not free for others, or copies made at the same time
//! would each find the room that there is for one.

use std::path::Path;
use std::sync::Mutex;

use egret_base::settings::ByteSize;
use egret_base::sync::lock;
use egret_base::{Timestamp, zero_on_underflow};

use crate::engine::Inner;
use crate::error::{BranchesError, io_error};
use crate::store::source::run_blocking;
use crate::store::volume::Driver;

/// Reservation of the bytes that a copy will take; dropping it releases them.
pub(super) struct PromisedRoom<'a> {
    bytes: u64,
    /// Bytes that are reserved for all copies under way.
    reserved_bytes: &'a Mutex<u64>,
}

impl Drop for PromisedRoom<'_> {
    fn drop(&mut self) {
        let mut reserved_bytes = lock(self.reserved_bytes);
        let left = reserved_bytes.checked_sub(self.bytes);
        *reserved_bytes = zero_on_underflow(left, "room promised to copies");
    }
}

impl Inner {
    /// Refuses when a copy of `data` does not fit: one that shares blocks takes next to nothing,
    /// one that copies every byte takes as much as there is. Returns the bytes that it takes.
    pub(crate) async fn check_room_for_copy(&self, data: &Path) -> Result<u64, BranchesError> {
        self.check_room()?;
        Ok(self.reserve_room(data).await?.bytes)
    }

    /// Keeps the room that a copy of `data` takes while it is made, or refuses it where there is
    /// none; one that shares blocks takes next to nothing.
    pub(super) async fn reserve_room(
        &self,
        data: &Path,
    ) -> Result<PromisedRoom<'_>, BranchesError> {
        let bytes = self.bytes_to_copy(data).await?;
        let mut reserved_bytes = lock(&self.reserved_bytes);
        if bytes > 0 {
            let free = self.mounted().space()?.free;
            let reserved_after = reserved_bytes.saturating_add(bytes);
            let needed = ByteSize(self.config.free_min.bytes().saturating_add(reserved_after));
            if free < needed.bytes() {
                return Err(BranchesError::VolumeFull {
                    free: ByteSize(free).rounded_down(),
                    needed: needed.rounded_up(),
                });
            }
            *reserved_bytes = reserved_after;
        }
        Ok(PromisedRoom { bytes, reserved_bytes: &self.reserved_bytes })
    }

    async fn bytes_to_copy(&self, data: &Path) -> Result<u64, BranchesError> {
        let volume = self.mounted().volume;
        if volume.driver() != Driver::Copy {
            return Ok(0);
        }
        let from = data.to_owned();
        run_blocking(move || {
            let epoch = Timestamp::from_micros(0);
            volume.diverged_bytes(&from, epoch).map_err(io_error("measure", &from))
        })
        .await
    }
}
