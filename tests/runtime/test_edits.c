/* test_edits.c - edits of a graph: after each one, the lists and counts of users, the count of
 * stale nodes, the names and the producers are what a look at the whole graph finds; and what
 * loading does, in nodes and users, grows with the file and not faster. */
#include "harness.h"

#include "graph.h"

enum { MAX_VALUES = 4000, N_INNER = 3 };

struct world {
    attnrun_runtime *runtime;
    struct attn_model *model;
    struct attn_graph *graph;
    uint64_t first_seed, seed;
    double rank[MAX_VALUES]; /* a node's outputs are above all that it reads */
    int edit;
};

static int64_t below(struct world *w, int64_t n)
{
    w->seed = w->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((w->seed >> 33) % (uint64_t)n);
}

#define HOLDS(condition)                                                                 \
    do {                                                                                 \
        if (!(condition))                                                                \
            fail_msg("seed %llu, edit %d: %s", (unsigned long long)w->first_seed,        \
                     w->edit, #condition);                                               \
    } while (0)

/* ---- what a look at the whole graph finds ---- */

static bool reads(const struct attn_graph *graph, const struct attn_use *use,
                  int32_t value)
{
    if (use->node == NULL)
        return graph->outputs[use->index] == value;
    if (use->inner != NULL)
        return use->inner->values[use->index].outer == value;
    return use->node->in[use->index] == value;
}

/* How often each value is read by nodes and outputs, and by values of subgraphs. */
static void count_reads(const struct attn_graph *graph, int32_t *reads_of, int32_t *inner)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        for (int32_t i = 0; node && i < node->pub.n_in + node->n_captures; i++)
            if (node->in[i] >= 0)
                reads_of[node->in[i]]++;
        for (int32_t g = 0; node && g < node->n_graphs; g++)
            for (int64_t v = 0; v < node->graphs[g]->n_values; v++)
                inner[node->graphs[g]->values[v].outer]++;
    }
    for (int32_t i = 0; i < graph->n_outputs; i++)
        reads_of[graph->outputs[i]]++;
}

static const struct attn_node *only_reader(const struct attn_graph *graph, int32_t value)
{
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; graph->nodes[n] &&
                            i < graph->nodes[n]->pub.n_in + graph->nodes[n]->n_captures;
             i++)
            if (graph->nodes[n]->in[i] == value)
                return graph->nodes[n];
    return NULL;
}

static void check_value(const struct world *w, int32_t id, int32_t n_reads,
                        int32_t n_inner)
{
    const struct attn_graph *graph = w->graph;
    const struct attn_value *value = &graph->values[id];
    const struct attn_use *previous = NULL;
    for (const struct attn_use *use = value->uses; use != NULL; use = use->next) {
        HOLDS(use->previous == previous);
        HOLDS(reads(graph, use, id));
        HOLDS(n_reads + n_inner > 0);
        n_reads -= use->inner == NULL;
        n_inner -= use->inner != NULL;
        previous = use;
    }
    HOLDS(n_reads == 0 && n_inner == 0);
    HOLDS(attn_graph_find(graph, value->name) == id);
    const bool output = (value->flags & ATTN_VALUE_OUTPUT) != 0;
    HOLDS(attn_graph_only_user(graph, id) ==
          (value->n_uses == 1 && !output ? only_reader(graph, id) : NULL));
}

static void check_graph(const struct world *w)
{
    static int32_t reads_of[MAX_VALUES], inner[MAX_VALUES];
    const struct attn_graph *graph = w->graph;
    int64_t n_stale = 0;
    memset(reads_of, 0, sizeof reads_of);
    memset(inner, 0, sizeof inner);
    count_reads(graph, reads_of, inner);
    for (int32_t id = 0; id < graph->n_values; id++) {
        HOLDS(graph->values[id].n_uses == reads_of[id]);
        check_value(w, id, reads_of[id], inner[id]);
    }
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        if (node == NULL)
            continue;
        n_stale += node->stale;
        HOLDS(node->pub.index == n);
        for (int32_t c = 0; c < node->n_captures; c++)
            HOLDS(node->graphs[0]->values[c].outer == node->in[node->pub.n_in + c]);
        for (int32_t o = 0; o < node->pub.n_out; o++)
            HOLDS(attn_graph_producer(graph, node->out[o]) == node);
    }
    HOLDS(graph->n_stale == n_stale);
}

static void check_order(const struct world *w)
{
    const struct attn_graph *graph = w->graph;
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t i = 0; i < graph->nodes[n]->pub.n_in + graph->nodes[n]->n_captures;
             i++) {
            const int32_t id = graph->nodes[n]->in[i];
            HOLDS(graph->values[id].producer < n);
        }
}

