/* The S3 facade without a socket, by Amazon's API reference of these operations. Listings are in test_s3_listings.c. */
#include "core/clock.h"
#include "slicing/plan/plan_match.h"
#include "tests/unit/api/s3_models.h"
#include "tests/unit/work.h"

/* ---- one item, word for word --------------------------------------------------------------------------- */

/* Documents have the elements of the reference, in its order. */
static void documents_are_as_in_the_reference(void **state)
{
    struct place *place = *state;
    struct answer answer;
    struct answer object;
    char wanted[2048];
    char date[64];
    char http_date[64];
    tree_set_age(&place->tree, "qwen3/notes.txt", INT64_C(3600000000000));
    loopback_rescan(&place->loop);
    s3_ask(place, "GET", "/local/qwen3/notes.txt", NULL, &object);
    s3_ask(place, "GET", "/local?list-type=2&prefix=qwen3/notes&start-after=a&delimiter=/", NULL, &answer);
    assert_true(xml_first(answer.body, "LastModified", date, sizeof date));
    (void)snprintf(wanted, sizeof wanted,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                   "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>local</Name><Prefix>qwen3/notes</Prefix>"
                   "<KeyCount>1</KeyCount><StartAfter>a</StartAfter><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter>"
                   "<IsTruncated>false</IsTruncated><Contents><Key>qwen3/notes.txt</Key><LastModified>%s</LastModified>"
                   "<ETag>&quot;%.*s&quot;</ETag><Size>10</Size><StorageClass>STANDARD</StorageClass></Contents>"
                   "</ListBucketResult>\n",
                   date, (int)strlen(object.response.etag) - 2, object.response.etag + 1);
    assert_string_equal(answer.body, wanted);
    struct td_wall wall = {.seconds = object.response.last_modified_s};
    assert_int_equal(td_wall_rfc3339(wall, http_date, sizeof http_date), 24);
    assert_int_equal(strlen(date), 24);
    assert_memory_equal(date, http_date, strlen("2026-01-01T00:00:00.")); /* HTTP's date has no milliseconds */
    assert_true(wall.seconds > 0);
    check_etag(object.response.etag, "notes.txt");
    answer_fini(&answer);
    answer_fini(&object);
    s3_ask(place, "GET", "/local?location", NULL, &answer);
    assert_string_equal(answer.body, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<LocationConstraint "
                                     "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>\n");
    answer_fini(&answer);
    s3_ask(place, "GET", "/local/?versioning", NULL, &answer);
    assert_non_null(strstr(answer.body, "<VersioningConfiguration xmlns="));
    answer_fini(&answer);
}

static void buckets_are_listed(void **state)
{
    static const char *const cases[][2] = {
        {"/", "has local meta "},
        {"/?x-id=ListBuckets", "has local meta "},
        {"/?max-buckets=2", "has local "},
        {"/?prefix=me", "meta "},
        {"/?prefix=x", ""},
    };
    struct place *place = *state;
    struct answer answer;
    char text[2048];
    char target[4096];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char got[256] = "";
        size_t used = 0;
        s3_ask(place, "GET", cases[i][0], NULL, &answer);
        const char *at = answer.body;
        while (xml_next(&at, "Name", text, sizeof text))
            used += (size_t)snprintf(got + used, sizeof got - used, "%s ", text);
        CHECK(strcmp(got, cases[i][1]) == 0, "%s: %s", cases[i][0], got);
        CHECK(strstr(answer.body, "<ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                                  "<Buckets>") != NULL,
              "%s", answer.body);
        assert_non_null(strstr(answer.body, "</Buckets><Owner><ID>tensord</ID>"));
        answer_fini(&answer);
    }
    s3_ask(place, "GET", "/?max-buckets=2", NULL, &answer);
    assert_true(xml_first(answer.body, "ContinuationToken", text, sizeof text));
    answer_fini(&answer);
    (void)snprintf(target, sizeof target, "/?max-buckets=2&continuation-token=%s", text);
    s3_ask(place, "GET", target, NULL, &answer);
    assert_true(xml_first(answer.body, "Name", text, sizeof text));
    assert_string_equal(text, "meta");
    assert_false(xml_first(answer.body, "ContinuationToken", text, sizeof text));
    answer_fini(&answer);
}

/* ---- objects ------------------------------------------------------------------------------------------- */

