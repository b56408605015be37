/* fused_elementwise.c - FusedElementwise: several elementwise operators in one pass.
 * rewrite/elementwise_chain.c writes it for their nodes. The program is in
 * fused_elementwise.h.
 *
 * x*  f32, and b8 for conditions; any shapes that broadcast as numpy's do
 * y   f32, the broadcast shape
 *
 * The program runs over tiles of at most FUSED_TILE elements. Each instruction calls the
 * kernel that its operator would call, so the bits are those of the single nodes. Inputs
 * of y's dims and scalars are read in place. Other inputs are read in place where a tile
 * lies in a contiguous segment of theirs, and copied to scratch elsewhere. Domain
 * attnrun.fused: exporters never write it. Cost: one read of each operand, one write, and
 * the kernels. Scratch: some tiles. */
#include "fused_elementwise.h"

#include "elementwise.h"

struct fused_args {
    attnrun_ints code;
    attnrun_floats numbers;
};
static const attnrun_attr_def fused_attrs[] = {
    ATTR_INTS_REQUIRED(struct fused_args, code),
    ATTR_FLOATS(struct fused_args, numbers),
    ATTR_END,
};

/* How an input is read. */
enum { WHOLE, SCALAR, RUNS };
/* Shorter runs are spread, so that instructions see whole tiles. */
enum { MIN_RUN = 192 };

struct fused_state {
    uint8_t form[FUSED_MAX_INPUTS];
    bool each[FUSED_MAX_INPUTS];  /* read by a kernel that takes no scalar */
    uint8_t slot[FUSED_MAX_CODE]; /* of an instruction's result */
    int32_t n_slots, n_runs;
};

/* A place in an input of form RUNS. */
struct cursor {
    struct nd_iter it; /* operand 0 is the output, of which nothing is read */
    int64_t used;      /* elements of it.n */
};

static int32_t n_code(const attnrun_step *step)
{
    const struct fused_args *args = step->args;
    return (int32_t)(args->code.n / FUSED_WORDS);
}

static const int64_t *code_at(const attnrun_step *step, int32_t k)
{
    return ((const struct fused_args *)step->args)->code.v + (int64_t)k * FUSED_WORDS;
}

/* ---- infer: is it a program? ---- */

static bool good_operand(const attnrun_step *step, int64_t operand, int32_t k)
{
    const struct fused_args *args = step->args;
    if (operand < 0)
        return -1 - operand < args->numbers.n;
    return operand < step->n_in ? step->in[operand].dtype == ATTNRUN_F32
                                : operand < step->n_in + k;
}

static bool good_instruction(const attnrun_step *step, int32_t k)
{
    const struct fused_args *args = step->args;
    const int64_t *word = code_at(step, k);
    if (word[0] < 0 || word[0] >= FUSED_OPCODES)
        return false;
    if (word[0] < FUSED_UNARY_END)
        return word[1] >= 0 && good_operand(step, word[1], k) && word[2] >= 0 &&
               word[2] < args->numbers.n - 1;
    if (word[0] == FUSED_WHERE)
        return word[1] >= 0 && word[1] < step->n_in &&
               step->in[word[1]].dtype == ATTNRUN_BOOL &&
               good_operand(step, word[2], k) && good_operand(step, word[3], k);
    return good_operand(step, word[1], k) && good_operand(step, word[2], k);
}

static attn_status check_program(const attnrun_step *step)
{
    const struct fused_args *args = step->args;
    if (step->n_in < 1 || step->n_in > FUSED_MAX_INPUTS)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "it has %s, expected 1 to %d",
                       attn_plural(step->n_in, "input"), FUSED_MAX_INPUTS);
    for (int in = 0; in < step->n_in; in++)
        if (!op_has_in(step, in))
            return op_fail_input(step, in, ATTNRUN_E_INPUT, "expected a tensor");
    if (args->code.n < FUSED_WORDS || args->code.n % FUSED_WORDS != 0 ||
        args->code.n > FUSED_WORDS * FUSED_MAX_CODE)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "%s of code, expected 1 to %d instructions of %d",
                       attn_plural(args->code.n, "number"), FUSED_MAX_CODE, FUSED_WORDS);
    for (int32_t k = 0; k < n_code(step); k++)
        if (!good_instruction(step, k))
            return op_fail(step, ATTNRUN_E_ATTR, "instruction %d is malformed", k);
    return ATTNRUN_OK;
}

/* ---- infer: where results and inputs are ---- */

/* The operands of an instruction that may be results. */
static int operands_of(const int64_t *word, int64_t operands[2])
{
    operands[0] = word[0] == FUSED_WHERE ? word[2] : word[1];
    operands[1] = word[0] == FUSED_WHERE ? word[3] : word[2];
    return word[0] < FUSED_UNARY_END ? 1 : 2;
}

