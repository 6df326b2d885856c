//! Round trips of edits: whatever the encoding, the line ends and the place of a file, the bytes
//! around an edit stay the same, or nothing is written.

use std::fs::{self, File, Metadata};
use std::path::PathBuf;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// A reproducible source of random files.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }

    /// Returns random lines without line ends.
    fn lines(&mut self, count: usize) -> Vec<String> {
        let pieces =
            ["", " ", "\t", "a", "b = c;", "é", "größer ", "end", "{", "}", "    x", "\t\ty"];
        let line = |dice: &mut Dice| (0..dice.roll(4)).map(|_| dice.pick(&pieces)).collect();
        (0..count).map(|_| line(self)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Utf8,
    Utf8Mark,
    Utf16Le,
    Utf16Be,
    Latin1,
}

const FORMS: [Form; 5] = [Form::Utf8, Form::Utf8Mark, Form::Utf16Le, Form::Utf16Be, Form::Latin1];

fn bytes(text: &str, form: Form) -> Vec<u8> {
    match form {
        Form::Utf8 | Form::Utf8Mark => text.as_bytes().to_vec(),
        Form::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        Form::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        Form::Latin1 => text.chars().map(|it| u8::try_from(u32::from(it)).unwrap()).collect(),
    }
}

fn mark(form: Form) -> &'static [u8] {
    match form {
        Form::Utf8 | Form::Latin1 => b"",
        Form::Utf8Mark => b"\xef\xbb\xbf",
        Form::Utf16Le => b"\xff\xfe",
        Form::Utf16Be => b"\xfe\xff",
    }
}

/// How a file is stored under its name: directly, behind a symbolic link, or with a second hard
/// link.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Plain,
    Linked,
    Named,
}

/// On Windows, not everybody may create symbolic links, and the other names of a file are not known.
const PLACES: &[Place] =
    if cfg!(unix) { &[Place::Plain, Place::Linked, Place::Named] } else { &[Place::Plain] };

/// A random file with one edit.
struct Case {
    name: String,
    place: Place,
    form: Form,
    #[cfg(unix)]
    mode: u32,
    head: String,
    quoted: String,
    tail: String,
    /// The texts that the model sends.
    old: String,
    new: String,
    /// The text that the edit puts in the place of `quoted`, before line ends are adjusted.
    after: String,
    /// The line end, if all lines have the same one.
    end: Option<&'static str>,
}

/// What identifies a file, and how many names it has. Windows tells neither.
fn identity(metadata: &Metadata) -> (u64, u64) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (metadata.ino(), metadata.nlink())
    }
    #[cfg(windows)]
    {
        assert!(metadata.is_file());
        (0, 2)
    }
}

impl Case {
    fn random(dice: &mut Dice, number: usize) -> Case {
        let form = FORMS[number % FORMS.len()];
        let ends: &[&str] =
            dice.pick(&[&["\n"], &["\r\n"], &["\n", "\r\n"], &["\r\n", "\n", "\n"]]);
        let join = |dice: &mut Dice, lines: Vec<String>| -> String {
            lines.into_iter().map(|it| it + dice.pick(ends)).collect()
        };
        let (before, within, after) = (dice.roll(6), 1 + dice.roll(3), dice.roll(6));
        let head = dice.lines(before);
        let mut head = join(dice, head);
        // The first line has characters that reveal the encoding.
        head.insert_str(0, &format!("Größe, schön früh für Ärzte{}", ends[0]));
        let mut quoted = dice.lines(within);
        let here = format!("<here {number}>");
        let at = dice.pick(&[0, quoted[0].len()]);
        quoted[0].insert_str(at, &here);
        let is_whole = dice.roll(3) > 0;
        let old = if is_whole { quoted.join("\n") + "\n" } else { here.clone() };
        let quoted = join(dice, quoted);
        let tail = dice.lines(after);
        let mut tail = join(dice, tail);
        let is_unterminated = dice.roll(3) == 0;
        if is_unterminated {
            tail.truncate(tail.trim_end_matches(['\r', '\n']).len());
        }
        let count = dice.roll(4);
        let mut new = dice.lines(count).into_iter().map(|it| it + "\n").collect::<String>();
        new.push_str(if is_whole { "<changed>\n" } else { "<changed>" });
        let after = if is_whole { new.clone() } else { quoted.replace(&here, &new) };
        // A model that has seen such line ends may send them in its texts.
        let sent = |it: &str, dice: &mut Dice| match dice.roll(4) {
            0 => it.replace('\n', "\r\n"),
            _ => it.to_owned(),
        };
        let (old, new) = (sent(&old, dice), sent(&new, dice));
        Case {
            name: format!("f{number}"),
            place: dice.pick(PLACES),
            form,
            #[cfg(unix)]
            mode: dice.pick(&[0o644, 0o600, 0o755, 0o640]),
            head,
            quoted,
            tail,
            old,
            new,
            after,
            end: (ends.len() == 1).then(|| ends[0]),
        }
    }

