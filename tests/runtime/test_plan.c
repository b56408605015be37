/* test_plan.c - plans of random graphs: values that are alive together never share bytes,
 * the arena is as large as it is said to be, and what comes out equals a naive evaluation
 * of the same nodes, fused or not. */
#include "harness.h"

#include "frame.h"
#include "model.h"

enum { MAX_VALUES = 80, MAX_COUNT = 256, MAX_RANK = 3 };

/* ---- the random graph, and what it computes ---- */

struct value {
    int64_t dims[MAX_RANK];
    int rank;
    int64_t count;
    bool constant, output;
    float data[MAX_COUNT];
};

struct sample {
    uint64_t seed;
    struct onnx_writer *w;
    struct value values[MAX_VALUES]; /* named v0, v1, … */
    int n, n_inputs, n_constants, n_shapes;
    bool dynamic;                         /* some shapes are known only at run */
    int64_t shapes[MAX_VALUES][MAX_RANK]; /* inputs s0, s1, … */
    int ranks[MAX_VALUES];
};

static struct value *new_value(struct sample *s, int rank, const int64_t *dims)
{
    struct value *v = &s->values[s->n++];
    *v = (struct value){ .rank = rank, .count = 1 };
    for (int i = 0; i < rank; i++) {
        v->dims[i] = dims[i];
        v->count *= dims[i];
    }
    return v;
}

static const char *dims_text(const struct value *v)
{
    static char text[64];
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < v->rank; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "",
                              (int)v->dims[i]);
    return text;
}

static int pick(struct sample *s)
{
    /* Recent values more often: chains, and some that live long. */
    int back = (int)random_below(&s->seed, 4) == 0 ? s->n : s->n < 5 ? s->n : 5;
    return s->n - 1 - (int)random_below(&s->seed, back);
}

static void node(struct sample *s, const char *op, const char *inputs, int n_outputs)
{
    char outputs[128] = "";
    for (int i = 0; i < n_outputs; i++) {
        size_t n = strlen(outputs);
        snprintf(outputs + n, sizeof outputs - n, "%sv%d", i ? "," : "", s->n + i);
    }
    onnx_node(s->w, op, inputs, outputs);
}

static void add_unary(struct sample *s)
{
    static const char *const ops[] = { "Neg", "Relu", "Abs", "Identity" };
    int k = (int)random_below(&s->seed, 4), from = pick(s);
    char in[16];
    snprintf(in, sizeof in, "v%d", from);
    node(s, ops[k], in, 1);
    const struct value *x = &s->values[from];
    struct value *y = new_value(s, x->rank, x->dims);
    for (int64_t i = 0; i < y->count; i++) {
        float v = x->data[i];
        y->data[i] = k == 0   ? -v
                     : k == 1 ? (v > 0 ? v : 0)
                     : k == 2 ? (v < 0 ? -v : v)
                              : v;
    }
}

/* A value of the same dims as `a`, or `a` itself. */
static int pick_like(struct sample *s, int a)
{
    int b = pick(s), tries = 0;
    for (; tries < 8; tries++, b = pick(s))
        if (s->values[b].rank == s->values[a].rank &&
            memcmp(s->values[b].dims, s->values[a].dims, sizeof s->values[a].dims) == 0)
            return b;
    return a;
}

static void add_binary(struct sample *s)
{
    static const char *const ops[] = { "Add", "Sub", "Min", "Max" };
    int k = (int)random_below(&s->seed, 4), a = pick(s), b = pick_like(s, a);
    char in[32];
    snprintf(in, sizeof in, "v%d,v%d", a, b);
    node(s, ops[k], in, 1);
    const struct value *x = &s->values[a], *z = &s->values[b];
    struct value *y = new_value(s, x->rank, x->dims);
    for (int64_t i = 0; i < y->count; i++) {
        float p = x->data[i], q = z->data[i];
        y->data[i] = k == 0   ? p + q
                     : k == 1 ? p - q
                     : k == 2 ? (p < q ? p : q)
                     : p > q  ? p
                              : q;
    }
}

