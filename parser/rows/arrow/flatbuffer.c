#include "parser/rows/arrow/flatbuffer.h"

#include "core/input.h"

#include <inttypes.h>

enum { DISTANCE_BYTES = 4, SLOT_BYTES = 2, VTABLE_HEAD_BYTES = 4 };

static bool refuse_place(const struct td_flatbuffer *buffer, size_t at, const char *what)
{
    return td_error_at(buffer->err, TD_INVALID_ARGUMENT, buffer->base + at,
                       "%s leaves its flatbuffer, which has %zu bytes", what, buffer->len);
}

static bool holds_bytes(const struct td_flatbuffer *buffer, size_t at, size_t bytes)
{
    return at <= buffer->len && bytes <= buffer->len - at;
}

/* Follows the distance at `at`, which must be within the bytes. */
static bool follow_distance(const struct td_flatbuffer *buffer, size_t at, size_t *out)
{
    uint32_t distance = td_load_le32(buffer->bytes + at);
    if (distance > buffer->len - at)
        return refuse_place(buffer, at, "a distance");
    *out = at + distance;
    return true;
}

static bool table_at(const struct td_flatbuffer *buffer, size_t at, struct td_flat_table *out)
{
    if (!holds_bytes(buffer, at, DISTANCE_BYTES))
        return refuse_place(buffer, at, "a table");
    int64_t vtable = (int64_t)at - (int32_t)td_load_le32(buffer->bytes + at);
    if (vtable < 0 || !holds_bytes(buffer, (size_t)vtable, VTABLE_HEAD_BYTES))
        return refuse_place(buffer, at, "a vtable");
    *out = (struct td_flat_table){.at = at, .vtable = (size_t)vtable};
    out->vtable_bytes = td_load_le16(buffer->bytes + out->vtable);
    out->table_bytes = td_load_le16(buffer->bytes + out->vtable + SLOT_BYTES);
    if (out->vtable_bytes < VTABLE_HEAD_BYTES || !holds_bytes(buffer, out->vtable, out->vtable_bytes))
        return refuse_place(buffer, out->vtable, "a vtable");
    if (out->table_bytes < DISTANCE_BYTES || !holds_bytes(buffer, at, out->table_bytes))
        return refuse_place(buffer, at, "a table");
    return true;
}

bool td_flat_root(const struct td_flatbuffer *buffer, struct td_flat_table *out)
{
    size_t at = 0;
    if (!holds_bytes(buffer, 0, DISTANCE_BYTES))
        return refuse_place(buffer, 0, "the root");
    return follow_distance(buffer, 0, &at) && table_at(buffer, at, out);
}

/* Sets *at to the place of a field of `bytes` bytes; 0: the table does not have the field. */
static bool find_field(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                       size_t bytes, size_t *at)
{
    size_t slot = VTABLE_HEAD_BYTES + (size_t)field * SLOT_BYTES;
    *at = 0;
    if (slot + SLOT_BYTES > table->vtable_bytes)
        return true;
    uint16_t distance = td_load_le16(buffer->bytes + table->vtable + slot);
    if (distance == 0)
        return true;
    if (distance < DISTANCE_BYTES || distance > table->table_bytes || bytes > (size_t)table->table_bytes - distance)
        return td_error_at(buffer->err, TD_INVALID_ARGUMENT, buffer->base + table->at,
                           "field %u of a table is at %u in its %u bytes", field, (unsigned)distance,
                           (unsigned)table->table_bytes);
    *at = table->at + distance;
    return true;
}

bool td_flat_unsigned(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                      unsigned bytes, uint64_t absent, uint64_t *out)
{
    size_t at = 0;
    if (!find_field(buffer, table, field, bytes, &at))
        return false;
    *out = at == 0 ? absent : 0;
    for (unsigned i = 0; at != 0 && i < bytes; i++)
        *out |= (uint64_t)buffer->bytes[at + i] << (8 * i);
    return true;
}

bool td_flat_signed(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                    unsigned bytes, int64_t absent, int64_t *out)
{
    uint64_t value = 0;
    if (!td_flat_unsigned(buffer, table, field, bytes, (uint64_t)absent, &value))
        return false;
    *out = bytes == 1 ? (int8_t)value : bytes == 2 ? (int16_t)value : bytes == 4 ? (int32_t)value : (int64_t)value;
    return true;
}

bool td_flat_child(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                   struct td_flat_table *out)
{
    size_t at = 0, target = 0;
    *out = (struct td_flat_table){0};
    if (!find_field(buffer, table, field, DISTANCE_BYTES, &at))
        return false;
    return at == 0 || (follow_distance(buffer, at, &target) && table_at(buffer, target, out));
}

bool td_flat_vector(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                    size_t element_bytes, struct td_flat_vector *out)
{
    size_t at = 0, target = 0;
    *out = (struct td_flat_vector){0};
    if (!find_field(buffer, table, field, DISTANCE_BYTES, &at))
        return false;
    if (at == 0)
        return true;
    if (!follow_distance(buffer, at, &target))
        return false;
    if (!holds_bytes(buffer, target, DISTANCE_BYTES))
        return refuse_place(buffer, target, "a vector");
    out->count = td_load_le32(buffer->bytes + target);
    out->at = target + DISTANCE_BYTES;
    if (out->count > (buffer->len - out->at) / element_bytes)
        return refuse_place(buffer, target, "a vector");
    return true;
}

bool td_flat_text(const struct td_flatbuffer *buffer, const struct td_flat_table *table, unsigned field,
                  struct td_text *out)
{
    struct td_flat_vector vector;
    if (!td_flat_vector(buffer, table, field, 1, &vector))
        return false;
    *out = td_text_n((const char *)buffer->bytes + vector.at, vector.count);
    return true;
}

bool td_flat_element(const struct td_flatbuffer *buffer, const struct td_flat_vector *vector, uint32_t i,
                     struct td_flat_table *out)
{
    size_t target = 0;
    return follow_distance(buffer, vector->at + (size_t)i * DISTANCE_BYTES, &target) && table_at(buffer, target, out);
}
