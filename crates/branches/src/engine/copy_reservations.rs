//! Room on the volume that is kept for copies of every byte while they are made.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Number of a reservation, in the order in which they were made.
pub(crate) type ReservationNumber = u64;

/// The room of a copy that is under way.
#[derive(Clone, Debug)]
pub(crate) struct CopyReservation {
    /// All bytes that the copy will have.
    pub bytes: u64,
    pub to: PathBuf,
    /// The tenant whose share of the volume it takes; none for copies that belong to no tenant.
    pub tenant: Option<String>,
}

/// Reservations of the copies that are under way.
#[derive(Debug, Default)]
pub(crate) struct CopyReservations {
    next: ReservationNumber,
    by_number: BTreeMap<ReservationNumber, CopyReservation>,
}

/// Bytes that the copies under way have written, by reservation.
pub(crate) type WrittenBytes = HashMap<ReservationNumber, u64>;

impl CopyReservations {
    pub(crate) fn insert(&mut self, reservation: CopyReservation) -> ReservationNumber {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, reservation);
        number
    }

    pub(crate) fn remove(&mut self, number: ReservationNumber) {
        self.by_number.remove(&number);
    }

    /// Where the copies under way are written.
    pub(crate) fn paths(&self) -> Vec<(ReservationNumber, PathBuf)> {
        self.by_number.iter().map(|(number, copy)| (*number, copy.to.clone())).collect()
    }

    /// Bytes that the copies which `is_counted` says are still going to write.
    pub(crate) fn remaining_bytes(
        &self,
        written: &WrittenBytes,
        is_counted: impl Fn(ReservationNumber, &CopyReservation) -> bool,
    ) -> u64 {
        let counted =
            self.by_number.iter().filter(|(number, reservation)| is_counted(**number, reservation));
        counted.fold(0, |sum: u64, (number, reservation)| {
            let written_bytes = written.get(number).copied().unwrap_or(0);
            sum.saturating_add(reservation.bytes.saturating_sub(written_bytes))
        })
    }
}
