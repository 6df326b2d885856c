//! Tests with documents that are made here: intact, broken and hostile ones.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use lopdf::{
    Dictionary, Document, EncryptionState, EncryptionVersion, Object, Permissions, Stream,
    dictionary,
};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

/// Maps two codes to Chinese characters and one to a character beyond U+FFFF.
const UNICODE_MAP: &str = "\
/CIDInit /ProcSet findresource begin
12 dict begin
begincmap
/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def
/CMapName /Adobe-Identity-UCS def
/CMapType 2 def
1 begincodespacerange
<0000> <FFFF>
endcodespacerange
3 beginbfchar
<0001> <4F60>
<0002> <597D>
<0003> <D83DDE00>
endbfchar
endcmap
CMapName currentdict /CMap defineresource pop
end
end
";

fn stream(facts: &str, data: &[u8]) -> Vec<u8> {
    let begin = format!("<< {facts} /Length {} >>\nstream\n", data.len());
    [begin.as_bytes(), data, b"\nendstream"].concat()
}

/// Returns the objects of a PDF with these content streams.
fn objects(contents: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let pages = (0..contents.len()).map(|index| 11 + 2 * index);
    let kids: Vec<_> = pages.clone().map(|number| format!("{number} 0 R")).collect();
    let kids = kids.join(" ");
    let wide = "<< /Type /Font /Subtype /Type0 /BaseFont /A /Encoding";
    let mut objects = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        format!(
            "<< /Type /Pages /Kids [{kids}] /Count {} /Resources << /Font << /F1 4 0 R /F2 5 0 R \
             /F3 6 0 R /F4 7 0 R >> /XObject << /I 9 0 R /X 10 0 R >> >> >>",
            contents.len()
        )
        .into_bytes(),
        b"<< /Title (A title) >>".to_vec(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_vec(),
        format!("{wide} /Identity-H /ToUnicode 8 0 R >>").into_bytes(),
        format!("{wide} /GBK-EUC-H >>").into_bytes(),
        format!("{wide} /Identity-H >>").into_bytes(),
        stream("", UNICODE_MAP.as_bytes()),
        stream(
            "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray \
             /BitsPerComponent 8",
            b"x",
        ),
        stream(
            "/Type /XObject /Subtype /Form /BBox [0 0 99 99]",
            b"BT /F1 12 Tf (in a form) Tj ET",
        ),
    ];
    for (content, page) in contents.iter().zip(pages) {
        let facts = "/Type /Page /Parent 2 0 R /MediaBox [0 0 612 792]";
        objects.push(format!("<< {facts} /Contents {} 0 R >>", page + 1).into_bytes());
        objects.push(content.clone());
    }
    objects
}

fn pdf_of(contents: &[Vec<u8>]) -> Vec<u8> {
    let objects = objects(contents);
    let mut bytes = b"%PDF-1.7\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (object, number) in objects.iter().zip(1..) {
        table.push_str(&format!("{:010} 00000 n \n", bytes.len()));
        bytes.extend(format!("{number} 0 obj\n").into_bytes());
        bytes.extend(object);
        bytes.extend(b"\nendobj\n");
    }
    let trailer = format!(
        "{table}trailer\n<< /Size {} /Root 1 0 R /Info 3 0 R /ID [<00> <00>] >>\nstartxref\n{}\n%%EOF\n",
        objects.len() + 1,
        bytes.len()
    );
    bytes.extend(trailer.into_bytes());
    bytes
}

fn pdf(contents: &[&str]) -> Vec<u8> {
    pdf_of(&contents.iter().map(|text| stream("", text.as_bytes())).collect::<Vec<_>>())
}

fn text_of(bytes: &[u8]) -> String {
    extract(bytes, None).unwrap().unwrap().text
}

#[test]
fn a_scan_is_a_document_whose_first_pages_are_pictures_without_text() {
    let text = "BT /F1 12 Tf (a) Tj ET";
    for (contents, pages, expected) in [
        (vec!["/I Do"], None, true),
        (vec!["/I Do", "/I Do"], Some("1"), true),
        (vec!["/I Do", "/I Do"], Some("2"), false),
        (vec!["/I Do", text], None, false),
        (vec![" "], None, false),
    ] {
        let read = extract(&pdf(&contents), pages).unwrap().unwrap();
        assert_eq!(read.is_scan, expected, "{contents:?} {pages:?}");
    }
}

