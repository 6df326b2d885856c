//! Guesses whether a command is of little use without the network, to tell the user early. The
//! sandbox enforces the decision.

use super::args::{self, Args, first_operand, operands};
use super::programs::{WordList, is_in};
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
        let is_version =
            matches!(network, NetworkUse::Always) && words.iter().any(|it| it.text == "--version");
        (!is_version && network.is_used(words)).then_some(())
    })
    .is_some()
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
    let begins_with_option = words.first().is_some_and(|it| it.text.starts_with(['-', '+']));
    let tried = if begins_with_option { 2 } else { 1 };
    operands(words).take(tried).any(|it| is_in(known, &it.text))
        || words.first().is_some_and(|it| is_in(known, &it.text))
}

/// True for `host:path` and for URLs.
pub(super) fn is_remote(word: &Word) -> bool {
    word.text.split_once(':').is_some_and(|it| !it.0.contains('/') || it.1.starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::super::read_only::tests::simple;
    use super::*;

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
