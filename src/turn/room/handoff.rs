//! The message that replaces the older part of a conversation when it is compacted: the user's own words, the
//! model's summary and facts that need no model. The facts come from the session itself, so that they do not depend
//! on what the model has thought of in its summary; the rest is pure.

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;

use super::budget::HandoffLimits;
use crate::tools::{means, shown_form};
use crate::turn::Conversation;
use crate::turn::conversation::MODE_PREFIX;
use crate::turn::prompt::{DATE_PREFIX, date_line};
use turnwright_store::file_versions::{self, UndoableTurn};
use turnwright_store::read;
use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden_line};
use turnwright_types::message::{
    Arguments, Message, PromptPart, ToolMessage, UserMessage, render_part,
};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::token_meter::{media_weight, message_weight, part_weight, text_weight};
use turnwright_types::update::{PlanEntry, PlanStatus};
use turnwright_undo::UndoHistory;

/// The start of the text of a command or skill that a prompt runs.
pub(crate) const COMMAND_HEAD: &str = "The user has run the ";
/// The first line of a part with something that the user has said.
const USER_HEAD: &str = "The user said earlier:\n";
/// The first line of the part with the summary.
const SUMMARY_HEAD: &str = "Summary of the conversation until here, by an instance of you that no \
                            longer has it. Verify before you rely on it.\n";
/// The first line of the part with facts.
const FACTS_HEAD: &str = "State at this point:\n";
/// Takes the place of the summary if there is none.
const NO_SUMMARY: &str = "The older part of the conversation was left out to make room. Read files again \
                          where you need them.\n";
/// Takes the place of the user's messages that are left out.
const OMITTED_MESSAGES_NOTE: &str = "Other messages of the user are left out here.";
/// The start of the line of facts with the files that were read.
const FILES_READ: &str = "Files read: ";
/// The length in bytes below which a kept result is not cut.
const MIN_RESULT_BYTES: u64 = 400;

/// The newest messages of a conversation, which are kept when it is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::turn) struct KeptTail {
    /// The number of messages.
    pub(in crate::turn) count: usize,
    /// Longer results among them are cut to this many bytes.
    pub(in crate::turn) max_result: usize,
}

impl KeptTail {
    /// Chooses what to keep. A step is kept with all its results or not at all; the last one is
    /// always kept if the model has not answered its results yet, and so is what the user has said last.
    pub(in crate::turn) fn choose(messages: &[Arc<Message>], limits: &HandoffLimits) -> KeptTail {
        let newest = messages.iter().rev();
        let unanswered = newest.clone().take_while(|message| message.as_tool().is_some()).count();
        let max_result = (limits.tail / (unanswered as u64 + 1)).max(MIN_RESULT_BYTES);
        let waiting = newest.take_while(|message| message.as_user().is_some()).count();
        // A prompt that waits for its answer is not among the words of the user.
        let limit = limits.tail + if waiting > 0 { limits.user_words } else { 0 };
        let mut weight = 0;
        let mut count = 0;
        for (newer, message) in messages.iter().skip(1).rev().enumerate() {
            let result = message.as_tool();
            weight += match result {
                Some(result) => {
                    text_weight(&result.text).min(max_result)
                        + media_weight(slice::from_ref(message))
                }
                None => message_weight(message),
            };
            let must_stay = unanswered > 0 && newer <= unanswered || newer < waiting;
            if weight > limit && !must_stay {
                break;
            }
            if result.is_none() {
                count = newer + 1;
            }
        }
        KeptTail { count, max_result: usize::try_from(max_result).unwrap_or(usize::MAX) }
    }

    /// Lets the results have the part of `room` that the other messages leave. If the model sees too little of
    /// one, it has to read that again.
    pub(super) fn widen(&mut self, messages: &[Arc<Message>], room: u64) {
        let kept = &messages[messages.len() - self.count..];
        let (results, others): (Vec<_>, Vec<_>) =
            kept.iter().partition(|message| message.as_tool().is_some());
        let pictures: u64 =
            results.iter().map(|result| media_weight(slice::from_ref(*result))).sum();
        let taken: u64 = others.iter().map(|message| message_weight(message)).sum();
        let share = room.saturating_sub(taken + pictures).checked_div(results.len() as u64);
        let max_result = usize::try_from(share.unwrap_or_default()).unwrap_or(usize::MAX);
        self.max_result = self.max_result.max(max_result);
    }
}