static void ints_constant(struct sample *s, char *name, int n, const int64_t *x)
{
    sprintf(name, "c%d", s->n_constants++);
    onnx_ints(s->w, name, n, x);
}

static void add_reshape(struct sample *s)
{
    int from = pick(s);
    char name[16], in[40];
    const struct value *x = &s->values[from];
    int64_t first = 1, dims[2];
    for (int64_t d = 2; d <= 8; d++)
        if (x->count > 0 && x->count % d == 0 && random_below(&s->seed, 2))
            first = d;
    dims[0] = first;
    dims[1] = x->count / first;
    if (x->count == 0)
        dims[0] = 0, dims[1] = 3;
    ints_constant(s, name, 2, dims);
    snprintf(in, sizeof in, "v%d,%s", from, name);
    node(s, "Reshape", in, 1);
    if (x->count == 0)
        onnx_attr_int(s->w, "allowzero", 1);
    struct value *y = new_value(s, 2, dims);
    memcpy(y->data, x->data, sizeof y->data);
}

static void add_transpose(struct sample *s)
{
    int from = pick(s);
    const struct value *x = &s->values[from];
    char in[16];
    if (x->rank != 2)
        return;
    snprintf(in, sizeof in, "v%d", from);
    node(s, "Transpose", in, 1);
    int64_t dims[2] = { x->dims[1], x->dims[0] };
    struct value *y = new_value(s, 2, dims);
    for (int64_t i = 0; i < dims[0]; i++)
        for (int64_t k = 0; k < dims[1]; k++)
            y->data[i * dims[1] + k] = x->data[k * dims[0] + i];
}

/* Elements [begin, end) of the first axis; a view where the runtime makes one. */
static void copy_rows(const struct value *x, int64_t begin, int64_t end, struct value *y,
                      int64_t at)
{
    int64_t row = x->dims[0] > 0 ? x->count / x->dims[0] : 0;
    memcpy(y->data + at * row, x->data + begin * row,
           (size_t)((end - begin) * row) * sizeof(float));
}

static void add_split(struct sample *s)
{
    int from = pick(s);
    const struct value *x = &s->values[from];
    if (x->rank == 0 || x->dims[0] < 2 || s->n + 3 > MAX_VALUES)
        return;
    int64_t sizes[2] = { 1 + random_below(&s->seed, x->dims[0] - 1), 0 }, dims[MAX_RANK];
    sizes[1] = x->dims[0] - sizes[0];
    char name[16], in[40];
    ints_constant(s, name, 2, sizes);
    snprintf(in, sizeof in, "v%d,%s", from, name);
    node(s, "Split", in, 2);
    onnx_attr_int(s->w, "axis", 0);
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < 2; i++) {
        dims[0] = sizes[i];
        struct value *y = new_value(s, x->rank, dims);
        copy_rows(x, i ? sizes[0] : 0, i ? x->dims[0] : sizes[0], y, 0);
    }
}

static void add_slice(struct sample *s)
{
    int from = pick(s);
    const struct value *x = &s->values[from];
    if (x->rank == 0 || x->dims[0] < 2)
        return;
    int64_t begin = random_below(&s->seed, x->dims[0]), dims[MAX_RANK];
    int64_t end = begin + 1 + random_below(&s->seed, x->dims[0] - begin);
    char a[16], b[16], c[16], in[80];
    ints_constant(s, a, 1, &begin);
    ints_constant(s, b, 1, &end);
    ints_constant(s, c, 1, (int64_t[]){ 0 });
    snprintf(in, sizeof in, "v%d,%s,%s,%s", from, a, b, c);
    node(s, "Slice", in, 1);
    memcpy(dims, x->dims, sizeof dims);
    dims[0] = end - begin;
    copy_rows(x, begin, end, new_value(s, x->rank, dims), 0);
}

