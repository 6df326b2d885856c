//! The part of HTTP/1.1 that a model server needs: parsing requests and formatting responses.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::Recorded;

const BODY_LIMIT: usize = 64 << 20;
const LINE_LIMIT: usize = 64 << 10;

pub const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Reads the next request and returns its method and the rest, or `None` if the client has closed
/// the connection. An error of kind `InvalidData` means that the request is invalid and should be
/// answered.
pub fn read_request(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<(String, Recorded)>> {
    if reader.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let line = read_line(reader)?;
    let [method, path, _version] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(invalid("this is not an HTTP request"));
    };
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header without `:`"))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    if header(&headers, "expect").is_some_and(|it| it.eq_ignore_ascii_case("100-continue")) {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let body = read_body(reader, &headers)?;
    let body = match serde_json::from_slice(&body) {
        Ok(json) => json,
        Err(_) if body.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(&body).into_owned()),
    };
    Ok(Some((method.to_owned(), Recorded { path: path.to_owned(), headers, body })))
}

fn read_body(reader: &mut impl BufRead, headers: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if header(headers, "transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked")) {
        loop {
            let line = read_line(reader)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| invalid("bad chunk size"))?;
            if size == 0 {
                while !read_line(reader)?.is_empty() {}
                return Ok(body);
            }
            append(reader, size, &mut body)?;
            if !read_line(reader)?.is_empty() {
                return Err(invalid("a chunk is longer than its size"));
            }
        }
    }
    let length = header(headers, "content-length").unwrap_or("0");
    append(reader, length.parse().map_err(|_| invalid("bad content-length"))?, &mut body)?;
    Ok(body)
}

fn append(reader: &mut impl BufRead, size: usize, body: &mut Vec<u8>) -> io::Result<()> {
    let start = body.len();
    if size > BODY_LIMIT - start {
        return Err(invalid("the body is larger than 64 MiB"));
    }
    body.resize(start + size, 0);
    reader.read_exact(&mut body[start..])
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.take(LINE_LIMIT as u64).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
        None if line.len() < LINE_LIMIT => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(invalid("a line is too long")),
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let header = headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
    header.map(|(_, value)| value.as_str())
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Formats a complete response. It has no reason phrase, because clients ignore it (RFC 9112,
/// section 4).
pub fn answer(
    status: u16,
    content_type: &str,
    headers: &BTreeMap<String, String>,
    body: &str,
) -> Vec<u8> {
    let length = body.len();
    let mut response = format!(
        "HTTP/1.1 {status} \r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n"
    );
    for (name, value) in headers {
        response.extend([name, ": ", value, "\r\n"]);
    }
    response.extend(["\r\n", body]);
    response.into_bytes()
}

pub fn json_answer(status: u16, body: &Value) -> Vec<u8> {
    answer(status, "application/json", &BTreeMap::new(), &body.to_string())
}

pub fn error_answer(status: u16, message: &str) -> Vec<u8> {
    json_answer(status, &json!({ "error": { "message": message, "type": "scripted_model" } }))
}

/// Formats a server-sent event as a chunk.
pub fn event(data: &Value) -> Vec<u8> {
    chunk(&format!("data: {data}\n\n"))
}

/// Formats a chunk. The text must not be empty, because an empty chunk ends the body.
pub fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
