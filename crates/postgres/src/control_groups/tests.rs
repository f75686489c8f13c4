//! Groups of servers, below a group of the test's own where that can be made.
//!
//! Controllers differ from machine to machine; `hugetlb` stands in where the others are elsewhere.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use egret_base::{CodedError, Kind};
use egret_base_test::not_checked;

use super::*;

mod names;

const LIMITS: GroupLimits = GroupLimits {
    memory_max: ByteSize::mib(64),
    total_memory_max: ByteSize::mib(128),
    cpu_percent_max: 50,
    total_cpu_weight: 50,
    processes_max: 20,
    total_processes_max: 30,
};

/// Environment variable that tells a child of this test its task.
const TASK: &str = "EGRET_TEST_CONTROL_GROUPS";

/// A group of the test's own below that of this process, which ends with it.
struct TestGroup(ControlGroup);

impl TestGroup {
    /// `None`, with a message, where no group can be made.
    fn new(name: &str) -> Option<Self> {
        let made = ControlGroup::own().and_then(|own| {
            let group = own.child(&format!("egret-test-{name}-{}", std::process::id()));
            group.create().map_err(|error| error.to_string())?;
            Ok(Self(group))
        });
        made.inspect_err(|reason| not_checked(format_args!("no control group here: {reason}"))).ok()
    }

    /// Gives groups below a controller of the root; reports where that is not possible.
    fn has(&self, controller: &str) -> bool {
        let parent = self.0.parent().expect("a group above");
        let given = parent.enable_controller(controller);
        if let Err(error) = &given {
            not_checked(format_args!("no controller {controller} here: {error}"));
        }
        given.is_ok()
    }

    fn open(&self, wanted: &[&'static str]) -> ControlGroups {
        self.open_for(&std::env::temp_dir(), wanted)
    }

    fn open_for(&self, data: &Path, wanted: &[&'static str]) -> ControlGroups {
        ControlGroups::open_below(Ok(self.0.clone()), GroupPolicy::Auto, LIMITS, data, wanted)
    }

    /// Runs the test `name` of this program in the group; `task` says what it is to do.
    fn run_test(&self, name: &str, task: &str) {
        let program = std::env::current_exe().expect("a program");
        let program = program.to_str().expect("a path of text");
        let name = format!("control_groups::tests::{name}");
        let mut child = run_in(&self.0, program, &["--exact", &name, "--nocapture"], task);
        let mut output = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        stdout.read_to_string(&mut output).expect("text");
        assert!(child.wait().expect("a child").success(), "{output}");
        assert!(output.contains("1 passed"), "{output}");
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        let ended = self.0.kill_and_remove(Duration::from_secs(60));
        assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
    }
}

/// A program in a group, started when it is in there.
fn run_in(group: &ControlGroup, program: &str, arguments: &[&str], task: &str) -> Child {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "read go && exec \"$0\" \"$@\"", program])
        .args(arguments)
        .env(TASK, task)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    group.move_process(child.id().cast_signed()).expect("a child that can be moved");
    let stdin = child.stdin.as_mut().expect("a pipe");
    stdin.write_all(b"go\n").expect("a shell that reads");
    child
}

/// A server that runs until its group ends.
fn server_in(group: &ControlGroup) -> Child {
    run_in(group, "/bin/cat", &[], "")
}

fn groups_below(group: &ControlGroup) -> Vec<String> {
    let children = group.children().unwrap_or_default();
    children.iter().map(|child| child.name().to_owned()).collect()
}

#[test]
fn a_server_has_a_group_of_its_own_until_it_ends() {
    let Some(base) = TestGroup::new("server") else {
        return;
    };
    let groups = base.open(&[]);
    assert!(groups.is_complete(), "{}", groups.describe());
    let all = groups.groups.as_ref().expect("groups").all_servers.clone();
    let data = Path::new("/data/0197a3c27a537c119d2e3f1c5a7b9d10");
    let lease = groups.lease(data, 5).unwrap().expect("a group");
    let next = groups.lease(data, 5).unwrap().expect("another group");
    assert_ne!(lease.group, next.group, "an end of one must not be that of the other");
    let mut server = server_in(&lease.group);
    let adopted = groups.lease_of_process(server.id().cast_signed()).expect("its group");
    assert_eq!(adopted.group, lease.group);
    assert!(groups.lease_of_process(1).is_none());
    groups.remove();
    assert!(lease.group.path().exists(), "a server runs in it");
    assert!(!next.group.path().exists());
    lease.release();
    assert!(!server.wait().unwrap().success(), "it is killed");
    groups.remove();
    assert!(!all.path().exists());
}

