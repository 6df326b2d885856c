//! What is left of an answer when its call has run: rules for the project, and a line in the audit.

use turnwright_types::client::{Answer, ChoiceKind};
use turnwright_types::effect::Effect;
use turnwright_policy::permission::{self, Asked, AuditEntry, AuditEvent, Book, Law, Rule, decide, in_words};
use turnwright_types::redact;

use super::Turn;

impl Turn {
    /// Has rules hold from now on, in this and in later sessions of the project. What is returned
    /// writes them down.
    pub(super) fn keep(
        &self,
        rules: Vec<Rule>,
        effects: &[Effect],
    ) -> Option<impl Future<Output = Result<(), String>> + Send + use<>> {
        if rules.is_empty() {
            return None;
        }
        let mut law = Law::clone(&self.equipment.law.get());
        law.rules.extend(rules.iter().cloned());
        let commons = &self.equipment.bench.commons;
        let mut origin = effects.first().map(|it| in_words(it, &law.ground)).unwrap_or_default();
        redact::clean(&mut origin);
        self.equipment.law.set(law);
        // Without a folder to write it to, it ends with the process.
        let state = Some(&commons.folders.state).filter(|it| it.is_absolute())?;
        let book = Book::of(state, self.equipment.bench.files.roots().real_cwd());
        let cancel = self.cancel.clone();
        Some(async move {
            let rules: Vec<_> = rules.into_iter().map(|it| (it.tier, it.pattern)).collect();
            let writing = tokio::task::spawn_blocking(move || book.add(&rules, &origin));
            // It is written all the same when nobody waits for it any more.
            match cancel.run_until_cancelled(writing).await {
                Some(Ok(Err(error))) => {
                    Err(format!("The permission holds in this session only: {error}."))
                }
                _ => Ok(()),
            }
        })
    }

    /// Notes what the user has said.
    pub(super) fn note_answer(&self, asked: &Asked, answer: &Answer) {
        let (law, mode) = (self.equipment.law.get(), self.equipment.mode.get());
        let bench = &self.equipment.bench;
        let (effects, decision) = (asked.effects(), asked.decision());
        let session = bench.session.as_str();
        let mut entry =
            AuditEntry::new(AuditEvent::Asked, session, (&law, mode), effects, decision);
        entry.answer = Some(word(answer).to_owned());
        bench.log.permission(entry.line());
        bench.commons.audit.note(entry);
    }

    /// Notes what was done without a question, and why.
    pub(super) fn note(&self, event: AuditEvent, effects: &[Effect], sandbox: Option<bool>) {
        let (law, mode) = (self.equipment.law.get(), self.equipment.mode.get());
        let bench = &self.equipment.bench;
        let decision = decide(&law, mode, &self.grants, effects);
        let session = bench.session.as_str();
        let mut entry = AuditEntry::new(event, session, (&law, mode), effects, &decision);
        entry.sandbox = sandbox;
        bench.log.permission(entry.line());
        bench.commons.audit.note(entry);
    }
}

pub(super) fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Chosen(ChoiceKind::AllowOnce) => permission::ALLOWED_ONCE,
        Answer::Chosen(ChoiceKind::AllowSession) => "allow in this session",
        Answer::Chosen(ChoiceKind::AllowProject) => "allow in this project",
        Answer::Chosen(ChoiceKind::RejectOnce) => "reject",
        Answer::Chosen(ChoiceKind::RejectSession) => "reject in this session",
        Answer::Cancelled => "withdrawn",
        Answer::Unclear(_) => "unclear",
    }
}
