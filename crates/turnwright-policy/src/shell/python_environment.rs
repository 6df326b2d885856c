//! Which commands make or change virtual environments of Python, as far as their words tell.

use super::SimpleCommand;
use super::args::name;

/// What a command does to virtual environments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EnvironmentUse {
    #[default]
    None,
    /// It makes one where there is none, and runs something in it.
    Creates,
    /// It installs packages, whose programs it writes, or makes the whole environment anew.
    Installs,
}

/// Installers, with their subcommands that change an environment. Without any they all do.
const INSTALLERS: &[(&str, &str)] = &[
    ("pip", "install uninstall sync"),
    ("pip-sync", ""),
    ("uv", "sync add remove venv install uninstall"),
    ("poetry", "install add remove update sync"),
    ("pdm", "install add remove update sync venv use"),
    ("pipenv", "install uninstall sync update upgrade"),
    ("rye", "sync add remove"),
    ("hatch", "env"),
    ("maturin", "develop dev"),
    ("ensurepip", ""),
    ("venv", ""),
    ("virtualenv", ""),
];

/// Programs that make environments before they run something in them, with their subcommands that do.
const RUNNERS: &[(&str, &str)] = &[
    ("uv", "run"),
    ("poetry", "run env"),
    ("pdm", "run"),
    ("pipenv", "run"),
    ("rye", "run test"),
    ("hatch", "run test fmt shell"),
    ("tox", ""),
    ("nox", ""),
];

/// Folders whose programs no command can have written.
const SYSTEM_FOLDERS: &[&str] =
    &["/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "~/.local/bin", "~/.cargo/bin"];

/// Modules of Python that are programs only with `-m`.
const MODULES: &[&str] = &["venv", "ensurepip"];

/// What a command does to virtual environments, judging by its words.
pub fn environment_use(command: &SimpleCommand) -> EnvironmentUse {
    let words: Vec<_> = command.argv().collect();
    let Some((program, words)) = words.split_first() else { return EnvironmentUse::None };
    if !is_installed(program) {
        return EnvironmentUse::None;
    }
    let program = name(program);
    if without_version(program) == "python" || program == "py" {
        // Other options may stand before it.
        let module = words.iter().position(|it| it.starts_with("-m"));
        let module = module.filter(|at| !words[..*at].iter().any(|it| is_program_text(it)));
        let script = words.iter().position(|it| !it.starts_with('-')).unwrap_or(words.len());
        let Some(at) = module.filter(|it| *it <= script) else { return EnvironmentUse::None };
        return match (words[at].trim_start_matches("-m"), words.get(at + 1)) {
            ("", Some(module)) => of_program(module, &words[at + 2..]),
            (module, _) => of_program(module, &words[at + 1..]),
        };
    }
    if MODULES.contains(&program) {
        return EnvironmentUse::None;
    }
    of_program(without_version(program), words)
}

/// Whether an option of Python makes it run a text, or what it reads: what follows is for that program.
fn is_program_text(option: &str) -> bool {
    option == "-" || !option.starts_with("--") && option.starts_with('-') && option.contains('c')
}

/// Whether a program is found in `PATH`, or in a folder of the system or of an environment, and not in another one
/// of a project, where it may have any content.
fn is_installed(program: &str) -> bool {
    let Some((folder, _)) = program.rsplit_once(['/', '\\']) else { return true };
    let mut parts = folder.rsplit(['/', '\\']);
    let is_programs =
        parts.next().is_some_and(|it| it == "bin" || it.eq_ignore_ascii_case("scripts"));
    SYSTEM_FOLDERS.contains(&folder) || is_programs && parts.next().is_some_and(is_environment)
}

/// Whether a folder has one of the usual names of environments, whose programs are protected.
fn is_environment(folder: &str) -> bool {
    [".venv", "venv", "env", "virtualenv"].iter().any(|it| folder.eq_ignore_ascii_case(it))
}

fn of_program(program: &str, words: &[&str]) -> EnvironmentUse {
    let has_any = |subcommands: &str| {
        let is_one = |word: &&str| subcommands.split(' ').any(|it| it == *word);
        // As in `uv pip install`.
        let mut first = words.iter().filter(|it| !it.starts_with('-')).take(2);
        subcommands.is_empty() || first.any(is_one)
    };
    let is_among = |table: &[(&str, &str)]| table.iter().any(|it| it.0 == program && has_any(it.1));
    if is_among(RUNNERS) {
        // What it runs may be named like a subcommand that installs.
        EnvironmentUse::Creates
    } else if is_among(INSTALLERS) {
        EnvironmentUse::Installs
    } else {
        EnvironmentUse::None
    }
}

/// The name of a program without the version in `python3.12` and `pip3`.
fn without_version(program: &str) -> &str {
    program.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::parse;
    use turnwright_types::dialect::ShellDialect;

    #[test]
    fn commands_that_make_or_change_environments_are_known() {
        use EnvironmentUse::{Creates, Installs, None};
        for (line, expected) in [
            ("python3 -m venv .venv", Installs),
            ("python3.12 -I -m venv --clear env", Installs),
            ("/usr/bin/python3 -mvenv .venv", Installs),
            ("pip install -r requirements.txt", Installs),
            ("pip3.12 uninstall -y x", Installs),
            (".venv/bin/pip install -e .", Installs),
            (".venv/bin/python -m pip install ruff", Installs),
            ("nice -n 9 pip install x", Installs),
            ("PIP_NO_INPUT=1 pip install x", Installs),
            ("uv sync --all-extras", Installs),
            ("uv pip install -r requirements.txt", Installs),
            ("uv venv", Installs),
            ("uv add httpx", Installs),
            ("poetry install", Installs),
            ("pdm sync", Installs),
            ("virtualenv -p python3 env", Installs),
            ("maturin develop", Installs),
            ("uv run pytest", Creates),
            ("uv run pip install x", Creates),
            ("tox -e py312", Creates),
            ("hatch run test", Creates),
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
        ] {
            let script = parse(line, ShellDialect::Bash);
            assert_eq!(environment_use(&script.commands[0]), expected, "{line}");
        }
    }
}
