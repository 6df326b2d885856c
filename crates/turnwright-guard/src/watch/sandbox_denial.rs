//! Describes what the sandbox has denied to a command, from the connections that failed because of it, the system calls
//! that it has refused, and the command's output. Only adds a hint; the command is never run again because of it, since
//! it may have done part of its work.

mod out_of_reach;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use turnwright_proxy::{HostReport, RefusedHosts};
use turnwright_sandbox::{Refusal, RefusedCall, SandboxProfile};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;
use turnwright_workspace::exec::JobEnd;
use turnwright_workspace::files::Roots;

use super::CommandWatch;
use out_of_reach::{failed_signature, missing_login, missing_variable, nested_sandbox};

/// The port of nameservers.
const NAMESERVER_PORT: u16 = 53;
/// At most this many addresses are named.
const MAX_NAMED: usize = 3;

/// The advice to the model when the sandbox seems to be why a command has failed.
const HOW_TO_ESCALATE: &str = "If it needs more call again with \"escalate\": \"network\", a path, \"sign\", or \"full\"; the \
                    user is asked.";

/// The advice when git could not write a file of a commit: its tree is neither the old one nor the new one.
const AFTER_GIT: &str = " [git has written only some files. If HEAD has moved, `git restore` the others with this \
                         \"escalate\". If not, undo only what git wrote (`git restore`; delete new files), and \
                         repeat the command with it.]";

/// A limit of the sandbox that a command has met, in a line for the model and one for the user.
#[derive(Debug)]
pub struct ReachedLimit {
    pub for_model: String,
    pub for_user: String,
}

impl ReachedLimit {
    /// Says which limit was reached, and tells the model what it can do about that.
    fn new(what: &str, advice: &str) -> ReachedLimit {
        ReachedLimit { for_model: format!("[{what}. {advice}]"), for_user: format!("[{what}]") }
    }

    /// Says what was denied, and tells the model the escalation that would allow it.
    fn denied(what: &str, escalate: &str) -> ReachedLimit {
        let advice = format!(
            "If it is needed, call again with \"escalate\": \"{escalate}\"; the user is asked."
        );
        ReachedLimit::new(&format!("sandbox: {what}"), &advice)
    }

    /// Says that this path, which the output names, is kept read-only.
    fn of_protected(path: &Path, output: &str) -> ReachedLimit {
        let shown = escape_hidden_line(&path.to_string_lossy());
        let what = format!("{shown} is protected, because other programs obey it");
        // `git lfs install` writes its settings, and then its hooks.
        match shown.strip_suffix("/config").filter(|_| output.contains("filter.lfs.")) {
            Some(git) => ReachedLimit::denied(&what, &format!("{shown},{git}/hooks")),
            None => ReachedLimit::denied(&what, &shown),
        }
    }
}

impl CommandWatch {
    /// The files in these folders that a profile hides.
    pub(super) fn hidden_in(roots: &Roots, profile: Option<&SandboxProfile>) -> BTreeSet<PathBuf> {
        let hidden = profile.into_iter().flat_map(|profile| &profile.hidden);
        let inside = hidden.filter(|path| roots.folders().any(|root| path.starts_with(root)));
        inside.cloned().collect()
    }

    /// The access that the sandbox has denied, or else, if it seems to be why the command has failed, all that the
    /// sandbox lets it do. Blocks, because it looks at paths that the output names.
    pub(super) fn reached_limit(
        &self,
        output: &str,
        is_success: bool,
        end: Option<JobEnd>,
    ) -> Option<ReachedLimit> {
        let denial = (!self.is_unconfined)
            .then(|| self.denial(output, is_success, end))
            .flatten()
            .or_else(|| missing_variable(output).filter(|_| !is_success));
        if denial.is_some() {
            return denial;
        }
        let is_denial_likely =
            !is_success && is_likely(output) && self.refused_hidden_file(output).is_none();
        let limits = self.limits.as_ref().filter(|_| is_denial_likely)?;
        Some(ReachedLimit::new(limits, HOW_TO_ESCALATE))
    }

