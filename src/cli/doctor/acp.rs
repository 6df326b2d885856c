//! `turnwright doctor --acp`: plays a client against this program, or against another agent, with a home
//! and a project of its own, and checks every message.

mod agent_process;
mod frame_checker;
mod script;
mod shapes;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use super::write_stdout;
use crate::config::Config;
use agent_process::AgentCommand;
use frame_checker::FrameRule;
use script::{AcpScript, STEPS, StepEnd};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::io_error_text::io_error_text;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// Exits with 0 if there is no fault, 1 if there is one, 2 if nothing could be tried.
pub(super) fn run(command: &[OsString], config: &Config) -> ExitCode {
    match check(command, config) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            line("FAIL", "start", &io_error_text(&error));
            ExitCode::from(2)
        }
    }
}

/// Returns true if everything is as it must be.
fn check(command: &[OsString], config: &Config) -> io::Result<bool> {
    let home = PrivateTempFolder::create()?;
    let folder = home.path().join("project");
    std::fs::create_dir(&folder)?;
    let words = match command {
        [] => vec![std::env::current_exe()?.into_os_string()],
        words => words.to_vec(),
    };
    let mut variables = config.inherited.clone();
    variables.retain(|variable| variable.0 != "TURNWRIGHT_CONFIG");
    variables.push(("TURNWRIGHT_HOME".into(), home.path().join("home").into()));
    variables.push(("TURNWRIGHT_MODEL".into(), "offline".into()));
    let mut script = AcpScript::new(AgentCommand { words, folder, variables });
    let mut is_fine = true;
    for (name, step) in STEPS {
        if script.is_over {
            line("skip", name, "not tried");
            continue;
        }
        match step(&mut script) {
            Ok(StepEnd::Ok(text)) => line("ok", name, &text),
            Ok(StepEnd::Skipped(why)) => line("skip", name, &why),
            Err(why) => {
                is_fine = false;
                line("FAIL", name, &why);
            }
        }
    }
    for rule in FrameRule::ALL {
        match script.checker.fault(rule) {
            None => line("ok", rule.name(), rule.meaning()),
            Some((first, count)) => {
                is_fine = false;
                let more =
                    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
                line("FAIL", rule.name(), &format!("{first}{more}"));
            }
        }
    }
    let messages = script.checker.frames;
    let verdict = if is_fine { "no fault" } else { "the lines marked FAIL are faults" };
    write_stdout(&format!("\n{messages} messages of the agent were checked: {verdict}.\n")).ok();
    Ok(is_fine)
}

fn line(mark: &str, name: &str, text: &str) {
    write_stdout(&format!("{mark:4} {name:10}  {}\n", escape_hidden_line(text))).ok();
}
