//! A decision: a verdict on each part of a call, with its reason.

use std::path::PathBuf;

use super::rule::Rule;
use turnwright_types::effect::Effect;

/// The verdict on something that is to be done. Later ones are stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// The user has to be asked first.
    Ask,
    /// It must not be done.
    Deny,
}

/// The reason for a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It affects nothing outside the session.
    SessionOnly,
    /// It would destroy the system. The text completes a sentence that begins with "it".
    Catastrophic(&'static str),
    /// The user has rejected exactly this in this session.
    Rejected,
    /// A rule matches.
    Rule(Rule),
    /// The user has allowed it in this session. The text is the pattern.
    Granted(String),
    /// The user has allowed this access for the session.
    GrantedAccess(String),
    /// It only reads, in the session's folders.
    ReadOnly,
    /// The default of the mode.
    Mode,
    /// The command line is too long to be judged.
    TooLong,
    /// The words of the command line do not say everything that it does. The text says why.
    Ambiguous(String),
    /// It destroys something irrecoverably, or publishes something. The text completes a sentence
    /// that begins with "it".
    Destructive(&'static str),
    /// It asks for more access than the sandbox gives.
    Escalation,
    /// It fails without the network, which it gets if the user allows it.
    Network,
    /// It may sign, as the user has allowed for the session.
    Signing,
    /// It changes a file that other programs run or obey. The text says which.
    ProtectedPath(&'static str),
    /// It reads a file that is likely to hold keys or passwords.
    SecretPath,
    /// It touches a path outside the session's folders.
    OutsideWorkspace,
    /// The mode would allow it in the sandbox, but there is none.
    NoSandbox,
    /// The tool has changed since the user allowed it.
    ToolChanged,
}

/// The verdict on one effect, or on one simple command of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The index of the effect.
    pub effect_index: usize,
    /// The index of the simple command in the line, if the finding is about one.
    pub command_index: Option<usize>,
    /// The file of a command that the finding is about.
    pub path: Option<PathBuf>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for it.
    pub reason: Reason,
}

impl Finding {
    /// Returns true if it gives a command more access than the sandbox, and does not permit it to run.
    pub(super) fn gives_access(&self) -> bool {
        self.verdict == Verdict::Allow
            && matches!(self.reason, Reason::Network | Reason::Signing | Reason::GrantedAccess(_))
    }
}

/// The decision about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// A verdict on everything that was looked at.
    pub findings: Vec<Finding>,
}

impl Decision {
    /// The strictest verdict of all findings. A call without effects is allowed.
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Allow)
    }

    /// The first finding with the strictest verdict.
    pub fn strictest(&self) -> Option<&Finding> {
        let verdict = self.verdict();
        self.findings.iter().find(|finding| finding.verdict == verdict)
    }

    /// Returns true if a command gets the network that it needs, because the user is asked about that or has allowed it for
    /// the session.
    pub(super) fn opens_network(&self) -> bool {
        self.findings.iter().any(|finding| finding.reason == Reason::Network)
    }

    /// Returns true if a command of git may sign although it does not ask for that.
    pub(super) fn opens_signing(&self) -> bool {
        self.findings.iter().any(|finding| finding.reason == Reason::Signing)
    }

    /// Returns true if everything is allowed without a question, and the command because it only reads. What it prints may
    /// go to files.
    pub(super) fn runs_only_readers(&self, effects: &[Effect]) -> bool {
        let mut of_command = self
            .findings
            .iter()
            .filter(|finding| matches!(effects.get(finding.effect_index), Some(Effect::Exec(_))));
        self.verdict() == Verdict::Allow
            && of_command.clone().next().is_some()
            && of_command.all(|finding| {
                // More access does not make a reader do more.
                matches!(finding.reason, Reason::ReadOnly | Reason::GrantedAccess(_))
            })
    }

    /// True if everything is allowed because it only reads.
    pub fn is_read_only(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.verdict == Verdict::Allow && finding.reason == Reason::ReadOnly)
    }
}
