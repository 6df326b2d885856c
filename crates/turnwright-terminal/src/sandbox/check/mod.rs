//! The check of the sandbox: runs escape attempts inside the sandbox and verifies that they failed.

mod agent_attempts;

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use turnwright_config::{Config, NetworkSetting, SandboxSettings};
use turnwright_sandbox::escape_tests::{
    self, AttemptResult, Evidence, ExpectedProtection, LOCK_FILE, SECRET, TestScene,
};
use turnwright_sandbox::{Network, PrivateLayer, SandboxProfile};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file::{self, is_locked};
use turnwright_workspace::exec::{self, CommandSpec, ProcessGroup, RunningCommand};

/// How long one attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the processes of an attempt have to end before they are killed.
const GRACE: Duration = Duration::from_millis(100);
/// The most bytes of an attempt's output that are kept.
const MAX_OUTPUT: usize = 4 * 1024;
/// The content of the file outside the sandbox, which no attempt may change.
const UNTOUCHED: &str = "a file outside the sandbox\n";

/// The outcome of the check.
#[derive(Debug)]
pub(crate) struct SandboxReport {
    /// The features of the system: name and value, for people.
    pub(crate) facts: Vec<(&'static str, String)>,
    /// The attempts that were made, in their order.
    pub(crate) attempts: Vec<TestedAttempt>,
    /// True if there was a sandbox to test, or the attempts were made without one on purpose.
    was_tested: bool,
    /// The features that the system lacks for full protection.
    missing: Vec<String>,
}

/// An escape attempt, and its outcome.
#[derive(Debug)]
pub(crate) struct TestedAttempt {
    /// A stable word for programs.
    pub(crate) name: &'static str,
    /// The attempt in words.
    pub(crate) what: &'static str,
    pub(crate) result: AttemptResult,
}

impl SandboxReport {
    /// Returns true if every attempt failed that must fail; `None` if there is no sandbox.
    pub(crate) fn holds(&self) -> Option<bool> {
        // An empty list proves nothing.
        self.was_tested.then(|| {
            !self.attempts.is_empty()
                && self.attempts.iter().all(|tested| {
                    matches!(tested.result, AttemptResult::Held | AttemptResult::KnownGap(_))
                })
        })
    }

