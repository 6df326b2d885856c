//! Finds the commands that a line runs without being made of them: those behind runners such as `uv run` and `mise
//! exec`, in aliases that git is given, in lines that a program gives to a shell, and in text that a shell reads from
//! its input. Rules that deny or ask are about them, too. They allow nothing. Also finds the files and hosts that a
//! command may name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::args::{self, Args, attached_value, git_subcommand, name};
use super::harm::ruin;
use super::programs::{self, WordList, is_in};
use super::syntax::{command_scanner, shell_state};
use super::{Script, SimpleCommand, Word};
use turnwright_types::plain_path::normalize_lexically;

/// Programs that run what follows their options. For a shell that is a script.
const RUNNERS: WordList = ". arch ash bash bear bunx bwrap caffeinate capsh ccache choom chpst chronic concurrently \
    cpulimit cross-env csh dash dbus-run-session distrobox-enter distrobox-host-exec dotenv dotenv-cli dumb-init \
    eatmydata entr env-cmd envdir faketime firejail fish flatpak-spawn gchroot gdb genv gnice gnohup gosu gstdbuf \
    gtime gxargs host-spawn hyperfine ksh ld.so linux64 lldb mksh nix-shell npx numactl pnpx proot proxychains \
    proxychains4 retry rlwrap run0 sandbox-exec script sem setlock sg sh source ssh-agent steam-run su-exec \
    systemd-inhibit taskpolicy tcsh termux-chroot tini torsocks watchexec wsl wsl.exe xcrun xvfb-run zsh";
/// Programs that do so after one of the words below.
const SUBCOMMAND_RUNNERS: WordList = "asdf aws-vault bun bundle chamber conda devbox devenv direnv distrobox doppler \
    dotenvx fd fdfind flox guix gum hatch infisical jobs launchctl lerna mamba micromamba mise nix nodemon nodenv npm \
    nvm op opam pdm pipenv pipx pixi pnpm poetry proot-distro pyenv rbenv rustup rye screen sops stack tmux toolbox \
    tox uv volta yarn zellij";
const RUNNING_WORDS: WordList = "-dm -X -x --exec --exec-batch activate develop dlx exec exec-env new new-session \
    new-window run send-keys shell spin split-window x";
/// Words that mean this to one program only: `fd login src -x ls` looks for files named `login`.
const OWN_WORDS: [(&str, WordList); 3] =
    [("distrobox", "enter"), ("launchctl", "asuser bsexec submit"), ("proot-distro", "login sh")];
/// Runners whose first operand is a folder, a file, a toolchain, a container, a login or a group.
const WITH_OPERAND: WordList = "aws-vault chamber direnv distrobox distrobox-enter envdir gchroot gosu launchctl nix \
    nvm rustup script setlock sg sops su-exec";
/// Runners whose operands are lines, and the options of others in front of one.
const LINE_RUNNERS: WordList = "concurrently hyperfine nodemon sg sops tmux watchexec";
const LINE_OPTIONS: WordList = "-c --call --command --run";
/// Other programs, with their options whose value is a line for a shell, perhaps after `name=`.
const VALUE_OPTIONS: [(WordList, WordList); 7] = [
    ("bat compgen man mapfile readarray", "-C -H -P --html --pager"),
    ("git", "-O -c -u -x --config --exec --extcmd --receive-pack --upload-pack"),
    ("gmake make", "-E --eval SHELL"),
    ("gtar tar", "-F -I --checkpoint-action --info-script --to-command --use-compress-program"),
    ("rg sort split zip", "-TT --compress-program --filter --pre --unzip-command"),
    ("rsync", "-e --rsh"),
    ("scp sftp ssh", "-S -o"),
];
/// Programs in whose own language an escape such as `!` passes the rest of a line to a shell.
const ESCAPING: WordList = "ed ex gdb less lldb mariadb mysql nvim psql sed sqlite3 vi view vim";
/// Programs that run parts of their words, the most parts that a word has, and the characters in front of each:
/// `system("make")` of awk, and subscripts, which shells expand once more, as in `printf -v 'a[$(make)]'`.
const EVALUATED: [(WordList, usize, &[char]); 2] = [
    ("awk gawk mawk nawk", usize::MAX, &['"']),
    ("[ compgen declare let local printf read test typeset unset wait", 2, &['(', '`']),
];

