//! Measures other ACP agents beside this one: `cargo bench --bench process -- --peers`. npm installs
//! them into `target/peers`; without npm, or without the network, they are skipped. All of them talk to
//! the same model server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use crate::Rounds;
use crate::agent::{Agent, pause, workspace};
use crate::latency::{ms_between, nth};
use crate::model::Model;
use crate::table::{median, ms};
use crate::usage;

/// How many times longer every time of another agent is supposed to be.
const GOAL: f64 = 10.0;

/// Another agent. nanocoder, which was to be among them, speaks no ACP as of 1.30.
struct Peer {
    name: &'static str,
    package: &'static str,
    /// The program below `node_modules`.
    program: &'static str,
    arguments: fn(url: &str) -> Vec<String>,
    /// The method to authenticate with.
    authentication: Option<&'static str>,
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "codex-acp",
        package: "@zed-industries/codex-acp@0.16.0",
        program: "@zed-industries/codex-acp-linux-x64/bin/codex-acp",
        arguments: |url| {
            let provider = format!(
                "model_providers.bench={{name=\"bench\",base_url=\"{url}\",wire_api=\"responses\",\
                 env_key=\"OPENAI_API_KEY\"}}"
            );
            ["-c", "model=bench", "-c", "model_provider=bench", "-c", &provider]
                .map(str::to_owned)
                .into()
        },
        authentication: None,
    },
    Peer {
        name: "qwen-code",
        package: "@qwen-code/qwen-code@0.15.10",
        program: ".bin/qwen",
        arguments: |_| vec!["--acp".to_owned()],
        authentication: Some("openai"),
    },
];

/// The figures of one agent, in the order of [`ROWS`].
type Figures = [f64; ROWS.len()];

const ROWS: [(&str, &str); 6] = [
    ("exec → response to initialize", "ms"),
    ("session/new", "ms"),
    ("prompt → request at the model", "ms"),
    ("first delta → first chunk on stdout", "ms"),
    ("idle with one session, PSS", "MB"),
    ("size of the first request", "KiB"),
];
/// The number of rows that are times.
const TIMES: usize = 4;

pub(crate) fn measure(rounds: Rounds) -> io::Result<()> {
    let model = Model::start()?;
    let own = figures(&model, rounds, &|folder| Agent::spawn(&model, folder), None)?;
    let mut all = vec![("turnwright", own)];
    for peer in &PEERS {
        let found = install(peer).and_then(|program| {
            let start = |folder: TempDir| {
                let url = format!("http://{}/v1", model.address());
                let mut command = Command::new(&program);
                command.args((peer.arguments)(&url)).env_clear().current_dir(folder.path());
                command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
                for name in ["HOME", "CODEX_HOME"] {
                    command.env(name, folder.path());
                }
                command.env("OPENAI_BASE_URL", &url).env("OPENAI_MODEL", "bench");
                command.env("OPENAI_API_KEY", "sk-bench-0123456789");
                Agent::spawn_command(command, folder)
            };
            figures(&model, rounds, &start, peer.authentication)
        });
        match found {
            Ok(figures) => all.push((peer.name, figures)),
            Err(error) => println!("SKIPPED: {} is not measured: {error}", peer.name),
        }
    }
    print(&all);
    Ok(())
}

fn print(all: &[(&str, Figures)]) {
    print!("\n{:<40}", "median");
    for (agent, _) in all {
        print!("{agent:>24}");
    }
    println!();
    let mut short = 0;
    for (row, (name, unit)) in ROWS.iter().enumerate() {
        print!("{name:<40}");
        for (number, (_, figures)) in all.iter().enumerate() {
            let figure = format!("{:.2} {unit}", figures[row]);
            let ratio = figures[row] / all[0].1[row];
            let ratio = if number == 0 { String::new() } else { format!(" ({ratio:.0} ×)") };
            print!("{:>24}", figure + &ratio);
            short += usize::from(number > 0 && row < TIMES && figures[row] < all[0].1[row] * GOAL);
        }
        println!();
    }
    println!("\n{short} times of others are less than {GOAL} times as long");
}

/// Installs an agent, unless it is there already. Returns its program.
fn install(peer: &Peer) -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers").join(peer.name);
    let program = folder.join("node_modules").join(peer.program);
    if !program.exists() {
        fs::create_dir_all(&folder)?;
        println!("installing {} …", peer.package);
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--silent",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
        ])
        .arg(&folder);
        let status = npm.arg(peer.package).stdout(Stdio::null()).status()?;
        if !status.success() || !program.exists() {
            return Err(io::Error::other("npm could not install it"));
        }
    }
    Ok(program)
}

fn figures(
    model: &Model,
    rounds: Rounds,
    start: &dyn Fn(TempDir) -> io::Result<Agent>,
    authentication: Option<&str>,
) -> io::Result<Figures> {
    let (mut initialize, mut new_session, mut memory) = (vec![], vec![], vec![]);
    let (mut requests, mut chunks, mut sizes) = (vec![], vec![], vec![]);
    for _ in 0..rounds.starts.div_ceil(5) {
        let begun = Instant::now();
        let mut agent = start(workspace()?)?;
        agent.initialize()?;
        initialize.push(ms(begun.elapsed()));
        if let Some(method) = authentication {
            let id = agent.request("authenticate", &json!({ "methodId": method }))?;
            agent.answer(id)?;
        }
        let begun = Instant::now();
        let session = agent.new_session()?;
        new_session.push(ms(begun.elapsed()));
        pause(500);
        memory.push(usage::memory_of_tree(agent.pid())?);
        model.take();
        agent.turn(&session, "say")?;
        let bytes = nth(model.take(), 0)?.bytes;
        sizes.push(f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1024.0);
        for _ in 0..rounds.turns.div_ceil(10) {
            pause(20);
            model.take();
            let (id, begun) = agent.prompt(&session, "slow")?;
            agent.wait_for("begun")?;
            let seen = Instant::now();
            agent.answer(id)?;
            let exchange = nth(model.take(), 0)?;
            requests.push(ms_between(begun, exchange.received));
            let written = nth(exchange.writes, 1)?;
            chunks.push(ms_between(written, seen));
        }
    }
    let all = [initialize, new_session, requests, chunks, memory, sizes];
    Ok(all.map(median))
}
