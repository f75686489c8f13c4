//! Numbers of so many bits each, one after another, the lowest bit first.

/// Appends numbers, each of which fits `width` bits.
pub(super) fn pack(numbers: &[u64], width: u32, out: &mut Vec<u8>) {
    let (mut word, mut filled) = (0_u128, 0);
    for number in numbers {
        word |= u128::from(*number) << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&(word as u64).to_le_bytes());
            word >>= 64;
            filled -= 64;
        }
    }
    let rest = (word as u64).to_le_bytes();
    out.extend_from_slice(&rest[..filled.div_ceil(8) as usize]);
}

/// The largest width of a number that one 64-bit word holds from any bit of its first byte on.
const ONE_WORD_WIDTH_MAX: u32 = 57;

/// Calls `visit` with each of `count` numbers; `packed` has all of them.
#[inline]
pub(super) fn unpack(packed: &[u8], width: u32, count: usize, mut visit: impl FnMut(u64)) {
    if width == 0 {
        return (0..count).for_each(|_| visit(0));
    }
    let mask = u64::MAX >> (64 - width);
    let width = width as usize;
    // Numbers whose word ends within the bytes.
    let word_count = match packed.len().checked_sub(8) {
        Some(last) if width <= ONE_WORD_WIDTH_MAX as usize => count.min((last * 8 + 7) / width + 1),
        _ => 0,
    };
    let mut bit = 0;
    for _ in 0..word_count {
        let word = packed[bit / 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        visit(word >> (bit % 8) & mask);
        bit += width;
    }
    for _ in word_count..count {
        let mut word = [0; 16];
        let rest = &packed[bit / 8..];
        let length = rest.len().min(16);
        word[..length].copy_from_slice(&rest[..length]);
        visit((u128::from_le_bytes(word) >> (bit % 8)) as u64 & mask);
        bit += width;
    }
}
