/* moved_graph.c - see moved_graph.h. Each write_...() adds one node that reads value `a`, or
 * returns false where that has no shape for it. */
#include "moved_graph.h"

#include <stdarg.h>

int64_t moved_below(struct moved_graph *g, int64_t n)
{
    g->seed = g->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return n > 0 ? (int64_t)((g->seed >> 33) % (uint64_t)n) : 0;
}

static int64_t between(struct moved_graph *g, int64_t low, int64_t high)
{
    return low + moved_below(g, high - low + 1);
}

int64_t moved_count(const struct moved_value *v)
{
    int64_t n = 1;
    for (int a = 0; a < v->rank; a++)
        n *= v->dims[a];
    return n;
}

static int64_t count_from(const struct moved_value *v, int axis)
{
    int64_t n = 1;
    for (int a = axis; a < v->rank; a++)
        n *= v->dims[a];
    return n;
}

static const char *dims_text(int rank, const int64_t *dims, char *text)
{
    int used = 0;
    text[0] = 0;
    for (int a = 0; a < rank; a++)
        used += sprintf(text + used, "%s%lld", a > 0 ? "," : "", (long long)dims[a]);
    return text;
}

static __attribute__((format(printf, 2, 3))) void note(struct moved_graph *g,
                                                       const char *format, ...)
{
    const size_t used = strlen(g->text);
    va_list list;
    va_start(list, format);
    vsnprintf(g->text + used, sizeof g->text - used, format, list);
    va_end(list);
}

/* A value of this shape, which is not written yet. */
static struct moved_value *add_value(struct moved_graph *g, int rank, const int64_t *dims)
{
    struct moved_value *v = &g->values[g->n];
    *v = (struct moved_value){ .rank = rank };
    snprintf(v->name, sizeof v->name, "v%d", g->n++);
    memcpy(v->dims, dims, (size_t)rank * sizeof *dims);
    return v;
}

static const char *add_input(struct moved_graph *g, int rank, const int64_t *dims)
{
    char text[100];
    struct moved_value *v = add_value(g, rank, dims);
    v->input = v->ends = true;
    onnx_input(g->writer, v->name, ATTNRUN_F32, dims_text(rank, dims, text));
    note(g, "%s[%s]\n", v->name, text);
    return v->name;
}

/* The name of a constant, which is good until the next four. */
static const char *next_name(struct moved_graph *g)
{
    static char names[4][16];
    char *name = names[g->constants % 4];
    snprintf(name, sizeof names[0], "c%d", g->constants++);
    return name;
}

/* An input of this shape, or a constant of few numbers. */
static const char *add_operand(struct moved_graph *g, int rank, const int64_t *dims)
{
    float x[MOVED_ELEMENTS];
    char text[100];
    struct moved_value like = { .rank = rank };
    memcpy(like.dims, dims, (size_t)rank * sizeof *dims);
    const int64_t n = moved_count(&like);
    if (moved_below(g, 2) || n > MOVED_ELEMENTS)
        return add_input(g, rank, dims);
    for (int64_t i = 0; i < n; i++)
        x[i] = moved_below(g, 4) == 0 ? 0.5f : 0.75f;
    const char *name = next_name(g);
    onnx_constant(g->writer, name, ATTNRUN_F32, dims_text(rank, dims, text), x);
    note(g, "  %s[%s] of 0.5 and 0.75\n", name, text);
    return name;
}

static const char *add_ints(struct moved_graph *g, int rank, const int64_t *dims,
                            const int64_t *x)
{
    char text[100];
    const char *name = next_name(g);
    onnx_constant(g->writer, name, ATTNRUN_I64, dims_text(rank, dims, text), x);
    note(g, "  %s[%s]:", name, text);
    int64_t n = 1;
    for (int a = 0; a < rank; a++)
        n *= dims[a];
    for (int64_t i = 0; i < n; i++)
        note(g, " %lld", (long long)x[i]);
    note(g, "\n");
    return name;
}

static const char *add_list(struct moved_graph *g, int n, const int64_t *x)
{
    return add_ints(g, 1, (int64_t[]){ n }, x);
}

