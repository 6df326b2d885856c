//! `ask_user`: the model asks the user a question during a turn.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{CallPlan, CallSite, OfferContext, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use turnwright_policy::permission::Pass;
use turnwright_types::client::{UserQuestion, UserReply};
use turnwright_types::effect::{
    CallContent, CallView, ToolKind, escape_hidden, escape_hidden_line, shorten_title,
};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;

/// Limits on a question: the number of options, and the characters of each text.
const MAX_OPTIONS: usize = 20;
const MAX_OPTION_CHARS: usize = 200;
const MAX_QUESTION_CHARS: usize = 4_000;
/// The text on the card of a question that is asked in the conversation.
const ASKED: &str = "Asked below.";

/// The result if nobody watches.
const NOBODY_ANSWERS: &str = "Nobody can answer. Choose the most reasonable reading, go on, and say \
                              what you assumed.";

/// Ask the user what you must know and cannot find out.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AskUser {
    question: String,
    /// Choices; without them, free text
    #[serde(default, alias = "choices")]
    options: Vec<String>,
    /// More than one may be chosen
    #[serde(default, alias = "multi", alias = "multiple", alias = "multiSelect")]
    several: bool,
}

impl Tool for AskUser {
    const NAME: &'static str = "ask_user";
    const KIND: ToolKind = ToolKind::Think;
    const PENDING_TITLE: &'static str = "Question";
    type Preview = ();

    fn is_offered(offer: &OfferContext) -> bool {
        !offer.is_alone
    }

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        let title = question_title(&self.question);
        CallPlan::in_session(CallView::new(title, Self::KIND))
    }

    async fn run(self, (): (), _: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        if ctx.env.is_alone {
            return Err(NOBODY_ANSWERS.into());
        }
        let question = text::cut(escape_hidden(self.question.trim()), MAX_QUESTION_CHARS);
        if question.is_empty() {
            return Err("ask_user needs a `question`. The user was not asked.".into());
        }
        let options = clean_options(self.options);
        let several = self.several && !options.is_empty();
        let shown = numbered(&question, &options, several);
        let inquiry = UserQuestion {
            call: ctx.call.clone(),
            question,
            allows_multiple: several,
            allows_text: !options.is_empty(),
            options,
        };
        match ctx.env.client.ask_user(inquiry).await {
            UserReply::Answered(words) if words.iter().any(|text| !text.trim().is_empty()) => {
                Ok(answer_outcome(&words))
            }
            UserReply::Answered(_) | UserReply::Declined => Err(ToolRefusal::new(
                "The user does not want to answer this. Do not ask again: decide yourself and say \
                 how, or stop and say what is open.",
                "Not answered",
            )),
            UserReply::Cancelled => {
                Err(ToolRefusal::cancelled("The question was withdrawn; there is no answer."))
            }
            UserReply::InConversation => {
                let text = format!(
                    "The user is asked this; the turn ends, and the next message is the \
                     answer:\n{shown}"
                );
                ctx.env.ask_in_conversation(shown);
                let content = vec![CallContent::Text(ASKED.to_owned())];
                Ok(ToolOutcome::done(text, content, json!({ "message": ASKED })))
            }
            UserReply::Unsupported => Err(
                "This client cannot show the question. Ask it in the text of your answer and end \
                 your turn there."
                    .into(),
            ),
        }
    }
}

/// The question as it is asked in the conversation.
fn numbered(question: &str, options: &[String], several: bool) -> String {
    if options.is_empty() {
        return question.to_owned();
    }
    let items =
        options.iter().enumerate().map(|(index, option)| format!("{}. {option}", index + 1));
    let listed = items.collect::<Vec<_>>().join("\n");
    let numbers = if several { "one or more numbers" } else { "a number" };
    format!("{question}\n\n{listed}\n\nAnswer with {numbers} or in your own words.")
}

fn answer_outcome(words: &[String]) -> ToolOutcome {
    let answer = words.join("\n");
    let text = format!("The user answers: {answer}");
    let raw = json!({ "answer": answer });
    ToolOutcome::done(text, vec![CallContent::Text(answer)], raw)
}

fn question_title(question: &str) -> String {
    let line = text::one_line(question);
    shorten_title(if line.is_empty() {
        AskUser::PENDING_TITLE.to_owned()
    } else {
        escape_hidden_line(&line)
    })
}

/// The options without duplicates and empty ones, each in one line.
fn clean_options(requested: Vec<String>) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for option in requested {
        let option = text::cut(escape_hidden_line(option.trim()), MAX_OPTION_CHARS);
        if !option.is_empty() && !options.contains(&option) && options.len() < MAX_OPTIONS {
            options.push(option);
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::MAX_TITLE_CHARS;

    #[test]
    fn options_are_lines_that_differ_and_a_title_is_one_short_line() {
        let requested = ["a", " a ", "", "b\nc", "b\nc"].map(str::to_owned);
        assert_eq!(clean_options(requested.to_vec()), ["a", "b\\nc"]);
        let many = (0..50).map(|number| number.to_string()).collect();
        assert_eq!(clean_options(many).len(), MAX_OPTIONS);
        assert_eq!(question_title("Which\n one?"), "Which one?");
        assert_eq!(question_title(" "), "Question");
        assert_eq!(question_title(&"é".repeat(500)).chars().count(), MAX_TITLE_CHARS);
    }
}
