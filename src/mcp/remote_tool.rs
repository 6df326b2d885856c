//! One tool of an MCP server as a turn sees it: judged like a built-in tool, and run by the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::tool_pins::{PinCheck, ToolPins};
use super::{question, tool_outcome};
use crate::tools::{
    AnyTool, CallPlan, OfferContext, PreparedCall, ToolCtx, ToolEnv, ToolOutcome, repair_arguments,
};
use tokio::task::spawn_blocking;
use turnwright_guard::RemoteCallGuard;
use turnwright_mcp::{CallError, JsonObject, ListedTool, Server, WaitingCall, call, resources};
use turnwright_policy::permission::{Mode, Pass, markdown_code};
use turnwright_types::effect::{
    CallContent, CallView, Effect, RemoteCall, escape_hidden_line, fenced, shorten_title,
};
use turnwright_types::message::ToolSpec;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::ExpectedChange;

/// Maximum length of an argument in a title.
const MAX_HINT_CHARS: usize = 40;
/// Argument names in an error message.
const MAX_NAMED_ARGUMENTS: usize = 12;

/// For the model, if the snapshot of the protected files has failed.
const NOT_GUARDED: &str = "The server was not called: because of a bug in turnwright the protected files could \
                    not be recorded before the call.";

/// A tool of an MCP server.
#[derive(Debug)]
pub(super) struct RemoteTool {
    /// The name by which the model knows the tool.
    pub(super) name: String,
    pub(super) server: Arc<Server>,
    pub(super) listed: Arc<ListedTool>,
    /// The user has been told that the tool has changed.
    has_told_change: AtomicBool,
}

impl RemoteTool {
    /// Creates a tool under the name by which the model is to know it.
    pub(super) fn new(name: String, server: Arc<Server>, listed: Arc<ListedTool>) -> RemoteTool {
        RemoteTool { name, server, listed, has_told_change: AtomicBool::new(false) }
    }

    fn view(&self, hint: Option<&str>) -> CallView {
        let mut title = format!("{}: {}", self.server.spec.name, self.listed.tool.name);
        if let Some(hint) = hint {
            title.push_str(&format!(" ({hint})"));
        }
        let title = shorten_title(escape_hidden_line(&title));
        CallView::new(title, self.listed.kind())
    }

    /// Validates the arguments, after repairing unambiguous mistakes.
    ///
    /// # Errors
    /// If they are invalid; the text is for the model.
    fn validate(&self, arguments: &mut JsonObject) -> Result<(), ToolRefusal> {
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
        let parameters = self.listed.parameters.parse();
        let properties = parameters.get("properties").and_then(Value::as_object);
        let Some(properties) = properties else { return String::new() };
        let required = parameters.get("required").and_then(Value::as_array);
        let listed = properties.keys().take(MAX_NAMED_ARGUMENTS).map(|name| {
            let is_required =
                required.is_some_and(|names| names.iter().any(|entry| entry == name.as_str()));
            format!("{name}{}", if is_required { " (required)" } else { "" })
        });
        let mut names: Vec<_> = listed.collect();
        if properties.len() > MAX_NAMED_ARGUMENTS {
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
        // Made on demand, because most of many tools are never sent to the model.
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
        }))
    }
}

/// A call of a tool of an MCP server.
struct RemoteToolCall {
    tool: Arc<RemoteTool>,
    arguments: JsonObject,
    /// The result of validating the arguments, once that was done.
    validation: Option<Result<(), ToolRefusal>>,
    /// The comparison of the tool with the user's permission.
    pin_check: PinCheck,
}

impl PreparedCall for RemoteToolCall {
    fn plan(&mut self, env: &ToolEnv) -> CallPlan {
        if self.validation.is_none() {
            self.validation = Some(self.tool.validate(&mut self.arguments));
        }
        // The current definition is compared: if it has changed while the user was asked, it is not
        // what was shown, and the call does not run.
        let (current, tools_version) = self.tool.current();
        let pin_check = ToolPins::of(&self.tool.server.spec, &current, env).check();
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
        _: &'a ToolCtx,
    ) -> BoxFuture<'a, Result<Vec<CallContent>, ToolRefusal>> {
        let (spec, (current, _)) = (&self.tool.server.spec, self.tool.current());
        let change = self.pin_check.change.as_deref();
        let content = question::question_content(
            spec,
            &current.tool,
            &self.arguments,
            change,
            current.reads_resources,
        );
        std::future::ready(self.validation.clone().unwrap_or(Ok(())).map(|()| content)).boxed()
    }

    fn expected_changes(&self) -> Vec<ExpectedChange<'_>> {
        Vec::new()
    }

    fn run<'a>(self: Box<Self>, _: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, ToolOutcome> {
        async move {
            if let Err(outcome) = self.update_pin(ctx).await {
                return outcome;
            }
            if !self.tool.server.is_confined() {
                return self.call(ctx).await;
            }
            // The sandbox protects the files that existed when the server was started. Files that were
            // created or replaced since are checked after the call.
            let site = ctx.env.command_site().clone();
            let name = ctx.call.clone();
            let guard = spawn_blocking(move || RemoteCallGuard::new(site, name.as_str()));
            let Ok(guard) = guard.await else { return ToolOutcome::failed(NOT_GUARDED) };
            let mut outcome = self.call(ctx).await;
            if let Some(report) = guard.finish().await {
                outcome.text.push_str(&format!("\n{report}"));
            }
            outcome
        }
        .boxed()
    }
}

impl RemoteToolCall {
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
        let was_not_asked = pin_check.change.is_some() && env.shared.mode.get() == Mode::Full;
        let pinning = spawn_blocking(move || {
            let (current, _) = tool.current();
            let pinned = ToolPins::of(&tool.server.spec, &current, &env);
            if pinned.check().tool_digest != pin_check.tool_digest {
                return None;
            }
            Some(if was_not_asked { Ok(()) } else { pinned.pin() })
        });
        match (pinning.await, &self.pin_check.change) {
            (Ok(None), _) => {
                return Err(ToolOutcome::failed(
                    "The server has changed this tool while the call was on its way, so it was \
                     not called. Call it again if it is still right.",
                ));
            }
            (Ok(Some(Err(error))), _) => notify(format!(
                "The definition of {name} could not be recorded ({error}). You will not be told if it \
                 changes."
            )),
            (Ok(_), Some(change))
                if was_not_asked && !self.tool.has_told_change.swap(true, Ordering::Relaxed) =>
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
            Err(why) => return ToolOutcome::failed(why),
        };
        let timeouts = server.spec.timeouts;
        let result = if listed.reads_resources {
            resources::call(&peer, &self.arguments, timeouts.call, &ctx.cancel).await
        } else {
            let tool = (listed.tool.name.as_str(), self.arguments);
            call(&peer, tool, timeouts, &caller).await
        };
        let result = match result {
            Ok(result) => result,
            Err(CallError::Failed(why)) => return ToolOutcome::failed(why),
            Err(CallError::ConnectionLost) => {
                return ToolOutcome::failed(server.lost_call_message(connection).await);
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
