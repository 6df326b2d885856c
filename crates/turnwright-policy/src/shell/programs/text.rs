//! Programs that search and transform text, and interpreters of scripts.

use std::path::PathBuf;

use crate::shell::OperandUse;
use crate::shell::args::Operands::Files;
use crate::shell::args::{self, Args, FilesRead, UnknownArgs};
use crate::shell::args::{Argument, OptionTable, arguments};
use crate::shell::args::{add_operand, add_path, add_value, command_after_exec};
use crate::shell::{SimpleCommand, Word};

use super::{ANYTHING, NetworkUse, Program, WordList, is_in, program, projects};
use crate::shell::harm::{self, Danger};

pub(super) const PROGRAMS: &[Program] = &[
    program("grep egrep fgrep").reads_if(grep).unknown_args(UnknownArgs::NameFiles),
    program("rg").reads_if(rg).options_outside_grant("z --pre --hostname-bin --search-zip"),
    program("fd fdfind")
        .reads_if(fd)
        .targets(harm::fd_targets)
        .dangers(&[Danger::Check(deletes_found)])
        .options_outside_grant("xX --exec --exec-batch"),
    program("find")
        .reads_if(find)
        .dangers(&[Danger::Check(deletes_found)])
        .targets(harm::find_targets)
        .options_outside_grant(
            "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
        )
        .grantable_prefixes(&[]),
    ANYTHING
        .with_names("sed")
        .reads_if(sed)
        .operand_use(OperandUse::Changes)
        .options_outside_grant("ief --in-place --expression --file"),
    ANYTHING
        .with_names("awk gawk mawk")
        .reads_if(awk)
        .options_outside_grant("fileE --file --include --load --exec"),
    program("jq").reads_if(jq).options_outside_grant("Lf --from-file --library-path"),
    ANYTHING
        .with_names("python python3")
        .version("-V --version")
        .network(NetworkUse::Check(installs_with_pip))
        .offline_words("--no-index")
        .options_outside_grant(
            "cpXW --config-file --rootdir --load-plugins --init-hook --override-ini \
             --install-types",
        )
        .runs_installed_after(&["-m"]),
    ANYTHING.with_names("php").version("-v --version").dangers(projects::DATABASE_TASKS),
    ANYTHING.with_names("node nodejs perl ruby").version("-v --version"),
    ANYTHING.with_names("java").version("-version --version"),
    ANYTHING.with_names(
        "R Rscript crush elixir gdb ghci guile iex ipython irb jjs jshell julia lldb lua luajit \
         nu nushell ocaml osascript powershell pwsh python2 raku sbcl tclsh wish xonsh",
    ),
];

/// [`OptionTable`] describes the notation.
const GREP: OptionTable = &[include_str!("options/grep.txt")];

/// Without `--pre`, `--hostname-bin` and `-z`, which run programs, and without following symlinks,
/// which lead out of the named folders.
const RG: OptionTable = &[include_str!("options/rg.txt")];

/// Without `-x` and `-X`, which run programs, and `-l`, which runs `ls`.
const FD: OptionTable = &[include_str!("options/fd.txt")];

/// The files that a search program reads. With `pattern_options` no operand is the pattern; with `recursive_options` it
/// is recursive, as it always is if there are none.
fn files_of_search(
    words: &[Word],
    options: OptionTable,
    pattern_options: WordList,
    recursive_options: Option<WordList>,
    pattern_is_optional: bool,
) -> FilesRead {
    let mut reads = Vec::new();
    let mut operands = Vec::new();
    let mut has_pattern = false;
    let mut is_recursive = recursive_options.is_none();
    for argument in arguments(options, words) {
        match argument? {
            Argument::Option(option) => {
                has_pattern |= is_in(pattern_options, option);
                is_recursive |= recursive_options.is_some_and(|options| is_in(options, option));
            }
            Argument::FileValue(word, name) => add_value(&mut reads, word, name)?,
            Argument::Operand(word) => operands.push(word),
        }
    }
    let mut operands = operands.into_iter();
    if !has_pattern {
        match operands.next() {
            Some(pattern) if pattern.is_glob => return None,
            None if !pattern_is_optional => return None,
            _ => {}
        }
    }
    if operands.len() == 0 && is_recursive {
        reads.push(PathBuf::from("."));
    }
    operands.try_for_each(|operand| add_operand(&mut reads, operand))?;
    Some(reads)
}

fn grep(words: &[Word]) -> FilesRead {
    let recursive = "r R d --recursive --dereference-recursive --directories";
    let patterns = "e f --regexp --file --version --help";
    files_of_search(words, GREP, patterns, Some(recursive), false)
}

fn rg(words: &[Word]) -> FilesRead {
    let patterns = "e f V h --regexp --file --files --type-list --version --help";
    files_of_search(words, RG, patterns, None, false)
}

