/* The plan. A stack of frames, one for each container on the path to the present value, takes the place of recursion:
 * step_frame() takes the next part of the topmost container, adds its key to the path, and visits it. A visited value
 * is a tensor (torch_tensor), a value to show as metadata, or a container, which gets a frame. A module's parts come in
 * the order of nn.Module.state_dict().
 *
 * What is hard: values are shared, so a graph of a few hundred bytes can unfold to 2^40 paths. A container on the
 * present path is marked and not entered again, and everything that costs time or memory is charged against budgets in
 * proportion to the pickle's length (charge, check_memory). */
#include "parser/torch/torch_walk.h"

#include "core/array.h"
#include "core/buffer.h"
#include "parser/format/manifest.h"
#include "parser/format/names.h"
#include "parser/torch/torch_metadata.h"
#include "parser/torch/torch_rebuild.h"
#include "parser/torch/torch_tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 1000,       /* containers within one another */
    PARTS_DEPTH_MAX = 8,    /* tensors made of tensors made of ...: only here does the walk recurse */
    PATH_MAX_BYTES = 16383, /* of a name: a shared key could repeat at every depth */
    /* Budgets, so that sharing cannot unfold without end: a part in proportion to the pickle's bytes in the file, and a
     * fixed part for small files whose values are shared many times. */
    VISITS_PER_BYTE = 8, /* the shortest reference to a shared value is two bytes long */
    VISITS_FREE = 10000,
    VISITS_FREE_ALONE = 100,   /* for a root that is read alone: a file may hold very many such roots */
    TEXT_BYTES_PER_VISIT = 64, /* a long text costs as much time as several values */
    MEMORY_PER_BYTE = 64,      /* of the manifest */
    MEMORY_FREE_BYTES = 4 << 20,
};

struct td_torch_frame {
    td_pickle_ref ref;
    struct td_pickle_map map;
    uint32_t next;   /* the item to visit next */
    size_t path_len; /* of the container's own path */
    uint8_t stage;   /* of a module: parameters, buffers, modules */
    bool is_module;
    bool is_map;
    bool is_root; /* the names of its parts begin the path, without a dot */
};

/* Takes `values` visits from the budget. Every value that is looked at counts, also when sharing leads to it again. */
static bool charge_values(struct td_torch_walker *w, td_pickle_ref at, uint64_t values)
{
    if (values > w->visits_left)
        return td_torch_refuse(w->err, w->pickle, at, "values are shared so often that they unfold without end");
    w->visits_left -= values;
    return true;
}

static bool check_memory(const struct td_torch_walker *w, td_pickle_ref at)
{
    return w->manifest->arena.used_bytes <= w->memory_max ||
           td_torch_refuse(w->err, w->pickle, at, "values are shared so often that their names unfold without end");
}

/* ---- the manifest -------------------------------------------------------------------------------------- */

static bool push_metadata(struct td_torch_walker *w, const struct td_buffer *json)
{
    struct td_manifest *manifest = w->manifest;
    if (manifest->metadata_count == TD_METADATA_MAX) {
        w->omitted++;
        return true;
    }
    struct td_metadata *metadata = td_arena_grow(&manifest->arena, manifest->metadata, manifest->metadata_count,
                                                 &w->metadata_capacity, sizeof *metadata);
    if (metadata == NULL || json->failed)
        return td_error_no_memory(w->err);
    manifest->metadata = metadata;
    const char *key = td_torch_copy_path(w);
    const char *value = td_arena_strndup(&manifest->arena, td_buffer_text(json));
    if (key == NULL || value == NULL)
        return td_error_no_memory(w->err);
    metadata[manifest->metadata_count++] = (struct td_metadata){.key = key, .value = value};
    return true;
}

