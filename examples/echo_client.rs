//! A small ACP client: starts an agent, sends prompts and prints the updates. Try
//! `cargo run --example echo_client -- "read README.md"`, then `--raw` to see every message. `Client`
//! speaks the protocol, `Screen` prints. This client offers the agent neither files nor terminals: the
//! agent can only ask for permission.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the ban applies to the agent; this program is the client"
)]

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};
use std::{collections::HashMap, env, fmt::Display, fs, ops::RangeFrom, thread, time};

use clap::Parser;
use serde_json::{Value, json};
use similar::{Algorithm, udiff::unified_diff};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::{signal::ctrl_c, sync::mpsc, time::timeout};

const AUTH_REQUIRED: i64 = -32000;
const STDIN: &str = "-";
const TERMINAL: &str = if cfg!(windows) { "CONIN$" } else { "/dev/tty" };
const OFFLINE_NOTE: &str = "No model is configured: using the built-in offline model. \
    Set OPENAI_API_KEY (and OPENAI_BASE_URL, TURNWRIGHT_MODEL) for a real one.";
const AFTER_HELP: &str = "Ctrl-C cancels the turn, a second Ctrl-C ends the program.\n
Exit status: 0 end_turn, 1 could not start, 2 error, 3 cancelled, 4 refusal, 5 max_tokens,
6 max_turn_requests, 130 interrupted; for several prompts, that of the last one.";
/// The index of a stop reason is its exit status.
const STOP_REASONS: [&str; 7] =
    ["end_turn", "-", "-", "cancelled", "refusal", "max_tokens", "max_turn_requests"];
const PLAIN: &str = "";
const THOUGHT: &str = "\x1b[2;3m";
const CARD: &str = "\x1b[1m";
const NOTE: &str = "\x1b[2m";

/// Start an ACP agent, send it prompts and print the updates
#[derive(Parser)]
#[command(name = "echo_client", after_help = AFTER_HELP)]
struct ClientArgs {
    /// The prompt; without one, each line of stdin is a prompt
    prompt: Vec<String>,
    /// The agent's program [default: this package's turnwright, built if needed]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Working folder of the session
    #[arg(long, value_name = "DIR", default_value = ".")]
    cwd: PathBuf,
    /// Authenticate with this method first
    #[arg(long, value_name = "METHOD")]
    auth: Option<String>,
    /// Allow every request
    #[arg(long, conflicts_with = "no")]
    yes: bool,
    /// Reject every request
    #[arg(long)]
    no: bool,
    /// Show every message on stderr: → to the agent, ← from it
    #[arg(long)]
    raw: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match ClientArgs::try_parse() {
        Ok(arguments) => run(arguments).await,
        Err(usage) => Ok(usage.print().map_or(1, |()| u8::from(usage.use_stderr()))),
    };
    ExitCode::from(outcome.unwrap_or_else(|failure| failure.report()))
}

async fn run(arguments: ClientArgs) -> Result<u8, Failure> {
    let mut client = Client::start(arguments)?;
    // After a failure, or if it does not end by itself, the agent is killed on drop.
    let status = client.converse().await?;
    drop(client.outgoing);
    drop(timeout(time::Duration::from_secs(2), client.agent.wait()).await);
    Ok(status)
}

/// `error` has the shape of a JSON-RPC error. It has a code if it is an answer of the agent.
struct Failure {
    status: u8,
    error: Value,
}

impl Failure {
    fn new(status: u8, reason: impl Display) -> Failure {
        Failure { status, error: json!({ "message": reason.to_string() }) }
    }

    /// Prints the error and returns the exit status.
    fn report(&self) -> u8 {
        let details = indented(&text(&self.error["data"]["details"]), usize::MAX);
        eprint!("error: {}\n{details}", text(&self.error["message"]));
        self.status
    }
}

struct Client {
    arguments: ClientArgs,
    agent: Child,
    outgoing: ChildStdin,
    incoming: Lines<BufReader<ChildStdout>>,
    /// Readers by source. Opened when a line is needed, because earlier input may be for the shell.
    inputs: HashMap<&'static str, mpsc::Receiver<String>>,
    screen: Screen,
    ids: RangeFrom<u64>,
    session: Value,
    /// Whether a turn runs that has not been cancelled.
    running: bool,
}

