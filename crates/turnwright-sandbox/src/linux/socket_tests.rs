//! Tests of what a program in a PID namespace can connect to, with real processes.

#![expect(clippy::disallowed_methods, reason = "tests start processes and write temporary files")]

use std::fs;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::tests::TestFolders;
use super::*;

/// The beginning of the scripts: `reach` says whether a connection was made.
const CLIENT: &str = "\
import array, ctypes, os, signal, socket, subprocess, sys, threading, time
def open_socket(kind=socket.SOCK_STREAM): return socket.socket(socket.AF_UNIX, kind)
def reach(path):
    try:
        it = open_socket(); it.connect(path); return 'reached'
    except OSError as error: return error.strerror
def serve(path, count=1):
    listener = open_socket(); listener.bind(path); listener.listen(8)
    def answer():
        for _ in range(count):
            it, _ = listener.accept(); text = it.recv(9)
            if text: it.sendall(text)
            it.close()
    threading.Thread(target=answer, daemon=True).start()
def talk(path):
    it = open_socket(); it.connect(path); it.sendall(b'hello'); return it.recv(9).decode()
";

pub(super) fn can_test() -> bool {
    let has_python =
        ["/bin/python3", "/usr/bin/python3"].iter().any(|python| Path::new(python).exists());
    let can = has_python && super::super::can_confine() && namespace_support().sockets;
    if !can {
        eprintln!("NOT TESTED: connections cannot be supervised here, or there is no python3");
    }
    can
}

/// Runs a Python script in a sandbox with a PID namespace and returns what it prints.
pub(super) fn run(folders: &TestFolders, profile: &SandboxProfile, script: &str) -> String {
    run_while(folders, profile, script, |_| ())
}

/// The same. `meanwhile` is called with the program's standard input while the program runs.
fn run_while(
    folders: &TestFolders,
    profile: &SandboxProfile,
    script: &str,
    meanwhile: impl FnOnce(&mut std::process::ChildStdin),
) -> String {
    run_in(folders, profile, None, script, meanwhile)
}

/// The same, in a network that is shared.
pub(super) fn run_in(
    folders: &TestFolders,
    profile: &SandboxProfile,
    network: Option<&Arc<SessionNetwork>>,
    script: &str,
    meanwhile: impl FnOnce(&mut std::process::ChildStdin),
) -> String {
    let sandbox = LinuxSandbox::prepare(profile, network.cloned()).unwrap();
    run_sandbox(folders, sandbox.with_process_namespace().unwrap(), script, meanwhile)
}

pub(super) fn run_sandbox(
    folders: &TestFolders,
    sandbox: LinuxSandbox,
    script: &str,
    meanwhile: impl FnOnce(&mut std::process::ChildStdin),
) -> String {
    let sandbox = Arc::new(sandbox);
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", &format!("{CLIENT}{script}")]).current_dir(&folders.inside);
    command.env("OUT", &folders.outside).env("TMPDIR", &folders.inside);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let entered = Arc::clone(&sandbox);
    #[expect(unsafe_code, reason = "pre_exec: system calls only")]
    // SAFETY: runs between fork and exec.
    unsafe {
        command.pre_exec(move || entered.enter());
    }
    let mut child = command.spawn().map_err(|error| sandbox.explain(error)).unwrap();
    let processes = sandbox.processes().unwrap();
    meanwhile(&mut child.stdin.take().unwrap());
    let output = child.wait_with_output().unwrap();
    let [init, program] = [processes.init, processes.program]
        .map(|number| Pid::from_raw(number.cast_signed()).unwrap());
    let (_, status) = waitpid(Some(program), WaitOptions::empty()).unwrap().unwrap();
    kill_process(init, Signal::KILL).unwrap();
    waitpid(Some(init), WaitOptions::empty()).unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let status = ExitStatus::from_raw(status.as_raw());
    assert!(status.success(), "{status}: {text}");
    text
}

