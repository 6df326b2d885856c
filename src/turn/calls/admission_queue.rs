//! Admits tool calls: each waits for the earlier calls that it could affect, a bounded number runs
//! at a time, and the user is asked about one call at a time. The turns of a session and its helpers
//! share a queue, and so do the calls of MCP clients. The effects of calls decide, never the names of the tools.

use std::sync::Arc;

use tokio::sync::watch;

use turnwright_types::effect::Effect;

/// The most calls that run concurrently, and the most that may wait for the user's answer, each
/// holding the change that it would make.
pub(super) const MAX_CONCURRENT_CALLS: usize = 8;

/// The calls that wait or run, in the order of their arrival. Those that wait see each change.
#[derive(Debug, Default)]
pub(crate) struct AdmissionQueue(watch::Sender<QueuedCalls>);

impl AdmissionQueue {
    /// Adds a call to the end of the queue.
    pub(in crate::turn) fn enqueue(self: &Arc<Self>, effects: Vec<Effect>) -> AdmissionTicket {
        let mut number = 0;
        self.0.send_modify(|calls| number = calls.push(effects));
        AdmissionTicket { queue: Arc::clone(self), number }
    }
}

/// A call's place in the queue. Dropping it removes the call.
#[derive(Debug)]
pub(in crate::turn) struct AdmissionTicket {
    queue: Arc<AdmissionQueue>,
    number: u64,
}

impl AdmissionTicket {
    /// Waits until the call may start. Returns true if it had to wait, in which case an earlier call
    /// may have changed where its paths lead.
    pub(super) async fn wait_for_admission(&self) -> bool {
        self.wait_until(|calls| calls.try_start(self.number)).await
    }

    /// Replaces the call's effects, after its paths were resolved again. Returns true if it may
    /// continue; if not, it has to wait for admission again.
    pub(super) fn readmit(&self, effects: &[Effect]) -> bool {
        !self.queue.0.send_if_modified(|calls| !calls.readmit(self.number, effects))
    }

    /// Waits until the user may be asked about the call.
    pub(super) async fn wait_to_ask(&self) {
        self.set(CallState::AwaitingAnswer);
        self.wait_until(|calls| calls.try_ask(self.number)).await;
    }

    /// The call runs from now on; the user can be asked about the next one. A call that runs other calls
    /// must not take their room.
    pub(super) fn start_running(&self, runs_calls: bool) {
        self.set(if runs_calls { CallState::RunningCalls } else { CallState::Running });
    }

    fn set(&self, state: CallState) {
        self.queue.0.send_modify(|calls| calls.set(self.number, state));
    }

    /// Waits until `holds` returns true. Returns false if it did so at once.
    async fn wait_until(&self, mut holds: impl FnMut(&mut QueuedCalls) -> bool) -> bool {
        let mut changes = self.queue.0.subscribe();
        let mut has_waited = false;
        while !self.queue.0.send_if_modified(&mut holds) {
            has_waited = true;
            // The queue is there as long as the ticket.
            changes.changed().await.ok();
        }
        has_waited
    }
}

impl Drop for AdmissionTicket {
    fn drop(&mut self) {
        self.queue.0.send_modify(|calls| calls.remove(self.number));
    }
}

/// The state of the queue. Its methods decide and never wait.
#[derive(Debug, Default)]
struct QueuedCalls {
    last_number: u64,
    calls: Vec<QueuedCall>,
}

#[derive(Debug)]
struct QueuedCall {
    number: u64,
    effects: Vec<Effect>,
    state: CallState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// It has not started.
    Waiting,
    /// The tool is finding out what the call would do.
    Previewing,
    /// The user will be asked about it.
    AwaitingAnswer,
    /// The user is being asked about it.
    Asking,
    Running,
    /// It runs, and its work is other calls.
    RunningCalls,
}

