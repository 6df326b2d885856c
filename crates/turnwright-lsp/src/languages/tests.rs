//! Tests of the look-up of names, files and servers.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::process::LanguageGate;
use turnwright_sandbox::SandboxProfile;
use turnwright_workspace::exec::{Environment, PipedProgram};
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

#[test]
fn a_name_is_found_as_a_whole_word_on_its_line() {
    let text = "fn sum(a: u8) {}\n// sums\nlet x = sum(1) + checksum(2);\n\u{e4}sum sum";
    let table: [(&str, Option<u32>, &[usize]); 9] = [
        ("sum", None, &[3, 33, 61]),
        ("sum", Some(3), &[33]),
        ("sum", Some(2), &[]),
        ("math::sum", Some(4), &[61]),
        ("x.sum()", Some(3), &[33]),
        ("sums", None, &[20]),
        ("", None, &[]),
        ("nothing", None, &[]),
        ("\u{e4}sum", None, &[55]),
    ];
    for (symbol, line, expected) in table {
        assert_eq!(occurrences(text, symbol, line), expected, "{symbol} {line:?}");
    }
    assert_eq!(occurrences(&"a ".repeat(99), "a", None).len(), MAX_TRIES);
}

#[tokio::test(start_paused = true)]
async fn the_failures_of_a_server_are_forgotten_after_a_while() {
    let failed = |restarts| Started {
        spec: Arc::new(known_servers()[0].clone()),
        root: PathBuf::new(),
        phase: watch::channel(Phase::Idle).1,
        since: Instant::now(),
        restarts,
    };
    let servers = [failed(0), failed(2), failed(MAX_RESTARTS)];
    let next = |has_worked| servers.each_ref().map(|server| server.next_restart(has_worked));
    assert_eq!(next(true), [Some(1), Some(3), None]);
    assert_eq!(next(false), [None; 3]);
    tokio::time::advance(2 * FAILURES_COUNT_FOR).await;
    assert_eq!(next(true), [Some(1); 3]);
    assert_eq!(next(false), [Some(1); 3]);
}

#[tokio::test]
async fn only_text_of_bounded_length_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let real = real_path(dir.path()).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
        std::fs::write(real.join(name), bytes).unwrap();
        real.join(name)
    };
    let text = write("text", b"a\n");
    let binary = write("binary", b"\xff");
    let long = write("long", &vec![b'x'; 1024 * 1024 + 1]);
    assert_eq!(read_text(&text).await.unwrap(), "a\n");
    for file in [&binary, &long, &real] {
        let error = read_text(file).await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::NotFound, "{}", file.display());
    }
    assert_eq!(read_text(&real.join("gone")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A gate that permits no server.
#[derive(Debug)]
struct Closed;

impl LanguageGate for Closed {
    fn profile(&self, _: &LanguageServer, _: &Path) -> Option<SandboxProfile> {
        None
    }
}

/// The servers of a session that may start none by itself.
fn closed(environment: Environment, stop: CancellationToken) -> LanguageServers {
    LanguageServers::new(LanguageSite {
        folders: Vec::new(),
        environment,
        cache: PathBuf::new(),
        memory: 1,
        configured: Vec::new(),
        gate: Arc::new(Closed),
        stop,
        tracker: TaskTracker::new(),
    })
}

#[tokio::test]
async fn the_errors_of_other_files_may_depend_on_an_edit_until_it_is_compared() {
    let servers = closed(Environment::default(), CancellationToken::new());
    let files = ["/w/a.go", "/w/b.go"]
        .map(|path| FileBefore { path: path.into(), errors: ErrorsBefore::Known(Vec::new()) });
    for (file, is_noted) in files.iter().zip([false, true]) {
        servers.0.state.send_modify(|state| {
            state.edited.push(Edited { file: file.clone(), is_due: true });
        });
        servers.finish_edit(file, Instant::now()).await;
        assert_eq!(servers.0.state.borrow().changed.is_some(), is_noted);
    }
}

#[tokio::test]
async fn a_server_is_started_once_for_a_folder_and_at_most_three_run() {
    let stop = CancellationToken::new();
    let environment = Environment::scrubbed(std::iter::empty(), &[]);
    let servers = closed(environment.clone(), stop.clone());
    let launch = |root: &str| Launch {
        spec: Arc::new(known_servers()[0].clone()),
        program: PipedProgram {
            command_line: Vec::new(),
            workdir: root.into(),
            environment: environment.clone(),
            sandbox: Some(SandboxProfile::default()),
        },
        temp: PrivateTempFolder::create().unwrap(),
        memory: 1,
    };
    // Two calls may notice at the same time that a server is missing, before its task has begun.
    let first = servers.start(launch("/a"), 0).unwrap();
    let second = servers.start(launch("/a"), 0).unwrap();
    assert!(first.phase.same_channel(&second.phase));
    for (root, is_started) in [("/b", true), ("/c", true), ("/d", false)] {
        assert_eq!(servers.start(launch(root), 0).is_some(), is_started, "{root}");
    }
    stop.cancel();
    assert!(servers.start(launch("/a"), 0).is_none());
}
