//! Converts wire types to domain types.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::invalid;
use super::schema::{BlobResourceContents, ContentBlock, EmbeddedResourceResource, ImageContent};
use crate::error::Error;
use turnwright_config::with_home;
use turnwright_types::message::{ATTACHED_PICTURE, Media, PromptPart, UserMessage};
use turnwright_workspace::files::{blob_text, read_pdf, read_picture, usual_base64};

/// The variable with the name of the WSL distribution in which this program runs.
#[cfg(target_os = "linux")]
const DISTRIBUTION: &str = "WSL_DISTRO_NAME";
/// The hosts by which Windows names the files of a WSL distribution.
#[cfg(target_os = "linux")]
const WSL_HOSTS: [&str; 2] = ["wsl.localhost", "wsl$"];

/// The folder that a client names. Some clients write `~` for the home folder. An editor on Windows whose agent runs
/// in WSL writes it with backslashes, as a share of the distribution, or with a drive.
#[cfg(target_os = "linux")]
pub(super) fn folder(path: PathBuf) -> PathBuf {
    folder_in(with_home(path), turnwright_config::own_variable(DISTRIBUTION).as_deref())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn folder(path: PathBuf) -> PathBuf {
    with_home(path)
}

/// The working folder that a client names. Some clients call the folder in which they have started the agent `.`; a
/// remote client has started none.
pub(super) fn working_folder(path: PathBuf, is_remote: bool) -> PathBuf {
    match std::path::absolute(".") {
        Ok(own) if path.as_os_str() == "." && !is_remote => own,
        _ => folder(path),
    }
}

/// The same in this distribution, if it is known. The files of another one are not here.
#[cfg(target_os = "linux")]
fn folder_in(path: PathBuf, distribution: Option<&str>) -> PathBuf {
    let foreign = path.to_str().filter(|text| !text.starts_with('/') || text.starts_with("//"));
    let Some(slashed) = foreign.map(|text| text.replace('\\', "/")) else { return path };
    if let Some((host, share)) = slashed.strip_prefix("//").and_then(|rest| rest.split_once('/')) {
        let is_wsl = WSL_HOSTS.iter().any(|known| host.eq_ignore_ascii_case(known));
        let (name, inside) = share.split_once('/').unwrap_or((share, ""));
        let is_here = distribution.is_none_or(|own| own.eq_ignore_ascii_case(name));
        return if is_wsl && is_here { format!("/{inside}").into() } else { path };
    }
    match slashed.split_once(':') {
        Some((drive, rest)) if is_drive(drive) && (rest.is_empty() || rest.starts_with('/')) => {
            format!("/mnt/{}{rest}", drive.to_ascii_lowercase()).into()
        }
        None if slashed.starts_with('/') => slashed.into(),
        _ => path,
    }
}

/// The address of a file that a client attaches. An editor on Windows names it like [`folder`].
fn file_uri(uri: String) -> String {
    let Some(place) = uri.strip_prefix("file://") else { return uri };
    let plain = place.replacen("%3A", ":", 1).replacen("%3a", ":", 1).replacen("%24", "$", 1);
    // Some clients write two slashes before a drive, or four before a server.
    let is_path = plain.as_bytes().get(1) == Some(&b':') || plain.starts_with("//");
    let named = match plain.strip_prefix('/') {
        _ if is_path => plain.clone(),
        // In an address, `~` is a name like any other.
        Some(local) if !local.starts_with('~') => local.to_owned(),
        _ => format!("//{plain}"),
    };
    let meant = folder(PathBuf::from(&named));
    if meant == Path::new(&named) { uri } else { format!("file://{}", meant.display()) }
}

#[cfg(target_os = "linux")]
fn is_drive(name: &str) -> bool {
    matches!(name.as_bytes(), [letter] if letter.is_ascii_alphabetic())
}

/// Converts a prompt. An unknown kind of block is refused, because leaving it out would change what the
/// user says (R-TURN-11). The session decides whether it accepts images and audio.
///
/// Some blocks may stand for skills. `skills` has their names by the indexes of these blocks.
pub(super) fn prompt(
    blocks: Vec<ContentBlock>,
    mut skills: HashMap<usize, String>,
) -> Result<UserMessage, Error> {
    let mut parts = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.into_iter().enumerate() {
        match skills.remove(&index) {
            Some(name) => parts.push(PromptPart::Skill(name)),
            None => add_block(&mut parts, block)?,
        }
    }
    // Some servers refuse a message of blanks, and so each later request, which repeats it.
    if parts.iter().all(|part| matches!(part, PromptPart::Text(text) if text.trim().is_empty())) {
        return Err(invalid("`prompt` is empty"));
    }
    Ok(UserMessage::new(parts))
}

fn add_block(parts: &mut Vec<PromptPart>, block: ContentBlock) -> Result<(), Error> {
    match block {
        ContentBlock::Text(text) if text.text.is_empty() => {}
        ContentBlock::Text(text) => parts.push(PromptPart::Text(text.text)),
        ContentBlock::ResourceLink(link) => {
            parts.push(PromptPart::Link { name: link.name, uri: file_uri(link.uri) });
        }
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                parts.push(PromptPart::Resource { uri: file_uri(it.uri), text: it.text });
            }
            EmbeddedResourceResource::BlobResourceContents(it) => add_blob(parts, it),
            _ => return Err(unsupported("this kind of resource")),
        },
        // Some clients only say where the picture is.
        ContentBlock::Image(ImageContent { data, uri: Some(uri), .. })
            if data.is_empty() && uri.contains("://") =>
        {
            parts.push(PromptPart::Link { name: "picture".to_owned(), uri: file_uri(uri) });
        }
        // No model takes such a picture, but every model can read its text.
        ContentBlock::Image(it) if it.mime_type.starts_with("image/svg") => {
            let uri = it.uri.unwrap_or_else(|| "picture.svg".to_owned());
            add_blob(parts, BlobResourceContents::new(it.data, uri).mime_type(it.mime_type));
        }
        ContentBlock::Image(it) => parts.push(PromptPart::Image(image(it.data)?)),
        ContentBlock::Audio(it) => parts.push(PromptPart::Audio(audio(&it.mime_type, it.data)?)),
        _ => return Err(unsupported("this kind of content")),
    }
    Ok(())
}

