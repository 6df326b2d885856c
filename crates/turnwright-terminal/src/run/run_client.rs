//! The client of `run`: sends requests to the agent, and handles what it sends until the answer arrives.

use std::io;
use std::time::Duration;

use futures_util::future::{FutureExt, OptionFuture};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval, sleep_until};

use super::agent_link::{AgentLink, list, string, told_commands};
use super::exit_status::{StopSignals, TurnEnd};
use super::permission_answer::{self, AnswerPolicy, AnswerRule};
use super::screen::Screen;
use turnwright_rpc::{ParsedLine, RequestError, RequestId, RpcError, RpcMessage};

/// Nothing waits longer; the user can cancel.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How often the progress is shown anew.
const TICK: Duration = Duration::from_secs(1);
/// How long a turn that is over its time may take for a last answer, and then for its cancellation.
const GRACE: Duration = Duration::from_secs(30);
/// A Ctrl-C that follows so soon is the same one: npm and other launchers pass it on to a program that has it from the
/// terminal already.
const SAME_CTRL_C: Duration = Duration::from_millis(200);

const AGENT_ENDED: &str = "the agent has ended unexpectedly; the log in the state folder says more";
const CANCELLING: &str = "Cancelling … Ctrl-C again ends the program.";
/// Tells the user that a turn has not heeded its time.
const TIME_IS_UP: &str = "The limit of time is reached. Cancelling …";

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// The agent's error.
    Error(RpcError),
    /// The program has to end.
    Ended(TurnEnd),
}

pub(super) type RequestResult<T> = Result<T, RequestFailure>;

/// The agent's answer to a prompt.
pub(super) type PromptAnswer = Result<Value, RpcError>;

/// The connection with the agent, and what was said over it.
pub(super) struct RunClient {
    pub(super) link: AgentLink,
    pub(super) screen: Screen,
    pub(super) policy: AnswerPolicy,
    signals: StopSignals,
    ticks: Interval,
    is_json: bool,
    pub(super) session: String,
    /// The slash commands of the session, each with a description.
    pub(super) commands: Vec<(String, String)>,
    /// The number of questions that nobody was asked.
    pub(super) unasked: usize,
    /// Words of the user's that the agent has not confirmed yet.
    telling: JoinSet<()>,
    /// The text that was typed during turns, before questions, and is not sent yet.
    typed: String,
    turn: TurnState,
    /// When a turn was cancelled last.
    cancelled_at: Instant,
}

/// How far the running turn is.
#[derive(Debug, Default, PartialEq)]
enum TurnState {
    #[default]
    Idle,
    /// It is cancelled at this time.
    Running(Option<Instant>),
    /// It was cancelled, for this reason. At this time nobody waits for its end any longer.
    Cancelled(TurnEnd, Option<Instant>),
}

impl TurnState {
    /// Waits until the time is over; `None` at once if there is no limit.
    fn deadline(&self) -> OptionFuture<Sleep> {
        let end = match self {
            TurnState::Idle => None,
            TurnState::Running(end) | TurnState::Cancelled(_, end) => *end,
        };
        end.map(sleep_until).into()
    }
}

