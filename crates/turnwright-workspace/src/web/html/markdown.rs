//! Turns the tree that `html` has made into Markdown with `htmd`. Tables, programs and headings are written here: there
//! `htmd` leaves out header cells that are not in the first row, pads cells to the width of the longest, fences only
//! programs in a `code`, and ends a heading at a line break.
//!
//! This recurses, which is safe because the tree is nested little.

use std::iter;
use std::rc::Rc;

use htmd::element_handler::Handlers;
use htmd::options::{BulletListMarker, HrStyle, Options};
use htmd::{Element, HtmlToMarkdown};
use markup5ever_rcdom::{Node, NodeData};

use super::{only_attribute, parent, tag_name};
use turnwright_types::text;

const HEADINGS: [&str; 6] = ["h1", "h2", "h3", "h4", "h5", "h6"];
/// A cell that covers several columns or rows of a table is repeated only in so many first columns.
const MAX_SPANNED_COLUMNS: usize = 24;
/// The most bytes of a cell that are repeated.
const MAX_REPEATED_BYTES: usize = 30;

/// The text of a cell of a table, and the numbers of columns and rows that it covers.
type Cell = (String, usize, usize);

/// Converts a page.
pub(in crate::web) fn to_markdown(root: &Rc<Node>) -> String {
    let options = Options {
        hr_style: HrStyle::Dashes,
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let converter = HtmlToMarkdown::builder()
        .options(options)
        .add_handler(HEADINGS.to_vec(), |handlers: &dyn Handlers, element: Element| {
            Some(heading(handlers, element.node).into())
        })
        .add_handler(vec!["del"], |handlers: &dyn Handlers, element: Element| {
            Some(struck(handlers, element.node).into())
        })
        .add_handler(vec!["table"], |handlers: &dyn Handlers, element: Element| {
            Some(table(handlers, element.node).into())
        })
        .add_handler(vec!["code"], |_: &dyn Handlers, element: Element| {
            Some(inline_code(&programs(element.node)).into())
        })
        .add_handler(vec!["pre"], |_: &dyn Handlers, element: Element| {
            Some(code_fences(element.node).into())
        })
        .build();
    converter.tree_to_markdown(root).trim().to_owned()
}

fn heading(handlers: &dyn Handlers, node: &Rc<Node>) -> String {
    let line = text::one_line(&handlers.walk_children(node).content);
    let level = HEADINGS.iter().position(|name| *name == tag_name(node)).unwrap_or_default() + 1;
    if line.is_empty() { line } else { format!("\n\n{} {line}\n\n", "#".repeat(level)) }
}

fn struck(handlers: &dyn Handlers, node: &Rc<Node>) -> String {
    let content = handlers.walk_children(node).content;
    let text = content.trim();
    if text.is_empty() { content } else { content.replacen(text, &format!("~~{text}~~"), 1) }
}

fn table(handlers: &dyn Handlers, node: &Rc<Node>) -> String {
    let mut before = String::new();
    let mut rows = Vec::new();
    add_rows(handlers, node, &mut before, &mut rows);
    // Markdown cannot express a table within a cell.
    let is_data = is_data_table(node) && !is_in_data_table(node);
    let text = if is_data { data_rows(&rows) } else { layout_rows(&rows) };
    format!("\n\n{}\n\n{text}\n\n", before.trim())
}

/// Writes the rows of a table with a separator line after the first. A cell that covers several places is repeated in
/// each, so that the cells after it stay in their columns.
fn data_rows(rows: &[Vec<Cell>]) -> String {
    let mut lines = Vec::new();
    // For each column: the first row that its latest cell no longer covers, and the text of that cell.
    let mut covered = vec![(0_usize, String::new()); MAX_SPANNED_COLUMNS];
    for (index, row) in rows.iter().enumerate() {
        let mut shown: Vec<String> = Vec::new();
        let mut cells = row.iter();
        loop {
            let column = shown.len();
            if let Some((_, text)) = covered.get(column).filter(|place| index < place.0) {
                shown.push(text.clone());
                continue;
            }
            let Some((content, width, height)) = cells.next() else { break };
            let text = text::one_line(content).replace('|', "\\|");
            let again = text::clip_bytes(text.as_str(), MAX_REPEATED_BYTES, "…");
            for place in covered.iter_mut().skip(column).take(*width) {
                *place = (index + height, again.clone());
            }
            shown.push(text);
        }
        lines.push(format!("| {} |", shown.join(" | ")));
        if lines.len() == 1 {
            lines.push(format!("|{}", " --- |".repeat(shown.len())));
        }
    }
    lines.join("\n")
}

/// Writes the rows of a table that is there for the layout as paragraphs.
fn layout_rows(rows: &[Vec<Cell>]) -> String {
    let paragraphs = rows.iter().map(|cells| {
        let filled = cells.iter().map(|cell| cell.0.as_str()).filter(|text| !text.is_empty());
        let has_blocks = cells.iter().any(|cell| cell.0.contains('\n'));
        filled.collect::<Vec<_>>().join(if has_blocks { "\n\n" } else { " | " })
    });
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Adds the cells of each row of a table or of a part of it. Other content is a row, or comes before the table.
fn add_rows(
    handlers: &dyn Handlers,
    part: &Rc<Node>,
    before: &mut String,
    rows: &mut Vec<Vec<Cell>>,
) {
    for child in part.children.borrow().iter() {
        match tag_name(child) {
            "thead" | "tbody" | "tfoot" => add_rows(handlers, child, before, rows),
            "tr" => rows.push(cells(handlers, child)),
            _ => {
                let content = handlers.handle(child).map(|other| other.content).unwrap_or_default();
                if rows.is_empty() {
                    before.push_str(&content);
                } else if !content.trim().is_empty() {
                    rows.push(vec![(content.trim().to_owned(), 1, 1)]);
                }
            }
        }
    }
}

fn cells(handlers: &dyn Handlers, row: &Rc<Node>) -> Vec<Cell> {
    let mut cells = Vec::new();
    for child in row.children.borrow().iter() {
        let content = handlers.handle(child).map(|cell| cell.content).unwrap_or_default();
        if matches!(tag_name(child), "td" | "th") || !content.trim().is_empty() {
            let spans = only_attribute(child).unwrap_or_default();
            let mut counts = spans.split(' ').map(|text| text.parse().unwrap_or(1_usize).max(1));
            let columns = counts.next().unwrap_or(1);
            cells.push((content.trim().to_owned(), columns, counts.next().unwrap_or(1)));
        }
    }
    cells
}

/// Returns true if a table has header cells at its beginning, so that it is not there for the layout.
fn is_data_table(table: &Node) -> bool {
    let parts = table.children.borrow();
    let Some(first) = parts.iter().find(|part| is_row_or_section(part)) else { return false };
    let rows = first.children.borrow();
    match tag_name(first) {
        "thead" => true,
        "tr" => has_header_cell(first),
        _ => rows.iter().find(|row| tag_name(row) == "tr").is_some_and(|row| has_header_cell(row)),
    }
}

fn is_row_or_section(node: &Node) -> bool {
    matches!(tag_name(node), "thead" | "tbody" | "tfoot" | "tr")
}

fn has_header_cell(row: &Node) -> bool {
    row.children.borrow().iter().any(|cell| tag_name(cell) == "th")
}

fn is_in_data_table(node: &Node) -> bool {
    let mut around = iter::successors(parent(node), |inner| parent(inner));
    around.any(|outer| tag_name(&outer) == "table" && is_data_table(&outer))
}

fn code_fences(node: &Rc<Node>) -> String {
    let programs = programs(node);
    if is_in_data_table(node) {
        return inline_code(&programs);
    }
    let fences = programs.iter().filter_map(|(language, text)| code_fence(text, language));
    format!("\n\n{}\n\n", fences.collect::<Vec<_>>().join("\n\n"))
}

/// The languages and texts of the programs in a node.
fn programs(node: &Node) -> Vec<(String, String)> {
    let mut programs = vec![(String::new(), String::new())];
    add_program(node, &mut programs);
    programs
}

fn add_program(node: &Node, programs: &mut Vec<(String, String)>) {
    if let Some(language) = only_attribute(node) {
        match programs.last_mut().filter(|(_, text)| text.trim().is_empty()) {
            Some((first, _)) => *first = language,
            // The same program in another language.
            None => programs.push((language, String::new())),
        }
    }
    for child in node.children.borrow().iter() {
        let is_block = tag_name(child) == "div";
        if is_block {
            end_line(programs);
        }
        match &child.data {
            NodeData::Text { contents } => {
                if let Some((_, text)) = programs.last_mut() {
                    text.push_str(&contents.borrow());
                }
            }
            _ => add_program(child, programs),
        }
        if is_block {
            end_line(programs);
        }
    }
}

fn end_line(programs: &mut [(String, String)]) {
    if let Some((_, text)) = programs.last_mut()
        && !text.is_empty()
        && !text.ends_with('\n')
    {
        text.push('\n');
    }
}

/// Writes programs as code within a line.
fn inline_code(programs: &[(String, String)]) -> String {
    let joined: String = programs.iter().map(|(_, text)| text.as_str()).collect();
    let text = text::one_line(&joined);
    if text.is_empty() {
        return String::new();
    }
    let marks = "`".repeat(text::longest_backtick_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{marks}{space}{text}{space}{marks}")
}

fn code_fence(program: &str, language: &str) -> Option<String> {
    if program.trim().is_empty() {
        return None;
    }
    let program = program.trim_matches('\n');
    let fence = "`".repeat(text::longest_backtick_run(program).max(2) + 1);
    Some(format!("{fence}{language}\n{program}\n{fence}"))
}

#[cfg(test)]
mod tests;
