/* mask_attrs.c - stores a mask program as the attributes and inputs of a node. In: what
 * write_mask.c wrote. Out: attributes in the model's memory, and the leaves as inputs
 * behind the operands. */
#include "write_mask.h"

const int8_t attn_mask_axes_of_blocks[MASK_AXES] = { MASK_BATCH, MASK_BLOCK, MASK_HEAD,
                                                     MASK_QUERY, MASK_KEY };
const int8_t attn_mask_axes_of_heads[4] = { MASK_BATCH, MASK_HEAD, MASK_QUERY, MASK_KEY };

static int64_t placed(const struct attn_mask_written *out, int64_t operand)
{
    return operand >= MASK_RESULT ? operand - MASK_RESULT + out->n_leaves : operand;
}

void attn_mask_place_results(struct attn_mask_written *out)
{
    for (int32_t k = 0; k < out->n_code; k++) {
        int64_t *word = out->code + k * MASK_WORDS;
        if (word[0] < MASK_NEG)
            continue;
        for (int i = 1; i < MASK_WORDS; i++)
            if (word[0] != MASK_CAST || i == 1)
                word[i] = placed(out, word[i]);
    }
    out->mask[MASK_FACT_KEEP] = placed(out, out->mask[MASK_FACT_KEEP]);
    out->mask[MASK_FACT_ADD] = placed(out, out->mask[MASK_FACT_ADD]);
}

attn_status attn_mask_attrs(struct attn_graph *graph, const struct attn_mask_written *w,
                            struct attn_attr *attrs)
{
    static const char *const names[MASK_ATTRS] = { "code", "mask", "axes" };
    const int64_t *const from[MASK_ATTRS] = { w->code, w->mask, w->axes };
    const int64_t n[MASK_ATTRS] = { (int64_t)w->n_code * MASK_WORDS, MASK_CONSTANTS,
                                    (int64_t)w->n_leaves * MASK_AXES };
    for (int i = 0; i < MASK_ATTRS; i++) {
        int64_t *v =
            attn_pool_alloc(&graph->model->pool, (n[i] + 1) * (int64_t)sizeof *v);
        if (v == NULL)
            return ATTNRUN_E_MEMORY;
        memcpy(v, from[i], (size_t)n[i] * sizeof *v);
        attrs[i] = (struct attn_attr){ .name = names[i],
                                       .kind = ATTN_ATTR_INTS,
                                       .ints = { v, n[i] } };
    }
    return ATTNRUN_OK;
}

int32_t attn_mask_inputs(const struct attn_mask_written *w, int32_t *in)
{
    for (int32_t i = 3; i < MASK_LEAF; i++)
        in[i] = -1;
    for (int32_t l = 0; l < w->n_leaves; l++)
        in[MASK_LEAF + l] = w->leaves[l];
    return w->n_leaves > 0 ? MASK_LEAF + w->n_leaves : 3;
}