/* Adds the value as metadata under the present path. Sets *done to false when it cannot be shown. */
static bool add_metadata(struct td_torch_walker *w, td_pickle_ref ref, bool *done)
{
    struct td_buffer json;
    uint32_t items = td_torch_is_array(w->pickle, ref) ? td_pickle_count(w->pickle, ref) : 0;
    if (!charge_values(w, ref, items) ||
        !charge_values(w, ref, td_torch_metadata_bytes(w->pickle, ref) / TEXT_BYTES_PER_VISIT))
        return false;
    td_buffer_init(&json);
    *done = td_torch_write_metadata(w->pickle, ref, &json);
    bool ok = !json.failed || td_error_no_memory(w->err);
    ok = ok && charge_values(w, ref, json.len / TEXT_BYTES_PER_VISIT) && (!*done || push_metadata(w, &json));
    td_buffer_fini(&json);
    return ok;
}

/* ---- the walk ------------------------------------------------------------------------------------------ */

static bool push_frame(struct td_torch_walker *w, const struct td_torch_frame *frame)
{
    if (w->depth == DEPTH_MAX)
        return td_torch_refuse(w->err, w->pickle, frame->ref, "containers are nested more than 1,000 deep");
    if (!TD_ARRAY_GROW(w->frames, w->depth, w->frame_capacity, w->err))
        return false;
    w->frames[w->depth++] = *frame;
    return true;
}

/* Returns whether the object is an nn.Module: its state has _parameters and _modules. */
static bool is_module(const struct td_pickle *p, td_pickle_ref ref)
{
    struct td_pickle_map map;
    td_pickle_ref state = td_pickle_state(p, ref);
    return td_pickle_kind(p, state) == TD_PICKLE_DICT &&
           td_pickle_map(p, td_pickle_get(p, state, "_parameters"), &map) &&
           td_pickle_map(p, td_pickle_get(p, state, "_modules"), &map);
}

/* Makes the frame of a container. Returns false when the value is no container. */
static bool open_frame(const struct td_torch_walker *w, td_pickle_ref ref, struct td_torch_frame *frame)
{
    struct td_pickle *p = w->pickle;
    *frame = (struct td_torch_frame){.ref = ref, .path_len = w->path.len};
    switch (td_pickle_kind(p, ref)) {
    case TD_PICKLE_LIST:
    case TD_PICKLE_TUPLE:
    case TD_PICKLE_SET:
    case TD_PICKLE_FROZENSET:
        return true;
    case TD_PICKLE_DICT:
        frame->is_map = td_pickle_map(p, ref, &frame->map);
        return true;
    case TD_PICKLE_OBJECT:
        break;
    default:
        return false;
    }
    frame->is_module = is_module(p, ref);
    if (frame->is_module)
        return true;
    frame->is_map = td_pickle_map(p, ref, &frame->map);
    if (!frame->is_map && td_pickle_count(p, ref) == 0 && td_pickle_state(p, ref) == TD_PICKLE_NIL)
        frame->ref = td_pickle_args(p, ref); /* an unknown object: its arguments may hold tensors */
    return true;
}

/* Refuses a path that is too long for a name; `at` is the key that made it so. */
static bool check_path(struct td_torch_walker *w, td_pickle_ref at)
{
    return w->path.len <= PATH_MAX_BYTES ||
           td_torch_refuse(w->err, w->pickle, at, "a tensor's name is longer than 16,383 bytes");
}

/* Appends ".key" for the next part: the key where it can be shown, otherwise the index. */
static bool path_add(struct td_torch_walker *w, td_pickle_ref key, uint32_t index)
{
    const struct td_torch_frame *frame = &w->frames[w->depth - 1];
    td_pickle_ref at = key != TD_PICKLE_NIL ? key : frame->ref;
    size_t before = w->path.len;
    if (!frame->is_root)
        td_buffer_putc(&w->path, '.');
    if (td_pickle_kind(w->pickle, key) == TD_PICKLE_TUPLE && !charge_values(w, at, td_pickle_count(w->pickle, key)))
        return false;
    if (!td_torch_write_key(w->pickle, key, PATH_MAX_BYTES, &w->path))
        td_buffer_u64(&w->path, index);
    return check_path(w, at) && charge_values(w, at, (w->path.len - before) / TEXT_BYTES_PER_VISIT);
}

