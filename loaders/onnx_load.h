/* onnx_load.h - from the unpacked message to struct attn_graph: what the files of the
 * loader share. Everything here ends with the load; what the model keeps is in its own
 * pools.
 *
 * A *place* is a graph under construction: the main graph, or a subgraph of a node. A
 * *scope* is a list of names that nodes can see: that of a place, or of one call of a
 * function, whose body goes into the place of the caller. Lists of nodes are worked
 * through from a stack, so the C stack does not grow with the depth of a file. */
#ifndef ATTN_ONNX_LOAD_H
#define ATTN_ONNX_LOAD_H

#include "onnx_tensor.h"

enum {
    /* Nodes and calls that come out of function bodies: the limit, and so many for each node
     * of the file. A node costs about 5 kB. */
    ATTN_LOAD_EXPANDED_EACH = 32,
    ATTN_LOAD_PARTS_EACH =
        16,                 /* operands, attributes and values for each of these nodes */
    ATTN_LOAD_OPSET = 28,   /* the newest known of ai.onnx */
    ATTN_LOAD_OPSETS = 256, /* domains that a model or a function imports */
    ATTN_LOAD_IR = 14
};

struct attn_load_place {
    struct attn_graph *graph;
    struct attn_node *owner; /* NULL: the main graph */
    struct attn_load_place *outer;
    struct attn_name_map captures;      /* outer value id -> value id here */
    struct attn_name_map *owner_inputs; /* outer value ids that owner->in already has */
};

struct attn_function {
    const PB(FunctionProto) * pb;
    const char *name;
    const struct attn_opset *opsets;
    int32_t n_opsets;
    int64_t size; /* nodes and calls that a call of it adds; 0: not counted yet */
};

/* An attribute of a call, for references to it in the body. */
struct attn_binding {
    const char *name;
    const PB(AttributeProto) * pb; /* itself not a reference */
    struct attn_load_scope *scope; /* where its graph sees names */
};

struct attn_load_scope {
    struct attn_load_place *place;
    struct attn_load_scope
        *around; /* whose names are seen too; NULL: main graph, function */
    struct attn_load_scope *caller; /* of a function; for subgraphs the same as around */
    const struct attn_function *function; /* that the nodes belong to; NULL: none */
    const struct attn_opset *opsets;
    int32_t n_opsets;
    int32_t calls;              /* functions around */
    struct attn_name_map names; /* -> value id in `place`, or -1: absent */
    struct attn_name_map
        targets; /* of a function: output name -> value id of the caller */
    struct attn_binding *bindings; /* of a function */
    int64_t n_bindings;
    const char *prefix; /* of names that are made here */
};

struct attn_load_work { /* nodes still to do */
    struct attn_load_scope *scope;
    PB(NodeProto) *const *nodes;
    size_t n, next;
    const PB(GraphProto) * graph; /* NULL: a function body */
};

struct attn_load {
    struct attn_model *model;
    struct attn_pool *pool; /* ends with the load */
    const attnrun_source *source;
    struct attn_tensor_reader reader;
    struct attn_function *functions;
    struct attn_name_map by_name; /* function_key() -> index */
    struct attn_load_work *works;
    int64_t n_works, works_capacity;
    int64_t expanded, made_nodes, made_parts, made_names;
    int64_t file_parts; /* at most so many parts are in the file itself */
    int32_t at;         /* number of the node in its list, for errors */
    struct attn_attr
        *attrs; /* room for those of one node, made larger where one has more */
    size_t attrs_room;
    uint64_t errors; /* attn_error_count() when the load began */
};

/* onnx_type.c. `fresh`: sizes without a name become symbols of their own, else unknown.
 */
attn_status attn_read_type(const attnrun_limits *limits, struct attn_dims *dims,
                           const PB(TypeProto) * pb, bool fresh, attnrun_type *type);

/* onnx_attr.c: the value of an attribute that is neither a reference nor a graph. */
attn_status attn_read_attr(struct attn_load *load, const PB(AttributeProto) * pb,
                           struct attn_attr *attr);
/* Follows a reference: *binding->pb is NULL where the call has no such attribute. */
attn_status attn_attr_resolve(struct attn_load_scope *scope,
                              const PB(AttributeProto) * pb,
                              struct attn_binding *binding);

