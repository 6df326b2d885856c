//! What the model can do. A call is parsed once, shows its effects, is judged, and only then
//! can run: `run` needs a [`Pass`]. To add a tool, write a file and a line in [`built_in`].

mod apply_patch;
mod arguments;
mod ask_user;
mod bench;
mod cell;
mod change;
mod command;
mod delete_path;
mod denial;
mod edit_file;
mod exec;
mod exec_output;
mod exit_plan;
mod find_files;
mod grep;
mod guard;
mod history;
mod list_dir;
mod live;
mod lore;
mod memory;
mod move_path;
mod plan;
mod read_file;
mod registry;
mod lent;
mod repository;
mod seek;
mod roll;
mod skill;
mod stock;
mod toolchain;
mod tool_search;
mod tripwire;
mod veil;
mod web_fetch;
mod write_file;

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

use turnwright_workspace::checkpoint::Foreseen;
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target};
use turnwright_workspace::files::Roots;
use turnwright_types::ids::CallId;
use turnwright_types::message::{Media, ToolSpec};
use turnwright_policy::permission::Pass;

pub(crate) use arguments::{mended, usual_name};
pub use bench::{Bench, Commons, Folders};
pub use cell::Walls;
pub use command::line_effects;
pub use guard::{Cells, Lookout, private_folder};
pub use lent::{Fate, Lent};
pub use lore::{lore, notes, skills};
pub use registry::{Offer, Registry, Toolbox};
pub use repository::git_folders;
pub use stock::Stock;

/// The table. The order is the order in which the model sees the tools.
pub fn built_in() -> Vec<Arc<dyn AnyTool>> {
    vec![
        Arc::new(read_file::ReadFile),
        Arc::new(write_file::WriteFile),
        Arc::new(edit_file::EditFile),
        Arc::new(apply_patch::ApplyPatch),
        Arc::new(move_path::MovePath),
        Arc::new(delete_path::DeletePath),
        Arc::new(list_dir::ListDir),
        Arc::new(find_files::FindFiles),
        Arc::new(grep::Grep),
        Arc::new(exec::Exec),
        Arc::new(exec_output::ExecOutput),
        Arc::new(web_fetch::WebFetch),
        Arc::new(plan::Plan),
        Arc::new(memory::Memory),
        Arc::new(skill::LoadSkill),
        Arc::new(history::History),
        Arc::new(ask_user::AskUser),
        Arc::new(exit_plan::ExitPlan),
    ]
}

/// The one that is told only where much is lent. Each session has its own.
fn search(lent: Lent) -> Arc<dyn AnyTool> {
    Arc::new(tool_search::ToolSearch(lent))
}

/// A tool.
pub trait Tool: Debug + Send + Sync + 'static {
    /// The function's name.
    const NAME: &'static str;
    /// The sort.
    const KIND: Kind;
    /// What a card says while the arguments are still on their way.
    const VERB: &'static str;
    /// Whether the client sees a card; the plan has its own display.
    const CARD: bool = true;
    /// Its doc comments, on the type and on each field, are what the model reads.
    type Args: DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// What [`Tool::look`] has found out and [`Tool::run`] builds on.
    type Seen: Default + Send + Sync + 'static;

    /// Whether it only ever reads: the same call again then brings nothing new. What may run side
    /// by side is decided on effects.
    const READS: bool = false;

    /// The paths that the arguments name. Each is looked up once for a call; what the user is
    /// shown, what is judged and what is touched are then the same place.
    fn paths(&self, _args: &Self::Args, _bench: &Bench) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Where one of them lies. A tool that is about names and not about what they lead to does not
    /// follow a link at the end.
    fn place(&self, path: PathBuf, roots: &Roots) -> Target {
        roots.resolve(path)
    }

    /// Finds out what the arguments mean besides places, as far as that takes a look at the disk.
    /// Runs where places are looked up, and after them.
    fn study(&self, _args: &mut Self::Args, _places: &[Target], _bench: &Bench) {}

    /// Whether the model is told about it.
    fn is_offered(&self, _offer: &Offer) -> bool {
        true
    }

    /// Changes what the model is told, where that depends on the session.
    fn adapt(&self, _spec: &mut ToolSpec, _offer: &Offer) {}

    /// How the call looks to the user before it runs. `places` are those of [`Tool::paths`].
    fn view(&self, args: &Self::Args, places: &[Target], roots: &Roots) -> CallView;

    /// Everything the call may touch. Too much is a question too many; too little is a hole.
    fn effects(&self, args: &Self::Args, places: &[Target]) -> Vec<Effect>;

    /// Finds out what the call would do, so that the user can be shown the real change before
    /// being asked. Changes nothing. Its failure is the failure of the call.
    fn look(
        &self,
        _args: &Self::Args,
        _places: &[Target],
        _ctx: &ToolCtx,
    ) -> impl Future<Output = Result<(Self::Seen, Vec<Content>), String>> + Send {
        std::future::ready(Ok((Self::Seen::default(), Vec::new())))
    }

    /// What it is going to make of files, as far as it knows.
    fn foresees<'a>(&self, _seen: &'a Self::Seen, _places: &'a [Target]) -> Vec<Foreseen<'a>> {
        Vec::new()
    }

    /// Does it. A failure is an answer for the model, so there is no `Result` here.
    fn run(
        &self,
        args: Self::Args,
        seen: Self::Seen,
        pass: &Pass,
        ctx: &ToolCtx,
    ) -> impl Future<Output = Outcome> + Send;
}

