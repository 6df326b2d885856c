//! The command of the user that proves a goal. It runs as a call of ours with a card, which the model's conversation
//! does not have.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::tools::AnyTool;
use crate::turn::calls::runner::refused;
use crate::turn::{SharedGrants, Turn};
use turnwright_store::CallOutcome;
use turnwright_types::effect::{CallView, ToolKind, escape_hidden};
use turnwright_types::ids::CallId;
use turnwright_types::patience::sleep_until;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::update::COMMAND_TOOL;

/// The time limit of the command, with the question about it.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// The most lines of its output that the model is shown.
const MAX_LINES: usize = 20;
/// The most characters of a line.
const MAX_LINE_CHARS: usize = 400;

impl Turn {
    /// Runs the command after this slice. Returns `None` if it has succeeded, and otherwise the end of its output.
    ///
    /// # Errors
    /// Why it did not run, as a part of a sentence.
    pub(super) async fn run_goal_check(
        &mut self,
        command: &str,
        slice: u32,
        grants: &SharedGrants,
    ) -> Result<Option<String>, String> {
        let Ok(tool) = self.conversation.tools.find(COMMAND_TOOL) else {
            return Err("no command can be run here".to_owned());
        };
        // The limit is ours, so that it does not go on in the background.
        let arguments = json!({ "command": command, "timeout": TIME_LIMIT.as_secs() * 2 });
        let when = match slice {
            0 => "before the work".to_owned(),
            slice => format!("after slice {slice}"),
        };
        let title = format!("Goal check ({when}): {}", escape_hidden(command));
        let view = CallView::new(title, ToolKind::Execute);
        let id = self.open_own_call(COMMAND_TOOL, &arguments, &view);
        let outcome = self.run_proof(&id, tool, arguments, &view, grants).await;
        let stored = outcome.to_stored(COMMAND_TOOL, Some(&view));
        if !outcome.has_run() {
            self.conversation.log().finish_call(&id, stored).written().await;
            self.cards.finish(outcome.final_update(&id));
            let why = outcome.raw_output["message"].as_str().unwrap_or("it was refused");
            return Err(why.trim_end_matches('.').to_owned());
        }
        self.cards.finish(stored.final_update(&id));
        let output = outcome.raw_output["output"].as_str().unwrap_or_default();
        Ok((!outcome.is_success).then(|| last_lines(output)))
    }

    /// Runs the command under the session's rules. Once it was allowed, it is allowed for this goal.
    async fn run_proof(
        &self,
        id: &CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        view: &CallView,
        grants: &SharedGrants,
    ) -> CallOutcome {
        let conversation = &self.conversation;
        let cancel = self.cancel.child_token();
        let runner = conversation.runner(Arc::clone(grants));
        let running = async {
            let ctx = runner.ctx(id.clone(), cancel.clone(), self.cancel.clone());
            let (mut pending, ticket) = runner.enqueue(tool, arguments, ctx).await?;
            let effects = pending.plan.effects.clone();
            pending.view = Some(view.clone());
            let outcome = runner.clone().run(pending, ticket).await;
            // Without a sandbox the user is asked each time: the command may run what the model has written.
            if outcome.has_run() && conversation.rules().get().can_confine {
                for effect in effects {
                    grants.lock().allow_exactly(effect);
                }
            }
            Ok(outcome)
        };
        let mut running = std::pin::pin!(running);
        let ended = tokio::select! {
            biased;
            ended = &mut running => ended,
            () = sleep_until(Instant::now() + TIME_LIMIT) => {
                cancel.cancel();
                running.await.ok();
                let why = format!("Stopped: the check may take {} s", TIME_LIMIT.as_secs());
                Err(ToolRefusal::new(&why, &why))
            }
        };
        ended.unwrap_or_else(|why| refused(why, Vec::new()))
    }
}

fn last_lines(output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    let first = lines.len().saturating_sub(MAX_LINES);
    let shown = lines[first..].iter().map(|line| text::cut(line.trim_end(), MAX_LINE_CHARS));
    shown.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_bounded() {
        let lines: Vec<_> = (1..=50).map(|number| format!("line {number}")).collect();
        let shown = last_lines(&lines.join("\n"));
        assert_eq!((shown.lines().count(), shown.lines().next()), (20, Some("line 31")));
        assert_eq!(last_lines(&"é".repeat(999)).chars().count(), MAX_LINE_CHARS);
        assert_eq!(last_lines(""), "");
    }
}
