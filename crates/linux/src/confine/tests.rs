//! What a confined child can and cannot do.

use std::process::{Child, ChildStdin, Stdio};

use super::*;
use crate::test_support::not_checked;

const LIMITS: ProcessLimits = ProcessLimits { memory_bytes_max: 1 << 30, processes_max: 100 };

/// Runs a script of the shell with this reach, as this process's user; returns whether it
/// succeeded.
fn run(reach: &Reach, script: &str) -> bool {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
    Confinement::new(reach, LIMITS, None).expect("a kernel with Landlock").apply(&mut command);
    command.status().expect("the shell is within reach").success()
}

/// Starts a script that ends with `cat`, with a root of its own, and returns when that runs: behind
/// its confinement, after all that comes before has gone well. It ends with its input.
fn start(reach: &Reach, user: PrivateUser, script: &str) -> (Child, ChildStdin) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Confinement::new(reach, LIMITS, Some(user)).expect("a root of its own").apply(&mut command);
    let mut child = command.spawn().expect("the shell is within reach");
    let mut stdin = child.stdin.take().expect("a pipe");
    io::Write::write_all(&mut stdin, b"x").expect("a shell that reads");
    let mut echo = [0];
    let stdout = child.stdout.as_mut().expect("a pipe");
    io::Read::read_exact(stdout, &mut echo).expect("the script went well");
    (child, stdin)
}

/// What the shell needs.
fn shell_paths() -> CommonPaths {
    let programs = ["/bin", "/lib", "/lib64", "/usr"].map(PathBuf::from);
    CommonPaths {
        executable: programs.into_iter().filter(|path| path.exists()).collect(),
        devices: vec!["/dev/null".into()],
        ..CommonPaths::default()
    }
}

fn reach(common: CommonPaths) -> Reach {
    Reach {
        common_paths: Arc::new(PathTable::look_up(common).expect("a table of paths")),
        writable: Vec::new(),
    }
}

fn shell() -> Reach {
    reach(shell_paths())
}

#[test]
fn a_confined_process_writes_where_it_may_and_reads_nothing_else() {
    let place = tempfile::tempdir().expect("a directory");
    let mut reach = shell();
    reach.writable.push(place.path().to_owned());
    let file = place.path().join("file");
    assert!(run(&reach, &format!("echo x > {0} && mv {0} {0}.new", file.display())));
    assert!(!run(&reach, "cat /etc/passwd"));
    assert!(!run(&reach, "echo x > /tmp/egret-confined"));
    assert!(!run(&reach, "ls /proc"));
    let program = place.path().join("program");
    assert!(!run(&reach, &format!("cp /bin/true {0}; {0}", program.display())));
}

#[test]
fn a_confined_process_signals_nobody_and_makes_no_namespace() {
    if landlock_version() < LANDLOCK_SIGNALS {
        not_checked("before Linux 6.12 a confined process may signal others");
        return;
    }
    let reach = shell();
    assert!(run(&reach, "kill -0 $$"));
    assert!(!run(&reach, &format!("kill -0 {}", std::process::id())));
    assert!(!run(&reach, "unshare --user true"));
}

/// A user id that no account and no range of settings has.
const USER: u32 = 1_999_999_999;

