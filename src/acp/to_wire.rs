//! Converts domain types to wire types of ACP version 1.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::capabilities::ClientCaps;
use super::schema;
use super::schema::{
    AudioContent, AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate,
    BlobResourceContents, CompactionStatus, CompactionSummaryChunk, CompactionUpdate,
    ConfigOptionUpdate, ContentBlock, ContentChunk, Cost, CurrentModeUpdate, Diff,
    EmbeddedResource, EmbeddedResourceResource, ImageContent, MessageId, Meta, Notice,
    NoticeSeverity, PermissionOption, PermissionOptionKind, Plan, PlanEntryPriority,
    PlanEntryStatus, PlanUpdate, PlanUpdateContent, PromptResponse, PromptSuggestion,
    PromptSuggestionsUpdate, RequestPermissionRequest, ResourceLink, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelectOption, SessionId, SessionInfoUpdate,
    SessionMode, SessionModeState, SessionReference, SessionUpdate, TextContent,
    TextResourceContents, ToolCall, ToolCallContent, ToolCallLocation, ToolCallUpdate,
    ToolCallUpdateFields, UnstructuredCommandInput, Usage, UsageUpdate,
};
use turnwright_types::client::{ChoiceKind, IS_BOUNDED, PermissionChoice, PermissionRequest};
use turnwright_types::effect::{
    CallContent, CallView, Location, ToolKind, escape_hidden, escape_hidden_line, terminal_safe,
};
use turnwright_types::ids;
use turnwright_types::message::{Media, PromptEnd, PromptPart, StopReason, TokenUsage};
use turnwright_types::timestamp;
use turnwright_types::update::{
    self, COMMAND_TOOL, CallUpdate, CompactionState, ConfigOption, ConfigOptionId, PlanPriority,
    PlanStatus, SlashCommand, TerminalDelta, ToolCallStatus, Update,
};

/// The id of a session's plan: there is one, which each update replaces.
const PLAN_ID: &str = "plan";
/// The URI of an attached PDF file. The real one is in the resource before it.
const PDF_URI: &str = "attachment:document.pdf";

/// Converts an update for a client with these capabilities. `cwd` is the folder in which the session's
/// commands run. `None` if the client does not show such updates.
pub(super) fn update(update: Update, caps: ClientCaps, cwd: &Path) -> Option<SessionUpdate> {
    Some(match update {
        Update::UserChunk { message, part } => {
            let chunk = ContentChunk::new(prompt_block(part)).message_id(message_id(&message));
            SessionUpdate::UserMessageChunk(chunk)
        }
        Update::AgentText { message, text } => {
            SessionUpdate::AgentMessageChunk(chunk(text).message_id(message_id(&message)))
        }
        Update::AgentThought { message, text } => {
            SessionUpdate::AgentThoughtChunk(chunk(text).message_id(message_id(&message)))
        }
        Update::ToolCall { id, name, view, raw_input, .. } => {
            let call = new_call(id.to_arc(), name, view, caps, cwd);
            SessionUpdate::ToolCall(call.raw_input(raw_input))
        }
        Update::CallUpdate(update) => SessionUpdate::ToolCallUpdate(call_update(*update)),
        Update::Plan(entries) => plan_update(entries.iter().map(plan_entry).collect(), caps),
        Update::Commands(commands) => commands_update(commands),
        Update::Suggestions(prompts) if caps.suggestions => suggestions_update(prompts),
        Update::Suggestions(_) => return None,
        Update::Notice(text) => notice_update(text, caps),
        Update::SessionInfo { title, updated } => {
            let title = title.as_deref().map(escape_hidden_line);
            let update = SessionInfoUpdate::new().updated_at(timestamp::rfc3339(updated));
            SessionUpdate::SessionInfoUpdate(match title {
                Some(title) => update.title(title),
                None => update,
            })
        }
        // In version 1, the answer to the request says this.
        Update::TurnBegan(_)
        | Update::UserMessage { .. }
        | Update::KnownPrompt { .. }
        | Update::ReplayComplete => return None,
        // The terminals of version 1 end with their cards.
        Update::TerminalEnded { .. } => return None,
        // The client type of each version makes this update itself, because its anchor differs.
        Update::Cursor { .. } => return None,
        Update::Mode(id) => SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(id)),
        Update::ContextUsage { used, size, cached, cost } => {
            let meta = (cached > 0).then(|| meta([("turnwright/cachedTokens", cached.into())]));
            let cost = cost.map(|amount| Cost::new(amount, "USD"));
            SessionUpdate::UsageUpdate(UsageUpdate::new(used, size).cost(cost).meta(meta))
        }
        Update::ConfigOptions(all) => {
            SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(settings(all)))
        }
        Update::Compaction { id, state, .. } if caps.compactions => {
            SessionUpdate::CompactionUpdate(compaction(&id, state))
        }
        Update::Compaction { notice, .. } => notice_update(notice?, caps),
        Update::CompactionSummary { id, text } if caps.compactions => {
            let chunk = CompactionSummaryChunk::new(id.to_arc(), text_block(text));
            SessionUpdate::CompactionSummaryChunk(chunk)
        }
        Update::CompactionSummary { .. } => return None,
    })
}

