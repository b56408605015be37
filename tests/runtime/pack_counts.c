/* pack_counts.c - what packing a model's weights holds and gives back, counted where the
 * library asks for memory and drops pages: nothing that a machine decides.
 *
 * usage: pack_counts MODEL THREADS
 *
 * Prints bytes: held with one context, held with two, the most held, dropped of mapped
 * files. A page that is dropped twice counts once. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "attnrun.h"
#include "io.h"

enum { MAX_RANGES = 4096 };
static struct range {
    uintptr_t begin, end;
} ranges[MAX_RANGES];
static int n_ranges;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int note_drop(void *address, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (n_ranges < MAX_RANGES)
        ranges[n_ranges++] =
            (struct range){ (uintptr_t)address, (uintptr_t)address + bytes };
    pthread_mutex_unlock(&lock);
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static uint64_t dropped_bytes(void)
{
    uint64_t bytes = 0;
    uintptr_t end = 0;
    qsort(ranges, (size_t)n_ranges, sizeof *ranges, by_begin);
    for (int i = 0; i < n_ranges; i++) {
        uintptr_t begin = ranges[i].begin > end ? ranges[i].begin : end;
        bytes += ranges[i].end > begin ? ranges[i].end - begin : 0;
        end = ranges[i].end > end ? ranges[i].end : end;
    }
    return bytes;
}

static void need(attnrun_status status)
{
    if (status == ATTNRUN_OK)
        return;
    fprintf(stderr, "%s\n", attnrun_last_error()->message);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = atoi(argv[2]) };
    attnrun_runtime_info info[2] = { { .struct_size = sizeof *info },
                                     { .struct_size = sizeof *info } };
    attnrun_source source = { .struct_size = sizeof source, .path = argv[1] };
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *contexts[2];
    attn_io.drop = note_drop;
    need(attnrun_runtime_create(&options, &runtime));
    need(attnrun_model_open(runtime, &source, &model));
    for (int i = 0; i < 2; i++) {
        need(attnrun_context_create(model, &contexts[i]));
        need(attnrun_runtime_query(runtime, &info[i]));
    }
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", info[0].used_memory,
           info[1].used_memory, info[1].peak_memory, dropped_bytes());
    for (int i = 0; i < 2; i++)
        attnrun_context_destroy(contexts[i]);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    return 0;
}
