/* The examples are those of the Amazon S3 API Reference: "Signature calculations for the Authorization header:
 * transferring payload in multiple chunks", and the same for trailing headers. */
#include "http/auth/aws_chunked.h"

#include "core/buffer.h"
#include "tests/unit/unit.h"

#define SEED "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
#define FIRST "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"
#define SECOND "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"
#define LAST "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"
#define TRAILER_SEED "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
#define TRAILER_FIRST "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"
#define TRAILER_SECOND "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"
#define TRAILER_LAST "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"
#define TRAILER_SIGNATURE "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"

static const char secret[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/* A body and what is known of it. */
struct body {
    const char *seed; /* the request's signature; NULL: nothing is checked */
    bool is_signed, has_trailer;
    uint64_t announced;
    struct td_buffer bytes;
};

static void add_chunk(struct td_buffer *out, size_t len, const char *signature)
{
    td_buffer_printf(out, "%zx", len);
    if (signature != NULL)
        td_buffer_printf(out, ";chunk-signature=%s", signature);
    td_buffer_puts(out, "\r\n");
    for (size_t i = 0; i < len; i++)
        td_buffer_putc(out, 'a');
    if (len > 0)
        td_buffer_puts(out, "\r\n");
}

static void make_example(struct body *body, bool has_trailer)
{
    *body = (struct body){
        .seed = has_trailer ? TRAILER_SEED : SEED, .is_signed = true, .has_trailer = has_trailer, .announced = 66560};
    td_buffer_init(&body->bytes);
    add_chunk(&body->bytes, 65536, has_trailer ? TRAILER_FIRST : FIRST);
    add_chunk(&body->bytes, 1024, has_trailer ? TRAILER_SECOND : SECOND);
    add_chunk(&body->bytes, 0, has_trailer ? TRAILER_LAST : LAST);
    if (has_trailer)
        td_buffer_puts(&body->bytes,
                       "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:" TRAILER_SIGNATURE "\r\n");
    td_buffer_puts(&body->bytes, "\r\n");
    assert_false(body->bytes.failed);
}

struct taken {
    uint64_t count, others; /* bytes, and those of them that are no letter a */
};

static bool take_letters(void *context, const char *bytes, size_t len)
{
    struct taken *taken = context;
    for (size_t i = 0; i < len; i++)
        taken->others += bytes[i] == 'a' ? 0 : 1;
    taken->count += len;
    return len > 0;
}

/* Decodes the body in pieces of `step` bytes. Returns the fault. */
static enum td_aws_chunked_fault decode(const struct body *body, size_t step, struct td_aws_chunked *decoder)
{
    struct td_sigv4_chain chain;
    struct td_sigv4 signature = {.scope = TD_TEXT("20130524/us-east-1/s3/aws4_request"),
                                 .date = TD_TEXT("20130524"),
                                 .region = TD_TEXT("us-east-1"),
                                 .time = "20130524T000000Z"};
    struct taken taken = {.count = 0};
    if (body->seed != NULL) {
        signature.signature = td_text_of(body->seed);
        td_sigv4_chain_begin(&chain, &signature, td_text_of(secret));
    }
    td_aws_chunked_begin(decoder, body->is_signed, body->has_trailer, body->seed == NULL ? NULL : &chain,
                         body->announced);
    bool ok = true;
    for (size_t at = 0; ok && at < body->bytes.len; at += step) {
        size_t len = body->bytes.len - at < step ? body->bytes.len - at : step;
        char *exact = malloc(len); /* so that the sanitizer sees a read past the end */
        assert_non_null(exact);
        memcpy(exact, body->bytes.data + at, len);
        ok = td_aws_chunked_write(decoder, exact, len, take_letters, &taken);
        free(exact);
    }
    ok = ok && td_aws_chunked_end(decoder);
    td_aws_chunked_fini(decoder);
    assert_true(ok == (decoder->fault == TD_AWS_CHUNKED_OK));
    assert_true(taken.count <= body->announced && (!ok || (taken.count == body->announced && taken.others == 0)));
    return decoder->fault;
}

static void published_examples(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 7, 4096, 1000000};
    struct td_aws_chunked decoder;
    struct body body;
    for (int has_trailer = 0; has_trailer <= 1; has_trailer++) {
        for (size_t i = 0; i < COUNT_OF(steps); i++) {
            make_example(&body, has_trailer == 1);
            CHECK(decode(&body, steps[i], &decoder) == TD_AWS_CHUNKED_OK, "%d %zu: %d", has_trailer, steps[i],
                  (int)decoder.fault);
            struct td_text rest = td_aws_chunked_trailer(&decoder), name, value;
            assert_int_equal(td_aws_chunked_next_field(&rest, &name, &value), has_trailer);
            if (has_trailer == 1)
                assert_true(td_text_equals(name, "x-amz-checksum-crc32c") && td_text_equals(value, "sOO8/Q=="));
            td_buffer_fini(&body.bytes);
        }
    }
}

