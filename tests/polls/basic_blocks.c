/* basic_blocks.c - what the compiler calls at each basic block
 * (-fsanitize-coverage=trace-pc), and the memory functions, which it does not see.
 * Itself compiled without. */
#include "basic_blocks.h"

#include <stddef.h>

enum { BLOCK_BYTES = 16 };

static _Thread_local uint64_t done;

uint64_t blocks_done(void) { return done; }

#ifdef ATTN_COUNT_BLOCKS
bool blocks_are_counted(void) { return true; }

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) { done++; }

void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_memset(void *to, int byte, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__wrap_memset(void *to, int byte, size_t n);

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    done += n / BLOCK_BYTES;
    return __real_memcpy(to, from, n);
}

void *__wrap_memmove(void *to, const void *from, size_t n)
{
    done += n / BLOCK_BYTES;
    return __real_memmove(to, from, n);
}

void *__wrap_memset(void *to, int byte, size_t n)
{
    done += n / BLOCK_BYTES;
    return __real_memset(to, byte, n);
}
#else
bool blocks_are_counted(void) { return false; }
#endif
