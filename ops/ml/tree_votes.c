/* tree_votes.c - TreeEnsembleRegressor, TreeEnsembleClassifier: each tree leads a row of
 * features to a leaf, whose votes are weights of targets or classes.
 *
 * X                  (N, F) or (F), f32, f64, i64 or i32
 * nodes_*            nodes by (tree id, node id), the first of a tree is its root
 * target_*, class_*  votes: weights of leaves
 * Y (regressor)      f32 (N, n_targets): aggregate of the votes, + base_values
 * Y, Z (classifier)  labels (N), scores f32 (N, E): base_values + sums
 *
 * A transform follows; the label is that of the best score before it. With one target of
 * a regressor, only the first vote of a leaf counts, and PROBIT is the only transform that
 * is applied. If all votes are for one of two classes, s is its score and t is 0.5 if no
 * weight is negative, else 0; the label is the second one where s > t.
 *   votes for class 0   the scores are 1 - s (t = 0.5) or -s (t = 0), and s; LOGISTIC is
 *                       applied to -s and s, SOFTMAX and SOFTMAX_ZERO are not applied
 *   votes for class 1   the scores are 0 and s, transformed
 * Where the text of ONNX says nothing, results are those of ONNX Runtime 1.32.0. Cost:
 * O(N trees depth).
 * Source: ONNX ai.onnx.ml TreeEnsembleRegressor-1, 3, TreeEnsembleClassifier-1, 3. */
#include "trees.h"

struct votes_args {
    attnrun_ints node_ids, tree_ids, features, true_ids, false_ids, missing_yes;
    attnrun_ints vote_trees, vote_nodes, vote_targets, labels_int64s;
    attnrun_floats values, weights, base;
    attnrun_tensor values_tensor, weights_tensor, base_tensor;
    attnrun_strings modes, labels_strings;
    int64_t n_targets;
    int32_t aggregate, post;
};
#define AS(attribute, type, member)                                                      \
    { .name = attribute,                                                                 \
      .kind = ATTNRUN_ATTR_##type,                                                       \
      .offset = offsetof(struct votes_args, member) }
#define POST                                                                             \
    { .name = "post_transform",                                                          \
      .kind = ATTNRUN_ATTR_ENUM,                                                         \
      .offset = offsetof(struct votes_args, post),                                       \
      .text = ML_POST_WORDS }
#define NODES                                                                            \
    AS("nodes_nodeids", INTS, node_ids), AS("nodes_treeids", INTS, tree_ids),            \
        AS("nodes_featureids", INTS, features), AS("nodes_truenodeids", INTS, true_ids), \
        AS("nodes_falsenodeids", INTS, false_ids),                                       \
        { .name = "nodes_missing_value_tracks_true",                                     \
          .kind = ATTNRUN_ATTR_INTS,                                                     \
          .offset = offsetof(struct votes_args, missing_yes),                            \
          .text = "0..1" },                                                              \
        AS("nodes_modes", STRINGS, modes), AS("nodes_values", FLOATS, values),           \
        AS("nodes_values_as_tensor", TENSOR, values_tensor),                             \
        AS("base_values", FLOATS, base),                                                 \
        AS("base_values_as_tensor", TENSOR, base_tensor),                                \
        ATTR_IGNORED("nodes_hitrates"), ATTR_IGNORED("nodes_hitrates_as_tensor"), POST
static const attnrun_attr_def regressor_attrs[] = {
    NODES,
    AS("target_treeids", INTS, vote_trees),
    AS("target_nodeids", INTS, vote_nodes),
    AS("target_ids", INTS, vote_targets),
    AS("target_weights", FLOATS, weights),
    AS("target_weights_as_tensor", TENSOR, weights_tensor),
    { .name = "aggregate_function",
      .kind = ATTNRUN_ATTR_ENUM,
      .offset = offsetof(struct votes_args, aggregate),
      .text = "AVERAGE|SUM|MIN|MAX",
      .int_default = TREES_SUM },
    ATTR_INT(struct votes_args, n_targets, 1),
    ATTR_END,
};
static const attnrun_attr_def classifier_attrs[] = {
    NODES,
    AS("class_treeids", INTS, vote_trees),
    AS("class_nodeids", INTS, vote_nodes),
    AS("class_ids", INTS, vote_targets),
    AS("class_weights", FLOATS, weights),
    AS("class_weights_as_tensor", TENSOR, weights_tensor),
    AS("classlabels_int64s", INTS, labels_int64s),
    AS("classlabels_strings", STRINGS, labels_strings),
    ATTR_END,
};