static void add_concat(struct sample *s)
{
    int a = pick(s), b = pick_like(s, a);
    const struct value *x = &s->values[a], *z = &s->values[b];
    if (x->rank == 0 || x->count * 2 > MAX_COUNT)
        return;
    int64_t dims[MAX_RANK];
    char in[32];
    snprintf(in, sizeof in, "v%d,v%d", a, b);
    node(s, "Concat", in, 1);
    onnx_attr_int(s->w, "axis", 0);
    memcpy(dims, x->dims, sizeof dims);
    dims[0] *= 2;
    struct value *y = new_value(s, x->rank, dims);
    copy_rows(x, 0, x->dims[0], y, 0);
    copy_rows(z, 0, z->dims[0], y, x->dims[0]);
}

/* The same value, with a shape that is an input: known only at run. */
static void add_dynamic(struct sample *s)
{
    char in[40], *name = in + 20;
    int from = pick(s);
    const struct value *x = &s->values[from];
    if (!s->dynamic || x->rank == 0 || x->count == 0)
        return;
    snprintf(in, sizeof in, "%d", x->rank);
    sprintf(name, "s%d", s->n_shapes);
    onnx_input(s->w, name, ATTNRUN_I64, in);
    memcpy(s->shapes[s->n_shapes], x->dims, sizeof x->dims);
    s->ranks[s->n_shapes++] = x->rank;
    snprintf(in, sizeof in, "v%d,s%d", from, s->n_shapes - 1);
    node(s, "Reshape", in, 1);
    struct value *y = new_value(s, x->rank, x->dims);
    memcpy(y->data, x->data, sizeof y->data);
}

static void add_inputs(struct sample *s)
{
    static const int64_t shapes[][MAX_RANK] = { { 4, 6 }, { 4, 6 }, { 24 }, { 2, 3, 8 },
                                                { 1, 5 }, { 0, 3 }, { 7 } };
    static const int ranks[] = { 2, 2, 1, 3, 2, 2, 1 };
    char name[16];
    s->n_inputs = 2 + (int)random_below(&s->seed, 3);
    for (int i = 0; i < s->n_inputs + 1; i++) {
        int64_t k = random_below(&s->seed, random_below(&s->seed, 8) ? 5 : 7);
        struct value *v = new_value(s, ranks[k], shapes[k]);
        for (int64_t e = 0; e < v->count; e++)
            v->data[e] = (float)(random_below(&s->seed, 64) - 32);
        snprintf(name, sizeof name, "v%d", i);
        v->constant = i == s->n_inputs;
        if (v->constant)
            onnx_constant(s->w, name, ATTNRUN_F32, dims_text(v), v->data);
        else
            onnx_input(s->w, name, ATTNRUN_F32, dims_text(v));
    }
}

static void make_sample(struct sample *s, uint64_t seed, bool dynamic)
{
    static void (*const add[])(struct sample *) = {
        add_unary,     add_binary, add_binary, add_unary,  add_reshape,
        add_transpose, add_split,  add_slice,  add_concat, add_dynamic
    };
    char name[16];
    *s = (struct sample){ .seed = seed * 2 + 1, .w = onnx_begin(17), .dynamic = dynamic };
    for (int i = 0; i < 8; i++)
        next_random(&s->seed);
    add_inputs(s);
    int wanted = 6 + (int)random_below(&s->seed, MAX_VALUES - 10);
    for (int tries = 0; s->n < wanted && tries < 400; tries++)
        add[random_below(&s->seed, 10)](s);
    for (int i = 0; i < s->n; i++) {
        s->values[i].output = i == s->n - 1 || random_below(&s->seed, 12) == 0;
        snprintf(name, sizeof name, "v%d", i);
        if (s->values[i].output)
            onnx_output(s->w, name, ATTNRUN_F32, dims_text(&s->values[i]));
    }
}

