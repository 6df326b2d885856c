//! Who may do what: a pure decision, what is remembered of answers (in the session, in the project's
//! book), what was decided (the audit), and the pass without which no tool runs.

mod ask;
mod glob;
mod audit;
mod book;
mod closed;
mod decision;
mod describe;
mod grants;
mod lasting;
mod law;
mod load;
mod mode;
mod parse;
mod policy;
mod protected;
mod rule;
mod words;
mod store;

use std::path::PathBuf;

use turnwright_types::effect::{Effect, Reach};

pub use ask::{Asked, Settled};
pub use audit::{ALLOWED_ONCE, Audit, Entry as AuditEntry, Event as AuditEvent};
pub use book::{Book, BookError, Entry as BookEntry, Kept, MOST_RULES, Page};
pub use closed::Closed;
pub use decision::{Decision, Finding, Verdict, Why};
pub use describe::{Explained, code, explain, in_words, plain, reason, word};
pub use glob::Glob;
pub use grants::Grants;
pub use lasting::pattern_of;
pub use law::Law;
pub use load::{Draft, Loaded, Site, load, unreadable};
pub use mode::{Mode, SharedMode};
pub use policy::decide;
pub use protected::Protected;
pub use rule::{Ground, Pattern, Rule, Scope, Tier};

/// Proof that a call was judged and allowed. Only this module makes one, so a tool cannot run
/// unjudged. It holds what was allowed, and the tool touches nothing else.
#[derive(Debug)]
pub struct Pass {
    effects: Vec<Effect>,
    confinement: Confinement,
    only_reads: bool,
    closed: Closed,
}

impl Pass {
    /// What is allowed.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// What a command of this call is kept to.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// What a way through an allowed folder passes by.
    pub fn closed(&self) -> &Closed {
        &self.closed
    }

    /// Whether nobody was asked, because it only reads.
    pub fn only_reads(&self) -> bool {
        self.only_reads
    }

    fn new(law: &Law, mode: Mode, decision: &Decision, effects: Vec<Effect>) -> Pass {
        let confinement = Confinement::of(law, mode, decision, &effects);
        let closed = Closed::of(law, &effects);
        Pass { effects, confinement, only_reads: decision.only_reads(), closed }
    }
}

/// What a command is kept to while it runs. Whatever was thought of its words, this holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Nothing: the user wants it so, or the machine cannot.
    Open,
    /// The sandbox.
    Shut {
        /// It may change the session's folders; else nothing but what stands in `write`.
        may_write: bool,
        /// It may use the network.
        network: bool,
        /// What it may change besides, real paths.
        write: Vec<PathBuf>,
    },
}

impl Confinement {
    fn of(law: &Law, mode: Mode, decision: &Decision, effects: &[Effect]) -> Confinement {
        let is_open = |it: &Effect| matches!(it, Effect::Exec(it) if it.reach == Reach::Full);
        if mode == Mode::Full || !law.can_confine || effects.iter().any(is_open) {
            return Confinement::Open;
        }
        let mut write = Vec::new();
        let mut network = false;
        for effect in effects {
            match effect {
                Effect::Write(target) => write.push(target.path.clone()),
                Effect::Exec(command) => match &command.reach {
                    Reach::Network => network = true,
                    Reach::Write(target) => write.push(target.path.clone()),
                    Reach::Usual | Reach::Full => {}
                },
                _ => {}
            }
        }
        // What was let through because it only reads gets nothing to write: if that was a mistake,
        // it is a harmless one.
        let may_write = mode != Mode::Plan && !decision.only_reads();
        Confinement::Shut { may_write, network, write }
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

/// Judges a call by what it may touch.
pub fn judge(law: &Law, mode: Mode, grants: &Grants, effects: Vec<Effect>) -> Gate {
    let decision = decide(law, mode, grants, &effects);
    match decision.verdict() {
        Verdict::Allow => Gate::Open(Pass::new(law, mode, &decision, effects)),
        Verdict::Ask => Gate::Ask(Asked::new(law, mode, grants, effects, decision)),
        Verdict::Deny => Gate::Closed(ask::refusal(&decision, mode)),
    }
}