/* Neither the main port's tag of the same file nor a tag without its end matches on this port. */
static void conditions_take_the_tags_of_this_port(void **state)
{
    static const char *const targets[][2] = {
        {"/local/qwen3/notes.txt", "/models/qwen3/files/notes.txt"},
        {"/meta/llama/shards/vllm/tp2/model-rank-1-part-0.safetensors",
         "/models/meta/llama/shards/vllm/tp2/rank-1.safetensors"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer here;
        struct answer there;
        s3_ask(place, "HEAD", targets[i][0], NULL, &here);
        loopback_get(&place->loop, targets[i][1], &there);
        check_etag(here.response.etag, targets[i][0]);
        const struct {
            const char *field, *tag;
            int status;
        } cases[] = {
            {"If-Match", here.response.etag, 200},      {"If-Match", there.response.etag, 412},
            {"If-None-Match", here.response.etag, 304}, {"If-None-Match", there.response.etag, 200},
            {"If-Range", here.response.etag, 206},      {"If-Range", there.response.etag, 200},
        };
        for (size_t c = 0; c < COUNT_OF(cases); c++) {
            char lines[256];
            struct answer answer;
            bool is_range = strcmp(cases[c].field, "If-Range") == 0;
            (void)snprintf(lines, sizeof lines, "%s: %s%s", cases[c].field, cases[c].tag,
                           is_range ? "\nRange: bytes=0-0" : "");
            s3_ask(place, "GET", targets[i][0], lines, &answer);
            CHECK(answer.response.status == cases[c].status, "%s, %s: %d", targets[i][0], lines,
                  answer.response.status);
            bool is_failed = answer.response.status == 412;
            CHECK(is_failed || strcmp(answer.response.etag, here.response.etag) == 0, "%s, %s: %s", targets[i][0],
                  lines, answer.response.etag);
            answer_fini(&answer);
        }
        answer_fini(&there);
        answer_fini(&here);
    }
}

static void expect_object(struct place *place, const char *method, const char *target, const char *lines, int status,
                          const char *body)
{
    struct answer answer;
    char buffer[128];
    s3_ask(place, method, target, lines, &answer);
    CHECK(answer.response.status == status, "%s: %d: %s", target, answer.response.status, answer.body);
    CHECK(strcmp(answer.body, body) == 0, "%s: %s", target, answer.body);
    check_etag(answer.response.etag, target);
    CHECK(answer_header(&answer, "Last-Modified", buffer) != NULL, "%s: no Last-Modified", target);
    CHECK(answer_header(&answer, "Accept-Ranges", buffer) != NULL, "%s: no Accept-Ranges", target);
    CHECK((answer_header(&answer, "Content-Range", buffer) != NULL) == (status == 206), "%s", target);
    CHECK(answer.response.route == TD_ROUTE_S3_OBJECT, "%s", target);
    answer_fini(&answer);
}

static void objects_and_parts_of_them(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char line[256];
    expect_object(place, "GET", "/local/qwen3/notes.txt", NULL, 200, "0123456789");
    expect_object(place, "HEAD", "/local/qwen3/notes.txt", "Range: bytes=1-2", 200, "0123456789");
    expect_object(place, "GET", "/local/qwen3%2Fnotes.txt", NULL, 200, "0123456789");
    expect_object(place, "GET", "http://host:1/local/qwen3/notes.txt", NULL, 200, "0123456789");
    expect_object(place, "GET", "/local/qwen3/notes.txt?x-id=GetObject&versionId=null", NULL, 200, "0123456789");
    expect_object(place, "GET", "/local/qwen3/notes.txt?response-content-type=a/b&X-Amz-Signature=0",
                  "Authorization: AWS4-HMAC-SHA256 x\nX-Amz-Date: y", 200, "0123456789");
    expect_object(place, "GET", "/local/qwen3/notes.txt", "Range: bytes=2-4", 206, "234");
    expect_object(place, "GET", "/local/qwen3/notes.txt", "Range: bytes=-3", 206, "789");
    expect_object(place, "GET", "/local/qwen3/notes.txt", "Range: bytes=8-100", 206, "89");
    expect_object(place, "GET", "/local/qwen3/notes.txt?partNumber=1", NULL, 206, "0123456789");
    expect_object(place, "GET", "/local/qwen3/notes.txt?partNumber=1", "Range: bytes=0-0", 206, "0");
    expect_object(place, "HEAD", "/local/qwen3/notes.txt?partNumber=1", NULL, 200, "0123456789");
    expect_s3_error(place, "GET", "/local/qwen3/empty", "Range: bytes=0-7", 416, "InvalidRange", "");
    expect_object(place, "GET", "/local/qwen3/empty?partNumber=1", NULL, 200, "");
    expect_object(place, "GET", "/local/qwen3/with%20space+%26%3C%3E%22'%C3%A9.txt", NULL, 200, "");
    expect_object(place, "GET", "/local/kept/shards/none/tp1/readme.txt", NULL, 200, "some text");
    s3_ask(place, "GET", "/local/qwen3/notes.txt", NULL, &answer);
    (void)snprintf(line, sizeof line, "If-Match: %s", answer.response.etag);
    expect_object(place, "GET", "/local/qwen3/notes.txt", line, 200, "0123456789");
    (void)snprintf(line, sizeof line, "If-None-Match: %s", answer.response.etag);
    answer_fini(&answer);
    for (int i = 0; i < 2; i++) {
        s3_ask(place, "GET", i == 0 ? "/local/qwen3/notes.txt" : "/local/qwen3/notes.txt?partNumber=1", line, &answer);
        assert_int_equal(answer.response.status, 304);
        assert_int_equal(answer.len, 0);
        answer_fini(&answer);
    }
    s3_ask(place, "HEAD", "/meta", NULL, &answer);
    assert_int_equal(answer.response.status, 200);
    assert_int_equal(answer.len, 0);
    assert_string_equal(answer_header(&answer, "x-amz-bucket-region", line), "us-east-1");
    answer_fini(&answer);
}

/* Rank files equal those of /models/.../shards. */
static void rank_files(void **state)
{
    struct place *place = *state;
    for (int rank = 0; rank < 2; rank++) {
        struct answer here;
        struct answer there;
        char target[256];
        (void)snprintf(target, sizeof target, "/meta/llama/shards/vllm/tp2/model-rank-%d-part-0.safetensors", rank);
        s3_ask(place, "GET", target, NULL, &here);
        (void)snprintf(target, sizeof target, "/models/meta/llama/shards/vllm/tp2/rank-%d.safetensors", rank);
        loopback_get(&place->loop, target, &there);
        assert_int_equal(here.response.status, 200);
        assert_int_equal(there.response.status, 200);
        assert_true(here.len == there.len && memcmp(here.body, there.body, here.len) == 0);
        assert_memory_equal(here.response.etag, there.response.etag, strlen(there.response.etag) - 1);
        answer_fini(&here);
        answer_fini(&there);
    }
    expect_object(place, "GET", "/meta/llama/shards/vllm/tp2/config.json", NULL, 200, llama);
    expect_object(place, "GET", "/meta/llama/shards/none/tp1/sub/z.txt", NULL, 200, "z");
    expect_items(place, "/meta?list-type=2&prefix=llama/shards/vllm/tp2&delimiter=/", "Pllama/shards/vllm/tp2/ ");
    expect_items(place, "/meta?list-type=2&prefix=llama/shards/vllm/tp1/m",
                 "Kllama/shards/vllm/tp1/model-rank-0-part-0.safetensors ");
    expect_items(place, "/local?list-type=2&prefix=bert.safetensors/shards/none/tp1/",
                 "Kbert.safetensors/shards/none/tp1/model-rank-0-part-0.safetensors ");
    expect_items(place, "/meta?list-type=2&prefix=llama/sub/shards/none/tp1/",
                 "Kllama/sub/shards/none/tp1/model-rank-0-part-0.safetensors Kllama/sub/shards/none/tp1/z.txt ");
    /* a directory on disk takes the place of rank files */
    expect_items(place, "/local?list-type=2&prefix=kept/shards/none/tp1", "Kkept/shards/none/tp1/readme.txt ");
    expect_items(place, "/has?list-type=2&prefix=real/shards/none/tp1", "Kreal/shards/none/tp1/x.safetensors ");
    /* other prefixes list nothing */
    static const char *const none[] = {
        "/meta?prefix=llama/shards/",
        "/meta?prefix=llama/shards/vllm/",
        "/meta?prefix=llama/shards/vllm/tp",
        "/meta?prefix=llama/shards/vllm/tp0/",
        "/meta?prefix=llama/shards/vllm/tp4097/",
        "/meta?prefix=llama/shards/vllm/tp02/",
        "/meta?prefix=llama/shards/other/tp2/",
        "/meta?prefix=llama/shards//tp2/",
        "/local?prefix=llama/shards/vllm/tp2/",
        "/local?prefix=meta/llama/shards/vllm/tp2/",
        "/local?prefix=broken/shards/none/tp1/",
        "/meta?prefix=llama/shards/vllm/tp2x/",
        "/meta?prefix=llama//shards/vllm/tp2/",
        "/meta?prefix=/llama/shards/vllm/tp2/",
    };
    for (size_t i = 0; i < COUNT_OF(none); i++)
        expect_items(place, none[i], "");
}

/* The number of calls of td_plan_match. */
static size_t match_count;

bool __real_td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                          struct td_budget *budget, struct td_plan_match *out, struct td_error *err);
bool __wrap_td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                          struct td_budget *budget, struct td_plan_match *out, struct td_error *err);

