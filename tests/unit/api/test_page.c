/* The forms of values in pages (WHATWG HTML, section 13.1.4; RFC 3986), and sections. */
#include "api/html/page.h"
#include "core/text.h"
#include "test_templates.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

struct context {
    struct td_text value;
    size_t destroyed;
};

static void write_slot(const struct td_page_place *place, unsigned slot, struct td_buffer *out)
{
    const struct context *context = place->context;
    if (slot == TD_SLOT_FORMS_VALUE)
        td_buffer_append(out, context->value.p, context->value.len);
    else
        td_buffer_printf(out, "%zu.%zu.%zu", place->row[0], place->row[1], place->row[2]);
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    switch ((enum td_forms_section)section) {
    case TD_SECTION_FORMS_OUTER:
        return 3;
    case TD_SECTION_FORMS_INNER:
        return place->row[0]; /* none in the first row */
    case TD_SECTION_FORMS_DEEPEST:
        return place->row[1] + 1;
    case TD_SECTION_FORMS_NONE:
        return 0;
    }
    return 0;
}

static void destroy(void *context)
{
    ((struct context *)context)->destroyed++;
}

static const struct td_page_class class = {
    .page = &td_template_forms, .write = write_slot, .rows = count_rows, .destroy = destroy};

/* Returns the page with this value, which the caller frees. */
static char *page_with(struct td_text value)
{
    struct context context = {.value = value};
    struct td_buffer out;
    td_buffer_init(&out);
    td_page_write(&class, &context, &out);
    char *text = strdup(td_buffer_terminate(&out));
    td_buffer_fini(&out);
    assert_non_null(text);
    return text;
}

/* The forms of the template in their order; `card` is the value itself. */
static void expect(struct td_text value, const char *attribute, const char *text, const char *pre, const char *bdi,
                   const char *path, const char *query, const char *link)
{
    char wanted[4096];
    (void)snprintf(wanted, sizeof wanted,
                   "<p title=\"%s\">%s|%s|%s|<a href=\"/a/%s?q=%s\"></a><a href=\"%s\"></a>%.*s</p>\n", attribute, text,
                   pre, bdi, path, query, link, (int)value.len, value.p);
    char *page = page_with(value);
    CHECK(strncmp(page, wanted, strlen(wanted)) == 0, "%.600s\nwanted\n%s", page, wanted);
    free(page);
}

static void values_have_the_form_of_their_place(void **state)
{
    (void)state;
    expect(TD_TEXT("a b"), "a b", "a b", "a b", "<bdi>a b</bdi>", "a%20b", "a%20b", "#");
    expect(TD_TEXT("<&>\"'"), "&lt;&amp;&gt;&quot;&#39;", "&lt;&amp;&gt;&quot;&#39;", "&lt;&amp;&gt;&quot;&#39;",
           "<bdi>&lt;&amp;&gt;&quot;&#39;</bdi>", "%3C%26%3E%22%27", "%3C%26%3E%22%27", "#");
    expect(TD_TEXT("x\n\ty\x1b"), "x&#10;&#9;y&#27;", "x\\x0a\\x09y\\x1b", "x\n\ty\\x1b",
           "<bdi>x\\x0a\\x09y\\x1b</bdi>", "x%0A%09y%1B", "x%0A%09y%1B", "#");
    expect(TD_TEXT("\xe2\x80\xae\xc3\xa9\xff"), "\xe2\x80\xae\xc3\xa9\xef\xbf\xbd", "\\xe2\\x80\\xae\xc3\xa9\\xff",
           "\\xe2\\x80\\xae\xc3\xa9\\xff", "<bdi>\\xe2\\x80\\xae\xc3\xa9\\xff</bdi>", "%E2%80%AE%C3%A9%FF",
           "%E2%80%AE%C3%A9%FF", "#");
}

