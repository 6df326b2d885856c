//! Keeps what a client and an agent say to each other, where no process stands between them that could.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use agent_client_protocol::{
    Agent, Channel, Client, ConnectTo, ConnectionDriver, Error, RawJsonRpcMessage,
};

/// An agent whose messages, and those to it, are kept in two files.
pub struct KeptLines<A> {
    agent: A,
    to_agent: File,
    from_agent: File,
}

impl<A> KeptLines<A> {
    pub fn new(agent: A, folder: &Path) -> Result<KeptLines<A>, Error> {
        fs::create_dir_all(folder).map_err(Error::into_internal_error)?;
        let create =
            |name: &str| File::create(folder.join(name)).map_err(Error::into_internal_error);
        Ok(KeptLines { agent, to_agent: create("to-agent")?, from_agent: create("from-agent")? })
    }
}

impl<A: ConnectTo<Client>> ConnectTo<Client> for KeptLines<A> {
    async fn connect_to(self, client: impl ConnectTo<Agent>) -> Result<(), Error> {
        let (client_channel, client_driver) = client.into_channel_and_future();
        let (agent_channel, agent_driver) = self.agent.into_channel_and_future();
        let copied = Channel::bridge_with_inspection(
            client_channel,
            agent_channel,
            keeper(self.to_agent),
            keeper(self.from_agent),
        );
        tokio::try_join!(finished(client_driver), finished(agent_driver), copied)?;
        Ok(())
    }
}

async fn finished(driver: Option<ConnectionDriver>) -> Result<(), Error> {
    match driver {
        Some(driver) => driver.await,
        None => Ok(()),
    }
}

fn keeper(mut file: File) -> impl FnMut(&RawJsonRpcMessage) -> Result<(), Error> {
    move |message| {
        let line = serde_json::to_string(message).map_err(Error::into_internal_error)?;
        writeln!(file, "{line}").map_err(Error::into_internal_error)
    }
}
