//! The seccomp filter: denies system calls that no command needs or that lead out of the sandbox.
//! Everything else is allowed, so that system calls of the future do not break programs.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

use crate::{Network, RefusedCall};

/// The `libc` crate does not have it for musl on ARM.
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: c_long = 294;
#[cfg(not(target_arch = "aarch64"))]
const KEXEC_FILE_LOAD: c_long = libc::SYS_kexec_file_load;

/// System calls that are denied whatever their arguments.
const DENIED_CALLS: &[c_long] = &[
    // Access to other processes.
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    // Ways around this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Kernel interfaces.
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    // Keys that the user's other programs have stored.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Changes to the view of the file system.
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
    // Settings and state of the whole machine.
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

/// System calls that trace processes. They are allowed to a program with a PID namespace, since it finds only its own
/// processes there, and Landlock protects the supervisor from it. A traced program is bound by its own filter.
const TRACING_CALLS: &[c_long] =
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];
/// System calls of profilers, and of debuggers that record. They expose a large part of the kernel.
const DEBUGGING_CALLS: &[c_long] = &[libc::SYS_perf_event_open, libc::SYS_kcmp];

/// The denied calls of which the supervisor is notified, if there is one, so that users learn what has stopped their
/// programs. All are rare. Other calls are denied silently: either nobody misses them, or only root may make them, so
/// nothing that the user can allow would help.
const NOTED_CALLS: &[(c_long, RefusedCall)] = &[
    (libc::SYS_socket, RefusedCall::OtherSocket),
    (libc::SYS_socketpair, RefusedCall::OtherSocket),
    (libc::SYS_perf_event_open, RefusedCall::PerfEvents),
    (libc::SYS_clone, RefusedCall::Namespace),
    (libc::SYS_unshare, RefusedCall::Namespace),
    (libc::SYS_setns, RefusedCall::Namespace),
    (libc::SYS_mount, RefusedCall::Mount),
    (libc::SYS_umount2, RefusedCall::Mount),
    (libc::SYS_fsopen, RefusedCall::Mount),
    (libc::SYS_open_tree, RefusedCall::Mount),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, RefusedCall::SetIdMode),
    (libc::SYS_fchmod, RefusedCall::SetIdMode),
    (libc::SYS_fchmodat, RefusedCall::SetIdMode),
    (SYS_FCHMODAT2, RefusedCall::SetIdMode),
    (libc::SYS_io_uring_setup, RefusedCall::IoUring),
    (libc::SYS_keyctl, RefusedCall::Keyring),
    (libc::SYS_add_key, RefusedCall::Keyring),
    (libc::SYS_request_key, RefusedCall::Keyring),
    (libc::SYS_userfaultfd, RefusedCall::Userfaultfd),
];

/// The `libc` crate does not have it yet.
const OPEN_TREE_ATTR: c_long = 467;
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

const PRIO_USER: u64 = libc::PRIO_USER as u64;
/// The `libc` crate does not have it.
const IOPRIO_WHO_USER: u64 = 3;

/// The `libc` crate does not have it yet.
const SYS_FCHMODAT2: c_long = 452;

