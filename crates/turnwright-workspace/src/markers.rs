//! The commands with which a project is built and checked, as its files name them: manifests, makefiles and the
//! like. Only the names of files and of well-known scripts and targets count, so a command never has words of the
//! project in it but the name of a folder.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::files::read_head;
use Purpose::{Build, Check, Lint, Test};

/// The most commands of a project.
const MAX_COMMANDS: usize = 8;
/// The most subfolders that are looked at if there is nothing in the project's own folder.
const MAX_SUBFOLDERS: usize = 20;
/// The most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 1000;
/// The most bytes of a file that are read.
const MAX_BYTES: usize = 64 * 1024;

/// The purpose of a command that a file of the project names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Build,
    Check,
    Lint,
    Test,
}

/// A command that a file of the project names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCommand {
    pub purpose: Purpose,
    /// The command line.
    pub command: String,
    /// The file that names it, relative to the project's folder.
    pub marker: String,
}

/// The commands that a file stands for whatever is in it. A name that begins with a dot is the end of a name.
const COMMANDS: &[(&str, &[(Purpose, &str)])] = &[
    (
        "Cargo.toml",
        &[
            (Build, "cargo build"),
            (Check, "cargo check --message-format short"),
            (Lint, "cargo clippy"),
            (Test, "cargo test"),
        ],
    ),
    (
        "go.mod",
        &[(Build, "go build ./..."), (Check, "go vet ./..."), (Test, "go test ./...")],
    ),
    (
        "CMakeLists.txt",
        &[(Build, "cmake -B build && cmake --build build"), (Test, "ctest --test-dir build")],
    ),
    ("pom.xml", &[(Build, "mvn compile"), (Test, "mvn test")]),
    ("build.gradle", &[(Build, "gradle assemble"), (Test, "gradle test")]),
    ("build.gradle.kts", &[(Build, "gradle assemble"), (Test, "gradle test")]),
    (".csproj", &[(Build, "dotnet build"), (Test, "dotnet test")]),
    ("mix.exs", &[(Build, "mix compile"), (Test, "mix test")]),
    ("Gemfile", &[(Test, "bundle exec rake test")]),
];

/// Programs that a project may bring along in its own folder.
const WRAPPERS: [(&str, &str); 2] = [("gradle", "gradlew"), ("mvn", "mvnw")];

/// The scripts and targets that are known by their names.
const SCRIPTS: [(&str, Purpose); 5] =
    [("build", Build), ("typecheck", Check), ("check", Check), ("lint", Lint), ("test", Test)];

const MAKEFILES: [&str; 3] = ["Makefile", "makefile", "GNUmakefile"];
const PYTHON_FILES: [&str; 4] = ["pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"];
/// Folders whose content is made or comes from elsewhere.
const FOREIGN_FOLDERS: [&str; 3] = ["node_modules", "target", "vendor"];
const TYPESCRIPT: &str = "tsconfig.json";

/// Lock files and the package managers that write them. Of a group, the first one that is there counts.
const LOCK_FILES: [&[(&str, &str)]; 7] = [
    &[("Cargo.lock", "cargo")],
    &[
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
        ("package-lock.json", "npm"),
    ],
    &[("uv.lock", "uv"), ("poetry.lock", "poetry"), ("Pipfile.lock", "pipenv")],
    &[("go.sum", "go")],
    &[("Gemfile.lock", "bundler")],
    &[("composer.lock", "composer")],
    &[("mix.lock", "mix")],
];

/// The package managers of a project, each with its lock file. Blocks.
pub fn package_managers(root: &Path) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for group in LOCK_FILES {
        let first = group.iter().find(|(file, _)| root.join(file).is_file());
        found.extend(first.map(|(file, manager)| (*manager, *file)));
    }
    found
}

/// Finds the commands of the project in a folder. `has_program` returns true if there is a program of that name. If
/// nothing is in the folder itself, its subfolders are looked at. Blocks.
pub fn find_commands(root: &Path, has_program: &dyn Fn(&str) -> bool) -> Vec<FoundCommand> {
    let mut found = commands_of(root, has_program);
    if found.is_empty() {
        for folder in subfolders(root) {
            found.extend(commands_of(&root.join(&folder), has_program).into_iter().map(|inner| {
                let command = format!("cd {folder} && {}", inner.command);
                FoundCommand { command, marker: format!("{folder}/{}", inner.marker), ..inner }
            }));
        }
    }
    found.truncate(MAX_COMMANDS);
    found
}

/// The subfolders whose names a shell and a person understand as they are, sorted.
fn subfolders(root: &Path) -> Vec<String> {
    let folders = fs::read_dir(root).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut names: Vec<_> = folders
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_plain_name(name) && !FOREIGN_FOLDERS.contains(&name.as_str()))
        .collect();
    names.sort();
    names.truncate(MAX_SUBFOLDERS);
    names
}

fn is_plain_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && name.chars().all(|next| next.is_ascii_alphanumeric() || "._-".contains(next))
}

