//! Writes tar and zip archives whose bytes depend on their content only, so that a release can be built
//! again and compared.

use std::io::{self, Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The mode of a file that can be executed.
pub(crate) const PROGRAM: u32 = 0o755;
/// The mode of any other file.
pub(crate) const FILE: u32 = 0o644;

/// A file of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The path, with `/`.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Entry {
    pub(crate) fn new(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { path: path.into(), mode, bytes: bytes.into() }
    }
}

/// A gzipped tar archive. The folders that are needed come before the files if `has_folders`.
pub(crate) fn tar_gz(entries: &[Entry], has_folders: bool) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    let mut folders: Vec<String> = Vec::new();
    for entry in entries {
        for (at, _) in entry.path.match_indices('/').filter(|_| has_folders) {
            let folder = entry.path[..=at].to_owned();
            if folder != "./" && !folders.contains(&folder) {
                archive.append_data(
                    &mut header(EntryType::Directory, PROGRAM, 0),
                    &folder,
                    io::empty(),
                )?;
                folders.push(folder);
            }
        }
        let size = entry.bytes.len() as u64;
        let mut header = header(EntryType::Regular, entry.mode, size);
        archive.append_data(&mut header, &entry.path, entry.bytes.as_slice())?;
    }
    archive.into_inner()?.finish()
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

/// A zip archive.
pub(crate) fn zip(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .unix_permissions(entry.mode);
        archive.start_file(&entry.path, options)?;
        archive.write_all(&entry.bytes)?;
    }
    Ok(archive.finish()?.into_inner())
}

/// An archive of `ar`, in the form that Debian packages have.
pub(crate) fn ar(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for Entry { path, mode, bytes: content } in entries {
        let size = content.len();
        let head = format!(
            "{path:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
            0,
            0,
            0,
            format!("100{mode:o}")
        );
        bytes.extend(head.as_bytes());
        bytes.extend(content);
        if size % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}
