//! The tools of the model. A call is parsed once and planned; its plan is judged and shown, and only
//! then it runs: `run` needs a [`Pass`]. `ARCHITECTURE.md` says how a tool is added: a file, and a line in [`built_in`].

mod agent;
mod apply_patch;
mod arguments;
mod ask_user;
mod delete_path;
mod document;
mod edit_common;
mod edit_file;
mod exec;
mod exec_output;
mod exit_plan;
mod find_files;
mod grep;
mod history;
mod hooks;
mod host_questions;
mod list_dir;
mod live_output;
mod memory;
mod move_path;
mod plan;
mod read_file;
mod registry;
mod rename_symbol;
mod search_common;
mod skill;
mod symbols;
mod tool_env;
mod web_fetch;
mod web_search;
mod write_file;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use turnwright_guard::command::{TOO_MANY_FILES, restricted_effects};
use turnwright_guard::note_about_other_names;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{
    CallContent, CallView, Effect, Location, ResolvedPath, ToolKind, escape_hidden_line,
};
use turnwright_types::message::ToolSpec;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::checkpoint::ExpectedChange;
use turnwright_workspace::files::{Files, Roots};

pub(crate) use agent::{AGENT_TOOL, HelperRunner, HelperSet, HelperTask, QuestionTurn, may_edit};
pub(crate) use apply_patch::patch_call;
pub(crate) use arguments::{
    ArgumentRole, COMMON_ARGUMENTS, ShownArgument, canonical_name, marked_names, repair_arguments,
};
pub(crate) use edit_common::{current_place, edited_path, is_read_freely};
pub(crate) use exec_output::is_waiting;
pub(crate) use exit_plan::shown_form;
pub(crate) use hooks::{HelperFacts, SessionHooks, hook_sandbox, hook_site};
pub(crate) use host_questions::HostConsent;
pub(crate) use memory::{KEPT_COMMANDS, KEPT_CORRECTIONS, keep_line, kept_lines, note_folders};
pub(crate) use registry::{
    AllowedTools, RemoteTools, SMALL_WINDOW, ServerStatus, command_limits, essential_weight,
    gives_tool, is_small, means,
};
pub use registry::{OfferContext, ToolIndex, Toolbox};
pub(crate) use tool_env::{
    ProcessShared, SessionShared, SharedValue, ToolAnswer, ToolCtx, ToolEnv, ToolOutcome,
    UserFolders,
};

/// For the model, if another tool of a server than the one that was judged would be called.
pub(crate) const HAS_CHANGED: &str = "The server has changed this tool while the call was on its way, so it was not \
                                      called. Call it again if it is still right.";

/// All built-in tools, in the order in which error messages list them.
pub fn built_in() -> Vec<Arc<dyn AnyTool>> {
    vec![
        tool::<read_file::ReadFile>(),
        tool::<write_file::WriteFile>(),
        tool::<edit_file::EditFile>(),
        tool::<apply_patch::ApplyPatch>(),
        tool::<move_path::MovePath>(),
        tool::<delete_path::DeletePath>(),
        tool::<list_dir::ListDir>(),
        tool::<find_files::FindFiles>(),
        tool::<grep::Grep>(),
        tool::<exec::Exec>(),
        tool::<exec_output::ExecOutput>(),
        tool::<web_fetch::WebFetch>(),
        tool::<web_search::WebSearch>(),
        tool::<plan::Plan>(),
        tool::<memory::Memory>(),
        tool::<skill::LoadSkill>(),
        tool::<history::History>(),
        tool::<agent::Agent>(),
        tool::<ask_user::AskUser>(),
        tool::<exit_plan::ExitPlan>(),
        tool::<symbols::Definition>(),
        tool::<symbols::References>(),
        tool::<rename_symbol::RenameSymbol>(),
    ]
}

/// The built-in tool whose calls are of this type.
pub(crate) fn tool<T: Tool>() -> Arc<dyn AnyTool> {
    Arc::new(BuiltIn::<T>(PhantomData))
}

