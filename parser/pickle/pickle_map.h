/* The mappings of a parsed pickle (pickle.h): a DICT or something like it. Items are in the order in which they were
 * set, and keys are unique: of items with equal keys the last value counts, at the place of the first item, as in
 * Python. Keys are equal as follows: None; BOOL, INT and FLOAT by value; strings; bytes; all else only when it is the
 * same value, so equal tuples are different keys. Any thread may call the functions, which only read the pickle, but
 * td_pickle_finish_maps, which belongs to parsing. */
#ifndef TD_PARSER_PICKLE_PICKLE_MAP_H
#define TD_PARSER_PICKLE_PICKLE_MAP_H

#include "parser/pickle/pickle_types.h"

#include <stdbool.h>
#include <stdint.h>

/* Owns nothing; valid as long as the pickle. */
struct td_pickle_map {
    td_pickle_ref owner; /* the value that holds the items */
    uint32_t count;      /* items */
};

/* Fills *map with the items of a DICT, of an OBJECT that items were set in, or of an OrderedDict, defaultdict or
 * Counter of `collections`, with or without items. The items that a REDUCE of these three was given, a mapping or pairs
 * (OrderedDict as Python 2 wrote it), were copied at the call, as Python does. Returns false, and an empty map, for
 * every other value. */
bool td_pickle_map(const struct td_pickle *pickle, td_pickle_ref ref, struct td_pickle_map *map);

/* Return key and value of item i; NIL where i is not below map->count. */
td_pickle_ref td_pickle_map_key(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);
td_pickle_ref td_pickle_map_value(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);

/* Returns the value of the STRING key that is exactly this text, or NIL. Takes logarithmic time. */
td_pickle_ref td_pickle_map_find(const struct td_pickle *pickle, const struct td_pickle_map *map, const char *key);

/* Returns the same for the mapping `ref`; NIL when `ref` is not a mapping. */
td_pickle_ref td_pickle_get(const struct td_pickle *pickle, td_pickle_ref ref, const char *key);

/* Returns whether an OBJECT is a call of one of the three mappings of `collections`. If so, sets *argument to the index
 * of the call's argument that holds the first items, and *of_pairs to whether that argument may be a list of pairs;
 * else leaves both alone. Only for parser/pickle. */
bool td_pickle_known_mapping(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t *argument, bool *of_pairs);

/* Makes the keys of every map unique, and gives large maps an order to find keys by: the last step of parsing. Takes n
 * log n time in the pickle's length. Returns false when out of memory, or past the store's bound. Only for
 * parser/pickle. */
bool td_pickle_finish_maps(struct td_pickle *pickle);

#endif
