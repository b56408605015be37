/* sequences.c - states that are copied, change their rows, or belong to one of several sequences
 * of a context. In: contexts whose calls this one has to itself. Each call changes all states
 * that it is about or none: what can fail is made first. Outputs of the run before may show the
 * memory of a state, so calls that free some forget them. */
#include "context.h"
#include "state.h"

static struct attn_state *states_of(const struct attnrun_context *context)
{
    return context->frame->states;
}

static int32_t count_states(const struct attnrun_context *context)
{
    int32_t n = 0;
    for (const struct attn_state *s = states_of(context); s != NULL; s = s->next)
        n++;
    return n;
}

/* What a run would take up for an input of the caller's is long gone, maybe. */
static void forget_input(struct attnrun_context *context, const struct attn_state *state)
{
    if (state->tensor.kind == ATTNRUN_ABSENT)
        context->inputs[state->input].kind = ATTNRUN_ABSENT;
}

/* ---- copies in waiting ---- */

/* One for each state of a context, memory NULL where nothing is copied. */
struct copies {
    struct attn_memory *memory;
    struct attn_parked *made;
    int32_t n;
};

static attn_status copies_begin(struct copies *copies,
                                const struct attnrun_context *context)
{
    copies->memory = context->frame->memory;
    copies->n = count_states(context);
    copies->made = attn_alloc_zeroed(copies->memory, ATTN_MEM_PLAN,
                                     (copies->n + 1) * (int64_t)sizeof *copies->made);
    return copies->made ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

/* Puts them in place, or frees them where something failed. */
static attn_status copies_end(struct copies *copies, struct attnrun_context *context,
                              attn_status status)
{
    struct attn_parked *made = copies->made;
    for (struct attn_state *s = states_of(context); s != NULL; s = s->next, made++) {
        if (made->memory == NULL)
            continue;
        if (status == ATTNRUN_OK)
            attn_state_put(copies->memory, s, made);
        else
            attn_free(copies->memory, ATTN_MEM_HEAP, made->memory, made->capacity_bytes);
    }
    attn_free(copies->memory, ATTN_MEM_PLAN, copies->made,
              (copies->n + 1) * (int64_t)sizeof *copies->made);
    return status;
}

/* ---- rows ---- */

static attn_status check_rows(const struct attn_state *state, int32_t axis,
                              const int64_t *rows, int64_t n)
{
    const attnrun_tensor *t = &state->tensor;
    if (axis < 0 || axis >= t->rank)
        return attn_fail(ATTNRUN_E_USAGE, "state %d of rank %d has no axis %d",
                         state->input, t->rank, axis);
    if (axis == state->axis)
        return attn_fail(ATTNRUN_E_USAGE, "axis %d of state %d is the one that grows",
                         axis, state->input);
    if (dtype_bits(t->dtype) < 8)
        return attn_fail(ATTNRUN_E_USAGE, "elements of state %d share bytes",
                         state->input);
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= t->dims[axis])
            return attn_fail(ATTNRUN_E_USAGE, "row %lld of state %d is not in 0..%lld",
                             (long long)rows[i], state->input,
                             (long long)t->dims[axis] - 1);
    return ATTNRUN_OK;
}

static bool rows_stay(const attnrun_tensor *t, int32_t axis, const int64_t *rows,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] != i)
            return false;
    return n == t->dims[axis];
}

static attn_status copy_rows(const struct copies *copies,
                             const struct attnrun_context *context, int32_t input,
                             int32_t axis, const int64_t *rows, int64_t n)
{
    struct attn_parked *made = copies->made;
    for (const struct attn_state *s = states_of(context); s != NULL;
         s = s->next, made++) {
        if (s->tensor.kind == ATTNRUN_ABSENT || (input >= 0 && s->input != input))
            continue;
        const struct attn_state_rows from = { .tensor = &s->tensor,
                                              .capacity_bytes = s->capacity_bytes,
                                              .append_axis = s->axis,
                                              .axis = axis,
                                              .rows = rows,
                                              .n = n };
        TRY(check_rows(s, axis, rows, n));
        if (!rows_stay(&s->tensor, axis, rows, n))
            TRY(attn_state_copy(copies->memory, &from, made));
    }
    return ATTNRUN_OK;
}

static bool holds(const struct attnrun_context *context, int32_t input)
{
    for (const struct attn_state *s = states_of(context); s != NULL; s = s->next)
        if ((input < 0 || s->input == input) && s->tensor.kind != ATTNRUN_ABSENT)
            return true;
    return false;
}

attn_status attn_context_reorder_states(struct attnrun_context *context, int32_t input,
                                        int32_t axis, const int64_t *rows, int64_t n)
{
    struct copies copies;
    if (n < 0 || (n > 0 && rows == NULL) || input < -1)
        return attn_fail(
            ATTNRUN_E_USAGE,
            "rows is NULL, or one of n (%lld) and input (%d) is out of range",
            (long long)n, input);
    if (!holds(context, input))
        return attn_fail(ATTNRUN_E_USAGE, "input %d is not a state, or is still empty",
                         input);
    attn_frame_forget(context->frame);
    TRY(copies_begin(&copies, context));
    return copies_end(&copies, context,
                      copy_rows(&copies, context, input, axis, rows, n));
}

/* ---- sequences ---- */

