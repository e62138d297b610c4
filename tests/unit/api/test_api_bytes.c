/* Byte answers through the whole interface: bodies, validators, Range, conditionals. Expectations: RFC 9110 and
 * api/openapi.yaml. */
#include "api/api.h"

#include "core/clock.h"
#include "core/log.h"
#include "http/http_date.h"
#include "tests/kit/loopback.h"
#include "tests/unit/tree_fixture.h"

#include <inttypes.h>

enum { BYTES = 100 };
#define TENSOR "/models/m/tensors/t"
#define OLD "/models/m/files/notes.txt"

struct place {
    struct tree tree;
    struct loopback loop;
    char etag[TD_ETAG_BYTES]; /* of TENSOR */
};

static const struct tree_tensor tensors[] = {{"before", "U8", "[7]", 7},
                                             {"t", "U8", "[4,25]", BYTES},
                                             {"empty", "F32", "[3,0]", 0},
                                             {"after", "I16", "[5]", 10},
                                             {"twin", "U8", "[7]", 7}};

static void open_place(struct place *place)
{
    struct answer answer;
    tree_open(&place->tree);
    (void)tree_tensors(&place->tree, "m/model.safetensors", tensors, COUNT_OF(tensors), NULL, 3);
    tree_text(&place->tree, "m/notes.txt", "0123456789abcdefghij");
    tree_text(&place->tree, "m/empty.txt", "");
    loopback_open(&place->loop, &place->tree);
    loopback_get(&place->loop, TENSOR, &answer);
    memcpy(place->etag, answer.response.etag, sizeof place->etag);
    answer_fini(&answer);
}

static void close_place(struct place *place)
{
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static bool is_tensor_slice(const struct answer *answer, size_t off, size_t len)
{
    if (answer->len != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)answer->body[i] != tree_data_byte(7 + off + i, 3))
            return false;
    return true;
}

static void the_whole_tensor(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char buffer[128];
    loopback_get(&place->loop, TENSOR, &answer);
    assert_int_equal(answer.response.status, 200);
    assert_true(is_tensor_slice(&answer, 0, BYTES));
    assert_string_equal(answer_header(&answer, "Content-Type", buffer), "application/octet-stream");
    assert_string_equal(answer_header(&answer, "Accept-Ranges", buffer), "bytes");
    assert_string_equal(answer_header(&answer, "Cache-Control", buffer), "no-cache");
    assert_string_equal(answer_header(&answer, "X-Tensor-Dtype", buffer), "U8");
    assert_string_equal(answer_header(&answer, "X-Tensor-Shape", buffer), "[4,25]");
    const char *etag = answer_header(&answer, "ETag", buffer);
    assert_true(etag[0] == '"' && etag[strlen(etag) - 1] == '"' && strlen(etag) > 10); /* strong */
    assert_null(answer_header(&answer, "Content-Range", buffer));
    /* the body is one extent of the mapping, not a copy */
    assert_int_equal(answer.response.body.extent_count, 1);
    answer_fini(&answer);
}

static void empty_things_have_no_bytes(void **state)
{
    static const char *const targets[] = {"/models/m/tensors/empty", "/models/m/files/empty.txt"};
    static const char *const lines[] = {NULL, "Range: bytes=0-", "Range: bytes=0-0", "Range: bytes=-1",
                                        "Range: bytes=5-1"};
    struct place *place = *state;
    char buffer[128];
    for (size_t t = 0; t < COUNT_OF(targets); t++) {
        for (size_t i = 0; i < COUNT_OF(lines); i++) {
            struct answer answer;
            loopback_ask(&place->loop, "GET", targets[t], lines[i], &answer);
            CHECK(answer.response.status == 200 && answer.len == 0, "%s", targets[t]);
            CHECK(answer_header(&answer, "ETag", buffer) != NULL, "%s", targets[t]);
            CHECK(answer_header(&answer, "Content-Range", buffer) == NULL, "%s", targets[t]);
            answer_fini(&answer);
        }
    }
}

/* The wanted answer: "off+len" for 206; "whole" for 200; "416"; "304"; "412". ETAG in a line stands for the current
 * tag. */
