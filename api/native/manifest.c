#include "api/native/manifest.h"

#include "catalog/partial_checkpoint.h"
#include "core/array.h"
#include "core/buffer.h"
#include "core/glob.h"
#include "core/json.h"
#include "http/page_token.h"
#include "http/uri.h"

#include <stdlib.h>
#include <string.h>

/* Text rendered at a time; a piece ends with the tensor that crosses this. Up to so much text is kept until it is sent;
 * more is measured first and rendered again. */
enum { PIECE_BYTES = 32 * 1024, KEPT_BYTES = 256 * 1024 };

/* Missing files that a manifest names: the names of a group can claim 99,999. */
enum { MISSING_FILES_MAX = 1000 };

/* A piece: where its text begins and which tensor it begins with. */
struct piece {
    uint64_t off;
    size_t first;   /* index in the checkpoint; filtered-out tensors are passed over again */
    size_t emitted; /* tensors shown before it */
};

struct td_manifest_index {
    _Atomic int refs;
    char tag[TD_TAG_BYTES]; /* the checkpoint's */
    bool is_default;        /* hrefs differ when it is not */
    char *head;             /* up to and with "tensors":[ */
    size_t head_len;
    char *tail; /* ],"next_page_token":...} */
    size_t tail_len;
    struct piece *pieces;
    size_t piece_count, piece_capacity;
    uint64_t tensors_bytes; /* of all pieces */
    size_t emitted, matched;
    size_t last_emitted; /* index in the checkpoint */
    bool more;           /* further tensors match */
};

struct view {
    struct td_blob blob;
    struct td_manifest_index *layout;
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    char *match; /* copy of the glob */
    size_t match_len;
    const struct td_dtype *dtype;
    struct td_buffer kept;  /* the text of all pieces, or nothing */
    struct td_buffer piece; /* the piece rendered last */
    size_t piece_index;     /* SIZE_MAX: none */
};

/* ---- text ---------------------------------------------------------------------------------------------- */

/* Clients remove the segments "." and ".." from a path. */
static bool has_dot_segment(const char *name)
{
    while (name[0] != '\0') {
        size_t len = strcspn(name, "/");
        if ((len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
            return true;
        name += len + (name[len] == '/' ? 1 : 0);
    }
    return false;
}

/* Such a name becomes one segment, without a plain dot. */
static void write_dotted_name(struct td_buffer *out, const struct td_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->name_len; i++) {
        if (tensor->name[i] == '.')
            td_buffer_puts(out, "%2E");
        else
            td_uri_encode(out, td_text_n(tensor->name + i, 1), false);
    }
}

/* Whether the checkpoint is the one without ?checkpoint=, among the incomplete ones or among the others. */
static bool is_default(const struct td_model *model, const struct td_checkpoint *checkpoint)
{
    return checkpoint == (checkpoint->lacks != NULL ? model->partials : model->checkpoints);
}

void td_manifest_write_href(struct td_buffer *out, const struct td_model *model, const struct td_checkpoint *checkpoint,
                            const struct td_tensor *tensor)
{
    td_buffer_puts(out, "/models/");
    td_uri_encode(out, td_text_of(model->id), true);
    td_buffer_puts(out, "/tensors/");
    if (has_dot_segment(tensor->name))
        write_dotted_name(out, tensor);
    else
        td_uri_encode(out, td_tensor_name(tensor), true);
    if (checkpoint->lacks != NULL)
        td_buffer_puts(out, "?partial=1");
    if (!is_default(model, checkpoint)) {
        td_buffer_puts(out, checkpoint->lacks != NULL ? "&checkpoint=" : "?checkpoint=");
        td_uri_encode(out, td_text_of(checkpoint->id), false);
    }
}

static void write_numbers(struct td_buffer *out, const uint64_t *numbers, uint32_t count)
{
    td_buffer_putc(out, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_buffer_u64(out, numbers[i]);
    }
    td_buffer_putc(out, ']');
}

void td_manifest_write_shape(struct td_buffer *out, const struct td_tensor *tensor)
{
    write_numbers(out, tensor->shape, tensor->rank);
}

void td_manifest_write_strides(struct td_buffer *out, const struct td_tensor *tensor)
{
    write_numbers(out, tensor->strides, tensor->rank);
}

/* Where the boxes of a tensor lie that is not in one place. */
static void write_pieces(struct td_buffer *out, const struct td_model *model, const struct td_checkpoint *checkpoint,
                         const struct td_tensor *tensor)
{
    td_buffer_puts(out, ",\"pieces\":[");
    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        const struct td_piece *piece = &tensor->pieces[i];
        td_buffer_puts(out, i > 0 ? ",{\"file\":" : "{\"file\":");
        td_json_write_cstring(out, td_model_relative(model, checkpoint->parts[piece->part]));
        td_buffer_puts(out, ",\"offset\":");
        td_buffer_u64(out, piece->offset);
        td_buffer_puts(out, ",\"start\":");
        write_numbers(out, piece->starts, tensor->rank);
        td_buffer_puts(out, ",\"shape\":");
        write_numbers(out, piece->sizes, tensor->rank);
        td_buffer_putc(out, '}');
    }
    td_buffer_putc(out, ']');
}

