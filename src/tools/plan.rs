//! `plan`: the model's own list of steps, shown to the user.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use serde_json::json;

use super::{Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Effect, Kind, Target};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;
use turnwright_store::Entry;
use turnwright_types::update::{PlanEntry, PlanStatus, Priority, Update};

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

#[derive(Clone, Copy, Debug, Default, JsonSchema, PartialEq, Eq)]
#[schemars(rename_all = "snake_case")]
enum StepStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
}

impl<'de> Deserialize<'de> for StepStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StepStatus, D::Error> {
        let word = String::deserialize(deserializer)?;
        StepStatus::parse(&word).ok_or_else(|| {
            de::Error::custom(format!(
                "status \"{word}\" is none of pending, in_progress, completed"
            ))
        })
    }
}

impl StepStatus {
    /// The status of that name, or of one that can mean nothing else.
    fn parse(word: &str) -> Option<StepStatus> {
        let word = word.trim().to_lowercase().replace(['-', ' '], "_");
        Some(match word.as_str() {
            "" | "pending" | "todo" | "to_do" | "open" | "planned" | "not_started" => {
                StepStatus::Pending
            }
            "in_progress" | "inprogress" | "active" | "current" | "doing" | "started" => {
                StepStatus::InProgress
            }
            "completed" | "complete" | "done" | "finished" => StepStatus::Completed,
            _ => return None,
        })
    }
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
        let entries = entries(args.entries);
        let count = entries.len();
        ctx.bench.log.add(Entry::Plan { entries: entries.clone() });
        ctx.bench.log.flush().written().await;
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

/// The steps that say something. Only one is being done: the first that says so.
fn entries(steps: Vec<Step>) -> Vec<PlanEntry> {
    let steps = steps.into_iter().filter(|it| !it.content.trim().is_empty());
    let mut entries: Vec<_> = steps.take(MOST_ENTRIES).map(entry).collect();
    let in_progress = entries.iter_mut().filter(|it| it.status == PlanStatus::InProgress);
    in_progress.skip(1).for_each(|it| it.status = PlanStatus::Pending);
    entries
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_can_mean_is_forgiven_and_one_step_is_in_progress() {
        let steps = json!([
            { "content": "a", "status": "Done" },
            { "content": "b", "status": "in-progress" },
            { "content": " " },
            { "content": "c", "status": "IN PROGRESS" },
            { "content": "d", "status": "todo" },
            { "content": "e", "status": "" },
            { "content": "f" },
        ]);
        let entries = entries(serde_json::from_value(steps).unwrap());
        let statuses: Vec<_> = entries.iter().map(|it| it.status).collect();
        let [done, doing, open] =
            [PlanStatus::Completed, PlanStatus::InProgress, PlanStatus::Pending];
        assert_eq!(statuses, [done, doing, open, open, open, open]);
        assert_eq!(StepStatus::parse("cancelled"), None);
    }
}
