//! Parses the list of models that a server offers, and suggests names for a misspelled one. Knows the context
//! windows of well-known models. A model that is not listed has no known window, and then no usage is shown: a
//! wrong gauge is worse than none.

use serde_json::Value;

use crate::Price;
use crate::errors::error_body::number;
use crate::local_server::LocalServer;
use turnwright_types::effect::is_hidden_char;

/// More models than anybody can choose from.
const MAX_MODELS: usize = 1000;
/// The longest name that is accepted. Comparing names takes quadratic time.
const MAX_NAME_BYTES: usize = 200;
/// A listed price of this many US dollars or more is that of a million tokens, not of one.
const MIN_MILLION_PRICE: f64 = 0.001;
/// A prefix of model names, in lower case and with dashes for dots, and the size in tokens on each line. The first
/// match counts, so longer prefixes come first. For GPT-5 it is the most that a request may have, as the rest of the
/// window is kept for the answer; from 5.4 on, a longer request is accepted at twice the price.
const WINDOWS: &str = include_str!("model_list/windows.txt");

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedModel {
    pub(super) name: String,
    /// The size of the context window in tokens, if the server reports it.
    pub(super) window: Option<u64>,
    /// The price, if the server reports it.
    pub(super) price: Option<Price>,
    /// True if the server says that it takes PDF files.
    pub(super) takes_files: bool,
    /// The program that serves it, if it can be asked for more.
    pub(super) server: Option<LocalServer>,
}

/// Where servers report the context window: llama.cpp, vLLM, OpenRouter and Together, Groq,
/// LM Studio, Mistral, LiteLLM and Anthropic, GitHub, Copilot, Gemini.
const WINDOW_POINTERS: &str = include_str!("model_list/window_pointers.txt");

/// Words in the names of models that answer no prompts: those for embeddings, speech, pictures,
/// videos, moderation and ranking.
const OTHER_PURPOSES: &str = "embedding embeddings embed rerank reranker moderation whisper transcribe tts realtime \
                              dall sora davinci babbage";

/// Parses the response to `GET /models` in all known shapes: a list under `data` or `models`, or a
/// bare list, of objects with an `id`, `name` or `model`, or of names. Models that by their names
/// answer no prompts are left out.
pub(super) fn parse_model_list(body: &[u8]) -> Vec<ListedModel> {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let list = ["data", "models"].iter().find_map(|field| value.get(*field)?.as_array());
    let Some(list) = list.or(value.as_array()) else { return Vec::new() };
    let mut models: Vec<_> = list
        .iter()
        .filter_map(listed_model)
        .filter(|model| is_displayable(&model.name) && answers_prompts(&model.name))
        .collect();
    models.sort_by(|one, other| one.name.cmp(&other.name));
    models.dedup_by(|one, other| one.name == other.name);
    models.truncate(MAX_MODELS);
    models
}

fn listed_model(entry: &Value) -> Option<ListedModel> {
    let named = ["id", "name", "model"].iter().find_map(|field| entry.get(*field)?.as_str());
    // Gemini prefixes the collection, which may be omitted in requests.
    let full_name = named.or(entry.as_str())?.trim();
    let name = full_name.strip_prefix("models/").unwrap_or(full_name).to_owned();
    let sizes = WINDOW_POINTERS.lines().filter_map(|pointer| number(entry.pointer(pointer)?));
    let window = sizes.chain(all_tokens(entry)).chain(ctx_size(entry)).find(|size| *size > 0);
    let server = entry.get("owned_by").and_then(Value::as_str).and_then(LocalServer::from_owner);
    Some(ListedModel { name, window, price: price(entry), takes_files: takes_files(entry), server })
}

/// Returns true if the model takes PDF files, as OpenRouter and LiteLLM say it.
fn takes_files(model: &Value) -> bool {
    let kinds = model.pointer("/architecture/input_modalities").and_then(Value::as_array);
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "file"))
        || model.pointer("/model_info/supports_pdf_input") == Some(&Value::Bool(true))
}

