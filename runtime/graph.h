/* graph.h - the graph in memory: values, nodes, subgraphs, functions; and the model that
 * owns them. The loader builds it, rewrite passes change it, plans read it. All memory is
 * in the model's pool. */
#ifndef ATTN_GRAPH_H
#define ATTN_GRAPH_H

#include "dim.h"
#include "heap.h"
#include "op.h"
#include "row.h"
#include "tensor.h"

enum {
    ATTN_NEWEST_OPSET = 28,  /* of ai.onnx, that is known here */
    ATTN_OPERATORS_KEPT = 64 /* for each model: operator.c */
};

/* ---- attributes as the file has them, before a row parses them into an args struct ----
 */
enum attn_attr_kind { /* ONNX's AttributeProto.AttributeType numbers */
                      ATTN_ATTR_FLOAT = 1,
                      ATTN_ATTR_INT = 2,
                      ATTN_ATTR_STRING = 3,
                      ATTN_ATTR_TENSOR = 4,
                      ATTN_ATTR_GRAPH = 5,
                      ATTN_ATTR_FLOATS = 6,
                      ATTN_ATTR_INTS = 7,
                      ATTN_ATTR_STRINGS = 8,
                      ATTN_ATTR_TENSORS = 9,
                      ATTN_ATTR_GRAPHS = 10,
                      ATTN_ATTR_SPARSE_TENSOR = 11,
                      ATTN_ATTR_SPARSE_TENSORS = 12,
                      ATTN_ATTR_TYPE_PROTO = 13,
                      ATTN_ATTR_TYPE_PROTOS = 14
};

struct attn_attr {
    const char *name;
    int32_t kind;
    int32_t graph; /* GRAPH: index into the node's graphs[] */
    int64_t i;
    float f;
    attnrun_string s;
    attnrun_ints ints;
    attnrun_floats floats;
    attnrun_strings strings;
    attnrun_tensor tensor; /* TENSOR; a SPARSE_TENSOR comes dense */
    attnrun_type type;
};

/* ---- values ---- */
enum {
    ATTN_VALUE_INPUT = 1,   /* input of this graph */
    ATTN_VALUE_OUTPUT = 2,  /* output of this graph */
    ATTN_VALUE_CAPTURE = 4, /* of a subgraph: stands for a value of the graph around it */
    ATTN_VALUE_FOLDED = 8,  /* constant computed at load: memory of the model */
    ATTN_VALUE_RELEASED =
        16,                  /* such a constant whose bytes are gone: only its packed form
                                 is left */
    ATTN_VALUE_DECLARED = 32 /* kind and dtype are as the file says, not checked yet */
};

struct attn_value {
    const char *name;         /* never NULL, never "" */
    attnrun_type type;        /* kind ABSENT until known; rank -1 where unknown */
    attnrun_tensor data;      /* data NULL unless constant */
    const attnrun_dim *known; /* elements of a small integer tensor, or NULL */
    int64_t n_known;
    int32_t producer; /* index of the node; -1: input, capture or constant */
    int32_t outer;    /* CAPTURE: value id in the graph around */
    const struct attn_node *folded_by; /* FOLDED: the node that gave it, or NULL */
    int32_t n_uses;                    /* by nodes (captures too) and as graph output */
    uint32_t flags;
    struct attn_use *uses; /* its readers, in no order: graph_edit.c */
};

/* One entry of the list of those who read a value: operand `index` of `node`; or, where
 * `inner` is not NULL, value `index` of this subgraph of `node`, which stands for it; or,
 * where `node` is NULL, output `index` of the graph. Those of `inner` are no uses in n_uses:
 * the node has the value among its captures, too. */
struct attn_use {
    struct attn_use *next, *previous;
    struct attn_node *node;
    struct attn_graph *inner;
    int32_t index;
};