bool __wrap_td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                          struct td_budget *budget, struct td_plan_match *out, struct td_error *err)
{
    match_count++;
    return __real_td_plan_match(rules, tensors, budget, out, err);
}

/* A listing matches rules with names once for all ranks. Each size and tag equals that of the single object. */
static void a_listing_matches_names_once(void **state)
{
    enum { RANKS = 4 };
    char keys[RANKS][ITEM_BYTES];
    char tags[RANKS][ITEM_BYTES];
    char sizes[RANKS][ITEM_BYTES];
    struct answer listed;
    struct place *place = *state;
    match_count = 0;
    s3_ask(place, "GET", "/meta?list-type=2&prefix=llama/shards/fsdp/tp4/model-rank-", NULL, &listed);
    assert_int_equal(match_count, 1);
    const char *at = listed.body;
    for (size_t i = 0; i < RANKS; i++) {
        assert_true(xml_next(&at, "Key", keys[i], ITEM_BYTES));
        assert_true(xml_next(&at, "ETag", tags[i], ITEM_BYTES));
        assert_true(xml_next(&at, "Size", sizes[i], ITEM_BYTES));
    }
    answer_fini(&listed);
    while (td_lru_drop_idle(&place->loop.api.ranks.files)) /* so that each rank file is built again */
        ;
    for (size_t i = 0; i < RANKS; i++) {
        struct answer alone;
        char target[ITEM_BYTES + 16];
        char wanted[32];
        /* The precision is for GCC, which takes all of `keys` for one string. */
        (void)snprintf(target, sizeof target, "/meta/%.*s", ITEM_BYTES - 1, keys[i]);
        s3_ask(place, "GET", target, NULL, &alone);
        (void)snprintf(wanted, sizeof wanted, "%zu", alone.len);
        assert_string_equal(sizes[i], wanted);
        check_etag(tags[i], keys[i]);
        assert_string_equal(tags[i], alone.response.etag);
        answer_fini(&alone);
    }
    assert_int_equal(match_count, 1 + RANKS);
}

