#include "rank/file_answer.h"

#include "core/clock.h"
#include "core/text.h"
#include "rank/tensor_source.h"

/* Returns the media type for a file's extension; never a type that a browser would run as a page of this server.
 * Static. */
static const char *content_type_of(const char *path)
{
    static const struct {
        const char *extension, *type;
    } types[] = {
        {".json", "application/json"},          {".jsonl", "text/plain; charset=utf-8"},
        {".txt", "text/plain; charset=utf-8"},  {".md", "text/plain; charset=utf-8"},
        {".yaml", "text/plain; charset=utf-8"}, {".yml", "text/plain; charset=utf-8"},
        {".py", "text/plain; charset=utf-8"},   {".jinja", "text/plain; charset=utf-8"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (td_has_extension_any_case(path, types[i].extension))
            return types[i].type;
    return "application/octet-stream";
}

bool td_lfs_pointer_refuse(const struct td_entry *entry, struct td_error *err)
{
    return td_error_set(err, TD_CONFLICT,
                        "\"%s\" is a Git LFS pointer, not the file itself: on the server, run \"git lfs pull\" in its "
                        "directory",
                        entry->path);
}

bool td_note_read(struct td_catalog *catalog, const struct td_snapshot *snapshot, const char *path,
                  struct td_response *response, struct td_error *err)
{
    td_response_note_subject(response, td_text_of(path));
    return !response->asks_body || td_removed_note_read(td_catalog_removed(catalog), snapshot, td_text_of(path), err);
}

bool td_file_answer(struct td_catalog *catalog, const struct td_snapshot *snapshot, const struct td_entry *entry,
                    struct td_response *response, struct td_error *err)
{
    const struct td_file_id *id = &entry->file->source.id;
    struct td_blob *blob = NULL;
    if (entry->file->is_lfs_pointer)
        return td_lfs_pointer_refuse(entry, err);
    bool ok = td_note_read(catalog, snapshot, entry->path, response, err) &&
              td_file_source_map(td_catalog_maps(catalog), snapshot->root, &entry->file->source, &blob, err) &&
              td_body_append(&response->body, blob, 0, id->size_bytes, err);
    td_blob_unref(blob);
    if (!ok)
        return false;
    td_response_describe_bytes(response, content_type_of(entry->path));
    td_response_set_modified(response, id->mtime_ns);
    td_response_set_etag(response, td_file_tag(entry->file));
    td_response_set_former_etag(response, entry->file->identity_tag);
    return true;
}

bool td_rank_file_answer(const struct td_rank_store *store, const struct td_rank_set *set, uint64_t rank,
                         struct td_rank_file *file, const char *tag, struct td_response *response, struct td_error *err)
{
    char former[TD_TAG_BYTES];
    if (!td_note_read(store->catalog, set->snapshot, set->model->id, response, err) ||
        !td_rank_store_former_tag(set, rank, former, err) ||
        !td_rank_file_append(store->catalog, set->snapshot, set->checkpoint, file, response->cancel, &response->body,
                             err))
        return false;
    td_response_describe_bytes(response, "application/octet-stream");
    td_response_set_etag(response, tag);
    td_response_set_former_etag(response, former);
    return true;
}