/* ---- nodes ---- */
struct attn_node {
    attnrun_node pub; /* first: step->node points here */
    int32_t *in;  /* value ids, -1 absent; pub.n_in formal ones, then n_captures more */
    int32_t *out; /* value ids, -1 not wanted; pub.n_out */
    int32_t n_captures;
    struct attn_use *uses;      /* one for each of `in`, once it is linked */
    const struct attn_row *row; /* the operands of its operator; NULL without one */
    struct attn_attr *attrs;
    int32_t n_attrs;
    const char
        *file_type, /* of the file, a function "Op__hash" of its own; NULL: op_type */
        *overload;  /* of the file, where it has one; else NULL */
    struct attn_graph **graphs; /* of graph attributes, in the order of attrs */
    int32_t n_graphs;
    uint32_t pack_replaces;
    bool
        internal; /* written by the library: runs a built-in row whatever is registered */
    bool stale;   /* it, its inputs or its outputs changed since it was inferred */
    bool built_in; /* its row is built-in, not one that a user registered in its place */
    bool has_body; /* the file has a function for it, which other runtimes need */
    bool
        formula; /* pub.function is an operator, no function of the file: expand_node.c */
    int64_t packed_bytes;
    bool adopted; /* `packed` lies in a packed file: adopt.c */
};

struct attn_graph {
    struct attn_model *model;
    struct attn_graph *outer; /* NULL: the main graph */
    const char *name;
    struct attn_value *values; /* [-1] stands for absent operands */
    struct attn_node **nodes;  /* in an order of execution; NULL entries were removed */
    int32_t *inputs, *outputs; /* value ids */
    int32_t *output_ranks; /* as the file declares them, -1 where it does not; or NULL */
    int64_t n_values, n_nodes, values_capacity, nodes_capacity;
    int32_t n_inputs, n_outputs;
    int32_t depth;
    bool promoted; /* constants that operators read in 16 bits are left so: promote.c */
    struct attn_names *names;     /* values by name */
    struct attn_use *output_uses; /* one an output */
    struct attn_use
        *capture_uses; /* of a subgraph: one a value with ATTN_VALUE_CAPTURE */
    int32_t n_captures;
    int64_t n_stale; /* nodes to infer */
    const struct attn_ragged
        *ragged; /* the graph runs on the tokens of a batch, or NULL */
    bool edited; /* since the nodes were ordered and those that nobody reads removed */
    bool postponed,
        folds_all; /* constants that are made of few: attn_graph_fold_rest() */
};

/* How much loading does, counted for tests. */
struct attn_load_counts {
    int64_t inferred; /* nodes */
    int64_t placed;   /* nodes in an order */
    int64_t moved;    /* users that read another value */
    int64_t compared; /* pairs of nodes, whether they give the same */
};

struct attn_file;
struct attn_opset {
    const char *domain;
    int64_t version;
};
struct attn_property {
    const char *key, *value;
};

/* Where a pass found what it looks for but for one condition. */
struct attn_pass_note {
    const char *pass, *node, *why; /* static; in the pool; static */
};

/* Of a model that is opened to be written as ONNX: the file, and how much of it stays. */
struct attn_origin {
    const uint8_t *data;
    int64_t bytes;
    /* Of the file, and what it says of each: other outputs were added to keep values. */
    int32_t n_outputs;
    attnrun_type *output_types;
    bool keep_nodes; /* no node is computed or changed */
    /* Values of the main graph where a part of it begins: they are no constants. */
    const char *const *inputs;
    int64_t n_inputs;
};

/* The object behind attnrun_model. */
struct attn_model {
    attnrun_runtime *runtime;
    struct attn_pool pool;
    struct attn_pool weights;           /* read and made constants, packed weights */
    struct attn_heap heap;              /* for folding */
    struct attn_heap_list folded;       /* constants computed at load */
    struct attn_fold_table *fold_table; /* of nodes whose results are among them */
    struct attn_dims *dims;
    struct attn_graph *graph;
    struct attn_opset *opsets;
    struct attn_property *metadata;
    int32_t *applied; /* of each of attn_passes: how often */
    struct attn_pass_note *notes;
    struct attn_origin *origin;   /* NULL: the model is to be run */
    struct attn_file_list *files; /* mapped or read; closed with the model */
    const char *producer, *producer_version, *domain, *doc, *graph_name, *graph_doc;
    const char *missing;
    const char *disable_passes;
    const char *failed_pass; /* a pass found no row for what it writes; or NULL */
    int64_t ir_version;
    int64_t model_version; /* INT64_MAX: the file has none */
    int64_t n_parameters, weights_bytes, file_bytes, folded_bytes, packed_bytes;
    int32_t n_opsets, n_metadata, n_functions, n_passes, n_notes, n_missing;
    int32_t n_file_nodes;
    uint32_t flags; /* attnrun_source.flags */
    attnrun_limits limits;
    bool products_bf16;
    uint8_t isa;            /* enum attn_isa: the runtime's, or that of a packed file */
    uint8_t ragged;         /* attnrun_source.ragged */
    const char *ragged_why; /* static: why the graph does not run so, or NULL */
    uint8_t precision; /* attnrun_source.precision, or what a packed file was made with */
    const void *stand_in;   /* while it is measured: what nodes show for packed weights */
    bool rewritten;         /* comes out of a packed file: nothing is folded */
    const char *packed_for; /* such a file's instruction set, or "" */
    int32_t refs;
    struct attn_load_counts counts;
    struct attn_row_table rows;
    struct attn_operator **operators; /* ATTN_OPERATORS_KEPT, or NULL: operator.c */
    struct attn_model_private *priv;  /* lock and packing state: model.c */
};

