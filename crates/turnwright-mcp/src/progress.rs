//! Routes progress notifications to the calls that they belong to.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::sync::watch;

use super::model_schema::bounded_text;
use turnwright_types::effect::escape_hidden_line;

/// Maximum length of a progress message.
const MAX_MESSAGE_CHARS: usize = 300;

/// The running calls of one connection. Only the latest progress of each is kept.
#[derive(Clone, Debug, Default)]
pub struct ProgressRouter(Arc<Mutex<ProgressSenders>>);

// Held only for one map operation.
type ProgressSenders = HashMap<ProgressToken, watch::Sender<CallProgress>>;

/// The progress of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CallProgress {
    done: f64,
    total: Option<f64>,
    message: String,
}

impl ProgressRouter {
    /// Delivers a notification.
    pub(super) fn deliver(&self, notification: ProgressNotificationParam) {
        let ProgressNotificationParam { progress_token, progress, total, message, .. } =
            notification;
        if let Some(sender) = self.lock().get(&progress_token) {
            let message =
                bounded_text(&escape_hidden_line(&message.unwrap_or_default()), MAX_MESSAGE_CHARS);
            // Each notification is handled in a task of its own, so they may arrive out of order.
            sender.send_if_modified(|it| {
                let is_new = progress >= it.done;
                if is_new {
                    *it = CallProgress { done: progress, total, message };
                }
                is_new
            });
        }
    }

    /// Subscribes to the progress of one call.
    pub(super) fn subscribe(&self, token: ProgressToken) -> ProgressSubscription {
        let (sender, receiver) = watch::channel(CallProgress::default());
        self.lock().insert(token.clone(), sender);
        ProgressSubscription { router: self.clone(), token, receiver }
    }

    fn lock(&self) -> MutexGuard<'_, ProgressSenders> {
        self.0.lock()
    }
}

/// Receives the progress of one call until it is dropped.
#[derive(Debug)]
pub(super) struct ProgressSubscription {
    router: ProgressRouter,
    token: ProgressToken,
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
        self.router.lock().remove(&self.token);
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
