/* test_refused.c - parts of models that break a rule, each beside one that does not: sparse
 * tensors, places of data, declared types, functions, constants, operator names. The status
 * and the words of each; nothing is held afterwards. */
#include <stdio.h>
#include <unistd.h>

#include "run_model.h"

enum { F32 = ATTNRUN_F32, I64 = ATTNRUN_I64, BULK = 2000, EXTERNAL = 1 };

/* ---- the model around a part ---- */

/* x f32[3] -> Neg -> y; `part` is added to its graph. */
static struct pb graph_with(uint32_t field, struct pb *part)
{
    struct pb graph = { 0 };
    pb_value(&graph, 11, "x", 3);
    pb_value(&graph, 12, "y", 3);
    pb_add_node(&graph, 1, "", "Neg", "x", "y");
    if (part != NULL)
        pb_message(&graph, field, part);
    return graph;
}

static attnrun_status open_all(struct pb *model, uint32_t flags, const char *folder)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .flags = flags,
                                    .data = model->data,
                                    .bytes = model->bytes,
                                    .external_dir = folder };
    const uint64_t before = memory_in_use();
    attnrun_model *opened = NULL;
    const attnrun_status status = attnrun_model_open(test_runtime, &source, &opened);
    attnrun_model_release(opened);
    assert_int_equal(memory_in_use(), before);
    pb_free(model);
    return status;
}

static void expect(attnrun_status found, attnrun_status status, const char *words)
{
    const char *message = attnrun_last_error()->message;
    if (found != status || (status != ATTNRUN_OK && strstr(message, words) == NULL))
        fail_msg("%s, expected %s with '%s': %s", attnrun_status_name(found),
                 attnrun_status_name(status), words, message);
}

static void expect_graph(struct pb graph, attnrun_status status, const char *words)
{
    struct pb model = pb_model(&graph);
    expect(open_all(&model, ATTNRUN_ALLOW_MISSING, NULL), status, words);
}

static void expect_part(uint32_t field, struct pb part, attnrun_status status,
                        const char *words)
{
    expect_graph(graph_with(field, &part), status, words);
}

/* ---- tensors ---- */

/* Zeros of dims "2,3" in raw_data. */
static struct pb zeros(const char *name, int32_t dtype, const char *dims)
{
    static const uint8_t bytes[256];
    struct pb tensor = { 0 };
    int64_t n = 1;
    for (const char *p = dims; *p != 0; p += strcspn(p, ","), p += *p == ',') {
        pb_int(&tensor, 1, atoll(p));
        n *= atoll(p);
    }
    pb_int(&tensor, 2, dtype);
    pb_string(&tensor, 8, name);
    if (dtype == ATTNRUN_STRING)
        for (int64_t k = 0; k < n; k++)
            pb_string(&tensor, 6, "word");
    else
        pb_bytes(&tensor, 9, bytes, (size_t)(n * attnrun_dtype_bits(dtype) + 7) / 8);
    return tensor;
}

static struct pb sparse(int32_t dtype, const char *values, int32_t index,
                        const char *indices, int64_t dim)
{
    struct pb made = { 0 }, part = zeros("s", dtype, values);
    pb_message(&made, 1, &part);
    part = zeros("", index, indices);
    pb_message(&made, 2, &part);
    pb_int(&made, 3, dim);
    return made;
}

static void test_sparse_tensors(void **state)
{
    (void)state;
    enum { SPARSE = 15 };
    struct pb part = { 0 }, inner = zeros("s", F32, "1");
    expect_part(SPARSE, sparse(F32, "1", I64, "1", 6), ATTNRUN_OK, "");
    expect_part(SPARSE, sparse(F32, "1", I64, "1,1", 6), ATTNRUN_OK, "");
    expect_part(SPARSE, sparse(F32, "0", I64, "0", 0), ATTNRUN_OK, "");
    expect_part(SPARSE, sparse(F32, "1,1", I64, "1", 6), ATTNRUN_E_MODEL,
                "expected rank 1");
    expect_part(SPARSE, sparse(F32, "1", I64, "2", 6), ATTNRUN_E_MODEL, "indices are");
    expect_part(SPARSE, sparse(F32, "1", I64, "2,1", 6), ATTNRUN_E_MODEL, "indices are");
    expect_part(SPARSE, sparse(F32, "1", I64, "1,2", 6), ATTNRUN_E_MODEL, "indices are");
    expect_part(SPARSE, sparse(F32, "1", I64, "1,1,1", 6), ATTNRUN_E_MODEL,
                "indices are");
    expect_part(SPARSE, sparse(F32, "1", ATTNRUN_I32, "1", 6), ATTNRUN_E_MODEL,
                "indices are");
    expect_part(SPARSE, sparse(ATTNRUN_STRING, "1", I64, "1", 6), ATTNRUN_E_UNSUPPORTED,
                "elements of type string");
    expect_part(SPARSE, sparse(ATTNRUN_I4, "1", I64, "1", 6), ATTNRUN_E_UNSUPPORTED,
                "elements of type i4");
    expect_part(SPARSE, sparse(F32, "2", I64, "2", 6), ATTNRUN_E_MODEL,
                "index 1 is not greater");
    expect_part(SPARSE, part, ATTNRUN_E_MODEL, "has no values or no indices");
    pb_message(&part, 1, &inner);
    expect_part(SPARSE, part, ATTNRUN_E_MODEL, "has no values or no indices");
}

