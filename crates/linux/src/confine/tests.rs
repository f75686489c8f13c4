//! What a confined child can and cannot do.

use std::process::Stdio;

use super::*;

const LIMITS: ProcessLimits = ProcessLimits {
    memory_bytes_max: 1 << 30,
    processes_max: 100,
};

/// Runs a script of the shell with this reach, as this process's user; returns whether it succeeded.
fn run(reach: &Reach, script: &str) -> bool {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", script])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Confinement::new(reach, LIMITS, None)
        .expect("a kernel with Landlock")
        .apply(&mut command);
    command
        .status()
        .expect("the shell is within reach")
        .success()
}

fn shell() -> Reach {
    let programs = ["/bin", "/lib", "/lib64", "/usr"].map(PathBuf::from);
    Reach {
        executable: programs.into_iter().filter(|path| path.exists()).collect(),
        devices: vec!["/dev/null".into()],
        ..Reach::default()
    }
}

#[test]
fn a_confined_process_writes_where_it_may_and_reads_nothing_else() {
    let place = tempfile::tempdir().expect("a directory");
    let mut reach = shell();
    reach.writable.push(place.path().to_owned());
    let file = place.path().join("file");
    assert!(run(
        &reach,
        &format!("echo x > {0} && mv {0} {0}.new", file.display())
    ));
    assert!(!run(&reach, "cat /etc/passwd"));
    assert!(!run(&reach, "echo x > /tmp/egret-confined"));
    assert!(!run(&reach, "ls /proc"));
    let program = place.path().join("program");
    assert!(!run(
        &reach,
        &format!("cp /bin/true {0}; {0}", program.display())
    ));
}

#[test]
fn a_confined_process_signals_nobody_and_makes_no_namespace() {
    if landlock_version() < LANDLOCK_SIGNALS {
        return;
    }
    let reach = shell();
    assert!(run(&reach, "kill -0 $$"));
    assert!(!run(&reach, &format!("kill -0 {}", std::process::id())));
    assert!(!run(&reach, "unshare --user true"));
}
