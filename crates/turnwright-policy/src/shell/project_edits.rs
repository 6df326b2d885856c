//! Commands that do to files only what the file tools do: they make, copy, move, mark, pack or format
//! those that their words name. The modes that let the file tools do this let such commands do it, too.

use std::path::{Path, PathBuf};

use turnwright_types::effect::{PathScope, ResolvedPath};

use super::args::{self, operands};
use super::programs::{WordList, is_in};
use super::{Script, SimpleCommand, Word};

/// A program with the options that change nothing about which files it touches. Short ones may be in groups.
struct Editor {
    words: &'static [&'static str],
    letters: &'static str,
    options: WordList,
    folders: Folders,
}

/// The meaning of a folder among the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Folders {
    /// The folder itself, as a whole.
    Whole,
    /// None must be there: what is in it could no longer be found.
    Never,
    /// The same, and if it is the last one, the others are put into it.
    Destination,
    /// The files in it that are not protected: a formatter or git leaves the others alone.
    TheirFiles,
    /// The same, and without operands the folder in which it runs.
    TheirFilesOrHere,
}

/// A project must not choose what runs: it can define `cargo fmt` (an alias in its settings), and formatters of Python
/// run code of its environment. `git commit` runs hooks.
const EDITORS: &[Editor] = &[
    editor(&["mkdir"], "pv", "--parents --verbose"),
    editor(&["touch"], "acm", "--no-create"),
    // It deletes nothing but an empty folder.
    editor(&["rmdir"], "v", "--verbose"),
    editor(
        &["cp"],
        "aRrfinpuvT",
        "--archive --recursive --force --interactive --no-clobber --update --verbose",
    )
    .of(Folders::Destination),
    editor(&["mv"], "finuvT", "--force --interactive --no-clobber --update --verbose")
        .of(Folders::Destination),
    editor(&["tee"], "ai", "--append --ignore-interrupts"),
    editor(&["git", "mv"], "fkv", "--force --verbose").of(Folders::Destination),
    editor(&["git", "add"], "AuvNn", "--all --update --verbose --intent-to-add --dry-run")
        .of(Folders::TheirFilesOrHere),
    editor(&["git", "restore", "--staged"], "q", "--quiet").of(Folders::TheirFiles),
    editor(&["rustfmt"], "", "--check"),
    editor(&["gofmt"], "wslde", "").of(Folders::TheirFiles),
    editor(&["clang-format"], "i", ""),
    editor(&["shfmt"], "wlds", ""),
];

/// The modes that `chmod` may set: some of those who may read a file may run it.
const PROGRAM_MODES: WordList = "+x a+x u+x ug+x 755 700";
/// Nobody may run it. A folder with such a mode is closed.
const FILE_MODES: WordList = "-x a-x u-x ug-x 644 600";

const fn editor(
    words: &'static [&'static str],
    letters: &'static str,
    options: WordList,
) -> Editor {
    Editor { words, letters, options, folders: Folders::Whole }
}

impl Editor {
    const fn of(self, folders: Folders) -> Editor {
        Editor { folders, ..self }
    }
}

/// A command that edits files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectEdit<'a> {
    pub command: &'a SimpleCommand,
    /// The words that name the files.
    pub words: Vec<Word>,
    folders: Folders,
}

impl ProjectEdit<'_> {
    /// Returns true if the files that its words name are no longer there afterwards.
    fn moves(&self) -> bool {
        matches!(self.command.program(), "mv" | "git") && self.folders == Folders::Destination
    }
}

/// A path that a command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPlace {
    pub target: ResolvedPath,
    pub is_folder: bool,
}

/// Looks paths up.
pub trait LookUp {
    /// The file or folder at a path; `None` if nobody may look there.
    fn place(&self, path: &Path) -> Option<NamedPlace>;

    /// The names in a folder; `None` if they are not known, or too many.
    fn names_in(&self, folder: &Path) -> Option<Vec<String>>;
}

/// The commands of a line that edit files; `None` if the line may do more than that and read.
pub fn project_edits(script: &Script) -> Option<Vec<ProjectEdit<'_>>> {
    if script.ambiguity.is_some() {
        return None;
    }
    let mut edits = Vec::new();
    for command in &script.commands {
        match edited(command) {
            Some(edit) => edits.push(edit),
            None if command.program() == "cd" || args::only_reads(command) => {}
            None => return None,
        }
    }
    Some(edits).filter(|edits| !edits.is_empty())
}

/// At most this many files and folders are judged for one line.
const MAX_FILES: usize = 4_096;

