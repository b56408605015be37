/* decode.c - continues a prompt with a language model in a folder that the model builder of
 * onnxruntime_genai wrote (model.onnx and genai_config.json):
 *
 *     decode FOLDER [--tokens N] [--chunk N] [--temperature T] [--top-k K] [--seed N]
 *                   [--threads N] <prompt >continuation
 *     cc decode.c $(pkg-config --cflags --libs attnrun) -lm
 *
 * The program reads and writes token numbers; decode.py converts them from and to text. The model
 * processes the prompt in chunks. The inputs past... are states of the context, to which the
 * library appends in place, within the capacity that the program requests. The next token is the
 * most likely one or, with a temperature, drawn from the K most likely ones. The program ends after
 * N tokens (128) or at the model's own end token. It prints tokens per second to standard error. */
#define _POSIX_C_SOURCE 200809L
#include <attnrun.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct decoder {
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    const char *folder, *refusal; /* of this program's own, or NULL */
    char *config;
    void **zeros; /* what the states begin with */
    float *logits;
    int64_t *ids, *positions, *mask; /* room for `room` tokens, positions three times */
    int64_t n_ids, room, tokens, chunk, top_k;
    int32_t n_inputs, logits_output, threads;
    double temperature;
    uint64_t random;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static attnrun_status refuse_decode(struct decoder *d, const char *why)
{
    d->refusal = why;
    return ATTNRUN_E_INPUT;
}

/* ---- the folder ---- */

static attnrun_status read_config(struct decoder *d)
{
    char path[4096];
    enum { MAX_BYTES = 1 << 20 };
    snprintf(path, sizeof path, "%s/genai_config.json", d->folder);
    FILE *file = fopen(path, "rb");
    d->config = calloc(MAX_BYTES + 1, 1);
    size_t bytes = file && d->config ? fread(d->config, 1, MAX_BYTES, file) : 0;
    if (file != NULL)
        fclose(file);
    return bytes > 0 ? ATTNRUN_OK
                     : refuse_decode(d, "no genai_config.json in the folder");
}

/* Where the value of a key of the configuration begins; each of those read is there once. */
static const char *value_of(const struct decoder *d, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *found = strstr(d->config, quoted);
    return found ? found + strlen(quoted) : NULL;
}

static int64_t number_of(const struct decoder *d, const char *key)
{
    const char *text = value_of(d, key);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* A number or a list of them. */
static bool ends(const struct decoder *d, int64_t token)
{
    const char *text = value_of(d, "eos_token_id");
    char *after;
    while (text != NULL) {
        text += strspn(text, " \t\r\n[,");
        const long long id = strtoll(text, &after, 10);
        if (after == text)
            return false;
        if (id == token)
            return true;
        text = *after == ',' || strchr(" \r\n\t", *after) ? after : NULL;
    }
    return false;
}

/* ---- inputs ---- */

static attnrun_status open_model(struct decoder *d)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model.onnx", d->folder);
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = d->threads };
    attnrun_source source = { .struct_size = sizeof source, .path = path };
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_status status = attnrun_runtime_create(&options, &d->runtime);
    if (status == ATTNRUN_OK)
        status = attnrun_model_open(d->runtime, &source, &d->model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(d->model, &d->context);
    if (status == ATTNRUN_OK)
        status = attnrun_model_query(d->model, &info);
    d->n_inputs = info.n_inputs;
    d->logits_output = status ? -1 : attnrun_model_find_output(d->model, "logits");
    return status                 ? status
           : d->logits_output < 0 ? refuse_decode(d, "no output 'logits'")
                                  : 0;
}

/* The size of an open dim of a state: nothing is past, a window's cache has its room. */
static int64_t first_size(const struct decoder *d, const char *name)
{
    if (strcmp(name, "batch_size") == 0)
        return 1;
    if (strcmp(name, "kv_cache_dim") == 0)
        return number_of(d, "head_size");
    if (strcmp(name, "past_sliding_length") == 0)
        return number_of(d, "window_size") + number_of(d, "cache_slack");
    return 0;
}

