/* tokenizer.c - com.microsoft Tokenizer: the tokens of each string.
 *
 * X   strings in UTF-8, (C) or (N, C);  Y  strings: X's dims and one more, which is the
 *     largest number of tokens; shorter rows are filled up with pad_value
 * separators   regular expressions: each in turn cuts what the one before has left. If a
 *              match has no characters, the character behind it is dropped, too. One
 *              empty string: every character is a token
 * tokenexp     a regular expression whose matches are the tokens; with "." every
 *              character is one, line feeds too
 * mincharnum   tokens of fewer characters are dropped
 * mark         1: U+0002 and U+0003 around the tokens of every string
 *
 * Where no string has a token the last dim is 0, with mark too; without strings Y is (0),
 * or (N, 0). Matches are the leftmost, longest ones (regex.h). If both are given,
 * tokenexp is ignored. Tokens are found twice, first to count and then to write them, so
 * nothing is stored in between. Cost: O(patterns * text). Scratch: one regular expression
 * for each separator that is not plain text. Source: ONNX Runtime contrib operators;
 * compared with onnxruntime 1.32.0. */
#include "regex.h"
#include "values.h"

struct tokenizer_args {
    attnrun_strings separators;
    attnrun_string tokenexp, pad_value;
    int64_t mark, mincharnum;
};
static const attnrun_attr_def tokenizer_attrs[] = {
    ATTR_STRINGS(struct tokenizer_args, separators),
    ATTR_STRING(struct tokenizer_args, tokenexp, NULL),
    { .name = "pad_value",
      .kind = ATTNRUN_ATTR_STRING,
      .offset = offsetof(struct tokenizer_args, pad_value),
      .flags = ATTNRUN_ATTR_REQUIRED },
    ATTR_INT_REQUIRED(struct tokenizer_args, mark),
    ATTR_INT_REQUIRED(struct tokenizer_args, mincharnum),
    ATTR_END
};

enum { MAX_REGEXES = 32, REGEX_BYTES = (sizeof(struct op_regex) + 63) / 64 * 64 };
enum { MARK_BEGIN = 2, MARK_END = 3 };

/* A separator, and the part of the text that it cuts; at > n: the part is used up. */
struct level {
    struct op_regex *regex; /* NULL: the separator is plain text */
    attnrun_string plain;
    const char *text;
    int64_t n, at;
};

struct tokens {
    const attnrun_step *step;
    const attnrun_work *work;
    struct level *levels; /* one for each separator, or one for tokenexp */
    int64_t n_levels;
    enum { BY_SEPARATORS, BY_EXPRESSION, BY_CHARACTER } mode;
};

static bool is_plain_text(const attnrun_string *pattern)
{
    for (int64_t i = 0; i < pattern->n; i++)
        if (memchr("\\.+*?()|[]{}^$", pattern->data[i], 14) != NULL)
            return false;
    return pattern->n > 0;
}

static bool by_character(const struct tokenizer_args *args)
{
    if (args->separators.n > 0)
        return args->separators.n == 1 && args->separators.v[0].n == 0;
    return args->tokenexp.n == 1 && args->tokenexp.data[0] == '.';
}

static int64_t count_regexes(const struct tokenizer_args *args)
{
    int64_t n = 0;
    if (by_character(args))
        return 0;
    for (int64_t i = 0; i < args->separators.n; i++)
        n += !is_plain_text(&args->separators.v[i]);
    return args->separators.n > 0 ? n : 1;
}

static attn_status tokenizer_check_args(const attnrun_step *step,
                                        const struct tokenizer_args *args)
{
    if (args->separators.n == 0 && args->tokenexp.n == 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "separators or tokenexp is missing or empty");
    if (args->mincharnum < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "mincharnum is %lld, expected 1 or more",
                       (long long)args->mincharnum);
    if (by_character(args) && args->mincharnum > 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "mincharnum is %lld, expected 1 where characters are the tokens",
                       (long long)args->mincharnum);
    if (count_regexes(args) > MAX_REGEXES)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "%lld separators are regular expressions, expected at most %d",
                       (long long)count_regexes(args), MAX_REGEXES);
    return ATTNRUN_OK;
}

static int64_t levels_bytes(const struct tokenizer_args *args)
{
    int64_t n = args->separators.n > 0 ? args->separators.n : 1;
    return round_up(n * (int64_t)sizeof(struct level), 64);
}

/* No strings at all give no dim of tokens. */
static int tokenizer_rank(int rank, bool empty) { return empty ? rank : rank + 1; }

