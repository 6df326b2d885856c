//! The cost of an answer, as servers report it. Does no I/O.

use reqwest::header::HeaderMap;
use serde_json::Value;

/// No single answer costs this many US dollars. A larger number is in another unit.
const MAX_DOLLARS: f64 = 10_000.0;
/// xAI's unit in US dollars.
const XAI_TICK: f64 = 1e-10;

/// The fields of the token counts that hold US dollars: OpenRouter, LiteLLM, Vercel and Perplexity have
/// the first, DeepInfra the last.
const FIELDS: [&str; 5] = ["cost", "total_cost", "cost_in_usd", "cost_usd", "estimated_cost"];

/// The cost next to the token counts, in US dollars.
pub(crate) fn in_usage(usage: &Value) -> Option<f64> {
    let named = FIELDS.iter().find_map(|field| amount(usage.get(*field)?));
    let cost = match named {
        Some(cost) => cost,
        None => plausible(number(usage.get("cost_in_usd_ticks")?)? * XAI_TICK)?,
    };
    // If the user has a key for the provider behind OpenRouter, OpenRouter's own share is only a small part.
    let is_own_key = usage.get("is_byok") != Some(&Value::Bool(false));
    let upstream = usage.pointer("/cost_details/upstream_inference_cost").filter(|_| is_own_key);
    plausible(cost + upstream.and_then(amount).unwrap_or_default())
}

/// The cost next to the choices, as OpenCode and Vercel write it.
pub(crate) fn beside_usage(cost: Option<&Value>, metadata: Option<&Value>) -> Option<f64> {
    cost.and_then(amount).or_else(|| amount(metadata?.pointer("/gateway/cost")?))
}

/// The cost in LiteLLM's header. It is 0 while the answer is still being written.
pub(crate) fn in_headers(headers: &HeaderMap) -> Option<f64> {
    let text = headers.get("x-litellm-response-cost")?.to_str().ok()?;
    text.trim().parse().ok().and_then(plausible).filter(|cost| *cost > 0.0)
}

/// Parses an amount: a number, text, or the total of an object, as Perplexity sends it.
fn amount(value: &Value) -> Option<f64> {
    let total = value.get("total_cost").unwrap_or(value);
    number(total).and_then(plausible)
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().trim_start_matches('$').parse().ok())
}

fn plausible(dollars: f64) -> Option<f64> {
    (0.0..=MAX_DOLLARS).contains(&dollars).then_some(dollars)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_cost_is_found_wherever_servers_put_it() {
        let table = [
            ("OpenRouter", json!({ "cost": 0.25 }), Some(0.25)),
            ("text", json!({ "cost": "0.25" }), Some(0.25)),
            ("text with its unit", json!({ "cost": " $0.25" }), Some(0.25)),
            ("free", json!({ "cost": 0 }), Some(0.0)),
            (
                "Perplexity",
                json!({ "cost": { "input_tokens_cost": 0.1, "total_cost": 0.25 } }),
                Some(0.25),
            ),
            ("xAI", json!({ "cost_in_usd_ticks": 2_500_000_000_u64 }), Some(0.25)),
            ("DeepInfra", json!({ "estimated_cost": 0.25 }), Some(0.25)),
            ("another name", json!({ "cost": null, "cost_in_usd": 0.25 }), Some(0.25)),
            (
                "the user's own key behind OpenRouter",
                json!({ "cost": 0.25, "is_byok": true, "cost_details": { "upstream_inference_cost": 5 } }),
                Some(5.25),
            ),
            (
                "no own key",
                json!({ "cost": 0.25, "is_byok": false, "cost_details": { "upstream_inference_cost": 0.25 } }),
                Some(0.25),
            ),
            ("none", json!({ "prompt_tokens": 7 }), None),
            ("no number", json!({ "cost": "much" }), None),
            ("negative", json!({ "cost": -0.1 }), None),
            ("not a number", json!({ "cost": "NaN" }), None),
            ("infinite", json!({ "cost": "1e999" }), None),
            ("absurd", json!({ "cost": 2_500_000 }), None),
        ];
        for (name, usage, expected) in table {
            assert_eq!(in_usage(&usage), expected, "{name}");
        }
    }

    #[test]
    fn the_cost_may_stand_beside_the_counts_or_in_a_header() {
        let vercel = json!({ "gateway": { "cost": "0.25" } });
        assert_eq!(beside_usage(None, Some(&vercel)), Some(0.25));
        assert_eq!(beside_usage(Some(&json!("0.5")), None), Some(0.5));
        assert_eq!(beside_usage(None, None), None);
        for (value, expected) in
            [("0.25", Some(0.25)), ("0.0", None), ("None", None), ("-1", None), ("NaN", None)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("x-litellm-response-cost", value.parse().unwrap());
            assert_eq!(in_headers(&headers), expected, "{value}");
        }
    }
}
