//! Calls that come one by one, from several sides: each waits for the earlier ones that it could
//! disturb, by the same rule as the calls of one answer ([`super::schedule`]).

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::schedule::{ABREAST, conflict};
use turnwright_types::effect::Effect;

/// Those that wait or run, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Floor {
    // A std mutex: held to look at a short list.
    line: Mutex<Line>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Line {
    last: u64,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    number: u64,
    effects: Vec<Effect>,
    has_begun: bool,
}

impl Floor {
    /// Takes the last place in the line.
    pub(super) fn line_up(&self, effects: Vec<Effect>) -> Place<'_> {
        let mut line = self.lock();
        line.last += 1;
        let number = line.last;
        line.calls.push(Call { number, effects, has_begun: false });
        Place { floor: self, number }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn is_free(&self, number: u64) -> bool {
        let Some(own) = self.calls.iter().find(|it| it.number == number) else { return false };
        let is_in_the_way = |it: &&Call| {
            it.number != number
                && (it.has_begun || it.number < number)
                && conflict(&it.effects, &own.effects)
        };
        !self.calls.iter().any(|it| is_in_the_way(&it))
    }

    fn begin(&mut self, number: u64) -> bool {
        let has_room = self.calls.iter().filter(|it| it.has_begun).count() < ABREAST;
        let begins = has_room && self.is_free(number);
        self.set(number, begins);
        begins
    }

    fn set(&mut self, number: u64, has_begun: bool) {
        let own = self.calls.iter_mut().filter(|it| it.number == number);
        own.for_each(|it| it.has_begun = has_begun);
    }
}

/// A place in the line, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    floor: &'a Floor,
    number: u64,
}

impl Place<'_> {
    /// Waits until the call may begin.
    pub(super) async fn admitted(&self) {
        loop {
            let changed = self.floor.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.floor.lock().begin(self.number) {
                return;
            }
            changed.await;
        }
    }

    /// What the call touches was looked up once more. Returns whether it may go on; if not, it is
    /// to wait again.
    pub(super) fn still_fits(&self, effects: &[Effect]) -> bool {
        let mut line = self.floor.lock();
        let own = line.calls.iter_mut().filter(|it| it.number == self.number);
        own.for_each(|it| effects.clone_into(&mut it.effects));
        let fits = line.is_free(self.number);
        line.set(self.number, fits);
        fits
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.floor.lock().calls.retain(|it| it.number != self.number);
        self.floor.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use turnwright_types::effect::{Place as Where, Target};

    fn write(path: &str) -> Vec<Effect> {
        vec![Effect::Write(Target { path: path.into(), place: Where::Inside })]
    }

    fn may_begin(place: &Place<'_>) -> bool {
        place.admitted().now_or_never().is_some()
    }

    #[test]
    fn calls_wait_for_earlier_ones_that_they_could_disturb_and_for_no_others() {
        let floor = Floor::default();
        let first = floor.line_up(write("/w/a"));
        let same = floor.line_up(write("/w/a"));
        let other = floor.line_up(write("/w/b"));
        assert!(may_begin(&first) && !may_begin(&same) && may_begin(&other));
        drop(first);
        assert!(may_begin(&same));
        assert!(!same.still_fits(&write("/w/b")));
        drop(other);
        assert!(may_begin(&same));
    }

    #[test]
    fn no_more_than_a_few_run_side_by_side() {
        let floor = Floor::default();
        let places: Vec<_> = (0..=ABREAST).map(|_| floor.line_up(Vec::new())).collect();
        assert_eq!(places.iter().filter(|it| may_begin(it)).count(), ABREAST);
    }
}
