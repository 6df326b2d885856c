//! Tests of edits as models send them: what each kind of match accepts and rejects, and that only
//! the quoted text changes.

use std::ops::Range;

use proptest::prelude::*;

use super::line_changes::{self, LineCounts};
use super::patch::{self, Hunk, PatchOp};
use super::{
    AppliedEdits, EditError, EditErrorKind, MatchKind, TextEdit, apply, closest_lines,
    unescaped_lines, unnumbered_lines,
};

fn edit(old: &str, new: &str) -> TextEdit {
    TextEdit { old: old.to_owned(), new: new.to_owned(), replace_all: false }
}

fn one(text: &str, old: &str, new: &str) -> Result<AppliedEdits, EditError> {
    apply(text, &[edit(old, new)])
}

#[track_caller]
fn check(text: &str, old: &str, new: &str, expected: &str, kind: &str) {
    let applied = one(text, old, new).unwrap_or_else(|error| panic!("{}", error.explain("f", 1)));
    assert_eq!(
        (applied.text.as_str(), applied.edits[0].match_kind.to_string().as_str()),
        (expected, kind)
    );
}

/// The lines, counted from 1, that the error of an ambiguous edit names; empty if the text was not
/// found.
#[track_caller]
fn refused(text: &str, old: &str, new: &str) -> Vec<usize> {
    match one(text, old, new) {
        Ok(applied) => panic!("{applied:?}"),
        Err(EditError { kind: EditErrorKind::Ambiguous { lines, .. }, .. }) => {
            lines.into_iter().map(|line| line + 1).collect()
        }
        Err(EditError { kind: EditErrorKind::NotFound { .. }, .. }) => Vec::new(),
        Err(other) => panic!("{other:?}"),
    }
}

const NOT_FOUND: [usize; 0] = [];

#[test]
fn an_exact_match_takes_one_place_whatever_the_line_ends() {
    check("a\nb\nc\n", "b", "x", "a\nx\nc\n", "exact");
    check("a\r\nb\r\nc\r\n", "a\nb\n", "x\n", "x\r\nc\r\n", "exact");
    check("a\nb\nc\n", "a\r\nb", "x\r\ny", "x\ny\nc\n", "exact");
    check("let x = 1; let y = 2;", "y = 2", "y = 3", "let x = 1; let y = 3;", "exact");
    check("\u{feff}a\n", "a", "b", "\u{feff}b\n", "exact");
    assert_eq!(refused("a\nb\na\n", "a", "x"), [1, 3]);
    // Two overlapping places are two matches.
    assert_eq!(refused("x\n\nababa\n", "aba", "x"), [3, 3]);
    assert_eq!(refused("a\n", "A", "x"), NOT_FOUND);
}

#[test]
fn line_numbers_are_taken_away_if_every_line_has_one() {
    let kind = "after taking away line numbers";
    check("a\n  b\nc\n", "    1| a\n    2|   b\n", "a\nB\n", "a\nB\nc\n", kind);
    check("a\n\nc\n", "1|a\n2|\n3|c", "    1| x\n    2|\n    3| c", "x\n\nc\n", kind);
    check("a\nb\n", "     1→a\n     2→b", "x", "x\n", kind);
    check("a\nb\n", "     2\tb", "x", "a\nx\n", kind);
    assert_eq!(refused("a\nb\n", "    1| a\nb\n", "x"), NOT_FOUND);
    assert_eq!(refused("a\nb\na\n", "    1| a\n", "x"), [1, 3]);
    // If the file contains the numbers, the match is exact.
    check("1| a\n", "1| a", "1| b", "1| b\n", "exact");
}

#[test]
fn white_space_at_line_ends_may_differ_and_stays_where_nothing_changes() {
    let kind = "but for white space at line ends";
    check("a  \nb\t\nc\n", "a\nb\nc\n", "a\nb\nC\n", "a  \nb\t\nC\n", kind);
    check("a\nb\nc", "b  \nc  \n", "b  \nC\n", "a\nb\nC", kind);
    check("a\nb", "b\n", "", "a", kind);
    assert_eq!(refused("a \nb\na\t\nb\n", "a\nb\n", "x\n"), [1, 3]);
    assert_eq!(refused("  a\n  c\nb\n", "a\nb\n", "x\n"), NOT_FOUND);
}

