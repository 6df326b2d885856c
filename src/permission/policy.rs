//! The decision. A pure function; its tests are the specification.

use super::Grants;
use crate::effect::{Effect, Place, is_secret};

/// How much the session may do without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Asks before each change and each command.
    #[default]
    Ask,
    /// Changes nothing and runs nothing.
    Plan,
}

impl Mode {
    /// Every mode, in the order in which a client shows them.
    pub const ALL: [Mode; 2] = [Mode::Ask, Mode::Plan];

    /// The name on the wire and in the environment.
    pub fn id(self) -> &'static str {
        match self {
            Mode::Ask => "ask",
            Mode::Plan => "plan",
        }
    }

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Ask => "Ask",
            Mode::Plan => "Plan",
        }
    }

    /// What it does, in one line.
    pub fn description(self) -> &'static str {
        match self {
            Mode::Ask => "Reads freely in the project; asks before each change and each command",
            Mode::Plan => "Only reads and plans; changes nothing and runs no commands",
        }
    }

    /// The mode of that name.
    pub fn parse(id: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|it| it.id() == id)
    }
}

/// What is to be done with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run it.
    Allow,
    /// Ask first.
    Ask,
    /// Do not run it; the text tells the model why.
    Deny(String),
}

/// Judges a call: the strictest verdict about any of its effects counts.
pub fn decide(mode: Mode, grants: &Grants, effects: &[Effect]) -> Verdict {
    let mut result = Verdict::Allow;
    for effect in effects {
        match one(mode, grants, effect) {
            deny @ Verdict::Deny(_) => return deny,
            Verdict::Ask => result = Verdict::Ask,
            Verdict::Allow => {}
        }
    }
    result
}

fn one(mode: Mode, grants: &Grants, effect: &Effect) -> Verdict {
    if grants.is_rejected(effect) {
        return Verdict::Deny(
            "The user has rejected this for the whole session. Do not try it again.".to_owned(),
        );
    }
    match by_mode(mode, effect) {
        // A remembered yes may spare a question, never lift a ban.
        Verdict::Ask if grants.is_allowed(effect) => Verdict::Allow,
        verdict => verdict,
    }
}

fn by_mode(mode: Mode, effect: &Effect) -> Verdict {
    match (mode, effect) {
        (_, Effect::Session) => Verdict::Allow,
        (_, Effect::Read(target)) if target.place != Place::Outside && !is_secret(&target.path) => {
            Verdict::Allow
        }
        (_, Effect::Read(_) | Effect::Fetch { .. }) => Verdict::Ask,
        (
            Mode::Ask,
            Effect::Write(_) | Effect::Delete(_) | Effect::Exec { .. } | Effect::Input { .. },
        ) => Verdict::Ask,
        (
            Mode::Plan,
            Effect::Write(_) | Effect::Delete(_) | Effect::Exec { .. } | Effect::Input { .. },
        ) => Verdict::Deny(
            "Plan mode: nothing is changed and no commands are run. Say what you would do; the \
             user can switch the mode."
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Target;

    fn effect(text: &str) -> Effect {
        let (verb, object) = text.split_once(' ').unwrap_or((text, ""));
        let place = if object.starts_with("/ws/") { Place::Inside } else { Place::Outside };
        match verb {
            "read" => Effect::Read(Target { path: object.into(), place }),
            "write" => Effect::Write(Target { path: object.into(), place }),
            "exec" => Effect::Exec { command: object.into(), workdir: "/ws".into() },
            _ => Effect::Session,
        }
    }

    #[track_caller]
    fn check(mode: Mode, allowed: &str, rejected: &str, effects: &str, expected: &str) {
        let mut grants = Grants::default();
        let parse = |it: &str| -> Vec<Effect> {
            it.split("; ").filter(|it| !it.is_empty()).map(effect).collect()
        };
        grants.allow(&parse(allowed));
        grants.reject(&parse(rejected));
        let got = match decide(mode, &grants, &parse(effects)) {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny(_) => "deny",
        };
        assert_eq!(got, expected, "{mode:?}, allowed {allowed}, rejected {rejected}: {effects}");
    }

    #[test]
    fn reading_in_the_project_is_free_and_elsewhere_asks() {
        check(Mode::Ask, "", "", "read /ws/a", "allow");
        check(Mode::Plan, "", "", "read /ws/a", "allow");
        check(Mode::Ask, "", "", "read /etc/passwd", "ask");
        check(Mode::Plan, "", "", "read /etc/passwd", "ask");
    }

    #[test]
    fn changes_and_commands_ask() {
        check(Mode::Ask, "", "", "write /ws/a", "ask");
        check(Mode::Ask, "", "", "exec ls", "ask");
    }

    #[test]
    fn plan_mode_denies_them() {
        check(Mode::Plan, "", "", "write /ws/a", "deny");
        check(Mode::Plan, "", "", "exec ls", "deny");
        check(Mode::Plan, "", "", "session", "allow");
    }

    #[test]
    fn a_remembered_yes_spares_exactly_that_question() {
        check(Mode::Ask, "exec ls", "", "exec ls", "allow");
        check(Mode::Ask, "exec ls", "", "exec ls -a", "ask");
        check(Mode::Ask, "write /ws/a", "", "write /ws/a", "allow");
        check(Mode::Ask, "write /ws/a", "", "write /ws/b", "ask");
        check(Mode::Ask, "read /etc/a", "", "write /etc/a", "ask");
    }

    #[test]
    fn a_remembered_yes_does_not_lift_plan_mode() {
        check(Mode::Plan, "exec ls", "", "exec ls", "deny");
    }

    #[test]
    fn a_remembered_no_beats_a_remembered_yes() {
        check(Mode::Ask, "exec ls", "exec ls", "exec ls", "deny");
    }

    #[test]
    fn the_strictest_effect_decides() {
        check(Mode::Ask, "", "", "read /ws/a; exec ls", "ask");
        check(Mode::Plan, "", "", "read /etc/a; write /ws/a", "deny");
    }

    #[test]
    fn a_question_is_judged_by_what_holds_when_it_is_answered() {
        use crate::client::{Answer, ChoiceKind};
        use crate::permission::{Gate, judge};

        let mut grants = Grants::default();
        let ask = |it: &str, grants: &Grants| match judge(Mode::Ask, grants, vec![effect(it)]) {
            Gate::Ask(asked) => asked,
            other => panic!("{other:?}"),
        };
        let yes = Answer::Chosen(ChoiceKind::AllowOnce);
        let asked = ask("write /ws/a", &grants);
        assert!(asked.settle(yes, Mode::Plan, &mut grants).is_err());
        let (first, second) = (ask("read /etc/a", &grants), ask("read /etc/a", &grants));
        let always = Answer::Chosen(ChoiceKind::AllowAlways);
        first.settle(always, Mode::Ask, &mut grants).unwrap();
        assert!(matches!(second.again(Mode::Ask, &grants), Gate::Open(_)));
    }
}
