/* ngram_repeat_block.c - com.microsoft NGramRepeatBlock: forbids tokens that would repeat
 * an n-gram of the generated text.
 *
 * input_ids   i64 (batch, length);  scores, scores_out  f32 (batch, vocabulary)
 *
 * For every place where the last ngram_size - 1 ids of a sample occurred before, the
 * score of the id that followed becomes -inf. Cost: O(length * ngram_size) a sample.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include <math.h>

#include "../../runtime/op.h"

struct ngram_args {
    int64_t ngram_size;
};
static const attnrun_attr_def ngram_attrs[] = {
    ATTR_INT_REQUIRED(struct ngram_args, ngram_size), ATTR_END
};

static attn_status ngram_infer(attnrun_step *step)
{
    const struct ngram_args *args = step->args;
    if (args->ngram_size < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "ngram_size is %lld, expected 1 or more",
                       (long long)args->ngram_size);
    TRY(op_need_rank(step, 0, 2));
    TRY(op_need_rank(step, 1, 2));
    if (op_rank_known(step, 0) && op_rank_known(step, 1))
        TRY(op_need_dim(step, 1, 0, step->in[0].dims[0], "the samples of input_ids"));
    TRY(op_out_like(step, 0, 1));
    attnrun_step_inplace(step, 0, 1);
    if (step->concrete && op_rank_known(step, 1))
        op_tasks(step, 0, step->in[1].dims[0].value,
                 step->in[1].dims[1].value / 4 + step->in[0].dims[1].value * 4);
    return ATTNRUN_OK;
}

static attn_status ngram_sample(const attnrun_step *step, const attnrun_work *work,
                                const int64_t *ids, float *scores)
{
    const int64_t n = ((const struct ngram_args *)step->args)->ngram_size;
    const int64_t length = step->x[0].dims[1], words = step->x[1].dims[1];
    for (int64_t i = 0; i + n <= length; i++) {
        const int64_t *last = ids + length - (n - 1);
        if (OP_CANCELLED_AFTER(work, n * (int64_t)sizeof *ids))
            return ATTNRUN_E_CANCELLED;
        if (n > 1 && memcmp(ids + i, last, (size_t)(n - 1) * sizeof *ids) != 0)
            continue;
        const int64_t id = ids[i + n - 1];
        if (id < 0 || id >= words)
            return op_fail(step, ATTNRUN_E_RANGE, "an id is %lld, expected 0 to %lld",
                           (long long)id, (long long)(words - 1));
        scores[id] = -INFINITY;
    }
    return ATTNRUN_OK;
}

static attn_status ngram_run(const attnrun_step *step, const attnrun_work *work)
{
    const int64_t length = step->x[0].dims[1], words = step->x[1].dims[1];
    for (int64_t t = work->begin; t < work->end; t++) {
        const float *from = (const float *)step->x[1].data + t * words;
        float *to = (float *)step->y[0].data + t * words;
        if (to != from)
            memcpy(to, from, (size_t)words * sizeof *to);
        TRY(ngram_sample(step, work, (const int64_t *)step->x[0].data + t * length, to));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ngram_repeat_block_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "NGramRepeatBlock",
    .since = 1,
    .inputs = "input_ids:i64 scores:f32",
    .outputs = "scores_out:f32",
    .args_bytes = sizeof(struct ngram_args),
    .attrs = ngram_attrs,
    .infer = ngram_infer,
    .run = ngram_run,
    .cost = "O(length ngram_size)",
    .source = "ONNX Runtime contrib operators",
};
