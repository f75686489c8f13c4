//! The limit of one series' key. It is apart from remote write 2.0, which applies it, as errors
//! know it by its name: over it, one series is refused and not the request.

use egret_base::limit::Limit;

/// Bytes that the key of one series may have, which bounds the memory that is kept for keys.
pub(crate) const KEY_BYTES_MAX: Limit = Limit::new("key_bytes_max", 1 << 20);
