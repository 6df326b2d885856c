//! Suggests the words of a lasting permission: the program and what it does, so that the user knows what is granted.
//! Programs that can do anything get none. Arguments that make a program run or write something else than its first
//! words say are not covered by a permission for those.

use std::path::Path;

use super::args::{Reads, is_option};
use super::harm::{self, ruin};
use super::programs::{self, NetworkUse, WordList, is_in};
use super::{SimpleCommand, Word};
use turnwright_types::text;

/// The extent of a lasting permission for a program.
#[derive(Clone, Copy)]
pub(super) enum Grant {
    /// A short command exactly as it is.
    Exact,
    /// The program with its first argument, if that looks like a subcommand, or a short command exactly
    /// as it is.
    Guessed,
    /// The same. It may also follow a runner such as `npx`.
    GuessedTool,
    /// Its name alone says enough, because it does one thing. It may also follow a runner.
    Name,
    /// It can do anything. There is a permission in these forms only.
    Forms(&'static [Form]),
}

/// Subcommands, and how many words say enough about a command with them.
#[derive(Clone, Copy)]
pub(super) struct Form {
    subcommands: WordList,
    words: usize,
    /// Third words that let the subcommand run anything.
    except: WordList,
}

/// A form with these subcommands, or with any if there are none.
pub(super) const fn form(subcommands: WordList, words: usize) -> Form {
    Form { subcommands, words, except: "" }
}

impl Form {
    pub(super) const fn except(self, except: WordList) -> Form {
        Form { except, ..self }
    }
}

/// The maximum number of words of a command without a known form that is granted as it is.
const MAX_EXACT_WORDS: usize = 6;

/// Subcommands that send content away, to a place that further words may name.
const PUBLISHING: WordList = "push publish upload deploy unpublish release send-email";

/// Subcommands after which a program runs what is named next.
const RUNNING_SUBCOMMANDS: WordList =
    "run exec x shell start task script invoke do dev dlx run-script tool";

/// Subcommands that fetch a program and run it.
const CREATING_SUBCOMMANDS: WordList = "create init";

/// The words of a command that a lasting permission for it should name, such as `cargo test`, and true if no other words
/// may follow. `None` if there should be no such permission: for interpreters, wrappers, programs that can do too many
/// things, and those that fail without the network, which a permission does not open.
pub fn suggest_prefix(command: &SimpleCommand) -> Option<(Vec<String>, bool)> {
    // `npx` may do without.
    let is_runner = programs::find(command.program()).runs_installed_after.contains(&"");
    let is_useless = programs::needs_network(command) && !is_runner;
    suggest(command).filter(|_| !is_useless)
}

/// The same for a lasting permission that also gives the command the network or other access. `None`
/// also for programs and subcommands that send content to wherever further words say.
pub fn suggest_prefix_with_access(command: &SimpleCommand) -> Option<(Vec<String>, bool)> {
    let publishes = command.words.get(1).is_some_and(|sub| is_in(PUBLISHING, &sub.text));
    let network = programs::find(command.program()).network;
    let always_sends = matches!(network, NetworkUse::Always);
    suggest(command).filter(|_| !publishes && !always_sends)
}

fn suggest(command: &SimpleCommand) -> Option<(Vec<String>, bool)> {
    let is_indirect = !command.wrappers.is_empty() || command.has_unknown_args;
    if is_indirect || !is_program_name(command.words.first()?) || exceeds_prefix(command) {
        return None;
    }
    let counted = word_count(&command.words).or_else(|| network_word_count(&command.words));
    let (count, is_exact) = counted?;
    let words = command.words.get(..count)?;
    let are_literal = words.iter().all(is_literal);
    are_literal.then(|| (words.iter().map(|word| word.text.clone()).collect(), is_exact))
}

/// The number of the first words that say what a command does, and true if they are all of its words and no others may
/// follow.
fn word_count(words: &[Word]) -> Option<(usize, bool)> {
    let (program, rest) = words.split_first()?;
    let sub = rest.first();
    let grant = programs::find(&program.text).grant;
    let all = (words.len() <= MAX_EXACT_WORDS).then_some((words.len(), true));
    match (grant, tool_behind_runner(words).map(|at| at + 1), sub) {
        (Grant::Name, ..) => Some((1, false)),
        (_, Some(count), _) => Some((count, false)),
        (Grant::Forms(forms), None, sub) => {
            let sub = sub?.text.as_str();
            let form = forms
                .iter()
                .find(|form| form.subcommands.is_empty() || is_in(form.subcommands, sub))?;
            let named = words.get(1..form.words)?;
            let runs_anything = words.get(2).is_some_and(|word| is_in(form.except, &word.text));
            let is_fine = named.iter().all(is_action) && !runs_anything;
            is_fine.then_some((form.words, false))
        }
        // It may run a program that is named as its argument.
        (_, None, Some(sub))
            if matches!(programs::find(&sub.text).grant, Grant::Forms(_) | Grant::Name) =>
        {
            None
        }
        // Its arguments are files or text.
        (Grant::Guessed, None, _)
            if !matches!(programs::find(&program.text).reads, Reads::Unknown) =>
        {
            all
        }
        (Grant::Guessed, None, Some(sub)) if is_in(RUNNING_SUBCOMMANDS, &sub.text) => all,
        (Grant::Guessed | Grant::GuessedTool, None, Some(sub)) if is_action(sub) => {
            Some((2, false))
        }
        _ => all,
    }
}

/// The words of a command that say what it does with the network: those of `npm install`, `git fetch`, `pip install`.
/// `None` if it sends content away, or its subcommand does not say enough.
fn network_word_count(words: &[Word]) -> Option<(usize, bool)> {
    let (program, rest) = words.split_first()?;
    let network = programs::find(&program.text).network;
    let open = [PUBLISHING, RUNNING_SUBCOMMANDS, CREATING_SUBCOMMANDS];
    let sub = rest
        .first()
        .filter(|sub| is_action(sub) && !open.iter().any(|list| is_in(list, &sub.text)))?;
    let is_by_subcommand = !matches!(network, NetworkUse::Never | NetworkUse::Always);
    (is_by_subcommand && network.is_used(rest) && network.is_used(std::slice::from_ref(sub)))
        .then_some((2, false))
}

/// The index of the program that a runner runs: `npx jest`, `uv run pytest`.
fn tool_behind_runner(words: &[Word]) -> Option<usize> {
    let (program, rest) = words.split_first()?;
    let runs = programs::find(&program.text).runs_installed_after;
    let first = rest.first()?.text.as_str();
    let has_action = !first.is_empty() && runs.contains(&first) && rest.len() > 1;
    if !has_action && !runs.contains(&"") {
        return None;
    }
    let run = usize::from(has_action);
    let tool = programs::find(&rest.get(run)?.text).grant;
    matches!(tool, Grant::Name | Grant::GuessedTool).then_some(run + 1)
}

/// True for a plain name, which is looked up in `PATH`.
fn is_program_name(word: &Word) -> bool {
    let text = word.text.as_str();
    !word.is_glob
        && !text.is_empty()
        && !text.starts_with(['-', '.'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte))
}

/// True for a word that looks like a subcommand rather than an operand.
fn is_action(word: &Word) -> bool {
    let text = word.text.as_str();
    !word.is_glob
        && text.starts_with(|char: char| char.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte))
        && text.len() <= 40
}

