/* packed.c - hostile packed files; see packed.h.
 *
 * In: a case with a model. Out: the same case with a packed file of that model, some of whose
 * words, or of the fields of its head, are others: small numbers, borders, words from elsewhere
 * in the graph, single bits; bytes of the data; a cut. */
#include "packed.h"

#include <stdlib.h>
#include <string.h>

#include "../../loaders/packed_format.h"

enum { BUDGET = 96 << 20 };

struct written {
    uint8_t *data;
    size_t n, capacity;
};

static int32_t append(void *user, const void *data, uint64_t n)
{
    struct written *w = user;
    if (w->n + n > BUDGET)
        return 1;
    if (w->n + n > w->capacity) {
        w->capacity = 2 * w->capacity + n + 4096;
        uint8_t *grown = realloc(w->data, w->capacity);
        if (grown == NULL)
            abort();
        w->data = grown;
    }
    memcpy(w->data + w->n, data, n);
    w->n += n;
    return 0;
}

/* For the instruction set that the run will use: case.c. */
static bool save(struct fuzz_case *c, struct written *w)
{
    static const char *const isas[] = { NULL, "base", "avx2" };
    const attnrun_runtime_options options = { .struct_size = sizeof options,
                                              .threads = 1,
                                              .isa = isas[c->seed % 3],
                                              .max_memory = BUDGET };
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = c->model,
                                    .bytes = c->bytes,
                                    .timeout_us = 1000000 };
    attnrun_runtime *runtime = NULL;
    attnrun_model *model = NULL;
    if (attnrun_runtime_create(&options, &runtime) != ATTNRUN_OK)
        return false;
    bool saved = attnrun_model_open(runtime, &source, &model) == ATTNRUN_OK &&
                 attnrun_model_save(model, append, w) == ATTNRUN_OK && w->n > 0;
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    return saved;
}

static void change_word(struct fuzz_random *r, int64_t *words, int64_t n)
{
    int64_t *word = &words[fuzz_below(r, n)];
    switch (fuzz_below(r, 5)) {
    case 0:
        *word = fuzz_int(r);
        break;
    case 1:
        *word = words[fuzz_below(r, n)];
        break;
    case 2:
        *word ^= INT64_C(1) << fuzz_below(r, 63);
        break;
    default:
        *word = (int64_t)((uint64_t)*word + (fuzz_chance(r, 50) ? 1 : UINT64_MAX));
        break;
    }
}

static void change_head(struct fuzz_random *r, struct attn_packed_head *head)
{
    uint64_t *const fields[] = { &head->file_bytes,  &head->graph_at,
                                 &head->graph_bytes, &head->data_at,
                                 &head->data_bytes,  &head->released_bytes };
    *fields[fuzz_below(r, 6)] += (uint64_t)fuzz_int(r) * (fuzz_chance(r, 50) ? 1 : 64);
}

static void change_data(struct fuzz_random *r, uint8_t *data, size_t n)
{
    if (n >= 8) { /* heads of packed weights begin at multiples of 64 */
        const size_t at = fuzz_chance(r, 50) ? 64 * (size_t)fuzz_below(r, n / 64) +
                                                   4 * (size_t)fuzz_below(r, 10)
                                             : (size_t)fuzz_below(r, n - 4);
        const int32_t word = (int32_t)fuzz_int(r);
        if (at + sizeof word <= n)
            memcpy(data + at, &word, sizeof word);
    }
}

static void change(struct fuzz_random *r, struct written *w,
                   struct attn_packed_head *head)
{
    uint8_t *const graph = w->data + head->graph_at;
    const int kind = (int)fuzz_below(r, 100);
    if (kind < 75)
        change_word(r, (int64_t *)(void *)graph, (int64_t)head->graph_bytes / 8);
    else if (kind < 90)
        change_data(r, w->data + head->data_at, head->data_bytes);
    else if (kind < 96)
        change_head(r, head);
    else
        w->n = (size_t)fuzz_below(r, (int64_t)w->n + 1);
}

/* The head's hashes fit what is there now, where it lies inside. */
static void set_hashes(struct written *w, struct attn_packed_head *head)
{
    if (w->n < sizeof *head)
        return;
    if (head->graph_at <= w->n && head->graph_bytes <= w->n - head->graph_at)
        head->graph_hash =
            attn_packed_hash_of(w->data + head->graph_at, (int64_t)head->graph_bytes);
    head->file_bytes = w->n;
    head->head_hash = attn_packed_head_hash(head);
    memcpy(w->data, head, sizeof *head);
}

bool fuzz_pack(struct fuzz_case *c, struct fuzz_random *r)
{
    struct written w = { .n = 0 };
    struct attn_packed_head head;
    if (!save(c, &w)) {
        free(w.data);
        return false;
    }
    memcpy(&head, w.data, sizeof head);
    struct attn_packed_head changed = head;
    for (int64_t n = fuzz_below(r, 5); n > 0; n--) {
        struct attn_packed_head before = changed;
        change(r, &w, &changed);
        if (memcmp(&before, &changed, sizeof before) != 0 || w.n < head.file_bytes)
            break; /* what lies where is not known any more */
    }
    set_hashes(&w, &changed);
    free(c->model);
    c->packed = true;
    c->bytes = w.n;
    c->model =
        aligned_alloc(PACKED_ALIGN, (w.n + PACKED_ALIGN) / PACKED_ALIGN * PACKED_ALIGN);
    if (c->model == NULL)
        abort();
    memcpy(c->model, w.data, w.n);
    free(w.data);
    return true;
}