/// Replaces everything but the kept messages by one.
pub(crate) fn compact(
    messages: &mut Vec<Arc<Message>>,
    replacement: Arc<Message>,
    kept: usize,
    max_result: usize,
) {
    let tail = messages.split_off(messages.len().saturating_sub(kept));
    *messages = vec![replacement];
    // A result without its call would make the conversation invalid.
    let tail = tail.into_iter().skip_while(|message| message.as_tool().is_some());
    // A shared message would stand for what was rendered before it.
    messages.extend(tail.map(|message| Arc::new(with_cut_result(&message, max_result))));
}

fn with_cut_result(message: &Message, max_result: usize) -> Message {
    match message {
        Message::Tool(tool) if tool.text.len() > max_result => Message::Tool(ToolMessage {
            text: text::clip_middle(&tool.text, max_result),
            ..tool.clone()
        }),
        other => other.clone(),
    }
}

/// The message in place of these messages. `prompt` is the index of the one that waits for its answer: it is
/// not quoted, but goes on as it is.
pub(in crate::turn) fn replacement(
    messages: &[Arc<Message>],
    limits: &HandoffLimits,
    prompt: Option<usize>,
    summary: Option<&str>,
    facts: &str,
) -> UserMessage {
    let mut parts = first_prompt_context(messages, limits.first_prompt_context);
    parts.extend(user_words(messages, limits.user_words, prompt));
    match summary {
        Some(summary) => {
            let summary = cut_to_weight(summary.trim(), limits.summary);
            parts.push(format!("{SUMMARY_HEAD}{summary}"));
        }
        None if prompt == Some(0) && messages.len() == 1 => {}
        None => parts.push(NO_SUMMARY.to_owned()),
    }
    parts.push(format!("{FACTS_HEAD}{}", cut_to_weight(facts, limits.facts)));
    let mut parts: Vec<_> = parts.into_iter().map(PromptPart::Context).collect();
    if let Some(prompt) = prompt.and_then(|index| messages.get(index)?.as_user()) {
        parts.extend(own_parts(prompt, limits.media));
    }
    UserMessage::new(parts)
}

/// Returns the parts of a waiting prompt that stay unchanged beside a summary: what the user has written or attached,
/// and the text of the command that the prompt runs.
pub(super) fn lasting_parts(prompt: &UserMessage) -> impl Iterator<Item = &PromptPart> {
    prompt.parts.iter().filter(|part| match part {
        PromptPart::Context(text) => text.starts_with(COMMAND_HEAD),
        _ => true,
    })
}

/// The same, with pictures and recordings up to this weight; notes take the place of the others.
fn own_parts(prompt: &UserMessage, mut media: u64) -> Vec<PromptPart> {
    let kept = lasting_parts(prompt).map(|part| {
        let Some(note) = left_out_note(part) else { return part.clone() };
        match media.checked_sub(part_weight(part)) {
            Some(left) => {
                media = left;
                part.clone()
            }
            None => PromptPart::Text(note),
        }
    });
    kept.collect()
}

/// The text that takes the place of a picture or recording.
fn left_out_note(part: &PromptPart) -> Option<String> {
    let kind = match part {
        PromptPart::Image(media) => media.kind(),
        PromptPart::Audio(_) => "recording",
        _ => return None,
    };
    Some(format!("[{kind} left out to save room]"))
}

/// The summary in a replacement, if it has one.
pub(crate) fn summary_of(message: &Message) -> Option<&str> {
    context_parts(message).find_map(|text| text.strip_prefix(SUMMARY_HEAD))
}

/// The files that an earlier replacement says were read.
fn files_read_before(message: &Message) -> Option<&str> {
    let facts = context_parts(message).find_map(|text| text.strip_prefix(FACTS_HEAD))?;
    facts.lines().find_map(|line| line.strip_prefix(FILES_READ))
}

/// True if the conversation begins with a replacement.
pub(super) fn is_compacted(messages: &[Arc<Message>]) -> bool {
    let mut context = messages.first().into_iter().flat_map(|first| context_parts(first));
    context.any(|text| text.starts_with(FACTS_HEAD))
}

/// Returns the context in a message of the user, which is not the user's own words.
pub(crate) fn context_parts(message: &Message) -> impl Iterator<Item = &str> {
    let parts = message.as_user().into_iter().flat_map(|user| &user.parts);
    parts.filter_map(|part| match part {
        PromptPart::Context(text) => Some(text.as_str()),
        _ => None,
    })
}

