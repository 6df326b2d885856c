//! `turnwright doctor --report`: everything that is needed to help with a problem, in one file that is safe to attach to
//! an issue. It contains no keys, no prompts, answers or file contents, and no arguments or results of calls. Its facts
//! that are not checks are the system, the program, the stored sessions, the disk, the editor and the settings in force.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::DoctorReport;
use crate::scrub::scrub;
use turnwright_config::{Config, EffectiveSetting};
use turnwright_mcp::ServerTransport;
use turnwright_store::history::{CallRecord, HistoryQuery, find_calls};
use turnwright_store::sessions::{self, SessionFilter};
use turnwright_store::{SessionRow, Store, StoreError};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_types::redact;
use turnwright_types::text::format_bytes;
use turnwright_types::timestamp::rfc3339;

/// The number of bytes at the end of the log that the report contains.
const LOG_TAIL: u64 = 64 * 1024;
/// The maximum number of calls of the last session that the report contains.
const MAX_CALLS: usize = 100;

/// Everything that a report contains besides the doctor's own output.
#[derive(Debug)]
pub struct ReportBundle {
    path: PathBuf,
    home: Option<String>,
    settings: String,
    client: String,
    session: String,
    log: String,
}

impl ReportBundle {
    /// Reads what will be in the report, before the doctor adds to it. `client` is what the last client has sent.
    pub fn prepare(
        path: &Path,
        config: &Config,
        client: Option<&Value>,
    ) -> io::Result<ReportBundle> {
        if path.symlink_metadata().is_ok() {
            return Err(io::Error::other("it exists already; give another name, or remove it"));
        }
        // The model is not asked for a report that has no place.
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            folder.metadata()?;
        }
        redact::register_keys(server_values(config)).map_err(io::Error::other)?;
        let state = &config.paths.state;
        let settings = shown_settings(config);
        let client = client.map(|client| format!("{client:#}\n"));
        Ok(ReportBundle {
            path: path.to_path_buf(),
            home: config.home().map(|folder| folder.display().to_string()),
            settings: settings.iter().map(|setting| setting_text(setting) + "\n").collect(),
            client: client.unwrap_or_else(|| "none\n".to_owned()),
            session: last_session(state).unwrap_or_else(|error| format!("{error}\n")),
            log: log_tail(&state.join("turnwright.log")).unwrap_or_else(|_| "none\n".to_owned()),
        })
    }

    /// Writes the report, including the output of the doctor.
    pub fn write(&self, doctor: &DoctorReport) -> io::Result<()> {
        let said = doctor.said.borrow();
        let mut text = format!(
            "# turnwright report\n\nMade by `turnwright doctor --report` at {}. Keys, and whatever looks like one, are \
             removed.\n",
            rfc3339(SystemTime::now())
        );
        for (title, part) in [
            ("Doctor", said.as_str()),
            ("Settings in force", &self.settings),
            ("Editor seen last", &self.client),
            ("Last session", &self.session),
            ("Log", &self.log),
        ] {
            let part = scrub(part, self.home.as_deref()).replace("````", "'```");
            text.push_str(&format!("\n## {title}\n\n````text\n{part}````\n"));
        }
        private_file::create_new(&self.path)?.write_all(text.as_bytes())
    }
}

/// Whatever may be a key in the settings of the MCP servers, whatever its name: a server may print it.
fn server_values(config: &Config) -> Vec<String> {
    let servers = config.snapshot().mcp_settings().servers;
    let values = servers.iter().flat_map(|server| match &server.transport {
        ServerTransport::Stdio { arguments, environment, .. } => {
            let words = arguments.iter().flat_map(|argument| {
                argument.split(|letter: char| letter.is_whitespace() || letter == '=')
            });
            words.chain(environment.iter().map(|variable| variable.1.expose())).collect()
        }
        ServerTransport::Http { headers, .. } => {
            let words = headers.iter().flat_map(|header| header.1.expose().split_whitespace());
            words.collect::<Vec<_>>()
        }
        ServerTransport::Linked(_) => Vec::new(),
    });
    // A path or the name of a package says what went wrong.
    let secret = values.filter(|value| !value.starts_with(['/', '~', '@', '-']));
    secret.map(str::to_owned).collect()
}

