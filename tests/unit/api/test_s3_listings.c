/* Listings of S3 keys against a list of all keys that is filtered, rolled up and cut as Amazon's API reference
 * describes it. */
#include "tests/unit/api/s3_models.h"

static const char *const qwen3_and_others[] = {
    "bert.safetensors",
    "broken/bad.safetensors",
    "broken/config.json",
    "kept/model.safetensors",
    "kept/shards/none/tp1/readme.txt",
    "qwen3/a-b/c.txt",
    "qwen3/a.txt",
    "qwen3/a/b.txt",
    "qwen3/a/c/d.txt",
    "qwen3/empty",
    "qwen3/line\nend\r\x01\xef\xbf\xbf%41.txt",
    "qwen3/model.safetensors",
    "qwen3/notes.txt",
    "qwen3/with space+&<>\"'\xc3\xa9.txt",
};

static const char *const meta[] = {
    "llama-2/model.safetensors",   "llama/a.json",    "llama/config.json",    "llama/model.safetensors",
    "llama/sub/other.safetensors", "llama/sub/z.txt", "llama/tokenizer.json",
};

static const char *const llama_tp2[] = {
    "llama/shards/vllm/tp2/a.json",
    "llama/shards/vllm/tp2/config.json",
    "llama/shards/vllm/tp2/model-rank-0-part-0.safetensors",
    "llama/shards/vllm/tp2/model-rank-1-part-0.safetensors",
    "llama/shards/vllm/tp2/sub/z.txt",
    "llama/shards/vllm/tp2/tokenizer.json",
};

struct query {
    const char *bucket;
    const char *const *keys;
    size_t key_count;
    char prefix[128], delimiter[16], after[128];
    size_t max_keys;
    bool is_v2, encode;
};

/* Lists the keys after `after` with the prefix, rolled up at the first delimiter after the prefix. */
static void list_naively(const struct query *query, struct items *out)
{
    out->count = 0;
    for (size_t i = 0; i < query->key_count; i++) {
        const char *key = query->keys[i];
        size_t n = strlen(query->prefix);
        if (strncmp(key, query->prefix, n) != 0)
            continue;
        const char *end = query->delimiter[0] == '\0' ? NULL : strstr(key + n, query->delimiter);
        size_t len = end == NULL ? strlen(key) : (size_t)(end - key) + strlen(query->delimiter);
        char *item = out->text[out->count];
        item[0] = end == NULL ? 'K' : 'P';
        memcpy(item + 1, key, len);
        item[1 + len] = '\0';
        bool again = out->count > 0 && strcmp(out->text[out->count - 1], item) == 0;
        if (!again && strcmp(item + 1, query->after) > 0)
            out->count++;
    }
}

static void add_parameter(char *target, size_t capacity, const char *name, const char *value)
{
    struct td_buffer encoded;
    td_buffer_init(&encoded);
    td_uri_encode(&encoded, td_text_of(value), false);
    size_t used = strlen(target);
    (void)snprintf(target + used, capacity - used, "%c%s=%s", strchr(target, '?') == NULL ? '?' : '&', name,
                   encoded.len == 0 ? "" : td_buffer_terminate(&encoded));
    td_buffer_fini(&encoded);
}

static void write_target(const struct query *query, const char *token, char target[4096])
{
    char number[24];
    (void)snprintf(target, 4096, "/%s", query->bucket);
    (void)snprintf(number, sizeof number, "%zu", query->max_keys);
    if (query->is_v2)
        add_parameter(target, 4096, "list-type", "2");
    add_parameter(target, 4096, "max-keys", number);
    if (query->prefix[0] != '\0')
        add_parameter(target, 4096, "prefix", query->prefix);
    if (query->delimiter[0] != '\0')
        add_parameter(target, 4096, "delimiter", query->delimiter);
    if (query->encode)
        add_parameter(target, 4096, "encoding-type", "url");
    if (query->is_v2 && query->after[0] != '\0')
        add_parameter(target, 4096, "start-after", query->after);
    if (query->is_v2 && token[0] != '\0')
        add_parameter(target, 4096, "continuation-token", token);
    if (!query->is_v2 && (token[0] != '\0' || query->after[0] != '\0'))
        add_parameter(target, 4096, "marker", token[0] != '\0' ? token : query->after);
}

