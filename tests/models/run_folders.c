/* run_folders.c - whole models through the public C API alone.
 *
 *     run_folders FOLDER
 *
 * in:  FOLDER/<model>/model.onnx, tol.txt (relative and absolute tolerance) and
 *      test_data_set_<k>/{input_<i>.pb, output_<i>.pb}
 * out: a line for each model that fails, one for the sum; exit code 1 where any failed.
 *
 * Each model gets one runtime, one model and one context for all of its sets, so that
 * plans of several shapes live in it, and runs the first set again at the end. */
#include <attnrun.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 64 };

struct folder {
    const char *path;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    double relative, absolute;
    attnrun_model_info info;
    int failed;
};

/* The first thing that is wrong with a model is printed. */
static int fail(struct folder *f, const char *where, const char *what)
{
    if (!f->failed)
        printf("FAIL %s: %s\n", where, what);
    f->failed = 1;
    return 0;
}

/* A failed call of the library. */
static int fail_call(struct folder *f, const char *where)
{
    return fail(f, where, attnrun_last_error()->message);
}

/* The tensor of a file, or NULL: there is none. */
static attnrun_tensor *read_tensor(struct folder *f, const char *path)
{
    attnrun_tensor *tensor = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *data = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (data == NULL || fread(data, 1, (size_t)bytes, file) != (size_t)bytes)
        fail(f, path, "cannot be read");
    else if (attnrun_tensor_from_pb(f->runtime, data, (uint64_t)bytes, ATTNRUN_TENSOR,
                                    &tensor, NULL) != ATTNRUN_OK)
        fail_call(f, path);
    free(data);
    fclose(file);
    return tensor;
}

static int64_t offset_of(const attnrun_tensor *t, int64_t k)
{
    int64_t offset = 0;
    for (int32_t d = t->rank - 1; d >= 0; d--) {
        offset += k % t->dims[d] * t->strides[d];
        k /= t->dims[d];
    }
    return offset;
}

/* Floats by the tolerance, everything else exactly. `got` may have strides. */
static int same(const struct folder *f, const attnrun_tensor *got,
                const attnrun_tensor *want)
{
    int64_t size = attnrun_dtype_bits(want->dtype) / 8;
    if (got->dtype != want->dtype || got->rank != want->rank)
        return 0;
    for (int32_t d = 0; d < want->rank; d++)
        if (got->dims[d] != want->dims[d])
            return 0;
    for (int64_t k = 0, n = attnrun_tensor_count(want); k < n; k++) {
        const char *a = (const char *)got->data + offset_of(got, k);
        const char *b = (const char *)want->data + k * size;
        if (want->dtype != ATTNRUN_F32) {
            if (memcmp(a, b, (size_t)size) != 0)
                return 0;
            continue;
        }
        float x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        if (!(fabs((double)x - (double)y) <= f->absolute + f->relative * fabs((double)y)))
            return 0;
    }
    return 1;
}

static int compare_outputs(struct folder *f, const char *data)
{
    for (int32_t i = 0; i < f->info.n_outputs; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/output_%d.pb", data, i);
        attnrun_tensor got, *want = read_tensor(f, path);
        if (want == NULL)
            return fail(f, path, "is missing");
        if (attnrun_output(f->context, i, &got) != ATTNRUN_OK)
            fail_call(f, path);
        else if (!same(f, &got, want))
            fail(f, path, "differs");
        attnrun_tensor_free(f->runtime, want);
    }
    return !f->failed;
}

/* Returns 0 where there is no such set, or something is wrong. */
static int run_set(struct folder *f, int set)
{
    char data[2048], path[4096];
    attnrun_tensor *inputs[MAX_TENSORS] = { NULL };
    int32_t n = 0;
    snprintf(data, sizeof data, "%s/test_data_set_%d", f->path, set);
    for (; n < f->info.n_inputs && n < MAX_TENSORS; n++) {
        snprintf(path, sizeof path, "%s/input_%d.pb", data, n);
        inputs[n] = read_tensor(f, path);
        if (inputs[n] == NULL)
            break;
        if (attnrun_set_input(f->context, n, inputs[n]) != ATTNRUN_OK)
            fail_call(f, path);
    }
    int found = n == f->info.n_inputs;
    if (!found && n > 0)
        fail(f, path, "is missing");
    if (found && !f->failed && attnrun_run(f->context, NULL) != ATTNRUN_OK)
        fail_call(f, data);
    if (found && !f->failed)
        compare_outputs(f, data);
    for (int32_t i = 0; i < n; i++)
        attnrun_tensor_free(f->runtime, inputs[i]);
    return found && !f->failed;
}

static int read_tolerance(struct folder *f)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tol.txt", f->path);
    FILE *file = fopen(path, "r");
    int read = file != NULL ? fscanf(file, "%lf %lf", &f->relative, &f->absolute) : 0;
    if (file != NULL)
        fclose(file);
    return read == 2 || fail(f, path, "cannot be read");
}

static int open_folder(struct folder *f)
{
    char path[4096];
    attnrun_source source = { .struct_size = sizeof source, .path = path };
    snprintf(path, sizeof path, "%s/model.onnx", f->path);
    f->info.struct_size = sizeof f->info;
    if (attnrun_runtime_create(NULL, &f->runtime) != ATTNRUN_OK ||
        attnrun_model_open(f->runtime, &source, &f->model) != ATTNRUN_OK ||
        attnrun_model_query(f->model, &f->info) != ATTNRUN_OK ||
        attnrun_context_create(f->model, &f->context) != ATTNRUN_OK)
        return fail_call(f, path);
    return read_tolerance(f);
}

/* All sets of a model; returns 1 where all are as expected. */
static int check_folder(const char *path)
{
    struct folder f = { .path = path };
    int sets = 0;
    if (open_folder(&f)) {
        while (run_set(&f, sets))
            sets++;
        if (sets == 0)
            fail(&f, path, "has no data sets");
        else if (!f.failed)
            run_set(&f, 0);
    }
    attnrun_context_destroy(f.context);
    attnrun_model_release(f.model);
    attnrun_runtime_destroy(f.runtime);
    return !f.failed;
}

int main(int argc, char **argv)
{
    struct dirent *entry;
    int passed = 0, failed = 0;
    DIR *folders = opendir(argc == 2 ? argv[1] : "");
    if (folders == NULL) {
        fprintf(stderr, "usage: run_folders FOLDER\n");
        return 2;
    }
    while ((entry = readdir(folders)) != NULL) {
        char path[1024], model[2048];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        snprintf(model, sizeof model, "%s/model.onnx", path);
        FILE *file = entry->d_name[0] != '.' ? fopen(model, "rb") : NULL;
        if (file == NULL)
            continue;
        fclose(file);
        if (check_folder(path))
            passed++;
        else
            failed++;
    }
    closedir(folders);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
