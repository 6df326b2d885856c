//! Command lines of `cmd`, the shell of Windows. Its grammar shares little with that of a POSIX shell: a
//! `'` quotes nothing, `^` quotes one character, `%NAME%` is replaced before the line is split, and each
//! program splits its own arguments. Such a line is therefore never understood, and whoever asks at all
//! asks about it. What could be a command in it is found for rules that deny, and rather too much than too
//! little.

use std::collections::HashSet;
use std::path::PathBuf;

use super::super::programs::{WordList, is_in};
use super::super::{Redirect, Script, SimpleCommand, Word};
use super::command_scanner;
use super::lexer::Ambiguity;

const NOT_UNDERSTOOD: Ambiguity = "it is for cmd, whose command lines are not analysed";

/// Commands whose arguments may contain another command.
const STARTERS: WordList =
    "call cmd conhost do else for forfiles if in not powershell pwsh runas start wsl";
/// Names that are a device in every folder.
const DEVICES: WordList = "nul con aux prn";
/// Extensions that may be left out.
const EXTENSIONS: [&str; 4] = [".exe", ".cmd", ".bat", ".com"];
/// The maximum number of words that are repeated because they may be a command within another.
const MAX_REPEATED_WORDS: usize = 100_000;

/// Everything that could be a command in a line.
pub(in crate::shell) fn scan(line: &str) -> Script {
    let mut all = Vec::new();
    // A line for another shell may be among the arguments. What it redirects would be misread.
    let other = command_scanner::scan(line);
    let mut is_cut = other.is_cut;
    // No single way to split a line is right, because it depends on the program.
    for obeys_quotes in [true, false] {
        let mut scanner = CmdScanner { obeys_quotes, ..CmdScanner::default() };
        scanner.read(line);
        all.append(&mut scanner.found);
        is_cut |= scanner.is_cut;
    }
    let others = other.commands.into_iter();
    all.extend(others.map(|command| SimpleCommand { redirects: Vec::new(), ..command }));
    // Most commands are found more than once.
    let mut known = HashSet::new();
    all.retain(|command| known.insert(command.clone()));
    let ambiguity = Some(NOT_UNDERSTOOD.to_owned());
    Script { commands: all, ambiguity, is_cut, ..Script::default() }
}

#[derive(Default)]
struct CmdScanner {
    /// True if quotes keep a word together, and blanks end it. Otherwise quotes mean nothing, as in a line that quotes
    /// another one, and every delimiter ends a word.
    obeys_quotes: bool,
    found: Vec<SimpleCommand>,
    words: Vec<Word>,
    redirects: Vec<Redirect>,
    word: Option<String>,
    /// Set if the next word is the file of a redirect; true if that file is written.
    redirect_is_write: Option<bool>,
    /// True if a command has changed the folder.
    has_left_folder: bool,
    /// The number of words that were repeated.
    repeated: usize,
    /// True if something was left out because there were too many.
    is_cut: bool,
}

impl CmdScanner {
    fn read(&mut self, line: &str) {
        let mut chars = line.chars().peekable();
        let mut is_quoted = false;
        while let Some(char) = chars.next() {
            match char {
                // Nothing escapes a quote: `rd /s \"a b\"` has deleted whole drives.
                '"' if !self.obeys_quotes && self.word.as_deref() == Some("\\") => self.end_word(),
                '"' => {
                    self.word.get_or_insert_default();
                    is_quoted = self.obeys_quotes && !is_quoted;
                }
                // A quoted part ends with the line.
                '\n' => {
                    is_quoted = false;
                    self.end_command();
                }
                char if is_quoted => self.push(char),
                '^' => match chars.next() {
                    Some('\r' | '\n') | None => {}
                    Some(next) => self.push(next),
                },
                '&' | '|' | '(' | ')' => self.end_command(),
                ';' if !self.obeys_quotes => self.end_command(),
                '>' | '<' => {
                    // The number of a file handle is no word.
                    self.word.take_if(|word| word.len() == 1 && word.parse::<u8>().is_ok());
                    self.end_word();
                    if chars.next_if_eq(&'&').is_some() {
                        chars.next();
                    } else {
                        chars.next_if_eq(&'>');
                        self.redirect_is_write = Some(char == '>');
                    }
                }
                ',' | '=' if !self.obeys_quotes => self.end_word(),
                // These end the name of a command whatever follows.
                ',' | ';' | '=' if self.words.is_empty() => self.end_word(),
                char if char.is_whitespace() => self.end_word(),
                char => self.push(char),
            }
        }
        self.end_command();
    }

