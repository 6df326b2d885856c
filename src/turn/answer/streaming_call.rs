//! The card of a call whose arguments are still streaming: its title as soon as the path or command
//! is known, then the progress of a long value from time to time. An incremental JSON scanner extracts those
//! parts of the arguments: it reads each byte once and reports no incomplete title.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::tools::{ArgumentRole, ShownArgument, canonical_name};
use turnwright_types::effect::{
    CallContent, CallView, FileFate, Location, escape_hidden, escape_hidden_line, fenced,
    shorten_title,
};
use turnwright_types::ids::CallId;
use turnwright_types::update::{CallUpdate, ToolCallStatus};

/// The interval between two updates of the line count.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);
/// The interval between two previews.
const PREVIEW_INTERVAL: Duration = Duration::from_secs(1);

/// A call of the answer that is being received.
#[derive(Debug)]
pub(super) struct StreamingCall {
    pub(super) id: CallId,
    /// The card's view; `None` for the plan, which has no card.
    pub(in crate::turn) view: Option<CallView>,
    verb: String,
    arguments: PartialArguments,
    pattern: Option<String>,
    path: Option<String>,
    /// When the call was named.
    pub(super) opened: Instant,
    /// True if the client shows the card.
    pub(super) is_shown: bool,
    counted: Instant,
    previewed: Instant,
    /// The length of the last preview in bytes.
    shown: usize,
}

impl StreamingCall {
    /// `shown` are the arguments of the tool that its card shows.
    pub(in crate::turn) fn new(
        id: CallId,
        view: Option<CallView>,
        shown: &'static [ShownArgument],
        now: Instant,
    ) -> StreamingCall {
        let title = view.as_ref().map_or("", |view| view.title.as_str());
        StreamingCall {
            id,
            verb: title.split(' ').next().unwrap_or_default().to_owned(),
            view,
            arguments: PartialArguments::new(shown),
            pattern: None,
            path: None,
            opened: now,
            is_shown: false,
            counted: now,
            previewed: now,
            shown: 0,
        }
    }

    /// Scans more of the arguments. Returns the update that the title needs, if it has changed.
    pub(in crate::turn) fn push(&mut self, text: &str, cwd: &Path) -> Option<CallUpdate> {
        self.view.as_ref()?;
        let found = self.arguments.push(text);
        if found.is_empty() {
            return None;
        }
        for (argument, value) in found {
            self.set_title_value(argument.role, value, cwd);
        }
        let mut update = CallUpdate::new(self.id.clone(), ToolCallStatus::Pending);
        update.view.clone_from(&self.view);
        Some(update)
    }

    /// Puts a value into the view.
    fn set_title_value(&mut self, role: ArgumentRole, value: String, cwd: &Path) {
        let Some(view) = &mut self.view else { return };
        let object = match role {
            ArgumentRole::Command if value.trim().is_empty() => return,
            ArgumentRole::Command => {
                view.title = escape_hidden(&value);
                return;
            }
            // The path as written: it is resolved when the call is complete.
            ArgumentRole::Path => {
                view.locations = vec![Location { path: place(cwd, &value), line: None }];
                let object = escape_hidden_line(&value);
                self.path = Some(value);
                match &self.pattern {
                    Some(pattern) => format!("{pattern} in {object}"),
                    None => object,
                }
            }
            ArgumentRole::Pattern => {
                let pattern = format!("\"{}\"", escape_hidden_line(&value));
                let place =
                    self.path.as_ref().map(|path| format!(" in {}", escape_hidden_line(path)));
                let object = format!("{pattern}{}", place.unwrap_or_default());
                self.pattern = Some(pattern);
                object
            }
            ArgumentRole::Url => {
                let bare = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
                escape_hidden_line(bare)
            }
            _ => escape_hidden_line(&value),
        };
        view.title = shorten_title(format!("{} {object}", self.verb));
    }

