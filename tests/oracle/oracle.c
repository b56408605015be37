/* oracle.c - one model, many ways to run it: the results must agree.
 *
 *     oracle [--full] [--every N] [--from K] FOLDER...
 *     oracle --digest K [--every N] [--from K] FOLDER...
 *
 * in:  folders in the ONNX backend test form (model.onnx, test_data_set_0/input_<i>.pb), or
 *      folders that hold such folders at any depth; of all of them every N-th from the K-th
 * out: a line for each difference, one for the sums; exit code 1 where anything differs
 *
 * Each case runs on each instruction set of this CPU:
 *   - with one thread and memory filled with 0x00; and with four threads, memory filled with
 *     0xff, outputs in memory of the caller and matrices in place (ATTNRUN_IN_PLACE): the bits of
 *     all outputs are equal, the bits that pad types below 8 bits too, and nothing is written
 *     behind an output;
 *   - written as a packed file and opened from it (attnrun_model_save()): the same bits;
 *   - beside the first instruction set, written as a simplified ONNX model (attnrun_save_onnx());
 *   - beside the first instruction set, and without fusion: equal but for 1e-4 of
 *     max(1, max|y|) or one step of the output's type at max|y|, whichever is larger;
 *     integers, bool and strings exactly, but one step behind a quantisation.
 * A case that fails must fail with the same status in every way. Cases with operators
 * that draw random numbers without a seed are left out and counted. "Memory" is what the
 * allocator gives, the arena before each run, and the outputs and the scratch of each
 * step before it runs (runtime/fill.h). With --full the runs without fusion are made on
 * every instruction set, with both numbers of threads.
 *
 * With --digest each case runs in one way, on the best instruction set with 1 to 16 threads and a
 * byte that K chooses; a line "HASH FOLDER" tells the bits of its outputs, for check_bits.py. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../runtime/attnrun.h"
#include "../../runtime/fill.h"
#include "../../tools/io/value.h"
#include "oracle_given.h"
#include "oracle_packed.h"
#include "oracle_values.h"

enum { MAX_VALUES = 128, MAX_WAYS = 64, PATH_BYTES = 4096 };

/* ---- memory with a pattern ---- */

struct pattern_memory {
    attnrun_allocator allocator;
    int byte;
};

static void *pattern_alloc(void *user, size_t bytes, size_t align)
{
    const struct pattern_memory *memory = user;
    size_t room = (bytes + align - 1) / align * align;
    void *block = aligned_alloc(align, room > 0 ? room : align);
    if (block != NULL)
        memset(block, memory->byte, room > 0 ? room : align);
    return block;
}

static void pattern_free(void *user, void *block, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(block);
}

/* ---- the ways to run a case ---- */

struct way {
    char name[64];
    const char *isa;
    int threads, byte;
    bool fuse, packed, saved, in_place;
    int exact_as; /* the way whose bits are expected; -1: within the tolerance of way 0 */
    struct pattern_memory memory;
    attnrun_runtime *runtime;
};

struct result {
    attnrun_status status;
    char message[800];
    int32_t n;
    attnrun_tensor values[MAX_VALUES];
};

struct oracle {
    struct way ways[MAX_WAYS];
    int n_ways;
    bool full, digests;
    long every, from, seen;
    int compared, failed, random, refused;
};

static char current_case[PATH_BYTES]; /* for the signal handler */

static void on_crash(int number)
{
    static const char text[] = "CRASH in ";
    (void)!write(2, text, sizeof text - 1);
    (void)!write(2, current_case, strlen(current_case));
    (void)!write(2, "\n", 1);
    signal(number, SIG_DFL);
    raise(number);
}

static bool add_way(struct oracle *oracle, const char *isa, int threads, bool fuse,
                    int byte, int exact_as)
{
    struct way *way = &oracle->ways[oracle->n_ways];
    *way = (struct way){
        .isa = isa, .threads = threads, .byte = byte, .fuse = fuse, .exact_as = exact_as
    };
    way->memory = (struct pattern_memory){
        .allocator = { .struct_size = sizeof(attnrun_allocator),
                       .user = &way->memory,
                       .alloc = pattern_alloc,
                       .free = pattern_free },
        .byte = byte,
    };
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = threads,
                                        .isa = isa,
                                        .max_memory = UINT64_C(6) << 30,
                                        .allocator = &way->memory.allocator };
    snprintf(way->name, sizeof way->name, "%s, %d threads, %s, 0x%02x", isa, threads,
             fuse ? "fusion" : "no fusion", (unsigned)byte);
    if (attnrun_runtime_create(&options, &way->runtime) != ATTNRUN_OK)
        return false;
    oracle->n_ways++;
    return true;
}