static void check_page(const struct query *query, const char *target, const char *xml, size_t count, bool more)
{
    char text[1024];
    char number[24];
    (void)snprintf(number, sizeof number, "%zu", count);
    CHECK(count <= query->max_keys, "%s: %zu items", target, count);
    CHECK(xml_first(xml, "KeyCount", text, sizeof text) == query->is_v2, "%s", target);
    CHECK(!query->is_v2 || strcmp(text, number) == 0, "%s: %s", target, xml);
    CHECK(xml_first(xml, "IsTruncated", text, sizeof text) && strcmp(text, more ? "true" : "false") == 0, "%s: %s",
          target, xml);
    CHECK(xml_first(xml, "EncodingType", text, sizeof text) == query->encode, "%s", target);
    CHECK(xml_first(xml, "Delimiter", text, sizeof text) == (query->delimiter[0] != '\0'), "%s", target);
    if (query->encode)
        percent_decode(text);
    CHECK(query->delimiter[0] == '\0' || strcmp(text, query->delimiter) == 0, "%s: %s", target, xml);
    CHECK(xml_first(xml, "Name", text, sizeof text) && strcmp(text, query->bucket) == 0, "%s", target);
    CHECK(xml_first(xml, "NextContinuationToken", text, sizeof text) == (query->is_v2 && more), "%s", target);
    CHECK(xml_first(xml, "NextMarker", text, sizeof text) == (!query->is_v2 && more && query->delimiter[0] != '\0'),
          "%s", target);
}

/* Writes the token of the next page, as clients take it from this page. */
static void next_token(const struct query *query, const char *xml, const struct items *got, char token[2048])
{
    if (query->is_v2) {
        assert_true(xml_first(xml, "NextContinuationToken", token, 2048));
    } else if (xml_first(xml, "NextMarker", token, 2048)) {
        if (query->encode)
            percent_decode(token);
    } else {
        (void)snprintf(token, 2048, "%s", got->text[got->count - 1] + 1);
    }
}

/* Returns whether the listing can be compared: characters that XML cannot hold need encoded keys. */
static bool is_comparable(const struct query *query, const struct items *wanted)
{
    bool ok = query->encode;
    for (size_t i = 0; !ok && i < wanted->count; i++)
        if (strchr(wanted->text[i], '\x01') != NULL)
            return false;
    return ok || strpbrk(query->prefix, "\x01\r") == NULL;
}

static void compare_listing(struct place *place, const struct query *query)
{
    static struct items wanted;
    static struct items got;
    char token[2048] = "";
    char target[4096];
    list_naively(query, &wanted);
    if (!is_comparable(query, &wanted))
        return;
    got.count = 0;
    for (bool more = true; more;) {
        struct answer answer;
        size_t before = got.count;
        write_target(query, token, target);
        s3_ask(place, "GET", target, NULL, &answer);
        CHECK(answer.response.status == 200, "%s: %d: %s", target, answer.response.status, answer.body);
        add_items(&got, answer.body, query->encode);
        sort_items(&got, before);
        more = got.count < wanted.count;
        check_page(query, target, answer.body, got.count - before, more);
        CHECK(!more || got.count > before, "%s: an empty page", target);
        if (more)
            next_token(query, answer.body, &got, token);
        answer_fini(&answer);
    }
    CHECK(got.count == wanted.count, "%s: %zu items, wanted %zu", target, got.count, wanted.count);
    for (size_t i = 0; i < wanted.count; i++)
        CHECK(strcmp(got.text[i], wanted.text[i]) == 0, "%s: %s, wanted %s", target, got.text[i], wanted.text[i]);
}

/* Writes a piece of a key, often one that many keys share. */
static void random_piece(const struct query *query, uint64_t *random, bool from_begin, char *out, size_t most)
{
    const char *key = query->keys[random_below(random, query->key_count)];
    size_t begin = from_begin ? 0 : random_below(random, strlen(key));
    size_t len = random_below(random, strlen(key) - begin + 1);
    len = len < most ? len : most;
    while (!td_utf8_valid(key + begin, len))
        len--;
    memcpy(out, key + begin, len);
    out[len] = '\0';
}

