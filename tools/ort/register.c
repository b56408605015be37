/* register.c - RegisterCustomOps: every operator of domain attnrun, for an ONNX Runtime program.
 *
 * In: the options of a host's model, before it is loaded. Out: the operators in them, each for
 * f32, f16 and bf16. The entry attnrun.num_threads of the options, set before, chooses threads
 * of our own; without it those of the caller compute.
 * What is made here stays until the process ends: the library is never unloaded. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

#define DOMAIN      "attnrun"
#define THREADS_KEY "attnrun.num_threads"
enum { MAX_THREADS = 1024 };

static const int32_t dtypes[] = { ATTNRUN_F32, ATTNRUN_F16, ATTNRUN_BF16 };
enum { N_DTYPES = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct door *doors;

/* ---- what ONNX Runtime asks of an operator ---- */

static const struct door_op *op_of(const ort_custom_op *op)
{
    return (const struct door_op *)op;
}

static const char *op_name(const ort_custom_op *op) { return op_of(op)->row->name; }

static const char *op_provider(const ort_custom_op *op)
{
    (void)op;
    return NULL;
}

static int32_t op_input_type(const ort_custom_op *op, size_t i)
{
    return op_of(op)->in[i].dtype;
}

static size_t op_input_count(const ort_custom_op *op) { return (size_t)op_of(op)->n_in; }

static int32_t op_output_type(const ort_custom_op *op, size_t i)
{
    return op_of(op)->out[i].dtype;
}

static size_t op_output_count(const ort_custom_op *op)
{
    return (size_t)op_of(op)->n_out;
}

static int32_t op_input_form(const ort_custom_op *op, size_t i)
{
    return op_of(op)->in[i].form;
}

static int32_t op_output_form(const ort_custom_op *op, size_t i)
{
    return op_of(op)->out[i].form;
}

static int32_t op_input_memory(const ort_custom_op *op, size_t i)
{
    (void)op, (void)i;
    return 0; /* the provider's own */
}

static int op_none(const ort_custom_op *op)
{
    (void)op;
    return 0;
}

static int op_same(const ort_custom_op *op)
{
    (void)op;
    return 1;
}

static int op_since(const ort_custom_op *op) { return op_of(op)->row->since; }

static const ort_custom_op callbacks = {
    .version = ORT_OLDEST,
    .name = op_name,
    .provider = op_provider,
    .input_type = op_input_type,
    .input_count = op_input_count,
    .output_type = op_output_type,
    .output_count = op_output_count,
    .destroy = kernel_destroy,
    .input_form = op_input_form,
    .output_form = op_output_form,
    .input_memory = op_input_memory,
    .min_inputs = op_none,
    .same_inputs = op_same,
    .min_outputs = op_none,
    .same_outputs = op_same,
    .create_v2 = kernel_create,
    .compute_v2 = kernel_compute,
    .start_version = op_since,
};

/* ---- rows ---- */

static int32_t dtype_named(const char *name, size_t n)
{
    for (int32_t i = 1; i < ATTNRUN_DTYPE_COUNT; i++) {
        const char *known = attnrun_dtype_name(i);
        if (strlen(known) == n && memcmp(known, name, n) == 0)
            return i;
    }
    return 0;
}

/* "name:T", with a mark behind it. Of the letters T alone is the variant's; operands of the
 * others (indices) may be of any type that the library then accepts. */
static bool parse_operand(const char *word, size_t n, int32_t dtype,
                          struct door_operand *operand)
{
    const char *colon = memchr(word, ':', n);
    if (colon == NULL || colon - word >= DOOR_NAME)
        return false;
    const char *type = colon + 1;
    size_t rest = n - (size_t)(type - word);
    operand->form = ORT_REQUIRED;
    for (; rest > 0 && strchr("?*!", type[rest - 1]) != NULL; rest--) {
        if (type[rest - 1] == '?')
            operand->form = ORT_OPTIONAL;
        if (type[rest - 1] == '*')
            operand->form = ORT_VARIADIC;
    }
    memcpy(operand->name, word, (size_t)(colon - word));
    operand->name[colon - word] = 0;
    operand->dtype = rest == 1 ? (type[0] == 'T' ? dtype : 0) : dtype_named(type, rest);
    return rest == 1 || operand->dtype != 0;
}

/* How many operands the words have; -1 where one is of a kind that has no tensor. */
static int32_t parse_operands(const char *words, int32_t dtype,
                              struct door_operand *operands, int32_t room)
{
    int32_t count = 0;
    while (words != NULL && *words != 0) {
        size_t n = strcspn(words, " ");
        if (count == room || !parse_operand(words, n, dtype, &operands[count]))
            return -1;
        count++;
        words += n + strspn(words + n, " ");
    }
    return count;
}

static bool make_op(struct door *door, const attnrun_op_def *row, int32_t dtype,
                    struct door_op *op)
{
    *op = (struct door_op){ .base = callbacks, .row = row, .door = door };
    op->n_in = parse_operands(row->inputs, dtype, op->in, DOOR_MAX_IN);
    op->n_out = parse_operands(row->outputs, dtype, op->out, DOOR_MAX_OUT);
    return op->n_in > 0 && op->n_out > 0;
}

