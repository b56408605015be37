/* test_all_parts.c - a model that has what a file may have: attributes of all kinds, with and
 * without a type, sparse tensors, data in files beside it, functions that call functions and
 * refer to attributes, subgraphs, declared types of all kinds, texts. It opens; each allocation
 * that fails on its way is told and leaves nothing behind; it is written again. */
#include "../runtime/harness.h"
#include "../runtime/deadlines.h"

#include <unistd.h>

#include "alloc.h"
#include "pb_write.h"

enum {
    FLOAT = 1,
    INT,
    STRING,
    TENSOR,
    GRAPH,
    FLOATS,
    INTS,
    STRINGS,
    TENSORS,
    GRAPHS,
    SPARSE,
    SPARSES,
    TYPE,
    TYPES
};

/* ---- pieces ---- */

static void put_float(struct pb *m, uint32_t field, float x)
{
    pb_varint(m, (uint64_t)field << 3 | 5);
    pb_put(m, &x, sizeof x);
}

static struct pb ints_of(const char *name, int n, const int64_t *values)
{
    struct pb tensor = { 0 };
    pb_int(&tensor, 1, n);
    pb_int(&tensor, 2, ATTNRUN_I64);
    for (int i = 0; i < n; i++)
        pb_int(&tensor, 7, values[i]);
    pb_string(&tensor, 8, name);
    return tensor;
}

static struct pb sparse_of(const char *name)
{
    static const float values[2] = { 1.5f, -2 };
    static const int64_t places[2] = { 1, 4 };
    struct pb sparse = { 0 }, some = pb_f32(name, values, 2), at = ints_of("", 2, places);
    pb_message(&sparse, 1, &some);
    pb_message(&sparse, 2, &at);
    pb_int(&sparse, 3, 6);
    return sparse;
}

/* A type around one of tensors: 0 a tensor, else the field of a sequence, map or optional. */
static struct pb type_of(int32_t dtype, uint32_t around)
{
    struct pb tensor = { 0 }, shape = { 0 }, dim = { 0 }, type = { 0 }, outer = { 0 };
    pb_int(&tensor, 1, dtype);
    pb_string(&dim, 2, "N");
    pb_message(&shape, 1, &dim);
    pb_int(&dim, 1, 3);
    pb_message(&shape, 1, &dim);
    pb_message(&tensor, 2, &shape);
    pb_message(&type, 1, &tensor);
    if (around == 0)
        return type;
    if (around == 5)
        pb_int(&outer, 1, ATTNRUN_I64);
    pb_message(&outer, around == 5 ? 2 : 1, &type);
    pb_message(&type, around, &outer);
    return type;
}

static struct pb branch_of(const char *op, const char *from)
{
    struct pb graph = { 0 };
    pb_string(&graph, 2, op);
    pb_add_node(&graph, 1, "", op, from, "inner");
    pb_value(&graph, 12, "inner", -1);
    return graph;
}

/* `type` 0: it is not said. */
static struct pb attr_of(const char *name, int type)
{
    struct pb attr = { 0 };
    pb_string(&attr, 1, name);
    if (type != 0)
        pb_int(&attr, 20, type);
    return attr;
}

static void put_attr_value(struct pb *attr, int kind)
{
    static const float numbers[3] = { 1, 2, 3 };
    static const int64_t places[2] = { 7, 8 };
    struct pb inner = { 0 };
    switch (kind) {
    case FLOAT:
        put_float(attr, 2, 0.5f);
        break;
    case INT:
        pb_int(attr, 3, -5);
        break;
    case STRING:
        pb_string(attr, 4, "word");
        break;
    case FLOATS:
        put_float(attr, 7, 1);
        put_float(attr, 7, 2);
        break;
    case INTS:
        pb_int(attr, 8, 3);
        pb_int(attr, 8, INT64_MIN);
        break;
    case STRINGS:
        for (int i = 0; i < 9; i++)
            pb_string(attr, 9, i % 3 == 0 ? "same" : i % 3 == 1 ? "" : "other");
        break;
    case TENSOR:
    case TENSORS:
        inner = pb_f32("t", numbers, 3);
        pb_message(attr, kind == TENSOR ? 5 : 10, &inner);
        inner = ints_of("i", 2, places);
        if (kind == TENSORS)
            pb_message(attr, 10, &inner);
        pb_free(&inner);
        break;
    case GRAPH:
    case GRAPHS:
        inner = branch_of("Neg", "x");
        pb_message(attr, kind == GRAPH ? 6 : 11, &inner);
        break;
    case SPARSE:
    case SPARSES:
        inner = sparse_of("s");
        pb_message(attr, kind == SPARSE ? 22 : 23, &inner);
        break;
    default:
        inner = type_of(ATTNRUN_F32, kind == TYPE ? 4 : 0);
        pb_message(attr, kind == TYPE ? 14 : 15, &inner);
    }
}