static attn_status tokenizer_infer(attnrun_step *step)
{
    const struct tokenizer_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    attnrun_dim dims[3];
    TRY(tokenizer_check_args(step, args));
    TRY(op_need_rank_between(step, 0, 1, 2));
    step->scratch_bytes = levels_bytes(args) + count_regexes(args) * REGEX_BYTES;
    bool empty = false, open = in->rank < 0;
    for (int i = 0; i < in->rank; i++) {
        dims[i] = in->dims[i];
        empty = empty || dim_is(dims[i], 0);
        open = open || !dim_is_const(dims[i]);
    }
    if (open && !empty) /* without strings it has a dim less */
        return op_out(step, 0, ATTNRUN_STRING, -1, NULL);
    int rank = tokenizer_rank(in->rank, empty);
    dims[rank - 1] = empty ? dim_of(0) : attnrun_dim_unknown(step);
    return op_out(step, 0, ATTNRUN_STRING, rank, dims);
}

/* ---- characters ---- */

/* Bytes of the character that begins with c. */
static int64_t width_of(char c)
{
    unsigned char byte = (unsigned char)c;
    return byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
}

/* The searches below rely on it. */
static bool is_utf8(const attnrun_string *s)
{
    int64_t width;
    for (int64_t i = 0; i < s->n && !attn_stops(i | 3); i += width) {
        width = attnrun_utf8_length(s->data + i, (size_t)(s->n - i));
        if (width == 0)
            return false;
    }
    return true;
}

static bool has_characters(const attnrun_string *s, int64_t wanted)
{
    for (int64_t i = 0; i < s->n && wanted > 0 && !attn_stops(i); i++)
        wanted -= ((unsigned char)s->data[i] & 0xc0) != 0x80;
    return wanted <= 0;
}

/* ---- tokens of one string ---- */

static bool find_separator(struct level *level, int64_t *begin, int64_t *end)
{
    if (level->regex != NULL)
        return op_regex_find(level->regex, level->text, level->n, level->at, begin, end);
    const char *found =
        op_text_find(level->text + level->at, level->n - level->at, &level->plain);
    if (found == NULL)
        return false;
    *begin = found - level->text;
    *end = *begin + level->plain.n;
    return true;
}

/* Moves behind a match, over one character where it is empty. */
static void pass_match(struct level *level, int64_t begin, int64_t end)
{
    level->at = end;
    if (end == begin)
        level->at =
            begin < level->n ? begin + width_of(level->text[begin]) : level->n + 1;
}

/* The next part that a separator leaves; false where its part is used up. */
static bool next_segment(struct level *level, attnrun_string *segment)
{
    int64_t begin, end, from = level->at;
    if (from > level->n)
        return false;
    if (find_separator(level, &begin, &end)) {
        pass_match(level, begin, end);
    } else {
        begin = level->n;
        level->at = level->n + 1;
    }
    *segment = (attnrun_string){ level->text + from, begin - from };
    return true;
}

static bool next_between(const struct tokens *t, int64_t min, attnrun_string *token)
{
    int64_t k = t->n_levels - 1;
    while (k >= 0 && !OP_CANCELLED(t->work)) {
        if (!next_segment(&t->levels[k], token)) {
            k--;
            continue;
        }
        if (!has_characters(token, min))
            continue;
        if (k == t->n_levels - 1)
            return true;
        k++;
        t->levels[k].text = token->data;
        t->levels[k].n = token->n;
        t->levels[k].at = 0;
    }
    return false;
}

static bool next_match(const struct tokens *t, int64_t min, attnrun_string *token)
{
    struct level *level = &t->levels[0];
    int64_t begin, end;
    while (level->at <= level->n && find_separator(level, &begin, &end)) {
        pass_match(level, begin, end);
        *token = (attnrun_string){ level->text + begin, end - begin };
        if (end > begin && has_characters(token, min))
            return true;
    }
    return false;
}

static bool next_token(const struct tokens *t, attnrun_string *token)
{
    const struct tokenizer_args *args = t->step->args;
    struct level *level = &t->levels[0];
    if (t->mode == BY_SEPARATORS)
        return next_between(t, args->mincharnum, token);
    if (t->mode == BY_EXPRESSION)
        return next_match(t, args->mincharnum, token);
    if (level->at >= level->n)
        return false;
    *token =
        (attnrun_string){ level->text + level->at, width_of(level->text[level->at]) };
    level->at += token->n;
    return true;
}

static void begin_text(const struct tokens *t, const attnrun_string *text)
{
    for (int64_t k = 0; k < t->n_levels; k++) {
        t->levels[k].n = k == 0 ? text->n : -1;
        t->levels[k].text = text->data;
        t->levels[k].at = 0;
    }
}

/* ---- all strings ---- */

