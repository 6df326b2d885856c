//! The table of programs. Each has one row, in the file of its topic, that says with which
//! arguments it only reads, what it destroys, whether it uses the network, which other commands it
//! runs, and what a lasting permission for it covers. A program may do anything that its row does not exclude.
//!
//! It is also guessed from the rows whether a command is of little use without the network, to ask the user early. The
//! sandbox enforces the decision.

mod files;
mod git;
mod git_use;
mod projects;
mod proxied;
mod services;
mod system;
mod text;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::args::{self, Args, OptionTable, operands};
use super::args::{FilesRead, Operands, Reads, UnknownArgs};
use super::harm::{Danger, FindTargets};
use super::prefix::{Form, Grant};
use super::{OperandUse, SimpleCommand, Word};

pub(super) use git::{starts_no_other, tracks_branches};
pub use git_use::{GitContentQuery, GitProgram, GitUse, may_show_any_content};
pub(super) use git_use::{git_folder, leads_elsewhere, shown_files};
pub use proxied::is_ssh_address;
pub(super) use proxied::uses_proxy;
pub(super) use services::{has_deleting_statement, names_client};

/// Words that are separated by blanks.
pub(crate) type WordList = &'static str;

/// Declares the rows of programs. A line for each field has its type, the value that it has in a row that says nothing
/// about it, and the method that returns a row with another value, if that is no more than to set it. A line for each
/// flag, which is false in such a row, has the method that returns a row in which it is true.
macro_rules! program_rows {
    (
        $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr $(=> $method:ident)?,)*;
        $($(#[$flag_doc:meta])* $flag:ident => $flag_method:ident,)*
    ) => {
        /// The row of a program, or of a subcommand of one.
        #[derive(Clone, Copy)]
        pub(super) struct Program {
            $($(#[$doc])* pub(super) $field: $type,)*
            $($(#[$flag_doc])* pub(super) $flag: bool,)*
        }

        const fn program(names: WordList) -> Program {
            Program { $($field: $default,)* $($flag: false,)* }.with_names(names)
        }

        impl Program {
            $($(const fn $method(self, $field: $type) -> Program {
                Program { $field, ..self }
            })?)*
            $(const fn $flag_method(self) -> Program {
                Program { $flag: true, ..self }
            })*
        }
    };
}

program_rows! {
    names: WordList = "" => with_names,
    /// The arguments with which it only reads.
    reads: Reads = Reads::Unknown,
    /// The effect of unknown arguments on what it reads.
    unknown_args: UnknownArgs = UnknownArgs::Refused => unknown_args,
    /// The arguments with each of which it prints its version, and runs nothing from the current
    /// folder. Others, such as yarn, Maven and .NET, run the version that the folder names.
    version: WordList = "" => version,
    /// Arguments with which it destroys or publishes something.
    dangers: &'static [Danger] = &[] => dangers,
    /// Says what it would do to the whole system with these arguments, if anything, whatever files it is given.
    catastrophe: fn(Args<'_>) -> Option<&'static str> = |_| None => catastrophe,
    /// The files that it deletes, changes or overwrites, as far as that can ruin a system.
    targets: FindTargets = |_| Vec::new() => targets,
    /// The use that it makes of the files that its operands name.
    operand_use: OperandUse = OperandUse::Unknown => operand_use,
    /// Destruction that every mode asks about.
    ruins: &'static [Danger] = &[] => ruins,
    network: NetworkUse = NetworkUse::Never => network,
    /// Words with which it works without the network all the same.
    offline_words: WordList = "" => offline_words,
    /// Options, as `has_exceeding_option` finds them, that a lasting permission does not cover.
    options_outside_grant: WordList = "" => options_outside_grant,
    /// Options of a task runner whose value is the next word.
    task_options_with_value: WordList = "" => task_options_with_value,
    /// The extent of a lasting permission for it.
    grant: Grant = Grant::Guessed => grant,
    /// The words after which it runs a program that is installed in the project; `""` if that
    /// follows its own name.
    runs_installed_after: &'static [&'static str] = &[] => runs_installed_after,
    starts: Starts = Starts::Nothing => starts,
    /// Counts the words that belong to it if it is a wrapper; `None` if that is not clear.
    wrapper_words: fn(&SimpleCommand) -> Option<usize> = |_| None => wrapper_words,
    subcommands: &'static [Program] = &[] => subcommands,
    ;
    /// True if it runs code that its operands name. A lasting permission covers only those in the folder.
    runs_files => runs_files,
    /// True if it takes the names of tasks, each of which runs commands.
    runs_tasks => runs_tasks,
    /// True if an argument such as `SHELL=x` acts like an option.
    takes_variables => takes_variables,
    /// True if a dangerous command is searched for among its arguments. It is not known which of its
    /// options take a value.
    is_searched => searched,
    /// True if it runs statements that it reads, as a client of a database does.
    reads_statements => statements,
    /// True if rustup provides a proxy for it.
    is_rustup_proxy => rustup_proxy,
}

/// The arguments with which a program uses the network.
#[derive(Clone, Copy)]
pub(super) enum NetworkUse {
    Never,
    Always,
    /// One of these as the subcommand.
    Subcommand(WordList),
    Check(fn(Args<'_>) -> bool),
}

/// The commands that a program starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    Nothing,
    /// An argument may be a shell line.
    Line,
    /// It is a shell.
    Shell,
    /// The program that is named after its options.
    Program,
}

impl Program {
    const fn reads(self, options: OptionTable, operands: Operands) -> Program {
        Program { reads: Reads::Options(options, operands), ..self }
    }

    const fn reads_if(self, check: fn(Args<'_>) -> FilesRead) -> Program {
        Program { reads: Reads::Check(check), ..self }
    }

    const fn grantable_prefixes(self, forms: &'static [Form]) -> Program {
        Program { grant: Grant::Forms(forms), ..self }
    }

    pub(super) fn subcommand(&self, name: &str) -> &'static Program {
        self.subcommands.iter().find(|subcommand| is_in(subcommand.names, name)).unwrap_or(&UNKNOWN)
    }
}

static UNKNOWN: Program = program("").grant(Grant::Exact);
/// It can do anything, or run arbitrary code, so no lasting permission covers it.
const ANYTHING: Program = program("").grantable_prefixes(&[]);

const TOPICS: &[&[Program]] = &[
    files::PROGRAMS,
    git::PROGRAMS,
    projects::PROGRAMS,
    services::PROGRAMS,
    system::PROGRAMS,
    text::PROGRAMS,
];

/// The row of the program with this name.
pub(super) fn find(name: &str) -> &'static Program {
    let name = if name.starts_with("mkfs.") { "mkfs" } else { name };
    INDEX.get(name).copied().unwrap_or(&UNKNOWN)
}

/// True if a text consists of digits.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// True if a list contains a word.
pub(crate) fn is_in(list: WordList, word: &str) -> bool {
    (1..=list.len()).contains(&word.len()) && list.split(' ').any(|known| known == word)
}

/// All names with their rows.
static INDEX: LazyLock<HashMap<&str, &Program>> = LazyLock::new(|| names().collect());

fn names() -> impl Iterator<Item = (&'static str, &'static Program)> {
    let rows = TOPICS.iter().copied().flatten();
    rows.flat_map(|program| program.names.split(' ').map(move |name| (name, program)))
}

/// Returns true if a command uses the network.
pub(super) fn needs_network(command: &SimpleCommand) -> bool {
    args::find_behind_wrappers(command, |program, words| {
        let is_version = matches!(program.network, NetworkUse::Always)
            && words.iter().any(|word| word.text == "--version");
        (!is_version && program.network.is_used(words)).then_some(())
    })
    .is_some()
}

/// Returns true if a command fails without the network: not if it may find here all that it needs.
pub(super) fn fails_offline(command: &SimpleCommand) -> bool {
    args::find_behind_wrappers(command, |program, words| {
        (program.network.is_used(words) && !works_offline(program, words)).then_some(())
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
            || names_only_this_machine(program, words)
            // Without a host, as in `GIT_SSH_COMMAND`, ssh connects to nothing.
            || program.names == "ssh" && bare_operands(words, SSH_WITH_VALUE).next().is_none())
        || std::ptr::eq(program, find("git")) && uses_local_repository(words)
}

/// Options of git's subcommands that may precede the repository, and whose value is a word of its own.
const WITH_VALUE: WordList = "-b --branch --depth -j --jobs -o --origin --name --reference --reference-if-able \
                              --filter --shallow-since --shallow-exclude --template -c --config";
/// Options of ssh whose value is a word of its own.
const SSH_WITH_VALUE: WordList = "-B -D -E -F -I -J -L -R -S -W -b -c -e -i -l -m -o -p -w";

/// The words that are neither options nor, after one of `with_value`, its value.
fn bare_operands(words: Args<'_>, with_value: WordList) -> impl Iterator<Item = &Word> {
    words.iter().enumerate().filter_map(move |(at, word)| {
        let is_value = at > 0 && is_in(with_value, &words[at - 1].text);
        (!is_value && !word.text.starts_with('-')).then_some(word)
    })
}

/// Returns true if git is to use a repository on this machine: the first operand after the subcommand names it, and no
/// other one is a URL.
fn uses_local_repository(words: Args<'_>) -> bool {
    let Some((subcommand, words)) = args::git_subcommand(words) else { return false };
    let mut operands = bare_operands(words, WITH_VALUE);
    if subcommand == "submodule" && operands.next().is_none_or(|word| word.text != "add") {
        return false;
    }
    operands.next().is_some_and(|word| is_local_repository(&word.text))
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
pub(super) fn host(text: &str) -> Option<&str> {
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
            NetworkUse::Subcommand(known) => names_subcommand(words, known),
            NetworkUse::Check(check) => check(words),
        }
    }
}

/// True if the subcommand is one of these. Options may precede it, each with a value.
pub(super) fn names_subcommand(words: Args<'_>, known: WordList) -> bool {
    let is_option = |word: &Word| word.text.starts_with(['-', '+']);
    let passed = (0..words.len()).find(|&at| {
        let may_be_value = at > 0 && is_option(&words[at - 1]);
        is_in(known, &words[at].text) || !is_option(&words[at]) && !may_be_value
    });
    passed.is_some_and(|at| is_in(known, &words[at].text))
}

/// True for `host:path` and for URLs.
pub(super) fn is_remote(word: &Word) -> bool {
    word.text
        .split_once(':')
        .is_some_and(|parts| !parts.0.contains('/') || parts.1.starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::super::args::tests::simple;
    use super::*;

    #[test]
    fn each_name_has_one_row() {
        for (name, program) in names() {
            assert!(!name.is_empty() && std::ptr::eq(find(name), program), "{name}");
        }
    }

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
            "ssh -v -i key -p 22 host",
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
            "ssh -v -i key -o BatchMode=yes",
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