static void put_attr(struct pb *node, const char *name, int kind, bool typed)
{
    struct pb attr = attr_of(name, typed ? kind : 0);
    put_attr_value(&attr, kind);
    pb_message(node, 5, &attr);
}

static void put_reference(struct pb *node, const char *name, int kind, const char *to)
{
    struct pb attr = attr_of(name, kind);
    pb_string(&attr, 21, to);
    pb_message(node, 5, &attr);
}

/* ---- the model ---- */

/* Attributes of all kinds on an operator that nobody has. */
static void add_unknown(struct pb *graph)
{
    struct pb node = pb_node("somewhere", "Unknown", "x,,c", "u,,v");
    char name[16];
    for (int kind = FLOAT; kind <= TYPES; kind++) {
        snprintf(name, sizeof name, "a%d", kind);
        put_attr(&node, name, kind, true);
        snprintf(name, sizeof name, "b%d", kind);
        if (kind != TENSORS && kind != GRAPHS && kind != SPARSES && kind != TYPES)
            put_attr(&node, name, kind, false);
    }
    pb_string(&node, 3, "the unknown one");
    pb_message(graph, 1, &node);
}

static void add_constants(struct pb *graph)
{
    static const char *const names[] = { "value_float", "value_int",    "value_string",
                                         "value",       NULL,           "value_floats",
                                         "value_ints",  "value_strings" };
    char out[16];
    for (int kind = FLOAT; kind <= STRINGS; kind++) {
        if (names[kind - 1] == NULL)
            continue;
        snprintf(out, sizeof out, "k%d", kind);
        struct pb node = pb_node("", "Constant", "", out);
        put_attr(&node, names[kind - 1], kind, true);
        pb_message(graph, 1, &node);
    }
    struct pb node = pb_node("", "Constant", "", "k9");
    put_attr(&node, "sparse_value", SPARSE, true);
    pb_message(graph, 1, &node);
}

/* `field`: 1 of a graph, 7 of a function. */
static void add_if(struct pb *to, uint32_t field, const char *out, const char *from)
{
    struct pb node = pb_node("", "If", "c", out);
    struct pb attr = attr_of("then_branch", GRAPH), branch = branch_of("Abs", from);
    pb_message(&attr, 6, &branch);
    pb_message(&node, 5, &attr);
    attr = attr_of("else_branch", GRAPH);
    branch = branch_of("Neg", from);
    pb_message(&attr, 6, &branch);
    pb_message(&node, 5, &attr);
    pb_message(to, field, &node);
}

static void add_initializers(struct pb *graph, bool external)
{
    static float large[2000];
    struct pb tensor = pb_f32("large", large, 2000);
    pb_message(graph, 5, &tensor);
    tensor = sparse_of("thin");
    pb_message(graph, 15, &tensor);
    if (!external)
        return;
    for (int i = 0; i < 2; i++) {
        pb_int(&tensor, 1, 4);
        pb_int(&tensor, 2, ATTNRUN_F32);
        pb_string(&tensor, 8, i == 0 ? "far" : "farther");
        pb_entry(&tensor, 13, "location", "weights.bin");
        pb_entry(&tensor, 13, "offset", i == 0 ? "0" : "16");
        pb_entry(&tensor, 13, "length", "16");
        pb_entry(&tensor, 13, "checksum", "none");
        pb_int(&tensor, 14, 1);
        pb_message(graph, 5, &tensor);
    }
}

/* f.Outer calls f.Inner twice; both refer to attributes of the call. */
static void add_functions(struct pb *model)
{
    struct pb f = { 0 }, node;
    pb_string(&f, 1, "Inner");
    pb_string(&f, 10, "f");
    pb_names(&f, 4, "u,w");
    pb_names(&f, 5, "v");
    pb_string(&f, 6, "slope");
    pb_opset(&f, 9, "", 18);
    node = pb_node("", "LeakyRelu", "u", "r");
    put_reference(&node, "alpha", FLOAT, "slope");
    pb_message(&f, 7, &node);
    pb_add_node(&f, 7, "", "Add", "r,u", "v");
    pb_message(model, 25, &f);
    pb_string(&f, 1, "Outer");
    pb_string(&f, 10, "f");
    pb_names(&f, 4, "u,c");
    pb_names(&f, 5, "v");
    struct pb slope = attr_of("slope", FLOAT);
    put_float(&slope, 2, 0.25f);
    pb_message(&f, 11, &slope);
    pb_opset(&f, 9, "", 18);
    pb_opset(&f, 9, "f", 1);
    node = pb_node("f", "Inner", "u", "a");
    put_reference(&node, "slope", FLOAT, "slope");
    pb_message(&f, 7, &node);
    pb_add_node(&f, 7, "f", "Inner", "a", "b");
    add_if(&f, 7, "v", "b");
    pb_message(model, 25, &f);
}

