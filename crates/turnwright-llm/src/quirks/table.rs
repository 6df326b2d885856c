//! The built-in table of quirks. Rows for models come before rows for hosts, because a host decides
//! how it serves another vendor's model. Later rows take precedence.

use super::{
    CacheHint, CallIdFormat, EffortDialect, EmptyContent, KeyHeader, LeakedCallHandling,
    OutputLimitField, QuirkPatch, ReasoningEcho, ThinkTags,
};
use turnwright_types::text;

/// A row applies at hosts that end with one of `hosts`, or at all if there are none, to models whose name
/// contains one of `models` as a whole word, or to all if there are none. A text in either is one entry, or a
/// list with one a line.
struct TableRow {
    hosts: &'static [&'static str],
    models: &'static [&'static str],
    patch: QuirkPatch,
}

const fn row(
    hosts: &'static [&'static str],
    models: &'static [&'static str],
    patch: QuirkPatch,
) -> TableRow {
    TableRow { hosts, models, patch }
}

impl TableRow {
    fn is_at(&self, host: &str) -> bool {
        let mut domains = self.hosts.iter().copied().flat_map(text::list_entries);
        self.hosts.is_empty() || domains.any(|domain| is_host(host, domain))
    }

    /// Returns true if the row applies to a model with this name, in lower case.
    fn is_for(&self, name: &str) -> bool {
        let mut words = self.models.iter().copied().flat_map(text::list_entries);
        self.models.is_empty() || words.any(|word| has_word(name, word))
    }
}

const NONE: QuirkPatch = QuirkPatch::NONE;
const OPENAI: &[&str] = &["api.openai.com"];
/// Hosts where each machine has its own cache. With a key, the requests of a conversation reach the same machine.
const WITH_KEYS: &[&str] = &["moonshot.ai", "moonshot.cn", "kimi.com", "fireworks.ai"];
/// Hosts that always send reasoning in a field of its own.
const SPLIT: &[&str] = &["openrouter.ai", "fireworks.ai", "together.xyz", "together.ai"];
const ALIBABA: &str = include_str!("table/hosts_of_alibaba.txt");
/// The hosts of models of Alibaba, which are cached for certain only if they are marked.
const WITH_MARKS: &[&str] = &["openrouter.ai", "opencode.ai", "aliyuncs.com"];
const MARKED: &[&str] = &["claude", include_str!("table/models_of_alibaba.txt")];

