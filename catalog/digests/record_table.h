/* Tables of records of one size, with hash indexes over parts of them. A log of records (catalog/digests/record_log.h)
 * stores such a table on disk. Records keep the order in which they were added. Not thread-safe. */
#ifndef TD_CATALOG_DIGESTS_RECORD_TABLE_H
#define TD_CATALOG_DIGESTS_RECORD_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_RECORD_TABLE_INDEXES = 2 };

/* The part of a record that is the key of an index, and the field that links records with equal keys. */
struct td_record_part {
    size_t off, bytes; /* `bytes` is a multiple of 8 */
    size_t link_off;   /* of a uint32_t in the record, for td_record_table_before; 0: no link */
};

struct td_record_table {
    /* set by the owner before the first call; all else is zero */
    size_t record_bytes;
    size_t index_count;
    struct td_record_part parts[TD_RECORD_TABLE_INDEXES];

    size_t count, capacity;
    uint8_t *records; /* `count` of them */
    uint32_t *slots[TD_RECORD_TABLE_INDEXES];
    size_t slot_count; /* of each index: a power of two, at least twice `count` */
};

/* Prepares an empty table. Returns false, with nothing to undo, when memory is short. */
bool td_record_table_init(struct td_record_table *table);

/* Frees the table. */
void td_record_table_fini(struct td_record_table *table);

/* Returns the record that was added last among those with these bytes in the part of the index, or NULL. It is valid
 * until the next change of the table. */
void *td_record_table_find(const struct td_record_table *table, size_t index, const void *bytes);

/* Returns the record that was added before this one and has the same bytes, or NULL. The index must have a link. */
void *td_record_table_before(const struct td_record_table *table, size_t index, const void *record);

/* Adds a copy of the record. Returns false when memory is short. */
bool td_record_table_add(struct td_record_table *table, const void *record);

/* Drops all records for which `keep` returns false. */
void td_record_table_sift(struct td_record_table *table, bool (*keep)(void *context, const void *record),
                          void *context);

#endif
