//! Chat completions, as OpenAI's API and its many relatives speak them.

pub(super) mod arguments;
mod assemble;
mod details;
mod entries;
mod request;
mod speech;
pub(super) mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::manner::{Speaker, Tools};
use super::quirks::Quirks;
use super::transcript;
use turnwright_types::message::ToolSpec;

pub(super) use assemble::{Assembler, read_usage};
pub(super) use request::{render, render_tools};

/// Reads a recorded answer of a model that was offered these tools, and says what it means: for
/// the wire corpus, the fuzzers and bug reports.
#[doc(hidden)]
pub fn transcribe<'a>(
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    transcript::transcribe(Assembler::new(recorded(model, tools)), pieces)
}

/// Who has answered in a recording.
pub(super) fn recorded(model: &str, tools: &[String]) -> Speaker {
    let spec = |name: &String| {
        Arc::new(ToolSpec {
            name: name.clone().into(),
            description: String::new(),
            parameters: Value::Object(Map::new()),
        })
    };
    let specs = Arc::new(tools.iter().map(spec).collect::<Vec<_>>());
    let tools = (!specs.is_empty()).then(|| Arc::new(Tools::new(&specs, render_tools)));
    let (host, origin) = ("host".to_owned(), "host/m".into());
    Speaker { host, origin, quirks: Quirks::of("", model), tools, ..Speaker::default() }
}
