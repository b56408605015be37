/* fuzz_api.c - random sequences of calls of the C interface, on small models.
 *
 * usage: fuzz_api [--seconds N] [--seed N] [--only N] CORPUS...
 *
 * A case is a seed: some models of CORPUS (folders of the ONNX backend form, or of such folders),
 * some with a change, and up to CALLS calls on runtimes, models and contexts made of them, in any
 * order; with structs of this ABI and of others, inputs of any strides and inputs that lie, memory
 * that is missing in some calls, runs that are cancelled or refused. All memory of the library is
 * of an allocator that looks at what lies behind each block (tests/runtime/harness.h). It is wrong
 * when
 *   - a status is INTERNAL, or none of the header, or has no sentence;
 *   - a call that fails writes what it was to fill, or one that does not writes behind a struct;
 *   - in the end a context gives other bytes than a new one of its model does;
 *   - memory is held when all objects have ended, or a block was written behind its end.
 * Cases run in child processes (children.h); --only prints the calls of one. Exit code 1 where one
 * is a finding. */
#include "api_case.h"
#include "children.h"
#include "mutate.h"

enum { CALLS = 90, HELD_FREE = 700 };

static void one_case(struct fuzz_progress *progress);
static void free_corpus(void);
static struct fuzz_cases cases = { .seconds = 20,
                                   .seed = 1,
                                   .bytes = sizeof(struct fuzz_progress),
                                   .one_case = one_case,
                                   .end = free_corpus };

static struct fuzz_corpus corpus;

/* Some allocations of one call fail. */
static void one_call(struct api_case *a)
{
    struct test_memory *memory = &a->memory;
    if (fuzz_chance(&a->r, 6)) {
        atomic_store(&memory->fail_at,
                     atomic_load(&memory->calls) + fuzz_below(&a->r, 30));
        atomic_store(&memory->fail_on, fuzz_chance(&a->r, 50));
    }
    if (fuzz_chance(&a->r, 30))
        api_call_object(a);
    else
        api_call_context(a);
    atomic_store(&memory->fail_at, -1);
}

/* ---- in the end ---- */

/* All inputs as the corpus has them; false where it has not all of them. */
static bool set_given(struct api_case *a, const struct api_context *c)
{
    for (int32_t i = 0; i < c->n_inputs; i++)
        if (i >= FUZZ_INPUTS || c->from->given[i].kind == ATTNRUN_ABSENT ||
            API(a, attnrun_set_input(c->handle, i, &c->from->given[i])) != ATTNRUN_OK)
            return false;
    return true;
}

static bool sum_of_run(struct api_case *a, const struct api_context *c, uint64_t *sum)
{
    const attnrun_run_options run = { .struct_size = sizeof run, .timeout_us = 1000000 };
    attnrun_tensor t;
    if (!set_given(a, c) || API(a, attnrun_run(c->handle, &run)) != ATTNRUN_OK)
        return false;
    *sum = 0;
    for (int32_t i = 0; i < c->n_outputs; i++) {
        if (API(a, attnrun_output(c->handle, i, &t)) != ATTNRUN_OK)
            api_wrong(a, "a run that succeeded has no output");
        *sum = fuzz_read(c->from, &t, *sum);
    }
    return true;
}

/* As a new context is, whatever was called. */
static bool make_plain(struct api_case *a, const struct api_context *c)
{
    bool plain = API(a, attnrun_choose_outputs(c->handle, NULL, 0)) == ATTNRUN_OK &&
                 API(a, attnrun_set_arena(c->handle, NULL, 0)) == ATTNRUN_OK &&
                 API(a, attnrun_set_timeout(c->handle, 1000000)) == ATTNRUN_OK;
    for (int32_t i = 0; i < c->n_outputs; i++)
        plain = plain && API(a, attnrun_set_output(c->handle, i, NULL)) == ATTNRUN_OK;
    if (!plain)
        api_wrong(a, "a context cannot be made plain");
    attnrun_reset_states(c->handle);
    return plain;
}

