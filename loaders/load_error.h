/* load_error.h - the sentence and the hint of a failure, to be said once more with more around
 * the sentence. */
#ifndef ATTN_LOAD_ERROR_H
#define ATTN_LOAD_ERROR_H

#include "../runtime/status.h"

enum { ATTN_LOAD_MESSAGE = 640 };

struct attn_load_failure {
    char sentence[ATTN_LOAD_MESSAGE]; /* without the name of the status */
    char hint[sizeof(((attnrun_error *)0)->hint)];
};

/* What is recorded of the failure `status` since `errors`. */
void attn_load_failure_read(uint64_t errors, attn_status status,
                            struct attn_load_failure *failure);
/* Gives its hint to the failure that is recorded now, and returns the status. */
attn_status attn_load_failure_hint(const struct attn_load_failure *failure,
                                   attn_status status);

#endif
