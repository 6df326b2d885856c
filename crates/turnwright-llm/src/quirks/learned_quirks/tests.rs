//! The lessons of refusals, in the words of each server.

use super::*;
use crate::quirks::ThinkTags;

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
        (
            "Could not decode the compaction blob. Ensure it is unmodified from the compact response.",
            None,
        ),
        ("Encrypted content is not supported with this model.", Some(false)),
        ("Unknown value: 'reasoning.encrypted_content'", Some(false)),
    ] {
        let saved = Arc::new(Mutex::new(ModelProfile::default()));
        let copy = Arc::clone(&saved);
        let save: SaveProfile =
            Arc::new(move |profile: &ModelProfile| *copy.lock() = profile.clone());
        let profile = ModelProfile::default();
        let learned = LearnedQuirks::new(QuirkPatch::NONE, profile, QuirkPatch::NONE, Some(save));
        let error = refused(ErrorKind::BadRequest, message);
        let patches = learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
        learned.record_if_new(patches[0]);
        let lasting = QuirkPatch { stream_options: Some(false), ..QuirkPatch::NONE };
        learned.record_if_new(lasting);
        assert!(!learned.quirks().encrypted, "{message}");
        assert_eq!(saved.lock().quirks, QuirkPatch { encrypted, ..lasting }, "{message}");
    }
}

/// The words may be about something else, and the server's template may be mended.
#[test]
fn several_calls_in_one_answer_are_tried_again_by_the_next_process() {
    let saved = Arc::new(Mutex::new(ModelProfile::default()));
    let copy = Arc::clone(&saved);
    let save: SaveProfile = Arc::new(move |profile: &ModelProfile| *copy.lock() = profile.clone());
    let stored = ModelProfile { quirks: NONE.parallel(false), ..ModelProfile::default() };
    let learned = LearnedQuirks::new(NONE, stored, NONE, Some(save));
    learned.record_if_new(NONE.stream_options(false));
    assert!(!learned.quirks().parallel);
    assert_eq!(saved.lock().quirks, NONE.stream_options(false));
}