/* ---- errors -------------------------------------------------------------------------------------------- */

#define WOULD_BE_RIGHT                                                                                \
    "; rank files are shards/{engine}/tp{n}/model-rank-{r}-part-0.safetensors below a model, with n " \
    "from 1 to 4096, r from 0 to n-1, for the engines "

static void errors(void **state)
{
    static const struct {
        const char *method, *target, *lines;
        int status;
        const char *code, *part;
    } cases[] = {
        {"GET", "/nothing", NULL, 404, "NoSuchBucket", "\"nothing\""},
        {"HEAD", "/nothing", NULL, 404, "NoSuchBucket", ""},
        {"GET", "/nothing/key", NULL, 404, "NoSuchBucket", "\"nothing\""},
        {"GET", "/healthz", NULL, 404, "NoSuchBucket", ""},
        {"GET", "/models/meta/llama", NULL, 404, "NoSuchBucket", ""},
        {"GET", "//local", NULL, 404, "NoSuchBucket", ""},
        {"GET", "/Local", NULL, 404, "NoSuchBucket", ""},
        {"GET", "/local/nothing", NULL, 404, "NoSuchKey", "\"nothing\""},
        {"HEAD", "/local/nothing", NULL, 404, "NoSuchKey", ""},
        {"GET", "/local/README", NULL, 404, "NoSuchKey", ""},
        {"GET", "/local/qwen3", NULL, 404, "NoSuchKey", ""},
        {"GET", "/local/qwen3/", NULL, 404, "NoSuchKey", ""},
        {"GET", "/local//qwen3/notes.txt", NULL, 404, "NoSuchKey", ""},
        {"GET", "/local/../local/qwen3/notes.txt", NULL, 404, "NoSuchKey", ""},
        {"GET", "/local/meta/llama/config.json", NULL, 404, "NoSuchKey", ""},
        {"GET", "/meta/qwen3/notes.txt", NULL, 404, "NoSuchKey", ""},
        {"GET", "/meta/llama/shards/vllm/tp2", NULL, 404, "NoSuchKey", ""},
        {"GET", "/meta/llama/shards/vllm/tp2/", NULL, 404, "NoSuchKey", ""},
        {"GET", "/meta/llama/shards/vllm/tp4097/model-rank-0-part-0.safetensors", NULL, 404, "NoSuchKey",
         WOULD_BE_RIGHT},
        {"GET", "/meta/llama/shards/vllm/2/model-rank-0-part-0.safetensors", NULL, 404, "NoSuchKey", WOULD_BE_RIGHT},
        {"GET", "/meta/llama/shards", NULL, 404, "NoSuchKey", WOULD_BE_RIGHT},
        {"GET", "/local/bert.safetensors/shards/none/tp1/model-rank-1-part-0.safetensors", NULL, 404, "NoSuchKey",
         WOULD_BE_RIGHT},
        {"GET", "/meta/llama/shards/vllm/tp2/model-rank-2-part-0.safetensors", NULL, 404, "NoSuchKey", WOULD_BE_RIGHT},
        {"GET", "/meta/llama/shards/vllm/tp2/model-rank-01-part-0.safetensors", NULL, 404, "NoSuchKey", WOULD_BE_RIGHT},
        {"GET", "/meta/llama/shards/vllm/tp2/model.safetensors", NULL, 404, "NoSuchKey", WOULD_BE_RIGHT},
        {"GET", "/meta/llama/shards/vllm/tp2/rank-0.json", NULL, 404, "NoSuchKey", WOULD_BE_RIGHT},
        {"GET", "/meta/llama/shards/other/tp2/config.json", NULL, 404, "NoSuchKey", WOULD_BE_RIGHT},
        {"GET", "/local/kept/shards/none/tp1/model-rank-0-part-0.safetensors", NULL, 404, "NoSuchKey", ""},
        {"GET", "/meta/llama/shards/vllm/tp3/model-rank-0-part-0.safetensors", NULL, 400, "InvalidArgument", "3"},
        {"GET", "/meta?list-type=2&prefix=llama/shards/vllm/tp3/", NULL, 400, "InvalidArgument", "3"},
        {"GET", "/local/qwen3/shards/vllm/tp2/model-rank-0-part-0.safetensors", NULL, 400, "InvalidArgument",
         "config.json"},
        {"GET", "/local/qwen3/notes.txt", "Range: bytes=10-", 416, "InvalidRange", "10"},
        {"GET", "/local/qwen3/notes.txt", "If-Match: \"x\"", 412, "PreconditionFailed", "If-Match"},
        {"GET", "/local/qwen3/notes.txt?partNumber=1", "If-Match: \"x\"", 412, "PreconditionFailed", "If-Match"},
        {"GET", "/local/qwen3/notes.txt?partNumber=2", NULL, 416, "InvalidPartNumber", "part"},
        {"GET", "/local/qwen3/notes.txt?versionId=abc", NULL, 400, "InvalidArgument", "version"},
        {"GET", "/local/qwen3/notes.txt?acl", NULL, 501, "NotImplemented", "\"acl\""},
        {"GET", "/local/qwen3/notes.txt?uploadId=1", NULL, 501, "NotImplemented", "\"uploadId\""},
        {"GET", "/local?policy", NULL, 501, "NotImplemented", "\"policy\""},
        {"GET", "/local?versions&prefix=a", NULL, 501, "NotImplemented", "\"versions\""},
        {"GET", "/local?location&acl=", NULL, 501, "NotImplemented", "\"acl\""},
        {"GET", "/local?list-type", NULL, 400, "InvalidArgument", "list-type=2"},
        {"GET", "/local?list-type=1", NULL, 400, "InvalidArgument", "list-type=2"},
        {"GET", "/local?list-type=2&max-keys=-1", NULL, 400, "InvalidArgument", "max-keys"},
        {"GET", "/local?list-type=2&max-keys=x", NULL, 400, "InvalidArgument", "max-keys"},
        {"GET", "/local?list-type=2&max-keys=", NULL, 400, "InvalidArgument", "max-keys"},
        {"GET", "/local?list-type=2&max-keys=2147483648", NULL, 400, "InvalidArgument", "max-keys"},
        {"GET", "/local?list-type=2&max-keys=99999999999999999999", NULL, 400, "InvalidArgument", "max-keys"},
        {"GET", "/local?list-type=2&encoding-type=gzip", NULL, 400, "InvalidArgument", "encoding-type=url"},
        {"GET", "/local?list-type=2&continuation-token=AAAA", NULL, 400, "InvalidArgument", "token"},
        {"GET", "/local?list-type=2&continuation-token=", NULL, 400, "InvalidArgument", "token"},
        {"GET", "/?list-type=2", NULL, 400, "InvalidArgument", "path style"},
        {"GET", "/?location", NULL, 400, "InvalidArgument", "path style"},
        {"GET", "/?max-buckets=0", NULL, 400, "InvalidArgument", "max-buckets"},
        {"GET", "/?continuation-token=AAAA", NULL, 400, "InvalidArgument", "token"},
        {"GET", "/local/%00", NULL, 400, "InvalidArgument", "NUL"},
        {"GET", "/local/%zz", NULL, 400, "InvalidArgument", "hexadecimal"},
        {"GET", "/%ff", NULL, 400, "InvalidArgument", "UTF-8"},
        {"PUT", "/local/new", NULL, 405, "MethodNotAllowed", "read-only"},
        {"POST", "/local?delete", NULL, 405, "MethodNotAllowed", "read-only"},
        {"DELETE", "/local/qwen3/notes.txt", NULL, 405, "MethodNotAllowed", "read-only"},
        {"PUT", "/new", NULL, 405, "MethodNotAllowed", "read-only"},
        {"get", "/local", NULL, 405, "MethodNotAllowed", ""},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_s3_error(place, cases[i].method, cases[i].target, cases[i].lines, cases[i].status, cases[i].code,
                        cases[i].part);
}

/* The query names by which the reference's request lines select an operation, beside bucket and key; for ListParts its
 * uploadId. */
static void subresources_go_by_presence(void **state)
{
    static const char *const unserved[] = {
        "abac",          "accelerate",   "acl",
        "analytics",     "annotation",   "attributes",
        "cors",          "delete",       "encryption",
        "inventory",     "legal-hold",   "intelligent-tiering",
        "lifecycle",     "logging",      "metadataAnnotationTable",
        "metadataTable", "metrics",      "metadataConfiguration",
        "notification",  "object-lock",  "metadataInventoryTable",
        "policy",        "policyStatus", "metadataJournalTable",
        "replication",   "renameObject", "ownershipControls",
        "restore",       "retention",    "publicAccessBlock",
        "select",        "session",      "requestPayment",
        "tagging",       "torrent",      "uploadId",
        "uploads",       "versions",     "website",
    };
    static const char *const forms[][2] = {
        {"", ""}, {"", "="}, {"", "=1"}, {"x-id=a&", "=b&list-type=2"}, {"versionId=null&", ""}};
    static const char *const places[] = {"/local", "/local/", "/local/qwen3/notes.txt"};
    /* S3 ignores parameters that it does not know, with or without a value */
    static const char *const unknown[] = {"x-id=GetObject", "x-id", "ACL", "acls=1", "ac", "response-content-type=a/b",
                                          "version",        "list"};
    struct place *place = *state;
    struct answer answer;
    char target[256];
    char name[64];
    for (size_t i = 0; i < COUNT_OF(unserved); i++) {
        (void)snprintf(name, sizeof name, "\"%s\"", unserved[i]);
        for (size_t k = 0; k < COUNT_OF(forms) * COUNT_OF(places); k++) {
            const char *const *form = forms[k / COUNT_OF(places)];
            (void)snprintf(target, sizeof target, "%s?%s%s%s", places[k % COUNT_OF(places)], form[0], unserved[i],
                           form[1]);
            expect_s3_error(place, "GET", target, NULL, 501, "NotImplemented", name);
            expect_s3_error(place, "HEAD", target, NULL, 501, "NotImplemented", "");
        }
    }
    static const char *const served[][2] = {{"location", "LocationConstraint"},
                                            {"versioning", "VersioningConfiguration"}};
    for (size_t i = 0; i < COUNT_OF(served); i++) {
        for (size_t k = 0; k < 3; k++) { /* the forms without further parameters */
            (void)snprintf(target, sizeof target, "/local?%s%s", served[i][0], forms[k][1]);
            s3_ask(place, "GET", target, NULL, &answer);
            CHECK(answer.response.status == 200 && strstr(answer.body, served[i][1]) != NULL, "%s: %s", target,
                  answer.body);
            answer_fini(&answer);
        }
        (void)snprintf(target, sizeof target, "/local/qwen3/notes.txt?%s", served[i][0]);
        (void)snprintf(name, sizeof name, "\"%s\"", served[i][0]);
        expect_s3_error(place, "GET", target, NULL, 501, "NotImplemented", name);
    }
    for (size_t i = 0; i < COUNT_OF(unknown); i++) {
        (void)snprintf(target, sizeof target, "/local/qwen3/notes.txt?%s", unknown[i]);
        expect_object(place, "GET", target, NULL, 200, "0123456789");
        (void)snprintf(target, sizeof target, "/has?%s", unknown[i]);
        expect_items(place, target, "Kreal/shards/none/tp1/x.safetensors ");
    }
}

static void expect_words(const struct answer *answer, const char *target, const char *words, bool wanted)
{
    CHECK(answer->response.status == 404, "%s: %d", target, answer->response.status);
    CHECK((strstr(answer->body, words) != NULL) == wanted, "%s: %s", target, answer->body);
}

/* The error for a request to the wrong port names the right port in its message, and is otherwise the same. */
static void the_other_port_is_named(void **state)
{
    static const char *const of_main[] = {"/healthz",
                                          "/metrics",
                                          "/openapi.json",
                                          "/models",
                                          "/models/meta/llama/tensors",
                                          "/api/whoami-v2",
                                          "/api/models/meta/llama",
                                          "/api/models",
                                          "/meta/llama/resolve/main/config.json",
                                          "/none/llama/raw/main/a",
                                          "/datasets/a/b/resolve/main/c"};
    static const char *const of_s3[] = {"/none", "/meta/none", "/meta/llama/none", "/modelsx", "/healthz/x"};
    static const char *const lines_of_s3[] = {
        "Authorization: AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, Signature=0",
        "Authorization: AWS any:c2lnbmF0dXJl", "x-amz-checksum-mode: ENABLED", "X-Amz-Date: 20260101T000000Z",
        "amz-sdk-invocation-id: 1"};
    static const char *const lines_of_others[] = {"Authorization: Bearer hf_any", "X-Amz-Cf-Id: any",
                                                  "X-Amzn-Trace-Id: any", "User-Agent: aws-cli"};
    struct place *place = *state;
    struct answer answer;
    for (size_t i = 0; i < COUNT_OF(of_main); i++) {
        s3_ask(place, "GET", of_main[i], NULL, &answer);
        expect_words(&answer, of_main[i], "(--listen)", true);
        answer_fini(&answer);
    }
    for (size_t i = 0; i < COUNT_OF(of_s3); i++) {
        s3_ask(place, "GET", of_s3[i], NULL, &answer);
        expect_words(&answer, of_s3[i], "--listen", false);
        answer_fini(&answer);
    }
    for (size_t i = 0; i < COUNT_OF(lines_of_s3); i++) {
        place->loop.api.s3_listen = i % 2 == 0 ? "" : "10.1.2.3:8081";
        loopback_ask(&place->loop, i == 0 ? "HEAD" : "GET", "/meta/llama/config.json", lines_of_s3[i], &answer);
        expect_words(&answer, lines_of_s3[i],
                     i % 2 == 0 ? "--s3-listen opens one, and is not set" : "--s3-listen (10.1.2.3:8081)", true);
        answer_fini(&answer);
        loopback_ask(&place->loop, "GET", "/models/meta/llama/files/none", lines_of_s3[i], &answer);
        expect_words(&answer, lines_of_s3[i], "--s3-listen", true);
        answer_fini(&answer);
        loopback_ask(&place->loop, "GET", "/meta/llama/resolve/main/none", lines_of_s3[i], &answer);
        expect_words(&answer, lines_of_s3[i], "--s3-listen", false); /* the Hub's errors stay the same */
        answer_fini(&answer);
        loopback_ask(&place->loop, "GET", "/models/meta/llama/files/a.json", lines_of_s3[i], &answer);
        assert_int_equal(answer.response.status, 200);
        answer_fini(&answer);
    }
    for (size_t i = 0; i < COUNT_OF(lines_of_others); i++) {
        loopback_ask(&place->loop, "GET", "/meta/llama/config.json", lines_of_others[i], &answer);
        expect_words(&answer, lines_of_others[i], "--s3-listen", false);
        answer_fini(&answer);
    }
    static const char *const queries[] = {"list-type=2", "x-id=GetObject", "X-Amz-Signature=0"};
    for (size_t i = 0; i < COUNT_OF(queries); i++) {
        char target[64];
        (void)snprintf(target, sizeof target, "/meta?%s", queries[i]);
        loopback_get(&place->loop, target, &answer);
        expect_words(&answer, target, "--s3-listen", true);
        answer_fini(&answer);
    }
}

/* Errors advise on rank files only for keys that look like theirs, of models that have rank files. */
static void other_keys_get_no_advice(void **state)
{
    static const char *const targets[] = {
        "/local/nothing",
        "/meta/llama/shard/vllm/tp2/config.json",
        "/meta/other/shards/vllm/tp2/model-rank-0-part-0.safetensors",
        "/local/broken/shards/none/tp1/model-rank-0-part-0.safetensors",
        "/local/shards/none/tp1/model-rank-0-part-0.safetensors",
        "/has/real/shards/none/tp1/model-rank-0-part-0.safetensors",
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer answer;
        s3_ask(place, "GET", targets[i], NULL, &answer);
        CHECK(answer.response.status == 404 && strstr(answer.body, "rank files are") == NULL, "%s: %s", targets[i],
              answer.body);
        answer_fini(&answer);
    }
}

/* A token is valid for its bucket, prefix and delimiter, and for any number of keys. */
static void tokens_are_checked(void **state)
{
    static const char *const others[] = {
        "/meta?list-type=2&prefix=qwen3/&delimiter=/",
        "/local?list-type=2&prefix=qwen3&delimiter=/",
        "/local?list-type=2&prefix=qwen3/",
        "/local?list-type=2&prefix=qwen3/&delimiter=a",
        "/local?list-type=2&delimiter=qwen3/&prefix=/",
    };
    struct place *place = *state;
    struct answer answer;
    char token[2048];
    char target[4096];
    s3_ask(place, "GET", "/local?list-type=2&prefix=qwen3/&delimiter=/&max-keys=1", NULL, &answer);
    assert_true(xml_first(answer.body, "NextContinuationToken", token, sizeof token));
    answer_fini(&answer);
    (void)snprintf(target, sizeof target,
                   "/local?list-type=2&prefix=qwen3/&delimiter=/&max-keys=2&continuation-token=%s", token);
    expect_items(place, target, "Kqwen3/a.txt Pqwen3/a/ ");
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        (void)snprintf(target, sizeof target, "%s&continuation-token=%s", others[i], token);
        expect_s3_error(place, "GET", target, NULL, 400, "InvalidArgument", "token");
    }
    token[3] = token[3] == 'A' ? 'B' : 'A';
    (void)snprintf(target, sizeof target, "/local?list-type=2&prefix=qwen3/&delimiter=/&continuation-token=%s", token);
    expect_s3_error(place, "GET", target, NULL, 400, "InvalidArgument", "token");
}

