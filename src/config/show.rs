//! The effective settings for display: each value with its origin. Keys are not shown.

use serde::Serialize;
use turnwright_llm::DEFAULT_ASSUMED_WINDOW;
use turnwright_types::redact;

use super::file::ConfigFile;
use super::{
    Config, EndpointSettings, Logins, Provider, SessionRetention, StoredLogin, request_fields,
};

/// A setting with its effective value.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EffectiveSetting {
    /// Its key in the settings file.
    pub name: String,
    /// Its value; `set` or `not set` for a key.
    pub value: String,
    /// Its origin: a flag, a variable, a file or `built in`.
    pub from: String,
}

impl EffectiveSetting {
    pub(crate) fn new(
        name: &str,
        value: &(impl ToString + ?Sized),
        from: impl Into<String>,
    ) -> EffectiveSetting {
        EffectiveSetting { name: name.to_owned(), value: value.to_string(), from: from.into() }
    }
}

pub(super) const BUILT_IN: &str = "built in";

impl Config {
    /// All effective settings. The value of an invalid one is the error message.
    pub(crate) fn settings(&self) -> Vec<EffectiveSetting> {
        let file = match self.file.load() {
            Ok(file) => file,
            Err(error) => return vec![EffectiveSetting::new("file", &error, self.file_path())],
        };
        let mut settings = self.model_settings(&file);
        settings.extend(self.other_settings(&file));
        for (name, section) in &file.providers {
            // Base URL and key do not depend on the model.
            let model = section.models.first().map_or("-", String::as_str);
            let named = self.sources(&file).provider(Some(&format!("{name}/{model}")));
            let value = match named {
                Ok(Provider::Endpoint(endpoint)) => {
                    format!("{}, key {}", endpoint.redacted_url(), key_state(&endpoint))
                }
                Ok(_) => "nothing".to_owned(),
                Err(error) => error.to_string(),
            };
            settings.push(EffectiveSetting::new(
                &format!("providers.{name}"),
                &value,
                self.file_path(),
            ));
        }
        for (place, fields) in file.request_tables().iter().filter(|table| !table.1.is_empty()) {
            let value = request_fields::describe(fields);
            let key = format!("{place}.request");
            settings.push(EffectiveSetting::new(&key, &value, self.file_path()));
        }
        settings.extend(self.logins().all().iter().map(|login| self.login_setting(login)));
        if let Some(seconds) = file.mcp.wait() {
            settings.push(EffectiveSetting::new("mcp.wait_seconds", &seconds, self.file_path()));
        }
        let servers = file.mcp.descriptions().into_iter();
        settings.extend(servers.map(|(name, value)| {
            let name = format!("mcp.servers.{}", name.escape_debug());
            EffectiveSetting::new(&name, &value, self.file_path())
        }));
        settings
    }

    fn model_settings(&self, file: &ConfigFile) -> Vec<EffectiveSetting> {
        let endpoint = match self.provider() {
            Ok(Provider::Endpoint(endpoint)) => endpoint,
            Ok(Provider::Offline) => {
                return vec![EffectiveSetting::new(
                    "model",
                    "offline",
                    self.model_origin(file, false),
                )];
            }
            Ok(Provider::Unconfigured) => {
                let named = self.model_without_provider().unwrap_or_else(|| "none".to_owned());
                return vec![EffectiveSetting::new(
                    "model",
                    &named,
                    self.model_origin(file, false),
                )];
            }
            Err(error) => {
                return vec![EffectiveSetting::new("model", &error, self.model_origin(file, true))];
            }
        };
        let model = endpoint.full_name().unwrap_or_else(|| "none".to_owned());
        let mut settings = vec![
            EffectiveSetting::new(
                "model",
                &model,
                self.model_origin(file, endpoint.name.is_some()),
            ),
            EffectiveSetting::new(
                "base_url",
                &endpoint.redacted_url(),
                self.base_url_origin(file, &endpoint),
            ),
            EffectiveSetting::new("key", key_state(&endpoint), key_origin(&endpoint)),
        ];
        if let Some(window) = endpoint.window {
            let variable = (self.context_window().is_some(), "TURNWRIGHT_CONTEXT_WINDOW");
            let from = first_match(&[variable, (true, &self.file_path())]);
            settings.push(EffectiveSetting::new("window", &window, from));
        }
        let assumed = endpoint.assumed_window;
        let from = first_match(&[(assumed.is_some(), &self.file_path())]);
        let assumed = assumed.unwrap_or(DEFAULT_ASSUMED_WINDOW);
        settings.push(EffectiveSetting::new("models.assumed_window", &assumed, from));
        let silence = endpoint.silence_limit().as_secs();
        let from = first_match(&[(file.silence_seconds.is_some(), &self.file_path())]);
        settings.push(EffectiveSetting::new("silence_seconds", &silence, from));
        settings
    }

    fn model_origin(&self, file: &ConfigFile, is_section: bool) -> String {
        let logins = self.logins();
        let is_from_login = self.login_model(&logins).is_some()
            || !is_section
                && self.endpoint_login(&logins).is_some_and(|login| login.model.is_some());
        first_match(&[
            (self.flags.model.is_some(), "--model"),
            (self.variables.model.is_some(), "TURNWRIGHT_MODEL"),
            (file.model.is_some(), &self.file_path()),
            (is_from_login, &self.login_path()),
            // Without a name, the model is the first of a section.
            (is_section, &self.file_path()),
        ])
    }

