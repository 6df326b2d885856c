//! `turnwright login` and `turnwright logout`: the flags.

use std::process::ExitCode;

use clap::Args;

use turnwright_config::Config;

#[derive(Debug, Args)]
pub(super) struct LoginCliArgs {
    /// Provider to log in to, such as `deepseek`; without it, a list is shown
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

pub(super) fn login(args: &LoginCliArgs, config: Config) -> ExitCode {
    super::deny_memory_inspection();
    turnwright_terminal::login(args.provider.as_deref(), config)
}

#[derive(Debug, Args)]
pub(super) struct LogoutCliArgs {
    /// Provider to log out of, or the base URL of a server
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Remove all stored logins
    #[arg(long, conflicts_with = "provider")]
    all: bool,
}

pub(super) fn logout(args: &LogoutCliArgs, config: &Config) -> ExitCode {
    turnwright_terminal::logout(args.provider.as_deref(), args.all, config)
}
