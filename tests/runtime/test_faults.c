/* test_faults.c - every allocation and every file call fails once, and from there on: the
 * status says so, nothing is lost or leaked, and the next try gives the right bits. */
#include "harness.h"
#include "deadlines.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc.h"
#include "fill.h"
#include "io.h"
#include "poll.h"
#include "sample_models.h"

enum { MAX_BYTES = 1 << 16, MAX_OUTPUTS = 6 };

/* ---- the models, and their inputs ---- */

struct subject {
    const char *name;
    struct onnx_writer *(*write)(void);
    void (*bind)(attnrun_context *context, int shape);
    int n_outputs;
};

static struct onnx_writer *write_encoder_1(void) { return write_encoder(1); }

static void bind_encoder(attnrun_context *context, int shape)
{
    static struct encoder_inputs inputs;
    uint64_t seed = 4;
    set_encoder_inputs(context, &inputs, &seed, 2, shape ? 9 : 30);
}

static void bind_convnet(attnrun_context *context, int shape)
{
    static float x[3 * 16 * 16];
    uint64_t seed = 6;
    fill_floats(&seed, x, 3 * 16 * 16);
    set_input(context, 0, ATTNRUN_F32, shape ? "1,3,8,8" : "1,3,16,16", x);
}

static void bind_dynamic(attnrun_context *context, int shape)
{
    static float x[6] = { 0, 1, 0, 2, 3, 0 };
    set_input(context, 0, ATTNRUN_F32, shape ? "4" : "6", x);
}

static void bind_loop(attnrun_context *context, int shape)
{
    static int64_t trips;
    static float x[3] = { 1, 2, 3 };
    trips = 4 + shape;
    set_input(context, 0, ATTNRUN_I64, "", &trips);
    set_input(context, 1, ATTNRUN_F32, "3", x);
}

/* Constants that are computed at load, with no types in the file: a mask by positions, as
 * shifted windows have it, and a product with a weight that is scaled and transposed. */
