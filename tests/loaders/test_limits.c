/* test_limits.c - attnrun_limits as members of attnrun_source: what is refused, that 0 is the
 * default, and the two that decide what is computed at load. That calls over the others fail is
 * in tests/bad/bad_limits.py. */
#include "run_model.h"

#include <stdio.h>
#include <unistd.h>

/* y = x + Exp(c), c of 8 floats; with `twice`: + Exp(Exp(c)). */
static struct pb constants(bool twice)
{
    static const float eight[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    struct pb graph = { 0 }, c = pb_f32("c", eight, 8);
    pb_message(&graph, 5, &c);
    pb_add_node(&graph, 1, "", "Exp", "c", "e");
    if (twice)
        pb_add_node(&graph, 1, "", "Exp", "e", "d");
    pb_add_node(&graph, 1, "", "Add", twice ? "x,d" : "x,e", "y");
    pb_value(&graph, 11, "x", 8);
    pb_value(&graph, 12, "y", 8);
    return pb_model(&graph);
}

static attnrun_status open_with(const struct pb *m, const attnrun_limits *limits,
                                int32_t *n_nodes)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .flags = ATTNRUN_NO_FUSION,
                                    .data = m->data,
                                    .bytes = m->bytes,
                                    .limits = limits };
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_model *model = NULL;
    attnrun_status status = attnrun_model_open(test_runtime, &source, &model);
    if (status == ATTNRUN_OK)
        assert_int_equal(attnrun_model_query(model, &info), ATTNRUN_OK);
    attnrun_model_release(model);
    *n_nodes = info.n_nodes;
    return status;
}

static void values_out_of_range(void **state)
{
    (void)state;
    int32_t n_nodes;
    struct pb m = constants(false);
    attnrun_limits limits = { .struct_size = sizeof limits };
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_OK);
    limits.struct_size = 4;
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_E_USAGE);
    limits.struct_size = 16; /* of an older header */
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_OK);
#define X(id, member, standard, largest, text)                                           \
    limits = (attnrun_limits){ .struct_size = sizeof limits, .member = -1 };             \
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_E_USAGE);                 \
    assert_non_null(strstr(attnrun_last_error()->message, "'" #member "'"));             \
    limits.member = (largest);                                                           \
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_OK);                      \
    if ((largest) < INT64_MAX) {                                                         \
        limits.member = (int64_t)(largest) + ((largest) < INT64_MAX);                    \
        assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_E_USAGE);             \
    }                                                                                    \
    assert_true((standard) > 0 && (standard) <= (largest));
    ATTNRUN_LIMIT_LIST(X)
#undef X
    pb_free(&m);
}

static void computed_at_load(void **state)
{
    (void)state;
    int32_t n_nodes = 0;
    for (int64_t bytes = 31; bytes <= 33; bytes++) { /* each Exp gives 32 */
        const attnrun_limits one = { .struct_size = sizeof one, .fold_bytes = bytes };
        const attnrun_limits all = { .struct_size = sizeof all,
                                     .folded_bytes = 32 + bytes };
        struct pb m = constants(false), twice = constants(true);
        assert_int_equal(open_with(&m, &one, &n_nodes), ATTNRUN_OK);
        assert_int_equal(n_nodes, bytes < 32 ? 2 : 1);
        assert_int_equal(open_with(&twice, &all, &n_nodes), ATTNRUN_OK);
        assert_int_equal(n_nodes, bytes < 32 ? 2 : 1);
        pb_free(&m);
        pb_free(&twice);
    }
}

/* A file of exactly so many bytes is allowed. */
static void bytes_of_a_file(void **state)
{
    (void)state;
    int32_t n_nodes;
    struct pb m = constants(false);
    attnrun_limits limits = { .struct_size = sizeof limits,
                              .file_bytes = (int64_t)m.bytes };
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_OK);
    limits.file_bytes--;
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_E_LIMIT);
    pb_free(&m);
}

static void function_of(struct pb *model, const char *name, const char *calls, int times)
{
    struct pb f = { 0 };
    char in[8] = "v0", out[8];
    pb_string(&f, 1, name);
    pb_string(&f, 4, "v0");
    for (int i = 0; i < times; i++) {
        snprintf(out, sizeof out, "v%d", i + 1);
        pb_add_node(&f, 7, calls == NULL ? "" : "f", calls == NULL ? "Relu" : calls, in,
                    out);
        memcpy(in, out, sizeof in);
    }
    pb_string(&f, 5, in);
    pb_string(&f, 10, "f");
    pb_opset(&f, 9, "", 18);
    pb_opset(&f, 9, "f", 1);
    pb_message(model, 25, &f);
}

