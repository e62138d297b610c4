/* Cards as HTML. The examples are those of the CommonMark specification 0.29, which md4c 0.4.8 implements, and of
 * GitHub's specification 0.29-gfm; an independent reader of HTML (tests/fuzz/card_oracle.h) checks every output. */
#include "rank/card_html.h"

#include "tests/fuzz/card_oracle.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/unit.h"

#define BASE "/org/model/resolve/main/"
#define FOREIGN " rel=\"noreferrer nofollow noopener\""

/* Makes the HTML of a card; the caller frees it. */
static char *html_of(const char *card, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_card_html html;
    struct td_buffer out;
    char *exact = malloc(len == 0 ? 1 : len); /* so that the sanitizer sees a read past the end */
    assert_non_null(exact);
    memcpy(exact, card, len);
    td_buffer_init(&out);
    td_card_html_begin(&html, TD_TEXT(BASE), &out);
    const struct td_card_sink sink = {.take = td_card_html_take, .context = &html};
    bool ok = td_card_text_read(td_text_n(exact, len), &sink, &err);
    ok = td_card_html_end(&html, len > TD_CARD_TEXT_BYTES, &err) && ok;
    CHECK(ok, "%s", err.message);
    free(exact);
    const char *fault = oracle_check(out.data, out.len, BASE);
    CHECK(fault == NULL, "%s: %.500s", fault, card);
    assert_true(out.len <= TD_CARD_HTML_BYTES);
    assert_true(td_utf8_valid(out.data, out.len));
    assert_non_null(td_buffer_terminate(&out));
    return out.data;
}

static void expect(const char *card, const char *wanted)
{
    char *html = html_of(card, strlen(card));
    CHECK(strcmp(html, wanted) == 0, "%s\ngives\n%s\nwanted\n%s", card, html, wanted);
    free(html);
}

/* ---- the specification --------------------------------------------------------------------------------- */

/* Removes what a browser does not show: line ends beside tags, and the " /" of elements without an end. */
static void normalise(char *html)
{
    char *to = html;
    for (const char *p = html; *p != '\0'; p++) {
        if (*p == '\n' && (to == html || to[-1] == '>' || p[1] == '<' || p[1] == '\0'))
            continue;
        if (*p == ' ' && p[1] == '/' && p[2] == '>')
            p++;
        else
            *to++ = *p;
    }
    *to = '\0';
}

/* Replaces each `from` by `by`, which is not longer. */
static void replace(char *html, const char *from, const char *by)
{
    for (char *at = html; (at = strstr(at, from)) != NULL;) {
        memcpy(at, by, strlen(by));
        memmove(at + strlen(by), at + strlen(from), strlen(at + strlen(from)) + 1);
        at += strlen(by);
    }
}