#[test]
fn listeners_that_were_moved_or_linked_are_not_reached() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    let other = folders.home.join("other");
    fs::create_dir(&other).unwrap();
    let bound = folders.outside.join("bound");
    let _moved = UnixListener::bind(&bound).unwrap();
    fs::rename(&bound, other.join("moved")).unwrap();
    let _linked = UnixListener::bind(&bound).unwrap();
    fs::hard_link(&bound, other.join("linked")).unwrap();
    std::os::unix::fs::symlink(&other, folders.inside.join("way")).unwrap();
    let script = format!(
        "other = '{}'\nfor name in ['moved', 'linked']:\n  \
         print(reach(f'{{other}}/{{name}}'), reach(f'way/{{name}}'), \
         reach(f'../home/other/{{name}}'))\nos.chdir(other)\n\
         print(reach('moved'), reach('./linked'), reach('/proc/self/cwd/moved'))",
        other.display()
    );
    for network in [Network::Off, Network::Loopback, Network::On] {
        let profile = SandboxProfile { network, ..folders.profile() };
        let denied = "Permission denied";
        let row = format!("{denied} {denied} {denied}\n");
        let magic = format!("{denied} {denied} Too many levels of symbolic links\n");
        assert_eq!(run(&folders, &profile, &script), format!("{row}{row}{magic}"));
    }
}

#[test]
fn a_listener_that_begins_while_the_program_runs_is_not_reached() {
    use std::io::Write;
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    let script = "sys.stdin.readline()\nprint(reach(os.environ['OUT'] + '/late'))\n\
                  print(subprocess.run([sys.executable, '-c', 'import socket, sys\\ntry:\\n \
                  socket.socket(socket.AF_UNIX).connect(sys.argv[1])\\nexcept OSError as e: \
                  print(e.strerror)', os.environ['OUT'] + '/late'], capture_output=True).stdout)";
    let mut listener = None;
    let text = run_while(&folders, &folders.profile(), script, |stdin| {
        listener = Some(UnixListener::bind(folders.outside.join("late")).unwrap());
        stdin.write_all(b"\n").unwrap();
    });
    assert_eq!(text, "Permission denied\nb'Permission denied\\n'\n");
    let listener = listener.unwrap();
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

#[test]
fn what_the_profile_opens_is_reached() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    let named = folders.outside.join("named");
    let listeners = [&named, &folders.inside.join("of-the-project")];
    let _listeners = listeners.map(|path| UnixListener::bind(path).unwrap());
    let profile = SandboxProfile { sockets: vec![named], ..folders.profile() };
    let script = "print(reach(os.environ['OUT'] + '/named'), reach('of-the-project'))";
    assert_eq!(run(&folders, &profile, script), "reached reached\n");
}

/// Another process writes the address, and another thread replaces the socket, again and again.
#[test]
fn what_changes_during_a_call_does_not_count() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    let bound = folders.outside.join("bound");
    let moved = folders.home.join("moved");
    let outside = UnixListener::bind(&bound).unwrap();
    fs::rename(&bound, &moved).unwrap();
    let script = "import mmap\nserve('x.moved', 9_999_999)\n\
        memory = mmap.mmap(-1, 4096); libc = ctypes.CDLL(None, use_errno=True)\n\
        own, other = b'.//////x.moved', b'../home/moved\\0'\n\
        memory[:2] = (1).to_bytes(2, 'little')\n\
        child = os.fork()\n\
        while child == 0: memory[2:2 + len(own)] = own; memory[2:2 + len(own)] = other\n\
        address = (ctypes.c_char * 4096).from_buffer(memory); results = {}\n\
        spare = open_socket(socket.SOCK_SEQPACKET); number = 100; over = False\n\
        def swap():\n  \
        while not over:\n    \
        try: os.dup2(spare.fileno(), number); os.dup2(client.fileno(), number)\n    \
        except OSError: pass\n\
        client = open_socket(); swapping = threading.Thread(target=swap); swapping.start()\n\
        for _ in range(4000):\n  \
        client = open_socket(); failed = libc.connect(number, address, 2 + len(own))\n  \
        results[ctypes.get_errno() if failed else 0] = 1\n\
        over = True; swapping.join(); os.kill(child, signal.SIGKILL)\n\
        print(0 in results, 13 in results)";
    assert_eq!(run(&folders, &folders.profile(), script), "True True\n");
    outside.set_nonblocking(true).unwrap();
    assert!(outside.accept().is_err());
}