    /// The access that the sandbox has denied to the command, as far as it can be named.
    fn denial(&self, output: &str, is_success: bool, end: Option<JobEnd>) -> Option<ReachedLimit> {
        if let Some(limit) = self.hidden_files(output) {
            return Some(limit);
        }
        let read_only: Vec<_> =
            self.changes.read_only_inodes.iter().map(|(path, _)| path.as_path()).collect();
        let complaint = if is_success { complaint_of_git(output) } else { output };
        if let Some(path) = refused_path(complaint, &read_only) {
            let mut limit = ReachedLimit::of_protected(path, output);
            if complaint_of_git(output).contains(": unable to ") {
                limit.for_model.push_str(AFTER_GIT);
            }
            return Some(limit);
        }
        if !is_success
            && let Some(limit) = failed_signature(output, self.signing.as_ref())
                .or_else(|| missing_login(output, &self.script))
                .or_else(|| nested_sandbox(output).filter(|_| cfg!(target_os = "macos")))
        {
            return Some(limit);
        }
        if let Some(HostReport { for_model, for_user }) =
            self.refused_hosts.as_ref().and_then(RefusedHosts::report)
        {
            return Some(ReachedLimit { for_model, for_user });
        }
        let mut connections = Vec::new();
        let mut calls = Vec::new();
        for refusal in end.map(|end| end.refusals).unwrap_or_default() {
            match refusal {
                Refusal::Connection(address) => connections.push(address),
                Refusal::Call(call) => calls.push(call),
            }
        }
        refused_connections(&connections, self.has_network, !is_success)
            .or_else(|| refused_calls(&calls, output, self.has_network, !is_success))
            .or_else(|| if is_success { None } else { self.closed_socket(output) })
            .or_else(|| {
                let named = unwritable_path(output)
                    .filter(|named| !is_success && !self.hidden.contains(Path::new(named)))?;
                unwritable_place(Path::new(named), &self.writable)
            })
    }
}

/// Messages of programs when the system denies something, in lower case.
const DENIAL_PHRASES: &str = include_str!("denial_phrases.txt");

/// Only this many bytes at the end of the output are searched.
const SEARCHED_BYTES: usize = 16 * 1024;
/// At most this many lines of it, or words that may be sockets, are compared with files.
const MAX_LINES: usize = 200;

/// Messages of programs about a path that is read-only, or that git cannot replace because of that, in lower case.
const REFUSED_WRITES: &str = include_str!("refused_writes.txt");

/// The beginnings of git's messages that it could not write its settings, or a file of a commit.
const GIT_COMPLAINTS: &str = include_str!("git_complaints.txt");

/// The path among these, which the sandbox restricts, that a line of the output calls inaccessible: by the end
/// of its name, or as the folder of a file.
fn refused_path<'a>(output: &str, restricted: &[&'a Path]) -> Option<&'a Path> {
    if restricted.is_empty() {
        return None;
    }
    let lines = text::suffix(output, SEARCHED_BYTES).lines().take(MAX_LINES);
    let mut refused = lines.filter(|line| text::has_listed(&line.to_lowercase(), REFUSED_WRITES));
    refused.find_map(|line| {
        let named = restricted.iter().map(|path| (named_length(line, path), *path));
        // Of several that a line may mean, the outermost.
        let likely = named
            .filter(|(length, _)| *length > 0)
            .max_by_key(|(length, path)| (*length, Reverse(path.as_os_str().len())));
        likely.map(|(_, path)| path)
    })
}

/// The line in which git says what it could not write. Its exit status does not matter: a pipe hides it, `git push -u`
/// has pushed all the same, and `git checkout` has switched to the branch, where the file then counts as changed.
fn complaint_of_git(output: &str) -> &str {
    text::suffix(output, SEARCHED_BYTES)
        .lines()
        .find(|line| text::list_entries(GIT_COMPLAINTS).any(|start| line.starts_with(start)))
        .unwrap_or_default()
}

