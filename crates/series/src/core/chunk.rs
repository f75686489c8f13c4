//! Samples in memory: times and values as they come, compressed, readable while they are written.
//!
//! The encoding is that of Pelkonen et al., "Gorilla: A Fast, Scalable, In-Memory Time Series
//! Database" (VLDB 2015), with milliseconds: a time is the difference from the difference before
//! it, a value the exclusive-or with the value before it. One thread appends, any number read: a
//! chunk is an array of atomic words of fixed size, of which the first says how many samples and
//! bits are there. What is below that never changes.

mod bits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use egret_metrics_model::TimeMs;

use bits::{BitReader, BitWriter};
use egret_base::codec::{unzigzag, zigzag};

/// Words before the bits: what is published.
const HEADER_WORDS: usize = 1;

/// Words of a series' first chunk; every one after it has twice as many as the one before…
const WORDS_MIN: usize = 8;

const WORDS_MAX: usize = 64;

/// The most that one sample takes, in bits: time 4 + 64, value 2 + 5 + 6 + 64.
const SAMPLE_BITS_MAX: usize = 68 + 77;

/// Samples that can be read while others are added. A clone is the same chunk.
#[derive(Clone, Debug)]
pub struct Chunk {
    words: Arc<[AtomicU64]>,
    /// Here, so that a chunk that is not wanted is not touched.
    first_ms: TimeMs,
}

/// The chunk has no room for another sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsFull;

impl Chunk {
    fn new(words: usize, first_ms: TimeMs) -> Self {
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), first_ms }
    }

    fn publish(&self, samples: u32, bits: usize) {
        let published = u64::from(samples) << 32 | bits as u64;
        self.words[0].store(published, Ordering::Release);
    }

    /// Number of samples and bits that are published.
    fn published(&self) -> (u32, usize) {
        let published = self.words[0].load(Ordering::Acquire);
        ((published >> 32) as u32, published as u32 as usize)
    }

    /// Number of samples published so far.
    pub fn len(&self) -> usize {
        self.published().0 as usize
    }

    /// Whether the chunk has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The time of its first sample.
    pub fn first_ms(&self) -> TimeMs {
        self.first_ms
    }

    /// Memory it takes, in bytes, without what an allocator adds.
    pub fn size_bytes(&self) -> usize {
        size_of_val(&*self.words) + 2 * size_of::<usize>()
    }

    /// Its samples as they are now, in the order in which they were added.
    pub fn samples(&self) -> ChunkSamples<'_> {
        let (samples, _) = self.published();
        ChunkSamples {
            bits: BitReader::new(&self.words[HEADER_WORDS..]),
            remaining: samples,
            time_ms: self.first_ms,
            delta_ms: 0,
            value: 0,
            window: XorWindow::default(),
        }
    }
}

/// The bits of a value that differ from the one before: so many zeros before them, so many of them.
#[derive(Clone, Copy, Debug, Default)]
struct XorWindow {
    leading: u8,
    /// None: there is no window yet.
    length: u8,
}

/// Adds samples to a series' open chunk. What it needs of the sample before is here and not in the
/// chunk.
#[derive(Debug)]
pub struct Appender {
    chunk: Chunk,
    bits: BitWriter,
    last_ms: TimeMs,
    delta_ms: i64,
    last_value_bits: u64,
    samples: u32,
    window: XorWindow,
}

impl Appender {
    /// Begins a series' first chunk with a sample.
    pub fn new(time_ms: TimeMs, value: f64) -> Self {
        Self::with_words(WORDS_MIN, time_ms, value)
    }

    fn with_words(words: usize, time_ms: TimeMs, value: f64) -> Self {
        #[cfg(test)]
        work::ENCODED_SAMPLES.with(|encoded| encoded.set(encoded.get() + 1));
        let chunk = Chunk::new(words, time_ms);
        let mut bits = BitWriter::default();
        bits.write(&chunk.words[HEADER_WORDS..], value.to_bits(), 64);
        chunk.publish(1, bits.len());
        Self {
            chunk,
            bits,
            last_ms: time_ms,
            delta_ms: 0,
            last_value_bits: value.to_bits(),
            samples: 1,
            window: XorWindow::default(),
        }
    }

    /// The chunk, for readers.
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// The time of the latest sample.
    pub fn last_ms(&self) -> TimeMs {
        self.last_ms
    }

    /// The value of the latest sample.
    pub fn last_value(&self) -> f64 {
        f64::from_bits(self.last_value_bits)
    }

    /// Adds a sample that is later than the latest.
    ///
    /// # Errors
    /// [`IsFull`]: nothing has changed; [`Appender::begin_next`] makes room.
    pub fn push(&mut self, time_ms: TimeMs, value: f64) -> Result<(), IsFull> {
        let words = &self.chunk.words[HEADER_WORDS..];
        if self.bits.len() + SAMPLE_BITS_MAX > words.len() * 64 {
            return Err(IsFull);
        }
        let delta_ms = time_ms.wrapping_sub(self.last_ms);
        write_time(&mut self.bits, words, delta_ms.wrapping_sub(self.delta_ms));
        let value = value.to_bits();
        write_value(&mut self.bits, words, &mut self.window, value ^ self.last_value_bits);
        #[cfg(test)]
        work::ENCODED_SAMPLES.with(|encoded| encoded.set(encoded.get() + 1));
        self.samples += 1;
        (self.last_ms, self.delta_ms, self.last_value_bits) = (time_ms, delta_ms, value);
        self.chunk.publish(self.samples, self.bits.len());
        Ok(())
    }

