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
    /// Those that the question is about; the others are free, and "never" must not mean them.
    questioned: Vec<Effect>,
}

/// Judges a call by what it may touch.
pub fn judge(mode: Mode, grants: &Grants, effects: Vec<Effect>) -> Gate {
    match decide(mode, grants, &effects) {
        Verdict::Allow => Gate::Open(Pass { effects }),
        Verdict::Ask => {
            let is_free =
                |it: &Effect| decide(mode, grants, std::slice::from_ref(it)) == Verdict::Allow;
            let questioned = effects.iter().filter(|it| !is_free(it)).cloned().collect();
            Gate::Ask(Asked { effects, questioned })
        }
        Verdict::Deny(reason) => Gate::Closed(reason),
    }
}

impl Asked {
    /// What can be answered: the plain yes first, and each kind once, because some clients show
    /// one button a kind and others take the first option for the default.
    pub fn choices(&self) -> Vec<Choice> {
        let what = match self.questioned.as_slice() {
            [Effect::Exec { .. }, ..] => "this exact command",
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
            choice(ChoiceKind::AllowAlways, format!("Allow {what} in this session")),
            choice(ChoiceKind::RejectOnce, "Reject".to_owned()),
            choice(ChoiceKind::RejectAlways, format!("Reject {what} in this session")),
        ]
    }

    /// Judges once more: the answer to one question may have settled the next.
    pub fn again(self, mode: Mode, grants: &Grants) -> Gate {
        judge(mode, grants, self.effects)
    }

    /// Whether the user should be told that the place is not one of the session's folders.
    pub fn leaves_the_roots(&self) -> bool {
        self.effects.iter().any(|it| match it {
            Effect::Read(target) | Effect::Write(target) | Effect::Delete(target) => {
                target.place != Place::Inside
            }
            Effect::Exec { .. } | Effect::Input { .. } | Effect::Fetch { .. } | Effect::Session => {
                false
            }
        })
    }

    /// Turns the answer into a pass or into a text for the model, and remembers it if the user
    /// wants that.
    ///
    /// # Errors
    /// When the answer is anything but a clear yes.
    pub fn settle(self, answer: Answer, mode: Mode, grants: &mut Grants) -> Result<Pass, String> {
        const NO: &str = "The user rejected this call. Do not repeat it or work around it: ask, \
                          or choose another way.";
        // The mode may have become stricter while the question was open.
        if let Verdict::Deny(reason) = decide(mode, grants, &self.effects) {
            return Err(reason);
        }
        match answer {
            Answer::Chosen(ChoiceKind::AllowOnce) => Ok(Pass { effects: self.effects }),
            Answer::Chosen(ChoiceKind::AllowAlways) => {
                grants.allow(&self.questioned);
                Ok(Pass { effects: self.effects })
            }
            Answer::Chosen(ChoiceKind::RejectOnce) => Err(NO.to_owned()),
            Answer::Chosen(ChoiceKind::RejectAlways) => {
                grants.reject(&self.questioned);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Target;

    #[test]
    fn never_means_what_was_asked_about_and_not_what_came_with_it() {
        let read = |path: &str, place| Effect::Read(Target { path: path.into(), place });
        let inside = read("/ws/a", Place::Inside);
        let outside = read("/etc/passwd", Place::Outside);
        let mut grants = Grants::default();
        let both = vec![inside.clone(), outside.clone()];
        let Gate::Ask(asked) = judge(Mode::Ask, &grants, both) else { panic!("it must ask") };
        let never = Answer::Chosen(ChoiceKind::RejectAlways);
        asked.settle(never, Mode::Ask, &mut grants).unwrap_err();
        assert!(matches!(judge(Mode::Ask, &grants, vec![inside]), Gate::Open(_)));
        assert!(matches!(judge(Mode::Ask, &grants, vec![outside]), Gate::Closed(_)));
    }
}