/// A call of a built-in tool: its arguments. The model reads the doc comments of the type and of its fields as the
/// descriptions.
pub(crate) trait Tool:
    Debug + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
    const NAME: &'static str;
    const KIND: ToolKind;
    /// The title of the card while the arguments are still being streamed.
    const PENDING_TITLE: &'static str;
    /// True if the client sees a card for a call. A plan has its own display.
    const HAS_CARD: bool = true;
    /// The arguments that the card shows while they are still being streamed.
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[];
    /// The result of [`Tool::preview`] for [`Tool::run`].
    type Preview: Default + Send + Sync + 'static;

    /// True if no call ever changes anything, so that repeating the same call brings nothing new.
    /// The effects of calls, not this, decide if they may run concurrently.
    const IS_READ_ONLY: bool = false;
    /// True if a call runs other calls and waits for them, as a helper does. It does not count among the
    /// calls that run concurrently, and a cancel waits for it to end them.
    const RUNS_CALLS: bool = false;

    /// The paths among the arguments as the model has sent them. Each is replaced by the one that it means
    /// before anything else looks at it.
    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        Vec::new()
    }

    /// Restricts the call to the lines that the model has named with a path. Returns false if it works on
    /// whole files only.
    fn choose_lines(&mut self, _lines: (u32, u32)) -> bool {
        !matches!(Self::KIND, ToolKind::Edit | ToolKind::Delete | ToolKind::Move)
    }

    /// Returns true if the tool is advertised to the model.
    fn is_offered(_offer: &OfferContext) -> bool {
        true
    }

    /// Adapts the tool's spec to the session.
    fn adapt_spec(_spec: &mut ToolSpec, _offer: &OfferContext) {}

    /// Plans the call: resolves its paths at the site, completes the arguments with facts that only the
    /// disk tells, and says how the call is shown and what it may touch. Blocks: it is not called on the
    /// runtime's thread. Changes nothing, and may be called again for the same call.
    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan;

    /// Computes the effect of the call, so that the user can be shown the real change before being
    /// asked. `targets` are the paths that the plan has resolved. Changes nothing. If it fails, the call
    /// fails with this error.
    fn preview(
        &self,
        _targets: &[ResolvedPath],
        _ctx: &ToolCtx,
    ) -> impl Future<Output = Previewed<Self::Preview>> + Send {
        std::future::ready(Ok((Self::Preview::default(), Vec::new())))
    }

    /// The contents that the call is going to give to files, as far as they are known beforehand.
    fn expected_changes(_preview: &Self::Preview) -> Vec<ExpectedChange<'_>> {
        Vec::new()
    }

    /// Executes the call.
    fn run(
        self,
        preview: Self::Preview,
        pass: &Pass,
        ctx: &ToolCtx,
    ) -> impl Future<Output = ToolAnswer> + Send;
}

/// The result of a preview for the run of the call and for its card, or why it cannot run.
pub(crate) type Previewed<T> = Result<(T, Vec<CallContent>), ToolRefusal>;

/// A call as it is shown to the user and judged.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// The card of the call before it runs.
    pub view: CallView,
    /// Everything that the call may touch. An effect too many costs the user a needless question; a
    /// missing one is a security hole.
    pub effects: Vec<Effect>,
}

impl CallPlan {
    /// The plan of a call that touches nothing but the state of the session.
    pub(crate) fn in_session(view: CallView) -> CallPlan {
        CallPlan { view, effects: vec![Effect::SessionState] }
    }

    /// The plan of a call that reads at these places.
    fn reading(view: CallView, targets: Vec<ResolvedPath>) -> CallPlan {
        CallPlan { view, effects: targets.into_iter().map(Effect::Read).collect() }
    }

    /// The plan of a call that writes at this place.
    fn writing(view: CallView, target: ResolvedPath) -> CallPlan {
        CallPlan { view, effects: vec![Effect::Write(target)] }
    }
}

/// The place where a call is planned. It remembers every path that was resolved, so that the place that the user is
/// shown, the place that is judged and the place that is touched are the same.
pub(crate) struct CallSite<'a> {
    pub(crate) env: &'a ToolEnv,
    /// The paths as the call names them.
    paths: Vec<PathBuf>,
    /// The same, resolved.
    targets: Vec<ResolvedPath>,
}

impl<'a> CallSite<'a> {
    pub(crate) fn roots(&self) -> &'a Roots {
        self.env.files.roots()
    }

    /// Resolves a path of the call.
    fn resolve(&mut self, path: PathBuf) -> ResolvedPath {
        let target = self.roots().resolve(&path);
        self.remember(path, target)
    }

    /// Resolves a path of a tool that acts on a directory entry itself, not on what it points to: a link in the last
    /// component is not followed.
    fn resolve_entry(&mut self, path: &str) -> ResolvedPath {
        let path = PathBuf::from(path);
        let target = self.roots().resolve_entry(&path);
        self.remember(path, target)
    }

    /// Resolves the paths among the arguments.
    fn resolve_all(&mut self, arguments: Vec<PathArgument<'_>>) -> Vec<ResolvedPath> {
        arguments.into_iter().map(|argument| self.resolve(PathBuf::from(&*argument.text))).collect()
    }

    /// Returns true unless a path leads to another machine or a device, which only looking at it would connect to. Such
    /// a call of a file tool will be refused.
    fn may_look(&self) -> bool {
        !self.paths.iter().any(|path| self.roots().leads_elsewhere(path))
    }

    fn remember(&mut self, path: PathBuf, target: ResolvedPath) -> ResolvedPath {
        self.paths.push(path);
        self.targets.push(target.clone());
        target
    }
}

