/* test_soak.c - one model under load for long: threads that run it with random shapes, cancel each
 * other, pass deadlines, trim, end and make contexts, open models (broken ones, too) and fork.
 *
 * usage: test_runtime_soak [--runs N] [--threads T] [--workers W] [--seed S]
 *
 * T threads (8), each with contexts of its own, make N runs (10,000) together in a runtime of W
 * threads (2). Each output is compared with that of one thread, bit by bit. After a tenth of the
 * runs and at the end, when no context is left, the runtime must hold the same bytes, and the
 * process as many descriptors and threads; its resident memory is printed. Exit code 1 where
 * something differs. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sample_models.h"

enum { LARGEST_BATCH = 4, SHAPES = LARGEST_BATCH * ENCODER_LONGEST, MAX_CALLERS = 64 };

/* ---- what one thread computes ---- */

struct answer {
    float *hidden, *pooled;
    size_t hidden_bytes, pooled_bytes;
};

static struct soak {
    attnrun_runtime *runtime;
    attnrun_model *model;
    uint8_t *file;
    size_t file_bytes;
    struct answer answers[SHAPES];
    _Atomic int64_t left; /* runs to do */
    _Atomic int64_t good, cancelled, late, contexts, trims, opened, refused, forks;
    _Atomic int64_t wrong;
} soak;

/* How often something is done: one time in so many. */
enum { CANCEL = 20, DEADLINE = 20, TRIM = 50, END = 50, OPEN = 500, FORK = 2000 };

/* The allocators of the sanitizers do not take their locks around fork(): a child that is made
 * while another thread allocates waits for ever. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool may_fork = false;
#elif defined(__has_feature)
static const bool may_fork = !__has_feature(address_sanitizer) &&
                             !__has_feature(thread_sanitizer) &&
                             !__has_feature(memory_sanitizer);
#else
static const bool may_fork = true;
#endif

static bool one_in(uint64_t *seed, int64_t n) { return random_below(seed, n) == 0; }

static void complain(const char *what)
{
    if (atomic_fetch_add(&soak.wrong, 1) < 20)
        fprintf(stderr, "WRONG: %s: %s\n", what, attnrun_last_error()->message);
}

static attnrun_status bind_inputs(attnrun_context *context, struct encoder_inputs *in,
                                  int shape)
{
    uint64_t seed = 1000 + (uint64_t)shape;
    int64_t dims[2] = { 1 + shape / ENCODER_LONGEST, 1 + shape % ENCODER_LONGEST };
    attnrun_tensor ids, mask;
    for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
        in->ids[i] = random_below(&seed, ENCODER_WORDS);
        in->mask[i] = i % dims[1] == 0 || random_below(&seed, 4) != 0;
    }
    attnrun_status status = attnrun_tensor_make(ATTNRUN_I64, 2, dims, in->ids, &ids);
    if (status == ATTNRUN_OK)
        status = attnrun_tensor_make(ATTNRUN_I64, 2, dims, in->mask, &mask);
    if (status == ATTNRUN_OK)
        status = attnrun_set_input(context, 0, &ids);
    return status == ATTNRUN_OK ? attnrun_set_input(context, 1, &mask) : status;
}

static bool outputs_agree(attnrun_context *context, const struct answer *answer)
{
    attnrun_tensor hidden, pooled;
    return attnrun_output(context, 0, &hidden) == ATTNRUN_OK &&
           attnrun_output(context, 1, &pooled) == ATTNRUN_OK &&
           (size_t)attnrun_tensor_bytes(&hidden) == answer->hidden_bytes &&
           (size_t)attnrun_tensor_bytes(&pooled) == answer->pooled_bytes &&
           memcmp(hidden.data, answer->hidden, answer->hidden_bytes) == 0 &&
           memcmp(pooled.data, answer->pooled, answer->pooled_bytes) == 0;
}

static float *copy_of(const attnrun_tensor *tensor, size_t *bytes)
{
    *bytes = (size_t)attnrun_tensor_bytes(tensor);
    float *copy = malloc(*bytes);
    assert_non_null(copy);
    return memcpy(copy, tensor->data, *bytes);
}

static void compute_answers(void)
{
    static struct encoder_inputs in;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = NULL;
    OK(open_bytes(runtime, soak.file, soak.file_bytes, 0, &model));
    attnrun_context *context = make_context(model);
    for (int shape = 0; shape < SHAPES; shape++) {
        struct answer *answer = &soak.answers[shape];
        OK(bind_inputs(context, &in, shape));
        OK(attnrun_run(context, NULL));
        const attnrun_tensor hidden = get_output(context, 0),
                             pooled = get_output(context, 1);
        answer->hidden = copy_of(&hidden, &answer->hidden_bytes);
        answer->pooled = copy_of(&pooled, &answer->pooled_bytes);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* ---- callers ---- */

