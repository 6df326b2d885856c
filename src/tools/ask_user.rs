//! `ask_user`: a question of the model to the user, in the middle of the work.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Outcome, Tool, ToolCtx};
use turnwright_types::client::{Inquiry, Reply};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target, short_title, visible, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;

/// Options, and characters of each.
const MOST_OPTIONS: usize = 20;
const LONGEST_OPTION: usize = 200;
const LONGEST_QUESTION: usize = 4_000;

#[derive(Debug)]
pub(super) struct AskUser;

/// Ask the user what you cannot find out and must know to go on.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The question
    question: String,
    /// Answers to choose from; leave out for free text
    #[serde(default, alias = "choices")]
    options: Vec<String>,
    /// Whether several may be chosen
    #[serde(default, alias = "multi", alias = "multiple")]
    several: bool,
}

impl Tool for AskUser {
    const NAME: &'static str = "ask_user";
    const KIND: Kind = Kind::Think;
    const VERB: &'static str = "Question";
    type Args = Args;
    type Seen = ();

    fn view(&self, args: &Args, _: &[Target], _: &Roots) -> CallView {
        CallView { title: title(&args.question), kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, _: &Args, _: &[Target]) -> Vec<Effect> {
        vec![Effect::Session]
    }

    async fn run(&self, args: Args, (): (), _: &Pass, ctx: &ToolCtx) -> Outcome {
        let question: String =
            visible(args.question.trim()).chars().take(LONGEST_QUESTION).collect();
        if question.is_empty() {
            return Outcome::failed("ask_user needs a `question`. Nobody was asked.");
        }
        let options = options(args.options);
        let several = args.several && !options.is_empty();
        let inquiry = Inquiry { call: ctx.call.clone(), question, options, several };
        match ctx.bench.client.inquire(inquiry).await {
            Reply::Said(words) if words.iter().any(|it| !it.trim().is_empty()) => answered(&words),
            Reply::Said(_) | Reply::Declined => Outcome::failed(
                "The user does not want to answer this. Do not ask again: decide yourself and say \
                 how, or stop and say what is open.",
            ),
            Reply::Cancelled => Outcome::failed("The question was withdrawn; there is no answer."),
            Reply::Impossible => Outcome::failed(
                "This client cannot show the question. Ask it in the text of your answer and end \
                 your turn there.",
            ),
        }
    }
}

fn answered(words: &[String]) -> Outcome {
    let answer = words.join("\n");
    Outcome {
        ok: true,
        text: format!("The user answers: {answer}"),
        view: None,
        raw: json!({ "answer": answer }),
        content: vec![Content::Text(answer)],
        images: Vec::new(),
    }
}

fn title(question: &str) -> String {
    let line = question.split_whitespace().collect::<Vec<_>>().join(" ");
    short_title(if line.is_empty() { AskUser::VERB.to_owned() } else { visible_line(&line) })
}

/// Each once, in one line, and none that says nothing.
fn options(wanted: Vec<String>) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for option in wanted {
        let option: String = visible_line(option.trim()).chars().take(LONGEST_OPTION).collect();
        if !option.is_empty() && !options.contains(&option) && options.len() < MOST_OPTIONS {
            options.push(option);
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::LONGEST_TITLE;

    #[test]
    fn options_are_lines_that_differ_and_a_title_is_one_short_line() {
        let wanted = ["a", " a ", "", "b\nc", "b\nc"].map(str::to_owned);
        assert_eq!(options(wanted.to_vec()), ["a", "b\\nc"]);
        assert_eq!(options((0..50).map(|it| it.to_string()).collect()).len(), MOST_OPTIONS);
        assert_eq!(title("Which\n one?"), "Which one?");
        assert_eq!(title(" "), "Question");
        assert_eq!(title(&"é".repeat(500)).chars().count(), LONGEST_TITLE);
    }
}
