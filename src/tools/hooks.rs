//! Runs the hooks of a session on the occasions that the session, its turns and its calls raise. The user is notified
//! of problems with hooks. The code that raises an occasion acts on the verdict.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::edit_common::whole_file_diff;
use super::{SessionShared, SharedValue, ToolEnv, ToolOutcome};
use turnwright_guard::{ConfinementSettings, RemoteCallGuard, server_profile};
use turnwright_hooks::{HookEvent, HookSet, HookSite, HookVerdict, Occasion, SessionFacts};
use turnwright_policy::permission::{Mode, PolicyRules};
use turnwright_recording::outside::{AnswerKind, AnswerSource};
use turnwright_sandbox::Network;
use turnwright_types::client::Client;
use turnwright_types::effect::{Effect, ResolvedPath, fenced};
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::update::Update;
use turnwright_workspace::edit::line_changes;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::{FileText, Roots};
use turnwright_workspace::real_path;

/// The name under which a recording stores the verdicts.
const HOOKS: &str = "hooks";
/// Handlers are notified when no prompt has come for this long after a turn.
const IDLE: Duration = Duration::from_secs(60);
/// The delay before the user is told which hooks are being waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most time that all handlers for the session's end have together.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// The time that background handlers have to finish at the session's end.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(1);
/// The most occasions at a time whose handlers run without being waited for.
const MAX_IN_BACKGROUND: usize = 16;
/// The most files of one call that are checked for changes made by hooks.
const MAX_FORMATTED: usize = 50;
/// The most characters of a hook's diff that the model is shown.
const MAX_DIFF_CHARS: usize = 4_000;

/// The hooks of a session and the state they need.
#[derive(Debug, Default)]
pub(crate) struct SessionHooks {
    pub(crate) set: SharedValue<HookSet>,
    /// True once the handlers of the session's start have run.
    has_begun: AtomicBool,
    /// Stops handlers that run in the background.
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The number of guarded runs so far, from which each gets its name.
    guarded_runs: AtomicU64,
    // Held only to read or replace a field.
    state: Mutex<HookState>,
}

#[derive(Debug, Default)]
struct HookState {
    /// The site where handlers run, with the rules from which it was built.
    site: Option<(Arc<PolicyRules>, Arc<HookSite>)>,
    /// Cancelled when a turn begins, so that no notification about idle time is sent.
    idle: Option<CancellationToken>,
}

impl SessionHooks {
    pub(crate) fn new(set: HookSet) -> SessionHooks {
        SessionHooks { set: SharedValue::new(set), ..SessionHooks::default() }
    }

    /// Marks the session as begun. Returns true if it had not begun before.
    pub(crate) fn begin(&self) -> bool {
        !self.has_begun.swap(true, Ordering::Relaxed)
    }

    /// Makes the handlers for the session's start run again.
    pub(crate) fn forget_begin(&self) {
        self.has_begun.store(false, Ordering::Relaxed);
    }
}

/// The facts about a helper that hooks are given.
#[derive(Clone, Debug)]
pub(crate) struct HelperOfHooks {
    /// The session that the helper belongs to.
    pub(crate) session: String,
    pub(crate) kind: String,
}

/// Returns the name of a permission mode in Claude Code.
fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Plan => "plan",
        Mode::Ask => "default",
        Mode::AutoEdit => "acceptEdits",
        Mode::Auto => "auto",
        Mode::Full => "bypassPermissions",
    }
}

/// Makes an occasion that is not about a tool call.
pub(crate) fn occasion(event: HookEvent, subject: &str, fields: Value) -> Occasion {
    Occasion { event, subjects: vec![subject.to_owned()], fields }
}

impl ToolEnv {
    /// Returns true if there are hooks for an event.
    pub(crate) fn has_hooks(&self, event: HookEvent) -> bool {
        // A replay has no hooks of its own; the verdicts come from the recording.
        self.shared.hooks.set.get().has(event) || self.are_hooks_played()
    }

    /// Returns true if there are any hooks.
    pub(crate) fn has_any_hooks(&self) -> bool {
        !self.shared.hooks.set.get().is_empty() || self.are_hooks_played()
    }

    fn are_hooks_played(&self) -> bool {
        self.shared.process.outside.answer_source(HOOKS) == AnswerSource::Recording
    }

