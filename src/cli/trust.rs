//! `turnwright trust`: what a project wants beyond what it gets, and a yes to exactly that.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::config::Config;
use crate::effect::{visible, visible_line};
use crate::files::Roots;
use crate::session::{PROJECT_FILE, ProjectFile, stand};
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
    for problem in standing.problems.iter().filter(|it| it.contains(PROJECT_FILE)) {
        say(&format!("! {problem}\n"))?;
    }
    match standing.project {
        None => say(&format!("There is nothing in {PROJECT_FILE} to be trusted.\n"))?,
        Some(project) if project.is_trusted => say("It is trusted as it is now.\n")?,
        Some(project) if !project.is_withheld() => {
            say("It asks for nothing that needs your trust.\n")?;
        }
        Some(project) => return decide(options, trust, real, &project),
    }
    Ok(true)
}

fn decide(
    options: &Options,
    trust: &Trust,
    real: &Path,
    project: &ProjectFile,
) -> io::Result<bool> {
    let print = Print::of(project.text.as_bytes());
    let is_yes = match &options.yes {
        Some(code) => code.eq_ignore_ascii_case(print.long_code()),
        None => {
            let place = visible_line(&real.join(PROJECT_FILE).to_string_lossy());
            say(&format!(
                "{place} says:\n\n{}\n\nNot in force is: {}.\n",
                visible(project.text.trim_end()),
                project.wants.join(", ")
            ))?;
            ask(&print)?
        }
    };
    if is_yes {
        trust.trust(real, PROJECT_FILE, project.text.as_bytes())?;
        say("It is trusted as it is now.\n")?;
    } else if options.yes.is_some() {
        say("That is not the code of what the file says now. Nothing was trusted.\n")?;
    } else {
        say("Nothing was trusted.\n")?;
    }
    Ok(is_yes)
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
