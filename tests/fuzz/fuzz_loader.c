/* fuzz_loader.c - libFuzzer target: any bytes as a model, which is run once where its inputs are
 * small, and as a tensor of test data.
 *
 * Beside what the sanitizers see: after each try the library holds as much memory as
 * before. At the end it prints the line of the other targets, for counts.py. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnrun.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static attnrun_runtime *runtime;
static uint64_t seed, tries, ran;

static void print_counts(void)
{
    printf("seeds %" PRIu64 " to %" PRIu64 ", libFuzzer: %" PRIu64 " cases, %" PRIu64
           " ran to the end, 0 findings\n",
           seed, seed + 1, tries, ran);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    for (int i = 1; i < *argc; i++)
        if (strncmp((*argv)[i], "-seed=", 6) == 0)
            seed = strtoull((*argv)[i] + 6, NULL, 10);
    return atexit(print_counts);
}

static uint64_t used_memory(void)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    if (attnrun_runtime_query(runtime, &info) != ATTNRUN_OK)
        abort();
    return info.used_memory;
}

static void start(void)
{
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = 1,
                                        .max_memory = UINT64_C(256) << 20 };
    if (runtime == NULL && attnrun_runtime_create(&options, &runtime) != ATTNRUN_OK)
        abort();
}

enum { INPUTS = 8, INPUT_BYTES = 4096, TIMEOUT_US = 100000 };

/* A tensor of zeros and ones, with 2 for each size that is not known; false where it is none of
 * numbers or not small. */
static bool make_input(const attnrun_value_info *value, uint8_t *data, attnrun_tensor *t)
{
    int64_t dims[ATTNRUN_MAX_RANK] = { 2 };
    if (value->kind != ATTNRUN_TENSOR || value->dtype == ATTNRUN_STRING)
        return false;
    for (int d = 0; d < value->rank; d++)
        dims[d] = value->dims[d] < 0 ? 2 : value->dims[d];
    if (attnrun_tensor_make(value->dtype, value->rank < 0 ? 1 : value->rank, dims, data,
                            t) != ATTNRUN_OK)
        return false;
    const int64_t bytes = attnrun_tensor_bytes(t);
    if (bytes < 0 || bytes > INPUT_BYTES)
        return false;
    memset(data, attnrun_dtype_bits(t->dtype) == 8, (size_t)bytes);
    return true;
}

static void try_run(attnrun_model *model, int32_t n_inputs)
{
    static uint8_t data[INPUTS][INPUT_BYTES];
    const attnrun_run_options options = { .struct_size = sizeof options,
                                          .timeout_us = TIMEOUT_US };
    attnrun_context *context = NULL;
    if (n_inputs > INPUTS || attnrun_context_create(model, &context) != ATTNRUN_OK)
        return;
    bool made = true;
    for (int32_t i = 0; made && i < n_inputs; i++) {
        attnrun_value_info value = { .struct_size = sizeof value };
        attnrun_tensor tensor;
        made = attnrun_model_input(model, i, &value) == ATTNRUN_OK &&
               make_input(&value, data[i], &tensor) &&
               attnrun_set_input(context, i, &tensor) == ATTNRUN_OK;
    }
    if (made && attnrun_run(context, &options) == ATTNRUN_OK)
        ran++;
    attnrun_context_destroy(context);
}

static void try_model(const uint8_t *data, size_t bytes, uint32_t flags)
{
    attnrun_source source = {
        .struct_size = sizeof source, .flags = flags, .data = data, .bytes = bytes
    };
    attnrun_model *model = NULL;
    if (attnrun_model_open(runtime, &source, &model) != ATTNRUN_OK)
        return;
    attnrun_model_info info = { .struct_size = sizeof info };
    if (attnrun_model_query(model, &info) != ATTNRUN_OK)
        abort();
    try_run(model, info.n_inputs);
    attnrun_model_release(model);
}

static void try_tensor(const uint8_t *data, size_t bytes, int32_t kind)
{
    attnrun_tensor *tensor = NULL;
    const char *name = NULL;
    if (attnrun_tensor_from_pb(runtime, data, bytes, kind, &tensor, &name) == ATTNRUN_OK)
        attnrun_tensor_free(runtime, tensor);
}

/* The sum of the bytes chooses the options, so that any model file is a seed as it is. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    start();
    tries++;
    uint64_t before = used_memory();
    uint32_t sum = 0;
    for (size_t k = 0; k < bytes; k++)
        sum += data[k];
    try_model(data, bytes, sum & 0x1f);
    try_tensor(data, bytes, 1 + (int32_t)(sum >> 5 & 3));
    if (used_memory() != before) {
        fprintf(stderr, "memory held: %llu bytes before, %llu after\n",
                (unsigned long long)before, (unsigned long long)used_memory());
        abort();
    }
    return 0;
}