#[test]
fn groups_that_an_earlier_egret_left_are_ended() {
    let Some(base) = TestGroup::new("left") else {
        return;
    };
    let earlier = base.open(&[]);
    let (lost, kept) = (Path::new("/data/lost"), Path::new("/data/kept"));
    let lost = earlier.lease(lost, 0).unwrap().expect("a group");
    let kept = earlier.lease(kept, 0).unwrap().expect("a group");
    let (mut orphan, mut server) = (server_in(&lost.group), server_in(&kept.group));
    let lost_group = lost.group.clone();
    drop((earlier, lost, kept));
    let later = base.open(&[]);
    let adopted = later.lease_of_process(server.id().cast_signed()).expect("its group");
    assert_eq!(later.remove_leftovers(), 1);
    assert!(!orphan.wait().unwrap().success());
    assert!(!lost_group.path().exists());
    assert!(adopted.group.is_populated().unwrap());
    adopted.release();
    server.wait().unwrap();
}

#[test]
fn groups_of_an_egret_that_is_gone_are_removed_by_the_next() {
    let Some(base) = TestGroup::new("gone") else {
        return;
    };
    let (gone, running) = (base.0.child("egret-branches-1"), base.0.child("egret-branches-2"));
    let foreign = base.0.child("foreign");
    for group in [&gone, &gone.child("one"), &running, &foreign] {
        group.create().unwrap();
    }
    let _held = running.lock().unwrap().expect("the lock is free");
    let groups = base.open(&[]);
    let own = group_name(&std::env::temp_dir()).unwrap();
    let mut left = groups_below(&base.0);
    left.sort();
    let mut expected = vec!["egret-branches-2".to_owned(), own, "foreign".to_owned()];
    expected.sort();
    assert_eq!(left, expected);
    drop(groups);
    assert!(!groups_below(&base.0).iter().any(|name| name == &expected[1]));
}

#[test]
fn a_group_that_another_egret_has_locked_is_refused() {
    let Some(base) = TestGroup::new("locked") else {
        return;
    };
    let first = base.open(&[]);
    let second = base.open(&[]);
    let said = second.describe();
    assert!(said.contains("another process has locked"), "{said}");
    assert!(second.lease(Path::new("/data/one"), 0).unwrap().is_none());
    drop(second);
    let lease = first.lease(Path::new("/data/one"), 0).unwrap();
    lease.expect("a group of the first").release();
}

/// Many Egrets start and stop at a time, each of which looks for groups that were left behind.
#[test]
fn no_egret_takes_the_group_of_another_for_one_left_behind() {
    let Some(base) = TestGroup::new("many") else {
        return;
    };
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let data = tempfile::tempdir().unwrap();
                for _ in 0..20 {
                    let groups = base.open_for(data.path(), &[]);
                    assert!(groups.is_complete(), "{}", groups.describe());
                    let lease = groups.lease(Path::new("/data/one"), 0).unwrap();
                    lease.expect("a group").release();
                    assert!(!groups.not_bounded.is_active());
                }
            });
        }
    });
    assert!(groups_below(&base.0).is_empty());
}

#[test]
fn groups_are_bounded_by_files_of_their_controllers() {
    let written = |bounds: Vec<Bound>| {
        let lines = bounds.iter().map(|bound| format!("{} = {}", bound.file, bound.value));
        lines.collect::<Vec<String>>()
    };
    let bytes = |size: ByteSize| format!("memory.max = {}", size.bytes());
    assert_eq!(
        written(bounds::bounds_for_all(&LIMITS)),
        [
            &bytes(LIMITS.total_memory_max),
            "memory.swap.max = 0",
            "cpu.weight = 50",
            "pids.max = 30"
        ]
    );
    assert_eq!(
        written(bounds::bounds_for_server(&LIMITS, 5)),
        [
            &bytes(LIMITS.memory_max),
            "memory.swap.max = 0",
            "cpu.weight.nice = 5",
            "cpu.max = 50000 100000",
            "pids.max = 20"
        ]
    );
    let unbounded = GroupLimits { cpu_percent_max: 0, ..LIMITS };
    assert!(!written(bounds::bounds_for_server(&unbounded, 5)).join(",").contains("cpu.max"));
}