static const struct {
    const char *method, *lines, *wanted, *section;
} rows[] = {
    {"GET", "Range: bytes=0-9", "0+10", "15.3.7.1"},
    {"GET", "Range: bytes=90-", "90+10", "14.1.2"},
    {"GET", "Range: bytes=-7", "93+7", "14.1.2"},
    {"GET", "Range: bytes=0-", "0+100", "14.1.2: all of it is a 206 too"},
    {"GET", "Range: bytes=0-99", "0+100", "14.1.2"},
    {"GET", "Range: bytes=0-1000", "0+100", "14.1.2"},
    {"GET", "Range: bytes=-1000", "0+100", "14.1.2"},
    {"GET", "Range: bytes=99-99", "99+1", "14.1.2"},
    {"GET", "range: BYTES=5-6", "5+2", "5.1, 14.1"},
    {"GET", "Range: bytes=100-", "416", "15.5.17"},
    {"GET", "Range: bytes=100-200", "416", "15.5.17"},
    {"GET", "Range: bytes=-0", "416", "14.1.2"},
    {"GET", "Range: bytes=200-,300-", "416", "15.5.17"},
    {"GET", "Range: bytes=0-9,200-", "0+10", "15.3.7.2: one is left"},
    {"GET", "Range: bytes=9-0", "whole", "14.1.1"},
    {"GET", "Range: bytes=", "whole", "14.1.1"},
    {"GET", "Range: bytes=x", "whole", "14.1.1"},
    {"GET", "Range: lines=0-9", "whole", "14.2"},
    {"GET", "Range: bytes=0-9\nRange: bytes=0-9", "whole", "5.3: no list field, so not valid"},
    {"GET", "Range: bytes=0-9\nRange: bytes=20-29", "whole", "5.3"},
    {"HEAD", "Range: bytes=0-9", "whole", "14.2: Range is for GET"},
    {"HEAD", "Range: bytes=100-", "whole", "14.2"},
    {"HEAD", "Range: bytes=0-9\nIf-Range: ETAG", "whole", "14.2"},
    /* --- preconditions come first */
    {"GET", "Range: bytes=0-9\nIf-Match: ETAG", "0+10", "13.2.2"},
    {"GET", "Range: bytes=0-9\nIf-Match: \"x\"", "412", "13.2.2 step 1"},
    {"GET", "Range: bytes=100-\nIf-Match: \"x\"", "412", "13.2.2 step 1"},
    {"GET", "Range: bytes=0-9\nIf-None-Match: ETAG", "304", "13.2.2 step 3"},
    {"GET", "Range: bytes=100-\nIf-None-Match: ETAG", "304", "13.2.2 step 3"},
    {"GET", "Range: bytes=0-9\nIf-None-Match: W/ETAG", "304", "13.1.2"},
    {"GET", "Range: bytes=0-9\nIf-None-Match: *", "304", "13.1.2"},
    {"GET", "Range: bytes=0-9\nIf-None-Match: \"x\"", "0+10", "13.2.2"},
    {"GET", "If-None-Match: ETAG", "304", "13.1.2"},
    {"GET", "If-Match: ETAG", "whole", "13.1.1"},
    {"GET", "If-Match: W/ETAG", "412", "13.1.1"},
    {"HEAD", "If-None-Match: ETAG", "304", "13.1.2"},
    {"HEAD", "If-Match: \"x\"", "412", "13.1.1"},
    /* --- If-Range */
    {"GET", "Range: bytes=0-9\nIf-Range: ETAG", "0+10", "13.1.5"},
    {"GET", "If-Range: ETAG\nRange: bytes=-5", "95+5", "13.1.5"},
    {"GET", "Range: bytes=0-9\nIf-Range: \"x\"", "whole", "13.1.5"},
    {"GET", "Range: bytes=0-9\nIf-Range: W/ETAG", "whole", "13.1.5: strong comparison"},
    {"GET", "Range: bytes=100-\nIf-Range: \"x\"", "whole", "13.1.5: before 416"},
    {"GET", "Range: bytes=100-\nIf-Range: ETAG", "416", "13.1.5"},
    {"GET", "If-Range: ETAG", "whole", "13.1.5: nothing without Range"},
    {"GET", "If-Range: \"x\"", "whole", "13.1.5"},
    {"GET", "Range: bytes=0-9\nIf-Range: ETAG\nIf-None-Match: ETAG", "304", "13.2.2"},
    {"GET", "Range: bytes=0-9\nIf-Range: \"x\"\nIf-Match: ETAG", "whole", "13.2.2"},
    {"GET", "Range: bytes=0-9\nIf-Range: Sun, 06 Nov 1994 08:49:37 GMT", "whole", "13.1.5: a tensor has no date"},
    {"GET", "Range: bytes=0-9\nIf-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT", "0+10", "13.1.3: no date"},
};

