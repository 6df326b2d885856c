//! `edit_file` on files of every sort: the bytes outside of an edit stay as they were, or nothing is
//! written and the model is told why.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};
use crate::cards;

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "edits": [{ "old_text": old, "new_text": new }] })
}

/// Changes `two` to `zwei` in a file, after `prepare` has made it.
fn run(prepare: impl FnOnce(&TestAgent)) -> (TestAgent, String) {
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([calls("edit_file", &edit("f", "two", "zwei")), says("Done.")]))
        .start();
    prepare(&agent);
    let result = cards::turn(&mut agent);
    (agent, result)
}

fn wide(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(unit).collect()
}

#[test]
fn bytes_outside_of_an_edit_stay_in_every_encoding() {
    let text = "one ä\r\n\ttwo  \nthree 語";
    let edited = "one ä\r\n\tzwei  \nthree 語";
    let table: [(&str, Vec<u8>, Vec<u8>); 6] = [
        ("UTF-8", text.into(), edited.into()),
        ("UTF-8 with a mark", format!("\u{feff}{text}").into(), format!("\u{feff}{edited}").into()),
        ("UTF-16LE", wide(text, u16::to_le_bytes), wide(edited, u16::to_le_bytes)),
        ("UTF-16BE", wide(text, u16::to_be_bytes), wide(edited, u16::to_be_bytes)),
        (
            "Latin-1",
            b"Le caf\xe9 est ferm\xe9 \xe0 No\xebl.\r\ntwo\n".into(),
            b"Le caf\xe9 est ferm\xe9 \xe0 No\xebl.\r\nzwei\n".into(),
        ),
        ("lone carriage returns", b"a\rb\r\r\ntwo\r\n".into(), b"a\rb\r\r\nzwei\r\n".into()),
    ];
    for (name, before, after) in table {
        let (agent, result) = run(|it| fs::write(it.path("f"), &before).unwrap());
        assert!(result.starts_with("Applied 1 edit to f (+1 −1)."), "{name}: {result}");
        assert_eq!(fs::read(agent.path("f")).unwrap(), after, "{name}");
    }
}

#[test]
fn what_the_encoding_cannot_hold_is_refused() {
    let before = b"Le caf\xe9 est ferm\xe9 \xe0 No\xebl.\ntwo\n";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([calls("edit_file", &edit("f", "two", "語")), says("Done.")]))
        .start();
    fs::write(agent.path("f"), before).unwrap();
    let result = cards::turn(&mut agent);
    assert!(
        result.contains("is in windows-1252, which has no '語'; nothing was written"),
        "{result}"
    );
    assert_eq!(fs::read(agent.path("f")).unwrap(), before);
}

#[test]
fn both_names_of_a_file_go_on_meaning_it() {
    let (agent, _) = run(|it| {
        fs::write(it.path("other"), "one\ntwo\n").unwrap();
        fs::hard_link(it.path("other"), it.path("f")).unwrap();
    });
    let inode = |name| fs::metadata(agent.path(name)).unwrap().ino();
    assert_eq!(
        (agent.read("f"), agent.read("other")),
        ("one\nzwei\n".into(), "one\nzwei\n".into())
    );
    assert_eq!(inode("f"), inode("other"));
}

#[test]
fn a_link_stays_a_link_and_its_file_keeps_its_mode() {
    let (agent, _) = run(|it| {
        fs::create_dir(it.path("below")).unwrap();
        fs::write(it.path("below/real"), "two\n").unwrap();
        fs::set_permissions(it.path("below/real"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("below/real", it.path("f")).unwrap();
    });
    assert_eq!(fs::read_link(agent.path("f")).unwrap().to_str(), Some("below/real"));
    assert_eq!(agent.read("below/real"), "zwei\n");
    assert_eq!(fs::metadata(agent.path("below/real")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn a_read_only_file_is_left_alone() {
    let (agent, result) = run(|it| {
        fs::write(it.path("f"), "two\n").unwrap();
        fs::set_permissions(it.path("f"), fs::Permissions::from_mode(0o444)).unwrap();
    });
    assert!(result.contains("f is read-only; nothing was written."), "{result}");
    assert_eq!(agent.read("f"), "two\n");
}

#[test]
fn a_file_of_200_megabytes_is_refused_before_anybody_is_asked() {
    let (agent, result) = run(|it| {
        fs::write(it.path("f"), "one\ntwo\n").unwrap();
        fs::File::options().write(true).open(it.path("f")).unwrap().set_len(200 << 20).unwrap();
    });
    let why = "f has 209715200 bytes, more than the 32 MiB that can be taken at once; use exec. \
               Nothing was written.";
    assert_eq!(result, why);
    assert_eq!(fs::metadata(agent.path("f")).unwrap().len(), 200 << 20);
    assert_eq!(cards::questions(&agent), 0);
}