/// Files that not every kernel has are left out, and others are not.
#[test]
fn a_bound_without_its_file_is_an_error_unless_kernels_may_lack_it() {
    let Some(base) = TestGroup::new("files") else {
        return;
    };
    let mut groups = base.open(&[]);
    let state = groups.groups.as_mut().expect("groups");
    let groups = Arc::get_mut(state).expect("no lease has it");
    groups.controllers.insert("none".to_owned());
    let bound =
        |presence| Bound { controller: "none", file: "none.max", value: "1".to_owned(), presence };
    let group = groups.all_servers.clone();
    groups.apply_bounds(&group, vec![bound(Presence::Optional)]).unwrap();
    let missing = groups.apply_bounds(&group, vec![bound(Presence::Always)]);
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn controllers_that_are_missing_are_named() {
    let Some(base) = TestGroup::new("missing") else {
        return;
    };
    let groups = base.open(&["nonsense"]);
    assert!(!groups.is_complete());
    let said = groups.describe();
    assert!(said.contains("NOT bounded: nonsense"), "{said}");
    assert!(groups.lease(Path::new("/data/one"), 0).unwrap().is_some());
}

#[test]
fn where_there_are_no_groups_the_reason_is_said() {
    let data = std::env::temp_dir();
    let groups = ControlGroups::open(GroupPolicy::Off, LIMITS, &data);
    assert_eq!(groups.describe(), "NONE (branches.cgroup is off)");
    assert!(!groups.is_complete());
    assert!(groups.lease(Path::new("/data/one"), 0).unwrap().is_none());
    assert_eq!((groups.memory_kills(), groups.remove_leftovers()), (0, 0));
}

/// What a process makes of the group that it was started in.
fn divide(own: Result<ControlGroup, String>) -> ControlGroups {
    ControlGroups::open_below(own, GroupPolicy::Auto, LIMITS, Path::new("/"), &["hugetlb"])
}

/// As Egret does where its group is delegated to it: it moves away to give controllers below.
#[test]
fn egret_moves_out_of_a_group_of_its_own_to_divide_it() {
    if std::env::var(TASK).is_ok() {
        let own = ControlGroup::own().unwrap();
        let groups = divide(Ok(own.clone()));
        assert!(groups.is_complete(), "{}", groups.describe());
        assert_eq!(ControlGroup::own().unwrap(), own.child(MAIN_GROUP));
        let lease = groups.lease(Path::new("/data/one"), 0).unwrap().expect("a group");
        assert!(lease.group.controllers().unwrap().contains("hugetlb"));
        // A second start in the same process finds the group that it was started in.
        drop(groups);
        lease.release();
        let groups = divide(ControlGroup::own());
        assert!(groups.is_complete(), "{}", groups.describe());
        assert_eq!(groups.groups.as_ref().unwrap().all_servers.parent(), Some(own));
        return;
    }
    let Some(base) = TestGroup::new("moves") else {
        return;
    };
    if base.has("hugetlb") {
        base.run_test("egret_moves_out_of_a_group_of_its_own_to_divide_it", "move");
    }
}

#[test]
fn a_group_with_processes_of_others_is_left_as_it_is() {
    if std::env::var(TASK).is_ok() {
        let own = ControlGroup::own().unwrap();
        let groups = divide(Ok(own.clone()));
        let said = groups.describe();
        assert!(said.contains("not delegated to Egret"), "{said}");
        assert_eq!(ControlGroup::own().as_ref(), Ok(&own));
        assert!(groups_below(&own).is_empty());
        return;
    }
    let Some(base) = TestGroup::new("shared") else {
        return;
    };
    let mut other = server_in(&base.0);
    base.run_test("a_group_with_processes_of_others_is_left_as_it_is", "stay");
    drop(other.stdin.take());
    other.wait().unwrap();
}

/// After a kill of Egret its servers run on in the group that the next one is started in.
#[test]
fn servers_that_an_earlier_egret_left_are_no_strangers() {
    if let Ok(data) = std::env::var(TASK) {
        let own = ControlGroup::own().unwrap();
        let data = Path::new(&data);
        let open =
            |data| ControlGroups::open_below(Ok(own.clone()), GroupPolicy::Auto, LIMITS, data, &[]);
        let elsewhere = open(Path::new("/proc"));
        let said = elsewhere.describe();
        assert!(said.contains("not delegated to Egret"), "{said}");
        let groups = open(data);
        assert!(groups.is_complete(), "{}", groups.describe());
        return;
    }
    let Some(base) = TestGroup::new("earlier") else {
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let source = data.path().join("volume/source");
    std::fs::create_dir_all(&source).unwrap();
    // A program with the server's name that works in the server's directory, with a child.
    let program = data.path().join("postgres");
    std::fs::copy("/bin/sh", &program).unwrap();
    let mut server = Command::new(&program)
        .args(["-c", "exec 3<&0; read go; cat <&3 & echo; wait"])
        .current_dir(&source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    base.0.move_process(server.id().cast_signed()).unwrap();
    let mut stdin = server.stdin.take().unwrap();
    stdin.write_all(b"go\n").unwrap();
    server.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let task = data.path().to_str().unwrap();
    base.run_test("servers_that_an_earlier_egret_left_are_no_strangers", task);
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn limits_of_memory_processor_time_and_processes_hold() {
    let Some(base) = TestGroup::new("limits") else {
        return;
    };
    for controller in CONTROLLERS {
        if !base.has(controller) {
            return;
        }
    }
    let groups = base.open(&CONTROLLERS);
    assert!(groups.is_complete(), "{}", groups.describe());
    let all = groups.groups.as_ref().expect("groups").all_servers.clone();
    let lease = groups.lease(Path::new("/data/one"), 5).unwrap().expect("a group");
    let read = |group: &ControlGroup, file: &str| {
        let text = std::fs::read_to_string(group.path().join(file)).unwrap();
        text.trim().to_owned()
    };
    assert_eq!(read(&all, "memory.max"), ByteSize::mib(128).bytes().to_string());
    assert_eq!(read(&all, "cpu.weight"), "50");
    assert_eq!(read(&all, "pids.max"), "30");
    // Not every kernel has it.
    if lease.group.path().join("memory.swap.max").exists() {
        assert_eq!(read(&all, "memory.swap.max"), "0");
        assert_eq!(read(&lease.group, "memory.swap.max"), "0");
    }
    assert_eq!(read(&lease.group, "memory.max"), ByteSize::mib(64).bytes().to_string());
    assert_eq!(read(&lease.group, "cpu.max"), "50000 100000");
    assert_eq!(read(&lease.group, "cpu.weight.nice"), "5");
    assert_eq!(read(&lease.group, "pids.max"), "20");
    // A shell whose variable doubles until the kernel ends it.
    let greedy = "x=0123456789abcdef; while :; do x=$x$x; done";
    let mut child = run_in(&lease.group, "/bin/sh", &["-c", greedy], "");
    assert!(!child.wait().unwrap().success());
    assert!(lease.memory_kills() > 0 && groups.memory_kills() > 0);
    // A shell that may have 20 processes, and no more.
    let many = "exec 3<&0; n=0; while [ $n -lt 40 ]; do cat <&3 & n=$((n+1)); done; wait";
    let mut child = run_in(&lease.group, "/bin/sh", &["-c", many], "");
    // They wait for the end of their input, which the shell does not: it gives up when it cannot
    // fork.
    let stdin = child.stdin.take();
    child.wait().unwrap();
    drop(stdin);
    assert!(lease.group.read_count("pids.events", "max").unwrap() > 0);
    lease.release();
    // And all together no more than they may have.
    let servers = fill(&groups);
    let started = u64::try_from(servers.len()).unwrap();
    assert_eq!(started, 30 + 1 - SERVER_PROCESSES);
    for group in all.children().unwrap() {
        group.kill_and_remove(Duration::from_secs(60)).unwrap();
    }
    for mut server in servers {
        server.wait().unwrap();
    }
}

/// Starts servers of one process each until a further one is refused, for the processes of all.
fn fill(groups: &ControlGroups) -> Vec<Child> {
    let mut servers = Vec::new();
    let refused = loop {
        match groups.lease(Path::new("/data/one"), 5) {
            Ok(lease) => servers.push(server_in(&lease.expect("a group").group)),
            Err(refused) => break refused,
        }
    };
    let message = refused.to_string();
    assert!(message.contains("branches.total_processes_max"), "{message}");
    assert_eq!(refused.kind(), Kind::Unavailable);
    servers
}
