/* regex_states.c - the graph of states of a postfix expression, and the reading of a text
 * with the set of all states that it may be in, as a whole or in search of the first
 * match. regex.h has the cost. Source: Thompson, CACM 1968. */
#include "../../runtime/poll.h"
#include "regex_text.h"

#include <string.h>

/* ---- states ---- */

static int32_t add_state(struct op_regex *r, int32_t kind, int32_t value, int32_t next,
                         int32_t other)
{
    r->states[r->n_states] = (struct op_regex_state){ kind, value, next, other };
    return r->n_states++;
}

/* Each token makes at most two states, so they fit. */
void op_regex_build(struct op_regex *r)
{
    int32_t top = 0;
    for (int32_t i = 0; i < r->n_tokens; i++) {
        const struct op_regex_token *token = &r->tokens[i];
        int32_t pass, split;
        switch (token->kind) {
        case CONCAT:
            top--;
            r->states[r->exit[top - 1]].next = r->entry[top];
            r->exit[top - 1] = r->exit[top];
            break;
        case EITHER:
            top--;
            pass = add_state(r, PASS, 0, -1, -1);
            split = add_state(r, SPLIT, 0, r->entry[top - 1], r->entry[top]);
            r->states[r->exit[top - 1]].next = r->states[r->exit[top]].next = pass;
            r->entry[top - 1] = split;
            r->exit[top - 1] = pass;
            break;
        case STAR:
        case PLUS:
        case MAYBE:
            pass = add_state(r, PASS, 0, -1, -1);
            split = add_state(r, SPLIT, 0, r->entry[top - 1], pass);
            r->states[r->exit[top - 1]].next = token->kind == MAYBE ? pass : split;
            r->entry[top - 1] = token->kind == PLUS ? r->entry[top - 1] : split;
            r->exit[top - 1] = pass;
            break;
        default:
            r->entry[top] = r->exit[top] = add_state(
                r, token->kind == EMPTY ? PASS : token->kind, token->value, -1, -1);
            top++;
        }
    }
    r->start = r->entry[0];
    r->states[r->exit[0]].next = add_state(r, MATCH, 0, -1, -1);
}

/* ---- matching ---- */

/* The characters around a place; -1 at the ends. */
struct regex_states_place {
    int64_t before, after;
};

static bool holds(int32_t kind, struct regex_states_place p)
{
    bool left = p.before >= 0 && is_word((uint32_t)p.before);
    bool right = p.after >= 0 && is_word((uint32_t)p.after);
    switch (kind) {
    case BEGIN:
        return p.before < 0;
    case END:
        return p.after < 0;
    case WORD:
        return left != right;
    default:
        return left == right;
    }
}

/* Adds a state and all that it leads to without reading; n: size of the set. */
static int32_t add_closure(struct op_regex *r, int32_t *set, int32_t n, int32_t state,
                           struct regex_states_place p)
{
    int32_t waiting = 0;
    r->follow[waiting++] = state;
    while (waiting > 0) {
        int32_t s = r->follow[--waiting];
        if (s < 0 || (r->places[s] < n && set[r->places[s]] == s))
            continue;
        const struct op_regex_state *state_of = &r->states[s];
        r->places[s] = n;
        set[n++] = s;
        bool passes = state_of->kind == PASS || state_of->kind == SPLIT ||
                      (state_of->kind >= BEGIN && state_of->kind <= NO_WORD &&
                       holds(state_of->kind, p));
        if (!passes)
            continue;
        r->follow[waiting++] = state_of->next;
        if (state_of->kind == SPLIT)
            r->follow[waiting++] = state_of->other;
    }
    return n;
}

static bool reads(const struct op_regex *r, const struct op_regex_state *s, uint32_t c)
{
    if (s->kind == CHAR)
        return (uint32_t)s->value == c;
    if (s->kind == ANY)
        return c != '\n' && c != NOT_UTF8;
    if (s->kind != CLASS || c == NOT_UTF8)
        return false;
    bool in = false;
    for (int32_t i = 0; i < r->classes[s->value].n && !in; i++) {
        int32_t k = r->classes[s->value].first + i;
        in = c >= r->ranges[k].low && c <= r->ranges[k].high;
    }
    return in != r->classes[s->value].negated;
}

static int64_t peek(struct text t) { return t.at < t.end ? (int64_t)regex_take(&t) : -1; }

/* After a character: a state looks at a class at most, and follows some edges. False where the
 * call is to end. */