/* ---- building ---- */
struct attn_graph *attn_graph_create(struct attn_model *model, struct attn_graph *outer);
/* Makes room in an empty graph: arrays that grow leave their former ones in the pool. */
attn_status attn_graph_reserve(struct attn_graph *graph, int64_t n_values,
                               int64_t n_nodes);
/* A new value; *id is its index. `name` NULL or "": a fresh one. */
attn_status attn_graph_add_value(struct attn_graph *graph, const char *name, int32_t *id);
/* A constant; `tensor` data must live as long as the model (pool, mapped file). */
attn_status attn_graph_add_constant(struct attn_graph *graph, const char *name,
                                    const attnrun_tensor *tensor, int32_t *id);
/* The value of that name in this graph, or -1. O(1). */
int32_t attn_graph_find(const struct attn_graph *graph, const char *name);
/* Appends a node (not yet resolved). The arrays are copied; names are taken from the
 * values. `name` may be NULL. */
attn_status attn_graph_add_node(struct attn_graph *graph, const char *domain,
                                const char *op_type, const char *name, int32_t n_in,
                                const int32_t *in, int32_t n_out, const int32_t *out,
                                struct attn_node **made);
attn_status attn_node_set_attrs(struct attn_graph *graph, struct attn_node *node,
                                int32_t n_attrs, const struct attn_attr *attrs);
const struct attn_attr *attn_node_attr(const struct attn_node *node, const char *name);

/* ---- after building ---- */
/* Finds the operator row for domain, op_type and the domain's opset (a built-in one where
 * node->internal), checks arity and attributes, and parses them. E_UNSUPPORTED where
 * there is no row. */
attn_status attn_node_resolve(struct attn_graph *graph, struct attn_node *node);
/* Of a graph as it was built, once, and of its subgraphs, which come first: sorts nodes
 * topologically, sets producers, lists the users of values. E_MODEL where the graph has a
 * cycle or reads a value that nothing gives. */
attn_status attn_graph_finish(struct attn_graph *graph);
/* After edits: sorts nodes topologically, drops removed ones, sets producers. A part of
 * attn_graph_finish(), with its errors; subgraphs are left alone. */
attn_status attn_graph_order(struct attn_graph *graph);
/* Closes the gaps that removed nodes left in an order that is right. */
void attn_graph_close_gaps(struct attn_graph *graph);
/* Sets the names of a node's operands, for messages, after edits. */
void attn_graph_rename(const struct attn_graph *graph, struct attn_node *node);
/* Infers the nodes that are stale, and those behind them where types or known elements
 * change; folds nodes whose inputs are all constant (and small enough); takes out what
 * nobody reads. The nodes are in order, before and after. */
attn_status attn_graph_infer(struct attn_graph *graph);
/* Not so of a branch that is never taken, or whose shapes do not fit: it stays as it is in the
 * file, since inference says so again after each edit. */
static inline bool attn_graph_is_inferred(const struct attn_graph *graph)
{
    return graph->n_stale == 0;
}
/* Folds what was postponed until rewrite passes had taken what they know; *changed: there was
 * something. */
attn_status attn_graph_fold_rest(struct attn_graph *graph, bool *changed);
/* The node is stale: edits say so by themselves. */
void attn_node_touch(struct attn_graph *graph, struct attn_node *node);
/* All that read a value are stale. */
void attn_value_touch_users(struct attn_graph *graph, int32_t value);

