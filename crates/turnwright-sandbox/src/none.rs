//! Systems without walls that we know of: nothing is confined, and nothing pretends to be.

use std::io;

use super::{Capabilities, NoWalls, Profile, Rooms};

/// Walls that nobody can put up here.
#[derive(Debug)]
pub struct Jail(std::convert::Infallible);

impl Jail {
    /// Says that there are none.
    ///
    /// # Errors
    /// Always.
    pub fn prepare(_: &Profile) -> io::Result<Jail> {
        Err(io::Error::other(NoWalls("there is none on this system".to_owned())))
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn enter(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Never called.
    pub fn explain(&self, _: io::Error) -> io::Error {
        match self.0 {}
    }
}

pub(super) fn probe() -> Capabilities {
    let missing = vec!["Commands cannot be confined on this system.".to_owned()];
    Capabilities { missing, ..Capabilities::default() }
}

pub(super) fn probe_rooms() -> Rooms {
    Rooms::default()
}