struct votes_state {
    struct ml_tasks tasks;
    int64_t n_targets; /* scores of a row */
    bool binary;       /* all votes are for one class of two */
    double threshold;  /* of a binary one: the score above which it is the second label */
};

/* ---- lists of floats, or of a tensor instead ---- */

static int64_t list_count(const attnrun_floats *floats, const attnrun_tensor *tensor)
{
    if (tensor->kind != ATTNRUN_TENSOR)
        return floats->n;
    return dtype_in(tensor->dtype, ATTN_DT(F32) | ATTN_DT(F64)) ? tensor_count(tensor)
                                                                : -1;
}

static double list_get(const attnrun_floats *floats, const attnrun_tensor *tensor,
                       int64_t i)
{
    return tensor->kind == ATTNRUN_TENSOR ? tensor_get_real(tensor, i)
                                          : (double)floats->v[i];
}

/* -1 where it is no mode. */
static int mode_of(const attnrun_string *word)
{
    static const char *const words[] = {
        [TREE_LEQ] = "BRANCH_LEQ", [TREE_LT] = "BRANCH_LT", [TREE_GTE] = "BRANCH_GTE",
        [TREE_GT] = "BRANCH_GT",   [TREE_EQ] = "BRANCH_EQ", [TREE_NEQ] = "BRANCH_NEQ",
        [TREE_MEMBER] = "",        [TREE_LEAF] = "LEAF",
    };
    for (int mode = TREE_LEQ; mode <= TREE_LEAF; mode++)
        if (mode != TREE_MEMBER && (size_t)word->n == strlen(words[mode]) &&
            memcmp(word->data, words[mode], (size_t)word->n) == 0)
            return mode;
    return -1;
}

/* ---- checks ---- */

/* Lists of one length, without which nothing of them is read. */
static bool nodes_fit(const struct votes_args *args)
{
    const int64_t n = args->node_ids.n;
    return n >= 1 && n <= TREES_LIMIT && args->tree_ids.n == n && args->features.n == n &&
           args->true_ids.n == n && args->false_ids.n == n && args->modes.n == n &&
           (args->missing_yes.n == 0 || args->missing_yes.n == n) &&
           list_count(&args->values, &args->values_tensor) == n;
}

static bool votes_fit(const struct votes_args *args)
{
    const int64_t n = args->vote_targets.n;
    return n <= TREES_LIMIT && args->vote_trees.n == n && args->vote_nodes.n == n &&
           list_count(&args->weights, &args->weights_tensor) == n;
}

static attn_status check_nodes(const attnrun_step *step, attnrun_dim features)
{
    const struct votes_args *args = step->args;
    const int64_t n = args->node_ids.n;
    const int64_t limit = dim_is_const(features) ? features.value : INT32_MAX;
    if (!nodes_fit(args))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "expected lists of %s (1 to %d) in all of nodes_*",
                       attn_plural(n, "node"), TREES_LIMIT);
    for (int64_t i = 0; i < n && !op_ml_stops(i); i++) {
        int mode = mode_of(&args->modes.v[i]);
        if (mode < 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "nodes_modes holds an unknown word for node %lld",
                           (long long)i);
        if (mode != TREE_LEAF &&
            (args->features.v[i] < 0 || args->features.v[i] >= limit))
            return op_fail(
                step, ATTNRUN_E_RANGE, "node %lld tests feature %lld, expected 0 to %lld",
                (long long)i, (long long)args->features.v[i], (long long)limit - 1);
    }
    return ATTNRUN_OK;
}

