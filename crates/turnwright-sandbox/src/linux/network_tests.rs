//! Tests of what a program in a private network reaches, with real processes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;

use super::socket_tests::{can_test, run, run_in, run_sandbox};
use super::tests::TestFolders;
use super::*;
use crate::Refusal;

/// The beginning of the scripts: `reach` says whether a connection to a port was made, and `echo` what came back.
const CLIENT: &str = "\
import select
def reach(host, port, kind=socket.SOCK_STREAM):
    try:
        it = socket.create_connection((host, port), 2); return 'reached'
    except OSError as error: return error.strerror
def echo(it): it.sendall(b'hello'); return it.recv(9).decode()
";

/// Writes an address into a buffer, as the kernel reads it.
fn address_bytes(address: SocketAddr, buffer: &mut [u8; syscalls::MAX_ADDRESS]) -> &[u8] {
    let number = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let family = libc::sa_family_t::try_from(number).unwrap_or_default();
    buffer[..2].copy_from_slice(&family.to_ne_bytes());
    buffer[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            buffer[4..8].copy_from_slice(&address.ip().octets());
            &buffer[..size_of::<libc::sockaddr_in>()]
        }
        SocketAddr::V6(address) => {
            buffer[8..24].copy_from_slice(&address.ip().octets());
            buffer[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            &buffer[..size_of::<libc::sockaddr_in6>()]
        }
    }
}

fn can_test_networks() -> bool {
    let can = can_test() && namespace_support().network && namespace_support().supervision;
    if !can {
        eprintln!("NOT TESTED: no private networks here");
    }
    can
}

fn profile(folders: &TestFolders, network: Network, named: &[SocketAddr]) -> SandboxProfile {
    SandboxProfile { network, machine_addresses: named.to_vec(), ..folders.profile() }
}

/// Answers each connection with what it sends.
fn start_echo_server(address: &str) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let bound = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let mut writer = client.try_clone().unwrap();
            thread::spawn(move || io::copy(&mut &client, &mut writer));
        }
    });
    bound
}

#[test]
fn programs_of_a_session_reach_each_other_and_nothing_of_the_machine() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let session = Arc::new(SessionNetwork::create().unwrap());
    let machine = start_echo_server("127.0.0.1:0").port();
    let server = "\
        def accept(family, host):\n  \
          it = socket.socket(family); it.bind((host, 4711)); it.listen()\n  \
          def work():\n    \
            while True: client, _ = it.accept(); client.sendall(client.recv(9)); client.close()\n  \
          threading.Thread(target=work, daemon=True).start()\n\
        accept(socket.AF_INET, '127.0.0.1'); accept(socket.AF_INET6, '::1'); serve('\\0abstract')\n\
        print('ready', flush=True); open('ready', 'w').close(); sys.stdin.readline()";
    let client = format!(
        "{CLIENT}\
        for host in ['127.0.0.1', '::1', 'localhost']: print(echo(socket.create_connection((host, 4711))))\n\
        print(talk('\\0abstract'), reach('127.0.0.1', {machine}), reach('192.0.2.1', 80))"
    );
    let answered = run_in(
        &folders,
        &profile(&folders, Network::Loopback, &[]),
        Some(&session),
        server,
        |stdin| {
            while !folders.inside.join("ready").exists() {
                thread::yield_now();
            }
            for network in [Network::Loopback, Network::Internet] {
                let client = if network == Network::Internet {
                    client
                        .replace("talk('\\0abstract')", "'hello'")
                        .replace("reach('192.0.2.1', 80)", "'Network is unreachable'")
                } else {
                    client.clone()
                };
                let profile = profile(&folders, network, &[]);
                let text = run_in(&folders, &profile, Some(&session), &client, |_| ());
                let expected =
                    "hello\nhello\nhello\nhello Connection refused Network is unreachable\n";
                assert_eq!(text, expected, "{network:?}");
            }
            // The agent reaches the servers, too.
            for (address, is_ipv6) in [("127.0.0.1:4711", false), ("[::1]:4711", true)] {
                let socket = session.open_socket(is_ipv6).unwrap();
                let address: SocketAddr = address.parse().unwrap();
                let mut bytes = [0; syscalls::MAX_ADDRESS];
                let bytes = address_bytes(address, &mut bytes);
                syscalls::connect(socket.as_fd(), bytes).unwrap();
                let mut stream = TcpStream::from(socket);
                stream.write_all(b"agent").unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                assert_eq!(text, "agent");
            }
            stdin.write_all(b"\n").unwrap();
        },
    );
    assert_eq!(answered, "ready\n");
    // Another session has another network.
    let other = profile(&folders, Network::Loopback, &[]);
    let text = run(&folders, &other, &format!("{CLIENT}print(reach('127.0.0.1', 4711))"));
    assert_eq!(text, "Connection refused\n");
}

