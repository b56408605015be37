/* test_packing.c - packing goes weight by weight: each is packed and its pages in the file
 * are given back before a worker takes the next. An operator of the test counts. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "io.h"

enum { WEIGHTS = 9, ROWS = 64, WIDE = 1000, BYTES = ROWS * WIDE * 4 };

static struct {
    pthread_mutex_t lock;
    const void *dropped[WEIGHTS + 1]; /* where the pages began, each once */
    int given_back, begun, max;       /* most: begun and not given back */
} counts = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int note_drop(void *address, size_t bytes)
{
    int i = 0;
    pthread_mutex_lock(&counts.lock);
    while (i < counts.given_back && counts.dropped[i] != address)
        i++;
    if (i == counts.given_back && i <= WEIGHTS && bytes + 2 * 4096 > BYTES)
        counts.dropped[counts.given_back++] = address;
    pthread_mutex_unlock(&counts.lock);
    return 0;
}

static attnrun_status copy_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    return ATTNRUN_OK;
}

static attnrun_status copy_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    *bytes = BYTES;
    if (packed == NULL)
        return ATTNRUN_OK;
    pthread_mutex_lock(&counts.lock);
    int open = ++counts.begun - counts.given_back;
    counts.max = open > counts.max ? open : counts.max;
    pthread_mutex_unlock(&counts.lock);
    memcpy(packed, pack->x[1].data, BYTES);
    pack->replaces = 2;
    return ATTNRUN_OK;
}

static attnrun_status copy_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    memcpy(step->y[0].data, step->node->packed,
           (size_t)attnrun_tensor_bytes(&step->y[0]));
    return ATTNRUN_OK;
}

static const attnrun_op_def copied = { .struct_size = sizeof copied,
                                       .domain = "test",
                                       .name = "Copied",
                                       .since = 1,
                                       .inputs = "x:T w:T",
                                       .outputs = "y:T",
                                       .types = "T=f32",
                                       .infer = copy_infer,
                                       .pack = copy_pack,
                                       .run = copy_run };

static void write_model(const char *path)
{
    static float weights[ROWS * WIDE];
    struct onnx_writer *w = onnx_begin(17);
    char name[16], from[48], to[16];
    onnx_domain(w, "test");
    onnx_input(w, "y0", ATTNRUN_F32, "4");
    for (int i = 0; i < WEIGHTS; i++) {
        /* Alike they would be one. Some lie unaligned in the file: they are copied and given
         * back before they are packed. */
        weights[0] = (float)i;
        snprintf(name, sizeof name, "w%d", i);
        snprintf(from, sizeof from, "y%d,w%d", i, i);
        snprintf(to, sizeof to, "y%d", i + 1);
        onnx_constant(w, name, ATTNRUN_F32, "64,1000", weights);
        onnx_node(w, "test::Copied", from, to);
    }
    onnx_output(w, to, ATTNRUN_F32, "4");
    size_t bytes;
    uint8_t *data = onnx_end(w, &bytes);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
    free(data);
}

static void test_each_worker_gives_back_before_the_next(void **state)
{
    (void)state;
    char path[] = "/tmp/attnrun-packing-XXXXXX";
    close(mkstemp(path));
    write_model(path);
    const struct attn_io real = attn_io;
    attn_io.drop = note_drop;
    for (int32_t threads = 1; threads <= 3; threads++) {
        struct test_memory memory;
        test_memory_init(&memory);
        attnrun_runtime *runtime = make_runtime(&memory, threads);
        attnrun_source source = { .struct_size = sizeof source, .path = path };
        attnrun_runtime_info info = { .struct_size = sizeof info };
        attnrun_model *model;
        counts.max = counts.begun = counts.given_back = 0;
        OK(attnrun_register_op(runtime, &copied));
        OK(attnrun_model_open(runtime, &source, &model));
        attnrun_context *context = make_context(model);
        assert_int_equal(counts.begun, WEIGHTS);
        assert_int_equal(counts.given_back, WEIGHTS);
        assert_true(counts.max <= threads);
        OK(attnrun_runtime_query(runtime, &info));
        assert_in_range(info.used_memory, WEIGHTS * BYTES, WEIGHTS * BYTES * 11 / 10);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
        test_memory_check(&memory);
    }
    attn_io = real;
    unlink(path);
}

/* ---- what is packed is not shown any more ---- */

static void assert_replaced(const attnrun_step *step)
{
    if (step->node->packed != NULL)
        assert_null(step->x[1].data);
    assert_int_equal(step->in[1].dtype, ATTNRUN_F32);
}

static attnrun_status four_infer(attnrun_step *step)
{
    const bool dynamic = (step->node->op->flags & ATTNRUN_OP_DYNAMIC) != 0;
    assert_replaced(step);
    step->out[0] = step->in[1];
    if (dynamic)
        step->out[0].dims[0] = attnrun_dim_unknown(step);
    return ATTNRUN_OK;
}

static attnrun_status four_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    *bytes = 16;
    pack->replaces = 2;
    if (packed != NULL)
        memcpy(packed, pack->x[1].data, 16);
    return ATTNRUN_OK;
}

