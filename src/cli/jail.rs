//! The proof of the sandbox: hostile commands are run in it, and it is looked at what came of them.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::Config;
use turnwright_workspace::exec::{self, Environment, Group, Spec, Started};
use turnwright_sandbox::proof::{self, Attempt, SECRET, Scene, Strength, Traces, Verdict};
use turnwright_sandbox::{Network, Profile};

/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long what it leaves behind may clean up.
const GRACE: Duration = Duration::from_millis(100);
/// Bytes of what it prints that are looked at.
const LONGEST: usize = 4 * 1024;
/// What is in the file outside.
const UNTOUCHED: &str = "the work of somebody else\n";

/// What was found out.
#[derive(Debug)]
pub(super) struct Proof {
    /// What the system has, for people.
    pub(super) facts: Vec<(&'static str, String)>,
    /// What was tried.
    pub(super) tried: Vec<Tried>,
    has_walls: bool,
    missing: Vec<String>,
}

/// An attempt and what came of it.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) attempt: Attempt,
    pub(super) verdict: Verdict,
}

impl Proof {
    /// Whether all held that has to; `None` if nothing is said to.
    pub(super) fn holds(&self) -> Option<bool> {
        let is_fine =
            |it: &Tried| !matches!(it.verdict, Verdict::NotHeld(_) | Verdict::NotTested(_));
        // Nothing proves nothing.
        self.has_walls.then(|| !self.tried.is_empty() && self.tried.iter().all(is_fine))
    }

    pub(super) fn as_json(&self) -> Value {
        let facts: serde_json::Map<_, _> =
            self.facts.iter().map(|(name, it)| ((*name).to_owned(), it.as_str().into())).collect();
        let attempts: Vec<_> = self.tried.iter().map(|it| {
            let Tried { attempt, verdict } = it;
            json!({ "name": attempt.name, "what": attempt.what, "verdict": verdict.name(), "why": verdict.why() })
        }).collect();
        json!({
            "holds": self.holds(),
            "system": facts,
            "missing": self.missing,
            "attempts": attempts,
        })
    }
}

/// Tries everything, in the walls that commands get or, for comparison, in none.
pub(super) fn prove(config: &Config, without_walls: bool) -> Proof {
    let has_walls = turnwright_sandbox::can_confine() || without_walls;
    let missing = turnwright_sandbox::shortcomings();
    let mut facts = facts(&missing);
    let tried = if has_walls { try_all(config, without_walls) } else { Ok(Vec::new()) };
    let tried = tried.unwrap_or_else(|error| {
        facts.push(("", format!("! nothing could be tried: {error}")));
        Vec::new()
    });
    Proof { facts, tried, has_walls, missing }
}

fn try_all(config: &Config, without_walls: bool) -> io::Result<Vec<Tried>> {
    let secrets = config.secrets();
    let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
    let environment = Environment::scrubbed(config.inherited.iter().cloned(), &secrets);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut all = Vec::new();
    // Each attempt in a place of its own: one that comes through must not spoil the next.
    loop {
        let mut place = Place::new()?;
        let Some(attempt) = proof::attempts(&place.scene).into_iter().nth(all.len()) else {
            return Ok(all);
        };
        let spec = Spec {
            command: attempt.command.clone(),
            workdir: place.scene.inside.clone(),
            environment: environment.clone(),
            takes_input: false,
            extra: Vec::new(),
            jail: (!without_walls).then(|| profile(&place.scene)),
        };
        let verdict = match runtime.block_on(run(&spec)) {
            Ok(text) => {
                let traces = Traces { text, changes: place.changes() };
                proof::judge(&attempt, &traces, strength())
            }
            Err(error) => Verdict::NotTested(error.to_string()),
        };
        all.push(Tried { attempt, verdict });
    }
}

fn strength() -> Strength {
    let landlock = turnwright_sandbox::capabilities().landlock_abi;
    Strength { landlock, mounts: turnwright_sandbox::rooms().mounts }
}

/// The walls as commands get them.
fn profile(scene: &Scene) -> Profile {
    Profile {
        write: vec![scene.inside.clone()],
        keep: vec![scene.inside.join(".git/hooks")],
        hide: vec![scene.hidden.clone()],
        read: None,
        network: Network::Off,
    }
}

