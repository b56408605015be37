/* test_function.c - functions of a model: bodies in place of calls, by their results. */
#include <stdio.h>
#include <time.h>

#include "run_model.h"

enum { FUNCTIONS = 25, F_NODE = 7 };

static struct pb function(const char *domain, const char *name, const char *in,
                          const char *out, int64_t opset)
{
    struct pb f = { 0 };
    pb_string(&f, 1, name);
    pb_names(&f, 4, in);
    pb_names(&f, 5, out);
    if (domain[0] != 0)
        pb_string(&f, 10, domain);
    pb_opset(&f, 9, "", opset);
    pb_opset(&f, 9, "f", 1);
    return f;
}

/* A model f32[n] x -> y of one call; `call` is freed. */
static struct pb model_of(struct pb *call)
{
    struct pb graph = { 0 };
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "y", -1);
    pb_message(&graph, 1, call);
    struct pb model = pb_model(&graph);
    pb_opset(&model, 8, "attnrun", 1);
    return model;
}

static const float input[2] = { -1, 3 };

static void check(struct pb *model, uint32_t flags, float y0, float y1)
{
    float y[2];
    attnrun_status status = run_model(model, flags, input, 2, y);
    if (status != ATTNRUN_OK)
        fail_msg("%s", attnrun_last_error()->message);
    assert_true(y[0] == y0 && y[1] == y1);
}

/* f.Double(x) = x + x; f.Quad(x) = Double(Double(x)); f.Same gives its input and it
 * twice. */
static void add_doubles(struct pb *model)
{
    struct pb f = function("f", "Double", "a", "b", 18);
    pb_add_node(&f, F_NODE, "", "Add", "a,a", "b");
    pb_message(model, FUNCTIONS, &f);
    f = function("f", "Quad", "a", "c", 18);
    pb_add_node(&f, F_NODE, "f", "Double", "a", "b");
    pb_add_node(&f, F_NODE, "f", "Double", "b", "c");
    pb_message(model, FUNCTIONS, &f);
}

static void nested_calls(void **state)
{
    (void)state;
    struct pb call = pb_node("f", "Quad", "x", "y"), model = model_of(&call);
    add_doubles(&model);
    check(&model, 0, -4, 12);
}

static void attribute_float(struct pb *node, const char *name, float value)
{
    struct pb attr = { 0 };
    pb_string(&attr, 1, name);
    pb_int(&attr, 20, 1);
    pb_varint(&attr, 2u << 3 | 5);
    pb_put(&attr, &value, sizeof value);
    pb_message(node, 5, &attr);
}

static void attribute_ref(struct pb *node, const char *name, const char *of, int64_t type)
{
    struct pb attr = { 0 };
    pb_string(&attr, 1, name);
    pb_string(&attr, 21, of);
    pb_int(&attr, 20, type);
    pb_message(node, 5, &attr);
}

/* f.Leak{slope = 0.25}(x) = LeakyRelu{alpha = @slope}(x) * Constant{value_float =
 * @scale}. */
static struct pb leak_model(struct pb *call)
{
    struct pb model = model_of(call);
    struct pb f = function("f", "Leak", "a", "d", 18), attr = { 0 };
    struct pb node = pb_node("", "LeakyRelu", "a", "b");
    attribute_ref(&node, "alpha", "slope", 1);
    pb_message(&f, F_NODE, &node);
    node = pb_node("", "Constant", "", "c");
    attribute_ref(&node, "value_float", "scale", 1);
    pb_message(&f, F_NODE, &node);
    pb_add_node(&f, F_NODE, "", "Mul", "b,c", "d");
    pb_string(&f, 6, "scale");
    float slope = 0.25f;
    pb_string(&attr, 1, "slope");
    pb_int(&attr, 20, 1);
    pb_varint(&attr, 2u << 3 | 5);
    pb_put(&attr, &slope, sizeof slope);
    pb_message(&f, 11, &attr);
    pb_message(&model, FUNCTIONS, &f);
    return model;
}

