//! Finds everything that could be a command in an ambiguous line, at any depth. The result is used
//! for denying, so it rather contains too much than too little.

use super::super::args::{attached_value, started_by_git};
use super::super::programs::{self, Starts};
use super::super::{Redirect, Script, SimpleCommand, Word};
use super::here_document::Reader;
use super::lexer::Ambiguity;
use super::parser::redirect;
use super::shell_state::{ShellFolder, changes_folder};
use super::{here_document, shell_state};

/// The maximum size of the result in bytes, counting each word as often as it is part of a command.
const MAX_RESULT_BYTES: usize = 8 * 1024 * 1024;
/// The maximum depth of lines within lines. Brackets may be nested eight times as deep.
const MAX_DEPTH: usize = 8;
/// The ends of the names of variables whose value other programs run, which may be a line.
const PROGRAM_VARIABLES: &str =
    "ASKPASS BROWSER COMMAND EDITOR EXTERNAL_DIFF LESSOPEN PAGER RSH RUNNER SSH VISUAL WRAPPER";

/// All commands that can be found in a line, and its other text that could be commands.
pub(in crate::shell) fn scan(line: &str) -> Script {
    let scan = CommandScanner {
        texts: vec![(line.to_owned(), 0, ShellFolder::default())],
        budget: MAX_RESULT_BYTES,
        ..CommandScanner::default()
    };
    scan.finish()
}

/// The command of these words, and all commands that it could start.
pub(in crate::shell) fn scan_words(words: Vec<Word>) -> Script {
    let mut scan = CommandScanner { budget: MAX_RESULT_BYTES, ..CommandScanner::default() };
    scan.add(words, Vec::new(), 0);
    scan.finish()
}

#[derive(Default)]
struct CommandScanner {
    /// The texts that are still to be read, with their depths and the folders in which they run.
    texts: Vec<(String, usize, ShellFolder)>,
    found: Vec<SimpleCommand>,
    /// Texts that programs are given and may take for commands.
    program_texts: Vec<String>,
    /// Here-documents for programs that do not run them. Another command of the line may.
    data: Vec<String>,
    /// The variables that are set, with their values.
    assigned: Vec<(String, String)>,
    /// The folder in which the next command runs.
    folder: ShellFolder,
    /// The number of bytes that the result may still grow by.
    budget: usize,
    /// True if something was left out because of that, or because it is too deep.
    is_cut: bool,
}

impl CommandScanner {
    /// Reads the texts that are left.
    fn finish(mut self) -> Script {
        while let Some((text, depth, folder)) = self.texts.pop() {
            self.folder = folder;
            TextReader::new(&text, depth, self.found.len()).read(&mut self);
        }
        let mut texts = self.program_texts;
        if !self.data.is_empty() && self.found.iter().any(here_document::runs_text) {
            texts.append(&mut self.data);
        }
        let commands = shell_state::resolve(self.found, &self.assigned);
        Script { commands, ambiguity: None, texts, is_cut: self.is_cut }
    }

    fn spend(&mut self, bytes: usize) -> bool {
        let is_affordable = bytes <= self.budget;
        self.budget = self.budget.saturating_sub(bytes);
        self.is_cut |= !is_affordable;
        is_affordable
    }

    fn scan_later(&mut self, text: String, depth: usize) {
        self.is_cut |= depth >= MAX_DEPTH && !text.is_empty();
        if depth < MAX_DEPTH && !text.is_empty() && self.spend(text.len()) {
            self.texts.push((text, depth + 1, self.folder.clone()));
        }
    }

    fn add_program_text(&mut self, text: String) {
        if self.spend(text.len()) {
            self.program_texts.push(text);
        }
    }

