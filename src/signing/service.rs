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
use turnwright_workspace::temp_folder::{PrivateTempFolder, temp_place};

/// How long a client may take to send its request and payload.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the user may take to unlock the key.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(300);
/// How long git may take to read its settings.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, for example because too many files are open.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
const MAX_KEY_BYTES: usize = 16 * 1024;
/// The variables that signing programs get, besides `LC_*`.
const KEPT_VARIABLES: [&str; 7] = ["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "TZ", "USER"];
/// Variables that they get unless the value is a path that commands may write.
const CHECKED_VARIABLES: [&str; 8] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GNUPGHOME",
    "SSH_AUTH_SOCK",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];
/// The settings of gpg that name programs, in its folder.
const GPG_SETTINGS: [&str; 6] =
    ["", "common.conf", "gpg-agent.conf", "gpg.conf", "gpg.conf-2", "gpgsm.conf"];

/// The folder of one command, with the socket that its programs reach there.
#[derive(Debug)]
pub(crate) struct SigningService {
    listener: BlockingListener,
    folder: PathBuf,
    signer: Signer,
    _owner: PrivateTempFolder,
    _mount_point: Option<MountPoint>,
}

impl SigningService {
    /// Makes the folder. Commands may write in `writable` and see `session_tmp` as their `/tmp`. Blocks.
    ///
    /// # Errors
    /// If the temporary files of the agent lie where commands may write: they could replace them.
    pub(crate) fn create(
        environment: &Environment,
        writable: Vec<PathBuf>,
        session_tmp: Option<&Path>,
    ) -> io::Result<SigningService> {
        let signer = Signer::new(environment, writable);
        if signer.is_writable(&temp_place()) {
            return Err(io::Error::other(
                "TMPDIR of the agent lies in a folder that commands may write",
            ));
        }
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
        Ok(SigningService { listener, folder, signer, _owner: owner, _mount_point: mount_point })
    }

    /// The real paths that programs must see to ask for a signature: the folder, the socket and this program.
    pub(crate) fn places(&self) -> [PathBuf; 3] {
        let program = launcher_program().and_then(|program| real_path(program).ok());
        let folder = self.folder.clone();
        [folder.join(SOCKET), program.unwrap_or_else(|| folder.clone()), folder]
    }

