/* Pages for browsers and for clients that follow links: WHATWG HTML (escaping), RFC 3986 (hrefs), RFC 9110
 * section 12.5.1 (Accept); fsspec's http file system takes every href="..." of a page for a file of the folder. */
#include "core/log.h"
#include "tests/unit/api/served_place.h"

#define EVIL "\"><script>alert('1')</script>&amp; #?%41"

static void open_place(struct place *place)
{
    tree_open(&place->tree);
    tree_simple(&place->tree, "org/m/model.safetensors", "a");
    tree_text(&place->tree, "org/m/a-b", "12345");
    tree_text(&place->tree, "org/m/a/x", "");
    tree_text(&place->tree, "org/m/a/y/z", "");
    tree_text(&place->tree, "org/m/a.b", "");
    tree_simple(&place->tree, EVIL "/model.safetensors", "a");
    tree_text(&place->tree, EVIL "/" EVIL " \xc3\xa9", "");
    tree_text(&place->tree, EVIL "/x.gguf", "<script>");
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* Writes the hrefs in quotes between two places of a page, separated by blanks. */
static void hrefs_between(const char *from, const char *to, char out[1024])
{
    size_t used = 0;
    out[0] = '\0';
    for (const char *at = strstr(from, "href=\""); at != NULL && at < to; at = strstr(at, "href=\"")) {
        at += strlen("href=\"");
        used += (size_t)snprintf(out + used, 1024 - used, "%s%.*s", used > 0 ? " " : "", (int)strcspn(at, "\""), at);
    }
}

/* Writes all hrefs of the rows of a page's tables, separated by blanks. */
static void hrefs(const char *page, char out[1024])
{
    const char *rows = strstr(page, "<tbody>");
    assert_non_null(rows);
    hrefs_between(rows, strstr(rows, "</main>"), out);
}

static void expect_page(struct place *place, const char *target, const char *accept, const char *wanted)
{
    struct answer answer;
    char got[1024];
    char buffer[128];
    char line[128];
    (void)snprintf(line, sizeof line, "Accept: %s", accept);
    loopback_ask(&place->loop, "GET", target, line, &answer);
    CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
    CHECK(strcmp(answer.response.content_type, "text/html; charset=utf-8") == 0, "%s", target);
    CHECK(strstr(answer_header(&answer, "Content-Security-Policy", buffer), "default-src 'none'") != NULL, "%s",
          target);
    CHECK(strcmp(answer_header(&answer, "X-Content-Type-Options", buffer), "nosniff") == 0, "%s", target);
    CHECK(strstr(answer.body, "http:") == NULL, "%s names an address", target);
    CHECK(strstr(answer.body, place->tree.path) == NULL, "%s", target);
    hrefs(answer.body, got);
    CHECK(strcmp(got, wanted) == 0, "%s: %s, wanted %s", target, got, wanted);
    answer_fini(&answer);
}

#define EVIL_HREF "%22%3E%3Cscript%3Ealert%28%271%27%29%3C/script%3E%26amp%3B%20%23%3F%2541"

static void links_of_every_page(void **state)
{
    struct place *place = *state;
    expect_page(place, "/", "text/html", "/models/" EVIL_HREF "/ /models/org/m/");
    expect_page(place, "/models/", "text/html", "/models/" EVIL_HREF "/ /models/org/m/");
    expect_page(place, "/models/org/m/", "text/html",
                "/models/org/m/view/tensors /models/org/m/tensors /models/org/m/model.safetensors "
                "/models/org/m/files/a-b /models/org/m/files/a.b /models/org/m/files/a/x /models/org/m/files/a/y/z "
                "/models/org/m/files/model.safetensors");
    static const char folder[] = "/models/org/m/files/a-b /models/org/m/files/a.b /models/org/m/files/a/ "
                                 "/models/org/m/files/model.safetensors";
    expect_page(place, "/models/org/m/files/", "*/*", folder); /* as fsspec requests it */
    expect_page(place, "/models/org/m/files/", "application/json", folder);
    expect_page(place, "/models/org/m/files/a/", "*/*", "/models/org/m/files/a/x /models/org/m/files/a/y/");
    expect_page(place, "/models/org/m/files/a%2Fy/", "*/*", "/models/org/m/files/a/y/z");
    expect_page(place, "/models/org/m/files/a%2Fy", "*/*", "/models/org/m/files/a/y/z");
}

/* Every link of a page leads to a 200 answer. */
static void links_lead_somewhere(void **state)
{
    struct place *place = *state;
    struct answer page;
    char targets[1024];
    loopback_get(&place->loop, "/models/" EVIL_HREF "/files/", &page);
    assert_int_equal(page.response.status, 200);
    hrefs(page.body, targets);
    size_t count = 0;
    for (char *at = strtok(targets, " "); at != NULL; at = strtok(NULL, " ")) {
        expect_status(place, at, 200);
        count++;
    }
    assert_int_equal(count, 3);
    answer_fini(&page);
}

/* Names stay inside their text or attribute: a page has its own tags and no others. */
/* shows: security.md content-html-names */
static void hostile_names_are_text(void **state)
{
    static const char *const targets[] = {"/models/", "/models/" EVIL_HREF "/", "/models/" EVIL_HREF "/files/",
                                          "/models/" EVIL_HREF "/files/" EVIL_HREF "/"};
    static const char *const tags[] = {"!DOCTYPE html", "br",     "html",   "head",    "meta", "title", "link",
                                       "script",        "body",   "h1",     "h2",      "h3",   "a",     "nav",
                                       "main",          "header", "footer", "section", "div",  "span",  "img",
                                       "bdi",           "p",      "table",  "tr",      "td",   "th",    "thead",
                                       "tbody",         "data",   "input",  "svg",     "dl",   "dt",    "caption",
                                       "strong",        "form",   "label",  "button",  "rect", "ul",    "li",
                                       "code",          "dd"};
    struct place *place = *state;
    for (size_t i = 0; i + 1 < COUNT_OF(targets); i++) {
        struct answer answer;
        loopback_ask(&place->loop, "GET", targets[i], "Accept: text/html", &answer);
        CHECK(answer.response.status == 200, "%s: %s", targets[i], answer.body);
        CHECK(strstr(answer.body, "&lt;script&gt;") != NULL, "%s", targets[i]);
        CHECK(strstr(answer.body, "&amp;amp; #?%41") != NULL, "%s", targets[i]);
        for (const char *at = strchr(answer.body, '<'); at != NULL; at = strchr(at + 1, '<')) {
            bool known = false;
            const char *name = at[1] == '/' ? at + 2 : at + 1;
            for (size_t t = 0; t < COUNT_OF(tags); t++)
                known = known ||
                        (strncmp(name, tags[t], strlen(tags[t])) == 0 && strchr(" >", name[strlen(tags[t])]) != NULL);
            CHECK(known, "%s: %.40s", targets[i], at);
        }
        answer_fini(&answer);
    }
    expect_status(place, targets[3], 404);
}

/* Checks the links of the main part above its heading's end and its first table. `wanted` holds them, separated by
 * blanks. The links to the start and to the other parts of the site are in the head of every page. */
static void expect_ways(struct place *place, const char *target, const char *wanted)
{
    struct answer answer;
    char got[1024];
    loopback_ask(&place->loop, "GET", target, "Accept: text/html", &answer);
    CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
    CHECK(strstr(answer.body, "<a class=\"home\" href=/#>") != NULL, "%s", target);
    const char *main = strstr(answer.body, "<main");
    const char *table = strstr(answer.body, "<table");
    assert_true(main != NULL && table != NULL);
    hrefs_between(main, table, got);
    CHECK(strcmp(got, wanted) == 0, "%s: %s, wanted %s", target, got, wanted);
    answer_fini(&answer);
}

static void every_page_leads_back(void **state)
{
    struct place *place = *state;
    expect_ways(place, "/", "");
    expect_ways(place, "/models/", "");
    expect_ways(place, "/models/org/m/",
                "/models/ /models/org/m/view/tensors /models/org/m/view/ranks /compare?a=org%2Fm /models/org/m/files/ "
                "/models/org/m #files");
    expect_ways(place, "/models/org/m/files/", "/models/org/m/");
    expect_ways(place, "/models/org/m/files/a/", "/models/org/m/files/");
    expect_ways(place, "/models/org/m/files/a/y/", "/models/org/m/files/a/");
    expect_ways(place, "/models/org/m/files/a%2Fy", "/models/org/m/files/a/");
    expect_ways(place, "/models/" EVIL_HREF "/files/", "/models/" EVIL_HREF "/");
    expect_ways(place, "/org/m/resolve/main/a/y/", "/org/m/resolve/main/a/");
    expect_ways(place, "/org/m/resolve/main/", "");
}

static void expect_text(struct place *place, const char *target, const char *part)
{
    struct answer answer;
    loopback_ask(&place->loop, "GET", target, "Accept: text/html", &answer);
    CHECK(answer.response.status == 200 && strstr(answer.body, part) != NULL, "%s lacks %s: %s", target, part,
          answer.body);
    answer_fini(&answer);
}

static void expect_answer(struct place *place, const char *target, const char *part)
{
    struct answer answer;
    loopback_get(&place->loop, target, &answer);
    CHECK(answer.response.status == 200 && strstr(answer.body, part) != NULL, "%s lacks %s: %s", target, part,
          answer.body);
    answer_fini(&answer);
}

/* A page shows the `error` that JSON has for a file beside its name. Sizes have units. */
static void refused_files_say_why(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "good/model.safetensors", "a");
    tree_text(&place->tree, "good/lfs.bin",
              "version https://git-lfs.github.com/spec/v1\n"
              "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n");
    tree_text(&place->tree, "bad/x<y>.safetensors", "rubbish!");
    tree_simple(&place->tree, "part/model-00001-of-00002.safetensors", "a");
    tree_index(&place->tree, "part/model.safetensors.index.json",
               "a model-00001-of-00002.safetensors b model-00002-of-00002.safetensors");
    loopback_open(&place->loop, &place->tree);
    expect_text(place, "/", "<bdi>bad</bdi></a><br><span class=\"bad\">x&lt;y&gt;.safetensors: ");
    expect_text(place, "/", "data-col=\"bytes\" data-value=\"8\">8 B</td>");
    expect_text(place, "/", "<bdi>part</bdi></a><br><span class=\"bad\">model.safetensors.index.json: ");
    expect_text(place, "/models/good/files/", "git lfs pull");
    expect_text(place, "/models/bad/files/",
                "<data value=\"8\">8 B</data></td><td>header length 2407300897288910194 is larger");
    expect_text(place, "/models/part/", "<a data-link=\"manifest\" href=\"/models/part/tensors?partial=1\">");
}

