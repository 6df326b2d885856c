//! What servers tell of calls that run, and which call it is about.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::sync::watch;

use super::schema::words;
use turnwright_types::effect::visible_line;

/// Characters of a message.
const LONGEST: usize = 300;

/// The calls of one connection that run. Of what is told of one only the last is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Mutex<Calls>>);

// A std mutex: held to look at a short list.
type Calls = HashMap<ProgressToken, watch::Sender<Step>>;

/// How far a call is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Step {
    done: f64,
    total: Option<f64>,
    message: String,
}

impl Progress {
    /// A server tells something.
    pub(super) fn tell(&self, news: ProgressNotificationParam) {
        let ProgressNotificationParam { progress_token, progress, total, message, .. } = news;
        if let Some(call) = self.calls().get(&progress_token) {
            let message = words(&visible_line(&message.unwrap_or_default()), LONGEST);
            // Each notification has a task of its own, so that an old one may come late.
            call.send_if_modified(|it| {
                let is_new = progress >= it.done;
                if is_new {
                    *it = Step { done: progress, total, message };
                }
                is_new
            });
        }
    }

    /// Listens for one call.
    pub(super) fn listen(&self, token: ProgressToken) -> Ear {
        let (said, news) = watch::channel(Step::default());
        self.calls().insert(token.clone(), said);
        Ear { progress: self.clone(), token, news }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears what is told of one call.
#[derive(Debug)]
pub(super) struct Ear {
    progress: Progress,
    token: ProgressToken,
    news: watch::Receiver<Step>,
}

impl Ear {
    /// Waits for news.
    pub(super) async fn news(&mut self) -> Step {
        match self.news.changed().await {
            Ok(()) => self.news.borrow_and_update().clone(),
            // Nobody tells anything any more.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.progress.calls().remove(&self.token);
    }
}

impl Step {
    /// The step in words.
    pub(super) fn shown(&self) -> String {
        let Step { done, total, message } = self;
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
    fn progress_is_said_in_a_few_words() {
        let table = [
            (3.0, Some(10.0), "reading", "reading (3 of 10)"),
            (0.5, None, "", "0.5"),
            (1.0, Some(0.0), "a", "a (1)"),
        ];
        for (done, total, message, expected) in table {
            assert_eq!(Step { done, total, message: message.to_owned() }.shown(), expected);
        }
    }
}