/* A node with one output of this shape; attributes as in onnx_attrs(). */
static void add_node(struct moved_graph *g, const char *op_type, const char *inputs,
                     int rank, const int64_t *dims, const char *attributes)
{
    char text[100];
    const struct moved_value *v = add_value(g, rank, dims);
    onnx_node(g->writer, op_type, inputs, v->name);
    onnx_attrs(g->writer, attributes);
    note(g, "%s[%s] = %s %s %s\n", v->name, dims_text(rank, dims, text), op_type, inputs,
         attributes);
}

static const char *joined(char *text, const char *a, const char *b, const char *c)
{
    sprintf(text, "%s,%s%s%s", a, b, c != NULL ? "," : "", c != NULL ? c : "");
    return text;
}

/* ---- the nodes ---- */

static bool write_reshape(struct moved_graph *g, const struct moved_value *a)
{
    int64_t left = moved_count(a), dims[MOVED_RANK];
    char inputs[40];
    const int rank = (int)between(g, 1, MOVED_RANK);
    for (int d = 0; d < rank; d++) {
        dims[d] = d == rank - 1 ? left : between(g, 1, left);
        while (left % dims[d] != 0)
            dims[d]--;
        left /= dims[d];
    }
    joined(inputs, a->name, add_list(g, rank, dims), NULL);
    add_node(g, "Reshape", inputs, rank, dims, "");
    return true;
}

static bool write_squeeze(struct moved_graph *g, const struct moved_value *a)
{
    int64_t dims[MOVED_RANK];
    char inputs[40];
    int axis = 0;
    while (axis < a->rank && a->dims[axis] != 1)
        axis++;
    if (axis == a->rank)
        return false;
    for (int d = 0; d + 1 < a->rank; d++)
        dims[d] = a->dims[d + (d >= axis)];
    joined(inputs, a->name, add_list(g, 1, (int64_t[]){ axis }), NULL);
    add_node(g, "Squeeze", inputs, a->rank - 1, dims, "");
    return true;
}

static bool write_unsqueeze(struct moved_graph *g, const struct moved_value *a)
{
    int64_t dims[MOVED_RANK];
    char inputs[40];
    if (a->rank == MOVED_RANK)
        return false;
    const int axis = (int)between(g, 0, a->rank);
    for (int d = 0; d <= a->rank; d++)
        dims[d] = d == axis ? 1 : a->dims[d - (d > axis)];
    joined(inputs, a->name, add_list(g, 1, (int64_t[]){ axis }), NULL);
    add_node(g, "Unsqueeze", inputs, a->rank + 1, dims, "");
    return true;
}

static bool write_flatten(struct moved_graph *g, const struct moved_value *a)
{
    char attribute[20];
    const int axis = (int)between(g, 0, a->rank);
    const int64_t inner = count_from(a, axis);
    sprintf(attribute, "axis=%d", axis);
    add_node(g, "Flatten", a->name, 2, (int64_t[]){ moved_count(a) / inner, inner },
             attribute);
    return true;
}

static bool write_transpose(struct moved_graph *g, const struct moved_value *a)
{
    int64_t dims[MOVED_RANK];
    int perm[MOVED_RANK], used = 5;
    char attribute[40] = "perm=";
    for (int d = 0; d < a->rank; d++)
        perm[d] = a->rank - 1 - d;
    const bool given = a->rank > 0 && moved_below(g, 3) > 0;
    for (int d = a->rank - 1; d > 0 && given; d--) {
        const int64_t with = moved_below(g, d + 1);
        const int other = perm[with];
        perm[with] = perm[d];
        perm[d] = other;
    }
    for (int d = 0; d < a->rank; d++) {
        dims[d] = a->dims[perm[d]];
        used += sprintf(attribute + used, "%s%d", d > 0 ? "," : "", perm[d]);
    }
    add_node(g, "Transpose", a->name, a->rank, dims, given ? attribute : "");
    return true;
}

