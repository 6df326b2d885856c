//! The environment variables that a command gets.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::program_search::find_in_path;
use crate::memory::find_secret;
use crate::real_path;
use turnwright_types::text;

/// Parts of variable names that indicate a secret. The last three unlock a vault, or let anybody write to a chat.
const SECRET_WORDS: &str = "KEY SECRET TOKEN PASS _PWD CREDENTIAL PRIVATE COOKIE AUTH \
                            BW_SESSION SLACK_WEBHOOK DISCORD_WEBHOOK";

/// Names that match `SECRET_WORDS` but hold no secret: where to find an agent or a helper, who writes a commit, which
/// modules are private, and how programs work that would otherwise wait for a keyring or warn all the time.
const NON_SECRET_NAMES: &str = "SSH_AUTH_SOCK XAUTHORITY GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE \
                                GOPRIVATE PIP_KEYRING_PROVIDER POETRY_KEYRING_ENABLED \
                                PYTHON_KEYRING_BACKEND TOKENIZERS_PARALLELISM UV_KEYRING_PROVIDER";

/// Variables that change the meaning of a command, which would then not do what its words say: files and
/// options that a shell reads even with `--norc`, targets of `cd`, exclusions from patterns, additional
/// options of programs, programs that they start and libraries that they load, colours even in a pipe, which
/// some editors set for their own terminals, how editors run themselves and attach their debuggers, the pipes of an SSH
/// login on Windows, and the user's terminal, where a question for a passphrase would not be seen.
/// `LD_LIBRARY_PATH` is not here, because whole toolchains are found by it.
const MEANING_CHANGING_NAMES: &str = include_str!("environment/meaning_changing_names.txt");

/// Variables that npm sets for a program that it starts, such as this one with `npx turnwright`. `npm` and `npx` in
/// commands would take them for the user's settings, and nvm does not work with them.
const NPM_NAMES: &str = include_str!("environment/npm_names.txt");

/// Prefixes of further such names: functions that replace commands, and git's settings, ssh
/// commands and trace files.
const MEANING_CHANGING_PREFIXES: &[&str] = &["BASH_FUNC_", "GIT_CONFIG", GIT_SSH, "GIT_TRACE"];
/// On Windows `GIT_SSH` is kept: it names the program that has the user's keys, and every command is asked about.
const GIT_SSH: &str = if cfg!(windows) { "GIT_SSH_COMMAND" } else { "GIT_SSH" };

/// Variables that lead to services outside the sandbox which execute requests.
pub(super) const SANDBOX_ESCAPE_VARIABLES: &str = "DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS DISPLAY \
                                DOCKER_HOST GPG_AGENT_INFO CONTAINER_HOST NVIM TMUX VSCODE_GIT_IPC_HANDLE \
                                VSCODE_IPC_HOOK_CLI WAYLAND_DISPLAY XAUTHORITY XDG_RUNTIME_DIR";

