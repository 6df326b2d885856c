//! Escape tests: commands that try to break out of a sandbox, and what their output and side
//! effects say about its strength. The caller runs them; this module runs nothing.

use std::path::{Path, PathBuf};

use crate::NamespaceSupport;

/// The files and processes that the attempts are made on. All of it must exist before the first
/// attempt.
#[derive(Clone, Debug)]
pub struct TestScene {
    /// A writable folder in which the commands start. It contains `.git/hooks`, which must be
    /// read-only, and nothing else.
    pub inside: PathBuf,
    /// A folder beside it that is readable but not writable, with a non-empty file `file`.
    pub outside: PathBuf,
    /// A folder that is not readable, with a file `secret` whose content is [`SECRET`].
    pub hidden: PathBuf,
    /// The process that runs the attempts. Its environment must not be empty.
    pub parent_pid: u32,
    /// A process that has nothing to do with the attempts.
    pub unrelated_pid: u32,
    /// The program for what a shell cannot try. It must implement `sandbox-probe CHECK [ARGUMENT]`,
    /// as `turnwright` does.
    pub program: PathBuf,
    /// The port of a TCP and a UDP listener on the loopback interface.
    pub port: u16,
    /// The name of an abstract Unix socket on which a process listens.
    pub abstract_name: String,
    /// A Unix socket outside of `inside` on which a process listens.
    pub socket: PathBuf,
    /// Another one, which was renamed in its folder after the process began to listen.
    pub renamed_socket: PathBuf,
    /// Another one, which was moved to another folder.
    pub moved_socket: PathBuf,
    /// A second name, in another folder, of one.
    pub linked_socket: PathBuf,
    /// A Unix socket outside of `inside` that receives datagrams and was moved to another folder.
    pub datagram_socket: PathBuf,
    /// A folder that is a cache of the profile, with a non-empty file `file`.
    pub cache: PathBuf,
}

/// The content of the hidden file.
pub const SECRET: &str = "the text of the hidden file";

/// A file in the folder of the attempts, which is locked as long as a process of the attempt to outlive
/// its command runs.
pub const LOCK_FILE: &str = "lock";

/// The mechanisms that the sandbox under test is made of, which say what it can be expected to
/// prevent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedProtection {
    /// The Landlock ABI version, on systems where the sandbox uses Landlock.
    pub landlock: Option<i32>,
    /// The namespaces that commands get.
    pub namespaces: NamespaceSupport,
}

/// The mechanism without which an attempt is expected to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requirement {
    /// Connections must be supervised, except on macOS.
    Supervision,
    /// Any sandbox prevents it.
    AnySandbox,
    /// A private mount namespace.
    Mounts,
    /// A private mount namespace, or at least Landlock ABI 3.
    Truncation,
    /// A PID namespace, or at least Landlock ABI 6.
    Signals,
    /// Supervised connections, or at least Landlock ABI 6.
    AbstractSockets,
    /// A private mount namespace, or at least Landlock ABI 9.
    SocketRules,
    /// Supervised connections, or at least Landlock ABI 9.
    AllSockets,
    /// A PID namespace.
    Processes,
}

/// One attempt to break out, or the one attempt that must succeed.
#[derive(Clone, Debug)]
pub struct EscapeAttempt {
    /// A stable identifier, such as `write-outside`.
    pub name: &'static str,
    /// The attempt in words, to be shown to the user.
    pub what: &'static str,
    /// The shell command to run in the sandbox.
    pub command: String,
    /// True if the sandbox must allow it.
    pub is_allowed: bool,
    /// True if the command is to run with access to the network.
    pub has_network: bool,
    requires: Requirement,
}

/// The observed results of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The output of the command.
    pub text: String,
    /// Side effects that must not be there: a changed file outside, a terminated process, a
    /// connection to a listener.
    pub changes: Vec<String>,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The sandbox behaved as it must.
    Held,
    /// The sandbox did not behave as it must.
    NotHeld(String),
    /// The attempt succeeded, which is expected because this system lacks a mechanism; the text
    /// names it.
    KnownGap(String),
    /// The attempt could not be made.
    NotTested(String),
}

