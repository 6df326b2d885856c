//! Tests of the guard around calls of MCP servers.

use std::fs;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::*;
use crate::tools::{ProcessShared, SessionShared, UserFolders};
use crate::turn::fixture::turn_fixture;

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
async fn a_call_that_panics_is_checked_too() {
    let project = tempfile::tempdir().unwrap();
    let root = real_path(project.path()).unwrap();
    let fixture = turn_fixture(Vec::new(), false, None);
    let client = Arc::clone(&fixture.client);
    let mut env = Arc::into_inner(fixture.conversation.env).unwrap();
    let mut shared = SessionShared::default();
    shared.confinement.protected = ProtectedPaths::new(vec![root.clone()], Vec::new());
    let state = tempfile::tempdir().unwrap();
    let folders = UserFolders { state: state.path().to_path_buf(), ..UserFolders::default() };
    shared.process = Arc::new(ProcessShared::new(folders));
    env.shared = Arc::new(shared);
    let env = Arc::new(env);
    let trap = root.join(".envrc");
    let call = async {
        let _guard = RemoteCallGuard::new(Arc::clone(&env), "1");
        fs::write(&trap, "x").unwrap();
        panic!("a bug");
    };
    assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
    env.shared.guard.close().await;
    assert!(!trap.exists());
    assert!(env.shared.guard.watches.lock().is_empty());
    let updates = client.updates.lock();
    assert!(matches!(&updates[..], [Update::Notice(it)] if it.contains("created")), "{updates:?}");
}
