//! The system calls that a confined process does not have.
//!
//! A list of what is refused and not of what is allowed: the programs inside come from elsewhere
//! and use what their version of the C library uses. Landlock bounds files; here is what it does
//! not bound: sockets, namespaces, other processes, and interfaces of the kernel that a database
//! server has no use for.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused whatever their arguments are.
const REFUSED_CALLS: [i64; 34] = [
    // A connection leads out of the branch, whatever it leads to. Io_uring would make it unseen.
    libc::SYS_connect,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_ioprio_set,
    // Namespaces and mounts: new ones come with rights of their own.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    // Interfaces of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_mq_open,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_kexec_load,
];

/// Refused to a process that shares its user with processes outside: what works on whatever the
/// user owns, Landlock's bounds or not. Changes of modes and owners answer with success, as the
/// server asks for them where nothing has to change.
const REFUSED_TO_SHARED_USER: [i64; 5] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_utimensat,
];

/// Calls for the same reason as [`REFUSED_TO_SHARED_USER`], but ignored: they do nothing and
/// succeed.
const IGNORED_FROM_SHARED_USER: [i64; 2] = [libc::SYS_fchmodat, libc::SYS_fchownat];

/// Those of x86 that newer architectures do without.
#[cfg(target_arch = "x86_64")]
const IGNORED_FROM_SHARED_USER_X86: [i64; 3] = [libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const IGNORED_FROM_SHARED_USER_X86: [i64; 0] = [];

/// Those of [`REFUSED_TO_SHARED_USER`] of x86 that newer architectures do without.
#[cfg(target_arch = "x86_64")]
const REFUSED_TO_SHARED_USER_X86: [i64; 3] =
    [libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_TO_SHARED_USER_X86: [i64; 0] = [];

/// The first system call that does not exist for a confined process: fchmodat2(2) of Linux 6.6.
/// What came with it and later does things in new ways that the lists here and Landlock do not
/// know; programs go on with what they used before, as on an older kernel. From 424 on, a number is
/// the same on all architectures.
const FIRST_UNKNOWN_CALL: u32 = 452;

/// Calls that name a process by their first argument; 0 is the caller itself.
const PROCESS_CALLS: [i64; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// The type of btrfs's ioctl(2) requests, `_IOC` of linux/btrfs.h: subvolumes made in a branch
/// would outlive it.
const BTRFS_REQUESTS: u64 = 0x9400;
const REQUEST_TYPE: u64 = 0xff00;

/// The filters of a process; the strictest answer holds. They are compiled once.
///
/// # Errors
/// On an architecture that the filters do not know.
pub(super) fn filters(shares_user: bool) -> io::Result<&'static [BpfProgram]> {
    static OWN_USER_FILTERS: OnceLock<Vec<BpfProgram>> = OnceLock::new();
    static SHARED_USER_FILTERS: OnceLock<Vec<BpfProgram>> = OnceLock::new();
    let cache = if shares_user { &SHARED_USER_FILTERS } else { &OWN_USER_FILTERS };
    if let Some(filters) = cache.get() {
        return Ok(filters);
    }
    let filters = compile_filters(shares_user)?;
    Ok(cache.get_or_init(|| filters))
}

fn compile_filters(shares_user: bool) -> io::Result<Vec<BpfProgram>> {
    let mut refused: Rules = REFUSED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    refused.insert(libc::SYS_socket, socket_rules()?);
    refused.insert(libc::SYS_socketpair, socket_rules()?);
    refused.insert(
        libc::SYS_clone,
        vec![all_of(vec![argument_bits_equal(
            0,
            libc::CLONE_NEWUSER.cast_unsigned().into(),
            libc::CLONE_NEWUSER.cast_unsigned().into(),
        )?])?],
    );
    refused.insert(
        libc::SYS_ioctl,
        vec![all_of(vec![argument_bits_equal(1, REQUEST_TYPE, BTRFS_REQUESTS)?])?],
    );
    if shares_user {
        refused.extend(
            REFUSED_TO_SHARED_USER
                .iter()
                .chain(&REFUSED_TO_SHARED_USER_X86)
                .map(|call| (*call, Vec::new())),
        );
        for call in PROCESS_CALLS {
            refused.insert(call, vec![all_of(vec![argument_differs(0, 0)?])?]);
        }
        refused.insert(libc::SYS_setpriority, vec![all_of(vec![argument_differs(1, 0)?])?]);
    }
    // The C library falls back on clone(2), whose flags can be looked at.
    let unknown: Rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let mut filters = vec![
        new_calls_filter(),
        compile_program(refused, SeccompAction::Errno(libc::EPERM.cast_unsigned()))?,
        compile_program(unknown, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()))?,
    ];
    if shares_user {
        let ignored = IGNORED_FROM_SHARED_USER
            .iter()
            .chain(&IGNORED_FROM_SHARED_USER_X86)
            .map(|call| (*call, Vec::new()))
            .collect();
        filters.push(compile_program(ignored, SeccompAction::Errno(0))?);
    }
    Ok(filters)
}

/// Stream sockets of this machine's files are what the server listens on; no other one is made.
fn socket_rules() -> io::Result<Vec<SeccompRule>> {
    const TYPE: u64 = 0xf;
    const STREAM: u64 = 1;
    let mut rules = vec![all_of(vec![argument_differs(0, libc::AF_UNIX.cast_unsigned().into())?])?];
    // Datagrams need no connect(2) to be sent.
    for kind in (0..=TYPE).filter(|kind| *kind != STREAM) {
        rules.push(all_of(vec![argument_bits_equal(1, TYPE, kind)?])?);
    }
    Ok(rules)
}

/// Answers `ENOSYS` to calls from [`FIRST_UNKNOWN_CALL`] on. So it does to those of the x32
/// interface of x86, whose numbers have bit 30 set.
fn new_calls_filter() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code: u16, jf: u8, k: u32| sock_filter { code, jt: 0, jf, k };
    vec![
        // The number is the first field of seccomp_data, see seccomp(2).
        step(LOAD_WORD, 0, 0),
        step(JUMP_IF_AT_LEAST, 1, FIRST_UNKNOWN_CALL),
        step(RETURN, 0, ERRNO | libc::ENOSYS.cast_unsigned()),
        step(RETURN, 0, ALLOW),
    ]
}

fn compile_program(rules: Rules, action: SeccompAction) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch);
    filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
}

fn all_of(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn argument_differs(argument: u8, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
        .map_err(io::Error::other)
}

fn argument_bits_equal(argument: u8, mask: u64, value: u64) -> io::Result<SeccompCondition> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .map_err(io::Error::other)
}
