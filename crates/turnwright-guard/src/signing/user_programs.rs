//! The user's programs that sign, and their settings, without all that a command could have put in their place.
//!
//! Of the settings of git that say how the user signs, only those of the user and of the system count, with what they
//! include: commands can make repositories with settings of their own.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::wire::{MAX_LINE, SignatureFormat};
use turnwright_workspace::exec::{Environment, PipedProgram, ProcessGroup, is_program};
use turnwright_workspace::fixed_places::FixedPlaces;

/// The names of these settings, and of those that lead to further files.
const SETTINGS_PATTERN: &str = r"^(user\.(name|email|signingkey)|committer\.(name|email)|gpg\.(.*\.)?program|gpg\.ssh\.defaultkeycommand|include\.path|includeif\..*\.path)$";
/// The scopes of the files that only the user and the administrator write.
const TRUSTED_SCOPES: [&str; 2] = ["system", "global"];
/// The characters that git removes at the ends of names and addresses, besides blanks.
const TRIMMED_BY_GIT: &str = ".,:;<>\"\\'";

#[derive(Debug, Default)]
pub(super) struct SigningSettings(Vec<SigningSetting>);

#[derive(Debug)]
struct SigningSetting {
    /// The file that sets it; empty if it is in none.
    file: String,
    name: String,
    value: String,
}

impl SigningSettings {
    /// Reads the output of `git config --null --show-scope --show-origin --get-regexp`.
    pub(super) fn parse(output: &str) -> SigningSettings {
        let mut parts = output.split_terminator('\0');
        let mut all = Vec::new();
        while let (Some(scope), Some(origin), Some(setting)) =
            (parts.next(), parts.next(), parts.next())
        {
            if TRUSTED_SCOPES.contains(&scope) {
                let (name, value) = setting.split_once('\n').unwrap_or((setting, ""));
                all.push(SigningSetting {
                    file: origin.strip_prefix("file:").unwrap_or_default().to_owned(),
                    name: name.to_owned(),
                    value: value.to_owned(),
                });
            }
        }
        SigningSettings(all)
    }

    /// The files that have such settings or include one that has.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|setting| setting.file.as_str())
    }

    /// The last value counts.
    fn value(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
        let mut latest_first = self.0.iter().rev();
        latest_first.find(|setting| is_wanted(&setting.name)).map(|setting| setting.value.as_str())
    }

    /// The program for a format. `gpg.program` is another name of the one for OpenPGP.
    pub(super) fn program(&self, format: SignatureFormat) -> Option<&str> {
        let own_name = format!("gpg.{}.program", format.name());
        let has_short_name = format == SignatureFormat::OpenPgp;
        self.value(|name| name == own_name || has_short_name && name == "gpg.program")
    }

    pub(super) fn signing_key(&self) -> Option<&str> {
        self.value(|name| name == "user.signingkey")
    }

    /// The words of the command that prints the SSH key if there is no other setting.
    pub(super) fn key_command(&self) -> Option<Vec<String>> {
        split_words(self.value(|name| name == "gpg.ssh.defaultkeycommand")?)
    }

    /// The committer, by whom the other formats find the key if there is no setting. The variables are the user's.
    pub(super) fn committer(&self, variables: &Environment) -> Option<String> {
        let name = text_of(variables, "GIT_COMMITTER_NAME")
            .or_else(|| self.value(|name| name == "committer.name"))
            .or_else(|| self.value(|name| name == "user.name"));
        let email = text_of(variables, "GIT_COMMITTER_EMAIL")
            .or_else(|| self.value(|name| name == "committer.email"))
            .or_else(|| self.value(|name| name == "user.email"))
            .or_else(|| text_of(variables, "EMAIL"));
        Some(format!("{} <{}>", as_in_identity(name?), as_in_identity(email?)))
    }
}

