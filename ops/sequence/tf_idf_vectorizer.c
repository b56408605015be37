/* tf_idf_vectorizer.c - TfIdfVectorizer: how often each n-gram of a pool occurs in a list
 * of tokens, with gaps of up to max_skip_count tokens between its members.
 *
 * x             (C) or (N, C) of i32, i64 or strings
 * y             f32, max(ngram_indexes) + 1 a row
 * ngram_counts  where the 1-grams, 2-grams, … begin in the pool
 * mode          TF: counts; IDF: weight where it occurs; TFIDF: count * weight. n-grams of one
 *               index: their sum, and with IDF the weight of the last that occurs
 *
 * A task is a row. Cost: O(C * pool * skips) comparisons a row. Source: ONNX
 * TfIdfVectorizer-9. */
#include "values.h"

struct tf_idf_args {
    attnrun_ints ngram_counts, ngram_indexes, pool_int64s;
    attnrun_strings pool_strings;
    attnrun_floats weights;
    int64_t max_gram_length, max_skip_count, min_gram_length;
    int32_t mode;
};
enum { TF, IDF, TFIDF };
static const attnrun_attr_def tf_idf_attrs[] = {
    ATTR_INTS_REQUIRED(struct tf_idf_args, ngram_counts),
    ATTR_INTS_REQUIRED(struct tf_idf_args, ngram_indexes),
    ATTR_INTS(struct tf_idf_args, pool_int64s),
    ATTR_STRINGS(struct tf_idf_args, pool_strings),
    ATTR_FLOATS(struct tf_idf_args, weights),
    ATTR_INT_REQUIRED(struct tf_idf_args, max_gram_length),
    ATTR_INT_REQUIRED(struct tf_idf_args, max_skip_count),
    ATTR_INT_REQUIRED(struct tf_idf_args, min_gram_length),
    ATTR_ENUM(struct tf_idf_args, mode, "TF|IDF|TFIDF", TF),
    ATTR_END
};

static int64_t pool_size(const struct tf_idf_args *args)
{
    return args->pool_strings.v != NULL ? args->pool_strings.n : args->pool_int64s.n;
}

/* Pool elements [*from, *end) are the n-grams of this n. */
static void grams_of(const struct tf_idf_args *args, int64_t n, int64_t *from,
                     int64_t *end)
{
    *from = n - 1 < args->ngram_counts.n ? args->ngram_counts.v[n - 1] : pool_size(args);
    *end = n < args->ngram_counts.n ? args->ngram_counts.v[n] : pool_size(args);
}

static attn_status check_pool(const attnrun_step *step, int64_t *width)
{
    const struct tf_idf_args *args = step->args;
    int64_t grams = 0, from, end;
    bool strings = args->pool_strings.v != NULL;
    if (strings == (args->pool_int64s.v != NULL) ||
        strings != (step->in[0].dtype == ATTNRUN_STRING))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "expected one pool: pool_strings for strings, "
                       "pool_int64s for numbers");
    if (args->min_gram_length < 1 || args->max_gram_length < args->min_gram_length ||
        args->max_gram_length > 1024 || args->max_skip_count < 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "min_gram_length is %lld, max_gram_length %lld and max_skip_count "
                       "%lld, expected 1 or more, at least min_gram_length and at most "
                       "1024, and 0 or more",
                       (long long)args->min_gram_length, (long long)args->max_gram_length,
                       (long long)args->max_skip_count);
    for (int64_t n = 1; n <= args->ngram_counts.n; n++) {
        grams_of(args, n, &from, &end);
        if (from < 0 || end < from || end > pool_size(args) || (end - from) % n != 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "ngram_counts puts the pool of %lld-grams at %lld to %lld, "
                           "expected whole n-grams within the pool",
                           (long long)n, (long long)from, (long long)end);
        grams += (end - from) / n;
    }
    if (grams != args->ngram_indexes.n ||
        (args->weights.v != NULL && args->weights.n != grams))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "the pool has %lld n-grams, ngram_indexes %s and weights %lld, "
                       "expected equal numbers",
                       (long long)grams, attn_plural(args->ngram_indexes.n, "element"),
                       (long long)args->weights.n);
    *width = 0;
    for (int64_t g = 0; g < grams; g++) {
        int64_t at = args->ngram_indexes.v[g];
        if (at < 0 || at > INT32_MAX)
            return op_fail(
                step, ATTNRUN_E_ATTR,
                "element %lld of ngram_indexes is %lld, expected 0 to 2147483647",
                (long long)g, (long long)at);
        *width = at >= *width ? at + 1 : *width;
    }
    return ATTNRUN_OK;
}