/// The context that came with the first prompt: folders, project instructions. Its mode and its date are left
/// out, because they may have changed, and so is a command, which is not to be run again in a later turn.
fn first_prompt_context(messages: &[Arc<Message>], limit: u64) -> Vec<String> {
    let Some(first) = messages.first() else { return Vec::new() };
    let heads =
        [USER_HEAD, SUMMARY_HEAD, FACTS_HEAD, NO_SUMMARY, OMITTED_MESSAGES_NOTE, COMMAND_HEAD];
    let own = context_parts(first).filter(|text| !heads.iter().any(|head| text.starts_with(head)));
    let mut left = limit;
    let mut parts = Vec::new();
    for text in own {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with(MODE_PREFIX) && !line.starts_with(DATE_PREFIX));
        let current: String = lines.flat_map(|line| [line, "\n"]).collect();
        let part = cut_to_weight(&current, left);
        left = left.saturating_sub(text_weight(&part));
        if !part.trim().is_empty() {
            parts.push(part);
        }
    }
    parts
}

/// The user's messages, word for word: the first ones, which usually hold the task and its conditions, and
/// the newest ones.
fn user_words(messages: &[Arc<Message>], limit: u64, prompt: Option<usize>) -> Vec<String> {
    let words = messages.iter().enumerate().flat_map(|(index, message)| {
        let (mut earlier, said) = user_words_in(message);
        earlier.extend(said.filter(|_| prompt != Some(index)));
        earlier.extend(answer_to_call(&messages[..index], message, limit / 4));
        earlier
    });
    let said: Vec<String> = words.collect();
    let (mut first, left) = quotes(said.iter(), limit / 4);
    let (newest, _) = quotes(said[first.len()..].iter().rev(), limit - limit / 4 + left);
    if first.len() + newest.len() < said.len() {
        first.push(OMITTED_MESSAGES_NOTE.to_owned());
    }
    first.extend(newest.into_iter().rev());
    first
}

/// The user's answer in this result, and after it the plan, the question or the rejected call, up to this weight.
fn answer_to_call(before: &[Arc<Message>], message: &Message, limit: u64) -> Option<String> {
    let result = message.as_tool()?;
    let answers = before.iter().rev().filter_map(|message| message.as_assistant());
    let call = answers.flat_map(|answer| &answer.calls).find(|call| call.id == result.call)?;
    let Arguments::Object(arguments) = &call.arguments else { return None };
    let shown = |argument: &str| arguments.get(argument)?.as_str().map(shown_form);
    let first_line = text::first_line(&result.text);
    let (answer, subject) = match result.name.as_str() {
        name if result.ok && means(name, PLAN_TOOL) => (first_line, shown("plan")?),
        name if result.ok && means(name, QUESTION_TOOL) => (&*result.text, shown("question")?),
        name if is_rejected(result) => {
            (first_line, text::clip_middle(&format!("{name} {arguments}"), MAX_ERROR_BYTES))
        }
        _ => return None,
    };
    Some(format!("{answer}\n{}", cut_to_weight(&subject, limit)))
}

/// Returns true if the user has rejected the call of this result.
pub(in crate::turn) fn is_rejected(result: &ToolMessage) -> bool {
    !result.ok && result.text.starts_with(&ToolRefusal::rejected().for_model)
}

/// Quotes the texts up to this weight, and at least the first. Returns what is left of the weight.
fn quotes<'a>(texts: impl Iterator<Item = &'a String>, mut left: u64) -> (Vec<String>, u64) {
    let mut quotes = Vec::new();
    for text in texts {
        if !quotes.is_empty() && quote_weight(text) > left {
            break;
        }
        quotes.push(format!("{USER_HEAD}{}", cut_to_weight(text, left)));
        left = left.saturating_sub(quote_weight(text));
    }
    (quotes, left)
}

fn quote_weight(text: &str) -> u64 {
    text_weight(text) + USER_HEAD.len() as u64
}

