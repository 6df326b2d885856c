//! The contents of a release, as all packages need them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use ring::digest::{SHA256, digest};

use crate::archive::{Entry, FILE, PROGRAM};
use crate::command_line;
use crate::platform::Platform;

/// The name of all packages.
pub(crate) const NAME: &str = "turnwright";
/// The version of all packages.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
pub(crate) const LICENSE_NAME: &str = env!("CARGO_PKG_LICENSE");
/// One sentence for the lists of registries.
pub(crate) const DESCRIPTION: &str = "A native ACP agent for editors: streams a model's answer, runs its \
                                      tools, and asks before anything that matters";
pub(crate) const LICENSE: &str = include_str!("../../../LICENSE");
pub(crate) const README: &str = include_str!("../../../README.md");

/// A program that is already built.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) platform: &'static Platform,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) programs: Vec<Program>,
    /// The address of the project, without a slash at its end; releases are below `/releases/download`.
    pub(crate) repository: String,
    /// The folder for the packages.
    pub(crate) out: PathBuf,
}

impl Release {
    /// Writes a package and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.out.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, bytes)?;
        Ok(path)
    }

    /// The address at which a file of this release will be.
    pub(crate) fn url(&self, file: &str) -> String {
        format!("{}/releases/download/v{VERSION}/{file}", self.repository)
    }

    /// The archives with the programs: the program, completions, manual, licence. Each is written with a
    /// file of its checksum beside it.
    pub(crate) fn archives(&self) -> io::Result<Vec<(&'static Platform, String, String)>> {
        let mut made = Vec::new();
        for Program { platform, bytes } in &self.programs {
            let stem = format!("{NAME}-{VERSION}-{}", platform.target);
            let file = format!("{stem}.{}", platform.archive_suffix());
            let mut entries = vec![Entry::new(platform.program(), PROGRAM, bytes.clone())];
            entries.push(Entry::new("LICENSE", FILE, LICENSE));
            entries.push(Entry::new("README.md", FILE, README));
            let shared = command_line::completions().into_iter().chain(command_line::manual()?);
            entries.extend(shared.map(|it| Entry { path: format!("share/{}", it.path), ..it }));
            for entry in &mut entries {
                entry.path = format!("{stem}/{}", entry.path);
            }
            let archive = if platform.is_windows() {
                crate::archive::zip(&entries)?
            } else {
                crate::archive::tar_gz(&entries, true)?
            };
            let sum = sha256(&archive);
            self.write(&file, &archive)?;
            self.write(&format!("{file}.sha256"), format!("{sum}  {file}\n").as_bytes())?;
            made.push((*platform, file, sum));
        }
        Ok(made)
    }
}

/// The checksum of a file in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        write!(text, "{byte:02x}").ok();
    }
    text
}

pub(crate) fn read_program(target: &str, path: &Path) -> Result<Program, String> {
    let platform = Platform::of(target)?;
    let bytes = fs::read(path).map_err(|it| format!("{} cannot be read: {it}", path.display()))?;
    Ok(Program { platform, bytes })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// As `cargo binstall` reads them from the manifest.
    #[test]
    fn cargo_binstall_finds_the_archives() {
        let manifest = include_str!("../../../Cargo.toml");
        let template = |key: &str| {
            let line = manifest.lines().find(|it| it.starts_with(key)).unwrap();
            line.split('"').nth(1).unwrap()
        };
        for target in ["x86_64-unknown-linux-musl", "x86_64-pc-windows-msvc"] {
            let program = read_program(target, Path::new("Cargo.toml")).unwrap();
            let out = tempfile::tempdir().unwrap();
            let release = Release {
                programs: vec![program],
                repository: "https://example.com/t".to_owned(),
                out: out.path().to_owned(),
            };
            let (platform, file, _) = &release.archives().unwrap()[0];
            let filled = |text: &str| {
                let suffix = format!(".{}", platform.archive_suffix());
                let extension = if platform.is_windows() { ".exe" } else { "" };
                text.replace("{ repo }", &release.repository)
                    .replace("{ version }", VERSION)
                    .replace("{ target }", target)
                    .replace("{ name }", NAME)
                    .replace("{ bin }", NAME)
                    .replace("{ archive-suffix }", &suffix)
                    .replace("{ binary-ext }", extension)
            };
            assert_eq!(filled(template("pkg-url")), release.url(file));
            let bytes = fs::read(out.path().join(file)).unwrap();
            let path = filled(template("bin-dir"));
            if platform.is_windows() {
                let archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
                assert!(archive.index_for_name(&path).is_some(), "{path}");
            } else {
                let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
                let mut entries = archive.entries().unwrap();
                assert!(
                    entries.any(|it| it.unwrap().path().unwrap() == Path::new(&path)),
                    "{path}"
                );
            }
        }
    }
}
