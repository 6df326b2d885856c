//! Programs that interpret a script (`sed`, `awk`, `jq`), for scripts that only print.

use std::path::PathBuf;

use super::super::Word;
use super::options::{Argument, OptionTable, arguments};
use super::{ReadFiles, ReadPaths};

/// Takes the first operand as the script and the others as files.
fn scripted(options: OptionTable, words: &[Word], is_harmless: impl Fn(&str) -> bool) -> ReadFiles {
    let mut reads = ReadPaths::default();
    let mut has_script = false;
    for argument in arguments(options, words) {
        match argument? {
            Argument::Option(_) => {}
            Argument::FileValue(word, name) => reads.add_value(word, name)?,
            Argument::Operand(word) if has_script => reads.add_operand(word)?,
            Argument::Operand(word) => {
                has_script = !word.is_glob && is_harmless(&word.text);
                has_script.then_some(())?;
            }
        }
    }
    has_script.then_some(reads.0)
}

/// `sed` with scripts that print or delete lines by their numbers or by a plain regular expression.
pub(super) fn sed(words: &[Word]) -> ReadFiles {
    let options = &["-nEr --quiet --silent --regexp-extended"];
    scripted(options, words, |it| it.split(';').all(selects_lines))
}

/// `5p`, `5,10p`, `$p`, `5,+3p`, `/word/p`, `/from/,/to/p`; `d`, `q` and `=` alike.
fn selects_lines(command: &str) -> bool {
    let command = command.trim_matches(' ');
    let Some(addresses) = command.strip_suffix(['p', 'd', 'q', '=']) else { return false };
    match skip_address(addresses) {
        Some("") => true,
        Some(rest) => rest.strip_prefix(',').and_then(skip_second_address) == Some(""),
        None => false,
    }
}

/// Skips an address.
fn skip_address(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('/') {
        let (expression, rest) = rest.split_once('/')?;
        let is_plain = |it: char| it.is_alphanumeric() || " _.*^$-#:\"'=()<>+?|@!&~".contains(it);
        return (!expression.is_empty() && expression.chars().all(is_plain)).then_some(rest);
    }
    if let Some(rest) = text.strip_prefix('$') {
        return Some(rest);
    }
    let rest = text.trim_start_matches(|it: char| it.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

fn skip_second_address(text: &str) -> Option<&str> {
    match text.strip_prefix('+') {
        Some(rest) if rest.starts_with(|it: char| it.is_ascii_digit()) => skip_address(rest),
        Some(_) => None,
        None => skip_address(text),
    }
}

/// `awk` with scripts that select lines by number and print fields.
pub(super) fn awk(words: &[Word]) -> ReadFiles {
    scripted(&["-F: --field-separator:"], words, prints_fields)
}

fn prints_fields(script: &str) -> bool {
    let (condition, action) = match script.split_once('{') {
        Some((condition, rest)) => match rest.trim_end().strip_suffix('}') {
            Some(action) => (condition, action.trim()),
            None => return false,
        },
        None => (script, "print"),
    };
    let is_condition = condition.bytes().all(|it| b"NRF=<>!&| 0123456789%".contains(&it));
    let Some(fields) = action.strip_prefix("print") else { return false };
    let is_list = fields.bytes().all(|it| b"$NRF, 0123456789".contains(&it));
    is_condition && !has_pipe(condition) && is_list && !fields.starts_with(['N', 'R', 'F'])
}

/// True if there is a `|` that is not part of `||`.
fn has_pipe(text: &str) -> bool {
    text.split("||").any(|it| it.contains('|'))
}

const JQ: OptionTable = &[
    "-rjaCMScensRG --raw-output --raw-output0 --join-output --ascii-output --color-output",
    "--monochrome-output --sort-keys --compact-output --exit-status --null-input --slurp",
    "--raw-input --tab --indent: --unbuffered --stream --stream-errors --seq",
];

/// `jq` without modules, which may be read from anywhere.
pub(super) fn jq(words: &[Word]) -> ReadFiles {
    let (words, mut reads) = without_bindings(words)?;
    let names_module =
        |it: &str| it.contains('"') && (it.contains("import") || it.contains("include"));
    reads.extend(scripted(JQ, &words, |it| !names_module(it))?);
    Some(reads)
}

/// Removes `--arg name value` and similar options, and returns the files that they read.
fn without_bindings(words: &[Word]) -> Option<(Vec<Word>, Vec<PathBuf>)> {
    let mut reads = ReadPaths::default();
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let is_value = ["--arg", "--argjson"].contains(&word.text.as_str());
        let is_file = ["--slurpfile", "--rawfile"].contains(&word.text.as_str());
        if word.text == "--" {
            return None;
        }
        if is_value || is_file {
            let (name, value) = (words.next()?, words.next()?);
            if name.is_glob || value.is_glob || value.text.starts_with('-') {
                return None;
            }
            if is_file {
                reads.add_path(&value.text);
            }
        } else {
            kept.push(word.clone());
        }
    }
    Some((kept, reads.0))
}
