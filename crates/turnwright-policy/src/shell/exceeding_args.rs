//! Arguments that make a program run or write something else than its first words say. A permission
//! for the first words of a command does not cover them.

use super::args::is_option;
use super::{SimpleCommand, destructive};

/// The options of some programs that make them do more than their first words say.
struct ExceedingOptions {
    /// The names of the programs, separated by blanks.
    programs: &'static str,
    /// The subcommand that the options belong to; empty for all.
    sub: &'static str,
    /// Options of one letter.
    letters: &'static str,
    /// Long options. Abbreviations count.
    names: &'static str,
    /// Options that count only if their value is a path outside of the command's folder.
    outside: &'static str,
}

const fn options(
    programs: &'static str,
    sub: &'static str,
    letters: &'static str,
    names: &'static str,
    outside: &'static str,
) -> ExceedingOptions {
    ExceedingOptions { programs, sub, letters, names, outside }
}

const TABLE: &[ExceedingOptions] = &[
    options(
        "cargo",
        "",
        "ZC",
        "--config",
        "--manifest-path --target-dir --artifact-dir --out-dir --lockfile-path --root --path",
    ),
    options(
        "git",
        "",
        "",
        "--output --ext-diff --textconv --exec-path --upload-pack --receive-pack --exec --git-dir --work-tree --config-env --no-index --open-files-in-pager --output-directory --extcmd --template --unsafe-paths --contents --edit-description --run",
        "",
    ),
    options("git", "branch", "fMC", "--force", ""),
    options("git", "tag", "f", "--force", ""),
    options("git", "switch", "fC", "--force --force-create --discard-changes", ""),
    options("git", "checkout", "fB", "--force", ""),
    options("go", "env", "wu", "", ""),
    options("git", "grep", "O", "", ""),
    options("git", "rebase", "xs", "--strategy", ""),
    options("git", "merge", "s", "--strategy", ""),
    options("git", "archive", "o", "--remote", ""),
    options("git", "format-patch", "o", "", ""),
    options("git", "cherry-pick", "", "--strategy", ""),
    options("git", "revert", "", "--strategy", ""),
    options(
        "npm pnpm yarn bun npx",
        "",
        "C",
        "--prefix --script-shell --node-options --userconfig --globalconfig --global --shell --cwd --dir --shell-emulator --scripts-prepend-node-path --git --node-arg --preload --require --config --pnpmfile --global-pnpmfile --workspace-dir",
        "",
    ),
    options(
        "go",
        "",
        "",
        "-exec --exec -toolexec --toolexec -overlay --overlay -modfile --modfile -vettool --vettool -C -ldflags --ldflags -gcflags --gcflags -asmflags -gccgoflags",
        "-o --o",
    ),
    options(
        "make gmake just",
        "",
        "fCIE",
        "--file --makefile --directory --include-dir --eval --shell --justfile --working-directory --set --command --dotenv-path --chooser",
        "",
    ),
    options("sed", "", "ief", "--in-place --expression --file", ""),
    options(
        "sort",
        "",
        "oT",
        "--output --compress-program --temporary-directory --files0-from",
        "",
    ),
    options("rg", "", "z", "--pre --hostname-bin --search-zip", ""),
    options("fd fdfind", "", "xX", "--exec --exec-batch", ""),
    options(
        "find",
        "",
        "",
        "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
        "",
    ),
    options("tree", "", "oR", "", ""),
    options("date", "", "s", "--set", ""),
    options("base64 base32", "", "o", "", ""),
    options("xxd", "", "r", "", ""),
    options("diff", "", "l", "--paginate", ""),
    options("file", "", "CzZ", "--compile --uncompress", ""),
    options(
        "tar gtar bsdtar",
        "",
        "IFCP",
        "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script --rsh-command --rmt-command --absolute-names --directory",
        "",
    ),
    options(
        "rsync",
        "",
        "e",
        "--rsh --rsync-path --daemon --temp-dir --backup-dir --partial-dir --log-file --write-batch",
        "",
    ),
    options("man less more", "", "PHoO", "--pager --html --preprocessor --log-file --LOG-FILE", ""),
    options(
        "pytest py.test",
        "",
        "cp",
        "--config-file --rootdir --confcutdir --override-ini --pastebin",
        "--basetemp --junitxml --junit-xml",
    ),
    options(
        "eslint",
        "",
        "fo",
        "--rulesdir --plugin --parser --resolve-plugins-relative-to --output-file --format --init",
        "-c --config --cache-location",
    ),
    options("prettier", "", "", "--plugin --plugin-search-dir", "--config --cache-location"),
    options(
        "jest vitest mocha ava",
        "",
        "",
        "--config --globalSetup --globalTeardown --setupFiles --setupFilesAfterEnv --runner --testRunner --transform --resolver --reporters --reporter --require --loader --import --rootDir --root --environment --outputFile --node-option --spec --exec-argv",
        "",
    ),
    options(
        "tsc",
        "",
        "",
        "",
        "--outDir --outFile --declarationDir --rootDir -p --project --build --tsBuildInfoFile",
    ),
    options(
        "mypy ruff black isort flake8 pylint",
        "",
        "",
        "--load-plugins --init-hook --install-types --python-executable",
        "--config-file --config --rcfile --cache-dir --settings-path",
    ),
    options(
        "gradle",
        "",
        "IPDg",
        "--init-script --project-prop --system-prop --gradle-user-home --include-build",
        "-b -c -p --build-file --settings-file --project-dir",
    ),
    options("mvn", "", "D", "--settings --global-settings --toolchains", "-f --file"),
    options(
        "dotnet",
        "",
        "",
        "--property --logger --settings --collect --test-adapter-path --diag -p:",
        "-o --output",
    ),
    options("cmake", "", "PEC", "--toolchain --install --open", "-B -S"),
    options("ninja", "", "fC", "", ""),
    options(
        "docker podman docker-compose",
        "",
        "vfHc",
        "--volume --mount --privileged --host --context --file --config --device --cap-add --security-opt --network --pid --env-file --project-directory",
        "",
    ),
    options(
        "kubectl",
        "",
        "sf",
        "--kubeconfig --server --context --token --as --filename --raw",
        "",
    ),
    options("rustfmt gofmt clang-format", "", "r", "--config --config-path --style", ""),
    options("golangci-lint", "", "c", "--config --path-prefix", ""),
    options(
        "phpunit",
        "",
        "cd",
        "--bootstrap --configuration --include-path --extension --printer",
        "",
    ),
    options("rspec rubocop", "", "rIo", "--require --options --out --config --default-path", ""),
    options(
        "python python3",
        "",
        "cpXW",
        "--config-file --rootdir --load-plugins --init-hook --override-ini --install-types",
        "",
    ),
    options("awk gawk mawk", "", "fileE", "--file --include --load --exec", ""),
    options("jq", "", "Lf", "--from-file --library-path", ""),
];