/* Writes the lines to `out`, with ETAG replaced by the tag. */
static void with_etag(const char *lines, const char *etag, char *out, size_t capacity)
{
    const char *at = strstr(lines, "ETAG");
    size_t used = 0;
    for (; at != NULL; at = strstr(lines, "ETAG")) {
        used += (size_t)snprintf(out + used, capacity - used, "%.*s%s", (int)(at - lines), lines, etag);
        lines = at + 4;
    }
    (void)snprintf(out + used, capacity - used, "%s", lines);
}

static void check_row(struct place *place, size_t i)
{
    struct answer answer;
    char lines[512];
    char buffer[128];
    char wanted_range[128];
    uint64_t off, len;
    with_etag(rows[i].lines, place->etag, lines, sizeof lines);
    loopback_ask(&place->loop, rows[i].method, TENSOR, lines, &answer);
    const char *wanted = rows[i].wanted;
    const char *range = answer_header(&answer, "Content-Range", buffer);
    int status = answer.response.status;
    const char *what = rows[i].lines;
    if (strcmp(wanted, "whole") == 0) {
        CHECK(status == 200 && range == NULL && is_tensor_slice(&answer, 0, BYTES), "%s: %d", what, status);
    } else if (strcmp(wanted, "416") == 0) {
        CHECK(status == 416 && range != NULL && strcmp(range, "bytes */100") == 0, "%s: %d", what, status);
    } else if (strcmp(wanted, "304") == 0) {
        CHECK(status == 304 && range == NULL && answer.len == 0, "%s: %d", what, status);
        CHECK(answer.response.announced_bytes == BYTES, "%s", what);
    } else if (strcmp(wanted, "412") == 0) {
        CHECK(status == 412 && range == NULL, "%s: %d", what, status);
    } else {
        assert_int_equal(sscanf(wanted, "%" SCNu64 "+%" SCNu64, &off, &len), 2);
        (void)snprintf(wanted_range, sizeof wanted_range, "bytes %" PRIu64 "-%" PRIu64 "/100", off, off + len - 1);
        CHECK(status == 206 && range != NULL && strcmp(range, wanted_range) == 0, "%s: %d %s", what, status,
              range == NULL ? "" : range);
        CHECK(is_tensor_slice(&answer, (size_t)off, (size_t)len), "%s", what);
        CHECK(strcmp(answer_header(&answer, "X-Tensor-Shape", buffer), "[4,25]") == 0, "%s", what);
    }
    if (status < 400) { /* 15.3.7, 15.4.5: the fields that a 200 would have */
        CHECK(strcmp(answer_header(&answer, "ETag", buffer), place->etag) == 0, "%s", what);
        CHECK(strcmp(answer_header(&answer, "Cache-Control", buffer), "no-cache") == 0, "%s", what);
    }
    answer_fini(&answer);
}

static void ranges_and_conditions_of_a_tensor(void **state)
{
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check_row(place, i);
    print_message("%zu rows\n", COUNT_OF(rows));
}