/* How the bytes come, if it is not from their place as they are; what lies there otherwise has no offset, which clients
 * might read at. */
static void write_access(struct td_buffer *out, const struct td_tensor *tensor)
{
    enum td_access access = td_tensor_access(tensor);
    if (access == TD_ACCESS_NONE) {
        td_buffer_puts(out, ",\"addressable\":false,\"reason\":");
        td_json_write_cstring(out, tensor->reason);
        return;
    }
    const char *stored = td_tensor_stored(tensor);
    if (stored == NULL && tensor->piece_count == 0) {
        td_buffer_puts(out, ",\"offset\":");
        td_buffer_u64(out, tensor->offset);
    }
    if (access != TD_ACCESS_DIRECT)
        td_buffer_printf(out, ",\"access\":\"%s\"", td_access_name(access));
    if (stored != NULL) {
        td_buffer_puts(out, ",\"stored\":");
        td_json_write_cstring(out, stored);
    }
}

static void write_tensor(struct td_buffer *out, const struct td_model *model, const struct td_checkpoint *checkpoint,
                         struct td_tensor_ref ref)
{
    const struct td_tensor *tensor = ref.tensor;
    td_buffer_puts(out, "{\"name\":");
    td_json_write_string(out, td_tensor_name(tensor));
    td_buffer_puts(out, ",\"dtype\":\"");
    td_buffer_puts(out, tensor->dtype->name);
    td_buffer_puts(out, "\",\"shape\":");
    td_manifest_write_shape(out, tensor);
    td_buffer_puts(out, ",\"nbytes\":");
    td_buffer_u64(out, tensor->nbytes);
    td_buffer_puts(out, ",\"file\":");
    td_json_write_cstring(out, td_model_relative(model, checkpoint->parts[ref.part]));
    if (tensor->piece_count > 0)
        write_pieces(out, model, checkpoint, tensor);
    write_access(out, tensor);
    if (tensor->strides != NULL) {
        td_buffer_puts(out, ",\"strides\":");
        td_manifest_write_strides(out, tensor);
    }
    if (tensor->alias_of != NULL) {
        td_buffer_puts(out, ",\"alias_of\":");
        td_json_write_cstring(out, tensor->alias_of);
    }
    td_buffer_puts(out, ",\"href\":\"");
    td_manifest_write_href(out, model, checkpoint, tensor); /* percent-encoded: nothing to escape */
    td_buffer_puts(out, "\"}");
}

static bool is_filtered(const struct view *view)
{
    return view->match != NULL || view->dtype != NULL;
}

static bool is_shown(const struct view *view, const struct td_tensor *tensor)
{
    if (view->dtype != NULL && tensor->dtype != view->dtype)
        return false;
    return view->match == NULL || td_glob_match(td_text_n(view->match, view->match_len), td_tensor_name(tensor));
}

