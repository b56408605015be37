/* packed_open.c - a packed file becomes a model that is ready to run.
 *
 * In: the bytes of a file, mapped or of the caller, all of them hostile. Out: a model whose
 * constants and packed weights lie where the file has them, or a status with a sentence. What
 * costs time grows with the graph alone: no weight is read, but where ATTNRUN_VERIFY is set.
 * A file for another instruction set or version of the library is refused, and one with products of
 * f32 where bf16 is requested; precision 0 takes what the file has. */
#include <string.h>

#include "../runtime/adopt.h"
#include "../runtime/cpu.h"
#include "../runtime/pack.h"
#include "../runtime/poll.h"
#include "packed_format.h"

bool attn_packed_is(const uint8_t *bytes, int64_t n)
{
    return n >= 8 && memcmp(bytes, PACKED_MAGIC, 8) == 0;
}

/* ---- the head ---- */

static attn_status broken(const char *what)
{
    attn_fail(ATTNRUN_E_PARSE, "the packed file is damaged: %s", what);
    attn_hint("pack the model again: attnrun pack model.onnx -o model.attnpack");
    return ATTNRUN_E_PARSE;
}

static bool is_ended(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

/* Offsets and sizes: [0, low] … [high, file_bytes). */
static bool is_inside(uint64_t at, uint64_t bytes, uint64_t low, uint64_t high)
{
    return at >= low && at <= high && bytes <= high - at;
}

static attn_status check_head(const struct attn_packed_head *head, int64_t n)
{
    const uint64_t end = (uint64_t)n;
    if (head->order != PACKED_ORDER)
        return attn_fail(ATTNRUN_E_VERSION,
                         "the file was packed on a machine of the other byte order; "
                         "pack the model on this one");
    if (head->version != PACKED_VERSION)
        return attn_fail(ATTNRUN_E_VERSION,
                         "the packed file has the format version %u, but this attnrun "
                         "reads only version %d; pack the model again with this attnrun",
                         head->version, PACKED_VERSION);
    if (attn_packed_head_hash(head) != head->head_hash)
        return broken("the hash of its head does not match");
    if (!is_ended(head->library, sizeof head->library) ||
        !is_ended(head->isa, sizeof head->isa))
        return broken("a name in its head is not terminated");
    if (head->file_bytes != end)
        return broken("its length is not the one in its head");
    if (!is_inside(head->graph_at, head->graph_bytes, sizeof *head, end) ||
        head->graph_at % 8 != 0 || head->graph_bytes % 8 != 0 ||
        !is_inside(head->data_at, head->data_bytes, head->graph_at + head->graph_bytes,
                   end) ||
        head->data_at % PACKED_ALIGN != 0 || head->precision > ATTNRUN_PRECISION_AUTO ||
        head->released_bytes / PACKED_MAX_SHRINK > head->data_bytes ||
        (head->flags & ~(uint32_t)PACKED_FLAGS) != 0)
        return broken("an offset in its head is outside of the file");
    return ATTNRUN_OK;
}

/* Steps run with the instruction set that the file was packed for: that of the runtime, or one
 * before it that CPU and library have, too. */
static attn_status choose_isa(struct attn_model *model,
                              const struct attn_packed_head *head)
{
    enum attn_isa isa, best = (enum attn_isa)model->isa;
    if (attn_isa_parse(head->isa, &isa) != ATTNRUN_OK ||
        strcmp(attn_isa_name(isa), head->isa) != 0)
        return attn_fail(
            ATTNRUN_E_VERSION,
            "the file was packed for %s, which this CPU or this library does "
            "not have; pack the model again here",
            attn_quote(head->isa));
    if (isa > best || attn_cpu_permitted(isa) != isa)
        return attn_fail(ATTNRUN_E_VERSION,
                         "the file was packed for %s, and %s is in use; choose %s "
                         "(isa of the runtime, or ATTNRUN_ISA) or pack the model again "
                         "here",
                         head->isa, attn_isa_name(best), head->isa);
    if (isa != best)
        attn_log(
            model->runtime, ATTN_LOG_INFO,
            "model: packed for %s, and runs with it; packed again here it would use %s",
            head->isa, attn_isa_name(best));
    model->isa = (uint8_t)isa;
    return ATTNRUN_OK;
}

/* What the file was packed for, against this process and what its caller wants. */
static attn_status check_fit(struct attn_model *model, const attnrun_source *source,
                             const struct attn_packed_head *head)
{
    const bool bf16 = head->products_bf16 != 0;
    const uint32_t asked = source->flags & PACKED_FLAGS;
    if (strcmp(head->library, ATTNRUN_VERSION) != 0)
        return attn_fail(ATTNRUN_E_VERSION,
                         "the file was packed by attnrun %s, this is " ATTNRUN_VERSION
                         "; pack the model again with this one",
                         attn_quote(head->library));
    TRY(choose_isa(model, head));
    if (bf16 && attn_kernels_for(model->isa, true) == NULL)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "the file was packed with products of bf16, and this library "
                         "was built without them (ATTNRUN_BF16=OFF)");
    if (source->precision == ATTNRUN_PRECISION_BF16 && !bf16)
        return attn_fail(ATTNRUN_E_USAGE, "the file was packed with products of f32; "
                                          "pack the model again with precision bf16");
    if ((asked & ~head->flags) != 0 ||
        (source->disable_passes != NULL && source->disable_passes[0] != 0))
        return attn_fail(ATTNRUN_E_USAGE,
                         "the file is packed, so its graph is already rewritten; give "
                         "these options to attnrun pack");
    if (source->ragged == ATTNRUN_RAGGED_ON)
        return attn_fail(ATTNRUN_E_USAGE,
                         "the file is packed, and packed files do not run on the tokens "
                         "of ragged batches; open the ONNX file");
    if (source->n_fixed_dims > 0)
        return attn_fail(ATTNRUN_E_USAGE, "the file is packed, so its dims cannot be "
                                          "fixed any more; fix them when it is packed");
    if (source->n_more_outputs > 0)
        return attn_fail(ATTNRUN_E_USAGE,
                         "the file is packed, so its inner values cannot become outputs; "
                         "name them when it is packed");
    return ATTNRUN_OK;
}

