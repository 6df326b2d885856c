//! Translates a profile into the profile language of macOS's Seatbelt. This is plain text, so it is
//! built and tested on every system.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::{Network, SandboxProfile};

/// The system's own program, by its absolute path: another program of that name would not confine
/// anything.
pub(super) const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// The needs of every program: executing and signalling its own processes, system information, shared memory, its open
/// files by name, the names in `/`, new terminals, and the services for user names, time zones, certificates, changed
/// files and network settings, without which many programs crash though they use no network. Java reads the kind of
/// processor with a call that counts as writing. The arguments and variables of other processes are denied by name, as
/// `deny default` does not cover them. Some versions of macOS reveal them without asking the sandbox.
const BASE_RULES: &str = include_str!("seatbelt/base.sb");

/// Other programs' terminals may receive passwords. A program may use its own terminal, and
/// the ones that it makes, which the system marks. They come after the rule that allows reading everything. A rule for
/// one kind of access wins over one for all kinds, so an exception must name the kind that was denied.
const TERMINAL_RULES: &str = include_str!("seatbelt/terminals.sb");

/// The network, with the services that resolve host names and check certificates. Of other programs' sockets, only
/// the one that resolves names is open.
const NETWORK_RULES: &str = include_str!("seatbelt/network.sb");

/// Connections within this machine. macOS has no private loopback interface. Most servers bind all addresses, which
/// `localhost` does not match.
const LOOPBACK_RULES: &str = include_str!("seatbelt/loopback.sb");

/// Programs and libraries of the system, which stay readable if the profile lists what may be read, except through
/// `/System/Volumes/Data`, a second path to all of the user's files. Metadata can be read everywhere, because resolving
/// a path looks at every folder above it.
const SYSTEM_RULES: &str = include_str!("seatbelt/system.sb");

/// The most paths in one rule: the system refuses rules of more than 64 KiB.
const MAX_PATHS: usize = 32;

/// Folders that are symlinks on every Mac.
const ROOT_SYMLINKS: [(&str, &str); 3] =
    [("/tmp", "/private/tmp"), ("/var", "/private/var"), ("/etc", "/private/etc")];

/// The program and arguments that run `command` under a profile. `None` if a path of the profile
/// cannot be expressed.
pub fn sandbox_exec_command(
    profile: &SandboxProfile,
    command: &[OsString],
) -> Option<Vec<OsString>> {
    let mut words: Vec<OsString> =
        vec![SANDBOX_EXEC.into(), "-p".into(), render_profile(profile)?.into(), "--".into()];
    words.extend_from_slice(command);
    Some(words)
}

/// The profile in Seatbelt's language. `None` if a path cannot be expressed: without it the profile
/// would not hide or protect that path.
pub fn render_profile(profile: &SandboxProfile) -> Option<String> {
    let mut text = BASE_RULES.to_owned();
    let writable = quote_all(&profile.writable)?;
    let read_only = quote_all(&profile.read_only)?;
    let hidden = quote_all(&profile.hidden)?;
    match &profile.readable {
        None => text.push_str("(allow file-read*)\n"),
        Some(list) => {
            text.push_str(SYSTEM_RULES);
            text.push_str(&rule("allow", "file-read*", &quote_all(list)?));
            text.push_str(&rule("allow", "file-read*", &writable));
        }
    }
    text.push_str(TERMINAL_RULES);
    text.push_str(&rule("allow", "file-write*", &writable));
    // The last matching rule wins, so denials come after permissions.
    text.push_str(&rule("deny", "file-write*", &read_only));
    text.push_str(&rule("deny", "file-read* file-write*", &hidden));
    text.push_str(&pinned_rule(profile)?);
    text.push_str(&rule("allow", "file-read*", &quote_below_hidden(profile, &profile.unhidden)?));
    let reopened = quote_below_hidden(profile, &profile.writable)?;
    if !reopened.is_empty() {
        text.push_str(&rule("allow", "file-read* file-write*", &reopened));
        text.push_str(&rule("deny", "file-write*", &read_only));
    }
    let inner = profile.hidden.iter().filter(|path| {
        let mut open = profile.hidden.iter().flat_map(|hidden| profile.open_below(hidden));
        open.any(|open| path.starts_with(open))
    });
    text.push_str(&rule("deny", "file-read* file-write*", &quote_all(inner)?));
    if !writable.is_empty() {
        text.push_str("(deny file-write-setugid)\n");
    }
    text.push_str(match profile.network {
        Network::Off => "(deny network*)\n",
        Network::Loopback => LOOPBACK_RULES,
        Network::Internet | Network::On => NETWORK_RULES,
    });
    text.push_str(&socket_rules(profile)?);
    if profile.network == Network::Internet {
        text.push_str("(deny network-outbound (remote ip \"localhost:*\"))\n");
    }
    for address in profile.machine_addresses.iter().filter(|address| address.ip().is_loopback()) {
        text.push_str(&format!(
            "(allow network-outbound (remote ip \"localhost:{}\"))\n",
            address.port()
        ));
    }
    Some(text)
}