/// `unshare(CLONE_FILES)` in a thread. Before Linux 6.9 only the descriptors of the process can be looked up.
#[test]
fn a_thread_with_its_own_descriptors_connects_its_own_socket() {
    const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::PIDFD_THREAD);
    if !can_test() || pidfd_open(getpid(), THREAD).is_err() {
        return;
    }
    let folders = TestFolders::new();
    let script = "serve('here', 2); number = open_socket().detach(); libc = ctypes.CDLL(None)\n\
        def work():\n  \
        libc.unshare(0x400); os.dup2(open_socket().detach(), number); own = socket.socket(fileno=number)\n  \
        own.connect('here'); own.sendall(b'own'); print(own.recv(9))\n\
        it = threading.Thread(target=work); it.start(); it.join()\n\
        it = socket.socket(fileno=number); it.connect('here'); it.sendall(b'first'); print(it.recv(9))";
    let text = run(&folders, &folders.profile(), script);
    assert_eq!(text, "b'own'\nb'first'\n");
}

/// Its own servers, wherever it can make a socket.
#[test]
fn a_program_reaches_its_own_servers() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    fs::create_dir(folders.inside.join("folder")).unwrap();
    let script = "places = ['here', os.environ['TMPDIR'] + '/there', '/dev/shm/memory', 'folder/x']\n\
        for place in places: serve(place, 2)\n\
        os.rename('folder/x', 'moved'); os.link('moved', 'linked'); places[3:] = ['moved', 'linked']\n\
        print([talk(it) for it in places])\n\
        name = '\\0abstract-' + str(time.time()); serve(name); print(talk(name))\n\
        print(reach('nothing'), '/', reach('.git/config'), '/', reach('x' * 107), '/', reach(''))\n\
        closed = open_socket(); closed.bind('closed'); print(reach('closed'))\n\
        thrice = open_socket(); serve('thrice'); thrice.connect('thrice'); thrice.connect('thrice')\n\
        try: thrice.connect('thrice')\n\
        except OSError as error: print(error.strerror)\n\
        threads = [threading.Thread(target=lambda: print(talk('busy'))) for _ in range(3)]\n\
        serve('busy', 3)\n\
        for it in threads: it.start(); it.join()\n\
        os.chdir('folder'); print(reach('../here'))\n\
        it = open_socket(socket.SOCK_SEQPACKET)\n\
        it.bind('packets'); it.listen(); client = open_socket(socket.SOCK_SEQPACKET)\n\
        client.connect('packets'); print(client.getpeername())\n\
        pair = socket.socketpair(); pair[0].sendall(b'pair'); print(pair[1].recv(4))";
    let text = run(&folders, &folders.profile(), script);
    assert_eq!(
        text,
        "['hello', 'hello', 'hello', 'hello', 'hello']\nhello\nNo such file or directory / \
         Connection refused / No such file or directory / Invalid argument\nConnection refused\n\
         Transport endpoint is already connected\nhello\nhello\nhello\nreached\n\
         packets\nb'pair'\n"
    );
}

/// A datagram can be sent to any path without a connection, where nothing can look at the path.
#[test]
fn sockets_for_datagrams_are_refused() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    let bound = folders.outside.join("bound");
    let receiver = UnixDatagram::bind(&bound).unwrap();
    fs::rename(&bound, folders.home.join("moved")).unwrap();
    let script = "for make in [socket.socket, socket.socketpair]:\n  \
        for kind in [socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK]:\n   \
        try:\n      it = make(socket.AF_UNIX, kind); it = it[0] if type(it) is tuple else it\n      \
        it.sendto(b'x', '../home/moved'); print('sent')\n   \
        except OSError as error: print(error.strerror)";
    for network in [Network::Off, Network::On] {
        let profile = SandboxProfile { network, ..folders.profile() };
        let text = run(&folders, &profile, script);
        assert_eq!(text, "Operation not permitted\n".repeat(6));
    }
    receiver.set_nonblocking(true).unwrap();
    assert!(receiver.recv(&mut [0]).is_err());
}