static attn_status check_votes(const attnrun_step *step, int64_t n_targets)
{
    const struct votes_args *args = step->args;
    const int64_t n = args->vote_targets.n;
    int64_t base = list_count(&args->base, &args->base_tensor);
    if (!votes_fit(args))
        return op_fail(step, ATTNRUN_E_ATTR, "expected lists of %s",
                       attn_plural(n, "vote"));
    if (n_targets < 1 || n_targets > TREES_LIMIT ||
        (base != 0 && base != 1 && base != n_targets))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "base_values has %s, expected %lld, one for each target",
                       attn_plural(base, "element"), (long long)n_targets);
    for (int64_t i = 0; i < n; i++)
        if (args->vote_targets.v[i] < 0 || args->vote_targets.v[i] >= n_targets)
            return op_fail(step, ATTNRUN_E_RANGE,
                           "vote %lld is for target %lld, expected 0 to %lld",
                           (long long)i, (long long)args->vote_targets.v[i],
                           (long long)n_targets - 1);
    return ATTNRUN_OK;
}

/* ---- packing ----
 * A slot holds node + 1, found by its ids, or -(node + 1) for the first node of a tree.
 * roots[0] is how many roots follow. */
enum { SLOT_BYTES = 32 }; /* with the ids that it is compared by */

static void count_parts(const struct votes_args *args, struct trees *trees)
{
    memset(trees, 0, sizeof *trees);
    trees->n_nodes = args->node_ids.n;
    trees->n_roots = args->node_ids.n + 1;
    trees->n_votes = args->vote_targets.n;
    trees->n_slots = 16;
    while (trees->n_slots < 4 * trees->n_nodes)
        trees->n_slots *= 2;
}

/* The slot of a node (`root`: of the first of the tree), or the empty one for it; any one where
 * the call is to end. */
static int32_t *vote_slot(const struct votes_args *args, const struct trees *trees,
                          int64_t tree, int64_t id, bool root)
{
    uint64_t hash = (uint64_t)tree * UINT64_C(0xbf58476d1ce4e5b9);
    hash =
        ((hash ^ hash >> 32) + (root ? 7 : (uint64_t)id)) * UINT64_C(0x9e3779b97f4a7c15);
    for (uint64_t at = hash ^ hash >> 29;; at++) {
        int32_t *slot = &trees->slots[at & (uint64_t)(trees->n_slots - 1)];
        int64_t node = *slot < 0 ? -(int64_t)*slot - 1 : (int64_t)*slot - 1;
        if (*slot == 0 ||
            ((*slot < 0) == root && args->tree_ids.v[node] == tree &&
             (root || args->node_ids.v[node] == id)) ||
            attn_poll_work(SLOT_BYTES) != ATTNRUN_OK)
            return slot;
    }
}

static void compile_nodes(const struct votes_args *args, struct trees *trees)
{
    for (int64_t i = 0; i < trees->n_nodes && !op_ml_stops(i); i++) {
        const int64_t tree = args->tree_ids.v[i];
        int32_t *slot = vote_slot(args, trees, tree, args->node_ids.v[i], false);
        *slot = *slot == 0 ? (int32_t)(i + 1) : *slot;
        slot = vote_slot(args, trees, tree, 0, true);
        if (*slot != 0)
            continue;
        *slot = -(int32_t)(i + 1);
        trees->roots[++trees->roots[0]] = (int32_t)i;
    }
    for (int64_t i = 0; i < trees->n_nodes && !op_ml_stops(i); i++) {
        const int64_t tree = args->tree_ids.v[i];
        struct tree_node *node = &trees->nodes[i];
        node->mode = (int8_t)mode_of(&args->modes.v[i]);
        node->yes = -1;
        if (node->mode == TREE_LEAF)
            continue;
        node->split = list_get(&args->values, &args->values_tensor, i);
        node->feature = (int32_t)args->features.v[i];
        node->missing_yes = args->missing_yes.n > 0 && args->missing_yes.v[i] != 0;
        node->yes = *vote_slot(args, trees, tree, args->true_ids.v[i], false) - 1;
        node->no = *vote_slot(args, trees, tree, args->false_ids.v[i], false) - 1;
    }
}

