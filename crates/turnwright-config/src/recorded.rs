//! The settings that a recording keeps: those that decide what a session does, so that a replay on another
//! machine has the same. Keys are left out.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::environment::{
    BASE_URL_VARIABLE, CONTEXT_WINDOW_VARIABLE, RECORD_VARIABLE, table_variables,
};
use crate::{
    Config, EnvironmentVariables, Flags, Logins, ModelProfiles, Paths, Provider, SettingsSnapshot,
    UserFile, with_home,
};
use turnwright_types::private_file;
use turnwright_types::redact;
use turnwright_types::secret::Secret;

/// The most bytes of a file that a recording takes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The value of every key in a replay, where no request leaves the process.
const REPLAY_KEY: &str = "no-key-in-a-replay";
/// The variable that stands in a replay for a key that was read from a file.
const FILE_KEY_VARIABLE: &str = "TURNWRIGHT_REPLAY_API_KEY";

/// The agent's own files that a recording contains, relative to the folder that a replay uses as its home.
const SETTINGS: &str = "config/config.toml";
const LOGIN: &str = "config/login.json";

impl SettingsSnapshot<'_> {
    /// The settings that a replay needs. Blocks.
    pub fn recorded_facts(&self) -> Value {
        let Config { paths, flags, variables, .. } = self.config;
        let keys: Vec<_> = variables.keys.keys().collect();
        let settings: Map<_, _> = recorded_variables()
            .map(|name| (name.to_owned(), json!(variables.get(name))))
            .collect();
        let limits: Vec<_> = flags.limits.iter().map(|limit| json!([limit.0, limit.1])).collect();
        json!({
            "variables": settings,
            "flags": {
                "model": flags.model,
                "base_url": flags.base_url,
                "limits": limits,
                "alone": flags.alone,
                "one_turn": flags.one_turn,
            },
            "keys": keys,
            "folders": { "config": paths.config, "state": paths.state },
            "files": {
                SETTINGS: replayable_settings(&read_redacted(self.config.user_file_path())),
                LOGIN: read_redacted(&Logins::path(paths)),
            },
            "profile": self.recorded_profile(),
        })
    }

    /// The learned profile of the model.
    fn recorded_profile(&self) -> Option<Value> {
        let Ok(Provider::Endpoint(endpoint)) = self.provider() else { return None };
        let base_url = endpoint.base_url.clone();
        let model = endpoint.model.clone()?;
        let learned = ModelProfiles::new(&self.config.paths).load(&base_url, &model)?;
        Some(json!({ "base_url": base_url, "model": model, "learned": learned }))
    }
}

impl Config {
    /// The file that `TURNWRIGHT_RECORD` names.
    pub fn record_path(&self) -> Option<PathBuf> {
        self.variables.get(RECORD_VARIABLE).map(|path| with_home(path.into()))
    }

    /// Restores the settings of a recording. `home` is an empty folder for the agent's own files. Blocks.
    pub fn of_recording(facts: &Value, home: &Path) -> io::Result<Config> {
        let paths = Paths::below(home);
        for name in [SETTINGS, LOGIN] {
            if let Some(text) = facts["files"][name].as_str().filter(|text| !text.is_empty()) {
                private_file::write(&home.join(name), text.as_bytes())?;
            }
        }
        let profile = &facts["profile"];
        if let (Some(base_url), Some(model)) =
            (profile["base_url"].as_str(), profile["model"].as_str())
        {
            ModelProfiles::new(&paths).store(base_url, model, &profile["learned"])?;
        }
        let named = facts["keys"].as_array().into_iter().flatten().filter_map(owned_text);
        let keys = named.chain([FILE_KEY_VARIABLE.to_owned()]);
        let recorded = &facts["variables"];
        let variables = EnvironmentVariables {
            keys: keys.map(|name| (name, Secret::from(REPLAY_KEY.to_owned()))).collect(),
            settings: recorded_variables()
                .filter_map(|name| Some((name, owned_text(&recorded[name])?)))
                .collect(),
            inherited: Vec::new(),
        };
        let limits = facts["flags"]["limits"].as_array().into_iter().flatten();
        let flags = Flags {
            model: owned_text(&facts["flags"]["model"]),
            base_url: owned_text(&facts["flags"]["base_url"]),
            limits: limits
                .filter_map(|limit| Some((owned_text(&limit[0])?, limit[1].as_f64()?)))
                .collect(),
            alone: facts["flags"]["alone"].as_bool().unwrap_or_default(),
            one_turn: facts["flags"]["one_turn"].as_bool().unwrap_or_default(),
        };
        Ok(Config::new(variables, flags, UserFile::find(None, &paths), paths))
    }
}

/// The variables that decide what a session does.
fn recorded_variables() -> impl Iterator<Item = &'static str> {
    std::iter::once(BASE_URL_VARIABLE).chain(table_variables()).chain([CONTEXT_WINDOW_VARIABLE])
}

fn read_redacted(path: &Path) -> String {
    let text = private_file::read(path, MAX_FILE_BYTES).unwrap_or_default();
    redact::text(&text).into_owned()
}

fn owned_text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The user's settings without those that have no place in a recording: MCP servers, whose tables hold
/// secrets and which no replay starts, and files with keys.
fn replayable_settings(text: &str) -> String {
    let mut kept = String::new();
    let mut is_left_out = false;
    for line in text.lines() {
        let start = line.trim_start();
        if start.starts_with('[') {
            let name = start.trim_start_matches(['[', ' ', '"']);
            is_left_out = name.starts_with("mcp");
        }
        let is_server = start.starts_with("mcp.") || start.starts_with("mcp =");
        if is_left_out || is_server {
            continue;
        }
        if start.starts_with("key_file") {
            kept.push_str(&format!("key_env = \"{FILE_KEY_VARIABLE}\"\n"));
        } else {
            kept.push_str(&format!("{line}\n"));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_key_files_are_left_out() {
        let text = "mode = \"ask\"\nmcp.servers.a.command = \"x\"\n[mcp.servers.b]\nenv = { T = \"secret\" }\n\
                    [providers.p]\nkey_file = \"~/key\"\nmodel = \"m\"\n";
        let expected = "mode = \"ask\"\n[providers.p]\nkey_env = \"TURNWRIGHT_REPLAY_API_KEY\"\n\
                        model = \"m\"\n";
        assert_eq!(replayable_settings(text), expected);
    }
}