    /// Notes a variable that is set, for the rest of the line if it is set alone.
    fn assign(&mut self, word: &str, is_alone: bool) {
        let Some((name, value)) = shell_state::assignment(word) else { return };
        let is_temporary = value == SUBSTITUTED
            && self.found.last().is_some_and(|command| command.program() == "mktemp");
        let value = if is_temporary { "/tmp/mktemp" } else { value };
        if value.contains([' ', '\t', '\n']) {
            self.add_program_text(value.to_owned());
        }
        if is_alone {
            self.assigned.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Adds words that could be a command, and every command that it could start.
    fn add(&mut self, mut words: Vec<Word>, redirects: Vec<Redirect>, depth: usize) {
        let assigned = words.iter().filter_map(|word| shell_state::assignment(&word.text));
        for (name, line) in assigned {
            if PROGRAM_VARIABLES.split(' ').any(|end| name.ends_with(end)) {
                self.scan_later(line.to_owned(), depth);
            }
            // A setting of git may be a line for a shell, or an alias.
            if name == "GIT_CONFIG_PARAMETERS" || name.starts_with("GIT_CONFIG_VALUE_") {
                self.scan_later(format!("git -c \"alias.x={line}\"\ngit -c {line}\n{line}"), depth);
            }
        }
        let start = words.iter().take_while(|word| shell_state::is_prefix(&word.text)).count();
        // In front of a command an assignment changes nothing in the words of that command.
        let is_alone = start == words.len();
        for word in words.drain(..start) {
            self.assign(&word.text, is_alone);
        }
        without_substitution(&mut words);
        let mut simples = vec![SimpleCommand { words, redirects, ..SimpleCommand::default() }];
        while let Some(mut simple) = simples.pop() {
            let bytes: usize = simple.words.iter().map(|word| word.text.len() + 32).sum();
            if simple.words.is_empty() && simple.redirects.is_empty() || !self.spend(bytes) {
                continue;
            }
            self.scan_line_arguments(&simple, depth);
            add_started_commands(&simple, &mut simples);
            simple.folder.clone_from(&self.folder.path);
            simple.is_in_home = self.folder.is_home;
            if changes_folder(&simple) {
                self.folder.change(&shell_state::with_values(&simple, &self.assigned));
            }
            self.found.push(simple);
        }
    }

    /// Schedules arguments that are lines for a shell.
    fn scan_line_arguments(&mut self, simple: &SimpleCommand, depth: usize) {
        let program = shell_state::program_name(simple.program());
        let arguments = simple.argv().skip(1);
        if program == "eval" {
            return self.scan_later(arguments.collect::<Vec<_>>().join(" "), depth);
        }
        let started = started_by_git(simple.words.get(1..).unwrap_or_default());
        for word in started.filter(|_| program == "git").unwrap_or_default() {
            // `--exec=LINE`.
            let line = word.text.split_once('=').filter(|parts| parts.0.starts_with("--"));
            self.scan_later(line.map_or(word.text.as_str(), |parts| parts.1).to_owned(), depth);
        }
        if programs::find(program).starts != Starts::Nothing {
            let folder = self.folder.clone();
            self.folder.follow_wrappers(&simple.words);
            let gets_names = simple.has_unknown_args || matches!(program, "xargs" | "parallel");
            for line in
                arguments.filter(|argument| argument.contains([' ', '\t', '\n', ';', '|', '&']))
            {
                let names = if gets_names { SUBSTITUTED } else { "{}" };
                self.scan_later(attached_value(line, &['c', 'S']).replace("{}", names), depth);
            }
            self.folder = folder;
        }
    }
}

/// Stands in a word for a substitution, whose output is not known.
const SUBSTITUTED: &str = "$()";

/// A substitution in front of the name of a program may be empty.
fn without_substitution(words: &mut [Word]) {
    if let Some(first) = words.first_mut().filter(|first| first.text.starts_with(SUBSTITUTED)) {
        first.text.replace_range(..SUBSTITUTED.len(), "");
    }
}

/// Adds the commands that a command could start: those after its options, their values, numbers and
/// assignments.
fn add_started_commands(simple: &SimpleCommand, found: &mut Vec<SimpleCommand>) {
    let program = simple.program();
    let adds_unknown = matches!(shell_state::program_name(program), "xargs" | "parallel");
    let inner = |words: &[Word]| {
        let mut words = words.to_vec();
        without_substitution(&mut words);
        SimpleCommand {
            words,
            wrappers: simple.wrappers.iter().cloned().chain([program.to_owned()]).collect(),
            has_unknown_args: simple.has_unknown_args || adds_unknown,
            ..SimpleCommand::default()
        }
    };
    if matches!(shell_state::program_name(program), "find" | "fd" | "fdfind") {
        let is_start =
            |text: &str| shell_state::is_find_exec(text) || matches!(text, "-x" | "-X" | "--exec");
        for (index, word) in simple.words.iter().enumerate() {
            if is_start(&word.text) {
                let mut parts = simple.words[index + 1..]
                    .split(|word| matches!(word.text.as_str(), ";" | "+") || is_start(&word.text));
                found.extend(parts.next().map(&inner));
            }
        }
    }
    let name = shell_state::program_name(program);
    let dashes = simple.words.iter().position(|word| word.text == "--").filter(|_| name == "set");
    found.extend(dashes.map(|at| inner(&simple.words[at + 1..])));
    let by_git = started_by_git(simple.words.get(1..).unwrap_or_default());
    found.extend(by_git.filter(|_| name == "git").map(&inner));
    if programs::find(name).starts != Starts::Program && program != "builtin" {
        return;
    }
    // The operand in front of the program: a file, a folder, an architecture, a task.
    let mut is_value = matches!(name, "chroot" | "flock" | "perf" | "setarch");
    for (index, word) in simple.words.iter().enumerate().skip(1) {
        if word.text.starts_with('-') {
            is_value = true;
            continue;
        }
        let is_number = word.text.starts_with(|char: char| char.is_ascii_digit());
        if is_number || shell_state::is_assignment(&word.text) {
            is_value = false;
            continue;
        }
        found.push(inner(&simple.words[index..]));
        if !std::mem::take(&mut is_value) {
            return;
        }
    }
}

/// The end of the command that is being read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Closer {
    #[default]
    EndOfText,
    /// The `)` of a command or process substitution.
    Substitution,
    /// The `)` of a group.
    Group,
    Backtick,
}

/// A command while it is read.
#[derive(Default)]
struct Frame {
    closer: Closer,
    /// True if it began within double quotes.
    is_quoted: bool,
    words: Vec<Word>,
    redirects: Vec<Redirect>,
    word: Option<Word>,
    /// Set if the next word is the file of a redirect; true if that file is written.
    redirect_is_write: Option<bool>,
    /// True if what is written to that file is appended.
    redirect_only_appends: bool,
    /// True if the word contains an expansion, so that its text is not what the program gets.
    has_expansion: bool,
    /// True if it contains braces that are not quoted.
    has_braces: bool,
    /// True if a word stands for more words than can be looked at.
    is_cut: bool,
    /// The folder in which the command around it runs.
    outer_folder: ShellFolder,
}

impl Frame {
    fn push(&mut self, character: char) {
        self.word.get_or_insert_default().text.push(character);
    }

