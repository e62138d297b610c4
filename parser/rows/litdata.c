#include "parser/rows/litdata.h"

#include "parser/rows/index/row_format.h"
#include "parser/rows/offset_table.h"

#include <inttypes.h>
#include <string.h>

enum {
    MAGIC_BYTES = 8,
    FRAMED_HEAD_BYTES = 24, /* magic, u16 version, u16 flags, u32 rows, u32 rows of a frame, u32 frames */
    FRAMED_FRAME_BYTES = 24,
    FOOTER_TAIL_BYTES = 4 + MAGIC_BYTES /* u32 bytes of the Arrow file before it, magic */
};

static const char framed_magic[MAGIC_BYTES] = "LDFZ01\0";
static const char footer_magic[MAGIC_BYTES] = "LDARW01";

/* Counts the rows of a chunk in frames. Its table of offsets begins after the head; the offsets are of the unpacked
 * items. */
static bool build_framed(const struct td_input *data, struct td_row_index *out, struct td_error *err)
{
    uint8_t head[FRAMED_HEAD_BYTES];
    if (data->size_bytes < sizeof head)
        return td_error_at(err, TD_INVALID_ARGUMENT, data->size_bytes,
                           "LitData chunk in frames: it has %" PRIu64 " bytes, fewer than its head of %d",
                           data->size_bytes, FRAMED_HEAD_BYTES);
    if (!td_input_read(data, 0, head, sizeof head, err))
        return false;
    unsigned version = td_load_le16(head + 8);
    if (version != 1)
        return td_error_at(err, TD_INVALID_ARGUMENT, 8, "LitData chunk in frames: version %u is unknown; 1 is known",
                           version);
    uint64_t rows = td_load_le32(head + 12), frames = td_load_le32(head + 20);
    uint64_t end = FRAMED_HEAD_BYTES + 4 * (rows + 1) + FRAMED_FRAME_BYTES * frames;
    if (end > data->size_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, 12,
                           "LitData chunk in frames: its tables would end at byte %" PRIu64
                           ", but the file has %" PRIu64,
                           end, data->size_bytes);
    out->layout = TD_ROWS_OFFSETS;
    out->row_count = rows;
    out->params[0] = FRAMED_HEAD_BYTES;
    out->params[1] = 4;
    return td_row_index_set_reason(
        out, "its rows are packed in frames (zstd); write them with compression_level=\"sample\" or none", err);
}

/* Checks that the rows are followed by an Arrow file with its tail and nothing else. */
static bool check_footer(const struct td_input *data, const struct td_offset_table *table, struct td_error *err)
{
    uint8_t tail[FOOTER_TAIL_BYTES];
    uint64_t behind = data->size_bytes - table->last;
    bool fits = behind >= sizeof tail;
    if (fits && !td_input_read(data, data->size_bytes - sizeof tail, tail, sizeof tail, err))
        return false;
    if (fits && memcmp(tail + 4, footer_magic, MAGIC_BYTES) == 0 && td_load_le32(tail) == behind - sizeof tail)
        return true;
    return td_error_at(err, TD_INVALID_ARGUMENT, table->last,
                       "LitData chunk: its last row ends at byte %" PRIu64 ", but the file has %" PRIu64, table->last,
                       data->size_bytes);
}

static bool index_litdata(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    const struct td_input *data = &build->files->data;
    char magic[MAGIC_BYTES] = {0};
    struct td_offset_table table;
    if (data->size_bytes >= sizeof magic && !td_input_read(data, 0, magic, sizeof magic, err))
        return false;
    if (memcmp(magic, framed_magic, sizeof magic) == 0)
        return build_framed(data, out, err);
    if (!td_offset_table_read(data, "LitData chunk", &table, out, err))
        return false;
    if (table.first != table.end)
        return td_error_at(err, TD_INVALID_ARGUMENT, 4,
                           "LitData chunk: its first row begins at byte %" PRIu64 ", not after the table at %" PRIu64,
                           table.first, table.end);
    if (table.last == data->size_bytes)
        return true;
    if (!check_footer(data, &table, err))
        return false;
    return table.last > table.first || table.row_count == 0 ||
           td_row_index_set_reason(out, "its rows are in an Arrow file after the table; litdata itself reads it", err);
}

static const char *const extensions[] = {NULL};

const struct td_row_format td_row_format_litdata = {
    .name = "litdata", .extensions = extensions, .row_type = "application/octet-stream", .build = index_litdata};
