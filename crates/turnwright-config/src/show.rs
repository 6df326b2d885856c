//! The effective settings for display: each value with its origin. Keys are not shown.

use serde::Serialize;
use turnwright_llm::DEFAULT_ASSUMED_WINDOW;
use turnwright_types::redact;

use crate::environment::{BASE_URL_VARIABLE, CONTEXT_WINDOW_VARIABLE, MODEL_VARIABLE};
use crate::file::ConfigFile;
use crate::table::{Entry, Row, SettingType};
use crate::{
    Config, EndpointSettings, Logins, PermissionSection, Provider, SettingsSnapshot, StoredLogin,
    provider,
};

/// A setting with its effective value.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct EffectiveSetting {
    /// Its key in the settings file.
    pub name: String,
    /// Its value; `set` or `not set` for a key.
    pub value: String,
    /// Its origin: a flag, a variable, a file or `built in`.
    pub from: String,
}

impl EffectiveSetting {
    /// A setting of this name, its value as text, and its origin.
    pub fn new(
        name: &str,
        value: &(impl ToString + ?Sized),
        from: impl Into<String>,
    ) -> EffectiveSetting {
        EffectiveSetting { name: name.to_owned(), value: value.to_string(), from: from.into() }
    }
}

pub(crate) const BUILT_IN: &str = "built in";
/// The settings that are shown behind the others, which are in the order of the table.
const LAST: [&str; 3] = ["sandbox.caches", "sessions.", "limits."];