/* Renders from tensor *at (the emitted-th shown) until the piece is full or `limit` tensors are shown. */
static void render_piece(const struct view *view, size_t *at, size_t *emitted, size_t limit, size_t *last,
                         struct td_buffer *out)
{
    while (*at < view->checkpoint->tensor_count && *emitted < limit && out->len < PIECE_BYTES && !out->failed) {
        struct td_tensor_ref ref = td_checkpoint_tensor(view->checkpoint, *at);
        if (is_shown(view, ref.tensor)) {
            if (*emitted > 0)
                td_buffer_putc(out, ',');
            write_tensor(out, view->model, view->checkpoint, ref);
            *last = *at;
            (*emitted)++;
        }
        (*at)++;
    }
}

static void write_missing_file(void *context, const char *file)
{
    struct td_buffer *out = context;
    if (out->failed)
        return;
    if (out->data[out->len - 1] != '[')
        td_buffer_putc(out, ',');
    td_json_write_cstring(out, file);
}

/* Says what an incomplete checkpoint lacks. A group's names do not say which tensors its missing files have. */
static void write_incomplete(const struct td_checkpoint *checkpoint, struct td_buffer *out)
{
    td_buffer_puts(out, ",\"incomplete\":{\"reason\":\"");
    td_partial_write_reason(checkpoint, out);
    td_buffer_putc(out, '"');
    if (checkpoint->lacks->index != NULL)
        td_buffer_printf(out, ",\"missing_tensor_count\":%zu", checkpoint->lacks->tensor_count);
    td_buffer_printf(out, ",\"missing_file_count\":%zu,\"missing_files\":[", checkpoint->lacks->file_count);
    td_partial_each_missing(checkpoint, MISSING_FILES_MAX, write_missing_file, out);
    td_buffer_puts(out, "]}");
}

static void write_head(const struct view *view, const struct td_manifest_index *layout, struct td_buffer *out)
{
    const struct td_checkpoint *checkpoint = view->checkpoint;
    td_buffer_puts(out, "{\"model\":");
    td_json_write_cstring(out, view->model->id);
    td_buffer_puts(out, ",\"checkpoint\":");
    td_json_write_cstring(out, checkpoint->id);
    td_buffer_printf(out, ",\"format\":\"%s\",\"etag\":\"%s\",\"tensor_count\":", checkpoint->format, checkpoint->tag);
    td_buffer_u64(out, checkpoint->tensor_count);
    td_buffer_puts(out, ",\"total_bytes\":");
    td_buffer_u64(out, checkpoint->total_bytes);
    if (is_filtered(view)) {
        td_buffer_puts(out, ",\"matched_count\":");
        td_buffer_u64(out, layout->matched);
    }
    if (checkpoint->lacks != NULL)
        write_incomplete(checkpoint, out);
    td_buffer_puts(out, ",\"metadata\":{");
    for (size_t i = 0; i < checkpoint->metadata_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_json_write_cstring(out, checkpoint->metadata[i].key);
        td_buffer_putc(out, ':');
        td_buffer_puts(out, checkpoint->metadata[i].value);
    }
    td_buffer_puts(out, "},\"tensors\":[");
}

static void write_tail(const struct view *view, const struct td_manifest_index *layout, struct td_text listing,
                       struct td_buffer *out)
{
    td_buffer_puts(out, "],\"next_page_token\":\"");
    if (layout->more) {
        const struct td_tensor *last = td_checkpoint_tensor(view->checkpoint, layout->last_emitted).tensor;
        td_page_token_write(out, listing, (struct td_text){.p = last->name, .len = last->name_len});
    }
    td_buffer_puts(out, "\"}\n");
}

/* ---- layouts ------------------------------------------------------------------------------------------- */

static void layout_unref(struct td_manifest_index *layout)
{
    if (layout == NULL || atomic_fetch_sub(&layout->refs, 1) != 1)
        return;
    free(layout->head);
    free(layout->tail);
    free(layout->pieces);
    free(layout);
}

static bool layout_add_piece(struct td_manifest_index *layout, struct piece piece)
{
    if (!TD_ARRAY_GROW(layout->pieces, layout->piece_count, layout->piece_capacity, NULL))
        return false;
    layout->pieces[layout->piece_count++] = piece;
    return true;
}