    fn push(&mut self, char: char) {
        self.word.get_or_insert_default().push(char);
    }

    fn end_word(&mut self) {
        let Some(text) = self.word.take() else { return };
        match self.redirect_is_write.take() {
            Some(_) if is_in(DEVICES, &text.to_ascii_lowercase()) => {}
            Some(is_write) => {
                let path = PathBuf::from(text);
                self.redirects.push(Redirect { path, is_write, only_appends: false });
            }
            None => {
                let is_glob = text.contains(['*', '?']);
                self.words.push(Word { text, is_glob });
            }
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.redirect_is_write = None;
        let words = std::mem::take(&mut self.words);
        let redirects = std::mem::take(&mut self.redirects);
        if !words.is_empty() || !redirects.is_empty() {
            self.add(&words, redirects);
        }
    }

    /// Adds words that could be a command, and what they may start.
    fn add(&mut self, words: &[Word], redirects: Vec<Redirect>) {
        let folder = (!self.has_left_folder).then(PathBuf::new);
        let mut may_start = true;
        let mut redirects = Some(redirects);
        for (index, first) in words.iter().enumerate() {
            let rest = &words[index..];
            let is_cut = index > 0 && self.repeated + rest.len() > MAX_REPEATED_WORDS;
            self.is_cut |= may_start && is_cut;
            if !may_start || is_cut {
                break;
            }
            self.repeated += if index > 0 { rest.len() } else { 0 };
            let name = program_name(&first.text);
            // `rd/s` and `cd\` are a command and its argument.
            let (short, argument) = split_name(&first.text);
            if let Some(argument) = argument {
                let attached = [short.clone(), argument.to_owned()].map(Word::plain);
                let words = [&attached[..], &rest[1..]].concat();
                let folder = folder.clone();
                self.found.push(SimpleCommand { words, folder, ..SimpleCommand::default() });
            }
            self.has_left_folder |= matches!(short.as_str(), "cd" | "chdir" | "pushd" | "popd")
                || first.text.ends_with(':');
            // After a starter, each argument may be the command.
            may_start &= index > 0 || is_in(STARTERS, &name) || is_in(STARTERS, &short);
            let words = [&[Word::plain(name)][..], &rest[1..]].concat();
            let redirects = redirects.take().unwrap_or_default();
            let folder = folder.clone();
            self.found.push(SimpleCommand { words, redirects, folder, ..SimpleCommand::default() });
        }
        if let Some(redirects) = redirects.filter(|redirects| !redirects.is_empty()) {
            self.found.push(SimpleCommand { redirects, folder, ..SimpleCommand::default() });
        }
    }
}

/// The name of a program without its folder, extension and case, none of which tells programs apart.
fn program_name(word: &str) -> String {
    let word = word.trim_start_matches(['@', '\'', '`']);
    let name = word.rsplit(['\\', '/']).next().unwrap_or_default().to_ascii_lowercase();
    let stem = EXTENSIONS.iter().find_map(|extension| name.strip_suffix(extension));
    stem.filter(|stem| !stem.is_empty()).map_or(name.clone(), str::to_owned)
}

/// A built-in command in small letters, and the argument that is attached to it.
fn split_name(word: &str) -> (String, Option<&str>) {
    let word = word.trim_start_matches('@');
    match word.find(|char: char| !char.is_ascii_alphanumeric()) {
        Some(end) if end > 0 => (word[..end].to_ascii_lowercase(), Some(&word[end..])),
        _ => (word.to_ascii_lowercase(), None),
    }
}
