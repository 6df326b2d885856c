//! The language servers of a project: those of its `.lsp.json`, which are used only if the user trusts exactly the
//! content of the file, and the trust in which those that the user has installed may work on the project.

use std::fs;
use std::path::Path;

use super::ProjectFile;
use crate::trust::{self, TrustStore};
use crate::{SettingsSnapshot, jsonc};
use turnwright_lsp::{LanguageServer, configured_servers, find_program, known_servers};
use turnwright_types::text::escape_markdown;
use turnwright_types::work_settings::LspMode;
use turnwright_workspace::exec::Environment;

/// The project's file of language servers.
pub const LANGUAGE_FILE: &str = ".lsp.json";
/// The name under which the trust in a project is kept that lets installed servers work on it.
pub const LANGUAGE_TRUST: &str = "language servers";
/// The text that the user trusts then.
const TRUSTED: &str = "Language servers that are installed on this machine may read this project and run its build \
                       scripts and macros, in the sandbox: without network, and without write access to the project.\n";
/// The most names in a folder that are looked at.
const MAX_NAMES: usize = 1_000;

/// Reads the file of the project in this folder, a real path. Returns it, if it exists and is valid, and its servers if
/// it is trusted. Adds a sentence to `problems` for each problem in it.
pub(super) fn find(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    folder: &Path,
    problems: &mut Vec<String>,
) -> (Option<ProjectFile>, Vec<LanguageServer>) {
    if settings.values.lsp.mode() == LspMode::Off {
        return (None, Vec::new());
    }
    let text = match trust::read_project_file(folder, LANGUAGE_FILE) {
        Ok(None) => return (None, Vec::new()),
        Ok(Some(text)) => text,
        Err(why) => {
            problems.push(format!("{LANGUAGE_FILE} {why} and is ignored"));
            return (None, Vec::new());
        }
    };
    let (servers, of_entries) = match jsonc::parse(&text) {
        Ok(value) => configured_servers(&value),
        Err(why) => {
            problems.push(format!("{LANGUAGE_FILE} is invalid ({why}) and is ignored"));
            return (None, Vec::new());
        }
    };
    problems.extend(of_entries.into_iter().map(|problem| format!("{LANGUAGE_FILE}: {problem}")));
    let is_trusted = trust.is_trusted(folder, LANGUAGE_FILE, text.as_bytes());
    let requests = servers.iter().map(|server| {
        let line = server.command_line().replace('`', "'");
        format!("the language server {} (`{line}`)", escape_markdown(&server.name))
    });
    let file = ProjectFile {
        name: LANGUAGE_FILE,
        text,
        is_trusted,
        requests: requests.collect(),
        full_requests: Vec::new(),
    };
    (Some(file), if is_trusted { servers } else { Vec::new() })
}

/// Returns true if the user lets installed servers work on the project in this folder. Blocks.
pub fn trusts_language_servers(trust: &TrustStore, folder: &Path) -> bool {
    trust.is_trusted(folder, LANGUAGE_TRUST, TRUSTED.as_bytes())
}

/// The text that the user can trust so that installed servers work on the project in this folder; `None` if there are
/// none for it, or no trust is needed. Blocks.
pub fn language_trust(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    folder: &Path,
) -> Option<ProjectFile> {
    if settings.values.lsp.mode() != LspMode::Auto {
        return None;
    }
    let environment = Environment::scrubbed(settings.config.inherited.iter().cloned(), &[]);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_NAMES);
    let names: Vec<_> = entries.map(|entry| folder.join(entry.file_name())).collect();
    let mut servers = known_servers();
    servers.retain(|server| {
        names.iter().any(|name| server.is_about(name))
            && find_program(server, &environment).is_some()
    });
    let requests: Vec<_> = servers.into_iter().map(|server| server.name).collect();
    (!requests.is_empty()).then(|| ProjectFile {
        name: LANGUAGE_TRUST,
        text: TRUSTED.to_owned(),
        is_trusted: trusts_language_servers(trust, folder),
        requests,
        full_requests: Vec::new(),
    })
}
