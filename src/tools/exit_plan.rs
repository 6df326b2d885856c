//! `exit_plan`: shows the plan and asks the user whether to carry it out. The user's choice sets
//! the permission mode; the model has no influence on it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{CallPlan, CallSite, OfferContext, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use turnwright_policy::permission::{Mode, Pass};
use turnwright_types::client::{UserQuestion, UserReply};
use turnwright_types::effect::{CallContent, CallView, ToolKind, escape_hidden};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;

const MAX_PLAN_CHARS: usize = 40_000;

const ASK: &str = "Go on, ask me each time";
const EDIT: &str = "Go on, edit freely";
const KEEP: &str = "Keep planning";
/// The text below a plan that is shown in the conversation.
const HOW_TO_AGREE: &str = "To carry this out, switch the mode and say so. Or say what to change.";
/// The answer to the model in that case.
const SHOWN: &str = "The plan is shown to the user; the turn ends, and the next message is the answer. Plan \
                     mode goes on until the user switches it.";

/// The plan as the user is shown it.
pub(crate) fn shown_form(plan: &str) -> String {
    text::cut(escape_hidden(plan.trim()), MAX_PLAN_CHARS)
}

/// Show the user your finished plan and ask whether to carry it out.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ExitPlan {
    /// The plan, in Markdown
    plan: String,
}

impl Tool for ExitPlan {
    const NAME: &'static str = "exit_plan";
    const KIND: ToolKind = ToolKind::SwitchMode;
    const PENDING_TITLE: &'static str = "The plan";
    type Preview = ();

    fn is_offered(offer: &OfferContext) -> bool {
        offer.is_planning
    }

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        CallPlan::in_session(CallView::new(Self::PENDING_TITLE, Self::KIND))
    }

    async fn run(self, (): (), _: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        if ctx.env.shared.mode.get() != Mode::Plan {
            return Err("This is not plan mode: go on without asking for it.".into());
        }
        let plan = shown_form(&self.plan);
        if plan.is_empty() {
            return Err("exit_plan needs a `plan`. The user was not asked.".into());
        }
        let shown = CallContent::Text(plan.clone());
        ctx.update_card(|update| update.content = Some(vec![shown.clone()]));
        // Some clients choose the first option automatically, so it is the harmless one.
        let mut options = [KEEP, ASK, EDIT].map(str::to_owned).to_vec();
        options.extend(as_before(ctx));
        let inquiry = UserQuestion {
            call: ctx.call.clone(),
            question: "Carry out this plan?".to_owned(),
            options,
            allows_multiple: false,
            allows_text: false,
        };
        let reply = ctx.env.client.ask_user(inquiry).await;
        if reply == UserReply::InConversation {
            ctx.env.ask_in_conversation(format!("{plan}\n\n{HOW_TO_AGREE}"));
            return Ok(ToolOutcome::done(SHOWN, vec![shown], json!({ "mode": Mode::Plan.id() })));
        }
        let mut outcome = apply_answer(reply, ctx).unwrap_or_else(ToolOutcome::failed);
        outcome.content.insert(0, shown);
        Ok(outcome)
    }
}

/// The answer that brings back the mode before plan mode; `None` if one of the others is as free.
fn as_before(ctx: &ToolCtx) -> Option<String> {
    let mode = ctx.env.shared.mode.before_plan();
    (mode > Mode::AutoEdit).then(|| format!("Go on as before, in mode {}", mode.id()))
}

fn apply_answer(reply: UserReply, ctx: &ToolCtx) -> ToolAnswer {
    let mode = match reply {
        UserReply::Answered(words) => match words.first().map(String::as_str) {
            Some(ASK) => Ok(Mode::Ask),
            Some(EDIT) => Ok(Mode::AutoEdit),
            Some(word) if as_before(ctx).as_deref() == Some(word) => {
                Ok(ctx.env.shared.mode.before_plan())
            }
            _ => Err(ToolRefusal::new(
                "The user wants to keep planning: plan mode goes on. Ask what to change, or end \
                 your turn.",
                KEEP,
            )),
        },
        UserReply::Declined => Err(ToolRefusal::new(
            "The user has not agreed: plan mode goes on. Ask what to change, or end your turn.",
            "Rejected",
        )),
        UserReply::Cancelled => {
            Err(ToolRefusal::cancelled("The question was withdrawn; plan mode goes on."))
        }
        UserReply::InConversation | UserReply::Unsupported => Err(
            "This client cannot show the question. Put the plan into the text of your answer and \
             end your turn; the user switches the mode."
                .into(),
        ),
    }?;
    // A mode that the user has set while the question was open wins.
    if ctx.cancel.is_cancelled() || ctx.env.shared.mode.get() != Mode::Plan {
        let why = "The user has changed the mode meanwhile; it stays.";
        return Err(ToolRefusal::new(why, "The mode was changed meanwhile"));
    }
    ctx.env.shared.mode.choose(mode);
    let text = format!("The user agrees. The mode is `{}` now: carry out the plan.", mode.id());
    Ok(ToolOutcome::done(text, Vec::new(), json!({ "mode": mode.id() })))
}
