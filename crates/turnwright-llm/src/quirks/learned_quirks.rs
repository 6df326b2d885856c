//! Quirks that were learned from a server, layered over the built-in table and below the user's
//! overrides. They are kept for the process and saved for the next one. A refusal that names a parameter teaches the
//! quirk that avoids it.

#[cfg(test)]
mod tests;

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

    /// Records quirks that were found out by a probe or an answer. Returns false if the user's overrides undo them.
    pub(crate) fn record_quirks(&self, patch: QuirkPatch) -> bool {
        self.change(|profile| profile.quirks = profile.quirks.merge(patch));
        self.quirks().with(patch) == self.quirks()
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
            ErrorKind::ModelNotFound => !has_any(message, &["image input", "file input"]),
            _ => error.is_reply_specific() || error.is_effort_rejection() || error.lacks_thought(),
        };
        if is_unrelated || error.quotes_reply() || error.is_about_one_image() {
            return Vec::new();
        }
        let mut patches = patches_for_refusal(status, message, refused, media);
        if media.files && error.is_about_files() {
            patches.insert(0, NONE.files(false));
        }
        // A refusal in unknown words. Otherwise the image or the cache markers would fail every later request too.
        let is_refusal = matches!(status, 400 | 415 | 422) && error.kind() == ErrorKind::BadRequest;
        let is_unexplained = is_refusal && patches.is_empty();
        // Within a stream no retry would show if it helps.
        let is_verifiable = is_refusal && matches!(error, LlmError::Status { .. });
        if is_unexplained && media.images && self.are_images_assumed() {
            patches.push(NONE.images(false));
        } else if is_unexplained
            && is_verifiable
            && refused.cache == CacheHint::Marks
            && !self.has_accepted.load(Ordering::Relaxed)
        {
            patches.push(NONE.cache(CacheHint::Auto));
        }
        let message = message.to_ascii_lowercase();
        // Last, because it may be about another field: the server may not know the reasoning that was sent back.
        if is_verifiable && refused.echo == ReasoningEcho::Same && has_any(&message, &EXTRA_FIELD) {
            patches.push(NONE.echo(ReasoningEcho::Never));
        }
        let is_unsupported = has_any(&message, &["support", "unknown"]);
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

    /// Records the price of the model in the server's list, and that it takes PDF files according to that list, unless
    /// a refusal has shown that it does not. The profile is stored even if it is empty, so the next process need not
    /// ask before its first request.
    pub(crate) fn record_listed(&self, price: Option<Price>, takes_files: bool) {
        self.change(|profile| {
            profile.price = price.or(profile.price);
            profile.quirks.files = profile.quirks.files.or(takes_files.then_some(true));
        });
    }

    fn change(&self, change: impl FnOnce(&mut ModelProfile)) {
        let mut profile = self.profile.lock();
        change(&mut profile);
        let mut now = profile.clone();
        drop(profile);
        // The words of this refusal are ambiguous, and the server's template may be mended. To learn the quirk again
        // costs only one refused request.
        now.quirks.parallel = None;
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
            let mut alternatives = rule.phrases.split(" | ");
            alternatives.any(|all| all.split(" & ").all(|phrase| message.contains(phrase)))
        })
        .map(|rule| (rule.patch)(&message, quirks))
        .filter(|patch| media.images || (patch.images, patch.tool_images) == (None, None))
        .filter(|patch| media.audio || patch.audio.is_none())
        .filter(|patch| quirks.with(*patch) != *quirks)
        .collect()
}

/// Words about a field that a server does not know.
const EXTRA_FIELD: [&str; 4] = ["reasoning", "extra", "additional propert", "unknown field"];

/// Phrases that servers use, and the resulting quirks.
struct LearningRule {
    /// Alternatives: a message matches if it contains all phrases of one of them.
    phrases: &'static str,
    /// The resulting quirks.
    patch: MakePatch,
    /// True if the rule applies to status 500 as well, which failing chat templates produce.
    applies_to_500: bool,
}

/// Makes a patch from the message of a refusal, in lower case, and the quirks of the refused request.
type MakePatch = fn(&str, &Quirks) -> QuirkPatch;

const fn rule(phrases: &'static str, patch: MakePatch) -> LearningRule {
    LearningRule { phrases, patch, applies_to_500: false }
}

const fn rule_for_500(phrases: &'static str, patch: MakePatch) -> LearningRule {
    LearningRule { phrases, patch, applies_to_500: true }
}

const NONE: QuirkPatch = QuirkPatch::NONE;

