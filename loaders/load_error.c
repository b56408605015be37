/* load_error.c - errors of inner calls, reported once more with the place in the file where
 * they happened. In: a status and names of file, tensor or function. Out: the same status. */
#include <string.h>

#include "load_error.h"
#include "model_open.h"

enum { MESSAGE = ATTN_LOAD_MESSAGE };

void attn_load_sentence(uint64_t errors, attn_status status, char *text)
{
    const char *sentence = "failed without a message";
    if (attn_error_is_of(status, errors)) {
        const char *message = attnrun_last_error()->message;
        const char *colon = strstr(message, ": ");
        sentence = colon != NULL ? colon + 2 : message;
    }
    size_t length = strnlen(sentence, MESSAGE - 1);
    memcpy(text, sentence, length);
    text[length] = 0;
}

attn_status attn_open_fail_in(uint64_t errors, attn_status status, const char *what,
                              const char *name)
{
    char text[MESSAGE];
    attn_load_sentence(errors, status, text);
    return attn_fail(status, "%s '%s': %s", what, attn_quote(name), text);
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
    char text[MESSAGE], hint[sizeof attnrun_last_error()->hint] = "";
    if (attn_error_is_of(status, errors))
        memcpy(hint, attnrun_last_error()->hint, sizeof hint);
    attn_load_sentence(errors, status, text);
    if (source->path != NULL)
        attn_fail(status, "file '%s': %s", attn_quote(attn_open_name(source)), text);
    else
        attn_fail(status, "the model: %s", text);
    if (hint[0] != 0)
        attn_hint("%s", hint);
    return status;
}
