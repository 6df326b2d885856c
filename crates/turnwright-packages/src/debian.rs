//! Debian packages, one for each processor. The program is static, so they depend on nothing.

use std::io;

use crate::archive::{Entry, FILE, PROGRAM, ar, tar_gz};
use crate::command_line;
use crate::release::{DESCRIPTION, LICENSE, NAME, Program, Release, VERSION};

/// Makes the packages for the Linux programs.
pub(crate) fn make(release: &Release) -> io::Result<()> {
    for program in &release.programs {
        let Some(processor) = program.platform.debian else { continue };
        let data = files(program)?;
        let size = data.iter().map(|it| it.bytes.len() as u64).sum::<u64>().div_ceil(1024);
        let control = format!(
            "Package: {NAME}\nVersion: {VERSION}\nArchitecture: {processor}\n\
             Maintainer: the {NAME} maintainers <{}>\nInstalled-Size: {size}\nSection: devel\n\
             Priority: optional\nHomepage: {}\nDescription: native ACP agent for editors\n {DESCRIPTION}.\n",
            format_args!("{NAME}@localhost"),
            release.repository
        );
        let control = [Entry::new("./control", FILE, control)];
        let package = ar(&[
            Entry::new("debian-binary", FILE, "2.0\n"),
            Entry::new("control.tar.gz", FILE, tar_gz(&control, true)?),
            Entry::new("data.tar.gz", FILE, tar_gz(&data, true)?),
        ]);
        release.write(&format!("{NAME}_{VERSION}_{processor}.deb"), &package)?;
    }
    Ok(())
}

/// The files that the package installs.
fn files(program: &Program) -> io::Result<Vec<Entry>> {
    let mut files = vec![Entry::new("usr/bin/turnwright", PROGRAM, program.bytes.clone())];
    files.push(Entry::new(format!("usr/share/doc/{NAME}/copyright"), FILE, LICENSE));
    let completions = command_line::completions();
    let completions = completions.into_iter().filter(|it| !command_line::is_powershell(it));
    let shared = completions.chain(command_line::manual()?);
    files.extend(shared.map(|it| Entry { path: format!("usr/share/{}", it.path), ..it }));
    for entry in &mut files {
        entry.path = format!("./{}", entry.path);
    }
    Ok(files)
}
