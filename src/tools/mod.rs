//! The tools of the model. A call is parsed once and planned; its plan is judged and shown, and only
//! then it runs: `run` needs a [`Pass`]. `ARCHITECTURE.md` says how a tool is added: a file, and a line in [`built_in`].

mod agent;
mod arguments;
mod ask_user;
mod call_plan;
mod commands;
mod tool_env;
mod exit_plan;
mod files;
mod helper_set;
mod history;
mod project_context;
mod memory;
mod outcome;
mod plan;
mod registry;
mod shown_argument;
mod skill;
mod web_fetch;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use turnwright_guard::command::{RestrictedFiles, TOO_MANY_FILES};
use turnwright_guard::note_about_other_names;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallContent, CallView, ResolvedPath, ToolKind, escape_hidden_line};
use turnwright_types::ids::CallId;
use turnwright_types::message::{Media, ToolSpec};
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::checkpoint::ExpectedChange;
use turnwright_workspace::files::Files;

pub(crate) use agent::{AGENT_TOOL, may_edit};
pub(crate) use arguments::{canonical_name, repair_arguments};
pub(crate) use call_plan::{CallPlan, CallSite, PreviewedChange};
pub(crate) use commands::{is_waiting, patch_call};
pub(crate) use files::{current_place, edited_path};
pub(crate) use helper_set::{HelperRunner, HelperSet, HelperTask, QuestionTurn};
pub(crate) use outcome::{
    outcome_json, preview_json, raw_output, read_outcome, read_preview, read_view, view_json,
};
pub(crate) use project_context::{
    PROJECT_READ_TIMEOUT, ProjectContext, custom_commands, describe_notes, describe_skills,
    folder_instructions, project_sources, read_project_context,
};
pub(crate) use registry::{
    AllowedTools, RemoteTools, SMALL_WINDOW, ServerStatus, ToolIndex, essential_weight,
};
pub use registry::{OfferContext, Registry, Toolbox};
pub(crate) use shown_argument::{ArgumentRole, COMMON_ARGUMENTS, ShownArgument};
pub(crate) use tool_env::{ProcessShared, SessionShared, SharedValue, ToolEnv, UserFolders};

/// All built-in tools, in the order in which error messages list them.
pub fn built_in() -> Vec<Arc<dyn AnyTool>> {
    vec![
        Arc::new(files::ReadFile),
        Arc::new(files::WriteFile),
        Arc::new(files::EditFile),
        Arc::new(files::ApplyPatch),
        Arc::new(files::MovePath),
        Arc::new(files::DeletePath),
        Arc::new(files::ListDir),
        Arc::new(files::FindFiles),
        Arc::new(files::Grep),
        Arc::new(commands::Exec),
        Arc::new(commands::ExecOutput),
        Arc::new(web_fetch::WebFetch),
        Arc::new(plan::Plan),
        Arc::new(memory::Memory),
        Arc::new(skill::LoadSkill),
        Arc::new(history::History),
        Arc::new(agent::Agent),
        Arc::new(ask_user::AskUser),
        Arc::new(exit_plan::ExitPlan),
    ]
}