#[test]
fn words_and_lines_of_a_page_end_where_the_next_text_is_drawn() {
    let picture = format!("{}\n\n", pdf::PICTURE);
    for (content, expected) in [
        (
            "BT /F1 12 Tf 72 700 Td (Hello) Tj 0 -14 Td (second line) Tj 0 -40 Td (next) Tj ET",
            "Hello\nsecond line\n\nnext\n\n",
        ),
        ("BT /F1 12 Tf [(Wor) 20 (d) -300 (next)] TJ ET", "Word next\n\n"),
        (
            "BT /F1 12 Tf 1 0 0 1 72 700 Tm (left) Tj 1 0 0 1 300 700 Tm (right) Tj ET",
            "left right\n\n",
        ),
        ("BT /F1 12 Tf (caf\\351) Tj ET", "café\n\n"),
        ("BT /F1 12 Tf 14 TL (a) Tj T* (b) Tj (c) ' ET", "a\nb\nc\n\n"),
        ("q 2 0 0 2 0 0 cm BT /F1 6 Tf (a) Tj ET Q BT /F1 12 Tf 0 -14 Td (b) Tj ET", "a\nb\n\n"),
        ("/X Do", "in a form\n\n"),
        ("BT /F2 12 Tf <000100020003> Tj ET", "你好😀\n\n"),
        ("BT /F3 12 Tf <C4E3BAC3> Tj ET", "你好\n\n"),
        ("/I Do", picture.as_str()),
        (" ", "[an empty page]\n\n"),
    ] {
        assert_eq!(text_of(&pdf(&[content])), format!("--- page 1 ---\n{expected}"), "{content}");
    }
    for (content, shown) in [
        ("BT /F4 12 Tf <00010002> Tj ET", "\n\u{fffd}\n"),
        ("BT /F2 12 Tf <000100090002> Tj ET", "\n你\u{fffd}好\n"),
    ] {
        let text = text_of(&pdf(&[content]));
        assert!(text.contains(&format!("{shown}[Text shown as")), "{text}");
    }
}

/// Returns the text of a page that shows this string in the font F1, after a change of the font's dictionary.
fn text_in_font(string: &str, change: impl FnOnce(&mut Document) -> Dictionary) -> String {
    let page = pdf(&[&format!("BT /F1 9 Tf ({string}) Tj ET")]);
    let mut document = Document::load_mem(&page).unwrap();
    let entries = change(&mut document);
    let font = document.get_dictionary_mut((4, 0)).unwrap();
    for (key, value) in entries {
        font.set(key, value);
    }
    let mut bytes = Vec::new();
    document.save_to(&mut bytes).unwrap();
    text_of(&bytes)
}

#[test]
fn names_of_glyphs_say_which_characters_a_font_has() {
    let named = |first: i64, names: &str| {
        let names = names.split(' ').map(Object::from);
        let list: Vec<_> = [Object::Integer(first)].into_iter().chain(names).collect();
        dictionary! { "BaseEncoding" => "MacRomanEncoding", "Differences" => list }
    };
    let names = "eacute fi Lslash uni20AC f_f_i one.alt .notdef afii10066 g37 a1.alt";
    let font = dictionary! { "Encoding" => named(65, names) };
    let text = text_in_font("ABCDEFGHIJKL'\\216", |_| font);
    assert_eq!(text, "--- page 1 ---\néﬁŁ€ffi1бIJKL'é\n\n");
    let font = dictionary! { "Encoding" => named(1, "g38") };
    let text = text_in_font("x\\001", |_| font);
    assert!(text.contains("\nx\u{fffd}\n[Text shown as"), "{text}");
}

#[test]
fn the_program_of_a_font_names_glyphs_if_the_font_has_no_encoding() {
    let program = b"%!PS-AdobeFont-1.0: X\n/Encoding 256 array\ndup 59/comma put\ndup 11 /ff put\n\
                    dup 99999999999 /a put readonly def\ncurrentfile eexec \xff";
    let text = text_in_font("a;\\013", |document| {
        let file = document.add_object(Stream::new(Dictionary::new(), program.to_vec()));
        let facts = dictionary! { "FontFile" => file };
        dictionary! { "Encoding" => Object::Null, "FontDescriptor" => facts }
    });
    assert_eq!(text, "--- page 1 ---\na,\u{fb00}\n\n");
}

#[test]
fn a_map_to_unicode_comes_before_an_encoding_if_it_does_not_unpack_to_too_much() {
    for (end, expected) in [(9, "你B"), (MAX_UNPACKED_BYTES, "AB")] {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(b"1 beginbfchar <41> <4F60> endbfchar").unwrap();
        packed.write_all(&vec![b' '; end]).unwrap();
        let map = Stream::new(dictionary! { "Filter" => "FlateDecode" }, packed.finish().unwrap());
        let text = text_in_font("AB", |document| {
            dictionary! { "ToUnicode" => document.add_object(map) }
        });
        assert_eq!(text, format!("--- page 1 ---\n{expected}\n\n"));
    }
}

#[test]
fn a_range_of_at_most_20_pages_is_read() {
    let bytes = pdf_of(&vec![stream("", b"BT /F1 9 Tf (x) Tj ET"); 5_000]);
    let first = extract(&bytes, None).unwrap().unwrap();
    let about = "PDF, 5000 pages, here 1–20; for others set `pages`";
    assert_eq!(first.about, about);
    assert!(first.text.contains("--- page 20 ---\nx\n") && !first.text.contains("page 21"));
    let last = extract(&bytes, Some("4999-")).unwrap().unwrap();
    assert_eq!(last.text, "--- page 4999 ---\nx\n\n--- page 5000 ---\nx\n\n");
    let none = extract(&bytes, Some("5001-5002")).unwrap_err();
    assert_eq!(none, "has no page 5001; it has 5000");
}

#[test]
fn an_encrypted_document_is_read_if_it_needs_no_password() {
    for (password, expected) in [("", Ok("--- page 1 ---\nx\n\n")), ("secret", Err(PASSWORD))] {
        let mut document = Document::load_mem(&pdf(&["BT /F1 9 Tf (x) Tj ET"])).unwrap();
        let version = EncryptionVersion::V2 {
            document: &document,
            owner_password: "owner",
            user_password: password,
            key_length: 128,
            permissions: Permissions::all(),
        };
        let state = EncryptionState::try_from(version).unwrap();
        document.encrypt(&state).unwrap();
        let mut bytes = Vec::new();
        document.save_to(&mut bytes).unwrap();
        let read = extract(&bytes, None).map(|read| read.unwrap().text);
        assert_eq!(read.as_deref().map_err(String::as_str), expected);
    }
}

