/* write_all.h - bytes to a function of the caller, a segment at a time. */
#ifndef ATTN_WRITE_ALL_H
#define ATTN_WRITE_ALL_H

#include "../runtime/model.h"
#include "../runtime/poll.h"

/* E_IO where the caller's function fails: it "could not write the <what>". */
static inline attn_status attn_write_all(attnrun_write_fn write, void *user,
                                         const void *bytes, int64_t n, const char *what)
{
    const int64_t segment = 1 << 20;
    for (int64_t at = 0; at < n; at += segment) {
        const int64_t some = min64(segment, n - at);
        if (write(user, (const char *)bytes + at, (uint64_t)some) != 0)
            return attn_fail(ATTNRUN_E_IO, "the caller could not write the %s", what);
        TRY(attn_poll_work(some));
    }
    return ATTNRUN_OK;
}

#endif