static struct pb all_parts(bool external, bool unknown)
{
    struct pb graph = { 0 };
    pb_string(&graph, 2, "all parts");
    add_initializers(&graph, external);
    pb_value_of(&graph, 11, "x", type_of(ATTNRUN_F32, 0));
    pb_value_of(&graph, 11, "s", type_of(ATTNRUN_I64, 4));
    pb_value_of(&graph, 11, "o", type_of(ATTNRUN_F32, 9));
    pb_value_of(&graph, 11, "m", type_of(ATTNRUN_F32, 5));
    pb_value_of(&graph, 11, "large", type_of(ATTNRUN_F32, 0)); /* an initializer */
    struct pb scalar = { 0 }, type = { 0 };
    pb_int(&scalar, 1, ATTNRUN_BOOL);
    pb_message(&scalar, 2, &type);
    pb_message(&type, 1, &scalar);
    pb_value_of(&graph, 11, "c", type);
    add_constants(&graph);
    if (unknown)
        add_unknown(&graph);
    add_if(&graph, 1, "chosen", "x");
    struct pb node = pb_node("f", "Outer", "chosen,c", "called");
    put_attr(&node, "slope", FLOAT, true);
    pb_message(&graph, 1, &node);
    pb_add_node(&graph, 1, "", "Identity", "called", "y");
    pb_value_of(&graph, 13, "chosen", type_of(ATTNRUN_F32, 0));
    pb_value_of(&graph, 12, "y", type_of(ATTNRUN_F32, 0));
    pb_value_of(&graph, 12, "k8", type_of(ATTNRUN_STRING, 0));
    pb_value(&graph, 12, "large", 2000);
    struct pb model = pb_model(&graph);
    if (unknown)
        pb_opset(&model, 8, "somewhere", 3);
    pb_string(&model, 2, "test_all_parts");
    pb_string(&model, 3, "1");
    pb_string(&model, 6, "a doc");
    pb_entry(&model, 14, "key", "value");
    pb_entry(&model, 14, "other", "");
    add_functions(&model);
    return model;
}

/* ---- tests ---- */

static attnrun_status open_it(attnrun_runtime *runtime, const struct pb *pb,
                              uint32_t flags, const char *beside, attnrun_model **model)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .flags = flags | ATTNRUN_ALLOW_MISSING,
                                    .data = pb->data,
                                    .bytes = pb->bytes,
                                    .external_dir = beside,
                                    .timeout_us = 30000000 };
    *model = NULL;
    return attnrun_model_open(runtime, &source, model);
}

static void test_it_opens(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct pb pb = all_parts(false, true);
    attnrun_model *model;
    attnrun_model_info info = { .struct_size = sizeof info };
    (void)state;
    OK(open_it(runtime, &pb, 0, NULL, &model));
    OK(attnrun_model_query(model, &info));
    assert_int_equal(info.n_missing, 1);
    assert_int_equal(info.n_functions, 2);
    assert_int_equal(info.n_metadata, 2);
    assert_string_equal(info.missing, "somewhere.Unknown-3");
    attnrun_model_release(model);
    pb_free(&pb);
    attnrun_runtime_destroy(runtime);
}

static int32_t count_bytes(void *user, const void *bytes, uint64_t n)
{
    (void)bytes;
    *(uint64_t *)user += n;
    return 0;
}

/* 0: open; 1: open with data of files; 2: write again; 3: simplified. */
static attnrun_status one_way(attnrun_runtime *runtime, const struct pb *pb, int way,
                              const char *beside)
{
    attnrun_model *model = NULL;
    uint64_t written = 0;
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = pb->data,
                                    .bytes = pb->bytes,
                                    .external_dir = beside,
                                    .timeout_us = 30000000 };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .flags = way == 3 ? ATTNRUN_ONNX_SIMPLIFY : 0 };
    if (way >= 2)
        return attnrun_save_onnx(runtime, &source, &edit, count_bytes, &written, NULL);
    const attnrun_status status =
        open_it(runtime, pb, way == 1 ? ATTNRUN_COPY : 0, beside, &model);
    attnrun_model_release(model);
    return status;
}

