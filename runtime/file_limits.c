/* file_limits.c - in: the limits of a caller, some of them 0; out: all of them, or E_USAGE; see
 * file_limits.h. The list with its defaults is in attnrun.h. */
#include "file_limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"

const attnrun_limits attn_limits_standard = { .struct_size = sizeof attn_limits_standard,
#define X(id, name, standard, largest, text) .name = (standard),
                                              ATTNRUN_LIMIT_LIST(X)
#undef X
};

static const struct limit_row {
    const char *name;
    size_t offset;
    int64_t largest;
} rows[] = {
#define X(id, name, standard, most, text)                                                \
    { #name, offsetof(attnrun_limits, name), (most) },
    ATTNRUN_LIMIT_LIST(X)
#undef X
};

int64_t attn_limit(const attnrun_limits *limits, enum attn_limit which)
{
    int64_t value;
    memcpy(&value, (const char *)limits + rows[which].offset, sizeof value);
    return value;
}

attn_status attn_limits_read(const attnrun_limits *given, attnrun_limits *limits)
{
    attnrun_limits read;
    *limits = attn_limits_standard;
    if (given == NULL)
        return ATTNRUN_OK;
    TRY(attn_struct_read(given, &read, sizeof read, "attnrun_limits"));
    TRY(attn_reserved_check(read.reserved, "attnrun_limits"));
    for (int i = 0; i < ATTN_LIMIT_COUNT; i++) {
        const int64_t value = attn_limit(&read, (enum attn_limit)i);
        if (value < 0 || value > rows[i].largest)
            return attn_fail(ATTNRUN_E_USAGE,
                             "the limit '%s' is %lld, expected 0 (the default) to %lld",
                             rows[i].name, (long long)value, (long long)rows[i].largest);
        if (value != 0)
            memcpy((char *)limits + rows[i].offset, &value, sizeof value);
    }
    return ATTNRUN_OK;
}

attn_status attn_fail_limit(enum attn_limit which, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    attn_fail(ATTNRUN_E_LIMIT, "%s (limit '%s')", text, rows[which].name);
    attn_hint_limit(which);
    return ATTNRUN_E_LIMIT;
}

void attn_hint_limit(enum attn_limit which)
{
    if (attn_limit(&attn_limits_standard, which) < rows[which].largest)
        attn_hint("--limit %s=N or attnrun_limits changes this limit", rows[which].name);
}
