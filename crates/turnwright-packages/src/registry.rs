//! The entry of the ACP registry: the manifest and the icon.

use std::io;

use serde_json::{Map, json};

use crate::platform::Platform;
use crate::release::{DESCRIPTION, LICENSE_NAME, NAME, Release, VERSION};

const ICON: &str = include_str!("templates/icon.svg");

/// Makes the folder of the entry. `archives` are the platforms with their archives and checksums.
pub(crate) fn make(
    release: &Release,
    archives: &[(&'static Platform, String, String)],
) -> io::Result<()> {
    let mut binary = Map::new();
    for (platform, file, sum) in archives {
        let folder = format!("{NAME}-{VERSION}-{}", platform.target);
        let entry = json!({
            "archive": release.url(file),
            "cmd": format!("./{folder}/{}", platform.program()),
            "sha256": sum,
        });
        binary.insert(platform.registry.to_owned(), entry);
    }
    let manifest = json!({
        "id": NAME,
        "name": NAME,
        "version": VERSION,
        "description": DESCRIPTION,
        "repository": release.repository,
        "license": LICENSE_NAME,
        "distribution": {
            "binary": binary,
            "npx": { "package": format!("{NAME}@{VERSION}") },
            "uvx": { "package": format!("{NAME}=={VERSION}") },
        },
    });
    release.write("registry/turnwright/agent.json", format!("{manifest:#}\n").as_bytes())?;
    release.write("registry/turnwright/icon.svg", ICON.as_bytes())?;
    Ok(())
}