/// A built-in tool.
pub trait Tool: Debug + Send + Sync + 'static {
    const NAME: &'static str;
    const KIND: ToolKind;
    /// The title of the card while the arguments are still being streamed.
    const PENDING_TITLE: &'static str;
    /// True if the client sees a card for a call. A plan has its own display.
    const HAS_CARD: bool = true;
    /// The arguments that the card shows while they are still being streamed.
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[];
    /// The arguments. The model reads the doc comments of the type and of its fields as the
    /// descriptions.
    type Args: DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The result of [`Tool::preview`] for [`Tool::run`].
    type Preview: PreviewedChange;

    /// True if no call ever changes anything, so that repeating the same call brings nothing new.
    /// The effects of calls, not this, decide if they may run concurrently.
    const IS_READ_ONLY: bool = false;
    /// True if a call runs other calls and waits for them, as a helper does. It does not count among the
    /// calls that run concurrently, and a cancel waits for it to end them.
    const RUNS_CALLS: bool = false;

    /// The paths among the arguments as the model has sent them. Each is replaced by the one that it means
    /// before anything else looks at it.
    fn path_arguments<'a>(&self, _args: &'a mut Self::Args) -> Vec<PathArgument<'a>> {
        Vec::new()
    }

    /// Restricts the call to the lines that the model has named with a path. Returns false if it works on
    /// whole files only.
    fn choose_lines(&self, _args: &mut Self::Args, _lines: (u32, u32)) -> bool {
        !matches!(Self::KIND, ToolKind::Edit | ToolKind::Delete | ToolKind::Move)
    }

    /// Returns true if the tool is advertised to the model.
    fn is_offered(&self, _offer: &OfferContext) -> bool {
        true
    }

    /// Adapts the tool's spec to the session.
    fn adapt_spec(&self, _spec: &mut ToolSpec, _offer: &OfferContext) {}

    /// Plans the call: resolves its paths at the site, completes the arguments with facts that only the
    /// disk tells, and says how the call is shown and what it may touch. Blocks: it is not called on the
    /// runtime's thread. Changes nothing, and may be called again for the same call.
    fn plan(&self, args: &mut Self::Args, site: &mut CallSite<'_>) -> CallPlan;

    /// Computes the effect of the call, so that the user can be shown the real change before being
    /// asked. `targets` are the paths that the plan has resolved. Changes nothing. If it fails, the call
    /// fails with this error.
    fn preview(
        &self,
        _args: &Self::Args,
        _targets: &[ResolvedPath],
        _ctx: &ToolCtx,
    ) -> impl Future<Output = Result<(Self::Preview, Vec<CallContent>), ToolRefusal>> + Send {
        std::future::ready(Ok((Self::Preview::default(), Vec::new())))
    }

    /// Executes the call. A failure is an answer for the model, so this returns no `Result`.
    fn run(
        &self,
        args: Self::Args,
        preview: Self::Preview,
        pass: &Pass,
        ctx: &ToolCtx,
    ) -> impl Future<Output = ToolOutcome> + Send;
}

/// The context of one call.
#[derive(Clone, Debug)]
pub struct ToolCtx {
    /// The environment of the conversation.
    pub env: Arc<ToolEnv>,
    pub call: CallId,
    /// Cancelled together with the turn, or alone. A tool with side effects stops them before it returns.
    pub cancel: CancellationToken,
    /// The turn of the session that the call belongs to, also if a helper has made it.
    pub turn: CancellationToken,
    /// Runs helpers, if the call may start any.
    pub helpers: Option<Arc<dyn HelperRunner>>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// True if the call did what was asked.
    pub ok: bool,
    /// The text for the model.
    pub text: String,
    /// Replaces the view of the call, now that its result is known.
    pub view: Option<CallView>,
    /// The content of the card.
    pub content: Vec<CallContent>,
    /// The result as a few JSON fields, for clients that show nothing else. [`raw_output`] adds the
    /// text unless a field holds the result.
    pub raw: Value,
    /// Pictures, for models that accept them.
    pub images: Vec<Media>,
}

impl ToolOutcome {
    /// A call that did what was asked.
    pub(crate) fn done(
        text: impl Into<String>,
        content: Vec<CallContent>,
        raw: Value,
    ) -> ToolOutcome {
        ToolOutcome { ok: true, text: text.into(), view: None, content, raw, images: Vec::new() }
    }

    /// The same, with a card that shows the text for the model.
    fn done_as_shown(text: String, raw: Value) -> ToolOutcome {
        let content = vec![CallContent::Text(text.clone())];
        ToolOutcome::done(text, content, raw)
    }

    /// A failed call. The user reads the first sentence of the reason.
    pub fn failed(reason: impl Into<ToolRefusal>) -> ToolOutcome {
        ToolOutcome::refused(reason.into())
    }

    /// A call that was not executed. The model and the user read texts of their own.
    pub fn refused(ToolRefusal { for_model, for_user }: ToolRefusal) -> ToolOutcome {
        ToolOutcome {
            ok: false,
            view: None,
            content: vec![CallContent::Text(for_user.clone())],
            raw: serde_json::json!({ "message": for_user }),
            text: for_model,
            images: Vec::new(),
        }
    }

    /// Adds a line for the model.
    pub(crate) fn add_line(&mut self, line: &str) {
        self.text.push_str(if self.text.ends_with('\n') { "" } else { "\n" });
        self.text.push_str(line);
    }

    /// Adds a line for the model and the user.
    pub fn append_note(&mut self, note: String) {
        self.add_line(&note);
        self.content.push(CallContent::Text(note));
    }
}

