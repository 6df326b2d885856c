//! Tells which programs of a virtual environment of Python are as an installer makes them, whoever made them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::activation::Templates;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_workspace::fixed_places::FixedPlaces;
use turnwright_workspace::{nofollow, real_path};

/// Of an environment with more packages or versions of Python, or longer lists of files, not all is read.
const MAX_PACKAGES: usize = 4_096;
const MAX_VERSIONS: usize = 16;
const MAX_LIST_BYTES: u64 = 64 << 20;
const MAX_PROGRAMS: usize = 10_000;
/// The longest script that activates an environment, the longest file of an environment, and the largest interpreter.
const MAX_SCRIPT_BYTES: usize = 64 << 10;
const MAX_SETTINGS_BYTES: usize = 4 << 10;
const MAX_INTERPRETER_BYTES: u64 = 256 << 20;
/// More links than this lead nowhere.
const MAX_LINKS: usize = 40;

/// The beginnings of the names of interpreters. Python 3.14 makes the last one.
const PYTHONS: [&str; 3] = ["python", "pypy", "\u{1d70b}thon"];
/// The keys that the file of an environment may have. The first ones name folders or programs that commands cannot
/// write.
const KNOWN_PLACES: &[&str] =
    &["home", "executable", "base-prefix", "base-exec-prefix", "base-executable"];
const KNOWN_SETTINGS: &[&str] = &[
    "command",
    "implementation",
    "include-system-site-packages",
    "prompt",
    "seed",
    "uv",
    "version",
    "version_info",
    "virtualenv",
];

/// Returns true if a link in an environment leads to an interpreter, directly or by other links beside it.
pub(super) fn is_link_to_python(link: &Path, places: &FixedPlaces) -> bool {
    let mut link = link.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&link) else { return false };
        if !is_python(&target) {
            return false;
        }
        if target.parent() != Some(Path::new("")) {
            let real = places.leads_to(&target);
            return real.is_some_and(|real| is_python(&real) && real.is_file());
        }
        link.set_file_name(target);
    }
    false
}

/// Judges whether the files of an environment are as installers and programs that make environments write them.
#[derive(Debug, Default)]
pub(super) struct EnvironmentJudge {
    pub(super) places: FixedPlaces,
    /// The folders with the user's programs.
    folders: Vec<PathBuf>,
    templates: OnceLock<Templates>,
}

impl EnvironmentJudge {
    pub(super) fn new(places: FixedPlaces, folders: Vec<PathBuf>) -> EnvironmentJudge {
        EnvironmentJudge { places, folders, templates: OnceLock::new() }
    }

    /// The paths of an environment with the content that belongs there: links to an interpreter that no command can
    /// have written, or copies of it, scripts that activate it, its own file, and the programs that its packages name,
    /// or all other programs, as long as the lists of the packages are not complete.
    /// Blocks: not for the runtime's thread.
    pub(super) fn accepted(&self, environment: &Path, is_installing: bool) -> Vec<PathBuf> {
        let mut accepted = if is_installing { Vec::new() } else { installed_programs(environment) };
        let file = environment.join("pyvenv.cfg");
        let home = self.home(&file);
        accepted.extend(home.is_some().then_some(file));
        for folder in ProtectedPaths::environment_programs(environment) {
            for program in entries(&folder).take(MAX_PROGRAMS) {
                let name = program.file_name().unwrap_or_default();
                let is_accepted = if is_of_environment(&name.to_string_lossy()) {
                    self.is_own_program(&program, environment, home.as_deref())
                } else {
                    is_installing
                };
                accepted.extend(is_accepted.then_some(program));
            }
        }
        accepted
    }

    fn is_own_program(&self, program: &Path, environment: &Path, home: Option<&Path>) -> bool {
        let name = program.file_name().unwrap_or_default();
        match fs::symlink_metadata(program) {
            Ok(found) if found.is_symlink() => is_link_to_python(program, &self.places),
            Ok(found) if found.is_file() && is_interpreter(&name.to_string_lossy()) => {
                home.is_some_and(|home| is_copy(program, &home.join(name)))
            }
            Ok(found) if found.is_file() => self.activates(program, environment, home),
            _ => false,
        }
    }

    fn activates(&self, script: &Path, environment: &Path, home: Option<&Path>) -> bool {
        let Some(text) = read_whole(script, MAX_SCRIPT_BYTES) else { return false };
        let accepts = |templates: &Templates| templates.accept(&text, environment, &self.places);
        // `uv` writes the scripts before the file of the environment.
        let of_interpreter = home.map(|home| Templates::of_interpreter(home, &self.places));
        of_interpreter.as_ref().is_some_and(accepts)
            || accepts(
                self.templates.get_or_init(|| Templates::of_programs(&self.folders, &self.places)),
            )
    }

    /// The folder of the interpreter, if the file of an environment has only the usual settings, and no command can
    /// have written the places that it names.
    fn home(&self, file: &Path) -> Option<PathBuf> {
        let text = read_whole(file, MAX_SETTINGS_BYTES)?;
        let mut home = None;
        for line in str::from_utf8(&text).ok()?.lines().filter(|line| !line.trim().is_empty()) {
            let (key, value) = line.split_once('=')?;
            let key = key.trim().to_lowercase();
            let value = value.trim();
            if KNOWN_PLACES.contains(&key.as_str()) {
                self.places.leads_to(Path::new(value))?;
                if key == "home" {
                    home = Some(PathBuf::from(value));
                }
            } else if !KNOWN_SETTINGS.contains(&key.as_str()) {
                return None;
            }
        }
        home
    }
}

/// Returns true if a path has the name of an interpreter.
pub(super) fn is_python(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    PYTHONS.iter().any(|known| name.starts_with(known.as_bytes()))
}

