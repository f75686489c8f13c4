//! The hash, against values that its authors publish and others compute.

use super::xxhash64;

#[test]
fn it_is_xxhash64() {
    assert_eq!(xxhash64(b""), 0xEF46_DB37_51D8_E999);
    assert_eq!(xxhash64(b"a"), 0xD24E_C4F1_A98C_6E5B);
    assert_eq!(xxhash64(b"abc"), 0x44BC_2CF5_AD77_0999);
}
