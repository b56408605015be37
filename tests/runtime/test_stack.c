/* test_stack.c - subgraphs in each other, 32 levels of them, and subgraphs of many values, on the
 * stack of a small thread: how much of it every call uses, and that none uses more than there is.
 *
 * A stack is filled with a pattern before the thread starts; what is left of it when the
 * thread has ended was not used. */
#include "harness.h"

#include <pthread.h>
#include <sys/mman.h>

enum { LEVELS = 32, FEW = 8, SMALL = 192 << 10, LARGE = 1 << 20, PER_LEVEL = 4 << 10 };
enum { PATTERN = 0xA5 };

/* ---- models ---- */

static void value_name(char *name, char letter, int level)
{
    snprintf(name, 16, "%c%d", letter, level);
}

static void begin_if(struct onnx_writer *w, int level)
{
    char in[16], out[16];
    value_name(in, 'v', level);
    value_name(out, 'r', level);
    onnx_node(w, "If", "go", out);
    onnx_graph(w, "else_branch");
    value_name(out, 'e', level);
    onnx_node(w, "Neg", in, out);
    onnx_output(w, out, ATTNRUN_F32, "K");
    onnx_graph_end(w);
    onnx_graph(w, "then_branch");
    value_name(out, 'v', level + 1);
    onnx_node(w, "Abs", in, out);
}

static void begin_loop(struct onnx_writer *w, int level)
{
    char in[16], out[16], text[40];
    value_name(in, 'v', level);
    value_name(out, 'r', level);
    snprintf(text, sizeof text, "two,,%s", in);
    onnx_node(w, "Loop", text, out);
    onnx_graph(w, "body");
    value_name(out, 'i', level);
    onnx_input(w, out, ATTNRUN_I64, "");
    value_name(out, 'g', level);
    onnx_input(w, out, ATTNRUN_BOOL, "");
    value_name(out, 'v', level + 1);
    onnx_input(w, out, ATTNRUN_F32, "K");
    value_name(in, 'g', level);
    value_name(out, 'h', level);
    onnx_node(w, "Identity", in, out);
    onnx_output(w, out, ATTNRUN_BOOL, "");
}

/* One state, and one scanned input that is the same at each level. */
static void begin_scan(struct onnx_writer *w, int level)
{
    char in[16], out[16], text[40];
    value_name(in, 'v', level);
    value_name(out, 'r', level);
    snprintf(text, sizeof text, "%s,turns", in);
    onnx_node(w, "Scan", text, out);
    onnx_attr_int(w, "num_scan_inputs", 1);
    onnx_graph(w, "body");
    value_name(out, 'v', level + 1);
    onnx_input(w, out, ATTNRUN_F32, "K");
    value_name(out, 's', level);
    onnx_input(w, out, ATTNRUN_F32, "");
}

static void end_level(struct onnx_writer *w, int level, bool last)
{
    char in[16], out[16];
    value_name(in, last ? 'v' : 'r', level + 1);
    value_name(out, 'o', level);
    onnx_node(w, "Sqrt", in, out);
    onnx_output(w, out, ATTNRUN_F32, "K");
    onnx_graph_end(w);
}

static struct onnx_writer *write_nest(void (*begin)(struct onnx_writer *, int),
                                      int levels)
{
    static const float turns[1] = { 1 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "v0", ATTNRUN_F32, "K");
    onnx_input(w, "go", ATTNRUN_BOOL, "");
    onnx_int(w, "two", 1);
    onnx_constant(w, "turns", ATTNRUN_F32, "1", turns);
    for (int level = 0; level < levels; level++)
        begin(w, level);
    for (int level = levels - 1; level >= 0; level--)
        end_level(w, level, level == levels - 1);
    onnx_output(w, "r0", ATTNRUN_F32, "K");
    return w;
}

/* ---- calls, each on a stack of its own ---- */

enum stage { OPEN, CREATE, PLAN, RUN, RUN_AGAIN, DESTROY, STAGES };
static const char *const stage_names[] = { "open", "create",    "plan",
                                           "run",  "run again", "destroy" };

struct trial {
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    uint8_t *data;
    size_t bytes;
    enum stage stage;
    attnrun_status status;
    char message[256];
    float x[3];
    uint8_t go;
};

static attnrun_status do_stage(struct trial *t)
{
    attnrun_tensor inputs[2] = { tensor_of(ATTNRUN_F32, "3", t->x),
                                 tensor_of(ATTNRUN_BOOL, "", &t->go) };
    attnrun_status status = ATTNRUN_OK;
    switch (t->stage) {
    case OPEN:
        return open_bytes(t->runtime, t->data, t->bytes, ATTNRUN_COPY, &t->model);
    case CREATE:
        return attnrun_context_create(t->model, &t->context);
    case PLAN:
        return attnrun_plan(t->context, inputs, NULL);
    case DESTROY:
        attnrun_context_destroy(t->context);
        attnrun_model_release(t->model);
        return ATTNRUN_OK;
    default:
        for (int i = 0; i < 2 && status == ATTNRUN_OK; i++)
            status = attnrun_set_input(t->context, i, &inputs[i]);
        return status == ATTNRUN_OK ? attnrun_run(t->context, NULL) : status;
    }
}