const LEARNING_RULES: &[LearningRule] = &[
    // OpenAI's newer models, some of them only if the request has tools.
    rule(
        "in v1/responses | use /v1/responses | via the /chat/completions | \
         not a chat model | chatcompletion operation does not work",
        |_, _| NONE.responses(true),
    ),
    // An account that may not have the answer in pieces, or a server that cannot stream calls.
    rule_for_500(
        "verified to stream | streaming & not support | stream=true & not support | \
         `stream` & not support | 'stream' & not support | tools with stream | \
         tools & while streaming",
        |_, _| NONE.stream(false),
    ),
    rule("stream_options | include_usage", |_, _| NONE.stream_options(false)),
    rule("max_completion_tokens | max_tokens | max_output_tokens", |_, _| NONE.long(false)),
    rule("max_completion_tokens | max_tokens", |_, quirks| {
        let other = match quirks.limit {
            OutputLimitField::MaxTokens => OutputLimitField::MaxCompletionTokens,
            OutputLimitField::MaxCompletionTokens => OutputLimitField::MaxTokens,
        };
        NONE.limit(other)
    }),
    rule_for_500("developer & role | unknown variant `developer` | 'developer'", |_, _| {
        NONE.role(SystemRole::System)
    }),
    rule("tool_result.content & cache_control", |_, _| NONE.outer_marks(true)),
    // Bedrock calls a marker a cache point. Before the rules about reasoning: a refusal may name both.
    rule("cache_control | cachepoint | cache point | prompt caching | prompt_cache_key", |_, _| {
        NONE.cache(CacheHint::Auto)
    }),
    rule("reasoning.summary | reasoning summar", |_, _| NONE.summary(false)),
    // The last is xAI's word for it.
    rule("encrypted_content | encrypted content | compaction blob", |_, _| NONE.encrypted(false)),
    // Before the other rules about reasoning: these match the field name after a dot or an index.
    rule("reasoning_split", |_, _| NONE.reasoning_split(false)),
    rule("reasoning_effort | reasoningeffort | reasoning.effort", |_, quirks| {
        NONE.effort(match quirks.effort {
            EffortDialect::ThinkingLevels => EffortDialect::ThinkingKept,
            EffortDialect::EnableLevels => EffortDialect::EnableThinking,
            _ => EffortDialect::None,
        })
    }),
    rule("reasoning_details | thinking_blocks", |_, _| NONE.details(false)),
    rule("reasoning_content | messages & reasoning", |message, _| {
        let is_missing = is_about_missing_field(message);
        NONE.echo(if is_missing { ReasoningEcho::Always } else { ReasoningEcho::Never })
    }),
    rule_for_500("wrong_api_format | wrong api format | both content and thinking", |_, _| {
        NONE.echo(ReasoningEcho::Never).details(false)
    }),
    rule("thinking | chat_template_kwargs | reasoning", |_, _| NONE.effort(EffortDialect::None)),
    rule_for_500("thought_signature", |_, _| NONE.signature(true)),
    rule_for_500("tool call id & 9 | tool_call & {9} | length of 9", |_, _| {
        NONE.ids(CallIdFormat::Nine)
    }),
    rule(
        "tool_call_id & pattern | tool_use.id & pattern | tool_calls & id & too long | \
         tool_calls & id & maximum length | tool_call_id & maximum length",
        |_, _| NONE.ids(CallIdFormat::Safe),
    ),
    rule("property keys should match pattern", |_, _| NONE.names(false)),
    // The template of Llama 3, and Databricks.
    rule_for_500(
        "single tool-call | multiple tool calls & not support | \
         role 'tool' must be a response",
        |_, _| NONE.parallel(false),
    ),
    rule_for_500(
        "unexpected role 'user' after role 'tool' | unexpected role & after role | \
         roles must alternate | after a tool message & assistant",
        |_, _| NONE.bridge(true),
    ),
    // Markers of the cache stand on content parts. This comes before the rules about images and empty content, which
    // the same refusals match: a lesson that did not help would be kept, too.
    rule(
        "content & string | content & array | expected & string | valid string",
        |message, quirks| {
            let is_meant = quirks.cache == CacheHint::Marks && !message.contains("null");
            QuirkPatch { cache: is_meant.then_some(CacheHint::Auto), ..NONE }
        },
    ),
    // No phrase that may be about a single image: the lesson applies to all later requests.
    // `content` stands last: in a request with images this is about their list of content parts.
    rule_for_500(
        "unknown variant & image_url | image_url & not support | image_url & only & text | \
         image_url & invalid content type | not support image | support image input | \
         image input is not supported | images are not supported | vision & not support | \
         copilot-vision-request | not a multimodal | multimodal & not support | \
         at most 0 image | content & must be a string | content & expected & string",
        |_, quirks| {
            // Images in tool results are dropped first.
            if quirks.tool_images { NONE.tool_images(false) } else { NONE.images(false) }
        },
    ),
    rule_for_500("input_audio | audio & not support", |_, _| NONE.audio(false)),
    rule("tool_stream", |_, _| NONE.tool_stream(false)),
    // C.4 #12: some servers require text next to calls, some reject it.
    rule_for_500(
        "content & must be a string | content & null | content & required | \
         content & missing | content & empty | content & blank | \
         content & expected & string | at least one content element | `text` is not present",
        |_, quirks| {
            let other = match quirks.wordless {
                EmptyContent::Omit => EmptyContent::Empty,
                EmptyContent::Empty | EmptyContent::Null => EmptyContent::Null,
            };
            NONE.wordless(other)
        },
    ),
    // Content parts are only sent for images, audio and markers of the cache.
    rule_for_500("content & string | content & type & text", |_, _| {
        NONE.images(false).audio(false).tool_images(false)
    }),
];

/// True if a message complains that something is missing, and not that it is there.
fn is_about_missing_field(message: &str) -> bool {
    has_any(message, &["missing", "must be pass", "must be provided", "is required"])
}
