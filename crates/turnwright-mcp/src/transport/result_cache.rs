//! Results that are still fresh according to the server, which says so with `ttlMs`. They belong to one connection and
//! to one login, so it makes no difference whether the server calls them public or private.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use tokio::time::Instant;

/// Maximum number of results that are kept.
const MAX_RESULTS: usize = 64;
/// Maximum size of all of them.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The longest time for which a result counts as fresh.
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A request whose result may be kept: its method, its parameters, and when the login was last changed.
type CacheKey = (&'static str, String, Option<SystemTime>);

#[derive(Default)]
pub(super) struct ResultCache {
    /// Each result, and until when it is fresh.
    results: HashMap<CacheKey, (Instant, Box<RawValue>)>,
    /// Incremented with each [`ResultCache::forget`]. A request that was sent before may bring an outdated result.
    version: u64,
}

impl ResultCache {
    /// Returns the result of this request if it is fresh, and the version of the cache.
    pub(super) fn find(&self, key: &CacheKey) -> (Option<Box<RawValue>>, u64) {
        let found = self.results.get(key).filter(|(end, _)| Instant::now() < *end);
        (found.map(|(_, result)| result.clone()), self.version)
    }

    /// Keeps a new result for this time if there is room for it, and if the cache still has the version that it had
    /// when the request was sent.
    pub(super) fn keep(&mut self, key: CacheKey, version: u64, ttl: Duration, result: &RawValue) {
        let now = Instant::now();
        self.results.retain(|_, (end, _)| now < *end);
        let size: usize = self.results.values().map(|(_, kept)| kept.get().len()).sum();
        let has_room = self.results.len() < MAX_RESULTS && size + result.get().len() <= MAX_BYTES;
        if has_room && version == self.version {
            self.results.insert(key, (now + ttl, result.to_owned()));
        }
    }

    /// Forgets the results of all methods that begin like this, because they may be outdated.
    pub(super) fn forget(&mut self, prefix: &str) {
        self.version += 1;
        self.results.retain(|(method, ..), _| !method.starts_with(prefix));
    }
}

/// The time for which a result is fresh, as it says itself. Returns `None` if it must not be kept: for example because
/// it asks for input or is too large.
pub(super) fn time_to_live(result: &str) -> Option<Duration> {
    let result = Some(result).filter(|result| result.len() <= MAX_BYTES)?;
    let fields: HashMap<String, &RawValue> = serde_json::from_str(result).ok()?;
    let is_complete = fields.get("resultType").is_none_or(|kind| kind.get() == r#""complete""#);
    let ttl: u64 = fields.get("ttlMs").filter(|_| is_complete)?.get().parse().ok()?;
    (ttl > 0).then(|| Duration::from_millis(ttl).min(MAX_TTL))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::StreamExt;
    use futures_util::stream::{BoxStream, iter};
    use serde_json::Value;

    use super::*;
    use crate::call::server_requests::ServerMessageHandler;
    use crate::features::JsonObject;
    use crate::features::tools::list_items;
    use crate::transport::link::{LinkChannel, LinkError, LinkEvent, LinkedServer, ServerLink};
    use crate::transport::{Channel, Peer};

    /// Numbers its answers, which are fresh for a second. Before each but the first, it sends this notification. It
    /// refuses every cursor.
    #[derive(Clone, Debug)]
    struct NumberingLink(Arc<AtomicUsize>, &'static str);

    impl ServerLink for NumberingLink {
        fn send(&self, _: String, params: Option<JsonObject>) -> BoxStream<'static, LinkEvent> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            let method = if number == 0 { "notifications/message" } else { self.1 };
            let notification = LinkEvent::Notification { method: method.to_owned(), params: None };
            let outcome = if params.is_some_and(|params| params.contains_key("cursor")) {
                Err(LinkError::ErrorResponse(raw(r#"{"code":-32602,"message":"gone"}"#)))
            } else {
                let page = r#""tools":[],"nextCursor":"2""#;
                Ok(raw(&format!(r#"{{"number":{number},"ttlMs":1000,{page}}}"#)))
            };
            iter([notification, LinkEvent::Outcome(outcome)]).boxed()
        }
    }

    async fn number(peer: &Peer, method: &'static str) -> u64 {
        let params = JsonObject::from_iter([("uri".to_owned(), "notes://1".into())]);
        let result: Value = peer.request(method, params).await.unwrap();
        result["number"].as_u64().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_result_is_used_again_until_a_notification_or_the_end_of_its_time() {
        let table = [
            ("resources/read", "notifications/resources/updated", false),
            ("resources/read", "notifications/resources/list_changed", false),
            ("resources/list", "notifications/resources/list_changed", false),
            ("resources/templates/list", "notifications/resources/list_changed", false),
            ("tools/list", "notifications/tools/list_changed", false),
            ("prompts/list", "notifications/prompts/list_changed", false),
            ("prompts/list", "notifications/tools/list_changed", true),
            ("resources/read", "notifications/prompts/list_changed", true),
        ];
        for (method, notification, stays_fresh) in table {
            let link = LinkedServer::new(NumberingLink(Arc::default(), notification));
            let channel = Channel::Link(LinkChannel::new(link));
            let peer = Peer::new(channel, ServerMessageHandler::silent());
            assert_eq!(number(&peer, method).await, 0);
            assert_eq!(number(&peer, method).await, 0, "{method}");
            // A result of another kind is never kept.
            assert_eq!(number(&peer, "prompts/get").await, 1);
            assert_eq!(number(&peer, "prompts/get").await, 2);
            let expected = if stays_fresh { 0 } else { 3 };
            assert_eq!(number(&peer, method).await, expected, "{method}, {notification}");
            tokio::time::advance(SECOND).await;
            assert!(number(&peer, method).await >= 3, "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_asked_for_anew_after_one_of_its_pages_was_refused() {
        let link = LinkedServer::new(NumberingLink(Arc::default(), "notifications/message"));
        let peer = Peer::new(Channel::Link(LinkChannel::new(link)), ServerMessageHandler::silent());
        assert_eq!(number(&peer, "tools/list").await, 0);
        assert_eq!(number(&peer, "prompts/list").await, 1);
        let listing = list_items(&peer, ("tools/list", "tools"), 1, Some);
        assert_eq!(listing.await.unwrap().0, Vec::<Value>::new());
        assert_eq!(number(&peer, "tools/list").await, 4);
        assert_eq!(number(&peer, "prompts/list").await, 1);
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn key(method: &'static str) -> CacheKey {
        (method, "{}".to_owned(), None)
    }

    fn is_kept(cache: &ResultCache, key: &CacheKey) -> bool {
        cache.find(key).0.is_some()
    }

    #[test]
    fn only_a_complete_result_with_a_positive_whole_number_is_kept() {
        let table = [
            (r#"{"ttlMs":60000}"#, Some(60)),
            (r#"{"ttlMs":60000,"resultType":"complete","cacheScope":"private"}"#, Some(60)),
            (r#"{"ttlMs":18446744073709551615}"#, Some(24 * 60 * 60)),
            (r#"{"ttlMs":60000,"resultType":"input_required"}"#, None),
            (r#"{"ttlMs":60000,"resultType":7}"#, None),
            (r#"{"ttlMs":0}"#, None),
            (r#"{"ttlMs":-1}"#, None),
            (r#"{"ttlMs":1.5}"#, None),
            (r#"{"ttlMs":"60000"}"#, None),
            (r#"{"ttlMs":null}"#, None),
            (r#"{"tools":[]}"#, None),
            ("[60000]", None),
        ];
        for (result, seconds) in table {
            assert_eq!(time_to_live(result), seconds.map(Duration::from_secs), "{result}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_forgotten_with_its_time_and_with_others_of_its_kind() {
        let mut cache = ResultCache::default();
        let result = raw("{}");
        for method in ["tools/list", "resources/list", "resources/read"] {
            cache.keep(key(method), 0, SECOND, &result);
        }
        assert!(is_kept(&cache, &key("tools/list")));
        let other = ("tools/list", r#"{"cursor":"2"}"#.to_owned(), None);
        assert!(!is_kept(&cache, &other));
        let other_login = ("tools/list", "{}".to_owned(), Some(SystemTime::UNIX_EPOCH));
        assert!(!is_kept(&cache, &other_login));
        cache.forget("resources/");
        assert!(!is_kept(&cache, &key("resources/list")));
        assert!(!is_kept(&cache, &key("resources/read")));
        assert!(is_kept(&cache, &key("tools/list")));
        // Sent before the notification.
        cache.keep(key("resources/read"), 0, SECOND, &result);
        assert!(!is_kept(&cache, &key("resources/read")));
        tokio::time::advance(SECOND).await;
        assert!(!is_kept(&cache, &key("tools/list")));
    }

    #[test]
    fn a_server_cannot_fill_the_memory() {
        let mut cache = ResultCache::default();
        let large = raw(&format!("\"{}\"", "x".repeat(MAX_BYTES / 3)));
        for number in 0..4 {
            cache.keep(("resources/read", number.to_string(), None), 0, SECOND, &large);
        }
        assert_eq!(cache.results.len(), 2);
        for number in 0..2 * MAX_RESULTS {
            cache.keep(("resources/read", number.to_string(), None), 0, SECOND, &raw("{}"));
        }
        assert_eq!(cache.results.len(), MAX_RESULTS);
    }
}