/// True for a word that needs no quoting in a rule.
fn is_literal(word: &Word) -> bool {
    !word.is_glob
        && !word.text.is_empty()
        && word
            .text
            .chars()
            .all(|char| char.is_ascii_graphic() && !"*?[](){}\"'`$\\=<>|&;!~#".contains(char))
}

/// True if a command does, or may do, more than its first words say: because of an option, because
/// some of its arguments are unknown, or because it destroys something.
pub(crate) fn exceeds_prefix(command: &SimpleCommand) -> bool {
    command.has_unknown_args
        || glob_may_be_option(command)
        || has_exceeding_option(command)
        || harm::danger(command).is_some()
        || ruin::ruin_of_command(command, Path::new(""), None).is_some()
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
        let before = &command.words[at - 1].text;
        let word = &command.words[at].text;
        let is_count = is_in(COUNTS, before) && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_value = is_count || is_in(program.task_options_with_value, before);
        !is_value && !word.starts_with('-')
    })
}

/// True if a glob may expand to the name of a file that looks like an option.
fn glob_may_be_option(command: &SimpleCommand) -> bool {
    let before_dashes = &command.words[..words_before_dashes(&command.words)];
    before_dashes
        .iter()
        .any(|word| word.is_glob && word.text.starts_with(['*', '?', '[', '-', '\\']))
}

/// The number of words in front of `--`, after which words belong to the program that cargo runs. An option in front
/// of it may take it for its value.
fn words_before_dashes(words: &[Word]) -> usize {
    let mut all = words.iter().enumerate();
    all.position(|(at, word)| {
        let is_value = at > 0 && words[at - 1].text.starts_with('-');
        word.text == "--" && !is_value
    })
    .unwrap_or(words.len())
}