fn text_of<'a>(variables: &'a Environment, name: &str) -> Option<&'a str> {
    variables.get(name)?.to_str().filter(|value| !value.is_empty())
}

/// Writes a name or an address as git does in the identity of a committer.
fn as_in_identity(text: &str) -> String {
    let trimmed = text.trim_matches(|char: char| char <= ' ' || TRIMMED_BY_GIT.contains(char));
    trimmed.replace(['\n', '<', '>'], "")
}

/// Splits a command line as git does; `None` if a quotation has no end.
fn split_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            _ if quote == Some(char) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            '\\' if quote != Some('\'') => word.get_or_insert_default().push(chars.next()?),
            _ if quote.is_none() && char.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// The most bytes that a program may print to one stream.
const MAX_PRINTED: u64 = MAX_LINE / 4;
/// The most bytes of a settings file of gpg that are looked at.
const MAX_SETTINGS_BYTES: u64 = 64 * 1024;
/// The variables that signing programs get, besides `LC_*`.
const KEPT_VARIABLES: &str =
    "EMAIL GIT_COMMITTER_EMAIL GIT_COMMITTER_NAME HOME LANG LANGUAGE LOGNAME TZ USER";
/// Variables that they get unless they name a path that commands may write.
const CHECKED_VARIABLES: &str = "DBUS_SESSION_BUS_ADDRESS DISPLAY GIT_CONFIG_GLOBAL GNUPGHOME SSH_AUTH_SOCK \
                                 WAYLAND_DISPLAY XAUTHORITY XDG_CONFIG_HOME XDG_RUNTIME_DIR";

/// The end of a refusal because of a place that commands can write.
pub(super) const WHILE_OPENED: &str =
    "commands may write; what was opened to them counts until turnwright is restarted";

/// The user's programs, as of the moment in which it is made.
#[derive(Debug)]
pub(super) struct UserPrograms {
    /// The variables that the programs get.
    pub(super) environment: Environment,
    places: FixedPlaces,
    git: Option<PathBuf>,
}

/// The output of a program.
#[derive(Debug)]
pub(super) struct ProgramOutput {
    pub(super) is_success: bool,
    pub(super) text: Vec<u8>,
    pub(super) messages: String,
}

impl UserPrograms {
    /// Takes the user's variables and the places that no command can have written. Blocks.
    pub(super) fn new(variables: &Environment, places: FixedPlaces) -> UserPrograms {
        let named = variables.iter().map(|(name, value)| (name.to_string_lossy(), value));
        let others = named.filter(|(name, value)| !keeps_variable(name, value, &places));
        let removed: Vec<_> = others.map(|(name, _)| name).collect();
        let removed_names: Vec<&str> = removed.iter().map(AsRef::as_ref).collect();
        let kept = variables.without(&removed_names);
        // Programs start others by their name, as a script does that is called `gpg`.
        let path = variables.get("PATH").map(|path| fixed_folders(path, &places));
        let environment = match path.filter(|path| !path.is_empty()) {
            Some(path) => kept.with("PATH", path),
            None => kept,
        };
        let mut programs = UserPrograms { environment, places, git: None };
        programs.git = programs.find("git");
        programs
    }

