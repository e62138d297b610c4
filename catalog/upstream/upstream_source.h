/* The upstream as an interface for the threads that fetch. remote_source.h implements it over HTTP, and tests have
 * their own. Several threads may call the functions at once; all but due_ns block. */
#ifndef TD_CATALOG_UPSTREAM_UPSTREAM_SOURCE_H
#define TD_CATALOG_UPSTREAM_UPSTREAM_SOURCE_H

#include "catalog/remote/remote_model.h"
#include "catalog/remote/remote_versions.h"
#include "core/cancel.h"
#include "storage/fetch/fetch_file.h"
#include "storage/fetch/fetch_stream.h"

/* The field by which servers that pull from each other find loops: the ids of the servers that a request has passed,
 * separated by commas. */
#define TD_UPSTREAM_VIA "Tensord-Via"

enum { TD_UPSTREAM_VIA_BYTES = 256, TD_UPSTREAM_VIA_MOST = 8 }; /* of the field with a NUL; servers in it */

/* A model that is asked for, and the request that asks. All borrowed. */
struct td_upstream_wish {
    const char *id;  /* of a kept model or version (catalog/upstream/kept_table.h) */
    const char *via; /* the value of TD_UPSTREAM_VIA to send */
    size_t alone;    /* number of the server to ask alone, from 1; 0: all are asked */
    const struct td_cancel *cancel;
};

struct td_upstream_source {
    size_t server_count;
    /* Lists the files of the version, else of the model's revision `main`. Initialises *model, which the caller frees
     * in any case. Errors as td_remote_model_list. */
    bool (*list)(void *context, const struct td_upstream_wish *wish, struct td_remote_model *model,
                 struct td_error *err);
    /* Fetches one file of a listing into a folder. Errors as td_fetch_file. */
    bool (*fetch)(void *context, const struct td_upstream_wish *wish, const struct td_remote_model *model,
                  const struct td_remote_file *file, const struct td_root *folder, const struct td_fetch_events *events,
                  struct td_fetch_outcome *outcome, struct td_error *err);
    /* Gets the list of a model's versions, as td_remote_versions_get. TD_NOT_FOUND also when the upstream is no
     * tensord. NULL: the source has no versions. */
    bool (*versions)(void *context, const struct td_upstream_wish *wish, const struct td_remote_versions_query *query,
                     struct td_remote_versions *versions, bool *has_changed, struct td_error *err);
    /* Reads a stream of one of the servers, counted from 0, as td_fetch_stream_read. NULL: no server has streams. */
    bool (*follow)(void *context, size_t server, const struct td_fetch_stream *stream, unsigned *status,
                   bool *is_stream, struct td_error *err);
    /* Returns the time (td_clock_ns) before which no server is to be asked, since all have asked clients to wait. A
     * time in the past, or 0, means that a server may be asked now. NULL: servers may always be asked. */
    uint64_t (*due_ns)(void *context);
    void *context;
};

#endif
