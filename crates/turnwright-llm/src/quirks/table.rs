//! The built-in table of quirks. Rows for models come before rows for hosts, because a host decides
//! how it serves another vendor's model. Later rows take precedence.

use super::{
    CacheHint, CallIdFormat, EffortDialect, EmptyContent, KeyHeader, LeakedCallHandling,
    OutputLimitField, QuirkPatch, ReasoningEcho, ThinkTags,
};
use turnwright_types::text;

/// A row applies if the host ends with `host` and the model's name contains one of `model` as a
/// whole word. A text there is one word, or a list with one a line.
struct TableRow {
    host: &'static str,
    model: &'static [&'static str],
    patch: QuirkPatch,
}

const fn model_row(model: &'static [&'static str], patch: QuirkPatch) -> TableRow {
    TableRow { host: "", model, patch }
}

const fn host_row(host: &'static str, patch: QuirkPatch) -> TableRow {
    TableRow { host, model: &[], patch }
}

impl TableRow {
    /// Returns true if the row applies to a model with this name, in lower case.
    fn is_for(&self, name: &str) -> bool {
        let mut words = self.model.iter().copied().flat_map(text::list_entries);
        self.model.is_empty() || words.any(|word| has_word(name, word))
    }
}

const NONE: QuirkPatch = QuirkPatch::NONE;