static const struct {
    int number;
    const char *card, *html;
} examples[] = {
    {1, "\tfoo\tbaz\t\tbim\n", "<pre><code>foo\tbaz\t\tbim\n</code></pre>"},
    {7, "-\t\tfoo\n", "<ul>\n<li>\n<pre><code>  foo\n</code></pre>\n</li>\n</ul>"},
    {12, "- `one\n- two`\n", "<ul>\n<li>`one</li>\n<li>two`</li>\n</ul>"},
    {15, "===\n", "<p>===</p>"},
    {25, "_ _ _ _ a\n\na------\n\n---a---\n", "<p>_ _ _ _ a</p>\n<p>a------</p>\n<p>---a---</p>"},
    {26, " *-*\n", "<p><em>-</em></p>"},
    {28, "Foo\n***\nbar\n", "<p>Foo</p>\n<hr />\n<p>bar</p>"},
    {33, "####### foo\n", "<p>####### foo</p>"},
    {62, "> Foo\n---\n", "<blockquote>\n<p>Foo</p>\n</blockquote>\n<hr />"},
    {80, "    <a/>\n    *hi*\n\n    - one\n", "<pre><code>&lt;a/&gt;\n*hi*\n\n- one\n</code></pre>"},
    {84, "    foo\nbar\n", "<pre><code>foo\n</code></pre>\n<p>bar</p>"},
    {97, "`````\n\n```\naaa\n", "<pre><code>\n```\naaa\n</code></pre>"},
    {103, "   ```\n   aaa\n    aaa\n  aaa\n   ```\n", "<pre><code>aaa\n aaa\naaa\n</code></pre>"},
    {107, "```\naaa\n    ```\n", "<pre><code>aaa\n    ```\n</code></pre>"},
    {110, "foo\n```\nbar\n```\nbaz\n", "<p>foo</p>\n<pre><code>bar\n</code></pre>\n<p>baz</p>"},
    {196, "aaa     \nbbb     \n", "<p>aaa<br />\nbbb</p>"},
    {206, ">     foo\n    bar\n",
     "<blockquote>\n<pre><code>foo\n</code></pre>\n</blockquote>\n<pre><code>bar\n</code></pre>"},
    {218, "> bar\n\nbaz\n", "<blockquote>\n<p>bar</p>\n</blockquote>\n<p>baz</p>"},
    {228, " -    one\n\n      two\n", "<ul>\n<li>\n<p>one</p>\n<p>two</p>\n</li>\n</ul>"},
    {232, "- foo\n\n\n  bar\n", "<ul>\n<li>\n<p>foo</p>\n<p>bar</p>\n</li>\n</ul>"},
    {246, "-    foo\n\n  bar\n", "<ul>\n<li>foo</li>\n</ul>\n<p>bar</p>"},
    {250, "-\n\n  foo\n", "<ul>\n<li></li>\n</ul>\n<p>foo</p>"},
    {259, "    1.  A paragraph\n        with two lines.\n\n            indented code\n\n        > A block quote.\n",
     "<pre><code>1.  A paragraph\n    with two lines.\n\n        indented code\n\n    &gt; A block quote.\n"
     "</code></pre>"},
    {268, "- - foo\n", "<ul>\n<li>\n<ul>\n<li>foo</li>\n</ul>\n</li>\n</ul>"},
    {280, "- a\n - b\n  - c\n   - d\n  - e\n - f\n- g\n",
     "<ul>\n<li>a</li>\n<li>b</li>\n<li>c</li>\n<li>d</li>\n<li>e</li>\n<li>f</li>\n<li>g</li>\n</ul>"},
    {289, "- a\n  - b\n\n    c\n- d\n",
     "<ul>\n<li>a\n<ul>\n<li>\n<p>b</p>\n<p>c</p>\n</li>\n</ul>\n</li>\n<li>d</li>\n</ul>"},
    {298, "\\!\\\"\\#\\$\\%\\&\\'\\(\\)\\*\\+\\,\\-\\.\\/\\:\\;\\<\\=\\>\\?\\@\\[\\\\\\]\\^\\_\\`\\{\\|\\}\\~\n",
     "<p>!&quot;#$%&amp;'()*+,-./:;&lt;=&gt;?@[\\]^_`{|}~</p>"},
    {301, "\\\\*emphasis*\n", "<p>\\<em>emphasis</em></p>"},
    {303, "`` \\[\\` ``\n", "<p><code>\\[\\`</code></p>"},
    {322, "    f&ouml;f&ouml;\n", "<pre><code>f&amp;ouml;f&amp;ouml;\n</code></pre>"},
    {324, "&#42; foo\n\n* foo\n", "<p>* foo</p>\n<ul>\n<li>foo</li>\n</ul>"},
    {325, "foo&#10;&#10;bar\n", "<p>foo\n\nbar</p>"},
    {328, "`foo`\n", "<p><code>foo</code></p>"},
    {331, "`  ``  `\n", "<p><code> `` </code></p>"},
    {336, "``\nfoo \n``\n", "<p><code>foo </code></p>"},
    {338, "`foo\\`bar`\n", "<p><code>foo\\</code>bar`</p>"},
    {350, "*foo bar*\n", "<p><em>foo bar</em></p>"},
    {355, "5*6*78\n", "<p>5<em>6</em>78</p>"},
    {360, "5_6_78\n", "<p>5_6_78</p>"},
    {374, "_пристаням_стремятся\n", "<p>_пристаням_стремятся</p>"},
    {391, "**(**foo)\n", "<p>**(**foo)</p>"},
    {411, "*foo**bar*\n", "<p><em>foo**bar</em></p>"},
    {419, "** is not an empty emphasis\n", "<p>** is not an empty emphasis</p>"},
    {444, "****foo*\n", "<p>***<em>foo</em></p>"},
    {458, "_foo____\n", "<p><em>foo</em>___</p>"},
    {490, "[link](<foo\\>)\n", "<p>[link](&lt;foo&gt;)</p>"},
    {590, "<http://foo.bar.baz>\n", "<p><a href=\"http://foo.bar.baz\">http://foo.bar.baz</a></p>"},
    {601, "<foo+special@Bar.baz-bar0.com>\n",
     "<p><a href=\"mailto:foo+special@Bar.baz-bar0.com\">foo+special@Bar.baz-bar0.com</a></p>"},
    {603, "<>\n", "<p>&lt;&gt;</p>"},
    {633, "foo  \n     bar\n", "<p>foo<br />\nbar</p>"},
    {636, "*foo\\\nbar*\n", "<p><em>foo<br />\nbar</em></p>"},
    {642, "foo  \n", "<p>foo</p>"},
};

static void examples_of_the_specification(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(examples); i++) {
        char wanted[1024];
        char *html = html_of(examples[i].card, strlen(examples[i].card));
        (void)snprintf(wanted, sizeof wanted, "%s", examples[i].html);
        replace(html, FOREIGN, "");
        replace(html, " tabindex=\"0\"", "");
        replace(html, "&#39;", "'");
        normalise(html);
        normalise(wanted);
        CHECK(strcmp(html, wanted) == 0, "example %d: %s, wanted %s", examples[i].number, html, wanted);
        free(html);
    }
}

