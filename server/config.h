/* Configuration of `tensord serve`: one table of options, from which the parser, the environment names and --help
 * are made. Flags win over the environment, the environment over the defaults. */
#ifndef TD_SERVER_CONFIG_H
#define TD_SERVER_CONFIG_H

#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct td_config {
    const char *directory;
    const char *listen;     /* ADDRESS:PORT, [ADDRESS]:PORT or :PORT */
    const char *s3_listen;  /* likewise, for clients of S3; empty: none */
    const char *access_log; /* file, "-" or "off" */
    const char *log_level;
    uint64_t max_connections;
    uint64_t max_connections_per_address;
    uint64_t max_header_bytes;
    uint64_t max_body_bytes;
    uint64_t max_files;
    uint64_t max_maps;
    uint64_t max_memory;
    uint64_t decode_memory;
    const char *state_dir; /* empty: none */
    uint64_t hash_threads;
    uint64_t require_models;
    uint64_t min_rate; /* bytes per second over 30 s; 0 = off */
    uint64_t header_timeout_ns;
    uint64_t body_timeout_ns;
    uint64_t idle_timeout_ns;
    uint64_t send_timeout_ns;
    uint64_t drain_delay_ns;
    uint64_t drain_timeout_ns;
    uint64_t rescan_interval_ns;
    uint64_t settle_ns;
    const char *rescan_from; /* local, any or none */
    bool leases;
};

/* Fills *config from defaults, the environment and the arguments after `serve`. Strings are borrowed from argv and
 * the environment. Unknown options, missing values and values out of range are errors that say what is right. */
bool td_config_parse(struct td_config *config, int argc, char **argv, struct td_error *err);

/* What the environment says of an option, whose name is without the dashes ("state-dir"); NULL: nothing, or it is
 * empty. Not to be called when threads run. */
const char *td_config_environment(const char *option);

enum td_variable {
    TD_VARIABLE_KNOWN,      /* an option, or none of this program's concern */
    TD_VARIABLE_MISSPELLED, /* an option's name is near */
    TD_VARIABLE_UNKNOWN,    /* it begins with TENSORD_, but no option's name is near */
};

enum { TD_VARIABLE_BYTES = 64 };

/* Judges a variable of the environment ("NAME=value"): whether somebody who set it expects an effect that it has not.
 * Empty ones are none, and what Kubernetes and Docker set for a service that is called tensord, or tensord-something,
 * is known (TENSORD_PORT=tcp://10.0.0.1:80, TENSORD_SERVICE_HOST). `near` gets the name that was meant, where one is
 * near. */
enum td_variable td_config_judge_variable(const char *variable, char near[TD_VARIABLE_BYTES]);

/* Writes the table for --help. */
void td_config_help(FILE *out);

#endif
