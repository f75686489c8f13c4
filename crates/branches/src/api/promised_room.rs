//! Room on the volume for copies of every byte, which take as much as there is to copy: what is
//! promised to those that are under way is not free for others, or copies made at the same time
//! would each find the room that there is for one. What a copy has written already is not free
//! either, so only the rest of it is kept.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use egret_base::Timestamp;
use egret_base::settings::ByteSize;
use egret_base::sync::lock;

use crate::engine::{CopyReservation, CopyReservations, Inner, ReservationNumber, WrittenBytes};
use crate::error::{BranchesError, io_error};
use crate::store::source::run_blocking;
use crate::store::volume::Driver;

/// Reservation of the bytes that a copy will take; dropping it releases them.
pub(super) struct PromisedRoom<'a> {
    /// None for a copy that takes next to nothing.
    number: Option<ReservationNumber>,
    reservations: &'a Mutex<CopyReservations>,
}

impl Drop for PromisedRoom<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(self.reservations).remove(number);
        }
    }
}

impl Inner {
    /// Refuses when a copy of `data` does not fit: one that shares blocks takes next to nothing,
    /// one that copies every byte takes as much as there is. Returns the bytes that it takes.
    pub(crate) async fn check_room_for_copy(&self, data: &Path) -> Result<u64, BranchesError> {
        self.check_room()?;
        let bytes = self.bytes_to_copy(data).await?;
        if bytes > 0 {
            let written = self.written_bytes().await?;
            self.check_room_beside(&lock(&self.copy_reservations), &written, bytes)?;
        }
        Ok(bytes)
    }

    /// Keeps the room that a copy of `data` to `to` takes while it is made, or refuses it where
    /// there is none; one that shares blocks takes next to nothing.
    pub(super) async fn reserve_room(
        &self,
        data: &Path,
        to: &Path,
    ) -> Result<PromisedRoom<'_>, BranchesError> {
        self.reserve(data, to, None).await
    }

    /// Keeps room as [`Inner::reserve_room`], and within the share of a tenant: copies that are
    /// made for it at the same time do not each find the bytes that there are for one.
    pub(super) async fn reserve_tenant_room(
        self: &Arc<Self>,
        tenant: &str,
        data: &Path,
        to: &Path,
    ) -> Result<PromisedRoom<'_>, BranchesError> {
        let promised = self.reserve(data, to, Some(tenant)).await?;
        let Some(own_number) = promised.number else {
            return Ok(promised);
        };
        // Of two copies at a time the first one finds no other, so that one of them is made.
        let is_earlier = |number: ReservationNumber, other: &CopyReservation| {
            number < own_number && other.tenant.as_deref() == Some(tenant)
        };
        // First, as what is written from here on is measured with what the tenant takes.
        let written = self.written_bytes().await?;
        let (own_bytes, other_bytes) = {
            let reservations = lock(&self.copy_reservations);
            let own = |number: ReservationNumber, _: &CopyReservation| number == own_number;
            (
                reservations.remaining_bytes(&written, own),
                reservations.remaining_bytes(&written, is_earlier),
            )
        };
        if other_bytes > 0 {
            self.measure_tenant_room(tenant, own_bytes.saturating_add(other_bytes)).await?;
        }
        Ok(promised)
    }

    async fn reserve(
        &self,
        data: &Path,
        to: &Path,
        tenant: Option<&str>,
    ) -> Result<PromisedRoom<'_>, BranchesError> {
        let reservations = &self.copy_reservations;
        let bytes = self.bytes_to_copy(data).await?;
        if bytes == 0 {
            return Ok(PromisedRoom { number: None, reservations });
        }
        let written = self.written_bytes().await?;
        let mut locked = lock(reservations);
        self.check_room_beside(&locked, &written, bytes)?;
        let (to, tenant) = (to.to_owned(), tenant.map(str::to_owned));
        let number = locked.insert(CopyReservation { bytes, to, tenant });
        Ok(PromisedRoom { number: Some(number), reservations })
    }

    /// Refuses so many bytes where they do not fit beside what the copies under way still write.
    fn check_room_beside(
        &self,
        reservations: &CopyReservations,
        written: &WrittenBytes,
        bytes: u64,
    ) -> Result<(), BranchesError> {
        let promised = reservations.remaining_bytes(written, |_, _| true);
        let free = self.mounted().space()?.free;
        let needed = self.config.free_min.bytes().saturating_add(promised).saturating_add(bytes);
        if free < needed {
            return Err(BranchesError::VolumeFull {
                free: ByteSize(free).rounded_down(),
                needed: ByteSize(needed).rounded_up(),
            });
        }
        Ok(())
    }

    /// What the copies under way have written so far. It is measured before the free room: what is
    /// written in between is then kept twice, and never promised twice.
    async fn written_bytes(&self) -> Result<WrittenBytes, BranchesError> {
        let copies: Vec<(ReservationNumber, PathBuf)> = lock(&self.copy_reservations).paths();
        if copies.is_empty() {
            return Ok(WrittenBytes::new());
        }
        let volume = self.mounted().volume;
        run_blocking(move || {
            let epoch = Timestamp::from_micros(0);
            let measure = |(number, to): (ReservationNumber, PathBuf)| {
                match volume.diverged_bytes(&to, epoch) {
                    // It has not begun.
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok((number, 0)),
                    measured => {
                        let written = measured.map(|bytes| (number, bytes));
                        written.map_err(io_error("measure", &to))
                    }
                }
            };
            copies.into_iter().map(measure).collect()
        })
        .await
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
