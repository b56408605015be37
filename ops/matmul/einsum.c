/* einsum.c - Einsum: Y[output labels] = the sum over all other labels of the product of
 * the inputs.
 *
 * inputs     any number of tensors of one real type, a label for each of their dims
 * equation   "bij,bjk->bik"; "..." for any leading dims; a label twice in an operand
 *            takes the diagonal; without "->" the labels that occur once, in order
 * Y          the dims of the output labels
 *
 * Two f32 operands whose labels are batch, rows, columns and depth are a batched matrix
 * product with strides. All other equations are summed element by element (f32 in
 * double). Cost: one term for each combination of all labels.
 * Source: ONNX Einsum-12. */
#include "einsum_equation.h"
#include "gemm.h"

struct einsum_args {
    attnrun_string equation;
};
static const attnrun_attr_def einsum_attrs[] = {
    { .name = "equation",
      .kind = ATTNRUN_ATTR_STRING,
      .offset = offsetof(struct einsum_args, equation),
      .flags = ATTNRUN_ATTR_REQUIRED },
    ATTR_END,
};

/* Loops over labels: sizes, and the element strides of every operand. */
struct einsum_loops {
    int n;
    int64_t size[EINSUM_LABELS];
    int64_t stride[EINSUM_LABELS][EINSUM_OPERANDS];
};

struct einsum_state {
    struct einsum_loops out, sum;
    int64_t n_out, block;
    bool product, swapped; /* swapped: the second input is A */
    struct attn_gemm gemm;
};

/* ---- infer ---- */

static attn_status label_dims(const attnrun_step *step, const struct einsum_equation *e,
                              attnrun_dim *dims)
{
    for (int label = 0; label < e->n_labels; label++)
        dims[label] = dim_of(1);
    for (int op = 0; op < e->n_operands; op++)
        for (int i = 0; i < e->rank[op]; i++) {
            attnrun_dim *dim = &dims[e->labels[op][i]], own = step->in[op].dims[i];
            if (!dim_may_equal(*dim, own) && !dim_is(*dim, 1) && !dim_is(own, 1))
                return op_fail_input(
                    step, op, ATTNRUN_E_SHAPE,
                    "dim %d does not fit size %lld, which its label has elsewhere", i,
                    (long long)dim->value);
            *dim = op_broadcast_dim(step, *dim, own);
        }
    return ATTNRUN_OK;
}

static void add_loop(const attnrun_step *step, const struct einsum_equation *e, int label,
                     int64_t size, struct einsum_loops *loops)
{
    int64_t *strides = loops->stride[loops->n];
    loops->size[loops->n++] = size;
    for (int op = 0; op < e->n_operands; op++) {
        if (op_count(&step->in[op], 0, e->rank[op]) <= 0)
            continue; /* never read */
        int64_t stride = 1;
        for (int i = e->rank[op] - 1; i >= 0; i--) {
            int64_t dim = step->in[op].dims[i].value;
            if (e->labels[op][i] == label && dim != 1)
                strides[op] += stride;
            if (dim > 0)
                stride *= dim;
        }
    }
}

static bool is_out(const struct einsum_equation *e, int label)
{
    for (int i = 0; i < e->rank[EINSUM_OUT]; i++)
        if (e->labels[EINSUM_OUT][i] == label)
            return true;
    return false;
}

/* Whether loop `outer` around loop `inner` is one loop for this operand's stride. */
static bool runs_on(int64_t outer_stride, int64_t inner_stride, int64_t inner_size)
{
    return outer_stride == inner_stride * inner_size;
}

/* The kinds of a loop: what it moves. Broadcast dims of size 1 move nothing. */
enum { MOVES_A = 1, MOVES_B = 2 };
static int moves(const struct einsum_loops *loops, int i, int a)
{
    return (loops->stride[i][a] != 0 ? MOVES_A : 0) |
           (loops->stride[i][1 - a] != 0 ? MOVES_B : 0);
}

/* All sums must be one loop over the depth of both operands. */
static bool find_depth(const struct einsum_loops *sum, int a, struct attn_gemm *g)
{
    g->k = 1;
    g->a_col = g->b_row = 1;
    for (int i = sum->n - 1; i >= 0; i--) {
        if (sum->size[i] == 1)
            continue;
        int64_t of_a = sum->stride[i][a], of_b = sum->stride[i][1 - a];
        if (of_a == 0 || of_b == 0)
            return false;
        if (g->k == 1) {
            g->a_col = of_a;
            g->b_row = of_b;
        } else if (!runs_on(of_a, g->a_col, g->k) || !runs_on(of_b, g->b_row, g->k)) {
            return false;
        }
        g->k *= sum->size[i];
    }
    return true;
}

