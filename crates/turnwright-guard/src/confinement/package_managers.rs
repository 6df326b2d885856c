//! Lets package managers work in the sandbox: creates missing caches, disables retries when there is no network, and
//! predicts from a command line which Python virtual environments the command creates or changes. Records when the
//! private caches of a project were last used, and removes those that have not been used for a month.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::ConfinementBuilder;
use super::linked_files::modified;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_policy::shell;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::effect::{Effect, ShellCommand, moved_places};
use turnwright_types::plain_path::normalize_lexically;
use turnwright_types::private_file;
use turnwright_types::shell_script::{Script, ShellDialect, SimpleCommand};
use turnwright_workspace::exec::{DEFAULT_CACHES, Environment, default_caches, dialect};
use turnwright_workspace::remove_tree::remove_tree;

/// Variables that make programs give up at the first failed connection instead of trying again for minutes.
const NO_RETRIES: &[(&str, &str)] = &[
    ("BUN_CONFIG_HTTP_RETRY_COUNT", "0"),
    ("CARGO_NET_RETRY", "0"),
    (
        "MAVEN_ARGS",
        "-Daether.connector.http.retryHandler.count=0 -Dmaven.wagon.http.retryHandler.count=0",
    ),
    ("npm_config_fetch_retries", "0"),
    ("PIP_RETRIES", "0"),
    ("POETRY_REQUESTS_MAX_RETRIES", "0"),
    ("RUSTUP_MAX_RETRIES", "0"),
    ("UV_HTTP_RETRIES", "0"),
    ("YARN_HTTP_RETRY", "0"),
];

/// Variables that name a cache: of many programs, and of those that have theirs elsewhere, at least on macOS.
const CACHE_VARIABLES: &str = "CCACHE_DIR CLANG_MODULE_CACHE_PATH GOCACHE GOLANGCI_LINT_CACHE \
                               SWIFTPM_MODULECACHE_OVERRIDE XDG_CACHE_HOME npm_config_cache";

/// Variables that name what programs keep in the cache although it takes long to get again, and where that is.
const KEPT_IN_CACHE: [(&str, &str); 3] = [
    ("CYPRESS_CACHE_FOLDER", "Cypress"),
    ("HF_HUB_CACHE", "huggingface/hub"),
    ("PLAYWRIGHT_BROWSERS_PATH", "ms-playwright"),
];

impl ConfinementBuilder<'_> {
    /// Creates the caches that installed programs would create in a fresh home folder. Commands get a private layer
    /// over each cache, which has to exist for that. Done once in a session, and only for default caches: one that the
    /// user has listed may be missing on purpose.
    pub(super) fn create_missing_caches(&self) {
        if self.site.guard.has_made_caches.swap(true, Ordering::Relaxed) {
            return;
        }
        let confinement = &self.site.settings;
        let environment = &self.site.environment;
        let Some(home) = environment.get("HOME").map(Path::new).filter(|home| home.is_dir()) else {
            return;
        };
        for path in missing_caches(&confinement.caches, home, environment) {
            if let Err(error) = create_below(home, &path) {
                tracing::debug!(%error, cache = %path.display(), "a cache cannot be made");
            }
        }
    }

    /// Removes the private layers over folders with programs from a command that reaches other machines, unless it
    /// only runs package managers. An earlier command may have put its own `git` into such a layer.
    pub(super) fn remove_program_layers(&self, profile: &mut SandboxProfile) {
        let command = self.command;
        let is_certain = command.uncertainty.is_none() && command.script.ambiguity.is_none();
        if is_certain && command.script.commands.iter().all(is_package_manager) {
            return;
        }
        let environment = &self.site.environment;
        let Some(home) = environment.get("HOME").map(Path::new) else { return };
        let with_programs = DEFAULT_CACHES.iter().filter(|cache| cache.has_programs);
        let listed = with_programs.map(|cache| home.join(cache.folder));
        // A variable may have moved a cache to where the user's own programs are.
        let searched = std::env::split_paths(environment.get("PATH").unwrap_or_default());
        let folders: Vec<_> =
            listed.chain(searched).filter_map(|folder| self.real_paths.get(&folder)).collect();
        profile.caches.retain(|layer| {
            !folders.iter().any(|place| *place == layer.path || place.parent() == Some(&layer.path))
        });
    }
}

