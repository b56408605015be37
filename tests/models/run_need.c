/* run_need.c - attnrun_model_plan() against an allocator that counts.
 *
 *     run_need FOLDER...
 *
 * in:  folders in the ONNX backend test form, or of such folders, one level down
 * out: exit code 1 where the most that an allocator saw, from the first context to the end of
 *      its first run, is not what the plan of the model said; or where that budget is not
 *      enough, or a byte less is; or an output has not the shape that was planned. Models
 *      with data-dependent shapes or subgraphs may take less. Each runs with one thread and
 *      with three. */
#include <attnrun.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 64, PATH_BYTES = 4096 };

static _Atomic int64_t held, peak;
static int compared, bounded, skipped, failed;

static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    void *memory = NULL;
    (void)user;
    if (posix_memalign(&memory, align, bytes) != 0)
        return NULL;
    const int64_t now = atomic_fetch_add(&held, (int64_t)bytes) + (int64_t)bytes;
    int64_t before = atomic_load(&peak);
    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now))
        ;
    return memory;
}

static void counted_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    atomic_fetch_sub(&held, (int64_t)bytes);
    free(memory);
}

static attnrun_runtime *make_runtime(int32_t threads, int64_t max_memory)
{
    static const attnrun_allocator counted = { .struct_size = sizeof counted,
                                               .alloc = counted_alloc,
                                               .free = counted_free };
    const attnrun_runtime_options options = { .struct_size = sizeof options,
                                              .threads = threads,
                                              .max_memory = (uint64_t)max_memory,
                                              .allocator = &counted };
    attnrun_runtime *runtime = NULL;
    if (attnrun_runtime_create(&options, &runtime) != ATTNRUN_OK)
        exit(2);
    return runtime;
}

static attnrun_tensor *read_input(attnrun_runtime *runtime, const char *folder, int32_t i)
{
    char path[PATH_BYTES];
    attnrun_tensor *tensor = NULL;
    snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", folder, i);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    const long bytes = ftell(file);
    rewind(file);
    char *data = malloc((size_t)bytes + 1);
    if (data != NULL && fread(data, 1, (size_t)bytes, file) == (size_t)bytes)
        (void)attnrun_tensor_from_pb(runtime, data, (uint64_t)bytes, ATTNRUN_TENSOR,
                                     &tensor, NULL);
    free(data);
    fclose(file);
    return tensor;
}

struct inputs {
    attnrun_tensor *each[MAX_VALUES];
    attnrun_tensor all[MAX_VALUES];
    int32_t n;
};

static bool read_inputs(attnrun_runtime *reader, attnrun_model *model, const char *folder,
                        struct inputs *in)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    memset(in, 0, sizeof *in);
    if (attnrun_model_query(model, &info) != ATTNRUN_OK || info.n_inputs > MAX_VALUES)
        return false;
    for (in->n = 0; in->n < info.n_inputs; in->n++) {
        attnrun_tensor *tensor = read_input(reader, folder, in->n);
        in->each[in->n] = tensor;
        if (tensor == NULL || tensor->kind != ATTNRUN_TENSOR ||
            tensor->dtype == ATTNRUN_STRING)
            return false;
        in->all[in->n] = *tensor;
    }
    return true;
}

/* The first context and its first run; *exact: no shape depends on data. */
static attnrun_status run_once(attnrun_model *model, const struct inputs *in, bool *exact)
{
    attnrun_context *context = NULL;
    attnrun_plan_info info = { .struct_size = sizeof info };
    attnrun_status status = attnrun_context_create(model, &context);
    for (int32_t i = 0; i < in->n && status == ATTNRUN_OK; i++)
        status = attnrun_set_input(context, i, &in->all[i]);
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    attnrun_tensor made[MAX_VALUES];
    attnrun_model_info model_info = { .struct_size = sizeof model_info };
    (void)attnrun_model_query(model, &model_info);
    for (int32_t i = 0; i < model_info.n_outputs && i < MAX_VALUES; i++)
        if (status == ATTNRUN_OK)
            status = attnrun_output(context, i, &made[i]);
    const int64_t seen = atomic_load(&peak); /* plans below are not the run's */
    if (status == ATTNRUN_OK)
        status = attnrun_plan(context, in->all, &info);
    atomic_store(&peak, seen);
    *exact = info.n_dynamic_steps == 0 && info.side_heap_bytes == 0;
    for (int32_t i = 0; i < model_info.n_outputs && i < MAX_VALUES && *exact; i++) {
        attnrun_tensor planned;
        if (status == ATTNRUN_OK)
            status = attnrun_plan_output(context, i, &planned);
        if (status == ATTNRUN_OK &&
            (planned.dtype != made[i].dtype || planned.rank != made[i].rank ||
             planned.data != NULL ||
             memcmp(planned.dims, made[i].dims,
                    (size_t)made[i].rank * sizeof *made[i].dims) != 0)) {
            printf("output %d is not as it was planned\n", i);
            failed++;
        }
    }
    attnrun_context_destroy(context);
    return status;
}

