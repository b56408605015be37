/* string_concat.c - StringConcat: z = x followed by y, element by element.
 *
 * x, y   strings of any shapes that broadcast; z has the broadcast shape
 *
 * Cost: one copy of the text. Source: ONNX StringConcat-20. */
#include "values.h"

static attn_status string_concat_infer(attnrun_step *step)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank = 0;
    TRY(op_broadcast(step, 0, 2, &rank, dims));
    if (step->concrete) /* dynamic: its bytes need memory of the run */
        return op_value_unknown(step, 0, ATTNRUN_TENSOR, ATTNRUN_STRING);
    return op_out(step, 0, ATTNRUN_STRING, rank, dims);
}

/* Element strides of an input within the result; 0 where broadcast. */
static void strides_of(const attnrun_tensor *x, int rank, int64_t *strides)
{
    int shift = rank - x->rank;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t extent = i < shift ? 1 : x->dims[i - shift];
        strides[i] = extent == 1 ? 0 : stride;
        stride *= extent;
    }
}

static attn_status result_dims(const attnrun_step *step, int64_t *dims, int *rank)
{
    const attnrun_tensor *x = &step->x[0], *y = &step->x[1];
    *rank = x->rank > y->rank ? x->rank : y->rank;
    for (int i = 0; i < *rank; i++) {
        int a = i - (*rank - x->rank), b = i - (*rank - y->rank);
        int64_t p = a < 0 ? 1 : x->dims[a], q = b < 0 ? 1 : y->dims[b];
        dims[i] = p == 1 ? q : p;
    }
    return attnrun_step_alloc(step, 0, ATTNRUN_STRING, *rank, dims);
}

/* Elements of x and y for each of the result: an odometer over its dims. */
struct string_concat_walk {
    int rank;
    int64_t at[ATTNRUN_MAX_RANK], dims[ATTNRUN_MAX_RANK];
    int64_t strides[2][ATTNRUN_MAX_RANK], element[2];
};

static void next(struct string_concat_walk *w)
{
    for (int i = w->rank - 1; i >= 0; i--) {
        for (int k = 0; k < 2; k++)
            w->element[k] += w->strides[k][i];
        if (++w->at[i] < w->dims[i])
            return;
        for (int k = 0; k < 2; k++)
            w->element[k] -= w->strides[k][i] * w->dims[i];
        w->at[i] = 0;
    }
}

static attn_status string_concat_run(const attnrun_step *step, const attnrun_work *work)
{
    struct string_concat_walk w = { .rank = 0 };
    TRY(result_dims(step, w.dims, &w.rank));
    attnrun_string *z = step->y[0].data;
    int64_t n = z != NULL ? tensor_count(&step->y[0]) : 0;
    for (int k = 0; k < 2; k++)
        strides_of(&step->x[k], w.rank, w.strides[k]);
    for (int64_t i = 0; i < n; i++, next(&w)) {
        const attnrun_string *x = (const attnrun_string *)step->x[0].data + w.element[0];
        const attnrun_string *y = (const attnrun_string *)step->x[1].data + w.element[1];
        int64_t bytes;
        if ((i & 255) == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (!ck_add(x->n, y->n, &bytes))
            return op_fail(
                step, ATTNRUN_E_MEMORY,
                "string %lld of the result would have more than 2^63 - 1 bytes",
                (long long)i);
        char *text = op_heap(step, 0, bytes);
        if (text == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(attn_poll_copy(text, x->data, x->n));
        TRY(attn_poll_copy(text + x->n, y->data, y->n));
        z[i] = (attnrun_string){ text, bytes };
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_string_concat_20 = { OP_ROW,
                                             .flags = ATTNRUN_OP_DYNAMIC,
                                             .name = "StringConcat",
                                             .since = 20,
                                             .inputs = "X:string Y:string",
                                             .outputs = "Z:string",
                                             .infer = string_concat_infer,
                                             .run = string_concat_run };