/// Programs whose bare words are subcommands and tasks: `npm run build` does not name the folder `build`.
const TASK_PROGRAMS: WordList = "ant bazel bun bunx bundle cargo cmake composer deno docker docker-compose \
    dotnet gh glab go gradle gradlew helm just kubectl make mise mix mvn mvnw ninja npm npx nx pip pnpm podman \
    poetry rake swift task terraform turbo uv yarn";
/// Subcommands of git whose bare words are branches and remotes.
const BRANCH_COMMANDS: WordList =
    "branch checkout cherry-pick fetch merge pull push rebase reset switch tag worktree";
/// Options of some programs whose value is a text for people, and those of any program that name what is left out.
const TEXT_OPTIONS: WordList =
    "-b --body -d --description -m --message -n --notes --subject -t --title";
const EXCLUDING_OPTIONS: WordList = "--exclude --exclude-dir --ignore";

/// The beginnings of paths in the home folder, and the one that paths in the current folder may have.
const IN_HOME: [&str; 3] = ["~/", "$HOME/", "${HOME}/"];
const IN_FOLDER: [&str; 3] = ["~+/", "$PWD/", "${PWD}/"];

/// Programs that run a script or installed program which their first operand names. Rules that deny or ask look no
/// further, because many of its names are also subcommands.
const LAUNCHERS: WordList = "bun node nodejs php pnpm python python3 ruby yarn";
/// Programs that run commands on another machine or in a container. Any word behind one of the words below, which may
/// be the program itself, may begin one. Rules that deny or ask are about this machine.
const ELSEWHERE: WordList = "docker docker-compose fly flyctl heroku kubectl oc podman railway ssh";
const BEFORE: WordList = "-- exec run ssh";
/// The number of words of a command that are searched for those that it starts, and of such commands beyond which no
/// further ones are searched.
const MAX_STARTED: usize = 32;

/// The most commands that are looked for and the most words of each: after a runner with thousands of options, each
/// value could be the command.
const MAX_COMMANDS: usize = 4096;
const MAX_WORDS: usize = 64;

/// Programs that run others in the environment of a project, and those that are usually run by them.
const ENVIRONMENT_RUNNERS: WordList =
    "bundle conda hatch mamba micromamba pdm pipenv pixi poetry rye uv";
const ENVIRONMENT_PROGRAMS: WordList = "pip pip3 pytest python python3 rake rspec ruby";

/// The commands that a script runs besides its own, as far as its words tell; `None` if they are too many.
pub(crate) fn hidden_commands(script: &Script) -> Option<Vec<SimpleCommand>> {
    let mut found = Vec::new();
    if script.commands.iter().any(ruin::is_shell_with_input) {
        let printed = script.commands.iter().flat_map(printed_lines);
        for line in script.texts.iter().cloned().chain(printed) {
            found.extend(whole(command_scanner::scan(&line))?);
        }
    }
    let most = found.len() + MAX_COMMANDS;
    for command in &script.commands {
        add_hidden(command, most, &mut found)?;
    }
    // A found command may be a runner, too.
    let mut next = 0;
    while let Some(command) = found.get(next).cloned() {
        add_hidden(&command, most, &mut found)?;
        next += 1;
    }
    Some(found)
}

/// The commands of a script, unless some of them could not be found.
fn whole(script: Script) -> Option<Vec<SimpleCommand>> {
    (!script.is_cut).then_some(script.commands)
}

