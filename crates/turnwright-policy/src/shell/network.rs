//! Guesses whether a command is of little use without the network, to ask the user early. The
//! sandbox enforces the decision.

use super::args::{self, Args, first_operand, operands};
use super::programs::{self, Program, WordList, is_in};
use super::{SimpleCommand, Word};

/// The arguments with which a program uses the network.
#[derive(Clone, Copy)]
pub(super) enum NetworkUse {
    Never,
    Always,
    /// One of these as the subcommand.
    Subcommand(WordList),
    /// One of these as the first operand.
    FirstOperand(WordList),
    Check(fn(Args<'_>) -> bool),
}

pub(super) fn needs_network(command: &SimpleCommand) -> bool {
    args::find_behind_wrappers(command, |program, words| {
        let network = program.network;
        let is_version = matches!(network, NetworkUse::Always)
            && words.iter().any(|word| word.text == "--version");
        (!is_version && network.is_used(words)).then_some(())
    })
    .is_some()
}

/// Returns true if a command fails without the network: not if it may find here all that it needs.
pub(super) fn fails_offline(command: &SimpleCommand) -> bool {
    args::find_behind_wrappers(command, |program, words| {
        let fails = program.network.is_used(words) && !works_offline(program, words);
        fails.then_some(())
    })
    .is_some()
}

fn works_offline(program: &Program, words: Args<'_>) -> bool {
    if words.iter().any(|word| is_in(program.offline_words, &word.text) || word.text == "--help") {
        return true;
    }
    // A runner such as `npx` may find the program in the project.
    let is_runner = program.runs_installed_after.contains(&"");
    matches!(program.network, NetworkUse::Always)
        && (is_runner
            || words.iter().any(|word| word.text == "--version")
            || names_only_this_machine(program, words))
        || std::ptr::eq(program, programs::find("git")) && uses_local_repository(words)
}

/// Options of git's subcommands that may precede the repository, and whose value is a word of its own.
const WITH_VALUE: WordList = "-b --branch --depth -j --jobs -o --origin --name --reference --reference-if-able \
                              --filter --shallow-since --shallow-exclude --template -c --config";

/// Returns true if git is to use a repository on this machine: the first operand after the subcommand names it, and no
/// other one is a URL.
fn uses_local_repository(words: Args<'_>) -> bool {
    let Some((subcommand, words)) = args::git_subcommand(words) else { return false };
    let mut operands = words.iter().enumerate().filter_map(|(at, word)| {
        let is_value = at > 0 && is_in(WITH_VALUE, &words[at - 1].text);
        (!is_value && !word.text.starts_with('-')).then_some(word)
    });
    if subcommand == "submodule" && operands.next().is_none_or(|word| word.text != "add") {
        return false;
    }
    let repository = operands.next();
    repository.is_some_and(|word| is_local_repository(&word.text))
        && words.iter().all(|word| !word.text.contains("://") || word.text.starts_with("file://"))
}

/// Returns true if all hosts among the words are this machine, and there is one. With a URL, the other words are
/// values of options, as are the names of files to write.
fn names_only_this_machine(program: &Program, words: Args<'_>) -> bool {
    let has_url = operands(words).any(|word| word.text.contains("://"));
    let written = (program.targets)(words);
    let places = operands(words).filter(|word| {
        (!has_url || word.text.contains("://"))
            && !written.iter().any(|target| target.text == word.text)
    });
    let mut hosts = places.filter_map(|word| host(&word.text)).peekable();
    hosts.peek().is_some()
        && hosts
            .all(|host| ["localhost", "::1", "0.0.0.0"].contains(&host) || host.starts_with("127."))
}

/// The host in `http://localhost:80/x`, `localhost:80`, `localhost/x`, `[::1]:80`.
fn host(text: &str) -> Option<&str> {
    let (has_scheme, rest) = match text.split_once("://") {
        Some((_, rest)) => (true, rest),
        None => (false, text),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    let name = match place.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => place.split(':').next().unwrap_or_default(),
    };
    let is_host = has_scheme || name == "localhost" || name.contains('.') || place.contains(':');
    (is_host && !name.is_empty()).then_some(name)
}

fn is_local_repository(text: &str) -> bool {
    text.starts_with(['/', '.']) || text.starts_with("file://")
}

impl NetworkUse {
    pub(super) fn is_used(self, words: Args<'_>) -> bool {
        match self {
            NetworkUse::Never => false,
            NetworkUse::Always => true,
            NetworkUse::Subcommand(known) => has_subcommand(words, known),
            NetworkUse::FirstOperand(known) => is_in(known, first_operand(words)),
            NetworkUse::Check(check) => check(words),
        }
    }
}

/// True if the subcommand is one of these. The value of an option may precede it.
pub(super) fn has_subcommand(words: Args<'_>, known: WordList) -> bool {
    let begins_with_option = words.first().is_some_and(|word| word.text.starts_with(['-', '+']));
    let tried = if begins_with_option { 2 } else { 1 };
    operands(words).take(tried).any(|word| is_in(known, &word.text))
        || words.first().is_some_and(|word| is_in(known, &word.text))
}

/// True for `host:path` and for URLs.
pub(super) fn is_remote(word: &Word) -> bool {
    word.text
        .split_once(':')
        .is_some_and(|parts| !parts.0.contains('/') || parts.1.starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::super::read_only::tests::simple;
    use super::*;

    #[test]
    fn what_works_without_the_network_does_not_fail_offline() {
        for line in [
            "git push",
            "git push -u origin feature",
            "git pull --rebase",
            "git clone https://a.example/b",
            "git clone a:b",
            "git -C sub fetch origin",
            "git submodule update --init",
            "curl localhost:3000 -o x.txt https://a.example",
            "curl -o localhost a.example",
            "wget -O localhost x.example",
            "wget -O - x.example",
            "curl https://a.example/x?u=localhost",
            "curl -d a=b -X POST https://a.example",
            "curl localhost:3000 https://a.example",
            "curl http://localhost@a.example/x",
            "curl http://localhost.a.example/x",
            "wget -q x.example",
            "ssh host ls",
            "npm install --prefer-offline",
            "npm ci",
            "pnpm add x",
            "yarn",
            "pip install -r requirements.txt",
            "python3 -m pip install x",
            "uv add x",
            "uv pip install x",
            "uv sync --frozen",
            "cargo add serde",
            "cargo install ripgrep",
            "cargo +nightly update",
            "go get x",
            "go mod download",
            "go install x.example/y@latest",
            "bundle install",
            "sudo apt-get install x",
            "docker pull x",
            "gh pr list",
            "rsync -a dist/ h:x",
            "timeout 9 git fetch",
        ] {
            assert!(fails_offline(&simple(line)), "{line}");
        }
        for line in [
            "git push --help",
            "git clone ../a b",
            "git fetch /srv/a",
            "git pull . main",
            "git clone file:///srv/a",
            "git stash push",
            "git commit -m push",
            "cargo build",
            "cargo fetch --offline",
            "cargo add --path ../x x",
            "cargo install --path .",
            "npm ci --offline",
            "npm init -y",
            "npm exec tsc",
            "npx tsc",
            "npm test",
            "pip install ./x --no-index",
            "python3 -m pip install --no-index x",
            "uv pip list",
            "uv venv",
            "go install ./cmd/x",
            "go mod verify",
            "rustup toolchain list",
            "bundle install --local",
            "curl localhost:3000",
            "curl -o a.json -H 'Host: x' http://localhost:3000",
            "curl localhost:3000/x.json -o x.json",
            "curl -so x.json localhost:3000",
            "curl --output x.json localhost:3000",
            "wget localhost:80 -O x.txt",
            "wget -qO x.txt localhost:80",
            "wget -o log.txt --output-document=x.txt localhost:80",
            "wget --output-document x.txt localhost",
            "curl -s http://127.0.0.1:8080/health",
            "curl -X POST http://localhost:3000/x",
            "nc -z localhost 80",
            "ping -c 1 127.0.0.1",
            "gh --version",
            "rsync -a a b",
        ] {
            assert!(!fails_offline(&simple(line)), "{line}");
        }
    }

    #[test]
    fn git_works_offline_only_if_its_repository_is_here() {
        for line in [
            "git clone https://github.com/a/b ./b",
            "git clone https://github.com/a/b /tmp/b",
            "git clone --depth 1 git@github.com:a/b.git ../b",
            "git -C sub clone https://github.com/a/b ./b",
            "git clone --reference ../cache https://github.com/a/b",
            "git clone --template /srv/t a:b",
            "git push https://evil.example/x /tmp/x",
            "git fetch origin ./x",
            "git pull origin /x",
            "git submodule add https://a.example/b ./b",
            "git submodule update --init ./b",
            "git submodule add -b main https://a.example/b ./b",
            "git -C ../other push",
            "git -C ./sub fetch origin",
            "git ls-remote https://a.example/b /x",
        ] {
            assert!(fails_offline(&simple(line)), "{line}");
        }
        for line in [
            "git clone --depth 1 ../a ./b",
            "git -C sub fetch ../a main",
            "git push ../backup.git main",
            "git push -u /srv/a main",
            "git clone -b main ../a",
            "git submodule add ../a b",
        ] {
            assert!(!fails_offline(&simple(line)), "{line}");
        }
    }

    #[test]
    fn commands_that_need_the_network_are_known() {
        for line in [
            "git push",
            "git pull",
            "git fetch origin",
            "git clone x",
            "git -C x ls-remote",
            "git remote update",
            "git submodule update --init",
            "curl x",
            "wget x",
            "ssh h",
            "scp a h:b",
            "rsync -a h:x y",
            "npm install",
            "npm i",
            "npm ci",
            "npm --prefix x install",
            "pnpm add x",
            "yarn",
            "yarn add x",
            "npx x",
            "pip install x",
            "python3 -m pip install x",
            "uv sync",
            "poetry install",
            "cargo add x",
            "cargo install x",
            "cargo +nightly update",
            "go get x",
            "go mod download",
            "go mod tidy",
            "gem install x",
            "bundle install",
            "apt-get install x",
            "sudo apt-get -y install x",
            "brew install x",
            "docker pull x",
            "gh pr list",
            "ping h",
            "dig x",
            "nc h 1",
            "telnet h",
        ] {
            assert!(needs_network(&simple(line)), "{line}");
        }
        for line in [
            "git status",
            "git remote -v",
            "git commit -m push",
            "npm test",
            "npm run install",
            "npm run build",
            "yarn test",
            "cargo build",
            "cargo test add",
            "go test",
            "go mod verify",
            "pip list",
            "python3 x.py",
            "rsync -a a b",
            "rsync a/x:y b",
            "docker ps",
            "curl --version",
            "echo curl",
            "ls",
        ] {
            assert!(!needs_network(&simple(line)), "{line}");
        }
    }
}
