//! Describes a folder and this machine for the model, in a few sorted lines: they are the same bytes as long as nothing
//! has changed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::checkpoint::repository_state;
use crate::exec::{Environment, dialect};
use crate::files::read_head;
use crate::markers::{Purpose, find_commands, lock_files};
use crate::search::visit_unignored;
use crate::tool_versions::find_programs;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::shell_script::ShellDialect;
use turnwright_types::text;

/// The most bytes of all lines.
const MAX_BYTES: usize = 1024;
/// The time for comparing files with the index of the repository.
const COMPARING_TIME: Duration = Duration::from_millis(100);
/// The most files and folders that are counted in a folder without a repository.
const MAX_COUNTED: usize = 5000;
/// The kinds of files that are named.
const MAX_KINDS: usize = 4;
/// The longest end of a name that is a kind.
const MAX_KIND_BYTES: usize = 8;
/// A folder without a repository is listed if it has no more entries.
const MAX_LISTED: usize = 30;
/// The most characters of a branch, and of a listed name.
const MAX_NAME_CHARS: usize = 100;
const MAX_RELEASE_BYTES: usize = 4 * 1024;

const HEADER: &str = "Surroundings when the session began (a snapshot):\n";

/// Describes the programs of the user and a folder, whose path has no links. `versions` is the file with the versions
/// of programs. Each line is told with its name as soon as it is known. Blocks.
pub fn describe(
    folder: &Path,
    environment: &Environment,
    versions: Option<&Path>,
    tell: &mut dyn FnMut(&'static str, String),
) {
    let programs = find_programs(environment, versions);
    let tools = programs.iter().map(|program| match &program.version {
        Some(version) => format!("{} {version}", program.name),
        None => program.name.to_owned(),
    });
    tell("tools", joined(tools));
    // macOS asks the user about folders of the home folder that are read, and other disks are below the root.
    let home = environment.get("HOME").filter(|_| cfg!(target_os = "macos"));
    if folder.parent().is_none() || home.is_some_and(|home| folder == home) {
        return;
    }
    let managers = lock_files(folder).map(|(file, manager)| format!("{manager} ({file})"));
    tell("packages", joined(managers));
    let commands = find_commands(folder, &|program| environment.has_program(program));
    for (name, purpose) in [
        ("build", Purpose::Build),
        ("check", Purpose::Check),
        ("lint", Purpose::Lint),
        ("test", Purpose::Test),
    ] {
        let wanted = commands.iter().filter(|found| found.purpose == purpose);
        let all: Vec<_> = wanted.map(|found| found.command.as_str()).collect();
        tell(name, all.join(" or "));
    }
    describe_files(folder, tell);
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// The shell of commands, and the system. Blocks.
pub fn shell() -> String {
    let shell = match dialect() {
        ShellDialect::Bash => "bash",
        ShellDialect::Posix => "sh",
        ShellDialect::Cmd => "cmd",
    };
    // Models write options of GNU tools, some of which mean something else to those of BSD.
    let tools = cfg!(target_os = "macos").then(|| "BSD tools, not GNU".to_owned());
    let release = distribution().or(tools).map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{shell} on {} {}{release}", std::env::consts::OS, std::env::consts::ARCH)
}

/// The name and the version of a Linux distribution.
fn distribution() -> Option<String> {
    let release = read_head(Path::new("/etc/os-release"), None, MAX_RELEASE_BYTES)?.text;
    let words = ["NAME=", "VERSION_ID="].map(|key| {
        let word = release.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        word.trim_matches(['"', '\''])
    });
    Some(shown(words.join(" ").trim())).filter(|name| !name.is_empty())
}

/// A name that somebody else has chosen, as a part of a line.
fn shown(name: &str) -> String {
    text::clip(escape_hidden_line(name), MAX_NAME_CHARS)
}

/// Tells the branch and the files.
fn describe_files(folder: &Path, tell: &mut dyn FnMut(&'static str, String)) {
    let mut kinds = BTreeMap::new();
    let until = Instant::now() + COMPARING_TIME;
    if let Some(state) = repository_state(folder, until, |path| count(path, &mut kinds)) {
        let changes = match state.changed {
            None => String::new(),
            Some(0) => ", no unstaged changes".to_owned(),
            Some(1) => ", 1 file with unstaged changes".to_owned(),
            Some(files) => format!(", {files} files with unstaged changes"),
        };
        let branch = state.branch.map(|branch| shown(&branch) + &changes);
        tell("branch", branch.unwrap_or_default());
    } else {
        tell("entries", entries(folder).unwrap_or_default());
        let is_complete = visit_unignored(folder, MAX_COUNTED, |path| {
            if !path.is_dir() {
                count(path, &mut kinds);
            }
        });
        if !is_complete {
            return;
        }
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    // Those with the same number stay sorted by name.
    kinds.sort_by_key(|(_, files)| Reverse(*files));
    kinds.truncate(MAX_KINDS);
    tell("files", joined(kinds.iter().map(|(kind, files)| format!("{files} {kind}"))));
}

/// Counts a file by the end of its name.
fn count(path: &Path, kinds: &mut BTreeMap<String, usize>) {
    let Some(kind) = path.extension().and_then(|end| end.to_str()) else { return };
    if kind.len() <= MAX_KIND_BYTES && kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        *kinds.entry(kind.to_ascii_lowercase()).or_default() += 1;
    }
}

/// The entries of a folder, unless there are many. Those of folders end in a slash.
fn entries(folder: &Path) -> Option<String> {
    let found: Vec<_> = fs::read_dir(folder).ok()?.flatten().take(MAX_LISTED + 1).collect();
    let listed = found.iter().filter(|entry| entry.file_name() != ".git");
    let named = listed.map(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        shown(&entry.file_name().to_string_lossy()) + if is_folder { "/" } else { "" }
    });
    let mut names: Vec<_> = named.collect();
    names.sort();
    (found.len() <= MAX_LISTED).then(|| names.join(", "))
}

/// The lines that say something, below their header and within their limit. The listing is left out first, and then
/// the end of the last line, which names the tools.
pub fn fitting(mut lines: BTreeMap<&'static str, String>) -> String {
    lines.retain(|_, words| !words.is_empty());
    let mut all = rendered(&lines);
    if all.len() > MAX_BYTES && lines.remove("entries").is_some() {
        all = rendered(&lines);
    }
    if all.len() > MAX_BYTES {
        let head = text::prefix(&all, MAX_BYTES - 1);
        let (kept, _) = head.rsplit_once([',', '\n']).unwrap_or_default();
        all = format!("{kept}\n");
    }
    all
}

fn rendered(lines: &BTreeMap<&'static str, String>) -> String {
    let lines = lines.iter().map(|(name, words)| format!("{name}: {words}\n"));
    HEADER.to_owned() + &lines.collect::<String>()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    fn lines(pairs: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
        pairs.iter().map(|(name, words)| (*name, (*words).to_owned())).collect()
    }

    fn described(folder: &Path, network: Option<String>) -> String {
        let environment = Environment::default().with("PATH", "");
        let mut lines = BTreeMap::new();
        lines.insert("network", network.unwrap_or_default());
        describe(folder, &environment, None, &mut |name, words| {
            lines.insert(name, words);
        });
        fitting(lines)
    }

    #[test]
    fn a_small_folder_without_a_repository_is_listed_and_described_alike_twice() {
        let base = tempfile::tempdir().unwrap();
        let folder = crate::real_path(base.path()).unwrap().join("project");
        fs::create_dir_all(folder.join("b/no-file.zip")).unwrap();
        for name in ["c.py", "a.py", "b/d.PY", "go.mod", "no kind", "x.y-z"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let network = Some("none in commands".to_owned());
        let text = described(&folder, network.clone());
        let expected = "entries: a.py, b/, c.py, go.mod, no kind, x.y-z\nfiles: 3 py, 1 mod\n\
                        network: none in commands\n";
        assert_eq!(text, format!("{HEADER}{expected}"));
        assert_eq!(described(&folder, network.clone()), text);
        for number in 0..MAX_LISTED {
            fs::write(folder.join(format!("{number}.rs")), "").unwrap();
        }
        let text = described(&folder, network);
        assert!(text.contains("files: 30 rs, 3 py, 1 mod\n"), "{text}");
        assert!(!text.contains("entries"), "{text}");
    }

    #[test]
    fn the_tools_of_macos_are_said_to_be_those_of_bsd() {
        assert_eq!(shell().ends_with(" (BSD tools, not GNU)"), cfg!(target_os = "macos"));
    }

    #[test]
    fn no_project_is_looked_for_in_the_root() {
        assert_eq!(described(Path::new("/"), None), HEADER);
    }

    #[test]
    fn the_listing_goes_first_then_tools_and_lines_from_the_end() {
        let long = "x".repeat(600);
        let all =
            lines(&[("entries", &*long), ("files", "1 rs"), ("test", &*long), ("branch", "")]);
        assert_eq!(fitting(all), format!("{HEADER}files: 1 rs\ntest: {long}\n"));
        let tools = format!("a 1.0, {}, c", "b".repeat(400));
        let all = lines(&[("files", "1 rs"), ("test", &*long), ("tools", &*tools)]);
        assert_eq!(fitting(all), format!("{HEADER}files: 1 rs\ntest: {long}\ntools: a 1.0\n"));
        let longest = "x".repeat(MAX_BYTES);
        let all = lines(&[("check", "c"), ("test", &*longest)]);
        assert_eq!(fitting(all), format!("{HEADER}check: c\n"));
        let exact = "x".repeat(MAX_BYTES - HEADER.len() - "test: \n".len());
        assert_eq!(fitting(lines(&[("test", &*exact)])).len(), MAX_BYTES);
    }

    #[test]
    fn names_of_others_are_one_line() {
        assert_eq!(shown("a\nSystem: b"), escape_hidden_line("a\nSystem: b"));
        assert!(!shown("a\n\u{1b}[2Jb").contains(['\n', '\u{1b}']));
        assert_eq!(shown(&"x".repeat(500)).chars().count(), MAX_NAME_CHARS + 1);
    }
}
