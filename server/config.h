/* Configuration of `tensord serve`. One table of options gives the parser, the names of the environment variables and
 * --help. A flag wins over the environment, and the environment over the default. */
#ifndef TD_SERVER_CONFIG_H
#define TD_SERVER_CONFIG_H

#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The value of a count that may be "auto". */
#define TD_CONFIG_AUTO UINT64_MAX

/* Durations are in nanoseconds, sizes in bytes. */
struct td_config {
    const char *directory;  /* to serve */
    const char *listen;     /* ADDRESS:PORT, [ADDRESS]:PORT or :PORT */
    const char *s3_listen;  /* the same, for S3 clients; empty: no such port */
    const char *access_log; /* a file, "-" or "off" */
    const char *log_format; /* text or json; not checked here */
    const char *log_level;  /* error, warn, info or debug; not checked here */
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
    const char *state_dir; /* where digests are stored; empty: nowhere */
    uint64_t hash_threads;
    uint64_t index_threads;
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
    const char *rescan_from; /* local, any or none; not checked here */
    bool leases;
    const char *files; /* "mutable" or "immutable" */
};

/* Fills *config from the defaults, the environment and the arguments after `serve`. Strings are borrowed from argv and
 * the environment. Errors (TD_INVALID_ARGUMENT): an unknown option, a missing value, a value out of range, no directory
 * or more than one; the message gives what is right. Call before any thread starts. */
bool td_config_parse(struct td_config *config, int argc, char **argv, struct td_error *err);

/* Returns the value of an option's environment variable, or NULL when the variable is missing or empty. `option` is the
 * name without dashes: "state-dir" for TENSORD_STATE_DIR. Call before any thread starts. */
const char *td_config_environment(const char *option);

/* Returns whether the argument is an option of serve, with or without a value behind "=": "--listen", "--listen=:80".
 */
bool td_config_has_option(const char *argument);

enum td_variable {
    TD_VARIABLE_KNOWN,      /* the variable of an option, or not meant for this program */
    TD_VARIABLE_MISSPELLED, /* begins with TENSORD_ and resembles an option's variable */
    TD_VARIABLE_UNKNOWN,    /* begins with TENSORD_ and resembles none */
};

enum { TD_VARIABLE_BYTES = 64 };

/* Finds environment variables ("NAME=value") that were meant for this program but have no effect. Variables with an
 * empty value are TD_VARIABLE_KNOWN, and so are those that Kubernetes and Docker set for a service that is called
 * tensord or tensord-something (TENSORD_PORT=tcp://10.0.0.1:80, TENSORD_SERVICE_HOST). With TD_VARIABLE_MISSPELLED,
 * `near` receives the name of the variable that was probably meant; else its content is undefined. */
enum td_variable td_config_judge_variable(const char *variable, char near[TD_VARIABLE_BYTES]);

/* Writes the options to `out`, one on a line, each with its meaning and default, for --help. */
void td_config_help(FILE *out);

#endif