/* Last-Modified of a file is its mtime. */
static void dates_of_a_file(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char date[128];
    char lines[256];
    static const struct {
        const char *format;
        int shift, status;
    } cases[] = {
        {"If-Modified-Since: %s", 0, 304},
        {"If-Modified-Since: %s", 1, 304},
        {"If-Modified-Since: %s", -1, 200},
        {"If-Unmodified-Since: %s", 0, 200},
        {"If-Unmodified-Since: %s", -1, 412},
        {"Range: bytes=2-3\nIf-Range: %s", 0, 206},
        {"Range: bytes=2-3\nIf-Range: %s", -1, 200},
        {"Range: bytes=2-3\nIf-Range: %s", 1, 200},
        {"Range: bytes=2-3\nIf-Unmodified-Since: %s", 0, 206},
        {"Range: bytes=2-3\nIf-Modified-Since: %s", -1, 206},
        {"Range: bytes=2-3\nIf-Modified-Since: %s", 0, 304},
    };
    loopback_get(&place->loop, OLD, &answer);
    assert_non_null(answer_header(&answer, "Last-Modified", date));
    int64_t modified_s;
    assert_true(td_http_date_parse(td_text_of(date), &modified_s));
    assert_true(td_wall_now().seconds - modified_s >= 60 && td_wall_now().seconds - modified_s < 600);
    answer_fini(&answer);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char when[30];
        char again[128];
        td_http_date_format(modified_s + cases[i].shift, when);
        const char *mark = strstr(cases[i].format, "%s");
        (void)snprintf(lines, sizeof lines, "%.*s%s", (int)(mark - cases[i].format), cases[i].format, when);
        loopback_ask(&place->loop, "GET", OLD, lines, &answer);
        CHECK(answer.response.status == cases[i].status, "%s: %d", lines, answer.response.status);
        CHECK(cases[i].status != 206 || (answer.len == 2 && memcmp(answer.body, "23", 2) == 0), "%s", lines);
        if (cases[i].status != 412)
            CHECK(strcmp(answer_header(&answer, "Last-Modified", again), date) == 0, "%s", lines);
        answer_fini(&answer);
    }
}

/* ---- multipart ----------------------------------------------------------------------------------------- */

static void append_part(struct td_buffer *out, const char *boundary, bool first, const char *type, uint64_t off,
                        uint64_t len, const char *whole, uint64_t size)
{
    td_buffer_printf(out, "%s--%s\r\n", first ? "" : "\r\n", boundary);
    td_buffer_printf(out, "Content-Type: %s\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n\r\n", type,
                     off, off + len - 1, size);
    td_buffer_append(out, whole + off, (size_t)len);
}

struct part {
    uint64_t off, len;
};

/* Section 14.6 and RFC 2046 section 5.1.1, byte for byte; only the boundary is the server's choice. */
static void check_multipart(const struct answer *answer, const struct answer *whole, const struct part *parts,
                            size_t count, const char *what)
{
    static const char prefix[] = "multipart/byteranges; boundary=";
    char buffer[128];
    struct td_buffer wanted;
    CHECK(answer->response.status == 206, "%s: %d", what, answer->response.status);
    const char *type = answer->response.content_type;
    CHECK(strncmp(type, prefix, strlen(prefix)) == 0, "%s: %s", what, type);
    const char *boundary = type + strlen(prefix);
    CHECK(strlen(boundary) >= 16 && strlen(boundary) <= 70, "%s", boundary);
    CHECK(strspn(boundary, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(boundary), "%s",
          boundary);
    CHECK(answer_header(answer, "Content-Range", buffer) == NULL, "%s: Content-Range is for one range", what);
    CHECK(strcmp(answer->response.etag, whole->response.etag) == 0, "%s", what);
    td_buffer_init(&wanted);
    for (size_t i = 0; i < count; i++)
        append_part(&wanted, boundary, i == 0, whole->response.content_type, parts[i].off, parts[i].len, whole->body,
                    whole->len);
    td_buffer_printf(&wanted, "\r\n--%s--\r\n", boundary);
    CHECK(wanted.len == answer->len && memcmp(wanted.data, answer->body, answer->len) == 0, "%s:\n%s", what,
          answer->body);
    td_buffer_fini(&wanted);
}

static void several_ranges_are_multipart(void **state)
{
    static const struct {
        const char *value;
        struct part parts[5];
        size_t count;
    } cases[] = {
        {"bytes=0-0,-1", {{0, 1}, {19, 1}}, 2},
        {"bytes=0-4,10-14", {{0, 5}, {10, 5}}, 2},
        {"bytes=10-14,0-4", {{10, 5}, {0, 5}}, 2} /* in the order asked for */,
        {"bytes=0-4,5-9", {{0, 5}, {5, 5}}, 2} /* not joined */,
        {"bytes=0-4,2-6", {{0, 5}, {2, 5}}, 2},
        {"bytes=0-,0-", {{0, 20}, {0, 20}}, 2},
        {"bytes=1-1, 3-3 ,5-5,100-,7-7", {{1, 1}, {3, 1}, {5, 1}, {7, 1}}, 4},
        {"bytes=-5,0-99,19-", {{15, 5}, {0, 20}, {19, 1}}, 3},
    };
    struct place *place = *state;
    struct answer whole;
    loopback_get(&place->loop, OLD, &whole);
    char boundaries[COUNT_OF(cases)][96];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char lines[256];
        (void)snprintf(lines, sizeof lines, "Range: %s\nIf-Range: %s", cases[i].value, whole.response.etag);
        loopback_ask(&place->loop, "GET", OLD, lines, &answer);
        check_multipart(&answer, &whole, cases[i].parts, cases[i].count, cases[i].value);
        (void)snprintf(boundaries[i], sizeof boundaries[i], "%s", answer.response.content_type);
        for (size_t k = 0; k < i; k++) /* boundaries cannot be predicted */
            assert_string_not_equal(boundaries[k], boundaries[i]);
        answer_fini(&answer);
    }
    answer_fini(&whole);
}