fn has_exceeding_option(command: &SimpleCommand) -> bool {
    let Some((program, words)) = command.words.split_first() else { return false };
    let program = programs::find(&program.text);
    let sub = program.subcommand(words.first().map_or("", |word| &word.text));
    let tool = tool_behind_runner(&command.words).unwrap_or(0);
    let runs = programs::find(command.words.get(tool).map_or("", |word| &word.text));
    (0..words_before_dashes(words)).any(|at| {
        let word = &words[at].text;
        let next = words.get(at + 1).map_or("", |next| &next.text);
        is_listed(program.options_outside_grant, word, next)
            || is_listed(sub.options_outside_grant, word, next)
            || at >= tool && is_listed(runs.options_outside_grant, word, next)
            || at >= tool && runs.runs_files && may_name_outside_path(word)
            || program.takes_variables && sets_variable(word)
    })
}

/// True for `CC=…` and `SHELL=…`, which act like options of `make`.
fn sets_variable(word: &str) -> bool {
    let before = word.split_once('=').map_or("", |(before, _)| before);
    let name = before.trim_end_matches([':', '+', '?', '!']);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// True if a word is a path outside of the command's folder, has one as its value, or names a file with further
/// arguments.
fn may_name_outside_path(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |parts| parts.1);
    word.starts_with('@') || is_outside(value)
}

/// True if a word is one of these options, or its value makes it one. A list consists of the letters
/// of short options, of long options, which may be abbreviated, of options with a final `<`, which
/// count only if their value is a path outside of the command's folder, and of switches with a final `:`,
/// which may begin with a slash.
fn is_listed(options: WordList, word: &str, next: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, next));
    word.starts_with(['-', '/'])
        && options.split(' ').any(|option| match option.strip_suffix('<') {
            Some(option) => {
                is_outside(value) && is_named(name, option)
                    || attached(word, option).is_some_and(is_outside)
            }
            None if option.ends_with(':') => is_switch(word, option),
            None if option.starts_with('-') => is_named(name, option),
            None => option.chars().any(|letter| is_option(word, letter, "")),
        })
}

/// True for the name of an option, an abbreviation, and another spelling (`--test-runner`, `--testRunner`).
fn is_named(given: &str, name: &str) -> bool {
    let is_long = given.len() > 2 && name.len() > 2;
    given == name || is_option(given, '\0', name) || is_long && letters(given) == letters(name)
}

fn letters(name: &str) -> String {
    name.chars().filter(|char| !"-_".contains(*char)).collect::<String>().to_lowercase()
}

/// `-p:x`, `/p:x`, `--P:x`.
fn is_switch(word: &str, name: &str) -> bool {
    let word = word.trim_start_matches(['-', '/']);
    text::strip_prefix_ignore_case(word, name).is_some()
}

/// The value that follows an option letter in the same word.
fn attached<'a>(word: &'a str, letter: &str) -> Option<&'a str> {
    (letter.len() == 2 && !word.starts_with("--")).then(|| word.strip_prefix(letter))?
}