/* Of some axes; `back`: one of them from its end. */
static bool write_slice(struct moved_graph *g, const struct moved_value *a, bool back)
{
    int64_t dims[MOVED_RANK], from[MOVED_RANK], to[MOVED_RANK], axes[MOVED_RANK],
        by[MOVED_RANK];
    int n = 0;
    char inputs[80];
    memcpy(dims, a->dims, sizeof dims);
    for (int d = 0; d < a->rank; d++) {
        if (a->dims[d] == 1 || moved_below(g, 3) == 0)
            continue;
        const int64_t first = moved_below(g, a->dims[d]),
                      last = between(g, first, a->dims[d] - 1);
        by[n] = between(g, 1, 3);
        dims[d] = (last - first) / by[n] + 1;
        from[n] = moved_below(g, 2) ? first : first - a->dims[d];
        to[n] = last == a->dims[d] - 1 && moved_below(g, 2) ? INT64_MAX : last + 1;
        axes[n] = moved_below(g, 2) ? d : d - a->rank;
        if (back && n == 0) {
            from[n] = -1;
            to[n] = INT64_MIN;
            by[n] = -1;
            dims[d] = a->dims[d];
        }
        n++;
    }
    if (n == 0)
        return false;
    sprintf(inputs, "%s,%s", a->name, add_list(g, n, from));
    sprintf(inputs + strlen(inputs), ",%s", add_list(g, n, to));
    sprintf(inputs + strlen(inputs), ",%s", add_list(g, n, axes));
    sprintf(inputs + strlen(inputs), ",%s", add_list(g, n, by));
    add_node(g, "Slice", inputs, a->rank, dims, "");
    return true;
}

/* Indices below n: random ones, or in equal steps forwards or back. */
static void random_indices(struct moved_graph *g, int64_t count, int64_t n, int64_t *x)
{
    const int64_t way = moved_below(g, 3), by = between(g, 1, 2);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = way == 1 ? i * by % n : n - 1 - i * by % n;
        x[i] = way == 0 ? moved_below(g, n) : at;
        x[i] -= moved_below(g, 4) == 0 ? n : 0;
    }
}

static bool write_gather(struct moved_graph *g, const struct moved_value *a, int kind)
{
    int64_t dims[MOVED_RANK], of[2], x[64], y[8];
    char inputs[80], attribute[20];
    const int rank = kind == MOVED_GATHER_SUM ? 2 : (int)moved_below(g, 3);
    if (a->rank == 0 || a->rank - 1 + rank > MOVED_RANK)
        return false;
    const int axis = (int)moved_below(g, a->rank);
    const int64_t size = a->dims[axis];
    for (int d = 0; d < rank; d++)
        of[d] = between(g, 1, 4);
    for (int d = 0; d < a->rank - 1 + rank; d++)
        dims[d] = d < axis          ? a->dims[d]
                  : d < axis + rank ? of[d - axis]
                                    : a->dims[d - rank + 1];
    const char *index;
    if (kind ==
        MOVED_GATHER_SUM) { /* x[of0, 1] + y[of1], both within the axis together */
        const int64_t low = (size - 1) / 2;
        random_indices(g, of[0], low + 1, x);
        random_indices(g, of[1], size - low, y);
        for (int64_t i = 0; i < of[0]; i++)
            x[i] += x[i] < 0 ? low + 1 : 0;
        for (int64_t i = 0; i < of[1]; i++)
            y[i] += y[i] < 0 ? size - low : 0;
        sprintf(inputs, "%s", add_ints(g, 2, (int64_t[]){ of[0], 1 }, x));
        sprintf(inputs + strlen(inputs), ",%s", add_list(g, (int)of[1], y));
        index = next_name(g);
        onnx_node(g->writer, "Add", inputs, index);
        note(g, "  %s = Add %s\n", index, inputs);
    } else if (kind == MOVED_GATHER_BY_INPUT) {
        char text[40];
        index = next_name(g);
        onnx_node(g->writer, "Expand",
                  joined(inputs, "zero", add_list(g, rank, of), NULL), index);
        note(g, "  %s = Expand zero [%s]\n", index, dims_text(rank, of, text));
    } else {
        random_indices(g, rank == 0 ? 1 : rank == 1 ? of[0] : of[0] * of[1], size, x);
        index = add_ints(g, rank, of, x);
    }
    sprintf(attribute, "axis=%d", moved_below(g, 2) ? axis : axis - a->rank);
    joined(inputs, a->name, index, NULL);
    add_node(g, "Gather", inputs, a->rank - 1 + rank, dims, attribute);
    return true;
}

