//! Runs the hooks of a session on the occasions that the session, its turns and its calls raise. The user is notified
//! of problems with hooks. The code that raises an occasion acts on the verdict.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::edit_common::{self, whole_file_diff};
use super::{SessionShared, SharedValue, ToolEnv, ToolOutcome};
use turnwright_guard::{CommandSite, ConfinementSettings, RemoteCallGuard, server_profile};
use turnwright_hooks::{Handler, HookEvent, HookSandbox, HookSet, HookSite, HookVerdict, Occasion};
use turnwright_policy::permission::{Mode, PolicyRules, Rule};
use turnwright_policy::shell::Script;
use turnwright_recording::outside::AnswerKind;
use turnwright_sandbox::Network;
use turnwright_types::client::Client;
use turnwright_types::effect::{Effect, ResolvedPath, fenced};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::update::Update;
use turnwright_workspace::edit::line_changes;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::{FileText, Freshness, Roots};
use turnwright_workspace::real_path;

/// The name under which a recording stores the verdicts.
const HOOKS: &str = "hooks";
/// Handlers are notified when no prompt has come for this long after a turn.
const IDLE: Duration = Duration::from_secs(60);
/// The delay before the user is told which hooks are being waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time that all handlers have together at the session's end.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// The most occasions whose handlers may run in the background at the same time.
const MAX_IN_BACKGROUND: usize = 16;
/// The most files of one call that are checked for changes made by hooks.
const MAX_COMPARED_FILES: usize = 50;
/// The most characters of a hook's diff that the model is shown.
const MAX_DIFF_CHARS: usize = 4_000;

/// The rules from which the sandbox of handlers was built, and the sandbox; `None` if there is none on this machine.
type BuiltSandbox = (Arc<PolicyRules>, Option<Arc<HookSandbox>>);

/// The hooks of a session and the state they need.
#[derive(Debug, Default)]
pub(crate) struct SessionHooks {
    pub(crate) set: SharedValue<HookSet>,
    /// True once the handlers of the session's start have run.
    has_started: AtomicBool,
    /// Stops handlers that run in the background.
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The number of guarded runs so far, from which each gets its name.
    guarded_runs: AtomicU64,
    /// Cancelled when a turn begins, so that no notification about idle time is sent.
    idle: SharedValue<CancellationToken>,
    // Held while the sandbox is built, which blocks.
    sandbox: Mutex<Option<BuiltSandbox>>,
}

impl SessionHooks {
    pub(crate) fn new(set: HookSet) -> SessionHooks {
        SessionHooks { set: SharedValue::new(set), ..SessionHooks::default() }
    }

    /// Marks the session as started. Returns true if it had not started before.
    pub(crate) fn mark_started(&self) -> bool {
        !self.has_started.swap(true, Ordering::Relaxed)
    }

    /// Makes the handlers for the session's start run again.
    pub(crate) fn rerun_start_hooks(&self) {
        self.has_started.store(false, Ordering::Relaxed);
    }

    /// Called when a turn begins, so that no notification about idle time is sent.
    pub(crate) fn end_idle_time(&self) {
        self.idle.get().cancel();
    }
}

/// The facts about a helper that hooks are given, and its limits.
#[derive(Clone, Debug)]
pub(crate) struct HelperFacts {
    /// The session that the helper belongs to.
    pub(crate) session: String,
    pub(crate) kind: String,
    /// The only commands that it may run; empty for all.
    pub(crate) commands: Vec<Rule>,
    /// True if it may change nothing.
    pub(crate) is_read_only: bool,
}

impl HelperFacts {
    /// Refuses a line that does anything but run commands that the helper may run.
    pub(crate) fn refuse(&self, script: &Script) -> Option<ToolRefusal> {
        let mut commands = script.commands.iter();
        let are_allowed = commands.all(|command| {
            self.commands.iter().any(|rule| rule.matches_command(command)) && !command.writes_file()
        });
        if self.commands.is_empty() || script.ambiguity.is_none() && are_allowed {
            return None;
        }
        let patterns: Vec<_> = self.commands.iter().map(|rule| rule.pattern.to_string()).collect();
        let only = patterns.join(", ");
        Some(format!("Nothing was run: this helper may run only {only}, and write no file.").into())
    }
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

impl ToolEnv {
    /// Returns true if there are hooks for an event.
    pub(crate) fn has_hooks(&self, event: HookEvent) -> bool {
        // A replay has no hooks of its own.
        self.shared.hooks.set.get().has(event) || self.are_hooks_played()
    }

