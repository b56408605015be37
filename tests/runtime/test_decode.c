/* test_decode.c - caches as states over many steps of random sizes: what comes out is,
 * bit for bit, what the same model gives where the whole cache is an ordinary input;
 * whether the cache is appended in place or copied. */
#include <math.h>

#include "harness.h"

enum { HEADS = 2, DIM = 8, WIDTH = HEADS * DIM, MAX_BATCH = 3, MAX_NEW = 5, STEPS = 40 };
enum { MAX_TOKENS = 8 + STEPS * MAX_NEW, MAX = MAX_BATCH * MAX_TOKENS * 4 * WIDTH };
enum { PAST_K, PAST_V, Q, K, V, LENS, SEEN };
enum { Y, PRESENT_K, PRESENT_V };

/* Where batch (b), heads (h), tokens (t) and dim (d) of an operand are; w: h * d, 1: one
 * token at a time. */
struct kind {
    const char *name;
    struct onnx_writer *(*write)(void);
    const char *cache, *fresh; /* of past and present; of q, k, v */
    int64_t q_heads;
    uint32_t flags;
    bool in_place; /* with several samples, too */
    bool copied;   /* with one sample, too */
    bool has_lens;
};

/* ---- models ---- */

static struct onnx_writer *begin(int64_t opset, const char *cache, const char *fresh)
{
    struct onnx_writer *w = onnx_begin(opset);
    onnx_input(w, "past_k", ATTNRUN_F32, cache);
    onnx_input(w, "past_v", ATTNRUN_F32, cache);
    onnx_input(w, "q", ATTNRUN_F32, fresh);
    onnx_input(w, "k", ATTNRUN_F32, fresh);
    onnx_input(w, "v", ATTNRUN_F32, fresh);
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    onnx_output(w, "present_k", ATTNRUN_F32, NULL);
    onnx_output(w, "present_v", ATTNRUN_F32, NULL);
    return w;
}

static void concat(struct onnx_writer *w, int64_t axis)
{
    onnx_node(w, "Concat", "past_k,k", "present_k");
    onnx_attr_int(w, "axis", axis);
    onnx_node(w, "Concat", "past_v,v", "present_v");
    onnx_attr_int(w, "axis", axis);
}

/* y = softmax(q k') v, of values (batch, heads, tokens, dim). */
static void attend(struct onnx_writer *w, const char *q, const char *k, const char *v)
{
    char names[64];
    onnx_node(w, "Transpose", k, "kt");
    onnx_attr_ints(w, "perm", 4, (const int64_t[]){ 0, 1, 3, 2 });
    snprintf(names, sizeof names, "%s,kt", q);
    onnx_node(w, "MatMul", names, "scores");
    onnx_node(w, "Softmax", "scores", "p");
    onnx_attr_int(w, "axis", -1);
    snprintf(names, sizeof names, "p,%s", v);
    onnx_node(w, "MatMul", names, "y");
}

static struct onnx_writer *write_by_head(void)
{
    struct onnx_writer *w = begin(18, "B,2,P,8", "B,2,N,8");
    concat(w, 2);
    attend(w, "q", "present_k", "present_v");
    return w;
}

static void to_heads(struct onnx_writer *w, const char *from, const char *to)
{
    onnx_node(w, "Transpose", from, to);
    onnx_attr_ints(w, "perm", 4, (const int64_t[]){ 0, 2, 1, 3 });
}

static struct onnx_writer *write_by_token(void)
{
    struct onnx_writer *w = begin(18, "B,P,2,8", "B,N,2,8");
    concat(w, 1);
    to_heads(w, "q", "qh");
    to_heads(w, "present_k", "kh");
    to_heads(w, "present_v", "vh");
    attend(w, "qh", "kh", "vh");
    return w;
}

static struct onnx_writer *write_joined(void)
{
    struct onnx_writer *w = begin(18, "B,P,16", "B,N,16");
    concat(w, 1);
    onnx_ints(w, "split", 4, (const int64_t[]){ 0, 0, HEADS, DIM });
    onnx_node(w, "Reshape", "q,split", "q4");
    onnx_node(w, "Reshape", "present_k,split", "k4");
    onnx_node(w, "Reshape", "present_v,split", "v4");
    to_heads(w, "q4", "qh");
    to_heads(w, "k4", "kh");
    to_heads(w, "v4", "vh");
    attend(w, "qh", "kh", "vh");
    return w;
}