/* Examples of GitHub's specification: 198, 199 and 200 (tables), 279 and 280 (task lists), 491 (strike), 622 (bare
 * addresses). Of its HTML, this differs: check boxes are characters, since a page has no input that does nothing, and a
 * table can be scrolled. */
static void examples_of_github(void **state)
{
    (void)state;
    expect("| foo | bar |\n| --- | --- |\n| baz | bim |\n",
           "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead>\n<tr><th scope=\"col\">foo</th><th scope=\"col\">bar"
           "</th></tr>\n</thead>\n<tbody>\n<tr><td>baz</td><td>bim</td></tr>\n</tbody>\n</table></div>\n");
    expect("| abc | defghi |\n:-: | -----------:\nbar | baz\n",
           "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead>\n<tr><th scope=\"col\" align=\"center\">abc</th><th "
           "scope=\"col\" align=\"right\">defghi</th></tr>\n</thead>\n<tbody>\n<tr><td align=\"center\">bar</td><td "
           "align=\"right\">baz</td></tr>\n</tbody>\n</table></div>\n");
    expect("- [ ] foo\n- [x] bar\n", "<ul>\n<li>\u2610 foo</li>\n<li>\u2611 bar</li>\n</ul>\n");
    expect("- [ ] foo\n\n- [x] bar\n", "<ul>\n<li><p>\u2610 foo</p>\n</li>\n<li><p>\u2611 bar</p>\n</li>\n</ul>\n");
    expect("~~Hi~~ Hello\n", "<p><del>Hi</del> Hello</p>\n");
    expect("see https://foo.bar/baz now\n",
           "<p>see <a href=\"https://foo.bar/baz\"" FOREIGN ">https://foo.bar/baz</a> now</p>\n");
    expect("3. a\n4. b\n", "<ol start=\"3\">\n<li>a</li>\n<li>b</li>\n</ol>\n");
}

/* ---- links --------------------------------------------------------------------------------------------- */

/* Gives the writer one paragraph with one link, or image, to this address. */
static char *html_of_address(enum td_card_node node, const char *address, const char *text)
{
    const struct td_card_event events[] = {{.kind = TD_CARD_BEGIN, .node = TD_CARD_PARAGRAPH},
                                           {.kind = TD_CARD_BEGIN, .node = node, .text = td_text_of(address)},
                                           {.kind = TD_CARD_TEXT, .text = td_text_of(text)},
                                           {.kind = TD_CARD_END},
                                           {.kind = TD_CARD_END}};
    struct td_error err = TD_ERROR_INIT;
    struct td_card_html html;
    struct td_buffer out;
    td_buffer_init(&out);
    td_card_html_begin(&html, TD_TEXT(BASE), &out);
    for (size_t i = 0; i < COUNT_OF(events); i++)
        CHECK(td_card_html_take(&html, &events[i], &err), "%s", err.message);
    CHECK(td_card_html_end(&html, false, &err), "%s", err.message);
    const char *fault = oracle_check(out.data, out.len, BASE);
    CHECK(fault == NULL, "%s: %s", fault, address);
    assert_non_null(td_buffer_terminate(&out));
    return out.data;
}