/* Takes one visit from the budget for work without a visit. Returns false, without an error, when nothing is left: the
 * next visit then fails. */
static bool spend_step(struct td_torch_walker *w)
{
    if (w->visits_left == 0)
        return false;
    w->visits_left--;
    return true;
}

/* Returns the names of the buffers that the module does not save: a set, before protocol 4 a call of set() with a list.
 */
static td_pickle_ref unsaved_names(const struct td_pickle *p, td_pickle_ref module)
{
    td_pickle_ref names = td_pickle_get(p, td_pickle_state(p, module), "_non_persistent_buffers_set");
    if (td_pickle_kind(p, names) == TD_PICKLE_OBJECT)
        names = td_pickle_item(p, td_pickle_args(p, names), 0);
    return names;
}

static bool is_unsaved(struct td_torch_walker *w, td_pickle_ref module, td_pickle_ref name)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref names = unsaved_names(p, module);
    size_t len;
    size_t other_len;
    const char *text = td_pickle_text(p, name, &len);
    for (uint32_t i = 0; text != NULL && i < td_pickle_count(p, names) && spend_step(w); i++) {
        const char *other = td_pickle_text(p, td_pickle_item(p, names, i), &other_len);
        if (other != NULL && other_len == len && memcmp(other, text, len) == 0)
            return true;
    }
    return false;
}

/* Returns the next part of a module: parameters, then buffers, then modules, as nn.Module.state_dict walks them. */
static td_pickle_ref next_of_module(struct td_torch_walker *w, struct td_torch_frame *frame, td_pickle_ref *key)
{
    static const char *const stages[] = {"_parameters", "_buffers", "_modules"};
    const struct td_pickle *p = w->pickle;
    for (; frame->stage < 3; frame->stage++, frame->next = 0) {
        struct td_pickle_map map;
        (void)td_pickle_map(p, td_pickle_get(p, td_pickle_state(p, frame->ref), stages[frame->stage]), &map);
        while (frame->next < map.count) {
            *key = td_pickle_map_key(p, &map, frame->next);
            td_pickle_ref value = td_pickle_map_value(p, &map, frame->next++);
            bool left_out =
                td_pickle_kind(p, value) == TD_PICKLE_NONE || (frame->stage == 1 && is_unsaved(w, frame->ref, *key));
            if (!left_out || !spend_step(w))
                return value;
        }
    }
    return TD_PICKLE_NIL;
}

/* Returns the next part of a container and sets *key (NIL in lists); NIL when there are no more. */
static td_pickle_ref next_part(struct td_torch_walker *w, struct td_torch_frame *frame, td_pickle_ref *key)
{
    *key = TD_PICKLE_NIL;
    if (frame->is_module)
        return next_of_module(w, frame, key);
    if (frame->is_map) {
        *key = td_pickle_map_key(w->pickle, &frame->map, frame->next);
        return td_pickle_map_value(w->pickle, &frame->map, frame->next++);
    }
    return td_pickle_item(w->pickle, frame->ref, frame->next++);
}

/* Refuses a module whose attributes or set of names grew after it was made: loading copies them, and would not see the
 * later items. */
static bool check_module(const struct td_torch_walker *w, td_pickle_ref module)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref set = td_pickle_get(p, td_pickle_state(p, module), "_non_persistent_buffers_set");
    bool names_grew =
        td_pickle_kind(p, set) == TD_PICKLE_OBJECT && td_pickle_grew_after(p, unsaved_names(p, module), set);
    return (!td_pickle_state_grew(p, module) && !names_grew) ||
           td_torch_refuse(w->err, p, module, "what a module is made of is added to after it was made");
}

/* Begins to walk a container, unless the walk is in that container already. */
static bool enter_value(struct td_torch_walker *w, td_pickle_ref ref, bool is_root)
{
    struct td_torch_frame frame;
    if (!open_frame(w, ref, &frame) || !td_pickle_mark(w->pickle, frame.ref))
        return true;
    if (frame.is_module && !check_module(w, ref))
        return false;
    frame.is_root = is_root;
    return push_frame(w, &frame);
}

