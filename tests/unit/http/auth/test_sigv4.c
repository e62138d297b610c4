/* The examples are those of the Amazon S3 API Reference, "Examples: Signature Calculations" (header) and
 * "Authenticating Requests: Using Query Parameters". tests/http/test_sigv4.py compares with botocore's signer. */
#include "http/auth/sigv4.h"

#include "http/auth/sigv4_canonical.h"

#include "tests/unit/alloc_trials.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SCOPE "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
#define QUERY_SCOPE "AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
#define HMAC "AWS4-HMAC-SHA256"
#define DATE "20130524T000000Z"
#define PRESIGNED_SIGNATURE "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
#define LIST_SIGNATURE "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
#define AUTHORIZATION(signed, signature) HMAC " Credential=" SCOPE ",SignedHeaders=" signed ",Signature=" signature
#define PRESIGNED(algorithm, scope, date, expires, more)                                                            \
    "/test.txt?X-Amz-Algorithm=" algorithm "&X-Amz-Credential=" scope "&X-Amz-Date=" date "&X-Amz-Expires=" expires \
    "&X-Amz-SignedHeaders=host&X-Amz-Signature=" PRESIGNED_SIGNATURE more

static const char secret[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
static const char right_list[] = AUTHORIZATION("host;x-amz-content-sha256;x-amz-date", LIST_SIGNATURE);
static const char right_presigned[] = PRESIGNED(HMAC, QUERY_SCOPE, DATE, "86400", "");
static const int64_t then_s = 1369353600; /* 2013-05-24T00:00:00Z */

enum { MOST_HEADERS = 8 };

/* A request of a test: a target, and header fields as name, value, ..., NULL. */
struct asked {
    const char *target;
    const char *fields[2 * MOST_HEADERS + 1];
    int64_t later_s; /* the server's clock, after then_s */
};

/* Returns NULL when the request is accepted, else S3's code. */
static const char *code_of(const struct asked *asked, struct td_sigv4_refusal *refusal)
{
    struct td_header headers[MOST_HEADERS];
    struct td_sigv4 signature;
    struct td_request request = {.method = TD_TEXT("GET"), .target = td_text_of(asked->target), .headers = headers};
    for (size_t i = 0; asked->fields[i] != NULL; i += 2)
        headers[request.header_count++] =
            (struct td_header){.name = td_text_of(asked->fields[i]), .value = td_text_of(asked->fields[i + 1])};
    refusal->message[0] = '\0';
    if (!td_sigv4_parse(&request, then_s + asked->later_s, &signature, refusal) ||
        !(td_text_equals(signature.access_key, "AKIAIOSFODNN7EXAMPLE") || td_sigv4_refuse_key(&signature, refusal)) ||
        !td_sigv4_verify(&signature, &request, td_text_of(secret), refusal))
        return td_sigv4_code(refusal->fault);
    return NULL;
}

static void check_code(const struct asked *asked, const char *code)
{
    struct td_sigv4_refusal refusal;
    const char *got = code_of(asked, &refusal);
    if (code == NULL)
        CHECK(got == NULL, "%s: %s: %s", asked->target, got, refusal.message);
    else
        CHECK(got != NULL && strcmp(got, code) == 0 && refusal.message[0] != '\0', "%s: %s, not %s: %s", asked->target,
              got == NULL ? "accepted" : got, code, refusal.message);
}

/* The listing of the examples, with this Authorization. */
static struct asked list_with(const char *authorization)
{
    return (struct asked){"/?max-keys=2&prefix=J",
                          {"Host", "examplebucket.s3.amazonaws.com", "x-amz-date", DATE, "Authorization", authorization,
                           "x-amz-content-sha256", EMPTY},
                          0};
}

static struct asked presigned_with(const char *target)
{
    return (struct asked){target, {"Host", "examplebucket.s3.amazonaws.com"}, 0};
}

static void published_examples_are_accepted(void **state)
{
    (void)state;
    const struct asked object = {"/test.txt",
                                 {"Host", "examplebucket.s3.amazonaws.com", "Authorization",
                                  AUTHORIZATION("host;range;x-amz-content-sha256;x-amz-date",
                                                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
                                  "Range", "bytes=0-9", "x-amz-content-sha256", EMPTY, "x-amz-date", DATE},
                                 0};
    const struct asked lifecycle = {"/?lifecycle",
                                    {"Host", "examplebucket.s3.amazonaws.com", "Authorization",
                                     AUTHORIZATION("host;x-amz-content-sha256;x-amz-date",
                                                   "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
                                     "x-amz-date", DATE, "x-amz-content-sha256", EMPTY},
                                    0};
    const struct asked list = list_with(right_list);
    const struct asked presigned = presigned_with(right_presigned);
    check_code(&object, NULL);
    check_code(&lifecycle, NULL);
    check_code(&list, NULL);
    check_code(&presigned, NULL);
}

static void spellings_that_mean_the_same_are_accepted(void **state)
{
    (void)state;
    struct asked list = list_with(right_list);
    static const char *const targets[] = {"/?prefix=J&max-keys=2", "/?prefix=%4a&max%2Dkeys=2",
                                          "/?&max-keys=2&prefix=J&",
                                          "http://examplebucket.s3.amazonaws.com?max-keys=2&prefix=J"};
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        list.target = targets[i];
        check_code(&list, NULL);
    }
    list = list_with(HMAC " Signature=" LIST_SIGNATURE ", SignedHeaders=host;x-amz-content-sha256;x-amz-date"
                          ",  Credential=" SCOPE);
    check_code(&list, NULL);
    list = list_with(right_list);
    list.fields[1] = "\t examplebucket.s3.amazonaws.com  ";
    check_code(&list, NULL);
}

static void times_are_bounded_to_the_second(void **state)
{
    (void)state;
    struct asked list = list_with(right_list);
    struct asked presigned = presigned_with(right_presigned);
    const struct {
        int64_t later_s;
        const char *list, *presigned;
    } cases[] = {
        {-901, "RequestTimeTooSkewed", "AccessDenied"},
        {-900, NULL, NULL},
        {900, NULL, NULL},
        {901, "RequestTimeTooSkewed", NULL},
        {86400, "RequestTimeTooSkewed", NULL},
        {86401, "RequestTimeTooSkewed", "AccessDenied"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        list.later_s = presigned.later_s = cases[i].later_s;
        check_code(&list, cases[i].list);
        check_code(&presigned, cases[i].presigned);
    }
}

/* Changes each byte of a good text in turn, in several ways, and checks that `ask`, which returns as code_of, refuses
 * it. Leaves out the case of "%2F", which means the same in both. */
static void change_each_byte(const char *text, const char *(*ask)(const char *changed))
{
    static const int masks[] = {0x01, 0x02, 0x20};
    char changed[1024];
    size_t len = strlen(text);
    assert_true(len < sizeof changed);
    memcpy(changed, text, len + 1);
    assert_null(ask(changed));
    for (size_t i = 0; i < len; i++) {
        for (size_t m = 0; m < COUNT_OF(masks); m++) {
            changed[i] = (char)(text[i] ^ masks[m]);
            bool is_same = text[i] == 'F' && changed[i] == 'f' && i >= 2 && text[i - 2] == '%';
            CHECK(is_same || changed[i] == '\0' || ask(changed) != NULL, "byte %zu as %c: %s", i, changed[i], changed);
        }
        changed[i] = text[i];
    }
}

static const char *ask_presigned(const char *target)
{
    struct td_sigv4_refusal refusal;
    const struct asked asked = presigned_with(target);
    return code_of(&asked, &refusal);
}

static const char *ask_list(const char *target)
{
    struct td_sigv4_refusal refusal;
    struct asked asked = list_with(right_list);
    asked.target = target;
    return code_of(&asked, &refusal);
}

static const char *ask_authorization(const char *value)
{
    struct td_sigv4_refusal refusal;
    const struct asked asked = list_with(value);
    return code_of(&asked, &refusal);
}

static const char *ask_host(const char *value)
{
    struct td_sigv4_refusal refusal;
    struct asked asked = list_with(right_list);
    asked.fields[1] = value;
    return code_of(&asked, &refusal);
}

static const char *ask_date(const char *value)
{
    struct td_sigv4_refusal refusal;
    struct asked asked = list_with(right_list);
    asked.fields[3] = value;
    return code_of(&asked, &refusal);
}

static void every_changed_byte_is_refused(void **state)
{
    (void)state;
    change_each_byte("/?max-keys=2&prefix=J", ask_list);
    change_each_byte(right_list, ask_authorization);
    change_each_byte("examplebucket.s3.amazonaws.com", ask_host);
    change_each_byte(DATE, ask_date);
    change_each_byte(right_presigned, ask_presigned);
}

/* shows: security.md s3-signatures */
static void malformed_headers_have_their_code(void **state)
{
    (void)state;
#define OF_LIST ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=0"
    static const struct {
        const char *authorization, *code;
    } cases[] = {
        {"", "InvalidArgument"},
        {"Bearer td_abc", "InvalidArgument"},
        {"AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=", "InvalidRequest"},
        {"AWS4-ECDSA-P256-SHA256 Credential=a/20130524/s3/aws4_request", "InvalidRequest"},
        {HMAC, "AuthorizationHeaderMalformed"},
        {HMAC " Credential=" SCOPE ",SignedHeaders=host", "AuthorizationHeaderMalformed"},
        {HMAC " Credential=" SCOPE OF_LIST ",Signature=0", "AuthorizationHeaderMalformed"},
        {HMAC " Credential=" SCOPE OF_LIST ",More=0", "AuthorizationHeaderMalformed"},
        {HMAC " Credential=AKIA" OF_LIST, "AuthorizationHeaderMalformed"},
        {HMAC " Credential=20130524/us-east-1/s3/aws4_request" OF_LIST, "AuthorizationHeaderMalformed"},
        {HMAC " Credential=A/20130524/us-east-1/ec2/aws4_request" OF_LIST, "AuthorizationHeaderMalformed"},
        {HMAC " Credential=A/20130524/us-east-1/s3/aws3_request" OF_LIST, "AuthorizationHeaderMalformed"},
        {HMAC " Credential=A/20130525/us-east-1/s3/aws4_request" OF_LIST, "AuthorizationHeaderMalformed"},
        {AUTHORIZATION("Host;x-amz-content-sha256;x-amz-date", LIST_SIGNATURE), "AuthorizationHeaderMalformed"},
        {AUTHORIZATION("x-amz-date;host;x-amz-content-sha256", LIST_SIGNATURE), "AuthorizationHeaderMalformed"},
        {AUTHORIZATION("host;host;x-amz-content-sha256;x-amz-date", LIST_SIGNATURE), "AuthorizationHeaderMalformed"},
        {AUTHORIZATION("", LIST_SIGNATURE), "AuthorizationHeaderMalformed"},
        {AUTHORIZATION("x-amz-content-sha256;x-amz-date", LIST_SIGNATURE), "AccessDenied"}, /* host */
        {AUTHORIZATION("host;x-amz-content-sha256", LIST_SIGNATURE), "AccessDenied"},       /* x-amz-date */
        {AUTHORIZATION("host;range;x-amz-content-sha256;x-amz-date", LIST_SIGNATURE), "SignatureDoesNotMatch"},
        {AUTHORIZATION("host;x-amz-content-sha256;x-amz-date", ""), "SignatureDoesNotMatch"},
        {AUTHORIZATION("host;x-amz-content-sha256;x-amz-date", LIST_SIGNATURE "0"), "SignatureDoesNotMatch"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct asked asked = list_with(cases[i].authorization);
        check_code(&asked, cases[i].code);
    }
}

static void fields_that_must_be_right_have_their_code(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *code; /* in place of the field x-amz-content-sha256 */
    } cases[] = {
        {"x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "NotImplemented"},
        {"x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "NotImplemented"},
        {"x-amz-content-sha256", "f3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
         "XAmzContentSHA256Mismatch"},
        {"x-amz-content-sha256", "none", "InvalidArgument"},
        {"x-amz-content-sha256", "UNSIGNED-PAYLOAD", "SignatureDoesNotMatch"}, /* not what was signed */
        {"content-type", "text/plain", "MissingSecurityHeader"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct asked asked = list_with(right_list);
        asked.fields[6] = cases[i].name;
        asked.fields[7] = cases[i].value;
        check_code(&asked, cases[i].code);
    }
    struct asked asked = list_with(right_list);
    asked.fields[8] = "X-Amz-Security-Token";
    asked.fields[9] = "FwoGZXIvYXdzEA";
    check_code(&asked, "InvalidToken");
    asked.fields[8] = "X-Amz-Acl";
    check_code(&asked, "AccessDenied"); /* not signed */
    asked.fields[8] = "X-Amz-Cf-Id";
    check_code(&asked, NULL);
    asked.fields[8] = "Authorization";
    check_code(&asked, "InvalidArgument");
    asked = list_with(right_list);
    asked.fields[2] = "x-other";
    check_code(&asked, "AccessDenied"); /* no time */
    asked = list_with(right_list);
    asked.target = right_presigned;
    check_code(&asked, "InvalidArgument"); /* two signatures */
}

static void queries_have_their_code(void **state)
{
    (void)state;
    static const struct {
        const char *target, *code;
    } cases[] = {
        {"/test.txt", "AccessDenied"},
        {"/test.txt?AWSAccessKeyId=A&Signature=b&Expires=1", "InvalidRequest"},
        {"/test.txt?X-Amz-Signature=0", "AuthorizationQueryParametersError"},
        {PRESIGNED("AWS4-ECDSA-P256-SHA256", QUERY_SCOPE, DATE, "86400", ""), "InvalidRequest"},
        {PRESIGNED("AWS5", QUERY_SCOPE, DATE, "86400", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, "A%2F20130524", DATE, "86400", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, "20130525T000000Z", "86400", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, "20130524T000061Z", "86400", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, "2013", "86400", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "0", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "-1", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "604801", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "x", ""), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "604800", ""), "SignatureDoesNotMatch"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "86400", "&X-Amz-Signature=0"), "AuthorizationQueryParametersError"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "86400", "&a=b"), "SignatureDoesNotMatch"},
        {PRESIGNED(HMAC, QUERY_SCOPE, DATE, "86400", "&X-Amz-Security-Token=b"), "InvalidToken"},
        {PRESIGNED(HMAC, QUERY_SCOPE "%", DATE, "86400", ""), "AuthorizationQueryParametersError"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct asked asked = presigned_with(cases[i].target);
        check_code(&asked, cases[i].code);
    }
}

static void sizes_are_bounded(void **state)
{
    (void)state;
    char target[8192] = "/?";
    struct asked list = list_with(right_list);
    for (size_t i = 0; i <= TD_SIGV4_PARAMETERS; i++)
        memcpy(target + 2 + 4 * i, "a=b&", 5);
    list.target = target;
    check_code(&list, "InvalidArgument");
    (void)snprintf(target, sizeof target, "/?X-Amz-Algorithm=%05000d", 0);
    const struct asked presigned = presigned_with(target);
    check_code(&presigned, "AuthorizationQueryParametersError");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const struct asked list = list_with(right_list);
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_sigv4_refusal refusal;
        const char *code = code_of(&list, &refusal);
        alloc_tried(&trials, code == NULL, NULL);
        if (code != NULL) {
            assert_string_equal(code, "ServiceUnavailable");
            assert_int_equal(td_sigv4_status(refusal.fault), 503);
        }
    }
    assert_true(trials.k > 2);
}

static void every_fault_has_its_status(void **state)
{
    (void)state; /* Amazon S3 API Reference, "List of error codes" */
    static const struct {
        enum td_sigv4_fault fault;
        int status;
    } cases[] = {
        {TD_SIGV4_ACCESS_DENIED, 403}, {TD_SIGV4_BAD_HEADER, 400},       {TD_SIGV4_BAD_QUERY, 400},
        {TD_SIGV4_INVALID_KEY, 403},   {TD_SIGV4_INVALID_ARGUMENT, 400}, {TD_SIGV4_INVALID_TOKEN, 400},
        {TD_SIGV4_MISMATCH, 403},      {TD_SIGV4_MISSING_HEADER, 400},   {TD_SIGV4_NOT_IMPLEMENTED, 501},
        {TD_SIGV4_SKEWED, 403},        {TD_SIGV4_BAD_DIGEST, 400},       {TD_SIGV4_INVALID_REQUEST, 400},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(td_sigv4_status(cases[i].fault), cases[i].status);
    struct td_sigv4 signature = {.access_key = TD_TEXT("AKIA")};
    struct td_sigv4_refusal refusal;
    assert_false(td_sigv4_refuse_key(&signature, &refusal));
    assert_string_equal(td_sigv4_code(refusal.fault), "InvalidAccessKeyId");
}

/* Texts that stand for the digest of a body. Digests in other spellings are refused. */
static void payloads(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum td_sigv4_payload payload;
        const char *code; /* NULL: it is one */
    } cases[] = {
        {"", TD_SIGV4_UNSIGNED, NULL},
        {"UNSIGNED-PAYLOAD", TD_SIGV4_UNSIGNED, NULL},
        {EMPTY, TD_SIGV4_DIGEST, NULL},
        {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", TD_SIGV4_UNSIGNED_TRAILER, NULL},
        {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", TD_SIGV4_CHUNKS, NULL},
        {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", TD_SIGV4_CHUNKS_TRAILER, NULL},
        {"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", TD_SIGV4_DIGEST, "NotImplemented"},
        {"streaming-unsigned-payload-trailer", TD_SIGV4_DIGEST, "InvalidArgument"},
        {"E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855", TD_SIGV4_DIGEST, "InvalidArgument"},
        {EMPTY "0", TD_SIGV4_DIGEST, "InvalidArgument"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_sigv4_refusal refusal;
        enum td_sigv4_payload payload;
        uint8_t sha256[TD_SHA256_BYTES] = {0};
        bool ok = td_sigv4_read_payload(td_text_of(cases[i].text), &payload, sha256, &refusal);
        CHECK(ok == (cases[i].code == NULL) && payload == cases[i].payload, "%s", cases[i].text);
        if (!ok)
            assert_string_equal(td_sigv4_code(refusal.fault), cases[i].code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads),
        cmocka_unit_test(published_examples_are_accepted),
        cmocka_unit_test(spellings_that_mean_the_same_are_accepted),
        cmocka_unit_test(times_are_bounded_to_the_second),
        cmocka_unit_test(every_changed_byte_is_refused),
        cmocka_unit_test(malformed_headers_have_their_code),
        cmocka_unit_test(fields_that_must_be_right_have_their_code),
        cmocka_unit_test(queries_have_their_code),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_fault_has_its_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