#[test]
fn a_process_with_a_root_of_its_own_holds_no_other_mount() {
    if !rustix::process::geteuid().is_root() {
        not_checked("a root file system of its own takes root");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let inside = place.path().join("inside");
    std::fs::create_dir(&inside).expect("a directory in it");
    let stored = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // As with a data directory that is named through a symbolic link.
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&inside, &link).expect("a link to it");
    let mapping = mount::owner_mapping(stored.0, stored.1, USER).expect("a mapping of owners");
    let shown = mount::mount_with_owner(&inside, &mapping).expect("a file system that maps owners");
    let user = PrivateUser { id: USER, mounts: vec![(shown, link.clone())], scratch: None };
    let mut reach = shell();
    reach.writable.push(link.clone());
    let script = format!(
        "test -z \"$(ls -d /etc /proc /root /dev/pts {0}/outside 2>/dev/null)\" \
            && ! mkdir /here && echo written > {1}/file && cd {1} && cat",
        place.path().display(),
        link.display()
    );
    std::fs::write(place.path().join("outside"), "").expect("a file beside it");
    let (mut child, stdin) = start(&reach, user, &script);
    let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", child.id()))
        .expect("a process that runs");
    let common = shell_paths();
    let within = |mounted: &str| {
        let reached = [&common.executable, &reach.writable, &common.devices];
        let mut reached = reached.into_iter().flatten();
        let mut real = |path: &PathBuf| {
            let path = std::fs::canonicalize(path).expect("a path that is within reach");
            Path::new(mounted).starts_with(path)
        };
        mounted == "/" || reached.any(&mut real)
    };
    for line in mounts.lines() {
        let mounted = line.split(' ').nth(4).expect("a mount point");
        assert!(within(mounted), "{mounts}");
    }
    assert_eq!(user_of(child.id().cast_signed()), Some(USER));
    let directory = std::fs::read_link(format!("/proc/{}/cwd", child.id()));
    assert_eq!(directory.expect("a process that runs"), inside);
    drop(stdin);
    assert!(child.wait().expect("a child").success());
    let owner = std::fs::metadata(inside.join("file")).expect("what it wrote");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), stored.0);
}

#[test]
fn a_root_shows_a_file_in_the_place_of_another_one() {
    if !rustix::process::geteuid().is_root() {
        not_checked("a root file system of its own takes root");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let [inside, shown, link, other] =
        ["inside", "shown", "link", "other"].map(|name| place.path().join(name));
    std::fs::create_dir(&inside).expect("a directory in it");
    std::fs::write(&shown, "what is there\n").expect("a file");
    std::fs::write(&other, "what is shown\n").expect("a file");
    // The place may be named through a symbolic link, as any path.
    std::os::unix::fs::symlink(&shown, &link).expect("a link");
    let user = PrivateUser { id: USER, mounts: Vec::new(), scratch: None };
    let mut reach = reach(CommonPaths {
        replacements: vec![Replacement { path: other.clone(), shown_at: link.clone() }],
        ..shell_paths()
    });
    reach.writable.push(inside);
    let script = format!(
        "test \"$(cat {0})\" = 'what is shown' && test \"$(cat {1})\" = 'what is shown' \
            && ! test -e {2} && ! echo x > {0} && cat",
        shown.display(),
        link.display(),
        other.display()
    );
    let (mut child, stdin) = start(&reach, user, &script);
    drop(stdin);
    assert!(child.wait().expect("a child").success());
}

#[test]
fn mappings_of_owners_leave_neither_processes_nor_blocked_signals() {
    if !rustix::process::geteuid().is_root() {
        not_checked("mappings of owners take root");
        return;
    }
    let of_this_thread = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/{file}"));
    let blocked = || {
        let status = of_this_thread("status").expect("a thread that runs");
        let line = status.lines().find(|line| line.starts_with("SigBlk:"));
        line.expect("signals that are blocked").to_owned()
    };
    let make = |number: u32| {
        let before = blocked();
        let made: Vec<OwnedFd> = (0..10)
            .map(|index| mount::owner_mapping(0, 0, USER - number - index).expect("a mapping"))
            .collect();
        assert_eq!(blocked(), before);
        // The kernel may be built without the list.
        assert_eq!(of_this_thread("children").unwrap_or_default(), "");
        made
    };
    // As when several servers start at the same time.
    let mappings: Vec<OwnedFd> = std::thread::scope(|scope| {
        let threads = [0, 10, 20, 30].map(|number| scope.spawn(move || make(number)));
        let made = threads.into_iter();
        made.flat_map(|thread| thread.join().expect("ten mappings")).collect()
    });
    let namespaces: std::collections::BTreeSet<u64> = mappings
        .iter()
        .map(|mapping| rustix::fs::fstat(mapping).expect("a namespace").st_ino)
        .collect();
    assert_eq!(namespaces.len(), 40);
}

#[test]
fn processes_of_a_user_are_killed_whether_they_may_be_dumped_or_not() {
    use rustix::process::{Pid, WaitId, WaitIdOptions};
    if !rustix::process::geteuid().is_root() {
        not_checked("a process of another user takes root");
        return;
    }
    // Not that of another test, whose processes are to live.
    let user = USER - 1_000;
    let place = tempfile::tempdir().expect("a directory");
    let set_mode = |path: &Path, mode: u32| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("a file of this user's");
    };
    set_mode(place.path(), 0o711);
    // A program that its user cannot read may not be dumped.
    let unreadable = place.path().join("cat");
    std::fs::copy("/bin/cat", &unreadable).expect("a program");
    set_mode(&unreadable, 0o711);
    let programs = [Path::new("/bin/cat"), &unreadable];
    let mut children = programs.map(|program| {
        let mut command = Command::new(program);
        command.uid(user).gid(user).stdin(Stdio::piped());
        command.spawn().expect("a program of another user")
    });
    let owner = |child: &Child| {
        let file = format!("/proc/{}/status", child.id());
        std::fs::metadata(file).expect("a process that runs").uid()
    };
    assert_eq!(children.each_ref().map(owner), [user, 0], "one may be dumped");
    assert!(has_processes(user));
    assert_eq!(kill_processes_of(user), 2);
    for child in &children {
        let pid = Pid::from_child(child);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), options).expect("a child");
    }
    assert_eq!(kill_processes_of(user), 0, "they have ended");
    for child in &mut children {
        let status = child.wait().expect("a child");
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGKILL));
    }
    assert!(!has_processes(user));
}