fn setting_text(setting: &EffectiveSetting) -> String {
    format!("{} = {} ({})", setting.name, setting.value, setting.from)
}

/// The tool calls of the session that was used last, and how each ended.
fn last_session(state: &Path) -> Result<String, StoreError> {
    let store = Store::new(state);
    if !store.exists() {
        return Ok("none\n".to_owned());
    }
    store.read_blocking(|connection| {
        let (found, _) = sessions::list(connection, &SessionFilter::default(), None, 1)?;
        let Some(session) = found.into_iter().next() else { return Ok("none\n".to_owned()) };
        let id = Some(session.id.clone());
        let query = HistoryQuery { session: id, limit: MAX_CALLS, ..HistoryQuery::default() };
        let calls = find_calls(connection, &query)?.rows;
        Ok(session_text(&session, &calls))
    })
}

fn session_text(session: &SessionRow, calls: &[CallRecord]) -> String {
    let mut text = format!("{}, last used {}\n", session.id, rfc3339(session.updated_at));
    for call in calls.iter().rev() {
        let took =
            call.duration_ms.map(|duration| format!(", {duration:.0} ms")).unwrap_or_default();
        let turn = call.turn;
        let tool = &call.tool;
        let status = call.status.as_str();
        text.push_str(&format!("{} turn {turn}: {tool}: {status}{took}\n", rfc3339(call.at)));
    }
    text
}

/// The end of the log, from the beginning of a line.
fn log_tail(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = fs::File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(LOG_TAIL);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let start = if skipped == 0 { 0 } else { text.find('\n').map_or(text.len(), |end| end + 1) };
    let mut tail = text[start..].to_owned();
    if !tail.ends_with('\n') {
        tail.push('\n');
    }
    Ok(tail)
}

/// The free space in bytes below which the report warns, because the database may fail soon.
const LOW_DISK_SPACE: u64 = 200 * 1024 * 1024;

impl DoctorReport {
    /// Reports the facts that are not checks. `client` is what the last client has sent.
    pub fn add_facts(&mut self, config: &Config, client: Option<Value>) {
        self.add_platform();
        self.add_store(config);
        self.add_disk(&config.paths.state);
        self.add_editor(client);
        self.add_settings(config);
        self.add_search(config);
    }

    fn add_platform(&mut self) {
        let system =
            format!("{} {}{}", std::env::consts::OS, std::env::consts::ARCH, system_version());
        let program = std::env::current_exe()
            .map_or_else(|error| io_error_text(&error), |path| path.display().to_string());
        self.print_field("platform", &system);
        self.print_field("program", &program);
        self.set("platform", system);
        self.set("program", program);
    }

    /// Counts the stored sessions, which shows whether the database can be read.
    fn add_store(&mut self, config: &Config) {
        let store = Store::new(&config.paths.state);
        let path = config.paths.state.join("sessions.db");
        let size = path.metadata().map_or(0, |metadata| metadata.len());
        let counted = if store.exists() { store.read_blocking(count_sessions) } else { Ok(0) };
        let error = counted.as_ref().err().map(ToString::to_string);
        let shown = match (&counted, &error) {
            (Ok(number), _) => format!("{number} sessions, {}", format_bytes(size)),
            (_, error) => format!("! {}", error.as_deref().unwrap_or_default()),
        };
        self.print_field("store", &format!("{}: {shown}", path.display()));
        let notice = store.file_system_notice();
        if let Some(notice) = &notice {
            self.print_field("", &format!("! {notice}"));
        }
        let number = counted.ok();
        self.set(
            "store",
            json!({ "path": path, "sessions": number, "bytes": size, "error": error, "notice": notice }),
        );
    }

    fn add_disk(&mut self, state: &Path) {
        let free = free_space(state);
        if let Some(free) = free {
            let mark = if free < LOW_DISK_SPACE { "! only " } else { "" };
            self.print_field("disk", &format!("{mark}{} free", format_bytes(free)));
        }
        self.set("disk", json!({ "free": free }));
    }

    fn add_editor(&mut self, client: Option<Value>) {
        let shown = client.as_ref().map_or_else(|| "none yet".to_owned(), client_text);
        self.print_field("editor", &shown);
        self.set("editor", client);
    }

