//! Processes the text of a reply: separates inline reasoning, holds back leaked tool calls and
//! detects endless repetition.
//!
//! Reasoning is separated by its tags (quirks C.3 #6). Tags count only at the very start of a reply and right after
//! reasoning: elsewhere they are part of the answer. The result does not depend on how the stream is cut.

use std::sync::Arc;

use super::leaked_calls::{CodeFences, LeakFilter, LeakedCall};
use super::repetition::{LONG_UNIT, RepetitionDetector};
use crate::DeltaBatch;
use crate::exchange::RenderedTools;
use crate::quirks::{LeakedCallHandling, Quirks, ThinkTags};
use turnwright_types::text;

/// Processes the text of one reply.
#[derive(Debug)]
pub(crate) struct TextPipeline {
    /// `None` if the text cannot contain reasoning.
    splitter: Option<ThinkSplitter>,
    /// `None` if the model does not leak calls or has no tools.
    filter: Option<LeakFilter>,
    tools: Option<Arc<RenderedTools>>,
    /// `None` if repetition is not to be stopped.
    repetition: Option<RepetitionDetector>,
    /// The reasoning so far, for models that may put their whole answer into it.
    fallback_answer: Option<String>,
    /// The length of the text so far, in bytes.
    text_len: usize,
    has_thought: bool,
    is_inline: bool,
    is_stuck: bool,
}

impl TextPipeline {
    pub(crate) fn new(quirks: &Quirks, tools: Option<Arc<RenderedTools>>) -> TextPipeline {
        let parses_leaked_calls = quirks.leaked == LeakedCallHandling::Parse;
        TextPipeline {
            splitter: (quirks.think != ThinkTags::Off)
                .then(|| ThinkSplitter::new(quirks.think == ThinkTags::Implicit)),
            filter: tools
                .as_ref()
                .filter(|_| parses_leaked_calls)
                .map(|tools| LeakFilter::new(tools.wire_names.clone())),
            tools,
            // The models that leak calls are also those that get stuck in a word.
            repetition: quirks
                .loops
                .then(|| RepetitionDetector::new(if parses_leaked_calls { 1 } else { LONG_UNIT })),
            fallback_answer: quirks.thought_is_answer.then(String::new),
            text_len: 0,
            has_thought: false,
            is_inline: false,
            is_stuck: false,
        }
    }

    /// Adds text as the server sent it.
    pub(crate) fn push_text(&mut self, text: &str, batch: &mut DeltaBatch) {
        if text.is_empty() {
            return;
        }
        match self.splitter.take() {
            None => self.show_text(text, batch),
            Some(mut splitter) => {
                splitter.push(text, &mut |piece| self.show_piece(piece, batch));
                self.splitter = Some(splitter);
            }
        }
    }

    /// Adds reasoning that the server sent in a field of its own.
    pub(crate) fn push_thought(&mut self, text: &str, batch: &mut DeltaBatch) {
        if text.is_empty() {
            return;
        }
        if self.splitter.as_ref().is_some_and(ThinkSplitter::is_unused) {
            // A server with a separate reasoning field does not use tags as well.
            self.splitter = None;
        }
        self.show_thought(text, batch);
    }

    /// Emits everything that was held back, because a regular tool call has started and so it
    /// cannot be a leaked call.
    pub(crate) fn release(&mut self, batch: &mut DeltaBatch) {
        self.finish_splitter(batch);
        if let Some(mut filter) = self.filter.take() {
            let (rest, _) = filter.finish(&[]);
            self.text_len += rest.len();
            batch.push_text(rest);
        }
    }

    /// Ends the text: emits what was held back and returns the leaked calls found in it.
    pub(crate) fn finish(&mut self, batch: &mut DeltaBatch) -> Vec<LeakedCall> {
        self.finish_splitter(batch);
        let (Some(filter), Some(tools)) = (&mut self.filter, &self.tools) else {
            return Vec::new();
        };
        let (rest, calls) = filter.finish(&tools.declared());
        self.text_len += rest.len();
        batch.push_text(rest);
        calls
    }