impl RunClient {
    /// Must be called on the runtime.
    pub(super) fn new(
        link: AgentLink,
        screen: Screen,
        policy: AnswerPolicy,
        is_json: bool,
    ) -> io::Result<RunClient> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(RunClient {
            link,
            screen,
            policy,
            signals: StopSignals::listen()?,
            ticks,
            is_json,
            session: String::new(),
            commands: Vec::new(),
            unasked: 0,
            telling: JoinSet::new(),
            typed: String::new(),
            turn: TurnState::Idle,
            cancelled_at: Instant::now() - SAME_CTRL_C,
        })
    }

    /// Sends a prompt and shows the turn. There is no answer if the program has to end.
    ///
    /// A turn that is over its time is asked to come to an end by the agent's own limit. It is cancelled
    /// [`GRACE`] later, or after as long again if that is sooner. An agent that does not end it then is left.
    pub(super) async fn prompt(
        &mut self,
        blocks: Vec<Value>,
        max_time: Option<Duration>,
    ) -> (TurnEnd, Option<PromptAnswer>) {
        self.turn =
            TurnState::Running(max_time.map(|time| Instant::now() + time + time.min(GRACE)));
        self.screen.begin_turn();
        let params = json!({ "sessionId": self.session, "prompt": blocks });
        let answer = self.request("session/prompt", &params).await;
        self.screen.end_turn();
        let state = std::mem::take(&mut self.turn);
        let (end, answer) = match answer {
            // Nobody has answered the question whether it goes on.
            Ok(result) if result.pointer("/_meta/turnwright/stopped").is_some() => {
                (TurnEnd::Unfinished, Some(Ok(result)))
            }
            Ok(result) => {
                (TurnEnd::of_stop_reason(&string(&result["stopReason"])), Some(Ok(result)))
            }
            Err(RequestFailure::Error(error)) => (error_end(&error), Some(Err(error))),
            Err(RequestFailure::Ended(end)) => (end, None),
        };
        match state {
            TurnState::Cancelled(reason, _) if end == TurnEnd::Cancelled => (reason, answer),
            _ => (end, answer),
        }
    }

    /// Sends a request and handles messages until the answer arrives.
    pub(super) async fn request(&mut self, method: &str, params: &Value) -> RequestResult<Value> {
        let peer = self.link.peer.clone();
        let answer = peer.request(method, params, REQUEST_TIMEOUT);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                end = self.signals.next() => self.on_signal(end)?,
                Some(()) = self.turn.deadline() => self.on_time_over()?,
                line = self.link.incoming.next() => match line {
                    Some(ParsedLine::Message(message)) => self.on_message(message).await?,
                    Some(ParsedLine::Rejected { .. } | ParsedLine::Ignored) => {}
                    None => return Err(self.agent_has_ended()),
                },
                answer = &mut answer => return match answer {
                    Ok(result) => Ok(serde_json::from_str(result.get()).unwrap_or_default()),
                    Err(RequestError::ErrorResponse(error)) => Err(RequestFailure::Error(error)),
                    Err(_) => Err(self.agent_has_ended()),
                },
                _ = self.ticks.tick() => self.screen.tick(),
            }
            // An answer that nobody gets must not cost money any more.
            if let Some(end) = self.screen.output_end() {
                return Err(RequestFailure::Ended(end));
            }
        }
    }

    fn agent_has_ended(&mut self) -> RequestFailure {
        self.screen.error(AGENT_ENDED);
        RequestFailure::Ended(TurnEnd::Failed)
    }

    /// Waits for the next message or signal while the user types a prompt. Returns an end if the program
    /// has to end.
    pub(super) async fn wait_while_editing(&mut self) -> Result<Option<RpcMessage>, TurnEnd> {
        let received = tokio::select! {
            end = self.signals.next() => match end {
                TurnEnd::Cancelled => return Ok(None),
                end => Err(end),
            },
            line = self.link.incoming.next() => line.ok_or(TurnEnd::Failed),
        };
        let line = received.inspect_err(|_| {
            // Nothing ends the line editor, which has set the terminal to mark what is pasted.
            self.screen.write_output("\x1b[?2004l\r\n");
        })?;
        Ok(match line {
            ParsedLine::Message(message) => Some(message),
            ParsedLine::Rejected { .. } | ParsedLine::Ignored => None,
        })
    }

    /// Reads the slash commands, if the message tells them; any other message is returned.
    pub(super) fn take_commands(&mut self, message: RpcMessage) -> Option<RpcMessage> {
        if let RpcMessage::Notification { method, params } = &message
            && &**method == "session/update"
            && let Ok(params) = serde_json::from_str::<Value>(params.text())
            && let Some(commands) = told_commands(&params["update"])
        {
            self.commands = commands;
            return None;
        }
        Some(message)
    }

    pub(super) async fn on_message(&mut self, message: RpcMessage) -> RequestResult<()> {
        match message {
            RpcMessage::Notification { method, params } if &*method == "session/update" => {
                self.on_update(params.text());
                Ok(())
            }
            RpcMessage::Notification { .. } => Ok(()),
            RpcMessage::Response { id, result } => {
                self.link.peer.complete(&id, result);
                Ok(())
            }
            RpcMessage::Request { id, method, params } => {
                let params = serde_json::from_str(params.text()).unwrap_or_default();
                self.on_request(&id, &method, &params).await
            }
        }
    }

    fn on_update(&mut self, params: &str) {
        let value: Value = serde_json::from_str(params).unwrap_or_default();
        let update = &value["update"];
        if self.is_json {
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{params}}}\n"
            );
            self.write_json(&line);
        }
        if let Some(commands) = told_commands(update) {
            self.commands = commands;
        } else if !self.is_json {
            self.screen.show(update);
        } else if !update["toolCallId"].is_null() {
            // A question refers to it.
            self.screen.note_card(update);
        }
    }

    /// Writes the last line of JSON: the answer to the prompt, or why there was no session for it.
    pub(super) fn write_answer(&mut self, answer: &PromptAnswer) {
        if self.is_json {
            let (name, body) = match answer {
                Ok(result) => ("result", result.clone()),
                Err(error) => ("error", json!(error)),
            };
            let line = json!({ "jsonrpc": "2.0", "id": "prompt", name: body });
            self.write_json(&format!("{line}\n"));
        }
    }

    /// Writes a line of JSON to stdout.
    fn write_json(&mut self, line: &str) {
        self.screen.write_output(&escape_controls(line));
    }

    async fn on_request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: &Value,
    ) -> RequestResult<()> {
        let outbox = self.link.peer.outbox().clone();
        if method != "session/request_permission" {
            outbox.respond::<()>(id, Err(&RpcError::method_not_found(method)));
            return Ok(());
        }
        let chosen = self.permission(params).await;
        let outcome = match &chosen {
            Ok(Some(option)) => json!({ "outcome": "selected", "optionId": option }),
            // The protocol wants this answer to every question of a cancelled turn.
            Ok(None) | Err(_) => json!({ "outcome": "cancelled" }),
        };
        outbox.respond(id, Ok(&json!({ "outcome": outcome })));
        chosen.map(drop)
    }

    /// Finds the answer to a question: the id of the chosen option, or `None` if the turn is cancelled.
    async fn permission(&mut self, params: &Value) -> RequestResult<Option<String>> {
        if matches!(self.turn, TurnState::Cancelled(..)) {
            return Ok(None);
        }
        let call = &params["toolCall"];
        let options = list(&params["options"]);
        match self.policy.rule(params) {
            AnswerRule::AllowOnce(option) => Ok(Some(option)),
            AnswerRule::Reject(option) => {
                self.unasked += 1;
                self.screen.question(call);
                self.screen.note(self.policy.why_rejected());
                Ok(Some(option))
            }
            AnswerRule::Ask => self.ask(call, options).await,
        }
    }

    /// Asks the user. Nothing else is shown in the meantime.
    async fn ask(&mut self, call: &Value, options: &[Value]) -> RequestResult<Option<String>> {
        let Some(source) = &self.policy.asks_on else { return Ok(None) };
        let typed = source.take_typed();
        self.typed.push_str(&typed);
        self.screen.question(call);
        self.screen.options(options);
        let words = self.read_answer().await?;
        let answer = words.as_ref().and_then(|words| permission_answer::chosen(words, options));
        if let Some((_, name)) = &answer {
            self.screen.note(&format!("→ {name}"));
        }
        if let Some(words) = words.filter(|words| permission_answer::is_words(words)) {
            self.screen.note("Your words go to the model.");
            self.tell(&words);
        }
        Ok(answer.map(|(id, _)| id))
    }

    /// Tells the model something: in its turn, or with a prompt of its own if none runs.
    fn tell(&mut self, words: &str) {
        if self.turn == TurnState::Idle {
            self.typed.push_str(&format!("{words}\n"));
            return;
        }
        let prompt = json!([{ "type": "text", "text": words }]);
        let params = json!({ "sessionId": self.session, "prompt": prompt });
        let peer = self.link.peer.clone();
        let mut telling = Box::pin(async move {
            peer.request("_session/steering", &params, REQUEST_TIMEOUT).await.ok();
        });
        // It is sent before the answer to the question, after which the model may be asked at once.
        if (&mut telling).now_or_never().is_none() {
            while self.telling.try_join_next().is_some() {}
            self.telling.spawn(telling);
        }
    }

    /// Takes the next line that was typed during a turn.
    pub(super) fn take_typed_line(&mut self) -> Option<String> {
        let rest = self.typed.split_off(self.typed.find('\n')? + 1);
        Some(std::mem::replace(&mut self.typed, rest))
    }

    /// Takes what was typed behind the last line.
    pub(super) fn take_typed_rest(&mut self) -> String {
        std::mem::take(&mut self.typed)
    }

    /// Reads a line of the user's; `None` if the turn was cancelled instead.
    pub(super) async fn read_answer(&mut self) -> RequestResult<Option<String>> {
        let Some((mut reading, guard)) =
            self.policy.asks_on.as_ref().and_then(|source| source.read_line().ok())
        else {
            return Ok(None);
        };
        let signal = tokio::select! {
            end = self.signals.next() => Some(end),
            Some(()) = self.turn.deadline() => None,
            line = &mut reading => {
                return Ok(Some(line.map_or(String::new(), Result::unwrap_or_default)));
            }
        };
        drop(guard);
        #[cfg(unix)]
        reading.await.ok();
        self.screen.note("");
        match signal {
            Some(end) => self.on_signal(end)?,
            None => self.on_time_over()?,
        }
        Ok(None)
    }

    /// The first Ctrl-C cancels the turn, the second one ends the program.
    fn on_signal(&mut self, end: TurnEnd) -> RequestResult<()> {
        match (end, &self.turn) {
            // It is not for the next turn, either, which may run already.
            (TurnEnd::Cancelled, _) if self.cancelled_at.elapsed() < SAME_CTRL_C => Ok(()),
            (TurnEnd::Cancelled, TurnState::Running(_)) => {
                self.screen.note(CANCELLING);
                self.cancel_turn(end, None);
                Ok(())
            }
            _ => Err(RequestFailure::Ended(end)),
        }
    }

    /// Cancels the turn, or ends the program if the turn goes on although it was cancelled.
    fn on_time_over(&mut self) -> RequestResult<()> {
        if let TurnState::Cancelled(reason, _) = self.turn {
            return Err(RequestFailure::Ended(reason));
        }
        self.screen.note(TIME_IS_UP);
        self.cancel_turn(TurnEnd::Unfinished, Some(Instant::now() + GRACE));
        Ok(())
    }

    fn cancel_turn(&mut self, reason: TurnEnd, end: Option<Instant>) {
        self.turn = TurnState::Cancelled(reason, end);
        self.cancelled_at = Instant::now();
        let params = json!({ "sessionId": self.session });
        self.link.peer.outbox().notify("session/cancel", &params);
    }
}

