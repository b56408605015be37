/* pad_conv.c - Pad by zeros in front of a Conv becomes pads of the Conv. Exporters of
 * networks from TensorFlow write "same" padding in this form. In: Conv(Pad(X), W, B) with
 * constant pads of spatial axes that are not negative. Out: Conv(X, W, B). If there is a
 * Cast between them, as at the border of a region that computes f16 in f32, the Cast
 * takes the place of the Pad. QLinearConv is treated in the same way if the pad is the
 * zero point of its operand. Exact. */
#include "../../runtime/checked.h"
#include "match.h"

enum { MAX_ATTRS = 12, MAX_INPUTS = 9 };

/* The sums of the Conv's own pads and of those of the Pad, begins before ends; NULL where
 * they are no pads of a Conv. Lives as long as the graph. */
static attn_status sum_of_pads(struct attn_graph *graph, const struct attn_node *conv,
                               const struct attn_node *pad, int32_t rank,
                               const int64_t **sums)
{
    double value, zero = 0;
    int64_t pads[2 * ATTNRUN_MAX_RANK];
    const int32_t axes = rank - 2;
    const bool valid =
        attn_match_string(conv, "auto_pad", "VALID"); /* no pads of its own */
    const struct attn_attr *own = valid ? NULL : attn_node_attr(conv, "pads");
    *sums = NULL;
    if (node_is(conv, "QLinearConv") && !attn_value_scalar(graph, conv->in[2], &zero))
        return ATTNRUN_OK;
    if (rank < 3 || !attn_match_pads(graph, pad, rank, pads, &value) || value != zero ||
        (own != NULL && (own->kind != ATTN_ATTR_INTS || own->ints.n != 2 * axes)))
        return ATTNRUN_OK;
    for (int32_t side = 0; side < 2; side++)
        if (pads[side * rank] != 0 || pads[side * rank + 1] != 0)
            return ATTNRUN_OK;
    int64_t *sum = attn_pool_alloc(&graph->model->pool, 2 * axes * (int64_t)sizeof *sum);
    if (sum == NULL)
        return ATTNRUN_E_MEMORY;
    for (int32_t i = 0; i < 2 * axes; i++) {
        const int64_t more = pads[i / axes * rank + 2 + i % axes];
        if (more < 0 || !ck_add(own != NULL ? own->ints.v[i] : 0, more, &sum[i]))
            return ATTNRUN_OK;
    }
    *sums = sum;
    return ATTNRUN_OK;
}

/* The same Cast of what the Pad reads. */
static attn_status cast_before(struct attn_graph *graph, struct attn_node *conv,
                               const struct attn_node *cast, int32_t *value)
{
    return attn_match_add(graph, conv, "Cast", 1, value, cast->n_attrs, cast->attrs,
                          value);
}

static attn_status try_pad_conv(struct attn_graph *graph, struct attn_node *conv,
                                int32_t *applied)
{
    if (!node_is(conv, "Conv") && !node_is(conv, "QLinearConv"))
        return ATTNRUN_OK;
    const struct attn_node *cast =
        node_is(conv, "Conv") ? attn_match_sole_in(graph, conv, 0, "Cast") : NULL;
    const struct attn_node *pad =
        attn_match_sole_in(graph, cast != NULL ? cast : conv, 0, "Pad");
    const struct attn_attr *automatic = attn_node_attr(conv, "auto_pad");
    const int64_t *sums = NULL;
    if (pad == NULL || conv->n_attrs > MAX_ATTRS || conv->pub.n_in > MAX_INPUTS ||
        (automatic != NULL && !attn_match_string(conv, "auto_pad", "NOTSET") &&
         !attn_match_string(conv, "auto_pad", "VALID")))
        return ATTNRUN_OK;
    const int32_t rank = graph->values[pad->in[0]].type.rank;
    TRY(sum_of_pads(graph, conv, pad, rank, &sums));
    if (sums == NULL)
        return ATTNRUN_OK;
    struct attn_attr attrs[MAX_ATTRS + 1];
    int32_t n = 0;
    for (int32_t i = 0; i < conv->n_attrs; i++)
        if (strcmp(conv->attrs[i].name, "pads") != 0 &&
            strcmp(conv->attrs[i].name, "auto_pad") != 0)
            attrs[n++] = conv->attrs[i];
    attrs[n++] = (struct attn_attr){ .name = "pads",
                                     .kind = ATTN_ATTR_INTS,
                                     .ints = { sums, 2 * ((int64_t)rank - 2) } };
    int32_t in[MAX_INPUTS] = { pad->in[0] };
    for (int32_t i = 1; i < conv->pub.n_in; i++)
        in[i] = conv->in[i];
    if (cast != NULL)
        TRY(cast_before(graph, conv, cast, &in[0]));
    struct attn_node *made;
    TRY(attn_match_make(graph, conv, "", conv->pub.op_type, conv->pub.n_in, in,
                        conv->out[0], n, attrs, &made));
    attn_match_replace(graph, conv->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_pad_conv = { .name = "pad_conv",
                                              .try_node = try_pad_conv };
