//! Chat completions where a recorded stream cannot show it. Every oddity of a server's stream is a
//! file in `tests/data/sse`.

mod errors;
mod manners;
mod properties;
mod requests;

use std::sync::Arc;

use super::assemble::Assembler;
use crate::llm::http::Secret;
use crate::llm::{Batch, LlmError, Reply, transcript};

fn receive<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Batch, Result<Reply, LlmError>) {
    let assembler = Assembler::new("host".to_owned(), Secret::default(), Arc::default());
    transcript::receive(assembler, pieces)
}