/// Returns the words of the user that an earlier replacement quotes, and those in this message.
fn user_words_in(message: &Message) -> (Vec<String>, Option<String>) {
    let Message::User(user) = message else { return (Vec::new(), None) };
    let earlier = context_parts(message).filter_map(|text| text.strip_prefix(USER_HEAD));
    let mut said = String::new();
    for part in &user.parts {
        match part {
            PromptPart::Context(_) => {}
            PromptPart::Resource { uri, .. } => said.push_str(&format!("[attached: {uri}]")),
            part => match left_out_note(part) {
                Some(note) => said.push_str(&note),
                None => render_part(part, &mut said),
            },
        }
    }
    (earlier.map(str::to_owned).collect(), Some(said).filter(|words| !words.trim().is_empty()))
}

pub(super) fn cut_to_weight(text: &str, weight: u64) -> String {
    // No text is longer than its weight.
    text::clip_middle(text, usize::try_from(weight).unwrap_or(usize::MAX))
}

/// The most files of each kind that are named.
const MAX_FILES: usize = 30;
/// The most undone turns that are named.
const MAX_UNDONE: usize = 5;
/// Only errors among the newest results are still open.
const NEWEST_RESULTS: usize = 10;
/// How much of an error is told.
const MAX_ERROR_BYTES: usize = 300;
/// The tool whose paths are the files that were read.
const READ_TOOL: &str = "read_file";
/// The tool with which a plan is shown to the user.
pub(super) const PLAN_TOOL: &str = "exit_plan";
/// The tool that loads a skill.
pub(super) const SKILL_TOOL: &str = "skill";
/// The tool with which the user is asked something.
pub(super) const QUESTION_TOOL: &str = "ask_user";

/// The facts about a session, one or more lines each. `old` are the messages that the model no
/// longer gets, and `kept` those after them.
pub(super) async fn gather_facts(
    conversation: &Conversation,
    old: &[Arc<Message>],
    kept: &[Arc<Message>],
) -> String {
    let (entries, changed, turns) = stored_facts(conversation).await;
    let env = &conversation.env;
    let mut text = date_line() + &conversation.mode_line();
    plan(&entries, &mut text);
    list("Files changed in this session, with the number of calls: ", &changed, &mut text);
    list(FILES_READ, &files_read(old), &mut text);
    let undone = undone(&turns);
    list("The user has undone the file changes of: ", &undone, &mut text);
    if !env.jobs.running().ids().is_empty() {
        text.push_str(&env.jobs.describe());
        text.push('\n');
    }
    let helpers = env.helpers.in_background();
    list("Helpers at work in the background, whose answers you get: ", &helpers, &mut text);
    let skills = named_by_calls(old, SKILL_TOOL, ["name", "skill"]);
    list("Skills in use; load them again: ", &skills, &mut text);
    for error in open_errors(old, kept) {
        let words = text::clip_middle(&escape_hidden_line(&error.text), MAX_ERROR_BYTES);
        text.push_str(&format!("Not solved yet: {} failed: {words}\n", error.name));
    }
    text
}

/// The plan of a session, the names of the files that it has changed, each with the number of calls, and its turns.
pub(in crate::turn) async fn stored_facts(
    conversation: &Conversation,
) -> (Vec<PlanEntry>, Vec<String>, Vec<UndoableTurn>) {
    let Some(store) = conversation.log().store().cloned() else { return Default::default() };
    // Changes by the last calls may still be on their way into the store.
    conversation.log().flush().written().await;
    let session = conversation.env.session.clone();
    // The changes of a helper belong to the session that has started it.
    let (changed_in, prefix) =
        conversation.log().recorded_elsewhere().unwrap_or_else(|| (session.clone(), String::new()));
    let reading = store.read(move |connection| {
        let key = read::session_key(connection, &session)?;
        let changed_in = read::session_key(connection, &changed_in)?;
        Ok((
            read::current_plan(connection, key)?,
            file_versions::changed_files(connection, changed_in, &prefix, MAX_FILES)?,
            file_versions::undoable_turns(connection, key)?,
        ))
    });
    let (plan, changed, turns) = reading.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the facts of the session could not be read");
        Default::default()
    });
    let roots = conversation.env.files.roots();
    let named = changed.into_iter().map(|(path, count)| {
        let path = roots.display_path(&ResolvedPath { path, scope: PathScope::Workspace });
        format!("{path} ({count})")
    });
    (plan, named.collect(), turns)
}

fn plan(entries: &[PlanEntry], text: &mut String) {
    if entries.iter().all(|entry| entry.status == PlanStatus::Completed) {
        return;
    }
    text.push_str("Plan:\n");
    for entry in entries {
        let mark = match entry.status {
            PlanStatus::Pending => " ",
            PlanStatus::InProgress => ">",
            PlanStatus::Completed => "x",
        };
        text.push_str(&format!("- [{mark}] {}\n", escape_hidden_line(&entry.content)));
    }
}

