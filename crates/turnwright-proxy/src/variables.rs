//! The variables that make programs use the proxy of their command.

use crate::CommandProxy;

/// Variables with the address of the proxy. `ALL_PROXY` has one for HTTP, because not every library knows SOCKS.
const PROXY: &[&str] = &[
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "WS_PROXY",
    "WSS_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "BUNDLE_HTTP_PROXY",
    "BUNDLE_HTTPS_PROXY",
    "PIP_PROXY",
];

/// Servers of the session are reached without the proxy.
const DIRECT: &str = "localhost,127.0.0.1,::1";

/// The times that programs wait for an answer, in the units of each: the user may take a while.
const PATIENCE: &[(&str, &str)] = &[
    ("CARGO_HTTP_TIMEOUT", "600"),
    ("npm_config_fetch_timeout", "600000"),
    ("PIP_DEFAULT_TIMEOUT", "600"),
    ("POETRY_REQUESTS_TIMEOUT", "600"),
    ("UV_HTTP_TIMEOUT", "600"),
    ("YARN_HTTP_TIMEOUT", "600000"),
];

/// The variable with options of every Java program.
const JAVA: &str = "JAVA_TOOL_OPTIONS";

impl CommandProxy {
    /// The variables of the command. `value` returns what the user has set. Programs of Java cannot be given a token.
    pub fn variables<'a>(
        &self,
        value: impl Fn(&str) -> Option<&'a str>,
    ) -> Vec<(&'static str, String)> {
        let address = self.address();
        let url = format!("http://{}:{}@{address}", crate::NAME, self.token);
        let proxy = PROXY.iter().map(|name| (*name, url.clone()));
        let direct = ["NO_PROXY", "no_proxy"].map(|name| (name, DIRECT.to_owned()));
        let unset = PATIENCE.iter().filter(|(name, _)| value(name).is_none());
        let patience = unset.map(|(name, time)| (*name, (*time).to_owned()));
        let node = ("NODE_USE_ENV_PROXY", "1".to_owned());
        let mut all: Vec<_> = proxy.chain(direct).chain(patience).chain([node]).collect();
        if !self.needs_token {
            let before = value(JAVA).unwrap_or_default();
            let (host, port) = (address.ip(), address.port());
            let options = format!(
                "{before} -Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} \
                 -Dhttps.proxyPort={port} -Dhttp.nonProxyHosts=localhost|127.*|[::1]"
            );
            all.push((JAVA, options.trim_start().to_owned()));
        }
        all
    }
}
