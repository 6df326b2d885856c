//! `exit_plan`: shows the plan and asks the user whether to begin. What the user chooses is the
//! mode; the model has no say in it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Offer, Outcome, Tool, ToolCtx};
use turnwright_types::client::{Inquiry, Reply};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target, visible};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::{Mode, Pass};
use turnwright_types::update::{CallUpdate, Status, Update};

/// Characters of a plan.
const LONGEST_PLAN: usize = 40_000;

const ASK: &str = "Go on, ask me each time";
const EDIT: &str = "Go on, edit freely";
const KEEP: &str = "Keep planning";

#[derive(Debug)]
pub(super) struct ExitPlan;

/// Show the user your finished plan and ask whether to carry it out.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The plan, in Markdown
    plan: String,
}

impl Tool for ExitPlan {
    const NAME: &'static str = "exit_plan";
    const KIND: Kind = Kind::Think;
    const VERB: &'static str = "The plan";
    type Args = Args;
    type Seen = ();

    fn is_offered(&self, offer: &Offer) -> bool {
        offer.plans
    }

    fn view(&self, _: &Args, _: &[Target], _: &Roots) -> CallView {
        CallView { title: Self::VERB.to_owned(), kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, _: &Args, _: &[Target]) -> Vec<Effect> {
        vec![Effect::Session]
    }

    async fn run(&self, args: Args, (): (), _: &Pass, ctx: &ToolCtx) -> Outcome {
        if ctx.bench.mode.get() != Mode::Plan {
            return Outcome::failed("This is not plan mode: go on without asking for it.");
        }
        let plan: String = visible(args.plan.trim()).chars().take(LONGEST_PLAN).collect();
        if plan.is_empty() {
            return Outcome::failed("exit_plan needs a `plan`. Nobody was asked.");
        }
        let shown = Content::Text(plan);
        let mut update = CallUpdate::new(ctx.call.clone(), Status::InProgress);
        update.content = Some(vec![shown.clone()]);
        ctx.bench.client.update(Update::CallUpdate(Box::new(update)));
        let inquiry = Inquiry {
            call: ctx.call.clone(),
            question: "Carry out this plan?".to_owned(),
            // Some clients press the first button by themselves.
            options: [KEEP, ASK, EDIT].map(str::to_owned).to_vec(),
            several: false,
        };
        let reply = ctx.bench.client.inquire(inquiry).await;
        let mut outcome = answered(reply, ctx);
        outcome.content.insert(0, shown);
        outcome
    }
}

fn answered(reply: Reply, ctx: &ToolCtx) -> Outcome {
    let mode = match reply {
        Reply::Said(words) => match words.first().map(String::as_str) {
            Some(ASK) => Mode::Ask,
            Some(EDIT) => Mode::AutoEdit,
            _ => {
                return Outcome::failed(
                    "The user wants to keep planning: plan mode goes on. Ask what to change, or end \
                     your turn.",
                );
            }
        },
        Reply::Declined => {
            return Outcome::failed(
                "The user has not agreed: plan mode goes on. Ask what to change, or end your turn.",
            );
        }
        Reply::Cancelled => {
            return Outcome::failed("The question was withdrawn; plan mode goes on.");
        }
        Reply::Impossible => {
            return Outcome::failed(
                "This client cannot show the question. Put the plan into the text of your answer \
                 and end your turn; the user switches the mode.",
            );
        }
    };
    // Whoever has chosen another mode meanwhile has chosen that.
    if ctx.cancel.is_cancelled() || ctx.bench.mode.get() != Mode::Plan {
        return Outcome::failed("The mode was changed meanwhile; that holds.");
    }
    ctx.bench.mode.choose(mode);
    let text = format!("The user agrees. The mode is `{}` now: carry out the plan.", mode.id());
    Outcome {
        ok: true,
        view: None,
        content: Vec::new(),
        raw: json!({ "mode": mode.id() }),
        text,
        images: Vec::new(),
    }
}
