#include "catalog/dataset/card_splits.h"

#include "core/json/json_document.h"

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
    size_t skip = pattern->len > 1 && p[1] == '!' ? 2 : 1; /* a ']' after these is a byte of the set */
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

/* Enters the state, and the states after it that need no byte. */
static void enter_state(const struct token *tokens, size_t count, bool *states, size_t state)
{
    states[state] = true;
    while (state < count && tokens[state].kind >= TOKEN_STAR)
        states[++state] = true;
}

/* Goes from one set of states to the next by one byte. */
static void step_states(const struct token *tokens, size_t count, const bool *from, bool *to, char c)
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
                enter_state(tokens, count, to, i + 1);
        } else if ((token->kind == TOKEN_CHAR && c == token->c) || (token->kind == TOKEN_ANY && c != '/') ||
                   (token->kind == TOKEN_SET && is_in_set(token, c))) {
            enter_state(tokens, count, to, i + 1);
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
    enter_state(tokens, count, states[0], 0);
    for (size_t i = 0; i < path.len; i++)
        step_states(tokens, count, states[i % 2], states[(i + 1) % 2], path.p[i]);
    return states[path.len % 2][count];
}

/* Counts the parts of a path that begin with '.' (except "." and ".."), and the folders that begin with "__". */
static void count_special(struct td_text path, size_t *hidden, size_t *special)
{
    *hidden = *special = 0;
    while (path.len > 0) {
        struct td_text part = td_text_take_until(&path, '/');
        bool is_file = path.len == 0;
        bool is_dots = td_text_equals(part, ".") || td_text_equals(part, "..");
        *hidden += part.len > 0 && part.p[0] == '.' && !is_dots ? 1 : 0;
        *special += !is_file && td_text_begins(part, TD_TEXT("__")) ? 1 : 0;
    }
}

bool td_card_pattern_shows(struct td_text pattern, struct td_text path)
{
    size_t hidden[2], special[2];
    count_special(pattern, &hidden[0], &special[0]);
    count_special(path, &hidden[1], &special[1]);
    return hidden[0] == hidden[1] && special[0] == special[1];
}

/* ---- the card ---- */

struct reading {
    struct td_arena *arena;
    struct td_card_splits *out;
    struct td_card_config *config; /* the configuration that is being read */
    const char *label;             /* its name, for messages */
    size_t capacity;               /* of out->items */
    struct td_error fault;         /* the first thing in the card that is not understood */
    bool ok;                       /* memory sufficed */
};

static const char *split_name(struct reading *reading, const char *split)
{
    const char *config = reading->config->name;
    size_t config_len = config == NULL ? 0 : strlen(config) + 1, len = strlen(split);
    char *name = td_arena_alloc(reading->arena, config_len + len + 1);
    if (name == NULL)
        return NULL;
    if (config_len > 0) {
        memcpy(name, config, config_len - 1);
        name[config_len - 1] = '/';
    }
    memcpy(name + config_len, split, len + 1);
    return name;
}

/* Adds one pattern. Past MAX_PATTERNS, only sets the fault. */
static void add_pattern(struct reading *reading, const char *split, const char *pattern)
{
    struct td_card_splits *out = reading->out;
    if (out->count == MAX_PATTERNS) {
        (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT, "the patterns past number %d are left out",
                           MAX_PATTERNS);
        return;
    }
    struct td_card_pattern *grown =
        td_arena_grow(reading->arena, out->items, out->count, &reading->capacity, sizeof *grown);
    const char *name = split_name(reading, split);
    reading->ok = grown != NULL && name != NULL;
    if (!reading->ok)
        return;
    while (strncmp(pattern, "./", 2) == 0)
        pattern += 2;
    out->items = grown;
    out->items[out->count++] = (struct td_card_pattern){.split = name, .pattern = pattern};
}

/* Adds a pattern, which is a string, or those of a list of strings. */
static void add_patterns(struct reading *reading, const char *split, const cJSON *path)
{
    const cJSON *item = cJSON_IsArray(path) ? path->child : path;
    for (; item != NULL && reading->ok; item = item == path ? NULL : item->next) {
        if (cJSON_IsString(item))
            add_pattern(reading, split, item->valuestring);
        else
            (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT, "a path of configuration \"%.100s\" is not text",
                               reading->label);
    }
}

/* Adds the patterns of an item of the list `data_files`: a path, or a map with `split` and `path`. */
static void read_item(struct reading *reading, const cJSON *item)
{
    const cJSON *split = cJSON_GetObjectItemCaseSensitive(item, "split");
    const cJSON *path = cJSON_GetObjectItemCaseSensitive(item, "path");
    if (cJSON_IsString(item))
        add_patterns(reading, "train", item);
    else if (path == NULL)
        (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT,
                           "data_files of configuration \"%.100s\" has an item without a path", reading->label);
    else if (split != NULL && !cJSON_IsString(split))
        (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT,
                           "the name of a split of configuration \"%.100s\" is not text", reading->label);
    else
        add_patterns(reading, split == NULL ? "train" : split->valuestring, path);
}

