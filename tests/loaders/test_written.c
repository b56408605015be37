/* test_written.c - a model that is written again says what the file said: texts and versions,
 * inputs of all kinds, functions, operators of com.microsoft, subgraphs that give a value of
 * the graph around; constants in a file beside it. It computes the same bits. */
#include "../runtime/harness.h"

#include <unistd.h>

#include "graph.h"
#include "onnx.pb-c.h"
#include "pb_write.h"

enum { BIG = 20000, INPUTS = 8, OUTPUTS = 4 };

/* ---- the model ---- */

/* `inner` as the element of a sequence (4), a map (5) or an optional (9). */
static struct pb type_around(struct pb inner, uint32_t field)
{
    struct pb outer = { 0 }, type = { 0 };
    if (field == 5)
        pb_int(&outer, 1, ATTNRUN_I64);
    pb_message(&outer, field == 5 ? 2 : 1, &inner);
    pb_message(&type, field, &outer);
    return type;
}

/* dims: "" a scalar, else names or numbers; NULL: of unknown rank. */
static struct pb tensor_type(int32_t dtype, const char *dims)
{
    struct pb type = { 0 }, tensor = { 0 }, shape = { 0 };
    pb_int(&tensor, 1, dtype);
    for (const char *p = dims; p != NULL && *p != 0;
         p += strcspn(p, ","), p += *p == ',') {
        struct pb dim = { 0 };
        if (*p >= '0' && *p <= '9')
            pb_int(&dim, 1, atoll(p));
        else
            pb_bytes(&dim, 2, p, strcspn(p, ","));
        pb_message(&shape, 1, &dim);
    }
    if (dims != NULL)
        pb_message(&tensor, 2, &shape);
    pb_message(&type, 1, &tensor);
    return type;
}

static void put_inputs(struct pb *graph)
{
    const int32_t f32 = ATTNRUN_F32;
    pb_value_of(graph, 11, "x", tensor_type(f32, "N,3"));
    pb_value_of(graph, 11, "c", tensor_type(ATTNRUN_BOOL, ""));
    pb_value_of(graph, 11, "list", type_around(tensor_type(f32, NULL), 4));
    pb_value_of(graph, 11, "map", type_around(tensor_type(f32, ""), 5));
    pb_value_of(graph, 11, "maps", type_around(type_around(tensor_type(f32, ""), 5), 4));
    pb_value_of(graph, 11, "maybe", type_around(tensor_type(f32, NULL), 9));
    pb_value_of(graph, 11, "lists",
                type_around(type_around(tensor_type(f32, NULL), 4), 9));
    pb_value_of(graph, 11, "any", tensor_type(f32, NULL));
}

/* One branch gives x itself, the other has a constant of its own. */
static void put_branches(struct pb *graph)
{
    static const float three[3] = { 3, 3, 0.5f };
    struct pb node = pb_node("", "If", "c", "b"), branch = { 0 }, attr = { 0 }, constant;
    pb_value(&branch, 12, "x", -1);
    pb_string(&attr, 1, "then_branch");
    pb_int(&attr, 20, 5);
    pb_message(&attr, 6, &branch);
    pb_message(&node, 5, &attr);
    constant = pb_f32("three", three, 3);
    pb_message(&branch, 5, &constant);
    pb_add_node(&branch, 1, "", "Mul", "x,three", "e");
    pb_value(&branch, 12, "e", -1);
    pb_string(&attr, 1, "else_branch");
    pb_int(&attr, 20, 5);
    pb_message(&attr, 6, &branch);
    pb_message(&node, 5, &attr);
    pb_message(graph, 1, &node);
}

/* An optional that holds nothing, of a type that an attribute says. */
static void put_nothing(struct pb *graph)
{
    struct pb node = pb_node("", "Optional", "", "nothing"), attr = { 0 },
              type = tensor_type(ATTNRUN_F32, NULL);
    pb_string(&attr, 1, "type");
    pb_int(&attr, 20, 13);
    pb_message(&attr, 14, &type);
    pb_message(&node, 5, &attr);
    pb_message(graph, 1, &node);
    pb_add_node(graph, 1, "", "OptionalHasElement", "nothing", "has");
}

static void put_function(struct pb *model)
{
    struct pb f = { 0 };
    pb_string(&f, 1, "Twice");
    pb_string(&f, 10, "f");
    pb_names(&f, 4, "u");
    pb_names(&f, 5, "v");
    pb_opset(&f, 9, "", 18);
    pb_add_node(&f, 7, "", "Add", "u,u", "v");
    pb_message(model, 25, &f);
}

