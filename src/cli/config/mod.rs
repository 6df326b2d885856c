//! `turnwright config`: its arguments, and what a project tells the model, which is shown with the settings.
//! `turnwright-terminal` shows, checks and changes them.

mod editor;

use std::process::ExitCode;

use clap::Subcommand;

use super::report;
use crate::session::user_folders;
use crate::turn::project_sources;
use turnwright_config::{Config, EffectiveSetting, settings_schema};
use turnwright_terminal::{print, settings};
use turnwright_types::effect::escape_hidden_line;
use turnwright_workspace::files::Roots;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the path of the settings file
    #[command(after_help = "Example: $EDITOR \"$(turnwright config path)\"")]
    Path,
    /// Show the effective settings and where each comes from (keys are not shown)
    #[command(after_help = "Example: turnwright config show --json")]
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Create the settings file, with everything commented out
    #[command(after_help = "Example: turnwright config init")]
    Init,
    /// Open the settings file in $VISUAL or $EDITOR, then check it
    #[command(after_help = "Example: EDITOR=\"code --wait\" turnwright config edit\n\
                            Exit status: 0 if the file is right, 1 otherwise.")]
    Edit,
    /// Set a setting in the file; its comments and order stay
    ///
    /// VALUE is TOML, or a text as it is. Several VALUEs are a list.
    #[command(after_help = "Examples: turnwright config set mode plan\n\
                            turnwright config set web.allow localhost:3000 10.0.0.7\n\
                            turnwright config set providers.mine.base_url http://localhost:8000/v1")]
    Set {
        /// Key, such as `sessions.keep_days`
        key: String,
        /// New value
        #[arg(required = true, value_name = "VALUE")]
        values: Vec<String>,
    },
    /// Remove a setting from the file
    #[command(after_help = "Example: turnwright config unset mode")]
    Unset {
        /// Key, such as `sessions.keep_days`
        key: String,
    },
    /// Print how an editor is set up, or make the entry in its settings
    #[command(after_help = "Examples: turnwright config editor zed\n\
                            turnwright config editor zed --write\n\
                            Exit status: 0 if the entry was there or was written, 1 otherwise.")]
    Editor(editor::EditorCliArgs),
    /// Print the JSON Schema of the settings file, for editors
    #[command(after_help = "Example: turnwright config schema > config.schema.json")]
    Schema,
}

pub(super) fn run(action: &ConfigCommand, config: &Config) -> ExitCode {
    let done = match action {
        ConfigCommand::Path => print(&format!("{}\n", config.user_file_path().display())),
        ConfigCommand::Show { json } => return settings::show(*json, config, project_listing),
        ConfigCommand::Init => settings::init(config),
        ConfigCommand::Edit => settings::edit(config),
        ConfigCommand::Set { key, values } => settings::set(config, key, Some(values)),
        ConfigCommand::Unset { key } => settings::set(config, key, None),
        ConfigCommand::Editor(args) => editor::run(args, config),
        ConfigCommand::Schema => print(&settings_schema()),
    };
    report("config", done)
}

/// Lists the parts of the project that the model is told.
fn project_listing(config: &Config, roots: &Roots) -> Vec<EffectiveSetting> {
    let sources = project_sources(&user_folders(&config.paths), roots);
    let listed = sources.into_iter().map(|source| {
        let from = escape_hidden_line(&source.path.to_string_lossy());
        EffectiveSetting::new(source.kind, &escape_hidden_line(&source.name), from)
    });
    listed.collect()
}