#[test]
fn a_broken_document_is_mended_or_refused_in_words() {
    let mut broken = pdf(&["BT /F1 9 Tf (x) Tj ET"]);
    let table = broken.windows(9).rposition(|bytes| bytes == b"startxref").unwrap();
    broken.truncate(table);
    broken.extend(b"startxref\n99999999\n%%EOF\n");
    assert_eq!(text_of(&broken), "--- page 1 ---\nx\n\n");
    let why = extract(b"%PDF-1.7 and nothing else", None).unwrap_err();
    assert!(why.starts_with("is a PDF that cannot be read: "), "{why}");
}

#[test]
fn what_unpacks_to_too_much_is_not_read() {
    let spaces = vec![b' '; MAX_UNPACKED_BYTES + 1];
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&spaces).unwrap();
    let bomb = stream("/Filter /FlateDecode", &packed.finish().unwrap());
    let text = text_of(&pdf_of(&[bomb, stream("", b"BT /F1 9 Tf (x) Tj ET")]));
    assert!(text.contains("unpacks to more than 64 MiB]\n\n--- page 2 ---\nx\n"), "{text}");
    let text = text_of(&workbook(&String::from_utf8(spaces).unwrap()));
    assert!(text.contains("sheet1.xml unpacks to more than 64 MiB]"), "{text}");
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn workbook(sheet: &str) -> Vec<u8> {
    archive(&[
        (
            "xl/workbook.xml",
            "<sheets><sheet name=\"Numbers &lt;1>\" sheetId=\"1\" r:id=\"rId7\"/></sheets>",
        ),
        (
            "xl/_rels/workbook.xml.rels",
            "<Relationship Id=\"rId7\" Type=\"x\" Target=\"worksheets/sheet1.xml\"/>",
        ),
        (
            "xl/sharedStrings.xml",
            "<sst><si><t>Name</t></si><si><r><t>two</t></r><r><t> runs</t></r><rPh><t>said</t></rPh>\
             </si></sst>",
        ),
        ("xl/worksheets/sheet1.xml", sheet),
    ])
}

#[test]
fn paragraphs_and_tables_of_a_text_are_lines() {
    let word = archive(&[(
        "word/document.xml",
        "<?xml version=\"1.0\"?><w:p><w:pPr><w:tabs><w:tab w:val=\"left\"/></w:tabs></w:pPr><w:r>\
         <w:t>One &amp; two</w:t><w:tab/><w:t xml:space=\"preserve\"> three</w:t></w:r></w:p>\
         <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>你</w:t>\
         </w:r></w:p></w:tc></w:tr></w:tbl><w:p><w:r><w:delText>gone</w:delText></w:r>\
         <mc:Choice><w:t>box</w:t></mc:Choice><mc:Fallback><w:t>box</w:t></mc:Fallback></w:p>",
    )]);
    let read = extract(&word, Some("3-4")).unwrap().unwrap();
    assert_eq!(read.about, "office document");
    assert_eq!(read.text, "One & two\t three\na \t你\nbox\n\n");
    let bomb = "<!DOCTYPE x [<!ENTITY lol \"lol\"><!ENTITY lol9 \"&lol;&lol;\">]><w:t>&lol9;</w:t>";
    assert_eq!(text_of(&archive(&[("word/document.xml", bomb)])), "&lol9;\n\n");
    let content = "<office:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>\
                   <text:h text:outline-level=\"1\">Title</text:h><text:p>a<text:tab/>\
                   b<text:line-break/>c<text:s/>d</text:p></office:text>";
    let manifest = "META-INF/manifest.xml";
    let open = archive(&[("content.xml", content), (manifest, "<manifest:manifest/>")]);
    assert_eq!(text_of(&open), "Title\na\tb\nc d\n\n");
    let locked = [("content.xml", content), (manifest, "<manifest:encryption-data/>")];
    assert_eq!(extract(&archive(&locked), None), Err(PASSWORD.to_owned()));
}

#[test]
fn the_addresses_of_links_in_an_office_file_follow_its_text() {
    let relations = "<Relationship Id=\"a\" Type=\"x/hyperlink\" Target=\"https://x.test/browse?a=1&amp;b=2\" \
                     TargetMode=\"External\"/><Relationship Id=\"b\" Target=\"https://x.test/browse?a=1&amp;b=2\"/>\
                     <Relationship Id=\"c\" Target=\"file:///C:/Normal.dotm\"/>\
                     <Relationship Id=\"d\" Target=\"styles.xml\"/>";
    let word = archive(&[
        ("word/document.xml", "<w:p><w:hyperlink r:id=\"a\"><w:t>Ticket</w:t></w:hyperlink></w:p>"),
        ("word/_rels/document.xml.rels", relations),
    ]);
    let expected = "Ticket\n\n--- links ---\nhttps://x.test/browse?a=1&b=2\n\n";
    assert_eq!(text_of(&word), expected);
    let content = "<text:p>See <text:a xlink:href=\"https://x.test/\">this</text:a>, \
                   <text:a xlink:href=\"#part\">that</text:a></text:p>";
    let open = [("content.xml", content), ("META-INF/manifest.xml", "<manifest:manifest/>")];
    assert_eq!(text_of(&archive(&open)), "See <https://x.test/> this, that\n\n");
}

