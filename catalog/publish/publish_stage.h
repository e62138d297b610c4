/* A folder in incoming/ in which one change of a repository is prepared: what it makes gets its place by renames. A
 * start of the server removes the folders that a killed process was filling. Threads: that which has opened the
 * repository. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_STAGE_H
#define TD_CATALOG_PUBLISH_PUBLISH_STAGE_H

#include "catalog/publish/publish_disk.h"
#include "core/text.h"

struct td_publish_stage {
    struct td_publish_repo *repo;
    int fd; /* -1: not open */
};

/* Makes the repository's folder, empty, and opens it. Call td_publish_stage_close in any case. Errors as
 * td_publish_fail. */
bool td_publish_stage_open(struct td_publish_stage *stage, struct td_publish_repo *repo, struct td_error *err);

/* Removes the folder with everything that is still in it. */
void td_publish_stage_close(struct td_publish_stage *stage);

/* Writes a file of this content into the folder, durably. Errors as td_publish_fail. */
bool td_publish_stage_write(const struct td_publish_stage *stage, const char *name, struct td_text content,
                            struct td_error *err);

/* Gives a file of the folder its place: moves it to `name` in the directory `at`, durably, and replaces a file there.
 * When that cannot be made durable, what was there before is there again. Returns false with errno, and with an error
 * when what was there cannot be kept. */
bool td_publish_stage_place(const struct td_publish_stage *stage, const char *file, int at, const char *name,
                            struct td_error *err);

#endif