/// The variables that disable retries if there is no network, except those that the user has set. The sandbox of macOS
/// knows no `localhost` in the form in which Java connects to it, `::ffff:127.0.0.1`, unless Java has IPv4 alone.
pub(super) fn offline_variables(
    profile: &SandboxProfile,
    environment: &Environment,
) -> Vec<(&'static str, String)> {
    if profile.network.reaches_other_machines() {
        return Vec::new();
    }
    let unset = NO_RETRIES.iter().filter(|(name, _)| environment.get(name).is_none());
    let quiet = unset.map(|(name, value)| (*name, (*value).to_owned()));
    let has_host_loopback = cfg!(target_os = "macos") && profile.network == Network::Loopback;
    let before = environment.get("JAVA_TOOL_OPTIONS").unwrap_or_default().to_string_lossy();
    let ipv4 = ("JAVA_TOOL_OPTIONS", format!("{before} -Djava.net.preferIPv4Stack=true"));
    quiet.chain(has_host_loopback.then_some(ipv4)).collect()
}

/// The variables with which programs have their caches in `folder` and find browsers and models in the user's own
/// cache. Looks files up.
pub(super) fn redirected_caches(
    folder: &Path,
    environment: &Environment,
) -> Vec<(&'static str, String)> {
    let home = environment.get("HOME").map(|home| Path::new(home).join(".cache"));
    let cache = environment.get("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap_or_default();
    let kept = KEPT_IN_CACHE.into_iter().map(|(name, place)| (name, cache.join(place)));
    let unset = kept.filter(|(name, path)| {
        let is_set = environment.get(name).is_some()
            || *name == "HF_HUB_CACHE" && environment.get("HF_HOME").is_some();
        !is_set && path.is_dir()
    });
    let redirected = CACHE_VARIABLES.split(' ').map(|name| (name, folder.to_path_buf()));
    unset.chain(redirected).map(|(name, path)| (name, path.display().to_string())).collect()
}

fn is_package_manager(command: &SimpleCommand) -> bool {
    let name = Path::new(command.program()).file_name().unwrap_or_default();
    let program = name.to_str().unwrap_or_default();
    let words: Vec<_> = command.argv().skip(1).take(2).collect();
    match program {
        "cd" => true,
        "dart" => matches!(words[..], ["pub", "add" | "get" | "upgrade"]),
        "python" | "python3" => words == ["-m", "pip"],
        // The table of caches contains these for what they start.
        "adb" | "ansible" | "bundle" | "clojure" | "hatch" | "java" | "julia" | "jupyter"
        | "mix" | "nvidia-smi" | "sh" | "soffice" => false,
        _ => DEFAULT_CACHES.iter().any(|cache| cache.made_by.contains(&program)),
    }
}

/// Returns the default caches that are listed and do not exist, although a program that makes them does.
fn missing_caches(listed: &[PathBuf], home: &Path, environment: &Environment) -> Vec<PathBuf> {
    let moved = moved_places(|name| environment.get(name));
    let caches = default_caches(home, &moved);
    let missing = caches.filter(|(cache, path)| {
        listed.contains(path)
            && !path.exists()
            && cache.made_by.iter().any(|program| environment.has_program(program))
    });
    missing.map(|(_, path)| path).collect()
}

/// Creates a folder that only the user may read.
fn create_below(home: &Path, folder: &Path) -> io::Result<()> {
    // A link may lead to a folder that is not meant to be a cache. The home folder may be behind one.
    let mut below_home = folder.ancestors().take_while(|ancestor| *ancestor != home);
    if below_home.any(Path::is_symlink) {
        return Ok(());
    }
    private_file::create_folder(folder)
}

const DAY: u64 = 24 * 60 * 60;
/// Caches that no command has used for longer than this are removed.
const MAX_UNUSED_TIME: Duration = Duration::from_secs(30 * DAY);
/// The file whose modification time tells when the caches were last used.
const LAST_USE_FILE: &str = "used";

/// Records a use of the caches in `folder`, which is `projects/PROJECT/caches`, and removes the caches of other
/// projects that have not been used for too long. Stops early once `is_stopped` returns true. Blocks.
pub(crate) fn note_cache_use(folder: &Path, is_stopped: impl Fn() -> bool) {
    if let Err(error) = touch(folder) {
        tracing::warn!(%error, "the use of the caches of commands cannot be noted");
        return;
    }
    let projects = folder.parent().and_then(Path::parent);
    let entries =
        projects.and_then(|projects| fs::read_dir(projects).ok()).into_iter().flatten().flatten();
    for old in entries.map(|entry| entry.path().join("caches")).filter(|caches| is_old(caches)) {
        if let Err(error) = remove_caches(&old, &is_stopped) {
            tracing::warn!(%error, "old caches of commands cannot be removed");
        }
    }
}

fn touch(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    File::create(folder.join(LAST_USE_FILE))?.set_modified(SystemTime::now())
}

fn is_old(folder: &Path) -> bool {
    let last_use = modified(&folder.join(LAST_USE_FILE));
    last_use.is_some_and(|time| time.elapsed().is_ok_and(|age| age > MAX_UNUSED_TIME))
}

/// Removes a folder of caches with everything in it, including read-only folders, such as those of Go modules.
/// [`LAST_USE_FILE`] is removed last, so that the next run finds the rest if this one is interrupted. Returns early
/// once `is_stopped` returns true.
pub(crate) fn remove_caches(folder: &Path, is_stopped: &impl Fn() -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path(), is_stopped)?;
        } else if entry.file_name() != LAST_USE_FILE {
            fs::remove_file(entry.path())?;
        }
        if is_stopped() {
            return Ok(());
        }
    }
    fs::remove_dir_all(folder)
}