/* Caches that grow along the last dim, read by a Concat along another one. */
static struct onnx_writer *write_last_axis(void)
{
    struct onnx_writer *w = begin(18, "B,2,8,P", "B,2,8,N");
    concat(w, 3);
    onnx_node(w, "Concat", "present_k,present_v,present_k", "y");
    onnx_attr_int(w, "axis", 1);
    onnx_node(w, "Concat", "present_k,past_v", "z");
    onnx_attr_int(w, "axis", 3);
    onnx_output(w, "z", ATTNRUN_F32, NULL);
    return w;
}

/* A reader of the past that takes no strides, and one that comes late. */
static struct onnx_writer *write_dense_reader(void)
{
    struct onnx_writer *w = write_by_head();
    onnx_node(w, "Abs", "past_k", "a");
    onnx_node(w, "Abs", "present_v", "b");
    onnx_output(w, "a", ATTNRUN_F32, NULL);
    onnx_output(w, "b", ATTNRUN_F32, NULL);
    return w;
}

static struct onnx_writer *write_dynamic_reader(void)
{
    struct onnx_writer *w = write_by_head();
    onnx_node(w, "Concat", "past_k,y", "z");
    onnx_attr_int(w, "axis", 2);
    onnx_node(w, "Concat", "y,past_v", "z2");
    onnx_attr_int(w, "axis", 2);
    onnx_output(w, "z", ATTNRUN_F32, NULL);
    onnx_output(w, "z2", ATTNRUN_F32, NULL);
    return w;
}

static struct onnx_writer *write_attention(void)
{
    struct onnx_writer *w = begin(23, "B,2,P,8", "B,2,N,8");
    onnx_node(w, "Attention", "q,k,v,,past_k,past_v", "y,present_k,present_v");
    onnx_attr_int(w, "is_causal", 1);
    return w;
}

static struct onnx_writer *write_attention_joined(void)
{
    struct onnx_writer *w = begin(24, "B,2,P,8", "B,N,16");
    onnx_node(w, "Attention", "q,k,v,,past_k,past_v", "y,present_k,present_v");
    onnx_attr_int(w, "q_num_heads", HEADS);
    onnx_attr_int(w, "kv_num_heads", HEADS);
    return w;
}

static struct onnx_writer *write_multi_head(void)
{
    struct onnx_writer *w = begin(18, "B,2,P,8", "B,N,16");
    onnx_domain(w, "com.microsoft");
    onnx_node(w, "com.microsoft::MultiHeadAttention", "q,k,v,,,,past_k,past_v",
              "y,present_k,present_v");
    onnx_attr_int(w, "num_heads", HEADS);
    onnx_attr_int(w, "unidirectional", 1);
    return w;
}

static struct onnx_writer *write_decoder(bool shared)
{
    struct onnx_writer *w = begin(18, "B,2,P,8", "B,1,16");
    onnx_domain(w, "com.microsoft");
    if (shared)
        onnx_input(w, "length", ATTNRUN_I32, "1");
    onnx_node(w, "com.microsoft::DecoderMaskedMultiHeadAttention",
              shared ? "q,k,v,,,past_k,past_v,length" : "q,k,v,,,past_k,past_v",
              "y,present_k,present_v");
    onnx_attr_int(w, "num_heads", HEADS);
    onnx_attr_int(w, "past_present_share_buffer", shared);
    return w;
}

static struct onnx_writer *write_growing(void) { return write_decoder(false); }
static struct onnx_writer *write_shared(void) { return write_decoder(true); }

static struct onnx_writer *write_group_query(void)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_domain(w, "com.microsoft");
    onnx_input(w, "past_k", ATTNRUN_F32, "B,2,P,8");
    onnx_input(w, "past_v", ATTNRUN_F32, "B,2,P,8");
    onnx_input(w, "q", ATTNRUN_F32, "B,N,32");
    onnx_input(w, "k", ATTNRUN_F32, "B,N,16");
    onnx_input(w, "v", ATTNRUN_F32, "B,N,16");
    onnx_input(w, "lens", ATTNRUN_I32, "B");
    onnx_input(w, "seen", ATTNRUN_F32, "T");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    onnx_output(w, "present_k", ATTNRUN_F32, NULL);
    onnx_output(w, "present_v", ATTNRUN_F32, NULL);
    onnx_node(w, "Shape", "seen", "total64");
    onnx_node(w, "Cast", "total64", "total");
    onnx_attr_int(w, "to", ATTNRUN_I32);
    onnx_node(w, "com.microsoft::GroupQueryAttention", "q,k,v,past_k,past_v,lens,total",
              "y,present_k,present_v");
    onnx_attr_int(w, "num_heads", 2 * HEADS);
    onnx_attr_int(w, "kv_num_heads", HEADS);
    return w;
}