/// A command and those that it starts, wherever they run, as far as its words tell; only some if they are many.
pub(super) fn with_started(command: &SimpleCommand) -> Vec<SimpleCommand> {
    let mut found = vec![command.clone()];
    // A single word starts nothing.
    let mut next = usize::from(command.words.len() < 2);
    while let Some(command) = found.get(next).cloned().filter(|_| found.len() <= MAX_STARTED) {
        next += 1;
        let most = found.len() + MAX_STARTED;
        add_hidden(&command, most, &mut found);
        let program = name(command.program());
        let words = &command.words[..command.words.len().min(MAX_STARTED)];
        if is_in(LAUNCHERS, program) {
            let starts = started(program, &words[1..]);
            let scripts = starts.map(|start| command_scanner::scan_words(start.to_vec()));
            found.extend(scripts.flat_map(|script| script.commands));
        } else if is_in(ELSEWHERE, program) {
            let behind = words.iter().skip_while(|word| !is_in(BEFORE, name(&word.text))).skip(1);
            for word in behind.clone().filter(|word| word.text.contains(' ')) {
                found.extend(command_scanner::scan(attached_value(&word.text, &[])).commands);
            }
            let count = behind.count();
            let starts = (words.len() - count..words.len()).map(|at| words[at..].to_vec());
            found.extend(starts.flat_map(|start| command_scanner::scan_words(start).commands));
        }
    }
    found
}

/// Notes which commands may read a statement that deletes data: clients of databases, if a here-document has one, or
/// another command prints it.
pub(super) fn note_statements(script: &mut Script) {
    let printed = script.commands.iter().flat_map(printed_lines);
    let mut texts = script.texts.iter().cloned().chain(printed);
    let deletes = texts.any(|text| programs::has_deleting_statement(&text));
    for command in &mut script.commands {
        command.drops_data = deletes && programs::names_client(command);
    }
}

/// Adds the commands behind a runner, with all that they start, and those of aliases and of lines for a shell; `None`
/// if there are then more than `most`, or if some of them cannot be found.
fn add_hidden(command: &SimpleCommand, most: usize, found: &mut Vec<SimpleCommand>) -> Option<()> {
    let program = name(command.program());
    let arguments = command.words.get(1..).unwrap_or_default();
    let mut lines = Vec::new();
    if let Some(words) = behind_runner(program, arguments) {
        let options = words.windows(2).filter(|pair| is_in(LINE_OPTIONS, &pair[0].text));
        lines.extend(options.map(|pair| pair[1].text.clone()));
        let operands = words.iter().filter(|_| is_in(LINE_RUNNERS, program));
        lines.extend(operands.map(|word| word.text.clone()));
        for start in started(program, words) {
            if found.len() > most {
                return None;
            }
            let known = &start[..start.len().min(MAX_WORDS)];
            let has_more = command.has_unknown_args || known.len() < start.len();
            let mut inner = whole(command_scanner::scan_words(known.to_vec()))?;
            if let Some(first) = inner.first_mut() {
                first.wrappers.push(program.to_owned());
            }
            for simple in &mut inner {
                simple.has_unknown_args |= has_more;
            }
            found.append(&mut inner);
        }
    } else if program == "git" {
        lines.extend(aliases(arguments));
    } else if let Some(subcommand) = program.strip_prefix("git-") {
        let own = ["git", subcommand].map(|text| Word { text: text.to_owned(), is_glob: false });
        found.extend(whole(command_scanner::scan_words([&own[..], arguments].concat()))?);
    }
    lines.extend(given_lines(program, command));
    for line in &lines {
        found.extend(whole(command_scanner::scan(line))?);
    }
    (found.len() <= most).then_some(())
}

/// The lines that `echo` or `printf` writes: its operands, and each of them with its escapes.
fn printed_lines(command: &SimpleCommand) -> Vec<String> {
    if !is_in("echo printf", name(command.program())) {
        return Vec::new();
    }
    let operands = command.argv().skip(1).skip_while(|text| text.starts_with('-'));
    let mut lines = vec![operands.collect::<Vec<_>>().join(" ")];
    lines.extend(command.argv().skip(1).map(|text| text.replace("\\n", "\n")));
    lines
}

/// True for a program that runs in the environment of a project, as in `uv run python`.
pub(crate) fn is_in_environment(command: &SimpleCommand) -> bool {
    let runner = command.wrappers.last().map_or("", String::as_str);
    is_in(ENVIRONMENT_RUNNERS, runner) && is_in(ENVIRONMENT_PROGRAMS, name(command.program()))
}

