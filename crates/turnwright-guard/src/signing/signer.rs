//! Signs commits, tags and pushes with the program and the key that the user's own settings of git name.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::user_programs::{SigningSettings, UserPrograms};
use super::wire::{SignatureFormat, SigningAnswer, SigningRequest};
use turnwright_types::text;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::fixed_places::OpenedPlaces;
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The time that git gets to read its settings, and a command to print the key.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_KEY_BYTES: usize = 16 * 1024;
/// At most this many characters of a key are shown.
const MAX_SHOWN_CHARS: usize = 100;
const MESSAGE: &str = "message";
const LITERAL_KEY: &str = "key.pub";

/// Runs the user's programs, and none that a command could have put in their place.
#[derive(Debug)]
pub(super) struct Signer {
    /// The user's variables.
    pub(super) environment: Environment,
    /// The session's folders. Settings of the user that depend on a condition count if it holds in one of them.
    pub(super) folders: Vec<PathBuf>,
    pub(super) opened: Arc<OpenedPlaces>,
    /// The place for temporary files, where no command can write.
    pub(super) place: PathBuf,
}

/// The key that the user's settings name.
#[derive(Debug, PartialEq)]
enum UserKey {
    /// As gpg and gpgsm find it.
    Name(String),
    /// The file of an SSH key.
    File(PathBuf),
    /// A public SSH key.
    Literal(String),
}

impl Signer {
    /// Signs what a command asks for.
    ///
    /// # Errors
    /// The reason why nothing is signed.
    pub(super) async fn sign(
        &self,
        request: &SigningRequest,
        payload: Vec<u8>,
    ) -> io::Result<SigningAnswer> {
        if !is_git_object(&payload) {
            return Err(io::Error::other("only commits, tags and pushes of git are signed"));
        }
        if !is_plain_key(&request.key) {
            return Err(io::Error::other("the key has no usable name"));
        }
        let variables = self.environment.clone();
        let places = self.opened.fixed_places();
        let looking = blocking(move || Ok(UserPrograms::new(&variables, places)));
        let programs = Arc::new(looking.await?);
        let (program, key) = self.choose(&programs, request).await?;
        let mut command_line = vec![program.into_os_string()];
        let (key_file, literal_key) = match key {
            UserKey::Name(name) => {
                command_line.extend(["--status-fd=2", "-bsau", &name].map(OsString::from));
                let output = programs.run(command_line, &payload).await?;
                let text = String::from_utf8(output.text).map_err(io::Error::other)?;
                let signature = (output.is_success && !text.is_empty()).then_some(text);
                return Ok(SigningAnswer { signature, messages: output.messages });
            }
            UserKey::File(file) => (Some(file), None),
            UserKey::Literal(key) => (None, Some(key)),
        };
        // Such a program reads a file and writes another one beside it.
        let place = self.place.clone();
        let preparing = blocking(move || prepare_files(&place, &payload, literal_key.as_deref()));
        let files = preparing.await?;
        command_line.extend(["-Y", "sign", "-n", "git", "-f"].map(OsString::from));
        match key_file {
            Some(file) => command_line.push(file.into()),
            None => command_line.extend([files.path().join(LITERAL_KEY).into(), "-U".into()]),
        }
        command_line.push(files.path().join(MESSAGE).into_os_string());
        let output = programs.run(command_line, &[]).await?;
        let reading = blocking(move || {
            Ok(fs::read_to_string(files.path().join(MESSAGE).with_extension("sig")).ok())
        });
        let signature = reading.await?.filter(|_| output.is_success);
        Ok(SigningAnswer { signature, messages: output.messages })
    }

    /// Returns the user's program and key for the first of the session's folders in which that is the key asked for.
    async fn choose(
        &self,
        programs: &Arc<UserPrograms>,
        request: &SigningRequest,
    ) -> io::Result<(PathBuf, UserKey)> {
        let mut refusal = None;
        for folder in &self.folders {
            match choose_in(folder, programs, request).await {
                Ok(choice) => return Ok(choice),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| other_key(request)))
    }
}

async fn choose_in(
    folder: &Path,
    programs: &Arc<UserPrograms>,
    request: &SigningRequest,
) -> io::Result<(PathBuf, UserKey)> {
    let settings = Arc::new(in_time(programs.settings(folder)).await?);
    let format = request.format;
    let command = {
        let programs = Arc::clone(programs);
        let settings = Arc::clone(&settings);
        blocking(move || {
            programs.check_settings(&settings)?;
            key_command(&programs, &settings, format)
        })
    };
    let printed_key = match command.await? {
        Some(command_line) => {
            let output = in_time(programs.run(command_line, &[])).await?;
            String::from_utf8_lossy(&output.text).lines().next().map(str::to_owned)
        }
        None => None,
    };
    let programs = Arc::clone(programs);
    let request = request.clone();
    let choosing = blocking(move || {
        let key = choose_key(&programs, &settings, &request, printed_key.as_deref())?;
        let name = settings.program(format).unwrap_or_else(|| format.default_program());
        let program = programs.named_program(name)?;
        if format != SignatureFormat::Ssh {
            programs.check_gpg_settings()?;
        }
        Ok((program, key))
    });
    choosing.await
}