static void attribute_references(void **state)
{
    (void)state;
    struct pb call = pb_node("f", "Leak", "x", "y");
    attribute_float(&call, "scale", 2);
    struct pb model = leak_model(&call);
    check(&model, 0, -0.5f, 6);
    call = pb_node("f", "Leak", "x", "y");
    attribute_float(&call, "scale", 2);
    attribute_float(&call, "slope", 0.5f);
    model = leak_model(&call);
    check(&model, 0, -1, 6);
    call = pb_node("f", "Leak", "x", "y"); /* no scale: a Constant without a value */
    model = leak_model(&call);
    float y[2];
    assert_int_equal(run_model(&model, 0, input, 2, y), ATTNRUN_E_MODEL);
    struct pb node = pb_node("", "LeakyRelu", "x", "y"); /* outside of a function */
    attribute_ref(&node, "alpha", "slope", 1);
    model = model_of(&node);
    assert_int_equal(run_model(&model, 0, input, 2, y), ATTNRUN_E_MODEL);
}

static void overloads(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct pb call = pb_node("f", "Twin", "x", "y");
        pb_string(&call, 8, k == 0 ? "one" : "two");
        struct pb model = model_of(&call);
        struct pb f = function("f", "Twin", "a", "b", 18);
        pb_string(&f, 13, "one");
        pb_add_node(&f, F_NODE, "", "Neg", "a", "b");
        pb_message(&model, FUNCTIONS, &f);
        f = function("f", "Twin", "a", "b", 18);
        pb_string(&f, 13, "two");
        pb_add_node(&f, F_NODE, "", "Abs", "a", "b");
        pb_message(&model, FUNCTIONS, &f);
        if (k == 0)
            check(&model, 0, 1, -3);
        else
            check(&model, 0, 1, 3);
    }
}

/* Formal operands that the call leaves out, inputs passed through, one value twice. */
static void operands(void **state)
{
    (void)state;
    struct pb call = pb_node("f", "Pass", "x", "p,q"), graph = { 0 };
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "y", -1);
    pb_message(&graph, 1, &call);
    pb_add_node(&graph, 1, "", "Add", "p,q", "y");
    struct pb model = pb_model(&graph);
    struct pb f = function("f", "Pass", "a,absent", "a,n,n", 18);
    pb_add_node(&f, F_NODE, "", "Neg", "a", "n");
    pb_message(&model, FUNCTIONS, &f);
    check(&model, 0, 0, 0);
    call = pb_node("f", "Pass", "x,x,x", "y");
    model = model_of(&call);
    f = function("f", "Pass", "a", "b", 18);
    pb_add_node(&f, F_NODE, "", "Neg", "a", "b");
    pb_message(&model, FUNCTIONS, &f);
    float y[2];
    assert_int_equal(run_model(&model, 0, input, 2, y), ATTNRUN_E_MODEL);
}

/* Unsqueeze of opset 11 has its axes in an attribute, of opset 18 in an input. */
static void own_opset(void **state)
{
    (void)state;
    struct pb call = pb_node("f", "Lift", "x", "y"), model = model_of(&call);
    struct pb f = function("f", "Lift", "a", "b", 11), attr = { 0 };
    struct pb node = pb_node("", "Unsqueeze", "a", "b");
    pb_string(&attr, 1, "axes");
    pb_int(&attr, 20, 7);
    pb_int(&attr, 8, 0);
    pb_message(&node, 5, &attr);
    pb_message(&f, F_NODE, &node);
    pb_message(&model, FUNCTIONS, &f);
    check(&model, 0, -1, 3);
}

static void calls_of_itself(void **state)
{
    (void)state;
    float y[2];
    struct pb call = pb_node("f", "A", "x", "y"), model = model_of(&call);
    struct pb f = function("f", "A", "a", "b", 18);
    pb_add_node(&f, F_NODE, "f", "A", "a", "b"); /* the only one calls itself */
    pb_message(&model, FUNCTIONS, &f);
    assert_int_equal(run_model(&model, 0, input, 2, y), ATTNRUN_E_MODEL);
    assert_non_null(strstr(attnrun_last_error()->message, "calls itself"));
    call = pb_node("f", "A", "x", "y"), model = model_of(&call);
    f = function("f", "A", "a", "b", 18);
    pb_add_node(&f, F_NODE, "f", "B", "a", "b");
    pb_message(&model, FUNCTIONS, &f);
    f = function("f", "B", "a", "b", 18);
    pb_add_node(&f, F_NODE, "f", "A", "a", "b");
    pb_message(&model, FUNCTIONS, &f);
    assert_int_equal(run_model(&model, 0, input, 2, y), ATTNRUN_E_MODEL);
    assert_non_null(strstr(attnrun_last_error()->message, "calls itself"));
}