/// The window from LiteLLM's older field, if it has no newer one. Elsewhere the field limits the answer.
fn all_tokens(model: &Value) -> Option<u64> {
    let facts = model.get("model_info").unwrap_or(model);
    let limits = ["max_input_tokens", "max_output_tokens"];
    let is_window = limits.iter().all(|field| facts.get(*field).is_some_and(Value::is_null));
    number(facts.get("max_tokens")?).filter(|_| is_window)
}

/// The window with which llama.cpp, as a router, starts a model that is not loaded yet.
fn ctx_size(model: &Value) -> Option<u64> {
    let mut arguments = model.pointer("/status/args")?.as_array()?.iter();
    arguments.find(|argument| **argument == "--ctx-size")?;
    number(arguments.next()?)
}

/// The price as OpenRouter and LiteLLM report it: US dollars for one token, as text or as a number. Chutes
/// lists the price of a million tokens in the same place.
fn price(model: &Value) -> Option<Price> {
    let input = price_of_million(model, "prompt", "input_cost_per_token")?;
    let output = price_of_million(model, "completion", "output_cost_per_token")?;
    let cached = price_of_million(model, "input_cache_read", "cache_read_input_token_cost");
    Some(Price { input, output, cached: cached.unwrap_or(input) })
}

/// The price of a million tokens, from the first field that exists: OpenRouter's in its table of prices, or LiteLLM's.
fn price_of_million(model: &Value, priced: &str, cost: &str) -> Option<f64> {
    let listed = model.get("pricing").and_then(|prices| prices.get(priced)).or(model.get(cost));
    let value = listed.or_else(|| model.get("model_info")?.get(cost))?;
    let each = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    let dollars = if each < MIN_MILLION_PRICE { each * 1e6 } else { each };
    (0.0..1e4).contains(&dollars).then_some(dollars)
}

fn answers_prompts(name: &str) -> bool {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    !words.any(|word| OTHER_PURPOSES.split(' ').any(|other| word.eq_ignore_ascii_case(other)))
}

/// True if the name is neither empty, nor too long, nor contains hidden characters, nor is one of LiteLLM's patterns.
fn is_displayable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.contains(|c: char| c == '*' || c.is_control() || is_hidden_char(c))
}

/// Up to five of `names` that `wanted` may have meant, the closest first.
pub fn closest_names<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    if wanted.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let base = plain_base_name(wanted);
    let scores = names.iter().map(|name| {
        let other = plain_base_name(name);
        let within = other.contains(&base) || base.contains(&other);
        // A part of the name counts as much as a typing error.
        let bonus = if within && !base.is_empty() { 0.3 } else { 0.0 };
        (strsim::jaro_winkler(&base, &other) + bonus, name.as_str())
    });
    let mut scored: Vec<_> = scores.filter(|(score, _)| *score > 0.75).collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    scored.into_iter().take(5).map(|(_, name)| name).collect()
}

/// The part of a name after its last slash, in lower case and without separators.
fn plain_base_name(name: &str) -> String {
    let base = name.rsplit('/').next().unwrap_or(name);
    base.to_ascii_lowercase().replace(['-', '_', '.', ':', ' '], "")
}

