//! What the tools cost from end to end: from the end of the answer with the call to the request
//! with its result.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Rounds;
use crate::agent::{Agent, pause};
use crate::latency::{count, prompt_to_request, tool_round};
use crate::model::Model;
use crate::table::{Table, median, ms};
use crate::usage;

/// Files of some thousand lines.
pub(crate) fn files(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let line = |it| format!("    let value_{it} = compute({it});\n");
    let lines = |count: usize| (0..count).map(line).collect::<String>();
    fs::write(agent.folder().join("long.rs"), lines(2_000))?;
    fs::write(agent.folder().join("longer.rs"), lines(5_000))?;
    let session = agent.new_session()?;
    granted(&mut agent, &session, "edit 0")?;
    let (mut reads, mut edits) = (vec![], vec![]);
    for number in 1..=rounds.turns {
        // One that has not read it: what has been read goes along with every request.
        let reader = agent.new_session()?;
        agent.turn(&reader, "say")?;
        reads.push(tool_round(&mut agent, model, &reader, "look")?);
        edits.push(tool_round(&mut agent, model, &session, &format!("edit {}", number * 50))?);
    }
    table.row("one read_file round, 2 000 lines", median(reads), "ms", 1.0);
    table.row("one edit_file round, 5 000 lines", median(edits), "ms", 10.0);
    let edited = fs::read_to_string(agent.folder().join("longer.rs"))?;
    let missing = rounds.turns + 1 - edited.matches("edited_").count();
    table.row("… edits that are not in the file", count(missing), "", 0.0);
    Ok(())
}

/// Commands, compared with starting and awaiting them here.
pub(crate) fn commands(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    granted(&mut agent, &session, "true")?;
    let (mut bare, mut ours) = (vec![], vec![]);
    for _ in 0..rounds.turns {
        bare.push(shell("true")?);
        pause(5);
        ours.push(tool_round(&mut agent, model, &session, "true")?);
    }
    let (bare, ours) = (median(bare), median(ours));
    table.note("bash -c true, bare", bare, "ms");
    table.row("one exec round of `true`, beyond that", ours - bare, "ms", 5.0);
    Ok(())
}

/// A command that prints a million lines.
pub(crate) fn flood(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let (mut bare, mut ours, mut wire, mut growth) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds.turns.div_ceil(12) {
        let mut agent = Agent::start(model)?;
        let session = agent.new_session()?;
        granted(&mut agent, &session, "true")?;
        pause(300);
        let before = usage::memory(agent.pid())?.rss;
        usage::forget_peak(agent.pid())?;
        let bytes = agent.bytes();
        // The first one asks again: it is another command.
        granted(&mut agent, &session, "count")?;
        wire.push(count(agent.bytes() - bytes) / 1e3);
        growth.push(usage::peak(agent.pid())? - before);
        bare.push(shell("seq 1 1000000")?);
        ours.push(tool_round(&mut agent, model, &session, "count")?);
    }
    let (bare, ours) = (median(bare), median(ours));
    table.note("seq 1 1000000, bare", bare, "ms");
    table.note("… one exec round", ours, "ms");
    table.note("… compared with bare", ours / bare, "×");
    table.row("… bytes to the client", median(wire), "kB", 256.0);
    table.row("… growth of memory, at most", median(growth), "MB", 8.0);
    Ok(())
}

/// The first prompt of a session, which looks for instructions, notes and skills.
pub(crate) fn first_prompts(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    for (name, skills) in [("prompt → request, a session's first", 0), ("… with 20 skills", 20)]
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
            // The commands are announced meanwhile, and what is warm is the process.
            pause(170);
            requests.push(prompt_to_request(&mut agent, model, &session, &mut vec![])?);
        }
        table.row(name, median(requests), "ms", 0.5);
    }
    Ok(())
}

/// A turn whose call is allowed, and those like it with it.
fn granted(agent: &mut Agent, session: &str, prompt: &str) -> io::Result<()> {
    let (id, _) = agent.prompt(session, prompt)?;
    if let Some(question) = agent.answer_or(id, "session/request_permission")? {
        agent.allow_always(&question)?;
        agent.answer(id)?;
    }
    Ok(())
}

/// Milliseconds of a command whose output somebody reads.
fn shell(command: &str) -> io::Result<f64> {
    let begun = Instant::now();
    let mut shell = Command::new("/bin/bash");
    shell.args(["--noprofile", "--norc", "-c", command]).stdin(Stdio::null()).output()?;
    Ok(ms(begun.elapsed()))
}
