//! Lays out a table of Markdown: its columns are aligned and fit into the terminal. Where the columns would
//! become too narrow for words, each row is a list of its cells, each after the heading of its column.

use unicode_width::UnicodeWidthStr;

use super::super::text_style::{TextStyle, paint};
use super::{emit_inline, find_mark, mark_length};
use crate::run::text_style::WordWrap;

/// Stands between two columns.
const SEPARATOR: &str = " │ ";
/// The columns of the separator.
const SEPARATOR_WIDTH: usize = 3;
/// The most columns of a table. One with more is shown as it is.
const MAX_COLUMNS: usize = 64;
/// A column that has to be narrower than its text gets so many columns of the terminal at least.
const MIN_BROKEN_WIDTH: usize = 10;

/// How a column places its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    Left,
    Center,
    Right,
}

/// Text of a cell in pieces of one style each.
type StyledCell = Vec<(String, TextStyle)>;

/// True if these two lines begin a table: a heading, and a delimiter with as many cells, but not too many.
pub(super) fn begins_table(heading: &str, delimiter: &str) -> bool {
    let columns = alignments(delimiter).map_or(0, |columns| columns.len());
    (1..=MAX_COLUMNS).contains(&columns) && columns == split_cells(heading).len()
}

/// Lays out the lines of a table, whose first two [begin one](begins_table). Without styles, marks are shown.
/// `width` is the number of columns of the terminal.
pub(super) fn laid_out(lines: &[String], is_styled: bool, width: usize) -> String {
    let [heading, delimiter, body @ ..] = lines else { return String::new() };
    let Some(alignments) = alignments(delimiter) else { return String::new() };
    let heading = styled_row(heading, alignments.len(), TextStyle::BOLD, is_styled);
    let body: Vec<_> = body
        .iter()
        .map(|line| styled_row(line, alignments.len(), TextStyle::PLAIN, is_styled))
        .collect();
    let natural: Vec<_> = (0..alignments.len())
        .map(|column| {
            let cells =
                std::iter::once(&heading).chain(&body).map(|row| natural_width(&row[column]));
            cells.max().unwrap_or_default().max(1)
        })
        .collect();
    let indent = lines[0].len() - lines[0].trim_start().len();
    let margin = " ".repeat(if indent < width / 2 { indent } else { 0 });
    let mut output = String::new();
    let Some(widths) = column_widths(&natural, width - margin.len()) else {
        push_records(&mut output, &heading, &body, (is_styled, width));
        return output;
    };
    let columns: Vec<_> = widths.iter().copied().zip(alignments).collect();
    push_row(&mut output, &margin, &heading, &columns, is_styled);
    let rule: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
    output.push_str(&margin);
    paint(&mut output, &rule.join("─┼─"), TextStyle::DIM, is_styled);
    output.push('\n');
    for row in &body {
        push_row(&mut output, &margin, row, &columns, is_styled);
    }
    output
}

/// The alignments that a delimiter such as `|---|:-:|` gives to its columns.
fn alignments(line: &str) -> Option<Vec<Alignment>> {
    split_cells(line).into_iter().map(alignment).collect()
}

fn alignment(cell: &str) -> Option<Alignment> {
    let dashes = cell.trim_matches(':');
    let is_delimiter = !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-');
    let ends = cell.len() - dashes.len();
    match (cell.starts_with(':'), cell.ends_with(':')) {
        (true, true) if is_delimiter && ends == 2 => Some(Alignment::Center),
        (false, true) if is_delimiter && ends == 1 => Some(Alignment::Right),
        (true, false) if is_delimiter && ends == 1 => Some(Alignment::Left),
        (false, false) if is_delimiter => Some(Alignment::Left),
        _ => None,
    }
}