impl ConfinementBuilder<'_> {
    /// The virtual environments that the command may write: those that it creates, and those that it installs packages
    /// into.
    pub(super) fn changed_environments(&self) -> Vec<PathBuf> {
        let roots = self.site.settings.protected.roots();
        let defaults = roots.iter().map(|root| root.join(".venv"));
        match environment_use(self.command) {
            EnvironmentUse::None | EnvironmentUse::InstallsConda => Vec::new(),
            EnvironmentUse::CreatesMissing => defaults.filter(|path| !exists(path)).collect(),
            EnvironmentUse::Installs => defaults.chain(self.environments()).collect(),
            EnvironmentUse::CreatesNamed => {
                let named = self.named_paths();
                let all = defaults.chain(self.environments());
                all.filter(|path| !exists(path) || named.contains(path)).collect()
            }
        }
    }

    /// The paths that the arguments may name, and the folder that `uv venv` creates if it is given none.
    fn named_paths(&self) -> BTreeSet<PathBuf> {
        let mut named = BTreeSet::new();
        for command in &self.command.script.commands {
            let Some(folder) = &command.folder else { continue };
            let folder = self.command.workdir.join(folder);
            let words = command.argv().skip(1).chain([".venv"]);
            named.extend(words.map(|word| normalize_lexically(&folder.join(word))));
        }
        named
    }

    /// The existing Python virtual environments in the session's folders.
    pub(super) fn environments(&self) -> Vec<PathBuf> {
        // The tracker also lists files that programs obey, such as the one that marks a virtual environment.
        let found = self.site.tracker.repositories();
        let files = found.iter().filter(|path| ProtectedPaths::is_environment_file(path));
        files.filter_map(|file| file.parent()).map(Path::to_path_buf).collect()
    }
}