/* Addresses, and what stands in href; NULL: the link is text. */
static const struct {
    const char *address, *href;
    bool is_foreign;
} addresses[] = {
    {"http://example.org/a?b=c&d=%20#e", "http://example.org/a?b=c&amp;d=%20#e", true},
    {"https://example.org", "https://example.org", true},
    {"HTTPS://example.org", "HTTPS://example.org", true},
    {"http://example.org/\xC3\xA4 \"<>'", "http://example.org/%C3%A4%20%22%3C%3E%27", true},
    {"mailto:a@example.org", "mailto:a@example.org", true},
    {"MailTo:a@example.org?subject=b", "MailTo:a@example.org?subject=b", true},
    /* files of the model */
    {"LICENSE", BASE "LICENSE", false},
    {"docs/a.md", BASE "docs/a.md", false},
    {"./docs//a.md", BASE "docs/a.md", false},
    {"docs/../a.md", BASE "a.md", false},
    {"docs/", BASE "docs/", false},
    {"docs/.", BASE "docs/", false},
    {"a/b/..", BASE "a/", false},
    {".", BASE, false},
    {"a.md?x=1&y#z", BASE "a.md?x=1&amp;y#z", false},
    {"a b%20c.md", BASE "a%20b%20c.md", false},
    {"a%2Fb", BASE "a/b", false},
    {"\xC3\xA4.md", BASE "%C3%A4.md", false},
    {"1:2", BASE "1%3A2", false},
    {"./x:y", BASE "x%3Ay", false},
    {"%252e%252e/a", BASE "%252e%252e/a", false},
    {"a\"onclick=b", BASE "a%22onclick%3Db", false},
    {"...", BASE "...", false},
    /* fragments */
    {"#usage", "#card-usage", false},
    {"#How%20to-Use_it", "#card-how-to-use_it", false},
    {"#\xC3\xA4", "#card-%C3%A4", false},
    {"#\" onclick=\"x", "#card--onclickx", false},
    /* above the model */
    {"..", NULL, false},
    {"../a.md", NULL, false},
    {"docs/../../a.md", NULL, false},
    {"%2e%2e/a.md", NULL, false},
    {".%2E/a.md", NULL, false},
    {"docs%2F..%2F..%2Fa.md", NULL, false},
    {"..\\a.md", NULL, false},
    {"..%5Ca.md", NULL, false},
    {"/etc/passwd", NULL, false},
    {"/", NULL, false},
    {"//example.org/", NULL, false},
    {"///example.org/", NULL, false},
    {"\\\\example.org", NULL, false},
    {"/\\example.org", NULL, false},
    {"%2F%2Fexample.org", NULL, false},
    {" //example.org", NULL, false},
    {"\t/\t/example.org", NULL, false},
    {"?delete=1", NULL, false},
    {"", NULL, false},
    {"#", NULL, false},
    {"#!?", NULL, false},
    /* other schemes, and ways to hide them */
    {"javascript:alert(1)", NULL, false},
    {"JavaScript:alert(1)", NULL, false},
    {" javascript:alert(1)", NULL, false},
    {"\x01javascript:alert(1)", NULL, false},
    {"java\tscript:alert(1)", NULL, false},
    {"java\nscript:alert(1)", NULL, false},
    {"java script:alert(1)", NULL, false},
    {"javascript%3Aalert(1)", NULL, false},
    {"java%73cript:alert(1)", NULL, false},
    {"java%0Ascript:alert(1)", NULL, false},
    {"javascript\t:alert(1)", NULL, false},
    {"javascript://%0aalert(1)", NULL, false},
    {"mailto:", NULL, false},
    {"vbscript:a", NULL, false},
    {"data:text/html,<script>", NULL, false},
    {"file:///etc/passwd", NULL, false},
    {"ftp://example.org/", NULL, false},
    {"blob:http://example.org/1", NULL, false},
    {"view-source:http://example.org", NULL, false},
    {"httpx://example.org", NULL, false},
    {"averylongscheme+with.more-than-eight:x", NULL, false},
    {"http:example.org", NULL, false},
    {"http:/example.org", NULL, false},
    {"http:\\\\example.org", NULL, false},
    {"http://", NULL, false},
    {"ht tp://example.org", NULL, false},
    {"h%74tp://example.org", NULL, false},
    {"a\x7F.md", NULL, false},
    {"a%00.md", NULL, false},
    {"a%1F.md", NULL, false},
    {"a%", NULL, false},
    {"a%zz", NULL, false},
    {"%C3%28", NULL, false},
};

/* shows: security.md content-card */
static void links_lead_where_they_may(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        char wanted[256] = "<p>x</p>\n";
        if (addresses[i].href != NULL)
            (void)snprintf(wanted, sizeof wanted, "<p><a href=\"%s\"%s>x</a></p>\n", addresses[i].href,
                           addresses[i].is_foreign ? FOREIGN : "");
        char *html = html_of_address(TD_CARD_LINK, addresses[i].address, "x");
        CHECK(strcmp(html, wanted) == 0, "%s: %s", addresses[i].address, html);
        free(html);
    }
}

/* Addresses in which entities of Markdown hide something. */
static void entities_in_links_are_decoded(void **state)
{
    (void)state;
    expect("[a](java&#115;cript:b)", "<p>a</p>\n");
    expect("[a](java&#x73;cript:b)", "<p>a</p>\n");
    expect("[a](javascript&colon;b)", "<p>a</p>\n");
    expect("[a](java&Tab;script:b)", "<p>a</p>\n");
    expect("[a](java&#9;script:b)", "<p>a</p>\n");
    expect("[a](&#47;&sol;example.org)", "<p>a</p>\n");
    expect("[a](<java\\script:b>)", "<p>a</p>\n");
    expect("<javascript:b>", "<p>javascript:b</p>\n");
    expect("<irc://a:1/b>", "<p>irc://a:1/b</p>\n");
    expect("[a](b?c&amp;d)", "<p><a href=\"" BASE "b?c&amp;d\">a</a></p>\n");
    expect("[a](b&auml;)", "<p><a href=\"" BASE "b%26auml%3B\">a</a></p>\n");
    expect("[a](b \"c &auml; & \\&auml; &#34;><\")",
           "<p><a href=\"" BASE "b\" title=\"c &auml; &amp; &amp;auml; &quot;&gt;&lt;\">a</a></p>\n");
}

