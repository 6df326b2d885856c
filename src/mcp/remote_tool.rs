//! One tool of an MCP server as a turn sees it: judged like a built-in tool, and run by the server. The question to
//! the user says what is sent and to which server, how the server describes the tool, and what has changed. No text
//! from a server can be mistaken for our own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::tool_outcome;
use super::tool_pins::{PinCheck, ToolPins, server_location};
use crate::tools::{
    AnyTool, CallPlan, HAS_CHANGED, OfferContext, PreparedCall, ToolCtx, ToolEnv, ToolOutcome,
    marked_names, repair_arguments,
};
use turnwright_guard::RemoteCallGuard;
use turnwright_mcp::{
    CallError, JsonObject, ListedTool, Server, ServerSource, ServerSpec, ServerTransport, Tool,
    WaitingCall, call, resources,
};
use turnwright_policy::permission::{Mode, Pass, markdown_code};
use turnwright_types::effect::{
    CallContent, CallView, Effect, RemoteCall, escape_hidden_line, fenced, shorten_title,
};
use turnwright_types::message::ToolSpec;
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text::{self, escape_markdown};
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::ExpectedChange;

/// Maximum length of an argument in a title.
const MAX_HINT_CHARS: usize = 40;
/// Maximum number of argument names in an error message.
const MAX_NAMED_ARGUMENTS: usize = 12;

/// Tells the model that the snapshot of the protected files has failed.
const NOT_GUARDED: &str = "The server was not called: because of a bug in turnwright the protected files could \
                    not be recorded before the call.";
/// Maximum number of arguments that a question lists. The client also receives all of them as the raw input.
const MAX_ARGUMENTS: usize = 12;
/// Maximum length of the server's description.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// A tool of an MCP server.
#[derive(Debug)]
pub(super) struct RemoteTool {
    /// The name by which the model knows the tool.
    pub(super) name: String,
    pub(super) server: Arc<Server>,
    pub(super) listed: Arc<ListedTool>,
    /// True if the user has been told that the tool has changed.
    has_reported_change: AtomicBool,
}

impl RemoteTool {
    /// Creates a tool that the model will know by this name.
    pub(super) fn new(name: String, server: Arc<Server>, listed: Arc<ListedTool>) -> RemoteTool {
        RemoteTool { name, server, listed, has_reported_change: AtomicBool::new(false) }
    }

    fn view(&self, hint: Option<&str>) -> CallView {
        let mut title = format!("{}: {}", self.server.spec.name, self.listed.tool.name);
        title.extend(hint.map(|hint| format!(" ({hint})")));
        let title = shorten_title(escape_hidden_line(&title));
        CallView::new(title, self.listed.kind())
    }

    /// Validates the arguments, after repairing unambiguous mistakes.
    ///
    /// # Errors
    /// If they are invalid; the text is for the model.
    fn validate(&self, arguments: &mut JsonObject) -> Result<(), ToolRefusal> {
        let uri = arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
        let state = self.server.state();
        let mut skills = state.tools.iter().filter_map(|listed| listed.tool.skill.as_ref());
        if self.listed.reads_resources && skills.any(|skill| skill.contains(uri)) {
            return Err("This is a file of a skill. Load it with that skill's own tool.".into());
        }
        let validator = &self.listed.arguments;
        let given = Value::Object(arguments.clone());
        if validator.first_error(&given).is_none() {
            return Ok(());
        }
        let given = repair_arguments(given, &Value::Object(self.listed.parameters.parse()));
        let error = validator.first_error(&given);
        if let (None, Value::Object(repaired)) = (&error, given) {
            *arguments = repaired;
            return Ok(());
        }
        let error = error.unwrap_or_default();
        Err(format!(
            "Invalid arguments for {}: {error}. The server was not called. {}",
            self.name,
            self.argument_names()
        )
        .into())
    }

    /// Names the tool's arguments, for an error message.
    fn argument_names(&self) -> String {
        let schema = Value::Object(self.listed.parameters.parse());
        if !schema["properties"].is_object() {
            return String::new();
        }
        let mut names = marked_names(&schema);
        if names.len() > MAX_NAMED_ARGUMENTS {
            names.truncate(MAX_NAMED_ARGUMENTS);
            names.push("…".to_owned());
        }
        if names.is_empty() {
            "It takes none.".to_owned()
        } else {
            format!("It takes: {}.", names.join(", "))
        }
    }

