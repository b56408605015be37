/* string_normalizer.c - StringNormalizer: drops stop words from a list, then changes
 * case.
 *
 * x, y   strings (C) or (1, C); with nothing left y is one empty string
 *
 * Case is changed for letters of Latin, Greek, Cyrillic and Armenian whose other case has as
 * many bytes in UTF-8, independently of the locale. Cost: O(text * stop words). Source: ONNX
 * StringNormalizer-10. */
#include "../../runtime/utf8.h"
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

/* The other case of a letter, where that has as many bytes in UTF-8. */
static uint32_t change_letter(uint32_t c, int action)
{
    static const struct {
        uint16_t from, to; /* capitals; each second one where the shift is 1 */
        int16_t shift;
    } rows[] = {
        { 'A', 'Z', 32 },      { 0x410, 0x42f, 32 },   { 0xc0, 0xd6, 32 },
        { 0x391, 0x3a1, 32 },  { 0x3a3, 0x3ab, 32 },   { 0xd8, 0xde, 32 },
        { 0x100, 0x12e, 1 },   { 0x132, 0x136, 1 },    { 0x139, 0x147, 1 },
        { 0x14a, 0x176, 1 },   { 0x178, 0x178, -121 }, { 0x179, 0x17d, 1 },
        { 0x1a0, 0x1a0, 1 },   { 0x1af, 0x1af, 1 },    { 0x1cd, 0x1db, 1 },
        { 0x1de, 0x1ee, 1 },   { 0x1f8, 0x21e, 1 },    { 0x222, 0x232, 1 },
        { 0x386, 0x386, 38 },  { 0x388, 0x38a, 37 },   { 0x38c, 0x38c, 64 },
        { 0x38e, 0x38f, 63 },  { 0x400, 0x40f, 80 },   { 0x460, 0x480, 1 },
        { 0x48a, 0x4be, 1 },   { 0x4c0, 0x4c0, 15 },   { 0x4c1, 0x4cd, 1 },
        { 0x4d0, 0x52e, 1 },   { 0x531, 0x556, 48 },   { 0x1e00, 0x1e94, 1 },
        { 0x1ea0, 0x1efe, 1 },
    };
    const size_t n = action == NONE ? 0 : c < 0x80 ? 1 : sizeof rows / sizeof rows[0];
    if (action == UPPER && c == 0x3c2) /* the sigma at the end of a word */
        return 0x3a3;
    for (size_t i = 0; i < n; i++) {
        const uint32_t shift = (uint32_t)rows[i].shift;
        const uint32_t at = c - rows[i].from - (action == UPPER ? shift : 0);
        if (at <= (uint32_t)rows[i].to - rows[i].from && (at & (shift == 1)) == 0)
            return action == UPPER ? c - shift : c + shift;
    }
    return c;
}

/* n bytes; those that are not UTF-8 stay. */
static void change_case(const char *from, int64_t n, int action, char *to)
{
    int64_t width;
    for (int64_t i = 0; i < n && !attn_stops(i | 3); i += width) {
        const unsigned char first = (unsigned char)from[i];
        uint32_t point = first;
        const int length =
            first < 0x80 ? 1 : attn_utf8_take(from + i, (size_t)(n - i), &point);
        width = length > 0 ? length : 1;
        point = length > 0 ? change_letter(point, action) : first;
        for (int k = length - 1; k > 0; k--, point >>= 6)
            to[i + k] = (char)(0x80 | (point & 0x3f));
        to[i] = (char)(length > 1 ? (0xf00u >> length & 0xf0) | point : point);
    }
}

static bool equal_words(const attnrun_string *a, const attnrun_string *b, bool sensitive)
{
    char p[64], q[64];
    if (sensitive || a->n != b->n)
        return op_texts_equal(a, b);
    for (int64_t at = 0; at < a->n;) { /* pieces that end between letters */
        int64_t n = a->n - at < 64 ? a->n - at : 64;
        while (n > 1 && at + n < a->n && ((unsigned char)a->data[at + n] & 0xc0) == 0x80)
            n--;
        change_case(a->data + at, n, LOWER, p);
        change_case(b->data + at, n, LOWER, q);
        if (memcmp(p, q, (size_t)n) != 0 || attn_poll_work(4 * n) != ATTNRUN_OK)
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
