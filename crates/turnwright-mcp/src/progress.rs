//! Routes progress notifications to the calls that they belong to.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::model_schema::bounded_text;
use turnwright_types::effect::escape_hidden_line;

/// Maximum length of a progress message.
const MAX_MESSAGE_CHARS: usize = 300;

/// The running calls of one connection. Only the latest progress of each is kept.
#[derive(Clone, Debug, Default)]
pub struct ProgressRouter(Arc<Mutex<ProgressSenders>>);

// Held only for one map operation.
type ProgressSenders = HashMap<u64, watch::Sender<CallProgress>>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CallProgress {
    done: f64,
    total: Option<f64>,
    message: String,
}

impl ProgressRouter {
    /// Delivers the parameters of a notification.
    pub(super) fn deliver(&self, params: &Value) {
        let sent = &params["progressToken"];
        // Some servers turn a number into a text.
        let token = sent.as_u64().or_else(|| sent.as_str()?.parse().ok());
        let (Some(token), Some(done)) = (token, params["progress"].as_f64()) else { return };
        if let Some(sender) = self.0.lock().get(&token) {
            let text = params["message"].as_str().unwrap_or_default();
            let message = bounded_text(&escape_hidden_line(text), MAX_MESSAGE_CHARS);
            sender.send_if_modified(|progress| {
                let is_new = done >= progress.done;
                if is_new {
                    *progress = CallProgress { done, total: params["total"].as_f64(), message };
                }
                is_new
            });
        }
    }

    /// Subscribes to the progress of one call.
    pub(super) fn subscribe(&self, token: u64) -> ProgressSubscription {
        let (sender, receiver) = watch::channel(CallProgress::default());
        self.0.lock().insert(token, sender);
        ProgressSubscription { router: self.clone(), token, receiver }
    }
}

/// Receives the progress of one call until it is dropped.
#[derive(Debug)]
pub(super) struct ProgressSubscription {
    router: ProgressRouter,
    token: u64,
    receiver: watch::Receiver<CallProgress>,
}

impl ProgressSubscription {
    /// Waits for new progress.
    pub(super) async fn changed(&mut self) -> CallProgress {
        match self.receiver.changed().await {
            Ok(()) => self.receiver.borrow_and_update().clone(),
            // The sender is gone: there will be no more progress.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for ProgressSubscription {
    fn drop(&mut self) {
        self.router.0.lock().remove(&self.token);
    }
}

impl CallProgress {
    /// Formats the progress for the card of its call.
    pub(super) fn display_text(&self) -> String {
        let CallProgress { done, total, message } = self;
        let number = match total {
            Some(total) if *total > 0.0 => format!("{done} of {total}"),
            _ => done.to_string(),
        };
        if message.is_empty() { number } else { format!("{message} ({number})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_formatted() {
        let table = [
            (3.0, Some(10.0), "reading", "reading (3 of 10)"),
            (0.5, None, "", "0.5"),
            (1.0, Some(0.0), "a", "a (1)"),
        ];
        for (done, total, message, expected) in table {
            assert_eq!(
                CallProgress { done, total, message: message.to_owned() }.display_text(),
                expected
            );
        }
    }
}
