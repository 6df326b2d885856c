//! Which calls of an answer may start, and which must wait for earlier ones. Pure: decided on
//! what the calls may touch, never on what the tools are called.

use turnwright_types::effect::Effect;

/// How many calls are at work side by side; and how many may wait for the user's answer, each with
/// the change that it would make.
pub(super) const ABREAST: usize = 8;

/// The calls of one answer, in its order.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    calls: Vec<(Vec<Effect>, State)>,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not begun.
    Waiting,
    /// It finds out what it would do.
    Looking,
    /// The user will be asked about it.
    Queued,
    /// The user is being asked about it, or it runs.
    Running,
    /// It has its result.
    Settled,
}

impl Schedule {
    pub(super) fn push(&mut self, effects: Vec<Effect>) {
        self.calls.push((effects, State::Waiting));
    }

    pub(super) fn set(&mut self, call: usize, state: State) {
        self.calls[call].1 = state;
    }

    /// The first call that may begin now.
    pub(super) fn next(&self) -> Option<usize> {
        let has_room = self.has_room() && self.count(State::Queued) < ABREAST;
        let may_begin = |it: &usize| self.calls[*it].1 == State::Waiting && self.is_free(*it);
        has_room.then(|| (0..self.calls.len()).find(may_begin)).flatten()
    }

    /// What a call touches has been looked up once more, and may be something else now. Returns
    /// whether it may go on; if not, it waits.
    pub(super) fn admit(&mut self, call: usize, effects: &[Effect]) -> bool {
        effects.clone_into(&mut self.calls[call].0);
        let is_free = self.is_free(call);
        if !is_free {
            self.set(call, State::Waiting);
        }
        is_free
    }

    /// Whether the user may be asked about a call now: the questions come in the order of the
    /// calls, as far as can be known.
    pub(super) fn may_ask(&self, call: usize) -> bool {
        self.has_room() && !self.calls[..call].iter().any(|(_, it)| *it == State::Looking)
    }

    fn has_room(&self) -> bool {
        self.count(State::Looking) + self.count(State::Running) < ABREAST
    }

    fn count(&self, state: State) -> usize {
        self.calls.iter().filter(|(_, it)| *it == state).count()
    }

    /// No earlier call without a result stands in its way, and no later one that has begun.
    fn is_free(&self, call: usize) -> bool {
        let effects = &self.calls[call].0;
        !self.calls.iter().enumerate().any(|(other, (touched, state))| {
            let counts = match state {
                State::Settled => false,
                State::Waiting => other < call,
                State::Looking | State::Queued | State::Running => other != call,
            };
            counts && conflict(touched, effects)
        })
    }
}

/// Whether two calls must not run side by side.
pub(super) fn conflict(some: &[Effect], others: &[Effect]) -> bool {
    some.iter().any(|one| others.iter().any(|other| clash(one, other)))
}

