//! Quirks that were learned from a server, layered over the built-in table and below the user's
//! overrides. They are kept for the process and saved for the next one. A refusal that names a parameter teaches the
//! quirk that avoids it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{
    CacheHint, CallIdFormat, EffortDialect, EmptyContent, OutputLimitField, QuirkPatch, Quirks,
    ReasoningEcho, SystemRole,
};
use crate::errors::has_any;
use crate::{ErrorKind, LlmError, Modalities, Price};

/// The facts learned about a model. They are stored on disk as its profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelProfile {
    pub quirks: QuirkPatch,
    /// The size of the context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The price that the server lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// Saves everything that is known now. Must not block: it is called between two requests.
pub type SaveProfile = Arc<dyn Fn(&ModelProfile) + Send + Sync>;

/// The number of patches accepted from errors within streams, per process.
const MAX_STREAM_PATCHES: u32 = 3;

/// The quirks of one model at one server as they are currently known.
pub(crate) struct LearnedQuirks {
    table: QuirkPatch,
    overrides: QuirkPatch,
    // Held only to copy a few bytes.
    profile: Mutex<ModelProfile>,
    save_profile: Option<SaveProfile>,
    /// The number of patches that may still be accepted from errors within streams. These are not
    /// verified by a successful request, so they are limited.
    stream_patches_left: AtomicU32,
    /// True once the server could not read the reasoning of one conversation, as after a change of the key. It may
    /// well read the reasoning of other conversations, so the next process asks for it again.
    has_unreadable_reasoning: AtomicBool,
    /// True once the server has accepted a request of this process, and so its cache markers.
    pub(crate) has_accepted: AtomicBool,
}

impl fmt::Debug for LearnedQuirks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LearnedQuirks")
            .field("quirks", &self.quirks())
            .finish_non_exhaustive()
    }
}

impl LearnedQuirks {
    pub(crate) fn new(
        table: QuirkPatch,
        profile: ModelProfile,
        overrides: QuirkPatch,
        save_profile: Option<SaveProfile>,
    ) -> LearnedQuirks {
        let stream_patches_left = AtomicU32::new(MAX_STREAM_PATCHES);
        LearnedQuirks {
            table,
            overrides,
            profile: Mutex::new(profile),
            save_profile,
            stream_patches_left,
            has_unreadable_reasoning: AtomicBool::new(false),
            has_accepted: AtomicBool::new(false),
        }
    }

    /// The current quirks.
    pub(crate) fn quirks(&self) -> Quirks {
        self.quirks_with(QuirkPatch::NONE)
    }

    /// The quirks with one more patch applied, below the overrides.
    pub(crate) fn quirks_with(&self, patch: QuirkPatch) -> Quirks {
        let profile = self.profile.lock();
        Quirks::default().with(self.table).with(profile.quirks).with(patch).with(self.overrides)
    }

    /// True if nothing is known about images: they are accepted only because most models take them.
    fn are_images_assumed(&self) -> bool {
        let learned = self.profile.lock().quirks.images;
        self.table.images.or(learned).or(self.overrides.images).is_none()
    }

    pub(crate) fn profile(&self) -> ModelProfile {
        self.profile.lock().clone()
    }

    /// Records quirks that were found out by a probe.
    pub(crate) fn record_quirks(&self, patch: QuirkPatch) {
        self.change(|profile| profile.quirks = profile.quirks.merge(patch));
    }

    /// The context window that the server has reported.
    pub(crate) fn window(&self) -> Option<u64> {
        self.profile.lock().window
    }