impl AttemptResult {
    /// A stable name of the variant.
    pub fn name(&self) -> &'static str {
        match self {
            AttemptResult::Held => "held",
            AttemptResult::NotHeld(_) => "not held",
            AttemptResult::KnownGap(_) => "open",
            AttemptResult::NotTested(_) => "not tested",
        }
    }

    /// The explanation, if there is anything to explain.
    pub fn why(&self) -> Option<&str> {
        match self {
            AttemptResult::Held => None,
            AttemptResult::NotHeld(why)
            | AttemptResult::KnownGap(why)
            | AttemptResult::NotTested(why) => Some(why),
        }
    }
}

/// Printed before the attempt, to show that the command ran at all.
const STARTED: &str = "attempt begun";
/// Printed by an attempt that succeeded.
const SUCCEEDED: &str = "attempt came through";

/// All attempts, with the commands to run for them.
#[expect(clippy::too_many_lines, reason = "a table of attempts")]
pub fn attempts(scene: &TestScene) -> Vec<EscapeAttempt> {
    let inside = quoted(&scene.inside);
    let outside = quoted(&scene.outside);
    let hidden = quoted(&scene.hidden);
    let program = quoted(&scene.program);
    let cache = quoted(&scene.cache);
    let TestScene { parent_pid, unrelated_pid, port, abstract_name, .. } = scene;
    let probe = |what: &str, argument: &str| format!("{program} sandbox-probe {what} {argument}");
    let mut all = Vec::new();
    let mut add = |name: &'static str, what, requires, attempt: String| {
        // A probe that cannot start must not count as prevented.
        let ready = if attempt.starts_with(&program) {
            format!("{program} sandbox-probe ready && echo {STARTED}")
        } else {
            format!("echo {STARTED}")
        };
        let command = format!("{ready}; {attempt} && echo {SUCCEEDED}; true");
        let is_allowed = name == "write-inside";
        let has_network = name.ends_with("-network");
        all.push(EscapeAttempt { name, what, command, is_allowed, has_network, requires });
    };
    add(
        "write-inside",
        "write a file in the project",
        Requirement::AnySandbox,
        format!("echo x > {inside}/new && mkdir {inside}/d && mv {inside}/new {inside}/d/new"),
    );
    add(
        "write-outside",
        "write a file outside",
        Requirement::AnySandbox,
        format!("{{ echo x > {outside}/new; }} 2>/dev/null"),
    );
    add(
        "change-outside",
        "change a file outside",
        Requirement::AnySandbox,
        format!("{{ echo x >> {outside}/file; }} 2>/dev/null"),
    );
    add(
        "truncate-outside",
        "truncate a file outside without opening it",
        Requirement::Truncation,
        probe("truncate", &format!("{outside}/file")),
    );
    add(
        "remove-outside",
        "remove a file outside",
        Requirement::AnySandbox,
        format!("rm -f {outside}/file 2>/dev/null"),
    );
    add(
        "symlink-race",
        "write outside through a folder that is swapped for a symlink",
        Requirement::AnySandbox,
        // Only a file outside counts: half of the writes go inside and are allowed.
        format!(
            "{{ cd {inside} && ln -s {outside} race; for i in 1 2 3 4 5 6 7 8 9 10; do \
             rm -rf race; mkdir race; (echo x > race/$i) ; rm -rf race; ln -s {outside} race; \
             (echo x > race/$i); done; rm -rf race; false; }} 2>/dev/null"
        ),
    );
    add(
        "read-hidden",
        "read a hidden file",
        Requirement::AnySandbox,
        format!("grep -q '{SECRET}' {hidden}/secret 2>/dev/null"),
    );
    add(
        "disk",
        "read the device of a disk, past all hidden files",
        Requirement::AnySandbox,
        "{ for d in /dev/* /dev/*/*; do [ -b \"$d\" ] && head -c 1 \"$d\" && break; done; } \
         > /dev/null 2>&1"
            .to_owned(),
    );
    add(
        "terminal",
        "read what is typed in another program's terminal",
        Requirement::AnySandbox,
        "{ for t in /dev/pts/[0-9]* /dev/ttys[0-9]*; do [ -c \"$t\" ] && (: < \"$t\") && break; done; } \
         > /dev/null 2>&1"
            .to_owned(),
    );
    add(
        "protected",
        "write a protected file in the project, .git/hooks/pre-commit",
        Requirement::Mounts,
        format!("{{ echo x > {inside}/.git/hooks/pre-commit; }} 2>/dev/null"),
    );
    add(
        "internet",
        "connect to a server of this machine",
        Requirement::AnySandbox,
        probe("internet", &port.to_string()),
    );
    add(
        "internet-network",
        "connect to a server of this machine, with the network allowed",
        Requirement::Supervision,
        probe("internet", &port.to_string()),
    );
    add(
        "datagram",
        "send a datagram to a program of this machine",
        Requirement::AnySandbox,
        probe("datagram", &port.to_string()),
    );
    let what = "open a netlink socket to learn of devices";
    add("netlink", what, Requirement::AnySandbox, probe("netlink", ""));
    add(
        "abstract-socket",
        "connect to an abstract socket",
        Requirement::AbstractSockets,
        probe("abstract", abstract_name),
    );
    let connect = probe("socket", &quoted(&scene.socket));
    let what = "connect to another program's socket";
    add("socket", what, Requirement::SocketRules, connect.clone());
    let what = "connect to another program's socket, with the network allowed";
    add("socket-network", what, Requirement::SocketRules, connect);
    let what = "connect to another program's socket that was renamed";
    let renamed = probe("socket", &quoted(&scene.renamed_socket));
    add("renamed-socket", what, Requirement::SocketRules, renamed);
    let what =
        "connect to another program's socket that was moved to another folder, or made meanwhile";
    let moved = probe("socket", &quoted(&scene.moved_socket));
    add("moved-socket", what, Requirement::AllSockets, moved);
    let what = "connect to another program's socket by a second name";
    let linked = probe("socket", &quoted(&scene.linked_socket));
    add("linked-socket", what, Requirement::AllSockets, linked);
    let what = "send a datagram to another program's socket that was moved to another folder";
    let datagram = probe("unix-datagram", &quoted(&scene.datagram_socket));
    add("unix-datagram", what, Requirement::AllSockets, datagram);
    add(
        "cache",
        "change a package manager's cache",
        Requirement::AnySandbox,
        // Only the real cache counts: the command may write into a layer of its own.
        format!("{{ echo x >> {cache}/file; echo x > {cache}/new; false; }} 2>/dev/null"),
    );
    add(
        "parent-environment",
        "read the environment of its parent",
        Requirement::AnySandbox,
        format!(
            "{{ for p in {parent_pid} 1; do tr -d '\\0' < /proc/$p/environ; done | grep -q .; }} \
             2>/dev/null"
        ),
    );
    add(
        "parent-memory",
        "read the memory of its parent",
        Requirement::AnySandbox,
        format!("{{ : < /proc/{parent_pid}/mem || : < /proc/1/mem; }} 2>/dev/null"),
    );
    add(
        "signal",
        "kill an unrelated process",
        Requirement::Signals,
        format!("kill -KILL {unrelated_pid} 2>/dev/null"),
    );
    add(
        "priority",
        "change the priority of an unrelated process",
        Requirement::Processes,
        probe("priority", &unrelated_pid.to_string()),
    );
    add(
        "user-priority",
        "change the priority of all processes of a user",
        Requirement::AnySandbox,
        probe("user-priority", ""),
    );
    add(
        "outlive",
        "outlive its command by starting new processes",
        Requirement::Processes,
        format!("{{ {} && false; }}", probe("respawn", &format!("1000 {inside}/{LOCK_FILE}"))),
    );
    add(
        "set-id",
        "make a program that runs with the user's rights whoever starts it",
        Requirement::AnySandbox,
        format!(
            "{{ : > {inside}/set-id && chmod 4755 {inside}/set-id && test -u {inside}/set-id; }} 2>/dev/null"
        ),
    );
    add(
        "privileges",
        "gain privileges by running a setuid program",
        Requirement::AnySandbox,
        privileges(),
    );
    add(
        "namespace",
        "gain root in a user namespace",
        Requirement::AnySandbox,
        probe("namespace", ""),
    );
    all
}