static attn_status tokenizer_prepare(const attnrun_step *step, const attnrun_work *work,
                                     struct tokens *t)
{
    const struct tokenizer_args *args = step->args;
    char *room = (char *)work->scratch + levels_bytes(args);
    *t = (struct tokens){ .step = step, .work = work, .levels = work->scratch };
    t->mode = by_character(args)       ? BY_CHARACTER
              : args->separators.n > 0 ? BY_SEPARATORS
                                       : BY_EXPRESSION;
    t->n_levels = t->mode == BY_SEPARATORS ? args->separators.n : 1;
    for (int64_t k = 0; k < t->n_levels; k++) {
        const attnrun_string *pattern =
            args->separators.n > 0 ? &args->separators.v[k] : &args->tokenexp;
        t->levels[k] = (struct level){ .plain = *pattern };
        if (t->mode == BY_CHARACTER ||
            (t->mode == BY_SEPARATORS && is_plain_text(pattern)))
            continue;
        t->levels[k].regex = (struct op_regex *)(void *)room;
        room += REGEX_BYTES;
        const char *wrong =
            op_regex_compile(t->levels[k].regex, pattern->data, pattern->n);
        TRY(attn_poll());
        if (wrong != NULL)
            return op_fail(step, ATTNRUN_E_UNSUPPORTED, "%s is not supported: %s",
                           t->mode == BY_EXPRESSION ? "tokenexp" : "a separator", wrong);
    }
    return ATTNRUN_OK;
}

static attn_status count_tokens(const struct tokens *t, int64_t *max)
{
    const attnrun_string *x = t->step->x[0].data;
    const int64_t n = tensor_count(&t->step->x[0]);
    attnrun_string token;
    *max = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t count = 0;
        const bool right = is_utf8(&x[i]);
        TRY(attn_poll_work(0)); /* else not all of it was looked at */
        if (!right)
            return op_fail(t->step, ATTNRUN_E_RANGE, "string %lld is not UTF-8",
                           (long long)i);
        begin_text(t, &x[i]);
        while (next_token(t, &token) && !attn_stops(count))
            count++;
        if (OP_CANCELLED(t->work))
            return ATTNRUN_E_CANCELLED;
        *max = count > *max ? count : *max;
    }
    return ATTNRUN_OK;
}

static attn_status write_tokens(const struct tokens *t, attnrun_string *y, int64_t width)
{
    static const char marks[] = { MARK_BEGIN, MARK_END };
    const struct tokenizer_args *args = t->step->args;
    const attnrun_string *x = t->step->x[0].data;
    const int64_t n = tensor_count(&t->step->x[0]);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i * width;
        if (args->mark != 0)
            y[k++] = (attnrun_string){ &marks[0], 1 };
        begin_text(t, &x[i]);
        while (k < (i + 1) * width - (args->mark != 0) && next_token(t, &y[k]) &&
               !attn_stops(k))
            k++;
        if (OP_CANCELLED(t->work))
            return ATTNRUN_E_CANCELLED;
        if (args->mark != 0)
            y[k++] = (attnrun_string){ &marks[1], 1 };
        for (; k < (i + 1) * width; k++)
            y[k] = args->pad_value;
    }
    return ATTNRUN_OK;
}

static attn_status tokenizer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct tokenizer_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    int64_t dims[ATTNRUN_MAX_RANK] = { 0 }, max;
    struct tokens t;
    TRY(tokenizer_prepare(step, work, &t));
    TRY(count_tokens(&t, &max));
    const int rank = tokenizer_rank(x->rank, tensor_count(x) == 0);
    for (int i = 0; i < x->rank; i++)
        dims[i] = x->dims[i];
    dims[rank - 1] = max > 0 && args->mark != 0 ? max + 2 : max;
    TRY(attnrun_step_alloc(step, 0, ATTNRUN_STRING, rank, dims));
    if (!op_has_out(step, 0) || step->y[0].data == NULL || max == 0)
        return ATTNRUN_OK;
    TRY(write_tokens(&t, step->y[0].data, dims[rank - 1]));
    return op_heap_strings(step, 0, &step->y[0]);
}

const attnrun_op_def op_tokenizer_1 = {
    OP_ROW_OF("com.microsoft"),
    .flags = ATTNRUN_OP_DYNAMIC,
    .name = "Tokenizer",
    .since = 1,
    .inputs = "X:string",
    .outputs = "Y:string",
    .args_bytes = sizeof(struct tokenizer_args),
    .attrs = tokenizer_attrs,
    .infer = tokenizer_infer,
    .run = tokenizer_run,
    .cost = "O(patterns * text)",
    .source = "ONNX Runtime contrib operators",
};
