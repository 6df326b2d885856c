//! Reasoning that stands in the answer itself, between tags (quirks C.3, row 6) → words and
//! thoughts. Pure, and the same however the stream is cut. Tags count only at the very start of
//! an answer: anywhere else they are what the answer is about.

/// What begins a thought, and what ends it.
const TAGS: [(&str, &str); 4] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("◁think▷", "◁/think▷"),
];
const CLOSERS: [&str; 4] = [TAGS[0].1, TAGS[1].1, TAGS[2].1, TAGS[3].1];
/// More white space than this before a tag is an answer.
const MOST_SPACE: usize = 256;
/// Of a thought that nothing has begun, as much is kept to be able to say that it was none.
const MOST_HELD: usize = 64 * 1024;

/// How the model's template begins an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// With nothing: a tag opens a thought.
    Plain,
    /// Within a thought: only the closing tag comes.
    Implicit,
}

/// A part of what was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Words.
    Text(&'a str),
    /// Reasoning.
    Thought(&'a str),
}

/// Splits one answer.
#[derive(Debug)]
pub(super) struct Splitter {
    state: State,
    mode: Mode,
    /// What cannot be told yet: less than a tag, and the white space before it; all of it while
    /// [`State::Unclosed`].
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space and perhaps the beginning of a tag.
    Start,
    /// In a thought that the template has begun, if it has.
    Unclosed,
    /// At the first line breaks of a thought, which are not part of it.
    ThoughtStart(&'static [&'static str]),
    /// In a thought that one of these ends.
    Thought(&'static [&'static str]),
    /// At the line breaks after a thought.
    TextStart,
    /// In the answer.
    Text,
}

impl Splitter {
    pub(super) fn new(mode: Mode) -> Splitter {
        Splitter { state: State::Start, mode, held: String::new() }
    }

    /// Whether nothing has come yet.
    pub(super) fn is_unused(&self) -> bool {
        self.state == State::Start && self.held.is_empty()
    }

