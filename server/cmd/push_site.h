/* One server of a push, which gets what it lacks of the files, and then the commit. */
#ifndef TD_SERVER_CMD_PUSH_SITE_H
#define TD_SERVER_CMD_PUSH_SITE_H

#include "catalog/remote/remote_push.h"
#include "core/cancel.h"
#include "server/cmd/push_files.h"
#include "server/cmd/shared/copying.h"
#include "server/cmd/shared/crew.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The commit and the files, the same for all servers of a push; borrowed. */
struct td_push_order {
    struct td_remote_commit commit; /* `server` and `is_dry_run` are not used */
    const struct td_push_files *files;
    struct td_copying *copying;
};

/* A file on its way to one server. */
struct td_push_sending {
    bool is_lacking;             /* the server lacks it, by its latest reply */
    _Atomic bool is_sent;        /* the server has said since that it is complete there */
    _Atomic uint64_t sent_bytes; /* of its content, also those that were sent again */
};

struct td_push_site {
    struct td_crew_member member; /* first; with the site's error */
    bool is_done;                 /* the commit is made */
    bool has_sent;                /* a part of a file was to be sent */
    struct td_remote_commit_reply reply;
    struct td_push_sending *sendings; /* one for each file; owned */
    const struct td_push_order *order;
    size_t server; /* of the client of `copying` */

    /* private */
    struct td_fetch_session *session;
    struct td_cancel cancel;
    _Atomic bool has_failed; /* a thread of this site has, so that the others stop */
    struct td_push_part *parts;
    size_t part_count, part_capacity;
    _Atomic size_t next;  /* the next part of the workers */
    uint64_t least_bytes; /* that it has lacked so far */
    unsigned stuck;       /* replies in a row since then */
};

/* Prepares. The site must not move while it is used. td_push_site_fini frees it in any case. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_push_site_init(struct td_push_site *site, const struct td_push_order *order, size_t server,
                       struct td_error *err);
void td_push_site_fini(struct td_push_site *site);

/* Asks for the commit, or with is_dry_run only what it would need. Sets site->reply, and site->is_done when the commit
 * is made. Errors: as td_remote_commit_ask; TD_FAILED_PRECONDITION for a reply that does not fit the files, and when
 * the server lacks the same bytes again and again. */
bool td_push_site_ask(struct td_push_site *site, bool is_dry_run, struct td_error *err);

/* Sends what the latest reply lacks, and asks again, until nothing is missing. Errors: as td_push_site_ask and
 * td_remote_blob_send; TD_FAILED_PRECONDITION when a file has changed. */
bool td_push_site_send(struct td_push_site *site, bool is_dry_run, struct td_error *err);

#endif
