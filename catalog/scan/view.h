/* Views: the part of a snapshot that one caller may see, as a snapshot of its own. Everything that was made from the
 * entries, such as repositories and buckets, is built from the visible entries, so a view equals the snapshot of a
 * server that serves the visible files alone; no use of a view can show, count or time a hidden file.
 *
 * Visible are models whose ids the filter accepts, with their files, but not the files of a hidden model in a directory
 * below; datasets whose ids (as "datasets/ID") it accepts, with the files of their repositories; and other files if the
 * filter accepts the id of their repository, or accepts their path or directory as if it were an id. Another revision
 * of a model counts as the model.
 *
 * A view shares files and checkpoints with its snapshot, which a reference on the view keeps. A snapshot keeps the
 * views that were asked for last, until it ends. */
#ifndef TD_CATALOG_SCAN_VIEW_H
#define TD_CATALOG_SCAN_VIEW_H

#include "catalog/model/snapshot.h"
#include "core/cancel.h"

/* A snapshot keeps so many views, of so many bytes. The bytes bound the memory, the number bounds the search. */
enum { TD_VIEWS_MAX = 1024, TD_VIEWS_BYTES = 64 * 1024 * 1024, TD_VIEW_KEY_BYTES = TD_TAG_BYTES };

struct td_view_filter {
    const char *key; /* filters with equal keys accept the same ids; shorter than TD_VIEW_KEY_BYTES */
    bool (*may_see)(const void *context, struct td_text id); /* any thread */
    const void *context;
    const struct td_cancel *cancel; /* of the request that needs the view; NULL: none */
};

/* Returns the view of the snapshot with a reference, which td_snapshot_unref drops, or NULL. If several threads ask for
 * one view, one of them makes it, and the others wait; when its request is cancelled, one of the others makes it.
 * Errors: TD_RESOURCE_EXHAUSTED; TD_UNAVAILABLE, within about 0.1 s and one call of may_see, once filter->cancel is
 * asked; as td_may_wait, when the view is not there and the thread may not wait. Any thread. */
struct td_snapshot *td_view_get(struct td_snapshot *snapshot, const struct td_view_filter *filter,
                                struct td_error *err);

#endif
