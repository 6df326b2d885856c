//! One session in each version of the protocol that uses what most sessions use, for a profiler: start,
//! prompts, a read, an edit and a command with permission, a cancellation, an MCP server with two tools,
//! and the end of stdin. See `release/record-order`.

use std::fs;
use std::io;
use std::process::Command;

use crate::agent::{Agent, pause, speak_version, workspace};
use crate::model::Model;
use crate::servers::{open, servers};

/// Settings such as most users have.
const SETTINGS: &str =
    "mode = 'ask'\n[permissions]\nallow = ['exec(npm test *)']\ndeny = ['read(.env)']\n";

/// A session that is opened and not used. The pause is long enough for what runs in the background.
pub(crate) fn start() -> io::Result<()> {
    in_both_versions(start_once)
}

pub(crate) fn run() -> io::Result<()> {
    in_both_versions(run_once)
}

fn in_both_versions(walk: fn() -> io::Result<()>) -> io::Result<()> {
    [1, 2].into_iter().try_for_each(|version| {
        speak_version(version);
        walk()
    })
}

fn start_once() -> io::Result<()> {
    let model = Model::start()?;
    let folder = workspace()?;
    fs::create_dir(folder.path().join("config"))?;
    fs::write(folder.path().join("config/config.toml"), SETTINGS)?;
    // Most projects are repositories. Without git this one is none.
    for arguments in [&["init", "--quiet"][..], &["add", "small.txt"]] {
        Command::new("git").args(arguments).current_dir(folder.path()).status().ok();
    }
    let mut agent = Agent::spawn(&model, folder)?;
    agent.initialize()?;
    agent.new_session()?;
    // A profiler slows the program down.
    pause(10_000);
    agent.end()
}

fn run_once() -> io::Result<()> {
    let model = Model::start()?;
    let mut agent = Agent::start(&model)?;
    let line = |it| format!("    let value_{it} = compute({it});\n");
    fs::write(agent.folder().join("longer.rs"), (0..200).map(line).collect::<String>())?;
    let session = agent.new_session()?;
    for prompt in ["say", "read", "edit 3", "true", "burst 100"] {
        agent.turn_with_approval(&session, prompt)?;
    }
    let (id, _) = agent.prompt(&session, "hang")?;
    agent.wait_for("begun")?;
    agent.cancel(&session)?;
    agent.answer(id)?;
    let (_, session) = open(&mut agent, &servers(1, 2)?)?;
    pause(10_000);
    for prompt in ["remote", "change", "remote"] {
        agent.turn_with_approval(&session, prompt)?;
    }
    agent.end()
}