static void a_link_has_a_text(void **state)
{
    (void)state;
    expect("[](b)", "<p><a href=\"" BASE "b\">link</a></p>\n");
    expect("[![](c.png)](b)",
           "<p><a href=\"" BASE "b\"><img loading=\"lazy\" src=\"" BASE "c.png\" alt=\"image\"></a></p>\n");
    expect("[![](http://c/d.png)](b)", "<p><a href=\"" BASE "b\">image</a></p>\n");
}

static void images_are_files_or_links(void **state)
{
    (void)state;
    expect("![a *b* `c`](d.png \"e\")",
           "<p><img loading=\"lazy\" src=\"" BASE "d.png\" title=\"e\" alt=\"a b c\"></p>\n");
    expect("![](d.png)", "<p><img loading=\"lazy\" src=\"" BASE "d.png\" alt=\"\"></p>\n");
    expect("![a\"<b](d.png)", "<p><img loading=\"lazy\" src=\"" BASE "d.png\" alt=\"a&quot;&lt;b\"></p>\n");
    expect("![a](http://c/d.png)", "<p><a href=\"http://c/d.png\"" FOREIGN ">a</a></p>\n");
    expect("![](http://c/d.png)", "<p><a href=\"http://c/d.png\"" FOREIGN ">image</a></p>\n");
    expect("[![a](http://c/d.png)](http://e)", "<p><a href=\"http://e\"" FOREIGN ">a</a></p>\n");
    expect("![a](data:image/png;base64,AAAA)", "<p>a</p>\n");
    expect("![a](javascript:b)", "<p>a</p>\n");
    expect("![a](#b)", "<p>a</p>\n");
    expect("![a](mailto:b@c)", "<p>a</p>\n");
    expect("![a ![b](c.png) [d](e)](f.png)", "<p><img loading=\"lazy\" src=\"" BASE "f.png\" alt=\"a b d\"></p>\n");
}

/* ---- headings ------------------------------------------------------------------------------------------ */

static void headings_have_ids(void **state)
{
    (void)state;
    expect("# A *b* `c`!\n", "<h2 id=\"card-a-b-c\">A <em>b</em> <code>c</code>!</h2>\n");
    expect("###### a\n##### b\n", "<h6 id=\"card-a\">a</h6>\n<h6 id=\"card-b\">b</h6>\n");
    expect("# a\n# a\n# a-1\n# a\n",
           "<h2 id=\"card-a\">a</h2>\n<h2 id=\"card-a-1\">a</h2>\n<h2 id=\"card-a-1-1\">a-1</h2>\n"
           "<h2 id=\"card-a-2\">a</h2>\n");
    expect("# \xC3\x84 \xE6\xBC\xA2 \xF0\x9F\x9A\x80\n",
           "<h2 id=\"card-\xC3\x84-\xE6\xBC\xA2-\">\xC3\x84 \xE6\xBC\xA2 \xF0\x9F\x9A\x80</h2>\n");
    expect("# !!!\n", "<h2>!!!</h2>\n");
    expect("#\n", "");
    expect("# [a](#b) c\n", "<h2 id=\"card-a-c\"><a href=\"#card-b\">a</a> c</h2>\n");
    expect("# \" onclick=\"x\n", "<h2 id=\"card--onclickx\">&quot; onclick=&quot;x</h2>\n");
}

/* Thousands of headings that ask for the same ids: each id is there once, and all of it takes little time. */
static void ids_are_bounded(void **state)
{
    struct td_buffer card;
    size_t ids = 0;
    (void)state;
    td_buffer_init(&card);
    for (int i = 0; i < 3000; i++)
        td_buffer_printf(&card, i % 2 == 0 ? "# a-%d\n" : "# a\n", i / 2);
    char *html = html_of(card.data, card.len);
    for (const char *p = html; (p = strstr(p, " id=")) != NULL; p++)
        ids++;
    assert_in_range(ids, 500, TD_CARD_IDS);
    free(html);
    td_buffer_fini(&card);
}

/* ---- hostile cards ------------------------------------------------------------------------------------- */

static const char *const raw_html[] = {
    "<script>alert(1)</script>\n",
    "a <img src=x onerror=alert(1)> b\n",
    "<meta http-equiv=\"refresh\" content=\"0;url=http://example.org\">\n",
    "<form action=\"http://example.org\"><input name=a></form>\n",
    "<base href=\"http://example.org\">\n",
    "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>\n",
    "<svg onload=alert(1)>\n\n</svg>\n",
    "<style>*{display:none}</style>\n",
    "<a href=\"javascript:alert(1)\" id=\"card\" name=\"card\">a</a>\n",
    "<!-- a --> <?php ?> <![CDATA[ ]]> <!DOCTYPE html>\n",
    "</section></main></body></html>\n",
    "<div\nclass=a>\n*b*\n</div>\n",
    "a </p> <br/> &lt;script&gt; &#60;script&#62; b\n",
    "`<script>` and ```<b>```\n",
    "```\"><script>\n</code></pre><script>\n```\n",
    "| <b> | a |\n| --- | --- |\n| </td><script> | b |\n",
    "[a]: http://example.org/\"onclick=\"b\n\n[a] ![a]\n",
    "[a](<http://example.org/\"><script>>)\n",
    "![\"><script>](a.png)\n",
    "# <script>\n",
    "<http://example.org/\"onclick=\"a>\n",
};

