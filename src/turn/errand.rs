//! Calls outside of a conversation: somebody else's model has asked for them. Each is judged, looked
//! at, asked about and run as those of a turn; what it comes to goes back to who has asked. Nothing
//! of it is kept but a line in the audit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::SharedLaw;
use super::act::{CANCELLED, Ready, guarded, located, look_at, question, run, unless_cancelled};
use super::cards::brief;
use super::floor::Floor;
use super::keep;
use turnwright_types::client::{Answer, ChoiceKind};
use turnwright_types::effect::Effect;
use turnwright_types::ids::CallId;
use turnwright_policy::permission::{
    self, Asked, AuditEntry, AuditEvent, Confinement, Gate, Grants, Mode, Pass, SharedMode,
    Verdict, decide,
};
use turnwright_store::Log;
use crate::tools::{AnyTool, Bench, Outcome, ToolCtx};

/// Who runs such calls, and what holds for them.
pub struct Errands {
    bench: Arc<Bench>,
    mode: SharedMode,
    law: SharedLaw,
    // A std mutex: held to judge, never across an await.
    grants: Mutex<Grants>,
    floor: Floor,
    /// The user has one question at a time before them.
    asking: Semaphore,
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Errands").field("bench", &self.bench).finish_non_exhaustive()
    }
}

impl Errands {
    /// With this bench, under this law.
    pub fn new(bench: Bench, mode: SharedMode, law: SharedLaw) -> Errands {
        Errands {
            bench: Arc::new(bench),
            mode,
            law,
            grants: Mutex::default(),
            floor: Floor::default(),
            asking: Semaphore::new(1),
        }
    }

    /// What the tools work with.
    pub fn bench(&self) -> &Arc<Bench> {
        &self.bench
    }

    /// How much may be done without asking.
    pub fn mode(&self) -> Mode {
        self.mode.get()
    }

    /// Runs a call to its outcome. A failure is one too: what is wrong, for whoever has asked.
    pub async fn run(
        &self,
        id: CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        cancel: CancellationToken,
    ) -> Outcome {
        let mut outcome = match self.attempt(id, tool, arguments, cancel).await {
            Ok(outcome) => outcome,
            Err(reason) => Outcome::failed(reason),
        };
        if let Some(news) = self.bench.news() {
            outcome.text.push_str(if outcome.text.ends_with('\n') { "" } else { "\n" });
            outcome.text.push_str(&news);
        }
        outcome
    }

    async fn attempt(
        &self,
        id: CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        cancel: CancellationToken,
    ) -> Result<Outcome, String> {
        let mut ready = located(self.ready(id, tool, arguments, cancel.clone())?).await?;
        let place = self.floor.line_up(effects_of(&ready)?);
        let effects = loop {
            unless_cancelled(&cancel, place.admitted()).await.ok_or(CANCELLED)?;
            // One that ran meanwhile may have changed what its paths mean.
            ready = located(ready).await?;
            let effects = effects_of(&ready)?;
            if place.still_fits(&effects) {
                break effects;
            }
        };
        if let Gate::Closed(reason) = self.judged(&effects) {
            return Err(reason);
        }
        let content = look_at(&mut ready).await?;
        let effects = effects_of(&ready)?;
        let pass = match self.judged(&effects) {
            Gate::Open(pass) => pass,
            Gate::Closed(reason) => return Err(reason),
            Gate::Ask(asked) => {
                let _asking =
                    unless_cancelled(&cancel, self.asking.acquire()).await.ok_or(CANCELLED)?;
                // The answer to the question before may have settled this one.
                let (law, mode) = (self.law.get(), self.mode.get());
                let again = asked.again(&law, mode, &self.grants());
                match again {
                    Gate::Open(pass) => pass,
                    Gate::Closed(reason) => return Err(reason),
                    Gate::Ask(asked) => {
                        let shown = question(&ready, &asked, content, &law, mode);
                        let asking = self.bench.client.ask(shown);
                        let answer = unless_cancelled(&cancel, asking).await;
                        ready.was_asked = true;
                        self.settle(asked, answer.unwrap_or(Answer::Cancelled))?
                    }
                }
            }
        };
        if cancel.is_cancelled() {
            return Err(CANCELLED.to_owned());
        }
        let is_exec = pass.effects().iter().any(|it| matches!(it, Effect::Exec(_)));
        let is_shut = matches!(pass.confinement(), Confinement::Shut { .. });
        self.note(AuditEvent::Ran, pass.effects(), None, is_exec.then_some(is_shut));
        let (outcome, _) = run(ready, pass).await;
        Ok(outcome)
    }

