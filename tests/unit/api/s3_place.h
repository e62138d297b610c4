/* Shared by the tests of the S3 facade: a served tree, requests without a socket, and helpers for XML. */
#ifndef TD_TESTS_UNIT_API_S3_PLACE_H
#define TD_TESTS_UNIT_API_S3_PLACE_H

#include "tests/kit/xml_check.h"
#include "tests/unit/api/served_place.h"

enum { ITEMS_MAX = 256, ITEM_BYTES = 256 };

/* The items of a listing in its order: "K" and a key, or "P" and a common prefix. */
struct items {
    char text[ITEMS_MAX][ITEM_BYTES];
    size_t count;
};

static inline void s3_ask(struct place *place, const char *method, const char *target, const char *lines,
                          struct answer *answer)
{
    char buffer[128];
    loopback_ask_s3(&place->loop, method, target, lines, answer);
    const char *id = answer_header(answer, "x-amz-request-id", buffer);
    CHECK(id != NULL && strlen(id) == 16, "%s: x-amz-request-id", target);
    bool is_xml = answer->response.content_type != NULL &&
                  strcmp(answer->response.content_type, "application/xml") == 0 && answer->len > 0;
    CHECK(!is_xml || xml_is_well_formed(answer->body, answer->len), "%s: %s", target, answer->body);
}

/* Writes the unescaped text of the next <name> at or after *at to `out` and moves *at. Returns false when no more
 * follows. */
static inline bool xml_next(const char **at, const char *name, char *out, size_t capacity)
{
    static const char *const pairs[][2] = {{"&amp;", "&"}, {"&lt;", "<"},   {"&gt;", ">"},  {"&quot;", "\""},
                                           {"&#9;", "\t"}, {"&#10;", "\n"}, {"&#13;", "\r"}};
    char tag[64];
    size_t used = 0;
    (void)snprintf(tag, sizeof tag, "<%s>", name);
    const char *p = strstr(*at, tag);
    if (p == NULL)
        return false;
    for (p += strlen(tag); *p != '<'; used++) {
        size_t skip = 1;
        assert_true(used + 1 < capacity);
        out[used] = *p;
        for (size_t i = 0; i < COUNT_OF(pairs); i++) {
            if (strncmp(p, pairs[i][0], strlen(pairs[i][0])) != 0)
                continue;
            out[used] = *pairs[i][1];
            skip = strlen(pairs[i][0]);
        }
        p += skip;
    }
    out[used] = '\0';
    *at = p;
    return true;
}

static inline bool xml_first(const char *xml, const char *name, char *out, size_t capacity)
{
    return xml_next(&xml, name, out, capacity);
}

/* Checks the ETag of an S3 object. Amazon's API reference, Object: the tag of an object uploaded in parts is no MD5.
 * Its form is known from its clients: rclone takes ^[0-9a-f]{32}$ for an MD5; s3cmd and the AWS SDK for Java v1 take
 * every tag without '-'. */
static inline void check_etag(const char *etag, const char *where)
{
    size_t digits = etag[0] == '\0' ? 0 : strspn(etag + 1, "0123456789abcdef");
    CHECK(etag[0] == '"' && digits >= 32 && strcmp(etag + 1 + digits, "-1\"") == 0, "%s: %s", where, etag);
}

static inline void percent_decode(char *text)
{
    char *to = text;
    for (const char *p = text; *p != '\0'; p++) {
        char hex[3] = {p[0], p[0] == '%' ? p[1] : '\0', '\0'};
        if (*p == '%') {
            hex[0] = p[1];
            hex[1] = p[2];
            *to++ = (char)strtol(hex, NULL, 16);
            p += 2;
        } else {
            *to++ = *p;
        }
    }
    *to = '\0';
}

/* Appends the items of a listing's XML document. */
static inline void add_items(struct items *items, const char *xml, bool encoded)
{
    for (int kind = 0; kind < 2; kind++) {
        const char *at = strstr(xml, kind == 0 ? "<Contents>" : "<CommonPrefixes>");
        while (at != NULL &&
               xml_next(&at, kind == 0 ? "Key" : "Prefix", items->text[items->count] + 1, ITEM_BYTES - 1)) {
            items->text[items->count][0] = kind == 0 ? 'K' : 'P';
            if (encoded)
                percent_decode(items->text[items->count]);
            items->count++;
            assert_true(items->count < ITEMS_MAX);
        }
    }
}

static inline int items_compare(const void *a, const void *b)
{
    return strcmp((const char *)a + 1, (const char *)b + 1);
}

static inline void sort_items(struct items *items, size_t from)
{
    qsort(items->text + from, items->count - from, ITEM_BYTES, items_compare);
}

/* Checks that the answer is an S3 error document with this code, and that its message contains `part`. */
static inline void expect_s3_error(struct place *place, const char *method, const char *target, const char *lines,
                                   int status, const char *code, const char *part)
{
    struct answer answer;
    char text[2048];
    char buffer[128];
    s3_ask(place, method, target, lines, &answer);
    CHECK(answer.response.status == status, "%s %s: %d: %s", method, target, answer.response.status, answer.body);
    CHECK(strcmp(answer.response.content_type, "application/xml") == 0, "%s", target);
    CHECK(answer.response.etag[0] == '\0', "%s", target);
    CHECK((answer_header(&answer, "Retry-After", buffer) != NULL) == (status == 503), "%s", target);
    CHECK(strstr(answer.body, "<Error><Code>") != NULL, "%s: %s", target, answer.body);
    CHECK(xml_first(answer.body, "Code", text, sizeof text) && strcmp(text, code) == 0, "%s: %s", target, answer.body);
    CHECK(xml_first(answer.body, "Message", text, sizeof text) && strstr(text, part) != NULL, "%s: %s", target,
          answer.body);
    CHECK(xml_first(answer.body, "Resource", text, sizeof text) && strncmp(text, target, strlen(text)) == 0, "%s: %s",
          target, answer.body);
    CHECK(xml_first(answer.body, "RequestId", text, sizeof text) &&
              strcmp(text, answer_header(&answer, "x-amz-request-id", buffer)) == 0,
          "%s: %s", target, answer.body);
    answer_fini(&answer);
}

/* Checks the items of one page of a listing. `wanted` holds the items; a blank follows each. */
static inline void expect_items(struct place *place, const char *target, const char *wanted)
{
    static struct items items;
    struct answer answer;
    char got[4096] = "";
    size_t used = 0;
    s3_ask(place, "GET", target, NULL, &answer);
    CHECK(answer.response.status == 200, "%s: %s", target, answer.body);
    items.count = 0;
    add_items(&items, answer.body, false);
    sort_items(&items, 0);
    for (size_t i = 0; i < items.count; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s ", items.text[i]);
    CHECK(strcmp(got, wanted) == 0, "%s: %s", target, got);
    answer_fini(&answer);
}

#endif