/// The context window of a model in tokens, by its name. A provider prefix such as `openai/` is
/// ignored.
pub fn known_context_window(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase().replace('.', "-");
    WINDOWS.lines().find_map(|row| {
        let (prefix, window) = row.split_once(' ')?;
        let rest = name.strip_prefix(prefix)?;
        // The 2 of a date, as in `glm-5-20260211`, is no version.
        let is_cut = !prefix.ends_with('-') && rest.starts_with(|c: char| c.is_ascii_digit());
        window.parse::<u64>().ok().filter(|_| !is_cut)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn model_names_are_found_in_each_shape() {
        for body in [
            r#"{"object":"list","data":[{"id":"b"},{"id":"a","object":"model"}]}"#,
            r#"{"models":[{"name":"models/a"},{"name":"b","model":"x"}]}"#,
            r#"[{"id":"a"},{"id":"b"},{"id":"b"},{}]"#,
            r#"{"data":["a","b"," ",null]}"#,
        ] {
            let names: Vec<_> =
                parse_model_list(body.as_bytes()).into_iter().map(|model| model.name).collect();
            assert_eq!(names, ["a", "b"], "{body}");
        }
        assert!(parse_model_list(b"<html>").is_empty());
        assert!(parse_model_list(b"{}").is_empty());
    }

    #[test]
    fn names_that_do_not_show_what_they_are_are_left_out() {
        let body = json!([
            "good",
            "a\u{1b}[31m",
            "a\nb",
            "a\u{202e}b",
            "a\u{200b}",
            "a\u{e0041}",
            "*",
            "openai/*"
        ]);
        let models = parse_model_list(body.to_string().as_bytes());
        let names: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["good"]);
    }

    #[test]
    fn models_for_other_purposes_are_left_out() {
        let body = r#"["gpt-5", "text-embedding-3-small", "nomic-embed-text:latest", "tts-1-hd",
            "whisper-1", "dall-e-3", "gpt-4o-mini-transcribe", "omni-moderation-latest",
            "embedder-chat", "gemini-2.5-flash-image"]"#;
        let models = parse_model_list(body.as_bytes());
        let names: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["embedder-chat", "gemini-2.5-flash-image", "gpt-5"]);
    }

    #[test]
    fn context_windows_are_parsed() {
        for (model, expected) in [
            (r#"{"id":"a","meta":{"n_ctx":2048,"n_ctx_train":32768}}"#, Some(2048)),
            (
                r#"{"id":"a","status":{"value":"unloaded","args":["llama-server","--ctx-size","65536","-m","x"]}}"#,
                Some(65_536),
            ),
            (
                r#"{"id":"a","status":{"value":"loaded","args":["--ctx-size","0"]},"meta":{"n_ctx":4096}}"#,
                Some(4_096),
            ),
            (r#"{"id":"a","status":{"args":["--ctx-size"]}}"#, None),
            (r#"{"id":"a","max_model_len":32768}"#, Some(32768)),
            (r#"{"id":"a","context_length":131072}"#, Some(131_072)),
            (r#"{"id":"a","context_window":0}"#, None),
            (r#"{"id":"a","max_input_tokens":50000,"max_output_tokens":4096}"#, Some(50_000)),
            (r#"{"id":"a","max_input_tokens":"50000"}"#, Some(50_000)),
            (r#"{"id":"a","max_input_tokens":200000,"max_tokens":64000}"#, Some(200_000)),
            (
                r#"{"id":"a","model_info":{"max_input_tokens":50000,"max_tokens":4096}}"#,
                Some(50_000),
            ),
            (
                r#"{"id":"a","model_info":{"max_input_tokens":null,"max_output_tokens":null,"max_tokens":50000}}"#,
                Some(50_000),
            ),
            (
                r#"{"id":"a","max_tokens":4096,"max_output_tokens":4096,"max_input_tokens":null}"#,
                None,
            ),
            (r#"{"id":"a","max_tokens":4096}"#, None),
            (r#"{"id":"a","max_context_length":131072,"loaded_context_length":4096}"#, Some(4_096)),
            (r#"{"id":"a","context_window":128000,"max_tokens":4096}"#, Some(128_000)),
            (r#"{"id":"a","limits":{"max_input_tokens":8000}}"#, Some(8_000)),
            (
                r#"{"id":"a","capabilities":{"limits":{"max_context_window_tokens":64000}}}"#,
                Some(64_000),
            ),
            (r#"{"id":"a"}"#, None),
        ] {
            let body = format!("{{\"data\":[{model}]}}");
            assert_eq!(parse_model_list(body.as_bytes())[0].window, expected, "{model}");
        }
    }

    #[test]
    fn prices_are_those_of_a_million_tokens() {
        let body = r#"{"data":[{"id":"a","pricing":{"prompt":"0.000003","completion":"0.000015",
            "input_cache_read":"0.0000003"}},{"id":"b","pricing":{"prompt":"-1","completion":"-1"}},
            {"id":"c","pricing":{"prompt":0.000001,"completion":0.000002}},{"id":"d"},
            {"id":"e","model_info":{"input_cost_per_token":0.000003,"output_cost_per_token":0.000015,
            "cache_read_input_token_cost":null}},{"id":"f","pricing":{"prompt":0.27,"completion":1.1}},
            {"id":"g","pricing":{"prompt":0.00015,"completion":0.0006}}]}"#;
        let prices: Vec<_> = parse_model_list(body.as_bytes())
            .into_iter()
            .map(|model| {
                let Price { input, cached, output } = model.price?;
                Some([input, cached, output].map(|dollars| (dollars * 1e3).round() / 1e3))
            })
            .collect();
        let litellm = Some([3.0, 3.0, 15.0]);
        let chutes = Some([0.27, 0.27, 1.1]);
        let dearest = Some([150.0, 150.0, 600.0]);
        let (openrouter, numbers) = prices.split_at(2);
        assert_eq!(openrouter, [Some([3.0, 0.3, 15.0]), None]);
        assert_eq!(numbers, [Some([1.0, 1.0, 2.0]), None, litellm, chutes, dearest]);
    }

    #[test]
    fn models_that_take_files_are_found() {
        let body = r#"[{"id":"a","architecture":{"input_modalities":["text","file"]}},
            {"id":"b","architecture":{"input_modalities":["text","image"]}},
            {"id":"c","model_info":{"supports_pdf_input":true}},
            {"id":"d","model_info":{"supports_pdf_input":null}},{"id":"e"}]"#;
        let models = parse_model_list(body.as_bytes());
        let takers: Vec<_> = models.iter().filter(|model| model.takes_files).collect();
        assert_eq!(takers.iter().map(|model| &*model.name).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn the_closest_name_comes_first() {
        let names: Vec<_> = ["gpt-4o", "gpt-4o-mini", "gpt-5-mini", "o3", "text-embedding-3"]
            .map(str::to_owned)
            .into();
        assert_eq!(closest_names("gpt5mini", &names)[0], "gpt-5-mini");
        assert_eq!(closest_names("openai/gpt-4-o", &names)[0], "gpt-4o");
        assert!(closest_names("zzz", &names).is_empty());
        assert!(closest_names("x", &[]).is_empty());
    }

    #[test]
    fn a_provider_prefix_does_not_matter_and_an_unknown_model_has_no_window() {
        assert_eq!(known_context_window("gpt-4o-mini"), Some(128_000));
        assert_eq!(known_context_window("openai/gpt-4o"), Some(128_000));
        assert_eq!(known_context_window("deepseek-v4-flash"), Some(1_000_000));
        assert_eq!(known_context_window("deepseek-chat"), Some(131_072));
        assert_eq!(known_context_window("my-own-model"), None);
    }

    #[test]
    fn the_newest_models_have_the_windows_that_they_accept() {
        for (model, window) in [
            ("gpt-4.1-mini", 1_047_576),
            ("gpt-4-turbo", 128_000),
            // Of 400 000 tokens, 128 000 are kept for the answer.
            ("openai/gpt-5.2-codex", 272_000),
            ("gpt-5", 272_000),
            ("gpt-6-astra", 272_000),
            ("anthropic/claude-opus-4.6", 1_000_000),
            ("claude-opus-4-8", 1_000_000),
            ("claude-sonnet-5", 1_000_000),
            ("claude-mythos-5", 1_000_000),
            ("claude-opus-4-5", 200_000),
            ("claude-haiku-4.5", 200_000),
            ("zai-org/GLM-4.5", 131_072),
            ("glm-4.6v", 131_072),
            ("glm-4.7", 200_000),
            ("zai-org/GLM-5.1", 200_000),
            ("z-ai/glm-5-20260211", 200_000),
            ("glm-5.3", 1_000_000),
            ("MiniMax-M2.5", 204_800),
            ("MiniMax-M3", 500_000),
            ("moonshotai/Kimi-K3", 1_048_576),
            ("grok-4.3", 1_000_000),
            ("grok-4.5", 500_000),
            ("grok-4-0709", 256_000),
        ] {
            assert_eq!(known_context_window(model), Some(window), "{model}");
        }
        assert_eq!(known_context_window("gpt-4-1106-preview"), None);
        for row in WINDOWS.lines() {
            assert!(row.split_once(' ').is_some_and(|(_, window)| window.parse::<u64>().is_ok()));
        }
    }
}
