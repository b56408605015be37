/* run_oom.c - whole models whose allocations fail: the status is E_MEMORY or the calls
 * succeed, and nothing is leaked.
 *
 *     run_oom TRIALS FOLDER...
 *
 * in:  FOLDER/model.onnx and FOLDER/test_data_set_0/input_<i>.pb. The k-th allocation from
 *      opening the model to the end of its second run fails, alone and with all behind it,
 *      for k = 0, 1, … ; TRIALS of them at most, evenly spread (0: all).
 * out: a line for each model, and one for each kind of failure that is told wrongly; exit
 *      code 1 where there is any. */
#include <attnrun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

enum { MAX_TENSORS = 64, MAX_LINES = 5 };

struct inputs {
    attnrun_runtime *runtime;
    attnrun_tensor *tensors[MAX_TENSORS];
    int32_t n;
};

/* ---- an allocator that fails ---- */

struct heap {
    long calls, fail_at; /* -1: never */
    int fail_on;         /* and all calls after it */
    long live_blocks, failed;
    long long live_bytes;
};

static void *heap_alloc(void *user, size_t bytes, size_t align)
{
    struct heap *heap = user;
    void *block = NULL;
    long call = heap->calls++;
    if (heap->fail_at >= 0 &&
        (call == heap->fail_at || (heap->fail_on && call > heap->fail_at))) {
        heap->failed++;
        return NULL;
    }
    if (posix_memalign(&block, align < sizeof(void *) ? sizeof(void *) : align, bytes))
        return NULL;
    heap->live_blocks++;
    heap->live_bytes += (long long)bytes;
    return block;
}

static void heap_free(void *user, void *block, size_t bytes)
{
    struct heap *heap = user;
    heap->live_blocks--;
    heap->live_bytes -= (long long)bytes;
    free(block);
}

/* ---- a trial ---- */

static attnrun_status run_twice(attnrun_context *context, const struct inputs *inputs)
{
    for (int32_t i = 0; i < inputs->n; i++) {
        attnrun_status status = attnrun_set_input(context, i, inputs->tensors[i]);
        if (status != ATTNRUN_OK)
            return status;
    }
    attnrun_status status = attnrun_run(context, NULL);
    return status == ATTNRUN_OK ? attnrun_run(context, NULL) : status;
}

/* From creating the runtime, whose allocations do not fail, to the end of two runs. */
static attnrun_status try_model(struct heap *heap, const char *path,
                                const struct inputs *inputs)
{
    attnrun_allocator allocator = { sizeof allocator, heap, heap_alloc, heap_free };
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = 1,
                                        .allocator = &allocator };
    attnrun_source source = { .struct_size = sizeof source, .path = path };
    attnrun_runtime *runtime = NULL;
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    const long fail_at = heap->fail_at;
    heap->fail_at = -1;
    attnrun_status status = attnrun_runtime_create(&options, &runtime);
    heap->calls = 0;
    heap->fail_at = fail_at;
    if (status == ATTNRUN_OK)
        status = attnrun_model_open(runtime, &source, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK)
        status = run_twice(context, inputs);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    return status;
}

/* Returns 1 where the trial went as it should. */
static int check_trial(const char *path, const struct inputs *inputs, long k, int on,
                       int *lines)
{
    struct heap heap = { .fail_at = k, .fail_on = on };
    attnrun_status status = try_model(&heap, path, inputs);
    int right = status == ATTNRUN_OK || status == ATTNRUN_E_MEMORY;
    if (!right && (*lines)++ < MAX_LINES)
        printf("  allocation %ld%s fails: %s\n", k, on ? " and all behind it" : "",
               attnrun_last_error()->message);
    if ((heap.live_blocks != 0 || heap.live_bytes != 0) && (*lines)++ < MAX_LINES) {
        printf("  allocation %ld%s fails: %ld blocks are leaked\n", k,
               on ? " and all behind it" : "", heap.live_blocks);
        right = 0;
    }
    return right;
}

/* ---- a model ---- */

static attnrun_tensor *read_tensor(struct inputs *inputs, const char *path)
{
    attnrun_tensor *tensor = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *data = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (data != NULL && fread(data, 1, (size_t)bytes, file) == (size_t)bytes)
        attnrun_tensor_from_pb(inputs->runtime, data, (uint64_t)bytes, ATTNRUN_TENSOR,
                               &tensor, NULL);
    free(data);
    fclose(file);
    return tensor;
}

static void read_inputs(struct inputs *inputs, const char *folder)
{
    char path[4096];
    for (; inputs->n < MAX_TENSORS; inputs->n++) {
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", folder, inputs->n);
        inputs->tensors[inputs->n] = read_tensor(inputs, path);
        if (inputs->tensors[inputs->n] == NULL)
            return;
    }
}

/* Returns how many trials went wrong. */
static long check_folder(const char *folder, long trials)
{
    char path[4096];
    struct inputs inputs = { .n = 0 };
    struct heap counting = { .fail_at = -1 };
    long wrong = 0, done = 0;
    int lines = 0;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (attnrun_runtime_create(NULL, &inputs.runtime) != ATTNRUN_OK)
        return 1;
    read_inputs(&inputs, folder);
    if (try_model(&counting, path, &inputs) != ATTNRUN_OK) {
        printf("%s: %s\n", folder, attnrun_last_error()->message);
        wrong = 1;
    }
    const long n = counting.calls;
    const long step = trials > 0 && n > trials ? n / trials : 1;
    for (long k = 0; k < n && wrong < MAX_LINES; k += step)
        for (int on = 0; on < 2; on++, done++)
            wrong += !check_trial(path, &inputs, k, on, &lines);
    printf("%s: %ld allocations, %ld trials, %ld told wrongly\n", folder, n, done, wrong);
    for (int32_t i = 0; i < inputs.n; i++)
        attnrun_tensor_free(inputs.runtime, inputs.tensors[i]);
    attnrun_runtime_destroy(inputs.runtime);
    return wrong + (n == 0);
}

int main(int argc, char **argv)
{
    long wrong = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: run_oom TRIALS FOLDER...\n");
        return 2;
    }
    attn_pool_apart = true;
    for (int i = 2; i < argc; i++)
        wrong += check_folder(argv[i], strtol(argv[1], NULL, 10));
    return wrong > 0;
}
