//! Wheels for PyPI, one for each platform. A wheel has the program as a script, so `uvx` and `pipx` run it
//! without Python in between.

use std::io;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use ring::digest::{SHA256, digest};

use crate::archive::{Entry, FILE, PROGRAM, zip};
use crate::release::{DESCRIPTION, LICENSE, LICENSE_NAME, NAME, README, Release, VERSION};

/// Makes the wheels.
pub(crate) fn make(release: &Release) -> io::Result<()> {
    let info = format!("{NAME}-{VERSION}.dist-info");
    for program in &release.programs {
        let platform = program.platform;
        let script = format!("{NAME}-{VERSION}.data/scripts/{}", platform.program());
        let tags = platform.wheel.split('.').map(|it| format!("Tag: py3-none-{it}\n"));
        let wheel = format!(
            "Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\n{}",
            tags.collect::<String>()
        );
        let metadata = format!(
            "Metadata-Version: 2.4\nName: {NAME}\nVersion: {VERSION}\nSummary: {DESCRIPTION}\n\
             License-Expression: {LICENSE_NAME}\nLicense-File: LICENSE\nProject-URL: Source, {}\n\
             Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{README}",
            release.repository
        );
        let mut entries = vec![
            Entry::new(script, PROGRAM, program.bytes.clone()),
            Entry::new(format!("{info}/METADATA"), FILE, metadata),
            Entry::new(format!("{info}/WHEEL"), FILE, wheel),
            Entry::new(format!("{info}/licenses/LICENSE"), FILE, LICENSE),
        ];
        let record = format!("{info}/RECORD");
        let lines: String = entries.iter().map(record_line).collect();
        entries.push(Entry::new(&record, FILE, format!("{lines}{record},,\n")));
        let name = format!("{NAME}-{VERSION}-py3-none-{}.whl", platform.wheel);
        release.write(&format!("pypi/{name}"), &zip(&entries)?)?;
    }
    Ok(())
}

/// The line of a file in the list of a wheel's files.
fn record_line(entry: &Entry) -> String {
    let sum = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &entry.bytes));
    format!("{},sha256={sum},{}\n", entry.path, entry.bytes.len())
}