/* Whether another tensor from `at` on is shown, and how many match in all (when anything filters). */
static void layout_count(const struct view *view, struct td_manifest_index *layout, size_t at)
{
    const struct td_checkpoint *checkpoint = view->checkpoint;
    if (!is_filtered(view)) {
        layout->matched = checkpoint->tensor_count;
        layout->more = at < checkpoint->tensor_count;
        return;
    }
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        if (!is_shown(view, td_checkpoint_tensor(checkpoint, i).tensor))
            continue;
        layout->matched++;
        layout->more = layout->more || i >= at;
    }
}

static struct td_manifest_index *layout_create(struct view *view, const struct td_manifest_query *query)
{
    struct td_manifest_index *layout = calloc(1, sizeof *layout);
    if (layout == NULL)
        return NULL;
    atomic_init(&layout->refs, 1);
    memcpy(layout->tag, view->checkpoint->tag, sizeof layout->tag);
    layout->is_default = is_default(view->model, view->checkpoint);
    size_t at = query->page_first ? 0 : td_checkpoint_after(view->checkpoint, query->after);
    size_t limit = query->page_size == 0 ? SIZE_MAX : query->page_size;
    struct td_buffer text;
    td_buffer_init(&text);
    bool ok = true;
    while (ok && at < view->checkpoint->tensor_count && layout->emitted < limit) {
        struct piece piece = {.off = layout->tensors_bytes, .first = at, .emitted = layout->emitted};
        td_buffer_clear(&text);
        render_piece(view, &at, &layout->emitted, limit, &layout->last_emitted, &text);
        layout->tensors_bytes += text.len;
        if (layout->tensors_bytes <= KEPT_BYTES)
            td_buffer_append(&view->kept, text.data, text.len);
        ok = !text.failed && (text.len == 0 || layout_add_piece(layout, piece));
    }
    if (view->kept.failed || view->kept.len < layout->tensors_bytes)
        td_buffer_fini(&view->kept);
    layout_count(view, layout, at);
    td_buffer_clear(&text);
    write_head(view, layout, &text);
    layout->head = td_buffer_release(&text, &layout->head_len);
    write_tail(view, layout, query->listing, &text);
    layout->tail = td_buffer_release(&text, &layout->tail_len);
    if (!ok || layout->head == NULL || layout->tail == NULL) {
        layout_unref(layout);
        return NULL;
    }
    return layout;
}

bool td_manifest_cache_init(struct td_manifest_cache *cache)
{
    memset(cache->slots, 0, sizeof cache->slots);
    return pthread_mutex_init(&cache->lock, NULL) == 0;
}

void td_manifest_cache_fini(struct td_manifest_cache *cache)
{
    for (size_t i = 0; i < TD_MANIFEST_CACHE_SLOTS; i++)
        layout_unref(cache->slots[i]);
    (void)pthread_mutex_destroy(&cache->lock);
}