/// Variables that keep programs from waiting for a key press, opening an editor or a window,
/// redrawing the screen, or waiting for news of newer versions, which cannot arrive in the sandbox, and that
/// have git show names as they are and not as octal numbers, tidy up before it ends, and start no daemon, because
/// what a command leaves running is stopped. `LANGUAGE`, and what .NET has in its place, have errors and the results
/// of tests reported in English, so that denials by the sandbox and missing tests are recognised, and change neither
/// characters nor numbers. `GIT_SSH_COMMAND` is not here: it would replace the user's `core.sshCommand`, and without a
/// terminal ssh asks nothing anyway.
pub(super) const NONINTERACTIVE_VARIABLES: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("LANGUAGE", "en"),
    ("DOTNET_CLI_UI_LANGUAGE", "en"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("LESS", "-FRX"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("GCM_INTERACTIVE", "never"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    (GIT_SETTING_COUNT, COMMON_GIT_SETTINGS),
    ("GIT_CONFIG_KEY_0", "core.quotePath"),
    ("GIT_CONFIG_VALUE_0", "false"),
    ("GIT_CONFIG_KEY_1", "gc.autoDetach"),
    ("GIT_CONFIG_VALUE_1", "false"),
    ("GIT_CONFIG_KEY_2", "maintenance.autoDetach"),
    ("GIT_CONFIG_VALUE_2", "false"),
    ("GIT_CONFIG_KEY_3", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_3", "false"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    // Otherwise Python fails at the first character that the code page lacks.
    #[cfg(windows)]
    ("PYTHONIOENCODING", "utf-8"),
    // Otherwise `git` means a `git.exe` of the project.
    #[cfg(windows)]
    ("NoDefaultCurrentDirectoryInExePath", "1"),
    // Without namespaces, pyenv takes its folder for writable, and would wait for a minute after each `pip install`.
    ("PYENV_REHASH_TIMEOUT", "5"),
    ("PYTHONUNBUFFERED", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_PROGRESS_BAR", "off"),
    ("TQDM_DISABLE", "1"),
    ("CARGO_TERM_PROGRESS_WHEN", "never"),
    ("GH_PROMPT_DISABLED", "1"),
    ("npm_config_update_notifier", "false"),
    ("TURNWRIGHT", "1"),
];

/// The variable with the number of git's settings that are in variables.
pub const GIT_SETTING_COUNT: &str = "GIT_CONFIG_COUNT";
/// The number of those that every command gets.
pub const COMMON_GIT_SETTINGS: &str = "4";
/// The variables with the name and the value of each further one, and their number with it: there may be four for
/// signatures and two for the proxy.
const FURTHER_GIT_SETTINGS: [(&str, &str, &str); 6] = [
    ("GIT_CONFIG_KEY_4", "GIT_CONFIG_VALUE_4", "5"),
    ("GIT_CONFIG_KEY_5", "GIT_CONFIG_VALUE_5", "6"),
    ("GIT_CONFIG_KEY_6", "GIT_CONFIG_VALUE_6", "7"),
    ("GIT_CONFIG_KEY_7", "GIT_CONFIG_VALUE_7", "8"),
    ("GIT_CONFIG_KEY_8", "GIT_CONFIG_VALUE_8", "9"),
    ("GIT_CONFIG_KEY_9", "GIT_CONFIG_VALUE_9", "10"),
];

/// Adds a setting of git to the variables that a command gets besides the common ones.
pub fn add_git_setting(variables: &mut Vec<(&'static str, String)>, setting: &str, value: String) {
    let mut all = FURTHER_GIT_SETTINGS.into_iter();
    let free = all.find(|(key, ..)| variables.iter().all(|(name, _)| name != key));
    let Some((key, place, count)) = free else { return };
    variables.retain(|(name, _)| *name != GIT_SETTING_COUNT);
    let count = (GIT_SETTING_COUNT, count.to_owned());
    variables.extend([(key, setting.to_owned()), (place, value), count]);
}

/// The variables for commands that run without a question, besides `LC_*` and those above: they say where
/// the user, the toolchains and the temporary files are. Others could make a command do more than its
/// words say, as `NODE_OPTIONS` does.
const NAMES_FOR_SILENT_COMMANDS: &str = include_str!("environment/names_for_silent_commands.txt");

/// The library without which Termux finds no `/usr/bin/env` and no `/bin/sh`, with which scripts begin.
const TERMUX_LIBRARY: &str = "/data/data/com.termux/files/usr/lib/libtermux-exec";

/// Where the programs of a Unix system are, on NixOS and Guix as well, for a client without a path and for a user whose
/// own has no trusted folder.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin:\
                           /run/current-system/sw/bin:/run/current-system/profile/bin";

/// Adds the folders of Homebrew on Apple silicon and on Intel. The `PATH` of editors on the desktop lacks them.
fn add_homebrew(path: &mut OsString) {
    for folder in ["/opt/homebrew/bin", "/usr/local/bin"] {
        if std::env::split_paths(path).all(|part| part != Path::new(folder)) {
            path.push(":");
            path.push(folder);
        }
    }
}

/// Adds the encoding of macOS if there is no locale, as in editors on the desktop: programs would take texts for ASCII.
fn add_encoding(variables: &mut Environment) {
    if ["LANG", "LC_ALL", "LC_CTYPE"].iter().all(|name| variables.get(name).is_none()) {
        variables.0.push(("LC_CTYPE".into(), "en_US.UTF-8".into()));
    }
}

/// The folders of a list such as `PATH` for which `is_kept` returns true.
fn kept_folders(list: &OsStr, is_kept: impl Fn(&Path) -> bool) -> OsString {
    let folders = std::env::split_paths(list).filter(|folder| is_kept(folder));
    std::env::join_paths(folders).unwrap_or_default()
}

/// True if the value contains a URL with a password: `scheme://user:password@host`.
fn holds_password(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
    })
}

/// True if the value is one word with a key in a known format.
fn is_key(value: &str) -> bool {
    let is_word = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    is_word && find_secret(value).is_some()
}

/// True if a variable with this name probably holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    // Not everywhere in the name: `GNOME_DESKTOP_SESSION_ID` contains `OP_SESSION_`, too.
    let is_token = name.starts_with("OP_SESSION_") || name.rsplit(['_', '-']).next() == Some("PAT");
    !NON_SECRET_NAMES.split_whitespace().any(|known| known == name)
        && (is_token || SECRET_WORDS.split_whitespace().any(|word| name.contains(word)))
}

/// Returns true for a variable that can hold no secret and does not change the meaning of commands.
fn is_harmless(name: &OsStr, value: &OsStr, secrets: &[&str]) -> bool {
    let name = name.to_string_lossy().to_uppercase();
    let value = value.to_string_lossy();
    let is_ours = name.starts_with("OPENAI_") || name.starts_with("TURNWRIGHT");
    let holds_secret = secrets.iter().any(|secret| secret.len() >= 8 && value.contains(secret));
    let is_termux = name == "LD_PRELOAD"
        && value.strip_prefix(TERMUX_LIBRARY).is_some_and(|rest| !rest.contains([':', ' ', '/']));
    let is_listed = text::list_entries(MEANING_CHANGING_NAMES).any(|known| known == name);
    let changes_meaning = is_listed && !is_termux
        || MEANING_CHANGING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        // Started below PowerShell 7, Windows PowerShell would find modules that it cannot load.
        || cfg!(windows) && name == "PSMODULEPATH";
    let has_secret = holds_secret || holds_password(&value) || is_key(&value);
    !is_ours && !is_secret_name(&name) && !has_secret && !changes_meaning
}

/// Returns true if both names mean the same variable: Windows ignores their case.
fn is_same_name(one: &OsStr, other: &str) -> bool {
    if cfg!(windows) { one.eq_ignore_ascii_case(other) } else { one == other }
}

/// Environment variables without secrets.
#[derive(Clone, Debug, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// Takes the process's own variables without those that may hold a secret or change the meaning
    /// of commands. A variable whose value contains one of `secrets`, or a URL with a password, or is a key in
    /// a known format, is left out whatever its name.
    pub fn scrubbed(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        secrets: &[&str],
    ) -> Environment {
        let given = Environment(variables.into_iter().collect()).without_package();
        // Without this variable, the others are the user's.
        let is_started_by_npm = given.get("npm_lifecycle_event").is_some();
        let names_of_npm = text::list_entries(NPM_NAMES).filter(|_| is_started_by_npm);
        let mut all = given.without(&names_of_npm.collect::<Vec<_>>());
        all.0.retain(|(name, value)| is_harmless(name, value, secrets));
        // `uvx` adds a folder `archive-v0/HASH/bin`, whose Python has none of the user's packages, and npm those of the
        // project, in which commands may write what a hook would run outside of the sandbox.
        let mut path = all.folders("PATH", |folder| {
            let is_of_npm = is_started_by_npm && folder.iter().any(|part| part == "node_modules");
            !is_of_npm && folder.iter().nth_back(2).is_none_or(|part| part != "archive-v0")
        });
        if cfg!(target_os = "macos") {
            add_homebrew(&mut path);
            add_encoding(&mut all);
        }
        let quiet = NONINTERACTIVE_VARIABLES.iter();
        quiet.fold(all.with("PATH", path), |known, (name, value)| known.with(name, *value))
    }

    /// The folders of a variable such as `PATH` for which `is_kept` returns true. If none of `PATH` is left, they are
    /// those of the system: an empty path means the current folder, and a shell without one takes the path that was
    /// compiled in, which may end with the current folder.
    fn folders(&self, name: &str, is_kept: impl Fn(&Path) -> bool) -> OsString {
        let list = kept_folders(self.get(name).unwrap_or_default(), is_kept);
        if name != "PATH" || !list.is_empty() {
            return list;
        }
        let system = self.get("SystemRoot").filter(|_| cfg!(windows));
        system.map_or(SYSTEM_PATH.into(), |root| Path::new(root).join("System32").into())
    }

    /// Without the folders of the package from which an editor was started, an AppImage or a snap: programs of the
    /// system would load its libraries, and look for the user's data there. In a confined snap, whose home folder is
    /// there, they are needed.
    fn without_package(mut self) -> Environment {
        let folders = ["APPDIR", "SNAP", "SNAP_USER_DATA", "SNAP_USER_COMMON"]
            .map(|name| self.get(name).map(PathBuf::from).filter(|folder| folder.is_absolute()));
        let is_inside =
            |path: &Path| folders.iter().flatten().any(|folder| path.starts_with(folder));
        let is_packed = self.get("APPIMAGE").or(self.get("SNAP_NAME")).is_some();
        if !is_packed || self.get("HOME").is_some_and(|home| is_inside(Path::new(home))) {
            return self;
        }
        self.0.retain_mut(|(_, value)| {
            let was_empty = value.is_empty();
            *value = kept_folders(value, |folder| !is_inside(folder));
            was_empty || !value.is_empty()
        });
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Environment {
        self.0.retain(|(variable, _)| !is_same_name(variable, name));
        self.0.push((name.into(), value.into()));
        self
    }

    /// Has programs use this folder for their temporary files.
    #[must_use]
    pub fn with_temp_folder(self, folder: &Path) -> Environment {
        ["TMPDIR", "TMP", "TEMP"].into_iter().fold(self, |changed, name| changed.with(name, folder))
    }

    /// A copy without these variables.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Environment {
        let mut copy = self.clone();
        copy.0.retain(|(variable, _)| !names.iter().any(|name| is_same_name(variable, name)));
        copy
    }

    /// A copy for a command that runs without a question. Its programs and libraries are looked up only in
    /// absolute folders that `is_trusted`.
    #[must_use]
    pub fn for_silent_command(&self, is_trusted: impl Fn(&Path) -> bool) -> Environment {
        // Each command needs them, so the list is read once for all variables.
        let quiet = NONINTERACTIVE_VARIABLES.iter().map(|variable| variable.0);
        let known: Vec<_> = text::list_entries(NAMES_FOR_SILENT_COMMANDS).chain(quiet).collect();
        let kept = self.0.iter().filter(|(name, _)| {
            known.iter().any(|one| is_same_name(name, one))
                || name.to_string_lossy().starts_with("LC_")
        });
        let [path, libraries] = ["PATH", "LD_LIBRARY_PATH"]
            .map(|name| self.folders(name, |folder| folder.is_absolute() && is_trusted(folder)));
        let silent = Environment(kept.cloned().collect()).with("PATH", path);
        // An empty part means the current folder to the loader; to some loaders, so does an empty list.
        if libraries.is_empty() { silent } else { silent.with("LD_LIBRARY_PATH", libraries) }
    }

    /// Returns true for a folder in a session's roots, where a command may have written programs. A root that contains
    /// the home folder is no project: the user's own programs are there. Blocks.
    pub fn is_in_project(&self, folder: &Path, roots: &[PathBuf]) -> bool {
        let variable = self.get(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        let home = variable.and_then(|home| real_path(home).ok()).unwrap_or_default();
        let real = real_path(folder).unwrap_or_else(|_| folder.to_path_buf());
        roots.iter().any(|root| real.starts_with(root) && !home.starts_with(root))
    }

    /// A copy for a foreign program in the sandbox: without the services outside of it, and without
    /// the ssh agent, which holds keys for other machines.
    #[must_use]
    pub fn for_sandbox(&self) -> Environment {
        let names = SANDBOX_ESCAPE_VARIABLES.split(' ').chain(["SSH_AUTH_SOCK"]);
        self.without(&names.collect::<Vec<_>>())
    }

    /// The socket that a variable names as a URL: `DOCKER_HOST=unix:///run/user/1000/docker.sock`.
    pub fn socket(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str()?.strip_prefix("unix://")
    }

    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.0.iter().find(|(variable, _)| is_same_name(variable, name));
        found.map(|(_, value)| value.as_os_str())
    }

    /// Returns true if a program of this name is in a folder of `PATH`. Blocks.
    pub fn has_program(&self, name: &str) -> bool {
        find_in_path(Path::new(name), self.get("PATH")).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_passwords_are_removed_whatever_the_name() {
        for (value, is_kept) in [
            ("postgres://user:word@host/db", false),
            ("see http://a.example and https://u:p@b.example:80/x", false),
            ("amqp://:word@host", false),
            ("https://user@host/x", true),
            ("https://user:@host/x", true),
            ("https://host/a:b@c", true),
            ("user:word@host", true),
        ] {
            let all = Environment::scrubbed([("DATABASE".into(), value.into())], &[]);
            assert_eq!(all.get("DATABASE").is_some(), is_kept, "{value}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_of_the_desktop_gets_the_folders_of_homebrew() {
        for (before, after) in [
            ("/usr/bin:/bin", "/usr/bin:/bin:/opt/homebrew/bin:/usr/local/bin"),
            ("/usr/local/bin:/usr/bin", "/usr/local/bin:/usr/bin:/opt/homebrew/bin"),
            ("/opt/homebrew/bin:/usr/local/bin", "/opt/homebrew/bin:/usr/local/bin"),
        ] {
            let mut path = OsString::from(before);
            add_homebrew(&mut path);
            assert_eq!(path, after);
        }
    }

    #[test]
    fn commands_of_an_editor_on_the_desktop_of_macos_know_the_encoding() {
        for (name, is_added) in [("HOME", true), ("LANG", false), ("LC_ALL", false)] {
            let mut variables = Environment(vec![(name.into(), "C".into())]);
            add_encoding(&mut variables);
            let added = variables.0.get(1).map(|(name, value)| (name.to_str(), value.to_str()));
            let expected = (Some("LC_CTYPE"), Some("en_US.UTF-8"));
            assert_eq!(added, is_added.then_some(expected), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_python_of_uvx_is_not_that_of_commands() {
        for (before, after) in [
            ("/home/a/.cache/uv/archive-v0/Zx9/bin:/usr/bin::/bin", "/usr/bin::/bin"),
            ("/home/a/.venv/bin:/usr/bin:", "/home/a/.venv/bin:/usr/bin:"),
            ("/home/a/archive-v0/bin:/usr/bin", "/home/a/archive-v0/bin:/usr/bin"),
        ] {
            let all = Environment::scrubbed([("PATH".into(), before.into())], &[]);
            let path = all.get("PATH").unwrap().to_str().unwrap();
            // On macOS, the folders of Homebrew follow.
            assert!(path.starts_with(after), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn programs_of_a_project_do_not_come_first_because_npm_has_started_the_agent() {
        let of_npm = "/w/p/node_modules/.bin:/w/node_modules/.bin:/n/node_modules/npm/node-gyp-bin";
        let before = format!("{of_npm}:/opt/a");
        for (variable, path, after) in [
            ("npm_lifecycle_event", &*before, "/opt/a"),
            ("npm_lifecycle_event", of_npm, SYSTEM_PATH),
            ("FOO", &*before, &*before),
        ] {
            let given = [("PATH".into(), path.into()), (variable.into(), "npx".into())];
            let all = Environment::scrubbed(given, &[]);
            let path = all.get("PATH").unwrap().to_str().unwrap();
            // On macOS, the folders of Homebrew follow.
            assert!(path.starts_with(after), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn without_a_path_commands_find_the_programs_of_the_system() {
        for given in [None, Some("")] {
            let variables = given.map(|path| ("PATH".into(), path.into()));
            let all = Environment::scrubbed(variables, &[]);
            for environment in [all.for_silent_command(|_| true), all] {
                let path = environment.get("PATH").unwrap().to_str().unwrap();
                // On macOS, the folders of Homebrew follow.
                assert!(path.starts_with(SYSTEM_PATH), "{path}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn commands_get_no_folders_of_the_package_of_the_editor() {
        let code = "SNAP_NAME=code SNAP=/s/1 SNAP_USER_DATA=/me/s/1 PATH=/s/1/bin:/bin";
        let confined = format!("{code} HOME=/me/s/1");
        let classic = format!("{code} HOME=/me XDG_DATA_HOME=/me/s/1/x XDG_DATA_DIRS=/s/1/a:/b");
        for (variables, expected) in [
            ("APPIMAGE=/x APPDIR=/m PATH=/m/bin:/bin LD_LIBRARY_PATH=/m/lib: FOO=", "/bin FOO="),
            ("APPDIR=/m PATH=/m/b LD_LIBRARY_PATH=/m/l", "/m/b LD_LIBRARY_PATH=/m/l"),
            ("APPIMAGE=/x APPDIR= PATH=/m/bin FOO=http://a:1", "/m/bin FOO=http://a:1"),
            (classic.as_str(), "/bin XDG_DATA_DIRS=/b"),
            (confined.as_str(), "/s/1/bin:/bin"),
        ] {
            let given = variables.split(' ').filter_map(|one| one.split_once('='));
            let all = Environment::scrubbed(given.map(|(a, b)| (a.into(), b.into())), &[]);
            let path = all.get("PATH").unwrap().to_str().unwrap();
            // On macOS, the folders of Homebrew follow.
            let mut kept = path.replace(":/opt/homebrew/bin:/usr/local/bin", "");
            for name in ["LD_LIBRARY_PATH", "XDG_DATA_HOME", "XDG_DATA_DIRS", "FOO"] {
                if let Some(value) = all.get(name) {
                    kept.push_str(&format!(" {name}={}", value.to_str().unwrap()));
                }
            }
            assert_eq!(kept, expected);
        }
    }

    #[test]
    fn a_silent_command_finds_the_locales_and_time_zones_of_nix_and_guix() {
        let names = ["LOCALE_ARCHIVE", "GUIX_LOCPATH", "LOCPATH", "TZDIR"];
        let all = Environment::scrubbed(names.map(|name| (name.into(), "/nix/x".into())), &[]);
        let silent = all.for_silent_command(|_| true);
        let lost: Vec<_> = names.iter().filter(|name| silent.get(name).is_none()).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_silent_command_gets_known_variables_and_a_trusted_path() {
        let variables = [
            ("PATH", ":/project/bin:bin:/usr/bin::/opt/homebrew/bin:/usr/local/bin"),
            ("LC_ALL", "C"),
            ("LD_LIBRARY_PATH", "/project/lib::lib:/opt/lib"),
            ("NODE_OPTIONS", "--require ./x"),
            ("HOME", "/home/a"),
        ];
        let all = Environment::scrubbed(variables.map(|(a, b)| (a.into(), b.into())), &[]);
        let silent = all.for_silent_command(|path| !path.starts_with("/project"));
        assert_eq!(silent.get("PATH").unwrap(), "/usr/bin:/opt/homebrew/bin:/usr/local/bin");
        assert_eq!(silent.get("HOME").unwrap(), "/home/a");
        assert_eq!(silent.get("LC_ALL").unwrap(), "C");
        assert_eq!(silent.get("PAGER").unwrap(), "cat");
        assert_eq!(silent.get("LD_LIBRARY_PATH").unwrap(), "/opt/lib");
        assert_eq!(silent.get("NODE_OPTIONS"), None);
        let none = all.for_silent_command(|_| false);
        assert_eq!(none.get("PATH").unwrap(), SYSTEM_PATH);
        assert_eq!(none.get("LD_LIBRARY_PATH"), None);
    }

    #[cfg(windows)]
    #[test]
    fn names_of_variables_have_no_case_on_windows() {
        let variables = [
            ("Path", r"C:\project\bin;bin;C:\tools"),
            ("SystemRoot", r"C:\Windows"),
            ("Node_Options", "--require x"),
            ("Pager", "less"),
            ("Git_Dir", "x"),
            ("Npm_Token", "t"),
        ];
        let all = Environment::scrubbed(variables.map(|(a, b)| (a.into(), b.into())), &[]);
        let silent = all.for_silent_command(|path| !path.starts_with(r"C:\project"));
        for (name, in_all, in_silent) in [
            ("PATH", Some(r"C:\project\bin;bin;C:\tools"), Some(r"C:\tools")),
            ("SYSTEMROOT", Some(r"C:\Windows"), Some(r"C:\Windows")),
            ("NODE_OPTIONS", Some("--require x"), None),
            ("pager", Some("cat"), Some("cat")),
            ("GIT_DIR", None, None),
            ("NPM_TOKEN", None, None),
        ] {
            assert_eq!(all.get(name).and_then(OsStr::to_str), in_all, "{name}");
            assert_eq!(silent.get(name).and_then(OsStr::to_str), in_silent, "{name}");
        }
        let none = all.for_silent_command(|_| false);
        assert_eq!(none.get("Path").unwrap(), r"C:\Windows\System32");
        let other = all.clone().with("PATH", "x");
        assert_eq!(other.get("Path").unwrap(), "x");
        assert_eq!(
            other.iter().filter(|variable| variable.0.eq_ignore_ascii_case("path")).count(),
            1
        );
        assert_eq!(all.without(&["PATH"]).get("Path"), None);
    }

    #[cfg(windows)]
    #[test]
    fn python_prints_characters_that_the_code_page_lacks() {
        let all = Environment::scrubbed([("PythonIOEncoding".into(), "cp1252".into())], &[]);
        assert_eq!(all.get("PYTHONIOENCODING").unwrap(), "utf-8");
    }

    #[test]
    fn secrets_are_removed_by_name_and_by_value() {
        let variables = [
            ("PATH", "/bin"),
            ("OPENAI_API_KEY", "sk-1"),
            ("OPENAI_BASE_URL", "http://x"),
            ("GITHUB_TOKEN", "t"),
            ("my_password", "p"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("HIDDEN", "prefix sk-12345678 suffix"),
            ("TERM", "xterm"),
            ("GIT_AUTHOR_NAME", "Ada"),
            ("BASH_ENV", "/tmp/start"),
            ("GPG_TTY", "/dev/pts/1"),
            ("BASH_FUNC_ls%%", "() { rm; }"),
        ]
        .map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::scrubbed(variables, &["sk-12345678"]);
        let names: Vec<_> =
            environment.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        assert!(names.contains(&"PATH".to_owned()) && names.contains(&"SSH_AUTH_SOCK".to_owned()));
        assert!(names.contains(&"GIT_AUTHOR_NAME".to_owned()), "commits would be somebody else's");
        for gone in [
            "BASH_ENV",
            "GPG_TTY",
            "BASH_FUNC_ls%%",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "GITHUB_TOKEN",
            "my_password",
            "HIDDEN",
        ] {
            assert!(!names.contains(&gone.to_owned()), "{gone}");
        }
        assert_eq!(names.iter().filter(|name| *name == "TERM").count(), 1);
    }

    #[test]
    fn every_further_setting_of_git_has_the_next_number() {
        let mut variables = vec![("OTHER", "x".to_owned())];
        for number in 4..10 {
            add_git_setting(&mut variables, &format!("a.b{number}"), format!("c{number}"));
            let count = (number + 1).to_string();
            let counts: Vec<_> =
                variables.iter().filter(|(name, _)| *name == GIT_SETTING_COUNT).collect();
            assert_eq!(counts, [&(GIT_SETTING_COUNT, count)]);
        }
        let common = NONINTERACTIVE_VARIABLES.iter().map(|(name, value)| (*name, *value));
        let further = variables.iter().map(|(name, value)| (*name, value.as_str()));
        let all: Vec<_> = common.chain(further).collect();
        for number in 0..10 {
            for part in ["KEY", "VALUE"] {
                let wanted = format!("GIT_CONFIG_{part}_{number}");
                assert_eq!(all.iter().filter(|(name, _)| *name == wanted).count(), 1, "{wanted}");
            }
        }
        assert!(all.contains(&("GIT_CONFIG_KEY_4", "a.b4")));
        assert!(all.contains(&("GIT_CONFIG_VALUE_9", "c9")));
    }

    #[test]
    fn git_starts_no_daemon_that_would_be_stopped_with_its_command() {
        let all = Environment::scrubbed([], &[]);
        for setting in ["core.fsmonitor", "gc.autoDetach", "maintenance.autoDetach"] {
            let count: usize = COMMON_GIT_SETTINGS.parse().unwrap();
            let found = (0..count).find(|number| {
                all.get(&format!("GIT_CONFIG_KEY_{number}")).is_some_and(|name| name == setting)
            });
            let value = format!("GIT_CONFIG_VALUE_{}", found.unwrap());
            assert_eq!(all.get(&value).unwrap(), "false", "{setting}");
        }
    }

    #[test]
    fn errors_are_told_in_english_in_the_locale_of_the_user() {
        let variables = [("LC_ALL", "de_DE.UTF-8"), ("LANGUAGE", "de:fr")];
        let all = Environment::scrubbed(variables.map(|(a, b)| (a.into(), b.into())), &[]);
        for environment in [all.for_silent_command(|_| true), all] {
            assert_eq!(environment.get("LANGUAGE").unwrap(), "en");
            assert_eq!(environment.get("DOTNET_CLI_UI_LANGUAGE").unwrap(), "en");
            assert_eq!(environment.get("LC_ALL").unwrap(), "de_DE.UTF-8");
        }
    }

    #[test]
    fn scripts_find_their_interpreters_in_termux() {
        let library = format!("{TERMUX_LIBRARY}-ld-preload.so");
        let with_another = format!("{library}:/sdcard/x.so");
        for (value, is_kept) in [(library, true), (with_another, false)] {
            let all = Environment::scrubbed([("LD_PRELOAD".into(), value.into())], &[]);
            assert_eq!(all.get("LD_PRELOAD").is_some(), is_kept);
        }
    }

    #[test]
    fn pyenv_waits_no_minute_for_a_folder_that_the_sandbox_protects() {
        let all = Environment::scrubbed([("PYENV_REHASH_TIMEOUT".into(), "60".into())], &[]);
        let seconds = all.get("PYENV_REHASH_TIMEOUT").and_then(OsStr::to_str);
        assert!(seconds.unwrap().parse::<u32>().unwrap() <= 5);
    }

    #[test]
    fn tokens_are_no_variables_of_commands_and_connection_strings_are() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let in_path = format!("/opt/{token}/bin:/bin");
        let storage = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=Zk39xQ71vvLm==";
        for (name, value, is_kept) in [
            ("GITHUB_MCP_PAT", "x", false),
            ("BW_SESSION", "x", false),
            ("OP_SESSION_me", "x", false),
            ("SLACK_WEBHOOK_URL", "https://hooks.example/x", false),
            ("MINE", token.as_str(), false),
            ("MY_PATH", in_path.as_str(), true),
            ("NATS_CREDS", "/home/me/nats.creds", true),
            ("WEBHOOK_URL", "http://localhost:5678", true),
            ("STORAGE", storage, true),
            ("DB", "Server=h;User=sa;Password=hunter22hunter", true),
            ("DSN", "host=h password=word", true),
            ("DATABASE_URL", "postgres://me@localhost/app", true),
            ("FEATURE_SET", "sk-learn-experiments-of-this-year", true),
            ("GNOME_DESKTOP_SESSION_ID", "this-is-deprecated", true),
        ] {
            let all = Environment::scrubbed([(name.into(), value.into())], &[]);
            assert_eq!(all.get(name).is_some(), is_kept, "{name}={value}");
        }
    }

    #[test]
    fn variables_whose_names_only_sound_secret_are_kept() {
        for (name, value, is_kept) in [
            ("GOPRIVATE", "git.example.com/*", true),
            ("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring", true),
            ("TOKENIZERS_PARALLELISM", "false", true),
            ("GOPRIVATE", "https://u:word@git.example.com", false),
            ("MY_GOPRIVATE", "x", false),
        ] {
            let all = Environment::scrubbed([(name.into(), value.into())], &[]);
            assert_eq!(all.get(name).is_some(), is_kept, "{name}={value}");
        }
    }

    #[test]
    fn variables_that_change_the_meaning_of_commands_are_removed() {
        let gone = "CDPATH PWD OLDPWD POSIXLY_CORRECT GLOBIGNORE ENV BASH_ENV RIPGREP_CONFIG_PATH \
                    GREP_OPTIONS LESSOPEN LESSCLOSE TAR_OPTIONS GIT_DIR GIT_WORK_TREE \
                    GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 GIT_CONFIG_PARAMETERS \
                    GIT_CONFIG_GLOBAL GIT_EXTERNAL_DIFF GIT_SSH_COMMAND GIT_PROXY_COMMAND \
                    GIT_TRACE GIT_TRACE2_EVENT GIT_INDEX_FILE LD_PRELOAD LD_AUDIT BASH_FUNC_cd%% \
                    FORCE_COLOR CLICOLOR_FORCE CARGO_TERM_COLOR GH_FORCE_TTY \
                    ELECTRON_RUN_AS_NODE VSCODE_INSPECTOR_OPTIONS VIMRUNTIME \
                    c28fc6f98a2c44abbbd89d6a3037d0d9_POSIX_FD_STATE";
        let stays = "HOME LANG LD_LIBRARY_PATH GREP_COLORS GIT_AUTHOR_NAME \
                     GIT_CEILING_DIRECTORIES CARGO_HOME NODE_OPTIONS SHELL";
        let all = format!("{gone} {stays}");
        let variables = all.split(' ').map(|name| (name.into(), "x".into()));
        let environment = Environment::scrubbed(variables, &[]);
        let has =
            |name: &str| environment.iter().any(|variable| variable.0 == name && variable.1 == "x");
        let left: Vec<_> = gone.split(' ').filter(|name| has(name)).collect();
        assert!(left.is_empty(), "{left:?}");
        let missing: Vec<_> = stays.split(' ').filter(|name| !has(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// As PuTTY's users set the first two, and as PowerShell 7 sets the last one.
    #[test]
    fn on_windows_git_keeps_its_ssh_and_a_powershell_gets_no_modules_of_another() {
        let given = ["GIT_SSH", "GIT_SSH_VARIANT", "GIT_SSH_COMMAND", "PSModulePath"];
        let all = Environment::scrubbed(given.map(|name| (name.into(), "x".into())), &[]);
        let kept: Vec<_> = given.into_iter().filter(|name| all.get(name).is_some()).collect();
        let expected = if cfg!(windows) { "GIT_SSH GIT_SSH_VARIANT" } else { "PSModulePath" };
        assert_eq!(kept.join(" "), expected);
    }

    #[test]
    fn commands_get_no_variables_of_the_npm_that_has_started_the_agent() {
        let names = |variables: &[&str]| {
            let given = variables.iter().map(|name| (name.into(), "x".into()));
            let environment = Environment::scrubbed(given, &[]);
            let kept = variables.iter().filter(|name| environment.get(name).is_some());
            kept.copied().collect::<Vec<_>>().join(" ")
        };
        let own =
            ["npm_config_prefix", "npm_config_yes", "npm_config_registry", "NPM_CONFIG_PREFIX"];
        assert_eq!(names(&own), own.join(" "), "without npm they are the user's");
        let of_npm = ["npm_lifecycle_event", "npm_command", "INIT_CWD", "npm_config_local_prefix"];
        let all = [&own[..], &of_npm].concat();
        if cfg!(not(windows)) {
            assert_eq!(names(&all), "npm_config_registry NPM_CONFIG_PREFIX");
        }
    }
}
