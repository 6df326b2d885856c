//! Arguments that make a program run or write something else than its name says. A permission that
//! is given for the first words of a command does not hold for them.

use super::args::is_option;
use super::{Simple, danger};

/// Options that widen what a program does.
struct Widening {
    /// The program, and the subcommand if it is only about that.
    programs: &'static str,
    sub: &'static str,
    letters: &'static str,
    /// Any beginning of these counts.
    names: &'static str,
    /// What does so only where it leads out of the folder in which the command runs.
    outwards: &'static str,
}

const fn widening(
    programs: &'static str,
    sub: &'static str,
    letters: &'static str,
    names: &'static str,
    outwards: &'static str,
) -> Widening {
    Widening { programs, sub, letters, names, outwards }
}

const TABLE: &[Widening] = &[
    widening(
        "cargo",
        "",
        "ZC",
        "--config",
        "--manifest-path --target-dir --artifact-dir --out-dir --lockfile-path --root --path",
    ),
    widening(
        "git",
        "",
        "",
        "--output --ext-diff --textconv --exec-path --upload-pack --receive-pack --exec --git-dir --work-tree --config-env --no-index --open-files-in-pager --output-directory --extcmd --template --unsafe-paths --contents --edit-description --run",
        "",
    ),
    widening("git", "branch", "fMC", "--force", ""),
    widening("git", "tag", "f", "--force", ""),
    widening("git", "switch", "fC", "--force --force-create --discard-changes", ""),
    widening("git", "checkout", "fB", "--force", ""),
    widening("go", "env", "wu", "", ""),
    widening("git", "grep", "O", "", ""),
    widening("git", "rebase", "xs", "--strategy", ""),
    widening("git", "merge", "s", "--strategy", ""),
    widening("git", "archive", "o", "--remote", ""),
    widening("git", "format-patch", "o", "", ""),
    widening("git", "cherry-pick", "", "--strategy", ""),
    widening("git", "revert", "", "--strategy", ""),
    widening(
        "npm pnpm yarn bun npx",
        "",
        "C",
        "--prefix --script-shell --node-options --userconfig --globalconfig --global --shell --cwd --dir --shell-emulator --scripts-prepend-node-path --git --node-arg --preload --require --config --pnpmfile --global-pnpmfile --workspace-dir",
        "",
    ),
    widening(
        "go",
        "",
        "",
        "-exec --exec -toolexec --toolexec -overlay --overlay -modfile --modfile -vettool --vettool -C -ldflags --ldflags -gcflags --gcflags -asmflags -gccgoflags",
        "-o --o",
    ),
    widening(
        "make gmake just",
        "",
        "fCIE",
        "--file --makefile --directory --include-dir --eval --shell --justfile --working-directory --set --command --dotenv-path --chooser",
        "",
    ),
    widening("sed", "", "ief", "--in-place --expression --file", ""),
    widening(
        "sort",
        "",
        "oT",
        "--output --compress-program --temporary-directory --files0-from",
        "",
    ),
    widening("rg", "", "z", "--pre --hostname-bin --search-zip", ""),
    widening("fd fdfind", "", "xX", "--exec --exec-batch", ""),
    widening(
        "find",
        "",
        "",
        "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
        "",
    ),
    widening("tree", "", "oR", "", ""),
    widening("date", "", "s", "--set", ""),
    widening("base64 base32", "", "o", "", ""),
    widening("xxd", "", "r", "", ""),
    widening("diff", "", "l", "--paginate", ""),
    widening("file", "", "CzZ", "--compile --uncompress", ""),
    widening(
        "tar gtar bsdtar",
        "",
        "IFCP",
        "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script --rsh-command --rmt-command --absolute-names --directory",
        "",
    ),
    widening(
        "rsync",
        "",
        "e",
        "--rsh --rsync-path --daemon --temp-dir --backup-dir --partial-dir --log-file --write-batch",
        "",
    ),
    widening(
        "man less more",
        "",
        "PHoO",
        "--pager --html --preprocessor --log-file --LOG-FILE",
        "",
    ),
    widening(
        "pytest py.test",
        "",
        "cp",
        "--config-file --rootdir --confcutdir --override-ini --pastebin",
        "--basetemp --junitxml --junit-xml",
    ),
    widening(
        "eslint",
        "",
        "fo",
        "--rulesdir --plugin --parser --resolve-plugins-relative-to --output-file --format --init",
        "-c --config --cache-location",
    ),
    widening("prettier", "", "", "--plugin --plugin-search-dir", "--config --cache-location"),
    widening(
        "jest vitest mocha ava",
        "",
        "",
        "--config --globalSetup --globalTeardown --setupFiles --setupFilesAfterEnv --runner --testRunner --transform --resolver --reporters --reporter --require --loader --import --rootDir --root --environment --outputFile --node-option --spec --exec-argv",
        "",
    ),
    widening(
        "tsc",
        "",
        "",
        "",
        "--outDir --outFile --declarationDir --rootDir -p --project --build --tsBuildInfoFile",
    ),
    widening(
        "mypy ruff black isort flake8 pylint",
        "",
        "",
        "--load-plugins --init-hook --install-types --python-executable",
        "--config-file --config --rcfile --cache-dir --settings-path",
    ),
    widening(
        "gradle",
        "",
        "IPDg",
        "--init-script --project-prop --system-prop --gradle-user-home --include-build",
        "-b -c -p --build-file --settings-file --project-dir",
    ),
    widening("mvn", "", "D", "--settings --global-settings --toolchains", "-f --file"),
    widening(
        "dotnet",
        "",
        "",
        "--property --logger --settings --collect --test-adapter-path --diag -p:",
        "-o --output",
    ),
    widening("cmake", "", "PEC", "--toolchain --install --open", "-B -S"),
    widening("ninja", "", "fC", "", ""),
    widening(
        "docker podman docker-compose",
        "",
        "vfHc",
        "--volume --mount --privileged --host --context --file --config --device --cap-add --security-opt --network --pid --env-file --project-directory",
        "",
    ),
    widening(
        "kubectl",
        "",
        "sf",
        "--kubeconfig --server --context --token --as --filename --raw",
        "",
    ),
    widening("rustfmt gofmt clang-format", "", "r", "--config --config-path --style", ""),
    widening("golangci-lint", "", "c", "--config --path-prefix", ""),
    widening(
        "phpunit",
        "",
        "cd",
        "--bootstrap --configuration --include-path --extension --printer",
        "",
    ),
    widening("rspec rubocop", "", "rIo", "--require --options --out --config --default-path", ""),
    widening(
        "python python3",
        "",
        "cpXW",
        "--config-file --rootdir --load-plugins --init-hook --override-ini --install-types",
        "",
    ),
    widening("awk gawk mawk", "", "fileE", "--file --include --load --exec", ""),
    widening("jq", "", "Lf", "--from-file --library-path", ""),
];