fn is_outside(path: &str) -> bool {
    path.starts_with(['/', '~', '$']) || path.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::super::args::tests::simple;
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        let got = suggest_prefix(&simple(line)).map(|(words, is_exact)| {
            format!("{}{}", if is_exact { "=" } else { "" }, words.join(" "))
        });
        assert_eq!(got.as_deref(), expected, "{line}");
    }

    #[test]
    fn a_prefix_names_a_program_and_what_it_does() {
        for (line, expected) in [
            ("git status -s", "git status"),
            ("git commit -m x", "git commit"),
            ("git add .", "git add"),
            ("git stash push -m x", "git stash push"),
            ("git checkout -b x", "git checkout"),
            ("cargo test -p core", "cargo test"),
            ("cargo test -- --config x", "cargo test"),
            ("cargo clippy --all-targets", "cargo clippy"),
            ("cargo test --manifest-path sub/Cargo.toml", "cargo test"),
            ("npm run build", "npm run build"),
            ("npm run build -- --watch", "npm run build"),
            ("npm run test:unit", "npm run test:unit"),
            ("npm test", "npm test"),
            ("pnpm run x", "pnpm run x"),
            ("yarn run x", "yarn run x"),
            ("yarn build", "yarn build"),
            ("go test ./...", "go test"),
            ("go vet", "go vet"),
            ("make all", "make all"),
            ("make test -j4", "make test"),
            ("just lint", "just lint"),
            ("docker compose up -d", "docker compose up"),
            ("docker ps -a", "docker ps"),
            ("pytest", "pytest"),
            ("pytest -x tests/a.py", "pytest"),
            ("python3 -m pytest -q", "python3 -m pytest"),
            ("tsc --noEmit", "tsc"),
            ("npx tsc --noEmit", "npx tsc"),
            ("eslint src", "eslint"),
            ("prettier --write src", "prettier"),
            ("ruff check .", "ruff check"),
            ("mypy .", "mypy"),
            ("jest", "jest"),
            ("vitest run", "vitest run"),
            ("gradle test", "gradle test"),
            ("mvn test", "mvn test"),
            ("dotnet test", "dotnet test"),
            ("uv run pytest -x", "uv run pytest"),
            ("bundle exec rspec", "bundle exec rspec"),
            ("poetry run mypy .", "poetry run mypy"),
            ("mkdir -p a", "mkdir"),
            ("pipenv run pytest -q", "pipenv run pytest"),
            ("pipenv check -v", "pipenv check"),
            ("rye run deploy", "=rye run deploy"),
            ("gulp build", "gulp build"),
            ("task lint", "task lint"),
            ("composer run deploy", "=composer run deploy"),
            ("gcc -o a a.c", "=gcc -o a a.c"),
            ("mytool check a b", "=mytool check a b"),
            ("mytool -v a.txt", "=mytool -v a.txt"),
            ("uniq data other", "=uniq data other"),
            ("mytool", "=mytool"),
        ] {
            check(line, Some(expected));
        }
    }

    #[test]
    fn programs_that_can_do_anything_have_none() {
        for line in [
            "python x.py",
            "python",
            "python3 -c 1",
            "python -m http.server",
            "node x.js",
            "ruby x.rb",
            "perl -e 1",
            "php x.php",
            "lua x.lua",
            "deno run x.ts",
            "bun x.ts",
            "bash x.sh",
            "sh -c x",
            "zsh",
            "env",
            "sudo ls",
            "doas ls",
            "su",
            "xargs ls",
            "ssh h",
            "make",
            "make -C x all",
            "make CC=./x",
            "make SHELL=./x all",
            "make all CC=./x",
            "make -f x all",
        ] {
            check(line, None);
        }
        let wrapped = SimpleCommand { wrappers: vec!["nohup".to_owned()], ..simple("cargo test") };
        let open = SimpleCommand { has_unknown_args: true, ..simple("cargo test") };
        assert_eq!((suggest_prefix(&wrapped), suggest_prefix(&open)), (None, None));
    }

    #[test]
    fn commands_that_leave_the_project_or_destroy_have_none() {
        for line in [
            "docker",
            "docker run x",
            "docker exec x y",
            "docker compose run x",
            "docker compose exec x y",
            "git",
            "git config a.b c",
            "git -c a=b status",
            "git -C x status",
            "git push",
            "git bisect run x",
            "git submodule update",
            "git rebase -x ./x main",
            "git stash",
            "git stash drop",
            "git reset --hard",
            "git branch -D x",
            "git diff --output=x",
            "git log --outp=x",
            "git grep -Oless x",
            "git unknown",
            "npx x",
            "npx",
            "npm",
            "npm install",
            "npm pack ./x",
            "npm run",
            "npm publish",
            "npm --prefix x test",
            "npm test --prefix /etc",
            "npm exec x",
            "curl x",
            "wget x",
            "find .",
            "find . -name x",
            "awk 1",
            "sed s/a/b/ x",
            "eval x",
            "exec x",
            "nohup x",
            "timeout 9 x",
            "nice x",
            "cargo --config x test",
            "cargo test --config x",
            "cargo test --conf=x",
            "cargo test -Zx",
            "cargo test --target-dir /x",
            "cargo test --manifest-path ../x/Cargo.toml",
            "cargo +nightly test",
            "cargo install x",
            "cargo publish",
            "go run x.go",
            "go test -exec ./x",
            "go test -toolexec=./x",
            "go build -o ../x",
            "go generate",
            "just",
            "rm x",
            "cp a b",
            "chmod +x a",
            "./x test",
            "/usr/bin/x test",
            "bin/x",
            "~/x",
            "x*",
            "mytool *",
            "mytool a b c d e f",
            "flock x make all",
            "coverage run x.py",
            "dotenv run x",
            "perf record x",
            "gulp",
            "mytool 'a b' c-",
            "mytool python",
            "mytool --x 'rm -rf /'",
            "terraform apply",
            "pytest -c /x",
            "pytest -p evil",
            "eslint --rulesdir x",
            "gradle -I x test",
            "vim x",
            "tar xf a",
            "",
        ] {
            check(line, None);
        }
    }

    #[test]
    fn options_that_run_or_write_something_else_are_known() {
        const LINES: &str = include_str!("../../tests/data/shell/exceeding.txt");
        let (exceeding, covered) = LINES.split_once("\n\n").unwrap();
        let lines = |text: &'static str| text.lines().filter(|line| !line.starts_with("# "));
        let exceeds = |line: &&str| exceeds_prefix(&simple(line));
        let missed: Vec<_> = lines(exceeding).filter(|line| !exceeds(line)).collect();
        let refused: Vec<_> = lines(covered).filter(exceeds).collect();
        assert!(
            missed.is_empty() && refused.is_empty(),
            "missed: {missed:?}, refused: {refused:?}"
        );
        assert!(lines(exceeding).count() > 120 && lines(covered).count() > 25);
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