/* F0 = Neg; Fk calls F(k-1) `times` times in a row. */
static void add_chain(struct pb *model, int depth, int times)
{
    char name[16], before[16];
    for (int k = 0; k < depth; k++) {
        snprintf(name, sizeof name, "F%d", k);
        snprintf(before, sizeof before, "F%d", k - 1);
        struct pb f = function("f", name, "a", times == 2 && k > 0 ? "c" : "b", 18);
        if (k == 0) {
            pb_add_node(&f, F_NODE, "", "Neg", "a", "b");
        } else {
            pb_add_node(&f, F_NODE, "f", before, "a", "b");
            if (times == 2)
                pb_add_node(&f, F_NODE, "f", before, "b", "c");
        }
        pb_message(model, FUNCTIONS, &f);
    }
}

static attnrun_status chain(int depth, int times, float *y)
{
    char name[16];
    snprintf(name, sizeof name, "F%d", depth - 1);
    struct pb call = pb_node("f", name, "x", "y"), model = model_of(&call);
    add_chain(&model, depth, times);
    return run_model(&model, 0, input, 2, y);
}

static void deep_and_wide(void **state)
{
    (void)state;
    float y[2];
    assert_int_equal(chain(64, 1, y), ATTNRUN_OK);
    assert_true(y[0] == 1 && y[1] == -3);
    assert_int_equal(chain(65, 1, y), ATTNRUN_E_LIMIT);
    assert_int_equal(chain(3000, 1, y), ATTNRUN_E_LIMIT);
    assert_int_equal(chain(6, 2, y), ATTNRUN_OK);
    time_t start = time(NULL);
    assert_int_equal(chain(30, 2, y), ATTNRUN_E_LIMIT); /* 2^30 nodes */
    assert_true(time(NULL) - start < 30);
    /* 2^16 nodes are more than a file of 34 may become; the limit is told */
    assert_int_equal(chain(16, 2, y), ATTNRUN_E_LIMIT);
    assert_non_null(strstr(attnrun_last_error()->message, "16384, and 32 for each"));
    /* F_k is 5 2^k - 3 nodes, calls included: 10,237 and 20,477, where 17,216 are allowed. */
    assert_int_equal(chain(12, 2, y), ATTNRUN_OK);
    assert_int_equal(chain(13, 2, y), ATTNRUN_E_LIMIT);
}

/* A function whose node has a list of `n` subgraphs, of 10,237 nodes each when expanded. */
static attnrun_status list_of_graphs(int n)
{
    struct pb call = pb_node("f", "Listed", "x", "y"), model = model_of(&call);
    struct pb f = function("f", "Listed", "a", "b", 18), attr = { 0 };
    struct pb node = pb_node("", "Abs", "a", "b");
    float y[2];
    pb_string(&attr, 1, "graphs");
    pb_int(&attr, 20, 10);
    for (int k = 0; k < n; k++) {
        struct pb graph = { 0 };
        pb_add_node(&graph, 1, "f", "F11", "a", "g");
        pb_message(&attr, 11, &graph);
    }
    pb_message(&node, 5, &attr);
    pb_message(&f, F_NODE, &node);
    add_chain(&model, 12, 2);
    pb_message(&model, FUNCTIONS, &f);
    return run_model(&model, 0, input, 2, y);
}

/* Calls with one input, of a function that has `width` of them: y = |x|. */
static attnrun_status wide_calls(int width, int calls)
{
    struct pb graph = { 0 };
    char name[16];
    float y[2];
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "v0", -1);
    for (int k = 0; k < calls; k++) {
        snprintf(name, sizeof name, "v%d", k);
        pb_add_node(&graph, 1, "f", "Wide", "x", name);
    }
    struct pb model = pb_model(&graph), f = function("f", "Wide", "a", "b", 18);
    for (int k = 1; k < width; k++) {
        snprintf(name, sizeof name, "a%d", k);
        pb_string(&f, 4, name);
    }
    pb_add_node(&f, F_NODE, "", "Abs", "a", "b");
    pb_message(&model, FUNCTIONS, &f);
    return run_model(&model, 0, input, 2, y);
}

