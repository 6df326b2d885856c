//! HTML as pages have it, and the Markdown that a model gets.

use proptest::prelude::*;
use url::Url;

use super::*;
use crate::web::html::read_page;

fn converted(html: &str) -> String {
    to_markdown(&read_page(html, &Url::parse("https://a.example/").unwrap()).root)
}

#[test]
fn emphasis_continues_the_same_emphasis() {
    let long = "x".repeat(5_000);
    assert_eq!(converted("<b>x</b><strong>y</strong>"), "**xy**");
    assert_eq!(converted(&format!("<b>{long}</b><b>y</b>")), format!("**{long}y**"));
}

#[test]
fn marks_in_programs_are_no_emphasis() {
    for (html, expected) in [
        ("<pre><i>é*</i><i>x</i></pre>", "```\né*x\n```"),
        ("<code><i>é*</i><i>x</i></code>", "`é*x`"),
        ("<pre><b>**</b><b>x</b></pre>", "```\n**x\n```"),
        ("<pre><i>/**</i>\n<i> * text</i></pre>", "```\n/**\n * text\n```"),
    ] {
        assert_eq!(converted(html), expected, "{html}");
    }
}

#[test]
fn the_panels_of_all_tabs_are_shown() {
    let html = "<div role=tabpanel><p>npm i<p hidden>no</div><div role=tabpanel hidden>yarn add</div>\
                <section role='tabpanel' aria-hidden='true' hidden='hidden'>pnpm add</section>\
                <div role=dialog hidden>no</div>";
    assert_eq!(converted(html), "npm i\n\nyarn add\n\npnpm add");
}

#[test]
fn a_formula_in_mathml_is_shown_in_tex_if_the_page_has_that() {
    let math = "<math><semantics><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow>\
                <annotation-xml encoding=MathML-Content><ci>no</ci></annotation-xml>\
                <annotation encoding=application/x-tex>x^{2}_i</annotation>\
                <annotation encoding=application/x-llamapun>no</annotation></semantics></math>";
    let katex = format!("<span class=katex-mathml>{math}</span><span aria-hidden=true>no</span>");
    let wiki = format!("<span class='a mwe-math-mathml-a11y' style='display: none;'>{math}</span>");
    for (html, expected) in [
        (format!("<p>Let {math} be."), "Let `x^{2}_i` be."),
        (format!("<p>Let {katex} be."), "Let `x^{2}_i` be."),
        (format!("<p>Let {wiki} be."), "Let `x^{2}_i` be."),
        (format!("<p>{math} and {math}"), "`x^{2}_i` and `x^{2}_i`"),
        ("a<math><mi>x</mi></math> b".to_owned(), "ax b"),
        ("<p>a <i encoding=application/x-tex>b</i>".to_owned(), "a *b*"),
    ] {
        assert_eq!(converted(&html), expected, "{html}");
    }
}

