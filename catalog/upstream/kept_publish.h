/* Publishes a complete model: moves it to its place in the served directory. */
#ifndef TD_CATALOG_UPSTREAM_KEPT_PUBLISH_H
#define TD_CATALOG_UPSTREAM_KEPT_PUBLISH_H

#include "catalog/upstream/kept_disk.h"

/* Selects the files that belong to a model, by their paths below its directory. */
struct td_kept_files {
    bool (*belongs)(void *context, const char *path);
    void *context;
};

/* Removes files that do not belong to the incomplete model, writes its record, and moves the folder of its files into
 * place by one rename. Sets in *note the members of a published model. Removes the rest of the incomplete model. After
 * an error the model is incomplete as before. Waits for the disk, and up to 40 ms more. Errors: TD_CONFLICT when the
 * place is taken; TD_IO; TD_FAILED_PRECONDITION. */
bool td_kept_publish(const struct td_kept_disk *disk, const char *key, const struct td_kept_files *belonging,
                     struct td_kept_note *note, struct td_error *err);

#endif