/* ---- the checker ---- */

/* Where the bytes of a value are, and from which step to which they must stay. */
struct span {
    int64_t begin, end;
    int32_t first, last, root;
};

static int32_t last_read(const struct attn_plan *plan, int32_t id)
{
    int32_t last = -1;
    for (int32_t s = 0; s < plan->n_steps; s++) {
        const struct attn_node *n = plan->steps[s]->node;
        for (int32_t i = 0; i < n->pub.n_in + n->n_captures; i++)
            if (n->in[i] == id)
                last = s;
    }
    for (int32_t i = 0; i < plan->graph->n_outputs; i++)
        if (plan->graph->outputs[i] == id)
            last = plan->n_steps;
    return last;
}

/* Steps are walked here again: not what the plan says of lifetimes, but what is read. */
static int find_spans(const struct attn_plan *plan, struct span *spans)
{
    int n = 0;
    for (int32_t s = 0; s < plan->n_steps; s++)
        for (int32_t o = 0; o < plan->steps[s]->pub.n_out; o++) {
            int32_t id = plan->steps[s]->node->out[o];
            if (id < 0 || plan->values[id].place != ATTN_PLACE_ARENA)
                continue;
            const struct attn_plan_value *v = &plan->values[id];
            int64_t at = plan->blocks[plan->values[v->root].block].offset + v->offset;
            int32_t last = last_read(plan, id);
            spans[n++] = (struct span){ .begin = at,
                                        .end = at + attnrun_tensor_bytes(&v->tensor),
                                        .first = s,
                                        .last = last < s ? s : last,
                                        .root = v->root };
        }
    return n;
}

/* Two values may share bytes while both are alive only as views of one root. The last
 * reader of a value may write its output there (in place): first == last is allowed. */
static void check_spans(const struct attn_plan *plan)
{
    static struct span spans[4 * MAX_VALUES];
    int n = find_spans(plan, spans);
    for (int i = 0; i < n; i++) {
        assert_true(spans[i].begin >= 0 && spans[i].end <= plan->arena_bytes);
        for (int k = 0; k < i; k++) {
            const struct span *a = &spans[i], *b = &spans[k];
            bool apart = a->end <= b->begin || b->end <= a->begin;
            bool together = a->first <= b->last && b->first <= a->last;
            if (!apart && together && a->root != b->root)
                fail_msg("values %d and %d of different roots overlap", i, k);
        }
    }
}

static void check_blocks(attnrun_context *context, const attnrun_plan_info *info)
{
    attnrun_plan_block a = { .struct_size = sizeof a }, b = { .struct_size = sizeof b };
    int64_t highest = 0;
    for (int32_t i = 0; i < info->n_blocks; i++) {
        OK(attnrun_plan_get_block(context, i, &a));
        assert_true(a.offset >= 0 && a.bytes >= 0 && a.offset % 64 == 0);
        assert_true(a.first_step >= 0 && a.last_step <= info->n_steps);
        highest = a.offset + a.bytes > highest ? a.offset + a.bytes : highest;
        for (int32_t k = 0; k < i; k++) {
            OK(attnrun_plan_get_block(context, k, &b));
            assert_true(a.offset + a.bytes <= b.offset ||
                        b.offset + b.bytes <= a.offset || a.first_step > b.last_step ||
                        b.first_step > a.last_step);
        }
    }
    FAILS(ATTNRUN_E_USAGE, "no block",
          attnrun_plan_get_block(context, info->n_blocks, &a));
    assert_int_equal(highest, info->arena_bytes);
    assert_true(info->lower_bound_bytes <= info->arena_bytes);
}

/* ---- runs ---- */