/* shows: security.md content-card */
static void raw_html_is_text(void **state)
{
    static const char *const tags[] = {"<script", "<img src=x", "<meta",  "<form", "<input", "<base",
                                       "<iframe", "<svg",       "<style", "<!",    "<?",     "</section",
                                       "</main",  "</body",     "<b>",    "name="};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(raw_html); i++) {
        char *html = html_of(raw_html[i], strlen(raw_html[i]));
        for (size_t k = 0; k < COUNT_OF(tags) - 1; k++)
            CHECK(strstr(html, tags[k]) == NULL, "%s: %s", raw_html[i], html);
        free(html);
    }
}

/* Appends the text this many times. */
static void repeat(struct td_buffer *card, const char *text, size_t times)
{
    for (size_t i = 0; i < times; i++)
        td_buffer_puts(card, text);
}

/* Returns the most elements within each other. */
static size_t depth_of(const char *html)
{
    size_t depth = 0, most = 0;
    for (const char *p = html; (p = strchr(p, '<')) != NULL; p++) {
        bool is_void = strncmp(p, "<hr", 3) == 0 || strncmp(p, "<br", 3) == 0 || strncmp(p, "<img", 4) == 0;
        depth = p[1] == '/' ? depth - 1 : depth + (is_void ? 0 : 1);
        most = depth > most ? depth : most;
    }
    return most;
}

/* Texts that are repeated in a card, and the texts before and after them. */
static const struct {
    const char *name, *before, *text, *after;
    size_t times;
    bool is_cut;
} repeated[] = {
    {"quotes", "", "> ", "deep", 1000, false},
    {"lists", "", "- ", "deep", 1000, false},
    {"numbers", "", "1. ", "deep", 1000, false},
    {"quotes and lists", "", "> - ", "deep\n\n    code\n", 1000, false},
    {"emphasis", "", "*a **b ", "deep", 20000, false},
    {"emphasis that ends", "", "**a*b_", "deep", 20000, false},
    {"brackets", "", "[", "deep", 100000, false},
    {"links that do not end", "", "[a](b", "deep", 50000, false},
    {"images in images", "", "![", "deep", 50000, false},
    {"tags", "", "<b", "deep", 100000, false},
    {"backticks", "", "a``", "deep", 100000, false},
    {"entities", "", "&amp;", "deep", 100000, false},
    {"ampersands", "", "&", "", 500000, true},
    {"quotation marks", "", "\"", "", 1000000, true},
    {"columns", "|", "a|", "\n|", 10000, false},
    {"one long line", "", "aaaaaaaaaaaaaaaa", "", 62500, false},
    {"a card that is too long", "", "aaaaaaaaaaaaaaaa\n\n", "", 62500, true},
    {"headings", "", "# a\n", "", 200000, true},
    {"rules", "", "***\n", "", 200000, false},
    {"breaks", "", "a\\\n", "", 200000, false},
};

/* shows: security.md content-card */
static void a_card_is_bounded(void **state)
{
    struct td_buffer card;
    (void)state;
    td_buffer_init(&card);
    for (size_t i = 0; i < COUNT_OF(repeated); i++) {
        td_buffer_clear(&card);
        td_buffer_puts(&card, repeated[i].before);
        repeat(&card, repeated[i].text, repeated[i].times);
        td_buffer_puts(&card, repeated[i].after);
        char *html = html_of(card.data, card.len);
        CHECK(depth_of(html) <= TD_CARD_LEVELS, "%s: %zu levels", repeated[i].name, depth_of(html));
        CHECK((strstr(html, "The card is cut here") != NULL) == repeated[i].is_cut, "%s: %zu bytes: %.200s",
              repeated[i].name, strlen(html), html);
        CHECK(strcmp(repeated[i].after, "deep") != 0 || strstr(html, "deep") != NULL, "%s: %.200s", repeated[i].name,
              html);
        free(html);
    }
    td_buffer_fini(&card);
}

/* A table of very many columns in which each row has one cell: the rows are filled up, until the card is cut. md4c
 * counts columns in 16 bits. */
static void a_wide_table_is_cut(void **state)
{
    static const size_t counts[] = {10000, 65535, 65536, 66000};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct td_buffer card;
        td_buffer_init(&card);
        repeat(&card, "|a", counts[i]);
        td_buffer_puts(&card, "|\n");
        repeat(&card, "|---", counts[i]);
        td_buffer_puts(&card, "|\n");
        repeat(&card, "|b\n", 10000);
        char *html = html_of(card.data, card.len);
        CHECK(strstr(html, "<table>") != NULL || counts[i] > 65535, "%zu columns", counts[i]);
        CHECK(strstr(html, "The card is cut here") != NULL || counts[i] > 65535, "%zu columns", counts[i]);
        free(html);
        td_buffer_fini(&card);
    }
}

