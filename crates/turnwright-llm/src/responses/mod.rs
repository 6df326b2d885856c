//! The Responses API, OpenAI's second protocol, as OpenAI, Azure and others speak it. Nothing is
//! stored at the server: each request carries the whole conversation.

mod assemble;
mod calls;
mod items;
mod request;
mod wire;

#[cfg(test)]
mod tests;

use super::{chat, transcript};

pub(super) use assemble::Assembler;
pub(super) use request::{render, render_tools};

/// As [`chat::transcribe`], in this protocol.
#[doc(hidden)]
pub fn transcribe<'a>(
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    transcript::transcribe(Assembler::new(chat::recorded(model, tools)), pieces)
}
