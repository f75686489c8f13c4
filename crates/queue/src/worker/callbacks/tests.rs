//! Signatures and keys.

use egret_base::SeededEntropy;

use super::*;

#[test]
fn a_signature_is_that_of_time_and_body() {
    // Computed with `printf '1700000000.{"a":1}' | openssl dgst -sha256 -mac HMAC -macopt
    // hexkey:0101…`.
    let expected =
        "t=1700000000,v1=50b81abff5fbf09d5b1a160aa5dd1e132eda884ca74bf9cce40184cb8896224d";
    let made = signature(&[1; 32], 1_700_000_000, br#"{"a":1}"#);
    assert_eq!(made, expected);
}

#[test]
fn a_key_is_made_once_and_a_damaged_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let made = load_or_create_key(directory.path(), &SeededEntropy::new(1)).unwrap();
    assert_eq!(load_or_create_key(directory.path(), &SeededEntropy::new(2)).unwrap(), made);
    std::fs::write(directory.path().join("callback.key"), "short").unwrap();
    assert!(load_or_create_key(directory.path(), &SeededEntropy::new(3)).is_err());
}