fn fd(words: &[Word]) -> FilesRead {
    files_of_search(words, FD, "", None, true)
}

/// The expressions of `find` that take no argument and only test or print.
const FIND_WITHOUT_ARGUMENT: &str = "( ) ! , -a -and -o -or -not -daystart -depth -d -mount -xdev \
    -noleaf -nowarn -warn -ignore_readdir_race -noignore_readdir_race -empty -executable -readable \
    -writable -nogroup -nouser -true -false -print -print0 -ls -prune -quit -E -X -x";

/// The expressions of `find` that take an argument and only test or print.
const FIND_WITH_WORD: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex \
    -regextype -lname -ilname -type -xtype -maxdepth -mindepth -size -amin -atime -cmin -ctime \
    -mmin -mtime -perm -user -group -uid -gid -links -inum -used -fstype -printf \
    -newermt -newerct -newerat";

/// The expressions of `find` that take a file name and only test.
const FIND_WITH_FILE: &str = "-newer -anewer -cnewer -samefile";

/// `find` with expressions that only test files and print to standard output.
fn find(words: &[Word]) -> FilesRead {
    let mut reads = Vec::new();
    if words.iter().any(|word| word.is_glob) {
        return None;
    }
    let mut rest = words.iter().map(|word| word.text.as_str()).peekable();
    while rest.next_if(|word| ["-H", "-P"].contains(word)).is_some() {}
    while let Some(start) = rest.next_if(|word| !word.starts_with(['-', '(', ')', '!', ','])) {
        add_path(&mut reads, start);
    }
    if reads.is_empty() {
        reads.push(PathBuf::from("."));
    }
    while let Some(word) = rest.next() {
        if word == "-exec" {
            let at = words.len() - rest.len();
            let command = command_after_exec(&words[at..])?;
            only_reads_any(command).then(|| rest.nth(command.len()))??;
        } else if is_in(FIND_WITH_WORD, word) {
            rest.next()?;
        } else if is_in(FIND_WITH_FILE, word) {
            add_path(&mut reads, rest.next()?);
        } else if !is_in(FIND_WITHOUT_ARGUMENT, word) {
            return None;
        }
    }
    Some(reads)
}

/// True if a command only reads, whatever files it is given.
fn only_reads_any(words: &[Word]) -> bool {
    let words = words.to_vec();
    let command = SimpleCommand { words, has_unknown_args: true, ..SimpleCommand::default() };
    args::only_reads(&command)
}

fn deletes_found(words: Args<'_>) -> Option<&'static str> {
    const RUNS: WordList = "-exec -execdir -ok -okdir -x -X --exec --exec-batch";
    let is_deletion = words.iter().any(|word| word.text == "-delete")
        || words.windows(2).any(|pair| {
            is_in(RUNS, &pair[0].text) && is_in("rm shred unlink rmdir", args::name(&pair[1].text))
        });
    is_deletion.then_some("deletes everything that it finds")
}

/// The files that a program reads whose first operand is a script, if the script is harmless.
fn reads_after_script(
    options: OptionTable,
    words: &[Word],
    is_harmless: impl Fn(&str) -> bool,
) -> FilesRead {
    let mut reads = Vec::new();
    let mut has_script = false;
    for argument in arguments(options, words) {
        match argument? {
            Argument::Option(_) => {}
            Argument::FileValue(word, name) => add_value(&mut reads, word, name)?,
            Argument::Operand(word) if has_script => add_operand(&mut reads, word)?,
            Argument::Operand(word) => {
                has_script = !word.is_glob && is_harmless(&word.text);
                has_script.then_some(())?;
            }
        }
    }
    has_script.then_some(reads)
}

/// `sed` with scripts that select lines by their numbers or by a plain regular expression, and replace
/// text.
fn sed(words: &[Word]) -> FilesRead {
    let (words, scripts) = split_scripts(words)?;
    let is_harmless = |script: &str| {
        script.split([';', '\n']).all(|command| is_harmless_command(command.trim_matches(' ')))
    };
    let options = &["-nErs --quiet --silent --regexp-extended"];
    if scripts.is_empty() {
        return reads_after_script(options, &words, is_harmless);
    }
    scripts.iter().all(|script| is_harmless(script)).then(|| Files.files(options, &words))?
}

/// Removes `-e SCRIPT`.
fn split_scripts(words: &[Word]) -> Option<(Vec<Word>, Vec<&str>)> {
    let mut kept = Vec::new();
    let mut scripts = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.text == "-e" {
            scripts.push(words.next().filter(|word| !word.is_glob)?.text.as_str());
        } else {
            kept.push(word.clone());
        }
    }
    Some((kept, scripts))
}

