//! `turnwright login search`: the key of the service that searches the web. It is tried with one search, and kept for the
//! host that was asked. Unless that works, nothing is stored.

use std::process::ExitCode;

use turnwright_config::{Config, Logins};
use turnwright_types::secret::Secret;
use turnwright_workspace::web::WebFetcher;

use crate::{CliError, CliResult, block_on, prompt};

/// Asks for the key, or reads it from a pipe, tries it and stores it.
pub fn login_search(config: &Config) -> ExitCode {
    prompt::finish(run(config), "Nothing was stored")
}

fn run(config: &Config) -> CliResult<String> {
    let found = config.snapshot().search();
    let (mut service, _) = found.ok_or(
        "the settings name no service that can be used. Set one, for example with \
         `turnwright config set web.search brave`",
    )?;
    let name = service.name();
    if service.needs_key() {
        let typed = prompt::ask_hidden(&format!("API key for {name} (hidden): "))?;
        service.key = Some(Secret::from_copied(&typed).ok_or("no key was given")?);
    }
    prompt::say(&format!("Searching with {name}…\n"))?;
    let mut web = WebFetcher::default();
    web.set_proxies(config.proxy_hosts());
    block_on(service.search(&web, "turnwright"))??;
    let Some(key) = service.key.as_ref().map(Secret::expose) else {
        return Ok(format!("It works. {name} needs no key, so nothing is stored.\n"));
    };
    let loaded = Logins::load(&config.paths);
    let mut logins = loaded.map_err(|error| CliError::Other(error.to_string()))?;
    logins.add_search(&service.host(), key, &config.paths)?;
    let path = Logins::path(&config.paths);
    Ok(format!("Stored in {}, for sessions that are opened from now on.\n", path.display()))
}