#[test]
fn elements_become_marks() {
    for (html, expected) in [
        ("<h2>One<br>two</h2>three", "## One two\n\nthree"),
        ("<p>a<p>b<div>c</div>d", "a\n\nb\n\nc\n\nd"),
        ("a <b> b </b> c<i>d</i><em>e</em>", "a **b** c*de*"),
        ("<b>a</b> <b>b</b><b> </b>c", "**a** **b** c"),
        ("a<br>b<br><br>c", "a  \nb  \n  \nc"),
        ("a<hr>b", "a\n\n- - -\n\nb"),
        ("<ul><li>a<li>b<p>c</ul>d", "- a\n- b\n\n  c\n\nd"),
        ("<ol start=9><li>a<li>b<ul><li>c</ul></ol>", "9.  a\n10. b\n    - c"),
        ("<blockquote><p>a<p>b</blockquote>", "> a\n> \n> b"),
        ("<a href='/x(1)?a=1&amp;lt=2'>a </a>b", "[a](https://a.example/x\\(1\\)?a=1&lt=2) b"),
        ("<img src=/i.png alt='a [b]'>", "![a [b]](https://a.example/i.png)"),
        ("<code>a  <b>b</b>`c</code>", "``a b`c``"),
        ("<pre class=lang-sh>\n$ <i>a</i> &lt;b\n\n  c\n</pre>", "```sh\n$ a <b\n\n  c\n```"),
        (
            "<pre><code class=language-js>a</code><code class=language-ts>b</code></pre>",
            "```js\na\n```\n\n```ts\nb\n```",
        ),
        ("<pre>```</pre>", "````\n```\n````"),
        (
            "<table><caption>c</caption><tr><th>a<th>b|<tr><td><b>c</b><td><p>d<pre>e\nf</pre></table>",
            "c\n\n| a | b\\| |\n| --- | --- |\n| **c** | d `e f` |",
        ),
        ("<table><tr><th>a<td>b<tr><th>c<td>d</table>", "| a | b |\n| --- | --- |\n| c | d |"),
        ("<table><tr><td>a<td>b<td><tr><td><tr><td>c</table>", "a | b\n\nc"),
        (
            "<table><tr><th>Region<th colspan=2>Units<tr><td rowspan=2>EU<td>Cable<td>12<tr><td>Hub<td>7\
             <tr><td>US<td rowspan=0>Cable<td rowspan=9>3<tr><td>UK<td>Hub</table>",
            "| Region | Units | Units |\n| --- | --- | --- |\n| EU | Cable | 12 |\n| EU | Hub | 7 |\n\
             | US | Cable | 3 |\n| UK | Hub | 3 |",
        ),
        (
            "<table><tr><th>a<th rowspan=2>b<tr><tr><td>c<td>d</table>",
            "| a | b |\n| --- | --- |\n|  |\n| c | d |",
        ),
        (
            "<table><tr><th>a<tr><td><table><tr><th>b<td>c</table></table>",
            "| a |\n| --- |\n| b \\| c |",
        ),
        ("<pre>a<div>b</div>c<br>d</pre>", "```\na\nb\nc\nd\n```"),
        ("2<sup>32</sup>-1, <code>n<sup>2</sup></code><sup hidden>no</sup>", "2^32-1, `n^2`"),
        (
            "x<sup><i>n</i></sup> a<sup><a href=#r>[1]</a></sup> b<sup>™</sup><sup></sup>c",
            "x*^n* a\\[1\\] b™c",
        ),
        ("a<svg/>b<svg>no</svg><code></code><h3></h3>", "ab"),
        ("1. a &lt;b> *c* d_e # [f] \\", "1\\. a \\<b> \\*c\\* d\\_e # \\[f\\] \\\\"),
        ("<p># a<p>- b<p>> c<p>-d<p>#e<p>1 < 2", "\\# a\n\n\\- b\n\n\\> c\n\n-d\n\n#e\n\n1 < 2"),
    ] {
        assert_eq!(converted(html), expected, "{html}");
    }
}

#[test]
fn struck_text_and_checked_boxes_do_not_read_as_others() {
    for (html, expected) in [
        (
            "<p><del>80 €</del> 70 €, <s>a <b>b</b></s> <strike> c </strike>d",
            "~~80 €~~ 70 €, ~~a **b**~~ ~~c~~ d",
        ),
        (
            "<ul><li><input type=checkbox checked disabled> done<li><label><input type='checkbox'> open</label></ul>",
            "- ☑ done\n- ☐ open",
        ),
        (
            "<input type=checkbox id=menu>a<ul><li><input type=text>b<nav><input type=checkbox></nav></ul>",
            "a\n\n- b",
        ),
        ("<pre><del>-a</del></pre><s></s><p>b", "```\n-a\n```\n\nb"),
    ] {
        assert_eq!(converted(html), expected, "{html}");
    }
}

#[test]
fn missing_and_wrong_end_tags_cost_no_text() {
    for (html, expected) in [
        ("<p><b>a<p>b</b>c", "**a**\n\nbc"),
        ("<p><b>a</p>b</b>c", "**a**\n\nbc"),
        ("<ul><li><b>a<li>b</ul>c", "- **a**\n- b\n\nc"),
        ("<h1>a<h2>b</h2>c", "# a\n\n## b\n\nc"),
        ("<table>a<b>b</b><tr>c<th>d</table>e", "a**b**\n\n| c | d |\n| --- | --- |\n\ne"),
        ("<table><thead><tr><th>a<tbody><td>b</table>", "| a |\n| --- |\n| b |"),
        ("<a href=/x>a<a href=/y>b</a>c", "[a](https://a.example/x)[b](https://a.example/y)c"),
    ] {
        assert_eq!(converted(html), expected, "{html}");
    }
}

proptest! {
    /// Whatever the order of the tags.
    #[test]
    fn each_word_is_kept_in_order(
        parts in prop::collection::vec((0_usize..32, any::<bool>()), 0..60),
    ) {
        const NAMES: &[&str] = &[
            "p", "b", "i", "a href=/x", "li", "ul", "ol", "table", "tr", "td", "th", "tbody", "pre", "code",
            "div", "h1", "blockquote", "caption", "em", "br", "hr", "dd", "kbd", "x", "thead", "tfoot", "strong",
            "section", "s", "del", "h2", "code class=language-c",
        ];
        let mut html = String::new();
        for (index, (name, is_end)) in parts.iter().enumerate() {
            let name = NAMES[*name];
            let end = format!("/{}", name.split(' ').next().unwrap());
            html.push_str(&format!("<{}> w{index}w ", if *is_end { &end } else { name }));
        }
        let text = converted(&html);
        let places: Vec<_> =
            (0..parts.len()).map(|number| text.find(&format!("w{number}w"))).collect();
        prop_assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{html}\n{text}");
    }
}
