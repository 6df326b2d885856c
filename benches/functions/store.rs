//! Measures what storing a session costs.

use std::io;
use std::time::{Duration, Instant};

use serde_json::json;
use turnwright_store::{CallOutcome, Durability, SessionLog, Store, StoreError, TurnKind};
use turnwright_types::file_change::ChangeIntent;
use turnwright_types::ids::{CallId, SessionId};

use crate::seed::seed;
use crate::table::Table;

/// Commits per measurement.
const COMMITS: usize = 300;
/// Turns of the session whose size is measured.
const TURNS: usize = 1_000;

pub(crate) fn measure() -> io::Result<()> {
    let mut table = Table::begin("the session store");
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    open(&runtime, &Store::new(&state))?;
    table.note("a new store", ms(begun.elapsed()), "ms");
    {
        let store = Store::new(&state);
        commits(&runtime, &mut table, &store)?;
        let seeded = seed(&store, &SessionId::random(), folder.path(), TURNS)?;
        runtime.block_on(store.flush()).map_err(io::Error::other)?;
        drop(store);
        // The last connection to close moves the write-ahead log into the database.
        std::thread::sleep(Duration::from_millis(300));
        let size = |it: &str| std::fs::metadata(state.join(it)).map_or(0, |it| it.len());
        let size = size("sessions.db") + size("sessions.db-wal");
        table.row("stored bytes per unique byte", ratio(size, seeded.unique), "×", 1.2);
    }
    let opened = (0..20).map(|_| {
        let begun = Instant::now();
        open(&runtime, &Store::new(&state)).map(|()| begun.elapsed())
    });
    let opened = opened.collect::<io::Result<Vec<_>>>()?;
    table.row("an existing store", ms(median(opened)), "ms", 5.0);
    table.end();
    Ok(())
}

fn open(runtime: &tokio::runtime::Runtime, store: &Store) -> io::Result<()> {
    let opened =
        runtime.block_on(store.write(Durability::ProcessCrash, |_| Ok::<_, StoreError>(())));
    opened.map_err(io::Error::other)
}

fn commits(runtime: &tokio::runtime::Runtime, table: &mut Table, store: &Store) -> io::Result<()> {
    let id = SessionId::random();
    seed(store, &id, "/nowhere".as_ref(), 1)?;
    let log = SessionLog::new(store.clone(), id);
    log.resume_after((10, 1));
    log.begin_turn(TurnKind::Prompt, "a prompt".to_owned());
    let call = CallId::from("call-12");
    let time = |durability| {
        let times = (0..COMMITS).map(|_| {
            let begun = Instant::now();
            runtime
                .block_on(log.record_intent(&call, ChangeIntent::default(), durability).written());
            begun.elapsed()
        });
        median(times.collect())
    };
    table.row("a commit that survives the process", ms(time(Durability::ProcessCrash)), "ms", 1.0);
    table.note("… that survives a power failure", ms(time(Durability::PowerLoss)), "ms");
    let settled = CallOutcome {
        is_success: true,
        text: "a line of a result\n".repeat(500),
        raw_output: json!({ "lines": 500 }),
        ..CallOutcome::default()
    };
    let times = (0..COMMITS).map(|_| {
        let begun = Instant::now();
        runtime.block_on(log.finish_call(&call, settled.clone()).written());
        begun.elapsed()
    });
    table.row("… with a result of 9 KB", ms(median(times.collect())), "ms", 1.0);
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

#[expect(clippy::cast_precision_loss, reason = "sizes of files")]
fn ratio(size: u64, of: usize) -> f64 {
    size as f64 / of as f64
}
