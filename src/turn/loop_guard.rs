//! Handles a model that goes round in circles: first with a word to the model, in the result of the call,
//! then with a question to the user.

use super::loop_detector::{EndedCall, LoopFinding, Repetition};
use super::{Turn, TurnStep, redacted, stopped_note};
use crate::tools;
use turnwright_types::client::{UserQuestion, UserReply};
use turnwright_types::effect::{ToolKind, escape_hidden_line, shorten_title};
use turnwright_types::message::{
    Arguments, AssistantMessage, Message, StopReason, ToolCall, ToolMessage, UserMessage,
};

/// The answers to the question whether the turn goes on.
const GO_ON: &str = "Go on";
const STOP: &str = "Stop";
const GUIDE: &str = "Tell it what to do instead";

/// A repetition that the user is asked about.
pub(super) struct LoopQuestion {
    call: ToolCall,
    repetition: Repetition,
}

impl Turn {
    /// Tells the model in the results if it goes round in circles. Returns what the user must be asked
    /// about.
    pub(super) async fn check_loops(
        &mut self,
        results: &mut [ToolMessage],
        all_invalid: bool,
    ) -> Option<LoopQuestion> {
        if !self.conversation.limits.stops_loops {
            return None;
        }
        let answer = self.history.messages.last().cloned()?;
        let Message::Assistant(AssistantMessage { calls, .. }) = answer.as_ref() else {
            return None;
        };
        let changes = self.conversation.env.shared.checkpoint.change_count();
        let ran_changes = self.loops.note_changes(changes);
        let mut found = self.loops.begin_answer(all_invalid);
        let mut question = None;
        for (call, result) in calls.iter().zip(results) {
            let may_matter = !result.ok || self.loops.has_failures();
            let ended = EndedCall {
                tool: &call.name,
                arguments: &call.arguments,
                ok: result.ok,
                result: &result.text,
                edited: may_matter.then(|| self.edited_path(call)).flatten(),
                is_waiting: tools::is_waiting(&self.conversation.env, call),
                has_changed: ran_changes || result.ok && self.is_edit(&call.name),
            };
            match self.loops.add(&ended).or(found.take()) {
                Some(LoopFinding::Remind(repetition)) => {
                    let note = self.reminder(repetition, call).await;
                    result.text = format!("{}\n{note}", result.text.trim_end_matches('\n'));
                    self.conversation.log().replace_result(&result.call, result.text.clone());
                }
                Some(LoopFinding::Ask(repetition)) => {
                    question = Some(LoopQuestion { call: call.clone(), repetition });
                }
                None => {}
            }
        }
        question
    }

