/* qlinear_binary.c - com.microsoft QLinearAdd and QLinearMul: sums and products of real
 * numbers (q - zero) * scale, quantized again; QLinearWhere: one of two.
 *
 * A, B, C   u8 or i8, all three alike; shapes are broadcast
 * scales    one f32 number each; zero points likewise, 0 by default
 * Add    C = saturate(round((A - a_zero) a_scale / c_scale + …) + c_zero), halves to even
 * Where  Z = condition ? X : Y, brought to Z's scale
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "../elementwise/elementwise.h"
#include "qlinear.h"

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, C_SCALE, C_ZERO };

/* The output has the dtype of the last operand, and all are broadcast. */
static attn_status infer(attnrun_step *step, const int *operands, int n)
{
    int rank = 0;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    for (int i = 0; i < n && rank >= 0; i++) {
        const attnrun_type *x = &step->in[operands[i]];
        if (x->rank < 0)
            return op_out(step, 0, step->in[operands[n - 1]].dtype, -1, NULL);
        attnrun_dim merged[ATTNRUN_MAX_RANK];
        const int most = x->rank > rank ? x->rank : rank;
        for (int d = 0; d < most; d++) {
            const int a = d - (most - rank), b = d - (most - x->rank);
            merged[d] = a < 0   ? x->dims[b]
                        : b < 0 ? dims[a]
                                : op_broadcast_dim(step, dims[a], x->dims[b]);
            if (merged[d].expr == ATTN_DIM_INVALID)
                return op_fail_input(step, operands[i], ATTNRUN_E_SHAPE,
                                     "expected a shape that can be broadcast");
        }
        memcpy(dims, merged, sizeof dims);
        rank = most;
    }
    TRY(op_out(step, 0, step->in[operands[n - 1]].dtype, rank, dims));
    elementwise_tasks(step, 1500);
    return ATTNRUN_OK;
}

static attn_status binary_infer(attnrun_step *step)
{
    static const int operands[] = { A, B };
    TRY(op_qlinear_check(step, A_SCALE, A_ZERO));
    TRY(op_qlinear_check(step, B_SCALE, B_ZERO));
    TRY(op_qlinear_check(step, C_SCALE, C_ZERO));
    return infer(step, operands, 2);
}

/* The reals of the 256 bytes of both operands, over C's scale where they are summed. */
struct reals {
    float a[256], b[256], zero;
    bool is_signed;
};

static void add_runs(struct nd_iter *it, const struct reals *r)
{
    for (int64_t i = 0; i < it->n; i++)
        it->p[0][i] = (char)op_qlinear_byte(r->is_signed,
                                            r->a[(uint8_t)it->p[1][i * it->step[1]]] +
                                                r->b[(uint8_t)it->p[2][i * it->step[2]]],
                                            r->zero);
}

static void mul_runs(struct nd_iter *it, const struct reals *r)
{
    for (int64_t i = 0; i < it->n; i++)
        it->p[0][i] = (char)op_qlinear_byte(r->is_signed,
                                            r->a[(uint8_t)it->p[1][i * it->step[1]]] *
                                                r->b[(uint8_t)it->p[2][i * it->step[2]]],
                                            r->zero);
}

static attn_status binary_run(const attnrun_step *step, const attnrun_work *work,
                              bool add)
{
    const struct op_qlinear a = op_qlinear_of(step, A_SCALE, A_ZERO),
                            b = op_qlinear_of(step, B_SCALE, B_ZERO),
                            c = op_qlinear_of(step, C_SCALE, C_ZERO);
    struct reals r = { .zero = c.zero, .is_signed = step->out[0].dtype == ATTNRUN_I8 };
    struct nd_iter it;
    int64_t begin, end;
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    for (int i = 0; i < 256; i++) {
        r.a[i] = op_qlinear_real(r.is_signed, (uint8_t)i, a) / c.scale;
        r.b[i] = op_qlinear_real(r.is_signed, (uint8_t)i, b) / (add ? c.scale : 1.0f);
    }
    elementwise_range(work, tensor_count(&step->y[0]), &begin, &end);
    attn_nd_iter_init(&it, step->y[0].rank, step->y[0].dims);
    attn_nd_iter_add(&it, &step->y[0]);
    attn_nd_iter_add(&it, &step->x[A]);
    attn_nd_iter_add(&it, &step->x[B]);
    for (; begin < end; begin += OP_CHUNK) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        attn_nd_iter_start(&it, begin, end - begin < OP_CHUNK ? end : begin + OP_CHUNK);
        while (attn_nd_iter_next(&it))
            (add ? add_runs : mul_runs)(&it, &r);
    }
    return ATTNRUN_OK;
}

