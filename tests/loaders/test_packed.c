/* test_packed.c - packed files that are not what was written: each word of the graph, each byte of
 * the head, each length; options that a packed file does not take; memory that runs out, and
 * writers that fail. A damaged file is refused with a sentence, or it is a model that can be run;
 * nothing is held afterwards. */
#include "packed_file.h"
#include "../runtime/deadlines.h"
#include "poll.h"

/* ---- the graph ---- */

static void test_each_word_of_the_graph(void **state)
{
    static const int64_t values[] = {
        0, 1, -1, 2, INT64_C(1) << 40, INT64_MAX, INT64_MIN
    };
    enum { VALUES = sizeof values / sizeof *values };
    struct file *file = calloc(1, sizeof *file);
    struct test_memory memory;
    int opened = 0, refused = 0;
    (void)state;
    pack(file);
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime_limited(&memory, 1, 64 << 20);
    OK(try_file(runtime, file, 0));
    const int64_t held = memory.live_bytes;
    int64_t *words = (int64_t *)(void *)(file->data + head_of(file)->graph_at);
    const int64_t n = (int64_t)head_of(file)->graph_bytes / 8;
    assert_true(n > 200);
    for (int64_t k = 0; k < n; k++) {
        const int64_t right = words[k];
        for (int v = 0; v < VALUES + 3; v++) {
            const uint64_t u = (uint64_t)right;
            words[k] = v < VALUES        ? values[v]
                       : v == VALUES     ? (int64_t)(u + 1)
                       : v == VALUES + 1 ? (int64_t)(u - 1)
                                         : words[(k * 7 + 3) % n];
            set_hashes(file);
            const attnrun_status status = try_file(runtime, file, 0);
            opened += status == ATTNRUN_OK;
            refused += status != ATTNRUN_OK;
            if (memory.live_bytes != held)
                fail_msg("word %d as %lld holds memory", (int)k, (long long)words[k]);
            words[k] = right;
        }
    }
    set_hashes(file);
    OK(try_file(runtime, file, 0));
    print_message("%d words: %d opened, %d refused\n", (int)n, opened, refused);
    assert_true(refused > opened);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    free(file);
}

/* A graph that ends early, at each word. */
static void test_a_graph_that_ends_early(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    const uint64_t whole = head_of(file)->graph_bytes;
    for (uint64_t bytes = 0; bytes < whole; bytes += 8) {
        head_of(file)->graph_bytes = bytes;
        set_hashes(file);
        assert_int_not_equal(try_file(runtime, file, 0), ATTNRUN_OK);
    }
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* ---- the head ---- */

static void test_each_byte_of_the_head(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    for (size_t at = 0; at < sizeof(struct attn_packed_head); at++)
        for (int bit = 0; bit < 8; bit++) {
            const struct attn_packed_head right = *head_of(file);
            file->data[at] ^= (uint8_t)(1 << bit);
            assert_int_not_equal(try_file(runtime, file, 0), ATTNRUN_OK);
            if (at >= sizeof right.magic)
                head_of(file)->head_hash = attn_packed_head_hash(head_of(file));
            try_file(runtime, file, 0); /* some bits mean nothing to this reader */
            *head_of(file) = right;
        }
    attnrun_runtime_destroy(runtime);
    free(file);
}

static void refuse_head(attnrun_runtime *runtime, struct file *file,
                        const struct attn_packed_head *right, attnrun_status status,
                        const char *text)
{
    head_of(file)->head_hash = attn_packed_head_hash(head_of(file));
    FAILS(status, text, try_file(runtime, file, 0));
    *head_of(file) = *right;
}

static void test_heads_that_say_too_much(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    struct attn_packed_head *head = head_of(file), right = *head;
    head->order = 0x04030201;
    refuse_head(runtime, file, &right, ATTNRUN_E_VERSION, "byte order");
    head->version = 99;
    refuse_head(runtime, file, &right, ATTNRUN_E_VERSION, "format version 99");
    memset(head->isa, 'x', sizeof head->isa);
    refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "not terminated");
    memset(head->library, 'x', sizeof head->library);
    refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "not terminated");
    memcpy(head->library, "0.0.1", 6);
    refuse_head(runtime, file, &right, ATTNRUN_E_VERSION, "packed by attnrun 0.0.1");
    memcpy(head->isa, "z80", 4);
    refuse_head(runtime, file, &right, ATTNRUN_E_VERSION,
                "packed for z80, which this CPU or this library does not have");
    head->file_bytes--;
    refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "its length is not the one");
    uint64_t *const fields[] = { &head->graph_at, &head->graph_bytes, &head->data_at,
                                 &head->data_bytes, &head->released_bytes };
    for (int i = 0; i < 5; i++) {
        *fields[i] = UINT64_MAX - 63;
        refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "outside of the file");
    }
    for (int i = 0; i < 3; i++) {
        *fields[i] += 4;
        refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "outside of the file");
    }
    /* Zeros for constants that are not there: 64 times the data are allowed, no more. */
    head->released_bytes = head->data_bytes * PACKED_MAX_SHRINK;
    head->head_hash = attn_packed_head_hash(head);
    OK(try_file(runtime, file, 0));
    head->released_bytes += PACKED_MAX_SHRINK;
    refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "outside of the file");
    head->precision = 3;
    refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "outside of the file");
    head->flags = 1024;
    refuse_head(runtime, file, &right, ATTNRUN_E_PARSE, "outside of the file");
    file->n = sizeof right - 1;
    FAILS(ATTNRUN_E_PARSE, "ends inside its head", try_file(runtime, file, 0));
    attnrun_runtime_destroy(runtime);
    free(file);
}

