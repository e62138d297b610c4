/* Plan: the facts of a tensor are a list of those that it has. Names of the same bytes are searched among all tensors
 * of the checkpoint, and only where the parser has found some. */
#include "api/html/tensor_page.h"

#include "api/call/checkpoint_choice.h"
#include "api/call/hash_wait.h"
#include "api/call/tensor_text.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/templates.h"
#include "api/html/tensors_page.h"
#include "catalog/checkpoints/partial_checkpoint.h"
#include "core/decimal.h"
#include "core/digits.h"
#include "core/waiting.h"
#include "http/uri.h"
#include "parser/format/elements.h"
#include "rank/file_answer.h"
#include "rank/npy_header.h"
#include "rank/tensor_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_ALIASES = 100, SHOWN_PIECES = 1000, LONG_NAME_BYTES = 256 };

enum fact {
    FACT_DTYPE,
    FACT_SHAPE,
    FACT_STRIDES,
    FACT_ELEMENTS,
    FACT_BYTES,
    FACT_FILE,
    FACT_OFFSET,
    FACT_STORED,
    FACT_CHECKPOINT,
    FACT_SHA256,
    FACTS,
};

static const struct {
    const char *name, *heading;
} facts[FACTS] = {
    {"dtype", "Type"},
    {"shape", "Shape"},
    {"strides", "Strides, in elements"},
    {"elements", "Elements"},
    {"bytes", "Size"},
    {"file", "File"},
    {"offset", "Offset in the file"},
    {"stored", "Stored"},
    {"checkpoint", "Checkpoint"},
    {"sha256", "SHA-256 of the bytes"},
};

/* The rows of #stats. */
enum figure {
    STAT_MIN,
    STAT_MAX,
    STAT_MEAN,
    STAT_STD,
    STAT_ZEROS,
    STAT_NANS,
    STAT_INFINITIES,
    STAT_SAMPLED,
    STAT_ELEMENTS,
    STATS,
};

static const struct {
    const char *name, *heading;
} stats[STATS] = {
    {"min", "Least"},         {"max", "Largest"}, {"mean", "Mean"},           {"std", "Standard deviation"},
    {"zeros", "Zeros"},       {"nans", "NaN"},    {"infinities", "Infinite"}, {"sampled", "Elements read"},
    {"elements", "Elements"},
};

enum { PLOT_WIDTH = 640, PLOT_HEIGHT = 156, CELL_PIXELS = 12 };

struct page {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    struct td_shown_model shown;
    size_t number; /* of the tensor in the checkpoint */
    struct td_tensor_ref ref;
    enum fact facts[FACTS]; /* those that the tensor has */
    size_t fact_count;
    uint32_t aliases[SHOWN_ALIASES]; /* the numbers of the first tensors of the same bytes, without this one */
    size_t alias_count;              /* of all of them */
    struct td_tensor_stats *stats;   /* NULL: none, for the reason in no_stats */
    uint32_t highest;                /* count of the bins of the histogram */
    double darkest;                  /* value of the cells of the heat map */
    struct td_error no_stats;
    char sha256[TD_SHA256_TEXT_BYTES]; /* empty: not known */
};

static void destroy(void *context)
{
    struct page *page = context;
    td_snapshot_unref(page->snapshot);
    free(page->stats);
    free(page);
}

/* ---- what the page shows ------------------------------------------------------------------------------- */

static void find_facts(struct page *page)
{
    const struct td_tensor *tensor = page->ref.tensor;
    for (int i = 0; i < FACTS; i++) {
        const bool is_absent = (i == FACT_STRIDES && tensor->strides == NULL) ||
                               (i == FACT_OFFSET && !td_html_has_offset(tensor)) ||
                               (i == FACT_SHA256 && page->sha256[0] == '\0');
        if (!is_absent)
            page->facts[page->fact_count++] = (enum fact)i;
    }
}

