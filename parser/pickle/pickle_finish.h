/* The last step of parsing a pickle. Only for parser/pickle. */
#ifndef TD_PARSER_PICKLE_PICKLE_FINISH_H
#define TD_PARSER_PICKLE_PICKLE_FINISH_H

#include "parser/pickle/pickle_types.h"

#include <stdbool.h>

/* Makes the keys of every map unique, and gives large maps an order to find keys by. Takes n log n time in the pickle's
 * length. Returns false when out of memory, or past the store's bound. */
bool td_pickle_finish_maps(struct td_pickle *pickle);

#endif
