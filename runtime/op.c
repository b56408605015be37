/* op.c - the helpers that operators use in infer() and run(): errors, shapes, known values,
 * an output whose shape depends on data. Declared and explained in op.h and attnrun.h. */
#include "op.h"

#include <stdarg.h>
#include <stdio.h>

#include "step.h"

/* ---- errors ---- */

attn_status op_fail(const attnrun_step *step, attn_status status, const char *format, ...)
{
    char text[640];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return attn_fail_node(status, step->node, "%s", text);
}

/* The name of operand `in` in a row: the text before ':' of its word. */
static void operand_name(const char *spec, int in, char *name, size_t bytes)
{
    name[0] = 0;
    while (spec != NULL && *spec != 0) {
        size_t skip = strspn(spec, " "), length = strcspn(spec + skip, " ");
        const char *word = spec + skip;
        if (length == 0)
            return;
        if (in-- == 0 || word[length - 1] == '*' ||
            (length > 1 && word[length - 2] == '*')) {
            size_t n = 0;
            while (n < length && word[n] != ':' && n + 1 < bytes)
                n++;
            memcpy(name, word, n);
            name[n] = 0;
            return;
        }
        spec = word + length;
    }
}

/* What joins a type and what is said of it into one sentence: "is f32[2], expected rank 2", "is
 * i64[1] and holds 9", "is f32[2]; dim 0 cannot be broadcast". */
static const char *joint(const char *text)
{
    return strncmp(text, "expected ", 9) == 0 || strncmp(text, "but ", 4) == 0 ? ", "
           : strncmp(text, "holds ", 6) == 0                                   ? " and "
                                                                               : "; ";
}

attn_status op_fail_input(const attnrun_step *step, int in, attn_status status,
                          const char *format, ...)
{
    char text[480], name[48];
    const struct attn_step *full = step_of(step);
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    operand_name(step->node->op->inputs, in, name, sizeof name);
    attn_fail_node(status, step->node, "input %d %s '%s' is %s%s%s", in, name,
                   in < step->n_in ? attn_quote(step->node->inputs[in]) : "",
                   in < step->n_in ? attn_type_format(full->dims, &step->in[in])
                                   : "absent",
                   joint(text), text);
    if (in < step->n_in)
        attn_fail_tensor(step->node->inputs[in]);
    return status;
}

attn_status op_fail_size(const attnrun_step *step, const char *what, const char *limit)
{
    char text[360], name[48];
    size_t used = 0;
    text[0] = 0;
    for (int in = 0; in < step->n_in && used < sizeof text; in++) {
        if (step->in[in].kind == ATTNRUN_ABSENT)
            continue;
        operand_name(step->node->op->inputs, in, name, sizeof name);
        const char *type = attn_type_format(step_of(step)->dims, &step->in[in]);
        const int n = snprintf(text + used, sizeof text - used, "%s%s %s",
                               used > 0 ? ", " : "", name, type);
        used += n > 0 ? (size_t)n : 0;
    }
    return op_fail(step, ATTNRUN_E_LIMIT, "%s would be over %s; the inputs are %s%s",
                   what, limit, text, used < sizeof text ? "" : "…");
}

attn_status op_fail_scratch(const attnrun_step *step)
{
    return op_fail_size(step, "its scratch memory in bytes, or its number of tasks,",
                        "2^63 - 1");
}

/* "input 1 B 'k' is f32[2,511], 511 in dim 1" */
static void write_op_dim(const attnrun_step *step, struct op_dim at, char *text,
                         size_t bytes)
{
    char name[48];
    operand_name(step->node->op->inputs, at.in, name, sizeof name);
    snprintf(text, bytes, "input %d %s '%s' is %s, %lld in dim %d", at.in, name,
             attn_quote(step->node->inputs[at.in]),
             attn_type_format(step_of(step)->dims, &step->in[at.in]),
             (long long)step->in[at.in].dims[at.axis].value, at.axis);
}

attn_status op_fail_dims(const attnrun_step *step, const char *what, struct op_dim a,
                         struct op_dim b)
{
    char first[480], second[480];
    write_op_dim(step, a, first, sizeof first);
    write_op_dim(step, b, second, sizeof second);
    attn_fail_node(ATTNRUN_E_SHAPE, step->node, "%s: %s; %s", what, first, second);
    attn_fail_tensor(step->node->inputs[b.in]);
    return ATTNRUN_E_SHAPE;
}

