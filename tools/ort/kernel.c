/* kernel.c - a kernel of ONNX Runtime that runs one node with attnrun.
 *
 * In: tensors of the host, read where they are. Out: tensors of the host, written where they are;
 * an output whose shape depends on data is copied once, since the host makes its memory after the
 * run. A kernel may run in several threads at once: each run takes a context of its own, which
 * stays for later ones. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "door.h"

enum { MAX_IDLE = 16 };

struct kernel {
    const struct door_op *op;
    struct one_node node;
    attnrun_model *model;
    pthread_mutex_t lock;
    attnrun_context *idle[MAX_IDLE];
    int32_t n_idle;
};

ort_status *door_fail(const struct door *door, int32_t code, const char *sentence)
{
    return door->api->create_status(code, sentence);
}

ort_status *door_failed(const struct door *door)
{
    const attnrun_error *error = attnrun_last_error();
    char sentence[sizeof error->message + sizeof error->hint + 16];
    int32_t code = ORT_FAIL;
    if (error->status == ATTNRUN_E_UNSUPPORTED || error->status == ATTNRUN_E_VERSION)
        code = ORT_NOT_IMPLEMENTED;
    if (error->status >= ATTNRUN_E_SHAPE && error->status <= ATTNRUN_E_INPUT)
        code = ORT_INVALID_ARGUMENT;
    if (error->hint[0] != 0)
        snprintf(sentence, sizeof sentence, "attnrun: %s (%s)", error->message,
                 error->hint);
    else
        snprintf(sentence, sizeof sentence, "attnrun: %s", error->message);
    return door_fail(door, code, sentence);
}

/* ---- contexts ---- */

static attnrun_status take_context(struct kernel *kernel, attnrun_context **context)
{
    *context = NULL;
    pthread_mutex_lock(&kernel->lock);
    if (kernel->n_idle > 0)
        *context = kernel->idle[--kernel->n_idle];
    pthread_mutex_unlock(&kernel->lock);
    return *context ? ATTNRUN_OK : attnrun_context_create(kernel->model, context);
}

static void give_context(struct kernel *kernel, attnrun_context *context)
{
    pthread_mutex_lock(&kernel->lock);
    if (kernel->n_idle < MAX_IDLE) {
        kernel->idle[kernel->n_idle++] = context;
        context = NULL;
    }
    pthread_mutex_unlock(&kernel->lock);
    attnrun_context_destroy(context);
}

/* ---- life ---- */

void kernel_destroy(void *op_kernel)
{
    struct kernel *kernel = op_kernel;
    if (kernel == NULL)
        return;
    for (int32_t i = 0; i < kernel->n_idle; i++)
        attnrun_context_destroy(kernel->idle[i]);
    attnrun_model_release(kernel->model);
    pthread_mutex_destroy(&kernel->lock);
    free(kernel->node.bytes);
    free(kernel);
}

/* Opens the model and makes the first context, which packs the constants. */
static ort_status *open_one_node(struct kernel *kernel)
{
    attnrun_context *context;
    attnrun_source source = { .struct_size = sizeof source,
                              .data = kernel->node.bytes,
                              .bytes = kernel->node.n_bytes };
    const struct door *door = kernel->op->door;
    if (attnrun_model_open(door->runtime, &source, &kernel->model) != ATTNRUN_OK ||
        attnrun_context_create(kernel->model, &context) != ATTNRUN_OK)
        return door_failed(door);
    give_context(kernel, context);
    return NULL;
}

ort_status *kernel_create(const ort_custom_op *op, const ort_api *api,
                          const ort_info *info, void **kernel)
{
    struct kernel *made = calloc(1, sizeof *made);
    if (made == NULL)
        return api->create_status(ORT_FAIL, "attnrun: no memory for a kernel");
    made->op = (const struct door_op *)op;
    pthread_mutex_init(&made->lock, NULL);
    ort_status *status = one_node_write(made->op, info, &made->node);
    if (status == NULL)
        status = open_one_node(made);
    if (status != NULL) {
        kernel_destroy(made);
        return status;
    }
    *kernel = made;
    return NULL;
}

/* ---- runs ---- */

/* A view of a tensor of the host. */
static ort_status *view_of(const struct door *door, const ort_value *value,
                           attnrun_tensor *tensor)
{
    void *data;
    size_t rank;
    int32_t dtype;
    ort_shape *shape;
    int64_t dims[ATTNRUN_MAX_RANK];
    const ort_api *api = door->api;
    ort_status *status = api->tensor_shape(value, &shape);
    if (status != NULL)
        return status;
    status = api->element_type(shape, &dtype);
    if (status == NULL)
        status = api->rank(shape, &rank);
    if (status == NULL && rank > ATTNRUN_MAX_RANK)
        status =
            door_fail(door, ORT_INVALID_ARGUMENT, "attnrun: a tensor of rank over 8");
    if (status == NULL)
        status = api->dims(shape, dims, rank);
    api->release_shape(shape);
    if (status == NULL)
        status = api->tensor_data((ort_value *)(uintptr_t)value, &data);
    if (status != NULL)
        return status;
    return attnrun_tensor_make(dtype, (int32_t)rank, dims, data, tensor) == ATTNRUN_OK
               ? NULL
               : door_failed(door);
}