fn plan_update(entries: Vec<schema::PlanEntry>, caps: ClientCaps) -> SessionUpdate {
    if caps.plans {
        let plan = PlanUpdateContent::items(PLAN_ID, entries);
        SessionUpdate::PlanUpdate(PlanUpdate::new(plan))
    } else {
        SessionUpdate::Plan(Plan::new(entries))
    }
}

fn commands_update(commands: Vec<SlashCommand>) -> SessionUpdate {
    let described = commands.into_iter().map(|command| {
        let input = command
            .hint
            .map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
        AvailableCommand::new(command.name, command.description).input(input)
    });
    let commands = described.collect();
    SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands))
}

fn suggestions_update(prompts: Vec<String>) -> SessionUpdate {
    let suggestions = prompts.into_iter().map(|text| PromptSuggestion::new(vec![text_block(text)]));
    SessionUpdate::PromptSuggestionsUpdate(PromptSuggestionsUpdate::new(suggestions.collect()))
}

/// A notice. Clients without notices show thoughts, so that the user sees the reason for a delay.
fn notice_update(text: String, caps: ClientCaps) -> SessionUpdate {
    if caps.notices {
        SessionUpdate::Notice(Notice::new(NoticeSeverity::Info, terminal_safe(text)))
    } else {
        SessionUpdate::AgentThoughtChunk(chunk(format!("{text}\n\n")))
    }
}

fn compaction(id: &ids::MessageId, state: CompactionState) -> CompactionUpdate {
    let update = |status| CompactionUpdate::new(id.to_arc(), status);
    match state {
        CompactionState::InProgress => update(CompactionStatus::InProgress),
        CompactionState::Completed(None) => update(CompactionStatus::Completed),
        CompactionState::Completed(Some(summary)) => {
            update(CompactionStatus::Completed).summary(vec![text_block(summary)])
        }
        CompactionState::Failed(why) => update(CompactionStatus::Failed).error(why),
        CompactionState::Cancelled => update(CompactionStatus::Cancelled),
    }
}

/// The card of a new call.
fn new_call(id: Arc<str>, name: String, view: CallView, caps: ClientCaps, cwd: &Path) -> ToolCall {
    let has_streamed_terminal = caps.terminal_output && !caps.terminal && name == COMMAND_TOOL;
    let meta = has_streamed_terminal
        .then(|| meta([("terminal_info", json!({ "terminal_id": &*id, "cwd": cwd }))]));
    ToolCall::new(id, escape_hidden(&view.title))
        .name(name)
        .kind(kind(view.kind))
        .status(schema::ToolCallStatus::Pending)
        .locations(locations(view.locations))
        .meta(meta)
}

pub(super) fn prompt_block(part: PromptPart) -> ContentBlock {
    match part {
        PromptPart::Text(text) | PromptPart::Context(text) => text_block(text),
        // Version 1 has no skills: the block is shown as the user would type it.
        PromptPart::Skill(name) => text_block(format!("/{name} ")),
        PromptPart::Image(Media { mime, data }) if mime == Media::PDF => {
            let file = BlobResourceContents::new(data, PDF_URI).mime_type(mime);
            ContentBlock::Resource(EmbeddedResource::new(
                EmbeddedResourceResource::BlobResourceContents(file),
            ))
        }
        PromptPart::Image(Media { mime, data }) => {
            ContentBlock::Image(ImageContent::new(data, mime))
        }
        PromptPart::Audio(Media { mime, data }) => {
            ContentBlock::Audio(AudioContent::new(data, mime))
        }
        PromptPart::Link { name, uri } => ContentBlock::ResourceLink(ResourceLink::new(name, uri)),
        PromptPart::Resource { uri, text } => {
            let text = TextResourceContents::new(text, uri);
            ContentBlock::Resource(EmbeddedResource::new(
                EmbeddedResourceResource::TextResourceContents(text),
            ))
        }
    }
}

fn chunk(text: String) -> ContentChunk {
    ContentChunk::new(text_block(text))
}

fn text_block(text: String) -> ContentBlock {
    ContentBlock::Text(TextContent::new(terminal_safe(text)))
}

fn message_id(id: &ids::MessageId) -> MessageId {
    MessageId::new(id.to_arc())
}

