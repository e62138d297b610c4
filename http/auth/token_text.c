/* Plan: the text becomes a tree (core/json/json_document), each token's object is read by a table of keys, and
 * duplicates are found by sorting. */
#include "http/auth/token_text.h"

#include "core/arena.h"
#include "core/base64.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/json/json_document.h"
#include "core/utf8.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

enum { TREE_MAX_BYTES = 512 * 1024 * 1024 }; /* of the tree of a file */

/* A token, and its object in the text. */
struct entry {
    struct td_token token;
    const cJSON *item;
};

struct reader {
    const struct td_json_document *document;
    struct td_arena *arena;
    struct td_error *err;
};

typedef bool (*read_member)(const struct reader *r, const cJSON *item, struct td_token *token);

/* Returns the text of an item that must be a string without a NUL, or NULL after a fault. */
static const char *read_string(const struct reader *r, const cJSON *item)
{
    if (td_json_item_is_string(item))
        return td_json_document_string(r->document, item);
    (void)td_json_document_fail(r->document, item, "\"%s\" must be a string", item->string);
    return NULL;
}

static bool read_name(const struct reader *r, const cJSON *item, struct td_token *token)
{
    token->name = read_string(r, item);
    return token->name != NULL &&
           (td_token_name_is_valid(td_text_of(token->name)) ||
            td_json_document_fail(r->document, item,
                                  "a name has 1 to %d letters, digits, \".\", \"_\" and \"-\", not \"%.*s\"",
                                  TD_TOKEN_NAME_MAX, TD_SHOW(td_text_of(token->name), 80)));
}

static bool read_sha256(const struct reader *r, const cJSON *item, struct td_token *token)
{
    const char *text = read_string(r, item);
    if (text == NULL)
        return false;
    if (!td_hex_read_bytes(td_text_of(text), token->sha256, sizeof token->sha256))
        return td_json_document_fail(r->document, item,
                                     "\"sha256\" must be the SHA-256 of the token's text, 64 lower-case hexadecimal "
                                     "digits");
    return true;
}

static bool read_models(const struct reader *r, const cJSON *item, struct td_token *token)
{
    const cJSON *glob;
    size_t count = 0;
    size_t bytes = 0;
    if (cJSON_IsNull(item))
        return true;
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) > TD_TOKEN_MODELS_MAX)
        return td_json_document_fail(r->document, item, "\"models\" must be null or an array of at most %d globs",
                                     TD_TOKEN_MODELS_MAX);
    const char **models = td_arena_array(r->arena, (size_t)cJSON_GetArraySize(item) + 1, sizeof *models);
    if (models == NULL)
        return td_arena_refuse(r->arena, "the tokens", r->err);
    cJSON_ArrayForEach(glob, item)
    {
        size_t len = td_json_item_is_string(glob) ? td_json_document_spelled(r->document, glob).len : 0;
        if (len == 0 || len > TD_TOKEN_GLOB_BYTES)
            return td_json_document_fail(r->document, glob,
                                         "a glob must be a string of 1 to %d bytes, such as "
                                         "\"org/*\"",
                                         TD_TOKEN_GLOB_BYTES);
        bytes += len;
        if (bytes > TD_TOKEN_MODELS_BYTES)
            return td_json_document_fail(r->document, glob,
                                         "the globs of a token may have %d bytes together, since each name of a file "
                                         "is matched with all of them",
                                         TD_TOKEN_MODELS_BYTES);
        if ((models[count++] = td_json_document_string(r->document, glob)) == NULL)
            return false;
    }
    models[count] = NULL;
    token->models = models;
    return true;
}

static bool read_rights(const struct reader *r, const cJSON *item, struct td_token *token)
{
    const cJSON *word;
    token->rights = 0;
    if (!cJSON_IsArray(item))
        return td_json_document_fail(r->document, item, "\"rights\" must be an array of \"read\" and \"write\"");
    cJSON_ArrayForEach(word, item)
    {
        if (cJSON_IsString(word) && strcmp(word->valuestring, "read") == 0)
            token->rights |= TD_RIGHT_READ;
        else if (cJSON_IsString(word) && strcmp(word->valuestring, "write") == 0)
            token->rights |= TD_RIGHT_WRITE;
        else if (cJSON_IsString(word))
            return td_json_document_fail(r->document, word, "the rights are \"read\" and \"write\", not \"%.*s\"",
                                         TD_SHOW(td_text_of(word->valuestring), 80));
        else
            return td_json_document_fail(r->document, word, "the rights are \"read\" and \"write\"");
    }
    return token->rights != 0 ||
           td_json_document_fail_end(r->document, item, "\"rights\" must hold \"read\", \"write\" or both");
}