/// The length of the longest end of a path that a line has as a word, or as the beginning of one; 0 if it has none that
/// is longer than an ordinary name.
fn named_length(line: &str, path: &Path) -> usize {
    let whole = path.to_string_lossy();
    let starts = whole.match_indices('/').map(|(at, _)| at + 1);
    let ends = std::iter::once(0).chain(starts).map(|at| &whole[at..]);
    let mut unusual = ends.filter(|end| end.starts_with('.') || end.contains('/'));
    unusual.find(|end| has_word(line, end)).map_or(0, str::len)
}

/// Returns true if a line has this end of a path as a word, or as the beginning of one.
fn has_word(line: &str, end: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || "/._-".contains(char);
    line.match_indices(end).any(|(at, _)| {
        let before = line[..at].strip_suffix("./").unwrap_or(&line[..at]);
        let after = &line[at + end.len()..];
        !before.ends_with(is_part) && (after.starts_with('/') || !after.starts_with(is_part))
    })
}

/// Describes the connections that failed because of the sandbox. A server of this machine counts only for a
/// command that has failed: others may just have checked for one.
fn refused_connections(
    refused: &[SocketAddr],
    has_network: bool,
    has_failed: bool,
) -> Option<ReachedLimit> {
    let (local, outside): (Vec<_>, Vec<_>) = refused.iter().partition(|address: &&SocketAddr| {
        let host = address.ip();
        let is_lookup = address.port() == NAMESERVER_PORT && !has_network;
        !is_lookup && (has_network || host.is_loopback() || host.is_unspecified())
    });
    let (lookups, outside): (Vec<_>, Vec<_>) =
        outside.into_iter().partition(|address: &&SocketAddr| address.port() == NAMESERVER_PORT);
    let mut denied = Vec::new();
    if !lookups.is_empty() {
        denied.push("looking up names".to_owned());
    }
    if !outside.is_empty() {
        denied.push(format!("connecting to {}", named(&outside)));
    }
    // Without the network, that is the more likely reason.
    if !denied.is_empty() {
        let what = format!("the network is off, which has prevented {}", denied.join(" and "));
        return Some(ReachedLimit::denied(&what, "network"));
    }
    if local.is_empty() || !has_failed {
        return None;
    }
    let what = format!(
        "commands do not reach servers that run outside of their sandbox, such as one at {}",
        named(&local)
    );
    let addresses = local.iter().take(MAX_NAMED).map(ToString::to_string);
    let network = has_network.then(|| "network".to_owned());
    let escalate: Vec<_> = network.into_iter().chain(addresses).collect();
    Some(ReachedLimit::denied(&what, &escalate.join(",")))
}

fn named(addresses: &[&SocketAddr]) -> String {
    let mut names: Vec<_> = addresses.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if addresses.len() > MAX_NAMED {
        names.push("others".to_owned());
    }
    names.join(", ")
}

/// Messages of programs that may not do something, in lower case.
const NOT_PERMITTED: &[&str] = &["operation not permitted", "eperm"];

/// The end of a sentence about what commands may not do.
fn refused_action(call: RefusedCall) -> &'static str {
    match call {
        RefusedCall::NetworkSocket => "open sockets for the network, which is off",
        RefusedCall::DatagramSocket => "open Unix sockets for datagrams",
        RefusedCall::OtherSocket => "open sockets but of Unix, IPv4, IPv6 and NETLINK_ROUTE",
        RefusedCall::PerfEvents => "count or record events of the system (perf_event_open)",
        RefusedCall::Namespace => {
            "make namespaces: containers do, and browsers without --no-sandbox"
        }
        RefusedCall::Mount => "mount anything",
        RefusedCall::SetIdMode => "set the set-user-ID or set-group-ID bit of a file",
        RefusedCall::IoUring => "use io_uring",
        RefusedCall::Keyring => "use the keyrings of the kernel",
        RefusedCall::Userfaultfd => "use userfaultfd",
    }
}

