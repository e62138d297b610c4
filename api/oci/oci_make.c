/* Plan: documents are built from the files' digests and from the snapshot's facts about them. They are stored under a
 * key of everything they depend on: the form, the repository's id, the files that the view shows, the commit, and the
 * GGUF file.
 *
 * What is hard: a client asks for a manifest by its digest, and the server has no table of manifests. So it builds the
 * manifests of all targets and compares their digests, in this order: stored manifests; manifests of files with known
 * digests, because this process can have sent only such manifests; manifests of the rank revisions that the table of
 * virtual digests names; all others, for a client that resumes a pull after a restart or asks another server. Every
 * revision of a cache is a target, because its commit is a tag too. */
#include "api/oci/oci_make.h"

#include "api/oci/oci_artifact.h"
#include "api/oci/oci_image.h"
#include "api/oci/oci_ollama.h"
#include "api/oci/oci_rank.h"
#include "rank/rank_digest.h"

/* The functions that make the documents of each form. */
static bool (*const makers[TD_OCI_FORMS])(struct td_oci_call *oci, const struct td_oci_target *target,
                                          const struct td_repo_view *view, struct td_made_documents *made,
                                          struct td_error *err) = {
    [TD_OCI_ARTIFACT] = td_oci_artifact_make,
    [TD_OCI_FLAT] = td_oci_artifact_make,
    [TD_OCI_GGUF] = td_oci_ollama_make,
    [TD_OCI_IMAGE] = td_oci_image_make,
};

/* Sets oci->files_tag to the tag of the files of a view: of their numbers, since a commit of a cache says nothing of
 * the files that a token may not see. Once for the targets of one revision. */
static bool tag_files(struct td_oci_call *oci, const struct td_repo_view *view)
{
    if (oci->files_tag[0] != '\0' && oci->tagged_entry == view->first_entry)
        return true;
    struct td_digest *digest = td_digest_create();
    uint64_t numbers[512]; /* at a time */
    for (size_t i = 0; i < view->entry_count;) {
        size_t count = 0;
        for (; i < view->entry_count && count < sizeof numbers / sizeof *numbers; i++)
            numbers[count++] = view->snapshot->entries[view->first_entry + i].file->number;
        td_digest_add_content(digest, numbers, count * sizeof *numbers);
    }
    if (!td_digest_finish(digest, oci->files_tag)) /* which then is empty */
        return false;
    oci->tagged_entry = view->first_entry;
    return true;
}

/* Writes the key of a target's documents in the store. Returns NULL for want of memory. */
static const char *write_key(struct td_oci_call *oci, const struct td_oci_target *target,
                             const struct td_repo_view *view, struct td_buffer *key)
{
    if (!tag_files(oci, view))
        return NULL;
    td_buffer_printf(key, "%d %s %s %s %s", (int)target->form, oci->files_tag, view->commit, oci->repo->id,
                     target->gguf.entry == NULL ? "" : target->gguf.entry->path);
    return td_buffer_terminate(key);
}

/* Builds the documents with an arena of their own, which is freed afterwards, because one call may build the documents
 * of many targets. */
static bool make_apart(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                       struct td_made_documents *made, struct td_error *err)
{
    struct td_arena arena = oci->arena;
    struct td_reserved reserved = oci->reserved;
    td_arena_init(&oci->arena, 0);
    oci->reserved = (struct td_reserved){.budget = reserved.budget};
    bool ok = makers[target->form](oci, target, view, made, err);
    td_arena_fini(&oci->arena);
    td_reserved_release(&oci->reserved);
    oci->arena = arena;
    oci->reserved = reserved;
    return ok;
}

/* Builds documents and stores them, if the store has room. */
static bool make_new(struct td_oci_call *oci, const struct td_oci_target *target, const struct td_repo_view *view,
                     const char *key, struct td_made_documents **made, struct td_error *err)
{
    *made = td_made_documents_create(err);
    if (*made != NULL && view->kind != TD_REVISION_FILES) {
        (*made)->owner = td_virtual_owner(oci->repo->id);
        td_rank_digest_origin(view, &(*made)->origin);
    }
    if (*made != NULL && make_apart(oci, target, view, *made, err)) {
        (void)td_lru_put(&oci->call->api->documents, key, *made, td_made_documents_bytes(*made));
        return true;
    }
    td_made_documents_unref(*made);
    *made = NULL;
    return false;
}

/* Takes the documents of a target from the store. If the store does not have them, builds them if is_new, else sets
 * *made to NULL and succeeds. */
