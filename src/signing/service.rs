//! The side of the agent: it runs the user's own signing program for the commits, tags and pushes of one command.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::wire::{
    LINK_PREFIX, MAX_LINE, MAX_PAYLOAD, SOCKET, SignatureFormat, SigningAnswer, SigningRequest,
};
use turnwright_types::io_error_text::io_error_text;
use turnwright_workspace::exec::{Environment, PipedProcess, PipedProgram, launcher_program};
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// How long a client may take to send what it wants to be signed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the user may take to unlock the key.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(300);
/// How long git may take to read its settings.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, for example because too many files are open.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
const MAX_KEY_BYTES: usize = 16 * 1024;
/// How the objects begin that git signs: commits, tags and certificates of pushes.
const SIGNED: [&[u8]; 3] = [b"tree ", b"object ", b"certificate version "];

/// The folder of one command, and what its programs reach there.
#[derive(Debug)]
pub(crate) struct SigningService {
    listener: BlockingListener,
    folder: PathBuf,
    /// Has a trusted `PATH`.
    environment: Environment,
    /// Where no program of the user is, since commands may write there.
    untrusted: Vec<PathBuf>,
    _owner: PrivateTempFolder,
    _mount_point: Option<MountPoint>,
}

impl SigningService {
    /// Makes the folder. `session_tmp` is what commands have as `/tmp`. Blocks.
    pub(crate) fn create(
        environment: Environment,
        untrusted: Vec<PathBuf>,
        session_tmp: Option<&Path>,
    ) -> io::Result<SigningService> {
        let owner = PrivateTempFolder::create()?;
        let folder = real_path(owner.path())?;
        let program = launcher_program().ok_or(io::ErrorKind::NotFound)?;
        for format in SignatureFormat::ALL {
            symlink(program, link_in(&folder, format))?;
        }
        let listener = BlockingListener::bind(folder.join(SOCKET))?;
        listener.set_nonblocking(true)?;
        let name = folder.file_name().unwrap_or_default();
        let mount_point = session_tmp.map(|tmp| MountPoint(tmp.join(name)));
        Ok(SigningService {
            listener,
            folder,
            environment,
            untrusted,
            _owner: owner,
            _mount_point: mount_point,
        })
    }

    /// What programs have to see for it, as real paths: the folder, the socket and this program.
    pub(crate) fn places(&self) -> [PathBuf; 3] {
        let program = launcher_program().and_then(|program| real_path(program).ok());
        let folder = self.folder.clone();
        [folder.join(SOCKET), program.unwrap_or_else(|| folder.clone()), folder]
    }

    /// The variables that make git use it, after the settings that every command gets.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let link = |format| link_in(&self.folder, format).display().to_string();
        let settings = [
            ("GIT_CONFIG_KEY_3", "GIT_CONFIG_VALUE_3", "gpg.program", SignatureFormat::OpenPgp),
            (
                "GIT_CONFIG_KEY_4",
                "GIT_CONFIG_VALUE_4",
                "gpg.openpgp.program",
                SignatureFormat::OpenPgp,
            ),
            ("GIT_CONFIG_KEY_5", "GIT_CONFIG_VALUE_5", "gpg.x509.program", SignatureFormat::X509),
            ("GIT_CONFIG_KEY_6", "GIT_CONFIG_VALUE_6", "gpg.ssh.program", SignatureFormat::Ssh),
        ];
        let mut variables = vec![("GIT_CONFIG_COUNT", "7".to_owned())];
        for (key, value, setting, format) in settings {
            variables.push((key, setting.to_owned()));
            variables.push((value, link(format)));
        }
        variables
    }

    /// Signs for ever, one after the other.
    pub(crate) async fn serve(self) {
        let SigningService { listener, environment, untrusted, _owner, _mount_point, .. } = self;
        let Ok(listener) = UnixListener::from_std(listener) else { return };
        let signer = Signer { environment, untrusted };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let served = signer.serve(stream).await;
                    if let Err(error) = served {
                        tracing::debug!(%error, "a request for a signature has failed");
                    }
                }
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }
}

/// The empty folder at which commands see it in their `/tmp`, which nothing else uses.
#[derive(Debug)]
struct MountPoint(PathBuf);

impl Drop for MountPoint {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).ok();
    }
}