static struct onnx_writer *write_folded(void)
{
    static const float weight[64] = { 1, 0.5f, 0.25f };
    static const int64_t max[3] = { 3, 8, 5 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,8");
    onnx_constant(w, "weight", ATTNRUN_F32, "8,8", weight);
    onnx_ints(w, "most", 3, max);
    onnx_float(w, "half", 0.5f);
    onnx_int(w, "zero", 0);
    onnx_int(w, "one", 1);
    onnx_int(w, "four", 4);
    onnx_node(w, "Mul", "weight,half", "scaled");
    onnx_node(w, "Exp", "scaled", "grown");
    onnx_node(w, "Transpose", "grown", "transposed");
    onnx_node(w, "MatMul", "x,transposed", "product");
    onnx_node(w, "ReduceMax", "most", "count");
    onnx_attr_int(w, "keepdims", 0);
    onnx_node(w, "Range", "zero,count,one", "positions");
    onnx_node(w, "Less", "positions,four", "low");
    onnx_node(w, "Where", "low,half,grown", "mask");
    onnx_node(w, "Slice", "mask,l0,l1", "first");
    const int64_t from[1] = { 0 }, to[1] = { 1 };
    onnx_ints(w, "l0", 1, from);
    onnx_ints(w, "l1", 1, to);
    onnx_node(w, "Add", "product,first", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N,8");
    return w;
}

static void bind_folded(attnrun_context *context, int shape)
{
    static float x[3 * 8];
    uint64_t seed = 8;
    fill_floats(&seed, x, 3 * 8);
    set_input(context, 0, ATTNRUN_F32, shape ? "2,8" : "3,8", x);
}

/* Numbers of 16 bits, computed in floats. */
static struct onnx_writer *write_halves(void)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,8");
    onnx_node(w, "Cast", "x", "half");
    onnx_attr_int(w, "to", ATTNRUN_F16);
    onnx_node(w, "Sin", "half", "sine");
    onnx_node(w, "MatMul", "sine,weight", "product");
    static const uint16_t weight[64] = { 0x3c00, 0x3800, 0x3400 };
    onnx_constant(w, "weight", ATTNRUN_F16, "8,8", weight);
    onnx_node(w, "Cast", "product", "y");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_output(w, "y", ATTNRUN_F32, "N,8");
    return w;
}

static void bind_kinds(attnrun_context *context, int shape)
{
    static float x[4 * 4], item[2 * 4], other[3] = { 3, -1, 2 };
    static attnrun_string words[3] = { { "a", 1 }, { "b", 1 }, { "", 0 } };
    static attnrun_tensor items[2], inner;
    uint64_t seed = 12;
    fill_floats(&seed, x, 4 * 4);
    fill_floats(&seed, item, 2 * 4);
    items[0] = tensor_of(ATTNRUN_F32, "2,4", item);
    items[1] = tensor_of(ATTNRUN_F32, "1,4", item + 4);
    inner = tensor_of(ATTNRUN_F32, "3", other);
    const attnrun_tensor list = { .kind = ATTNRUN_SEQUENCE,
                                  .dtype = ATTNRUN_F32,
                                  .rank = 1,
                                  .dims = { shape ? 1 : 2 },
                                  .data = items };
    const attnrun_tensor maybe = { .kind = ATTNRUN_OPTIONAL,
                                   .dtype = ATTNRUN_F32,
                                   .data = shape ? NULL : &inner };
    set_input(context, 0, ATTNRUN_F32, shape ? "2,4" : "4,4", x);
    OK(attnrun_set_input(context, 1, &list));
    OK(attnrun_set_input(context, 2, &maybe));
    set_input(context, 3, ATTNRUN_STRING, "3", words);
}

static void bind_formulas(attnrun_context *context, int shape)
{
    static float x[48];
    static double d[16];
    uint64_t seed = 13 + (uint64_t)shape;
    fill_floats(&seed, x, 48);
    for (int i = 0; i < 16; i++)
        d[i] = (double)x[i] + 2;
    set_input(context, 0, ATTNRUN_F32, "2,8,3", x);
    set_input(context, 1, ATTNRUN_F64, "2,8", d);
}

static void bind_regions(attnrun_context *context, int shape)
{
    static uint16_t x[3 * 8];
    static uint8_t chosen;
    for (int i = 0; i < 3 * 8; i++)
        x[i] = (uint16_t)(0x3400 + 97 * i);
    chosen = shape == 0;
    set_input(context, 0, ATTNRUN_F16, shape ? "2,8" : "3,8", x);
    set_input(context, 1, ATTNRUN_BOOL, "", &chosen);
}

static const struct subject subjects[] = {
    { "encoder", write_encoder_1, bind_encoder, 2 },
    { "convnet", write_convnet, bind_convnet, 1 },
    { "late", write_dynamic, bind_dynamic, 3 },
    { "loop", write_loop, bind_loop, 2 },
    { "folded", write_folded, bind_folded, 1 },
    { "halves", write_halves, bind_folded, 1 },
    { "kinds", write_kinds, bind_kinds, 6 },
    { "formulas", write_formulas, bind_formulas, 3 },
    { "regions", write_regions, bind_regions, 1 },
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* ---- what comes out ---- */

struct outputs {
    int64_t bytes[MAX_OUTPUTS];
    unsigned char data[MAX_OUTPUTS][MAX_BYTES];
};

static void take(attnrun_context *context, int n, struct outputs *outputs)
{
    for (int i = 0; i < n; i++) {
        attnrun_tensor y = get_output(context, i);
        outputs->bytes[i] = attnrun_tensor_bytes(&y);
        assert_in_range(outputs->bytes[i], 1, MAX_BYTES);
        memcpy(outputs->data[i], y.data, (size_t)outputs->bytes[i]);
    }
}

static void check(attnrun_context *context, int n, const struct outputs *expected)
{
    for (int i = 0; i < n; i++) {
        attnrun_tensor y = get_output(context, i);
        assert_int_equal(attnrun_tensor_bytes(&y), expected->bytes[i]);
        assert_memory_equal(y.data, expected->data[i], (size_t)expected->bytes[i]);
    }
}

static struct outputs expected[2];

static void find_expected(const struct subject *subject)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, subject->write(), 0);
    attnrun_context *context = make_context(model);
    for (int shape = 0; shape < 2; shape++) {
        subject->bind(context, shape);
        OK(attnrun_run(context, NULL));
        take(context, subject->n_outputs, &expected[shape]);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* ---- allocations that fail ---- */

enum stage { OPEN, CREATE, FIRST_RUN, SECOND_RUN, OTHER_SHAPE, STAGES };
static const char *const stage_names[] = { "open", "create", "first run", "second run",
                                           "other shape" };

struct trial {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    uint8_t *data;
    size_t bytes;
};

static attnrun_status do_stage(struct trial *trial, const struct subject *subject,
                               enum stage stage)
{
    if (stage == OPEN)
        return open_bytes(trial->runtime, trial->data, trial->bytes, 0, &trial->model);
    if (stage == CREATE)
        return attnrun_context_create(trial->model, &trial->context);
    subject->bind(trial->context, stage == OTHER_SHAPE);
    return attnrun_run(trial->context, NULL);
}

/* True where the call that was to fail came at all. */
static bool fail_in_stage(const struct subject *subject, enum stage stage, int64_t call,
                          bool on)
{
    struct trial trial = { .model = NULL };
    test_memory_init(&trial.memory);
    trial.runtime = make_runtime(&trial.memory, 2);
    trial.data = onnx_end(subject->write(), &trial.bytes);
    for (enum stage s = OPEN; s < STAGES; s++) {
        if (s == stage) {
            atomic_store(&trial.memory.fail_on, on);
            atomic_store(&trial.memory.fail_at, atomic_load(&trial.memory.calls) + call);
        }
        attnrun_status status = do_stage(&trial, subject, s);
        atomic_store(&trial.memory.fail_at, -1);
        if (status != ATTNRUN_OK) {
            const char *message = attnrun_last_error()->message;
            if (s != stage || status != ATTNRUN_E_MEMORY ||
                (strstr(message, " needs ") == NULL &&
                 strstr(message, "there is no memory for") == NULL))
                fail_msg("%s, call %d of %s: %s", subject->name, (int)call,
                         stage_names[stage], message);
            OK(do_stage(&trial, subject, s));
        }
        if (s >= FIRST_RUN)
            check(trial.context, subject->n_outputs, &expected[s == OTHER_SHAPE]);
    }
    attnrun_context_destroy(trial.context);
    attnrun_model_release(trial.model);
    attnrun_runtime_destroy(trial.runtime);
    free(trial.data);
    test_memory_check(&trial.memory);
    return atomic_load(&trial.memory.failed) > 0;
}

/* Of the allocations one of so many fails: all do, or fewer where a sanitizer makes each slow. */
static int64_t every = 1;

/* By steps of `step`, from one of the first on, which the seed chooses; of opening a small model,
 * by `open_step`. */
static void fail_all_stages(int64_t step, int64_t open_step)
{
    enum { SMALL = 2 }; /* the first that is */
    const int64_t first = (int64_t)(test_seed() % (uint64_t)step);
    for (int i = 0; i < SUBJECTS; i++) {
        int64_t n = 0;
        find_expected(&subjects[i]);
        for (enum stage stage = OPEN; stage < STAGES; stage++)
            for (int on = 0; on < 2; on++)
                for (int64_t call = first; fail_in_stage(&subjects[i], stage, call, on);
                     call += i >= SMALL && stage == OPEN && on == 0 ? open_step : step)
                    n++;
        print_message("%s: %d failures\n", subjects[i].name, (int)n);
        assert_true(n > 20 || step > 1);
    }
}

static void test_faults_of_every_allocation(void **state)
{
    (void)state;
    fail_all_stages(every, every);
}

/* The same where each piece of a pool is an allocation: some of these failures are in
 * calls that return no status (a dim, known values), some in what is only tried. */
static void test_faults_of_every_part(void **state)
{
    (void)state;
    attn_pool_apart = true;
    fail_all_stages(rounds(47, 1), rounds(7, 1));
    attn_pool_apart = false;
}

/* ---- the deadline at each poll ---- */

/* Opens and runs two shapes, each under a timeout of its own. */
static attnrun_status run_timed(void *user)
{
    const struct subject *subject = user;
    const attnrun_run_options options = { .struct_size = sizeof options,
                                          .timeout_us = 1000000 };
    struct trial trial = { .model = NULL };
    test_memory_init(&trial.memory);
    trial.runtime = make_runtime(&trial.memory, 1);
    trial.data = onnx_end(subject->write(), &trial.bytes);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = trial.data,
                                    .bytes = trial.bytes,
                                    .timeout_us = 1000000 };
    attnrun_status status = attnrun_model_open(trial.runtime, &source, &trial.model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(trial.model, &trial.context);
    for (int shape = 0; shape < 2 && status == ATTNRUN_OK; shape++) {
        struct attn_meter before = attn_poll_enter(NULL); /* inputs have no deadline */
        subject->bind(trial.context, shape);
        attn_poll_leave(before);
        attn_fill_byte = ATTN_FILL_STOPPED;
        status = attnrun_run(trial.context, &options);
        attn_fill_byte = -1;
        if (status == ATTNRUN_OK)
            check(trial.context, subject->n_outputs, &expected[shape]);
    }
    attnrun_context_destroy(trial.context);
    attnrun_model_release(trial.model);
    attnrun_runtime_destroy(trial.runtime);
    free(trial.data);
    test_memory_check(&trial.memory);
    return status;
}

static void test_deadline_at_every_poll(void **state)
{
    (void)state;
    for (int i = 0; i < SUBJECTS; i++) {
        struct subject subject = subjects[i];
        find_expected(&subject);
        const int64_t n = stop_at_polls(run_timed, &subject, 5, 500);
        print_message("%s: stopped %d times\n", subject.name, (int)n);
        assert_true(n > 50);
    }
}

static void test_faults_of_the_runtime(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++)
        for (int64_t call = 0;; call++) {
            struct test_memory memory;
            test_memory_init(&memory);
            attnrun_runtime_options options = { .struct_size = sizeof options,
                                                .threads = 3,
                                                .allocator = &memory.allocator };
            attnrun_runtime *runtime = NULL;
            atomic_store(&memory.fail_on, on != 0);
            atomic_store(&memory.fail_at, call);
            attnrun_status status = attnrun_runtime_create(&options, &runtime);
            bool failed = atomic_load(&memory.failed) > 0;
            assert_int_equal(status, failed ? ATTNRUN_E_MEMORY : ATTNRUN_OK);
            assert_int_equal(runtime == NULL, failed);
            attnrun_runtime_destroy(runtime);
            test_memory_check(&memory);
            if (!failed)
                break;
        }
}

/* The budget at every size: never crossed, and each failure leaves things as they were.
 */
static void test_faults_of_the_budget(void **state)
{
    (void)state;
    const struct subject *subject = &subjects[0];
    size_t bytes;
    int done = 0;
    uint8_t *data = onnx_end(subject->write(), &bytes);
    find_expected(subject);
    for (uint64_t budget = 8192; done < 3; budget += budget / 8) {
        struct test_memory memory;
        test_memory_init(&memory);
        attnrun_runtime_options options = { .struct_size = sizeof options,
                                            .threads = 1,
                                            .max_memory = budget,
                                            .allocator = &memory.allocator };
        attnrun_runtime *runtime = NULL;
        attnrun_model *model = NULL;
        attnrun_context *context = NULL;
        attnrun_status status = attnrun_runtime_create(&options, &runtime);
        if (status == ATTNRUN_OK)
            status = open_bytes(runtime, data, bytes, 0, &model);
        if (status == ATTNRUN_OK)
            status = attnrun_context_create(model, &context);
        if (status == ATTNRUN_OK) {
            subject->bind(context, 0);
            status = attnrun_run(context, NULL);
        }
        if (status == ATTNRUN_OK) {
            check(context, subject->n_outputs, &expected[0]);
            done++;
        } else {
            FAILS(ATTNRUN_E_MEMORY, "over the memory budget", status);
        }
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
        test_memory_check(&memory);
        assert_true(budget < 1 << 30);
    }
    free(data);
}

/* ---- file calls that fail ---- */

static struct attn_io real;
static struct {
    int64_t calls, fail_at;
    int error;
    int64_t open_files, mapped;
    bool shorten, failed;
} io;

static bool fails(void)
{
    if (io.calls++ != io.fail_at)
        return false;
    io.failed = true;
    errno = io.error;
    return true;
}

static int bad_open(const char *path, int flags, int mode)
{
    if (fails())
        return -1;
    int fd = real.open(path, flags, mode);
    io.open_files += fd >= 0;
    return fd;
}

static int bad_fstat(int fd, struct stat *st)
{
    return fails() ? -1 : real.fstat(fd, st);
}

static ssize_t bad_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    if (fails())
        return io.error == 0 ? 0 : -1; /* error 0: the file has become shorter */
    return real.pread(fd, buffer, io.shorten && bytes > 100 ? 100 : bytes, offset);
}

