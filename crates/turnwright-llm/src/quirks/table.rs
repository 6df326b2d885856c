//! The built-in table. Rows for models come first, rows for hosts after them: a host that serves
//! somebody else's model has its own ways. Later rows win.

use super::{Cache, Dialect, Echo, Ids, Key, Leaked, Limit, Patch, Think, Wordless};

/// One row: where the host ends with `host` and the model's name holds `model`, as whole words.
struct Row {
    host: &'static str,
    model: &'static [&'static str],
    patch: Patch,
}

const ANY: &[&str] = &[""];

const fn model(model: &'static [&'static str], patch: Patch) -> Row {
    Row { host: "", model, patch }
}

const fn host(host: &'static str, patch: Patch) -> Row {
    Row { host, model: ANY, patch }
}

const SEES: Patch = Patch { images: Some(true), ..Patch::NONE };
const NONE: Patch = Patch::NONE;

const ROWS: &[Row] = &[
    // What can see, by its family. Audio is rarer.
    model(
        &[
            "gpt-4o",
            "gpt-4.1",
            "gpt-4.5",
            "gpt-5",
            "chatgpt-4o",
            "o1",
            "o3",
            "o4-mini",
            "claude",
            "gemini",
            "gemma-3",
            "gemma3",
            "pixtral",
            "mistral-medium",
            "mistral-small-3",
            "mistral-small-2503",
            "mistral-small-2506",
            "mistral-small-latest",
            "grok-4",
            "grok-2-vision",
            "llama-4",
            "llava",
            "internvl",
            "minicpm-v",
            "kimi-k2.5",
            "kimi-vl",
            "moonshot-v1-8k-vision",
            "moonshot-v1-32k-vision",
            "moonshot-v1-128k-vision",
            "qwen-vl",
            "qwen2-vl",
            "qwen2.5-vl",
            "qwen2.5vl",
            "qwen3-vl",
            "qwen-omni",
            "qvq",
            "glm-4v",
            "glm-4.1v",
            "glm-4.5v",
            "glm-4.6v",
            "nova-lite",
            "nova-pro",
            "phi-4-multimodal",
        ],
        SEES,
    ),
    model(&["o1-mini", "o3-mini"], Patch { images: Some(false), ..NONE }),
    model(
        &["gpt-4o-audio", "gpt-audio", "gemini", "qwen-omni", "voxtral", "phi-4-multimodal"],
        Patch { audio: Some(true), ..NONE },
    ),
    // OpenAI's own reasoning models, wherever they are served under these names (C.4 #2).
    model(
        &["gpt-5", "o1", "o3", "o4-mini", "o3-mini", "o1-mini"],
        Patch {
            limit: Some(Limit::MaxCompletionTokens),
            effort: Some(Dialect::ReasoningEffort),
            ..NONE
        },
    ),
    // Trained on patches.
    model(&["gpt-5", "codex"], Patch { patches: Some(true), ..NONE }),
    model(&["o1-mini", "o1-preview"], Patch { effort: Some(Dialect::None), ..NONE }),
    model(&["gpt-5-chat"], Patch { effort: Some(Dialect::None), ..NONE }),
    model(&["gpt-oss"], Patch { effort: Some(Dialect::ReasoningEffort), ..NONE }),
    // 400 unless the reasoning comes back with each answer (C.3 #8, #9).
    model(
        &["deepseek"],
        Patch { echo: Some(Echo::Always), effort: Some(Dialect::Thinking), ..NONE },
    ),
    model(
        &["kimi", "moonshot"],
        Patch {
            echo: Some(Echo::Always),
            effort: Some(Dialect::Thinking),
            ids: Some(Ids::Functions),
            ..NONE
        },
    ),
    // Instant variants have no thoughts, but take the field.
    model(
        &["moonshot-v1"],
        Patch { effort: Some(Dialect::None), ids: Some(Ids::Verbatim), ..NONE },
    ),
    // C.3 #10.
    model(
        &["glm"],
        Patch { echo: Some(Echo::Always), effort: Some(Dialect::ThinkingKept), ..NONE },
    ),
    // C.3 #6, #7.
    model(
        &["minimax"],
        Patch {
            echo: Some(Echo::Inline),
            details: Some(true),
            effort: Some(Dialect::ThinkingAdaptive),
            reasoning_split: Some(true),
            limit: Some(Limit::MaxCompletionTokens),
            ..NONE
        },
    ),
    // As vLLM and SGLang pass it on to the template; others ignore it (C.4 #4).
    model(&["qwen3"], Patch { effort: Some(Dialect::TemplateThinking), ..NONE }),
    model(&["qwen3-coder"], Patch { effort: Some(Dialect::None), ..NONE }),
    // Their templates open the tag themselves (C.3 #6).
    model(
        &["qwq", "thinking", "deepseek-r1", "magistral-small", "nemotron"],
        Patch { think: Some(Think::Implicit), ..NONE },
    ),
    // Small models and broken templates: calls that leak are made (C.2 #21), and answers that
    // only repeat themselves are stopped (C.1 #28b).
    model(
        &[
            "qwen",
            "qwq",
            "llama",
            "hermes",
            "kimi",
            "glm",
            "deepseek",
            "mistral",
            "ministral",
            "devstral",
            "granite",
            "gemma",
            "phi",
            "functionary",
            "gpt-oss",
            "minimax",
        ],
        Patch { leaked: Some(Leaked::Parse), loops: Some(true), ..NONE },
    ),
    // C.2 #9, C.3 #12, C.4 #14.
    model(
        &[
            "mistral",
            "magistral",
            "ministral",
            "codestral",
            "devstral",
            "pixtral",
            "voxtral",
            "mixtral",
        ],
        Patch {
            ids: Some(Ids::Nine),
            bridge: Some(true),
            echo: Some(Echo::Never),
            wordless: Some(Wordless::Empty),
            ..NONE
        },
    ),
    // C.3 #11.
    model(&["gemini"], Patch { signature: Some(true), ids: Some(Ids::Verbatim), ..NONE }),
    // C.2 #10.
    model(&["claude"], Patch { ids: Some(Ids::Safe), ..NONE }),
    // --- hosts ---
    host(
        "api.openai.com",
        Patch {
            limit: Some(Limit::MaxCompletionTokens),
            ids: Some(Ids::Safe),
            cache: Some(Cache::Key),
            ..NONE
        },
    ),
    host("openai.azure.com", AZURE),
    host("cognitiveservices.azure.com", AZURE),
    host("services.ai.azure.com", AZURE),
    host(
        "openrouter.ai",
        Patch {
            effort: Some(Dialect::Reasoning),
            echo: Some(Echo::Same),
            details: Some(true),
            reasoning_split: Some(false),
            ..NONE
        },
    ),
    // What the provider behind it demands goes through (C.3 #9).
    Row {
        host: "openrouter.ai",
        model: &["deepseek", "kimi", "moonshotai", "glm"],
        patch: Patch { echo: Some(Echo::Always), ..NONE },
    },
    Row {
        host: "openrouter.ai",
        model: &["claude"],
        patch: Patch { cache: Some(Cache::Marks), ..NONE },
    },
    host("api.deepseek.com", Patch { limit: Some(Limit::MaxTokens), ..NONE }),
    host("dashscope.aliyuncs.com", DASHSCOPE),
    host("dashscope-intl.aliyuncs.com", DASHSCOPE),
    host("dashscope-us.aliyuncs.com", DASHSCOPE),
    host("modelscope.cn", DASHSCOPE),
    host("z.ai", Patch { tool_stream: Some(true), ..NONE }),
    host("bigmodel.cn", Patch { tool_stream: Some(true), ..NONE }),
    host("api.groq.com", Patch { effort: Some(Dialect::None), ..STRICT }),
    Row {
        host: "api.groq.com",
        model: &["gpt-oss"],
        patch: Patch { effort: Some(Dialect::ReasoningEffort), ..NONE },
    },
    host("api.cerebras.ai", STRICT),
    host("api.mistral.ai", STRICT),
    host("api.together.xyz", Patch { effort: Some(Dialect::ReasoningEnabled), ..TOGETHER }),
    host("api.together.ai", Patch { effort: Some(Dialect::ReasoningEnabled), ..TOGETHER }),
    host(
        "api.fireworks.ai",
        Patch {
            effort: Some(Dialect::ReasoningEffort),
            echo: Some(Echo::Same),
            reasoning_split: Some(false),
            ..NONE
        },
    ),
    // C.4 #3: the matrix is per model, and changes.
    host("api.x.ai", Patch { effort: Some(Dialect::None), ..NONE }),
    Row {
        host: "api.x.ai",
        model: &["grok-3-mini"],
        patch: Patch { effort: Some(Dialect::ReasoningEffort), ..NONE },
    },
    host(
        "generativelanguage.googleapis.com",
        Patch { effort: Some(Dialect::ReasoningEffort), ..NONE },
    ),
    host("api.anthropic.com", Patch { ids: Some(Ids::Safe), ..NONE }),
    host("integrate.api.nvidia.com", Patch { effort: Some(Dialect::TemplateThinking), ..NONE }),
];