static void compile(const struct votes_args *args, struct trees *trees, void *memory)
{
    if (attn_poll_fill(memory, 0, op_trees_layout(trees, memory)) != ATTNRUN_OK)
        return;
    compile_nodes(args, trees);
    for (int64_t i = trees->n_votes - 1; i >= 0 && !op_ml_stops(i); i--) {
        int32_t node =
            *vote_slot(args, trees, args->vote_trees.v[i], args->vote_nodes.v[i], false);
        if (node <= 0 || trees->nodes[node - 1].mode != TREE_LEAF)
            continue;
        trees->next[i] = trees->nodes[node - 1].yes;
        trees->nodes[node - 1].yes = (int32_t)i;
    }
}

static attn_status votes_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct trees trees;
    count_parts(pack->args, &trees);
    *bytes = op_trees_layout(&trees, NULL);
    if (packed != NULL)
        compile(pack->args, &trees, packed);
    return ATTNRUN_OK;
}

/* A visit of a node takes about so long; a block of rows takes one tree after the other,
 * with enough blocks for the threads. */
enum { VISIT_NS = 5, MAX_ROWS = 32, MANY_TASKS = 32 };

static int64_t count_trees(const struct votes_args *args)
{
    int64_t n = args->tree_ids.n > 0;
    for (int64_t i = 1; i < args->tree_ids.n; i++)
        n += args->tree_ids.v[i] != args->tree_ids.v[i - 1];
    return n;
}

