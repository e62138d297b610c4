/* Reads the local checkpoint as a server would, gets the digests, and hashes the tensors in the order of their places
 * in the files. */
#include "server/cmd/verify_tensors.h"

#include "api/call/tensor_text.h"
#include "core/digits.h"
#include "rank/rank_name.h"
#include "rank/tensor_source.h"
#include "server/cmd/shared/command_line.h"
#include "server/cmd/shared/copying.h"
#include "server/cmd/shared/local_scan.h"
#include "server/cmd/verify_report.h"
#include "server/host/option_file.h"
#include "server/host/terminal.h"
#include "storage/fault_guard.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OPEN_FILES = 64, NAMED_MODELS = 5 };

struct tally {
    uint64_t tensors, bytes; /* hashed */
    uint64_t compared;       /* their digests, or types and shapes that differ */
    uint64_t not_compared;   /* no digest is stated, or the bytes cannot be served there */
    uint64_t mismatches, missing, extra, unreadable;
};

/* States of a tensor that the digests have: it is in the checkpoint, too; it has no digest to compare with. */
enum { SEEN = 1, NOT_COMPARED = 2 };

struct verification {
    const struct td_verify_tensors *wanted;
    struct td_copying copying;
    struct td_verify_report report;
    struct td_mapping_cache maps;
    struct td_decode_cache decodes;
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    struct td_remote_digests digests;
    unsigned char *states; /* of the digests' tensors */
    size_t *order;         /* numbers of the checkpoint's tensors, in the order in which they are hashed */
    struct tally tally;
};

/* ---- the local checkpoint ------------------------------------------------------------------------------ */

/* Sets the path of a rank's file in a directory, as `tensord pull` names it. */
static bool find_rank_file(const struct td_verify_tensors *wanted, char path[PATH_MAX], struct td_error *err)
{
    char name[64];
    struct stat st;
    (void)td_rank_name_write_state(wanted->query.rank, name, sizeof name);
    int len = snprintf(path, PATH_MAX, "%s/%s", wanted->path, name);
    if (len > 0 && len < PATH_MAX && stat(path, &st) != 0)
        len = snprintf(path, PATH_MAX, "%s/rank-%" PRIu64 ".safetensors", wanted->path, wanted->query.rank);
    return (len > 0 && len < PATH_MAX && stat(path, &st) == 0) ||
           td_error_set(err, TD_NOT_FOUND,
                        "\"%.500s\" has neither %s nor rank-%" PRIu64 ".safetensors: give the rank's file",
                        wanted->path, name, wanted->query.rank);
}

static bool read_checkpoint_file(struct verification *v, const char *path, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    return td_local_scan_file(path, true, true, &v->snapshot, &why) ||
           td_error_set(err, why.code, "\"%.500s\": %s", path, why.message);
}

static bool read_snapshot(struct verification *v, struct td_error *err)
{
    const struct td_verify_tensors *wanted = v->wanted;
    char path[PATH_MAX];
    struct stat st;
    if (!td_local_path_check(wanted->path, "verify", err))
        return false;
    if (stat(wanted->path, &st) != 0 || !S_ISDIR(st.st_mode))
        return read_checkpoint_file(v, wanted->path, err);
    if (wanted->query.engine != NULL)
        return find_rank_file(wanted, path, err) && read_checkpoint_file(v, path, err);
    return td_local_scan(wanted->path, true, &v->snapshot, err);
}

/* Returns the model of the directory itself, below which other models may be, such as onnx/ of a repository; NULL when
 * none of the models has all others below it. */
static const struct td_model *find_model(const struct td_snapshot *snapshot)
{
    const struct td_model *first = &snapshot->models[0]; /* the ids are sorted */
    const size_t len = strlen(first->id);
    for (size_t i = 0; snapshot->root_is_model && i < snapshot->model_count; i++)
        if (snapshot->models[i].directory_len == 0)
            return &snapshot->models[i];
    for (size_t i = 1; i < snapshot->model_count; i++)
        if (strncmp(snapshot->models[i].id, first->id, len) != 0 || snapshot->models[i].id[len] != '/')
            return NULL;
    return first;
}

