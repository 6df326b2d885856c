//! The parts of this program that the benchmarks, the fuzz targets and the tests use. Not an API.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use turnwright_config::{Config, EnvironmentVariables, Flags, Paths, UserFile};
use turnwright_remote::ListenOptions;
use turnwright_rpc::Stdio;
use turnwright_types::redact;

use crate::acp;

pub use crate::cli::{command_line, replay};
pub use crate::tools::{AnyTool, OfferContext, PreparedCall, ToolIndex, Toolbox, built_in};
pub use crate::turn::fuzzing::{compact_messages, partial_arguments, prune_messages};

/// Serves ACP until the client closes its end of the input, as `turnwright acp` does, but with these
/// variables instead of the process's environment, and without its signals, log and standard streams.
///
/// # Errors
/// If there are too many keys, or the runtime or a thread cannot be created.
pub fn serve_acp(home: &Path, variables: &[(String, String)], stdio: Stdio) -> io::Result<()> {
    let config = config(home, variables)?;
    acp::serve_blocking(config, stdio, std::future::pending())
}

/// Serves ACP on a socket, as `turnwright serve` does, until `stop` is ready. `announce` gets the address.
///
/// # Errors
/// If there are too many keys, the runtime cannot be created, or nothing can listen.
pub fn serve_acp_remote(
    home: &Path,
    variables: &[(String, String)],
    options: ListenOptions,
    keep: Duration,
    announce: impl FnOnce(&str),
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let config = config(home, variables)?;
    acp::serve_remote(config, options, keep, announce, stop)
}

fn config(home: &Path, variables: &[(String, String)]) -> io::Result<Config> {
    let value = |name: &str| {
        variables.iter().rev().find(|variable| variable.0 == name).map(|variable| &variable.1)
    };
    let paths = Paths::below(value("TURNWRIGHT_HOME").map_or(home, Path::new));
    let file = UserFile::find(value("TURNWRIGHT_CONFIG").map(PathBuf::from), &paths);
    let pairs: Vec<(OsString, OsString)> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let (environment, _) = EnvironmentVariables::classify(pairs, &file.key_variables());
    let config = Config::new(environment, Flags::default(), file, paths);
    redact::register_keys(config.snapshot().secrets()).map_err(io::Error::other)?;
    Ok(config)
}