const AZURE: Patch = Patch {
    limit: Some(Limit::MaxCompletionTokens),
    ids: Some(Ids::Safe),
    key: Some(Key::ApiKey),
    ..NONE
};

const DASHSCOPE: Patch =
    Patch { effort: Some(Dialect::EnableThinking), echo: Some(Echo::Never), ..NONE };

/// Refuses every field that it does not know (C.3 #12, C.4 #20).
const STRICT: Patch = Patch {
    echo: Some(Echo::Never),
    details: Some(false),
    reasoning_split: Some(false),
    wordless: Some(Wordless::Empty),
    ..NONE
};

const TOGETHER: Patch = Patch { reasoning_split: Some(false), ..NONE };

/// What the table says about a model at a host.
pub(super) fn find(host: &str, model: &str) -> Patch {
    let (host, model) = (host.to_ascii_lowercase(), model.to_ascii_lowercase());
    let host = host.split(':').next().unwrap_or_default();
    let fits =
        |row: &&Row| is_host(host, row.host) && row.model.iter().any(|it| has_word(&model, it));
    ROWS.iter().filter(fits).fold(Patch::NONE, |patch, row| patch.and(row.patch))
}

/// Whether `host` is that domain or one below it.
fn is_host(host: &str, domain: &str) -> bool {
    domain.is_empty()
        || host.strip_suffix(domain).is_some_and(|it| it.is_empty() || it.ends_with('.'))
}

