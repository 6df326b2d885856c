//! Tells which programs of a Python virtual environment are as an installer would make them, no matter who made them.
//!
//! The user's shell runs the scripts that activate an environment, so such a script is accepted only if it follows a
//! template that no command can have written. The templates come from the programs that make environments: the
//! standard library's `venv`, an installed `virtualenv`, `uv`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memchr::memmem::find;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_workspace::fixed_places::FixedPlaces;
use turnwright_workspace::{nofollow, real_path};

/// The most packages, versions of Python, bytes of file lists, and programs that are read of an environment.
const MAX_PACKAGES: usize = 4_096;
const MAX_VERSIONS: usize = 16;
const MAX_LIST_BYTES: usize = 64 << 20;
const MAX_PROGRAMS: usize = 10_000;
/// The most bytes of a script that activates an environment, of a `pyvenv.cfg`, and of an interpreter.
const MAX_SCRIPT_BYTES: usize = 64 << 10;
const MAX_SETTINGS_BYTES: usize = 4 << 10;
const MAX_INTERPRETER_BYTES: u64 = 256 << 20;
/// A chain of more links than this is taken to lead nowhere.
const MAX_LINKS: usize = 40;

/// The prefixes of the names of interpreters. Python 3.14 adds the last one, which begins with the letter pi.
const PYTHONS: [&str; 3] = ["python", "pypy", "\u{1d70b}thon"];
/// The keys that a `pyvenv.cfg` may have. The values of the first ones must be folders or programs that no command
/// can write.
const KNOWN_PLACES: &[&str] =
    &["home", "executable", "base-prefix", "base-exec-prefix", "base-executable"];
const KNOWN_SETTINGS: &str = "command implementation include-system-site-packages prompt seed uv version \
                              version_info virtualenv";

