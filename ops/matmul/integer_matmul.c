/* integer_matmul.c - MatMulInteger: Y = (A - a_zero_point)(B - b_zero_point) in i32;
 * QLinearMatMul: the same of real numbers (x - zero_point) * scale, quantized again.
 *
 * A, B          i8 or u8, shapes as MatMul's; products are summed in 32 bits and wrap
 * zero points, scales  one, or one per row of A and per column of B (as vectors, or with
 * A's and B's leading dims) Y             i32; or round(sum * a_scale * b_scale /
 * y_scale) + y_zero_point, saturated Source: ONNX MatMulInteger-10, QLinearMatMul-21.
 * Plain loops: speed comes with int8 kernels. */
#include <math.h>

#include "shapes.h"

struct integer_state {
    struct attn_gemm gemm;
    int64_t rows; /* of one matrix A */
    int64_t b_matrices;
};

/* A zero point or scale: one, one per `line` (row or column), or one per line of each
 * matrix. */
static attn_status check_vector(const attnrun_step *step, int in, int64_t lines,
                                int64_t matrices, const char *what)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    int64_t n = op_count(&step->in[in], 0, step->in[in].rank);
    if (n == 1 || n == lines ||
        (matrices > 0 && n / matrices == lines && n % matrices == 0))
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                         "expected 1 or %lld elements, one per %s", (long long)lines,
                         what);
}

/* Element for line `line` of matrix `matrix`. */
static int64_t pick(const attnrun_tensor *x, int64_t lines, int64_t matrix, int64_t line)
{
    int64_t n = tensor_count(x);
    return n == 1 ? 0 : n == lines ? line : matrix * lines + line;
}

static attn_status plan_integer(attnrun_step *step, int a, int b)
{
    struct integer_state *state = step->state;
    struct attn_gemm *g = &state->gemm;
    const attnrun_type *ta = &step->in[a], *tb = &step->in[b];
    TRY(attn_matmul_describe(step, a, b, 0, g));
    state->rows = ta->rank < 2 ? 1 : ta->dims[ta->rank - 2].value;
    state->b_matrices = tb->rank < 3 ? 1 : op_count(tb, 0, tb->rank - 2);
    int64_t n_tasks = g->m;
    for (int i = 0; i < g->n_batch; i++)
        if (!ck_mul(n_tasks, g->batch[i], &n_tasks))
            return op_fail(step, ATTNRUN_E_LIMIT, "the matrix product is too large");
    if (g->n > INT64_MAX / 16)
        return op_fail(step, ATTNRUN_E_LIMIT, "the matrix product is too large");
    double cost = (double)g->n * (double)(g->k + 2);
    op_tasks(step, 0, g->n == 0 ? 0 : n_tasks,
             cost < 1e15 ? (int64_t)cost : (int64_t)1e15);
    step->scratch_bytes = 4 * g->n + 64;
    return ATTNRUN_OK;
}

static int32_t small_int(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_I8 ? ((const int8_t *)x->data)[i]
                                  : ((const uint8_t *)x->data)[i];
}

/* Where a row of the product is. */
struct integer_row {
    int64_t a, b, c; /* element offsets */
    int64_t a_matrix, a_line, b_matrix;
};

static struct integer_row find_row(const struct integer_state *state, int64_t task)
{
    const struct attn_gemm *g = &state->gemm;
    const int64_t i = task % g->m, matrix = g->k * g->n;
    struct integer_row r = { .a = i * g->a_row, .c = i * g->c_row };
    int64_t index = task / g->m;
    for (int d = g->n_batch - 1; d >= 0; d--) {
        r.a += index % g->batch[d] * g->a_batch[d];
        r.b += index % g->batch[d] * g->b_batch[d];
        r.c += index % g->batch[d] * g->c_batch[d];
        index /= g->batch[d];
    }
    int64_t line = g->k > 0 ? r.a / g->k : i;
    r.a_matrix = line / state->rows;
    r.a_line = line % state->rows;
    r.b_matrix = matrix > 0 ? r.b / matrix : 0;
    return r;
}