    /// Returns true if there are any hooks.
    pub(crate) fn has_any_hooks(&self) -> bool {
        !self.shared.hooks.set.get().0.is_empty() || self.are_hooks_played()
    }

    /// Returns true in a replay, where the verdicts come from the recording.
    fn are_hooks_played(&self) -> bool {
        self.shared.process.outside.is_played(HOOKS)
    }

    /// Runs the hooks of an event that is not about a tool call. Matchers are tested against the subject, which is
    /// empty if there is none.
    pub(crate) async fn raise_hooks(
        &self,
        event: HookEvent,
        subject: &str,
        fields: Value,
        cancel: &CancellationToken,
    ) -> HookVerdict {
        self.run_hooks(&Occasion::new(event, subject, fields), cancel).await
    }

    /// Runs the hooks of an occasion. The user is shown problems, the hooks' messages, and a notice if they take long.
    pub(crate) async fn run_hooks(
        &self,
        occasion: &Occasion,
        cancel: &CancellationToken,
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
        let chosen = hooks.set.get().choose(occasion);
        let (in_background, awaited): (Vec<_>, Vec<_>) =
            chosen.into_iter().partition(|handler| handler.in_background);
        self.spawn_hooks(in_background, occasion, Duration::ZERO, &hooks.stop);
        if awaited.is_empty() {
            return HookVerdict::default();
        }
        let names: Vec<_> = awaited.iter().map(|handler| handler.name.clone()).collect();
        let mut running = self.run_handlers(awaited, occasion, cancel);
        let mut verdict = match tokio::time::timeout(PATIENCE, &mut running).await {
            Ok(verdict) => verdict,
            Err(_) => {
                let waits = format!("Waiting for the hook {}", names.join(", "));
                self.client.update(Update::Notice(waits));
                running.await
            }
        };
        if verdict != HookVerdict::default() {
            let place = place_of(occasion);
            answers.record_answer(AnswerKind::View, HOOKS, &place, &|| json!(verdict));
        }
        verdict.has_run = true;
        verdict
    }

    /// Notifies hooks of something without waiting for them: now, or after a delay unless a turn begins before.
    pub(crate) fn notify_hooks(&self, kind: &str, message: &str, delay: Duration) {
        let hooks = &self.shared.hooks;
        if !hooks.set.get().has(HookEvent::Notification) || self.are_hooks_played() {
            return;
        }
        let cancel = hooks.stop.child_token();
        if !delay.is_zero() {
            hooks.idle.set(cancel.clone());
        }
        let title = "turnwright";
        let fields = json!({ "message": message, "title": title, "notification_type": kind });
        let notification = Occasion::new(HookEvent::Notification, kind, fields);
        let handlers = hooks.set.get().choose(&notification);
        self.spawn_hooks(handlers, &notification, delay, &cancel);
    }

    /// Called when a turn has ended: notifies hooks now, and again if the session stays idle.
    pub(crate) fn begin_idle_time(&self) {
        self.notify_hooks("agent_completed", "The turn has ended", Duration::ZERO);
        self.notify_hooks("idle_prompt", "Waiting for your input", IDLE);
    }

    /// Starts handlers without waiting for them.
    fn spawn_hooks(
        &self,
        handlers: Vec<Arc<Handler>>,
        occasion: &Occasion,
        delay: Duration,
        cancel: &CancellationToken,
    ) {
        if handlers.is_empty() {
            return;
        }
        let tasks = &self.shared.hooks.tasks;
        if tasks.len() >= MAX_IN_BACKGROUND {
            let full = "So many hooks run in the background that further ones were not started.";
            return self.client.update(Update::Notice(full.to_owned()));
        }
        let running = self.run_handlers(handlers, occasion, cancel);
        let stop = cancel.clone();
        tasks.spawn(async move {
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_some() {
                running.await;
            }
        });
    }

