//! The process's environment, read once at the start.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::{Secret, Variables, presets};

/// Bytes of the shortest key of which copies are looked for.
const SHORTEST: usize = 8;

/// Reads the environment and removes the keys from it, so that nothing that is started later can
/// inherit them. Keys are the variables in `named`, those of the well-known providers, and what
/// ends in `_API_KEY`: a file that is mended later may name it.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub fn take(named: &[String]) -> Variables {
    let is_key = |name: &str| {
        name.ends_with("_API_KEY")
            || presets::is_key_variable(name)
            || named.iter().any(|it| it == name)
    };
    let mut variables = Variables::default();
    let mut keys = Vec::new();
    for (name, value) in std::env::vars_os() {
        let text = || value.to_str().map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned);
        match name.to_str() {
            Some("OPENAI_BASE_URL") => variables.base_url = text(),
            Some("TURNWRIGHT_MODEL") => variables.model = text(),
            Some("TURNWRIGHT_MODE") => variables.mode = text(),
            Some("TURNWRIGHT_MAX_TURN_REQUESTS") => variables.max_turn_requests = text(),
            Some("TURNWRIGHT_CONTEXT_WINDOW") => variables.context_window = text(),
            Some("TURNWRIGHT_LOG") => variables.log = text(),
            Some("RUST_LOG") => {
                variables.log = variables.log.or_else(text);
                variables.rest.push((name, value));
            }
            Some(key) if is_key(key) => {
                keys.push(key.to_owned());
                variables.keys.extend(text().map(|it| (key.to_owned(), it.into())));
            }
            _ => variables.rest.push((name, value)),
        }
    }
    // Copies of them, by whatever name.
    let secrets: Vec<_> = variables.keys.values().map(Secret::expose).collect();
    let is_copy = |value: &OsStr| {
        let value = value.to_string_lossy();
        secrets.iter().any(|it| it.len() >= SHORTEST && value.contains(it))
    };
    let copies = variables.rest.iter().filter(|it| is_copy(&it.1));
    keys.extend(copies.filter_map(|it| it.0.to_str()).map(str::to_owned));
    for key in keys {
        forget(&key);
    }
    variables
}

/// Takes the variable away, and its bytes with it: what the process was started with stays
/// readable in `/proc/PID/environ`, for every command that we run.
#[expect(unsafe_code, reason = "the environment is changed before any thread is started")]
fn forget(name: &str) {
    #[cfg(unix)]
    if let Ok(name) = std::ffi::CString::new(name) {
        unsafe extern "C" {
            fn getenv(name: *const std::ffi::c_char) -> *mut std::ffi::c_char;
        }
        // SAFETY: called before any thread is started; the value ends with a zero byte, and only
        // the bytes before it are written.
        unsafe {
            let value = getenv(name.as_ptr());
            if !value.is_null() {
                let length = std::ffi::CStr::from_ptr(value).count_bytes();
                std::ptr::write_bytes(value, 0, length);
            }
        }
    }
    // SAFETY: as above.
    unsafe { std::env::remove_var(name) };
}

/// The hosts of the proxies among these variables.
pub(super) fn proxies(variables: &[(OsString, OsString)]) -> Vec<String> {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let is_proxy = |name: &OsString| {
        name.to_str().is_some_and(|it| names.iter().any(|name| it.eq_ignore_ascii_case(name)))
    };
    let set = variables.iter().filter(|it| is_proxy(&it.0));
    let values = set.filter_map(|it| it.1.to_str()).filter(|it| !it.is_empty());
    let host = |it: &str| {
        let whole = if it.contains("://") { it.to_owned() } else { format!("http://{it}") };
        Some(url::Url::parse(&whole).ok()?.host_str()?.to_owned())
    };
    values.filter_map(host).collect()
}

/// One variable, for finding folders and files.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(super) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|it| !it.is_empty())
}

/// The user's home folder.
pub(super) fn home() -> Option<PathBuf> {
    etcetera::home_dir().ok()
}
