/* run_steps.c - a decoder with states, one token a run, through the public C API alone.
 *
 *     run_steps FOLDER SET [PACKED]
 *
 * in:  FOLDER/model.onnx, tol.txt, test_data_set_<SET> as in run_folders.c, a prompt of n
 *      tokens from empty states. Input 0 is the tokens i64 (batch, n); inputs past_* and
 *      outputs present_* are states; `position` i64 (1) counts the tokens before; a mask
 *      (batch, total) is cut to the tokens so far. Output 0 is (batch, n, vocabulary).
 *      PACKED: a file that is written; the steps run on what is opened from it.
 * out: exit code 1 where a row of a step differs from that row of the stored prompt, or a
 *      state after the last step from the stored one. */
#include <attnrun.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 16, MAX_BATCH = 8 };

static attnrun_runtime *runtime;
static attnrun_model *model;
static attnrun_context *context;
static attnrun_tensor *inputs[MAX_VALUES], *outputs[MAX_VALUES];
static int32_t n_inputs, n_outputs;
static double relative, absolute;

static int fail(const char *what)
{
    fprintf(stderr, "run_steps: %s\n", what);
    return 1;
}

static int fail_call(void) { return fail(attnrun_last_error()->message); }

static attnrun_tensor *read_tensor(const char *path)
{
    attnrun_tensor *tensor = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *data = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (data != NULL && fread(data, 1, (size_t)bytes, file) == (size_t)bytes &&
        attnrun_tensor_from_pb(runtime, data, (uint64_t)bytes, ATTNRUN_TENSOR, &tensor,
                               NULL) != ATTNRUN_OK)
        fail_call();
    free(data);
    fclose(file);
    return tensor;
}

static int read_set(const char *folder, const char *set)
{
    char path[4096];
    for (int32_t i = 0; i < n_inputs + n_outputs; i++) {
        int is_input = i < n_inputs;
        snprintf(path, sizeof path, "%s/test_data_set_%s/%s_%d.pb", folder, set,
                 is_input ? "input" : "output", is_input ? i : i - n_inputs);
        attnrun_tensor *tensor = read_tensor(path);
        if (tensor == NULL)
            return fail(path);
        *(is_input ? &inputs[i] : &outputs[i - n_inputs]) = tensor;
    }
    snprintf(path, sizeof path, "%s/tol.txt", folder);
    FILE *file = fopen(path, "r");
    int read = file != NULL ? fscanf(file, "%lf %lf", &relative, &absolute) : 0;
    if (file != NULL)
        fclose(file);
    return read == 2 ? 0 : fail(path);
}

/* past_x becomes present_x of the run before. */
static int pair_states(void)
{
    for (int32_t i = 0; i < n_inputs; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        char name[256];
        if (attnrun_model_input(model, i, &info) != ATTNRUN_OK)
            return fail_call();
        if (strncmp(info.name, "past_", 5) != 0)
            continue;
        snprintf(name, sizeof name, "present_%s", info.name + 5);
        int32_t output = attnrun_model_find_output(model, name);
        if (output < 0 || attnrun_add_state(context, i, output, 0) != ATTNRUN_OK)
            return output < 0 ? fail(name) : fail_call();
    }
    return 0;
}

static int close_to(const float *got, const float *want, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double bound = absolute + relative * fabs((double)want[k]);
        if (!(fabs((double)got[k] - (double)want[k]) <= bound))
            return 0;
    }
    return 1;
}

/* A run with token `step` of each row; its logits against those stored. */
static int run_step(int64_t step, int32_t position, int32_t mask)
{
    int64_t batch = inputs[0]->dims[0], tokens[MAX_BATCH], n = inputs[0]->dims[1];
    int64_t vocabulary = outputs[0]->dims[2];
    attnrun_tensor token = *inputs[0], seen, y;
    if (attnrun_tensor_make(ATTNRUN_I64, 2, (int64_t[]){ batch, 1 }, tokens, &token) !=
        ATTNRUN_OK)
        return fail_call();
    for (int64_t b = 0; b < batch; b++)
        tokens[b] = ((int64_t *)inputs[0]->data)[b * n + step];
    int status = attnrun_set_input(context, 0, &token);
    if (status == ATTNRUN_OK && position >= 0)
        *(int64_t *)inputs[position]->data = step;
    if (status == ATTNRUN_OK && mask >= 0) {
        seen = *inputs[mask]; /* a part of each row: its strides stay */
        seen.dims[1] = step + 1;
        status = attnrun_set_input(context, mask, &seen);
    }
    if (status != ATTNRUN_OK || attnrun_run(context, NULL) != ATTNRUN_OK ||
        attnrun_output(context, 0, &y) != ATTNRUN_OK)
        return fail_call();
    for (int64_t b = 0; b < batch; b++)
        if (!close_to((float *)y.data + b * vocabulary,
                      (float *)outputs[0]->data + (b * n + step) * vocabulary,
                      vocabulary))
            return fail("the logits of a step differ");
    return 0;
}

