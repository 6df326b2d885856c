//! Observes the exchanges with models' servers, or answers in their place, below all handling of a server's
//! differences.

use std::fmt::Debug;
use std::io;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use reqwest::Response;

use turnwright_http::ConnectionFault;

/// Decides how the requests to an endpoint are handled.
pub trait Traffic: Debug + Send + Sync {
    /// A request is about to be sent. `body` renders its body, which costs a copy of the conversation.
    fn begin(&self, path: &str, body: &dyn Fn() -> Vec<u8>) -> Exchange;
}

/// The handling of one request.
pub enum Exchange {
    /// It is sent without an observer.
    Live,
    /// It is sent, and the observer sees the answer.
    Observed(Box<dyn ExchangeObserver>),
    /// It is not sent; this is the answer.
    Played(BoxFuture<'static, Result<PlayedResponse, ConnectionFault>>),
}

/// Observes the answer to one request. Dropped when no more of the answer is read.
pub trait ExchangeObserver: Debug + Send {
    /// The head of the response has arrived. Headers that are not text are left out.
    fn on_head(&mut self, status: u16, headers: &mut dyn Iterator<Item = (&str, &str)>);
    /// Bytes of the body have arrived.
    fn on_bytes(&mut self, bytes: &[u8]);
    /// The body has ended, or the connection broke.
    fn on_end(&mut self, is_broken: bool);
    /// The server was not reached.
    fn on_fault(&mut self, fault: &ConnectionFault);
}

/// A response that does not come from the network.
pub struct PlayedResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// An error stands for a connection that broke.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

impl PlayedResponse {
    pub(crate) fn into_response(self) -> Result<Response, ConnectionFault> {
        let mut response = http::Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        let body = reqwest::Body::wrap_stream(self.body);
        let response = response.body(body);
        response.map(Response::from).map_err(|error| ConnectionFault::Other(error.to_string()))
    }
}
