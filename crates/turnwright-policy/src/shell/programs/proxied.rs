//! Which commands reach other machines through a proxy, as far as their words say: with HTTP, and with the proxy that
//! variables name. It is a guess, to give a command the proxy of the sandbox in place of the whole network, and to ask
//! the user about its hosts in place of the network. A wrong guess costs a failed connection.

use super::super::args::{self, Args, name};
use super::{SimpleCommand, WordList, is_in, names_subcommand, works_offline};

/// Programs that use the network through such a proxy only. Not `gh`, which mostly publishes.
const OBEDIENT: WordList = "bun bunx bundle cargo composer conda curl deno dotnet gem git go gradle gradlew mamba mix mvn mvnw \
                            npm npx pdm pip pip3 pipenv pipx pixi pnpm pnpx poetry rustup uv uvx wget yarn";

/// Their subcommands that publish something, or say who may.
const PUBLISHING: WordList = "deprecate login logout owner publish push unpublish yank";

/// Programs that download what a project needs, with their subcommands that do so; `""` for any. Not those that run the
/// project's own tests and tasks, which have their own ideas of proxies.
const RESOLVERS: &[(&str, WordList)] = &[
    ("bunx npx pnpx uvx", ""),
    ("cabal opam stack", "build install update upgrade"),
    ("cargo", "build b check c clippy doc d metadata tree vendor generate-lockfile"),
    ("composer", "install update require create-project"),
    ("dotnet", "restore build add publish"),
    ("go", "build vet list"),
    ("gradle gradlew mvn mvnw", ""),
    ("hf huggingface-cli", "download"),
    ("npm", "exec x"),
    ("pre-commit", "autoupdate install-hooks"),
    ("tofu", "init"),
    ("uv", "run"),
];

/// Returns true if a command uses the network through a proxy, false if it uses it in another way, and `None` if it
/// does without.
pub(in crate::shell) fn uses_proxy(command: &SimpleCommand) -> Option<bool> {
    let direct = args::find_behind_wrappers(command, |program, words| {
        let needs = program.network.is_used(words) && !works_offline(program, words);
        needs.then(|| {
            // As in `python3 -m pip`.
            let module =
                words.windows(2).find(|pair| pair[0].text == "-m").map(|pair| &*pair[1].text);
            let mut names = program.names.split(' ').chain(module);
            let is_obedient = names.any(|name| is_in(OBEDIENT, name));
            let is_git = program.names == "git";
            // An answer about a host is not one about publishing there.
            let publishes =
                if is_git { !fetches(words) } else { names_subcommand(words, PUBLISHING) };
            // Elsewhere `a@b:c` is not an address.
            let uses_ssh = words
                .iter()
                .any(|word| is_ssh_address(&word.text) && (is_git || word.text.contains("://")));
            is_obedient && !publishes && !uses_ssh
        })
    });
    direct.or_else(|| resolves(command).then_some(true))
}

/// Returns true if a command downloads what a project needs, should it be missing.
fn resolves(command: &SimpleCommand) -> bool {
    let program = name(command.program());
    let words = command.words.get(1..).unwrap_or_default();
    RESOLVERS.iter().any(|(programs, subcommands)| {
        is_in(programs, program) && (subcommands.is_empty() || names_subcommand(words, subcommands))
    })
}

/// Returns true if git only gets something with these words.
fn fetches(words: Args<'_>) -> bool {
    let subcommand = args::git_subcommand(words).map(|(subcommand, _)| subcommand);
    subcommand.is_some_and(|name| is_in("clone fetch lfs ls-remote pull remote submodule", name))
        && !words.iter().any(|word| word.text.contains("push"))
}

/// Returns true for the address of a repository that is reached with SSH: `ssh://…` or `user@host:path`.
pub fn is_ssh_address(text: &str) -> bool {
    let before_path = text.split_once(':').map(|(before, _)| before);
    text.starts_with("ssh://")
        || text.starts_with("git+ssh://")
        || !text.contains("://")
            && before_path.is_some_and(|before| before.contains('@') && !before.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::super::super::args::tests::simple;
    use super::*;

    #[test]
    fn a_command_uses_the_proxy_if_it_downloads_with_http() {
        for (line, expected) in [
            ("npm install", Some(true)),
            ("npm ci --offline", None),
            ("npm install a@npm:b@1", Some(true)),
            ("npm install git+ssh://a.example/b", Some(false)),
            ("npm test", None),
            ("npm publish", Some(false)),
            ("npm install publish", Some(true)),
            ("cargo owner --add me", Some(false)),
            ("cargo install owner", Some(true)),
            ("gem push x.gem", Some(false)),
            ("npx cowsay", Some(true)),
            ("pip install x", Some(true)),
            ("python3 -m pip install x", Some(true)),
            ("timeout 9 cargo add serde", Some(true)),
            ("cargo build", Some(true)),
            ("cargo test", None),
            ("go get x", Some(true)),
            ("go build ./...", Some(true)),
            ("go test ./...", None),
            ("./gradlew build", Some(true)),
            ("mvn test", Some(true)),
            ("git fetch", Some(true)),
            ("git status", None),
            ("git push", Some(false)),
            ("git -c a.b=c push origin main", Some(false)),
            ("git -C sub fetch origin", Some(true)),
            ("gh pr create", Some(false)),
            ("git clone https://a.example/b", Some(true)),
            ("git clone git@a.example:b", Some(false)),
            ("git clone ssh://a.example/b", Some(false)),
            ("curl https://a.example", Some(true)),
            ("curl localhost:3000", None),
            ("ssh host ls", Some(false)),
            ("ssh -i key", None),
            ("rsync -a h:x y", Some(false)),
            ("docker pull x", Some(false)),
            ("mix deps.get", Some(true)),
            ("mix test", None),
            ("opam install dune", Some(true)),
            ("cabal upload x", None),
            ("stack test", None),
            ("pre-commit install-hooks", Some(true)),
            ("pre-commit run", None),
            ("hf download x", Some(true)),
            ("hf upload x", None),
            ("tofu init", Some(true)),
            ("ls -l", None),
        ] {
            assert_eq!(uses_proxy(&simple(line)), expected, "{line}");
        }
    }

    #[test]
    fn addresses_of_ssh_are_known() {
        for (text, expected) in [
            ("git@github.com:a/b.git", true),
            ("ssh://git@a.example/b", true),
            ("git+ssh://a.example/b", true),
            ("https://me@a.example:8080/b", false),
            ("main:refs/heads/x", false),
            ("@scope/name:x", false),
            ("a/b@c:d", false),
        ] {
            assert_eq!(is_ssh_address(text), expected, "{text}");
        }
    }
}