    /// Returns the tool as the server lists it now, and the version of the list. A tool that is no
    /// longer listed is returned as it was.
    fn current(&self) -> (Arc<ListedTool>, u64) {
        let state = self.server.state();
        let current = state.tools.iter().find(|tool| tool.tool.name == self.listed.tool.name);
        (Arc::clone(current.unwrap_or(&self.listed)), state.tools_version)
    }
}

impl AnyTool for RemoteTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_read_only(&self) -> bool {
        // A server's own annotations are not trusted.
        false
    }

    fn spec(&self, _: &OfferContext) -> Option<Arc<ToolSpec>> {
        // Built on demand: of many tools, most are never sent to the model.
        Some(Arc::new(ToolSpec {
            name: self.name.clone().into(),
            description: self.listed.description.clone(),
            parameters: Value::Object(self.listed.parameters.parse()),
        }))
    }

    fn server(&self) -> Option<&str> {
        Some(&self.server.spec.name)
    }

    fn title(&self) -> Option<&str> {
        let tool = &self.listed.tool;
        let title = tool.title.as_deref();
        title.or_else(|| tool.annotations.as_ref()?.title.as_deref()).or(Some(&tool.name))
    }

    fn pending_view(&self) -> Option<CallView> {
        Some(self.view(None))
    }

    fn understood(&self, args: Value) -> Value {
        let parsed = args.as_str().and_then(|text| serde_json::from_str(text).ok());
        match parsed.unwrap_or(args) {
            Value::Object(mut arguments) => {
                self.validate(&mut arguments).ok();
                Value::Object(arguments)
            }
            other => other,
        }
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn PreparedCall>, ToolRefusal> {
        let arguments = match args {
            Value::Object(arguments) => arguments,
            Value::Null => JsonObject::new(),
            // Some models send the arguments as a string of JSON.
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(arguments)) => arguments,
                _ => return Err("The arguments must be an object.".into()),
            },
            _ => return Err("The arguments must be an object.".into()),
        };
        Ok(Box::new(RemoteToolCall {
            tool: self,
            arguments,
            validation: None,
            pin_check: PinCheck::default(),
            file: None,
        }))
    }
}

/// A call of a tool of an MCP server.
struct RemoteToolCall {
    tool: Arc<RemoteTool>,
    arguments: JsonObject,
    /// The result of validating the arguments; `None` before that.
    validation: Option<Result<(), ToolRefusal>>,
    /// The comparison of the tool with the definition that the user has allowed.
    pin_check: PinCheck,
    /// The file of a skill that the question shows and the model will get: its path and its text.
    file: Option<Arc<(String, String)>>,
}

impl PreparedCall for RemoteToolCall {
    fn plan(&mut self, env: &ToolEnv) -> CallPlan {
        if self.validation.is_none() {
            self.validation = Some(self.tool.validate(&mut self.arguments));
        }
        // The current definition is compared: if it changed while the user was being asked, it
        // is not what was shown, and the call does not run.
        let (current, tools_version) = self.tool.current();
        let pin_check = ToolPins::of(&self.tool.server.spec, &current, None, env).check();
        self.pin_check = PinCheck { tools_version, ..pin_check };
        let effect = Effect::Remote(Box::new(RemoteCall {
            server: self.tool.server.spec.name.clone(),
            tool: self.tool.listed.tool.name.clone(),
            server_digest: self.pin_check.server_digest.clone(),
            tool_digest: self.pin_check.tool_digest.clone(),
            claims_read_only: self.pin_check.claims_read_only,
            change_since_approval: self.pin_check.change.clone(),
        }));
        CallPlan { view: self.tool.view(hint(&self.arguments).as_deref()), effects: vec![effect] }
    }