    fn ready(
        &self,
        id: CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        cancel: CancellationToken,
    ) -> Result<Ready, String> {
        let (name, view) = (tool.name().to_owned(), tool.first_view());
        let raw_input = brief(&arguments);
        let prepared = guarded(|| tool.prepare(arguments))??;
        let ctx = ToolCtx { bench: Arc::clone(&self.bench), call: id.clone(), cancel };
        let log = Log::default();
        Ok(Ready { id, name, raw_input, prepared, ctx, view, log, was_asked: false })
    }

    fn judged(&self, effects: &[Effect]) -> Gate {
        let (law, mode) = (self.law.get(), self.mode.get());
        let gate = permission::judge(&law, mode, &self.grants(), effects.to_vec());
        if let Gate::Closed(_) = gate {
            self.note(AuditEvent::Denied, effects, None, None);
        }
        gate
    }

    /// Makes a pass of a clear yes, and of everything else a text that says what would help.
    fn settle(&self, asked: Asked, answer: Answer) -> Result<Pass, String> {
        self.note(AuditEvent::Asked, asked.effects(), Some(&answer), None);
        let hint = match answer {
            Answer::Unclear(_) => self.hint(&asked),
            _ => String::new(),
        };
        let (law, mode) = (self.law.get(), self.mode.get());
        let settled = asked.settle(answer, &law, mode, &mut self.grants());
        settled.map(|it| it.pass).map_err(|reason| reason + &hint)
    }

    /// What would have let the call pass.
    fn hint(&self, asked: &Asked) -> String {
        let (law, now) = (self.law.get(), self.mode.get());
        let passes = |mode: &Mode| {
            *mode > now
                && *mode <= self.mode.most()
                && decide(&law, *mode, &self.grants(), asked.effects()).verdict() == Verdict::Allow
        };
        let mode = Mode::ALL
            .iter()
            .find(|it| passes(it))
            .map(|it| format!("the mode `{}` allows it (`--mode {}`)", it.id(), it.id()));
        let rule = asked.choices().into_iter().find(|it| it.kind == ChoiceKind::AllowSession);
        let rule = rule.and_then(|it| {
            let rule = it.name.strip_prefix("Allow ")?.strip_suffix(" in this session")?;
            (!rule.contains('…')).then(|| format!("so does the rule {rule} in the settings"))
        });
        match (mode, rule) {
            (Some(mode), Some(rule)) => format!(" For the user: {mode}, {rule}."),
            (Some(mode), None) => format!(" For the user: {mode}."),
            (None, Some(rule)) => {
                format!(" For the user: {}.", rule.replacen("so does the rule", "allow it by", 1))
            }
            (None, None) => " No mode and no rule allows it unasked.".to_owned(),
        }
    }

    fn note(
        &self,
        event: AuditEvent,
        effects: &[Effect],
        answer: Option<&Answer>,
        sandbox: Option<bool>,
    ) {
        let (law, mode) = (self.law.get(), self.mode.get());
        let decision = decide(&law, mode, &self.grants(), effects);
        let session = self.bench.session.as_str();
        let mut entry = AuditEntry::new(event, session, (&law, mode), effects, &decision);
        entry.answer = answer.map(|it| keep::word(it).to_owned());
        entry.sandbox = sandbox;
        self.bench.commons.audit.note(entry);
    }

    fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn effects_of(ready: &Ready) -> Result<Vec<Effect>, String> {
    guarded(|| ready.prepared.effects())
}
