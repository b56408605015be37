/* test_provenance.c - what attn_provenance_ask() says of random graphs of nodes that move elements
 * is where the elements come from: each graph is run on inputs whose elements are all different,
 * with every value as an output, and each part of an answer is compared with that. What it cannot
 * follow ends a part, and nothing else does. ATTNRUN_TEST_SEED=N makes graph N the first one. */
#include "moved_graph.h"

#include "../../ops/rewrite/provenance.h"

/* Elements of a random question, and of a whole value. */
enum { ASKED = 2000, WHOLE = 1 << 15, MUCH = 1 << 20 };

struct asked {
    const struct moved_graph *made;
    const struct attn_graph *graph;
    struct attn_grid grid;
    const float *whole; /* of the value that was asked for */
    int32_t stop;
    int asked;
    int64_t parts, taken, most; /* most: the part that ends the question; 0: none */
    uint8_t seen[WHOLE];
};

static int value_number(const struct asked *a, int32_t id)
{
    for (int v = 0; v < a->made->n; v++)
        if (attn_graph_find(a->graph, a->made->values[v].name) == id)
            return v;
    return -1;
}

/* Steps that go back are not followed: provenance.c. */
static bool goes_back(const struct attn_grid *grid)
{
    return (grid->step[0] < 0 && grid->count[0] > 1) ||
           (grid->step[1] < 0 && grid->count[1] > 1);
}

