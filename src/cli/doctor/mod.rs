//! `turnwright doctor`: checks the sandbox, the MCP servers and the configured model, and advises how to
//! fix what fails. What it learns about the model is stored for later sessions.

mod report;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use turnwright_config::{Config, EndpointSettings, ModelProfiles, Provider};
use turnwright_llm::probe::{self, Check, CheckState, ProbeOptions};
use turnwright_llm::{ErrorKind, ModelProfile};
use turnwright_policy::permission::AuditLog;
#[cfg(unix)]
use turnwright_sandbox::escape_tests::AttemptResult;
use turnwright_terminal::{runtime, write_without_keys};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;

use crate::session::{ServerCheck, SessionHost};
use report::ReportBundle;

const OFFLINE_MODEL: &str = "The offline model is built in and needs no check.";
const MODEL_WORKS: &str = "The agent can work with this model.";
const MODEL_FAILS: &str = "The agent can't work with this model yet: fix the lines marked FAIL.";
const SANDBOX_LEAKS: &str =
    "The sandbox does NOT hold. This is a bug: please report it with the lines above.";
#[cfg(unix)]
const SANDBOX_HOLDS: &str = "The sandbox holds.";
const NO_SANDBOX: &str = "No sandbox on this system: every command needs your approval.";

/// The checks that a model must pass. Any other failure is only a limitation.
const ESSENTIAL_CHECKS: &[&str] = &["answer", "tools", "result"];

#[derive(Debug, clap::Args)]
pub(super) struct DoctorCliArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Check only the sandbox, without a model; exits with 1 if it leaks or is unavailable
    #[arg(long, conflicts_with = "forget")]
    sandbox: bool,
    /// Make the escape attempts without a sandbox, to show that the check notices them
    #[arg(long = "without-sandbox", hide = true, requires = "sandbox")]
    without_sandbox: bool,
    /// Delete what was learned about the model, and check nothing
    #[arg(long)]
    forget: bool,
    /// Also write a report without keys that can be attached to an issue
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "sandbox", "forget"])]
    report: Option<PathBuf>,
    /// Play an editor against this program, or against COMMAND, and check every message
    #[arg(long, conflicts_with_all = ["json", "sandbox", "forget", "report"])]
    acp: bool,
    /// Another agent and its arguments
    #[arg(requires = "acp", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Exits with 0 if the model works, 1 if not, 2 if the settings are unusable. Ctrl-C ends it at once:
/// no signal handler is installed.
pub(super) fn run(args: &DoctorCliArgs, config: Config) -> ExitCode {
    super::deny_memory_inspection();
    if args.acp {
        return turnwright_terminal::check_agent(&args.command, &config);
    }
    let bundle = args.report.as_ref().map(|path| ReportBundle::prepare(path, &config)).transpose();
    let mut report = DoctorReport::new(args.json, &config);
    let bundle = match bundle {
        Ok(bundle) => bundle,
        Err(error) => {
            return report
                .unusable(&format!("The report cannot be written: {}", io_error_text(&error)));
        }
    };
    let status = examine(args, config, &mut report);
    let Some(bundle) = bundle else { return status };
    let written = bundle.write(&report.said.borrow());
    match written {
        Ok(()) => {
            report.print_line("The report is written. Look through it before you attach it.");
            status
        }
        Err(error) => {
            report.unusable(&format!("The report cannot be written: {}", io_error_text(&error)))
        }
    }
}

