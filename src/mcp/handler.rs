//! What a server may ask of us, and what it tells without being asked.

use std::path::PathBuf;
use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
#[expect(deprecated, reason = "asked for by servers that are not new")]
use rmcp::model::{ListRootsResult, Root};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::Notify;

/// Answers one server.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    pub(super) roots: Arc<Vec<PathBuf>>,
    /// Its tools have changed.
    pub(super) changed: Arc<Notify>,
}

#[expect(deprecated, reason = "roots are deprecated, and asked for by servers that are not new")]
impl ClientHandler for Handler {
    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, rmcp::ErrorData> {
        let root = |it: &PathBuf| {
            let url = url::Url::from_file_path(it).ok()?;
            Some(Root::new(url.to_string()))
        };
        Ok(ListRootsResult::new(self.roots.iter().filter_map(root).collect()))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_roots().build();
        let about = Implementation::new("turnwright", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, about).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}
