//! Gathers what the model is told of the project and the machine: in the background, as soon as a session is open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::actor::SessionActor;
use crate::tools::ToolEnv;
use turnwright_policy::permission::Mode;
use turnwright_sandbox::Network;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::real_path;
use turnwright_workspace::surroundings::{describe, fitting, shell};
use turnwright_workspace::tool_versions::learn_versions;

/// The time that gathering may take before the first prompt goes on without the rest.
const GATHERING_TIME: Duration = Duration::from_millis(300);

/// More lines than there are.
const MAX_LINES: usize = 32;

/// True if the programs were asked for their versions.
static HAS_ASKED: AtomicBool = AtomicBool::new(false);

impl SessionActor {
    /// Begins to gather the surroundings, unless the settings say otherwise. A replay has them in its recording.
    pub(super) fn gather_surroundings(&self) {
        let env = Arc::clone(&self.conversation.env);
        let is_elsewhere = env.shared.process.outside.project().is_some();
        if !self.conversation.work.surroundings || is_elsewhere {
            return;
        }
        let until = Instant::now() + GATHERING_TIME;
        let shared = Arc::clone(&env.shared);
        let (lines, ready) = mpsc::channel(MAX_LINES);
        spawn_blocking(move || gather(&env, &lines));
        shared.surroundings.set(known_in_time(ready, until).boxed().shared()).ok();
    }

    /// Asks the programs whose versions are not known, once in a process. The next process has their answers.
    pub(super) fn learn_tool_versions(&self) {
        let env = Arc::clone(&self.conversation.env);
        let is_wanted = env.shared.surroundings.get().is_some();
        let can_ask = is_wanted && env.shared.rules.get().can_confine;
        if !can_ask || HAS_ASKED.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(file) = versions_file(&env) else { return };
        let stop = self.host.stop_token();
        self.host.spawn(async move {
            let learning = learn_versions(move || own_environment(&env), file);
            stop.run_until_cancelled(learning).await;
        });
    }
}

/// A line with its name.
type Line = (&'static str, String);

/// Waits until all lines are known, or until then. Returns those that are.
async fn known_in_time(mut ready: mpsc::Receiver<Line>, until: Instant) -> Option<Arc<str>> {
    let mut known = BTreeMap::new();
    while let Ok(Some((name, words))) = timeout_at(until, ready.recv()).await {
        known.insert(name, words);
    }
    (!known.is_empty()).then(|| fitting(known).into())
}

/// Sends the lines as soon as they are known, the quickest first. Blocks.
fn gather(env: &ToolEnv, lines: &mpsc::Sender<Line>) {
    let mut tell = |name, words| {
        lines.try_send((name, words)).ok();
    };
    tell("network", network(env));
    tell("shell", shell());
    let versions = versions_file(env);
    let folder = env.files.roots().real_cwd();
    describe(folder, &own_environment(env), versions.as_deref(), &mut tell);
}

/// The file with the versions of programs; `None` without a state folder.
fn versions_file(env: &ToolEnv) -> Option<PathBuf> {
    let state = &env.shared.process.folders.state;
    state.is_absolute().then(|| state.join("tool-versions.json"))
}

/// The environment in which programs are looked up: none of the project's own.
fn own_environment(env: &ToolEnv) -> Environment {
    let roots = env.files.roots();
    env.shared.command_environment.for_silent_command(|folder| {
        real_path(folder).is_ok_and(|real| !roots.folders().any(|root| real.starts_with(root)))
    })
}

/// Says what commands may reach and write, if they are confined; empty if they are not.
fn network(env: &ToolEnv) -> String {
    let shared = &env.shared;
    if shared.mode.get() == Mode::Full || !shared.rules.get().can_confine {
        return String::new();
    }
    let reached = match shared.confinement.network {
        Network::Off => "none in commands",
        Network::Loopback => "none in commands but localhost of their own",
        Network::Internet => "the internet in commands",
        Network::On => "all of it in commands",
    };
    let writable = match shared.confinement.writable.len() {
        0 => "the project and the temporary folder".to_owned(),
        others => format!("the project, the temporary folder and {others} more"),
    };
    format!("{reached}; writable: {writable}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_known_in_time_is_told() {
        let (lines, ready) = mpsc::channel(MAX_LINES);
        lines.try_send(("shell", "bash".to_owned())).unwrap();
        let told = known_in_time(ready, Instant::now() + GATHERING_TIME).await.unwrap();
        assert!(told.ends_with("\nshell: bash\n"), "{told}");
        // The others come too late.
        assert!(lines.try_send(("tools", "git".to_owned())).is_err());
        let (_lines, ready) = mpsc::channel(MAX_LINES);
        assert_eq!(known_in_time(ready, Instant::now() + GATHERING_TIME).await, None);
    }
}