static bool write_pad(struct moved_graph *g, const struct moved_value *a, bool reflect)
{
    int64_t dims[MOVED_RANK], pads[2 * MOVED_RANK];
    char inputs[80];
    bool any = false;
    for (int d = 0; d < a->rank; d++) {
        const int64_t size = a->dims[d], most = reflect ? size - 1 : 3;
        for (int side = 0; side < 2; side++)
            pads[d + side * a->rank] =
                moved_below(g, 2) ? between(g, 0, most < 3 ? most : 3) : 0;
        if (!reflect && size > 2 && moved_below(g, 3) == 0)
            pads[d + (moved_below(g, 2) ? a->rank : 0)] = -1;
        dims[d] = size + pads[d] + pads[d + a->rank];
        any = any || pads[d] > 0 || pads[d + a->rank] > 0;
    }
    if (a->rank == 0 || (reflect && !any))
        return false;
    sprintf(inputs, "%s,%s%s", a->name, add_list(g, 2 * a->rank, pads),
            !reflect && moved_below(g, 2) ? ",quarter" : "");
    add_node(g, "Pad", inputs, a->rank, dims, reflect ? "mode=reflect" : "");
    return true;
}

static void shuffle(struct moved_graph *g, int64_t n, int64_t *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t with = moved_below(g, i + 1), other = x[with];
        x[with] = x[i];
        x[i] = other;
    }
}

/* Writes to different slots of the first axes. */
static bool write_scatter_nd(struct moved_graph *g, const struct moved_value *a, bool add)
{
    int64_t order[MOVED_ELEMENTS], x[MOVED_ELEMENTS * MOVED_RANK], dims[MOVED_RANK + 1];
    char inputs[80];
    if (a->rank == 0)
        return false;
    const int k = (int)between(g, 1, a->rank);
    const int64_t slots = moved_count(a) / count_from(a, k),
                  n = between(g, 1, slots < 12 ? slots : 12);
    shuffle(g, slots, order);
    const bool in_order = moved_below(g, 2);
    for (int64_t u = 0; u < n; u++) {
        int64_t left = in_order ? u : order[u];
        for (int d = k - 1; d >= 0; d--) {
            x[u * k + d] = left % a->dims[d] - (moved_below(g, 4) == 0 ? a->dims[d] : 0);
            left /= a->dims[d];
        }
    }
    dims[0] = n;
    for (int d = k; d < a->rank; d++)
        dims[1 + d - k] = a->dims[d];
    const char *updates = add_operand(g, 1 + a->rank - k, dims);
    joined(inputs, a->name, add_ints(g, 2, (int64_t[]){ n, k }, x), updates);
    add_node(g, "ScatterND", inputs, a->rank, a->dims, add ? "reduction=add" : "");
    return true;
}

/* Replaces a slice; `many`: with other indices than one. */
static bool write_scatter_elements(struct moved_graph *g, const struct moved_value *a,
                                   bool many)
{
    int64_t x[MOVED_ELEMENTS], dims[MOVED_RANK];
    char inputs[80], attribute[20];
    if (a->rank == 0)
        return false;
    const int axis = (int)moved_below(g, a->rank);
    memcpy(dims, a->dims, sizeof dims);
    dims[axis] = 1;
    const int64_t n = moved_count(a) / a->dims[axis],
                  to = moved_below(g, a->dims[axis]) -
                       (moved_below(g, 3) == 0 ? a->dims[axis] : 0);
    if (many && (n < 2 || a->dims[axis] < 2))
        return false;
    for (int64_t i = 0; i < n; i++)
        x[i] = to;
    if (many)
        x[n - 1] = (to + a->dims[axis] + 1) % a->dims[axis];
    const char *updates = add_input(g, a->rank, dims);
    sprintf(attribute, "axis=%d", moved_below(g, 2) ? axis : axis - a->rank);
    joined(inputs, a->name, add_ints(g, a->rank, dims, x), updates);
    add_node(g, "ScatterElements", inputs, a->rank, a->dims, attribute);
    return true;
}

