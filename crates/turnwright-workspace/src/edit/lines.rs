//! A text under edit: the words with `\n` everywhere, and beside them how each line really ends,
//! so that lines that nobody touches keep their ends.

use std::ops::Range;
use std::time::Instant;

use similar::DiffOp;

use super::align::align;
use super::spots::Spot;

/// Above this product of lines two regions are not compared line by line.
const MOST_PAIRS: usize = 4_000_000;

/// How a line ends. A lone carriage return is a character like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lf,
    CrLf,
}

#[derive(Clone, Debug)]
enum Ends {
    /// All alike, or none yet.
    Same(End),
    /// One for each `\n` of the text.
    Each(Vec<End>),
}

/// The text.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    text: String,
    ends: Ends,
}

/// The lines that a few neighbouring replacements touch, whole.
struct Region {
    bytes: Range<usize>,
    new: String,
    /// Up to where `new` holds what is to be there.
    copied: usize,
    /// Whether its last line ends behind all that is replaced: that end stays.
    keeps_end: bool,
}

impl Lines {
    pub(super) fn new(text: &str) -> Lines {
        if memchr::memchr(b'\r', text.as_bytes()).is_none() {
            return Lines { text: text.to_owned(), ends: Ends::Same(End::Lf) };
        }
        let end = |at: usize| match text.as_bytes()[..at].last() {
            Some(b'\r') => End::CrLf,
            _ => End::Lf,
        };
        let ends: Vec<_> = memchr::memchr_iter(b'\n', text.as_bytes()).map(end).collect();
        let ends = match ends.first() {
            None => Ends::Same(End::Lf),
            Some(first) if ends.iter().all(|it| it == first) => Ends::Same(*first),
            Some(_) => Ends::Each(ends),
        };
        Lines { text: normal(text), ends }
    }

    /// The words, each line with `\n`.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Where the text has no line end yet, new ones are like the first of this.
    pub(super) fn learn_end(&mut self, new: &str) {
        if memchr::memchr(b'\n', self.text.as_bytes()).is_none() {
            let first = new.find('\n').map(|at| new[..at].ends_with('\r'));
            let end = if first == Some(true) { End::CrLf } else { End::Lf };
            self.ends = Ends::Same(end);
        }
    }

    /// Gives the last line an end, so that all lines are alike; says whether it had none.
    pub(super) fn close_last(&mut self) -> bool {
        let is_open = !self.text.is_empty() && !self.text.ends_with('\n');
        if is_open {
            self.text.push('\n');
            if let Ends::Each(ends) = &mut self.ends {
                ends.extend(ends.last().copied());
            }
        }
        is_open
    }

    /// Takes the last line's end away.
    pub(super) fn open_last(&mut self) {
        if self.text.pop().is_some()
            && let Ends::Each(ends) = &mut self.ends
        {
            ends.pop();
        }
    }

    /// Puts `new` in each of these places, which are in order and do not overlap. Says which lines
    /// that has changed.
    pub(super) fn replace(&mut self, places: &[Range<usize>], new: &str) -> Vec<Spot> {
        let regions = self.regions(places, new);
        let mut ends = Vec::new();
        let mut spots = Vec::new();
        let (mut done, mut line, mut new_line) = (0, 0, 0);
        for Region { bytes, new, keeps_end, .. } in &regions {
            let untouched = &self.text[done..bytes.start];
            let count = breaks(untouched);
            let old = &self.text[bytes.clone()];
            if let Ends::Each(all) = &self.ends {
                ends.extend_from_slice(&all[line..line + count]);
                let before = &all[line + count..line + count + breaks(old)];
                self::ends(old, before, new, all[0], &mut ends);
                if let (true, true, Some(last), Some(own)) =
                    (*keeps_end, new.ends_with('\n'), ends.last_mut(), before.last())
                {
                    *last = *own;
                }
            }
            line += count;
            new_line += count;
            let spot =
                Spot { before: line..line + rows(old), after: new_line..new_line + rows(new) };
            line += breaks(old);
            new_line += breaks(new);
            done = bytes.end;
            spots.push(spot.trimmed(old, new));
        }
        if let Ends::Each(all) = &mut self.ends {
            ends.extend_from_slice(&all[line..]);
            *all = ends;
        }
        self.put(&regions);
        spots
    }

    fn put(&mut self, regions: &[Region]) {
        // In place, as most edits are: many edits of a large text copy it no more than they must.
        if let [Region { bytes, new, .. }] = regions {
            return self.text.replace_range(bytes.clone(), new);
        }
        let mut text = String::with_capacity(self.text.len());
        let mut done = 0;
        for Region { bytes, new, .. } in regions {
            text.push_str(&self.text[done..bytes.start]);
            text.push_str(new);
            done = bytes.end;
        }
        text.push_str(&self.text[done..]);
        self.text = text;
    }