static char folder[] = "/tmp/attnrun-parts-XXXXXX", weights_path[64];

static int make_folder(void **state)
{
    static const char weights[32] = { 1 };
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(weights_path, sizeof weights_path, "%s/weights.bin", folder);
    FILE *file = fopen(weights_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(weights, 1, sizeof weights, file), sizeof weights);
    fclose(file);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(weights_path);
    rmdir(folder);
    return 0;
}

static void test_memory_that_runs_out(void **state)
{
    (void)state;
    attn_pool_apart = true; /* each piece of a pool is an allocation */
    for (int way = 0; way < 4; way++) {
        struct pb pb = all_parts(way % 2 == 1, way < 2);
        int64_t refused = 0;
        for (int64_t call = 0;; call += way == 0 ? 1 : rounds(5, 1)) {
            struct test_memory memory;
            test_memory_init(&memory);
            attnrun_runtime *runtime = make_runtime(&memory, 1);
            memory.fail_at = memory.calls + call;
            const attnrun_status status = one_way(runtime, &pb, way, folder);
            const bool failed = memory.failed > 0;
            if (status != ATTNRUN_OK && (!failed || status != ATTNRUN_E_MEMORY))
                fail_msg("way %d, call %d: %s", way, (int)call,
                         attnrun_last_error()->message);
            refused += status != ATTNRUN_OK;
            attnrun_runtime_destroy(runtime);
            test_memory_check(&memory);
            if (!failed)
                break;
        }
        print_message("way %d: %d failures\n", way, (int)refused);
        assert_true(refused > 20);
        pb_free(&pb);
    }
    attn_pool_apart = false;
}

/* ---- the deadline at each poll ---- */

struct timed {
    struct pb pb;
    int way;
};

static attnrun_status one_timed_way(void *user)
{
    const struct timed *timed = user;
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    const attnrun_status status = one_way(runtime, &timed->pb, timed->way, folder);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    return status;
}

static void test_time_that_runs_out(void **state)
{
    (void)state;
    for (int way = 1; way < 4; way++) {
        struct timed timed = { all_parts(way % 2 == 1, way < 2), way };
        const int64_t stopped = stop_at_polls(one_timed_way, &timed, 17, 700);
        print_message("way %d: stopped %d times\n", way, (int)stopped);
        assert_true(stopped > 100);
        pb_free(&timed.pb);
    }
}

/* What cannot be written is said. */
static void test_what_cannot_be_written(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct pb pb = all_parts(false, true);
    uint64_t written = 0;
    const attnrun_source source = { .struct_size = sizeof source,
                                    .flags = ATTNRUN_ALLOW_MISSING,
                                    .data = pb.data,
                                    .bytes = pb.bytes };
    static const char *const outputs[] = { "u" };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .outputs = outputs,
                                     .n_outputs = 1 };
    (void)state;
    FAILS(ATTNRUN_E_UNSUPPORTED, "",
          attnrun_save_onnx(runtime, &source, &edit, count_bytes, &written, NULL));
    assert_int_equal(written, 0);
    pb_free(&pb);
    attnrun_runtime_destroy(runtime);
}

/* Each byte of the model changed: refused, or opened; nothing held. */
static void test_each_byte(void **state)
{
    static const uint8_t changes[] = { 0x01, 0x80, 0xff, 0x08 };
    struct test_memory memory;
    struct pb pb = all_parts(false, true);
    int64_t opened = 0;
    (void)state;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime_limited(&memory, 1, 64 << 20);
    attnrun_model *model;
    OK(open_it(runtime, &pb, 0, NULL, &model));
    attnrun_model_release(model);
    const int64_t held = memory.live_bytes;
    for (size_t at = 0; at < pb.bytes; at++)
        for (int change = 0; change < rounds(2, 4); change++) {
            if (at > 200 && at < 8000 && at % 97 != 0) /* numbers of the large tensor */
                continue;
            pb.data[at] ^= changes[change];
            const attnrun_status status = open_it(runtime, &pb, 0, NULL, &model);
            attnrun_model_release(model);
            if (status == ATTNRUN_E_INTERNAL || memory.live_bytes != held)
                fail_msg("byte %zu, change %d: %s", at, change,
                         attnrun_last_error()->message);
            opened += status == ATTNRUN_OK;
            pb.data[at] ^= changes[change];
        }
    assert_true(opened > 100);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    pb_free(&pb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_opens),
        cmocka_unit_test(test_memory_that_runs_out),
        cmocka_unit_test(test_time_that_runs_out),
        cmocka_unit_test(test_what_cannot_be_written),
        cmocka_unit_test(test_each_byte),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