/* One number or word in each of two fields of data. */
static void test_data_in_two_fields(void **state)
{
    (void)state;
    static const uint32_t fields[] = { 4, 5, 6, 7, 10, 11, 9 };
    static const uint8_t numbers[BULK] = { 1 };
    for (size_t a = 0; a < 7; a++)
        for (size_t b = a + 1; b < 7; b++) {
            struct pb tensor = { 0 };
            pb_int(&tensor, 1, 2);
            pb_int(&tensor, 2, F32);
            pb_string(&tensor, 8, "t");
            pb_bytes(&tensor, fields[a], numbers, 8);
            pb_bytes(&tensor, fields[b], numbers, 8);
            expect_part(5, tensor, ATTNRUN_E_MODEL,
                        "'t' has data in more than one field");
        }
    struct pb tensor = zeros("t", F32, "2"); /* and one that stays in the file */
    pb_bytes(&tensor, 4, numbers, BULK);
    expect_part(5, tensor, ATTNRUN_E_MODEL, "'t' has data in more than one field");
}

static void test_numbers_that_end_early(void **state)
{
    (void)state;
    static uint8_t endless[BULK];
    struct pb tensor = { 0 }, attr = { 0 }, node = pb_node("", "Constant", "", "k");
    memset(endless, 0x80, BULK);
    pb_int(&tensor, 1, BULK);
    pb_int(&tensor, 2, ATTNRUN_I32);
    pb_string(&tensor, 8, "t");
    pb_bytes(&tensor, 5, endless, BULK);
    expect_part(5, tensor, ATTNRUN_E_PARSE, "ends in the middle of a number");
    pb_string(&attr, 1, "value_ints");
    pb_int(&attr, 20, 7);
    pb_bytes(&attr, 8, "\x01\x80", 2);
    pb_message(&node, 5, &attr);
    expect_part(1, node, ATTNRUN_E_PARSE,
                "the packed numbers end in the middle of a number");
    pb_string(&attr, 1, "value_floats");
    pb_int(&attr, 20, 6);
    pb_bytes(&attr, 7, "\0\0\0\0\0", 5);
    node = pb_node("", "Constant", "", "k");
    pb_message(&node, 5, &attr);
    expect_part(1, node, ATTNRUN_E_PARSE,
                "the packed numbers end in the middle of a number");
}

/* ---- data in other files ---- */

static struct pb outside(int32_t dtype, const char *location, const char *offset)
{
    struct pb tensor = { 0 };
    pb_int(&tensor, 1, 4);
    pb_int(&tensor, 2, dtype);
    pb_string(&tensor, 8, "t");
    pb_int(&tensor, 14, EXTERNAL);
    pb_entry(&tensor, 13, "location", location);
    if (offset != NULL)
        pb_entry(&tensor, 13, "offset", offset);
    return tensor;
}

