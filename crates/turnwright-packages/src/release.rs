//! What a release consists of, as all packages need it.

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

/// A release.
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
            entries.extend(command_line::completions());
            entries.extend(command_line::manual()?);
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

/// Reads a program.
pub(crate) fn read_program(target: &str, path: &Path) -> Result<Program, String> {
    let platform = Platform::of(target)?;
    let bytes = fs::read(path).map_err(|it| format!("{} cannot be read: {it}", path.display()))?;
    Ok(Program { platform, bytes })
}