fn examine(args: &DoctorCliArgs, config: Config, report: &mut DoctorReport) -> ExitCode {
    if args.sandbox {
        let holds = report.sandbox(&config, args.without_sandbox);
        let status = if holds == Some(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        return report.end(None, status);
    }
    report.add_facts(&config);
    report.audit_log(&config);
    let provider = config.snapshot().provider();
    if let Ok(Provider::Endpoint(endpoint)) = &provider {
        report.introduce(endpoint);
    }
    if !args.forget {
        // Also if there is no model to check.
        report.sandbox_holds = report.sandbox(&config, false) != Some(false);
        report.print_line("");
    }
    let endpoint = match provider {
        Ok(Provider::Endpoint(endpoint)) => *endpoint,
        Ok(Provider::Offline) => return report.offline(config),
        Ok(Provider::Unconfigured) => {
            return report.unusable(&format!(
                "{}. To try the agent without a model, add --model offline",
                config.snapshot().missing_model()
            ));
        }
        Err(error) => return report.unusable(&error.to_string()),
    };
    let profiles = ModelProfiles::new(&config.paths);
    if args.forget {
        return report.forget(&profiles, &endpoint);
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report.unusable(&error.to_string()),
    };
    let status = runtime.block_on(check_model(report, config, &endpoint, &profiles));
    // A blocking call that hangs must not delay the exit.
    runtime.shutdown_timeout(Duration::from_millis(50));
    status
}

async fn check_model(
    report: &mut DoctorReport,
    config: Config,
    endpoint: &EndpointSettings,
    profiles: &ModelProfiles,
) -> ExitCode {
    let allowed = ProbeOptions {
        images: endpoint.quirks.get("images") != Some(&Value::Bool(false)),
        list_models: config.snapshot().list_models(),
    };
    let host = SessionHost::new(config, CancellationToken::new());
    let model = match host.model(&host.config().snapshot()) {
        Ok(model) => model,
        Err(error) => return report.unusable(&error.to_string()),
    };
    let has_key = endpoint.key.is_some() || !endpoint.headers.is_empty();
    report.servers(&host).await;
    probe::run(model.as_ref(), allowed, &mut |check| report.check(check, has_key)).await;
    if let Some(url) = model.corrected_base_url() {
        report.corrected_base_url(&redact::url(&url));
    }
    // The host stores what it learned by itself. Wait for that, so that this profile is stored last.
    host.wait_for_sessions().await;
    let learned = model.profile();
    let name = endpoint.model.as_deref().unwrap_or_default();
    let stored = store_profile(profiles, &endpoint.base_url, name, &learned);
    report.conclude(stored, &learned)
}

/// Stores what was learned. Returns the path of the profile, or `None` if there is nothing to store.
fn store_profile(
    profiles: &ModelProfiles,
    base_url: &str,
    model: &str,
    learned: &ModelProfile,
) -> io::Result<Option<String>> {
    if *learned == ModelProfile::default() {
        return Ok(None);
    }
    profiles.store(base_url, model, &serde_json::to_value(learned)?)?;
    Ok(Some(profiles.path(base_url, model).display().to_string()))
}

/// The output: printed line by line for people, or as one JSON object at the end.
struct DoctorReport {
    json: bool,
    /// The text that was printed.
    said: RefCell<String>,
    object: Map<String, Value>,
    checks: Vec<Check>,
    /// False if an escape attempt succeeded that the sandbox must stop.
    sandbox_holds: bool,
}

impl DoctorReport {
    fn new(json: bool, config: &Config) -> DoctorReport {
        let mut report = DoctorReport {
            json,
            said: RefCell::default(),
            object: Map::new(),
            checks: Vec::new(),
            sandbox_holds: true,
        };
        let version = env!("CARGO_PKG_VERSION");
        let (path, is_there) =
            (config.user_file_path().display().to_string(), config.user_file_path().exists());
        let warnings = config.snapshot().warnings();
        report.print_line(&format!("turnwright {version}"));
        let note = if is_there { "" } else { " (no such file; none is needed)" };
        report.print_field("settings", &format!("{path}{note}"));
        for warning in &warnings {
            report.print_field("", &format!("! {warning}"));
        }
        report.set("version", version);
        report.set("settings", json!({ "path": path, "exists": is_there, "warnings": warnings }));
        for name in [
            "platform",
            "program",
            "store",
            "disk",
            "editor",
            "in_force",
            "provider",
            "base_url",
            "model",
            "key",
            "sandbox",
            "audit",
            "servers",
            "checks",
            "works",
            "profile",
            "error",
            "corrected_base_url",
        ] {
            report.set(name, Value::Null);
        }
        report
    }

    fn introduce(&mut self, endpoint: &EndpointSettings) {
        let provider = endpoint.name.as_deref().unwrap_or("default");
        let model = endpoint.model.as_deref().unwrap_or("none");
        let from = endpoint.key.as_ref().map(|key| key.origin.to_string());
        let key = from.as_ref().map_or("not set".to_owned(), |from| format!("set, from {from}"));
        self.print_field("provider", provider);
        self.print_field("base URL", &endpoint.redacted_url());
        self.print_field("model", model);
        self.print_field("key", &key);
        let headers: Vec<_> = endpoint.headers.iter().map(|header| header.0.as_str()).collect();
        if !headers.is_empty() {
            self.print_field("headers", &headers.join(", "));
        }
        self.print_line("");
        self.set("provider", provider);
        self.set("base_url", endpoint.redacted_url());
        self.set("model", endpoint.model.as_deref().map_or(Value::Null, Value::from));
        self.set("key", json!({ "set": from.is_some(), "from": from, "headers": headers }));
    }

    fn corrected_base_url(&mut self, url: &str) {
        self.print_line(&format!(
            "{:16}→ The base URL lacks its version: set it to {url} in the settings or in \
             OPENAI_BASE_URL",
            ""
        ));
        self.set("corrected_base_url", url);
    }

    fn check(&mut self, mut check: Check, has_key: bool) {
        if check.kind == Some(ErrorKind::Auth) && !has_key {
            let advice = "No key is set. Run `turnwright login`, or set OPENAI_API_KEY, or `key_env` in \
                          the settings";
            check.advice = Some(advice.to_owned());
        }
        let mark = match check.state {
            CheckState::Ok => "ok",
            CheckState::No if ESSENTIAL_CHECKS.contains(&check.name) => "FAIL",
            CheckState::No => "–",
            CheckState::Unknown => "?",
            CheckState::Skipped => "skip",
        };
        self.print_line(&format!("{mark:4} {:9}  {}", check.name, escape_hidden_line(&check.text)));
        if let Some(advice) = &check.advice {
            self.print_line(&format!("{:16}→ {}", "", escape_hidden_line(advice)));
        }
        self.checks.push(check);
    }

    fn conclude(&mut self, stored: io::Result<Option<String>>, learned: &ModelProfile) -> ExitCode {
        let works = probe::is_usable(&self.checks);
        self.print_line("");
        self.print_line(if works { MODEL_WORKS } else { MODEL_FAILS });
        match stored {
            Ok(Some(path)) => {
                self.print_line(&format!("Stored what the model can do in {path}"));
                self.set("profile", json!({ "path": path, "learned": learned }));
            }
            Ok(None) => {}
            Err(error) => {
                self.print_line(&format!(
                    "Could not store what the model can do: {}",
                    io_error_text(&error)
                ));
            }
        }
        let checks: Map<_, _> = self.checks.iter().map(as_json).collect();
        self.set("checks", checks);
        if !self.sandbox_holds {
            self.print_line(SANDBOX_LEAKS);
        }
        let is_fine = works && self.sandbox_holds;
        self.end(Some(works), if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Checks the sandbox. Returns `None` if there is none.
    #[cfg(unix)]
    fn sandbox(&mut self, config: &Config, without_sandbox: bool) -> Option<bool> {
        let checked = turnwright_terminal::check_sandbox(config, without_sandbox);
        for (name, value) in &checked.facts {
            self.print_field(name, value);
        }
        for tested in &checked.attempts {
            let mark = match &tested.result {
                AttemptResult::Held => "ok",
                AttemptResult::NotHeld(_) => "FAIL",
                AttemptResult::KnownGap(_) => "–",
                AttemptResult::NotTested(_) => "?",
            };
            let why = tested.result.why().map(|why| format!(": {why}")).unwrap_or_default();
            let result = tested.result.name();
            let what = tested.what;
            self.print_line(&format!("{mark:4} {result:10} {what}{}", escape_hidden_line(&why)));
        }
        self.print_line(match checked.holds() {
            Some(true) => SANDBOX_HOLDS,
            Some(false) => SANDBOX_LEAKS,
            None => NO_SANDBOX,
        });
        let holds = checked.holds();
        self.set("sandbox", checked.as_json());
        holds
    }

    #[cfg(not(unix))]
    fn sandbox(&mut self, _: &Config, _: bool) -> Option<bool> {
        self.print_field("sandbox", NO_SANDBOX);
        self.set("sandbox", json!({ "holds": null, "missing": [NO_SANDBOX], "attempts": [] }));
        None
    }

    /// Reports an audit log that is incomplete or cannot be written.
    fn audit_log(&mut self, config: &Config) {
        let (loss, error) = match AuditLog::check(&config.paths.state) {
            Ok(loss) => (loss, None),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(loss) = &loss {
            self.print_field(
                "audit",
                &format!("! The log of permission decisions is incomplete: {loss}"),
            );
        }
        if let Some(error) = &error {
            self.print_field(
                "audit",
                &format!("! The log of permission decisions cannot be written: {error}"),
            );
        }
        let lost = loss.map_or(0, |loss| loss.count);
        self.set("audit", json!({ "lost": lost, "error": error }));
    }

    /// Starts the configured MCP servers. A server that fails does not make the agent unusable.
    async fn servers(&mut self, host: &SessionHost) {
        let checks = check_servers(host).await;
        for check in &checks {
            let (mark, text) = server_line(check);
            self.print_line(&format!("{mark:4} {:9}  {}", "mcp", escape_hidden_line(&text)));
        }
        if !checks.is_empty() {
            self.print_line("");
        }
        self.set("servers", checks.iter().map(server_json).collect::<Vec<_>>());
    }

    fn offline(&mut self, config: Config) -> ExitCode {
        self.print_field("model", "offline");
        self.print_line("");
        if let Ok(runtime) = runtime() {
            let host = SessionHost::new(config, CancellationToken::new());
            runtime.block_on(async {
                self.servers(&host).await;
                host.wait_for_sessions().await;
            });
            runtime.shutdown_timeout(Duration::from_millis(50));
        }
        self.print_line(OFFLINE_MODEL);
        self.set("provider", "built in");
        self.set("model", "offline");
        self.end(Some(true), if self.sandbox_holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Reports settings that cannot be used.
    fn unusable(&mut self, why: &str) -> ExitCode {
        self.print_line(&format!("FAIL settings   {}", escape_hidden_line(why)));
        self.set("error", why);
        self.end(Some(false), ExitCode::from(2))
    }

    fn forget(&mut self, profiles: &ModelProfiles, endpoint: &EndpointSettings) -> ExitCode {
        let model = endpoint.model.as_deref().unwrap_or_default();
        let path = profiles.path(&endpoint.base_url, model).display().to_string();
        let (message, status) = match profiles.remove(&endpoint.base_url, model) {
            Ok(true) => (format!("Removed {path}"), ExitCode::SUCCESS),
            Ok(false) => ("Nothing is stored about this model.".to_owned(), ExitCode::SUCCESS),
            Err(error) => {
                (format!("Could not remove {path}: {}", io_error_text(&error)), ExitCode::FAILURE)
            }
        };
        self.print_line(&message);
        self.set("forgotten", message);
        self.end(None, status)
    }

    fn end(&mut self, works: Option<bool>, status: ExitCode) -> ExitCode {
        if !self.json {
            return status;
        }
        self.set("works", works);
        let object = Value::Object(std::mem::take(&mut self.object));
        match write_without_keys(&format!("{object:#}\n")) {
            Ok(()) => status,
            Err(_) => ExitCode::FAILURE,
        }
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.object.insert(name.to_owned(), value.into());
    }

    fn print_field(&self, name: &str, value: &str) {
        self.print_line(&format!("     {name:9}  {}", escape_hidden_line(value)));
    }

    fn print_line(&self, text: &str) {
        if !self.json {
            self.said.borrow_mut().push_str(&format!("{text}\n"));
            // If stdout is closed, the exit status still tells the result.
            write_without_keys(&format!("{text}\n")).ok();
        }
    }
}

fn as_json(check: &Check) -> (String, Value) {
    let mut value = check.facts.clone();
    value.insert("state".to_owned(), check.state.name().into());
    value.insert("text".to_owned(), check.text.as_str().into());
    value.insert("advice".to_owned(), check.advice.as_deref().map_or(Value::Null, Value::from));
    value.insert("error".to_owned(), check.kind.map_or(Value::Null, |kind| kind.name().into()));
    (check.name.to_owned(), Value::Object(value))
}

/// Starts every server. A server that fails does not make the agent unusable.
async fn check_servers(host: &SessionHost) -> Vec<ServerCheck> {
    match std::path::absolute(".") {
        Ok(folder) => host.check_servers(&folder).await,
        Err(_) => Vec::new(),
    }
}

/// The mark and the text of the report line of one server.
fn server_line(check: &ServerCheck) -> (&'static str, String) {
    match &check.outcome {
        Ok(facts) => {
            let text = format!(
                "{}: {}, revision {}, {} tools, {} prompts, ready after {:.1} s",
                check.name,
                facts.title,
                facts.revision,
                facts.tools,
                facts.prompts,
                check.took.as_secs_f64()
            );
            ("ok", text)
        }
        Err(problem) => {
            let why = problem.to_string();
            let lines: Vec<_> =
                why.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            ("FAIL", format!("{}: {}", check.name, lines.join(" / ")))
        }
    }
}

fn server_json(check: &ServerCheck) -> Value {
    let facts = check.outcome.as_ref().ok();
    json!({
        "name": check.name,
        "state": if facts.is_some() { "ok" } else { "no" },
        "error": check.outcome.as_ref().err().map(ToString::to_string),
        "title": facts.map(|facts| &facts.title),
        "revision": facts.map(|facts| &facts.revision),
        "tools": facts.map(|facts| facts.tools),
        "prompts": facts.map(|facts| facts.prompts),
        "seconds": check.took.as_secs_f64(),
    })
}
