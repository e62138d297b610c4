/* The rows of the table give each option's name, the kind of its value, the bounds, the default and the member of
 * td_config. */
#include "server/config/config_options.h"

#include "core/clock.h"
#include "core/digits.h"
#include "core/json/json.h"
#include "core/quantity.h"
#include "core/utf8.h"
#include "server/config/listen_address.h"
#include "storage/decode_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS ((uint64_t)TD_NS_PER_S)
#define MIB UINT64_C(1048576)
#define TIB (MIB * MIB)

/* A row's is_live. */
enum { AT_START, LIVE };

/* The members of a row from `kind` to `example`. */
#define ROW(kind, min, max, member, place, words, example) \
    kind, min, max, offsetof(struct td_config, member), place, words, example
#define TEXT(member, place) ROW(TD_OPTION_TEXT, 0, 0, member, place, NULL, NULL)
#define WORD(member, words) ROW(TD_OPTION_WORD, 0, 0, member, TD_OPTION_EVERYWHERE, words, NULL)
#define ADDRESS(member, example) ROW(TD_OPTION_ADDRESS, 0, 0, member, TD_OPTION_EVERYWHERE, NULL, example)
#define COUNT(member, min, max) ROW(TD_OPTION_COUNT, min, max, member, TD_OPTION_EVERYWHERE, NULL, NULL)
#define COUNT_OR_AUTO(member, min, max) ROW(TD_OPTION_COUNT_OR_AUTO, min, max, member, TD_OPTION_EVERYWHERE, NULL, NULL)
#define SIZE(member, min, max) ROW(TD_OPTION_SIZE, min, max, member, TD_OPTION_EVERYWHERE, NULL, NULL)
#define TIME(member, min, max) ROW(TD_OPTION_TIME, min, max, member, TD_OPTION_EVERYWHERE, NULL, NULL)
#define SWITCH(member) ROW(TD_OPTION_SWITCH, 0, 0, member, TD_OPTION_EVERYWHERE, NULL, NULL)

static const char *const rescan_words[] = {"local", "any", "none", NULL};
static const char *const publish_words[] = {"off", "local", "any", NULL};
static const char *const files_words[] = {"mutable", "immutable", NULL};
static const char *const sendfile_words[] = {"on", "remote", "off", NULL};
static const char *const sandbox_words[] = {"required", "best-effort", "off", NULL};
static const char *const format_words[] = {"text", "json", NULL};
static const char *const level_words[] = {"error", "warn", "info", "debug", NULL};