struct caller {
    pthread_t thread;
    pthread_mutex_t lock; /* held where `context` changes, and by who cancels it */
    attnrun_context *context;
    struct encoder_inputs in;
    uint64_t seed;
    bool forks;
};
static struct caller callers[MAX_CALLERS];
static int n_callers = 8;

static void cancel_another(uint64_t *seed)
{
    struct caller *other = &callers[random_below(seed, n_callers)];
    pthread_mutex_lock(&other->lock);
    attnrun_cancel(other->context);
    pthread_mutex_unlock(&other->lock);
}

static void change_context(struct caller *caller)
{
    pthread_mutex_lock(&caller->lock);
    attnrun_context_destroy(caller->context);
    caller->context = NULL;
    if (attnrun_context_create(soak.model, &caller->context) != ATTNRUN_OK)
        complain("a context is not made");
    pthread_mutex_unlock(&caller->lock);
    atomic_fetch_add(&soak.contexts, 1);
}

/* A whole file, or one that was cut. */
static void open_another(uint64_t *seed)
{
    attnrun_model *model = NULL;
    const bool cut = one_in(seed, 2);
    const size_t bytes =
        cut ? (size_t)random_below(seed, (int64_t)soak.file_bytes) : soak.file_bytes;
    const attnrun_status status = open_bytes(soak.runtime, soak.file, bytes, 0, &model);
    if (!cut && status != ATTNRUN_OK)
        complain("a model does not open");
    if (status == ATTNRUN_OK && model == NULL)
        complain("an open model is NULL");
    atomic_fetch_add(status == ATTNRUN_OK ? &soak.opened : &soak.refused, 1);
    attnrun_model_release(model);
}

static void run_once(struct caller *caller, uint64_t *seed)
{
    const int shape = (int)random_below(seed, SHAPES);
    attnrun_run_options options = { .struct_size = sizeof options };
    if (one_in(seed, DEADLINE))
        options.timeout_us = 1 + random_below(seed, 100);
    if (bind_inputs(caller->context, &caller->in, shape) != ATTNRUN_OK) {
        complain("an input is refused");
        return;
    }
    const attnrun_status status = attnrun_run(caller->context, &options);
    if (status == ATTNRUN_E_CANCELLED)
        atomic_fetch_add(&soak.cancelled, 1);
    else if (status == ATTNRUN_E_TIME && options.timeout_us > 0)
        atomic_fetch_add(&soak.late, 1);
    else if (status != ATTNRUN_OK)
        complain("a run fails");
    else if (!outputs_agree(caller->context, &soak.answers[shape]))
        complain("other bits than one thread gives");
    else
        atomic_fetch_add(&soak.good, 1);
}

/* A child goes on with the context of its thread, while other threads were at work. What one of
 * them cancelled before the fork may be its first run. */
static attnrun_status run_in_child(attnrun_context *context)
{
    const attnrun_status status = attnrun_run(context, NULL);
    return status == ATTNRUN_E_CANCELLED ? attnrun_run(context, NULL) : status;
}

static void fork_and_run(struct caller *caller)
{
    const int shape = (int)random_below(&caller->seed, SHAPES);
    int ended = 0;
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const bool good =
            bind_inputs(caller->context, &caller->in, shape) == ATTNRUN_OK &&
            run_in_child(caller->context) == ATTNRUN_OK &&
            outputs_agree(caller->context, &soak.answers[shape]);
        _exit(good ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &ended, 0) != child || ended != 0)
        complain("a child does not compute");
    atomic_fetch_add(&soak.forks, 1);
}

static void *call(void *arg)
{
    struct caller *caller = arg;
    uint64_t *seed = &caller->seed;
    change_context(caller);
    while (caller->context != NULL && atomic_fetch_sub(&soak.left, 1) > 0) {
        run_once(caller, seed);
        if (one_in(seed, CANCEL))
            cancel_another(seed);
        if (one_in(seed, TRIM)) {
            attnrun_trim(caller->context);
            atomic_fetch_add(&soak.trims, 1);
        }
        if (one_in(seed, END))
            change_context(caller);
        if (one_in(seed, OPEN))
            open_another(seed);
        if (caller->forks && one_in(seed, FORK / n_callers + 1))
            fork_and_run(caller);
    }
    pthread_mutex_lock(&caller->lock);
    attnrun_context_destroy(caller->context);
    caller->context = NULL;
    pthread_mutex_unlock(&caller->lock);
    return NULL;
}

