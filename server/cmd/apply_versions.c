#include "server/cmd/apply_versions.h"

#include "catalog/model/file_kind.h"
#include "catalog/model/hub_cache.h"
#include "server/cmd/shared/command_line.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The end of the name of the directory that has the files until all are there. */
#define STAGING_END ".tensord-apply"

/* A directory that was given, as a place below a root. */
struct td_apply_place {
    char real_path[PATH_MAX]; /* without symlinks */
    char above[PATH_MAX];     /* path of the root */
    struct td_hub_place in_cache;
    struct td_root *root; /* owned */
    struct td_delta_place place;
};

/* ---- directories --------------------------------------------------------------------------------------- */

/* Opens a directory that was given. Its symlinks may lead to directories beside it, since writers of versions link
 * unchanged files to the version before; those of a snapshot in a Hugging Face cache lead to the folder of the blobs.
 */
static bool open_given(const char *path, struct td_apply_place *given, struct td_error *err)
{
    if (!td_local_path_check(path, "apply", err))
        return false;
    if (realpath(path, given->real_path) == NULL)
        return td_error_sys(err, TD_IO, errno, "cannot open \"%.200s\"", path);
    const char *name = td_base_name(given->real_path);
    given->place = (struct td_delta_place){.shown = path, .name = name, .below = name};
    if (td_hub_cache_place(given->real_path, &given->in_cache)) {
        (void)snprintf(given->above, sizeof given->above, "%s", given->in_cache.folder);
        given->place.below = given->in_cache.below;
    } else {
        size_t len = (size_t)(name - given->real_path); /* with the slash */
        (void)snprintf(given->above, sizeof given->above, "%.*s", (int)len, given->real_path);
    }
    if (!td_root_create(given->above, &given->root, err))
        return false;
    given->place.root = given->root;
    return true;
}

static bool open_all(struct td_apply *apply, struct td_error *err)
{
    const struct td_apply_wanted *wanted = apply->wanted;
    apply->places = calloc(wanted->count + 1, sizeof *apply->places);
    if (apply->places == NULL) {
        (void)td_error_no_memory(err);
        return false;
    }
    for (size_t i = 0; i < wanted->count; i++)
        if (!open_given(wanted->directories[i], &apply->places[i], err))
            return false;
    return true;
}

/* Refuses a new directory inside a directory that is only read. */
static bool check_outside(const struct td_apply *apply, struct td_error *err)
{
    const char *out = apply->wanted->output;
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/')
        len--;
    while (len > 0 && out[len - 1] != '/')
        len--;
    char above[PATH_MAX];
    char real_path[PATH_MAX];
    (void)snprintf(above, sizeof above, "%.*s", len == 0 ? 1 : (int)len, len == 0 ? "." : out);
    if (realpath(above, real_path) == NULL)
        return true; /* a directory that is still to be made, or cannot be */
    for (size_t i = 0; i < apply->wanted->count; i++) {
        size_t n = strlen(apply->places[i].real_path);
        if (strncmp(real_path, apply->places[i].real_path, n) == 0 && (real_path[n] == '\0' || real_path[n] == '/'))
            return td_error_set(err, TD_INVALID_ARGUMENT, "\"%.200s\" would be inside \"%.200s\", which is only read",
                                out, apply->places[i].place.shown);
    }
    return true;
}

/* ---- the work ------------------------------------------------------------------------------------------ */

static void note_written(void *context, uint64_t bytes)
{
    struct td_apply *apply = context;
    atomic_fetch_add(&apply->copying->done_bytes, bytes);
}

static bool open_chain(struct td_apply *apply, struct td_error *err)
{
    size_t count = apply->wanted->count - 1;
    struct td_delta_place *places = calloc(apply->wanted->count, sizeof *places);
    if (places == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++)
        places[i] = apply->places[i + 1].place;
    bool ok = td_delta_chain_open(&apply->chain, &apply->places[0].place, apply->wanted->base_version, places, count,
                                  &apply->copying->cancel, err);
    free(places);
    return ok;
}

/* Says which files of the base are not in the new directory. */
static void note_left_out(struct td_apply *apply)
{
    char text[NAME_MAX + 200];
    size_t count = apply->output.left_out_count;
    if (count == 0)
        return;
    (void)snprintf(text, sizeof text,
                   "%zu file%s of the base (%s%s) left out: weights to which the deltas are not applied", count,
                   count > 1 ? "s" : "", apply->output.left_out, count > 1 ? ", ... are" : " is");
    td_copying_note(apply->copying, text);
}

/* Writes the new directory, and gives it its name. */
static bool write_directory(struct td_apply *apply, struct td_error *err)
{
    if (!td_pull_directory_open_alone(apply->wanted->output, STAGING_END, &apply->directory, err))
        return false;
    atomic_store(&apply->copying->total_bytes, apply->output.total_bytes);
    td_copying_show(apply->copying, "", apply->wanted->output);
    bool ok =
        td_delta_output_write(&apply->output, apply->directory.lock, td_pull_directory_kept(&apply->directory), err) &&
        td_copying_check(apply->copying, err) && td_pull_directory_publish(&apply->directory, err);
    td_copying_show_end(apply->copying);
    return ok;
}

bool td_apply_versions(struct td_apply *apply, struct td_error *err)
{
    apply->output = (struct td_delta_output){
        .chain = &apply->chain, .cancel = &apply->copying->cancel, .advance = note_written, .context = apply};
    if (!open_all(apply, err) || !check_outside(apply, err) || !open_chain(apply, err) ||
        !td_delta_output_list(&apply->output, err))
        return false;
    note_left_out(apply);
    bool ok = write_directory(apply, err);
    if (!ok && apply->directory.staging != NULL && apply->directory.root != NULL)
        td_pull_directory_discard(&apply->directory);
    return ok;
}

void td_apply_init(struct td_apply *apply, const struct td_apply_wanted *wanted, struct td_copying *copying)
{
    memset(apply, 0, sizeof *apply);
    apply->wanted = wanted;
    apply->copying = copying;
    apply->directory.lock = -1;
}

void td_apply_fini(struct td_apply *apply)
{
    td_pull_directory_close(&apply->directory);
    td_delta_output_fini(&apply->output);
    td_delta_chain_fini(&apply->chain);
    for (size_t i = 0; apply->places != NULL && i < apply->wanted->count; i++)
        td_root_unref(apply->places[i].root);
    free(apply->places);
}