/* ---- a graph ---- */

static int32_t new_value(struct world *w, double rank)
{
    int32_t id;
    OK(attn_graph_add_value(w->graph, NULL, &id));
    w->rank[id] = rank;
    return id;
}

static double highest(const struct world *w, int32_t n, const int32_t *in)
{
    double rank = 0;
    for (int32_t i = 0; i < n; i++)
        rank = w->rank[in[i]] > rank ? w->rank[in[i]] : rank;
    return rank;
}

static int32_t some_value(struct world *w)
{
    return (int32_t)below(w, w->graph->n_values);
}

/* A node with a subgraph whose values stand for what it captures, after its operands. */
static void add_holder(struct world *w, struct attn_node *node)
{
    struct attn_pool *pool = &w->model->pool;
    struct attn_graph *inner = attn_graph_create(w->model, w->graph);
    const int32_t n = node->pub.n_in;
    int32_t *in = attn_pool_alloc(pool, (n + N_INNER) * (int64_t)sizeof *in);
    node->graphs = attn_pool_alloc(pool, (int64_t)sizeof *node->graphs);
    assert_true(inner != NULL && in != NULL && node->graphs != NULL);
    memcpy(in, node->in, (size_t)n * sizeof *in);
    for (int32_t c = 0; c < N_INNER; c++) {
        int32_t id;
        OK(attn_graph_add_value(inner, NULL, &id));
        in[n + c] = node->in[below(w, n)];
        inner->values[id].flags = ATTN_VALUE_CAPTURE;
        inner->values[id].outer = in[n + c];
    }
    node->in = in;
    node->graphs[0] = inner;
    node->n_graphs = 1;
    node->n_captures = N_INNER;
}

static void build(struct world *w, int n_nodes)
{
    struct attn_graph *graph = w->graph;
    for (int i = 0; i < 5; i++) {
        const int32_t id = new_value(w, 0);
        graph->values[id].flags |= ATTN_VALUE_INPUT;
    }
    for (int n = 0; n < n_nodes; n++) {
        int32_t in[4], n_in = 1 + (int32_t)below(w, 4);
        for (int32_t i = 0; i < n_in; i++)
            in[i] = some_value(w);
        const int32_t out = new_value(w, highest(w, n_in, in) + 1);
        struct attn_node *node;
        OK(attn_graph_add_node(graph, "", "Sum", "", n_in, in, 1, &out, &node));
        if (below(w, 6) == 0)
            add_holder(w, node);
    }
    graph->n_outputs = 4;
    graph->outputs = attn_pool_alloc(&w->model->pool, 4 * (int64_t)sizeof(int32_t));
    assert_non_null(graph->outputs);
    for (int32_t i = 0; i < 4; i++)
        graph->outputs[i] = (int32_t)(graph->n_values - 1 - below(w, 6));
    OK(attn_graph_finish(graph));
}

/* ---- edits ---- */

/* A value that is given by nothing since its node was removed has no new users. */
static bool is_given(const struct world *w, int32_t id)
{
    const struct attn_value *value = &w->graph->values[id];
    return value->producer >= 0 || (value->flags & ATTN_VALUE_INPUT) != 0;
}

static void edit_replace(struct world *w)
{
    const int32_t from = some_value(w), to = some_value(w);
    if (w->rank[to] <= w->rank[from] && is_given(w, to))
        attn_graph_replace(w->graph, from, to);
}

static void edit_insert(struct world *w)
{
    int32_t in[3], n_in = 1 + (int32_t)below(w, 3);
    for (int32_t i = 0; i < n_in; i++) {
        in[i] = some_value(w);
        if (!is_given(w, in[i]))
            return;
    }
    const int32_t out = new_value(w, highest(w, n_in, in) + 1);
    struct attn_node *made;
    OK(attn_graph_insert(w->graph, NULL, "", "Sum", n_in, in, 1, &out, 0, NULL, &made));
}

static struct attn_node *some_node(struct world *w)
{
    return w->graph->n_nodes > 0 ? w->graph->nodes[below(w, w->graph->n_nodes)] : NULL;
}

static void edit_remove(struct world *w)
{
    struct attn_node *node = some_node(w);
    if (node != NULL && w->graph->values[node->out[0]].n_uses == 0)
        attn_graph_remove(w->graph, node);
}

