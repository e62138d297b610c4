/* Byte order: which bytes of a tensor are reversed to turn big-endian numbers into little-endian ones. */
#ifndef TD_CORE_SWAP_H
#define TD_CORE_SWAP_H

#include <stddef.h>
#include <stdint.h>

/* A tensor's bytes are blocks of block_bytes. In each block, `count` numbers of `width` bytes follow one another from
 * byte `off` on and end within the block. The bytes of each number are reversed, all other bytes stay. Width 0 or 1, or
 * count 0: all bytes stay. */
struct td_swap {
    uint16_t block_bytes, off, width, count;
};

/* Reverses the bytes of each number in `blocks` blocks at `bytes`, in place. `bytes` need not be aligned. */
void td_swap_blocks(const struct td_swap *swap, void *bytes, size_t blocks);

#endif
