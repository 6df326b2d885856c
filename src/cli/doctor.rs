//! `turnwright doctor`: whether the agent can work with the model that is configured, and what
//! to do if it cannot. What it finds out is kept for the sessions to come.

use std::io::{self, Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::doctor_servers;
use crate::config::{Config, EndpointSettings, Profiles, Provider};
use turnwright_types::effect::visible_line;
use turnwright_llm::probe::{self, Allowed, Check, State};
use turnwright_llm::{Kind, Learned};
use turnwright_types::redact;
#[cfg(unix)]
use turnwright_sandbox::proof::Verdict;
use crate::session::Host;

const NO_MODEL: &str = "no model is configured. Set OPENAI_API_KEY, or OPENAI_BASE_URL and \
                        TURNWRIGHT_MODEL for a server of your own, or run `turnwright login`. \
                        To try the agent without a model: --model offline";
const BUILT_IN: &str = "The offline model is built in: it needs no key, no network and no check.";
const WORKS: &str = "The agent can work with this model.";
const LEAKS: &str =
    "The sandbox does NOT hold. This is a bug: please report it with the lines above.";
const FAILS: &str = "The agent cannot work with this model as it is.";

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Only try the sandbox; no model is needed. Ends with 1 if it does not hold or there is none
    #[arg(long, conflicts_with = "forget")]
    sandbox: bool,
    /// Try everything without a sandbox, to see that it would be noticed
    #[arg(long, hide = true, requires = "sandbox")]
    without_walls: bool,
    /// Forget what was found out about the model, and ask nothing
    #[arg(long)]
    forget: bool,
}