static void edit_input(struct world *w)
{
    struct attn_node *node = some_node(w);
    const int32_t id = some_value(w);
    if (node != NULL && w->rank[id] < w->rank[node->out[0]] && is_given(w, id))
        attn_node_set_input(w->graph, node, (int32_t)below(w, node->pub.n_in), id);
}

static void edit_graph(struct world *w)
{
    switch (below(w, 7)) {
    case 0:
    case 1:
        edit_replace(w);
        break;
    case 2:
        edit_insert(w);
        break;
    case 3:
        edit_input(w);
        break;
    case 4:
        attn_graph_swap_names(w->graph, some_value(w), some_value(w));
        break;
    case 5:
        edit_remove(w);
        break;
    default:
        if (below(w, 8) > 0)
            break;
        OK(attn_graph_order(w->graph));
        check_order(w);
    }
}

static void test_edits_keep_what_a_look_at_all_finds(void **state)
{
    (void)state;
    const uint64_t seed = test_seed();
    const attnrun_source source = { .struct_size = sizeof source };
    for (int64_t round = 0; round < rounds(12, 200); round++) {
        struct world *w = calloc(1, sizeof *w);
        assert_non_null(w);
        w->runtime = make_runtime(NULL, 1);
        w->first_seed = w->seed = seed + (uint64_t)round;
        OK(attn_model_create(w->runtime, &source, &w->model));
        w->graph = w->model->graph;
        build(w, 5 + (int)below(w, 60));
        check_graph(w);
        for (w->edit = 1; w->edit <= 300; w->edit++) {
            edit_graph(w);
            check_graph(w);
        }
        attn_model_destroy(w->model);
        attnrun_runtime_destroy(w->runtime);
        free(w);
    }
}

/* ---- how much loading does ---- */

enum { IDENTITY, ADD, SILU, COPIES, LAYERS, N_FORMS };

static void chain_node(struct onnx_writer *w, const char *op_type, const char *from,
                       int i, const char *other, const char *to)
{
    char in[64], out[32];
    snprintf(in, sizeof in, "%s%d%s", from, i, other);
    snprintf(out, sizeof out, "%s%d", to, to[0] == from[0] ? i + 1 : i);
    onnx_node(w, op_type, in, out);
}

/* n nodes, about, from v0 to v<*last>. */
static struct onnx_writer *write_chain(int form, int n, int *last)
{
    struct onnx_writer *w = onnx_begin(17);
    const float four[] = { 1, 2, 3, 4 };
    float sixteen[16];
    char other[32];
    for (int i = 0; i < 16; i++)
        sixteen[i] = (float)(i % 5);
    onnx_input(w, "v0", ATTNRUN_F32, "N,4");
    onnx_constant(w, "c", ATTNRUN_F32, "4", four);
    onnx_constant(w, "w", ATTNRUN_F32, "4,4", sixteen);
    const int per = form == SILU ? 2 : form == COPIES ? 2 : form == LAYERS ? 5 : 1;
    *last = n / per;
    for (int i = 0; i < *last; i++)
        switch (form) {
        case IDENTITY:
            chain_node(w, "Identity", "v", i, "", "v");
            break;
        case ADD:
            chain_node(w, "Add", "v", i, ",c", "v");
            break;
        case SILU:
            chain_node(w, "Sigmoid", "v", i, "", "s");
            snprintf(other, sizeof other, ",s%d", i);
            chain_node(w, "Mul", "v", i, other, "v");
            break;
        case COPIES: /* each read by all that follow */
            chain_node(w, "Softmax", "v", i, "", "s");
            snprintf(other, sizeof other, "s%d", i);
            snprintf(other + 16, 16, "v%d", i + 1);
            onnx_node(w, "Identity", other, other + 16);
            break;
        default:
            chain_node(w, "Softmax", "v", i, "", "s");
            chain_node(w, "MatMul", "s", i, ",w", "m");
            chain_node(w, "Add", "m", i, ",c", "a");
            chain_node(w, "Relu", "a", i, "", "r");
            snprintf(other, sizeof other, ",r%d", i);
            chain_node(w, "Add", "v", i, other, "v");
        }
    return w;
}

static struct attn_load_counts count_load(int form, int n)
{
    int last;
    char name[32];
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = write_chain(form, n, &last);
    snprintf(name, sizeof name, "v%d", last);
    onnx_output(w, name, ATTNRUN_F32, "N,4");
    attnrun_model *model = open_model(runtime, w, 0);
    const struct attn_load_counts counts = ((struct attn_model *)model)->counts;
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    return counts;
}

static void check_growth(int form, const char *what, int64_t one, int64_t two)
{
    if (two > 2 * one + 64)
        fail_msg("form %d: %s: %lld for a file, %lld for one twice as long", form, what,
                 (long long)one, (long long)two);
}