    fn regions(&self, places: &[Range<usize>], new: &str) -> Vec<Region> {
        let bytes = self.text.as_bytes();
        let mut regions: Vec<Region> = Vec::new();
        for place in places {
            let end = regions.last().map_or(0, |it| it.bytes.end);
            if regions.is_empty() || place.start >= end {
                self.close(regions.last_mut());
                let start = memchr::memrchr(b'\n', &bytes[..place.start]).map_or(0, |it| it + 1);
                regions.push(Region {
                    bytes: start..start,
                    new: String::new(),
                    copied: start,
                    keeps_end: false,
                });
            }
            if let Some(region) = regions.last_mut() {
                region.new.push_str(&self.text[region.copied..place.start]);
                region.new.push_str(new);
                region.copied = place.end;
                if place.end >= region.bytes.end {
                    region.bytes.end = end_of_line(bytes, place, new);
                    let joins = !region.new.is_empty() && !region.new.ends_with('\n');
                    if joins && region.bytes.end == place.end {
                        // What is left of a line before goes on in the next one.
                        region.bytes.end = line_end(bytes, place.end);
                    }
                }
            }
        }
        self.close(regions.last_mut());
        regions
    }

    /// The rest of the last line belongs to a region, too.
    fn close(&self, region: Option<&mut Region>) {
        if let Some(region) = region {
            region.keeps_end = region.copied < region.bytes.end;
            region.new.push_str(&self.text[region.copied..region.bytes.end]);
            region.copied = region.bytes.end;
        }
    }

    /// The text with every line's own end.
    pub(super) fn into_text(self) -> String {
        match self.ends {
            Ends::Same(End::Lf) => self.text,
            Ends::Same(End::CrLf) => self.text.replace('\n', "\r\n"),
            Ends::Each(ends) => {
                let mut text = String::with_capacity(self.text.len() + ends.len());
                let mut ends = ends.into_iter();
                for line in self.text.split_inclusive('\n') {
                    let body = line.strip_suffix('\n');
                    text.push_str(body.unwrap_or(line));
                    if body.is_some() {
                        text.push_str(if ends.next() == Some(End::CrLf) { "\r\n" } else { "\n" });
                    }
                }
                text
            }
        }
    }
}

/// The text with `\n` for every line end.
pub(super) fn normal(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// How many lines end in it.
pub(super) fn breaks(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

/// How many lines it has, whether the last one ends or not.
fn rows(text: &str) -> usize {
    breaks(text) + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// Where the last line ends that a replacement touches.
fn end_of_line(bytes: &[u8], place: &Range<usize>, new: &str) -> usize {
    let begins_line = |at: usize| at == 0 || bytes[at - 1] == b'\n';
    // Whole lines for whole lines: the next one is not touched.
    let is_whole = new.ends_with('\n') || new.is_empty() && begins_line(place.start);
    if begins_line(place.end) && is_whole {
        return place.end;
    }
    line_end(bytes, place.end)
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    memchr::memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |it| from + it + 1)
}

/// The ends of new lines: a line that was there keeps its own, a changed one too, and an added one
/// takes that of the line before.
fn ends(old: &str, before: &[End], new: &str, first: End, ends: &mut Vec<End>) {
    let old: Vec<_> = old.split_inclusive('\n').collect();
    let new: Vec<_> = new.split_inclusive('\n').collect();
    for op in compare(&old, &new) {
        let (old_index, old_count) = (op.old_range().start, op.old_range().len());
        for (number, line) in new[op.new_range()].iter().enumerate() {
            if line.ends_with('\n') {
                let own = before.get(old_index + number).filter(|_| number < old_count);
                ends.push(own.or(ends.last()).copied().unwrap_or(first));
            }
        }
    }
}

/// What has become of these lines. Regions that are too large to compare count as rewritten, but
/// for their common beginning and end.
pub(super) fn compare(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    compare_until(old, new, None)
}

/// The same for regions of any size, as well as it can be done until then.
pub(super) fn compare_until(old: &[&str], new: &[&str], until: Option<Instant>) -> Vec<DiffOp> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_len, new_len) = (old_rest.len() - tail, new_rest.len() - tail);
    let mut ops = vec![DiffOp::Equal { old_index: 0, new_index: 0, len: head }];
    if until.is_some() || old_len.saturating_mul(new_len) <= MOST_PAIRS {
        let (old, new) = (&old_rest[..old_len], &new_rest[..new_len]);
        let middle = align(old, new, until);
        ops.extend(middle.into_iter().map(|it| shifted(it, head)));
    } else {
        ops.push(DiffOp::Replace { old_index: head, old_len, new_index: head, new_len });
    }
    let (old_index, new_index) = (head + old_len, head + new_len);
    ops.push(DiffOp::Equal { old_index, new_index, len: tail });
    ops
}

fn shifted(op: DiffOp, by: usize) -> DiffOp {
    match op {
        DiffOp::Equal { old_index, new_index, len } => {
            DiffOp::Equal { old_index: old_index + by, new_index: new_index + by, len }
        }
        DiffOp::Delete { old_index, old_len, new_index } => {
            DiffOp::Delete { old_index: old_index + by, old_len, new_index: new_index + by }
        }
        DiffOp::Insert { old_index, new_index, new_len } => {
            DiffOp::Insert { old_index: old_index + by, new_index: new_index + by, new_len }
        }
        DiffOp::Replace { old_index, old_len, new_index, new_len } => DiffOp::Replace {
            old_index: old_index + by,
            old_len,
            new_index: new_index + by,
            new_len,
        },
    }
}