#[test]
fn with_the_internet_the_machine_itself_is_not_reached() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let listener = start_echo_server("[::]:0");
    let port = listener.port();
    let mut expected = String::new();
    let mut script = CLIENT.to_owned();
    for (host, error) in [
        ("127.0.0.1", "Connection refused"),
        ("127.0.0.5", "Connection refused"),
        ("0.0.0.0", "Connection refused"),
        ("localhost", "Connection refused"),
        ("::1", "Connection refused"),
        ("::", "Connection refused"),
        ("::ffff:127.0.0.1", "Connection refused"),
        ("169.254.169.254", "Permission denied"),
        ("::ffff:169.254.169.254", "Permission denied"),
        ("fd00:ec2::254", "Permission denied"),
        ("fe80::1", "Permission denied"),
    ] {
        script.push_str(&format!("print('{host}', reach('{host}', {port}))\n"));
        expected.push_str(&format!("{host} {error}\n"));
    }
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        let own = socket.local_addr().unwrap().ip();
        script.push_str(&format!("print(reach('{own}', {port}), reach('::ffff:{own}', {port}))\n"));
        expected.push_str("Permission denied Permission denied\n");
    }
    let internet = profile(&folders, Network::Internet, &[]);
    assert_eq!(run(&folders, &internet, &script), expected);
}

/// An address that the profile names stands for all that are outside: the same way leads to them.
#[test]
fn a_socket_that_connects_outside_behaves_like_the_program_s_own() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let named = ["127.0.0.1:0", "[::1]:0"].map(start_echo_server);
    let port = named[0].port();
    let port_v6 = named[1].port();
    let script = format!(
        "{CLIENT}\
        fcntl = __import__('fcntl'); it = socket.socket()\n\
        it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); it.settimeout(5); number = it.fileno()\n\
        it.connect(('127.0.0.1', {port})); print(echo(it), it.fileno() == number, it.getpeername() == ('127.0.0.1', {port}))\n\
        print(it.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), fcntl.fcntl(number, fcntl.F_GETFD))\n\
        print(echo(socket.create_connection(('::1', {port_v6}))), echo(socket.create_connection(('::ffff:127.0.0.1', {port}))))\n\
        it = socket.socket(); it.setblocking(False); it.set_inheritable(True)\n\
        print(it.connect_ex(('127.0.0.1', {port})) in (0, 115)); select.select([], [it], [], 5)\n\
        print(it.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), fcntl.fcntl(it, fcntl.F_GETFD), fcntl.fcntl(it, fcntl.F_GETFL) & os.O_NONBLOCK)\n\
        it.setblocking(True); print(echo(it))\n\
        it = socket.socket(); print(it.connect_ex(('127.0.0.1', 1)), it.connect_ex(('127.0.0.1', {port})), echo(it))\n\
        it = socket.socket(); it.connect(('127.0.0.1', {port})); print(it.connect_ex(('127.0.0.1', 1)))\n\
        it = socket.socket(); it.setblocking(False); poll = select.epoll()\n\
        poll.register(it, select.EPOLLOUT | select.EPOLLET); poll.poll(0)\n\
        it.connect_ex(('127.0.0.1', {port})); print(poll.poll(5) == [(it.fileno(), select.EPOLLOUT)])\n\
        poll.modify(it, select.EPOLLIN); it.send(b'x'); print(poll.poll(5) == [(it.fileno(), select.EPOLLIN)])\n\
        it = socket.socket(); it.setblocking(False); polls = [select.epoll(), select.epoll()]\n\
        for poll in polls: poll.register(it, select.EPOLLOUT)\n\
        it.connect_ex(('127.0.0.1', {port})); print([poll.poll(5) == [(it.fileno(), select.EPOLLOUT)] for poll in polls])\n\
        asyncio = __import__('asyncio')\n\
        async def talk_async():\n  \
          reader, writer = await asyncio.open_connection('127.0.0.1', {port}); writer.write(b'async'); return await reader.read(5)\n\
        print(asyncio.run(talk_async()))"
    );
    for network in [Network::Loopback, Network::Internet] {
        let text = run(&folders, &profile(&folders, network, &named), &script);
        assert_eq!(
            text,
            "hello True True\n1 1\nhello hello\nTrue\n0 0 2048\nhello\n111 0 hello\n13\nTrue\nTrue\n[True, True]\nb'async'\n",
            "{network:?}"
        );
    }
}