static bool read_time(const struct reader *r, const cJSON *item, int64_t *out)
{
    const char *text = read_string(r, item);
    if (text == NULL)
        return false;
    if (td_wall_read_rfc3339(td_text_of(text), out) && *out > 0)
        return true;
    return td_json_document_fail(r->document, item,
                                 "\"%s\" must be a time after 1970 as RFC 3339 writes it, such as "
                                 "\"2027-01-31T12:00:00Z\", not \"%.*s\"",
                                 item->string, TD_SHOW(td_text_of(text), 48));
}

static bool read_expires(const struct reader *r, const cJSON *item, struct td_token *token)
{
    return cJSON_IsNull(item) || read_time(r, item, &token->expires_s);
}

static bool read_created(const struct reader *r, const cJSON *item, struct td_token *token)
{
    return read_time(r, item, &token->created_s);
}

/* The keys of a token. */
static const struct {
    const char *name;
    read_member read;
    bool is_needed;
} keys[] = {{"name", read_name, true},      {"sha256", read_sha256, true},    {"models", read_models, false},
            {"rights", read_rights, false}, {"expires", read_expires, false}, {"created", read_created, false}};

enum { KEY_COUNT = sizeof keys / sizeof *keys };

static size_t find_key(const char *name)
{
    size_t i = 0;
    while (i < KEY_COUNT && strcmp(keys[i].name, name) != 0)
        i++;
    return i;
}

static bool read_token(const struct reader *r, const cJSON *item, struct td_token *token)
{
    const cJSON *member;
    unsigned seen = 0;
    *token = (struct td_token){.rights = TD_RIGHT_READ};
    if (!cJSON_IsObject(item))
        return td_json_document_fail(r->document, item, "a token must be an object");
    cJSON_ArrayForEach(member, item)
    {
        size_t key = find_key(member->string);
        if (key == KEY_COUNT)
            return td_json_document_unknown_key(r->document, member,
                                                "a token has name, sha256, models, rights, expires and created");
        if ((seen >> key & 1) != 0)
            return td_json_document_fail_key(r->document, member, "the key \"%s\" is given twice", member->string);
        seen |= 1U << key;
        if (!keys[key].read(r, member, token))
            return false;
    }
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (keys[i].is_needed && (seen >> i & 1) == 0)
            return td_json_document_fail_end(r->document, item, "the token lacks the key \"%s\"", keys[i].name);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const struct entry *const *left = a;
    const struct entry *const *right = b;
    int order = strcmp((*left)->token.name, (*right)->token.name);
    return order != 0 ? order : (*left > *right) - (*left < *right);
}

static int compare_digests(const void *a, const void *b)
{
    const struct entry *const *left = a;
    const struct entry *const *right = b;
    int order = memcmp((*left)->token.sha256, (*right)->token.sha256, TD_SHA256_BYTES);
    return order != 0 ? order : (*left > *right) - (*left < *right);
}

/* Refuses two tokens with one name or one digest. */
static bool check_unique(const struct reader *r, const struct entry *entries, size_t count)
{
    const struct entry **sorted = td_arena_array(r->arena, count, sizeof *sorted);
    if (sorted == NULL)
        return td_arena_refuse(r->arena, "the tokens", r->err);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &entries[i];
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1]->token.name, sorted[i]->token.name) == 0)
            return td_json_document_fail(r->document, sorted[i]->item, "two tokens have the name \"%s\"",
                                         sorted[i]->token.name);
    qsort(sorted, count, sizeof *sorted, compare_digests);
    for (size_t i = 1; i < count; i++)
        if (memcmp(sorted[i - 1]->token.sha256, sorted[i]->token.sha256, TD_SHA256_BYTES) == 0)
            return td_json_document_fail(r->document, sorted[i]->item,
                                         "the tokens \"%s\" and \"%s\" have the same \"sha256\"",
                                         sorted[i - 1]->token.name, sorted[i]->token.name);
    return true;
}