/// The words of programs that miss a call, in lower case. A word that other messages have as well is none of them: many
/// programs look up interfaces by a datagram socket, or try a namespace, and then fail for another reason.
fn words_about(call: RefusedCall) -> &'static [&'static str] {
    match call {
        RefusedCall::NetworkSocket => {
            &["socket", "sockets", "network", "resolve", "getaddrinfo", "eai_again"]
        }
        RefusedCall::DatagramSocket => &["datagram", "dgram"],
        RefusedCall::OtherSocket => &["netlink", "packet socket", "raw socket"],
        RefusedCall::PerfEvents => &["perf"],
        RefusedCall::Namespace => &[
            "new namespace",
            "user namespace",
            "user namespaces",
            "unshare",
            "setns",
            "sandbox",
            "sandboxing",
        ],
        RefusedCall::Mount => &["mount", "umount"],
        RefusedCall::SetIdMode => &["chmod", "changing permissions", "setuid", "setgid"],
        RefusedCall::IoUring => &["uring", "liburing"],
        RefusedCall::Keyring => &["keyring", "keyrings", "keyctl"],
        RefusedCall::Userfaultfd => &["userfaultfd", "uffd"],
    }
}

/// Returns true if a command with this output seems to have missed a call. Many programs just try one.
fn is_missed(call: RefusedCall, output: &str, has_failed: bool) -> bool {
    use RefusedCall::{Mount, PerfEvents, SetIdMode, Userfaultfd};
    match call {
        // Nobody just tries these.
        PerfEvents => true,
        Mount | SetIdMode | Userfaultfd if has_failed => true,
        _ => output.lines().any(|line| is_missed_in(line, call, has_failed)),
    }
}

/// Returns true if a line of the output is about a call.
fn is_missed_in(line: &str, call: RefusedCall, has_failed: bool) -> bool {
    let lower = line.to_lowercase();
    let names_it = words_about(call).iter().any(|word| has_whole_word(&lower, word));
    let is_refused = NOT_PERMITTED.iter().any(|phrase| has_whole_word(&lower, phrase));
    // With a path, it is about a file. Every program of Node.js tries io_uring.
    let may_mean_it = call != RefusedCall::IoUring && path_in(line).is_none();
    names_it && has_failed || is_refused && (names_it || may_mean_it)
}

/// Returns true if a line has a word that is not a part of another one, as in "during" or "RolePermission". An
/// underscore separates words.
fn has_whole_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(char::is_alphanumeric)
            && !line[at + word.len()..].starts_with(char::is_alphanumeric)
    })
}

/// Describes the system calls that the sandbox has refused, as far as the command has missed them.
fn refused_calls(
    refused: &[RefusedCall],
    output: &str,
    has_network: bool,
    has_failed: bool,
) -> Option<ReachedLimit> {
    let output = text::suffix(output, SEARCHED_BYTES);
    let calls = refused.iter().copied().filter(|call| is_missed(*call, output, has_failed));
    let missed: Vec<_> = calls.take(MAX_NAMED).collect();
    if missed.is_empty() {
        return None;
    }
    let actions: Vec<_> = missed.iter().map(|call| refused_action(*call)).collect();
    let escalate = if missed.iter().all(|call| *call == RefusedCall::NetworkSocket) {
        "network"
    } else if missed.iter().any(|call| *call != RefusedCall::PerfEvents) {
        "full"
    } else if has_network {
        "network,debug"
    } else {
        "debug"
    };
    let what = format!("commands may not {}", actions.join(" or "));
    Some(ReachedLimit::denied(&what, escalate))
}

/// A file in which macOS caches where the programs of Xcode are. They complain if they cannot write it, and work
/// without it.
const DISPENSABLE_FILE: &str = "xcrun_db";

/// The path in a command's output that could not be written; `None` if none is named.
fn unwritable_path(output: &str) -> Option<&str> {
    complaints(output, REFUSED_WRITES).rev().find_map(path_in)
}

