//! Explains what a failed command has missed because the sandbox hides it or its environment lacks it: keys and logins
//! of the user, variables that may hold secrets, and sockets of other programs. The command's output shows what it was.
//! Hidden files of the project are also named after a command that succeeds: they may have looked empty to it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::restricted_files::reads_unnamed_beside_edits;
use crate::watch::{CommandWatch, GuardState};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::shell_script::Script;
use turnwright_types::text;
use turnwright_workspace::exec::is_secret_name;
use turnwright_workspace::real_path;

use super::{MAX_LINES, MAX_NAMED, ReachedLimit, SEARCHED_BYTES, refused_path};

/// Messages of programs that have found no login, in lower case, behind the names of these programs.
const MISSING_LOGINS: &str = include_str!("missing_logins.txt");
/// Programs that run a program of a package.
const RUNNERS: [&str; 3] = ["bunx", "npx", "uvx"];

impl GuardState {
    /// Takes note of the hidden files that a command may come across. Returns those that no command has met before.
    pub(in crate::watch) fn newly_hidden(
        &mut self,
        script: &Script,
        hidden: &BTreeSet<PathBuf>,
    ) -> BTreeSet<PathBuf> {
        if !reads_unnamed_beside_edits(script) {
            return BTreeSet::new();
        }
        let new: BTreeSet<_> = hidden.difference(&self.met_hidden).cloned().collect();
        self.met_hidden.extend(new.iter().cloned());
        new
    }
}

impl CommandWatch {
    /// Names the hidden files that the command is the first to come across, and the one that it complains about.
    pub(super) fn hidden_files(&self, output: &str) -> Option<ReachedLimit> {
        let refused = self.refused_hidden_file(output);
        let named = refused.filter(|path| !self.newly_hidden.contains(*path)).into_iter();
        let names: Vec<_> = named
            .chain(self.newly_hidden.iter().map(PathBuf::as_path))
            .map(|path| escape_hidden_line(&path.to_string_lossy()))
            .collect();
        let files = text::join_first(&names, MAX_NAMED);
        let what = format!("sandbox: hidden from this command: {files}");
        let advice = "Such files may look empty or missing to a command: do not create or replace them \
                      because of that. To read one, name it in a call; the user is asked.";
        (!names.is_empty()).then(|| ReachedLimit::new(&what, advice))
    }

    /// The hidden file that the command complains about.
    pub(super) fn refused_hidden_file(&self, output: &str) -> Option<&Path> {
        let hidden: Vec<_> = self.hidden.iter().map(PathBuf::as_path).collect();
        refused_path(output, &hidden)
    }
}

/// Messages of git and the programs that sign for it if they do not reach the key, in lower case.
const FAILED_SIGNATURES: &str = include_str!("failed_signatures.txt");

/// Explains why git could not sign; `None` if the output does not say so, or if the sandbox is not the reason.
/// `signing` is `None` if the command may not sign, and an error if it may but nothing could be set up to sign for it.
pub(super) fn failed_signature(
    output: &str,
    signing: Option<&io::Result<()>>,
) -> Option<ReachedLimit> {
    let end = text::suffix(output, SEARCHED_BYTES).to_lowercase();
    if !text::has_listed(&end, FAILED_SIGNATURES) {
        return None;
    }
    match signing {
        Some(Ok(())) => None,
        Some(Err(error)) => {
            let what = format!("git signs nothing: {}", io_error_text(error));
            Some(ReachedLimit::denied(&what, "full"))
        }
        None => {
            let what = "the user's keys are out of reach, so git signs nothing";
            Some(ReachedLimit::denied(what, "sign"))
        }
    }
}

/// Explains why a program finds no login, although the user may have one; `None` if the output does not say so, or if
/// the command line runs no such program: a failing test may print the same words.
pub(super) fn missing_login(output: &str, script: &Script) -> Option<ReachedLimit> {
    let end = text::suffix(output, SEARCHED_BYTES).to_lowercase();
    let is_missing = text::list_entries(MISSING_LOGINS).any(|entry| {
        entry.split_once(": ").is_some_and(|(programs, message)| {
            end.contains(message) && programs.split(' ').any(|program| runs(script, program))
        })
    });
    let what = "the user's logins and keyring are out of reach, so a login that is reported as missing or wrong may \
                be fine";
    is_missing.then(|| ReachedLimit::denied(what, "full"))
}

/// Returns true if a command line runs this program, by itself or with one of the [`RUNNERS`].
fn runs(script: &Script, program: &str) -> bool {
    script.commands.iter().any(|command| {
        let mut names = command.argv().map(|word| word.rsplit('/').next().unwrap_or(word));
        names.find(|name| !name.starts_with('-') && !RUNNERS.contains(name)) == Some(program)
    })
}