/// Ends with 0 if the agent can work with the model, with 1 if not, with 2 if the settings cannot
/// be used. Ctrl-C ends it at once, as nothing stands in its way.
pub(super) fn run(options: &Options, config: Config) -> ExitCode {
    super::keep_to_ourselves();
    let mut report = Report::new(options.json, &config);
    if options.sandbox {
        let holds = report.sandbox(&config, options.without_walls);
        let status = if holds == Some(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        return report.end(None, status);
    }
    let endpoint = match config.provider() {
        Ok(Provider::Endpoint(endpoint)) => *endpoint,
        Ok(Provider::Offline) => return report.offline(config),
        Ok(Provider::None) => return report.unusable(NO_MODEL),
        Err(error) => return report.unusable(&error.to_string()),
    };
    report.introduce(&endpoint, &config);
    let profiles = Profiles::new(&config.paths);
    if options.forget {
        return report.forget(&profiles, &endpoint);
    }
    report.holds = report.sandbox(&config, false) != Some(false);
    report.line("");
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report.unusable(&error.to_string()),
    };
    let status = runtime.block_on(examine(&mut report, config, &endpoint, &profiles));
    // A blocking call that hangs must not keep us.
    runtime.shutdown_timeout(Duration::from_millis(50));
    status
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn examine(
    report: &mut Report,
    config: Config,
    endpoint: &EndpointSettings,
    profiles: &Profiles,
) -> ExitCode {
    let allowed = Allowed {
        images: endpoint.quirks.get("images") != Some(&Value::Bool(false)),
        list: config.list_models(),
    };
    let host = Host::new(config, CancellationToken::new());
    let model = match host.model() {
        Ok(model) => model,
        Err(error) => return report.unusable(&error.to_string()),
    };
    let has_key = endpoint.key.is_some() || !endpoint.headers.is_empty();
    report.servers(&host).await;
    probe::run(model.as_ref(), allowed, &mut |check| report.check(check, has_key)).await;
    // What the model has noted by itself is written by now, so that this is the last word.
    host.finished().await;
    let learned = model.learned();
    let name = endpoint.model.as_deref().unwrap_or_default();
    let kept = keep(profiles, &endpoint.base_url, name, &learned);
    report.conclude(kept, &learned)
}

/// Writes what is known now; returns where, or nothing if nothing is known.
fn keep(
    profiles: &Profiles,
    base_url: &str,
    model: &str,
    learned: &Learned,
) -> io::Result<Option<String>> {
    if *learned == Learned::default() {
        return Ok(None);
    }
    profiles.store(base_url, model, &serde_json::to_value(learned)?)?;
    Ok(Some(profiles.path(base_url, model).display().to_string()))
}

/// What is said: line by line for people, as one object at the end for programs.
struct Report {
    json: bool,
    object: Map<String, Value>,
    checks: Vec<Check>,
    /// Whether the sandbox is what it says it is.
    holds: bool,
}

impl Report {
    fn new(json: bool, config: &Config) -> Report {
        let mut report = Report { json, object: Map::new(), checks: Vec::new(), holds: true };
        let version = env!("CARGO_PKG_VERSION");
        let (path, is_there) = (config.file().display().to_string(), config.file().exists());
        let warnings = config.warnings();
        report.line(&format!("turnwright {version}"));
        let note = if is_there { "" } else { " (there is none, which is fine)" };
        report.head("settings", &format!("{path}{note}"));
        for warning in &warnings {
            report.head("", &format!("! {warning}"));
        }
        report.set("version", version);
        report.set("settings", json!({ "path": path, "exists": is_there, "warnings": warnings }));
        for name in [
            "provider", "base_url", "model", "key", "sandbox", "servers", "checks", "works",
            "profile", "error",
        ] {
            report.set(name, Value::Null);
        }
        report
    }

    fn introduce(&mut self, endpoint: &EndpointSettings, config: &Config) {
        let provider = endpoint.name.as_deref().unwrap_or("default");
        let model = endpoint.model.as_deref().unwrap_or("none");
        let settings = config.settings();
        let from = settings.iter().find(|it| it.name == "key").map_or("", |it| it.from.as_str());
        let is_set = endpoint.key.is_some();
        let key = if is_set { format!("set, from {from}") } else { "not set".to_owned() };
        self.head("provider", provider);
        self.head("base URL", &endpoint.shown_url());
        self.head("model", model);
        self.head("key", &key);
        let headers: Vec<_> = endpoint.headers.iter().map(|it| it.0.as_str()).collect();
        if !headers.is_empty() {
            self.head("headers", &headers.join(", "));
        }
        self.line("");
        self.set("provider", provider);
        self.set("base_url", endpoint.shown_url());
        self.set("model", endpoint.model.as_deref().map_or(Value::Null, Value::from));
        let from = if is_set { Value::from(from) } else { Value::Null };
        self.set("key", json!({ "set": is_set, "from": from, "headers": headers }));
    }

    fn check(&mut self, mut check: Check, has_key: bool) {
        if check.kind == Some(Kind::Auth) && !has_key {
            let advice = "No key is set: set OPENAI_API_KEY, or `key_env` in the settings";
            check.advice = Some(advice.to_owned());
        }
        let mark = match check.state {
            State::Ok => "ok",
            State::No => "no",
            State::Unknown => "??",
            State::Skipped => "--",
        };
        self.line(&format!("{mark}  {:9}  {}", check.name, visible_line(&check.text)));
        if let Some(advice) = &check.advice {
            self.line(&format!("{:15}→ {}", "", visible_line(advice)));
        }
        self.checks.push(check);
    }

    fn conclude(&mut self, kept: io::Result<Option<String>>, learned: &Learned) -> ExitCode {
        let works = probe::works(&self.checks);
        self.line("");
        self.line(if works { WORKS } else { FAILS });
        match kept {
            Ok(Some(path)) => {
                self.line(&format!("What was found out is kept in {path}"));
                self.set("profile", json!({ "path": path, "learned": learned }));
            }
            Ok(None) => {}
            Err(error) => self.line(&format!("What was found out could not be kept: {error}")),
        }
        let checks: Map<_, _> = self.checks.iter().map(as_json).collect();
        self.set("checks", checks);
        if !self.holds {
            self.line(LEAKS);
        }
        let is_fine = works && self.holds;
        self.end(Some(works), if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Tries the sandbox; `None` if there is none that could hold.
    #[cfg(unix)]
    fn sandbox(&mut self, config: &Config, without_walls: bool) -> Option<bool> {
        let proof = super::jail::prove(config, without_walls);
        for (name, value) in &proof.facts {
            self.head(name, value);
        }
        for tried in &proof.tried {
            let mark = match &tried.verdict {
                Verdict::Held => "ok",
                Verdict::NotHeld(_) => "no",
                Verdict::Open(_) => "--",
                Verdict::NotTested(_) => "??",
            };
            let why = tried.verdict.why().map(|it| format!(": {it}")).unwrap_or_default();
            let (said, what) = (tried.verdict.name(), tried.attempt.what);
            self.line(&format!("{mark}  {said:10} {what}{}", visible_line(&why)));
        }
        self.line(match proof.holds() {
            Some(true) => "The sandbox holds.",
            Some(false) => LEAKS,
            None => "There is no sandbox here: commands are asked about, one by one.",
        });
        let holds = proof.holds();
        self.set("sandbox", proof.as_json());
        holds
    }

    #[cfg(not(unix))]
    fn sandbox(&mut self, _: &Config, _: bool) -> Option<bool> {
        let why = "Commands cannot be confined on this system: they are asked about, one by one.";
        self.head("sandbox", why);
        self.set("sandbox", json!({ "holds": null, "missing": [why] }));
        None
    }

    /// Tries the MCP servers of the settings. One that fails does not keep the agent from working.
    async fn servers(&mut self, host: &Host) {
        let checks = doctor_servers::try_all(host).await;
        for check in &checks {
            let (mark, text) = doctor_servers::line(check);
            self.line(&format!("{mark}  {:9}  {}", "mcp", visible_line(&text)));
        }
        if !checks.is_empty() {
            self.line("");
        }
        self.set("servers", checks.iter().map(doctor_servers::as_json).collect::<Vec<_>>());
    }

    fn offline(&mut self, config: Config) -> ExitCode {
        self.head("model", "offline");
        self.line("");
        if let Ok(runtime) = runtime() {
            let host = Host::new(config, CancellationToken::new());
            runtime.block_on(async {
                self.servers(&host).await;
                host.finished().await;
            });
            runtime.shutdown_timeout(Duration::from_millis(50));
        }
        self.line(BUILT_IN);
        self.set("provider", "built in");
        self.set("model", "offline");
        self.end(Some(true), ExitCode::SUCCESS)
    }

    /// The settings cannot be used.
    fn unusable(&mut self, why: &str) -> ExitCode {
        self.line(&format!("no  settings   {}", visible_line(why)));
        self.set("error", why);
        self.end(Some(false), ExitCode::from(2))
    }

    fn forget(&mut self, profiles: &Profiles, endpoint: &EndpointSettings) -> ExitCode {
        let model = endpoint.model.as_deref().unwrap_or_default();
        let path = profiles.path(&endpoint.base_url, model).display().to_string();
        let (said, status) = match profiles.forget(&endpoint.base_url, model) {
            Ok(true) => (format!("Removed {path}"), ExitCode::SUCCESS),
            Ok(false) => ("Nothing was known about this model.".to_owned(), ExitCode::SUCCESS),
            Err(error) => (format!("{path} cannot be removed: {error}"), ExitCode::FAILURE),
        };
        self.line(&said);
        self.set("forgotten", said);
        self.end(None, status)
    }

    fn end(&mut self, works: Option<bool>, status: ExitCode) -> ExitCode {
        if !self.json {
            return status;
        }
        self.set("works", works);
        let object = Value::Object(std::mem::take(&mut self.object));
        match say(&format!("{object:#}\n")) {
            Ok(()) => status,
            Err(_) => ExitCode::FAILURE,
        }
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.object.insert(name.to_owned(), value.into());
    }

    fn head(&self, name: &str, value: &str) {
        self.line(&format!("    {name:9}  {}", visible_line(value)));
    }

    fn line(&self, text: &str) {
        if !self.json {
            // Nobody reads it any more; the status still tells.
            drop(say(&format!("{text}\n")));
        }
    }
}

fn as_json(check: &Check) -> (String, Value) {
    let mut value = check.facts.clone();
    value.insert("state".to_owned(), check.state.name().into());
    value.insert("text".to_owned(), check.text.as_str().into());
    value.insert("advice".to_owned(), check.advice.as_deref().map_or(Value::Null, Value::from));
    value.insert("error".to_owned(), check.kind.map_or(Value::Null, |it| it.name().into()));
    (check.name.to_owned(), Value::Object(value))
}

#[expect(clippy::disallowed_methods, reason = "no protocol is spoken here")]
fn say(text: &str) -> io::Result<()> {
    stdout().write_all(redact::text(text).as_bytes())
}