/// True if a command does, or may do, more than its first words say: because of an option, because
/// some of its arguments are unknown, or because it destroys something.
pub(crate) fn exceeds_prefix(command: &SimpleCommand) -> bool {
    command.has_unknown_args
        || glob_may_be_option(command)
        || has_exceeding_option(command)
        || destroys(command)
}

/// True if a task runner (`make`, `just`) is given more tasks than the first `words` words name.
pub(crate) fn names_more_tasks(command: &SimpleCommand, words: usize) -> bool {
    const TASK_RUNNERS: &[&str] = &["make", "gmake", "ninja", "just", "rake", "gradle", "mvn"];
    const WITH_VALUE: &[&str] =
        &["-j", "-l", "-k", "--tests", "-x", "--exclude-task", "--max-workers", "-pl", "-T"];
    if words < 2 || !TASK_RUNNERS.contains(&command.program()) {
        return false;
    }
    (words..command.words.len()).any(|at| {
        let is_value = WITH_VALUE.contains(&command.words[at - 1].text.as_str());
        !is_value && !command.words[at].text.starts_with('-')
    })
}

/// True if a glob may expand to the name of a file that looks like an option.
fn glob_may_be_option(command: &SimpleCommand) -> bool {
    let may_start_with_dash = |it: &str| it.starts_with(['*', '?', '[', '-', '\\']);
    let before_dashes = command.words.iter().take_while(|it| it.text != "--");
    before_dashes.into_iter().any(|it| it.is_glob && may_start_with_dash(&it.text))
}

fn destroys(command: &SimpleCommand) -> bool {
    destructive::danger(command).is_some() || destructive::catastrophe(command).is_some()
}

fn has_exceeding_option(command: &SimpleCommand) -> bool {
    let Some((program, words)) = command.words.split_first() else { return false };
    let sub = words.first().map_or("", |it| &it.text);
    let is_about = |it: &&ExceedingOptions| {
        it.programs.split(' ').any(|it| it == program.text) && (it.sub.is_empty() || it.sub == sub)
    };
    // `make CC=…` acts like an option, and so does `make SHELL=…`.
    let sets_variable = |it: &str| it.split_once('=').is_some_and(|it| is_name(it.0));
    let is_make = ["make", "gmake", "just"].contains(&program.text.as_str());
    TABLE.iter().filter(is_about).any(|row| {
        // After `--`, words belong to the program that cargo runs.
        let own = words.iter().take_while(|it| it.text != "--").count();
        (0..own).any(|at| {
            let next = words.get(at + 1).map_or("", |it| &it.text);
            row.has(&words[at].text, next) || is_make && sets_variable(&words[at].text)
        })
    })
}