/* No byte of a signed body can change: its signature is then wrong, or its form. */
static void every_byte_is_covered(void **state)
{
    (void)state;
    struct td_aws_chunked decoder;
    struct body body;
    make_example(&body, true);
    for (size_t i = 0; i<body.bytes.len; i += i> 100 && i < 65500 ? 977 : 1) {
        char right = body.bytes.data[i];
        if (strchr("\r\n", right) != NULL)
            continue;
        body.bytes.data[i] = right == 'b' ? 'c' : 'b';
        CHECK(decode(&body, 100000, &decoder) != TD_AWS_CHUNKED_OK, "byte %zu", i);
        body.bytes.data[i] = right;
    }
    td_buffer_fini(&body.bytes);
    make_example(&body, false);
    for (size_t cut = 0; cut + 2 < body.bytes.len; cut += cut > 100 && cut < 65500 ? 977 : 1) {
        size_t len = body.bytes.len;
        body.bytes.len = cut;
        CHECK(decode(&body, 100000, &decoder) == TD_AWS_CHUNKED_LENGTH, "cut at %zu: %d", cut, (int)decoder.fault);
        body.bytes.len = len;
    }
    td_buffer_fini(&body.bytes);
}

/* Chunks in another order, or twice, have the signatures of others before them. */
static void chunks_are_chained(void **state)
{
    (void)state;
    struct td_aws_chunked decoder;
    struct body body;
    make_example(&body, false);
    td_buffer_clear(&body.bytes);
    add_chunk(&body.bytes, 1024, SECOND);
    add_chunk(&body.bytes, 65536, FIRST);
    add_chunk(&body.bytes, 0, LAST);
    td_buffer_puts(&body.bytes, "\r\n");
    assert_int_equal(decode(&body, 5000, &decoder), TD_AWS_CHUNKED_SIGNATURE);
    td_buffer_clear(&body.bytes);
    add_chunk(&body.bytes, 0, FIRST);
    td_buffer_puts(&body.bytes, "\r\n");
    body.announced = 0;
    assert_int_equal(decode(&body, 5000, &decoder), TD_AWS_CHUNKED_SIGNATURE);
    td_buffer_fini(&body.bytes);
}