/* The instruction sets of this CPU, the best one first; `digest` < 0: no digests are asked for. */
static void make_ways(struct oracle *oracle, long digest)
{
    static char names[128];
    attnrun_runtime *runtime;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    if (attnrun_runtime_create(NULL, &runtime) != ATTNRUN_OK ||
        attnrun_runtime_query(runtime, &info) != ATTNRUN_OK)
        exit(2);
    snprintf(names, sizeof names, "%s", info.isas);
    attnrun_runtime_destroy(runtime);
    for (char *end = names + strlen(names); end > names;) {
        char *space = memrchr(names, ' ', (size_t)(end - names));
        const char *isa = space != NULL ? space + 1 : names;
        *end = 0;
        end = space != NULL ? space : names;
        int first = oracle->n_ways;
        if (digest >= 0) {
            oracle->digests = add_way(oracle, isa, 1 + (int)(digest % 16), true,
                                      1 + (int)(digest % 255), -1);
            return;
        }
        if (oracle->n_ways + 6 > MAX_WAYS || !add_way(oracle, isa, 1, true, 0x00, -1)) {
            printf("oracle: no runtime of %s\n", isa);
            exit(2);
        }
        if (add_way(oracle, isa, 4, true, 0xff, first)) {
            struct way *way = &oracle->ways[oracle->n_ways - 1];
            way->in_place = true;
            snprintf(way->name, sizeof way->name, "%s, 4 threads, in place", isa);
        }
        if (add_way(oracle, isa, 2, true, 0xff, first)) {
            struct way *way = &oracle->ways[oracle->n_ways - 1];
            way->packed = true;
            snprintf(way->name, sizeof way->name, "%s, packed file", isa);
        }
        if (first > 0 && !oracle->full)
            continue;
        first = oracle->n_ways;
        add_way(oracle, isa, 1, false, 0x7e, -1);
        if (add_way(oracle, isa, 1, true, 0x7e, -1)) {
            struct way *way = &oracle->ways[oracle->n_ways - 1];
            way->saved = true;
            snprintf(way->name, sizeof way->name, "%s, written again", isa);
        }
        if (oracle->full)
            add_way(oracle, isa, 4, false, 0xff, first);
    }
}

/* ---- comparison ---- */

struct comparison {
    bool exact, quantized;
    char what[400];
};

static bool differs(struct comparison *c, const char *format, const char *a,
                    const char *b)
{
    snprintf(c->what, sizeof c->what, format, a, b);
    return false;
}

static bool same_bits(struct comparison *c, const attnrun_tensor *a,
                      const attnrun_tensor *b, int64_t n)
{
    if (a->dtype == ATTNRUN_STRING) {
        for (int64_t k = 0; k < n; k++) {
            const attnrun_string *s = &((attnrun_string *)a->data)[k],
                                 *t = &((attnrun_string *)b->data)[k];
            if (s->n != t->n || memcmp(s->data, t->data, (size_t)s->n) != 0)
                return differs(c, "strings: '%.100s' and '%.100s'", s->data, t->data);
        }
        return true;
    }
    int64_t bytes = attnrun_tensor_bytes(a);
    if (bytes == 0 || memcmp(a->data, b->data, (size_t)bytes) == 0)
        return true;
    for (int64_t k = 0; k < n; k++)
        if (strcmp(value_text(a, k), value_text(b, k)) != 0)
            return differs(c, "bits: %s and %s", value_text(a, k), value_text(b, k));
    return differs(c, "bits of padding or of a NaN%s%s", "", "");
}

/* One step of the type at the magnitude m. */
static double step_of(int32_t dtype, double m)
{
    static const int digits[ATTNRUN_DTYPE_COUNT] = {
        [ATTNRUN_F16] = 11,       [ATTNRUN_BF16] = 8,   [ATTNRUN_F8E4M3FN] = 4,
        [ATTNRUN_F8E4M3FNUZ] = 4, [ATTNRUN_F8E5M2] = 3, [ATTNRUN_F8E5M2FNUZ] = 3,
        [ATTNRUN_F4E2M1] = 2,     [ATTNRUN_F8E8M0] = 1, [ATTNRUN_F6E2M3] = 4,
        [ATTNRUN_F6E3M2] = 3,
    };
    int exponent;
    if (digits[dtype] == 0 || m <= 0)
        return 0;
    frexp(m, &exponent);
    return ldexp(1, exponent - digits[dtype]);
}