/* What the state of `from` that is paired like `state` holds as `sequence`. */
static attn_status find_source(const struct attnrun_context *from, int64_t sequence,
                               const struct attn_state *state,
                               struct attn_state_rows *found)
{
    const struct attn_state *s = states_of(from);
    while (s != NULL && (s->input != state->input || s->output != state->output))
        s = s->next;
    if (s == NULL)
        return attn_fail(ATTNRUN_E_USAGE,
                         "input %d is a state in only one of the two contexts",
                         state->input);
    *found = (struct attn_state_rows){ .tensor = &s->tensor,
                                       .capacity_bytes = s->capacity_bytes,
                                       .append_axis = s->axis,
                                       .axis = -1 };
    const struct attn_parked *parked = attn_state_parked(s, sequence);
    if (sequence != from->sequence && parked == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "there is no sequence %lld",
                         (long long)sequence);
    if (sequence != from->sequence) {
        found->tensor = &parked->tensor;
        found->capacity_bytes = parked->capacity_bytes;
        found->append_axis = parked->axis;
    }
    return ATTNRUN_OK;
}

static attn_status copy_all(const struct copies *copies, const struct attnrun_context *to,
                            const struct attnrun_context *from, int64_t sequence)
{
    struct attn_parked *made = copies->made;
    for (const struct attn_state *s = states_of(to); s != NULL; s = s->next, made++) {
        struct attn_state_rows source;
        TRY(find_source(from, sequence, s, &source));
        if (source.tensor->kind != ATTNRUN_ABSENT)
            TRY(attn_state_copy(copies->memory, &source, made));
    }
    return ATTNRUN_OK;
}

/* States that hold nothing there hold nothing here. */
static void empty_others(struct attnrun_context *context, const struct copies *copies)
{
    const struct attn_parked *made = copies->made;
    for (struct attn_state *s = states_of(context); s != NULL; s = s->next, made++)
        if (made->memory == NULL) {
            s->tensor.kind = ATTNRUN_ABSENT;
            s->axis = -1;
            forget_input(context, s);
        }
}

attn_status attn_context_copy_states(struct attnrun_context *to,
                                     const struct attnrun_context *from, int64_t sequence)
{
    struct copies copies;
    if (from->model != to->model)
        return attn_fail(ATTNRUN_E_USAGE, "the contexts are of different models");
    if (count_states(to) != count_states(from))
        return attn_fail(ATTNRUN_E_USAGE, "the contexts have %d and %s", count_states(to),
                         attn_plural(count_states(from), "state"));
    if (to == from && sequence == to->sequence)
        return ATTNRUN_OK;
    attn_frame_forget(to->frame);
    TRY(copies_begin(&copies, to));
    attn_status status = copy_all(&copies, to, from, sequence);
    if (status == ATTNRUN_OK)
        empty_others(to, &copies);
    return copies_end(&copies, to, status);
}

/* Room for what the states hold now, before anything is parked. */
static attn_status make_spares(const struct copies *copies, struct attn_parked **spares)
{
    for (int32_t i = 0; i < copies->n; i++) {
        spares[i] =
            attn_alloc_zeroed(copies->memory, ATTN_MEM_PLAN, (int64_t)sizeof **spares);
        if (spares[i] != NULL)
            continue;
        while (i-- > 0)
            attn_free(copies->memory, ATTN_MEM_PLAN, spares[i], (int64_t)sizeof **spares);
        return ATTNRUN_E_MEMORY;
    }
    return ATTNRUN_OK;
}

static attn_status check_number(int64_t sequence)
{
    if (sequence >= 0)
        return ATTNRUN_OK;
    return attn_fail(ATTNRUN_E_USAGE,
                     "the number of the sequence is %lld, expected 0 or more",
                     (long long)sequence);
}

attn_status attn_context_select_sequence(struct attnrun_context *context,
                                         int64_t sequence)
{
    struct copies all = { .memory = context->frame->memory, .n = count_states(context) };
    struct attn_parked **spares;
    const int64_t bytes = (all.n + 1) * (int64_t)sizeof *spares;
    TRY(check_number(sequence));
    if (sequence == context->sequence)
        return ATTNRUN_OK;
    spares = attn_alloc_zeroed(all.memory, ATTN_MEM_PLAN, bytes);
    if (spares == NULL)
        return ATTNRUN_E_MEMORY;
    attn_status status = make_spares(&all, spares);
    if (status == ATTNRUN_OK) {
        struct attn_parked **spare = spares;
        for (struct attn_state *s = states_of(context); s != NULL; s = s->next) {
            attn_state_select(all.memory, s, context->sequence, sequence, *spare++);
            forget_input(context, s);
        }
        context->sequence = sequence;
    }
    attn_free(all.memory, ATTN_MEM_PLAN, spares, bytes);
    return status;
}

attn_status attn_context_drop_sequence(struct attnrun_context *context, int64_t sequence)
{
    TRY(check_number(sequence));
    if (sequence == context->sequence)
        return attn_fail(ATTNRUN_E_USAGE, "sequence %lld is the selected one",
                         (long long)sequence);
    attn_frame_forget(context->frame);
    for (struct attn_state *s = states_of(context); s != NULL; s = s->next)
        attn_state_drop(context->frame->memory, s, sequence);
    return ATTNRUN_OK;
}
