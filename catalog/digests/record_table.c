/* Plan: the records are an array; each index is a hash table (open addressing) of numbers of records plus 1. */
#include "catalog/digests/record_table.h"

#include "core/array.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = 0, FIRST_SLOTS = 256 };

static uint8_t *record_at(const struct td_record_table *table, size_t i)
{
    return table->records + i * table->record_bytes;
}

static uint64_t hash(const uint8_t *bytes, size_t len)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i += sizeof hash) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Returns the slot of these bytes, or the free one where they belong. There is always a free one. */
static uint32_t *find_slot(const struct td_record_table *table, size_t index, const uint8_t *bytes)
{
    const struct td_record_part *part = &table->parts[index];
    uint32_t *slots = table->slots[index];
    size_t at = (size_t)hash(bytes, part->bytes) & (table->slot_count - 1);
    while (slots[at] != NONE && memcmp(record_at(table, slots[at] - 1) + part->off, bytes, part->bytes) != 0)
        at = (at + 1) & (table->slot_count - 1);
    return &slots[at];
}

/* Adds record i to all indexes. */
static void enter(struct td_record_table *table, size_t i)
{
    uint8_t *record = record_at(table, i);
    for (size_t index = 0; index < table->index_count; index++) {
        const struct td_record_part *part = &table->parts[index];
        uint32_t *slot = find_slot(table, index, record + part->off);
        if (part->link_off != 0)
            memcpy(record + part->link_off, slot, sizeof *slot);
        *slot = (uint32_t)i + 1;
    }
}

static void enter_all(struct td_record_table *table)
{
    for (size_t index = 0; index < table->index_count; index++)
        memset(table->slots[index], 0, table->slot_count * sizeof(uint32_t));
    for (size_t i = 0; i < table->count; i++)
        enter(table, i);
}

/* Gives all indexes this number of slots. */
static bool set_slots(struct td_record_table *table, size_t slot_count)
{
    uint32_t *slots[TD_RECORD_TABLE_INDEXES] = {NULL};
    bool ok = true;
    for (size_t index = 0; index < table->index_count; index++) {
        slots[index] = calloc(slot_count, sizeof(uint32_t));
        ok = ok && slots[index] != NULL;
    }
    for (size_t index = 0; index < table->index_count; index++) {
        free(ok ? table->slots[index] : slots[index]);
        table->slots[index] = ok ? slots[index] : table->slots[index];
    }
    if (!ok)
        return false;
    table->slot_count = slot_count;
    enter_all(table);
    return true;
}

bool td_record_table_init(struct td_record_table *table)
{
    return set_slots(table, FIRST_SLOTS);
}

void td_record_table_fini(struct td_record_table *table)
{
    free(table->records);
    for (size_t index = 0; index < table->index_count; index++)
        free(table->slots[index]);
}

void *td_record_table_find(const struct td_record_table *table, size_t index, const void *bytes)
{
    uint32_t number = *find_slot(table, index, bytes);
    return number == NONE ? NULL : record_at(table, number - 1);
}

void *td_record_table_before(const struct td_record_table *table, size_t index, const void *record)
{
    uint32_t number;
    memcpy(&number, (const uint8_t *)record + table->parts[index].link_off, sizeof number);
    return number == NONE ? NULL : record_at(table, number - 1);
}

bool td_record_table_add(struct td_record_table *table, const void *record)
{
    if (!td_array_reserve(&table->records, &table->capacity, table->count + 1, table->record_bytes, NULL, NULL) ||
        (table->count + 1 > table->slot_count / 2 && !set_slots(table, table->slot_count * 2)))
        return false;
    memcpy(record_at(table, table->count), record, table->record_bytes);
    enter(table, table->count++);
    return true;
}

void td_record_table_sift(struct td_record_table *table, bool (*keep)(void *context, const void *record), void *context)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++)
        if (keep(context, record_at(table, i)))
            memmove(record_at(table, kept++), record_at(table, i), table->record_bytes);
    table->count = kept;
    enter_all(table);
}
