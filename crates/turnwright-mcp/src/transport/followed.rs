//! Subscriptions to resources that conversations have read, so that the server announces their changes. Each resource
//! has one subscription, which ends when no conversation follows it any more. One that is lost is opened again, once
//! for each connection.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::{Channel, JsonObject, Peer, PeerError, ServerInfo};
use turnwright_types::patience::timeout;

/// Maximum number of resources of one connection that are followed.
const MAX_FOLLOWED: usize = 16;
/// A resource with a longer URI is not followed.
const MAX_URI_BYTES: usize = 2_000;
/// The time that ending a subscription may take.
const UNSUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

impl Peer {
    /// Follows a resource. The value becomes true when the server says that it has changed, and the subscription ends
    /// with the last receiver. Returns `None` if the server does not announce changes, or if too many are followed.
    pub fn follow(&self, uri: &str) -> Option<watch::Receiver<bool>> {
        self.info().filter(|info| info.announces_resources() && uri.len() <= MAX_URI_BYTES)?;
        let mut open = self.0.open.lock();
        open.resources.retain(|_, followed| followed.receiver_count() > 0);
        if let Some(followed) = open.resources.get(uri) {
            return Some(followed.subscribe());
        }
        if open.resources.len() >= MAX_FOLLOWED {
            return None;
        }
        let (followed, changed) = watch::channel(false);
        open.resources.insert(uri.to_owned(), followed.clone());
        drop(open);
        self.0.tasks.spawn(self.clone().subscribe(uri.to_owned(), followed, 2));
        Some(changed)
    }

    /// Goes on following the resources of a lost connection.
    pub(crate) fn follow_those_of(&self, lost: Option<Peer>) {
        let Some(lost) = lost else { return };
        let mut resources = std::mem::take(&mut lost.0.open.lock().resources);
        resources.retain(|_, followed| followed.receiver_count() > 0);
        for (uri, followed) in resources {
            self.0.open.lock().resources.insert(uri.clone(), followed.clone());
            self.0.tasks.spawn(self.clone().subscribe(uri, followed, 1));
        }
    }

    /// Tells whoever follows a resource that it has changed. The URI may be that of a part of the resource.
    pub(super) fn mark_changed(&self, changed: &str) {
        self.0.open.lock().resources.retain(|uri, followed| {
            let rest = changed.strip_prefix(uri.as_str());
            let is_meant = rest
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || uri.ends_with('/'));
            if is_meant {
                followed.send_replace(true);
            }
            !is_meant
        });
    }

    /// Subscribes to a resource until nobody follows it any more. The subscription is opened at most this often; then
    /// the resource is forgotten.
    async fn subscribe(self, uri: String, followed: watch::Sender<bool>, max_openings: usize) {
        let has_handshake = self.info().is_none_or(ServerInfo::has_handshake);
        let (method, key, value) = if has_handshake {
            ("resources/subscribe", "uri", json!(uri))
        } else {
            ("subscriptions/listen", "notifications", json!({ "resourceSubscriptions": [uri] }))
        };
        let params = JsonObject::from_iter([(key.to_owned(), value)]);
        let subscribed = async {
            for _ in 0..max_openings {
                let mut request = self.start(method, params.clone());
                let answer = request.response().await;
                tracing::debug!(?answer, "the subscription to a resource");
                match (&answer, self.channel()) {
                    (Err(PeerError::ErrorResponse(_)), _) => break,
                    (Ok(_), Channel::Http(http)) if has_handshake => http.session_renewed().await,
                    (Ok(_), _) if has_handshake => std::future::pending().await,
                    _ => {}
                }
            }
        };
        tokio::select! {
            biased;
            // First, because the next connection takes over what this one has not forgotten.
            () = self.closed() => return,
            () = followed.closed() => {}
            () = subscribed => {
                let resources = &mut self.0.open.lock().resources;
                return resources.retain(|_, other| !other.same_channel(&followed));
            }
        }
        let others = self.0.open.lock().resources.get(&uri).map(watch::Sender::receiver_count);
        if has_handshake && others.unwrap_or_default() == 0 {
            let params = JsonObject::from_iter([("uri".to_owned(), uri.into())]);
            let mut end = self.start("resources/unsubscribe", params);
            timeout(UNSUBSCRIBE_TIMEOUT, end.response()).await.ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::StreamExt;
    use futures_util::stream::{BoxStream, iter, pending};
    use serde_json::value::RawValue;

    use super::*;
    use crate::call::server_requests::ServerMessageHandler;
    use crate::server::handshake;
    use crate::transport::link::{LinkChannel, LinkError, LinkEvent, LinkedServer, ServerLink};

    /// Counts the subscriptions that were opened. The first ones are ended (`true`) or refused; the others stay open.
    #[derive(Clone, Debug)]
    struct EndingLink(Arc<AtomicUsize>, &'static [bool]);

    impl ServerLink for EndingLink {
        fn send(&self, method: String, _: Option<JsonObject>) -> BoxStream<'static, LinkEvent> {
            let outcome = if method == "server/discover" {
                let capabilities = json!({ "resources": { "subscribe": true } });
                Ok(json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities }))
            } else {
                match self.1.get(self.0.fetch_add(1, Ordering::Relaxed)) {
                    Some(true) => Ok(json!({})),
                    Some(false) => Err(json!({ "code": -32602, "message": "no such resource" })),
                    None => return pending().boxed(),
                }
            };
            let raw = |value: serde_json::Value| RawValue::from_string(value.to_string()).unwrap();
            let outcome = outcome.map(raw).map_err(|error| LinkError::ErrorResponse(raw(error)));
            iter([LinkEvent::Outcome(outcome)]).boxed()
        }
    }

    /// Connects to such a server. Returns the number of its subscriptions, too.
    async fn connect(answers: &'static [bool]) -> (Peer, Arc<AtomicUsize>) {
        let opened = Arc::<AtomicUsize>::default();
        let link = LinkedServer::new(EndingLink(Arc::clone(&opened), answers));
        let peer = Peer::new(Channel::Link(LinkChannel::new(link)), ServerMessageHandler::silent());
        handshake::discover(&peer).await.unwrap();
        (peer, opened)
    }

    /// Lets the background tasks run.
    async fn pause() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn m_26_a_lost_subscription_is_opened_again_once_for_each_connection() {
        // Each row: how the first subscriptions end, how many are opened, and is the resource still followed.
        let table: [(&[bool], usize, bool); 4] =
            [(&[], 1, true), (&[true], 2, true), (&[true, true], 2, false), (&[false], 1, false)];
        for (answers, count, is_followed) in table {
            let (peer, opened) = connect(answers).await;
            let changed = peer.follow("notes://1").unwrap();
            pause().await;
            assert_eq!(opened.load(Ordering::Relaxed), count, "{answers:?}");
            assert_eq!(changed.has_changed().is_ok(), is_followed, "{answers:?}");
        }
        let table: [(&[bool], bool); 3] = [(&[], true), (&[true], false), (&[false], false)];
        for (answers, is_followed) in table {
            let (lost, _) = connect(&[]).await;
            let changed = lost.follow("notes://1").unwrap();
            let unused = lost.follow("notes://2");
            pause().await;
            drop(unused);
            lost.close();
            pause().await;
            let (next, opened) = connect(answers).await;
            next.follow_those_of(Some(lost));
            pause().await;
            assert_eq!(opened.load(Ordering::Relaxed), 1, "{answers:?}");
            next.mark_changed("notes://1");
            assert_eq!(*changed.borrow(), is_followed, "{answers:?}");
        }
    }
}
