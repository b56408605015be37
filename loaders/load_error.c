/* load_error.c - errors of inner calls, reported once more with the place in the file where
 * they happened. In: a status and names of node, tensor or function. Out: the same status. */
#include <string.h>

#include "onnx_load.h"

enum { MESSAGE = 640 };

/* The sentence of the failure `status`, without its name. */
static void sentence_of(const struct attn_load *load, attn_status status, char *text)
{
    const char *sentence = "failed without a message";
    if (attn_error_is_of(status, load->errors)) {
        const char *message = attnrun_last_error()->message;
        const char *colon = strstr(message, ": ");
        sentence = colon != NULL ? colon + 2 : message;
    }
    size_t length = strnlen(sentence, MESSAGE - 1);
    memcpy(text, sentence, length);
    text[length] = 0;
}

attn_status attn_load_fail(const struct attn_load *load, attn_status status,
                           const PB(NodeProto) * pb)
{
    char text[MESSAGE];
    if (attn_error_is_of(status, load->errors) && attnrun_last_error()->op_type[0] != 0)
        return status; /* names its node already */
    attnrun_node node = { .name = pb_text(pb->name),
                          .op_type = pb_text(pb->op_type),
                          .domain = attn_domain(pb->domain),
                          .index = load->at };
    sentence_of(load, status, text);
    return attn_fail_node(status, &node, "%s", text);
}

attn_status attn_load_fail_in(const struct attn_load *load, attn_status status,
                              const char *what, const char *name)
{
    char text[MESSAGE];
    sentence_of(load, status, text);
    return attn_fail(status, "%s '%s': %s", what, attn_quote(name), text);
}
