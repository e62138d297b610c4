/* The input is the body of POST commits. One that is accepted means what the reader of JSON documents finds in it. */
#include "api/native/commit_text.h"

#include "core/digits.h"
#include "core/json/json_document.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

/* Returns the text of a member, or `otherwise` when the object lacks it. */
static const char *text_of(const cJSON *object, const char *name, const char *otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    FUZZ_CHECK(item == NULL || cJSON_IsString(item));
    return item == NULL ? otherwise : item->valuestring;
}

static void check_text(const char *got, const char *wanted)
{
    FUZZ_CHECK((got == NULL) == (wanted == NULL));
    FUZZ_CHECK(got == NULL || strcmp(got, wanted) == 0);
}

static void check_file(const struct td_json_document *document, const struct td_commit_file *file, const cJSON *item)
{
    char digest[] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    uint64_t size;
    check_text(file->path, text_of(item, "path", NULL));
    td_hex_write(file->sha256, TD_SHA256_BYTES, digest + sizeof "sha256:" - 1);
    check_text(digest, text_of(item, "digest", NULL));
    FUZZ_CHECK(td_json_document_u64(document, cJSON_GetObjectItemCaseSensitive(item, "size"), &size));
    FUZZ_CHECK(file->has_size && file->size_bytes == size);
    FUZZ_CHECK(cJSON_GetArraySize(item) == 3);
}

static void check_order(const struct td_commit_order *order, const struct td_json_document *document)
{
    const cJSON *root = document->root;
    FUZZ_CHECK(cJSON_IsObject(root));
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(root, "files");
    const cJSON *deletions = cJSON_GetObjectItemCaseSensitive(root, "delete");
    FUZZ_CHECK((files != NULL || order->keep) &&
               order->keep == cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "keep")));
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, files)
    {
        FUZZ_CHECK(count < order->file_count);
        check_file(document, &order->files[count++], item);
    }
    FUZZ_CHECK(count == order->file_count);
    count = 0;
    cJSON_ArrayForEach(item, deletions)
    {
        FUZZ_CHECK(count < order->deletion_count && cJSON_IsString(item));
        check_text(order->deletions[count++], item->valuestring);
    }
    FUZZ_CHECK(count == order->deletion_count);
    check_text(order->revision, text_of(root, "revision", "main"));
    check_text(order->message, text_of(root, "message", ""));
    check_text(order->from, text_of(root, "from", NULL));
    check_text(order->parent, text_of(root, "parent", NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_commit_text commit;
    struct td_json_document document;
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    struct td_text text = td_text_n((const char *)data, size);
    td_arena_init(&arena, 0);
    td_json_document_read(&document, text, &arena, NULL);
    bool is_json = td_json_document_end(&document);
    bool ok = td_commit_text_read(text, &commit, &err);
    if (ok) {
        FUZZ_CHECK(is_json);
        check_order(&commit.order, &document);
    } else {
        FUZZ_CHECK(!commit.is_too_large); /* such a text is longer than the fuzzer's */
        fuzz_check_refusal(&err, size);
    }
    td_commit_text_fini(&commit);
    td_arena_fini(&arena);
    return 0;
}
