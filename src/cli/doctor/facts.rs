//! The facts in a report that are not checks: the system, the program, the stored sessions, the disk, the
//! editor and the settings in force. Nothing is changed.

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::DoctorReport;
use crate::config::{Config, EffectiveSetting};
use crate::session::last_client;
use turnwright_store::{Store, StoreError};
use turnwright_types::io_error_text::io_error_text;
use turnwright_types::text::format_bytes;

/// The free space in bytes below which the report warns, because the database may fail soon.
const LOW_DISK_SPACE: u64 = 200 * 1024 * 1024;

impl DoctorReport {
    pub(super) fn add_facts(&mut self, config: &Config) {
        self.add_platform();
        self.add_store(config);
        self.add_disk(&config.paths.state);
        self.add_editor(&config.paths.state);
        self.add_settings(config);
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

    fn add_editor(&mut self, state: &Path) {
        let client = last_client(state);
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
            self.print_field(
                label,
                &format!("{} = {} ({})", setting.name, setting.value, setting.from),
            );
            label = "";
        }
        self.set("in_force", json!(settings));
    }
}

fn count_sessions(connection: &Connection) -> Result<u64, StoreError> {
    Ok(connection.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0))?)
}

/// The effective settings. The user's instructions are replaced by their length.
pub(super) fn shown_settings(config: &Config) -> Vec<EffectiveSetting> {
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
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
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