/// Lets a program make sockets in its folders, and connect to those and to the ones that the profile names. Rules for
/// inner paths come last, so that hidden and read-only paths in these folders stay so.
fn socket_rules(profile: &SandboxProfile) -> Option<String> {
    if profile.writable.is_empty() && profile.sockets.is_empty() {
        return Some(String::new());
    }
    let mut rules = Vec::new();
    for (access, paths) in [
        ("allow network-bind (local", &profile.writable),
        ("allow network-outbound (remote", &profile.writable),
        ("deny network-bind (local", &profile.read_only),
        ("deny network-outbound (remote", &profile.hidden),
        ("allow network-outbound (remote", &profile.sockets),
    ] {
        rules.extend(quote_all(paths)?.iter().map(|path| {
            (path.matches('/').count(), format!("({access} unix-socket (subpath {path})))\n"))
        }));
    }
    rules.sort_by_key(|(depth, _)| *depth);
    let text: String = rules.into_iter().map(|(_, rule)| rule).collect();
    Some(format!("(allow system-socket (socket-domain AF_UNIX))\n{text}"))
}

/// The paths that lie below a hidden one, quoted.
fn quote_below_hidden(profile: &SandboxProfile, paths: &[PathBuf]) -> Option<Vec<String>> {
    quote_all(paths.iter().filter(|path| {
        profile.hidden.iter().any(|hidden| path.starts_with(hidden) && *path != hidden)
    }))
}

/// Keeps the folders above hidden and read-only paths in place: under another name a path would be
/// neither.
fn pinned_rule(profile: &SandboxProfile) -> Option<String> {
    let kept = profile.hidden.iter().chain(&profile.read_only);
    let above = kept.flat_map(|path| path.ancestors().skip(1));
    let movable = above
        .filter(|path| profile.writable.iter().any(|root| path.starts_with(root) && *path != root));
    let pinned: BTreeSet<_> = movable.map(Path::to_path_buf).collect();
    Some(rules("deny file-write-unlink", "literal", &quote_all(&pinned)?))
}

/// A rule about everything at and below some paths.
fn rule(action: &str, operations: &str, paths: &[String]) -> String {
    rules(&format!("{action} {operations}"), "subpath", paths)
}

/// Rules about some paths, none of them too long for the system. Without a path there is no rule: a rule without a
/// filter would apply to every path.
fn rules(start: &str, filter: &str, paths: &[String]) -> String {
    let between = format!(")\n  ({filter} ");
    let parts = paths.chunks(MAX_PATHS).map(|part| part.join(between.as_str()));
    let all: Vec<_> = parts.map(|part| format!("({start}\n  ({filter} {part}))\n")).collect();
    all.concat()
}

fn quote_all<'a>(all: impl IntoIterator<Item = &'a PathBuf>) -> Option<Vec<String>> {
    all.into_iter().map(|path| quote(&resolve_root_symlinks(path))).collect()
}

/// The path with the usual links followed: the kernel compares paths after following symlinks.
fn resolve_root_symlinks(path: &Path) -> PathBuf {
    let link = ROOT_SYMLINKS.iter().find_map(|(link, to)| {
        let rest = path.strip_prefix(link).ok()?;
        // Joining an empty path would add a slash.
        Some(if rest.as_os_str().is_empty() { to.into() } else { Path::new(to).join(rest) })
    });
    link.unwrap_or_else(|| path.to_path_buf())
}