static void as_many_parts_as_there_may_be(void **state)
{
    enum { MOST = 256, SIZE = 4096 };
    struct tree *tree = *state;
    struct loopback loop;
    struct answer whole;
    struct answer answer;
    static char text[SIZE + 1];
    static char lines[8000];
    static struct part parts[MOST];
    for (size_t i = 0; i < SIZE; i++)
        text[i] = (char)tree_data_byte(i, 1);
    tree_write(tree, "m/data.bin", text, SIZE);
    tree_simple(tree, "m/x.safetensors", "a");
    loopback_open(&loop, tree);
    loopback_get(&loop, "/models/m/files/data.bin", &whole);
    for (size_t count = MOST; count <= MOST + 1; count++) {
        size_t used = (size_t)snprintf(lines, sizeof lines, "Range: bytes=");
        for (size_t i = 0; i < count; i++) {
            uint64_t off = 15 * i % SIZE;
            used += (size_t)snprintf(lines + used, sizeof lines - used, "%s%" PRIu64 "-%" PRIu64, i > 0 ? "," : "", off,
                                     off + 4);
            if (i < MOST)
                parts[i] = (struct part){off, 5};
        }
        loopback_ask(&loop, "GET", "/models/m/files/data.bin", lines, &answer);
        if (count == MOST)
            check_multipart(&answer, &whole, parts, MOST, "256 parts");
        else
            assert_int_equal(answer.response.status, 416);
        answer_fini(&answer);
    }
    answer_fini(&whole);
    loopback_close(&loop);
}

/* Requests random sets of ranges of every kind of body: mapped, generated, on the heap. */
static void random_ranges_equal_slices(void **state)
{
    static const char *const targets[] = {
        TENSOR, OLD, "/models/m/tensors", "/models", "/models/m", "/models/m/files/model.safetensors", "/openapi.json"};
    struct place *place = *state;
    uint64_t seed = 13;
    for (size_t t = 0; t < COUNT_OF(targets); t++) {
        struct answer whole;
        loopback_get(&place->loop, targets[t], &whole);
        assert_int_equal(whole.response.status, 200);
        assert_true(whole.response.accept_ranges && whole.response.etag[0] == '"');
        for (int round = 0; round < 400; round++) {
            struct part parts[3];
            char lines[256] = "Range: bytes=";
            size_t count = 1 + random_below(&seed, 3); /* three ranges overlap at most twice, which is allowed */
            for (size_t i = 0; i < count; i++) {
                parts[i].off = random_below(&seed, whole.len);
                parts[i].len = 1 + random_below(&seed, whole.len - parts[i].off);
                (void)snprintf(lines + strlen(lines), 64, "%s%" PRIu64 "-%" PRIu64, i > 0 ? "," : "", parts[i].off,
                               parts[i].off + parts[i].len - 1);
            }
            struct answer answer;
            loopback_ask(&place->loop, "GET", targets[t], lines, &answer);
            if (count == 1) {
                CHECK(answer.response.status == 206 && answer.len == parts[0].len, "%s %s", targets[t], lines);
                CHECK(memcmp(answer.body, whole.body + parts[0].off, answer.len) == 0, "%s %s", targets[t], lines);
            } else {
                check_multipart(&answer, &whole, parts, count, lines);
            }
            answer_fini(&answer);
        }
        answer_fini(&whole);
    }
}

/* ---- what does not take ranges ------------------------------------------------------------------------- */