/* Every checkpoint is linked, in the row of its id. The default needs no parameter, an incomplete checkpoint has one of
 * its own. */
static void every_checkpoint_is_linked(void **state)
{
#define A_B "a%20%26%20%3Cb%3E.safetensors"
    struct place *place = *state;
    tree_simple(&place->tree, "m/model.safetensors", "a");
    tree_simple(&place->tree, "m/a & <b>.safetensors", "a");
    tree_simple(&place->tree, "part/x.safetensors", "a");
    tree_index(&place->tree, "part/q.safetensors.index.json", "a x.safetensors b missing.safetensors");
    tree_index(&place->tree, "part/r.safetensors.index.json", "a x.safetensors b missing.safetensors");
    loopback_open(&place->loop, &place->tree);
    expect_page(place, "/models/m/", "text/html",
                "/models/m/view/tensors /models/m/tensors /models/m/model.safetensors "
                "/models/m/view/tensors?checkpoint=" A_B " /models/m/tensors?checkpoint=" A_B
                " /models/m/model.safetensors?checkpoint=" A_B " /models/m/files/" A_B
                " /models/m/files/model.safetensors");
    expect_page(place, "/models/part/", "text/html",
                "/models/part/view/tensors?partial=1 /models/part/tensors?partial=1 "
                "/models/part/view/tensors?checkpoint=r.safetensors.index.json&amp;partial=1 "
                "/models/part/tensors?checkpoint=r.safetensors.index.json&amp;partial=1 "
                "/models/part/files/q.safetensors.index.json /models/part/files/r.safetensors.index.json "
                "/models/part/files/x.safetensors");
    expect_text(place, "/models/m/", "<tr data-checkpoint=\"a &amp; &lt;b&gt;.safetensors\">");
    expect_text(place, "/models/part/", "<tr data-checkpoint=\"r.safetensors.index.json\">");
    expect_answer(place, "/models/m/tensors?checkpoint=" A_B, "\"checkpoint\":\"a & <b>.safetensors\"");
    expect_answer(place, "/models/part/tensors?checkpoint=r.safetensors.index.json&partial=1",
                  "\"checkpoint\":\"r.safetensors.index.json\"");
}