    fn bytes(&self, middle: &str) -> Vec<u8> {
        let text = [self.head.as_str(), middle, &self.tail].concat();
        [mark(self.form), &bytes(&text, self.form)].concat()
    }

    fn real(&self, agent: &TestAgent) -> PathBuf {
        agent.path(&format!("{}.real", self.name))
    }

    fn create(&self, agent: &TestAgent) -> u64 {
        let (real, named) = (self.real(agent), agent.path(&self.name));
        fs::write(&real, self.bytes(&self.quoted)).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&real, fs::Permissions::from_mode(self.mode)).unwrap();
        }
        match self.place {
            Place::Plain => fs::rename(&real, &named).unwrap(),
            #[cfg(unix)]
            Place::Linked => {
                std::os::unix::fs::symlink(real.file_name().unwrap(), &named).unwrap();
            }
            #[cfg(windows)]
            Place::Linked => unreachable!(),
            Place::Named => fs::hard_link(&real, &named).unwrap(),
        }
        identity(&fs::metadata(named).unwrap()).0
    }

    fn call(&self) -> Value {
        let edit = json!({ "old_text": self.old, "new_text": self.new });
        cards::call("edit_file", &json!({ "path": self.name, "edits": [edit] }))
    }

    fn check(&self, agent: &TestAgent, inode: u64, result: &str) {
        let about = format!("{} {:?} {:?}: {result}", self.name, self.form, self.place);
        assert!(result.starts_with("Applied 1 edit to"), "{about}");
        let path = agent.path(&self.name);
        let now = fs::read(&path).unwrap();
        match self.end {
            Some(end) => {
                let after = self.after.replace("\r\n", "\n").replace('\n', end);
                assert_eq!(now, self.bytes(&after), "{about}");
            }
            None => {
                let head = [mark(self.form), &bytes(&self.head, self.form)].concat();
                let tail = bytes(&self.tail, self.form);
                assert!(now.starts_with(&head) && now.ends_with(&tail), "{about} {now:?}");
                let middle = &now[head.len()..now.len() - tail.len()];
                let cr = bytes("\r", self.form);
                let units = middle.chunks(cr.len()).filter(|it| *it != cr);
                let plain: Vec<u8> = units.flatten().copied().collect();
                let after = self.after.replace("\r\n", "\n");
                assert_eq!(plain, bytes(&after, self.form), "{about}");
            }
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o7777, self.mode, "{about}");
        }
        match self.place {
            Place::Plain => {}
            Place::Linked => assert!(fs::symlink_metadata(&path).unwrap().is_symlink(), "{about}"),
            Place::Named => {
                let other = fs::read(self.real(agent)).unwrap();
                assert_eq!(other, self.bytes(&self.quoted), "{about}");
                let other = fs::metadata(self.real(agent)).unwrap();
                assert_eq!(identity(&other), (inode, 1), "{about}");
            }
        }
    }
}