/// Adds a line with these items, if there are any.
fn list(start: &str, items: &[String], text: &mut String) {
    if !items.is_empty() {
        text.push_str(&format!("{start}{}\n", items.join(", ")));
    }
}

/// The files that the model has read, the newest last. Files from an earlier compaction come first.
fn files_read(old: &[Arc<Message>]) -> Vec<String> {
    let earlier = old.first().and_then(|message| files_read_before(message)).unwrap_or_default();
    let new = named_by_calls(old, READ_TOOL, ["path", "paths"]);
    let mut files: Vec<String> = earlier.split(", ").map(str::to_owned).collect();
    files.retain(|file| !file.is_empty() && !new.contains(file));
    files.extend(new);
    files.split_off(files.len().saturating_sub(MAX_FILES))
}

/// The texts in these arguments of the tool's calls, or in lists there: each once, the newest last.
fn named_by_calls(old: &[Arc<Message>], tool: &str, arguments: [&str; 2]) -> Vec<String> {
    let mut names = Vec::new();
    let answers = old.iter().filter_map(|message| message.as_assistant());
    for call in answers.flat_map(|answer| &answer.calls).filter(|call| means(&call.name, tool)) {
        let Arguments::Object(object) = &call.arguments else { continue };
        for value in arguments.iter().filter_map(|argument| object.get(*argument)) {
            let several = value.as_array().map_or(slice::from_ref(value), Vec::as_slice);
            for name in several.iter().filter_map(|one| one.as_str()).map(escape_hidden_line) {
                names.retain(|known| *known != name);
                names.push(name);
            }
        }
    }
    names
}

/// The prompts whose file changes the user has undone.
fn undone(turns: &[UndoableTurn]) -> Vec<String> {
    let in_force = UndoHistory::from_turns(turns).undoable;
    let undone = turns.iter().rev().filter(|turn| {
        turn.has_file_changes && turn.target_turns.is_empty() && !in_force.contains(&turn.number)
    });
    let excerpts = undone.take(MAX_UNDONE).map(|turn| escape_hidden_line(&turn.prompt_excerpt));
    excerpts.map(|excerpt| format!("“{}”", text::clip_middle(&excerpt, 100))).collect()
}