static void links_stay_on_this_server(void **state)
{
    (void)state;
    static const struct {
        const char *value, *link;
    } cases[] = {
        {"/models/a", "/models/a"},
        {"/", "/"},
        {"?a=b&c=\"", "?a=b&amp;c=&quot;"},
        {"#x", "#x"},
        {"//evil.example", "#"},
        {"/\\evil", "#"},
        {"javascript:alert(1)", "#"},
        {"https://evil.example", "#"},
        {"", "#"},
        {"models", "#"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char wanted[256];
        char *page = page_with(td_text_of(cases[i].value));
        (void)snprintf(wanted, sizeof wanted, "</a><a href=\"%s\"></a>", cases[i].link);
        CHECK(strstr(page, wanted) != NULL, "%s: %.400s", cases[i].value, page);
        free(page);
    }
    char *page = page_with(TD_TEXT("/evil.example/x"));
    assert_non_null(strstr(page, "<a href=\"/a/%2Fevil.example/x?q=%2Fevil.example%2Fx\">"));
    free(page);
}

/* 300 bytes of characters of two bytes: each half ends with a whole character, and the title has all. */
static void long_names_are_cut_in_the_middle(void **state)
{
    (void)state;
    char name[301] = {0};
    for (size_t i = 0; i < 300; i += 2)
        memcpy(name + i, i < 150 ? "\xc3\xa4" : "\xc3\xb6", 2);
    char *page = page_with(td_text_of(name));
    const char *bdi = strstr(page, "<bdi title=\"");
    assert_non_null(bdi);
    assert_memory_equal(bdi + strlen("<bdi title=\""), name, 300);
    const char *shown = strstr(bdi, "\">") + 2;
    assert_memory_equal(shown, name, 128);
    assert_memory_equal(shown + 128, "&hellip;", 8);
    assert_memory_equal(shown + 136, name + 172, 128);
    assert_memory_equal(shown + 264, "</bdi>", 6);
    free(page);
}

/* Letters of three bytes with their marks: neither half begins or ends between a letter and its mark. */
static void long_names_keep_letters_and_marks_together(void **state)
{
    (void)state;
    char name[601] = {0};
    for (size_t i = 0; i < 600; i += 3)
        memcpy(name + i, "e\xcc\x81", 3);
    char *page = page_with(td_text_of(name));
    const char *shown = strstr(strstr(page, "<bdi title=\""), "\">") + 2;
    assert_memory_equal(shown, name, 126);
    assert_memory_equal(shown + 126, "&hellip;", 8);
    assert_memory_equal(shown + 134, name, 126);
    assert_memory_equal(shown + 260, "</bdi>", 6);
    free(page);
}

static void sections_are_repeated_for_their_rows(void **state)
{
    (void)state;
    char *page = page_with(TD_TEXT("x"));
    assert_non_null(strstr(page, "</p>\n\n1.0.0 \n2.0.0 2.1.0 2.1.1 \nend\n"));
    free(page);
}

/* The answer has the bytes that td_page_write writes. */
static void a_page_is_an_answer(void **state)
{
    (void)state;
    struct context context = {.value = TD_TEXT("<&")};
    struct td_response response;
    struct td_body_cursor cursor = {0};
    struct td_error err = TD_ERROR_INIT;
    char sent[4096] = {0};
    td_response_init(&response);
    assert_true(td_page_set(&response, &class, &context, &err));
    assert_true(response.body.total_bytes < sizeof sent);
    assert_true(td_body_read(&response.body, &cursor, sent, (size_t)response.body.total_bytes, &err));
    char *page = page_with(TD_TEXT("<&"));
    assert_string_equal(sent, page);
    free(page);
    assert_int_equal(context.destroyed, 0);
    td_response_fini(&response);
    assert_int_equal(context.destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_the_form_of_their_place),
        cmocka_unit_test(links_stay_on_this_server),
        cmocka_unit_test(long_names_are_cut_in_the_middle),
        cmocka_unit_test(long_names_keep_letters_and_marks_together),
        cmocka_unit_test(sections_are_repeated_for_their_rows),
        cmocka_unit_test(a_page_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
