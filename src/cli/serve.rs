//! `turnwright` and `turnwright acp`: serves ACP on stdin and stdout. `turnwright serve`: serves it on a socket.
//! `turnwright connect`: a pipe to such an agent.

use std::io::{Write, stderr};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{CliError, CliResult};
use crate::acp;
use turnwright_config::Config;
use turnwright_remote::{AccessRules, ListenOptions, TlsFiles, bridge, new_token};
use turnwright_terminal::block_on_with_stop;
use turnwright_types::error_text::with_path;
use turnwright_types::redact;
use turnwright_types::secret::{self, Secret};

const EXPLANATION: &str = "\
turnwright is a coding agent that your editor starts. It speaks the Agent
Client Protocol (ACP) on stdin and stdout: there is nothing to type here.

Add it to your editor's agents, for example in Zed's settings.json:

  \"agent_servers\": {
    \"turnwright\": { \"type\": \"custom\", \"command\": \"turnwright\", \"args\": [] }
  }

`turnwright run` is a conversation in the terminal, `turnwright login` stores
an API key, and `turnwright --help` lists commands and settings.
";

pub(super) fn serve_stdio(config: Config) -> ExitCode {
    super::run_for_program("turnwright", EXPLANATION, |stdio| {
        acp::serve_blocking(config, stdio, turnwright_rpc::stop_signal())
    })
}

/// The shortest token, in bytes.
const MIN_TOKEN_LENGTH: usize = 16;

pub(super) const SERVE_AFTER_HELP: &str = "Clients need the token: TURNWRIGHT_SERVE_TOKEN, or the first line of --token-file. Without \
     one, a new token is printed.\n\
     Example: turnwright serve\n\
     TURNWRIGHT_SERVE_TOKEN=… turnwright connect ws://127.0.0.1:4077/acp\n\
     Exit status: 0 after SIGINT or SIGTERM, 1 if nothing can listen.";

pub(super) const CONNECT_AFTER_HELP: &str = "The token is that of the agent: TURNWRIGHT_SERVE_TOKEN, or the first line of --token-file.\n\
     Example: turnwright connect wss://build-server.example:4077/acp --token-file ~/token\n\
     Exit status: 0 when the editor ends the connection, 1 if it cannot be made or is lost.";

#[derive(Debug, Args)]
pub(super) struct ServeCliArgs {
    /// Address; other machines can be served only with --tls-cert
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4077", value_parser = address)]
    listen: SocketAddr,
    /// Certificate, in the format PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, in the format PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File whose first line is the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Web page that may connect, such as https://example.com; repeatable
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Further name in requests without TLS, such as that of a proxy; repeatable
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// How long a session goes on when its connection is lost
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    keep: u32,
}

pub(super) fn serve(args: ServeCliArgs, config: Config) -> CliResult<()> {
    super::deny_memory_inspection();
    super::return_large_buffers();
    let given = given_token(&config, args.token_file.as_deref())?;
    let token = given.clone().unwrap_or_else(|| Secret::from(new_token()));
    if token.expose().len() < MIN_TOKEN_LENGTH {
        return Err(format!("the token is shorter than {MIN_TOKEN_LENGTH} characters").into());
    }
    redact::register_keys([token.expose().to_owned()]).map_err(|error| error.to_string())?;
    let key = args.tls_key.map(|key| secret::register_secret_file(&key));
    if let Err(error) = secret::share(&config.paths.state) {
        tracing::warn!(%error, "other agents cannot be told to hide the token and the key");
    }
    let options = ListenOptions {
        address: args.listen,
        access: AccessRules::new(token.expose(), args.allow_origin, args.allow_host),
        tls: args.tls_cert.zip(key).map(|(certificate, key)| TlsFiles { certificate, key }),
    };
    let announce = |url: &str| {
        let mut text = format!("Serving at {url}\n");
        if given.is_none() {
            text.push_str(&format!("TURNWRIGHT_SERVE_TOKEN={}\n", token.expose()));
        }
        // Whoever closes stderr does not want to know it.
        stderr().write_all(text.as_bytes()).ok();
    };
    let keep = Duration::from_secs(args.keep.into());
    let stop = turnwright_rpc::stop_signal();
    acp::serve_remote(config, options, keep, announce, stop)
        .map_err(|error| CliError::Other(error.to_string()))
}

pub(super) fn connect(url: &Url, token_file: Option<&Path>, config: &Config) -> CliResult<()> {
    let Some(token) = given_token(config, token_file)? else {
        let why = "the agent's token is missing: set TURNWRIGHT_SERVE_TOKEN, or use --token-file";
        return Err(CliError::Other(why.to_owned()));
    };
    redact::register_keys([token.expose().to_owned()]).map_err(|error| error.to_string())?;
    let stdio = turnwright_rpc::claim_stdio()?;
    let stop = CancellationToken::new();
    let bridging = bridge(url, token.expose(), stdio, stop.clone());
    block_on_with_stop(&stop, bridging)?.map_err(|error| CliError::Other(error.to_string()))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.replace("localhost:", "127.0.0.1:").parse();
    address.map_err(|_| "expected IP:PORT, such as 127.0.0.1:4077 or 0.0.0.0:4077".to_owned())
}

pub(super) fn parse_url(text: &str) -> Result<Url, &'static str> {
    Url::parse(text).ok().filter(Url::has_host).ok_or("expected a URL: ws://127.0.0.1:4077/acp")
}

/// The token of the file, else that of the environment.
fn given_token(config: &Config, file: Option<&Path>) -> CliResult<Option<Secret>> {
    let Some(file) = file else { return Ok(config.serve_token().cloned()) };
    let file = secret::register_secret_file(file);
    let text = std::fs::read_to_string(&file).map_err(|error| with_path(&file, &error))?;
    // It may be the line that `serve` has printed, and programs of Windows put a mark before it.
    let line = text.lines().next().unwrap_or_default();
    let token = line.split_once("TURNWRIGHT_SERVE_TOKEN=").map_or(line, |(_, token)| token);
    let given = Secret::from_variable(token);
    Ok(Some(given.ok_or_else(|| format!("{}: the first line is empty", file.display()))?))
}