fn link_in(folder: &Path, format: SignatureFormat) -> PathBuf {
    folder.join(format!("{LINK_PREFIX}{}", format.name()))
}

struct Signer {
    environment: Environment,
    untrusted: Vec<PathBuf>,
}

impl Signer {
    async fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let received = timeout(REQUEST_TIMEOUT, read_request(&mut stream)).await??;
        let (request, payload) = received;
        let signing = timeout(SIGNING_TIMEOUT, self.sign(&request, payload));
        let answer = match signing.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => refusal(&io_error_text(&error)),
            Err(_) => refusal("the key was not unlocked in time"),
        };
        let mut line = serde_json::to_string(&answer)?;
        line.push('\n');
        timeout(REQUEST_TIMEOUT, stream.write_all(line.as_bytes())).await?
    }

    async fn sign(&self, request: &SigningRequest, payload: Vec<u8>) -> io::Result<SigningAnswer> {
        if !SIGNED.iter().any(|beginning| payload.starts_with(beginning)) {
            return Ok(refusal("only commits, tags and pushes of git are signed"));
        }
        if !is_plain_key(&request.key) {
            return Ok(refusal("the key has no usable name"));
        }
        let Some(program) = self.program(request.format).await? else {
            let name = request.format.default_program();
            return Ok(refusal(&format!("there is no {name} outside of the project")));
        };
        if request.format == SignatureFormat::Ssh {
            return self.sign_file(&program, request, payload).await;
        }
        let arguments = ["--status-fd=2", "-bsau", &request.key].map(OsString::from);
        let output = self.run(&program, &arguments, &payload).await?;
        let signature = String::from_utf8(output.text).map_err(io::Error::other)?;
        let signature = (output.is_success && !signature.is_empty()).then_some(signature);
        Ok(SigningAnswer { signature, messages: output.messages })
    }

    /// Signs with a program that reads a file and writes another one beside it.
    async fn sign_file(
        &self,
        program: &Path,
        request: &SigningRequest,
        payload: Vec<u8>,
    ) -> io::Result<SigningAnswer> {
        let literal_key = request.literal_key.clone();
        let prepared = spawn_blocking(move || prepare_files(&payload, literal_key.as_deref()));
        let files = prepared.await.map_err(io::Error::other)??;
        let message = files.path().join(MESSAGE);
        let mut arguments = ["-Y", "sign", "-n", "git", "-f"].map(OsString::from).to_vec();
        if request.literal_key.is_some() {
            arguments.extend([files.path().join(LITERAL_KEY).into(), "-U".into()]);
        } else {
            arguments.push(request.key.clone().into());
        }
        arguments.push(message.into_os_string());
        let output = self.run(program, &arguments, &[]).await?;
        let signed = spawn_blocking(move || {
            fs::read_to_string(files.path().join(MESSAGE).with_extension("sig"))
        });
        let signature = signed.await.map_err(io::Error::other)?.ok();
        Ok(SigningAnswer {
            signature: signature.filter(|_| output.is_success),
            messages: output.messages,
        })
    }

    /// The program that the user's settings of git name. Those of a repository do not count.
    async fn program(&self, format: SignatureFormat) -> io::Result<Option<PathBuf>> {
        let Some(git) = find_program(OsStr::new("git"), &self.environment) else { return Ok(None) };
        let arguments = ["config", "--null", "--get-regexp", r"^gpg\.(.*\.)?program$"];
        let arguments = arguments.map(OsString::from);
        let reading = self.run(&git, &arguments, &[]);
        let settings = timeout(SETTINGS_TIMEOUT, reading).await??;
        let settings = String::from_utf8_lossy(&settings.text).into_owned();
        let wanted = program_in_settings(&settings, format).unwrap_or(format.default_program());
        let program = match (wanted.strip_prefix("~/"), self.environment.get("HOME")) {
            (Some(rest), Some(home)) => Some(Path::new(home).join(rest)),
            _ if Path::new(wanted).is_absolute() => Some(PathBuf::from(wanted)),
            _ if wanted.contains('/') => None,
            _ => find_program(OsStr::new(wanted), &self.environment),
        };
        let is_trusted = |program: &PathBuf| {
            let place = real_path(program).ok();
            place.is_some_and(|place| !self.untrusted.iter().any(|root| place.starts_with(root)))
        };
        Ok(program.filter(is_trusted))
    }

    /// Runs a program outside of the sandbox, where no settings of a repository count.
    async fn run(
        &self,
        program: &Path,
        arguments: &[OsString],
        input: &[u8],
    ) -> io::Result<ProgramOutput> {
        let mut command_line = vec![program.as_os_str().to_owned()];
        command_line.extend_from_slice(arguments);
        let program = PipedProgram {
            command_line,
            workdir: PathBuf::from("/"),
            environment: self.environment.clone(),
            sandbox: None,
        };
        let (mut process, pipes) = PipedProcess::start(&program).await?;
        let mut stdin = pipes.stdin;
        let writing = async {
            // It may end without having read everything.
            stdin.write_all(input).await.ok();
            drop(stdin);
        };
        let (mut text, mut messages) = (Vec::new(), Vec::new());
        let mut stdout = pipes.stdout.take(MAX_LINE / 4);
        let mut stderr = pipes.stderr.take(MAX_LINE / 4);
        let ((), read, noted) =
            tokio::join!(writing, stdout.read_to_end(&mut text), stderr.read_to_end(&mut messages));
        read?;
        noted?;
        let exit = process.wait_for_end().await;
        Ok(ProgramOutput {
            is_success: exit.is_success(),
            text,
            messages: String::from_utf8_lossy(&messages).into_owned(),
        })
    }
}