#[test]
fn text_in_a_section_of_an_office_file_is_text() {
    let text = "<w:p><w:t><![CDATA[if a < b && c > d]]></w:t></w:p><w:p><w:t>&lt;<![CDATA[<b>]]>!</w:t></w:p>\
                <!-- no --><w:p><w:t><![CDATA[open";
    let expected = "if a < b && c > d\n<<b>!\nopen\n\n";
    assert_eq!(text_of(&archive(&[("word/document.xml", text)])), expected);
    let sheet = "<row><c t=\"inlineStr\"><is><t><![CDATA[Team Vienna]]></t></is></c></row>";
    assert!(text_of(&workbook(sheet)).contains("\nTeam Vienna\n"));
}

#[test]
fn a_picture_in_an_office_file_is_named() {
    let picture = "<pic:pic><pic:blipFill><a:blip r:embed=\"rId4\"/></pic:blipFill></pic:pic>";
    let drawing = format!("<w:drawing><wp:docPr/><a:graphic>{picture}</a:graphic></w:drawing>");
    let text = format!("<w:p><w:r><w:t>See</w:t></w:r></w:p><w:p><w:r>{drawing}</w:r></w:p>");
    assert_eq!(text_of(&archive(&[("word/document.xml", &text)])), "See\n[picture]\n\n");
    let content = "<text:p><draw:frame><draw:image xlink:href=\"a.png\"/></draw:frame></text:p>";
    let open = [("content.xml", content), ("META-INF/manifest.xml", "<manifest:manifest/>")];
    assert_eq!(text_of(&archive(&open)), "[picture]\n\n");
}

#[test]
fn a_text_that_was_moved_is_only_where_it_is_now() {
    let run = "<w:r><w:t>moved</w:t></w:r>";
    let text = format!(
        "<w:p><w:pPr><w:rPr><w:moveFrom w:id=\"1\"/></w:rPr></w:pPr><w:r><w:t>a</w:t></w:r>\
         <w:moveFromRangeStart w:id=\"2\"/><w:moveFrom>{run}</w:moveFrom></w:p>\
         <w:p><w:moveTo>{run}</w:moveTo></w:p>"
    );
    assert_eq!(text_of(&archive(&[("word/document.xml", &text)])), "a\nmoved\n\n");
}

#[test]
fn parts_of_an_archive_are_found_as_other_programs_name_them() {
    let word = archive(&[
        ("word/styles2.xml", "<w:t>no</w:t>"),
        ("word/document22.xml", "<w:p><w:t>Online</w:t></w:p>"),
        ("word/footnotes2.xml", "<w:p><w:t>below</w:t></w:p>"),
        (
            "word/_rels/document22.xml.rels",
            "<Relationship Id=\"a\" Target=\"footnotes2.xml\"/><Relationship Id=\"b\" Target=\"https://x.test/\"/>",
        ),
    ]);
    let expected = "Online\n\n--- footnotes ---\nbelow\n\n--- links ---\nhttps://x.test/\n\n";
    assert_eq!(text_of(&word), expected);
    let workbook = archive(&[
        ("xl\\workbook.xml", "<sheets><sheet name=\"a\" r:id=\"rId1\"/></sheets>"),
        (
            "xl\\_rels\\workbook.xml.rels",
            "<Relationship Id=\"rId1\" Target=\"worksheets/sheet1.xml\"/>",
        ),
        ("xl/SharedStrings.xml", "<sst><si><t>shared</t></si></sst>"),
        ("xl/Worksheets/Sheet1.xml", "<c t=\"s\"><v>0</v></c>"),
    ]);
    assert_eq!(text_of(&workbook), "--- sheet 1 a ---\nshared\n\n");
}

#[test]
fn sheets_and_slides_of_open_documents_have_their_names_and_notes_are_no_values() {
    let cell = "<office:annotation><dc:date>2026-01-01</dc:date><text:p>why?</text:p></office:annotation>\
                <text:p>1</text:p>";
    let row =
        format!("<table:table-row><table:table-cell>{cell}</table:table-cell></table:table-row>");
    let content = format!(
        "<table:table table:style-name=\"ta1\" table:name=\"Costs\">{row}</table:table>\
         <table:table table:name=\"Plan\"><table:table-row/></table:table>\
         <draw:page draw:name=\"page2\" draw:master-page-name=\"x\"><text:p>Title</text:p></draw:page>"
    );
    let files =
        [("content.xml", content.as_str()), ("META-INF/manifest.xml", "<manifest:manifest/>")];
    let expected = "--- Costs ---\n[note: why?] 1\n--- Plan ---\n--- page2 ---\nTitle\n\n";
    assert_eq!(text_of(&archive(&files)), expected);
}

