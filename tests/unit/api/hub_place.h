/* Shared by the tests of the Hub's facade: repositories of every kind, requested by the Hub's paths. Expected shapes
 * and codes are those of huggingface_hub (hf_api.py, file_download.py, utils/_http.py) and @huggingface/hub; oids were
 * computed with git. Needs TD_TEST_DATA. */
#ifndef TD_TESTS_UNIT_API_HUB_PLACE_H
#define TD_TESTS_UNIT_API_HUB_PLACE_H

#include "api/hub/hub_call.h"
#include "tests/unit/api/api_place.h"
#include "tests/unit/tree_fixture.h"

/* sha256sum of "abc" and of the empty file, and git hash-object of the LFS pointers to them */
#define ABC_SHA256 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define ABC_OID "80d7d501c2b256023dc42e46d958b9ac2ec283ee"
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define EMPTY_OID "fc8e42b32efb9a9bf3ae0234a18a948e499490f8"

static inline void fill_hub(const struct tree *tree)
{
    tree_simple(tree, "ns/plain/model.safetensors", "a b");
    tree_text(tree, "ns/plain/a-b", "abc");
    tree_text(tree, "ns/plain/a.b", "abc");
    tree_text(tree, "ns/plain/a/x", "abc");
    tree_text(tree, "ns/plain/a/y/z", "");
    tree_text(tree, "ns/plain/a0", "abc");
    tree_text(tree, "ns/plain/sub dir/\xc3\xa9+%2F\"&.txt", "abc");
    copy_pickle(tree, "ns/torch/pytorch_model.bin");
    tree_simple(tree, "solo/model.safetensors", "s");
    tree_text(tree, "org/README.md", "a folder of one segment, beside ids that begin with it");
    tree_text(tree, "rows/train.jsonl", "{}");
    tree_text(tree, "datasets/ns/rows/README.md", "");
    tree_text(tree, "datasets/ns/rows/data/train.csv", "a,b");
    tree_simple(tree, "deep/er/est/model.safetensors", "d");
    tree_simple(tree, "models--other--hub/snapshots/" C1 "/model.safetensors", "a");
    tree_text(tree, "models--other--hub/snapshots/" C1 "/new.txt", "");
    tree_text(tree, "models--other--hub/snapshots/" C0 "/old.txt", "abc");
    tree_text(tree, "models--too--many--parts/snapshots/" C1 "/x.txt", "an id that no client takes");
    tree_text(tree, "models--other--hub/refs/main", C1);
    tree_text(tree, "models--other--hub/refs/v1.0", C0);
    tree_text(tree, "models--other--hub/refs/refs/pr/1", C0);
    tree_simple(tree, "at@sign/n@me/model.safetensors", "a");
}

/* Gives every file its digest, as the hasher would, and scans. */
static inline void hash_files(struct place *place)
{
    struct td_snapshot *snapshot = td_catalog_acquire(place->loop.catalog);
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        struct td_file *file = snapshot->entries[i].file;
        char path[2 * TREE_PATH_BYTES];
        char bytes[65536];
        uint8_t sum[TD_SHA256_BYTES];
        (void)snprintf(path, sizeof path, "%s/%s", place->tree.path, file->source.path);
        FILE *stream = fopen(path, "rb");
        assert_non_null(stream);
        size_t len = fread(bytes, 1, sizeof bytes, stream);
        (void)fclose(stream);
        struct td_digest *digest = td_digest_create();
        td_digest_add_content(digest, bytes, len);
        assert_true(td_digest_finish_binary(digest, sum));
        (void)td_file_set_sha256(file, sum);
    }
    td_snapshot_unref(snapshot);
    loopback_rescan(&place->loop);
}

static inline void open_hub(struct place *place)
{
    tree_open(&place->tree);
    fill_hub(&place->tree);
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
}

FIXTURE(hub, struct place, open_hub, close_place)

static inline const char *commit_header(const struct answer *answer)
{
    static char buffer[128];
    return answer_header(answer, "X-Repo-Commit", buffer);
}

static inline const char *commit_of(struct place *place, const char *target, char out[TD_COMMIT_BYTES])
{
    cJSON *json = get_json(place, target);
    CHECK(strlen(string_at(json, "sha")) == 40, "%s", target);
    memcpy(out, string_at(json, "sha"), TD_COMMIT_BYTES);
    cJSON_Delete(json);
    return out;
}

/* Checks the ids of this list's rows. `wanted` holds the ids, separated by blanks. */
static inline void expect_list(struct place *place, const char *target, const char *wanted)
{
    char got[1024];
    cJSON *json = get_json(place, target);
    join(json, "id", got);
    CHECK(strcmp(got, wanted) == 0, "%s: %s, wanted %s", target, got, wanted);
    cJSON_Delete(json);
}

static inline void post(struct place *place, const char *target, const char *body, struct answer *out)
{
    struct loopback_request request;
    struct td_body_cursor cursor = {0};
    loopback_request_init(&request, "POST", target, NULL);
    request.request.body = td_text_of(body);
    td_api_handle(&place->loop.api, &request.request, &out->response);
    out->len = (size_t)out->response.body.total_bytes;
    out->body = malloc(out->len + 1);
    assert_non_null(out->body);
    assert_true(td_body_read(&out->response.body, &cursor, out->body, out->len, NULL));
    out->body[out->len] = '\0';
}

/* Writes the absolute URL of the next page to `out`. Returns false on the last page. */
static inline bool next_page(const struct answer *answer, char out[512])
{
    char buffer[128];
    const char *link = answer_header(answer, "Link", buffer);
    if (link == NULL)
        return false;
    size_t len = strcspn(link, ">");
    assert_true(link[0] == '<' && strcmp(link + len, ">; rel=\"next\"") == 0 && len < 512);
    memcpy(out, link + 1, len - 1);
    out[len - 1] = '\0';
    return true;
}

#endif