static double max_magnitude(const attnrun_tensor *a, int64_t n)
{
    double max = 0;
    for (int64_t k = 0; k < n; k++) {
        double m = fabs(value_get(a, k));
        if (isfinite(m) && m > max)
            max = m;
    }
    return max;
}

static bool close_floats(struct comparison *c, const attnrun_tensor *a,
                         const attnrun_tensor *b, int64_t n)
{
    double max = max_magnitude(a, n), bound = 1e-4 * (max > 1 ? max : 1);
    double step = step_of(a->dtype, max) * 1.001;
    bound = step > bound ? step : bound;
    for (int64_t k = 0; k < n; k++) {
        double x = value_get(a, k), y = value_get(b, k);
        double u = value_get_imaginary(a, k), v = value_get_imaginary(b, k);
        bool close = fabs(x - y) <= bound || x == y || (isnan(x) && isnan(y));
        close = close && (fabs(u - v) <= bound || u == v || (isnan(u) && isnan(v)));
        if (!close)
            return differs(c, "numbers: %s and %s", value_text(a, k), value_text(b, k));
    }
    return true;
}

static bool close_integers(struct comparison *c, const attnrun_tensor *a,
                           const attnrun_tensor *b, int64_t n)
{
    int64_t room =
        c->quantized && attnrun_dtype_bits(a->dtype) <= 16 && a->dtype != ATTNRUN_BOOL
            ? 1
            : 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t x = value_get_int(a, k), y = value_get_int(b, k);
        if (x - y > room || y - x > room)
            return differs(c, "integers: %s and %s", value_text(a, k), value_text(b, k));
    }
    return true;
}

static bool same_tensors(struct comparison *c, const attnrun_tensor *a,
                         const attnrun_tensor *b)
{
    int64_t n = attnrun_tensor_count(a);
    if (a->dtype != b->dtype || a->rank != b->rank ||
        memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) != 0)
        return differs(c, "%s and %s", value_shape(a), value_shape(b));
    if (c->exact || a->dtype == ATTNRUN_STRING)
        return same_bits(c, a, b, n);
    if (value_is_float(a->dtype) || value_is_complex(a->dtype))
        return close_floats(c, a, b, n);
    return close_integers(c, a, b, n);
}

static bool same_values(struct comparison *c, const attnrun_tensor *a,
                        const attnrun_tensor *b)
{
    if (a->kind != b->kind || (a->data == NULL) != (b->data == NULL))
        return differs(c, "one is a %s, the other a %s", value_shape(a), value_shape(b));
    if (a->kind == ATTNRUN_TENSOR)
        return same_tensors(c, a, b);
    if (a->kind == ATTNRUN_ABSENT || a->data == NULL)
        return true;
    int64_t n = inner_count(a);
    if (n != inner_count(b) || (a->kind == ATTNRUN_MAP && a->dims[0] != b->dims[0]))
        return differs(c, "%s and %s", value_shape(a), value_shape(b));
    for (int64_t i = 0; i < n; i++)
        if (!same_values(c, &((const attnrun_tensor *)a->data)[i],
                         &((const attnrun_tensor *)b->data)[i]))
            return false;
    return true;
}

/* ---- one case ---- */

static attnrun_status note(struct result *result, attnrun_status status)
{
    result->status = status;
    if (status != ATTNRUN_OK)
        snprintf(result->message, sizeof result->message, "%s",
                 attnrun_last_error()->message);
    return status;
}

static attnrun_tensor *read_input(attnrun_runtime *runtime, const char *folder, int32_t i,
                                  int32_t kind)
{
    char path[PATH_BYTES];
    attnrun_tensor *tensor = NULL;
    snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", folder, i);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    struct stat stat;
    size_t bytes = fstat(fileno(file), &stat) == 0 ? (size_t)stat.st_size : 0;
    char *data = malloc(bytes + 1);
    if (fread(data, 1, bytes, file) == bytes)
        (void)attnrun_tensor_from_pb(runtime, data, bytes, kind, &tensor, NULL);
    free(data);
    fclose(file);
    return tensor;
}

static void keep_outputs(attnrun_context *context, int32_t n, char **given,
                         struct result *result)
{
    for (int32_t i = 0; i < n; i++) {
        attnrun_tensor value;
        if (note(result, attnrun_output(context, i, &value)) != ATTNRUN_OK)
            return;
        if (given[i] != NULL)
            value.data = given[i];
        result->values[result->n++] = copy_value(&value);
    }
}

