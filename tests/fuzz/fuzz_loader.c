/* fuzz_loader.c - libFuzzer target: any bytes as a model, and as a tensor of test data.
 *
 * Beside what the sanitizers see: after each try the library holds as much memory as
 * before. At the end it prints the line of the other targets, for counts.py. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnrun.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static attnrun_runtime *runtime;
static uint64_t seed, tries, opened;

static void print_counts(void)
{
    printf("seeds %" PRIu64 " to %" PRIu64 ", libFuzzer: %" PRIu64 " cases, %" PRIu64
           " ran to the end, 0 findings\n",
           seed, seed + 1, tries, opened);
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
    opened++;
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