static void wrong(const char *folder, const char *what, int64_t a, int64_t b)
{
    printf("%s: %s: %lld, %lld\n", folder, what, (long long)a, (long long)b);
    failed++;
}

/* The smallest budget is enough, and nothing less is. */
static void try_budget(const char *folder, const struct inputs *in, int32_t threads,
                       int64_t budget, bool enough)
{
    char path[PATH_BYTES];
    bool exact;
    attnrun_model *model = NULL;
    attnrun_runtime *runtime = make_runtime(threads, budget);
    const attnrun_source source = { .struct_size = sizeof source, .path = path };
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (attnrun_model_open(runtime, &source, &model) == ATTNRUN_OK) {
        const attnrun_status status = run_once(model, in, &exact);
        if (status != (enough ? ATTNRUN_OK : ATTNRUN_E_MEMORY))
            wrong(folder, "budget, status", budget, status);
        attnrun_model_release(model);
    } /* else opening takes more than running: not what is planned here */
    attnrun_runtime_destroy(runtime);
}

static void try_model(const char *folder, attnrun_runtime *reader, int32_t threads)
{
    char path[PATH_BYTES];
    attnrun_model *model = NULL;
    struct inputs in;
    attnrun_model_need need = { .struct_size = sizeof need };
    attnrun_runtime *runtime = make_runtime(threads, INT64_C(4) << 30);
    const attnrun_source source = { .struct_size = sizeof source, .path = path };
    bool exact = false;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    (void)attnrun_runtime_query(runtime, &info);
    if (atomic_load(&held) != (int64_t)info.used_memory)
        wrong(folder, "held by a new runtime, counted", atomic_load(&held),
              (int64_t)info.used_memory);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (attnrun_model_open(runtime, &source, &model) != ATTNRUN_OK ||
        !read_inputs(reader, model, folder, &in) ||
        attnrun_model_plan(model, in.all, &need) != ATTNRUN_OK) {
        skipped++;
    } else {
        atomic_store(&peak, atomic_load(&held));
        const attnrun_status status = run_once(model, &in, &exact);
        const int64_t seen = atomic_load(&peak);
        if (status != ATTNRUN_OK) {
            skipped++;
        } else if (exact && threads == 1) {
            compared++;
            if (need.total_bytes != seen)
                wrong(folder, "planned, seen", need.total_bytes, seen);
            try_budget(folder, &in, threads, need.total_bytes, true);
            try_budget(folder, &in, threads, need.total_bytes - 1, false);
        } else {
            bounded++;
            if (need.n_unbounded_steps == 0 && need.total_bytes < seen)
                wrong(folder, "planned less than seen", need.total_bytes, seen);
        }
    }
    for (int32_t i = 0; model != NULL && i < MAX_VALUES; i++)
        attnrun_tensor_free(reader, in.each[i]);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

static void try_folder(const char *folder, int depth)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
        attnrun_runtime *reader = NULL;
        fclose(file);
        if (attnrun_runtime_create(NULL, &reader) != ATTNRUN_OK)
            exit(2);
        try_model(folder, reader, 1);
        try_model(folder, reader, 3);
        attnrun_runtime_destroy(reader);
        return;
    }
    DIR *list = depth > 0 ? opendir(folder) : NULL;
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            try_folder(path, depth - 1);
        }
    if (list != NULL)
        closedir(list);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        try_folder(argv[i], 2);
    printf("%d exact, %d bounded, %d left out, %d wrong\n", compared, bounded, skipped,
           failed);
    return failed > 0 || compared == 0;
}
