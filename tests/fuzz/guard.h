/* guard.h - memory for fuzzing that ends at a page nobody may touch: a read or a write past its
 * end ends the process, also in a release build. */
#ifndef ATTN_FUZZ_GUARD_H
#define ATTN_FUZZ_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* NULL where there is none. `align`: a power of two, at most a page. */
void *guard_alloc(size_t bytes, size_t align);
/* False where a byte in front of the guard page, or of the block, was written. */
bool guard_free(void *memory, size_t bytes, size_t align);

#endif