/* past_key_values.N.key becomes present.N.key, past.N.conv present.N.conv. */
static attnrun_status bind_state(struct decoder *d, int32_t input,
                                 const attnrun_value_info *past)
{
    char present[256];
    int64_t dims[ATTNRUN_MAX_RANK], whole[ATTNRUN_MAX_RANK];
    attnrun_tensor first, last;
    snprintf(present, sizeof present, "present%s", strchr(past->name, '.'));
    for (int32_t k = 0; k < past->rank; k++) {
        dims[k] = past->dims[k] >= 0 ? past->dims[k] : first_size(d, past->dim_names[k]);
        whole[k] = dims[k] > 0 ? dims[k] : d->room;
    }
    const int32_t output = attnrun_model_find_output(d->model, present);
    if (output < 0)
        return refuse_decode(d, "an input past... has no output present...");
    attnrun_status status =
        attnrun_tensor_make(past->dtype, past->rank, dims, NULL, &first);
    if (status == ATTNRUN_OK)
        status = attnrun_tensor_make(past->dtype, past->rank, whole, NULL, &last);
    if (status == ATTNRUN_OK)
        status =
            attnrun_add_state(d->context, input, output, attnrun_tensor_bytes(&last));
    if (status != ATTNRUN_OK)
        return status;
    first.data = d->zeros[input] = calloc(1, (size_t)attnrun_tensor_bytes(&first) + 1);
    if (first.data == NULL)
        return refuse_decode(d, "no memory");
    return attnrun_set_input(d->context, input, &first);
}

static attnrun_status bind_states(struct decoder *d)
{
    attnrun_status status = ATTNRUN_OK;
    d->zeros = calloc((size_t)d->n_inputs, sizeof *d->zeros);
    if (d->zeros == NULL)
        return refuse_decode(d, "no memory");
    for (int32_t i = 0; i < d->n_inputs && status == ATTNRUN_OK; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        status = attnrun_model_input(d->model, i, &info);
        if (status == ATTNRUN_OK && strncmp(info.name, "past", 4) == 0 &&
            strchr(info.name, '.') != NULL)
            status = bind_state(d, i, &info);
    }
    return status;
}

/* Those of a run that are there: the model needs not have all of them. */
static attnrun_status bind(struct decoder *d, const char *name, int64_t n, int64_t *data)
{
    const int32_t input = attnrun_model_find_input(d->model, name);
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_tensor tensor;
    if (input < 0)
        return ATTNRUN_OK;
    attnrun_status status = attnrun_model_input(d->model, input, &info);
    const int64_t dims[] = { 3, 1, n };
    if (status == ATTNRUN_OK && info.rank != 2 && info.rank != 3)
        status = refuse_decode(d, "an input of tokens is not of rank 2 or 3");
    if (status == ATTNRUN_OK)
        status = attnrun_tensor_make(ATTNRUN_I64, info.rank, dims + 3 - info.rank, data,
                                     &tensor);
    return status ? status : attnrun_set_input(d->context, input, &tensor);
}

/* ---- steps ---- */

static float to_float(uint16_t half)
{
    const int exponent = half >> 10 & 31;
    const float fraction = (float)(half & 1023) * 0x1p-10f;
    const float size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                       : exponent == 0 ? fraction * 0x1p-14f
                                       : ldexpf(1 + fraction, exponent - 15);
    return half >> 15 ? -size : size;
}