/// A tool with its argument type erased: built in, or provided by an MCP server.
pub trait AnyTool: Debug + Send + Sync {
    fn name(&self) -> &str;
    /// Returns true if no call ever changes anything. See [`Tool::IS_READ_ONLY`].
    fn is_read_only(&self) -> bool;
    /// The description of the tool for the model; `None` if it is not advertised.
    fn spec(&self, offer: &OfferContext) -> Option<Arc<ToolSpec>>;
    /// The MCP server that provides the tool; `None` if it is built in.
    fn server(&self) -> Option<&str> {
        None
    }
    /// A title for people, if it differs from the name.
    fn title(&self) -> Option<&str> {
        None
    }
    /// The card before the arguments are complete; `None` if calls have no card.
    fn pending_view(&self) -> Option<CallView>;
    /// The arguments that the card shows while they are still being streamed.
    fn shown_arguments(&self) -> &'static [ShownArgument] {
        COMMON_ARGUMENTS
    }
    /// Parses the arguments.
    ///
    /// # Errors
    /// An explanation for the model if the arguments are wrong.
    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn PreparedCall>, ToolRefusal>;
}

/// A call whose arguments are parsed but which is not permitted yet.
pub trait PreparedCall: Send + Sync {
    /// Plans the call by what is on the disk now. Blocks: do not call it on the runtime's thread. See
    /// [`Tool::plan`].
    fn plan(&mut self, env: &ToolEnv) -> CallPlan;
    /// Computes the effect of the call. See [`Tool::preview`].
    fn preview<'a>(
        &'a mut self,
        ctx: &'a ToolCtx,
    ) -> BoxFuture<'a, Result<Vec<CallContent>, ToolRefusal>>;
    /// The contents that the call is going to give to files, as far as they are known beforehand.
    fn expected_changes(&self) -> Vec<ExpectedChange<'_>>;
    /// Returns true if it runs other calls. See [`Tool::RUNS_CALLS`].
    fn runs_calls(&self) -> bool {
        false
    }
    /// Executes the call.
    fn run<'a>(self: Box<Self>, pass: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, ToolOutcome>;
}

struct TypedCall<T: Tool> {
    tool: Arc<T>,
    args: T::Args,
    /// Arguments that were sent but that the tool does not have.
    ignored: Vec<String>,
    /// The paths of the call as the plan has found them.
    paths: Vec<PathBuf>,
    /// The same, resolved.
    targets: Vec<ResolvedPath>,
    /// A note about files with several names.
    other_names: Option<String>,
    /// True if it concerns more files than can be judged one by one.
    has_too_many_files: bool,
    preview: T::Preview,
    /// Notes for the user and the model about names that look the same.
    name_notes: Vec<String>,
    /// Why it cannot run, whatever it would do.
    refusal: Option<ToolRefusal>,
}

/// A path among the arguments of a call.
pub struct PathArgument<'a> {
    text: &'a mut String,
    /// True if it may be the path of a new file.
    may_be_new: bool,
}

