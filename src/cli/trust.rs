//! `turnwright trust`: what a project wants beyond what it gets, and a yes to exactly that.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::config::Config;
use turnwright_types::effect::{visible, visible_line};
use turnwright_workspace::files::Roots;
use crate::session::{PROJECT_FILE, ProjectFile, SERVERS_FILE, stand};
use crate::trust::{Print, Trust};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The project's folder; else the one that you are in
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Trust without asking, if this is the code of what the file says now
    #[arg(long, value_name = "CODE", conflicts_with_all = ["forget", "list"])]
    yes: Option<String>,
    /// Trust nothing of the project any more
    #[arg(long, conflicts_with = "list")]
    forget: bool,
    /// List what is trusted
    #[arg(long)]
    list: bool,
}

/// Ends with 0 if what was asked for is so now.
pub(super) fn run(options: &Options, config: &Config) -> ExitCode {
    let trust = Trust::new(&config.paths.state);
    let done = if options.list { list(&trust) } else { one(options, config, &trust) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(stderr(), "turnwright trust: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn list(trust: &Trust) -> io::Result<bool> {
    for record in trust.list() {
        let [project, what] = [&record.project, &record.what].map(|it| visible_line(it));
        let print = visible_line(&record.sha256).chars().take(32).collect::<String>();
        say(&format!("{project}  {what}  {print}  {}\n", visible_line(&record.since)))?;
    }
    Ok(true)
}

fn one(options: &Options, config: &Config, trust: &Trust) -> io::Result<bool> {
    let folder = std::path::absolute(options.folder.as_deref().unwrap_or(Path::new(".")))?;
    if options.forget {
        // What is gone can be forgotten too.
        let real = std::fs::canonicalize(&folder).unwrap_or(folder);
        let count = trust.forget(&real)?;
        let what = if count == 0 { "Nothing was trusted." } else { "Nothing is trusted any more." };
        say(&format!("{what}\n"))?;
        return Ok(true);
    }
    let roots = Roots::new(&folder)?;
    let real = roots.real_cwd();
    let standing = stand(config, trust, &roots);
    let is_about_files = |it: &&String| it.contains(PROJECT_FILE) || it.contains(SERVERS_FILE);
    for problem in standing.problems.iter().filter(is_about_files) {
        say(&format!("! {problem}\n"))?;
    }
    let withheld: Vec<_> = standing.files.iter().filter(|it| it.is_withheld()).collect();
    if !withheld.is_empty() {
        return decide(options, trust, real, &withheld);
    }
    say(&match standing.files.as_slice() {
        [] => format!("There is nothing in {PROJECT_FILE} or {SERVERS_FILE} to be trusted.\n"),
        files if files.iter().any(|it| it.is_trusted) => "It is trusted as it is now.\n".to_owned(),
        _ => "It asks for nothing that needs your trust.\n".to_owned(),
    })?;
    Ok(true)
}

fn decide(
    options: &Options,
    trust: &Trust,
    real: &Path,
    files: &[&ProjectFile],
) -> io::Result<bool> {
    let mut is_all = true;
    let mut is_any = false;
    for file in files {
        let print = Print::of(file.text.as_bytes());
        let is_yes = match &options.yes {
            Some(code) => code.eq_ignore_ascii_case(print.long_code()),
            None => {
                show(real, file)?;
                ask(&print)?
            }
        };
        if is_yes {
            trust.trust(real, file.what, file.text.as_bytes())?;
            say(&format!("{} is trusted as it is now.\n", file.what))?;
        }
        is_all &= is_yes;
        is_any |= is_yes;
    }
    match &options.yes {
        Some(_) if !is_any => {
            say("That is not the code of what a file says now. Nothing was trusted.\n")?;
            Ok(false)
        }
        Some(_) => Ok(true),
        None => {
            if !is_any {
                say("Nothing was trusted.\n")?;
            }
            Ok(is_all)
        }
    }
}

fn show(real: &Path, file: &ProjectFile) -> io::Result<()> {
    let place = visible_line(&real.join(file.what).to_string_lossy());
    let wants = match file.plainly.as_slice() {
        [] => format!("Not in force is: {}.", file.wants.join(", ")),
        lines => format!("Not started is:\n{}", lines.join("\n")),
    };
    say(&format!("{place} says:\n\n{}\n\n{wants}\n", visible(file.text.trim_end())))
}

/// Asks on a terminal. Whatever else writes into our input is nobody who could trust something.
fn ask(print: &Print) -> io::Result<bool> {
    if !stdin().is_terminal() {
        say(&format!("To trust exactly this, add `--yes {}`.\n", print.long_code()))?;
        return Ok(false);
    }
    stderr().write_all(b"Trust exactly this? [y/N] ")?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

#[expect(clippy::disallowed_methods, reason = "no protocol is spoken here")]
fn say(text: &str) -> io::Result<()> {
    stdout().write_all(text.as_bytes())
}