static const struct td_option options[] = {
    {"directory", "DIR", "", "directory to serve", TEXT(directory, TD_OPTION_FILE_ONLY), AT_START},
    {"config", "FILE", "", "JSON file of options; options and the environment take precedence",
     TEXT(file, TD_OPTION_NOT_IN_FILE), AT_START},
    {"listen", "ADDR:PORT", "127.0.0.1:8080", "address to serve on; port 0 takes any free one",
     ADDRESS(listen, "127.0.0.1:8080"), AT_START},
    {"s3-listen", "ADDR:PORT", "", "address for clients of S3, path style; empty: none",
     ADDRESS(s3_listen, "127.0.0.1:8081"), AT_START},
    {"grpc-listen", "ADDR:PORT", "", "address for clients of gRPC, over HTTP/2; empty: none",
     ADDRESS(grpc_listen, "127.0.0.1:8083"), AT_START},
    {"tls-cert", "FILE", "", "certificate in PEM, with its chain: the ports speak HTTPS alone",
     TEXT(tls_cert, TD_OPTION_EVERYWHERE), AT_START},
    {"tls-key", "FILE", "", "private key of the certificate, in PEM", TEXT(tls_key, TD_OPTION_EVERYWHERE), AT_START},
    {"tls-client-ca", "FILE", "", "authorities in PEM; clients must have a certificate of one of them",
     TEXT(tls_client_ca, TD_OPTION_EVERYWHERE), AT_START},
    {"plain-listen", "ADDR:PORT", "", "with TLS, a port without it for this machine's probes and scrapers",
     ADDRESS(plain_listen, "127.0.0.1:8082"), AT_START},
    {"require-tls", "on|off", "off", "do not start on an address that others reach, unless with TLS",
     SWITCH(require_tls), AT_START},
    {"tokens", "FILE", "", "ask for tokens of this file; empty: everybody sees every model",
     TEXT(tokens, TD_OPTION_EVERYWHERE), AT_START},
    {"require-auth", "on|off", "off", "do not start without --tokens on an address that others reach",
     SWITCH(require_auth), AT_START},
    {"metrics-open", "on|off", "off", "/metrics and /openapi.json need no token, from other machines either",
     SWITCH(metrics_open), LIVE},
    {"cors-origin", "ORIGIN,ORIGIN", "", "pages of these other origins may read answers; * = of all; repeatable",
     ROW(TD_OPTION_LIST, 0, 0, cors_origins, TD_OPTION_EVERYWHERE, NULL, NULL), AT_START},
    {"max-connections", "N", "1024", "open connections; more are answered 503", COUNT(max_connections, 1, 60000),
     AT_START},
    {"max-connections-per-address", "N", "256", "connections from one client address; more are answered 429",
     COUNT(max_connections_per_address, 1, 60000), LIVE},
    {"max-waiters", "N", "1000", "requests that wait for a change; more are answered 503", COUNT(max_waiters, 0, 60000),
     AT_START},
    {"workers", "N", "auto", "threads that share the connections for short answers; 0 = none",
     COUNT_OR_AUTO(workers, 0, 1024), AT_START},
    {"max-header-bytes", "SIZE", "8K", "bytes of target and header fields together; more are answered 431",
     SIZE(max_header_bytes, 512, 32768), AT_START},
    {"max-body-bytes", "SIZE", "8M", "bytes of a POST request's body, also unpacked; more: 413",
     SIZE(max_body_bytes, 1024, 256 * MIB), AT_START},
    {"header-timeout", "TIME", "10s", "time for a request's header to arrive",
     TIME(header_timeout_ns, NS / 10, 3600 * NS), LIVE},
    {"body-timeout", "TIME", "30s", "time for a request's body to arrive, unless it is an upload",
     TIME(body_timeout_ns, NS / 10, 3600 * NS), LIVE},
    {"idle-timeout", "TIME", "60s", "time between two requests on a connection", TIME(idle_timeout_ns, NS, 3600 * NS),
     LIVE},
    {"send-timeout", "TIME", "60s", "time for which an answer or an upload may stand still",
     TIME(send_timeout_ns, NS, 3600 * NS), LIVE},
    {"min-rate", "SIZE", "1K", "bytes per second, over 30 s; slower answers and uploads are cut; 0 = never",
     SIZE(min_rate, 0, 1024 * MIB), LIVE},
    {"drain-delay", "TIME", "0s", "time after SIGTERM with /readyz at 503 before connections are refused",
     TIME(drain_delay_ns, 0, 3600 * NS), LIVE},
    {"drain-timeout", "TIME", "25s", "time after that for running answers to end",
     TIME(drain_timeout_ns, 0, 86400 * NS), LIVE},
    {"rescan-interval", "TIME", "10s", "time between scans of DIR; 0 = only on SIGHUP and when a change is seen",
     TIME(rescan_interval_ns, 0, 86400 * NS), LIVE},
    {"watch", "on|off", "on", "scan when something changes, and publish at once what is renamed into place",
     SWITCH(watch), AT_START},
    {"settle", "TIME", "2s", "time for which a file must stay unchanged before it is published",
     TIME(settle_ns, 0, 3600 * NS), LIVE},
    {"rescan-from", "WHO", "local", "who may ask for a scan (POST /rescan): local, any or none",
     WORD(rescan_from, rescan_words), LIVE},
    {"require-models", "N", "0", "/readyz is 503 while fewer models are published", COUNT(require_models, 0, 100000000),
     LIVE},
    {"leases", "on|off", "on", "pin files while they are sent, if the host allows it", SWITCH(leases), AT_START},
    {"files", "mutable|immutable", "mutable", "immutable: files are only ever replaced by rename, never written to",
     WORD(files, files_words), AT_START},
    {"sendfile", "on|remote|off", "on", "send from the page cache by reference; remote: not to clients on this machine",
     WORD(sendfile, sendfile_words), AT_START},
    {"max-files", "N", "1000000", "files to list; the rest is left out and reported", COUNT(max_files, 1, 100000000),
     LIVE},
    {"max-maps", "N", "16384", "files to keep mapped at once", COUNT(max_maps, 16, 60000), AT_START},
    {"max-memory", "SIZE", "4G", "memory for what is known of all files; a file beyond it is refused",
     SIZE(max_memory, MIB, TIB), AT_START},
    {"decode-memory", "SIZE", "256M", "memory for tensors that are stored compressed or in chunks",
     SIZE(decode_memory, TD_DECODE_MEMORY_BYTES, TIB), AT_START},
    {"state-dir", "DIR", "", "directory that keeps digests of files, so that nothing is hashed twice",
     TEXT(state_dir, TD_OPTION_EVERYWHERE), AT_START},
    {"patch-max-bytes", "SIZE", "16G", "disk for patches between versions; without --state-dir at most 1G of it",
     SIZE(patch_max_bytes, 32 * MIB, TIB), AT_START},
    {"upstream", "URL,URL", "", "fetch models that DIR lacks from this tensord or Hub while they are read",
     TEXT(upstream, TD_OPTION_EVERYWHERE), AT_START},
    {"upstream-token-file", "FILE", "", "token for --upstream, one line; tokens of clients are never passed on",
     TEXT(upstream_token_file, TD_OPTION_EVERYWHERE), AT_START},
    {"upstream-ca", "FILE", "", "authorities in PEM for --upstream; empty: those of the system",
     TEXT(upstream_ca, TD_OPTION_EVERYWHERE), AT_START},
    {"version-prefix", "TEXT", "", "one more prefix of names of versions, which a number follows; repeatable",
     ROW(TD_OPTION_LIST, 0, 0, version_prefixes, TD_OPTION_EVERYWHERE, NULL, NULL), AT_START},
    {"cache-max-bytes", "SIZE", "0", "disk for fetched models; the least recently read are evicted; 0 = no limit",
     SIZE(cache_max_bytes, 0, UINT64_MAX), AT_START},
    {"publish", "WHO", "off", "who may publish models and datasets to DIR: off, local or any",
     WORD(publish, publish_words), AT_START},
    {"publish-max-bytes", "SIZE", "0", "disk for published blobs and open uploads; more are answered 507; 0 = no limit",
     SIZE(publish_max_bytes, 0, UINT64_MAX), AT_START},
    {"upload-expires", "TIME", "86400s", "time after which a blob is removed that no commit names",
     TIME(upload_expires_ns, NS, 31536000 * NS), AT_START},
    {"keep-commits", "TIME", "3600s", "time for which a commit stays that no branch or tag names",
     TIME(keep_commits_ns, 0, 31536000 * NS), AT_START},
    {"keep-removed", "TIME", "0s", "time for which a removed model stays readable after its last read; 0 = none",
     TIME(keep_removed_ns, 0, 86400 * NS), AT_START},
    {"keep-removed-models", "N", "4", "models that --keep-removed keeps at once; the one removed first goes",
     COUNT(keep_removed_models, 1, 64), AT_START},
    {"hash-threads", "N", "1", "threads that hash files for entity tags when the machine is idle; 0 = none",
     COUNT(hash_threads, 0, 64), AT_START},
    {"index-threads", "N", "2", "threads that find the rows of new files of datasets", COUNT(index_threads, 1, 16),
     AT_START},
    {"sandbox", "HOW", "best-effort", "parse files in processes without rights: required, best-effort or off",
     WORD(sandbox, sandbox_words), AT_START},
    {"parse-timeout", "TIME", "30s", "time for parsing a file; one that needs more is refused",
     TIME(parse_timeout_ns, NS / 10, 3600 * NS), AT_START},
    {"parse-memory", "SIZE", "1G", "memory of a process that parses; half of it for one file's description",
     SIZE(parse_memory, 128 * MIB, TIB), AT_START},
    {"access-log", "FILE|-|off", "-", "one line per request; - is standard output",
     TEXT(access_log, TD_OPTION_EVERYWHERE), AT_START},
    {"log-format", "text|json", "text", "of both logs; json: each line is an object", WORD(log_format, format_words),
     AT_START},
    {"log-level", "LEVEL", "info", "error, warn, info or debug, on standard error", WORD(log_level, level_words), LIVE},
};

