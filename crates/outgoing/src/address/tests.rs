//! Addresses of the public internet are told from the special ones.

use super::*;

#[test]
fn only_public_addresses_are_public() {
    let public = ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"];
    for address in public {
        assert!(is_public(address.parse().unwrap()), "{address}");
    }
    let special = [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.0.8",
        "::",
        "::1",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "2001:db8::1",
        "::127.0.0.1",
        "2001::1",
        "64:ff9b:1::a00:1",
        "192.88.99.1",
        "fec0::1",
    ];
    for address in special {
        assert!(!is_public(address.parse().unwrap()), "{address}");
    }
}
