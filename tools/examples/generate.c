/* generate.c - generates bytes step by step with a model whose states the context keeps:
 *
 *     generate model.onnx [STEPS [TRACE [LOGITS]]]
 *     cc generate.c $(pkg-config --cflags --libs attnrun)
 *
 * The model has an int64 input of shape (1, 1), which is one token. Output 0, f32 (1, 1, 256), has
 * the logits of the next byte. Each input past_NAME is the output present_NAME of the step before;
 * at the first step it is zeros, or has length 0 if the shape is symbolic. The next byte is drawn
 * from the softmax with a fixed seed. The program prints the time of a step (the median of the ten
 * up to it) and the bytes that the library holds. It writes one line for each step into TRACE
 * (token, ms, bytes held), and all logits as f32 into LOGITS. */
#define _POSIX_C_SOURCE 200809L
#include <attnrun.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 256, MEDIAN_OF = 10 };

struct generator {
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    void **zeros; /* of the states' first inputs */
    int32_t n_inputs, token_input;
    int64_t token;
    uint64_t random;
    const char *refusal; /* of this program's own, or NULL */
};

struct record {
    int64_t token, held_bytes;
    double ms;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static attnrun_status refuse_generate(struct generator *g, const char *why)
{
    g->refusal = why;
    return ATTNRUN_E_INPUT;
}

static attnrun_status open_decoder(struct generator *g, const char *path)
{
    attnrun_runtime_options options = { .struct_size = sizeof options, .threads = 1 };
    attnrun_source source = { .struct_size = sizeof source, .path = path };
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_status status = attnrun_runtime_create(&options, &g->runtime);
    if (status == ATTNRUN_OK)
        status = attnrun_model_open(g->runtime, &source, &g->model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(g->model, &g->context);
    if (status == ATTNRUN_OK)
        status = attnrun_model_query(g->model, &info);
    g->n_inputs = info.n_inputs;
    return status;
}

/* Pairs an input past_NAME with present_NAME, and binds what the first step begins with.
 */
static attnrun_status bind_state(struct generator *g, int32_t input,
                                 const attnrun_value_info *past)
{
    char present[256];
    int64_t dims[ATTNRUN_MAX_RANK];
    attnrun_tensor first;
    snprintf(present, sizeof present, "present%s", past->name + strlen("past"));
    for (int32_t d = 0; d < past->rank; d++)
        dims[d] = past->dims[d] < 0 ? 0 : past->dims[d];
    const int32_t output = attnrun_model_find_output(g->model, present);
    if (output < 0)
        return refuse_generate(g, "an input past_NAME has no output present_NAME");
    attnrun_status status =
        attnrun_tensor_make(past->dtype, past->rank, dims, NULL, &first);
    if (status == ATTNRUN_OK)
        status = attnrun_add_state(g->context, input, output, 0);
    if (status != ATTNRUN_OK)
        return status;
    first.data = g->zeros[input] = calloc(1, (size_t)attnrun_tensor_bytes(&first) + 1);
    if (first.data == NULL)
        return refuse_generate(g, "no memory");
    return attnrun_set_input(g->context, input, &first);
}

static attnrun_status bind_inputs(struct generator *g)
{
    const int64_t one[] = { 1, 1 };
    attnrun_tensor token;
    g->zeros = calloc((size_t)g->n_inputs, sizeof *g->zeros);
    attnrun_status status =
        g->zeros != NULL ? ATTNRUN_OK : refuse_generate(g, "no memory");
    for (int32_t i = 0; i < g->n_inputs && status == ATTNRUN_OK; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        status = attnrun_model_input(g->model, i, &info);
        if (status == ATTNRUN_OK && strncmp(info.name, "past_", 5) == 0)
            status = bind_state(g, i, &info);
        else
            g->token_input = i;
    }
    if (status == ATTNRUN_OK)
        status = attnrun_tensor_make(ATTNRUN_I64, 2, one, &g->token, &token);
    if (status == ATTNRUN_OK && g->token_input < 0)
        status = refuse_generate(g, "the model has no input for a token");
    return status ? status : attnrun_set_input(g->context, g->token_input, &token);
}

/* A number in [0, 1): xorshift64*. */
static double draw_uniform(struct generator *g)
{
    g->random ^= g->random >> 12;
    g->random ^= g->random << 25;
    g->random ^= g->random >> 27;
    return (double)((g->random * 2685821657736338717u) >> 11) * 0x1p-53;
}

static int64_t choose(struct generator *g, const float *logits)
{
    double highest = (double)logits[0], sum = 0, weights[BYTES];
    for (int k = 1; k < BYTES; k++)
        highest = fmax(highest, (double)logits[k]);
    for (int k = 0; k < BYTES; k++)
        sum += weights[k] = exp((double)logits[k] - highest);
    double left = draw_uniform(g) * sum;
    for (int k = 0; k < BYTES - 1; k++)
        if ((left -= weights[k]) < 0)
            return k;
    return BYTES - 1;
}

/* One token in; the one after it is put in its place. */
static attnrun_status step(struct generator *g, struct record *record, FILE *logits)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    attnrun_tensor y;
    record->token = g->token;
    double start = now_ms();
    attnrun_status status = attnrun_run(g->context, NULL);
    record->ms = now_ms() - start;
    if (status == ATTNRUN_OK)
        status = attnrun_output(g->context, 0, &y); /* valid until the next run */
    if (status == ATTNRUN_OK)
        status = attnrun_runtime_query(g->runtime, &info);
    if (status != ATTNRUN_OK)
        return status;
    record->held_bytes = (int64_t)info.used_memory;
    if (y.dtype != ATTNRUN_F32 || attnrun_tensor_count(&y) != BYTES)
        return refuse_generate(g, "output 0 is not f32 of 256 elements");
    if (logits != NULL)
        fwrite(y.data, sizeof(float), BYTES, logits);
    g->token = choose(g, y.data);
    return ATTNRUN_OK;
}

static int logits_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the steps up to and with `last`. */
static double median_ms(const struct record *records, long last)
{
    double ms[MEDIAN_OF];
    int n = 0;
    for (long k = last; k >= 0 && n < MEDIAN_OF; k--)
        ms[n++] = records[k].ms;
    qsort(ms, (size_t)n, sizeof *ms, logits_by_size);
    return ms[n / 2];
}

static void report(const struct record *records, long steps, const char *trace)
{
    for (long k = 1; k <= steps; k++)
        if (k == 10 || k == 100 || k % 1000 == 0 || (k == steps && k < 1000))
            printf("step %6ld  %7.3f ms  %7.2f MB held\n", k, median_ms(records, k - 1),
                   (double)records[k - 1].held_bytes * 1e-6);
    FILE *out = trace != NULL ? fopen(trace, "w") : NULL;
    for (long k = 0; k < steps && out != NULL; k++)
        fprintf(out, "%lld %.4f %lld\n", (long long)records[k].token, records[k].ms,
                (long long)records[k].held_bytes);
    if (out != NULL)
        fclose(out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: generate model.onnx [STEPS [TRACE [LOGITS]]]\n");
        return 2;
    }
    struct generator g = { .random = 88172645463325252u,
                           .token = 'A',
                           .token_input = -1 };
    const long steps = argc > 2 ? strtol(argv[2], NULL, 10) : 2000;
    struct record *records = calloc(steps > 0 ? (size_t)steps : 1, sizeof *records);
    FILE *logits = argc > 4 ? fopen(argv[4], "wb") : NULL;
    attnrun_status status = open_decoder(&g, argv[1]);
    if (status == ATTNRUN_OK)
        status = bind_inputs(&g);
    for (long k = 0; k < steps && status == ATTNRUN_OK; k++)
        status = step(&g, &records[k], logits);
    if (status == ATTNRUN_OK)
        report(records, steps, argc > 3 ? argv[3] : NULL);
    else
        fprintf(stderr, "generate: %s\n",
                g.refusal != NULL ? g.refusal : attnrun_last_error()->message);
    if (logits != NULL)
        fclose(logits);
    attnrun_context_destroy(g.context);
    attnrun_model_release(g.model);
    attnrun_runtime_destroy(g.runtime);
    for (int32_t i = 0; i < g.n_inputs && g.zeros != NULL; i++)
        free(g.zeros[i]);
    free(g.zeros);
    free(records);
    return attnrun_status_exit(status);
}