enum { OPTION_COUNT = sizeof options / sizeof *options };
_Static_assert((int)OPTION_COUNT <= (int)TD_OPTIONS_MAX, "TD_OPTIONS_MAX is too small");

const struct td_option *td_option_at(size_t i)
{
    return i < OPTION_COUNT ? &options[i] : NULL;
}

const struct td_option *td_option_find(struct td_text name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (td_text_equals(name, options[i].name))
            return &options[i];
    return NULL;
}

static const void *member(const struct td_config *config, const struct td_option *option)
{
    return (const char *)config + option->offset;
}

static void set_member(struct td_config *config, const struct td_option *option, const void *value, size_t size)
{
    memcpy((char *)config + option->offset, value, size);
}

static const char *text_of(const struct td_config *config, const struct td_option *option)
{
    return *(const char *const *)member(config, option);
}

static uint64_t number_of(const struct td_config *config, const struct td_option *option)
{
    return *(const uint64_t *)member(config, option);
}

/* Returns the option's static copy of the word, or NULL when the option does not accept the word. */
static const char *find_word(const struct td_option *option, const char *value)
{
    for (const char *const *word = option->words; *word != NULL; word++)
        if (strcmp(*word, value) == 0)
            return *word;
    return NULL;
}

/* Returns the text to keep for the value, or NULL when the option does not take it. An address that has no default may
 * be empty. */