/// The first bytes of a PDF and of an archive, in base64.
const DOCUMENT_STARTS: [&str; 2] = ["JVBERi0", "UEsDB"];

/// The text of an attached document, which the model gets as the path of a file.
const DOCUMENT: &str =
    "[a document; if it is not shown here but is a file on the disk, read_file reads its text]";

/// The most PDF files of a prompt that are shown as such.
const MAX_FILES: usize = 4;

/// The most bytes of base64 that are searched for a text. A handler must not take long.
const MAX_TEXT_BLOB_BYTES: usize = 1024 * 1024;

/// Adds an attached file in base64: a text, picture or PDF as such, anything else by a description.
fn add_blob(parts: &mut Vec<PromptPart>, blob: BlobResourceContents) {
    let BlobResourceContents { uri: written, mime_type, blob: data, .. } = blob;
    let uri = file_uri(written);
    let size = data.len();
    if DOCUMENT_STARTS.iter().any(|start| data.starts_with(start)) {
        let may_be_shown = parts.iter().filter(|part| part.is_pdf()).count() < MAX_FILES;
        parts.push(PromptPart::Resource { uri, text: DOCUMENT.to_owned() });
        // The session decides whether the model gets it.
        let file = if may_be_shown { read_pdf(data) } else { None };
        return parts.extend(file.map(PromptPart::Image));
    }
    if size <= MAX_TEXT_BLOB_BYTES
        && let Some(text) = blob_text(&data)
    {
        return parts.push(PromptPart::Resource { uri, text });
    }
    if let Ok(picture) = read_picture(data) {
        parts.push(PromptPart::Resource { uri, text: ATTACHED_PICTURE.to_owned() });
        return parts.push(PromptPart::Image(picture));
    }
    let mime = mime_type.as_deref().unwrap_or("unknown type");
    let text = format!("[binary content, {mime}, {size} bytes in base64, not shown]");
    parts.push(PromptPart::Resource { uri, text });
}

/// Reads an image. Its label does not matter.
fn image(data: String) -> Result<Media, Error> {
    read_picture(data)
        .map_err(|fault| invalid(format!("An image of the prompt cannot be used: {fault}")))
}

/// Checks a recording. A browser names its codec, too: `audio/webm;codecs=opus`.
fn audio(label: &str, data: String) -> Result<Media, Error> {
    let mime = label.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_mime =
        mime.chars().all(|letter| letter.is_ascii_alphanumeric() || "/.+-".contains(letter));
    let is_valid = mime.starts_with("audio/") && mime.len() < 100 && is_mime;
    match usual_base64(data).filter(|_| is_valid) {
        Some(data) => Ok(Media { mime, data }),
        None => Err(invalid("A block is not audio/* in base64")),
    }
}

