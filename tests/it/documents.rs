//! The text of documents: `read_file` has it read by a process of its own, which a hostile document may bring down.

use std::fs;

use serde_json::json;
use turnwright_testing::cards;
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{TestAgent, calls, says};

/// A PDF of one page that shows this text, with an object that the page can draw as `/I`.
fn pdf(text: &str, drawn: &str) -> Vec<u8> {
    let content = format!("BT /F 12 Tf {text} Tj ET");
    let stream = |text: &str| format!("<< /Length {} >>\nstream\n{text}\nendstream", text.len());
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> \
         /XObject << /I 6 0 R >> >> >>"
            .to_owned(),
        stream(&content),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        drawn.to_owned(),
    ];
    let mut pdf = "%PDF-1.7\n".to_owned();
    let mut table = "xref\n0 7\n0000000000 65535 f \n".to_owned();
    for (number, object) in (1..).zip(objects) {
        table.push_str(&format!("{:010} 00000 n \n", pdf.len()));
        pdf.push_str(&format!("{number} 0 obj\n{object}\nendobj\n"));
    }
    let start = pdf.len();
    format!("{pdf}{table}trailer\n<< /Size 7 /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n")
        .into_bytes()
}

#[test]
fn a_document_that_brings_down_its_reader_costs_only_that_call() {
    // Two bytes of it take a hundred in memory.
    let bomb = format!("[{}]", "[]".repeat(1_500_000));
    let mut agent = TestAgent::builder().start();
    fs::write(agent.path("a.pdf"), pdf("(Hello)", "null")).unwrap();
    fs::write(agent.path("a.txt"), pdf("(Named .txt)", "null")).unwrap();
    fs::write(agent.path("about.txt"), "%PDF- begins a PDF").unwrap();
    fs::write(agent.path("bomb.pdf"), pdf("(Hello)", &bomb)).unwrap();
    fs::write(agent.path("broken.pdf"), b"%PDF-1.7\n\0\xff").unwrap();
    fs::write(agent.path("old.doc"), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0").unwrap();
    fs::write(agent.path("a.ipynb"), r#"{"nbformat":4,"cells":[{"source":"x = 1"}]}"#).unwrap();
    let all = [
        json!({ "path": "bomb.pdf" }),
        json!({ "path": "a.pdf" }),
        json!({ "path": "a.pdf", "pages": "2" }),
        json!({ "path": "a.pdf", "pages": "all" }),
        json!({ "path": "broken.pdf" }),
        json!({ "path": "old.doc" }),
        json!({ "path": "a.ipynb" }),
        json!({ "path": "a.ipynb", "pages": "1" }),
        json!({ "paths": ["about.txt", "a.txt", "a.pdf"], "pages": "1-20" }),
    ];
    let results = cards::run_each(&mut agent, "read_file", &all);
    assert!(results[0].contains("bomb.pdf | Error: cannot be read: "), "{}", results[0]);
    let text = "[File: a.pdf | PDF, 1 page | Lines: 3]\n--- page 1 ---\nHello\n";
    assert!(results[1].starts_with(text), "{}", results[1]);
    assert!(results[2].contains("has no page 2; it has 1"), "{}", results[2]);
    assert!(results[3].contains("is a page or a range"), "{}", results[3]);
    assert!(results[4].contains("is a PDF that cannot be read: "), "{}", results[4]);
    assert!(results[5].contains("convert it"), "{}", results[5]);
    assert!(results[6].contains("    1| {\"nbformat\""), "{}", results[6]);
    assert!(results[7].contains("notebook, 1 cell | Lines: "), "{}", results[7]);
    assert!(results[7].contains("\nx = 1\n"), "{}", results[7]);
    for part in ["    1| %PDF- begins a PDF\n", "--- page 1 ---\nNamed .txt\n", "\nHello\n"] {
        assert!(results[8].contains(part), "{}", results[8]);
    }
}

#[test]
fn a_scan_is_shown_as_a_file_to_a_model_that_takes_files() {
    let picture =
        "<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /Length 1 >>\nstream\nx\nendstream";
    for (takes_files, expected) in [(true, 1), (false, 0)] {
        let call = calls("read_file", &json!({ "paths": ["scan.pdf", "text.pdf"] }));
        let replies = json!({ "replies": [call, says("Read.")] });
        let server = Server::start(Scenario::from_value(replies).unwrap(), 0).unwrap();
        let settings = format!(
            "model = 'p/scripted'\n[providers.p]\nbase_url = '{}'\nquirks = {{ files = {takes_files} }}\n",
            server.base_url()
        );
        let mut agent = TestAgent::unconfigured().own_file("config/config.toml", &settings).start();
        fs::write(agent.path("scan.pdf"), pdf("() Tj ET /I Do BT ()", picture)).unwrap();
        fs::write(agent.path("text.pdf"), pdf("(Hello)", "null")).unwrap();
        assert_eq!(agent.turn("go"), "end_turn");
        let body = server.request(1).body.to_string();
        let files = body.matches("\"file_data\":\"data:application/pdf;base64,").count();
        assert_eq!(files, expected, "{body}");
        assert!(body.contains("this page is a picture") && body.contains("Hello"), "{body}");
        assert_eq!(body.contains("[the file itself is shown too: "), takes_files, "{body}");
        assert!(!cards::card(&agent, 0).to_string().contains("application/pdf"));
    }
}
