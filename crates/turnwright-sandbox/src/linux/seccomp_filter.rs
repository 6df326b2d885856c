//! The seccomp filter: denies system calls that no command needs or that lead out of the sandbox.
//! Everything else is allowed, so that system calls of the future do not break programs.

use std::io;
use std::sync::OnceLock;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use super::super::Network;

/// System calls that are denied whatever their arguments.
const DENIED: &[c_long] = &[
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Ways around this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Kernel interfaces.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    // Keys that the user's other programs have stored.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Changes of the file system view.
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

/// The `libc` crate does not have it yet.
const OPEN_TREE_ATTR: c_long = 467;
/// The `libc` crate does not have it yet. Only for `unshare`: the bit means something else to
/// `clone`.
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

/// `TIOCSTI` and `TIOCLINUX`, which insert input into a terminal.
const TERMINAL_INPUT_REQUESTS: [u64; 2] = [0x5412, 0x541c];

/// The allowed arguments of `personality`: the default, `PER_LINUX32` (changes `uname` only),
/// `ADDR_NO_RANDOMIZE` (for debuggers), and the query of the current one.
const PERSONALITIES: [u64; 4] = [0, 0x8, 0x0004_0000, 0xffff_ffff];

/// The first system call number of the x32 ABI, a second way to call the same kernel.
const X32_BIT: u32 = 0x4000_0000;

/// A condition on the lower 32 bits of an argument: its index, the comparison and the value.
struct ArgCondition(u8, SeccompCmpOp, u64);

/// The number of parts that the sorted list of calls is cut into. When a filter is installed, the
/// kernel runs it once for every system call number, so a long chain of comparisons would be paid
/// for some hundred times at each start of a command.
const PARTS: usize = 8;

/// The BPF program for the kernel. There are two, with and without network, and each is built once.
pub(super) fn program(network: Network) -> io::Result<&'static BpfProgram> {
    static BUILT: [OnceLock<BpfProgram>; 2] = [const { OnceLock::new() }; 2];
    let built = &BUILT[usize::from(network == Network::Off)];
    if let Some(program) = built.get() {
        return Ok(program);
    }
    let mut program = preamble();
    program.append(&mut rules(network).map_err(io::Error::other)?);
    Ok(built.get_or_init(|| program))
}

fn rules(network: Network) -> Result<BpfProgram, BackendError> {
    let mut rules: std::collections::BTreeMap<c_long, Vec<SeccompRule>> =
        DENIED.iter().map(|number| (*number, Vec::new())).collect();
    for (call, conditions) in conditional(network) {
        let conditions = conditions.into_iter().map(|ArgCondition(argument, operation, value)| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
        });
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        rules.entry(call).or_default().push(rule);
    }
    // The caller can mark a command's processes by their `RLIMIT_LOCKS`, to find those that left
    // their process group, so no command may change it. The third argument is a pointer, hence 64
    // bits.
    let mark = u64::from(libc::RLIMIT_LOCKS);
    let is_mark =
        |argument| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, mark);
    let sets_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let of_any = SeccompRule::new(vec![is_mark(1)?, sets_limit])?;
    rules.entry(libc::SYS_prlimit64).or_default().push(of_any);
    let of_itself = SeccompRule::new(vec![is_mark(0)?])?;
    rules.entry(libc::SYS_setrlimit).or_default().push(of_itself);
    let rules: Vec<_> = rules.into_iter().collect();
    let mut parts = rules.chunks(rules.len().div_ceil(PARTS).max(1)).peekable();
    let mut program = Vec::new();
    while let Some(part) = parts.next() {
        let mut filter = compile_part(part)?;
        if let Some((number, _)) = parts.peek().and_then(|it| it.first()) {
            program.extend(skip_part(*number, filter.len()));
        }
        program.append(&mut filter);
    }
    Ok(program)
}

/// A complete program for some of the calls, which allows all others.
fn compile_part(rules: &[(c_long, Vec<SeccompRule>)]) -> Result<BpfProgram, BackendError> {
    let rules = rules.iter().cloned().collect();
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, denied, std::env::consts::ARCH.try_into()?)?
        .try_into()
}

/// Skips the following part for system calls from this number on.
fn skip_part(number: c_long, length: usize) -> [sock_filter; 2] {
    const JUMP: u16 = 0x05;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    let (number, length) = (u32::try_from(number), u32::try_from(length));
    [
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: number.unwrap_or(u32::MAX) },
        sock_filter { code: JUMP, jt: 0, jf: 0, k: length.unwrap_or(u32::MAX) },
    ]
}

/// System calls that are denied if all conditions of a row hold.
fn conditional(network: Network) -> Vec<(c_long, Vec<ArgCondition>)> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rows = Vec::new();
    let none_of = |argument, values: &[u64]| -> Vec<ArgCondition> {
        values.iter().map(|it| ArgCondition(argument, Ne, *it)).collect()
    };
    for flag in NAMESPACES.map(|it| u64::from(it.cast_unsigned())) {
        rows.push((libc::SYS_clone, vec![ArgCondition(0, MaskedEq(flag), flag)]));
        rows.push((libc::SYS_unshare, vec![ArgCondition(0, MaskedEq(flag), flag)]));
    }
    rows.push((libc::SYS_unshare, vec![ArgCondition(0, MaskedEq(CLONE_NEWTIME), CLONE_NEWTIME)]));

    let domain = |it: libc::c_int| u64::from(it.cast_unsigned());
    let (unix, netlink) = (domain(libc::AF_UNIX), domain(libc::AF_NETLINK));
    rows.push((libc::SYS_socketpair, none_of(0, &[unix])));
    if network == Network::Off {
        rows.push((libc::SYS_socket, none_of(0, &[unix])));
    } else {
        let domains = [unix, domain(libc::AF_INET), domain(libc::AF_INET6), netlink];
        rows.push((libc::SYS_socket, none_of(0, &domains)));
        // Of the netlink protocols only the one that lists interfaces and routes.
        let route = domain(libc::NETLINK_ROUTE);
        rows.push((
            libc::SYS_socket,
            vec![ArgCondition(0, Eq, netlink), ArgCondition(2, Ne, route)],
        ));
    }

    for request in TERMINAL_INPUT_REQUESTS {
        rows.push((libc::SYS_ioctl, vec![ArgCondition(1, Eq, request)]));
    }
    let file_type = u64::from(libc::S_IFMT);
    for device in [libc::S_IFCHR, libc::S_IFBLK].map(u64::from) {
        rows.push((libc::SYS_mknodat, vec![ArgCondition(2, MaskedEq(file_type), device)]));
        #[cfg(target_arch = "x86_64")]
        rows.push((libc::SYS_mknod, vec![ArgCondition(1, MaskedEq(file_type), device)]));
    }
    // The limits of other processes, which Landlock does not protect.
    rows.push((libc::SYS_prlimit64, none_of(0, &[0])));
    rows.push((libc::SYS_personality, none_of(0, &PERSONALITIES)));
    rows
}

/// Denies x32 calls and `clone3` before all else. The flags of `clone3` are behind a pointer, where
/// a filter cannot look; C libraries that get `ENOSYS` fall back to `clone`.
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
        step(JUMP_IF_AT_LEAST, 1, X32_BIT),
        answer(libc::EPERM),
        step(JUMP_IF_EQUAL, 1, clone3),
        answer(libc::ENOSYS),
    ]
}