#[test]
fn datagrams_go_outside_only_to_what_may_be_reached() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let [open, closed] =
        ["127.0.0.1:0", "127.0.0.1:0"].map(|address| UdpSocket::bind(address).unwrap());
    let named = open.local_addr().unwrap();
    let other = closed.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = open.recv_from(&mut buffer) {
            open.send_to(&buffer[..length], from).unwrap();
        }
    });
    let port = named.port();
    let script = format!(
        "{CLIENT}\
        def open_udp(): it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); it.settimeout(5); return it\n\
        it = open_udp(); it.bind(('', 0)); it.sendto(b'bound', ('127.0.0.1', {port})); print(it.recvfrom(9))\n\
        it = open_udp(); it.connect(('127.0.0.1', {port})); print(echo(it))\n\
        def fails(work):\n  \
          try: return work()\n  \
          except OSError as error: return error.strerror\n\
        print(fails(lambda: it.sendto(b'x', ('127.0.0.1', {other}))), fails(lambda: it.sendto(b'x', ('169.254.169.254', 80))))\n\
        import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n\
        print(libc.connect(it.fileno(), b'\\0' * 16, 16), os.strerror(ctypes.get_errno()))\n\
        own = open_udp(); own.bind(('127.0.0.1', 0)); mine = open_udp()\n\
        mine.sendto(b'mine', own.getsockname()); print(own.recvfrom(9)[0])\n\
        print(fails(lambda: mine.sendto(b'x' * 65508, own.getsockname())))\n\
        print(fails(lambda: socket.socket().sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', {other}))))"
    );
    let text = run(&folders, &profile(&folders, Network::Internet, &[named]), &script);
    let expected = format!(
        "(b'bound', ('127.0.0.1', {port}))\nhello\nPermission denied Permission denied\n\
         -1 Permission denied\nb'mine'\nMessage too long\nOperation not permitted\n"
    );
    assert_eq!(text, expected);
    closed.set_nonblocking(true).unwrap();
    assert!(closed.recv(&mut [0]).is_err());
}

