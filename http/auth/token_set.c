#include "http/auth/token_set.h"

#include "core/arena.h"
#include "core/base64.h"
#include "core/digits.h"
#include "core/glob.h"

#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct td_token_set {
    _Atomic int refs;
    uint8_t master_key[TD_TOKEN_KEY_BYTES];
    struct td_arena arena; /* owns all below */
    struct td_token *tokens;
    size_t count;
    const struct td_token **by_name, **by_access_key; /* sorted */
};

/* The default namespace of catalog/names/repo.h, and the most bytes of an id of one segment: those of a file's name. */
#define DEFAULT_NAMESPACE "local/"
enum { LOCAL_ID_MAX = 255 };

/* The labels of the keys that are derived from the master key. */
#define ACCESS_KEY_LABEL "tensord-s3-access"
#define SECRET_LABEL "tensord-s3-secret"
#define URL_LABEL "tensord-url"

/* Writes HMAC-SHA-256(master key, label "\n" name "\n" digest). */
static void derive_key(const uint8_t master_key[TD_TOKEN_KEY_BYTES], const char *label, const struct td_token *token,
                       uint8_t out[TD_SHA256_BYTES])
{
    char message[32 + TD_TOKEN_NAME_MAX + TD_SHA256_TEXT_BYTES];
    char digest[TD_SHA256_TEXT_BYTES] = "";
    if (token != NULL)
        td_hex_write(token->sha256, TD_SHA256_BYTES, digest);
    int len = snprintf(message, sizeof message, "%s\n%s\n%s", label, token != NULL ? token->name : "", digest);
    td_hmac_sha256(master_key, TD_TOKEN_KEY_BYTES, message, (size_t)len, out);
}

/* An access key holds 90 bits, 5 in each character, so that no two tokens of a set get the same. */
static void make_access_key(const struct td_token_set *set, struct td_token *token)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    uint8_t bytes[TD_SHA256_BYTES];
    derive_key(set->master_key, ACCESS_KEY_LABEL, token, bytes);
    memcpy(token->access_key, "TD", 2);
    for (size_t i = 2; i < TD_ACCESS_KEY_BYTES - 1; i++)
        token->access_key[i] = alphabet[bytes[i] & 31];
    token->access_key[TD_ACCESS_KEY_BYTES - 1] = '\0';
}

/* Sets models_tag. */
static bool tag_models(struct td_token *token)
{
    struct td_digest *digest = td_digest_create();
    for (size_t i = 0; token->models[i] != NULL; i++)
        td_digest_add_cstring(digest, token->models[i]);
    return td_digest_finish(digest, token->models_tag);
}

static bool copy_models(struct td_arena *arena, const char *const *models, struct td_token *out)
{
    size_t count = 0;
    out->models = NULL;
    out->models_tag[0] = '\0';
    if (models == NULL)
        return true;
    while (models[count] != NULL)
        count++;
    const char **copy = td_arena_array(arena, count + 1, sizeof *copy);
    for (size_t i = 0; copy != NULL && i < count; i++)
        if ((copy[i] = td_arena_strndup(arena, td_text_of(models[i]))) == NULL)
            return false;
    if (copy != NULL)
        copy[count] = NULL;
    out->models = copy;
    return copy != NULL && tag_models(out);
}