/* A result takes the slot of an operand that is not read later: kernels work in place. */
static void place_results(const attnrun_step *step, struct fused_state *state)
{
    int32_t last_use[FUSED_MAX_CODE] = { 0 }, n = n_code(step);
    bool busy[FUSED_MAX_CODE] = { false };
    int64_t operands[2];
    for (int32_t k = 0; k < n; k++)
        for (int i = operands_of(code_at(step, k), operands) - 1; i >= 0; i--)
            if (operands[i] >= step->n_in)
                last_use[operands[i] - step->n_in] = k;
    for (int32_t k = 0; k < n; k++) {
        for (int i = operands_of(code_at(step, k), operands) - 1; i >= 0; i--)
            if (operands[i] >= step->n_in && last_use[operands[i] - step->n_in] == k)
                busy[state->slot[operands[i] - step->n_in]] = false;
        uint8_t slot = 0;
        while (busy[slot])
            slot++;
        busy[slot] = true;
        state->slot[k] = slot;
        if (slot >= state->n_slots)
            state->n_slots = slot + 1;
    }
}

static void place_inputs(const attnrun_step *step, struct fused_state *state)
{
    for (int32_t k = 0; k < n_code(step); k++) {
        const int64_t *word = code_at(step, k);
        if (word[0] < FUSED_UNARY_END && word[1] < step->n_in)
            state->each[word[1]] = true;
    }
    for (int in = 0; in < step->n_in; in++) {
        int64_t n = op_count(&step->in[in], 0, step->in[in].rank);
        state->form[in] = op_elementwise_same_dims(step, in) ? WHOLE
                          : n == 1 && !state->each[in]       ? SCALAR
                                                             : RUNS;
        state->n_runs += state->form[in] == RUNS;
    }
}

static attn_status fused_infer(attnrun_step *step)
{
    struct fused_state *state = step->state;
    TRY(check_program(step));
    TRY(op_elementwise_broadcast(step, 0, step->n_in, ATTNRUN_F32));
    if (step->out[0].rank < 0)
        return ATTNRUN_OK;
    for (int in = step->n_in - 1; in >= 0; in--)
        op_elementwise_inplace(step, in);
    if (!step->concrete)
        return ATTNRUN_OK;
    place_results(step, state);
    place_inputs(step, state);
    step->scratch_bytes =
        (state->n_slots + state->n_runs) * (int64_t)(FUSED_TILE * sizeof(float)) +
        state->n_runs * (int64_t)sizeof(struct cursor);
    elementwise_tasks(step, 100 + 100 * (int64_t)n_code(step));
    return ATTNRUN_OK;
}

/* ---- run ---- */

/* What an instruction reads of an input: from the tile's first element on, or a
 * scalar. */
struct fused_elementwise_operand {
    const void *at;
    size_t each;
};

struct fused_elementwise_tile {
    const attnrun_step *step;
    float *results, *spread;
    struct cursor *cursors;
    struct fused_elementwise_operand in[FUSED_MAX_INPUTS];
    int64_t first, n;
};

static void start_cursors(struct fused_elementwise_tile *tile, int64_t begin, int64_t end)
{
    const attnrun_step *step = tile->step;
    const struct fused_state *state = step->state;
    const attnrun_tensor *y = &step->y[0];
    struct cursor *cursor = tile->cursors;
    for (int in = 0; in < step->n_in; in++) {
        if (state->form[in] != RUNS)
            continue;
        attn_nd_iter_init(&cursor->it, y->rank, y->dims);
        attn_nd_iter_add(&cursor->it, y);
        attn_nd_iter_add(&cursor->it, &step->x[in]);
        attn_nd_iter_start(&cursor->it, begin, end);
        attn_nd_iter_next(&cursor->it);
        cursor->used = 0;
        cursor++;
    }
}

static int64_t run_left(struct cursor *cursor)
{
    if (cursor->used == cursor->it.n && attn_nd_iter_next(&cursor->it))
        cursor->used = 0;
    return cursor->it.n - cursor->used;
}

/* n times the element of `size` bytes, 4 or 1, at `from`. */
static void fused_elementwise_fill(char *to, const char *from, int64_t size, int64_t n)
{
    uint32_t word = 0;
    if (size == 1) {
        memset(to, *from, (size_t)n);
        return;
    }
    memcpy(&word, from, sizeof word);
    int64_t done = n < 64 ? n : 64; /* copies pay from there on */
    for (int64_t i = 0; i < done; i++)
        memcpy(to + i * size, &word, sizeof word);
    for (int64_t more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        memcpy(to + done * size, to, (size_t)(more * size));
    }
}

/* The next n elements of an input: where they are, or spread into `room`. */
static struct fused_elementwise_operand take_run(struct cursor *cursor, int64_t size,
                                                 int64_t n, bool each, char *room)
{
    int64_t step = cursor->it.step[1], left = run_left(cursor);
    const char *from = cursor->it.p[1] + cursor->used * step;
    if (left >= n && !(each && step == 0)) {
        cursor->used += n;
        return (struct fused_elementwise_operand){ from, step != 0 };
    }
    for (int64_t done = 0, m; done < n; done += m, cursor->used += m) {
        left = run_left(cursor);
        m = left < n - done ? left : n - done;
        from = cursor->it.p[1] + cursor->used * cursor->it.step[1];
        if (cursor->it.step[1] == 0)
            fused_elementwise_fill(room + done * size, from, size, m);
        else
            memcpy(room + done * size, from, (size_t)(m * size));
    }
    return (struct fused_elementwise_operand){ room, 1 };
}

