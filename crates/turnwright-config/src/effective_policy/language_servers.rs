//! The language servers of a project: those of its `.lsp.json`, which are used only if the user trusts exactly the
//! content of the file, and the trust in which those that the user has installed may work on the project.

use std::fs;
use std::path::Path;

use super::{ProjectFile, project_servers};
use crate::trust::TrustStore;
use crate::{SettingsSnapshot, jsonc};
use turnwright_lsp::{LanguageServer, configured_servers, find_program, known_servers};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text::{self, escape_markdown};
use turnwright_types::work_settings::LspMode;
use turnwright_workspace::exec::Environment;

/// The project's file of language servers.
pub const LANGUAGE_FILE: &str = ".lsp.json";
/// The name under which the trust in a project is kept that lets installed servers work on it.
pub const LANGUAGE_TRUST: &str = "language servers";
/// The text that the user trusts then.
const TRUSTED: &str = "Language servers that are installed on this machine may read this project and run its build \
                       scripts and macros, in the sandbox: without network, and without write access to the project.\n";
/// The most names in a folder that are looked at, and the most characters of a name or a command that are shown.
const MAX_NAMES: usize = 1_000;
const MAX_SHOWN_CHARS: usize = 80;

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
    let parsed = project_servers::read(folder, LANGUAGE_FILE, jsonc::parse, problems);
    let Some((content, value)) = parsed else { return (None, Vec::new()) };
    let (servers, of_entries) = configured_servers(&value);
    problems.extend(of_entries.into_iter().map(|problem| format!("{LANGUAGE_FILE}: {problem}")));
    let is_trusted = trust.is_trusted(folder, LANGUAGE_FILE, content.as_bytes());
    let requests = servers.iter().map(|server| {
        let line = text::clip(server.command_line().replace('`', "'"), MAX_SHOWN_CHARS);
        let name = escape_hidden_line(text::first_chars(&server.name, MAX_SHOWN_CHARS));
        format!("the language server {} (`{line}`)", escape_markdown(&name))
    });
    let file = ProjectFile::new(LANGUAGE_FILE, content, is_trusted, requests.collect());
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
    let suitable = known_servers().iter().filter(|server| {
        names.iter().any(|name| server.is_about(name))
            && find_program(server, &environment).is_some()
    });
    let requests: Vec<_> = suitable.map(|server| server.name.clone()).collect();
    (!requests.is_empty()).then(|| {
        let is_trusted = trusts_language_servers(trust, folder);
        ProjectFile::new(LANGUAGE_TRUST, TRUSTED.to_owned(), is_trusted, requests)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, EnvironmentVariables, Flags, Paths, UserFile};
    use turnwright_types::private_file;
    use turnwright_workspace::real_path;

    #[test]
    fn the_servers_of_a_file_are_used_once_exactly_it_is_trusted() {
        let home = tempfile::tempdir().unwrap();
        let project = tempfile::tempdir().unwrap();
        let folder = real_path(project.path()).unwrap();
        let paths = Paths::below(home.path());
        let file = UserFile::at_default_path(&paths);
        let config = Config::new(EnvironmentVariables::of(&[]), Flags::default(), file, paths);
        let trust = TrustStore::new(&config.paths.state);
        let text = r#"{
            "x": { "command": "x-ls", "args": ["-v"], "extensionToLanguage": { ".x": "x" } },
            "y": { "command": "y" }
        }"#;
        let steps = [
            (None, false, 0, ""),
            (Some("{"), false, 0, "is invalid"),
            (Some(text), false, 0, "`y` is not used"),
            (Some(text), true, 1, "`y` is not used"),
            (Some("{}"), false, 0, ""),
        ];
        for (content, is_trusted, count, problem) in steps {
            if let Some(content) = content {
                private_file::write(&folder.join(LANGUAGE_FILE), content.as_bytes()).unwrap();
                if is_trusted {
                    trust.trust(&folder, LANGUAGE_FILE, content.as_bytes()).unwrap();
                }
            }
            let mut problems = Vec::new();
            let (found, servers) = find(&config.snapshot(), &trust, &folder, &mut problems);
            assert_eq!(servers.len(), count, "{content:?}");
            assert!(problems.concat().contains(problem), "{problems:?}");
            if content == Some(text) {
                let found = found.unwrap();
                assert_eq!(found.requests, ["the language server x (`x-ls -v`)"]);
                assert_eq!(found.is_trusted, is_trusted);
            }
        }
        // Without a program there is nothing to trust.
        assert!(language_trust(&config.snapshot(), &trust, &folder).is_none());
        assert!(!trusts_language_servers(&trust, &folder));
        trust.trust(&folder, LANGUAGE_TRUST, TRUSTED.as_bytes()).unwrap();
        assert!(trusts_language_servers(&trust, &folder));
    }
}