fn clash(one: &Effect, other: &Effect) -> bool {
    use Effect::{Delete, Exec, Fetch, Input, Read, Remote, Session, Signal, Write};
    match (one, other) {
        (Fetch { .. } | Signal { .. } | Session, _)
        | (_, Fetch { .. } | Signal { .. } | Session) => false,
        // Nobody knows what a command touches, or a server.
        (Exec(_) | Input { .. } | Remote(_), _) | (_, Exec(_) | Input { .. } | Remote(_)) => true,
        (Read(_), Read(_)) => false,
        // A folder is all that lies in it.
        (Read(one) | Write(one) | Delete(one), Read(other) | Write(other) | Delete(other)) => {
            one.path.starts_with(&other.path) || other.path.starts_with(&one.path)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use turnwright_types::effect::{Command, Place, Target};

    fn effect(text: &str) -> Effect {
        let (verb, object) = text.split_once(' ').unwrap_or((text, ""));
        let target = Target { path: object.into(), place: Place::Inside };
        match verb {
            "read" => Effect::Read(target),
            "write" => Effect::Write(target),
            "delete" => Effect::Delete(target),
            "exec" => Effect::Exec(Box::new(Command::new(object, "/w"))),
            "input" => Effect::Input { job: object.to_owned(), is_open: false },
            "fetch" => Effect::Fetch { host: object.to_owned() },
            _ => Effect::Session,
        }
    }

    /// Those of these calls that begin at once, as digits.
    fn beginning(calls: &[&str]) -> String {
        let mut schedule = Schedule::default();
        for call in calls {
            schedule.push(call.split(" & ").map(effect).collect());
        }
        let mut begun = String::new();
        while let Some(next) = schedule.next() {
            schedule.set(next, State::Running);
            begun.push_str(&next.to_string());
        }
        begun
    }

    #[test]
    fn calls_wait_for_earlier_ones_that_they_could_disturb() {
        for (calls, begun) in [
            (&["read /w/a", "read /w/a", "read /w"][..], "012"),
            (&["read /w/a", "write /w/b", "read /w/c"], "012"),
            (&["write /w/a", "write /w/b", "delete /w/c"], "012"),
            (&["write /w/a", "read /w/a", "read /w/b"], "02"),
            (&["read /w/a", "write /w/a", "read /w/a"], "0"),
            (&["read /w", "write /w/a/b"], "0"),
            (&["delete /w/a", "read /w/a/b", "write /w/ab"], "02"),
            (&["write /w/a", "exec x", "read /w/b"], "0"),
            (&["exec x", "exec y", "fetch h", "session"], "023"),
            (&["exec x", "input p1"], "0"),
            (&["fetch h", "fetch h", "session", "exec x", "fetch h"], "01234"),
            (&["read /w/a & write /w/b", "read /w/b", "read /w/a"], "02"),
            (&["write /w/a", "read /w/a", "write /w/a"], "0"),
            (&["session"; 10], "01234567"),
        ] {
            assert_eq!(beginning(calls), begun, "{calls:?}");
        }
    }

    #[test]
    fn many_questions_hold_up_more_of_them_but_not_what_is_at_work() {
        let mut schedule = Schedule::default();
        (0..20).for_each(|_| schedule.push(vec![Effect::Session]));
        for call in 0..ABREAST {
            assert_eq!(schedule.next(), Some(call));
            schedule.set(call, State::Queued);
        }
        assert_eq!(schedule.next(), None);
        schedule.set(0, State::Running);
        assert_eq!(schedule.next(), Some(8));
    }

    #[test]
    fn questions_keep_the_order_of_the_calls() {
        let mut schedule = Schedule::default();
        (0..2).for_each(|_| schedule.push(vec![Effect::Session]));
        schedule.set(0, State::Looking);
        schedule.set(1, State::Queued);
        assert!(!schedule.may_ask(1));
        schedule.set(0, State::Queued);
        assert!(schedule.may_ask(0) && schedule.may_ask(1));
    }

    #[test]
    fn a_call_that_turns_out_to_touch_something_else_waits_again() {
        let mut schedule = Schedule::default();
        schedule.push(vec![effect("read /w/a")]);
        schedule.push(vec![effect("write /w/b")]);
        schedule.set(0, State::Running);
        schedule.set(1, State::Looking);
        assert!(!schedule.admit(1, &[effect("write /w/a")]));
        assert_eq!(schedule.next(), None);
        schedule.set(0, State::Settled);
        assert_eq!(schedule.next(), Some(1));
    }

    proptest! {
        /// However the calls go on, each has its turn, none beside one that it conflicts with,
        /// and of two that conflict the earlier first.
        #[test]
        fn each_call_has_its_turn(
            calls in prop::collection::vec("(read|write|delete) /w(/[ab]){0,2}|exec x|input p|fetch h|session", 0..16),
            order in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let effects: Vec<Vec<Effect>> = calls.iter().map(|it| vec![effect(it)]).collect();
            let mut schedule = Schedule::default();
            for effects in &effects {
                schedule.push(effects.clone());
            }
            let (mut at_work, mut settled) = (Vec::<usize>::new(), Vec::<usize>::new());
            for choice in order {
                while let Some(next) = schedule.next() {
                    for other in &at_work {
                        prop_assert!(!conflict(&effects[next], &effects[*other]));
                    }
                    for earlier in 0..next {
                        let free = settled.contains(&earlier) || !conflict(&effects[next], &effects[earlier]);
                        prop_assert!(free);
                    }
                    schedule.set(next, State::Running);
                    at_work.push(next);
                    prop_assert!(at_work.len() <= ABREAST);
                }
                if at_work.is_empty() {
                    break;
                }
                let call = at_work.remove(choice.index(at_work.len()));
                schedule.set(call, State::Settled);
                settled.push(call);
            }
            prop_assert_eq!(settled.len(), calls.len());
        }
    }
}