static void *bad_mmap(size_t bytes, int fd)
{
    if (fails())
        return MAP_FAILED;
    io.mapped++;
    return real.mmap(bytes, fd);
}

static int bad_munmap(void *address, size_t bytes)
{
    io.mapped--;
    return real.munmap(address, bytes);
}

static int bad_close(int fd)
{
    io.open_files--;
    return real.close(fd);
}

static const char *write_file(void)
{
    static char path[] = "/tmp/attnrun-faults-XXXXXX";
    size_t bytes;
    uint8_t *data = onnx_end(write_convnet(), &bytes);
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
    free(data);
    return path;
}

static attnrun_status open_path(attnrun_runtime *runtime, const char *path,
                                uint32_t flags, attnrun_model **model)
{
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = flags,
                              .path = path };
    return attnrun_model_open(runtime, &source, model);
}

static bool fail_file_call(const char *path, uint32_t flags, int64_t call, int error)
{
    struct test_memory memory;
    attnrun_model *model = NULL;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    memset(&io, 0, sizeof io);
    io.fail_at = call;
    io.error = error;
    io.shorten = call % 2 == 1;
    attnrun_status status = open_path(runtime, path, flags, &model);
    bool failed = io.failed;
    io.fail_at = -1;
    if (failed && error == EINTR) {
        OK(status); /* tried again */
    } else if (failed) {
        assert_int_equal(status, error == ENOMEM ? ATTNRUN_E_MEMORY : ATTNRUN_E_IO);
        assert_null(model);
        OK(open_path(runtime, path, flags, &model));
    } else {
        OK(status);
    }
    attnrun_context *context = make_context(model);
    bind_convnet(context, 0);
    OK(attnrun_run(context, NULL));
    check(context, 1, &expected[0]);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    assert_int_equal(io.open_files, 0);
    assert_int_equal(io.mapped, 0);
    test_memory_check(&memory);
    return failed;
}

