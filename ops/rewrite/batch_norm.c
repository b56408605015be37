/* batch_norm.c - reads a BatchNormalization with constant statistics, and makes constants of it.
 * batch_norm.h says which passes use it. In: nodes of the graph, whose constants may lie at any
 * address of a mapped file. Out: factors and shifts of channels, and new constants of f32. */
#include "batch_norm.h"

#include <math.h>

#include "../../runtime/align.h"
#include "../../runtime/poll.h"

const float *attn_match_f32_vector(const struct attn_graph *graph,
                                   const struct attn_node *node, int in, int64_t n)
{
    if (in >= node->pub.n_in || !match_is_constant(graph, node->in[in]))
        return NULL;
    const attnrun_tensor *t = &graph->values[node->in[in]].data;
    return t->dtype == ATTNRUN_F32 && t->rank == 1 && t->dims[0] == n ? t->data : NULL;
}

bool attn_match_batch_norm(const struct attn_graph *graph, const struct attn_node *bn,
                           struct batch_norm *norm)
{
    int64_t n = norm->channels;
    norm->scale = attn_match_f32_vector(graph, bn, 1, n);
    norm->bias = attn_match_f32_vector(graph, bn, 2, n);
    norm->mean = attn_match_f32_vector(graph, bn, 3, n);
    norm->var = attn_match_f32_vector(graph, bn, 4, n);
    norm->epsilon = (double)attn_match_float(bn, "epsilon", 1e-5f);
    for (int32_t i = 1; i < bn->pub.n_out; i++)
        if (bn->pub.opset < 14 || bn->out[i] >= 0)
            return false;
    return norm->scale && norm->bias && norm->mean && norm->var &&
           attn_match_int(bn, "training_mode", 0) == 0 &&
           attn_match_int(bn, "spatial", 1) == 1;
}

/* Element c of a vector that a mapped file may have at an odd address. */
static double element(const float *vector, int64_t c)
{
    float x;
    memcpy(&x, vector + c, sizeof x);
    return (double)x;
}

void attn_batch_norm_channel(const struct batch_norm *norm, int64_t c, double *factor,
                             double *shift)
{
    *factor = norm->factor;
    *shift = norm->shift;
    if (norm->scale == NULL)
        return;
    *factor = element(norm->scale, c) / sqrt(element(norm->var, c) + norm->epsilon);
    *shift = element(norm->bias, c) - element(norm->mean, c) * *factor;
}

/* The factor of a channel, and what its bias becomes. */
static double take_channel(const struct batch_norm *norm, int64_t c, float *bias)
{
    double s, shift;
    attn_batch_norm_channel(norm, c, &s, &shift);
    *bias = (float)((norm->conv_bias ? element(norm->conv_bias, c) : 0) * s + shift);
    return s;
}

/* Of weights that are aligned. */
static attn_status scale_aligned(struct attn_graph *graph, const attnrun_tensor *w,
                                 int axis, const struct batch_norm *norm, int32_t *w_id,
                                 int32_t *b_id)
{
    void *made, *bias;
    const float *from = w->data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, w->rank, w->dims, w_id, &made));
    float *to = made;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 1, &norm->channels, b_id, &bias));
    int64_t inner = tensor_dims_product(w, axis + 1, w->rank);
    int64_t outer = tensor_dims_product(w, 0, axis);
    for (int64_t c = 0; c < norm->channels; c++) {
        const double s = take_channel(norm, c, (float *)bias + c);
        for (int64_t o = 0; o < outer; o++) {
            TRY(attn_poll_work(inner * (int64_t)sizeof(float)));
            for (int64_t i = 0; i < inner && !attn_stops(i); i++) {
                int64_t k = (o * norm->channels + c) * inner + i;
                to[k] = (float)((double)from[k] * s);
            }
        }
    }
    return ATTNRUN_OK;
}

attn_status attn_batch_norm_scale(struct attn_graph *graph, int32_t weights, int axis,
                                  const struct batch_norm *norm, int32_t *w_id,
                                  int32_t *b_id)
{
    attnrun_tensor w = graph->values[weights].data;
    struct attn_pool scratch; /* for weights that a mapped file has at odd addresses */
    attn_pool_init(&scratch, graph->model->pool.memory, ATTN_MEM_WEIGHTS);
    attn_status status = attn_tensor_align(&scratch, &w);
    if (status == ATTNRUN_OK)
        status = scale_aligned(graph, &w, axis, norm, w_id, b_id);
    attn_pool_free(&scratch);
    return status;
}

attn_status attn_batch_norm_vectors(struct attn_graph *graph,
                                    const struct batch_norm *norm, int32_t rank,
                                    int32_t *s_id, int32_t *b_id)
{
    const int64_t dims[4] = { norm->channels, 1, 1, 1 };
    void *scale, *bias;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, rank, dims, s_id, &scale));
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 1, dims, b_id, &bias));
    for (int64_t c = 0; c < norm->channels && !attn_stops(c); c++)
        ((float *)scale)[c] = (float)take_channel(norm, c, (float *)bias + c);
    return ATTNRUN_OK;
}
