/* api_calls.c - the calls of fuzz_api on contexts; see api_case.h. */
#include "api_case.h"

enum { TIMEOUT_US = 300000, MAX_ARENA = 1 << 22 };

/* ---- inputs and outputs ---- */

static void bind_input(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    const int32_t index = api_index(a, c->n_inputs);
    if (c->handle == NULL || fuzz_chance(&a->r, 3)) {
        API(a, attnrun_set_input(c->handle, index, NULL));
        return;
    }
    const attnrun_tensor t = api_input(a, c, index);
    API(a, attnrun_set_input(c->handle, index, &t));
}

static void set_inputs(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    for (int32_t i = 0; i < c->n_inputs && c->handle != NULL; i++) {
        const attnrun_tensor t = api_input(a, c, i);
        API(a, attnrun_set_input(c->handle, i, &t));
    }
}

/* Memory for an output of the shape that the last plan or run says, or another one. */
static void set_output(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    const int32_t index = api_index(a, c->n_outputs);
    attnrun_tensor shape = { .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_F32, .rank = 1 };
    if (fuzz_chance(&a->r, 30) || c->handle == NULL) {
        API(a, attnrun_set_output(c->handle, index, NULL));
        return;
    }
    API(a, attnrun_plan_output(c->handle, index, &shape));
    const attnrun_tensor room = api_room_for(a, &shape);
    API(a, attnrun_set_output(c->handle, index, &room));
}

static void choose_outputs(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    int32_t indices[4];
    const int32_t n = fuzz_chance(&a->r, 95) ? (int32_t)fuzz_below(&a->r, 5)
                                             : -(int32_t)fuzz_below(&a->r, 5);
    for (int i = 0; i < 4; i++)
        indices[i] = api_index(a, c->n_outputs);
    API(a, attnrun_choose_outputs(c->handle, fuzz_chance(&a->r, 60) ? indices : NULL,
                                  fuzz_chance(&a->r, 60) ? n : 0));
}

static void read_outputs(struct api_case *a, const struct api_context *c)
{
    for (int32_t i = 0; i < c->n_outputs; i++) {
        attnrun_tensor t, before;
        memset(&t, 0x3c, sizeof t);
        before = t;
        if (API(a, attnrun_output(c->handle, i, &t)) == ATTNRUN_OK)
            a->sum = fuzz_read(c->from, &t, a->sum);
        else if (memcmp(&t, &before, sizeof t) != 0)
            api_wrong(a, "it failed, and wrote the tensor");
    }
}

static void output(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    attnrun_tensor t;
    if (API(a, attnrun_output(c->handle, api_index(a, c->n_outputs), &t)) == ATTNRUN_OK)
        a->sum = fuzz_read(c->from, &t, a->sum);
    API(a, attnrun_output(c->handle, 0, fuzz_chance(&a->r, 10) ? NULL : &t));
}

static const char *name_of(struct api_case *a, const struct api_context *c)
{
    for (int i = 0; i < API_MODELS; i++)
        if (a->models[i].handle != NULL && a->models[i].handle == c->model)
            return api_name(a, &a->models[i]);
    return c->n_outputs > 0 && c->outputs[0].name != NULL ? c->outputs[0].name : "x";
}

static void watch(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    const char *name = name_of(a, c);
    attnrun_tensor t;
    API(a, attnrun_watch(c->handle, name));
    if (fuzz_chance(&a->r, 50))
        return;
    API(a, attnrun_run(c->handle, NULL));
    if (API(a, attnrun_value(c->handle, name, &t)) == ATTNRUN_OK)
        a->sum = fuzz_read(c->from, &t, a->sum);
}

static void value(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    attnrun_tensor t;
    if (API(a, attnrun_value(c->handle, name_of(a, c), &t)) == ATTNRUN_OK)
        a->sum = fuzz_read(c->from, &t, a->sum);
}

/* ---- runs ---- */

/* What callbacks of a run are told, and what they do in it. */
struct under_way {
    struct api_case *a;
    struct api_context *c;
    int64_t cancel_at; /* of the steps; -1: none */
    int64_t ask_at;
    int64_t steps;
};