#[test]
fn abstract_sockets_of_other_programs_stay_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    if !can_test() || !namespace_support().network {
        return;
    }
    let folders = TestFolders::new();
    let name = format!("turnwright-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let script = format!("print(reach('\\0{name}'))");
    for (network, expected) in [
        (Network::Off, "Connection refused\n"),
        (Network::Internet, "Connection refused\n"),
        (Network::On, "Operation not permitted\n"),
    ] {
        let profile = SandboxProfile { network, ..folders.profile() };
        assert_eq!(run(&folders, &profile, &script), expected);
    }
}

/// They are looked up in the network of the socket.
#[test]
fn a_socket_of_the_machine_reaches_no_abstract_socket() {
    use std::os::linux::net::SocketAddrExt;
    if !can_test() || !namespace_support().network || !namespace_support().supervision {
        return;
    }
    let folders = TestFolders::new();
    let name = format!("turnwright-passed-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let passing = UnixListener::bind(folders.inside.join("pass")).unwrap();
    let passed = syscalls::open_socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
    let script = format!(
        "it = open_socket(); it.connect('pass'); _, fds, _, _ = socket.recv_fds(it, 1, 1)\n\
        passed = socket.socket(fileno=fds[0])\n\
        for work in (lambda: passed.connect('\\0{name}'), lambda: passed.bind('\\0{name}-own'), passed.listen):\n  \
          try: print(work())\n  \
          except OSError as error: print(error.strerror)"
    );
    let text = run_while(&folders, &folders.profile(), &script, |_| {
        let (client, _) = passing.accept().unwrap();
        syscalls::send_descriptor(client.as_fd(), passed.as_fd()).unwrap();
    });
    assert_eq!(text, "Permission denied\n".repeat(3));
}

/// A connection that waits for room does not hold up the others, and ends when there is room, when its
/// time is over, or when a signal comes. One that is just being tried at that moment may still be made, and is then
/// closed.
#[test]
fn connections_wait_for_a_busy_server_and_hold_up_nobody() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    let script = "busy = open_socket(); busy.bind('busy'); busy.listen(0)\n\
        first = open_socket(); first.connect('busy')\n\
        try: it = open_socket(); it.setblocking(False); it.connect('busy')\n\
        except OSError as error: print(error.strerror)\n\
        it = open_socket(); it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, b'\\0' * 8 + \
        (50_000).to_bytes(8, 'little'))\n\
        try: it.connect('busy')\n\
        except OSError as error: print(error.strerror)\n\
        results = []\n\
        waiting = [threading.Thread(target=lambda: results.append(talk('busy'))) for _ in range(5)]\n\
        for it in waiting: it.start()\n\
        serve('free', 20); print({talk('free') for _ in range(20)})\n\
        child = os.fork()\n\
        if child == 0: open_socket().connect('busy')\n\
        time.sleep(0.05); os.kill(child, signal.SIGTERM); print(os.waitpid(child, 0)[1])\n\
        class Stop(Exception): pass\n\
        def stop(*_): raise Stop\n\
        signal.signal(signal.SIGALRM, stop); signal.setitimer(signal.ITIMER_REAL, 0.05)\n\
        try: open_socket().connect('busy')\n\
        except Stop: print('stopped')\n\
        busy.accept()\n\
        served = 0\n\
        while served < 5:\n  \
        it, _ = busy.accept(); text = it.recv(9); served += bool(text)\n  \
        if text: it.sendall(text)\n\
        for it in waiting: it.join()\n\
        print(results)";
    let text = run(&folders, &folders.profile(), script);
    assert_eq!(
        text,
        "Resource temporarily unavailable\nResource temporarily unavailable\n{'hello'}\n15\nstopped\n\
         ['hello', 'hello', 'hello', 'hello', 'hello']\n"
    );
}