/// Runs a command to its end; returns what it has printed.
async fn run(spec: &Spec) -> io::Result<String> {
    let mut group = Group::start(spec)?;
    let mut said = Vec::new();
    let mut sink = |bytes: &[u8]| {
        if said.len() < LONGEST {
            said.extend_from_slice(bytes);
        }
    };
    let end = async {
        while group.next(&mut sink).await?.is_none() {}
        io::Result::Ok(())
    };
    let ended = tokio::time::timeout(LIMIT, end).await;
    group.drain(&mut sink).await;
    group.stop(GRACE).await;
    ended.map_err(|_| io::Error::other("it took too long"))??;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// A place for one attempt, with all that it must not touch.
struct Place {
    scene: Scene,
    stranger: Stranger,
    calls: TcpListener,
    datagrams: UdpSocket,
    #[cfg(target_os = "linux")]
    abstract_calls: std::os::unix::net::UnixListener,
    /// Removed with all that is in it.
    _folder: tempfile::TempDir,
}

impl Place {
    #[expect(clippy::disallowed_methods, reason = "nobody misses what is half written here")]
    fn new() -> io::Result<Place> {
        let folder = tempfile::Builder::new().prefix("turnwright-proof-").tempdir()?;
        let base = folder.path().canonicalize()?;
        let [inside, outside, hidden] = ["inside", "outside", "hidden"].map(|it| base.join(it));
        fs::create_dir_all(inside.join(".git/hooks"))?;
        for (folder, name, text) in [(&outside, "file", UNTOUCHED), (&hidden, "secret", SECRET)] {
            fs::create_dir(folder)?;
            fs::write(folder.join(name), text)?;
        }
        let calls = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        calls.set_nonblocking(true)?;
        let port = calls.local_addr()?.port();
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
        datagrams.set_nonblocking(true)?;
        let program = exec::launcher().ok_or(io::ErrorKind::NotFound)?;
        let stranger = Stranger::start(program)?;
        let abstract_name = format!("turnwright-proof-{}-{port}", std::process::id());
        Ok(Place {
            #[cfg(target_os = "linux")]
            abstract_calls: listen(&abstract_name)?,
            scene: Scene {
                inside,
                outside,
                hidden,
                parent: std::process::id(),
                stranger: stranger.0.id(),
                program: program.to_path_buf(),
                port,
                abstract_name,
            },
            stranger,
            calls,
            datagrams,
            _folder: folder,
        })
    }

    /// What is different and must not be.
    fn changes(&mut self) -> Vec<String> {
        let Scene { inside, outside, .. } = &self.scene;
        let mut changes = Vec::new();
        let mut note = |is_changed: bool, what: &str| {
            if is_changed {
                changes.push(what.to_owned());
            }
        };
        let text = fs::read_to_string(outside.join("file")).unwrap_or_default();
        note(text != UNTOUCHED, "the file outside was changed");
        let count = fs::read_dir(outside).map(Iterator::count).unwrap_or_default();
        note(count > 1, "there is a new file outside");
        note(inside.join(".git/hooks/pre-commit").exists(), "the protected file was written");
        note(!self.stranger.is_alive(), "the other process was ended");
        note(self.calls.accept().is_ok(), "the listener was called");
        note(self.datagrams.recv(&mut [0; 8]).is_ok(), "a datagram came");
        #[cfg(target_os = "linux")]
        note(self.abstract_calls.accept().is_ok(), "the listener without a file was called");
        changes
    }
}

#[cfg(target_os = "linux")]
fn listen(name: &str) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A process that does nothing, and ends with us.
struct Stranger(Child);

impl Stranger {
    #[expect(clippy::disallowed_methods, reason = "it is no command: nobody decides what it does")]
    fn start(program: &Path) -> io::Result<Stranger> {
        let mut command = std::process::Command::new(program);
        command.args(["sandbox-probe", "wait"]).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Stranger)
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What the system has.
fn facts(missing: &[String]) -> Vec<(&'static str, String)> {
    let text = |path: &str| fs::read_to_string(path).ok().map(|it| it.trim().to_owned());
    let found = turnwright_sandbox::capabilities();
    let yes_or_no = |it: bool| if it { "yes" } else { "no" }.to_owned();
    let mut facts = vec![("sandbox", yes_or_no(turnwright_sandbox::can_confine()))];
    let kernel = text("/proc/sys/kernel/osrelease");
    facts.extend(kernel.map(|it| ("kernel", it)));
    if cfg!(target_os = "linux") {
        let abi = found.landlock_abi.map_or("none".to_owned(), |it| format!("version {it}"));
        facts.push(("landlock", abi));
        facts.extend(text("/sys/kernel/security/lsm").map(|it| ("LSM", it)));
        facts.push(("seccomp", yes_or_no(found.seccomp)));
        facts.push(("userns", user_namespaces(text)));
    }
    facts.extend(container().map(|it| ("container", it.to_owned())));
    facts.extend(missing.iter().map(|it| ("", format!("! {it}"))));
    facts
}

/// Whether a command gets a view of the files of its own, and what may stand in the way.
fn user_namespaces(text: impl Fn(&str) -> Option<String>) -> String {
    let mut said = if turnwright_sandbox::rooms().mounts { "usable" } else { "not usable" }.to_owned();
    for (path, wrong) in [
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ] {
        if text(path).as_deref() == Some(wrong) {
            said.push_str(&format!(" ({path} is {wrong})"));
        }
    }
    said
}

/// What we may be in.
fn container() -> Option<&'static str> {
    let marks = [
        ("/.dockerenv", "docker"),
        ("/run/.containerenv", "podman"),
        ("/.flatpak-info", "flatpak"),
    ];
    marks.iter().find(|it| Path::new(it.0).exists()).map(|it| it.1)
}