/// What a tool works with.
#[derive(Clone, Debug)]
pub struct ToolCtx {
    /// What the session's tools have in common.
    pub bench: Arc<Bench>,
    /// The call.
    pub call: CallId,
    /// Cancelled when the turn is. A tool with side effects ends them and then returns.
    pub cancel: CancellationToken,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Whether it did what was asked.
    pub ok: bool,
    /// What the model reads.
    pub text: String,
    /// A better view, now that it is known what happened.
    pub view: Option<CallView>,
    /// What the card shows.
    pub content: Vec<Content>,
    /// The result in a few fields, for clients that show nothing else.
    pub raw: Value,
    /// Pictures for a model that takes them.
    pub images: Vec<Media>,
}

impl Outcome {
    /// A call that did not do what was asked. The model and the user read the same reason.
    pub fn failed(reason: impl Into<String>) -> Outcome {
        let text = reason.into();
        Outcome {
            ok: false,
            view: None,
            content: vec![Content::Text(text.clone())],
            raw: serde_json::json!({ "error": text }),
            text,
            images: Vec::new(),
        }
    }
}

/// A tool whatever its types, and whether built in or not.
pub trait AnyTool: Debug + Send + Sync {
    /// The function's name.
    fn name(&self) -> &str;
    /// Whether it only ever reads.
    fn reads(&self) -> bool;
    /// What the model is told about it, if it is.
    fn spec(&self, offer: &Offer) -> Option<Arc<ToolSpec>>;
    /// The server that lends it; nobody if it is built in.
    fn lender(&self) -> Option<&str> {
        None
    }
    /// What people call it, if that is not its name.
    fn title(&self) -> Option<&str> {
        None
    }
    /// What a card shows before the arguments are there, if there is to be a card.
    fn first_view(&self) -> Option<CallView>;
    /// Understands the arguments.
    ///
    /// # Errors
    /// What is wrong with them, for the model.
    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn Prepared>, String>;
}

/// A call whose arguments have been understood but which nobody has allowed yet.
pub trait Prepared: Send {
    /// Looks up where its paths lie now. May take its time: not for the runtime's thread.
    fn locate(&mut self, bench: &Bench);
    /// How it looks to the user.
    fn view(&self, roots: &Roots) -> CallView;
    /// Everything it may touch.
    fn effects(&self) -> Vec<Effect>;
    /// Finds out what it would do.
    fn look<'a>(&'a mut self, ctx: &'a ToolCtx) -> BoxFuture<'a, Result<Vec<Content>, String>>;
    /// What it is going to make of files, as far as it knows.
    fn foresees(&self) -> Vec<Foreseen<'_>>;
    /// Does it.
    fn run<'a>(self: Box<Self>, pass: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, Outcome>;
}

struct Call<T: Tool> {
    tool: Arc<T>,
    args: T::Args,
    /// The arguments that it was sent and does not know.
    ignored: Vec<String>,
    places: Vec<Target>,
    seen: T::Seen,
}

impl<T: Tool> AnyTool for T {
    fn name(&self) -> &str {
        T::NAME
    }

    fn reads(&self) -> bool {
        T::READS
    }

    fn spec(&self, offer: &Offer) -> Option<Arc<ToolSpec>> {
        self.is_offered(offer).then(|| {
            let mut spec = arguments::spec::<T>();
            self.adapt(&mut spec, offer);
            Arc::new(spec)
        })
    }

    fn first_view(&self) -> Option<CallView> {
        T::CARD.then(|| CallView {
            title: T::VERB.to_owned(),
            kind: T::KIND,
            locations: Vec::new(),
        })
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn Prepared>, String> {
        let (args, ignored) = arguments::understand::<T>(args)?;
        let (places, seen) = (Vec::new(), T::Seen::default());
        Ok(Box::new(Call { tool: self, args, ignored, places, seen }))
    }
}

impl<T: Tool> Prepared for Call<T> {
    fn locate(&mut self, bench: &Bench) {
        let paths = self.tool.paths(&self.args, bench);
        let roots = bench.files.roots();
        self.places = paths.into_iter().map(|it| self.tool.place(it, roots)).collect();
        self.tool.study(&mut self.args, &self.places, bench);
    }

    fn view(&self, roots: &Roots) -> CallView {
        self.tool.view(&self.args, &self.places, roots)
    }

    fn effects(&self) -> Vec<Effect> {
        self.tool.effects(&self.args, &self.places)
    }

    fn look<'a>(&'a mut self, ctx: &'a ToolCtx) -> BoxFuture<'a, Result<Vec<Content>, String>> {
        Box::pin(async {
            let looking = self.tool.look(&self.args, &self.places, ctx).await;
            let (seen, content) = looking.map_err(|it| mention(it, &self.ignored))?;
            self.seen = seen;
            Ok(content)
        })
    }

    fn foresees(&self) -> Vec<Foreseen<'_>> {
        self.tool.foresees(&self.seen, &self.places)
    }

    fn run<'a>(self: Box<Self>, pass: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Call { tool, args, ignored, seen, .. } = *self;
            ctx.bench.cells.allow(&pass, &ctx.bench.walls.protected);
            let mut outcome = tool.run(args, seen, &pass, ctx).await;
            outcome.text = mention(outcome.text, &ignored);
            outcome
        })
    }
}

/// Tells the model which of its arguments meant nothing, so that it does not count on them.
fn mention(mut text: String, ignored: &[String]) -> String {
    if !ignored.is_empty() {
        let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        text.push_str(&format!("{line}[ignored: {}]", ignored.join(", ")));
    }
    text
}