    /// Takes more of the answer.
    pub(super) fn push(&mut self, text: &str, out: &mut impl FnMut(Piece<'_>)) {
        if matches!(self.state, State::Text) {
            return out(Piece::Text(text));
        }
        if self.held.is_empty() {
            return self.take(text, 0, out);
        }
        let known = self.held.len();
        let mut all = std::mem::take(&mut self.held);
        all.push_str(text);
        if self.state == State::Unclosed && find_closer(&all, &CLOSERS, known).is_none() {
            // Kept as it is and not copied: it may be long.
            self.held = all;
            return self.pass_on_if_long(out);
        }
        self.take(&all, known, out);
    }

    /// The answer has ended.
    pub(super) fn finish(&mut self, out: &mut impl FnMut(Piece<'_>)) {
        let held = std::mem::take(&mut self.held);
        let is_thought = matches!(self.state, State::ThoughtStart(_) | State::Thought(_));
        self.state = State::Text;
        match held.as_str() {
            "" => {}
            thought if is_thought => out(Piece::Thought(thought)),
            text => out(Piece::Text(text)),
        }
    }

    /// Takes `text` as far as can be told and holds the rest; the first `known` bytes of it hold
    /// no closing tag.
    fn take(&mut self, mut text: &str, mut known: usize, out: &mut impl FnMut(Piece<'_>)) {
        while !text.is_empty() {
            match self.state {
                State::Start => match start(text) {
                    Start::Open => return self.held.push_str(text),
                    Start::Tag(after, closer) => {
                        text = after;
                        known = 0;
                        self.state = State::ThoughtStart(closer);
                    }
                    Start::None if self.mode == Mode::Implicit => self.state = State::Unclosed,
                    Start::None => self.state = State::Text,
                },
                State::Unclosed => {
                    let Some((at, after)) = find_closer(text, &CLOSERS, known) else {
                        self.held.push_str(text);
                        return self.pass_on_if_long(out);
                    };
                    think(text[..at].trim_start_matches(LINE_BREAKS), out);
                    text = after;
                    self.state = State::TextStart;
                }
                State::ThoughtStart(closers) => {
                    text = text.trim_start_matches(LINE_BREAKS);
                    known = 0;
                    if !text.is_empty() {
                        self.state = State::Thought(closers);
                    }
                }
                State::Thought(closers) => {
                    let Some((at, after)) = find_closer(text, closers, known) else {
                        let (thought, rest) = text.split_at(text.len() - open_end(text, closers));
                        think(thought, out);
                        return self.held.push_str(rest);
                    };
                    think(&text[..at], out);
                    text = after;
                    self.state = State::TextStart;
                }
                State::TextStart => {
                    text = text.trim_start_matches(LINE_BREAKS);
                    if !text.is_empty() {
                        self.state = State::Text;
                    }
                }
                State::Text => return out(Piece::Text(text)),
            }
        }
    }

    /// A thought without a beginning that has become this long is one, closed or not.
    fn pass_on_if_long(&mut self, out: &mut impl FnMut(Piece<'_>)) {
        if self.held.len() > MOST_HELD {
            let held = std::mem::take(&mut self.held);
            self.state = State::ThoughtStart(&CLOSERS);
            self.take(&held, held.len(), out);
        }
    }
}

const LINE_BREAKS: [char; 2] = ['\n', '\r'];

fn think(thought: &str, out: &mut impl FnMut(Piece<'_>)) {
    if !thought.is_empty() {
        out(Piece::Thought(thought));
    }
}

/// How an answer begins.
enum Start<'a> {
    /// That cannot be told yet.
    Open,
    /// With a tag: what follows it, and what will close it.
    Tag(&'a str, &'static [&'static str]),
    /// With something else.
    None,
}

fn start(text: &str) -> Start<'_> {
    let visible = text.trim_start();
    if text.len() - visible.len() > MOST_SPACE {
        return Start::None;
    }
    for (number, (opener, _)) in TAGS.iter().enumerate() {
        if let Some(after) = visible.strip_prefix(opener) {
            return Start::Tag(after, &CLOSERS[number..=number]);
        }
        if opener.starts_with(visible) {
            return Start::Open;
        }
    }
    Start::None
}

/// Where the first of these stands, and what follows it. The first `known` bytes hold none.
fn find_closer<'a>(text: &'a str, closers: &[&str], known: usize) -> Option<(usize, &'a str)> {
    let longest = closers.iter().map(|it| it.len()).max().unwrap_or_default();
    let mut from = known.saturating_sub(longest);
    while !text.is_char_boundary(from) {
        from -= 1;
    }
    let found = closers.iter().filter_map(|closer| {
        let at = from + text[from..].find(closer)?;
        Some((at, &text[at + closer.len()..]))
    });
    found.min_by_key(|(at, _)| *at)
}

/// How many bytes at the end may be the beginning of one of these.
fn open_end(text: &str, closers: &[&str]) -> usize {
    let open = |closer: &str| {
        let lengths = closer.char_indices().map(|(at, _)| at).rev();
        lengths.filter(|it| *it > 0).find(|it| text.ends_with(&closer[..*it])).unwrap_or_default()
    };
    closers.iter().map(|it| open(it)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The thoughts and the words of an answer that comes in these pieces.
    fn split<'a>(mode: Mode, pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = Splitter::new(mode);
        let (mut thoughts, mut words) = (String::new(), String::new());
        let mut out = |piece: Piece<'_>| match piece {
            Piece::Thought(text) => thoughts.push_str(text),
            Piece::Text(text) => words.push_str(text),
        };
        for piece in pieces {
            splitter.push(piece, &mut out);
        }
        splitter.finish(&mut out);
        (thoughts, words)
    }

    #[test]
    fn a_tag_counts_at_the_start_of_the_answer_only() {
        for (answer, thoughts, words) in [
            ("Hello", "", "Hello"),
            ("", "", ""),
            ("<think>a</think>b", "a", "b"),
            (" \n<think>\na\n</think>\n\n b", "a\n", " b"),
            ("<thinking>a</think>b</thinking>c", "a</think>b", "c"),
            ("<thought>a</thought>b", "a", "b"),
            ("◁think▷a◁/think▷b", "a", "b"),
            ("<think>\n\n</think>\n\nb", "", "b"),
            ("<think>never closed </thi", "never closed </thi", ""),
            ("<thi", "", "<thi"),
            ("  <thinker>a", "", "  <thinker>a"),
            ("a <think>b</think>", "", "a <think>b</think>"),
            ("<think>a</think><think>b</think>", "a", "<think>b</think>"),
            ("a</think>b", "", "a</think>b"),
            ("<<think>a", "", "<<think>a"),
        ] {
            let expected = (thoughts.to_owned(), words.to_owned());
            assert_eq!(split(Mode::Plain, [answer]), expected, "{answer}");
            let chars: Vec<String> = answer.chars().map(String::from).collect();
            let chars = chars.iter().map(String::as_str);
            assert_eq!(split(Mode::Plain, chars), expected, "{answer} char by char");
        }
    }

    #[test]
    fn where_the_template_opens_the_thought_the_closing_tag_decides() {
        let long = "x".repeat(MOST_HELD + 1);
        for (answer, thoughts, words) in [
            ("a\n</think>\n\nb", "a\n", "b"),
            ("\na ◁/think▷b</think>", "a ", "b</think>"),
            ("no tag at all", "", "no tag at all"),
            (" \n", "", " \n"),
            ("<think>a</think>b", "a", "b"),
            ("<think>a", "a", ""),
            (&format!("{long}</think>b"), &long, "b"),
            (&long, &long, ""),
            (&long[1..], "", &long[1..]),
        ] {
            let expected = (thoughts.to_owned(), words.to_owned());
            assert_eq!(split(Mode::Implicit, [answer]), expected);
            let chars: Vec<String> = answer.chars().map(String::from).collect();
            assert_eq!(split(Mode::Implicit, chars.iter().map(String::as_str)), expected);
        }
    }

    #[test]
    fn no_more_is_held_back_than_may_be_a_tag() {
        let mut splitter = Splitter::new(Mode::Plain);
        for piece in ["<think", ">a </thin", "g </thi", "nk", ">", "\n", "b <think>", "c"] {
            splitter.push(piece, &mut |_| {});
            assert!(splitter.held.len() < "</think>".len(), "{}", splitter.held);
        }
        assert_eq!((splitter.state, splitter.held.capacity()), (State::Text, 0));
    }

    #[test]
    fn an_answer_without_tags_is_passed_on_at_once() {
        let mut splitter = Splitter::new(Mode::Plain);
        let mut seen = Vec::new();
        splitter.push("Hello", &mut |it| seen.push(format!("{it:?}")));
        splitter.push(" <think>", &mut |it| seen.push(format!("{it:?}")));
        assert_eq!(seen, [r#"Text("Hello")"#, r#"Text(" <think>")"#]);
    }

    proptest! {
        #[test]
        fn how_the_stream_is_cut_does_not_matter(
            parts in prop::collection::vec(prop::sample::select(vec![
                "<think>", "</think>", "<thinking>", "</thinking>", "◁think▷", "◁/think▷",
                "<thought>", "</thought>", "<", "</", "</th", "◁", "\n", " ", "\r\n", "a", "é",
            ]), 0..10),
            cuts in prop::collection::vec(1_usize..6, 1..40),
            is_implicit: bool,
            filler in prop_oneof![
                9 => Just(0_usize),
                1 => 200_usize..300,
                1 => MOST_HELD - 20..MOST_HELD + 20,
            ],
            is_space: bool,
        ) {
            let mode = if is_implicit { Mode::Implicit } else { Mode::Plain };
            let filler = (if is_space { " " } else { "x" }).repeat(filler);
            for answer in [filler.clone() + &parts.concat(), parts.concat() + &filler + &parts.concat()] {
                let mut cuts = cuts.iter().copied().cycle();
                let mut pieces = Vec::new();
                let mut rest = answer.as_str();
                while let Some((end, _)) = rest.char_indices().nth(cuts.next().unwrap()) {
                    let (piece, after) = rest.split_at(end);
                    pieces.push(piece);
                    rest = after;
                }
                pieces.push(rest);
                prop_assert_eq!(split(mode, pieces), split(mode, [answer.as_str()]));
            }
        }
    }
}