/// A path among the arguments of a call.
pub(crate) struct PathArgument<'a> {
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
    /// The kind of its card; `None` if calls have no card.
    fn kind(&self) -> Option<ToolKind> {
        self.pending_view().map(|view| view.kind)
    }
    /// The arguments that the card shows while they are still being streamed.
    fn shown_arguments(&self) -> &'static [ShownArgument] {
        COMMON_ARGUMENTS
    }
    /// The arguments as a call with them understands them, after its repairs.
    fn understood(&self, args: Value) -> Value {
        args
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

/// A tool whose calls are of the type `T`.
#[derive(Debug)]
struct BuiltIn<T>(PhantomData<fn() -> T>);

struct TypedCall<T: Tool> {
    call: T,
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

impl<T: Tool> AnyTool for BuiltIn<T> {
    fn name(&self) -> &str {
        T::NAME
    }

    fn is_read_only(&self) -> bool {
        T::IS_READ_ONLY
    }

    fn spec(&self, offer: &OfferContext) -> Option<Arc<ToolSpec>> {
        T::is_offered(offer).then(|| {
            let mut spec = arguments::spec::<T>();
            T::adapt_spec(&mut spec, offer);
            if offer.is_small {
                registry::simplify(&mut spec);
            }
            Arc::new(spec)
        })
    }

    fn pending_view(&self) -> Option<CallView> {
        T::HAS_CARD.then(|| CallView::new(T::PENDING_TITLE, T::KIND))
    }

    fn shown_arguments(&self) -> &'static [ShownArgument] {
        T::SHOWN_ARGUMENTS
    }

    fn understood(&self, args: Value) -> Value {
        arguments::understood::<T>(args)
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn PreparedCall>, ToolRefusal> {
        if matches!(T::KIND, ToolKind::Edit | ToolKind::Move) && arguments::has_nul(&args) {
            return Err(arguments::NUL_REFUSAL.into());
        }
        let (call, ignored) = arguments::parse_arguments::<T>(args)?;
        Ok(Box::new(TypedCall::new(call, ignored)))
    }
}

impl<T: Tool> TypedCall<T> {
    fn new(call: T, ignored: Vec<String>) -> TypedCall<T> {
        TypedCall {
            call,
            ignored,
            paths: Vec::new(),
            targets: Vec::new(),
            other_names: None,
            has_too_many_files: false,
            preview: T::Preview::default(),
            name_notes: Vec::new(),
            refusal: None,
        }
    }

    /// Replaces the paths in the arguments by the paths that they mean.
    fn understand_paths(&mut self, files: &Files) {
        let mut lines = None;
        for PathArgument { text, may_be_new } in self.call.path_arguments() {
            if let Some((link, note)) = files.meant_path(text, may_be_new) {
                self.name_notes.extend(note);
                let sent = std::mem::replace(text, link.path);
                lines = link.lines.map(|named| (named, sent)).or(lines);
            }
            // The model writes paths as it reads them in results. Those of a command are relative to its own folder.
            if T::KIND != ToolKind::Execute
                && let Some(relative) = files.roots().below_cwd(text)
            {
                *text = relative;
            }
        }
        self.name_notes.dedup();
        if let Some((lines, sent)) = lines
            && !self.call.choose_lines(lines)
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
        let mut site = CallSite { env, paths: Vec::new(), targets: Vec::new() };
        let mut plan = self.call.plan(&mut site);
        let may_look = site.may_look();
        self.paths = site.paths;
        self.targets = site.targets;
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
                let (restricted, has_too_many_files) =
                    restricted_effects(&plan.effects, roots, &env.shared.rules.get());
                self.has_too_many_files = has_too_many_files;
                plan.effects.extend(restricted);
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
                let refusal = edit_common::refusal_of_home_path(&self.paths, home)
                    .or_else(|| edit_common::refusal_of_other_machine(&self.paths, roots));
                if let Some(refusal) = refusal {
                    return Err(refusal.into());
                }
            }
            if self.has_too_many_files {
                return Err(TOO_MANY_FILES.into());
            }
            let computed = self.call.preview(&self.targets, ctx).await;
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
        T::expected_changes(&self.preview)
    }

    fn runs_calls(&self) -> bool {
        T::RUNS_CALLS
    }

    fn run<'a>(self: Box<Self>, pass: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let TypedCall { call, ignored, other_names, preview, name_notes, refusal, .. } = *self;
            let shared = &ctx.env.shared;
            let changes = shared.guard.note_allowed(&pass, &shared.confinement.protected);
            let broken = T::expected_changes(&preview).iter().find_map(edit_common::broken_json);
            // The folder of the session may have gone while the user was asked.
            let result = match refusal {
                Some(refusal) => Err(refusal),
                None => call.run(preview, &pass, ctx).await,
            };
            drop(changes);
            let mut outcome = result.unwrap_or_else(ToolOutcome::failed);
            let notes = [other_names, broken].map(|note| note.filter(|_| outcome.ok));
            for note in name_notes.into_iter().chain(notes.into_iter().flatten()) {
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

/// The places that a card links to.
fn locations(roots: &Roots, targets: &[ResolvedPath], line: Option<u32>) -> Vec<Location> {
    targets.iter().map(|target| Location { path: roots.client_path(target), line }).collect()
}
