//! Who may do what: a pure decision, a memory of answers for the session, and the pass without
//! which no tool runs.

mod grants;
mod policy;

use crate::client::{Answer, Choice, ChoiceKind};
use crate::effect::{Effect, Place};

pub use grants::Grants;
pub use policy::{Mode, Verdict, decide};

/// Proof that a call was judged and allowed. Only this module makes one, so a tool cannot run
/// unjudged. It holds what was allowed, and the tool touches nothing else.
#[derive(Debug)]
pub struct Pass {
    effects: Vec<Effect>,
}

impl Pass {
    /// What is allowed.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }
}

/// What the gate says to a call.
#[derive(Debug)]
pub enum Gate {
    /// It may run.
    Open(Pass),
    /// The user has to be asked; the answer goes to [`Asked::settle`].
    Ask(Asked),
    /// It must not run. The text is for the model.
    Closed(String),
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    effects: Vec<Effect>,
}

/// Judges a call by what it may touch.
pub fn judge(mode: Mode, grants: &Grants, effects: Vec<Effect>) -> Gate {
    match decide(mode, grants, &effects) {
        Verdict::Allow => Gate::Open(Pass { effects }),
        Verdict::Ask => Gate::Ask(Asked { effects }),
        Verdict::Deny(reason) => Gate::Closed(reason),
    }
}

impl Asked {
    /// What can be answered: the plain yes first, and each kind once, because some clients show
    /// one button a kind and others take the first option for the default.
    pub fn choices(&self) -> Vec<Choice> {
        let what = match self.effects.first() {
            Some(Effect::Exec { .. }) => "this exact command",
            Some(Effect::Write(_)) => "changes to this file",
            _ => "this path",
        };
        let choice = |kind, name: String| Choice { kind, name };
        vec![
            choice(ChoiceKind::AllowOnce, "Allow once".to_owned()),
            choice(ChoiceKind::AllowAlways, format!("Allow {what} in this session")),
            choice(ChoiceKind::RejectOnce, "Reject".to_owned()),
            choice(ChoiceKind::RejectAlways, format!("Reject {what} in this session")),
        ]
    }

    /// Whether the user should be told that the place is not one of the session's folders.
    pub fn leaves_the_roots(&self) -> bool {
        self.effects.iter().any(|it| match it {
            Effect::Read(target) | Effect::Write(target) => target.place == Place::Outside,
            Effect::Exec { .. } | Effect::Session => false,
        })
    }

    /// Turns the answer into a pass or into a text for the model, and remembers it if the user
    /// wants that.
    ///
    /// # Errors
    /// When the answer is anything but a clear yes.
    pub fn settle(self, answer: Answer, grants: &mut Grants) -> Result<Pass, String> {
        const NO: &str = "The user rejected this call. Do not repeat it or work around it: ask, \
                          or choose another way.";
        match answer {
            Answer::Chosen(ChoiceKind::AllowOnce) => Ok(Pass { effects: self.effects }),
            Answer::Chosen(ChoiceKind::AllowAlways) => {
                grants.allow(&self.effects);
                Ok(Pass { effects: self.effects })
            }
            Answer::Chosen(ChoiceKind::RejectOnce) => Err(NO.to_owned()),
            Answer::Chosen(ChoiceKind::RejectAlways) => {
                grants.reject(&self.effects);
                Err(NO.to_owned())
            }
            Answer::Cancelled => {
                Err("The question about this call was withdrawn; it was not executed.".to_owned())
            }
            Answer::Unclear(what) => Err(format!(
                "There was no clear permission for this call ({what}); it was not executed."
            )),
        }
    }
}