static attn_status votes_plan(attnrun_step *step, int64_t rows)
{
    struct votes_state *state = step->state;
    struct trees trees;
    count_parts(step->args, &trees);
    if (step->node->packed == NULL)
        step->shared_bytes = op_trees_layout(&trees, NULL);
    op_tasks(step, 0, 1, trees.n_nodes * 20);
    op_ml_tasks(step, 1, &state->tasks, rows,
                (double)count_trees(step->args) * VISIT_NS * 10 +
                    (double)state->n_targets * 10);
    int64_t block = rows / MANY_TASKS + 1;
    block = block < MAX_ROWS ? block : MAX_ROWS;
    if (state->tasks.per_task < block) {
        state->tasks.per_task = block;
        op_tasks(step, 1, ceil_div(rows, block),
                 (int64_t)count_trees(step->args) * VISIT_NS * 10 * block);
    }
    if (!ck_mul(state->n_targets * (int64_t)sizeof(double), state->tasks.per_task,
                &step->scratch_bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "the size of its scratch memory overflows");
    return ATTNRUN_OK;
}

/* ---- rows ---- */

/* Rows of a task: tree by tree, so that a tree stays in cache for all of them. */
struct votes_rows {
    int64_t first, n;
    double *scores; /* n_targets of each */
};

/* Sums, or min or max, of the votes of all trees; `first_only`: of the first vote of each
 * leaf. */
static attn_status vote(const attnrun_step *step, const attnrun_work *work,
                        const struct trees *trees, const struct votes_rows *rows,
                        int32_t sum, bool first_only)
{
    const struct votes_args *args = step->args;
    const struct votes_state *state = step->state;
    const attnrun_tensor *x = &step->x[0];
    const int64_t features = x->dims[x->rank - 1];
    for (int32_t tree = 1; tree <= trees->roots[0]; tree++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t r = 0; r < rows->n; r++) {
            double *scores = rows->scores + r * state->n_targets;
            int64_t leaf = op_trees_leaf(trees, trees->roots[tree], x,
                                         (rows->first + r) * features, NULL);
            if (leaf < 0 && OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            if (leaf < 0)
                return op_fail(step, ATTNRUN_E_MODEL,
                               "the nodes of tree %d form a cycle, or one is missing",
                               tree);
            for (int32_t v = trees->nodes[leaf].yes; v >= 0; v = trees->next[v]) {
                int64_t target = args->vote_targets.v[v];
                double weight = list_get(&args->weights, &args->weights_tensor, v);
                scores[target] = trees_add(sum, scores[target], weight);
                if (first_only)
                    break;
            }
        }
    }
    return ATTNRUN_OK;
}

static double base_of(const struct votes_args *args, int64_t target)
{
    int64_t n = list_count(&args->base, &args->base_tensor);
    return n < 1 ? 0 : list_get(&args->base, &args->base_tensor, n == 1 ? 0 : target);
}

static void put_scores(attnrun_tensor *y, int64_t row, const double *scores, int64_t n)
{
    for (int64_t t = 0; y->data != NULL && t < n && !op_ml_stops(t); t++)
        ((float *)y->data)[row * n + t] = (float)scores[t];
}

static attn_status regressor_rows(const attnrun_step *step, const attnrun_work *work,
                                  const struct trees *trees,
                                  const struct votes_rows *rows)
{
    const struct votes_args *args = step->args;
    const int64_t n = args->n_targets;
    for (int64_t t = 0; t < rows->n * n && !op_ml_stops(t); t++)
        rows->scores[t] = op_trees_start(args->aggregate, false);
    TRY(vote(step, work, trees, rows, args->aggregate, n == 1));
    for (int64_t r = 0; r < rows->n; r++) {
        double *scores = rows->scores + r * n;
        for (int64_t t = 0; t < n && !op_ml_stops(t); t++) {
            if (args->aggregate == TREES_AVERAGE)
                scores[t] /= trees->roots[0];
            scores[t] += base_of(args, t);
        }
        if (n > 1 || args->post == ML_PROBIT)
            op_ml_post(scores, n, args->post);
        put_scores(&step->y[0], rows->first + r, scores, n);
    }
    return ATTNRUN_OK;
}

static void put_label(const attnrun_step *step, int64_t row, int64_t best)
{
    const struct votes_args *args = step->args;
    const attnrun_ints *ints = &args->labels_int64s;
    const attnrun_strings *strings = &args->labels_strings;
    const int64_t n = ints->v != NULL ? ints->n : strings->n;
    const int64_t at = n == 1 ? 0 : best; /* one label: it, or none */
    const bool none = n == 1 && best == 0;
    if (step->y[0].data == NULL)
        return;
    if (ints->v != NULL)
        ((int64_t *)step->y[0].data)[row] = none ? 0 : ints->v[at];
    else
        ((attnrun_string *)step->y[0].data)[row] =
            none ? (attnrun_string){ "", 0 } : strings->v[at];
}

/* Both scores of a binary classifier from the one that has votes; returns the label. */
static int64_t binary_scores(const struct votes_args *args, double threshold,
                             double *scores)
{
    const bool first = args->vote_targets.v[0] == 0;
    const double s = scores[first ? 0 : 1];
    if (first) {
        bool mirrored = threshold == 0 || args->post == ML_LOGISTIC;
        scores[0] = mirrored ? -s : 1 - s;
        scores[1] = s;
    } else if (args->base.n <= 1 && args->base_tensor.kind != ATTNRUN_TENSOR) {
        scores[0] = 0;
    }
    if (!first || args->post == ML_LOGISTIC || args->post == ML_PROBIT)
        op_ml_post(scores, 2, args->post);
    return s > threshold ? 1 : 0;
}

static attn_status classifier_rows(const attnrun_step *step, const attnrun_work *work,
                                   const struct trees *trees,
                                   const struct votes_rows *rows)
{
    const struct votes_args *args = step->args;
    const struct votes_state *state = step->state;
    const int64_t n = state->n_targets;
    for (int64_t t = 0; t < rows->n * n && !op_ml_stops(t); t++)
        rows->scores[t] = base_of(args, t % n);
    TRY(vote(step, work, trees, rows, TREES_SUM, false));
    for (int64_t r = 0; r < rows->n; r++) {
        double *scores = rows->scores + r * n;
        int64_t best = op_ml_best(scores, n);
        if (state->binary)
            best = binary_scores(args, state->threshold, scores);
        else
            op_ml_post(scores, n, args->post);
        put_label(step, rows->first + r, best);
        if (step->n_out > 1)
            put_scores(&step->y[1], rows->first + r, scores, n);
    }
    return ATTNRUN_OK;
}

static attn_status votes_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct votes_state *state = step->state;
    const void *packed = step->node->packed;
    const bool regressor = step->node->op->attrs == regressor_attrs;
    struct trees trees;
    count_parts(step->args, &trees);
    if (work->phase == 0) {
        if (packed == NULL)
            compile(step->args, &trees, work->shared);
        return ATTNRUN_OK;
    }
    op_trees_layout(&trees, packed != NULL ? (void *)(uintptr_t)packed : work->shared);
    struct votes_rows rows = { .scores = work->scratch };
    for (int64_t task = work->begin; task < work->end; task++) {
        rows.first = ml_rows_end(&state->tasks, task);
        rows.n = ml_rows_end(&state->tasks, task + 1) - rows.first;
        TRY((regressor ? regressor_rows : classifier_rows)(step, work, &trees, &rows));
    }
    return ATTNRUN_OK;
}