static const struct kind kinds[] = {
    { "by head", write_by_head, "bhtd", "bhtd", HEADS, 0, true, false, false },
    { "not fused", write_by_head, "bhtd", "bhtd", HEADS, ATTNRUN_NO_FUSION, false, true,
      false },
    { "by token", write_by_token, "bthd", "bthd", HEADS, 0, true, false, false },
    { "joined", write_joined, "btw", "btw", HEADS, 0, true, false, false },
    { "last axis", write_last_axis, "bhdt", "bhdt", HEADS, 0, true, false, false },
    { "dense reader", write_dense_reader, "bhtd", "bhtd", HEADS, 0, false, true, false },
    { "late reader", write_dynamic_reader, "bhtd", "bhtd", HEADS, 0, false, true, false },
    { "Attention", write_attention, "bhtd", "bhtd", HEADS, 0, true, false, false },
    { "Attention, joined", write_attention_joined, "bhtd", "btw", HEADS, 0, true, false,
      false },
    { "MultiHeadAttention", write_multi_head, "bhtd", "btw", HEADS, 0, true, false,
      false },
    { "DecoderMaskedMultiHeadAttention", write_growing, "bhtd", "b1w", HEADS, 0, true,
      false, false },
    { "GroupQueryAttention", write_group_query, "bhtd", "btw", 2 * HEADS, 0, true, false,
      true },
};

/* ---- a model with its caches as states, and as ordinary inputs ---- */

struct pair {
    const struct kind *kind;
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *states, *plain;
    int64_t batch, past; /* past: tokens in the caches */
    int32_t n_outputs, moves;
    void *at; /* where present_k was */
};

static float cache[2][MAX], fresh[3][MAX], wide[MAX], seen[MAX_TOKENS];
static int32_t lens[MAX_BATCH];

static void start(struct pair *pair, const struct kind *kind, int64_t batch,
                  int64_t capacity)
{
    *pair = (struct pair){ .kind = kind, .batch = batch };
    test_memory_init(&pair->memory);
    pair->runtime = make_runtime(&pair->memory, 2);
    pair->model = open_model(pair->runtime, kind->write(), kind->flags);
    pair->states = make_context(pair->model);
    pair->plain = make_context(pair->model);
    OK(attnrun_add_state(pair->states, PAST_K, PRESENT_K, capacity));
    OK(attnrun_add_state(pair->states, PAST_V, PRESENT_V, capacity));
    attnrun_model_info info = { .struct_size = sizeof info };
    OK(attnrun_model_query(pair->model, &info));
    pair->n_outputs = info.n_outputs;
}

static void stop(struct pair *pair)
{
    attnrun_context_destroy(pair->states);
    attnrun_context_destroy(pair->plain);
    attnrun_model_release(pair->model);
    attnrun_runtime_destroy(pair->runtime);
    test_memory_check(&pair->memory);
}

static attnrun_tensor shaped(const struct pair *pair, const char *layout, int64_t heads,
                             int64_t tokens, float *data)
{
    int64_t dims[4];
    int32_t rank = 0;
    attnrun_tensor tensor;
    for (const char *p = layout; *p != 0; p++)
        dims[rank++] = *p == 'b'   ? pair->batch
                       : *p == 'h' ? heads
                       : *p == 't' ? tokens
                       : *p == 'd' ? DIM
                       : *p == '1' ? 1
                                   : heads * DIM;
    OK(attnrun_tensor_make(ATTNRUN_F32, rank, dims, data, &tensor));
    return tensor;
}

static void set(attnrun_context *context, int32_t input, attnrun_tensor tensor)
{
    OK(attnrun_set_input(context, input, &tensor));
}

static void set_new(const struct pair *pair, attnrun_context *context, int64_t n)
{
    const struct kind *kind = pair->kind;
    set(context, Q, shaped(pair, kind->fresh, kind->q_heads, n, fresh[0]));
    set(context, K, shaped(pair, kind->fresh, HEADS, n, fresh[1]));
    set(context, V, shaped(pair, kind->fresh, HEADS, n, fresh[2]));
    if (!kind->has_lens)
        return;
    attnrun_tensor t;
    int64_t total = pair->past + n;
    for (int64_t b = 0; b < pair->batch; b++)
        lens[b] = (int32_t)total - 1;
    OK(attnrun_tensor_make(ATTNRUN_I32, 1, &pair->batch, lens, &t));
    set(context, LENS, t);
    OK(attnrun_tensor_make(ATTNRUN_F32, 1, &total, seen, &t));
    set(context, SEEN, t);
}