    /// The variables that make git use it, after the settings that every command gets.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
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
            variables.push((value, link_in(&self.folder, format).display().to_string()));
        }
        variables
    }

    /// Serves requests one after the other, forever.
    pub(crate) async fn serve(self) {
        let SigningService { listener, signer, _owner, _mount_point, .. } = self;
        let Ok(listener) = UnixListener::from_std(listener) else { return };
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

/// The empty folder in the commands' `/tmp` at which they see the service's folder. Nothing else uses it.
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

/// Runs the user's programs, and none that a command could have put in their place.
#[derive(Debug)]
struct Signer {
    environment: Environment,
    /// Where commands may write, as real paths.
    writable: Vec<PathBuf>,
}

impl Signer {
    fn new(environment: &Environment, writable: Vec<PathBuf>) -> Signer {
        let mut signer = Signer { environment: environment.clone(), writable };
        let variables = environment.iter().map(|(name, value)| (name.to_string_lossy(), value));
        let others = variables.filter(|(name, value)| !signer.keeps_variable(name, value));
        let removed: Vec<_> = others.map(|(name, _)| name).collect();
        let removed_names: Vec<&str> = removed.iter().map(AsRef::as_ref).collect();
        signer.environment = environment.without(&removed_names);
        signer
    }

    /// Returns true if signing programs get this variable.
    fn keeps_variable(&self, name: &str, value: &OsStr) -> bool {
        let is_path = Path::new(value).is_absolute();
        KEPT_VARIABLES.contains(&name)
            || CHECKED_VARIABLES.contains(&name) && !(is_path && self.is_writable(Path::new(value)))
            || name.starts_with("LC_")
    }

    /// Returns true if commands may write there, or if there is nothing.
    fn is_writable(&self, path: &Path) -> bool {
        let real = real_path(path).ok();
        real.is_none_or(|real| self.writable.iter().any(|folder| real.starts_with(folder)))
    }

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
        if !is_git_object(&payload) {
            return Ok(refusal("only commits, tags and pushes of git are signed"));
        }
        let is_ssh = request.format == SignatureFormat::Ssh;
        let is_file = Path::new(&request.key).is_absolute() && Path::new(&request.key).is_file();
        if !is_plain_key(&request.key) || is_ssh && request.literal_key.is_none() && !is_file {
            return Ok(refusal("the key has no usable name"));
        }
        let program = match self.program(request.format).await? {
            Ok(program) => program,
            Err(why) => return Ok(refusal(&why)),
        };
        if is_ssh {
            return self.sign_file(&program, request, payload).await;
        }
        if let Some(file) = self.writable_gpg_setting() {
            let file = file.display();
            return Ok(refusal(&format!("gpg obeys {file}, which commands may write")));
        }
        let arguments = ["--status-fd=2", "-bsau", &request.key].map(OsString::from);
        let output = self.run(&program, &arguments, &payload).await?;
        let text = String::from_utf8(output.text).map_err(io::Error::other)?;
        let signature = (output.is_success && !text.is_empty()).then_some(text);
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

    /// The program that the user's settings of git name, or why there is none. Settings of a repository do not count.
    async fn program(&self, format: SignatureFormat) -> io::Result<Result<PathBuf, String>> {
        let Some(git) = self.find_program("git") else { return Ok(Err(no_program("git"))) };
        let arguments =
            ["config", "--show-origin", "--null", "--get-regexp", r"^gpg\.(.*\.)?program$"]
                .map(OsString::from);
        let reading = self.run(&git, &arguments, &[]);
        let output = timeout(SETTINGS_TIMEOUT, reading).await??;
        let settings = String::from_utf8_lossy(&output.text).into_owned();
        let Some((file, wanted)) = program_in_settings(&settings, format) else {
            let name = format.default_program();
            return Ok(self.find_program(name).ok_or_else(|| no_program(name)));
        };
        if self.is_writable(Path::new(file)) {
            return Ok(Err(format!("{file} names the program, and commands may write it")));
        }
        let program = match (wanted.strip_prefix("~/"), self.environment.get("HOME")) {
            (Some(rest), Some(home)) => Some(Path::new(home).join(rest)),
            _ if Path::new(wanted).is_absolute() => Some(PathBuf::from(wanted)),
            _ if wanted.contains('/') => None,
            _ => self.find_program(wanted),
        };
        let safe = program.filter(|program| !self.is_writable(program));
        Ok(safe.ok_or_else(|| no_program(wanted)))
    }

    /// A program in the folders of `PATH` that commands cannot write.
    fn find_program(&self, name: &str) -> Option<PathBuf> {
        let path = self.environment.get("PATH")?;
        let mut places = std::env::split_paths(path).filter(|folder| folder.is_absolute());
        places.find_map(|folder| {
            let program = folder.join(name);
            let found = fs::metadata(&program).ok()?;
            let is_program = found.is_file() && found.permissions().mode() & 0o111 != 0;
            (is_program && !self.is_writable(&folder) && !self.is_writable(&program))
                .then_some(program)
        })
    }

    /// A settings file of gpg that commands may write, perhaps through a link.
    fn writable_gpg_setting(&self) -> Option<PathBuf> {
        let folder = match self.environment.get("GNUPGHOME") {
            Some(folder) => PathBuf::from(folder),
            None => Path::new(self.environment.get("HOME")?).join(".gnupg"),
        };
        let mut files = GPG_SETTINGS.iter().map(|name| folder.join(name));
        files.find(|file| file.exists() && self.is_writable(file))
    }

    /// Runs a program outside the sandbox, in `/`, where no settings of a repository count.
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
        let mut text = Vec::new();
        let mut messages = Vec::new();
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

/// The output of a program.
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

fn no_program(name: &str) -> String {
    format!("there is no {name} where commands cannot write")
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

/// Returns true if programs can take this only as the name of a key.
fn is_plain_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY_BYTES
        && !key.starts_with('-')
        && !key.contains(char::is_control)
}

/// The file that sets the program for a format and the program, in the output of `git config --show-origin --null
/// --get-regexp`. The last setting counts; `gpg.program` is another name of the one for OpenPGP.
fn program_in_settings(settings: &str, format: SignatureFormat) -> Option<(&str, &str)> {
    let name = format!("gpg.{}.program", format.name());
    let mut parts = settings.split_terminator('\0');
    let mut found = None;
    while let (Some(origin), Some(setting)) = (parts.next(), parts.next()) {
        let Some((key, value)) = setting.split_once('\n') else { continue };
        if key == name || format == SignatureFormat::OpenPgp && key == "gpg.program" {
            // The origin of a setting that is in no file is no path.
            found = Some((origin.strip_prefix("file:").unwrap_or(""), value));
        }
    }
    found
}

/// Returns true for the objects that git signs: a commit, a tag, or the certificate of a push.
fn is_git_object(payload: &[u8]) -> bool {
    let text = String::from_utf8_lossy(payload);
    let head = text.split("\n\n").next().unwrap_or_default();
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    match first.split_once(' ') {
        Some(("tree", id)) => {
            is_object_id(id) && has_line(head, "author ") && has_line(head, "committer ")
        }
        Some(("object", id)) => {
            is_object_id(id) && has_line(head, "type ") && has_line(head, "tag ")
        }
        Some(("certificate", version)) => version == "version 0.1" && has_line(head, "pusher "),
        _ => false,
    }
}

/// Returns true if a line begins with `prefix`.
fn has_line(text: &str, prefix: &str) -> bool {
    text.lines().any(|line| line.starts_with(prefix))
}

/// Returns true for the hexadecimal SHA-1 or SHA-256 of an object.
fn is_object_id(id: &str) -> bool {
    [40, 64].contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_names_the_program() {
        let settings = "file:/a\0gpg.program\ngpg2\0file:/a\0gpg.ssh.program\n/opt/op-ssh-sign\0\
                        file:/b\0gpg.openpgp.program\n/usr/bin/gpg\0";
        let found = |format| program_in_settings(settings, format);
        assert_eq!(found(SignatureFormat::OpenPgp), Some(("/b", "/usr/bin/gpg")));
        assert_eq!(found(SignatureFormat::Ssh), Some(("/a", "/opt/op-ssh-sign")));
        assert_eq!(found(SignatureFormat::X509), None);
        let only = "file:/a\0gpg.program\ngpg2\0";
        let one = program_in_settings(only, SignatureFormat::OpenPgp);
        assert_eq!(one, Some(("/a", "gpg2")));
    }

    #[test]
    fn only_objects_of_git_are_signed() {
        let id = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        for (payload, expected) in [
            (format!("tree {id}\nauthor A <a> 1 +0\ncommitter A <a> 1 +0\n\nx\n"), true),
            (format!("tree {id}{id}\nauthor A\ncommitter A\n\nx\n"), false),
            (format!("object {id}\ntype commit\ntag v1\ntagger A <a> 1 +0\n\nx\n"), true),
            ("certificate version 0.1\npusher A <a> 1 +0\nnonce 1\n\n".to_owned(), true),
            (format!("tree {id}\n\nauthor A\ncommitter A\n"), false),
            ("tree \nI owe you 1000".to_owned(), false),
            ("SSHSIG".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_git_object(payload.as_bytes()), expected, "{payload}");
        }
    }

    #[test]
    fn nothing_counts_that_a_command_may_write() {
        let temp = tempfile::tempdir().unwrap();
        let place = real_path(temp.path()).unwrap();
        let [project, programs, home] = ["project", "bin", "home"].map(|name| {
            fs::create_dir(place.join(name)).unwrap();
            place.join(name)
        });
        for folder in [&project, &programs] {
            let program = folder.join("gpg");
            fs::File::create(&program).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink(project.join("gpg"), programs.join("linked")).unwrap();
        let path = std::env::join_paths([&project, &programs]).unwrap();
        let environment = Environment::default()
            .with("PATH", path)
            .with("HOME", OsString::from(&home))
            .with("GNUPGHOME", OsString::from(&project))
            .with("LD_LIBRARY_PATH", OsString::from(&programs))
            .with("PYTHONPATH", OsString::from(&programs))
            .with("SSH_AUTH_SOCK", OsString::from(&programs));
        let signer = Signer::new(&environment, vec![project.clone()]);
        assert_eq!(signer.find_program("gpg"), Some(programs.join("gpg")));
        assert_eq!(signer.find_program("linked"), None);
        for (name, is_kept) in [
            ("PATH", true),
            ("HOME", true),
            ("SSH_AUTH_SOCK", true),
            ("GNUPGHOME", false),
            ("LD_LIBRARY_PATH", false),
            ("PYTHONPATH", false),
        ] {
            assert_eq!(signer.environment.get(name).is_some(), is_kept, "{name}");
        }
        assert_eq!(signer.writable_gpg_setting(), None);
        fs::create_dir(home.join(".gnupg")).unwrap();
        let settings = home.join(".gnupg/gpg.conf");
        symlink(project.join("gpg"), &settings).unwrap();
        assert_eq!(signer.writable_gpg_setting(), Some(settings));
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