/// Returns true if a command may create or change Python virtual environments, judging by its command line.
pub fn makes_environments(effect: &Effect) -> bool {
    matches!(effect, Effect::Exec(command) if environment_use(command) != EnvironmentUse::None)
}

pub(super) fn environment_use(command: &ShellCommand) -> EnvironmentUse {
    use_of_line(&command.line, &command.script, dialect())
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// The effect of a line on virtual environments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EnvironmentUse {
    #[default]
    None,
    /// It creates the default environment if that is missing, and runs a program in it.
    CreatesMissing,
    /// It installs packages and their programs. If there is no environment, it creates one.
    Installs,
    /// It creates the environments that it names, with everything in them, and runs no code of packages.
    CreatesNamed,
    /// It installs conda packages, which may be programs of any kind, into conda environments.
    InstallsConda,
}

/// Installers of conda, with their subcommands that change an environment.
const CONDA: &[(&str, &str)] = &[
    ("conda", "create install update upgrade remove env"),
    ("mamba", "create install update upgrade remove env"),
    ("micromamba", "create install update upgrade remove env"),
    ("pixi", "install add remove update upgrade reinstall"),
];

/// Installers, with their subcommands that change an environment. Without any they all do.
const INSTALLERS: &[(&str, &str)] = &[
    ("pip", "install uninstall sync"),
    ("pip-sync", ""),
    ("uv", "sync add remove install uninstall"),
    ("poetry", "install add remove update sync"),
    ("pdm", "install add remove update sync venv use"),
    ("pipenv", "install uninstall sync update upgrade"),
    ("rye", "sync add remove"),
    ("hatch", "env"),
    ("maturin", "develop dev"),
    ("ensurepip", ""),
];

/// Programs that make environments and do nothing else, with their subcommands that do.
const MAKERS: &[(&str, &str)] = &[("uv", "venv"), ("venv", ""), ("virtualenv", "")];

/// Options with which nothing is installed.
const WITHOUT_EFFECT: &[&str] = &["--help", "-h", "--version", "--dry-run", "--check"];

/// Programs that make environments before they run something in them, with their subcommands that do.
const RUNNERS: &[(&str, &str)] = &[
    ("uv", "run"),
    ("poetry", "run env"),
    ("pdm", "run"),
    ("pipenv", "run"),
    ("rye", "run test"),
    ("hatch", "run test fmt shell"),
    ("pixi", "run shell"),
    ("tox", ""),
    ("nox", ""),
];