/* Tiles end where long runs do. */
static int64_t tile_size(const struct fused_elementwise_tile *tile, int64_t left)
{
    const struct fused_state *state = tile->step->state;
    int64_t n = left < FUSED_TILE ? left : FUSED_TILE;
    for (int32_t i = 0; i < state->n_runs; i++) {
        struct cursor *cursor = &tile->cursors[i];
        int64_t run = run_left(cursor);
        if (cursor->it.dims[cursor->it.rank - 1] >= MIN_RUN && run < n)
            n = run;
    }
    return n;
}

static void find_inputs(struct fused_elementwise_tile *tile)
{
    const attnrun_step *step = tile->step;
    const struct fused_state *state = step->state;
    int32_t runs = 0;
    for (int in = 0; in < step->n_in; in++) {
        const char *data = step->x[in].data;
        int64_t size = dtype_bytes(step->x[in].dtype);
        if (state->form[in] == RUNS) {
            char *room = (char *)(tile->spread + (int64_t)runs * FUSED_TILE);
            tile->in[in] =
                take_run(&tile->cursors[runs++], size, tile->n, state->each[in], room);
        } else {
            bool whole = state->form[in] == WHOLE;
            tile->in[in] = (struct fused_elementwise_operand){
                whole ? data + tile->first * size : data, whole
            };
        }
    }
}

static struct fused_elementwise_operand
find_operand(const struct fused_elementwise_tile *tile, int64_t operand)
{
    const attnrun_step *step = tile->step;
    const struct fused_state *state = step->state;
    const struct fused_args *args = step->args;
    if (operand < 0)
        return (struct fused_elementwise_operand){ args->numbers.v + (-1 - operand), 0 };
    if (operand < step->n_in)
        return tile->in[operand];
    const int64_t slot = state->slot[operand - step->n_in];
    return (struct fused_elementwise_operand){ tile->results + slot * FUSED_TILE, 1 };
}

#define KERNEL_OF(kernel) [FUSED_##kernel] = KERNEL_AT(kernel##_f32),
/* clang-format off */
static const size_t kernel_at[FUSED_OPCODES] = {
    FUSED_UNARY_KERNELS(KERNEL_OF) FUSED_BINARY_KERNELS(KERNEL_OF)
};
/* clang-format on */

static void run_instruction(const struct fused_elementwise_tile *tile,
                            const int64_t *word, float *y)
{
    const attnrun_step *step = tile->step;
    const struct fused_args *args = step->args;
    const size_t n = (size_t)tile->n;
    struct fused_elementwise_operand a = find_operand(tile, word[1]);
    if (word[0] < FUSED_UNARY_END) {
        void (*kernel)(float *, const float *, size_t, const float *);
        elementwise_kernel(step->kernels, kernel_at[word[0]], &kernel, sizeof kernel);
        kernel(y, a.at, n, args->numbers.v + word[2]);
        return;
    }
    struct fused_elementwise_operand b = find_operand(tile, word[2]);
    if (word[0] == FUSED_WHERE) {
        struct fused_elementwise_operand c = find_operand(tile, word[3]);
        step->kernels->where_f32(y, a.at, a.each, b.at, b.each, c.at, c.each, n);
        return;
    }
    void (*kernel)(float *, const float *, size_t, const float *, size_t, size_t);
    elementwise_kernel(step->kernels, kernel_at[word[0]], &kernel, sizeof kernel);
    kernel(y, a.at, a.each, b.at, b.each, n);
}

static void fused_elementwise_run_tile(struct fused_elementwise_tile *tile)
{
    const attnrun_step *step = tile->step;
    const struct fused_state *state = step->state;
    const int32_t last = n_code(step) - 1;
    find_inputs(tile);
    for (int32_t k = 0; k < last; k++)
        run_instruction(tile, code_at(step, k),
                        tile->results + state->slot[k] * (int64_t)FUSED_TILE);
    run_instruction(tile, code_at(step, last), (float *)step->y[0].data + tile->first);
}

static attn_status fused_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct fused_state *state = step->state;
    struct fused_elementwise_tile tile = { .step = step, .results = work->scratch };
    int64_t begin, end;
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    tile.spread = tile.results + (int64_t)state->n_slots * FUSED_TILE;
    tile.cursors = (void *)(tile.spread + (int64_t)state->n_runs * FUSED_TILE);
    elementwise_range(work, tensor_count(&step->y[0]), &begin, &end);
    start_cursors(&tile, begin, end);
    for (tile.first = begin; tile.first < end; tile.first += tile.n) {
        tile.n = tile_size(&tile, end - tile.first);
        fused_elementwise_run_tile(&tile);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_fused_elementwise_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FusedElementwise",
    .since = 1,
    .inputs = "x:T*!",
    .outputs = "y:f32",
    .types = "T=f32,b8",
    .args_bytes = sizeof(struct fused_args),
    .state_bytes = sizeof(struct fused_state),
    .attrs = fused_attrs,
    .infer = fused_infer,
    .run = fused_run,
    .cost = "O(n)",
};
