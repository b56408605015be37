/* api_objects.c - the calls of fuzz_api on runtimes and models; see api_case.h. */
#include "api_case.h"

enum { BUDGET = 96 << 20, TIMEOUT_US = 300000, WRITTEN = 1 << 22 };

/* ---- objects ---- */

attnrun_runtime *api_any_runtime(struct api_case *a)
{
    return a->runtimes[fuzz_below(&a->r, API_RUNTIMES)];
}

struct api_model *api_any_model(struct api_case *a)
{
    const int64_t first = fuzz_below(&a->r, API_MODELS);
    for (int64_t i = 0; i < API_MODELS && !fuzz_chance(&a->r, 3); i++)
        if (a->models[(first + i) % API_MODELS].handle != NULL)
            return &a->models[(first + i) % API_MODELS];
    return &a->models[first];
}

struct api_context *api_any_context(struct api_case *a)
{
    const int64_t first = fuzz_below(&a->r, API_CONTEXTS);
    for (int64_t i = 0; i < API_CONTEXTS && !fuzz_chance(&a->r, 3); i++)
        if (a->contexts[(first + i) % API_CONTEXTS].handle != NULL)
            return &a->contexts[(first + i) % API_CONTEXTS];
    return &a->contexts[first];
}

void api_close_context(struct api_context *c)
{
    attnrun_context_destroy(c->handle);
    memset(c, 0, sizeof *c);
}

void api_close_model(struct api_model *model)
{
    attnrun_model_release(model->handle);
    memset(model, 0, sizeof *model);
}

struct api_context *api_open_context(struct api_case *a, struct api_model *model)
{
    struct api_context *c = NULL;
    for (int i = 0; i < API_CONTEXTS && c == NULL; i++)
        c = a->contexts[i].handle == NULL ? &a->contexts[i] : NULL;
    if (c == NULL)
        return NULL;
    memset(c, 0, sizeof *c);
    if (API(a, attnrun_context_create(model->handle, &c->handle)) != ATTNRUN_OK) {
        if (c->handle != NULL)
            api_wrong(a, "it failed, and gave a context");
        return NULL;
    }
    c->from = model->from;
    c->model = model->handle;
    c->n_inputs = model->info.n_inputs;
    c->n_outputs = model->info.n_outputs;
    for (int32_t i = 0; i < API_INPUTS; i++) {
        c->inputs[i].struct_size = c->outputs[i].struct_size = sizeof *c->inputs;
        if (i < c->n_inputs)
            API(a, attnrun_model_input(model->handle, i, &c->inputs[i]));
        if (i < c->n_outputs)
            API(a, attnrun_model_output(model->handle, i, &c->outputs[i]));
    }
    API(a, attnrun_set_timeout(c->handle, TIMEOUT_US));
    return c;
}

/* ---- runtimes ---- */

static void take_log(void *user, int32_t level, const char *message)
{
    const struct api_case *a = user;
    if (level < 1 || level > 3 || message == NULL || message[0] == 0)
        api_wrong(a, "a message of the log is empty");
}

/* A caller's pool: one thread, which is each worker in turn, and takes the tasks backwards. */
static void take_tasks(void *user, int64_t n, int64_t grain, attnrun_task_fn fn,
                       void *arg)
{
    const attnrun_pool *pool = user;
    const int64_t step = grain > 0 ? grain : 1;
    int32_t worker = 0;
    for (int64_t end = n; end > 0; end -= step) {
        fn(arg, end > step ? end - step : 0, end, worker);
        worker = (worker + 1) % pool->max_workers;
    }
}

static const attnrun_pool *any_pool(struct api_case *a)
{
    attnrun_pool *pool = api_given(a, sizeof *pool);
    if (!fuzz_chance(&a->r, 25))
        return NULL;
    pool->max_workers = 1 + (int32_t)fuzz_below(&a->r, 4);
    pool->user = pool;
    pool->parallel_for = take_tasks;
    if (fuzz_chance(&a->r, 4))
        pool->max_workers = -(int32_t)fuzz_below(&a->r, 3);
    if (fuzz_chance(&a->r, 4))
        pool->parallel_for = NULL;
    return pool;
}

