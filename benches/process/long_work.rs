//! Measures a session of 1 000 turns with about 30 compactions: what they cost its prompts, how long loading
//! it takes, and how large its database is.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::Rounds;
use crate::agent::{Agent, model_command, pause, workspace};
use crate::latency::{ms_between, to_f64};
use crate::model::Model;
use crate::table::{Table, median, ms};
use crate::unique_content::unique_content;

/// The window of the model in tokens, the bytes of a prompt, and those of the file that each turn reads. They
/// make about 30 compactions.
const WINDOW: &str = "60000";
const PROMPT_BYTES: usize = 1_300;
const FILE_BYTES: usize = 4_500;
/// The turns whose times are compared: as many as come between two compactions.
const COMPARED: usize = 30;

pub(crate) fn compactions(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let turns = rounds.long_turns;
    let folder = Arc::new(workspace()?);
    let start = || {
        let mut command = model_command(model, folder.path());
        command.env("TURNWRIGHT_CONTEXT_WINDOW", WINDOW);
        let mut agent = Agent::spawn_command(command, Arc::clone(&folder))?;
        agent.initialize()?;
        io::Result::Ok(agent)
    };
    let mut agent = start()?;
    let session = agent.new_session()?;
    let (mut times, mut compacted) = (vec![], 0);
    for number in 0..turns {
        let (prompt, text) =
            (words("read", number, PROMPT_BYTES), words("file", number, FILE_BYTES));
        std::fs::write(folder.path().join("small.txt"), &text)?;
        model.take();
        // Lets the agent finish the background work of the previous turn.
        pause(5);
        let begun = agent.turn(&session, &prompt)?;
        match &model.take()[..] {
            [first, _] => times.push(ms_between(begun, first.received)),
            // A compaction makes a request of its own.
            _ => compacted += 1,
        }
    }
    agent.end()?;
    let last = times.split_off(times.len().saturating_sub(COMPARED));
    // The requests of the first turns are shorter than any after a compaction.
    let early = times.iter().copied().skip(COMPARED).take(COMPARED).collect();
    times.truncate(COMPARED);
    let (first, early, last) = (median(times), median(early), median(last));
    table.note(&format!("compactions in {turns} turns"), to_f64(compacted), "");
    table.note("prompt → request, last turns of them", last, "ms");
    table.row("… compared with those after the first compaction", last / early, "×", 1.2);
    table.note("… compared with the first", last / first, "×");
    let state = folder.path().join("state");
    let size = size_of(&state)?;
    let unique = unique_content(&state, &session)?;
    table.note("unique content of the database", to_f64(unique) / 1e6, "MB");
    table.note("size of the database", size / 1e6, "MB");
    table.row("… compared with that content", size / to_f64(unique), "×", 1.2);

    let mut agent = start()?;
    let begun = Instant::now();
    let request = agent.load(&session)?;
    agent.wait_for("user_message_chunk")?;
    table.row("session/load of it, first update", ms(begun.elapsed()), "ms", 100.0);
    agent.answer(request)?;
    table.row("… all updates", ms(begun.elapsed()), "ms", 1_000.0);
    Ok(())
}

/// A text, each with other words.
fn words(first: &str, number: usize, bytes: usize) -> String {
    let mut text = format!("{first} {number}: ");
    let mut noise = (number + bytes) as u64;
    while text.len() < bytes {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Longer lines would be cut when the file is read.
        let space = if noise.is_multiple_of(8) { '\n' } else { ' ' };
        text.push_str(&format!("{:x}{space}", noise >> 40));
    }
    text
}

/// The size of the database and its log in a state folder, without the index of the log, which is in memory.
fn size_of(state: &Path) -> io::Result<f64> {
    let mut bytes = 0;
    for file in std::fs::read_dir(state)? {
        let file = file?;
        if [".db", ".db-wal"].iter().any(|it| file.file_name().to_string_lossy().ends_with(it)) {
            bytes += file.metadata()?.len();
        }
    }
    Ok(to_f64(usize::try_from(bytes).unwrap_or(usize::MAX)))
}
