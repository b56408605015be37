/* test_save_onnx.c - attnrun_save_onnx(): what it refuses, a caller that cannot write, and
 * memory that runs out at each allocation, with nothing left behind. */
#include "harness.h"

struct written {
    uint8_t data[1 << 18];
    size_t n;
    int64_t calls, fail_at; /* -1: none */
};

static int32_t write_piece(void *user, const void *bytes, uint64_t n)
{
    struct written *w = user;
    if (w->calls++ == w->fail_at || n > sizeof w->data - w->n)
        return 1;
    memcpy(w->data + w->n, bytes, (size_t)n);
    w->n += (size_t)n;
    return 0;
}

/* Two products, of which the weights are a tensor that is written apart, with a constant that is
 * computed, a node that is there twice, and an If that reads from around it. */
static uint8_t *sample(size_t *bytes)
{
    static float weight[32 * 16];
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "N,32");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_constant(w, "w", ATTNRUN_F32, "32,16", weight);
    onnx_float(w, "two", 2);
    onnx_node(w, "Neg", "two", "minus");
    onnx_node(w, "MatMul", "x,w", "p");
    onnx_node(w, "MatMul", "x,w", "q");
    onnx_node(w, "Add", "p,q", "s");
    onnx_node(w, "Mul", "s,minus", "m");
    onnx_node(w, "If", "c", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Relu", "m", "t");
    onnx_output(w, "t", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Neg", "m", "e");
    onnx_output(w, "e", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "N,16");
    return onnx_end(w, bytes);
}

static attnrun_status save(attnrun_runtime *runtime, const uint8_t *data, size_t bytes,
                           const attnrun_onnx_edit *edit, struct written *written,
                           attnrun_onnx_saved *saved)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = data,
                                    .bytes = bytes };
    written->n = 0;
    written->calls = 0;
    return attnrun_save_onnx(runtime, &source, edit, write_piece, written, saved);
}

static void test_what_is_written_opens_again(void **state)
{
    size_t bytes;
    uint8_t *data = sample(&bytes);
    struct written *w = calloc(1, sizeof *w);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                               .flags = ATTNRUN_ONNX_SIMPLIFY };
    attnrun_onnx_saved saved = { .struct_size = sizeof saved };
    attnrun_model *model;
    (void)state;
    w->fail_at = -1;
    OK(save(runtime, data, bytes, &edit, w, &saved));
    assert_int_equal(saved.n_file_nodes, 6);
    assert_int_equal(saved.n_nodes, 4); /* MatMul, Add, Mul, If */
    assert_int_equal(saved.bytes, w->n);
    OK(open_bytes(runtime, w->data, w->n, 0, &model));
    assert_int_equal(attnrun_model_find_output(model, "y"), 0);
    attnrun_model_release(model);
    edit.flags = 0;
    OK(save(runtime, data, bytes, &edit, w, &saved));
    assert_int_equal(saved.n_nodes, 6);
    attnrun_runtime_destroy(runtime);
    free(data);
    free(w);
}

/* Structs of programs that were built with an older or a newer header. */
static void test_sources_of_other_sizes(void **state)
{
    static const char *const folded[] = { "minus" };
    struct {
        attnrun_source source;
        uint64_t more;
    } given = { .more = 0 };
    const size_t sizes[] = { offsetof(attnrun_source, more_outputs), sizeof given.source,
                             sizeof given };
    size_t bytes;
    uint8_t *data = sample(&bytes);
    struct written *w = calloc(1, sizeof *w);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .outputs = folded,
                                     .n_outputs = 1 };
    attnrun_onnx_saved saved = { .struct_size = sizeof saved };
    (void)state;
    w->fail_at = -1;
    given.source.data = data;
    given.source.bytes = bytes;
    for (int i = 0; i < 3; i++) {
        given.source.struct_size = (uint32_t)sizes[i];
        w->n = 0;
        OK(attnrun_save_onnx(runtime, &given.source, &edit, write_piece, w, &saved));
        assert_int_equal(saved.n_nodes, 1); /* Neg */
    }
    attnrun_runtime_destroy(runtime);
    free(data);
    free(w);
}

/* ---- a file beside the model ---- */

enum { LARGE = 65536, NOT_MULTIPLE = LARGE + 4 };

static struct written beside;

static int32_t write_beside(void *user, const void *bytes, uint64_t n)
{
    (void)user;
    return write_piece(&beside, bytes, n);
}

static void add_large(struct onnx_writer *w, int i, int32_t dtype, int64_t bytes)
{
    static uint8_t data[LARGE + 4096];
    const int64_t n = bytes / (dtype == ATTNRUN_F32 ? 4 : 1);
    char dims[16], x[8], c[8], y[8], both[16];
    snprintf(dims, sizeof dims, "%d", (int)n);
    snprintf(x, sizeof x, "x%d", i);
    snprintf(c, sizeof c, "c%d", i);
    snprintf(y, sizeof y, "y%d", i);
    snprintf(both, sizeof both, "%s,%s", x, c);
    memset(data, dtype == ATTNRUN_F32 ? 0x40 + i : 1, (size_t)bytes);
    onnx_input(w, x, dtype, dims);
    onnx_constant(w, c, dtype, dims, data);
    onnx_node(w, dtype == ATTNRUN_F32 ? "Add" : "And", both, y);
    onnx_output(w, y, dtype, dims);
}

