//! What is thought of a call: a verdict about each of its parts, and what has decided.

use super::rule::Rule;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Run it.
    Allow,
    /// Ask first.
    Ask,
    /// Do not run it.
    Deny,
}

/// What has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It touches nothing.
    Session,
    /// It would ruin the system or what guards it.
    Catastrophe(&'static str),
    /// The user has said no to exactly this in this session.
    Rejected,
    /// A rule.
    Rule(Rule),
    /// An answer of this session.
    Granted(String),
    /// It only reads, in the project.
    OnlyReads,
    /// What the mode says about things of this sort.
    Mode,
    /// It is too long to be judged.
    TooLong,
    /// Its words do not tell all that it does.
    Doubt(String),
    /// It destroys something for good.
    Danger(&'static str),
    /// It wants more than the sandbox leaves it.
    Escalation,
    /// Somebody else runs or obeys what it changes.
    Protected(&'static str),
    /// It is likely to hold keys or passwords.
    Secret,
    /// It lies outside of the session's folders.
    Outside,
    /// The mode would let it run in the sandbox, and there is none.
    NoSandbox,
    /// It is not any more what was allowed.
    Changed,
}

/// What is thought of one effect, or of one simple command of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which effect, by its place.
    pub effect: usize,
    /// Which simple command of it, by its place, if it is about one.
    pub simple: Option<usize>,
    /// What is to be done.
    pub verdict: Verdict,
    /// What has decided.
    pub why: Why,
}

/// What is thought of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Everything that was looked at.
    pub findings: Vec<Finding>,
}

impl Decision {
    /// The strictest verdict counts. What touches nothing needs no permission.
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Allow)
    }

    /// The first of the findings that have decided.
    pub fn strictest(&self) -> Option<&Finding> {
        let verdict = self.verdict();
        self.findings.iter().find(|it| it.verdict == verdict)
    }

    /// Whether nothing in it does more than read.
    pub fn only_reads(&self) -> bool {
        self.findings.iter().all(|it| it.verdict == Verdict::Allow && it.why == Why::OnlyReads)
    }
}