    /// Finds the program with this name in the folders of `PATH`. Blocks.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.environment.get("PATH")?;
        std::env::split_paths(path).find_map(|folder| self.program(&folder.join(name)))
    }

    /// Returns the program at a path, unless a command may have changed it or a folder on the way to it. Blocks.
    pub(super) fn program(&self, path: &Path) -> Option<PathBuf> {
        let target = self.places.leads_to(path)?;
        let can_run = is_program(&target).ok()?;
        // Some programs behave according to the name that they are called by, so the last link is not resolved.
        let folder = self.places.leads_to(path.parent()?)?;
        let name = path.file_name()?;
        can_run.then(|| folder.join(name))
    }

    /// Returns the program that a setting names. Blocks.
    pub(super) fn named_program(&self, name: &str) -> io::Result<PathBuf> {
        let found = if name.contains('/') {
            self.expand(name).and_then(|path| self.program(&path))
        } else {
            self.find(name)
        };
        found.ok_or_else(|| not_found(name))
    }

    /// The absolute path that a setting names.
    pub(super) fn expand(&self, path: &str) -> Option<PathBuf> {
        match path.strip_prefix("~/") {
            Some(rest) => Some(Path::new(self.environment.get("HOME")?).join(rest)),
            None => Some(PathBuf::from(path)).filter(|path| path.is_absolute()),
        }
    }

    /// Returns the target of a path that a program obeys or reads. Blocks.
    pub(super) fn fixed_target(&self, path: &Path) -> io::Result<PathBuf> {
        self.places.leads_to(path).ok_or_else(|| {
            let path = path.display();
            io::Error::other(format!(
                "nothing is at {path}, or it is one of the places that {WHILE_OPENED}"
            ))
        })
    }

    /// Returns the settings of git that hold in a folder, without those of its repository.
    pub(super) async fn settings(&self, folder: &Path) -> io::Result<SigningSettings> {
        let git = self.git.as_ref().ok_or_else(|| not_found("git"))?;
        let mut command_line: Vec<OsString> =
            vec![git.into(), "--no-pager".into(), "-C".into(), folder.into()];
        let words = ["config", "--null", "--show-scope", "--show-origin", "--get-regexp"];
        command_line.extend(words.map(OsString::from));
        command_line.push(SETTINGS_PATTERN.into());
        let output = self.run(command_line, &[]).await?;
        // Without such a setting it fails and says nothing.
        if !output.is_success && !output.messages.is_empty() {
            let why = format!("git cannot read its settings: {}", output.messages.trim_end());
            return Err(io::Error::other(why));
        }
        Ok(SigningSettings::parse(&String::from_utf8_lossy(&output.text)))
    }

    /// Fails if commands may write one of the files that the settings of git are from. It is enough to look at them
    /// afterwards: the first step of a way that commands can change is reached by steps that they cannot. Blocks.
    pub(super) fn check_settings(&self, settings: &SigningSettings) -> io::Result<()> {
        let changeable = settings.files().map(Path::new).find(|file| !self.places.is_fixed(file));
        changeable.map_or(Ok(()), |file| Err(obeys_changeable("git", file)))
    }

    /// Fails if commands may write a settings file of gpg, make one, or write a program that one of them names. Blocks.
    pub(super) fn check_gpg_settings(&self) -> io::Result<()> {
        let changeable = self.changeable_gpg_setting();
        changeable.map_or(Ok(()), |path| Err(obeys_changeable("gpg", &path)))
    }

    fn changeable_gpg_setting(&self) -> Option<PathBuf> {
        let folder = match self.environment.get("GNUPGHOME") {
            Some(folder) => PathBuf::from(folder),
            None => Path::new(self.environment.get("HOME")?).join(".gnupg"),
        };
        if !self.places.is_fixed(&folder) {
            return Some(folder);
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files = entries.filter(|entry| is_gpg_setting(&entry.file_name()));
        files.find_map(|entry| {
            let file = entry.path();
            if self.places.is_fixed(&file) { self.changeable_program_in(&file) } else { Some(file) }
        })
    }

    /// A program that a settings file of gpg names, such as `pinentry-program`.
    fn changeable_program_in(&self, file: &Path) -> Option<PathBuf> {
        let mut bytes = Vec::new();
        File::open(file).ok()?.take(MAX_SETTINGS_BYTES).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut named = text.lines().filter_map(|line| {
            let parts = line.split(|char: char| char.is_whitespace() || char == '=');
            let mut words = parts.filter(|word| !word.is_empty());
            words.next().filter(|option| option.ends_with("-program"))?;
            self.expand(words.next()?)
        });
        named.find(|program| !self.places.is_fixed(program))
    }

    /// Runs a program outside the sandbox, in `/`.
    ///
    /// # Errors
    /// If it cannot be started, or prints too much.
    pub(super) async fn run(
        &self,
        command_line: Vec<OsString>,
        input: &[u8],
    ) -> io::Result<ProgramOutput> {
        let program = PipedProgram {
            command_line,
            workdir: PathBuf::from("/"),
            environment: self.environment.clone(),
            sandbox: None,
        };
        let (mut process, pipes) = ProcessGroup::start_piped(&program).await?;
        // gpg starts the agent that holds the user's keys.
        process.spare_daemons();
        let mut stdin = pipes.stdin;
        let writing = async {
            // It may end without having read everything.
            stdin.write_all(input).await.ok();
            drop(stdin);
            io::Result::Ok(())
        };
        let ((), text, messages) =
            tokio::try_join!(writing, read_bounded(pipes.stdout), read_bounded(pipes.stderr))?;
        let exit = process.wait_for_end().await;
        Ok(ProgramOutput {
            is_success: exit.is_success(),
            text,
            messages: String::from_utf8_lossy(&messages).into_owned(),
        })
    }
}