    /// Returns true if it is time to show the progress of a long value. Cheap, because it is called for each
    /// piece.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.counted + COUNT_INTERVAL
            && self.view.is_some()
            && self.arguments.long().is_some()
    }

    /// The update that shows the progress of a long value.
    pub(super) fn progress(&mut self, now: Instant, cwd: &Path) -> Option<CallUpdate> {
        self.counted = now;
        let long = self.arguments.long()?;
        let mut view = self.view.clone().filter(|_| long.lines > 0)?;
        let unit = if long.lines == 1 { "line" } else { "lines" };
        view.title = format!("{} · {} {unit}…", view.title, long.lines);
        let mut update = CallUpdate::new(self.id.clone(), ToolCallStatus::Pending);
        update.view = Some(view);
        let size = long.text.map_or(0, str::len);
        // Only once there is markedly more text, so that all previews together cost a few times its
        // length.
        let is_new = size > self.shown + self.shown / 8 || size < self.shown;
        if now >= self.previewed + PREVIEW_INTERVAL && is_new {
            update.content = preview(&long, self.path.as_ref().map(|path| place(cwd, path)));
            self.previewed = now;
            self.shown = size;
        }
        Some(update)
    }
}

/// Where a path leads as it is written, with the separators of the system.
fn place(cwd: &Path, path: &str) -> PathBuf {
    let mut place = PathBuf::with_capacity(cwd.as_os_str().len() + 1 + path.len());
    place.push(cwd);
    place.extend(Path::new(path).components());
    place
}

/// The change so far. The old content of a file that is written anew is read only when the call is
/// complete; until then the new content is shown alone.
fn preview(long: &LongValue<'_>, path: Option<PathBuf>) -> Option<Vec<CallContent>> {
    let new = long.text?.to_owned();
    let old = match long.role {
        ArgumentRole::Patch => return Some(vec![CallContent::Text(fenced(&new))]),
        ArgumentRole::NewContent => None,
        _ => Some(long.old?.to_owned()),
    };
    Some(vec![CallContent::Diff { path: path?, old, new, fate: FileFate::Kept }])
}

/// The most bytes of a title value or of a key.
const MAX_TITLE_BYTES: usize = 4 * 1024;
/// The most bytes of a long value that are kept to be shown.
const MAX_SHOWN_BYTES: usize = 200 * 1024;
/// The deepest nesting that is followed.
const MAX_DEPTH: usize = 64;

/// The arguments of one call, as far as they have arrived.
#[derive(Debug, Default)]
pub(in crate::turn) struct PartialArguments {
    /// The arguments of the tool that its card shows.
    shown: &'static [ShownArgument],
    state: ScanState,
    /// The open brackets; true for an object, false for an array.
    open_brackets: Vec<bool>,
    unescape: StringUnescaper,
    key: String,
    value: StringValue,
    /// The arguments of the title that were reported.
    reported: Vec<ShownArgument>,
    old_text: Option<String>,
    /// The last long value, which may still be arriving.
    long: Option<ShownArgument>,
    lines: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    /// Before the opening brace of the object.
    #[default]
    Start,
    /// Before a key or the end of the object.
    Key,
    InKey,
    Colon,
    /// Before a value or the end of the array.
    Value,
    /// In a string value.
    InString,
    /// In another value, or after a value.
    After,
    /// The scan has ended: the arguments are complete or invalid.
    Done,
}

/// The string value that is being read, as far as it is of use.
#[derive(Debug, Default)]
struct StringValue {
    argument: Option<ShownArgument>,
    text: String,
    /// The most bytes that are kept; 0 for a value of no use.
    limit: usize,
    /// It is longer than the limit, and nothing of it is kept.
    is_too_long: bool,
    ends_line: bool,
}

impl StringValue {
    fn push(&mut self, piece: &str, lines: &mut usize) {
        if self.limit == 0 {
            return;
        }
        if self.argument.is_some_and(|argument| argument.role.is_long()) {
            *lines += memchr::memchr_iter(b'\n', piece.as_bytes()).count();
            self.ends_line = piece.ends_with('\n');
        }
        if self.text.len() + piece.len() > self.limit {
            self.is_too_long = true;
            self.text = String::new();
        } else if !self.is_too_long {
            self.text.push_str(piece);
        }
    }
}

/// A long value as far as it has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::turn) struct LongValue<'a> {
    pub(in crate::turn) role: ArgumentRole,
    /// The number of lines of this value and of the long values before it.
    lines: usize,
    /// The text so far; `None` if it is too long to be shown.
    pub(in crate::turn) text: Option<&'a str>,
    /// The text that it is to replace.
    old: Option<&'a str>,
}

impl PartialArguments {
    /// Arguments that have not begun to arrive.
    pub(in crate::turn) fn new(shown: &'static [ShownArgument]) -> PartialArguments {
        PartialArguments { shown, ..PartialArguments::default() }
    }