/* ---- the graph ---- */

/* What the file says of the values of the main graph, to be compared once it is inferred. */
static attn_status copy_types(const struct attn_graph *graph, struct attn_pool *pool,
                              attnrun_type **types)
{
    *types = attn_pool_alloc(pool, (graph->n_values + 1) * (int64_t)sizeof **types);
    if (*types == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t v = 0; v < graph->n_values; v++)
        (*types)[v] = graph->values[v].type;
    return ATTNRUN_OK;
}

static bool may_be_same(const attnrun_type *a, const attnrun_type *b)
{
    if (a->kind != ATTNRUN_TENSOR || b->kind != ATTNRUN_TENSOR)
        return a->kind == b->kind;
    if (a->dtype != b->dtype)
        return false;
    if (a->rank < 0 || b->rank < 0)
        return true;
    for (int i = 0; i < a->rank; i++)
        if (a->rank != b->rank || !dim_may_equal(a->dims[i], b->dims[i]))
            return false;
    return a->rank == b->rank;
}

static attn_status compare_types(const struct attn_graph *graph,
                                 const attnrun_type *types, int64_t n)
{
    for (int64_t v = 0; v < n; v++)
        if (types[v].kind != ATTNRUN_ABSENT &&
            !may_be_same(&types[v], &graph->values[v].type))
            return attn_fail(
                ATTNRUN_E_MODEL, "'%s' is %s in the packed file, and is inferred as %s",
                attn_quote(graph->values[v].name),
                attn_type_format(graph->model->dims, &types[v]),
                attn_type_format(graph->model->dims, &graph->values[v].type));
    return ATTNRUN_OK;
}

/* Constants whose bytes are not there show zeros that take no memory. */
static attn_status make_zeros(struct attn_packed_reader *reader)
{
    static int64_t nothing;
    struct attn_file zeros;
    reader->zeros = &nothing;
    if (reader->released_bytes == 0)
        return ATTNRUN_OK;
    TRY(attn_file_zeros(reader->released_bytes, &zeros));
    attn_status status = attn_model_keep_file(reader->model, &zeros);
    if (status != ATTNRUN_OK) {
        attn_file_close(reader->model->pool.memory, &zeros);
        return status;
    }
    reader->zeros = (void *)(uintptr_t)zeros.data;
    return ATTNRUN_OK;
}