/* Describes the equation as a batched product with input `a` as A; false where it is
 * none. */
static bool find_product(const struct einsum_loops *out, const struct einsum_loops *sum,
                         int a, struct attn_gemm *g)
{
    int64_t c_stride = 1;
    int last = out->n - 1;
    *g = (struct attn_gemm){ .b_type = ATTNRUN_F32, .m = 1, .n = 1 };
    if (!find_depth(sum, a, g))
        return false;
    g->b_col = 1;
    for (; last >= 0 && moves(out, last, a) == MOVES_B; last--) { /* columns */
        int64_t stride = out->stride[last][1 - a];
        if (g->n > 1 && !runs_on(stride, g->b_col, g->n))
            break;
        g->b_col = g->n > 1 ? g->b_col : stride;
        g->n *= out->size[last];
        c_stride *= out->size[last];
    }
    g->c_row = g->n;
    bool rows = false;
    for (int i = last; i >= 0; i--) { /* the rest: the first one of A is the rows */
        if (!rows && moves(out, i, a) == MOVES_A) {
            rows = true;
            g->m = out->size[i];
            g->a_row = out->stride[i][a];
            g->c_row = c_stride;
        } else {
            int at = g->n_batch++;
            g->batch[at] = out->size[i];
            g->a_batch[at] = out->stride[i][a];
            g->b_batch[at] = out->stride[i][1 - a];
            g->c_batch[at] = c_stride;
        }
        c_stride *= out->size[i];
    }
    return g->m > 1 || g->n > 1;
}

/* Either input may be A; columns of more than one element are better than none. */
static void choose_product(struct einsum_state *state)
{
    struct attn_gemm other;
    bool first = find_product(&state->out, &state->sum, 0, &state->gemm);
    bool second = find_product(&state->out, &state->sum, 1, &other);
    state->swapped = second && (!first || (state->gemm.n == 1 && other.n > 1));
    state->product = first || second;
    if (state->swapped)
        state->gemm = other;
}

static attn_status plan_einsum(attnrun_step *step, const struct einsum_equation *e,
                               const attnrun_dim *dims)
{
    struct einsum_state *state = step->state;
    int64_t depth = 1;
    bool fits = true, empty = false;
    for (int i = 0; i < e->rank[EINSUM_OUT]; i++) {
        int label = e->labels[EINSUM_OUT][i];
        add_loop(step, e, label, dims[label].value, &state->out);
        empty = empty || dims[label].value == 0;
    }
    for (int label = 0; label < e->n_labels; label++)
        if (!is_out(e, label)) {
            add_loop(step, e, label, dims[label].value, &state->sum);
            fits = fits && ck_mul(depth, dims[label].value, &depth);
        }
    state->n_out = op_count(&step->out[0], 0, step->out[0].rank);
    if (!fits || state->n_out < 0)
        return op_fail_size(
            step, "the number of elements of the result, or of terms of one sum,",
            "2^63 - 1");
    if (!empty && depth > 0 && e->n_operands == 2 && step->in[0].dtype == ATTNRUN_F32)
        choose_product(state);
    if (state->product) {
        TRY(attn_gemm_plan(step, &state->gemm));
        op_tasks(step, 0, state->gemm.n_tasks, state->gemm.task_cost);
        step->scratch_bytes = state->gemm.scratch_bytes;
        return ATTNRUN_OK;
    }
    state->block = depth < 8192 ? 8192 / (depth + 1) + 1 : 1;
    double cost = 4.0 * (double)state->block * (double)(depth + 1);
    op_tasks(step, 0, ceil_div(state->n_out, state->block),
             cost < 1e15 ? (int64_t)cost : (int64_t)1e15);
    return ATTNRUN_OK;
}

static attn_status einsum_infer(attnrun_step *step)
{
    const struct einsum_args *args = step->args;
    struct einsum_equation e;
    attnrun_dim dims[EINSUM_LABELS], out[ATTNRUN_MAX_RANK];
    if (step->n_in < 1)
        return op_fail(step, ATTNRUN_E_INPUT, "expected at least 1 input");
    for (int op = 0; op < step->n_in; op++)
        if (!op_rank_known(step, op))
            return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(attn_einsum_parse(step, args->equation, &e));
    TRY(label_dims(step, &e, dims));
    for (int i = 0; i < e.rank[EINSUM_OUT]; i++)
        out[i] = dims[e.labels[EINSUM_OUT][i]];
    TRY(op_out(step, 0, step->in[0].dtype, e.rank[EINSUM_OUT], out));
    return step->concrete && op_has_out(step, 0) ? plan_einsum(step, &e, dims)
                                                 : ATTNRUN_OK;
}