    /// Goes on in a new chunk, which begins with this sample, and returns the one that is full.
    pub fn begin_next(&mut self, time_ms: TimeMs, value: f64) -> Chunk {
        let words = (self.chunk.words.len() * 2).min(WORDS_MAX);
        let next = Self::with_words(words, time_ms, value);
        std::mem::replace(self, next).chunk
    }
}

/// Times: a prefix of ones says how many bits the difference of differences has, in zigzag.
const TIME_CLASSES: [(u64, u32, u32); 4] =
    [(0b10, 2, 7), (0b110, 3, 11), (0b1110, 4, 16), (0b1111, 4, 64)];

fn write_time(bits: &mut BitWriter, words: &[AtomicU64], difference: i64) {
    if difference == 0 {
        return bits.write(words, 0, 1);
    }
    let zigzag = zigzag(difference);
    let bits_needed = 64 - zigzag.leading_zeros();
    let fits = TIME_CLASSES.iter().find(|(_, _, length)| bits_needed <= *length);
    let (prefix, prefix_bits, length) = fits.expect("the last class takes any");
    bits.write(words, *prefix, *prefix_bits);
    bits.write(words, zigzag, *length);
}

fn write_value(bits: &mut BitWriter, words: &[AtomicU64], window: &mut XorWindow, difference: u64) {
    if difference == 0 {
        return bits.write(words, 0, 1);
    }
    let leading = difference.leading_zeros().min(31) as u8;
    let trailing = difference.trailing_zeros() as u8;
    let window_trailing = 64 - window.leading - window.length;
    if window.length > 0 && leading >= window.leading && trailing >= window_trailing {
        bits.write(words, 0b10, 2);
        return bits.write(words, difference >> window_trailing, u32::from(window.length));
    }
    let length = 64 - leading - trailing;
    *window = XorWindow { leading, length };
    // 64 is written as 0, as no length is.
    let header = 0b11 << 11 | u64::from(leading) << 6 | u64::from(length & 63);
    bits.write(words, header, 13);
    bits.write(words, difference >> trailing, u32::from(length));
}

/// Iterator over the samples of a chunk, returned by [`Chunk::samples`].
#[derive(Debug)]
pub struct ChunkSamples<'chunk> {
    bits: BitReader<'chunk>,
    remaining: u32,
    time_ms: TimeMs,
    delta_ms: i64,
    value: u64,
    window: XorWindow,
}

impl ChunkSamples<'_> {
    /// Reads a time; of the bits that come next, returns those after it, and how many of them are
    /// gone.
    #[inline(always)]
    fn read_time(&mut self) -> (u64, u32) {
        let next_bits = self.bits.peek();
        let ones = next_bits.leading_ones().min(4);
        if ones == 0 {
            self.time_ms = self.time_ms.wrapping_add(self.delta_ms);
            return (next_bits << 1, 1);
        }
        let (_, prefix_bits, length) = TIME_CLASSES[ones as usize - 1];
        self.bits.skip(prefix_bits);
        let difference = unzigzag(self.bits.read(length));
        self.delta_ms = self.delta_ms.wrapping_add(difference);
        self.time_ms = self.time_ms.wrapping_add(self.delta_ms);
        (self.bits.peek(), 0)
    }

    /// Reads a value, given the bits that come next, of which so many are gone.
    #[inline(always)]
    fn read_value(&mut self, next_bits: u64, consumed: u32) {
        if next_bits >> 63 == 0 {
            return self.bits.skip(consumed + 1);
        }
        let header_bits = match next_bits >> 62 {
            0b10 => 2,
            _ => {
                let header = next_bits << 2 >> 53;
                self.window = XorWindow {
                    leading: (header >> 6) as u8,
                    length: match header & 63 {
                        0 => 64,
                        length => length as u8,
                    },
                };
                13
            }
        };
        let XorWindow { leading, length } = self.window;
        let gone = consumed + header_bits;
        // All of it is there already, most of the time.
        let difference = if gone + u32::from(length) <= 64 {
            self.bits.skip(gone + u32::from(length));
            next_bits << header_bits >> (64 - length)
        } else {
            self.bits.skip(gone);
            self.bits.read(u32::from(length))
        };
        let trailing = 64_u8.wrapping_sub(leading).wrapping_sub(length);
        self.value ^= difference << (trailing & 63);
    }
}

impl Iterator for ChunkSamples<'_> {
    type Item = (TimeMs, f64);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 {
            return None;
        }
        #[cfg(test)]
        work::DECODED_SAMPLES.with(|decoded| decoded.set(decoded.get() + 1));
        self.remaining -= 1;
        if self.bits.position() == 0 {
            self.value = self.bits.read(64);
        } else {
            let (next_bits, consumed) = self.read_time();
            self.read_value(next_bits, consumed);
        }
        Some((self.time_ms, f64::from_bits(self.value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining as usize, Some(self.remaining as usize))
    }
}

#[cfg(test)]
mod tests;

/// Counts of the work of a thread, for tests.
#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local! {
        pub(crate) static DECODED_SAMPLES: Cell<usize> = const { Cell::new(0) };
        pub(crate) static ENCODED_SAMPLES: Cell<usize> = const { Cell::new(0) };
    }
}