static bool write_where(struct moved_graph *g, const struct moved_value *a, bool by_input)
{
    uint8_t chosen[MOVED_ELEMENTS];
    int64_t condition[MOVED_RANK], other[MOVED_RANK];
    char inputs[80], text[100];
    const int less = a->rank > 0 ? (int)moved_below(g, a->rank + 1) : 0;
    const int rank = a->rank - less;
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= condition[d] = moved_below(g, 3) == 0 ? 1 : a->dims[d + less];
    for (int d = 0; d < a->rank; d++)
        other[d] = moved_below(g, 3) == 0 ? 1 : a->dims[d];
    const int64_t edge = moved_below(g, n + 1), random = moved_below(g, 2);
    for (int64_t i = 0; i < n; i++)
        chosen[i] = (uint8_t)(random ? moved_below(g, 2) : i < edge);
    const char *name = by_input ? "flag" : next_name(g);
    if (!by_input)
        onnx_constant(g->writer, name, ATTNRUN_BOOL, dims_text(rank, condition, text),
                      chosen);
    const char *second = moved_below(g, 2) ? "quarter" : add_operand(g, a->rank, other);
    const bool first = moved_below(g, 2);
    joined(inputs, name, first ? a->name : second, first ? second : a->name);
    add_node(g, "Where", inputs, a->rank, a->dims, "");
    return true;
}

static bool write_concat(struct moved_graph *g, const struct moved_value *a)
{
    int64_t dims[MOVED_RANK];
    char inputs[80], attribute[20];
    if (a->rank == 0)
        return false;
    const int axis = (int)moved_below(g, a->rank);
    memcpy(dims, a->dims, sizeof dims);
    dims[axis] = between(g, 1, 3);
    const char *other = add_operand(g, a->rank, dims);
    dims[axis] += a->dims[axis];
    const int64_t way = moved_below(g, 3); /* other, a; a, other; a, other, a */
    dims[axis] += way == 2 ? a->dims[axis] : 0;
    joined(inputs, way ? a->name : other, way ? other : a->name,
           way == 2 ? a->name : NULL);
    sprintf(attribute, "axis=%d", moved_below(g, 2) ? axis : axis - a->rank);
    add_node(g, "Concat", inputs, a->rank, dims, attribute);
    return true;
}

static bool write_expand(struct moved_graph *g, const struct moved_value *a)
{
    int64_t dims[MOVED_RANK], shape[MOVED_RANK];
    char inputs[40];
    const int more = a->rank < MOVED_RANK ? (int)moved_below(g, 2) : 0;
    const int rank = a->rank + more;
    for (int d = 0; d < rank; d++) {
        dims[d] = shape[d] = d < more ? between(g, 1, 3) : a->dims[d - more];
        if (d >= more && dims[d] == 1)
            dims[d] = shape[d] = between(g, 1, 3);
        else if (d >= more && moved_below(g, 2))
            shape[d] = 1;
    }
    joined(inputs, a->name, add_list(g, rank, shape), NULL);
    add_node(g, "Expand", inputs, rank, dims, "");
    return true;
}

static bool write_node(struct moved_graph *g, const struct moved_value *a, int kind)
{
    switch (kind) {
    case MOVED_RESHAPE:
        return write_reshape(g, a);
    case MOVED_SQUEEZE:
        return write_squeeze(g, a);
    case MOVED_UNSQUEEZE:
        return write_unsqueeze(g, a);
    case MOVED_FLATTEN:
        return write_flatten(g, a);
    case MOVED_TRANSPOSE:
        return write_transpose(g, a);
    case MOVED_SLICE:
    case MOVED_SLICE_BACK:
        return write_slice(g, a, kind == MOVED_SLICE_BACK);
    case MOVED_GATHER:
    case MOVED_GATHER_SUM:
    case MOVED_GATHER_BY_INPUT:
        return write_gather(g, a, kind);
    case MOVED_PAD:
    case MOVED_PAD_REFLECT:
        return write_pad(g, a, kind == MOVED_PAD_REFLECT);
    case MOVED_SCATTER_ND:
    case MOVED_SCATTER_ND_ADD:
        return write_scatter_nd(g, a, kind == MOVED_SCATTER_ND_ADD);
    case MOVED_SCATTER_ELEMENTS:
    case MOVED_SCATTER_ELEMENTS_MANY:
        return write_scatter_elements(g, a, kind == MOVED_SCATTER_ELEMENTS_MANY);
    case MOVED_WHERE:
    case MOVED_WHERE_INPUT:
        return write_where(g, a, kind == MOVED_WHERE_INPUT);
    case MOVED_CONCAT:
        return write_concat(g, a);
    case MOVED_EXPAND:
        return write_expand(g, a);
    default:
        add_node(g, kind == MOVED_NEG ? "Neg" : "Identity", a->name, a->rank, a->dims,
                 "");
        return true;
    }
}