static void who_gets_a_page(void **state)
{
    static const struct {
        const char *target, *lines;
        bool html;
    } cases[] = {
        {"/models/", "Accept: text/html", true},
        {"/models/", "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true},
        {"/models/", "Accept: application/json, text/html;q=0.5", true},
        {"/models/", "Accept: */*\nAccept: TEXT/HTML ; charset=utf-8", true},
        {"/models/", "Accept:  ,\t,text/html", true},
        {"/models/", NULL, false},
        {"/models/", "Accept:", false},
        {"/models/", "Accept: */*", false},
        {"/models/", "Accept: text/*", false},
        {"/models/", "Accept: text/htmlx", false},
        {"/models/", "Accept: xtext/html", false},
        {"/models/", "Accept: application/json;a=\"text/html\"", false},
        {"/models", "Accept: text/html", false},
        {"/models/org/m/", "Accept: text/html", true},
        {"/models/org/m", "Accept: text/html", false},
        {"/models/org/m/files/", "Accept: */*", true},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_ask(&place->loop, "GET", cases[i].target, cases[i].lines, &answer);
        CHECK(answer.response.status == 200, "%s: %s", cases[i].target, answer.body);
        CHECK((strncmp(answer.response.content_type, "text/html", 9) == 0) == cases[i].html, "%s with %s",
              cases[i].target, cases[i].lines == NULL ? "none" : cases[i].lines);
        bool varies = answer_header(&answer, "Vary", buffer) != NULL;
        /* targets without /files/ have JSON as well */
        bool has_page = cases[i].target[strlen(cases[i].target) - 1] == '/';
        CHECK(varies == (has_page && strstr(cases[i].target, "/files/") == NULL), "%s", cases[i].target);
        answer_fini(&answer);
    }
}

static void no_page_where_there_is_no_folder(void **state)
{
    static const struct {
        const char *target;
        int status;
    } cases[] = {
        {"/models/org/m/files/none/", 404}, {"/models/org/m/files/a-b/", 404}, {"/models/org/m/files/a/x/", 404},
        {"/models/org/m/files//", 404},     {"/models/org/m/files/a//", 404},  {"/models/org/m/files/../", 404},
        {"/models/org/none/", 404},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        loopback_ask(&place->loop, "GET", cases[i].target, "Accept: text/html", &answer);
        CHECK(answer.response.status == cases[i].status, "%s: %d", cases[i].target, answer.response.status);
        CHECK(strcmp(answer.response.content_type, "text/html; charset=utf-8") == 0, "%s", cases[i].target);
        answer_fini(&answer);
    }
}

/* The start page links the pages of datasets; those without rows by the Hub's paths of their files. Models have such
 * pages too, without a link. */
static void datasets_are_found(void **state)
{
    static const char evil[] = "/datasets/" EVIL_HREF "/resolve/main/";
    struct place *place = *state;
    tree_simple(&place->tree, "ns/m/model.safetensors", "a");
    tree_text(&place->tree, "ns/m/sub/x", "1");
    tree_text(&place->tree, "ns/notes/README.md", ""); /* neither a model nor a dataset */
    tree_text(&place->tree, "ns/rows/train.parquet", "123");
    tree_text(&place->tree, "ns/rows/data/a/x.csv", "1,2");
    tree_text(&place->tree, "datasets/ns/rows2/a-b", "12");
    tree_text(&place->tree, "datasets--org--cached/snapshots/" C1 "/new.txt", "");
    tree_text(&place->tree, "datasets--org--cached/snapshots/" C0 "/old.txt", "");
    tree_text(&place->tree, "datasets--org--cached/refs/main", C1);
    tree_text(&place->tree, "datasets/" EVIL "/" EVIL ".csv", "");
    loopback_open(&place->loop, &place->tree);
    expect_page(place, "/", "text/html",
                "/models/ns/m/ /datasets/ns/rows /datasets/" EVIL_HREF
                " /datasets/ns/rows2/resolve/main/ /datasets/org/cached/resolve/main/");
    expect_page(place, "/models/", "text/html", "/models/ns/m/");
    expect_page(place, "/datasets/org/cached/resolve/main/", "*/*", "/datasets/org/cached/resolve/main/new.txt");
    expect_page(place, "/datasets/org/cached/resolve/" C0 "/", "*/*", "/datasets/org/cached/resolve/" C0 "/old.txt");
    expect_page(place, "/datasets/ns/rows/resolve/main/", "*/*",
                "/datasets/ns/rows/resolve/main/data/ /datasets/ns/rows/resolve/main/train.parquet");
    expect_page(place, "/datasets/ns/rows/resolve/HEAD/data/", "*/*", "/datasets/ns/rows/resolve/HEAD/data/a/");
    expect_page(place, "/datasets/ns/rows2/resolve/main/", "text/html", "/datasets/ns/rows2/resolve/main/a-b");
    expect_page(place, "/ns/m/resolve/main/", "text/html",
                "/ns/m/resolve/main/model.safetensors /ns/m/resolve/main/sub/");
    expect_page(place, "/ns/m/raw/main/sub/", "text/html", "/ns/m/resolve/main/sub/x");
    expect_page(place, evil, "text/html",
                "/datasets/" EVIL_HREF "/resolve/main/%22%3E%3Cscript%3Ealert%28%271%27%29%3C/");
    struct answer answer;
    char commit[128];
    loopback_get(&place->loop, "/datasets/org/cached/resolve/main/", &answer);
    assert_string_equal(answer_header(&answer, "X-Repo-Commit", commit), C1); /* the same field as on files */
    answer_fini(&answer);
    loopback_get(&place->loop, "/datasets/ns/rows/resolve/main/data/a/x.csv", &answer);
    assert_string_equal(answer.body, "1,2");
    answer_fini(&answer);
}

/* Virtual revisions have no pages. Paths that are no folder, or that request a file, have none either. The errors are
 * the Hub's. */
static void no_page_below_other_paths_of_the_hub(void **state)
{
    static const struct {
        const char *target, *code;
    } cases[] = {
        {"/datasets/ns/rows/resolve/main/none/", "EntryNotFound"},
        {"/datasets/ns/rows/resolve/main/dat/", "EntryNotFound"},
        {"/datasets/ns/rows/resolve/main/data", "EntryNotFound"},
        {"/datasets/ns/rows/resolve/none/", "RevisionNotFound"},
        {"/datasets/ns/none/resolve/main/", "RepoNotFound"},
        {"/ns/m/resolve/safetensors/", "EntryNotFound"},
        {"/ns/m/resolve/tp2-rank0-none/", "EntryNotFound"},
        {"/ns/m/resolve/main", NULL},
        {"/ns/m/resolve/", NULL},
    };
    struct place *place = *state;
    tree_simple(&place->tree, "ns/m/model.safetensors", "a");
    tree_text(&place->tree, "ns/rows/data/x.csv", "1,2");
    loopback_open(&place->loop, &place->tree);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char buffer[128];
        loopback_ask(&place->loop, "GET", cases[i].target, "Accept: text/html", &answer);
        CHECK(answer.response.status == 404, "%s: %d", cases[i].target, answer.response.status);
        const char *code = answer_header(&answer, "X-Error-Code", buffer);
        CHECK(code == NULL ? cases[i].code == NULL : cases[i].code != NULL && strcmp(code, cases[i].code) == 0,
              "%s: %s", cases[i].target, code == NULL ? "none" : code);
        answer_fini(&answer);
    }
}

