//! Measures tool rounds: the time from the end of the response with the call to the request with the
//! result.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Rounds;
use crate::agent::{Agent, pause};
use crate::latency::{prompt_to_request, to_f64, tool_round};
use crate::model::Model;
use crate::table::{Table, median, ms};
use crate::usage;

/// Measures `read_file` and `edit_file` with files of some thousand lines.
pub(crate) fn files(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let line = |it| format!("    let value_{it} = compute({it});\n");
    let lines = |count: usize| (0..count).map(line).collect::<String>();
    fs::write(agent.folder().join("long.rs"), lines(2_000))?;
    fs::write(agent.folder().join("longer.rs"), lines(5_000))?;
    let session = agent.new_session()?;
    agent.turn_with_approval(&session, "edit 0")?;
    let (mut reads, mut edits) = (vec![], vec![]);
    for number in 1..=rounds.turns {
        // A new session, because each request contains the results of all earlier reads.
        let reader = agent.new_session()?;
        agent.turn(&reader, "say")?;
        reads.push(tool_round(&mut agent, model, &reader, "look")?);
        edits.push(tool_round(&mut agent, model, &session, &format!("edit {}", number * 50))?);
    }
    table.row("read_file round, 2 000 lines", median(reads), "ms", 1.0);
    table.row("edit_file round, 5 000 lines", median(edits), "ms", 10.0);
    let edited = fs::read_to_string(agent.folder().join("longer.rs"))?;
    let missing = rounds.turns + 1 - edited.matches("edited_").count();
    table.row("… edits missing from the file", to_f64(missing), "", 0.0);
    Ok(())
}

/// Measures what the agent adds to the duration of a short command.
pub(crate) fn commands(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    agent.turn_with_approval(&session, "true")?;
    let (mut direct, mut through_agent) = (vec![], vec![]);
    for _ in 0..rounds.turns {
        direct.push(run_in_shell("true")?);
        pause(5);
        through_agent.push(tool_round(&mut agent, model, &session, "true")?);
    }
    let (direct, through_agent) = (median(direct), median(through_agent));
    table.note("bash -c true, without the agent", direct, "ms");
    table.row("exec round of `true`, minus that", through_agent - direct, "ms", 2.0);
    Ok(())
}

/// Measures a command that prints a million lines.
pub(crate) fn flood(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let (mut direct, mut through_agent) = (vec![], vec![]);
    let (mut sent, mut growth) = (vec![], vec![]);
    for _ in 0..rounds.turns.div_ceil(12) {
        let mut agent = Agent::start(model)?;
        let session = agent.new_session()?;
        agent.turn_with_approval(&session, "true")?;
        pause(300);
        let before = usage::memory(agent.pid())?.rss;
        usage::reset_peak(agent.pid())?;
        let bytes = agent.bytes();
        // The permission for `true` does not cover this command.
        agent.turn_with_approval(&session, "count")?;
        sent.push(to_f64(agent.bytes() - bytes) / 1e3);
        growth.push(usage::peak(agent.pid())? - before);
        direct.push(run_in_shell("seq 1 1000000")?);
        through_agent.push(tool_round(&mut agent, model, &session, "count")?);
    }
    let (direct, through_agent) = (median(direct), median(through_agent));
    table.note("seq 1 1000000, without the agent", direct, "ms");
    table.note("… exec round", through_agent, "ms");
    table.note("… compared with no agent", through_agent / direct, "×");
    table.row("… bytes sent to the client", median(sent), "kB", 256.0);
    table.row("… peak RSS growth", median(growth), "MB", 8.0);
    Ok(())
}

/// Measures the first prompt of a session, at which the agent looks for instructions, notes and skills.
pub(crate) fn first_prompts(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    for (name, skills) in [("prompt → request, first of a session", 0), ("… with 20 skills", 20)]
    {
        for number in 0..skills {
            let folder = agent.folder().join(format!(".agents/skills/skill-{number}"));
            fs::create_dir_all(&folder)?;
            let head = format!("---\nname: skill-{number}\ndescription: What it is for.\n---\n");
            fs::write(folder.join("SKILL.md"), head + &"Do this and that.\n".repeat(100))?;
        }
        let mut requests = vec![];
        for _ in 0..rounds.turns {
            let session = agent.new_session()?;
            // Waits for `available_commands_update`, which the agent sends 150 ms after `session/new`.
            pause(170);
            requests.push(prompt_to_request(&mut agent, model, &session, &mut vec![])?);
        }
        table.row(name, median(requests), "ms", 0.5);
    }
    Ok(())
}

/// Runs a command without the agent and reads its output. Returns the duration in milliseconds.
fn run_in_shell(command: &str) -> io::Result<f64> {
    let begun = Instant::now();
    let mut shell = Command::new("/bin/bash");
    shell.args(["--noprofile", "--norc", "-c", command]).stdin(Stdio::null()).output()?;
    Ok(ms(begun.elapsed()))
}
