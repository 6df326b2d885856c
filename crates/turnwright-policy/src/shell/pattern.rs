//! The words of a lasting permission: a program with what it is to do, so that whoever grants it
//! knows what that is. Never for what can do anything.

use super::{Simple, Word, network, widen};

/// Programs that do one thing, so that their name says enough. What they do with the code of the
/// project is what the project says.
const ALONE: &str = "ava black clang-format clippy-driver eslint flake8 gofmt isort jest mkdir mocha mypy \
    oxlint phpstan phpunit prettier py.test pylint pyright pytest rspec rubocop rustfmt shellcheck \
    stylelint touch tsc vue-tsc";

/// Programs that run anything: for them there is a permission only in the forms below, or none.
const NEVER: &str = "ansible ansible-playbook ash awk bash bun bunx busybox builtin bundle chroot cmake \
    command crush csh dash dd deno do doas docker docker-compose elixir env eval exec expect fish fly \
    find flatpak ftp gawk gdb ghci go gradle guile http https init ionice iex ipython irb java jjs \
    jshell julia just ksh kubectl less lldb lua luajit make man mawk mix mvn mysql nc ncat netcat nice \
    node nodejs nohup nsenter npm npx nushell nu ocaml osascript parallel perl php pkexec pnpm \
    pnpx poetry podman powershell psql pwsh python python2 python3 R raku rlwrap rm rsync Rscript ruby \
    runuser sbcl scp screen script sed setarch setsid sftp sh socat source . sqlite3 ssh stdbuf strace \
    su sudo swift systemctl systemd-run tar tclsh tee telnet time timeout tmux toybox unshare uv \
    uvx vi vim nvim emacs ed ex nano watch wget curl wish xargs xonsh yarn zsh cp mv ln chmod chown \
    kill pkill killall git cargo dotnet rustup pip pip3 gem trap export alias set unset declare";

/// Subcommands of programs that have many, and how many words say enough.
const SUBS: &[(&str, &str, usize)] = &[
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

/// Third words that are as open as a program alone.
const OPEN_ACTIONS: &[(&str, &str, &str)] =
    &[("docker", "compose", "exec run"), ("git", "bisect", "run"), ("git", "worktree", "")];

/// What runs one of the programs that do one thing.
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

/// What is as good as alone behind a runner or with one word.
const RUN: &str = "vitest ruff unittest rake biome";

/// How long a command without a known form may be, to be granted as it is.
const MAX_EXACT: usize = 6;

/// The words, if there should be a lasting permission at all.
pub(super) fn pattern(command: &Simple) -> Option<Vec<String>> {
    let is_hidden = !command.wrappers.is_empty() || command.is_open;
    if is_hidden || !is_program(command.words.first()?) || widen::widens(command) {
        return None;
    }
    let count = count(&command.words)?;
    let words = command.words.get(..count)?;
    // Without the network it fails, and a permission never opens that.
    let is_vain = network::wants(command) && !is_in("npx bunx uvx", command.program());
    (!is_vain && words.iter().all(is_literal))
        .then(|| words.iter().map(|it| it.text.clone()).collect())
}

/// How many of the words say what it does.
fn count(words: &[Word]) -> Option<usize> {
    let (program, rest) = words.split_first()?;
    let program = program.text.as_str();
    if is_in(ALONE, program) {
        return Some(1);
    }
    if let Some(count) = behind_runner(words) {
        return Some(count);
    }
    let sub = rest.first();
    let known = sub.and_then(|sub| {
        let is_known = |it: &&(&str, &str, usize)| {
            it.0 == program && (is_in(it.1, &sub.text) || it.1.is_empty())
        };
        SUBS.iter().find(is_known)
    });
    match known {
        Some((.., count)) => {
            let named = words.get(1..*count)?;
            (named.iter().all(is_action) && !is_open_action(words)).then_some(*count)
        }
        None if is_in(NEVER, program) => None,
        // Nobody knows what it does with the name of another program.
        None if sub.is_some_and(|it| is_in(NEVER, &it.text) || is_in(ALONE, &it.text)) => None,
        None if sub.is_some_and(is_action) => Some(2),
        None => (words.len() <= MAX_EXACT).then_some(words.len()),
    }
}

fn behind_runner(words: &[Word]) -> Option<usize> {
    let runner = RUNNERS.iter().find(|runner| {
        runner.len() < words.len() && runner.iter().zip(words).all(|it| *it.0 == it.1.text)
    })?;
    let run = words.get(runner.len())?.text.as_str();
    (is_in(ALONE, run) || is_in(RUN, run)).then_some(runner.len() + 1)
}

fn is_open_action(words: &[Word]) -> bool {
    let [program, sub, action, ..] = words else { return false };
    let is_it = |it: &&(&str, &str, &str)| it.0 == program.text && it.1 == sub.text;
    OPEN_ACTIONS.iter().find(is_it).is_some_and(|it| is_in(it.2, &action.text))
}

/// A name that is looked up where programs are.
fn is_program(word: &Word) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_.+-".contains(&it);
    let text = word.text.as_str();
    !word.is_glob && !text.is_empty() && !text.starts_with(['-', '.']) && text.bytes().all(is_plain)
}

/// A word that says what to do, not with what.
fn is_action(word: &Word) -> bool {
    let text = word.text.as_str();
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_:-".contains(&it);
    !word.is_glob
        && text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.bytes().all(is_plain)
        && text.len() <= 40
}

/// A word that stands in a rule as it is.
fn is_literal(word: &Word) -> bool {
    let is_plain = |it: char| it.is_ascii_graphic() && !"*?[](){}\"'`$\\=<>|&;!~#".contains(it);
    !word.is_glob && !word.text.is_empty() && word.text.chars().all(is_plain)
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
}

#[cfg(test)]
mod tests {
    use super::super::known::tests::simple;
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        let got = pattern(&simple(line)).map(|it| it.join(" "));
        assert_eq!(got.as_deref(), expected, "{line}");
    }

    #[test]
    fn a_lasting_permission_is_for_a_program_and_what_it_is_to_do() {
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
    fn there_is_none_for_what_can_do_anything() {
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
        let wrapped = Simple { wrappers: vec!["nohup".to_owned()], ..simple("cargo test") };
        let open = Simple { is_open: true, ..simple("cargo test") };
        assert_eq!((pattern(&wrapped), pattern(&open)), (None, None));
    }

    #[test]
    fn there_is_none_for_what_leaves_the_project_or_destroys() {
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
