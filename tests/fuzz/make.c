/* make.c - in: a seed; out: a model. A node is an operator row, chosen more often where
 * it deals with sequences, optionals, subgraphs or attention; its operands are values
 * that are there or new ones, mostly of a type that the row takes; attributes come from
 * the row's list. A part of all choices is wrong on purpose. See make.h. */
#include "make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "row.h"
#include "wire.h"

enum { VALUES = 256, DEPTH = 3, OPERANDS = 24, ROWS = 2048, OPSET = 28 };

struct value {
    char name[16];
    int32_t kind, dtype, rank; /* rank -1: not known */
    int64_t dims[ATTNRUN_MAX_RANK];
};

struct maker {
    struct fuzz_case *c;
    struct fuzz_random *r;
    struct value values[VALUES]; /* in scope, the innermost last */
    int n_values, n_names, depth, inputs;
    struct pb *main;  /* takes inputs */
    struct pb *graph; /* takes nodes and constants */
    int64_t opset;
    int64_t base[ATTNRUN_MAX_RANK]; /* dims that operands of a node share */
    int base_rank;
};

/* The rows, read once; the first n_liked are of the kinds that matter here. */
static const attnrun_op_def *rows[ROWS];
static int n_rows, n_liked;

static bool is_liked(const attnrun_op_def *row)
{
    static const char *const names[] = {
        "Sequence", "Optional",      "If",        "Loop",   "Scan",     "Attention",
        "Split",    "Concat",        "String",    "Rotary", "Identity", "CausalConv",
        "Reshape",  "TensorScatter", "RegexFull", "NonZero"
    };
    if ((row->flags & (ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS)) != 0)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strstr(row->name, names[i]) != NULL)
            return true;
    return false;
}

static void read_rows(void)
{
    const attnrun_op_def *row;
    attnrun_runtime *runtime = NULL;
    if (attnrun_runtime_create(NULL, &runtime) != ATTNRUN_OK)
        abort();
    for (int liked = 1; liked >= 0; liked--) {
        for (int32_t i = 0; (row = attnrun_get_op(runtime, i)) != NULL; i++)
            if (is_liked(row) == (liked == 1) && n_rows < ROWS)
                rows[n_rows++] = row;
        if (liked)
            n_liked = n_rows;
    }
    attnrun_runtime_destroy(runtime); /* built-in rows stay */
}

/* ---- values ---- */

static struct value *new_value(struct maker *m, int32_t kind, int32_t dtype)
{
    if (m->n_values == VALUES)
        m->n_values--; /* forgotten */
    struct value *v = &m->values[m->n_values++];
    *v = (struct value){ .kind = kind, .dtype = dtype, .rank = -1 };
    snprintf(v->name, sizeof v->name, "v%d", m->n_names++);
    return v;
}

static int32_t dtype_of(struct maker *m, uint32_t set)
{
    int32_t found = ATTNRUN_F32;
    int64_t at = 0;
    if (fuzz_chance(m->r, 4) || set == 0)
        return 1 + (int32_t)fuzz_below(m->r, ATTNRUN_DTYPE_COUNT - 1);
    if ((set >> ATTNRUN_F32 & 1) && fuzz_chance(m->r, 55))
        return ATTNRUN_F32;
    for (int32_t d = 1; d < ATTNRUN_DTYPE_COUNT; d++)
        if ((set >> d & 1) && fuzz_below(m->r, ++at) == 0)
            found = d;
    return found;
}

/* Dims like those of the node's other operands; integers are often lists or scalars. */
static void choose_dims(struct maker *m, struct value *v)
{
    bool list = v->dtype == ATTNRUN_I64 || v->dtype == ATTNRUN_I32;
    if (list && fuzz_chance(m->r, 75)) {
        v->rank = fuzz_chance(m->r, 75);
        v->dims[0] = fuzz_chance(m->r, 40) ? m->base_rank : fuzz_below(m->r, 5);
        return;
    }
    v->rank = m->base_rank;
    memcpy(v->dims, m->base, sizeof v->dims);
    if (v->rank > 0 && fuzz_chance(m->r, 30))
        v->dims[fuzz_below(m->r, v->rank)] =
            fuzz_chance(m->r, 50) ? 1 : fuzz_below(m->r, 6);
    if (fuzz_chance(m->r, 10))
        v->rank = (int32_t)fuzz_below(m->r, 5);
}

