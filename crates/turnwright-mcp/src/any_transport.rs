//! One type for all transports: `rmcp`'s service is compiled for each type of them, and is large.

use std::error::Error;
use std::fmt;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// The client's end of some transport.
pub(super) struct AnyTransport(Box<dyn DynTransport>);

impl AnyTransport {
    pub(super) fn new(transport: impl Transport<RoleClient> + 'static) -> AnyTransport {
        AnyTransport(Box::new(transport))
    }
}

/// The error of some transport. Its source tells which.
#[derive(Debug)]
pub(super) struct AnyTransportError(Box<dyn Error + Send + Sync>);

impl fmt::Display for AnyTransportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for AnyTransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

type Sent = Result<(), AnyTransportError>;

/// [`Transport`] as a trait object.
trait DynTransport: Send {
    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> BoxFuture<'static, Sent>;
    fn receive(&mut self) -> BoxFuture<'_, Option<RxJsonRpcMessage<RoleClient>>>;
    fn close(&mut self) -> BoxFuture<'_, Sent>;
}

impl<T: Transport<RoleClient>> DynTransport for T {
    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> BoxFuture<'static, Sent> {
        Transport::send(self, message).map(|it| it.map_err(any)).boxed()
    }

    fn receive(&mut self) -> BoxFuture<'_, Option<RxJsonRpcMessage<RoleClient>>> {
        Transport::receive(self).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, Sent> {
        Transport::close(self).map(|it| it.map_err(any)).boxed()
    }
}

fn any(error: impl Error + Send + Sync + 'static) -> AnyTransportError {
    AnyTransportError(Box::new(error))
}

impl Transport<RoleClient> for AnyTransport {
    type Error = AnyTransportError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Sent> + Send + 'static {
        self.0.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.0.receive()
    }

    fn close(&mut self) -> impl Future<Output = Sent> + Send {
        self.0.close()
    }
}