static attnrun_status run_context(struct way *way, attnrun_model *model,
                                  attnrun_context *context, const char *folder,
                                  struct result *result)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_tensor *inputs[MAX_VALUES] = { NULL };
    char *given[MAX_VALUES] = { NULL };
    attnrun_status status = attnrun_model_query(model, &info);
    int32_t n_in = info.n_inputs < MAX_VALUES ? info.n_inputs : MAX_VALUES;
    for (int32_t i = 0; i < n_in && status == ATTNRUN_OK; i++) {
        attnrun_value_info value = { .struct_size = sizeof value };
        status = attnrun_model_input(model, i, &value);
        inputs[i] = read_input(way->runtime, folder, i, value.kind);
        if (status == ATTNRUN_OK && inputs[i] != NULL)
            status = attnrun_set_input(context, i, inputs[i]);
    }
    for (int round = 0; round < 2 && status == ATTNRUN_OK; round++) /* planned, cached */
        status = attnrun_run(context, NULL);
    const int32_t n_out = info.n_outputs < MAX_VALUES ? info.n_outputs : MAX_VALUES;
    if (status == ATTNRUN_OK && way->threads == 4)
        status = run_given(context, n_out, given, current_case);
    if (note(result, status) == ATTNRUN_OK)
        keep_outputs(context, n_out, given, result);
    for (int32_t i = 0; i < n_out; i++)
        free(given[i]);
    for (int32_t i = 0; i < n_in; i++)
        attnrun_tensor_free(way->runtime, inputs[i]);
    return status;
}

static void run_way(struct way *way, const char *folder, struct result *result)
{
    char path[PATH_BYTES];
    attnrun_model *model;
    attnrun_context *context;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    attnrun_source source = { .struct_size = sizeof source,
                              .path = path,
                              .flags = way->fuse ? 0 : ATTNRUN_NO_FUSION };
    source.flags |= way->in_place ? (uint32_t)ATTNRUN_IN_PLACE : 0;
    attn_fill_byte = way->byte;
    struct bytes bytes = { .data = NULL };
    if ((way->saved &&
         note(result, write_again(way->runtime, &source, &bytes)) != ATTNRUN_OK) ||
        note(result, attnrun_model_open(way->runtime, &source, &model)) != ATTNRUN_OK) {
        free(bytes.data);
        return;
    }
    if (way->packed)
        note(result, open_packed(way->runtime, &model, &bytes));
    if (result->status == ATTNRUN_OK &&
        note(result, attnrun_context_create(model, &context)) == ATTNRUN_OK) {
        run_context(way, model, context, folder, result);
        attnrun_context_destroy(context);
    }
    attnrun_model_release(model);
    free(bytes.data);
}

static bool compare_results(struct oracle *oracle, const char *folder, int a, int b,
                            const struct result *results, bool quantized)
{
    const struct result *x = &results[a], *y = &results[b];
    struct comparison c = { .exact = oracle->ways[b].exact_as >= 0,
                            .quantized = quantized };
    if (x->status != y->status) {
        printf("FAIL %s: status %d '%s' (%s), %d '%s' (%s)\n", folder, x->status,
               x->message, oracle->ways[a].name, y->status, y->message,
               oracle->ways[b].name);
        return false;
    }
    for (int32_t i = 0; i < x->n && i < y->n; i++)
        if (!same_values(&c, &x->values[i], &y->values[i])) {
            printf("FAIL %s: output %d: %s; %s against %s\n", folder, i, c.what,
                   oracle->ways[a].name, oracle->ways[b].name);
            return false;
        }
    return true;
}

/* Whether nodes draw random numbers (then nothing can be compared), or quantise. */
static void look_at_nodes(struct oracle *oracle, const char *folder, bool *random,
                          bool *quantized)
{
    char path[PATH_BYTES];
    attnrun_model *model;
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_node_info node = { .struct_size = sizeof node };
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    attnrun_source source = { .struct_size = sizeof source,
                              .path = path,
                              .flags = ATTNRUN_NO_FUSION };
    *random = *quantized = false;
    if (attnrun_model_open(oracle->ways[0].runtime, &source, &model) != ATTNRUN_OK)
        return;
    (void)attnrun_model_query(model, &info);
    for (int32_t i = 0; i < info.n_nodes; i++)
        if (attnrun_model_node(model, i, &node) == ATTNRUN_OK) {
            *random = *random || strncmp(node.op_type, "Random", 6) == 0 ||
                      strcmp(node.op_type, "Bernoulli") == 0 ||
                      strcmp(node.op_type, "Multinomial") == 0 ||
                      strcmp(node.op_type, "Dropout") == 0;
            *quantized = *quantized || strstr(node.op_type, "Quant") != NULL ||
                         strncmp(node.op_type, "QLinear", 7) == 0;
        }
    attnrun_model_release(model);
}

