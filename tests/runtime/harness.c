/* harness.c - see harness.h. */
#include "harness.h"

#include <stdarg.h>

enum { HEADER = 64, GUARD = 8192, FILL = 0xA5 };

/* ---- memory ---- */

static void *give_block(void *user, size_t bytes, size_t align)
{
    struct test_memory *memory = user;
    int64_t call = atomic_fetch_add(&memory->calls, 1);
    int64_t fail_at = atomic_load(&memory->fail_at);
    if (fail_at >= 0 &&
        (call == fail_at || (atomic_load(&memory->fail_on) && call > fail_at))) {
        atomic_fetch_add(&memory->failed, 1);
        return NULL;
    }
    if (align > HEADER)
        atomic_fetch_add(&memory->faults, 1);
    void *made;
    if (posix_memalign(&made, 64, HEADER + bytes + GUARD) != 0)
        return NULL;
    memset(made, FILL, HEADER + bytes + GUARD);
    memcpy(made, &bytes, sizeof bytes);
    atomic_fetch_add(&memory->live_blocks, 1);
    atomic_fetch_add(&memory->live_bytes, (int64_t)bytes);
    return (char *)made + HEADER;
}

static void take_block(void *user, void *block, size_t bytes)
{
    struct test_memory *memory = user;
    unsigned char *made = (unsigned char *)block - HEADER;
    size_t own;
    memcpy(&own, made, sizeof own);
    bool good = own == bytes;
    for (size_t i = 0; i < GUARD; i++)
        good = good && made[HEADER + own + i] == FILL;
    for (size_t i = sizeof own; i < HEADER; i++)
        good = good && made[i] == FILL;
    if (!good)
        atomic_fetch_add(&memory->faults, 1);
    atomic_fetch_sub(&memory->live_blocks, 1);
    atomic_fetch_sub(&memory->live_bytes, (int64_t)own);
    memset(made, 0x5A, HEADER + own); /* whoever reads it later shall notice */
    free(made);
}

void test_memory_init(struct test_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    memory->allocator = (attnrun_allocator){ .struct_size = sizeof memory->allocator,
                                             .user = memory,
                                             .alloc = give_block,
                                             .free = take_block };
    atomic_store(&memory->fail_at, -1);
}

void test_memory_check(struct test_memory *memory)
{
    assert_int_equal(atomic_load(&memory->live_blocks), 0);
    assert_int_equal(atomic_load(&memory->live_bytes), 0);
    assert_int_equal(atomic_load(&memory->faults), 0);
}

/* ---- statuses ---- */

void check_ok(attnrun_status status, const char *call, const char *file, int line)
{
    if (status == ATTNRUN_OK)
        return;
    print_error("%s gave %s: %s\n", call, attnrun_status_name(status),
                attnrun_last_error()->message);
    _fail(file, line);
}

void check_fails(attnrun_status status, attnrun_status expected, const char *text,
                 const char *call, const char *file, int line)
{
    const attnrun_error *error = attnrun_last_error();
    bool good = status == expected &&
                (expected == ATTNRUN_OK ||
                 (error->status == expected && strstr(error->message, text) != NULL));
    if (good)
        return;
    print_error("%s gave %s, expected %s with '%s'; the sentence is: %s\n", call,
                attnrun_status_name(status), attnrun_status_name(expected), text,
                error->message);
    _fail(file, line);
}

/* ---- objects ---- */

attnrun_runtime *make_runtime_limited(struct test_memory *memory, int32_t threads,
                                      uint64_t max_memory)
{
    attnrun_runtime *runtime;
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = threads,
                                        .max_memory = max_memory,
                                        .allocator = memory ? &memory->allocator : NULL };
    OK(attnrun_runtime_create(&options, &runtime));
    return runtime;
}

attnrun_runtime *make_runtime(struct test_memory *memory, int32_t threads)
{
    return make_runtime_limited(memory, threads, 0);
}

attnrun_status open_bytes(attnrun_runtime *runtime, const uint8_t *data, size_t bytes,
                          uint32_t flags, attnrun_model **model)
{
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = flags | ATTNRUN_COPY,
                              .data = data,
                              .bytes = bytes };
    return attnrun_model_open(runtime, &source, model);
}

attnrun_model *open_model(attnrun_runtime *runtime, struct onnx_writer *w, uint32_t flags)
{
    size_t bytes;
    attnrun_model *model;
    uint8_t *data = onnx_end(w, &bytes);
    OK(open_bytes(runtime, data, bytes, flags, &model));
    free(data);
    return model;
}

attnrun_context *make_context(attnrun_model *model)
{
    attnrun_context *context;
    OK(attnrun_context_create(model, &context));
    return context;
}

/* ---- tensors ---- */

attnrun_tensor tensor_of(int32_t dtype, const char *dims, void *data)
{
    int64_t numbers[ATTNRUN_MAX_RANK];
    int32_t rank = 0;
    attnrun_tensor tensor;
    for (const char *p = dims; *p != 0; p += strcspn(p, ","), p += *p == ',')
        numbers[rank++] = atoll(p);
    OK(attnrun_tensor_make(dtype, rank, numbers, data, &tensor));
    return tensor;
}

void set_input(attnrun_context *context, int32_t index, int32_t dtype, const char *dims,
               void *data)
{
    attnrun_tensor tensor = tensor_of(dtype, dims, data);
    OK(attnrun_set_input(context, index, &tensor));
}

attnrun_tensor get_output(attnrun_context *context, int32_t index)
{
    attnrun_tensor tensor;
    OK(attnrun_output(context, index, &tensor));
    return tensor;
}

void fill_floats(uint64_t *seed, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(random_below(seed, 1025) - 512) / 512.0f;
}

uint64_t test_seed(void)
{
    const char *text = getenv("ATTNRUN_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : UINT64_C(20240229);
    print_message("ATTNRUN_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed != 0 ? seed : 1;
}

int64_t rounds(int64_t few, int64_t all)
{
    return getenv("ATTNRUN_TEST_LONG") != NULL ? all : few;
}
