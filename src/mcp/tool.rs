//! One tool of a server, as a turn sees it: judged like any other, run over the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, JsonObject};
use serde_json::Value;

use super::call::{Asker, Trouble};
use super::elicit::Caller;
use super::listed::Listed;
use super::pins::{Look, Subject};
use super::server::Server;
use super::{call, question, resources, shown};
use turnwright_workspace::checkpoint::Foreseen;
use turnwright_types::effect::{CallView, Content, Effect, RemoteCall, fenced, short_title, visible_line};
use turnwright_workspace::exec::Jobs;
use turnwright_workspace::files::Roots;
use turnwright_types::message::ToolSpec;
use turnwright_policy::permission::{Mode, Pass, code};
use crate::tools::{AnyTool, Bench, Offer, Outcome, Prepared, ToolCtx, mended};
use turnwright_types::update::Update;

/// Characters of an argument that stand in a title.
const HINT: usize = 40;
/// Arguments that an error names.
const MOST_NAMED: usize = 12;

/// A tool.
#[derive(Debug)]
pub(super) struct RemoteTool {
    /// The function's name, for the model.
    pub(super) name: String,
    pub(super) server: Arc<Server>,
    pub(super) listed: Arc<Listed>,
    /// The user was told that it has changed.
    is_told: AtomicBool,
}

impl RemoteTool {
    /// One that the model knows by that name.
    pub(super) fn new(name: String, server: Arc<Server>, listed: Arc<Listed>) -> RemoteTool {
        RemoteTool { name, server, listed, is_told: AtomicBool::new(false) }
    }

    fn view(&self, hint: Option<&str>) -> CallView {
        let mut title = format!("{}: {}", self.server.spec.name, self.listed.tool.name);
        if let Some(hint) = hint {
            title.push_str(&format!(" ({hint})"));
        }
        let title = short_title(visible_line(&title));
        CallView { title, kind: self.listed.kind(), locations: Vec::new() }
    }

    /// What is wrong with arguments, for the model, after what can be meant in one way only was put
    /// right.
    fn check(&self, arguments: &mut JsonObject) -> Result<(), String> {
        let check = &self.listed.arguments;
        let given = Value::Object(arguments.clone());
        if check.complaint(&given).is_none() {
            return Ok(());
        }
        let given = mended(given, &self.listed.parameters);
        let complaint = check.complaint(&given);
        if let (None, Value::Object(mended)) = (&complaint, given) {
            *arguments = mended;
            return Ok(());
        }
        let complaint = complaint.unwrap_or_default();
        Err(format!(
            "Invalid arguments for {}: {complaint}. The server was not called. {}",
            self.name,
            self.names()
        ))
    }

    /// The arguments that there are.
    fn names(&self) -> String {
        let parameters = &self.listed.parameters;
        let Some(properties) = parameters["properties"].as_object() else { return String::new() };
        let required = parameters["required"].as_array();
        let is_required =
            |name: &String| required.is_some_and(|it| it.iter().any(|it| it == name.as_str()));
        let name =
            |it: &String| format!("{it}{}", if is_required(it) { " (required)" } else { "" });
        let mut names: Vec<_> = properties.keys().take(MOST_NAMED).map(name).collect();
        if properties.len() > MOST_NAMED {
            names.push("…".to_owned());
        }
        if names.is_empty() {
            "It takes none.".to_owned()
        } else {
            format!("It takes: {}.", names.join(", "))
        }
    }

    /// What the server says of it now, and the number of the list. One that it is not in says
    /// nothing.
    fn now(&self) -> (Arc<Listed>, u64) {
        let state = self.server.state();
        let now = state.tools.iter().find(|it| it.tool.name == self.listed.tool.name);
        (Arc::clone(now.unwrap_or(&self.listed)), state.edition)
    }
}