/// Folders whose programs no command can have written.
const SYSTEM_FOLDERS: &[&str] =
    &["/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "~/.local/bin", "~/.cargo/bin"];

/// Modules of Python that are programs only with `-m`.
const MODULES: &[&str] = &["venv", "ensurepip"];

/// Predicts the effect on virtual environments of a command line, which was parsed as `script`. Returns
/// [`EnvironmentUse::None`] if the line may run anything but programs that manage environments and commands that only
/// read, because any other program would get the right to change environments, too.
fn use_of_line(line: &str, script: &Script, dialect: ShellDialect) -> EnvironmentUse {
    let (rest, has_activation) = without_activations(line);
    let without = has_activation.then(|| shell::parse(&rest, dialect));
    let script = without.as_ref().unwrap_or(script);
    if script.ambiguity.is_some() {
        return EnvironmentUse::None;
    }
    let mut found = EnvironmentUse::None;
    let mut runs_packages = has_activation;
    for command in &script.commands {
        let environment_use = use_of_command(command);
        if environment_use == EnvironmentUse::None && !writes_nothing(command) {
            return EnvironmentUse::None;
        }
        runs_packages |= command.writes_file()
            || matches!(environment_use, EnvironmentUse::CreatesMissing | EnvironmentUse::Installs);
        found = found.max(environment_use);
    }
    if runs_packages { found.min(EnvironmentUse::Installs) } else { found }
}

/// A line without the parts between `&&` that do nothing but activate an environment, and whether there were any.
/// Programs of the environment may run in what follows. As such a part has no quotes, the rest means the same.
fn without_activations(line: &str) -> (String, bool) {
    let parts: Vec<_> = line.split("&&").collect();
    let rest: Vec<_> = parts.iter().copied().filter(|part| !is_activation(part)).collect();
    (rest.join("&&"), rest.len() < parts.len())
}

fn is_activation(part: &str) -> bool {
    let Some(("source" | ".", script)) = part.trim().split_once(' ') else { return false };
    let folder = script.trim().strip_suffix("/bin/activate");
    script.trim().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
        && folder.is_some_and(|folder| is_environment(name(folder)))
}

/// Returns true if a command beside an installer writes no file: it reads, deletes, goes to a folder, or lists
/// packages.
fn writes_nothing(command: &SimpleCommand) -> bool {
    let words: Vec<_> = command.argv().take(2).collect();
    let is_harmless = match words.as_slice() {
        ["cd" | "rm" | "rmdir" | "mkdir", ..] => true,
        [pip, subcommand] if without_version(name(pip)) == "pip" && is_installed(pip) => {
            ["list", "show", "freeze", "check", "--version"].contains(subcommand)
        }
        _ => shell::classify(command).is_read_only,
    };
    is_harmless && !command.writes_file()
}

fn use_of_command(command: &SimpleCommand) -> EnvironmentUse {
    let words: Vec<_> = command.argv().collect();
    let Some((program, words)) = words.split_first() else { return EnvironmentUse::None };
    if !is_installed(program) {
        return EnvironmentUse::None;
    }
    // The programs of an environment run code of its packages.
    let is_of_environment = program.contains(['/', '\\']) && !is_in_system_folder(program);
    let most =
        if is_of_environment { EnvironmentUse::Installs } else { EnvironmentUse::InstallsConda };
    let program = name(program);
    if without_version(program) == "python" || program == "py" {
        // Other options may stand before it.
        let module = words
            .iter()
            .position(|word| word.starts_with("-m"))
            .filter(|at| !words[..*at].iter().any(|word| is_program_text(word)));
        let script = words.iter().position(|word| !word.starts_with('-')).unwrap_or(words.len());
        let Some(at) = module.filter(|module| *module <= script) else {
            return EnvironmentUse::None;
        };
        return match (words[at].trim_start_matches("-m"), words.get(at + 1)) {
            ("", Some(module)) => use_of_program(module, &words[at + 2..]),
            (module, _) => use_of_program(module, &words[at + 1..]),
        }
        .min(most);
    }
    if MODULES.contains(&program) {
        return EnvironmentUse::None;
    }
    use_of_program(without_version(program), words).min(most)
}

/// Returns true if an option of Python makes it run a text, or its input: what follows is for that program.
fn is_program_text(option: &str) -> bool {
    option == "-" || !option.starts_with("--") && option.starts_with('-') && option.contains('c')
}

/// Returns true if a program is found in `PATH`, or in a folder of the system or of an environment, and not in another
/// folder of a project, where it may have any content.
fn is_installed(program: &str) -> bool {
    let Some((folder, _)) = program.rsplit_once(['/', '\\']) else { return true };
    if is_in_system_folder(program) {
        return true;
    }
    let mut parts = folder.rsplit(['/', '\\']);
    let is_programs =
        parts.next().is_some_and(|part| part == "bin" || part.eq_ignore_ascii_case("scripts"));
    is_programs && parts.next().is_some_and(is_environment)
}

fn is_in_system_folder(program: &str) -> bool {
    program.rsplit_once('/').is_some_and(|(folder, _)| SYSTEM_FOLDERS.contains(&folder))
}

/// Returns true if a folder has one of the usual names of environments, whose programs are protected.
fn is_environment(folder: &str) -> bool {
    [".venv", "venv", "env", "virtualenv"].iter().any(|name| folder.eq_ignore_ascii_case(name))
}

fn use_of_program(program: &str, words: &[&str]) -> EnvironmentUse {
    // As in `uv pip install`.
    let subcommands: Vec<_> = words.iter().filter(|word| !word.starts_with('-')).take(2).collect();
    let is_among = |table: &[(&str, &str)], depth: usize| {
        table.iter().any(|(known, known_subcommands)| {
            *known == program
                && (known_subcommands.is_empty()
                    || subcommands
                        .iter()
                        .take(depth)
                        .any(|word| known_subcommands.split(' ').any(|known| known == **word)))
        })
    };
    if is_among(RUNNERS, 2) {
        // The program that it runs may be named like a subcommand that installs.
        EnvironmentUse::CreatesMissing
    } else if words.iter().any(|word| WITHOUT_EFFECT.contains(word)) {
        EnvironmentUse::None
    } else if is_among(CONDA, 1) {
        EnvironmentUse::InstallsConda
    } else if is_among(MAKERS, 1) {
        EnvironmentUse::CreatesNamed
    } else if is_among(INSTALLERS, 2) {
        EnvironmentUse::Installs
    } else {
        EnvironmentUse::None
    }
}

/// The name of a program without the version in `python3.12` and `pip3`.
fn without_version(program: &str) -> &str {
    program.trim_end_matches(|char: char| char.is_ascii_digit() || char == '.')
}

/// The name of a program or folder without the folder above.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;
    #[cfg(unix)]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_default_caches_of_installed_programs_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let programs = folder.path().join("bin");
        fs::create_dir_all(home.join(".npm")).unwrap();
        fs::create_dir(&programs).unwrap();
        for program in ["cargo", "npm"] {
            let file = programs.join(program);
            fs::write(&file, "").unwrap();
            #[cfg(unix)]
            fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let named = folder.path().join("cargo");
        let environment = Environment::default().with("PATH", &programs).with("CARGO_HOME", &named);
        let names = [".npm", ".cargo/registry", "go/pkg/mod", "own"];
        let listed = [&names.map(|name| home.join(name))[..], &[named.join("git")]].concat();
        let missing = missing_caches(&listed, &home, &environment);
        assert_eq!(missing, [named.join("git"), home.join(".cargo/registry")]);
        create_below(&home, &home.join(".cargo/registry")).unwrap();
        assert!(home.join(".cargo/registry").is_dir());
    }

    #[test]
    fn programs_that_run_any_code_are_no_package_managers() {
        for (line, expected) in [
            ("cabal install hlint", true),
            ("dotnet tool install x", true),
            ("python3 -m pip install x", true),
            ("python3 x.py", false),
            ("java -jar x.jar", false),
            ("clojure -M x.clj", false),
            ("jupyter nbconvert --execute x.ipynb", false),
            ("julia x.jl", false),
            ("mix run x.exs", false),
            ("dart x.dart", false),
            ("dart pub get", true),
            ("dart pub run x", false),
            ("bundle exec rake", false),
            ("hatch run x", false),
            ("git push", false),
        ] {
            let script = shell::parse(line, ShellDialect::Bash);
            assert_eq!(is_package_manager(&script.commands[0]), expected, "{line}");
        }
    }

    #[test]
    fn programs_in_folders_that_are_in_the_path_of_users_are_known() {
        for folder in
            [".cabal", ".julia", ".local/bin", ".local/state/cabal", ".platformio", ".swiftpm"]
        {
            let cache = DEFAULT_CACHES.iter().find(|cache| cache.folder == folder).unwrap();
            assert!(cache.has_programs, "{folder}");
        }
    }

    #[test]
    fn only_without_a_network_nothing_is_tried_again() {
        let environment = Environment::default().with("PIP_RETRIES", "7");
        let names = |network| -> Vec<_> {
            let profile = SandboxProfile { network, ..SandboxProfile::default() };
            offline_variables(&profile, &environment).into_iter().map(|(name, _)| name).collect()
        };
        assert!(names(Network::Off).contains(&"npm_config_fetch_retries"));
        assert!(!names(Network::Loopback).contains(&"PIP_RETRIES"), "the user has set it");
        assert!(names(Network::On).is_empty());
    }

    #[test]
    fn java_reaches_the_loopback_of_macos() {
        let environment = Environment::default().with("JAVA_TOOL_OPTIONS", "-Xmx1g");
        let is_macos = cfg!(target_os = "macos");
        for (network, is_set) in [(Network::Loopback, is_macos), (Network::Off, false)] {
            let profile = SandboxProfile { network, ..SandboxProfile::default() };
            let all = offline_variables(&profile, &environment);
            let java = all.iter().find(|(name, _)| *name == "JAVA_TOOL_OPTIONS");
            let options = is_set.then_some("-Xmx1g -Djava.net.preferIPv4Stack=true");
            assert_eq!(java.map(|(_, value)| value.as_str()), options);
        }
    }

    /// They are in a folder for temporary files that no variable names.
    #[test]
    fn modules_of_clang_and_swift_are_kept_where_commands_may_write() {
        let variables = redirected_caches(Path::new("/redirected"), &Environment::default());
        for name in ["CLANG_MODULE_CACHE_PATH", "SWIFTPM_MODULECACHE_OVERRIDE"] {
            assert!(variables.contains(&(name, "/redirected".to_owned())), "{name}");
        }
    }

    #[test]
    fn browsers_in_the_users_cache_are_found_where_caches_are_elsewhere() {
        let home = tempfile::tempdir().unwrap();
        let cache = home.path().join(".cache");
        for name in ["Cypress", "ms-playwright"] {
            fs::create_dir_all(cache.join(name)).unwrap();
        }
        let environment =
            Environment::default().with("HOME", home.path()).with("CYPRESS_CACHE_FOLDER", "/x");
        let variables = redirected_caches(Path::new("/redirected"), &environment);
        for (name, expected) in [
            ("GOCACHE", Some("/redirected")),
            ("XDG_CACHE_HOME", Some("/redirected")),
            ("PLAYWRIGHT_BROWSERS_PATH", cache.join("ms-playwright").to_str()),
            ("CYPRESS_CACHE_FOLDER", None),
            ("HF_HUB_CACHE", None),
        ] {
            let found = variables.iter().find(|(known, _)| *known == name);
            assert_eq!(found.map(|(_, value)| value.as_str()), expected, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_caches_that_were_not_used_for_long_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let folder = |name: &str| state.path().join("projects").join(name).join("caches");
        let outside = state.path().join("outside");
        fs::create_dir(&outside).unwrap();
        for (name, days) in [("old", 31), ("young", 29)] {
            let deep = folder(name).join("go/module/src");
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("file"), "x").unwrap();
            symlink(&outside, folder(name).join("link")).unwrap();
            fs::set_permissions(&deep, fs::Permissions::from_mode(0o555)).unwrap();
            fs::create_dir(folder(name).join("work")).unwrap();
            fs::set_permissions(folder(name).join("work"), fs::Permissions::from_mode(0o000))
                .unwrap();
            let used = SystemTime::now() - Duration::from_secs(days * DAY);
            File::create(folder(name).join(LAST_USE_FILE)).unwrap().set_modified(used).unwrap();
        }
        note_cache_use(&folder("own"), || true);
        assert!(folder("old").join(LAST_USE_FILE).exists());
        assert!(folder("own").join(LAST_USE_FILE).exists());
        note_cache_use(&folder("own"), || false);
        assert!(!folder("old").exists() && folder("young").exists() && outside.exists());
    }
    #[test]
    fn commands_that_make_or_change_environments_are_known() {
        use EnvironmentUse::{CreatesMissing, CreatesNamed, Installs, InstallsConda, None};
        for (line, expected) in [
            ("python3 -m venv .venv", CreatesNamed),
            ("python3.12 -I -m venv --clear env", CreatesNamed),
            ("/usr/bin/python3 -mvenv .venv", CreatesNamed),
            ("pip install -r requirements.txt", Installs),
            ("pip3.12 uninstall -y x", Installs),
            (".venv/bin/pip install -e .", Installs),
            (".venv/bin/python -m pip install ruff", Installs),
            ("nice -n 9 pip install x", Installs),
            ("PATH=. pip install x", None),
            ("uv sync --all-extras", Installs),
            ("uv pip install -r requirements.txt", Installs),
            ("uv venv", CreatesNamed),
            ("uv add httpx", Installs),
            ("poetry install", Installs),
            ("pdm sync", Installs),
            ("virtualenv -p python3 env", CreatesNamed),
            ("maturin develop", Installs),
            ("uv run pytest", CreatesMissing),
            ("uv run pip install x", CreatesMissing),
            ("tox -e py312", CreatesMissing),
            ("hatch run test", CreatesMissing),
            ("pip --version", None),
            ("pip list", None),
            ("uv lock", None),
            ("./pip install x", None),
            ("tools/uv sync", None),
            ("bin/pip install x", None),
            ("/ws/usr/bin/pip install x", None),
            ("pip list a install", None),
            ("python3 '-cimport x' -m pip install", None),
            ("python3 - -m pip install", None),
            ("python3 -Ic x -m pip install", None),
            ("python3 setup.py -m venv", None),
            ("python3 -m pytest -k venv", None),
            ("python3 x.py", None),
            ("venv .venv", None),
            ("make install", None),
            ("echo pip install", None),
            ("uv add venv", Installs),
            (".venv/bin/python -m venv .venv", Installs),
            ("python3 -m venv .venv && .venv/bin/pip install -r requirements.txt", Installs),
            ("cd api && python3 -m venv .venv", CreatesNamed),
            ("rm -rf .venv && python3 -m venv .venv", CreatesNamed),
            ("cd api && source .venv/bin/activate && pip install x", Installs),
            ("source .venv/bin/activate && $x && pip install y", None),
            ("source .venv/bin/activate && pip install -r requirements.txt", Installs),
            (". env/bin/activate && python -m venv env", Installs),
            ("pip install x && pip list | tail -2", Installs),
            ("pip install x 2>&1 | tail -5", Installs),
            ("pip install x > log.txt", Installs),
            ("uv venv > .venv/bin/git", Installs),
            ("uv sync && uv run pytest", Installs),
            ("pip install x && tox", Installs),
            ("pip install --help; cp x.sh .venv/bin/activate", None),
            ("pip install x && cp x.sh .venv/bin/git", None),
            ("uv sync; sh setup.sh", None),
            ("make env && pip install x", None),
            ("source ./activate && pip install x", None),
            ("pip install x && cat a > .venv/bin/git", None),
            ("pip install --help", None),
            ("pip --version install x", None),
            ("python3 -m venv --help", None),
            ("uv sync --dry-run", None),
            ("uv run --help", CreatesMissing),
            ("$x; pip install y", None),
            ("conda install -y -p .conda ruff", InstallsConda),
            ("pixi add numpy", InstallsConda),
            ("pixi run test", CreatesMissing),
            ("conda run -p .conda sh x.sh", None),
            ("pixi add numpy && pip install x", Installs),
            (".venv/bin/pixi add numpy", Installs),
            ("conda list", None),
        ] {
            let script = shell::parse(line, ShellDialect::Bash);
            assert_eq!(use_of_line(line, &script, ShellDialect::Bash), expected, "{line}");
        }
    }
}
