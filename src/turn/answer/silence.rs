//! Watches how long the model has sent nothing. The user is told after a while, and at the model's
//! limit the request is given up.

use std::time::Duration;

use tokio::time::Instant;

use turnwright_llm::{LlmError, Model};

/// How long the model may be silent before the user is told, and how often they are told again.
const NOTICE_INTERVAL: Duration = Duration::from_secs(20);

/// The silence of the model during one request.
#[derive(Debug)]
pub(in crate::turn) struct SilenceWatch {
    host: String,
    limit: Duration,
    /// The silence of earlier requests for the same answer, which failed without content.
    carried: Duration,
    /// When the request was made, or when content last arrived.
    since: Instant,
    /// The length of silence at which the user is told next.
    next_notice: Duration,
}

impl SilenceWatch {
    /// Starts with the silence of the requests that this one repeats.
    pub(in crate::turn) fn new(model: &dyn Model, carried: Duration) -> SilenceWatch {
        let mut watch = SilenceWatch {
            host: model.host(),
            limit: model.silence_limit(),
            carried,
            since: Instant::now(),
            next_notice: NOTICE_INTERVAL,
        };
        watch.skip_to(carried);
        watch
    }

    /// Starts again, because the model has sent something.
    pub(in crate::turn) fn restart(&mut self) {
        self.carried = Duration::ZERO;
        self.since = Instant::now();
        self.next_notice = NOTICE_INTERVAL;
    }

    /// How long the model has been silent.
    pub(super) fn length(&self) -> Duration {
        self.carried + self.since.elapsed()
    }

    /// When [`SilenceWatch::check`] has something to say.
    pub(in crate::turn) fn due(&self) -> Instant {
        self.since + self.next_notice.min(self.limit).saturating_sub(self.carried)
    }

    /// Returns the text for the user if it is due.
    ///
    /// # Errors
    /// If the model has been silent up to its limit.
    pub(in crate::turn) fn check(&mut self) -> Result<Option<String>, LlmError> {
        let length = self.length();
        let limit = self.limit;
        if length >= limit {
            return Err(LlmError::Silent { host: self.host.clone(), limit });
        }
        if length < self.next_notice {
            return Ok(None);
        }
        let is_first = self.next_notice == NOTICE_INTERVAL;
        let seconds = length.as_secs();
        self.skip_to(length);
        Ok(Some(if is_first {
            let host = &self.host;
            format!(
                "{host} has sent nothing for {seconds} s. It may be busy, loading the model or \
                 reading a long prompt. Cancel, or wait: the request ends after {} s.",
                limit.as_secs()
            )
        } else {
            format!("Nothing for {seconds} s.")
        }))
    }