/* Refuses a directory with several models, and names some of them. */
static bool refuse_models(const struct verification *v, struct td_error *err)
{
    struct td_buffer ids;
    td_buffer_init(&ids);
    for (size_t i = 0; i < v->snapshot->model_count && i < NAMED_MODELS; i++)
        td_buffer_printf(&ids, "%s%.100s", i == 0 ? "" : ", ", v->snapshot->models[i].id);
    const char *text = td_buffer_terminate(&ids);
    (void)td_error_set(err, TD_FAILED_PRECONDITION,
                       "\"%.300s\" has %zu models (%s%s): give the directory or the file of one", v->wanted->path,
                       v->snapshot->model_count, text == NULL ? "" : text,
                       v->snapshot->model_count > NAMED_MODELS ? " ..." : "");
    td_buffer_fini(&ids);
    return false;
}

/* Returns the checkpoint of this id among `count`; NULL as the id: the first one. */
static const struct td_checkpoint *choose(const struct td_checkpoint *checkpoints, size_t count, const char *id)
{
    for (size_t i = 0; i < count; i++)
        if (id == NULL || strcmp(checkpoints[i].id, id) == 0)
            return &checkpoints[i];
    return NULL;
}

/* Finds the checkpoint: a whole one, else an incomplete one, whose missing tensors are then reported. */
static bool find_checkpoint(struct verification *v, struct td_error *err)
{
    const char *id = v->wanted->query.checkpoint;
    if (v->snapshot->model_count == 0)
        return td_error_set(err, TD_NOT_FOUND, "there is no checkpoint in \"%.500s\"", v->wanted->path);
    v->model = find_model(v->snapshot);
    if (v->model == NULL)
        return refuse_models(v, err);
    v->checkpoint = choose(v->model->checkpoints, v->model->checkpoint_count, id);
    if (v->checkpoint == NULL)
        v->checkpoint = choose(v->model->partials, v->model->partial_count, id);
    if (v->checkpoint != NULL)
        return true;
    if (v->model->is_delta)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "\"%.500s\" is a delta: make the full version with tensord apply", v->wanted->path);
    if (v->model->problems.count > 0)
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"%.300s\": %.100s: %s", v->wanted->path,
                            v->model->problems.items[0].path, v->model->problems.items[0].message);
    return td_error_set(err, TD_NOT_FOUND, "there is no checkpoint%s%.100s in \"%.500s\"", id == NULL ? "" : " ",
                        id == NULL ? "" : id, v->wanted->path);
}

static int compare_places(const void *a, const void *b, void *context)
{
    const struct td_checkpoint *checkpoint = context;
    return td_tensor_compare_places(td_checkpoint_tensor(checkpoint, *(const size_t *)a),
                                    td_checkpoint_tensor(checkpoint, *(const size_t *)b));
}

static bool order_tensors(struct verification *v, struct td_error *err)
{
    const size_t count = v->checkpoint->tensor_count;
    v->order = calloc(count + 1, sizeof *v->order);
    if (v->order == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++)
        v->order[i] = i;
    qsort_r(v->order, count, sizeof *v->order, compare_places, (void *)(uintptr_t)v->checkpoint);
    return true;
}

/* ---- the digests --------------------------------------------------------------------------------------- */

static bool read_recorded(struct verification *v, struct td_error *err)
{
    struct td_buffer text;
    struct td_error why = TD_ERROR_INIT;
    char message[TD_ERROR_TEXT_BYTES];
    td_buffer_init(&text);
    bool ok = td_whole_file_read(v->wanted->recorded, "digests", TD_REMOTE_MAX_DIGEST_PAGE, &text, NULL, &why) &&
              td_remote_digests_read(&v->digests, td_buffer_text(&text), &why);
    td_buffer_fini(&text);
    return ok || td_error_set(err, why.code, "\"%.300s\": %s", v->wanted->recorded, td_error_text(&why, message));
}

static bool ask_servers(struct verification *v, struct td_error *err)
{
    struct td_fetch_session *session = NULL;
    bool ok = td_copying_connect(&v->copying, v->wanted->urls.items, v->wanted->urls.count, err) &&
              td_fetch_session_create(v->copying.client, &v->copying.cancel, &v->copying.notes, &session, err) &&
              td_remote_digests_get(session, &v->wanted->query, &v->digests, err);
    td_fetch_session_destroy(session);
    return ok;
}

