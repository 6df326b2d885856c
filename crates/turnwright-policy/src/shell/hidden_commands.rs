//! Finds the commands that a line runs without being made of them: those behind runners such as `uv run` and `mise
//! exec`, in aliases that git is given, and in text that a shell reads from its input. Rules that deny or ask are about
//! them, too. They allow nothing. Also finds the files and hosts that a command may name.

use std::path::{Component, Path, PathBuf};

use super::args::{Args, name};
use super::harm::ruin;
use super::programs::{self, WordList, is_in};
use super::syntax::{command_scanner, shell_state};
use super::{Script, SimpleCommand, classify};

/// Programs that run what follows their options.
const RUNNERS: WordList = "arch bunx bwrap caffeinate chronic concurrently cpulimit cross-env dbus-run-session \
    dotenv eatmydata entr faketime firejail gosu hyperfine nix-shell npx numactl pnpx proxychains proxychains4 \
    rlwrap sg ssh-agent torsocks watchexec xcrun xvfb-run";
/// Programs that do so after one of the words below.
const SUBCOMMAND_RUNNERS: WordList = "asdf aws-vault bun bundle chamber conda devbox direnv doppler dotenvx flox \
    hatch infisical mamba micromamba mise nix nodenv npm op opam pdm pipenv pixi pnpm poetry pyenv rbenv rustup \
    rye screen sops stack tmux uv volta yarn zellij";
const RUNNING_WORDS: WordList = "-dm activate develop exec exec-env new new-session new-window run send-keys shell split-window x";
/// Runners whose first operand is a folder, a file, a toolchain, a login or a group.
const WITH_OPERAND: WordList = "aws-vault chamber direnv nix rustup sg sops";
/// Runners whose operands are lines, and the options of others in front of one.
const LINE_RUNNERS: WordList = "concurrently hyperfine sg sops tmux watchexec";
const LINE_OPTIONS: WordList = "-c --call --command --run";

/// Programs whose bare words are subcommands and tasks: `npm run build` does not name the folder `build`.
const TASK_PROGRAMS: WordList = "ant bazel bun bunx bundle cargo cmake composer deno docker docker-compose dotnet gh glab \
    go gradle gradlew helm just kubectl make mise mix mvn mvnw ninja npm npx nx pip pnpm podman poetry rake swift task \
    terraform turbo uv yarn";
/// Options of some programs whose value is a text for people, and those of any program that name what is left out.
const TEXT_OPTIONS: WordList =
    "-b --body -d --description -m --message -n --notes -t --title --subject";
const EXCLUDING_OPTIONS: WordList = "--exclude --exclude-dir --ignore";

/// How paths in the home folder begin, and how those in the current folder may.
const IN_HOME: [&str; 3] = ["~/", "$HOME/", "${HOME}/"];
const IN_FOLDER: [&str; 3] = ["~+/", "$PWD/", "${PWD}/"];

/// The commands that a script runs besides its own, as far as its words tell.
pub(crate) fn hidden_commands(script: &Script) -> Vec<SimpleCommand> {
    let reads_commands = script.commands.iter().any(ruin::is_shell_with_input);
    let mut found = Vec::new();
    let mut lines = if reads_commands { script.texts.clone() } else { Vec::new() };
    for command in &script.commands {
        let program = name(command.program());
        let arguments = command.words.get(1..).unwrap_or_default();
        if let Some(words) = behind_runner(program, arguments) {
            lines.extend(lines_among(program, words));
            found.extend(started(program, words).map(|start| SimpleCommand {
                words: start.to_vec(),
                has_unknown_args: command.has_unknown_args,
                ..SimpleCommand::default()
            }));
        } else if program == "git" {
            lines.extend(aliases(arguments));
        } else if reads_commands && is_in("echo printf", program) {
            let printed = command.argv().skip(1).map(|text| text.replace("\\n", "\n"));
            let operands = command.argv().skip(1).skip_while(|text| text.starts_with('-'));
            lines.push(operands.collect::<Vec<_>>().join(" "));
            lines.extend(printed);
        }
    }
    found.extend(lines.iter().flat_map(|line| command_scanner::scan(line).commands));
    found
}

/// The paths that the words of a command may name if it runs in `workdir`: what a reader reads, and of any other program
/// each argument and the value in it, as in `-d @x` and `if=x`.
pub(crate) fn named_paths(
    command: &SimpleCommand,
    workdir: &Path,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    let folder = workdir.join(command.folder.as_deref().unwrap_or(Path::new("")));
    let class = classify(command);
    let mut names = class.reads;
    if !class.is_read_only {
        names.extend(words_and_values(command).map(PathBuf::from));
    }
    names.iter().map(|name| absolute(&name.to_string_lossy(), &folder, home)).collect()
}

