/* run_model.h - for tests: loads a model from memory, runs it on one f32 vector. */
#ifndef ATTN_TESTS_RUN_MODEL_H
#define ATTN_TESTS_RUN_MODEL_H

#include "../runtime/check.h"

#include <string.h>

#include "attnrun.h"
#include "pb_write.h"

static attnrun_runtime *test_runtime;

static inline uint64_t memory_in_use(void)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    assert_int_equal(attnrun_runtime_query(test_runtime, &info), ATTNRUN_OK);
    return info.used_memory;
}

static inline attnrun_status open_bytes(const void *data, size_t bytes, uint32_t flags,
                                        attnrun_model **model)
{
    attnrun_source source = {
        .struct_size = sizeof source, .flags = flags, .data = data, .bytes = bytes
    };
    return attnrun_model_open(test_runtime, &source, model);
}

/* Opens and closes; whatever happens, nothing may be left. */
static inline attnrun_status try_bytes(const void *data, size_t bytes, uint32_t flags)
{
    uint64_t before = memory_in_use();
    attnrun_model *model = NULL;
    attnrun_status status = open_bytes(data, bytes, flags, &model);
    if (status == ATTNRUN_OK)
        attnrun_model_release(model);
    assert_int_equal(memory_in_use(), before);
    return status;
}

static inline attnrun_status run_context(attnrun_context *context, const float *x,
                                         int64_t n, float *y)
{
    attnrun_tensor in, out;
    attnrun_status status =
        attnrun_tensor_make(ATTNRUN_F32, 1, &n, (void *)(uintptr_t)x, &in);
    if (status == ATTNRUN_OK)
        status = attnrun_set_input(context, 0, &in);
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    if (status == ATTNRUN_OK)
        status = attnrun_output(context, 0, &out);
    if (status == ATTNRUN_OK) {
        assert_int_equal(out.dtype, ATTNRUN_F32);
        assert_int_equal(attnrun_tensor_count(&out), n);
        memcpy(y, out.data, (size_t)n * sizeof *y);
    }
    return status;
}

/* y = model(x) for vectors of n elements; frees the message. */
static inline attnrun_status run_model(struct pb *pb, uint32_t flags, const float *x,
                                       int64_t n, float *y)
{
    uint64_t before = memory_in_use();
    attnrun_model *model = NULL;
    attnrun_status status = open_bytes(pb->data, pb->bytes, flags, &model);
    if (status == ATTNRUN_OK) {
        attnrun_context *context = NULL;
        status = attnrun_context_create(model, &context);
        if (status == ATTNRUN_OK)
            status = run_context(context, x, n, y);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    assert_int_equal(memory_in_use(), before);
    pb_free(pb);
    return status;
}

static inline int start_runtime(void **state)
{
    (void)state;
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = 1,
                                        .max_memory = UINT64_C(1) << 30 };
    return attnrun_runtime_create(&options, &test_runtime) != ATTNRUN_OK;
}

static inline int stop_runtime(void **state)
{
    (void)state;
    attnrun_runtime_destroy(test_runtime);
    return 0;
}

#endif