#[test]
fn equal_cells_and_rows_of_a_sheet_are_all_there() {
    let content = "<table:table-row table:number-rows-repeated=\"2\">\
                   <table:table-cell table:number-columns-repeated=\"2\"><text:p>1</text:p></table:table-cell>\
                   <table:covered-table-cell/><table:table-cell><text:p>a<text:s text:c=\"3\"/>b</text:p>\
                   </table:table-cell><table:table-cell table:number-columns-repeated=\"16380\"/></table:table-row>\
                   <table:table-row table:number-rows-repeated=\"1048574\">\
                   <table:table-cell table:number-columns-repeated=\"16384\"/></table:table-row>\
                   <table:table-cell></table:table-row></table:table-cell>";
    let sheet = [("content.xml", content), ("META-INF/manifest.xml", "<manifest:manifest/>")];
    assert_eq!(text_of(&archive(&sheet)), "1 \t1 \t\ta   b\n1 \t1 \t\ta   b\n\n");
}

#[test]
fn notes_of_a_text_follow_it_and_how_words_are_said_is_left_out() {
    let run = |text: &str| format!("<w:r><w:t>{text}</w:t></w:r>");
    let text = format!(
        "<w:p><w:ruby><w:rt>{}</w:rt><w:rubyBase>{}</w:rubyBase></w:ruby><w:r><w:t>a</w:t>\
         <w:noBreakHyphen/><w:t>b</w:t></w:r></w:p>",
        run("とう"),
        run("東")
    );
    let note = |text: &str| format!("<w:footnote><w:p/></w:footnote><w:p>{}</w:p>", run(text));
    let word = archive(&[
        ("word/document.xml", &text),
        ("word/footnotes.xml", &note("below")),
        ("word/endnotes.xml", "<w:endnote><w:p/></w:endnote>"),
        ("word/comments.xml", &note("really?")),
    ]);
    let expected = "東a-b\n\n--- footnotes ---\nbelow\n\n--- comments ---\nreally?\n\n";
    assert_eq!(text_of(&word), expected);
}

#[test]
fn headers_comments_diagrams_and_charts_follow_the_text_to_which_they_belong() {
    let words = |text: &str| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>");
    let word = archive(&[
        ("word/document.xml", "<w:p><w:t>Dear all</w:t></w:p>"),
        ("word/header1.xml", "<w:p><w:t>ACME</w:t></w:p><w:p/>"),
        ("word/media/header.png", "<w:t>no</w:t>"),
    ]);
    assert_eq!(text_of(&word), "Dear all\n\n--- header ---\nACME\n\n");
    let notes = "<comments><author>me</author><comment ref=\"B2\" authorId=\"0\"><text><r><t>why?</t></r>\
                 </text></comment><comment ref=\"C3\"><text><t>so</t></text></comment></comments>";
    let sheet = archive(&[
        ("xl/workbook.xml", "<sheet name=\"a\" r:id=\"rId1\"/>"),
        ("xl/_rels/workbook.xml.rels", "<Relationship Id=\"rId1\" Target=\"worksheets/a.xml\"/>"),
        ("xl/worksheets/a.xml", "<row><c><v>1</v></c></row>"),
        ("xl/worksheets/_rels/a.xml.rels", "<Relationship Id=\"a\" Target=\"../comments1.xml\"/>"),
        ("xl/comments1.xml", notes),
        ("xl/comments2.xml", notes),
    ]);
    let expected = "--- sheet 1 a ---\n1\n\n--- comments ---\nB2: why?\nC3: so\n\n";
    assert_eq!(text_of(&sheet), expected);
    let point = |value: &str| format!("<c:pt idx=\"0\"><c:v>{value}</c:v></c:pt>");
    let chart = format!(
        "<c:title><c:tx>{}</c:tx></c:title><c:ser><c:tx><c:strRef><c:f>B1</c:f><c:strCache>{}</c:strCache></c:strRef>\
         </c:tx><c:cat><c:strRef><c:strCache>{}{}</c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache>\
         <c:formatCode>0</c:formatCode>{}{}</c:numCache></c:numRef></c:val></c:ser>\
         <c:ser><c:tx><c:v>Costs</c:v></c:tx></c:ser>",
        words("Growth"),
        point("Sales"),
        point("Q1"),
        point("Q2"),
        point("10"),
        point("20")
    );
    let data = format!("<dgm:pt/><dgm:pt><dgm:t>{}</dgm:t></dgm:pt>", words("Plan"));
    let slides = archive(&[
        ("ppt/presentation.xml", "<p:sldId r:id=\"rId1\"/>"),
        ("ppt/_rels/presentation.xml.rels", "<Relationship Id=\"rId1\" Target=\"slides/a.xml\"/>"),
        ("ppt/slides/a.xml", "<p:sld/>"),
        (
            "ppt/slides/_rels/a.xml.rels",
            "<Relationship Id=\"a\" Target=\"../diagrams/data1.xml\"/>\
             <Relationship Id=\"b\" Target=\"/ppt/charts/chart1.xml\"/>\
             <Relationship Id=\"c\" Target=\"../comments/comment1.xml\"/>",
        ),
        ("ppt/diagrams/data1.xml", &data),
        ("ppt/charts/chart1.xml", &chart),
        (
            "ppt/comments/comment1.xml",
            "<p:cm><p:text>one</p:text></p:cm><p:cm><p:text>two</p:text></p:cm>",
        ),
    ]);
    let expected = "--- slide 1 ---\n\n--- comments ---\none\ntwo\n\n--- diagrams ---\nPlan\n\n\
                    --- charts ---\nGrowth\nSales\nQ1 Q2\n10 20\nCosts\n\n";
    assert_eq!(text_of(&slides), expected);
}

