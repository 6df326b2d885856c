//! The rung that overlooks typography: curly quotes, long dashes, odd spaces.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use super::exact::Pattern;
use super::rows::{carry, lines_of};
use super::{Answer, Found, MOST_NAMED, Miss, Query, Rung};

/// The most places that are looked at.
const MOST_TRIED: usize = 100;

/// The plain form of a character that is not.
fn plain(char: char) -> Option<&'static str> {
    Some(match char {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => "'",
        '\u{201c}'..='\u{201f}' | '\u{2033}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
        '\u{2026}' => "...",
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
        _ => return None,
    })
}

fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for char in text.chars() {
        match plain(char) {
            Some(plain) => folded.push_str(plain),
            None => folded.push(char),
        }
    }
    folded
}

/// Overlooks typography.
pub(super) fn folded<'a>(text: &str, query: &Query<'a>) -> Answer<'a> {
    if text.is_ascii() && query.old.is_ascii() {
        return None;
    }
    let old = fold(query.old);
    let folded = fold(text);
    let pattern = Pattern::new(&old, query.whole_lines);
    let first = pattern.starts(&folded, 0..folded.len()).next()?;
    // A second place may overlap the first.
    let second = pattern.starts(&folded, first + 1..folded.len()).take(1);
    let others = pattern.starts(&folded, 0..folded.len()).skip(1);
    // Both are in order, so one walk through the text says where they really are.
    let mut walk = Walk { text, at: 0, folded: 0 };
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut hits: Vec<_> = iter::once(first).chain(second).chain(others.take(MOST_TRIED)).collect();
    // Not all can be looked at: what fits may not be the only one.
    if hits.len() > MOST_TRIED {
        return None;
    }
    hits.sort_unstable();
    hits.dedup();
    for hit in hits {
        let start = walk.to(hit).filter(|it| query.within.contains(it));
        let mut ahead = Walk { ..walk };
        let end = start.and_then(|_| ahead.to(hit + old.len()));
        places.extend(start.zip(end).map(|(start, end)| start..end));
        if places.len() == MOST_NAMED {
            break;
        }
    }
    let place = places.first()?.clone();
    if places.len() > 1 {
        let starts: Vec<_> = places.iter().map(|it| it.start).collect();
        let count = starts.len();
        return Some(Err(Miss::Several { rung: Rung::Punctuation, starts, count }));
    }
    let (file, quoted) = (lines_of(&text[place.clone()]), lines_of(query.old));
    let new = carry(&file, &quoted, query.new, |line| Some(line.to_owned()))?;
    Some(Ok(Found { places: vec![place], new: Cow::Owned(new), rung: Rung::Punctuation }))
}

/// Goes through a text beside its folded form.
struct Walk<'t> {
    text: &'t str,
    at: usize,
    folded: usize,
}

impl Walk<'_> {
    /// Where in the text a place of the folded form is; `None` within a character.
    fn to(&mut self, folded: usize) -> Option<usize> {
        for char in self.text[self.at..].chars() {
            if self.folded >= folded {
                break;
            }
            self.folded += plain(char).map_or(char.len_utf8(), str::len);
            self.at += char.len_utf8();
        }
        (self.folded == folded).then_some(self.at)
    }
}
