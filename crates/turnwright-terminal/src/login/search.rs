//! `turnwright login search` and `turnwright logout search`: the key of the service that searches the web. It is tried
//! with one search, and kept with the address at which it was tried.

use std::process::ExitCode;

use turnwright_config::{Config, Logins};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::secret::Secret;
use turnwright_workspace::web::WebFetcher;
use turnwright_workspace::web::search::{SearchError, WebQuery};

use crate::{CliError, block_on, prompt};

/// Asks for the key, or reads it from a pipe, tries it and stores it.
pub fn login_search(config: &Config) -> ExitCode {
    match run(config) {
        Ok(said) => prompt::finish(&format!("{said}\n"), true),
        Err(error) => prompt::finish(&format!("Nothing was stored: {error}\n"), false),
    }
}

fn run(config: &Config) -> Result<String, CliError> {
    let snapshot = config.snapshot();
    let (mut service, _) = snapshot.search().ok_or_else(|| {
        let file = config.user_file_path().display();
        format!(
            "{file} names no service that can be used. Set one, for example with \
             `turnwright config set web.search brave`"
        )
    })?;
    let name = service.name();
    if service.needs_key() {
        let question = format!("API key for {name} (hidden): ");
        service.key = Secret::from_copied(&prompt::ask_hidden(&question)?);
    }
    prompt::say(&format!("Searching with {name}…\n"))?;
    let mut web = WebFetcher::default();
    web.set_proxies(config.proxy_hosts());
    let query = WebQuery { words: "turnwright".to_owned(), count: 1, domains: Vec::new() };
    match block_on(service.search(&web, &query))? {
        Ok(_) => {}
        Err(SearchError::Key(why)) => return Err(escape_hidden_line(&why).into()),
        Err(SearchError::Failed(why)) => {
            let why = escape_hidden_line(&why);
            prompt::say(&format!("{why}. So it is not known whether the search works.\n"))?;
            let is_wanted =
                !prompt::is_terminal() || prompt::is_confirmed("Store it nevertheless? [y/N] ")?;
            if !is_wanted {
                return Err("you decided not to".into());
            }
        }
    }
    let Some(key) = &service.key else {
        return Ok(format!("{name} needs no key, so there is nothing to store."));
    };
    let mut logins =
        Logins::load(&config.paths).map_err(|error| CliError::Other(error.to_string()))?;
    logins.add_search(service.url().as_str(), key.expose(), &config.paths)?;
    let used = config.snapshot().search().and_then(|(service, _)| service.key);
    let is_used = used.as_ref() == Some(key);
    let note = if is_used { "" } else { " But the key in a variable takes precedence over it." };
    Ok(format!(
        "Stored in {}. Sessions that are opened from now on search with {name}.{note}",
        Logins::path(&config.paths).display()
    ))
}

/// Removes the keys of all services that search the web.
pub fn logout_search(config: &Config) -> ExitCode {
    let removed = Logins::load(&config.paths)
        .map_err(|error| CliError::Other(error.to_string()))
        .and_then(|mut logins| Ok(logins.remove_searches(&config.paths)?));
    match removed {
        Ok(0) => prompt::finish("No key of a service that searches the web was stored.\n", true),
        Ok(_) => prompt::finish("Removed the keys of services that search the web.\n", true),
        Err(error) => prompt::finish(&format!("Nothing was removed: {error}\n"), false),
    }
}
