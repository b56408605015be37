/* dim_table.c - the table of symbols and expressions of a model: equal ones have equal
 * handles. In: constants, symbols and terms. Out: a handle, found or made; UNKNOWN where the
 * table is full. Cost: O(terms) for each, by hashing. */
#include "dim_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hash.h"

/* ---- hashing ---- */
static uint32_t hash_word(uint32_t hash, uint64_t word)
{
    return attn_hash_slot(attn_hash_keyed(hash, &word, sizeof word));
}

static uint32_t hash_text(const char *text)
{
    return attn_hash_name(text, (int64_t)strlen(text));
}

typedef uint32_t entry_hash_fn(const struct attn_dims *dims, int32_t entry);

static uint32_t symbol_hash(const struct attn_dims *dims, int32_t entry)
{
    return dims->symbols[entry].hash;
}

static uint32_t expression_hash(const struct attn_dims *dims, int32_t entry)
{
    return dims->expressions[entry].hash;
}

static void dim_table_put(struct dim_index *index, uint32_t hash, int32_t entry)
{
    int64_t mask = index->n_slots - 1, at = hash & mask;
    while (index->slots[at] != 0)
        at = (at + 1) & mask;
    index->slots[at] = entry + 1;
}

/* Adds entry n (of n + 1), growing at half full; false without memory. */
static bool add_entry(struct attn_dims *dims, struct dim_index *index, int32_t n,
                      entry_hash_fn *hash)
{
    if (2 * (int64_t)n >= index->n_slots) {
        struct dim_index grown = { .n_slots =
                                       index->n_slots == 0 ? 64 : 4 * index->n_slots };
        grown.slots =
            attn_pool_alloc(dims->pool, grown.n_slots * (int64_t)sizeof *grown.slots);
        if (grown.slots == NULL)
            return false;
        for (int32_t entry = 0; entry < n; entry++)
            dim_table_put(&grown, hash(dims, entry), entry);
        *index = grown;
    }
    dim_table_put(index, hash(dims, n), n);
    return true;
}

/* ---- bounds: saturating arithmetic ---- */
static int64_t sat_add(int64_t a, int64_t b)
{
    int64_t sum;
    return ck_add(a, b, &sum) ? sum : a < 0 ? INT64_MIN : INT64_MAX;
}

