//! Guesses whether a command is of little use without the network, to tell the user early. The
//! sandbox enforces the decision.

use super::args::{Args, git_subcommand, operands};
use super::{SimpleCommand, Word, args};

pub(super) fn needs_network(command: &SimpleCommand) -> bool {
    args::behind_wrappers(command, |program, words| {
        program_needs_network(program, words).then_some(())
    })
    .is_some()
}

/// Programs that always use the network.
const ALWAYS: &str = "curl wget ssh scp sftp ping ping6 dig nslookup host whois nc ncat netcat telnet \
    traceroute mtr ftp lftp aria2c http https xh gh glab npx bunx pnpx uvx pipx aws gcloud az \
    gsutil heroku fly flyctl doctl kubectl oc helm rclone twine";

/// Programs with the subcommands that use the network.
const SOMETIMES: &[(&str, &str)] = &[
    (
        "npm",
        "install i ci add update up upgrade publish view info show audit outdated search exec create init login ping dedupe",
    ),
    ("pnpm", "install i add update up publish view audit outdated dlx create fetch"),
    ("yarn", "install add up upgrade publish info audit outdated dlx create"),
    ("bun", "install i add update x create publish"),
    ("pip", "install download search index wheel"),
    ("pip3", "install download search index wheel"),
    ("uv", "sync add lock pip tool publish venv"),
    ("poetry", "install add update lock publish"),
    ("pipenv", "install sync update lock"),
    ("conda", "install create update search"),
    ("cargo", "add install update publish fetch search login yank owner info"),
    ("rustup", "update install toolchain component target"),
    ("go", "get install"),
    ("gem", "install update push fetch search"),
    ("bundle", "install update add outdated"),
    ("composer", "install update require create-project"),
    ("apt", "install update upgrade full-upgrade download"),
    ("apt-get", "install update upgrade dist-upgrade download"),
    ("apk", "add update upgrade"),
    ("dnf", "install update upgrade"),
    ("yum", "install update"),
    ("pacman", "-S -Sy -Syu"),
    ("zypper", "install in update up"),
    ("brew", "install update upgrade tap fetch search"),
    ("docker", "pull push build login search buildx"),
    ("podman", "pull push build login search"),
    ("terraform", "init apply plan destroy"),
    ("dotnet", "restore add nuget"),
    ("mix", "deps.get hex.info"),
    ("flutter", "pub upgrade"),
    ("swift", "package"),
    ("pod", "install update"),
    ("deno", "install add cache"),
];

fn program_needs_network(program: &str, words: Args<'_>) -> bool {
    match program {
        "git" => git(words),
        "rsync" => operands(words).any(is_remote),
        "go" if first(words) == "mod" => operands(words)
            .nth(1)
            .is_some_and(|it| ["download", "tidy", "get"].contains(&it.text.as_str())),
        // Without arguments it installs.
        "yarn" if words.is_empty() => true,
        "python" | "python3" => {
            let is_pip =
                words.windows(2).take(4).any(|it| it[0].text == "-m" && it[1].text == "pip");
            is_pip
                && ["install", "download"]
                    .iter()
                    .any(|wanted| words.iter().any(|it| it.text == *wanted))
        }
        _ if is_in(ALWAYS, program) => !words.iter().any(|it| it.text == "--version"),
        _ => {
            let known = SOMETIMES.iter().find(|it| it.0 == program);
            known.is_some_and(|it| has_subcommand(words, it.1))
        }
    }
}

fn git(words: Args<'_>) -> bool {
    let Some((sub, words)) = git_subcommand(words) else { return false };
    match sub {
        "push" | "pull" | "fetch" | "clone" | "ls-remote" | "send-email" | "request-pull" => true,
        "remote" => ["update", "show", "prune"].contains(&first(words)),
        "submodule" => ["update", "add"].contains(&first(words)),
        "lfs" => ["fetch", "pull", "push"].contains(&first(words)),
        _ => false,
    }
}

/// True if the subcommand is one of these. The value of an option may precede it.
fn has_subcommand(words: Args<'_>, known: &str) -> bool {
    let begins_with_option = words.first().is_some_and(|it| it.text.starts_with(['-', '+']));
    let tried = if begins_with_option { 2 } else { 1 };
    operands(words).take(tried).any(|it| is_in(known, &it.text))
        || words.first().is_some_and(|it| is_in(known, &it.text))
}

fn first(words: Args<'_>) -> &str {
    operands(words).next().map_or("", |it| &it.text)
}

/// True for `host:path` and for URLs.
fn is_remote(word: &Word) -> bool {
    word.text.split_once(':').is_some_and(|it| !it.0.contains('/') || it.1.starts_with("//"))
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
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