static void ranges_are_for_representations(void **state)
{
    static const struct {
        const char *target;
        int status;
    } cases[] = {
        {"/healthz", 200},   {"/readyz", 200}, {"/metrics", 200}, {"/nothing", 404}, {"/models/m/tensors/absent", 404},
        {"/models?x=1", 400}};
    struct place *place = *state;
    char buffer[128];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        loopback_ask(&place->loop, "GET", cases[i].target, "Range: bytes=0-0", &answer);
        CHECK(answer.response.status == cases[i].status, "%s: %d", cases[i].target, answer.response.status);
        CHECK(answer_header(&answer, "Content-Range", buffer) == NULL, "%s", cases[i].target);
        CHECK(answer_header(&answer, "Accept-Ranges", buffer) == NULL, "%s", cases[i].target);
        answer_fini(&answer);
    }
}

/* Section 13.2.1: the error for a missing resource comes before its conditions. */
static void errors_come_before_conditions(void **state)
{
    static const char *const lines[] = {"If-Match: *", "If-Match: \"x\"", "If-None-Match: *", "Range: bytes=0-9"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct answer answer;
        loopback_ask(&place->loop, "GET", "/models/m/tensors/absent", lines[i], &answer);
        CHECK(answer.response.status == 404, "%s: %d", lines[i], answer.response.status);
        answer_fini(&answer);
    }
}

/* ---- validators and types ------------------------------------------------------------------------------ */

static void etag_of(struct loopback *loop, const char *target, char out[TD_ETAG_BYTES])
{
    struct answer answer;
    loopback_get(loop, target, &answer);
    CHECK(answer.response.status == 200, "%s: %d", target, answer.response.status);
    memcpy(out, answer.response.etag, TD_ETAG_BYTES);
    answer_fini(&answer);
}

/* Section 8.8.3: no two byte strings share a tag, and a tag stays the same while nothing changes. */
static void etags_are_unique_and_stable(void **state)
{
    static const struct {
        const char *target;
        bool of_the_file; /* the tag changes with the tensors' file */
    } cases[] = {
        {TENSOR, true},
        {"/models/m/tensors/before", true},
        {"/models/m/tensors/twin", true} /* as long as the tensor "before" */,
        {"/models/m/tensors/empty", true},
        {"/models/m/tensors/after", true},
        {"/models/m/files/model.safetensors", true},
        {"/models/m/tensors", true},
        {"/models/m/tensors?match=*", true},
        {"/models/m/tensors?match=t", true},
        {"/models/m/tensors?page_size=1", true},
        {"/models/m/tensors?page_size=2", true},
        {OLD, false},
        {"/models/m", false} /* the text stays: sizes and minute are the same */,
        {"/models", false},
        {"/version", false},
        {"/openapi.json", false},
    };
    struct place *place = *state;
    char etags[COUNT_OF(cases)][TD_ETAG_BYTES];
    char again[TD_ETAG_BYTES];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        etag_of(&place->loop, cases[i].target, etags[i]);
        CHECK(etags[i][0] == '"' && strlen(etags[i]) > 10, "%s: %s", cases[i].target, etags[i]);
        for (size_t k = 0; k < i; k++) /* the variants of one URL have different tags, too */
            CHECK(strcmp(etags[i], etags[k]) != 0, "%s and %s", cases[i].target, cases[k].target);
    }
    loopback_rescan(&place->loop);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        etag_of(&place->loop, cases[i].target, again);
        CHECK(strcmp(etags[i], again) == 0, "%s", cases[i].target);
    }
    (void)tree_tensors(&place->tree, "m/model.safetensors", tensors, COUNT_OF(tensors), NULL, 4);
    loopback_rescan(&place->loop);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        etag_of(&place->loop, cases[i].target, again);
        CHECK(!cases[i].of_the_file || strcmp(etags[i], again) != 0, "%s", cases[i].target);
    }
}