/* Queries made to be slow or to break the document. */
/* shows: security.md s3-listings */
static void hostile_queries(void **state)
{
    static const char *const pieces[] = {"shards/", "/",  "meta/llama/shards/vllm/tp2/", "%3C%26%3E", "a",
                                         "%C3%A9",  "%01"};
    static const char *const names[] = {"prefix", "delimiter", "start-after", "continuation-token", "marker"};
    struct place *place = *state;
    uint64_t most = 0;
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        for (size_t k = 0; k < COUNT_OF(names); k++) {
            struct answer answer;
            struct td_buffer target;
            td_buffer_init(&target);
            td_buffer_printf(&target, "/meta?%s%s=", k == 4 ? "" : "list-type=2&", names[k]);
            while (target.len < 30000)
                td_buffer_puts(&target, pieces[i]);
            uint64_t work = work_now();
            s3_ask(place, "GET", td_buffer_terminate(&target), NULL, &answer);
            work = work_now() - work;
            most = work > most ? work : most;
            CHECK(answer.response.status == 200 || (k == 3 && answer.response.status == 400), "%s: %d", names[k],
                  answer.response.status);
            answer_fini(&answer);
            td_buffer_clear(&target);
            td_buffer_puts(&target, "/meta/");
            while (target.len < 30000)
                td_buffer_puts(&target, pieces[i]);
            work = work_now();
            s3_ask(place, "GET", td_buffer_terminate(&target), NULL, &answer);
            work = work_now() - work;
            most = work > most ? work : most;
            CHECK(answer.response.status == 404, "%d", answer.response.status);
            answer_fini(&answer);
            td_buffer_fini(&target);
        }
    }
    CHECK(most > 30000 && most < 60 * 30000, "%llu blocks for 30,000 characters", (unsigned long long)most);
}