impl<'a> PathArgument<'a> {
    fn of_existing(text: &'a mut String) -> PathArgument<'a> {
        PathArgument { text, may_be_new: false }
    }

    fn of_any(text: &'a mut String) -> PathArgument<'a> {
        PathArgument { text, may_be_new: true }
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(&*self.text)
    }
}

impl<T: Tool> AnyTool for T {
    fn name(&self) -> &str {
        T::NAME
    }

    fn is_read_only(&self) -> bool {
        T::IS_READ_ONLY
    }

    fn spec(&self, offer: &OfferContext) -> Option<Arc<ToolSpec>> {
        self.is_offered(offer).then(|| {
            let mut spec = arguments::spec::<T>();
            self.adapt_spec(&mut spec, offer);
            Arc::new(spec)
        })
    }

    fn pending_view(&self) -> Option<CallView> {
        T::HAS_CARD.then(|| CallView::new(T::PENDING_TITLE, T::KIND))
    }

    fn shown_arguments(&self) -> &'static [ShownArgument] {
        T::SHOWN_ARGUMENTS
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn PreparedCall>, ToolRefusal> {
        if matches!(T::KIND, ToolKind::Edit | ToolKind::Move) && arguments::has_nul(&args) {
            return Err(arguments::NUL_REFUSAL.into());
        }
        let (args, ignored) = arguments::parse_arguments::<T>(args)?;
        Ok(Box::new(TypedCall {
            tool: self,
            args,
            ignored,
            paths: Vec::new(),
            targets: Vec::new(),
            other_names: None,
            has_too_many_files: false,
            preview: T::Preview::default(),
            name_notes: Vec::new(),
            refusal: None,
        }))
    }
}

impl<T: Tool> TypedCall<T> {
    /// Replaces the paths in the arguments by the paths that they mean.
    fn understand_paths(&mut self, files: &Files) {
        let mut lines = None;
        for PathArgument { text, may_be_new } in self.tool.path_arguments(&mut self.args) {
            let Some(meant) = files.meant_path(text, may_be_new) else { continue };
            self.name_notes.extend(meant.note);
            let sent = std::mem::replace(text, meant.link.path);
            lines = meant.link.lines.map(|named| (named, sent)).or(lines);
        }
        self.name_notes.dedup();
        if let Some((lines, sent)) = lines
            && !self.tool.choose_lines(&mut self.args, lines)
        {
            self.refusal = Some(ToolRefusal::from(format!(
                "{} names lines, and {} changes whole files. Nothing was done. Give the path alone, or \
                 change the lines with edit_file.",
                escape_hidden_line(&sent),
                T::NAME
            )));
        }
    }
}

impl<T: Tool> PreparedCall for TypedCall<T> {
    fn plan(&mut self, env: &ToolEnv) -> CallPlan {
        let roots = env.files.roots();
        self.understand_paths(&env.files);
        let mut site = CallSite::new(env);
        let mut plan = self.tool.plan(&mut self.args, &mut site);
        let may_look = site.may_look();
        (self.paths, self.targets) = site.into_paths();
        if let Some(folder) = roots.missing_folder(&self.targets) {
            let name = escape_hidden_line(&folder.to_string_lossy());
            self.refusal = Some(ToolRefusal::from(format!(
                "The folder {name} of this session is gone: it was moved or deleted. Nothing was done, and it \
                 is not made anew. Tell the user, who can put it back, or open a session where it is now."
            )));
        }
        match T::KIND {
            ToolKind::Edit if may_look => {
                self.other_names = note_about_other_names(&plan.effects, roots);
            }
            ToolKind::Delete | ToolKind::Move if may_look => {
                let restricted =
                    RestrictedFiles::of_effects(&plan.effects, roots, &env.shared.rules.get());
                self.has_too_many_files = restricted.is_incomplete;
                plan.effects.extend(restricted.effects);
            }
            _ => {}
        }
        plan
    }

    fn preview<'a>(
        &'a mut self,
        ctx: &'a ToolCtx,
    ) -> BoxFuture<'a, Result<Vec<CallContent>, ToolRefusal>> {
        Box::pin(async {
            if let Some(refusal) = &self.refusal {
                return Err(refusal.clone());
            }
            // The shell resolves the paths in a command line.
            if T::KIND != ToolKind::Execute {
                let home = ctx.env.shared.process.folders.home.as_deref();
                let roots = ctx.env.files.roots();
                let refusal = files::refusal_of_home_path(&self.paths, home)
                    .or_else(|| files::refusal_of_other_machine(&self.paths, roots));
                if let Some(refusal) = refusal {
                    return Err(refusal.into());
                }
            }
            if self.has_too_many_files {
                return Err(TOO_MANY_FILES.into());
            }
            let computed = self.tool.preview(&self.args, &self.targets, ctx).await;
            let (preview, mut content) = computed.map_err(|refusal| {
                let told = [&[refusal.for_model], self.name_notes.as_slice()].concat().join("\n");
                ToolRefusal { for_model: append_ignored(told, &self.ignored), ..refusal }
            })?;
            self.preview = preview;
            let notes = self.name_notes.iter().cloned().chain(self.other_names.clone());
            content.extend(notes.map(CallContent::Text));
            Ok(content)
        })
    }

    fn expected_changes(&self) -> Vec<ExpectedChange<'_>> {
        self.preview.expected_changes()
    }

    fn runs_calls(&self) -> bool {
        T::RUNS_CALLS
    }

    fn run<'a>(self: Box<Self>, pass: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let TypedCall { tool, args, ignored, other_names, preview, name_notes, .. } = *self;
            let shared = &ctx.env.shared;
            let changes = shared.guard.note_allowed(&pass, &shared.confinement.protected);
            let mut outcome = tool.run(args, preview, &pass, ctx).await;
            drop(changes);
            let other_names = other_names.filter(|_| outcome.ok);
            for note in name_notes.into_iter().chain(other_names) {
                outcome.append_note(note);
            }
            outcome.text = append_ignored(outcome.text, &ignored);
            outcome
        })
    }
}

/// Tells the model which of its arguments were ignored, so that it does not rely on them.
fn append_ignored(mut text: String, ignored: &[String]) -> String {
    if !ignored.is_empty() {
        let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        text.push_str(&format!("{line}[ignored: {}]", ignored.join(", ")));
    }
    text
}