/* ---- for rewrite passes: edits keep lists and counts of users right, and leave the order of
 * nodes to attn_graph_order(). Each takes time for what it changes, not for the graph. ---- */
struct attn_pass {
    const char *name;
    /* Changes `graph` (not its subgraphs); *applied counts the places. */
    attn_status (*run)(struct attn_graph *graph, int32_t *applied);
    /* Or, where run is NULL: changes it at one node. This is called for each node, of the type
     * op_type of ai.onnx unless that is NULL, whose first output is used. Nodes that are made
     * meanwhile are not tried. */
    attn_status (*try_node)(struct attn_graph *graph, struct attn_node *node,
                            int32_t *applied);
    const char *op_type;
    bool lowering; /* needed for correctness: runs under --no-fusion too */
    bool last;     /* only when the others find nothing more */
    bool portable; /* leaves nodes of ONNX alone: runs on models that are written, too */
};
extern const struct attn_pass *const
    attn_passes[]; /* ops/rewrite/passes.c; ends with NULL */
/* E_USAGE where a comma-separated list names something else than passes. NULL: none. */
attn_status attn_pass_check_names(const char *list);
/* Puts the formulas of rows with expand() in the place of their nodes, in this graph; *changed
 * where there was one. Orders and infers the graph then. */
attn_status attn_graph_expand(struct attn_graph *graph, bool *changed);
/* Runs all passes on the graph and its subgraphs until nothing changes (bounded), with
 * finish and infer after each that applied. */
attn_status attn_graph_rewrite(struct attn_graph *graph);

/* Says of a node why a pass left it as it is, where the pass has said nothing of it before;
 * `why` NULL: it did not leave it. Texts live as long as the program. The first 64 are kept. */
attn_status attn_graph_note(struct attn_graph *graph, const struct attn_node *node,
                            const char *pass, const char *why);
/* Whether a pass said why it left a node. */
bool attn_graph_has_note(const struct attn_graph *graph, const struct attn_node *node);

/* The node that produces a value, or NULL. */
struct attn_node *attn_graph_producer(const struct attn_graph *graph, int32_t value);
/* The only node that reads the value and no graph output does: else NULL. */
struct attn_node *attn_graph_only_user(const struct attn_graph *graph, int32_t value);
/* All reads of `from` (graph outputs too) become reads of `to`. A graph output keeps its
 * name: the names are swapped. */
void attn_graph_replace(struct attn_graph *graph, int32_t from, int32_t to);
/* Whether `to` may have the name of `from`, which is asked for where that is a graph output: an
 * input, a constant and another output may not. */
bool attn_graph_can_replace(const struct attn_graph *graph, int32_t from, int32_t to);
/* Operand `index` of a node reads `value` from now on. */
void attn_node_set_input(struct attn_graph *graph, struct attn_node *node, int32_t index,
                         int32_t value);
/* Output `index` of a node is `value` from now on; nothing gives what it was. */
void attn_node_set_output(struct attn_graph *graph, struct attn_node *node, int32_t index,
                          int32_t value);
/* Enters a node that attn_graph_add_node() appended to a finished graph, with its captures
 * and subgraphs, among the users of what it reads. */
attn_status attn_node_link(struct attn_graph *graph, struct attn_node *node);
/* Enters the graph's outputs among the users of values, as attn_graph_finish() does. */
attn_status attn_graph_link_outputs(struct attn_graph *graph);
/* Exchanges the names of two values. */
void attn_graph_swap_names(struct attn_graph *graph, int32_t a, int32_t b);
/* Takes a node out. Its outputs must not be used any more. */
void attn_graph_remove(struct attn_graph *graph, struct attn_node *node);
/* A new internal node in the place of (before) `before`; resolved by this call. */
attn_status attn_graph_insert(struct attn_graph *graph, struct attn_node *before,
                              const char *domain, const char *op_type, int32_t n_in,
                              const int32_t *in, int32_t n_out, const int32_t *out,
                              int32_t n_attrs, const struct attn_attr *attrs,
                              struct attn_node **made);
/* Whether a node computes what the built-in operator of that name does. Passes ask
 * nothing else of a name: a node whose row a user registered in the place of a built-in
 * one is no operator that they know, so they leave it as it is. */