impl QueuedCalls {
    fn push(&mut self, effects: Vec<Effect>) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.calls.push(QueuedCall { number, effects, state: CallState::Waiting });
        number
    }

    fn set(&mut self, number: u64, state: CallState) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.number == number) {
            call.state = state;
        }
    }

    fn remove(&mut self, number: u64) {
        self.calls.retain(|call| call.number != number);
    }

    /// The first call that may start now.
    fn next(&self) -> Option<u64> {
        let has_room =
            self.has_room() && self.count_in(CallState::AwaitingAnswer) < MAX_CONCURRENT_CALLS;
        if !has_room {
            return None;
        }
        let mut waiting = self.calls.iter().filter(|call| call.state == CallState::Waiting);
        waiting.find(|call| self.is_free(call)).map(|call| call.number)
    }

    fn try_start(&mut self, number: u64) -> bool {
        let starts = self.next() == Some(number);
        if starts {
            self.set(number, CallState::Previewing);
        }
        starts
    }

    fn readmit(&mut self, number: u64, effects: &[Effect]) -> bool {
        let Some(place) = self.calls.iter().position(|call| call.number == number) else {
            return false;
        };
        effects.clone_into(&mut self.calls[place].effects);
        let is_free = self.is_free(&self.calls[place]);
        if !is_free {
            self.calls[place].state = CallState::Waiting;
        }
        is_free
    }

    /// Questions are asked one at a time, because the answer to one may decide the next call, and in the order
    /// of the calls as far as possible.
    fn try_ask(&mut self, number: u64) -> bool {
        let is_too_early = self.calls.iter().any(|call| match call.state {
            CallState::Asking => true,
            CallState::Previewing | CallState::AwaitingAnswer => call.number < number,
            CallState::Waiting | CallState::Running | CallState::RunningCalls => false,
        });
        let asks = self.has_room() && !is_too_early;
        if asks {
            self.set(number, CallState::Asking);
        }
        asks
    }

    fn has_room(&self) -> bool {
        let started = [CallState::Previewing, CallState::Asking, CallState::Running];
        started.into_iter().map(|state| self.count_in(state)).sum::<usize>() < MAX_CONCURRENT_CALLS
    }

    fn count_in(&self, state: CallState) -> usize {
        self.calls.iter().filter(|call| call.state == state).count()
    }

    /// True if no earlier call and no started call conflicts with it.
    fn is_free(&self, call: &QueuedCall) -> bool {
        !self.calls.iter().any(|other| {
            let counts = other.number != call.number
                && (other.state != CallState::Waiting || other.number < call.number);
            counts && conflicts(&other.effects, &call.effects)
        })
    }
}

/// Returns true if two calls must not run concurrently.
fn conflicts(some: &[Effect], others: &[Effect]) -> bool {
    some.iter().any(|one| others.iter().any(|other| effects_conflict(one, other)))
}