/// The refusals to a program, in words.
fn noted(refusals: &mut Refusals) -> String {
    let words = refusals.take().into_iter().map(|refusal| match refusal {
        Refusal::Connection(address) => address.to_string(),
        Refusal::Call(call) => format!("{call:?}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A name is looked up, a server of the machine is missed, and another machine: the agent says which.
#[test]
fn connections_that_failed_because_of_the_sandbox_are_noted() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let script = format!(
        "{CLIENT}\
        it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); it.connect_ex(('127.0.0.53', 53))\n\
        for _ in range(3): reach('192.0.2.1', 443); reach('127.0.0.1', 5432); reach('169.254.169.254', 80)\n\
        it.connect_ex(('192.0.2.2', 9)); reach('::1', 0); print('done')"
    );
    for (network, expected) in [
        (Network::Loopback, "127.0.0.53:53 192.0.2.1:443 127.0.0.1:5432 169.254.169.254:80"),
        (Network::Internet, "127.0.0.1:5432 169.254.169.254:80"),
    ] {
        let profile = profile(&folders, network, &[]);
        let prepared = LinuxSandbox::prepare(&profile, None).unwrap();
        let sandbox = prepared.with_process_namespace().unwrap();
        let mut refusals = sandbox.refusals().unwrap();
        // A machine without any network has no way to 192.0.2.1 either.
        let script = if network == Network::Internet {
            script.replace("reach('192.0.2.1', 443);", "")
        } else {
            script.clone()
        };
        assert_eq!(run_sandbox(&folders, sandbox, &script, |_| ()), "done\n");
        assert_eq!(noted(&mut refusals), expected, "{network:?}");
        assert!(refusals.take().is_empty());
    }
}

/// The calls fail with the error of the filter, each as often as it is made, and what may be done works.
#[test]
fn system_calls_that_the_filter_denies_are_noted_once() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let script = format!(
        "libc = ctypes.CDLL(None, use_errno=True); open('file', 'w').close()\n\
        def call(*arguments):\n  \
          ctypes.set_errno(0); return (libc.syscall(*arguments), os.strerror(ctypes.get_errno()))\n\
        def fails(work):\n  \
          try: work(); return (0, 'Success')\n  \
          except OSError as error: return (-1, error.strerror)\n\
        found = set()\n\
        for _ in range(3):\n  \
          found.add(call({perf}, 0, 0, 0, 0, 0)); found.add(call({unshare}, 0x10000000))\n  \
          found.add(call({clone}, 0x10000011, 0, 0, 0, 0)); found.add(call({mount}, 0, 0, 0, 0, 0))\n  \
          found.add(fails(lambda: os.chmod('file', 0o4755))); found.add(call({io_uring}, 8, 0))\n  \
          found.add(call({keyctl}, 0, 0, 0, 0, 0)); found.add(call({userfaultfd}, 0))\n  \
          found.add(fails(lambda: open_socket(socket.SOCK_DGRAM))); found.add(fails(lambda: socket.socket(17)))\n  \
          found.add(call({swapoff}, 0)); found.add(call({bpf}, 0, 0, 0))\n\
        print(found); os.chmod('file', 0o755); print(fails(socket.socket), fails(open_socket))",
        perf = libc::SYS_perf_event_open,
        unshare = libc::SYS_unshare,
        clone = libc::SYS_clone,
        mount = libc::SYS_mount,
        io_uring = libc::SYS_io_uring_setup,
        keyctl = libc::SYS_keyctl,
        userfaultfd = libc::SYS_userfaultfd,
        swapoff = libc::SYS_swapoff,
        bpf = libc::SYS_bpf,
    );
    let calls = "PerfEvents Namespace Mount SetIdMode IoUring Keyring Userfaultfd DatagramSocket OtherSocket";
    let refused = "(-1, 'Operation not permitted')";
    let works = "(0, 'Success')";
    for (network, socket, expected) in [
        (Network::Loopback, works, calls.to_owned()),
        (Network::Off, refused, format!("{calls} NetworkSocket")),
    ] {
        let profile = profile(&folders, network, &[]);
        let prepared = LinuxSandbox::prepare(&profile, None).unwrap();
        let sandbox = prepared.with_process_namespace().unwrap();
        let mut refusals = sandbox.refusals().unwrap();
        let text = run_sandbox(&folders, sandbox, &script, |_| ());
        assert_eq!(text, format!("{{{refused}}}\n{socket} {works}\n"), "{network:?}");
        assert_eq!(noted(&mut refusals), expected, "{network:?}");
    }
}

#[test]
fn a_program_debugs_what_it_has_started_and_has_terminals_of_its_own() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let script = "\
        libc = ctypes.CDLL(None, use_errno=True); libc.ptrace.argtypes = [ctypes.c_long] * 4\n\
        child = os.fork()\n\
        if child == 0: time.sleep(60); os._exit(0)\n\
        print(libc.ptrace(16, child, 0, 0), os.waitpid(child, 0)[1] & 0xff, libc.ptrace(17, child, 0, 0))\n\
        os.kill(child, 9); os.waitpid(child, 0)\n\
        print(libc.ptrace(16, 1, 0, 0), os.strerror(ctypes.get_errno()))\n\
        class Part(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]\n\
        local = ctypes.create_string_buffer(8); part = Part(ctypes.addressof(local), 8)\n\
        print(libc.process_vm_readv(1, ctypes.byref(part), 1, ctypes.byref(part), 1, 0), os.strerror(ctypes.get_errno()))\n\
        import pty; first, second = pty.openpty(); os.write(first, b'line\\n'); print(os.read(second, 9), os.ttyname(second))\n\
        print(sorted(os.listdir('/dev/pts')), os.isatty(second))\n\
        print(libc.syscall({perf}, 0, 0, 0, 0, 0), os.strerror(ctypes.get_errno()))";
    let script = script.replace("{perf}", &libc::SYS_perf_event_open.to_string());
    let refused = "Operation not permitted";
    for (debug, perf) in [(false, refused), (true, "Bad address")] {
        let profile = SandboxProfile { debug, ..folders.profile() };
        let text = run(&folders, &profile, &script);
        assert_eq!(
            text,
            format!(
                "0 127 0\n-1 {refused}\n-1 {refused}\nb'line\\n' /dev/pts/0\n['0', 'ptmx'] True\n-1 {perf}\n"
            )
        );
    }
}

/// A program that may reach more hands its socket to one that may not.
#[test]
fn a_socket_that_was_passed_on_gives_no_access_and_nothing_listens_on_the_machine() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let session = Arc::new(SessionNetwork::create().unwrap());
    let [named, other] = ["127.0.0.1:0", "127.0.0.1:0"].map(start_echo_server);
    let receiver = format!(
        "unspec = b'\\0' * 16; libc = ctypes.CDLL(None, use_errno=True)\n\
        it = open_socket(); it.bind('pass'); it.listen(); open('ready', 'w').close(); it, _ = it.accept()\n\
        for _ in range(2):\n  \
          _, fds, _, _ = socket.recv_fds(it, 1, 1); passed = socket.socket(fileno=fds[0])\n  \
          print(libc.connect(passed.fileno(), unspec, 16), end=' ')\n  \
          try: passed.connect(('127.0.0.1', {})); print('reached')\n  \
          except OSError as error: print(error.strerror)",
        other.port()
    );
    let sender = format!(
        "while not os.path.exists('ready'): time.sleep(0.01)\n\
        it = open_socket(); it.connect('pass')\n\
        tcp = socket.create_connection(('127.0.0.1', {0})); socket.send_fds(it, [b'x'], [tcp.fileno()])\n\
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        print(udp.connect_ex(('127.0.0.1', {0}))); socket.send_fds(it, [b'x'], [udp.fileno()])\n\
        libc = ctypes.CDLL(None, use_errno=True); server = socket.create_connection(('127.0.0.1', {0}))\n\
        print(libc.connect(server.fileno(), b'\\0' * 16, 16))\n\
        for act in (lambda: server.bind(('127.0.0.1', 0)), server.listen):\n  \
          try: act()\n  \
          except OSError as error: print(error.strerror)\n\
        own = socket.socket(); own.bind(('127.0.0.1', 0)); own.listen(); print(reach(own.getsockname()[0]))",
        named.port()
    )
    .replace("print(reach(own.getsockname()[0]))", "print(socket.create_connection(own.getsockname()) is not None)");
    let allowed = profile(&folders, Network::Loopback, &[named]);
    let nothing = profile(&folders, Network::Loopback, &[]);
    let received = run_in(&folders, &nothing, Some(&session), &receiver, |_| {
        let sent = run_in(&folders, &allowed, Some(&session), &sender, |_| ());
        assert_eq!(sent, "13\n-1\nPermission denied\nPermission denied\nTrue\n");
    });
    // The second is still one of the private network, in which nobody gets its datagrams.
    assert_eq!(received, "-1 Permission denied\n0 reached\n");
}