static const char *read_text(const struct td_option *option, const char *value)
{
    if (option->kind == TD_OPTION_WORD)
        return find_word(option, value);
    bool is_none = value[0] == '\0' && option->fallback[0] == '\0';
    bool is_free = option->kind == TD_OPTION_TEXT || option->kind == TD_OPTION_LIST;
    return is_free || is_none || td_listen_address_is_valid(value) ? value : NULL;
}

/* Reads a count, a size or a time. Returns false when the option does not take the value. */
static bool read_number(const struct td_option *option, const char *value, uint64_t *out)
{
    if (option->kind == TD_OPTION_COUNT_OR_AUTO && strcmp(value, "auto") == 0) {
        *out = TD_CONFIG_AUTO;
        return true;
    }
    struct td_text text = td_text_of(value);
    bool is_read = option->kind == TD_OPTION_TIME   ? td_duration_read(text, option->max, out)
                   : option->kind == TD_OPTION_SIZE ? td_size_read(text, option->max, out)
                                                    : td_number_read(text, option->max, out);
    return is_read && *out >= option->min;
}

/* Reads the value into the option's member. Returns false when the option does not take it. */
static bool read_value(struct td_config *config, const struct td_option *option, const char *value)
{
    uint64_t number = 0;
    const char *text = NULL;
    bool on = strcmp(value, "on") == 0;
    switch (option->kind) {
    case TD_OPTION_TEXT:
    case TD_OPTION_LIST:
    case TD_OPTION_WORD:
    case TD_OPTION_ADDRESS:
        text = read_text(option, value);
        if (text != NULL)
            set_member(config, option, &text, sizeof text);
        return text != NULL;
    case TD_OPTION_SWITCH:
        set_member(config, option, &on, sizeof on);
        return on || strcmp(value, "off") == 0;
    case TD_OPTION_COUNT:
    case TD_OPTION_COUNT_OR_AUTO:
    case TD_OPTION_SIZE:
    case TD_OPTION_TIME:
        if (!read_number(option, value, &number))
            return false;
        set_member(config, option, &number, sizeof number);
        return true;
    }
    return false;
}

/* Appends words as "a, b or c". */
static void write_words(const char *const *words, struct td_buffer *out)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        const char *before = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        td_buffer_puts(out, before);
        td_buffer_puts(out, words[i]);
    }
}

void td_option_write_wanted(const struct td_option *option, bool in_file, struct td_buffer *out)
{
    char min[TD_QUANTITY_BYTES];
    char max[TD_QUANTITY_BYTES];
    switch (option->kind) {
    case TD_OPTION_TEXT:
    case TD_OPTION_LIST:
        td_buffer_puts(out, "a string");
        if (strchr(option->value, '|') != NULL)
            td_buffer_printf(out, " (%s)", option->value);
        return;
    case TD_OPTION_WORD:
        write_words(option->words, out);
        return;
    case TD_OPTION_ADDRESS:
        td_buffer_printf(out, "ADDRESS:PORT, such as %s, with a port from 0 to 65535", option->example);
        return;
    case TD_OPTION_SWITCH:
        td_buffer_puts(out, in_file ? "true or false" : "on or off");
        return;
    case TD_OPTION_COUNT:
    case TD_OPTION_COUNT_OR_AUTO:
        td_buffer_printf(out, "%sa whole number from %" PRIu64 " to %" PRIu64,
                         option->kind == TD_OPTION_COUNT_OR_AUTO ? "auto or " : "", option->min, option->max);
        return;
    case TD_OPTION_SIZE:
        td_size_write(option->min, min);
        td_size_write(option->max, max);
        td_buffer_printf(out, "bytes, or a size such as 512K, 64M or 4G, from %s to %s", min, max);
        return;
    case TD_OPTION_TIME:
        td_duration_write(option->min, min);
        td_duration_write(option->max, max);
        td_buffer_printf(out, "seconds, or a time such as 500ms, 5s or 2m, from %s to %s", min, max);
        return;
    }
}