static attn_status add_run(const attnrun_step *step, const attnrun_work *work)
{
    return binary_run(step, work, true);
}
static attn_status mul_run(const attnrun_step *step, const attnrun_work *work)
{
    return binary_run(step, work, false);
}

#define BINARY(row, name_, run_)                                                         \
    const attnrun_op_def row = {                                                         \
        .struct_size = sizeof(attnrun_op_def),                                           \
        .domain = "com.microsoft",                                                       \
        .name = name_,                                                                   \
        .since = 1,                                                                      \
        .inputs = "A:T A_scale:f32 A_zero_point:T? B:T B_scale:f32 B_zero_point:T? "     \
                  "C_scale:f32 C_zero_point:T?",                                         \
        .outputs = "C:T",                                                                \
        .types = "T=u8,i8",                                                              \
        .infer = binary_infer,                                                           \
        .run = run_,                                                                     \
        .cost = "O(n)",                                                                  \
        .source = "ONNX Runtime contrib operators",                                      \
    }
BINARY(op_qlinear_add_1, "QLinearAdd", add_run);
BINARY(op_qlinear_mul_1, "QLinearMul", mul_run);

/* ---- QLinearWhere ---- */

enum { CONDITION, WX, WX_SCALE, WX_ZERO, WY, WY_SCALE, WY_ZERO, WZ_SCALE, WZ_ZERO };

static attn_status where_infer(attnrun_step *step)
{
    static const int operands[] = { CONDITION, WX, WY };
    TRY(op_qlinear_check(step, WX_SCALE, WX_ZERO));
    TRY(op_qlinear_check(step, WY_SCALE, WY_ZERO));
    TRY(op_qlinear_check(step, WZ_SCALE, WZ_ZERO));
    return infer(step, operands, 3);
}

static attn_status where_run(const attnrun_step *step, const attnrun_work *work)
{
    const bool is_signed = step->out[0].dtype == ATTNRUN_I8;
    const struct op_qlinear z = op_qlinear_of(step, WZ_SCALE, WZ_ZERO);
    uint8_t x[256], y[256];
    struct nd_iter it;
    int64_t begin, end;
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    op_qlinear_table(x, is_signed, op_qlinear_of(step, WX_SCALE, WX_ZERO), z, NULL, 0);
    op_qlinear_table(y, is_signed, op_qlinear_of(step, WY_SCALE, WY_ZERO), z, NULL, 0);
    elementwise_range(work, tensor_count(&step->y[0]), &begin, &end);
    attn_nd_iter_init(&it, step->y[0].rank, step->y[0].dims);
    attn_nd_iter_add(&it, &step->y[0]);
    attn_nd_iter_add(&it, &step->x[CONDITION]);
    attn_nd_iter_add(&it, &step->x[WX]);
    attn_nd_iter_add(&it, &step->x[WY]);
    for (; begin < end; begin += OP_CHUNK) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        attn_nd_iter_start(&it, begin, end - begin < OP_CHUNK ? end : begin + OP_CHUNK);
        while (attn_nd_iter_next(&it))
            for (int64_t i = 0; i < it.n; i++)
                it.p[0][i] = (char)(it.p[1][i * it.step[1]] != 0
                                        ? x[(uint8_t)it.p[2][i * it.step[2]]]
                                        : y[(uint8_t)it.p[3][i * it.step[3]]]);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_qlinear_where_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "QLinearWhere",
    .since = 1,
    .inputs =
        "condition:b8 X:T x_scale:f32 x_zero_point:T Y:T y_scale:f32 y_zero_point:T "
        "z_scale:f32 z_zero_point:T",
    .outputs = "Z:T",
    .types = "T=u8,i8",
    .infer = where_infer,
    .run = where_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};