/// Programs that may make files in a folder that another command of the line copies, besides those that copy.
const MAKERS: [&str; 3] = ["touch", "tee", "tar"];

/// The files that a line edits and copies if it does nothing but that and read; `None` also if it moves something out of the
/// project. A folder that it copies or moves counts with all that is in it, there and at its new place: a file may be secret,
/// protected or named by a rule only where it is.
pub fn edited_files(
    script: &Script,
    workdir: &Path,
    disk: &impl LookUp,
) -> Option<Vec<ResolvedPath>> {
    let mut edited = Edited { made: redirect_targets(script, workdir, disk)?, ..Edited::default() };
    for edit in project_edits(script)? {
        let folder = workdir.join(edit.command.folder.as_ref()?);
        if edit.folders == Folders::Destination {
            let copy = copied(&edit, &folder, disk)?;
            // The session removes its `/tmp` at its end.
            if edit.moves() && copy.leaves_project() {
                return None;
            }
            edited.copies.push(copy);
        } else {
            edited.add(&edit, &folder, disk)?;
        }
        if edited.file_count() > MAX_FILES {
            return None;
        }
    }
    if !edited.is_certain() {
        return None;
    }
    let mut files = edited.files;
    files.extend(edited.copies.into_iter().flat_map(|copy| copy.read.into_iter().chain(copy.made)));
    Some(files)
}

/// The files that the commands of a line edit.
#[derive(Debug, Default)]
struct Edited {
    /// All files but those in `copies`.
    files: Vec<ResolvedPath>,
    copies: Vec<Copied>,
    /// The files that may be new, but for `copies`.
    made: Vec<PathBuf>,
    /// The folders in which patterns find files, whose names are no options at this time.
    searched: Vec<PathBuf>,
    closes_folders: bool,
}

impl Edited {
    fn add(&mut self, edit: &ProjectEdit<'_>, folder: &Path, disk: &impl LookUp) -> Option<()> {
        let is_maker = MAKERS.contains(&edit.command.program());
        let is_closed = edit.folders == Folders::Never;
        // For these, only a folder's location matters.
        let is_about_files =
            matches!(edit.folders, Folders::TheirFiles | Folders::TheirFilesOrHere);
        self.closes_folders |= is_closed;
        for word in &edit.words {
            if args::may_be_option(word) {
                self.searched.push(disk.place(folder.join(&word.text).parent()?)?.target.path);
            }
            for path in named_paths(word, folder, disk)? {
                let place = disk.place(&path)?;
                if place.is_folder && is_closed {
                    return None;
                }
                let is_judged = !is_about_files
                    || !place.is_folder
                    || place.target.scope != PathScope::Workspace;
                self.made.extend(is_maker.then(|| place.target.path.clone()));
                self.files.extend(is_judged.then_some(place.target));
            }
        }
        Some(())
    }

    fn file_count(&self) -> usize {
        let copied = self.copies.iter().map(|copy| copy.read.len() + copy.made.len());
        self.files.len() + copied.sum::<usize>()
    }

    /// Returns true if no command of the line changes what another one finds in a folder.
    fn is_certain(&self) -> bool {
        let is_searched = |path: &Path| self.searched.iter().any(|folder| path.starts_with(folder));
        let mut copied = self.copies.iter().flat_map(|copy| &copy.made);
        if self.closes_folders && !self.copies.is_empty()
            || self.made.iter().any(|path| is_searched(path))
            || copied.any(|to| is_searched(&to.path))
        {
            return false;
        }
        self.copies.iter().enumerate().all(|(at, copy)| {
            let others = self.copies.iter().enumerate().filter(|(other, _)| *other != at);
            let copied: Vec<_> = others.flat_map(|(_, other)| &other.made).collect();
            !copy.sources.iter().any(|source| {
                self.made.iter().any(|path| path != source && path.starts_with(source))
                    || copied
                        .iter()
                        .any(|to| to.path.starts_with(source) || source.starts_with(&to.path))
            })
        })
    }
}

/// The files that the shell opens for the commands of a line to write.
fn redirect_targets(script: &Script, workdir: &Path, disk: &impl LookUp) -> Option<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for command in &script.commands {
        let folder = workdir.join(command.folder.as_ref()?);
        for redirect in command.redirects.iter().filter(|redirect| redirect.is_write) {
            paths.push(disk.place(&folder.join(&redirect.path))?.target.path);
        }
    }
    Some(paths)
}