    /// The file that a call was to edit.
    fn edited_path<'a>(&self, call: &'a ToolCall) -> Option<&'a str> {
        let Arguments::Object(arguments) = &call.arguments else { return None };
        let view = self.conversation.tools.find(&call.name).ok()?.pending_view()?;
        tools::edited_path(arguments).filter(|_| view.kind == ToolKind::Edit)
    }

    async fn reminder(&self, repetition: Repetition, call: &ToolCall) -> String {
        match repetition {
            Repetition::SameCall { times } => format!(
                "[You have made this call {times} times, always with this result. Do something else, \
                 or say what is missing.]"
            ),
            Repetition::Stale { calls } => format!(
                "[Your last {calls} calls have had only results that you had before. What does not fit \
                 into your context at once, work through in parts, and note what you find. Or say what \
                 is missing.]"
            ),
            Repetition::InvalidCalls { answers } => format!(
                "[{answers} answers in a row had only calls that cannot run. Call a tool that you were \
                 given, with arguments that fit its schema, or answer in words.]"
            ),
            Repetition::FailedEdit { times } => {
                let Arguments::Object(arguments) = &call.arguments else { return String::new() };
                let place = tools::current_place(&self.conversation.env, arguments).await;
                let advice =
                    place.map_or("Read the file before the next one.".to_owned(), |text| {
                        format!(
                            "Copy what you quote exactly from the text that is there now:\n{text}\n"
                        )
                    });
                format!("[{times} edits of this file have failed in a row. {advice}]")
            }
        }
    }

    /// Asks the user whether the turn goes on.
    pub(super) async fn ask_about_loop(&mut self, asked: LoopQuestion) -> TurnStep {
        let LoopQuestion { call, repetition } = asked;
        if self.is_helper() {
            return self.ask_for_report();
        }
        let what = description(repetition, &call);
        let options = [GO_ON, STOP, GUIDE].map(str::to_owned).to_vec();
        let Some(reply) = self.ask(&call, format!("{what} Shall it go on?"), options).await else {
            return TurnStep::End(Ok(StopReason::Cancelled));
        };
        let reason = match reply {
            UserReply::Answered(words) if words.first().is_some_and(|word| word == GO_ON) => {
                self.loops.reset();
                return TurnStep::Sample;
            }
            UserReply::Answered(words) if words.first().is_some_and(|word| word == GUIDE) => {
                match self.ask_for_guidance(&call).await {
                    Some(step) => return step,
                    None => StopReason::EndTurn,
                }
            }
            UserReply::Answered(_) => StopReason::EndTurn,
            UserReply::InConversation => {
                self.say(format!("{what} Shall it go on? Say so, or what it should do instead."));
                StopReason::Repetition
            }
            UserReply::Declined | UserReply::Cancelled | UserReply::Unsupported => {
                self.say(format!(
                    "Stopped: {what} Say what it should do differently, or choose another model."
                ));
                StopReason::MaxTurnRequests
            }
        };
        if let Some(note) = stopped_note(&self.history, "the same was done again and again") {
            self.push_hidden_message(note);
        }
        TurnStep::End(Ok(reason))
    }

    /// Asks the user something about a call. Returns `None` if the turn was cancelled.
    async fn ask(
        &self,
        call: &ToolCall,
        question: String,
        options: Vec<String>,
    ) -> Option<UserReply> {
        let call = call.id.clone();
        let question = UserQuestion { call, question, options, allows_multiple: false };
        let asking = self.conversation.client().ask_user(question);
        self.cancel.run_until_cancelled(asking).await
    }

    /// Asks the user what the model should do instead, which it reads before its next request. `None` if
    /// the user does not say it now.
    async fn ask_for_guidance(&mut self, call: &ToolCall) -> Option<TurnStep> {
        let question = "What should the model do instead?".to_owned();
        let Some(reply) = self.ask(call, question, Vec::new()).await else {
            return Some(TurnStep::End(Ok(StopReason::Cancelled)));
        };
        if let UserReply::Answered(words) = reply
            && self
                .steering
                .push(self.conversation.log(), None, UserMessage::text(words.join("\n")))
                .is_ok()
        {
            return Some(TurnStep::Sample);
        }
        self.say("Stopped. Your next prompt tells it what to do instead.".to_owned());
        None
    }
}

/// Describes the repetition in a sentence for the user.
fn description(repetition: Repetition, call: &ToolCall) -> String {
    let arguments = match &call.arguments {
        Arguments::Object(value) => value.to_string(),
        Arguments::Unusable { text, .. } => text.clone(),
    };
    let line = redacted(&format!("{} {arguments}", call.name));
    let shown = shorten_title(escape_hidden_line(&line));
    match repetition {
        Repetition::SameCall { times } => format!(
            "The model has made the same call {times} times, always with the same result: `{shown}`."
        ),
        Repetition::Stale { calls } => format!(
            "The last {calls} calls of the model have had only results that it had before. The last was \
             `{shown}`."
        ),
        Repetition::InvalidCalls { answers } => format!(
            "The model has given {answers} answers in a row with only calls that cannot run. The last \
             was `{shown}`."
        ),
        Repetition::FailedEdit { times } => {
            format!("{times} edits of the same file have failed in a row. The last was `{shown}`.")
        }
    }
}