    /// Prints the settings that differ from the defaults. The JSON contains all settings.
    fn add_settings(&mut self, config: &Config) {
        let settings = shown_settings(config);
        let chosen = settings
            .iter()
            .filter(|setting| setting.from != "built in" && setting.value != "not set");
        let mut label = "in force";
        for setting in chosen {
            self.print_field(label, &setting_text(setting));
            label = "";
        }
        self.set("in_force", json!(settings));
    }

    /// Prints the service that searches the web, if the settings name one. It is not asked.
    fn add_search(&mut self, config: &Config) {
        let snapshot = config.snapshot();
        let Some(name) = &snapshot.values.web.search else { return };
        let shown = match snapshot.search() {
            None => format!("! {name} cannot be used; SearXNG needs `web.search_url`"),
            Some((service, origin)) => match (service.check_key(), origin) {
                (Err(why), _) => format!("! {why}"),
                (Ok(()), None) => format!("{name} at {}", service.host()),
                (Ok(()), Some(place)) => format!("{name} at {}, key in {place}", service.host()),
            },
        };
        self.print_field("search", &shown);
        self.set("search", shown);
    }
}

fn count_sessions(connection: &Connection) -> Result<u64, StoreError> {
    Ok(connection.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0))?)
}

/// The effective settings. The user's instructions are replaced by their length.
fn shown_settings(config: &Config) -> Vec<EffectiveSetting> {
    let mut settings = config.snapshot().settings();
    for setting in settings.iter_mut().filter(|setting| setting.name == "agent.system_prompt") {
        setting.value = format!("{} characters", setting.value.chars().count());
    }
    settings
}

/// Describes a client, as in `Zed 0.200.1: fs.readTextFile, terminal`.
fn client_text(client: &Value) -> String {
    let info = &client["clientInfo"];
    let name = info["title"].as_str().or_else(|| info["name"].as_str()).unwrap_or("without a name");
    let version = info["version"].as_str().map(|version| format!(" {version}")).unwrap_or_default();
    let mut capabilities = Vec::new();
    if let Value::Object(all) = &client["clientCapabilities"] {
        collect_capabilities(all, "", &mut capabilities);
    }
    let capabilities = if capabilities.is_empty() {
        "no capabilities".to_owned()
    } else {
        capabilities.join(", ")
    };
    format!("{name}{version}: {capabilities}")
}

fn collect_capabilities(declared: &Map<String, Value>, prefix: &str, found: &mut Vec<String>) {
    for (name, value) in declared {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                collect_capabilities(inner, &format!("{prefix}{name}."), found);
            }
            Value::Null | Value::Bool(false) => {}
            _ => found.push(format!("{prefix}{name}")),
        }
    }
}

/// The version of the Linux kernel, as it is appended to the platform. Empty on macOS.
#[cfg(not(windows))]
fn system_version() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    release.map(|release| format!(", Linux {}", release.trim())).unwrap_or_default()
}

/// The name and version of Windows, as it is appended to the platform.
#[cfg(windows)]
#[expect(clippy::disallowed_methods, reason = "`ver` is a word of cmd and touches nothing")]
fn system_version() -> String {
    let printed = std::process::Command::new("cmd").args(["/d", "/c", "ver"]).output();
    let version = printed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    version
        .ok()
        .filter(|version| !version.is_empty())
        .map(|version| format!(", {version}"))
        .unwrap_or_default()
}

/// The bytes that this user can still write where the folder is or will be.
#[cfg(unix)]
fn free_space(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let about = rustix::fs::statvfs(existing).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(windows)]
#[expect(unsafe_code, reason = "a call of the system whose pointers live as long as the call")]
fn free_space(folder: &Path) -> Option<u64> {
    use std::os::windows::ffi::OsStrExt;
    use windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW;
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let name: Vec<u16> = existing.as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0;
    let null = std::ptr::null_mut();
    // SAFETY: `name` ends with a zero, and `free` is what the call fills.
    let is_known = unsafe { GetDiskFreeSpaceExW(name.as_ptr(), &raw mut free, null, null) } != 0;
    is_known.then_some(free)
}
