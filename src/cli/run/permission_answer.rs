//! Answers to the agent's questions: by the flags, or by what the user has typed.

use serde_json::Value;

use super::agent_update::{list, string};
use super::typed_answer::AnswerSource;
use crate::acp::IS_BOUNDED;

/// Who answers questions.
#[derive(Debug)]
pub(super) struct AnswerPolicy {
    /// `--yes`: what the mode `auto` would not have asked is allowed once.
    pub(super) allows_bounded: bool,
    /// The terminal on which the user is asked; `None` if nobody is.
    pub(super) asks_on: Option<AnswerSource>,
    /// `--no-input`.
    pub(super) is_silenced: bool,
}

/// The treatment of a question. An option is named by its id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerRule {
    AllowOnce(String),
    Reject(String),
    Ask,
}

impl AnswerPolicy {
    /// The rule for a `session/request_permission`. `--yes` never answers what leaves the sandbox or the
    /// project, is dangerous, or is asked because of a rule: the agent says which questions are not so.
    pub(super) fn rule(&self, params: &Value) -> AnswerRule {
        let options = list(&params["options"]);
        let is_bounded = params["_meta"][IS_BOUNDED] == true;
        match option(options, "allow_once") {
            Some((id, _)) if self.allows_bounded && is_bounded => AnswerRule::AllowOnce(id),
            _ if self.asks_on.is_some() => AnswerRule::Ask,
            _ => AnswerRule::Reject(option(options, "reject_once").unwrap_or_default().0),
        }
    }

    pub(super) fn source(&self) -> Option<&AnswerSource> {
        self.asks_on.as_ref()
    }

    /// Says why nobody was asked.
    pub(super) fn why_rejected(&self) -> &'static str {
        match (self.is_silenced, self.allows_bounded) {
            (true, false) => "Refused, because --no-input asks nobody.",
            (true, true) => "Refused: --yes does not cover it, and --no-input asks nobody.",
            (false, false) => "Refused, because there is no terminal to ask on.",
            (false, true) => {
                "Refused: --yes does not cover it, and there is no terminal to ask on."
            }
        }
    }
}

/// The option that an answer chooses, by its number or by yes or no. Anything that is not clearly one of
/// them rejects.
pub(super) fn chosen(answer: &str, options: &[Value]) -> Option<(String, String)> {
    let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    if let Some(found) = number.and_then(|index| options.get(index)) {
        return Some((string(&found["optionId"]), string(&found["name"])));
    }
    match answer.to_lowercase().as_str() {
        "y" | "yes" => option(options, "allow_once"),
        _ => option(options, "reject_once"),
    }
}

/// True if an answer is neither a number nor yes or no, but words to the model.
pub(super) fn is_words(answer: &str) -> bool {
    let is_number = answer.trim_start_matches('-').parse::<usize>().is_ok();
    !is_number && !["", "y", "yes", "n", "no"].contains(&answer.to_lowercase().as_str())
}

/// The id and the name of the option of this kind.
fn option(options: &[Value], kind: &str) -> Option<(String, String)> {
    let found = options.iter().find(|option| option["kind"] == kind)?;
    Some((string(&found["optionId"]), string(&found["name"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(is_bounded: bool) -> Value {
        let option = |kind: &str| json!({ "optionId": kind, "kind": kind, "name": kind });
        let options = ["allow_once", "allow_always", "reject_once", "reject_always"].map(option);
        let meta = if is_bounded { json!({ IS_BOUNDED: true }) } else { Value::Null };
        json!({ "options": options, "_meta": meta })
    }

    #[test]
    fn yes_answers_only_what_is_bounded_and_nobody_is_asked_without_a_terminal() {
        let policy =
            |allows_bounded| AnswerPolicy { allows_bounded, asks_on: None, is_silenced: false };
        let allowed = AnswerRule::AllowOnce("allow_once".to_owned());
        let rejected = || AnswerRule::Reject("reject_once".to_owned());
        assert_eq!(policy(true).rule(&question(true)), allowed);
        assert_eq!(policy(true).rule(&question(false)), rejected());
        assert_eq!(policy(false).rule(&question(true)), rejected());
        assert_eq!(policy(false).rule(&question(false)), rejected());
    }

    #[test]
    fn only_a_clear_answer_allows() {
        let question = question(false);
        for (answer, expected) in [
            ("1", "allow_once"),
            ("2", "allow_always"),
            ("3", "reject_once"),
            ("4", "reject_always"),
            ("y", "allow_once"),
            ("YES", "allow_once"),
            ("n", "reject_once"),
            ("", "reject_once"),
            ("0", "reject_once"),
            ("5", "reject_once"),
            ("-1", "reject_once"),
            ("yess", "reject_once"),
        ] {
            let (id, _) = chosen(answer, list(&question["options"])).unwrap();
            assert_eq!(id, expected, "{answer:?}");
        }
    }
}