/* ---- the operators ---- */

static attn_status regressor_infer(attnrun_step *step)
{
    const struct votes_args *args = step->args;
    struct votes_state *state = step->state;
    attnrun_dim rows, features;
    TRY(op_ml_rows(step, &rows, &features));
    TRY(check_nodes(step, features));
    TRY(check_votes(step, args->n_targets));
    attnrun_dim dims[2] = { rows, dim_of(args->n_targets) };
    TRY(op_out(step, 0, ATTNRUN_F32, 2, dims));
    state->n_targets = args->n_targets;
    return step->concrete ? votes_plan(step, rows.value) : ATTNRUN_OK;
}

static attn_status classifier_infer(attnrun_step *step)
{
    const struct votes_args *args = step->args;
    struct votes_state *state = step->state;
    const bool strings = args->labels_strings.v != NULL;
    int64_t labels = strings ? args->labels_strings.n : args->labels_int64s.n;
    attnrun_dim rows, features;
    if (strings == (args->labels_int64s.v != NULL) || labels < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "expected one list of class labels");
    TRY(op_ml_rows(step, &rows, &features));
    TRY(check_nodes(step, features));
    TRY(check_votes(step, labels));
    state->binary = labels <= 2 && args->vote_targets.n > 0;
    for (int64_t i = 1; i < args->vote_targets.n; i++)
        state->binary &= args->vote_targets.v[i] == args->vote_targets.v[0];
    state->threshold = 0.5;
    for (int64_t i = 0; i < args->vote_targets.n; i++)
        if (list_get(&args->weights, &args->weights_tensor, i) < 0)
            state->threshold = 0;
    state->n_targets = state->binary ? 2 : labels;
    attnrun_dim dims[2] = { rows, dim_of(state->n_targets) };
    TRY(op_out(step, 0, strings ? ATTNRUN_STRING : ATTNRUN_I64, 1, dims));
    if (step->n_out > 1)
        TRY(op_out(step, 1, ATTNRUN_F32, 2, dims));
    return step->concrete ? votes_plan(step, rows.value) : ATTNRUN_OK;
}

#define VOTES_ROW(row, onnx_name, out_list, attributes, infers)                          \
    const attnrun_op_def row = {                                                         \
        ML_DOMAIN,                                                                       \
        .name = onnx_name,                                                               \
        .inputs = "X:T",                                                                 \
        .outputs = out_list,                                                             \
        .types = "T=" ML_REALS " U=string,i64",                                          \
        .args_bytes = sizeof(struct votes_args),                                         \
        .state_bytes = sizeof(struct votes_state),                                       \
        .attrs = attributes,                                                             \
        .infer = infers,                                                                 \
        .pack = votes_pack,                                                              \
        .run = votes_run,                                                                \
        .cost = "O(N trees depth)",                                                      \
    }
VOTES_ROW(op_ml_tree_ensemble_regressor_1, "TreeEnsembleRegressor", "Y:f32",
          regressor_attrs, regressor_infer);
VOTES_ROW(op_ml_tree_ensemble_classifier_1, "TreeEnsembleClassifier", "Y:U Z:f32?",
          classifier_attrs, classifier_infer);