static void *stage_thread(void *arg)
{
    struct trial *t = arg;
    t->status = do_stage(t);
    if (t->status != ATTNRUN_OK)
        snprintf(t->message, sizeof t->message, "%.255s", attnrun_last_error()->message);
    return NULL;
}

/* Returns the bytes of the stack that the stage used. */
static int64_t run_stage(struct trial *t, enum stage stage, size_t stack_bytes)
{
    pthread_attr_t attr;
    pthread_t thread;
    const size_t guard = 64 << 10; /* an overflow ends the test, not something else */
    char *memory = mmap(NULL, stack_bytes + guard, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory, guard, PROT_NONE), 0);
    unsigned char *stack = (unsigned char *)memory + guard;
    memset(stack, PATTERN, stack_bytes);
    t->stage = stage;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack, stack_bytes), 0);
    assert_int_equal(pthread_create(&thread, &attr, stage_thread, t), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    size_t left = 0;
    while (left < stack_bytes && stack[left] == PATTERN)
        left++;
    munmap(memory, stack_bytes + guard);
    if (t->status != ATTNRUN_OK)
        fail_msg("%s: %s", stage_names[stage], t->message);
    return (int64_t)(stack_bytes - left);
}

static void run_model(struct onnx_writer *w, size_t stack_bytes, int64_t *used)
{
    struct trial t = { .x = { 1, 4, 9 }, .go = 1 };
    t.runtime = make_runtime(NULL, 1);
    t.data = onnx_end(w, &t.bytes);
    for (enum stage stage = OPEN; stage < STAGES; stage++) {
        used[stage] = run_stage(&t, stage, stack_bytes);
        if (stage == RUN || stage == RUN_AGAIN) {
            attnrun_tensor y = get_output(t.context, 0);
            assert_int_equal(attnrun_tensor_count(&y), 3);
            assert_true(((float *)y.data)[0] > 0.99f && ((float *)y.data)[0] < 1.01f);
        }
    }
    attnrun_runtime_destroy(t.runtime);
    free(t.data);
}

static void check_nest(const char *name, void (*begin)(struct onnx_writer *, int))
{
    int64_t few[STAGES], many[STAGES], small[STAGES];
    run_model(write_nest(begin, FEW), LARGE, few);
    run_model(write_nest(begin, LEVELS), LARGE, many);
    for (enum stage stage = OPEN; stage < STAGES; stage++) {
        int64_t level = (many[stage] - few[stage]) / (LEVELS - FEW);
        print_message("%s, %s: %d bytes, %d a level\n", name, stage_names[stage],
                      (int)many[stage], (int)level);
        assert_true(level <= PER_LEVEL);
        assert_true(many[stage] <= SMALL);
    }
    run_model(write_nest(begin, LEVELS), SMALL, small);
}

static void test_stack_of_if(void **state)
{
    (void)state;
    check_nest("If", begin_if);
}

static void test_stack_of_loop(void **state)
{
    (void)state;
    check_nest("Loop", begin_loop);
}

static void test_stack_of_scan(void **state)
{
    (void)state;
    check_nest("Scan", begin_scan);
}

/* ---- many outputs ---- */

/* The merged decoder of a large model has an If of 129 outputs: its result, and keys and values of
 * 32 layers, of the text and of what it reads. */
static void test_stack_of_many_outputs(void **state)
{
    enum { MANY = 1000 };
    static const char *const branches[] = { "then_branch", "else_branch" };
    char names[8 * MANY], name[16];
    int n = 0;
    int64_t used[STAGES];
    struct onnx_writer *w = onnx_begin(17);
    (void)state;
    for (int i = 0; i < MANY; i++)
        n += snprintf(names + n, sizeof names - (size_t)n, i > 0 ? ",y%d" : "y%d", i);
    onnx_input(w, "x", ATTNRUN_F32, "K");
    onnx_input(w, "go", ATTNRUN_BOOL, "");
    onnx_node(w, "If", "go", names);
    for (int branch = 0; branch < 2; branch++) {
        onnx_graph(w, branches[branch]);
        for (int i = 0; i < MANY; i++) {
            value_name(name, branches[branch][0], i);
            onnx_node(w, branch == 0 ? "Abs" : "Neg", "x", name);
            onnx_output(w, name, ATTNRUN_F32, "K");
        }
        onnx_graph_end(w);
    }
    value_name(name, 'y', MANY - 1);
    onnx_output(w, name, ATTNRUN_F32, "K");
    run_model(w, SMALL, used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stack_of_if),
        cmocka_unit_test(test_stack_of_loop),
        cmocka_unit_test(test_stack_of_scan),
        cmocka_unit_test(test_stack_of_many_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
