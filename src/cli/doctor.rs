//! `turnwright doctor`: checks the sandbox, the MCP servers and the configured model, and advises how to
//! fix what fails. What it learns about the model is stored for later sessions.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::session::{ServerCheck, SessionHost, last_client};
use turnwright_config::{Config, EndpointSettings, ModelProfiles, Provider};
use turnwright_llm::ModelProfile;
use turnwright_llm::probe::{self, ProbeOptions};
use turnwright_terminal::block_on;
use turnwright_terminal::doctor::{DoctorReport, ReportBundle};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;
use turnwright_types::work_settings::LspMode;

const OFFLINE_MODEL: &str = "The offline model is built in and needs no check.";

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
    let client = last_client(&config.paths.state);
    let prepared =
        args.report.as_ref().map(|path| ReportBundle::prepare(path, &config, client.as_ref()));
    let mut report = DoctorReport::new(args.json, &config);
    let bundle = match prepared.transpose() {
        Ok(bundle) => bundle,
        Err(error) => return not_written(args, &mut report, &error),
    };
    let examined = examine(args, config, client, &mut report);
    let status = examined.unwrap_or_else(|why| report.unusable(&why));
    let Some(bundle) = bundle else { return status };
    match bundle.write(&report) {
        Ok(()) => {
            report.print_line("The report is written. Look through it before you attach it.");
            status
        }
        Err(error) => not_written(args, &mut report, &error),
    }
}

fn not_written(args: &DoctorCliArgs, report: &mut DoctorReport, error: &io::Error) -> ExitCode {
    let path = args.report.as_deref().unwrap_or(Path::new("")).display();
    report.unusable(&format!("The report cannot be written to {path}: {}", io_error_text(error)))
}

/// Makes the checks that the arguments ask for. The error says which settings cannot be used.
fn examine(
    args: &DoctorCliArgs,
    config: Config,
    client: Option<Value>,
    report: &mut DoctorReport,
) -> Result<ExitCode, String> {
    if args.sandbox {
        let holds = report.sandbox(&config, args.without_sandbox);
        let status = if holds == Some(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        return Ok(report.end(None, status));
    }
    report.add_facts(&config, client);
    report.audit_log(&config);
    super::hooks::report_to_doctor(report, &config);
    let provider = config.snapshot().provider();
    if let Ok(Provider::Endpoint(endpoint)) = &provider {
        report.introduce(endpoint);
    }
    if !args.forget {
        // Also if there is no model to check.
        report.sandbox_holds = report.sandbox(&config, false) != Some(false);
        report.print_line("");
    }
    let endpoint = match provider.map_err(|error| error.to_string())? {
        Provider::Endpoint(endpoint) => *endpoint,
        Provider::Offline => return Ok(check_offline_model(report, config)),
        Provider::Unconfigured => {
            let missing = config.snapshot().missing_model();
            return Err(format!(
                "{missing}. To try the agent without a model, add --model offline"
            ));
        }
    };
    let profiles = ModelProfiles::new(&config.paths);
    if args.forget {
        return Ok(report.forget(&profiles, &endpoint));
    }
    block_on(check_model(report, config, &endpoint, &profiles))
        .map_err(|error| error.to_string())?
}

async fn check_model(
    report: &mut DoctorReport,
    config: Config,
    endpoint: &EndpointSettings,
    profiles: &ModelProfiles,
) -> Result<ExitCode, String> {
    let allowed = ProbeOptions {
        images: endpoint.quirks.get("images") != Some(&Value::Bool(false)),
        list_models: config.snapshot().list_models(),
    };
    let host = SessionHost::new(config, CancellationToken::new());
    let model = host.model(&host.config().snapshot()).map_err(|error| error.to_string())?;
    let has_key = endpoint.key.is_some() || !endpoint.headers.is_empty();
    report_servers(report, &host).await;
    probe::run(model.as_ref(), allowed, &mut |check| report.check(check, has_key)).await;
    if let Some(url) = model.corrected_base_url() {
        report.corrected_base_url(&redact::url(&url));
    }
    // The host stores what it learned by itself. Wait for that, so that this profile is stored last.
    host.wait_for_sessions().await;
    let learned = model.profile();
    let name = endpoint.model.as_deref().unwrap_or_default();
    let stored = store_profile(profiles, &endpoint.base_url, name, &learned);
    Ok(report.conclude(stored, &learned))
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

/// Starts the configured MCP servers. A server that fails does not make the agent unusable.
async fn report_servers(report: &mut DoctorReport, host: &SessionHost) {
    let checks = match std::path::absolute(".") {
        Ok(folder) => host.check_servers(&folder).await,
        Err(_) => Vec::new(),
    };
    for check in &checks {
        let (mark, text) = server_line(check);
        report.print_line(&format!("{mark:4} {:9}  {}", "mcp", escape_hidden_line(&text)));
    }
    if !checks.is_empty() {
        report.print_line("");
    }
    report.set("servers", checks.iter().map(server_json).collect::<Vec<_>>());
    let (mode, installed) = host.installed_language_servers();
    report.print_field("lsp", &language_servers_line(mode, &installed));
    report.set("language_servers", json!({ "mode": mode.id(), "installed": installed }));
}

/// The language servers, and when they are used.
fn language_servers_line(mode: LspMode, installed: &[String]) -> String {
    let names = installed.join(", ");
    match mode {
        LspMode::Off => "language servers are off in the settings".to_owned(),
        _ if installed.is_empty() => "no known language server is installed".to_owned(),
        _ if !turnwright_sandbox::can_confine() => {
            format!("{names}: not used, because there is no sandbox")
        }
        LspMode::Auto => format!("{names}: used in projects that you trust (`/trust`)"),
        LspMode::On => format!("{names}: used in every project"),
    }
}

fn check_offline_model(report: &mut DoctorReport, config: Config) -> ExitCode {
    report.print_field("model", "offline");
    report.print_line("");
    let checking = block_on(async {
        let host = SessionHost::new(config, CancellationToken::new());
        report_servers(report, &host).await;
        host.wait_for_sessions().await;
    });
    checking.ok();
    report.print_line(OFFLINE_MODEL);
    report.set("provider", "built in");
    report.set("model", "offline");
    let status = if report.sandbox_holds { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    report.end(Some(true), status)
}

/// The mark and the text of the report line of one server.
fn server_line(check: &ServerCheck) -> (&'static str, String) {
    match &check.outcome {
        Ok(facts) => {
            let text = format!(
                "{}: {}, revision {}, {}, {}, ready after {:.1} s",
                check.name,
                facts.title,
                facts.revision,
                turnwright_types::text::counted(facts.tools, "tool"),
                turnwright_types::text::counted(facts.prompts, "prompt"),
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
