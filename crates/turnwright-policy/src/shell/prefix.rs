//! Suggests the words of a lasting permission: the program and what it does, so that the user knows
//! what is granted. Programs that can do anything get none.

use super::network::NetworkUse;
use super::programs::{self, WordList, is_in};
use super::read_only::Reads;
use super::{SimpleCommand, Word, exceeding_args, network};

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

/// The words of a lasting permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedWords {
    pub words: Vec<String>,
    /// True if no other words may follow.
    pub is_exact: bool,
}

/// Subcommands that send content away, to a place that further words may name.
const PUBLISHING: WordList = "push publish upload deploy unpublish release send-email";

/// Subcommands after which a program runs what is named next.
const RUNNING_SUBCOMMANDS: WordList =
    "run exec x shell start task script invoke do dev dlx run-script tool";

/// Subcommands that fetch a program and run it.
const CREATING_SUBCOMMANDS: WordList = "create init";

/// The words of a command that a lasting permission for it should name, such as `cargo test`. `None` if
/// there should be no such permission: for interpreters, wrappers, programs that can do too many
/// things, and those that fail without the network, which a permission does not open.
pub fn suggest_prefix(command: &SimpleCommand) -> Option<SuggestedWords> {
    // `npx` may do without.
    let is_runner = programs::find(command.program()).runs_installed_after.contains(&"");
    let is_useless = network::needs_network(command) && !is_runner;
    suggest(command).filter(|_| !is_useless)
}

/// The words of a command that a lasting permission should name which also gives it the network or other access. `None`
/// also for programs and subcommands that send content to wherever further words say.
pub fn suggest_prefix_with_access(command: &SimpleCommand) -> Option<SuggestedWords> {
    let publishes = command.words.get(1).is_some_and(|sub| is_in(PUBLISHING, &sub.text));
    let network = programs::find(command.program()).network;
    let always_sends = matches!(network, NetworkUse::Always);
    suggest(command).filter(|_| !publishes && !always_sends)
}

fn suggest(command: &SimpleCommand) -> Option<SuggestedWords> {
    let is_indirect = !command.wrappers.is_empty() || command.has_unknown_args;
    if is_indirect
        || !is_program_name(command.words.first()?)
        || exceeding_args::exceeds_prefix(command)
    {
        return None;
    }
    let counted = word_count(&command.words).or_else(|| network_word_count(&command.words));
    let (count, is_exact) = match counted? {
        WordCount::First(count) => (count, false),
        WordCount::All => (command.words.len(), true),
    };
    let words = command.words.get(..count)?;
    words.iter().all(is_literal).then(|| SuggestedWords {
        words: words.iter().map(|word| word.text.clone()).collect(),
        is_exact,
    })
}

/// The words of a command that say what it does.
enum WordCount {
    /// The first ones, and others may follow.
    First(usize),
    /// All, and no others.
    All,
}

/// The words that say what a command does.
fn word_count(words: &[Word]) -> Option<WordCount> {
    let (program, rest) = words.split_first()?;
    let sub = rest.first();
    let grant = programs::find(&program.text).grant;
    let all = (words.len() <= MAX_EXACT_WORDS).then_some(WordCount::All);
    match (grant, tool_behind_runner(words).map(|at| at + 1), sub) {
        (Grant::Name, ..) => Some(WordCount::First(1)),
        (_, Some(count), _) => Some(WordCount::First(count)),
        (Grant::Forms(forms), None, sub) => {
            let sub = sub?.text.as_str();
            let form = forms
                .iter()
                .find(|form| form.subcommands.is_empty() || is_in(form.subcommands, sub))?;
            let named = words.get(1..form.words)?;
            let runs_anything = words.get(2).is_some_and(|word| is_in(form.except, &word.text));
            let is_fine = named.iter().all(is_action) && !runs_anything;
            is_fine.then_some(WordCount::First(form.words))
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
            Some(WordCount::First(2))
        }
        _ => all,
    }
}

/// The words of a command that say what it does with the network: those of `npm install`, `git fetch`, `pip install`.
/// `None` if it sends content away, or its subcommand does not say enough.
fn network_word_count(words: &[Word]) -> Option<WordCount> {
    let (program, rest) = words.split_first()?;
    let network = programs::find(&program.text).network;
    let open = [PUBLISHING, RUNNING_SUBCOMMANDS, CREATING_SUBCOMMANDS];
    let sub = rest
        .first()
        .filter(|sub| is_action(sub) && !open.iter().any(|list| is_in(list, &sub.text)))?;
    let is_by_subcommand = !matches!(network, NetworkUse::Never | NetworkUse::Always);
    (is_by_subcommand && network.is_used(rest) && network.is_used(std::slice::from_ref(sub)))
        .then_some(WordCount::First(2))
}

/// The index of the program that a runner runs: `npx jest`, `uv run pytest`.
pub(super) fn tool_behind_runner(words: &[Word]) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::super::read_only::tests::simple;
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        let got = suggest_prefix(&simple(line)).map(|prefix| {
            format!("{}{}", if prefix.is_exact { "=" } else { "" }, prefix.words.join(" "))
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
}