static void create_runtime(struct api_case *a)
{
    static const char *const isas[] = { NULL, NULL, "base", "avx2", "avx512", "z80", "" };
    const int at = (int)fuzz_below(&a->r, API_RUNTIMES);
    if (a->runtimes[at] != NULL) { /* its models go on without the caller's hold */
        if (fuzz_chance(&a->r, 15)) {
            attnrun_runtime_destroy(a->runtimes[at]);
            a->runtimes[at] = NULL;
        }
        return;
    }
    attnrun_runtime_options *options = api_given(a, sizeof *options);
    options->threads = fuzz_chance(&a->r, 95) ? 1 + (int32_t)fuzz_below(&a->r, 3)
                                              : -1 - (int32_t)fuzz_below(&a->r, 9);
    options->isa = isas[fuzz_below(&a->r, fuzz_chance(&a->r, 90) ? 4 : 7)];
    options->max_memory =
        fuzz_chance(&a->r, 85) ? BUDGET : UINT64_C(1) << (10 + fuzz_below(&a->r, 13));
    options->allocator = &a->memory.allocator;
    options->pool = any_pool(a);
    options->log = fuzz_chance(&a->r, 30) ? take_log : NULL;
    options->log_user = a;
    a->budgets[at] = options->max_memory;
    if (api_spoil(a, options, sizeof *options) != options || options->struct_size == 0)
        options->struct_size = sizeof *options; /* all memory is of our allocator */
    if (options->struct_size < sizeof *options)
        options->struct_size = sizeof *options;
    if (API(a, attnrun_runtime_create(options, &a->runtimes[at])) != ATTNRUN_OK &&
        a->runtimes[at] != NULL)
        api_wrong(a, "it failed, and gave a runtime");
}

/* ---- opening ---- */

static const attnrun_limits *any_limits(struct api_case *a)
{
    attnrun_limits *limits = api_given(a, sizeof *limits);
    int64_t *const first = &limits->file_bytes;
    const int64_t n = (int64_t)((sizeof *limits - offsetof(attnrun_limits, file_bytes)) /
                                sizeof *first);
    if (!fuzz_chance(&a->r, 15))
        return NULL;
    for (int64_t k = fuzz_below(&a->r, 4); k > 0; k--)
        first[fuzz_below(&a->r, n)] =
            fuzz_chance(&a->r, 80) ? 1 + fuzz_below(&a->r, 100000) : fuzz_int(&a->r);
    return api_spoil(a, limits, sizeof *limits);
}

/* Names of values and symbols that a model of the same source has, or junk. */
static void add_names(struct api_case *a, const struct api_model *known,
                      attnrun_source *source)
{
    const char **names = api_hold(a, 4 * (int64_t)sizeof *names);
    attnrun_fixed_dim *fixed = api_hold(a, 4 * (int64_t)sizeof *fixed);
    attnrun_value_info value = { .struct_size = sizeof value };
    for (int i = 0; i < 4; i++) {
        names[i] = api_name(a, known);
        fixed[i] = (attnrun_fixed_dim){ "batch", fuzz_int(&a->r) };
        if (known->info.n_inputs > 0 &&
            attnrun_model_input(known->handle, i % known->info.n_inputs, &value) ==
                ATTNRUN_OK &&
            value.rank > 0) {
            char *copy = api_hold(a, (int64_t)sizeof value.dim_names[0]);
            memcpy(copy, value.dim_names[fuzz_below(&a->r, value.rank)],
                   sizeof value.dim_names[0]);
            fixed[i] = (attnrun_fixed_dim){ copy, fuzz_below(&a->r, 6) };
        }
    }
    if (fuzz_chance(&a->r, 30)) {
        source->more_outputs = names;
        source->n_more_outputs = fuzz_below(&a->r, 5);
    }
    if (fuzz_chance(&a->r, 30)) {
        source->fixed_dims = fixed;
        source->n_fixed_dims = fuzz_below(&a->r, 4);
    }
    if (fuzz_chance(&a->r, 2))
        source->n_more_outputs = fuzz_int(&a->r) < 0 ? -1 : 1;
}

