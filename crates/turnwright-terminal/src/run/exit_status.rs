//! How a turn, and with it the program, has ended; and Ctrl-C, and the signals by which the system ends the program.

use std::io;
use std::process::ExitCode;

/// How a turn has ended. The number is the exit status; `docs/run.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// The model has said all that it wanted to say.
    Done = 0,
    /// The program could not work: no session, a stored session that is open elsewhere, a bug.
    Failed = 1,
    /// The arguments or the settings cannot be used, or there is no model.
    Unusable = 2,
    /// The model did not answer.
    ModelFailed = 3,
    /// The model has refused.
    Refused = 4,
    /// The answer was cut off, or a limit of tokens is reached.
    TokenLimit = 5,
    /// A limit of requests, cost or time is reached, the model went round in circles, or a goal is not met. The agent
    /// has said which.
    Unfinished = 6,
    /// The user has cancelled the turn, or reads the output no longer.
    Cancelled = 130,
    /// The system ends the program (SIGTERM).
    Terminated = 143,
}

/// The exit status if arguments or settings cannot be used.
pub const UNUSABLE: u8 = TurnEnd::Unusable as u8;

impl TurnEnd {
    pub(super) fn of_stop_reason(reason: &str) -> TurnEnd {
        match reason {
            "end_turn" => TurnEnd::Done,
            "refusal" => TurnEnd::Refused,
            "max_tokens" => TurnEnd::TokenLimit,
            "max_turn_requests" => TurnEnd::Unfinished,
            "cancelled" => TurnEnd::Cancelled,
            _ => TurnEnd::Failed,
        }
    }

    /// The end that an error means, by the kind that the agent names in its data.
    pub(super) fn of_error(kind: &str) -> TurnEnd {
        match kind {
            "params" | "sign_in" | "auth" | "model_not_found" | "url_not_found" => {
                TurnEnd::Unusable
            }
            "refused" => TurnEnd::Refused,
            "not_found" | "bad_moment" | "internal" | "" => TurnEnd::Failed,
            "cancelled" => TurnEnd::Cancelled,
            _ => TurnEnd::ModelFailed,
        }
    }

    /// The sentence about it when the turn is over; `None` if there is nothing to say.
    pub(super) fn note(self) -> Option<&'static str> {
        match self {
            TurnEnd::Refused => Some("The model has refused."),
            TurnEnd::TokenLimit => Some("Stopped: a limit of tokens is reached."),
            TurnEnd::Unfinished => Some("Stopped before the work was done."),
            TurnEnd::Cancelled => Some("Cancelled."),
            TurnEnd::Terminated => Some("Terminated."),
            TurnEnd::Done | TurnEnd::Failed | TurnEnd::Unusable | TurnEnd::ModelFailed => None,
        }
    }

    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// The signals that have arrived. As long as it lives, they do not end the process.
pub(super) struct StopSignals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    /// `None` if it is ignored, as under `nohup`.
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
    #[cfg(windows)]
    interrupt_at_once: tokio::signal::windows::CtrlBreak,
    #[cfg(windows)]
    close: tokio::signal::windows::CtrlClose,
    #[cfg(windows)]
    shutdown: tokio::signal::windows::CtrlShutdown,
}

impl StopSignals {
    /// Must be called on the runtime.
    pub(super) fn listen() -> io::Result<StopSignals> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(StopSignals {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: if turnwright_rpc::is_hangup_ignored() {
                    None
                } else {
                    Some(signal(SignalKind::hangup())?)
                },
            })
        }
        #[cfg(windows)]
        {
            use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};
            Ok(StopSignals {
                interrupt: ctrl_c()?,
                interrupt_at_once: ctrl_break()?,
                close: ctrl_close()?,
                shutdown: ctrl_shutdown()?,
            })
        }
    }

    /// Waits for the next signal. Returns the end that it means: `Cancelled` for Ctrl-C, and `Terminated` for
    /// SIGTERM, or if the terminal was closed or the user logs out.
    pub(super) async fn next(&mut self) -> TurnEnd {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => TurnEnd::Terminated,
            Some(()) = async { self.hangup.as_mut()?.recv().await } => TurnEnd::Terminated,
            _ = self.interrupt.recv() => TurnEnd::Cancelled,
        }
        #[cfg(windows)]
        tokio::select! {
            _ = self.interrupt_at_once.recv() => TurnEnd::Terminated,
            _ = self.close.recv() => TurnEnd::Terminated,
            _ = self.shutdown.recv() => TurnEnd::Terminated,
            _ = self.interrupt.recv() => TurnEnd::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_status_and_its_row_in_the_docs() {
        let documented = include_str!("../../../../docs/run.md");
        for (end, status) in [
            (TurnEnd::of_stop_reason("end_turn"), 0),
            (TurnEnd::of_error("internal"), 1),
            (TurnEnd::of_error("not_found"), 1),
            (TurnEnd::of_error("params"), 2),
            (TurnEnd::of_error("sign_in"), 2),
            (TurnEnd::of_error("auth"), 2),
            (TurnEnd::of_error("unavailable"), 3),
            (TurnEnd::of_stop_reason("refusal"), 4),
            (TurnEnd::of_stop_reason("max_tokens"), 5),
            (TurnEnd::of_stop_reason("max_turn_requests"), 6),
            (TurnEnd::of_stop_reason("cancelled"), 130),
            (TurnEnd::of_stop_reason("something new"), 1),
            (TurnEnd::Terminated, 143),
        ] {
            assert_eq!(end as u8, status, "{end:?}");
            assert!(documented.contains(&format!("\n| {status} |")), "{status} is documented");
        }
        // It is also the end of a goal that could not begin.
        let note = TurnEnd::of_stop_reason("max_turn_requests").note();
        assert_eq!(note, Some("Stopped before the work was done."));
    }
}