/* Functions for operators take what an operator of a caller gives them: also nothing, and places
 * that a node does not have. */
static attn_status need_step(const attnrun_step *step)
{
    return step != NULL ? ATTNRUN_OK : attn_fail(ATTNRUN_E_USAGE, "step is NULL");
}

static bool is_place(int64_t place, int64_t n) { return place >= 0 && place < n; }

attnrun_status attnrun_step_fail(const attnrun_step *step, attnrun_status status,
                                 const char *message)
{
    if (message == NULL)
        message = "the operator gave no reason";
    return step != NULL ? op_fail(step, status, "%s", message)
                        : attn_fail(status, "%s", message);
}

/* ---- dims ---- */

attnrun_dim attnrun_dim_make(int64_t value) { return dim_of(value); }

static struct attn_dims *dims_of(const attnrun_step *step)
{
    return step != NULL ? step_of(step)->dims : NULL;
}

attnrun_dim attnrun_dim_add(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_combine(dims_of(step), DIM_ADD, a, b);
}

attnrun_dim attnrun_dim_sub(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_combine(dims_of(step), DIM_SUB, a, b);
}

attnrun_dim attnrun_dim_mul(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_combine(dims_of(step), DIM_MUL, a, b);
}

attnrun_dim attnrun_dim_div(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_combine(dims_of(step), DIM_DIV, a, b);
}

attnrun_dim attnrun_dim_min(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_combine(dims_of(step), DIM_MIN, a, b);
}

attnrun_dim attnrun_dim_max(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    return attn_dim_combine(dims_of(step), DIM_MAX, a, b);
}

attnrun_dim attnrun_dim_unknown(const attnrun_step *step)
{
    struct attn_dims *dims = dims_of(step);
    return dims ? attn_dim_symbol(dims, NULL) : (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
}

int64_t op_count(const attnrun_type *type, int from, int to)
{
    int64_t count = 1;
    for (int i = from; i < to; i++) {
        if (type->dims[i].expr != 0)
            return -1;
        if (type->dims[i].value == 0)
            return 0;
    }
    for (int i = from; i < to; i++)
        if (!ck_mul(count, type->dims[i].value, &count))
            return -1;
    return count;
}

/* ---- checks ---- */

attn_status op_axis(const attnrun_step *step, int64_t axis, int rank, bool one_past,
                    int *wrapped)
{
    int64_t end = rank + (one_past ? 1 : 0);
    if (end == 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "axis %lld is given, but the input is a scalar without axes",
                       (long long)axis);
    if (axis < -end || axis >= end)
        return op_fail(step, ATTNRUN_E_ATTR, "axis %lld is out of range [%lld, %lld]",
                       (long long)axis, (long long)-end, (long long)end - 1);
    *wrapped = (int)(axis < 0 ? axis + end : axis);
    return ATTNRUN_OK;
}

attn_status op_axis_once(const attnrun_step *step, int64_t axis, int rank, uint32_t *seen,
                         int *wrapped)
{
    TRY(op_axis(step, axis, rank, false, wrapped));
    if (*seen >> *wrapped & 1)
        return op_fail(step, ATTNRUN_E_ATTR, "axis %d appears twice in axes", *wrapped);
    *seen |= UINT32_C(1) << *wrapped;
    return ATTNRUN_OK;
}

attn_status op_need_rank_between(const attnrun_step *step, int in, int min, int max)
{
    int rank = step->in[in].rank;
    if (rank < 0 || (rank >= min && rank <= max))
        return ATTNRUN_OK;
    if (min == max)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected rank %d", min);
    return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected rank %d to %d", min, max);
}

attn_status op_need_rank(const attnrun_step *step, int in, int rank)
{
    return op_need_rank_between(step, in, rank, rank);
}

attn_status op_need_dim(const attnrun_step *step, int in, int axis, attnrun_dim expected,
                        const char *what)
{
    const attnrun_type *type = &step->in[in];
    if (type->rank <= axis || dim_may_equal(type->dims[axis], expected))
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected %lld in dim %d (%s)",
                         (long long)expected.value, axis, what);
}