static attnrun_source *any_source(struct api_case *a, const void *data, uint64_t bytes,
                                  const struct api_model *known)
{
    static const char *const passes[] = { "", "no_such_pass", "attention", ",,", "cse" };
    static const int32_t stop[2] = { 0, 1 };
    attnrun_source *source = api_given(a, sizeof *source);
    source->data = data;
    source->bytes = bytes;
    source->timeout_us = fuzz_chance(&a->r, 97) ? 1000000 : fuzz_below(&a->r, 1000) - 100;
    if (source->timeout_us == 0)
        source->timeout_us = 1;
    if (fuzz_chance(&a->r, 40))
        source->flags = (uint32_t)fuzz_below(&a->r, 64);
    if (fuzz_chance(&a->r, 2))
        source->flags |= UINT32_C(1) << fuzz_below(&a->r, 32);
    if (fuzz_chance(&a->r, 15))
        source->precision = fuzz_chance(&a->r, 90) ? (int32_t)fuzz_below(&a->r, 3) : 9;
    if (fuzz_chance(&a->r, 15))
        source->ragged = fuzz_chance(&a->r, 90) ? (int32_t)fuzz_below(&a->r, 3) : -1;
    if (fuzz_chance(&a->r, 5))
        source->disable_passes = passes[fuzz_below(&a->r, 5)];
    if (fuzz_chance(&a->r, 5))
        source->cancel = &stop[fuzz_below(&a->r, 2)];
    if (fuzz_chance(&a->r, 3))
        source->path = fuzz_chance(&a->r, 50) ? "/no/such/file.onnx" : "";
    if (fuzz_chance(&a->r, 3))
        source->data = NULL;
    if (fuzz_chance(&a->r, 3))
        source->external_dir = "/no/such/folder";
    source->limits = any_limits(a);
    if (known->handle != NULL)
        add_names(a, known, source);
    return source;
}

static void open_in_place(struct api_case *a, struct fuzz_case *from, const void *data,
                          uint64_t bytes)
{
    struct api_model *model = NULL;
    const int at = (int)fuzz_below(&a->r, API_RUNTIMES);
    for (int i = 0; i < API_MODELS && model == NULL; i++)
        model = a->models[i].handle == NULL ? &a->models[i] : NULL;
    if (model == NULL)
        api_close_model(model = &a->models[fuzz_below(&a->r, API_MODELS)]);
    if (a->runtimes[at] == NULL)
        return; /* a model without a runtime has memory of its own */
    const attnrun_source *source = any_source(a, data, bytes, api_any_model(a));
    source = api_spoil(a, (void *)(uintptr_t)source, sizeof *source);
    if (API(a, attnrun_model_open(a->runtimes[at], source, &model->handle)) !=
        ATTNRUN_OK) {
        if (model->handle != NULL)
            api_wrong(a, "it failed, and gave a model");
        return;
    }
    model->from = from;
    model->budget = a->budgets[at];
    model->info.struct_size = sizeof model->info;
    API(a, attnrun_model_query(model->handle, &model->info));
    if (fuzz_chance(&a->r, 5)) {
        attnrun_model_retain(model->handle);
        attnrun_model_release(model->handle);
    }
}

static void open_source(struct api_case *a)
{
    struct fuzz_case *from = &a->sources[fuzz_below(&a->r, API_SOURCES)];
    if (from->model != NULL)
        open_in_place(a, from, from->model, from->bytes);
}

