//! The programs of the user that a project may need, and their versions. Nobody waits for a version: those that are
//! known are read from a file, and the others are asked for in the background, in the sandbox and without a network.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::exec::{Environment, PipedProgram, ProcessGroup, find_in_path};
use crate::real_path;
use crate::temp_folder::PrivateTempFolder;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::private_file;

/// The programs, sorted by name.
const NAMES: [&str; 20] = [
    "bun", "cargo", "clang", "cmake", "deno", "docker", "dotnet", "gcc", "git", "go", "java",
    "make", "node", "npm", "php", "pnpm", "python3", "ruby", "uv", "yarn",
];
/// The time before each question. Some programs keep a processor busy for a tenth of a second, and a request or a
/// command of the session may be waited for meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// The time that a program has for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 4 * 1024;
/// The most bytes of the file with the versions.
const MAX_CACHE_BYTES: u64 = 64 * 1024;
/// A version is asked for again after this many days: of a program that only starts another one, the file stays the
/// same.
const MAX_AGE_DAYS: u64 = 7;

/// A program of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProgram {
    pub name: &'static str,
    /// Its version, if that is known.
    pub version: Option<String>,
    path: PathBuf,
    /// Another one if the file is another one.
    stamp: String,
    /// True if it was asked for its version already.
    was_asked: bool,
}

/// Finds the programs in the folders of `PATH`. `cache` is the file with the versions, if there is one. Blocks.
pub fn find_programs(environment: &Environment, cache: Option<&Path>) -> Vec<FoundProgram> {
    let versions = cache.map(kept_versions).unwrap_or_default();
    let found = NAMES.into_iter().filter_map(|name| {
        let path = find_in_path(Path::new(name), environment.get("PATH"))?;
        if is_placeholder(&path) {
            return None;
        }
        let stamp = stamp(&path)?;
        let kept = versions.get(&stamp);
        let version = kept.and_then(|kept| kept["version"].as_str()).map(str::to_owned);
        Some(FoundProgram { name, version, path, stamp, was_asked: kept.is_some() })
    });
    found.collect()
}

/// Returns true for a program of macOS that only opens a window which offers to install the developer tools. Blocks.
fn is_placeholder(path: &Path) -> bool {
    let tools = ["/Library/Developer/CommandLineTools", "/Applications/Xcode.app"];
    cfg!(target_os = "macos")
        && path.starts_with("/usr/bin")
        && !tools.iter().any(|folder| Path::new(folder).exists())
}

fn stamp(path: &Path) -> Option<String> {
    let file = std::fs::metadata(path).ok()?;
    let modified = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", path.to_str()?, file.len(), modified.as_secs()))
}

/// The entries of the file that are not too old.
fn kept_versions(cache: &Path) -> Map<String, Value> {
    let text = private_file::read(cache, MAX_CACHE_BYTES).unwrap_or_default();
    let mut versions: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    let oldest = today().saturating_sub(MAX_AGE_DAYS);
    versions.retain(|_, kept| kept["day"].as_u64().is_some_and(|day| day > oldest));
    versions
}

fn today() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / (24 * 60 * 60)
}

/// Asks the programs whose versions are not known, one after the other, and keeps their answers in the file. Making the
/// environment may block.
pub async fn learn_versions(
    make_environment: impl FnOnce() -> Environment + Send + 'static,
    cache: PathBuf,
) {
    sleep(PAUSE).await;
    let known = cache.clone();
    let looking = spawn_blocking(move || {
        let environment = make_environment();
        let mut programs = find_programs(&environment, Some(&known));
        programs.retain(|program| !program.was_asked);
        if programs.is_empty() {
            return None;
        }
        let folder = PrivateTempFolder::create().ok()?;
        let place = real_path(folder.path()).ok()?;
        Some((programs, environment.for_sandbox().with("TMPDIR", place.clone()), folder, place))
    });
    let Ok(Some((programs, confined, _folder, place))) = looking.await else { return };
    for program in programs {
        let version = version_of(&program, &confined, &place).await;
        let cache = cache.clone();
        spawn_blocking(move || keep(&cache, program.stamp, version.as_deref())).await.ok();
        sleep(PAUSE).await;
    }
}

