//! Builtins of the shell, programs that start others, and programs about the machine. Commands that would stop or ruin
//! the whole system, on Windows too, are never run, whatever the mode and the rules say. Their list is short, because a
//! wrong entry cannot be overridden.

use std::path::Path;

use turnwright_types::effect::is_secret_path;

use crate::shell::OperandUse;
use crate::shell::args::Operands::{self, Format, Words};
use crate::shell::args::{Args, Argument, FilesRead, UnknownArgs};
use crate::shell::args::{add_path, arguments, glob_folders, operands};
use crate::shell::{SimpleCommand, Word};

use super::{ANYTHING, Program, Starts, WordList, is_in, is_number, program};
use crate::shell::harm::{Danger, SHUTDOWN, has_word};
use crate::shell::syntax::parser::word;
use crate::shell::syntax::shell_state;

const SHELL: Program = ANYTHING.starts(Starts::Shell);
/// The program that it starts is judged.
const STARTER: Program = ANYTHING.starts(Starts::Program).searched();

/// Without `-s`, which sets the clock. So does an operand that is not a format.
const DATE: &[&str] = &[
    "-uR -I? -d: -r< --utc --universal --iso-8601? --rfc-3339: --rfc-email --date: --reference<",
    "--debug",
];

const UNAME: &[&str] = &[
    "-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine",
    "--processor --hardware-platform --operating-system",
];

pub(super) const PROGRAMS: &[Program] = &[
    program("expr : true false").reads_if(glob_folders),
    program("echo").reads_if(glob_folders).unknown_args(UnknownArgs::NameNoFiles),
    program("printf").reads_if(printf),
    program("test").reads_if(test),
    program("[").reads_if(bracket),
    program("cd pushd popd").reads_if(cd),
    program("set").reads_if(set).grantable_prefixes(&[]),
    program("sleep").reads_if(sleep),
    program("exit").reads_if(exit_status),
    program("wait umask").reads_if(no_operands),
    program("export").reads_if(export).grantable_prefixes(&[]),
    program("ulimit").reads_if(core_limit),
    program("alias declare do eval unset").grantable_prefixes(&[]),
    program(". source trap").starts(Starts::Line).grantable_prefixes(&[]),
    program("bind complete").starts(Starts::Line),
    program("builtin").searched().grantable_prefixes(&[]),
    SHELL.with_names("ash csh dash fish ksh script"),
    SHELL.with_names("bash sh zsh").version("--version"),
    SHELL.with_names("su").searched(),
    program("mksh rbash tcsh yash").starts(Starts::Shell),
    STARTER.with_names(
        "busybox chroot chrt coreutils doas exec fakeroot flock ionice ltrace nsenter parallel \
         perf pkexec prlimit runuser setarch setpriv setsid strace sudo systemd-run taskset \
         toybox unbuffer unshare valgrind watch",
    ),
    STARTER.with_names("command").reads_if(command).wrapper_words(|_| Some(1)),
    STARTER.with_names("env").reads_if(no_operands).wrapper_words(env),
    STARTER.with_names("nice").wrapper_words(nice),
    STARTER.with_names("nohup").wrapper_words(|_| Some(1)),
    STARTER.with_names("stdbuf").wrapper_words(stdbuf),
    STARTER
        .with_names("time")
        .wrapper_words(|command| Some(if word(command, 1) == "-p" { 2 } else { 1 })),
    STARTER.with_names("timeout gtimeout").wrapper_words(timeout),
    STARTER.with_names("xargs").wrapper_words(xargs),
    ANYTHING.with_names("flatpak screen tmux rlwrap expect socat"),
    program("pwd").reads(&["-LP --logical --physical"], Operands::None),
    program("date").reads(DATE, Format).options_outside_grant("s --set"),
    program("uname").reads(UNAME, Operands::None),
    program("whoami arch tty logname").reads(&[], Operands::None),
    program("nproc").reads(&["--all --ignore:"], Operands::None),
    program("uptime").reads(&["-ps --pretty --since"], Operands::None),
    program("id")
        .reads(&["-agGnruzZ --context --group --groups --name --real --user --zero"], Words),
    program("groups users").reads(&[], Words),
    program("getconf").reads(&["-a"], Words),
    program("locale")
        .reads(&["-akcm --all-locales --charmaps --category-name --keyword-name"], Words),
    program("which").reads(&["-a --all"], Words),
    program("type").reads(&["-afptP"], Words),
    program("whereis").reads(&["-bmsu"], Words),
    program("basename")
        .reads(&["-az -s: --multiple --suffix: --zero"], Words)
        .unknown_args(UnknownArgs::NameNoFiles),
    program("dirname").reads(&["-z --zero"], Words).unknown_args(UnknownArgs::NameNoFiles),
    program("seq").reads(&["-w -# -f: -s: --format: --separator: --equal-width"], Words),
    program("cal ncal").reads(&["-13mjyswn"], Words),
    program("printenv").reads_if(printenv),
    program("free").reads(
        &["-bkmghltw --bytes --kibi --mebi --gibi --human --lohi --total --wide"],
        Operands::None,
    ),
    program("lscpu").reads(&["-aJ --all --json"], Operands::None),
    program("numfmt")
        .reads(&["--from: --to: --suffix: --padding: --field: --header? --grouping"], Words),
    program("pgrep")
        .reads(&["-aflxnovci -u: -P: --list-name --list-full --full --exact --count"], Words),
    program("hostname").reads_if(no_operands),
    program("ps").reads_if(ps),
    program("kill").catastrophe(kills_all_processes).grantable_prefixes(&[]),
    program("pkill killall")
        .ruins(&[Danger::Word(". .* ^", OF_USER), Danger::Check(kills_user)])
        .grantable_prefixes(&[]),
    program("killall5").ruins(&[Danger::Always("kills every process")]),
    program("crontab").dangers(&[Danger::Option("r", "deletes all scheduled commands")]),
    program("shutdown reboot halt poweroff").catastrophe(shuts_down),
    program("init").catastrophe(ends_run_level).grantable_prefixes(&[]),
    program("telinit").catastrophe(ends_run_level),
    program("rd rmdir del erase").catastrophe(removes_drive).operand_use(OperandUse::Takes),
    program("remove-item Remove-Item ri").catastrophe(removes_drive),
    program("format").catastrophe(formats_drive),
    program("systemctl").catastrophe(stops_system).grantable_prefixes(&[]),
    program("loginctl").catastrophe(stops_system).ruins(&[Danger::Prefix("terminate-", OF_USER)]),
];

