//! What both protocols need to render a request and to read its reply.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};

use super::error_body;
use super::http::Secrets;
use super::leaked_calls::{self, LeakedCall};
use super::quirks::Quirks;
use super::tool_aliases::ToolAliases;
use super::{ErrorKind, LlmError, refused_key};
use turnwright_types::message::{ToolSpec, ToolSpecs};

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

/// The tools as they are sent. Rendered once for all requests with the same tools.
#[derive(Debug)]
pub(super) struct RenderedTools {
    pub(super) specs: ToolSpecs,
    pub(super) aliases: ToolAliases,
    pub(super) json: Vec<u8>,
}

/// Renders tools for one protocol.
pub(super) type ToolRenderer = fn(&[Arc<ToolSpec>], &ToolAliases) -> Vec<u8>;

impl RenderedTools {
    pub(super) fn new(specs: &ToolSpecs, render: ToolRenderer) -> RenderedTools {
        let aliases = ToolAliases::new(specs.iter().map(|it| it.name.as_ref()));
        let json = render(specs, &aliases);
        RenderedTools { specs: Arc::clone(specs), aliases, json }
    }

    /// Finds leaked calls at the end of a text.
    pub(super) fn find_leaked(&self, text: &str) -> Option<(usize, Vec<LeakedCall>)> {
        let names = self.wire_names();
        let schemas = self.specs.iter().map(|it| &it.parameters);
        let declared: Vec<_> = names.iter().map(String::as_str).zip(schemas).collect();
        leaked_calls::find_leaked_calls(text, &declared)
    }

    /// The tools' names as they are sent to the model.
    pub(super) fn wire_names(&self) -> Vec<String> {
        self.specs.iter().map(|it| self.aliases.to_wire(&it.name).into_owned()).collect()
    }
}

/// What is needed to read a reply.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyContext {
    pub(super) host: String,
    pub(super) secrets: Secrets,
    /// What to do if the key is refused.
    pub(super) key_advice: Option<String>,
    /// The origin that the reply is marked with.
    pub(super) origin: Arc<str>,
    pub(super) quirks: Quirks,
    /// The tools offered to the model; `None` if there were none.
    pub(super) tools: Option<Arc<RenderedTools>>,
    /// True once the server has sent a finish reason (chat completions).
    pub(super) sends_finish_reasons: Arc<AtomicBool>,
}

impl ReplyContext {
    /// The error that the server reports in the stream.
    pub(super) fn stream_error(&self, body: &str) -> LlmError {
        let body = self.secrets.redact(body);
        let mut error = error_body::stream_error(&self.host, &body);
        // In JSON the key may have been escaped, as in `\/`, so it is redacted again.
        if let LlmError::InStream { message, status, kind, key_advice, .. } = &mut error {
            *message = self.secrets.redact(message);
            // Our own key was accepted.
            let is_upstream = *kind == ErrorKind::Auth && matches!(status, Some(500..));
            let upstream_advice = format!("Check the key that {} has for its provider", self.host);
            let advice = if is_upstream {
                Some(upstream_advice)
            } else {
                refused_key::upstream_advice(&self.host, &body).or_else(|| self.key_advice.clone())
            };
            *key_advice = advice.map(Box::new);
        }
        error
    }

    pub(super) fn truncated_error(&self) -> LlmError {
        LlmError::Truncated { host: self.host.clone() }
    }

    /// The declared name of the tool that the model calls by `name`.
    pub(super) fn tool_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.tools.as_ref().map_or(name, |it| it.aliases.from_wire(name))
    }
}