static void digest_case(struct oracle *oracle, const char *folder)
{
    struct result *result = calloc(1, sizeof *result);
    uint64_t hash = ATTN_HASH_SEED;
    bool random, quantized;
    look_at_nodes(oracle, folder, &random, &quantized);
    if (!random)
        run_way(&oracle->ways[0], folder, result);
    for (int32_t i = 0; i < result->n; i++) {
        hash = digest_value(&result->values[i], hash);
        free_value(&result->values[i]);
    }
    if (result->status != ATTNRUN_OK)
        printf("refused-%d %s\n", result->status, folder);
    else if (!random)
        printf("%016" PRIx64 " %s\n", hash, folder);
    oracle->compared++;
    free(result);
}

static void run_case(struct oracle *oracle, const char *folder)
{
    snprintf(current_case, sizeof current_case, "%s", folder);
    if (oracle->digests) {
        digest_case(oracle, folder);
        return;
    }
    struct result *results = calloc((size_t)oracle->n_ways, sizeof *results);
    bool random, quantized, good = true;
    look_at_nodes(oracle, folder, &random, &quantized);
    oracle->random += random;
    for (int w = 0; w < oracle->n_ways && !random && good; w++) {
        int as = oracle->ways[w].exact_as >= 0 ? oracle->ways[w].exact_as : 0;
        run_way(&oracle->ways[w], folder, &results[w]);
        if (w > 0)
            good = compare_results(oracle, folder, as, w, results, quantized);
    }
    oracle->refused += !random && results[0].status != ATTNRUN_OK;
    oracle->compared += !random;
    oracle->failed += !good;
    for (int w = 0; w < oracle->n_ways; w++)
        for (int32_t i = 0; i < results[w].n; i++)
            free_value(&results[w].values[i]);
    free(results);
    fflush(stdout);
}

/* ---- folders ---- */

static bool exists(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct stat stat_of;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_BYTES &&
           stat(path, &stat_of) == 0;
}

static void walk(struct oracle *oracle, const char *folder, int depth)
{
    struct dirent **names;
    char below[PATH_BYTES];
    if (exists(folder, "model.onnx") && exists(folder, "test_data_set_0")) {
        if (oracle->seen++ % oracle->every == oracle->from)
            run_case(oracle, folder);
        return;
    }
    int n = depth < 4 ? scandir(folder, &names, NULL, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.' && names[i]->d_type == DT_DIR &&
            snprintf(below, sizeof below, "%s/%s", folder, names[i]->d_name) < PATH_BYTES)
            walk(oracle, below, depth + 1);
        free(names[i]);
    }
    if (n > 0)
        free(names);
}

int main(int argc, char **argv)
{
    struct oracle oracle = { .every = 1 };
    long digest = -1;
    int i = 1;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++)
        if (strcmp(argv[i], "--full") == 0)
            oracle.full = true;
        else if (strcmp(argv[i], "--digest") == 0 && i + 1 < argc)
            digest = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--every") == 0 && i + 1 < argc)
            oracle.every = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--from") == 0 && i + 1 < argc)
            oracle.from = strtol(argv[++i], NULL, 10);
        else
            oracle.every = 0;
    if (i == argc || oracle.every <= 0) {
        fprintf(stderr,
                "usage: oracle [--full|--digest K] [--every N] [--from K] FOLDER...\n");
        return 2;
    }
    signal(SIGSEGV, on_crash);
    signal(SIGABRT, on_crash);
    make_ways(&oracle, digest);
    for (; i < argc; i++)
        walk(&oracle, argv[i], 0);
    for (int w = 0; w < oracle.n_ways; w++)
        attnrun_runtime_destroy(oracle.ways[w].runtime);
    if (oracle.digests)
        return oracle.compared == 0;
    printf("%d cases in %d ways each (%d refused in all of them), %d differ, "
           "%d draw random numbers\n",
           oracle.compared, oracle.n_ways, oracle.refused, oracle.failed, oracle.random);
    return oracle.failed > 0 || oracle.compared == 0;
}
