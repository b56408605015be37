/* load_error.c - errors of inner calls, reported once more with the place in the file where
 * they happened. In: a status and names of node, tensor or function. Out: the same status. */
#include <string.h>

#include "onnx_load.h"

enum { MESSAGE = 640 };

/* The sentence recorded last without the name of its status. */
static void last_sentence(char *text)
{
    const char *message = attnrun_last_error()->message;
    const char *colon = strstr(message, ": ");
    const char *sentence = colon != NULL ? colon + 2 : message;
    size_t length = strnlen(sentence, MESSAGE - 1);
    memcpy(text, sentence, length);
    text[length] = 0;
}

attn_status attn_load_fail(const struct attn_load *load, attn_status status,
                           const PB(NodeProto) * pb)
{
    char text[MESSAGE];
    if (attnrun_last_error()->op_type[0] != 0) /* names its node already */
        return status;
    attnrun_node node = { .name = pb_text(pb->name),
                          .op_type = pb_text(pb->op_type),
                          .domain = attn_domain(pb->domain),
                          .index = load->at };
    last_sentence(text);
    return attn_fail_node(status, &node, "%s", text);
}

attn_status attn_load_fail_in(attn_status status, const char *what, const char *name)
{
    char text[MESSAGE];
    last_sentence(text);
    attn_fail(status, "%s '%s': %s", what, attn_quote(name), text);
    return status;
}
