//! The commands with which a project is built and checked, as its files name them: manifests, makefiles and the
//! like. Only the names of files and of well-known scripts and targets count, so a command never has words of the
//! project in it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::files::read_head;
use crate::git_repository::is_repository_root;
use Purpose::{Build, Check, Lint, Test};

/// The most commands of a project.
const MAX_COMMANDS: usize = 8;
/// The most entries of a folder that are looked at for a file whose name ends in some way.
const MAX_ENTRIES: usize = 1000;
/// The most bytes of a file that are read.
const MAX_BYTES: usize = 64 * 1024;

/// The most names that are looked for because of one script or target. Most words are none.
const MAX_OTHERS: usize = 50;
/// The most scripts or targets that are looked at for one of them.
const MAX_NEEDED: usize = 16;

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
    /// The file that names it.
    pub marker: String,
}

/// The commands that the first of some files stands for, whatever is in it. A name that begins with a dot is the end of
/// a name.
const COMMANDS: &[(&str, Purpose, &str)] = &[
    ("Cargo.toml", Build, "cargo build"),
    ("Cargo.toml", Check, "cargo check --message-format short"),
    ("Cargo.toml", Lint, "cargo clippy"),
    ("Cargo.toml", Test, "cargo test"),
    ("go.mod", Build, "go build ./..."),
    ("go.mod", Check, "go vet ./..."),
    ("go.mod", Test, "go test ./..."),
    ("CMakeLists.txt", Build, "cmake -B build && cmake --build build"),
    ("CMakeLists.txt", Test, "ctest --test-dir build"),
    ("pom.xml", Build, "mvn compile"),
    ("pom.xml", Test, "mvn test"),
    ("build.gradle build.gradle.kts", Build, "gradle assemble"),
    ("build.gradle build.gradle.kts", Test, "gradle test"),
    (".sln .slnx .csproj .fsproj .vbproj", Build, "dotnet build"),
    (".sln .slnx .csproj .fsproj .vbproj", Test, "dotnet test"),
    ("mix.exs", Build, "mix compile"),
    ("mix.exs", Test, "mix test"),
    ("Rakefile", Test, "bundle exec rake test"),
];

/// Programs that a project may bring along in its own folder.
const WRAPPERS: [(&str, &str); 2] = [("gradle", "gradlew"), ("mvn", "mvnw")];

/// The scripts and targets that are known by their names.
const SCRIPTS: [(&str, Purpose); 5] =
    [("build", Build), ("typecheck", Check), ("check", Check), ("lint", Lint), ("test", Test)];

/// Options with which a linter changes files, or a runner of tests waits for changes and never ends.
const UNFIT_OPTIONS: &str = "--apply --apply-unsafe --auto-correct --autocorrect --fix --watch \
                             --updateSnapshot --watchAll --write";
/// The ends of the names of scripts that use such an option.
const UNFIT_ENDS: [&str; 2] = [":fix", ":watch"];
/// Programs that do the same with one of the words in the second column (with any words, if it is empty), unless one of
/// those in the third column keeps them from it. `--profile` is there because isort has a profile named `black`.
/// `pre-commit` and the like also put away what is not staged while they run.
const UNFIT_PROGRAMS: [(&str, &str, &str); 14] = [
    ("autopep8 clang-format yapf", "--in-place -i", "--dry-run -n"),
    ("black pint rustfmt scalafmt swiftformat", "", "--check --diff --lint --profile --test"),
    ("buf codespell gofmt gofumpt goimports ktlint prettier shfmt tsc", "-F -w", ""),
    ("cargo cypress turbo", "open watch", ""),
    ("cargo deno dprint go nix taplo terraform zig", "fmt", "--check -check -check=true"),
    ("dart dotnet", "format", "--output=none --verify-no-changes none"),
    ("isort stylua", "", "--check --check-only --diff -c"),
    ("jest rubocop standardrb vitest", "--ui -A -a -u dev watch", ""),
    ("karma ng", "start test", "--no-watch --single-run --watch=false"),
    ("lint-staged nodemon phpcbf pre-commit prek spotlessApply treefmt", "", ""),
    ("mix ruff", "format", "--check --check-formatted --diff"),
    ("php-cs-fixer rector sqlfluff", "fix process", "--dry-run"),
    ("react-scripts", "test", "--watchAll=false CI=1 CI=true"),
    ("vue-cli-service", "lint", "--no-fix"),
];

/// Programs that run other scripts or targets of the same file.
const RUNNERS: &str = "${MAKE} MAKE bun make npm npm-run-all pnpm run-p run-s yarn";