/// The error that a program obeys a file that commands may write.
fn obeys_changeable(program: &str, path: &Path) -> io::Error {
    io::Error::other(format!("{program} obeys {}, which {WHILE_OPENED}", path.display()))
}

fn not_found(program: &str) -> io::Error {
    let why = format!("no `{program}` was found outside the folders that {WHILE_OPENED}");
    io::Error::other(why)
}

/// Reads a stream to its end. The rest of a longer one would block the program, so that is an error.
async fn read_bounded(stream: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(MAX_PRINTED + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MAX_PRINTED {
        return Err(io::Error::other("the program prints too much"));
    }
    Ok(bytes)
}

/// Returns true if signing programs get this variable as it is.
fn keeps_variable(name: &str, value: &OsStr, places: &FixedPlaces) -> bool {
    let text = value.to_string_lossy();
    // `unix:path=/run/user/1000/bus` names a path, too.
    let mut paths = text.split(['=', ',', ';']).filter(|part| part.starts_with('/'));
    KEPT_VARIABLES.split(' ').any(|kept| kept == name)
        || name.starts_with("LC_")
        || CHECKED_VARIABLES.split(' ').any(|checked| checked == name)
            && paths.all(|path| places.is_fixed(Path::new(path)))
}

/// The folders of a search path in which no command can have put a program.
fn fixed_folders(path: &OsStr, places: &FixedPlaces) -> OsString {
    let folders = std::env::split_paths(path).filter(|folder| places.leads_to(folder).is_some());
    std::env::join_paths(folders).unwrap_or_default()
}

/// Returns true for the names of settings files: `gpg.conf`, but also `gpg.conf-2.2`, which counts before that.
fn is_gpg_setting(name: &OsStr) -> bool {
    name == "options" || name.to_string_lossy().contains(".conf")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use tempfile::TempDir;
    use turnwright_workspace::real_path;

    use super::*;

    #[test]
    fn the_last_setting_of_the_user_counts_and_none_of_a_repository() {
        let printed = "system\0file:/etc/gitconfig\0gpg.program\ngpg2\0\
                       global\0file:/h/.gitconfig\0gpg.ssh.program\n/opt/op-ssh-sign\0\
                       global\0file:/h/.gitconfig\0user.name\n Jane <Doe>.\0\
                       global\0file:/h/.gitconfig\0user.email\njane@example.org\0\
                       global\0file:/h/.gitconfig\0includeif.gitdir:~/work/.path\nwork\0\
                       global\0file:/h/work\0user.signingkey\nWORK\0\
                       global\0file:/h/work\0gpg.openpgp.program\n/usr/bin/gpg\0\
                       local\0file:.git/config\0user.signingkey\nOTHER\0\
                       command\0command line:\0gpg.x509.program\n/tmp/x\0";
        let settings = SigningSettings::parse(printed);
        assert_eq!(settings.program(SignatureFormat::OpenPgp), Some("/usr/bin/gpg"));
        assert_eq!(settings.program(SignatureFormat::Ssh), Some("/opt/op-ssh-sign"));
        assert_eq!(settings.program(SignatureFormat::X509), None);
        assert_eq!(settings.signing_key(), Some("WORK"));
        let none = Environment::default();
        assert_eq!(settings.committer(&none).as_deref(), Some("Jane Doe <jane@example.org>"));
        let files = ["/etc/gitconfig", "/h/.gitconfig", "/h/work"];
        assert!(settings.files().all(|file| files.contains(&file)));
        let only = SigningSettings::parse("global\0file:/a\0gpg.program\ngpg2\0");
        assert_eq!(only.program(SignatureFormat::OpenPgp), Some("gpg2"));
        assert_eq!((only.signing_key(), only.committer(&none)), (None, None));
        // A setting without a value, and one that is in no file.
        let odd = SigningSettings::parse("global\0standard input:\0gpg.program\0");
        assert_eq!(odd.files().collect::<Vec<_>>(), [""]);
        assert_eq!(odd.program(SignatureFormat::OpenPgp), Some(""));
    }

    #[test]
    fn variables_of_the_user_name_the_committer_before_settings() {
        let settings = SigningSettings::parse(
            "global\0file:/h/.gitconfig\0committer.name\nJane\0\
             global\0file:/h/.gitconfig\0committer.email\njane@example.org\0",
        );
        let none = SigningSettings::default();
        for (variables, of_settings, without) in [
            (&[("GIT_COMMITTER_NAME", "Joe")][..], "Joe <jane@example.org>", None),
            (&[("GIT_COMMITTER_EMAIL", "j@b.example")], "Jane <j@b.example>", None),
            (
                &[("GIT_COMMITTER_EMAIL", ""), ("EMAIL", "e@b.example")],
                "Jane <jane@example.org>",
                None,
            ),
            (
                &[("GIT_COMMITTER_NAME", "Joe"), ("EMAIL", "e@b.example")],
                "Joe <jane@example.org>",
                Some("Joe <e@b.example>"),
            ),
        ] {
            let environment = variables
                .iter()
                .fold(Environment::default(), |all, (name, value)| all.with(name, *value));
            assert_eq!(settings.committer(&environment).as_deref(), Some(of_settings));
            assert_eq!(none.committer(&environment).as_deref(), without);
        }
    }

    #[test]
    fn a_command_that_prints_the_key_is_split_as_git_does() {
        for (line, expected) in [
            ("ssh-add -L", Some(vec!["ssh-add", "-L"])),
            (" sh  -c 'echo \"key::$1\"' ''", Some(vec!["sh", "-c", "echo \"key::$1\"", ""])),
            (r#"a\ b "c\"d" e'f'g"#, Some(vec!["a b", "c\"d", "efg"])),
            ("", Some(vec![])),
            ("sh -c 'x", None),
            ("x \\", None),
        ] {
            let words: Option<Vec<String>> =
                expected.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(split_words(line), words, "{line}");
        }
    }

    /// A home folder beside a project, in which commands can write.
    struct Place {
        top: PathBuf,
        _folder: TempDir,
    }

    impl Place {
        fn new() -> Place {
            let folder = tempfile::tempdir().unwrap();
            let top = real_path(folder.path()).unwrap();
            for name in ["project", "bin", "home"] {
                fs::create_dir(top.join(name)).unwrap();
            }
            Place { top, _folder: folder }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.top.join(name)
        }

        fn add_program(&self, name: &str) {
            fs::write(self.path(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }

        fn programs(&self, variables: Environment) -> UserPrograms {
            let folders = ["project", "missing", "bin"].map(|name| self.path(name));
            let path = std::env::join_paths(folders).unwrap();
            let variables = variables.with("PATH", path).with("HOME", self.path("home"));
            UserPrograms::new(&variables, FixedPlaces::new(vec![self.path("project")]))
        }
    }

    #[test]
    fn no_program_counts_that_a_command_may_write() {
        let place = Place::new();
        for program in ["project/gpg", "bin/gpg", "project/git", "home/wrapper"] {
            place.add_program(program);
        }
        symlink(place.path("project/gpg"), place.path("bin/linked")).unwrap();
        symlink(place.path("bin"), place.path("project/back")).unwrap();
        symlink("gpg", place.path("bin/gpg2")).unwrap();
        let programs = place.programs(Environment::default());
        for (name, expected) in [
            ("gpg", Some("bin/gpg")),
            ("gpg2", Some("bin/gpg2")),
            ("linked", None),
            ("git", None),
            ("~/wrapper", Some("home/wrapper")),
            (&place.path("bin/gpg").display().to_string(), Some("bin/gpg")),
            (&place.path("project/back/gpg").display().to_string(), None),
            ("./gpg", None),
            ("", None),
        ] {
            let found = programs.named_program(name);
            match expected {
                Some(expected) => assert_eq!(found.unwrap(), place.path(expected), "{name}"),
                None => {
                    let why = found.unwrap_err().to_string();
                    let missing =
                        format!("no `{name}` was found outside the folders that commands");
                    assert!(why.starts_with(&missing), "{why}");
                    assert!(why.ends_with("until turnwright is restarted"), "{why}");
                }
            }
        }
        assert_eq!(programs.git, None);
        // A wrapper script finds no other program either.
        assert_eq!(programs.environment.get("PATH").unwrap(), place.path("bin").as_os_str());
    }

    #[test]
    fn no_variable_counts_that_leads_to_a_place_that_a_command_may_write() {
        let place = Place::new();
        let bus = format!("unix:path={}/bus,guid=1", place.top.display());
        let own_bus = format!("unix:path={}/bus,guid=1", place.path("project").display());
        let variables = Environment::default()
            .with("GNUPGHOME", place.path("project"))
            .with("LD_LIBRARY_PATH", place.path("bin"))
            .with("PYTHONPATH", place.path("bin"))
            .with("SSH_AUTH_SOCK", place.path("bin"))
            .with("GIT_CONFIG_GLOBAL", place.path("home/git.inc"))
            .with("GIT_COMMITTER_NAME", "Jane")
            .with("DISPLAY", ":0")
            .with("LC_ALL", "C");
        let with_bus =
            |bus: &str| place.programs(variables.clone().with("DBUS_SESSION_BUS_ADDRESS", bus));
        let programs = with_bus(&bus);
        for (name, is_kept) in [
            ("HOME", true),
            ("PATH", true),
            ("SSH_AUTH_SOCK", true),
            ("GIT_CONFIG_GLOBAL", true),
            ("GIT_COMMITTER_NAME", true),
            ("DISPLAY", true),
            ("LC_ALL", true),
            ("DBUS_SESSION_BUS_ADDRESS", true),
            ("GNUPGHOME", false),
            ("LD_LIBRARY_PATH", false),
            ("PYTHONPATH", false),
        ] {
            assert_eq!(programs.environment.get(name).is_some(), is_kept, "{name}");
        }
        assert_eq!(with_bus(&own_bus).environment.get("DBUS_SESSION_BUS_ADDRESS"), None);
        let own_file = Environment::default().with("GIT_CONFIG_GLOBAL", place.path("project/x"));
        assert_eq!(place.programs(own_file).environment.get("GIT_CONFIG_GLOBAL"), None);
    }

    #[test]
    fn no_settings_of_gpg_count_that_a_command_may_write_or_make() {
        let place = Place::new();
        place.add_program("project/pinentry");
        let programs = place.programs(Environment::default());
        // It does not exist yet, and no command can make it.
        assert_eq!(programs.changeable_gpg_setting(), None);
        fs::create_dir(place.path("home/.gnupg")).unwrap();
        for name in
            ["gpg.conf-2.2", "gpgsm.conf-2", "scdaemon.conf", "dirmngr.conf", "keyboxd.conf"]
        {
            let file = place.path("home/.gnupg").join(name);
            symlink(place.path("project/pinentry"), &file).unwrap();
            assert_eq!(programs.changeable_gpg_setting(), Some(file.clone()), "{name}");
            fs::remove_file(file).unwrap();
        }
        symlink(place.path("project"), place.path("home/.gnupg/openpgp-revocs.d")).unwrap();
        let agent = place.path("home/.gnupg/gpg-agent.conf");
        fs::write(&agent, "max-cache-ttl 60\npinentry-program /usr/bin/pinentry\n").unwrap();
        assert_eq!(programs.changeable_gpg_setting(), None);
        let pinentry = place.path("project/pinentry");
        fs::write(&agent, format!("pinentry-program {}\n", pinentry.display())).unwrap();
        assert_eq!(programs.changeable_gpg_setting(), Some(pinentry));
        // The whole home folder is open to commands, also before the folder is there.
        let open = FixedPlaces::new(vec![place.path("home")]);
        let programs = UserPrograms { places: open, ..programs };
        assert_eq!(programs.changeable_gpg_setting(), Some(place.path("home/.gnupg")));
        fs::remove_dir_all(place.path("home/.gnupg")).unwrap();
        assert_eq!(programs.changeable_gpg_setting(), Some(place.path("home/.gnupg")));
    }

    #[test]
    fn settings_of_git_do_not_count_if_a_command_may_write_their_file() {
        let place = Place::new();
        let programs = place.programs(Environment::default());
        let settings = |origin: &str| {
            SigningSettings::parse(&format!("global\0{origin}\0user.signingkey\nA\0"))
        };
        let project = place.path("project").display().to_string();
        let home = place.path("home").display().to_string();
        symlink(&project, place.path("home/linked")).unwrap();
        for (origin, is_accepted) in [
            (format!("file:{home}/.gitconfig"), true),
            (format!("file:{project}/.gitconfig"), false),
            (format!("file:{home}/linked/gitconfig"), false),
            ("file:gitconfig".to_owned(), false),
            ("standard input:".to_owned(), false),
        ] {
            let checked = programs.check_settings(&settings(&origin));
            assert_eq!(checked.is_ok(), is_accepted, "{origin}");
        }
    }

    #[tokio::test]
    async fn a_program_that_prints_too_much_is_not_waited_for() {
        let place = Place::new();
        let programs = place.programs(Environment::default());
        for stream in ["1", "2"] {
            let line = format!("head -c 300000 /dev/zero >&{stream}; exec sleep 300");
            let words = ["/bin/sh", "-c", &format!("PATH=/usr/bin:/bin; {line}")];
            let running = programs.run(words.map(OsString::from).to_vec(), &[]);
            let output = tokio::time::timeout(Duration::from_secs(60), running).await;
            let why = output.expect("it is waited for").unwrap_err();
            assert_eq!(why.to_string(), "the program prints too much");
        }
    }

    #[tokio::test]
    async fn the_output_of_a_program_is_read_and_its_input_written() {
        let place = Place::new();
        let programs = place.programs(Environment::default());
        let words = ["/bin/sh", "-c", "read line; echo \"$line\"; echo note >&2; exit 1"];
        let output = programs.run(words.map(OsString::from).to_vec(), b"text\n").await.unwrap();
        assert_eq!((output.text.as_slice(), output.messages.as_str()), (&b"text\n"[..], "note\n"));
        assert!(!output.is_success);
    }
}