static void run_callers(int64_t runs, uint64_t seed)
{
    atomic_store(&soak.left, runs);
    for (int i = 0; i < n_callers; i++) {
        pthread_mutex_init(&callers[i].lock, NULL);
        callers[i].seed = seed * 1000 + (uint64_t)i + 1;
        callers[i].forks = may_fork && i == 0;
    }
    for (int i = 0; i < n_callers; i++)
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    for (int i = 0; i < n_callers; i++)
        pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < n_callers; i++)
        pthread_mutex_destroy(&callers[i].lock);
}

/* ---- what is held ---- */

struct held {
    int64_t bytes, descriptors, threads, resident;
};

static int64_t entries_of(const char *folder)
{
    int64_t n = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static int64_t resident_bytes(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL && fscanf(file, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (file != NULL)
        fclose(file);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

/* A thread that was joined is in the folder for a moment longer. */
static int64_t threads_of(void)
{
    int64_t before = -1, now = entries_of("/proc/self/task");
    for (int turn = 0; turn < 50 && now != before; turn++) {
        usleep(20000);
        before = now;
        now = entries_of("/proc/self/task");
    }
    return now;
}

static struct held look(void)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    OK(attnrun_runtime_query(soak.runtime, &info));
    return (struct held){ .bytes = (int64_t)info.used_memory,
                          .descriptors = entries_of("/proc/self/fd"),
                          .threads = threads_of(),
                          .resident = resident_bytes() };
}

static bool is_flat(const struct held *a, const struct held *b)
{
    const bool flat = a->bytes == b->bytes && a->descriptors == b->descriptors &&
                      a->threads == b->threads;
    if (!flat)
        fprintf(stderr,
                "WRONG: held before and after: %lld and %lld bytes, %lld and %lld "
                "descriptors, %lld and %lld threads\n",
                (long long)a->bytes, (long long)b->bytes, (long long)a->descriptors,
                (long long)b->descriptors, (long long)a->threads, (long long)b->threads);
    return flat;
}

static void report(int64_t runs, uint64_t seed, const struct held *a,
                   const struct held *b)
{
    printf("soak: %lld runs of %d threads, seed %llu: %lld right, %lld cancelled, %lld "
           "late; "
           "%lld contexts, %lld trims, %lld models opened, %lld refused, %lld forks; "
           "resident "
           "%.1f MB, then %.1f MB; %lld descriptors, %lld threads; %lld wrong\n",
           (long long)runs, n_callers, (unsigned long long)seed, (long long)soak.good,
           (long long)soak.cancelled, (long long)soak.late, (long long)soak.contexts,
           (long long)soak.trims, (long long)soak.opened, (long long)soak.refused,
           (long long)soak.forks, (double)a->resident / 1e6, (double)b->resident / 1e6,
           (long long)b->descriptors, (long long)b->threads, (long long)soak.wrong);
}

/* ---- main ---- */

static int64_t number(const char *text, int64_t max)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || value < 1 || value > max) {
        fprintf(stderr, "test_runtime_soak: '%s' is no number from 1 to %lld\n", text,
                (long long)max);
        exit(2);
    }
    return value;
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: test_runtime_soak [--runs N] [--threads T] [--workers W] [--seed S]\n");
    return 2;
}

int main(int argc, char **argv)
{
    int64_t runs = 10000, workers = 2, seed = 1;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return usage();
        if (strcmp(argv[i], "--runs") == 0)
            runs = number(argv[i + 1], INT64_C(1) << 40);
        else if (strcmp(argv[i], "--threads") == 0)
            n_callers = (int)number(argv[i + 1], MAX_CALLERS);
        else if (strcmp(argv[i], "--workers") == 0)
            workers = number(argv[i + 1], 64);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = number(argv[i + 1], INT32_MAX);
        else
            return usage();
    }
    soak.file = onnx_end(write_encoder(1), &soak.file_bytes);
    compute_answers();
    soak.runtime = make_runtime(NULL, (int32_t)workers);
    OK(open_bytes(soak.runtime, soak.file, soak.file_bytes, 0, &soak.model));
    run_callers(runs / 10, (uint64_t)seed);
    const struct held before = look();
    run_callers(runs - runs / 10, (uint64_t)seed + 1);
    const struct held after = look();
    const bool good = is_flat(&before, &after) && soak.wrong == 0 && soak.good > runs / 2;
    report(runs, (uint64_t)seed, &before, &after);
    attnrun_model_release(soak.model);
    attnrun_runtime_destroy(soak.runtime);
    for (int shape = 0; shape < SHAPES; shape++) {
        free(soak.answers[shape].hidden);
        free(soak.answers[shape].pooled);
    }
    free(soak.file);
    return good ? 0 : 1;
}