/* Enters the attributes of an object: a dict, or, for a class with slots, a pair of dicts, the first often None. */
static bool enter_state(struct td_torch_walker *w, td_pickle_ref state, bool is_root)
{
    const struct td_pickle *p = w->pickle;
    td_pickle_ref slots = td_pickle_item(p, state, 1);
    if (td_pickle_kind(p, state) == TD_PICKLE_TUPLE && td_pickle_count(p, state) == 2 &&
        td_pickle_kind(p, slots) == TD_PICKLE_DICT)
        return enter_value(w, slots, is_root) && enter_value(w, td_pickle_item(p, state, 0), is_root);
    return enter_value(w, state, is_root);
}

/* Visits one value under the present path. */
static bool visit_value(struct td_torch_walker *w, td_pickle_ref ref)
{
    const struct td_pickle *p = w->pickle;
    bool done = false;
    bool is_root = w->depth == 0 && w->path.len == 0;
    bool in_module = w->depth > 0 && w->frames[w->depth - 1].is_module;
    if (w->path.failed)
        return td_error_no_memory(w->err);
    if (!charge_values(w, ref, 1) || !check_memory(w, ref))
        return false;
    ref = td_torch_unwrap_tag(p, ref);
    if (td_pickle_kind(p, ref) == TD_PICKLE_PERSISTENT)
        return td_torch_read_bare_storage(w, ref);
    if (td_pickle_kind(p, ref) == TD_PICKLE_OBJECT && !td_torch_read_tensor(w, ref, &done))
        return false;
    if (done) /* a tensor; it may have attributes */
        return enter_state(w, td_torch_tensor_state(p, ref, in_module), is_root);
    if (!add_metadata(w, ref, &done))
        return false;
    if (done)
        return true;
    /* The attributes of an OrderedDict are not walked: they are a state_dict()'s _metadata, the versions of modules. */
    bool has_state = td_pickle_kind(p, ref) == TD_PICKLE_OBJECT && !is_module(p, ref) &&
                     !td_pickle_is_call(p, ref, "collections", "OrderedDict");
    return (!has_state || enter_state(w, td_pickle_state(p, ref), is_root)) && enter_value(w, ref, is_root);
}

/* Visits the next part of the topmost container, or removes the container when it has no more. */
static bool step_frame(struct td_torch_walker *w)
{
    struct td_torch_frame *frame = &w->frames[w->depth - 1];
    td_pickle_ref key;
    uint32_t index = frame->next;
    td_pickle_ref part = next_part(w, frame, &key);
    w->path.len = frame->path_len;
    if (part == TD_PICKLE_NIL) {
        td_pickle_unmark(w->pickle, frame->ref);
        w->depth--;
        return true;
    }
    return path_add(w, key, index) && visit_value(w, part);
}

static bool visit_part(struct td_torch_walker *w, td_pickle_ref ref, const char *name)
{
    size_t path_len = w->path.len;
    size_t depth = w->depth;
    if (w->parts_depth == PARTS_DEPTH_MAX)
        return td_torch_refuse(w->err, w->pickle, ref, "tensors are made of one another more than 8 deep");
    w->parts_depth++;
    if (path_len > 0)
        td_buffer_putc(&w->path, '.');
    td_buffer_puts(&w->path, name);
    bool ok = check_path(w, ref) && (ref == TD_PICKLE_NIL || visit_value(w, ref));
    while (ok && w->depth > depth)
        ok = step_frame(w);
    w->path.len = path_len;
    w->parts_depth--;
    return ok;
}

/* Adds the number of repeated keys as metadata, if there were any. Of items with equal keys the last counts, as in
 * Python. */
