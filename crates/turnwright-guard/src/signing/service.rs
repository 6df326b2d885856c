//! The side of the agent: the folder that a command sees, and the socket on which its requests for signatures arrive.

use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::signer::Signer;
use super::user_programs::WHILE_OPENED;
use super::wire::{
    LINK_PREFIX, MAX_LINE, MAX_PAYLOAD, SOCKET, SignatureFormat, SigningAnswer, SigningRequest,
    TOKEN_VARIABLE,
};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_workspace::exec::{Environment, add_git_setting, launcher_program};
use turnwright_workspace::fixed_places::{FixedPlaces, OpenedPlaces};
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The time that a client gets to send its request and payload.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that the user gets to unlock the key.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause after a connection could not be accepted, for example because too many files are open.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Where the folders of commands are if commands may write the agent's own, or its path is too long for a socket.
const OTHER_PLACE: &str = "/var/tmp";
/// The folder that the commands of a session share, each in a mount namespace of its own. Whatever is mounted there
/// for one of them, another one can move away and replace.
const SHARED_PLACE: &str = "/tmp";

/// The folder of one command, with the socket that its programs reach there.
#[derive(Debug)]
pub struct SigningService {
    listener: BlockingListener,
    folder: PathBuf,
    /// This program, to which the links in the folder lead.
    program: PathBuf,
    token: String,
    signer: Signer,
    _owner: PrivateTempFolder,
}

impl SigningService {
    /// Makes the folder, if possible in `state`, the agent's own. The session's folders are `folders`, and commands
    /// could write in `opened`. Blocks.
    ///
    /// # Errors
    /// If a command could replace the folder or this program: others would run what it puts there.
    pub fn create(
        environment: &Environment,
        state: &Path,
        folders: Vec<PathBuf>,
        opened: Arc<OpenedPlaces>,
    ) -> io::Result<SigningService> {
        let places = opened.fixed_places();
        let program = launcher_program().and_then(|program| own_target(program, &places));
        let program = program.ok_or_else(|| {
            let why = format!("the agent's program was replaced, or lies where {WHILE_OPENED}");
            io::Error::other(why)
        })?;
        let own_place = state.join("signing");
        let made = private_file::create_folder(&own_place)
            .and_then(|()| make_folder(&own_place, &program, &places))
            .or_else(|_| make_folder(Path::new(OTHER_PLACE), &program, &places));
        let (owner, listener) = made?;
        let folder = owner.path().to_path_buf();
        let signer = Signer {
            environment: environment.clone(),
            folders,
            opened,
            place: folder.parent().unwrap_or(&folder).to_path_buf(),
        };
        let token = uuid::Uuid::new_v4().simple().to_string();
        Ok(SigningService { listener, folder, program, token, signer, _owner: owner })
    }

    /// The real paths that programs must see to ask for a signature: the socket, this program and the folder.
    pub fn places(&self) -> [PathBuf; 3] {
        [self.folder.join(SOCKET), self.program.clone(), self.folder.clone()]
    }

    /// The variables that make git call this service.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![(TOKEN_VARIABLE, self.token.clone())];
        for (setting, format) in [
            ("gpg.program", SignatureFormat::OpenPgp),
            ("gpg.openpgp.program", SignatureFormat::OpenPgp),
            ("gpg.x509.program", SignatureFormat::X509),
            ("gpg.ssh.program", SignatureFormat::Ssh),
        ] {
            let link = link_in(&self.folder, format).display().to_string();
            add_git_setting(&mut variables, setting, link);
        }
        variables
    }

    /// Serves requests one after the other, forever.
    pub async fn serve(self) {
        let SigningService { listener, token, signer, _owner, .. } = self;
        let Ok(listener) = UnixListener::from_std(listener) else { return };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let served = answer(stream, &token, &signer).await;
                    if let Err(error) = served {
                        tracing::debug!(%error, "a request for a signature has failed");
                    }
                }
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }
}

/// The target of a path that no command can replace.
fn own_target(path: &Path, places: &FixedPlaces) -> Option<PathBuf> {
    places.leads_to(path).filter(|target| !target.starts_with(SHARED_PLACE))
}

/// Makes the folder of a command with its socket and the links to this program.
fn make_folder(
    place: &Path,
    program: &Path,
    places: &FixedPlaces,
) -> io::Result<(PrivateTempFolder, BlockingListener)> {
    let place = own_target(place, places).ok_or_else(|| {
        io::Error::other("there is no folder for its socket that commands cannot replace")
    })?;
    let owner = PrivateTempFolder::create_in(&place)?;
    for format in SignatureFormat::ALL {
        symlink(program, link_in(owner.path(), format))?;
    }
    let listener = BlockingListener::bind(owner.path().join(SOCKET))?;
    listener.set_nonblocking(true)?;
    Ok((owner, listener))
}

