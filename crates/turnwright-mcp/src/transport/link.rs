//! Servers that are neither a program nor an HTTP endpoint: they run within the client of the session, which
//! passes each request on. This crate does not know how; whoever configures such a server brings a
//! [`ServerLink`]. Answers have the same limits as those of a process.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::process::{MAX_MESSAGE_BYTES, TOO_LONG};
use super::{Peer, PeerError, Response, line};
use crate::features::JsonObject;
use turnwright_rpc::RpcError;

/// How many requests may run at the same time. Another one is refused.
pub(crate) const MAX_RUNNING: usize = 256;

/// The way to a server that someone else runs. A request brings its own notifications, and nothing is said
/// outside of requests, so there is neither a connection to open nor one to close.
pub trait ServerLink: fmt::Debug + Send + Sync {
    /// Sends a request. The stream has the notifications that belong to it, then its outcome, and ends with
    /// that. Dropping the stream cancels the request. The queue below it must be bounded.
    fn send(&self, method: String, params: Option<JsonObject>) -> BoxStream<'static, LinkEvent>;
}

/// An event in reply to a request.
#[derive(Debug)]
pub enum LinkEvent {
    Notification { method: String, params: Option<JsonObject> },
    Outcome(Result<Box<RawValue>, LinkError>),
}

/// Why a request has no result.
#[derive(Debug)]
pub enum LinkError {
    /// The server answered with this error object.
    ErrorResponse(Box<RawValue>),
    /// There is no answer of the server, for a reason in words. The request may have been executed.
    Failed(String),
    /// The same, and there will be no answer to any other request either.
    Gone(String),
}

/// A server that is reached through a link. It equals only itself, so no other session shares it. Clones share
/// the link.
#[derive(Clone, Debug)]
pub struct LinkedServer(watch::Sender<Arc<dyn ServerLink>>);

impl LinkedServer {
    pub fn new(link: impl ServerLink + 'static) -> LinkedServer {
        LinkedServer(watch::Sender::new(Arc::new(link)))
    }

    /// Sends further requests through the link of the other one.
    pub fn use_link_of(&self, other: &LinkedServer) {
        self.0.send_replace(other.link());
    }

    pub(crate) fn link(&self) -> Arc<dyn ServerLink> {
        Arc::clone(&self.0.borrow())
    }
}

impl PartialEq for LinkedServer {
    fn eq(&self, other: &LinkedServer) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Eq for LinkedServer {}

/// The client's end of a link. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LinkChannel {
    link: LinkedServer,
    /// Gets the reason when the server is gone.
    lost: watch::Sender<Option<String>>,
}

impl LinkChannel {
    pub(crate) fn new(link: LinkedServer) -> LinkChannel {
        LinkChannel { link, lost: watch::Sender::new(None) }
    }

    /// Receives the reason when the link has no more answers.
    pub(crate) fn lost(&self) -> watch::Receiver<Option<String>> {
        self.lost.subscribe()
    }

    /// Sends a request and handles the notifications that belong to it. Dropping this cancels the request.
    pub(crate) async fn exchange(
        self,
        peer: Peer,
        method: &'static str,
        params: JsonObject,
    ) -> Response {
        if self.lost.borrow().is_some() {
            return Err(PeerError::Closed);
        }
        let mut events = self.link.link().send(method.to_owned(), Some(params));
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = peer.closed() => None,
            };
            match event.ok_or(PeerError::Closed)? {
                LinkEvent::Notification { method, params } => {
                    let params = params.map_or(Value::Null, Value::Object);
                    peer.handle_notification(&method, &params);
                }
                LinkEvent::Outcome(outcome) => return self.response(method, outcome),
            }
        }
    }

    fn response(&self, method: &str, outcome: Result<Box<RawValue>, LinkError>) -> Response {
        match outcome {
            Ok(result) => bounded(result),
            Err(LinkError::ErrorResponse(error)) => {
                let error = bounded(error)?;
                Err(PeerError::ErrorResponse(line::error_object(&error)))
            }
            // Without an answer to its first request, it is not known that there is a server at all.
            Err(LinkError::Failed(why)) if method != "server/discover" => {
                let why = format!("{why}. It may have been partly executed");
                Err(PeerError::ErrorResponse(RpcError::internal_error(why)))
            }
            Err(LinkError::Failed(why) | LinkError::Gone(why)) => {
                self.lost.send_replace(Some(why));
                Err(PeerError::Closed)
            }
        }
    }
}

