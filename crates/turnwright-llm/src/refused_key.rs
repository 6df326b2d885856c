//! Finds out whose key a server refuses. A gateway relays its provider's complaint about the gateway's own
//! key, while the user's key for the gateway is fine. Does no I/O.

use serde_json::Value;

/// The advice for a gateway that reports a failure of its own because it got no key.
pub(super) const NO_KEY_ADVICE: &str = "No key is sent, and gateways such as LiteLLM answer so without one: \
                                        run `turnwright login`, or set the key. If it needs none, look \
                                        into the log of the server";

/// The bodies of servers that report a failure without details.
const BARE_FAILURES: [&str; 2] = ["", "Internal Server Error"];

/// The beginnings of a provider's message in LiteLLM, and in gateways that use OpenAI's library for Python.
const RELAYED: [&str; 2] = ["litellm.AuthenticationError", "Error code: 401 - "];

/// Returns true if the body says only that the server has failed.
pub(super) fn is_bare_failure(body: &str) -> bool {
    BARE_FAILURES.contains(&body.trim())
}

/// Returns the advice about a refused key that is not the user's own.
pub(super) fn upstream_advice(host: &str, body: &str) -> Option<String> {
    // The server repeats the user's key, so it was called with that key.
    if body.contains("[key]") {
        return None;
    }
    let value = serde_json::from_str::<Value>(body.trim()).unwrap_or_default();
    let is_relayed = RELAYED.iter().any(|words| body.contains(words))
        || value.pointer("/error/metadata/provider_name").is_some_and(Value::is_string);
    if is_relayed {
        return Some(format!("Check the key that {host} has for its provider"));
    }
    let named = body.split("https://").skip(1).find_map(named_domain)?;
    (!host.split(':').next().unwrap_or_default().ends_with(domain(named))).then(|| {
        format!("Check the key that {host} has for its provider ({named}), or yours if {host} passes it on")
    })
}

/// The host at the start of a text, if keys are made there.
fn named_domain(text: &str) -> Option<&str> {
    let address = text.split([' ', '"', '\\', ')']).next()?;
    let name = address.split('/').next()?.trim_end_matches('.');
    address.contains("key").then_some(name).filter(|name| name.contains('.'))
}

/// The last two labels of a name.
fn domain(name: &str) -> &str {
    let start = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_a_gateway_is_said_to_be_its_own() {
        let openai = r#"{"error":{"message":"Incorrect API key provided: sk-1***9. You can find your API key at https://platform.openai.com/account/api-keys.","code":"invalid_api_key"}}"#;
        let litellm = r#"{"error":{"message":"litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: sk-1***9.","code":"401"}}"#;
        let openrouter = r#"{"error":{"message":"Provider returned error","code":401,"metadata":{"provider_name":"OpenAI"}}}"#;
        let own = r#"{"error":{"message":"Authentication Error, Invalid proxy server token passed","code":"401"}}"#;
        let echoed = r#"{"error":{"message":"litellm.AuthenticationError: [key] is wrong"}}"#;
        for (host, body, expected) in [
            ("api.openai.com", openai, None),
            ("gateway.example:4000", openai, Some("(platform.openai.com), or yours if")),
            ("gateway.example", litellm, Some("gateway.example has for its provider")),
            ("openrouter.ai", openrouter, Some("openrouter.ai has for its provider")),
            ("gateway.example", own, None),
            ("gateway.example", echoed, None),
            ("gateway.example", "no", None),
        ] {
            let advice = upstream_advice(host, body);
            assert_eq!(advice.is_some(), expected.is_some(), "{host}: {body}");
            assert!(advice.unwrap_or_default().contains(expected.unwrap_or_default()), "{body}");
        }
    }
}
