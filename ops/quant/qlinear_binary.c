/* qlinear_binary.c - com.microsoft QLinearAdd and QLinearMul: sums and products of real
 * numbers (q - zero) * scale, quantized again. QLinearWhere selects one of two.
 *
 * A, B, C   u8 or i8, all three alike; shapes are broadcast
 * scales    one f32 number each; zero points likewise, 0 by default
 * Add    C = saturate(round((A - a_zero) (a_scale / c_scale) + … + c_zero)), halves to
 *        even
 * Mul    C = saturate(round((A - a_zero) (B - b_zero) (a_scale b_scale / c_scale) +
 *        c_zero))
 * Where  Z = condition ? X : Y, converted to Z's scale
 *
 * The zero point is added before the rounding, so halves go to the even byte. onnxruntime
 * does so in these two operators, and not where it quantizes sums of products or floats.
 * Cost: one pass. Source: ONNX Runtime contrib operators; compared with onnxruntime
 * 1.32.0. */
#include "../elementwise/elementwise.h"
#include "qlinear.h"

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, C_SCALE, C_ZERO };
enum { CHUNK = 256 };

/* The output has the dtype of the last operand, and all are broadcast. */
static attn_status qlinear_binary_infer(attnrun_step *step, const int *operands, int n)
{
    int rank = 0;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    for (int i = 0; i < n && rank >= 0; i++) {
        const attnrun_type *x = &step->in[operands[i]];
        if (x->rank < 0)
            return op_out(step, 0, step->in[operands[n - 1]].dtype, -1, NULL);
        attnrun_dim merged[ATTNRUN_MAX_RANK];
        const int max = x->rank > rank ? x->rank : rank;
        for (int d = 0; d < max; d++) {
            const int a = d - (max - rank), b = d - (max - x->rank);
            merged[d] = a < 0   ? x->dims[b]
                        : b < 0 ? dims[a]
                                : op_broadcast_dim(step, dims[a], x->dims[b]);
            if (merged[d].expr == ATTN_DIM_INVALID)
                return op_fail_input(step, operands[i], ATTNRUN_E_SHAPE,
                                     "expected a shape that can be broadcast");
        }
        memcpy(dims, merged, sizeof dims);
        rank = max;
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
    return qlinear_binary_infer(step, operands, 2);
}

/* n elements from element i on of an operand of a segment as bytes that lie side by side: where
 * they are, or copied to `to`, which a repeated element fills once. */
static const uint8_t *elements_of(const struct nd_iter *it, int operand, int64_t i,
                                  int64_t n, uint8_t *to)
{
    const uint8_t *from = (const uint8_t *)it->p[operand];
    const int64_t step = it->step[operand];
    if (step == 1)
        return from + i;
    if (step == 0 && i == 0)
        memset(to, *from, (size_t)n);
    for (int64_t j = 0; step != 0 && j < n; j++)
        to[j] = from[(i + j) * step];
    return to;
}

/* Computes a segment of elements by the kernel. */
static void run_elements(const attnrun_step *step, const struct nd_iter *it,
                         const void *arg)
{
    struct attn_binary_u8 d = *(const struct attn_binary_u8 *)arg;
    uint8_t a[CHUNK], b[CHUNK];
    const bool whole = it->step[1] == 1 && it->step[2] == 1;
    const int64_t chunk = whole ? it->n : CHUNK;
    for (int64_t i = 0; i < it->n; i += chunk) {
        const int64_t n = min64(it->n - i, chunk);
        d.a = elements_of(it, 1, i, n, a);
        d.b = elements_of(it, 2, i, n, b);
        step->kernels->binary_u8((uint8_t *)it->p[0] + i, &d, (size_t)n);
    }
}

/* Bytes of i8 are 128 more in the kernel. */
static struct attn_binary_u8 make_binary(const attnrun_step *step, bool add)
{
    const struct op_qlinear a = op_qlinear_of(step, A_SCALE, A_ZERO),
                            b = op_qlinear_of(step, B_SCALE, B_ZERO),
                            c = op_qlinear_of(step, C_SCALE, C_ZERO);
    const uint32_t flip = step->out[0].dtype == ATTNRUN_I8 ? 128 : 0;
    return (struct attn_binary_u8){
        .a_zero = a.zero + (float)flip,
        .b_zero = b.zero + (float)flip,
        .a_ratio = add ? a.scale / c.scale : a.scale * b.scale / c.scale,
        .b_ratio = b.scale / c.scale,
        .zero = c.zero + (float)flip,
        .flip = flip,
        .multiply = !add,
    };
}

static attn_status binary_run(const attnrun_step *step, const attnrun_work *work,
                              bool add)
{
    const struct attn_binary_u8 d = make_binary(step, add);
    const attnrun_tensor *operands[] = { &step->x[A], &step->x[B] };
    return op_elementwise_run(step, work, operands, 2, run_elements, &d);
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
        OP_ROW_OF("com.microsoft"),                                                      \
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
    return qlinear_binary_infer(step, operands, 3);
}

/* The bytes that those of X and Y become. */
struct where_tables {
    uint8_t x[256], y[256];
};

static void where_elements(const attnrun_step *step, const struct nd_iter *it,
                           const void *arg)
{
    const struct where_tables *tables = arg;
    (void)step;
    for (int64_t i = 0; i < it->n; i++)
        it->p[0][i] = (char)(it->p[1][i * it->step[1]] != 0
                                 ? tables->x[(uint8_t)it->p[2][i * it->step[2]]]
                                 : tables->y[(uint8_t)it->p[3][i * it->step[3]]]);
}

static attn_status where_run(const attnrun_step *step, const attnrun_work *work)
{
    const bool is_signed = step->out[0].dtype == ATTNRUN_I8;
    const struct op_qlinear z = op_qlinear_of(step, WZ_SCALE, WZ_ZERO);
    const attnrun_tensor *operands[] = { &step->x[CONDITION], &step->x[WX],
                                         &step->x[WY] };
    struct where_tables t;
    op_qlinear_table(t.x, is_signed, op_qlinear_of(step, WX_SCALE, WX_ZERO), z, NULL, 0);
    op_qlinear_table(t.y, is_signed, op_qlinear_of(step, WY_SCALE, WY_ZERO), z, NULL, 0);
    return op_elementwise_run(step, work, operands, 3, where_elements, &t);
}

const attnrun_op_def op_qlinear_where_1 = {
    OP_ROW_OF("com.microsoft"),
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
