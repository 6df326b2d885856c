//! All that could be a command in a line that is not understood, at any depth: for bans, so the bias
//! is the other way round. Finds too much rather than too little, and knows nothing for sure.

use std::path::PathBuf;

use super::lex::Doubt;
use super::parse::redirect;
use super::{Redirect, Simple, Word, words};

/// Bytes that are made of it, each word as often as it is part of a command.
const MAX_MADE: usize = 8 * 1024 * 1024;
/// Lines within lines, and brackets within brackets.
const MAX_DEPTH: usize = 8;

/// All commands that could be found.
pub(super) fn scan(line: &str) -> Vec<Simple> {
    let mut scan = Scan { texts: Vec::new(), found: Vec::new(), room: MAX_MADE };
    scan.texts.push((line.to_owned(), 0));
    while let Some((text, depth)) = scan.texts.pop() {
        let mut text = Text::new(&text, depth);
        text.read(&mut scan);
    }
    let moves = |it: &Simple| matches!(it.program(), "cd" | "chdir" | "pushd" | "popd");
    if !scan.found.iter().any(moves) {
        for simple in &mut scan.found {
            simple.folder = Some(PathBuf::new());
        }
    }
    scan.found
}

struct Scan {
    /// What is still to be read, and how deep it stood.
    texts: Vec<(String, usize)>,
    found: Vec<Simple>,
    /// How much more may be made.
    room: usize,
}

impl Scan {
    fn has_room(&mut self, bytes: usize) -> bool {
        let has = bytes <= self.room;
        self.room = self.room.saturating_sub(bytes);
        has
    }

    fn later(&mut self, text: String, depth: usize) {
        if depth < MAX_DEPTH && !text.is_empty() && self.has_room(text.len()) {
            self.texts.push((text, depth + 1));
        }
    }

    /// A sequence of words that could be a command, and all that it could start.
    fn add(&mut self, mut words: Vec<Word>, redirects: Vec<Redirect>, depth: usize) {
        let is_prefix = |it: &Word| words::is_reserved(&it.text) || is_setting(&it.text);
        let begin = words.iter().position(|it| !is_prefix(it)).unwrap_or(words.len());
        words.drain(..begin);
        if let [list] = words.as_slice()
            && let Some(list) = list.text.strip_prefix('{').and_then(|it| it.strip_suffix('}'))
        {
            words =
                list.split(',').map(|it| Word { text: it.to_owned(), is_glob: false }).collect();
        }
        let mut simples = vec![Simple { words, redirects, ..Simple::default() }];
        while let Some(simple) = simples.pop() {
            let bytes: usize = simple.words.iter().map(|it| it.text.len() + 32).sum();
            if simple.words.is_empty() && simple.redirects.is_empty() || !self.has_room(bytes) {
                continue;
            }
            self.lines(&simple, depth);
            starts(&simple, &mut simples);
            self.found.push(simple);
        }
    }

    /// Words that are lines for a shell.
    fn lines(&mut self, simple: &Simple, depth: usize) {
        let program = words::name(simple.program());
        let arguments = simple.argv().skip(1);
        if program == "eval" {
            let words: Vec<&str> = arguments.collect();
            return self.later(words.join(" "), depth);
        }
        let takes_lines = words::is_shell(program)
            || words::is_starter(program)
            || matches!(program, "trap" | "ssh" | "complete" | "bind" | "source" | ".");
        if takes_lines {
            for line in arguments.filter(|it| it.contains([' ', '\t', '\n', ';', '|', '&'])) {
                self.later(line.to_owned(), depth);
            }
        }
    }
}

fn is_setting(word: &str) -> bool {
    words::assignment(word).is_some()
}

/// The commands that one could start: behind its options, their values, numbers and settings.
fn starts(simple: &Simple, found: &mut Vec<Simple>) {
    let program = simple.program();
    let inner = |words: &[Word]| Simple {
        words: words.to_vec(),
        wrappers: simple.wrappers.iter().cloned().chain([program.to_owned()]).collect(),
        is_open: simple.is_open || words::name(program) == "xargs",
        ..Simple::default()
    };
    if matches!(words::name(program), "find" | "fd" | "fdfind") {
        let is_start = |it: &str| words::runs_for_each(it) || matches!(it, "-x" | "-X" | "--exec");
        for (place, word) in simple.words.iter().enumerate() {
            if is_start(&word.text) {
                let rest = &simple.words[place + 1..];
                let is_end = |it: &str| matches!(it, ";" | "+") || is_start(it);
                let end = rest.iter().position(|it| is_end(&it.text));
                found.push(inner(&rest[..end.unwrap_or(rest.len())]));
            }
        }
    }
    if !words::is_starter(program) && program != "builtin" {
        return;
    }
    let mut is_value = false;
    for (place, word) in simple.words.iter().enumerate().skip(1) {
        if word.text.starts_with('-') {
            is_value = true;
            continue;
        }
        let is_number = word.text.starts_with(|it: char| it.is_ascii_digit());
        if is_number || is_setting(&word.text) {
            is_value = false;
            continue;
        }
        found.push(inner(&simple.words[place..]));
        if !std::mem::take(&mut is_value) {
            return;
        }
    }
}