impl SettingsSnapshot<'_> {
    /// All effective settings. The value of an invalid one is the error message.
    pub fn settings(&self) -> Vec<EffectiveSetting> {
        let file = match self.file() {
            Ok(file) => file,
            Err(error) => return vec![self.of_file("file", &error)],
        };
        let mut settings = self.model_settings(file);
        settings.extend(self.other_settings(file));
        for (name, section) in &file.providers {
            // Base URL and key do not depend on the model.
            let model = section.models.first().map_or("-", String::as_str);
            let named = self.sources(file).provider(Some(&format!("{name}/{model}")));
            let value = match named {
                Ok(Provider::Endpoint(endpoint)) => {
                    format!("{}, key {}", endpoint.redacted_url(), key_state(&endpoint))
                }
                Ok(_) => "nothing".to_owned(),
                Err(error) => error.to_string(),
            };
            settings.push(self.of_file(&format!("providers.{name}"), &value));
        }
        for (place, fields) in file.request_tables().iter().filter(|table| !table.1.is_empty()) {
            let value = provider::describe_request_fields(fields);
            settings.push(self.of_file(&format!("{place}.request"), &value));
        }
        settings.extend(self.logins.all().iter().map(|login| self.login_setting(login)));
        settings.extend(file.mcp.wait().map(|wait| self.of_file("mcp.wait_seconds", &wait)));
        let servers = file.mcp.descriptions().into_iter();
        settings.extend(servers.map(|(name, value)| {
            self.of_file(&format!("mcp.servers.{}", name.escape_debug()), &value)
        }));
        settings
    }

    fn of_file(&self, name: &str, value: &(impl ToString + ?Sized)) -> EffectiveSetting {
        EffectiveSetting::new(name, value, self.config.file_path())
    }

    fn model_settings(&self, file: &ConfigFile) -> Vec<EffectiveSetting> {
        let model = |name: &str, is_section| {
            EffectiveSetting::new("model", name, self.model_origin(file, is_section))
        };
        let endpoint = match self.provider() {
            Ok(Provider::Endpoint(endpoint)) => endpoint,
            Ok(Provider::Offline) => return vec![model("offline", false)],
            Ok(Provider::Unconfigured) => {
                let named = self.model_without_provider();
                return vec![model(named.as_deref().unwrap_or("none"), false)];
            }
            Err(error) => return vec![model(&error.to_string(), true)],
        };
        let url = endpoint.redacted_url();
        let mut settings = vec![
            model(endpoint.full_name().as_deref().unwrap_or("none"), endpoint.name.is_some()),
            EffectiveSetting::new("base_url", &url, self.base_url_origin(file, &endpoint)),
            EffectiveSetting::new("key", key_state(&endpoint), key_origin(&endpoint)),
        ];
        if let Some(window) = endpoint.window {
            let variable = (self.config.context_window().is_some(), CONTEXT_WINDOW_VARIABLE);
            let from = first_match(&[variable, (true, &self.config.file_path())]);
            settings.push(EffectiveSetting::new("window", &window, from));
        }
        let assumed = endpoint.assumed_window;
        let from = first_match(&[(assumed.is_some(), &self.config.file_path())]);
        let assumed = assumed.unwrap_or(DEFAULT_ASSUMED_WINDOW);
        settings.push(EffectiveSetting::new("models.assumed_window", &assumed, from));
        let silence = endpoint.silence_limit().as_secs();
        let from = first_match(&[(file.silence_seconds.is_some(), &self.config.file_path())]);
        settings.push(EffectiveSetting::new("silence_seconds", &silence, from));
        settings
    }

    fn model_origin(&self, file: &ConfigFile, is_section: bool) -> String {
        let is_from_login = self.login_model().is_some()
            || !is_section && self.endpoint_login().is_some_and(|login| login.model.is_some());
        first_match(&[
            (self.config.flags.model.is_some(), "--model"),
            (self.config.variables.get(MODEL_VARIABLE).is_some(), MODEL_VARIABLE),
            (file.model.is_some(), &self.config.file_path()),
            (is_from_login, &self.config.login_path()),
            // Without a name, the model is the first of a section.
            (is_section, &self.config.file_path()),
        ])
    }

    fn base_url_origin(&self, file: &ConfigFile, endpoint: &EndpointSettings) -> String {
        if let Some(name) = &endpoint.name {
            let own = file.providers.get(name).is_some_and(|section| section.base_url.is_some());
            return first_match(&[(own, &self.config.file_path())]);
        }
        let is_from_login = self.endpoint_login().is_some_and(|login| login.base_url.is_some());
        first_match(&[
            (self.config.flags.base_url.is_some(), "--base-url"),
            (self.config.variables.get(BASE_URL_VARIABLE).is_some(), BASE_URL_VARIABLE),
            (is_from_login, &self.config.login_path()),
        ])
    }

    fn login_setting(&self, login: &StoredLogin) -> EffectiveSetting {
        let server = login.server().map_or("an unknown server".to_owned(), redact::url);
        let key = if login.key.is_some() { "key set" } else { "no key" };
        let model =
            login.model.as_deref().map(|model| format!(", model {model}")).unwrap_or_default();
        EffectiveSetting::new(
            &format!("login.{}", login.name()),
            &format!("{server}, {key}{model}"),
            self.config.login_path(),
        )
    }

    /// The settings that do not depend on the model, by sections.
    fn other_settings(&self, file: &ConfigFile) -> Vec<EffectiveSetting> {
        let mut settings = Vec::new();
        for entry in file.entries("") {
            match entry.0.as_str() {
                // `model_settings` has these.
                "model" | "silence_seconds" | "models.assumed_window" => {}
                "checks" => {
                    for (name, command) in &file.checks {
                        settings.push(self.of_file(&format!("checks.{name}"), command));
                    }
                }
                "permissions" => settings.push(self.rules_setting(&file.permissions)),
                key if key.starts_with("permissions.") => {}
                _ => settings.extend(self.entry_setting(entry)),
            }
        }
        settings
            .sort_by_key(|setting| LAST.iter().position(|start| setting.name.starts_with(start)));
        let limits = self.config.flags.limits.iter().filter(|limit| limit.0 != "max_turn_requests");
        let flags: Vec<_> = limits
            .map(|(name, number)| {
                EffectiveSetting::new(&format!("limits.{name}"), number, "--budget")
            })
            .collect();
        settings.retain(|setting| flags.iter().all(|flag| flag.name != setting.name));
        settings.extend(flags);
        settings
    }

    /// The effective value of a setting that is set, or has a default.
    fn entry_setting(&self, (key, row, set): Entry) -> Option<EffectiveSetting> {
        let from = self.origin(row, set.is_some());
        let value = self.value_in_force(&key).or(set).or_else(|| row.shown_default())?;
        Some(EffectiveSetting::new(&key, &value, from))
    }

    /// The value of a setting that may be another one than the file or the table has.
    fn value_in_force(&self, key: &str) -> Option<String> {
        let sandbox = || self.sandbox_settings();
        let value = match key {
            "mode" => self.mode().id(),
            "max_turn_requests" => return Some(self.max_turn_requests().to_string()),
            "effort" => self.effort().id(),
            "verify" => self.work().verify.id(),
            "alone" => return Some(self.work().alone.to_string()),
            "find_checks" => return Some(self.work().find_checks.to_string()),
            "agent.surroundings" => return Some(self.work().surroundings.to_string()),
            "sandbox.network" => return Some(sandbox().network_text()),
            "sandbox.read" if sandbox().strict_reads => "strict",
            "sandbox.read" => "all",
            _ => return None,
        };
        Some(value.to_owned())
    }

    /// The origin of a setting's value.
    fn origin(&self, row: &Row, is_in_file: bool) -> String {
        let (is_flag, is_variable) = match row.key {
            "max_turn_requests" => (
                self.config.requests_flag().is_some(),
                self.config.process_max_turn_requests().is_some(),
            ),
            "alone" | "find_checks" | "surroundings" => (
                row.key == "alone" && self.config.flags.alone,
                self.config.process_switch(row.variable).is_some(),
            ),
            _ => (false, self.config.variables.get(row.variable).is_some()),
        };
        first_match(&[
            (is_flag, row.flag),
            (is_variable, row.variable),
            (is_in_file, &self.config.file_path()),
        ])
    }

    fn rules_setting(&self, rules: &PermissionSection) -> EffectiveSetting {
        let own = rules.allow.len() + rules.ask.len() + rules.deny.len() + rules.rule.len();
        let plural = if own == 1 { "" } else { "s" };
        let from = first_match(&[(own > 0, &self.config.file_path())]);
        EffectiveSetting::new("permissions", &format!("{own} rule{plural} of your file"), from)
    }
}

impl Config {
    /// The path of the user's file, for messages.
    pub(crate) fn file_path(&self) -> String {
        self.user_file_path().display().to_string()
    }

    fn login_path(&self) -> String {
        Logins::path(&self.paths).display().to_string()
    }
}

/// The first origin that applies, or `built in`.
pub(crate) fn first_match(places: &[(bool, &str)]) -> String {
    places.iter().find(|place| place.0).map_or(BUILT_IN, |place| place.1).to_owned()
}

/// The origin of the effective key.
pub(crate) fn key_origin(endpoint: &EndpointSettings) -> String {
    endpoint.key.as_ref().map_or(BUILT_IN.to_owned(), |key| key.origin.to_string())
}

fn key_state(endpoint: &EndpointSettings) -> &'static str {
    if endpoint.key.is_some() { "set" } else { "not set" }
}
