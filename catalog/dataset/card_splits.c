#include "catalog/dataset/card_splits.h"

#include "core/json_document.h"

#include <stdint.h>
#include <string.h>

enum { MAX_PATTERNS = 10000, MAX_TOKENS = 512 };

/* ---- patterns ---- */

enum token_kind {
    TOKEN_CHAR,   /* this byte */
    TOKEN_ANY,    /* ?: one byte but '/' */
    TOKEN_SET,    /* [...]: one of the bytes in `set`, or none of them */
    TOKEN_STAR,   /* *: bytes but '/' */
    TOKEN_DEEP,   /* **: any bytes */
    TOKEN_FOLDERS /* ** and '/': nothing, or any bytes that end in '/' */
};

struct token {
    enum token_kind kind;
    char c;
    struct td_text set;
    bool negated;
};

/* Reads the token at the beginning of the pattern, and removes it. */
static struct token take_token(struct td_text *pattern)
{
    const char *p = pattern->p;
    size_t skip = pattern->len > 1 && p[1] == '!' ? 2 : 1; /* a ']' behind these is a byte of the set */
    const char *close = pattern->len > skip + 1 ? memchr(p + skip + 1, ']', pattern->len - skip - 1) : NULL;
    struct token token = {.kind = TOKEN_CHAR, .c = *p};
    size_t len = 1;
    if (td_text_begins(*pattern, TD_TEXT("**"))) {
        bool folders = pattern->len > 2 && p[2] == '/';
        token.kind = folders ? TOKEN_FOLDERS : TOKEN_DEEP;
        len = folders ? 3 : 2;
    } else if (*p == '*' || *p == '?') {
        token.kind = *p == '*' ? TOKEN_STAR : TOKEN_ANY;
    } else if (*p == '[' && close != NULL) {
        token.kind = TOKEN_SET;
        token.negated = skip == 2;
        token.set = td_text_n(p + skip, (size_t)(close - p) - skip);
        len = (size_t)(close - p) + 1;
    }
    *pattern = td_text_skip(*pattern, len);
    return token;
}

static bool is_in_set(const struct token *token, char c)
{
    bool in = false;
    for (size_t i = 0; i < token->set.len; i++) {
        const char *p = token->set.p + i;
        if (i + 2 < token->set.len && p[1] == '-') {
            in = in || (c >= p[0] && c <= p[2]);
            i += 2;
        } else {
            in = in || c == *p;
        }
    }
    return in != token->negated && c != '/';
}

/* Enters the state, and those behind it that need no byte. */
static void enter(const struct token *tokens, size_t count, bool *states, size_t state)
{
    states[state] = true;
    while (state < count && tokens[state].kind >= TOKEN_STAR)
        states[++state] = true;
}

/* Goes from one set of states to the next by one byte. */
static void step(const struct token *tokens, size_t count, const bool *from, bool *to, char c)
{
    memset(to, 0, (count + 1) * sizeof *to);
    for (size_t i = 0; i < count; i++) {
        const struct token *token = &tokens[i];
        if (!from[i])
            continue;
        if (token->kind >= TOKEN_STAR) {
            if (token->kind != TOKEN_STAR || c != '/')
                to[i] = true;
            if (token->kind == TOKEN_DEEP || (token->kind == TOKEN_STAR && c != '/') ||
                (token->kind == TOKEN_FOLDERS && c == '/'))
                enter(tokens, count, to, i + 1);
        } else if ((token->kind == TOKEN_CHAR && c == token->c) || (token->kind == TOKEN_ANY && c != '/') ||
                   (token->kind == TOKEN_SET && is_in_set(token, c))) {
            enter(tokens, count, to, i + 1);
        }
    }
}

bool td_card_pattern_matches(const char *pattern, struct td_text path, uint64_t *steps)
{
    struct token tokens[MAX_TOKENS];
    bool states[2][MAX_TOKENS + 1] = {{false}};
    size_t count = 0, literal = strcspn(pattern, "*?[");
    *steps += 8; /* of a comparison */
    if (path.len < literal || memcmp(pattern, path.p, literal) != 0)
        return false; /* so that a card with many patterns costs little for each file */
    path = td_text_skip(path, literal);
    struct td_text rest = td_text_of(pattern + literal);
    while (rest.len > 0 && count < MAX_TOKENS)
        tokens[count++] = take_token(&rest);
    if (rest.len > 0)
        return false; /* longer than any path needs */
    *steps += path.len * count;
    enter(tokens, count, states[0], 0);
    for (size_t i = 0; i < path.len; i++)
        step(tokens, count, states[i % 2], states[(i + 1) % 2], path.p[i]);
    return states[path.len % 2][count];
}

