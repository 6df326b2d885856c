//! Fetches from real servers on this machine, and converts hostile pages.

use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::address_guard::LookupFn;
use super::html::markdown::to_markdown;
use super::html::read_page;
use super::page::{PageCache, WebPage, to_page, wrap_untrusted};
use super::search::SearchService;
use super::{FetchError, FetchLimits, FetchedBody, WebFetcher, address_guard, parse_url};

/// Starts a server that answers each request with `play`, which gets its path. Returns its address
/// and the requests it receives.
fn serve(
    play: impl Fn(&str, &mut TcpStream) + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            // A TLS handshake gets its answer at once.
            let is_done = |bytes: &[u8]| bytes.ends_with(b"\r\n\r\n") || bytes == [0x16];
            while !is_done(&request) && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                request.push(byte[0]);
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            seen.lock().push(request);
            play(&path, &mut stream);
        }
    });
    (host, requests)
}

fn answer(stream: &mut TcpStream, head: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A client that has read enough closes the connection.
    stream.write_all(body).ok();
}

fn allowing(host: &str, limits: FetchLimits) -> WebFetcher {
    let web = WebFetcher::with(limits, Arc::new(address_guard::system_lookup));
    web.set_allowed(&[host.to_owned()]);
    web
}

async fn get(web: &WebFetcher, url: &str) -> Result<FetchedBody, FetchError> {
    web.fetch(parse_url(url).unwrap()).await
}

fn answering(address: &str) -> LookupFn {
    let address: IpAddr = address.parse().unwrap();
    Arc::new(move |_| Ok(vec![address]))
}

fn small() -> FetchLimits {
    FetchLimits { declared_bytes: 1_000, streamed_bytes: 10_000, ..FetchLimits::default() }
}

#[tokio::test]
async fn a_request_has_plain_headers_and_the_page_its_type() {
    let (host, requests) =
        serve(|_, stream| answer(stream, "200 OK\r\ncontent-type: text/plain", b"hello"));
    let fetched =
        get(&allowing(&host, FetchLimits::default()), &format!("http://{host}/a?b#c")).await;
    let page = to_page(&fetched.unwrap(), false);
    assert_eq!(
        (page.text.as_str(), page.media_type.as_str(), page.status),
        ("hello", "text/plain", 200)
    );
    let request = requests.lock()[0].clone();
    assert!(request.starts_with("GET /a?b HTTP/1.1\r\n"), "{request}");
    for part in ["accept: text/markdown, text/plain", "accept-encoding: gzip", "turnwright/"] {
        assert!(request.contains(part), "{part}: {request}");
    }
    assert!(!request.contains("cookie") && !request.contains("referer"), "{request}");
}

#[tokio::test]
async fn refused_hosts_are_not_connected_to() {
    let (host, requests) = serve(|_, stream| answer(stream, "200 OK", b"secret"));
    let port = host.rsplit(':').next().unwrap();
    let web = WebFetcher::with(FetchLimits::default(), answering("127.0.0.1"));
    for url in [
        format!("http://{host}/"),
        format!("http://localhost:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        // This name resolves to a private address.
        format!("http://rebinding.example:{port}/"),
    ] {
        let error = get(&web, &url).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked { .. }), "{url}: {error}");
        assert!(error.to_string().contains(&format!(":{port}\"]` in `[web]`")), "{error}");
    }
    assert_eq!(requests.lock().len(), 0);
}