static void types_of_files(void **state)
{
    static const char *const cases[][2] = {
        {"a.json", "application/json"},
        {"A.JSON", "application/json"},
        {"a.jsonl", "text/plain; charset=utf-8"},
        {"a.txt", "text/plain; charset=utf-8"},
        {"a.md", "text/plain; charset=utf-8"},
        {"a.yaml", "text/plain; charset=utf-8"},
        {"a.yml", "text/plain; charset=utf-8"},
        {"a.py", "text/plain; charset=utf-8"},
        {"a.jinja", "text/plain; charset=utf-8"},
        {"a.safetensors", "application/octet-stream"},
        {"a.html", "application/octet-stream"} /* served files are never pages */,
        {"a.svg", "application/octet-stream"},
        {"a.js", "application/octet-stream"},
        {"a.bin", "application/octet-stream"},
        {"json", "application/octet-stream"},
        {"a.json.bin", "application/octet-stream"},
        {"LICENSE", "application/octet-stream"},
    };
    struct tree *tree = *state;
    struct loopback loop;
    char name[64];
    char buffer[128];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        (void)snprintf(name, sizeof name, "m/%s", cases[i][0]);
        tree_text(tree, name, "{}");
    }
    tree_simple(tree, "m/a.safetensors", "t");
    loopback_open(&loop, tree);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        (void)snprintf(name, sizeof name, "/models/m/files/%s", cases[i][0]);
        loopback_get(&loop, name, &answer);
        CHECK(answer.response.status == 200, "%s", name);
        CHECK(strcmp(answer.response.content_type, cases[i][1]) == 0, "%s: %s", name, answer.response.content_type);
        CHECK(strcmp(answer_header(&answer, "X-Content-Type-Options", buffer), "nosniff") == 0, "%s", name);
        answer_fini(&answer);
    }
    loopback_close(&loop);
}

/* A shape that is too long for a header line is left out; a shape that fits is written whole. */
static void shapes_in_headers_are_never_cut(void **state)
{
    struct tree *tree = *state;
    struct loopback loop;
    char shapes[2][512];
    char buffer[128];
    struct tree_tensor two[2] = {{"short", "U8", shapes[0], 1}, {"long", "U8", shapes[1], 1}};
    for (size_t i = 0; i < 2; i++) {
        size_t used = (size_t)snprintf(shapes[i], sizeof shapes[i], "[1");
        for (int d = 1; d < (i == 0 ? 63 : 64); d++)
            used += (size_t)snprintf(shapes[i] + used, sizeof shapes[i] - used, ",1");
        (void)snprintf(shapes[i] + used, sizeof shapes[i] - used, "]");
    }
    (void)tree_tensors(tree, "m/x.safetensors", two, 2, NULL, 0);
    loopback_open(&loop, tree);
    for (size_t i = 0; i < 2; i++) {
        struct answer answer;
        loopback_get(&loop, i == 0 ? "/models/m/tensors/short" : "/models/m/tensors/long", &answer);
        assert_int_equal(answer.response.status, 200);
        const char *shape = answer_header(&answer, "X-Tensor-Shape", buffer);
        CHECK(shape == NULL || strcmp(shape, shapes[i]) == 0, "%s", shape);
        assert_true(i == 1 || shape != NULL); /* the short shape has 127 bytes, which fit */
        answer_fini(&answer);
    }
    loopback_close(&loop);
}

/* Requests offsets past 2^32, in a file that is one hole. */
static void large_offsets_are_exact(void **state)
{
    static const uint64_t hole = UINT64_C(6442450947);
    struct tree *tree = *state;
    struct loopback loop;
    struct answer answer;
    char file[256];
    char lines[128];
    char buffer[128];
    int n = snprintf(file + 8, sizeof file - 8,
                     "{\"hole\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 "],\"data_offsets\":[0,%" PRIu64 "]},"
                     "\"last\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}",
                     hole, hole, hole, hole + 5);
    uint64_t data = 8 + (uint64_t)n;
    for (int i = 0; i < 8; i++)
        file[i] = (char)((uint64_t)n >> 8 * i);
    tree_write(tree, "m/x.safetensors", file, (size_t)data);
    tree_truncate(tree, "m/x.safetensors", data + hole + 5);
    tree_poke(tree, "m/x.safetensors", data + hole, "VWXYZ", 5);
    tree_poke(tree, "m/x.safetensors", data + UINT64_C(4294967296), "four GiB", 8);
    loopback_open(&loop, tree);
    loopback_get(&loop, "/models/m/tensors/last", &answer);
    assert_true(answer.len == 5 && memcmp(answer.body, "VWXYZ", 5) == 0);
    answer_fini(&answer);
    static const struct {
        uint64_t off;
        const char *bytes;
    } cases[] = {{UINT64_C(4294967296), "four"}, {UINT64_C(4294967301), "GiB\0"}, {UINT64_C(6442450943), "\0\0\0\0"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        (void)snprintf(lines, sizeof lines, "Range: bytes=%" PRIu64 "-%" PRIu64, cases[i].off, cases[i].off + 3);
        loopback_ask(&loop, "GET", "/models/m/tensors/hole", lines, &answer);
        assert_true(answer.response.status == 206 && answer.len == 4);
        assert_memory_equal(answer.body, cases[i].bytes, 4);
        (void)snprintf(lines, sizeof lines, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, cases[i].off, cases[i].off + 3,
                       hole);
        assert_string_equal(answer_header(&answer, "Content-Range", buffer), lines);
        answer_fini(&answer);
    }
    loopback_close(&loop);
}

