/* auto_pads.c - the attribute auto_pad of a Conv becomes pads, where these do not depend on sizes
 * that are not known yet: of VALID, of kernels of one tap, with strides of 1, and of known sizes.
 * padding="same" of PyTorch is exported so. Passes that compare pads then need not know auto_pad.
 * Exact. */
#include "../../runtime/checked.h"
#include "match.h"

enum { MAX_ATTRS = 12, MAX_INPUTS = 3 };

/* Elements that SAME adds to an axis of n; false: not known. */
static bool same_pads(attnrun_dim n, int64_t taps, int64_t stride, int64_t dilation,
                      int64_t *total)
{
    int64_t extent;
    if (taps < 1 || stride < 1 || dilation < 1 || !ck_mul(taps - 1, dilation, &extent) ||
        extent >= ATTN_MAX_DIM || stride >= ATTN_MAX_DIM)
        return false;
    *total = extent;
    if (extent == 0 || stride == 1)
        return true;
    if (!dim_is_const(n) || n.value < 1)
        return false;
    const int64_t covered = (n.value - 1) / stride * stride + extent + 1;
    *total = covered > n.value ? covered - n.value : 0;
    return true;
}

/* Begins before ends; NULL: not known. Lives as long as the graph. */
static attn_status pads_of(struct attn_graph *graph, const struct attn_node *conv,
                           const int64_t **pads)
{
    const attnrun_type *x = match_type(graph, conv->in[0]),
                       *w = match_type(graph, conv->in[1]);
    const bool valid = attn_match_string(conv, "auto_pad", "VALID"),
               lower = attn_match_string(conv, "auto_pad", "SAME_LOWER");
    const int32_t axes = x->rank - 2;
    *pads = NULL;
    if (axes < 1 || w->rank != x->rank ||
        (!valid && !lower && !attn_match_string(conv, "auto_pad", "SAME_UPPER")))
        return ATTNRUN_OK;
    int64_t *all = attn_pool_alloc(&graph->model->pool, 2 * axes * (int64_t)sizeof *all);
    if (all == NULL)
        return ATTNRUN_E_MEMORY;
    for (int32_t a = 0; a < axes; a++) {
        int64_t total = 0;
        const attnrun_dim taps = w->dims[a + 2];
        if (!valid && (!dim_is_const(taps) ||
                       !same_pads(x->dims[a + 2], taps.value,
                                  attn_match_int_at(conv, "strides", a, 1),
                                  attn_match_int_at(conv, "dilations", a, 1), &total)))
            return ATTNRUN_OK;
        all[a] = lower ? total - total / 2 : total / 2;
        all[axes + a] = total - all[a];
    }
    *pads = all;
    return ATTNRUN_OK;
}

static attn_status try_auto_pads(struct attn_graph *graph, struct attn_node *conv,
                                 int32_t *applied)
{
    const int64_t *pads;
    struct attn_attr attrs[MAX_ATTRS + 1];
    struct attn_node *made;
    int32_t n = 0;
    if (attn_match_explicit_pads(conv) || conv->n_attrs > MAX_ATTRS ||
        conv->pub.n_in > MAX_INPUTS)
        return ATTNRUN_OK;
    TRY(pads_of(graph, conv, &pads));
    if (pads == NULL)
        return ATTNRUN_OK;
    for (int32_t i = 0; i < conv->n_attrs; i++)
        if (strcmp(conv->attrs[i].name, "pads") != 0 &&
            strcmp(conv->attrs[i].name, "auto_pad") != 0)
            attrs[n++] = conv->attrs[i];
    const int64_t axes = (int64_t)match_type(graph, conv->in[0])->rank - 2;
    attrs[n++] = (struct attn_attr){ .name = "pads",
                                     .kind = ATTN_ATTR_INTS,
                                     .ints = { pads, 2 * axes } };
    TRY(attn_match_make(graph, conv, "", "Conv", conv->pub.n_in, conv->in, conv->out[0],
                        n, attrs, &made));
    attn_match_replace(graph, conv->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_auto_pads = { .name = "auto_pads",
                                               .op_type = "Conv",
                                               .try_node = try_auto_pads };
