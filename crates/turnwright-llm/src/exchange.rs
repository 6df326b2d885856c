//! The two protocols, and the parts that both share to render a request and to read its reply, with the cost that
//! servers report of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use reqwest::header::HeaderMap;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::quirks::Quirks;
use super::{ErrorKind, LlmError, Request};
use crate::errors::error_body::{self, ErrorReport};
use crate::errors::refusals;
use crate::reply::leaked_calls::DeclaredTool;
use crate::wire_names::ToolAliases;
use turnwright_types::message::{Arguments, ToolSpec, ToolSpecs};
use turnwright_types::secret::Secret;
use turnwright_types::text;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Chat completions, which nearly all servers support.
    #[default]
    Chat,
    /// OpenAI's Responses API.
    Responses,
}

impl Protocol {
    /// Parses the value of a setting.
    pub fn parse(word: &str) -> Option<Protocol> {
        match word {
            "chat" => Some(Protocol::Chat),
            "responses" => Some(Protocol::Responses),
            _ => None,
        }
    }

    /// The path of its requests.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Protocol::Chat => "/chat/completions",
            Protocol::Responses => "/responses",
        }
    }
}

/// The limit on everything that is kept of one reply.
const MAX_REPLY_BYTES: usize = 32 * 1024 * 1024;
/// The most characters that are kept of the name by which a server calls a model.
const MAX_SERVED_NAME: usize = 120;
/// The name of each PDF file: servers want one, and the text before the file has its own.
pub(super) const PDF_NAME: &str = "document.pdf";

/// How a request is rendered for one model at one server.
#[derive(Debug)]
pub(super) struct RequestStyle<'a> {
    /// The model's name at the server.
    pub(super) model: &'a str,
    /// The origin that replies of this model are marked with.
    pub(super) origin: &'a str,
    pub(super) quirks: &'a Quirks,
    pub(super) aliases: &'a ToolAliases,
    /// The rendered tools; empty if there are none.
    pub(super) tools: &'a [u8],
    /// The limit of the reply in tokens.
    pub(super) max_output: Option<u64>,
    /// The user's own request fields.
    pub(super) extra_body: &'a Map<String, Value>,
}

impl RequestStyle<'_> {
    /// Ends the list of messages of a body, and writes the tools and whether the reply is streamed.
    pub(super) fn write_tools(&self, body: &mut Vec<u8>) {
        body.push(b']');
        if !self.tools.is_empty() {
            body.extend_from_slice(b",\"tools\":");
            body.extend_from_slice(self.tools);
        }
        body.extend_from_slice(b",\"stream\":");
        write_json(body, &self.quirks.stream);
    }

    /// The field by which OpenRouter passes a PDF file to the model, and to no third party that would read it.
    pub(super) fn file_parser(&self, request: &Request) -> Option<(String, Value)> {
        let is_needed =
            self.quirks.files && self.origin.starts_with("openrouter.ai/") && request.media().files;
        is_needed.then(|| {
            let parser = json!({ "id": "file-parser", "pdf": { "engine": "native" } });
            ("plugins".to_owned(), json!([parser]))
        })
    }

    /// Writes the last fields of a body and ends it. The user's own fields override all others.
    pub(super) fn write_fields(&self, body: &mut Vec<u8>, mut fields: Map<String, Value>) {
        fields.extend(self.extra_body.iter().map(|(name, value)| (name.clone(), value.clone())));
        for (name, value) in &fields {
            body.push(b',');
            write_json(body, name);
            body.push(b':');
            write_json(body, value);
        }
        body.push(b'}');
    }
}

pub(super) fn write_json(json: &mut Vec<u8>, value: &impl Serialize) {
    if let Err(error) = serde_json::to_writer(json, value) {
        // Serialising strings, numbers and maps with string keys cannot fail. If it did, the server
        // would refuse the request.
        tracing::error!(%error, "a value could not be serialised; the request is malformed");
    }
}

/// The arguments of an earlier call as JSON. Servers accept nothing but an object.
pub(super) fn arguments_json(arguments: &Arguments) -> String {
    match arguments {
        Arguments::Object(value) if value.is_object() => value.to_string(),
        Arguments::Object(_) | Arguments::Unusable { .. } => "{}".to_owned(),
    }
}

/// The tools as they are sent. Rendered once for all requests with the same tools.
#[derive(Debug)]
pub(super) struct RenderedTools {
    pub(super) specs: ToolSpecs,
    pub(super) aliases: ToolAliases,
    /// The tools' names as they are sent to the model.
    pub(super) wire_names: Vec<String>,
    pub(super) json: Vec<u8>,
}

