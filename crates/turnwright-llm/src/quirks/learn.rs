//! Maps refusals that name a parameter to the quirk that avoids them.

use super::{
    CacheHint, CallIdFormat, EffortDialect, EmptyContent, OutputLimitField, QuirkPatch, Quirks,
    ReasoningEcho, SystemRole,
};
use crate::Modalities;
use crate::errors::has_any;

/// The quirks that could avoid a refusal of a request with these media, the most likely first. The
/// caller has to verify that they help: if the server refuses the same thing twice, the refusal was
/// misunderstood.
pub(crate) fn patches_for_refusal(
    status: u16,
    message: &str,
    quirks: &Quirks,
    media: Modalities,
) -> Vec<QuirkPatch> {
    if !matches!(status, 400 | 404 | 415 | 422 | 500) {
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
    /// Alternatives: a message matches if it contains all phrases of one of these lists.
    phrases: &'static [&'static [&'static str]],
    /// The resulting quirks.
    patch: fn(&str, &Quirks) -> QuirkPatch,
    /// True if the rule applies to status 500 as well, which failing chat templates produce.
    applies_to_500: bool,
}

const NONE: QuirkPatch = QuirkPatch::NONE;

const LEARNING_RULES: &[LearningRule] = &[
    // An account that may not have the answer in pieces, or a server that cannot stream calls.
    LearningRule {
        phrases: &[
            &["verified to stream"],
            &["streaming", "not support"],
            &["stream=true", "not support"],
            &["`stream`", "not support"],
            &["'stream'", "not support"],
            &["tools with stream"],
            &["tools", "while streaming"],
        ],
        patch: |_, _| QuirkPatch { stream: Some(false), ..NONE },
        applies_to_500: true,
    },
    LearningRule {
        phrases: &[&["stream_options"], &["include_usage"]],
        patch: |_, _| QuirkPatch { stream_options: Some(false), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["max_completion_tokens"], &["max_tokens"]],
        patch: |_, quirks| {
            let other = match quirks.limit {
                OutputLimitField::MaxTokens => OutputLimitField::MaxCompletionTokens,
                OutputLimitField::MaxCompletionTokens => OutputLimitField::MaxTokens,
            };
            QuirkPatch { limit: Some(other), ..NONE }
        },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["developer", "role"], &["unknown variant `developer`"], &["'developer'"]],
        patch: |_, _| QuirkPatch { role: Some(SystemRole::System), ..NONE },
        applies_to_500: true,
    },
    LearningRule {
        phrases: &[&["reasoning.summary"], &["reasoning summar"]],
        patch: |_, _| QuirkPatch { summary: Some(false), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["encrypted_content"], &["encrypted content"]],
        patch: |_, _| QuirkPatch { encrypted: Some(false), ..NONE },
        applies_to_500: false,
    },
    // Before the other rules about reasoning: these match the field name after a dot or an index.
    LearningRule {
        phrases: &[&["reasoning_split"]],
        patch: |_, _| QuirkPatch { reasoning_split: Some(false), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["reasoning_effort"], &["reasoningeffort"], &["reasoning.effort"]],
        patch: |_, _| QuirkPatch { effort: Some(EffortDialect::None), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["reasoning_details"], &["thinking_blocks"]],
        patch: |_, _| QuirkPatch { details: Some(false), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["reasoning_content"], &["messages", "reasoning"]],
        patch: |message, _| {
            let echo = if is_about_missing_field(message) {
                ReasoningEcho::Always
            } else {
                ReasoningEcho::Never
            };
            QuirkPatch { echo: Some(echo), ..NONE }
        },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["wrong_api_format"], &["wrong api format"]],
        patch: |_, _| QuirkPatch { echo: Some(ReasoningEcho::Never), details: Some(false), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["thinking"], &["chat_template_kwargs"], &["reasoning"]],
        patch: |_, _| QuirkPatch { effort: Some(EffortDialect::None), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["thought_signature"]],
        patch: |_, _| QuirkPatch { signature: Some(true), ..NONE },
        applies_to_500: true,
    },
    LearningRule {
        phrases: &[&["tool call id", "9"], &["tool_call", "{9}"], &["length of 9"]],
        patch: |_, _| QuirkPatch { ids: Some(CallIdFormat::Nine), ..NONE },
        applies_to_500: true,
    },
    LearningRule {
        phrases: &[
            &["tool_call_id", "pattern"],
            &["tool_use.id", "pattern"],
            &["tool_calls", "id", "too long"],
            &["tool_calls", "id", "maximum length"],
            &["tool_call_id", "maximum length"],
        ],
        patch: |_, _| QuirkPatch { ids: Some(CallIdFormat::Safe), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[
            &["unexpected role 'user' after role 'tool'"],
            &["unexpected role", "after role"],
            &["after a tool message", "assistant"],
        ],
        patch: |_, _| QuirkPatch { bridge: Some(true), ..NONE },
        applies_to_500: true,
    },
    LearningRule {
        // No phrase that may be about a single image: the lesson applies to all later requests.
        phrases: &[
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
        patch: |_, quirks| {
            // Images in tool results are dropped first.
            if quirks.tool_images {
                QuirkPatch { tool_images: Some(false), ..NONE }
            } else {
                QuirkPatch { images: Some(false), ..NONE }
            }
        },
        applies_to_500: true,
    },
    LearningRule {
        phrases: &[&["input_audio"], &["audio", "not support"]],
        patch: |_, _| QuirkPatch { audio: Some(false), ..NONE },
        applies_to_500: true,
    },
    LearningRule {
        phrases: &[&["cache_control"]],
        patch: |_, _| QuirkPatch { cache: Some(CacheHint::Auto), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["prompt_cache_key"]],
        patch: |_, _| QuirkPatch { cache: Some(CacheHint::Auto), ..NONE },
        applies_to_500: false,
    },
    LearningRule {
        phrases: &[&["tool_stream"]],
        patch: |_, _| QuirkPatch { tool_stream: Some(false), ..NONE },
        applies_to_500: false,
    },
    // C.4 #12: some servers require text next to calls, some reject it.
    LearningRule {
        phrases: &[
            &["content", "must be a string"],
            &["content", "null"],
            &["content", "required"],
            &["content", "missing"],
            &["content", "empty"],
            &["content", "blank"],
            &["content", "expected", "string"],
            &["missing field `content`"],
        ],
        patch: |_, quirks| {
            let other = match quirks.wordless {
                EmptyContent::Omit => EmptyContent::Empty,
                EmptyContent::Empty => EmptyContent::Null,
                EmptyContent::Null => EmptyContent::Null,
            };
            QuirkPatch { wordless: Some(other), ..NONE }
        },
        applies_to_500: true,
    },
    // Content parts are only sent for images and audio.
    LearningRule {
        phrases: &[&["content", "string"], &["content", "type", "text"]],
        patch: |_, _| QuirkPatch {
            images: Some(false),
            audio: Some(false),
            tool_images: Some(false),
            ..NONE
        },
        applies_to_500: true,
    },
];

/// True if a message complains that something is missing, and not that it is there.
fn is_about_missing_field(message: &str) -> bool {
    has_any(message, &["missing", "must be pass", "must be provided", "is required"])
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (400, "messages.3.content: value must be a string", r#"{"wordless":"empty"}"#),
            (
                400,
                "Your organization must be verified to stream this model.",
                r#"{"stream":false}"#,
            ),
            (500, "Cannot use tools with stream", r#"{"stream":false}"#),
            (400, "Unsupported value: 'stream' does not support true", r#"{"stream":false}"#),
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
