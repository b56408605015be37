/* load_error.c - errors of inner calls, reported once more with the place in the file where
 * they happened. In: a status and names of file, tensor or function. Out: the same status. */
#include <stdio.h>
#include <string.h>

#include "load_error.h"
#include "model_open.h"

void attn_load_failure_read(uint64_t errors, attn_status status,
                            struct attn_load_failure *failure)
{
    const char *sentence = "failed without a message", *hint = "";
    if (attn_error_is_of(status, errors)) {
        const char *message = attnrun_last_error()->message;
        const char *colon = strstr(message, ": ");
        sentence = colon != NULL ? colon + 2 : message;
        hint = attnrun_last_error()->hint;
    }
    snprintf(failure->sentence, sizeof failure->sentence, "%.*s", ATTN_LOAD_MESSAGE - 1,
             sentence);
    snprintf(failure->hint, sizeof failure->hint, "%s", hint);
}

attn_status attn_load_failure_hint(const struct attn_load_failure *failure,
                                   attn_status status)
{
    if (failure->hint[0] != 0)
        attn_hint("%s", failure->hint);
    return status;
}

attn_status attn_open_fail_in(uint64_t errors, attn_status status, const char *what,
                              const char *name)
{
    struct attn_load_failure failure;
    attn_load_failure_read(errors, status, &failure);
    attn_fail(status, "%s '%s': %s", what, attn_quote(name), failure.sentence);
    return attn_load_failure_hint(&failure, status);
}

const char *attn_open_name(const attnrun_source *source)
{
    const char *path = source->path == NULL ? "" : source->path;
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

attn_status attn_open_fail(uint64_t errors, attn_status status,
                           const attnrun_source *source)
{
    struct attn_load_failure failure;
    attn_load_failure_read(errors, status, &failure);
    if (source->path != NULL)
        attn_fail(status, "file '%s': %s", attn_quote(attn_open_name(source)),
                  failure.sentence);
    else
        attn_fail(status, "the model: %s", failure.sentence);
    return attn_load_failure_hint(&failure, status);
}