attn_status op_need_vector(const attnrun_step *step, int in, attnrun_dim n,
                           const char *what)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 1));
    return op_need_dim(step, in, 0, n, what);
}

attn_status op_need_loop(const attnrun_step *step, int in, bool there)
{
    if (there || step->in[in].dtype == ATTNRUN_UNDEFINED)
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_UNSUPPORTED,
                         "elements of this type are not supported");
}

/* ---- outputs ---- */

attn_status op_out(attnrun_step *step, int out, int32_t dtype, int rank,
                   const attnrun_dim *dims)
{
    if (!op_has_out(step, out))
        return ATTNRUN_OK;
    if (rank > ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "output %d would have rank %d, expected at most %d", out, rank,
                       ATTNRUN_MAX_RANK);
    attnrun_type *type = &step->out[out];
    *type = (attnrun_type){ .kind = ATTNRUN_TENSOR, .dtype = dtype, .rank = rank };
    for (int i = 0; i < rank; i++)
        type->dims[i] = dims[i];
    return ATTNRUN_OK;
}

attn_status op_out_like(attnrun_step *step, int out, int in)
{
    if (op_has_out(step, out))
        step->out[out] = step->in[in];
    return ATTNRUN_OK;
}

/* Dim `axis` of input `in` is not that of an input before: which is it? */
static attn_status fail_broadcast(const attnrun_step *step, int first, int in, int axis)
{
    const int from_end = step->in[in].rank - axis;
    const int64_t size = step->in[in].dims[axis].value;
    for (int i = first; i < in; i++) {
        const attnrun_type *type = &step->in[i];
        const int at = type->rank - from_end;
        if (op_has_in(step, i) && at >= 0 && dim_is_const(type->dims[at]) &&
            type->dims[at].value != 1 && type->dims[at].value != size)
            return op_fail_dims(step, "the shapes cannot be broadcast",
                                (struct op_dim){ i, at }, (struct op_dim){ in, axis });
    }
    return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                         "dim %d cannot be broadcast to the other inputs", axis);
}

attn_status op_broadcast(const attnrun_step *step, int first, int n, int *rank,
                         attnrun_dim *dims)
{
    *rank = 0;
    for (int i = first; i < first + n; i++) {
        if (!op_has_in(step, i))
            continue;
        if (step->in[i].rank < 0) {
            *rank = -1;
            return ATTNRUN_OK;
        }
        if (step->in[i].rank > *rank)
            *rank = step->in[i].rank;
    }
    for (int d = 0; d < *rank; d++)
        dims[d] = dim_of(1);
    for (int i = first; i < first + n; i++) {
        if (!op_has_in(step, i))
            continue;
        int shift = *rank - step->in[i].rank;
        for (int d = 0; d < step->in[i].rank; d++) {
            attnrun_dim a = dims[shift + d], b = step->in[i].dims[d];
            if (dim_is_const(a) && dim_is_const(b) && a.value != b.value &&
                a.value != 1 && b.value != 1)
                return fail_broadcast(step, first, i, d);
            dims[shift + d] = op_broadcast_dim(step, a, b);
        }
    }
    return ATTNRUN_OK;
}

attnrun_dim op_broadcast_dim(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    struct attn_dims *dims = step_of(step)->dims;
    return step_of(step)->graph->outer == NULL
               ? attn_dims_broadcast(dims, a, b)
               : attn_dim_combine(dims, DIM_BROADCAST, a, b);
}

bool op_text_is(attnrun_string text, const char *word)
{
    return text.n == (int64_t)strlen(word) && memcmp(text.data, word, strlen(word)) == 0;
}

void op_tasks(attnrun_step *step, int phase, int64_t n, int64_t cost)
{
    if (phase >= ATTNRUN_MAX_PHASES)
        return;
    step->phases[phase] = (attnrun_phase){ .n_tasks = n, .task_cost = cost };
    if (phase + 1 > step->n_phases || phase == 0)
        step->n_phases = phase + 1;
}