/// Explains that a program on macOS could not confine a part of itself, as SwiftPM does with a manifest, because it is
/// confined already; `None` if the output does not say so.
pub(super) fn nested_sandbox(output: &str) -> Option<ReachedLimit> {
    let end = text::suffix(output, SEARCHED_BYTES);
    let advice = "Call again with the program's own sandbox off, as in `swift build --disable-sandbox` and \
                  `xcodebuild -IDEPackageSupportDisableManifestSandbox=YES`; the command stays confined.";
    end.contains("sandbox_apply: Operation not permitted")
        .then(|| ReachedLimit::new("sandbox: macOS allows no sandbox within another", advice))
}

/// The messages of package managers about a variable in their settings that is not set, up to its name.
const UNSET_VARIABLES: [&str; 2] =
    ["Failed to replace env in config: ${", "Environment variable not found ("];
const MAX_VARIABLE_CHARS: usize = 64;

/// Explains that a program misses a variable which commands do not get; `None` if the output does not say so.
pub(super) fn missing_variable(output: &str) -> Option<ReachedLimit> {
    let end = text::suffix(output, SEARCHED_BYTES);
    let name = UNSET_VARIABLES.iter().find_map(|before| {
        let (_, rest) = end.split_once(before)?;
        let length = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_')?;
        Some(&rest[..length])
    })?;
    let is_hidden = name.len() <= MAX_VARIABLE_CHARS && is_secret_name(name);
    is_hidden.then(|| {
        let what = format!("commands get no variables that may hold secrets, such as {name}");
        let advice =
            format!("If its value is not needed, begin the line with `export {name}=none;`.");
        ReachedLimit::new(&what, &advice)
    })
}

/// Messages of programs that find no container engine, in lower case. Many do not name its socket.
const MISSING_ENGINES: &str = include_str!("missing_engines.txt");
/// The sockets of container engines.
const ENGINES: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

impl CommandWatch {
    /// Explains that the sandbox keeps the command from a socket which its output is about: many programs then say that
    /// nothing listens there. Blocks.
    pub(super) fn closed_socket(&self, output: &str) -> Option<ReachedLimit> {
        let end = text::suffix(output, SEARCHED_BYTES);
        let mut sockets = self.possible_sockets(end).filter_map(|path| real_path(path).ok());
        let socket = sockets.find(|path| {
            !self.writable.iter().any(|place| path.starts_with(place)) && is_socket(path)
        })?;
        let shown = escape_hidden_line(&socket.to_string_lossy());
        let what = format!("commands do not reach the program that listens at {shown}");
        Some(ReachedLimit::denied(&what, &shown))
    }

    /// The paths in an output that may be sockets. If it misses a container engine, also those that the user's
    /// variables name, which come first, because commands lack these variables, and the usual ones.
    fn possible_sockets<'a>(&'a self, output: &'a str) -> impl Iterator<Item = &'a str> {
        let lacks_engine = text::has_listed(&output.to_lowercase(), MISSING_ENGINES);
        let words = output
            .split(|char: char| char.is_whitespace() || "'\"`‘’“”()[]<>,;=".contains(char))
            .map(|word| word.strip_prefix("unix://").unwrap_or(word).trim_end_matches([':', '.']))
            .filter(|word| {
                word.starts_with('/') && SOCKET_NAMES.iter().any(|name| word.contains(name))
            });
        let variables = ["DOCKER_HOST", "CONTAINER_HOST"].into_iter();
        let chosen = variables.filter_map(move |name| self.environment.socket(name));
        let usual = ENGINES.into_iter().filter(move |_| lacks_engine);
        chosen.filter(move |_| lacks_engine).chain(words.take(MAX_LINES)).chain(usual)
    }
}

/// Parts of the names of sockets.
const SOCKET_NAMES: [&str; 2] = ["sock", "/.s.PGSQL."];

