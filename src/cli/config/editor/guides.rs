//! The editors that `turnwright config editor` knows. What it says of each is the page of the manual, so
//! that both are one text.

use std::path::{Path, PathBuf};

use serde_json::Value;

use turnwright_config::Config;

/// The path in the pages that stands for the running program.
const PLACEHOLDER: &str = "/home/you/.cargo/bin/turnwright";

/// How an editor is set up.
pub(super) struct EditorGuide {
    pub name: &'static str,
    page: &'static str,
    pub settings: EditorSettings,
}

/// Where the set-up belongs.
pub(super) enum EditorSettings {
    /// A JSON file in one of these folders: of Linux, macOS and Windows.
    File([SettingsFile; 3]),
    /// Something that this program cannot write: what it is.
    ByHand(&'static str),
}

/// A file and the folder that its path starts from.
#[derive(Clone, Copy)]
pub(super) enum SettingsFile {
    Home(&'static str),
    /// `XDG_CONFIG_HOME`, or `APPDATA` on Windows.
    ConfigFolder(&'static str),
}

use SettingsFile::{ConfigFolder, Home};

pub(super) const GUIDES: &[EditorGuide] = &[
    EditorGuide {
        name: "zed",
        page: include_str!("../../../../docs/editors/zed.md"),
        settings: EditorSettings::File([
            ConfigFolder("zed/settings.json"),
            Home(".config/zed/settings.json"),
            ConfigFolder("Zed/settings.json"),
        ]),
    },
    EditorGuide {
        name: "neovim",
        page: include_str!("../../../../docs/editors/neovim.md"),
        settings: EditorSettings::ByHand("The configuration of Neovim is Lua code"),
    },
    EditorGuide {
        name: "emacs",
        page: include_str!("../../../../docs/editors/emacs.md"),
        settings: EditorSettings::ByHand("The configuration of Emacs is Lisp code"),
    },
    EditorGuide {
        name: "jetbrains",
        page: include_str!("../../../../docs/editors/jetbrains.md"),
        settings: EditorSettings::File([Home(".jetbrains/acp.json"); 3]),
    },
    EditorGuide {
        name: "vscode",
        page: include_str!("../../../../docs/editors/vscode.md"),
        settings: EditorSettings::File([
            ConfigFolder("Code/User/settings.json"),
            Home("Library/Application Support/Code/User/settings.json"),
            ConfigFolder("Code/User/settings.json"),
        ]),
    },
    EditorGuide {
        name: "toad",
        page: include_str!("../../../../docs/editors/toad.md"),
        settings: EditorSettings::ByHand("Toad takes the agent on its command line"),
    },
    EditorGuide {
        name: "acpx",
        page: include_str!("../../../../docs/editors/acpx.md"),
        settings: EditorSettings::File([Home(".acpx/config.json"); 3]),
    },
    EditorGuide {
        name: "obsidian",
        page: include_str!("../../../../docs/editors/obsidian.md"),
        settings: EditorSettings::ByHand("Obsidian's plugin has a form for agents"),
    },
    EditorGuide {
        name: "jupyter",
        page: include_str!("../../../../docs/editors/jupyter.md"),
        settings: EditorSettings::ByHand("A persona of Jupyter AI is Python code"),
    },
    EditorGuide {
        name: "marimo",
        page: include_str!("../../../../docs/editors/marimo.md"),
        settings: EditorSettings::ByHand("marimo needs a bridge that runs beside it"),
    },
];

impl EditorGuide {
    pub(super) fn find(name: &str) -> Option<&'static EditorGuide> {
        GUIDES.iter().find(|guide| guide.name == name)
    }

    /// The page, with the path of this program.
    pub(super) fn text(&self, program: &Path) -> String {
        // JSON, Lua, Lisp and Python escape a path alike.
        let quoted = Value::from(program.to_string_lossy()).to_string();
        self.page.replace(PLACEHOLDER, &quoted[1..quoted.len() - 1])
    }

    /// The keys that lead to the entry in the editor's file, and the entry.
    pub(super) fn entry(&self, program: &Path) -> Option<(Vec<String>, Value)> {
        let text = self.text(program);
        let block = text.split_once("```json\n")?.1.split_once("\n```")?.0;
        let mut keys = Vec::new();
        let mut value = serde_json::from_str(block).ok()?;
        while keys.last().is_none_or(|key| key != "turnwright") {
            let Value::Object(members) = value else { return None };
            let (key, inner) = members.into_iter().next()?;
            keys.push(key);
            value = inner;
        }
        Some((keys, value))
    }

    /// The file on this system. None if there is no home folder, or nothing to write.
    pub(super) fn file(&self, config: &Config) -> Option<PathBuf> {
        let EditorSettings::File([linux, macos, windows]) = self.settings else { return None };
        let file = match () {
            () if cfg!(windows) => windows,
            () if cfg!(target_os = "macos") => macos,
            () => linux,
        };
        let home = config.home();
        match file {
            Home(path) => Some(home?.join(native_path(path))),
            ConfigFolder(path) => {
                let (variable, usual) = if cfg!(windows) {
                    ("APPDATA", "AppData/Roaming")
                } else {
                    ("XDG_CONFIG_HOME", ".config")
                };
                let named = config.inherited.iter().find(|entry| entry.0 == variable);
                let folder = named
                    .map(|entry| PathBuf::from(&entry.1))
                    .filter(|path| path.is_absolute())
                    .or_else(|| Some(home?.join(native_path(usual))))?;
                Some(folder.join(native_path(path)))
            }
        }
    }
}

/// The path with the separators of the system.
fn native_path(path: &str) -> PathBuf {
    Path::new(path).components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual has a page for each editor and no other, and each page can be used.
    #[test]
    fn the_pages_and_the_index_name_these_editors() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let pages = std::fs::read_dir(folder.join("editors")).unwrap();
        assert_eq!(pages.count(), GUIDES.len());
        let index = include_str!("../../../../docs/editors.md");
        for guide in GUIDES {
            let name = guide.name;
            assert!(index.contains(&format!("(editors/{name}.md)")), "{name}");
            assert!(index.contains(&format!("| `{name}` |")), "{name}");
            assert!(guide.page.starts_with("# ") && guide.page.contains("\n```"), "{name}");
            let is_file = matches!(guide.settings, EditorSettings::File(_));
            let command = format!("`turnwright config editor {name} --write`");
            assert_eq!(guide.page.contains(&command), is_file, "{name}");
            assert_eq!(guide.entry(Path::new("/bin/x")).is_some(), is_file, "{name}");
        }
    }

    #[test]
    fn the_path_of_the_program_is_quoted() {
        let zed = EditorGuide::find("zed").unwrap();
        let (keys, entry) = zed.entry(Path::new(r#"C:\my "tools"\turnwright.exe"#)).unwrap();
        assert_eq!(keys, ["agent_servers", "turnwright"]);
        assert_eq!(entry["command"], r#"C:\my "tools"\turnwright.exe"#);
        assert!(!zed.text(Path::new("/opt/turnwright")).contains("/home/you"));
    }
}
