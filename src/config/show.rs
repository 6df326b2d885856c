//! The settings for people: each value with where it comes from, and no key.

use serde::Serialize;

use super::file::File;
use super::{Config, Credentials, EndpointSettings, OPENAI_KEY, Provider};

/// A setting that is in force.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name, as the configuration has it.
    pub name: String,
    /// Its value; `set` or `not set` for a key.
    pub value: String,
    /// Where it comes from.
    pub from: String,
}

impl Setting {
    fn new(name: &str, value: &(impl ToString + ?Sized), from: impl Into<String>) -> Setting {
        Setting { name: name.to_owned(), value: value.to_string(), from: from.into() }
    }
}

const BUILT_IN: &str = "built in";

impl Config {
    /// All settings that are in force. What is wrong with one stands in the place of its value.
    pub fn settings(&self) -> Vec<Setting> {
        let file = match self.file.load() {
            Ok(file) => file,
            Err(error) => return vec![Setting::new("file", &error, self.place())],
        };
        let mut settings = self.model_settings(&file);
        settings.extend(self.other_settings(&file));
        for (name, section) in &file.providers {
            // The address and the key are the same for every model.
            let model = section.models.first().map_or("-", String::as_str);
            let named = self.sources(&file).provider(Some(&format!("{name}/{model}")));
            let value = match named {
                Ok(Provider::Endpoint(it)) => format!("{}, key {}", it.shown_url(), is_set(&it)),
                Ok(_) => "nothing".to_owned(),
                Err(error) => error.to_string(),
            };
            settings.push(Setting::new(&format!("providers.{name}"), &value, self.place()));
        }
        if let Some(seconds) = file.mcp.wait() {
            settings.push(Setting::new("mcp.wait_seconds", &seconds, self.place()));
        }
        let servers = file.mcp.shown().into_iter();
        settings.extend(servers.map(|(name, value)| {
            let name = format!("mcp.servers.{}", name.escape_debug());
            Setting::new(&name, &value, self.place())
        }));
        settings
    }

    fn model_settings(&self, file: &File) -> Vec<Setting> {
        let endpoint = match self.provider() {
            Ok(Provider::Endpoint(endpoint)) => endpoint,
            Ok(Provider::Offline) => {
                return vec![Setting::new("model", "offline", self.model_place(file, false))];
            }
            Ok(Provider::None) => return vec![Setting::new("model", "none", BUILT_IN)],
            Err(error) => {
                return vec![Setting::new("model", &error, self.model_place(file, true))];
            }
        };
        let model = endpoint.full_name().unwrap_or_else(|| "none".to_owned());
        let mut settings = vec![
            Setting::new("model", &model, self.model_place(file, endpoint.name.is_some())),
            Setting::new("base_url", &endpoint.shown_url(), self.address_place(file, &endpoint)),
            Setting::new("key", is_set(&endpoint), self.key_place(&endpoint)),
        ];
        if let Some(window) = endpoint.window {
            let variable = (self.window().is_some(), "TURNWRIGHT_CONTEXT_WINDOW");
            let from = first(&[variable, (true, &self.place())]);
            settings.push(Setting::new("window", &window, from));
        }
        settings
    }

    fn model_place(&self, file: &File, is_section: bool) -> String {
        first(&[
            (self.flags.model.is_some(), "--model"),
            (self.variables.model.is_some(), "TURNWRIGHT_MODEL"),
            // Without a name it is the first of a section.
            (file.model.is_some() || is_section, &self.place()),
            (self.login().is_some_and(|it| it.model.is_some()), &self.login_place()),
        ])
    }

    fn address_place(&self, file: &File, endpoint: &EndpointSettings) -> String {
        if let Some(name) = &endpoint.name {
            let own = file.providers.get(name).is_some_and(|it| it.base_url.is_some());
            return first(&[(own, &self.place())]);
        }
        first(&[
            (self.flags.base_url.is_some(), "--base-url"),
            (self.variables.base_url.is_some(), "OPENAI_BASE_URL"),
            (self.login().is_some_and(|it| it.base_url.is_some()), &self.login_place()),
        ])
    }

    /// Where the key that is in use is held.
    fn key_place(&self, endpoint: &EndpointSettings) -> String {
        let Some(key) = &endpoint.key else { return BUILT_IN.to_owned() };
        if endpoint.name.is_none() {
            let is_login = self.login().is_some();
            return first(&[(is_login, &self.login_place()), (true, OPENAI_KEY)]);
        }
        let held = self.variables.keys.iter().find(|it| it.1 == key);
        held.map_or_else(|| self.place(), |(variable, _)| variable.clone())
    }

    /// The stored login, if it is what the default endpoint comes from.
    fn login(&self) -> Option<Credentials> {
        let is_set = self.flags.base_url.is_some()
            || self.variables.base_url.is_some()
            || self.variables.keys.contains_key(OPENAI_KEY);
        if is_set { None } else { Credentials::load(&self.paths) }
    }

    fn login_place(&self) -> String {
        Credentials::path(&self.paths).display().to_string()
    }

    fn other_settings(&self, file: &File) -> Vec<Setting> {
        let place = self.place();
        let from = |variable: bool, name: &str, in_file: bool| {
            first(&[(variable, name), (in_file, &place)])
        };
        let mode = self.mode().unwrap_or_else(|| "ask".to_owned());
        let mode_from = from(self.variables.mode.is_some(), "TURNWRIGHT_MODE", file.mode.is_some());
        let requests_from = from(
            self.max_turn_requests_of_the_process().is_some(),
            "TURNWRIGHT_MAX_TURN_REQUESTS",
            file.max_turn_requests.is_some(),
        );
        let effort_from = from(false, "", file.effort.is_some());
        let list_from = from(false, "", file.list_models.is_some());
        let mut settings = vec![
            Setting::new("mode", &mode, mode_from),
            Setting::new("max_turn_requests", &self.max_turn_requests(), requests_from),
            Setting::new("effort", self.effort().id(), effort_from),
            Setting::new("list_models", &self.list_models(), list_from),
        ];
        if !file.web.allow.is_empty() {
            settings.push(Setting::new("web.allow", &file.web.allow.join(", "), place.as_str()));
        }
        settings
    }

    fn place(&self) -> String {
        self.file().display().to_string()
    }
}

/// The first place that applies.
fn first(places: &[(bool, &str)]) -> String {
    places.iter().find(|it| it.0).map_or(BUILT_IN, |it| it.1).to_owned()
}

fn is_set(endpoint: &EndpointSettings) -> &'static str {
    if endpoint.key.is_some() { "set" } else { "not set" }
}