/// Returns true if a line of a makefile begins the rule of a target.
fn is_rule(line: &str, target: &str) -> bool {
    let rest = line.strip_prefix(target).and_then(|rest| rest.trim_start().strip_prefix(':'));
    rest.is_some_and(|rest| !rest.starts_with('='))
}

/// The commands of one folder.
fn commands_of(folder: &Path, has_program: &dyn Fn(&str) -> bool) -> Vec<FoundCommand> {
    let project = Project { folder, has_program };
    let mut found = Vec::new();
    for (name, commands) in COMMANDS {
        if let Some(marker) = project.file_named(name) {
            found.extend(commands.iter().filter_map(|(purpose, command)| {
                project.runnable(*purpose, command, &marker)
            }));
        }
    }
    found.extend(project.of_package_json());
    found.extend(project.of_python());
    found.extend(project.of_composer());
    found.extend(project.of_makefile());
    found
}

/// A folder with the files of a project.
struct Project<'a> {
    folder: &'a Path,
    has_program: &'a dyn Fn(&str) -> bool,
}

impl Project<'_> {
    fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    fn read(&self, name: &str) -> Option<String> {
        Some(read_head(&self.folder.join(name), None, MAX_BYTES)?.text)
    }

    /// The file of this name, or with this end of a name.
    fn file_named(&self, name: &str) -> Option<String> {
        if !name.starts_with('.') {
            return self.folder.join(name).is_file().then(|| name.to_owned());
        }
        let entries = fs::read_dir(self.folder).ok()?.flatten().take(MAX_ENTRIES);
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|file| file.ends_with(name) && is_plain_name(file))
    }

    /// The command, if its program is there. One that the project brings along comes first.
    fn runnable(&self, purpose: Purpose, command: &str, marker: &str) -> Option<FoundCommand> {
        let marker = marker.to_owned();
        let program = command.split(' ').next()?;
        for (_, wrapper) in WRAPPERS.iter().filter(|(name, _)| *name == program) {
            if self.has(wrapper) {
                let own = if cfg!(windows) { "" } else { "./" };
                let command = command.replacen(program, &format!("{own}{wrapper}"), 1);
                return Some(FoundCommand { purpose, command, marker });
            }
        }
        let command = command.to_owned();
        (self.has_program)(program).then_some(FoundCommand { purpose, command, marker })
    }

    fn of_package_json(&self) -> Vec<FoundCommand> {
        let marker = "package.json";
        let managers = package_managers(self.folder);
        let named = managers.iter().find(|(name, _)| ["pnpm", "yarn", "bun", "npm"].contains(name));
        let manager = named.map_or("npm", |(name, _)| *name);
        let mut found = self.of_scripts(marker, manager);
        let has_check = found.iter().any(|command| command.purpose == Check);
        if !has_check && self.has(TYPESCRIPT) && self.has("node_modules/.bin/tsc") {
            found.extend(self.runnable(Check, "npx --no-install tsc --noEmit", TYPESCRIPT));
        }
        found
    }

    fn of_composer(&self) -> Vec<FoundCommand> {
        self.of_scripts("composer.json", "composer")
    }

    /// The well-known scripts of a manifest.
    fn of_scripts(&self, marker: &str, manager: &str) -> Vec<FoundCommand> {
        let manifest: Option<Value> =
            self.read(marker).and_then(|text| serde_json::from_str(&text).ok());
        let Some(manifest) = manifest else { return Vec::new() };
        let known = SCRIPTS.iter().filter(|(name, _)| {
            let script = &manifest["scripts"][*name];
            // `npm init` writes a test that only fails.
            script.as_str().is_some_and(|line| !line.contains("no test specified"))
        });
        let commands = known.filter_map(|(name, purpose)| {
            self.runnable(*purpose, &format!("{manager} run {name}"), marker)
        });
        commands.collect()
    }

    fn of_python(&self) -> Vec<FoundCommand> {
        let Some(marker) = PYTHON_FILES.iter().find(|name| self.has(name)) else {
            return Vec::new();
        };
        let of_tool = |purpose, tool: &str, command: &str| {
            let program = self.python_tool(tool)?;
            let marker = (*marker).to_owned();
            Some(FoundCommand { purpose, command: format!("{program}{command}"), marker })
        };
        let has_tests = self.has("tests")
            || self.has("pytest.ini")
            || PYTHON_FILES
                .iter()
                .any(|name| self.read(name).is_some_and(|text| text.contains("pytest")));
        let test = of_tool(Test, "pytest", "").or_else(|| {
            let is_managed = self.has("uv.lock") && (self.has_program)("uv");
            let command = "uv run pytest".to_owned();
            let marker = (*marker).to_owned();
            is_managed.then_some(FoundCommand { purpose: Test, command, marker })
        });
        let checks = [of_tool(Check, "pyright", ""), of_tool(Lint, "ruff", " check")];
        checks.into_iter().chain([test.filter(|_| has_tests)]).flatten().collect()
    }

    /// A program of the project's own virtual environment, or else of the user.
    fn python_tool(&self, name: &str) -> Option<String> {
        let own = if cfg!(windows) {
            format!(".venv\\Scripts\\{name}.exe")
        } else {
            format!(".venv/bin/{name}")
        };
        if self.has(&own) {
            return Some(own);
        }
        (self.has_program)(name).then(|| name.to_owned())
    }

    fn of_makefile(&self) -> Vec<FoundCommand> {
        let Some(marker) = MAKEFILES.iter().find(|name| self.has(name)) else { return Vec::new() };
        let text = self.read(marker).unwrap_or_default();
        let known =
            SCRIPTS.iter().filter(|(name, _)| text.lines().any(|line| is_rule(line, name)));
        let commands = known
            .filter_map(|(name, purpose)| self.runnable(*purpose, &format!("make {name}"), marker));
        commands.collect()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    /// The commands of a project with these files, as `command (marker)`.
    fn found(files: &[(&str, &str)], programs: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let commands = find_commands(folder.path(), &|name| programs.contains(&name));
        commands.iter().map(|found| format!("{} ({})", found.command, found.marker)).collect()
    }

    #[test]
    fn a_manifest_names_its_commands_if_the_program_is_there() {
        let cargo = found(&[("Cargo.toml", "")], &["cargo"]);
        assert_eq!(
            cargo,
            [
                "cargo build (Cargo.toml)",
                "cargo check --message-format short (Cargo.toml)",
                "cargo clippy (Cargo.toml)",
                "cargo test (Cargo.toml)",
            ]
        );
        assert_eq!(found(&[("Cargo.toml", "")], &["go"]), Vec::<String>::new());
        let vet = found(&[("go.mod", "")], &["go"]);
        assert_eq!(vet[1], "go vet ./... (go.mod)");
        let gradle = found(&[("build.gradle.kts", ""), ("gradlew", "")], &[]);
        assert!(gradle[1].ends_with("gradlew test (build.gradle.kts)"), "{gradle:?}");
        let dotnet = found(&[("App.csproj", "")], &["dotnet"]);
        assert_eq!(dotnet[0], "dotnet build (App.csproj)");
    }

    #[test]
    fn only_well_known_scripts_count_and_the_lock_file_names_the_manager() {
        let manifest = r#"{"scripts":{"lint":"eslint .","test":"vitest","x; rm -rf ~":"no"}}"#;
        let files = [("package.json", manifest), ("pnpm-lock.yaml", "")];
        let expected = ["pnpm run lint (package.json)", "pnpm run test (package.json)"];
        assert_eq!(found(&files, &["pnpm", "npm"]), expected);
        let unset = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
        let files =
            [("package.json", unset), ("tsconfig.json", "{}"), ("node_modules/.bin/tsc", "")];
        let expected = ["npx --no-install tsc --noEmit (tsconfig.json)"];
        assert_eq!(found(&files, &["npm", "npx"]), expected);
        assert!(found(&[("package.json", "[not json")], &["npm"]).is_empty());
    }

    #[test]
    fn python_tools_come_from_the_virtual_environment_or_the_user() {
        let own = if cfg!(windows) { ".venv\\Scripts\\ruff.exe" } else { ".venv/bin/ruff" };
        let files = [("pyproject.toml", "[tool.pytest.ini_options]"), (own, "")];
        let expected =
            [format!("{own} check (pyproject.toml)"), "pytest (pyproject.toml)".to_owned()];
        assert_eq!(found(&files, &["pytest", "ruff"]), expected);
        let files = [("pyproject.toml", ""), ("uv.lock", ""), ("tests/test_a.py", "")];
        assert_eq!(found(&files, &["uv"]), ["uv run pytest (pyproject.toml)"]);
        assert!(found(&[("requirements.txt", "flask")], &["pytest"]).is_empty());
    }

    #[test]
    fn targets_of_a_makefile_are_no_variables() {
        let text = "lint := yes\ntest: all\n\tcargo test\ncheck :\nbuild.o: x\n";
        let expected = ["make check (Makefile)", "make test (Makefile)"];
        assert_eq!(found(&[("Makefile", text)], &["make"]), expected);
    }

    #[test]
    fn subfolders_count_if_there_is_nothing_above_and_their_names_are_plain() {
        let files = [("b/go.mod", ""), ("a b/go.mod", ""), ("-x/go.mod", ""), (".h/go.mod", "")];
        let commands = found(&files, &["go"]);
        assert_eq!(commands[0], "cd b && go build ./... (b/go.mod)");
        assert_eq!(commands.len(), 3);
        let many: Vec<_> = (0..9).map(|number| (format!("m{number}/go.mod"), "")).collect();
        let many: Vec<_> = many.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        assert_eq!(found(&many, &["go"]).len(), MAX_COMMANDS);
    }

    #[test]
    fn the_first_lock_file_of_a_language_counts() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["Cargo.lock", "yarn.lock", "package-lock.json"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let expected = [("cargo", "Cargo.lock"), ("yarn", "yarn.lock")];
        assert_eq!(package_managers(folder.path()), expected);
    }
}
