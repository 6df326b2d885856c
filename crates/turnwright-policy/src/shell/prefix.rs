//! Suggests the words of a lasting permission: the program and what it does, so that the user knows
//! what is granted. Programs that can do anything get none.

use super::{SimpleCommand, Word, exceeding_args, network};

/// Programs that do one thing, so that their name alone says enough.
const SINGLE_PURPOSE: &str = "ava black clang-format clippy-driver eslint flake8 gofmt isort jest mkdir mocha mypy \
    oxlint phpstan phpunit prettier py.test pylint pyright pytest rspec rubocop rustfmt shellcheck \
    stylelint touch tsc vue-tsc";

/// Programs that can do anything: they get a permission only in one of the forms below, or none.
const GENERAL_PURPOSE: &str = "ansible ansible-playbook ash awk bash bun bunx busybox builtin bundle chroot cmake \
    command crush csh dash dd deno do doas docker docker-compose elixir env eval exec expect fish fly \
    find flatpak ftp gawk gdb ghci go gradle guile http https init ionice iex ipython irb java jjs \
    jshell julia just ksh kubectl less lldb lua luajit make man mawk mix mvn mysql nc ncat netcat nice \
    node nodejs nohup nsenter npm npx nushell nu ocaml osascript parallel perl php pkexec pnpm \
    pnpx poetry podman powershell psql pwsh python python2 python3 R raku rlwrap rm rsync Rscript ruby \
    runuser sbcl scp screen script sed setarch setsid sftp sh socat source . sqlite3 ssh stdbuf strace \
    su sudo swift systemctl systemd-run tar tclsh tee telnet time timeout tmux toybox unshare uv \
    uvx vi vim nvim emacs ed ex nano watch wget curl wish xargs xonsh yarn zsh cp mv ln chmod chown \
    kill pkill killall git cargo dotnet rustup pip pip3 gem trap export alias set unset declare";

/// Programs with subcommands, and how many words say enough about each.
const SUBCOMMANDS: &[(&str, &str, usize)] = &[
    (
        "git",
        "add commit status log diff show branch tag blame describe rev-parse ls-files ls-tree cat-file grep shortlog reflog switch restore checkout reset merge cherry-pick revert rebase mv rm",
        2,
    ),
    ("git", "stash worktree bisect", 3),
    (
        "cargo",
        "build b check c test t clippy fmt doc d bench run r tree metadata clean nextest llvm-cov deny audit machete",
        2,
    ),
    ("npm", "test t start stop pack ls list", 2),
    ("npm", "run run-script", 3),
    ("pnpm", "test t start ls list", 2),
    ("pnpm", "run", 3),
    ("yarn", "test start build lint check typecheck format", 2),
    ("yarn", "run", 3),
    ("bun", "test build", 2),
    ("bun", "run", 3),
    ("deno", "test fmt lint check", 2),
    ("deno", "task", 3),
    ("go", "test build vet fmt list version doc env", 2),
    ("go", "mod", 3),
    ("gradle", "test build check assemble clean lint classes compileJava compileKotlin", 2),
    ("mvn", "test compile package verify clean validate", 2),
    ("dotnet", "test build format clean", 2),
    ("docker", "ps images logs inspect version info stats", 2),
    ("docker", "compose", 3),
    ("docker-compose", "up down ps logs build start stop restart", 2),
    ("kubectl", "get describe logs", 3),
    ("swift", "build test", 2),
    ("mix", "test compile format", 2),
    ("poetry", "check show build", 2),
    ("just", "", 2),
    ("make", "", 2),
];

/// Third words that let the subcommand run anything; empty for every third word.
const GENERAL_ACTIONS: &[(&str, &str, &str)] =
    &[("docker", "compose", "exec run"), ("git", "bisect", "run"), ("git", "worktree", "")];

/// Words that run a single-purpose program.
const RUNNERS: &[&[&str]] = &[
    &["npx"],
    &["bunx"],
    &["uvx"],
    &["uv", "run"],
    &["poetry", "run"],
    &["bundle", "exec"],
    &["pnpm", "exec"],
    &["pnpm"],
    &["yarn"],
    &["python", "-m"],
    &["python3", "-m"],
];