static bool take_documents(struct td_oci_call *oci, const struct td_oci_target *target, bool is_new,
                           struct td_made_documents **made, struct td_error *err)
{
    struct td_repo_view view;
    struct td_buffer text;
    *made = NULL;
    oci->lack = TD_OCI_LACKS_NOTHING;
    oci->retry_s = 0;
    if (!td_repo_view_open(oci->call->snapshot, oci->repo, target->revision, &view, err) ||
        !td_oci_target_fits(target, view.entry_count, err))
        return false;
    td_repo_view_note(&view, target->revision, oci->call->response);
    td_buffer_init(&text);
    const char *key = write_key(oci, target, &view, &text);
    *made = key == NULL ? NULL : td_lru_get(&oci->call->api->documents, key);
    bool ok = key != NULL || td_error_no_memory(err);
    if (ok && *made == NULL && is_new)
        ok = make_new(oci, target, &view, key, made, err);
    td_buffer_fini(&text);
    return ok;
}

bool td_oci_make(struct td_oci_call *oci, const struct td_oci_target *target, struct td_made_documents **made,
                 struct td_error *err)
{
    if (!take_documents(oci, target, true, made, err))
        return false;
    td_oci_rank_note(oci, *made); /* the client asks for what they name next */
    return true;
}

struct td_made_documents *td_oci_make_image(struct td_oci_call *oci, bool is_new)
{
    const struct td_oci_target image = {.tag = "", .form = TD_OCI_IMAGE, .revision = TD_TEXT("main")};
    struct td_made_documents *made;
    struct td_error none = TD_ERROR_INIT;
    const uint64_t until_ns = oci->until_ns;
    const enum td_oci_lack lack = oci->lack;
    const unsigned retry_s = oci->retry_s;
    oci->until_ns = 0;
    (void)take_documents(oci, &image, is_new, &made, &none);
    oci->until_ns = until_ns;
    oci->lack = lack;
    oci->retry_s = retry_s;
    return made;
}

/* ---- by digest ----------------------------------------------------------------------------------------- */

/* The targets that are searched for a digest. The search builds the documents of targets before kept_from, and takes
 * those of the others from the store alone. */
struct searched {
    struct td_oci_target_list targets;
    size_t kept_from;
};

/* A search for a document, and its result. */
struct wanted {
    bool is_manifest;
    struct td_text sha256;                   /* in hexadecimal */
    struct td_made_documents *made;          /* found: a reference; else NULL */
    const struct td_made_document *document; /* found: in `made` */
};

/* The reason why a search did not find a document that may exist. */
struct obstacle {
    enum td_oci_lack lack; /* this and retry_s: as in td_oci_call, of the target */
    unsigned retry_s;
    struct td_error err; /* TD_OK: no obstacle */
};

/* Records that a target's documents could not be built because digests or memory are short, or a file changed or could
 * not be read. The target may have the wanted document. An exception: a server that does not hash never sent an image,
 * so a client cannot want one. */
static void note_obstacle(const struct td_oci_call *oci, const struct td_oci_target *target, const struct td_error *err,
                          struct obstacle *obstacle)
{
    bool was_given_out = target->form != TD_OCI_IMAGE || oci->lack != TD_OCI_HASHES_NOTHING;
    bool may_pass = err->code == TD_RESOURCE_EXHAUSTED || err->code == TD_UNAVAILABLE || err->code == TD_IO;
    if (obstacle->err.code != TD_OK || !was_given_out || !may_pass)
        return;
    obstacle->lack = oci->lack;
    obstacle->retry_s = oci->retry_s;
    (void)td_error_copy(&obstacle->err, err);
}

/* Searches the documents of all targets. Sets *obstacle if it could not build all of them (see note_obstacle). */
static bool search_targets(struct td_oci_call *oci, const struct searched *list, struct wanted *wanted,
                           struct obstacle *obstacle)
{
    *obstacle = (struct obstacle){.err = TD_ERROR_INIT};
    for (size_t i = 0; i < list->targets.count; i++) {
        const struct td_oci_target *target = &list->targets.items[i];
        struct td_error err = TD_ERROR_INIT;
        if (td_cancel_is_asked(oci->call->request->cancel))
            return td_error_set(&obstacle->err, TD_RESOURCE_EXHAUSTED, "nobody waits for the answer any more");
        if (!take_documents(oci, target, i < list->kept_from, &wanted->made, &err)) {
            note_obstacle(oci, target, &err, obstacle);
            continue;
        }
        wanted->document =
            wanted->made == NULL ? NULL : td_made_documents_find(wanted->made, wanted->is_manifest, wanted->sha256);
        if (wanted->document != NULL) {
            td_oci_rank_note(oci, wanted->made);
            return true;
        }
        td_made_documents_unref(wanted->made);
        wanted->made = NULL;
    }
    return false;
}