#[test]
fn sheets_and_slides_are_read_in_their_order() {
    let sheet = "<sheetData><row r=\"1\"><c r=\"A1\" t=\"s\"><v>0</v></c><c r=\"C1\" t=\"s\"><v>1</v></c>\
                 </row><row r=\"2\"><c r=\"A2\" s=\"1\"/><c r=\"B2\"><f>1+1</f><v>2</v></c>\
                 <c r=\"C2\" t=\"inlineStr\"><is><t>in</t></is></c><c r=\"D2\" t=\"s\"><v>9</v></c></row>\
                 </sheetData>";
    let read = extract(&workbook(sheet), None).unwrap().unwrap();
    assert_eq!(
        read.about,
        "Excel workbook; its dates are numbers of days since 1899-12-30, 1 sheet"
    );
    let expected = "--- sheet 1 Numbers <1> ---\nName\t\ttwo runs\n\t2\tin\t[not read]\n\n";
    assert_eq!(read.text, expected);
    let slide = |text: &str| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>");
    let slides = archive(&[
        (
            "ppt/presentation.xml",
            "<p:sldId id=\"256\" r:id=\"rId2\"/><p:sldId id=\"257\" r:id=\"rId1\"/>",
        ),
        (
            "ppt/_rels/presentation.xml.rels",
            "<Relationship Id=\"rId1\" Target=\"slides/slide1.xml\"/>\
             <Relationship Id=\"rId2\" Target=\"/ppt/slides/slide2.xml\"/>",
        ),
        ("ppt/slides/slide1.xml", &format!("<p:sld show=\"0\">{}</p:sld>", slide("end"))),
        ("ppt/slides/slide2.xml", &slide("begin")),
        (
            "ppt/slides/_rels/slide2.xml.rels",
            "<Relationship Id=\"rId1\" Target=\"../slideLayouts/slideLayout1.xml\"/>\
             <Relationship Id=\"rId2\" Target=\"../notesSlides/notesSlide1.xml\"/>\
             <Relationship Id=\"rId3\" Target=\"/ppt/notesSlides/notesSlide1.xml\"/>",
        ),
        ("ppt/notesSlides/notesSlide1.xml", &slide("say this")),
    ]);
    let expected =
        "--- slide 1 ---\nbegin\n\n--- notes ---\nsay this\n\n--- slide 2 ---\n(hidden)\nend\n\n";
    assert_eq!(text_of(&slides), expected);
}

#[test]
fn animations_and_formats_of_numbers_add_no_lines() {
    let animation = "<a:p><a:t>a</a:t></a:p><p:tav><p:val><p:strVal val=\"1\"/></p:val></p:tav>";
    let slides = archive(&[
        ("ppt/presentation.xml", "<p:sldId r:id=\"rId1\"/>"),
        ("ppt/_rels/presentation.xml.rels", "<Relationship Id=\"rId1\" Target=\"slides/a.xml\"/>"),
        ("ppt/slides/a.xml", &animation.repeat(2)),
        ("ppt/slides/_rels/a.xml.rels", "<Relationship Id=\"a\" Target=\"../notesSlides/a.xml\"/>"),
        ("ppt/notesSlides/a.xml", "<a:p><a:t>say</a:t></a:p>"),
    ]);
    assert_eq!(text_of(&slides), "--- slide 1 ---\na\na\n\n--- notes ---\nsay\n\n");
    let content =
        "<number:date-style><number:text>/</number:text></number:date-style><text:p>a</text:p>";
    let open = [("content.xml", content), ("META-INF/manifest.xml", "<manifest:manifest/>")];
    assert_eq!(text_of(&archive(&open)), "a\n\n");
    let bare = archive(&[("xl/workbook.xml", "<sheet name=\"a\" r:id=\"rId1\"/>")]);
    assert_eq!(extract(&bare, None).unwrap_err(), "xl/_rels/workbook.xml.rels is missing");
}

#[test]
fn dates_of_a_workbook_have_a_first_day_and_truth_values_are_no_numbers() {
    let sheet =
        "<row><c t=\"b\"><v>1</v></c><c t=\"b\"><f>A1=2</f><v>0</v></c><c><v>1</v></c></row>";
    assert!(text_of(&workbook(sheet)).contains("\nTRUE\tFALSE\t1\n"));
    for (facts, day) in [("date1904=\"1\"", "1904-01-01"), ("date1904=\"0\"", "1899-12-30")] {
        let book = format!("<workbookPr {facts}/><sheet name=\"a\" r:id=\"rId1\"/>");
        let file = archive(&[
            ("xl/workbook.xml", &book),
            ("xl/_rels/workbook.xml.rels", "<Relationship Id=\"rId1\" Target=\"a.xml\"/>"),
        ]);
        let about = extract(&file, None).unwrap().unwrap().about;
        assert_eq!(
            about,
            format!("Excel workbook; its dates are numbers of days since {day}, 1 sheet")
        );
    }
}