static bool read_tokens(const struct reader *r, const cJSON *item, struct td_token **out, size_t *out_count)
{
    const cJSON *member;
    size_t count = 0;
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) > TD_TOKENS_MAX)
        return td_json_document_fail(r->document, item, "\"tokens\" must be an array of at most %d tokens",
                                     TD_TOKENS_MAX);
    size_t room = (size_t)cJSON_GetArraySize(item);
    struct entry *entries = td_arena_array(r->arena, room, sizeof *entries);
    struct td_token *tokens = td_arena_array(r->arena, room, sizeof *tokens);
    if (entries == NULL || tokens == NULL)
        return td_arena_refuse(r->arena, "the tokens", r->err);
    cJSON_ArrayForEach(member, item)
    {
        if (!read_token(r, member, &entries[count].token))
            return false;
        entries[count].item = member;
        tokens[count] = entries[count].token;
        count++;
    }
    *out = tokens;
    *out_count = count;
    return check_unique(r, entries, count);
}

static bool read_master_key(const struct reader *r, const cJSON *item, uint8_t key[TD_TOKEN_KEY_BYTES])
{
    const char *text = read_string(r, item);
    uint8_t bytes[TD_BASE64URL_CHARS(TD_TOKEN_KEY_BYTES)];
    size_t len = 0;
    if (text == NULL)
        return false;
    bool ok =
        strlen(text) <= sizeof bytes && td_base64url_read(td_text_of(text), bytes, &len) && len == TD_TOKEN_KEY_BYTES;
    if (!ok)
        return td_json_document_fail(r->document, item,
                                     "\"master_key\" must be 32 random bytes in base64url, 43 "
                                     "characters without padding");
    memcpy(key, bytes, TD_TOKEN_KEY_BYTES);
    OPENSSL_cleanse(bytes, sizeof bytes);
    unsigned int any = 0;
    for (size_t i = 0; i < TD_TOKEN_KEY_BYTES; i++)
        any |= key[i];
    return any != 0 || td_json_document_fail(r->document, item,
                                             "\"master_key\" must be random; this one has no bit set, so everybody "
                                             "could sign with it");
}

static bool read_version(const struct reader *r, const cJSON *item)
{
    uint64_t version;
    if (!cJSON_IsRaw(item) || !td_json_document_u64(r->document, item, &version) || version != 1)
        return td_json_document_fail(r->document, item, "\"version\" must be 1, the only one that this program reads");
    return true;
}

/* The content of the document. */
struct content {
    uint8_t master_key[TD_TOKEN_KEY_BYTES];
    struct td_token *tokens;
    size_t count;
};

static bool read_document(const struct reader *r, struct content *out)
{
    static const char *const names[] = {"version", "master_key", "tokens"};
    enum { NAME_COUNT = sizeof names / sizeof *names };
    const cJSON *member;
    unsigned seen = 0;
    const cJSON *root = td_json_document_object(r->document, "an object with version, master_key and tokens");
    if (root == NULL)
        return false;
    cJSON_ArrayForEach(member, root)
    {
        size_t key = 0;
        while (key < NAME_COUNT && strcmp(names[key], member->string) != 0)
            key++;
        if (key == NAME_COUNT)
            return td_json_document_unknown_key(r->document, member, "the keys are version, master_key and tokens");
        if ((seen >> key & 1) != 0)
            return td_json_document_fail_key(r->document, member, "the key \"%s\" is given twice", member->string);
        seen |= 1U << key;
        bool ok = key == 0   ? read_version(r, member)
                  : key == 1 ? read_master_key(r, member, out->master_key)
                             : read_tokens(r, member, &out->tokens, &out->count);
        if (!ok)
            return false;
    }
    for (size_t i = 0; i < NAME_COUNT; i++)
        if ((seen >> i & 1) == 0)
            return td_json_document_fail_end(r->document, root, "the key \"%s\" is missing", names[i]);
    return td_json_document_end(r->document);
}

bool td_token_text_parse(struct td_text text, struct td_token_set **out, struct td_error *err)
{
    struct td_json_document document;
    struct td_arena arena;
    struct content content = {.count = 0};
    const struct reader reader = {.document = &document, .arena = &arena, .err = err};
    td_arena_init(&arena, TREE_MAX_BYTES);
    td_json_document_read(&document, text, &arena, err);
    *out = NULL;
    if (read_document(&reader, &content))
        *out = td_token_set_create(content.master_key, content.tokens, content.count, err);
    OPENSSL_cleanse(content.master_key, sizeof content.master_key);
    td_arena_erase(&arena);
    return *out != NULL;
}