#[test]
fn indentation_may_differ_in_one_way_for_all_lines() {
    let text = "fn f() {\n        if x {\n            y();\n        }\n}\n";
    let old = "    if x {\n        y();\n    }\n";
    let new = "    if x {\n        y();\n\n        z();\n    }\n";
    let expected = "fn f() {\n        if x {\n            y();\n\n            z();\n        }\n}\n";
    check(text, old, new, expected, "after indentation shift +4");
    check(
        "  a\n    b\n",
        "   a\n     b\n",
        "   a\n      c\n",
        "  a\n     c\n",
        "after indentation shift −1",
    );
    // Tabs instead of spaces, and the other way round.
    let text = "\tif x {\n\t\ty();\n\t}\n";
    let old = "    if x {\n        y();\n    }\n";
    let new = "    if x {\n        if z {\n            y();\n        }\n    }\n";
    let expected = "\tif x {\n\t\tif z {\n\t\t\ty();\n\t\t}\n\t}\n";
    check(text, old, new, expected, "after indentation shift from 4 spaces to tabs");
    let text = "  if x\n    y\n";
    let old = "\tif x\n\t\ty\n";
    let new = "\tif x\n\t\t\ty\n";
    check(text, old, new, "  if x\n      y\n", "after indentation shift from tabs to 2 spaces");
}

#[test]
fn indentation_that_differs_in_several_ways_matches_nothing() {
    assert_eq!(refused("a:\n  b\n    c\n", "a:\n    b\n    c\n", "x\n"), NOT_FOUND);
    assert_eq!(refused("\ta\n    b\n", "    a\n\tb\n", "x\n"), NOT_FOUND);
    // A new line that cannot be shifted.
    assert_eq!(refused("a\nb\n", "    a\n    b\n", "    a\n  c\n"), NOT_FOUND);
    // Two copies, one indented deeper than the other.
    let text = "  a\n  b\nx\n    a\n    b\n";
    assert_eq!(refused(text, "a \nb\n", "c\n"), [1, 4]);
}

#[test]
fn typography_may_differ_and_stays_where_nothing_changes() {
    let kind = "but for quotes, dashes or spaces";
    check(
        "say “a”\nand ‘b’\n",
        "say \"a\"\nand 'b'\n",
        "say \"a\"\nand c\n",
        "say “a”\nand c\n",
        kind,
    );
    check("a – b", "a - b", "a + b", "a + b", kind);
    check("x\u{a0}= 1;", "x = 1", "x = 2", "x\u{a0}= 2;", kind);
    check("wait... what", "wait… what", "what", "what", kind);
    assert_eq!(refused("“a”\n„b\n“a”\n", "\"a\"", "x"), [1, 3]);
    assert_eq!(refused("«a»\n", "\"a\"", "x"), NOT_FOUND);
}

#[test]
fn characters_may_be_composed_in_another_way() {
    let kind = "but for how characters are composed";
    check("# U\u{308}ber\nalt\n", "\u{dc}ber\nalt", "\u{dc}ber\nneu", "# U\u{308}ber\nneu\n", kind);
    check(
        "Ünal ändert",
        "U\u{308}nal a\u{308}ndert",
        "U\u{308}nal a\u{308}nderte",
        "Ünal änderte",
        kind,
    );
    check("e\u{302}\u{323} alt", "\u{1ec7} alt", "\u{1ec7} neu", "e\u{302}\u{323} neu", kind);
    let jamo = "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}";
    check(&format!("{jamo} 1"), "한글 1", "한글 2", &format!("{jamo} 2"), kind);
    check("한글 1", &format!("{jamo} 1"), &format!("{jamo} 2"), "한글 2", kind);
    assert_eq!(refused("u\u{308}\nx\nu\u{308}\n", "ü", "y"), [1, 3]);
    // A part of a character is none.
    assert_eq!(refused("\u{1112}\u{1161}\u{11ab}", "하", "x"), NOT_FOUND);
}

