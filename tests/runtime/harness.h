/* harness.h - what tests of whole models share: an allocator that counts, guards, fills
 * and fails on demand; models out of writers; runs. */
#ifndef ATTN_TESTS_HARNESS_H
#define ATTN_TESTS_HARNESS_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#include "attnrun.h"
#include "onnx_write.h"

/* Every block is filled with 0xA5 and has a guard behind it, checked when it is freed, as
 * is the size that free() is told. */
struct test_memory {
    attnrun_allocator allocator; /* give this to the runtime */
    _Atomic int64_t calls, live_blocks, live_bytes, failed;
    _Atomic int64_t faults;  /* guards written over, wrong sizes, wrong alignment */
    _Atomic int64_t fail_at; /* number of the call that fails; -1: none */
    atomic_bool fail_on;     /* and all after it */
};
void test_memory_init(struct test_memory *memory);
/* Nothing is held any more, and no block was written beyond its end. */
void test_memory_check(struct test_memory *memory);

/* ATTNRUN_OK, or the test fails with the sentence. */
#define OK(call) check_ok((call), #call, __FILE__, __LINE__)
void check_ok(attnrun_status status, const char *call, const char *file, int line);
/* The status expected, and a sentence that has `text` in it. */
#define FAILS(status, text, call)                                                        \
    check_fails((call), (status), (text), #call, __FILE__, __LINE__)
void check_fails(attnrun_status status, attnrun_status expected, const char *text,
                 const char *call, const char *file, int line);

attnrun_runtime *make_runtime(struct test_memory *memory, int32_t threads);
attnrun_runtime *make_runtime_limited(struct test_memory *memory, int32_t threads,
                                      uint64_t max_memory);
/* Ends the writer. The bytes are copied. */
attnrun_model *open_model(attnrun_runtime *runtime, struct onnx_writer *w,
                          uint32_t flags);
attnrun_status open_bytes(attnrun_runtime *runtime, const uint8_t *data, size_t bytes,
                          uint32_t flags, attnrun_model **model);
attnrun_context *make_context(attnrun_model *model);

/* A dense tensor over `data`; "2,3" or "" like in onnx_write.h. */
attnrun_tensor tensor_of(int32_t dtype, const char *dims, void *data);
void set_input(attnrun_context *context, int32_t index, int32_t dtype, const char *dims,
               void *data);
attnrun_tensor get_output(attnrun_context *context, int32_t index);
/* Numbers in -1 … 1 in steps of 1/512: sums of a few are exact. */
void fill_floats(uint64_t *seed, float *x, int64_t n);
/* From the environment ATTNRUN_TEST_SEED, else fixed; printed, so that a failure can be
 * repeated. */
uint64_t test_seed(void);
/* Slow tests do all their rounds only where ATTNRUN_TEST_LONG is set. */
int64_t rounds(int64_t few, int64_t all);

#endif
