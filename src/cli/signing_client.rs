//! The program that git runs in the sandbox when it needs a signature.

#![expect(
    clippy::disallowed_methods,
    reason = "it does what the program does whose place it takes"
)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write, stderr, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use turnwright_config::own_variable;
use turnwright_guard::signing::wire::{
    LINK_PREFIX, MAX_LINE, MAX_PAYLOAD, SOCKET, SignatureFormat, SigningAnswer, SigningRequest,
    TOKEN_VARIABLE,
};
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::exec::{COMMON_GIT_SETTINGS, GIT_SETTING_COUNT};

/// Runs the signing program if this process was started as one.
pub(super) fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let link = PathBuf::from(words.next()?);
    let name = link.file_name()?.to_str()?.strip_prefix(LINK_PREFIX)?;
    let format = SignatureFormat::ALL.into_iter().find(|format| format.name() == name)?;
    let arguments: Vec<OsString> = words.collect();
    Some(match sign_if_asked(format, &arguments, &link.with_file_name(SOCKET)) {
        Ok(Some(exit_code)) => exit_code,
        // It verifies, or looks for a key: that needs no key of the user.
        Ok(None) => failed(&Command::new(usual_program(format)).args(arguments).exec()),
        Err(error) => failed(&error),
    })
}

/// The program that git would run without this one: the one in its settings, or the default.
fn usual_program(format: SignatureFormat) -> String {
    let mut command = Command::new("git");
    command.args(["config", "--null", "--type=path", "--get-regexp", format.settings_pattern()]);
    // The settings after these make git run this program.
    command.env(GIT_SETTING_COUNT, COMMON_GIT_SETTINGS).stdin(Stdio::null()).stderr(Stdio::null());
    let printed = command.output().map(|output| output.stdout).unwrap_or_default();
    let settings = String::from_utf8_lossy(&printed);
    let mut programs =
        settings.split_terminator('\0').filter_map(|setting| setting.split_once('\n'));
    match programs.next_back() {
        Some((_, program)) if !is_link(program) => program.to_owned(),
        _ => format.default_program().to_owned(),
    }
}

/// Returns true for a link to this program, which would start itself for ever.
fn is_link(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(LINK_PREFIX))
}

fn failed(error: &io::Error) -> ExitCode {
    let text = format!("turnwright: nothing was signed: {}", io_error_text(error));
    writeln!(stderr(), "{text}").ok();
    ExitCode::FAILURE
}

/// Signs, unless the arguments are not those of a signature.
fn sign_if_asked(
    format: SignatureFormat,
    arguments: &[OsString],
    socket: &Path,
) -> io::Result<Option<ExitCode>> {
    let words: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| *found == word);
    let (key, file) = if format == SignatureFormat::Ssh {
        if !is(0, "-Y") || !is(1, "sign") || !is(2, "-n") || !is(3, "git") || !is(4, "-f") {
            return Ok(None);
        }
        let (Some(key), Some(file)) = (words.get(5), words.last()) else { return Ok(None) };
        (*key, Some(Path::new(*file)))
    } else {
        match words.as_slice() {
            [status, how, key] if *status == "--status-fd=2" && *how == "-bsau" => (*key, None),
            _ => return Ok(None),
        }
    };
    let is_literal = file.is_some() && words.contains(&OsStr::new("-U"));
    let payload = match file {
        Some(file) => read_bounded(fs::File::open(file)?)?,
        None => read_bounded(stdin())?,
    };
    let request = SigningRequest {
        token: own_variable(TOKEN_VARIABLE).unwrap_or_default(),
        format,
        key: key.to_string_lossy().into_owned(),
        literal_key: if is_literal { fs::read_to_string(key).ok() } else { None },
        payload_bytes: payload.len(),
    };
    sign(&request, &payload, file, socket).map(Some)
}

fn read_bounded(source: impl Read) -> io::Result<Vec<u8>> {
    read_at_most(source, MAX_PAYLOAD as u64)?.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

/// Writes the signature of a file beside it, any other to the output.
fn sign(
    request: &SigningRequest,
    payload: &[u8],
    file: Option<&Path>,
    socket: &Path,
) -> io::Result<ExitCode> {
    let mut stream = UnixStream::connect(socket).map_err(|error| {
        io::Error::other(format!("the agent does not answer: {}", io_error_text(&error)))
    })?;
    writeln!(stream, "{}", serde_json::to_string(request)?)?;
    stream.write_all(payload)?;
    let mut line = String::new();
    BufReader::new(stream).take(MAX_LINE).read_line(&mut line)?;
    let answer: SigningAnswer = serde_json::from_str(&line)?;
    stderr().write_all(answer.messages.as_bytes())?;
    let Some(signature) = answer.signature else { return Ok(ExitCode::FAILURE) };
    match file {
        Some(file) => {
            let mut target = file.as_os_str().to_owned();
            target.push(".sig");
            fs::write(target, signature)?;
        }
        None => stdout().write_all(signature.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
