//! `agent`: gives a task to a helper, which works on it in a conversation of its own.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::shown_argument::{ArgumentRole, ShownArgument};
use super::{CallPlan, CallSite, HelperSet, HelperTask, OfferContext, Tool, ToolCtx, ToolOutcome};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, ToolKind, escape_hidden_line, shorten_title};
use turnwright_types::message::ToolSpec;
use turnwright_types::text;

/// The name of the tool.
pub(crate) const AGENT_TOOL: &str = "agent";
/// The longest prompt of a helper, in bytes.
const MAX_PROMPT_BYTES: usize = 64 * 1024;
/// The type of a helper if the model names none.
const DEFAULT_TYPE: &str = "general";

#[derive(Debug)]
pub(super) struct Agent;

/// Give a task to a helper. It knows only the prompt; you get its answer.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AgentArgs {
    #[serde(default, alias = "title")]
    description: String,
    #[serde(alias = "task")]
    prompt: String,
    /// explore (reads only) or general
    #[serde(default, rename = "type", alias = "subagent_type", alias = "agent")]
    kind: Option<String>,
    /// Do not wait
    #[serde(default, alias = "run_in_background")]
    background: Option<bool>,
}

impl AgentArgs {
    fn kind(&self) -> &str {
        self.kind.as_deref().map(str::trim).filter(|kind| !kind.is_empty()).unwrap_or(DEFAULT_TYPE)
    }

    /// The task in one line.
    fn title(&self) -> String {
        let texts = [self.description.trim(), self.prompt.trim()];
        let text = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        shorten_title(escape_hidden_line(text::first_line(text)))
    }
}

/// Returns true if a call with these arguments starts a helper with a tool for which `is_edit` returns true.
pub(crate) fn may_edit(
    arguments: &Value,
    helpers: &HelperSet,
    is_edit: impl Fn(&str) -> bool,
) -> bool {
    let args = serde_json::from_value::<AgentArgs>(arguments.clone()).ok();
    let kind = args.and_then(|args| helpers.find_type(args.kind()).ok());
    kind.is_some_and(|kind| kind.tools.is_none_or(|tools| tools.iter().any(|tool| is_edit(tool))))
}

impl Tool for Agent {
    const NAME: &'static str = AGENT_TOOL;
    const KIND: ToolKind = ToolKind::Think;
    const PENDING_TITLE: &'static str = "Helper";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] =
        &[ShownArgument { name: "description", role: ArgumentRole::Name }];
    const RUNS_CALLS: bool = true;
    type Args = AgentArgs;
    type Preview = ();

    fn is_offered(&self, offer: &OfferContext) -> bool {
        offer.helpers.is_some()
    }

    fn adapt_spec(&self, spec: &mut ToolSpec, offer: &OfferContext) {
        let own = offer.helpers.as_deref().unwrap_or_default();
        if let Some(Value::String(text)) =
            spec.parameters.pointer_mut("/properties/type/description")
        {
            for line in own {
                text.push_str("; ");
                text.push_str(line);
            }
        }
    }

    fn plan(&self, args: &mut AgentArgs, _: &mut CallSite<'_>) -> CallPlan {
        // The helper's own calls are judged one by one.
        CallPlan::in_session(view(args))
    }

    async fn run(&self, args: AgentArgs, (): (), _: &Pass, ctx: &ToolCtx) -> ToolOutcome {
        let Some(runner) = ctx.helpers.clone() else {
            return ToolOutcome::failed("There are no helpers here. Do the task yourself.");
        };
        if args.prompt.trim().is_empty() || args.prompt.len() > MAX_PROMPT_BYTES {
            return ToolOutcome::failed(format!(
                "`prompt` must have 1 to {MAX_PROMPT_BYTES} bytes. No helper was started."
            ));
        }
        let kind = match ctx.env.helpers.find_type(args.kind()) {
            Ok(kind) => kind,
            Err(known) => {
                let name = escape_hidden_line(args.kind());
                return ToolOutcome::failed(format!(
                    "There is no helper `{name}`. No helper was started. There are: {known}."
                ));
            }
        };
        let view = view(&args);
        let title = args.title();
        let in_background = args.background.unwrap_or(false);
        let task = HelperTask { kind, title, view, prompt: args.prompt, in_background };
        runner.run(task, ctx).await
    }
}

fn view(args: &AgentArgs) -> CallView {
    let title = format!("{}: {}", escape_hidden_line(args.kind()), args.title());
    CallView::new(shorten_title(title), Agent::KIND)
}