#define HOLDS(condition)                                                                 \
    do {                                                                                 \
        if (!(condition))                                                                \
            fail_msg("graph %llu: %s\n%s", (unsigned long long)a->made->first_seed,      \
                     #condition, a->made->text);                                         \
    } while (0)

static bool take(void *user, const struct attn_grid_part *part)
{
    struct asked *a = user;
    const int v = part->value >= 0 ? value_number(a, part->value) : -1;
    HOLDS(part->value < 0 || v >= 0);
    HOLDS(v < 0 || part->value == a->stop || a->made->values[v].ends ||
          goes_back(&part->grid));
    HOLDS(!a->made->values[a->asked].ends || a->made->values[a->asked].input ||
          v == a->asked);
    for (int64_t j = 0; j < part->grid.count[1]; j++)
        for (int64_t i = 0; i < part->grid.count[0]; i++) {
            const int64_t column = part->at[0] + i, row = part->at[1] + j;
            HOLDS(column >= 0 && column < a->grid.count[0]);
            HOLDS(row >= 0 && row < a->grid.count[1]);
            HOLDS(!a->seen[row * a->grid.count[0] + column]++);
            const float got =
                a->whole[a->grid.from + column * a->grid.step[0] + row * a->grid.step[1]];
            const int64_t from =
                part->grid.from + i * part->grid.step[0] + j * part->grid.step[1];
            HOLDS(v < 0 || (from >= 0 && from < moved_count(&a->made->values[v])));
            HOLDS(got == (v < 0 ? (float)part->number : a->made->values[v].data[from]));
            a->taken++;
        }
    return ++a->parts != a->most;
}

/* One question, of which all must be known unless it is cut short. */
static void ask(struct asked *a, struct attn_model *model, int v, int64_t left)
{
    struct attn_pool pool = { .memory = model->pool.memory };
    struct attn_provenance p = { .graph = a->graph,
                                 .pool = &pool,
                                 .stop = a->stop,
                                 .left = left,
                                 .take = take,
                                 .user = a };
    bool known;
    a->asked = v;
    a->parts = a->taken = 0;
    a->whole = a->made->values[v].data;
    HOLDS(a->grid.count[0] * a->grid.count[1] <= WHOLE);
    memset(a->seen, 0, sizeof a->seen);
    const int32_t id = attn_graph_find(a->graph, a->made->values[v].name);
    HOLDS(id >= 0);
    OK(attn_provenance_ask(&p, id, &a->grid, &known));
    const int64_t all = a->grid.count[0] * a->grid.count[1];
    HOLDS(known == (left > 0 && a->most == 0));
    HOLDS(known ? a->taken == all : a->taken <= all);
    HOLDS(left > 0 || a->parts == 0);
    HOLDS(a->most == 0 || a->parts == a->most);
    attn_pool_free(&pool);
}

static struct attn_grid random_grid(struct moved_graph *g, int64_t n)
{
    struct attn_grid grid = { 0 };
    int64_t left;
    grid.from = moved_below(g, n);
    left = n - 1 - grid.from;
    for (int d = 0; d < 2; d++) {
        grid.step[d] = moved_below(g, 4) == 0 ? 0 : moved_below(g, left + 1);
        const int64_t max = grid.step[d] == 0 ? 3 : left / grid.step[d] + 1;
        const int64_t fit = d == 0 ? ASKED : ASKED / grid.count[0];
        grid.count[d] = 1 + moved_below(g, max < fit ? max : fit);
        left -= grid.step[d] * (grid.count[d] - 1);
    }
    return grid;
}

/* Rows along the last axis, and along all others. */
static void ask_matrix(struct asked *a, struct attn_model *model, int v)
{
    const struct moved_value *value = &a->made->values[v];
    const int64_t n = moved_count(value);
    const int64_t width = value->rank > 0 ? value->dims[value->rank - 1] : 1;
    a->grid = (struct attn_grid){ 0, { 1, width }, { width, n / width } };
    ask(a, model, v, MUCH);
    a->grid = (struct attn_grid){ 0, { width, 1 }, { n / width, width } };
    ask(a, model, v, MUCH);
}

static void ask_all(struct moved_graph *g, struct attn_model *model)
{
    static struct asked asked;
    struct asked *a = &asked;
    *a = (struct asked){ .made = g, .graph = model->graph, .stop = -1 };
    for (int v = 0; v < g->n; v++) {
        const int64_t n = moved_count(&g->values[v]);
        a->grid = (struct attn_grid){ 0, { 1, 0 }, { n, 1 } };
        HOLDS(attn_provenance_is_static(a->graph,
                                        attn_graph_find(a->graph, g->values[v].name)));
        ask(a, model, v, MUCH);
        ask(a, model, v, 0);
        a->most = 1;
        ask(a, model, v, MUCH);
        a->most = 0;
        ask_matrix(a, model, v);
        for (int k = 0; k < 4; k++) {
            a->grid = random_grid(g, n);
            a->stop =
                k == 3 ? attn_graph_find(a->graph, g->values[moved_below(g, g->n)].name)
                       : -1;
            ask(a, model, v, MUCH);
        }
        a->stop = attn_graph_find(a->graph, g->values[v].name);
        ask(a, model, v, MUCH);
        HOLDS(a->parts == 1 || attn_graph_producer(a->graph, a->stop) == NULL);
        a->stop = -1;
    }
}

static void test_provenance_is_where_elements_come_from(void **state)
{
    (void)state;
    const uint64_t seed = test_seed();
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    int64_t used[MOVED_KINDS] = { 0 };
    for (int64_t k = 0; k < rounds(600, 4000); k++) {
        struct moved_graph *g = moved_make(seed + (uint64_t)k);
        attnrun_model *model = moved_run(g, runtime);
        ask_all(g, (struct attn_model *)model);
        for (int i = 0; i < MOVED_KINDS; i++)
            used[i] += g->used[i];
        attnrun_model_release(model);
        moved_free(g);
    }
    for (int i = 0; i < MOVED_KINDS; i++)
        if (used[i] < 10)
            fail_msg("kind %d was made only %lld times", i, (long long)used[i]);
    attnrun_runtime_destroy(runtime);
}

/* What it may not be asked about: see provenance.h. */
static void test_provenance_needs_constant_dims(void **state)
{
    (void)state;
    static const struct {
        int32_t dtype;
        const char *dims;
        bool is;
    } rows[] = {
        { ATTNRUN_F32, "2,3", true },  { ATTNRUN_F32, "", true },
        { ATTNRUN_F32, "N,3", false }, { ATTNRUN_F32, "0,3", false },
        { ATTNRUN_I64, "2,3", false }, { ATTNRUN_F16, "2,3", false },
    };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct onnx_writer *w = onnx_begin(17);
        onnx_input(w, "x", rows[k].dtype, rows[k].dims);
        onnx_node(w, "Identity", "x", "y");
        onnx_output(w, "y", rows[k].dtype, NULL);
        attnrun_model *model = open_model(runtime, w, ATTNRUN_NO_FUSION);
        const struct attn_graph *graph = ((struct attn_model *)model)->graph;
        assert_int_equal(attn_provenance_is_static(graph, attn_graph_find(graph, "x")),
                         rows[k].is);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_provenance_is_where_elements_come_from),
        cmocka_unit_test(test_provenance_needs_constant_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
