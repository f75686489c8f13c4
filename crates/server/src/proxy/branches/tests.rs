//! Names as clients write them, and what each error becomes.

use egret_base::Timestamp;
use egret_base::settings::ByteSize;
use expect_test::{Expect, expect};

use super::*;

fn route(branch: &str) -> Route {
    Route { database: "app".to_owned(), branch: branch.to_owned() }
}

#[test]
fn a_tenant_follows_the_name() {
    let read = |text: &str| {
        let route = route(text);
        let found = parse_branch(&route).map(|(tenant, name)| format!("{name} of {tenant}"));
        found.unwrap_or_else(|refusal| refusal.sqlstate.to_owned())
    };
    assert_eq!(read("pr-42"), "pr-42 of default");
    assert_eq!(read("pr-42.acme"), "pr-42 of acme");
    assert_eq!(read("pr-42.a.b"), "pr-42 of a.b");
    assert_eq!(read("PR-42"), "3D000");
    assert_eq!(read(".acme"), "3D000");
    assert_eq!(read("../x"), "3D000");
}

#[test]
fn a_written_name_is_read_back() {
    let name: BranchName = "pr-42".parse().unwrap();
    for tenant in [DEFAULT_TENANT, "acme"] {
        let written = database_name("app", &name, tenant);
        let (database, branch) = written.rsplit_once('@').unwrap();
        assert_eq!(database, "app");
        assert_eq!(parse_branch(&route(branch)), Ok((tenant, name.clone())));
    }
}

fn check(error: BranchesError, expected: Expect) {
    let refusal = connection_refusal(&route("pr-42.acme"), error);
    let hint = refusal.hint.unwrap_or_default();
    expected.assert_eq(&format!("{} {} | {hint}", refusal.sqlstate, refusal.message));
}

#[test]
fn each_error_has_its_sqlstate() {
    let name = || "pr-42".to_owned();
    check(
        BranchesError::NotFound { name: name() },
        expect![[
            r#"3D000 branch "pr-42.acme" does not exist | `egret branch list` lists the existing branches"#
        ]],
    );
    let at = Timestamp::from_micros(1_800_000_000_000_000);
    check(
        BranchesError::Expired { name: name(), at },
        expect![[
            r#"3D000 branch "pr-42.acme" expired at 2027-01-15T08:00:00.000000Z | create a new one with `egret branch create`"#
        ]],
    );
    check(
        BranchesError::WrongState {
            name: name(),
            state: "failed",
            hint: "its server did not start".to_owned(),
        },
        expect![[
            r#"55000 branch "pr-42.acme" is failed: its server did not start | `egret branch show` has details; `egret branch reset` may repair a failed branch"#
        ]],
    );
    check(
        BranchesError::VolumeFull { free: ByteSize::mib(100), needed: ByteSize::mib(512) },
        expect![[
            r#"53100 branch "pr-42.acme" cannot be resumed: the volume has 100MB free, but 512MB are needed | destroy branches"#
        ]],
    );
    check(BranchesError::Stopping, expect!["57P03 egret is starting or stopping | connect again"]);
    check(
        BranchesError::Io {
            doing: "clone",
            path: "somewhere".to_owned(),
            source: std::io::ErrorKind::PermissionDenied.into(),
        },
        expect![[
            r#"XX000 branch "pr-42.acme": clone somewhere: permission denied | `egret branch show` and Egret's log have details"#
        ]],
    );
}