#[test]
fn hidden_sheets_and_merged_cells_are_named() {
    let sheet = "<row><c><v>1</v></c></row></sheetData><mergeCells count=\"2\"><mergeCell ref=\"A1:C1\"/>\
                 <mergeCell ref=\"A2:A3\"/></mergeCells>";
    let workbook = archive(&[
        ("xl/workbook.xml", "<sheet name=\"a\" state=\"veryHidden\" r:id=\"rId1\"/>"),
        ("xl/_rels/workbook.xml.rels", "<Relationship Id=\"rId1\" Target=\"sheet1.xml\"/>"),
        ("xl/sheet1.xml", sheet),
    ]);
    let expected = "--- sheet 1 a (hidden) ---\n1\nmerged cells: A1:C1 A2:A3\n\n";
    assert_eq!(text_of(&workbook), expected);
}

#[test]
fn empty_rows_that_are_not_in_the_file_of_a_sheet_are_shown_as_lines() {
    let far = format!("{}1\n2\n", "\n".repeat(1_000));
    for (rows, expected) in [
        ("<row r=\"3\"><c><v>1</v></c></row><row><c><v>2</v></c></row>", "\n\n1\n2\n"),
        (
            "<row r=\"1\"><c><v>1</v></c></row><row r=\"2\"/><row r=\"3\"></row><row r=\"5\"><c><v>5</v></c></row>",
            "1\n\n\n\n5\n",
        ),
        (
            "<row r=\"18446744073709551615\"><c><v>1</v></c></row><row><c><v>2</v></c></row>",
            far.as_str(),
        ),
    ] {
        let shown = format!("--- sheet 1 Numbers <1> ---\n{expected}\n");
        assert_eq!(text_of(&workbook(rows)), shown, "{rows}");
    }
}

#[test]
fn a_formula_is_shown_if_its_result_is_not_stored() {
    let sheet = "<sheetData><row><c r=\"A1\"><f>SUM(B1:B9)</f><v></v></c>\
                 <c r=\"B1\"><f>A1&amp;\"x\"</f></c>\
                 <c r=\"C1\"><f>1+1</f><v>2</v></c><c r=\"D1\"><v>3</v></c></row></sheetData>";
    let text = text_of(&workbook(sheet));
    assert!(text.contains("\n=SUM(B1:B9)\t=A1&\"x\"\t2\t3\n"), "{text}");
    let fraction = "<w:p><m:f><m:num><m:t>1</m:t></m:num><m:den><m:t>2</m:t></m:den></m:f></w:p>";
    assert_eq!(text_of(&archive(&[("word/document.xml", fraction)])), "1/2\n\n");
}

#[test]
fn powers_and_fractions_in_a_document_do_not_read_as_other_numbers() {
    let raised = "<w:rPr><w:vertAlign w:val=\"superscript\"/></w:rPr>";
    for (paragraph, expected) in [
        (
            format!(
                "<w:r><w:t>10</w:t></w:r><w:r>{raised}<w:t>-9</w:t></w:r><w:r><w:t> m</w:t></w:r>"
            ),
            "10^-9 m",
        ),
        // Only the mark at the end of the paragraph is superscript.
        (format!("<w:pPr>{raised}</w:pPr><w:r><w:t>10</w:t></w:r>"), "10"),
        ("<m:sSup><m:e><m:t>x</m:t></m:e><m:sup><m:t>2</m:t></m:sup></m:sSup>".to_owned(), "x^2"),
        (
            "<m:sSup><m:e><m:t>e</m:t></m:e><m:sup><m:t>2n</m:t></m:sup></m:sSup>".to_owned(),
            "e^(2n)",
        ),
        (
            "<m:f><m:num><m:t>a+b</m:t></m:num><m:den><m:sSub><m:e><m:t>c</m:t></m:e><m:sub><m:t>1</m:t></m:sub>\
             </m:sSub></m:den></m:f>"
                .to_owned(),
            "(a+b)/(c_1)",
        ),
        (
            "<m:sSup><m:e><m:t>x</m:t></m:e><m:sup><m:t>-2</m:t></m:sup></m:sSup><m:sub></m:sub><m:rad><m:deg/><m:e>\
             <m:t>y+1</m:t></m:e></m:rad>"
                .to_owned(),
            "x^(-2)√(y+1)",
        ),
        ("<m:r><m:t>2</m:t></m:r><m:d><m:e><m:t>a</m:t></m:e></m:d>".to_owned(), "2(a)"),
        (
            "<a:r><a:t>2</a:t></a:r><a:r><a:rPr baseline=\"30000\"/><a:t>32</a:t></a:r>".to_owned(),
            "2^32",
        ),
        (
            "<a:r><a:t>H</a:t></a:r><a:r><a:rPr baseline=\"-25000\"/><a:t>2</a:t></a:r>".to_owned(),
            "H2",
        ),
    ] {
        let word = archive(&[("word/document.xml", &format!("<w:p>{paragraph}</w:p>"))]);
        assert_eq!(text_of(&word), format!("{expected}\n\n"), "{paragraph}");
    }
}

