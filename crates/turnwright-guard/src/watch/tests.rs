//! Tests of the guard around calls of MCP servers.

use std::fs;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::confinement::ConfinementSettings;
use turnwright_types::client::{
    Client, PermissionAnswer, PermissionRequest, UserQuestion, UserReply,
};
use turnwright_types::update::Update;
use turnwright_workspace::files::Roots;

/// A client that notes its updates and answers nothing.
#[derive(Default)]
pub(super) struct NotingClient(Mutex<Vec<Update>>);

impl Client for NotingClient {
    fn update(&self, update: Update) {
        self.0.lock().push(update);
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn request_permission(&self, _: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(std::future::pending())
    }

    fn ask_user(&self, _: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(std::future::pending())
    }
}

/// The site of a session in this folder.
pub(super) fn site_in(root: &Path, state: &Path, client: Arc<dyn Client>) -> CommandSite {
    let protected = ProtectedPaths::new(vec![root.to_path_buf()], Vec::new());
    CommandSite {
        roots: Arc::new(Roots::new(root).unwrap()),
        environment: Arc::default(),
        settings: Arc::new(ConfinementSettings { protected, ..ConfinementSettings::default() }),
        guard: Arc::default(),
        network: Arc::default(),
        tracker: Arc::default(),
        opened_places: Arc::default(),
        state_folder: state.to_path_buf(),
        outputs: state.join("outputs"),
        client,
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
async fn a_call_that_panics_is_checked_too() {
    let project = tempfile::tempdir().unwrap();
    let root = real_path(project.path()).unwrap();
    let state = tempfile::tempdir().unwrap();
    let client = Arc::new(NotingClient::default());
    let site = site_in(&root, state.path(), client.clone());
    let trap = root.join(".envrc");
    let call = async {
        let _guard = RemoteCallGuard::new(site.clone(), "1");
        fs::write(&trap, "x").unwrap();
        panic!("a bug");
    };
    assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
    site.guard.close().await;
    assert!(!trap.exists());
    assert!(site.guard.state.lock().watches.is_empty());
    let updates = client.0.lock();
    assert!(
        matches!(&updates[..], [Update::Notice(text)] if text.contains("created")),
        "{updates:?}"
    );
}