/* ---- writing ---- */

struct written {
    uint8_t *data;
    uint64_t n, end; /* it fails at byte `end` */
};

static int32_t take_bytes(void *user, const void *data, uint64_t n)
{
    struct written *w = user;
    if (n > w->end - w->n)
        return 1;
    memcpy(w->data + w->n, data, n);
    w->n += n;
    return 0;
}

/* What was written opens again, in a place of its own. */
static void save_model(struct api_case *a)
{
    struct api_model *model = api_any_model(a);
    struct written w = { .end =
                             fuzz_chance(&a->r, 80) ? WRITTEN : fuzz_below(&a->r, 5000) };
    w.data = malloc(WRITTEN);
    if (w.data == NULL)
        api_wrong(a, "the fuzz itself has no memory left");
    if (API(a, attnrun_model_save(model->handle, take_bytes, &w)) == ATTNRUN_OK) {
        uint8_t *kept = api_hold(a, (int64_t)w.n);
        memcpy(kept, w.data, w.n);
        open_in_place(a, model->from, kept, w.n);
    }
    free(w.data);
}

static void save_onnx(struct api_case *a)
{
    const struct api_model *known = api_any_model(a);
    struct fuzz_case *from = &a->sources[fuzz_below(&a->r, API_SOURCES)];
    struct written w = { .end =
                             fuzz_chance(&a->r, 90) ? WRITTEN : fuzz_below(&a->r, 500) };
    attnrun_onnx_edit *edit = api_given(a, sizeof *edit);
    struct api_filled saved;
    attnrun_onnx_saved *to = api_to_fill(a, &saved, sizeof(attnrun_onnx_saved));
    const char **names = api_hold(a, 8 * (int64_t)sizeof *names);
    if (from->model == NULL || a->runtimes[0] == NULL)
        return;
    for (int i = 0; i < 8; i++)
        names[i] = known->handle != NULL ? api_name(a, known) : "x";
    edit->flags = (uint32_t)fuzz_below(&a->r, fuzz_chance(&a->r, 95) ? 2 : 9);
    edit->n_inputs = fuzz_chance(&a->r, 60) ? 0 : fuzz_below(&a->r, 4);
    edit->n_outputs = fuzz_chance(&a->r, 60) ? 0 : fuzz_below(&a->r, 4);
    edit->inputs = names;
    edit->outputs = names + 4;
    const attnrun_source *source = any_source(a, from->model, from->bytes, known);
    source = api_spoil(a, (void *)(uintptr_t)source, sizeof *source);
    edit = api_spoil(a, edit, sizeof *edit);
    w.data = malloc(WRITTEN);
    if (w.data == NULL)
        api_wrong(a, "the fuzz itself has no memory left");
    const attnrun_status status =
        API(a, attnrun_save_onnx(a->runtimes[0], source, edit, take_bytes, &w, to));
    api_is_filled(a, &saved, status);
    if (status == ATTNRUN_OK) {
        uint8_t *kept = api_hold(a, (int64_t)w.n);
        memcpy(kept, w.data, w.n);
        open_in_place(a, from, kept, w.n);
    }
    free(w.data);
}

/* ---- questions ---- */

static void ask_runtime(struct api_case *a)
{
    struct api_filled filled;
    attnrun_runtime *runtime = api_any_runtime(a);
    attnrun_runtime_info *info = api_to_fill(a, &filled, sizeof *info);
    api_is_filled(a, &filled, API(a, attnrun_runtime_query(runtime, info)));
    if (runtime != NULL) {
        const attnrun_op_def *op = attnrun_get_op(runtime, api_index(a, 900));
        a->sum += op != NULL ? strlen(op->name) : 0;
        API(a, attnrun_load_plugin(runtime, "/no/such/plugin.so"));
    }
    attnrun_op_def bad = { .struct_size = sizeof bad,
                           .domain = fuzz_chance(&a->r, 50) ? "d" : NULL,
                           .name = fuzz_chance(&a->r, 50) ? "Bad" : "",
                           .since = (int32_t)fuzz_int(&a->r),
                           .inputs = "x:T y",
                           .outputs = "z:Q",
                           .types = "T=f32 =" };
    if (API(a, attnrun_register_op(runtime, &bad)) == ATTNRUN_OK)
        api_wrong(a, "a malformed row is taken");
}

