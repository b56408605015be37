/* tree_ensemble.c - TreeEnsemble: each tree leads a row of features to a leaf, whose
 * weight counts for one target.
 *
 * X  (N, F), f32 or f64;  Y  (N, n_targets), as X
 * nodes_*                    branches; true and false ids are of branches or of leaves
 * membership_values          of the MEMBER branches, in their order, a NaN after each
 * aggregate_function         AVERAGE (over trees), SUM, MIN, MAX
 *
 * The nodes are packed into one array, with the leaves behind them. Cost: O(N trees
 * depth). Source: ONNX ai.onnx.ml TreeEnsemble-5. */
#include <math.h>

#include "trees.h"

struct ensemble_args {
    int64_t aggregate_function, post_transform, n_targets;
    attnrun_ints nodes_featureids, nodes_truenodeids, nodes_falsenodeids;
    attnrun_ints nodes_trueleafs, nodes_falseleafs, nodes_missing_value_tracks_true;
    attnrun_ints tree_roots, leaf_targetids;
    attnrun_tensor nodes_modes, nodes_splits, leaf_weights, membership_values;
};
static const attnrun_attr_def ensemble_attrs[] = {
    ATTR_CHOICE(struct ensemble_args, aggregate_function, "0..3", TREES_SUM),
    ATTR_CHOICE(struct ensemble_args, post_transform, "0..4", ML_NONE),
    ATTR_INT(struct ensemble_args, n_targets, 1),
    ATTR_INTS_REQUIRED(struct ensemble_args, nodes_featureids),
    ATTR_INTS_REQUIRED(struct ensemble_args, nodes_truenodeids),
    ATTR_INTS_REQUIRED(struct ensemble_args, nodes_falsenodeids),
    ATTR_FLAGS_REQUIRED(struct ensemble_args, nodes_trueleafs),
    ATTR_FLAGS_REQUIRED(struct ensemble_args, nodes_falseleafs),
    ATTR_FLAGS(struct ensemble_args, nodes_missing_value_tracks_true),
    ATTR_INTS_REQUIRED(struct ensemble_args, tree_roots),
    ATTR_INTS_REQUIRED(struct ensemble_args, leaf_targetids),
    ATTR_TENSOR(struct ensemble_args, nodes_modes),
    ATTR_TENSOR(struct ensemble_args, nodes_splits),
    ATTR_TENSOR(struct ensemble_args, leaf_weights),
    ATTR_TENSOR(struct ensemble_args, membership_values),
    ATTR_IGNORED("nodes_hitrates"),
    ATTR_END,
};

struct ensemble_state {
    struct ml_tasks tasks;
};

static void count_parts(const struct ensemble_args *args, struct trees *trees)
{
    memset(trees, 0, sizeof *trees);
    trees->n_nodes = args->nodes_featureids.n + args->leaf_targetids.n;
    trees->n_roots = args->tree_roots.n;
}

/* ---- checks ---- */

static bool real_list(const attnrun_tensor *tensor, int64_t n)
{
    return tensor->kind == ATTNRUN_TENSOR && tensor_count(tensor) == n &&
           dtype_in(tensor->dtype, ATTN_DT_FLOAT);
}

static bool branches_fit(const struct ensemble_args *args)
{
    const int64_t n = args->nodes_featureids.n;
    return args->nodes_truenodeids.n == n && args->nodes_falsenodeids.n == n &&
           args->nodes_trueleafs.n == n && args->nodes_falseleafs.n == n &&
           (args->nodes_missing_value_tracks_true.n == 0 ||
            args->nodes_missing_value_tracks_true.n == n) &&
           real_list(&args->nodes_splits, n) &&
           args->nodes_modes.kind == ATTNRUN_TENSOR &&
           args->nodes_modes.dtype == ATTNRUN_U8 && tensor_count(&args->nodes_modes) == n;
}

/* How many lists of members end in NaN; -1 where the members are no floats. */
static int64_t member_lists(const attnrun_tensor *members)
{
    int64_t ends = 0;
    if (members->kind != ATTNRUN_TENSOR)
        return 0;
    const int64_t n = tensor_count(members);
    if (n > TREES_LIMIT || !dtype_in(members->dtype, ATTN_DT_FLOAT))
        return -1;
    for (int64_t i = 0; i < n && !op_ml_stops(i); i++)
        ends += isnan(tensor_get_real(members, i));
    return ends;
}

static int64_t member_branches(const struct ensemble_args *args)
{
    int64_t n = 0;
    for (int64_t i = 0; i < args->nodes_featureids.n && !op_ml_stops(i); i++)
        n += tensor_get_int(&args->nodes_modes, i) == TREE_MEMBER;
    return n;
}

