/* reduce.c - the operators of reduce.def: they fold the elements along some axes to one.
 *
 * data      any real type (b8 for Max and Min) and shape
 * axes      all by default, or none where noop_with_empty_axes; negative ones count from
 *           the end
 * keepdims  1 by default: the folded dims stay as 1
 *
 * Sums of floats are taken in double over blocks, in an order that the shape alone
 * decides. An empty set gives 0, for the product 1, for Max the lowest value of the type,
 * for Min the largest. Cost: one read of data. Source: ONNX, axes as an attribute (since
 * 1) and as an input (since 13 or 18). */
#include <float.h>
#include <math.h>

#include "../elementwise/elementwise.h"
#include "reduce_plan.h"
#include "../tile.h"

#include "../../runtime/tensor.h"

enum fold { SUM, SQUARE, ABS, PROD, MAX, MIN, SUM_EXP, FOLDS };
enum finish { NONE, MEAN, SQRT, LOG };
enum { TILE = 512 };        /* outputs that are accumulated side by side */
enum { ROWS = 16 };         /* rows of them whose sum is taken in float */
enum { SEGMENT = 1 << 17 }; /* elements of a segment between two polls */

struct reduce_args {
    attnrun_ints axes;
    int64_t keepdims, noop_with_empty_axes;
};
static const attnrun_attr_def axes_attrs[] = { ATTR_INTS(struct reduce_args, axes),
                                               ATTR_FLAG(struct reduce_args, keepdims, 1),
                                               ATTR_END };
static const attnrun_attr_def input_attrs[] = {
    ATTR_FLAG(struct reduce_args, keepdims, 1),
    ATTR_FLAG(struct reduce_args, noop_with_empty_axes, 0), ATTR_END
};

struct reduce {
    enum fold fold;
    enum finish finish;
};

struct reduce_state {
    struct reduce_plan plan;
    int64_t tiles;    /* of the run, where that is kept; else 1 */
    int64_t per_task; /* outputs, or tiles of outputs */
};

union accumulator {
    double f;
    int64_t i;
    uint64_t u;
};
typedef void fold_fn(const struct attn_kernels *kernels, union accumulator *to,
                     const void *from, int64_t n);

#define FOR_EACH_FLOAT    1
#define FOR_EACH_SINT     1
#define FOR_EACH_UINT     1
#define FOR_EACH_BOOL     1
#define FOR_EACH_TEMPLATE "reduce/reduce_template.h"
#include "../for_each_dtype.h"

#define FOLD_KERNEL(name, run_kernel, row_kernel)                                        \
    static void name##_run_f32(const struct attn_kernels *kernels,                       \
                               union accumulator *to, const void *from, int64_t n)       \
    {                                                                                    \
        to->f += kernels->run_kernel(from, (size_t)n);                                   \
    }                                                                                    \
    static void name##_row_f32(const struct attn_kernels *kernels,                       \
                               union accumulator *to, const void *from, int64_t n)       \
    {                                                                                    \
        kernels->row_kernel(&to->f, from, (size_t)n);                                    \
    }
static void sum_run_f32(const struct attn_kernels *kernels, union accumulator *to,
                        const void *from, int64_t n)
{
    to->f += kernels->sum_f32(from, (size_t)n);
}
static void sum_row_f32(const struct attn_kernels *kernels, union accumulator *to,
                        const void *from, int64_t n)
{
    kernels->add_rows_f32(&to->f, from, 0, 1, (size_t)n);
}
FOLD_KERNEL(square, sum_square_f32, add_row_square_f32)
FOLD_KERNEL(abs, sum_abs_f32, add_row_abs_f32)

static void max_rows_f32(const struct attn_kernels *kernels, union accumulator *to,
                         const void *from, int64_t n)
{
    kernels->max_row_f32(&to->f, from, (size_t)n);
}

static void min_rows_f32(const struct attn_kernels *kernels, union accumulator *to,
                         const void *from, int64_t n)
{
    kernels->min_row_f32(&to->f, from, (size_t)n);
}