static void set_past(const struct pair *pair, attnrun_context *context)
{
    for (int i = 0; i < 2; i++)
        set(context, PAST_K + i,
            shaped(pair, pair->kind->cache, HEADS, pair->past, cache[i]));
}

/* The elements of a tensor in order; those of a state have gaps between them. */
static void gather(const attnrun_tensor *t, float *to)
{
    int64_t n = attnrun_tensor_count(t);
    for (int64_t k = 0; k < n; k++) {
        const char *at = t->data;
        int64_t left = k;
        for (int i = t->rank - 1; i >= 0; left /= t->dims[i], i--)
            at += left % t->dims[i] * t->strides[i];
        memcpy(to + k, at, sizeof *to);
    }
}

static bool has_block(attnrun_context *context, const char *name)
{
    attnrun_plan_block block = { .struct_size = sizeof block };
    for (int32_t i = 0; attnrun_plan_get_block(context, i, &block) == ATTNRUN_OK; i++)
        if (strcmp(block.name, name) == 0)
            return true;
    return false;
}

static void compare(struct pair *pair, int step)
{
    for (int32_t i = 0; i < pair->n_outputs; i++) {
        attnrun_tensor a = get_output(pair->states, i), b = get_output(pair->plain, i);
        int64_t n = attnrun_tensor_count(&b);
        assert_int_equal(a.rank, b.rank);
        assert_memory_equal(a.dims, b.dims, (size_t)a.rank * sizeof a.dims[0]);
        gather(&a, wide);
        if (n > 0 && memcmp(wide, b.data, (size_t)n * sizeof *wide) != 0)
            fail_msg("%s, batch %d: output %d of step %d differs", pair->kind->name,
                     (int)pair->batch, i, step);
    }
    attnrun_tensor present = get_output(pair->states, PRESENT_K);
    if (attnrun_tensor_count(&present) == 0)
        return;
    pair->moves += present.data != pair->at;
    pair->at = present.data;
}

/* A run that fails at its very end does not move the states on. */
static void fail_once(struct pair *pair, int64_t n)
{
    attnrun_run_options options = { .struct_size = sizeof options, .validate = 1 };
    float kept = fresh[1][0];
    if (n * pair->batch == 0)
        return;
    fresh[1][0] = NAN;
    set_new(pair, pair->states, n);
    FAILS(ATTNRUN_E_NONFINITE, "", attnrun_run(pair->states, &options));
    fresh[1][0] = kept;
}

/* The last n tokens of both caches go. */
static void cut(struct pair *pair, int64_t n)
{
    for (int i = 0; i < 2; i++) {
        attnrun_tensor all = shaped(pair, pair->kind->cache, HEADS, pair->past, cache[i]);
        for (int32_t d = 0; d < all.rank; d++)
            if (pair->kind->cache[d] == 't')
                all.dims[d] -= n;
        gather(&all, wide);
        memcpy(cache[i], wide, (size_t)attnrun_tensor_count(&all) * sizeof *wide);
        OK(attnrun_truncate_state(pair->states, PAST_K + i, pair->past - n));
    }
    pair->past -= n;
    FAILS(ATTNRUN_E_USAGE, "is not in 0..",
          attnrun_truncate_state(pair->states, PAST_K, pair->past + 1));
}

static void step(struct pair *pair, uint64_t *seed, int number)
{
    int64_t n = random_below(seed, MAX_NEW + 1);
    if (strchr(pair->kind->fresh, '1') != NULL || (pair->kind->has_lens && n == 0))
        n = 1;
    for (int i = 0; i < 3; i++)
        fill_floats(seed, fresh[i], pair->batch * n * 2 * WIDTH);
    set_past(pair, pair->plain);
    set_new(pair, pair->plain, n);
    if (random_below(seed, 8) == 0)
        fail_once(pair, n);
    set_new(pair, pair->states, n);
    OK(attnrun_run(pair->plain, NULL));
    OK(attnrun_run(pair->states, NULL));
    compare(pair, number);
    for (int i = 0; i < 2; i++) {
        attnrun_tensor made = get_output(pair->plain, PRESENT_K + i);
        gather(&made, cache[i]);
    }
    pair->past += n;
    bool empty = pair->past == 0; /* known while planning */
    if (n > 0 && random_below(seed, 4) == 0)
        cut(pair, random_below(seed, n + 1));
    bool in_place = !has_block(pair->states, "present_k");
    if (empty || pair->batch == 0)
        return;
    if (pair->kind->in_place || (pair->batch == 1 && !pair->kind->copied))
        assert_true(in_place);
    if (pair->kind->copied)
        assert_false(in_place);
}