#[tokio::test]
async fn a_service_with_its_usual_address_must_be_public_and_its_key_is_not_sent_in_the_open() {
    let web = WebFetcher::with(FetchLimits::default(), answering("127.0.0.1"));
    for (address, key, expected) in [
        (None, Some("k"), "a loopback address"),
        (None, None, "exa needs a key"),
        (Some("http://10.0.0.7/search"), Some("k"), "only with encryption"),
        (Some("http://127.0.0.1:9/search"), Some("k"), "nothing answers at 127.0.0.1:9"),
    ] {
        let mut service = SearchService::new("exa", address).unwrap();
        service.key = key.map(Into::into);
        let error = service.search(&web, "x").await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn an_allowed_name_leads_to_the_server_and_another_port_does_not() {
    let (host, _) = serve(|_, stream| answer(stream, "200 OK", b"hello"));
    let port = host.rsplit(':').next().unwrap();
    let local = format!("localhost:{port}");
    let web = allowing(&local, FetchLimits::default());
    assert_eq!(get(&web, &format!("http://{local}/")).await.unwrap().bytes, b"hello");
    assert!(get(&web, "http://localhost:1/").await.is_err());
}

#[tokio::test]
async fn redirects_are_followed_within_the_host_only_and_checked_at_each_hop() {
    let (host, requests) = serve(|path, stream| {
        let to = |target: &str| format!("302 Found\r\nlocation: {target}");
        match path {
            "/once" => answer(stream, &to("/page"), b""),
            "/cloud" => answer(stream, &to("http://169.254.169.254/latest/meta-data/"), b""),
            "/inside" => answer(stream, &to("/cloud"), b""),
            "/file" => answer(stream, &to("file:///etc/passwd"), b""),
            "/named" => answer(stream, &to("http://me:word@a.example/"), b""),
            "/other" => answer(stream, &to("https://other.example/x"), b""),
            "/loop" => answer(stream, &to("/loop"), b""),
            _ => answer(stream, "200 OK", b"page"),
        }
    });
    let web = allowing(&host, FetchLimits::default());
    let at = |path: &str| format!("http://{host}{path}");
    let page = get(&web, &at("/once")).await.unwrap();
    assert_eq!((page.url.path(), page.bytes.as_slice()), ("/page", &b"page"[..]));
    for path in ["/cloud", "/inside"] {
        let error = get(&web, &at(path)).await.unwrap_err().to_string();
        assert!(error.contains("169.254.169.254 is a link-local address"), "{error}");
    }
    for path in ["/file", "/named"] {
        let error = get(&web, &at(path)).await.unwrap_err().to_string();
        assert!(
            error.contains("it redirects to something that is not an http")
                && !error.contains("etc")
        );
    }
    let other = get(&web, &at("/other")).await.unwrap();
    assert_eq!(other.redirect.as_deref(), Some("https://other.example/x"));
    requests.lock().clear();
    let error = get(&web, &at("/loop")).await.unwrap_err();
    assert!(matches!(error, FetchError::TooManyRedirects { .. }), "{error}");
    assert_eq!(requests.lock().len(), 6);
}

#[tokio::test]
async fn bodies_end_at_the_limit_even_if_they_were_compressed() {
    let (host, _) = serve(|path, stream| match path {
        "/long" => answer(stream, "200 OK\r\ncontent-type: text/plain", &vec![b'x'; 50_000]),
        "/endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").unwrap();
            while stream.write_all(&[b'x'; 1_000]).is_ok() {}
        }
        _ => {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            for _ in 0..64 {
                packed.write_all(&vec![b'0'; 1024 * 1024]).unwrap();
            }
            let bomb = packed.finish().unwrap();
            assert!(bomb.len() < 100_000);
            answer(stream, "200 OK\r\ncontent-encoding: gzip\r\ncontent-type: text/plain", &bomb);
        }
    });
    let web = allowing(&host, small());
    for (path, length) in [("/long", 1_000), ("/endless", 10_000), ("/bomb", 10_000)] {
        let fetched = get(&web, &format!("http://{host}{path}")).await.unwrap();
        assert!(fetched.is_truncated, "{path}");
        assert_eq!(fetched.bytes.len(), length, "{path}");
    }
}

