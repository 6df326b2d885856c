//! Well-known providers: their names, base URLs and key variables.

use turnwright_llm::Protocol;

/// A well-known provider.
#[derive(Debug)]
pub struct ProviderPreset {
    /// The name, as in `NAME/model`.
    pub name: &'static str,
    /// The base URL; `None` if every account has its own.
    pub base_url: Option<&'static str>,
    /// The variable that its own documentation uses for the key; none for local servers.
    pub key_env: Option<&'static str>,
    pub(crate) api: Protocol,
}

/// A hosted provider.
const fn hosted(
    name: &'static str,
    base_url: &'static str,
    key_env: &'static str,
) -> ProviderPreset {
    ProviderPreset { name, base_url: Some(base_url), key_env: Some(key_env), api: Protocol::Chat }
}

/// A server on this machine, at its default port.
const fn local(name: &'static str, base_url: &'static str) -> ProviderPreset {
    ProviderPreset { name, base_url: Some(base_url), key_env: None, api: Protocol::Chat }
}

/// The well-known providers, hosted ones first.
pub const PRESETS: &[ProviderPreset] = &[
    hosted(crate::OPENAI_PROVIDER, crate::OPENAI_BASE_URL, "OPENAI_API_KEY"),
    ProviderPreset {
        name: "azure",
        base_url: None,
        key_env: Some("AZURE_OPENAI_API_KEY"),
        api: Protocol::Chat,
    },
    hosted("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    hosted("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    hosted(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    hosted("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    hosted("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    hosted("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    hosted("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    hosted("together", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
    hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    hosted("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    hosted("anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    hosted("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    local("ollama", "http://localhost:11434/v1"),
    local("lmstudio", "http://localhost:1234/v1"),
    local("llamacpp", "http://localhost:8080/v1"),
    local("vllm", "http://localhost:8000/v1"),
    local("sglang", "http://localhost:30000/v1"),
];

/// Returns true if this is the base URL of OpenAI's own API.
pub fn is_openai_url(base_url: &str) -> bool {
    base_url.trim_end_matches('/') == crate::OPENAI_BASE_URL
}

/// The well-known provider of this name.
pub fn preset(name: &str) -> Option<&'static ProviderPreset> {
    PRESETS.iter().find(|provider| provider.name == name)
}

/// The names of the well-known providers.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|provider| provider.name)
}

/// Returns true if a well-known provider keeps its key in this variable.
pub(crate) fn is_key_variable(name: &str) -> bool {
    PRESETS.iter().any(|provider| provider.key_env == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_are_unique_and_keys_are_sent_only_over_https() {
        for (number, one) in PRESETS.iter().enumerate() {
            for other in &PRESETS[number + 1..] {
                assert_ne!(one.name, other.name);
                assert!(one.base_url != other.base_url || one.base_url.is_none(), "{}", one.name);
                assert!(one.key_env != other.key_env || one.key_env.is_none(), "{}", one.name);
            }
            let Some(url) = one.base_url else { continue };
            let scheme = if one.key_env.is_some() { "https://" } else { "http://localhost:" };
            assert!(url.starts_with(scheme) && !url.ends_with('/'), "{url}");
        }
    }

    #[test]
    fn the_manual_has_the_same_table() {
        let manual = include_str!("../../../docs/configuration.md");
        for preset in PRESETS {
            let url = preset.base_url.map_or("must be given".to_owned(), |url| format!("`{url}`"));
            let key = preset.key_env.map_or("none".to_owned(), |variable| format!("`{variable}`"));
            let row = format!("| `{}` | {url} | {key} |", preset.name);
            assert!(manual.contains(&row), "{row}");
        }
    }
}