/// Whether a command does, or may do, more than its first words say: because of an option, because
/// nobody knows all its words, or because it destroys something.
pub fn widens(command: &Simple) -> bool {
    command.is_open || names_are_open(command) || has_widening(command) || destroys(command)
}

/// Whether a command of one that runs tasks by their names has more of them than those words name.
pub fn adds_tasks(command: &Simple, words: usize) -> bool {
    const RUN_TASKS: &[&str] = &["make", "gmake", "ninja", "just", "rake", "gradle", "mvn"];
    const WITH_VALUE: &[&str] =
        &["-j", "-l", "-k", "--tests", "-x", "--exclude-task", "--max-workers", "-pl", "-T"];
    if words < 2 || !RUN_TASKS.contains(&command.program()) {
        return false;
    }
    (words..command.words.len()).any(|at| {
        let is_value = WITH_VALUE.contains(&command.words[at - 1].text.as_str());
        !is_value && !command.words[at].text.starts_with('-')
    })
}

/// A pattern for names of files may stand for an option.
fn names_are_open(command: &Simple) -> bool {
    let begins_open = |it: &str| it.starts_with(['*', '?', '[', '-', '\\']);
    let before_dashes = command.words.iter().take_while(|it| it.text != "--");
    before_dashes.into_iter().any(|it| it.is_glob && begins_open(&it.text))
}

fn destroys(command: &Simple) -> bool {
    danger::danger(command).is_some() || danger::ruin(command).is_some()
}

fn has_widening(command: &Simple) -> bool {
    let Some((program, words)) = command.words.split_first() else { return false };
    let sub = words.first().map_or("", |it| &it.text);
    let is_about = |it: &&Widening| {
        it.programs.split(' ').any(|it| it == program.text) && (it.sub.is_empty() || it.sub == sub)
    };
    // `make CC=…` is an option without a dash; so is `SHELL=…`.
    let sets_variable = |it: &str| it.split_once('=').is_some_and(|it| is_name(it.0));
    let is_make = ["make", "gmake", "just"].contains(&program.text.as_str());
    TABLE.iter().filter(is_about).any(|row| {
        // What is behind the dashes of cargo is for the program that it runs.
        let own = words.iter().take_while(|it| it.text != "--").count();
        (0..own).any(|at| {
            let behind = words.get(at + 1).map_or("", |it| &it.text);
            row.has(&words[at].text, behind) || is_make && sets_variable(&words[at].text)
        })
    })
}

fn is_name(text: &str) -> bool {
    let text = text.trim_end_matches([':', '+', '?', '!']);
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

impl Widening {
    fn has(&self, word: &str, behind: &str) -> bool {
        if !word.starts_with('-') {
            return false;
        }
        let (name, value) = word.split_once('=').unwrap_or((word, behind));
        let is_letter = self.letters.chars().any(|it| is_option(word, it, ""));
        is_letter
            || self.names.split(' ').any(|it| is_named(name, it))
            || leads_out(value) && self.outwards.split(' ').any(|it| is_named(name, it))
            || self.outwards.split(' ').any(|it| attached(word, it).is_some_and(leads_out))
    }
}

fn is_named(given: &str, name: &str) -> bool {
    !name.is_empty() && (given == name || is_option(given, '\0', name))
}

/// The value right behind a letter.
fn attached<'a>(word: &'a str, letter: &str) -> Option<&'a str> {
    (letter.len() == 2 && !word.starts_with("--")).then(|| word.strip_prefix(letter))?
}

fn leads_out(path: &str) -> bool {
    path.starts_with(['/', '~', '$']) || path.split('/').any(|it| it == "..")
}

#[cfg(test)]
mod tests {
    use super::super::known::tests::simple;
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
            assert!(widens(&simple(line)), "{line}");
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
            assert!(!widens(&simple(line)), "{line}");
        }
        assert!(widens(&Simple { is_open: true, ..simple("cargo test") }));
    }

    #[test]
    fn who_allows_one_task_has_not_allowed_the_next() {
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
            assert_eq!(adds_tasks(&simple(line), words), expected, "{line}");
        }
    }
}
