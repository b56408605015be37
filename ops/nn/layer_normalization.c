/* layer_normalization.c - normalizations over the dims from `axis` on:
 *
 *   LayerNormalization   Y = (X - mean) / sqrt(variance + epsilon) * Scale + B
 *   RMSNormalization     Y = X / sqrt(mean X^2 + epsilon) * scale
 *
 * X           f32 or f64, any shape; Y has the same; axis -1 by default
 * Scale, B    broadcast to the normalized dims
 * Mean, InvStdDev  f32, the dims of X with 1 from axis on
 *
 * SimplifiedLayerNormalization is the latter as ONNX Runtime's exporters write it. A task
 * is some rows. Cost: O(n), one read and one write of X. Source: ONNX
 * LayerNormalization-17, RMSNormalization-23. */
#include "norm_rows.h"

struct layer_normalization_args {
    int64_t axis, stash_type; /* sums are doubles, whatever that is */
    float epsilon;
};
static const attnrun_attr_def layer_normalization_attrs[] = {
    ATTR_INT(struct layer_normalization_args, axis, -1),
    ATTR_FLOAT(struct layer_normalization_args, epsilon, 1e-5f),
    ATTR_CHOICE(struct layer_normalization_args, stash_type, OP_REAL_DTYPES, 1),
    ATTR_END,
};

static attn_status infer_rows(attnrun_step *step, int bias_in, int first_stats,
                              int n_stats)
{
    const struct layer_normalization_args *args = step->args;
    int axis = 0, rank = step->in[0].rank;
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (step->in[1].dtype != step->in[0].dtype)
        return op_fail_input(step, 1, ATTNRUN_E_UNSUPPORTED,
                             "expected the type of the input");
    if (rank >= 0) {
        TRY(op_axis(step, args->axis, rank, false, &axis));
        TRY(attn_norm_check_weight(step, 1, axis));
        if (bias_in >= 0 && op_has_in(step, bias_in))
            TRY(attn_norm_check_weight(step, bias_in, axis));
    }
    for (int i = 0; i < n_stats; i++)
        TRY(attn_norm_stats_out(step, first_stats + i, ATTNRUN_F32, axis));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_norm_rows_plan(step, step->state, axis, 1, bias_in));
    attn_norm_empty_plan(step, &((struct norm_rows *)step->state)->lines);
    return ATTNRUN_OK;
}

static attn_status layer_normalization_infer(attnrun_step *step)
{
    return infer_rows(step, 2, 1, 2);
}
static attn_status rms_normalization_infer(attnrun_step *step)
{
    return infer_rows(step, -1, 1, 0);
}
static attn_status simplified_infer(attnrun_step *step)
{
    return infer_rows(step, -1, 1, 1);
}

static void put_stat(const attnrun_step *step, int out, int64_t row, float value)
{
    if (op_has_out(step, out) && step->y[out].data != NULL)
        ((float *)step->y[out].data)[row] = value;
}

/* stats[0] mean, stats[1] the inverse deviation, of row `row`. */
static void one_row(const attnrun_step *step, const void *scale, const void *bias,
                    int64_t row, bool rms, float *stats)
{
    const struct layer_normalization_args *args = step->args;
    const int64_t n = ((const struct norm_rows *)step->state)->lines.length;
    if (step->x[0].dtype == ATTNRUN_F64) {
        double wide[2];
        attn_norm_row_f64((double *)step->y[0].data + row * n,
                          (const double *)step->x[0].data + row * n, scale, bias, n,
                          (double)args->epsilon, rms, wide);
        stats[0] = (float)wide[0];
        stats[1] = (float)wide[1];
        return;
    }
    float *y = (float *)step->y[0].data + row * n;
    const float *x = (const float *)step->x[0].data + row * n;
    if (rms)
        step->kernels->rms_norm_f32(y, x, scale, (size_t)n, args->epsilon, &stats[1]);
    else
        step->kernels->layer_norm_f32(y, x, scale, bias, (size_t)n, args->epsilon, stats);
}

static attn_status layer_norm_run_rows(const attnrun_step *step, const attnrun_work *work,
                                       bool rms)
{
    const struct norm_rows *rows = step->state;
    const int64_t row_bytes = rows->lines.length * dtype_bytes(step->x[0].dtype);
    const bool expanded = rows->scale.present && !rows->scale.direct;
    if (attn_norm_empty_run(step, &rows->lines, 1, rms ? 1 : 2))
        return ATTNRUN_OK;
    char *room = work->scratch;
    const void *scale = attn_norm_find_weight(&rows->scale, &step->x[1], room);
    const void *bias =
        attn_norm_find_weight(&rows->bias, &step->x[rows->bias.present ? 2 : 1],
                              expanded ? room + row_bytes : room);
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(&rows->lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t i = 0; i < t.n; i++) {
            float stats[2];
            one_row(step, scale, bias, t.index + i, rms, stats);
            if (!rms)
                put_stat(step, 1, t.index + i, stats[0]);
            put_stat(step, rms ? 1 : 2, t.index + i, stats[1]);
        }
    }
    return ATTNRUN_OK;
}

static attn_status layer_normalization_run(const attnrun_step *step,
                                           const attnrun_work *work)
{
    return layer_norm_run_rows(step, work, false);
}
static attn_status rms_normalization_run(const attnrun_step *step,
                                         const attnrun_work *work)
{
    return layer_norm_run_rows(step, work, true);
}

#define LAYER_NORMALIZATION_ROW                                                          \
    .args_bytes = sizeof(struct layer_normalization_args),                               \
    .state_bytes = sizeof(struct norm_rows), .attrs = layer_normalization_attrs,         \
    .cost = "O(n)"
const attnrun_op_def op_layer_normalization_17 = {
    OP_ROW,
    .name = "LayerNormalization",
    .since = 1, /* exporters wrote it before it was standard */
    .inputs = "X:T Scale:T B:T?",
    .outputs = "Y:T Mean:f32? InvStdDev:f32?",
    .types = "T=f32,f64",
    .infer = layer_normalization_infer,
    .run = layer_normalization_run,
    .source = "Ba 2016, arXiv:1607.06450",
    LAYER_NORMALIZATION_ROW,
};

const attnrun_op_def op_rms_normalization_23 = {
    OP_ROW,
    .name = "RMSNormalization",
    .since = 23,
    .inputs = "X:T scale:V",
    .outputs = "Y:V",
    .types = "T=f32,f64 V=f32,f64",
    .infer = rms_normalization_infer,
    .run = rms_normalization_run,
    .source = "Zhang 2019, arXiv:1910.07467",
    LAYER_NORMALIZATION_ROW,
};

const attnrun_op_def op_simplified_layer_normalization_1 = {
    OP_ROW,
    .name = "SimplifiedLayerNormalization",
    .since = 1,
    .inputs = "X:T scale:V",
    .outputs = "Y:V inv_std_var:f32?",
    .types = "T=f32,f64 V=f32,f64",
    .infer = simplified_infer,
    .run = rms_normalization_run,
    LAYER_NORMALIZATION_ROW,
};
