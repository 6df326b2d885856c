//! `turnwright run`: a turn, or a conversation, in the terminal. The command is an ACP client of the same
//! agent that an editor starts; [`agent_link`] runs it in this process.
//!
//! [`run_client`] sends requests and handles messages, [`screen`] shows them. The model's text goes through
//! [`markdown`] and [`text_style`].

mod agent_link;
mod conversation;
mod exit_status;
mod markdown;
mod permission_answer;
mod prompt_content;
mod run_client;
mod screen;
mod text_style;

use std::io::{self, IsTerminal, Write, stderr, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::agent_link::AgentLink;
use self::conversation::LineEditor;
use self::exit_status::TurnEnd;
pub use self::exit_status::UNUSABLE;
use self::permission_answer::{AnswerPolicy, AnswerSource};
use self::prompt_content::STDIN;
use self::run_client::{RequestFailure, RequestResult, RunClient, error_end};
use self::screen::Screen;
use self::text_style::{TerminalTraits, terminal_width};
#[cfg(unix)]
use crate::prompt::TerminalMode;
use crate::prompt::{is_yes, say};
use crate::{CliError, exit_code};
use turnwright_config::Config;
use turnwright_policy::permission::Mode;
use turnwright_rpc::{RpcError, Stdio};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::SessionId;
use turnwright_types::text;

/// How long the runner of GitHub Actions may take to read a line.
const RUNNER_LAG: Duration = Duration::from_secs(1);

/// The user's choices for a run.
#[derive(Debug)]
pub struct RunOptions {
    /// The prompt; `-` reads it from stdin. `None` for a conversation.
    pub prompt: Option<String>,
    /// The names of the files to attach; `-` is stdin.
    pub files: Vec<String>,
    /// `--yes`: what the mode `auto` would not have asked is allowed once.
    pub allows_bounded: bool,
    /// `--no-input`: a question is a refusal.
    pub asks_nobody: bool,
    /// The longest time for a turn.
    pub max_time: Option<Duration>,
    /// Updates and the answer are printed as JSON.
    pub is_json: bool,
}

/// A run that knows its prompt, and whose agent is not started yet.
pub struct TerminalRun {
    options: RunOptions,
    traits: TerminalTraits,
    task: RunTask,
    /// The terminal on which the user is asked; `None` if nobody is.
    asks_on: Option<AnswerSource>,
}

/// The work that is to be done.
enum RunTask {
    /// A turn with these blocks, and what the user is told about them.
    Turn(Vec<Value>, Option<String>),
    Conversation(Box<LineEditor>),
}

impl TerminalRun {
    /// Reads the prompt, or prepares a conversation.
    ///
    /// # Errors
    /// If there is no usable prompt; in words.
    pub fn prepare(options: RunOptions, config: &Config) -> Result<TerminalRun, String> {
        let traits = TerminalTraits::detect(config);
        let task = find_task(&options, config, traits)?;
        let may_ask = !options.asks_nobody && traits.is_stderr_terminal;
        let asks_on = may_ask.then(|| AnswerSource::open(traits.is_stdin_terminal)).flatten();
        Ok(TerminalRun { options, traits, task, asks_on })
    }

    /// Returns true if nobody can answer a question: the user wants it so, or there is no terminal.
    pub fn asks_nobody(&self) -> bool {
        self.asks_on.is_none()
    }

    /// Returns true if the session ends with its only turn.
    pub fn has_one_turn(&self) -> bool {
        matches!(self.task, RunTask::Turn(..))
    }

    /// Starts the agent, which `serve` runs until the token ends it, and works in the session of the plan.
    pub fn start(
        self,
        plan: &SessionPlan,
        serve: impl FnOnce(Stdio, CancellationToken) -> io::Result<()> + Send + 'static,
    ) -> ExitCode {
        let _stopped = self.traits.is_github.then(StoppedCommands::new);
        exit_code("run", self.work(plan, serve).map(TurnEnd::code).map_err(CliError::from), 1)
    }

    #[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
    fn work(
        self,
        plan: &SessionPlan,
        serve: impl FnOnce(Stdio, CancellationToken) -> io::Result<()> + Send + 'static,
    ) -> io::Result<TurnEnd> {
        let TerminalRun { options, traits, task, asks_on } = self;
        let policy = AnswerPolicy {
            allows_bounded: options.allows_bounded,
            asks_on,
            is_silenced: options.asks_nobody,
        };
        let outputs =
            (Box::new(io::stdout()) as Box<dyn Write>, Box::new(stderr()) as Box<dyn Write>);
        let screen = Screen::new(traits, plan.cwd.clone(), terminal_width, outputs);
        #[cfg(unix)]
        let _restore = TerminalMode::save().ok();
        // The thread that reads the terminal may still wait for a line, and is left alone then.
        let (end, link) = crate::block_on(async {
            let link = AgentLink::start(serve)?;
            let mut client = RunClient::new(link, screen, policy, options.is_json)?;
            if let Some(note) = &plan.note {
                client.screen.note(note);
            }
            let end = match client.open_session(plan).await {
                Err(end) => end,
                Ok(()) => match task {
                    RunTask::Turn(blocks, note) => {
                        if let Some(note) = &note {
                            client.screen.note(note);
                        }
                        run_turn(&mut client, blocks, &options).await
                    }
                    RunTask::Conversation(editor) => {
                        conversation::converse(&mut client, *editor, &options).await
                    }
                },
            };
            Ok::<_, io::Error>((end, client.link))
        })??;
        link.end()?;
        Ok(end)
    }
}

/// Until it is dropped, GitHub Actions obeys no line that a model, a file or a command has written.
/// The word that ends this cannot be guessed.
struct StoppedCommands(SessionId);

impl StoppedCommands {
    fn new() -> StoppedCommands {
        let word = SessionId::random();
        say(&format!("::stop-commands::{word}\n")).ok();
        StoppedCommands(word)
    }
}

impl Drop for StoppedCommands {
    fn drop(&mut self) {
        // The runner reads stdout and stderr separately, and stderr first. It must have taken the answer from stdout
        // before its commands are on again.
        thread::sleep(RUNNER_LAG);
        say(&format!("::{}::\n", self.0)).ok();
    }
}

/// Reads the prompt, or prepares a conversation.
fn find_task(
    options: &RunOptions,
    config: &Config,
    traits: TerminalTraits,
) -> Result<RunTask, String> {
    let reads_stdin = options.files.iter().filter(|name| *name == STDIN).count()
        + usize::from(options.prompt.as_deref() == Some(STDIN));
    if reads_stdin > 1 {
        return Err("stdin can be read only once".to_owned());
    }
    let text = match options.prompt.as_deref() {
        Some(STDIN) => prompt_content::read_stdin()?,
        Some(text) => text.to_owned(),
        None if !stdin().is_terminal() && reads_stdin == 0 => prompt_content::read_stdin()?,
        None => {
            let is_possible =
                traits.is_stdin_terminal && traits.is_stdout_terminal && traits.is_stderr_terminal;
            if options.is_json || options.asks_nobody || !options.files.is_empty() || !is_possible {
                return Err("a prompt is missing".to_owned());
            }
            let editor = LineEditor::open(&config.paths.state, traits.is_styled);
            return editor
                .map(|editor| RunTask::Conversation(Box::new(editor)))
                .map_err(|error| error.to_string());
        }
    };
    if text.trim().is_empty() {
        return Err("the prompt is empty".to_owned());
    }
    let mut blocks = prompt_content::prompt_blocks(text.trim_end(), &options.files)?;
    // Stdin may also have been the prompt.
    let is_beside_prompt = options.prompt.is_some() && reads_stdin == 0 && !stdin().is_terminal();
    let note = if is_beside_prompt { prompt_content::attach_piped(&mut blocks)? } else { None };
    Ok(RunTask::Turn(blocks, note))
}

async fn run_turn(client: &mut RunClient, blocks: Vec<Value>, options: &RunOptions) -> TurnEnd {
    for name in prompt_content::linked_names(&blocks) {
        let name = escape_hidden_line(name);
        client.screen.note(&format!("Attached by its name only, not with its content: {name}"));
    }
    let (end, answer) = client.prompt(blocks, options.max_time).await;
    // A signal leaves the agent no time for a response, which readers of JSON wait for.
    let interrupted = Ok(json!({ "stopReason": "cancelled" }));
    if let Some(answer) = answer.as_ref().or((end != TurnEnd::Failed).then_some(&interrupted)) {
        client.write_answer(answer);
    }
    if let Some(Err(error)) = &answer {
        client.report_error(error);
    }
    let end = client.screen.output_end().unwrap_or(end);
    if let Some(note) = end.note() {
        client.screen.note(note);
    }
    match client.unasked {
        0 => {}
        1 => client
            .screen
            .note("One question was answered with a refusal, because nobody was asked."),
        count => client.screen.note(&format!(
            "{count} questions were answered with a refusal, because nobody was asked."
        )),
    }
    if client.screen.traits.is_stderr_terminal {
        let usage = client.screen.usage().map(|text| format!(" · {text}")).unwrap_or_default();
        let id = text::cut(client.session.as_str(), 8);
        client.screen.note(&format!("Session {id}{usage}"));
    }
    end
}

/// The code of the error that says that no model is configured.
const AUTH_REQUIRED: i32 = -32000;

const OFFLINE_OFFER: &str = "The built-in offline model needs no account. It is no language model: it understands a \
                             few plain requests such as \"read README.md\".";

/// The session that is to be opened.
#[derive(Debug, Default)]
pub struct SessionPlan {
    /// The id of the stored session, or `None` for a new one.
    pub id: Option<String>,
    /// The working folder.
    pub cwd: PathBuf,
    /// The other folders of a stored session.
    pub folders: Vec<PathBuf>,
    /// The mode of the flag.
    pub mode: Option<Mode>,
    /// The model of the flag, which a stored session does not have yet.
    pub model: Option<String>,
    /// The note to the user about the choice.
    pub note: Option<String>,
}

impl RunClient {
    /// Connects and opens the session.
    async fn open_session(&mut self, plan: &SessionPlan) -> Result<(), TurnEnd> {
        match self.try_open_session(plan).await {
            Ok(()) => Ok(()),
            Err(RequestFailure::Ended(end)) => Err(end),
            Err(RequestFailure::Error(error)) => {
                let end = error_end(&error);
                self.report_error(&error);
                self.write_answer(&Err(error));
                Err(end)
            }
        }
    }

    async fn try_open_session(&mut self, plan: &SessionPlan) -> RequestResult<()> {
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {
                "fs": { "readTextFile": false, "writeTextFile": false },
                "terminal": false,
                "session": { "notices": {} },
            },
            "clientInfo": { "name": "turnwright run", "version": env!("CARGO_PKG_VERSION") },
        });
        let agent = self.request("initialize", &params).await?;
        let mut params = json!({ "cwd": plan.cwd, "mcpServers": [] });
        let method = match &plan.id {
            None => "session/new",
            Some(id) => {
                params["sessionId"] = json!(id);
                params["additionalDirectories"] = json!(plan.folders);
                "session/resume"
            }
        };
        let opened = match self.request(method, &params).await {
            Err(RequestFailure::Error(error)) if error.code == AUTH_REQUIRED => {
                self.offer_offline(&agent, error).await?;
                self.request(method, &params).await?
            }
            opened => opened?,
        };
        let id = plan.id.as_deref().or(opened["sessionId"].as_str()).unwrap_or_default();
        id.clone_into(&mut self.session);
        if let Some(model) = &plan.model {
            let params = json!({ "sessionId": id, "configId": "model", "value": model });
            self.request("session/set_config_option", &params).await?;
        }
        if let Some(mode) = plan.mode {
            let params = json!({ "sessionId": id, "modeId": mode.id() });
            self.request("session/set_mode", &params).await?;
        }
        Ok(())
    }

    /// Asks whether the offline model shall answer, if no model is configured. It is never used in silence:
    /// its answers would be taken for those of a model.
    async fn offer_offline(&mut self, agent: &Value, error: RpcError) -> RequestResult<()> {
        let is_offered = agent["authMethods"][0]["id"] == "offline";
        if !is_offered || self.policy.asks_on.is_none() {
            return Err(RequestFailure::Error(error));
        }
        self.screen.note(&format!("{}.", error.message));
        self.screen.note(OFFLINE_OFFER);
        self.screen.prompt("Use it now? [y/N] ");
        if !self.read_answer().await?.is_some_and(|answer| is_yes(&answer)) {
            return Err(RequestFailure::Ended(TurnEnd::Unusable));
        }
        self.request("authenticate", &json!({ "methodId": "offline" })).await?;
        Ok(())
    }

    /// Tells the user why something has failed.
    fn report_error(&mut self, error: &RpcError) {
        self.screen.error(&error.message);
        let details = error.data.as_ref().and_then(|data| data["details"].as_str());
        if let Some(details) = details.filter(|details| *details != error.message) {
            self.screen.note(details);
        }
        if error.code == AUTH_REQUIRED && error.message.contains("offline model") {
            self.screen.note("`--model offline` chooses the offline model for one run.");
        }
    }
}
