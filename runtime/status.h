/* status.h - how a call inside the library fails: a status, and a sentence in this
 * thread. */
#ifndef ATTN_STATUS_H
#define ATTN_STATUS_H

#include <stdbool.h>

#include "attnrun.h"

typedef attnrun_status attn_status;

#define TRY(call)                                                                        \
    do {                                                                                 \
        attn_status try_status_ = (call);                                                \
        if (try_status_ != ATTNRUN_OK)                                                   \
            return try_status_;                                                          \
    } while (0)

#define ATTN_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

/* Records "NAME: <sentence>" for this thread and returns `status`. Text that comes from a
 * file goes through attn_quote() first. */
attn_status attn_fail(attn_status status, const char *format, ...) ATTN_PRINTF(2, 3);
/* The same with the place of a node; `node` may be NULL. */
attn_status attn_fail_node(attn_status status, const attnrun_node *node,
                           const char *format, ...) ATTN_PRINTF(3, 4);
/* Adds a hint to the error recorded last in this thread. */
void attn_hint(const char *format, ...) ATTN_PRINTF(1, 2);
/* Adds " (did you mean 'x'?)" to the error recorded last, where one of words[0..n) is near. */
void attn_suggest(const char *word, const char *const *words, int64_t n);
/* Names the tensor that the error recorded last is about. */
void attn_fail_tensor(const char *name);
/* Copies an error into this thread's slot (from a worker's); returns its status. */
attn_status attn_fail_again(const attnrun_error *error);

/* What a call does that may fail on its way and yet succeed: with its success the error
 * of the last failed call is back. Returns `status`. */
void attn_call_begin(attnrun_error *before);
attn_status attn_call_end(attn_status status, const attnrun_error *before);
/* Counts what this thread recorded. */
uint64_t attn_error_count(void);
/* Whether a failure `status` has its sentence: one recorded in this thread since
 * attn_error_count() was `count`. The slot of the last error may hold that of another call. */
bool attn_error_is_of(attn_status status, uint64_t count);
/* Keeps a failure of this thread for another one: `status`, with its sentence where it has
 * one. attn_fail_again() gives both back. */
void attn_fail_keep(attn_status status, uint64_t count, attnrun_error *error);
/* What a function of an operator or a plugin returned; `node` may be NULL. A number that
 * is no status, and a failure without a sentence (none was recorded since
 * attn_error_count() was `count`), get one.
 */
attn_status attn_fail_quietly(attn_status status, uint64_t count,
                              const attnrun_node *node, const char *function);

/* A name from a file made safe to print by attnrun_escape(), cut after about 80 bytes.
 * Returns one of 8 rotating buffers of this thread. */
const char *attn_quote(const char *name);
/* attnrun_plural() in one of 8 rotating buffers of this thread. */
const char *attn_plural(int64_t n, const char *noun);

#endif
