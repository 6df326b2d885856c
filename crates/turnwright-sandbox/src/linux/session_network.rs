//! The network of a session: a network namespace with nothing but a loopback interface. The programs of the session
//! run in it, so they reach each other's servers and nothing else. Its descriptors keep it alive; no process has to.
//! As programs of one machine do, they also have shared memory in common.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::mount_namespace::{NamespaceMethod, map_ids};
use super::outside_connections::{PRIVATE_IPV4, PRIVATE_IPV6};
use super::shared_memory::{SessionMemory, size_within};
use super::{succeeds_in_child, syscalls};

const USER_NAMESPACE: &CStr = c"/proc/self/ns/user";
const NETWORK_NAMESPACE: &CStr = c"/proc/self/ns/net";

/// A private network that several sandboxed programs can share, with their shared memory (`/dev/shm`).
#[derive(Debug)]
pub struct SessionNetwork {
    network_namespace: OwnedFd,
    /// The user namespace that owns it; `None` if root has made it, who needs none.
    user_namespace: Option<OwnedFd>,
    memory: SessionMemory,
}

impl SessionNetwork {
    /// Creates a network with a loopback interface. Blocks for about a millisecond.
    ///
    /// # Errors
    /// When the system refuses it: see [`NamespaceSupport::network`](crate::NamespaceSupport::network).
    pub fn create() -> io::Result<SessionNetwork> {
        Self::create_within(None)
    }

    /// Creates one whose shared memory takes no more than this many bytes, and no more than a quarter of the machine's.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_within(memory_limit: Option<u64>) -> io::Result<SessionNetwork> {
        let size = size_within(memory_limit);
        let method = NamespaceMethod::of_this_process();
        let id_maps = method.id_maps();
        let (receiver, sender) = UnixStream::pair()?;
        let memory = SessionMemory::new()?;
        let filled = memory.try_clone()?;
        let is_made = succeeds_in_child(move || {
            let user_flag = if id_maps.is_some() { libc::CLONE_NEWUSER } else { 0 };
            syscalls::unshare(libc::CLONE_NEWNET | user_flag)?;
            if let Some((users, groups)) = &id_maps {
                map_ids(users, groups)?;
            }
            syscalls::bring_up_loopback()?;
            syscalls::add_addresses(PRIVATE_IPV4, PRIVATE_IPV6)?;
            send_namespace(&sender, NETWORK_NAMESPACE)?;
            if id_maps.is_some() {
                send_namespace(&sender, USER_NAMESPACE)?;
            }
            // Without it, each program has memory of its own.
            filled.fill(&size).ok();
            Ok(())
        });
        if !is_made {
            return Err(io::Error::other("network namespaces are not available"));
        }
        let network_namespace = syscalls::receive_descriptor(receiver.as_fd())?;
        let user_namespace = match method {
            NamespaceMethod::Root => None,
            NamespaceMethod::User { .. } => Some(syscalls::receive_descriptor(receiver.as_fd())?),
        };
        memory.close_if_empty()?;
        Ok(SessionNetwork { network_namespace, user_namespace, memory })
    }

    /// Sends the network to another process of the user, which [receives](Self::receive) it. Does not wait if
    /// nothing else was sent before.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let user_namespace = self.user_namespace.as_ref().unwrap_or(&self.network_namespace);
        let namespaces = [self.network_namespace.as_fd(), user_namespace.as_fd()];
        let mut sent = namespaces.into_iter().chain(self.memory.descriptors());
        sent.try_for_each(|descriptor| syscalls::send_descriptor(socket, descriptor))
    }

    /// Receives a network, with calls of `receive` that each wait for one descriptor.
    ///
    /// # Errors
    /// When `receive` fails.
    pub async fn receive(
        mut receive: impl AsyncFnMut(fn(BorrowedFd<'_>) -> io::Result<OwnedFd>) -> io::Result<OwnedFd>,
    ) -> io::Result<SessionNetwork> {
        let network_namespace = receive(syscalls::receive_descriptor).await?;
        let user_namespace = receive(syscalls::receive_descriptor).await?;
        let has_user_namespace = NamespaceMethod::of_this_process() != NamespaceMethod::Root;
        let user_namespace = has_user_namespace.then_some(user_namespace);
        let taken = receive(syscalls::receive_descriptor).await?;
        let given = receive(syscalls::receive_descriptor).await?;
        let current = receive(syscalls::receive_descriptor).await?;
        let memory = SessionMemory::from_descriptors([taken, given, current]);
        Ok(SessionNetwork { network_namespace, user_namespace, memory })
    }

    /// Opens a TCP socket that connects within this network, for IPv6 or IPv4. Blocks for about a millisecond.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn open_socket(&self, is_ipv6: bool) -> io::Result<OwnedFd> {
        let domain = if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET };
        let (receiver, sender) = UnixStream::pair()?;
        let network = self.try_clone()?;
        let is_made = succeeds_in_child(move || {
            network.join_user_namespace()?;
            network.join()?;
            let socket = syscalls::open_socket(domain, libc::SOCK_STREAM, 0)?;
            syscalls::send_descriptor(sender.as_fd(), socket.as_fd())
        });
        if !is_made {
            return Err(io::Error::other("the network of the session cannot be entered"));
        }
        syscalls::receive_descriptor(receiver.as_fd())
    }

    fn try_clone(&self) -> io::Result<SessionNetwork> {
        Ok(SessionNetwork {
            network_namespace: self.network_namespace.try_clone()?,
            user_namespace: self.user_namespace.as_ref().map(OwnedFd::try_clone).transpose()?,
            memory: self.memory.try_clone()?,
        })
    }

    pub(super) fn memory(&self) -> &SessionMemory {
        &self.memory
    }

    pub(super) fn has_user_namespace(&self) -> bool {
        self.user_namespace.is_some()
    }

    /// Moves this process into the user namespace, if there is one. Makes system calls only.
    pub(super) fn join_user_namespace(&self) -> io::Result<()> {
        let Some(namespace) = &self.user_namespace else { return Ok(()) };
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?)
    }

    /// Moves this process into the network. Makes system calls only.
    pub(super) fn join(&self) -> io::Result<()> {
        let namespace = self.network_namespace.as_fd();
        Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
    }
}

fn send_namespace(sender: &UnixStream, path: &CStr) -> io::Result<()> {
    let namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    syscalls::send_descriptor(sender.as_fd(), namespace.as_fd())
}
