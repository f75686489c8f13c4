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
    pub fn next_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.next_below(100) < percent
    }

    /// Fewer than `most` bytes.
    pub fn next_bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.next_below(most);
        (0..length).map(|_| self.next_below(256) as u8).collect()
    }

    /// Changes, cuts out or adds a few bytes, for readers that must bear any.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.next_below(4) {
            let index = self.next_below(bytes.len() as u64 + 1) as usize;
            match self.next_below(5) {
                0 => bytes.insert(index, self.next_below(256) as u8),
                1 => bytes.truncate(index),
                2 if index < bytes.len() => drop(bytes.remove(index)),
                3 if index < bytes.len() => bytes[index] ^= 1 << self.next_below(8),
                4 if index < bytes.len() => bytes[index] = self.next_below(20) as u8,
                _ => bytes.extend([0xff; 11]),
            }
        }
    }
}