static void absent_inputs_of_calls(void **state)
{
    (void)state;
    assert_int_equal(wide_calls(20000, 2), ATTNRUN_OK);
    assert_int_equal(wide_calls(200, 400), ATTNRUN_OK);
    assert_int_equal(wide_calls(20000, 100), ATTNRUN_E_LIMIT);
    assert_non_null(strstr(attnrun_last_error()->hint, "expanded_nodes"));
}

/* 100,000 numbers of a byte become 8 bytes each, for all calls of the body together. */
static void constants_of_bodies(void **state)
{
    enum { N = 100000, CALLS = 50 };
    (void)state;
    struct pb graph = { 0 }, tensor = { 0 }, attr = { 0 };
    struct pb node = pb_node("", "Constant", "", "k");
    static const uint8_t zeros[N];
    const uint64_t before = memory_in_use();
    char name[16];
    attnrun_model *model;
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "v0", -1);
    for (int k = 0; k < CALLS; k++) {
        snprintf(name, sizeof name, "v%d", k);
        pb_add_node(&graph, 1, "f", "Large", "x", name);
    }
    pb_int(&tensor, 1, N);
    pb_int(&tensor, 2, 7);
    pb_bytes(&tensor, 7, zeros, N);
    pb_string(&attr, 1, "value");
    pb_int(&attr, 20, 4);
    pb_message(&attr, 5, &tensor);
    pb_message(&node, 5, &attr);
    struct pb file = pb_model(&graph), f = function("f", "Large", "a", "b", 18);
    pb_message(&f, F_NODE, &node);
    pb_add_node(&f, F_NODE, "", "Abs", "a", "b");
    pb_message(&file, FUNCTIONS, &f);
    assert_int_equal(open_bytes(file.data, file.bytes, 0, &model), ATTNRUN_OK);
    assert_true(memory_in_use() - before < 4 * N * sizeof(int64_t));
    attnrun_model_release(model);
    pb_free(&file);
}

/* No operator has such a list; all of it counts before that is said. */
static void lists_of_subgraphs(void **state)
{
    (void)state;
    assert_int_not_equal(list_of_graphs(1), ATTNRUN_E_LIMIT);
    assert_int_equal(list_of_graphs(2), ATTNRUN_E_LIMIT);
    assert_non_null(strstr(attnrun_last_error()->message, "16384, and 32 for each"));
}

/* Optimizers write nodes of com.microsoft into models that do not import it; no other domain. */
static void domains_that_are_not_imported(void **state)
{
    (void)state;
    float y[2];
    struct pb call = pb_node("com.microsoft", "QuickGelu", "x", "y"),
              model = model_of(&call);
    assert_int_equal(run_model(&model, 0, input, 2, y), ATTNRUN_OK);
    assert_true(y[0] > -0.16f && y[0] < -0.15f && y[1] > 2.98f && y[1] < 2.99f);
    attnrun_node_info node = { .struct_size = sizeof node };
    attnrun_model *opened;
    call = pb_node("com.microsoft", "QuickGelu", "x", "y");
    model = model_of(&call);
    assert_int_equal(open_bytes(model.data, model.bytes, 0, &opened), ATTNRUN_OK);
    assert_int_equal(attnrun_model_node(opened, 0, &node), ATTNRUN_OK);
    assert_int_equal(node.opset, 1); /* where no opset is imported */
    attnrun_model_release(opened);
    pb_free(&model);
    call = pb_node("elsewhere", "QuickGelu", "x", "y");
    model = model_of(&call);
    assert_int_equal(run_model(&model, 0, input, 2, y), ATTNRUN_E_MODEL);
    assert_non_null(strstr(attnrun_last_error()->message, "imports no opset of domain"));
}