    /// Runs the hooks of an occasion. The user is shown problems, the hooks' messages, and a notice if they take long.
    pub(crate) async fn run_hooks(
        &self,
        occasion: &Occasion,
        cancel: &CancellationToken,
    ) -> HookVerdict {
        let waiting = self.run_hooks_showing(occasion, cancel, |waits| {
            self.client.update(Update::Notice(waits));
        });
        waiting.await
    }

    /// Like [`Self::run_hooks`], but calls `show` if the hooks take long.
    pub(crate) async fn run_hooks_showing(
        &self,
        occasion: &Occasion,
        cancel: &CancellationToken,
        show: impl FnOnce(String) + Send,
    ) -> HookVerdict {
        let answers = &self.shared.process.outside;
        if self.are_hooks_played() {
            let kept = answers.recorded_answer(AnswerKind::View, HOOKS, &place_of(occasion));
            let played: HookVerdict =
                kept.and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default();
            report(self.client.as_ref(), &played);
            return played;
        }
        let hooks = &self.shared.hooks;
        self.spawn_hooks(occasion, true, Duration::ZERO, &hooks.stop);
        let names = hooks.set.get().names(occasion, false);
        if names.is_empty() {
            return HookVerdict::default();
        }
        let mut running = self.run_handlers(occasion, false, cancel);
        let verdict = match tokio::time::timeout(PATIENCE, &mut running).await {
            Ok(verdict) => verdict,
            Err(_) => {
                show(format!("Waiting for the hook {}", names.join(", ")));
                running.await
            }
        };
        if verdict != HookVerdict::default()
            && answers.answer_source(HOOKS) == AnswerSource::RecordedTool
        {
            let place = place_of(occasion);
            answers.record_answer(AnswerKind::View, HOOKS, &place, &|| json!(verdict));
        }
        verdict
    }

    /// Notifies hooks of something, without waiting for them.
    pub(crate) fn notify_hooks(&self, kind: &str, message: &str) {
        self.notify_hooks_after(Duration::ZERO, kind, message, &self.shared.hooks.stop);
    }

    fn notify_hooks_after(
        &self,
        delay: Duration,
        kind: &str,
        message: &str,
        cancel: &CancellationToken,
    ) {
        if self.shared.hooks.set.get().has(HookEvent::Notification) && !self.are_hooks_played() {
            let title = "turnwright";
            let fields = json!({ "message": message, "title": title, "notification_type": kind });
            let occasion = occasion(HookEvent::Notification, kind, fields);
            self.spawn_hooks(&occasion, true, delay, cancel);
            self.spawn_hooks(&occasion, false, delay, cancel);
        }
    }

    /// Called when a turn begins: no notification about idle time is sent.
    pub(crate) fn end_idle_time(&self) {
        let idle = self.shared.hooks.state.lock().idle.take();
        if let Some(idle) = idle {
            idle.cancel();
        }
    }

    /// Called when a turn has ended: notifies hooks now, and again if the session stays idle.
    pub(crate) fn begin_idle_time(&self) {
        if !self.shared.hooks.set.get().has(HookEvent::Notification) {
            return;
        }
        let idle = self.shared.hooks.stop.child_token();
        self.shared.hooks.state.lock().idle = Some(idle.clone());
        self.notify_hooks("agent_completed", "The turn has ended");
        self.notify_hooks_after(IDLE, "idle_prompt", "Waiting for your input", &idle);
    }

    /// Starts handlers of an occasion without waiting for them: either those that ask for it, or the others.
    fn spawn_hooks(
        &self,
        occasion: &Occasion,
        are_of_background: bool,
        delay: Duration,
        cancel: &CancellationToken,
    ) {
        let hooks = &self.shared.hooks;
        if hooks.set.get().names(occasion, are_of_background).is_empty() {
            return;
        }
        if hooks.tasks.len() >= MAX_IN_BACKGROUND {
            let full = "So many hooks run in the background that further ones were not started.";
            return self.client.update(Update::Notice(full.to_owned()));
        }
        let running = self.run_handlers(occasion, are_of_background, cancel);
        let stop = cancel.clone();
        hooks.tasks.spawn(async move {
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_some() {
                running.await;
            }
        });
    }