/* What a used context gives is what a new one of its model gives; where both have the memory. */
static void compare_with_new(struct api_case *a, struct api_context *c)
{
    struct api_model *model = NULL;
    uint64_t used, fresh;
    for (int i = 0; i < API_MODELS; i++)
        if (a->models[i].handle != NULL && a->models[i].handle == c->model)
            model = &a->models[i];
    if (model == NULL || !make_plain(a, c) || !sum_of_run(a, c, &used))
        return;
    struct api_context *other = api_open_context(a, model);
    if (other == NULL)
        return;
    if (sum_of_run(a, other, &fresh) && fresh != used)
        api_wrong(a, "a context that was used gives other bytes than a new one");
    api_close_context(other);
}

static void end_objects(struct api_case *a)
{
    for (int i = 0; i + 1 < API_CONTEXTS; i++)
        if (a->contexts[i].handle != NULL) {
            api_close_context(&a->contexts[API_CONTEXTS - 1]); /* room for a new one */
            compare_with_new(a, &a->contexts[i]);
        }
    const bool models_first = fuzz_chance(&a->r, 50);
    for (int i = 0; i < API_MODELS && models_first; i++)
        api_close_model(&a->models[i]);
    for (int i = 0; i < API_RUNTIMES; i++)
        attnrun_runtime_destroy(a->runtimes[i]);
    for (int i = 0; i < API_CONTEXTS; i++)
        api_close_context(&a->contexts[i]);
    for (int i = 0; i < API_MODELS; i++)
        api_close_model(&a->models[i]);
    a->call = "the end";
    if (atomic_load(&a->memory.live_blocks) != 0)
        api_wrong(a, "memory is held when all objects have ended");
    if (atomic_load(&a->memory.faults) != 0)
        api_wrong(a, "a block was written behind its end, or freed with another size");
}

static void one_case(struct fuzz_progress *progress)
{
    static struct api_case a;
    struct fuzz_random r = { progress->seed };
    memset(&a, 0, sizeof a);
    a.seed = progress->seed;
    a.told = cases.only;
    a.r.state = fuzz_next(&r);
    test_memory_init(&a.memory);
    for (int i = 0; i < API_SOURCES; i++) {
        a.sources[i].seed = a.seed;
        a.sources[i].random.state = fuzz_next(&r);
        fuzz_mutate(&a.sources[i], &a.r, &corpus,
                    (struct fuzz_changes){ .fields = fuzz_chance(&a.r, 70) ? 0 : 2 });
    }
    for (int64_t n = fuzz_below(&a.r, CALLS); n > 0; n--) {
        int max = 0;
        for (int i = 0; i < API_SOURCES; i++)
            max = a.sources[i].n_held > max ? a.sources[i].n_held : max;
        if (max > FUZZ_HELD - HELD_FREE)
            break;
        one_call(&a);
    }
    end_objects(&a);
    progress->cases++;
    progress->good += a.good > 0;
    if (cases.only)
        printf("seed %llu: %llu calls, %llu without a fault, sum %llx\n",
               (unsigned long long)a.seed, (unsigned long long)a.calls,
               (unsigned long long)a.good, (unsigned long long)a.sum);
    for (int i = 0; i < API_SOURCES; i++)
        fuzz_case_end(&a.sources[i]);
}

static void free_corpus(void) { fuzz_corpus_free(&corpus); }

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            fuzz_corpus_add(&corpus, argv[i]);
        else if (!fuzz_take_option(&cases, argc, argv, &i))
            return false;
    }
    return corpus.n > 0;
}

int main(int argc, char **argv)
{
    if (!read_options(argc, argv)) {
        fprintf(stderr,
                "usage: fuzz_api [--seconds N] [--seed N] [--only N] CORPUS...\n");
        return 2;
    }
    const int code = fuzz_run_cases(&cases, corpus.n);
    free_corpus();
    return code;
}
