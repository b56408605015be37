/* operator_harness.c - random numbers, and the case under construction: see
 * operator_harness.h. */
#include "operator_harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A test that is written wrongly, or has no memory, has nothing more to say. */
static void need(const struct check *c, bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s: %s\n", c->name, c->op, what);
    exit(2);
}

/* ---- rounds and numbers ---- */

static void start_round(struct check *c)
{
    c->random = c->seed * UINT64_C(0x9E3779B97F4A7C15) +
                (uint64_t)c->round * UINT64_C(0xD1B54A32D192ED03) + 1;
    for (int i = 0; i < 8; i++)
        check_random(c);
    c->blank = false;
}

void check_first_round(struct check *c, int64_t n)
{
    c->round = c->only_round >= 0 ? c->only_round : 0;
    c->n_rounds = c->only_round >= 0 ? c->only_round + 1 : n;
    start_round(c);
}

bool check_in_round(struct check *c) { return c->round < c->n_rounds; }

void check_next_round(struct check *c)
{
    c->round++;
    start_round(c);
}

uint32_t check_random(struct check *c)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = c->random ^ c->random >> 29;
    return (uint32_t)(x * 0xbf58476d1ce4e5b9u >> 32);
}

int64_t check_below(struct check *c, int64_t n)
{
    need(c, n > 0, "check_below(0)");
    return (int64_t)((uint64_t)check_random(c) % (uint64_t)n);
}

int64_t check_between(struct check *c, int64_t min, int64_t max)
{
    return min + check_below(c, max - min + 1);
}

bool check_chance(struct check *c, int percent) { return check_below(c, 100) < percent; }

float check_normal(struct check *c)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += check_random(c) / 4294967296.0;
    return (float)sum;
}

/* ---- memory ---- */

