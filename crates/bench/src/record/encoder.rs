//! What histograms are encoded with, kept: to ask for its memory anew every second, on each of many
//! threads at the same moment, would be a stall of the load.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};

pub(super) struct Encoder {
    serializer: V2Serializer,
    encoded: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { serializer: V2Serializer::new(), encoded: Vec::new() }
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    pub(super) fn encode(&mut self, histogram: &Histogram<u64>) -> &[u8] {
        self.encoded.clear();
        self.serializer
            .serialize(histogram, &mut self.encoded)
            .expect("memory takes what is written to it");
        &self.encoded
    }
}