const ROWS: &[TableRow] = &[
    // Families without image input. All others are assumed to have it, because a refusal costs one
    // request and is remembered.
    model_row(
        &[include_str!("table/models_without_images.txt")],
        QuirkPatch { images: Some(false), ..NONE },
    ),
    // Families with image input, where a model of the same name may have none. Audio input is rarer.
    model_row(
        &[include_str!("table/models_with_images.txt")],
        QuirkPatch { images: Some(true), ..NONE },
    ),
    model_row(&["o1-mini", "o3-mini"], QuirkPatch { images: Some(false), ..NONE }),
    model_row(
        &["gpt-4o-audio", "gpt-audio", "gemini", "qwen-omni", "voxtral", "phi-4-multimodal"],
        QuirkPatch { audio: Some(true), ..NONE },
    ),
    // OpenAI's reasoning models, wherever they are served under these names (C.4 #2).
    model_row(
        &["gpt-5", "o1", "o3", "o4-mini", "o3-mini", "o1-mini"],
        QuirkPatch {
            limit: Some(OutputLimitField::MaxCompletionTokens),
            effort: Some(EffortDialect::ReasoningEffort),
            ..NONE
        },
    ),
    // Trained to edit with patches.
    model_row(&["gpt-5", "codex"], QuirkPatch { patches: Some(true), ..NONE }),
    model_row(&["o1-mini", "o1-preview"], QuirkPatch { effort: Some(EffortDialect::None), ..NONE }),
    model_row(&["gpt-5-chat"], QuirkPatch { effort: Some(EffortDialect::None), ..NONE }),
    model_row(&["gpt-oss"], QuirkPatch { effort: Some(EffortDialect::ReasoningEffort), ..NONE }),
    // These answer 400 unless the reasoning is sent back with each reply (C.3 #8, #9).
    model_row(
        &["deepseek"],
        QuirkPatch {
            echo: Some(ReasoningEcho::Always),
            effort: Some(EffortDialect::Thinking),
            ..NONE
        },
    ),
    model_row(
        &["kimi", "moonshot"],
        QuirkPatch {
            echo: Some(ReasoningEcho::Always),
            effort: Some(EffortDialect::Thinking),
            ids: Some(CallIdFormat::Functions),
            ..NONE
        },
    ),
    // Variants without reasoning accept the field nevertheless.
    model_row(
        &["moonshot-v1"],
        QuirkPatch { effort: Some(EffortDialect::None), ids: Some(CallIdFormat::Verbatim), ..NONE },
    ),
    // C.3 #10.
    model_row(
        &["glm"],
        QuirkPatch {
            echo: Some(ReasoningEcho::Always),
            effort: Some(EffortDialect::ThinkingKept),
            ..NONE
        },
    ),
    // C.3 #6, #7.
    model_row(
        &["minimax"],
        QuirkPatch {
            echo: Some(ReasoningEcho::Inline),
            effort: Some(EffortDialect::ThinkingAdaptive),
            reasoning_split: Some(true),
            limit: Some(OutputLimitField::MaxCompletionTokens),
            ..NONE
        },
    ),
    // vLLM and SGLang pass this on to the chat template; other servers ignore it (C.4 #4).
    model_row(&["qwen3"], QuirkPatch { effort: Some(EffortDialect::TemplateThinking), ..NONE }),
    model_row(&["qwen3-coder"], QuirkPatch { effort: Some(EffortDialect::None), ..NONE }),
    // Their chat templates emit the opening tag themselves (C.3 #6).
    model_row(
        &["qwq", "thinking", "deepseek-r1", "magistral-small", "nemotron"],
        QuirkPatch { think: Some(ThinkTags::Implicit), ..NONE },
    ),
    // Only what is marked is cached, behind any gateway (C.4 #23).
    model_row(
        &["claude-opus", "claude-sonnet", "claude-haiku", "claude-fable", "claude-3"],
        QuirkPatch { cache: Some(CacheHint::Marks), ..NONE },
    ),
    // Small models and broken chat templates: leaked calls are run (C.2 #21). Some are distilled from Claude
    // and named after it.
    model_row(
        &[include_str!("table/models_with_leaked_calls.txt")],
        QuirkPatch {
            leaked: Some(LeakedCallHandling::Parse),
            cache: Some(CacheHint::Auto),
            ..NONE
        },
    ),
    // C.2 #9, C.3 #12, C.4 #14.
    model_row(
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
        QuirkPatch {
            ids: Some(CallIdFormat::Nine),
            bridge: Some(true),
            echo: Some(ReasoningEcho::Never),
            wordless: Some(EmptyContent::Empty),
            ..NONE
        },
    ),
    // C.3 #11.
    model_row(
        &["gemini"],
        QuirkPatch { signature: Some(true), ids: Some(CallIdFormat::Verbatim), ..NONE },
    ),
    // C.2 #10.
    model_row(&["claude"], QuirkPatch { ids: Some(CallIdFormat::Safe), ..NONE }),
    // Hosts.
    host_row(
        "api.openai.com",
        QuirkPatch {
            limit: Some(OutputLimitField::MaxCompletionTokens),
            ids: Some(CallIdFormat::Safe),
            cache: Some(CacheHint::Key),
            ..NONE
        },
    ),
    host_row("openai.azure.com", AZURE),
    host_row("cognitiveservices.azure.com", AZURE),
    host_row("services.ai.azure.com", AZURE),
    host_row(
        "openrouter.ai",
        QuirkPatch {
            effort: Some(EffortDialect::Reasoning),
            echo: Some(ReasoningEcho::Same),
            reasoning_split: Some(false),
            ..NONE
        },
    ),
    // The requirements of the provider behind OpenRouter apply (C.3 #9).
    TableRow {
        host: "openrouter.ai",
        model: &["deepseek", "kimi", "moonshotai", "glm"],
        patch: QuirkPatch { echo: Some(ReasoningEcho::Always), ..NONE },
    },
    TableRow {
        host: "openrouter.ai",
        model: &["claude"],
        patch: QuirkPatch { cache: Some(CacheHint::Marks), ..NONE },
    },
    host_row("api.deepseek.com", QuirkPatch { limit: Some(OutputLimitField::MaxTokens), ..NONE }),
    host_row("dashscope.aliyuncs.com", DASHSCOPE),
    host_row("dashscope-intl.aliyuncs.com", DASHSCOPE),
    host_row("dashscope-us.aliyuncs.com", DASHSCOPE),
    host_row("modelscope.cn", DASHSCOPE),
    host_row("z.ai", QuirkPatch { tool_stream: Some(true), ..NONE }),
    host_row("bigmodel.cn", QuirkPatch { tool_stream: Some(true), ..NONE }),
    host_row("api.groq.com", QuirkPatch { effort: Some(EffortDialect::None), ..STRICT }),
    TableRow {
        host: "api.groq.com",
        model: &["gpt-oss"],
        patch: QuirkPatch { effort: Some(EffortDialect::ReasoningEffort), ..NONE },
    },
    host_row("api.cerebras.ai", STRICT),
    host_row("api.mistral.ai", STRICT),
    host_row("api.together.xyz", TOGETHER),
    host_row("api.together.ai", TOGETHER),
    host_row(
        "api.fireworks.ai",
        QuirkPatch {
            effort: Some(EffortDialect::ReasoningEffort),
            echo: Some(ReasoningEcho::Same),
            reasoning_split: Some(false),
            ..NONE
        },
    ),
    // C.4 #3: support varies by model, and changes.
    host_row("api.x.ai", QuirkPatch { effort: Some(EffortDialect::None), ..NONE }),
    TableRow {
        host: "api.x.ai",
        model: &["grok-3-mini"],
        patch: QuirkPatch { effort: Some(EffortDialect::ReasoningEffort), ..NONE },
    },
    host_row(
        "generativelanguage.googleapis.com",
        QuirkPatch { effort: Some(EffortDialect::ReasoningEffort), ..NONE },
    ),
    // Copilot has markers of its own, which only its own clients send.
    host_row("githubcopilot.com", QuirkPatch { cache: Some(CacheHint::Auto), ..NONE }),
    // Its API for OpenAI's clients has no cache (C.4 #21).
    host_row(
        "api.anthropic.com",
        QuirkPatch { ids: Some(CallIdFormat::Safe), cache: Some(CacheHint::Auto), ..NONE },
    ),
    host_row(
        "integrate.api.nvidia.com",
        QuirkPatch { effort: Some(EffortDialect::TemplateThinking), ..NONE },
    ),
];