    /// Runs handlers and reports their messages and problems to the user. Confined handlers are guarded like commands,
    /// so that they leave no files behind that other programs would run.
    fn run_handlers(
        &self,
        handlers: Vec<Arc<Handler>>,
        occasion: &Occasion,
        cancel: &CancellationToken,
    ) -> BoxFuture<'static, HookVerdict> {
        let mut site = self.hook_site();
        let shared = Arc::clone(&self.shared);
        let commands = self.command_site().clone();
        let client = Arc::clone(&self.client);
        let occasion = occasion.clone();
        let cancel = cancel.clone();
        async move {
            let mut guard = None;
            if handlers.iter().any(|handler| handler.needs_sandbox(site.confines_all)) {
                let confining = spawn_blocking(move || confine(&shared, commands));
                let Some(confined) = cancel.run_until_cancelled(confining).await else {
                    return HookVerdict::default();
                };
                // Without a sandbox, no handler that needs one runs.
                (site.sandbox, guard) = confined.unwrap_or_default();
            }
            let verdict =
                turnwright_hooks::run_handlers(&handlers, &occasion, &site, &cancel).await;
            if let Some(guard) = guard {
                guard.finish().await;
            }
            report(client.as_ref(), &verdict);
            verdict
        }
        .boxed()
    }

    /// Returns the site of the session's handlers, without a sandbox.
    fn hook_site(&self) -> HookSite {
        let own = self.session.to_string();
        let session = self.helper.as_ref().map_or(&own, |helper| &helper.session);
        let environment = &self.shared.command_environment;
        let settings = &self.shared.settings.hooks;
        let mut site = hook_site(self.files.roots(), environment, settings, session);
        site.fields["permission_mode"] = json!(mode_word(self.mode()));
        if let Some(helper) = &self.helper {
            site.fields["agent_id"] = json!(own);
            site.fields["agent_type"] = json!(helper.kind);
        }
        site
    }

    /// Runs the hooks for the session's end, then stops all that are still running.
    pub(crate) async fn end_hooks(&self) {
        let hooks = &self.shared.hooks;
        hooks.end_idle_time();
        hooks.tasks.close();
        let ending = async {
            if hooks.has_started.load(Ordering::Relaxed) {
                let fields = json!({ "reason": "other" });
                self.raise_hooks(HookEvent::SessionEnd, "other", fields, &hooks.stop).await;
            }
            // A handler that has just started, such as one notified of the turn's end, may finish.
            hooks.tasks.wait().await;
        };
        tokio::time::timeout(END_PATIENCE, ending).await.ok();
        hooks.stop.cancel();
        hooks.tasks.wait().await;
    }

    /// Reads the files that a call has changed, before hooks may change them.
    pub(crate) async fn texts_before_hooks(
        &self,
        effects: &[Effect],
    ) -> Vec<(ResolvedPath, FileText)> {
        let mut texts = Vec::new();
        for target in effects.iter().filter_map(Effect::written) {
            if texts.len() < MAX_COMPARED_FILES
                && let Ok(text) = self.files.read(target).await
            {
                texts.push((target.clone(), text));
            }
        }
        texts
    }

