//! Access beyond the sandbox in words: for titles, questions, answers and lists. Pure.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::describe::{display_path, markdown_code};
use super::rule::PathBases;
use turnwright_types::effect::ExtraAccess;

/// Part of a title: the command gets the network.
pub(super) const WITH_NETWORK: &str = "with network";
/// Part of a title: the command gets no sandbox.
const WITHOUT_SANDBOX: &str = "without the sandbox";

/// The access for the title of a call; `None` if there is none.
pub(super) fn title_of_access(access: &ExtraAccess, bases: &PathBases) -> Option<String> {
    let mut parts = Vec::new();
    if access.unsandboxed {
        parts.push(WITHOUT_SANDBOX.to_owned());
    }
    if access.network {
        parts.push(WITH_NETWORK.to_owned());
    }
    let writes = access.writes.iter();
    parts.extend(writes.map(|target| format!("may write {}", display_path(&target.path, bases))));
    if access.debug {
        parts.push("may debug".to_owned());
    }
    if access.sign {
        parts.push("may sign".to_owned());
    }
    parts.extend(address_names(access).into_iter().map(|name| format!("may reach {name}")));
    parts.extend(
        access.publishes.iter().map(|port| format!("lets your programs reach its port {port}")),
    );
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The question about the access, after "asks".
pub(super) fn request_for_access(access: &ExtraAccess, bases: &PathBases) -> String {
    let mut parts = Vec::new();
    if access.unsandboxed {
        parts.push("to run without the sandbox".to_owned());
    }
    if access.network {
        parts.push("for network access".to_owned());
    }
    for target in &access.writes {
        parts.push(format!("to write {}", markdown_code(&display_path(&target.path, bases))));
    }
    if access.debug {
        parts.push("to trace and debug its own processes".to_owned());
    }
    if access.sign {
        let what = "to sign commits and tags with your key (hooks of the repository and other programs that it \
                    starts can sign, too)";
        parts.push(what.to_owned());
    }
    for name in address_names(access) {
        parts.push(format!("to connect to {}", markdown_code(&name)));
    }
    for port in &access.publishes {
        parts.push(format!("to open its port {port} to your own programs (`localhost:{port}`)"));
    }
    listed(&parts)
}

/// Describes access after the name of a command: "with network and write access to `/x`".
pub(super) fn access_of_command(access: &ExtraAccess, bases: &PathBases) -> String {
    if access.unsandboxed {
        return WITHOUT_SANDBOX.to_owned();
    }
    format!("with {}", listed(&access_nouns(access, bases)))
}

/// Describes access as nouns: "network", "write access to `/x`".
pub(super) fn access_nouns(access: &ExtraAccess, bases: &PathBases) -> Vec<String> {
    let mut parts = Vec::new();
    if access.network {
        parts.push("network".to_owned());
    }
    for target in &access.writes {
        parts
            .push(format!("write access to {}", markdown_code(&display_path(&target.path, bases))));
    }
    if access.debug {
        parts.push("debugging".to_owned());
    }
    if access.sign {
        parts.push("your signing key".to_owned());
    }
    parts.extend(address_names(access).into_iter().map(|name| format!("connections to {name}")));
    parts.extend(access.publishes.iter().map(|port| format!("port {port} open to your programs")));
    parts
}

/// The access of a confined command beyond writing and the network, for the line about its confinement.
pub(super) fn further_access(access: &ExtraAccess) -> String {
    let mut text = String::new();
    for noun in access_nouns(access, &PathBases::default()) {
        text.push_str("; ");
        text.push_str(&noun);
    }
    text
}

/// The addresses to connect to. `localhost` stands for both of its addresses.
fn address_names(access: &ExtraAccess) -> Vec<String> {
    let mut names = Vec::new();
    for address in &access.connects {
        let both = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
            SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        ];
        let is_localhost =
            both.contains(address) && both.iter().all(|one| access.connects.contains(one));
        let name = if is_localhost {
            format!("localhost:{}", address.port())
        } else {
            address.to_string()
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Joins parts of a sentence: "a, b and c".
pub(super) fn listed(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}
