//! Tests of chat completions that a recorded stream cannot express. Each quirk of a server's stream
//! is a file in `tests/data/sse`.

mod quirky_requests;
mod properties;
mod requests;

use super::assembler::ChatAssembler;
use crate::exchange::ReplyContext;
use crate::{DeltaBatch, LlmError, Reply, transcript};

fn receive<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (DeltaBatch, Result<Reply, LlmError>) {
    let assembler =
        ChatAssembler::new(ReplyContext { host: "host".to_owned(), ..ReplyContext::default() });
    transcript::read_reply(assembler, pieces)
}
