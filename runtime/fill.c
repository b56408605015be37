/* fill.c - fills what a step has to write: see fill.h. */
#include "fill.h"

#include "step.h"

int32_t attn_fill_byte = -1;

/* The first byte and the one behind the last that a tensor's strides reach. */
static void extent(const attnrun_tensor *tensor, const char **first, const char **end)
{
    int64_t bytes = tensor_bytes(tensor);
    *first = tensor->data;
    *end = *first + bytes;
    if (attnrun_dtype_bits(tensor->dtype) < 8 || bytes == 0)
        return;
    *end = *first + attnrun_dtype_bits(tensor->dtype) / 8;
    for (int32_t d = 0; d < tensor->rank; d++)
        if (tensor->strides[d] > 0)
            *end += (tensor->dims[d] - 1) * tensor->strides[d];
        else
            *first += (tensor->dims[d] - 1) * tensor->strides[d];
}

static bool overlaps(const attnrun_tensor *a, const attnrun_tensor *b)
{
    const char *a_first, *a_end, *b_first, *b_end;
    if (a->data == NULL || b->data == NULL || b->kind != ATTNRUN_TENSOR)
        return false;
    extent(a, &a_first, &a_end);
    extent(b, &b_first, &b_end);
    return a_first < b_end && b_first < a_end;
}

static bool shares_with_input(const struct attn_step *step, int32_t out)
{
    for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++)
        if (step->node->in[i] >= 0 && overlaps(&step->pub.y[out], &step->pub.x[i]))
            return true;
    return false;
}

/* Only dense outputs: the gaps of strided ones belong to others. */
static bool is_dense(const attnrun_tensor *tensor)
{
    attnrun_tensor dense = *tensor;
    tensor_set_dense(&dense);
    for (int32_t d = 0; d < tensor->rank; d++)
        if (tensor->dims[d] > 1 && dense.strides[d] != tensor->strides[d])
            return false;
    return true;
}

void attn_fill_step(const struct attn_step *step)
{
    if (!attn_fill_is_on())
        return;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        const attnrun_tensor *y = &step->pub.y[i];
        if (step->node->out[i] >= 0 && y->kind == ATTNRUN_TENSOR && is_dense(y) &&
            !shares_with_input(step, i))
            attn_fill(y->data, tensor_bytes(y));
    }
    const struct attn_step_scratch *own = &step->own;
    if (step->pub.scratch_bytes > 0)
        attn_fill(own->each, own->stride > 0 ? own->stride * own->n_workers
                                             : step->pub.scratch_bytes);
    if (step->pub.shared_bytes > 0)
        attn_fill(own->shared, step->pub.shared_bytes);
}