/* One definition with a long title, or address, that very many links use. */
static void a_definition_is_not_multiplied(void **state)
{
    enum { LONG = 50000, USES = 20000 };
    (void)state;
    for (int in_title = 0; in_title < 2; in_title++) {
        struct td_buffer card;
        td_buffer_init(&card);
        td_buffer_puts(&card, in_title ? "[a]: b \"" : "[a]: ");
        repeat(&card, "c", LONG);
        td_buffer_puts(&card, in_title ? "\"\n\n" : "\n\n");
        repeat(&card, "[a] ", USES);
        char *html = html_of(card.data, card.len);
        CHECK(strlen(html) > TD_CARD_HTML_BYTES / 2, "%zu bytes", strlen(html));
        assert_non_null(strstr(html, "The card is cut here"));
        free(html);
        td_buffer_fini(&card);
    }
}

static void what_is_no_text_is_shown_as_it_is(void **state)
{
    static const char nul[] = "# a\0<b>\n";
    (void)state;
    char *html = html_of(nul, sizeof nul - 1);
    assert_string_equal(html, "<pre tabindex=\"0\"><code># a\xEF\xBF\xBD&lt;b&gt;\n</code></pre>\n");
    free(html);
    expect("# \xFF\xC3\n", "<pre tabindex=\"0\"><code># \xEF\xBF\xBD\xEF\xBF\xBD\n</code></pre>\n");
    expect("a\x01 b\x7F &#1; &#0; &#xD800; &#x110000; &#99999999999;\n",
           "<p>a\xEF\xBF\xBD b\xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD "
           "&amp;#99999999999;</p>\n");
    expect("", "");
    expect("&nosuchname; &auml; &; &a b;\n", "<p>&nosuchname; &auml; &amp;; &amp;a b;</p>\n");
}

/* A card of more than TD_CARD_TEXT_BYTES is cut between characters, so that it stays text. */
static void a_long_card_is_cut_between_characters(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 3; shift++) {
        struct td_buffer card;
        td_buffer_init(&card);
        repeat(&card, "a", shift);
        while (card.len <= TD_CARD_TEXT_BYTES)
            td_buffer_puts(&card, "\xE6\xBC\xA2");
        card.len = TD_CARD_TEXT_BYTES + 1;
        char *html = html_of(card.data, card.len);
        assert_true(strncmp(html, "<p>", 3) == 0);
        assert_null(strstr(html, "\xEF\xBF\xBD"));
        assert_non_null(strstr(html, "The card is cut here"));
        free(html);
        td_buffer_fini(&card);
    }
}

static void front_matter_is_left_out(void **state)
{
    (void)state;
    expect("---\nlicense: mit\n---\n# a\n", "<h2 id=\"card-a\">a</h2>\n");
    expect("\xEF\xBB\xBF---\r\nlicense: mit\r\n---\r\na\r\n", "<p>a</p>\n");
    expect("\xEF\xBB\xBF# a\n", "<h2 id=\"card-a\">a</h2>\n");
    expect("---\na: b\n---", "");
    expect("---\na\n\nb\n", "<hr>\n<p>a</p>\n<p>b</p>\n");
}

/* ---- events that a process made up --------------------------------------------------------------------- */

#define BEGIN(NODE, NUMBER)                                               \
    {                                                                     \
        .kind = TD_CARD_BEGIN, .node = TD_CARD_##NODE, .number = (NUMBER) \
    }
#define WORD                                                \
    {                                                       \
        .kind = TD_CARD_TEXT, .text = {.p = "a", .len = 1 } \
    }
#define END                 \
    {                       \
        .kind = TD_CARD_END \
    }

static const struct td_card_event wrong[][4] = {
    {END},
    {WORD},
    {BEGIN(EMPHASIS, 0)},
    {BEGIN(ITEM, 0)},
    {BEGIN(ROW, 0)},
    {BEGIN(CELL, 0)},
    {BEGIN(QUOTE, 0), WORD},
    {BEGIN(BULLETS, 0), WORD},
    {BEGIN(BULLETS, 0), BEGIN(PARAGRAPH, 0)},
    {BEGIN(PARAGRAPH, 0), BEGIN(PARAGRAPH, 0)},
    {BEGIN(PARAGRAPH, 0), BEGIN(HEADING, 1)},
    {BEGIN(HEADING, 1), BEGIN(HEADING, 1)},
    {BEGIN(HEADING, 0)},
    {BEGIN(HEADING, 7)},
    {BEGIN(RULE, 0), WORD},
    {BEGIN(CODE_BLOCK, 0), BEGIN(STRONG, 0)},
    {BEGIN(TABLE, 0), WORD},
    {BEGIN(TABLE, 0), BEGIN(ROW, 0)},
    {BEGIN(TABLE, 0), BEGIN(HEAD, 0), BEGIN(CELL, 0)},
    {BEGIN(TABLE, 0), BEGIN(HEAD, 0), BEGIN(ROW, 0), BEGIN(CELL, 4)},
    {BEGIN(NUMBERS, 1000000000)},
    {BEGIN(BULLETS, 0), BEGIN(ITEM, 3)},
    {BEGIN(PARAGRAPH, 0), BEGIN(CODE, 0), BEGIN(LINK, 0)},
    {BEGIN(PARAGRAPH, 0), END, END},
};