static attn_status adopt_all(const struct attn_packed_reader *reader)
{
    const void *last = NULL;
    for (int64_t i = 0; i < reader->n_jobs; i++) {
        const struct attn_packed_job *job = &reader->jobs[i];
        TRY(attn_node_adopt(job->graph, job->node, job->packed, job->bytes));
        reader->model->packed_bytes += job->packed != last ? job->bytes : 0;
        last = job->packed;
        TRY(attn_poll_work(4096));
    }
    return attn_graph_check_released(reader->model->graph);
}

static attn_status build(struct attn_packed_reader *reader)
{
    struct attn_graph *graph = reader->model->graph;
    attnrun_type *types;
    TRY(make_zeros(reader));
    TRY(attn_packed_read_graph(reader));
    TRY(copy_types(graph, reader->pool, &types));
    const int64_t n_types = graph->n_values;
    TRY(attn_model_resume(reader->model));
    TRY(compare_types(graph, types, n_types));
    return adopt_all(reader);
}

/* ---- the file ---- */

/* Weights are used where they lie, so that has to be at a multiple of 64 bytes. */
static attn_status align_bytes(struct attn_model *model, const uint8_t **bytes, int64_t n)
{
    if ((uintptr_t)*bytes % PACKED_ALIGN == 0)
        return ATTNRUN_OK;
    char *copy = attn_pool_room(&model->weights, n + PACKED_ALIGN);
    if (copy == NULL)
        return ATTNRUN_E_MEMORY;
    copy += (PACKED_ALIGN - (uintptr_t)copy % PACKED_ALIGN) % PACKED_ALIGN;
    TRY(attn_poll_copy(copy, *bytes, n));
    *bytes = (const uint8_t *)copy;
    return ATTNRUN_OK;
}

/* The hash of the data, a piece at a time. */
static attn_status verify(const uint8_t *data, int64_t n, uint64_t expected)
{
    enum { SEGMENT = 1 << 20 };
    struct attn_packed_hash hash;
    attn_packed_hash_begin(&hash);
    for (int64_t at = 0; at < n; at += SEGMENT) {
        attn_packed_hash_add(&hash, data + at, n - at < SEGMENT ? n - at : SEGMENT);
        TRY(attn_poll_work(SEGMENT));
    }
    return attn_packed_hash_end(&hash) == expected
               ? ATTNRUN_OK
               : broken("the hash of its weights does not match");
}

attn_status attn_packed_load(struct attn_model *model, const attnrun_source *source,
                             const uint8_t *bytes, int64_t n)
{
    struct attn_packed_head head;
    struct attn_pool pool;
    if (n < (int64_t)sizeof head)
        return broken("it ends inside its head");
    memcpy(&head, bytes, sizeof head);
    TRY(check_head(&head, n));
    TRY(check_fit(model, source, &head));
    TRY(align_bytes(model, &bytes, n));
    if (attn_packed_hash_of(bytes + head.graph_at, (int64_t)head.graph_bytes) !=
        head.graph_hash)
        return broken("the hash of its graph does not match");
    if (source->flags & ATTNRUN_VERIFY)
        TRY(verify(bytes + head.data_at, (int64_t)head.data_bytes, head.data_hash));
    model->flags |= head.flags;
    model->precision = (uint8_t)head.precision;
    model->products_bf16 = head.products_bf16 != 0;
    model->packed_for = attn_pool_string(&model->pool, head.isa);
    if (model->packed_for == NULL)
        return ATTNRUN_E_MEMORY;
    attn_pool_init(&pool, model->pool.memory, ATTN_MEM_MODEL);
    struct attn_packed_reader reader = {
        .model = model,
        .pool = &pool,
        .words = (const int64_t *)(const void *)(bytes + head.graph_at),
        .n_words = (int64_t)head.graph_bytes / 8,
        .data = bytes + head.data_at,
        .data_bytes = (int64_t)head.data_bytes,
        .released_bytes = (int64_t)head.released_bytes,
    };
    attn_status status = build(&reader);
    attn_pool_free(&pool);
    return status;
}
