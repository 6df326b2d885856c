//! Predicts from a command line which Python virtual environments it creates or changes.

use super::args::name;
use super::{SimpleCommand, classify, parse};
use turnwright_types::shell_script::{Script, ShellDialect};

/// The effect of a line on virtual environments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EnvironmentUse {
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
pub fn environment_use(line: &str, script: &Script, dialect: ShellDialect) -> EnvironmentUse {
    let (rest, has_activation) = without_activations(line);
    let without = has_activation.then(|| parse(&rest, dialect));
    let script = without.as_ref().unwrap_or(script);
    if script.ambiguity.is_some() {
        return EnvironmentUse::None;
    }
    let mut found = EnvironmentUse::None;
    let mut runs_packages = has_activation;
    for command in &script.commands {
        let environment_use = of_command(command);
        if environment_use == EnvironmentUse::None && !writes_nothing(command) {
            return EnvironmentUse::None;
        }
        runs_packages |= writes_file(command)
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
        _ => classify(command).is_read_only,
    };
    is_harmless && !writes_file(command)
}

fn writes_file(command: &SimpleCommand) -> bool {
    command.redirects.iter().any(|redirect| redirect.is_write)
}

fn of_command(command: &SimpleCommand) -> EnvironmentUse {
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
            ("", Some(module)) => of_program(module, &words[at + 2..]),
            (module, _) => of_program(module, &words[at + 1..]),
        }
        .min(most);
    }
    if MODULES.contains(&program) {
        return EnvironmentUse::None;
    }
    of_program(without_version(program), words).min(most)
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

fn of_program(program: &str, words: &[&str]) -> EnvironmentUse {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            let script = parse(line, ShellDialect::Bash);
            assert_eq!(environment_use(line, &script, ShellDialect::Bash), expected, "{line}");
        }
    }
}