/// The cells of a row. A bar within code or behind a backslash is a part of its cell.
fn split_cells(line: &str) -> Vec<&str> {
    let trimmed = line.trim();
    let line = trimmed.strip_prefix('|').unwrap_or(trimmed);
    let mut cells = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while let Some(offset) = line[at..].find(['|', '\\', '`']) {
        at += offset;
        let rest = &line[at..];
        match rest.as_bytes()[0] {
            b'|' => {
                cells.push(line[start..at].trim());
                at += 1;
                start = at;
            }
            b'\\' => at += 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => {
                let mark = mark_length(rest);
                let code = find_mark(&rest[mark..], '`', |length| length == mark);
                at += mark + code.map_or(0, |length| length + mark);
            }
        }
    }
    if !line[start..].trim().is_empty() || cells.is_empty() {
        cells.push(line[start..].trim());
    }
    cells
}

/// The cells of a row in `count` columns. The last one has the text of all that are too many.
fn styled_row(line: &str, count: usize, style: TextStyle, is_styled: bool) -> Vec<StyledCell> {
    let mut cells: Vec<String> = split_cells(line).into_iter().map(str::to_owned).collect();
    if cells.len() > count {
        let last = cells.split_off(count - 1).join(" | ");
        cells.push(last);
    }
    cells.resize(count, String::new());
    let styled = cells.into_iter().map(|cell| {
        // Marks that the rest of a line does not have.
        let marks = [("\\|", "|"), ("<br>", "\n"), ("<br/>", "\n"), ("<br />", "\n")];
        let used = if is_styled { &marks[..] } else { &[] };
        let cell = used.iter().fold(cell, |cell, (mark, text)| cell.replace(mark, text));
        let mut pieces = StyledCell::new();
        let emit = &mut |text: &str, style| pieces.push((text.to_owned(), style));
        emit_inline(&cell, true, None, (style, !is_styled), emit);
        pieces
    });
    styled.collect()
}

/// The widths of the columns, of which the widest are narrowed until all fit. `None` if they become too narrow.
fn column_widths(natural: &[usize], width: usize) -> Option<Vec<usize>> {
    let separators = SEPARATOR_WIDTH * natural.len().saturating_sub(1);
    let mut left = width.checked_sub(separators)?;
    let mut sorted = natural.to_vec();
    sorted.sort_unstable();
    // The width that the narrow columns leave is shared by the others.
    let mut widest = usize::MAX;
    for (number, column) in sorted.iter().enumerate() {
        let share = left / (natural.len() - number);
        if *column > share {
            widest = share;
            break;
        }
        left -= column;
    }
    if widest < MIN_BROKEN_WIDTH {
        return None;
    }
    let widths = natural.iter().map(|column| widest.min(*column)).collect();
    Some(widths)
}

/// Breaks a cell into lines.
fn broken_lines(cell: &StyledCell, is_styled: bool, width: usize) -> Vec<String> {
    let mut wrap = WordWrap::breaking_words(is_styled);
    for (text, style) in cell {
        wrap.words(text, *style, width);
    }
    wrap.flush_word(width);
    wrap.take().split('\n').map(str::to_owned).collect()
}

fn natural_width(cell: &StyledCell) -> usize {
    broken_lines(cell, false, usize::MAX).iter().map(|line| line.width()).max().unwrap_or_default()
}

/// Writes a row, whose cells may have several lines.
fn push_row(
    output: &mut String,
    margin: &str,
    row: &[StyledCell],
    columns: &[(usize, Alignment)],
    is_styled: bool,
) {
    let lines = |is_styled: bool| -> Vec<_> {
        let cells = row.iter().zip(columns);
        cells.map(|(cell, (width, _))| broken_lines(cell, is_styled, *width)).collect()
    };
    // Escape sequences have no width.
    let painted = lines(is_styled);
    let plain = lines(false);
    let height = painted.iter().map(Vec::len).max().unwrap_or_default();
    for number in 0..height {
        output.push_str(margin);
        let mut missing = 0;
        for (column, (width, alignment)) in columns.iter().enumerate() {
            if column > 0 {
                output.push_str(&" ".repeat(missing));
                paint(output, SEPARATOR, TextStyle::DIM, is_styled);
            }
            let text = painted[column].get(number).map_or("", String::as_str);
            let used = plain[column].get(number).map_or(0, |line| line.width());
            let free = width.saturating_sub(used);
            let before = match alignment {
                Alignment::Left => 0,
                Alignment::Center => free / 2,
                Alignment::Right => free,
            };
            output.push_str(&" ".repeat(if text.is_empty() { 0 } else { before }));
            output.push_str(text);
            missing = if text.is_empty() { free } else { free - before };
        }
        output.push('\n');
    }
}

