/* The settings of `tensord serve`, and the table of its options, which alone knows their names, kinds, bounds and
 * defaults. Command line, environment and configuration file set an option by td_option_set. */
#ifndef TD_SERVER_CONFIG_CONFIG_OPTIONS_H
#define TD_SERVER_CONFIG_CONFIG_OPTIONS_H

#include "core/arena.h"
#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a count that may be "auto". */
#define TD_CONFIG_AUTO UINT64_MAX

/* The most options that there may be. */
enum { TD_OPTIONS_MAX = 64 };

/* Where a value comes from. Later ones take precedence. */
enum td_config_source { TD_CONFIG_DEFAULT, TD_CONFIG_FILE, TD_CONFIG_ENVIRONMENT, TD_CONFIG_ARGUMENT };

/* The form that --print-config prints: none without it, JSON, or a table with the sources. */
enum td_config_print { TD_CONFIG_PRINT_NOTHING, TD_CONFIG_PRINT_JSON, TD_CONFIG_PRINT_SOURCES };

/* Durations are in nanoseconds, sizes in bytes. */
struct td_config {
    const char *directory;          /* to serve */
    const char *file;               /* the configuration file; empty: none */
    const char *listen;             /* ADDRESS:PORT, [ADDRESS]:PORT or :PORT */
    const char *s3_listen;          /* the same, for S3 clients; empty: no such port */
    const char *grpc_listen;        /* the same, for gRPC over HTTP/2; empty: no such port */
    const char *tls_cert, *tls_key; /* files; empty: no TLS */
    const char *tls_client_ca;      /* a file; empty: clients need no certificate */
    const char *plain_listen;       /* as listen, without TLS, on a loopback address; empty: no such port */
    bool require_tls;
    const char *access_log; /* a file, "-" or "off" */
    const char *log_format; /* "text" or "json" */
    const char *log_level;  /* "error", "warn", "info" or "debug" */
    uint64_t workers;       /* TD_CONFIG_AUTO: as many as suit the machine */
    uint64_t max_connections;
    uint64_t max_connections_per_address;
    uint64_t max_waiters;
    uint64_t max_header_bytes;
    uint64_t max_body_bytes;
    uint64_t max_files;
    uint64_t max_maps;
    uint64_t max_memory;
    uint64_t decode_memory;
    uint64_t patch_max_bytes;        /* of patches on the disk */
    const char *state_dir;           /* where digests are stored; empty: nowhere */
    const char *upstream;            /* base URLs, separated by commas; empty: no model is fetched */
    const char *upstream_token_file; /* empty: no token */
    const char *upstream_ca;         /* a file; empty: the system's authorities */
    const char *version_prefixes;    /* of names of versions, separated by commas; empty: only the known ones */
    uint64_t cache_max_bytes;        /* of fetched models; 0: no bound */
    const char *publish;             /* "off", "local" or "any" */
    uint64_t publish_max_bytes;      /* of all published blobs and open uploads; 0: no bound */
    uint64_t upload_expires_ns;
    uint64_t keep_commits_ns;
    uint64_t keep_removed_ns;
    uint64_t keep_removed_models;
    uint64_t hash_threads;
    uint64_t index_threads;
    const char *sandbox; /* "required", "best-effort" or "off" */
    uint64_t parse_timeout_ns;
    uint64_t parse_memory;
    uint64_t require_models;
    uint64_t min_rate; /* of an answer, bytes per second over 30 s; 0: no limit */
    uint64_t header_timeout_ns;
    uint64_t body_timeout_ns;
    uint64_t idle_timeout_ns;
    uint64_t send_timeout_ns;
    uint64_t drain_delay_ns;
    uint64_t drain_timeout_ns;
    uint64_t rescan_interval_ns;
    uint64_t settle_ns;
    bool watch;
    const char *tokens; /* the tokens file; empty: everybody may ask for everything */
    bool require_auth;
    bool metrics_open;
    const char *cors_origins; /* whose pages may read answers, with commas between them, or "*"; empty: none */
    const char *rescan_from;  /* "local", "any" or "none" */
    bool leases;
    const char *files;    /* "mutable" or "immutable" */
    const char *sendfile; /* "on", "remote" or "off" */
    enum td_config_print print;
    uint8_t sources[TD_OPTIONS_MAX]; /* enum td_config_source of each option, in the order of the table */
    struct td_arena strings;         /* those of the configuration file */
};

enum td_option_kind {
    TD_OPTION_TEXT,
    TD_OPTION_LIST,    /* texts with commas between them; on the command line it may be repeated, which adds to it */
    TD_OPTION_WORD,    /* one of `words` */
    TD_OPTION_ADDRESS, /* of a port to listen on */
    TD_OPTION_COUNT,
    TD_OPTION_COUNT_OR_AUTO,
    TD_OPTION_SIZE, /* in bytes; both are written as core/quantity.h says */
    TD_OPTION_TIME,
    TD_OPTION_SWITCH,
};

/* Where an option may be set. Only options that may be set everywhere, and --config, have an environment variable. */
enum td_option_place {
    TD_OPTION_EVERYWHERE,
    TD_OPTION_NOT_IN_FILE, /* on the command line and in the environment */
    TD_OPTION_FILE_ONLY,   /* a key of the configuration file; on the command line it has no name */
};

struct td_option {
    const char *name;                    /* without dashes; also the key in a file */
    const char *value, *fallback, *help; /* for --help: the form of the value, the default, and the meaning */
    enum td_option_kind kind;
    uint64_t min, max; /* of a count; of a size, in bytes; of a time, in ns */
    size_t offset;     /* of the member of td_config */
    enum td_option_place place;
    const char *const *words; /* of TD_OPTION_WORD, NULL ends them */
    const char *example;      /* of TD_OPTION_ADDRESS */
    bool is_live;             /* may change while the server runs; never of a text, a list or an address */
};

/* Returns option number i of the table, or NULL when the table has no more than i. */
const struct td_option *td_option_at(size_t i);

/* Returns the option with this name, in any place, or NULL. */
const struct td_option *td_option_find(struct td_text name);

/* Sets the option's member, and remembers the source. `shown` names the option in messages ("--listen",
 * "TENSORD_LISTEN"). A text, a list or an address is borrowed from `value`; a list that is repeated on the command line
 * is in the arena config->strings. Errors: TD_INVALID_ARGUMENT for a value that the
 * option does not accept; the message says what is valid. */
bool td_option_set(struct td_config *config, const struct td_option *option, enum td_config_source source,
                   const char *shown, const char *value, struct td_error *err);

/* Appends a description of the valid values, for messages: "a whole number from 1 to 64". in_file: as a value of
 * JSON. */
void td_option_write_wanted(const struct td_option *option, bool in_file, struct td_buffer *out);

/* Returns where the option's value comes from. */
enum td_config_source td_option_source(const struct td_config *config, const struct td_option *option);

/* Appends the option's value as JSON that a configuration file may hold. Returns false, with nothing appended, for text
 * that is not UTF-8. */
bool td_option_write_json(const struct td_config *config, const struct td_option *option, struct td_buffer *out);

/* Returns whether the option has the same value in both. */
bool td_option_is_same(const struct td_config *a, const struct td_config *b, const struct td_option *option);

/* Copies the value and source of an option that is_live. */
void td_option_copy(struct td_config *to, const struct td_config *from, const struct td_option *option);

#endif