/* Names of the main graph stay, even one that a value of a function had before. */
static void names_of_the_main_graph(void **state)
{
    (void)state;
    struct pb graph = { 0 }, call = pb_node("f", "Quad", "x", "m");
    pb_string(&call, 3, "c");
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "c/b", -1);
    pb_message(&graph, 1, &call); /* its inner value is c/b, too */
    pb_add_node(&graph, 1, "", "Neg", "m", "c/b");
    struct pb model = pb_model(&graph);
    add_doubles(&model);
    attnrun_model *opened;
    assert_int_equal(open_bytes(model.data, model.bytes, 0, &opened), ATTNRUN_OK);
    assert_int_equal(attnrun_model_find_output(opened, "c/b"), 0);
    attnrun_model_release(opened);
    check(&model, 0, 4, -12);
}

static void native_wins(void **state)
{
    (void)state;
    for (uint32_t force = 0; force <= 1; force++) {
        struct pb call = pb_node("", "Abs", "x", "y"), model = model_of(&call);
        struct pb f = function("", "Abs", "a", "b", 18);
        pb_add_node(&f, F_NODE, "", "Neg", "a", "b");
        pb_message(&model, FUNCTIONS, &f);
        if (force)
            check(&model, ATTNRUN_FORCE_BODIES, 1, -3);
        else
            check(&model, 0, 1, 3);
    }
}

/* ---- "Op__0123abcd" of the domain attnrun ---- */

static attnrun_status triple_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    return ATTNRUN_OK;
}

static attnrun_status triple_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    const float *x = step->x[0].data;
    float *y = step->y[0].data;
    int64_t n = attnrun_tensor_count(&step->x[0]);
    for (int64_t k = 0; k < n; k++)
        y[k] = 3 * x[k];
    return ATTNRUN_OK;
}

static const attnrun_op_def triple = { .struct_size = sizeof triple,
                                       .domain = "attnrun",
                                       .name = "Triple",
                                       .since = 1,
                                       .inputs = "x:T",
                                       .outputs = "y:T",
                                       .types = "T=f32",
                                       .infer = triple_infer,
                                       .run = triple_run };

static struct pb hashed_model(const char *op_type)
{
    struct pb call = pb_node("attnrun", op_type, "x", "y"), model = model_of(&call);
    struct pb f = function("attnrun", op_type, "a", "b", 18);
    pb_add_node(&f, F_NODE, "", "Neg", "a", "b");
    pb_message(&model, FUNCTIONS, &f);
    return model;
}

static void hashed_names(void **state)
{
    (void)state;
    assert_int_equal(attnrun_register_op(test_runtime, &triple), ATTNRUN_OK);
    struct pb model = hashed_model("Triple__0123abcd");
    check(&model, 0, -3, 9);
    model = hashed_model("Triple__0123abcd");
    check(&model, ATTNRUN_FORCE_BODIES, 1, -3);
    model = hashed_model("Unheard__0123abcd");
    check(&model, 0, 1, -3);
    model = hashed_model("Triple__0123ABCD"); /* not a hash: its own name */
    check(&model, 0, 1, -3);
}

/* ---- subgraphs ---- */

/* If(cond) with this then-branch, which is freed; the else-branch is Abs(base). */
static struct pb if_node(struct pb *then, const char *out)
{
    struct pb node = pb_node("", "If", "cond", out), attr = { 0 }, other = { 0 };
    pb_string(&attr, 1, "then_branch");
    pb_int(&attr, 20, 5);
    pb_message(&attr, 6, then);
    pb_message(&node, 5, &attr);
    pb_add_node(&other, 1, "", "Abs", "base", "e");
    pb_value(&other, 12, "e", -1);
    pb_string(&attr, 1, "else_branch");
    pb_int(&attr, 20, 5);
    pb_message(&attr, 6, &other);
    pb_message(&node, 5, &attr);
    return node;
}

/* base = x + x; two levels of If, the inner one reads base and x, and calls a function.
 */