    /// Scans more of the arguments. Returns the title values that are complete now, each argument
    /// at most once.
    pub(in crate::turn) fn push(&mut self, text: &str) -> Vec<(ShownArgument, String)> {
        let mut found = Vec::new();
        let mut rest = text;
        while let Some(&byte) = rest.as_bytes().first()
            && self.state != ScanState::Done
        {
            rest = match self.state {
                ScanState::InKey | ScanState::InString => self.read_string(rest, &mut found),
                _ => {
                    self.state = self.next_state(byte);
                    // A non-ASCII byte has ended the scan.
                    rest.get(1..).unwrap_or_default()
                }
            };
        }
        found
    }

    /// The long value that is arriving, or has arrived last.
    pub(in crate::turn) fn long(&self) -> Option<LongValue<'_>> {
        let argument = self.long?;
        let is_kept = self.value.argument == Some(argument) && !self.value.is_too_long;
        let lines = self.lines + usize::from(!self.value.ends_line);
        let text = is_kept.then_some(self.value.text.as_str());
        Some(LongValue { role: argument.role, lines, text, old: self.old_text.as_deref() })
    }

    fn next_state(&mut self, byte: u8) -> ScanState {
        match (self.state, byte) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => state,
            (ScanState::Start, b'{') => self.open_bracket(true),
            (ScanState::Key, b'"') => {
                self.key.clear();
                ScanState::InKey
            }
            (ScanState::Key | ScanState::After, b'}')
            | (ScanState::Value | ScanState::After, b']') => self.close_bracket(byte == b'}'),
            (ScanState::Colon, b':') => ScanState::Value,
            (ScanState::Value, b'"') => {
                self.start_string_value();
                ScanState::InString
            }
            (ScanState::Value, b'{' | b'[') => self.open_bracket(byte == b'{'),
            (ScanState::After, b',') if self.open_brackets.last() == Some(&true) => ScanState::Key,
            (ScanState::After, b',') => ScanState::Value,
            (
                ScanState::Value | ScanState::After,
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'+' | b'.' | b'E',
            ) => ScanState::After,
            _ => ScanState::Done,
        }
    }

    fn open_bracket(&mut self, is_object: bool) -> ScanState {
        if self.open_brackets.len() == MAX_DEPTH {
            return ScanState::Done;
        }
        self.open_brackets.push(is_object);
        if is_object { ScanState::Key } else { ScanState::Value }
    }

    fn close_bracket(&mut self, is_object: bool) -> ScanState {
        if self.open_brackets.pop() != Some(is_object) || self.open_brackets.is_empty() {
            return ScanState::Done;
        }
        ScanState::After
    }

    /// Reads on in a key or in a string value. Returns the rest of the text after it.
    fn read_string<'a>(
        &mut self,
        text: &'a str,
        found: &mut Vec<(ShownArgument, String)>,
    ) -> &'a str {
        let is_key = self.state == ScanState::InKey;
        let read = if is_key {
            let key = &mut self.key;
            self.unescape.read(text, |piece| {
                if key.len() < MAX_TITLE_BYTES {
                    key.push_str(piece);
                }
            })
        } else {
            let value = &mut self.value;
            let lines = &mut self.lines;
            self.unescape.read(text, |piece| value.push(piece, lines))
        };
        match read {
            StringProgress::Unfinished => "",
            StringProgress::Invalid => {
                self.state = ScanState::Done;
                ""
            }
            StringProgress::Closed(rest) if is_key => {
                self.state = ScanState::Colon;
                rest
            }
            StringProgress::Closed(rest) => {
                self.state = ScanState::After;
                found.extend(self.end_string_value());
                rest
            }
        }
    }

    /// Decides the use of the string that starts here.
    fn start_string_value(&mut self) {
        let is_element = match self.open_brackets.as_slice() {
            [true] => Some(false),
            // In an element of a list of edits.
            [true, false, true] => Some(true),
            _ => None,
        };
        let name = canonical_name(&self.key);
        let mut shown = self.shown.iter().copied();
        let named = shown.find(|shown| shown.name == self.key || name == Some(shown.name));
        let argument = named.filter(|argument| match is_element {
            Some(is_element) if argument.role.is_title() => {
                !is_element && !self.reported.contains(argument)
            }
            Some(_) => true,
            None => false,
        });
        let Some(argument) = argument else {
            // The last value stays visible as long as no other useful one follows.
            self.value.limit = 0;
            return;
        };
        let ends_line = argument.role.is_long();
        if ends_line {
            self.long = Some(argument);
        }
        let limit = if argument.role.is_title() { MAX_TITLE_BYTES } else { MAX_SHOWN_BYTES };
        let argument = Some(argument);
        self.value = StringValue { argument, limit, ends_line, ..StringValue::default() };
    }

    fn end_string_value(&mut self) -> Option<(ShownArgument, String)> {
        if self.value.limit == 0 {
            return None;
        }
        self.value.limit = 0;
        let argument = self.value.argument?;
        if argument.role.is_long() {
            self.lines += usize::from(!self.value.ends_line);
            self.value.ends_line = true;
        }
        if argument.role == ArgumentRole::OldText {
            let text = std::mem::take(&mut self.value.text);
            self.old_text = (!self.value.is_too_long).then_some(text);
            return None;
        }
        let is_title = argument.role.is_title() && !self.value.is_too_long;
        if !is_title || self.value.text.is_empty() {
            return None;
        }
        self.reported.push(argument);
        Some((argument, std::mem::take(&mut self.value.text)))
    }
}