static void decode(const struct kind *kind, int64_t batch, uint64_t seed)
{
    struct pair pair;
    bool ample = batch == 1;
    start(&pair, kind, batch, ample ? MAX * (int64_t)sizeof(float) : 0);
    for (int life = 0; life < 2; life++) {
        pair.past = random_below(&seed, 8);
        for (int i = 0; i < 2; i++)
            fill_floats(&seed, cache[i], batch * pair.past * WIDTH);
        attnrun_reset_states(pair.states);
        set_past(&pair, pair.states);
        for (int i = 0; i < STEPS / 2; i++)
            step(&pair, &seed, i);
    }
    if (kind->in_place ||
        (batch == 1 &&
         !kind->copied)) /* one place, or as often as it doubles in each life */
        assert_true(pair.moves <= (ample ? 1 : 10));
    stop(&pair);
}

static void test_decode_states_equal_plain_inputs(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int64_t batch = 0; batch <= MAX_BATCH; batch++)
            if (batch != 2)
                decode(&kinds[k], batch, next_random(&seed) | 1);
}

static void test_decode_memory_is_bounded(void **state)
{
    (void)state;
    enum { TOKENS = 2000, WARM = 50 };
    struct pair pair;
    int64_t before = 0;
    start(&pair, &kinds[7], 1, (TOKENS + 1) * WIDTH * (int64_t)sizeof(float));
    set_past(&pair, pair.states);
    for (int64_t i = 0; i < rounds(1000, TOKENS); i++) {
        set_new(&pair, pair.states, 1);
        OK(attnrun_run(pair.states, NULL));
        pair.past++;
        if (i == WARM)
            before = atomic_load(&pair.memory.live_bytes);
    }
    assert_int_equal(get_output(pair.states, PRESENT_K).dims[2], pair.past);
    /* Parts of the keys have results in shared memory, 16 parts of them at most. */
    assert_true(atomic_load(&pair.memory.live_bytes) - before < 4096 + 12288);
    stop(&pair);
}

/* A plan without a token has no room to lay out: what the cache holds stays as it is. */
static void test_decode_reserves_for_no_token(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t seed = test_seed();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (kinds[k].write != write_attention)
            continue;
        start(&pair, &kinds[k], MAX_BATCH, 0);
        set_past(&pair, pair.states);
        for (int i = 0; i < 4; i++) {
            attnrun_tensor none[V + 1];
            step(&pair, &seed, i);
            for (int32_t n = 0; n <= V; n++)
                none[n] = tensor_of(ATTNRUN_F32, "3,2,0,8", NULL);
            OK(attnrun_reserve(pair.states, none));
        }
        stop(&pair);
    }
}

/* A buffer that does not grow: each step writes one token of it, where it is. */
static void test_decode_shared_buffer_stays_in_place(void **state)
{
    (void)state;
    enum { CAPACITY = 12 };
    static const struct kind kind = { .name = "shared",
                                      .write = write_shared,
                                      .cache = "bhtd",
                                      .fresh = "b1w",
                                      .q_heads = HEADS };
    struct pair pair;
    uint64_t seed = test_seed();
    int64_t one = 1;
    int32_t length;
    attnrun_tensor t;
    start(&pair, &kind, MAX_BATCH, 0);
    pair.past = CAPACITY;
    for (int i = 0; i < 2; i++)
        fill_floats(&seed, cache[i], MAX_BATCH * CAPACITY * WIDTH);
    set_past(&pair, pair.states);
    OK(attnrun_tensor_make(ATTNRUN_I32, 1, &one, &length, &t));
    for (length = 0; length < CAPACITY; length++) {
        for (int i = 0; i < 3; i++)
            fill_floats(&seed, fresh[i], MAX_BATCH * WIDTH);
        set_past(&pair, pair.plain);
        set_new(&pair, pair.plain, 1);
        set_new(&pair, pair.states, 1);
        set(pair.plain, V + 1, t);
        set(pair.states, V + 1, t);
        OK(attnrun_run(pair.plain, NULL));
        OK(attnrun_run(pair.states, NULL));
        compare(&pair, length);
        assert_false(has_block(pair.states, "present_k"));
        for (int i = 0; i < 2; i++) {
            attnrun_tensor made = get_output(pair.plain, PRESENT_K + i);
            gather(&made, cache[i]);
        }
    }
    assert_int_equal(pair.moves, 1);
    stop(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_states_equal_plain_inputs),
        cmocka_unit_test(test_decode_memory_is_bounded),
        cmocka_unit_test(test_decode_reserves_for_no_token),
        cmocka_unit_test(test_decode_shared_buffer_stays_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