void op_unit_tasks(attnrun_step *step, int phase, int64_t n, int64_t each, double ns)
{
    each = max64(each, 1);
    const double cost = (double)min64(n, each) * ns;
    op_tasks(step, phase, ceil_div(n, each),
             cost < 1e15 ? (int64_t)cost : INT64_C(1000000000000000));
}

void attnrun_step_view(attnrun_step *step, int32_t out, int32_t in, int64_t byte_offset)
{
    if (step != NULL && is_place(out, step->n_out) && is_place(in, step->n_in)) {
        struct attn_step *full = step_of(step);
        full->known_outputs[out].view_of = in;
        full->known_outputs[out].view_offset = byte_offset;
    }
}

void attnrun_step_inplace(attnrun_step *step, int32_t out, int32_t in)
{
    if (step != NULL && is_place(out, step->n_out) && is_place(in, min64(step->n_in, 64)))
        step_of(step)->known_outputs[out].inplace |= UINT64_C(1) << in;
}

int32_t attnrun_step_append(attnrun_step *step, int32_t out, int32_t in, int32_t axis)
{
    if (step == NULL || !is_place(out, min64(step->n_out, 32)) ||
        !is_place(in, step->n_in))
        return 0;
    struct attn_step *full = step_of(step);
    full->known_outputs[out].append_to = in;
    full->known_outputs[out].append_axis = axis;
    return (int32_t)(full->appended >> out & 1);
}

void op_overwrite(const attnrun_step *step, const void *at, int64_t bytes)
{
    const char *from = at;
    if (bytes > 0 && (*from != 0 || memcmp(from, from + 1, (size_t)bytes - 1) != 0))
        __atomic_store_n(&step_of(step)->overwrote, true, __ATOMIC_RELAXED);
}

attn_status op_types(const attnrun_step *step, int n, attnrun_type **types)
{
    struct attn_step *full = step_of(step);
    if (n < 0 || n > full->n_types - full->types_taken)
        return op_fail(step, ATTNRUN_E_INTERNAL,
                       "it takes more types than it has values");
    *types = full->types + full->types_taken;
    full->types_taken += n;
    if (n > 0)
        memset(*types, 0, (size_t)n * sizeof **types);
    return ATTNRUN_OK;
}

/* ---- known values ---- */

bool op_peek_value(const attnrun_step *step, int in, int64_t k, attnrun_dim *value)
{
    const struct attn_step *full = step_of(step);
    if (in < 0 || in >= step->n_in || k < 0)
        return false;
    const attnrun_tensor *x = &step->x[in];
    bool small_int =
        x->dtype == ATTNRUN_I64 || x->dtype == ATTNRUN_I32 || x->dtype == ATTNRUN_BOOL;
    if (x->data != NULL && small_int) {
        if (k >= tensor_count(x))
            return false;
        *value = dim_of(tensor_get_int(x, k));
        return true;
    }
    if (full->known[in] == NULL || k >= full->n_known[in])
        return false;
    *value = full->known[in][k];
    return value->expr >= 0;
}

int32_t attnrun_step_value(const attnrun_step *step, int32_t in, int64_t k,
                           attnrun_dim *value)
{
    if (step == NULL || value == NULL || !is_place(in, step->n_in))
        return 0;
    if (op_peek_value(step, in, k, value))
        return 1;
    if (op_has_in(step, in) && step->x[in].data == NULL)
        step_of(step)->waits = true;
    return 0;
}

void attnrun_step_set_values(attnrun_step *step, int32_t out, int64_t n,
                             const attnrun_dim *values)
{
    if (step == NULL || values == NULL || !is_place(out, step->n_out) || n < 0 ||
        n > ATTN_MAX_KNOWN || step_of(step)->pool == NULL)
        return;
    struct attn_step *full = step_of(step);
    struct attn_out_known *known_outputs = &full->known_outputs[out];
    if (known_outputs->known == NULL)
        known_outputs->known =
            attn_pool_alloc(full->pool, ATTN_MAX_KNOWN * (int64_t)sizeof(attnrun_dim));
    if (known_outputs->known == NULL)
        return; /* only an optimization */
    memcpy(known_outputs->known, values, (size_t)n * sizeof *values);
    known_outputs->n_known = n;
}