#[test]
fn a_file_system_in_memory_of_its_own_is_bounded_and_runs_nothing() {
    if !rustix::process::geteuid().is_root() {
        not_checked("a root file system of its own takes root");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let inside = place.path().join("inside");
    let scratch = place.path().join("scratch");
    std::fs::create_dir(&inside).expect("a directory in it");
    std::fs::create_dir(&scratch).expect("a directory in it");
    let tmpfs = mount::small_tmpfs(USER, 64 << 10, 8).expect("a file system in memory");
    let user =
        PrivateUser { id: USER, mounts: Vec::new(), scratch: Some((tmpfs, scratch.clone())) };
    let mut reach = shell();
    reach.writable.push(inside);
    let script = format!(
        "cd {} && echo 'exit 0' > program && chmod 700 program && ! ./program && echo x > file \
            && ! head -c 1000000 /dev/zero > more && test $(stat -c %s more) -lt 65536 && cat",
        scratch.display()
    );
    let (mut child, stdin) = start(&reach, user, &script);
    // From outside it is found through the process, and nowhere else.
    let seen = format!("/proc/{}/root{}/file", child.id(), scratch.display());
    assert_eq!(std::fs::read_to_string(seen).expect("its file"), "x\n");
    assert!(!scratch.join("file").exists());
    drop(stdin);
    assert!(child.wait().expect("a child").success());
}

#[test]
fn system_calls_that_are_newer_than_the_filters_do_not_exist() {
    let place = tempfile::tempdir().expect("a directory");
    let path = std::ffi::CString::new(place.path().as_os_str().as_encoded_bytes().to_vec());
    let path = path.expect("a path without zero");
    // fchmodat2, setxattrat, removexattrat, file_setattr; and fchmodat of the x32 interface.
    for number in [452, 463, 466, 469, 0x4000_0000 | libc::SYS_fchmodat] {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "true"]);
        Confinement::new(&shell(), LIMITS, None).expect("a confinement").apply(&mut command);
        let path = path.clone();
        #[expect(unsafe_code, reason = "pre_exec is the only way to act in the child")]
        // SAFETY: the closure runs in the forked child before exec and makes one bare system call,
        // whose path is a null-terminated string that lives as long as the closure.
        unsafe {
            command.pre_exec(move || {
                let done = libc::syscall(number, libc::AT_FDCWD, path.as_ptr(), 0, 0, 0, 0);
                let error = io::Error::last_os_error();
                match (done, error.raw_os_error()) {
                    (-1, Some(libc::ENOSYS)) => Ok(()),
                    _ => Err(io::Error::from_raw_os_error(libc::EEXIST)),
                }
            });
        }
        let status = command.status();
        assert!(status.expect("it does not exist").success(), "{number}");
    }
    let mode = std::fs::metadata(place.path()).expect("a directory");
    assert_ne!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o700, 0);
}