/// A path as a quoted string. `None` if the path is relative or not normalised, is not UTF-8, or
/// contains control characters.
fn quote(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let is_plain =
        path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !text.starts_with('/') || !is_plain || text.chars().any(char::is_control) {
        return None;
    }
    Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

// The paths of macOS are absolute only where paths begin with `/`.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn sample() -> SandboxProfile {
        SandboxProfile {
            writable: vec!["/Users/ada/ws".into(), "/tmp/t".into()],
            read_only: vec!["/Users/ada/ws/.git/hooks".into()],
            hidden: vec!["/Users/ada/.ssh".into()],
            ..SandboxProfile::default()
        }
    }

    fn rendered(profile: &SandboxProfile) -> String {
        let text = render_profile(profile).unwrap();
        text.strip_prefix(BASE_RULES).unwrap().replace(TERMINAL_RULES, "")
    }

    #[test]
    fn every_part_of_the_profile_has_a_rule() {
        assert_eq!(rendered(&sample()), include_str!("seatbelt/sample.sb"));
    }

    #[test]
    fn sockets_in_writable_folders_and_named_ones_are_open_without_a_network() {
        for network in [Network::Off, Network::Loopback, Network::Internet, Network::On] {
            let profile = SandboxProfile {
                network,
                writable: vec!["/state/cache".into()],
                hidden: vec!["/state/cache/key".into(), "/state".into()],
                sockets: vec!["/state/signing".into()],
                ..SandboxProfile::default()
            };
            let text = rendered(&profile);
            let at = |action: &str, path: &str| {
                let to = format!("(remote unix-socket (subpath \"{path}\"))");
                text.find(&format!("({action} network-outbound {to})")).unwrap()
            };
            let hides = at("deny", "/state");
            let opens = at("allow", "/state/cache");
            assert!(hides < opens && opens < at("deny", "/state/cache/key"), "{text}");
            assert!(hides < at("allow", "/state/signing"), "{text}");
        }
    }

    /// A container engine starts whatever it is told to, with the user's files.
    #[test]
    fn sockets_of_other_programs_are_closed_with_a_network_too() {
        for network in [Network::Internet, Network::On] {
            let text = rendered(&SandboxProfile { network, ..sample() });
            let (before, after) =
                text.split_once("(deny network-outbound (remote unix-socket))\n").unwrap();
            assert!(before.contains("(allow network*)\n") && !after.contains("(allow network*)"));
            assert!(after.contains("(path-literal \"/private/var/run/mDNSResponder\")"), "{text}");
            assert!(after.contains("(remote unix-socket (subpath \"/Users/ada/ws\"))"), "{text}");
        }
    }

    /// Rust's `system-configuration`, Java, watchers of files, PostgreSQL, the number of processors in Node.js,
    /// redirects to a stream by its name, and servers that bind all addresses.
    #[test]
    fn programs_without_a_network_get_the_services_they_crash_without() {
        for needed in [
            "com.apple.SystemConfiguration.configd",
            "kern.grade_cputype",
            "com.apple.FSEvents",
            "(allow ipc-sysv-sem)\n(allow ipc-sysv-shm)\n",
            "(allow mach-host*)\n",
            "(regex #\"^/dev/(fd/[0-9]+|std(in|out|err))$\")",
        ] {
            assert!(BASE_RULES.contains(needed), "{needed}");
        }
        assert!(LOOPBACK_RULES.contains("(allow network-bind (local ip \"*:*\"))"));
    }

    #[test]
    fn the_variables_of_other_processes_are_closed_behind_the_rule_that_opens_the_system() {
        let (_, after) = BASE_RULES.split_once("(allow sysctl-read)\n").unwrap();
        assert!(after.starts_with("(deny sysctl-read (sysctl-name-prefix \"kern.procargs\"))\n"));
        assert!(!after.contains("(allow sysctl-read"));
        let (_, after) = BASE_RULES.split_once("(deny process-info*)\n").unwrap();
        assert!(after.starts_with("(allow process-info* (target same-sandbox))\n"));
        assert!(!BASE_RULES.contains("(allow process-info-"));
    }

    /// A rule that denies one kind of access wins over a later one that allows all kinds.
    #[test]
    fn what_is_denied_to_terminals_is_opened_again_by_the_same_name() {
        let (denied, opened) = TERMINAL_RULES.split_once(")\n").unwrap();
        assert!(denied.starts_with("(deny file-read-data file-write* "));
        let again = opened.matches("(allow file-read* file-read-data file-write*").count();
        assert_eq!(again, opened.matches("(allow file-read*").count());
    }

    /// Playwright and Puppeteer.
    #[test]
    fn the_processes_of_a_browser_find_each_other() {
        let (_, after) = BASE_RULES.split_once("(allow mach-register mach-lookup\n").unwrap();
        let (rule, _) = after.split_once("))\n").unwrap();
        for name in ["org\\.chromium", "com\\.google\\.[Cc]hrome", "MachPortRendezvousServer"] {
            assert!(rule.contains(name), "{rule}");
        }
    }

    /// Without it, the loader aborts each program of a profile that lists what may be read.
    #[test]
    fn the_names_in_the_root_can_be_read_by_every_program() {
        let listed = SandboxProfile { readable: Some(Vec::new()), ..sample() };
        assert!(render_profile(&listed).unwrap().contains("(allow file-read* (literal \"/\"))\n"));
    }

    #[test]
    fn no_rule_is_too_long_for_the_system_however_many_paths_it_is_about() {
        let folder = Path::new("/Users/ada/ws").join("long".repeat(60));
        let hidden = (0..1000).map(|number| folder.join(number.to_string())).collect();
        let text = rendered(&SandboxProfile { hidden, ..sample() });
        let longest = text.split("\n(").map(str::len).max().unwrap();
        assert!(longest < 32 * 1024, "{longest}");
        assert_eq!(text.matches("/999\"").count(), 2, "of files and of sockets");
    }

    #[test]
    fn what_is_open_below_a_hidden_folder_comes_after_it() {
        let state = |name: &str| vec![PathBuf::from(format!("/state{name}"))];
        let profile = SandboxProfile {
            writable: state("/cache"),
            read_only: state("/cache/hooks"),
            hidden: [state(""), state("/cache/key")].concat(),
            unhidden: state("/out"),
            ..SandboxProfile::default()
        };
        let text = rendered(&profile);
        let at = |rule: &str| text.rfind(rule).unwrap_or_else(|| panic!("{rule}: {text}"));
        let hides = at("(deny file-read* file-write*\n  (subpath \"/state\")");
        let shows = at("(allow file-read*\n  (subpath \"/state/out\"))");
        let opens = at("(allow file-read* file-write*\n  (subpath \"/state/cache\"))");
        let keeps = at("(deny file-write*\n  (subpath \"/state/cache/hooks\"))");
        let hides_again = at("(deny file-read* file-write*\n  (subpath \"/state/cache/key\"))");
        assert!(hides < shows && shows < opens && opens < keeps && keeps < hides_again, "{text}");
    }

    /// The last matching rule wins.
    #[test]
    fn terminals_are_closed_behind_the_rule_that_allows_reading_everything() {
        for readable in [None, Some(vec!["/dev".into()])] {
            let text = render_profile(&SandboxProfile { readable, ..sample() }).unwrap();
            let (before, after) = text.split_once(TERMINAL_RULES).unwrap();
            assert!(!after.contains("/dev") && !after.contains("(allow file-read*)"), "{text}");
            assert!(!before.contains("/dev/tty"), "{text}");
        }
    }

    #[test]
    fn nothing_is_allowed_by_leaving_something_out() {
        let nothing = SandboxProfile { readable: Some(Vec::new()), ..SandboxProfile::default() };
        let text = rendered(&nothing);
        assert!(!text.contains("file-write"), "{text}");
        assert!(!text.contains("(allow file-read*)"), "{text}");
        assert!(text.ends_with("(deny network*)\n"));
        assert!(BASE_RULES.starts_with("(version 1)\n(deny default)\n"));
        for line in render_profile(&sample()).unwrap().lines() {
            assert!(!matches!(
                line,
                "(allow file-write*)" | "(allow network*)" | "(allow default)"
            ));
        }
    }

    #[test]
    fn a_list_is_all_that_can_be_read_besides_what_can_be_written_and_the_system() {
        let strict = SandboxProfile { readable: Some(vec!["/var/data".into()]), ..sample() };
        let text = rendered(&strict);
        let (reads, _) = text.split_once("(allow file-write*").unwrap();
        let (system, listed) = reads.split_once("(deny file-read* (subpath \"/System/").unwrap();
        assert!(system.contains("\"/usr\""), "{system}");
        for path in ["\"/private/var/data\"", "\"/Users/ada/ws\""] {
            assert!(listed.contains(path), "{path} in {listed}");
        }
        assert!(!reads.contains("(subpath \"/\")") && !reads.contains("\"/Users\""));
    }

    #[test]
    fn the_network_is_off_local_or_on() {
        let with = |network| rendered(&SandboxProfile { network, ..sample() });
        let here = with(Network::Loopback);
        assert!(here.contains("localhost") && !here.contains("(allow network*)"));
        assert!(with(Network::On).contains("(allow network*)\n"));
        let machine_addresses = vec!["127.0.0.1:5432".parse().unwrap()];
        let internet = SandboxProfile { network: Network::Internet, machine_addresses, ..sample() };
        assert!(rendered(&internet).ends_with(
            "(deny network-outbound (remote ip \"localhost:*\"))\n\
             (allow network-outbound (remote ip \"localhost:5432\"))\n"
        ));
    }

    #[test]
    fn no_path_can_leave_its_string() {
        let table = [
            ("/a b/ä", Some("\"/a b/ä\"")),
            ("/a\") (allow file-write*) (\"", Some("\"/a\\\") (allow file-write*) (\\\"\"")),
            ("/a\\", Some("\"/a\\\\\"")),
            ("/a\\\"b", Some("\"/a\\\\\\\"b\"")),
            ("/a\nb", None),
            ("/a/../b", None),
            ("a", None),
            ("", None),
        ];
        for (path, expected) in table {
            assert_eq!(quote(Path::new(path)).as_deref(), expected, "{path:?}");
        }
        // A path that cannot be expressed is not left out.
        let lost = SandboxProfile { hidden: vec!["/a\u{1b}b".into()], ..sample() };
        assert_eq!(render_profile(&lost), None);
        assert_eq!(sandbox_exec_command(&lost, &["sh".into()]), None);
    }

    #[test]
    fn brackets_are_closed_and_strings_end() {
        let odd = SandboxProfile { writable: vec!["/a(\"b\\".into()], ..sample() };
        for network in [Network::Off, Network::Loopback, Network::On] {
            for read in [None, Some(vec!["/r".into()])] {
                let text =
                    render_profile(&SandboxProfile { readable: read, network, ..odd.clone() })
                        .unwrap();
                let mut depth = 0;
                let mut in_string = false;
                let mut chars = text.chars();
                while let Some(char) = chars.next() {
                    match char {
                        '\\' if in_string => drop(chars.next()),
                        '"' => in_string = !in_string,
                        '(' if !in_string => depth += 1,
                        ')' if !in_string => depth -= 1,
                        _ => {}
                    }
                    assert!(depth >= 0);
                }
                assert!(depth == 0 && !in_string, "{text}");
            }
        }
    }

    #[test]
    fn links_that_every_mac_has_are_followed() {
        let table = [
            ("/tmp", "/private/tmp"),
            ("/tmp/x", "/private/tmp/x"),
            ("/tmpx", "/tmpx"),
            ("/var/folders/a", "/private/var/folders/a"),
            ("/private/tmp/x", "/private/tmp/x"),
        ];
        for (path, expected) in table {
            assert_eq!(resolve_root_symlinks(Path::new(path)), Path::new(expected));
        }
    }

    #[test]
    fn sandbox_exec_starts_the_command() {
        let words =
            sandbox_exec_command(&sample(), &["/bin/sh".into(), "-c".into(), "true".into()])
                .unwrap();
        assert_eq!(words[..2], ["/usr/bin/sandbox-exec", "-p"]);
        assert_eq!(words[3..], ["--", "/bin/sh", "-c", "true"]);
    }
}