/// The lines at the end of an output that contain one of these messages, apart from those about a dispensable file.
fn complaints<'a>(output: &'a str, messages: &str) -> impl DoubleEndedIterator<Item = &'a str> {
    text::suffix(output, SEARCHED_BYTES).lines().filter(move |line| {
        text::has_listed(&line.to_lowercase(), messages) && !line.contains(DISPENSABLE_FILE)
    })
}

/// Describes that a command may not write at this path; `None` if it may, or if there is no place to name.
fn unwritable_place(path: &Path, writable: &[PathBuf]) -> Option<ReachedLimit> {
    if writable.iter().any(|place| path.starts_with(place)) {
        return None;
    }
    if ["/var/folders", "/private/var/folders"].iter().any(|folder| path.starts_with(folder)) {
        let what = "sandbox: temporary files can be made only in $TMPDIR";
        let advice = "If a program would use another folder, name a path in $TMPDIR, as in \
                      `mktemp -d \"$TMPDIR/x.XXXXXX\"`.";
        return Some(ReachedLimit::new(what, advice));
    }
    let text = path.to_string_lossy();
    if ["/lib/", "/share/"]
        .iter()
        .any(|folder| text.contains(&format!("{folder}containers/storage")))
    {
        let what = "Podman and Buildah make namespaces, which commands may not";
        return Some(ReachedLimit::denied(what, "full"));
    }
    let place = path.ancestors().find(|place| place.symlink_metadata().is_ok())?;
    // Nobody needs the whole disk.
    place.parent()?;
    let shown = escape_hidden_line(&place.to_string_lossy());
    Some(ReachedLimit::denied(&format!("{shown} is not writable"), &shown))
}

/// The first absolute path in a message, in quotes or between other words.
fn path_in(line: &str) -> Option<&str> {
    // A shell begins with its own path.
    let line = line.split_once(": line ").map_or(line, |(_, message)| message);
    let quoted =
        line.split(['\'', '"', '`', '‘', '’', '“', '”']).find(|part| part.starts_with('/'));
    let path = quoted.or_else(|| {
        let words = line.split(|char: char| char.is_whitespace() || "()[]<>,;=".contains(char));
        words.map(|word| word.trim_end_matches([':', '.'])).find(|word| word.starts_with('/'))
    });
    path.filter(|path| path.len() > 1)
}

