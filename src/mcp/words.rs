//! The last that a program has said to people. Bounded, however much it says; shown without keys and
//! without anything that a terminal would obey.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use turnwright_types::effect::visible;
use turnwright_types::redact;

/// Bytes that are kept. Many more than are shown, so that no half of a key is.
const KEPT: usize = 8 * 1024;
/// Bytes that are shown.
const SHOWN: usize = 1024;
/// Bytes that are taken at once.
const BUFFER: usize = 4 * 1024;
/// How long what was said before the end may take to be heard. What the program has started may
/// hold the pipe open for ever.
const LATE: Duration = Duration::from_millis(100);

/// What was said.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    // A std mutex: held to copy a short text.
    said: Arc<Mutex<Vec<u8>>>,
    silent: CancellationToken,
}

impl Words {
    /// Listens until the program is silent for good. It is not waited for: it ends with the pipe.
    #[expect(clippy::disallowed_methods, reason = "ends with the program, which is waited for")]
    pub(super) fn listen(&self, mut pipe: impl AsyncRead + Unpin + Send + 'static) {
        let words = self.clone();
        let silent = self.silent.clone().drop_guard();
        tokio::spawn(async move {
            let mut buffer = vec![0; BUFFER];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                words.push(&buffer[..count]);
            }
            drop(silent);
        });
    }

    fn push(&self, bytes: &[u8]) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(bytes);
        let surplus = said.len().saturating_sub(KEPT);
        said.drain(..surplus);
    }

    /// What has happened to a program that has ended, with its last words.
    pub(super) async fn after(&self, what: String) -> String {
        drop(timeout(LATE, self.silent.cancelled()).await);
        self.with(what)
    }

    /// What has happened, with the last words so far.
    pub(super) fn with(&self, what: String) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match shown(&said).as_str() {
            "" => what,
            words => format!("{what}. It said: {words}"),
        }
    }
}

fn shown(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let text = redact::text(&text);
    let text = text.trim();
    let end = |from: usize| (from..=text.len()).find(|it| text.is_char_boundary(*it));
    let from = end(text.len().saturating_sub(SHOWN)).unwrap_or_default();
    let cut = if from == 0 { "" } else { "… " };
    format!("{cut}{}", visible(&text[from..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_short_and_harmless() {
        redact::learn(["Hidden-2391-in-stderr".to_owned()]);
        for (said, expected) in [
            ("", ""),
            (" \n", ""),
            ("port taken\n", "port taken"),
            ("a\u{1b}[2Jb\rc\n", "a\\u{1b}[2Jb\\u{d}c"),
            ("with Hidden-2391-in-stderr", "with [key]"),
        ] {
            assert_eq!(shown(said.as_bytes()), expected);
        }
        let words = Words::default();
        for _ in 0..100 {
            words.push("ü".repeat(1000).as_bytes());
        }
        assert!(words.said.lock().unwrap().len() <= KEPT);
        let long = words.with("it ended".to_owned());
        assert!(long.starts_with("it ended. It said: … ü") && long.len() < SHOWN + 40, "{long}");
    }
}