/* One call that becomes 11,111 nodes and calls, of a file with 42; each node of a file may become
 * 32 without being counted. */
static void nodes_of_nested_functions(void **state)
{
    (void)state;
    int32_t n_nodes;
    struct pb graph = { 0 };
    pb_add_node(&graph, 1, "f", "F1", "x", "y");
    pb_value(&graph, 11, "x", 8);
    pb_value(&graph, 12, "y", 8);
    struct pb m = pb_model(&graph);
    function_of(&m, "F1", "F2", 1);
    function_of(&m, "F2", "F3", 10);
    function_of(&m, "F3", "F4", 10);
    function_of(&m, "F4", "F5", 10);
    function_of(&m, "F5", NULL, 10);
    attnrun_limits limits = { .struct_size = sizeof limits, .expanded_nodes = 12000 };
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_OK);
    assert_int_equal(n_nodes, 10000);
    limits.expanded_nodes = 9000;
    assert_int_equal(open_with(&m, &limits, &n_nodes), ATTNRUN_E_LIMIT);
    pb_free(&m);
}

static void values_of_ragged(void **state)
{
    (void)state;
    struct pb m = constants(false);
    for (int32_t ragged = -1; ragged <= ATTNRUN_RAGGED_AUTO + 1; ragged++) {
        const attnrun_source source = { .struct_size = sizeof source,
                                        .data = m.data,
                                        .bytes = m.bytes,
                                        .ragged = ragged };
        const bool known = ragged == ATTNRUN_RAGGED_OFF || ragged == ATTNRUN_RAGGED_AUTO;
        attnrun_model *model = NULL;
        const attnrun_status status = attnrun_model_open(test_runtime, &source, &model);
        if (ragged != ATTNRUN_RAGGED_ON) /* this model has no mask of a batch */
            assert_int_equal(status, known ? ATTNRUN_OK : ATTNRUN_E_USAGE);
        attnrun_model_release(model);
    }
    pb_free(&m);
}

/* A sentence names a file without its folder. */
static void names_of_files(void **state)
{
    char path[] = "/tmp/attnrun-limits-XXXXXX", words[64];
    const attnrun_source source = { .struct_size = sizeof source, .path = path };
    attnrun_model *model = NULL;
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "\x01", 1) == 1 && close(fd) == 0);
    assert_int_equal(attnrun_model_open(test_runtime, &source, &model), ATTNRUN_E_PARSE);
    snprintf(words, sizeof words, "file '%s'", path + strlen("/tmp/"));
    if (strstr(attnrun_last_error()->message, words) == NULL)
        fail_msg("'%s', expected %s", attnrun_last_error()->message, words);
    unlink(path);
}

static int start(void **state)
{
    (void)state;
    return attnrun_runtime_create(NULL, &test_runtime);
}

static int stop(void **state)
{
    (void)state;
    attnrun_runtime_destroy(test_runtime);
    return 0;
}

/* n inputs and behind them the value 'wanted'; an output that is almost called so. */
static attnrun_status open_for_more(int n)
{
    static const char *const more[] = { "wantedd" };
    struct pb graph = { 0 };
    char name[16];
    for (int k = 0; k < n; k++) {
        snprintf(name, sizeof name, "%d", k);
        pb_value(&graph, 11, name, 1);
    }
    pb_add_node(&graph, 1, "", "Neg", "0", "wanted");
    pb_value(&graph, 12, "wanted", 1);
    struct pb m = pb_model(&graph);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = m.data,
                                    .bytes = m.bytes,
                                    .more_outputs = more,
                                    .n_more_outputs = 1 };
    attnrun_model *model = NULL;
    attnrun_status status = attnrun_model_open(test_runtime, &source, &model);
    attnrun_model_release(model);
    pb_free(&m);
    return status;
}

/* What an unknown name most likely means is looked for among 10,000 values. */
static void names_that_are_suggested(void **state)
{
    (void)state;
    assert_int_equal(open_for_more(9999), ATTNRUN_E_USAGE);
    assert_non_null(strstr(attnrun_last_error()->message, "'wanted'"));
    assert_int_equal(open_for_more(10000), ATTNRUN_E_USAGE);
    assert_null(strstr(attnrun_last_error()->message, "'wanted'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(values_out_of_range),
                                        cmocka_unit_test(computed_at_load),
                                        cmocka_unit_test(bytes_of_a_file),
                                        cmocka_unit_test(nodes_of_nested_functions),
                                        cmocka_unit_test(values_of_ragged),
                                        cmocka_unit_test(names_of_files),
                                        cmocka_unit_test(names_that_are_suggested) };
    return cmocka_run_group_tests(tests, start, stop);
}
