//! The variables that make programs use the proxy of their command.

use crate::CommandProxy;

/// Variables with the URL of the proxy. `ALL_PROXY` has an HTTP URL as well, because not every library supports SOCKS.
const PROXY: &str = "HTTP_PROXY http_proxy HTTPS_PROXY https_proxy ALL_PROXY all_proxy WS_PROXY WSS_PROXY \
                     npm_config_proxy npm_config_https_proxy pnpm_config_http_proxy pnpm_config_https_proxy \
                     YARN_HTTP_PROXY YARN_HTTPS_PROXY BUNDLE_HTTP_PROXY BUNDLE_HTTPS_PROXY PIP_PROXY CARGO_HTTP_PROXY";

/// The hosts that are reached without the proxy, such as servers of the session on this machine.
const DIRECT: &str = "localhost,127.0.0.1,::1,.localhost,127.0.0.0/8,0.0.0.0";

/// Timeouts of programs, each in the program's own unit. They are long, because the user may take a while to answer.
const PATIENCE: &str = "BUNDLE_TIMEOUT=600 CARGO_HTTP_TIMEOUT=600 CONDA_REMOTE_CONNECT_TIMEOUT_SECS=600 \
                        CONDA_REMOTE_READ_TIMEOUT_SECS=600 HEX_HTTP_TIMEOUT=600 HF_HUB_DOWNLOAD_TIMEOUT=600 \
                        HF_HUB_ETAG_TIMEOUT=600 PDM_REQUEST_TIMEOUT=600 PIP_DEFAULT_TIMEOUT=600 \
                        PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT=600000 POETRY_REQUESTS_TIMEOUT=600 \
                        UV_HTTP_CONNECT_TIMEOUT=600 UV_HTTP_TIMEOUT=600 YARN_HTTP_TIMEOUT=600000 \
                        npm_config_fetch_timeout=600000 pnpm_config_fetch_timeout=600000";

/// The same for Gradle, as an option of Java.
const GRADLE_PATIENCE: &str = "-Dorg.gradle.internal.http.socketTimeout=600000";

/// The variable with options for every Java program.
const JAVA: &str = "JAVA_TOOL_OPTIONS";

impl CommandProxy {
    /// Returns the variables for the command. `value` looks up a variable that the user has set. Java programs are
    /// pointed to the proxy only if no token is needed, because they cannot be given one.
    pub fn variables<'a>(
        &self,
        value: impl Fn(&str) -> Option<&'a str>,
    ) -> Vec<(&'static str, String)> {
        let address = self.address;
        let url = format!("http://{}:{}@{address}", crate::NAME, self.token.expose());
        let proxy = PROXY.split(' ').map(|name| (name, url.clone()));
        let direct = ["NO_PROXY", "no_proxy"].map(|name| (name, DIRECT.to_owned()));
        let times = PATIENCE.split(' ').filter_map(|pair| pair.split_once('='));
        let unset = times.filter(|(name, _)| value(name).is_none());
        let patience = unset.map(|(name, time)| (name, time.to_owned()));
        let node = ("NODE_USE_ENV_PROXY", "1".to_owned());
        let mut all: Vec<_> = proxy.chain(direct).chain(patience).chain([node]).collect();
        if !self.needs_token {
            let before = value(JAVA).unwrap_or_default();
            let host = address.ip();
            let port = address.port();
            // The last value of an option counts, so the user's own time does.
            let options = format!(
                "{GRADLE_PATIENCE} {before} -Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} \
                 -Dhttps.proxyPort={port} -Dhttp.nonProxyHosts=localhost|127.*|[::1]"
            );
            all.push((JAVA, options));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn programs_get_the_proxy_with_its_token_and_keep_the_times_of_the_user() {
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let set = |name: &str| match name {
            "PIP_DEFAULT_TIMEOUT" => Some("7"),
            JAVA => Some("-Xmx1g"),
            _ => None,
        };
        let proxy = CommandProxy::new(listen().await.unwrap(), true).unwrap();
        let variables = proxy.variables(set);
        let value = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
        };
        let url = format!("http://tw:{}@{}", proxy.token.expose(), proxy.address);
        assert_eq!(value("https_proxy"), Some(url.as_str()));
        assert_eq!(value("YARN_HTTPS_PROXY"), Some(url.as_str()));
        // Cargo would prefer the proxy of the user's settings of git.
        assert_eq!(value("CARGO_HTTP_PROXY"), Some(url.as_str()));
        assert_eq!(value("NO_PROXY"), Some(DIRECT));
        for (name, time) in [
            ("CARGO_HTTP_TIMEOUT", "600"),
            ("UV_HTTP_CONNECT_TIMEOUT", "600"),
            ("BUNDLE_TIMEOUT", "600"),
            ("PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT", "600000"),
            ("pnpm_config_fetch_timeout", "600000"),
        ] {
            assert_eq!(value(name), Some(time), "{name}");
        }
        assert_eq!((value("PIP_DEFAULT_TIMEOUT"), value(JAVA)), (None, None));
        let open = CommandProxy::new(listen().await.unwrap(), false).unwrap();
        let java = open.variables(set).pop().unwrap();
        let port = open.address.port();
        assert_eq!(java.0, JAVA);
        let start = format!("{GRADLE_PATIENCE} -Xmx1g -Dhttp.proxyHost=127.0.0.1");
        assert!(java.1.starts_with(&start), "{}", java.1);
        assert!(java.1.contains(&format!("-Dhttps.proxyPort={port} ")), "{}", java.1);
    }
}