fn effects_conflict(one: &Effect, other: &Effect) -> bool {
    use Effect::{Delete, Exec, Fetch, Input, Read, Remote, Search, SessionState, Signal, Write};
    match (one, other) {
        (Fetch { .. } | Search { .. } | Signal { .. } | SessionState, _)
        | (_, Fetch { .. } | Search { .. } | Signal { .. } | SessionState) => false,
        // A command or a remote tool may touch anything.
        (Exec(_) | Input { .. } | Remote(_), _) | (_, Exec(_) | Input { .. } | Remote(_)) => true,
        (Read(_), Read(_)) => false,
        // A folder stands for everything in it.
        (Read(one) | Write(one) | Delete(one), Read(other) | Write(other) | Delete(other)) => {
            one.path.starts_with(&other.path) || other.path.starts_with(&one.path)
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use turnwright_policy::shell;
    use turnwright_types::effect::{PathScope, ResolvedPath};
    use turnwright_types::shell_script::ShellDialect;

    fn effect(text: &str) -> Effect {
        let (verb, object) = text.split_once(' ').unwrap_or((text, ""));
        let target = ResolvedPath { path: object.into(), scope: PathScope::Workspace };
        match verb {
            "read" => Effect::Read(target),
            "write" => Effect::Write(target),
            "delete" => Effect::Delete(target),
            "exec" => Effect::Exec(Box::new(shell::command(object, "/w", ShellDialect::Bash))),
            "input" => Effect::Input {
                job: object.to_owned(),
                is_unsandboxed: false,
                has_extra_access: false,
            },
            "fetch" => Effect::Fetch { host: object.to_owned() },
            _ => Effect::SessionState,
        }
    }

    fn queue(calls: &[&str]) -> QueuedCalls {
        let mut queue = QueuedCalls::default();
        for call in calls {
            queue.push(call.split(" & ").map(effect).collect());
        }
        queue
    }

    /// The indices of the calls that may start at once, as digits.
    fn starting(calls: &[&str]) -> String {
        let mut queue = queue(calls);
        let mut started = String::new();
        while let Some(next) = queue.next() {
            queue.set(next, CallState::Running);
            started.push_str(&(next - 1).to_string());
        }
        started
    }

    #[test]
    fn calls_wait_for_earlier_calls_that_conflict() {
        for (calls, started) in [
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
            assert_eq!(starting(calls), started, "{calls:?}");
        }
    }

    #[test]
    fn queued_questions_are_bounded_but_do_not_block_running_calls() {
        let mut queue = queue(&["session"; 20]);
        for number in 1..=MAX_CONCURRENT_CALLS as u64 {
            assert_eq!(queue.next(), Some(number));
            queue.set(number, CallState::AwaitingAnswer);
        }
        assert_eq!(queue.next(), None);
        queue.set(1, CallState::Running);
        assert_eq!(queue.next(), Some(9));
    }

    #[test]
    fn questions_keep_the_order_of_the_calls_and_come_one_at_a_time() {
        let mut queue = queue(&["session"; 2]);
        queue.set(1, CallState::Previewing);
        queue.set(2, CallState::AwaitingAnswer);
        assert!(!queue.try_ask(2));
        queue.set(1, CallState::AwaitingAnswer);
        assert!(!queue.try_ask(2) && queue.try_ask(1) && !queue.try_ask(2));
        queue.set(1, CallState::Running);
        assert!(queue.try_ask(2));
    }

    #[test]
    fn a_call_whose_effects_change_waits_again() {
        let mut queue = queue(&["read /w/a", "write /w/b"]);
        queue.set(1, CallState::Running);
        queue.set(2, CallState::Previewing);
        assert!(!queue.readmit(2, &[effect("write /w/a")]));
        assert_eq!(queue.next(), None);
        queue.remove(1);
        assert_eq!(queue.next(), Some(2));
    }

    #[test]
    fn a_dropped_ticket_admits_the_calls_that_waited_for_it() {
        let queue = Arc::new(AdmissionQueue::default());
        let write = |path| vec![effect(&format!("write {path}"))];
        let tickets = ["/w/a", "/w/a", "/w/b"].map(|path| queue.enqueue(write(path)));
        let [first, same, other] = tickets;
        let starts = |ticket: &AdmissionTicket| ticket.wait_for_admission().now_or_never();
        assert_eq!(
            (starts(&first), starts(&same), starts(&other)),
            (Some(false), None, Some(false))
        );
        drop(first);
        assert!(starts(&same).is_some());
        assert!(!same.readmit(&write("/w/b")));
        drop(other);
        assert!(starts(&same).is_some());
    }

    proptest! {
        /// In every order of completion, each call starts eventually, never beside a call that it
        /// conflicts with, and of two conflicting calls the earlier starts first.
        #[test]
        fn each_call_starts_in_a_valid_order(
            calls in prop::collection::vec("(read|write|delete) /w(/[ab]){0,2}|exec x|input p|fetch h|session", 0..16),
            order in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let effects: Vec<Vec<Effect>> = calls.iter().map(|call| vec![effect(call)]).collect();
            let mut queue = QueuedCalls::default();
            for effects in &effects {
                queue.push(effects.clone());
            }
            let of = |number: u64| &effects[usize::try_from(number - 1).unwrap()];
            let mut running = Vec::<u64>::new();
            let mut finished = Vec::<u64>::new();
            for choice in order {
                while let Some(next) = queue.next() {
                    for other in &running {
                        prop_assert!(!conflicts(of(next), of(*other)));
                    }
                    for earlier in 1..next {
                        let is_free = finished.contains(&earlier) || !conflicts(of(next), of(earlier));
                        prop_assert!(is_free);
                    }
                    queue.set(next, CallState::Running);
                    running.push(next);
                    prop_assert!(running.len() <= MAX_CONCURRENT_CALLS);
                }
                if running.is_empty() {
                    break;
                }
                let call = running.remove(choice.index(running.len()));
                queue.remove(call);
                finished.push(call);
            }
            prop_assert_eq!(finished.len(), calls.len());
        }
    }
}
