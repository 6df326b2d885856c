//! A question and its answer: what can be chosen, and what is remembered of it.

use super::policy::{Decision, Finding, Verdict, Why, decide};
use super::{Gate, Grants, Law, Mode, Pass, Rule, is_outside, judge};
use crate::client::{Answer, Choice, ChoiceKind};
use crate::effect::Effect;

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    effects: Vec<Effect>,
    decision: Decision,
}

/// A yes.
#[derive(Debug)]
pub struct Settled {
    /// It may run.
    pub pass: Pass,
    /// What the user wants to hold for the project from now on.
    pub for_project: Vec<Rule>,
}

impl Asked {
    pub(super) fn new(effects: Vec<Effect>, decision: Decision) -> Asked {
        Asked { effects, decision }
    }

    /// What has made it a question.
    pub fn reasons(&self) -> impl Iterator<Item = &Finding> {
        self.decision.findings.iter().filter(|it| it.verdict == Verdict::Ask)
    }

    /// The effects that the question is about; the others are free, and "never" must not mean them.
    fn questioned(&self) -> Vec<Effect> {
        let is_asked = |place: usize| self.reasons().any(|it| it.effect == place);
        let all = self.effects.iter().enumerate();
        all.filter(|(place, _)| is_asked(*place)).map(|(_, it)| it.clone()).collect()
    }

    /// What can be answered: the plain yes first, because some clients take the first option for
    /// the default.
    pub fn choices(&self) -> Vec<Choice> {
        let what = match self.questioned().as_slice() {
            [Effect::Exec(_), ..] => "this exact command",
            [Effect::Write(_), ..] => "changes to this file",
            [Effect::Delete(_), ..] => "removing this",
            [Effect::Input { .. }, ..] => "input to this command",
            [Effect::Fetch { .. }, ..] => "requests to this host",
            [_, _, ..] => "these paths",
            _ => "this path",
        };
        let choice = |kind, name: String| Choice { kind, name };
        vec![
            choice(ChoiceKind::AllowOnce, "Allow once".to_owned()),
            choice(ChoiceKind::AllowSession, format!("Allow {what} in this session")),
            choice(ChoiceKind::RejectOnce, "Reject".to_owned()),
            choice(ChoiceKind::RejectSession, format!("Reject {what} in this session")),
        ]
    }

    /// Judges once more: the answer to one question may have settled the next.
    pub fn again(self, law: &Law, mode: Mode, grants: &Grants) -> Gate {
        judge(law, mode, grants, self.effects)
    }

    /// Whether the user should be told that the place is not one of the session's folders.
    pub fn leaves_the_roots(&self) -> bool {
        self.effects.iter().any(is_outside)
    }

    /// Turns the answer into a pass or into a text for the model, and remembers it if the user
    /// wants that.
    ///
    /// # Errors
    /// When the answer is anything but a clear yes.
    pub fn settle(
        self,
        answer: Answer,
        law: &Law,
        mode: Mode,
        grants: &mut Grants,
    ) -> Result<Settled, String> {
        const NO: &str = "The user rejected this call. Do not repeat it or work around it: ask, \
                          or choose another way.";
        // Mode and rules may have become stricter while the question was open.
        let now = decide(law, mode, grants, &self.effects);
        if now.verdict() == Verdict::Deny {
            return Err(refusal(&now, mode));
        }
        let questioned = self.questioned();
        match answer {
            Answer::Chosen(ChoiceKind::AllowOnce) => {}
            Answer::Chosen(ChoiceKind::AllowSession | ChoiceKind::AllowProject) => {
                for effect in questioned {
                    grants.allow_exactly(effect);
                }
            }
            Answer::Chosen(ChoiceKind::RejectOnce) => return Err(NO.to_owned()),
            Answer::Chosen(ChoiceKind::RejectSession) => {
                grants.reject(&questioned);
                return Err(NO.to_owned());
            }
            Answer::Cancelled => {
                let withdrawn =
                    "The question about this call was withdrawn; it was not executed.".to_owned();
                return Err(withdrawn);
            }
            Answer::Unclear(what) => {
                return Err(format!(
                    "There was no clear permission for this call ({what}); it was not executed."
                ));
            }
        }
        let pass = Pass::new(law, mode, &self.decision, self.effects);
        Ok(Settled { pass, for_project: Vec::new() })
    }
}

/// What the model is told of a call that must not run.
pub(super) fn refusal(decision: &Decision, mode: Mode) -> String {
    let why = decision.strictest().map(|it| &it.why);
    match why {
        Some(Why::Rejected) => {
            "The user has rejected this for the whole session. Do not try it again.".to_owned()
        }
        Some(Why::Rule(rule)) => {
            let why = rule.why.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
            format!(
                "A rule denies this: {}{why}. It was not executed. Do not work around it.",
                rule.pattern
            )
        }
        Some(Why::Catastrophe(what)) => {
            format!("This is never run: it {what}. It was not executed.")
        }
        Some(Why::Doubt(doubt)) if mode == Mode::Plan => format!(
            "Plan mode: only commands that are known to read only are run, one by one or in a \
             plain pipe; of this one that is not known ({doubt}). It was not executed."
        ),
        _ => "Plan mode: nothing is changed and only commands that read are run. Say what you \
              would do; the user can switch the mode."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Place, Target};

    fn read(path: &str, place: Place) -> Effect {
        Effect::Read(Target { path: path.into(), place })
    }

    fn ask(law: &Law, grants: &Grants, effects: Vec<Effect>) -> Asked {
        match judge(law, Mode::Ask, grants, effects) {
            Gate::Ask(asked) => asked,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn never_means_what_was_asked_about_and_not_what_came_with_it() {
        let inside = read("/ws/a", Place::Inside);
        let outside = read("/etc/passwd", Place::Outside);
        let (law, mut grants) = (Law::default(), Grants::default());
        let asked = ask(&law, &grants, vec![inside.clone(), outside.clone()]);
        let never = Answer::Chosen(ChoiceKind::RejectSession);
        asked.settle(never, &law, Mode::Ask, &mut grants).unwrap_err();
        assert!(matches!(judge(&law, Mode::Ask, &grants, vec![inside]), Gate::Open(_)));
        assert!(matches!(judge(&law, Mode::Ask, &grants, vec![outside]), Gate::Closed(_)));
    }

    #[test]
    fn a_question_is_judged_by_what_holds_when_it_is_answered() {
        let (law, mut grants) = (Law::default(), Grants::default());
        let yes = Answer::Chosen(ChoiceKind::AllowOnce);
        let write = Effect::Write(Target { path: "/ws/a".into(), place: Place::Inside });
        let asked = ask(&law, &grants, vec![write]);
        assert!(asked.settle(yes, &law, Mode::Plan, &mut grants).is_err());
        let outside = || vec![read("/etc/a", Place::Outside)];
        let (first, second) = (ask(&law, &grants, outside()), ask(&law, &grants, outside()));
        let always = Answer::Chosen(ChoiceKind::AllowSession);
        first.settle(always, &law, Mode::Ask, &mut grants).unwrap();
        assert!(matches!(second.again(&law, Mode::Ask, &grants), Gate::Open(_)));
    }
}
