/* body.c - the nodes that take the place of a node, while expand() of its row writes them.
 *
 * In: names for operands of the call, numbers and lists; operators with their operands, which
 * formula.c reads. Out: nodes behind those of the graph, named "<name of the call>/<operator>";
 * their function is the operator of the call. Outputs of the call become those of the nodes. */
#include "body.h"

#include <stdio.h>

/* ---- names ---- */

struct body_name *attn_body_find(const struct attnrun_body *body, const char *text)
{
    for (int64_t i = 0; i < body->n_names; i++)
        if (strcmp(body->names[i].text, text) == 0)
            return &body->names[i];
    return NULL;
}

void attn_body_set(struct attnrun_body *body, const char *text, struct body_name meaning)
{
    if (body == NULL || text == NULL || body->status != ATTNRUN_OK)
        return;
    struct body_name *name = attn_body_find(body, text);
    if (name == NULL) {
        if (body->n_names == body->names_capacity)
            body->status = attn_pool_grow(body->scratch, (void **)&body->names,
                                          &body->names_capacity, body->n_names,
                                          (int64_t)sizeof *name);
        if (body->status != ATTNRUN_OK)
            return;
        name = &body->names[body->n_names++];
    }
    snprintf(meaning.text, sizeof meaning.text, "%s", text);
    *name = meaning;
}

void attnrun_body_dtype(attnrun_body *body, int32_t dtype)
{
    if (body != NULL)
        body->dtype = dtype;
}

void attnrun_body_number(attnrun_body *body, const char *name, double value)
{
    if (body == NULL)
        return;
    attn_body_set(
        body, name,
        (struct body_name){
            .kind = BODY_NUMBER, .value = -1, .dtype = body->dtype, .number = value });
}

void attnrun_body_ints(attnrun_body *body, const char *name, int64_t n,
                       const int64_t *values)
{
    if (body == NULL)
        return;
    n = values != NULL ? n : 0;
    const int64_t *copy = attn_pool_copy(body->scratch, values, max64(n, 0) * 8);
    if (copy == NULL)
        body->status = ATTNRUN_E_MEMORY;
    attn_body_set(
        body, name,
        (struct body_name){ .kind = BODY_INTS, .value = -1, .n = n, .ints = copy });
}

void attnrun_body_input(attnrun_body *body, const char *name, int32_t in)
{
    if (body == NULL)
        return;
    const struct attn_node *call = body->call;
    const int32_t value = in >= 0 && in < call->pub.n_in ? call->in[in] : -1;
    attn_body_set(body, name, (struct body_name){ .kind = BODY_VALUE, .value = value });
}

void attnrun_body_output(attnrun_body *body, const char *name, int32_t out)
{
    attn_body_set(body, name, (struct body_name){ .kind = BODY_OUTPUT, .out = out });
}

/* ---- constants ---- */

attn_status attn_body_number(struct attnrun_body *body, int32_t dtype, double x,
                             int32_t *id)
{
    void *data;
    if (!dtype_in(dtype, ATTN_DT(F32) | ATTN_DT(F64) | ATTN_DT(F16) | ATTN_DT(BF16) |
                             ATTN_DT(I32) | ATTN_DT(I64)))
        return attn_fail_node(ATTNRUN_E_INTERNAL, &body->call->pub,
                              "its formula has a number of type %s",
                              attnrun_dtype_name(dtype));
    TRY(attn_graph_new_constant(body->graph, dtype, 0, NULL, id, &data));
    if (dtype == ATTNRUN_F32)
        *(float *)data = (float)x;
    else if (dtype == ATTNRUN_F64)
        *(double *)data = x;
    else if (dtype == ATTNRUN_F16)
        *(uint16_t *)data = attn_f32_to_f16((float)x);
    else if (dtype == ATTNRUN_BF16)
        *(uint16_t *)data = attn_f32_to_bf16((float)x);
    else if (dtype == ATTNRUN_I32)
        *(int32_t *)data = (int32_t)x;
    else
        *(int64_t *)data = (int64_t)x;
    return ATTNRUN_OK;
}

attn_status attn_body_list(struct attnrun_body *body, int64_t n, const int64_t *values,
                           int32_t *id)
{
    void *data;
    TRY(attn_graph_new_constant(body->graph, ATTNRUN_I64, 1, &n, id, &data));
    if (n > 0)
        memcpy(data, values, (size_t)n * sizeof *values);
    return ATTNRUN_OK;
}

/* ---- nodes ---- */

int32_t attn_body_opset(const struct attnrun_body *body, const char *domain)
{
    if (domain[0] == 0)
        return ATTN_NEWEST_OPSET;
    return strcmp(domain, body->call->pub.domain) == 0 ? body->call->pub.opset : 1;
}

attn_status attn_body_node(struct attnrun_body *body, const struct body_call *call,
                           int32_t n_in, const int32_t *in, int32_t n_out,
                           struct attn_node **made)
{
    struct attn_graph *graph = body->graph;
    int32_t out[BODY_MAX_OUTPUTS];
    for (int32_t i = 0; i < n_out; i++)
        TRY(attn_graph_add_value(graph, NULL, &out[i]));
    const char *name =
        attn_pool_printf(body->scratch, "%s/%s", body->prefix, call->op_type);
    if (name == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_graph_add_node(graph, call->domain, call->op_type, name, n_in, in, n_out,
                            out, made));
    TRY(attn_node_set_attrs(graph, *made, call->n_attrs, call->attrs));
    (*made)->pub.opset = call->opset;
    (*made)->pub.function =
        body->call->formula ? body->call->pub.function : body->call->pub.op_type;
    (*made)->formula = true;
    (*made)->internal = body->call->built_in;
    TRY(attn_node_link(graph, *made));
    body->n_nodes++;
    return attn_node_resolve(graph, *made);
}

/* ---- the whole ---- */

static attn_status set_prefix(struct attnrun_body *body)
{
    const attnrun_node *call = &body->call->pub;
    body->prefix = call->name[0] != 0 ? call->name
                                      : attn_pool_printf(body->scratch, "%s_%d",
                                                         call->op_type, (int)call->index);
    return body->prefix != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

attn_status attn_body_begin(struct attnrun_body *body, struct attn_graph *graph,
                            const struct attn_node *call, struct attn_pool *scratch)
{
    *body = (struct attnrun_body){ .graph = graph, .call = call, .scratch = scratch };
    if (call->pub.n_in > 0 && call->in[0] >= 0)
        body->dtype = graph->values[call->in[0]].type.dtype;
    TRY(set_prefix(body));
    for (int32_t i = 0; i < call->row->n_in; i++)
        if (!call->row->in[i].variadic)
            attnrun_body_input(body, call->row->in[i].name, i);
    for (int32_t i = 0; i < call->row->n_out; i++)
        if (!call->row->out[i].variadic)
            attnrun_body_output(body, call->row->out[i].name, i);
    return body->status;
}

attn_status attn_body_end(const struct attnrun_body *body)
{
    const struct attn_node *call = body->call;
    TRY(body->status);
    for (int32_t i = 0; i < call->pub.n_out && body->n_nodes > 0; i++)
        if (call->out[i] >= 0 &&
            body->graph->values[call->out[i]].producer == call->pub.index)
            return attn_fail_node(ATTNRUN_E_INTERNAL, &call->pub,
                                  "its formulas give no output %d", i);
    return ATTNRUN_OK;
}