static bool get_digests(struct verification *v, struct td_error *err)
{
    if (!(v->wanted->recorded != NULL ? read_recorded(v, err) : ask_servers(v, err)))
        return false;
    v->states = calloc(v->digests.count + 1, 1);
    return v->states != NULL || td_error_no_memory(err);
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static void print_mismatch(struct verification *v, const char *problem, const char *name, const char *expected,
                           const char *found)
{
    td_verify_problem_begin(&v->report, problem, "MISMATCH", "tensor", name);
    if (v->report.as_json)
        td_verify_problem_add(&v->report, expected, found);
    else
        (void)printf("stated as %s, but it %s %s", td_terminal_name(expected, &v->report.shown),
                     strcmp(problem, "digest") == 0 ? "hashes to" : "is", found);
    td_verify_problem_end(&v->report);
    v->tally.mismatches++;
}

/* Prints a tensor that one of both sides lacks. */
static void print_lack(struct verification *v, const char *problem, const char *title, const char *name,
                       const char *text)
{
    td_verify_problem_begin(&v->report, problem, title, "tensor", name);
    if (!v->report.as_json)
        (void)printf("%s", text);
    td_verify_problem_end(&v->report);
}

static void print_unreadable(struct verification *v, const char *key, const char *name, const char *message)
{
    td_verify_print_unreadable(&v->report, key, name, message);
    v->tally.unreadable++;
}

/* The means to hash a tensor. */
struct hashing {
    struct verification *v;
    struct td_digest *digest;
};

static bool take_bytes(void *context, const void *bytes, size_t len, struct td_error *err)
{
    const struct hashing *hashing = context;
    td_digest_add_content(hashing->digest, bytes, len);
    atomic_fetch_add(&hashing->v->copying.done_bytes, len);
    return td_copying_check(&hashing->v->copying, err);
}

static bool hash_tensor(struct verification *v, struct td_tensor_ref ref, uint8_t sum[TD_SHA256_BYTES],
                        struct td_error *err)
{
    const struct td_tensor_caches caches = {.maps = &v->maps, .decodes = &v->decodes};
    struct hashing hashing = {.v = v, .digest = td_digest_create()};
    struct td_blob *blob = NULL;
    uint64_t base = 0;
    bool ok = td_tensor_open_by(&caches, v->snapshot, v->checkpoint, ref, &v->copying.cancel, &blob, &base, err) &&
              td_blob_copy_to(blob, base, ref.tensor->nbytes, take_bytes, &hashing, err);
    td_blob_unref(blob);
    return (td_digest_finish_binary(hashing.digest, sum) || td_error_no_memory(err)) && ok;
}

/* Compares the type, the shape and the size, and prints them if they differ. */
static bool has_same_form(struct verification *v, const struct td_tensor *tensor, const struct td_remote_tensor *stated)
{
    struct td_buffer shape;
    char expected[200];
    char found[200];
    td_buffer_init(&shape);
    td_tensor_write_shape(&shape, tensor);
    const char *text = td_buffer_terminate(&shape);
    text = text == NULL ? "?" : text;
    bool same = strcmp(stated->dtype, tensor->dtype->name) == 0 && strcmp(stated->shape, text) == 0 &&
                stated->nbytes == tensor->nbytes;
    (void)snprintf(expected, sizeof expected, "%s %.100s, %" PRIu64 " bytes", stated->dtype, stated->shape,
                   stated->nbytes);
    (void)snprintf(found, sizeof found, "%s %.100s, %" PRIu64 " bytes", tensor->dtype->name, text, tensor->nbytes);
    td_buffer_fini(&shape);
    if (!same)
        print_mismatch(v, "form", tensor->name, expected, found);
    return same;
}

/* Hashes a tensor, and compares its digest. Returns false, with an error, when the command is to end. */
static bool compare_digest(struct verification *v, struct td_tensor_ref ref, const struct td_remote_tensor *stated,
                           struct td_error *err)
{
    uint8_t sum[TD_SHA256_BYTES];
    char expected[TD_SHA256_TEXT_BYTES];
    char found[TD_SHA256_TEXT_BYTES];
    struct td_error why = TD_ERROR_INIT;
    if (!hash_tensor(v, ref, sum, &why)) {
        if (!td_copying_check(&v->copying, err))
            return false;
        print_unreadable(v, "tensor", ref.tensor->name, why.message);
        return true;
    }
    v->tally.tensors++;
    v->tally.compared++;
    v->tally.bytes += ref.tensor->nbytes;
    if (memcmp(sum, stated->sha256, sizeof sum) == 0)
        return true;
    td_hex_write(stated->sha256, sizeof sum, expected);
    td_hex_write(sum, sizeof sum, found);
    print_mismatch(v, "digest", ref.tensor->name, expected, found);
    return true;
}

/* Compares a tensor of the checkpoint. Returns as compare_digest. */
static bool compare_tensor(struct verification *v, size_t number, struct td_error *err)
{
    const struct td_tensor_ref ref = td_checkpoint_tensor(v->checkpoint, number);
    const struct td_remote_tensor *stated = td_remote_digests_find(&v->digests, ref.tensor->name);
    if (stated == NULL) {
        if (v->digests.is_selection)
            return true;
        print_lack(v, "extra", "EXTRA", ref.tensor->name, "no such tensor is stated");
        v->tally.extra++;
        return true;
    }
    unsigned char *state = &v->states[stated - v->digests.items];
    *state = SEEN;
    if (!has_same_form(v, ref.tensor, stated)) {
        v->tally.compared++;
        return true;
    }
    if (!stated->has_sha256) {
        *state |= NOT_COMPARED;
        v->tally.not_compared++;
        return true;
    }
    if (ref.tensor->reason != NULL) {
        print_unreadable(v, "tensor", ref.tensor->name, ref.tensor->reason);
        return true;
    }
    return compare_digest(v, ref, stated, err);
}

/* Adds up the bytes that will be hashed, for the progress. */
static void count_bytes(struct verification *v)
{
    uint64_t bytes = 0; /* at most the total of a manifest, which fits */
    for (size_t i = 0; i < v->checkpoint->tensor_count; i++) {
        const struct td_tensor *tensor = td_checkpoint_tensor(v->checkpoint, i).tensor;
        const struct td_remote_tensor *stated = td_remote_digests_find(&v->digests, tensor->name);
        if (stated != NULL && stated->has_sha256 && tensor->reason == NULL)
            bytes += tensor->nbytes;
    }
    atomic_store(&v->copying.total_bytes, bytes);
}

static bool compare_all(struct verification *v, struct td_error *err)
{
    bool ok = true;
    if (v->report.as_json)
        td_verify_report_begin(&v->report);
    for (size_t i = 0; i < v->model->problems.count; i++)
        print_unreadable(v, "file", v->model->problems.items[i].path, v->model->problems.items[i].message);
    count_bytes(v);
    td_copying_show(&v->copying, "verifying, ", v->wanted->path);
    for (size_t i = 0; ok && i < v->checkpoint->tensor_count; i++)
        ok = compare_tensor(v, v->order[i], err);
    td_copying_show_end(&v->copying);
    for (size_t i = 0; ok && i < v->digests.count; i++)
        if (v->states[i] == 0) {
            print_lack(v, "missing", "MISSING", v->digests.items[i].name, "it is stated, and not here");
            v->tally.missing++;
        }
    return ok;
}

/* ---- the summary --------------------------------------------------------------------------------------- */

static void print_json_summary(struct verification *v)
{
    struct td_document *json = &v->report.json;
    const struct tally *tally = &v->tally;
    td_document_end(json);
    if (v->digests.version != NULL)
        td_document_add_string(json, "version", v->digests.version);
    td_document_add_string(json, "checkpoint", v->checkpoint->id);
    td_document_add_u64(json, "tensors", tally->tensors);
    td_document_add_u64(json, "bytes", tally->bytes);
    td_document_add_u64(json, "compared", tally->compared);
    td_document_add_u64(json, "not_compared", tally->not_compared);
    td_document_add_u64(json, "mismatches", tally->mismatches);
    td_document_add_u64(json, "missing", tally->missing);
    td_document_add_u64(json, "extra", tally->extra);
    td_document_add_u64(json, "unreadable", tally->unreadable);
    td_document_begin_array(json, "not_compared_tensors");
    for (size_t i = 0; i < v->digests.count; i++)
        if ((v->states[i] & NOT_COMPARED) != 0) {
            td_document_add_string(json, NULL, v->digests.items[i].name);
            td_verify_report_flush(&v->report);
        }
    td_document_end(json);
    td_document_end(json);
    td_verify_report_flush(&v->report);
    (void)putchar('\n');
}

static void print_text_summary(struct verification *v)
{
    const struct tally *tally = &v->tally;
    uint64_t number = 0;
    for (size_t i = 0; tally->compared > 0 && i < v->digests.count; i++) {
        if ((v->states[i] & NOT_COMPARED) == 0)
            continue;
        if (!td_verify_not_compared(number++, tally->not_compared))
            break;
        (void)printf("%s\n", td_terminal_name(v->digests.items[i].name, &v->report.shown));
    }
    const char *version = v->digests.version;
    (void)printf("%" PRIu64 " tensor%s, %s: %" PRIu64 " compared%s%s, %" PRIu64 " not compared; %" PRIu64
                 " mismatch%s, %" PRIu64 " missing, %" PRIu64 " extra, %" PRIu64 " unreadable\n",
                 tally->tensors, td_plural(tally->tensors), td_terminal_size(tally->bytes).text, tally->compared,
                 version == NULL ? "" : " with version ",
                 version == NULL ? "" : td_terminal_name(version, &v->report.shown), tally->not_compared,
                 tally->mismatches, tally->mismatches == 1 ? "" : "es", tally->missing, tally->extra,
                 tally->unreadable);
}

static uint64_t problem_count(const struct tally *tally)
{
    return tally->mismatches + tally->missing + tally->extra + tally->unreadable;
}

static void print_advice(const struct verification *v)
{
    const struct tally *tally = &v->tally;
    if (v->report.as_json)
        return;
    if (tally->compared == 0 && problem_count(tally) == 0)
        td_terminal_complain("nothing was compared: %s",
                             v->digests.count == 0 ? "there is no such tensor"
                                                   : "no SHA-256 is stated; an answer has them with ?digests=1");
    else if (tally->mismatches + tally->missing + tally->extra > 0)
        td_terminal_complain("the tensors here are not those that are stated: they are of another version, or were "
                             "changed; fetch the model again");
}

static bool verify(struct verification *v, struct td_error *err)
{
    if (!read_snapshot(v, err) || !find_checkpoint(v, err) || !order_tensors(v, err) || !get_digests(v, err) ||
        !compare_all(v, err))
        return false;
    if (v->report.as_json)
        print_json_summary(v);
    else
        print_text_summary(v);
    if (v->report.has_failed)
        return td_error_no_memory(err);
    if (!td_output_flush(err))
        return false;
    print_advice(v);
    return true;
}

/* Verifies with the caches of mapped files and of decoded tensors. */
static bool verify_with_caches(struct verification *v, struct td_error *err)
{
    if (!td_fault_guard_install())
        return td_error_sys(err, TD_INTERNAL, errno, "cannot install the SIGBUS handler");
    if (!td_decode_cache_init(&v->decodes, TD_DECODE_MEMORY_BYTES, err))
        return false;
    bool ok = td_mapping_cache_init(&v->maps, OPEN_FILES, 0, false, err);
    if (ok) {
        ok = verify(v, err);
        td_mapping_cache_fini(&v->maps);
    }
    td_decode_cache_fini(&v->decodes);
    return ok;
}

int td_verify_tensors(const struct td_verify_tensors *wanted)
{
    struct verification *v = calloc(1, sizeof *v);
    struct td_error err = TD_ERROR_INIT;
    if (v == NULL) {
        td_terminal_complain("out of memory");
        return TD_EXIT_FAILED;
    }
    v->wanted = wanted;
    td_copying_begin(&v->copying, &wanted->options);
    td_verify_report_init(&v->report, wanted->options.json, &v->copying.progress);
    td_remote_digests_init(&v->digests);
    bool ok = verify_with_caches(v, &err);
    if (!ok)
        td_copying_complain(&v->copying, &err, NULL);
    const struct tally tally = v->tally;
    td_remote_digests_fini(&v->digests);
    td_verify_report_fini(&v->report);
    td_copying_end(&v->copying);
    td_snapshot_unref(v->snapshot);
    free(v->states);
    free(v->order);
    free(v);
    if (!ok || problem_count(&tally) > 0)
        return TD_EXIT_FAILED;
    return tally.compared == 0 ? TD_EXIT_NOTHING : TD_EXIT_OK;
}