    /// Emits the reasoning as text if the reply consists of nothing else and the model is known to
    /// do that.
    pub(crate) fn answer_with_thought(&mut self, batch: &mut DeltaBatch) {
        let fallback_answer = self.fallback_answer.take().unwrap_or_default();
        self.text_len += fallback_answer.len();
        batch.push_text(&fallback_answer);
    }

    pub(crate) fn has_text(&self) -> bool {
        self.text_len > 0
    }

    pub(crate) fn text_len(&self) -> usize {
        self.text_len
    }

    pub(crate) fn has_thought(&self) -> bool {
        self.has_thought
    }

    /// True if reasoning was found inside the text.
    pub(crate) fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// True if the reply has repeated itself for so long that it is not going to end (quirk C.1
    /// #28b).
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    fn finish_splitter(&mut self, batch: &mut DeltaBatch) {
        if let Some(mut splitter) = self.splitter.take() {
            splitter.finish(&mut |piece| self.show_piece(piece, batch));
        }
    }

    /// Shows text or reasoning after they have been separated.
    fn show_piece(&mut self, piece: ReplyPiece<'_>, batch: &mut DeltaBatch) {
        match piece {
            ReplyPiece::Text(text) => self.show_text(text, batch),
            ReplyPiece::Thought(text) => {
                self.is_inline = true;
                self.show_thought(text, batch);
            }
        }
    }

    fn show_text(&mut self, text: &str, batch: &mut DeltaBatch) {
        self.check_repetition(text);
        let text = self.filter.as_mut().map_or(text, |filter| filter.push(text));
        self.text_len += text.len();
        batch.push_text(text);
    }

    fn check_repetition(&mut self, text: &str) {
        self.is_stuck |= self.repetition.as_mut().is_some_and(|detector| detector.push(text));
    }

    fn show_thought(&mut self, text: &str, batch: &mut DeltaBatch) {
        self.check_repetition(text);
        self.has_thought = true;
        if let Some(fallback_answer) = &mut self.fallback_answer {
            fallback_answer.push_str(text);
        }
        batch.push_thought(text);
    }
}

/// The opening and closing tags.
const TAGS: [(&str, &str); 8] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("◁think▷", "◁/think▷"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    // Gemma 4.
    ("<|channel>thought", "<channel|>"),
    // gpt-oss at Bedrock.
    ("<reasoning>", "</reasoning>"),
];
/// The closing tags that count without an opening one, which the last of [`TAGS`] never lacks.
const CLOSERS: [&str; 7] =
    [TAGS[0].1, TAGS[1].1, TAGS[2].1, TAGS[3].1, TAGS[4].1, TAGS[5].1, TAGS[6].1];
/// With more white space before it, a tag is part of the answer.
const MAX_LEADING_SPACE: usize = 256;
/// The number of bytes held back of a reply that may be reasoning without an opening tag; a longer one counts
/// as reasoning.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// A part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyPiece<'a> {
    Text(&'a str),
    /// Reasoning.
    Thought(&'a str),
}

/// Splits one reply.
#[derive(Debug)]
pub(crate) struct ThinkSplitter {
    state: SplitState,
    /// True if the model's chat template emits the opening tag, so that only the closing tag is received.
    is_implicit: bool,
    /// Text that cannot be classified yet: an incomplete tag and the white space before it, or
    /// everything in [`SplitState::Unclosed`].
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitState {
    /// Only white space, and perhaps the start of a tag.
    Start,
    /// Possibly in reasoning whose opening tag the template emitted.
    Unclosed,
    /// At the leading line breaks of reasoning, which are dropped.
    ThoughtStart(&'static [&'static str]),
    /// In reasoning that one of these tags closes.
    Thought(&'static [&'static str]),
    /// At the line breaks after reasoning, which are dropped. Another opening tag may follow, because Bedrock puts each
    /// piece of the reasoning in tags of its own.
    TextStart,
    /// In the text.
    Text,
}