impl AnyTool for RemoteTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn reads(&self) -> bool {
        // What a server says of itself counts for nothing.
        false
    }

    fn spec(&self, _: &Offer) -> Option<Arc<ToolSpec>> {
        // Made when it is told: of many tools most never are.
        Some(Arc::new(ToolSpec {
            name: self.name.clone().into(),
            description: self.listed.description.clone(),
            parameters: self.listed.parameters.clone(),
        }))
    }

    fn lender(&self) -> Option<&str> {
        Some(&self.server.spec.name)
    }

    fn title(&self) -> Option<&str> {
        let annotated = || self.listed.tool.annotations.as_ref()?.title.as_deref();
        let tool = &self.listed.tool;
        tool.title.as_deref().or_else(annotated).or(Some(&tool.name))
    }

    fn first_view(&self) -> Option<CallView> {
        Some(self.view(None))
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn Prepared>, String> {
        let arguments = match args {
            Value::Object(arguments) => arguments,
            Value::Null => JsonObject::new(),
            // All of them, written as a text.
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(arguments)) => arguments,
                _ => return Err("The arguments must be an object.".to_owned()),
            },
            _ => return Err("The arguments must be an object.".to_owned()),
        };
        Ok(Box::new(Call { tool: self, arguments, checked: None, look: Look::default() }))
    }
}

struct Call {
    tool: Arc<RemoteTool>,
    arguments: JsonObject,
    /// What is wrong with the arguments, once they were looked at.
    checked: Option<Result<(), String>>,
    /// What the tool is, compared with what was said yes to.
    look: Look,
}

impl Prepared for Call {
    fn locate(&mut self, bench: &Bench) {
        if self.checked.is_none() {
            self.checked = Some(self.tool.check(&mut self.arguments));
        }
        // As the server lists it now: what has changed while the user was asked is not what was
        // shown, and does not run.
        let (now, edition) = self.tool.now();
        let look = Subject::of(&self.tool.server.spec, &now.tool, bench).look();
        self.look = Look { edition, ..look };
    }

    fn view(&self, _: &Roots) -> CallView {
        self.tool.view(hint(&self.arguments).as_deref())
    }

    fn effects(&self) -> Vec<Effect> {
        vec![Effect::Remote(Box::new(RemoteCall {
            server: self.tool.server.spec.name.clone(),
            tool: self.tool.listed.tool.name.clone().into_owned(),
            identity: self.look.identity.clone(),
            content: self.look.content.clone(),
            claims_to_read: self.look.claims_to_read,
            change: self.look.change.clone(),
        }))]
    }

    fn look<'a>(&'a mut self, _: &'a ToolCtx) -> BoxFuture<'a, Result<Vec<Content>, String>> {
        let (spec, (now, _)) = (&self.tool.server.spec, self.tool.now());
        let change = self.look.change.as_deref();
        let words = question::words(spec, &now.tool, &self.arguments, change, now.reads_resources);
        std::future::ready(self.checked.clone().unwrap_or(Ok(())).map(|()| words)).boxed()
    }

    fn foresees(&self) -> Vec<Foreseen<'_>> {
        Vec::new()
    }

    fn run<'a>(self: Box<Self>, _: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, Outcome> {
        async move {
            if let Err(outcome) = self.remember(ctx).await {
                return outcome;
            }
            if !self.tool.server.is_kept_in() {
                return self.call(ctx).await;
            }
            // The walls keep what was there when the server was started. What was not, or was
            // replaced since, they do not know.
            let (bench, name) = (Arc::clone(&ctx.bench), ctx.call.clone());
            let before = tokio::task::spawn_blocking(move || {
                bench.cells.look_out(name.as_str(), &bench.walls.protected)
            });
            let Ok(before) = before.await else { return self.call(ctx).await };
            let mut outcome = self.call(ctx).await;
            let bench = Arc::clone(&ctx.bench);
            let after = tokio::task::spawn_blocking(move || {
                bench.cells.look_again(&before, &bench.aside())
            });
            if let Ok(Some(report)) = after.await {
                ctx.bench.client.update(Update::Notice(report.clone()));
                outcome.text.push_str(&format!("\n{report}"));
            }
            outcome
        }
        .boxed()
    }
}