/* onnx_scope.c */
attn_status attn_load_place(struct attn_load *load, struct attn_load_place *outer,
                            struct attn_node *owner, struct attn_name_map *owner_inputs,
                            struct attn_load_place **made);
struct attn_load_scope *attn_load_scope(struct attn_load *load,
                                        struct attn_load_place *place,
                                        struct attn_load_scope *around);
/* The value that `name` means in `scope`, brought into the place of `scope` where it is
 * of a graph around: -1 for "" and absent inputs of a function. E_MODEL: there is none.
 */
attn_status attn_load_find(struct attn_load *load, struct attn_load_scope *scope,
                           const char *name, int32_t *id);
/* A new value of that name; E_MODEL where the scope has one already. */
attn_status attn_load_define(struct attn_load *load, struct attn_load_scope *scope,
                             const char *name, int32_t *id);
void attn_load_set_constant(struct attn_graph *graph, int32_t id,
                            const attnrun_tensor *data);
int64_t attn_load_opset(const struct attn_opset *opsets, int32_t n_opsets,
                        const char *domain);

/* onnx_graph.c */
/* Notes what comes of a body once more: its nodes, and parts of nodes and graphs. E_LIMIT. */
attn_status attn_load_count(struct attn_load *load, size_t nodes, size_t parts);
attn_status attn_load_main(struct attn_load *load, const PB(GraphProto) * pb,
                           const struct attn_opset *opsets, int32_t n_opsets);
/* Enters the outputs of nodes into the scope and makes Constant nodes constants. */
attn_status attn_load_outputs(struct attn_load *load, struct attn_load_scope *scope,
                              PB(NodeProto) *const *nodes, size_t n);
attn_status attn_load_push(struct attn_load *load, struct attn_load_scope *scope,
                           PB(NodeProto) *const *nodes, size_t n,
                           const PB(GraphProto) * graph);
/* Starts the graph of a graph attribute; its nodes are done later. */
attn_status attn_load_subgraph(struct attn_load *load, struct attn_load_place *outer,
                               struct attn_load_scope *around, struct attn_node *owner,
                               struct attn_name_map *owner_inputs,
                               const PB(GraphProto) * pb, struct attn_graph **graph);

/* onnx_node.c */
attn_status attn_load_node(struct attn_load *load, struct attn_load_scope *scope,
                           const PB(NodeProto) * pb);
/* The function whose body takes the place of a node, or NULL: an operator, or missing. */
attn_status attn_load_body(const struct attn_load *load, const struct attn_opset *opsets,
                           int32_t n_opsets, const PB(NodeProto) * pb,
                           const struct attn_function **function);
bool attn_load_is_constant(const PB(NodeProto) * pb);

/* onnx_error.c: the failure `status` once more, with the node, or with another place,
 * named. */
attn_status attn_load_fail(const struct attn_load *load, attn_status status,
                           const PB(NodeProto) * pb);
attn_status attn_load_fail_in(const struct attn_load *load, attn_status status,
                              const char *what, const char *name);

/* onnx_constant.c: the value of a Constant node. */
attn_status attn_load_constant(struct attn_load *load, struct attn_load_scope *scope,
                               const PB(NodeProto) * pb, attnrun_tensor *tensor);

/* onnx_function.c */
attn_status attn_load_functions(struct attn_load *load, const PB(ModelProto) * pb);
/* How many nodes and calls may come out of function bodies. */
int64_t attn_load_max_expanded(const struct attn_load *load);
/* function_size.c: sets function->size, for all functions that it calls too; over
 * attn_load_max_expanded() where it is more than that. Calls in a circle count once. */
attn_status attn_function_count(struct attn_load *load,
                                const struct attn_function *function);
/* The function of that name, or NULL. */
const struct attn_function *attn_load_find_function(const struct attn_load *load,
                                                    const PB(NodeProto) * pb);
/* Puts the body in the place of a call with these operands. */
attn_status attn_load_call(struct attn_load *load, struct attn_load_scope *caller,
                           const struct attn_function *function, const PB(NodeProto) * pb,
                           int32_t n_in, const int32_t *in, int32_t n_out,
                           const int32_t *out);
attn_status attn_read_opsets(struct attn_load *load, size_t n,
                             PB(OperatorSetIdProto) *const *pb,
                             const struct attn_opset **opsets, int32_t *n_opsets);
/* "" for "ai.onnx" and NULL. */
const char *attn_domain(const char *domain);

#endif