fn unsupported(what: &str) -> Error {
    invalid(format!("Prompts cannot contain {what}"))
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_as_an_editor_on_windows_writes_it_is_that_of_its_wsl_distribution() {
        let table = [
            (r"\home\me\a b", "/home/me/a b"),
            (r"\\wsl.localhost\Ubuntu\home\me\ws", "/home/me/ws"),
            (r"\\wsl$\Debian\home\me", "/home/me"),
            ("//WSL.localhost/Ubuntu-24.04/home/me", "/home/me"),
            (r"\\wsl.localhost\Ubuntu", "/"),
            (r"C:\Users\me\ws", "/mnt/c/Users/me/ws"),
            ("d:/ws", "/mnt/d/ws"),
            ("D:", "/mnt/d"),
            // These mean what they say.
            ("/home/me/ws", "/home/me/ws"),
            (r"/home/me/a\b", r"/home/me/a\b"),
            (r"\\server\share", r"\\server\share"),
            (r"a\b", r"a\b"),
            ("c:x", "c:x"),
            (r"\home:x", r"\home:x"),
            ("file:///home/me", "file:///home/me"),
            ("", ""),
        ];
        for (sent, expected) in table {
            assert_eq!(folder_in(sent.into(), None), PathBuf::from(expected), "{sent}");
        }
    }

    #[test]
    fn the_type_of_a_recording_may_name_its_codec() {
        for (label, expected) in [
            ("audio/webm;codecs=opus", Some("audio/webm")),
            ("Audio/OGG; codecs=\"opus\"", Some("audio/ogg")),
            ("audio/mpeg", Some("audio/mpeg")),
            ("video/webm;codecs=vp8", None),
            ("audio/\"x\"", None),
        ] {
            let read = audio(label, "AAAA".to_owned()).ok().map(|recording| recording.mime);
            assert_eq!(read.as_deref(), expected, "{label}");
        }
    }

    #[test]
    fn a_dot_is_the_folder_in_which_the_client_has_started_the_agent() {
        assert_eq!(working_folder(".".into(), false), std::path::absolute(".").unwrap());
        assert_eq!(working_folder(".".into(), true).as_os_str(), ".");
        for other in ["", "..", "./", "a", "./a", "~a", "a/~"] {
            assert_eq!(working_folder(other.into(), false).as_os_str(), other);
        }
    }

    #[test]
    fn a_tilde_before_a_folder_is_the_home_folder() {
        let home = with_home("~".into());
        assert!(home.is_absolute(), "{}", home.display());
        for is_remote in [false, true] {
            assert_eq!(working_folder("~".into(), is_remote), home);
            assert_eq!(working_folder("~/a b".into(), is_remote), home.join("a b"));
        }
        assert_eq!(folder("~/a".into()), home.join("a"));
        assert_eq!(file_uri("file:///~/a".to_owned()), "file:///~/a");
    }

    #[test]
    fn a_folder_of_another_wsl_distribution_is_not_one_of_this() {
        let sent = r"\\wsl.localhost\Debian\home\me";
        for (own, expected) in [("debian", "/home/me"), ("Ubuntu", sent)] {
            assert_eq!(folder_in(sent.into(), Some(own)), PathBuf::from(expected), "{own}");
        }
    }

    #[test]
    fn an_attached_file_as_an_editor_on_windows_names_it_is_one_of_its_wsl_distribution() {
        let table = [
            ("file:///c%3A/Users/me/a%20b.rs#L1:2", "file:///mnt/c/Users/me/a%20b.rs#L1:2"),
            ("file:///D:/ws/a.rs", "file:///mnt/d/ws/a.rs"),
            ("file://C:/Users/me/a.rs#L1:2", "file:///mnt/c/Users/me/a.rs#L1:2"),
            (r"file://C:\Users\me\a.rs", "file:///mnt/c/Users/me/a.rs"),
            ("file://wsl.localhost/Ubuntu/home/me/a.rs", "file:///home/me/a.rs"),
            ("file:////wsl.localhost/Ubuntu/home/me/a.rs", "file:///home/me/a.rs"),
            ("file:////home/me/a.rs", "file:////home/me/a.rs"),
            ("file://wsl%24/Ubuntu/home/me/a.rs", "file:///home/me/a.rs"),
            ("file:///home/me/a%3Ab.rs", "file:///home/me/a%3Ab.rs"),
            ("file://server/share/a.rs", "file://server/share/a.rs"),
            ("zed:///agent/thread/1", "zed:///agent/thread/1"),
        ];
        for (sent, expected) in table {
            assert_eq!(file_uri(sent.to_owned()), expected, "{sent}");
        }
    }
}