static void get_etag(struct loopback *loop, const char *target, const char *lines, int status, char etag[TD_ETAG_BYTES])
{
    struct answer answer;
    loopback_ask(loop, "GET", target, lines, &answer);
    CHECK(answer.response.status == status, "%s %s: %d", target, lines == NULL ? "" : lines, answer.response.status);
    memcpy(etag, answer.response.etag, TD_ETAG_BYTES);
    answer_fini(&answer);
}

/* RFC 9110 section 8.8.3: equal tags, equal bytes. A download that began under the tag from before hashing can continue
 * under it. */
static void tags_of_before_the_hashing_are_taken(void **state)
{
    static const char *const targets[] = {"/models/m/files/notes.txt", "/models/m/tensors/before",
                                          "/models/m/tensors/before?slice=0:3", "/models/m/model.safetensors",
                                          "/models/m/shards/none/tp2/rank-1.safetensors"};
    static const uint8_t sum[TD_SHA256_BYTES] = {0xab};
    struct place *place = *state;
    char before[COUNT_OF(targets)][TD_ETAG_BYTES];
    for (size_t i = 0; i < COUNT_OF(targets); i++)
        get_etag(&place->loop, targets[i], NULL, 200, before[i]);
    struct td_snapshot *snapshot = td_catalog_acquire(place->loop.catalog);
    for (size_t i = 0; i < snapshot->entry_count; i++)
        assert_true(td_file_set_sha256(snapshot->entries[i].file, sum));
    td_snapshot_unref(snapshot);
    loopback_rescan(&place->loop);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        static const char *const fields[] = {"If-Match", "If-Range"};
        char now[TD_ETAG_BYTES];
        char lines[64 + sizeof before];
        get_etag(&place->loop, targets[i], NULL, 200, now);
        CHECK(strcmp(now, before[i]) != 0, "%s: %s", targets[i], now);
        for (size_t f = 0; f < COUNT_OF(fields); f++) {
            char again[TD_ETAG_BYTES];
            (void)snprintf(lines, sizeof lines, "%s: %s\nRange: bytes=0-1", fields[f], before[i]);
            get_etag(&place->loop, targets[i], lines, 206, again);
            CHECK(strcmp(again, before[i]) == 0, "%s: %s", targets[i], again);
        }
        (void)snprintf(lines, sizeof lines, "If-Match: %s", now);
        get_etag(&place->loop, targets[i], lines, 200, now);
        (void)snprintf(lines, sizeof lines, "If-None-Match: %s", before[i]);
        get_etag(&place->loop, targets[i], lines, 304, now);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, the_whole_tensor),
        TEST_IN(place, empty_things_have_no_bytes),
        TEST_IN(place, ranges_and_conditions_of_a_tensor),
        TEST_IN(place, dates_of_a_file),
        TEST_IN(place, several_ranges_are_multipart),
        TEST_IN(tree, as_many_parts_as_there_may_be),
        TEST_IN(place, random_ranges_equal_slices),
        TEST_IN(place, ranges_are_for_representations),
        TEST_IN(place, errors_come_before_conditions),
        TEST_IN(place, etags_are_unique_and_stable),
        TEST_IN(place, tags_of_before_the_hashing_are_taken),
        TEST_IN(tree, types_of_files),
        TEST_IN(tree, shapes_in_headers_are_never_cut),
        TEST_IN(tree, large_offsets_are_exact),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