    fn preview<'a>(
        &'a mut self,
        ctx: &'a ToolCtx,
    ) -> BoxFuture<'a, Result<Vec<CallContent>, ToolRefusal>> {
        async move { self.question(ctx).await.map_err(escaped) }.boxed()
    }

    fn expected_changes(&self) -> Vec<ExpectedChange<'_>> {
        Vec::new()
    }

    fn run<'a>(self: Box<Self>, _: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, ToolOutcome> {
        async move {
            if let Err(outcome) = self.update_pin(ctx).await {
                return outcome;
            }
            match (&self.file, &self.tool.current().0.tool.skill) {
                (Some(file), Some(skill)) => {
                    let mut text = skill.content(&self.tool.server.spec.name, &file.1);
                    redact::redact_in_place(&mut text);
                    let raw = json!({ "bytes": text.len() });
                    return ToolOutcome::done(text, Vec::new(), raw);
                }
                (None, None) => {}
                _ => return ToolOutcome::failed(HAS_CHANGED),
            }
            if !self.tool.server.is_confined() {
                return self.call(ctx).await;
            }
            // The sandbox protects the files that existed when the server was started. Files that were
            // created or replaced since are checked after the call.
            let site = ctx.env.command_site().clone();
            let call_id = ctx.call.clone();
            let who = "the server, or another program during the call,";
            let guard = spawn_blocking(move || RemoteCallGuard::new(site, call_id.as_str(), who));
            let Ok(guard) = guard.await else { return ToolOutcome::failed(NOT_GUARDED) };
            let mut outcome = self.call(ctx).await;
            outcome.text.extend(guard.finish().await.map(|report| format!("\n{report}")));
            outcome
        }
        .boxed()
    }
}

impl RemoteToolCall {
    /// Returns what the question to the user shows, for which the text of a skill is loaded.
    async fn question(&mut self, ctx: &ToolCtx) -> Result<Vec<CallContent>, ToolRefusal> {
        self.validation.clone().unwrap_or(Ok(()))?;
        let (current, _) = self.tool.current();
        let mut change = self.pin_check.change.clone();
        if let Some(skill) = &current.tool.skill {
            let path = self.arguments.get("file").and_then(Value::as_str).unwrap_or_default();
            let (peer, _) = self.tool.server.peer().await?;
            let client = Arc::clone(&ctx.env.client);
            let caller = WaitingCall::new(ctx.call.clone(), client, &ctx.cancel);
            let file = Arc::new((path.to_owned(), skill.load(&peer, path, &caller).await?));
            self.file = Some(Arc::clone(&file));
            let tool = Arc::clone(&self.tool);
            let listed = Arc::clone(&current);
            let env = Arc::clone(&ctx.env);
            // Now that the text is loaded, its changes can be shown too.
            let checking = spawn_blocking(move || {
                ToolPins::of(&tool.server.spec, &listed, Some(&file), &env).check()
            });
            let pin_check = checking.await.map_err(|error| error.to_string())?;
            if pin_check.tool_digest != self.pin_check.tool_digest {
                return Err(HAS_CHANGED.into());
            }
            change = pin_check.change;
        }
        let spec = &self.tool.server.spec;
        let mut content = question_content(spec, &current, &self.arguments, change.as_deref());
        content.extend(self.file.as_ref().map(|file| {
            // The whole text, so that the user sees everything that an answer would allow.
            let mut shown = file.1.clone();
            redact::redact_in_place(&mut shown);
            CallContent::Text(format!("The model will get this text:\n\n{}", fenced(&shown)))
        }));
        Ok(content)
    }

    /// Records before the call that the user has allowed the tool as it is now. In `full` mode the user
    /// was not asked, so a change is only reported and not recorded.
    ///
    /// # Errors
    /// If the tool has changed since it was shown to the user.
    async fn update_pin(&self, ctx: &ToolCtx) -> Result<(), ToolOutcome> {
        let is_current = self.tool.server.state().tools_version == self.pin_check.tools_version;
        if self.pin_check.is_pinned && is_current {
            return Ok(());
        }
        let name = markdown_code(&self.tool.view(None).title);
        let notify = |text| ctx.env.client.update(Update::Notice(text));
        let tool = Arc::clone(&self.tool);
        let env = Arc::clone(&ctx.env);
        let pin_check = self.pin_check.clone();
        let file = self.file.clone();
        let was_not_asked = pin_check.change.is_some() && env.mode() == Mode::Full;
        let pinning = spawn_blocking(move || {
            let (current, _) = tool.current();
            let pins = ToolPins::of(&tool.server.spec, &current, file.as_deref(), &env);
            if pins.check().tool_digest != pin_check.tool_digest {
                return None;
            }
            Some(if was_not_asked { Ok(()) } else { pins.pin() })
        });
        match (pinning.await, &self.pin_check.change) {
            (Ok(None), _) => return Err(ToolOutcome::failed(HAS_CHANGED)),
            (Ok(Some(Err(error))), _) => notify(format!(
                "The definition of {name} could not be recorded ({error}). You will not be told if it \
                 changes."
            )),
            (Ok(_), Some(change))
                if was_not_asked
                    && !self.tool.has_reported_change.swap(true, Ordering::Relaxed) =>
            {
                notify(format!(
                    "{name} has changed since you allowed it. In this mode it is called all the \
                     same.\n\n{}",
                    fenced(change)
                ));
            }
            _ => {}
        }
        Ok(())
    }