static struct pb whole_model(void)
{
    static float big[BIG], few[300];
    struct pb graph = { 0 }, tensor;
    for (int i = 0; i < BIG; i++)
        big[i] = (float)(i % 1013);
    for (int i = 0; i < 300; i++)
        few[i] = (float)i;
    pb_string(&graph, 2, "whole");
    pb_string(&graph, 10, "the doc of the graph");
    tensor = pb_f32("big", big, BIG);
    pb_message(&graph, 5, &tensor);
    tensor =
        pb_f32("few", few, 300); /* 1,200 bytes: beside the head, not in another file */
    pb_message(&graph, 5, &tensor);
    put_inputs(&graph);
    pb_add_node(&graph, 1, "com.microsoft", "QuickGelu", "x", "q");
    put_branches(&graph);
    pb_add_node(&graph, 1, "", "Add", "q,b", "s");
    pb_add_node(&graph, 1, "f", "Twice", "s", "y");
    put_nothing(&graph);
    pb_value_of(&graph, 12, "y", tensor_type(ATTNRUN_F32, "N,3"));
    pb_value_of(&graph, 12, "has", tensor_type(ATTNRUN_BOOL, ""));
    pb_value_of(&graph, 12, "big", tensor_type(ATTNRUN_F32, "20000"));
    pb_value_of(&graph, 12, "few", tensor_type(ATTNRUN_F32, "300"));
    struct pb model = pb_model(&graph);
    pb_string(&model, 2, "test_written");
    pb_string(&model, 3, "7.1");
    pb_string(&model, 4, "org.example");
    pb_int(&model, 5, 42);
    pb_string(&model, 6, "the doc of the model");
    pb_entry(&model, 14, "key", "value");
    put_function(&model);
    return model;
}

/* ---- running it ---- */

static void bind_all(attnrun_context *context, bool chosen)
{
    static float x[6] = { 1, -2, 3, 0.5f, -0.25f, 4 }, value = 2;
    static int64_t key = 3;
    static uint8_t c;
    static attnrun_tensor columns[2], item, map; /* read by the run */
    columns[0] = tensor_of(ATTNRUN_I64, "1", &key);
    columns[1] = tensor_of(ATTNRUN_F32, "1", &value);
    item = tensor_of(ATTNRUN_F32, "6", x);
    map = (attnrun_tensor){ .kind = ATTNRUN_MAP,
                            .dtype = ATTNRUN_F32,
                            .rank = 1,
                            .dims = { 1 },
                            .data = columns };
    const attnrun_tensor list = { .kind = ATTNRUN_SEQUENCE,
                                  .dtype = ATTNRUN_F32,
                                  .rank = 1,
                                  .dims = { 1 },
                                  .data = &item };
    const attnrun_tensor maps = { .kind = ATTNRUN_MAP_SEQUENCE,
                                  .dtype = ATTNRUN_F32,
                                  .rank = 1,
                                  .dims = { 1 },
                                  .data = &map };
    const attnrun_tensor maybe = { .kind = ATTNRUN_OPTIONAL, .dtype = ATTNRUN_F32 };
    const attnrun_tensor lists = { .kind = ATTNRUN_OPTIONAL_SEQUENCE,
                                   .dtype = ATTNRUN_F32 };
    c = chosen;
    set_input(context, 0, ATTNRUN_F32, "2,3", x);
    set_input(context, 1, ATTNRUN_BOOL, "", &c);
    OK(attnrun_set_input(context, 2, &list));
    OK(attnrun_set_input(context, 3, &map));
    OK(attnrun_set_input(context, 4, &maps));
    OK(attnrun_set_input(context, 5, &maybe));
    OK(attnrun_set_input(context, 6, &lists));
    set_input(context, 7, ATTNRUN_F32, "6", x);
}

static void compare_outputs(attnrun_model *a, attnrun_model *b)
{
    attnrun_context *first = make_context(a), *second = make_context(b);
    for (int turn = 0; turn < 2; turn++) {
        bind_all(first, turn == 1);
        OK(attnrun_run(first, NULL));
        bind_all(second, turn == 1);
        OK(attnrun_run(second, NULL));
        for (int32_t i = 0; i < OUTPUTS; i++) {
            const attnrun_tensor x = get_output(first, i), y = get_output(second, i);
            assert_int_equal(x.dtype, y.dtype);
            assert_int_equal(attnrun_tensor_bytes(&x), attnrun_tensor_bytes(&y));
            assert_memory_equal(x.data, y.data, (size_t)attnrun_tensor_bytes(&x));
        }
    }
    attnrun_context_destroy(first);
    attnrun_context_destroy(second);
}

/* ---- what both say ---- */