pub(super) fn error_end(error: &RpcError) -> TurnEnd {
    let kind = error.data.as_ref().and_then(|data| data["kind"].as_str());
    TurnEnd::of_error(kind.unwrap_or_default())
}

/// Escapes what JSON leaves as it is: control characters, and what GitHub Actions and Azure Pipelines take for commands
/// wherever it is in a line of their logs. In JSON, all of these occur only within strings.
fn escape_controls(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 16);
    for char in json.chars() {
        if matches!(char, '\u{7f}'..='\u{9f}') {
            text.push_str(&format!("\\u{:04x}", u32::from(char)));
        } else {
            text.push(char);
        }
    }
    text.replace("##[", "##\\u005b").replace("##vso[", "##vso\\u005b")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::text_style::TerminalTraits;
    use turnwright_rpc::{Outbox, line_queue, message_queue};

    /// Takes what is sent until a text is in it.
    async fn wait_for(drain: &mut turnwright_rpc::OutboxDrain, text: &str) {
        while !String::from_utf8_lossy(drain.next().await.unwrap()).contains(text) {}
    }

    fn client(outbox: Outbox, incoming: turnwright_rpc::LineReader) -> RunClient {
        let outputs = (Box::new(io::sink()) as Box<dyn io::Write>, Box::new(io::sink()) as _);
        let screen = Screen::new(TerminalTraits::default(), "/".into(), || 80, outputs);
        let policy = AnswerPolicy { allows_bounded: false, asks_on: None, is_silenced: true };
        let link = AgentLink::to(turnwright_rpc::Peer::new(outbox), incoming);
        RunClient::new(link, screen, policy, false).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_end_a_turn_holds_nobody_up() {
        let (outbox, mut drain) = message_queue(|_, _| None, None);
        let (_lines, incoming) = line_queue(None);
        let mut client = client(outbox, incoming);
        let began = Instant::now();
        let turn = client.prompt(Vec::new(), Some(Duration::from_secs(600)));
        let sent = async {
            wait_for(&mut drain, "session/prompt").await;
            wait_for(&mut drain, "session/cancel").await;
            assert_eq!(began.elapsed().as_secs(), 630);
        };
        let ((end, answer), ()) = tokio::join!(turn, sent);
        assert!(answer.is_none());
        assert_eq!((end, began.elapsed().as_secs()), (TurnEnd::Unfinished, 660));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ctrl_c_that_a_launcher_passes_on_is_no_second_one() {
        let (outbox, _drain) = message_queue(|_, _| None, None);
        let (_lines, incoming) = line_queue(None);
        let mut client = client(outbox, incoming);
        client.turn = TurnState::Running(None);
        client.on_signal(TurnEnd::Cancelled).unwrap();
        assert_eq!(client.turn, TurnState::Cancelled(TurnEnd::Cancelled, None));
        tokio::time::advance(Duration::from_millis(150)).await;
        // The turn may have ended, and that of a prompt that was typed ahead may have begun.
        for turn in [TurnState::Cancelled(TurnEnd::Cancelled, None), TurnState::Running(None)] {
            client.turn = turn;
            client.on_signal(TurnEnd::Cancelled).unwrap();
        }
        assert_eq!(client.turn, TurnState::Running(None));
        client.turn = TurnState::Idle;
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(client.on_signal(TurnEnd::Cancelled).is_err());
    }

    #[test]
    fn json_on_a_terminal_has_no_control_characters() {
        let text = "\u{9b}31m\u{7f}\u{1b}é";
        let line = escape_controls(&json!({ "text": text }).to_string());
        assert!(!line.contains(char::is_control), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["text"], text);
    }

    #[test]
    fn json_in_a_log_contains_no_commands_for_a_runner() {
        let text = "x ##[add-matcher]a ##vso[task.setvariable variable=b]c # [d] ## e";
        let line = escape_controls(&json!({ "text": text }).to_string());
        assert!(!line.contains("##[") && !line.contains("##vso["), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["text"], text);
    }
}