static void step_done(void *user, int32_t node, const char *name, const char *op_type,
                      double microseconds)
{
    struct under_way *run = user;
    attnrun_tensor t;
    if (run == NULL) /* the struct of an older header ended before it */
        return;
    if (node < 0 || name == NULL || op_type == NULL || !(microseconds >= 0))
        api_wrong(run->a, "on_step is told of no node");
    if (run->steps == run->cancel_at)
        attnrun_cancel(run->c->handle);
    if (run->steps == run->ask_at &&
        API(run->a, attnrun_output(run->c->handle, 0, &t)) != ATTNRUN_E_USAGE)
        api_wrong(run->a, "a second call on a context is not refused");
    run->steps++;
}

static void node_done(void *user, const attnrun_node_profile *node)
{
    const struct under_way *run = user;
    if (run != NULL &&
        (node->struct_size != sizeof *node || node->ns < 0 || node->name == NULL))
        api_wrong(run->a, "on_node is told of no node");
}

static const attnrun_run_options *any_options(struct api_case *a, struct under_way *user)
{
    attnrun_run_options *options = api_given(a, sizeof *options);
    options->timeout_us =
        fuzz_chance(&a->r, 90) ? TIMEOUT_US : fuzz_below(&a->r, 1000) - 300;
    options->validate = fuzz_chance(&a->r, 10);
    options->on_step = fuzz_chance(&a->r, 30) ? step_done : NULL;
    options->on_step_user = user;
    options->on_node = fuzz_chance(&a->r, 20) ? node_done : NULL;
    options->profile_user = user;
    options->all_tokens = fuzz_chance(&a->r, 10);
    return api_spoil(a, options, sizeof *options);
}

static void run(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    struct under_way user = { a, c, -1, -1, 0 };
    if (fuzz_chance(&a->r, 8))
        user.cancel_at = fuzz_below(&a->r, 4);
    if (fuzz_chance(&a->r, 8))
        user.ask_at = fuzz_below(&a->r, 4);
    const attnrun_run_options *options = any_options(a, &user);
    if (c->handle == NULL)
        return;
    if (API(a, attnrun_run(c->handle, options)) == ATTNRUN_OK)
        read_outputs(a, c);
}

static void cancel(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    attnrun_cancel(c->handle);
    API(a, attnrun_set_timeout(c->handle, fuzz_chance(&a->r, 90)
                                              ? 1 + fuzz_below(&a->r, TIMEOUT_US)
                                              : -fuzz_below(&a->r, 2) - 1));
}

/* ---- states ---- */

static void add_state(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    int32_t input = api_index(a, c->n_inputs), out = api_index(a, c->n_outputs);
    for (int32_t i = 0; i < c->n_inputs && i < API_INPUTS && fuzz_chance(&a->r, 90); i++)
        for (int32_t k = 0; k < c->n_outputs && k < API_INPUTS; k++)
            if (c->inputs[i].dtype == c->outputs[k].dtype && fuzz_chance(&a->r, 15)) {
                input = i;
                out = k;
            }
    const int64_t capacity = fuzz_chance(&a->r, 70) ? 0 : fuzz_below(&a->r, 1 << 16);
    API(a, attnrun_add_state(c->handle, input, out,
                             fuzz_chance(&a->r, 95) ? capacity : fuzz_int(&a->r)));
}

static void truncate_state(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    API(a, attnrun_truncate_state(c->handle, api_index(a, c->n_inputs), fuzz_int(&a->r)));
    if (fuzz_chance(&a->r, 30))
        attnrun_reset_states(c->handle);
}

static void sequences(struct api_case *a)
{
    struct api_context *c = api_any_context(a), *from = api_any_context(a);
    const int64_t one = fuzz_chance(&a->r, 90) ? fuzz_below(&a->r, 3) : fuzz_int(&a->r);
    switch (fuzz_below(&a->r, 3)) {
    case 0:
        API(a, attnrun_select_sequence(c->handle, one));
        break;
    case 1:
        API(a, attnrun_drop_sequence(c->handle, one));
        break;
    default:
        API(a, attnrun_copy_states(
                   c->handle, fuzz_chance(&a->r, 70) ? c->handle : from->handle, one));
    }
}