static void test_damaged_parts(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    const struct attn_packed_head *head = head_of(file);
    OK(try_file(runtime, file, ATTNRUN_VERIFY));
    uint8_t *const last = &file->data[head->data_at + head->data_bytes - 1];
    *last ^= 1;
    OK(try_file(runtime, file, 0));
    FAILS(ATTNRUN_E_PARSE, "its weights does not match",
          try_file(runtime, file, ATTNRUN_VERIFY));
    *last ^= 1;
    file->data[head->graph_at + 8] ^= 1;
    FAILS(ATTNRUN_E_PARSE, "its graph does not match", try_file(runtime, file, 0));
    for (size_t n = file->n; n > 0; n -= n < 97 ? n : 97) {
        file->n = n - 1;
        assert_int_not_equal(try_file(runtime, file, 0), ATTNRUN_OK);
    }
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* ---- options, addresses ---- */

static void test_options_after_packing(void **state)
{
    static const char *const names[] = { "soft" };
    static const attnrun_fixed_dim fixed[] = { { "N", 2 } };
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = NULL;
    (void)state;
    pack(file);
    const attnrun_source plain = { .struct_size = sizeof plain,
                                   .data = file->data,
                                   .bytes = file->n };
    attnrun_source source = plain;
    source.precision = ATTNRUN_PRECISION_BF16;
    FAILS(ATTNRUN_E_USAGE, "products of f32",
          attnrun_model_open(runtime, &source, &model));
    source = plain;
    source.flags = ATTNRUN_NO_FUSION;
    FAILS(ATTNRUN_E_USAGE, "already rewritten",
          attnrun_model_open(runtime, &source, &model));
    source = plain;
    source.disable_passes = "attention";
    FAILS(ATTNRUN_E_USAGE, "", attnrun_model_open(runtime, &source, &model));
    source.disable_passes = "";
    OK(attnrun_model_open(runtime, &source, &model));
    attnrun_model_release(model);
    model = NULL;
    source = plain;
    source.ragged = ATTNRUN_RAGGED_ON;
    FAILS(ATTNRUN_E_USAGE, "ragged", attnrun_model_open(runtime, &source, &model));
    source = plain;
    source.fixed_dims = fixed;
    source.n_fixed_dims = 1;
    FAILS(ATTNRUN_E_USAGE, "cannot be fixed",
          attnrun_model_open(runtime, &source, &model));
    source = plain;
    source.more_outputs = names;
    source.n_more_outputs = 1;
    FAILS(ATTNRUN_E_USAGE, "cannot become outputs",
          attnrun_model_open(runtime, &source, &model));
    assert_null(model);
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* At an address of another alignment it is copied. */
static void test_an_odd_address(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    uint8_t *odd = malloc(file->n + 9);
    assert_non_null(odd);
    for (int by = 0; by < 9; by++) {
        attnrun_model *model;
        const attnrun_source source = { .struct_size = sizeof source,
                                        .data = odd + by,
                                        .bytes = file->n };
        memcpy(odd + by, file->data, file->n);
        OK(attnrun_model_open(runtime, &source, &model));
        attnrun_model_release(model);
    }
    free(odd);
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* ---- memory that runs out, and writers that fail ---- */

static void test_memory_that_runs_out(void **state)
{
    struct file *file = calloc(1, sizeof *file), *again = calloc(1, sizeof *again);
    struct test_memory memory;
    int64_t refused[2] = { 0, 0 };
    (void)state;
    pack(file);
    attn_pool_apart = true; /* each piece of a pool is an allocation */
    for (int on = 0; on < 2; on++)
        for (int64_t call = 0;; call++) {
            test_memory_init(&memory);
            attnrun_runtime *runtime = make_runtime(&memory, 1);
            memory.fail_on = on != 0;
            memory.fail_at = memory.calls + call;
            const attnrun_status status = try_file(runtime, file, call & 1);
            const bool failed = memory.failed > 0;
            if (status != ATTNRUN_OK && (status != ATTNRUN_E_MEMORY || !failed))
                fail_msg("call %d: %s", (int)call, attnrun_last_error()->message);
            refused[on] += status != ATTNRUN_OK;
            attnrun_runtime_destroy(runtime);
            test_memory_check(&memory);
            if (!failed)
                break;
        }
    assert_true(refused[0] > 50 && refused[1] > 50);
    again->fail_at = -1;
    for (int64_t call = 0;; call++) {
        attnrun_model *model;
        test_memory_init(&memory);
        attnrun_runtime *runtime = make_runtime(&memory, 1);
        model = open_model(runtime, write_model(), 0);
        memory.fail_at = memory.calls + call;
        again->n = 0;
        const attnrun_status status = attnrun_model_save(model, take_piece, again);
        memory.fail_at = -1;
        if (status != ATTNRUN_OK && status != ATTNRUN_E_MEMORY)
            fail_msg("call %d of saving: %s", (int)call, attnrun_last_error()->message);
        again->n = 0;
        OK(attnrun_model_save(model, take_piece, again));
        assert_int_equal(again->n,
                         file->n); /* parts lie in the order of their addresses */
        OK(try_file(runtime, again, call & 1));
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
        test_memory_check(&memory);
        if (memory.failed == 0)
            break;
    }
    attn_pool_apart = false;
    free(again);
    free(file);
}

/* ---- the deadline at each poll ---- */

static struct file *timed_file;
static uint32_t timed_flags;

static attnrun_status open_timed(void *user)
{
    struct test_memory memory;
    (void)user;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    const attnrun_status status = try_file(runtime, timed_file, timed_flags);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    return status;
}

/* Of a model that is open; the weights are packed by this call. */
static attnrun_status save_timed(void *user)
{
    struct test_memory memory;
    (void)user;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    const int64_t interval = attn_poll_interval;
    struct attn_meter before = attn_poll_enter(NULL); /* opening is not what is stopped */
    attn_poll_interval = ATTN_POLL_BYTES;
    attnrun_model *model = open_model(runtime, write_model(), 0);
    attn_poll_leave(before);
    attn_poll_interval = interval;
    timed_file->n = 0;
    const attnrun_status status = attnrun_model_save(model, take_piece, timed_file);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    return status;
}

static void test_time_that_runs_out(void **state)
{
    (void)state;
    timed_file = calloc(1, sizeof *timed_file);
    pack(timed_file);
    timed_flags = ATTNRUN_VERIFY;
    const int64_t opening = stop_at_polls(open_timed, NULL, 1, 0),
                  saving = stop_at_polls(save_timed, NULL, 1, 0);
    print_message("opening was stopped %d times, saving %d\n", (int)opening, (int)saving);
    assert_true(opening > 50 && saving > 40);
    OK(open_timed(NULL)); /* what the last call has saved, whole */
    free(timed_file);
}

static void test_a_writer_that_fails(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, write_model(), 0);
    (void)state;
    pack(file);
    const int64_t calls = file->calls;
    assert_true(calls > 2);
    for (int64_t call = 0; call < calls; call++) {
        file->n = 0;
        file->calls = 0;
        file->fail_at = call;
        FAILS(ATTNRUN_E_IO, "", attnrun_model_save(model, take_piece, file));
        assert_int_equal(file->calls, call + 1);
    }
    FAILS(ATTNRUN_E_USAGE, "", attnrun_model_save(model, NULL, file));
    FAILS(ATTNRUN_E_USAGE, "", attnrun_model_save(NULL, take_piece, file));
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* ---- addresses ---- */

struct heap {
    char *room;
    size_t bytes, used;
    bool down; /* blocks follow each other towards lower addresses */
};

static void *heap_alloc(void *user, size_t bytes, size_t align)
{
    struct heap *heap = user;
    bytes = (bytes + align - 1) / align * align;
    assert_true(align <= 64 && bytes <= heap->bytes - heap->used);
    heap->used += bytes;
    return heap->down ? heap->room + heap->bytes - heap->used
                      : heap->room + heap->used - bytes;
}

static void heap_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)memory;
    (void)bytes;
}

static void test_addresses_do_not_matter(void **state)
{
    struct file *files = calloc(2, sizeof *files);
    struct heap heap = { .bytes = 8 << 20 };
    heap.room = aligned_alloc(64, heap.bytes);
    (void)state;
    for (int i = 0; i < 2; i++, heap.down = true, heap.used = 0) {
        const attnrun_allocator allocator = { .struct_size = sizeof allocator,
                                              .user = &heap,
                                              .alloc = heap_alloc,
                                              .free = heap_free };
        const attnrun_runtime_options options = { .struct_size = sizeof options,
                                                  .threads = 1,
                                                  .allocator = &allocator };
        attnrun_runtime *runtime;
        OK(attnrun_runtime_create(&options, &runtime));
        attnrun_model *model = open_model(runtime, write_model(), 0);
        files[i].fail_at = -1;
        OK(attnrun_model_save(model, take_piece, &files[i]));
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
    }
    assert_int_equal(files[0].n, files[1].n);
    assert_memory_equal(files[0].data, files[1].data, files[0].n);
    free(heap.room);
    free(files);
}

/* ---- weights whose packed form is much smaller ---- */

static attnrun_status first_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    return ATTNRUN_OK;
}

