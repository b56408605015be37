/* fill.h - a hook of the tests: memory that a run must write before it reads.
 *
 * in:  a byte, set by a test before it runs contexts; -1 switches the hook off
 * out: the arena before a run, and each step's outputs and scratch before the step, hold
 *      that byte
 *
 * Two runs with different bytes give the same results where nothing reads what no step
 * wrote. Outputs that share memory with an input (views, in-place results, appended
 * states) are left as they are. With ATTN_MSAN, MemorySanitizer is told instead that nothing
 * is written there yet; or with ATTN_FILL_STOPPED that all is, for runs that a test stops: a step
 * that a poll has stopped goes on with values that were never computed, and nobody sees them. */
#ifndef ATTN_FILL_H
#define ATTN_FILL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef ATTN_MSAN
#include <sanitizer/msan_interface.h>
#endif

struct attn_step;

enum { ATTN_FILL_STOPPED = -2 };

/* The byte, -1, or ATTN_FILL_STOPPED. Only tests write it, and only while no context runs. */
extern int32_t attn_fill_byte;

/* Memory that is given to somebody, who has to write it before reading it. */
static inline void attn_unwritten(void *memory, int64_t bytes)
{
#ifdef ATTN_MSAN
    if (memory != NULL && bytes > 0 && attn_fill_byte == ATTN_FILL_STOPPED)
        __msan_unpoison(memory, (size_t)bytes);
    else if (memory != NULL && bytes > 0)
        __msan_allocated_memory(memory, (size_t)bytes);
#else
    (void)memory;
    (void)bytes;
#endif
}

static inline bool attn_fill_is_on(void)
{
#ifdef ATTN_MSAN
    return true;
#else
    return attn_fill_byte >= 0;
#endif
}

/* Fills [memory, memory + bytes) where the hook is on. */
static inline void attn_fill(void *memory, int64_t bytes)
{
    if (attn_fill_byte >= 0 && memory != NULL && bytes > 0)
        memset(memory, attn_fill_byte, (size_t)bytes);
    attn_unwritten(memory, bytes);
}

/* Fills the outputs, the scratch and the shared memory of a step that is about to run. */
void attn_fill_step(const struct attn_step *step);

#endif