fn keep(cache: &Path, stamp: String, version: Option<&str>) {
    let mut versions = kept_versions(cache);
    versions.insert(stamp, json!({ "version": version, "day": today() }));
    if let Err(error) = private_file::write(cache, Value::from(versions).to_string().as_bytes()) {
        tracing::debug!(%error, "the version of a program was not kept");
    }
}

/// Runs a program in an empty folder to tell its version.
async fn version_of(
    program: &FoundProgram,
    environment: &Environment,
    folder: &Path,
) -> Option<String> {
    let argument = if program.name == "go" { "version" } else { "--version" };
    let command = PipedProgram {
        command_line: vec![program.path.clone().into(), argument.into()],
        workdir: folder.to_path_buf(),
        environment: environment.clone(),
        sandbox: Some(SandboxProfile {
            writable: vec![folder.to_path_buf()],
            ..SandboxProfile::default()
        }),
    };
    // Dropping the group kills the program.
    let (_group, pipes) = ProcessGroup::start_piped(&command).await.ok()?;
    let mut answer = Vec::new();
    let mut output = pipes.stdout.take(MAX_ANSWER_BYTES);
    timeout(PATIENCE, output.read_to_end(&mut answer)).await.ok();
    short_version(&String::from_utf8_lossy(&answer))
}

/// The first two numbers of the first version in a text.
fn short_version(text: &str) -> Option<String> {
    let mut words = text.split(|next: char| !next.is_ascii_digit() && next != '.');
    words.find_map(|word| {
        let mut numbers = word.split('.');
        let [major, minor] = [numbers.next()?, numbers.next()?];
        let are_numbers = [major, minor].iter().all(|number| (1..=6).contains(&number.len()));
        are_numbers.then(|| format!("{major}.{minor}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_two_numbers() {
        for (answer, expected) in [
            ("git version 2.47.1", Some("2.47")),
            ("go version go1.22.3 linux/amd64", Some("1.22")),
            ("v22.3.0\n", Some("22.3")),
            ("Python 3.13.1+", Some("3.13")),
            ("gcc (Debian 14.2.0-19) 14.2.0", Some("14.2")),
            ("Docker version 27.0.3, build 7d4bcd8", Some("27.0")),
            ("cargo 1.90.0-nightly (840b83a10 2025-07-30)", Some("1.90")),
            ("see example.com. 1234567.1 then 4.5", Some("4.5")),
            ("openjdk 21 2024-07-16", None),
            ("", None),
        ] {
            assert_eq!(short_version(answer).as_deref(), expected, "{answer}");
        }
    }

    #[test]
    fn names_are_sorted_and_versions_age() {
        assert!(NAMES.is_sorted());
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("tool-versions.json");
        assert!(kept_versions(&cache).is_empty());
        let old = json!({ "/old 1 1": { "version": "1.0", "day": today() - MAX_AGE_DAYS } });
        private_file::write(&cache, old.to_string().as_bytes()).unwrap();
        keep(&cache, "/new 1 1".to_owned(), Some("2.0"));
        keep(&cache, "/silent 1 1".to_owned(), None);
        let kept = kept_versions(&cache);
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["/new 1 1", "/silent 1 1"]);
        assert_eq!(kept["/new 1 1"]["version"], "2.0");
        private_file::write(&cache, b"no JSON").unwrap();
        assert!(kept_versions(&cache).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_program_is_another_one_when_its_file_is() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache.json");
        let git = folder.path().join("git");
        private_file::write(&git, b"#!/bin/sh\n").unwrap();
        let environment = Environment::default().with("PATH", folder.path());
        assert!(find_programs(&environment, Some(&cache)).is_empty());
        std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o700)).unwrap();
        let found = find_programs(&environment, Some(&cache)).remove(0);
        assert_eq!((found.name, found.version, found.was_asked), ("git", None, false));
        keep(&cache, found.stamp, Some("2.47"));
        let found = find_programs(&environment, Some(&cache)).remove(0);
        assert_eq!((found.version.as_deref(), found.was_asked), (Some("2.47"), true));
        assert_eq!(find_programs(&environment, None)[0].version, None);
        private_file::append(&git, b"true\n").unwrap();
        assert!(!find_programs(&environment, Some(&cache))[0].was_asked);
    }
}