const ROWS: &[TableRow] = &[
    // Families without image input. All others are assumed to have it, because a refusal costs one
    // request and is remembered.
    row(&[], &[include_str!("table/models_without_images.txt")], NONE.images(false)),
    // Families with image input, where a model of the same name may have none. Audio input is rarer.
    row(&[], &[include_str!("table/models_with_images.txt")], NONE.images(true)),
    row(&[], &["o1-mini", "o3-mini"], NONE.images(false)),
    row(
        &[],
        &["gpt-4o-audio", "gpt-audio", "gemini", "qwen-omni", "voxtral", "phi-4-multimodal"],
        NONE.audio(true),
    ),
    // OpenAI's reasoning models, wherever they are served under these names (C.4 #2).
    row(
        &[],
        &["gpt-5", "gpt-6", "o1", "o3", "o4-mini", "o3-mini", "o1-mini"],
        NONE.limit(OutputLimitField::MaxCompletionTokens).effort(EffortDialect::ReasoningEffort),
    ),
    // Trained to edit with patches.
    row(&[], &["gpt-5", "gpt-6", "codex"], NONE.patches(true)),
    row(&[], &["o1-mini", "o1-preview", "gpt-5-chat"], NONE.effort(EffortDialect::None)),
    row(&[], &["gpt-oss"], NONE.effort(EffortDialect::ReasoningEffort)),
    // Their chat templates keep the reasoning between the calls of a turn (C.3 #14).
    row(&[], &["gpt-oss", "qwen3", "gemma-4", "gemma4"], NONE.echo(ReasoningEcho::Same)),
    // These answer 400 unless the reasoning is sent back with each reply (C.3 #8, #9).
    row(
        &[],
        &["deepseek", "mimo", "kimi", "moonshot"],
        NONE.echo(ReasoningEcho::Always).effort(EffortDialect::Thinking),
    ),
    row(&[], &["kimi", "moonshot"], NONE.ids(CallIdFormat::Functions)),
    // Always thinks, and has efforts instead.
    row(&[], &["kimi-k3"], NONE.effort(EffortDialect::ReasoningEffort)),
    // Variants without reasoning accept the field nevertheless.
    row(&[], &["moonshot-v1"], NONE.effort(EffortDialect::None).ids(CallIdFormat::Verbatim)),
    // C.3 #10.
    row(&[], &["glm"], NONE.echo(ReasoningEcho::Always).effort(EffortDialect::ThinkingKept)),
    row(&[], &["glm-5.2", "glm-5.3"], NONE.effort(EffortDialect::ThinkingLevels)),
    // C.3 #6, #7.
    row(
        &[],
        &["minimax"],
        NONE.echo(ReasoningEcho::Inline)
            .effort(EffortDialect::ThinkingAdaptive)
            .reasoning_split(true)
            .limit(OutputLimitField::MaxCompletionTokens),
    ),
    // vLLM and SGLang pass this on to the chat template; other servers ignore it (C.4 #4).
    row(&[], &["qwen3"], NONE.effort(EffortDialect::TemplateThinking)),
    row(&[], &["qwen3-coder"], NONE.effort(EffortDialect::None)),
    // Their chat templates emit the opening tag themselves (C.3 #6).
    row(
        &[],
        &["qwq", "thinking", "deepseek-r1", "magistral-small", "nemotron"],
        NONE.think(ThinkTags::Implicit),
    ),
    // Only what is marked is cached (C.4 #23), and arguments have plain names, behind any gateway.
    row(
        &[],
        &[include_str!("table/models_of_anthropic.txt")],
        NONE.cache(CacheHint::Marks).names(false),
    ),
    // Small models and broken chat templates: leaked calls are run (C.2 #21). Some are distilled from Claude
    // and named after it.
    row(
        &[],
        &[include_str!("table/models_with_leaked_calls.txt")],
        NONE.leaked(LeakedCallHandling::Parse).cache(CacheHint::Auto).names(true),
    ),
    // C.2 #9, C.3 #12, C.4 #14.
    row(
        &[],
        &[include_str!("table/models_of_mistral.txt")],
        NONE.ids(CallIdFormat::Nine)
            .bridge(true)
            .echo(ReasoningEcho::Never)
            .wordless(EmptyContent::Empty),
    ),
    // C.3 #11.
    row(&[], &["gemini"], NONE.signature(true).ids(CallIdFormat::Verbatim)),
    // C.2 #10.
    row(&[], &["claude"], NONE.ids(CallIdFormat::Safe)),
    // Hosts.
    row(OPENAI, &["gpt-4o", "gpt-4.1", "gpt-5", "gpt-6", "o1", "o3", "o4-mini"], NONE.files(true)),
    row(OPENAI, &["gpt-4o-audio", "o1-mini", "o1-preview", "o3-mini"], NONE.files(false)),
    row(
        OPENAI,
        &[],
        NONE.limit(OutputLimitField::MaxCompletionTokens)
            .ids(CallIdFormat::Safe)
            .cache(CacheHint::Key),
    ),
    row(
        &["openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com", "azure.us"],
        &[],
        NONE.limit(OutputLimitField::MaxCompletionTokens)
            .ids(CallIdFormat::Safe)
            .key(KeyHeader::ApiKey),
    ),
    row(SPLIT, &[], NONE.reasoning_split(false)),
    row(&["openrouter.ai", "api.fireworks.ai"], &[], NONE.echo(ReasoningEcho::Same)),
    row(&["openrouter.ai"], &[], NONE.effort(EffortDialect::Reasoning)),
    row(&["api.fireworks.ai"], &[], NONE.effort(EffortDialect::ReasoningEffort)),
    // The requirements of the provider behind OpenRouter apply (C.3 #9).
    row(
        &["openrouter.ai"],
        &["deepseek", "kimi", "moonshotai", "glm", "mimo"],
        NONE.echo(ReasoningEcho::Always),
    ),
    row(WITH_KEYS, &[], NONE.cache(CacheHint::Key)),
    // Azure refuses a key with other models.
    row(&["azure.com", "azure.us"], &["gpt-5", "gpt-6"], NONE.cache(CacheHint::Key)),
    row(WITH_MARKS, MARKED, NONE.cache(CacheHint::Marks)),
    row(&[ALIBABA, "modelscope.cn"], &[], NONE.effort(EffortDialect::EnableThinking)),
    row(&[ALIBABA], &["qwen3.8"], NONE.effort(EffortDialect::EnableLevels)),
    row(&["z.ai", "bigmodel.cn"], &[], NONE.tool_stream(true)),
    // These reject every unknown field (C.3 #12, C.4 #20).
    row(
        &["api.groq.com", "api.cerebras.ai", "api.mistral.ai"],
        &[],
        NONE.echo(ReasoningEcho::Never)
            .details(false)
            .reasoning_split(false)
            .wordless(EmptyContent::Empty),
    ),
    row(&["api.groq.com"], &[], NONE.effort(EffortDialect::None)),
    row(&["api.groq.com"], &["gpt-oss"], NONE.effort(EffortDialect::ReasoningEffort)),
    row(&["together.xyz", "together.ai"], &[], NONE.effort(EffortDialect::ReasoningEnabled)),
    // C.4 #3: support varies by model, and changes.
    row(&["api.x.ai"], &["grok-3-mini"], NONE.effort(EffortDialect::ReasoningEffort)),
    // Chat Completions loses their reasoning, which is encrypted.
    row(
        &["api.x.ai"],
        &["grok-4.3", "grok-4.5", "grok-4.6", "grok-4.7", "grok-5"],
        NONE.responses(true).effort(EffortDialect::ReasoningEffort).cache(CacheHint::Key),
    ),
    row(&["generativelanguage.googleapis.com"], &[], NONE.effort(EffortDialect::ReasoningEffort)),
    // Copilot has markers of its own, which only its own clients send. It wants reasoning back with its signature.
    row(&["githubcopilot.com"], &[], NONE.cache(CacheHint::Auto).echo(ReasoningEcho::Same)),
    // Its API for OpenAI's clients has no cache (C.4 #21).
    row(&["api.anthropic.com"], &[], NONE.ids(CallIdFormat::Safe).cache(CacheHint::Auto)),
    row(&["integrate.api.nvidia.com"], &[], NONE.effort(EffortDialect::TemplateThinking)),
];