    /// The outcome for programs.
    pub(crate) fn as_json(&self) -> Value {
        let facts: Value = self.facts.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let attempts = self.attempts.iter().map(|TestedAttempt { name, what, result }| {
            let verdict = result.name();
            json!({ "name": name, "what": what, "verdict": verdict, "why": result.why() })
        });
        json!({
            "holds": self.holds(),
            "system": facts,
            "missing": self.missing,
            "attempts": attempts.collect::<Vec<_>>(),
        })
    }
}

/// Makes every escape attempt in the sandbox that commands get. With `without_sandbox` they run
/// unconfined, to show that the check notices a leak.
pub(crate) fn check_sandbox(config: &Config, without_sandbox: bool) -> SandboxReport {
    let was_tested = turnwright_sandbox::can_confine() || without_sandbox;
    let missing = turnwright_sandbox::limitations();
    let mut facts = facts(&missing);
    facts.push(("hosts", host_access(&config.snapshot().sandbox_settings())));
    let made = if was_tested { run_all(config, without_sandbox) } else { Ok(Vec::new()) };
    let attempts = made.unwrap_or_else(|error| {
        facts.push(("", format!("! the sandbox could not be tested: {}", io_error_text(&error))));
        Vec::new()
    });
    SandboxReport { facts, attempts, was_tested, missing }
}

fn run_all(config: &Config, without_sandbox: bool) -> io::Result<Vec<TestedAttempt>> {
    let environment = config.snapshot().command_environment();
    let expected = ExpectedProtection {
        landlock: turnwright_sandbox::sandbox_support().landlock_abi,
        namespaces: turnwright_sandbox::namespace_support(),
    };
    let runtime = crate::runtime()?;
    let mut all = Vec::new();
    // Each attempt gets a fixture of its own, so that one that succeeds does not affect the next.
    loop {
        let mut fixture = AttemptFixture::new()?;
        let Some(attempt) = escape_tests::attempts(&fixture.scene).into_iter().nth(all.len())
        else {
            // Where traps can be set without a sandbox that keeps them off, every command is asked about.
            if without_sandbox || expected.namespaces.mounts {
                all.extend(agent_attempts::run_all(without_sandbox));
            }
            return Ok(all);
        };
        let spec = CommandSpec {
            command: attempt.command.clone(),
            workdir: fixture.scene.inside.clone(),
            environment: environment.clone(),
            accepts_input: false,
            extra_variables: Vec::new(),
            sandbox: (!without_sandbox).then(|| fixture.profile(attempt.has_network)),
            network: None,
        };
        let result = match runtime.block_on(run(&spec)) {
            Ok(text) => {
                let evidence = Evidence { text, changes: fixture.changes() };
                escape_tests::evaluate(&attempt, &evidence, expected)
            }
            Err(error) => AttemptResult::NotTested(io_error_text(&error)),
        };
        all.push(TestedAttempt { name: attempt.name, what: attempt.what, result });
    }
}

/// Runs a command to its end and returns its output.
async fn run(spec: &CommandSpec) -> io::Result<String> {
    let mut group = ProcessGroup::start(spec).await?;
    let mut output = Vec::new();
    let mut sink = |bytes: &[u8]| {
        if output.len() < MAX_OUTPUT {
            output.extend_from_slice(bytes);
        }
    };
    let end = async {
        while group.next_output(&mut sink).await?.is_none() {}
        io::Result::Ok(())
    };
    let ended = tokio::time::timeout(ATTEMPT_TIMEOUT, end).await;
    group.drain(&mut sink).await;
    group.stop(GRACE).await;
    ended.map_err(|_| io::Error::other("timed out"))??;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// The files, listeners and processes of one attempt, among them those that it must not touch.
struct AttemptFixture {
    scene: TestScene,
    bystander: BystanderProcess,
    tcp_listener: TcpListener,
    udp_socket: UdpSocket,
    #[cfg(target_os = "linux")]
    abstract_listener: UnixListener,
    socket_listeners: [UnixListener; 4],
    datagram_receiver: UnixDatagram,
    cache: PrivateLayer,
    /// Removed on drop.
    _folder: tempfile::TempDir,
}

impl AttemptFixture {
    fn new() -> io::Result<AttemptFixture> {
        let folder = tempfile::Builder::new().prefix("turnwright-proof-").tempdir()?;
        let base = folder.path().canonicalize()?;
        let [inside, outside, hidden, cache] = create_folders(&base)?;
        let tcp_listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        tcp_listener.set_nonblocking(true)?;
        let port = tcp_listener.local_addr()?.port();
        let udp_socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
        udp_socket.set_nonblocking(true)?;
        let program = exec::launcher_program().ok_or(io::ErrorKind::NotFound)?;
        let bystander = BystanderProcess::start(program)?;
        let socket = base.join("socket");
        let [renamed_socket, moved_socket, linked_socket, datagram_socket] =
            ["renamed", "elsewhere/socket", "elsewhere/linked", "elsewhere/datagrams"]
                .map(|name| base.join(name));
        fs::create_dir(base.join("elsewhere"))?;
        let abstract_name = format!("turnwright-proof-{}-{port}", std::process::id());
        Ok(AttemptFixture {
            #[cfg(target_os = "linux")]
            abstract_listener: listen(&abstract_name)?,
            socket_listeners: [
                listen_at(&socket, &socket)?,
                listen_at(&base.join("first"), &renamed_socket)?,
                listen_at(&base.join("second"), &moved_socket)?,
                listen_with_link(&base.join("third"), &linked_socket)?,
            ],
            datagram_receiver: receive_at(&base.join("fourth"), &datagram_socket)?,
            cache: PrivateLayer::new(cache.clone(), &base.join("layers")),
            scene: TestScene {
                inside,
                outside,
                hidden,
                parent_pid: std::process::id(),
                unrelated_pid: bystander.0.id(),
                program: program.to_path_buf(),
                port,
                abstract_name,
                socket,
                renamed_socket,
                moved_socket,
                linked_socket,
                datagram_socket,
                cache,
            },
            bystander,
            tcp_listener,
            udp_socket,
            _folder: folder,
        })
    }

    /// The profile of an ordinary command.
    fn profile(&self, has_network: bool) -> SandboxProfile {
        let scene = &self.scene;
        SandboxProfile {
            writable: vec![scene.inside.clone()],
            read_only: vec![scene.inside.join(".git/hooks")],
            hidden: vec![scene.hidden.clone()],
            caches: vec![self.cache.clone()],
            network: if has_network { Network::Internet } else { Network::Loopback },
            ..SandboxProfile::default()
        }
    }

    /// The forbidden changes that the attempt has made, one phrase each.
    fn changes(&mut self) -> Vec<String> {
        let TestScene { inside, outside, cache, .. } = &self.scene;
        let mut changes = Vec::new();
        let mut note = |is_changed: bool, what: &str| {
            if is_changed {
                changes.push(what.to_owned());
            }
        };
        for (folder, changed, new) in [
            (outside, "the outside file was changed", "there is a new file outside"),
            (cache, "a file of the cache was changed", "there is a new file in the cache"),
        ] {
            let text = fs::read_to_string(folder.join("file")).unwrap_or_default();
            note(text != UNTOUCHED, changed);
            let count = fs::read_dir(folder).map(Iterator::count).unwrap_or_default();
            note(count > 1, new);
        }
        note(inside.join(".git/hooks/pre-commit").exists(), "the protected file was written");
        note(is_locked(&inside.join(LOCK_FILE)), "a process is still running");
        note(!self.bystander.is_alive(), "the other process was killed");
        note(self.tcp_listener.accept().is_ok(), "the TCP listener got a connection");
        note(self.udp_socket.recv(&mut [0; 8]).is_ok(), "a datagram arrived");
        #[cfg(target_os = "linux")]
        note(self.abstract_listener.accept().is_ok(), "the abstract socket got a connection");
        for listener in &self.socket_listeners {
            note(listener.accept().is_ok(), "the program's socket got a connection");
        }
        let has_datagram = self.datagram_receiver.recv(&mut [0; 8]).is_ok();
        note(has_datagram, "the program's socket got a datagram");
        changes
    }
}

/// Creates the folders `inside`, `outside`, `hidden` and `cache`, with their files.
fn create_folders(base: &Path) -> io::Result<[PathBuf; 4]> {
    let [inside, outside, hidden, cache] =
        ["inside", "outside", "hidden", "cache"].map(|name| base.join(name));
    fs::create_dir_all(inside.join(".git/hooks"))?;
    let files =
        [(&outside, "file", UNTOUCHED), (&hidden, "secret", SECRET), (&cache, "file", UNTOUCHED)];
    for (folder, name, text) in files {
        fs::create_dir(folder)?;
        private_file::create_new(&folder.join(name))?.write_all(text.as_bytes())?;
    }
    Ok([inside, outside, hidden, cache])
}

impl Drop for AttemptFixture {
    fn drop(&mut self) {
        // The folders that the kernel has made in there for the layer can be removed, but not opened.
        fs::remove_dir(self.cache.private.join("work-0/work")).ok();
    }
}

fn listen_at(path: &Path, renamed: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::rename(path, renamed)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listen_with_link(path: &Path, link: &Path) -> io::Result<UnixListener> {
    let listener = listen_at(path, path)?;
    fs::hard_link(path, link)?;
    Ok(listener)
}

fn receive_at(path: &Path, renamed: &Path) -> io::Result<UnixDatagram> {
    let receiver = UnixDatagram::bind(path)?;
    fs::rename(path, renamed)?;
    receiver.set_nonblocking(true)?;
    Ok(receiver)
}

#[cfg(target_os = "linux")]
fn listen(name: &str) -> io::Result<UnixListener> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// An idle process, killed on drop, that an attempt must not be able to kill.
struct BystanderProcess(Child);

impl BystanderProcess {
    #[expect(
        clippy::disallowed_methods,
        reason = "this runs our own program, not a command of the model"
    )]
    fn start(program: &Path) -> io::Result<BystanderProcess> {
        let mut command = std::process::Command::new(program);
        command.args(["sandbox-probe", "wait"]).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(BystanderProcess)
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for BystanderProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The sandbox features of this system: name and value.
fn facts(missing: &[String]) -> Vec<(&'static str, String)> {
    let support = turnwright_sandbox::sandbox_support();
    let mut facts = vec![("sandbox", yes_or_no(turnwright_sandbox::can_confine()))];
    let kernel = file_text("/proc/sys/kernel/osrelease");
    facts.extend(kernel.map(|release| ("kernel", release)));
    if cfg!(target_os = "linux") {
        let abi =
            support.landlock_abi.map_or("none".to_owned(), |version| format!("version {version}"));
        facts.push(("landlock", abi));
        facts.extend(file_text("/sys/kernel/security/lsm").map(|modules| ("LSM", modules)));
        facts.push(("seccomp", yes_or_no(support.seccomp)));
        facts.push(("userns", user_namespaces(file_text)));
        facts.push(("sockets", sockets(support.landlock_abi).to_owned()));
    }
    facts.extend(container().map(|name| ("container", name.to_owned())));
    facts.extend(missing.iter().map(|gap| ("", format!("! {gap}"))));
    facts
}

/// The way in which commands reach single hosts.
fn host_access(settings: &SandboxSettings) -> String {
    let listed = settings.hosts.join(", ");
    match (settings.network, (settings.asks_about_hosts())()) {
        (NetworkSetting::On, _) => "commands have the whole network".to_owned(),
        (_, true) if listed.is_empty() => "asked about one by one".to_owned(),
        (_, true) => format!("{listed}; others are asked about one by one"),
        (_, false) if listed.is_empty() => {
            "not by name: the network is asked about as a whole".to_owned()
        }
        (_, false) => format!("not by name, so these are out of reach: {listed}"),
    }
}

fn file_text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|content| content.trim().to_owned())
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

/// The protection of the sockets of other programs.
fn sockets(landlock_abi: Option<i32>) -> &'static str {
    let namespaces = turnwright_sandbox::namespace_support();
    match (landlock_abi, namespaces) {
        (Some(9..), _) => "closed by landlock",
        (_, it) if it.sockets => "closed, each connection is supervised",
        (_, it) if it.mounts => "closed, but those that are moved or made later are open",
        _ => "open",
    }
}

/// Describes whether commands can have a mount namespace of their own, and which kernel setting may forbid it.
fn user_namespaces(read: impl Fn(&str) -> Option<String>) -> String {
    let mut text =
        if turnwright_sandbox::namespace_support().mounts { "usable" } else { "not usable" }
            .to_owned();
    for (path, wrong) in [
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ] {
        if read(path).as_deref() == Some(wrong) {
            text.push_str(&format!(" ({path} is {wrong})"));
        }
    }
    text
}

/// The kind of container that the process runs in, if any.
fn container() -> Option<&'static str> {
    let markers = [
        ("/.dockerenv", "docker"),
        ("/run/.containerenv", "podman"),
        ("/.flatpak-info", "flatpak"),
    ];
    markers.iter().find(|marker| Path::new(marker.0).exists()).map(|marker| marker.1)
}