/// The command that prints the key, if the settings name one and no key. Blocks.
fn key_command(
    programs: &UserPrograms,
    settings: &SigningSettings,
    format: SignatureFormat,
) -> io::Result<Option<Vec<OsString>>> {
    if format != SignatureFormat::Ssh || settings.signing_key().is_some() {
        return Ok(None);
    }
    let words = settings.key_command().unwrap_or_default();
    let Some((program, arguments)) = words.split_first() else { return Ok(None) };
    for path in arguments.iter().map(Path::new).filter(|path| path.is_absolute()) {
        programs.fixed_target(path)?;
    }
    let program = programs.named_program(program)?.into_os_string();
    Ok(Some(std::iter::once(program).chain(arguments.iter().map(OsString::from)).collect()))
}

/// Returns the key that the settings name, if it is the one of the request. Blocks.
fn choose_key(
    programs: &UserPrograms,
    settings: &SigningSettings,
    request: &SigningRequest,
    printed_key: Option<&str>,
) -> io::Result<UserKey> {
    let is_ssh = request.format == SignatureFormat::Ssh;
    let key = match settings.signing_key() {
        Some(key) if !is_ssh => Some(UserKey::Name(key.to_owned())),
        None if !is_ssh => settings.committer(&programs.environment).map(UserKey::Name),
        key => match (key.or(printed_key).and_then(literal_key), key) {
            (Some(literal), _) => Some(UserKey::Literal(literal.to_owned())),
            (None, Some(file)) => programs.expand(file).map(UserKey::File),
            (None, None) => None,
        },
    };
    let asked_literal = request.literal_key.as_deref();
    let is_asked_for = match &key {
        Some(UserKey::Name(name)) => *name == request.key,
        Some(UserKey::File(file)) => {
            let target = programs.fixed_target(file)?;
            let is_path = asked_literal.is_none() && Path::new(&request.key).is_absolute();
            is_path && real_path(&request.key).is_ok_and(|asked| asked == target)
        }
        Some(UserKey::Literal(key)) => {
            asked_literal.is_some_and(|asked| key_fields(asked).eq(key_fields(key)))
        }
        None => false,
    };
    key.filter(|_| is_asked_for).ok_or_else(|| other_key(request))
}

/// The public key in a setting that names no file.
fn literal_key(setting: &str) -> Option<&str> {
    setting.strip_prefix("key::").or_else(|| setting.starts_with("ssh-").then_some(setting))
}

/// The type of a public key and the key itself, without the comment.
fn key_fields(key: &str) -> impl Iterator<Item = &str> {
    key.split_whitespace().take(2)
}

/// Says that the user has not chosen the key of a request, and where they can.
fn other_key(request: &SigningRequest) -> io::Error {
    let asked = text::one_line(request.literal_key.as_deref().unwrap_or(&request.key));
    // Without a key, git asks for the one of the committer.
    let is_committer = request.literal_key.is_none() && asked.ends_with('>');
    let for_repository = if is_committer {
        ". For a name and an address that hold in one repository only: [includeIf \"gitdir:FOLDER/\"] in ~/.gitconfig"
    } else {
        ""
    };
    io::Error::other(format!(
        "`{}` is not the key that the user's own settings of git name; those of a repository do not count. The user can \
         name it outside the sandbox: git config --global user.signingKey KEY{for_repository}",
        text::clip(asked, MAX_SHOWN_CHARS)
    ))
}

#[expect(clippy::disallowed_methods, reason = "temporary files of one run")]
fn prepare_files(
    place: &Path,
    payload: &[u8],
    literal_key: Option<&str>,
) -> io::Result<PrivateTempFolder> {
    let folder = PrivateTempFolder::create_in(place)?;
    fs::write(folder.path().join(MESSAGE), payload)?;
    if let Some(key) = literal_key {
        fs::write(folder.path().join(LITERAL_KEY), key)?;
    }
    Ok(folder)
}

/// Waits for a program that says how to sign.
async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(SETTINGS_TIMEOUT, work).await;
    done.map_err(|_| io::Error::other("the settings of git were not read in time"))?
}