/// A command that succeeds if running a program can raise privileges.
fn privileges() -> String {
    "grep -q '^NoNewPrivs:[[:space:]]*0' /proc/self/status 2>/dev/null".to_owned()
}

/// Evaluates what was observed of an attempt, given the mechanisms that the sandbox is made of.
pub fn evaluate(
    attempt: &EscapeAttempt,
    evidence: &Evidence,
    expected: ExpectedProtection,
) -> AttemptResult {
    if !evidence.text.contains(STARTED) {
        let output: String = evidence.text.trim().chars().take(200).collect();
        return AttemptResult::NotTested(format!("the command did not run: {output}"));
    }
    let succeeded = evidence.text.contains(SUCCEEDED);
    match (attempt.is_allowed, succeeded) {
        (true, true) if evidence.changes.is_empty() => AttemptResult::Held,
        (true, false) => AttemptResult::NotHeld("an allowed write failed".to_owned()),
        (false, false) if evidence.changes.is_empty() => AttemptResult::Held,
        _ => {
            let what = if evidence.changes.is_empty() {
                "the attempt succeeded".to_owned()
            } else {
                evidence.changes.join(", ")
            };
            match attempt.requires.missing(expected) {
                Some(missing) => AttemptResult::KnownGap(format!("{what}; {missing}")),
                None => AttemptResult::NotHeld(what),
            }
        }
    }
}