#[test]
fn characters_may_have_another_form_and_stay_where_nothing_changes() {
    let kind = "but for full-width forms, ligatures or invisible characters";
    check("调用（甲；乙）。\n", "调用(甲;乙)", "调用(甲;丙)", "调用（甲；丙）。\n", kind);
    check("调用(甲;乙)", "调用（甲；乙）", "调用（丙；乙）", "调用(丙;乙)", kind);
    check(
        "a \u{fb01}ne o\u{fb03}ce\n",
        "fine office",
        "fine offices",
        "a \u{fb01}ne o\u{fb03}ces\n",
        kind,
    );
    check(
        "let\u{200b} x\u{feff} = 1;",
        "let x = 1",
        "let x = 2",
        "let\u{200b} x\u{feff} = 2;",
        kind,
    );
    check("f(x) // ok", "f(x)\u{200b} // ok", "g(x)\u{200b} // ok", "g(x) // ok", kind);
    check("a：“b”\nc\n", "a:\"b\"\nc\n", "a:\"b\"\nd\n", "a：“b”\nd\n", kind);
    assert_eq!(refused("（a）\n（a）\n", "(a)", "x"), [1, 2]);
    assert_eq!(refused("\u{fb01}ne", "ine", "x"), NOT_FOUND);
    assert_eq!(refused("a\u{200b}b", "\u{200b}c", "x"), NOT_FOUND);
}

#[test]
fn code_points_are_shown_where_a_difference_cannot_be_seen() {
    for (in_file, sent, file, other) in [
        ("U\u{308}ber alles, und mehr", "\u{dc}ber alles, und meer", "U\\u{308}ber", "\\u{dc}ber"),
        ("if（x） { y = 1 }", "if(x) { y = 2 }", "if\\u{ff08}x", "if(x"),
        ("let \u{430}bc = 1 + 2", "let abc = 1 + 2", "let \\u{430}bc", "let abc"),
        ("let a\u{200b}bc = 1 + 2", "let abc = 2 + 2", "let a\\u{200b}bc", "let abc"),
    ] {
        let told = one(in_file, sent, "new").unwrap_err().explain("f", 1);
        let pair = format!("file has \"{file}");
        assert!(told.contains(&pair) && told.contains(&format!("you sent \"{other}")), "{told}");
    }
    let near =
        closest_lines("这是第一行文字\nthe same words\n", "这是第二行文字\nthe same words\n");
    let difference = near[0].difference.as_ref().unwrap();
    assert!(difference.contains("file has \"这是第一行文字\" you"), "{difference}");
}

