//! A refusal that names a parameter → the quirk that mends it (rule 8).

use super::{Cache, Dialect, Echo, Ids, Limit, Patch, Quirks, Role, Wordless};
use crate::Senses;

/// What a refused request with these media may teach, the likeliest first. Whether it changes anything is for the
/// caller to see: a server that refuses the same thing twice has not been understood.
pub(in crate) fn learn(
    status: u16,
    message: &str,
    quirks: &Quirks,
    media: Senses,
) -> Vec<Patch> {
    if !matches!(status, 400 | 404 | 415 | 422 | 500) {
        return Vec::new();
    }
    let message = message.to_ascii_lowercase();
    let lessons = LESSONS.iter().filter(|it| status != 500 || it.despite_500);
    lessons
        .filter(|it| it.words.iter().any(|words| words.iter().all(|it| message.contains(it))))
        .map(|it| (it.patch)(&message, quirks))
        .filter(|patch| media.images || (patch.images, patch.tool_images) == (None, None))
        .filter(|patch| media.audio || patch.audio.is_none())
        .filter(|patch| quirks.with(*patch) != *quirks)
        .collect()
}

/// One thing that servers say.
struct Lesson {
    /// All words of one of these lists are in the message.
    words: &'static [&'static [&'static str]],
    /// What to do then.
    patch: fn(&str, &Quirks) -> Patch,
    /// Whether it counts in a 500: templates fail so.
    despite_500: bool,
}

const NONE: Patch = Patch::NONE;

const LESSONS: &[Lesson] = &[
    Lesson {
        words: &[&["stream_options"], &["include_usage"]],
        patch: |_, _| Patch { stream_options: Some(false), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["max_completion_tokens"], &["max_tokens"]],
        patch: |_, quirks| {
            let other = match quirks.limit {
                Limit::MaxTokens => Limit::MaxCompletionTokens,
                Limit::MaxCompletionTokens => Limit::MaxTokens,
            };
            Patch { limit: Some(other), ..NONE }
        },
        despite_500: false,
    },
    Lesson {
        words: &[&["developer", "role"], &["unknown variant `developer`"], &["'developer'"]],
        patch: |_, _| Patch { role: Some(Role::System), ..NONE },
        despite_500: true,
    },
    Lesson {
        words: &[&["reasoning.summary"], &["reasoning summar"]],
        patch: |_, _| Patch { summary: Some(false), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["encrypted_content"], &["encrypted content"]],
        patch: |_, _| Patch { encrypted: Some(false), ..NONE },
        despite_500: false,
    },
    // Before the others about reasoning: these name the field with a dot or an index before it.
    Lesson {
        words: &[&["reasoning_split"]],
        patch: |_, _| Patch { reasoning_split: Some(false), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["reasoning_effort"], &["reasoningeffort"], &["reasoning.effort"]],
        patch: |_, _| Patch { effort: Some(Dialect::None), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["reasoning_details"]],
        patch: |_, _| Patch { details: Some(false), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["reasoning_content"], &["messages", "reasoning"]],
        patch: |message, _| {
            let echo = if is_missing(message) { Echo::Always } else { Echo::Never };
            Patch { echo: Some(echo), ..NONE }
        },
        despite_500: false,
    },
    Lesson {
        words: &[&["wrong_api_format"], &["wrong api format"]],
        patch: |_, _| Patch { echo: Some(Echo::Never), details: Some(false), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["thinking"], &["chat_template_kwargs"], &["reasoning"]],
        patch: |_, _| Patch { effort: Some(Dialect::None), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["thought_signature"]],
        patch: |_, _| Patch { signature: Some(true), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["tool call id", "9"], &["tool_call", "{9}"], &["length of 9"]],
        patch: |_, _| Patch { ids: Some(Ids::Nine), ..NONE },
        despite_500: true,
    },
    Lesson {
        words: &[
            &["tool_call_id", "pattern"],
            &["tool_use.id", "pattern"],
            &["tool_calls", "id", "too long"],
            &["tool_calls", "id", "maximum length"],
            &["tool_call_id", "maximum length"],
        ],
        patch: |_, _| Patch { ids: Some(Ids::Safe), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[
            &["unexpected role 'user' after role 'tool'"],
            &["unexpected role", "after role"],
            &["after a tool message", "assistant"],
        ],
        patch: |_, _| Patch { bridge: Some(true), ..NONE },
        despite_500: true,
    },
    Lesson {
        // Not any trouble with one picture: what is learned counts for all that follow.
        words: &[
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
            // Where there are pictures, this is about the list that they stand in.
            &["content", "must be a string"],
            &["content", "expected", "string"],
        ],
        patch: |_, quirks| {
            // Pictures in the results of calls are the first to go.
            if quirks.tool_images {
                Patch { tool_images: Some(false), ..NONE }
            } else {
                Patch { images: Some(false), ..NONE }
            }
        },
        despite_500: true,
    },
    Lesson {
        words: &[&["input_audio"], &["audio", "not support"]],
        patch: |_, _| Patch { audio: Some(false), ..NONE },
        despite_500: true,
    },
    Lesson {
        words: &[&["cache_control"]],
        patch: |_, _| Patch { cache: Some(Cache::Auto), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["prompt_cache_key"]],
        patch: |_, _| Patch { cache: Some(Cache::Auto), ..NONE },
        despite_500: false,
    },
    Lesson {
        words: &[&["tool_stream"]],
        patch: |_, _| Patch { tool_stream: Some(false), ..NONE },
        despite_500: false,
    },
    // C.4 #12: some want a text with the calls, some want none.
    Lesson {
        words: &[
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
                Wordless::Omit => Wordless::Empty,
                Wordless::Empty => Wordless::Null,
                Wordless::Null => Wordless::Null,
            };
            Patch { wordless: Some(other), ..NONE }
        },
        despite_500: true,
    },
    // Parts are only sent for pictures and recordings.
    Lesson {
        words: &[&["content", "string"], &["content", "type", "text"]],
        patch: |_, _| Patch {
            images: Some(false),
            audio: Some(false),
            tool_images: Some(false),
            ..NONE
        },
        despite_500: true,
    },
];

/// Whether a message complains about the lack of something and not about the thing.
fn is_missing(message: &str) -> bool {
    let words =
        ["missing", "must be passed back", "must be provided", "is required", "must be pass"];
    words.iter().any(|it| message.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Senses = Senses { images: true, audio: true };

    fn patch(quirks: &Quirks, status: u16, message: &str) -> String {
        let patch = learn(status, message, quirks, ALL);
        patch.first().map_or("nothing".to_owned(), |it| serde_json::to_string(it).unwrap())
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
            (400, "something else", "nothing"),
            (500, "something with max_tokens", "nothing"),
            (429, "max_tokens", "nothing"),
        ];
        for (status, message, expected) in table {
            assert_eq!(patch(&Quirks::default(), status, message), expected, "{message}");
        }
    }

    #[test]
    fn what_is_refused_is_dropped() {
        let all = Quirks {
            echo: Echo::Always,
            effort: Dialect::ReasoningEffort,
            role: Role::Developer,
            images: true,
            cache: Cache::Key,
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
    fn the_same_lesson_is_not_learned_twice() {
        let quirks = Quirks { stream_options: false, ..Quirks::default() };
        assert!(learn(400, "Unknown parameter: 'stream_options'.", &quirks, ALL).is_empty());
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
            let patches = learn(400, message, &quirks, Senses::default());
            let patch = patches.first().map(|it| serde_json::to_string(it).unwrap());
            assert_eq!(patch.as_deref(), without, "{message}");
        }
    }
}