static void expect_outside(struct pb tensor, const char *folder, attnrun_status status,
                           const char *words)
{
    struct pb graph = graph_with(5, &tensor), model = pb_model(&graph);
    expect(open_all(&model, 0, folder), status, words);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_data_in_other_files(void **state)
{
    char folder[] = "/tmp/attnrun-refused-XXXXXX", path[128];
    static char far[6000];
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_text(folder, "w", "0123456789abcdef");
    write_text(folder, "lfs", "version https://git-lfs.github.com/spec/v1\n");
    memset(far, 'f', sizeof far - 1);
    expect_outside(outside(F32, "w", NULL), folder, ATTNRUN_OK, "");
    expect_outside(outside(F32, "w", "0"), folder, ATTNRUN_OK, "");
    expect_outside(outside(F32, "w", "1"), folder, ATTNRUN_E_IO,
                   "needs 16 bytes at offset 1 of 'w', which has 16");
    expect_outside(outside(F32, "lfs", "32"), folder, ATTNRUN_E_IO, "a Git LFS pointer");
    expect_outside(outside(F32, far, NULL), folder, ATTNRUN_E_PATH, "is not a path");
    expect_outside(outside(ATTNRUN_STRING, "w", NULL), folder, ATTNRUN_E_MODEL,
                   "strings cannot be external");
    struct pb tensor = outside(F32, "w", "0");
    pb_entry(&tensor, 13, "offset", "0");
    expect_outside(tensor, folder, ATTNRUN_E_MODEL, "two entries 'offset'");
    tensor = outside(F32, "w", NULL);
    pb_entry(&tensor, 13, "location", "w");
    expect_outside(tensor, folder, ATTNRUN_E_PATH, "two entries 'location'");
    tensor = outside(F32, "w", NULL);
    pb_bytes(&tensor, 9, "0123456789abcdef", 16);
    expect_outside(tensor, folder, ATTNRUN_E_MODEL, "is external and has raw_data");
    tensor = zeros("t", F32, "4");
    pb_int(&tensor, 14, 2);
    expect_outside(tensor, folder, ATTNRUN_E_MODEL, "data_location 2");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i == 0 ? "w" : "lfs");
        unlink(path);
    }
    rmdir(folder);
}

/* ---- declared types ---- */

static struct pb type_in(uint32_t field, struct pb inner)
{
    struct pb holder = { 0 }, type = { 0 };
    if (inner.bytes > 0)
        pb_message(&holder, 1, &inner);
    pb_message(&type, field, &holder);
    return type;
}

/* f32 of `rank` dims, each of them `dim`. */
static struct pb type_of(int rank, int64_t size)
{
    struct pb type = { 0 }, tensor = { 0 }, shape = { 0 };
    pb_int(&tensor, 1, F32);
    for (int k = 0; k < rank; k++) {
        struct pb dim = { 0 };
        pb_int(&dim, 1, size);
        pb_message(&shape, 1, &dim);
    }
    pb_message(&tensor, 2, &shape);
    pb_message(&type, 1, &tensor);
    return type;
}

static void expect_type(struct pb type, attnrun_status status, const char *words)
{
    struct pb info = { 0 };
    pb_string(&info, 1, "z");
    pb_message(&info, 2, &type);
    expect_part(11, info, status, words);
}

static void test_declared_types(void **state)
{
    enum { SEQUENCE = 4, SPARSE_TENSOR = 8, OPTIONAL = 9 };
    const struct pb nothing = { 0 };
    (void)state;
    expect_type(type_of(8, 2), ATTNRUN_OK, "");
    expect_type(type_of(2, -1), ATTNRUN_OK, ""); /* any */
    expect_type(type_of(2, -2), ATTNRUN_E_MODEL, "a declared dim is -2");
    expect_type(type_of(9, 2), ATTNRUN_E_LIMIT,
                "the type has 9 dims, expected at most 8");
    expect_type(type_of(1, INT64_MAX), ATTNRUN_E_LIMIT, "'dim'");
    expect_type(type_in(SEQUENCE, type_of(1, 2)), ATTNRUN_OK, "");
    expect_type(type_in(SEQUENCE, nothing), ATTNRUN_OK, "");
    expect_type(type_in(OPTIONAL, nothing), ATTNRUN_OK, "");
    expect_type(type_in(OPTIONAL, type_in(SEQUENCE, type_of(1, 2))), ATTNRUN_OK, "");
    expect_type(type_in(SEQUENCE, type_in(SEQUENCE, type_of(1, 2))),
                ATTNRUN_E_UNSUPPORTED, "something other than tensors");
    expect_type(type_in(SPARSE_TENSOR, nothing), ATTNRUN_E_UNSUPPORTED,
                "the type is sparse or opaque");
    struct pb graph = graph_with(0, NULL), info = { 0 }, type = { 0 }, tensor = { 0 };
    const float three[3] = { 1, 2, 3 };
    struct pb constant = pb_f32("w", three, 3);
    pb_message(&graph, 5, &constant);
    pb_int(&tensor, 1, ATTNRUN_F64);
    pb_message(&type, 1, &tensor);
    pb_string(&info, 1, "w");
    pb_message(&info, 2, &type);
    pb_message(&graph, 12, &info);
    expect_graph(graph, ATTNRUN_E_DTYPE, "output 'w' is declared f64, but is f32");
}

