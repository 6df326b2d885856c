//! Chat completions, as OpenAI's API and its many relatives speak them.

mod arguments;
mod assemble;
mod failure;
mod prefix;
mod request;
mod wire;

#[cfg(test)]
mod tests;

use futures_util::future::BoxFuture;

use super::http::Endpoint;
#[cfg(any(test, fuzzing))]
use super::http::Secret;
#[cfg(any(test, fuzzing))]
use super::reader::Reader;
use super::stream::Stream;
use super::{LlmError, Model, ReplyStream, Request};
use assemble::Assembler;
use prefix::Prefixes;

pub(super) use failure::error_text;

/// A model behind an OpenAI-compatible endpoint.
#[derive(Debug)]
pub struct Chat {
    endpoint: Endpoint,
    model: String,
    window: Option<u64>,
    prefixes: Prefixes,
}

impl Chat {
    /// A model by its name at an endpoint.
    pub fn new(endpoint: Endpoint, model: String, window: Option<u64>) -> Chat {
        Chat { endpoint, model, window, prefixes: Prefixes::default() }
    }
}

impl Model for Chat {
    fn name(&self) -> &str {
        &self.model
    }

    fn window(&self) -> Option<u64> {
        self.window
    }

    fn warm_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Err(error) = self.endpoint.client().await {
                // The first request meets the same trouble and reports it.
                tracing::debug!(%error, "no HTTP client yet");
            }
        })
    }

    fn open<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(async {
            let body = request::render(&self.prefixes, &self.model, request);
            let body = self.endpoint.post("/chat/completions", body).await?;
            let assembler = Assembler::new(self.endpoint.host(), self.endpoint.secret());
            Ok(Box::new(Stream::new(body, assembler)) as Box<dyn ReplyStream>)
        })
    }
}

/// Reads an answer from any bytes in pieces of `size`, for the fuzzer. What comes out does not
/// depend on that.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub fn fuzz_stream(bytes: &[u8], size: usize) -> String {
    let mut reader = Reader::new(Assembler::new("host".to_owned(), Secret::default()));
    let mut batch = super::Batch::default();
    let mut outcome = Ok(None);
    for chunk in bytes.chunks(size.max(1)) {
        outcome = reader.feed(chunk, &mut batch);
        if !matches!(outcome, Ok(None)) {
            break;
        }
    }
    if matches!(outcome, Ok(None)) {
        outcome = reader.end(&mut batch).map(Some);
    }
    format!("{batch:?} {outcome:?}")
}
