//! Options that a program is known to have, and words taken apart by them. An option that is not
//! listed ends it: nothing is known of such a command.

use super::super::Word;

/// The options of a program, in words separated by blanks:
/// `-ab` two letters that take nothing, `-n:` a letter with a value, `-U?` a letter that may have
/// one right behind it, `-f<` a letter with the name of a file to read, `-#` a number behind the
/// dash, `--all`, `--color?` (only behind `=`), `--lines:`, `--file<` the same for names. Names are
/// never shortened.
pub(super) type Flags = &'static [&'static str];

/// What a command says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// An option: `n`, `--lines`.
    Flag(&'a str),
    /// The value of an option, which names a file to read.
    File(&'a Word, &'a str),
    /// Anything else.
    Operand(&'a Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    Maybe,
    File,
}

/// Takes words apart. It yields `None` for what is not known, and then nothing more.
pub(super) fn parts<'a>(flags: Flags, words: &'a [Word]) -> Parts<'a> {
    Parts {
        flags,
        words,
        letters: "",
        letters_of: None,
        file: None,
        after_dashes: false,
        over: false,
    }
}

#[derive(Debug)]
pub(super) struct Parts<'a> {
    flags: Flags,
    words: &'a [Word],
    /// What is left of a bundle of letters.
    letters: &'a str,
    letters_of: Option<&'a Word>,
    file: Option<(&'a Word, &'a str)>,
    after_dashes: bool,
    over: bool,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Option<Part<'a>>;

    fn next(&mut self) -> Option<Option<Part<'a>>> {
        if self.over {
            return None;
        }
        let step = self.step();
        self.over = !matches!(step, Some(Some(_)));
        step
    }
}

impl<'a> Parts<'a> {
    fn step(&mut self) -> Option<<Self as Iterator>::Item> {
        if let Some((word, name)) = self.file.take() {
            return Some(Some(Part::File(word, name)));
        }
        if !self.letters.is_empty() {
            return Some(self.letter());
        }
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        let text = word.text.as_str();
        if self.after_dashes || text == "-" || !text.starts_with('-') {
            let may_be_flag = !self.after_dashes && may_be_any(word);
            return Some((!may_be_flag).then_some(Part::Operand(word)));
        }
        if word.is_glob {
            return Some(self.long_pattern(text));
        }
        if text == "--" {
            self.after_dashes = true;
            return self.step();
        }
        if text.starts_with("--") {
            return Some(self.long(word));
        }
        if text[1..].bytes().all(|it| it.is_ascii_digit()) && has(self.flags, "-#") {
            return Some(Some(Part::Flag("#")));
        }
        self.letters = &text[1..];
        self.letters_of = Some(word);
        Some(self.letter())
    }

    fn long(&mut self, word: &'a Word) -> Option<Part<'a>> {
        let (name, value) = match word.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.text.as_str(), None),
        };
        match (long(self.flags, name)?, value) {
            (Takes::Nothing, Some(_)) => return None,
            (Takes::Nothing, None) | (Takes::Maybe, _) | (Takes::Value, Some(_)) => {}
            (Takes::Value, None) => drop(self.value()?),
            (Takes::File, Some(value)) => self.file = Some((word, value)),
            (Takes::File, None) => self.file = Some(self.value()?),
        }
        Some(Part::Flag(name))
    }

    /// `--include=*.rs`: whatever it stands for begins like this, so it is this option.
    fn long_pattern(&self, text: &'a str) -> Option<Part<'a>> {
        let (name, _) = text.split_once('=')?;
        (long(self.flags, name)? == Takes::Value).then_some(Part::Flag(name))
    }

    fn letter(&mut self) -> Option<Part<'a>> {
        let letter = self.letters.chars().next()?;
        let (flag, rest) = self.letters.split_at(letter.len_utf8());
        let takes = short(self.flags, letter)?;
        self.letters = if takes == Takes::Nothing { rest } else { "" };
        match (takes, rest) {
            (Takes::Nothing | Takes::Maybe, _) => {}
            (Takes::Value, "") => drop(self.value()?),
            (Takes::Value, _) => {}
            (Takes::File, "") => self.file = Some(self.value()?),
            (Takes::File, rest) => self.file = self.letters_of.map(|it| (it, rest)),
        }
        Some(Part::Flag(flag))
    }

    /// The next word as a value. One that looks like an option is none: were the program of
    /// another opinion about what takes a value, it would be one.
    fn value(&mut self) -> Option<(&'a Word, &'a str)> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        let is_harmless = match word.text.strip_prefix('-') {
            Some(rest) => rest.bytes().all(|it| it.is_ascii_digit()),
            None => true,
        };
        (is_harmless && !word.is_glob).then_some((word, word.text.as_str()))
    }
}

/// Whether a word is a pattern for names of which nobody knows how they begin.
pub(super) fn may_be_any(word: &Word) -> bool {
    word.is_glob && begins_open(&word.text)
}

/// Whether a pattern begins with what may stand for a dash.
fn begins_open(text: &str) -> bool {
    text.starts_with(['*', '?', '[', '@', '+', '!', '\\'])
}

fn has(flags: Flags, wanted: &str) -> bool {
    flags.iter().any(|it| it.split_ascii_whitespace().any(|it| it == wanted))
}

fn long(flags: Flags, name: &str) -> Option<Takes> {
    if name.ends_with(SIGNS) {
        return None;
    }
    let takes = |it: &str| it.strip_prefix(name).and_then(takes);
    flags.iter().find_map(|it| it.split_ascii_whitespace().find_map(takes))
}

fn short(flags: Flags, letter: char) -> Option<Takes> {
    if !letter.is_ascii_graphic() || "-#:?<".contains(letter) {
        return None;
    }
    let takes_it = |it: &str| {
        let letters = it.strip_prefix('-').filter(|it| !it.starts_with(['-', '#']))?;
        let names = letters.trim_end_matches(SIGNS);
        names.contains(letter).then(|| takes(&letters[names.len()..]))?
    };
    flags.iter().find_map(|it| it.split_ascii_whitespace().find_map(takes_it))
}

const SIGNS: [char; 3] = [':', '?', '<'];

fn takes(sign: &str) -> Option<Takes> {
    match sign {
        "" => Some(Takes::Nothing),
        ":" => Some(Takes::Value),
        "?" => Some(Takes::Maybe),
        "<" => Some(Takes::File),
        _ => None,
    }
}