static attnrun_status four_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    assert_replaced(step);
    OK(attnrun_step_alloc(step, 0, ATTNRUN_F32, 1, step->x[1].dims));
    memcpy(step->y[0].data, step->node->packed, 16);
    return ATTNRUN_OK;
}

/* A constant that was computed at load is freed then, so nobody sees it: not run() and not infer(),
 * of planned steps and of those whose shapes depend on data. */
static void test_what_is_packed_is_not_shown(void **state)
{
    (void)state;
    static const float c[4] = { 1, 2, 3, 4 };
    for (uint32_t flags = 0; flags <= ATTNRUN_OP_DYNAMIC; flags += ATTNRUN_OP_DYNAMIC) {
        float x[4] = { 0 };
        attnrun_op_def op = copied;
        op.flags = flags;
        op.infer = four_infer;
        op.pack = four_pack;
        op.run = four_run;
        struct onnx_writer *w = onnx_begin(17);
        onnx_domain(w, "test");
        onnx_input(w, "x", ATTNRUN_F32, "4");
        onnx_constant(w, "c", ATTNRUN_F32, "4", c);
        onnx_node(w, "Add", "c,c", "w");
        onnx_node(w, "test::Copied", "x,w", "y");
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        OK(attnrun_register_op(runtime, &op));
        attnrun_model *model = open_model(runtime, w, 0);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_F32, "4", x);
        OK(attnrun_run(context, NULL));
        assert_memory_equal(get_output(context, 0).data, ((float[]){ 2, 4, 6, 8 }), 16);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
    }
}

/* What is mapped is the old file, whose name is another's by then, or nobody's. */
static void test_a_mapped_file_may_be_replaced_and_deleted(void **state)
{
    (void)state;
    char path[] = "/tmp/attnrun-packing-XXXXXX", other[] = "/tmp/attnrun-packing-XXXXXX";
    float x[4] = { 0 };
    close(mkstemp(path));
    write_model(path);
    attnrun_runtime *runtime = make_runtime(NULL, 2);
    attnrun_source source = { .struct_size = sizeof source, .path = path };
    attnrun_model *model;
    OK(attnrun_register_op(runtime, &copied));
    OK(attnrun_model_open(runtime, &source, &model));
    const int fd = mkstemp(other);
    assert_int_equal(write(fd, "no model", 8), 8);
    close(fd);
    assert_int_equal(rename(other, path), 0);
    attnrun_context *context = make_context(model); /* packs what is mapped */
    for (int turn = 0; turn < 2; turn++) {
        set_input(context, 0, ATTNRUN_F32, "4", x);
        OK(attnrun_run(context, NULL));
        const float *y = get_output(context, 0).data;
        assert_true(y[0] == WEIGHTS - 1 && y[1] == 0 && y[3] == 0);
        assert_int_equal(unlink(path), turn == 0 ? 0 : -1);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* ---- who waits for another thread that packs ---- */

/* The linker puts this in the place of clock_gettime(): --wrap. The clock on the wall is set back
 * by an hour after each look at it. */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = __real_clock_gettime(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += 3600;
    return result;
}

static _Atomic int packing, go_on;

static attnrun_status waiting_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    (void)pack, (void)packed;
    *bytes = 0;
    atomic_store(&packing, 1);
    while (atomic_load(&go_on) == 0)
        usleep(100);
    return ATTNRUN_OK;
}

static void *pack_model(void *model)
{
    return (void *)(intptr_t)attnrun_model_pack(model);
}

/* When another thread most likely waits. */
static void *cancel_later(void *flag)
{
    usleep(30000);
    __atomic_store_n((int32_t *)flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void test_a_cancel_reaches_who_waits_though_the_clock_is_set_back(void **state)
{
    (void)state;
    static float weights[ROWS * WIDE];
    int32_t cancel = 0;
    size_t bytes;
    pthread_t packer, canceller;
    void *packed;
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_constant(w, "w", ATTNRUN_F32, "64,1000", weights);
    onnx_node(w, "test::Copied", "x,w", "y");
    onnx_output(w, "y", ATTNRUN_F32, "4");
    uint8_t *data = onnx_end(w, &bytes);
    attnrun_op_def op = copied;
    op.pack = waiting_pack;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    OK(attnrun_register_op(runtime, &op));
    attnrun_source source = {
        .struct_size = sizeof source, .data = data, .bytes = bytes, .cancel = &cancel
    };
    attnrun_model *model = NULL;
    OK(attnrun_model_open(runtime, &source, &model));
    assert_int_equal(pthread_create(&packer, NULL, pack_model, model), 0);
    while (atomic_load(&packing) == 0)
        usleep(100);
    assert_int_equal(pthread_create(&canceller, NULL, cancel_later, &cancel), 0);
    FAILS(ATTNRUN_E_CANCELLED, "cancelled", attnrun_model_pack(model));
    atomic_store(&go_on, 1);
    pthread_join(canceller, NULL);
    pthread_join(packer, &packed);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_packed_is_not_shown),
        cmocka_unit_test(test_each_worker_gives_back_before_the_next),
        cmocka_unit_test(test_a_mapped_file_may_be_replaced_and_deleted),
        cmocka_unit_test(test_a_cancel_reaches_who_waits_though_the_clock_is_set_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