/* ---- graphs ---- */

struct moved_graph *moved_make(uint64_t seed)
{
    struct moved_graph *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->first_seed = g->seed = seed;
    g->writer = onnx_begin(17);
    onnx_input(g->writer, "zero", ATTNRUN_I64, "");
    onnx_input(g->writer, "flag", ATTNRUN_BOOL, "");
    onnx_float(g->writer, "quarter", 0.25f);
    int64_t dims[MOVED_RANK];
    const int rank = (int)moved_below(g, MOVED_RANK + 1);
    for (int d = 0; d < rank; d++)
        dims[d] = between(g, 1, 5);
    if (rank == MOVED_RANK)
        dims[moved_below(g, rank)] = 1;
    add_input(g, rank, dims);
    const int64_t nodes = between(g, 2, 12);
    for (int64_t k = 0; k < nodes * 3 && g->n + 2 < MOVED_VALUES; k++) {
        const int64_t back = moved_below(g, 4) == 0 ? moved_below(g, g->n) : 0;
        const struct moved_value *a = &g->values[g->n - 1 - back];
        const int kind =
            (int)moved_below(g, moved_below(g, 4) ? MOVED_ENDS : MOVED_KINDS);
        const int before = g->n;
        if (!write_node(g, a, kind))
            continue;
        g->used[kind]++;
        g->values[g->n - 1].ends = kind >= MOVED_ENDS;
        assert_true(g->n > before);
        if (moved_count(&g->values[g->n - 1]) > MOVED_ELEMENTS / 8)
            break;
    }
    return g;
}

attnrun_model *moved_run(struct moved_graph *g, attnrun_runtime *runtime)
{
    size_t bytes;
    int64_t zero = 0;
    uint8_t flag = 1;
    attnrun_model *model;
    for (int v = 0; v < g->n; v++)
        if (!g->values[v].input)
            onnx_output(g->writer, g->values[v].name, ATTNRUN_F32, NULL);
    uint8_t *file = onnx_end(g->writer, &bytes);
    /* Sums of indices are not computed at load, as large ones are not. */
    const attnrun_limits limits = { .struct_size = sizeof limits, .fold_bytes = 1 };
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = ATTNRUN_NO_FUSION | ATTNRUN_COPY,
                              .data = file,
                              .bytes = bytes,
                              .limits = &limits };
    if (attnrun_model_open(runtime, &source, &model) != ATTNRUN_OK)
        fail_msg("graph %llu: %s\n%s", (unsigned long long)g->first_seed,
                 attnrun_last_error()->message, g->text);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_I64, "", &zero);
    set_input(context, 1, ATTNRUN_BOOL, "", &flag);
    int32_t inputs = 2, outputs = 0;
    for (int v = 0; v < g->n; v++) {
        struct moved_value *value = &g->values[v];
        char text[100];
        const int64_t n = moved_count(value);
        value->data = malloc((size_t)n * sizeof *value->data);
        assert_non_null(value->data);
        for (int64_t i = 0; i < n; i++)
            value->data[i] = (float)(1000 * (v + 1) + i);
        if (value->input)
            set_input(context, inputs++, ATTNRUN_F32,
                      dims_text(value->rank, value->dims, text), value->data);
    }
    OK(attnrun_run(context, NULL));
    for (int v = 0; v < g->n; v++) {
        if (g->values[v].input)
            continue;
        const attnrun_tensor y = get_output(context, outputs++);
        const int64_t n = moved_count(&g->values[v]);
        assert_int_equal(attnrun_tensor_bytes(&y), n * (int64_t)sizeof(float));
        memcpy(g->values[v].data, y.data, (size_t)n * sizeof(float));
    }
    attnrun_context_destroy(context);
    free(file);
    return model;
}

void moved_free(struct moved_graph *g)
{
    for (int v = 0; v < g->n; v++)
        free(g->values[v].data);
    free(g);
}