/// Writes each row as a list of its cells.
fn push_records(
    output: &mut String,
    heading: &[StyledCell],
    body: &[Vec<StyledCell>],
    (is_styled, width): (bool, usize),
) {
    let mut wrap = WordWrap::new(is_styled);
    let nothing = vec![StyledCell::new(); heading.len()];
    let colon = (": ".to_owned(), TextStyle::BOLD);
    let rows = if body.is_empty() { std::slice::from_ref(&nothing) } else { body };
    for (number, row) in rows.iter().enumerate() {
        if number > 0 {
            wrap.end_line(width);
        }
        for (column, (name, cell)) in heading.iter().zip(row).enumerate() {
            let margin = if column == 0 { "" } else { "  " };
            wrap.verbatim(margin, TextStyle::PLAIN, width);
            wrap.set_indent(margin.len() + 2);
            for (text, style) in name.iter().chain([&colon]).chain(cell) {
                wrap.words(text, *style, width);
            }
            wrap.end_line(width);
        }
    }
    output.push_str(&wrap.take());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::MarkdownStream;
    use super::*;

    /// A message with tables, as it is shown. Its pieces have this many characters.
    fn shown(text: &str, is_styled: bool, width: usize, piece: usize) -> String {
        let mut stream = MarkdownStream::new(is_styled);
        let chars: Vec<char> = text.chars().collect();
        let mut shown = String::new();
        for piece in chars.chunks(piece) {
            shown += &stream.push(&piece.iter().collect::<String>(), width);
        }
        shown + &stream.finish(width)
    }

    #[test]
    fn columns_are_aligned() {
        for (text, expected) in [
            (
                "| Name | Size |\n|---|--:|\n| a | 1 |\n| long name | 1000 |\nend",
                "Name      │ Size\n──────────┼─────\na         │    1\nlong name │ 1000\nend\n",
            ),
            // Cut off by the end of the answer.
            ("|a|b|\n|-|-|\n|one|tw", "a   │ b\n────┼───\none │ tw\n"),
            ("|a|b|\n|-|-", "a │ b\n──┼──\n"),
            ("|a|b|\n|-", "|a|b|\n|-\n"),
            ("|a|b", "|a|b\n"),
            (
                "|left|mid|\n|:--|:-:|\n|x|y|\n|x|wide one|",
                "left │   mid\n─────┼─────────\nx    │    y\nx    │ wide one\n",
            ),
            (
                "| 名字 | ✅ |\n|-|-|\n| é | ⚠️ |\n| 👩‍👩‍👧 | b |",
                "名字 │ ✅\n─────┼───\né    │ ⚠️\n👩‍👩‍👧   │ b\n",
            ),
            // A bar within a cell; cells that are missing or too many.
            (
                "|a|b|\n|-|-|\n|`x || y`|z \\| `\\|`|\n|1|\n|1|2|3|",
                "a        │ b\n─────────┼──────────\n`x || y` │ z \\| `\\|`\n1        │\n1        │ 2 | 3\n",
            ),
            ("- x\n  | a | b |\n  |---|---|\n  | c | d |", "- x\n  a │ b\n  ──┼──\n  c │ d\n"),
            // No tables.
            ("|x| is\nabsolute", "|x| is\nabsolute\n"),
            ("|a|b|c|\n|-|-|\n", "|a|b|c|\n|-|-|\n"),
            ("|no heading\n|a|\n|-|\n|b|\n", "|no heading\na\n─\nb\n"),
            ("```\n|a|\n|-|\n```\n", "```\n|a|\n|-|\n```\n"),
        ] {
            for piece in [1, 3, 1000] {
                // The space behind an empty cell cannot be seen.
                let shown = shown(text, false, 80, piece);
                let lines: String =
                    shown.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
                assert_eq!(lines, expected, "{text:?} by {piece}");
            }
        }
        assert_eq!(
            shown("|a|`b\\|c`|\n|-|-|\n|**d**|e<br>f|", true, 80, 5),
            "\x1b[1ma\x1b[0m\x1b[2m │ \x1b[0m\x1b[1;36mb|c\x1b[0m\n\x1b[2m──┼────\x1b[0m\n\
             \x1b[1md\x1b[0m\x1b[2m │ \x1b[0me\n \x1b[2m │ \x1b[0mf\n"
        );
    }

    /// A row of one character gets all columns, so a small text could need a lot of memory.
    #[test]
    fn a_table_has_so_many_columns_and_lines_at_most() {
        let wide = |columns: usize| {
            let row = |cell: &str| format!("{}\n", cell.repeat(columns));
            row("|a") + &row("|-") + "|\n|b\n"
        };
        assert!(shown(&wide(MAX_COLUMNS), false, 400, 50).contains("a │ a"));
        let too_wide = wide(MAX_COLUMNS + 1);
        assert_eq!(shown(&too_wide, false, 400, 50), too_wide);
        let long = format!("|a\n|-\n{}|end\n", "|\n".repeat(1_500));
        assert!(shown(&long, false, 80, 500).ends_with("\n|\n|\n|end\n"));
        let endless = format!("|{}", "a".repeat(70_000));
        assert_eq!(shown(&endless, false, 80, 500), format!("{endless}\n"));
        let mut stream = MarkdownStream::new(false);
        assert_eq!(stream.push(&endless, 80), endless);
    }

    const OPTIONS: &str = "\
| Option | Type | Description |
|:-------|:----:|------------:|
| `--max-cost USD` | number | The turn ends when it has cost so much, if the price is known |
| `src/cli/run/markdown_table.rs` | path | 表格的每一列都对齐，宽字符也算在内 |
";

    const AT_80: &str = "
Option                          │  Type  │                           Description
────────────────────────────────┼────────┼──────────────────────────────────────
`--max-cost USD`                │ number │     The turn ends when it has cost so
                                │        │           much, if the price is known
`src/cli/run/markdown_table.rs` │  path  │    表格的每一列都对齐，宽字符也算在内
";
    const AT_40: &str = "
Option         │  Type  │    Description
───────────────┼────────┼───────────────
`--max-cost    │ number │  The turn ends
USD`           │        │    when it has
               │        │  cost so much,
               │        │   if the price
               │        │       is known
`src/cli/run/m │  path  │ 表格的每一列都
arkdown_table. │        │ 对齐，宽字符也
rs`            │        │         算在内
";
    const AT_30: &str = "
Option: `--max-cost USD`
  Type: number
  Description: The turn ends
    when it has cost so much,
    if the price is known

Option:
  `src/cli/run/markdown_table.rs`
  Type: path
  Description: 表格的每一列都
    对齐，宽字符也算在内
";

    #[test]
    fn cells_are_broken_where_the_terminal_is_narrow() {
        for (width, expected) in [(80, AT_80), (40, AT_40), (30, AT_30)] {
            assert_eq!(shown(OPTIONS, false, width, 7), expected[1..], "{width}");
        }
        let headings = shown("|One heading|Another one|\n|-|-|\n", false, 14, 1);
        assert_eq!(headings, "One heading:\n  Another one:\n");
    }

    proptest! {
        #[test]
        fn no_text_is_lost_and_no_line_is_too_long(
            rows in prop::collection::vec(
                prop::collection::vec("[a-e 一é✅]{0,30}", 1..6), 1..6),
            width in 1_usize..60,
            piece in 1_usize..9,
        ) {
            let row = |cells: &Vec<String>| format!("|{}|\n", cells.join("|"));
            let delimiter = "|-".repeat(rows[0].len());
            let body: String = rows[1..].iter().map(row).collect();
            let text = format!("{}{delimiter}|\n{body}", row(&rows[0]));
            let shown = shown(&text, false, width, piece);
            let count = |text: &str, char: char| text.chars().filter(|letter| *letter == char).count();
            for char in "abcde一é✅".chars() {
                prop_assert!(count(&shown, char) >= count(&text, char), "{char}: {shown}");
            }
            if shown.contains('─') {
                prop_assert!(shown.lines().all(|line| line.width() <= width), "{shown}");
            }
        }
    }
}
