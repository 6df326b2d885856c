//! Decodes server-sent events by the rules of the WHATWG (HTML Living Standard §9.2.6), with one
//! extension that some servers require: a field named `error` is an event of that name. Does no
//! I/O, incremental and bounded.

use std::time::Duration;

/// The usual limit for one event. A whole file in one tool call fits; a line that never ends does not.
const MAX_EVENT_BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field, empty if there was none.
    pub name: &'a str,
    /// The `data` fields, joined with line feeds. Invalid UTF-8 is replaced.
    pub data: &'a str,
}

/// An event exceeded the size limit, which is in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event exceeds {} MiB", .0 / 1024 / 1024)]
pub struct EventTooLarge(usize);

/// Decodes a stream, however it is cut into chunks.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The most bytes of an event; `None` for the usual limit.
    max_event_bytes: Option<usize>,
    /// The start of an incomplete line.
    partial: Vec<u8>,
    /// The last byte was a CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// False as long as a byte order mark may follow.
    is_started: bool,
    name: String,
    data: Vec<u8>,
    has_data: bool,
    /// The last `id` field.
    id: Option<String>,
    /// The last `retry` field.
    retry: Option<Duration>,
}

impl Decoder {
    /// Creates a decoder of events with at most this many bytes.
    pub fn with_limit(max_event_bytes: usize) -> Decoder {
        Decoder { max_event_bytes: Some(max_event_bytes), ..Decoder::default() }
    }

    /// The id with which the stream can be resumed after the last event, if the server has sent one.
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// How long the server asks to wait before the stream is opened again.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Processes bytes and passes on each event that they complete.
    ///
    /// # Errors
    /// Fails if an event gets too large. The decoder must not be used afterwards.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<(), EventTooLarge> {
        loop {
            if self.after_cr && !bytes.is_empty() {
                self.after_cr = false;
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let Some(end) = bytes.iter().position(|byte| b"\n\r".contains(byte)) else { break };
            let (line, rest) = bytes.split_at(end);
            if self.partial.is_empty() {
                self.push_line(line, &mut on_event);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.push_line(&whole, &mut on_event);
                whole.clear();
                self.partial = whole;
            }
            bytes = &rest[1..];
            self.after_cr = rest[0] == b'\r';
            self.check_size()?;
        }
        self.partial.extend_from_slice(bytes);
        self.check_size()
    }

    /// Ends the stream. An event that only lacks its blank line still counts: some servers close
    /// the connection right after the last line.
    pub fn finish(&mut self, mut on_event: impl FnMut(Event<'_>)) {
        let last = std::mem::take(&mut self.partial);
        if !last.is_empty() {
            self.push_line(&last, &mut on_event);
        }
        self.dispatch(&mut on_event);
    }

    fn check_size(&self) -> Result<(), EventTooLarge> {
        let most = self.max_event_bytes.unwrap_or(MAX_EVENT_BYTES);
        let is_too_large = self.partial.len() + self.data.len() > most;
        if is_too_large { Err(EventTooLarge(most)) } else { Ok(()) }
    }

    fn push_line(&mut self, mut line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        if !self.is_started {
            self.is_started = true;
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(on_event);
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, separated) = line.split_at(colon);
        let spaced = separated.strip_prefix(b":").unwrap_or(separated);
        let value = spaced.strip_prefix(b" ").unwrap_or(spaced);
        match field {
            b"data" => self.append(value),
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"error" => {
                "error".clone_into(&mut self.name);
                self.append(value);
            }
            b"id" if !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" => {
                let digits = std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'));
                let millis = digits.and_then(|digits| digits.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            // Comments (an empty field name) and unknown fields.
            _ => {}
        }
    }

    fn append(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.has_data = true;
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        if self.has_data && !self.data.is_empty() {
            on_event(Event { name: &self.name, data: &String::from_utf8_lossy(&self.data) });
        }
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder
                .push(chunk, |event| events.push((event.name.to_owned(), event.data.to_owned())))
                .unwrap();
        }
        decoder.finish(|event| events.push((event.name.to_owned(), event.data.to_owned())));
        events
    }

    #[track_caller]
    fn check(stream: &str, expected: &[(&str, &str)]) {
        for ending in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', ending);
            let decoded = decode([stream.as_bytes()]);
            let events: Vec<_> =
                decoded.iter().map(|(name, data)| (name.as_str(), data.as_str())).collect();
            assert_eq!(events, expected, "line ending {ending:?}");
        }
    }

    #[test]
    fn data_lines_are_joined_and_blank_lines_end_an_event() {
        check("data: a\ndata: b\n\ndata:c\n\n", &[("", "a\nb"), ("", "c")]);
    }

    #[test]
    fn only_one_space_after_the_colon_is_dropped() {
        check("data:  a\n\ndata:b\n\n", &[("", " a"), ("", "b")]);
    }

    #[test]
    fn comments_ids_and_unknown_fields_are_skipped() {
        check(": ping\nid: 1\nretry: 5\nwhat\ndata: a\n\n: ping\n\n", &[("", "a")]);
    }

    #[test]
    fn the_last_id_and_the_last_valid_retry_are_kept() {
        let mut decoder = Decoder::default();
        assert_eq!((decoder.last_id(), decoder.retry()), (None, None));
        decoder.push(b"id: 1\nretry: 5\ndata:\n\nid: a b\nretry: x\n\n", |_| {}).unwrap();
        assert_eq!(decoder.last_id(), Some("a b"));
        assert_eq!(decoder.retry(), Some(Duration::from_millis(5)));
    }

    #[test]
    fn an_event_has_a_name() {
        check("event: error\ndata: {}\n\ndata: x\n\n", &[("error", "{}"), ("", "x")]);
    }

    #[test]
    fn a_field_named_error_is_an_event_of_that_name() {
        check("error: {\"code\":400}\n\n", &[("error", "{\"code\":400}")]);
    }

    #[test]
    fn empty_data_is_ignored() {
        check("data\n\ndata:\n\n", &[]);
    }

    #[test]
    fn a_stream_that_ends_without_a_blank_line_loses_nothing() {
        check("data: a\n\ndata: b", &[("", "a"), ("", "b")]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_once() {
        check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[("", "a")]);
    }

    #[test]
    fn an_endless_event_is_an_error() {
        let mut decoder = Decoder::default();
        let chunk = vec![b'x'; 1024 * 1024];
        let results: Vec<_> = (0..40).map(|_| decoder.push(&chunk, |_| {})).collect();
        assert_eq!(results.last(), Some(&Err(EventTooLarge(MAX_EVENT_BYTES))));
    }

    proptest! {
        #[test]
        fn how_the_stream_is_cut_does_not_matter(
            stream in "(data: ?[a-zä€😀]{0,8}|event: e|: c|\r|\n|\r\n){0,30}",
            cuts in proptest::collection::vec(1_usize..9, 0..40),
        ) {
            let bytes = stream.as_bytes();
            let mut rest = bytes;
            let mut chunks = Vec::new();
            for cut in cuts {
                let (chunk, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(chunk);
                rest = tail;
            }
            chunks.push(rest);
            prop_assert_eq!(decode(chunks), decode([bytes]));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            decode([bytes.as_slice()]);
        }
    }
}