impl Requirement {
    /// The missing part of the system that would prevent the attempt; `None` if nothing is missing.
    fn missing(self, expected: ExpectedProtection) -> Option<String> {
        let ExpectedProtection { landlock, namespaces } = expected;
        let NamespaceSupport { mounts, processes, sockets, supervision, .. } = namespaces;
        let is_old = |version| landlock.is_some_and(|abi| abi < version);
        let (lacks, what) = match self {
            Requirement::AnySandbox => return None,
            Requirement::Mounts => (landlock.is_some() && !mounts, "user namespaces are"),
            Requirement::Processes => (landlock.is_some() && !processes, "PID namespaces are"),
            Requirement::Truncation => (is_old(3) && !mounts, "user namespaces or Landlock 3 are"),
            Requirement::Signals => (is_old(6) && !processes, "PID namespaces or Landlock 6 are"),
            Requirement::AbstractSockets => {
                (is_old(6) && !sockets, "supervised connections or Landlock 6 are")
            }
            Requirement::Supervision => {
                (landlock.is_some() && !supervision, "supervised connections are")
            }
            Requirement::AllSockets => (!sockets, "supervised connections or Landlock 9 are"),
            Requirement::SocketRules => {
                let is_old = landlock.is_none_or(|abi| abi < 9);
                (is_old && !mounts, "user namespaces or Landlock 9 are")
            }
        };
        lacks.then(|| format!("{what} required"))
    }
}