/* Constants of 64 KiB and more, each at a multiple of 4 KiB, with zeros between them. */
static void test_large_constants_beside_the_model(void **state)
{
    static const struct {
        int32_t dtype;
        int64_t bytes, at; /* -1: in the model */
    } rows[] = { { ATTNRUN_F32, NOT_MULTIPLE, 0 },
                 { ATTNRUN_BOOL, LARGE - 1, -1 },
                 { ATTNRUN_F32, LARGE, 17 * 4096 },
                 { ATTNRUN_F32, LARGE + 4096, 33 * 4096 } };
    static const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                            .external_name = "x.data",
                                            .write_external = write_beside };
    attnrun_onnx_saved saved = { .struct_size = sizeof saved };
    struct onnx_writer *writer = onnx_begin(18);
    struct written *w = calloc(1, sizeof *w);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    size_t bytes;
    (void)state;
    for (int i = 0; i < 4; i++)
        add_large(writer, i, rows[i].dtype, rows[i].bytes);
    uint8_t *data = onnx_end(writer, &bytes);
    w->fail_at = beside.fail_at = -1;
    OK(save(runtime, data, bytes, &edit, w, &saved));
    int64_t at = 0;
    for (int i = 0; i < 4; i++) {
        if (rows[i].at < 0)
            continue;
        for (; at < rows[i].at; at++)
            assert_int_equal(beside.data[at], 0);
        for (; at < rows[i].at + rows[i].bytes; at++)
            assert_int_equal(beside.data[at], 0x40 + i);
    }
    assert_int_equal(beside.n, at);
    assert_int_equal(saved.external_bytes, at);
    assert_int_equal(saved.bytes, w->n);
    assert_true(w->n > LARGE - 1 && w->n < LARGE + 2000);
    attnrun_runtime_destroy(runtime);
    free(data);
    free(w);
}

static void test_misuse_is_refused(void **state)
{
    static const char *const twice[] = { "p", "p" }, *const none[] = { NULL };
    size_t bytes;
    uint8_t *data = sample(&bytes);
    struct written *w = calloc(1, sizeof *w);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_onnx_edit edit = { .struct_size = sizeof edit, .flags = 8 };
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = data,
                                    .bytes = bytes };
    (void)state;
    w->fail_at = -1;
    FAILS(ATTNRUN_E_USAGE, "flags 0x8", save(runtime, data, bytes, &edit, w, NULL));
    edit.flags = 0;
    FAILS(ATTNRUN_E_USAGE, "write is NULL",
          attnrun_save_onnx(runtime, &source, &edit, NULL, w, NULL));
    edit.n_outputs = 1;
    FAILS(ATTNRUN_E_USAGE, "are NULL", save(runtime, data, bytes, &edit, w, NULL));
    edit.outputs = none;
    FAILS(ATTNRUN_E_USAGE, "is NULL", save(runtime, data, bytes, &edit, w, NULL));
    edit.outputs = twice;
    edit.n_outputs = 2;
    FAILS(ATTNRUN_E_USAGE, "listed twice", save(runtime, data, bytes, &edit, w, NULL));
    edit.n_outputs = 0;
    edit.external_name = "x.data";
    FAILS(ATTNRUN_E_USAGE, "or neither", save(runtime, data, bytes, &edit, w, NULL));
    assert_int_equal(w->n, 0);
    attnrun_runtime_destroy(runtime);
    free(data);
    free(w);
}

static void test_a_writer_may_fail_at_each_piece(void **state)
{
    size_t bytes;
    uint8_t *data = sample(&bytes);
    struct written *w = calloc(1, sizeof *w);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit };
    (void)state;
    w->fail_at = -1;
    OK(save(runtime, data, bytes, &edit, w, NULL));
    const int64_t calls = w->calls;
    assert_true(calls > 2);
    for (w->fail_at = 0; w->fail_at < calls; w->fail_at++)
        FAILS(ATTNRUN_E_IO, "could not write",
              save(runtime, data, bytes, &edit, w, NULL));
    attnrun_runtime_destroy(runtime);
    free(data);
    free(w);
}

static void test_memory_may_run_out_anywhere(void **state)
{
    size_t bytes;
    uint8_t *data = sample(&bytes);
    struct written *w = calloc(1, sizeof *w);
    struct test_memory memory;
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .flags = ATTNRUN_ONNX_SIMPLIFY };
    (void)state;
    w->fail_at = -1;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    OK(save(runtime, data, bytes, &edit, w, NULL));
    const int64_t first = memory.calls, whole = (int64_t)w->n;
    OK(save(runtime, data, bytes, &edit, w, NULL));
    const int64_t each = memory.calls - first, held = memory.live_bytes;
    assert_true(each > 5);
    for (int64_t k = 0; k < each; k++) {
        memory.fail_at = memory.calls + k;
        FAILS(ATTNRUN_E_MEMORY, "", save(runtime, data, bytes, &edit, w, NULL));
        assert_true(memory.live_bytes <= held);
    }
    memory.fail_at = -1;
    OK(save(runtime, data, bytes, &edit, w, NULL));
    assert_int_equal(w->n, whole);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    free(data);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_opens_again),
        cmocka_unit_test(test_sources_of_other_sizes),
        cmocka_unit_test(test_large_constants_beside_the_model),
        cmocka_unit_test(test_misuse_is_refused),
        cmocka_unit_test(test_a_writer_may_fail_at_each_piece),
        cmocka_unit_test(test_memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