/// Does some work off the runtime's thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Returns true if programs can take this only as the name of a key.
fn is_plain_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY_BYTES
        && !key.starts_with('-')
        && !key.contains(char::is_control)
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
    use turnwright_workspace::fixed_places::FixedPlaces;

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

    #[test]
    fn only_the_key_of_the_user_s_own_settings_signs() {
        let folder = tempfile::tempdir().unwrap();
        let top = real_path(folder.path()).unwrap();
        fs::create_dir_all(top.join("home/.ssh")).unwrap();
        fs::create_dir(top.join("project")).unwrap();
        let keys = ["home/.ssh/id.pub", "home/.ssh/other.pub", "project/id.pub"].map(|name| {
            fs::File::create(top.join(name)).unwrap();
            top.join(name).display().to_string()
        });
        let [own, other, in_project] = &keys;
        let variables = Environment::default().with("HOME", top.join("home"));
        let places = FixedPlaces::new(vec![top.join("project")]);
        let programs = UserPrograms::new(&variables, places);
        let file = || Some(UserKey::File(own.into()));
        let name = |name: &str| Some(UserKey::Name(name.to_owned()));
        let literal = || Some(UserKey::Literal("ssh-ed25519 AAAA me".to_owned()));
        let [gpg, x509, ssh] = SignatureFormat::ALL;
        let jane = "Jane <jane@example.org>";
        for (setting, printed, format, asked, asked_literal, expected) in [
            ("ABCD", "", gpg, "ABCD", "", name("ABCD")),
            ("ABCD", "", x509, "ABCD", "", name("ABCD")),
            ("ABCD", "", gpg, "ABCDEF", "", None),
            ("ABCD", "", gpg, jane, "", None),
            ("", "", gpg, jane, "", name(jane)),
            ("", "", gpg, "Joe <joe@example.org>", "", None),
            ("~/.ssh/id.pub", "", ssh, own, "", file()),
            (own, "", ssh, own, "", file()),
            (own, "", ssh, other, "", None),
            (own, "", ssh, "id.pub", "", None),
            (own, "", ssh, own, "ssh-ed25519 AAAA", None),
            (in_project, "", ssh, in_project, "", None),
            ("key::ssh-ed25519 AAAA me", "", ssh, "/tmp/x", "ssh-ed25519 AAAA me\n", literal()),
            ("ssh-ed25519 AAAA me", "", ssh, "/tmp/x", "ssh-ed25519 AAAA", literal()),
            ("ssh-ed25519 AAAA me", "", ssh, "/tmp/x", "ssh-ed25519 BBBB me", None),
            ("ssh-ed25519 AAAA me", "", ssh, own, "", None),
            ("", "ssh-ed25519 AAAA me", ssh, "/tmp/x", "ssh-ed25519 AAAA you", literal()),
            ("", "ssh-ed25519 AAAA me", ssh, "/tmp/x", "ssh-ed25519 BBBB me", None),
            ("", own, ssh, own, "", None),
            ("", "", ssh, own, "", None),
        ] {
            let mut printed_settings = "global\0file:/g\0user.name\nJane\0\
                 global\0file:/g\0user.email\njane@example.org\0"
                .to_owned();
            if !setting.is_empty() {
                printed_settings += &format!("global\0file:/g\0user.signingkey\n{setting}\0");
            }
            // A repository names every key that a command likes.
            printed_settings += &format!("local\0file:.git/config\0user.signingkey\n{asked}\0");
            let settings = SigningSettings::parse(&printed_settings);
            let request = SigningRequest {
                token: String::new(),
                format,
                key: asked.to_owned(),
                literal_key: Some(asked_literal.to_owned()).filter(|key| !key.is_empty()),
                payload_bytes: 0,
            };
            let printed_key = Some(printed).filter(|key| !key.is_empty());
            let chosen = choose_key(&programs, &settings, &request, printed_key);
            assert_eq!(chosen.ok(), expected, "{setting}: {asked}");
        }
    }

    #[test]
    fn a_refusal_names_the_key_and_where_to_set_it() {
        let request = SigningRequest {
            token: String::new(),
            format: SignatureFormat::OpenPgp,
            key: "ABCD".to_owned(),
            literal_key: None,
            payload_bytes: 0,
        };
        let text = other_key(&request).to_string();
        assert!(text.contains("`ABCD`") && text.contains("git config --global"), "{text}");
        assert!(!text.contains("includeIf"), "{text}");
        let key = "Jane <jane@work.example>".to_owned();
        let text = other_key(&SigningRequest { key, ..request }).to_string();
        assert!(text.contains("[includeIf"), "{text}");
    }
}