const OF_USER: &str = "kills every process of a user";

/// `pkill -u me` without a pattern, and `killall -u me` without a name.
fn kills_user(words: Args<'_>) -> Option<&'static str> {
    let names_user = has_word(words, "-u --user --euid --uid");
    (names_user && operands(words).count() < 2).then_some(OF_USER)
}

/// `printenv`, alone or with the names of variables that everybody may see. The values of others need not be shown.
fn printenv(words: &[Word]) -> FilesRead {
    words
        .iter()
        .all(|word| {
            is_in("-0 --null PATH TERM TMPDIR VIRTUAL_ENV", &word.text)
                || shell_state::is_plain_variable(&word.text)
        })
        .then(Vec::new)
}

/// `export` with values that only influence output.
fn export(words: &[Word]) -> FilesRead {
    let are_harmless = words.iter().all(|word| {
        let assigned = shell_state::assignment(&word.text).filter(|_| !word.is_glob);
        assigned.is_some_and(|(name, value)| shell_state::is_harmless_variable(name, value))
    });
    (!words.is_empty() && are_harmless).then(Vec::new)
}

/// `ulimit -c`: how large core dumps may get.
fn core_limit(words: &[Word]) -> FilesRead {
    let is_core = words.first().is_some_and(|word| is_in("-c -Sc -Hc", &word.text));
    let is_plain = is_core
        && words.len() <= 2
        && words[1..].iter().map(|word| word.text.as_str()).all(|size| {
            is_in("unlimited hard soft", size) || size.bytes().all(|byte| byte.is_ascii_digit())
        });
    is_plain.then(Vec::new)
}

/// `exit`, and `exit 1`.
fn exit_status(words: &[Word]) -> FilesRead {
    (words.len() <= 1 && words.iter().all(|word| is_number(&word.text))).then(Vec::new)
}

/// No words at all.
fn no_operands(words: &[Word]) -> FilesRead {
    words.is_empty().then(Vec::new)
}

/// The operators of `test`, without `-v` and `-R`: bash evaluates an array index in their operand,
/// which may run commands, even if it was quoted.
const FILE_OPERATORS: &str = "-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -G -L -N -O -S";
const WORD_OPERATORS: &str = "-n -z -t = == != < > ! ( ) -eq -ne -lt -le -gt -ge -o";
const FILE_COMPARISONS: &str = "-nt -ot -ef";

/// `test` without `-v` and `-R`.
fn test(words: &[Word]) -> FilesRead {
    let mut reads = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let text = word.text.as_str();
        let before = if index > 0 { words[index - 1].text.as_str() } else { "" };
        let beside = [before, words.get(index + 1).map_or("", |word| &word.text)];
        let is_operator = [FILE_OPERATORS, WORD_OPERATORS, FILE_COMPARISONS]
            .iter()
            .any(|operators| is_in(operators, text));
        if word.is_glob || text.starts_with('-') && !is_operator && !is_number(&text[1..]) {
            return None;
        }
        let is_file = is_in(FILE_OPERATORS, before)
            || beside.iter().any(|word| is_in(FILE_COMPARISONS, word));
        if is_file && !is_operator {
            // A listing of its folder shows as well that a file exists.
            let path = Path::new(text);
            let is_looked_for = is_in("-d -e -f -h -L", before) && !path.has_root();
            let folder = path.parent().filter(|_| is_looked_for && is_secret_path(path));
            add_path(&mut reads, folder.and_then(Path::to_str).unwrap_or(text));
        }
    }
    Some(reads)
}