/// What a program has written.
struct ProgramOutput {
    is_success: bool,
    text: Vec<u8>,
    messages: String,
}

const MESSAGE: &str = "message";
const LITERAL_KEY: &str = "key.pub";

#[expect(clippy::disallowed_methods, reason = "temporary files of one run")]
fn prepare_files(payload: &[u8], literal_key: Option<&str>) -> io::Result<PrivateTempFolder> {
    let folder = PrivateTempFolder::create()?;
    fs::write(folder.path().join(MESSAGE), payload)?;
    if let Some(key) = literal_key {
        fs::write(folder.path().join(LITERAL_KEY), key)?;
    }
    Ok(folder)
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

/// Returns true if a program takes it as the name of a key, and as nothing else.
fn is_plain_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY_BYTES
        && !key.starts_with('-')
        && !key.contains(char::is_control)
}

/// The program for a format, in the output of `git config --null --get-regexp`. The last setting counts; `gpg.program`
/// is another name of the one for OpenPGP.
fn program_in_settings(settings: &str, format: SignatureFormat) -> Option<&str> {
    let name = format!("gpg.{}.program", format.name());
    let mut found = settings.split('\0').rev().filter_map(|setting| setting.split_once('\n'));
    let is_meant =
        |key: &str| key == name || format == SignatureFormat::OpenPgp && key == "gpg.program";
    found.find(|(key, _)| is_meant(key)).map(|(_, value)| value)
}

/// A program in the absolute folders of `PATH`.
fn find_program(name: &OsStr, environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH")?;
    let mut places = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    places.find_map(|folder| {
        let program = folder.join(name);
        let found = fs::metadata(&program).ok()?;
        let is_program = found.is_file() && found.permissions().mode() & 0o111 != 0;
        is_program.then_some(program)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_names_the_program() {
        let settings = "gpg.program\ngpg2\0gpg.ssh.program\n/opt/op-ssh-sign\0gpg.openpgp.program\n/usr/bin/gpg\0";
        let found = |format| program_in_settings(settings, format);
        assert_eq!(found(SignatureFormat::OpenPgp), Some("/usr/bin/gpg"));
        assert_eq!(found(SignatureFormat::Ssh), Some("/opt/op-ssh-sign"));
        assert_eq!(found(SignatureFormat::X509), None);
        assert_eq!(
            program_in_settings("gpg.program\ngpg2\0", SignatureFormat::OpenPgp),
            Some("gpg2")
        );
    }

    #[test]
    fn a_key_is_no_option() {
        for (key, expected) in [
            ("ABCDEF0123", true),
            ("Jane <jane@example.org>", true),
            ("/home/jane/.ssh/id_ed25519.pub", true),
            ("", false),
            ("--output=/x", false),
            ("a\nb", false),
        ] {
            assert_eq!(is_plain_key(key), expected, "{key}");
        }
    }
}