#[test]
fn one_level_of_backslashes_too_many_is_taken_away() {
    let kind = "after taking away one level of escapes";
    check("a(\"b\")\nc\n", r#"a(\"b\")\nc"#, r#"a(\"d\")\nc"#, "a(\"d\")\nc\n", kind);
    check("<a>&amp;\n", "&lt;a&gt;&amp;amp;", "&lt;b&gt;\\n", "<b>\\n\n", kind);
    check("a && b\n", "a &amp;&amp; b", "a &amp;&amp; c", "a && c\n", kind);
    check("x = '\\n'\n", r"x = \'\\n\'", r"x = \'\\t\'", "x = '\\t'\n", kind);
    assert_eq!(refused("\"b\"\n\"b\"\n", r#"\"b\""#, "x"), [1, 2]);
    assert_eq!(refused("a\n", r"\d", "x"), NOT_FOUND);
}

#[test]
fn only_a_file_in_one_line_with_escapes_for_its_line_ends_was_escaped_twice() {
    for (sent, meant) in [
        (r"a:\n\tb\n", "a:\n\tb\n"),
        (r#"use \"a\";\n\nf(b[0]);"#, "use \"a\";\n\nf(b[0]);"),
        (r#"'use strict';\n\nf(\"a\\n\");"#, "'use strict';\n\nf(\"a\\n\");"),
    ] {
        assert_eq!(unescaped_lines(sent).as_deref(), Some(meant));
    }
    let escape_in_json = r#"{"a": "x\n\ny\n"}"#;
    let quote_in_json = r#"{"a": "say \"x\n\ny\n"}"#;
    for kept in [escape_in_json, quote_in_json, r"a\r\n\r\n", r"x.split(/\n\n+/)", r"[,;\n\t]+", ""]
    {
        assert_eq!(unescaped_lines(kept), None, "{kept}");
    }
    for kept in [r"format = %{code}\n", r"KEY=-----BEGIN A KEY-----\nMI\n-----END A KEY-----\n"] {
        assert_eq!(unescaped_lines(kept), None, "{kept}");
    }
    for kept in ["a\\n\nb\\n", r"\newpage", r"C:\new", r"s/\n/ /", "f('a\\n')\\n"] {
        assert_eq!(unescaped_lines(kept), None, "{kept}");
    }
}

#[test]
fn only_a_listing_with_a_number_for_each_line_loses_them() {
    for (sent, meant) in
        [("    1| a\n    2|\n    3|   b\n", "a\n\n  b\n"), ("    9| a\n   10| b", "a\nb")]
    {
        assert_eq!(unnumbered_lines(sent).as_deref(), Some(meant));
    }
    for kept in [
        "1|alice\n2|bob\n",
        "     1\ta\n     2\tb\n",
        " 1 | a\n 2 | b\n",
        "    1| a\n    3| b\n",
        "    1| a\nb\n",
        "    1| a",
        "",
    ] {
        assert_eq!(unnumbered_lines(kept), None, "{kept}");
    }
}

#[test]
fn what_is_only_similar_is_shown_and_not_changed() {
    let text = "fn a() {\n    let total = count + 1;\n    total\n}\n";
    let error = one(text, "    let total = count + 2;\n    total\n", "x\n").unwrap_err();
    let told = error.explain("src/a.rs", 1);
    assert!(told.starts_with("old_string not found in src/a.rs. Closest: lines 2–3 (9"), "{told}");
    let pair = "First difference, line 2: file has \"····let total = count + 1;\" you sent \
                \"····let total = count + 2;\".";
    assert!(told.contains(pair), "{told}");
    assert!(told.contains("    2|     let total = count + 1;\n"), "{told}");
    assert!(told.ends_with("Nothing was written."), "{told}");
    let told = one("alpha\n", "zzz", "x").unwrap_err().explain("f", 1);
    assert!(told.contains("Nothing there is like it"), "{told}");
}

#[test]
fn white_space_is_visible_where_it_is_the_difference() {
    let near = closest_lines("a\n\treturn x;\nb\n", "a\n    return y;\nb\n");
    let pair = "First difference, line 2: file has \"→return x;\" you sent \"····return y;\".";
    assert_eq!(near[0].difference.as_deref(), Some(pair));
}

#[test]
fn edits_are_made_in_order_and_all_or_none() {
    let applied = apply("a\nb\nc\n", &[edit("a", "b2"), edit("b2\nb", "x")]).unwrap();
    assert_eq!(applied.text, "x\nc\n");
    assert_eq!(applied.line_counts, LineCounts { added: 1, removed: 2 });
    let error = apply("a\nb\n", &[edit("a", "x"), edit("a\nb", "y")]).unwrap_err();
    assert_eq!(error.index, 1);
    let told = error.explain("f", 2);
    assert!(
        told.starts_with("Edit 2 of 2: old_string not found in f. It was there before"),
        "{told}"
    );
}

#[test]
fn an_edit_that_was_made_before_is_not_made_again() {
    for (text, old, new) in [
        ("\"price\": 1, \"unit\": 2\n", "\"price\": 1", "\"price\": 1, \"unit\": 2"),
        ("use a;\nuse b;\n\nfn f() {}\n", "use b;\n", "use a;\nuse b;\n"),
        ("fn f() {\n    g();\n    h();\n}\n", "g();", "g();\n    h();"),
    ] {
        let error = one(text, old, new).unwrap_err();
        assert!(matches!(error.kind, EditErrorKind::AlreadyMade { .. }), "{text}: {error:?}");
        let told = error.explain("a.rs", 1);
        assert!(told.starts_with("new_string is in a.rs already, from line "), "{told}");
    }
    check("a\nc\nb\n", "a\n", "a\nb\n", "a\nb\nc\nb\n", "exact");
}

#[test]
fn replace_all_counts_and_only_what_is_exact() {
    let all = |text: &str, old: &str, new: &str| {
        apply(text, &[TextEdit { replace_all: true, ..edit(old, new) }])
    };
    let applied = all("a b a\nc\na\n", "a", "xy").unwrap();
    assert_eq!((applied.text.as_str(), applied.edits[0].occurrences), ("xy b xy\nc\nxy\n", 3));
    assert_eq!(applied.line_counts, LineCounts { added: 2, removed: 2 });
    assert!(all("  a\nb\n    a\nb\n", "a \nb\n", "x\n").is_err());
}

#[test]
fn invalid_edits_are_refused_with_what_to_do() {
    let reason = |old: &str, new: &str| one("a\nb\n", old, new).unwrap_err().explain("f", 1);
    assert!(reason("", "x").contains("write_file"));
    assert!(reason("a\r\nb", "a\nb").contains("are the same"));
    assert!(reason("a", "a\n// ... existing code ...").contains("left out"));
    assert!(apply("a", &[]).unwrap_err().explain("f", 0).contains("give both"));
}

#[test]
fn lines_of_a_mixed_file_keep_their_ends_and_new_ones_take_the_one_before() {
    let text = "a\r\nb\nc\r\nd\n";
    check(text, "b\nc\n", "b\nnew\nc\n", "a\r\nb\nnew\nc\r\nd\n", "exact");
    check(text, "a\nb\nc", "a\nx\nB\nc", "a\r\nx\nB\nc\r\nd\n", "exact");
    check(text, "c\nd", "c\nx\nd", "a\r\nb\nc\r\nx\r\nd\n", "exact");
    check("a\nb\r\n", "a", "0\na", "0\na\nb\r\n", "exact");
    check("a", "a", "a\r\nb", "a\r\nb", "exact");
    check("a\rb\n", "a\rb", "a\rc", "a\rc\n", "exact");
}

#[test]
fn changed_lines_are_shown_with_their_new_numbers() {
    let text: String =
        (1..=20).map(|number| ["line ", &number.to_string(), "\n"].concat()).collect();
    let edits = [edit("line 2\n", ""), edit("line 10\n", "ten\nand a half\n")];
    let applied = apply(&text, &edits).unwrap();
    assert_eq!(applied.line_counts, LineCounts { added: 2, removed: 2 });
    let shown = line_changes::render_changed_lines(&applied.text, &applied.changes, &mut {
        line_changes::MAX_SHOWN_LINES
    });
    let expected = "    1| line 1\n    2| line 3\n    3| line 4\n    4| line 5\n…\n    6| line 7\n    \
                    7| line 8\n    8| line 9\n    9| ten\n   10| and a half\n   11| line 11\n   12| \
                    line 12\n   13| line 13\n";
    assert_eq!(shown, expected);
}

#[test]
fn large_texts_and_adversarial_patterns_terminate() {
    let text = "a\n".repeat(200_000);
    let evil = format!("{}b\n", "a\n".repeat(50_000));
    assert_eq!(refused(&text, &evil, "x"), NOT_FOUND);
    let shifted = format!("{}  b\n", "  a\n".repeat(50_000));
    assert_eq!(refused(&text, &shifted, "x"), NOT_FOUND);
    let all =
        apply(&"a;".repeat(200_000), &[TextEdit { replace_all: true, ..edit("a;", "b") }]).unwrap();
    assert_eq!((all.text.len(), all.edits[0].occurrences), (200_000, 200_000));
    assert!(one(&"x ".repeat(500_000), &"y ".repeat(100_000), "z").is_err());
    let marks = "// ...\n".repeat(100_000);
    assert!(one(&format!("{text}x\n// ...\n"), "x\n", &marks).is_ok());
}

#[test]
fn an_edit_that_would_produce_too_much_text_is_refused() {
    let all = |old: &str, new: &str| TextEdit { replace_all: true, ..edit(old, new) };
    let table = [
        ("a\n".repeat(100_000), all("a", &"b".repeat(1_000_000))),
        ("a".repeat(1_000_001), all("a", "b")),
    ];
    for (text, edit) in table {
        let error = apply(&text, &[edit]).unwrap_err();
        assert_eq!(error.kind, EditErrorKind::TooLarge);
        let told = error.explain("f", 1);
        assert!(told.contains("larger than 32 MiB. Use exec"), "{told}");
    }
}

fn calls(name: &str, numbers: Range<usize>) -> String {
    let lines = numbers.map(|number| format!("let value_{number} = {name}({number});\n"));
    lines.collect::<Vec<_>>().concat()
}

#[test]
fn of_long_quotations_that_differ_everywhere_the_place_is_shown_too() {
    let text = calls("compute", 0..100);
    let old = calls("computed", 40..60);
    let told = one(&text, &old, "x").unwrap_err().explain("f", 1);
    assert!(told.contains("Closest: lines 41–60 ("), "{told}");
}

fn patched(text: &str, body: &str) -> Result<String, String> {
    let patch = format!("*** Begin Patch\n*** Update File: f\n{body}*** End Patch\n");
    let files = patch::parse(&patch)?;
    let PatchOp::Update { hunks, .. } = &files[0].change else { panic!("{files:?}") };
    patch::apply(text, hunks, "f").map(|applied| applied.text)
}

#[test]
fn a_patch_adds_changes_moves_and_deletes() {
    let files = patch::parse(
        "*** Begin Patch\n*** Add File: a\n+x\n+\n\n*** Delete File: b\n*** Update File: c\n*** Move \
         to: d\n@@ fn f\n y\n-z\n+w\n\n*** End of File\n*** End Patch",
    )
    .unwrap();
    assert_eq!(files[0].change, PatchOp::Add { text: "x\n\n".to_owned() });
    assert_eq!((files[1].path.as_str(), &files[1].change), ("b", &PatchOp::Delete));
    let PatchOp::Update { to, hunks } = &files[2].change else { panic!("{files:?}") };
    assert_eq!(to.as_deref(), Some("d"));
    assert_eq!((hunks[0].old.as_str(), hunks[0].new.as_str()), ("y\nz\n", "y\nw\n"));
    assert!(hunks[0].at_end && hunks[0].anchors == ["fn f"] && hunks[0].line == 9, "{hunks:?}");
}

#[test]
fn what_is_wrong_with_a_patch_is_said_with_its_line() {
    for (patch, expected) in [
        ("", "line 1: a patch begins with"),
        ("*** Begin Patch\n*** End Patch", "line 2: the patch names no file"),
        ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n", "line 5: the patch does not end"),
        ("*** Begin Patch\n*** Add File: f\nx\n*** End Patch", "line 3: each line of a new file"),
        (
            "*** Begin Patch\n*** Update File: f\n-a\nb\n*** End Patch",
            "line 4: each line of a hunk",
        ),
        ("*** Begin Patch\n*** Rename File: f\n*** End Patch", "line 2: `*** Rename File: f` is"),
        ("*** Begin Patch\n*** Update File:\n*** End Patch", "line 2: a path is missing"),
        ("*** Begin Patch\n*** Update File: f\n*** End Patch", "line 2: nothing is to be changed"),
        (
            "*** Begin Patch\n*** Delete File: f\n*** Delete File: f\n*** End Patch",
            "line 3: f comes twice",
        ),
    ] {
        let reason = patch::parse(patch).unwrap_err();
        assert!(reason.starts_with(expected), "{patch}: {reason}");
    }
}

#[test]
fn patches_that_follow_each_other_are_one() {
    let text = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n\nthen\n*** Begin Patch\n\
                *** Delete File: b\n*** End Patch\n";
    let files = patch::parse(text).unwrap();
    let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let cut = text.strip_suffix("*** End Patch\n").unwrap();
    assert!(patch::parse(cut).unwrap_err().contains("was it cut off?"));
    let twice = text.replace(": b", ": a");
    assert!(patch::parse(&twice).unwrap_err().contains("a comes twice"));
}

#[test]
fn a_file_that_comes_twice_in_a_patch_is_changed_twice_or_replaced() {
    let update = "*** Update File: f\n@@\n-a\n+b\n";
    let text = format!("*** Begin Patch\n{update}*** Add File: g\n+x\n{update}*** End Patch\n");
    let files = patch::parse(&text).unwrap();
    let PatchOp::Update { to: None, hunks } = &files[0].change else { panic!("{files:?}") };
    assert_eq!((files.len(), hunks.len(), hunks[1].line), (2, 2, 9));
    let text = "*** Begin Patch\n*** Delete File: f\n*** Add File: f\n+x\n*** End Patch\n";
    let files = patch::parse(text).unwrap();
    let PatchOp::Update { to: None, hunks } = &files[0].change else { panic!("{files:?}") };
    assert_eq!((files.len(), hunks.len()), (1, 1));
    assert_eq!(patch::apply("a\r\nb\r\n", hunks, "f").unwrap().text, "x\r\n");
    assert_eq!(patch::apply("", hunks, "f").unwrap().text, "x\n");
    let rest = [Hunk { new: "x\n// ... existing code ...\n".to_owned(), ..hunks[0].clone() }];
    assert!(patch::apply("a\nb\n", &rest, "f").unwrap_err().contains("left out"));
    let update_and_delete = format!("*** Begin Patch\n{update}*** Delete File: f\n*** End Patch\n");
    assert!(patch::parse(&update_and_delete).unwrap_err().contains("f comes twice"));
}

#[test]
fn hunks_are_put_in_their_one_place() {
    let twins = "fn a() {\n    x();\n}\nfn b() {\n    x();\n}\n";
    let hunk = "-    x();\n+    y();\n";
    let reason = patched(twins, hunk).unwrap_err();
    assert!(reason.contains("line 3 of the patch matches 2 places: lines 2, 5. Add"), "{reason}");
    for (scope, expected) in [
        ("fn a() {", "fn a() {\n    y();\n}\nfn b() {\n    x();\n}\n"),
        ("fn b()", "fn a() {\n    x();\n}\nfn b() {\n    y();\n}\n"),
    ] {
        assert_eq!(patched(twins, &format!("@@ {scope}\n{hunk}")).unwrap(), expected);
    }
    let classes = "class A:\n  def f(self):\n    x\nclass B:\n  def f(self):\n    x\n";
    let nested = "@@ class B:\n@@ def f(self):\n-    x\n+    y\n";
    let expected = "class A:\n  def f(self):\n    x\nclass B:\n  def f(self):\n    y\n";
    assert_eq!(patched(classes, nested).unwrap(), expected);
    // The hunk must not be applied outside of the block after `@@`.
    let reason =
        patched("fn a() {\n  x\n}\nfn b() {\n  y\n}\n", "@@ fn b() {\n-  x\n+  z\n").unwrap_err();
    assert!(reason.contains("not found"), "{reason}");
}

#[test]
fn new_lines_are_not_put_at_the_end_if_their_numbers_name_another_place() {
    let reason = patched("a\nb\nc\n", "@@ -1,0 +2,1 @@\n+x\n").unwrap_err();
    assert!(reason.contains("The hunk at line 3 of the patch not found in f."), "{reason}");
    assert!(patched("a\nb\n", "@@ -0,0 +1 @@\n+x\n").is_err());
    assert_eq!(patched("", "@@ -0,0 +1 @@\n+x\n").unwrap(), "x\n");
    for anchors in ["@@ -1,0 +2,1 @@ a", "@@ a\n@@ -1,0 +2,1 @@", "@@ -1,0 +2,1 @@\n@@ a"] {
        assert_eq!(patched("a\nb\nc\n", &format!("{anchors}\n+x\n")).unwrap(), "a\nx\nb\nc\n");
    }
}

#[test]
fn hunks_are_whole_lines_and_the_end_of_the_file_stays_as_it_is() {
    assert_eq!(patched("ab\nb", "-b\n+c\n").unwrap(), "ab\nc");
    assert_eq!(patched("a\r\nb\r\n", "-b\n+c\n+d\n").unwrap(), "a\r\nc\r\nd\r\n");
    assert_eq!(patched("a\nb", "-b\n").unwrap(), "a");
    assert_eq!(patched("a\n", "+b\n").unwrap(), "a\nb\n");
    assert_eq!(patched("a\nb\nc\n", "@@ a\n+x\n").unwrap(), "a\nx\nb\nc\n");
    assert_eq!(patched("x\ny\nx\n", "-x\n+z\n*** End of File\n").unwrap(), "x\ny\nz\n");
    assert_eq!(patched("a\nb\n", "@@ a\n+x\n*** End of File\n").unwrap(), "a\nb\nx\n");
    assert_eq!(patched("a\n\nb\n", " a\n\n-b\n+c\n").unwrap(), "a\n\nc\n");
    assert_eq!(patched("a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n").unwrap(), "a\nx\nc\n");
}

/// A file of short lines, each with one of these endings.
fn file(ends: &'static [&'static str]) -> impl Strategy<Value = Vec<(String, &'static str)>> {
    let line = ("[ \t]{0,3}[a-d]{0,3}[ \t]?", prop::sample::select(ends));
    prop::collection::vec(line, 1..12)
}

proptest! {
    /// The text around the quoted lines stays the same, byte for byte.
    #[test]
    fn bytes_outside_of_an_edit_stay(
        lines in prop_oneof![file(&["\n"]), file(&["\r\n"]), file(&["\n", "\r\n"])],
        (from, count) in (0_usize..12, 1_usize..4),
        new in "([a-e ]{0,4}\n){0,4}",
        is_open in any::<bool>(),
        has_mark in any::<bool>(),
    ) {
        let from = from.min(lines.len() - 1);
        let to = (from + count).min(lines.len());
        let join = |lines: &[(String, &str)]| -> String {
            lines.iter().map(|(body, end)| [body.as_str(), *end].concat()).collect()
        };
        let mark = if has_mark { "\u{feff}" } else { "" };
        let head = format!("{mark}{}", join(&lines[..from]));
        // Make the quoted text unique.
        let mut quoted = lines[from..to].to_vec();
        quoted[0].0.push_str("<here>");
        let mut tail = join(&lines[to..]);
        if is_open {
            tail.truncate(tail.trim_end_matches(['\r', '\n']).len());
        }
        let text = format!("{head}{}{tail}", join(&quoted));
        let old: String = quoted.iter().map(|(body, _)| [body.as_str(), "\n"].concat()).collect();
        let applied = one(&text, &old, &new);
        let Ok(applied) = applied else {
            prop_assert!(false, "{text:?} {old:?}: {applied:?}");
            return Ok(());
        };
        prop_assert_eq!(&applied.edits[0].match_kind, &MatchKind::Exact);
        prop_assert!(applied.text.starts_with(&head) && applied.text.ends_with(&tail));
        let middle = &applied.text[head.len()..applied.text.len() - tail.len()];
        prop_assert_eq!(middle.replace("\r\n", "\n"), new);
        let again = line_changes::diff_texts(&text, &applied.text);
        prop_assert!(again.is_empty() || !applied.changes.is_empty());
    }

    /// The reported changes cover all differences, whatever the edits were.
    #[test]
    fn the_changes_are_where_the_texts_differ(
        text in "([a-c]{0,2}\n){0,12}[a-c]{0,2}",
        edits in prop::collection::vec(("[a-c\n]{1,4}", "[a-d\n]{0,4}", any::<bool>()), 1..4),
    ) {
        let edits: Vec<_> =
            edits.into_iter().map(|(old, new, all)| TextEdit { old, new, replace_all: all }).collect();
        if let Ok(applied) = apply(&text, &edits) {
            let (old, new): (Vec<_>, Vec<_>) =
                (text.split_inclusive('\n').collect(), applied.text.split_inclusive('\n').collect());
            let mut old_at = 0;
            let mut new_at = 0;
            for change in &applied.changes {
                let old_end = change.before.start.min(old.len());
                let new_end = change.after.start.min(new.len());
                prop_assert_eq!(&old[old_at.min(old_end)..old_end], &new[new_at.min(new_end)..new_end]);
                (old_at, new_at) = (change.before.end.min(old.len()), change.after.end.min(new.len()));
            }
            prop_assert_eq!(&old[old_at..], &new[new_at..]);
            let grown = new.len() + applied.line_counts.removed;
            prop_assert_eq!(grown, old.len() + applied.line_counts.added);
        }
    }

    #[test]
    fn no_patch_breaks_the_parser(patch in "(\\*\\*\\* (Begin Patch|End Patch|Add File: a|Update File: b|Move to: c)\n|[ +@-]{0,2}[a-c]{0,2}\n){0,12}") {
        if let Ok(files) = patch::parse(&format!("*** Begin Patch\n{patch}")) {
            for file in files {
                if let PatchOp::Update { hunks, .. } = file.change {
                    patch::apply("a\nb\nab\nc\n", &hunks, "f").ok();
                }
            }
        }
    }
}

#[test]
fn the_end_of_a_joined_line_is_that_of_its_rest() {
    let joined = one("a<here>\n\n\nb\r\n", "<here>\n\n\n", "").unwrap();
    assert_eq!(joined.text, "ab\r\n");
}
