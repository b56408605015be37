/* packed_file.h - a packed file in memory, for the tests that damage it: of a model with packed
 * weights, constants, texts, attributes of all kinds, symbols, sequences and subgraphs. */
#ifndef ATTN_TESTS_PACKED_FILE_H
#define ATTN_TESTS_PACKED_FILE_H

#include "../runtime/harness.h"

#include "../../loaders/packed_format.h"

enum { ROOM = 1 << 18 };

struct file {
    _Alignas(PACKED_ALIGN) uint8_t data[ROOM];
    size_t n;
    int64_t calls, fail_at; /* -1: none */
};

static int32_t take_piece(void *user, const void *bytes, uint64_t n)
{
    struct file *file = user;
    if (file->calls++ == file->fail_at || n > sizeof file->data - file->n)
        return 1;
    memcpy(file->data + file->n, bytes, (size_t)n);
    file->n += (size_t)n;
    return 0;
}

/* ---- a model with what a graph may have ---- */

static void write_branches(struct onnx_writer *w)
{
    onnx_node(w, "If", "c", "chosen");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Mul", "first,half", "t");
    onnx_output(w, "t", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "If", "c", "e");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Abs", "first", "deep");
    onnx_output(w, "deep", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Neg", "x", "deep");
    onnx_output(w, "deep", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_output(w, "e", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
}

/* Packed weights, constants, texts, attributes of all kinds, symbols and expressions of them,
 * sequences, subgraphs within subgraphs. */
static struct onnx_writer *write_model(void)
{
    static const char *const words[] = { "a", "", "bc" };
    float weight[32 * 32];
    uint64_t seed = 3;
    struct onnx_writer *w = onnx_begin(21);
    fill_floats(&seed, weight, 32 * 32);
    onnx_domain(w, "ai.onnx.ml");
    onnx_input(w, "x", ATTNRUN_F32, "N,32");
    onnx_input(w, "more", ATTNRUN_F32, "M,32");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_input_of(w, "s", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_input_of(w, "o", ATTNRUN_OPTIONAL, ATTNRUN_F32);
    onnx_input(w, "given", ATTNRUN_STRING, "3");
    onnx_constant(w, "w", ATTNRUN_F32, "32,32", weight);
    onnx_float(w, "half", 0.5f);
    onnx_int(w, "zero", 0);
    onnx_constant(w, "yes", ATTNRUN_BOOL, "", &(uint8_t){ 1 }); /* one byte */
    onnx_ints(w, "shape", 3, (int64_t[]){ 0, 4, 8 });
    onnx_node(w, "MatMul", "x,w", "product");
    onnx_node(w, "Softmax", "product", "soft");
    onnx_attr_int(w, "axis", -1);
    onnx_node(w, "LeakyRelu", "soft", "first");
    onnx_attr_float(w, "alpha", 0.25f);
    onnx_node(w, "Concat", "first,more", "long");
    onnx_attr_int(w, "axis", 0);
    onnx_node(w, "Reshape", "long,shape", "cut");
    onnx_node(w, "Transpose", "cut", "transposed");
    onnx_attr_ints(w, "perm", 3, (int64_t[]){ 2, 0, 1 });
    onnx_node(w, "SequenceAt", "s,zero", "item");
    onnx_node(w, "OptionalHasElement", "o", "has");
    onnx_node(w, "And", "has,yes", "there");
    onnx_node(w, "Constant", "", "texts");
    onnx_attr_strings(w, "value_strings", 3, words);
    onnx_node(w, "StringConcat", "texts,texts", "joined");
    onnx_node(w, "StringConcat", "given,texts", "both");
    onnx_node(w, "ai.onnx.ml::LabelEncoder", "both", "classes");
    onnx_attr_strings(w, "classes_strings", 3, words);
    onnx_node(w, "ai.onnx.ml::LabelEncoder", "joined", "codes");
    onnx_attr_strings(w, "classes_strings", 3, words);
    write_branches(w);
    onnx_output(w, "transposed", ATTNRUN_F32, NULL);
    onnx_output(w, "item", ATTNRUN_F32, NULL);
    onnx_output(w, "there", ATTNRUN_BOOL, NULL);
    onnx_output(w, "joined", ATTNRUN_STRING, NULL);
    onnx_output(w, "classes", ATTNRUN_I64, NULL);
    onnx_output(w, "chosen", ATTNRUN_F32, NULL);
    onnx_output(w, "codes", ATTNRUN_I64, NULL);
    return w;
}

static void pack(struct file *file)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, write_model(), 0);
    file->n = 0;
    file->calls = 0;
    file->fail_at = -1;
    OK(attnrun_model_save(model, take_piece, file));
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

static struct attn_packed_head *head_of(struct file *file)
{
    return (struct attn_packed_head *)(void *)file->data;
}

/* The hashes of what is there now. */
static void set_hashes(struct file *file)
{
    struct attn_packed_head *head = head_of(file);
    if (head->graph_at <= file->n && head->graph_bytes <= file->n - head->graph_at)
        head->graph_hash =
            attn_packed_hash_of(file->data + head->graph_at, (int64_t)head->graph_bytes);
    head->head_hash = attn_packed_head_hash(head);
}

/* Opens it, and makes a context where it can. INTERNAL is a fault of the library. */
static attnrun_status try_file(attnrun_runtime *runtime, const struct file *file,
                               uint32_t flags)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = file->data,
                                    .bytes = file->n,
                                    .flags = flags,
                                    .timeout_us = 1000000 };
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    attnrun_status status = attnrun_model_open(runtime, &source, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    if (status == ATTNRUN_E_INTERNAL ||
        (status != ATTNRUN_OK && attnrun_last_error()->message[0] == 0))
        fail_msg("%s: %s", attnrun_status_name(status), attnrun_last_error()->message);
    return status;
}

#endif