/* Searches the documents of the rank revisions that may have the digest. */
static bool search_ranks(struct td_oci_call *oci, struct wanted *wanted, struct obstacle *obstacle)
{
    char commits[TD_OCI_RANK_ORIGINS][TD_COMMIT_BYTES];
    struct td_oci_target targets[TD_OCI_RANK_ORIGINS];
    size_t count;
    *obstacle = (struct obstacle){.err = TD_ERROR_INIT};
    if (!td_oci_rank_commits(oci, true, wanted->sha256, commits, &count, &obstacle->err))
        return false;
    const struct searched list = {.targets = {.items = targets, .count = count}, .kept_from = count};
    for (size_t i = 0; i < count; i++)
        targets[i] = (struct td_oci_target){.tag = "", .form = TD_OCI_ARTIFACT, .revision = td_text_of(commits[i])};
    return search_targets(oci, &list, wanted, obstacle);
}

/* Adds the targets of `main`, and the artifact of each other revision of a cache, by its commit. Refs name the same
 * revisions, and aliases the same targets. Errors as td_oci_targets. */
static bool add_tags(struct td_oci_call *oci, struct td_oci_target_list *list, struct td_error *err)
{
    struct td_oci_target_list all;
    if (!td_oci_targets(oci, &all, err))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < all.count; i++)
        ok = all.items[i].is_alias || !td_text_equals(all.items[i].revision, "main") ||
             td_oci_target_add(oci, list, &all.items[i]);
    for (size_t i = 1; ok && i <= oci->repo->other_count; i++) {
        const struct td_repo *revision = &oci->repo[i];
        struct td_oci_target other = {.tag = "", .form = TD_OCI_ARTIFACT, .revision = td_text_of(revision->revision)};
        if (td_repo_at(oci->repo, other.revision) != revision) /* a ref to another commit has this name */
            other.revision = td_text_of(revision->commit);
        ok = td_oci_target_add(oci, list, &other);
    }
    return ok || td_error_no_memory(err);
}

/* Adds the GGUF files, because their names are tags too. The search builds documents for the first TD_OCI_GGUF_TAGS of
 * them. */
static bool add_names(struct td_oci_call *oci, struct searched *list, struct td_error *err)
{
    const struct td_entry *projector = td_oci_gguf_projector(oci);
    struct td_oci_gguf_walk walk = {0};
    struct td_oci_gguf gguf;
    list->kept_from = list->targets.count + TD_OCI_GGUF_TAGS;
    while (td_oci_gguf_next(oci, &walk, &gguf)) {
        const struct td_oci_target target = td_oci_gguf_target(&gguf, projector);
        if (!gguf.name.is_sharded && !td_oci_target_add(oci, &list->targets, &target))
            return td_error_no_memory(err);
    }
    return true;
}

/* Lists all targets to search. Errors as td_oci_targets. */
static bool list_searched(struct td_oci_call *oci, struct searched *list, struct td_error *err)
{
    *list = (struct searched){.kept_from = 0};
    return add_tags(oci, &list->targets, err) && add_names(oci, list, err);
}

bool td_oci_no_document(const struct td_oci_call *oci, struct td_error *err)
{
    return td_error_set(err, TD_NOT_FOUND, "%.*s has nothing with the digest %.*s", TD_SHOW(oci->path.name, 120),
                        TD_SHOW(oci->path.reference, 160));
}

/* Searches the list and the rank revisions, in the order given at the top of this file. Sets *obstacle if it finds
 * nothing. */
static bool search_all(struct td_oci_call *oci, const struct searched *list, struct wanted *wanted,
                       struct obstacle *obstacle)
{
    const struct searched kept = {.targets = list->targets, .kept_from = 0}; /* costs next to nothing */
    struct obstacle of_ranks;
    uint64_t until_ns = oci->until_ns;
    oci->until_ns = 0;
    bool found = search_targets(oci, &kept, wanted, obstacle) || search_targets(oci, list, wanted, obstacle);
    oci->until_ns = until_ns;
    if (found || search_ranks(oci, wanted, &of_ranks))
        return true;
    if (obstacle->err.code != TD_OK && search_targets(oci, list, wanted, obstacle))
        return true;
    if (obstacle->err.code == TD_OK)
        *obstacle = of_ranks;
    return false;
}

bool td_oci_find_document(struct td_oci_call *oci, bool is_manifest, struct td_text sha256,
                          struct td_made_documents **made, const struct td_made_document **document,
                          struct td_error *err)
{
    struct wanted wanted = {.is_manifest = is_manifest, .sha256 = sha256};
    struct searched list;
    struct obstacle obstacle;
    *made = NULL;
    if (sha256.len == 0)
        return td_oci_no_document(oci, err);
    if (!list_searched(oci, &list, err))
        return false;
    if (search_all(oci, &list, &wanted, &obstacle)) {
        *made = wanted.made;
        *document = wanted.document;
        return true;
    }
    oci->lack = obstacle.lack;
    oci->retry_s = obstacle.retry_s;
    return obstacle.err.code != TD_OK ? td_error_copy(err, &obstacle.err) : td_oci_no_document(oci, err);
}