/// The calls that set the mode of a file, with the index of that argument. A program with a set-id bit has
/// the user's rights, whoever starts it. The mode of `openat2` is behind a pointer; see [`preamble`].
const CALLS_WITH_MODE: &[(c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];
/// The same for calls whose mode counts only if `O_CREAT` or `O_TMPFILE` is among the flags, which are the
/// argument before it.
const OPEN_CALLS: &[(c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    (libc::SYS_openat, 3),
];
const CREATING_FLAGS: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE];

/// `TIOCSTI` and `TIOCLINUX`, which insert input into a terminal.
const TERMINAL_INPUT_REQUESTS: [u64; 2] = [0x5412, 0x541c];

/// The arguments of `personality` that are allowed: the default, `PER_LINUX32` (changes `uname` only),
/// `ADDR_NO_RANDOMIZE` (for debuggers), and the query of the current one.
const ALLOWED_PERSONALITIES: [u64; 4] = [0, 0x8, 0x0004_0000, 0xffff_ffff];

/// `__X32_SYSCALL_BIT`: numbers from here on are system calls of the x32 ABI.
const X32_SYSCALL_BIT: u32 = 0x4000_0000;

/// The offset of the field `arch` in `seccomp_data`.
const ARCHITECTURE_OFFSET: u32 = 4;
/// The offset of the fifth argument in `seccomp_data`.
const FIFTH_ARGUMENT_OFFSET: u32 = 48;
/// `AUDIT_ARCH_X86_64` or `AUDIT_ARCH_AARCH64`.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// The instruction that ends the filter.
const BPF_RET: u16 = 0x06;
/// The operand of [`BPF_RET`] that denies a call.
const RETURN_EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();

/// The rules that deny calls of each system call; without rules, all of its calls are denied.
type RuleMap = BTreeMap<c_long, Vec<SeccompRule>>;

/// A condition on the lower 32 bits of an argument: its index, the comparison and the value.
type ArgCondition = (u8, SeccompCmpOp, u64);

/// Returns conditions that all hold if an argument has none of these values.
fn none_of(index: u8, values: &[u64]) -> Vec<ArgCondition> {
    values.iter().map(|value| (index, SeccompCmpOp::Ne, *value)).collect()
}

/// Returns the kind of a denied call; `None` if nobody needs to know about it.
pub(super) fn refused_call(call: &libc::seccomp_data) -> Option<RefusedCall> {
    // The rules look at the lower 32 bits only.
    let [first, _, third, ..] = call.args.map(|argument| argument & u64::from(u32::MAX));
    let number = c_long::from(call.nr);
    let is_socket = [libc::SYS_socket, libc::SYS_socketpair].contains(&number);
    if is_socket && first == to_unsigned(libc::AF_UNIX) {
        return Some(RefusedCall::DatagramSocket);
    }
    // These are denied only to a program without a network.
    if number == libc::SYS_socket && is_network_socket(first, third) {
        return Some(RefusedCall::NetworkSocket);
    }
    if number == libc::SYS_clone && NAMESPACES.iter().all(|flag| first & to_unsigned(*flag) == 0) {
        return None;
    }
    NOTED_CALLS.iter().find(|(noted, _)| *noted == number).map(|(_, kind)| *kind)
}

/// Returns true if programs with a network may open sockets of this family and protocol.
fn is_network_socket(family: u64, protocol: u64) -> bool {
    let is_route = protocol == to_unsigned(libc::NETLINK_ROUTE);
    [libc::AF_INET, libc::AF_INET6].map(to_unsigned).contains(&family)
        || family == to_unsigned(libc::AF_NETLINK) && is_route
}

fn to_unsigned(constant: libc::c_int) -> u64 {
    u64::from(constant.cast_unsigned())
}

/// The number of segments that the sorted list of calls is cut into. When a filter is installed, the
/// kernel runs it once for every system call number, so a long chain of comparisons would be
/// evaluated several hundred times at each start of a command.
const SEGMENT_COUNT: usize = 8;

/// The properties of a program that decide its filter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilterKind {
    pub(super) network: Network,
    /// True if the program has a PID namespace.
    pub(super) has_own_processes: bool,
    /// True if the program may profile and record its children, if it has a PID namespace.
    pub(super) may_debug: bool,
    /// True if these calls notify the supervisor: each `connect`, each `listen`, each `sendto` with an address, each
    /// `bind` of a program that does not have the network of the machine, and each denied call of [`NOTED_CALLS`].
    pub(super) is_supervised: bool,
}

