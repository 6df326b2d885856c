//! The filter of system calls: what no command needs and what leads out. Everything else is allowed,
//! so that a program of tomorrow is not broken by a list of today.

use std::io;
use std::sync::OnceLock;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use super::super::Network;

/// Calls that are denied whatever their arguments.
const DENIED: &[c_long] = &[
    // Into other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Around this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Into the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    // Keys that other programs of the user have stored.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Another view of the files.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Newer than the list of our library.
const OPEN_TREE_ATTR: c_long = 467;
/// As above, and only for `unshare`: for `clone` the bit means something else.
const CLONE_NEWTIME: u64 = 0x80;

const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// `TIOCSTI` and `TIOCLINUX`: requests that put input into a terminal.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// What a process may ask to be: itself, 32 bits wide (for `uname` only), at fixed addresses (for
/// debuggers); or only what it is.
const PERSONALITIES: [u64; 4] = [0, 0x8, 0x0004_0000, 0xffff_ffff];

/// The first number of a call in the way of x32, another set of doors to the same kernel.
const X32: u32 = 0x4000_0000;

/// A condition on the lower half of an argument: all of these are 32 bits wide.
struct Is(u8, SeccompCmpOp, u64);

/// So many parts the list of calls is cut into. Whenever a filter is put up the kernel runs it once
/// for every call that there is: what it passes on the way to an answer is paid for some hundred
/// times at the start of each command.
const PARTS: usize = 8;

/// The program for the kernel. There are two, and each is made once.
pub(super) fn program(network: Network) -> io::Result<&'static BpfProgram> {
    static MADE: [OnceLock<BpfProgram>; 2] = [const { OnceLock::new() }; 2];
    let made = &MADE[usize::from(network == Network::Off)];
    if let Some(program) = made.get() {
        return Ok(program);
    }
    let mut program = preamble();
    program.append(&mut rules(network).map_err(io::Error::other)?);
    Ok(made.get_or_init(|| program))
}

fn rules(network: Network) -> Result<BpfProgram, BackendError> {
    let mut rules: std::collections::BTreeMap<c_long, Vec<SeccompRule>> =
        DENIED.iter().map(|number| (*number, Vec::new())).collect();
    for (call, conditions) in conditional(network) {
        let conditions = conditions.into_iter().map(|Is(argument, operation, value)| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
        });
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        rules.entry(call).or_default().push(rule);
    }
    // What no command may change is how it is found again: see `exec::stray`. A pointer is wide.
    let mark = u64::from(libc::RLIMIT_LOCKS);
    let is_mark =
        |argument| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, mark);
    let changes = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let of_any = SeccompRule::new(vec![is_mark(1)?, changes])?;
    rules.entry(libc::SYS_prlimit64).or_default().push(of_any);
    let of_itself = SeccompRule::new(vec![is_mark(0)?])?;
    rules.entry(libc::SYS_setrlimit).or_default().push(of_itself);
    let rules: Vec<_> = rules.into_iter().collect();
    let mut parts = rules.chunks(rules.len().div_ceil(PARTS).max(1)).peekable();
    let mut program = Vec::new();
    while let Some(part) = parts.next() {
        let mut filter = part_of(part)?;
        if let Some((number, _)) = parts.peek().and_then(|it| it.first()) {
            program.extend(pass_over(*number, filter.len()));
        }
        program.append(&mut filter);
    }
    Ok(program)
}

/// A program of its own for some of the calls, which answers for all others that they are allowed.
fn part_of(rules: &[(c_long, Vec<SeccompRule>)]) -> Result<BpfProgram, BackendError> {
    let rules = rules.iter().cloned().collect();
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, denied, std::env::consts::ARCH.try_into()?)?
        .try_into()
}

/// Leads calls from this number on over what follows.
fn pass_over(number: c_long, length: usize) -> [sock_filter; 2] {
    const JUMP: u16 = 0x05;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    let (number, length) = (u32::try_from(number), u32::try_from(length));
    [
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: number.unwrap_or(u32::MAX) },
        sock_filter { code: JUMP, jt: 0, jf: 0, k: length.unwrap_or(u32::MAX) },
    ]
}

/// Calls that are denied if all conditions of a row hold.
fn conditional(network: Network) -> Vec<(c_long, Vec<Is>)> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rows = Vec::new();
    let none_of = |argument, values: &[u64]| -> Vec<Is> {
        values.iter().map(|it| Is(argument, Ne, *it)).collect()
    };
    for flag in NAMESPACES.map(|it| u64::from(it.cast_unsigned())) {
        rows.push((libc::SYS_clone, vec![Is(0, MaskedEq(flag), flag)]));
        rows.push((libc::SYS_unshare, vec![Is(0, MaskedEq(flag), flag)]));
    }
    rows.push((libc::SYS_unshare, vec![Is(0, MaskedEq(CLONE_NEWTIME), CLONE_NEWTIME)]));

    let domain = |it: libc::c_int| u64::from(it.cast_unsigned());
    let (unix, netlink) = (domain(libc::AF_UNIX), domain(libc::AF_NETLINK));
    rows.push((libc::SYS_socketpair, none_of(0, &[unix])));
    if network == Network::Off {
        rows.push((libc::SYS_socket, none_of(0, &[unix])));
    } else {
        let domains = [unix, domain(libc::AF_INET), domain(libc::AF_INET6), netlink];
        rows.push((libc::SYS_socket, none_of(0, &domains)));
        // Which interfaces there are; nothing else of that door.
        let route = domain(libc::NETLINK_ROUTE);
        rows.push((libc::SYS_socket, vec![Is(0, Eq, netlink), Is(2, Ne, route)]));
    }

    // Input for somebody's terminal.
    for request in TYPING {
        rows.push((libc::SYS_ioctl, vec![Is(1, Eq, request)]));
    }
    let sort = u64::from(libc::S_IFMT);
    for device in [libc::S_IFCHR, libc::S_IFBLK].map(u64::from) {
        rows.push((libc::SYS_mknodat, vec![Is(2, MaskedEq(sort), device)]));
        #[cfg(target_arch = "x86_64")]
        rows.push((libc::SYS_mknod, vec![Is(1, MaskedEq(sort), device)]));
    }
    // The limits of other processes: no wall of Landlock is in between.
    rows.push((libc::SYS_prlimit64, none_of(0, &[0])));
    rows.push((libc::SYS_personality, none_of(0, &PERSONALITIES)));
    rows
}

/// What has an answer of its own, before all else. The arguments of `clone3` are behind a pointer,
/// where a filter cannot look: libraries that hear of no such call use `clone`.
fn preamble() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    let answer =
        |error: libc::c_int| step(RETURN, 0, libc::SECCOMP_RET_ERRNO | error.cast_unsigned());
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    vec![
        step(LOAD_NUMBER, 0, 0),
        step(JUMP_IF_AT_LEAST, 1, X32),
        answer(libc::EPERM),
        step(JUMP_IF_EQUAL, 1, clone3),
        answer(libc::ENOSYS),
    ]
}
