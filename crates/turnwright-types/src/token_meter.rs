//! Estimates the tokens of a conversation without a tokenizer, from its weight: its size in bytes, adjusted for images
//! and for characters outside ASCII. The server's counts correct the estimate.
//!
//! Learns what the model of a conversation cannot do: the size of its window, from requests that were refused and from
//! counts that are too low; and that it cannot summarise, so that it is not asked again and again. Pure.

use std::sync::Arc;

use serde_json::Value;

use crate::message::{Arguments, Media, Message, PromptPart, TokenUsage, ToolSpec};

/// The bytes per token that are assumed until the server has counted a request.
const USUAL_BYTES_PER_TOKEN: f64 = 4.0;
/// The most bytes per token that are possible. A server that counts fewer tokens has not read everything, or leaves
/// out what it had in its cache.
const MAX_BYTES_PER_TOKEN: u64 = 8;
/// The most bytes per token that the estimate adopts from a count.
const MAX_USUAL_BYTES_PER_TOKEN: u64 = 6;
/// The tokens that a chat template may add to, or leave out of, what is new in a request.
const TEMPLATE_TOKENS: u64 = 512;
/// No model's window is larger, so a gateway cannot add more tokens to a request.
const MAX_WINDOW: u64 = 10_000_000;
/// Below this many tokens the estimate is too coarse to say that a count is too low.
const MIN_COMPARABLE_TOKENS: u64 = 4_000;
/// The weight of an image or a recording, in bytes: about a thousand tokens.
const MEDIA_WEIGHT: u64 = 4_000;
/// The bytes of base64 of a PDF file that weigh as much as an image: about a scanned page.
const PDF_PAGE_BYTES: u64 = 100_000;
/// The weight of what a request has around each message or call.
const FRAME_WEIGHT: u64 = 16;

/// Estimates how many tokens the messages of one conversation take.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenMeter {
    counted: Option<CountedRequest>,
    /// The last count, if it contradicts earlier ones. The next one can confirm it.
    doubted: Option<CountedRequest>,
    /// The bytes per token according to the last credible count.
    bytes_per_token: Option<f64>,
}

/// A request as the server has counted it, with its answer.
#[derive(Clone, Copy, Debug)]
struct CountedRequest {
    input: u64,
    output: u64,
    /// The number of messages in the request and its answer.
    messages: usize,
    /// True if the estimate was too coarse to contradict the count.
    is_coarse: bool,
}

/// The judgement on a server's count of the tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountFinding {
    /// It is the size of the request.
    Credible,
    /// It is not, as with servers that count only what was not in their cache, or add up all requests.
    Odd,
    /// It is as low as if the server had read only a part of the request.
    LooksCut,
}

impl TokenMeter {
    /// Records the server's count of a request of this weight. `messages` are those of the request and its
    /// answer. A count that contradicts earlier ones is not used unless the next one confirms it.
    pub fn record(
        &mut self,
        usage: &TokenUsage,
        weight: u64,
        messages: &[Arc<Message>],
    ) -> CountFinding {
        if usage.input == 0 {
            return CountFinding::Odd;
        }
        let is_coarse = self.is_coarse(weight);
        let counted = |input| CountedRequest {
            input,
            output: usage.output,
            messages: messages.len(),
            is_coarse,
        };
        // Some servers count what was in their cache twice, and some leave it out.
        let readings =
            [usage.input, usage.input.saturating_sub(usage.cached), usage.input + usage.cached];
        let Some(input) =
            readings.into_iter().find(|input| self.is_credible(*input, weight, messages))
        else {
            let looks_cut = self.looks_cut(usage.input, weight, messages);
            if !self.may_be_whole(usage.input, weight, messages) {
                self.counted = self.counted.filter(|counted| !counted.is_coarse);
            }
            self.doubted = Some(counted(usage.input));
            return if looks_cut { CountFinding::LooksCut } else { CountFinding::Odd };
        };
        self.calibrate(weight, input);
        self.counted = Some(counted(input));
        self.doubted = None;
        CountFinding::Credible
    }

