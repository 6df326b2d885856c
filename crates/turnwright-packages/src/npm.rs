//! Packages for npm: one for each platform with its program, and one that depends on all of them and starts
//! the one that npm has installed. Nothing is downloaded or run when they are installed.

use std::io;

use serde_json::{Map, Value, json};

use crate::archive::{Entry, FILE, PROGRAM, tar_gz};
use crate::platform::Platform;
use crate::release::{DESCRIPTION, LICENSE, LICENSE_NAME, NAME, README, Release, VERSION};

const LAUNCHER: &str = include_str!("templates/launcher.js");

/// Makes the packages. They are to be published in this order.
pub(crate) fn make(release: &Release) -> io::Result<()> {
    let mut platforms = Map::new();
    for program in &release.programs {
        let platform = program.platform;
        let name = package_name(platform);
        if platforms.insert(name.clone(), json!(VERSION)).is_some() {
            continue;
        }
        let file = format!("bin/{}", platform.program());
        let manifest = json!({
            "name": name,
            "version": VERSION,
            "description": format!("{NAME} for {}", platform.registry),
            "license": LICENSE_NAME,
            "repository": repository(release),
            "os": [platform.npm_os],
            "cpu": [platform.npm_cpu],
            "files": ["bin"],
            // Yarn would keep it in an archive, from which it cannot be started.
            "preferUnplugged": true,
        });
        let program = Entry::new(file, PROGRAM, program.bytes.clone());
        write(release, &name, &manifest, vec![program])?;
    }
    let manifest = json!({
        "name": NAME,
        "version": VERSION,
        "description": DESCRIPTION,
        "license": LICENSE_NAME,
        "repository": repository(release),
        "bin": { NAME: "bin/turnwright.js" },
        "files": ["bin"],
        "engines": { "node": ">=18" },
        "optionalDependencies": platforms,
    });
    let launcher = Entry::new("bin/turnwright.js", PROGRAM, LAUNCHER);
    let readme = Entry::new("README.md", FILE, README);
    write(release, NAME, &manifest, vec![launcher, readme])
}

/// The name that the launcher looks for.
fn package_name(platform: &Platform) -> String {
    format!("{NAME}-{}-{}", platform.npm_os, platform.npm_cpu)
}

fn repository(release: &Release) -> Value {
    json!({ "type": "git", "url": format!("git+{}.git", release.repository) })
}

fn write(release: &Release, name: &str, manifest: &Value, files: Vec<Entry>) -> io::Result<()> {
    let mut entries = vec![Entry::new("package.json", FILE, format!("{manifest:#}\n"))];
    entries.push(Entry::new("LICENSE", FILE, LICENSE));
    entries.extend(files);
    for entry in &mut entries {
        entry.path = format!("package/{}", entry.path);
    }
    release.write(&format!("npm/{name}-{VERSION}.tgz"), &tar_gz(&entries, false)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::path::Path;

    use super::*;
    use crate::release::read_program;

    #[test]
    fn nothing_is_run_or_downloaded_by_an_installation() {
        let out = tempfile::tempdir().unwrap();
        let targets = ["x86_64-unknown-linux-musl", "x86_64-pc-windows-msvc"];
        let programs = targets.map(|it| read_program(it, Path::new("Cargo.toml")).unwrap());
        let release = Release {
            programs: programs.into(),
            repository: "https://example.com/t".to_owned(),
            out: out.path().to_owned(),
        };
        make(&release).unwrap();
        let manifest = |name: &str| -> Value {
            let file = out.path().join(format!("npm/{name}-{VERSION}.tgz"));
            let bytes = fs::read(file).unwrap();
            let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
            let mut first = archive.entries().unwrap().next().unwrap().unwrap();
            assert_eq!(first.path().unwrap(), Path::new("package/package.json"));
            let mut text = String::new();
            first.read_to_string(&mut text).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let main = manifest(NAME);
        let platforms = ["turnwright-linux-x64", "turnwright-win32-x64"];
        let optional: Map<_, _> =
            platforms.map(|it| (it.to_owned(), json!(VERSION))).into_iter().collect();
        assert_eq!(main["optionalDependencies"], Value::Object(optional));
        for manifest in [main].into_iter().chain(platforms.map(manifest)) {
            for key in ["scripts", "dependencies", "gypfile"] {
                assert!(manifest.get(key).is_none(), "{manifest}");
            }
        }
    }
}