    /// The quirks that could avoid the refusal of a request that was rendered with `refused` and
    /// contained `media`. They are not recorded: a retry has to show whether they help.
    pub(crate) fn candidate_patches(
        &self,
        error: &LlmError,
        refused: &Quirks,
        media: Modalities,
    ) -> Vec<QuirkPatch> {
        let Some(message) = error.message() else { return Vec::new() };
        // Errors within a stream may have no status.
        let status = error.status().unwrap_or(400);
        // These messages may name parameters but are about something else: the size of the request,
        // the account, or the model's own output.
        let is_unrelated = match error.kind() {
            ErrorKind::ContextOverflow { .. }
            | ErrorKind::Quota
            | ErrorKind::Refused
            | ErrorKind::Auth
            | ErrorKind::UrlNotFound => true,
            ErrorKind::ModelNotFound => !message.contains("image input"),
            _ => error.is_reply_specific() || error.is_effort_rejection() || error.lacks_thought(),
        };
        if is_unrelated || error.quotes_reply() || error.is_about_one_image() {
            return Vec::new();
        }
        let mut patches = patches_for_refusal(status, message, refused, media);
        // A refusal in unknown words. Otherwise the image or the cache markers would fail every later request too.
        let is_unexplained = patches.is_empty()
            && matches!(status, 400 | 415 | 422)
            && error.kind() == ErrorKind::BadRequest;
        if is_unexplained && media.images && self.are_images_assumed() {
            patches.push(NONE.images(false));
        } else if is_unexplained
            && refused.cache == CacheHint::Marks
            && matches!(error, LlmError::Status { .. })
            && !self.has_accepted.load(Ordering::Relaxed)
        {
            // Within a stream no retry would show if it helps.
            patches.push(NONE.cache(CacheHint::Auto));
        }
        let is_unsupported = has_any(&message.to_ascii_lowercase(), &["support", "unknown"]);
        if !is_unsupported && patches.iter().any(|patch| patch.encrypted.is_some()) {
            self.has_unreadable_reasoning.store(true, Ordering::Relaxed);
        }
        // Patches that the user's overrides would undo are useless.
        patches.retain(|patch| refused.with(*patch).with(self.overrides) != *refused);
        patches
    }