static bool has_dots(struct td_text path)
{
    while (path.len > 0)
        if (td_text_equals(td_text_take_until(&path, '/'), ".."))
            return true;
    return false;
}

/* Sets the configuration's folder to `data_dir` without "./" at its beginning and with one '/' at its end. */
static void read_folder(struct reading *reading, const cJSON *data_dir)
{
    if (!cJSON_IsString(data_dir) || data_dir->valuestring[0] == '/' || has_dots(td_text_of(data_dir->valuestring))) {
        (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT,
                           "data_dir of configuration \"%.100s\" is no folder below the dataset", reading->label);
        return;
    }
    struct td_text folder = td_text_of(data_dir->valuestring);
    while (folder.len > 0 && folder.p[folder.len - 1] == '/')
        folder.len--;
    while (td_text_begins(folder, TD_TEXT("./")))
        folder = td_text_skip(folder, 2);
    if (folder.len == 0 || td_text_equals(folder, "."))
        return;
    char *copy = td_arena_alloc(reading->arena, folder.len + 2);
    reading->ok = copy != NULL;
    if (copy == NULL)
        return;
    memcpy(copy, folder.p, folder.len);
    memcpy(copy + folder.len, "/", 2);
    reading->config->folder = td_text_n(copy, folder.len + 1);
}

/* Reads `data_files` and `data_dir`. Returns false when `data_files` is neither a path nor a list; the configuration is
 * then left out. */
static bool read_files(struct reading *reading, const cJSON *item)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(item, "data_files");
    const cJSON *data_dir = cJSON_GetObjectItemCaseSensitive(item, "data_dir");
    struct td_card_config *config = reading->config;
    config->first = reading->out->count;
    config->folder = TD_TEXT("");
    if (data_dir != NULL && !cJSON_IsNull(data_dir))
        read_folder(reading, data_dir);
    if (files == NULL || cJSON_IsNull(files))
        return true;
    config->has_patterns = true;
    if (!cJSON_IsString(files) && !cJSON_IsArray(files)) {
        (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT,
                           "data_files of configuration \"%.100s\" is neither a path nor a list", reading->label);
        return false;
    }
    const cJSON *each = cJSON_IsArray(files) ? files->child : files;
    for (; each != NULL && reading->ok; each = each == files ? NULL : each->next)
        read_item(reading, each);
    config->count = reading->out->count - config->first;
    return true;
}

/* Returns the name of a configuration: a text, or the digits of a number. Returns NULL when it has none. */
static const char *config_name(const cJSON *config)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(config, "config_name");
    return cJSON_IsString(name) || cJSON_IsRaw(name) ? name->valuestring : NULL;
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

static void read_config(struct reading *reading, const cJSON *item, bool is_default)
{
    struct td_card_splits *out = reading->out;
    const char *name = config_name(item);
    if (!cJSON_IsObject(item)) {
        (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT, "a configuration is not a map of keys and values");
        return;
    }
    if (name == NULL && cJSON_GetObjectItemCaseSensitive(item, "config_name") != NULL)
        (void)td_error_set(&reading->fault, TD_INVALID_ARGUMENT,
                           "the name of a configuration (config_name) is not text");
    reading->label = name == NULL ? "default" : name;
    reading->config = &out->configs[out->config_count];
    *reading->config = (struct td_card_config){.name = is_default || name == NULL ? NULL : name};
    out->config_count += read_files(reading, item) ? 1 : 0;
}

bool td_card_splits_declare(const struct td_card_splits *splits)
{
    for (size_t i = 0; i < splits->config_count; i++)
        if (splits->configs[i].count > 0 || splits->configs[i].folder.len > 0)
            return true;
    return false;
}

bool td_card_splits_read(struct td_text json, struct td_arena *arena, struct td_card_splits *out, struct td_error *err)
{
    struct td_json_document document;
    *out = (struct td_card_splits){0};
    td_json_document_read(&document, json, arena, NULL);
    if (document.fault.code == TD_RESOURCE_EXHAUSTED)
        return td_error_no_memory(err);
    const cJSON *configs = cJSON_GetObjectItemCaseSensitive(document.root, "configs");
    struct reading reading = {.arena = arena, .out = out, .fault = TD_ERROR_INIT, .ok = true};
    if (configs != NULL && !cJSON_IsNull(configs) && !cJSON_IsArray(configs))
        (void)td_error_set(&reading.fault, TD_INVALID_ARGUMENT, "configs is not a list");
    if (configs != NULL && cJSON_IsArray(configs) && configs->child != NULL) {
        out->configs = td_arena_array(arena, (size_t)cJSON_GetArraySize(configs), sizeof *out->configs);
        reading.ok = out->configs != NULL;
        const cJSON *normal = default_config(configs);
        for (const cJSON *config = configs->child; config != NULL && reading.ok; config = config->next)
            read_config(&reading, config, config == normal);
    }
    if (reading.fault.code != TD_OK)
        out->fault = td_arena_strndup(arena, td_text_of(reading.fault.message));
    return (reading.ok && (reading.fault.code == TD_OK || out->fault != NULL)) || td_error_no_memory(err);
}