/// The files and folders that a command copies or moves.
#[derive(Debug, Default)]
struct Copied {
    /// The files and folders that its words name. For a pattern, the folder in which it finds them.
    sources: Vec<PathBuf>,
    /// With all that is in them.
    read: Vec<ResolvedPath>,
    /// All their new places.
    made: Vec<ResolvedPath>,
}

impl Copied {
    /// Returns true if something of the project comes to lie elsewhere.
    fn leaves_project(&self) -> bool {
        self.read.iter().any(|source| source.scope == PathScope::Workspace)
            && self.made.iter().any(|place| place.scope != PathScope::Workspace)
    }
}

/// The files that a command copies or moves into the last of its operands, or to that name; `None` if they are not known.
fn copied(edit: &ProjectEdit<'_>, folder: &Path, disk: &impl LookUp) -> Option<Copied> {
    let (last, others) = edit.words.split_last()?;
    let into = folder.join(&last.text);
    let is_folder = disk.place(&into)?.is_folder;
    let may_be_exact =
        edit.command.words.iter().any(|word| word.text.starts_with('-') && word.text.contains('T'));
    let mut copied = Copied::default();
    for word in others {
        if word.is_glob {
            let named = folder.join(&word.text);
            copied.sources.push(disk.place(named.parent()?)?.target.path);
        }
        // Of `a/.`, and in some systems of `a/`, the content is copied.
        let may_be_content = word.text.ends_with(['.', '/', '\\']);
        for source in named_paths(word, folder, disk)? {
            let real = disk.place(&source)?.target.path;
            let mut places = vec![into.join(source.file_name().or(real.file_name())?)];
            // Another command of the line may make the folder.
            if !is_folder || may_be_exact || may_be_content {
                places.push(into.clone());
            }
            for below in paths_below(&source, disk)? {
                copied.read.push(disk.place(&source.join(&below))?.target);
                for place in &places {
                    copied.made.push(disk.place(&place.join(&below))?.target);
                }
            }
            copied.read.push(disk.place(&source)?.target);
            for place in places.iter().filter(|place| !is_folder || **place != into) {
                copied.made.push(disk.place(place)?.target);
            }
            copied.sources.extend((!word.is_glob).then_some(real));
            if copied.read.len() + copied.made.len() > MAX_FILES {
                return None;
            }
        }
    }
    (!others.is_empty()).then_some(copied)
}

/// The paths of all that is in a folder, from there; none for a file. `None` if they are not known, or too many.
fn paths_below(folder: &Path, disk: &impl LookUp) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let path = folder.join(&below);
        if !disk.place(&path)?.is_folder {
            continue;
        }
        let names = disk.names_in(&path)?;
        if found.len() + names.len() > MAX_FILES {
            return None;
        }
        for name in names {
            let path = below.join(name);
            pending.push(path.clone());
            found.push(path);
        }
    }
    Some(found)
}

/// The path that a word names, with those that its pattern may match; `None` if these are not known. A pattern is one
/// of names in a folder.
fn named_paths(word: &Word, folder: &Path, disk: &impl LookUp) -> Option<Vec<PathBuf>> {
    const SPECIAL: [char; 5] = ['*', '?', '[', '\\', '('];
    let named = folder.join(&word.text);
    if !word.is_glob {
        return Some(vec![named]);
    }
    let parent = named.parent()?;
    let pattern = named.file_name()?.to_str()?;
    let start = &pattern[..pattern.find(SPECIAL)?];
    let end = &pattern[pattern.rfind(['*', '?'])? + 1..];
    let has_pattern_above = parent.to_str()?.contains(SPECIAL);
    if has_pattern_above || pattern.contains(['[', '\\', '(']) {
        return None;
    }
    let matches = |name: &str| {
        let is_hidden = start.is_empty() && name.starts_with('.');
        !is_hidden && name.starts_with(start) && name.ends_with(end)
    };
    // Some shells find the folder itself and the one above it.
    if matches(".") || matches("..") {
        return None;
    }
    let mut paths = vec![named.clone()];
    for name in disk.names_in(parent)? {
        let is_special = name.starts_with(['-', '@', ':']) && args::may_be_option(word);
        if matches(&name) {
            if is_special {
                return None;
            }
            paths.push(parent.join(name));
        }
    }
    Some(paths)
}