#[tokio::test]
async fn a_content_encoding_that_means_nothing_is_ignored() {
    let (host, _) = serve(|path, stream| {
        let head =
            format!("200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: {}", &path[1..]);
        answer(stream, &head, b"hello");
    });
    let web = allowing(&host, FetchLimits::default());
    for encoding in ["utf-8", "none", "identity", "8bit"] {
        let fetched = get(&web, &format!("http://{host}/{encoding}")).await.unwrap();
        assert_eq!(fetched.bytes, b"hello", "{encoding}");
    }
    for encoding in ["br", "Zstd", "utf-8,deflate"] {
        let error = get(&web, &format!("http://{host}/{encoding}")).await.unwrap_err();
        assert!(matches!(error, FetchError::UnsupportedEncoding(_)), "{encoding}: {error}");
    }
}

#[tokio::test]
async fn failures_are_named() {
    let (host, _) = serve(|path, stream| match path {
        "/slow" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx").unwrap();
            // Waits until the other side closes the connection.
            drop(stream.read(&mut [0]));
        }
        "/packed" => answer(stream, "200 OK\r\ncontent-encoding: br", b"??"),
        _ => answer(stream, "nonsense", b""),
    });
    let limits = FetchLimits { total: Duration::from_millis(300), ..FetchLimits::default() };
    let web = allowing(&host, limits);
    let error = get(&web, &format!("http://{host}/slow")).await.unwrap_err();
    assert!(matches!(error, FetchError::Timeout { .. }), "{error}");
    let web = allowing(&host, FetchLimits::default());
    let error = get(&web, &format!("http://{host}/packed")).await.unwrap_err();
    assert!(matches!(error, FetchError::UnsupportedEncoding(_)), "{error}");
    let error = get(&web, &format!("http://{host}/odd")).await.unwrap_err();
    assert!(matches!(error, FetchError::RequestFailed { .. }), "{error}");
    // The server does not speak TLS.
    let error = get(&web, &format!("https://{host}/")).await.unwrap_err();
    assert!(matches!(error, FetchError::Tls { .. }), "{error:?}");
    // This port is not ephemeral, so no other test can get it.
    let closed = "127.0.0.1:9".to_owned();
    let error = get(&allowing(&closed, FetchLimits::default()), &format!("http://{closed}/")).await;
    assert!(matches!(error, Err(FetchError::ConnectionRefused(_))), "{error:?}");
    let nobody = WebFetcher::with(
        FetchLimits::default(),
        Arc::new(|_| Err(std::io::Error::other("no such"))),
    );
    let error = get(&nobody, "http://nobody.example/").await.unwrap_err().to_string();
    assert_eq!(error, "nobody.example was not found: no such");
}

#[tokio::test]
async fn a_proxy_itself_is_no_page() {
    let mut web = WebFetcher::with(FetchLimits::default(), answering("93.184.216.34"));
    web.set_proxies(vec!["proxy.example".to_owned()]);
    assert!(web.check(&parse_url("http://proxy.example/").unwrap()).is_err());
}

fn page_from(kind: &str, bytes: &[u8], raw: bool) -> WebPage {
    let fetched = FetchedBody {
        url: parse_url("https://a.example/docs/page").unwrap(),
        status: 200,
        content_type: kind.to_owned(),
        bytes: bytes.to_vec(),
        length: Some(bytes.len() as u64),
        is_truncated: false,
        redirect: None,
    };
    to_page(&fetched, raw)
}

fn markdown(html: &str) -> String {
    page_from("text/html", html.as_bytes(), false).text
}