    async fn call(self: Box<Self>, ctx: &ToolCtx) -> ToolOutcome {
        let server = &self.tool.server;
        let listed = Arc::clone(&self.tool.listed);
        let client = Arc::clone(&ctx.env.client);
        let caller = WaitingCall::new(ctx.call.clone(), client, &ctx.cancel);
        let _waiting = server.callers.add(caller.clone());
        let (peer, connection) = match server.peer().await {
            Ok(found) => found,
            Err(why) => return ToolOutcome::failed(escaped(why)),
        };
        let result = if listed.reads_resources {
            // Followed before it is read, so that no change in between is missed.
            let uri = resources::wanted_uri(&self.arguments);
            let followed = uri.and_then(|uri| {
                let name = format!("The resource {uri} of the MCP server {}", server.spec.name);
                Some((escape_hidden_line(&name), peer.follow(uri)?))
            });
            let limit = server.spec.timeouts.call;
            let result = resources::call(&peer, &self.arguments, limit, &caller).await;
            if result.is_ok() && followed.is_some() {
                ctx.env.follow_resource(followed);
            }
            result
        } else {
            let tool = (listed.tool.name.as_str(), self.arguments);
            call(server, (&peer, connection), tool, &caller).await
        };
        let result = match result {
            Ok(result) => result,
            Err(CallError::Failed(why)) => return ToolOutcome::failed(escaped(why)),
            Err(CallError::ConnectionLost) => {
                let why = server.lost_call_message(connection).await;
                return ToolOutcome::failed(escaped(why));
            }
        };
        let folder = ctx.env.output_folder();
        let file = folder.join(format!("{}.txt", file_name(ctx.call.as_str())));
        if listed.results.is_none() && tool_outcome::is_short(&result) {
            return tool_outcome::outcome(result, None, &file);
        }
        let converting =
            spawn_blocking(move || tool_outcome::outcome(result, listed.results.as_ref(), &file));
        converting.await.unwrap_or_else(|error| ToolOutcome::failed(error.to_string()))
    }
}

/// Escapes the server's words in the description of a failure that the user sees.
fn escaped(failure: impl Into<ToolRefusal>) -> ToolRefusal {
    let failure = failure.into();
    ToolRefusal { for_user: escape_markdown(&failure.for_user), ..failure }
}

/// The first text argument, shortened, to tell calls apart in their titles.
fn hint(arguments: &JsonObject) -> Option<String> {
    let texts = arguments.values().filter_map(Value::as_str).map(str::trim);
    let first = texts.into_iter().find(|text| !text.is_empty())?;
    Some(text::clip(escape_hidden_line(first), MAX_HINT_CHARS))
}

/// The file name for the output of a call.
fn file_name(call: &str) -> String {
    let valid = call
        .chars()
        .filter(|&character| character.is_ascii_alphanumeric() || matches!(character, '-' | '_'));
    let name: String = valid.take(80).collect();
    format!("mcp-{name}")
}

fn question_content(
    spec: &ServerSpec,
    listed: &ListedTool,
    arguments: &JsonObject,
    change: Option<&str>,
) -> Vec<CallContent> {
    let tool = &listed.tool;
    let mut lines = vec![server_line(spec)];
    if listed.reads_resources {
        lines.push("reads a resource of the server, or lists its resources".to_owned());
    } else if let Some(skill) = &tool.skill {
        lines.push("loads a skill: instructions from the server, which permit nothing".to_owned());
        lines.extend(description(&skill.description));
    } else {
        lines.extend(tool.description.as_deref().and_then(description));
        lines.extend(
            claims(tool).map(|words| format!("the server claims that it {words} (not verified)")),
        );
    }
    for (name, value) in arguments.iter().take(MAX_ARGUMENTS) {
        let mut value = value.to_string();
        redact::redact_in_place(&mut value);
        lines.push(format!("{} = {}", markdown_code(name), markdown_code(&value)));
    }
    if arguments.len() > MAX_ARGUMENTS {
        lines.push(format!("… and {} more arguments", arguments.len() - MAX_ARGUMENTS));
    }
    let lines: Vec<_> = lines.into_iter().map(|line| format!("- {line}")).collect();
    let change = change.map(|change| {
        CallContent::Text(format!("⚠ Changed since you allowed it:\n\n{}", fenced(change)))
    });
    change.into_iter().chain([CallContent::Text(lines.join("\n"))]).collect()
}