static attn_status tf_idf_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    int64_t width = 0;
    TRY(check_pool(step, &width));
    TRY(op_need_rank_between(step, 0, 1, 2));
    attnrun_dim dims[2] = { in->dims[0], dim_of(width) };
    if (in->rank == 1)
        dims[0] = dim_of(width);
    TRY(op_out(step, 0, ATTNRUN_F32, in->rank, dims));
    if (step->concrete && in->rank == 2)
        op_tasks(step, 0, in->dims[0].value, 10000);
    return ATTNRUN_OK;
}

static bool same_token(const struct tf_idf_args *args, const attnrun_tensor *x, int64_t k,
                       int64_t entry)
{
    if (x->dtype != ATTNRUN_STRING)
        return tensor_get_int(x, k) == args->pool_int64s.v[entry];
    return op_texts_equal((const attnrun_string *)x->data + k,
                          &args->pool_strings.v[entry]);
}

/* How often the n-gram at `entry` of the pool occurs in x[from, from + length), its members
 * `pace` apart. */
static int64_t count_gram(const attnrun_step *step, int64_t from, int64_t length,
                          int64_t n, int64_t pace, int64_t entry)
{
    int64_t count = 0;
    for (int64_t start = 0; start + (n - 1) * pace < length; start++) {
        int64_t k = 0;
        while (k < n &&
               same_token(step->args, &step->x[0], from + start + k * pace, entry + k))
            k++;
        count += k == n;
        if (attn_poll_work(16 + 8 * k) != ATTNRUN_OK)
            break;
    }
    return count;
}

/* What an n-gram that occurs `count` times adds: n-grams may share a column. */
static void add_gram(const struct tf_idf_args *args, int64_t gram, int64_t count,
                     float *y)
{
    const bool weighs = args->mode != TF && args->weights.v != NULL;
    const float weight = weighs ? args->weights.v[gram] : 1;
    float *at = &y[args->ngram_indexes.v[gram]];
    if (count > 0)
        *at = args->mode == IDF ? weight : *at + (float)count * weight;
}

static attn_status count_row(const attnrun_step *step, const attnrun_work *work,
                             int64_t from, int64_t length, int64_t width, float *y)
{
    const struct tf_idf_args *args = step->args;
    const int64_t longest = min64(args->max_gram_length, args->ngram_counts.n);
    int64_t gram = 0, entry, end;
    memset(y, 0, (size_t)width * sizeof *y);
    for (int64_t n = 1; n <= longest; n++) {
        /* Wider ones fit nowhere. */
        const int64_t widest = n == 1 ? 1 : (length - 1) / (n - 1);
        const int64_t paces =
            n < args->min_gram_length ? 0 : min64(args->max_skip_count, widest - 1) + 1;
        grams_of(args, n, &entry, &end);
        for (; entry < end; entry += n, gram++) {
            int64_t count = 0;
            for (int64_t pace = 1; pace <= paces; pace++) {
                count += count_gram(step, from, length, n, pace, entry);
                if (OP_CANCELLED_AFTER(work, 64))
                    return ATTNRUN_E_CANCELLED;
            }
            add_gram(args, gram, count, y);
        }
    }
    return ATTNRUN_OK;
}

static attn_status tf_idf_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    int64_t length = x->dims[x->rank - 1], width = y->dims[y->rank - 1];
    for (int64_t row = work->begin; row < work->end && y->data != NULL; row++)
        TRY(count_row(step, work, row * length, length, width,
                      (float *)y->data + row * width));
    return ATTNRUN_OK;
}

const attnrun_op_def op_tf_idf_vectorizer_9 = { OP_ROW,
                                                .name = "TfIdfVectorizer",
                                                .since = 9,
                                                .inputs = "X:T",
                                                .outputs = "Y:f32",
                                                .types = "T=string,i32,i64",
                                                .args_bytes = sizeof(struct tf_idf_args),
                                                .attrs = tf_idf_attrs,
                                                .infer = tf_idf_infer,
                                                .run = tf_idf_run };
