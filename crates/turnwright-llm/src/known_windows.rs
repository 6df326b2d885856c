//! The context windows of well-known models. A model that is not listed has no known window, and
//! then no usage is shown: a wrong gauge is worse than none.

/// Prefixes of model names and the size in tokens. The first match counts, so longer prefixes come
/// first.
const WINDOWS: &[(&str, u64)] = &[
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("claude-", 200_000),
    ("gemini-", 1_048_576),
    ("deepseek-", 131_072),
    ("kimi-k2", 262_144),
    ("qwen3-coder", 262_144),
    ("glm-4", 131_072),
    ("mistral-large", 131_072),
    ("codestral", 262_144),
    ("grok-4", 262_144),
];

/// The context window of a model in tokens, by its name. A provider prefix such as `openai/` is
/// ignored.
pub fn known_context_window(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model);
    WINDOWS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, window)| *window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_prefix_does_not_matter_and_an_unknown_model_has_no_window() {
        assert_eq!(known_context_window("gpt-4o-mini"), Some(128_000));
        assert_eq!(known_context_window("openai/gpt-4o"), Some(128_000));
        assert_eq!(known_context_window("my-own-model"), None);
    }
}