fn server_line(spec: &ServerSpec) -> String {
    let source = match spec.source {
        ServerSource::Client => "configured by your editor",
        ServerSource::User => "from your settings",
        ServerSource::Project => "from this project",
    };
    match &spec.transport {
        ServerTransport::Stdio { .. } => {
            let sandbox = if spec.sandbox.is_enabled { "" } else { ", without the sandbox" };
            let program = markdown_code(&server_location(spec));
            format!("the server runs {program} ({source}){sandbox}")
        }
        ServerTransport::Http { .. } => {
            format!("the server is {} ({source})", markdown_code(&server_location(spec)))
        }
        ServerTransport::Linked(_) => {
            "the server runs within your editor, outside of the sandbox".to_owned()
        }
    }
}

/// The first line of a description that the server gives, for the question.
fn description(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let short = text::first_chars(line, MAX_DESCRIPTION_CHARS);
    let more = if short.len() < text.trim().len() { " …" } else { "" };
    Some(format!(
        "the server's description: “{}{more}”",
        escape_markdown(&escape_hidden_line(short))
    ))
}

fn claims(tool: &Tool) -> impl Iterator<Item = &'static str> {
    let hints = tool.annotations.clone().unwrap_or_default();
    let claims = [
        (hints.read_only_hint == Some(true), "only reads"),
        (hints.destructive_hint == Some(true), "may destroy data"),
        (hints.destructive_hint == Some(false), "destroys nothing"),
    ];
    claims.into_iter().filter(|claim| claim.0).map(|claim| claim.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn shown(tool: &str, arguments: &str, change: Option<&str>) -> String {
        let transport = ServerTransport::Stdio {
            command: "/bin/notes".into(),
            arguments: vec!["--key=secret".to_owned()],
            environment: Vec::new(),
        };
        let spec = ServerSpec::new("notes", ServerSource::Client, transport);
        let tool = ListedTool::new(serde_json::from_str(tool).unwrap());
        let arguments = serde_json::from_str(arguments).unwrap();
        let content = question_content(&spec, &tool, &arguments, change);
        let texts = content.iter().map(|content| match content {
            CallContent::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        });
        texts.collect::<Vec<_>>().join("\n---\n")
    }

    #[test]
    fn text_of_a_server_cannot_pass_for_ours() {
        let tool = r#"{"name":"add","description":"\n**Safe.** [x](y)\u202e\n- ✓ allowed\n","inputSchema":{},
            "annotations":{"readOnlyHint":true,"destructiveHint":false}}"#;
        expect![[r#"
            - the server runs `/bin/notes` (configured by your editor)
            - the server's description: “\*\*Safe.\*\* \[x\](y)\\u{202e} …”
            - the server claims that it only reads (not verified)
            - the server claims that it destroys nothing (not verified)
            - `` a`b `` = `"x\n- ✓ y"`
            - `n` = `{"deep":[1,2]}`"#]]
        .assert_eq(&shown(tool, r#"{"a`b":"x\n- ✓ y","n":{"deep":[1,2]}}"#, None));
    }

    #[test]
    fn a_change_comes_first_in_a_fence_and_arguments_are_bounded() {
        let many: Vec<_> =
            (0..20).map(|number| format!("\"k{number}\":\"{}\"", "v".repeat(900))).collect();
        let tool = r#"{"name":"add","inputSchema":{}}"#;
        let text = shown(tool, &format!("{{{}}}", many.join(",")), Some("-a\n+```\n"));
        assert!(text.starts_with("⚠ Changed since you allowed it:\n\n````\n-a\n+```\n````"));
        assert!(text.ends_with("- … and 8 more arguments"), "{text}");
        assert!(text.len() < 5_000);
    }
}