fn is_name(text: &str) -> bool {
    let text = text.trim_end_matches([':', '+', '?', '!']);
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

impl ExceedingOptions {
    fn has(&self, word: &str, next: &str) -> bool {
        if !word.starts_with('-') {
            return false;
        }
        let (name, value) = word.split_once('=').unwrap_or((word, next));
        let is_letter = self.letters.chars().any(|it| is_option(word, it, ""));
        is_letter
            || self.names.split(' ').any(|it| is_named(name, it))
            || is_outside(value) && self.outside.split(' ').any(|it| is_named(name, it))
            || self.outside.split(' ').any(|it| attached(word, it).is_some_and(is_outside))
    }
}

fn is_named(given: &str, name: &str) -> bool {
    !name.is_empty() && (given == name || is_option(given, '\0', name))
}

/// The value that follows an option letter in the same word.
fn attached<'a>(word: &'a str, letter: &str) -> Option<&'a str> {
    (letter.len() == 2 && !word.starts_with("--")).then(|| word.strip_prefix(letter))?
}

fn is_outside(path: &str) -> bool {
    path.starts_with(['/', '~', '$']) || path.split('/').any(|it| it == "..")
}

#[cfg(test)]
mod tests {
    use super::super::read_only::tests::simple;
    use super::*;

    #[test]
    fn options_that_run_or_write_something_else_are_known() {
        for line in [
            "cargo test --config 'build.rustc-wrapper=\"./x\"'",
            "cargo test --config=x",
            "cargo test -Zunstable",
            "cargo build --target-dir=/etc",
            "git diff --output=f",
            "git diff --outp f",
            "git diff --ext-diff",
            "git log --textconv",
            "git grep -Oless x",
            "git grep -nO x",
            "git rebase -x ./x",
            "git rebase --exec=./x",
            "git fetch --upload-pack=./x",
            "git push --receive-pack=./x",
            "git branch -D m",
            "git tag -d t",
            "find . -delete",
            "find . -exec rm {} +",
            "find . -fprintf f x",
            "sort -o f a",
            "sort -uof a",
            "sort --compress-program=x a",
            "sed -i s/a/b/ f",
            "sed --in-place=x s/a/b/ f",
            "tar --to-command=x -xf a",
            "tar -Ix xf a",
            "tar --checkpoint-action=exec=x xf a",
            "rg --pre ./x p",
            "rg -z p",
            "man -P ./x ls",
            "tree -o f",
            "date -s now",
            "npm test --prefix /etc",
            "npm run x --script-shell=./x",
            "npm test --node-options=x",
            "go test -exec=./x",
            "go build -toolexec ./x",
            "go build -overlay x",
            "make all SHELL=./x",
            "make all -f x",
            "make all -Cx",
            "make all --eval=x",
            "git branch -f main x",
            "git branch -M x",
            "git tag --force v1",
            "git checkout -B main x",
            "git switch -C main x",
            "go env -w CC=x",
            "cargo test *",
            "git status [a]",
            "rm -rf /",
            "rm -rf .",
            "ls *x -- a",
        ] {
            assert!(exceeds_prefix(&simple(line)), "{line}");
        }
        for line in [
            "git status -s",
            "git log --oneline -5",
            "git commit -m 'a --output=b'",
            "git commit --amend --no-edit",
            "git diff --stat",
            "git add -A",
            "cargo test -p core --release",
            "cargo test -- --config -Z",
            "cargo build --target-dir target/x",
            "ls -la src",
            "echo x",
            "find . -name x",
            "npm run build -- --prefix /x",
            "go test -run X ./...",
            "go build -o bin/x",
            "make all -j4",
            "pytest -x -k a tests",
            "rm src/*",
            "ls -- *x",
        ] {
            assert!(!exceeds_prefix(&simple(line)), "{line}");
        }
        assert!(exceeds_prefix(&SimpleCommand { has_unknown_args: true, ..simple("cargo test") }));
    }

    #[test]
    fn further_tasks_are_not_covered() {
        for (line, words, expected) in [
            ("make test deploy", 2, true),
            ("make test -k -s deploy", 2, true),
            ("just lint deploy", 2, true),
            ("gradle test publish", 2, true),
            ("make test", 2, false),
            ("make test -j 4", 2, false),
            ("gradle test --tests Foo", 2, false),
            ("make test deploy", 1, false),
            ("cargo test deploy", 2, false),
        ] {
            assert_eq!(names_more_tasks(&simple(line), words), expected, "{line}");
        }
    }
}
