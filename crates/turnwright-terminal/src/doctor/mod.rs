//! The output of `turnwright doctor`: each check in a line, with advice on how to fix what fails, or all as one JSON
//! object. Whoever runs the agent starts the MCP servers and asks the model; the rest is checked here.

mod report;

use std::cell::RefCell;
use std::io;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::write_without_keys;
use turnwright_config::{Config, EndpointSettings, ModelProfiles};
use turnwright_llm::probe::{self, Check, CheckState};
use turnwright_llm::{ErrorKind, ModelProfile};
use turnwright_policy::permission::AuditLog;
#[cfg(unix)]
use turnwright_sandbox::escape_tests::AttemptResult;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;

pub use report::ReportBundle;

const MODEL_WORKS: &str = "The agent can work with this model.";
const MODEL_FAILS: &str = "The agent can't work with this model yet: fix the lines marked FAIL.";
const SANDBOX_LEAKS: &str =
    "The sandbox does NOT hold. This is a bug: please report it with the lines above.";
#[cfg(unix)]
const SANDBOX_HOLDS: &str = "The sandbox holds.";
const NO_SANDBOX: &str = "No sandbox on this system: every command needs your approval.";

/// The checks that a model must pass. Any other failure is only a limitation.
const ESSENTIAL_CHECKS: &[&str] = &["answer", "tools", "result"];

/// The fields that the JSON object always has; null where nothing was checked.
const FIELDS: &str = "platform program store disk editor in_force provider base_url model key sandbox audit hooks \
    servers search language_servers checks works profile error corrected_base_url";

/// The output: printed line by line for people, or as one JSON object at the end.
#[derive(Debug)]
pub struct DoctorReport {
    json: bool,
    /// The text that was printed.
    said: RefCell<String>,
    object: Map<String, Value>,
    checks: Vec<Check>,
    /// False if an escape attempt succeeded that the sandbox must stop.
    pub sandbox_holds: bool,
}

impl DoctorReport {
    /// Begins the output.
    pub fn new(json: bool, config: &Config) -> DoctorReport {
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
        for name in FIELDS.split_whitespace() {
            report.set(name, Value::Null);
        }
        report
    }

    /// Says which provider and model are checked.
    pub fn introduce(&mut self, endpoint: &EndpointSettings) {
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

    /// Says that the base URL works only in this form.
    pub fn corrected_base_url(&mut self, url: &str) {
        self.print_line(&format!(
            "{:16}→ The base URL lacks its version: set it to {url} in the settings or in \
             OPENAI_BASE_URL",
            ""
        ));
        self.set("corrected_base_url", url);
    }

    /// Reports a check of the model.
    pub fn check(&mut self, mut check: Check, has_key: bool) {
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

    /// Says whether the agent can work with the model, and where what was learned is `stored`.
    pub fn conclude(
        &mut self,
        stored: io::Result<Option<String>>,
        learned: &ModelProfile,
    ) -> ExitCode {
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
                let why = io_error_text(&error);
                self.print_line(&format!("Could not store what the model can do: {why}"));
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
    pub fn sandbox(&mut self, config: &Config, without_sandbox: bool) -> Option<bool> {
        let checked = crate::check_sandbox(config, without_sandbox);
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

    /// Reports that there is no sandbox.
    #[cfg(not(unix))]
    pub fn sandbox(&mut self, _: &Config, _: bool) -> Option<bool> {
        self.print_field("sandbox", NO_SANDBOX);
        self.set("sandbox", json!({ "holds": null, "missing": [NO_SANDBOX], "attempts": [] }));
        None
    }

    /// Reports an audit log that is incomplete or cannot be written.
    pub fn audit_log(&mut self, config: &Config) {
        let (loss, error) = match AuditLog::check(&config.paths.state) {
            Ok(loss) => (loss, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let problems = [
            loss.as_ref().map(|loss| format!("is incomplete: {loss}")),
            error.as_ref().map(|error| format!("cannot be written: {error}")),
        ];
        for problem in problems.iter().flatten() {
            self.print_field("audit", &format!("! The log of permission decisions {problem}"));
        }
        let lost = loss.map_or(0, |loss| loss.count);
        self.set("audit", json!({ "lost": lost, "error": error }));
    }

    /// Reports the hooks of this folder: those that run, and the files whose hooks wait for trust.
    pub fn hooks(&mut self, running: &[String], untrusted: &[&str]) {
        for line in running {
            self.print_field("hook", line);
        }
        for file in untrusted {
            self.print_field("hook", &format!("! {file}: not trusted, so its hooks do not run"));
        }
        self.set("hooks", json!({ "running": running, "untrusted": untrusted }));
    }

    /// Reports settings that cannot be used.
    pub fn unusable(&mut self, why: &str) -> ExitCode {
        self.print_line(&format!("FAIL settings   {}", escape_hidden_line(why)));
        self.set("error", why);
        self.end(Some(false), ExitCode::from(2))
    }

    /// Deletes what was learned about the model.
    pub fn forget(&mut self, profiles: &ModelProfiles, endpoint: &EndpointSettings) -> ExitCode {
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

    /// Ends the output. Prints it if it is JSON.
    pub fn end(&mut self, works: Option<bool>, status: ExitCode) -> ExitCode {
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

    /// Sets a field of the JSON object.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.object.insert(name.to_owned(), value.into());
    }

    /// Prints a named value for people.
    pub fn print_field(&self, name: &str, value: &str) {
        self.print_line(&format!("     {name:9}  {}", escape_hidden_line(value)));
    }

    /// Prints a line for people.
    pub fn print_line(&self, text: &str) {
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
