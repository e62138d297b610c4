/* Gives a model whose files are all here its place in the served directory. */
#ifndef TD_CATALOG_UPSTREAM_KEPT_PUBLISH_H
#define TD_CATALOG_UPSTREAM_KEPT_PUBLISH_H

#include "catalog/upstream/kept_disk.h"

/* Tells the files that belong to a model, by their paths below it. */
struct td_kept_files {
    bool (*belongs)(void *context, const char *path);
    void *context;
};

/* Removes files that do not belong to the incomplete model, writes its record, and gives the folder of its files its
 * place by one rename. Adds to *note what a published model's has. What is left of the incomplete model goes. After an
 * error the model is incomplete as before. Waits for the disk, and up to 40 ms. Errors: TD_CONFLICT when something else
 * has the place; TD_IO; TD_FAILED_PRECONDITION. */
bool td_kept_publish(const struct td_kept_disk *disk, const char *key, const struct td_kept_files *belonging,
                     struct td_kept_note *note, struct td_error *err);

#endif