attn_status op_dims(const attnrun_step *step, int in, attnrun_dim *values, int max,
                    int *n, bool *known)
{
    const attnrun_type *type = &step->in[in];
    *known = false;
    *n = 0;
    if (type->dtype != ATTNRUN_I64 && type->dtype != ATTNRUN_I32)
        return op_fail_input(step, in, ATTNRUN_E_DTYPE, "expected i64 or i32");
    TRY(op_need_rank_between(step, in, 0, 1));
    if (type->rank < 0 || (type->rank == 1 && type->dims[0].expr != 0))
        return ATTNRUN_OK;
    int64_t count = type->rank == 0 ? 1 : type->dims[0].value;
    if (count > max)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected at most %s",
                             attn_plural(max, "element"));
    *n = (int)count;
    for (int i = 0; i < count; i++)
        if (!attnrun_step_value(step, in, i, &values[i]))
            return ATTNRUN_OK;
    *known = true;
    return ATTNRUN_OK;
}

attn_status op_ints(const attnrun_step *step, int in, int64_t *values, int max, int *n,
                    bool *known)
{
    attnrun_dim dims[ATTN_MAX_KNOWN];
    int room = max < ATTN_MAX_KNOWN ? max : ATTN_MAX_KNOWN;
    TRY(op_dims(step, in, dims, room, n, known));
    for (int i = 0; *known && i < *n; i++) {
        if (!dim_is_const(dims[i]))
            *known = false;
        else
            values[i] = dims[i].value;
    }
    return ATTNRUN_OK;
}

bool op_may_use_blas(const attnrun_step *step)
{
    return attn_runtime_may_use_blas(step_of(step)->graph->model->runtime);
}

/* ---- outputs of dynamic shape ---- */

attnrun_status attnrun_step_alloc(const attnrun_step *step, int32_t out, int32_t dtype,
                                  int32_t rank, const int64_t *dims)
{
    TRY(need_step(step));
    if (out < 0 || !op_has_out(step, out))
        return ATTNRUN_OK;
    attnrun_tensor tensor;
    TRY(attnrun_tensor_make(dtype, rank, dims, NULL, &tensor));
    TRY(attn_tensor_check_size(&tensor));
    if (step_of(step)->heap == NULL)
        return op_fail(step, ATTNRUN_E_INTERNAL,
                       "attnrun_step_alloc() was called before run()");
    attnrun_tensor *y = &step->y[out];
    bool same = y->data != NULL && y->kind == ATTNRUN_TENSOR && y->rank == rank &&
                y->dtype == dtype && memcmp(y->dims, tensor.dims, sizeof y->dims) == 0;
    if (same) /* its place was planned */
        return ATTNRUN_OK;
    if (y->data != NULL)
        return op_fail(step, ATTNRUN_E_SHAPE, "output %d is %s, but was inferred as %s",
                       out, attn_tensor_format(&tensor), attn_tensor_format(y));
    TRY(op_check_growth(step, out, tensor_bytes(&tensor)));
    tensor.data = op_heap(step, out, tensor_bytes(&tensor));
    if (tensor.data == NULL)
        return ATTNRUN_E_MEMORY;
    *y = tensor;
    return ATTNRUN_OK;
}

void attnrun_step_heap_bound(attnrun_step *step, int64_t bytes)
{
    if (step != NULL)
        step_of(step)->heap_bound = bytes < 0 ? -1 : bytes;
}

void attnrun_step_flops(attnrun_step *step, int64_t flops)
{
    if (step != NULL)
        op_flops(step, flops < 0 ? 0 : (double)flops);
}

void op_flops(const attnrun_step *step, double flops)
{
    struct attn_step *full = step_of(step);
    if (!full->inferring)
        return; /* run() of some operators plans parts of theirs, on several threads */
    const double sum = flops + (full->flops > 0 ? (double)full->flops : 0);
    full->flops = sum < 9e18 ? (int64_t)sum : INT64_MAX;
}

/* ---- packed weights ---- */

bool op_is_replaced(const attnrun_step *step, int in)
{
    return attn_step_is_replaced(step_of(step), in);
}

attn_status op_packed_is_data(const attnrun_pack *pack, int64_t bytes, const void *packed)
{
    (void)pack;
    (void)bytes;
    (void)packed;
    return ATTNRUN_OK;
}