fn call_update(update: CallUpdate) -> ToolCallUpdate {
    let mut fields = ToolCallUpdateFields::new()
        .status(status(update.status))
        .raw_input(update.raw_input)
        .raw_output(update.raw_output)
        .content(update.content.map(contents));
    if let Some(view) = update.view {
        fields = fields
            .title(escape_hidden(&view.title))
            .kind(kind(view.kind))
            .locations(locations(view.locations));
    }
    if let Some(new_locations) = update.locations {
        fields = fields.locations(locations(new_locations));
    }
    let meta = update.terminal.map(|delta| terminal_meta(&update.id, delta));
    ToolCallUpdate::new(update.id.to_arc(), fields).meta(meta)
}

/// The output of a terminal that the client draws, under the `_meta` keys that Zed introduced and other
/// clients have adopted.
fn terminal_meta(id: &ids::CallId, delta: TerminalDelta) -> Meta {
    let id = id.as_str();
    let output = (!delta.text.is_empty())
        .then(|| ("terminal_output", json!({ "terminal_id": id, "data": delta.text })));
    let exit = delta.exit.map(|exit| {
        let data = json!({ "terminal_id": id, "exit_code": exit.code, "signal": exit.signal });
        ("terminal_exit", data)
    });
    meta(output.into_iter().chain(exit))
}