#[test]
fn an_edit_keeps_the_bytes_around_it_in_every_encoding() {
    let mut dice = Dice(0x5eed_0123_4567_89ab);
    let mut agent = TestAgent::builder().permission("allow_once").start();
    for batch in 0..20 {
        let cases: Vec<_> = (0..10).map(|it| Case::random(&mut dice, batch * 10 + it)).collect();
        let inodes: Vec<_> = cases.iter().map(|it| it.create(&agent)).collect();
        agent.model().push(json!(cases.iter().map(Case::call).collect::<Vec<_>>())).unwrap();
        agent.model().push(says("Done.")).unwrap();
        assert_eq!(agent.turn("go"), "end_turn");
        let results = cards::results(&agent, agent.model().requests().len() - 1);
        let results = &results[results.len() - cases.len()..];
        for ((case, inode), result) in cases.iter().zip(inodes).zip(results) {
            case.check(&agent, inode, result);
        }
    }
    cards::check(&agent);
    let names = fs::read_dir(agent.workspace()).unwrap().filter_map(Result::ok);
    let mut names = names.map(|it| it.file_name().into_string().unwrap());
    assert!(names.all(|it| it.starts_with('f')), "something was left behind");
}

/// Runs one more turn with an edit, and returns the result that the model received.
fn edit(agent: &mut TestAgent, path: &str, old: &str, new: &str) -> String {
    let arguments = json!({ "path": path, "edits": [{ "old_text": old, "new_text": new }] });
    agent.model().push(calls("edit_file", &arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

/// UTF-8 with one byte of another encoding.
const STRAY: &[u8] = b"here\n\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xe9\n";

#[test]
fn a_file_that_cannot_be_edited_is_refused_and_unchanged() {
    let mut agent = TestAgent::builder().permission("allow_once").start();
    let files: [(&str, &[u8], &str); 6] = [
        ("read-only", b"here\n", "is read-only"),
        ("binary", b"here\0\x01\x02\n", "is binary"),
        ("latin", b"caf\xe9 ferm\xe9\nhere\n", "windows-1252, which has no '語'"),
        ("broken", b"\xef\xbb\xbfhere\n\xff\xfe\n", "is binary"),
        ("half", b"\xff\xfeh\0e\0r\0e\0\n", "is binary"),
        ("stray", STRAY, "not all in one encoding"),
    ];
    for (name, bytes, _) in files {
        fs::write(agent.path(name), bytes).unwrap();
    }
    let mut read_only = fs::metadata(agent.path("read-only")).unwrap().permissions();
    read_only.set_readonly(true);
    fs::set_permissions(agent.path("read-only"), read_only.clone()).unwrap();
    for (name, bytes, reason) in files {
        let result = edit(&mut agent, name, "here", "語");
        assert!(result.contains(reason), "{name}: {result}");
        assert_eq!(fs::read(agent.path(name)).unwrap(), bytes, "{name}");
    }
    assert_eq!(fs::metadata(agent.path("read-only")).unwrap().permissions(), read_only);
}

#[test]
fn a_file_of_200_megabytes_is_refused_and_unchanged() {
    let mut agent = TestAgent::builder().permission("allow_once").start();
    let path = agent.path("large");
    fs::write(&path, "here\n".repeat(1_000)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(200 << 20).unwrap();
    let before = fs::metadata(&path).unwrap();
    for (name, arguments) in [
        (
            "edit_file",
            json!({ "path": "large", "edits": [{ "old_text": "here", "new_text": "x" }] }),
        ),
        ("write_file", json!({ "path": "large", "content": "x" })),
        ("write_file", json!({ "path": "large", "content": "x", "mode": "append" })),
    ] {
        agent.model().push(calls(name, &arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(result.contains("more than the 32 MiB that can be taken at once"), "{result}");
    }
    assert_eq!(cards::questions(&agent), 0);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.len(), identity(&after)), (before.len(), identity(&before)));
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}