impl Call {
    /// A yes is for what the tool is now: that is written down, before the call. In the mode that
    /// asks about nothing nobody has said yes to a change, so it is told and stays one.
    ///
    /// # Errors
    /// When it is not any more what was looked at.
    async fn remember(&self, ctx: &ToolCtx) -> Result<(), Outcome> {
        let is_as_seen = self.tool.server.state().edition == self.look.edition;
        if self.look.is_known && is_as_seen {
            return Ok(());
        }
        let name = code(&self.tool.view(None).title);
        let tell = |text| ctx.bench.client.update(Update::Notice(text));
        let (tool, bench, look) =
            (Arc::clone(&self.tool), Arc::clone(&ctx.bench), self.look.clone());
        let is_unasked = look.change.is_some() && bench.mode.get() == Mode::Full;
        let pinning = tokio::task::spawn_blocking(move || {
            let (now, _) = tool.now();
            let subject = Subject::of(&tool.server.spec, &now.tool, &bench);
            if subject.look().content != look.content {
                return None;
            }
            Some(if is_unasked { Ok(()) } else { subject.pin() })
        });
        match (pinning.await, &self.look.change) {
            (Ok(None), _) => {
                return Err(Outcome::failed(
                    "The server has changed this tool while the call was on its way, so it was \
                     not called. Call it again if it is still right.",
                ));
            }
            (Ok(Some(Err(error))), _) => tell(format!(
                "What {name} is could not be written down ({error}): a change of it would not be \
                 noticed."
            )),
            (Ok(_), Some(change))
                if is_unasked && !self.tool.is_told.swap(true, Ordering::Relaxed) =>
            {
                tell(format!(
                    "{name} is not what was allowed before; it is called all the same in this \
                     mode.\n\n{}",
                    fenced(change)
                ));
            }
            _ => {}
        }
        Ok(())
    }

    async fn call(self: Box<Self>, ctx: &ToolCtx) -> Outcome {
        let (server, listed) = (&self.tool.server, Arc::clone(&self.tool.listed));
        let client = Arc::clone(&ctx.bench.client);
        let caller = Caller::new(ctx.call.clone(), client, &ctx.cancel);
        let _calling = server.callers.enter(caller.clone());
        let (peer, connection) = match server.peer().await {
            Ok(found) => found,
            Err(why) => return Outcome::failed(why),
        };
        let roots = server.roots();
        let asker = Asker { server: &server.spec.name, roots: &roots, caller: Some(&caller) };
        let progress = &server.state().progress;
        let limits = server.spec.limits;
        let answer = if listed.reads_resources {
            resources::answer(&peer, &self.arguments, limits.call, ctx).await
        } else {
            let name = listed.tool.name.clone();
            let params = CallToolRequestParams::new(name).with_arguments(self.arguments);
            call::call(&peer, progress, params, limits, asker, ctx).await
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(Trouble::Told(why)) => return Outcome::failed(why),
            Err(Trouble::Lost) => return Outcome::failed(server.lost(connection).await),
        };
        let folder = Jobs::folder(&ctx.bench.commons.folders.state, &ctx.bench.session);
        let file = folder.join(format!("{}.txt", file_name(ctx.call.as_str())));
        let showing = tokio::task::spawn_blocking(move || {
            shown::outcome(answer, listed.results.as_ref(), &file)
        });
        showing.await.unwrap_or_else(|error| Outcome::failed(error.to_string()))
    }
}

/// What a call is about, in a few words: its first short text.
fn hint(arguments: &JsonObject) -> Option<String> {
    let texts = arguments.values().filter_map(Value::as_str).map(str::trim);
    let first = texts.into_iter().find(|it| !it.is_empty())?;
    let mut hint = visible_line(first);
    if let Some((end, _)) = hint.char_indices().nth(HINT) {
        hint.truncate(end);
        hint.push('…');
    }
    Some(hint)
}

/// The name of a call as one of a file.
fn file_name(call: &str) -> String {
    let fits = |it: &char| it.is_ascii_alphanumeric() || *it == '-' || *it == '_';
    let name: String = call.chars().filter(fits).take(80).collect();
    format!("mcp-{name}")
}