static void read_value_info(struct api_case *a, const struct api_filled *filled,
                            attnrun_status status)
{
    attnrun_value_info info;
    if (!api_is_filled(a, filled, status))
        return;
    memcpy(&info, filled->bytes, sizeof info);
    for (const char *at = info.name; at != NULL && *at != 0; at++)
        a->sum += (uint64_t)*at;
    if (info.constant != NULL && info.constant->data != NULL)
        a->sum = fuzz_read(&a->sources[0], info.constant, a->sum);
}

static void ask_model(struct api_case *a)
{
    struct api_filled filled;
    struct api_model *m = api_any_model(a);
    attnrun_value_info *value = api_to_fill(a, &filled, sizeof *value);
    switch (fuzz_below(&a->r, 4)) {
    case 0:
        read_value_info(a, &filled,
                        API(a, attnrun_model_input(
                                   m->handle, api_index(a, m->info.n_inputs), value)));
        break;
    case 1:
        read_value_info(a, &filled,
                        API(a, attnrun_model_output(
                                   m->handle, api_index(a, m->info.n_outputs), value)));
        break;
    case 2: {
        const char *name = m->handle != NULL ? api_name(a, m) : "x";
        read_value_info(a, &filled, API(a, attnrun_model_value(m->handle, name, value)));
        if (attnrun_model_find_input(m->handle, name) >= m->info.n_inputs ||
            attnrun_model_find_output(m->handle, name) >= m->info.n_outputs)
            api_wrong(a, "an index that the model does not have");
        break;
    }
    default: {
        struct api_filled more;
        attnrun_model_info *info = api_to_fill(a, &more, sizeof *info);
        api_is_filled(a, &more, API(a, attnrun_model_query(m->handle, info)));
    }
    }
}

static void see_op(void *user, const attnrun_op_def *op)
{
    struct api_case *a = user;
    a->sum += strlen(op->name);
}

/* The main graph, and one within a node of it where there is one. */
static void list_graphs(struct api_case *a, const struct api_model *m, int32_t index)
{
    struct api_filled filled, node, value;
    const attnrun_graph *graph = NULL, *inner = NULL;
    const char *attribute = NULL;
    API(a, attnrun_model_graph(m->handle, &graph));
    if (API(a, attnrun_subgraph(graph, index, api_index(a, 2), &attribute, &inner)) ==
        ATTNRUN_OK)
        graph = inner;
    attnrun_graph_info *info = api_to_fill(a, &filled, sizeof *info);
    api_is_filled(a, &filled, API(a, attnrun_graph_query(graph, info)));
    attnrun_node_info *found = api_to_fill(a, &node, sizeof *found);
    api_is_filled(a, &node, API(a, attnrun_graph_node(graph, api_index(a, 4), found)));
    attnrun_value_info *of = api_to_fill(a, &value, sizeof *of);
    api_is_filled(a, &value, API(a, attnrun_graph_value(graph, "x", of)));
}