static void test_load_does_work_for_nodes(void **state)
{
    (void)state;
    for (int form = 0; form < N_FORMS; form++) {
        const struct attn_load_counts one = count_load(form, 500),
                                      two = count_load(form, 1000);
        check_growth(form, "inferred", one.inferred, two.inferred);
        check_growth(form, "placed", one.placed, two.placed);
        check_growth(form, "moved", one.moved, two.moved);
        assert_in_range(one.inferred, 490, 1500);
        assert_in_range(one.moved, 0, 2000);
    }
}

/* Nodes of one operator share its names: a graph of a million nodes has few operators. */
static void test_nodes_share_names_of_operators(void **state)
{
    (void)state;
    int last;
    char name[32];
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = write_chain(LAYERS, 100, &last);
    snprintf(name, sizeof name, "v%d", last);
    onnx_output(w, name, ATTNRUN_F32, "N,4");
    attnrun_model *model = open_model(runtime, w, ATTNRUN_NO_FUSION);
    const struct attn_graph *graph = ((struct attn_model *)model)->graph;
    const struct attn_node *first = NULL;
    int same = 0;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        if (strcmp(node->pub.op_type, "MatMul") != 0)
            continue;
        first = first != NULL ? first : node;
        assert_ptr_equal(node->pub.op_type, first->pub.op_type);
        assert_ptr_equal(node->pub.op, first->pub.op);
        same++;
    }
    assert_int_equal(same, 20);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* Passes change some nodes at the end of a long chain that none of them changes. */