    fn is_credible(&self, input: u64, weight: u64, messages: &[Arc<Message>]) -> bool {
        let estimate = self.tokens(weight);
        let is_expected = match self.counted {
            Some(counted) => {
                let is_close = (estimate * 6..=estimate * 16).contains(&(input * 10));
                is_close || counted.is_continued_by(input, messages)
            }
            None => input <= most_tokens(weight),
        };
        // A gateway may add much to a request, which two counts that agree show, but it leaves nothing out.
        let is_confirmed =
            self.doubted.is_some_and(|doubted| doubted.is_continued_by(input, messages));
        let is_whole = self.may_be_whole(input, weight, messages);
        input > 0 && is_whole && (is_expected || is_confirmed)
    }

    /// Returns true if a count is not too low for the whole request, as far as the estimate can tell.
    fn may_be_whole(&self, input: u64, weight: u64, messages: &[Arc<Message>]) -> bool {
        let text = weight - media_weight(without_answer(messages)).min(weight);
        self.is_coarse(weight) || input * MAX_BYTES_PER_TOKEN >= text
    }

    fn looks_cut(&self, input: u64, weight: u64, messages: &[Arc<Message>]) -> bool {
        let asked = without_answer(messages);
        let estimate = self.tokens(weight - media_weight(asked).min(weight));
        let factor = if self.bytes_per_token.is_some() { 2 } else { 3 };
        // The count of a part of the conversation proves nothing.
        let is_partial = self.counted.is_some_and(|counted| input < counted.input);
        if estimate <= MIN_COMPARABLE_TOKENS || input * factor >= estimate || is_partial {
            return false;
        }
        // Nor does a count of only the messages that were not in the server's cache.
        let last_answer =
            asked.iter().rposition(|message| matches!(message.as_ref(), Message::Assistant(_)));
        let first_new = last_answer.map_or(0, |position| position + 1);
        let new = self.tokens(weight_of(&asked[first_new..]));
        !(new * 6..=new * 14 + TEMPLATE_TOKENS * 10).contains(&(input * 10))
    }

    /// Returns true if a request of this weight is so short that the estimate cannot contradict a count.
    pub fn is_coarse(&self, weight: u64) -> bool {
        self.tokens(weight) <= MIN_COMPARABLE_TOKENS
    }

    /// Returns true if a request of this weight cannot have so many tokens, whatever a gateway has added to it.
    pub fn is_impossible(tokens: u64, weight: u64) -> bool {
        tokens > weight + MAX_WINDOW
    }

    /// Adapts the estimate to a text of this weight that the server has counted.
    #[expect(clippy::cast_precision_loss, reason = "no weight needs 52 bits")]
    pub fn calibrate(&mut self, weight: u64, tokens: u64) {
        let plausible = weight.div_ceil(MAX_USUAL_BYTES_PER_TOKEN)..=most_tokens(weight);
        if plausible.contains(&tokens) {
            self.bytes_per_token = Some(weight as f64 / tokens as f64);
        }
    }

    /// Forgets the last count, because the conversation is another one now or the server has not
    /// read all of it.
    pub fn forget_count(&mut self) {
        self.counted = None;
        self.doubted = None;
    }

    /// The tokens of the last request and its answer, if they were counted.
    pub fn last_count(&self) -> Option<u64> {
        self.counted.map(|counted| counted.input + counted.output)
    }

    /// Estimates the tokens of a request with these messages. `fixed_weight` returns the weight of
    /// everything else in it: the system prompt and the tools.
    pub fn estimate(&self, messages: &[Arc<Message>], fixed_weight: impl FnOnce() -> u64) -> u64 {
        let counted =
            self.counted.and_then(|counted| Some((counted, messages.get(counted.messages..)?)));
        match counted {
            Some((counted, new)) => counted.input + counted.output + self.tokens(weight_of(new)),
            None => self.tokens(fixed_weight() + weight_of(messages)),
        }
    }

    /// The tokens of something of this weight.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a weight is positive and needs fewer than 52 bits"
    )]
    pub fn tokens(&self, weight: u64) -> u64 {
        (weight as f64 / self.bytes_per_token.unwrap_or(USUAL_BYTES_PER_TOKEN)).ceil() as u64
    }

    /// The weight of this many tokens.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of tokens is positive and needs fewer than 52 bits"
    )]
    pub fn weight(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.bytes_per_token.unwrap_or(USUAL_BYTES_PER_TOKEN)) as u64
    }
}