    /// Shows the user and the model the changes that hooks have made since `before`. A new text counts as seen by the
    /// model if the old one did.
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
            let is_known = files.freshness(&target, &old).await == Freshness::Same;
            let may_show = is_known || !edit_common::is_closed(self, &target);
            let comparing = spawn_blocking(move || {
                if is_known {
                    files.mark_seen_blocking(&target, &new);
                }
                let name = files.roots().display_path(&target);
                let spots = line_changes::diff_texts(&old.text, &new.text);
                let diff = line_changes::render_diff(&old.text, &new.text, &spots);
                let diff = fenced(&text::clip(diff, MAX_DIFF_CHARS));
                let known = if is_known { ", and you know the file now" } else { "" };
                let change = if may_show {
                    format!("this is its change{known}:\n{diff}")
                } else {
                    "its change is not shown, as you have not read the file.".to_owned()
                };
                let told = format!("A hook has changed {name} after your edit; {change}");
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

/// Prepares the sandbox of handlers, unless the rules are those from which it was built before, and begins to guard the
/// protected files. Blocks.
fn confine(
    shared: &SessionShared,
    commands: CommandSite,
) -> (Option<Arc<HookSandbox>>, Option<RemoteCallGuard>) {
    let hooks = &shared.hooks;
    let rules = shared.rules.get();
    let mut kept = hooks.sandbox.lock();
    if kept.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, &rules)) {
        let home = shared.process.folders.home.as_deref();
        let temp = shared.guard.temp_folder();
        let sandbox =
            hook_sandbox(&commands.settings, &commands.roots, &rules, home, temp.as_deref());
        *kept = Some((rules, sandbox));
    }
    let sandbox = kept.as_ref().and_then(|(_, sandbox)| sandbox.clone());
    drop(kept);
    let name = format!("of hooks {}", hooks.guarded_runs.fetch_add(1, Ordering::Relaxed));
    let who = "a hook, or another program meanwhile,";
    let guard = RemoteCallGuard::new(commands, &name, who).with_repositories();
    (sandbox, Some(guard))
}

/// Returns a site without a sandbox and with the permission mode `default`. `settings` is the table `[hooks]`.
pub(crate) fn hook_site(
    roots: &Roots,
    environment: &Environment,
    settings: &Map<String, Value>,
    session: &str,
) -> HookSite {
    let mut environment = environment.clone();
    for name in ["CLAUDE_PROJECT_DIR", "TURNWRIGHT_PROJECT_DIR"] {
        environment = environment.with(name, roots.cwd());
    }
    for name in ["CLAUDE_CODE_SESSION_ID", "TURNWRIGHT_SESSION_ID"] {
        environment = environment.with(name, session);
    }
    HookSite {
        project: roots.real_cwd().to_path_buf(),
        roots: roots.folders().map(Path::to_path_buf).collect(),
        workdir: roots.start_folder(roots.real_cwd()),
        environment: Arc::new(environment),
        fields: json!({
            "session_id": session,
            "transcript_path": null,
            "cwd": roots.cwd().to_string_lossy(),
            "permission_mode": mode_word(Mode::Ask),
        }),
        sandbox: None,
        confines_all: settings.get("sandbox") == Some(&Value::Bool(true)),
    }
}

/// Returns the sandbox of handlers, with `temp` as the folder for temporary files; `None` if there is no sandbox here.
/// Blocks, because paths are looked up.
pub(crate) fn hook_sandbox(
    confinement: &ConfinementSettings,
    roots: &Roots,
    rules: &PolicyRules,
    home: Option<&Path>,
    temp: Option<&Path>,
) -> Option<Arc<HookSandbox>> {
    if !rules.can_confine {
        return None;
    }
    // The first call probes the system, so make it here, where blocking is allowed.
    turnwright_sandbox::namespace_support();
    let temp = temp.and_then(|path| real_path(path).ok());
    let mut profile = server_profile(confinement, roots, rules, home);
    profile.network = Network::Off;
    // Handlers run concurrently, and each would need its own overlay of the caches.
    profile.caches = Vec::new();
    profile.writable.extend(temp.clone());
    Some(Arc::new(HookSandbox { profile, temp, memory: confinement.memory }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_have_the_names_that_scripts_know() {
        let words = Mode::ALL.map(mode_word);
        assert_eq!(words, ["default", "plan", "acceptEdits", "auto", "bypassPermissions"]);
    }

    #[test]
    fn on_a_share_hooks_start_on_the_drive_that_the_client_named() {
        for (named, real, expected) in
            [(r"Z:\p", r"\\?\UNC\server\share\p", r"Z:\p"), ("/link", "/real/p", "/real/p")]
        {
            let roots = Roots::described((named.into(), real.into()), Vec::new());
            let site = hook_site(&roots, &Environment::default(), &Map::new(), "s");
            assert_eq!([site.workdir, site.project], [expected, real].map(Path::new));
        }
    }
}