impl Client {
    fn start(arguments: ClientArgs) -> Result<Client, Failure> {
        let program = arguments.agent.clone().map_or_else(built_agent, Ok)?;
        let mut command = Command::new(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // The terminal sends Ctrl-C to its process group, but the agent is cancelled by protocol.
        #[cfg(unix)]
        command.process_group(0);
        let failure = |why| Failure::new(1, format!("cannot start {}: {why}", program.display()));
        let mut agent = command.spawn().map_err(failure)?;
        let pipes = agent.stdin.take().zip(agent.stdout.take());
        let (outgoing, incoming) = pipes.ok_or_else(|| Failure::new(1, "no pipes"))?;
        Ok(Client {
            arguments,
            agent,
            outgoing,
            incoming: BufReader::new(incoming).lines(),
            inputs: HashMap::new(),
            screen: Screen::default(),
            ids: 1..,
            session: Value::Null,
            running: false,
        })
    }

    async fn converse(&mut self) -> Result<u8, Failure> {
        self.open_session().await?;
        if !self.arguments.prompt.is_empty() {
            return self.prompt(&self.arguments.prompt.join(" ")).await;
        }
        let mut status = 0;
        while let Some(line) = self.read_line("> ").await? {
            status = self.prompt(line.trim()).await?;
        }
        Ok(status)
    }

    async fn open_session(&mut self) -> Result<(), Failure> {
        let files = json!({ "readTextFile": false, "writeTextFile": false });
        let capabilities = json!({ "fs": files, "terminal": false });
        let info = json!({ "name": "echo_client", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities,
            "clientInfo": info });
        let agent = self.request("initialize", params).await?;
        if let Some(method) = &self.arguments.auth {
            self.request("authenticate", json!({ "methodId": method })).await?;
        }
        let cwd = fs::canonicalize(&self.arguments.cwd);
        let cwd = cwd.map_err(|error| Failure::new(1, format!("--cwd: {error}")))?;
        let params = json!({ "cwd": cwd.to_string_lossy(), "mcpServers": [] });
        let mut answer = self.request("session/new", params.clone()).await;
        let signed_out = answer.as_ref().is_err_and(|it| it.error["code"] == AUTH_REQUIRED);
        let offline = |it: &Value| it["id"] == "offline" && it["type"] != "terminal";
        if signed_out && list(&agent["authMethods"]).iter().any(offline) {
            eprintln!("{OFFLINE_NOTE}");
            self.request("authenticate", json!({ "methodId": "offline" })).await?;
            answer = self.request("session/new", params).await;
        }
        self.session = json!({ "sessionId": answer?["sessionId"] });
        Ok(())
    }

    /// Runs a turn and returns the exit status for its stop reason.
    async fn prompt(&mut self, prompt: &str) -> Result<u8, Failure> {
        let mut params = self.session.clone();
        params["prompt"] = json!([{ "type": "text", "text": prompt }]);
        self.running = true;
        let answer = self.request("session/prompt", params).await;
        self.running = false;
        self.screen.end_line();
        match answer {
            Ok(result) => Ok(exit_status(&text(&result["stopReason"]))),
            // Only the turn has failed: the next prompt may succeed.
            Err(failure) if failure.error["code"].is_number() => Ok(failure.report()),
            Err(failure) => Err(failure),
        }
    }

    /// Sends a request, and handles messages of the agent until the answer arrives.
    async fn request(&mut self, method: &str, params: Value) -> Result<Value, Failure> {
        let id = json!(self.ids.next());
        self.send(json!({ "id": id, "method": method, "params": params })).await;
        loop {
            let message = self.receive().await?;
            let params = &message["params"];
            let mut answer = json!({ "id": message["id"] });
            match text(&message["method"]).as_str() {
                "" if message["id"] != id => continue,
                "" if message["error"].is_null() => return Ok(message["result"].clone()),
                "" => return Err(Failure { status: 2, error: message["error"].clone() }),
                "session/update" => self.screen.update(&params["update"]),
                "session/request_permission" => answer["result"] = self.permission(params).await?,
                _ => answer["error"] = json!({ "code": -32601, "message": "method not found" }),
            }
            // A message without an id is a notification and gets no answer.
            if !message["id"].is_null() {
                self.send(answer).await;
            }
        }
    }

    async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        if self.arguments.raw {
            eprintln!("→ {message}");
        }
        // If the agent is gone, `receive` returns the error.
        drop(self.outgoing.write_all(format!("{message}\n").as_bytes()).await);
    }

    async fn receive(&mut self) -> Result<Value, Failure> {
        let line = loop {
            tokio::select! {
                line = self.incoming.next_line() => break line,
                Ok(()) = ctrl_c() => self.interrupt().await?,
            }
        };
        let Ok(Some(line)) = line else { return Err(Failure::new(2, "the agent exited")) };
        if self.arguments.raw {
            eprintln!("← {line}");
        }
        serde_json::from_str(&line)
            .map_err(|_| Failure::new(2, format!("not a JSON message: {line}")))
    }

    async fn interrupt(&mut self) -> Result<(), Failure> {
        if !self.running {
            return Err(Failure::new(130, "interrupted"));
        }
        self.running = false;
        self.send(json!({ "method": "session/cancel", "params": self.session })).await;
        Ok(())
    }