/* ---- constants ---- */

static struct pb constant_node(const char *in, const char *out, const char *name,
                               int32_t kind)
{
    struct pb node = pb_node("", "Constant", in, out), attr = { 0 };
    pb_string(&attr, 1, name);
    pb_int(&attr, 20, kind);
    pb_int(&attr, 3, 5);
    pb_message(&node, 5, &attr);
    return node;
}

static void test_constants(void **state)
{
    (void)state;
    expect_part(1, constant_node("", "k", "value_int", 2), ATTNRUN_OK, "");
    expect_part(1, constant_node("x", "k", "value_int", 2), ATTNRUN_E_MODEL,
                "1 input and 1 output");
    expect_part(1, constant_node("", "k,l", "value_int", 2), ATTNRUN_E_MODEL,
                "0 inputs and 2 outputs");
    expect_part(1, constant_node("", "k", "value_float", 2), ATTNRUN_E_MODEL,
                "of type 2, expected 1");
    expect_part(1, constant_node("", "k", "other", 2), ATTNRUN_E_MODEL,
                "the node has 0 values");
}

/* ---- functions and operators ---- */

/* f.F of `inputs`: v = LeakyRelu(u), whose slope refers to that of the call as `kind`. */
static struct pb function_of(const char *inputs, int32_t kind)
{
    struct pb f = { 0 }, node = pb_node("", "LeakyRelu", "u", "v"), attr = { 0 };
    pb_string(&attr, 1, "alpha");
    pb_int(&attr, 20, kind);
    pb_string(&attr, 21, "slope");
    pb_message(&node, 5, &attr);
    pb_string(&f, 1, "F");
    pb_string(&f, 10, "f");
    pb_names(&f, 4, inputs);
    pb_names(&f, 5, "v");
    pb_string(&f, 6, "slope");
    pb_opset(&f, 9, "", 18);
    pb_message(&f, 7, &node);
    return f;
}

static struct pb call_of(const char *in, const char *out)
{
    const float slope = 0.5f;
    struct pb node = pb_node("f", "F", in, out), attr = { 0 };
    pb_string(&attr, 1, "slope");
    pb_int(&attr, 20, 1);
    pb_varint(&attr, 2 << 3 | 5);
    pb_put(&attr, &slope, sizeof slope);
    pb_message(&node, 5, &attr);
    return node;
}

static void expect_functions(const char *inputs, int32_t kind, int copies,
                             attnrun_status status, const char *words)
{
    struct pb call = call_of("x", "called"), graph = graph_with(1, &call),
              model = pb_model(&graph);
    for (int k = 0; k < copies; k++) {
        struct pb f = function_of(inputs, kind);
        pb_message(&model, 25, &f);
    }
    expect(open_all(&model, 0, NULL), status, words);
}

static void test_functions(void **state)
{
    (void)state;
    expect_functions("u", 1, 1, ATTNRUN_OK, "");
    expect_functions("u,w", 1, 1, ATTNRUN_OK, "");
    expect_functions("u", 1, 2, ATTNRUN_E_MODEL,
                     "function 'F' of domain 'f' appears twice");
    expect_functions("u,u", 1, 1, ATTNRUN_E_MODEL, "two inputs are named 'u'");
    expect_functions("u,,w", 1, 1, ATTNRUN_E_MODEL, "two inputs are named ''");
    expect_functions("u", 2, 1, ATTNRUN_E_MODEL,
                     "refers to 'slope' of type 1, expected type 2");
    expect_functions("", 1, 1, ATTNRUN_E_MODEL, "the function 'F' has 0 and 1");
}