/// What closes a part of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closer {
    Nothing,
    /// Of what stands for what it prints.
    Bracket,
    Group,
    Backtick,
}

/// A command that is being read.
struct Frame {
    closer: Closer,
    /// Whether the part began within double quotes.
    is_quoted: bool,
    words: Vec<Word>,
    redirects: Vec<Redirect>,
    word: Option<Word>,
    /// Whether the next word is a file, and is written.
    file: Option<bool>,
    /// Whether the word is more than it says.
    is_odd: bool,
}

impl Frame {
    fn new(closer: Closer, is_quoted: bool) -> Frame {
        Frame {
            closer,
            is_quoted,
            words: Vec::new(),
            redirects: Vec::new(),
            word: None,
            file: None,
            is_odd: false,
        }
    }

    fn push(&mut self, character: char) {
        self.word.get_or_insert_default().text.push(character);
    }

    fn end_word(&mut self) {
        let is_odd = std::mem::take(&mut self.is_odd);
        let Some(word) = self.word.take() else { return };
        match self.file.take() {
            None => self.words.push(word),
            Some(is_write) if !is_odd && !word.is_glob && !word.text.is_empty() => {
                let found: Result<_, Doubt> = redirect(&word.text, is_write);
                self.redirects.extend(found.ok().flatten());
            }
            Some(_) => {}
        }
    }
}

/// One text with its quotes and brackets.
struct Text<'a> {
    rest: std::str::Chars<'a>,
    depth: usize,
    frames: Vec<Frame>,
    /// What ends the here-documents that begin on the next line.
    here: Vec<String>,
}

impl<'a> Text<'a> {
    fn new(text: &'a str, depth: usize) -> Text<'a> {
        let frames = vec![Frame::new(Closer::Nothing, false)];
        Text { rest: text.chars(), depth, frames, here: Vec::new() }
    }

    fn top(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::new(Closer::Nothing, false));
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    fn looks_at(&self, what: &str) -> bool {
        self.rest.as_str().starts_with(what)
    }

    fn eat(&mut self, what: &str) -> bool {
        let rest = self.rest.as_str().strip_prefix(what);
        if let Some(rest) = rest {
            self.rest = rest.chars();
        }
        rest.is_some()
    }

    fn read(&mut self, scan: &mut Scan) {
        let mut is_quoted = false;
        while let Some(character) = self.rest.next() {
            match character {
                '\\' => self.escaped(is_quoted),
                '$' | '<' | '>' if self.looks_at("(") && (character == '$' || !is_quoted) => {
                    self.rest.next();
                    self.open(Closer::Bracket, &mut is_quoted);
                }
                '`' if self.top().closer == Closer::Backtick => self.close(scan, &mut is_quoted),
                '`' => self.open(Closer::Backtick, &mut is_quoted),
                '"' => {
                    is_quoted = !is_quoted;
                    self.top().word.get_or_insert_default();
                    let begin = self.rest.as_str();
                    if is_quoted && !begin.contains('"') {
                        scan.later(begin.to_owned(), self.depth);
                    }
                }
                _ if is_quoted => self.top().push(character),
                '\'' => self.single(scan),
                '$' if self.eat("'") => self.ansi(),
                '$' => {
                    self.top().is_odd = true;
                    self.top().push('$');
                }
                '(' => {
                    self.flush(scan);
                    self.open(Closer::Group, &mut is_quoted);
                }
                ')' if matches!(self.top().closer, Closer::Bracket | Closer::Group) => {
                    self.close(scan, &mut is_quoted);
                }
                '#' if self.top().word.is_none() => {
                    let end = self.rest.as_str().find('\n').unwrap_or(self.rest.as_str().len());
                    self.rest = self.rest.as_str()[end..].chars();
                }
                '<' | '>' => self.redirect(character),
                '&' if self.eat(">") => self.redirect('>'),
                '\n' => {
                    self.blank(scan);
                    self.flush(scan);
                    self.documents(scan);
                }
                ';' | '&' | '|' | ')' => self.flush(scan),
                _ if character.is_whitespace() || character == '\0' => self.blank(scan),
                _ => {
                    let top = self.top();
                    top.is_odd |= matches!(character, '~' | '{');
                    top.push(character);
                    let word = top.word.get_or_insert_default();
                    word.is_glob |= matches!(character, '*' | '?' | '[');
                }
            }
        }
        while !self.frames.is_empty() {
            self.flush(scan);
            self.frames.pop();
        }
    }

    fn blank(&mut self, scan: &mut Scan) {
        let top = self.top();
        // The body of a function.
        if top.word.as_ref().is_some_and(|it| it.text == "{") {
            top.word = None;
            return self.flush(scan);
        }
        top.end_word();
    }

    fn escaped(&mut self, is_quoted: bool) {
        match self.rest.next() {
            None | Some('\n') => {}
            Some(next) => {
                if is_quoted && !matches!(next, '"' | '\\' | '$' | '`') {
                    self.top().push('\\');
                }
                self.top().push(next);
            }
        }
    }

    fn single(&mut self, scan: &mut Scan) {
        self.top().word.get_or_insert_default();
        let rest = self.rest.as_str();
        match rest.split_once('\'') {
            Some((inner, after)) => {
                self.top().word.get_or_insert_default().text.push_str(inner);
                self.rest = after.chars();
            }
            // It may be no quote at all.
            None => scan.later(rest.to_owned(), self.depth),
        }
    }

    /// `$'…'`, whose escapes can spell anything.
    fn ansi(&mut self) {
        self.top().word.get_or_insert_default();
        while let Some(character) = self.rest.next() {
            let character = match character {
                '\'' => return,
                '\\' => match self.rest.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('x') => self.number(16, 2, 0),
                    Some('u') => self.number(16, 4, 0),
                    Some('U') => self.number(16, 8, 0),
                    Some(it @ '0'..='7') => self.number(8, 2, it.to_digit(8).unwrap_or(0)),
                    Some(it) => it,
                    None => return,
                },
                it => it,
            };
            self.top().push(character);
        }
    }