static void add_nested_ifs(struct pb *body, uint32_t field, const char *out)
{
    struct pb inner = { 0 }, middle = { 0 };
    pb_add_node(&inner, 1, "", "Sub", "base,x", "s"); /* x */
    pb_add_node(&inner, 1, "f", "Double", "s", "t");
    pb_value(&inner, 12, "t", -1);
    struct pb node = if_node(&inner, "m");
    pb_message(&middle, 1, &node);
    pb_add_node(&middle, 1, "", "Add", "m,base", "sum"); /* 4 x */
    pb_value(&middle, 12, "sum", -1);
    node = if_node(&middle, out);
    pb_add_node(body, field, "", "Add", "x,x", "base");
    pb_message(body, field, &node);
}

static void captures(void **state)
{
    (void)state;
    struct pb graph = { 0 }, cond = { 0 };
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "y", -1);
    pb_int(&cond, 2, 9);
    pb_string(&cond, 8, "cond");
    pb_bytes(&cond, 9, "\x07", 1); /* any byte but 0 is true */
    pb_message(&graph, 5, &cond);
    add_nested_ifs(&graph, 1, "y");
    struct pb model = pb_model(&graph);
    add_doubles(&model);
    check(&model, 0, -4, 12);
}

static void captures_in_a_function(void **state)
{
    (void)state;
    struct pb graph = { 0 }, cond = { 0 };
    pb_value(&graph, 11, "u", 2);
    pb_value(&graph, 12, "y", -1);
    pb_int(&cond, 2, 9);
    pb_string(&cond, 8, "yes");
    pb_bytes(&cond, 9, "\x01", 1);
    pb_message(&graph, 5, &cond);
    pb_add_node(&graph, 1, "f", "Deep", "u,yes", "y");
    struct pb model = pb_model(&graph);
    add_doubles(&model);
    struct pb f = function("f", "Deep", "x,cond", "z", 18);
    add_nested_ifs(&f, F_NODE, "z");
    pb_message(&model, FUNCTIONS, &f);
    check(&model, 0, -4, 12);
}

/* f.Pick{branch}(cond) = If(cond){ then: @branch, else: @branch }, whose second output has no
 * name: the branch has two. */
static void graphs_of_the_call(void **state)
{
    (void)state;
    struct pb branch = { 0 }, attr = { 0 }, cond = { 0 };
    pb_add_node(&branch, 1, "", "Abs", "x", "a");
    pb_add_node(&branch, 1, "", "Neg", "x", "b");
    pb_value(&branch, 12, "a", -1);
    pb_value(&branch, 12, "b", -1);
    pb_string(&attr, 1, "branch");
    pb_int(&attr, 20, 5);
    pb_message(&attr, 6, &branch);
    struct pb call = pb_node("f", "Pick", "yes", "y");
    pb_message(&call, 5, &attr);
    struct pb graph = { 0 };
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "y", -1);
    pb_int(&cond, 2, 9);
    pb_string(&cond, 8, "yes");
    pb_bytes(&cond, 9, "\x01", 1);
    pb_message(&graph, 5, &cond);
    pb_message(&graph, 1, &call);
    struct pb model = pb_model(&graph);
    struct pb f = function("f", "Pick", "cond", "q", 18);
    struct pb node = pb_node("", "If", "cond", "q");
    pb_string(&node, 2, "");
    attribute_ref(&node, "then_branch", "branch", 5);
    attribute_ref(&node, "else_branch", "branch", 5);
    pb_message(&f, F_NODE, &node);
    pb_message(&model, FUNCTIONS, &f);
    check(&model, 0, 1, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_calls),
        cmocka_unit_test(attribute_references),
        cmocka_unit_test(overloads),
        cmocka_unit_test(operands),
        cmocka_unit_test(own_opset),
        cmocka_unit_test(calls_of_itself),
        cmocka_unit_test(domains_that_are_not_imported),
        cmocka_unit_test(deep_and_wide),
        cmocka_unit_test(absent_inputs_of_calls),
        cmocka_unit_test(constants_of_bodies),
        cmocka_unit_test(lists_of_subgraphs),
        cmocka_unit_test(names_of_the_main_graph),
        cmocka_unit_test(native_wins),
        cmocka_unit_test(hashed_names),
        cmocka_unit_test(captures),
        cmocka_unit_test(captures_in_a_function),
        cmocka_unit_test(graphs_of_the_call),
    };
    return cmocka_run_group_tests(tests, start_runtime, stop_runtime);
}
