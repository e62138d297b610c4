#include "rank/virtual_revision.h"

#include "core/digest.h"
#include "core/digits.h"
#include "rank/rank_name.h"
#include "slicing/engine/engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The hexadecimal digits of a commit: a digest, the kind's number, the engine's number, the number of ranks, the rank.
 */
enum { DIGEST_DIGITS = 24, KIND_DIGITS = 2, ENGINE_DIGITS = 2, COUNT_DIGITS = 6, PARAMETERS_BYTES = 17 };

static_assert(DIGEST_DIGITS + PARAMETERS_BYTES == TD_COMMIT_BYTES, "a commit has 40 digits");
static_assert(TD_MAX_TP_SIZE < 1 << 4 * COUNT_DIGITS, "a number of ranks fits its digits");

/* ---- kinds --------------------------------------------------------------------------------------------- */

static bool read_safetensors(struct td_text name, struct td_virtual_revision *out, struct td_error *err)
{
    (void)err;
    out->tp_size = 1;
    return td_text_equals(name, TD_SAFETENSORS_REVISION) && td_engine_number(TD_TEXT("none"), &out->engine);
}

static bool is_safetensors(const struct td_virtual_revision *revision)
{
    return strcmp(td_engine_name_of(revision->engine), "none") == 0 && revision->tp_size == 1 && revision->rank == 0;
}

/* Reads "tp{n}-rank{r}-{engine}", with the engine as in a tag (td_engine_of_tag). A name that begins with "tp" and a
 * digit counts as one of this kind. */
static bool read_rank(struct td_text name, struct td_virtual_revision *out, struct td_error *err)
{
    struct td_text engine = name;
    struct td_text size = td_text_take_until(&engine, '-');
    struct td_text rank = td_text_take_until(&engine, '-');
    if (name.len < 3 || !td_text_begins(name, TD_TEXT("tp")) || name.p[2] < '0' || name.p[2] > '9')
        return false;
    if (!td_rank_name_read_size(size, &out->tp_size))
        return td_error_set(err, TD_NOT_FOUND, "\"%.*s\" is not a number of ranks; use tp1 to tp%d", TD_SHOW(size, 40),
                            TD_MAX_TP_SIZE);
    if (!td_rank_name_read_rank(rank, &out->rank) || out->rank >= out->tp_size)
        return td_error_set(err, TD_NOT_FOUND, "\"%.*s\" is not a rank of %" PRIu64 "; use rank0 to rank%" PRIu64,
                            TD_SHOW(rank, 40), out->tp_size, out->tp_size - 1);
    const char *own = td_engine_of_tag(engine);
    return own != NULL ? td_engine_number(td_text_of(own), &out->engine) : td_engine_tag_not_found(engine, err);
}

static bool is_rank(const struct td_virtual_revision *revision)
{
    return revision->tp_size >= 1 && revision->tp_size <= TD_MAX_TP_SIZE && revision->rank < revision->tp_size;
}

static const struct kind {
    enum td_revision_kind kind;
    /* The form of its names. A part of the digest in its commits, so that a kind with a reused number makes other
     * commits. */
    const char *names;
    /* Reads a name into *out, which is zero but for the kind. Returns false when the text is not a name of this kind;
     * sets *err, which names the right form, only when the text resembles one. */
    bool (*read)(struct td_text name, struct td_virtual_revision *out, struct td_error *err);
    /* Returns whether the parameters of a decoded commit fit the kind. The engine exists. */
    bool (*has_valid_parameters)(const struct td_virtual_revision *revision);
} kinds[] = {
    {TD_REVISION_SAFETENSORS, TD_SAFETENSORS_REVISION, read_safetensors, is_safetensors},
    {TD_REVISION_RANK, "tp{n}-rank{r}-{engine}", read_rank, is_rank},
};

enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static const struct kind *find_kind(uint64_t number)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if ((uint64_t)kinds[i].kind == number)
            return &kinds[i];
    return NULL;
}

const char *td_virtual_revision_names(size_t i)
{
    return i < KIND_COUNT ? kinds[i].names : NULL;
}

bool td_virtual_revision_read_name(struct td_text name, struct td_virtual_revision *out, struct td_error *err)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        *out = (struct td_virtual_revision){.kind = kinds[i].kind};
        if (kinds[i].read(name, out, err))
            return true;
    }
    return false;
}

bool td_virtual_revision_is_possible(const struct td_virtual_revision *revision)
{
    const struct kind *kind = find_kind((uint64_t)revision->kind);
    return kind != NULL && td_engine_name_of(revision->engine) != NULL && kind->has_valid_parameters(revision);
}

/* ---- commits ------------------------------------------------------------------------------------------- */

bool td_virtual_revision_read_commit(struct td_text commit, struct td_virtual_revision *out)
{
    uint64_t number;
    uint64_t engine;
    if (commit.len != TD_COMMIT_BYTES - 1)
        return false;
    const char *p = commit.p + DIGEST_DIGITS;
    if (!td_hex_read(td_text_n(p, KIND_DIGITS), &number) ||
        !td_hex_read(td_text_n(p + KIND_DIGITS, ENGINE_DIGITS), &engine) ||
        !td_hex_read(td_text_n(p + KIND_DIGITS + ENGINE_DIGITS, COUNT_DIGITS), &out->tp_size) ||
        !td_hex_read(td_text_n(p + KIND_DIGITS + ENGINE_DIGITS + COUNT_DIGITS, COUNT_DIGITS), &out->rank))
        return false;
    out->kind = (enum td_revision_kind)number;
    out->engine = (unsigned)engine;
    return td_virtual_revision_is_possible(out);
}

bool td_virtual_revision_write_commit(const struct td_virtual_revision *revision, const char *base,
                                      char commit[TD_COMMIT_BYTES])
{
    uint64_t tables = TD_ENGINE_REVISION;
    char *parameters = commit + DIGEST_DIGITS;
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "revision");
    td_digest_add_cstring(digest, base);
    td_digest_add(digest, &tables, sizeof tables);
    td_digest_add_cstring(digest, find_kind(revision->kind)->names);
    td_digest_add_cstring(digest, td_engine_label(td_text_of(td_engine_name_of(revision->engine))));
    td_digest_add(digest, &revision->tp_size, sizeof revision->tp_size);
    td_digest_add(digest, &revision->rank, sizeof revision->rank);
    if (!td_digest_finish_text(digest, commit, DIGEST_DIGITS + 1))
        return false;
    (void)snprintf(parameters, PARAMETERS_BYTES, "%02x%02x%06" PRIx64 "%06" PRIx64, (unsigned)revision->kind,
                   revision->engine, revision->tp_size, revision->rank);
    return true;
}
