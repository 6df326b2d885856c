//! Runs the hooks of a session on the occasions that the session, its turns and its calls have. What goes wrong with
//! one is a notice for the user. What follows from a verdict is decided where the occasion is.

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

/// The name under which a recording keeps the verdicts.
const HOOKS: &str = "hooks";
/// The time after a turn without another prompt of which handlers are notified.
const IDLE: Duration = Duration::from_secs(60);
/// The time after which the user is told for which hooks something waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest time of all handlers of the session's end together.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// The time that handlers in the background get at the session's end.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(1);
/// At most so many occasions have handlers that nobody waits for.
const MAX_IN_BACKGROUND: usize = 16;
/// The most files of one call that are looked at for changes by hooks.
const MAX_FORMATTED: usize = 50;
/// The most characters of a hook's changes that the model is shown.
const MAX_DIFF_CHARS: usize = 4_000;

/// The hooks of a session, and what they need and do. They cost nothing unless there are any.
#[derive(Debug, Default)]
pub(crate) struct SessionHooks {
    pub(crate) set: SharedValue<HookSet>,
    /// True once the handlers of the session's start have run.
    has_begun: AtomicBool,
    /// Stops what runs in the background.
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The number of runs whose changes are checked.
    guarded_runs: AtomicU64,
    // Held only to look something up or to put something there.
    state: Mutex<HookState>,
}

#[derive(Debug, Default)]
struct HookState {
    /// The place where handlers run, with the rules that it depends on.
    site: Option<(Arc<PolicyRules>, Arc<HookSite>)>,
    /// Cancelled when a turn begins.
    idle: Option<CancellationToken>,
}

impl SessionHooks {
    pub(crate) fn new(set: HookSet) -> SessionHooks {
        SessionHooks { set: SharedValue::new(set), ..SessionHooks::default() }
    }

    /// Marks the session as begun. Returns true if it was not.
    pub(crate) fn begin(&self) -> bool {
        !self.has_begun.swap(true, Ordering::Relaxed)
    }

    /// The handlers of the session's start run again.
    pub(crate) fn forget_begin(&self) {
        self.has_begun.store(false, Ordering::Relaxed);
    }
}

/// A helper, as the hooks of its session see it.
#[derive(Clone, Debug)]
pub(crate) struct HelperOfHooks {
    /// The session that it belongs to.
    pub(crate) session: String,
    pub(crate) kind: String,
}

/// The permission mode in the words of Claude Code.
fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Plan => "plan",
        Mode::Ask => "default",
        Mode::AutoEdit => "acceptEdits",
        Mode::Auto => "auto",
        Mode::Full => "bypassPermissions",
    }
}

/// An occasion that is about no tool.
pub(crate) fn occasion(event: HookEvent, subject: &str, fields: Value) -> Occasion {
    Occasion { event, subjects: vec![subject.to_owned()], fields }
}

impl ToolEnv {
    /// Returns true if there are hooks of an event.
    pub(crate) fn has_hooks(&self, event: HookEvent) -> bool {
        // A replay has none, and their verdicts are in the recording.
        self.shared.hooks.set.get().has(event) || self.are_hooks_played()
    }

    /// Returns true if there are any hooks.
    pub(crate) fn has_any_hooks(&self) -> bool {
        !self.shared.hooks.set.get().is_empty() || self.are_hooks_played()
    }

    fn are_hooks_played(&self) -> bool {
        self.shared.process.outside.answer_source(HOOKS) == AnswerSource::Recording
    }

    /// Runs the hooks of an occasion. The user is told what goes wrong, what the hooks have to say to them, and if they
    /// take long.
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

    /// The same; shows in its own way that they take long.
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

    /// Notifies hooks of something. Nobody waits for them.
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

    /// A turn of the session begins.
    pub(crate) fn end_idle_time(&self) {
        let idle = self.shared.hooks.state.lock().idle.take();
        if let Some(idle) = idle {
            idle.cancel();
        }
    }

    /// A turn of the session has ended.
    pub(crate) fn begin_idle_time(&self) {
        if !self.shared.hooks.set.get().has(HookEvent::Notification) {
            return;
        }
        let idle = self.shared.hooks.stop.child_token();
        self.shared.hooks.state.lock().idle = Some(idle.clone());
        self.notify_hooks("agent_completed", "The turn has ended");
        self.notify_hooks_after(IDLE, "idle_prompt", "Waiting for your input", &idle);
    }

    /// Runs handlers of an occasion for which nobody waits: those that want that, or all others.
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

    /// Runs the handlers of an occasion, and tells the user what follows. Like commands, confined ones leave no files
    /// behind that other programs run.
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

    /// Runs the hooks of the session's end, and ends all that still run.
    pub(crate) async fn end_hooks(&self) {
        let hooks = &self.shared.hooks;
        self.end_idle_time();
        if hooks.has_begun.load(Ordering::Relaxed) && self.has_hooks(HookEvent::SessionEnd) {
            let ending = occasion(HookEvent::SessionEnd, "other", json!({ "reason": "other" }));
            tokio::time::timeout(END_PATIENCE, self.run_hooks(&ending, &hooks.stop)).await.ok();
        }
        hooks.tasks.close();
        // What has just begun, such as the notification that a turn has ended, may come to its end.
        tokio::time::timeout(BACKGROUND_PATIENCE, hooks.tasks.wait()).await.ok();
        hooks.stop.cancel();
        hooks.tasks.wait().await;
    }

    /// The texts of the files that a call has changed, before hooks may change them.
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

    /// Shows the user and the model what hooks have changed in files since. The model knows their texts now.
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

/// The place of an occasion in a recording.
fn place_of(occasion: &Occasion) -> Value {
    let mut fields = occasion.fields.clone();
    if let Value::Object(fields) = &mut fields {
        fields.shift_remove("duration_ms");
    }
    json!({ "event": occasion.event.name(), "fields": fields })
}

/// Tells the user what hooks have to say to them, and what went wrong.
fn report(client: &dyn Client, verdict: &HookVerdict) {
    for notice in verdict.messages.iter().chain(&verdict.problems) {
        client.update(Update::Notice(redact::text(notice).into_owned()));
    }
}

/// The place where handlers run. It is made anew when the rules have changed.
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
    // Without a profile no handler runs that needs one.
    making.await.unwrap_or_else(|_| Arc::new(make_site(shared, roots, None)))
}

/// The place for the handlers of a session, with a sandbox if the rules are given and any of them runs in it. Blocks
/// then.
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

/// A place for handlers that need no sandbox.
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

/// Gives a place the sandbox for its handlers, if there is one, with this folder for temporary files. Looks files up.
/// Blocks.
pub(crate) fn confine_site(
    site: &mut HookSite,
    confinement: &ConfinementSettings,
    (roots, rules, home): (&Roots, &PolicyRules, Option<&Path>),
    temp: Option<&Path>,
) {
    if !rules.can_confine {
        return;
    }
    // The first call probes the system.
    turnwright_sandbox::namespace_support();
    let mut profile = server_profile(confinement, roots, rules, home);
    profile.network = Network::Off;
    // Handlers run at the same time, and each would need layers of its own.
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