static void check_outputs(attnrun_context *context, const struct sample *s, uint64_t seed)
{
    int32_t index = 0;
    for (int i = 0; i < s->n; i++) {
        const struct value *v = &s->values[i];
        if (!v->output)
            continue;
        attnrun_tensor y = get_output(context, index++);
        assert_int_equal(attnrun_tensor_count(&y), v->count);
        const float *data = y.data;
        for (int64_t e = 0; e < v->count; e++) /* -0 equals 0 */
            if (!(data[e] >= v->data[e] && data[e] <= v->data[e]))
                fail_msg("sample %llu: v%d[%d] is %g, expected %g",
                         (unsigned long long)seed, i, (int)e, (double)data[e],
                         (double)v->data[e]);
    }
}

static void bind_inputs(attnrun_context *context, struct sample *s,
                        attnrun_tensor *inputs, bool strided)
{
    static float spread[8][2 * MAX_COUNT];
    for (int i = 0; i < s->n_inputs; i++) {
        struct value *v = &s->values[i];
        inputs[i] = tensor_of(ATTNRUN_F32, dims_text(v), v->data);
        if (strided && v->count > 0) { /* every other element */
            for (int64_t e = 0; e < v->count; e++)
                spread[i][2 * e] = v->data[e];
            inputs[i].data = spread[i];
            for (int d = 0; d < v->rank; d++)
                inputs[i].strides[d] *= 2;
        }
        OK(attnrun_set_input(context, i, &inputs[i]));
    }
    for (int i = 0; i < s->n_shapes; i++) {
        char dims[16];
        snprintf(dims, sizeof dims, "%d", s->ranks[i]);
        inputs[s->n_inputs + i] = tensor_of(ATTNRUN_I64, dims, s->shapes[i]);
        OK(attnrun_set_input(context, s->n_inputs + i, &inputs[s->n_inputs + i]));
    }
}

static int64_t dynamic_steps; /* of all plans so far */

static void run_sample(const uint8_t *data, size_t bytes, struct sample *s, uint64_t seed,
                       uint32_t flags)
{
    struct test_memory memory;
    attnrun_model *model;
    attnrun_tensor inputs[8 + MAX_VALUES];
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1 + (int32_t)(seed % 3));
    OK(open_bytes(runtime, data, bytes, flags, &model));
    attnrun_context *context = make_context(model);
    for (int strided = 0; strided < 2; strided++) {
        attnrun_plan_info info = { .struct_size = sizeof info };
        attnrun_memory_info used = { .struct_size = sizeof used };
        bind_inputs(context, s, inputs, strided);
        OK(attnrun_plan(context, inputs, &info));
        check_blocks(context, &info);
        dynamic_steps += info.n_dynamic_steps;
        for (int turn = 0; turn < 2; turn++) {
            OK(attnrun_run(context, NULL));
            check_outputs(context, s, seed);
        }
        OK(attnrun_context_memory(context, &used));
        assert_int_equal(used.arena_used_bytes, info.arena_bytes);
        assert_true(used.arena_bytes >= info.arena_bytes);
    }
    attnrun_context_destroy(context);

    struct attn_control control = { 0 };
    struct attn_frame *frame;
    struct attn_plan *plan;
    OK(attn_frame_create(runtime, attn_runtime_memory(runtime), model_of(model)->graph,
                         &control, &frame));
    OK(attn_frame_plan(frame, inputs, &plan));
    check_spans(plan);
    attn_frame_destroy(frame);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* The allocator guards the arena: a byte written behind it is noticed when it is freed.
 */
static void run_samples(bool dynamic)
{
    static struct sample s;
    uint64_t seed = test_seed();
    for (int64_t turn = 0; turn < rounds(300, 20000); turn++) {
        size_t bytes;
        uint64_t one = next_random(&seed) >> 20;
        make_sample(&s, one, dynamic);
        uint8_t *data = onnx_end(s.w, &bytes);
        run_sample(data, bytes, &s, one, 0);
        run_sample(data, bytes, &s, one, ATTNRUN_NO_FUSION);
        free(data);
    }
}

