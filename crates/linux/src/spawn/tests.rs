//! A program is in its group from the start, and starts as the standard library would have it.

use std::io::Write;
use std::time::Duration;

use super::*;
use crate::cgroup::ControlGroup;
use crate::confine::{CommonPaths, PathTable, ProcessLimits, Reach};
use crate::test_support::new_group;

fn confinement() -> Confinement {
    let common = CommonPaths {
        executable: ["/bin", "/lib", "/lib64", "/usr"].map(PathBuf::from).to_vec(),
        devices: vec!["/dev/null".into()],
        ..CommonPaths::default()
    };
    let reach = Reach {
        common_paths: PathTable::look_up(common).expect("a table of paths").into(),
        writable: Vec::new(),
    };
    let limits = ProcessLimits { memory_bytes_max: 1 << 30, processes_max: 100 };
    Confinement::new(&reach, limits, None).expect("a kernel with Landlock")
}

fn shell(script: &str) -> Program {
    Program {
        path: "/bin/sh".into(),
        arguments: ["-c", script, "name", "an argument"].map(OsString::from).to_vec(),
        environment: vec![("VALUE".into(), "a value".into())],
    }
}

/// The streams of a child, and this process's ends of its input and its output.
fn streams() -> (StandardStreams, File, File) {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let ((input, to_child), (from_child, output)) = (pipe(), pipe());
    let errors = output.try_clone().expect("a descriptor");
    let streams = StandardStreams { input, output, errors };
    (streams, to_child.into(), from_child.into())
}

/// What a started shell has to say of itself; it must have no more than the three streams open.
const SCRIPT: &str = "echo \"$0, $1, $VALUE, $PWD\"; echo error >&2; read line; echo \"$line\"; \
    kill -PIPE $$; echo alive";

/// Checks a shell that runs [`SCRIPT`], whose streams' other ends these are.
fn check_shell(pid: Pid, mut to_child: File, mut from_child: File) {
    let number = pid.as_raw_nonzero().get();
    assert_eq!(rustix::process::getsid(Some(pid)), Ok(pid), "a session of its own");
    let mut open: Vec<String> = std::fs::read_dir(format!("/proc/{number}/fd"))
        .expect("a child")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a number"))
        .collect();
    // The shell may keep a copy of a stream beyond its own ten.
    open.retain(|number| number.parse::<u32>().is_ok_and(|number| number < 10));
    open.sort();
    assert_eq!(open, ["0", "1", "2"]);
    to_child.write_all(b"a line\n").expect("a shell that reads");
    drop(to_child);
    let mut said = String::new();
    from_child.read_to_string(&mut said).expect("text");
    assert_eq!(said, "name, an argument, a value, /\nerror\na line\n");
    let ended = rustix::process::waitpid(Some(pid), WaitOptions::empty()).expect("a child");
    let (_, status) = ended.expect("it has ended");
    assert_eq!(status.terminating_signal(), Some(libc::SIGPIPE), "it is not ignored");
}

#[test]
fn a_program_starts_inside_of_its_group() {
    let Some(group) = new_group("inside") else {
        return;
    };
    let entrance = group.open_entrance().expect("a group");
    let (streams, to_child, from_child) = streams();
    let confinement = confinement().with_group(entrance);
    let directory = confinement.group().expect("the group").directory();
    let spawning = match shell(SCRIPT).spawn_in(directory, &streams, &confinement) {
        Err(error) if is_unsupported(&error) => {
            crate::test_support::not_checked(format_args!(
                "no process is made in a group: {error}"
            ));
            return group.remove().expect("an empty group");
        }
        spawning => spawning.expect("a child"),
    };
    drop((streams, confinement));
    let pid = spawning.pid.as_raw_nonzero().get();
    assert_eq!(ControlGroup::of_process(pid).as_ref(), Ok(&group));
    let pid = spawning.wait_for_exec().expect("a program that runs");
    check_shell(pid, to_child, from_child);
    group.kill_and_remove(Duration::from_secs(60)).expect("it ends");
}

#[test]
fn a_program_that_moves_to_its_group_starts_alike() {
    let group = new_group("moves");
    let mut confinement = confinement();
    if let Some(group) = &group {
        confinement = confinement.with_group(group.open_entrance().expect("a group"));
    }
    let (streams, to_child, from_child) = streams();
    let started = shell(SCRIPT).spawn_and_move(streams, confinement);
    let pid = started.expect("a program that runs");
    if let Some(group) = &group {
        let found = ControlGroup::of_process(pid.as_raw_nonzero().get());
        assert_eq!(found.as_ref(), Ok(group));
    }
    check_shell(pid, to_child, from_child);
    if let Some(group) = group {
        group.kill_and_remove(Duration::from_secs(60)).expect("it ends");
    }
}

#[test]
fn what_keeps_a_program_from_starting_is_returned() {
    let Some(group) = new_group("refused") else {
        return;
    };
    let entrance = group.open_entrance().expect("a group");
    let program = Program { path: "/bin/no-such-program".into(), ..shell("") };
    let (streams, _to_child, mut from_child) = streams();
    let refused = program.spawn(streams, confinement().with_group(entrance));
    assert_eq!(refused.expect_err("no program").kind(), io::ErrorKind::NotFound);
    // Nothing is left that has the streams.
    let mut said = String::new();
    from_child.read_to_string(&mut said).expect("text");
    assert_eq!(said, "");
    assert!(!group.is_populated().expect("a group"));
    let nul = Program { arguments: vec!["a\0b".into()], ..shell("") };
    let entrance = group.open_entrance().expect("a group");
    let (streams, _to_child, _from_child) = self::streams();
    let refused = nul.spawn(streams, confinement().with_group(entrance));
    assert_eq!(refused.expect_err("no text").kind(), io::ErrorKind::InvalidInput);
    group.remove().expect("an empty group");
}

#[test]
fn what_a_filter_of_system_calls_may_answer_has_a_program_start_the_other_way() {
    for number in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        assert!(is_unsupported(&io::Error::from_raw_os_error(number)));
    }
    for number in [libc::EAGAIN, libc::ENOMEM, libc::EBUSY] {
        assert!(!is_unsupported(&io::Error::from_raw_os_error(number)));
    }
}
