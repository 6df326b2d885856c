//! Domain → wire types of version 1.

use std::path::Path;

use serde_json::{Value, json};

use super::caps::ClientCaps;
use super::wire::schema;
use super::wire::schema::{
    AudioContent, AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate,
    ConfigOptionUpdate, ContentBlock, ContentChunk, Cost, CurrentModeUpdate, Diff,
    EmbeddedResource, EmbeddedResourceResource, ImageContent, MessageId, Meta, Notice,
    NoticeSeverity, PermissionOption, PermissionOptionKind, Plan, PlanEntryPriority,
    PlanEntryStatus, RequestPermissionRequest, ResourceLink, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelectOption, SessionId, SessionInfoUpdate,
    SessionMode, SessionModeState, SessionUpdate, StopReason, TextContent, TextResourceContents,
    ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind, UnstructuredCommandInput, UsageUpdate,
};
use turnwright_types::client::{Choice, ChoiceKind, Question};
use turnwright_types::effect::{Content, Kind, Location, plain, visible, visible_line};
use turnwright_types::ids;
use turnwright_types::message::{Media, Part, Stop};
use turnwright_types::moment;
use turnwright_types::update::{
    self, CallUpdate, Command, PlanStatus, Priority, Setting, SettingId, Status, TerminalNews,
    Update,
};

/// The tool whose cards show a terminal.
const COMMAND: &str = "exec";

/// What a client is told, in the words of version 1 and of what it can show. `cwd` is where the
/// session's commands run.
pub(super) fn update(update: Update, caps: ClientCaps, cwd: &Path) -> SessionUpdate {
    match update {
        Update::User { message, part } => {
            let chunk = ContentChunk::new(prompt_block(part)).message_id(message_id(&message));
            SessionUpdate::UserMessageChunk(chunk)
        }
        Update::Text { message, text } => {
            SessionUpdate::AgentMessageChunk(chunk(text).message_id(message_id(&message)))
        }
        Update::Thought { message, text } => {
            SessionUpdate::AgentThoughtChunk(chunk(text).message_id(message_id(&message)))
        }
        Update::Call { id, name, view } => {
            let draws = caps.terminal_output && !caps.terminal && name == COMMAND;
            let meta = draws.then(|| {
                meta([("terminal_info", json!({ "terminal_id": id.as_str(), "cwd": cwd }))])
            });
            SessionUpdate::ToolCall(
                ToolCall::new(id.to_arc(), visible(&view.title))
                    .name(name)
                    .kind(kind(view.kind))
                    .status(ToolCallStatus::Pending)
                    .locations(locations(view.locations))
                    .meta(meta),
            )
        }
        Update::CallUpdate(update) => SessionUpdate::ToolCallUpdate(call_update(*update)),
        Update::Plan(entries) => {
            SessionUpdate::Plan(Plan::new(entries.iter().map(plan_entry).collect()))
        }
        Update::Commands(commands) => {
            let input =
                |hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint));
            let command = |it: Command| {
                AvailableCommand::new(it.name, it.description).input(it.hint.map(input))
            };
            let commands = commands.into_iter().map(command).collect();
            SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands))
        }
        Update::Notice(text) if caps.notices => {
            SessionUpdate::Notice(Notice::new(NoticeSeverity::Info, plain(text)))
        }
        // Clients without notices still let the user see why nothing happens.
        Update::Notice(text) => SessionUpdate::AgentThoughtChunk(chunk(format!("{text}\n\n"))),
        Update::Info { title, updated } => {
            let title = title.as_deref().map(visible_line);
            let update = SessionInfoUpdate::new().updated_at(moment::rfc3339(updated));
            SessionUpdate::SessionInfoUpdate(match title {
                Some(title) => update.title(title),
                None => update,
            })
        }
        Update::Mode(id) => SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(id)),
        Update::Usage { used, size, cached, cost } => {
            let meta = (cached > 0).then(|| meta([("turnwright/cachedTokens", cached.into())]));
            let cost = cost.map(|it| Cost::new(it, "USD"));
            SessionUpdate::UsageUpdate(UsageUpdate::new(used, size).cost(cost).meta(meta))
        }
        Update::Settings(all) => {
            SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(settings(all)))
        }
    }
}