    /// Uses up one of the patches that may come from errors within streams; false if none is left.
    pub(crate) fn may_learn_from_stream(&self) -> bool {
        self.stream_patches_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    /// Records a patch if it changes anything.
    pub(crate) fn record_if_new(&self, patch: QuirkPatch) {
        if patch != QuirkPatch::NONE && self.quirks_with(patch) != self.quirks() {
            tracing::info!(?patch, "learned a quirk from the server");
            self.change(|profile| profile.quirks = profile.quirks.merge(patch));
        }
    }

    /// Records the size of the context window in tokens.
    pub(crate) fn record_window(&self, tokens: u64) {
        if self.window() != Some(tokens) {
            self.change(|profile| profile.window = Some(tokens));
        }
    }

    /// The price that the server has listed.
    pub(crate) fn price(&self) -> Option<Price> {
        self.profile.lock().price
    }

    /// Records the price that the server lists.
    pub(crate) fn record_price(&self, price: Price) {
        if self.price() != Some(price) {
            self.change(|profile| profile.price = Some(price));
        }
    }

    /// Stores the known facts, even if there are none.
    pub(crate) fn save(&self) {
        self.change(|_| ());
    }

    fn change(&self, change: impl FnOnce(&mut ModelProfile)) {
        let mut profile = self.profile.lock();
        change(&mut profile);
        let mut now = profile.clone();
        drop(profile);
        if self.has_unreadable_reasoning.load(Ordering::Relaxed) {
            now.quirks.encrypted = None;
        }
        if let Some(save_profile) = &self.save_profile {
            save_profile(&now);
        }
    }
}

/// The quirks that could avoid a refusal of a request with these media, the most likely first. The
/// caller has to verify that they help: if the server refuses the same thing twice, the refusal was
/// misunderstood.
fn patches_for_refusal(
    status: u16,
    message: &str,
    quirks: &Quirks,
    media: Modalities,
) -> Vec<QuirkPatch> {
    if !matches!(status, 400 | 403 | 404 | 415 | 422 | 500) {
        return Vec::new();
    }
    let message = message.to_ascii_lowercase();
    let rules = LEARNING_RULES.iter().filter(|rule| status != 500 || rule.applies_to_500);
    rules
        .filter(|rule| {
            rule.phrases.iter().any(|phrases| phrases.iter().all(|phrase| message.contains(phrase)))
        })
        .map(|rule| (rule.patch)(&message, quirks))
        .filter(|patch| media.images || (patch.images, patch.tool_images) == (None, None))
        .filter(|patch| media.audio || patch.audio.is_none())
        .filter(|patch| quirks.with(*patch) != *quirks)
        .collect()
}

/// A phrase that servers use, and the resulting quirks.
struct LearningRule {
    phrases: Phrases,
    /// The resulting quirks.
    patch: fn(&str, &Quirks) -> QuirkPatch,
    /// True if the rule applies to status 500 as well, which failing chat templates produce.
    applies_to_500: bool,
}

/// Alternatives: a message matches if it contains all phrases of one of these lists.
type Phrases = &'static [&'static [&'static str]];

const fn rule(phrases: Phrases, patch: fn(&str, &Quirks) -> QuirkPatch) -> LearningRule {
    LearningRule { phrases, patch, applies_to_500: false }
}

const fn rule_for_500(phrases: Phrases, patch: fn(&str, &Quirks) -> QuirkPatch) -> LearningRule {
    LearningRule { phrases, patch, applies_to_500: true }
}

const NONE: QuirkPatch = QuirkPatch::NONE;

const LEARNING_RULES: &[LearningRule] = &[
    // OpenAI's newer models, some of them only if the request has tools.
    rule(
        &[
            &["in v1/responses"],
            &["use /v1/responses"],
            &["via the /chat/completions"],
            &["not a chat model"],
            &["chatcompletion operation does not work"],
        ],
        |_, _| NONE.responses(true),
    ),
    // An account that may not have the answer in pieces, or a server that cannot stream calls.
    rule_for_500(
        &[
            &["verified to stream"],
            &["streaming", "not support"],
            &["stream=true", "not support"],
            &["`stream`", "not support"],
            &["'stream'", "not support"],
            &["tools with stream"],
            &["tools", "while streaming"],
        ],
        |_, _| NONE.stream(false),
    ),
    rule(&[&["stream_options"], &["include_usage"]], |_, _| NONE.stream_options(false)),
    rule(&[&["max_completion_tokens"], &["max_tokens"]], |_, quirks| {
        let other = match quirks.limit {
            OutputLimitField::MaxTokens => OutputLimitField::MaxCompletionTokens,
            OutputLimitField::MaxCompletionTokens => OutputLimitField::MaxTokens,
        };
        NONE.limit(other)
    }),
    rule_for_500(
        &[&["developer", "role"], &["unknown variant `developer`"], &["'developer'"]],
        |_, _| NONE.role(SystemRole::System),
    ),
    // Bedrock calls a marker a cache point. Before the rules about reasoning: a refusal may name both.
    rule(
        &[
            &["cache_control"],
            &["cachepoint"],
            &["cache point"],
            &["prompt caching"],
            &["prompt_cache_key"],
        ],
        |_, _| NONE.cache(CacheHint::Auto),
    ),
    rule(&[&["reasoning.summary"], &["reasoning summar"]], |_, _| NONE.summary(false)),
    rule(&[&["encrypted_content"], &["encrypted content"]], |_, _| NONE.encrypted(false)),
    // Before the other rules about reasoning: these match the field name after a dot or an index.
    rule(&[&["reasoning_split"]], |_, _| NONE.reasoning_split(false)),
    rule(&[&["reasoning_effort"], &["reasoningeffort"], &["reasoning.effort"]], |_, _| {
        NONE.effort(EffortDialect::None)
    }),
    rule(&[&["reasoning_details"], &["thinking_blocks"]], |_, _| NONE.details(false)),
    rule(&[&["reasoning_content"], &["messages", "reasoning"]], |message, _| {
        let is_missing = is_about_missing_field(message);
        let echo = if is_missing { ReasoningEcho::Always } else { ReasoningEcho::Never };
        NONE.echo(echo)
    }),
    rule(&[&["wrong_api_format"], &["wrong api format"]], |_, _| {
        NONE.echo(ReasoningEcho::Never).details(false)
    }),
    rule(&[&["thinking"], &["chat_template_kwargs"], &["reasoning"]], |_, _| {
        NONE.effort(EffortDialect::None)
    }),
    rule_for_500(&[&["thought_signature"]], |_, _| NONE.signature(true)),
    rule_for_500(&[&["tool call id", "9"], &["tool_call", "{9}"], &["length of 9"]], |_, _| {
        NONE.ids(CallIdFormat::Nine)
    }),
    rule(
        &[
            &["tool_call_id", "pattern"],
            &["tool_use.id", "pattern"],
            &["tool_calls", "id", "too long"],
            &["tool_calls", "id", "maximum length"],
            &["tool_call_id", "maximum length"],
        ],
        |_, _| NONE.ids(CallIdFormat::Safe),
    ),
    rule_for_500(
        &[
            &["unexpected role 'user' after role 'tool'"],
            &["unexpected role", "after role"],
            &["roles must alternate"],
            &["after a tool message", "assistant"],
        ],
        |_, _| NONE.bridge(true),
    ),
    // Markers of the cache stand on content parts. This comes before the rules about images and empty content, which
    // the same refusals match: a lesson that did not help would be kept, too.
    rule(
        &[
            &["content", "string"],
            &["content", "array"],
            &["expected", "string"],
            &["valid string"],
        ],
        |message, quirks| {
            let is_meant = quirks.cache == CacheHint::Marks && !message.contains("null");
            QuirkPatch { cache: is_meant.then_some(CacheHint::Auto), ..NONE }
        },
    ),
    // No phrase that may be about a single image: the lesson applies to all later requests.
    rule_for_500(
        &[
            &["unknown variant", "image_url"],
            &["image_url", "not support"],
            &["image_url", "only", "text"],
            &["image_url", "invalid content type"],
            &["not support image"],
            &["support image input"],
            &["image input is not supported"],
            &["images are not supported"],
            &["vision", "not support"],
            &["not a multimodal"],
            &["multimodal", "not support"],
            &["at most 0 image"],
            // In a request with images this is about their list of content parts.
            &["content", "must be a string"],
            &["content", "expected", "string"],
        ],
        |_, quirks| {
            // Images in tool results are dropped first.
            if quirks.tool_images { NONE.tool_images(false) } else { NONE.images(false) }
        },
    ),
    rule_for_500(&[&["input_audio"], &["audio", "not support"]], |_, _| NONE.audio(false)),
    rule(&[&["tool_stream"]], |_, _| NONE.tool_stream(false)),
    // C.4 #12: some servers require text next to calls, some reject it.
    rule_for_500(
        &[
            &["content", "must be a string"],
            &["content", "null"],
            &["content", "required"],
            &["content", "missing"],
            &["content", "empty"],
            &["content", "blank"],
            &["content", "expected", "string"],
            &["missing field `content`"],
        ],
        |_, quirks| {
            let other = match quirks.wordless {
                EmptyContent::Omit => EmptyContent::Empty,
                EmptyContent::Empty => EmptyContent::Null,
                EmptyContent::Null => EmptyContent::Null,
            };
            NONE.wordless(other)
        },
    ),
    // Content parts are only sent for images, audio and markers of the cache.
    rule_for_500(&[&["content", "string"], &["content", "type", "text"]], |_, _| {
        NONE.images(false).audio(false).tool_images(false)
    }),
];

/// True if a message complains that something is missing, and not that it is there.
fn is_about_missing_field(message: &str) -> bool {
    has_any(message, &["missing", "must be pass", "must be provided", "is required"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_named_in_an_unrelated_error_teaches_nothing() {
        let learned_quirks =
            LearnedQuirks::new(QuirkPatch::NONE, ModelProfile::default(), QuirkPatch::NONE, None);
        let refusal = |kind| LlmError::Status {
            host: "h".into(),
            status: 400,
            proxy: None,
            message: "input length and `max_tokens` exceed context limit".to_owned(),
            retry_after: None,
            kind,
            key_advice: None,
            failed_generation: None,
        };
        let quirks = Quirks::default();
        let none = Modalities::default();
        let candidates = |kind| learned_quirks.candidate_patches(&refusal(kind), &quirks, none);
        assert!(candidates(ErrorKind::ContextOverflow { limit: None, used: None }).is_empty());
        assert!(!candidates(ErrorKind::BadRequest).is_empty());
        let overrides = QuirkPatch { limit: Some(quirks.limit), ..QuirkPatch::NONE };
        let learned_quirks =
            LearnedQuirks::new(QuirkPatch::NONE, ModelProfile::default(), overrides, None);
        let candidates =
            learned_quirks.candidate_patches(&refusal(ErrorKind::BadRequest), &quirks, none);
        assert!(candidates.is_empty(), "what the user wishes is not unlearned");
    }

    #[test]
    fn reasoning_that_could_not_be_read_once_is_asked_for_by_the_next_process() {
        for (message, encrypted) in [
            (
                "The encrypted content gAAA could not be verified. Reason: Encrypted content could \
                 not be decrypted or parsed.",
                None,
            ),
            ("Could not decrypt the provided encrypted_content.", None),
            ("Encrypted content is not supported with this model.", Some(false)),
            ("Unknown value: 'reasoning.encrypted_content'", Some(false)),
        ] {
            let saved = Arc::new(Mutex::new(ModelProfile::default()));
            let copy = Arc::clone(&saved);
            let save: SaveProfile =
                Arc::new(move |profile: &ModelProfile| *copy.lock() = profile.clone());
            let profile = ModelProfile::default();
            let learned =
                LearnedQuirks::new(QuirkPatch::NONE, profile, QuirkPatch::NONE, Some(save));
            let error = refused(ErrorKind::BadRequest, message);
            let patches =
                learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
            learned.record_if_new(patches[0]);
            let lasting = QuirkPatch { stream_options: Some(false), ..QuirkPatch::NONE };
            learned.record_if_new(lasting);
            assert!(!learned.quirks().encrypted, "{message}");
            assert_eq!(saved.lock().quirks, QuirkPatch { encrypted, ..lasting }, "{message}");
        }
    }

    fn refused(kind: ErrorKind, message: &str) -> LlmError {
        LlmError::Status {
            host: "h".into(),
            status: if kind == ErrorKind::Unavailable { 500 } else { 400 },
            proxy: None,
            message: message.to_owned(),
            retry_after: None,
            kind,
            key_advice: None,
            failed_generation: None,
        }
    }

    /// C.2 #17: an error about the model's output is not about the request.
    #[test]
    fn a_failed_generation_teaches_nothing() {
        let table = QuirkPatch::lookup("api.groq.com", "llama-3.3-70b-versatile");
        let learned_quirks =
            LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
        for message in [
            "tool call validation failed: parameters for tool write_file did not match schema: \
             errors: [`/content`: expected string, but got object]",
            "error parsing tool call: raw='{\"text\":\"streaming is not supported; max_tokens and \
             reasoning_effort are\"', err=unexpected end of JSON input",
        ] {
            let error = refused(ErrorKind::Unavailable, message);
            let images = Modalities { images: true, audio: false };
            let patches =
                learned_quirks.candidate_patches(&error, &learned_quirks.quirks(), images);
            assert_eq!(patches, [], "{message}");
        }
    }

    #[test]
    fn a_refusal_in_unknown_words_is_blamed_on_an_image_only_if_images_are_assumed() {
        let images = Modalities { images: true, audio: false };
        let wish = QuirkPatch { images: Some(true), ..QuirkPatch::NONE };
        for (model, overrides, media, is_blamed) in [
            ("my-own", QuirkPatch::NONE, images, true),
            ("my-own", QuirkPatch::NONE, Modalities::default(), false),
            ("my-own", wish, images, false),
            ("gpt-4o", QuirkPatch::NONE, images, false),
        ] {
            let table = QuirkPatch::lookup("localhost", model);
            let learned = LearnedQuirks::new(table, ModelProfile::default(), overrides, None);
            let error = refused(ErrorKind::BadRequest, "the template could not be applied");
            let patches = learned.candidate_patches(&error, &learned.quirks(), media);
            let no_images = QuirkPatch { images: Some(false), ..QuirkPatch::NONE };
            let expected = if is_blamed { vec![no_images] } else { Vec::new() };
            assert_eq!(patches, expected, "{model} {overrides:?} {media:?}");
        }
    }

    #[test]
    fn a_first_refusal_in_unknown_words_is_blamed_on_cache_markers_unless_a_stream_reports_it() {
        let table = QuirkPatch::lookup("gateway.example", "claude-sonnet-4-5");
        let learned = LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
        let message = "schema violation at /messages/0";
        let in_stream =
            LlmError::in_stream("h".to_owned(), message.to_owned(), ErrorKind::BadRequest);
        for (error, expected) in [
            (refused(ErrorKind::BadRequest, message), vec![NONE.cache(CacheHint::Auto)]),
            (in_stream, Vec::new()),
            (refused(ErrorKind::Unavailable, message), Vec::new()),
        ] {
            let patches =
                learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
            assert_eq!(patches, expected, "{error}");
        }
        // The markers were accepted before.
        learned.has_accepted.store(true, Ordering::Relaxed);
        let error = refused(ErrorKind::BadRequest, message);
        let patches = learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
        assert_eq!(patches, []);
    }

    /// The default model supports low, medium and high.
    #[test]
    fn a_rejected_effort_does_not_disable_all_efforts() {
        let table = QuirkPatch::lookup("api.openai.com", "gpt-5-mini");
        let learned_quirks =
            LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
        let message = "Unsupported value: 'reasoning_effort' does not support 'none' with this \
                       model. Supported values are: 'minimal', 'low', 'medium', and 'high'.";
        for patch in learned_quirks.candidate_patches(
            &refused(ErrorKind::BadRequest, message),
            &learned_quirks.quirks(),
            Modalities::default(),
        ) {
            learned_quirks.record_if_new(patch);
        }
        assert!(learned_quirks.quirks().supports_effort());
    }

    const ALL: Modalities = Modalities { images: true, audio: true };

    fn patch(quirks: &Quirks, status: u16, message: &str) -> String {
        let patch = patches_for_refusal(status, message, quirks, ALL);
        patch.first().map_or("nothing".to_owned(), |patch| serde_json::to_string(patch).unwrap())
    }

    #[test]
    fn a_refusal_that_names_a_parameter_changes_it() {
        let table = [
            (400, "Unknown parameter: 'stream_options'.", r#"{"stream_options":false}"#),
            (
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
                 'max_completion_tokens' instead.",
                r#"{"limit":"max_completion_tokens"}"#,
            ),
            // C.3 #8, #9.
            (
                400,
                "The `reasoning_content` in the thinking mode must be passed back to the API.",
                r#"{"echo":"always"}"#,
            ),
            (
                400,
                "thinking is enabled but reasoning_content is missing in assistant tool call \
                 message at index 2",
                r#"{"echo":"always"}"#,
            ),
            // C.3 #11.
            (
                400,
                "Function call is missing a thought_signature in functionCall parts.",
                r#"{"signature":true}"#,
            ),
            // C.2 #9.
            (
                400,
                "Tool call id was call_x but must be a-z, A-Z, 0-9, with a length of 9.",
                r#"{"ids":"nine"}"#,
            ),
            // C.4 #14.
            (400, "Unexpected role 'user' after role 'tool'", r#"{"bridge":true}"#),
            (
                500,
                "Jinja Exception: After the optional system message, conversation roles must \
                 alternate user and assistant roles except for tool calls and results.",
                r#"{"bridge":true}"#,
            ),
            (400, "messages.3.content: value must be a string", r#"{"wordless":"empty"}"#),
            (
                400,
                "Your organization must be verified to stream this model.",
                r#"{"stream":false}"#,
            ),
            (500, "Cannot use tools with stream", r#"{"stream":false}"#),
            (400, "Unsupported value: 'stream' does not support true", r#"{"stream":false}"#),
            (
                400,
                "Function tools with reasoning_effort are not supported for gpt-5.6 in \
                 /v1/chat/completions. To use function tools, use /v1/responses or set \
                 reasoning_effort to 'none'.",
                r#"{"responses":true}"#,
            ),
            (
                400,
                "model \"gpt-5.4\" is not accessible via the /chat/completions endpoint",
                r#"{"responses":true}"#,
            ),
            (
                404,
                "This is not a chat model and thus not supported in the v1/chat/completions \
                 endpoint. Did you mean to use v1/completions?",
                r#"{"responses":true}"#,
            ),
            (400, "something else", "nothing"),
            (500, "something with max_tokens", "nothing"),
            (429, "max_tokens", "nothing"),
        ];
        let text_only = Quirks { images: false, ..Quirks::default() };
        for (status, message, expected) in table {
            assert_eq!(patch(&text_only, status, message), expected, "{message}");
        }
    }

    #[test]
    fn a_rejected_parameter_is_dropped() {
        let all = Quirks {
            echo: ReasoningEcho::Always,
            effort: EffortDialect::ReasoningEffort,
            role: SystemRole::Developer,
            images: true,
            cache: CacheHint::Key,
            tool_stream: true,
            reasoning_split: true,
            details: true,
            ..Quirks::default()
        };
        let table = [
            // C.3 #12.
            (422, "extra_forbidden messages[5].assistant.reasoning_content", r#"{"echo":"never"}"#),
            (
                400,
                "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' \
                 : property 'reasoning_content' is unsupported)]",
                r#"{"echo":"never"}"#,
            ),
            (400, "wrong_api_format", r#"{"echo":"never","details":false}"#),
            // C.4 #1, #3.
            (
                400,
                "messages[0].role: unknown variant `developer`, expected one of",
                r#"{"role":"system"}"#,
            ),
            (
                400,
                "Model grok-4 does not support parameter reasoningEffort.",
                r#"{"effort":"none"}"#,
            ),
            // C.4 #18.
            (400, "unknown variant `image_url`, expected `text`", r#"{"images":false}"#),
            (404, "No endpoints found that support image input", r#"{"images":false}"#),
            (
                400,
                "Unrecognized request argument supplied: prompt_cache_key",
                r#"{"cache":"auto"}"#,
            ),
            (400, "unknown field tool_stream", r#"{"tool_stream":false}"#),
            (400, "unknown field reasoning_split", r#"{"reasoning_split":false}"#),
            (400, "property 'reasoning_details' is unsupported", r#"{"details":false}"#),
        ];
        for (status, message, expected) in table {
            assert_eq!(patch(&all, status, message), expected, "{message}");
        }
    }

    /// litellm#17479, litellm PR#39210, rig#1673.
    #[test]
    fn a_server_that_refuses_content_parts_or_cache_markers_gets_no_markers() {
        let marked = Quirks {
            cache: CacheHint::Marks,
            effort: EffortDialect::ReasoningEffort,
            ..Quirks::default()
        };
        for (status, message) in [
            (
                400,
                "messages.2.content.0.tool_result.content.0.cache_control: cache_control may not be \
                 specified within `tool_result.content`",
            ),
            (400, "tool messages must contain string content"),
            (422, "Input should be a valid string (messages.3.tool.content)"),
            (400, "Expected string, received array"),
            (400, "messages.3.content: Expected string, received array"),
            (400, "#/messages/0/content/1: extraneous key [cachePoint] is not permitted"),
            (400, "Cache point cannot be inserted after reasoning block."),
            (400, "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"),
            (403, "You invoked an unsupported model or your request did not allow prompt caching."),
        ] {
            for sent in [Modalities::default(), ALL] {
                let patches = patches_for_refusal(status, message, &marked, sent);
                let first = patches.first().map(|patch| serde_json::to_string(patch).unwrap());
                assert_eq!(first.as_deref(), Some(r#"{"cache":"auto"}"#), "{message}");
            }
        }
    }

    #[test]
    fn the_same_quirk_is_not_learned_twice() {
        let quirks = Quirks { stream_options: false, ..Quirks::default() };
        assert!(
            patches_for_refusal(400, "Unknown parameter: 'stream_options'.", &quirks, ALL)
                .is_empty()
        );
    }

    #[test]
    fn a_request_without_pictures_teaches_nothing_about_them() {
        let quirks = Quirks { images: true, audio: true, ..Quirks::default() };
        for (message, with, without) in [
            ("image input is not supported", r#"{"images":false}"#, None),
            ("input_audio is unknown", r#"{"audio":false}"#, None),
            (
                "'messages.1.content' : value must be a string",
                r#"{"images":false}"#,
                Some(r#"{"wordless":"empty"}"#),
            ),
        ] {
            assert_eq!(patch(&quirks, 400, message), with);
            let patches = patches_for_refusal(400, message, &quirks, Modalities::default());
            let patch = patches.first().map(|patch| serde_json::to_string(patch).unwrap());
            assert_eq!(patch.as_deref(), without, "{message}");
        }
    }
}