/* States after the last step against those of the prompt; strides are the context's. */
static int compare_states(void)
{
    for (int32_t i = 1; i < n_outputs; i++) {
        attnrun_tensor got;
        const attnrun_tensor *want = outputs[i];
        if (attnrun_output(context, i, &got) != ATTNRUN_OK)
            return fail_call();
        if (got.rank != want->rank ||
            memcmp(got.dims, want->dims, (size_t)got.rank * sizeof *got.dims) != 0)
            return fail("a state has another shape");
        for (int64_t k = 0, n = attnrun_tensor_count(want); k < n; k++) {
            int64_t rest = k, offset = 0;
            for (int32_t d = got.rank - 1; d >= 0; d--) {
                offset += rest % got.dims[d] * got.strides[d];
                rest /= got.dims[d];
            }
            if (!close_to((const float *)((const char *)got.data + offset),
                          (float *)want->data + k, 1))
                return fail("a state differs");
        }
    }
    return 0;
}

static int generate(void)
{
    int32_t position = attnrun_model_find_input(model, "position");
    int32_t mask = attnrun_model_find_input(model, "attention_mask");
    if (inputs[0]->dims[0] > MAX_BATCH || inputs[0]->dims[1] < 2)
        return fail("the prompt is too short, or of too many rows");
    if (pair_states() != 0)
        return 1;
    for (int32_t i = 1; i < n_inputs; i++)
        if (i != mask && attnrun_set_input(context, i, inputs[i]) != ATTNRUN_OK)
            return fail_call();
    for (int64_t step = 0; step < inputs[0]->dims[1]; step++)
        if (run_step(step, position, mask) != 0)
            return 1;
    return compare_states();
}

static int32_t write_piece(void *user, const void *bytes, uint64_t n)
{
    return fwrite(bytes, 1, n, user) != n;
}

/* The model becomes that of its packed file. */
static attnrun_status pack(const char *path)
{
    const attnrun_source source = { .struct_size = sizeof source, .path = path };
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return ATTNRUN_E_IO;
    attnrun_status status = attnrun_model_save(model, write_piece, file);
    if (fclose(file) != 0 || status != ATTNRUN_OK)
        return status != ATTNRUN_OK ? status : ATTNRUN_E_IO;
    attnrun_model_release(model);
    model = NULL;
    return attnrun_model_open(runtime, &source, &model);
}

int main(int argc, char **argv)
{
    char path[4096];
    attnrun_source source = { .struct_size = sizeof source, .path = path };
    attnrun_model_info info = { .struct_size = sizeof info };
    if (argc < 3 || argc > 4)
        return 1 + fail("usage: run_steps FOLDER SET [PACKED]");
    snprintf(path, sizeof path, "%s/model.onnx", argv[1]);
    if (attnrun_runtime_create(NULL, &runtime) != ATTNRUN_OK ||
        attnrun_model_open(runtime, &source, &model) != ATTNRUN_OK ||
        (argc == 4 && pack(argv[3]) != ATTNRUN_OK) ||
        attnrun_model_query(model, &info) != ATTNRUN_OK ||
        attnrun_context_create(model, &context) != ATTNRUN_OK)
        return fail_call();
    n_inputs = info.n_inputs;
    n_outputs = info.n_outputs;
    int failed = n_inputs > MAX_VALUES || n_outputs > MAX_VALUES;
    failed = failed || read_set(argv[1], argv[2]) != 0 || generate() != 0;
    for (int32_t i = 0; i < MAX_VALUES; i++) {
        attnrun_tensor_free(runtime, inputs[i]);
        attnrun_tensor_free(runtime, outputs[i]);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    return failed;
}