/// Returns true if the output of a failed command mentions a denied operation.
fn is_likely(output: &str) -> bool {
    complaints(output, DENIAL_PHRASES).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::super::AllowedChanges;
    use super::*;

    #[test]
    fn the_note_says_what_was_refused_and_what_would_allow_it() {
        let net = true;
        let failed = true;
        for (refused, has_network, has_failed, expected) in [
            ("", !net, failed, None),
            ("127.0.0.53:53", !net, !failed, Some(("prevented looking up names", "network"))),
            (
                "10.0.0.2:53 1.2.3.4:443",
                !net,
                !failed,
                Some(("prevented looking up names and connecting to 1.2.3.4:443", "network")),
            ),
            (
                "1.1.1.1:1 2.2.2.2:2 3.3.3.3:3 4.4.4.4:4",
                !net,
                failed,
                Some(("3.3.3.3:3, others", "network")),
            ),
            ("127.0.0.1:5432", !net, !failed, None),
            ("127.0.0.1:5432", !net, failed, Some(("one at 127.0.0.1:5432", "127.0.0.1:5432"))),
            (
                "[::1]:80 127.0.0.1:80",
                !net,
                failed,
                Some(("one at [::1]:80, 127.0.0.1:80", "[::1]:80,127.0.0.1:80")),
            ),
            (
                "127.0.0.1:5432",
                net,
                failed,
                Some(("one at 127.0.0.1:5432", "network,127.0.0.1:5432")),
            ),
            (
                "169.254.169.254:80",
                net,
                failed,
                Some(("one at 169.254.169.254:80", "network,169.254.169.254:80")),
            ),
            (
                "1.2.3.4:443 127.0.0.1:80",
                !net,
                failed,
                Some(("connecting to 1.2.3.4:443", "network")),
            ),
        ] {
            let addresses: Vec<SocketAddr> =
                refused.split_whitespace().map(|address| address.parse().unwrap()).collect();
            let limit = refused_connections(&addresses, has_network, has_failed);
            assert_eq!(limit.is_some(), expected.is_some(), "{refused}: {limit:?}");
            if let (Some(limit), Some((end, escalate))) = (limit, expected) {
                assert!(limit.for_user.ends_with(&format!("{end}]")), "{refused}: {limit:?}");
                let advice = format!("\"escalate\": \"{escalate}\"; the user is asked.]");
                assert!(limit.for_model.ends_with(&advice), "{refused}: {limit:?}");
            }
        }
    }

    #[test]
    fn a_refused_system_call_is_told_if_the_command_has_missed_it() {
        use RefusedCall::{
            DatagramSocket, IoUring, Keyring, Mount, Namespace, NetworkSocket, PerfEvents,
        };
        let net = true;
        let failed = true;
        let refused_word = "unshare: unshare failed: Operation not permitted";
        let refused_file = "Error: EPERM: operation not permitted, open '/usr/x'";
        for (refused, output, has_network, has_failed, expected) in [
            (&[][..], refused_word, !net, failed, None),
            (&[PerfEvents], "", !net, !failed, Some(("(perf_event_open)", "debug"))),
            (&[PerfEvents], "", net, failed, Some(("(perf_event_open)", "network,debug"))),
            (&[Namespace], "", !net, failed, None),
            (&[Namespace], "error: test failed", !net, failed, None),
            (&[Namespace], refused_file, !net, failed, None),
            (&[Namespace], "No usable sandbox!", !net, !failed, None),
            (&[Namespace], "No usable sandbox!", !net, failed, Some(("--no-sandbox", "full"))),
            (&[Namespace], refused_word, net, !failed, Some(("--no-sandbox", "full"))),
            (&[Namespace], "[Errno 1] EPERM", !net, failed, Some(("--no-sandbox", "full"))),
            (&[Mount], "", !net, !failed, None),
            (&[Mount], "", !net, failed, Some(("mount anything", "full"))),
            (&[IoUring], "Error: kill EPERM", !net, failed, None),
            (&[IoUring], "error during the build", !net, failed, None),
            (&[IoUring], "io_uring_setup: -1", !net, failed, Some(("use io_uring", "full"))),
            (&[Namespace], "class RolePermission", !net, !failed, None),
            (&[Namespace], "no member 'x' in namespace 'std', clone it", !net, failed, None),
            (&[DatagramSocket], "Error: socket hang up", !net, failed, None),
            (
                &[DatagramSocket],
                "socket: Operation not permitted",
                !net,
                failed,
                Some(("for datagrams", "full")),
            ),
            (
                &[NetworkSocket],
                "curl: (6) Could not resolve host: a.example",
                !net,
                failed,
                Some(("for the network, which is off", "network")),
            ),
            (
                &[Keyring, PerfEvents],
                "keyctl: EPERM",
                !net,
                failed,
                Some(("kernel or count or record events of the system (perf_event_open)", "full")),
            ),
        ] {
            let limit = refused_calls(refused, output, has_network, has_failed);
            assert_eq!(limit.is_some(), expected.is_some(), "{refused:?}, {output}: {limit:?}");
            if let (Some(limit), Some((end, escalate))) = (limit, expected) {
                assert!(limit.for_user.starts_with("[sandbox: commands may not "), "{limit:?}");
                assert!(limit.for_user.ends_with(&format!("{end}]")), "{limit:?}");
                let advice = format!("\"escalate\": \"{escalate}\"; the user is asked.]");
                assert!(limit.for_model.ends_with(&advice), "{limit:?}");
            }
        }
    }

    #[test]
    fn the_path_that_could_not_be_written_is_found_in_the_output() {
        for (output, expected) in [
            ("touch: cannot touch '/opt/x y': Read-only file system\n", Some("/opt/x y")),
            ("mkdir: cannot create directory ‘/srv/a’: Permission denied", Some("/srv/a")),
            ("sh: 1: cannot create /etc/x: Permission denied\nmore", Some("/etc/x")),
            ("bash: line 1: /etc/y: Read-only file system", Some("/etc/y")),
            ("PermissionError: [Errno 13] Permission denied: '/data/z'", Some("/data/z")),
            ("Error: EROFS: read-only file system, open '/data/q'", Some("/data/q")),
            (
                "error: failed to write /home/me/.cargo/x (os error 30): Read-only file system (os error 30)",
                Some("/home/me/.cargo/x"),
            ),
            ("all is well in /opt", None),
            ("Permission denied", None),
            ("permission denied: /", None),
        ] {
            assert_eq!(unwritable_path(output), expected, "{output}");
        }
    }

    #[test]
    fn a_file_that_programs_of_xcode_do_without_is_no_reason_to_ask() {
        let output = "git: error: couldn't create cache file '/var/folders/a/T/xcrun_db-Q5' \
                      (errno=Operation not permitted)\nfatal: bad revision 'x'\n";
        assert_eq!(unwritable_path(output), None);
        assert!(!is_likely(output));
        let both = format!("cp: /opt/x: Operation not permitted\n{output}");
        assert_eq!(unwritable_path(&both), Some("/opt/x"));
        assert!(is_likely(&both));
    }

    /// The `mktemp` of macOS ignores `TMPDIR`.
    #[test]
    fn the_folder_for_temporary_files_of_macos_is_not_asked_for() {
        let output = "mktemp: mkdtemp failed on /var/folders/a/b/T/tmp.X1: Operation not permitted";
        let limit = CommandWatch::default().reached_limit(output, false, None).unwrap();
        assert!(limit.for_model.contains("`mktemp -d \"$TMPDIR/"), "{limit:?}");
        assert!(!limit.for_model.contains("escalate"), "{limit:?}");
    }

    #[test]
    fn sandbox_denials_are_recognized_by_typical_messages() {
        for output in [
            "sh: 1: cannot create /etc/x: Permission denied",
            "touch: cannot touch '/x': Read-only file system",
            "curl: (6) Could not resolve host: a.example",
            "npm ERR! code EAI_AGAIN",
            "PermissionError: [Errno 13]",
            "ping: socket: Operation not permitted",
            "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.",
            "sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set",
            // A program of Windows, in WSL.
            "<3>WSL (22 - ) ERROR: UtilConnectUnix:524: socket failed 1",
            "<3>WSL (2 - ) ERROR: UtilBindVsockAnyPort:307: socket failed 1",
        ] {
            assert!(is_likely(output), "{output}");
        }
        for output in ["", "error: test failed", "assertion `left == right` failed"] {
            assert!(!is_likely(output), "{output}");
        }
        assert!(!is_likely(&format!("permission denied{}", "é".repeat(SEARCHED_BYTES))));
    }

    #[test]
    fn engines_without_a_daemon_are_not_told_to_ask_for_each_file_of_their_storage() {
        for storage in ["/var/lib", "/home/a/.local/share"] {
            let output = format!(
                "Error: opening database {storage}/containers/storage/libpod/bolt_state.db: open \
                 {storage}/containers/storage/libpod/bolt_state.db: read-only file system"
            );
            let limit = CommandWatch::default().reached_limit(&output, false, None).unwrap();
            assert!(limit.for_model.contains("\"escalate\": \"full\""), "{limit:?}");
        }
    }

    #[test]
    fn a_protected_path_that_a_program_could_not_write_is_named() {
        let read_only =
            ["/ws/.git/config", "/ws/.git/hooks", "/ws/sub/.git/config", "/ws/.envrc", "/ws/x"];
        for (output, expected) in [
            (
                "error: could not lock config file .git/config: Read-only file system",
                "/ws/.git/config",
            ),
            (
                "adding\nerror: could not write config file /ws/.git/config: Device or resource busy\n",
                "/ws/.git/config",
            ),
            ("sh: 1: cannot create .git/hooks/pre-commit: Read-only file system", "/ws/.git/hooks"),
            ("EROFS: read-only file system, open '/ws/.git/hooks/pre-push'", "/ws/.git/hooks"),
            ("cannot create ./.envrc: Read-only file system", "/ws/.envrc"),
            ("error: sub/.git/config: Device or resource busy", "/ws/sub/.git/config"),
            ("error: could not lock config file .git/config: File exists", ""),
            ("touch: /etc/x: Read-only file system", ""),
            ("touch: other.git/config: Read-only file system", ""),
            ("touch: .git/config.bak: Read-only file system", ""),
            (".git/config\nx: Read-only file system", ""),
            ("", ""),
        ] {
            let paths: Vec<_> = read_only.iter().map(Path::new).collect();
            let found = refused_path(output, &paths).unwrap_or(Path::new(""));
            assert_eq!(found, Path::new(expected), "{output}");
        }
    }

    #[test]
    fn settings_that_git_could_not_write_are_told_of_a_command_that_succeeds() {
        let complaint = "error: could not write config file .git/config: Device or resource busy";
        let output = format!("To example:a\n * [new branch] b -> b\n{complaint}\nbranch 'b'\n");
        assert_eq!(complaint_of_git(&output), complaint);
        assert_eq!(complaint_of_git("cat: .git/config: Read-only file system\n"), "");
    }

    #[test]
    fn the_installation_of_lfs_is_told_of_its_settings_and_its_hooks_at_once() {
        let output = "warning: error running git 'config' 'filter.lfs.required' 'true': 'error: could not \
                      write config file .git/config: Device or resource busy' 'exit status 4'";
        let limit = ReachedLimit::of_protected(Path::new("/ws/.git/config"), output);
        let paths = "\"escalate\": \"/ws/.git/config,/ws/.git/hooks\"";
        assert!(limit.for_model.contains(paths), "{limit:?}");
    }

    #[test]
    fn a_protected_file_that_git_could_not_check_out_is_told_of_a_command_that_succeeds() {
        let read_only_inodes = vec![(PathBuf::from("/ws/.github/workflows"), 1)];
        let changes = AllowedChanges { read_only_inodes, ..AllowedChanges::default() };
        let watch = CommandWatch { changes, ..CommandWatch::default() };
        for (output, expected) in [
            ("error: unable to unlink old '.github/workflows/ci.yml': Read-only file system", true),
            ("warning: unable to unlink '.github/workflows/ci.yml': Device or resource busy", true),
            ("error: unable to create file .github/workflows/x.yml: Read-only file system", true),
            ("error: unable to unlink old 'src/a.rs': Permission denied", false),
            ("M\t.github/workflows/ci.yml", false),
        ] {
            let whole = format!("{output}\nSwitched to branch 'b'\n");
            let limit = watch.reached_limit(&whole, true, None);
            assert_eq!(limit.is_some(), expected, "{output}: {limit:?}");
            let path = "\"escalate\": \"/ws/.github/workflows\"";
            assert!(limit.is_none_or(|limit| limit.for_model.contains(path)), "{output}");
            // A merge fails, and leaves new files behind.
            let limit = watch.reached_limit(&format!("{output}\nMerge failed.\n"), false, None);
            let told = limit.is_some_and(|limit| limit.for_model.contains("`git restore`"));
            assert_eq!(told, expected, "{output}");
        }
        let output = "cp: .github/workflows/ci.yml: Read-only file system";
        let limit = watch.reached_limit(output, false, None).unwrap();
        assert!(!limit.for_model.contains("git restore"), "{limit:?}");
    }
}
