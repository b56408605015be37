/* meter.h - the poll as loops call it, in kernels too: work is added up for each thread,
 * and where ATTN_POLL_BYTES have come together, the flag and the clock are read (poll.h). */
#ifndef ATTN_METER_H
#define ATTN_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

struct attn_control;

/* Of this thread. control NULL: nobody can stop the call that is under way. */
struct attn_meter {
    struct attn_control *control;
    int64_t left; /* bytes of work until attn_poll_work() polls */
};
extern _Thread_local struct attn_meter attn_meter;

/* Work is counted in bytes read or written; ten operations of arithmetic are a byte. */
enum { ATTN_POLL_BYTES = 1 << 18 };

/* Reads the flag and the clock. E_CANCELLED or E_TIME, with the sentence recorded. */
attn_status attn_poll(void);

/* After `bytes` of work: polls where ATTN_POLL_BYTES have come together. */
static inline attn_status attn_poll_work(int64_t bytes)
{
    if (attn_meter.left > bytes) {
        attn_meter.left -= bytes;
        return ATTNRUN_OK;
    }
    return attn_poll();
}

/* In the condition of a long loop that cannot fail, `i` its counter: true where the call
 * is to end. What the loop makes stays unfinished then, and nobody may see it: loading
 * and planning poll once more before they use it, and the runtime ends a step that a poll
 * has stopped, whatever its run() returns. Polls after 16,384 turns;
 * a loop around it that may have many short ones polls for itself. */
static inline bool attn_stops(int64_t i)
{
    return (i & 16383) == 16383 && attn_poll_work(ATTN_POLL_BYTES / 2) != ATTNRUN_OK;
}
/* The same for turns of about 4 kB of work: a node, say. */
static inline bool attn_stops_node(int64_t i)
{
    return (i & 31) == 31 && attn_poll_work(ATTN_POLL_BYTES / 2) != ATTNRUN_OK;
}

/* For kernels: a loop over n elements of `bytes` bytes each goes in segments. `*end` is
 * where the one before ended, 0 at first, and becomes the end of the next: a multiple of
 * 1,024, or n. False where all is done or the call is to end. `bytes`: at most 256. */
static inline bool attn_segment_of(size_t *end, size_t n, size_t bytes)
{
    const size_t size = ATTN_POLL_BYTES / bytes / 1024 * 1024;
    if (*end >= n || (*end > 0 && attn_poll_work(ATTN_POLL_BYTES) != ATTNRUN_OK))
        return false;
    *end = n - *end > size ? *end + size : n;
    return true;
}
/* The same for floats. */
static inline bool attn_segment(size_t *end, size_t n)
{
    return attn_segment_of(end, n, sizeof(float));
}

#endif
