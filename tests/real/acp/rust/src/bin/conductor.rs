//! The official conductor, as its own crate builds it.

use agent_client_protocol_conductor::ConductorArgs;
use clap::Parser as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(ConductorArgs::parse().main().await?)
}