static void compare_infos(const attnrun_model *a, const attnrun_model *b)
{
    attnrun_model_info x = { .struct_size = sizeof x }, y = { .struct_size = sizeof y };
    attnrun_value_info v = { .struct_size = sizeof v }, w = { .struct_size = sizeof w };
    const char *key, *value;
    OK(attnrun_model_query(a, &x));
    OK(attnrun_model_query(b, &y));
    assert_string_equal(y.producer, "test_written");
    assert_string_equal(y.producer_version, "7.1");
    assert_string_equal(y.domain, "org.example");
    assert_string_equal(y.doc, "the doc of the model");
    assert_string_equal(y.graph_name, "whole");
    assert_string_equal(y.graph_doc, "the doc of the graph");
    assert_int_equal(y.model_version, 42);
    assert_int_equal(y.ir_version, x.ir_version);
    assert_int_equal(y.n_metadata, 1);
    OK(attnrun_model_metadata(b, 0, &key, &value));
    assert_string_equal(key, "key");
    assert_string_equal(value, "value");
    assert_int_equal(x.n_inputs, INPUTS);
    assert_int_equal(y.n_inputs, INPUTS);
    assert_int_equal(y.n_outputs, OUTPUTS);
    for (int32_t i = 0; i < INPUTS; i++) {
        OK(attnrun_model_input(a, i, &v));
        OK(attnrun_model_input(b, i, &w));
        assert_string_equal(v.name, w.name);
        assert_int_equal(v.kind, w.kind);
        assert_int_equal(v.dtype, w.dtype);
        assert_int_equal(v.key_dtype, w.key_dtype);
        assert_int_equal(v.rank, w.rank);
    }
    assert_string_equal(w.name, "any");
    OK(attnrun_model_input(b, 0, &w));
    assert_string_equal(w.dim_names[0], "N");
    assert_int_equal(w.dims[1], 3);
}

/* ---- writing ---- */

struct written {
    struct pb model, beside;
};

static int32_t take_model(void *user, const void *bytes, uint64_t n)
{
    pb_put(&((struct written *)user)->model, bytes, (size_t)n);
    return 0;
}

static int32_t take_beside(void *user, const void *bytes, uint64_t n)
{
    pb_put(&((struct written *)user)->beside, bytes, (size_t)n);
    return 0;
}

static attnrun_status open_pb(attnrun_runtime *runtime, const struct pb *pb,
                              const char *folder, attnrun_model **model)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = pb->data,
                                    .bytes = pb->bytes,
                                    .external_dir = folder };
    return attnrun_model_open(runtime, &source, model);
}

static void write_again(bool simplify, bool external)
{
    char folder[] = "/tmp/attnrun-written-XXXXXX", path[64];
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct pb pb = whole_model();
    struct written written = { .model = { 0 } };
    attnrun_model *first, *second;
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = pb.data,
                                    .bytes = pb.bytes };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .flags = simplify ? ATTNRUN_ONNX_SIMPLIFY : 0,
                                     .external_name = external ? "beside.bin" : NULL,
                                     .write_external = external ? take_beside : NULL };
    attnrun_onnx_saved saved = { .struct_size = sizeof saved };
    OK(attnrun_save_onnx(runtime, &source, &edit, take_model, &written, &saved));
    assert_int_equal(saved.bytes, written.model.bytes);
    assert_int_equal(saved.external_bytes, written.beside.bytes);
    assert_int_equal(written.beside.bytes, external ? BIG * sizeof(float) : 0);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/beside.bin", folder);
    if (external) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(written.beside.data, 1, written.beside.bytes, file),
                         written.beside.bytes);
        fclose(file);
    }
    OK(open_pb(runtime, &pb, NULL, &first));
    OK(open_pb(runtime, &written.model, folder, &second));
    compare_infos(first, second);
    compare_outputs(first, second);
    attnrun_model_release(second);
    attnrun_model_release(first);
    unlink(path);
    rmdir(folder);
    pb_free(&written.model);
    pb_free(&written.beside);
    pb_free(&pb);
    attnrun_runtime_destroy(runtime);
}

static void test_written_as_it_is(void **state)
{
    (void)state;
    write_again(false, false);
    write_again(false, true);
}

static void test_written_simpler(void **state)
{
    (void)state;
    write_again(true, false);
    write_again(true, true);
}

/* The file says nothing of the shape of a scalar; what is written does. */
static void test_scalars_have_a_shape(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct pb graph = { 0 }, node = pb_node("", "ReduceMax", "x", "y"), attr = { 0 };
    struct written written = { .model = { 0 } };
    (void)state;
    pb_string(&attr, 1, "keepdims");
    pb_int(&attr, 20, 2);
    pb_int(&attr, 3, 0);
    pb_message(&node, 5, &attr);
    pb_value(&graph, 11, "x", 3);
    pb_message(&graph, 1, &node);
    pb_value(&graph, 12, "y", -1);
    struct pb pb = pb_model(&graph);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = pb.data,
                                    .bytes = pb.bytes };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit };
    OK(attnrun_save_onnx(runtime, &source, &edit, take_model, &written, NULL));
    Attnrun__Onnx__ModelProto *model =
        attnrun__onnx__model_proto__unpack(NULL, written.model.bytes, written.model.data);
    assert_non_null(model);
    assert_int_equal(model->graph->n_output, 1);
    const Attnrun__Onnx__TensorShapeProto *shape =
        model->graph->output[0]->type->tensor_type->shape;
    assert_non_null(shape);
    assert_int_equal(shape->n_dim, 0);
    attnrun__onnx__model_proto__free_unpacked(model, NULL);
    pb_free(&written.model);
    pb_free(&pb);
    attnrun_runtime_destroy(runtime);
}