    fn end_word(&mut self) {
        let has_expansion = std::mem::take(&mut self.has_expansion);
        let has_braces = std::mem::take(&mut self.has_braces);
        let Some(word) = self.word.take() else { return };
        match self.redirect_is_write.take() {
            None if has_braces => {
                let (words, is_cut) = shell_state::expand_braces(word);
                self.words.extend(words);
                self.is_cut |= is_cut;
            }
            None => self.words.push(word),
            Some(is_write)
                if (!has_expansion || word.text.starts_with("/dev/"))
                    && !word.is_glob
                    && !word.text.is_empty() =>
            {
                let found: Result<_, Ambiguity> =
                    redirect(&word.text, is_write, self.redirect_only_appends);
                self.redirects.extend(found.ok().flatten());
            }
            Some(_) => {}
        }
    }
}

/// Reads one text with its quotes and brackets.
struct TextReader<'a> {
    rest: std::str::Chars<'a>,
    depth: usize,
    frames: Vec<Frame>,
    /// The delimiters of the here-documents that begin on the next line, each with true if it is quoted, so that the text
    /// of the document is not expanded.
    here_delimiters: Vec<(String, bool)>,
    /// The number of commands that had been found when the current line began.
    line_start: usize,
}

impl<'a> TextReader<'a> {
    fn new(text: &'a str, depth: usize, line_start: usize) -> TextReader<'a> {
        let frames = vec![Frame::default()];
        TextReader { rest: text.chars(), depth, frames, here_delimiters: Vec::new(), line_start }
    }

    fn top(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    fn looks_at(&self, what: &str) -> bool {
        self.rest.as_str().starts_with(what)
    }

    fn eat(&mut self, what: &str) -> bool {
        let rest = self.rest.as_str().strip_prefix(what);
        self.rest = rest.unwrap_or(self.rest.as_str()).chars();
        rest.is_some()
    }

    fn read(&mut self, scan: &mut CommandScanner) {
        let mut is_quoted = false;
        while let Some(character) = self.rest.next() {
            match character {
                '\\' => self.escaped(is_quoted),
                '$' | '<' | '>' if self.looks_at("(") && (character == '$' || !is_quoted) => {
                    self.rest.next();
                    self.open(scan, Closer::Substitution, &mut is_quoted);
                }
                '`' if self.top().closer == Closer::Backtick => self.close(scan, &mut is_quoted),
                '`' => self.open(scan, Closer::Backtick, &mut is_quoted),
                '"' => self.double_quote(scan, &mut is_quoted),
                _ if is_quoted => self.top().push(character),
                '\'' => self.single_quoted(scan),
                '$' if self.eat("'") => self.ansi_quoted(),
                '$' => {
                    self.top().has_expansion = true;
                    self.top().push('$');
                }
                '(' => {
                    self.flush(scan);
                    self.open(scan, Closer::Group, &mut is_quoted);
                }
                ')' if matches!(self.top().closer, Closer::Substitution | Closer::Group) => {
                    self.close(scan, &mut is_quoted);
                }
                '#' if self.top().word.is_none() => self.skip_comment(),
                '<' | '>' => self.redirect(character),
                '&' if self.eat(">") => self.redirect('>'),
                '\n' => {
                    self.blank(scan);
                    self.flush(scan);
                    self.here_documents(scan);
                    self.line_start = scan.found.len();
                }
                ';' | '&' | '|' | ')' => self.flush(scan),
                _ if character.is_whitespace() || character == '\0' => self.blank(scan),
                _ => {
                    let top = self.top();
                    top.has_braces |= character == '{';
                    top.has_expansion |= matches!(character, '~' | '{');
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

    /// Begins or ends a quotation. What follows a quotation without an end is scanned as well.
    fn double_quote(&mut self, scan: &mut CommandScanner, is_quoted: &mut bool) {
        *is_quoted = !*is_quoted;
        self.top().word.get_or_insert_default();
        if *is_quoted && !self.rest.as_str().contains('"') {
            scan.scan_later(self.rest.as_str().to_owned(), self.depth);
        }
    }

    fn skip_comment(&mut self) {
        let rest = self.rest.as_str();
        self.rest = rest[rest.find('\n').unwrap_or(rest.len())..].chars();
    }

    fn blank(&mut self, scan: &mut CommandScanner) {
        let top = self.top();
        // The body of a function begins.
        if top.word.as_ref().is_some_and(|word| word.text == "{") {
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

    fn single_quoted(&mut self, scan: &mut CommandScanner) {
        self.top().word.get_or_insert_default();
        let rest = self.rest.as_str();
        match rest.split_once('\'') {
            Some((inner, after)) => {
                self.top().word.get_or_insert_default().text.push_str(inner);
                self.rest = after.chars();
            }
            // It may not be a quote at all.
            None => scan.scan_later(rest.to_owned(), self.depth),
        }
    }

    /// `$'…'`, whose escapes can spell anything.
    fn ansi_quoted(&mut self) {
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
                    Some(digit @ '0'..='7') => self.number(8, 2, digit.to_digit(8).unwrap_or(0)),
                    Some(escaped) => escaped,
                    None => return,
                },
                char => char,
            };
            self.top().push(character);
        }
    }

    fn number(&mut self, radix: u32, digits: usize, begin: u32) -> char {
        let mut number = begin;
        for _ in 0..digits {
            let Some(digit) = self.rest.clone().next().and_then(|char| char.to_digit(radix)) else {
                break;
            };
            self.rest.next();
            number = number.saturating_mul(radix).saturating_add(digit);
        }
        char::from_u32(number).unwrap_or('?')
    }

    /// Begins a command within the current one. Beyond the maximum depth, its words are added to
    /// the current one.
    fn open(&mut self, scan: &CommandScanner, closer: Closer, is_quoted: &mut bool) {
        self.top().has_expansion = true;
        if self.frames.len() < MAX_DEPTH * 8 {
            let outer_folder = scan.folder.clone();
            let frame = Frame { closer, is_quoted: *is_quoted, outer_folder, ..Frame::default() };
            self.frames.push(frame);
        }
        *is_quoted = false;
    }

    fn close(&mut self, scan: &mut CommandScanner, is_quoted: &mut bool) {
        self.flush(scan);
        let Some(inner) = self.frames.pop() else { return };
        *is_quoted = inner.is_quoted;
        // It ran in a shell of its own.
        scan.folder = inner.outer_folder;
        if inner.closer != Closer::Group {
            let top = self.top();
            let is_program = top.words.is_empty();
            let word = top.word.get_or_insert_default();
            if !is_program || word.text.contains('=') {
                word.text.push_str(SUBSTITUTED);
            }
        }
    }

    fn flush(&mut self, scan: &mut CommandScanner) {
        let depth = self.depth;
        let top = self.top();
        top.end_word();
        top.redirect_is_write = None;
        scan.is_cut |= std::mem::take(&mut top.is_cut);
        let words = std::mem::take(&mut top.words);
        let redirects = std::mem::take(&mut top.redirects);
        scan.add(words, redirects, depth);
    }

    fn redirect(&mut self, character: char) {
        let top = self.top();
        top.word.take_if(|word| word.text.bytes().all(|byte| byte.is_ascii_digit()));
        top.end_word();
        if character == '<' && self.eat("<") {
            if !self.eat("<") {
                self.here_delimiter();
            }
            return;
        }
        let is_write = character == '>' || self.looks_at(">");
        self.top().redirect_only_appends = character == '>' && self.looks_at(">");
        while self.eat(">") || self.eat("|") {}
        if self.eat("&") && self.skip_descriptor() {
            return;
        }
        self.top().redirect_is_write = Some(is_write);
    }

    /// Skips a file descriptor number or `-`. True if there was one.
    fn skip_descriptor(&mut self) -> bool {
        let rest = self.rest.as_str().trim_start_matches(|char: char| char.is_ascii_digit());
        let found = rest.len() < self.rest.as_str().len() || rest.starts_with('-');
        self.rest = rest.strip_prefix('-').unwrap_or(rest).chars();
        found
    }

    /// Reads the delimiter of a here-document.
    fn here_delimiter(&mut self) {
        let rest = self.rest.as_str().trim_start_matches('-').trim_start_matches([' ', '\t']);
        let quoted = ['"', '\''].into_iter().find(|quote| rest.starts_with(*quote));
        let closing = quoted.and_then(|quote| rest[1..].find(quote)).map_or(0, |at| at + 2);
        let end = rest[closing..]
            .find(|char: char| char.is_whitespace() || ";&|<>()".contains(char))
            .map_or(rest.len(), |length| closing + length);
        let (word, after) = rest.split_at(end);
        let delimiter = word.replace(['\'', '"', '\\'], "");
        let is_quoted = delimiter.len() < word.len();
        self.here_delimiters.push((delimiter, is_quoted));
        self.rest = after.chars();
    }

    /// Skips the here-documents that begin here. A shell runs them, another program may run them, and those
    /// that only take data do not; the shell that runs the line expands them.
    fn here_documents(&mut self, scan: &mut CommandScanner) {
        for (name, is_quoted) in std::mem::take(&mut self.here_delimiters) {
            let rest = self.rest.as_str();
            let lines = rest
                .split_inclusive('\n')
                .take_while(|line| line.trim_start_matches('\t').trim_end_matches('\n') != name);
            let length: usize = lines.map(str::len).sum();
            let (text, end) = rest.split_at(length);
            let readers = scan.found.get(self.line_start..).unwrap_or_default();
            let outer_frames = self.frames.split_last().map_or(&[][..], |split| split.1);
            let around =
                outer_frames.iter().map(|frame| (frame.words.as_slice(), frame.word.as_ref()));
            match here_document::reader(readers, around) {
                Reader::Shell => scan.scan_later(text.to_owned(), self.depth),
                Reader::Unknown => scan.add_program_text(text.to_owned()),
                Reader::Data if scan.spend(text.len()) => scan.data.push(text.to_owned()),
                Reader::Data => {}
            }
            if !is_quoted && text.contains(['$', '`']) {
                let quoted = format!(": \"{}\"", text.replace('"', " "));
                scan.scan_later(quoted, self.depth);
            }
            self.rest = end.split_once('\n').map_or("", |split| split.1).chars();
        }
    }
}