    fn number(&mut self, radix: u32, digits: usize, begin: u32) -> char {
        let mut number = begin;
        for _ in 0..digits {
            let Some(digit) = self.rest.clone().next().and_then(|it| it.to_digit(radix)) else {
                break;
            };
            self.rest.next();
            number = number.saturating_mul(radix).saturating_add(digit);
        }
        char::from_u32(number).unwrap_or('?')
    }

    /// A command within the current one; far inside, they only stand side by side.
    fn open(&mut self, closer: Closer, is_quoted: &mut bool) {
        self.top().is_odd = true;
        if self.frames.len() < MAX_DEPTH * 8 {
            self.frames.push(Frame::new(closer, *is_quoted));
        }
        *is_quoted = false;
    }

    fn close(&mut self, scan: &mut Scan, is_quoted: &mut bool) {
        self.flush(scan);
        let Some(inner) = self.frames.pop() else { return };
        *is_quoted = inner.is_quoted;
        if inner.closer != Closer::Group {
            self.top().word.get_or_insert_default();
        }
    }

    fn flush(&mut self, scan: &mut Scan) {
        let depth = self.depth;
        let top = self.top();
        top.end_word();
        top.file = None;
        let (words, redirects) =
            (std::mem::take(&mut top.words), std::mem::take(&mut top.redirects));
        scan.add(words, redirects, depth);
    }

    fn redirect(&mut self, character: char) {
        let is_number = |it: &Word| it.text.bytes().all(|it| it.is_ascii_digit());
        let top = self.top();
        if top.word.as_ref().is_some_and(is_number) {
            top.word = None;
        }
        top.end_word();
        if character == '<' && self.eat("<") {
            if !self.eat("<") {
                self.document();
            }
            return;
        }
        let is_write = character == '>' || self.looks_at(">");
        while self.eat(">") || self.eat("|") {}
        if self.eat("&") && self.looks_at_number() {
            return;
        }
        self.top().file = Some(is_write);
    }

    /// Whether a file descriptor was there, and has been passed.
    fn looks_at_number(&mut self) -> bool {
        let rest = self.rest.as_str().trim_start_matches(|it: char| it.is_ascii_digit());
        let found = rest.len() < self.rest.as_str().len() || rest.starts_with('-');
        self.rest = rest.strip_prefix('-').unwrap_or(rest).chars();
        found
    }

    /// The word that will end a here-document.
    fn document(&mut self) {
        let rest = self.rest.as_str().trim_start_matches('-').trim_start_matches([' ', '\t']);
        let is_end = |it: char| it.is_whitespace() || ";&|<>()".contains(it);
        let end = rest.find(is_end).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.here.push(word.replace(['\'', '"', '\\'], ""));
        self.rest = after.chars();
    }

    /// Reads past the here-documents that begin here; a shell may read them as lines.
    fn documents(&mut self, scan: &mut Scan) {
        for end in std::mem::take(&mut self.here) {
            let rest = self.rest.as_str();
            let mut length = 0;
            let mut after = rest.len();
            for line in rest.split_inclusive('\n') {
                if line.trim_start_matches('\t').trim_end_matches('\n') == end {
                    after = length + line.len();
                    break;
                }
                length += line.len();
            }
            scan.later(rest[..length].to_owned(), self.depth);
            self.rest = rest[after..].chars();
        }
    }
}
