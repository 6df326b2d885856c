//! Chat completions where a recorded stream cannot show it. Every oddity of a server's stream is a
//! file in `tests/data/sse`.

mod manners;
mod properties;
mod requests;

use super::assemble::Assembler;
use crate::manner::Speaker;
use crate::{Batch, LlmError, Reply, transcript};

fn receive<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Batch, Result<Reply, LlmError>) {
    let assembler = Assembler::new(Speaker { host: "host".to_owned(), ..Speaker::default() });
    transcript::receive(assembler, pieces)
}