static void random_query(struct query *query, uint64_t *random)
{
    static const char *const delimiters[] = {"", "/", "/", "a", "-", "el", "tp2/", "\xc3\xa9"};
    bool is_shards = query->keys == llama_tp2;
    query->is_v2 = random_below(random, 3) > 0;
    query->encode = random_below(random, 2) > 0;
    query->max_keys = 1 + random_below(random, 5);
    query->after[0] = '\0';
    (void)snprintf(query->delimiter, sizeof query->delimiter, "%s",
                   delimiters[random_below(random, COUNT_OF(delimiters))]);
    query->prefix[0] = '\0';
    if (is_shards || random_below(random, 2) > 0)
        random_piece(query, random, random_below(random, 8) > 0 || is_shards, query->prefix, sizeof query->prefix - 1);
    if (is_shards && strlen(query->prefix) < strlen("llama/shards/vllm/tp2"))
        (void)snprintf(query->prefix, sizeof query->prefix, "llama/shards/vllm/tp2");
    if (random_below(random, 3) == 0)
        random_piece(query, random, random_below(random, 4) > 0, query->after, sizeof query->after - 1);
    while (query->after[0] != '\0' && !td_utf8_valid(query->after, strlen(query->after)))
        query->after[strlen(query->after) - 1] = '\0';
}

/* shows: security.md s3-listings */
static void listings_are_as_described(void **state)
{
    static const struct query buckets[] = {
        {.bucket = "local", .keys = qwen3_and_others, .key_count = COUNT_OF(qwen3_and_others)},
        {.bucket = "meta", .keys = meta, .key_count = COUNT_OF(meta)},
        {.bucket = "meta", .keys = llama_tp2, .key_count = COUNT_OF(llama_tp2)},
    };
    struct place *place = *state;
    uint64_t random = 11;
    for (size_t i = 0; i < (SANITIZED ? 3000 : 20000); i++) {
        struct query query = buckets[random_below(&random, COUNT_OF(buckets))];
        random_query(&query, &random);
        compare_listing(place, &query);
    }
}

static void pages_by_hand(void **state)
{
    struct place *place = *state;
    expect_items(place, "/local?list-type=2&delimiter=/", "Kbert.safetensors Pbroken/ Pkept/ Pqwen3/ ");
    expect_items(place, "/local?list-type=2&delimiter=/&max-keys=0", "");
    expect_items(place, "/local?list-type=2&delimiter=/&max-keys=2147483647",
                 "Kbert.safetensors Pbroken/ Pkept/ Pqwen3/ ");
    expect_items(place, "/local?delimiter=%2F&prefix=qwen3/a", "Pqwen3/a-b/ Kqwen3/a.txt Pqwen3/a/ ");
    expect_items(place, "/local/?delimiter=/&prefix=qwen3/a/&marker=qwen3/a/b.txt", "Pqwen3/a/c/ ");
    expect_items(place, "/local?list-type=2&prefix=qwen3/a/&start-after=qwen3/a/c", "Kqwen3/a/c/d.txt ");
    expect_items(place, "/local?list-type=2&prefix=nothing", "");
    expect_items(place, "/local?prefix=meta/", "");
    expect_items(place, "/has?list-type=2&fetch-owner=true&x-id=ListObjectsV2", "Kreal/shards/none/tp1/x.safetensors ");
}

/* Names of ranks come in byte order, on pages of one key. */
static void many_ranks(void **state)
{
    enum { RANKS = 111 };
    static const char begin[] = "bert.safetensors/shards/fsdp/tp111/";
    char names[RANKS][ITEM_BYTES];
    const char *keys[RANKS];
    struct place *place = *state;
    struct query query = {.bucket = "local", .keys = keys, .key_count = RANKS, .max_keys = 7, .is_v2 = true};
    for (int i = 0; i < RANKS; i++)
        (void)snprintf(names[i], ITEM_BYTES, "%smodel-rank-%d-part-0.safetensors", begin, i);
    qsort(names, RANKS, ITEM_BYTES, (int (*)(const void *, const void *))strcmp);
    for (int i = 0; i < RANKS; i++)
        keys[i] = names[i];
    (void)snprintf(query.prefix, sizeof query.prefix, "%s", begin);
    compare_listing(place, &query);
    query.max_keys = 1000;
    compare_listing(place, &query);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, listings_are_as_described),
        TEST_IN(place, pages_by_hand),
        TEST_IN(place, many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