/* Finds the other tensors with exactly the same bytes. */
static void find_aliases(struct page *page)
{
    const struct td_tensor *tensor = page->ref.tensor;
    const char *first = tensor->alias_of != NULL ? tensor->alias_of : tensor->name;
    for (size_t i = 0; i < page->checkpoint->tensor_count; i++) {
        const struct td_tensor_ref ref = td_checkpoint_tensor(page->checkpoint, i);
        const char *name = ref.tensor->alias_of != NULL ? ref.tensor->alias_of : ref.tensor->name;
        const bool is_other = ref.tensor->alias_of != NULL || tensor->alias_of != NULL;
        if (!is_other || i == page->number || ref.part != page->ref.part || strcmp(name, first) != 0)
            continue;
        if (page->alias_count < SHOWN_ALIASES)
            page->aliases[page->alias_count] = (uint32_t)i;
        page->alias_count++;
    }
}

/* Sets the digest of the tensor's bytes if it is known. Hashes nothing. */
static bool find_digest(const struct td_call *call, struct page *page, struct td_error *err)
{
    struct td_tensor_sums sums;
    td_digests_init(call, &sums, page->model, page->checkpoint, NULL);
    const bool ok = td_tensor_sums_add(&sums, page->number, err);
    if (ok && td_tensor_sums_find(&sums, td_virtual_hasher_digests(call->api->virtual_hasher)) &&
        sums.items[0].has_bytes)
        td_hex_write(sums.items[0].sum, sizeof sums.items[0].sum, page->sha256);
    td_tensor_sums_fini(&sums);
    return ok;
}

/* Computes the statistics of the whole tensor. A tensor or a type without statistics has the reason in page->no_stats.
 * Returns false with an error that may pass. */
