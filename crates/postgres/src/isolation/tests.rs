//! Mappings of owners are made once for each user id, and so many are kept.

use egret_base::test_support::not_checked;

use super::*;

/// User ids that no account and no server has.
const BASE: u32 = 1_999_000_000;

#[test]
fn a_user_id_keeps_its_mapping_of_owners() {
    if !rustix::process::geteuid().is_root() {
        not_checked("mappings of owners take root");
        return;
    }
    let users = Users {
        base: BASE,
        count: 1_000,
        taken: Mutex::default(),
        mappings: Mutex::default(),
    };
    let mapping = |id: u32| users.mapping(id, (0, 0)).unwrap();
    let first = mapping(BASE);
    assert!(Arc::ptr_eq(&first, &mapping(BASE)));
    assert!(!Arc::ptr_eq(&first, &mapping(BASE + 1)), "another user's");
    for id in BASE..BASE + 200 {
        mapping(id);
    }
    assert_eq!(lock(&users.mappings).len(), MAPPINGS_MAX);
    assert!(Arc::ptr_eq(&first, &mapping(BASE)));
    assert!(!Arc::ptr_eq(&mapping(BASE + 199), &mapping(BASE + 199)));
}