static void add_constant(struct maker *m, const struct value *v)
{
    attnrun_tensor t = { .kind = ATTNRUN_TENSOR, .dtype = v->dtype, .rank = v->rank };
    memcpy(t.dims, v->dims, sizeof t.dims);
    fuzz_fill(m->c, m->r, &t);
    struct pb tensor = wire_tensor(v->name, &t);
    pb_message(m->graph, 5, &tensor);
}

static void add_input(struct maker *m, const struct value *v)
{
    int64_t dims[ATTNRUN_MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        dims[i] = fuzz_chance(m->r, 30) ? -1 - v->dims[i] % 5 : v->dims[i];
    struct pb type =
        wire_type(v->kind, v->dtype, fuzz_chance(m->r, 15) ? -1 : v->rank, dims);
    wire_info(m->main, 11, v->name, &type);
    m->inputs++;
}

/* A sequence or optional where there are no graph inputs: made of a constant. */
static void add_made(struct maker *m, const struct value *v)
{
    struct value item = { .kind = ATTNRUN_TENSOR, .dtype = v->dtype };
    snprintf(item.name, sizeof item.name, "i%d", m->n_names++);
    choose_dims(m, &item);
    add_constant(m, &item);
    pb_add_node(m->graph, 1, "",
                v->kind == ATTNRUN_SEQUENCE ? "SequenceConstruct" : "Optional", item.name,
                v->name);
}

static void define(struct maker *m, struct value *v)
{
    const bool inner = m->depth > 0 || m->inputs >= 12;
    choose_dims(m, v);
    if (v->kind == ATTNRUN_TENSOR && (inner || fuzz_chance(m->r, 30)))
        add_constant(m, v);
    else if (inner)
        add_made(m, v);
    else
        add_input(m, v);
}

static struct value *operand(struct maker *m, int32_t kind, int32_t dtype)
{
    for (int tries = 0; tries < 6 && m->n_values > 0 && fuzz_chance(m->r, 80); tries++) {
        struct value *v = &m->values[fuzz_below(m->r, m->n_values)];
        if ((v->kind == kind && v->dtype == dtype) || fuzz_chance(m->r, 1))
            return v;
    }
    struct value *v = new_value(m, kind, dtype);
    define(m, v);
    return v;
}

static int32_t any_kind(struct maker *m)
{
    static const int32_t kinds[] = { ATTNRUN_TENSOR, ATTNRUN_TENSOR, ATTNRUN_SEQUENCE,
                                     ATTNRUN_OPTIONAL };
    return kinds[fuzz_below(m->r, 4)];
}

/* Small, but for a few that are of more than four dims, or longer than a vector and a block. */
static void choose_base(struct maker *m)
{
    const int64_t max_rank = fuzz_chance(m->r, 75) ? 4 : ATTNRUN_MAX_RANK;
    m->base_rank = (int)(fuzz_chance(m->r, 60) ? 2 + fuzz_below(m->r, max_rank - 1)
                                               : fuzz_below(m->r, max_rank + 1));
    for (int i = 0; i < m->base_rank; i++)
        m->base[i] =
            fuzz_chance(m->r, 5) ? 0 : 1 + fuzz_below(m->r, m->base_rank > 4 ? 3 : 5);
    if (m->base_rank > 0 && fuzz_chance(m->r, 12))
        m->base[fuzz_below(m->r, m->base_rank)] = 1 + fuzz_below(m->r, 150);
}

/* ---- subgraphs ---- */

static void add_some_nodes(struct maker *m, int64_t n);

/* What a subgraph gives as output `at`: a value of the wanted type, or any. */
static const struct value *result(struct maker *m, const struct value *wanted, int from)
{
    for (int tries = 0; tries < 8 && m->n_values > 0; tries++) {
        int low = tries < 5 && from < m->n_values ? from : 0;
        const struct value *v = &m->values[low + fuzz_below(m->r, m->n_values - low)];
        if (wanted == NULL || (v->kind == wanted->kind && v->dtype == wanted->dtype))
            return v;
    }
    return operand(m, wanted ? wanted->kind : ATTNRUN_TENSOR,
                   wanted ? wanted->dtype : ATTNRUN_F32);
}

/* A graph attribute: formal inputs of these types, and as many outputs, of the types in
 * `wanted` where that is not NULL. */
static void add_subgraph(struct maker *m, struct pb *node, const char *attribute,
                         int n_in, const struct value *in, int n_out,
                         const struct value *const *wanted)
{
    struct pb graph = { 0 }, attr = wire_attr(attribute, WIRE_GRAPH), *outer = m->graph;
    const int scope = m->n_values;
    pb_string(&graph, 2, "g");
    m->graph = &graph;
    m->depth++;
    for (int i = 0; i < n_in; i++) {
        struct value *v = new_value(m, in[i].kind, in[i].dtype);
        struct pb type = wire_type(v->kind, v->dtype, -1, NULL);
        wire_info(&graph, 11, v->name, fuzz_chance(m->r, 50) ? &type : NULL);
        pb_free(&type);
    }
    add_some_nodes(m, fuzz_below(m->r, 3));
    for (int i = 0; i < n_out; i++) {
        const struct value *from = result(m, wanted ? wanted[i] : NULL, scope);
        char name[16];
        snprintf(name, sizeof name, "r%d", m->n_names++);
        pb_add_node(&graph, 1, "", "Identity", from->name, name);
        wire_info(&graph, 12, name, NULL);
    }
    m->depth--;
    m->graph = outer;
    m->n_values = scope;
    pb_message(&attr, 6, &graph);
    pb_message(node, 5, &attr);
}

static void attr_int(struct pb *node, const char *name, int64_t x)
{
    struct pb attr = wire_attr(name, WIRE_INT);
    pb_int(&attr, 3, x);
    pb_message(node, 5, &attr);
}

static const struct value *add_output(struct maker *m, struct pb *node, int32_t kind,
                                      int32_t dtype)
{
    const struct value *v = new_value(m, kind, dtype);
    if (fuzz_chance(m->r, 3))
        pb_string(node, 2, "");
    else
        pb_string(node, 2, v->name);
    return v;
}

/* A node with a body: the types of the body's inputs, and of its outputs where they are
 * bound; `fixed` of both are no inputs or outputs of the node. */
struct control {
    struct value in[OPERANDS];
    const struct value *wanted[OPERANDS];
    int n_in, n_out, fixed, n_states;
};

static const struct value flag = { .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_BOOL };

/* M and cond of a Loop, mostly of a few turns. */
static void add_turns(struct maker *m, struct pb *node, struct control *k)
{
    const struct value *turns = new_value(m, ATTNRUN_TENSOR, ATTNRUN_I64);
    int64_t count = fuzz_chance(m->r, 90) ? fuzz_below(m->r, 4) : fuzz_int(m->r);
    const attnrun_tensor t = { .kind = ATTNRUN_TENSOR,
                               .dtype = ATTNRUN_I64,
                               .data = &count };
    struct pb tensor = wire_tensor(turns->name, &t);
    pb_message(m->graph, 5, &tensor);
    pb_string(node, 1, turns->name);
    m->base_rank = 0;
    pb_string(node, 1,
              fuzz_chance(m->r, 70) ? "" : operand(m, flag.kind, flag.dtype)->name);
    choose_base(m);
    k->in[k->n_in++] = *turns;
    k->in[k->n_in++] = flag;
    k->wanted[k->n_out++] = &flag;
    k->fixed = 2;
}

static void add_list(struct maker *m, struct pb *node, struct control *k, int32_t kind)
{
    struct value *in = &k->in[k->n_in++];
    *in = *operand(m, kind, dtype_of(m, 0xc2));
    pb_string(node, 1, in->name);
    in->kind = ATTNRUN_TENSOR; /* one slice or element of it */
}

static void add_if(struct maker *m, struct pb *node)
{
    const struct value type = { .kind = any_kind(m), .dtype = dtype_of(m, 0x182) };
    const struct value *wanted[3] = { &type, &type, &type };
    const int n = 1 + (int)fuzz_below(m->r, 3);
    m->base_rank = 0;
    pb_string(node, 1, operand(m, flag.kind, flag.dtype)->name);
    choose_base(m);
    add_subgraph(m, node, "then_branch", 0, NULL, n, wanted);
    add_subgraph(m, node, "else_branch", 0, NULL, n - fuzz_chance(m->r, 2), wanted);
    for (int i = 0; i < n; i++)
        add_output(m, node, type.kind, type.dtype);
}

/* Loop, Scan, SequenceMap: states come first among inputs and outputs. */
static void add_turning(struct maker *m, struct pb *node, const char *name)
{
    struct control k = { .n_in = 0 };
    const bool loop = strcmp(name, "Loop") == 0, map = strcmp(name, "SequenceMap") == 0;
    k.n_states = map ? 0 : (int)fuzz_below(m->r, 3);
    if (loop)
        add_turns(m, node, &k);
    for (int i = 0; i < k.n_states; i++) {
        struct value *in = &k.in[k.n_in++];
        *in = *operand(m, loop ? any_kind(m) : ATTNRUN_TENSOR, dtype_of(m, 0x42));
        pb_string(node, 1, in->name);
        k.wanted[k.n_out++] = fuzz_chance(m->r, 97) ? in : NULL;
    }
    if (!loop)
        add_list(m, node, &k, map ? ATTNRUN_SEQUENCE : ATTNRUN_TENSOR);
    if (!loop && !map)
        attr_int(node, "num_scan_inputs", fuzz_chance(m->r, 95) ? 1 : fuzz_int(m->r));
    for (int64_t i = fuzz_below(m->r, 3) + (k.n_states == 0); i > 0; i--)
        k.wanted[k.n_out++] = NULL;
    add_subgraph(m, node, "body", k.n_in, k.in, k.n_out, k.wanted);
    for (int i = 0; i < k.n_out - loop - fuzz_chance(m->r, 2); i++) {
        const struct value *state = i < k.n_states ? &k.in[k.fixed + i] : NULL;
        add_output(m, node,
                   map     ? ATTNRUN_SEQUENCE
                   : state ? state->kind
                           : ATTNRUN_TENSOR,
                   state ? state->dtype : ATTNRUN_F32);
    }
}

/* ---- attributes ---- */

static void choose_text(struct maker *m, const attnrun_attr_def *def, char *text,
                        size_t room)
{
    static const char *const words[] = { "",          "x",     "sum", "abc",
                                         "ij,jk->ik", "FLOAT", "a+b*" };
    const char *word = def->text;
    snprintf(text, room, "%s", words[fuzz_below(m->r, 7)]);
    if (def->kind != ATTNRUN_ATTR_ENUM || word == NULL || fuzz_chance(m->r, 3))
        return;
    for (int64_t skip = fuzz_below(m->r, 4); skip > 0 && strchr(word, '|') != NULL;
         skip--)
        word = strchr(word, '|') + 1;
    snprintf(text, room, "%.*s", (int)strcspn(word, "|"), word);
}

static int64_t choose_int(struct maker *m, const attnrun_attr_def *def)
{
    if (def->text != NULL && fuzz_chance(m->r, 95))
        return def->text[0] - '0' + (def->text[1] == '.' ? fuzz_below(m->r, 2) : 0);
    return fuzz_int(m->r);
}

static void add_numbers(struct maker *m, struct pb *attr, const attnrun_attr_def *def,
                        int type, const char *text)
{
    const int64_t n = fuzz_chance(m->r, 60) ? m->base_rank : fuzz_below(m->r, 5);
    for (int64_t i = 0; i < n; i++) {
        if (type == WIRE_INTS)
            pb_int(attr, 8, fuzz_chance(m->r, 60) ? i : choose_int(m, def));
        else if (type == WIRE_FLOATS)
            wire_float(attr, 7, fuzz_float(m->r));
        else
            pb_string(attr, 9, text);
    }
}

static void add_tensor(struct maker *m, struct pb *attr)
{
    struct value value = { .dtype = dtype_of(m, 0x1c2) };
    choose_dims(m, &value);
    attnrun_tensor t = { .kind = ATTNRUN_TENSOR,
                         .dtype = value.dtype,
                         .rank = value.rank };
    memcpy(t.dims, value.dims, sizeof t.dims);
    fuzz_fill(m->c, m->r, &t);
    struct pb tensor = wire_tensor("", &t);
    pb_message(attr, 5, &tensor);
}

static void add_attribute(struct maker *m, struct pb *node, const attnrun_attr_def *def)
{
    static const int types[] = {
        [ATTNRUN_ATTR_INT] = WIRE_INT,         [ATTNRUN_ATTR_FLOAT] = WIRE_FLOAT,
        [ATTNRUN_ATTR_STRING] = WIRE_STRING,   [ATTNRUN_ATTR_ENUM] = WIRE_STRING,
        [ATTNRUN_ATTR_INTS] = WIRE_INTS,       [ATTNRUN_ATTR_FLOATS] = WIRE_FLOATS,
        [ATTNRUN_ATTR_STRINGS] = WIRE_STRINGS, [ATTNRUN_ATTR_TENSOR] = WIRE_TENSOR,
        [ATTNRUN_ATTR_TYPE] = WIRE_TYPE
    };
    char text[64];
    if (def->kind == ATTNRUN_ATTR_GRAPH || def->kind == ATTNRUN_ATTR_IGNORED)
        return;
    struct pb attr = wire_attr(def->name, types[def->kind]), type;
    choose_text(m, def, text, sizeof text);
    switch (types[def->kind]) {
    case WIRE_INT:
        pb_int(&attr, 3, choose_int(m, def));
        break;
    case WIRE_FLOAT:
        wire_float(&attr, 2, fuzz_float(m->r));
        break;
    case WIRE_STRING:
        pb_string(&attr, 4, text);
        break;
    case WIRE_TENSOR:
        add_tensor(m, &attr);
        break;
    case WIRE_TYPE:
        type = wire_type(any_kind(m), dtype_of(m, 0x1c2), -1, NULL);
        pb_message(&attr, 14, &type);
        break;
    default:
        add_numbers(m, &attr, def, types[def->kind], text);
    }
    pb_message(node, 5, &attr);
}

/* ---- nodes ---- */

struct type_variables {
    char name[8][16];
    int32_t dtype[8];
    int n;
};

static int32_t operand_dtype(struct maker *m, struct type_variables *type_variables,
                             const struct attn_operand *o)
{
    int32_t dtype = dtype_of(m, o->dtypes);
    if (o->type_variable[0] == 0 || fuzz_chance(m->r, 3))
        return dtype;
    for (int i = 0; i < type_variables->n; i++)
        if (strcmp(type_variables->name[i], o->type_variable) == 0)
            return type_variables->dtype[i];
    if (type_variables->n < 8) {
        memcpy(type_variables->name[type_variables->n], o->type_variable,
               sizeof o->type_variable);
        type_variables->dtype[type_variables->n++] = dtype;
    }
    return dtype;
}

static void add_operands(struct maker *m, struct pb *node, const attnrun_op_def *row,
                         struct type_variables *type_variables, struct value *first)
{
    bool variadic;
    int n = attn_row_count(row->inputs, &variadic);
    int count = n + (variadic ? (int)fuzz_below(m->r, 3) : 0);
    for (int i = 0; i < count && i < OPERANDS; i++) {
        struct attn_operand o;
        attn_row_operand(row, row->inputs, i, &o);
        if ((o.optional && !o.variadic && fuzz_chance(m->r, 45)) ||
            fuzz_chance(m->r, 1)) {
            pb_string(node, 1, "");
            continue;
        }
        int32_t kind = o.kind == ROW_ANY ? any_kind(m) : o.kind;
        const struct value *v = operand(m, kind, operand_dtype(m, type_variables, &o));
        pb_string(node, 1, v->name);
        if (i == 0) {
            *first = *v;
            if (v->rank >= 0) {
                m->base_rank = v->rank;
                memcpy(m->base, v->dims, sizeof m->base);
            }
        }
    }
}

static void add_outputs(struct maker *m, struct pb *node, const attnrun_op_def *row,
                        struct type_variables *type_variables, const struct value *first)
{
    bool variadic;
    int n = attn_row_count(row->outputs, &variadic);
    n += variadic ? (int)fuzz_below(m->r, 3) : 0;
    for (int i = 0; i < n && i < OPERANDS; i++) {
        struct attn_operand o;
        attn_row_operand(row, row->outputs, i, &o);
        if (o.optional && !o.variadic && fuzz_chance(m->r, 40)) {
            pb_string(node, 2, "");
            continue;
        }
        add_output(m, node, o.kind == ROW_ANY ? first->kind : o.kind,
                   o.kind == ROW_ANY ? first->dtype
                                     : operand_dtype(m, type_variables, &o));
    }
}

static void add_row(struct maker *m, const attnrun_op_def *row)
{
    const bool control = (row->flags & ATTNRUN_OP_GRAPHS) != 0 && row->domain[0] == 0;
    struct type_variables type_variables = { .n = 0 };
    struct value first = { .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_F32 };
    struct pb node = { 0 };
    if ((control && m->depth >= DEPTH) || row->since > m->opset)
        return;
    choose_base(m);
    if (control && strcmp(row->name, "If") == 0) {
        add_if(m, &node);
    } else if (control) {
        add_turning(m, &node, row->name);
    } else {
        add_operands(m, &node, row, &type_variables, &first);
        add_outputs(m, &node, row, &type_variables, &first);
    }
    pb_string(&node, 4, row->name);
    pb_string(&node, 7, row->domain);
    for (const attnrun_attr_def *d = row->attrs; d != NULL && d->kind != ATTNRUN_ATTR_END;
         d++)
        if (strcmp(d->name, "num_scan_inputs") != 0 &&
            fuzz_chance(m->r, d->flags & ATTNRUN_ATTR_REQUIRED ? 97 : 30))
            add_attribute(m, &node, d);
    pb_message(m->graph, 1, &node);
}

static void add_some_nodes(struct maker *m, int64_t n)
{
    for (; n > 0; n--)
        add_row(m, rows[fuzz_below(m->r, fuzz_chance(m->r, 75) ? n_liked : n_rows)]);
}

int fuzz_rows(void)
{
    if (n_rows == 0)
        read_rows();
    return n_rows;
}

const attnrun_op_def *fuzz_row(int index) { return rows[index]; }

/* `row` NULL: some nodes of any rows. */
static void make(struct fuzz_case *c, struct fuzz_random *r, const attnrun_op_def *row)
{
    static const char *const domains[] = { "com.microsoft", "ai.onnx.ml", "attnrun",
                                           "ai.onnx.preview",
                                           "ai.onnx.preview.training" };
    struct pb graph = { 0 }, model = { 0 };
    struct maker *m = calloc(1, sizeof *m);
    if (m == NULL || fuzz_rows() == 0)
        abort();
    m->c = c;
    m->r = r;
    m->main = m->graph = &graph;
    m->opset = fuzz_chance(r, 85) ? OPSET : 7 + fuzz_below(r, OPSET - 7);
    if (row != NULL && row->domain[0] == 0 && fuzz_chance(r, 90))
        m->opset = row->since; /* a later one may have another row */
    pb_string(&graph, 2, "g");
    if (row != NULL)
        add_row(m, row);
    else
        add_some_nodes(m, 1 + fuzz_below(r, 6));
    const int recent = m->n_values < 6 ? m->n_values : 6;
    for (int64_t n = 1 + fuzz_below(r, 4); n > 0 && m->n_values > 0; n--)
        wire_info(&graph, 12, m->values[m->n_values - 1 - fuzz_below(r, recent)].name,
                  NULL);
    pb_int(&model, 1, 10);
    pb_opset(&model, 8, "", m->opset);
    for (size_t i = 0; i < sizeof domains / sizeof domains[0]; i++)
        pb_opset(&model, 8, domains[i],
                 row != NULL && strcmp(row->domain, domains[i]) == 0 ? row->since
                                                                     : 1 + (i == 1) * 4);
    pb_message(&model, 7, &graph);
    c->model = model.data;
    c->bytes = model.bytes;
    free(m);
}

void fuzz_make(struct fuzz_case *c, struct fuzz_random *r) { make(c, r, NULL); }

void fuzz_make_row(struct fuzz_case *c, struct fuzz_random *r, int index)
{
    fuzz_rows();
    make(c, r, rows[index]);
}
