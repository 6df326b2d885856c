//! `plan`: the model's list of steps, shown to the user.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use serde_json::json;

use super::{CallPlan, CallSite, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use turnwright_policy::permission::{Mode, Pass};
use turnwright_store::Entry;
use turnwright_types::effect::{CallView, ToolKind};
use turnwright_types::text;
use turnwright_types::update::{PlanEntry, PlanPriority, PlanStatus, Update};

const MAX_ENTRIES: usize = 100;
/// The answer for the model in plan mode, in which no step is to be done.
const IN_PLAN_MODE: &str = "The plan is shown. When it is complete, call exit_plan.";

/// Show the user a plan of three steps or more and keep it up to date. Send the whole list each time, one
/// step in progress.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Plan {
    entries: Vec<PlanStep>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PlanStep {
    /// The step, in a few words
    #[serde(alias = "step", alias = "title")]
    content: String,
    #[serde(default, deserialize_with = "read_status")]
    #[schemars(with = "Option<String>", extend("enum" = ["pending", "in_progress", "completed"]))]
    status: Option<PlanStatus>,
    #[schemars(with = "Option<String>", extend("enum" = ["high", "medium", "low"]))]
    priority: Option<PlanPriority>,
}

fn read_status<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<PlanStatus>, D::Error> {
    let word = String::deserialize(reader)?;
    parse_status(&word).map(Some).ok_or_else(|| {
        de::Error::custom(format!("status \"{word}\" is none of pending, in_progress, completed"))
    })
}

/// The status with this name or an unambiguous synonym.
fn parse_status(word: &str) -> Option<PlanStatus> {
    let word = word.trim().to_lowercase().replace(['-', ' '], "_");
    Some(match word.as_str() {
        "" | "pending" | "todo" | "to_do" | "open" | "planned" | "not_started" => {
            PlanStatus::Pending
        }
        "in_progress" | "inprogress" | "active" | "current" | "doing" | "started" => {
            PlanStatus::InProgress
        }
        "completed" | "complete" | "done" | "finished" => PlanStatus::Completed,
        _ => return None,
    })
}

impl Tool for Plan {
    const NAME: &'static str = "plan";
    const KIND: ToolKind = ToolKind::Think;
    const PENDING_TITLE: &'static str = "Plan";
    const HAS_CARD: bool = false;
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        CallPlan::in_session(CallView::new(Self::PENDING_TITLE, Self::KIND))
    }

    async fn run(self, (): (), _: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let entries = plan_entries(self.entries);
        let count = entries.len();
        let answer = match ctx.env.mode() {
            Mode::Plan => IN_PLAN_MODE.to_owned(),
            _ => answer_text(&entries),
        };
        ctx.env.log.add_entry(Entry::Plan { entries: entries.clone() });
        ctx.env.log.flush().written().await;
        ctx.env.client.update(Update::Plan(entries));
        Ok(ToolOutcome::done(answer, Vec::new(), json!({ "entries": count })))
    }
}

/// The answer for the model. It names the step that is to be done now, because small models take a plan for its
/// result; the list is not repeated, because the model has just written it.
fn answer_text(entries: &[PlanEntry]) -> String {
    let in_progress = entries.iter().find(|entry| entry.status == PlanStatus::InProgress);
    let open = entries.iter().find(|entry| entry.status != PlanStatus::Completed);
    let step = in_progress.or(open).map(|entry| text::one_line(&entry.content));
    match step {
        Some(step) => format!("The plan is shown. Now: {step}"),
        None if entries.is_empty() => "The plan has no steps.".to_owned(),
        None => "The plan is shown. All steps are done.".to_owned(),
    }
}

/// The steps that are not blank. Only the first one in progress stays in progress.
fn plan_entries(steps: Vec<PlanStep>) -> Vec<PlanEntry> {
    let steps = steps.into_iter().filter(|step| !step.content.trim().is_empty());
    let mut entries: Vec<_> = steps.take(MAX_ENTRIES).map(entry).collect();
    let in_progress = entries.iter_mut().filter(|entry| entry.status == PlanStatus::InProgress);
    in_progress.skip(1).for_each(|entry| entry.status = PlanStatus::Pending);
    entries
}

fn entry(step: PlanStep) -> PlanEntry {
    PlanEntry {
        content: step.content,
        priority: step.priority.unwrap_or(PlanPriority::Medium),
        status: step.status.unwrap_or(PlanStatus::Pending),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_of_a_status_are_accepted_and_one_step_is_in_progress() {
        let steps = json!([
            { "content": "a", "status": "Done" },
            { "content": "b", "status": "in-progress" },
            { "content": " " },
            { "content": "c", "status": "IN PROGRESS" },
            { "content": "d", "status": "todo" },
            { "content": "e", "status": "" },
            { "content": "f" },
        ]);
        let entries = plan_entries(serde_json::from_value(steps).unwrap());
        let statuses: Vec<_> = entries.iter().map(|entry| entry.status).collect();
        let [done, doing, open] =
            [PlanStatus::Completed, PlanStatus::InProgress, PlanStatus::Pending];
        assert_eq!(statuses, [done, doing, open, open, open, open]);
        assert_eq!(parse_status("cancelled"), None);
    }

    #[test]
    fn the_answer_names_the_step_that_is_to_be_done_now() {
        for (steps, expected) in [
            (json!([{ "content": "a" }, { "content": "b" }]), "The plan is shown. Now: a"),
            (
                json!([{ "content": "a" }, { "content": "b", "status": "in_progress" }]),
                "The plan is shown. Now: b",
            ),
            (
                json!([{ "content": "a", "status": "done" }, { "content": "b\nc" }]),
                "The plan is shown. Now: b c",
            ),
            (
                json!([{ "content": "a", "status": "done" }]),
                "The plan is shown. All steps are done.",
            ),
            (json!([]), "The plan has no steps."),
        ] {
            let entries = plan_entries(serde_json::from_value(steps).unwrap());
            assert_eq!(answer_text(&entries), expected);
        }
    }
}
