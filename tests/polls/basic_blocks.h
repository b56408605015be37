/* basic_blocks.h - how much this thread has done: basic blocks, and bytes of memcpy(),
 * memset() and memmove() (BLOCK_BYTES are a block). 0 for ever in a build without
 * -DATTNRUN_COUNT=ON.
 */
#ifndef ATTN_TESTS_BASIC_BLOCKS_H
#define ATTN_TESTS_BASIC_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

bool blocks_are_counted(void);
uint64_t blocks_done(void);

#endif