static ort_status *set_inputs(const struct kernel *kernel, attnrun_context *context,
                              const ort_context *host, attnrun_tensor *inputs)
{
    const struct door *door = kernel->op->door;
    for (int32_t i = 0; i < kernel->node.n_in; i++) {
        const ort_value *value = NULL;
        ort_status *status = door->api->input(host, (size_t)kernel->node.from[i], &value);
        if (status != NULL)
            return status;
        if (value == NULL)
            return door_fail(door, ORT_INVALID_ARGUMENT, "attnrun: an input is missing");
        status = view_of(door, value, &inputs[i]);
        if (status != NULL)
            return status;
        if (attnrun_set_input(context, i, &inputs[i]) != ATTNRUN_OK)
            return door_failed(door);
    }
    return NULL;
}

/* The host's memory for an output of these dims as a dense tensor; `data` is NULL where the host
 * does not want it. */
static ort_status *host_output(const struct kernel *kernel, ort_context *host, int32_t i,
                               const attnrun_tensor *like, attnrun_tensor *tensor)
{
    void *data = NULL;
    ort_value *value = NULL;
    const struct door *door = kernel->op->door;
    ort_status *status = door->api->output(host, (size_t)kernel->node.to[i], like->dims,
                                           (size_t)like->rank, &value);
    if (status == NULL && value != NULL)
        status = door->api->tensor_data(value, &data);
    if (status != NULL)
        return status;
    return attnrun_tensor_make(like->dtype, like->rank, like->dims, data, tensor) ==
                   ATTNRUN_OK
               ? NULL
               : door_failed(door);
}

/* Outputs whose shapes follow from those of the inputs are written into the host's memory:
 * `bound` says which. */
static ort_status *bind_outputs(const struct kernel *kernel, attnrun_context *context,
                                ort_context *host, const attnrun_tensor *inputs,
                                bool *bound)
{
    attnrun_tensor planned, tensor;
    if (attnrun_plan(context, inputs, NULL) != ATTNRUN_OK)
        return door_failed(kernel->op->door);
    for (int32_t i = 0; i < kernel->node.n_out; i++) {
        if (attnrun_plan_output(context, i, &planned) != ATTNRUN_OK)
            continue;
        ort_status *status = host_output(kernel, host, i, &planned, &tensor);
        if (status != NULL)
            return status;
        bound[i] =
            tensor.data != NULL && attnrun_set_output(context, i, &tensor) == ATTNRUN_OK;
    }
    return NULL;
}

/* The others are copied after the run. */
static ort_status *copy_outputs(const struct kernel *kernel, attnrun_context *context,
                                ort_context *host, const bool *bound)
{
    attnrun_tensor made, tensor;
    const struct door *door = kernel->op->door;
    for (int32_t i = 0; i < kernel->node.n_out; i++) {
        if (bound[i])
            continue;
        if (attnrun_output(context, i, &made) != ATTNRUN_OK)
            return door_failed(door);
        ort_status *status = host_output(kernel, host, i, &made, &tensor);
        if (status != NULL)
            return status;
        if (tensor.data != NULL)
            workers_copy(door, tensor.data, made.data,
                         (size_t)attnrun_tensor_bytes(&tensor));
    }
    return NULL;
}

static ort_status *compute_in(const struct kernel *kernel, attnrun_context *context,
                              ort_context *host)
{
    bool bound[DOOR_MAX_OUT] = { false };
    attnrun_tensor inputs[DOOR_MAX_IN];
    ort_status *status = set_inputs(kernel, context, host, inputs);
    if (status == NULL)
        status = bind_outputs(kernel, context, host, inputs, bound);
    if (status == NULL && attnrun_run(context, NULL) != ATTNRUN_OK)
        status = door_failed(kernel->op->door);
    if (status == NULL)
        status = copy_outputs(kernel, context, host, bound);
    for (int32_t i = 0; i < kernel->node.n_out; i++)
        attnrun_set_output(context, i, NULL);
    return status;
}

ort_status *kernel_compute(void *op_kernel, ort_context *host)
{
    struct kernel *kernel = op_kernel;
    attnrun_context *context;
    const struct door *door = kernel->op->door;
    if (take_context(kernel, &context) != ATTNRUN_OK)
        return door_failed(door);
    struct workers_scope before = workers_enter(door, host);
    ort_status *status = compute_in(kernel, context, host);
    workers_leave(before);
    give_context(kernel, context);
    return status;
}