/// The paths in a folder.
pub(super) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// The first bytes of a file.
pub(super) fn read_start(path: &Path, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn open(path: &Path) -> Option<fs::File> {
    nofollow::open_file(&real_path(path).ok()?).ok()
}

/// All bytes of a file that is not longer than this.
fn read_whole(path: &Path, limit: usize) -> Option<Vec<u8>> {
    read_start(path, limit + 1).filter(|bytes| bytes.len() <= limit)
}

/// Returns true if one file is a copy of the other.
fn is_copy(path: &Path, original: &Path) -> bool {
    let (Some(file), Some(original)) = (open(path), open(original)) else { return false };
    let mut one = file.take(MAX_INTERPRETER_BYTES);
    let mut other = original.take(MAX_INTERPRETER_BYTES);
    let mut piece = Vec::new();
    let mut same = Vec::new();
    loop {
        piece.clear();
        same.clear();
        let read = (&mut one).take(1 << 20).read_to_end(&mut piece);
        let other_read = (&mut other).take(1 << 20).read_to_end(&mut same);
        if read.is_err() || other_read.is_err() || piece != same {
            return false;
        }
        if piece.is_empty() {
            return one.limit() > 0;
        }
    }
}

/// Returns true if this is the file of an environment whose programs are still there.
pub(super) fn is_without_file(file: &Path) -> bool {
    let programs = file.parent().into_iter().flat_map(ProtectedPaths::environment_programs);
    ProtectedPaths::is_environment_file(file) && programs.into_iter().any(|folder| folder.is_dir())
}

/// The programs of an environment that its packages name as their files. The environment's own programs
/// (`activate`, `python`) are none of them, whatever a package says.
fn installed_programs(environment: &Path) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let mut bytes_left = MAX_LIST_BYTES;
    for package in packages(environment).into_iter().take(MAX_PACKAGES) {
        let lists = ["RECORD", "installed-files.txt"].map(|name| package.join(name));
        let list = lists.iter().find_map(|path| read_list(path, bytes_left)).unwrap_or_default();
        bytes_left -= list.len() as u64;
        let named = list.lines().filter_map(program_of_package);
        let room = MAX_PROGRAMS - programs.len();
        programs.extend(named.take(room).map(|path| environment.join(path)));
    }
    programs
}

/// The folders in which packages of an environment describe themselves.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let versions = entries(&environment.join("lib"));
    let folders = versions.take(MAX_VERSIONS).chain([environment.join("Lib")]);
    let packages = folders.map(|folder| folder.join("site-packages"));
    let described = packages.flat_map(|folder| entries(&folder));
    let descriptions = described
        .filter(|path| path.extension().is_some_and(|end| end == "dist-info" || end == "egg-info"));
    descriptions.collect()
}

fn read_list(path: &Path, limit: u64) -> Option<String> {
    let mut text = String::new();
    open(path)?.take(limit).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The program that a line of a package's list of files names, relative to the environment: `../../../bin/ruff,…`.
fn program_of_package(line: &str) -> Option<&str> {
    let listed = line.split(',').next()?.trim();
    let path = listed.trim_start_matches("../").trim_start_matches("..\\");
    let (folder, program) = path.split_once(['/', '\\'])?;
    let is_folder = program.trim_end_matches(['.', ' ']).is_empty();
    let is_program =
        ["bin", "Scripts"].contains(&folder) && !is_folder && !program.contains(['/', '\\']);
    (is_program && !is_of_environment(program)).then_some(path)
}

/// Returns true if shells and editors take a program for the environment's own: its interpreter, or a script that
/// activates it.
fn is_of_environment(program: &str) -> bool {
    let program = program.trim_end_matches(['.', ' ']).to_lowercase();
    let stem = program.split('.').next().unwrap_or_default();
    ["activate", "activate_this", "deactivate"].contains(&stem)
        || program == "pydoc.bat"
        || is_interpreter(&program)
}

/// Returns true for `python`, `python3.12`, `pypy3` and `pythonw.exe`; not for `python-argcomplete`.
fn is_interpreter(program: &str) -> bool {
    let lowercase = program.to_lowercase();
    let stem = lowercase.strip_suffix(".exe").unwrap_or(&lowercase);
    let version = PYTHONS.iter().find_map(|name| stem.strip_prefix(name));
    version.is_some_and(|version| {
        version.bytes().all(|byte| byte.is_ascii_digit() || b".w".contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_names_its_programs_and_none_of_the_environment() {
        for (line, expected) in [
            ("../../../bin/ruff,sha256=abc,12", Some("bin/ruff")),
            ("../../../../bin/black", Some("bin/black")),
            ("..\\..\\Scripts\\ruff.exe,,", Some("Scripts\\ruff.exe")),
            ("../../../bin/python-argcomplete,,", Some("bin/python-argcomplete")),
            ("../../../bin/activate,,", None),
            ("../../../bin/activate.fish,,", None),
            ("../../../bin/python3.12,,", None),
            ("../../../bin/Python3,,", None),
            ("../../../bin/Activate.ps1,,", None),
            ("../../../bin/ACTIVATE,,", None),
            (
                "../../../bin/activate-global-python-argcomplete,,",
                Some("bin/activate-global-python-argcomplete"),
            ),
            ("../../../bin/../activate,,", None),
            ("../../../bin/.,,", None),
            ("../../../bin/..,,", None),
            ("../../../bin/,,", None),
            ("../../../bin,,", None),
            ("../../../pyvenv.cfg,,", None),
            ("../../../share/man/x,,", None),
            ("ruff/__init__.py,sha256=abc,1", None),
            ("/bin/ls,,", None),
            ("", None),
        ] {
            assert_eq!(program_of_package(line), expected, "{line}");
        }
    }
}