static void list_model(struct api_case *a)
{
    struct api_filled node, attribute;
    struct api_model *m = api_any_model(a);
    const char *one = NULL, *two = NULL, *three = NULL;
    int64_t version;
    int32_t applied;
    const int32_t index = api_index(a, m->info.n_nodes);
    attnrun_node_info *info = api_to_fill(a, &node, sizeof *info);
    attnrun_attribute_info *found = api_to_fill(a, &attribute, sizeof *found);
    api_is_filled(a, &node, API(a, attnrun_model_node(m->handle, index, info)));
    api_is_filled(
        a, &attribute,
        API(a, attnrun_model_attribute(m->handle, index, api_index(a, 3), found)));
    list_graphs(a, m, index);
    API(a, attnrun_model_metadata(m->handle, api_index(a, 2), &one, &two));
    API(a, attnrun_model_opset(m->handle, api_index(a, 2), &one, &version));
    one = attnrun_get_pass(api_index(a, m->info.n_passes));
    a->sum += one != NULL ? strlen(one) : 0;
    API(a, attnrun_model_pass(m->handle, api_index(a, m->info.n_passes), &one, &applied));
    API(a,
        attnrun_model_note(m->handle, api_index(a, m->info.n_notes), &one, &two, &three));
    API(a, attnrun_model_ops(m->handle, fuzz_chance(&a->r, 95) ? see_op : NULL, a));
    API(a, attnrun_runtime_ops(api_any_runtime(a), see_op, a));
}

/* What the library says a model takes; and of states that may not exist. */
static void plan_model(struct api_case *a)
{
    struct api_filled filled;
    struct api_model *m = api_any_model(a);
    attnrun_state_pair pairs[3];
    attnrun_value_info infos[API_INPUTS];
    attnrun_model_need *need = api_to_fill(a, &filled, sizeof *need);
    if (m->handle == NULL)
        return;
    for (int32_t i = 0; i < m->info.n_inputs && i < API_INPUTS; i++) {
        infos[i].struct_size = sizeof infos[i];
        API(a, attnrun_model_input(m->handle, i, &infos[i]));
    }
    for (int i = 0; i < 3; i++)
        pairs[i] = (attnrun_state_pair){ api_index(a, m->info.n_inputs),
                                         api_index(a, m->info.n_outputs),
                                         fuzz_chance(&a->r, 70) ? 0 : fuzz_int(&a->r) };
    const attnrun_tensor *inputs = api_shapes(a, m->from, m->info.n_inputs, infos);
    const int64_t n = fuzz_chance(&a->r, 95) ? fuzz_below(&a->r, 4) : -1;
    api_is_filled(
        a, &filled,
        fuzz_chance(&a->r, 60)
            ? API(a, attnrun_model_plan(m->handle, inputs, need))
            : API(a, attnrun_model_plan_states(m->handle, inputs, pairs, n, need)));
}

static void read_pb(struct api_case *a)
{
    attnrun_runtime *runtime = a->runtimes[fuzz_below(&a->r, API_RUNTIMES)];
    const struct fuzz_case *from = &a->sources[fuzz_below(&a->r, API_SOURCES)];
    attnrun_tensor *tensor = NULL;
    const char *name = NULL;
    if (runtime == NULL || from->model == NULL)
        return;
    const uint64_t at = (uint64_t)fuzz_below(&a->r, (int64_t)from->bytes);
    if (API(a, attnrun_tensor_from_pb(runtime, from->model + at, from->bytes - at,
                                      api_index(a, 7), &tensor, &name)) != ATTNRUN_OK)
        return;
    a->sum += name != NULL ? strlen(name) : 0;
    attnrun_tensor_free(runtime, tensor);
}

void api_call_object(struct api_case *a)
{
    static void (*const calls[])(struct api_case *) = {
        create_runtime, create_runtime, open_source, open_source, open_source, save_model,
        save_onnx,      ask_runtime,    ask_model,   list_model,  plan_model,  read_pb
    };
    const int64_t n = (int64_t)(sizeof calls / sizeof *calls);
    if (fuzz_chance(&a->r, 3))
        api_close_model(api_any_model(a));
    else if (fuzz_chance(&a->r, 3))
        API(a, attnrun_model_pack(api_any_model(a)->handle));
    else
        calls[fuzz_below(&a->r, n)](a);
}
