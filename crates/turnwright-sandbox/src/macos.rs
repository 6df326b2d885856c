//! macOS: a program of the system puts up the walls, before it becomes the command.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::{Capabilities, NoWalls, Profile, Rooms, seatbelt};

/// Walls that [`front`] puts up.
#[derive(Debug)]
pub struct Jail;

impl Jail {
    /// Nothing is to be done here.
    ///
    /// # Errors
    /// None.
    #[expect(clippy::unnecessary_wraps, reason = "other systems can fail")]
    pub fn prepare(_: &Profile) -> io::Result<Jail> {
        Ok(Jail)
    }

    /// Nothing is to be done here.
    ///
    /// # Errors
    /// None.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "other systems can fail")]
    pub fn enter(&self) -> io::Result<()> {
        Ok(())
    }

    /// The error as it is.
    #[expect(clippy::unused_self, reason = "other systems know more")]
    pub fn explain(&self, error: io::Error) -> io::Error {
        error
    }
}

/// The words that start a program behind the walls.
pub(super) fn front(profile: &Profile, words: &[OsString]) -> io::Result<Vec<OsString>> {
    let unsayable = || NoWalls("a path of its profile cannot be said".to_owned());
    seatbelt::command(profile, words).ok_or_else(|| io::Error::other(unsayable()))
}

pub(super) fn probe() -> Capabilities {
    let seatbelt = Path::new(seatbelt::PROGRAM).exists();
    let missing = (!seatbelt).then(|| format!("There is no {}.", seatbelt::PROGRAM));
    Capabilities { seatbelt, missing: missing.into_iter().collect(), ..Capabilities::default() }
}

/// Its walls tell the parts of a folder apart, and a loopback interface from the rest.
pub(super) fn probe_rooms() -> Rooms {
    let has_walls = Path::new(seatbelt::PROGRAM).exists();
    Rooms { mounts: has_walls, network: has_walls }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_goes_behind_the_program_that_puts_up_the_walls() {
        let words = ["/bin/sh".into(), "-c".into(), "true".into()];
        let all = front(&Profile::default(), &words).unwrap();
        assert_eq!((all[0].to_str(), all[1].to_str()), (Some(seatbelt::PROGRAM), Some("-p")));
        assert!(all.ends_with(&words));
        Jail::prepare(&Profile::default()).unwrap().enter().unwrap();
        let error = Jail.explain(io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(probe().seatbelt, probe_rooms().mounts);
    }
}