/// The state of the decoder between two pieces.
#[derive(Debug, Default)]
struct StringUnescaper {
    escape: Option<EscapeState>,
    /// A high surrogate whose low surrogate has not arrived yet.
    high_surrogate: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum EscapeState {
    /// After a backslash.
    Backslash,
    /// In the digits of a `\u`.
    Hex { value: u16, digits: u8 },
}

/// The result of reading a piece.
#[derive(Debug, PartialEq, Eq)]
enum StringProgress<'a> {
    /// The string is not closed yet.
    Unfinished,
    /// The string is closed; this text follows it.
    Closed(&'a str),
    /// The string is not valid JSON.
    Invalid,
}

impl StringUnescaper {
    /// Decodes a piece and passes the text to `take`.
    fn read<'a>(&mut self, piece: &'a str, mut take: impl FnMut(&str)) -> StringProgress<'a> {
        let mut rest = piece;
        while let Some(&first) = rest.as_bytes().first() {
            if let Some(escape) = self.escape {
                if self.escape_byte(escape, first, &mut take).is_none() {
                    return StringProgress::Invalid;
                }
                // Every byte of an escape is ASCII, so this is a character boundary.
                rest = &rest[1..];
                continue;
            }
            // A lone surrogate is invalid.
            if self.high_surrogate.is_some() && first != b'\\' {
                return StringProgress::Invalid;
            }
            let end = memchr::memchr2(b'"', b'\\', rest.as_bytes()).unwrap_or(rest.len());
            if end > 0 {
                take(&rest[..end]);
            }
            match rest.as_bytes().get(end) {
                Some(b'"') => return StringProgress::Closed(&rest[end + 1..]),
                Some(_) => self.escape = Some(EscapeState::Backslash),
                None => return StringProgress::Unfinished,
            }
            rest = &rest[end + 1..];
        }
        StringProgress::Unfinished
    }

    /// Handles a byte of an escape; `None` if it is invalid.
    fn escape_byte(
        &mut self,
        escape: EscapeState,
        byte: u8,
        take: &mut impl FnMut(&str),
    ) -> Option<()> {
        self.escape = None;
        let (value, digits) = match (escape, byte) {
            (EscapeState::Backslash, b'u') => {
                self.escape = Some(EscapeState::Hex { value: 0, digits: 0 });
                return Some(());
            }
            (EscapeState::Backslash, _) if self.high_surrogate.is_some() => return None,
            (EscapeState::Backslash, _) => {
                take(simple_escape(byte)?);
                return Some(());
            }
            (EscapeState::Hex { value, digits }, _) => {
                let digit =
                    char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok())?;
                (value << 4 | digit, digits + 1)
            }
        };
        if digits < 4 {
            self.escape = Some(EscapeState::Hex { value, digits });
            return Some(());
        }
        match (self.high_surrogate.take(), value) {
            (None, 0xD800..0xDC00) => self.high_surrogate = Some(value),
            (high, _) => {
                let units = high.into_iter().chain([value]);
                for char in char::decode_utf16(units) {
                    take(char.ok()?.encode_utf8(&mut [0; 4]));
                }
            }
        }
        Some(())
    }
}