/* ---- run ---- */

/* Moves to the next element of the loops: adds to the offsets; false at the end (all at
 * 0). */
static bool next(const struct einsum_loops *loops, int n_operands, int64_t *index,
                 int64_t *offsets)
{
    for (int i = loops->n - 1; i >= 0; i--) {
        for (int op = 0; op < n_operands; op++)
            offsets[op] += loops->stride[i][op];
        if (++index[i] < loops->size[i])
            return true;
        for (int op = 0; op < n_operands; op++)
            offsets[op] -= loops->stride[i][op] * loops->size[i];
        index[i] = 0;
    }
    return false;
}

static bool any_empty(const struct einsum_loops *loops)
{
    for (int i = 0; i < loops->n; i++)
        if (loops->size[i] == 0)
            return true;
    return false;
}

static double product_real(const attnrun_step *step, const int64_t *offsets)
{
    double product = 1;
    for (int op = 0; op < step->n_in; op++)
        product *= step->x[op].dtype == ATTNRUN_F32
                       ? (double)((const float *)step->x[op].data)[offsets[op]]
                       : ((const double *)step->x[op].data)[offsets[op]];
    return product;
}

static uint64_t product_whole(const attnrun_step *step, const int64_t *offsets)
{
    uint64_t product = 1;
    for (int op = 0; op < step->n_in; op++)
        product *= (uint64_t)tensor_get_int(&step->x[op], offsets[op]);
    return product;
}

/* Stores a whole number cut to the output's type: integers wrap. */
static void put_whole(const attnrun_tensor *y, int64_t at, uint64_t value)
{
    char *to = (char *)y->data + at * dtype_bytes(y->dtype);
    memcpy(to, &value,
           (size_t)dtype_bytes(y->dtype)); /* little-endian, as all targets are */
}

/* Element `at` of Y, whose operands begin at `offsets`. */
static attn_status sum_element(const attnrun_step *step, const int64_t *offsets,
                               int64_t at, const attnrun_work *work)
{
    const struct einsum_state *state = step->state;
    const attnrun_tensor *y = &step->y[0];
    const bool real = dtype_in(y->dtype, ATTN_DT_FLOAT);
    int64_t index[EINSUM_LABELS] = { 0 }, here[EINSUM_OPERANDS], turns = 0;
    double sum = 0;
    uint64_t whole = 0;
    memcpy(here, offsets, sizeof here);
    if (!any_empty(&state->sum))
        do {
            if (real)
                sum += product_real(step, here);
            else
                whole += product_whole(step, here);
            if (++turns % 65536 == 0 && OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
        } while (next(&state->sum, step->n_in, index, here));
    if (y->dtype == ATTNRUN_F32)
        ((float *)y->data)[at] = (float)sum;
    else if (y->dtype == ATTNRUN_F64)
        ((double *)y->data)[at] = sum;
    else
        put_whole(y, at, whole);
    return ATTNRUN_OK;
}

static attn_status sum_task(const attnrun_step *step, int64_t task,
                            const attnrun_work *work)
{
    const struct einsum_state *state = step->state;
    const struct einsum_loops *out = &state->out;
    int64_t index[EINSUM_LABELS] = { 0 }, offsets[EINSUM_OPERANDS] = { 0 };
    int64_t at = task * state->block, end = at + state->block, rest = at;
    for (int i = out->n - 1; i >= 0; i--) {
        index[i] = op_take(&rest, out->size[i]);
        for (int op = 0; op < step->n_in; op++)
            offsets[op] += index[i] * out->stride[i][op];
    }
    for (; at < end && at < state->n_out; at++) {
        TRY(sum_element(step, offsets, at, work));
        next(out, step->n_in, index, offsets);
    }
    return ATTNRUN_OK;
}

static attn_status einsum_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct einsum_state *state = step->state;
    const int a = state->swapped ? 1 : 0;
    const struct attn_gemm_operands o = { .a = step->x[a].data,
                                          .b = step->x[1 - a].data,
                                          .c = step->y[0].data };
    if (state->product)
        return attn_gemm_run(&state->gemm, step->kernels, &o, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(sum_task(step, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_einsum_12 = {
    OP_ROW,
    .name = "Einsum",
    .since = 12,
    .inputs = "Inputs:T*",
    .outputs = "Output:T",
    .types = "T=f32,f64,i8,i16,i32,i64,u8,u16,u32,u64",
    .args_bytes = sizeof(struct einsum_args),
    .state_bytes = sizeof(struct einsum_state),
    .attrs = einsum_attrs,
    .infer = einsum_infer,
    .run = einsum_run,
    .cost = "O(product of all labels)",
};