    /// Moves the next notice behind this length.
    fn skip_to(&mut self, length: Duration) {
        while self.next_notice <= length {
            self.next_notice += NOTICE_INTERVAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use turnwright_llm::{Endpoint, ModelSettings, Protocol, RemoteModel};
    use turnwright_testing::raw_server::{RawServer, text_event, write_stream};
    use turnwright_types::message::{History, Message, StopReason};
    use turnwright_types::update::Update;

    use super::*;
    use crate::error::Error;
    use crate::turn::fixture::{ScriptedReply, TurnFixture, turn_fixture};

    fn notices(fixture: &TurnFixture) -> Vec<String> {
        let updates = fixture.client.updates.lock();
        let notice = |update: &Update| match update {
            Update::Notice(text) => Some(text.clone()),
            _ => None,
        };
        updates.iter().filter_map(notice).collect()
    }

    fn is_silent(result: &Result<StopReason, Error>) -> bool {
        matches!(result, Err(Error::Llm(LlmError::Silent { .. })))
    }

    #[tokio::test(start_paused = true)]
    async fn the_user_is_told_every_twenty_seconds_and_the_turn_ends_at_the_limit() {
        let fixture = turn_fixture(vec![ScriptedReply::Hang], false, None);
        let begun = Instant::now();
        let done = fixture.turn(History::default()).run().await;
        assert!(is_silent(&done.result), "{:?}", done.result);
        assert_eq!(begun.elapsed().as_secs(), 300);
        let notices = notices(&fixture);
        assert!(notices[0].starts_with("script has sent nothing for 20 s."), "{notices:?}");
        assert!(notices[0].ends_with("the request ends after 300 s."), "{notices:?}");
        let counted: Vec<_> =
            (2..15).map(|round| format!("Nothing for {} s.", round * 20)).collect();
        assert_eq!(notices[1..], counted);
    }

    #[tokio::test(start_paused = true)]
    async fn words_end_a_silence() {
        let slow = ScriptedReply::Slow(Duration::from_secs(290), &["Slow", " but", " sure."]);
        let fixture = turn_fixture(vec![slow], false, None);
        let done = fixture.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(StopReason::EndTurn)), "{:?}", done.result);
        let notices = notices(&fixture);
        let first = notices.iter().filter(|text| text.contains("has sent nothing for 20 s"));
        assert_eq!((first.count(), notices.len()), (3, 42), "{notices:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_fail_without_a_word_share_one_limit() {
        let fails = ScriptedReply::FailAfter(Duration::from_secs(130));
        let fixture = turn_fixture(vec![fails.clone(), fails.clone(), fails], false, None);
        let begun = Instant::now();
        let done = fixture.turn(History::default()).run().await;
        assert!(is_silent(&done.result), "{:?}", done.result);
        // The waits between the requests are announced, and do not count.
        assert!((300..303).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        let notices = notices(&fixture);
        assert_eq!(notices.iter().filter(|text| text.contains("Trying again")).count(), 2);
        let first = notices.iter().filter(|text| text.contains("has sent nothing for 20 s"));
        assert_eq!((first.count(), notices.last().unwrap().as_str()), (1, "Nothing for 280 s."));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_received_leaves_the_whole_limit_to_the_next() {
        let slow = |words| ScriptedReply::Slow(Duration::from_secs(200), words);
        let fails = ScriptedReply::FailAfter(Duration::from_secs(200));
        let calls = ScriptedReply::Calls(vec![("list_dir", serde_json::json!({}))]);
        let fixture = turn_fixture(vec![fails, calls, slow(&["Done."])], false, None);
        let done = fixture.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(StopReason::EndTurn)), "{:?}", done.result);
    }

    /// Has the model at this server, which may be silent for so long.
    fn set_limit(fixture: &TurnFixture, server: &RawServer, limit: Duration) {
        let settings = ModelSettings {
            name: "m".to_owned(),
            model: "m".to_owned(),
            silence_limit: Some(limit),
            ..ModelSettings::default()
        };
        let endpoint = Endpoint::new(&server.base_url(), None).unwrap();
        let model = RemoteModel::new(Protocol::Chat, endpoint, settings);
        fixture.conversation.selection.set_model(Arc::new(model));
    }

    #[tokio::test]
    async fn a_server_that_only_keeps_the_connection_alive_is_silent() {
        let empty = r#"data: {"choices":[{"index":0,"delta":{"content":"","tool_calls":[]}}]}"#;
        for (start, beat) in [
            ("", ": keep-alive\n\n".to_owned()),
            ("", "\n".to_owned()),
            ("", format!("{empty}\n\n")),
            ("Well", ": keep-alive\n\n".to_owned()),
            ("Well", format!("{empty}\n\n")),
        ] {
            let sent = beat.clone();
            let server = RawServer::start(move |_, stream| {
                let start = if start.is_empty() { String::new() } else { text_event(start) };
                write_stream(stream, &start);
                while stream.write_all(sent.as_bytes()).is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            // On a busy machine the first word may come too late, which a longer limit allows.
            for (attempt, limit) in [200, 1_000, 5_000, 25_000].into_iter().enumerate() {
                let fixture = turn_fixture(Vec::new(), false, None);
                set_limit(&fixture, &server, Duration::from_millis(limit));
                let done = fixture.turn(History::default()).run().await;
                assert!(is_silent(&done.result), "{start:?} {beat:?}: {:?}", done.result);
                // The request itself may come too late.
                assert!(server.requests().len() <= attempt + 1, "{start:?} {beat:?}");
                let answer = done.history.messages.get(1).map(AsRef::as_ref);
                let has_text =
                    matches!(answer, Some(Message::Assistant(answer)) if answer.interrupted);
                if has_text != start.is_empty() {
                    break;
                }
                assert!(!start.is_empty() && limit < 25_000, "{start:?} {beat:?}");
            }
        }
    }
}