/// Finds the files that a command edits; `None` if it may do more than edit them.
fn edited(command: &SimpleCommand) -> Option<ProjectEdit<'_>> {
    if !command.wrappers.is_empty() || command.has_unknown_args || command.is_in_home {
        return None;
    }
    let (program, arguments) = command.words.split_first()?;
    let (words, folders) = match program.text.as_str() {
        "sed" => (edited_by_sed(command)?, Folders::Whole),
        "chmod" => edited_by_chmod(arguments)?,
        "tar" => (edited_by_tar(arguments)?, Folders::Whole),
        _ => edited_by_operands(command)?,
    };
    // A pattern as the destination could match anything.
    let is_known =
        folders != Folders::Destination || words.last().is_some_and(|last| !last.is_glob);
    let names_files = words.iter().all(|word| word.text != "-");
    (is_known && names_files && !words.is_empty()).then_some(ProjectEdit {
        command,
        words,
        folders,
    })
}

/// The operands of a program in the table, and the meaning of a folder among them.
fn edited_by_operands(command: &SimpleCommand) -> Option<(Vec<Word>, Folders)> {
    let editor = EDITORS.iter().find(|editor| {
        let words = command.argv().take(editor.words.len());
        words.eq(editor.words.iter().copied())
    })?;
    let arguments = &command.words[editor.words.len()..];
    let are_harmless = arguments.iter().all(|word| match word.text.strip_prefix('-') {
        Some("" | "-") | None => true,
        Some(option) if option.starts_with('-') => is_in(editor.options, &word.text),
        Some(letters) => letters.chars().all(|letter| editor.letters.contains(letter)),
    });
    if !are_harmless {
        return None;
    }
    let mut words: Vec<_> = operands(arguments).cloned().collect();
    if words.is_empty() && editor.folders == Folders::TheirFilesOrHere {
        words.push(Word::plain("."));
    }
    Some((words, editor.folders))
}

/// `sed -i`, with a script that would be harmless without it. On macOS and BSD the word after `-i` is no script.
fn edited_by_sed(command: &SimpleCommand) -> Option<Vec<Word>> {
    let (program, arguments) = command.words.split_first()?;
    let syntax_count =
        arguments.iter().take_while(|word| is_in("-E -r --regexp-extended", &word.text)).count();
    let (in_place, arguments) = arguments[syntax_count..].split_first()?;
    let suffix = match in_place.text.strip_prefix("--in-place") {
        Some(rest) => rest.strip_prefix('=').unwrap_or(rest),
        None => {
            in_place.text.strip_prefix('-')?.trim_start_matches(['E', 'r']).strip_prefix('i')?
        }
    };
    // The name of a copy of each file: the same with an extension.
    let is_known = suffix.is_empty() || suffix.starts_with(['.', '~']);
    if !is_known || suffix.contains(['/', '*']) {
        return None;
    }
    let words = std::iter::once(program).chain(arguments).cloned().collect::<Vec<_>>();
    let reader = SimpleCommand { words: args::without_glob_options(&words), ..command.clone() };
    args::files_read(&reader).filter(|_| cfg!(target_os = "linux"))?;
    let mut files = Vec::new();
    let mut has_scripts = false;
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if word.text == "-e" {
            has_scripts = true;
            arguments.next();
        } else if word.text == "--" {
            return None;
        } else if !word.text.starts_with('-') {
            files.push(word.clone());
        }
    }
    // The first one is the script.
    files.drain(..usize::from(!has_scripts));
    if suffix.is_empty() {
        return Some(files);
    }
    let copies: Vec<_> =
        files.iter().map(|word| Word::plain(format!("{}{suffix}", word.text))).collect();
    let is_known = !files.iter().any(|word| word.is_glob);
    is_known.then(|| files.into_iter().chain(copies).collect())
}

/// `chmod +x` and the like.
fn edited_by_chmod(arguments: &[Word]) -> Option<(Vec<Word>, Folders)> {
    let (mode, files) = arguments.split_first()?;
    let folders = if is_in(PROGRAM_MODES, &mode.text) { Folders::Whole } else { Folders::Never };
    let is_known = folders == Folders::Whole || is_in(FILE_MODES, &mode.text);
    let has_option = files.iter().any(|word| word.text.starts_with('-'));
    (is_known && !has_option).then(|| (files.to_vec(), folders))
}

/// `tar czf a.tgz dir`: makes an archive, in which links stay links. A name with a colon is one of another machine.
fn edited_by_tar(arguments: &[Word]) -> Option<Vec<Word>> {
    let (letters, files) = arguments.split_first()?;
    let letters = letters.text.trim_start_matches('-');
    let makes = letters.contains('c') && letters.ends_with('f');
    let is_known = letters.bytes().all(|letter| b"cvzjJf".contains(&letter));
    let mut named = files.to_vec();
    named.retain(|word| !word.text.starts_with("--exclude="));
    let are_files =
        named.iter().all(|word| !word.text.starts_with(['-', '@']) && !word.text.contains(':'));
    (makes && is_known && are_files && named.len() > 1).then_some(named)
}