/// A path as one shell word.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> TestScene {
        TestScene {
            inside: "/b/in".into(),
            outside: "/b/it's".into(),
            hidden: "/b/hidden".into(),
            parent_pid: 2,
            unrelated_pid: 3,
            program: "/bin/turnwright".into(),
            port: 4,
            abstract_name: "name".to_owned(),
            socket: "/b/s".into(),
            renamed_socket: "/b/r".into(),
            moved_socket: "/b/m/s".into(),
            linked_socket: "/b/m/l".into(),
            datagram_socket: "/b/m/d".into(),
            cache: "/b/cache".into(),
        }
    }

    fn attempt(name: &str) -> EscapeAttempt {
        attempts(&scene()).into_iter().find(|attempt| attempt.name == name).unwrap()
    }

    #[test]
    fn names_are_stable_words_and_one_attempt_is_allowed() {
        let all = attempts(&scene());
        assert_eq!(all.iter().filter(|attempt| attempt.is_allowed).count(), 1);
        for attempt in &all {
            let same = all.iter().filter(|other| other.name == attempt.name).count();
            assert_eq!(same, 1, "{}", attempt.name);
        }
        assert!(attempt("write-outside").command.contains(r"'/b/it'\''s'/new"));
    }

    #[test]
    fn evidence_tells_what_held() {
        let all = NamespaceSupport {
            mounts: true,
            network: true,
            processes: true,
            sockets: true,
            supervision: true,
        };
        let full = ExpectedProtection { landlock: Some(7), namespaces: all };
        let old = ExpectedProtection { landlock: Some(2), ..ExpectedProtection::default() };
        let namespaces = ExpectedProtection { landlock: Some(2), ..full };
        let change = ["a file outside".to_owned()];
        let success = format!("{STARTED}\n{SUCCEEDED}\n");
        let table: &[(&str, &str, &[String], ExpectedProtection, &str)] = &[
            ("write-inside", &success, &[], full, "held"),
            ("write-inside", STARTED, &[], full, "not held"),
            ("write-inside", &success, &change, full, "not held"),
            ("write-outside", STARTED, &[], full, "held"),
            ("write-outside", &success, &[], full, "not held"),
            // Side effects count, whatever the output says.
            ("write-outside", STARTED, &change, full, "not held"),
            ("write-outside", "", &[], full, "not tested"),
            ("truncate-outside", &success, &change, full, "not held"),
            ("truncate-outside", &success, &change, old, "open"),
            ("truncate-outside", STARTED, &[], old, "held"),
            ("signal", STARTED, &change, old, "open"),
            ("abstract-socket", &success, &change, old, "open"),
            ("protected", &success, &change, old, "open"),
            ("protected", &success, &change, full, "not held"),
            ("internet", &success, &[], old, "not held"),
            ("internet-network", &success, &[], old, "open"),
            ("internet-network", &success, &[], full, "not held"),
            ("socket-network", &success, &change, full, "not held"),
            ("socket-network", &success, &change, old, "open"),
            ("moved-socket", &success, &change, full, "not held"),
            ("moved-socket", &success, &change, old, "open"),
            ("cache", STARTED, &change, old, "not held"),
            ("priority", &success, &[], old, "open"),
            ("user-priority", &success, &[], old, "not held"),
            // Attempts that namespaces prevent do not need a new Landlock.
            ("truncate-outside", &success, &change, namespaces, "not held"),
            ("signal", STARTED, &change, namespaces, "not held"),
            ("abstract-socket", &success, &change, namespaces, "not held"),
            // Seatbelt does not tell sockets of programs from the network.
            ("socket-network", &success, &change, ExpectedProtection::default(), "open"),
            // A sandbox without Landlock (macOS) has no known gaps.
            ("signal", &success, &[], ExpectedProtection::default(), "not held"),
        ];
        for (name, text, changes, protection, expected) in table {
            let evidence = Evidence { text: (*text).to_owned(), changes: changes.to_vec() };
            let result = evaluate(&attempt(name), &evidence, *protection);
            assert_eq!(result.name(), *expected, "{name} {text:?} {changes:?}");
        }
    }
}