impl CountedRequest {
    /// Returns true if this may be the count of the first part of these messages, and `input` the count of all but
    /// the answer at their end.
    fn is_continued_by(&self, input: u64, messages: &[Arc<Message>]) -> bool {
        let Some(new) = messages.get(self.messages..) else { return false };
        let new = without_answer(new);
        let least = self.input + (weight_of(new) - media_weight(new)) / MAX_BYTES_PER_TOKEN;
        let most = self.input + self.output + most_tokens(weight_of(new));
        input + TEMPLATE_TOKENS >= least && input <= most + TEMPLATE_TOKENS
    }
}

/// The most tokens that a text of this weight may have, at 1.5 bytes each.
fn most_tokens(weight: u64) -> u64 {
    weight * 2 / 3
}

/// The messages that were sent. The last one is the answer, unless there was none.
fn without_answer(messages: &[Arc<Message>]) -> &[Arc<Message>] {
    match messages.split_last() {
        Some((last, sent)) if matches!(last.as_ref(), Message::Assistant(_)) => sent,
        _ => messages,
    }
}

pub fn weight_of(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|message| message_weight(message)).sum()
}

/// The part of the weight that is images and recordings, which servers count in many ways.
pub fn media_weight(messages: &[Arc<Message>]) -> u64 {
    let weights = messages.iter().map(|message| {
        let parts = message.as_user().into_iter().flat_map(|user| &user.parts);
        let recordings = parts.filter(|part| matches!(part, PromptPart::Audio(_))).count() as u64;
        message.images().map(image_weight).sum::<u64>() + recordings * MEDIA_WEIGHT
    });
    weights.sum()
}

/// The weight of an image or a PDF file.
fn image_weight(media: &Media) -> u64 {
    let pages = if media.is_pdf() { media.data.len() as u64 / PDF_PAGE_BYTES } else { 0 };
    (1 + pages) * MEDIA_WEIGHT
}

/// The bytes of a text, where each character outside ASCII counts for about a token, because that
/// is what tokenizers make of Chinese or Japanese.
pub fn text_weight(text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut others = rest.iter().filter(|byte| !byte.is_ascii()).count() as u64;
    for word in words {
        // The highest bit of each byte. Most words have none, and no bits to count.
        let bits = u64::from_ne_bytes(*word) & 0x8080_8080_8080_8080;
        if bits != 0 {
            others += u64::from(bits.count_ones());
        }
    }
    text.len() as u64 + others / 3
}

