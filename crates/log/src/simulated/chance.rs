//! Repeatable randomness, and bytes that it damages.

/// Repeatable randomness.
///
/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Randomness that repeats itself for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fewer than `most` bytes.
    pub fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Changes, cuts out or adds a few bytes, for readers that must bear any.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() as u64 + 1) as usize;
            match self.below(5) {
                0 => bytes.insert(at, self.below(256) as u8),
                1 => bytes.truncate(at),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                4 if at < bytes.len() => bytes[at] = self.below(20) as u8,
                _ => bytes.extend([0xff; 11]),
            }
        }
    }
}