/* ---- doors ---- */

static bool list_ops(struct door *door)
{
    int32_t room = 0;
    const attnrun_op_def *row;
    for (int32_t i = 0; (row = attnrun_get_op(door->runtime, i)) != NULL; i++)
        room += strcmp(row->domain, DOMAIN) == 0 ? N_DTYPES : 0;
    door->ops = calloc((size_t)room + 1, sizeof *door->ops);
    if (door->ops == NULL)
        return false;
    for (int32_t i = 0; (row = attnrun_get_op(door->runtime, i)) != NULL; i++)
        for (int32_t k = 0; k < N_DTYPES && strcmp(row->domain, DOMAIN) == 0; k++)
            if (make_op(door, row, dtypes[k], &door->ops[door->n_ops]))
                door->n_ops++;
    return true;
}

static attnrun_status make_runtime(int32_t threads, attnrun_runtime **runtime)
{
    attnrun_pool pool;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = threads };
    if (threads == 0) { /* as many workers as the library would have */
        attnrun_runtime *probe;
        attnrun_status status = attnrun_runtime_create(NULL, &probe);
        if (status == ATTNRUN_OK)
            status = attnrun_runtime_query(probe, &info);
        if (status != ATTNRUN_OK)
            return status;
        attnrun_runtime_destroy(probe);
        workers_make(info.threads, &pool);
        options.pool = &pool;
    }
    return attnrun_runtime_create(&options, runtime);
}

static ort_status *make_domain(struct door *door)
{
    ort_status *status = door->api->create_domain(DOMAIN, &door->domain);
    for (int32_t i = 0; i < door->n_ops && status == NULL; i++)
        status = door->api->domain_add(door->domain, &door->ops[i].base);
    return status;
}

/* The door of these threads, made where it is not there yet. */
static ort_status *open_door(const ort_api *api, int32_t minor, int32_t threads,
                             struct door **opened)
{
    for (struct door *door = doors; door != NULL; door = door->next)
        if (door->api == api && door->threads == threads) {
            *opened = door;
            return NULL;
        }
    struct door *door = calloc(1, sizeof *door);
    if (door == NULL)
        return api->create_status(ORT_FAIL, "attnrun: no memory");
    *door = (struct door){ .api = api, .minor = minor, .threads = threads };
    ort_status *status = NULL;
    if (make_runtime(threads, &door->runtime) != ATTNRUN_OK)
        status = door_failed(door);
    else if (!list_ops(door))
        status = door_fail(door, ORT_FAIL, "attnrun: no memory");
    else
        status = make_domain(door);
    if (status != NULL) {
        attnrun_runtime_destroy(door->runtime);
        free(door->ops);
        free(door);
        return status;
    }
    door->next = doors;
    doors = door;
    *opened = door;
    return NULL;
}

/* The entry of the options, or 0. */
static ort_status *read_threads(const ort_api *api, const ort_options *options,
                                int32_t *threads)
{
    char text[16], *end = text;
    size_t n = sizeof text; /* becomes larger where the entry is */
    *threads = 0;
    ort_status *absent = api->config_entry(options, THREADS_KEY, text, &n);
    if (absent != NULL && n <= sizeof text) {
        api->release_status(absent);
        return NULL;
    }
    long value = absent == NULL ? strtol(text, &end, 10) : -1;
    if (absent != NULL)
        api->release_status(absent);
    if (value < 0 || value > MAX_THREADS || end == text || *end != 0)
        return api->create_status(ORT_INVALID_ARGUMENT,
                                  "attnrun: " THREADS_KEY " is a number from 0 to 1024");
    *threads = (int32_t)value;
    return NULL;
}

/* The name is the host's. NOLINTBEGIN(readability-identifier-naming) */
ATTNRUN_API ort_status *RegisterCustomOps(ort_options *options, const ort_api_base *base);

ort_status *RegisterCustomOps(ort_options *options, const ort_api_base *base)
{
    int minor = 0, threads;
    struct door *door = NULL;
    if (sscanf(base->version(), "1.%d", &minor) != 1 || minor < 1)
        minor = ORT_OLDEST;
    const ort_api *api = base->api((uint32_t)(minor < ORT_OLDEST ? minor : ORT_OLDEST));
    if (minor < ORT_OLDEST)
        return api->create_status(ORT_NOT_IMPLEMENTED,
                                  "attnrun: ONNX Runtime 1.17 or later is needed");
    ort_status *status = read_threads(api, options, &threads);
    if (status != NULL)
        return status;
    pthread_mutex_lock(&lock);
    status = open_door(api, minor, threads, &door);
    pthread_mutex_unlock(&lock);
    return status != NULL ? status : api->add_domain(options, door->domain);
}
/* NOLINTEND(readability-identifier-naming) */
