/* regex.c - compiles a pattern. The pattern becomes a postfix expression (operators wait
 * on a stack), and the expression becomes a graph of states. A text is then read once,
 * while the set of possible states is kept. regex.h describes the syntax and the cost.
 * Source: Thompson, CACM 1968. */
#include "../../runtime/poll.h"
#include "regex_text.h"

#include <string.h>

static bool see(struct text *t, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* ---- postfix ---- */

static const char *emit(struct op_regex *r, int32_t kind, int32_t value)
{
    if (r->n_tokens == REGEX_TOKENS)
        return "it is too long";
    if (value == NOT_UTF8)
        return "it is not UTF-8";
    if (kind < CONCAT) {
        r->times[r->n_operands] = 1;
        r->operands[r->n_operands++] = r->n_tokens;
    } else if (kind == CONCAT || kind == EITHER) {
        int32_t *times = &r->times[--r->n_operands];
        times[-1] = times[0] > times[-1] ? times[0] : times[-1];
    }
    r->tokens[r->n_tokens++] = (struct op_regex_token){ kind, value };
    return NULL;
}

/* Emits what waits down to an open group (or all). */
static const char *settle(struct op_regex *r, int32_t down_to)
{
    const char *wrong = NULL;
    while (wrong == NULL && r->n_waiting > 0 && r->waiting[r->n_waiting - 1] != OPEN &&
           r->waiting[r->n_waiting - 1] <= down_to)
        wrong = emit(r, r->waiting[--r->n_waiting], 0);
    return wrong;
}

static const char *wait(struct op_regex *r, int32_t kind)
{
    if (r->n_waiting >= 2 * REGEX_TOKENS - 1)
        return "it is too long";
    r->waiting[r->n_waiting++] = kind;
    return NULL;
}

static const char *operand(struct op_regex *r, int32_t kind, int32_t value, bool *after)
{
    const char *wrong = NULL;
    if (*after) {
        wrong = settle(r, CONCAT);
        if (wrong == NULL)
            wrong = wait(r, CONCAT);
    }
    *after = true;
    return wrong != NULL ? wrong : emit(r, kind, value);
}

/* ---- classes ---- */

static const char *add_range(struct op_regex *r, uint32_t low, uint32_t high)
{
    if (r->n_ranges == REGEX_RANGES)
        return "its classes have too many ranges";
    if (high == NOT_UTF8)
        return "it is not UTF-8";
    r->ranges[r->n_ranges].low = low;
    r->ranges[r->n_ranges++].high = high;
    r->classes[r->n_classes - 1].n++;
    return NULL;
}

struct range {
    uint32_t low, high;
};

/* Adds the ranges (ascending), or all between them. */
static const char *add_ranges(struct op_regex *r, const struct range *ranges, int n,
                              bool negated)
{
    uint32_t next = 0;
    const char *wrong = NULL;
    for (int i = 0; i < n && wrong == NULL; i++) {
        if (!negated)
            wrong = add_range(r, ranges[i].low, ranges[i].high);
        else if (ranges[i].low > next)
            wrong = add_range(r, next, ranges[i].low - 1);
        next = ranges[i].high + 1;
    }
    return negated && wrong == NULL ? add_range(r, next, 0x10ffff) : wrong;
}

/* \d, \w, \s and their opposites; *known false for another letter. */
static const char *add_perl(struct op_regex *r, uint32_t letter, bool *known)
{
    static const struct range digits[] = { { '0', '9' } };
    static const struct range words[] = {
        { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' }
    };
    static const struct range spaces[] = { { '\t', '\n' }, { '\f', '\r' }, { ' ', ' ' } };
    bool upper = letter >= 'A' && letter <= 'Z';
    *known = true;
    switch (upper ? letter + 32 : letter) {
    case 'd':
        return add_ranges(r, digits, 1, upper);
    case 'w':
        return add_ranges(r, words, 4, upper);
    case 's':
        return add_ranges(r, spaces, 3, upper);
    default:
        *known = false;
        return NULL;
    }
}

/* What follows a backslash as a character; -1 where it is none. */
static int32_t escaped(struct text *t, uint32_t c)
{
    static const char letters[] = "tnrfva", values[] = "\t\n\r\f\v\a";
    const char *at = c < 128 && c != 0 ? strchr(letters, (int)c) : NULL;
    if (at != NULL)
        return values[at - letters];
    if (c == 'x') {
        uint32_t value = 0;
        bool braces = see(t, "{");
        int digits = 0;
        for (; t->at < t->end && digits < (braces ? 6 : 2); digits++) {
            uint32_t d = *t->at | 0x20u;
            if (!(*t->at >= '0' && *t->at <= '9') && !(d >= 'a' && d <= 'f'))
                break;
            value = value * 16 + (*t->at <= '9' ? *t->at - 0x30u : d - 'a' + 10);
            t->at++;
        }
        bool right = braces ? digits > 0 && see(t, "}") : digits == 2;
        return right && value <= 0x10ffff ? (int32_t)value : -1;
    }
    bool letter = is_word(c) && c != '_';
    return letter || c >= 128 ? -1 : (int32_t)c;
}

/* [:alpha:] and the like, behind "[:". */
static const char *add_named(struct op_regex *r, struct text *t)
{
    static const struct {
        const char *name;
        int n;
        struct range ranges[4];
    } names[] = {
        { "alnum:]", 3, { { '0', '9' }, { 'A', 'Z' }, { 'a', 'z' } } },
        { "alpha:]", 2, { { 'A', 'Z' }, { 'a', 'z' } } },
        { "digit:]", 1, { { '0', '9' } } },
        { "lower:]", 1, { { 'a', 'z' } } },
        { "upper:]", 1, { { 'A', 'Z' } } },
        { "space:]", 2, { { '\t', '\r' }, { ' ', ' ' } } },
        { "blank:]", 2, { { '\t', '\t' }, { ' ', ' ' } } },
        { "punct:]", 4, { { '!', '/' }, { ':', '@' }, { '[', '`' }, { '{', '~' } } },
        { "xdigit:]", 3, { { '0', '9' }, { 'A', 'F' }, { 'a', 'f' } } },
        { "word:]", 4, { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } } },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (see(t, names[i].name))
            return add_ranges(r, names[i].ranges, names[i].n, false);
    return "a class [:name:] is not known";
}

/* One character of a class; *set: it stood for a set, which is added. */
static const char *class_item(struct op_regex *r, struct text *t, uint32_t *c, bool *set)
{
    *set = true;
    if (see(t, "[:"))
        return add_named(r, t);
    *c = regex_take(t);
    if (*c == '\\') {
        if (t->at == t->end)
            return "it ends with a backslash";
        uint32_t letter = regex_take(t);
        const char *wrong = add_perl(r, letter, set);
        if (*set || wrong != NULL)
            return wrong;
        int32_t point = escaped(t, letter);
        if (point < 0)
            return "an escape is not known";
        *c = (uint32_t)point;
    }
    *set = false;
    return NULL;
}

static const char *new_class(struct op_regex *r, bool negated)
{
    if (r->n_classes == REGEX_CLASSES)
        return "it has too many classes";
    r->classes[r->n_classes].first = r->n_ranges;
    r->classes[r->n_classes].n = 0;
    r->classes[r->n_classes++].negated = negated;
    return NULL;
}

/* Behind '['. */
static const char *parse_class(struct op_regex *r, struct text *t)
{
    const char *wrong = new_class(r, see(t, "^"));
    for (bool first = true; wrong == NULL; first = false) {
        uint32_t low = 0, high = 0;
        bool set = false;
        if (t->at == t->end)
            return "a class is not closed";
        if (!first && see(t, "]"))
            return NULL;
        wrong = class_item(r, t, &low, &set);
        if (wrong != NULL || set)
            continue;
        high = low;
        if (t->end - t->at >= 2 && t->at[0] == '-' && t->at[1] != ']') {
            t->at++;
            wrong = class_item(r, t, &high, &set);
            if (wrong == NULL && (set || high < low))
                wrong = "a range of a class is not in order";
        }
        if (wrong == NULL)
            wrong = add_range(r, low, high);
    }
    return wrong;
}

/* ---- repetition ---- */

/* As RE2 has it: none begins with a 0 that another digit follows, or has ten digits. */
static bool number(struct text *t, int32_t *value)
{
    const unsigned char *from = t->at;
    *value = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (t->at - from == 9 || (t->at > from && *from == '0'))
            return false;
        *value = *value * 10 + (*t->at - '0');
    }
    return t->at > from;
}

/* {m}, {m,} or {m,n}: *most -1 without a bound. Anything else is a plain brace. */
static bool braces(struct text *t, int32_t *min, int32_t *max)
{
    struct text look = *t;
    if (!see(&look, "{") || !number(&look, min))
        return false;
    *max = *min;
    if (see(&look, ",") && !number(&look, max))
        *max = -1;
    if (!see(&look, "}"))
        return false;
    *t = look;
    return true;
}

/* The last operand again, followed by the unary operator `kind` (0: none). */
static const char *copy_operand(struct op_regex *r, int32_t from, int32_t n, int32_t kind)
{
    if (r->n_tokens + n + 2 > REGEX_TOKENS)
        return "its repetitions make it too long";
    r->times[r->n_operands] = 1;
    r->operands[r->n_operands++] = r->n_tokens;
    memcpy(&r->tokens[r->n_tokens], &r->tokens[from], (size_t)n * sizeof r->tokens[0]);
    r->n_tokens += n;
    return kind != 0 ? emit(r, kind, 0) : NULL;
}

/* x{2,4} is x x x? x?, x{2,} is x x x*. The operand is made anew behind itself, then
 * moved. */
static const char *repeat(struct op_regex *r, int32_t min, int32_t max)
{
    int32_t from = r->operands[r->n_operands - 1], n = r->n_tokens - from,
            made = r->n_tokens, last = max < 0 ? min : max;
    int32_t times = r->times[r->n_operands - 1], copies = max < 0 ? min + 1 : max;
    const char *wrong = NULL;
    if (min > 1000 || max > 1000 || (max >= 0 && max < min))
        return "a repetition is not within 0 to 1000, or not in order";
    times *= last > 0 ? last : 1;
    if (times > 1000) /* RE2's bound, too */
        return "its nested repetitions are more than 1000 in all";
    r->n_operands--;
    if (copies == 0)
        wrong = emit(r, EMPTY, 0);
    for (int32_t k = 0; k < copies && wrong == NULL; k++) {
        wrong = copy_operand(r, from, n, k < min ? 0 : max < 0 ? STAR : MAYBE);
        if (k > 0 && wrong == NULL)
            wrong = emit(r, CONCAT, 0);
    }
    if (wrong != NULL)
        return wrong;
    memmove(&r->tokens[from], &r->tokens[made],
            (size_t)(r->n_tokens - made) * sizeof r->tokens[0]);
    r->n_tokens -= made - from;
    r->operands[r->n_operands - 1] = from;
    r->times[r->n_operands - 1] = times;
    return NULL;
}

/* ---- the parser ---- */

static const char *open_group(struct op_regex *r, struct text *t, bool *after)
{
    const char *wrong = NULL;
    if (see(t, "?")) {
        if (see(t, "P<") || (t->end - t->at > 1 && t->at[0] == '<' && t->at[1] != '=' &&
                             t->at[1] != '!' && see(t, "<"))) {
            const unsigned char *name = t->at;
            while (t->at < t->end && is_word(*t->at))
                t->at++;
            if (t->at == name || !see(t, ">"))
                return "the name of a group is not of letters, digits and _";
        } else if (!see(t, ":")) {
            return "flags and looking around are not supported";
        }
    }
    if (*after) {
        wrong = settle(r, CONCAT);
        if (wrong == NULL)
            wrong = wait(r, CONCAT);
    }
    *after = false;
    return wrong != NULL ? wrong : wait(r, OPEN);
}

static const char *close_group(struct op_regex *r, bool *after)
{
    const char *wrong = *after ? NULL : emit(r, EMPTY, 0);
    if (wrong == NULL)
        wrong = settle(r, EITHER);
    if (wrong != NULL)
        return wrong;
    if (r->n_waiting == 0)
        return "a group is closed that was not opened";
    r->n_waiting--;
    *after = true;
    return NULL;
}

static const char *parse_escape(struct op_regex *r, struct text *t, bool *after)
{
    bool known = false;
    if (t->at == t->end)
        return "it ends with a backslash";
    uint32_t c = regex_take(t);
    static const char letters[] = "bBAz";
    static const int32_t kinds[] = { WORD, NO_WORD, BEGIN, END };
    const char *at = c != 0 && c < 128 ? strchr(letters, (int)c) : NULL;
    if (at != NULL)
        return operand(r, kinds[at - letters], 0, after);
    const char *wrong = new_class(r, false);
    if (wrong == NULL)
        wrong = add_perl(r, c, &known);
    if (wrong != NULL)
        return wrong;
    if (known)
        return operand(r, CLASS, r->n_classes - 1, after);
    r->n_classes--;
    int32_t point = escaped(t, c);
    return point < 0 ? "an escape is not known" : operand(r, CHAR, point, after);
}

static bool is_repetition(const struct text *t)
{
    struct text look = *t;
    int32_t min, max;
    return t->at < t->end &&
           (*t->at == '*' || *t->at == '+' || *t->at == '?' || braces(&look, &min, &max));
}

static const char *quantify(struct op_regex *r, struct text *t, uint32_t c, bool after)
{
    int32_t min = 0, max = 0;
    if (!after)
        return "a repetition has nothing before it";
    const char *wrong;
    if (c == '{') {
        t->at--;
        (void)braces(t, &min, &max);
        wrong = repeat(r, min, max);
    } else {
        wrong = emit(r, c == '*' ? STAR : c == '+' ? PLUS : MAYBE, 0);
    }
    (void)see(t, "?"); /* lazy or not, the language is the same */
    if (wrong == NULL && is_repetition(t))
        wrong = "a repetition is repeated";
    return wrong;
}

static const char *parse_one(struct op_regex *r, struct text *t, bool *after)
{
    const bool repeats = is_repetition(t);
    uint32_t c = regex_take(t);
    const char *wrong = NULL;
    if (repeats)
        return quantify(r, t, c, *after);
    switch (c) {
    case '(':
        return open_group(r, t, after);
    case ')':
        return close_group(r, after);
    case '|':
        wrong = *after ? NULL : emit(r, EMPTY, 0);
        if (wrong == NULL)
            wrong = settle(r, EITHER);
        *after = false;
        return wrong != NULL ? wrong : wait(r, EITHER);
    case '[':
        wrong = parse_class(r, t);
        return wrong != NULL ? wrong : operand(r, CLASS, r->n_classes - 1, after);
    case '\\':
        return parse_escape(r, t, after);
    case '.':
        return operand(r, ANY, 0, after);
    case '^':
        return operand(r, BEGIN, 0, after);
    case '$':
        return operand(r, END, 0, after);
    default:
        return operand(r, CHAR, (int32_t)c, after);
    }
}

const char *op_regex_compile(struct op_regex *r, const char *pattern, int64_t bytes)
{
    struct text t = { (const unsigned char *)pattern,
                      (const unsigned char *)pattern + bytes };
    const char *wrong = NULL;
    bool after = false;
    r->n_tokens = r->n_states = r->n_ranges = r->n_classes = 0;
    r->n_waiting = r->n_operands = 0;
    while (wrong == NULL && t.at < t.end) {
        wrong = parse_one(r, &t, &after);
        /* A repetition may have copied all tokens. */
        if (attn_poll_work(64 + 8 * (int64_t)r->n_tokens) != ATTNRUN_OK)
            return "the call is to end";
    }
    if (wrong == NULL && !after)
        wrong = emit(r, EMPTY, 0);
    if (wrong == NULL)
        wrong = settle(r, EITHER);
    if (wrong == NULL && r->n_waiting > 0)
        wrong = "a group is not closed";
    if (wrong == NULL)
        op_regex_build(r);
    return wrong;
}
