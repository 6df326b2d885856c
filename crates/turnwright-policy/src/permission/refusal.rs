//! The texts about calls that must not run: instructions for the model, a short statement for the user.

use super::decision::{Decision, Reason};
use super::describe::display_path;
use super::{Mode, PolicyRules};
use turnwright_types::effect::Effect;
use turnwright_types::refusal::ToolRefusal;

/// Why a denied call must not run.
pub(super) fn refusal(
    decision: &Decision,
    mode: Mode,
    policy: &PolicyRules,
    effects: &[Effect],
) -> ToolRefusal {
    let finding = decision.strictest();
    match finding.map(|finding| &finding.reason) {
        Some(Reason::Rejected) => ToolRefusal::new(
            "The user has rejected this for the whole session. Do not try it again.",
            "Rejected for this session",
        ),
        Some(Reason::Rule(rule)) => {
            let why = rule.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            let pattern = &rule.pattern;
            let index = finding.map_or(0, |finding| finding.effect_index);
            let file = match effects.get(index) {
                // The path that the call itself names needs no mention.
                Some(Effect::Read(target) | Effect::Write(target) | Effect::Delete(target))
                    if index > 0 =>
                {
                    Some(&target.path)
                }
                _ => finding.and_then(|finding| finding.path.as_ref()),
            };
            let denied = file
                .map(|file| format!(" for {}", display_path(file, &policy.bases)))
                .unwrap_or_default();
            ToolRefusal::new(
                format!(
                    "A rule denies this: {pattern}{denied}{why}. It was not executed. Do not work around it."
                ),
                format!("Denied by the rule {pattern}{denied}{why}"),
            )
        }
        Some(Reason::Catastrophic(what)) => ToolRefusal::new(
            format!("This is never run: it {what}. It was not executed."),
            format!("Never run: it {what}"),
        ),
        Some(Reason::TooLong) => ToolRefusal::new(
            "The command is longer than 64 KiB, too long to be judged. Nothing was run. Write a \
             script with write_file and run that.",
            "The command is longer than 64 KiB, too long to be judged",
        ),
        Some(Reason::Ambiguous(why)) if mode == Mode::Plan => ToolRefusal::new(
            format!(
                "Plan mode: only commands that are known to only read are run, one by one or in a \
                 plain pipe. This one is not ({why}). It was not executed."
            ),
            format!("Not run in plan mode: it may do more than read ({why})"),
        ),
        _ => ToolRefusal::new(
            "Plan mode: nothing is changed and only commands that read are run. Say what you would \
             do; the user can switch the mode.",
            "Not run in plan mode",
        ),
    }
}

/// The question was taken back before it was answered.
pub(super) fn withdrawn() -> ToolRefusal {
    ToolRefusal::cancelled("The question about this call was withdrawn; it was not executed.")
}

/// The answer was neither yes nor no.
pub(super) fn unclear(what: &str) -> ToolRefusal {
    ToolRefusal::new(
        format!("There was no clear permission for this call ({what}); it was not executed."),
        format!("No clear permission ({what})"),
    )
}
