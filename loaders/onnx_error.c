/* onnx_error.c - errors of inner calls, reported once more with the node or the part of an ONNX
 * file where they happened. In: a status and a message of the file. Out: the same status. */
#include "load_error.h"
#include "model_open.h"
#include "onnx_load.h"

attn_status attn_load_fail(const struct attn_load *load, attn_status status,
                           const PB(NodeProto) * pb)
{
    struct attn_load_failure failure;
    if (attn_error_is_of(status, load->errors) && attnrun_last_error()->op_type[0] != 0)
        return status; /* names its node already */
    attnrun_node node = { .name = pb_text(pb->name),
                          .op_type = pb_text(pb->op_type),
                          .domain = attn_domain(pb->domain),
                          .index = load->at };
    attn_load_failure_read(load->errors, status, &failure);
    attn_fail_node(status, &node, "%s", failure.sentence);
    return attn_load_failure_hint(&failure, status);
}

attn_status attn_load_fail_in(const struct attn_load *load, attn_status status,
                              const char *what, const char *name)
{
    return attn_open_fail_in(load->errors, status, what, name);
}