/* Zeros that end less than 8 bytes before a page that faults. */
static void *guarded(struct check *c, struct check_operand *o, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inner = (bytes + page) / page * page;
    o->map_bytes = inner + page;
    o->map = mmap(NULL, o->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    need(c, o->map != MAP_FAILED, "no memory");
    mprotect((char *)o->map + inner, page, PROT_NONE);
    return (char *)o->map + (inner - bytes) / 8 * 8;
}

static void forget(struct check_operand *o)
{
    if (o->map != NULL)
        munmap(o->map, o->map_bytes);
    *o = (struct check_operand){ 0 };
}

void check_begin(struct check *c, const char *op)
{
    for (int i = 0; i < c->n_in; i++)
        forget(&c->in[i]);
    for (int i = 0; i < c->n_out; i++) {
        forget(&c->out[i]);
        free(c->got[i]);
        c->got[i] = NULL;
    }
    c->n_in = c->n_out = c->n_attrs = 0;
    c->no_twin = false;
    snprintf(c->op, sizeof c->op, "%s%s",
             strstr(op, "::") != NULL ? "" : "attnrun::", op);
}

/* ---- attributes ---- */

static struct check_attr *new_attr(struct check *c, const char *name, int kind, int n)
{
    need(c, c->n_attrs < CHECK_ATTRS && n <= CHECK_LIST, "too many attributes");
    struct check_attr *a = &c->attrs[c->n_attrs++];
    *a = (struct check_attr){ .kind = kind, .n = n };
    snprintf(a->name, sizeof a->name, "%s", name);
    return a;
}

void check_int(struct check *c, const char *name, int64_t x)
{
    new_attr(c, name, 'i', 1)->ints[0] = x;
}

void check_float(struct check *c, const char *name, float x)
{
    new_attr(c, name, 'f', 1)->number = x;
}

void check_string(struct check *c, const char *name, const char *x)
{
    new_attr(c, name, 's', 1)->words[0] = x;
}

void check_ints(struct check *c, const char *name, int n, const int64_t *x)
{
    struct check_attr *a = new_attr(c, name, 'I', n);
    for (int i = 0; i < n; i++)
        a->ints[i] = x[i];
}

void check_strings(struct check *c, const char *name, int n, const char *const *x)
{
    struct check_attr *a = new_attr(c, name, 'S', n);
    for (int i = 0; i < n; i++)
        a->words[i] = x[i];
}

void check_heads_attrs(struct check *c, int64_t q_heads, int64_t kv_heads)
{
    check_int(c, "q_num_heads", q_heads);
    if (kv_heads != q_heads || check_chance(c, 30))
        check_int(c, "kv_num_heads", kv_heads);
}

/* ---- operands ---- */

static int64_t count_of(const struct check_operand *o)
{
    int64_t n = 1;
    for (int i = 0; i < o->rank; i++)
        n *= o->dims[i];
    return n;
}

static struct check_operand *new_operand(struct check *c, bool out, const char *name,
                                         int32_t dtype, int rank, const int64_t *dims)
{
    need(c, out ? c->n_out < 4 : c->n_in < CHECK_OPERANDS, "too many operands");
    need(c, rank <= ATTNRUN_MAX_RANK, "too many dims");
    struct check_operand *o = out ? &c->out[c->n_out++] : &c->in[c->n_in++];
    *o = (struct check_operand){ .dtype = dtype, .rank = rank };
    snprintf(o->name, sizeof o->name, "%s", name);
    for (int i = 0; i < rank; i++)
        o->dims[i] = dims[i];
    return o;
}

void *check_data(struct check *c, const char *name, int32_t dtype, int rank,
                 const int64_t *dims)
{
    struct check_operand *o = new_operand(c, false, name, dtype, rank, dims);
    o->bytes = (size_t)(count_of(o) * attnrun_dtype_bits(dtype) / 8);
    o->data = guarded(c, o, o->bytes);
    return o->data;
}

float *check_f32(struct check *c, const char *name, int rank, const int64_t *dims)
{
    float *x = check_data(c, name, ATTNRUN_F32, rank, dims);
    int64_t n = count_of(&c->in[c->n_in - 1]);
    for (int64_t i = 0; i < n && !c->blank; i++)
        x[i] = check_normal(c);
    return x;
}

float *check_weight(struct check *c, const char *name, int rank, const int64_t *dims)
{
    float *x = check_f32(c, name, rank, dims);
    c->in[c->n_in - 1].constant = !c->blank && check_chance(c, 50);
    return x;
}

float *check_heads(struct check *c, const char *name, int64_t batch, int64_t tokens,
                   int64_t heads, int64_t dim)
{
    float *x = check_f32(c, name, DIMS(batch, tokens, heads * dim));
    c->in[c->n_in - 1].heads = true;
    c->in[c->n_in - 1].n_heads = heads;
    return x;
}

uint8_t *check_mask(struct check *c, const char *name, int64_t batch, int64_t n)
{
    uint8_t *mask = check_data(c, name, ATTNRUN_BOOL, DIMS(batch, n));
    for (int64_t b = 0; b < batch && !c->blank; b++) {
        const int64_t kind = check_below(c, 6), end = check_below(c, n + 1);
        const int percent = (int)check_between(c, 1, 99);
        for (int64_t i = 0; i < n; i++)
            mask[b * n + i] = kind == 0   ? 1
                              : kind == 1 ? 0
                              : kind == 2 ? i < end
                                          : check_chance(c, percent);
    }
    return mask;
}

void check_hide(struct check *c, float *x, const uint8_t *mask, int64_t rows,
                int64_t width)
{
    const bool hides = !c->blank && mask != NULL && check_chance(c, 50);
    const float odd = check_chance(c, 50) ? (float)NAN : (float)INFINITY;
    for (int64_t i = 0; hides && i < rows; i++)
        if (mask[i] == 0)
            x[i * width + check_below(c, width)] = odd;
}

void check_absent(struct check *c) { new_operand(c, false, "", 0, 0, NULL); }

void check_leave_out(struct check *c, int in)
{
    c->in[in].dtype = 0;
    c->in[in].name[0] = 0;
    c->in[in].constant = false;
}

void check_constant(struct check *c)
{
    need(c, c->n_in > 0, "no input to make constant");
    c->in[c->n_in - 1].constant = true;
}

double *check_output_of(struct check *c, const char *name, int32_t dtype, int rank,
                        const int64_t *dims)
{
    struct check_operand *o = new_operand(c, true, name, dtype, rank, dims);
    o->want = guarded(c, o, (size_t)count_of(o) * sizeof *o->want);
    return o->want;
}

double *check_output(struct check *c, const char *name, int rank, const int64_t *dims)
{
    return check_output_of(c, name, ATTNRUN_F32, rank, dims);
}

double *check_heads_output(struct check *c, const char *name, int64_t batch,
                           int64_t tokens, int64_t heads, int64_t dim)
{
    double *y = check_output(c, name, DIMS(batch, tokens, heads * dim));
    c->out[c->n_out - 1].heads = true;
    c->out[c->n_out - 1].n_heads = heads;
    return y;
}