    fn base_url_origin(&self, file: &ConfigFile, endpoint: &EndpointSettings) -> String {
        if let Some(name) = &endpoint.name {
            let own = file.providers.get(name).is_some_and(|section| section.base_url.is_some());
            return first_match(&[(own, &self.file_path())]);
        }
        let logins = self.logins();
        let is_from_login =
            self.endpoint_login(&logins).is_some_and(|login| login.base_url.is_some());
        first_match(&[
            (self.flags.base_url.is_some(), "--base-url"),
            (self.variables.base_url.is_some(), "OPENAI_BASE_URL"),
            (is_from_login, &self.login_path()),
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
            self.login_path(),
        )
    }

    fn login_path(&self) -> String {
        Logins::path(&self.paths).display().to_string()
    }

    fn other_settings(&self, file: &ConfigFile) -> Vec<EffectiveSetting> {
        let place = self.file_path();
        let from = |variable: bool, name: &str, in_file: bool| {
            first_match(&[(variable, name), (in_file, &place)])
        };
        let mode_from = from(self.variables.mode.is_some(), "TURNWRIGHT_MODE", file.mode.is_some());
        let requests_from = first_match(&[
            (self.requests_flag().is_some(), "--budget"),
            (self.process_max_turn_requests().is_some(), "TURNWRIGHT_MAX_TURN_REQUESTS"),
            (file.max_turn_requests.is_some(), &place),
        ]);
        let effort_from = from(false, "", file.effort.is_some());
        let list_from = from(false, "", file.list_models.is_some());
        let mut settings = vec![
            EffectiveSetting::new("mode", self.mode().id(), mode_from),
            EffectiveSetting::new("max_turn_requests", &self.max_turn_requests(), requests_from),
            EffectiveSetting::new("effort", self.effort().id(), effort_from),
            EffectiveSetting::new("list_models", &self.list_models(), list_from),
        ];
        let agent =
            [("agent.name", &file.agent.name), ("agent.system_prompt", &file.agent.system_prompt)];
        settings.extend(agent.into_iter().filter_map(|(name, value)| {
            Some(EffectiveSetting::new(name, &value.as_deref()?.escape_debug(), place.as_str()))
        }));
        settings.extend(file.checks.iter().map(|(name, command)| {
            EffectiveSetting::new(&format!("checks.{name}"), command, place.as_str())
        }));
        if !file.web.allow.is_empty() {
            settings.push(EffectiveSetting::new(
                "web.allow",
                &file.web.allow.join(", "),
                place.as_str(),
            ));
        }
        settings.extend(self.bounds(file).into_iter().map(|(name, value, is_set)| {
            let from = if is_set { place.as_str() } else { BUILT_IN };
            EffectiveSetting::new(&name, &value, from)
        }));
        for (name, number) in
            self.flags.limits.iter().filter(|limit| limit.0 != "max_turn_requests")
        {
            settings.push(EffectiveSetting::new(&format!("limits.{name}"), number, "--budget"));
        }
        settings
    }

    /// The settings about permissions, the sandbox, sessions and limits: name, value, and whether the user's
    /// file has them.
    fn bounds(&self, file: &ConfigFile) -> Vec<(String, String, bool)> {
        let mut bounds = Vec::new();
        let mut add = |name: &str, value: String, is_set: bool| {
            bounds.push((name.to_owned(), value, is_set));
        };
        add("acp.v2", self.allows_acp_v2().to_string(), file.acp.v2.is_some());
        let rules = &file.permissions;
        let sandbox = &file.sandbox;
        let own_rules = rules.allow.len() + rules.ask.len() + rules.deny.len() + rules.rule.len();
        let plural = if own_rules == 1 { "" } else { "s" };
        add("permissions", format!("{own_rules} rule{plural} of your file"), own_rules > 0);
        let (own_sandbox, _) = self.sandbox_settings(None);
        add("sandbox.network", own_sandbox.network.id().to_owned(), sandbox.network.is_some());
        let reads = if own_sandbox.strict_reads { "strict" } else { "all" };
        add("sandbox.read", reads.to_owned(), sandbox.read.is_some());
        let lists =
            [("write", &sandbox.write), ("hide", &sandbox.hide), ("protect", &sandbox.protect)];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            add(&format!("sandbox.{name}"), list.join(", "), true);
        }
        if let Some(memory) = sandbox.memory_mb {
            add("sandbox.memory_mb", memory.to_string(), true);
        }
        if let Some(caches) = &sandbox.caches {
            add("sandbox.caches", caches.join(", "), true);
        }
        let sessions = file.sessions;
        let usual = SessionRetention::default();
        let is_set = sessions.keep_days != usual.keep_days;
        add("sessions.keep_days", sessions.keep_days.to_string(), is_set);
        let is_set = sessions.max_size != usual.max_size;
        add("sessions.max_size", sessions.max_size.to_string(), is_set);
        let stop_loops = file.limits.stop_loops;
        add("limits.stop_loops", stop_loops.unwrap_or(true).to_string(), stop_loops.is_some());
        for (name, number) in file.limits.numbers().filter(|limit| !self.has_limit_flag(limit.0)) {
            add(&format!("limits.{name}"), number.to_string(), true);
        }
        bounds
    }

    pub(super) fn file_path(&self) -> String {
        self.user_file_path().display().to_string()
    }
}

/// The first origin that applies, or `built in`.
pub(super) fn first_match(places: &[(bool, &str)]) -> String {
    places.iter().find(|place| place.0).map_or(BUILT_IN, |place| place.1).to_owned()
}

/// The origin of the effective key.
pub(super) fn key_origin(endpoint: &EndpointSettings) -> String {
    endpoint.key.as_ref().map_or(BUILT_IN.to_owned(), |key| key.origin.to_string())
}

fn key_state(endpoint: &EndpointSettings) -> &'static str {
    if endpoint.key.is_some() { "set" } else { "not set" }
}
