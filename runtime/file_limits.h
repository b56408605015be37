/* file_limits.h - the limits of what a file may ask for: attnrun_limits with all members set, by
 * number, and the failure of a call that goes over one, whose sentence names the limit. */
#ifndef ATTN_FILE_LIMITS_H
#define ATTN_FILE_LIMITS_H

#include "status.h"

enum attn_limit {
#define X(id, name, standard, largest, text) ATTN_LIMIT_##id,
    ATTNRUN_LIMIT_LIST(X)
#undef X
        ATTN_LIMIT_COUNT
};

/* The defaults, for what is read without a model. */
extern const attnrun_limits attn_limits_standard;

/* All members of the caller's limits, 0 and NULL being the defaults. E_USAGE for one below 0 or
 * above what the library can keep. */
attn_status attn_limits_read(const attnrun_limits *given, attnrun_limits *limits);
int64_t attn_limit(const attnrun_limits *limits, enum attn_limit which);
/* E_LIMIT with a sentence that ends with the limit's name. */
attn_status attn_fail_limit(enum attn_limit which, const char *format, ...)
    ATTN_PRINTF(2, 3);
/* Adds to the failure recorded last how to raise this limit, where it can be raised. */
void attn_hint_limit(enum attn_limit which);

#endif