static attnrun_status first_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    *bytes = (int64_t)sizeof(float);
    pack->replaces = 2;
    if (packed != NULL)
        memcpy(packed, pack->x[1].data, sizeof(float));
    return ATTNRUN_OK;
}

static attnrun_status first_check(const attnrun_pack *pack, int64_t bytes,
                                  const void *packed)
{
    (void)pack;
    (void)packed;
    return bytes == (int64_t)sizeof(float) ? ATTNRUN_OK : ATTNRUN_E_PARSE;
}

static attnrun_status first_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    memcpy(step->y[0].data, step->node->packed, sizeof(float));
    return ATTNRUN_OK;
}

static const attnrun_op_def first = { .struct_size = sizeof first,
                                      .domain = "test",
                                      .name = "First",
                                      .since = 1,
                                      .inputs = "x:T w:T",
                                      .outputs = "y:T",
                                      .types = "T=f32",
                                      .infer = first_infer,
                                      .pack = first_pack,
                                      .run = first_run,
                                      .check_packed = first_check };

/* Zeros stand for a constant that is not there: no more than 64 times the data of the file. */
static void test_weights_that_shrink_too_much(void **state)
{
    static const float weights[1040];
    static const char *const dims[] = { "1024", "1040" };
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    OK(attnrun_register_op(runtime, &first));
    for (int i = 0; i < 2; i++) {
        struct onnx_writer *w = onnx_begin(21);
        onnx_domain(w, "test");
        onnx_input(w, "x", ATTNRUN_F32, "1");
        onnx_constant(w, "w", ATTNRUN_F32, dims[i], weights);
        onnx_node(w, "test::First", "x,w", "y");
        onnx_output(w, "y", ATTNRUN_F32, "1");
        attnrun_model *model = open_model(runtime, w, 0);
        *file = (struct file){ .fail_at = -1 };
        if (i == 0) {
            OK(attnrun_model_save(model, take_piece, file));
            OK(try_file(runtime, file, 0));
        } else {
            FAILS(ATTNRUN_E_UNSUPPORTED, "4160 bytes is packed to less than 1 / 64",
                  attnrun_model_save(model, take_piece, file));
        }
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_word_of_the_graph),
        cmocka_unit_test(test_a_graph_that_ends_early),
        cmocka_unit_test(test_each_byte_of_the_head),
        cmocka_unit_test(test_heads_that_say_too_much),
        cmocka_unit_test(test_damaged_parts),
        cmocka_unit_test(test_options_after_packing),
        cmocka_unit_test(test_an_odd_address),
        cmocka_unit_test(test_memory_that_runs_out),
        cmocka_unit_test(test_time_that_runs_out),
        cmocka_unit_test(test_a_writer_that_fails),
        cmocka_unit_test(test_addresses_do_not_matter),
        cmocka_unit_test(test_weights_that_shrink_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