#[cfg(test)]
mod tests {
    use turnwright_types::shell_script::ShellDialect;

    use super::*;

    fn words_of_edits(line: &str) -> Option<String> {
        let script = super::super::parse(line, ShellDialect::Bash);
        let edits = project_edits(&script)?;
        let words = edits.iter().flat_map(|edit| edit.words.iter());
        Some(words.map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lines_that_only_edit_files_name_them() {
        for (line, expected) in [
            ("mkdir -p src/a src/b", Some("src/a src/b")),
            ("touch src/new.rs", Some("src/new.rs")),
            ("cp -r src old", Some("src old")),
            ("mv a.rs b.rs && git add -A", Some("a.rs b.rs .")),
            ("cd web && mkdir x && ls", Some("x")),
            ("gofmt -w -s a.go", Some("a.go")),
            ("git add", Some(".")),
            ("git mv a b", Some("a b")),
            ("git restore --staged .", Some(".")),
            ("cat a | tee -a b", Some("b")),
            ("grep -n x a > b && chmod +x c", Some("c")),
            ("chmod 755 a b", Some("a b")),
            ("gofmt -l -w .", Some(".")),
            ("clang-format -i a.c b.h", Some("a.c b.h")),
            ("shfmt -w a.sh", Some("a.sh")),
            ("tar czf a.tgz dist", Some("a.tgz dist")),
            ("tar -cvf a.tar --exclude=x src b", Some("a.tar src b")),
            ("git restore --staged", None),
            ("git restore --staged --worktree a", None),
            ("git restore --stage a", None),
            ("git restore -S -W a", None),
            ("git restore -s HEAD~ --staged a", None),
            ("git restore --staged -W a", None),
            ("git restore --staged --source=x a", None),
            ("git restore --staged --pathspec-from-file=x", None),
            ("git restore a", None),
            ("git commit -m x", None),
            ("git stash", None),
            ("git mv -n a", None),
            ("make | tee b", None),
            ("sudo tee a", None),
            ("cat a | tee", None),
            ("cat a | tee *.txt", Some("*.txt")),
            ("cat a | tee $x", None),
            ("chmod -R 755 a", None),
            ("chmod -x a", Some("a")),
            ("chmod 600 a", Some("a")),
            ("chmod -x -R a", None),
            ("chmod -w a", None),
            ("chmod 4755 a", None),
            ("chmod u+s a", None),
            ("chmod 777 a", None),
            ("chmod +x --reference=b a", None),
            ("chmod +x", None),
            ("chmod 755 *.sh", Some("*.sh")),
            ("clang-format -style=file:../x -i a.c", None),
            ("clang-format --files=x -i", None),
            ("gofmt", None),
            ("gofmt -r 'a -> b' -w a.go", None),
            ("gofmt -cpuprofile=x a.go", None),
            ("tar xzf a.tgz", None),
            ("tar czf a.tgz", None),
            ("tar czf h:a.tgz dist", None),
            ("tar czf a.tgz -C / etc", None),
            ("tar czf a.tgz --checkpoint-action=exec=x dist", None),
            ("tar czf a.tgz -I ./x dist", None),
            ("tar cIf ./x a.tgz dist", None),
            ("tar cPf a.tgz /etc", None),
            ("tar cf a.tar @b.tar", None),
            ("tar cf - dist", None),
            ("tar cf a.tar *.rs", Some("a.tar *.rs")),
            ("tar --create --file=a.tar b", None),
            ("touch -- -x", None),
            ("ls", None),
            ("rm a", None),
            ("cp *.rs old", Some("*.rs old")),
            ("cp src/*.rs old", Some("src/*.rs old")),
            ("cp a src/*", None),
            ("mv src/*", None),
            ("git add src/*.rs", Some("src/*.rs")),
            ("git add *.rs", Some("*.rs")),
            ("cp -t x a", None),
            ("cp --backup a b", None),
            ("cp -s a b", None),
            ("mkdir -m 777 a", None),
            ("touch -r /etc/passwd a", None),
            ("sudo mkdir a", None),
            ("./mkdir a", None),
            ("xargs touch a", None),
            ("mkdir $x", None),
            ("mkdir a; make", None),
            ("rmdir a", Some("a")),
            ("rmdir -p a/b", None),
            ("mv -i a b", Some("a b")),
            ("ln -s a b", None),
            ("git add -p", None),
            ("git -c a=b add a", None),
            ("cargo fmt", None),
            ("ruff format src", None),
            ("rustfmt --config-path x a.rs", None),
            ("black src", None),
            ("touch", None),
        ] {
            assert_eq!(words_of_edits(line).as_deref(), expected, "{line}");
        }
    }

    /// A project, and the `/tmp` of its session.
    struct ProjectWithTmp;

    impl LookUp for ProjectWithTmp {
        fn place(&self, path: &Path) -> Option<NamedPlace> {
            let scope = if path.starts_with("/tmp") {
                PathScope::PrivateTmp { depth: 1 }
            } else {
                PathScope::Workspace
            };
            let target = ResolvedPath { path: path.into(), scope };
            Some(NamedPlace { target, is_folder: path.ends_with("tmp") })
        }

        fn names_in(&self, _: &Path) -> Option<Vec<String>> {
            Some(Vec::new())
        }
    }

    #[test]
    fn a_line_that_moves_a_file_out_of_the_project_does_more_than_edit() {
        for (line, is_edit) in [
            ("mv a b", true),
            ("mv /tmp/a b", true),
            ("mv /tmp/a /tmp/b", true),
            ("mv a /tmp/b docs", true),
            ("cp a /tmp/", true),
            ("cp -r src /tmp/src", true),
            ("mv a /tmp/", false),
            ("mv a /tmp/b", false),
            ("mv a b /tmp", false),
            ("mv /tmp/a b /tmp", false),
            ("mv -T src /tmp/src", false),
            ("git mv a /tmp/a", false),
            ("cd src && mv a.rs /tmp/a.rs", false),
            ("cp a b && mv b /tmp/b", false),
        ] {
            let script = super::super::parse(line, ShellDialect::Bash);
            let edited = edited_files(&script, Path::new("/ws"), &ProjectWithTmp);
            assert_eq!(edited.is_some(), is_edit, "{line}");
        }
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "the word after `-i` is no script there")]
    fn sed_in_place_edits_the_files_that_it_names() {
        for (line, expected) in [
            ("sed -i 's/a/b/g' a.rs b.rs", Some("a.rs b.rs")),
            ("sed -i -E -e 's/a/b/' -e '/^$/d' a", Some("a")),
            ("sed --in-place 5d a && git diff", Some("a")),
            ("grep -l x a && sed -i s/a/b/ a", Some("a")),
            ("sed -i.bak s/a/b/ a b", Some("a b a.bak b.bak")),
            ("sed --in-place=.bak s/a/b/ a", Some("a a.bak")),
            ("sed -i~ s/a/b/ a", Some("a a~")),
            ("sed -i.bak s/a/b/ *.rs", None),
            ("sed -i.x/ s/a/b/ a", None),
            ("sed -i.* s/a/b/ a", None),
            ("sed --in-placed s/a/b/ a", None),
            ("sed -Ei s/a/b/ a", Some("a")),
            ("sed -ri.bak s/a/b/ a", Some("a a.bak")),
            ("sed -e -i s/a/b/ a", None),
            ("sed -iE s/a/b/ a", None),
            ("sed -ni p a", None),
            ("sed -E -i s/a/b/ a", Some("a")),
            ("sed -i s/a/b/e a", None),
            ("sed -i 's/a/b/w x' a", None),
            ("sed -i '1e make' a", None),
            ("sed -i 'w .envrc' a", None),
            ("sed -i 'r /etc/passwd' a", None),
            ("sed -i -f x.sed a", None),
            ("sed -i s/a/b/ -f x a", None),
            ("sed -i --follow-symlinks s/a/b/ a", None),
            ("sed -i s/a/b/ *.rs", Some("*.rs")),
            ("sed -i *.rs", None),
            ("sed -i *.rs a", None),
            ("sed -i s/a/b/ src/*.rs", Some("src/*.rs")),
            ("sed -i s/a/b/ src/.*", None),
            ("sed -i s/a/b/ -- a", None),
            ("sed -i -e s/a/b/", None),
            ("sed -i s/a/b/", None),
            ("sed -i", None),
            ("sed s/a/b/ a", None),
            ("find . -name '*.rs' | xargs sed -i s/a/b/", None),
        ] {
            assert_eq!(words_of_edits(line).as_deref(), expected, "{line}");
        }
    }
}
