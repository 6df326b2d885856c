//! The Responses API, OpenAI's second protocol, as spoken by OpenAI, Azure and others. Nothing is
//! stored at the server: each request carries the whole conversation.

mod assembler;
mod streamed_calls;
mod streamed_items;
mod request;
mod wire;

#[cfg(test)]
mod tests;

use super::{chat, transcript};

pub(super) use assembler::ResponsesAssembler;
pub(super) use request::{render, render_tool};

/// Like [`chat::transcribe`], for this protocol.
#[doc(hidden)]
pub fn transcribe<'a>(
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    transcript::transcribe(ResponsesAssembler::new(chat::recorded_context(model, tools)), pieces)
}