#[test]
fn html_becomes_markdown_without_what_is_not_for_reading() {
    let html = r##"<!DOCTYPE html><html><head><title>A &amp; B</title><style>p{}</style>
        <script>if (a < b) document.write("<p>no</p>")</script></head>
        <body style="display:none"><nav><ul><li><a href="/">Home</a></ul></nav>
        <h1>Head</h1><p>One <b>bold</b> and <a href="../x?a=1&amp;b=2">link</a>, <a href="#top">top</a>.<p hidden>no<p>Two<!-- no <p>no --></p><div style="Display : None"><p>no</div>
        <span aria-hidden=true>no</span><svg><text>no</text></svg><noscript>no</noscript>
        <template><p>no</template><iframe src="x">no</iframe>
        <ul><li>a<ul><li>b</ul><li>c</ul>
        <pre><code class="language-rust">fn f() -&gt; u8 {
    1 &lt; 2
}</code></pre>
        <table><thead><tr><th>N<th>V</thead><tr><td>a|b<td><p>1<p>2<tr><td>c<td></table>
        <table><tr><td>left<td>right</table>
        <img src="data:x" alt="no"><img src="/i.png" alt="Alt"><a href="javascript:x">js</a> 1 < 2</body>"##;
    let page = page_from("text/html; charset=utf-8", html.as_bytes(), false);
    assert_eq!(page.title.as_deref(), Some("A & B"));
    expect_test::expect![[r"
        # Head

        One **bold** and [link](https://a.example/x?a=1&b=2), top.

        Two

        - a
          - b
        - c

        ```rust
        fn f() -> u8 {
            1 < 2
        }
        ```

        | N | V |
        | --- | --- |
        | a\|b | 1 2 |
        | c |  |

        left | right

        ![Alt](https://a.example/i.png)js 1 < 2"]]
    .assert_eq(&page.text);
    let raw = page_from("text/html", html.as_bytes(), true);
    assert!(raw.text.contains("<script>") && raw.title.is_some());
}

#[test]
fn sloppy_html_keeps_its_readable_text() {
    for (html, words) in [
        ("<b><i>one</b> two</i> three", vec!["one", "two", "three"]),
        ("<div>one</span></p></table>two", vec!["one", "two"]),
        ("one <two three", vec!["one"]),
        ("a < b > c << d", vec!["a", "b", "c", "d"]),
        ("<p title='<nav>'>one", vec!["one"]),
        ("<td>one<tr>two<li>three", vec!["one", "two", "three"]),
        ("<nav>no</nav>one<nav><nav></nav></nav>two", vec!["one", "two"]),
        ("<p hidden>no<div>one</div>", vec!["one"]),
        ("<svg><script>no</script></svg>one", vec!["one"]),
        ("<script>no</scrip></SCRIPT >one", vec!["one"]),
        ("<x-y-z>one</x-y-z><font color=red>two", vec!["one", "two"]),
        ("<!-->one<!-- no -->two<?php no ?>three<![CDATA[no]]>", vec!["two", "three"]),
        ("<table><tr hidden><td>no<tr><td>one</table>two", vec!["one", "two"]),
    ] {
        let text = markdown(html);
        let at: Vec<_> = words.iter().map(|word| text.find(word)).collect();
        assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{html}: {text}");
        assert!(!text.contains("no"), "{html}: {text}");
    }
}

#[test]
fn no_page_is_too_deep_or_too_large() {
    let many = 20_000;
    let attributes: String =
        (0..200_000).flat_map(|number| [" a".to_owned(), number.to_string()]).collect();
    let rows = "<tr><td>x".repeat(20_000);
    for html in [
        "<div>".repeat(100_000),
        "<b>".repeat(many),
        "<b><p>".repeat(many),
        "<ul><li>".repeat(many),
        "<blockquote>x<br>".repeat(many),
        "<table><tr><td>".repeat(many),
        "<table><tr><th>".repeat(many),
        format!("<table>{}", "<tr><th colspan=99 rowspan=9>x".repeat(many)),
        "<a href=x>".repeat(many),
        "<p><font color=x>".repeat(many),
        "<b><div></b>".repeat(many),
        "<div></x>".repeat(many),
        "</x>".repeat(many),
        "<svg>".repeat(many),
        "<p hidden>".repeat(many),
        "<!--".repeat(many),
        "<script>".repeat(many),
        "<a href=\"".repeat(many),
        "<".repeat(many),
        "<b>x</b>".repeat(100_000),
        "<a x>y</a>".repeat(many),
        format!("<p{attributes}>x"),
        format!("<table><tr>{}{rows}</table>", "<th>x".repeat(20_000)),
        format!("<table><tr><th>{}{rows}</table>", "x".repeat(200_000)),
        format!("{}<pre>{}", "<blockquote>".repeat(many), "x\n".repeat(many)),
    ] {
        let text = markdown(&format!("{html}end"));
        assert!(text.len() < 40 * 1024 * 1024, "{}", &html[..20]);
    }
}

#[test]
fn nesting_takes_little_of_the_stack() {
    let small = std::thread::Builder::new().stack_size(512 * 1024);
    let reader = small.spawn(|| {
        let base = parse_url("https://a.example/").unwrap();
        for tag in ["<div>", "<b>", "<b><p>", "<ul><li>", "<table><tr><td>", "<blockquote>", "<x>"]
        {
            let tree = read_page(&format!("{}end", tag.repeat(100_000)), &base);
            assert!(tree.cut || to_markdown(&tree.root).contains("end"), "{tag}");
        }
    });
    reader.unwrap().join().unwrap();
}

#[test]
fn characters_are_read_as_the_page_says() {
    let table: &[(&str, &[u8], &str)] = &[
        ("text/plain; charset=iso-8859-1", b"caf\xe9", "café"),
        ("text/plain; Charset=\"Shift_JIS\"", b"\x93\xfa\x96\x7b", "日本"),
        ("text/plain", "caf\u{e9}".as_bytes(), "café"),
        ("text/plain; charset=nonsense", "café".as_bytes(), "café"),
        ("text/plain; charset=iso-8859-1", b"\xef\xbb\xbfcaf\xc3\xa9", "café"),
        ("text/plain", b"\xff\xfec\0a\0f\0", "caf"),
        ("text/plain; charset=utf-16le", b"c\0a\0f\0", "caf"),
        ("text/plain", b"c\0a\0f\0", "caf"),
        ("text/html", b"<meta charset=windows-1251><p>\xcf\xf0\xe8", "При"),
        (
            "text/html",
            b"<meta http-equiv=x content='text/html; charset=koi8-r'>\xf0\xd2\xc9",
            "При",
        ),
        (
            "application/xml",
            b"<?xml version='1.0' encoding='iso-8859-2'?><t>\xb1</t>",
            "<?xml version='1.0' encoding='iso-8859-2'?><t>ą</t>",
        ),
        (
            "application/xhtml+xml",
            b"<?xml version='1.0'?><meta charset=windows-1251><p data-encoding=utf-8>\xcf\xf0\xe8",
            "При",
        ),
        ("text/plain", b"un caf\xe9 tr\xe8s fran\xe7ais", "un café très français"),
    ];
    for (kind, bytes, expected) in table {
        assert_eq!(page_from(kind, bytes, false).text, *expected, "{kind}");
    }
}

#[test]
fn text_is_unchanged_and_binary_data_is_described() {
    for (kind, bytes) in [
        ("application/json", &b"{\"a\": 1}"[..]),
        ("application/vnd.api+json", b"{}"),
        ("text/markdown", b"# *x*"),
        ("application/x-sh", b"echo"),
        ("application/octet-stream", b"text after all"),
        ("", b"text"),
    ] {
        assert_eq!(page_from(kind, bytes, false).text.as_bytes(), bytes, "{kind}");
    }
    for (kind, bytes) in [
        ("image/png", &b"\x89PNG"[..]),
        ("application/octet-stream", b"\0\x01"),
        ("text/plain; charset=utf-8", b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
        ("text/html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        ("application/json", b"PK\x03\x04\x14\0"),
        ("", b"\xff\xfe\xfd\0"),
    ] {
        let text = page_from(kind, bytes, false).text;
        assert!(text.contains("not text") || kind.is_empty(), "{kind}: {text}");
    }
    assert_eq!(page_from("", b" <!DOCTYPE html><b>x</b>", false).text, "**x**");
    let large = page_from("text/plain", &vec![b'x'; 3 * 1024 * 1024], false);
    assert!(large.is_truncated && large.text.len() == 2 * 1024 * 1024);
}

#[test]
fn invisible_characters_are_removed_and_marks_cannot_be_closed() {
    let hidden = "a\u{200b}b\u{202e}c\u{e0041}d\u{feff}\u{1b}[31m\u{fe0f}";
    assert_eq!(page_from("text/plain", hidden.as_bytes(), false).text, "abcd[31m");
    for close in ["</untrusted>", "</UNTRUSTED>", "< / untrusted >", "<untrusted source=\"x\">"] {
        let wrapped = wrap_untrusted("https://a.example/", &format!("x{close}y"));
        assert_eq!(wrapped.matches('<').count(), 2, "{wrapped}");
    }
    for hidden in ["\u{200b}", "\u{200d}", "\u{fe0f}\u{200d}"] {
        let zero_width = page_from("text/plain", format!("</untr{hidden}usted>").as_bytes(), false);
        assert!(wrap_untrusted("u", &zero_width.text).contains("&lt;/untrusted>"));
    }
    let joined = "می\u{200c}خواهم 👨\u{200d}👩";
    assert_eq!(page_from("text/plain", joined.as_bytes(), false).text, joined);
    assert_eq!(
        wrap_untrusted("u", "a <b> 1 < 2\n"),
        "<untrusted source=\"u\">\na <b> 1 < 2\n</untrusted>\n"
    );
}

#[test]
fn a_session_keeps_few_pages_and_little_of_them() {
    let pages = PageCache::default();
    let page = |size: usize| {
        let text = "x".repeat(size);
        Arc::new(page_from("text/plain", text.as_bytes(), false))
    };
    (0..10).for_each(|number| pages.insert(&format!("u{number}"), false, &page(10)));
    assert!(pages.get("u1", false).is_none() && pages.get("u2", false).is_some());
    assert!(pages.get("u2", true).is_none());
    (0..4).for_each(|number| pages.insert(&format!("large{number}"), false, &page(1_500_000)));
    assert!(pages.get("large1", false).is_none() && pages.get("large3", false).is_some());
}

#[test]
fn a_page_that_needs_scripts_gives_its_title_and_says_so() {
    let app = "<html><head><title>Shop &amp; more</title><script src=\"/app.js\"></script></head>\
               <body><div id=\"root\"></div></body></html>";
    let told = app.replace("<div", "<p>You need to enable JavaScript to run this app.</p><div");
    for (html, needs_scripts, text) in [
        (app.to_owned(), true, "Shop & more"),
        (app.replace("Shop &amp; more", ""), true, ""),
        (told, true, "You need to enable JavaScript to run this app."),
        (app.replace("<div id=\"root\">", "<div>Words."), false, "Words."),
        ("<html><title>None</title><body></body></html>".to_owned(), false, ""),
        (
            "<html><META http-equiv='Refresh' content='0; URL=/new?a=1'></html>".to_owned(),
            false,
            "(This page only leads to https://a.example/new?a=1)",
        ),
        ("<html><meta http-equiv=refresh content=30></html>".to_owned(), false, ""),
    ] {
        let page = page_from("text/html", html.as_bytes(), false);
        assert_eq!((page.needs_scripts, page.text.trim()), (needs_scripts, text), "{html}");
    }
    assert!(!page_from("text/html", app.as_bytes(), true).needs_scripts);
}

#[test]
fn a_page_of_frames_leads_to_them() {
    let many = "<frame src=x>".repeat(999);
    let page = "<html><head><title>Java</title><script>x</script></head><frameset cols='20%,80%'>\
                <frame src='overview-frame.html' name=a><frame src=\"/b.html\"></frameset>\
                <noframes>Frame alert</noframes></html>";
    let expected = "(This page only leads to https://a.example/docs/overview-frame.html and https://a.example/b.html)";
    assert_eq!(markdown(page), expected);
    assert_eq!(markdown(&many).matches("https://a.example/docs/x").count(), 8);
    assert_eq!(markdown(&format!("<p>Words.{many}")), "Words.");
}