/* shows: security.md content-parser-lies */
static void events_out_of_order_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_card_html html;
        struct td_buffer out;
        bool ok = true;
        td_buffer_init(&out);
        td_card_html_begin(&html, TD_TEXT(BASE), &out);
        for (size_t k = 0; k < COUNT_OF(wrong[i]) && ok; k++)
            ok = td_card_html_take(&html, &wrong[i][k], &err);
        CHECK(!ok && err.code == TD_INTERNAL, "case %zu", i);
        assert_true(td_card_html_end(&html, false, NULL));
        const char *fault = oracle_check(out.data, out.len, BASE);
        CHECK(fault == NULL, "case %zu: %s", i, fault);
        td_buffer_fini(&out);
    }
}

/* A text that is not an entity, and a link within a link, become text. */
static void texts_of_events_are_not_trusted(void **state)
{
    static const struct td_card_event events[] = {
        BEGIN(PARAGRAPH, 0),
        {.kind = TD_CARD_ENTITY, .text = {.p = "<script>", .len = 8}},
        {.kind = TD_CARD_ENTITY, .text = {.p = "&ab;<b>", .len = 7}},
        {.kind = TD_CARD_BEGIN,
         .node = TD_CARD_LINK,
         .text = {.p = "b", .len = 1},
         .title = {.p = "&\"&lt;", .len = 6}},
        {.kind = TD_CARD_BEGIN, .node = TD_CARD_LINK, .text = {.p = "c", .len = 1}},
        WORD,
        END,
        END,
    };
    struct td_error err = TD_ERROR_INIT;
    struct td_card_html html;
    struct td_buffer out;
    (void)state;
    td_buffer_init(&out);
    td_card_html_begin(&html, TD_TEXT(BASE), &out);
    for (size_t i = 0; i < COUNT_OF(events); i++)
        assert_true(td_card_html_take(&html, &events[i], &err));
    assert_true(td_card_html_end(&html, false, &err));
    assert_string_equal(td_buffer_terminate(&out),
                        "<p>&lt;script&gt;&ab;&lt;b&gt;<a href=\"" BASE "b\" title=\"&amp;&quot;&lt;\">a</a></p>\n");
    td_buffer_fini(&out);
}

static void an_allocation_fails(void **state)
{
    static const struct td_card_event events[] = {
        BEGIN(HEADING, 1),
        WORD,
        END,
        BEGIN(PARAGRAPH, 0),
        {.kind = TD_CARD_BEGIN, .node = TD_CARD_LINK, .text = {.p = "b/../c", .len = 6}},
        WORD,
    };
    struct alloc_trials trials = {.may_do_without = true};
    (void)state;
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        struct td_card_html html;
        struct td_buffer out;
        bool ok = true;
        td_buffer_init(&out);
        td_card_html_begin(&html, TD_TEXT(BASE), &out);
        for (size_t i = 0; i < COUNT_OF(events) && ok; i++)
            ok = td_card_html_take(&html, &events[i], &err);
        ok = td_card_html_end(&html, false, &err) && ok;
        alloc_tried(&trials, ok, &err);
        td_buffer_fini(&out);
    }
    assert_true(trials.failed > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_specification),
        cmocka_unit_test(examples_of_github),
        cmocka_unit_test(links_lead_where_they_may),
        cmocka_unit_test(entities_in_links_are_decoded),
        cmocka_unit_test(a_link_has_a_text),
        cmocka_unit_test(images_are_files_or_links),
        cmocka_unit_test(headings_have_ids),
        cmocka_unit_test(ids_are_bounded),
        cmocka_unit_test(raw_html_is_text),
        cmocka_unit_test(a_card_is_bounded),
        cmocka_unit_test(a_wide_table_is_cut),
        cmocka_unit_test(a_definition_is_not_multiplied),
        cmocka_unit_test(what_is_no_text_is_shown_as_it_is),
        cmocka_unit_test(a_long_card_is_cut_between_characters),
        cmocka_unit_test(front_matter_is_left_out),
        cmocka_unit_test(events_out_of_order_are_refused),
        cmocka_unit_test(texts_of_events_are_not_trusted),
        cmocka_unit_test(an_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