fn simple_escape(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'"' => "\"",
        b'\\' => "\\",
        b'/' => "/",
        b'n' => "\n",
        b't' => "\t",
        b'r' => "\r",
        b'b' => "\u{8}",
        b'f' => "\u{c}",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::tools::COMMON_ARGUMENTS;
    use turnwright_types::effect::ToolKind;

    fn streaming_call(verb: &str) -> StreamingCall {
        let view = CallView::new(verb, ToolKind::Other);
        StreamingCall::new("call-1".into(), Some(view), COMMON_ARGUMENTS, Instant::now())
    }

    #[test]
    fn a_title_is_verb_and_object() {
        for (verb, arguments, title) in [
            ("Write file", r#"{"path": "src/a.rs", "#, "Write src/a.rs"),
            ("Run a command", r#"{"cmd": "ls\nx"#, "Run a command"),
            ("Run a command", r#"{"cmd": "ls\nx""#, "ls\nx"),
            ("Search files", r#"{"pattern": "a b""#, "Search \"a b\""),
            ("Search files", r#"{"pattern": "a b", "path": "src""#, "Search \"a b\" in src"),
            ("Search files", r#"{"path": "src", "pattern": "a b""#, "Search \"a b\" in src"),
            ("Fetch a page", r#"{"url": "https://example.org/a""#, "Fetch example.org/a"),
            ("Find files", r#"{"glob": "**/*.rs""#, "Find **/*.rs"),
        ] {
            let mut call = streaming_call(verb);
            call.push(arguments, Path::new("/w"));
            assert_eq!(call.view.unwrap().title, title, "{arguments}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_shown_twice_a_second_and_previews_stay_cheap() {
        let mut call = streaming_call("Write file");
        call.push(r#"{"path": "a", "content": ""#, Path::new("/w"));
        let mut told = 0;
        let mut previews = 0;
        let mut bytes = 0;
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(10)).await;
            assert_eq!(call.push("12345678\\n", Path::new("/w")), None);
            if call.is_due(Instant::now())
                && let Some(update) = call.progress(Instant::now(), Path::new("/w"))
            {
                told += 1;
                for content in update.content.into_iter().flatten() {
                    let CallContent::Diff { path, old: None, new, .. } = content else {
                        panic!("no diff")
                    };
                    assert_eq!(path, Path::new("/w/a"));
                    previews += 1;
                    bytes += new.len();
                }
            }
        }
        assert!((190..=200).contains(&told), "{told}");
        assert!((20..=50).contains(&previews), "{previews}");
        assert!(bytes < 10 * 90_000, "{bytes}");
    }

    /// The reported fields in order, each with the number of bytes that were needed, fed one
    /// character at a time.
    fn look(text: &str) -> Vec<(String, usize)> {
        let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
        let mut all = Vec::new();
        for (position, char) in text.char_indices() {
            let found = arguments.push(char.encode_utf8(&mut [0; 4]));
            let told = |(argument, value): (ShownArgument, _)| {
                (format!("{}={value}", argument.name), position + char.len_utf8())
            };
            all.extend(found.into_iter().map(told));
        }
        all
    }

    fn reported(text: &str) -> String {
        look(text).into_iter().map(|(title, _)| title).collect::<Vec<_>>().join(" ")
    }

    /// Everything that is visible after these pieces.
    fn seen(pieces: &[&str]) -> (Vec<(ShownArgument, String)>, String) {
        let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
        let found = pieces.iter().flat_map(|piece| arguments.push(piece)).collect();
        (found, format!("{:?}", arguments.long()))
    }

    #[test]
    fn the_path_is_reported_before_the_content_has_arrived() {
        let text = r#"{"path": "src/a.rs", "content": "fn"#;
        assert_eq!(look(text), [("path=src/a.rs".to_owned(), 19)]);
    }

    #[test]
    fn other_values_are_skipped() {
        for (text, expected) in [
            (
                r#"{"timeout": 5, "x": {"path": "no", "y": ["}"]}, "command": "ls \"a\""}"#,
                "command=ls \"a\"",
            ),
            (r#"{"content": "\"path\": \"no\"", "mode":null,"path":"é\u00e9"}"#, "path=éé"),
            (
                r#"{"pattern": "a b", "x": [[], {}, -1.5e+3], "path": "src"}"#,
                "pattern=a b path=src",
            ),
            (r#"{"file_path": "a", "path": "b"}"#, "path=a"),
            (r#"{"path": "", "filePath": "b",}"#, "path=b"),
            (r#"{"paths": ["a"]}"#, ""),
            (r#""path": "a""#, ""),
            (r#"{"x": ], "path": "a"}"#, ""),
            (r#"{"path": "\ud800a"}"#, ""),
        ] {
            assert_eq!(reported(text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_value_is_shown_as_it_arrives() {
        let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
        assert_eq!(arguments.long(), None);
        arguments.push(r#"{"path": "a", "content": "one\nt"#);
        let long =
            |lines, text, old| Some(LongValue { role: ArgumentRole::NewContent, lines, text, old });
        assert_eq!(arguments.long(), long(2, Some("one\nt"), None));
        arguments.push(r"wo\n\ud83d");
        assert_eq!(arguments.long(), long(2, Some("one\ntwo\n"), None));
        arguments.push(r#"\ude00", "mode": "append"}"#);
        assert_eq!(arguments.long(), long(3, Some("one\ntwo\n😀"), None));
    }

    #[test]
    fn each_edit_is_shown_with_the_text_that_it_replaces() {
        let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
        arguments.push(r#"{"path": "a", "edits": [{"old_string": "x", "new_string": "1\n2"}, {"#);
        let long =
            |lines, text, old| Some(LongValue { role: ArgumentRole::NewText, lines, text, old });
        assert_eq!(arguments.long(), long(2, Some("1\n2"), Some("x")));
        arguments.push(r#""old_text": "y\n", "new_text": "3"#);
        assert_eq!(arguments.long(), long(3, Some("3"), Some("y\n")));
        let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
        arguments.push(r#"{"path": "a", "old_string": "x", "new_string": "1\n2"#);
        assert_eq!(arguments.long(), long(2, Some("1\n2"), Some("x")));
    }

    #[test]
    fn of_a_very_long_value_only_the_lines_are_counted() {
        let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
        arguments.push(r#"{"path": "a", "content": ""#);
        for _ in 0..100_000 {
            arguments.push("0123456789\\n");
        }
        let long =
            LongValue { role: ArgumentRole::NewContent, lines: 100_000, text: None, old: None };
        assert_eq!(arguments.long(), Some(long));
        assert_eq!(arguments.value.text.capacity(), 0);
    }

    proptest! {
        #[test]
        fn reported_values_match_the_json_parser(
            fields in proptest::collection::vec(("(path|command|url|other|x)", "[a-z\"\\\\{}, 😀\u{1}\n]{0,8}"), 0..6),
        ) {
            let object: serde_json::Map<String, Value> =
                fields.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
            let title_value = |(key, value): (&String, &Value)| {
                let value = value.as_str().filter(|value| !value.is_empty())?;
                let mut shown = COMMON_ARGUMENTS.iter();
                let is_title = shown.any(|argument| argument.name == key && argument.role.is_title());
                is_title.then(|| format!("{key}={value}"))
            };
            let expected: Vec<_> = object.iter().filter_map(title_value).collect();
            prop_assert_eq!(reported(&Value::Object(object).to_string()), expected.join(" "));
        }

        #[test]
        fn the_shown_text_is_a_prefix_of_the_value(content in "[a-z\"\\\\é😀\n\u{1}]{0,40}", raw in any::<bool>()) {
            let escaped: Vec<_> = content.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            let text = if raw {
                json!({ "content": content }).to_string()
            } else {
                format!("{{\"content\": \"{}\"}}", escaped.concat())
            };
            let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
            for char in text.chars() {
                arguments.push(char.encode_utf8(&mut [0; 4]));
                if let Some(long) = arguments.long() {
                    prop_assert!(content.starts_with(long.text.unwrap()));
                }
            }
            prop_assert_eq!(arguments.long().unwrap().text, Some(content.as_str()));
        }

        #[test]
        fn the_cuts_between_pieces_make_no_difference(
            text in "\\{\"(path|content)\":\"([a-z\\\\\"nu0d8é:,{}\\[\\]]|\\\\u00e9|\\\\ud83d\\\\ude00){0,40}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|index| index.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.retain(|cut| text.is_char_boundary(*cut));
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(seen(&pieces), seen(&[&text]));
        }

        #[test]
        fn no_input_panics(text in "[{}\\[\\]\",:\\\\a-zé ]{0,60}") {
            look(&text);
        }
    }
}
