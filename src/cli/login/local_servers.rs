//! Finds model servers on this machine, at the usual ports of the well-known ones.

use std::time::Duration;

use futures_util::future::join_all;

use super::trial::list_models;

/// How long all servers together may take to answer.
pub(super) const LOOK_LIMIT: Duration = Duration::from_millis(500);

/// Asks all these servers at once for their models. Returns, in the same order, how many each has that
/// answers in time and has any.
pub(super) async fn find(base_urls: &[&str], limit: Duration) -> Vec<Option<usize>> {
    let counts = base_urls.iter().map(|base_url| async move {
        tokio::time::timeout(limit, count_models(base_url)).await.ok().flatten()
    });
    join_all(counts).await
}

async fn count_models(base_url: &str) -> Option<usize> {
    let models = list_models(base_url, None).await.models.ok()?;
    Some(models.len()).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use turnwright_testing::scripted_model::{Scenario, Server};

    use super::*;

    #[tokio::test]
    async fn servers_that_answer_are_found_and_the_others_do_not_delay_them() {
        let scenario = Scenario::from_value(serde_json::json!({ "replies": [] })).unwrap();
        let server = Server::start(scenario, 0).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent_url = format!("http://{}/v1", silent.local_addr().unwrap());
        // Port 9 is not ephemeral, so no other test can get it.
        let closed_url = "http://127.0.0.1:9/v1";
        let base_urls = [&silent_url, &server.base_url(), closed_url, "http://localhost:x"];
        let found = find(&base_urls, Duration::from_secs(5)).await;
        assert_eq!(found, [None, Some(1), None, None]);
    }
}