static bool goes_on(const struct op_regex *r, int32_t states)
{
    return attn_poll_work((int64_t)(states + 1) * (8 + r->n_ranges / 8)) == ATTNRUN_OK;
}

bool op_regex_match(struct op_regex *r, const char *text, int64_t bytes)
{
    struct text t = { (const unsigned char *)text, (const unsigned char *)text + bytes };
    int32_t *now = r->sets[0], *next = r->sets[1], n, m;
    memset(r->places, 0, (size_t)r->n_states * sizeof r->places[0]);
    n = add_closure(r, now, 0, r->start, (struct regex_states_place){ -1, peek(t) });
    while (t.at < t.end && n > 0 && goes_on(r, n)) {
        uint32_t c = regex_take(&t);
        struct regex_states_place p = { (int64_t)c, peek(t) };
        m = 0;
        for (int32_t i = 0; i < n; i++)
            if (reads(r, &r->states[now[i]], c))
                m = add_closure(r, next, m, r->states[now[i]].next, p);
        int32_t *old = now;
        now = next;
        next = old;
        n = m;
    }
    bool matched = false;
    for (int32_t i = 0; i < n && t.at == t.end; i++)
        matched = matched || r->states[now[i]].kind == MATCH;
    return matched;
}

/* ---- searching ---- */

/* The character that ends at `at`, -1 at the start of the text. */
static int64_t peek_back(const unsigned char *text, const unsigned char *at)
{
    struct text t = { at, at };
    if (at == text)
        return -1;
    do
        t.at--;
    while (t.at > text && at - t.at < 4 && (*t.at & 0xc0) == 0x80);
    return (int64_t)regex_take(&t);
}

/* States are in the order of their starts, so the first one wins where several meet. */
struct search {
    int32_t *now, *next, n;
    int64_t *starts, *next_starts;
    int64_t begin, end; /* of the best match so far; begin -1: none */
};

static int32_t add_from(struct op_regex *r, int32_t *set, int64_t *starts, int32_t n,
                        int32_t state, int64_t start, struct regex_states_place p)
{
    int32_t m = add_closure(r, set, n, state, p);
    for (int32_t i = n; i < m; i++)
        starts[i] = start;
    return m;
}

/* Takes a match that ends here, and drops the states that began behind it. */
static void see_match(const struct op_regex *r, struct search *s, int64_t at)
{
    for (int32_t i = 0; i < s->n; i++)
        if (r->states[s->now[i]].kind == MATCH) {
            s->begin = s->starts[i];
            s->end = at;
            break;
        }
    while (s->begin >= 0 && s->n > 0 && s->starts[s->n - 1] > s->begin)
        s->n--;
}

static void read_one(struct op_regex *r, struct search *s, uint32_t c,
                     struct regex_states_place p)
{
    int32_t m = 0, *old = s->now;
    int64_t *old_starts = s->starts;
    for (int32_t i = 0; i < s->n; i++)
        if (reads(r, &r->states[s->now[i]], c))
            m = add_from(r, s->next, s->next_starts, m, r->states[s->now[i]].next,
                         s->starts[i], p);
    s->now = s->next;
    s->next = old;
    s->starts = s->next_starts;
    s->next_starts = old_starts;
    s->n = m;
}

bool op_regex_find(struct op_regex *r, const char *text, int64_t bytes, int64_t from,
                   int64_t *begin, int64_t *end)
{
    const unsigned char *first = (const unsigned char *)text;
    struct text t = { first + from, first + bytes };
    struct search s = { r->sets[0], r->sets[1], 0, r->starts[0], r->starts[1], -1, -1 };
    struct regex_states_place p = { peek_back(first, t.at), peek(t) };
    if (attn_poll_work(r->n_states * (int64_t)sizeof r->places[0]) != ATTNRUN_OK)
        return false;
    memset(r->places, 0, (size_t)r->n_states * sizeof r->places[0]);
    for (;;) {
        if (s.begin < 0)
            s.n = add_from(r, s.now, s.starts, s.n, r->start, t.at - first, p);
        see_match(r, &s, t.at - first);
        if (t.at == t.end || (s.n == 0 && s.begin >= 0))
            break;
        if (!goes_on(r, s.n))
            return false;
        uint32_t c = regex_take(&t);
        p = (struct regex_states_place){ (int64_t)c, peek(t) };
        read_one(r, &s, c, p);
    }
    *begin = s.begin;
    *end = s.end;
    return s.begin >= 0;
}