static attn_status check_lists(const attnrun_step *step)
{
    const struct ensemble_args *args = step->args;
    const int64_t n = args->nodes_featureids.n, leaves = args->leaf_targetids.n;
    if (!branches_fit(args))
        return op_fail(step, ATTNRUN_E_ATTR, "expected lists of %s in all of nodes_*",
                       attn_plural(n, "branch"));
    if (!real_list(&args->leaf_weights, leaves))
        return op_fail(step, ATTNRUN_E_ATTR, "expected %lld leaf_weights",
                       (long long)leaves);
    if (n < 1 || leaves < 1 || n > TREES_LIMIT || leaves > TREES_LIMIT ||
        args->tree_roots.n > TREES_LIMIT)
        return op_fail(
            step, ATTNRUN_E_LIMIT,
            "the numbers of branches, leaves and roots are %lld, %lld and %lld, expected "
            "at most %d, and 1 or more branches and leaves",
            (long long)n, (long long)leaves, (long long)args->tree_roots.n, TREES_LIMIT);
    if (args->aggregate_function < TREES_AVERAGE ||
        args->aggregate_function > TREES_MAX || args->post_transform < ML_NONE ||
        args->post_transform > ML_PROBIT || args->n_targets < 1 ||
        args->n_targets > TREES_LIMIT)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "aggregate_function is %lld, post_transform %lld and n_targets "
                       "%lld, expected those of the standard",
                       (long long)args->aggregate_function,
                       (long long)args->post_transform, (long long)args->n_targets);
    return ATTNRUN_OK;
}

static attn_status check_index(const attnrun_step *step, const char *what, int64_t i,
                               int64_t value, int64_t limit)
{
    if (value >= 0 && value < limit)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_RANGE, "%s %lld is %lld, expected 0 to %lld", what,
                   (long long)i, (long long)value, (long long)limit - 1);
}

/* As many NaN among the members as there are MEMBER branches. */
static attn_status check_members(const attnrun_step *step)
{
    const struct ensemble_args *args = step->args;
    const int64_t ends = member_lists(&args->membership_values);
    const int64_t needed = member_branches(args);
    TRY(attn_poll()); /* a count that was stopped is not compared */
    if (ends < 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "membership_values is %s, expected at most 2^26 floats",
                       attn_tensor_format(&args->membership_values));
    if (ends != needed)
        return op_fail(
            step, ATTNRUN_E_ATTR,
            "membership_values holds %s that end in NaN, expected one for each "
            "of %lld MEMBER branches",
            attn_plural(ends, "list"), (long long)needed);
    return ATTNRUN_OK;
}

static attn_status check_nodes(const attnrun_step *step, attnrun_dim features)
{
    const struct ensemble_args *args = step->args;
    const int64_t n = args->nodes_featureids.n, leaves = args->leaf_targetids.n;
    const int64_t limit = dim_is_const(features) ? features.value : INT32_MAX;
    for (int64_t i = 0; i < n && !op_ml_stops(i); i++) {
        TRY(check_index(step, "mode", i, tensor_get_int(&args->nodes_modes, i),
                        TREE_LEAF));
        TRY(check_index(step, "feature", i, args->nodes_featureids.v[i], limit));
        TRY(check_index(step, "true node", i, args->nodes_truenodeids.v[i],
                        args->nodes_trueleafs.v[i] ? leaves : n));
        TRY(check_index(step, "false node", i, args->nodes_falsenodeids.v[i],
                        args->nodes_falseleafs.v[i] ? leaves : n));
    }
    for (int64_t i = 0; i < leaves; i++)
        TRY(check_index(step, "target of leaf", i, args->leaf_targetids.v[i],
                        args->n_targets));
    for (int64_t i = 0; i < args->tree_roots.n; i++)
        TRY(check_index(step, "root", i, args->tree_roots.v[i], n));
    return check_members(step);
}

/* ---- packing ---- */

static void compile_branches(const struct ensemble_args *args, struct trees *trees)
{
    const int64_t n = args->nodes_featureids.n;
    int64_t member = 0;
    for (int64_t i = 0; i < n && !op_ml_stops(i); i++) {
        struct tree_node *node = &trees->nodes[i];
        int64_t yes = args->nodes_truenodeids.v[i], no = args->nodes_falsenodeids.v[i];
        node->split = tensor_get_real(&args->nodes_splits, i);
        node->feature = (int32_t)args->nodes_featureids.v[i];
        node->yes = (int32_t)(args->nodes_trueleafs.v[i] ? n + yes : yes);
        node->no = (int32_t)(args->nodes_falseleafs.v[i] ? n + no : no);
        node->mode = (int8_t)tensor_get_int(&args->nodes_modes, i);
        node->missing_yes = args->nodes_missing_value_tracks_true.n > 0 &&
                            args->nodes_missing_value_tracks_true.v[i] != 0;
        if (node->mode != TREE_MEMBER)
            continue;
        node->first_member = (int32_t)member;
        while (!isnan(tensor_get_real(&args->membership_values, member)))
            member++;
        node->n_members = (int32_t)(member++ - node->first_member);
    }
}