#[test]
fn what_was_found_out_does_not_apply_if_the_user_has_set_something_else() {
    for (overrides, applies) in [
        (NONE, true),
        (NONE.loops(false), true),
        (NONE.think(ThinkTags::Tagged), false),
        (NONE.think(ThinkTags::Off), false),
    ] {
        let learned = LearnedQuirks::new(NONE, ModelProfile::default(), overrides, None);
        assert_eq!(learned.record_quirks(NONE.think(ThinkTags::Implicit)), applies);
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
    let learned_quirks = LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
    for message in [
        "tool call validation failed: parameters for tool write_file did not match schema: \
         errors: [`/content`: expected string, but got object]",
        "error parsing tool call: raw='{\"text\":\"streaming is not supported; max_tokens and \
         reasoning_effort are\"', err=unexpected end of JSON input",
    ] {
        let error = refused(ErrorKind::Unavailable, message);
        let images = Modalities { images: true, ..Modalities::default() };
        let patches = learned_quirks.candidate_patches(&error, &learned_quirks.quirks(), images);
        assert_eq!(patches, [], "{message}");
    }
}

#[test]
fn a_refusal_in_unknown_words_is_blamed_on_an_image_only_if_images_are_assumed() {
    let images = Modalities { images: true, ..Modalities::default() };
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
fn a_refusal_of_files_teaches_that_the_model_takes_none_unless_the_user_wants_them() {
    let files = Modalities { files: true, ..Modalities::default() };
    let dropped = NONE.files(false);
    let refused_parts =
        "Invalid value: file. Supported values are: 'text','image_url' and 'video'.";
    let strings = "'messages.1.content' : value must be a string";
    for (overrides, media, message, expected) in [
        (NONE, files, refused_parts, vec![dropped]),
        (NONE, files, "the template could not be applied", Vec::new()),
        (NONE, files, strings, vec![NONE.wordless(EmptyContent::Empty)]),
        (NONE, files, "Could not process PDF", Vec::new()),
        (NONE, Modalities::default(), refused_parts, Vec::new()),
        (NONE.files(true), files, refused_parts, Vec::new()),
    ] {
        let table = QuirkPatch::lookup("api.openai.com", "gpt-4o");
        let learned = LearnedQuirks::new(table, ModelProfile::default(), overrides, None);
        let error = refused(ErrorKind::BadRequest, message);
        let patches = learned.candidate_patches(&error, &learned.quirks(), media);
        assert_eq!(patches, expected, "{overrides:?} {media:?} {message}");
    }
}

#[test]
fn a_first_refusal_in_unknown_words_is_blamed_on_cache_markers_unless_a_stream_reports_it() {
    let table = QuirkPatch::lookup("gateway.example", "claude-sonnet-4-5");
    let learned = LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
    let message = "schema violation at /messages/0";
    let in_stream = LlmError::in_stream("h".to_owned(), message.to_owned(), ErrorKind::BadRequest);
    for (error, expected) in [
        (refused(ErrorKind::BadRequest, message), vec![NONE.cache(CacheHint::Auto)]),
        (in_stream, Vec::new()),
        (refused(ErrorKind::Unavailable, message), Vec::new()),
    ] {
        let patches = learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
        assert_eq!(patches, expected, "{error}");
    }
    // The markers were accepted before.
    learned.has_accepted.store(true, Ordering::Relaxed);
    let error = refused(ErrorKind::BadRequest, message);
    let patches = learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
    assert_eq!(patches, []);
}

#[test]
fn a_refusal_that_does_not_name_the_messages_may_be_about_reasoning_that_is_sent_back() {
    let never = NONE.echo(ReasoningEcho::Never);
    let no_effort = NONE.effort(EffortDialect::None);
    for (host, message, expected) in [
        ("gateway.example", "Extra inputs are not permitted", vec![never]),
        ("gateway.example", "extraneous key [reasoning] is not permitted", vec![no_effort, never]),
        ("api.groq.com", "Extra inputs are not permitted", Vec::new()),
        ("openrouter.ai", "Provider returned error", Vec::new()),
    ] {
        let table = QuirkPatch::lookup(host, "openai/gpt-oss-120b");
        let learned = LearnedQuirks::new(table, ModelProfile::default(), NONE, None);
        let error = refused(ErrorKind::BadRequest, message);
        let patches = learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
        assert_eq!(patches, expected, "{message}");
        let in_stream = LlmError::in_stream(host.to_owned(), message.to_owned(), error.kind());
        let told = learned.candidate_patches(&in_stream, &learned.quirks(), Modalities::default());
        assert_eq!(told.is_empty(), !message.contains("reasoning"), "{message} in a stream");
    }
}

/// The default model supports low, medium and high.
#[test]
fn a_rejected_effort_does_not_disable_all_efforts() {
    for message in [
        "Unsupported value: 'reasoning_effort' does not support 'none' with this model. \
         Supported values are: 'minimal', 'low', 'medium', and 'high'.",
        "reasoning_effort: unknown variant `xhigh`, expected one of `low`, `medium`, `high`",
        "Invalid reasoning effort: medium, expected one of ['high', 'max']",
        "[{'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': \"Input should \
         be 'none', 'low', 'medium' or 'high'\", 'input': 'xhigh'}]",
        "Input should be 'none' or 'high' (reasoning_effort)",
        "Thinking level MINIMAL is not supported for this model. Please retry with other \
         thinking level.",
        "Budget 0 is invalid. This model only works in thinking mode.",
        "The model does not support setting thinking_budget to 0.",
    ] {
        let table = QuirkPatch::lookup("api.openai.com", "gpt-5-mini");
        let learned_quirks =
            LearnedQuirks::new(table, ModelProfile::default(), QuirkPatch::NONE, None);
        for patch in learned_quirks.candidate_patches(
            &refused(ErrorKind::BadRequest, message),
            &learned_quirks.quirks(),
            Modalities::default(),
        ) {
            learned_quirks.record_if_new(patch);
        }
        assert!(learned_quirks.quirks().supports_effort(), "{message}");
    }
}

#[test]
fn an_unknown_field_is_no_rejected_effort() {
    let table = QuirkPatch::lookup("api.openai.com", "gpt-5-mini").echo(ReasoningEcho::Always);
    for (message, expected) in [
        (
            "unknown field `reasoning_effort`, expected one of `model`, `messages`",
            NONE.effort(EffortDialect::None),
        ),
        (
            "messages[2]: unknown field `reasoning_content`, expected one of `role`, `content`",
            NONE.echo(ReasoningEcho::Never),
        ),
    ] {
        let learned = LearnedQuirks::new(table, ModelProfile::default(), NONE, None);
        let error = refused(ErrorKind::BadRequest, message);
        let patches = learned.candidate_patches(&error, &learned.quirks(), Modalities::default());
        assert_eq!(patches.first(), Some(&expected), "{message}");
    }
}

const ALL: Modalities = Modalities { images: true, files: true, audio: true };

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
        (
            400,
            "tools.14.custom.input_schema.properties: Property keys should match pattern \
             '^[a-zA-Z0-9_.-]{1,64}$'",
            r#"{"names":false}"#,
        ),
        // C.4 #14.
        (400, "Unexpected role 'user' after role 'tool'", r#"{"bridge":true}"#),
        (400, "Multiple tool calls are not supported.", r#"{"parallel":false}"#),
        (
            400,
            "Invalid parameter: messages with role 'tool' must be a response to a message with \
             'tool_calls'.",
            r#"{"parallel":false}"#,
        ),
        (500, "This model only supports single tool-calls at once!", r#"{"parallel":false}"#),
        (
            500,
            "Jinja Exception: After the optional system message, conversation roles must \
             alternate user and assistant roles except for tool calls and results.",
            r#"{"bridge":true}"#,
        ),
        (400, "messages.3.content: value must be a string", r#"{"wordless":"empty"}"#),
        (400, "Your organization must be verified to stream this model.", r#"{"stream":false}"#),
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
        (
            500,
            "Cannot pass both content and thinking in an assistant message with tool calls!",
            r#"{"echo":"never","details":false}"#,
        ),
        // C.4 #1, #3.
        (
            400,
            "messages[0].role: unknown variant `developer`, expected one of",
            r#"{"role":"system"}"#,
        ),
        (400, "Model grok-4 does not support parameter reasoningEffort.", r#"{"effort":"none"}"#),
        // C.4 #18.
        (400, "unknown variant `image_url`, expected `text`", r#"{"images":false}"#),
        (404, "No endpoints found that support image input", r#"{"images":false}"#),
        (400, "Unrecognized request argument supplied: prompt_cache_key", r#"{"cache":"auto"}"#),
        (400, "unknown field tool_stream", r#"{"tool_stream":false}"#),
        (400, "unknown field reasoning_split", r#"{"reasoning_split":false}"#),
        (400, "property 'reasoning_details' is unsupported", r#"{"details":false}"#),
    ];
    for (status, message, expected) in table {
        assert_eq!(patch(&all, status, message), expected, "{message}");
    }
}

/// pi#222, openclaw#8666: otherwise each later request is refused, too.
#[test]
fn a_picture_that_copilot_refuses_without_its_header_is_left_out() {
    let quirks = Quirks::lookup("api.githubcopilot.com", "gpt-4o");
    let message = "missing required Copilot-Vision-Request header for vision requests";
    assert_eq!(patch(&quirks, 400, message), r#"{"images":false}"#);
}

/// pi#4602: Xiaomi's message says nothing, and its body may begin like an event.
#[test]
fn what_xiaomi_says_of_a_parameter_is_understood() {
    for (param, expected) in [
        (
            "The reasoning_content in the thinking mode must be passed back to the API.",
            r#"{"echo":"always"}"#,
        ),
        ("`text` is not present", r#"{"wordless":"empty"}"#),
        // About pictures.
        ("`text` is not set", "nothing"),
        ("messages", "nothing"),
    ] {
        let error = serde_json::json!({ "message": "Param Incorrect", "param": param });
        let document = serde_json::json!({ "error": error }).to_string();
        for body in [format!("data:{document}"), document] {
            let now = std::time::SystemTime::UNIX_EPOCH;
            let report = crate::errors::error_body::parse(&body, Some(400), None, now);
            assert_eq!(report.kind, ErrorKind::BadRequest, "{body}");
            assert_eq!(patch(&Quirks::default(), 400, &report.message), expected, "{body}");
        }
    }
    let quirks = Quirks::lookup("api.xiaomimimo.com", "mimo-v2.5-pro");
    assert_eq!(quirks.echo, ReasoningEcho::Always);
}

#[test]
fn a_refused_level_leaves_the_switch_beside_it() {
    let message = "Error from provider: cannot specify both 'thinking' and 'reasoning_effort'";
    for (host, model, expected) in [
        ("localhost", "glm-5.2", EffortDialect::ThinkingKept),
        ("dashscope.aliyuncs.com", "qwen3.8-max", EffortDialect::EnableThinking),
    ] {
        let patches = patches_for_refusal(400, message, &Quirks::lookup(host, model), ALL);
        assert_eq!(patches[0].effort, Some(expected), "{model}");
    }
}

/// langchain#34140, AstrBot#6447.
#[test]
fn xai_wants_content_beside_calls_in_its_newer_words_too() {
    let message = "Invalid request content: Each message must have at least one content element.";
    assert_eq!(patch(&Quirks::default(), 400, message), r#"{"wordless":"empty"}"#);
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
fn markers_that_are_refused_within_results_are_set_on_their_messages() {
    let message = "messages.2.content.0.tool_result.content.0.cache_control: cache_control may \
                   not be specified within `tool_result.content`";
    let mut quirks = Quirks { cache: CacheHint::Marks, ..Quirks::default() };
    assert_eq!(patch(&quirks, 400, message), r#"{"outer_marks":true}"#);
    quirks.outer_marks = true;
    assert_eq!(patch(&quirks, 400, message), r#"{"cache":"auto"}"#);
}

#[test]
fn the_same_quirk_is_not_learned_twice() {
    let quirks = Quirks { stream_options: false, ..Quirks::default() };
    assert!(
        patches_for_refusal(400, "Unknown parameter: 'stream_options'.", &quirks, ALL).is_empty()
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