const AZURE: QuirkPatch = QuirkPatch {
    limit: Some(OutputLimitField::MaxCompletionTokens),
    ids: Some(CallIdFormat::Safe),
    key: Some(KeyHeader::ApiKey),
    ..NONE
};

const DASHSCOPE: QuirkPatch = QuirkPatch {
    effort: Some(EffortDialect::EnableThinking),
    echo: Some(ReasoningEcho::Never),
    ..NONE
};

/// Rejects every unknown field (C.3 #12, C.4 #20).
const STRICT: QuirkPatch = QuirkPatch {
    echo: Some(ReasoningEcho::Never),
    details: Some(false),
    reasoning_split: Some(false),
    wordless: Some(EmptyContent::Empty),
    ..NONE
};

const TOGETHER: QuirkPatch = QuirkPatch {
    effort: Some(EffortDialect::ReasoningEnabled),
    reasoning_split: Some(false),
    ..NONE
};

/// The merged rows for a model at a host.
pub(super) fn find(host: &str, model: &str) -> QuirkPatch {
    let lower_host = host.to_ascii_lowercase();
    let host = lower_host.split(':').next().unwrap_or_default();
    let model = model.to_ascii_lowercase();
    ROWS.iter()
        .filter(|row| is_host(host, row.host) && row.is_for(&model))
        .fold(QuirkPatch::NONE, |patch, row| patch.merge(row.patch))
}

/// True if `host` is the domain or a subdomain of it.
fn is_host(host: &str, domain: &str) -> bool {
    domain.is_empty()
        || host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// True if the name contains `word` at the start of a word: `o1` matches `openai/o1-pro` but not
/// `foo1`.
fn has_word(name: &str, word: &str) -> bool {
    word.is_empty()
        || name.match_indices(word).any(|(at, _)| {
            let goes_on = name[at + word.len()..].starts_with(|c: char| c.is_ascii_digit());
            let is_whole = !word.ends_with(|c: char| c.is_ascii_digit()) || !goes_on;
            is_whole && !name[..at].ends_with(|c: char| c.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use super::super::{Quirks, ReasoningEcho};
    use super::*;

    #[test]
    fn words_match_at_their_start() {
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
    fn claude_is_cached_behind_any_gateway() {
        for (host, model, cache) in [
            ("litellm.example:4000", "claude-sonnet-4-5", CacheHint::Marks),
            ("localhost", "bedrock/us.anthropic.claude-opus-4-8-v1:0", CacheHint::Marks),
            ("openrouter.ai", "anthropic/claude-haiku-4.5", CacheHint::Marks),
            ("api.anthropic.com", "claude-sonnet-4-5", CacheHint::Auto),
            ("api.githubcopilot.com", "claude-opus-4.8", CacheHint::Auto),
            ("localhost", "qwen3.5-27b-claude-opus-distill", CacheHint::Auto),
            ("localhost", "gpt-5", CacheHint::Auto),
        ] {
            assert_eq!(Quirks::lookup(host, model).cache, cache, "{model} at {host}");
        }
    }

    #[test]
    fn host_rows_override_model_rows() {
        assert_eq!(
            Quirks::lookup("localhost:8000", "kimi-k2-thinking").echo,
            ReasoningEcho::Always
        );
        assert_eq!(Quirks::lookup("api.groq.com", "moonshotai/kimi-k2").echo, ReasoningEcho::Never);
        assert_eq!(
            Quirks::lookup("api.mistral.ai", "mistral-large-latest").ids,
            CallIdFormat::Nine
        );
        assert_eq!(Quirks::lookup("x.openai.azure.com", "gpt-5").key, KeyHeader::ApiKey);
        assert_eq!(Quirks::lookup("localhost", "MiniMax-M2").echo, ReasoningEcho::Inline);
        assert_eq!(Quirks::lookup("localhost", "my-own"), Quirks::default());
        assert_eq!(
            Quirks::lookup("openrouter.ai", "moonshotai/kimi-k2.5").echo,
            ReasoningEcho::Always
        );
        assert_eq!(Quirks::lookup("openrouter.ai", "openai/gpt-5").echo, ReasoningEcho::Same);
        assert!(!Quirks::lookup("localhost", "qwen3-coder").supports_effort());
        for (model, images) in [
            ("kimi-k2-thinking", false),
            ("moonshotai/kimi-k2.6", true),
            ("kimi-k2.7-code:cloud", true),
            ("accounts/fireworks/models/kimi-k2p6", true),
            ("granite4:3b", false),
            ("granite3.2-vision:2b", true),
            ("moonshot-v1-8k-vision-preview", true),
            ("granite-supervision", false),
        ] {
            assert_eq!(Quirks::lookup("openrouter.ai", model).images, images, "{model}");
        }
    }
}