/* Logits behind the last of the run's tokens. */
static attnrun_status read_logits(struct decoder *d, int64_t *words)
{
    attnrun_tensor y;
    attnrun_status status = attnrun_output(d->context, d->logits_output, &y);
    if (status != ATTNRUN_OK)
        return status;
    if (y.rank != 3 || (y.dtype != ATTNRUN_F32 && y.dtype != ATTNRUN_F16))
        return refuse_decode(d, "the logits are not f32 or f16 of rank 3");
    const char *last = (char *)y.data + (y.dims[1] - 1) * y.strides[1];
    *words = y.dims[2];
    if (d->logits == NULL)
        d->logits = malloc((size_t)*words * sizeof *d->logits);
    if (d->logits == NULL)
        return refuse_decode(d, "no memory");
    for (int64_t k = 0; k < *words; k++)
        d->logits[k] = y.dtype == ATTNRUN_F32
                           ? ((const float *)(const void *)last)[k]
                           : to_float(((const uint16_t *)(const void *)last)[k]);
    return ATTNRUN_OK;
}

/* Tokens `from` up to `to` of the text; what is before them is in the states. */
static attnrun_status run_decode(struct decoder *d, int64_t from, int64_t to)
{
    const int64_t n = to - from;
    for (int64_t k = 0; k < 3 * n; k++)
        d->positions[k] = from + k % n;
    attnrun_status status = bind(d, "input_ids", n, d->ids + from);
    if (status == ATTNRUN_OK)
        status = bind(d, "attention_mask", to, d->mask);
    if (status == ATTNRUN_OK)
        status = bind(d, "position_ids", n, d->positions);
    return status ? status : attnrun_run(d->context, NULL);
}

/* A number in [0, 1): xorshift64*. */
static double draw_uniform(struct decoder *d)
{
    d->random ^= d->random >> 12;
    d->random ^= d->random << 25;
    d->random ^= d->random >> 27;
    return (double)((d->random * 2685821657736338717u) >> 11) * 0x1p-53;
}

static int64_t likeliest(const float *logits, int64_t words)
{
    int64_t best = 0;
    for (int64_t k = 1; k < words; k++)
        if (logits[k] > logits[best])
            best = k;
    return best;
}

/* One of the top_k likeliest, by the softmax over them; the others become -inf. */
static int64_t sampled(struct decoder *d, int64_t words)
{
    const float highest = d->logits[likeliest(d->logits, words)];
    const int64_t k = d->top_k < words ? d->top_k : words;
    double weights[1024], sum = 0;
    int64_t chosen[1024];
    for (int64_t i = 0; i < k; i++) {
        chosen[i] = likeliest(d->logits, words);
        weights[i] = exp((double)(d->logits[chosen[i]] - highest) / d->temperature);
        d->logits[chosen[i]] = -INFINITY;
        sum += weights[i];
    }
    double left = draw_uniform(d) * sum;
    for (int64_t i = 0; i < k - 1; i++)
        if ((left -= weights[i]) < 0)
            return chosen[i];
    return chosen[k - 1];
}

static attnrun_status next(struct decoder *d, int64_t *token)
{
    int64_t words = 0;
    attnrun_status status = read_logits(d, &words);
    if (status == ATTNRUN_OK)
        *token = d->temperature > 0 ? sampled(d, words) : likeliest(d->logits, words);
    return status;
}

static attnrun_status prefill(struct decoder *d)
{
    attnrun_status status = ATTNRUN_OK;
    const double start = now();
    for (int64_t from = 0; from < d->n_ids && status == ATTNRUN_OK; from += d->chunk) {
        const int64_t to = from + d->chunk;
        status = run_decode(d, from, to < d->n_ids ? to : d->n_ids);
    }
    if (status == ATTNRUN_OK)
        fprintf(stderr, "prompt: %lld tokens, %.1f tokens/s\n", (long long)d->n_ids,
                (double)d->n_ids / (now() - start));
    return status;
}

static attnrun_status generate(struct decoder *d)
{
    const double start = now();
    int64_t made = 0, token;
    attnrun_status status = ATTNRUN_OK;
    while (made < d->tokens && status == ATTNRUN_OK) {
        status = next(d, &token);
        if (status != ATTNRUN_OK || ends(d, token))
            break;
        printf("%lld\n", (long long)token);
        fflush(stdout);
        d->ids[d->n_ids++] = token;
        if (++made < d->tokens)
            status = run_decode(d, d->n_ids - 1, d->n_ids);
    }
    if (made > 1)
        fprintf(stderr, "continuation: %lld tokens, %.1f tokens/s\n", (long long)made,
                (double)(made - 1) / (now() - start));
    return status;
}

