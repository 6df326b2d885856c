//! `plan`: the model's own list of steps, shown to the user.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Outcome, Tool, ToolCtx};
use crate::effect::{CallView, Effect, Kind, Target};
use crate::files::Roots;
use crate::permission::Pass;
use crate::update::{PlanEntry, PlanStatus, Priority, Update};

/// The most steps of a plan.
const MOST_ENTRIES: usize = 100;

#[derive(Debug)]
pub(super) struct Plan;

/// Show the user a plan for work of three steps or more, and keep it up to date: send the whole
/// list each time, with one step in progress.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// All steps, in order
    entries: Vec<Step>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Step {
    /// What is to be done
    #[serde(alias = "step", alias = "title")]
    content: String,
    /// How far it is
    #[serde(default)]
    status: StepStatus,
    /// How important it is (default medium)
    #[serde(default)]
    priority: StepPriority,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StepStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StepPriority {
    High,
    #[default]
    Medium,
    Low,
}

impl Tool for Plan {
    const NAME: &'static str = "plan";
    const KIND: Kind = Kind::Think;
    const VERB: &'static str = "Plan";
    const CARD: bool = false;
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn view(&self, _: &Args, _: &[Target], _: &Roots) -> CallView {
        CallView { title: Self::VERB.to_owned(), kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, _: &Args, _: &[Target]) -> Vec<Effect> {
        vec![Effect::Session]
    }

    async fn run(&self, args: Args, (): (), _: &Pass, ctx: &ToolCtx) -> Outcome {
        let entries: Vec<_> = args.entries.into_iter().take(MOST_ENTRIES).map(entry).collect();
        let count = entries.len();
        ctx.bench.client.update(Update::Plan(entries));
        // The list is not repeated: the model has just written it.
        Outcome {
            ok: true,
            text: "The plan is shown.".to_owned(),
            view: None,
            content: Vec::new(),
            raw: json!({ "entries": count }),
            images: Vec::new(),
        }
    }
}

fn entry(step: Step) -> PlanEntry {
    PlanEntry {
        content: step.content,
        priority: match step.priority {
            StepPriority::High => Priority::High,
            StepPriority::Medium => Priority::Medium,
            StepPriority::Low => Priority::Low,
        },
        status: match step.status {
            StepStatus::Pending => PlanStatus::Pending,
            StepStatus::InProgress => PlanStatus::InProgress,
            StepStatus::Completed => PlanStatus::Completed,
        },
    }
}
