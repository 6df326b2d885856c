//! Arguments that make a program run or write something else than its first words say. A permission
//! for the first words of a command does not cover them.

use std::path::Path;

use super::args::is_option;
use super::programs::{self, WordList};
use super::{SimpleCommand, Word, destructive, prefix, ruin};

/// True if a command does, or may do, more than its first words say: because of an option, because
/// some of its arguments are unknown, or because it destroys something.
pub(crate) fn exceeds_prefix(command: &SimpleCommand) -> bool {
    command.has_unknown_args
        || glob_may_be_option(command)
        || has_exceeding_option(command)
        || destroys(command)
}

/// Options of task runners that may be followed by a number.
const COUNTS: WordList = "-j -l --jobs --load-average --max-load --parallel";

/// True if a task runner (`make`, `just`) is given more tasks than the first `words` words name.
pub(crate) fn names_more_tasks(command: &SimpleCommand, words: usize) -> bool {
    let program = programs::find(command.program());
    if words < 2 || !program.runs_tasks {
        return false;
    }
    (words..command.words.len()).any(|at| {
        let (before, word) = (&command.words[at - 1].text, &command.words[at].text);
        let is_count =
            programs::is_in(COUNTS, before) && word.bytes().all(|it| it.is_ascii_digit());
        let is_value = is_count || programs::is_in(program.task_options_with_value, before);
        !is_value && !word.starts_with('-')
    })
}

/// True if a glob may expand to the name of a file that looks like an option.
fn glob_may_be_option(command: &SimpleCommand) -> bool {
    let may_start_with_dash = |it: &str| it.starts_with(['*', '?', '[', '-', '\\']);
    let before_dashes = &command.words[..own_words(&command.words)];
    before_dashes.iter().any(|it| it.is_glob && may_start_with_dash(&it.text))
}

/// The number of words in front of `--`, after which words belong to the program that cargo runs. An option in front
/// of it may take it for its value.
fn own_words(words: &[Word]) -> usize {
    let is_value = |at: usize| at > 0 && words[at - 1].text.starts_with('-');
    let mut all = words.iter().enumerate();
    all.position(|(at, word)| word.text == "--" && !is_value(at)).unwrap_or(words.len())
}

fn destroys(command: &SimpleCommand) -> bool {
    destructive::danger(command).is_some()
        || ruin::ruin_of_command(command, Path::new(""), None).is_some()
}

fn has_exceeding_option(command: &SimpleCommand) -> bool {
    let Some((program, words)) = command.words.split_first() else { return false };
    let program = programs::find(&program.text);
    let sub = program.subcommand(words.first().map_or("", |it| &it.text));
    let tool = prefix::tool_behind_runner(&command.words).unwrap_or(0);
    let runs = programs::find(command.words.get(tool).map_or("", |it| &it.text));
    // `make CC=…` acts like an option, and so does `make SHELL=…`.
    let sets_variable = |it: &str| it.split_once('=').is_some_and(|it| is_name(it.0));
    (0..own_words(words)).any(|at| {
        let (word, next) = (&words[at].text, words.get(at + 1).map_or("", |it| &it.text));
        is_listed(program.options_outside_grant, word, next)
            || is_listed(sub.options_outside_grant, word, next)
            || at >= tool && is_listed(runs.options_outside_grant, word, next)
            || at >= tool && runs.runs_files && leads_outside(word)
            || program.takes_variables && sets_variable(word)
    })
}

fn is_name(text: &str) -> bool {
    let text = text.trim_end_matches([':', '+', '?', '!']);
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

/// True if a word is a path outside of the command's folder, has one as its value, or names a file with further
/// arguments.
fn leads_outside(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |it| it.1);
    word.starts_with('@') || is_outside(value)
}

/// True if a word is one of these options, or its value makes it one. A list consists of the letters
/// of short options, of long options, which may be abbreviated, of options with a final `<`, which
/// count only if their value is a path outside of the command's folder, and of switches with a final `:`,
/// which may begin with a slash.
fn is_listed(options: WordList, word: &str, next: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, next));
    let is_it = |option: &str| match option.strip_suffix('<') {
        Some(option) => {
            is_outside(value) && is_named(name, option)
                || attached(word, option).is_some_and(is_outside)
        }
        None if option.ends_with(':') => is_switch(word, option),
        None if option.starts_with('-') => is_named(name, option),
        None => option.chars().any(|it| is_option(word, it, "")),
    };
    word.starts_with(['-', '/']) && options.split(' ').any(is_it)
}

/// True for the name of an option, an abbreviation, and another spelling (`--test-runner`, `--testRunner`).
fn is_named(given: &str, name: &str) -> bool {
    let letters =
        |it: &str| it.chars().filter(|it| !"-_".contains(*it)).collect::<String>().to_lowercase();
    let is_long = given.len() > 2 && name.len() > 2;
    given == name || is_option(given, '\0', name) || is_long && letters(given) == letters(name)
}