/// Further programs that may follow a runner.
const RUNNABLE: &str = "vitest ruff unittest rake biome";

/// The maximum number of words of a command without a known form that is granted as it is.
const MAX_EXACT_WORDS: usize = 6;

/// The words, if there should be a lasting permission at all.
pub(super) fn suggest(command: &SimpleCommand) -> Option<Vec<String>> {
    let is_indirect = !command.wrappers.is_empty() || command.has_unknown_args;
    if is_indirect
        || !is_program_name(command.words.first()?)
        || exceeding_args::exceeds_prefix(command)
    {
        return None;
    }
    let count = word_count(&command.words)?;
    let words = command.words.get(..count)?;
    // A permission does not open the network, without which the command fails.
    let is_useless = network::needs_network(command) && !is_in("npx bunx uvx", command.program());
    (!is_useless && words.iter().all(is_literal))
        .then(|| words.iter().map(|it| it.text.clone()).collect())
}

/// The number of words that say what a command does.
fn word_count(words: &[Word]) -> Option<usize> {
    let (program, rest) = words.split_first()?;
    let program = program.text.as_str();
    if is_in(SINGLE_PURPOSE, program) {
        return Some(1);
    }
    if let Some(count) = after_runner(words) {
        return Some(count);
    }
    let sub = rest.first();
    let known = sub.and_then(|sub| {
        let is_known = |it: &&(&str, &str, usize)| {
            it.0 == program && (is_in(it.1, &sub.text) || it.1.is_empty())
        };
        SUBCOMMANDS.iter().find(is_known)
    });
    match known {
        Some((.., count)) => {
            let named = words.get(1..*count)?;
            (named.iter().all(is_action) && !is_general_action(words)).then_some(*count)
        }
        None if is_in(GENERAL_PURPOSE, program) => None,
        // An unknown program may run a program that is named as its argument.
        None if sub.is_some_and(|it| {
            is_in(GENERAL_PURPOSE, &it.text) || is_in(SINGLE_PURPOSE, &it.text)
        }) =>
        {
            None
        }
        None if sub.is_some_and(is_action) => Some(2),
        None => (words.len() <= MAX_EXACT_WORDS).then_some(words.len()),
    }
}

fn after_runner(words: &[Word]) -> Option<usize> {
    let runner = RUNNERS.iter().find(|runner| {
        runner.len() < words.len() && runner.iter().zip(words).all(|it| *it.0 == it.1.text)
    })?;
    let run = words.get(runner.len())?.text.as_str();
    (is_in(SINGLE_PURPOSE, run) || is_in(RUNNABLE, run)).then_some(runner.len() + 1)
}

fn is_general_action(words: &[Word]) -> bool {
    let [program, sub, action, ..] = words else { return false };
    let is_it = |it: &&(&str, &str, &str)| it.0 == program.text && it.1 == sub.text;
    GENERAL_ACTIONS.iter().find(is_it).is_some_and(|it| is_in(it.2, &action.text))
}

/// True for a plain name, which is looked up in `PATH`.
fn is_program_name(word: &Word) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_.+-".contains(&it);
    let text = word.text.as_str();
    !word.is_glob && !text.is_empty() && !text.starts_with(['-', '.']) && text.bytes().all(is_plain)
}

/// True for a word that looks like a subcommand rather than an operand.
fn is_action(word: &Word) -> bool {
    let text = word.text.as_str();
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_:-".contains(&it);
    !word.is_glob
        && text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.bytes().all(is_plain)
        && text.len() <= 40
}

/// True for a word that needs no quoting in a rule.
fn is_literal(word: &Word) -> bool {
    let is_plain = |it: char| it.is_ascii_graphic() && !"*?[](){}\"'`$\\=<>|&;!~#".contains(it);
    !word.is_glob && !word.text.is_empty() && word.text.chars().all(is_plain)
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
}

#[cfg(test)]
mod tests {
    use super::super::read_only::tests::simple;
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        let got = suggest(&simple(line)).map(|it| it.join(" "));
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
            ("mytool check a b", "mytool check"),
            ("mytool -v a.txt", "mytool -v a.txt"),
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
        assert_eq!((suggest(&wrapped), suggest(&open)), (None, None));
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