/// Returns true if a link in an environment leads to an interpreter, directly or through other links beside it.
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

    /// Returns the paths in an environment whose content belongs there: links to an interpreter that no command can
    /// have written, copies of that interpreter, scripts that activate the environment, its `pyvenv.cfg`, and the
    /// programs that its packages list. While packages are being installed, their lists are not complete, so all
    /// other programs are accepted instead. Blocks, so do not call it on a thread of the runtime.
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
            Ok(found) if found.is_file() => self.is_activation_script(program, environment, home),
            _ => false,
        }
    }

    fn is_activation_script(&self, script: &Path, environment: &Path, home: Option<&Path>) -> bool {
        let Some(text) = read_whole(script, MAX_SCRIPT_BYTES) else { return false };
        let accepts = |templates: &Templates| templates.accept(&text, environment, &self.places);
        // There may be no home yet: `uv` writes the scripts before `pyvenv.cfg`.
        let prefix = home.and_then(Path::parent).map(Path::to_path_buf);
        accepts(&Templates::below(prefix, &self.places))
            || accepts(
                self.templates.get_or_init(|| Templates::of_programs(&self.folders, &self.places)),
            )
    }

    /// Returns the folder of the interpreter, if a `pyvenv.cfg` has only the usual settings, and no command can have
    /// written the places that it names.
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
            } else if KNOWN_SETTINGS.split(' ').all(|known| known != key) {
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
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Reads at most `limit` bytes from the start of a file.
fn read_start(path: &Path, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn open(path: &Path) -> Option<File> {
    nofollow::open_file(&real_path(path).ok()?).ok()
}

/// Reads a whole file; `None` if it is longer than `limit` bytes.
fn read_whole(path: &Path, limit: usize) -> Option<Vec<u8>> {
    read_start(path, limit + 1).filter(|bytes| bytes.len() <= limit)
}

/// Returns true if one file is a copy of the other. A file that is too large to be compared is none.
fn is_copy(path: &Path, original: &Path) -> bool {
    let (Some(file), Some(original)) = (open(path), open(original)) else { return false };
    let mut one = file.take(MAX_INTERPRETER_BYTES);
    let mut other = original.take(MAX_INTERPRETER_BYTES);
    let mut piece = Vec::new();
    let mut other_piece = Vec::new();
    loop {
        piece.clear();
        other_piece.clear();
        let read = (&mut one).take(1 << 20).read_to_end(&mut piece);
        let other_read = (&mut other).take(1 << 20).read_to_end(&mut other_piece);
        if read.is_err() || other_read.is_err() || piece != other_piece {
            return false;
        }
        if piece.is_empty() {
            return one.limit() > 0;
        }
    }
}

/// Returns true if this is the path of a `pyvenv.cfg`, and the programs of its environment are left without it.
pub(super) fn leaves_programs(file: &Path) -> bool {
    let programs = file.parent().into_iter().flat_map(ProtectedPaths::environment_programs);
    ProtectedPaths::is_environment_file(file) && programs.into_iter().any(|folder| folder.is_dir())
}

/// The programs of an environment that its packages list among their files, but never the environment's own
/// programs (`activate`, `python`), whatever a package lists.
fn installed_programs(environment: &Path) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let mut bytes_left = MAX_LIST_BYTES;
    for package in packages(environment).into_iter().take(MAX_PACKAGES) {
        let lists = ["RECORD", "installed-files.txt"].map(|name| package.join(name));
        let mut texts = lists.iter().filter_map(|path| read_start(path, bytes_left));
        let list = texts.find_map(|text| String::from_utf8(text).ok()).unwrap_or_default();
        bytes_left -= list.len();
        let named = list.lines().filter_map(program_of_package);
        let left = MAX_PROGRAMS - programs.len();
        programs.extend(named.take(left).map(|path| environment.join(path)));
    }
    programs
}

/// The folders in which packages of an environment describe themselves.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let versions = entries(&environment.join("lib"));
    let folders = versions.take(MAX_VERSIONS).chain([environment.join("Lib")]);
    let site_packages = folders.map(|folder| folder.join("site-packages"));
    let candidates = site_packages.flat_map(|folder| entries(&folder));
    let descriptions = candidates
        .filter(|path| path.extension().is_some_and(|end| end == "dist-info" || end == "egg-info"));
    descriptions.collect()
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

/// The most bytes of a template, and the most templates that are kept.
const MAX_TEMPLATE_BYTES: usize = 32 << 10;
const MAX_TEMPLATES: usize = 256;
/// Each template in the program `uv` begins with a line that contains this.
const UV_TEMPLATE_MARK: &[u8] = b"Copyright (c) 2020-202x The virtualenv developers";
/// The most bytes of a program that are searched for templates.
const MAX_PROGRAM_BYTES: u64 = 256 << 20;
/// Programs that bring `virtualenv` along.
const MAKERS: &[&str] =
    &["virtualenv", "poetry", "pdm", "pipenv", "hatch", "rye", "tox", "nox", "pipx"];

/// The templates of the installed programs that make environments.
#[derive(Debug)]
struct Templates(Vec<Vec<u8>>);

impl Templates {
    /// The templates that the programs in these folders bring along.
    fn of_programs(folders: &[PathBuf], places: &FixedPlaces) -> Templates {
        let mut prefixes = BTreeSet::new();
        for folder in folders.iter().filter(|folder| places.leads_to(folder).is_some()) {
            prefixes.extend(folder.parent().map(Path::to_path_buf));
            prefixes.extend(MAKERS.iter().filter_map(|maker| prefix_of(&folder.join(maker))));
            // The shims of pyenv start the programs of the versions that it has installed.
            if let Some(pyenv) = folder.parent().filter(|_| folder.ends_with("shims")) {
                prefixes.extend(entries(&pyenv.join("versions")));
            }
        }
        Templates::below(prefixes, places)
    }

    /// The templates of the Python installations, and of the copies of `uv`, in folders such as `/usr`.
    fn below(prefixes: impl IntoIterator<Item = PathBuf>, places: &FixedPlaces) -> Templates {
        let mut templates = Templates(Vec::new());
        for prefix in prefixes {
            templates.add_below(&prefix, places);
        }
        templates
    }

    fn add_below(&mut self, prefix: &Path, places: &FixedPlaces) {
        let libraries: Vec<_> = entries(&prefix.join("lib"))
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
            })
            .chain([prefix.join("Lib")])
            .collect();
        for library in libraries {
            let packages = ["site-packages", "dist-packages"].map(|name| library.join(name));
            let activation = packages.map(|folder| folder.join("virtualenv/activation"));
            for folder in activation.iter().chain([&library.join("venv/scripts")]) {
                for file in entries(folder).flat_map(|kind| entries(&kind)) {
                    self.add_file(&file, places);
                }
            }
        }
        for uv in ["uv", "uv.exe"].map(|name| prefix.join("bin").join(name)) {
            let program = places.leads_to(&uv).and_then(|real| nofollow::open_file(&real).ok());
            if let Some(Err(error)) = program.map(|file| self.add_embedded(file)) {
                tracing::debug!(%error, "the program cannot be searched for templates");
            }
        }
    }

    fn add_file(&mut self, file: &Path, places: &FixedPlaces) {
        let real = places.leads_to(file).filter(|_| self.0.len() < MAX_TEMPLATES);
        let template = real.and_then(|real| read_start(&real, MAX_TEMPLATE_BYTES));
        self.0.extend(template.filter(|text| !text.is_empty()));
    }

    /// Adds the templates that are a part of a program, read piece by piece.
    fn add_embedded(&mut self, program: File) -> std::io::Result<()> {
        let mut program = program.take(MAX_PROGRAM_BYTES);
        let mut window = Vec::new();
        loop {
            let read = (&mut program).take(1 << 20).read_to_end(&mut window)?;
            let is_end = read == 0;
            let mut from = 0;
            while let Some(at) = find(&window[from..], UV_TEMPLATE_MARK).map(|at| from + at) {
                if !is_end && window.len() - at < MAX_TEMPLATE_BYTES
                    || self.0.len() >= MAX_TEMPLATES
                {
                    break;
                }
                let before = &window[..at];
                let comment =
                    ["@REM ", "# "].into_iter().find(|mark| before.ends_with(mark.as_bytes()));
                let start = at - comment.map_or(0, str::len);
                from = at + UV_TEMPLATE_MARK.len();
                let rest = &window[from..window.len().min(at + MAX_TEMPLATE_BYTES)];
                let end = find(rest, UV_TEMPLATE_MARK).unwrap_or(rest.len());
                self.0.push(window[start..from + end].to_vec());
            }
            if is_end {
                return Ok(());
            }
            // A template that begins at the end of this piece is looked at with the next one. The 8 bytes are for the
            // mark of a comment before it.
            let kept =
                window.len().saturating_sub(MAX_TEMPLATE_BYTES + 8).max(from.saturating_sub(8));
            window.drain(..kept);
        }
    }

    /// Returns true if a script is one of the templates filled in for this environment, or its first lines, as
    /// long as it is being written.
    fn accept(&self, script: &[u8], environment: &Path, places: &FixedPlaces) -> bool {
        script.is_empty()
            || script.ends_with(b"\n")
                && self.0.iter().any(|template| produces(template, script, environment, places))
    }
}