static void max_runs_f32(const struct attn_kernels *kernels, union accumulator *to,
                         const void *from, int64_t n)
{
    float best = kernels->reduce_max_f32(from, (size_t)n);
    kernels->max_row_f32(&to->f, &best, 1);
}

static void min_runs_f32(const struct attn_kernels *kernels, union accumulator *to,
                         const void *from, int64_t n)
{
    float best = kernels->reduce_min_f32(from, (size_t)n);
    kernels->min_row_f32(&to->f, &best, 1);
}

#define FOLDS_OF(name)                                                                   \
    {                                                                                    \
        { LOOPS_NUM(name##_run) }, { LOOPS_NUM(name##_row) }                             \
    }
#define FOLDS_OF_BEST(name, kind)                                                        \
    { [ATTNRUN_F32] = name##_##kind##s_f32,                                              \
      LOOPS_F64(name##_##kind),                                                          \
      LOOPS_INT(name##_##kind),                                                          \
      LOOPS_B8(name##_##kind) }
#define FOLDS_OF_ALL(name) { FOLDS_OF_BEST(name, run), FOLDS_OF_BEST(name, row) }
static const struct fold_table {
    fold_fn *run[ATTNRUN_DTYPE_COUNT], *row[ATTNRUN_DTYPE_COUNT];
} fold_tables[FOLDS] = {
    [SUM] = FOLDS_OF(sum),     [SQUARE] = FOLDS_OF(square), [ABS] = FOLDS_OF(abs),
    [PROD] = FOLDS_OF(prod),   [MAX] = FOLDS_OF_ALL(max),   [MIN] = FOLDS_OF_ALL(min),
    [SUM_EXP] = FOLDS_OF(sum), /* not used: sum_exp() below */
};

/* ---- infer ---- */

/* Bits of the folded axes; *known false where the input is not known yet. */
static attn_status axes_mask(attnrun_step *step, uint32_t *mask, bool *known)
{
    const struct reduce_args *args = step->args;
    int rank = step->in[0].rank, n = 0, axis;
    int64_t axes[64];
    *mask = 0;
    *known = true;
    if (op_has_in(step, 1)) {
        TRY(op_ints(step, 1, axes, 64, &n, known));
        if (!*known)
            return ATTNRUN_OK;
    } else if (args->axes.v != NULL) {
        if (args->axes.n > 64)
            return op_fail(step, ATTNRUN_E_ATTR, "axes has %s, expected at most 64",
                           attn_plural(args->axes.n, "element"));
        for (; n < args->axes.n; n++)
            axes[n] = args->axes.v[n];
    }
    if (n == 0 && !args->noop_with_empty_axes)
        *mask = (UINT32_C(1) << rank) - 1;
    for (int i = 0; i < n; i++) {
        TRY(op_axis(step, axes[i], rank, false, &axis));
        *mask |= UINT32_C(1) << axis;
    }
    return ATTNRUN_OK;
}

static attn_status reduced_dims(attnrun_step *step, uint32_t mask, bool known,
                                bool keepdims)
{
    const attnrun_type *x = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank = 0;
    if (!known && !keepdims)
        return op_out(step, 0, x->dtype, -1, NULL);
    for (int d = 0; d < x->rank; d++) {
        if (!known)
            dims[rank++] = attnrun_dim_unknown(step);
        else if (!(mask >> d & 1))
            dims[rank++] = x->dims[d];
        else if (keepdims)
            dims[rank++] = dim_of(1);
    }
    return op_out(step, 0, x->dtype, rank, dims);
}

/* Sizes along a whole vector: Prod, Sum, Max, Min of a shape. */
static void reduce_known(attnrun_step *step, enum fold fold, uint32_t mask)
{
    const attnrun_type *x = &step->in[0];
    attnrun_dim (*combine)(const attnrun_step *, attnrun_dim, attnrun_dim) =
        fold == PROD  ? attnrun_dim_mul
        : fold == SUM ? attnrun_dim_add
        : fold == MAX ? attnrun_dim_max
        : fold == MIN ? attnrun_dim_min
                      : NULL;
    const struct reduce *reduce = step->node->op->user;
    attnrun_dim value, next;
    if (combine == NULL || reduce->finish != NONE || mask != 1 || x->rank != 1 ||
        !dtype_in(x->dtype, ATTN_DT(I32) | ATTN_DT(I64)) || !dim_is_const(x->dims[0]) ||
        x->dims[0].value < 1 || x->dims[0].value > 64 ||
        !op_peek_value(step, 0, 0, &value))
        return;
    for (int64_t k = 1; k < x->dims[0].value; k++) {
        if (!op_peek_value(step, 0, k, &next))
            return;
        value = combine(step, value, next);
    }
    if (value.expr >= 0)
        attnrun_step_set_values(step, 0, 1, &value);
}

static void plan_tasks(attnrun_step *step, uint32_t mask)
{
    struct reduce_state *state = step->state;
    const struct reduce *reduce = step->node->op->user;
    const attnrun_type *x = &step->in[0];
    int64_t dims[ATTNRUN_MAX_RANK];
    for (int d = 0; d < x->rank; d++)
        dims[d] = x->dims[d].value;
    attn_reduce_plan_make(&state->plan, x->rank, dims, mask);
    const struct reduce_plan *plan = &state->plan;
    int64_t width = plan->run_folded ? 1 : plan->run < TILE ? plan->run : TILE;
    state->tiles = plan->run_folded ? 1 : ceil_div(plan->run, TILE);
    int64_t unit = width * (plan->folded_count > 0 ? plan->folded_count : 1);
    state->per_task = unit >= OP_CHUNK || unit < 1 ? 1 : OP_CHUNK / unit;
    int64_t units = plan->kept.count * state->tiles;
    op_unit_tasks(step, 0, units, state->per_task,
                  (double)unit / (reduce->fold == SUM_EXP ? 1 : 4));
    op_flops(step, (double)plan->kept.count * (plan->run_folded ? 1 : (double)plan->run) *
                       (double)plan->folded_count);
}

static attn_status reduce_infer(attnrun_step *step)
{
    const struct reduce *reduce = step->node->op->user;
    const struct reduce_args *args = step->args;
    enum fold fold = reduce->fold == SUM_EXP ? MAX : reduce->fold;
    uint32_t mask;
    bool known;
    TRY(op_need_loop(step, 0, fold_tables[fold].run[step->in[0].dtype] != NULL));
    if (!op_rank_known(step, 0))
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(axes_mask(step, &mask, &known));
    TRY(reduced_dims(step, mask, known, args->keepdims != 0));
    if (known)
        reduce_known(step, reduce->fold, mask);
    if (known && step->concrete)
        plan_tasks(step, mask);
    return ATTNRUN_OK;
}

/* ---- run ---- */

static union accumulator start_value(enum fold fold, int32_t dtype)
{
    bool is_float = dtype_in(dtype, ATTN_DT_FLOAT), max = fold == MAX;
    bool is_signed = dtype_in(dtype, ATTN_DT_SINT);
    int64_t bits = dtype_bits(dtype);
    if (fold != MAX && fold != MIN) {
        double one = fold == PROD ? 1.0 : 0.0;
        return is_float ? (union accumulator){ .f = one }
                        : (union accumulator){ .u = fold == PROD };
    }
    if (is_float)
        return (union accumulator){ .f = max ? -HUGE_VAL : HUGE_VAL };
    if (is_signed)
        return (union accumulator){ .i = max ? INT64_MIN >> (64 - bits)
                                             : INT64_MAX >> (64 - bits) };
    if (dtype == ATTNRUN_BOOL)
        return (union accumulator){ .u = !max };
    return (union accumulator){ .u = max ? 0 : UINT64_MAX >> (64 - bits) };
}

static double finish_real(enum finish finish, double value, double n)
{
    switch (finish) {
    case MEAN:
        return value / n;
    case SQRT:
        return sqrt(value);
    case LOG:
        return log(value);
    default:
        return value;
    }
}

/* Integer results are whole: means and roots are cut towards zero. */
static int64_t finish_int(enum finish finish, union accumulator a, bool is_signed,
                          int64_t n)
{
    double real = is_signed ? (double)a.i : (double)a.u;
    switch (finish) {
    case MEAN:
        return n == 0 ? 0 : is_signed ? a.i / n : (int64_t)(a.u / (uint64_t)n);
    case SQRT:
        return (int64_t)sqrt(real < 0 ? 0 : real);
    case LOG:
        return real < 1 ? 0 : (int64_t)log(real);
    default:
        return a.i;
    }
}

static void reduce_store(const struct reduce *reduce, const attnrun_tensor *y,
                         int64_t first, int64_t n, const union accumulator *a,
                         int64_t folded_count)
{
    char *to = (char *)y->data + first * dtype_bytes(y->dtype);
    bool is_signed = dtype_in(y->dtype, ATTN_DT_SINT);
    if (y->dtype == ATTNRUN_F32 && reduce->finish == NONE) {
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] = (float)a[i].f;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (y->dtype == ATTNRUN_F32) {
            ((float *)(void *)to)[i] =
                (float)finish_real(reduce->finish, a[i].f, (double)folded_count);
        } else if (y->dtype == ATTNRUN_F64) {
            ((double *)(void *)to)[i] =
                finish_real(reduce->finish, a[i].f, (double)folded_count);
        } else { /* little-endian: the low bytes */
            int64_t value = finish_int(reduce->finish, a[i], is_signed, folded_count);
            int64_t bytes = dtype_bytes(y->dtype);
            memcpy(to + i * bytes, &value, (size_t)bytes);
        }
    }
}

/* A top that is not finite must not be subtracted: inf - inf is NaN. */
static double finite_top(double top) { return isfinite(top) ? top : 0; }

/* a: the largest elements of TILE columns at most; becomes log(sum(exp(x))) of them. */
static void log_sum_exp_columns_f32(const attnrun_step *step, const float *base,
                                    int64_t width, union accumulator *a)
{
    static const float unused[2] = { 0 };
    const struct attn_kernels *k = step->kernels;
    const struct reduce_loops *folded =
        &((const struct reduce_state *)step->state)->plan.folded;
    const size_t n = (size_t)width;
    float top[TILE], e[TILE];
    for (int64_t w = 0; w < width; w++) {
        top[w] = (float)finite_top(a[w].f);
        a[w].f = 0;
    }
    for (int64_t r = 0; r < folded->count; r++) {
        if (attn_poll_work(width * 16) != ATTNRUN_OK)
            return;
        k->sub_f32(e, base + reduce_offset(folded, r), 1, top, 1, n);
        k->exp_f32(e, e, n, unused);
        k->add_rows_f32(&a->f, e, 0, 1, n);
    }
    for (int64_t w = 0; w < width; w++)
        e[w] = (float)a[w].f;
    k->log_f32(e, e, n, unused);
    for (int64_t w = 0; w < width; w++)
        a[w].f = (double)(top[w] + e[w]);
}

/* top + log(sum) of integers whose largest one is top, cut towards zero; 0 of an empty set. */
static uint64_t log_sum_exp_int(union accumulator top, bool is_signed, double sum)
{
    if (sum <= 0)
        return 0;
    const double more = log(sum), real = (double)top.i + more;
    if (is_signed && top.i < 0)
        return real >= 0 ? (uint64_t)real : top.u + (uint64_t)ceil(more);
    return top.u + (uint64_t)more;
}

/* The same of any elements that are folded, and of doubles and integers, output by output. */
static void log_sum_exp(const attnrun_step *step, const char *base, int64_t width,
                        union accumulator *a)
{
    const struct reduce_plan *plan = &((const struct reduce_state *)step->state)->plan;
    const attnrun_tensor *data = &step->x[0];
    const bool narrow = data->dtype == ATTNRUN_F32;
    const bool is_float = dtype_in(data->dtype, ATTN_DT_FLOAT);
    const int64_t origin = (base - (const char *)data->data) / dtype_bytes(data->dtype);
    const float *x_f32 = (const float *)(const void *)base;
    const double *x = (const double *)(const void *)base;
    if (narrow && !plan->run_folded && plan->folded_count > 0) {
        log_sum_exp_columns_f32(step, x_f32, width, a);
        return;
    }
    const int64_t n = plan->folded_count > 0 ? plan->folded.count : 0;
    const int64_t inner = plan->run_folded ? plan->run : 1;
    for (int64_t w = 0; w < width; w++) {
        const double top = is_float ? finite_top(a[w].f) : 0;
        double sum = 0;
        for (int64_t r = 0; r < n && attn_poll_work(inner * 16) == ATTNRUN_OK; r++) {
            const int64_t at = reduce_offset(&plan->folded, r) + w;
            if (narrow)
                sum += step->kernels->sum_exp_f32(x_f32 + at, (float)top, (size_t)inner);
            for (int64_t i = 0; i < inner && !narrow && !attn_stops(i); i++)
                sum += exp(is_float ? x[at + i] - top
                                    : -(double)(a[w].u - (uint64_t)tensor_get_int(
                                                             data, origin + at + i)));
        }
        if (is_float)
            a[w].f = top + log(sum);
        else
            a[w].u = log_sum_exp_int(a[w], dtype_in(data->dtype, ATTN_DT_SINT), sum);
    }
}

/* ReduceLogSumExp of f32 whose outputs each fold one run: outputs [begin, end). */
static attn_status log_sum_exp_lines_f32(const attnrun_step *step, int64_t begin,
                                         int64_t end)
{
    static const float unused[2] = { 0 };
    const struct attn_kernels *k = step->kernels;
    const struct reduce_plan *plan = &((const struct reduce_state *)step->state)->plan;
    float top[TILE], sum[TILE];
    for (int64_t first = begin, n; first < end; first += n) {
        n = end - first < TILE ? end - first : TILE;
        for (int64_t i = 0; i < n; i++) {
            const float *x =
                (const float *)step->x[0].data + reduce_offset(&plan->kept, first + i);
            if (attn_poll_work(plan->run * 16) != ATTNRUN_OK)
                return ATTNRUN_E_CANCELLED;
            top[i] = (float)finite_top((double)k->reduce_max_f32(x, (size_t)plan->run));
            sum[i] = (float)k->sum_exp_f32(x, top[i], (size_t)plan->run);
        }
        k->log_f32(sum, sum, (size_t)n, unused);
        k->add_f32((float *)step->y[0].data + first, sum, 1, top, 1, (size_t)n);
    }
    return ATTNRUN_OK;
}

/* Folds a contiguous segment into one accumulator, in parts, with a poll between them. */
static void fold_run(const attnrun_step *step, const attnrun_work *work, fold_fn *fold,
                     union accumulator *a, const char *x)
{
    const struct reduce_state *state = step->state;
    int64_t size = dtype_bytes(step->x[0].dtype);
    for (int64_t k = 0, n; k < state->plan.run; k += n) {
        n = state->plan.run - k < SEGMENT ? state->plan.run - k : SEGMENT;
        fold(step->kernels, a, x + k * size, n);
        if (OP_CANCELLED(work))
            return;
    }
}

/* Sums of floats down neighbouring columns, a few rows at a time. */
static void sum_rows(const attnrun_step *step, const attnrun_work *work,
                     union accumulator *a, const float *x, int64_t width)
{
    const struct reduce_loops *folded =
        &((const struct reduce_state *)step->state)->plan.folded;
    const int64_t inner = folded->n > 0 ? folded->dims[0] : 1;
    const int64_t stride = folded->n > 0 ? folded->strides[0] : 0;
    for (int64_t r = 0, rows; r < folded->count; r += rows) {
        rows = inner - r % inner < ROWS ? inner - r % inner : ROWS;
        step->kernels->add_rows_f32(&a->f, x + reduce_offset(folded, r),
                                    (ptrdiff_t)stride, (size_t)rows, (size_t)width);
        if (OP_CANCELLED(work))
            return;
    }
}

/* `width` neighbouring outputs from output `first` on, whose first element is at
 * `base`. */
static void fold_outputs(const attnrun_step *step, const attnrun_work *work,
                         const char *base, int64_t first, int64_t width)
{
    const struct reduce *reduce = step->node->op->user;
    const struct reduce_state *state = step->state;
    const struct reduce_plan *plan = &state->plan;
    const attnrun_tensor *x = &step->x[0];
    enum fold fold = reduce->fold == SUM_EXP ? MAX : reduce->fold;
    fold_fn *run = fold_tables[fold].run[x->dtype],
            *row = fold_tables[fold].row[x->dtype];
    const union accumulator start = start_value(fold, x->dtype);
    union accumulator a[TILE];
    for (int64_t w = 0; w < width; w++)
        a[w] = start;
    bool rows = fold == SUM && x->dtype == ATTNRUN_F32 && !plan->run_folded;
    if (rows && plan->folded_count > 0)
        sum_rows(step, work, a, (const float *)(const void *)base, width);
    for (int64_t r = 0; r < plan->folded.count && plan->folded_count > 0 && !rows; r++) {
        const char *at = base + reduce_offset(&plan->folded, r) * dtype_bytes(x->dtype);
        if (plan->run_folded)
            fold_run(step, work, run, a, at);
        else
            row(step->kernels, a, at, width);
        if (OP_CANCELLED(work))
            return;
    }
    if (reduce->fold == SUM_EXP)
        log_sum_exp(step, base, width, a);
    reduce_store(reduce, &step->y[0], first, width, a, plan->folded_count);
}

static bool reduces_lines(const attnrun_step *step)
{
    const struct reduce *reduce = step->node->op->user;
    const struct reduce_plan *plan = &((const struct reduce_state *)step->state)->plan;
    return reduce->fold == SUM_EXP && step->x[0].dtype == ATTNRUN_F32 &&
           plan->run_folded && plan->folded.count == 1 && plan->folded_count > 0;
}

static attn_status reduce_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct reduce_state *state = step->state;
    const struct reduce_plan *plan = &state->plan;
    const attnrun_tensor *x = &step->x[0];
    int64_t units = plan->kept.count * state->tiles;
    int64_t begin = work->begin * state->per_task;
    int64_t end =
        work->end * state->per_task < units ? work->end * state->per_task : units;
    if (step->y[0].data == NULL || tensor_count(&step->y[0]) == 0)
        return ATTNRUN_OK;
    if (reduces_lines(step))
        return log_sum_exp_lines_f32(step, begin, end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t outer = unit, start = op_take(&outer, state->tiles) * TILE;
        int64_t width = plan->run_folded           ? 1
                        : plan->run - start < TILE ? plan->run - start
                                                   : TILE;
        int64_t at = reduce_offset(&plan->kept, outer) + start;
        int64_t first = plan->run_folded ? outer : outer * plan->run + start;
        fold_outputs(step, work, (const char *)x->data + at * dtype_bytes(x->dtype),
                     first, width);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

#define REDUCE_ROW(row, Name, first, in, group_types, attributes, reduction)             \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = Name,                                                                    \
        .since = first,                                                                  \
        .inputs = in,                                                                    \
        .outputs = "reduced:T",                                                          \
        .types = "T=" group_types,                                                       \
        .args_bytes = sizeof(struct reduce_args),                                        \
        .state_bytes = sizeof(struct reduce_state),                                      \
        .attrs = attributes,                                                             \
        .infer = reduce_infer,                                                           \
        .run = reduce_run,                                                               \
        .user = (void *)&reduction,                                                      \
    };
#define REDUCE(name, Name, input_since, fold, finish, types)                             \
    static const struct reduce reduction_##name = { fold, finish };                      \
    REDUCE_ROW(op_##name##_1, #Name, 1, "data:T", TYPES_##types, axes_attrs,             \
               reduction_##name)                                                         \
    REDUCE_ROW(op_##name##_##input_since, #Name, input_since, "data:T axes:i64?",        \
               TYPES_##types, input_attrs, reduction_##name)
#include "reduce.def"
