//! The default provider as the client sets it for this process (`providers/set`). It is kept in memory only,
//! and gets none of the user's keys.

use crate::provider::Provider;
use crate::resolve::{DefaultEndpoint, is_credential};
use crate::{Config, SettingsSnapshot};
use turnwright_types::redact;
use turnwright_types::secret::Secret;

/// The default provider as the client has set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ClientProvider {
    /// Nothing: the user's settings apply.
    #[default]
    Unset,
    /// The default endpoint is this one, with these headers.
    Set { base_url: String, headers: Vec<(String, Secret)> },
    /// There is no default provider.
    Disabled,
}

/// The state of signing in, which opening a session may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignIn {
    Done,
    Missing,
    /// The model is the offline one, or its server has no key.
    NotNeeded,
    /// The settings cannot be read.
    Unknown,
}

/// Where the keys are, as far as a client may show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountStatus {
    /// The state for the default model.
    pub sign_in: SignIn,
    /// The name of each account, and whether it is that of the default model.
    pub accounts: Vec<(String, bool)>,
}

impl Config {
    /// Replaces the default provider for this process.
    pub fn set_client_provider(&self, provider: ClientProvider) {
        *self.client_provider.lock() = provider;
    }
}

impl SettingsSnapshot<'_> {
    /// Returns true if the client has replaced or disabled the default provider.
    pub(crate) fn is_set_by_client(&self) -> bool {
        self.client_provider != ClientProvider::Unset
    }

    pub(crate) fn is_disabled_by_client(&self) -> bool {
        self.client_provider == ClientProvider::Disabled
    }

    /// The endpoint that the client has set.
    pub(crate) fn client_endpoint(&self) -> Option<DefaultEndpoint> {
        match &self.client_provider {
            ClientProvider::Set { base_url, headers } => Some(DefaultEndpoint {
                base_url: base_url.clone(),
                key: None,
                headers: headers.clone(),
                model: None,
            }),
            ClientProvider::Unset | ClientProvider::Disabled => None,
        }
    }

    /// The credentials among the headers that the client has set.
    pub(crate) fn client_secrets(&self) -> Vec<String> {
        let ClientProvider::Set { headers, .. } = &self.client_provider else {
            return Vec::new();
        };
        let credentials = headers.iter().filter(|header| is_credential(&header.0));
        let values = credentials.filter_map(|header| redact::header_key(header.1.expose()));
        values.map(str::to_owned).collect()
    }

    /// The base URL of the default provider, without secrets; `None` for the offline model or none at all.
    pub fn default_base_url(&self) -> Option<String> {
        match self.provider() {
            Ok(Provider::Endpoint(endpoint)) => Some(endpoint.redacted_url()),
            Ok(Provider::Offline | Provider::Unconfigured) | Err(_) => None,
        }
    }

    /// Where the keys are. `is_offline` if the offline model serves where none is configured.
    pub fn account_status(&self, is_offline: bool) -> AccountStatus {
        let mut accounts: Vec<_> = self
            .logins
            .all()
            .iter()
            .filter(|login| login.key.is_some())
            .map(|login| (login.name(), login.server().map(str::to_owned), false))
            .collect();
        let sign_in = match self.provider() {
            Ok(Provider::Unconfigured) if !is_offline => SignIn::Missing,
            Ok(Provider::Offline | Provider::Unconfigured) => SignIn::NotNeeded,
            Ok(Provider::Endpoint(endpoint)) => {
                let has_header = endpoint.headers.iter().any(|header| is_credential(&header.0));
                if endpoint.key.is_none() && !has_header {
                    SignIn::NotNeeded
                } else {
                    let server = endpoint.base_url.trim_end_matches('/');
                    match accounts.iter_mut().find(|account| account.1.as_deref() == Some(server)) {
                        Some(account) => account.2 = true,
                        None => {
                            let name = endpoint.name.unwrap_or_else(|| redact::url(server));
                            accounts.push((name, None, true));
                        }
                    }
                    SignIn::Done
                }
            }
            Err(_) => SignIn::Unknown,
        };
        let accounts = accounts.into_iter().map(|account| (account.0, account.2)).collect();
        AccountStatus { sign_in, accounts }
    }
}
