//! Where a series falls in `limit_ratio`: xxHash64 of its labels, laid out as Prometheus keeps them
//! in memory, so that the same series are chosen there and here.

use egret_metrics_model::Labels;

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

/// The hash of labels.
pub(super) fn label_hash(labels: &Labels) -> u64 {
    let mut bytes = Vec::new();
    for (name, value) in labels.iter() {
        for part in [name, value] {
            let length = part.len();
            match length {
                0..255 => bytes.push(length as u8),
                _ => bytes.extend([255, length as u8, (length >> 8) as u8, (length >> 16) as u8]),
            }
            bytes.extend_from_slice(part.as_bytes());
        }
    }
    xxhash64(&bytes)
}

fn round(state: u64, input: u64) -> u64 {
    let state = state.wrapping_add(input.wrapping_mul(P2));
    state.rotate_left(31).wrapping_mul(P1)
}

fn read_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn xxhash64(input: &[u8]) -> u64 {
    let stripes = input.chunks_exact(32);
    let mut rest = stripes.remainder();
    let mut hash = P5;
    if input.len() >= 32 {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, P1.wrapping_neg()];
        for stripe in stripes {
            for (lane, bytes) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, read_word(bytes));
            }
        }
        let rotations = [1, 7, 12, 18];
        let rotated = lanes.iter().zip(rotations).map(|(lane, turn)| lane.rotate_left(turn));
        hash = rotated.fold(0, u64::wrapping_add);
        for lane in lanes {
            hash = (hash ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4);
        }
    }
    hash = hash.wrapping_add(input.len() as u64);
    while rest.len() >= 8 {
        hash = (hash ^ round(0, read_word(&rest[..8]))).rotate_left(27);
        hash = hash.wrapping_mul(P1).wrapping_add(P4);
        rest = &rest[8..];
    }
    if rest.len() >= 4 {
        hash = (hash ^ read_word(&rest[..4]).wrapping_mul(P1)).rotate_left(23);
        hash = hash.wrapping_mul(P2).wrapping_add(P3);
        rest = &rest[4..];
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests;