    async fn permission(&mut self, params: &Value) -> Result<Value, Failure> {
        let options = list(&params["options"]);
        self.screen.question(&params["toolCall"], options);
        let rejection = find_option(options, ["reject_once", "reject_always"]);
        let chosen = match self.arguments {
            _ if !self.running => None,
            ClientArgs { yes: true, .. } => find_option(options, ["allow_once", "allow_always"]),
            ClientArgs { no: true, .. } => rejection,
            _ => {
                let line =
                    self.read_line("  number (anything else rejects)? ").await?.unwrap_or_default();
                options.get(line.trim().parse::<usize>().unwrap_or(0).wrapping_sub(1)).or(rejection)
            }
        };
        // The protocol requires `cancelled` for every question of a cancelled turn.
        let Some(option) = chosen.filter(|_| self.running) else {
            return Ok(json!({ "outcome": { "outcome": "cancelled" } }));
        };
        eprintln!("  → {}", text(&option["name"]));
        Ok(json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } }))
    }

    /// Reads the next line: a prompt or, during a turn, an answer.
    async fn read_line(&mut self, question: &str) -> Result<Option<String>, Failure> {
        // Two readers of one terminal would steal each other's lines.
        let piped = !io::stdin().is_terminal();
        let source = if piped && self.running { TERMINAL } else { STDIN };
        eprint!("{}", if piped && source == STDIN { "" } else { question });
        let lines = self.inputs.entry(source).or_insert_with(|| spawn_reader(source));
        tokio::select! {
            line = lines.recv() => Ok(line),
            Ok(()) = ctrl_c() => self.interrupt().await.map(|()| None),
        }
    }
}

/// Reads lines on a thread, because reading a terminal can be neither awaited nor cancelled.
fn spawn_reader(source: &'static str) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        let source: Box<dyn Read> = match fs::File::open(TERMINAL) {
            _ if source == STDIN => Box::new(io::stdin()),
            Ok(terminal) => Box::new(terminal),
            Err(error) => return eprintln!("no terminal to ask on: {error}"),
        };
        let lines = io::BufReader::new(source).lines().map_while(Result::ok);
        let mut lines = lines.filter(|line| !line.trim().is_empty());
        while lines.next().is_some_and(|line| sender.blocking_send(line).is_ok()) {}
    });
    receiver
}

fn find_option<'a>(options: &'a [Value], kinds: [&str; 2]) -> Option<&'a Value> {
    kinds.iter().find_map(|kind| options.iter().find(|option| option["kind"] == **kind))
}

/// Prints the stop reason and returns its exit status.
fn exit_status(reason: &str) -> u8 {
    show(io::stderr(), NOTE, &format!("[{reason}]\n"));
    (0..).zip(STOP_REASONS).find(|it| it.1 == reason).map_or(2, |it| it.0)
}

/// Prints the turn on stdout and questions on stderr.
#[derive(Default)]
struct Screen {
    /// The style of an unfinished line.
    open: Option<&'static str>,
    /// Tool calls by id: the fields set by updates, and the states so far as `history`.
    cards: HashMap<String, Value>,
}

impl Screen {
    fn update(&mut self, update: &Value) {
        let (used, size, mode) = (&update["used"], &update["size"], text(&update["currentModeId"]));
        match text(&update["sessionUpdate"]).as_str() {
            "agent_message_chunk" => self.put(PLAIN, &content_text(&update["content"])),
            "agent_thought_chunk" => self.put(THOUGHT, &content_text(&update["content"])),
            "tool_call" | "tool_call_update" => self.tool(update),
            "plan" => list(&update["entries"]).iter().for_each(|entry| self.plan_entry(entry)),
            "usage_update" => self.put(NOTE, &format!("context: {used} of {size} tokens\n")),
            "current_mode_update" => self.put(NOTE, &format!("mode: {mode}\n")),
            _ => {}
        }
    }

    fn put(&mut self, style: &'static str, text: &str) {
        if self.open != Some(style) {
            self.end_line();
        }
        show(io::stdout(), style, text);
        self.open = (!text.ends_with('\n')).then_some(style);
    }

    fn end_line(&mut self) {
        if self.open.take().is_some() {
            show(io::stdout(), PLAIN, "\n");
        }
    }

    fn plan_entry(&mut self, entry: &Value) {
        let mark = text(&entry["status"]).replace("completed", "x").replace("pending", " ");
        self.put(CARD, &format!("  [{mark}] {}\n", text(&entry["content"])));
    }

