//! Subscriptions to resources that conversations have read, so that the server announces their changes. Each resource
//! has one subscription, which ends when no conversation follows it any more.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::{JsonObject, Peer, ServerInfo};
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
        self.0.tasks.spawn(self.clone().subscribe(uri.to_owned(), followed));
        Some(changed)
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

    /// Subscribes to a resource until nobody follows it any more.
    async fn subscribe(self, uri: String, followed: watch::Sender<bool>) {
        let has_handshake = self.info().is_none_or(ServerInfo::has_handshake);
        let (method, key, value) = if has_handshake {
            ("resources/subscribe", "uri", json!(uri))
        } else {
            ("subscriptions/listen", "notifications", json!({ "resourceSubscriptions": [uri] }))
        };
        let mut request = self.start(method, JsonObject::from_iter([(key.to_owned(), value)]));
        let subscribed = async move {
            let answer = request.response().await;
            tracing::debug!(?answer, "the subscription to a resource");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = subscribed => {}
            () = followed.closed() => {}
            () = self.closed() => return,
        }
        let others = self.0.open.lock().resources.get(&uri).map(watch::Sender::receiver_count);
        if has_handshake && others.unwrap_or_default() == 0 {
            let params = JsonObject::from_iter([("uri".to_owned(), uri.into())]);
            let mut end = self.start("resources/unsubscribe", params);
            timeout(UNSUBSCRIBE_TIMEOUT, end.response()).await.ok();
        }
    }
}
