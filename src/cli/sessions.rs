//! `turnwright sessions`: its arguments. `turnwright-terminal` lists, shows, exports and deletes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{CliError, report, write_stdout};
use turnwright_config::Config;
use turnwright_store::Store;
use turnwright_store::export::ExportFormat;
use turnwright_terminal::sessions::{self, SessionListOptions};

#[derive(Debug, Args)]
pub(super) struct SessionsCliArgs {
    #[command(subcommand)]
    action: SessionsCommand,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List the sessions of this folder, most recently used first
    #[command(after_help = "Example: turnwright sessions list --all")]
    List {
        /// List the sessions of all folders
        #[arg(long)]
        all: bool,
        /// List the sessions of another folder
        #[arg(long, value_name = "FOLDER", conflicts_with = "all")]
        cwd: Option<PathBuf>,
        /// Include archived sessions
        #[arg(long)]
        archived: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print the conversation of a session
    #[command(after_help = "Example: turnwright sessions show last")]
    Show {
        /// Session id, a prefix of one, or `last`
        id: String,
    },
    /// Export a session with its tool calls, file changes and timing
    #[command(after_help = "Example: turnwright sessions export last --output session.html")]
    Export(ExportCliArgs),
    /// Delete sessions with all their data
    #[command(after_help = "Example: turnwright sessions delete 3f9a1c07")]
    Delete {
        /// Session ids, or prefixes of ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Skip confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct ExportCliArgs {
    /// Session id, a prefix of one, or `last`
    id: String,
    /// Markdown (default)
    #[arg(long, group = "form")]
    md: bool,
    /// One self-contained HTML page (default if FILE ends in .html)
    #[arg(long, group = "form")]
    html: bool,
    /// JSON (default if FILE ends in .json)
    #[arg(long, group = "form")]
    json: bool,
    /// Output file (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExportCliArgs {
    fn form(&self) -> ExportFormat {
        if self.json || !self.html && self.ends_in("json") {
            return ExportFormat::Json;
        }
        if self.html || self.ends_in("html") { ExportFormat::Html } else { ExportFormat::Markdown }
    }

    /// Returns true if the name of the output file decides for the form with this extension.
    fn ends_in(&self, extension: &str) -> bool {
        let end = self.output.as_deref().and_then(Path::extension);
        !self.md && end.is_some_and(|end| end.eq_ignore_ascii_case(extension))
    }
}

pub(super) fn run(args: SessionsCliArgs, config: &Config) -> ExitCode {
    let store = Store::new(&config.paths.state);
    if !store.exists() {
        return report("sessions", write_stdout("No stored sessions.\n").map_err(CliError::from));
    }
    let done = match args.action {
        SessionsCommand::List { all, cwd, archived, json } => {
            sessions::list(&store, SessionListOptions { all, cwd, archived, json })
        }
        SessionsCommand::Show { id } => sessions::show(&store, &id),
        SessionsCommand::Export(args) => match sessions::find_session(&store, &args.id) {
            Ok(id) => {
                return sessions::export_session(&store, &id, args.form(), args.output.as_deref());
            }
            Err(error) => Err(error),
        },
        SessionsCommand::Delete { ids, yes } => sessions::delete(&store, &ids, yes),
    };
    report("sessions", done)
}