/// The merged rows for a model at a host.
pub(super) fn find(host: &str, model: &str) -> QuirkPatch {
    let lower_host = host.to_ascii_lowercase();
    let host = lower_host.split(':').next().unwrap_or_default();
    let model = model.to_ascii_lowercase();
    ROWS.iter()
        .filter(|row| row.is_at(host) && row.is_for(&model))
        .fold(QuirkPatch::NONE, |patch, row| patch.merge(row.patch))
}

/// True if `host` is the domain or a subdomain of it.
fn is_host(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
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
            ("openrouter.ai", "anthropic/claude-mythos-5.1", CacheHint::Marks),
            ("api.anthropic.com", "claude-sonnet-4-5", CacheHint::Auto),
            ("api.githubcopilot.com", "claude-opus-4.8", CacheHint::Auto),
            ("localhost", "qwen3.5-27b-claude-opus-distill", CacheHint::Auto),
            ("localhost", "gpt-5", CacheHint::Auto),
        ] {
            assert_eq!(Quirks::lookup(host, model).cache, cache, "{model} at {host}");
        }
    }

    #[test]
    fn a_conversation_comes_to_the_machine_with_its_cache_by_a_key() {
        for (host, model, cache) in [
            ("api.openai.com", "gpt-5.6", CacheHint::Key),
            ("x.openai.azure.com", "gpt-5.6-sol", CacheHint::Key),
            ("x.openai.azure.com", "Kimi-K2.7-Code", CacheHint::Auto),
            ("api.moonshot.cn", "kimi-k2.6", CacheHint::Key),
            ("api.kimi.com", "kimi-for-coding", CacheHint::Key),
            ("api.fireworks.ai", "accounts/fireworks/models/glm-5p3", CacheHint::Key),
            ("x.openai.azure.com", "gpt-oss-120b", CacheHint::Auto),
            ("openrouter.ai", "moonshotai/kimi-k3", CacheHint::Auto),
        ] {
            assert_eq!(Quirks::lookup(host, model).cache, cache, "{model} at {host}");
        }
    }

    #[test]
    fn what_alibaba_serves_is_marked_for_its_cache() {
        for (host, model, cache) in [
            ("openrouter.ai", "qwen/qwen3.6-plus", CacheHint::Marks),
            ("openrouter.ai", "qwen/qwen3-coder-plus", CacheHint::Marks),
            ("openrouter.ai", "qwen/qwen3-max-thinking", CacheHint::Marks),
            ("openrouter.ai", "deepseek/deepseek-v3.2-exp", CacheHint::Marks),
            ("dashscope-intl.aliyuncs.com", "qwen-plus-latest", CacheHint::Marks),
            ("opencode.ai", "qwen3.7-max", CacheHint::Marks),
            // Others serve these, too.
            ("openrouter.ai", "qwen/qwen3-coder", CacheHint::Auto),
            ("openrouter.ai", "qwen/qwen3.6-35b-a3b", CacheHint::Auto),
            ("localhost", "qwen3.6-plus", CacheHint::Auto),
        ] {
            assert_eq!(Quirks::lookup(host, model).cache, cache, "{model} at {host}");
        }
    }

    #[test]
    fn only_claude_gets_no_argument_with_an_odd_name() {
        for (host, model, names) in [
            ("api.anthropic.com", "claude-sonnet-4-5", false),
            ("localhost", "bedrock/us.anthropic.claude-opus-4-8-v1:0", false),
            ("localhost", "claude-mythos-5", false),
            ("localhost", "qwen3.5-27b-claude-opus-distill", true),
            ("api.openai.com", "gpt-5", true),
        ] {
            assert_eq!(Quirks::lookup(host, model).names, names, "{model} at {host}");
        }
    }

    #[test]
    fn files_are_sent_only_where_they_are_known_to_be_taken() {
        for (host, model, files) in [
            ("api.openai.com", "gpt-5.2", true),
            ("api.openai.com", "o3-mini", false),
            ("api.openai.com", "gpt-3.5-turbo", false),
            ("openrouter.ai", "openai/gpt-5", false),
            ("localhost", "gpt-4o", false),
        ] {
            assert_eq!(Quirks::lookup(host, model).files, files, "{model} at {host}");
        }
    }

    #[test]
    fn gpt_6_is_asked_like_gpt_5() {
        for (host, older, newer) in [
            ("api.openai.com", "gpt-5.6-sol", "gpt-6-astra"),
            ("x.openai.azure.com", "gpt-5.6-sol", "gpt-6-sol"),
            ("openrouter.ai", "openai/gpt-5.6", "openai/gpt-6-astra"),
            ("api.githubcopilot.com", "gpt-5.6-sol", "gpt-6-sol"),
        ] {
            let quirks = Quirks::lookup(host, newer);
            assert_eq!(quirks, Quirks::lookup(host, older), "{newer} at {host}");
            assert!(quirks.patches && quirks.supports_effort(), "{newer} at {host}");
        }
    }

    #[test]
    fn reasoning_is_switched_at_each_of_alibabas_hosts() {
        for (host, model, effort) in [
            ("dashscope-intl.aliyuncs.com", "qwen3.7-plus", EffortDialect::EnableThinking),
            ("ws-1.eu-central-1.maas.aliyuncs.com", "qwen3.7-plus", EffortDialect::EnableThinking),
            ("token-plan.cn-beijing.maas.aliyuncs.com", "glm-5.2", EffortDialect::EnableThinking),
            ("modelscope.cn", "Qwen/Qwen3.6-27B", EffortDialect::EnableThinking),
            // The customers of Alibaba run vLLM there.
            ("1.cn-shanghai.pai-eas.aliyuncs.com", "Qwen3.8-27B", EffortDialect::TemplateThinking),
            ("1.cn-shanghai.pai-eas.aliyuncs.com", "gpt-oss-120b", EffortDialect::ReasoningEffort),
            ("1.cn-shanghai.pai-eas.aliyuncs.com", "qwen3-coder", EffortDialect::None),
        ] {
            assert_eq!(Quirks::lookup(host, model).effort, effort, "{model} at {host}");
        }
    }

    #[test]
    fn newer_models_of_zhipu_and_alibaba_have_efforts_beside_the_switch() {
        for (host, model, effort) in [
            ("api.z.ai", "glm-5.3", EffortDialect::ThinkingLevels),
            ("localhost", "zai-org/GLM-5.2-FP8", EffortDialect::ThinkingLevels),
            ("open.bigmodel.cn", "glm-5.1", EffortDialect::ThinkingKept),
            ("openrouter.ai", "z-ai/glm-5.3", EffortDialect::Reasoning),
            ("api.fireworks.ai", "glm-5.2", EffortDialect::ReasoningEffort),
            ("dashscope.aliyuncs.com", "qwen3.8-flash", EffortDialect::EnableLevels),
            ("localhost", "Qwen/Qwen3.8-27B", EffortDialect::TemplateThinking),
        ] {
            assert_eq!(Quirks::lookup(host, model).effort, effort, "{model} at {host}");
        }
    }

    #[test]
    fn kimi_k3_has_efforts_and_no_switch() {
        for (host, model, effort) in [
            ("api.moonshot.ai", "kimi-k3", EffortDialect::ReasoningEffort),
            ("localhost", "moonshotai/Kimi-K3", EffortDialect::ReasoningEffort),
            ("openrouter.ai", "moonshotai/kimi-k3", EffortDialect::Reasoning),
            ("api.moonshot.ai", "kimi-k2.6", EffortDialect::Thinking),
        ] {
            assert_eq!(Quirks::lookup(host, model).effort, effort, "{model} at {host}");
        }
    }

    #[test]
    fn newer_models_of_xai_keep_their_reasoning() {
        for (host, model, responses, effort) in [
            ("api.x.ai", "grok-4.6", true, EffortDialect::ReasoningEffort),
            ("api.x.ai", "grok-4.5-latest", true, EffortDialect::ReasoningEffort),
            ("api.x.ai", "grok-4.20-0309-reasoning", false, EffortDialect::None),
            ("api.x.ai", "grok-4-fast-reasoning", false, EffortDialect::None),
            ("api.x.ai", "grok-3-mini-fast", false, EffortDialect::ReasoningEffort),
            ("openrouter.ai", "x-ai/grok-4.6", false, EffortDialect::Reasoning),
        ] {
            let quirks = Quirks::lookup(host, model);
            assert_eq!((quirks.responses, quirks.effort), (responses, effort), "{model} at {host}");
        }
    }

    #[test]
    fn reasoning_goes_back_where_templates_keep_it_between_calls() {
        for (host, model, echo) in [
            ("localhost:11434", "gpt-oss:20b", ReasoningEcho::Same),
            ("localhost:8000", "Qwen/Qwen3.6-27B", ReasoningEcho::Same),
            ("localhost:11434", "gemma4:31b", ReasoningEcho::Same),
            ("localhost:8000", "google/gemma-4-31b-it", ReasoningEcho::Same),
            ("localhost:11434", "gemma3:27b", ReasoningEcho::Never),
            ("localhost:8000", "Qwen/Qwen2.5-72B-Instruct", ReasoningEcho::Never),
            ("api.groq.com", "openai/gpt-oss-120b", ReasoningEcho::Never),
            ("dashscope.aliyuncs.com", "qwen3.7-max", ReasoningEcho::Same),
            ("dashscope.aliyuncs.com", "kimi-k2.6", ReasoningEcho::Always),
        ] {
            assert_eq!(Quirks::lookup(host, model).echo, echo, "{model} at {host}");
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
        assert_eq!(Quirks::lookup("x.openai.azure.us", "gpt-5").key, KeyHeader::ApiKey);
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