static void test_load_infers_what_changed(void **state)
{
    enum { LONG = 2000 };
    (void)state;
    const float four[] = { 1, 2, 3, 4 };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "v0", ATTNRUN_F32, "N,4");
    onnx_constant(w, "c", ATTNRUN_F32, "4", four);
    for (int i = 0; i < LONG; i++)
        chain_node(w, "Softmax", "v", i, "", "v");
    onnx_node(w, "Identity", "v2000", "a"); /* identity */
    onnx_node(w, "Exp", "a", "b");          /* common_subexpression */
    onnx_node(w, "Exp", "a", "d");
    onnx_node(w, "Sigmoid", "b", "e"); /* gelu */
    onnx_node(w, "Mul", "b,e", "f");
    onnx_node(w, "Softmax", "f", "g");
    onnx_node(w, "Add", "g,c", "h"); /* elementwise_chain */
    onnx_node(w, "Sin", "h", "i");
    onnx_node(w, "Add", "i,d", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N,4");
    attnrun_model *model = open_model(runtime, w, 0);
    const struct attn_model *inner = (const struct attn_model *)model;
    int32_t applied = 0;
    for (int32_t i = 0; i < inner->n_passes; i++)
        applied += inner->applied[i] > 0;
    assert_in_range(applied, 4, 10);
    assert_in_range(inner->counts.inferred, LONG, LONG + 100);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* Nodes that differ in an attribute or in a small constant: operators on x and on constants. */
static void test_load_compares_few_nodes(void **state)
{
    enum { MANY = 2000 };
    (void)state;
    const float four[] = { 1, 2, 3, 4 };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,4");
    onnx_constant(w, "c", ATTNRUN_F32, "4", four);
    onnx_node(w, "Exp", "x", "a0");
    for (int i = 0; i < MANY; i++) {
        const float number = (float)(i + 2) / 7;
        char k[16], elu[16], relu[16], sum[16], sums[16], all[32];
        snprintf(k, sizeof k, "k%d", i);
        snprintf(elu, sizeof elu, "e%d", i);
        snprintf(relu, sizeof relu, "r%d", i);
        snprintf(sum, sizeof sum, "x,k%d", i);
        snprintf(sums, sizeof sums, "s%d", i);
        snprintf(all, sizeof all, "a%d,e%d,r%d,s%d", i, i, i, i);
        onnx_constant(w, k, ATTNRUN_F32, "1", &number);
        onnx_node(w, "Elu", "x", elu);
        onnx_attr_float(w, "alpha", number);
        onnx_node(w, "LeakyRelu", "c", relu);
        onnx_attr_float(w, "alpha", number);
        onnx_node(w, "Mod", sum, sums);
        onnx_attr_int(w, "fmod", 1);
        snprintf(sum, sizeof sum, "a%d", i + 1);
        onnx_node(w, "Sum", all, sum);
    }
    onnx_node(w, "Neg", "a2000", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N,4");
    attnrun_model *model = open_model(runtime, w, 0);
    const struct attn_model *inner = (const struct attn_model *)model;
    assert_in_range(inner->counts.compared, 0, 3 * MANY);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* The same of constants without elements, which differ in their dims alone, and of outputs that are
 * absent. */
static void test_load_compares_few_shapes(void **state)
{
    enum { MANY = 1000, PARTS = 10 };
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "a0", ATTNRUN_F32, "0,4");
    onnx_input(w, "b0", ATTNRUN_F32, "N,1");
    onnx_input(w, "x", ATTNRUN_F32, "N,10");
    for (int i = 0; i < MANY; i++) {
        char k[16], dims[16], in[32], out[32], parts[8 * PARTS + 1] = "", some[96];
        int n = 0;
        snprintf(k, sizeof k, "k%d", i);
        snprintf(dims, sizeof dims, "0,%d", i + 1);
        onnx_constant(w, k, ATTNRUN_F32, dims, "");
        snprintf(in, sizeof in, "a0,k%d", i);
        snprintf(out, sizeof out, "c%d", i);
        onnx_node(w, "Concat", in, out);
        onnx_attr_int(w, "axis", 1);
        snprintf(in, sizeof in, "a%d,c%d", i, i);
        snprintf(out, sizeof out, "a%d", i + 1);
        onnx_node(w, "Concat", in, out);
        onnx_attr_int(w, "axis", 1);
        snprintf(some, sizeof some, "b%d", i);
        for (int part = 0; part < PARTS; part++) {
            if (((i + 1) >> part & 1) != 0) {
                n += snprintf(parts + n, sizeof parts - (size_t)n, "p%d_%d", i, part);
                snprintf(some + strlen(some), sizeof some - strlen(some), ",p%d_%d", i,
                         part);
            }
            n += snprintf(parts + n, sizeof parts - (size_t)n,
                          part + 1 < PARTS ? "," : "");
        }
        onnx_node(w, "Split", "x", parts);
        onnx_attr_int(w, "axis", 1);
        snprintf(out, sizeof out, "b%d", i + 1);
        onnx_node(w, "Sum", some, out);
    }
    onnx_output(w, "a1000", ATTNRUN_F32, "0,M");
    onnx_output(w, "b1000", ATTNRUN_F32, "N,1");
    attnrun_model *model = open_model(runtime, w, 0);
    const struct attn_model *inner = (const struct attn_model *)model;
    assert_in_range(inner->counts.compared, 0, 8 * MANY);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* c ? x : x, and in one branch a node that gives nothing: it stays, since its inputs do not fit and
 * nothing of that branch is swept. What lies behind its operands is a name of the file. */
static struct onnx_writer *write_useless(const char *inputs)
{
    static const float x[4];
    struct onnx_writer *w = onnx_begin(22);
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_node(w, "If", "c", "y");
    for (int branch = 0; branch < 2; branch++) {
        onnx_graph(w, branch == 0 ? "then_branch" : "else_branch");
        onnx_constant(w, branch == 0 ? "x" : "z", ATTNRUN_F32, "1,1,1,4", x);
        if (branch == 0) {
            onnx_node(w, "LSTM", inputs, "");
            onnx_node_name(w, "zzzzzzzzzzzzzzzz");
        }
        onnx_node(w, "Identity", branch == 0 ? "x" : "z", branch == 0 ? "r" : "s");
        onnx_output(w, branch == 0 ? "r" : "s", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
    }
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    return w;
}

static void test_node_without_outputs_has_no_first_one(void **state)
{
    static const char *const inputs[] = { "x,x,x", "x,x,x,x", "x,x,x,x,,x",
                                          "x,x,x,x,,x,x", "x,x,x,x,,x,x,x" };
    (void)state;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        attnrun_model *model = open_model(NULL, write_useless(inputs[i]), 0);
        const struct attn_graph *graph = ((const struct attn_model *)model)->graph;
        const struct attn_graph *branch = graph->nodes[0]->graphs[0];
        assert_int_equal(branch->nodes[0]->pub.n_out, 0);
        assert_int_equal(branch->nodes[0]->out[0], -1);
        attnrun_model_release(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edits_keep_what_a_look_at_all_finds),
        cmocka_unit_test(test_load_does_work_for_nodes),
        cmocka_unit_test(test_nodes_share_names_of_operators),
        cmocka_unit_test(test_load_infers_what_changed),
        cmocka_unit_test(test_load_compares_few_nodes),
        cmocka_unit_test(test_load_compares_few_shapes),
        cmocka_unit_test(test_node_without_outputs_has_no_first_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
