//! The address of a socket that a supervised program has passed to the kernel. It makes system calls only and allocates
//! nothing.

use std::ffi::CStr;
use std::io::{self, Write};
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::Pid;

use super::syscalls::{self, MAX_ADDRESS};

/// `AF_UNIX` in an address.
pub(super) const UNIX: libc::sa_family_t = 1;
/// Where the path begins in the address of a Unix socket.
const PATH_OFFSET: usize = size_of::<libc::sa_family_t>();
/// The longest name in the address of a Unix socket.
const MAX_NAME: usize = size_of::<libc::sockaddr_un>() - PATH_OFFSET;

/// An address, as bytes of the kernel's layout.
pub(super) struct Address {
    bytes: [u8; MAX_ADDRESS],
    length: usize,
}

impl Address {
    /// Reads an address from the memory of a thread, once.
    pub(super) fn read(thread: Pid, pointer: u64, length: i32) -> io::Result<Address> {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_ADDRESS)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let mut bytes = [0; MAX_ADDRESS];
        syscalls::read_memory(thread, pointer, &mut bytes[..length])?;
        let address = Address { bytes, length };
        let is_too_long = address.name().is_some_and(|name| name.len() > MAX_NAME);
        if is_too_long { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(address) }
    }

    /// The address that leads to the file of a descriptor of this process.
    pub(super) fn of_descriptor(target: &OwnedFd) -> io::Result<Address> {
        let mut bytes = [0; MAX_ADDRESS];
        bytes[..PATH_OFFSET].copy_from_slice(&UNIX.to_ne_bytes());
        let place = &mut bytes[PATH_OFFSET..];
        let path = format_path(place, format_args!("/proc/self/fd/{}", target.as_raw_fd()))?;
        let length = path.count_bytes();
        Ok(Address { bytes, length: PATH_OFFSET + length + 1 })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// A number that is another one for nearly every other address.
    pub(super) fn fingerprint(&self) -> u64 {
        // FNV-1a.
        self.bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    fn family(&self) -> Option<libc::sa_family_t> {
        let bytes = [self.bytes[0], self.bytes[1]];
        (self.length >= PATH_OFFSET).then(|| libc::sa_family_t::from_ne_bytes(bytes))
    }

    /// The address, if it is one of the internet.
    pub(super) fn internet(&self) -> Option<SocketAddr> {
        let (family, rest) = self.bytes().split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let port = u16::from_be_bytes(*port);
        match i32::from(libc::sa_family_t::from_ne_bytes(*family)) {
            libc::AF_INET => Some((*rest.first_chunk::<4>()?, port).into()),
            libc::AF_INET6 => {
                let address: &[u8; 16] = rest.get(4..)?.first_chunk()?;
                let scope = rest
                    .get(20..)
                    .and_then(|rest| rest.first_chunk())
                    .map_or(0, |scope| u32::from_ne_bytes(*scope));
                Some(SocketAddrV6::new((*address).into(), port, 0, scope).into())
            }
            _ => None,
        }
    }

    pub(super) fn is_unix(&self) -> bool {
        self.family() == Some(UNIX)
    }

    /// The name of a Unix socket.
    fn name(&self) -> Option<&[u8]> {
        let name = self.bytes().get(PATH_OFFSET..)?;
        (self.family() == Some(UNIX) && !name.is_empty()).then_some(name)
    }

    pub(super) fn abstract_name(&self) -> Option<&[u8]> {
        self.name().filter(|name| name[0] == 0)
    }

    /// The path of a Unix socket that has one, copied into a buffer.
    pub(super) fn path<'a>(&self, buffer: &'a mut [u8; MAX_ADDRESS + 1]) -> Option<&'a CStr> {
        let path = self.name().filter(|name| name[0] != 0)?;
        // It need not end with a zero.
        buffer[..path.len()].copy_from_slice(path);
        CStr::from_bytes_until_nul(buffer).ok()
    }
}

/// Writes a short path into a buffer of zeros.
pub(super) fn format_path<'a>(
    buffer: &'a mut [u8],
    path: std::fmt::Arguments<'_>,
) -> io::Result<&'a CStr> {
    (&mut *buffer).write_fmt(path)?;
    CStr::from_bytes_until_nul(buffer).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn addresses_are_names_paths_or_neither() {
        let unix = UNIX.to_ne_bytes();
        let other = 2_u16.to_ne_bytes();
        let long = [b'x'; MAX_NAME];
        for (family, rest, path, name) in [
            (unix, b"/run/a\0rest".as_slice(), Some(c"/run/a"), None),
            (unix, b"a", Some(c"a"), None),
            (unix, &long, Some(CString::new(long).unwrap().as_c_str()), None),
            (unix, b"\0name\0", None, Some(b"\0name\0".as_slice())),
            (unix, b"\0", None, Some(b"\0")),
            (unix, b"", None, None),
            (other, b"/run/a", None, None),
        ] {
            let mut bytes = [0; MAX_ADDRESS];
            let length = PATH_OFFSET + rest.len();
            bytes[..length].copy_from_slice(&[&family, rest].concat());
            let address = Address { bytes, length };
            assert_eq!(address.path(&mut [0; MAX_ADDRESS + 1]), path);
            assert_eq!(address.abstract_name(), name);
            let other = Address { bytes, length: length - 1 };
            assert_ne!(address.fingerprint(), other.fingerprint());
        }
        let cut = Address { bytes: [1; MAX_ADDRESS], length: 1 };
        assert_eq!((cut.family(), cut.path(&mut [0; MAX_ADDRESS + 1])), (None, None));
    }
}
