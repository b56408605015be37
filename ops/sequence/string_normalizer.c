/* string_normalizer.c - StringNormalizer: drops stop words from a list, then changes
 * case.
 *
 * x, y   strings (C) or (1, C); with nothing left y is one empty string
 *
 * Case is changed for ASCII, Latin-1, Greek and Cyrillic letters, independently of the
 * locale. Cost: O(text * stop words). Source: ONNX StringNormalizer-10. */
#include "values.h"

struct normalizer_args {
    attnrun_strings stopwords;
    attnrun_string locale;
    int64_t is_case_sensitive;
    int32_t case_change_action;
};
enum { NONE, LOWER, UPPER };
static const attnrun_attr_def normalizer_attrs[] = {
    ATTR_STRINGS(struct normalizer_args, stopwords),
    ATTR_STRING(struct normalizer_args, locale, NULL),
    ATTR_FLAG(struct normalizer_args, is_case_sensitive, 0),
    ATTR_ENUM(struct normalizer_args, case_change_action, "NONE|LOWER|UPPER", NONE),
    ATTR_END
};

static attn_status normalizer_infer(attnrun_step *step)
{
    TRY(op_need_rank_between(step, 0, 1, 2));
    if (step->in[0].rank == 2)
        TRY(op_need_dim(step, 0, 0, dim_of(1), "one list"));
    return op_value_unknown(step, 0, ATTNRUN_TENSOR, ATTNRUN_STRING);
}

/* A letter of two UTF-8 bytes; both cases have two bytes. */
static uint32_t change_letter(uint32_t c, int action)
{
    static const struct {
        uint32_t from, to, shift;
    } ranges[] = {
        /* capitals */
        { 0xc0, 0xd6, 0x20 },   { 0xd8, 0xde, 0x20 },   { 0x391, 0x3a1, 0x20 },
        { 0x3a3, 0x3ab, 0x20 }, { 0x410, 0x42f, 0x20 }, { 0x400, 0x40f, 0x50 },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        uint32_t base = action == LOWER ? 0 : ranges[i].shift;
        if (c >= ranges[i].from + base && c <= ranges[i].to + base)
            return action == LOWER ? c + ranges[i].shift : c - ranges[i].shift;
    }
    return c;
}

/* n bytes; an incomplete letter at the end stays. */
static void change_case(const char *from, int64_t n, int action, char *to)
{
    for (int64_t i = 0; i < n && !attn_stops(i); i++) {
        unsigned char c = (unsigned char)from[i];
        to[i] = from[i];
        if (action == LOWER && c >= 'A' && c <= 'Z')
            to[i] = (char)(c + 32);
        else if (action == UPPER && c >= 'a' && c <= 'z')
            to[i] = (char)(c - 32);
        else if (action != NONE && (c & 0xe0) == 0xc0 && i + 1 < n &&
                 ((unsigned char)from[i + 1] & 0xc0) == 0x80) {
            uint32_t low = (unsigned char)from[i + 1] & 0x3fu;
            uint32_t letter = change_letter((c & 0x1fu) << 6 | low, action);
            to[i++] = (char)(0xc0 | letter >> 6);
            to[i] = (char)(0x80 | (letter & 0x3f));
        }
    }
}

static bool equal_words(const attnrun_string *a, const attnrun_string *b, bool sensitive)
{
    char p[64], q[64];
    if (a->n != b->n)
        return false;
    if (sensitive || a->n == 0)
        return a->n == 0 || memcmp(a->data, b->data, (size_t)a->n) == 0;
    for (int64_t at = 0; at < a->n;) { /* pieces that end between letters */
        int64_t n = a->n - at < 64 ? a->n - at : 64;
        while (n > 1 && at + n < a->n && ((unsigned char)a->data[at + n] & 0xc0) == 0x80)
            n--;
        change_case(a->data + at, n, LOWER, p);
        change_case(b->data + at, n, LOWER, q);
        if (memcmp(p, q, (size_t)n) != 0)
            return false;
        at += n;
    }
    return true;
}

static bool is_stopword(const struct normalizer_args *args, const attnrun_string *word)
{
    for (int64_t k = 0; k < args->stopwords.n && !attn_stops(k); k++)
        if (equal_words(word, &args->stopwords.v[k], args->is_case_sensitive != 0))
            return true;
    return false;
}

static attn_status normalizer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct normalizer_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    const attnrun_string *words = x->data;
    int64_t n = tensor_count(x), kept = 0, dims[2] = { 1, 1 };
    for (int64_t i = 0; i < n; i++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        kept += !is_stopword(args, &words[i]);
    }
    dims[x->rank - 1] = kept > 0 ? kept : 1;
    TRY(attnrun_step_alloc(step, 0, ATTNRUN_STRING, x->rank, dims));
    attnrun_string *y = step->y[0].data;
    if (y == NULL)
        return ATTNRUN_OK;
    if (kept == 0)
        y[0] = (attnrun_string){ "", 0 };
    /* A stop ends the search for a stopword: more words are left than were counted. */
    for (int64_t i = 0, k = 0; i < n && k < kept; i++) {
        if (OP_CANCELLED_AFTER(work, words[i].n + 64))
            return ATTNRUN_E_CANCELLED;
        if (!is_stopword(args, &words[i])) {
            char *text = op_heap(step, 0, words[i].n);
            if (text == NULL)
                return ATTNRUN_E_MEMORY;
            change_case(words[i].data, words[i].n, args->case_change_action, text);
            y[k++] = (attnrun_string){ text, words[i].n };
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_string_normalizer_10 = { OP_ROW,
                                                 .flags = ATTNRUN_OP_DYNAMIC,
                                                 .name = "StringNormalizer",
                                                 .since = 10,
                                                 .inputs = "X:string",
                                                 .outputs = "Y:string",
                                                 .args_bytes =
                                                     sizeof(struct normalizer_args),
                                                 .attrs = normalizer_attrs,
                                                 .infer = normalizer_infer,
                                                 .run = normalizer_run };