static bool copy_token(struct td_token_set *set, const struct td_token *token, struct td_token *out)
{
    *out = *token;
    out->name = td_arena_strndup(&set->arena, td_text_of(token->name));
    if (out->name == NULL || !copy_models(&set->arena, token->models, out))
        return false;
    make_access_key(set, out);
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const struct td_token *const *left = a;
    const struct td_token *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

static int compare_access_keys(const void *a, const void *b)
{
    const struct td_token *const *left = a;
    const struct td_token *const *right = b;
    return strcmp((*left)->access_key, (*right)->access_key);
}

static bool fill_set(struct td_token_set *set, const struct td_token *tokens, size_t count)
{
    set->tokens = td_arena_array(&set->arena, count, sizeof *set->tokens);
    set->by_name = td_arena_array(&set->arena, count, sizeof *set->by_name);
    set->by_access_key = td_arena_array(&set->arena, count, sizeof *set->by_access_key);
    if (set->tokens == NULL || set->by_name == NULL || set->by_access_key == NULL)
        return false;
    for (set->count = 0; set->count < count; set->count++) {
        struct td_token *token = &set->tokens[set->count];
        if (!copy_token(set, &tokens[set->count], token))
            return false;
        set->by_name[set->count] = token;
        set->by_access_key[set->count] = token;
    }
    qsort(set->by_name, count, sizeof *set->by_name, compare_names);
    qsort(set->by_access_key, count, sizeof *set->by_access_key, compare_access_keys);
    return true;
}

struct td_token_set *td_token_set_create(const uint8_t master_key[TD_TOKEN_KEY_BYTES], const struct td_token *tokens,
                                         size_t count, struct td_error *err)
{
    struct td_token_set *set = calloc(1, sizeof *set);
    if (set == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    atomic_init(&set->refs, 1);
    memcpy(set->master_key, master_key, sizeof set->master_key);
    td_arena_init(&set->arena, 0);
    if (fill_set(set, tokens, count))
        return set;
    (void)td_error_no_memory(err);
    td_token_set_unref(set);
    return NULL;
}

struct td_token_set *td_token_set_ref(struct td_token_set *set)
{
    atomic_fetch_add_explicit(&set->refs, 1, memory_order_relaxed);
    return set;
}

void td_token_set_unref(struct td_token_set *set)
{
    if (set == NULL || atomic_fetch_sub_explicit(&set->refs, 1, memory_order_acq_rel) != 1)
        return;
    td_arena_fini(&set->arena);
    OPENSSL_cleanse(set->master_key, sizeof set->master_key);
    free(set);
}

size_t td_token_set_count(const struct td_token_set *set)
{
    return set->count;
}

const struct td_token *td_token_set_tokens(const struct td_token_set *set)
{
    return set->tokens;
}

const uint8_t *td_token_set_master_key(const struct td_token_set *set)
{
    return set->master_key;
}

const struct td_token *td_token_set_find(const struct td_token_set *set, struct td_text secret)
{
    uint8_t sum[TD_SHA256_BYTES];
    const struct td_token *found = NULL;
    if (secret.len == 0 || secret.len > TD_TOKEN_MAX_BYTES)
        return NULL;
    td_sha256(secret.p, secret.len, sum);
    for (size_t i = 0; i < set->count; i++)
        if (CRYPTO_memcmp(sum, set->tokens[i].sha256, sizeof sum) == 0)
            found = &set->tokens[i];
    return found;
}

/* Finds the token whose name, or else whose access key, is `wanted`. */
static const struct td_token *find_in_sorted(const struct td_token *const *sorted, size_t count, struct td_text wanted,
                                             bool by_name)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = td_text_compare(td_text_of(by_name ? sorted[mid]->name : sorted[mid]->access_key), wanted);
        if (order == 0)
            return sorted[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const struct td_token *td_token_set_find_name(const struct td_token_set *set, struct td_text name)
{
    return find_in_sorted(set->by_name, set->count, name, true);
}

const struct td_token *td_token_set_find_access_key(const struct td_token_set *set, struct td_text access_key)
{
    return find_in_sorted(set->by_access_key, set->count, access_key, false);
}

bool td_token_name_is_valid(struct td_text name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.p[i];
        if (!td_is_letter_or_digit(c) && c != '.' && c != '_' && c != '-')
            return false;
    }
    return name.len > 0 && name.len <= TD_TOKEN_NAME_MAX;
}

bool td_token_has_expired(const struct td_token *token, int64_t now_s)
{
    return token->expires_s != 0 && now_s >= token->expires_s;
}

void td_token_s3_secret(const struct td_token_set *set, const struct td_token *token, char out[TD_S3_SECRET_BYTES])
{
    uint8_t key[TD_SHA256_BYTES];
    derive_key(set->master_key, SECRET_LABEL, token, key);
    td_base64url_write(key, sizeof key, out);
    out[TD_S3_SECRET_BYTES - 1] = '\0';
    OPENSSL_cleanse(key, sizeof key);
}

void td_token_url_key(const struct td_token_set *set, const struct td_token *token, uint8_t out[TD_SHA256_BYTES])
{
    derive_key(set->master_key, URL_LABEL, token, out);
}

static bool matches(const struct td_token *token, struct td_text id)
{
    for (size_t i = 0; token->models[i] != NULL; i++)
        if (td_glob_match(td_text_of(token->models[i]), id))
            return true;
    return false;
}

bool td_token_may_see(const struct td_token *token, struct td_text id)
{
    const struct td_text datasets = TD_TEXT("datasets/");
    char spelled[sizeof "datasets/" DEFAULT_NAMESPACE + LOCAL_ID_MAX];
    if (token->models == NULL || matches(token, id))
        return true;
    bool is_dataset = td_text_begins(id, datasets);
    struct td_text name = is_dataset ? td_text_skip(id, datasets.len) : id;
    if (name.len > LOCAL_ID_MAX || memchr(name.p, '/', name.len) != NULL)
        return false;
    int len = snprintf(spelled, sizeof spelled, "%s%s%.*s", is_dataset ? "datasets/" : "", DEFAULT_NAMESPACE,
                       (int)name.len, name.p);
    return matches(token, td_text_n(spelled, (size_t)len));
}

bool td_token_may_write_below(const struct td_token *token, struct td_text prefix)
{
    if ((token->rights & TD_RIGHT_WRITE) == 0)
        return false;
    for (size_t i = 0; token->models != NULL && token->models[i] != NULL; i++) {
        size_t plain = strcspn(token->models[i], "*?[\\");
        size_t len = plain < prefix.len ? plain : prefix.len;
        bool has_more = plain >= prefix.len || token->models[i][plain] != '\0';
        if (has_more && (len == 0 || memcmp(token->models[i], prefix.p, len) == 0))
            return true;
    }
    return token->models == NULL;
}

bool td_token_may_write(const struct td_token *token, struct td_text id)
{
    return (token->rights & TD_RIGHT_WRITE) != 0 && td_token_may_see(token, id);
}
