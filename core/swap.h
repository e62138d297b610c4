/* Byte order: which bytes of an element change places when big-endian becomes little-endian. */
#ifndef TD_CORE_SWAP_H
#define TD_CORE_SWAP_H

#include <stddef.h>
#include <stdint.h>

/* A block of block_bytes holds `count` numbers of `width` bytes each, one after the other from byte `off` on. All other
 * bytes stay where they are. Width 1 or count 0: all bytes stay. */
struct td_swap {
    uint16_t block_bytes, off, width, count;
};

/* Reverses the bytes of every such number in blocks * block_bytes bytes. */
void td_swap_blocks(const struct td_swap *swap, void *bytes, size_t blocks);

#endif