/// The prefix, such as `/usr`, under which the interpreter is installed that the first line of a program names.
fn prefix_of(program: &Path) -> Option<PathBuf> {
    let start = read_start(program, 256)?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let interpreter = Path::new(str::from_utf8(line).ok()?.split_whitespace().next()?);
    Some(interpreter.parent()?.parent()?.to_path_buf())
}

/// Returns true if this script is the whole or the beginning of a template with harmless values for its variables.
fn produces(template: &[u8], script: &[u8], environment: &Path, places: &FixedPlaces) -> bool {
    let mut script = without_byte_order_mark(script);
    let mut template = without_byte_order_mark(template);
    let mut line_start = template;
    loop {
        let variable = next_variable(template);
        let text = variable.as_ref().map_or(template, |variable| &template[..variable.start]);
        if script.len() <= text.len() {
            return text.starts_with(script);
        }
        let (Some(variable), Some(rest)) = (variable, script.strip_prefix(text)) else {
            return false;
        };
        if let Some(end) = text.iter().rposition(|byte| *byte == b'\n') {
            line_start = &template[end + 1..];
        }
        let before = &line_start[..line_start.len() - (template.len() - variable.start)];
        let name = &template[variable.start..variable.end];
        template = &template[variable.end..];
        // The value ends where the following text of the template begins.
        let following = next_variable(template).map_or(template, |next| &template[..next.start]);
        let rest_of_line = first_line(rest);
        let end = if following.is_empty() && !template.is_empty() {
            // Another variable follows at once, as after `bin` in `bin:`.
            rest_of_line.iter().position(|byte| !byte.is_ascii_alphanumeric())
        } else {
            find(rest_of_line, first_line(following))
        };
        let Some(end) = end else { return false };
        let Ok(value) = str::from_utf8(&rest[..end]) else { return false };
        if !is_harmless_value(name, value, is_quoted(before), environment, places) {
            return false;
        }
        script = &rest[end..];
    }
}

fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The place of the next variable of a template: `__VENV_DIR__`, `{{ VIRTUAL_ENV_DIR }}`.
fn next_variable(template: &[u8]) -> Option<std::ops::Range<usize>> {
    let forms = [("__", "__"), ("{{ ", " }}")];
    let found =
        forms.into_iter().filter_map(|(open, close)| variable_between(template, open, close));
    found.min_by_key(|range| range.start)
}

fn variable_between(template: &[u8], open: &str, close: &str) -> Option<std::ops::Range<usize>> {
    let mut from = 0;
    while let Some(at) = find(&template[from..], open.as_bytes()).map(|at| from + at) {
        let name = &template[at + open.len()..];
        let is_part = |byte: &&u8| byte.is_ascii_uppercase() || **byte == b'_';
        let length = name.iter().take_while(is_part).count();
        // The closing mark `__` consists of characters that a name may have, too.
        let whole = &name[..length];
        let bare = if open == "__" { whole.strip_suffix(b"__") } else { Some(whole) };
        if let Some(bare) = bare.filter(|bare| !bare.is_empty())
            && (open == "__" || name[length..].starts_with(close.as_bytes()))
        {
            return Some(at..at + open.len() + bare.len() + close.len());
        }
        from = at + 1;
    }
    None
}