/* A node of a subgraph in a function refers to an attribute of the call. */
static void test_attributes_of_a_call_in_a_subgraph(void **state)
{
    struct pb f = { 0 }, inner, attr = { 0 }, node = pb_node("", "If", "c", "v");
    static const char *const branches[] = { "then_branch", "else_branch" };
    const float x[3] = { 4, -8, 2 };
    float y[3];
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct pb graph = { 0 };
        inner = pb_node("", "LeakyRelu", "u", "r");
        pb_string(&attr, 1, "alpha");
        pb_int(&attr, 20, 1);
        pb_string(&attr, 21, "slope");
        pb_message(&inner, 5, &attr);
        pb_message(&graph, 1, &inner);
        pb_value(&graph, 12, "r", 3);
        pb_string(&attr, 1, branches[k]);
        pb_int(&attr, 20, 5);
        pb_message(&attr, 6, &graph);
        pb_message(&node, 5, &attr);
    }
    pb_string(&f, 1, "F");
    pb_string(&f, 10, "f");
    pb_names(&f, 4, "u");
    pb_names(&f, 5, "v");
    pb_string(&f, 6, "slope");
    pb_opset(&f, 9, "", 18);
    pb_add_node(&f, 7, "", "ReduceMax", "u", "m");
    pb_add_node(&f, 7, "", "Greater", "m,m", "g");
    inner = pb_node("", "Squeeze", "g", "c");
    pb_message(&f, 7, &inner);
    pb_message(&f, 7, &node);
    struct pb graph = { 0 }, call = call_of("x", "y");
    pb_value(&graph, 11, "x", 3);
    pb_value(&graph, 12, "y", 3);
    pb_message(&graph, 1, &call);
    struct pb model = pb_model(&graph);
    pb_message(&model, 25, &f);
    expect(run_model(&model, 0, x, 3, y), ATTNRUN_OK, "");
    assert_true(y[0] == 4 && y[1] == -4 && y[2] == 2);
}

static void test_opsets(void **state)
{
    (void)state;
    char domain[16];
    struct pb graph = graph_with(0, NULL), model = pb_model(&graph);
    pb_opset(&model, 8, "", 18); /* the same once more */
    expect(open_all(&model, 0, NULL), ATTNRUN_OK, "");
    graph = graph_with(0, NULL);
    model = pb_model(&graph);
    pb_opset(&model, 8, "", 17);
    expect(open_all(&model, 0, NULL), ATTNRUN_E_MODEL, "has two opset versions");
    graph = graph_with(0, NULL);
    model = pb_model(&graph);
    for (int k = 0; k < 256; k++) {
        snprintf(domain, sizeof domain, "d%d", k);
        pb_opset(&model, 8, domain, 1);
    }
    expect(open_all(&model, 0, NULL), ATTNRUN_E_LIMIT, "258 opset imports");
}

/* "Op__01234567" of domain attnrun stands for Op; anything like it is a name of its own. */
static void test_names_with_a_hash(void **state)
{
    static const struct {
        const char *name;
        bool known;
    } rows[] = { { "FourierMix__0123abcd", true },  { "FourierMix__0123abcg", false },
                 { "FourierMix__0123ABCD", false }, { "FourierMix_x0123abcd", false },
                 { "FourierMixx_0123abcd", false }, { "__0123abcd", false },
                 { "FourierMix__0123abc", false },  { "FourierMix", true } };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct pb graph = { 0 };
        pb_value(&graph, 11, "x", 3);
        pb_value(&graph, 12, "y", 3);
        pb_add_node(&graph, 1, "attnrun", rows[k].name, "x", "y");
        struct pb model = pb_model(&graph);
        pb_opset(&model, 8, "attnrun", 1);
        attnrun_status status = open_all(&model, 0, NULL);
        if ((status != ATTNRUN_E_UNSUPPORTED) != rows[k].known)
            fail_msg("%s: %s", rows[k].name, attnrun_last_error()->message);
    }
}

/* ---- files of another kind ---- */

static void test_other_files_by_their_path(void **state)
{
    char folder[] = "/tmp/attnrun-refused-XXXXXX", path[128];
    attnrun_model *model = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    const attnrun_source source = { .struct_size = sizeof source, .path = path };
    write_text(folder, "m.onnx", "GGUF and more");
    expect(attnrun_model_open(test_runtime, &source, &model), ATTNRUN_E_PARSE,
           "m.onnx' is a GGUF file");
    write_text(folder, "m.onnx", "\x3a\x7f\x01\x02");
    expect(attnrun_model_open(test_runtime, &source, &model), ATTNRUN_E_PARSE, "m.onnx");
    assert_non_null(strstr(attnrun_last_error()->hint, "complete ONNX model"));
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_tensors),
        cmocka_unit_test(test_data_in_two_fields),
        cmocka_unit_test(test_numbers_that_end_early),
        cmocka_unit_test(test_data_in_other_files),
        cmocka_unit_test(test_declared_types),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_attributes_of_a_call_in_a_subgraph),
        cmocka_unit_test(test_opsets),
        cmocka_unit_test(test_names_with_a_hash),
        cmocka_unit_test(test_other_files_by_their_path),
    };
    return cmocka_run_group_tests(tests, start_runtime, stop_runtime);
}