/// `[`, which is `test` with a final `]`.
fn bracket(words: &[Word]) -> FilesRead {
    let (last, words) = words.split_last()?;
    (last.text == "]" && !last.is_glob).then(|| test(words))?
}

/// `printf` without `-v`.
fn printf(words: &[Word]) -> FilesRead {
    let first = words.first()?;
    let is_format = !first.is_glob && (first.text == "--" || !first.text.starts_with('-'));
    is_format.then(|| glob_folders(words))?
}

/// `cd`. Later commands run in the folder, so it must be one that may be read.
fn cd(words: &[Word]) -> FilesRead {
    let mut reads = Vec::new();
    let mut count = 0;
    for argument in arguments(&["-LP"], words) {
        match argument? {
            Argument::Operand(word) if !word.is_glob => {
                count += 1;
                add_path(&mut reads, &word.text);
            }
            Argument::Option(_) => {}
            _ => return None,
        }
    }
    (count <= 1).then_some(reads)
}

/// `set` with the options that scripts usually begin with.
fn set(words: &[Word]) -> FilesRead {
    let is_known =
        |word: &Word| is_in("-e -u -x -eu -ex -ux -eux -euo -euxo -eo -o pipefail", &word.text);
    (!words.is_empty() && words.iter().all(is_known)).then(Vec::new)
}

/// `sleep` for at most a minute.
fn sleep(words: &[Word]) -> FilesRead {
    let [word] = words else { return None };
    let seconds = word.text.strip_suffix('s').unwrap_or(&word.text);
    let is_plain = seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_short = seconds.parse::<f64>().is_ok_and(|seconds| seconds <= 60.0);
    (is_plain && is_short && !word.is_glob).then(Vec::new)
}

/// True for durations: `9`, `0.5`, `2m`.
fn is_duration(word: &str) -> bool {
    let number = word.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(word);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    is_number(whole) && is_number(part)
}

/// The number of words that belong to `env`; `None` if that is not clear.
fn env(simple: &SimpleCommand) -> Option<usize> {
    let settings = simple.words[1..].iter().take_while(|word| word.text.contains('='));
    let are_harmless = settings.clone().all(|word| {
        shell_state::assignment(&word.text)
            .is_some_and(|(name, value)| shell_state::is_harmless_variable(name, value))
    });
    are_harmless.then(|| 1 + settings.count())
}

fn nice(simple: &SimpleCommand) -> Option<usize> {
    if word(simple, 1) != "-n" {
        return Some(1);
    }
    let by = word(simple, 2);
    is_number(by.strip_prefix('-').unwrap_or(by)).then_some(3)
}

fn timeout(simple: &SimpleCommand) -> Option<usize> {
    let mut place = 1;
    loop {
        let value = word(simple, place + 1);
        match word(simple, place) {
            "-k" if is_duration(value) => place += 2,
            "-s" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                place += 2;
            }
            "--foreground" | "--preserve-status" | "--verbose" | "-v" => place += 1,
            duration => return is_duration(duration).then_some(place + 1),
        }
    }
}

fn stdbuf(simple: &SimpleCommand) -> Option<usize> {
    let modes = simple.words[1..].iter().take_while(|word| is_buffer_mode(&word.text)).count();
    (modes > 0).then_some(1 + modes)
}

/// True for `-oL`, `-e0` and the like.
fn is_buffer_mode(text: &str) -> bool {
    let mode = text.strip_prefix('-').and_then(|mode| mode.strip_prefix(['i', 'o', 'e']));
    matches!(mode, Some("L" | "0"))
}

fn xargs(simple: &SimpleCommand) -> Option<usize> {
    let mut place = 1;
    loop {
        let value = word(simple, place + 1);
        match word(simple, place) {
            "-0" | "-r" | "-0r" | "-r0" | "-I{}" => place += 1,
            "-n" | "-L" | "-P" if is_number(value) => place += 2,
            "-I" if value == "{}" => place += 2,
            option => match option.strip_prefix("-n") {
                Some(count) if is_number(count) => place += 1,
                _ => return Some(place),
            },
        }
    }
}

/// `command -v`.
fn command(words: &[Word]) -> FilesRead {
    let (first, names) = words.split_first()?;
    let are_plain = names.iter().all(|word| !word.is_glob && !word.text.starts_with('-'));
    (["-v", "-V"].contains(&first.text.as_str()) && are_plain).then(Vec::new)
}