static inline bool node_is_of(const struct attn_node *node, const char *domain,
                              const char *op_type)
{
    return node != NULL && node->built_in && node->pub.op_type[0] == op_type[0] &&
           strcmp(node->pub.op_type, op_type) == 0 &&
           strcmp(node->pub.domain, domain) == 0;
}
/* The same of domain ai.onnx. */
/* The operator as the file names it. */
static inline const char *attn_node_file_type(const struct attn_node *node)
{
    return node->file_type != NULL ? node->file_type : node->pub.op_type;
}

static inline bool node_is(const struct attn_node *node, const char *op_type)
{
    return node_is_of(node, "", op_type);
}
/* A constant with exactly one element (any real dtype): its value in *x. */
bool attn_value_scalar(const struct attn_graph *graph, int32_t value, double *x);
/* A constant in the model's memory: space for `bytes` in *data, zeroed. */
attn_status attn_graph_new_constant(struct attn_graph *graph, int32_t dtype, int rank,
                                    const int64_t *dims, int32_t *id, void **data);

/* ---- the model ---- */
attn_status attn_model_create(attnrun_runtime *runtime, const attnrun_source *source,
                              struct attn_model **model);
/* After a loader built the graph of a packed file: finishes and infers it, as
 * attn_model_prepare() left it once. E_MODEL where that would change it. */
attn_status attn_model_resume(struct attn_model *model);
/* Takes over an open file, closed with the model. */
attn_status attn_model_keep_file(struct attn_model *model, const struct attn_file *file);
/* After the loader built model->graph: finish, infer, rewrite, infer. E_UNSUPPORTED with
 * all missing operators at once. */
attn_status attn_model_prepare(struct attn_model *model);
void attn_model_destroy(struct attn_model *model);

/* ---- the registry and the runtime ---- */
/* The row for (domain, name) with the largest since <= version, or NULL. */
const attnrun_op_def *attn_runtime_find_op(attnrun_runtime *runtime, const char *domain,
                                           const char *name, int64_t version);
/* The same among the built-in rows alone. */
const attnrun_op_def *attn_runtime_find_builtin(attnrun_runtime *runtime,
                                                const char *domain, const char *name,
                                                int64_t version);
struct attn_memory *attn_runtime_memory(attnrun_runtime *runtime);
struct attn_threads *attn_runtime_threads(attnrun_runtime *runtime);
/* An enum attn_isa. */
int attn_runtime_isa(const attnrun_runtime *runtime);
/* Those that the model's steps run with. */
const struct attn_kernels *attn_model_kernels(const struct attn_model *model);
enum { ATTN_LOG_WARNING = 1, ATTN_LOG_INFO, ATTN_LOG_PLAN };
/* To the caller's log, where there is one and the level is wanted. */
void attn_log(const attnrun_runtime *runtime, int32_t level, const char *format, ...)
    ATTN_PRINTF(3, 4);
bool attn_runtime_may_use_blas(const attnrun_runtime *runtime);
void attn_runtime_retain(attnrun_runtime *runtime);
void attn_runtime_release(attnrun_runtime *runtime);
/* The default runtime, made at first use; retained for the caller. */
attn_status attn_runtime_default(attnrun_runtime **runtime);

/* A built-in row was found for a node: attnrun_runtime_ops(). */
void attn_runtime_note_op(attnrun_runtime *runtime, const attnrun_op_def *row);

/* ops/op_list.c: all built-in rows, ends with NULL. */
extern const attnrun_op_def *const attn_ops[];
/* ops/op_ends.c: whether the rows are those of a list (ATTNRUN_OPS); versions of operators that
 * begin where the last row of the list ends, as an operator's next row would say. Ends with a
 * name NULL. */
extern const bool attn_ops_listed;
struct attn_op_end {
    const char *domain, *name;
    int32_t since;
};
extern const struct attn_op_end attn_op_ends[];
/* What a sentence says of a row that is not there. */
#define ATTN_LISTED_HINT                                                                 \
    "this library has the operators of a list alone (ATTNRUN_OPS of CMake): "            \
    "attnrun ops --used MODEL... writes such a list"
/* ops/kernels/table.c: the table of an enum attn_isa, or NULL where it is not built; `bf16`:
 * the one whose products are of bf16. */
const struct attn_kernels *attn_kernels_for(int isa, bool bf16);
/* ops/matmul/blas.c: "OpenBLAS 0.3.21", or "none". */
const char *attn_blas_name(void);

#endif