/* The attributes are checked. */
static void compile(const struct ensemble_args *args, struct trees *trees, void *memory)
{
    if (attn_poll_fill(memory, 0, op_trees_layout(trees, memory)) != ATTNRUN_OK)
        return;
    compile_branches(args, trees);
    for (int64_t i = 0; i < args->leaf_targetids.n; i++) {
        struct tree_node *leaf = &trees->nodes[args->nodes_featureids.n + i];
        leaf->mode = TREE_LEAF;
        leaf->yes = (int32_t)i;
    }
    for (int64_t i = 0; i < args->tree_roots.n; i++)
        trees->roots[i] = (int32_t)args->tree_roots.v[i];
}

static attn_status ensemble_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct trees trees;
    count_parts(pack->args, &trees);
    *bytes = op_trees_layout(&trees, NULL);
    if (packed != NULL)
        compile(pack->args, &trees, packed);
    return ATTNRUN_OK;
}

static attn_status ensemble_infer(attnrun_step *step)
{
    const struct ensemble_args *args = step->args;
    struct ensemble_state *state = step->state;
    struct trees trees;
    attnrun_dim rows, features;
    TRY(op_need_rank(step, 0, 2));
    TRY(op_ml_rows(step, &rows, &features));
    TRY(check_lists(step));
    TRY(check_nodes(step, features));
    attnrun_dim dims[2] = { rows, dim_of(args->n_targets) };
    TRY(op_out(step, 0, step->in[0].dtype, 2, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    count_parts(args, &trees);
    if (step->node->packed == NULL)
        step->shared_bytes = op_trees_layout(&trees, NULL);
    step->scratch_bytes = args->n_targets * (int64_t)sizeof(double);
    op_tasks(step, 0, 1, trees.n_nodes * 5);
    op_ml_tasks(step, 1, &state->tasks, rows.value,
                (double)trees.n_roots * 100 + (double)args->n_targets * 2);
    return ATTNRUN_OK;
}

/* ---- rows ---- */

static attn_status ensemble_row(const attnrun_step *step, const attnrun_work *work,
                                const struct trees *trees, int64_t row, double *scores)
{
    const struct ensemble_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    const int32_t sum = (int32_t)args->aggregate_function;
    const int64_t branches = args->nodes_featureids.n, n = args->n_targets;
    for (int64_t t = 0; t < n && !op_ml_stops(t); t++)
        scores[t] = op_trees_start(sum, x->dtype == ATTNRUN_F64);
    for (int64_t tree = 0; tree < trees->n_roots; tree++) {
        int64_t leaf = op_trees_leaf(trees, trees->roots[tree], x, row * x->dims[1],
                                     &args->membership_values);
        if (leaf < 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (leaf < 0)
            return op_fail(step, ATTNRUN_E_MODEL, "the nodes of tree %lld form a cycle",
                           (long long)tree);
        int64_t target = args->leaf_targetids.v[leaf - branches];
        scores[target] = trees_add(sum, scores[target],
                                   tensor_get_real(&args->leaf_weights, leaf - branches));
    }
    for (int64_t t = 0; sum == TREES_AVERAGE && t < n && !op_ml_stops(t); t++)
        scores[t] /= (double)trees->n_roots;
    op_ml_post(scores, n, (int32_t)args->post_transform);
    return ATTNRUN_OK;
}

static attn_status ensemble_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct ensemble_args *args = step->args;
    const struct ensemble_state *state = step->state;
    const void *packed = step->node->packed;
    double *scores = work->scratch;
    struct trees trees;
    count_parts(args, &trees);
    if (work->phase == 0) {
        if (packed == NULL)
            compile(args, &trees, work->shared);
        return ATTNRUN_OK;
    }
    op_trees_layout(&trees, packed != NULL ? (void *)(uintptr_t)packed : work->shared);
    int64_t row = ml_rows_end(&state->tasks, work->begin);
    int64_t end = ml_rows_end(&state->tasks, work->end);
    for (; row < end; row++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(ensemble_row(step, work, &trees, row, scores));
        for (int64_t t = 0; t < args->n_targets && !op_ml_stops(t); t++) {
            int64_t at = row * args->n_targets + t;
            if (step->y[0].dtype == ATTNRUN_F64)
                ((double *)step->y[0].data)[at] = scores[t];
            else
                ((float *)step->y[0].data)[at] = (float)scores[t];
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_tree_ensemble_5 = {
    OP_ROW_OF("ai.onnx.ml"),
    .name = "TreeEnsemble",
    .since = 5,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct ensemble_args),
    .state_bytes = sizeof(struct ensemble_state),
    .attrs = ensemble_attrs,
    .infer = ensemble_infer,
    .pack = ensemble_pack,
    .run = ensemble_run,
    .cost = "O(N trees depth)",
};
