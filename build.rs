//! Compresses the long texts that few commands need.
#![expect(clippy::disallowed_methods, reason = "a build script and no part of the program")]

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// `packed_text::PackedText` reads them.
const TEXTS: &[&str] =
    &["docs/config.schema.json", "src/cli/doctor/acp/shapes.json", "src/cli/licenses.txt"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    for text in TEXTS.iter().map(Path::new) {
        println!("cargo::rerun-if-changed={}", text.display());
        let name = text.file_name().unwrap_or_default().to_string_lossy();
        let packed = File::create(Path::new(&folder).join(format!("{name}.zlib")))?;
        let mut encoder = ZlibEncoder::new(packed, Compression::best());
        encoder.write_all(&fs::read(text)?)?;
        encoder.finish()?;
    }
    Ok(())
}
