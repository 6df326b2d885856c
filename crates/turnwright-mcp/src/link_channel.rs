//! The messages of a server that runs within the client: each request goes through a
//! [`ServerLink`](super::link::ServerLink). Answers have the same limits as those of a process.

use std::fmt;

use super::model::JsonObject;
use futures_util::StreamExt;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use turnwright_rpc::RpcError;

use super::line;
use super::link::{LinkError, LinkEvent, LinkedServer};
use super::message_io::MAX_MESSAGE_BYTES;
use super::peer::{Peer, PeerError, Response};

/// How many requests may run at the same time. Another one is refused.
pub(super) const MAX_RUNNING: usize = 256;

/// The client's end of a link. Cheap to clone.
#[derive(Clone)]
pub(super) struct LinkChannel {
    link: LinkedServer,
    /// Gets the reason when the server is gone.
    lost: watch::Sender<Option<String>>,
}

impl fmt::Debug for LinkChannel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LinkChannel")
    }
}

impl LinkChannel {
    pub(super) fn new(link: LinkedServer) -> LinkChannel {
        let (lost, _) = watch::channel(None);
        LinkChannel { link, lost }
    }

    /// Receives the reason when the link has no more answers.
    pub(super) fn lost(&self) -> watch::Receiver<Option<String>> {
        self.lost.subscribe()
    }

    /// Sends a request and handles the notifications that belong to it. Dropping this cancels the request.
    pub(super) async fn exchange(
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
                    peer.handler().notify(&method, &params);
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
        let limit = MAX_MESSAGE_BYTES / 1024 / 1024;
        format!("The response is longer than {limit} MiB and was dropped")
    } else if !line::is_within_limits(answer.get().as_bytes()) {
        line::TOO_COMPLEX.to_owned()
    } else {
        return Ok(answer);
    };
    Err(PeerError::ErrorResponse(RpcError::internal_error(why)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::stream::{BoxStream, pending};
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::ServerTransport;
    use crate::handler::ServerMessageHandler;
    use crate::link::ServerLink;
    use crate::peer::{Channel, RunningRequest};
    use crate::{LoginStore, ServerEnv, ServerPhase, ServerPool, ServerSource, ServerSpec};
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
        running.remove(1).cancel("not needed");
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
            supports_forms: false,
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
