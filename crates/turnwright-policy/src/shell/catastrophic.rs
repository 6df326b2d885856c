//! Commands that would stop the whole system. They are never run, whatever the mode and the rules say. The
//! list is short, because a wrong entry cannot be overridden.

use super::args::{Args, operands};
use super::programs::is_in;

pub(super) const SHUTDOWN: &str = "shuts down the machine";

/// `shutdown`, `reboot` and the like.
pub(super) fn shuts_down(words: Args<'_>) -> Option<&'static str> {
    (!asks_help(words)).then_some(SHUTDOWN)
}

/// `init 0`.
pub(super) fn ends_run_level(words: Args<'_>) -> Option<&'static str> {
    let mut operands = operands(words);
    let is_end = operands.next().is_some_and(|word| ["0", "6"].contains(&word.text.as_str()));
    (is_end && operands.next().is_none()).then_some(SHUTDOWN)
}

/// `systemctl poweroff`.
pub(super) fn stops_system(words: Args<'_>) -> Option<&'static str> {
    let stops = "poweroff reboot halt kexec soft-reboot suspend hibernate";
    let mut operands = operands(words).map(|word| word.text.as_str());
    let isolates = operands.clone().nth(1).and_then(|word| word.strip_suffix(".target"));
    let is_end = operands.next().is_some_and(|word| {
        is_in(stops, word)
            || is_in("isolate start", word) && isolates.is_some_and(|target| is_in(stops, target))
    });
    is_end.then_some(SHUTDOWN)
}

/// Also true for `shutdown -c`, which cancels one.
fn asks_help(words: Args<'_>) -> bool {
    words.first().is_some_and(|word| is_in("--help --version -c", &word.text))
}

/// True for `kill -9 -1`, `kill -s KILL -1` and `kill -- -1`. In `kill -1 7`, `-1` is a signal
/// number.
pub(super) fn kills_all_processes(words: Args<'_>) -> Option<&'static str> {
    let mut rest = words.iter().map(|word| word.text.as_str()).peekable();
    let takes_value =
        rest.next_if(|word| word.starts_with('-') && *word != "--").is_some_and(|option| {
            // These take the signal as the next word.
            ["-s", "-n", "--signal"].contains(&option)
        });
    if takes_value {
        rest.next();
    }
    rest.any(|word| word == "-1").then_some("kills every process")
}