/// Returns true if the text after this part of a line is in quotes.
fn is_quoted(line: &[u8]) -> bool {
    let mut quote = None;
    for byte in line {
        match (quote, byte) {
            (None, b'\'' | b'"') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    quote.is_some()
}

/// Returns true if the value of a variable leads nowhere but to the environment, and is plain text to every shell.
fn is_harmless_value(
    name: &[u8],
    value: &str,
    is_quoted: bool,
    environment: &Path,
    places: &FixedPlaces,
) -> bool {
    let quotes = [
        ("r#'", "'#"),
        ("b'", "'"),
        ("'", "'"),
        ("\"", "\""),
        // Xonsh.
        ("b\"", "\".decode(\"utf-8\")"),
        ("__import__(\"os\").fsdecode(b\"", "\")"),
    ];
    let bare = quotes.iter().filter(|_| !is_quoted).find_map(|(open, close)| {
        value.strip_prefix(open).and_then(|rest| rest.strip_suffix(close))
    });
    let is_text = is_quoted || bare.is_some();
    let value = bare.unwrap_or(value);
    let is_plain = value.chars().all(|letter| {
        letter.is_alphanumeric() || "._-/+@:,".contains(letter) || is_text && " ()".contains(letter)
    });
    let has = |part: &[u8]| find(name, part).is_some();
    is_plain
        && if has(b"BIN_NAME") {
            matches!(value, "bin" | "Scripts")
        } else if has(b"RELOCATABLE") {
            value == "false"
        } else if has(b"PATH_SEP") {
            matches!(value, ":" | ";")
        } else if has(b"PROMPT") || has(b"NAME") || has(b"DECODE_PATH") {
            !value.contains('/')
        } else if has(b"LIB_FOLDERS") || has(b"SITE_PACKAGES") {
            value
                .strip_prefix("../lib")
                .is_some_and(|rest| !rest.contains("..") && !rest.contains(':'))
        } else if has(b"_LIBRARY") {
            value.is_empty() || places.leads_to(Path::new(value)).is_some()
        } else {
            Path::new(value) == environment
        }
}

/// The first line of a text, with its line break.
fn first_line(text: &[u8]) -> &[u8] {
    text.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default()
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

    #[test]
    fn a_script_says_what_its_template_says_and_nothing_else() {
        let places = FixedPlaces::new(vec!["/ws".into()]);
        let template = b"# x\nVIRTUAL_ENV=\"__VENV_DIR__\"\nPATH=\"$VIRTUAL_ENV/__VENV_BIN_NAME__:$PATH\"\nPS1=\"__VENV_PROMPT__${PS1}\"\nB=__BIN_NAME__\n";
        let script = |environment: &str, programs: &str, prompt: &str| {
            format!(
                "# x\nVIRTUAL_ENV=\"{environment}\"\nPATH=\"$VIRTUAL_ENV/{programs}:$PATH\"\nPS1=\"{prompt}${{PS1}}\"\nB='bin'\n"
            )
        };
        let good = script("/ws/.venv", "bin", "(.venv) ");
        for (script, expected) in [
            (good.clone(), true),
            ("# x\n".to_owned(), true),
            (String::new(), true),
            (format!("{good}evil\n"), false),
            (good.replace("# x", "evil"), false),
            (good.replace("B='bin'", "B=bin;evil"), false),
            (good.replace("B='bin'", "B='bin';evil"), false),
            (good.replace("B='bin'", "B=bin evil"), false),
            (script("/ws/other", "bin", "x"), false),
            (script("/ws/.venv\"; evil \"", "bin", "x"), false),
            (script("/ws/.venv", "../evil", "x"), false),
            (script("/ws/.venv", "bin", "$(evil)"), false),
            (script("/ws/.venv", "bin", "`evil`"), false),
            (script("/ws/.venv", "bin", "x\"; evil; \""), false),
            (script("/ws/.venv", "bin", "x\nevil\n"), false),
        ] {
            let found = produces(template, script.as_bytes(), Path::new("/ws/.venv"), &places);
            assert_eq!(found, expected, "{script}");
        }
    }

    #[test]
    fn the_variables_of_templates_are_known() {
        for (text, expected) in [
            ("a __VENV_DIR__ b", Some("__VENV_DIR__")),
            ("from __future__ import __BIN_NAME__", Some("__BIN_NAME__")),
            ("{{ X }}", Some("{{ X }}")),
            ("${{ x }} __init__", None),
        ] {
            let found = next_variable(text.as_bytes()).map(|range| &text[range]);
            assert_eq!(found, expected, "{text}");
        }
    }
}