    /// Runs the handlers of an occasion and reports their messages and problems to the user. Confined handlers are
    /// guarded like commands, so that they leave no files behind that other programs would run.
    fn run_handlers(
        &self,
        occasion: &Occasion,
        are_of_background: bool,
        cancel: &CancellationToken,
    ) -> BoxFuture<'static, HookVerdict> {
        let set = self.shared.hooks.set.get();
        let facts = self.hook_facts();
        let shared = Arc::clone(&self.shared);
        let commands = self.command_site().clone();
        let client = Arc::clone(&self.client);
        let occasion = occasion.clone();
        let cancel = cancel.clone();
        async move {
            let making = site_of(&shared, &commands.roots);
            let Some(site) = cancel.run_until_cancelled(making).await else {
                return HookVerdict::default();
            };
            let mut guard = None;
            if set.confines(&occasion, are_of_background, &site) {
                let number = shared.hooks.guarded_runs.fetch_add(1, Ordering::Relaxed);
                let name = format!("of hooks {number}");
                let who = "a hook, or another program meanwhile,";
                let making = spawn_blocking(move || {
                    RemoteCallGuard::new(commands, &name, who).with_repositories()
                });
                guard = making.await.ok();
            }
            let verdict = set.run(&occasion, &facts, &site, &cancel, are_of_background).await;
            if let Some(guard) = guard {
                guard.finish().await;
            }
            report(client.as_ref(), &verdict);
            verdict
        }
        .boxed()
    }

    fn hook_facts(&self) -> SessionFacts {
        let own = self.session.to_string();
        let helper = self.helper.clone();
        SessionFacts {
            session: helper.as_ref().map_or(own.clone(), |helper| helper.session.clone()),
            folder: self.files.roots().cwd().to_string_lossy().into_owned(),
            mode: mode_word(self.shared.mode.get()),
            helper: helper.map(|helper| (own, helper.kind)),
        }
    }

    /// Runs the hooks for the session's end, then stops all that are still running.
    pub(crate) async fn end_hooks(&self) {
        let hooks = &self.shared.hooks;
        self.end_idle_time();
        if hooks.has_begun.load(Ordering::Relaxed) && self.has_hooks(HookEvent::SessionEnd) {
            let ending = occasion(HookEvent::SessionEnd, "other", json!({ "reason": "other" }));
            tokio::time::timeout(END_PATIENCE, self.run_hooks(&ending, &hooks.stop)).await.ok();
        }
        hooks.tasks.close();
        // Give a handler that has just started, such as one notified of the turn's end, time to finish.
        tokio::time::timeout(BACKGROUND_PATIENCE, hooks.tasks.wait()).await.ok();
        hooks.stop.cancel();
        hooks.tasks.wait().await;
    }

    /// Reads the files that a call has changed, before hooks may change them.
    pub(crate) async fn texts_before_hooks(
        &self,
        effects: &[Effect],
    ) -> Vec<(ResolvedPath, FileText)> {
        let mut texts = Vec::new();
        for effect in effects {
            if let Effect::Write(target) = effect
                && texts.len() < MAX_FORMATTED
                && let Ok(text) = self.files.read(target).await
            {
                texts.push((target.clone(), text));
            }
        }
        texts
    }

    /// Shows the user and the model the changes that hooks have made since `before`. The new texts count as seen by the
    /// model.
    pub(crate) async fn note_changed_by_hooks(
        &self,
        before: Vec<(ResolvedPath, FileText)>,
        outcome: &mut ToolOutcome,
    ) {
        for (target, old) in before {
            let Ok(new) = self.files.read(&target).await else {
                let name = self.files.roots().display_path(&target);
                outcome.add_line(&format!(
                    "A hook has removed {name} after your edit, or made something of it that is no text."
                ));
                continue;
            };
            if new.text == old.text {
                continue;
            }
            let files = self.files.clone();
            let path = files.roots().client_path(&target);
            let comparing = spawn_blocking(move || {
                files.mark_seen_blocking(&target, &new);
                let name = files.roots().display_path(&target);
                let spots = line_changes::diff_texts(&old.text, &new.text);
                let diff = line_changes::render_diff(&old.text, &new.text, &spots);
                let diff = fenced(&text::clip(diff, MAX_DIFF_CHARS));
                let told = format!(
                    "A hook has changed {name} after your edit; this is its change, and you know the \
                     file now:\n{diff}"
                );
                (whole_file_diff(path, Some(&old.text), &new.text), told)
            });
            let Ok((shown, told)) = comparing.await else { continue };
            outcome.add_line(&told);
            outcome.content.push(shown);
        }
    }
}