/// Whether the name holds the word, not begun within another one: `o1` is in `openai/o1-pro` and
/// not in `foo1`.
fn has_word(name: &str, word: &str) -> bool {
    let is_digit = |it: char| it.is_ascii_digit();
    word.is_empty()
        || name.match_indices(word).any(|(at, _)| {
            let goes_on = name[at + word.len()..].starts_with(is_digit);
            let is_whole = !word.ends_with(is_digit) || !goes_on;
            is_whole && !name[..at].ends_with(|it: char| it.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use super::super::{Echo, Quirks};
    use super::*;

    #[test]
    fn words_are_whole_at_their_beginning() {
        for (name, word, expected) in [
            ("openai/o1-pro", "o1", true),
            ("foo1", "o1", false),
            ("o10", "o1", false),
            ("deepseek-v3.2", "deepseek", true),
            ("my-deepseek", "deepseek", true),
            ("llama3.2:3b", "llama", true),
            ("qwen2.5vl:7b", "qwen2.5vl", true),
        ] {
            assert_eq!(has_word(name, word), expected, "{name} {word}");
        }
    }

    #[test]
    fn a_domain_does_not_match_a_longer_name() {
        assert!(is_host("api.z.ai", "z.ai"));
        assert!(!is_host("quiz.ai", "z.ai"));
        assert!(is_host("x.openai.azure.com", "openai.azure.com"));
    }

    #[test]
    fn a_host_has_the_last_word_about_another_one_s_model() {
        assert_eq!(Quirks::of("localhost:8000", "kimi-k2-thinking").echo, Echo::Always);
        assert_eq!(Quirks::of("api.groq.com", "moonshotai/kimi-k2").echo, Echo::Never);
        assert_eq!(Quirks::of("api.mistral.ai", "mistral-large-latest").ids, Ids::Nine);
        assert_eq!(Quirks::of("x.openai.azure.com", "gpt-5").key, Key::ApiKey);
        assert_eq!(Quirks::of("localhost", "MiniMax-M2").echo, Echo::Inline);
        assert_eq!(Quirks::of("localhost", "my-own"), Quirks::default());
        assert_eq!(Quirks::of("openrouter.ai", "moonshotai/kimi-k2.5").echo, Echo::Always);
        assert_eq!(Quirks::of("openrouter.ai", "openai/gpt-5").echo, Echo::Same);
        assert!(!Quirks::of("localhost", "qwen3-coder").has_effort());
    }
}