static void test_plan_of_random_graphs(void **state)
{
    (void)state;
    dynamic_steps = 0;
    run_samples(false);
    assert_int_equal(dynamic_steps, 0);
}

/* Planned and dynamic-shape steps read each other's values. */
static void test_plan_of_random_graphs_with_dynamic_shapes(void **state)
{
    (void)state;
    run_samples(true);
    print_message("%d late steps\n", (int)dynamic_steps);
    assert_true(dynamic_steps > 1000);
}

/* Values of up to 1024 elements are computed while planning, if nothing of them is an input. */
static void test_plan_computes_small_values(void **state)
{
    static const struct {
        const char *dims;
        int32_t n_steps;
    } rows[] = {
        { "1,4", 1 }, { "256,4", 1 }, { "257,4", 2 }, { "4,257", 2 }, { "0,9", 1 }
    };
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,M");
    onnx_node(w, "Shape", "x", "shape");
    onnx_node(w, "ConstantOfShape", "shape", "zeros");
    onnx_node(w, "Add", "x,zeros", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N,M");
    attnrun_model *model = open_model(runtime, w, ATTNRUN_NO_FUSION);
    attnrun_context *context = make_context(model);
    static float data[4 * 257];
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        attnrun_plan_info info = { .struct_size = sizeof info };
        attnrun_tensor x = tensor_of(ATTNRUN_F32, rows[k].dims, data);
        OK(attnrun_plan(context, &x, &info));
        assert_int_equal(info.n_steps, rows[k].n_steps);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* A step writes over its input where that is not read again; not where another input is a part of
 * the same block. */
static void test_plan_writes_in_place(void **state)
{
    static const int64_t from[] = { 0, 1 }, to[] = { 2, 3 };
    static float x[3 * 400];
    (void)state;
    for (int i = 0; i < 3 * 400; i++)
        x[i] = (float)i;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    for (int parts = 0; parts < 2; parts++) {
        struct onnx_writer *w = onnx_begin(17);
        attnrun_plan_info info = { .struct_size = sizeof info };
        onnx_input(w, "x", ATTNRUN_F32, "3,400");
        onnx_node(w, "Neg", "x", "a");
        onnx_node(w, "Neg", "a", "b");
        for (int i = 0; parts && i < 2; i++) {
            static const char *const names[][4] = {
                { "f0", "t0", "b,f0,t0,axis", "s0" }, { "f1", "t1", "b,f1,t1,axis", "s1" }
            };
            onnx_ints(w, names[i][0], 1, &from[i]);
            onnx_ints(w, names[i][1], 1, &to[i]);
            if (i == 0)
                onnx_ints(w, "axis", 1, from);
            onnx_node(w, "Slice", names[i][2], names[i][3]);
        }
        if (parts)
            onnx_node(w, "Add", "s1,s0", "y");
        else
            onnx_node(w, "Relu", "b", "y");
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(runtime, w, ATTNRUN_NO_FUSION);
        attnrun_context *context = make_context(model);
        attnrun_tensor in = tensor_of(ATTNRUN_F32, "3,400", x);
        OK(attnrun_plan(context, &in, &info));
        assert_int_equal(info.arena_bytes, parts ? 4800 + 3200 : 4800);
        set_input(context, 0, ATTNRUN_F32, "3,400", x);
        OK(attnrun_run(context, NULL));
        const attnrun_tensor y = get_output(context, 0);
        for (int i = 0; i < (parts ? 800 : 1200); i++)
            assert_float_equal(((const float *)y.data)[i],
                               (parts ? x[i] + x[i + 400] : x[i]), 0);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_of_random_graphs),
        cmocka_unit_test(test_plan_of_random_graphs_with_dynamic_shapes),
        cmocka_unit_test(test_plan_computes_small_values),
        cmocka_unit_test(test_plan_writes_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