/// `-p:x`, `/p:x`, `--P:x`.
fn is_switch(word: &str, name: &str) -> bool {
    let word = word.trim_start_matches(['-', '/']);
    word.get(..name.len()).is_some_and(|it| it.eq_ignore_ascii_case(name))
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
            // An option may take `--` for its value.
            "make all -o -- -f evil.mk",
            "git diff -S -- --output=f",
            "rg x -e -- --pre=./x",
            "ls x -I -- *",
            // Node's tools also take the names of options in the other spelling.
            "jest --test-runner=./x",
            "jest --setup-files ./x",
            "jest --projects ../x",
            "jest --env=./x",
            "jest --filter ./x",
            "vitest run --global-setup=./x",
            "mocha --file ./x",
            "mocha -u ./x",
            "ava --node-arguments=--import=./x",
            "npm test -w packages/x",
            "npm run build --workspace=packages/x",
            "npm run build -ws",
            "pnpm run build --filter x",
            "pnpm test -r",
            "cargo nextest run --config-file x",
            "cargo nextest run --tool-config-file x:y",
            "pytest -o addopts=-pevil",
            "pytest --tx popen//python=./x",
            "pytest --cov-config=x",
            "pytest --pdbcls=a:b",
            "rake test -esystem",
            "rake test --execute=x",
            "rake test -r./x",
            "ninja all -tclean",
            "ant test -lib x",
            "ant test -listener X",
            "stylelint a.css --custom-syntax ./x",
            "phpstan analyse -a x.php",
            "flake8 --append-config=/x",
            "phpunit --prepend x.php",
            "deno test --import-map=x",
            "go build --asmflags=x",
            // Behind a runner the options of the tool count.
            "npx jest -c x",
            "npx jest --runner=./x",
            "npx tsc -p /x",
            "npx eslint --rulesdir x a",
            "npx prettier --plugin=./x a",
            "pnpm exec jest -c x",
            "pnpm vitest --globalSetup=x",
            "yarn jest --config x",
            "bunx vitest --config x",
            "uvx ruff check --config=/x",
            "uv run pytest -p evil",
            "uv run pytest --rootdir=x",
            "poetry run mypy --python-executable=x",
            "hatch run pytest -p evil",
            "bundle exec rspec -r ./x",
            "python3 -m mypy --python-executable=x a",
            // Test runners run the files that they are given.
            "pytest ../x",
            "pytest /x/test.py",
            "pytest @args.txt",
            "pytest --html=/x",
            "uv run pytest ../x",
            "jest ../x",
            "jest --roots=../x",
            "jest --modulePaths=x",
            "jest --moduleNameMapper=x",
            "jest --snapshotSerializers=./x",
            "rspec ../x",
            "rspec -O x",
            "tsc -b ../x",
            "tsc @x",
            "go test -tags x ../y",
            "dotnet test ../x",
            "dotnet test -p:X=y",
            "dotnet test /p:X=y",
            "dotnet test -property:X=y",
            "dotnet build -t:Evil",
            "dotnet build /t:Evil",
            "dotnet build --target:Evil",
            "dotnet build -l:x.dll",
            "dotnet build /Logger:X,x.dll",
            "mix test -r x",
            "mix test --require x",
            "mix test --formatter X",
            "swift build -Xswiftc x",
            "swift build --toolset x",
            "swift build --disable-sandbox",
            "composer test --working-dir=x",
            "composer test -d x",
            "phpunit --extensions-dir=x",
            "ruff check -o x",
            "ruff check --output-file=x",
            "npm test --script_shell=x",
            "git checkout --pathspec-from-file=x",
            "git worktree add -B main y",
            "git cat-file --filters HEAD:x",
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
            "npx jest src -t name",
            "uv run pytest -x -k a tests",
            "python3 -m pytest tests/a.py::b",
            "go test ./...",
            "dotnet test src/A.csproj",
            "jest src/a.test.ts --coverage",
            "cargo test --release -- --nocapture",
            "npm test --silent -- --watch",
            "jest -w 4 -t name",
            "jest -u",
            "vitest run --coverage",
            "npm run build",
            "pytest -n 4",
            "rake test -j 4",
            "ninja all -j4 -k 0",
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
            ("make test -k 4", 2, true),
            ("ninja all -k 0", 2, false),
            ("rake test -j 4", 2, false),
            ("make test -k deploy", 2, true),
            ("make test -j deploy", 2, true),
            ("gulp build deploy", 2, true),
            ("mvn test -pl core", 2, false),
            ("mvn test -x deploy", 2, true),
            ("gradle test --tests Foo", 2, false),
            ("make test deploy", 1, false),
            ("cargo test deploy", 2, false),
        ] {
            assert_eq!(names_more_tasks(&simple(line), words), expected, "{line}");
        }
    }
}