fn meta(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Meta {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Converts a permission request with all its details, because some clients decide by the kind and some
/// by the raw input.
pub(super) fn permission_request(
    session: SessionId,
    request: PermissionRequest,
) -> RequestPermissionRequest {
    let fields = ToolCallUpdateFields::new()
        .title(escape_hidden(&request.view.title))
        .name(request.name)
        .kind(kind(request.view.kind))
        .status(schema::ToolCallStatus::Pending)
        .content(contents(request.content))
        .locations(locations(request.view.locations))
        .raw_input(request.raw_input);
    let options = request.choices.iter().map(option).collect();
    let call = ToolCallUpdate::new(request.call.to_arc(), fields);
    let meta = request.is_bounded.then(|| meta([(IS_BOUNDED, true.into())]));
    RequestPermissionRequest::new(session, call, options).meta(meta)
}

fn option(choice: &PermissionChoice) -> PermissionOption {
    let kind = match choice.kind {
        ChoiceKind::AllowOnce => PermissionOptionKind::AllowOnce,
        ChoiceKind::AllowSession
        | ChoiceKind::AllowSessionForAll
        | ChoiceKind::AllowAllCommands => PermissionOptionKind::AllowAlways,
        ChoiceKind::RejectOnce => PermissionOptionKind::RejectOnce,
        ChoiceKind::RejectSession => PermissionOptionKind::RejectAlways,
    };
    PermissionOption::new(option_id(choice.kind), escape_hidden(&choice.name), kind)
}

pub(super) fn option_id(kind: ChoiceKind) -> &'static str {
    match kind {
        ChoiceKind::AllowOnce => "allow_once",
        ChoiceKind::AllowSession => "allow_always",
        ChoiceKind::AllowSessionForAll => "allow_always_for_all",
        ChoiceKind::AllowAllCommands => "allow_always_all_commands",
        ChoiceKind::RejectOnce => "reject_once",
        ChoiceKind::RejectSession => "reject_always",
    }
}

fn contents(contents: Vec<CallContent>) -> Vec<ToolCallContent> {
    contents.into_iter().map(call_content).collect()
}

/// Converts an item of a card's content.
pub(super) fn call_content(content: CallContent) -> ToolCallContent {
    match content {
        CallContent::Text(text) => ToolCallContent::Content(schema::Content::new(text_block(text))),
        CallContent::Diff { path, old, new, .. } => {
            ToolCallContent::Diff(Diff::new(path, new).old_text(old))
        }
        CallContent::Image(Media { mime, data }) => ToolCallContent::Content(schema::Content::new(
            ContentBlock::Image(ImageContent::new(data, mime)),
        )),
        CallContent::Terminal(id) => {
            ToolCallContent::Terminal(schema::Terminal::new(schema::TerminalId::new(id.to_arc())))
        }
        CallContent::Session(id) => {
            ToolCallContent::Session(SessionReference::new(SessionId::new(id.to_arc())))
        }
    }
}

fn locations(locations: Vec<Location>) -> Vec<ToolCallLocation> {
    locations
        .into_iter()
        .map(|location| ToolCallLocation::new(location.path).line(location.line))
        .collect()
}

fn kind(kind: ToolKind) -> schema::ToolKind {
    match kind {
        ToolKind::Read => schema::ToolKind::Read,
        ToolKind::Edit => schema::ToolKind::Edit,
        ToolKind::Delete => schema::ToolKind::Delete,
        ToolKind::Move => schema::ToolKind::Move,
        ToolKind::Search => schema::ToolKind::Search,
        ToolKind::Fetch => schema::ToolKind::Fetch,
        ToolKind::Execute => schema::ToolKind::Execute,
        ToolKind::Think => schema::ToolKind::Think,
        ToolKind::SwitchMode => schema::ToolKind::SwitchMode,
        ToolKind::Other => schema::ToolKind::Other,
    }
}

fn status(status: ToolCallStatus) -> schema::ToolCallStatus {
    match status {
        ToolCallStatus::Pending => schema::ToolCallStatus::Pending,
        ToolCallStatus::InProgress => schema::ToolCallStatus::InProgress,
        ToolCallStatus::Completed => schema::ToolCallStatus::Completed,
        ToolCallStatus::Failed | ToolCallStatus::Cancelled => schema::ToolCallStatus::Failed,
    }
}

fn plan_entry(entry: &update::PlanEntry) -> schema::PlanEntry {
    let priority = match entry.priority {
        PlanPriority::High => PlanEntryPriority::High,
        PlanPriority::Medium => PlanEntryPriority::Medium,
        PlanPriority::Low => PlanEntryPriority::Low,
    };
    let status = match entry.status {
        PlanStatus::Pending => PlanEntryStatus::Pending,
        PlanStatus::InProgress => PlanEntryStatus::InProgress,
        PlanStatus::Completed => PlanEntryStatus::Completed,
    };
    schema::PlanEntry::new(escape_hidden_line(&entry.content), priority, status)
}

/// Converts the settings of a session to configuration options.
pub(super) fn settings(all: Vec<ConfigOption>) -> Vec<SessionConfigOption> {
    all.into_iter().map(config_option).collect()
}

fn config_option(option: ConfigOption) -> SessionConfigOption {
    let category = match option.id {
        ConfigOptionId::Model => SessionConfigOptionCategory::Model,
        ConfigOptionId::Effort => SessionConfigOptionCategory::ThoughtLevel,
        ConfigOptionId::Mode => SessionConfigOptionCategory::Mode,
    };
    let choices: Vec<_> = option.choices.into_iter().map(config_choice).collect();
    SessionConfigOption::select(option.id.id(), option.id.name(), option.current, choices)
        .category(category)
}

fn config_choice(choice: update::ConfigChoice) -> SessionConfigSelectOption {
    SessionConfigSelectOption::new(choice.value, escape_hidden_line(&choice.name))
        .description(choice.description)
}

/// Converts the mode setting to the session's modes.
pub(super) fn modes(all: &[ConfigOption]) -> Option<SessionModeState> {
    let setting = all.iter().find(|option| option.id == ConfigOptionId::Mode)?;
    let modes = setting.choices.iter().map(|choice| {
        SessionMode::new(choice.value.clone(), choice.name.clone())
            .description(choice.description.clone())
    });
    Some(SessionModeState::new(setting.current.clone(), modes.collect()))
}

/// The answer to a prompt. Its usage goes to every client, because one that does not know the field
/// ignores it (R-TURN-9). Cached tokens are a part of the input, and thoughts of the output.
pub(super) fn prompt_end(PromptEnd { stop, usage, suggestions }: PromptEnd) -> PromptResponse {
    // Clients know this key from other agents.
    let suggested =
        (!suggestions.is_empty()).then(|| meta([("promptSuggestions", suggestions.into())]));
    let told: Meta = stop_meta(stop).into_iter().chain(suggested).flatten().collect();
    let told = Some(told).filter(|told| !told.is_empty());
    PromptResponse::new(stop_reason(stop)).usage(token_usage(usage)).meta(told)
}

/// The metadata that tell a program that a turn was stopped, although it seems to have ended by itself.
pub(super) fn stop_meta(stop: StopReason) -> Option<Meta> {
    let stopped = ("turnwright", json!({ "stopped": "repetition" }));
    (stop == StopReason::Repetition).then(|| meta([stopped]))
}

/// The usage of a turn; `None` if it has used nothing.
pub(super) fn token_usage(usage: TokenUsage) -> Option<Usage> {
    let counted = Usage::new(usage.total(), usage.input, usage.output)
        .cached_read_tokens(non_zero(usage.cached))
        .thought_tokens(non_zero(usage.thought));
    Some(counted).filter(|_| usage.total() > 0)
}

fn non_zero(count: u64) -> Option<u64> {
    Some(count).filter(|count| *count > 0)
}

fn stop_reason(reason: StopReason) -> schema::StopReason {
    match reason {
        StopReason::EndTurn | StopReason::Repetition => schema::StopReason::EndTurn,
        StopReason::MaxTokens => schema::StopReason::MaxTokens,
        StopReason::MaxTurnRequests => schema::StopReason::MaxTurnRequests,
        StopReason::Refusal => schema::StopReason::Refusal,
        StopReason::Cancelled => schema::StopReason::Cancelled,
    }
}