static void set_source(struct td_config *config, const struct td_option *option, enum td_config_source source)
{
    config->sources[option - options] = (uint8_t)source;
}

enum td_config_source td_option_source(const struct td_config *config, const struct td_option *option)
{
    return (enum td_config_source)config->sources[option - options];
}

/* Returns the list with one more text at its end, or NULL for want of memory. */
static const char *join(struct td_config *config, const char *list, const char *more)
{
    size_t size = strlen(list) + 1 + strlen(more) + 1;
    char *joined = td_arena_alloc(&config->strings, size);
    if (joined != NULL)
        (void)snprintf(joined, size, "%s,%s", list, more);
    return joined;
}

bool td_option_set(struct td_config *config, const struct td_option *option, enum td_config_source source,
                   const char *shown, const char *value, struct td_error *err)
{
    bool is_repeated = option->kind == TD_OPTION_LIST && source == TD_CONFIG_ARGUMENT &&
                       td_option_source(config, option) == TD_CONFIG_ARGUMENT;
    if (is_repeated && (value = join(config, text_of(config, option), value)) == NULL)
        return td_error_no_memory(err);
    if (read_value(config, option, value)) {
        set_source(config, option, source);
        return true;
    }
    struct td_buffer wanted;
    td_buffer_init(&wanted);
    td_option_write_wanted(option, source == TD_CONFIG_FILE, &wanted);
    struct td_text text = td_buffer_text(&wanted);
    (void)td_error_set(err, TD_INVALID_ARGUMENT, "%s takes %.*s, not \"%.*s\"", shown, (int)text.len, text.p,
                       TD_SHOW(td_text_of(value), 200));
    td_buffer_fini(&wanted);
    return false;
}

/* Appends seconds with as many digits after the point as they need. */
static void write_seconds(uint64_t ns, struct td_buffer *out)
{
    char fraction[16];
    td_buffer_u64(out, ns / NS);
    size_t len = (size_t)snprintf(fraction, sizeof fraction, ".%09" PRIu64, ns % NS);
    while (fraction[len - 1] == '0')
        len--;
    if (len > 1)
        td_buffer_append(out, fraction, len);
}

bool td_option_write_json(const struct td_config *config, const struct td_option *option, struct td_buffer *out)
{
    switch (option->kind) {
    case TD_OPTION_TEXT:
    case TD_OPTION_LIST:
    case TD_OPTION_WORD:
    case TD_OPTION_ADDRESS: {
        const char *text = text_of(config, option);
        if (!td_utf8_valid(text, strlen(text)))
            return false;
        td_json_write_cstring(out, text);
        return true;
    }
    case TD_OPTION_SWITCH:
        td_buffer_puts(out, *(const bool *)member(config, option) ? "true" : "false");
        return true;
    case TD_OPTION_COUNT_OR_AUTO:
        if (number_of(config, option) == TD_CONFIG_AUTO) {
            td_buffer_puts(out, "\"auto\"");
            return true;
        }
        /* fall through */
    case TD_OPTION_COUNT:
    case TD_OPTION_SIZE:
        td_buffer_u64(out, number_of(config, option));
        return true;
    case TD_OPTION_TIME:
        write_seconds(number_of(config, option), out);
        return true;
    }
    return false;
}

bool td_option_is_same(const struct td_config *a, const struct td_config *b, const struct td_option *option)
{
    switch (option->kind) {
    case TD_OPTION_TEXT:
    case TD_OPTION_LIST:
    case TD_OPTION_WORD:
    case TD_OPTION_ADDRESS:
        return strcmp(text_of(a, option), text_of(b, option)) == 0;
    case TD_OPTION_SWITCH:
        return *(const bool *)member(a, option) == *(const bool *)member(b, option);
    case TD_OPTION_COUNT:
    case TD_OPTION_COUNT_OR_AUTO:
    case TD_OPTION_SIZE:
    case TD_OPTION_TIME:
        return number_of(a, option) == number_of(b, option);
    }
    return false;
}

void td_option_copy(struct td_config *to, const struct td_config *from, const struct td_option *option)
{
    size_t size = option->kind == TD_OPTION_WORD     ? sizeof(const char *)
                  : option->kind == TD_OPTION_SWITCH ? sizeof(bool)
                                                     : sizeof(uint64_t);
    set_member(to, option, member(from, option), size);
    set_source(to, option, td_option_source(from, option));
}