/// `ps` without options that show environments.
fn ps(words: &[Word]) -> FilesRead {
    const OPTIONS: &[&str] =
        &["-aAdeflFjHxwM -p: -u: -U: -C: -o: --pid: --user: --sort: --no-headers --forest"];
    let are_known = arguments(OPTIONS, words).all(|argument| match argument {
        Some(Argument::Operand(word)) => {
            !word.is_glob && word.text.bytes().all(|byte| b"aufxwjl0123456789,".contains(&byte))
        }
        known => known.is_some(),
    });
    let shows_environment = words.iter().any(|word| word.text.contains("env"));
    (are_known && !shows_environment).then(Vec::new)
}

/// `shutdown`, `reboot` and the like.
fn shuts_down(words: Args<'_>) -> Option<&'static str> {
    // `-c` cancels a shutdown.
    let asks_help = words.first().is_some_and(|word| is_in("--help --version -c", &word.text));
    (!asks_help).then_some(SHUTDOWN)
}

/// `init 0`.
fn ends_run_level(words: Args<'_>) -> Option<&'static str> {
    let mut operands = operands(words);
    let is_end = operands.next().is_some_and(|word| ["0", "6"].contains(&word.text.as_str()));
    (is_end && operands.next().is_none()).then_some(SHUTDOWN)
}

/// `systemctl poweroff`.
fn stops_system(words: Args<'_>) -> Option<&'static str> {
    let stops = "poweroff reboot halt kexec soft-reboot suspend hibernate";
    let mut operands = operands(words).map(|word| word.text.as_str());
    let isolates = operands.clone().nth(1).and_then(|word| word.strip_suffix(".target"));
    let is_end = operands.next().is_some_and(|word| {
        is_in(stops, word)
            || is_in("isolate start", word) && isolates.is_some_and(|target| is_in(stops, target))
    });
    is_end.then_some(SHUTDOWN)
}

/// True for `kill -9 -1`, `kill -s KILL -1` and `kill -- -1`. In `kill -1 7`, `-1` is a signal
/// number.
fn kills_all_processes(words: Args<'_>) -> Option<&'static str> {
    let mut rest = words.iter().map(|word| word.text.as_str()).peekable();
    let option = rest.next_if(|word| word.starts_with('-') && *word != "--");
    // These take the signal as the next word.
    if option.is_some_and(|option| is_in("-s -n --signal", option)) {
        rest.next();
    }
    rest.any(|word| word == "-1").then_some("kills every process")
}

/// Folders that hold the system or all files of a user, as `cmd` names them.
const SYSTEM_FOLDERS: WordList =
    "%HOMEDRIVE% %PROGRAMFILES% %SYSTEMDRIVE% %SYSTEMROOT% %USERPROFILE% %WINDIR% $ENV:USERPROFILE";
/// Such folders behind the letter of a drive, and the drive itself.
const SYSTEM_NAMES: &[&str] = &["", "\\PROGRAM FILES", "\\USERS", "\\WINDOWS"];

/// `rd /s C:\`, `del /s C:\*`, and in PowerShell `Remove-Item -Recurse C:\`.
fn removes_drive(words: Args<'_>) -> Option<&'static str> {
    let is_recursive = words.iter().any(|word| {
        word.text.starts_with('/') && word.text.split('/').any(|part| is_in("s S", part))
    });
    let is_powershell = words.iter().any(|word| word.text.to_ascii_lowercase().starts_with("-r"));
    // PowerShell takes `\"` for a quote, of which the backslash is left here.
    let mut paths = words.iter().filter(|word| is_recursive || is_powershell && word.text != "\\");
    paths.any(is_system).then_some("deletes the system or all of a user's files")
}

/// `format C:`.
fn formats_drive(words: Args<'_>) -> Option<&'static str> {
    words.iter().any(|word| is_drive(&word.text)).then_some("destroys the content of a disk")
}

fn is_drive(text: &str) -> bool {
    matches!(text.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic())
}

fn is_system(word: &Word) -> bool {
    let written = word.text.trim_matches('\'').to_ascii_uppercase().replace('/', "\\");
    let path = written.replace("\\\\?\\", "").replace("\\\\.\\", "");
    let everything = ["\\*.*", "\\*", "\\"].iter().find_map(|end| path.strip_suffix(end));
    let folder = everything.unwrap_or(&path);
    let name = folder.get(2..).filter(|_| folder.get(..2).is_some_and(is_drive));
    // `\` is the root of the current drive, but `/` begins an option.
    (everything == Some("") && word.text.starts_with('\\'))
        || name.is_some_and(|name| SYSTEM_NAMES.contains(&name))
        || is_in(SYSTEM_FOLDERS, folder)
}
