/* test_profile.c - the profile of a run: each step once, in order, with the bytes of its operands
 * and the operations that it states; each task in one range, of the thread that ran it. */
#include "../runtime/sample_models.h"

enum { M = 64, K = 96, N = 512, NODES = 8, RANGES = 4096 };

struct seen {
    int32_t n;
    attnrun_node_profile nodes[NODES];
    _Atomic int32_t n_ranges;
    attnrun_tasks_profile ranges[RANGES];
};

static void see_node(void *user, const attnrun_node_profile *node)
{
    struct seen *seen = user;
    if (seen->n < NODES)
        seen->nodes[seen->n++] = *node;
}

static void see_tasks(void *user, const attnrun_tasks_profile *tasks)
{
    struct seen *seen = user;
    const int32_t at = atomic_fetch_add(&seen->n_ranges, 1);
    if (at < RANGES)
        seen->ranges[at] = *tasks;
}

static struct onnx_writer *write_product(void)
{
    static float w[K * N];
    struct onnx_writer *writer = onnx_begin(13);
    onnx_input(writer, "x", ATTNRUN_F32, "M,96");
    onnx_constant(writer, "w", ATTNRUN_F32, "96,512", w);
    onnx_node(writer, "MatMul", "x,w", "m");
    onnx_node_name(writer, "product");
    onnx_node(writer, "Softmax", "m", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "M,512");
    return writer;
}

static void run_product(struct seen *seen, int32_t threads, bool nodes, bool tasks)
{
    static float x[M * K];
    attnrun_runtime *runtime = make_runtime(NULL, threads);
    attnrun_model *model = open_model(runtime, write_product(), 0);
    attnrun_context *context = make_context(model);
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .on_node = nodes ? see_node : NULL,
                                    .on_tasks = tasks ? see_tasks : NULL,
                                    .profile_user = seen };
    memset(seen, 0, sizeof *seen);
    set_input(context, 0, ATTNRUN_F32, "64,96", x);
    OK(attnrun_run(context, &options));
    for (int32_t i = 0; i < seen->n;
         i++) /* names end with the call; the model's are known */
        seen->nodes[i].name = seen->nodes[i].domain = NULL;
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

static void test_profile_has_each_node(void **state)
{
    (void)state;
    static struct seen seen;
    run_product(&seen, 1, true, false);
    assert_int_equal(seen.n, 2);
    assert_int_equal(atomic_load(&seen.n_ranges), 0);
    const attnrun_node_profile *product = &seen.nodes[0], *softmax = &seen.nodes[1];
    assert_int_equal(product->node_index, 0);
    assert_true(product->flops == INT64_C(2) * M * K * N);
    assert_int_equal(product->read_bytes, 4 * (M * K + K * N));
    assert_int_equal(product->written_bytes, 4 * M * N);
    assert_int_equal(product->n_threads, 1);
    assert_true(product->n_tasks > 0 && product->n_phases == 1);
    assert_true(product->start_ns >= 0 && product->ns >= 0);
    assert_int_equal(softmax->node_index, 1);
    assert_int_equal(softmax->read_bytes, 4 * M * N);
    assert_true(softmax->start_ns >= product->start_ns + product->ns);
}

/* Every task of a step is in one range, and the workers of its ranges are those it counts. */
static void test_profile_has_each_task_once(void **state)
{
    (void)state;
    static struct seen seen;
    run_product(&seen, 3, true, true);
    const int32_t n = atomic_load(&seen.n_ranges);
    assert_true(n > 0 && n < RANGES);
    for (int32_t s = 0; s < seen.n; s++) {
        int64_t tasks = 0;
        uint32_t workers = 0;
        for (int32_t i = 0; i < n; i++) {
            const attnrun_tasks_profile *range = &seen.ranges[i];
            if (range->node_index != seen.nodes[s].node_index)
                continue;
            assert_true(range->begin < range->end && range->worker < 3);
            assert_true(range->start_ns >= seen.nodes[s].start_ns && range->ns >= 0);
            tasks += range->end - range->begin;
            workers |= UINT32_C(1) << range->worker;
        }
        assert_int_equal(tasks, seen.nodes[s].n_tasks);
        assert_int_equal(__builtin_popcount(workers), seen.nodes[s].n_threads);
    }
}

/* ---- an operator of the caller's own ---- */

static attnrun_status twice_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    attnrun_step_flops(step, 1000);
    attnrun_step_flops(step, 234);
    return ATTNRUN_OK;
}

static attnrun_status twice_run(const attnrun_step *step, const attnrun_work *work)
{
    const float *x = step->x[0].data;
    float *y = step->y[0].data;
    (void)work;
    for (int64_t i = 0; i < attnrun_tensor_count(&step->x[0]); i++)
        y[i] = 2 * x[i];
    return ATTNRUN_OK;
}

static const attnrun_op_def twice = { .struct_size = sizeof twice,
                                      .domain = "own",
                                      .name = "Twice",
                                      .since = 1,
                                      .inputs = "X:T",
                                      .outputs = "Y:T",
                                      .types = "T=f32",
                                      .infer = twice_infer,
                                      .run = twice_run };

static void test_profile_adds_up_what_an_operator_states(void **state)
{
    (void)state;
    static struct seen seen;
    float x[2] = { 1, 2 };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    OK(attnrun_register_op(runtime, &twice));
    struct onnx_writer *writer = onnx_begin(13);
    onnx_domain(writer, "own");
    onnx_input(writer, "x", ATTNRUN_F32, "2");
    onnx_node(writer, "own::Twice", "x", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "2");
    attnrun_model *model = open_model(runtime, writer, 0);
    attnrun_context *context = make_context(model);
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .on_node = see_node,
                                    .profile_user = &seen };
    memset(&seen, 0, sizeof seen);
    set_input(context, 0, ATTNRUN_F32, "2", x);
    OK(attnrun_run(context, &options));
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.nodes[0].flops, 1234);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile_has_each_node),
        cmocka_unit_test(test_profile_has_each_task_once),
        cmocka_unit_test(test_profile_adds_up_what_an_operator_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