const MAKEFILES: [&str; 3] = ["Makefile", "makefile", "GNUmakefile"];
const PYTHON_FILES: [&str; 4] = ["pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"];
/// The folder of the programs in a virtual environment.
const PROGRAMS: &str = if cfg!(windows) { "\\Scripts\\" } else { "/bin/" };
const TYPESCRIPT: &str = "tsconfig.json";

/// Lock files and the package managers that write them.
const LOCK_FILES: [(&str, &str); 13] = [
    ("Cargo.lock", "cargo"),
    ("pnpm-lock.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("bun.lock", "bun"),
    ("bun.lockb", "bun"),
    ("package-lock.json", "npm"),
    ("uv.lock", "uv"),
    ("poetry.lock", "poetry"),
    ("Pipfile.lock", "pipenv"),
    ("go.sum", "go"),
    ("Gemfile.lock", "bundler"),
    ("composer.lock", "composer"),
    ("mix.lock", "mix"),
];

/// The lock files of a project, each with its package manager: those in the folder, or else in the nearest folder above
/// it within its repository, because the packages of a workspace share one. Blocks.
pub fn lock_files(folder: &Path) -> impl Iterator<Item = (&'static str, &'static str)> {
    let top = folder.ancestors().find(|place| is_repository_root(place)).unwrap_or(folder);
    let mut places = folder.ancestors().take_while(|place| place.starts_with(top));
    let locked = places
        .find(|place| LOCK_FILES.iter().any(|(file, _)| place.join(file).is_file()))
        .unwrap_or(folder);
    LOCK_FILES.into_iter().filter(move |(file, _)| locked.join(file).is_file())
}

/// Finds the commands of the project in a folder. `has_program` returns true if there is a program of that name.
/// Blocks.
pub fn find_commands(folder: &Path, has_program: &dyn Fn(&str) -> bool) -> Vec<FoundCommand> {
    let project = Project { folder, has_program };
    let mut all = Vec::new();
    for (names, purpose, command) in COMMANDS {
        let marker = names.split(' ').find_map(|name| project.file_named(name));
        all.extend(marker.and_then(|marker| project.runnable(*purpose, command, &marker)));
    }
    all.extend(project.of_package_json());
    all.extend(project.of_python());
    all.extend(project.of_scripts("composer.json", "composer"));
    all.extend(project.of_makefile());
    all.truncate(MAX_COMMANDS);
    all
}

/// Returns true if a line of a makefile begins the rule of a target.
fn is_rule(line: &str, target: &str) -> bool {
    let rest = line.strip_prefix(target).and_then(|rest| rest.trim_start().strip_prefix(':'));
    rest.is_some_and(|rest| !rest.starts_with('='))
}

/// The commands of a script or a target, and the names of those that run with it.
type Recipe = (String, Vec<String>);

/// Finds the recipe of a target, with the targets that it needs.
fn recipe_of(makefile: &str, target: &str) -> Option<Recipe> {
    let mut lines = makefile.lines().skip_while(|line| !is_rule(line, target));
    let (_, behind) = lines.next()?.split_once(':')?;
    let (needed, recipe) = behind.split_once(';').unwrap_or((behind, ""));
    let further = lines.take_while(|line| line.trim().is_empty() || line.starts_with(['\t', '#']));
    let all: Vec<_> = std::iter::once(recipe).chain(further).collect();
    Some((all.join(";"), needed.split_whitespace().map(str::to_owned).collect()))
}

/// Finds a script of a manifest, with those that run before and after it. In one of Composer, a script may be a list.
fn script_of(scripts: &Value, name: &str) -> Option<Recipe> {
    let script = scripts.get(name)?.to_string().replace("\",\"", ";");
    Some((script, vec![format!("pre{name}"), format!("post{name}")]))
}

/// Returns true if no command of a script or target, or of those that run with it or by it, changes files or waits for
/// changes. `seen` has those that were looked at before.
fn only_looks(name: &str, find: &dyn Fn(&str) -> Option<Recipe>, seen: &mut Vec<String>) -> bool {
    if seen.len() == MAX_NEEDED || seen.iter().any(|known| known == name) {
        return true;
    }
    let Some((commands, mut others)) = find(name) else { return true };
    seen.push(name.to_owned());
    for command in commands.split(['&', '|', ';']) {
        let words = words_of(command);
        if !is_fit(&words) {
            return false;
        }
        if has_any(&words, RUNNERS) && !words.contains(&"echo") {
            others.extend(words.into_iter().map(str::to_owned));
        }
    }
    others.iter().take(MAX_OTHERS).all(|other| only_looks(other, find, seen))
}

/// The words of a command, each without a folder before it.
fn words_of(command: &str) -> Vec<&str> {
    let parts = command.split(|char: char| char.is_whitespace() || "\"\\'`,()[]@".contains(char));
    parts.map(|word| word.rsplit('/').next().unwrap_or(word)).collect()
}

/// Returns true if a command neither changes files nor waits for changes, as far as its words tell.
fn is_fit(words: &[&str]) -> bool {
    let is_unfit = has_any(words, UNFIT_OPTIONS)
        || words.iter().any(|word| UNFIT_ENDS.iter().any(|end| word.ends_with(end)));
    !is_unfit
        && UNFIT_PROGRAMS.iter().all(|(programs, commands, harmless)| {
            !has_any(words, programs)
                || !commands.is_empty() && !has_any(words, commands)
                || has_any(words, harmless)
        })
}

/// Returns true if a list of words has one of these.
fn has_any(words: &[&str], list: &str) -> bool {
    list.split_whitespace().any(|word| words.contains(&word))
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

    fn read(&self, name: &str) -> String {
        let head = read_head(&self.folder.join(name), None, MAX_BYTES);
        head.map(|head| head.text).unwrap_or_default()
    }

    /// The file of this name, or with this end of a name.
    fn file_named(&self, name: &str) -> Option<String> {
        if !name.starts_with('.') {
            return self.has(name).then(|| name.to_owned());
        }
        let entries = fs::read_dir(self.folder).ok()?.take(MAX_ENTRIES).flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|file| file.ends_with(name))
    }

    /// The command, if its program is there. One that the project brings along comes first.
    fn runnable(&self, purpose: Purpose, command: &str, marker: &str) -> Option<FoundCommand> {
        let program = command.split(' ').next()?;
        let own = WRAPPERS.iter().find(|(name, wrapper)| *name == program && self.has(wrapper));
        let command = match own {
            Some((_, wrapper)) => {
                let start = if cfg!(windows) { ".\\" } else { "./" };
                command.replacen(program, &format!("{start}{wrapper}"), 1)
            }
            None if program.contains(['/', '\\']) || (self.has_program)(program) => {
                command.to_owned()
            }
            None => return None,
        };
        Some(FoundCommand { purpose, command, marker: marker.to_owned() })
    }

    fn of_package_json(&self) -> Vec<FoundCommand> {
        let mut managers = lock_files(self.folder).map(|(_, manager)| manager);
        let named = managers.find(|name| ["pnpm", "yarn", "bun"].contains(name));
        let mut all = self.of_scripts("package.json", named.unwrap_or("npm"));
        let has_check = all.iter().any(|command| command.purpose == Check);
        if !has_check && self.has("node_modules/.bin/tsc") {
            // With a file that only refers to other projects, `tsc` checks nothing and succeeds, and before version
            // 5.6, `--build` always writes its output.
            let settings = self.read(TYPESCRIPT).replace(char::is_whitespace, "");
            let only_refers = settings.contains("\"files\":[]");
            let marker = if only_refers { "tsconfig.app.json" } else { TYPESCRIPT };
            let command = format!("npx --no-install tsc --noEmit --project {marker}");
            let found = self.has(marker).then(|| self.runnable(Check, &command, marker));
            all.extend(found.flatten());
        }
        all
    }

    /// The well-known scripts of a manifest.
    fn of_scripts(&self, marker: &str, manager: &str) -> Vec<FoundCommand> {
        let manifest: Value = serde_json::from_str(&self.read(marker)).unwrap_or_default();
        let scripts = &manifest["scripts"];
        self.well_known(&format!("{manager} run"), marker, |name| {
            // `npm init` writes a test that only fails.
            !scripts[name].is_null()
                && !scripts[name].to_string().contains("no test specified")
                && only_looks(name, &|other| script_of(scripts, other), &mut Vec::new())
        })
    }

    fn of_makefile(&self) -> Vec<FoundCommand> {
        let Some(marker) = MAKEFILES.iter().find(|name| self.has(name)) else { return Vec::new() };
        let text = self.read(marker);
        self.well_known("make", marker, |name| {
            text.lines().any(|line| is_rule(line, name))
                && only_looks(name, &|other| recipe_of(&text, other), &mut Vec::new())
        })
    }

    /// The scripts or targets that are known by their names.
    fn well_known(
        &self,
        runner: &str,
        marker: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> Vec<FoundCommand> {
        let known = SCRIPTS.iter().filter(|(name, _)| is_there(name));
        let commands = known.filter_map(|(name, purpose)| {
            self.runnable(*purpose, &format!("{runner} {name}"), marker)
        });
        commands.collect()
    }

    fn of_python(&self) -> Vec<FoundCommand> {
        let Some(marker) = PYTHON_FILES.iter().find(|name| self.has(name)) else {
            return Vec::new();
        };
        let settings = PYTHON_FILES.map(|name| self.read(name)).concat();
        let mut tools = Vec::new();
        // In a project that does not use it, it finds neither the packages nor the rules.
        if settings.contains("pyright") || self.has("pyrightconfig.json") {
            tools.push((Check, "pyright", ""));
        }
        tools.push((Lint, "ruff", " check"));
        if settings.contains("pytest") || self.has("tests") || self.has("pytest.ini") {
            tools.push((Test, "pytest", ""));
        }
        let commands = tools.into_iter().filter_map(|(purpose, name, arguments)| {
            let command = format!("{}{arguments}", self.python_tool(name));
            self.runnable(purpose, &command, marker)
        });
        commands.collect()
    }

    /// A program of the project's own virtual environment, or else of the user. What `uv` manages needs that for its
    /// tests, which import the project.
    fn python_tool(&self, name: &str) -> String {
        let places = [".venv", "venv"]
            .map(|place| format!("{place}{PROGRAMS}{name}{}", std::env::consts::EXE_SUFFIX));
        if let Some(own) = places.into_iter().find(|place| self.has(place)) {
            return own;
        }
        let is_managed = name == "pytest"
            && lock_files(self.folder).any(|(_, manager)| manager == "uv")
            && (self.has_program)("uv");
        if is_managed { "uv run pytest".to_owned() } else { name.to_owned() }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    /// The commands of a project with these files, as `command (marker)`.
    fn commands_in(files: &[(&str, &str)], programs: &[&str]) -> Vec<String> {
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
        let cargo = commands_in(&[("Cargo.toml", "")], &["cargo"]);
        assert_eq!(
            cargo,
            [
                "cargo build (Cargo.toml)",
                "cargo check --message-format short (Cargo.toml)",
                "cargo clippy (Cargo.toml)",
                "cargo test (Cargo.toml)",
            ]
        );
        assert_eq!(commands_in(&[("Cargo.toml", "")], &["go"]), Vec::<String>::new());
        let vet = commands_in(&[("go.mod", "")], &["go"]);
        assert_eq!(vet[1], "go vet ./... (go.mod)");
        let gradle = commands_in(&[("build.gradle.kts", ""), ("gradlew", "")], &[]);
        assert!(gradle[1].ends_with("gradlew test (build.gradle.kts)"), "{gradle:?}");
        let dotnet = commands_in(&[("App.csproj", "")], &["dotnet"]);
        assert_eq!(dotnet[0], "dotnet build (App.csproj)");
    }

    #[test]
    fn a_solution_of_dotnet_names_its_commands_where_its_projects_are_in_folders() {
        for name in ["App.sln", "App.slnx"] {
            let found = commands_in(&[(name, ""), ("src/App/App.csproj", "")], &["dotnet"]);
            let expected = ["build", "test"].map(|word| format!("dotnet {word} ({name})"));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn only_well_known_scripts_count_and_the_lock_file_names_the_manager() {
        let manifest = r#"{"scripts":{"lint":"eslint .","test":"vitest","x; rm -rf ~":"no"}}"#;
        let files = [("package.json", manifest), ("pnpm-lock.yaml", "")];
        let expected = ["pnpm run lint (package.json)", "pnpm run test (package.json)"];
        assert_eq!(commands_in(&files, &["pnpm", "npm"]), expected);
        let unset = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
        let files =
            [("package.json", unset), ("tsconfig.json", "{}"), ("node_modules/.bin/tsc", "")];
        let expected = ["npx --no-install tsc --noEmit --project tsconfig.json (tsconfig.json)"];
        assert_eq!(commands_in(&files, &["npm", "npx"]), expected);
        assert!(commands_in(&[("package.json", "[not json")], &["npm"]).is_empty());
    }

    #[test]
    fn python_tools_come_from_the_virtual_environment_or_the_user() {
        let own = if cfg!(windows) { ".venv\\Scripts\\ruff.exe" } else { ".venv/bin/ruff" };
        let files = [("pyproject.toml", "[tool.pytest.ini_options]"), (own, "")];
        let expected =
            [format!("{own} check (pyproject.toml)"), "pytest (pyproject.toml)".to_owned()];
        assert_eq!(commands_in(&files, &["pytest", "ruff"]), expected);
        let own = if cfg!(windows) { "venv\\Scripts\\pytest.exe" } else { "venv/bin/pytest" };
        let files = [("pyproject.toml", ""), ("tests/test_a.py", ""), (own, "")];
        assert_eq!(commands_in(&files, &["pytest"]), [format!("{own} (pyproject.toml)")]);
        let files = [("pyproject.toml", ""), ("uv.lock", ""), ("tests/test_a.py", "")];
        assert_eq!(commands_in(&files, &["pytest", "uv"]), ["uv run pytest (pyproject.toml)"]);
        assert!(commands_in(&[("requirements.txt", "flask")], &["pytest"]).is_empty());
    }

    #[test]
    fn targets_of_a_makefile_are_no_variables() {
        let text = "lint := yes\ntest: all\n\tcargo test\ncheck :\nbuild.o: x\n";
        let expected = ["make check (Makefile)", "make test (Makefile)"];
        assert_eq!(commands_in(&[("Makefile", text)], &["make"]), expected);
    }

    #[test]
    fn a_script_that_changes_files_or_never_ends_is_no_check() {
        for (script, is_check) in [
            ("eslint .", true),
            ("eslint . --fix", false),
            (r#"eslint \"{src,test}/**/*.ts\" --fix"#, false),
            ("eslint . --fix-dry-run --no-fix", true),
            ("biome check --write", false),
            ("prettier --check . && npm run lint:fix", false),
            ("vue-cli-service lint", false),
            ("vue-cli-service lint --no-fix", true),
            ("black . && isort --check .", false),
            ("flake8 | tee out; isort --check-only --profile black .", true),
            ("gofmt -l -w .", false),
            ("vitest", true),
            ("vitest run", true),
            ("jest", true),
            ("jest --watchAll", false),
            ("jest --watchAll=false", true),
            ("react-scripts test", false),
            ("CI=true react-scripts test", true),
            ("ng test", false),
            ("ng test --watch=false", true),
            ("tsc-watch-free test", true),
            ("jest -u", false),
            ("vitest run --updateSnapshot", false),
            ("uv run pre-commit run --all-files", false),
            ("vitest --ui", false),
            ("vitest watch", false),
            ("turbo watch test", false),
            ("cypress run", true),
            ("dotnet format", false),
            ("dotnet format --verify-no-changes", true),
            ("dart format --set-exit-if-changed .", false),
            ("dart format -o none --set-exit-if-changed .", true),
            ("swiftformat . && swiftlint", false),
            ("swiftformat --lint .", true),
            ("zig fmt src", false),
            ("yapf -i -r .", false),
            ("ktlint -F", false),
            ("rubocop -F", true),
            ("./gradlew spotlessApply", false),
            ("sqlfluff fix models", false),
            ("sqlfluff lint models", true),
        ] {
            let manifest = format!(r#"{{"scripts":{{"lint":"{script}"}}}}"#);
            let found = commands_in(&[("package.json", &manifest)], &["npm"]);
            assert_eq!(!found.is_empty(), is_check, "{script}: {found:?}");
        }
        let scripts = r#"{"scripts":{"lint":["@php vendor/bin/pint"],"test":["pint --test"]}}"#;
        let found = commands_in(&[("composer.json", scripts)], &["composer"]);
        assert_eq!(found, ["composer run test (composer.json)"]);
        let text = "fmt:\n\t@cargo fmt\nlint: fmt src\n\tcargo clippy\ncheck: check\n\tcargo fmt --check\n\
                    test: build\n\tgo test\nbuild:\n\tgo build\n\tgo fmt\n";
        assert_eq!(commands_in(&[("Makefile", text)], &["make"]), ["make check (Makefile)"]);
        let needed = "a ".repeat(16);
        let many = format!(
            "lint: ; black .\ncheck:\n\tflake8\n\n\tblack .\ntest: {needed}\na: {needed}\n"
        );
        assert_eq!(commands_in(&[("Makefile", &many)], &["make"]), ["make test (Makefile)"]);
    }

    #[test]
    fn a_script_that_has_others_change_files_is_no_check() {
        for (scripts, is_check) in [
            (r#""lint":"eslint .","prelint":"prettier --write ."#, false),
            (r#""lint":"eslint .","postlint":"npm run format","format":"prettier -w ."#, false),
            (r#""lint":"yarn format && eslint .","format":"yarn all","all":"black ."#, false),
            (r#""lint":"npm-run-all format lint","format":"prettier --check ."#, true),
            (r#""lint":"biome format .","format":"biome format --write ."#, true),
            (r#""lint":"npm run lint"#, true),
        ] {
            let manifest = format!(r#"{{"scripts":{{{scripts}"}}}}"#);
            let found = commands_in(&[("package.json", &manifest)], &["npm"]);
            assert_eq!(!found.is_empty(), is_check, "{scripts}: {found:?}");
        }
        let text = "lint:\n\t$(MAKE) fmt\ncheck:\n\tmake -s lint\ntest:\n\tmake unit\nfmt:\n\tblack .\n\
                    unit:\n\tpytest || (echo 'try make fmt'; exit 1)\n";
        assert_eq!(commands_in(&[("Makefile", text)], &["make"]), ["make test (Makefile)"]);
    }

    #[test]
    fn a_file_that_only_refers_to_other_projects_is_no_check_of_them() {
        let refers = r#"{ "files": [ ], "references": [{ "path": "./tsconfig.app.json" }] }"#;
        let mut files =
            vec![("package.json", "{}"), ("tsconfig.json", refers), ("node_modules/.bin/tsc", "")];
        assert!(commands_in(&files, &["npx"]).is_empty());
        files.push(("tsconfig.app.json", "{}"));
        let app = ["npx --no-install tsc --noEmit --project tsconfig.app.json (tsconfig.app.json)"];
        assert_eq!(commands_in(&files, &["npx"]), app);
        files[1].1 =
            r#"{ "include": ["src"], "references": [{ "path": "./tsconfig.node.json" }] }"#;
        let whole = ["npx --no-install tsc --noEmit --project tsconfig.json (tsconfig.json)"];
        assert_eq!(commands_in(&files, &["npx"]), whole);
    }

    #[test]
    fn pyright_checks_only_projects_that_use_it() {
        let expected = ["pyright (pyproject.toml)"];
        for (file, text, is_used) in [
            ("README.md", "pyright", false),
            ("requirements.txt", "basedpyright==1.0", true),
            ("pyrightconfig.json", "{}", true),
        ] {
            let found =
                commands_in(&[("pyproject.toml", "[tool.mypy]"), (file, text)], &["pyright"]);
            assert_eq!(found == expected, is_used, "{file}: {found:?}");
        }
    }

    #[test]
    fn only_so_many_commands_count() {
        let scripts = r#"{"scripts":{"build":"a","check":"b","lint":"c","test":"d"}}"#;
        let files = [("Cargo.toml", ""), ("go.mod", ""), ("package.json", scripts)];
        assert_eq!(commands_in(&files, &["cargo", "go", "npm"]).len(), MAX_COMMANDS);
    }

    #[test]
    fn lock_files_name_the_package_managers_and_the_first_one_runs_the_scripts() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["Cargo.lock", "yarn.lock", "package-lock.json"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let expected =
            [("Cargo.lock", "cargo"), ("yarn.lock", "yarn"), ("package-lock.json", "npm")];
        assert!(lock_files(folder.path()).eq(expected));
        let manifest = r#"{"scripts":{"test":["a"]}}"#;
        let files = [("package.json", manifest), ("yarn.lock", ""), ("package-lock.json", "")];
        assert_eq!(commands_in(&files, &["npm", "yarn"]), ["yarn run test (package.json)"]);
    }

    #[test]
    fn a_part_of_a_repository_has_the_package_manager_of_the_whole() {
        let temporary = tempfile::tempdir().unwrap();
        let top = temporary.path().join("main");
        let part = top.join("packages/web");
        fs::create_dir_all(&part).unwrap();
        fs::create_dir_all(top.join(".git/HEAD")).unwrap();
        fs::write(part.join("package.json"), r#"{"scripts":{"lint":"eslint ."}}"#).unwrap();
        for (lock_file, expected) in [
            ("pnpm-lock.yaml", "npm run lint"),
            ("main/pnpm-lock.yaml", "pnpm run lint"),
            ("main/packages/web/yarn.lock", "yarn run lint"),
        ] {
            fs::write(temporary.path().join(lock_file), "").unwrap();
            let found = find_commands(&part, &|_| true);
            assert_eq!(found[0].command, expected, "{lock_file}");
        }
        assert!(lock_files(&part).eq([("yarn.lock", "yarn")]));
    }
}