/* ---- the command ---- */

static attnrun_status read_prompt(struct decoder *d)
{
    int64_t room = 0;
    long long id;
    while (scanf("%lld", &id) == 1) {
        if (d->n_ids >= room) {
            room = 2 * room + 64;
            int64_t *more = realloc(d->ids, (size_t)room * sizeof *more);
            if (more == NULL)
                return refuse_decode(d, "no memory");
            d->ids = more;
        }
        d->ids[d->n_ids++] = id;
    }
    if (d->n_ids == 0)
        return refuse_decode(d, "no numbers of tokens on standard input");
    d->room = d->n_ids + d->tokens;
    int64_t *ids = realloc(d->ids, (size_t)d->room * sizeof *ids);
    d->ids = ids ? ids : d->ids;
    d->positions = malloc((size_t)d->room * 3 * sizeof *d->positions);
    d->mask = malloc((size_t)d->room * sizeof *d->mask);
    if (ids == NULL || d->positions == NULL || d->mask == NULL)
        return refuse_decode(d, "no memory");
    for (int64_t k = 0; k < d->room; k++)
        d->mask[k] = 1;
    return ATTNRUN_OK;
}

static bool read_options(struct decoder *d, int argc, char **argv)
{
    if (argc < 2 || argc % 2 != 0)
        return false;
    d->folder = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const double value = strtod(argv[i + 1], NULL);
        if (strcmp(argv[i], "--tokens") == 0 && value >= 1 && value < 1e9)
            d->tokens = (int64_t)value;
        else if (strcmp(argv[i], "--chunk") == 0 && value >= 1 && value < 1e9)
            d->chunk = (int64_t)value;
        else if (strcmp(argv[i], "--temperature") == 0 && value >= 0)
            d->temperature = value;
        else if (strcmp(argv[i], "--top-k") == 0 && value >= 1 && value <= 1024)
            d->top_k = (int64_t)value;
        else if (strcmp(argv[i], "--seed") == 0 && value >= 1 && value < 0x1p53)
            d->random = (uint64_t)value * 0x9E3779B97F4A7C15u;
        else if (strcmp(argv[i], "--threads") == 0 && value >= 1 && value < 1e4)
            d->threads = (int32_t)value;
        else
            return false;
    }
    return true;
}

static void end(struct decoder *d)
{
    attnrun_context_destroy(d->context);
    attnrun_model_release(d->model);
    attnrun_runtime_destroy(d->runtime);
    for (int32_t i = 0; i < d->n_inputs && d->zeros != NULL; i++)
        free(d->zeros[i]);
    free(d->zeros);
    free(d->config);
    free(d->logits);
    free(d->ids);
    free(d->positions);
    free(d->mask);
}

int main(int argc, char **argv)
{
    struct decoder d = {
        .tokens = 128, .chunk = 128, .top_k = 50, .random = 88172645463325252u
    };
    if (!read_options(&d, argc, argv)) {
        fprintf(stderr,
                "usage: decode FOLDER [--tokens N] [--chunk N] [--temperature T]\n"
                "              [--top-k K] [--seed N] [--threads N] <prompt\n");
        return 2;
    }
    attnrun_status status = read_config(&d);
    if (status == ATTNRUN_OK)
        status = read_prompt(&d);
    if (status == ATTNRUN_OK)
        status = open_model(&d);
    if (status == ATTNRUN_OK)
        status = bind_states(&d);
    if (status == ATTNRUN_OK)
        status = prefill(&d);
    if (status == ATTNRUN_OK)
        status = generate(&d);
    if (status != ATTNRUN_OK)
        fprintf(stderr, "decode: %s\n",
                d.refusal != NULL ? d.refusal : attnrun_last_error()->message);
    end(&d);
    return attnrun_status_exit(status);
}