    fn tool(&mut self, update: &Value) {
        let new = || json!({ "kind": "other", "status": "pending" });
        let card = self.cards.entry(text(&update["toolCallId"])).or_insert_with(new);
        // Fields that an update omits or sets to null keep their value.
        for (name, value) in update.as_object().into_iter().flatten().filter(|it| !it.1.is_null()) {
            card[name] = value.clone();
        }
        let status = text(&card["status"]);
        let finished = status == "completed" || status == "failed";
        let history = match text(&card["history"]) {
            before if before.ends_with(&status) => return,
            before if before.is_empty() => status,
            before => format!("{before} → {status}"),
        };
        card["history"] = json!(history);
        let card = card.clone();
        let title = text(&card["title"]).lines().next().unwrap_or_default().to_owned();
        self.put(CARD, &format!("● {title}  [{}] {history}\n", text(&card["kind"])));
        for item in list(&card["content"]).iter().filter(|_| finished) {
            let (style, limit) = if item["type"] == "diff" { (PLAIN, 40) } else { (NOTE, 12) };
            self.put(style, &indented(&content_text(item), limit));
        }
    }

    fn question(&mut self, call: &Value, options: &[Value]) {
        self.tool(call);
        self.end_line();
        let Some(card) = self.cards.get(&text(&call["toolCallId"])) else { return };
        eprintln!("? {}", text(&card["title"]));
        eprint!("{}", indented(&text(&card["rawInput"]["command"]), usize::MAX));
        for item in list(&card["content"]) {
            eprint!("{}", indented(&content_text(item), usize::MAX));
        }
        for (number, option) in (1..).zip(options) {
            eprintln!("  {number}. {}", text(&option["name"]));
        }
    }
}

/// The text of a content block, or of an item of a tool call's content.
fn content_text(item: &Value) -> String {
    let (old, new) = (text(&item["oldText"]), text(&item["newText"]));
    match text(&item["type"]).as_str() {
        "content" => content_text(&item["content"]),
        "text" => text(&item["text"]),
        "diff" => text(&item["path"]) + "\n" + &unified_diff(Algorithm::Myers, &old, &new, 2, None),
        "resource" => text(&item["resource"]["text"]),
        kind => format!("[{kind}] {}", text(&item["uri"])),
    }
}

fn indented(text: &str, limit: usize) -> String {
    let more = text.lines().count().saturating_sub(limit);
    let rest = (more > 0).then(|| format!("… {more} more lines"));
    let lines = text.lines().take(limit).chain(rest.as_deref());
    lines.flat_map(|line| ["    ", line, "\n"]).collect()
}

/// The string without control characters: text of a model must not control the terminal.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default().chars();
    text.filter(|it| !it.is_control() || matches!(it, '\n' | '\t')).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn show(mut stream: impl Write + IsTerminal, style: &str, text: &str) {
    let plain = style.is_empty() || !stream.is_terminal() || env::var_os("NO_COLOR").is_some();
    let text = if plain { text.to_owned() } else { format!("{style}{text}\x1b[0m") };
    // If stdout is closed, as by `| head`, the turn still ends properly.
    drop(stream.write_all(text.as_bytes()).and_then(|()| stream.flush()));
}

/// Returns the turnwright binary next to this example. Builds it if it is missing or outdated.
fn built_agent() -> Result<PathBuf, Failure> {
    let own = env::current_exe().unwrap_or_default();
    let profile = own.ancestors().nth(2).unwrap_or(&own); // target/PROFILE/examples/echo_client
    let agent = profile.join("turnwright").with_extension(env::consts::EXE_EXTENSION);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["src", "crates"].map(|folder| newest_change(&package.join(folder)));
    let is_fresh = newest_change(&agent)
        .is_some_and(|built| sources.into_iter().flatten().all(|changed| changed <= built));
    let cargo = if Path::new(env!("CARGO")).exists() { env!("CARGO") } else { "cargo" };
    let mut command = process::Command::new(cargo);
    command.arg("build").args(profile.ends_with("release").then_some("--release"));
    // Naming the example too gives the dependencies the same features as in the build that was just
    // made, so that nothing is built twice.
    command.args(["--bin", "turnwright", "--example", "echo_client", "--manifest-path"]);
    command.arg(package.join("Cargo.toml"));
    command.env("CARGO_TARGET_DIR", profile.parent().unwrap_or(profile));
    // Set by `cargo run`; build scripts would take them for a change and run again.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| name.starts_with(it)) {
            command.env_remove(&*name);
        }
    }
    let is_ready = is_fresh || command.status().is_ok_and(|it| it.success()) && agent.exists();
    let advice = || Failure::new(1, format!("cannot build the agent; run\n  {command:?}"));
    is_ready.then_some(agent).ok_or_else(advice)
}

fn newest_change(path: &Path) -> Option<time::SystemTime> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().filter_map(|entry| newest_change(&entry.path())).max(),
        Err(_) => fs::metadata(path).and_then(|metadata| metadata.modified()).ok(),
    }
}