/// Returns the BPF program for the kernel. Each is built once.
pub(super) fn program(kind: FilterKind) -> io::Result<&'static BpfProgram> {
    static PROGRAMS: [OnceLock<BpfProgram>; 24] = [const { OnceLock::new() }; 24];
    let network = match kind.network {
        Network::Off => 0,
        Network::Loopback | Network::Internet => 1,
        Network::On => 2,
    };
    let flags = [kind.has_own_processes, kind.may_debug, kind.is_supervised];
    let number = flags.iter().fold(network, |number, flag| 2 * number + usize::from(*flag));
    let built = &PROGRAMS[number];
    if let Some(program) = built.get() {
        return Ok(program);
    }
    let mut program = preamble(kind);
    program.append(&mut compile_rules(kind).map_err(io::Error::other)?);
    Ok(built.get_or_init(|| program))
}

fn compile_rules(kind: FilterKind) -> Result<BpfProgram, BackendError> {
    let tracing = TRACING_CALLS.iter().filter(|_| !kind.has_own_processes);
    let debugging = DEBUGGING_CALLS.iter().filter(|_| !(kind.has_own_processes && kind.may_debug));
    let denied = DENIED_CALLS.iter().chain(tracing).chain(debugging);
    let mut rules: RuleMap = denied.map(|number| (*number, Vec::new())).collect();
    let supervised = if kind.is_supervised { supervised_rules() } else { Vec::new() };
    for (call, conditions) in conditional_rules(kind.network).into_iter().chain(supervised) {
        let conditions = conditions.into_iter().map(|(index, comparison, value)| {
            SeccompCondition::new(index, SeccompCmpArgLen::Dword, comparison, value)
        });
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        rules.entry(call).or_default().push(rule);
    }
    // The caller can mark a command's processes by their `RLIMIT_LOCKS`, to find those that left
    // their process group, so no command may change it. The third argument is a pointer, hence 64
    // bits.
    let rlimit_locks = u64::from(rustix::process::Resource::Locks as u32);
    let is_rlimit_locks = |index| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, rlimit_locks)
    };
    let sets_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let prlimit_rule = SeccompRule::new(vec![is_rlimit_locks(1)?, sets_limit])?;
    rules.entry(libc::SYS_prlimit64).or_default().push(prlimit_rule);
    let setrlimit_rule = SeccompRule::new(vec![is_rlimit_locks(0)?])?;
    rules.entry(libc::SYS_setrlimit).or_default().push(setrlimit_rule);
    let rules: Vec<_> = rules.into_iter().collect();
    let mut segments = rules.chunks(rules.len().div_ceil(SEGMENT_COUNT).max(1)).peekable();
    let mut program = Vec::new();
    while let Some(segment) = segments.next() {
        let mut filter = compile_segment(segment, kind.is_supervised)?;
        if let Some((number, _)) = segments.peek().and_then(|next| next.first()) {
            program.extend(skip_segment(*number, filter.len()));
        }
        program.append(&mut filter);
    }
    Ok(program)
}

/// Compiles a complete program from the rules for some system calls. It allows all others.
fn compile_segment(
    rules: &[(c_long, Vec<SeccompRule>)],
    is_supervised: bool,
) -> Result<BpfProgram, BackendError> {
    let (noted, denied): (RuleMap, RuleMap) = rules.iter().cloned().partition(|(number, _)| {
        is_supervised && NOTED_CALLS.iter().any(|(noted, _)| noted == number)
    });
    let mut program = Vec::new();
    if !noted.is_empty() {
        program = compile(noted)?;
        // Without the last instruction, which allows them, all other calls go on to the rest.
        program.pop();
        // Notifications are put in here because `SeccompAction` lacks them.
        for instruction in &mut program {
            if instruction.code == BPF_RET && instruction.k == RETURN_EPERM {
                instruction.k = libc::SECCOMP_RET_USER_NOTIF;
            }
        }
    }
    program.append(&mut compile(denied)?);
    Ok(program)
}

/// Compiles a program that denies calls by these rules. Its last instruction allows all others.
fn compile(rules: RuleMap) -> Result<BpfProgram, BackendError> {
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, denied, std::env::consts::ARCH.try_into()?)?
        .try_into()
}

