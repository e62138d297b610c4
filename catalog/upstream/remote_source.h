/* An upstream over HTTP: another tensord or a Hugging Face endpoint, by storage/fetch and catalog/remote. */
#ifndef TD_CATALOG_UPSTREAM_REMOTE_SOURCE_H
#define TD_CATALOG_UPSTREAM_REMOTE_SOURCE_H

#include "catalog/upstream/upstream_source.h"

struct td_remote_source_config {
    const char *urls;       /* base URLs, separated by commas, the preferred one first */
    const char *token_file; /* NULL or empty: no token. Read again for each model */
    const char *ca;         /* file of authorities in PEM; NULL or empty: those of the system */
    uint64_t list_retry_ns; /* how long to try to get a list of files */
    uint64_t file_retry_ns; /* how long to try to get a file, without any progress */
};

/* Creates a source; copies everything. Errors, all mistakes in the options: as td_fetch_client_create and
 * td_fetch_token_read; TD_INVALID_ARGUMENT for more than TD_FETCH_MAX_SERVERS URLs. */
bool td_remote_source_create(const struct td_remote_source_config *config, struct td_upstream_source *out,
                             struct td_error *err);

/* Frees a source of td_remote_source_create. Does nothing for a source that is all zeros. */
void td_remote_source_destroy(struct td_upstream_source *source);

#endif
