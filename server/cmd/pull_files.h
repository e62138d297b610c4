/* The files of a pull, as the server lists them: what is kept of an older list, which the pull has read before; what
 * stays beside them in the directory; and the report about them, for people and as JSON. Lists are sorted by path, as
 * listings are. */
#ifndef TD_SERVER_CMD_PULL_FILES_H
#define TD_SERVER_CMD_PULL_FILES_H

#include "core/error.h"
#include "core/message/document.h"
#include "server/cmd/pull_directory.h"
#include "storage/fetch/fetch_file.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One file of the pull. */
struct td_pull_file {
    const char *path; /* in the model, by which the server is asked; borrowed from the listing */
    char *name;       /* in the directory; owned; NULL: as path */
    const struct td_fetch_expected *expected; /* borrowed from the listing */
    bool is_done;
    struct td_fetch_outcome outcome;
    uint64_t older_bytes; /* fetched of older versions, before the list was read again */
};

struct td_pull_files {
    struct td_pull_file *files;
    size_t count;
};

/* Returns the name of the file in the directory. */
const char *td_pull_file_name(const struct td_pull_file *file);

/* Returns whether a server has sent another version of a file than the list names, or than it sent before, and the
 * digest of the file has not shown that it is the listed one. */
bool td_pull_change_is_seen(struct td_pull_files files);

/* Returns whether the lists name different files, or different contents. */
bool td_pull_change_is_any(struct td_pull_files before, struct td_pull_files after);

/* Keeps the complete files that have the digest of the new list: marks them as done in the new list. Counts the bytes
 * that were fetched of contents that the new list no longer has. Returns the total size of the files that it keeps. */
uint64_t td_pull_change_keep(struct td_pull_files before, struct td_pull_files after);

/* Removes, from below the root, files and parts of files that were fetched and that the new list does not name, with
 * directories that become empty. Files that cannot be removed stay. No other pull may be at work there. */
void td_pull_change_remove(const struct td_root *root, struct td_pull_files before, struct td_pull_files after);

/* Writes a warning to `text` if the directory of the pull, without its subdirectories, has checkpoint files that do not
 * belong to the pull, since a program may load both models; also if the pull replaces files of another size. `files`
 * are the files of the pull, and `what` names them in the warning. Writes an empty text if there is nothing to warn
 * about, and for a pull with a staging directory. */
void td_pull_others_describe(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                             struct td_pull_files files, const char *what, char *text, size_t capacity);

/* ---- the report ---------------------------------------------------------------------------------------- */

struct td_pull_report {
    const char *model, *revision, *directory;
    const char *commit; /* empty: not known */
    struct td_pull_files list;
    double seconds;
    const struct td_error *failure; /* code TD_OK: none */
};

/* For td_copying_finish; report is a td_pull_report. Add an object, and print a line about a pull that has succeeded.
 */
void td_pull_report_add(struct td_document *json, const void *report);
void td_pull_report_line(const void *report);

#endif