/* One body for each form and fault. */
static void forms_and_faults(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool is_signed, has_trailer;
        uint64_t announced;
        enum td_aws_chunked_fault fault;
    } cases[] = {
        {"3\r\naaa\r\n0\r\n\r\n", false, false, 3, TD_AWS_CHUNKED_OK},
        {"3\r\naaa\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", false, true, 3, TD_AWS_CHUNKED_OK},
        {"3\r\naaa\r\n0\r\nX-Amz-Checksum-Crc32: AAAAAA==\n\n", false, true, 3, TD_AWS_CHUNKED_OK},
        {"3\r\naaa\r\n0\r\n\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", false, true, 3, TD_AWS_CHUNKED_OK},
        {"0\r\n\r\n", false, true, 0, TD_AWS_CHUNKED_OK},
        {"1\r\na\r\n002\r\naa\r\n0\r\n\r\n", false, false, 3, TD_AWS_CHUNKED_OK},
        {"0\r\n\r\nmore", false, false, 0, TD_AWS_CHUNKED_MALFORMED},
        {"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", false, false, 0, TD_AWS_CHUNKED_MALFORMED},
        {"3\r\naaa\r\n", false, false, 3, TD_AWS_CHUNKED_LENGTH},
        {"3\r\naaa\r\n0\r\n\r\n", false, false, 4, TD_AWS_CHUNKED_LENGTH},
        {"3\r\naaa\r\n0\r\n\r\n", false, false, 2, TD_AWS_CHUNKED_LENGTH},
        {"FFFFFFFFFFFFFFFF\r\na", false, false, 3, TD_AWS_CHUNKED_LENGTH},
        {"10000000000000000\r\na", false, false, 3, TD_AWS_CHUNKED_MALFORMED},
        {"3\naaa\n0\n\n", false, false, 3, TD_AWS_CHUNKED_MALFORMED},
        {"3\r\naaaa\r\n", false, false, 4, TD_AWS_CHUNKED_MALFORMED},
        {"\r\n", false, false, 0, TD_AWS_CHUNKED_MALFORMED},
        {"-1\r\n", false, false, 0, TD_AWS_CHUNKED_MALFORMED},
        {"0x3\r\naaa\r\n", false, false, 3, TD_AWS_CHUNKED_MALFORMED},
        {"3;a=b\r\naaa\r\n0\r\n\r\n", false, false, 3, TD_AWS_CHUNKED_MALFORMED},
        {"3\r\naaa\r\n0\r\n\r\n", true, false, 3, TD_AWS_CHUNKED_SIGNATURE},
        {"3;chunk-signature=00\r\naaa\r\n", true, false, 3, TD_AWS_CHUNKED_SIGNATURE},
        {"0;chunk-signature=" FIRST "\r\n\r\n", true, true, 0, TD_AWS_CHUNKED_SIGNATURE},
        {"0;chunk-signature=" FIRST "\r\na:b\r\n\r\n", true, true, 0, TD_AWS_CHUNKED_SIGNATURE},
        {"0;chunk-signature=" FIRST "\r\nx-amz-trailer-signature:" FIRST "\r\na:b\r\n", true, true, 0,
         TD_AWS_CHUNKED_MALFORMED},
        {"0;chunk-signature=" FIRST "\r\na:b\r\nx-amz-trailer-signature:" FIRST "\r\n\r\n", true, true, 0,
         TD_AWS_CHUNKED_OK},
        {"0\r\nno colon\r\n\r\n", false, true, 0, TD_AWS_CHUNKED_MALFORMED},
        {"0\r\n:x\r\n\r\n", false, true, 0, TD_AWS_CHUNKED_MALFORMED},
    };
    struct td_aws_chunked decoder;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (size_t step = 1; step < 100; step += 33) {
            struct body body = {
                .is_signed = cases[i].is_signed, .has_trailer = cases[i].has_trailer, .announced = cases[i].announced};
            td_buffer_init(&body.bytes);
            td_buffer_puts(&body.bytes, cases[i].bytes);
            CHECK(decode(&body, step, &decoder) == cases[i].fault, "case %zu, step %zu: %d", i, step,
                  (int)decoder.fault);
            td_buffer_fini(&body.bytes);
        }
    }
}

/* Lines and trailers without an end take no more memory than the decoder has. */
static void long_lines_are_refused(void **state)
{
    (void)state;
    struct td_aws_chunked decoder;
    struct body body = {.announced = 0};
    td_buffer_init(&body.bytes);
    for (int i = 0; i < 600; i++)
        td_buffer_putc(&body.bytes, '0');
    assert_int_equal(decode(&body, 50, &decoder), TD_AWS_CHUNKED_MALFORMED);
    assert_int_equal(decode(&body, 1000, &decoder), TD_AWS_CHUNKED_MALFORMED);
    td_buffer_clear(&body.bytes);
    body.has_trailer = true;
    td_buffer_puts(&body.bytes, "0\r\n");
    for (int i = 0; i < 100; i++)
        td_buffer_puts(&body.bytes, "x-amz-meta-field: value\r\n");
    assert_int_equal(decode(&body, 1000, &decoder), TD_AWS_CHUNKED_MALFORMED);
    td_buffer_fini(&body.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_examples),     cmocka_unit_test(every_byte_is_covered),
        cmocka_unit_test(chunks_are_chained),     cmocka_unit_test(forms_and_faults),
        cmocka_unit_test(long_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