/// The hosts that the words of a command may name, in lower case.
pub(crate) fn named_hosts(command: &SimpleCommand) -> Vec<String> {
    if classify(command).is_read_only {
        return Vec::new();
    }
    words_and_values(command).filter_map(programs::host).map(str::to_lowercase).collect()
}

/// The arguments of a command that may name something, and the values in them.
fn words_and_values(command: &SimpleCommand) -> impl Iterator<Item = &str> {
    let program = name(command.program());
    let words = command.argv().zip(command.argv().skip(1));
    let named = words.filter(move |(before, word)| !names_nothing(program, before, word));
    let names = named.flat_map(|(_, word)| {
        let value = word.split_once(['=', '@']).map_or("", |parts| parts.1);
        let mounted = word.split_once(":/").map_or("", |parts| parts.0);
        [word, value.trim_start_matches('@'), mounted]
    });
    names.filter(|name| !name.is_empty())
}

/// True for an argument that names nothing that the program opens: a message, what is left out, or a task.
fn names_nothing(program: &str, before: &str, word: &str) -> bool {
    let own_option = word.split_once('=').filter(|_| word.starts_with('-'));
    let option = own_option.map_or(before, |parts| parts.0);
    let is_text = match program {
        "git" => {
            let letters = option.strip_prefix('-').unwrap_or_default();
            letters == "-message" || !letters.starts_with('-') && letters.ends_with('m')
        }
        "gh" | "glab" => is_in(TEXT_OPTIONS, option),
        _ => {
            is_in(TASK_PROGRAMS, program)
                && !word.contains(['/', '\\', '.', '=', '@', '*', '?', '[', '$'])
        }
    };
    is_text || is_in(EXCLUDING_OPTIONS, option)
}

fn absolute(name: &str, folder: &Path, home: Option<&Path>) -> PathBuf {
    let path = name.strip_prefix("file://").unwrap_or(name);
    let in_home = IN_HOME.iter().find_map(|start| path.strip_prefix(*start));
    let in_folder = IN_FOLDER.iter().find_map(|start| path.strip_prefix(*start));
    without_dots(&match in_home {
        Some(rest) => home.unwrap_or(folder).join(rest),
        None => folder.join(in_folder.unwrap_or(path)),
    })
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

fn behind_runner<'a>(program: &str, arguments: Args<'a>) -> Option<Args<'a>> {
    if is_in(SUBCOMMAND_RUNNERS, program) {
        let at = arguments.iter().position(|word| is_in(RUNNING_WORDS, &word.text))?;
        return Some(&arguments[at + 1..]);
    }
    is_in(RUNNERS, program).then_some(arguments)
}

/// What may be the command among the words of a runner: what follows its options, whose values are not known, and `--`.
fn started<'a>(program: &str, words: Args<'a>) -> impl Iterator<Item = Args<'a>> {
    let dashes = words.iter().position(|word| word.text == "--");
    let own = &words[..dashes.unwrap_or(words.len())];
    let mut starts: Vec<usize> = dashes.map(|at| at + 1).into_iter().collect();
    let mut may_be_value = is_in(WITH_OPERAND, program);
    for (at, word) in own.iter().enumerate() {
        if word.text.starts_with('-') {
            may_be_value = true;
        } else if shell_state::assignment(&word.text).is_none() {
            starts.push(at);
            if !std::mem::take(&mut may_be_value) {
                break;
            }
        }
    }
    starts.into_iter().map(move |at| &words[at..])
}

fn lines_among(program: &str, words: Args<'_>) -> impl Iterator<Item = String> {
    let takes_lines = is_in(LINE_RUNNERS, program);
    let lines = words
        .iter()
        .enumerate()
        .filter(move |(at, _)| takes_lines || *at > 0 && is_in(LINE_OPTIONS, &words[at - 1].text));
    lines.map(|(_, word)| word.text.clone())
}

/// What the aliases run that git is given or told to keep: `alias.x=push`, `alias.x '!git push'`.
fn aliases(arguments: Args<'_>) -> impl Iterator<Item = String> {
    arguments.iter().enumerate().filter_map(move |(at, word)| {
        let alias = word.text.strip_prefix("alias.")?;
        let next = arguments.get(at + 1).map(|next| next.text.as_str());
        let value = alias.split_once('=').map(|parts| parts.1).or(next)?;
        Some(value.strip_prefix('!').map_or_else(|| format!("git {value}"), str::to_owned))
    })
}