impl ThinkSplitter {
    pub(crate) fn new(is_implicit: bool) -> ThinkSplitter {
        ThinkSplitter { state: SplitState::Start, is_implicit, held: String::new() }
    }

    /// True if nothing has been received yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.state == SplitState::Start && self.held.is_empty()
    }

    /// Adds text.
    pub(crate) fn push(&mut self, text: &str, out: &mut impl FnMut(ReplyPiece<'_>)) {
        if self.held.is_empty() {
            return self.take(text, 0, out);
        }
        let searched = self.held.len();
        let mut all = std::mem::take(&mut self.held);
        all.push_str(text);
        if self.state == SplitState::Unclosed && find_closer(&all, &CLOSERS, searched).is_none() {
            // Kept without copying, because it may be long.
            self.held = all;
            return self.release_if_long(out);
        }
        self.take(&all, searched, out);
    }

    /// Ends the reply.
    pub(crate) fn finish(&mut self, out: &mut impl FnMut(ReplyPiece<'_>)) {
        let held = std::mem::take(&mut self.held);
        let is_thought = matches!(self.state, SplitState::ThoughtStart(_) | SplitState::Thought(_));
        self.state = SplitState::Text;
        match held.as_str() {
            "" => {}
            thought if is_thought => out(ReplyPiece::Thought(thought)),
            text => out(ReplyPiece::Text(text)),
        }
    }

    /// Processes `text` as far as it can be classified and holds back the rest. Its first `known`
    /// bytes contain no closing tag.
    fn take(&mut self, mut text: &str, mut searched: usize, out: &mut impl FnMut(ReplyPiece<'_>)) {
        while !text.is_empty() {
            match self.state {
                SplitState::Start | SplitState::TextStart => {
                    let is_new = self.state == SplitState::Start;
                    let open = if is_new { SplitState::ThoughtStart } else { SplitState::Thought };
                    if !is_new {
                        text = text.trim_start_matches(LINE_BREAKS);
                    }
                    self.state = match match_opening_tag(text) {
                        OpeningTag::Incomplete => return self.held.push_str(text),
                        OpeningTag::Found(after, closer) => {
                            text = after;
                            searched = 0;
                            open(closer)
                        }
                        OpeningTag::None if is_new && self.is_implicit => SplitState::Unclosed,
                        OpeningTag::None => SplitState::Text,
                    };
                }
                SplitState::Unclosed => {
                    let Some((at, after)) = find_closer(text, &CLOSERS, searched) else {
                        self.held.push_str(text);
                        return self.release_if_long(out);
                    };
                    emit_thought(text[..at].trim_start_matches(LINE_BREAKS), out);
                    text = after;
                    self.state = SplitState::TextStart;
                }
                SplitState::ThoughtStart(closers) => {
                    text = text.trim_start_matches(LINE_BREAKS);
                    searched = 0;
                    if !text.is_empty() {
                        self.state = SplitState::Thought(closers);
                    }
                }
                SplitState::Thought(closers) => {
                    let Some((at, after)) = find_closer(text, closers, searched) else {
                        let (thought, rest) =
                            text.split_at(text.len() - text::begun_mark_len(text, closers));
                        emit_thought(thought, out);
                        return self.held.push_str(rest);
                    };
                    emit_thought(&text[..at], out);
                    text = after;
                    self.state = SplitState::TextStart;
                }
                SplitState::Text => return out(ReplyPiece::Text(text)),
            }
        }
    }

    /// Treats a long unclosed start as reasoning.
    fn release_if_long(&mut self, out: &mut impl FnMut(ReplyPiece<'_>)) {
        if self.held.len() > MAX_HELD_BYTES {
            let held = std::mem::take(&mut self.held);
            self.state = SplitState::ThoughtStart(&CLOSERS);
            self.take(&held, held.len(), out);
        }
    }
}

const LINE_BREAKS: [char; 2] = ['\n', '\r'];

/// Splits the text of a reply that begins with reasoning without an opening tag, because that is in the chat template.
/// Returns the reasoning and the answer, or `None` if there is no closing tag on a line of its own, outside of code. A
/// text in which the tags also occur elsewhere is about them, and is not split.
pub fn split_unopened_thought(text: &str) -> Option<(&str, &str)> {
    let (opener, closer) = TAGS[0];
    let (thought, answer) = text.split_once(closer)?;
    let has_line = thought.ends_with('\n') && answer.lines().next().is_none_or(str::is_empty);
    let is_quoted = text.contains(opener)
        || answer.contains(closer)
        || CodeFences::default().is_inside(text, thought.len());
    (has_line && !is_quoted).then(|| (thought, answer.trim_start_matches(LINE_BREAKS)))
}

fn emit_thought(thought: &str, out: &mut impl FnMut(ReplyPiece<'_>)) {
    if !thought.is_empty() {
        out(ReplyPiece::Thought(thought));
    }
}

/// The start of a reply, as far as it tells where reasoning is.
enum OpeningTag<'a> {
    /// More text is needed to tell.
    Incomplete,
    /// With a tag: the text after it, and its closing tag.
    Found(&'a str, &'static [&'static str]),
    /// Without a tag.
    None,
}

fn match_opening_tag(text: &str) -> OpeningTag<'_> {
    let visible = text.trim_start();
    if text.len() - visible.len() > MAX_LEADING_SPACE {
        return OpeningTag::None;
    }
    for (opener, closer) in &TAGS {
        if let Some(after) = visible.strip_prefix(opener) {
            return OpeningTag::Found(after, std::slice::from_ref(closer));
        }
        if opener.starts_with(visible) {
            return OpeningTag::Incomplete;
        }
    }
    OpeningTag::None
}

/// The position of the first closing tag and the text after it. The first `searched` bytes contain
/// none.
fn find_closer<'a>(text: &'a str, closers: &[&str], searched: usize) -> Option<(usize, &'a str)> {
    let longest = closers.iter().map(|closer| closer.len()).max().unwrap_or_default();
    let from = text::floor(text, searched.saturating_sub(longest));
    let found = closers.iter().filter_map(|closer| {
        let at = from + text[from..].find(closer)?;
        Some((at, &text[at + closer.len()..]))
    });
    found.min_by_key(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::internals::split_thinking;

    #[test]
    fn the_thought_channel_of_gemma_is_reasoning() {
        for (answer, reasoning, plain_text) in [
            ("<|channel>thought\nWhere?\n<channel|>There.", "Where?\n", "There."),
            ("<|channel>thought\n<channel|>There.", "", "There."),
            ("<|channel>final\nThere.", "", "<|channel>final\nThere."),
            ("It opens a `<|channel>thought`.", "", "It opens a `<|channel>thought`."),
        ] {
            let expected = (reasoning.to_owned(), plain_text.to_owned());
            assert_eq!(split_thinking(false, [answer]), expected, "{answer}");
        }
    }

    #[test]
    fn a_tag_counts_at_the_start_of_the_answer_only() {
        for (answer, reasoning, plain_text) in [
            ("Hello", "", "Hello"),
            ("", "", ""),
            ("<think>a</think>b", "a", "b"),
            (" \n<think>\na\n</think>\n\n b", "a\n", " b"),
            ("<thinking>a</think>b</thinking>c", "a</think>b", "c"),
            ("<thought>a</thought>b", "a", "b"),
            ("◁think▷a◁/think▷b", "a", "b"),
            ("[THINK]a[/THINK]b", "a", "b"),
            ("[THI", "", "[THI"),
            ("<seed:think>a</seed:think>b", "a", "b"),
            ("<reasoning>a</reasoning>b", "a", "b"),
            ("It is `<reasoning>a</reasoning>`.", "", "It is `<reasoning>a</reasoning>`."),
            ("<think>\n\n</think>\n\nb", "", "b"),
            ("<think>never closed </thi", "never closed </thi", ""),
            ("<thi", "", "<thi"),
            ("  <thinker>a", "", "  <thinker>a"),
            ("a <think>b</think>", "", "a <think>b</think>"),
            ("<think>a</think><think>b</think>", "ab", ""),
            // cherry-studio#10225: gpt-oss at Bedrock.
            ("<reasoning>a\n</reasoning>\n<reasoning>\n b</reasoning>\nc", "a\n\n b", "c"),
            ("<think>a</think> <thi", "a", " <thi"),
            ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
            ("a</think>b", "", "a</think>b"),
            ("<<think>a", "", "<<think>a"),
        ] {
            let expected = (reasoning.to_owned(), plain_text.to_owned());
            assert_eq!(split_thinking(false, [answer]), expected, "{answer}");
            let chars: Vec<String> = answer.chars().map(String::from).collect();
            let pieces = chars.iter().map(String::as_str);
            assert_eq!(split_thinking(false, pieces), expected, "{answer} char by char");
        }
    }

    #[test]
    fn a_closing_tag_on_a_line_of_its_own_ends_reasoning_that_no_tag_has_opened() {
        for (text, expected) in [
            ("a\n</think>\n\nb", Some(("a\n", "b"))),
            ("a\n\nb\n</think>\r\nc", Some(("a\n\nb\n", "c"))),
            // Before a call.
            ("a\n</think>", Some(("a\n", ""))),
            ("```\nx\n```\na\n</think>\nb", Some(("```\nx\n```\na\n", "b"))),
            ("The tag `</think>` ends it.", None),
            ("It ends with\n</think>\n\nand not with </think> in a line.", None),
            ("It ends with\n</think>\n\nand begins with `<think>`.", None),
            ("a\n</think>b", None),
            ("It ends so:\n```\n</think>\n```\n", None),
            ("<think>\na\n</think>\nb", None),
            ("a", None),
        ] {
            assert_eq!(split_unopened_thought(text), expected, "{text}");
        }
    }

    #[test]
    fn in_implicit_mode_the_closing_tag_decides() {
        let long = "x".repeat(MAX_HELD_BYTES + 1);
        for (answer, reasoning, plain_text) in [
            ("a\n</think>\n\nb", "a\n", "b"),
            ("\na ◁/think▷b</think>", "a ", "b</think>"),
            ("no tag at all", "", "no tag at all"),
            ("XML: <reasoning>a</reasoning>", "", "XML: <reasoning>a</reasoning>"),
            ("<reasoning>a</reasoning>b", "a", "b"),
            (" \n", "", " \n"),
            ("<think>a</think>b", "a", "b"),
            ("<think>a", "a", ""),
            (&format!("{long}</think>b"), &long, "b"),
            (&long, &long, ""),
            (&long[1..], "", &long[1..]),
        ] {
            let expected = (reasoning.to_owned(), plain_text.to_owned());
            assert_eq!(split_thinking(true, [answer]), expected);
            let chars: Vec<String> = answer.chars().map(String::from).collect();
            assert_eq!(split_thinking(true, chars.iter().map(String::as_str)), expected);
        }
    }

    #[test]
    fn only_a_possible_tag_is_held_back() {
        let mut splitter = ThinkSplitter::new(false);
        for piece in ["<think", ">a </thin", "g </thi", "nk", ">", "\n", "b <think>", "c"] {
            splitter.push(piece, &mut |_| {});
            assert!(splitter.held.len() < "</think>".len(), "{}", splitter.held);
        }
        assert_eq!((splitter.state, splitter.held.capacity()), (SplitState::Text, 0));
    }

    #[test]
    fn a_reply_without_tags_is_passed_on_at_once() {
        let mut splitter = ThinkSplitter::new(false);
        let mut seen = Vec::new();
        splitter.push("Hello", &mut |piece| seen.push(format!("{piece:?}")));
        splitter.push(" <think>", &mut |piece| seen.push(format!("{piece:?}")));
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
                1 => MAX_HELD_BYTES - 20..MAX_HELD_BYTES + 20,
            ],
            is_space: bool,
        ) {
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
                let whole = split_thinking(is_implicit, [answer.as_str()]);
                prop_assert_eq!(split_thinking(is_implicit, pieces), whole);
            }
        }
    }
}