static void test_faults_of_every_file_call(void **state)
{
    (void)state;
    static const int errors[] = { EIO, EACCES, ENOMEM, EMFILE };
    const char *path = write_file();
    find_expected(&subjects[1]);
    real = attn_io;
    attn_io = (struct attn_io){ .open = bad_open,
                                .openat = real.openat,
                                .fstat = bad_fstat,
                                .pread = bad_pread,
                                .mmap = bad_mmap,
                                .munmap = bad_munmap,
                                .close = bad_close,
                                .drop = real.drop };
    for (uint32_t flags = 0; flags <= ATTNRUN_COPY; flags++) {
        for (size_t k = 0; k < 4; k++) {
            int64_t call = 0;
            while (fail_file_call(path, flags, call, errors[k]))
                call++;
            assert_true(call >= 3); /* open, fstat, mmap or pread */
        }
        assert_true(fail_file_call(path, flags, 0, EINTR)); /* open */
    }
    assert_true(fail_file_call(path, ATTNRUN_COPY, 2, EINTR)); /* pread */
    assert_true(fail_file_call(path, ATTNRUN_COPY, 2, 0));
    attn_io = real;
    unlink(path);
}

/* test_runtime_faults [EVERY] */
int main(int argc, char **argv)
{
    every = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_of_every_allocation),
        cmocka_unit_test(test_faults_of_every_part),
        cmocka_unit_test(test_deadline_at_every_poll),
        cmocka_unit_test(test_faults_of_the_runtime),
        cmocka_unit_test(test_faults_of_the_budget),
        cmocka_unit_test(test_faults_of_every_file_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