static bool find_stats(const struct td_call *call, struct page *page, struct td_error *err)
{
    const struct td_tensor *tensor = page->ref.tensor;
    struct td_selection all;
    td_selection_all(tensor->rank, tensor->shape, &all);
    const struct td_tensor_slice slice = {.catalog = call->api->catalog,
                                          .snapshot = call->snapshot,
                                          .checkpoint = page->checkpoint,
                                          .number = page->number,
                                          .selection = &all,
                                          .budget = &call->api->ranks.live,
                                          .cancel = call->request->cancel};
    if (tensor->reason != NULL) {
        (void)td_error_set(&page->no_stats, TD_FAILED_PRECONDITION, "bytes that cannot be served have no statistics");
        return true;
    }
    if (!td_note_read(call->api->catalog, call->snapshot, call->model->id, call->response, err))
        return false;
    page->stats = td_tensor_stats_create(&slice, TD_STATS_BINS, &page->no_stats);
    if (page->stats == NULL) {
        if (page->no_stats.code != TD_FAILED_PRECONDITION)
            *err = page->no_stats;
        return page->no_stats.code == TD_FAILED_PRECONDITION;
    }
    for (uint32_t i = 0; i < page->stats->bin_count; i++)
        page->highest = page->stats->counts[i] > page->highest ? page->stats->counts[i] : page->highest;
    for (uint32_t i = 0; i < page->stats->map_rows * page->stats->map_columns; i++)
        page->darkest = page->stats->map[i] > page->darkest ? page->stats->map[i] : page->darkest;
    return true;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static size_t shown_aliases(const struct page *page)
{
    return page->alias_count < SHOWN_ALIASES ? page->alias_count : SHOWN_ALIASES;
}

static size_t shown_pieces(const struct page *page)
{
    return page->ref.tensor->piece_count < SHOWN_PIECES ? page->ref.tensor->piece_count : SHOWN_PIECES;
}

/* Appends the link to the tensor's bytes, in a format; NULL: bare. */
static void write_bytes_link(const struct page *page, const char *format, struct td_buffer *out)
{
    const char *separator =
        td_tensor_write_path(out, TD_TENSOR_BYTES, &page->shown, page->model, page->checkpoint, page->ref.tensor);
    if (format != NULL)
        td_buffer_printf(out, "%sformat=%s", separator, format);
}

/* Appends how the tensor's bytes are stored, for people. */
static void write_stored(const struct td_tensor *tensor, struct td_buffer *out)
{
    const enum td_access access = td_tensor_access(tensor);
    if (access == TD_ACCESS_DIRECT)
        td_buffer_puts(out, "as served, not compressed");
    else if (access == TD_ACCESS_GATHERED && tensor->piece_count == 0)
        td_buffer_puts(out, "in another order, not compressed");
    else
        td_html_write_place(tensor, out);
}

/* Appends the plain value of a fact, for scripts. */
static void write_value(const struct page *page, enum fact fact, struct td_buffer *out)
{
    const struct td_tensor *tensor = page->ref.tensor;
    switch (fact) {
    case FACT_DTYPE:
        td_buffer_puts(out, tensor->dtype->name);
        break;
    case FACT_SHAPE:
        td_tensor_write_shape(out, tensor);
        break;
    case FACT_STRIDES:
        td_tensor_write_strides(out, tensor);
        break;
    case FACT_ELEMENTS:
        td_buffer_u64(out, td_tensor_elements(tensor));
        break;
    case FACT_BYTES:
        td_buffer_u64(out, tensor->nbytes);
        break;
    case FACT_FILE:
        td_buffer_puts(out, td_model_relative(page->model, page->checkpoint->parts[page->ref.part]));
        break;
    case FACT_OFFSET:
        td_buffer_u64(out, tensor->offset);
        break;
    case FACT_STORED:
        td_buffer_puts(out, td_access_name(td_tensor_access(tensor)));
        break;
    case FACT_CHECKPOINT:
        td_buffer_puts(out, page->checkpoint->id);
        break;
    case FACT_SHA256:
        td_buffer_puts(out, page->sha256);
        break;
    case FACTS:
        break;
    }
}

/* Appends a fact as people read it. */
static void write_text(const struct page *page, enum fact fact, struct td_buffer *out)
{
    const struct td_tensor *tensor = page->ref.tensor;
    switch (fact) {
    case FACT_ELEMENTS:
        td_shown_number(out, td_tensor_elements(tensor));
        break;
    case FACT_BYTES:
        td_shown_bytes(out, tensor->nbytes);
        break;
    case FACT_OFFSET:
        td_shown_number(out, tensor->offset);
        break;
    case FACT_STORED:
        write_stored(tensor, out);
        break;
    case FACT_DTYPE:
    case FACT_SHAPE:
    case FACT_STRIDES:
    case FACT_FILE:
    case FACT_CHECKPOINT:
    case FACT_SHA256:
    case FACTS:
        write_value(page, fact, out);
        break;
    }
}

static void write_file_link(const struct page *page, struct td_buffer *out)
{
    td_shown_model_write_path(&page->shown, "files/", out);
    td_uri_encode(out, td_text_of(td_model_relative(page->model, page->checkpoint->parts[page->ref.part])), true);
    (void)td_shown_model_write_query(&page->shown, "?", out);
}

static void write_fact(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const enum fact fact = page->facts[place->row[0]];
    switch (slot) {
    case TD_SLOT_TENSOR_FACT:
        td_buffer_puts(out, facts[fact].name);
        break;
    case TD_SLOT_TENSOR_HEADING:
        td_buffer_puts(out, facts[fact].heading);
        break;
    case TD_SLOT_TENSOR_VALUE:
    case TD_SLOT_TENSOR_LINK_TEXT:
        write_value(page, fact, out);
        break;
    case TD_SLOT_TENSOR_TEXT:
        write_text(page, fact, out);
        break;
    case TD_SLOT_TENSOR_FACT_LINK:
        write_file_link(page, out);
        break;
    default:
        break;
    }
}

static void write_piece(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor *tensor = page->ref.tensor;
    const struct td_piece *piece = &tensor->pieces[place->row[0]];
    switch (slot) {
    case TD_SLOT_TENSOR_PIECE:
        td_buffer_u64(out, place->row[0]);
        break;
    case TD_SLOT_TENSOR_PIECE_FILE:
        td_buffer_puts(out, td_model_relative(page->model, page->checkpoint->parts[piece->part]));
        break;
    case TD_SLOT_TENSOR_PIECE_OFFSET:
        td_buffer_u64(out, piece->offset);
        break;
    case TD_SLOT_TENSOR_PIECE_OFFSET_SHOWN:
        td_shown_number(out, piece->offset);
        break;
    case TD_SLOT_TENSOR_PIECE_START:
        td_tensor_write_numbers(out, piece->starts, tensor->rank);
        break;
    case TD_SLOT_TENSOR_PIECE_SHAPE:
        td_tensor_write_numbers(out, piece->sizes, tensor->rank);
        break;
    default:
        break;
    }
}

static void write_alias(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor *alias = td_checkpoint_tensor(page->checkpoint, page->aliases[place->row[0]]).tensor;
    if (slot == TD_SLOT_TENSOR_ALIAS)
        td_html_write_tensor_name(alias, out);
    else
        (void)td_tensor_write_path(out, TD_TENSOR_PAGE, &page->shown, page->model, page->checkpoint, alias);
}

static void write_pieces_caption(const struct page *page, struct td_buffer *out)
{
    td_shown_number(out, page->ref.tensor->piece_count);
    td_buffer_puts(out, " pieces");
    if (shown_pieces(page) < page->ref.tensor->piece_count)
        td_buffer_printf(out, ", here the first %zu; the manifest lists all", shown_pieces(page));
}

/* Returns the value of a row of #stats that is a number of elements. */
static uint64_t count_of(const struct td_tensor_stats *of, enum figure figure)
{
    switch (figure) {
    case STAT_ZEROS:
        return of->summary.zeros;
    case STAT_NANS:
        return of->summary.nans;
    case STAT_INFINITIES:
        return of->summary.infinities;
    case STAT_SAMPLED:
        return of->sampled;
    case STAT_ELEMENTS:
        return of->elements;
    case STAT_MIN:
    case STAT_MAX:
    case STAT_MEAN:
    case STAT_STD:
    case STATS:
        break;
    }
    return 0;
}

/* Returns the value of one of the other rows. */
static double real_of(const struct td_tensor_stats *of, enum figure figure)
{
    return figure == STAT_MIN    ? of->summary.min
           : figure == STAT_MAX  ? of->summary.max
           : figure == STAT_MEAN ? of->summary.mean
                                 : of->summary.std;
}

/* Returns whether the row has a value: the range, mean and deviation are those of finite elements. */
static bool has_stat(const struct page *page, enum figure figure)
{
    return figure > STAT_STD || page->stats->summary.finite > 0;
}

/* Appends a number for people: with 6 digits. */
static void write_short(double value, struct td_buffer *out)
{
    td_buffer_printf(out, "%.6g", value);
}

static void write_stat(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const enum figure figure = (enum figure)place->row[0];
    switch (slot) {
    case TD_SLOT_TENSOR_STAT:
        td_buffer_puts(out, stats[figure].name);
        break;
    case TD_SLOT_TENSOR_STAT_HEADING:
        td_buffer_puts(out, stats[figure].heading);
        break;
    case TD_SLOT_TENSOR_STAT_VALUE:
        if (figure > STAT_STD)
            td_buffer_u64(out, count_of(page->stats, figure));
        else
            td_write_decimal(out, real_of(page->stats, figure), false);
        break;
    case TD_SLOT_TENSOR_STAT_TEXT:
        if (figure > STAT_STD)
            td_shown_number(out, count_of(page->stats, figure));
        else if (has_stat(page, figure))
            write_short(real_of(page->stats, figure), out);
        else
            td_buffer_puts(out, "none");
        break;
    default:
        break;
    }
}

/* Returns the lower bound of bin i, or for i = bin_count the upper bound of the last one. */
static double bound_of(const struct td_tensor_stats *of, size_t i)
{
    const double at = (double)i / of->bin_count;
    return i == of->bin_count ? of->summary.max : of->summary.min * (1 - at) + of->summary.max * at;
}

/* Returns the height of the bar of bin i: at least 1 if the bin has an element. */
static unsigned bar_height(const struct page *page, size_t i)
{
    const uint32_t count = page->stats->counts[i];
    const unsigned height = (unsigned)((uint64_t)count * PLOT_HEIGHT / (page->highest == 0 ? 1 : page->highest));
    return count > 0 && height == 0 ? 1 : height;
}

static void write_bin(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const size_t i = place->row[0];
    const unsigned width = PLOT_WIDTH / page->stats->bin_count;
    switch (slot) {
    case TD_SLOT_TENSOR_BIN_X:
        td_buffer_u64(out, i * width);
        break;
    case TD_SLOT_TENSOR_BIN_Y:
        td_buffer_u64(out, PLOT_HEIGHT - bar_height(page, i));
        break;
    case TD_SLOT_TENSOR_BIN_WIDTH:
        td_buffer_u64(out, width > 1 ? width - 1 : 1);
        break;
    case TD_SLOT_TENSOR_BIN_HEIGHT:
        td_buffer_u64(out, bar_height(page, i));
        break;
    case TD_SLOT_TENSOR_BIN_LOW:
        td_write_decimal(out, bound_of(page->stats, i), false);
        break;
    case TD_SLOT_TENSOR_BIN_HIGH:
        td_write_decimal(out, bound_of(page->stats, i + 1), false);
        break;
    case TD_SLOT_TENSOR_BIN_COUNT:
        td_buffer_u64(out, page->stats->counts[i]);
        break;
    default:
        break;
    }
}

/* Returns whether a cell of the heat map has a value: whether an element there is finite. */
static bool has_cell(const struct td_tensor_stats *of, size_t i)
{
    return !isnan(of->map[i]);
}

static void write_map(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor_stats *of = page->stats;
    const size_t i = place->row[0];
    switch (slot) {
    case TD_SLOT_TENSOR_MAP_SIZE:
        td_buffer_printf(out, "%u × %u", of->map_rows, of->map_columns);
        break;
    case TD_SLOT_TENSOR_MAP_WIDTH:
        td_buffer_u64(out, (uint64_t)of->map_columns * CELL_PIXELS);
        break;
    case TD_SLOT_TENSOR_MAP_HEIGHT:
        td_buffer_u64(out, (uint64_t)of->map_rows * CELL_PIXELS);
        break;
    case TD_SLOT_TENSOR_MAP_BOX:
        td_buffer_printf(out, "0 0 %u %u", of->map_columns, of->map_rows);
        break;
    case TD_SLOT_TENSOR_MAP_LABEL:
        td_buffer_printf(out, "Heat map of %u rows and %u columns: magnitudes up to ", of->map_rows, of->map_columns);
        write_short(page->darkest, out);
        break;
    case TD_SLOT_TENSOR_CELL_X:
        td_buffer_u64(out, i % of->map_columns);
        break;
    case TD_SLOT_TENSOR_CELL_Y:
        td_buffer_u64(out, i / of->map_columns);
        break;
    case TD_SLOT_TENSOR_CELL_OPACITY:
        td_buffer_printf(out, "%.2f", !has_cell(of, i) || page->darkest <= 0 ? 0 : of->map[i] / page->darkest);
        break;
    case TD_SLOT_TENSOR_CELL_VALUE:
        td_write_decimal(out, of->map[i], false);
        break;
    default:
        break;
    }
}

/* Appends an element; one that is not finite as JSON's answer spells it. */
static void write_element(double value, struct td_buffer *out)
{
    if (isnan(value))
        td_buffer_puts(out, "NaN");
    else if (isinf(value))
        td_buffer_puts(out, value < 0 ? "-Infinity" : "Infinity");
    else
        td_write_decimal(out, value, false);
}

static void write_sample(const struct page *page, enum td_tensor_slot slot, struct td_buffer *out)
{
    switch (slot) {
    case TD_SLOT_TENSOR_NO_STATS_TEXT:
        td_buffer_puts(out, page->no_stats.message);
        break;
    case TD_SLOT_TENSOR_SAMPLED:
        td_shown_number(out, page->stats->sampled);
        break;
    case TD_SLOT_TENSOR_SAMPLED_OF:
        td_shown_number(out, page->stats->elements);
        break;
    case TD_SLOT_TENSOR_HISTOGRAM_LABEL:
        td_buffer_printf(out, "Histogram of %zu values from ", page->stats->summary.finite);
        write_short(page->stats->summary.min, out);
        td_buffer_puts(out, " to ");
        write_short(page->stats->summary.max, out);
        break;
    case TD_SLOT_TENSOR_HISTOGRAM_LOW:
        write_short(page->stats->summary.min, out);
        break;
    case TD_SLOT_TENSOR_HISTOGRAM_HIGH:
        write_short(page->stats->summary.max, out);
        break;
    default:
        break;
    }
}

static void write_slot(const struct td_page_place *place, unsigned number, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor *tensor = page->ref.tensor;
    const enum td_tensor_slot slot = (enum td_tensor_slot)number;
    switch (slot) {
    case TD_SLOT_TENSOR_TITLE:
        td_html_write_tensor_name(tensor, out);
        td_buffer_printf(out, " of %s", page->shown.id);
        break;
    case TD_SLOT_TENSOR_MODEL:
        td_buffer_puts(out, page->shown.id);
        if (page->shown.version != NULL)
            td_buffer_printf(out, " (%s)", page->shown.version);
        break;
    case TD_SLOT_TENSOR_MODEL_LINK:
        td_shown_model_write_path(&page->shown, "", out);
        (void)td_shown_model_write_query(&page->shown, "?", out);
        break;
    case TD_SLOT_TENSOR_TENSORS_LINK:
        td_shown_model_write_path(&page->shown, "view/tensors", out);
        (void)td_checkpoint_write_query(out, "?", &page->shown, page->model, page->checkpoint);
        break;
    case TD_SLOT_TENSOR_NAME_SHOWN:
        td_html_write_tensor_name(tensor, out);
        break;
    case TD_SLOT_TENSOR_WHOLE_NAME:
        td_buffer_append(out, tensor->name, tensor->name_len);
        break;
    case TD_SLOT_TENSOR_REASON:
        td_buffer_puts(out, tensor->reason);
        break;
    case TD_SLOT_TENSOR_FACT:
    case TD_SLOT_TENSOR_VALUE:
    case TD_SLOT_TENSOR_HEADING:
    case TD_SLOT_TENSOR_TEXT:
    case TD_SLOT_TENSOR_FACT_LINK:
    case TD_SLOT_TENSOR_LINK_TEXT:
        write_fact(place, slot, out);
        break;
    case TD_SLOT_TENSOR_NO_STATS_TEXT:
    case TD_SLOT_TENSOR_SAMPLED:
    case TD_SLOT_TENSOR_SAMPLED_OF:
    case TD_SLOT_TENSOR_HISTOGRAM_LABEL:
    case TD_SLOT_TENSOR_HISTOGRAM_LOW:
    case TD_SLOT_TENSOR_HISTOGRAM_HIGH:
        write_sample(page, slot, out);
        break;
    case TD_SLOT_TENSOR_STAT:
    case TD_SLOT_TENSOR_STAT_VALUE:
    case TD_SLOT_TENSOR_STAT_HEADING:
    case TD_SLOT_TENSOR_STAT_TEXT:
        write_stat(place, slot, out);
        break;
    case TD_SLOT_TENSOR_BIN_X:
    case TD_SLOT_TENSOR_BIN_Y:
    case TD_SLOT_TENSOR_BIN_WIDTH:
    case TD_SLOT_TENSOR_BIN_HEIGHT:
    case TD_SLOT_TENSOR_BIN_LOW:
    case TD_SLOT_TENSOR_BIN_HIGH:
    case TD_SLOT_TENSOR_BIN_COUNT:
        write_bin(place, slot, out);
        break;
    case TD_SLOT_TENSOR_MAP_SIZE:
    case TD_SLOT_TENSOR_MAP_WIDTH:
    case TD_SLOT_TENSOR_MAP_HEIGHT:
    case TD_SLOT_TENSOR_MAP_BOX:
    case TD_SLOT_TENSOR_MAP_LABEL:
    case TD_SLOT_TENSOR_CELL_X:
    case TD_SLOT_TENSOR_CELL_Y:
    case TD_SLOT_TENSOR_CELL_OPACITY:
    case TD_SLOT_TENSOR_CELL_VALUE:
        write_map(place, slot, out);
        break;
    case TD_SLOT_TENSOR_ELEMENT:
        write_element(page->stats->first[place->row[0]], out);
        break;
    case TD_SLOT_TENSOR_ALIAS:
    case TD_SLOT_TENSOR_ALIAS_LINK:
        write_alias(place, slot, out);
        break;
    case TD_SLOT_TENSOR_MORE_ALIAS_COUNT:
        td_shown_number(out, page->alias_count - shown_aliases(page));
        break;
    case TD_SLOT_TENSOR_PIECES_CAPTION:
        write_pieces_caption(page, out);
        break;
    case TD_SLOT_TENSOR_PIECE:
    case TD_SLOT_TENSOR_PIECE_FILE:
    case TD_SLOT_TENSOR_PIECE_OFFSET:
    case TD_SLOT_TENSOR_PIECE_OFFSET_SHOWN:
    case TD_SLOT_TENSOR_PIECE_START:
    case TD_SLOT_TENSOR_PIECE_SHAPE:
        write_piece(place, slot, out);
        break;
    case TD_SLOT_TENSOR_RAW_LINK:
        write_bytes_link(page, NULL, out);
        break;
    case TD_SLOT_TENSOR_NPY_LINK:
        write_bytes_link(page, "npy", out);
        break;
    case TD_SLOT_TENSOR_SAFETENSORS_LINK:
        write_bytes_link(page, "safetensors", out);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct page *page = place->context;
    const struct td_tensor *tensor = page->ref.tensor;
    const struct td_tensor_stats *of = page->stats;
    switch ((enum td_tensor_section)section) {
    case TD_SECTION_TENSOR_NO_STATS:
        return of == NULL;
    case TD_SECTION_TENSOR_SAMPLE:
        return of != NULL && of->sampled < of->elements;
    case TD_SECTION_TENSOR_STATS_HEAD:
    case TD_SECTION_TENSOR_STATS_END:
        return of != NULL;
    case TD_SECTION_TENSOR_STATS:
        return of == NULL ? 0 : (size_t)STATS;
    case TD_SECTION_TENSOR_HAS_STAT:
        return has_stat(page, (enum figure)place->row[0]);
    case TD_SECTION_TENSOR_HISTOGRAM_HEAD:
    case TD_SECTION_TENSOR_HISTOGRAM_END:
        return of != NULL && of->bin_count > 0;
    case TD_SECTION_TENSOR_BINS:
        return of == NULL ? 0 : of->bin_count;
    case TD_SECTION_TENSOR_MAP_HEAD:
    case TD_SECTION_TENSOR_MAP_END:
        return of != NULL && of->map_rows > 0;
    case TD_SECTION_TENSOR_CELLS:
        return of == NULL ? 0 : (size_t)of->map_rows * of->map_columns;
    case TD_SECTION_TENSOR_HAS_CELL:
        return has_cell(of, place->row[0]);
    case TD_SECTION_TENSOR_VALUES_HEAD:
    case TD_SECTION_TENSOR_VALUES_END:
        return of != NULL && of->first_count > 0;
    case TD_SECTION_TENSOR_VALUES:
        return of == NULL ? 0 : of->first_count;
    case TD_SECTION_TENSOR_LONG_NAME:
        return tensor->name_len > LONG_NAME_BYTES;
    case TD_SECTION_TENSOR_REFUSED:
        return tensor->reason != NULL;
    case TD_SECTION_TENSOR_FACTS:
        return page->fact_count;
    case TD_SECTION_TENSOR_PLAIN:
        return page->facts[place->row[0]] != FACT_FILE;
    case TD_SECTION_TENSOR_LINKED:
        return page->facts[place->row[0]] == FACT_FILE;
    case TD_SECTION_TENSOR_ALIASES_HEAD:
    case TD_SECTION_TENSOR_ALIASES_END:
        return page->alias_count > 0;
    case TD_SECTION_TENSOR_ALIASES:
        return shown_aliases(page);
    case TD_SECTION_TENSOR_MORE_ALIASES:
        return page->alias_count > SHOWN_ALIASES;
    case TD_SECTION_TENSOR_PIECES_HEAD:
    case TD_SECTION_TENSOR_PIECES_END:
        return tensor->piece_count > 0;
    case TD_SECTION_TENSOR_PIECES:
        return shown_pieces(page);
    case TD_SECTION_TENSOR_LINKS:
        return tensor->reason == NULL;
    case TD_SECTION_TENSOR_NPY:
        return td_npy_has_type(tensor->dtype);
    case TD_SECTION_TENSOR_SAFETENSORS:
        return td_dtype_is_safetensors(tensor->dtype);
    }
    return 0;
}

/* ---- the call ------------------------------------------------------------------------------------------ */

/* Finds the tensor that the path names, and all that the page shows of it. Returns false after it answered an error. */
static bool find_tensor(const struct td_call *call, struct page *page)
{
    struct td_error err = TD_ERROR_INIT;
    page->checkpoint = td_html_choose_checkpoint(call);
    if (page->checkpoint == NULL)
        return false;
    if (!td_tensor_find_in_path(page->checkpoint, call->rest, &page->number)) {
        td_call_fail_tensor(call, page->checkpoint);
        return false;
    }
    page->ref = td_checkpoint_tensor(page->checkpoint, page->number);
    if (!td_may_wait(&err) || !find_digest(call, page, &err) ||
        !find_stats(call, page, &err)) { /* a checkpoint may have many tensors */
        td_response_fail_error(call->response, &err);
        return false;
    }
    find_facts(page);
    find_aliases(page);
    return true;
}

void td_html_tensor(const struct td_call *call)
{
    static const struct td_page_class class = {
        .page = &td_template_tensor, .write = write_slot, .rows = count_rows, .destroy = destroy};
    static const char *const known[] = {"checkpoint", "partial", NULL};
    struct td_error err = TD_ERROR_INIT;
    if (!td_call_check_parameters(call, known))
        return;
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    td_error_init(&page->no_stats);
    page->snapshot = td_snapshot_ref(call->snapshot);
    page->model = call->model;
    page->shown = td_shown_model_of(call, call->model);
    if (!find_tensor(call, page)) {
        destroy(page);
        return;
    }
    if (!td_page_set(call->response, &class, page, &err))
        td_response_fail_error(call->response, &err);
}
