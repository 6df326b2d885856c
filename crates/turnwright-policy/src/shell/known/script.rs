//! Programs that run a script of their own, for the scripts that only print.

use std::path::PathBuf;

use super::super::Word;
use super::Reads;
use super::flags::{Flags, Part, parts};

type Found = Option<Vec<PathBuf>>;

/// Takes the script from the operands and reads the others.
fn scripted(flags: Flags, words: &[Word], is_harmless: impl Fn(&str) -> bool) -> Found {
    let mut reads = Reads::default();
    let mut has_script = false;
    for part in parts(flags, words) {
        match part? {
            Part::Flag(_) => {}
            Part::File(word, name) => reads.named(word, name)?,
            Part::Operand(word) if has_script => reads.operand(word)?,
            Part::Operand(word) => {
                has_script = !word.is_glob && is_harmless(&word.text);
                has_script.then_some(())?;
            }
        }
    }
    has_script.then_some(reads.0)
}

/// `sed`: scripts that print or drop lines by their numbers or by a plain expression.
pub(super) fn sed(words: &[Word]) -> Found {
    let flags = &["-nEr --quiet --silent --regexp-extended"];
    scripted(flags, words, |it| it.split(';').all(picks_lines))
}

/// `5p`, `5,10p`, `$p`, `5,+3p`, `/word/p`, `/from/,/to/p`; `d`, `q` and `=` alike.
fn picks_lines(command: &str) -> bool {
    let command = command.trim_matches(' ');
    let Some(addresses) = command.strip_suffix(['p', 'd', 'q', '=']) else { return false };
    match address(addresses) {
        Some("") => true,
        Some(rest) => rest.strip_prefix(',').and_then(second_address) == Some(""),
        None => false,
    }
}

/// What follows an address.
fn address(text: &str) -> Option<&str> {
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

fn second_address(text: &str) -> Option<&str> {
    match text.strip_prefix('+') {
        Some(rest) if rest.starts_with(|it: char| it.is_ascii_digit()) => address(rest),
        Some(_) => None,
        None => address(text),
    }
}

/// `awk`: scripts that choose lines by number and print fields.
pub(super) fn awk(words: &[Word]) -> Found {
    scripted(&["-F: --field-separator:"], words, prints_fields)
}

fn prints_fields(script: &str) -> bool {
    let (choice, action) = match script.split_once('{') {
        Some((choice, rest)) => match rest.trim_end().strip_suffix('}') {
            Some(action) => (choice, action.trim()),
            None => return false,
        },
        None => (script, "print"),
    };
    let is_choice = choice.bytes().all(|it| b"NRF=<>!&| 0123456789%".contains(&it));
    let Some(fields) = action.strip_prefix("print") else { return false };
    let is_list = fields.bytes().all(|it| b"$NRF, 0123456789".contains(&it));
    is_choice && !has_single_bar(choice) && is_list && !fields.starts_with(['N', 'R', 'F'])
}

/// One bar alone would be a pipe.
fn has_single_bar(text: &str) -> bool {
    text.split("||").any(|it| it.contains('|'))
}

const JQ: Flags = &[
    "-rjaCMScensRG --raw-output --raw-output0 --join-output --ascii-output --color-output",
    "--monochrome-output --sort-keys --compact-output --exit-status --null-input --slurp",
    "--raw-input --tab --indent: --unbuffered --stream --stream-errors --seq",
];

/// `jq`: no modules, which may lie anywhere.
pub(super) fn jq(words: &[Word]) -> Found {
    let (words, mut reads) = without_bindings(words)?;
    let names_module =
        |it: &str| it.contains('"') && (it.contains("import") || it.contains("include"));
    reads.extend(scripted(JQ, &words, |it| !names_module(it))?);
    Some(reads)
}

/// Takes `--arg name value` and its like out, with the files that they read.
fn without_bindings(words: &[Word]) -> Option<(Vec<Word>, Vec<PathBuf>)> {
    let mut reads = Reads::default();
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
                reads.name(&value.text);
            }
        } else {
            kept.push(word.clone());
        }
    }
    Some((kept, reads.0))
}
