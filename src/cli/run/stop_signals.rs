//! Ctrl-C, and the signals by which the system ends the program.

use std::io;

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, or the terminal was closed, or the user logs out.
    Terminate,
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

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> StopSignal {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            Some(()) = async { self.hangup.as_mut()?.recv().await } => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
        #[cfg(windows)]
        tokio::select! {
            _ = self.interrupt_at_once.recv() => StopSignal::Terminate,
            _ = self.close.recv() => StopSignal::Terminate,
            _ = self.shutdown.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}