/// Skips the following segment for system calls from this number on.
fn skip_segment(number: c_long, length: usize) -> [sock_filter; 2] {
    const BPF_JMP_JA: u16 = 0x05;
    const BPF_JMP_JGE: u16 = 0x35;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    [
        sock_filter { code: BPF_JMP_JGE, jt: 0, jf: 1, k: number },
        sock_filter { code: BPF_JMP_JA, jt: 0, jf: 0, k: length },
    ]
}

/// System calls that are denied if all conditions of a rule hold.
fn conditional_rules(network: Network) -> Vec<(c_long, Vec<ArgCondition>)> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rules = Vec::new();
    for flag in NAMESPACES.map(to_unsigned) {
        rules.push((libc::SYS_clone, vec![(0, MaskedEq(flag), flag)]));
        rules.push((libc::SYS_unshare, vec![(0, MaskedEq(flag), flag)]));
    }
    // To `clone`, this bit means something else.
    let time = to_unsigned(libc::CLONE_NEWTIME);
    rules.push((libc::SYS_unshare, vec![(0, MaskedEq(time), time)]));
    // The child would become a sibling of the program, but its processes are looked for below it.
    let sibling = to_unsigned(libc::CLONE_PARENT);
    rules.push((libc::SYS_clone, vec![(0, MaskedEq(sibling), sibling)]));

    let unix = to_unsigned(libc::AF_UNIX);
    let netlink = to_unsigned(libc::AF_NETLINK);
    rules.push((libc::SYS_socketpair, none_of(0, &[unix])));
    if network == Network::Off {
        rules.push((libc::SYS_socket, none_of(0, &[unix])));
    } else {
        let domains = [unix, to_unsigned(libc::AF_INET), to_unsigned(libc::AF_INET6), netlink];
        rules.push((libc::SYS_socket, none_of(0, &domains)));
        // The only netlink protocol that is allowed lists interfaces and routes.
        let route = to_unsigned(libc::NETLINK_ROUTE);
        rules.push((libc::SYS_socket, vec![(0, Eq, netlink), (2, Ne, route)]));
    }

    for request in TERMINAL_INPUT_REQUESTS {
        rules.push((libc::SYS_ioctl, vec![(1, Eq, request)]));
    }
    let file_type = u64::from(libc::S_IFMT);
    for device in [libc::S_IFCHR, libc::S_IFBLK].map(u64::from) {
        rules.push((libc::SYS_mknodat, vec![(2, MaskedEq(file_type), device)]));
        #[cfg(target_arch = "x86_64")]
        rules.push((libc::SYS_mknod, vec![(1, MaskedEq(file_type), device)]));
    }
    for bit in [libc::S_ISUID, libc::S_ISGID].map(u64::from) {
        for (call, mode) in CALLS_WITH_MODE {
            rules.push((*call, vec![(*mode, MaskedEq(bit), bit)]));
        }
        for (call, mode) in OPEN_CALLS {
            for flag in CREATING_FLAGS.map(to_unsigned) {
                let creates = (*mode - 1, MaskedEq(flag), flag);
                rules.push((*call, vec![creates, (*mode, MaskedEq(bit), bit)]));
            }
        }
    }
    // The limits of other processes, which Landlock does not protect.
    rules.push((libc::SYS_prlimit64, none_of(0, &[0])));
    // The priority of all processes of the user, including those outside the sandbox.
    rules.push((libc::SYS_setpriority, vec![(0, Eq, PRIO_USER)]));
    rules.push((libc::SYS_ioprio_set, vec![(0, Eq, IOPRIO_WHO_USER)]));
    // The memory meter could not list the open files of a process that is not dumpable.
    let dumpable = to_unsigned(libc::PR_SET_DUMPABLE);
    rules.push((libc::SYS_prctl, vec![(0, Eq, dumpable), (1, Eq, 0)]));
    rules.push((libc::SYS_personality, none_of(0, &ALLOWED_PERSONALITIES)));
    rules
}