impl RenderedTools {
    /// Renders the tools in their order, so that tools added later leave the preceding bytes unchanged.
    /// `render` renders one for the protocol.
    pub(super) fn new<T: Serialize>(
        specs: &ToolSpecs,
        render: fn(&ToolSpec, &ToolAliases) -> T,
    ) -> RenderedTools {
        let aliases = ToolAliases::new(specs.iter().map(|spec| spec.name.as_ref()));
        let wire_names =
            specs.iter().map(|spec| aliases.to_wire(&spec.name).into_owned()).collect();
        let mut json = Vec::new();
        if !specs.is_empty() {
            json.reserve(8 * 1024);
            write_json(
                &mut json,
                &specs.iter().map(|spec| render(spec, &aliases)).collect::<Vec<_>>(),
            );
        }
        RenderedTools { specs: Arc::clone(specs), aliases, wire_names, json }
    }

    /// The tools as the model knows them.
    pub(super) fn declared(&self) -> Vec<DeclaredTool<'_>> {
        let schemas = self.specs.iter().map(|spec| &spec.parameters);
        self.wire_names.iter().map(String::as_str).zip(schemas).collect()
    }
}

/// Values that must never be shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets(pub(super) Vec<Secret>);

impl Secrets {
    /// Replaces the secrets in a text: some servers repeat the key that they reject.
    pub(super) fn redact(&self, text: &str) -> String {
        let keys = self.0.iter().map(Secret::expose).filter(|key| key.len() >= 4);
        keys.fold(text.to_owned(), |text, key| text.replace(key, "[key]"))
    }
}

/// The context for reading a reply.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyContext {
    pub(super) host: String,
    pub(super) secrets: Secrets,
    /// Advice for a refused key.
    pub(super) key_advice: Option<String>,
    /// The origin that the reply is marked with.
    pub(super) origin: Arc<str>,
    pub(super) quirks: Quirks,
    /// The most tokens of the reply, if there is a limit.
    pub(super) max_output: Option<u64>,
    /// The size of the window in tokens, if it is known.
    pub(super) window: Option<u64>,
    /// The tools offered to the model; `None` if there were none.
    pub(super) tools: Option<Arc<RenderedTools>>,
    /// True once the server has sent a finish reason (chat completions).
    pub(super) sends_finish_reasons: Arc<AtomicBool>,
}

impl ReplyContext {
    /// The error that the server reports in the stream.
    pub(super) fn stream_error(&self, body: &str) -> LlmError {
        let host = self.host.clone();
        let body = self.secrets.redact(body);
        let ErrorReport { message, status, kind, retry_after, .. } =
            error_body::parse(&body, None, None, SystemTime::now());
        // Our own key was accepted.
        let is_upstream = kind == ErrorKind::Auth && matches!(status, Some(500..));
        let key_advice = if is_upstream {
            Some(format!("Check the key that {host} has for its provider"))
        } else {
            refusals::upstream_advice(&host, &body).or_else(|| self.key_advice.clone())
        };
        LlmError::InStream {
            host,
            // In JSON the key may have been escaped, as in `\/`, so it is redacted again.
            message: self.secrets.redact(&message),
            status,
            retry_after,
            kind,
            key_advice: key_advice.map(Box::new),
        }
    }

    /// The name of the model, as the server gives it, bounded and without secrets.
    pub(super) fn served_model(&self, name: &str) -> String {
        text::cut(self.secrets.redact(name), MAX_SERVED_NAME)
    }

    pub(super) fn truncated_error(&self) -> LlmError {
        LlmError::Truncated { host: self.host.clone() }
    }

    /// The error for a response that is not a reply.
    pub(super) fn malformed_error(&self, what: &str) -> LlmError {
        LlmError::Malformed { host: self.host.clone(), what: what.to_owned() }
    }

    /// The error for data that could not be parsed; `what` names the expected data.
    pub(super) fn event_error(
        &self,
        error: &serde_json::Error,
        data: &str,
        what: &str,
    ) -> LlmError {
        if error.is_eof() {
            return self.truncated_error();
        }
        let line = error_body::shorten(&self.secrets.redact(data));
        let start = text::first_chars(&line, 80);
        self.malformed_error(&format!("the stream contains an invalid {what}: {start}"))
    }

    /// The error for a body that could not be parsed; `what` names the expected data.
    pub(super) fn document_error(&self, error: &serde_json::Error, what: &str) -> LlmError {
        if error.is_eof() {
            return self.truncated_error();
        }
        self.malformed_error(&format!("the body is neither a stream nor a {what}"))
    }

    /// Returns the error for JSON of another kind than expected: the error that the JSON reports, if there is one.
    pub(super) fn other_document_error(&self, json: &str, expected: &str) -> LlmError {
        let value = serde_json::from_str::<Value>(json).unwrap_or_default();
        match error_body::find_message(&value) {
            Some(_) => self.stream_error(json),
            None => self.malformed_error(&format!("the JSON is not a {expected}")),
        }
    }

    /// The error for a reply that the server has ended for this reason, which reports a failure.
    pub(super) fn ended_with_error(&self, reason: &str, kind: ErrorKind) -> LlmError {
        let reason = error_body::shorten(&self.secrets.redact(reason));
        LlmError::InStream {
            host: self.host.clone(),
            message: format!("it ended with `{reason}`"),
            status: (kind == ErrorKind::Unavailable).then_some(503),
            retry_after: None,
            kind,
            key_advice: None,
        }
    }