/* sums[j] = sum over k of (a - za)(b_j - zb_j), modulo 2^32. */
static attn_status sum_row(const attnrun_step *step, const struct integer_row *r, int a,
                           int b, int za, int zb, uint32_t *sums,
                           const attnrun_work *work)
{
    const struct integer_state *state = step->state;
    const struct attn_gemm *g = &state->gemm;
    const attnrun_tensor *zero_a = op_has_in(step, za) ? &step->x[za] : NULL;
    const attnrun_tensor *zero_b = op_has_in(step, zb) ? &step->x[zb] : NULL;
    int32_t a0 =
        zero_a != NULL
            ? small_int(zero_a, pick(zero_a, state->rows, r->a_matrix, r->a_line))
            : 0;
    uint32_t total = 0;
    memset(sums, 0, (size_t)g->n * sizeof *sums);
    for (int64_t k = 0; k < g->k; k++) {
        uint32_t x = (uint32_t)(small_int(&step->x[a], r->a + k) - a0);
        const int64_t from = r->b + k * g->b_row;
        if (k % 256 == 255 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        total += x;
        if (step->x[b].dtype == ATTNRUN_I8) {
            const int8_t *row = (const int8_t *)step->x[b].data + from;
            for (int64_t j = 0; j < g->n; j++)
                sums[j] += x * (uint32_t)row[j];
        } else {
            const uint8_t *row = (const uint8_t *)step->x[b].data + from;
            for (int64_t j = 0; j < g->n; j++)
                sums[j] += x * (uint32_t)row[j];
        }
    }
    for (int64_t j = 0; zero_b != NULL && j < g->n; j++)
        sums[j] -=
            total * (uint32_t)small_int(zero_b, pick(zero_b, g->n, r->b_matrix, j));
    return ATTNRUN_OK;
}

/* ---- MatMulInteger ---- */

static attn_status matmul_integer_infer(attnrun_step *step)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(attn_matmul_dims(step, 0, 1, 0, &rank, dims));
    TRY(op_out(step, 0, ATTNRUN_I32, rank, rank < 0 ? NULL : dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(plan_integer(step, 0, 1));
    const struct integer_state *state = step->state;
    int64_t matrices =
        step->in[0].rank < 3 ? 1 : op_count(&step->in[0], 0, step->in[0].rank - 2);
    TRY(check_vector(step, 2, state->rows, matrices, "row of A"));
    return check_vector(step, 3, state->gemm.n, state->b_matrices, "column of B");
}

static attn_status matmul_integer_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct integer_row r = find_row(step->state, task);
        uint32_t *y = (uint32_t *)step->y[0].data + r.c;
        TRY(sum_row(step, &r, 0, 1, 2, 3, y, work));
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_matmul_integer_10 = {
    OP_ROW,
    .name = "MatMulInteger",
    .since = 10,
    .inputs = "A:T1 B:T2 a_zero_point:T1? b_zero_point:T2?",
    .outputs = "Y:i32",
    .types = "T1=i8,u8 T2=i8,u8",
    .state_bytes = sizeof(struct integer_state),
    .infer = matmul_integer_infer,
    .run = matmul_integer_run,
    .cost = "O(m n k)",
};

/* ---- QLinearMatMul ---- */

enum { QA, A_SCALE, A_ZERO, QB, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO };

static attn_status qlinear_matmul_infer(attnrun_step *step)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(attn_matmul_dims(step, QA, QB, 0, &rank, dims));
    TRY(op_out(step, 0, step->in[Y_ZERO].dtype, rank, rank < 0 ? NULL : dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(plan_integer(step, QA, QB));
    const struct integer_state *state = step->state;
    int64_t matrices =
        step->in[QA].rank < 3 ? 1 : op_count(&step->in[QA], 0, step->in[QA].rank - 2);
    for (int in = A_SCALE; in <= A_ZERO; in++)
        TRY(check_vector(step, in, state->rows, matrices, "row of A"));
    for (int in = B_SCALE; in <= B_ZERO; in++)
        TRY(check_vector(step, in, state->gemm.n, state->b_matrices, "column of B"));
    for (int in = Y_SCALE; in <= Y_ZERO; in++)
        TRY(check_vector(step, in, state->rows, matrices, "row of Y"));
    return ATTNRUN_OK;
}

static double scale_at(const attnrun_step *step, int in, int64_t at)
{
    return (double)((const float *)step->x[in].data)[at];
}

static void quantize_row(const attnrun_step *step, const struct integer_row *r,
                         const uint32_t *sums)
{
    const struct integer_state *state = step->state;
    const bool is_signed = step->y[0].dtype == ATTNRUN_I8;
    const double low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
    const int64_t rows = state->rows, m = r->a_matrix, line = r->a_line;
    double a = scale_at(step, A_SCALE, pick(&step->x[A_SCALE], rows, m, line));
    double y = scale_at(step, Y_SCALE, pick(&step->x[Y_SCALE], rows, m, line));
    double zero = small_int(&step->x[Y_ZERO], pick(&step->x[Y_ZERO], rows, m, line));
    for (int64_t j = 0; j < state->gemm.n; j++) {
        double b = scale_at(step, B_SCALE,
                            pick(&step->x[B_SCALE], state->gemm.n, r->b_matrix, j));
        double value = rint((double)(int32_t)sums[j] * (a * b / y)) + zero;
        value = value > low ? value : low; /* NaN too */
        value = value < high ? value : high;
        if (is_signed)
            ((int8_t *)step->y[0].data)[r->c + j] = (int8_t)value;
        else
            ((uint8_t *)step->y[0].data)[r->c + j] = (uint8_t)value;
    }
}

static attn_status qlinear_matmul_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct integer_row r = find_row(step->state, task);
        TRY(sum_row(step, &r, QA, QB, A_ZERO, B_ZERO, work->scratch, work));
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        quantize_row(step, &r, work->scratch);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_qlinear_matmul_10 = {
    OP_ROW,
    .name = "QLinearMatMul",
    .since = 10,
    .inputs =
        "a:T1 a_scale:TS a_zero_point:T1 b:T2 b_scale:TS b_zero_point:T2 y_scale:TS "
        "y_zero_point:T3",
    .outputs = "y:T3",
    .types = "T1=i8,u8 T2=i8,u8 T3=i8,u8 TS=f32",
    .state_bytes = sizeof(struct integer_state),
    .infer = qlinear_matmul_infer,
    .run = qlinear_matmul_run,
    .cost = "O(m n k)",
};
