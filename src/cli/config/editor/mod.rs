//! `turnwright config editor`: prints how an editor is set up, or makes the entry in its settings. What it says of each
//! editor is the page of the manual, so that both are one text.

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use serde_json::Value;

use super::print;
use crate::cli::{CliError, CliResult};
use turnwright_config::{Config, ConfigError, jsonc};
use turnwright_terminal::{block_on, prompt};
use turnwright_types::effect::{escape_hidden, escape_hidden_line};
use turnwright_types::line_diff::unified_diff;
use turnwright_types::private_file;
use turnwright_workspace::files::{FileError, replace_file};
use turnwright_workspace::real_path;

use SettingsFile::{ConfigFolder, Home};

/// The path in the pages that stands for the running program.
const PLACEHOLDER: &str = "/home/you/.cargo/bin/turnwright";

/// How an editor is set up.
struct EditorGuide {
    name: &'static str,
    page: &'static str,
    /// The JSON file of the set-up, on Linux, macOS and Windows, or why this program cannot write it.
    settings: Result<[SettingsFile; 3], &'static str>,
}

/// A file and the folder that its path starts from.
#[derive(Clone, Copy)]
enum SettingsFile {
    Home(&'static str),
    /// `XDG_CONFIG_HOME`, or `APPDATA` on Windows.
    ConfigFolder(&'static str),
}

/// The guide of an editor, whose page has its name.
macro_rules! guide {
    ($name:literal, $settings:expr) => {
        EditorGuide {
            name: $name,
            page: include_str!(concat!("../../../../docs/editors/", $name, ".md")),
            settings: $settings,
        }
    };
}

const GUIDES: &[EditorGuide] = &[
    guide!(
        "zed",
        Ok([
            ConfigFolder("zed/settings.json"),
            Home(".config/zed/settings.json"),
            ConfigFolder("Zed/settings.json"),
        ])
    ),
    guide!("neovim", Err("The configuration of Neovim is Lua code")),
    guide!("emacs", Err("The configuration of Emacs is Lisp code")),
    guide!("jetbrains", Ok([Home(".jetbrains/acp.json"); 3])),
    guide!(
        "vscode",
        Ok([
            ConfigFolder("Code/User/settings.json"),
            Home("Library/Application Support/Code/User/settings.json"),
            ConfigFolder("Code/User/settings.json"),
        ])
    ),
    guide!("toad", Err("Toad takes the agent on its command line")),
    guide!("acpx", Ok([Home(".acpx/config.json"); 3])),
    guide!("obsidian", Err("Obsidian's plugin has a form for agents")),
    guide!("jupyter", Err("A persona of Jupyter AI is Python code")),
    guide!("marimo", Err("marimo needs a bridge that runs beside it")),
];

impl EditorGuide {
    fn find(name: &str) -> Option<&'static EditorGuide> {
        GUIDES.iter().find(|guide| guide.name.eq_ignore_ascii_case(name))
    }

    /// The page, with the path of this program.
    fn text(&self, program: &Path) -> String {
        // JSON, Lua, Lisp and Python escape a path alike.
        let quoted = Value::from(program.to_string_lossy()).to_string();
        self.page.replace(PLACEHOLDER, &quoted[1..quoted.len() - 1])
    }

    /// The keys that lead to the entry in the editor's file, and the entry.
    fn entry(&self, program: &Path) -> Option<(Vec<String>, Value)> {
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

    /// The file on this machine. None if there is no home folder, or nothing to write. Where VS Code is used from
    /// another machine, only the file of its server counts; the second folder is that of Codespaces.
    fn file(&self, config: &Config) -> Option<PathBuf> {
        let usual = self.usual_file(config)?;
        let is_remote = self.name == "vscode" && !usual.parent().is_some_and(Path::is_dir);
        let names = [".vscode-server", ".vscode-remote"].into_iter().filter(|_| is_remote);
        let mut servers = names.filter_map(|name| Some(config.home()?.join(name)));
        let server = servers.find(|server| server.is_dir());
        Some(server.map_or(usual, |server| server.join(native_path("data/Machine/settings.json"))))
    }

    /// The file on this system.
    fn usual_file(&self, config: &Config) -> Option<PathBuf> {
        let [linux, macos, windows] = self.settings.ok()?;
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

/// The largest settings file of an editor, in bytes.
const MAX_FILE_SIZE: u64 = 4 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct EditorCliArgs {
    /// Editor or client
    #[arg(value_name = "NAME", ignore_case = true, value_parser = PossibleValuesParser::new(GUIDES.iter().map(|it| it.name)))]
    name: String,
    /// Make the entry in the editor's settings, after showing the change and asking
    #[arg(long)]
    write: bool,
    /// Write without asking
    #[arg(long, requires = "write")]
    yes: bool,
    /// Settings file, if it is not the usual one
    #[arg(long, value_name = "PATH", requires = "write")]
    file: Option<PathBuf>,
}

pub(super) fn run(args: &EditorCliArgs, config: &Config) -> CliResult<()> {
    let guide = EditorGuide::find(&args.name).ok_or_else(|| CliError::Other(args.name.clone()))?;
    let program = lasting_program_path(config)?;
    if is_in_cache(&program) {
        prompt::say("This program is in a cache and will disappear: install it first.\n\n")?;
    }
    if args.write {
        return write(guide, &program, args, config);
    }
    let file = guide.file(config);
    let line = file.map(|path| format!("\nOn this machine the file is {}\n", path.display()));
    print(&format!("{}{}", guide.text(&program), line.unwrap_or_default()))
}

/// The path of this program. If `PATH` leads to it through a link, that is the path: package managers put each
/// version into a folder of its own, which the next version deletes.
fn lasting_program_path(config: &Config) -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let name = format!("turnwright{}", std::env::consts::EXE_SUFFIX);
    let path = config.inherited.iter().find(|variable| variable.0 == "PATH");
    let folders = path.map(|variable| std::env::split_paths(&variable.1)).into_iter().flatten();
    let first = folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(&name))
        .find(|path| path.exists());
    let real = real_path(&program).ok();
    let own = first.filter(|path| real.is_some() && real_path(path).ok() == real);
    Ok(own.unwrap_or(program))
}

/// Returns true if a program is where `npx`, `uvx`, `pipx run` and `pnpm dlx` keep those that are not installed.
fn is_in_cache(program: &Path) -> bool {
    const CACHES: [&str; 4] = [".cache", "Caches", "_npx", "archive-v0"];
    program.iter().any(|part| CACHES.iter().any(|cache| part == *cache))
}

fn write(
    guide: &EditorGuide,
    program: &Path,
    args: &EditorCliArgs,
    config: &Config,
) -> CliResult<()> {
    let by_hand = |why: String| {
        print(&guide.text(program))?;
        Err(CliError::Other(format!("{why}. Nothing was written; the set-up is above")))
    };
    if let Err(why) = guide.settings {
        return by_hand(why.to_owned());
    }
    let Some(path) = args.file.clone().or_else(|| guide.file(config)) else {
        return by_hand("There is no home folder".to_owned());
    };
    let place = escape_hidden_line(&path.display().to_string());
    let change = match SettingsEdit::prepare(&path, guide, program) {
        Ok(Some(change)) => change,
        Ok(None) => return print(&format!("Already set up in {place}\n")),
        Err(why) => return by_hand(format!("{place} cannot be changed: {why}")),
    };
    let old = change.old.as_deref().unwrap_or_default();
    // Without unchanged lines: keys are often beside the entry.
    let difference = unified_diff(old, &change.new, 0, None);
    // The line ends of Windows are no part of the change.
    print(&format!("{place}\n{}", escape_hidden(&difference.replace("\r\n", "\n"))))?;
    let advice = "add --yes to write without a question";
    if !args.yes && !prompt::confirm("Write this? [y/N] ", advice)? {
        return Err(CliError::Other("nothing was written".to_owned()));
    }
    let old = change.old.map(String::into_bytes);
    let written = block_on(replace_file(&change.path, old, change.new.into_bytes()))?;
    written.map_err(|error| {
        let why = match error {
            FileError::Stale => "it has changed meanwhile".to_owned(),
            FileError::ReadOnly => "it is read-only".to_owned(),
            other => other.to_string(),
        };
        CliError::Other(format!("{place}: {why}. Nothing was written"))
    })?;
    print("Written.\n")
}

/// A prepared change of an editor's settings.
struct SettingsEdit {
    /// Without symbolic links.
    path: PathBuf,
    /// None if there is no file.
    old: Option<String>,
    new: String,
}

impl SettingsEdit {
    /// None if there is nothing to change.
    fn prepare(
        path: &Path,
        guide: &EditorGuide,
        program: &Path,
    ) -> CliResult<Option<SettingsEdit>> {
        let (keys, entry) = guide.entry(program).ok_or("its page has no entry")?;
        let (path, old) = read(path)?;
        let text = old.clone().unwrap_or_default();
        let new = with_entry(&text, &keys, &entry).map_err(|error| error.to_string())?;
        Ok((new != text).then_some(SettingsEdit { path, old, new }))
    }
}

/// The path without links, and the text of the file, if there is one.
fn read(path: &Path) -> io::Result<(PathBuf, Option<String>)> {
    let path = std::path::absolute(path)?;
    if path.symlink_metadata().is_ok() {
        let path = real_path(path)?;
        let text = private_file::read(&path, MAX_FILE_SIZE)?;
        return Ok((path, Some(text)));
    }
    // The folders that exist may be behind links.
    let existing = path.ancestors().skip(1).find(|folder| folder.exists());
    let path = match existing.and_then(|folder| Some((folder, path.strip_prefix(folder).ok()?))) {
        Some((existing, rest)) => real_path(existing)?.join(rest),
        None => path,
    };
    Ok((path, None))
}

/// The text with the entry. Of an entry that is there only what differs is replaced, and its variables and
/// whatever else the user has added stay.
fn with_entry(text: &str, keys: &[String], entry: &Value) -> Result<String, ConfigError> {
    let mut path: Vec<&str> = keys.iter().map(String::as_str).collect();
    let whole = jsonc::parse(text)?;
    let found = path.iter().try_fold(&whole, |value, key| value.get(key));
    let (Some(Value::Object(old)), Value::Object(new)) = (found, entry) else {
        return match found {
            Some(same) if same == entry => Ok(text.to_owned()),
            _ => jsonc::with_value(text, &path, entry),
        };
    };
    // acpx refuses an entry that has both forms.
    if old.contains_key("argv") != new.contains_key("argv") {
        return jsonc::with_value(text, &path, entry);
    }
    let mut text = text.to_owned();
    for (key, value) in new {
        let stays = match old.get(key) {
            Some(_) if key == "env" => true,
            current => current == Some(value),
        };
        if !stays {
            path.push(key);
            text = jsonc::with_value(&text, &path, value)?;
            path.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