/// A connection that was given up leaves a socket of the machine that has no port.
#[test]
fn a_program_takes_no_port_of_the_machine_and_binds_its_own_sockets() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let busy = syscalls::open_socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    let mut bytes = [0; syscalls::MAX_ADDRESS];
    let any = address_bytes("127.0.0.1:0".parse().unwrap(), &mut bytes);
    syscalls::bind(busy.as_fd(), any).unwrap();
    rustix::net::listen(&busy, 0).unwrap();
    let busy = TcpListener::from(busy);
    let named = busy.local_addr().unwrap();
    // One that nobody accepts is enough. Others wait.
    let wait = std::time::Duration::from_millis(100);
    let _filled = [0; 2].map(|_| TcpStream::connect_timeout(&named, wait));
    let script = format!(
        "{CLIENT}\
        it = socket.socket(); it.setblocking(False); print(it.connect_ex(('127.0.0.1', {})))\n\
        it.shutdown(socket.SHUT_RDWR)\n\
        def bind(it, address):\n  \
          try: it.bind(address); return 'bound'\n  \
          except OSError as error: return error.strerror\n\
        print(bind(it, ('127.0.0.1', 0)))\n\
        own = socket.socket(); print(bind(own, ('127.0.0.1', 4711)), own.getsockname())\n\
        print(bind(socket.socket(), ('127.0.0.1', 4711)), bind(own, ('127.0.0.1', 4712)))\n\
        print(bind(socket.socket(socket.AF_INET6), ('::1', 4711)), bind(open_socket(), 'line'), os.path.exists('line'))\n\
        print(bind(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0), (0, 0)))",
        named.port()
    );
    let text = run(&folders, &profile(&folders, Network::Loopback, &[named]), &script);
    assert_eq!(
        text,
        "115\nPermission denied\nbound ('127.0.0.1', 4711)\nAddress already in use Invalid argument\n\
         bound bound True\nbound\n"
    );
}