static struct td_manifest_index *cache_get(struct td_manifest_cache *cache, const char *tag, bool is_default)
{
    struct td_manifest_index *found = NULL;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < TD_MANIFEST_CACHE_SLOTS && cache->slots[i] != NULL; i++) {
        if (strcmp(cache->slots[i]->tag, tag) != 0 || cache->slots[i]->is_default != is_default)
            continue;
        found = cache->slots[i];
        memmove(cache->slots + 1, cache->slots, i * sizeof *cache->slots);
        cache->slots[0] = found;
        atomic_fetch_add(&found->refs, 1);
        break;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void cache_put(struct td_manifest_cache *cache, struct td_manifest_index *layout)
{
    atomic_fetch_add(&layout->refs, 1);
    pthread_mutex_lock(&cache->lock);
    struct td_manifest_index *dropped = cache->slots[TD_MANIFEST_CACHE_SLOTS - 1];
    memmove(cache->slots + 1, cache->slots, (TD_MANIFEST_CACHE_SLOTS - 1) * sizeof *cache->slots);
    cache->slots[0] = layout;
    pthread_mutex_unlock(&cache->lock);
    layout_unref(dropped);
}

/* ---- the blob ------------------------------------------------------------------------------------------ */

static struct view *view_of(struct td_blob *blob)
{
    return (struct view *)(void *)blob;
}

static void view_destroy(struct td_blob *blob)
{
    struct view *view = view_of(blob);
    layout_unref(view->layout);
    td_snapshot_unref(view->snapshot);
    td_buffer_fini(&view->kept);
    td_buffer_fini(&view->piece);
    free(view->match);
    free(view);
}

/* The piece that holds byte `off` of the tensors' text. */
static size_t find_piece(const struct td_manifest_index *layout, uint64_t off)
{
    size_t low = 0;
    size_t high = layout->piece_count;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (layout->pieces[mid].off <= off)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static bool view_load_piece(struct view *view, size_t index)
{
    const struct td_manifest_index *layout = view->layout;
    if (view->piece_index == index)
        return true;
    size_t at = layout->pieces[index].first;
    size_t emitted = layout->pieces[index].emitted;
    size_t last;
    uint64_t end = index + 1 < layout->piece_count ? layout->pieces[index + 1].off : layout->tensors_bytes;
    view->piece_index = SIZE_MAX;
    td_buffer_clear(&view->piece);
    render_piece(view, &at, &emitted, layout->emitted, &last, &view->piece);
    if (view->piece.failed || view->piece.len != end - layout->pieces[index].off)
        return false;
    view->piece_index = index;
    return true;
}

/* Text of the tensors from byte `off` on: where it is, and how much of it. */
static bool view_at(struct view *view, uint64_t off, const char **from, uint64_t *left)
{
    const struct td_buffer *text = &view->kept;
    if (text->len == 0) {
        size_t index = find_piece(view->layout, off);
        if (!view_load_piece(view, index))
            return false;
        off -= view->layout->pieces[index].off;
        text = &view->piece;
    }
    *from = text->data + off;
    *left = text->len - off;
    return true;
}

static bool view_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct view *view = view_of(blob);
    const struct td_manifest_index *layout = view->layout;
    char *to = out;
    while (len > 0) {
        const char *from;
        uint64_t left;
        if (off < layout->head_len) {
            from = layout->head + off;
            left = layout->head_len - off;
        } else if (off - layout->head_len < layout->tensors_bytes) {
            if (!view_at(view, off - layout->head_len, &from, &left))
                return td_error_no_memory(err);
        } else {
            uint64_t within = off - layout->head_len - layout->tensors_bytes;
            from = layout->tail + within;
            left = layout->tail_len - within;
        }
        size_t n = left < len ? (size_t)left : len;
        memcpy(to, from, n);
        to += n;
        off += n;
        len -= n;
    }
    return true;
}

static const struct td_blob_class view_class = {.destroy = view_destroy, .read = view_read};

bool td_manifest_view_create(struct td_manifest_cache *cache, struct td_snapshot *snapshot,
                             const struct td_model *model, const struct td_checkpoint *checkpoint,
                             const struct td_manifest_query *query, struct td_blob **out, struct td_error *err)
{
    struct view *view = calloc(1, sizeof *view);
    if (view == NULL)
        return td_error_no_memory(err);
    view->blob.class = &view_class;
    atomic_init(&view->blob.refs, 1);
    view->snapshot = td_snapshot_ref(snapshot);
    view->model = model;
    view->checkpoint = checkpoint;
    view->dtype = query->dtype;
    view->piece_index = SIZE_MAX;
    td_buffer_init(&view->kept);
    td_buffer_init(&view->piece);
    if (query->match != NULL) {
        view->match_len = query->match->len;
        view->match = malloc(view->match_len + 1);
        if (view->match == NULL)
            goto fail;
        memcpy(view->match, query->match->p, view->match_len);
    }
    bool whole = !is_filtered(view) && query->page_size == 0 && query->page_first;
    if (whole && cache != NULL)
        view->layout = cache_get(cache, checkpoint->tag, is_default(model, checkpoint));
    if (view->layout == NULL) {
        view->layout = layout_create(view, query);
        if (view->layout == NULL)
            goto fail;
        if (whole && cache != NULL)
            cache_put(cache, view->layout);
    }
    view->blob.len_bytes = view->layout->head_len + view->layout->tensors_bytes + view->layout->tail_len;
    *out = &view->blob;
    return true;
fail:
    view_destroy(&view->blob);
    return td_error_no_memory(err);
}