/// The newest failed results that the model no longer gets, and that no later call of the same tool has made good.
fn open_errors<'a>(old: &'a [Arc<Message>], kept: &'a [Arc<Message>]) -> Vec<&'a ToolMessage> {
    let newest = old.iter().rev().filter_map(|message| message.as_tool()).take(NEWEST_RESULTS);
    // A result that comes after counts instead of those of the same tool before.
    let later = kept.iter().filter_map(|message| message.as_tool());
    let mut known: HashSet<_> = later.map(|result| &result.name).collect();
    newest.filter(|one| known.insert(&one.name) && !one.ok && !is_rejected(one)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use turnwright_types::message::{AssistantMessage, Media, ToolCall};

    fn prompt(text: &str) -> Arc<Message> {
        Arc::new(Message::User(UserMessage::text(text)))
    }

    fn answer(text: &str, calls: usize) -> Arc<Message> {
        let call = |number| ToolCall {
            id: format!("call-{number}").into(),
            provider_id: format!("p{number}"),
            name: "read_file".to_owned(),
            arguments: Arguments::default(),
            extra: None,
        };
        Arc::new(Message::Assistant(AssistantMessage::new(
            "m",
            text,
            (0..calls).map(call).collect(),
        )))
    }

    fn result(length: usize) -> Arc<Message> {
        Arc::new(Message::Tool(ToolMessage {
            call: "call-0".into(),
            provider_id: "p0".to_owned(),
            name: "read_file".to_owned(),
            text: "x".repeat(length),
            ok: true,
            images: Vec::new(),
        }))
    }

    fn limits(each: u64) -> HandoffLimits {
        HandoffLimits {
            first_prompt_context: each,
            user_words: each,
            summary: each,
            facts: each,
            tail: each,
            media: each,
        }
    }

    #[test]
    fn the_newest_steps_are_kept_whole() {
        let long = &"y".repeat(900);
        let table: [(&[Arc<Message>], usize); 7] = [
            (&[prompt("1"), answer("a", 0)], 1),
            (&[prompt("1"), answer(long, 0), prompt("2"), answer("a", 0)], 2),
            (&[prompt("1"), answer("a", 1), result(300), answer("b", 0)], 3),
            (&[prompt("1"), answer(long, 1), result(9_000), answer("b", 0)], 1),
            // The model has not seen this result yet.
            (&[prompt("1"), answer("a", 1), result(9_000)], 2),
            (&[prompt("1"), answer("a", 0), prompt(&"z".repeat(1_770))], 1),
            // Nor has it seen what the user has said, however long that is.
            (&[prompt("1"), answer("a", 0), prompt(&"z".repeat(9_000)), prompt("2")], 2),
        ];
        for (messages, count) in table {
            assert_eq!(KeptTail::choose(messages, &limits(900)).count, count, "{messages:?}");
        }
        let messages = [prompt("1"), answer("a", 2), result(9_000), result(9_000)];
        let tail = KeptTail::choose(&messages, &limits(900));
        assert_eq!(tail, KeptTail { count: 3, max_result: 400 });
        let mut messages = messages.to_vec();
        compact(&mut messages, prompt("all"), tail.count, tail.max_result);
        assert_eq!(messages.len(), 4);
        assert!(messages[2..].iter().all(|message| message_weight(message) < 500));
    }

    #[test]
    fn pictures_of_results_take_room_like_words() {
        let mut picture = result(100);
        let Message::Tool(tool) = Arc::make_mut(&mut picture) else { panic!("no result") };
        tool.images.push(Media { mime: "image/png".to_owned(), data: "AA".into() });
        let mut messages = vec![prompt("1")];
        for _ in 0..20 {
            messages.extend([answer("a", 1), Arc::clone(&picture)]);
        }
        messages.push(answer("b", 0));
        // The two newest pictures with their calls, and what was said last.
        let chosen = KeptTail::choose(&messages, &limits(10_000));
        assert_eq!(chosen.count, 5);
        let mut tail = KeptTail { max_result: 400, ..chosen };
        tail.widen(&messages, 12_000);
        assert!((1_900..2_000).contains(&tail.max_result), "{tail:?}");
    }

    #[test]
    fn results_get_the_room_that_nothing_else_has_used() {
        let messages = [prompt("1"), answer("a", 2), result(9_000), result(9_000)];
        let chosen = KeptTail::choose(&messages, &limits(900));
        let mut tail = chosen;
        tail.widen(&messages, 0);
        assert_eq!(tail, chosen);
        tail.widen(&messages, 5_000);
        assert!((2_400..2_500).contains(&tail.max_result), "{tail:?}");
        let mut none = KeptTail { count: 0, max_result: 400 };
        none.widen(&messages, 5_000);
        assert_eq!(none.max_result, 400);
    }

    #[test]
    fn words_of_the_user_survive_any_number_of_compactions() {
        let mut messages = vec![prompt("Never touch b.txt.")];
        for number in 0..20 {
            messages.push(prompt(&format!("Do step {number}. {}", "please ".repeat(20))));
            messages.push(answer("Done.", 0));
            let kept = KeptTail::choose(&messages, &limits(1_000));
            let old = &messages[..messages.len() - kept.count];
            let summary = format!("Until {number}.");
            let new = replacement(old, &limits(1_000), None, Some(&summary), "Mode: ask");
            let message = Arc::new(Message::User(new));
            assert_eq!(summary_of(&message), Some(summary.as_str()));
            compact(&mut messages, message, kept.count, kept.max_result);
            assert!(is_compacted(&messages));
        }
        let Message::User(first) = messages[0].as_ref() else { panic!("{messages:?}") };
        let text = first.render();
        assert!(text.contains("The user said earlier:\nNever touch b.txt."), "{text}");
        assert_eq!(text.matches(SUMMARY_HEAD).count(), 1, "{text}");
        assert_eq!(text.matches(OMITTED_MESSAGES_NOTE).count(), 1, "{text}");
        assert!(message_weight(&messages[0]) < 3_000);
    }

    #[test]
    fn a_plan_that_the_user_has_agreed_to_survives_any_number_of_compactions() {
        let propose = |plan: &str| {
            let arguments = serde_json::json!({ "plan": plan });
            let call = ToolCall::new("c", "p", PLAN_TOOL, arguments);
            Arc::new(Message::Assistant(AssistantMessage::new("m", "", vec![call])))
        };
        let mut messages = vec![
            prompt("Plan it."),
            propose("1. Rejected"),
            named_result(PLAN_TOOL, false),
            propose("1. Write b.txt"),
            named_result(PLAN_TOOL, true),
        ];
        for _ in 0..3 {
            let new = replacement(&messages, &limits(1_000), None, Some("So far."), "Mode: ask");
            let text = new.render();
            assert!(text.contains("The user said earlier:\ntext\n1. Write b.txt"), "{text}");
            assert!(!text.contains("Rejected"), "{text}");
            messages = vec![Arc::new(Message::User(new)), answer("b", 0)];
        }
    }

    #[test]
    fn answers_to_questions_and_rejections_survive_any_number_of_compactions() {
        let rejection = ToolRefusal::rejected().for_model;
        let mut messages = vec![prompt("Release it.")];
        for (id, name, arguments, ok, text) in [
            ("1", QUESTION_TOOL, json!({ "question": "Which branch?" }), true, "next\n(or v2)"),
            ("2", QUESTION_TOOL, json!({ "question": "Why?" }), false, "No answer."),
            ("3", "exec", json!({ "command": "git push" }), false, rejection.as_str()),
            ("4", "exec", json!({ "command": "git tag" }), true, "done"),
        ] {
            let call = ToolCall::new(id, "p", name, arguments);
            let mut result = named_result(name, ok);
            let Message::Tool(tool) = Arc::make_mut(&mut result) else { panic!("no result") };
            tool.call = id.into();
            text.clone_into(&mut tool.text);
            let asking = Message::Assistant(AssistantMessage::new("m", "", vec![call]));
            messages.extend([Arc::new(asking), result]);
        }
        let pushed = format!("{rejection}\nexec {{\"command\":\"git push\"}}");
        for _ in 0..3 {
            let new = replacement(&messages, &limits(2_000), None, Some("So far."), "Mode: ask");
            let text = new.render();
            for said in ["next\n(or v2)\nWhich branch?", pushed.as_str()] {
                assert!(text.contains(&format!("The user said earlier:\n{said}\n")), "{text}");
            }
            assert!(!text.contains("Why?") && !text.contains("git tag"), "{text}");
            messages = vec![Arc::new(Message::User(new)), answer("b", 0)];
        }
    }

    #[test]
    fn what_the_first_prompt_brought_is_kept_without_its_mode() {
        let context = "Working folder: /w\nMode: ask (asks)\n".to_owned();
        let parts = vec![PromptPart::Text("hi".to_owned()), PromptPart::Context(context)];
        let first = Arc::new(Message::User(UserMessage::new(parts)));
        let facts = "Mode: auto (all)\nFiles read: a, b\n";
        let new = replacement(&[first], &limits(1_000), None, None, facts);
        let text = new.render();
        assert!(text.contains("Working folder: /w") && !text.contains("Mode: ask"), "{text}");
        assert!(text.contains(NO_SUMMARY.trim_end()), "{text}");
        assert_eq!(files_read_before(&Message::User(new)), Some("a, b"));
    }

    #[test]
    fn a_prompt_that_waits_goes_on_as_it_is_with_the_pictures_that_fit() {
        let picture =
            || PromptPart::Image(Media { mime: "image/png".to_owned(), data: "AA".into() });
        let mut open = UserMessage::text("word ".repeat(900));
        open.parts.extend([picture(), picture(), PromptPart::Context("Mode: ask\n".to_owned())]);
        let mut messages = vec![prompt("Never touch b.txt."), answer("a", 0)];
        messages.push(Arc::new(Message::User(open.clone())));
        // The second summary is of a conversation that begins with the first.
        for at in [2, 0] {
            let limits = HandoffLimits { media: 5_000, ..limits(400) };
            let new = replacement(&messages, &limits, Some(at), Some("So far."), "Mode: ask");
            let own: Vec<_> =
                new.parts.iter().filter(|part| !matches!(part, PromptPart::Context(_))).collect();
            let left_out = PromptPart::Text("[image left out to save room]".to_owned());
            assert_eq!(own, [&open.parts[0], &open.parts[1], &left_out]);
            let text = new.render();
            assert!(text.contains("The user said earlier:\nNever touch b.txt."), "{text}");
            assert_eq!(text.matches("The user said earlier").count(), 1, "{text}");
            messages = vec![Arc::new(Message::User(new)), answer("b", 0)];
        }
        // In a later turn it is quoted like any other.
        let new = replacement(&messages, &limits(400), None, Some("So far."), "Mode: ask");
        let text = new.render();
        assert!(text.contains("word word") && text.contains("are left out here"), "{text}");
        assert!(new.parts.iter().all(|part| matches!(part, PromptPart::Context(_))));
    }

    #[test]
    fn the_text_of_a_command_lasts_as_long_as_its_prompt_waits() {
        let mut open = UserMessage::text("/deploy staging");
        let text = format!("{COMMAND_HEAD}command `/deploy`. Ask before each step.\n");
        open.parts.extend(["Mode: ask\n".to_owned(), text].map(PromptPart::Context));
        let open = Arc::new(Message::User(open));
        let mut messages = vec![prompt("hi"), answer("a", 0), Arc::clone(&open)];
        // Twice in the turn of the command, then in a later one.
        for (at, expected) in [(Some(2), 1), (Some(0), 1), (None, 0)] {
            let new = replacement(&messages, &limits(1_000), at, Some("So far."), "Mode: ask");
            let text = new.render();
            assert_eq!(text.matches("Ask before each step.").count(), expected, "{text}");
            assert!(text.contains("/deploy staging"), "{text}");
            messages = vec![Arc::new(Message::User(new)), answer("b", 0)];
        }
        // The first prompt of a conversation is no different.
        for (at, expected) in [(Some(0), 1), (None, 0)] {
            let only = slice::from_ref(&open);
            let new = replacement(only, &limits(1_000), at, Some("So far."), "Mode: ask");
            let count = new.render().matches("Ask before each step.").count();
            assert_eq!(count, expected, "{new:?}");
        }
    }

    fn read(arguments: serde_json::Value) -> Arc<Message> {
        let call = ToolCall::new("c", "p", READ_TOOL, arguments);
        Arc::new(Message::Assistant(AssistantMessage::new("m", "", vec![call])))
    }

    fn named_result(name: &str, ok: bool) -> Arc<Message> {
        Arc::new(Message::Tool(ToolMessage {
            call: "c".into(),
            provider_id: "p".to_owned(),
            name: name.to_owned(),
            text: "text".to_owned(),
            ok,
            images: Vec::new(),
        }))
    }

    #[test]
    fn each_file_is_named_once_and_the_newest_are_named() {
        let calls = ["a", "b", "a"].map(|path| read(serde_json::json!({ "path": path })));
        assert_eq!(files_read(&calls), ["b", "a"]);
        assert_eq!(files_read(&[read(serde_json::json!({ "paths": ["x", "y"] }))]), ["x", "y"]);
        let many: Vec<_> =
            (0..50).map(|number| read(serde_json::json!({ "path": number.to_string() }))).collect();
        assert_eq!(files_read(&many).len(), MAX_FILES);
        assert_eq!(files_read(&many).last().unwrap(), "49");
        assert!(files_read(&[]).is_empty());
    }

    #[test]
    fn a_skill_is_in_use_whichever_process_has_loaded_it() {
        let call = ToolCall::new("c", "p", SKILL_TOOL, json!({ "name": "release" }));
        let asking = Message::Assistant(AssistantMessage::new("m", "", vec![call]));
        let old = [Arc::new(asking)];
        assert_eq!(named_by_calls(&old, SKILL_TOOL, ["name", "skill"]), ["release"]);
    }

    #[test]
    fn an_error_is_open_until_the_tool_succeeds() {
        let table: [(&[bool], &[bool], usize); 4] = [
            (&[false, false], &[], 1),
            (&[false, true], &[], 0),
            (&[true, false], &[], 1),
            // The model still has the result that comes after.
            (&[false], &[true], 0),
        ];
        let results =
            |all: &[bool]| -> Vec<_> { all.iter().map(|ok| named_result("exec", *ok)).collect() };
        for (earlier, later, expected) in table {
            let old = results(earlier);
            let kept = results(later);
            let open = open_errors(&old, &kept);
            assert_eq!(open.len(), expected, "{open:?}");
            assert!(open.iter().all(|error| error.name == "exec"));
        }
        let mut rejected = named_result("exec", false);
        let Message::Tool(tool) = Arc::make_mut(&mut rejected) else { panic!("no result") };
        tool.text = ToolRefusal::rejected().for_model;
        assert!(open_errors(&[rejected], &[]).is_empty());
    }
}