fn link_in(folder: &Path, format: SignatureFormat) -> PathBuf {
    folder.join(format!("{LINK_PREFIX}{}", format.name()))
}

/// Answers the request on a connection.
async fn answer(stream: UnixStream, token: &str, signer: &Signer) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let received = timeout(REQUEST_TIMEOUT, read_request(&mut stream)).await??;
    let (request, payload) = received;
    let answer = if request.token == token {
        match timeout(SIGNING_TIMEOUT, signer.sign(&request, payload)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => refusal(&io_error_text(&error)),
            Err(_) => refusal("the key was not unlocked in time"),
        }
    } else {
        refusal("the request is not one of the command that may sign")
    };
    let mut line = serde_json::to_string(&answer)?;
    line.push('\n');
    timeout(REQUEST_TIMEOUT, stream.write_all(line.as_bytes())).await?
}

fn refusal(why: &str) -> SigningAnswer {
    let messages = format!("turnwright: nothing was signed: {why}\n");
    SigningAnswer { signature: None, messages }
}

async fn read_request(stream: &mut BufReader<UnixStream>) -> io::Result<(SigningRequest, Vec<u8>)> {
    let mut line = String::new();
    stream.take(MAX_LINE).read_line(&mut line).await?;
    let request: SigningRequest = serde_json::from_str(&line)?;
    if request.payload_bytes > MAX_PAYLOAD {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut payload = vec![0; request.payload_bytes];
    stream.read_exact(&mut payload).await?;
    Ok((request, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only Linux has a `/tmp` that the commands of a session share.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_folder_is_in_no_place_that_commands_may_write_or_share() {
        let opened = Arc::new(OpenedPlaces::default());
        let service_in = |state: &Path| {
            let folders = vec![PathBuf::from("/")];
            SigningService::create(&Environment::default(), state, folders, Arc::clone(&opened))
        };
        let state = tempfile::tempdir_in(OTHER_PLACE).unwrap();
        let shared = tempfile::tempdir_in(SHARED_PLACE).unwrap();
        let own = state.path();
        // The program of the tests may lie in `/tmp`.
        let Ok(service) = service_in(own) else { return };
        assert_eq!(service.folder.parent(), Some(own.join("signing").as_path()));
        assert_eq!(service.signer.place, own.join("signing"));
        for name in ["socket", "sign-openpgp", "sign-x509", "sign-ssh"] {
            assert!(service.folder.join(name).symlink_metadata().is_ok(), "{name}");
        }
        let folder = service.folder.clone();
        drop(service);
        assert!(!folder.exists());
        let long = own.join("x".repeat(100));
        for (state, opens) in
            [(shared.path(), None), (long.as_path(), None), (own, Some(own.to_path_buf()))]
        {
            opened.add(opens);
            let service = service_in(state).unwrap();
            assert_eq!(
                service.folder.parent(),
                Some(Path::new(OTHER_PLACE)),
                "{}",
                state.display()
            );
        }
        opened.add([PathBuf::from(OTHER_PLACE)]);
        let why = service_in(own).unwrap_err().to_string();
        assert!(why.contains("commands cannot replace"), "{why}");
        opened.add([PathBuf::from("/")]);
        let why = service_in(own).unwrap_err().to_string();
        assert!(why.contains("the agent's program"), "{why}");
    }

    #[tokio::test]
    async fn a_request_without_the_token_is_refused() {
        let signer = Signer {
            environment: Environment::default(),
            folders: Vec::new(),
            opened: Arc::default(),
            place: PathBuf::from("/nowhere"),
        };
        for (token, expected) in [
            ("", "not one of the command"),
            ("secre", "not one of the command"),
            ("secret!", "not one of the command"),
            ("secret", "only commits, tags and pushes"),
        ] {
            let (mut client, served) = UnixStream::pair().unwrap();
            let request = SigningRequest {
                token: token.to_owned(),
                format: SignatureFormat::Ssh,
                key: "/key.pub".to_owned(),
                literal_key: None,
                payload_bytes: 1,
            };
            let line = serde_json::to_string(&request).unwrap() + "\nx";
            client.write_all(line.as_bytes()).await.unwrap();
            answer(served, "secret", &signer).await.unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            let answer: SigningAnswer = serde_json::from_str(&text).unwrap();
            assert_eq!(answer.signature, None);
            assert!(answer.messages.contains(expected), "{token}: {}", answer.messages);
        }
    }
}