/* ---- the card ---- */

struct reading {
    const struct td_json_document *document;
    struct td_arena *arena;
    struct td_card_splits *out;
    const char *config; /* NULL: the default one */
    bool ok;            /* memory sufficed */
};

static const char *split_name(struct reading *reading, const char *split)
{
    size_t config_len = reading->config == NULL ? 0 : strlen(reading->config) + 1, len = strlen(split);
    char *name = td_arena_alloc(reading->arena, config_len + len + 1);
    if (name == NULL)
        return NULL;
    if (config_len > 0) {
        memcpy(name, reading->config, config_len - 1);
        name[config_len - 1] = '/';
    }
    memcpy(name + config_len, split, len + 1);
    return name;
}

/* Adds a pattern, which is a string, or those of a list of strings. */
static void add_patterns(struct reading *reading, const char *split, const cJSON *path)
{
    const cJSON *item = cJSON_IsArray(path) ? path->child : path;
    for (; item != NULL && reading->ok; item = item == path ? NULL : item->next) {
        if (!cJSON_IsString(item) || reading->out->count == MAX_PATTERNS)
            continue;
        const char *pattern = item->valuestring;
        struct td_card_pattern *added = &reading->out->items[reading->out->count];
        added->split = split_name(reading, split);
        added->pattern = strncmp(pattern, "./", 2) == 0 ? pattern + 2 : pattern;
        reading->ok = added->split != NULL;
        reading->out->count++;
    }
}

static void read_config(struct reading *reading, const cJSON *config)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(config, "data_files");
    if (cJSON_IsString(files)) {
        add_patterns(reading, "train", files);
        return;
    }
    for (const cJSON *item = cJSON_IsArray(files) ? files->child : NULL; item != NULL; item = item->next) {
        const cJSON *split = cJSON_GetObjectItemCaseSensitive(item, "split");
        if (cJSON_IsString(item))
            add_patterns(reading, "train", item);
        else if (split == NULL || cJSON_IsString(split))
            add_patterns(reading, split == NULL ? "train" : split->valuestring,
                         cJSON_GetObjectItemCaseSensitive(item, "path"));
    }
}

/* Returns the configuration that a client gets which asks for none: the one that says `default: true` or is called
 * "default", else the first. */
static const cJSON *default_config(const cJSON *configs)
{
    const cJSON *found = NULL;
    for (const cJSON *config = configs->child; config != NULL; config = config->next) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(config, "config_name");
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, "default")))
            return config;
        if (found == NULL && (name == NULL || (cJSON_IsString(name) && strcmp(name->valuestring, "default") == 0)))
            found = config;
    }
    return found != NULL ? found : configs->child;
}

static size_t count_strings(const cJSON *configs)
{
    size_t count = 0;
    for (const cJSON *config = configs->child; config != NULL; config = config->next) {
        const cJSON *files = cJSON_GetObjectItemCaseSensitive(config, "data_files");
        count += 1;
        for (const cJSON *item = cJSON_IsArray(files) ? files->child : NULL; item != NULL; item = item->next) {
            const cJSON *path = cJSON_GetObjectItemCaseSensitive(item, "path");
            count += cJSON_IsArray(path) ? (size_t)cJSON_GetArraySize(path) : 1;
        }
    }
    return count < MAX_PATTERNS ? count : MAX_PATTERNS;
}

bool td_card_splits_read(struct td_text json, struct td_arena *arena, struct td_card_splits *out, struct td_error *err)
{
    struct td_json_document document;
    *out = (struct td_card_splits){0};
    td_json_document_read(&document, json, arena, NULL);
    if (document.fault.code == TD_RESOURCE_EXHAUSTED)
        return td_error_no_memory(err);
    const cJSON *configs = cJSON_GetObjectItemCaseSensitive(document.root, "configs");
    if (!cJSON_IsArray(configs) || configs->child == NULL)
        return true;
    size_t most = count_strings(configs);
    out->items = td_arena_array(arena, most, sizeof *out->items);
    struct reading reading = {.document = &document, .arena = arena, .out = out, .ok = out->items != NULL};
    const cJSON *normal = default_config(configs);
    for (const cJSON *config = configs->child; config != NULL && reading.ok; config = config->next) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(config, "config_name");
        bool is_default = config == normal || !cJSON_IsString(name);
        reading.config = is_default ? NULL : name->valuestring;
        read_config(&reading, config);
    }
    return reading.ok || td_error_no_memory(err);
}