#[test]
fn fields_of_a_form_and_remarks_follow_the_text_of_their_page() {
    let text = Object::string_literal::<&str>;
    let mut document = Document::load_mem(&pdf(&["BT /F1 12 Tf (Form) Tj ET"])).unwrap();
    let filled = dictionary! { "T" => text("Name"), "V" => lopdf::text_string("Zoë") };
    let parent = document.add_object(filled);
    let annotations = [
        dictionary! { "Subtype" => "Widget", "Parent" => parent },
        dictionary! { "Subtype" => "Widget", "T" => text("Name"), "V" => text("") },
        dictionary! { "Subtype" => "Widget", "TU" => text("Agree?"), "T" => text("x"), "AS" => "Yes" },
        dictionary! { "Subtype" => "Widget", "T" => text("x"), "AS" => "Off", "V" => "Yes" },
        dictionary! { "Subtype" => "Link", "Contents" => text("no") },
        dictionary! { "Subtype" => "Text", "T" => text("Me"), "Contents" => text("why?") },
    ];
    let all = annotations.map(Object::Dictionary).to_vec();
    let page = document.page_iter().next().unwrap();
    document.get_dictionary_mut(page).unwrap().set("Annots", all);
    let mut bytes = b"\xef\xbb\xbf\r\n".to_vec();
    document.save_to(&mut bytes).unwrap();
    let expected =
        "--- page 1 ---\nForm\n\n[fields and remarks]\nName: Zoë\nAgree?: Yes\nMe: why?\n\n";
    assert_eq!(text_of(&bytes), expected);
}

#[test]
fn cells_of_a_notebook_are_read_with_their_outputs() {
    let notebook = br#"{"nbformat":4,"cells":[{"cell_type":"code","source":["a\n","b"],"outputs":[
        {"text":["1\n"]},{"data":{"text/plain":"2","image/png":"iVBORw0KGgo"}}]}]}"#;
    let expected = "--- cell 1 code ---\na\nb\n[output]\n1\n\n[output]\n2\n\n";
    assert_eq!(text_of(notebook), expected);
}

#[test]
fn an_error_of_a_cell_has_its_name_and_a_value_its_most_readable_form() {
    for (output, expected) in [
        (r#"{"ename":"KeyError","evalue":"'x'","traceback":["\u001b[31m"]}"#, "KeyError: 'x'"),
        (r#"{"ename":"AssertionError","evalue":""}"#, "AssertionError:"),
        (
            r#"{"data":{"text/markdown":["**4","2**"],"text/plain":["<Markdown object>"]}}"#,
            "**42**",
        ),
        (r#"{"data":{"text/html":"<b>7</b>","text/plain":"7"}}"#, "7"),
        (r#"{"data":{"text/html":"<b>7</b>","image/png":"iVBORw0KGgo"}}"#, "<b>7</b>"),
    ] {
        let cell = format!(r#"{{"cell_type":"code","source":"a","outputs":[{output}]}}"#);
        let notebook = format!(r#"{{"nbformat":4,"cells":[{cell}]}}"#);
        let shown = format!("--- cell 1 code ---\na\n[output]\n{expected}\n\n");
        assert_eq!(text_of(notebook.as_bytes()), shown, "{output}");
    }
}

#[test]
fn text_that_people_do_not_see_is_left_out_of_a_document() {
    let hidden = "<w:p><w:t>One\u{e0041}\u{e0042}\u{200b} two\u{7}\u{fe01}</w:t><w:tab/><w:t>می\u{200c}خواهم</w:t></w:p>";
    assert_eq!(text_of(&archive(&[("word/document.xml", hidden)])), "One two\tمی\u{200c}خواهم\n\n");
}

#[test]
fn a_text_is_cut_wherever_it_is_too_long() {
    let long = "é".repeat(MAX_TEXT_BYTES / 2 + 9);
    let book = format!(r#"{{"nbformat":4,"cells":[{{"source":"{long}"}},{{"source":"x"}}]}}"#);
    let text = text_of(book.as_bytes());
    assert!(text.ends_with("é\n\n[cut here: there is more text than 4 MiB]\n"));
    assert!(text.len() < MAX_TEXT_BYTES + 99 && !text.contains("cell 2"));
    let shared = "x".repeat(MAX_UNPACKED_BYTES / 2);
    let strings = format!("<sst><si><t>{shared}</t></si></sst>");
    let cells = "<c t=\"s\"><v>0</v></c>".repeat(99);
    let workbook = archive(&[
        ("xl/workbook.xml", "<sheets><sheet name=\"a\" r:id=\"rId1\"/></sheets>"),
        ("xl/_rels/workbook.xml.rels", "<Relationship Id=\"rId1\" Target=\"a.xml\"/>"),
        ("xl/sharedStrings.xml", &strings),
        ("xl/a.xml", &cells),
    ]);
    let text = text_of(&workbook);
    assert!(text.ends_with("more text than 4 MiB]\n") && text.len() < MAX_TEXT_BYTES + 99);
}

#[test]
fn other_files_are_no_documents() {
    for bytes in [&archive(&[("a.txt", "x")])[..], b"PK\x03\x04", b"{\"a\":1}", b"", b"text"] {
        assert_eq!(extract(bytes, None), Ok(None), "{bytes:?}");
    }
}

#[test]
fn a_range_is_read_in_each_form() {
    for (text, expected) in [
        ("3", Some(3..=3)),
        ("1-5", Some(1..=5)),
        (" 2 - 4 ", Some(2..=4)),
        ("7-", Some(7..=usize::MAX)),
        ("-3", None),
        ("", None),
        ("0", None),
        ("5-1", None),
        ("1,2", None),
        ("all", None),
    ] {
        assert_eq!(parse_range(text).ok(), expected, "{text}");
    }
}