#[cfg(unix)]
fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata().is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(not(unix))]
fn is_socket(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use turnwright_policy::shell;
    use turnwright_types::shell_script::ShellDialect;
    use turnwright_workspace::exec::Environment;

    #[test]
    fn the_result_says_why_git_has_not_signed() {
        let broken = || Some(Err(io::Error::other("no place for the socket")));
        let failed = "error: gpg failed to sign the data\nfatal: failed to write commit object\n";
        for (signing, output, expected) in [
            (None, failed, Some(("the user's keys are out of reach", "sign"))),
            (broken(), failed, Some(("git signs nothing: no place for the socket", "full"))),
            (Some(Ok(())), failed, None),
            (None, "fatal: not a git repository", None),
            (broken(), "", None),
        ] {
            let limit = failed_signature(output, signing.as_ref());
            assert_eq!(limit.is_some(), expected.is_some(), "{output}: {limit:?}");
            if let (Some(limit), Some((begin, escalate))) = (limit, expected) {
                assert!(limit.for_user.starts_with(&format!("[sandbox: {begin}")), "{limit:?}");
                assert!(limit.for_model.contains(&format!("\"escalate\": \"{escalate}\"")));
            }
        }
    }

    #[test]
    fn a_login_that_the_sandbox_hides_is_not_taken_for_missing() {
        let gh = "To get started with GitHub CLI, please run:  gh auth login\n";
        for (line, output, is_success, expected) in [
            ("cd a && gh pr view | cat", gh, false, true),
            ("npx -y wrangler deploy", "You are not logged in. Run wrangler login", false, true),
            ("/usr/bin/gh auth status", "- The token in default is invalid.\n", false, true),
            ("aws s3 ls", "Unable to locate credentials. You can configure", false, true),
            ("git push", "fatal: could not read Username for 'https://a.example'", false, true),
            ("npm publish", "npm error code ENEEDAUTH\nnpm error need auth", false, true),
            ("gh pr view", gh, true, false),
            ("cargo test gh", gh, false, false),
            ("grep -rn 'gh auth login' src", gh, false, false),
            ("psql", "FATAL: password authentication failed for user \"a\"", false, false),
        ] {
            let script = Arc::new(shell::parse(line, ShellDialect::Bash));
            let confined = CommandWatch { script: Arc::clone(&script), ..CommandWatch::default() };
            let limit = confined.reached_limit(output, is_success, None);
            assert_eq!(limit.is_some(), expected, "{line}: {limit:?}");
            let is_told = limit.is_some_and(|limit| limit.for_model.contains("\"full\"; the user"));
            assert_eq!(is_told, expected, "{line}");
            let unconfined =
                CommandWatch { is_unconfined: true, script, ..CommandWatch::default() };
            assert!(unconfined.reached_limit(output, is_success, None).is_none(), "{line}");
        }
        for entry in text::list_entries(MISSING_LOGINS) {
            assert!(entry.contains(": ") && entry == entry.to_lowercase(), "{entry}");
        }
    }

    #[test]
    fn the_model_is_told_to_turn_off_a_sandbox_within_the_sandbox() {
        let output =
            "sandbox-exec: sandbox_apply: Operation not permitted\nerror: 'a': Invalid manifest\n";
        let limit = nested_sandbox(output).unwrap();
        assert!(limit.for_model.contains("--disable-sandbox"), "{limit:?}");
        assert!(!limit.for_model.contains("escalate"), "{limit:?}");
        let reached = CommandWatch::default().reached_limit(output, false, None);
        assert_eq!(reached.is_some(), cfg!(target_os = "macos"), "{reached:?}");
    }

    #[test]
    fn a_variable_that_commands_do_not_get_is_named() {
        let unconfined = CommandWatch { is_unconfined: true, ..CommandWatch::default() };
        for (output, expected) in [
            ("error \"Failed to replace env in config: ${NPM_TOKEN}\".", "NPM_TOKEN"),
            ("Usage Error: Environment variable not found (MY_NPM_TOKEN) in x", "MY_NPM_TOKEN"),
            ("Usage Error: Environment variable not found (REGISTRY) in x", ""),
            ("Environment variable not found (", ""),
            ("error: NPM_TOKEN is not set", ""),
        ] {
            let limit = unconfined.reached_limit(output, false, None);
            assert_eq!(limit.is_some(), !expected.is_empty(), "{output}: {limit:?}");
            let advice = format!("`export {expected}=none;`");
            assert!(limit.is_none_or(|limit| limit.for_model.contains(&advice)), "{output}");
            assert!(unconfined.reached_limit(output, true, None).is_none(), "{output}");
        }
        let long = format!("Environment variable not found ({}TOKEN)", "A".repeat(99));
        assert!(missing_variable(&long).is_none());
    }

    #[test]
    fn a_hidden_file_that_a_command_complains_about_is_named() {
        for (output, expected) in [
            ("grep: /ws/sub/.env.local: Permission denied\n", ": /ws/sub/.env.local]"),
            ("PermissionError: [Errno 13] Permission denied: '.env'", ": /ws/.env]"),
            ("Permission denied: .env.example\n", ""),
            ("compose.yml:3:    env_file: .env\n", ""),
            ("a.js:1:load(\".env\")\n./.env\n0 .env\n", ""),
            ("", ""),
        ] {
            let watch = CommandWatch {
                hidden: ["/ws/.env", "/ws/sub/.env.local"].map(PathBuf::from).into(),
                limits: Some("sandbox: no network".to_owned()),
                ..CommandWatch::default()
            };
            let limit = watch.reached_limit(output, false, None);
            let told = limit.map(|limit| limit.for_user).unwrap_or_default();
            if !expected.is_empty() {
                assert!(told.ends_with(expected), "{output}: {told}");
                assert!(!told.contains("network"), "{output}: {told}");
            }
            assert!(expected.is_empty() != told.contains("hidden"), "{output}: {told}");
        }
    }

    #[test]
    fn the_first_command_that_may_have_met_hidden_files_is_told_all() {
        let mut state = GuardState::default();
        for (line, hidden, expected) in [
            ("git log", "/ws/.env", ""),
            ("cat a", "/ws/.env", ""),
            ("grep -rs x .", "", ""),
            ("grep -rs x .", "/ws/.env /ws/a.pem", ": /ws/.env, /ws/a.pem]"),
            ("find . -type f -exec cat {} +", "/ws/.env /ws/a.pem", ""),
            ("grep -rs x .", "/ws/.env /ws/b.pem", ": /ws/b.pem]"),
        ] {
            let script = Arc::new(shell::parse(line, ShellDialect::Bash));
            let hidden = hidden.split_whitespace().map(PathBuf::from).collect();
            let newly_hidden = state.newly_hidden(&script, &hidden);
            let watch = CommandWatch { script, hidden, newly_hidden, ..CommandWatch::default() };
            let limit = watch.reached_limit("compose.yml: env_file: .env\n", true, None);
            let told = limit.as_ref().map_or("", |limit| limit.for_user.as_str());
            assert!(told.ends_with(expected), "{line}: {told}");
            assert_eq!(told.is_empty(), expected.is_empty(), "{line}: {told}");
            assert!(limit.is_none_or(|limit| limit.for_model.contains("name it in a call")));
        }
    }

    #[test]
    fn container_engines_are_meant_by_programs_that_name_no_socket() {
        for (output, expected) in [
            ("IllegalStateException: Could not find a valid Docker environment. Please see", true),
            ("Error: Could not find a working container runtime strategy", true),
            (
                "DockerException: Error while fetching server API version: ('Connection aborted.'",
                true,
            ),
            ("docker: command not found", false),
        ] {
            let watch = CommandWatch::default();
            let sockets: Vec<_> = watch.possible_sockets(output).collect();
            assert_eq!(sockets, if expected { &ENGINES[..] } else { &[] }, "{output}");
        }
        let environment = Environment::default()
            .with("CONTAINER_HOST", "tcp://a.example:2375")
            .with("DOCKER_HOST", "unix:///run/user/1/docker.sock");
        let watch = CommandWatch { environment: Arc::new(environment), ..CommandWatch::default() };
        let output = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it";
        let sockets: Vec<_> = watch.possible_sockets(output).collect();
        assert_eq!(sockets[..2], ["/run/user/1/docker.sock", "/var/run/docker.sock"]);
        assert_eq!(sockets[2..], ENGINES);
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_that_commands_do_not_reach_is_named() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = real_path(temporary.path()).unwrap();
        let socket = folder.join("docker.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let socket = socket.to_str().unwrap();
        let place = folder.to_str().unwrap();
        for (output, expected) in [
            (format!("Cannot connect to the Docker daemon at unix://{socket}. Is it"), true),
            (format!("dial unix {socket}: connect: no such file or directory"), true),
            (format!("connection to server on socket \"{socket}\" failed"), true),
            (format!("connection to server on socket \"{place}/.s.PGSQL.5432\" failed"), false),
            ("Cannot connect to unix:///nowhere/docker.sock.".to_owned(), false),
            (format!("{place} is a folder"), false),
        ] {
            let limit = CommandWatch::default().reached_limit(&output, false, None);
            assert_eq!(limit.is_some(), expected, "{output}: {limit:?}");
            let advice = format!("\"escalate\": \"{socket}\"");
            assert!(limit.is_none_or(|limit| limit.for_model.contains(&advice)), "{output}");
            let open = CommandWatch { writable: vec!["/".into()], ..CommandWatch::default() };
            assert!(open.closed_socket(&output).is_none(), "{output}");
        }
        let environment = Environment::default().with("DOCKER_HOST", format!("unix://{socket}"));
        let watch = CommandWatch { environment: Arc::new(environment), ..CommandWatch::default() };
        let missing = "Cannot connect to the Docker daemon at unix:///nowhere/docker.sock.";
        for (output, is_success, expected) in
            [(missing, false, true), (missing, true, false), ("test failed", false, false)]
        {
            let limit = watch.reached_limit(output, is_success, None);
            assert_eq!(limit.is_some(), expected, "{output}: {limit:?}");
            assert!(limit.is_none_or(|limit| limit.for_model.contains(socket)), "{output}");
        }
    }
}