static bool add_duplicates(struct td_torch_walker *w)
{
    struct td_buffer json;
    size_t path_len = w->path.len;
    if (w->pickle->duplicate_count == 0)
        return true;
    td_buffer_init(&json);
    td_buffer_u64(&json, w->pickle->duplicate_count);
    td_buffer_puts(&w->path, path_len > 0 ? ".(repeated keys)" : "(repeated keys)");
    bool ok = w->path.failed || json.failed ? td_error_no_memory(w->err) : push_metadata(w, &json);
    w->path.len = path_len;
    td_buffer_fini(&json);
    return ok;
}

static struct td_torch_walker begin_walk(struct td_pickle *pickle, const struct td_torch_places *places,
                                         uint64_t visits_free, struct td_manifest *manifest, struct td_error *err)
{
    /* a packed pickle counts no more than its file, which may hold little else */
    uint64_t bytes = pickle->end < places->file_bytes ? pickle->end : places->file_bytes;
    struct td_torch_walker w = {.pickle = pickle,
                                .places = places,
                                .manifest = manifest,
                                .visit_part = visit_part,
                                .tensor_capacity = manifest->tensor_count,
                                .metadata_capacity = manifest->metadata_count,
                                .visits_left = visits_free + VISITS_PER_BYTE * bytes,
                                .memory_max =
                                    manifest->arena.used_bytes + MEMORY_FREE_BYTES + (size_t)(MEMORY_PER_BYTE * bytes),
                                .err = err};
    td_buffer_init(&w.path);
    manifest->shares_bytes = true;
    return w;
}

static void end_walk(struct td_torch_walker *w)
{
    td_buffer_fini(&w->path);
    free(w->frames);
}

bool td_torch_walk(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                   const char *prefix, struct td_manifest *manifest, struct td_error *err)
{
    struct td_torch_walker w = begin_walk(pickle, places, VISITS_FREE, manifest, err);
    td_buffer_puts(&w.path, prefix);
    bool ok = add_duplicates(&w) && visit_value(&w, root);
    if (ok && *prefix == '\0' && manifest->tensor_count == 1)
        manifest->bare = true; /* the root is a tensor: the contents of a container are visited below */
    while (ok && w.depth > 0)
        ok = step_frame(&w);
    ok = ok && td_manifest_note_omitted(w.manifest, w.omitted, w.err) && check_memory(&w, root);
    end_walk(&w);
    return ok;
}

bool td_torch_read_root(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                        struct td_manifest *manifest, struct td_error *err)
{
    bool done;
    struct td_torch_walker w = begin_walk(pickle, places, VISITS_FREE_ALONE, manifest, err);
    bool ok = td_torch_read_tensor(&w, td_torch_unwrap_tag(pickle, root), &done);
    end_walk(&w);
    return ok;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* Numbers repeated names of tensors, or repeated keys of metadata. Two tensors can have one path: {"a": {"b": x},
 * "a.b": y}, or {1: x, "1": y}. */
static bool number_repeated(struct td_manifest *manifest, bool of_metadata, struct td_error *err)
{
    struct td_names names = of_metadata ? td_metadata_keys(manifest->metadata, manifest->metadata_count)
                                        : td_tensor_names(manifest->tensors, manifest->tensor_count);
    struct td_text *fresh;
    if (!td_names_number_repeated(&names, &manifest->arena, &fresh, err))
        return false;
    for (size_t i = 0; fresh != NULL && i < names.count; i++) {
        if (fresh[i].p == NULL)
            continue;
        if (of_metadata) {
            manifest->metadata[i].key = fresh[i].p;
        } else {
            manifest->tensors[i].name = fresh[i].p;
            manifest->tensors[i].name_len = (uint32_t)fresh[i].len;
        }
    }
    free(fresh);
    return true;
}

bool td_torch_finish(struct td_manifest *manifest, struct td_error *err)
{
    manifest->bare = manifest->bare && manifest->tensor_count == 1; /* without attributes that are tensors */
    return number_repeated(manifest, true, err) && number_repeated(manifest, false, err) &&
           td_manifest_finish(manifest, err);
}