static int64_t sat_mul(int64_t a, int64_t b)
{
    int64_t product;
    return ck_mul(a, b, &product) ? product : (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

static void relax_bounds(int64_t value, int64_t *min, int64_t *max)
{
    if (value < *min)
        *min = value;
    if (value > *max)
        *max = value;
}

/* [*min, *max] becomes its product with [from, to]. */
static void multiply_bounds(int64_t *min, int64_t *max, int64_t from, int64_t to)
{
    int64_t low = sat_mul(*min, from), high = low;
    relax_bounds(sat_mul(*min, to), &low, &high);
    relax_bounds(sat_mul(*max, from), &low, &high);
    relax_bounds(sat_mul(*max, to), &low, &high);
    *min = low;
    *max = high;
}

void attn_dims_bounds(const struct attn_dims *dims,
                      const struct dim_expression *expression, int64_t *min, int64_t *max)
{
    *min = *max = expression->constant;
    for (int i = 0; i < expression->n_terms; i++) {
        struct dim_term term = expression->terms[i];
        int64_t low = dims->symbols[term.symbol].min,
                high = dims->symbols[term.symbol].max;
        multiply_bounds(&low, &high, term.k, term.k);
        *min = sat_add(*min, low);
        *max = sat_add(*max, high);
    }
}

static void derived_bounds(const struct attn_dims *dims, struct dim_symbol *symbol)
{
    struct dim_expression a = dim_expression_of(dims, symbol->a);
    struct dim_expression b = dim_expression_of(dims, symbol->b);
    int64_t a0, a1, b0, b1;
    attn_dims_bounds(dims, &a, &a0, &a1);
    attn_dims_bounds(dims, &b, &b0, &b1);
    symbol->min = a0 < b0 ? a0 : b0;
    symbol->max = a1 > b1 ? a1 : b1;
    if (symbol->kind == SYMBOL_MIN) {
        symbol->max = a1 < b1 ? a1 : b1;
    } else if (symbol->kind == SYMBOL_MAX) {
        symbol->min = a0 > b0 ? a0 : b0;
    } else if (symbol->kind == SYMBOL_DIV) {
        symbol->min = INT64_MIN;
        symbol->max = INT64_MAX;
        if (b0 >= 1) {
            symbol->min = symbol->max = dim_floor_div(a0, b0);
            relax_bounds(dim_floor_div(a0, b1), &symbol->min, &symbol->max);
            relax_bounds(dim_floor_div(a1, b0), &symbol->min, &symbol->max);
            relax_bounds(dim_floor_div(a1, b1), &symbol->min, &symbol->max);
        } else if (a0 >= 0 && b0 >= 0) { /* nothing is divided by 0 */
            symbol->min = 0;
            symbol->max = a1;
        }
    }
}

/* ---- symbols ---- */
static bool same_symbol(const struct dim_symbol *x, const struct dim_symbol *y)
{
    if (x->hash != y->hash || x->kind != y->kind || x->n_factors != y->n_factors)
        return false;
    if (x->kind == SYMBOL_PLAIN) /* a name of the file is none of a fresh symbol */
        return (x->marks & SYMBOL_VAGUE) == (y->marks & SYMBOL_VAGUE) &&
               strcmp(x->name, y->name) == 0;
    if (x->kind == SYMBOL_PRODUCT)
        return memcmp(x->factors, y->factors,
                      (size_t)x->n_factors * sizeof *x->factors) == 0;
    return dim_equal(x->a, y->a) && dim_equal(x->b, y->b);
}

static int32_t find_symbol(const struct attn_dims *dims, const struct dim_symbol *key)
{
    const struct dim_index *index = &dims->symbol_index;
    if (index->n_slots == 0)
        return -1;
    int64_t mask = index->n_slots - 1, at = key->hash & mask;
    for (; index->slots[at] != 0; at = (at + 1) & mask)
        if (same_symbol(&dims->symbols[index->slots[at] - 1], key))
            return index->slots[at] - 1;
    return -1;
}

/* What the symbol is printed as; one that gets too long is printed by its number. */
static void write_symbol(const struct attn_dims *dims, const struct dim_symbol *symbol,
                         int32_t number, char *text)
{
    static const char *const functions[] = { [SYMBOL_MIN] = "min",
                                             [SYMBOL_MAX] = "max",
                                             [SYMBOL_BROADCAST] = "broadcast",
                                             [SYMBOL_NONZERO] = "nonzero" };
    char a[DIM_TEXT], b[DIM_TEXT];
    int n = 0;
    attn_dim_format(dims, symbol->a, a, sizeof a);
    attn_dim_format(dims, symbol->b, b, sizeof b);
    if (symbol->kind == SYMBOL_PRODUCT) {
        for (int i = 0; i < symbol->n_factors && n < DIM_TEXT; i++)
            n += snprintf(text + n, (size_t)(DIM_TEXT - n), "%s%s", i > 0 ? "*" : "",
                          dims->symbols[symbol->factors[i]].text);
    } else if (symbol->kind == SYMBOL_DIV) {
        const char *open_a = strpbrk(a, "+-*/") != NULL ? "(" : "";
        const char *open_b = strpbrk(b, "+-*/") != NULL ? "(" : "";
        n = snprintf(text, DIM_TEXT, "floor(%s%s%s/%s%s%s)", open_a, a,
                     open_a[0] ? ")" : "", open_b, b, open_b[0] ? ")" : "");
    } else {
        n = snprintf(text, DIM_TEXT, "%s(%s,%s)", functions[symbol->kind], a, b);
    }
    if (n >= DIM_TEXT - 1)
        snprintf(text, DIM_TEXT, "expr%" PRId32, number);
}

/* The marks of all that a dim is made of. */
static unsigned dim_marks(const struct attn_dims *dims, attnrun_dim dim)
{
    if (dims == NULL || dim.expr < 0)
        return SYMBOL_VAGUE | SYMBOL_NOT_GIVEN;
    const struct dim_expression e = dim_expression_of(dims, dim);
    unsigned marks = 0;
    for (int32_t i = 0; i < e.n_terms; i++)
        marks |= dims->symbols[e.terms[i].symbol].marks;
    return marks;
}

bool attn_dim_is_vague(const struct attn_dims *dims, attnrun_dim dim)
{
    return (dim_marks(dims, dim) & SYMBOL_VAGUE) != 0;
}

bool attn_dim_is_given(const struct attn_dims *dims, attnrun_dim dim)
{
    return (dim_marks(dims, dim) & SYMBOL_NOT_GIVEN) == 0;
}

void attn_dims_give(struct attn_dims *dims, int32_t symbol)
{
    if (symbol >= 0)
        dims->symbols[symbol].marks &= (uint8_t)~SYMBOL_NOT_GIVEN;
}

static unsigned symbol_marks(const struct attn_dims *dims, const struct dim_symbol *key)
{
    if (key->kind == SYMBOL_PLAIN)
        return key->marks | SYMBOL_NOT_GIVEN;
    unsigned marks = dim_marks(dims, key->a) | dim_marks(dims, key->b);
    for (int32_t i = 0; i < key->n_factors; i++)
        marks |= dims->symbols[key->factors[i]].marks;
    return marks;
}

/* Adds what find_symbol() did not find. */
static int32_t add_symbol(struct attn_dims *dims, const struct dim_symbol *key)
{
    char text[DIM_TEXT];
    int32_t number = (int32_t)dims->n_symbols;
    void *symbols = dims->symbols;
    if (number >= DIM_MAX_SYMBOLS ||
        attn_pool_grow(dims->pool, &symbols, &dims->symbols_capacity, number,
                       sizeof *dims->symbols) != ATTNRUN_OK)
        return -1;
    dims->symbols = symbols;
    struct dim_symbol *symbol = &dims->symbols[number];
    *symbol = *key;
    symbol->marks = (uint8_t)symbol_marks(dims, key);
    if (key->kind == SYMBOL_PLAIN) {
        const char *shown = attn_quote(key->name); /* two names may begin alike */
        symbol->name = attn_pool_string(dims->pool, key->name);
        symbol->text = strcmp(shown, key->name) == 0
                           ? symbol->name
                           : attn_pool_printf(dims->pool, "%s#%" PRId32, shown, number);
    } else {
        write_symbol(dims, key, number, text);
        symbol->name = "";
        symbol->text = attn_pool_string(dims->pool, text);
    }
    if (key->kind == SYMBOL_PRODUCT)
        symbol->factors = attn_pool_copy(dims->pool, key->factors,
                                         key->n_factors * (int64_t)sizeof *key->factors);
    if (symbol->name == NULL || symbol->text == NULL ||
        (symbol->n_factors > 0 && symbol->factors == NULL) ||
        !add_entry(dims, &dims->symbol_index, number, symbol_hash))
        return -1;
    dims->n_symbols++;
    dims->n_nonzero += key->kind == SYMBOL_NONZERO;
    return number;
}

int32_t attn_dims_factors(struct attn_dims *dims, const int32_t *factors, int n)
{
    struct dim_symbol key = { .kind = SYMBOL_PRODUCT,
                              .n_factors = n,
                              .factors = factors };
    if (n == 1)
        return factors[0];
    key.hash = hash_word(SYMBOL_PRODUCT, (uint64_t)n);
    key.min = key.max = 1;
    for (int i = 0; i < n; i++) {
        const struct dim_symbol *factor = &dims->symbols[factors[i]];
        key.hash = hash_word(key.hash, (uint64_t)factors[i]);
        multiply_bounds(&key.min, &key.max, factor->min, factor->max);
    }
    int32_t found = find_symbol(dims, &key);
    return found >= 0 ? found : add_symbol(dims, &key);
}

static uint32_t hash_dim(uint32_t hash, attnrun_dim dim)
{
    return hash_word(hash_word(hash, (uint64_t)dim.expr),
                     dim.expr == 0 ? (uint64_t)dim.value : 0);
}

static struct dim_symbol derived_key(enum dim_symbol_kind kind, attnrun_dim a,
                                     attnrun_dim b)
{
    struct dim_symbol key = { .kind = kind, .a = a, .b = b };
    key.hash = hash_dim(hash_dim(hash_word(1, (uint64_t)kind), a), b);
    return key;
}

int32_t attn_dims_derived(struct attn_dims *dims, enum dim_symbol_kind kind,
                          attnrun_dim a, attnrun_dim b)
{
    struct dim_symbol key = derived_key(kind, a, b);
    int32_t found = find_symbol(dims, &key);
    if (found >= 0)
        return found;
    derived_bounds(dims, &key);
    return add_symbol(dims, &key);
}

bool attn_dims_is_assumed(const struct attn_dims *dims, attnrun_dim size,
                          attnrun_dim other)
{
    const struct dim_symbol key = derived_key(SYMBOL_NONZERO, size, other);
    return dims->n_nonzero > 0 && find_symbol(dims, &key) >= 0;
}

bool attn_dims_assume_nonzero(struct attn_dims *dims, attnrun_dim size, attnrun_dim other)
{
    return dim_equal(attn_dim_combine(dims, DIM_MAX, size, dim_of(0)), size) &&
           attn_dim_is_given(dims, size) && attn_dim_is_given(dims, other) &&
           attn_dims_derived(dims, SYMBOL_NONZERO, size, other) >= 0;
}

int32_t attn_dims_plain(struct attn_dims *dims, const char *name, bool vague)
{
    const struct dim_symbol key = { .kind = SYMBOL_PLAIN,
                                    .max = ATTN_MAX_DIM,
                                    .name = name,
                                    .marks = vague ? SYMBOL_VAGUE : 0,
                                    .hash = hash_text(name) };
    int32_t found = find_symbol(dims, &key);
    return found >= 0 ? found : add_symbol(dims, &key);
}

int32_t attn_dims_plain_of(const struct attn_dims *dims, attnrun_dim dim)
{
    struct dim_expression e = dim_expression_of(dims, dim);
    const bool plain = e.constant == 0 && e.n_terms == 1 && e.terms[0].k == 1 &&
                       dims->symbols[e.terms[0].symbol].kind == SYMBOL_PLAIN;
    return plain ? e.terms[0].symbol : -1;
}

/* A name that nobody has: "u1", "u2", … The file may use it later. */
static void fresh_name(struct attn_dims *dims, char *name, size_t bytes)
{
    struct dim_symbol named = { .kind = SYMBOL_PLAIN, .name = name }, fresh;
    do {
        snprintf(name, bytes, "u%" PRId32, ++dims->n_fresh);
        named.hash = hash_text(name);
        fresh = named;
        fresh.marks = SYMBOL_VAGUE;
    } while (find_symbol(dims, &named) >= 0 || find_symbol(dims, &fresh) >= 0);
}

attn_status attn_dims_fix(struct attn_dims *dims, const attnrun_fixed_dim *fixed,
                          int64_t n)
{
    if (n == 0)
        return ATTNRUN_OK;
    dims->fixed = attn_pool_copy(dims->pool, fixed, n * (int64_t)sizeof *fixed);
    dims->met = attn_pool_alloc(dims->pool, n * (int64_t)sizeof *dims->met);
    for (int64_t i = 0; dims->fixed != NULL && i < n; i++)
        dims->fixed[i].symbol = attn_pool_string(dims->pool, fixed[i].symbol);
    if (dims->pool->failed != 0)
        return ATTNRUN_E_MEMORY;
    dims->n_fixed = n;
    return ATTNRUN_OK;
}

const char *attn_dims_unmet(const struct attn_dims *dims)
{
    for (int64_t i = 0; i < dims->n_fixed; i++)
        if (!dims->met[i])
            return dims->fixed[i].symbol;
    return NULL;
}

/* Whether the symbol is a constant: *dim. */
static bool is_fixed(struct attn_dims *dims, const char *name, attnrun_dim *dim)
{
    for (int64_t i = 0; i < dims->n_fixed; i++)
        if (strcmp(dims->fixed[i].symbol, name) == 0) {
            dims->met[i] = true;
            *dim = dim_of(dims->fixed[i].size);
            return true;
        }
    return false;
}

attnrun_dim attn_dim_symbol(struct attn_dims *dims, const char *name)
{
    char fresh[24];
    struct dim_symbol key = { .kind = SYMBOL_PLAIN, .max = ATTN_MAX_DIM, .name = name };
    int32_t symbol = -1;
    if (dims == NULL)
        return (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    if (name == NULL || name[0] == 0) {
        fresh_name(dims, fresh, sizeof fresh);
        key.name = fresh;
        key.marks = SYMBOL_VAGUE;
        key.hash = hash_text(fresh);
    } else {
        attnrun_dim fixed;
        if (is_fixed(dims, name, &fixed))
            return fixed;
        key.hash = hash_text(name);
        symbol = find_symbol(dims, &key);
    }
    if (symbol < 0)
        symbol = add_symbol(dims, &key);
    if (symbol < 0)
        return (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    return attn_dims_intern(dims, 0, &(struct dim_term){ 1, symbol }, 1);
}

/* ---- expressions ---- */
static bool same_expression(const struct dim_expression *x,
                            const struct dim_expression *y)
{
    if (x->hash != y->hash || x->n_terms != y->n_terms || x->constant != y->constant)
        return false;
    for (int i = 0; i < x->n_terms; i++)
        if (x->terms[i].k != y->terms[i].k || x->terms[i].symbol != y->terms[i].symbol)
            return false;
    return true;
}

static attnrun_dim expression_dim(int64_t number)
{
    return (attnrun_dim){ .expr = (int32_t)number + 1 };
}

attnrun_dim attn_dims_intern(struct attn_dims *dims, int64_t constant,
                             const struct dim_term *terms, int n_terms)
{
    const attnrun_dim unknown = { .expr = ATTN_DIM_UNKNOWN };
    struct dim_expression key = { .constant = constant,
                                  .terms = terms,
                                  .n_terms = n_terms };
    const struct dim_index *index = &dims->expression_index;
    if (n_terms == 0)
        return dim_of(constant);
    key.hash = hash_word(0, (uint64_t)constant);
    for (int i = 0; i < n_terms; i++)
        key.hash = hash_word(hash_word(key.hash, (uint64_t)terms[i].k),
                             (uint64_t)terms[i].symbol);
    if (index->n_slots > 0) {
        int64_t mask = index->n_slots - 1, at = key.hash & mask;
        for (; index->slots[at] != 0; at = (at + 1) & mask)
            if (same_expression(&dims->expressions[index->slots[at] - 1], &key))
                return expression_dim(index->slots[at] - 1);
    }
    int64_t number = dims->n_expressions;
    void *expressions = dims->expressions;
    if (number >= DIM_MAX_EXPRESSIONS ||
        attn_pool_grow(dims->pool, &expressions, &dims->expressions_capacity, number,
                       sizeof *dims->expressions) != ATTNRUN_OK)
        return unknown;
    dims->expressions = expressions;
    key.terms = attn_pool_copy(dims->pool, terms, n_terms * (int64_t)sizeof *terms);
    if (key.terms == NULL)
        return unknown;
    dims->expressions[number] = key;
    if (!add_entry(dims, &dims->expression_index, (int32_t)number, expression_hash))
        return unknown;
    dims->n_expressions++;
    return expression_dim(number);
}

struct attn_dims *attn_dims_create(struct attn_pool *pool)
{
    struct attn_dims *dims = attn_pool_alloc(pool, sizeof *dims);
    if (dims != NULL)
        dims->pool = pool;
    return dims;
}

attnrun_dim attn_dims_product(struct attn_dims *dims, const attnrun_dim *d, int from,
                              int to)
{
    attnrun_dim product = dim_of(1);
    for (int i = from; i < to; i++)
        if (dim_is(d[i], 0))
            return dim_of(0);
    for (int i = from; i < to; i++)
        product = attn_dim_combine(dims, DIM_MUL, product, d[i]);
    return product;
}