/// The answer, if it is within the limits.
fn bounded(answer: Box<RawValue>) -> Response {
    let why = if answer.get().len() > MAX_MESSAGE_BYTES {
        TOO_LONG
    } else if !line::is_within_limits(answer.get().as_bytes()) {
        line::TOO_COMPLEX
    } else {
        return Ok(answer);
    };
    Err(PeerError::ErrorResponse(RpcError::internal_error(why.to_owned())))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::stream::pending;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::{ServerLink, *};
    use crate::call::server_requests::ServerMessageHandler;
    use crate::transport::{Channel, RunningRequest};
    use crate::{
        LoginStore, ServerEnv, ServerPhase, ServerPool, ServerSource, ServerSpec, ServerTransport,
    };
    use turnwright_types::client::ElicitationModes;
    use turnwright_workspace::exec::Environment;

    /// Never answers. Counts the requests that are not dropped.
    #[derive(Clone, Debug, Default)]
    struct SilentLink(Arc<AtomicUsize>);

    impl ServerLink for SilentLink {
        fn send(&self, _: String, _: Option<JsonObject>) -> BoxStream<'static, LinkEvent> {
            struct Running(Arc<AtomicUsize>);
            impl Drop for Running {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::Relaxed);
                }
            }
            self.0.fetch_add(1, Ordering::Relaxed);
            let running = Running(Arc::clone(&self.0));
            pending().map(move |event: LinkEvent| (&running, event).1).boxed()
        }
    }

    fn peer(link: &SilentLink) -> Peer {
        let channel = LinkChannel::new(LinkedServer::new(link.clone()));
        Peer::new(Channel::Link(channel), ServerMessageHandler::silent())
    }

    /// Starts so many requests that get no response.
    fn start(peer: &Peer, count: usize) -> Vec<RunningRequest> {
        let mut running: Vec<_> =
            (0..count).map(|_| peer.start("ping", JsonObject::new())).collect();
        for request in &mut running {
            assert!(request.response().now_or_never().is_none());
        }
        running
    }

    #[tokio::test]
    async fn a_withdrawn_request_is_dropped() {
        let link = SilentLink::default();
        let mut running = start(&peer(&link), 3);
        running.remove(1).give_up("not needed");
        assert_eq!(link.0.load(Ordering::Relaxed), 2);
        drop(running);
        assert_eq!(link.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn more_requests_than_a_limit_are_refused() {
        let peer = peer(&SilentLink::default());
        let _running = start(&peer, MAX_RUNNING);
        let refused = peer.start("ping", JsonObject::new()).response().await.unwrap_err();
        assert!(refused.to_string().contains("too many requests"), "{refused}");
    }

    #[test]
    fn an_answer_has_the_limits_of_a_process() {
        let raw = |text: String| RawValue::from_string(text).unwrap();
        let table = [
            (raw("{}".to_owned()), None),
            (raw("null".to_owned()), None),
            (raw(format!("\"{}\"", "x".repeat(MAX_MESSAGE_BYTES))), Some("longer than 32 MiB")),
            (raw(format!("{}{}", "[".repeat(105), "]".repeat(105))), Some("nests too deeply")),
        ];
        for (value, expected) in table {
            match (bounded(value), expected) {
                (Ok(_), None) => {}
                (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_has_failed_after_a_while_and_is_not_tried_again() {
        let link = SilentLink::default();
        let nowhere = PathBuf::from("/nowhere");
        let env = ServerEnv {
            cwd: nowhere.clone(),
            roots: Vec::new(),
            profile: None,
            elicitation: ElicitationModes::default(),
            memory: None,
            logins: LoginStore::new(&nowhere),
            package_caches: Vec::new(),
            private_caches: nowhere,
        };
        let environment = Environment::scrubbed([], &[]);
        let pool = ServerPool::new(environment, CancellationToken::new(), TaskTracker::new());
        let reach = ServerTransport::Linked(LinkedServer::new(link.clone()));
        let spec = ServerSpec::new("near", ServerSource::Client, reach);
        let server = pool.get(&spec, &env);
        let mut watch = server.watch();
        watch.wait_for(|state| state.phase != ServerPhase::Starting).await.unwrap();
        let state = server.state();
        assert_eq!(state.phase, ServerPhase::Failed("it was not ready within 10 s".to_owned()));
        assert!(!state.is_restarting);
        assert_eq!(link.0.load(Ordering::Relaxed), 0);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(server.state().phase, state.phase);
        assert_eq!(link.0.load(Ordering::Relaxed), 0);
    }
}