/// A signal that arrives when the socket is bound and before the program knows of it.
#[test]
fn signals_do_not_disturb_the_binding_of_sockets() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let script = "signal.signal(signal.SIGUSR1, lambda *_: None); signal.siginterrupt(signal.SIGUSR1, False)\n\
        me = os.getpid(); child = os.fork()\n\
        while child == 0 and os.getppid() == me: os.kill(me, signal.SIGUSR1); time.sleep(0.0001)\n\
        if child == 0: os._exit(0)\n\
        for _ in range(1000): it = socket.socket(); it.bind(('127.0.0.1', 0)); it.close()\n\
        os.kill(child, signal.SIGKILL); print('bound')";
    let text = run(&folders, &profile(&folders, Network::Loopback, &[]), script);
    assert_eq!(text, "bound\n");
}

#[test]
fn names_are_looked_up_for_each_family_and_private_addresses_are_those_of_the_session() {
    if !can_test_networks() {
        return;
    }
    let folders = TestFolders::new();
    let script = format!(
        "{CLIENT}\
        for family in [socket.AF_INET, socket.AF_INET6, socket.AF_UNSPEC]:\n  \
          host = '::1' if family == socket.AF_INET6 else '127.0.0.1'\n  \
          print(len(socket.getaddrinfo(host, 80, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)))\n\
        it = socket.socket(socket.AF_INET6); it.bind(('::', 0)); it.listen(8); port = it.getsockname()[1]\n\
        print(reach('192.0.0.8', port), reach('fd00:7477::8', port), reach('127.0.0.1', port))"
    );
    for network in [Network::Loopback, Network::Internet] {
        let text = run(&folders, &profile(&folders, network, &[]), &script);
        assert_eq!(text, "1\n1\n1\nreached reached reached\n", "{network:?}");
    }
}