/// The paths that a script's commands, and those that they run, may name if it runs in `workdir`. Each is there once:
/// the hidden commands mostly have the same words.
pub(crate) fn all_named_paths(
    script: &Script,
    workdir: &Path,
    home: Option<&Path>,
) -> BTreeSet<PathBuf> {
    let hidden = hidden_commands(script).unwrap_or_default();
    let commands = script.commands.iter().chain(&hidden);
    commands.flat_map(|command| named_paths(command, workdir, home)).collect()
}

/// The hosts that a script's commands, and those that they run, may name.
pub(crate) fn all_named_hosts(script: &Script) -> BTreeSet<String> {
    let hidden = hidden_commands(script).unwrap_or_default();
    script.commands.iter().chain(&hidden).flat_map(named_hosts).collect()
}

/// The paths that the words of a command may name if it runs in `workdir`: what a reader reads, and of `test`, which
/// looks for files without reading them, and any program that is no reader each argument and the value in it, as in
/// `-d @x` and `if=x`. Globs stay as they are.
fn named_paths(command: &SimpleCommand, workdir: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let folder = workdir.join(command.folder.as_deref().unwrap_or(Path::new("")));
    let reads = args::files_read(command);
    let names_more = reads.is_none() || is_in("[ test", command.program());
    let mut names = reads.unwrap_or_default();
    if names_more {
        names.extend(words_and_values(command).map(PathBuf::from));
    }
    let operands = command.words.iter().skip(1).filter(|word| !word.text.starts_with('-'));
    names.extend(operands.filter(|word| word.is_glob).map(|word| PathBuf::from(&word.text)));
    names.iter().map(|name| absolute(&name.to_string_lossy(), &folder, home)).collect()
}

/// The hosts that the words of a command may name, in lower case.
fn named_hosts(command: &SimpleCommand) -> Vec<String> {
    if args::only_reads(command) {
        return Vec::new();
    }
    words_and_values(command).filter_map(programs::host).map(str::to_lowercase).collect()
}

/// The arguments of a command that may name something, and the values in them.
fn words_and_values(command: &SimpleCommand) -> impl Iterator<Item = &str> {
    let program = name(command.program());
    let subcommand = git_subcommand(command.words.get(1..).unwrap_or_default());
    let takes_branches =
        program == "git" && subcommand.is_some_and(|parts| is_in(BRANCH_COMMANDS, parts.0));
    let takes_tasks = takes_branches || is_in(TASK_PROGRAMS, program);
    let words = command.argv().zip(command.argv().skip(1));
    let named = words.filter(move |(before, word)| {
        let is_task = takes_tasks && !word.contains(['/', '\\', '.', '=', '@', '*', '?', '[', '$']);
        !is_task && !names_nothing(program, before, word)
    });
    let names = named.flat_map(|(_, word)| {
        let value = word.split_once(['=', '@']).map_or("", |parts| parts.1);
        // A form of curl may name a file as `a=<file;type=text/plain`.
        let file = value.trim_start_matches(['@', '<']).split(';').next().unwrap_or_default();
        let mounted = word.split_once(":/").map_or("", |parts| parts.0);
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        let attached = letters.and_then(|rest| rest.get(1..)).unwrap_or_default();
        [word, file, mounted, attached]
    });
    names.filter(|name| !name.is_empty())
}

/// True for a message, and for what is left out.
fn names_nothing(program: &str, before: &str, word: &str) -> bool {
    let own_option = word.split_once('=').filter(|_| word.starts_with('-'));
    let option = own_option.map_or(before, |parts| parts.0);
    let is_text = match program {
        "git" => is_message_option(option),
        "gh" | "glab" => is_in(TEXT_OPTIONS, option),
        _ => false,
    };
    is_text || is_in(EXCLUDING_OPTIONS, option)
}

/// True for an option of git in front of a message, as in `git commit -am text`.
pub(crate) fn is_message_option(option: &str) -> bool {
    let letters = option.strip_prefix('-').unwrap_or_default();
    letters == "-message" || !letters.starts_with('-') && letters.ends_with('m')
}

fn absolute(name: &str, folder: &Path, home: Option<&Path>) -> PathBuf {
    let path = name.strip_prefix("file://").unwrap_or(name);
    let in_home = IN_HOME.iter().find_map(|start| path.strip_prefix(*start));
    let in_folder = IN_FOLDER.iter().find_map(|start| path.strip_prefix(*start)).unwrap_or(path);
    let base = home.filter(|_| in_home.is_some()).unwrap_or(folder);
    normalize_lexically(&base.join(in_home.unwrap_or(in_folder)))
}