/// A signal that arrives when the connection is made and before the program knows of it.
#[test]
fn signals_do_not_disturb_connections() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    let script = "signal.signal(signal.SIGUSR1, lambda *_: None); signal.siginterrupt(signal.SIGUSR1, False)\n\
        serve('here', 2000); me = os.getpid()\n\
        child = os.fork()\n\
        while child == 0 and os.getppid() == me: os.kill(me, signal.SIGUSR1); time.sleep(0.0001)\n\
        if child == 0: os._exit(0)\n\
        print({talk('here') for _ in range(2000)})\n\
        os.kill(child, signal.SIGKILL)";
    assert_eq!(run(&folders, &folders.profile(), script), "{'hello'}\n");
}

#[test]
fn connections_of_the_network_are_made_as_without_a_supervisor() {
    if !can_test() || !namespace_support().network {
        return;
    }
    let folders = TestFolders::new();
    let profile = SandboxProfile { network: Network::Loopback, ..folders.profile() };
    let script = "listener = socket.create_server(('127.0.0.1', 0)); port = listener.getsockname()[1]\n\
        it = socket.create_connection(('127.0.0.1', port)); print('blocking')\n\
        it = socket.socket(); it.setblocking(False); print(it.connect_ex(('127.0.0.1', port)) in (0, 115))\n\
        six = socket.create_server(('::1', 0), family=socket.AF_INET6)\n\
        socket.create_connection(six.getsockname()[:2]); print('six')\n\
        print(socket.socket().connect_ex(('127.0.0.1', 1)))\n\
        it = socket.socket(type=socket.SOCK_DGRAM); it.connect(('127.0.0.1', port)); print(it.getpeername()[1] == port)\n\
        full = socket.socket(); full.bind(('127.0.0.1', 0)); full.listen(0)\n\
        filled = [socket.socket() for _ in range(2)]\n\
        for it in filled: it.setblocking(False); it.connect_ex(full.getsockname())\n\
        late = threading.Thread(target=lambda: print(socket.socket().connect_ex(full.getsockname())))\n\
        late.start(); time.sleep(0.05); print(reach('nothing')); full.accept(); full.accept(); late.join()";
    assert_eq!(
        run(&folders, &profile, script),
        "blocking\nTrue\nsix\n111\nTrue\nNo such file or directory\n0\n"
    );
}

/// Otherwise it could answer for the supervisor.
#[test]
fn a_program_cannot_supervise_itself() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    // A filter that allows everything, as root may also install it without `no_new_privs`.
    let script = "class Program(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('f', ctypes.c_void_p)]\n\
        code = (ctypes.c_uint64 * 1)(0x7fff_0000_0000_0006); program = Program(1, ctypes.addressof(code))\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        number = {'x86_64': 317, 'aarch64': 277}[os.uname().machine]\n\
        for flags in [0, 8]:\n  \
        print(libc.syscall(number, 1, flags, ctypes.byref(program)), ctypes.get_errno())";
    assert_eq!(run(&folders, &folders.profile(), script), "0 0\n-1 1\n");
}

#[test]
fn the_server_sees_the_user_of_the_program() {
    if !can_test() {
        return;
    }
    let folders = TestFolders::new();
    // The other user gets to the socket whatever the umask of the tests is.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folders.inside.parent().unwrap(), mode).unwrap();
    let script = "import struct\nlistener = open_socket(); listener.bind('line'); listener.listen()\n\
        os.chmod('line', 0o777); os.chmod('.', 0o777)\n\
        if os.getuid() == 0: os.setgid(1); os.setuid(1)\n\
        client = open_socket(); client.connect(os.getcwd() + '/line'); it, _ = listener.accept()\n\
        pid, uid, gid = struct.unpack('3i', it.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))\n\
        print((uid, gid) == (os.getuid(), os.getgid()))";
    let text = run(&folders, &folders.profile(), script);
    assert_eq!(text, "True\n");
}
