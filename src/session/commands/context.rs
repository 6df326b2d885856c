//! `/context` shows what fills the model's window, how much of it was in the provider's cache, and which
//! changes made it miss. `/compact` has the model summarise the conversation, and `/clear` forgets it.

use super::{CommandCall, CommandTask, PromptWork, SessionActor, say_and_finish};
use crate::turn::{self, Conversation};
use turnwright_store::Entry;
use turnwright_types::message::{History, Message, PromptPart};
use turnwright_types::token_meter::{LearnedWindow, json_weight, message_weight, text_weight};

/// The tool whose results are files.
const FILE_TOOL: &str = "read_file";

/// The weights of the parts of a request (see `token_meter`).
#[derive(Debug, Default, PartialEq, Eq)]
struct WindowParts {
    system: u64,
    built_in_tools: u64,
    mcp_tools: u64,
    /// Instructions, notes, the list of skills, and everything else that we add.
    context: u64,
    files: u64,
    results: u64,
    conversation: u64,
}

pub(super) fn clear(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |SessionActor { history, conversation, .. }| {
        history.messages.clear();
        history.meter.forget_count();
        history.learned_window = LearnedWindow::default();
        conversation.forget_told_context();
        conversation.log().add_entry(Entry::Cleared);
        conversation.env.shared.hooks.rerun_start_hooks();
        "Conversation cleared. Files were not changed.".to_owned()
    })
}

pub(super) fn compact(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let task = call.into_task(session);
    PromptWork::of_command(async move {
        let CommandTask { conversation, mut history, arguments, cancel, .. } = task;
        let text = turn::compact_on_request(&conversation, &mut history, &arguments, &cancel).await;
        say_and_finish(&conversation, history, message, text).await
    })
}

pub(super) fn context(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| report(&session.history, &session.conversation))
}

/// The text for the user.
fn report(history: &History, conversation: &Conversation) -> String {
    let model = conversation.selection.get().model;
    let window = turn::window(model.as_ref(), history);
    let parts = window_parts(history, conversation, window);
    let fixed = parts.system + parts.built_in_tools + parts.mcp_tools;
    let used = history.meter.estimate(&history.messages, || fixed);
    let is_assumed = turn::is_window_assumed(model.as_ref(), history);
    let assumed = if is_assumed { ", which is assumed" } else { "" };
    let percent = used.saturating_mul(100) / window.max(1);
    let mut text = format!(
        "About {used} of {window} tokens ({percent} %) of the window of `{}`{assumed}:\n\n",
        model.name()
    );
    for (name, weight) in [
        ("System prompt", parts.system),
        ("Tools", parts.built_in_tools),
        ("Tools of MCP servers", parts.mcp_tools),
        ("Instructions, notes and other context", parts.context),
        ("Files", parts.files),
        ("Other results of tools", parts.results),
        ("Conversation", parts.conversation),
    ] {
        if weight > 0 {
            text.push_str(&format!("* {name}: {}\n", history.meter.tokens(weight)));
        }
    }
    let (requests, usage, breaks) = conversation.told.lock().cache_guard.report();
    if let Some(usage) = usage.filter(|usage| usage.input > 0) {
        let percent = usage.cached.saturating_mul(100) / usage.input;
        text.push_str(&format!("\nOf the last request, {percent} % were in the provider's cache."));
    }
    text.extend(history.cost.map(|cost| format!(" This session has cost ${cost:.4} so far.")));
    if !breaks.is_empty() {
        text.push_str("\n\nRequests that the provider had to read anew:\n\n");
    }
    for (request, why) in breaks {
        text.push_str(&format!("* Request {request} of {requests}: {why}\n"));
    }
    text
}

fn window_parts(history: &History, conversation: &Conversation, window: u64) -> WindowParts {
    let mut parts =
        WindowParts { system: text_weight(&conversation.system_prompt), ..WindowParts::default() };
    let offer = conversation.offer();
    let (built_in, _) = conversation.tools.overview(&offer);
    for spec in conversation.tools.specs(&offer, Some(window)).iter() {
        let weight = text_weight(&spec.name)
            + text_weight(&spec.description)
            + json_weight(&spec.parameters);
        if built_in.iter().any(|name| *name == spec.name) {
            parts.built_in_tools += weight;
        } else {
            parts.mcp_tools += weight;
        }
    }
    for message in &history.messages {
        let weight = message_weight(message);
        match message.as_ref() {
            Message::Assistant(_) => parts.conversation += weight,
            Message::Tool(tool) if tool.name == FILE_TOOL => parts.files += weight,
            Message::Tool(_) => parts.results += weight,
            Message::User(user) => {
                let mut context = 0;
                let mut files = 0;
                for part in &user.parts {
                    match part {
                        PromptPart::Context(text) => context += text_weight(text),
                        PromptPart::Resource { text, .. } => files += text_weight(text),
                        _ => {}
                    }
                }
                parts.context += context;
                parts.files += files;
                parts.conversation += weight.saturating_sub(context + files);
            }
        }
    }
    parts
}