fn behind_runner<'a>(program: &str, arguments: Args<'a>) -> Option<Args<'a>> {
    if is_in(SUBCOMMAND_RUNNERS, program) {
        let own = OWN_WORDS.iter().find(|entry| entry.0 == program).map_or("", |entry| entry.1);
        let mut texts = arguments.iter().map(|word| &word.text);
        let at = texts.position(|text| is_in(RUNNING_WORDS, text) || is_in(own, text))?;
        return Some(&arguments[at + 1..]);
    }
    // The system's loader, `ld-linux-x86-64.so.2`, and emulators run a program that they are given.
    let is_loader = ["ld-", "ld64.so", "qemu-"].iter().any(|start| program.starts_with(start));
    (is_in(RUNNERS, program) || is_loader).then_some(arguments)
}

/// Returns the words of a runner that may begin its command: those behind its options, whose values are not known, and
/// behind `--`.
fn started<'a>(program: &str, words: Args<'a>) -> impl Iterator<Item = Args<'a>> {
    let dashes = words.iter().position(|word| word.text == "--");
    let own = &words[..dashes.unwrap_or(words.len())];
    let mut starts: Vec<usize> = dashes.map(|at| at + 1).into_iter().collect();
    let mut may_be_value = is_in(WITH_OPERAND, program);
    for (at, word) in own.iter().enumerate() {
        if word.text.starts_with(['-', '+']) {
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

/// Returns the lines that a program gives to a shell: those values of its options that have several words, and what
/// follows an escape or stands in a word that it evaluates.
fn given_lines(program: &str, command: &SimpleCommand) -> Vec<String> {
    let entry = VALUE_OPTIONS.iter().find(|entry| is_in(entry.0, program));
    let options = entry.map_or("", |entry| entry.1);
    let pairs = command.argv().zip(command.argv().skip(1));
    let parts = pairs.flat_map(|(before, word)| {
        [Some((before, word)), word.split_once('='), word.split_at_checked(2)]
    });
    let values = parts.flatten().filter(|(option, _)| {
        let is_shortened =
            option.len() > 3 && options.split(' ').any(|known| known.starts_with(*option));
        is_in(options, option) || is_shortened
    });
    let lines =
        values.flat_map(|(_, value)| [value, value.split_once('=').map_or("", |parts| parts.1)]);
    let long_lines = lines.filter(|line| line.contains(' '));
    let texts = words_and_values(command).filter(|_| is_in(ESCAPING, program));
    let evaluated = EVALUATED.iter().find(|entry| is_in(entry.0, program));
    let most = evaluated.filter(|_| !args::only_reads(command)).map_or(1, |entry| entry.1);
    let marks = evaluated.map_or(&[][..], |entry| entry.2);
    let parts = command.argv().flat_map(|word| word.splitn(most, marks).skip(1));
    long_lines.chain(texts.filter_map(after_escape)).chain(parts).map(str::to_owned).collect()
}

/// Returns the line that follows an escape to a shell, as in `!make` and `.shell make`.
fn after_escape(text: &str) -> Option<&str> {
    const ESCAPES: [&str; 5] = ["!", "shell ", "system ", "e ", "1e "];
    let named = text.trim_start_matches([':', '+', '\\', '.']).trim_start_matches("platform ");
    ESCAPES.iter().find_map(|escape| named.strip_prefix(escape))
}

/// Returns the lines of the aliases that git is given or told to keep: `alias.x=push`, `alias.x '!git push'`.
fn aliases(arguments: Args<'_>) -> impl Iterator<Item = String> {
    arguments.iter().enumerate().filter_map(move |(at, word)| {
        let alias = word.text.strip_prefix("alias.")?;
        let next = arguments.get(at + 1).map(|next| next.text.as_str());
        let value = alias.split_once('=').map(|parts| parts.1).or(next)?;
        Some(value.strip_prefix('!').map_or_else(|| format!("git {value}"), str::to_owned))
    })
}