/* Checks the rates of the status page: the heading, whether the lines of the chart are there, and their points. */
static void expect_rates(struct place *place, const char *heading, size_t point_count)
{
    struct answer answer;
    loopback_ask(&place->loop, "GET", "/status", "Accept: text/html", &answer);
    CHECK(answer.response.status == 200 && strstr(answer.body, heading) != NULL, "%s", answer.body);
    size_t commas = 0;
    const char *points = strstr(answer.body, "points=\"");
    for (const char *at = points == NULL ? "" : points + strlen("points=\""); *at != '\0' && *at != '"'; at++)
        commas += *at == ',' ? 1 : 0;
    CHECK(commas == point_count, "%zu points under %s, wanted %zu", commas, heading, point_count);
    CHECK((strstr(answer.body, "Rates follow a second after the start") != NULL) == (point_count == 0), "%s", heading);
    CHECK((strstr(answer.body, "Each line has a scale of its own") != NULL) == (point_count > 0), "%s", heading);
    answer_fini(&answer);
}

static void status_of_the_first_seconds(void **state)
{
    struct place *place = *state;
    expect_rates(place, "<h2>Rates</h2>", 0);
    td_metrics_sample(&place->loop.api.metrics);
    expect_rates(place, "<h2>Rates</h2>", 0); /* the first sample only begins a second */
    td_metrics_sample(&place->loop.api.metrics);
    expect_rates(place, "<h2>The last second</h2>", 2); /* a line has two ends */
    td_metrics_sample(&place->loop.api.metrics);
    expect_rates(place, "<h2>The last 2 seconds</h2>", 2);
    td_metrics_sample(&place->loop.api.metrics);
    expect_rates(place, "<h2>The last 3 seconds</h2>", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, links_of_every_page),
        TEST_IN(place, links_lead_somewhere),
        TEST_IN(place, hostile_names_are_text),
        TEST_IN(place, every_page_leads_back),
        TEST_IN(unserved, refused_files_say_why),
        TEST_IN(unserved, every_checkpoint_is_linked),
        TEST_IN(place, who_gets_a_page),
        TEST_IN(place, no_page_where_there_is_no_folder),
        TEST_IN(unserved, datasets_are_found),
        TEST_IN(unserved, no_page_below_other_paths_of_the_hub),
        TEST_IN(place, status_of_the_first_seconds),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