/// Returns the key of an occasion in a recording.
fn place_of(occasion: &Occasion) -> Value {
    let mut fields = occasion.fields.clone();
    if let Value::Object(fields) = &mut fields {
        fields.shift_remove("duration_ms");
    }
    json!({ "event": occasion.event.name(), "fields": fields })
}

/// Shows the user the hooks' messages and problems.
fn report(client: &dyn Client, verdict: &HookVerdict) {
    for notice in verdict.messages.iter().chain(&verdict.problems) {
        client.update(Update::Notice(redact::text(notice).into_owned()));
    }
}

/// Returns the site where handlers run, built again if the rules have changed.
async fn site_of(shared: &Arc<SessionShared>, roots: &Arc<Roots>) -> Arc<HookSite> {
    let rules = shared.rules.get();
    let known = shared.hooks.state.lock().site.clone();
    if let Some((_, site)) = known.filter(|(known, _)| Arc::ptr_eq(known, &rules)) {
        return site;
    }
    let own = Arc::clone(shared);
    let folders = Arc::clone(roots);
    let making = spawn_blocking(move || {
        let site = Arc::new(make_site(&own, &folders, Some(&rules)));
        own.hooks.state.lock().site = Some((rules, Arc::clone(&site)));
        site
    });
    // Without rules the site has no profile, so no handler that needs the sandbox runs.
    making.await.unwrap_or_else(|_| Arc::new(make_site(shared, roots, None)))
}

/// Builds the site for the handlers of a session, with a sandbox if `rules` is given and a handler needs one. Blocks
/// in that case.
fn make_site(shared: &SessionShared, roots: &Roots, rules: Option<&PolicyRules>) -> HookSite {
    let confines_all = shared.settings.hooks.get("sandbox") == Some(&Value::Bool(true));
    let environment = shared.command_environment.as_ref().clone();
    let mut site = unconfined_site(roots, environment, confines_all);
    let is_confined = shared.hooks.set.get().has_confined(confines_all);
    if let Some(rules) = rules.filter(|_| is_confined) {
        let place = (roots, rules, shared.process.folders.home.as_deref());
        let temp = shared.guard.temp_folder();
        confine_site(&mut site, &shared.confinement, place, temp.as_deref());
    }
    site
}

/// Builds a site for handlers that need no sandbox.
pub(crate) fn unconfined_site(
    roots: &Roots,
    environment: Environment,
    confines_all: bool,
) -> HookSite {
    HookSite {
        folder: roots.cwd().to_path_buf(),
        project: roots.real_cwd().to_path_buf(),
        environment,
        profile: None,
        temp: None,
        memory: None,
        confines_all,
    }
}

/// Adds the sandbox to a site if there is one, with `temp` as the folder for temporary files. Blocks, because paths are
/// looked up.
pub(crate) fn confine_site(
    site: &mut HookSite,
    confinement: &ConfinementSettings,
    (roots, rules, home): (&Roots, &PolicyRules, Option<&Path>),
    temp: Option<&Path>,
) {
    if !rules.can_confine {
        return;
    }
    // The first call probes the system, so make it here, where blocking is allowed.
    turnwright_sandbox::namespace_support();
    let mut profile = server_profile(confinement, roots, rules, home);
    profile.network = Network::Off;
    // Handlers run concurrently, and each would need its own overlay of the caches.
    profile.caches = Vec::new();
    site.temp = temp.and_then(|path| real_path(path).ok());
    profile.writable.extend(site.temp.clone());
    site.memory = confinement.memory;
    site.profile = Some(profile);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_have_the_names_that_scripts_know() {
        let words = Mode::ALL.map(mode_word);
        assert_eq!(words, ["default", "plan", "acceptEdits", "auto", "bypassPermissions"]);
    }
}
