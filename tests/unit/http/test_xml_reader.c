#include "http/xml_reader.h"

#include "core/buffer.h"
#include "tests/unit/unit.h"

/* Returns the events of a document: "<a>" "</a>" 'text', and '!' for a bad one. */
static char *events_of(struct td_text document, struct td_buffer *out)
{
    struct td_xml_reader reader;
    td_buffer_clear(out);
    td_xml_reader_begin(&reader, document);
    while (true) {
        enum td_xml_event event = td_xml_reader_next(&reader);
        char text[200];
        size_t len;
        if (event == TD_XML_BEGIN)
            td_buffer_printf(out, "<%.*s>", TD_SHOW(reader.name, 100));
        else if (event == TD_XML_END)
            td_buffer_printf(out, "</%.*s>", TD_SHOW(reader.name, 100));
        else if (event == TD_XML_TEXT && reader.text.len <= sizeof text && td_xml_read_text(reader.text, text, &len))
            td_buffer_append(out, text, len);
        else
            td_buffer_puts(out, event == TD_XML_OVER ? "." : "!");
        if (event == TD_XML_OVER || event == TD_XML_BAD) {
            assert_int_equal(td_xml_reader_next(&reader), event == TD_XML_OVER ? TD_XML_OVER : TD_XML_BAD);
            return td_buffer_terminate(out);
        }
    }
}

static void documents(void **state)
{
    (void)state;
    static const struct {
        const char *document, *events;
    } cases[] = {
        {"<a/>", "<a></a>."},
        {"<a></a>", "<a></a>."},
        {"\xEF\xBB\xBF<?xml version=\"1.0\"?>\n<a b='>' c=\"/>\">x</a>\n", "<a>x</a>."},
        {"<s3:a xmlns:s3=\"x\"><s3:b> 1 </s3:b ></s3:a>", "<a><b> 1 </b></a>."},
        {"<!-- <b> --><a><!-- &x; --><b/></a><!-- end -->", "<a><b></b></a>."},
        {"<a>&lt;&amp;&gt;&quot;&apos;&#65;&#x2014;\r\nx\ry</a>", "<a><&>\"'A\xE2\x80\x94\nx\ny</a>."},
        {"", "!"},
        {"x", "!"},
        {"<a>", "<a>!"},
        {"<a></b>", "<a>!"},
        {"<a/><b/>", "<a></a>!"},
        {"<a/>x", "<a></a>!"},
        {"<a><b></a></b>", "<a><b>!"},
        {"<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>", "!"},
        {"<a>&x;</a>", "<a>!</a>."},
        {"<a>&#0;</a>", "<a>!</a>."},
        {"<a>&#x110000;</a>", "<a>!</a>."},
        {"<a>&#99999999999999999999;</a>", "<a>!</a>."},
        {"<a>&amp</a>", "<a>!</a>."},
        {"<a><![CDATA[x]]></a>", "<a>!"},
        {"<a><?php ?></a>", "<a>!"},
        {"<a b=\"<\"/>", "!"},
        {"<1/>", "!"},
        {"</a>", "!"},
        {"<a><b/", "<a>!"},
        {"<a>\xFF</a>", "!"},
        {"<a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>",
         "<a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>."},
        {"<a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a>", "<a><a><a><a><a><a><a><a>!"},
    };
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_string_equal(events_of(td_text_of(cases[i].document), &out), cases[i].events);
    assert_string_equal(events_of(TD_TEXT("<a>\0</a>"), &out), "!");
    td_buffer_fini(&out);
}

static void leaves_and_skipping(void **state)
{
    (void)state;
    struct td_xml_reader reader;
    struct td_text text;
    td_xml_reader_begin(&reader, TD_TEXT("<a><b>1</b><c/><d><e>x</e><e/></d><f><g/></f></a>"));
    assert_int_equal(td_xml_reader_next(&reader), TD_XML_BEGIN);
    assert_int_equal(td_xml_reader_next(&reader), TD_XML_BEGIN);
    assert_true(td_xml_reader_leaf(&reader, &text) && td_text_equals(text, "1"));
    assert_int_equal(td_xml_reader_next(&reader), TD_XML_BEGIN);
    assert_true(td_xml_reader_leaf(&reader, &text) && text.len == 0);
    assert_int_equal(td_xml_reader_next(&reader), TD_XML_BEGIN);
    assert_true(td_xml_reader_skip(&reader));
    assert_int_equal(td_xml_reader_next(&reader), TD_XML_BEGIN);
    assert_true(td_text_equals(reader.name, "f"));
    assert_false(td_xml_reader_leaf(&reader, &text)); /* it has an element */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents), cmocka_unit_test(leaves_and_skipping)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