/// `5p`, `5,10p`, `$p`, `5,+3p`, `/word/p`, `/from/,/to/p`; `d`, `q`, `=` and `s/from/to/g` alike.
fn is_harmless_command(command: &str) -> bool {
    let after_addresses = match skip_address(command) {
        None => command,
        Some(rest) => match rest.strip_prefix(',') {
            None => rest,
            Some(second) => match skip_second_address(second) {
                Some(rest) => rest,
                None => return false,
            },
        },
    };
    ["p", "d", "q", "="].contains(&after_addresses)
        || after_addresses.strip_prefix('s').is_some_and(only_replaces)
}

/// `/from/to/g` without flags that run the result or write it to a file.
fn only_replaces(text: &str) -> bool {
    let Some(delimiter) = text.chars().next().filter(|char| "/|,#@:!%+_~".contains(*char)) else {
        return false;
    };
    let mut parts = vec![String::new()];
    let mut characters = text.chars().skip(1);
    while let Some(character) = characters.next() {
        let last = parts.len() - 1;
        if character == delimiter {
            parts.push(String::new());
        } else {
            parts[last].push(character);
            if character == '\\' {
                parts[last].extend(characters.next());
            }
        }
    }
    let [from, _, flags] = parts.as_slice() else { return false };
    // Some versions take a delimiter between brackets for a part of the expression. A bracket that is the first
    // in there does not close.
    let is_closed = from.split('[').skip(1).last().is_none_or(|text| {
        let inside = text.strip_prefix('^').unwrap_or(text);
        inside.strip_prefix(']').unwrap_or(inside).contains(']')
    });
    is_closed && flags.bytes().all(|byte| b"gpiI0123456789".contains(&byte))
}

fn skip_address(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('/') {
        let (expression, rest) = rest.split_once('/')?;
        let is_plain = !expression.is_empty()
            && expression
                .chars()
                .all(|char| char.is_alphanumeric() || " _.*^$-#:\"'=()<>+?|@!&~{}".contains(char));
        return is_plain.then_some(rest);
    }
    if let Some(rest) = text.strip_prefix('$') {
        return Some(rest);
    }
    let rest = text.trim_start_matches(|char: char| char.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

fn skip_second_address(text: &str) -> Option<&str> {
    match text.strip_prefix('+') {
        Some(rest) if rest.starts_with(|char: char| char.is_ascii_digit()) => skip_address(rest),
        Some(_) => None,
        None => skip_address(text),
    }
}

/// `awk` with scripts that run no commands, write no files, and read only those that are named.
fn awk(words: &[Word]) -> FilesRead {
    reads_after_script(&["-F: --field-separator:"], words, only_computes)
}

/// The words by which a script runs commands, reads other files and variables of the environment, or loads code.
const AWK_ACCESS: [&str; 9] =
    ["system", "getline", "ENVIRON", "PROCINFO", "SYMTAB", "FUNCTAB", "ARG", "@", "\\\n"];

/// Wherever they are in the script, even in a string, these words are refused. A `>` or `|` writes to a
/// file or a command only after `print`, and reads from a command only before `getline`.
fn only_computes(script: &str) -> bool {
    let has_access = AWK_ACCESS.iter().any(|access| script.contains(access));
    let printed = script.split_once("print").map_or("", |parts| parts.1);
    let is_output = printed.contains('>') || has_pipe(printed);
    let has_command = has_pipe(script) && script.contains('"');
    !has_access && !is_output && !has_command
}

/// True if there is a `|` that is not part of `||`.
fn has_pipe(text: &str) -> bool {
    text.split("||").any(|part| part.contains('|'))
}

const JQ: OptionTable = &[include_str!("options/jq.txt")];

/// `jq` without modules, which may be read from anywhere.
fn jq(words: &[Word]) -> FilesRead {
    let (words, mut reads) = split_variables(words)?;
    reads.extend(reads_after_script(JQ, &words, |script| {
        !script.contains('"') || !script.contains("import") && !script.contains("include")
    })?);
    Some(reads)
}

/// Removes `--arg name value` and similar options. Also returns the files that they read.
fn split_variables(words: &[Word]) -> Option<(Vec<Word>, Vec<PathBuf>)> {
    let mut reads = Vec::new();
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let is_value = ["--arg", "--argjson"].contains(&word.text.as_str());
        let is_file = ["--slurpfile", "--rawfile"].contains(&word.text.as_str());
        if word.text == "--" {
            return None;
        }
        if is_value || is_file {
            let name = words.next()?;
            let value = words.next()?;
            if name.is_glob || value.is_glob || value.text.starts_with('-') {
                return None;
            }
            if is_file {
                add_path(&mut reads, &value.text);
            }
        } else {
            kept.push(word.clone());
        }
    }
    Some((kept, reads))
}

/// `python -m pip install`.
fn installs_with_pip(words: Args<'_>) -> bool {
    let is_pip = words.windows(2).take(4).any(|pair| pair[0].text == "-m" && pair[1].text == "pip");
    is_pip && words.iter().any(|word| ["install", "download"].contains(&word.text.as_str()))
}