    /// The error for a reply with neither text nor calls, which has ended for this reason, if one is known.
    pub(super) fn empty_error(&self, has_thought: bool, reason: &str) -> LlmError {
        let content = if has_thought { "reasoning but no answer" } else { "an empty answer" };
        let mut what = content.to_owned();
        if !reason.is_empty() {
            let reason = error_body::shorten(&self.secrets.redact(reason));
            what.push_str(&format!(" (finish_reason: {reason})"));
        }
        LlmError::EmptyReply { host: self.host.clone(), what }
    }

    /// Enforces the limit on the bytes that are kept of a reply.
    pub(super) fn check_kept_bytes(&self, kept: usize) -> Result<(), LlmError> {
        if kept <= MAX_REPLY_BYTES {
            return Ok(());
        }
        Err(self.malformed_error("the answer has more than 32 MiB"))
    }

    /// Returns true if the name of a tool that the model knows begins with this text.
    pub(super) fn begins_tool_name(&self, start: &str) -> bool {
        self.tools.iter().flat_map(|tools| &tools.wire_names).any(|name| name.starts_with(start))
    }

    /// The declared name of the tool that the model calls by `name`.
    pub(super) fn tool_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.tools.as_ref().map_or(name, |tools| tools.aliases.from_wire(name))
    }
}

/// No single answer costs this many US dollars. A larger number is in another unit.
const MAX_DOLLARS: f64 = 10_000.0;
/// xAI's unit in US dollars.
const XAI_TICK: f64 = 1e-10;

/// The fields of the token counts that hold US dollars: OpenRouter, LiteLLM, Vercel and Perplexity have
/// the first, DeepInfra the last.
const FIELDS: [&str; 5] = ["cost", "total_cost", "cost_in_usd", "cost_usd", "estimated_cost"];

/// The cost next to the token counts, in US dollars.
pub(crate) fn cost_in_usage(usage: &Value) -> Option<f64> {
    let named = FIELDS.iter().find_map(|field| amount(usage.get(*field)?));
    let cost = named.or_else(|| plausible(number(usage.get("cost_in_usd_ticks")?)? * XAI_TICK))?;
    // If the user has a key of their own for the provider behind OpenRouter, `cost` is only OpenRouter's small share,
    // and the provider's cost is added. Otherwise `cost` includes it. Gateways may leave out `is_byok`: then the two
    // amounts tell.
    let is_own_key = usage.get("is_byok") != Some(&Value::Bool(false));
    let upstream = usage.pointer("/cost_details/upstream_inference_cost").and_then(amount);
    let apart = upstream.filter(|upstream| is_own_key && *upstream > cost);
    plausible(cost + apart.unwrap_or_default())
}

/// The cost next to the choices, as OpenCode and Vercel write it.
pub(crate) fn cost_beside_usage(cost: Option<&Value>, metadata: Option<&Value>) -> Option<f64> {
    cost.and_then(amount).or_else(|| amount(metadata?.pointer("/gateway/cost")?))
}

/// The cost in LiteLLM's header. It is 0 while the answer is still being written.
pub(crate) fn cost_in_headers(headers: &HeaderMap) -> Option<f64> {
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
            (
                "OpenRouter behind a gateway that leaves out whose key it was",
                json!({ "cost": 0.25, "cost_details": { "upstream_inference_cost": 0.25 } }),
                Some(0.25),
            ),
            (
                "the same for the user's own key",
                json!({ "cost": 0, "cost_details": { "upstream_inference_cost": 5 } }),
                Some(5.0),
            ),
            ("none", json!({ "prompt_tokens": 7 }), None),
            ("no number", json!({ "cost": "much" }), None),
            ("negative", json!({ "cost": -0.1 }), None),
            ("not a number", json!({ "cost": "NaN" }), None),
            ("infinite", json!({ "cost": "1e999" }), None),
            ("absurd", json!({ "cost": 2_500_000 }), None),
        ];
        for (name, usage, expected) in table {
            assert_eq!(cost_in_usage(&usage), expected, "{name}");
        }
    }

    #[test]
    fn the_cost_may_stand_beside_the_counts_or_in_a_header() {
        let vercel = json!({ "gateway": { "cost": "0.25" } });
        assert_eq!(cost_beside_usage(None, Some(&vercel)), Some(0.25));
        assert_eq!(cost_beside_usage(Some(&json!("0.5")), None), Some(0.5));
        assert_eq!(cost_beside_usage(None, None), None);
        for (value, expected) in
            [("0.25", Some(0.25)), ("0.0", None), ("None", None), ("-1", None), ("NaN", None)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("x-litellm-response-cost", value.parse().unwrap());
            assert_eq!(cost_in_headers(&headers), expected, "{value}");
        }
    }
}
