//! Chunks are read by a reader of their own, and are those that Prometheus writes.

use egret_base::codec::unzigzag;
use proptest::prelude::*;

use super::*;

/// Bits of a chunk; past the end they are zeros.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn bits(&mut self, count: u32) -> u64 {
        let one = |at: usize| {
            let byte = self.bytes.get(at / 8).copied().unwrap_or(0);
            u64::from(byte >> (7 - at % 8) & 1)
        };
        let read = (self.at..self.at + count as usize).fold(0, |bits, at| bits << 1 | one(at));
        self.at += count as usize;
        read
    }

    fn varint(&mut self) -> u64 {
        let (mut read, mut shift) = (0, 0);
        loop {
            let byte = self.bits(8);
            read |= (byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return read;
            }
        }
    }

    fn difference(&mut self) -> i64 {
        let mut ones = 0;
        while ones < 4 && self.bits(1) == 1 {
            ones += 1;
        }
        let bits = match ones {
            0 => return 0,
            4 => return self.bits(64) as i64,
            ones => DIFFERENCE_BITS[ones - 1],
        };
        let read = self.bits(bits) as i64;
        if read > 1 << (bits - 1) { read - (1 << bits) } else { read }
    }

    fn value(&mut self, before: u64, window: &mut BitWindow) -> u64 {
        if self.bits(1) == 0 {
            return before;
        }
        if self.bits(1) == 1 {
            let leading = self.bits(5) as u32;
            let length = match self.bits(6) as u32 {
                0 => 64,
                length => length,
            };
            let trailing = 64 - leading - length;
            *window = BitWindow { leading, trailing };
        }
        let length = 64 - window.leading - window.trailing;
        before ^ self.bits(length) << window.trailing
    }
}

/// The samples of a chunk, values as their bits.
pub(crate) fn read(chunk: &[u8]) -> Vec<(TimeMs, u64)> {
    let mut reader = Reader { bytes: chunk, at: 0 };
    let count = reader.bits(16);
    let mut window = BitWindow { leading: 64, trailing: 0 };
    let (mut time_ms, mut difference, mut value) = (0_i64, 0_i64, 0);
    let mut samples = Vec::new();
    for at in 0..count {
        match at {
            0 => (time_ms, value) = (unzigzag(reader.varint()), reader.bits(64)),
            at => {
                difference = match at {
                    1 => reader.varint() as i64,
                    _ => difference.wrapping_add(reader.difference()),
                };
                time_ms = time_ms.wrapping_add(difference);
                value = reader.value(value, &mut window);
            }
        }
        samples.push((time_ms, value));
    }
    assert_eq!(reader.at.div_ceil(8), chunk.len(), "all of it is read");
    samples
}

fn check(samples: &[(TimeMs, u64)]) {
    let (times_ms, values): (Vec<_>, Vec<_>) =
        samples.iter().map(|(time_ms, bits)| (*time_ms, f64::from_bits(*bits))).unzip();
    let mut chunk = Vec::new();
    append_chunk(&times_ms, &values, &mut chunk);
    assert_eq!(read(&chunk), samples);
}

proptest! {
    #[test]
    fn samples_come_back(
        steps in prop::collection::vec((0_u32..63, any::<u64>(), any::<u64>(), 0_u32..64), 0..130),
    ) {
        let (mut time_ms, mut value) = (-5_i64, 0);
        let samples = steps.into_iter().map(|(bits, step, changed, kept)| {
            time_ms = time_ms.wrapping_add((step >> (63 - bits)) as i64);
            value ^= changed >> kept;
            (time_ms, value)
        });
        check(&samples.collect::<Vec<_>>());
    }
}

#[test]
fn differences_at_the_edges_of_their_sizes() {
    let mut all = vec![0];
    for bits in DIFFERENCE_BITS {
        let half = 1_i64 << (bits - 1);
        all.extend([half - 1, half, half + 1, -half + 2, -half + 1, -half, -half - 1]);
    }
    for difference in all {
        let second = 10_000_000_000;
        let third = second + second + difference;
        check(&[(0, 0), (second, 1), (third, 1 << 63 | 1), (third + 1, 7)]);
    }
}

/// Lines in pairs: the name of a series with its samples, values as their bits; the chunk that
/// Prometheus 2.42 made of them when it was sent them by remote write and asked for them by remote
/// read.
#[test]
fn chunks_are_those_of_prometheus() {
    let text = include_str!("../../tests/golden/xor-chunks-prometheus.txt");
    let lines: Vec<_> = text.lines().collect();
    for pair in lines.chunks(2) {
        let samples = pair[0].split(' ').skip(1).map(|sample| {
            let (time_ms, bits) = sample.split_once(':').expect("a time and bits");
            let bits = u64::from_str_radix(bits, 16).expect("bits");
            (time_ms.parse::<TimeMs>().expect("a time"), f64::from_bits(bits))
        });
        let (times_ms, values): (Vec<_>, Vec<_>) = samples.unzip();
        let mut chunk = Vec::new();
        append_chunk(&times_ms, &values, &mut chunk);
        let hex: String = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, pair[1]);
    }
}