pub fn json_weight(value: &Value) -> u64 {
    match value {
        Value::String(text) => text_weight(text) + 2,
        Value::Array(all) => all.iter().map(|item| json_weight(item) + 1).sum::<u64>() + 2,
        Value::Object(all) => {
            all.iter().map(|(key, value)| key.len() as u64 + json_weight(value) + 4).sum::<u64>()
                + 2
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    }
}

/// The weight of the descriptions of tools.
pub fn specs_weight(specs: &[Arc<ToolSpec>]) -> u64 {
    let weights = specs.iter().map(|spec| {
        text_weight(&spec.name) + text_weight(&spec.description) + json_weight(&spec.parameters)
    });
    weights.sum()
}

pub fn message_weight(message: &Message) -> u64 {
    FRAME_WEIGHT
        + match message {
            Message::User(user) => user.parts.iter().map(part_weight).sum(),
            Message::Tool(tool) => {
                text_weight(&tool.text) + tool.images.iter().map(image_weight).sum::<u64>()
            }
            Message::Assistant(answer) => {
                let calls = answer.calls.iter().map(|call| {
                    let arguments = match &call.arguments {
                        Arguments::Object(value) => json_weight(value),
                        Arguments::Unusable { text, .. } => text_weight(text),
                    };
                    FRAME_WEIGHT + call.name.len() as u64 + arguments
                });
                let state: u64 = answer.provider_state.blobs.iter().map(json_weight).sum();
                text_weight(&answer.text) + calls.sum::<u64>() + state
            }
        }
}

pub fn part_weight(part: &PromptPart) -> u64 {
    match part {
        PromptPart::Text(text) | PromptPart::Context(text) => text_weight(text),
        PromptPart::Skill(name) => text_weight(name),
        PromptPart::Resource { uri, text } => text_weight(uri) + text_weight(text),
        PromptPart::Link { name, uri } => text_weight(name) + text_weight(uri),
        PromptPart::Image(media) => image_weight(media),
        PromptPart::Audio(_) => MEDIA_WEIGHT,
    }
}

/// The number of credible counts that lift a limit which was inferred from counts. They do so only once.
const COUNTS_THAT_LIFT: u32 = 3;

/// The limit of its model's window, as far as one conversation has learned it.
#[derive(Clone, Debug, Default)]
pub struct LearnedWindow {
    model: String,
    limit: Option<u64>,
    /// The number of credible counts since the limit was inferred from counts; `None` if it comes from a refusal.
    credible: Option<u32>,
    /// The tokens of the last request that seemed to be cut.
    cut: Option<u64>,
    /// True if a limit has been lifted.
    is_lifted: bool,
}

impl LearnedWindow {
    /// The most tokens that this model takes, if that is known.
    pub fn limit(&self, model: &str) -> Option<u64> {
        self.limit.filter(|_| self.model == model)
    }

    /// Returns true if the limit is only assumed after a refusal that does not name one.
    pub fn is_guessed(&self, model: &str) -> bool {
        self.limit(model).is_some() && self.credible.is_none()
    }

    /// Records a refusal that names no limit, and the limit that is assumed instead, in tokens.
    pub fn refuse(&mut self, model: &str, limit: u64) {
        *self = LearnedWindow { limit: Some(limit), ..LearnedWindow::of(model) };
    }

    /// Records the finding about a count. Returns true if two counts that agree show that
    /// requests are cut, which limits the window if `may_limit` is set.
    pub fn add_count(
        &mut self,
        model: &str,
        tokens: u64,
        finding: CountFinding,
        may_limit: bool,
    ) -> bool {
        if finding == CountFinding::LooksCut {
            if self.model != model {
                *self = LearnedWindow::of(model);
            }
            let before = self.cut.replace(tokens).unwrap_or_default();
            let limit = tokens.max(before).next_multiple_of(1_024);
            let is_known = self.limit.is_some_and(|known| known <= limit);
            let is_cut = tokens.abs_diff(before) <= before / 4 && !is_known;
            if is_cut && may_limit {
                self.limit = Some(limit);
                self.credible = Some(0);
            }
            return is_cut;
        }
        if finding == CountFinding::Credible && self.model == model {
            self.add_credible_count(tokens);
        }
        false
    }

    fn add_credible_count(&mut self, tokens: u64) {
        let Some(limit) = self.limit else {
            self.cut = self.cut.filter(|_| self.is_lifted);
            return;
        };
        self.credible = self.credible.map(|count| count + 1);
        let is_refuted = !self.is_lifted && self.credible >= Some(COUNTS_THAT_LIFT);
        if tokens > limit || is_refuted {
            self.limit = None;
            self.is_lifted = true;
        }
    }

    fn of(model: &str) -> LearnedWindow {
        LearnedWindow { model: model.to_owned(), ..LearnedWindow::default() }
    }
}

/// After this many failures the older part of a conversation is left out without a summary.
const MAX_FAILURES: u32 = 3;

/// Counts the requests for a summary in a row at which a model has failed in one conversation.
#[derive(Clone, Debug, Default)]
pub struct FailedSummaries {
    model: String,
    count: u32,
    /// True if the model has answered something else since the first of them.
    answers_others: bool,
}

impl FailedSummaries {
    /// Counts a failed request. `has_answered` is true if the server answered it, though not with a summary.
    pub fn add(&mut self, model: &str, has_answered: bool) {
        if self.model != model {
            *self = FailedSummaries { model: model.to_owned(), ..FailedSummaries::default() };
        }
        self.count += 1;
        self.answers_others |= has_answered;
    }

    /// Records that the model has answered an ordinary request.
    pub fn note_answer(&mut self, model: &str) {
        self.answers_others |= self.model == model && self.count > 0;
    }

    /// Returns true if the model has failed so seldom that it may be asked again at once.
    pub fn may_retry(&self, model: &str) -> bool {
        self.model != model || self.count < MAX_FAILURES
    }

    /// Returns true if this model answers, but gives no summaries.
    pub fn is_hopeless(&self, model: &str) -> bool {
        !self.may_retry(model) && self.answers_others
    }

    /// Counts an occasion to ask a hopeless model once more. Returns true if it is to be asked: at the 4th, 8th,
    /// 16th … time.
    pub fn is_due(&mut self) -> bool {
        self.count += 1;
        self.count.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AssistantMessage, UserMessage};

    fn prompt(text: &str) -> Arc<Message> {
        Arc::new(Message::User(UserMessage::text(text)))
    }

    fn usage(input: u64, output: u64) -> TokenUsage {
        TokenUsage { input, output, ..TokenUsage::default() }
    }

    fn answer(bytes: usize) -> Arc<Message> {
        Arc::new(Message::Assistant(AssistantMessage::new("m", "a".repeat(bytes), Vec::new())))
    }

    /// Messages of so many bytes, in turn of the user and of the model.
    fn conversation(bytes: &[usize]) -> Vec<Arc<Message>> {
        let message = |(number, bytes): (usize, &usize)| {
            if number % 2 == 0 { prompt(&"a".repeat(*bytes)) } else { answer(*bytes) }
        };
        bytes.iter().enumerate().map(message).collect()
    }

    #[test]
    fn a_count_corrects_the_estimate_and_only_what_is_new_is_estimated() {
        let mut messages = vec![prompt(&"a".repeat(4_000 - 16)), answer(384)];
        let mut meter = TokenMeter::default();
        assert_eq!(meter.estimate(&messages, || 400), 1_200);
        meter.record(&usage(2_200, 100), 4_400, &messages);
        assert_eq!(meter.estimate(&messages, || panic!("the system prompt is counted")), 2_300);
        messages.push(prompt(&"b".repeat(200 - 16)));
        assert_eq!(meter.estimate(&messages, || 400), 2_400);
        assert_eq!((meter.tokens(200), meter.weight(100)), (100, 200));
        meter.forget_count();
        assert_eq!(meter.estimate(&messages[..1], || 400), 2_200);
    }

    #[test]
    fn a_shorter_conversation_is_not_what_was_counted() {
        let mut meter = TokenMeter::default();
        meter.record(&usage(900, 0), 3_600, &conversation(&[1_000, 1_000, 1_000]));
        assert_eq!(meter.estimate(&[prompt(&"a".repeat(384))], || 0), 100);
    }

    #[test]
    fn an_implausible_count_does_not_change_the_size_of_a_token() {
        for input in [1, 100_000] {
            let mut meter = TokenMeter::default();
            meter.record(&usage(input, 0), 40_000, &conversation(&[30_000]));
            assert_eq!(meter.tokens(400), 100, "{input}");
            assert_eq!(meter.estimate(&conversation(&[3_984]), || 0), 1_000, "{input}");
        }
    }

    /// The estimates after each turn of 4 000 bytes, for a server with these counts (of 100 tokens of output).
    /// The system prompt and the tools have 8 000 bytes.
    fn estimates(counts: &[(u64, u64)]) -> Vec<u64> {
        let mut meter = TokenMeter::default();
        let mut messages = Vec::new();
        let record = |(input, cached): &(u64, u64)| {
            messages.push(prompt(&"a".repeat(3_584)));
            let weight = 8_000 + weight_of(&messages);
            messages.push(answer(384));
            let usage = TokenUsage { cached: *cached, ..usage(*input, 100) };
            meter.record(&usage, weight, &messages);
            meter.estimate(&messages, || 8_000)
        };
        counts.iter().map(record).collect()
    }

    #[test]
    fn a_server_that_counts_oddly_does_not_lead_astray() {
        // The true counts are 2 900, 3 900, 4 900, 5 900 and 6 900.
        let honest = [3_000, 4_000, 5_000, 6_000, 7_000];
        for (name, counts) in [
            ("honest", [(2_900, 0), (3_900, 0), (4_900, 0), (5_900, 0), (6_900, 0)]),
            ("some missing", [(2_900, 0), (0, 0), (0, 0), (5_900, 0), (0, 0)]),
            ("one low", [(2_900, 0), (3_900, 0), (30, 0), (5_900, 0), (6_900, 0)]),
            ("one huge", [(2_900, 0), (3_900, 0), (1 << 40, 0), (5_900, 0), (6_900, 0)]),
            ("only what is new", [(2_900, 0), (900, 0), (900, 0), (1_000, 0), (900, 0)]),
            ("only what is new, from the cache", [(900, 0); 5]),
            ("added up", [(2_900, 0), (6_800, 0), (11_700, 0), (17_600, 0), (24_500, 0)]),
            (
                "what was cached twice",
                [(2_900, 0), (6_700, 2_800), (8_700, 3_800), (10_700, 4_800), (12_700, 5_800)],
            ),
            (
                "what was cached apart",
                [(2_900, 0), (1_100, 2_800), (1_100, 3_800), (1_100, 4_800), (1_100, 5_800)],
            ),
        ] {
            // The count of a short request is taken as it is.
            let shown = estimates(&counts).into_iter().zip(honest);
            for (estimate, honest) in shown.filter(|(_, honest)| *honest > MIN_COMPARABLE_TOKENS) {
                assert!(estimate.abs_diff(honest) < 300, "{name}: {estimate}, not {honest}");
            }
        }
    }

    #[test]
    fn another_tokenizer_and_what_a_gateway_adds_are_believed_once_two_counts_agree() {
        let dense = estimates(&[(5_800, 0), (7_800, 0), (9_800, 0), (11_800, 0), (13_800, 0)]);
        assert_eq!(dense, [5_900, 7_900, 9_900, 11_900, 13_900]);
        let added = estimates(&[(22_900, 0), (23_900, 0), (24_900, 0), (25_900, 0), (26_900, 0)]);
        assert_eq!(added, [3_000, 24_000, 25_000, 26_000, 27_000]);
    }

    #[test]
    fn only_a_count_that_nothing_else_explains_looks_like_a_cut_request() {
        let long = conversation(&[60_000, 400, 400, 400]);
        let new = conversation(&[400, 400, 60_000, 400]);
        let before = &long[..2];
        let table = [
            // The messages, an earlier count of their beginning, and the last count.
            (&long, 0, 4_000, CountFinding::LooksCut),
            (&new, 0, 4_000, CountFinding::LooksCut),
            (&long, 3_000, 4_000, CountFinding::LooksCut),
            // Above a third of the estimate, or a half once the size of a token is known.
            (&long, 0, 6_000, CountFinding::Odd),
            (&long, 17_000, 4_000, CountFinding::Odd),
            // Only what was new.
            (&long, 0, 110, CountFinding::Odd),
            (&new, 0, 15_000, CountFinding::Credible),
            (&long, 0, 17_100, CountFinding::Credible),
            (&long, 0, 0, CountFinding::Odd),
            (&conversation(&[4_000, 400]), 0, 10, CountFinding::Credible),
        ];
        for (messages, earlier, input, expected) in table {
            let mut meter = TokenMeter::default();
            if earlier > 0 {
                let weight =
                    if earlier == 3_000 { 12_000 } else { 8_000 + weight_of(&before[..1]) };
                meter.record(&usage(earlier, 0), weight, before);
            }
            let weight = 8_000 + weight_of(without_answer(messages));
            let found = meter.record(&usage(input, 9), weight, messages);
            assert_eq!(found, expected, "{} bytes, {earlier}, {input}", weight_of(messages));
        }
    }

    #[test]
    fn a_pdf_file_weighs_as_much_as_its_pages() {
        let part = |mime: &str, bytes| {
            PromptPart::Image(Media { mime: mime.to_owned(), data: "A".repeat(bytes) })
        };
        let scan = part(Media::PDF, 1_000_000);
        let picture = part("image/png", 1_000_000);
        assert_eq!(part_weight(&scan), 11 * MEDIA_WEIGHT);
        assert_eq!(part_weight(&part(Media::PDF, 100)), MEDIA_WEIGHT);
        assert_eq!(part_weight(&picture), MEDIA_WEIGHT);
        let prompt = Arc::new(Message::User(UserMessage::new(vec![scan, picture])));
        assert_eq!(media_weight(&[prompt]), 12 * MEDIA_WEIGHT);
    }

    #[test]
    fn each_character_outside_ascii_is_about_a_token() {
        let meter = TokenMeter::default();
        assert_eq!(meter.tokens(text_weight("语言模型")), 4);
        assert_eq!(meter.tokens(text_weight("word")), 1);
    }

    type Counts = &'static [(&'static str, u64)];

    /// Plays counts of a model: `cut` and `ok` with their tokens, or `odd`. Returns the limit after each.
    fn limits(learned: &mut LearnedWindow, counts: &[(&str, u64)]) -> Vec<Option<u64>> {
        let add = |(what, tokens): &(&str, u64)| {
            let finding = match *what {
                "cut" => CountFinding::LooksCut,
                "ok" => CountFinding::Credible,
                _ => CountFinding::Odd,
            };
            learned.add_count("m", *tokens, finding, true);
            learned.limit("m")
        };
        counts.iter().map(add).collect()
    }

    #[test]
    fn two_counts_that_agree_limit_the_window_and_one_does_not() {
        let table: [(Counts, Option<u64>); 6] = [
            (&[("cut", 4_000)], None),
            (&[("cut", 4_000), ("odd", 9), ("cut", 4_050)], Some(4_096)),
            (&[("cut", 4_000), ("cut", 2_000)], None),
            (&[("cut", 4_000), ("cut", 2_000), ("cut", 2_100)], Some(3_072)),
            (&[("cut", 4_000), ("ok", 4_100), ("cut", 4_050)], None),
            (&[("odd", 50), ("odd", 50), ("odd", 50)], None),
        ];
        for (counts, expected) in table {
            let mut learned = LearnedWindow::default();
            assert_eq!(limits(&mut learned, counts).last(), Some(&expected), "{counts:?}");
            assert_eq!(learned.limit("other"), None);
        }
    }

    #[test]
    fn a_limit_is_lifted_once_by_credible_counts_and_always_by_a_larger_one() {
        let mut learned = LearnedWindow::default();
        let limit = Some(4_096);
        let counts = [("cut", 4_000), ("cut", 4_000), ("ok", 900), ("ok", 950), ("ok", 990)];
        assert_eq!(limits(&mut learned, &counts), [None, limit, limit, limit, None]);
        // It was right after all.
        let counts = [("ok", 2_000), ("cut", 4_050), ("ok", 900), ("ok", 950), ("ok", 990)];
        assert_eq!(limits(&mut learned, &counts), [None, limit, limit, limit, limit]);
        assert_eq!(limits(&mut learned, &[("ok", 4_097)]), [None]);
    }

    #[test]
    fn a_refusal_is_refuted_only_by_what_was_taken() {
        let mut learned = LearnedWindow::default();
        learned.refuse("m", 20_000);
        let counts = [("ok", 9_000); 9];
        assert_eq!(limits(&mut learned, &counts), [Some(20_000); 9]);
        assert_eq!(limits(&mut learned, &[("ok", 21_000)]), [None]);
    }

    #[test]
    fn what_the_user_has_set_is_not_limited_but_the_user_is_told() {
        let mut learned = LearnedWindow::default();
        let mut add = || learned.add_count("m", 4_000, CountFinding::LooksCut, false);
        assert_eq!([add(), add()], [false, true]);
        assert_eq!(learned.limit("m"), None);
    }

    #[test]
    fn a_model_is_hopeless_after_three_failures_if_it_answers_other_requests() {
        let mut failed = FailedSummaries::default();
        assert!(failed.may_retry("m"));
        for _ in 0..3 {
            failed.add("m", false);
        }
        assert!(!failed.may_retry("m") && !failed.is_hopeless("m"), "the server may be down");
        failed.note_answer("other");
        assert!(!failed.is_hopeless("m"));
        failed.note_answer("m");
        assert!(failed.is_hopeless("m") && !failed.is_hopeless("other"));
        let due: Vec<_> = (4..=16).filter(|_| failed.is_due()).collect();
        assert_eq!(due.len(), 3, "{due:?}");
        failed.add("other", true);
        assert!(failed.may_retry("other") && !failed.is_hopeless("other"));
    }
}
