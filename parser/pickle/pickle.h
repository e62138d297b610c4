/* Pickles, protocols 0 to 5, read as data: a symbolic machine runs the opcodes over values of its own. Nothing is ever
 * resolved, imported or called. GLOBAL and REDUCE are recorded, not refused: a global as a pair of names, a call as its
 * callable and arguments. parser/torch/torch_rebuild decides later which calls make tensors.
 *
 * Sources: CPython 3.11, Lib/pickletools.py (the meaning of the opcodes) and Modules/_pickle.c (what is refused).
 * tests/interop/test_pickle.py compares values with both of CPython's unpicklers, and verdicts with the unpickler
 * written in Python.
 *
 * Values are named by small numbers (td_pickle_ref), and a GET or a DUP repeats the number. So time and memory are
 * linear in the pickle's length, however much is shared: 16 bytes for a value, 28 for a call, 4 for each place that
 * a value is put in (twice that where a container grows) and 4 for each memo entry. Reading a state dict takes about
 * five times the bytes of its pickle; no pickle takes more than 36 times its bytes.
 *
 * The result is a graph: values are shared, and lists, dicts, sets and objects can hold themselves. A walker must
 * therefore keep a stack of its own instead of recursing, and skip values that it has met (td_pickle_mark): a few
 * hundred bytes can unfold to 2^40 paths.
 *
 * This header has the parser. Its two parts read the result: pickle_value.h (values) and pickle_map.h (mappings).
 *
 * Threads: a struct td_pickle belongs to one thread at a time; nothing else is shared. */
#ifndef TD_PARSER_PICKLE_PICKLE_H
#define TD_PARSER_PICKLE_PICKLE_H

#include "core/error.h"
#include "parser/pickle/pickle_map.h"
#include "parser/pickle/pickle_types.h"
#include "parser/pickle/pickle_value.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_pickle_options {
    uint64_t base;           /* offset of bytes[0] in the file: added to every position */
    size_t max_memory_bytes; /* for all that the struct td_pickle allocates, scratch included; 0 = no bound */
    bool allow_trailing;     /* bytes after STOP are left to the caller (legacy torch files); else refused */
};

/* Runs the one pickle that begins at bytes[start] and ends at its STOP, never past bytes[len). *pickle needs no
 * initialising. Call td_pickle_fini in every case.
 * Errors: TD_INVALID_ARGUMENT at base + the position of the opcode or of its operand; TD_RESOURCE_EXHAUSTED for memory,
 * the bound, or len of 4 GiB and more.
 *
 * Refused although Python accepts it: EXT1/2/4, INST, OBJ, PERSID, NEXT_BUFFER and READONLY_BUFFER; values or marks
 * left on the stack at STOP (pickletools refuses these too); a persistent id that is not a tuple (torch refuses it
 * too); items or a state given to a tensor that torch would rebuild, or to a value of TorchScript; a second state for
 * an object; an OrderedDict, defaultdict or Counter made of anything but a dict or a list of pairs; numbers in text
 * that no writer spells so (0x10, 1_000, 010) or that have more than 4,300 digits; memo indices made up to collide. */
bool td_pickle_parse(struct td_pickle *pickle, const uint8_t *bytes, size_t len, size_t start,
                     const struct td_pickle_options *options, struct td_error *err);

void td_pickle_fini(struct td_pickle *pickle);

/* Returns how many bytes the pickle has allocated; the caller's bytes do not count. */
size_t td_pickle_memory_bytes(const struct td_pickle *pickle);

#endif
