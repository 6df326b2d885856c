//! The chat completions protocol, as spoken by OpenAI and compatible servers.

pub(super) mod arguments;
mod assembler;
mod reasoning_details;
mod repeated_arguments;
mod messages;
mod request;
pub(super) mod text_pipeline;
pub(super) mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::exchange::{RenderedTools, ReplyContext};
use super::quirks::Quirks;
use super::transcript;
use turnwright_types::message::ToolSpec;

pub(super) use assembler::{ChatAssembler, parse_usage};
pub(super) use request::{render, render_tool};

/// Reads a recorded reply of a model that was offered these tools and describes it: for the corpus
/// of recorded streams, the fuzz targets and bug reports.
#[doc(hidden)]
pub fn transcribe<'a>(
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    transcript::transcribe(ChatAssembler::new(recorded_context(model, tools)), pieces)
}

/// The context in which a recorded reply is read.
pub(super) fn recorded_context(model: &str, tools: &[String]) -> ReplyContext {
    let declared = tools.iter().map(|name| {
        Arc::new(ToolSpec {
            name: name.clone().into(),
            description: String::new(),
            parameters: Value::Object(Map::new()),
        })
    });
    let specs = Arc::new(declared.collect::<Vec<_>>());
    let tools = (!specs.is_empty()).then(|| Arc::new(RenderedTools::new(&specs, render_tool)));
    ReplyContext {
        host: "host".to_owned(),
        origin: "host/m".into(),
        quirks: Quirks::lookup("", model),
        tools,
        ..ReplyContext::default()
    }
}
