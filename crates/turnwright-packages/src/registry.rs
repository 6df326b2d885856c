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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::release::read_program;

    /// The rules of the registry's schema and of its build.
    #[test]
    fn the_manifest_and_the_icon_follow_the_rules_of_the_registry() {
        let out = tempfile::tempdir().unwrap();
        let program = read_program("aarch64-apple-darwin", Path::new("Cargo.toml")).unwrap();
        let release = Release {
            programs: vec![program],
            repository: "https://example.com/t".to_owned(),
            out: out.path().to_owned(),
        };
        make(&release, &release.archives().unwrap()).unwrap();
        let entry = out.path().join("registry/turnwright");
        let text = fs::read_to_string(entry.join("agent.json")).unwrap();
        let manifest: Value = serde_json::from_str(&text).unwrap();

        assert_eq!(manifest["id"], json!(NAME), "the name of the folder");
        let numbers: Vec<_> = manifest["version"].as_str().unwrap().split('.').collect();
        assert!(numbers.len() == 3 && numbers.iter().all(|it| it.parse::<u32>().is_ok()));
        let keys: Vec<_> = manifest["distribution"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["binary", "npx", "uvx"]);
        let binary = &manifest["distribution"]["binary"]["darwin-aarch64"];
        let archive = binary["archive"].as_str().unwrap();
        assert!(archive.starts_with("https://") && archive.contains(VERSION), "{archive}");
        let sum = binary["sha256"].as_str().unwrap();
        assert!(sum.len() == 64 && sum.chars().all(|it| it.is_ascii_hexdigit()), "{sum}");
        assert!(binary["cmd"].as_str().unwrap().ends_with("/turnwright"));

        let icon = fs::read_to_string(entry.join("icon.svg")).unwrap();
        assert!(
            icon.contains(r#"width="16" height="16" viewBox="0 0 16 16""#)
                && !icon.contains("<!--")
        );
        let colours = ["fill=\"", "stroke=\""].map(|it| icon.split(it).skip(1));
        for colour in colours.into_iter().flatten().map(|it| it.split('"').next().unwrap()) {
            assert!(["currentColor", "none", "inherit"].contains(&colour), "{colour}");
        }
    }
}