static void before_the_first_scan_is_503(void **state)
{
    (void)state;
    struct place place;
    bool waited = false;
    tree_open(&place.tree);
    for (int i = 0; i < 4000; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%d/%d.txt", i % 40, i);
        tree_text(&place.tree, name, "");
    }
    struct td_catalog_config config = {.root = place.tree.path, .max_maps = 16, .scan = td_scan_config_default()};
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_catalog_create(&config, &place.loop.catalog, &err));
    assert_true(td_api_init(&place.loop.api, place.loop.catalog, &err));
    for (bool there = false; !there;) {
        struct answer answer;
        s3_ask(&place, "GET", "/", NULL, &answer);
        there = answer.response.status == 200;
        if (!there && answer.response.status == 503) {
            waited = true;
            assert_non_null(strstr(answer.body, "<Code>ServiceUnavailable</Code>"));
        }
        answer_fini(&answer);
    }
    assert_true(waited);
    loopback_close(&place.loop);
    tree_close(&place.tree);
}

static void a_changed_file_is_503(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "qwen3/notes.txt", "changed");
    expect_s3_error(place, "GET", "/local/qwen3/notes.txt", NULL, 503, "ServiceUnavailable", "changed");
    loopback_rescan(&place->loop);
    expect_object(place, "GET", "/local/qwen3/notes.txt", NULL, 200, "changed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, documents_are_as_in_the_reference),
        TEST_IN(place, buckets_are_listed),
        TEST_IN(place, objects_and_parts_of_them),
        TEST_IN(place, rank_files),
        TEST_IN(place, conditions_take_the_tags_of_this_port),
        TEST_IN(place, a_listing_matches_names_once),
        TEST_IN(place, errors),
        TEST_IN(place, subresources_go_by_presence),
        TEST_IN(place, the_other_port_is_named),
        TEST_IN(place, other_keys_get_no_advice),
        TEST_IN(place, tokens_are_checked),
        TEST_IN(place, hostile_queries),
        cmocka_unit_test(before_the_first_scan_is_503),
        TEST_IN(place, a_changed_file_is_503),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
