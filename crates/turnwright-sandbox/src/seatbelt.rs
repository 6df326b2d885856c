//! A profile in the words of macOS's sandbox, and how a command is started in it. Only text: it is
//! made, and tested, on every system.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::{Network, Profile};

/// The system's own program. By its whole path: another of that name would be no wall.
pub(super) const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// What every program needs to begin and to end, and no more: itself and what it starts, facts about
/// the system, its terminal, the services that names of users, time and certificates come from.
const USUAL: &str = "\
(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow user-preference-read)
(allow ipc-posix-sem)
(allow ipc-posix-shm*)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (regex #\"^/dev/tty[a-z0-9]*$\"))
(allow file-read* file-write* file-ioctl (literal \"/dev/ptmx\"))
(allow file-read* file-write-data
  (literal \"/dev/null\")
  (literal \"/dev/zero\")
  (literal \"/dev/dtracehelper\"))
(allow file-read-metadata (literal \"/\"))
(allow mach-lookup
  (global-name \"com.apple.bsd.dirhelper\")
  (global-name \"com.apple.system.logger\")
  (global-name \"com.apple.system.notification_center\")
  (global-name \"com.apple.system.opendirectoryd.libinfo\")
  (global-name \"com.apple.system.opendirectoryd.membership\")
  (global-name \"com.apple.trustd\")
  (global-name \"com.apple.trustd.agent\"))
";

/// What names of hosts and their certificates are looked up with.
const WITH_NETWORK: &str = "\
(allow network*)
(allow system-socket)
(allow mach-lookup
  (global-name \"com.apple.SecurityServer\")
  (global-name \"com.apple.SystemConfiguration.configd\")
  (global-name \"com.apple.dnssd.service\")
  (global-name \"com.apple.networkd\"))
";

/// Whoever listens or connects on this machine only. The system knows no interface of one's own.
const ON_THIS_MACHINE: &str = "\
(allow network-bind (local ip \"localhost:*\"))
(allow network-inbound (local ip \"localhost:*\"))
(allow network-outbound (remote ip \"localhost:*\"))
(allow system-socket)
";

/// What any program is made of, where reading has to be allowed.
const SYSTEM: [&str; 12] = [
    "/System",
    "/Library",
    "/usr",
    "/bin",
    "/sbin",
    "/opt",
    "/Applications/Xcode.app",
    "/private/etc",
    "/private/var/db/timezone",
    "/private/var/select",
    "/private/var/db/dyld",
    "/dev",
];

/// Folders that are links on every Mac.
const LINKS: [(&str, &str); 3] =
    [("/tmp", "/private/tmp"), ("/var", "/private/var"), ("/etc", "/private/etc")];

/// The program and its arguments that run `shell` behind the walls of a profile. `None` if it cannot
/// be said: a path of it holds what the language has no words for.
pub fn command(profile: &Profile, shell: &[OsString]) -> Option<Vec<OsString>> {
    let mut words: Vec<OsString> =
        vec![PROGRAM.into(), "-p".into(), self::profile(profile)?.into(), "--".into()];
    words.extend_from_slice(shell);
    Some(words)
}

/// The profile as the system wants it. `None` if a path of it cannot be said: what is to be hidden or
/// kept must not be left out.
pub fn profile(profile: &Profile) -> Option<String> {
    let mut text = USUAL.to_owned();
    let (write, keep) = (paths(&profile.write)?, paths(&profile.keep)?);
    let hide = paths(&profile.hide)?;
    match &profile.read {
        None => text.push_str("(allow file-read*)\n"),
        Some(list) => {
            let mut all: Vec<String> = SYSTEM.iter().map(|it| format!("\"{it}\"")).collect();
            all.extend(paths(list)?);
            all.extend(write.iter().cloned());
            text.push_str(&rule("allow", "file-read*", &all));
            // To get to a folder, those above it are looked at.
            text.push_str("(allow file-read-metadata)\n");
        }
    }
    text.push_str(&rule("allow", "file-write*", &write));
    // The last rule that fits decides, so what takes away comes after what gives.
    text.push_str(&rule("deny", "file-write*", &keep));
    text.push_str(&rule("deny", "file-read* file-write*", &hide));
    text.push_str(match profile.network {
        Network::Off => "(deny network*)\n",
        Network::Loopback => ON_THIS_MACHINE,
        Network::On => WITH_NETWORK,
    });
    Some(text)
}

/// A rule about everything at and below some paths. About nothing there is no rule: one without a
/// filter would be about everything.
fn rule(word: &str, what: &str, paths: &[String]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let filters: Vec<_> = paths.iter().map(|it| format!("\n  (subpath {it})")).collect();
    let filters = filters.concat();
    format!("({word} {what}{filters})\n")
}

fn paths(all: &[PathBuf]) -> Option<Vec<String>> {
    all.iter().map(|it| quoted(&real(it))).collect()
}

/// As the kernel knows it: the system compares names after all links are followed.
fn real(path: &Path) -> PathBuf {
    let link = LINKS.iter().find_map(|(link, to)| {
        let rest = path.strip_prefix(link).ok()?;
        let is_link = rest.as_os_str().is_empty();
        Some(if is_link { PathBuf::from(to) } else { Path::new(to).join(rest) })
    });
    link.unwrap_or_else(|| path.to_path_buf())
}

/// A path as a string that it cannot leave. Relative ones mean nothing here, and what is no text
/// or controls something is not said at all.
fn quoted(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let is_plain =
        path.components().all(|it| matches!(it, Component::RootDir | Component::Normal(_)));
    if !text.starts_with('/') || !is_plain || text.chars().any(char::is_control) {
        return None;
    }
    Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Profile {
        Profile {
            write: vec!["/Users/ada/ws".into(), "/tmp/t".into()],
            keep: vec!["/Users/ada/ws/.git/hooks".into()],
            hide: vec!["/Users/ada/.ssh".into()],
            read: None,
            network: Network::Off,
        }
    }

    fn rules(profile: &Profile) -> String {
        let text = super::profile(profile).unwrap();
        text.strip_prefix(USUAL).unwrap().to_owned()
    }

    #[test]
    fn the_walls_are_those_of_the_profile() {
        let expected = "\
(allow file-read*)
(allow file-write*
  (subpath \"/Users/ada/ws\")
  (subpath \"/private/tmp/t\"))
(deny file-write*
  (subpath \"/Users/ada/ws/.git/hooks\"))
(deny file-read* file-write*
  (subpath \"/Users/ada/.ssh\"))
(deny network*)
";
        assert_eq!(rules(&full()), expected);
    }

    #[test]
    fn nothing_is_allowed_by_leaving_something_out() {
        let nothing = Profile { read: Some(Vec::new()), ..Profile::default() };
        let text = rules(&nothing);
        assert!(!text.contains("file-write"), "{text}");
        assert!(!text.contains("(allow file-read*)"), "{text}");
        assert!(text.ends_with("(deny network*)\n"));
        assert!(USUAL.starts_with("(version 1)\n(deny default)\n"));
        for line in profile(&full()).unwrap().lines() {
            assert!(!matches!(
                line,
                "(allow file-write*)" | "(allow network*)" | "(allow default)"
            ));
        }
    }

    #[test]
    fn a_list_is_all_that_can_be_read_besides_what_can_be_written_and_the_system() {
        let strict = Profile { read: Some(vec!["/var/data".into()]), ..full() };
        let text = rules(&strict);
        let (reads, _) = text.split_once("(allow file-write*").unwrap();
        for path in ["\"/private/var/data\"", "\"/Users/ada/ws\"", "\"/usr\""] {
            assert!(reads.contains(path), "{path} in {reads}");
        }
        assert!(!reads.contains("(subpath \"/\")") && !reads.contains("\"/Users\""));
    }

    #[test]
    fn the_network_is_off_here_or_on() {
        let with = |network| rules(&Profile { network, ..full() });
        let here = with(Network::Loopback);
        assert!(here.contains("localhost") && !here.contains("(allow network*)"));
        assert!(with(Network::On).contains("(allow network*)\n"));
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
            assert_eq!(quoted(Path::new(path)).as_deref(), expected, "{path:?}");
        }
        // What cannot be said is not left out.
        let lost = Profile { hide: vec!["/a\u{1b}b".into()], ..full() };
        assert_eq!(profile(&lost), None);
        assert_eq!(command(&lost, &["sh".into()]), None);
    }

    #[test]
    fn brackets_are_closed_and_strings_end() {
        let odd = Profile { write: vec!["/a(\"b\\".into()], ..full() };
        for network in [Network::Off, Network::Loopback, Network::On] {
            for read in [None, Some(vec!["/r".into()])] {
                let text = profile(&Profile { read, network, ..odd.clone() }).unwrap();
                let (mut depth, mut in_string, mut chars) = (0, false, text.chars());
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
            assert_eq!(real(Path::new(path)), Path::new(expected));
        }
    }

    #[test]
    fn the_systems_program_starts_the_shell() {
        let words = command(&full(), &["/bin/sh".into(), "-c".into(), "true".into()]).unwrap();
        assert_eq!(words[..2], ["/usr/bin/sandbox-exec", "-p"]);
        assert_eq!(words[3..], ["--", "/bin/sh", "-c", "true"]);
    }
}