static void reorder_states(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    int64_t rows[5];
    for (int i = 0; i < 5; i++)
        rows[i] = fuzz_chance(&a->r, 90) ? fuzz_below(&a->r, 2) : fuzz_int(&a->r);
    API(a, attnrun_reorder_states(
               c->handle, fuzz_chance(&a->r, 50) ? -1 : api_index(a, c->n_inputs),
               fuzz_chance(&a->r, 80) ? (int32_t)fuzz_below(&a->r, 3) : api_index(a, 9),
               fuzz_chance(&a->r, 97) ? rows : NULL, fuzz_below(&a->r, 6)));
}

/* ---- plans and memory ---- */

static void read_plan(struct api_case *a, struct api_context *c)
{
    struct api_filled block, step;
    attnrun_plan_block *b = api_to_fill(a, &block, sizeof *b);
    attnrun_plan_step *s = api_to_fill(a, &step, sizeof *s);
    attnrun_tensor t;
    api_is_filled(a, &block,
                  API(a, attnrun_plan_get_block(c->handle, api_index(a, 6), b)));
    api_is_filled(a, &step, API(a, attnrun_plan_get_step(c->handle, api_index(a, 6), s)));
    if (API(a, attnrun_plan_output(c->handle, api_index(a, c->n_outputs), &t)) ==
            ATTNRUN_OK &&
        t.data != NULL)
        api_wrong(a, "an output of a plan has data");
}

static void plan(struct api_case *a)
{
    struct api_filled filled;
    struct api_context *c = api_any_context(a);
    attnrun_plan_info *info = api_to_fill(a, &filled, sizeof *info);
    if (c->handle == NULL)
        return;
    const attnrun_tensor *inputs = api_shapes(a, c->from, c->n_inputs, c->inputs);
    if (fuzz_chance(&a->r, 40))
        API(a, attnrun_reserve(c->handle, inputs));
    else
        api_is_filled(a, &filled, API(a, attnrun_plan(c->handle, inputs, info)));
    read_plan(a, c);
}

static void set_arena(struct api_case *a)
{
    struct api_context *c = api_any_context(a);
    const int64_t bytes =
        64 * fuzz_below(&a->r, fuzz_chance(&a->r, 50) ? 64 : MAX_ARENA / 64);
    uint8_t *memory = api_hold(a, bytes + 2 * ATTNRUN_ARENA_ALIGN);
    memory += ATTNRUN_ARENA_ALIGN - (uintptr_t)memory % ATTNRUN_ARENA_ALIGN;
    if (fuzz_chance(&a->r, 40))
        API(a, attnrun_set_arena(c->handle, NULL, 0));
    else
        API(a, attnrun_set_arena(c->handle, memory + (fuzz_chance(&a->r, 4) ? 1 : 0),
                                 fuzz_chance(&a->r, 96) ? bytes : -bytes));
}

static void ask_context(struct api_case *a)
{
    struct api_filled filled;
    struct api_context *c = api_any_context(a);
    attnrun_memory_info *info = api_to_fill(a, &filled, sizeof *info);
    api_is_filled(a, &filled, API(a, attnrun_context_memory(c->handle, info)));
    if (fuzz_chance(&a->r, 30))
        API(a, attnrun_set_max_plans(c->handle, fuzz_chance(&a->r, 80)
                                                    ? 1 + (int32_t)fuzz_below(&a->r, 16)
                                                    : api_index(a, 40)));
    if (fuzz_chance(&a->r, 30))
        attnrun_trim(c->handle);
}

static void create_context(struct api_case *a)
{
    struct api_model *m = api_any_model(a);
    if (m->handle != NULL)
        api_open_context(a, m);
}

void api_call_context(struct api_case *a)
{
    static void (*const calls[])(struct api_case *) = { create_context,
                                                        bind_input,
                                                        set_inputs,
                                                        set_inputs,
                                                        set_output,
                                                        choose_outputs,
                                                        output,
                                                        watch,
                                                        value,
                                                        run,
                                                        run,
                                                        run,
                                                        run,
                                                        cancel,
                                                        add_state,
                                                        truncate_state,
                                                        sequences,
                                                        plan,
                                                        reorder_states,
                                                        plan,
                                                        set_arena,
                                                        ask_context,
                                                        set_output };
    const int64_t n = (int64_t)(sizeof calls / sizeof *calls);
    if (fuzz_chance(&a->r, 2))
        api_close_context(api_any_context(a));
    else
        calls[fuzz_below(&a->r, n)](a);
}