/// Further system calls that are denied if all conditions of a rule hold and connections are supervised.
fn supervised_rules() -> Vec<(c_long, Vec<ArgCondition>)> {
    use SeccompCmpOp::{Eq, MaskedEq};
    // Leaves the flags out of a socket type. `SOCK_RAW` is another name of `SOCK_DGRAM` for Unix sockets.
    const TYPE_MASK: u64 = 0xf;
    let mut rules = Vec::new();
    let unix = to_unsigned(libc::AF_UNIX);
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW].map(to_unsigned) {
        // Datagrams can be sent to any path, even from a socket of a pair. The path is behind pointers, and
        // a notification for each `sendmsg` would make all sockets slow.
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            rules.push((call, vec![(0, Eq, unix), (1, MaskedEq(TYPE_MASK), kind)]));
        }
    }
    // With this flag, a socket outside of the private network could reach any address without `connect`.
    let fast_open = to_unsigned(libc::MSG_FASTOPEN);
    for (call, position) in [(libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.push((call, vec![(position, MaskedEq(fast_open), fast_open)]));
    }
    // The kernel allows only one listener at a time, but another one as soon as that is closed.
    let listens = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    rules.push((libc::SYS_seccomp, vec![(1, MaskedEq(listens), listens)]));
    rules
}

/// Denies calls of other architectures, x32 calls, `clone3` and `openat2` before all else. The flags of the
/// latter two are behind a pointer, where a filter cannot look; programs that get `ENOSYS` fall back to
/// `clone` and `openat`.
fn preamble(kind: FilterKind) -> BpfProgram {
    const BPF_LD_W_ABS: u16 = 0x20;
    const BPF_JMP_JGE: u16 = 0x35;
    const BPF_JMP_JEQ: u16 = 0x15;
    let return_errno = |error: libc::c_int| {
        instruction(BPF_RET, 0, libc::SECCOMP_RET_ERRNO | error.cast_unsigned())
    };
    let mut program = vec![
        instruction(BPF_LD_W_ABS, 0, ARCHITECTURE_OFFSET),
        sock_filter { code: BPF_JMP_JEQ, jt: 1, jf: 0, k: ARCHITECTURE },
        instruction(BPF_RET, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(BPF_LD_W_ABS, 0, 0),
        instruction(BPF_JMP_JGE, 1, X32_SYSCALL_BIT),
        return_errno(libc::EPERM),
        instruction(BPF_JMP_JEQ, 1, call_number(libc::SYS_clone3)),
        return_errno(libc::ENOSYS),
        instruction(BPF_JMP_JEQ, 1, call_number(libc::SYS_openat2)),
        return_errno(libc::ENOSYS),
    ];
    if kind.is_supervised {
        let binds = (kind.network != Network::On).then_some(libc::SYS_bind);
        for call in [libc::SYS_connect, libc::SYS_listen].into_iter().chain(binds) {
            program.push(instruction(BPF_JMP_JEQ, 1, call_number(call)));
            program.push(instruction(BPF_RET, 0, libc::SECCOMP_RET_USER_NOTIF));
        }
        // The pointer to the address is not zero if one of its halves is not.
        program.extend([
            instruction(BPF_JMP_JEQ, 6, call_number(libc::SYS_sendto)),
            instruction(BPF_LD_W_ABS, 0, FIFTH_ARGUMENT_OFFSET),
            instruction(BPF_JMP_JEQ, 2, 0),
            instruction(BPF_LD_W_ABS, 0, FIFTH_ARGUMENT_OFFSET + 4),
            sock_filter { code: BPF_JMP_JEQ, jt: 1, jf: 0, k: 0 },
            instruction(BPF_RET, 0, libc::SECCOMP_RET_USER_NOTIF),
            instruction(BPF_LD_W_ABS, 0, 0),
        ]);
    }
    program
}

fn instruction(code: u16, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf, k }
}

fn call_number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}
