//! Fetches web pages: decides which addresses may be reached (`address_guard`), fetches a URL (`fetch`), and converts
//! the response to text for a model (`page`, `html`). Knows nothing of tools and permissions.

mod html;
mod fetch;
mod address_guard;
mod page;

#[cfg(test)]
mod tests;

pub use address_guard::{is_loopback, parse_url, permission_host};
pub use fetch::{FetchError, FetchLimits, FetchedBody, WebFetcher};
pub use page::{PageCache, WebPage, to_page, wrap_untrusted};