/* An attribute of `type` that the operator does not read, with two values in `field`. */
static struct pb model_with_unread(int32_t type, uint32_t field)
{
    static const float ones[2] = { 1, 1 }, values[2] = { 0.5f, 7 };
    struct pb graph = { 0 },
              node = pb_node("", "InstanceNormalization", "x,one,one", "y"), attr = { 0 },
              tensor = pb_f32("one", ones, 2);
    pb_message(&graph, 5, &tensor);
    pb_string(&attr, 1, "consumed_inputs");
    pb_int(&attr, 20, type);
    for (int i = 0; i < 2; i++) {
        struct pb value = type == ATTN_ATTR_TENSORS ? pb_f32("", &values[i], 1)
                                                    : tensor_type(ATTNRUN_F32, "2");
        pb_message(&attr, field, &value);
    }
    pb_message(&node, 5, &attr);
    pb_value_of(&graph, 11, "x", tensor_type(ATTNRUN_F32, "1,2,3"));
    pb_message(&graph, 1, &node);
    pb_value(&graph, 12, "y", -1);
    return pb_model(&graph);
}

static attnrun_status write_unread(int32_t type, uint32_t field, struct written *written)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct pb pb = model_with_unread(type, field);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = pb.data,
                                    .bytes = pb.bytes };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit };
    const attnrun_status status =
        attnrun_save_onnx(runtime, &source, &edit, take_model, written, NULL);
    pb_free(&pb);
    attnrun_runtime_destroy(runtime);
    return status;
}

/* A list of tensors is written; a list of types is refused, not left out. */
static void test_lists_that_no_operator_reads(void **state)
{
    struct written written = { .model = { 0 } };
    (void)state;
    OK(write_unread(ATTN_ATTR_TENSORS, 10, &written));
    Attnrun__Onnx__ModelProto *model =
        attnrun__onnx__model_proto__unpack(NULL, written.model.bytes, written.model.data);
    assert_non_null(model);
    const Attnrun__Onnx__AttributeProto *attr = model->graph->node[0]->attribute[0];
    assert_string_equal(attr->name, "consumed_inputs");
    assert_int_equal(attr->n_tensors, 2);
    for (int i = 0; i < 2; i++) {
        float value;
        assert_int_equal(attr->tensors[i]->raw_data.len, sizeof value);
        memcpy(&value, attr->tensors[i]->raw_data.data, sizeof value);
        assert_true(value == (i == 0 ? 0.5f : 7.0f));
    }
    attnrun__onnx__model_proto__free_unpacked(model, NULL);
    pb_free(&written.model);
    FAILS(ATTNRUN_E_UNSUPPORTED,
          "'consumed_inputs' holds sparse tensors or a list of types",
          write_unread(ATTN_ATTR_TYPE_PROTOS, 15, &written));
    pb_free(&written.model);
}

/* ---- writers that fail ---- */

static int32_t fails_at(void *user, const void *bytes, uint64_t n)
{
    (void)bytes;
    (void)n;
    return --*(int64_t *)user == 0;
}

static void test_each_piece_that_is_not_taken(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct pb pb = whole_model();
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = pb.data,
                                    .bytes = pb.bytes };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .external_name = "beside.bin",
                                     .write_external = fails_at };
    int64_t pieces = INT64_MAX;
    (void)state;
    OK(attnrun_save_onnx(runtime, &source, &edit, fails_at, &pieces, NULL));
    const int64_t all = INT64_MAX - pieces;
    assert_true(all >= 5);
    for (int64_t piece = 1; piece <= all; piece++) {
        pieces = piece;
        FAILS(ATTNRUN_E_IO, "",
              attnrun_save_onnx(runtime, &source, &edit, fails_at, &pieces, NULL));
        assert_int_equal(pieces, 0); /* none after it */
    }
    pb_free(&pb);
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_as_it_is),
        cmocka_unit_test(test_written_simpler),
        cmocka_unit_test(test_scalars_have_a_shape),
        cmocka_unit_test(test_lists_that_no_operator_reads),
        cmocka_unit_test(test_each_piece_that_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