/// A piece of a prompt as it came.
fn prompt_block(part: Part) -> ContentBlock {
    match part {
        Part::Text(text) | Part::Context(text) => text_block(text),
        Part::Image(Media { mime, data }) => ContentBlock::Image(ImageContent::new(data, mime)),
        Part::Audio(Media { mime, data }) => ContentBlock::Audio(AudioContent::new(data, mime)),
        Part::Link { name, uri } => ContentBlock::ResourceLink(ResourceLink::new(name, uri)),
        Part::Resource { uri, text } => {
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
    ContentBlock::Text(TextContent::new(plain(text)))
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
            .title(visible(&view.title))
            .kind(kind(view.kind))
            .locations(locations(view.locations));
    }
    if let Some(places) = update.locations {
        fields = fields.locations(locations(places));
    }
    let meta = update.terminal.map(|it| terminal_news(&update.id, it));
    ToolCallUpdate::new(update.id.to_arc(), fields).meta(meta)
}

/// What a terminal that the client draws is to show: keys of Zed's, which others have taken over.
fn terminal_news(id: &ids::CallId, news: TerminalNews) -> Meta {
    let id = id.as_str();
    let output = (!news.text.is_empty())
        .then(|| ("terminal_output", json!({ "terminal_id": id, "data": news.text })));
    let exit = news.exit.map(|it| {
        let exit = json!({ "terminal_id": id, "exit_code": it.code, "signal": it.signal });
        ("terminal_exit", exit)
    });
    meta(output.into_iter().chain(exit))
}

fn meta(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Meta {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A question with all there is to know: some clients decide by the kind, some by the input.
pub(super) fn question(session: SessionId, question: Question) -> RequestPermissionRequest {
    let fields = ToolCallUpdateFields::new()
        .title(visible(&question.view.title))
        .name(question.name)
        .kind(kind(question.view.kind))
        .status(ToolCallStatus::Pending)
        .content(contents(question.content))
        .locations(locations(question.view.locations))
        .raw_input(question.raw_input);
    let options = question.choices.iter().map(option).collect();
    let call = ToolCallUpdate::new(question.call.to_arc(), fields);
    RequestPermissionRequest::new(session, call, options)
}

fn option(choice: &Choice) -> PermissionOption {
    let kind = match choice.kind {
        ChoiceKind::AllowOnce => PermissionOptionKind::AllowOnce,
        ChoiceKind::AllowSession | ChoiceKind::AllowProject => PermissionOptionKind::AllowAlways,
        ChoiceKind::RejectOnce => PermissionOptionKind::RejectOnce,
        ChoiceKind::RejectSession => PermissionOptionKind::RejectAlways,
    };
    PermissionOption::new(option_id(choice.kind), visible(&choice.name), kind)
}

/// The identifier under which a choice comes back.
pub(super) fn option_id(kind: ChoiceKind) -> &'static str {
    match kind {
        ChoiceKind::AllowOnce => "allow_once",
        ChoiceKind::AllowSession => "allow_always",
        ChoiceKind::AllowProject => "allow_project",
        ChoiceKind::RejectOnce => "reject_once",
        ChoiceKind::RejectSession => "reject_always",
    }
}

fn contents(contents: Vec<Content>) -> Vec<ToolCallContent> {
    let convert = |content| match content {
        Content::Text(text) => ToolCallContent::Content(schema::Content::new(text_block(text))),
        Content::Diff { path, old, new } => {
            ToolCallContent::Diff(Diff::new(path, new).old_text(old))
        }
        Content::Image(Media { mime, data }) => ToolCallContent::Content(schema::Content::new(
            ContentBlock::Image(ImageContent::new(data, mime)),
        )),
        Content::Terminal(id) => {
            ToolCallContent::Terminal(schema::Terminal::new(schema::TerminalId::new(id.to_arc())))
        }
    };
    contents.into_iter().map(convert).collect()
}

fn locations(locations: Vec<Location>) -> Vec<ToolCallLocation> {
    locations.into_iter().map(|it| ToolCallLocation::new(it.path).line(it.line)).collect()
}

fn kind(kind: Kind) -> ToolKind {
    match kind {
        Kind::Read => ToolKind::Read,
        Kind::Edit => ToolKind::Edit,
        Kind::Delete => ToolKind::Delete,
        Kind::Move => ToolKind::Move,
        Kind::Search => ToolKind::Search,
        Kind::Fetch => ToolKind::Fetch,
        Kind::Execute => ToolKind::Execute,
        Kind::Think => ToolKind::Think,
        Kind::Other => ToolKind::Other,
    }
}

fn status(status: Status) -> ToolCallStatus {
    match status {
        Status::Pending => ToolCallStatus::Pending,
        Status::InProgress => ToolCallStatus::InProgress,
        Status::Completed => ToolCallStatus::Completed,
        Status::Failed => ToolCallStatus::Failed,
    }
}

fn plan_entry(entry: &update::PlanEntry) -> schema::PlanEntry {
    let priority = match entry.priority {
        Priority::High => PlanEntryPriority::High,
        Priority::Medium => PlanEntryPriority::Medium,
        Priority::Low => PlanEntryPriority::Low,
    };
    let status = match entry.status {
        PlanStatus::Pending => PlanEntryStatus::Pending,
        PlanStatus::InProgress => PlanEntryStatus::InProgress,
        PlanStatus::Completed => PlanEntryStatus::Completed,
    };
    schema::PlanEntry::new(visible_line(&entry.content), priority, status)
}

/// The settings of a session as configuration options.
pub(super) fn settings(all: Vec<Setting>) -> Vec<SessionConfigOption> {
    let choice = |it: update::SettingChoice| {
        SessionConfigSelectOption::new(it.value, visible_line(&it.name)).description(it.description)
    };
    let option = |it: Setting| {
        let category = match it.id {
            SettingId::Model => SessionConfigOptionCategory::Model,
            SettingId::Effort => SessionConfigOptionCategory::ThoughtLevel,
            SettingId::Mode => SessionConfigOptionCategory::Mode,
        };
        let choices: Vec<_> = it.choices.into_iter().map(choice).collect();
        SessionConfigOption::select(it.id.id(), it.id.name(), it.current, choices)
            .category(category)
    };
    all.into_iter().map(option).collect()
}

/// The modes of a session, which are one of its settings.
pub(super) fn modes(all: &[Setting]) -> Option<SessionModeState> {
    let setting = all.iter().find(|it| it.id == SettingId::Mode)?;
    let mode = |it: &update::SettingChoice| {
        SessionMode::new(it.value.clone(), it.name.clone()).description(it.description.clone())
    };
    let modes = setting.choices.iter().map(mode).collect();
    Some(SessionModeState::new(setting.current.clone(), modes))
}

/// The stop reason.
pub(super) fn stop_reason(stop: Stop) -> StopReason {
    match stop {
        Stop::EndTurn => StopReason::EndTurn,
        Stop::MaxTokens => StopReason::MaxTokens,
        Stop::MaxTurnRequests => StopReason::MaxTurnRequests,
        Stop::Refusal => StopReason::Refusal,
        Stop::Cancelled => StopReason::Cancelled,
    }
}
