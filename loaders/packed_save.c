/* packed_save.c - attnrun_model_save(): a model as it is run becomes a packed file.
 *
 * In: a model, and a function of the caller that takes bytes. Out: head, graph and data, in
 * this order; the data is read twice, once for its hash. Nothing of the model changes but that
 * its weights are packed. */
#include <string.h>

#include "../runtime/cpu.h"
#include "../runtime/model.h"
#include "../runtime/poll.h"
#include "packed_format.h"
#include "write_all.h"

enum { SEGMENT = 1 << 20 }; /* of a hash, between polls */

/* Where the pieces go: to the caller, or, without a function, into a hash. */
struct sink {
    attnrun_write_fn write;
    void *user;
    struct attn_packed_hash hash;
};

static attn_status give(struct sink *sink, const void *bytes, int64_t n)
{
    if (sink->write != NULL)
        return attn_write_all(sink->write, sink->user, bytes, n, "packed model");
    for (int64_t at = 0; at < n; at += SEGMENT) {
        const int64_t segment = min64(SEGMENT, n - at);
        attn_packed_hash_add(&sink->hash, (const char *)bytes + at, segment);
        TRY(attn_poll_work(segment));
    }
    return ATTNRUN_OK;
}

static attn_status give_zeros(struct sink *sink, int64_t n)
{
    static const char zeros[PACKED_PAGE];
    for (; n > PACKED_PAGE; n -= PACKED_PAGE)
        TRY(give(sink, zeros, PACKED_PAGE));
    return give(sink, zeros, n);
}

static attn_status give_data(struct sink *sink, const struct attn_packed_writer *writer)
{
    for (int64_t i = 0; i < writer->n_regions; i++) {
        const struct attn_packed_region *region = &writer->regions[i];
        TRY(give(sink, region->start, region->bytes));
        TRY(give_zeros(sink, round_up(region->bytes, PACKED_ALIGN) - region->bytes));
    }
    return ATTNRUN_OK;
}

static attn_status make_head(const struct attn_packed_writer *writer,
                             struct attn_packed_head *head)
{
    struct sink sink = { .write = NULL };
    const int64_t graph_at = round_up((int64_t)sizeof *head, PACKED_ALIGN);
    const int64_t data_at = round_up(graph_at + writer->n_words * 8, PACKED_PAGE);
    *head = (struct attn_packed_head){
        .version = PACKED_VERSION,
        .order = PACKED_ORDER,
        .flags = writer->model->flags & PACKED_FLAGS,
        .products_bf16 = writer->model->products_bf16,
        .precision = (uint32_t)writer->model->precision,
        .file_bytes = (uint64_t)(data_at + writer->data_bytes),
        .graph_at = (uint64_t)graph_at,
        .graph_bytes = (uint64_t)writer->n_words * 8,
        .data_at = (uint64_t)data_at,
        .data_bytes = (uint64_t)writer->data_bytes,
        .released_bytes = (uint64_t)writer->released_bytes,
        .graph_hash = attn_packed_hash_of(writer->words, writer->n_words * 8),
    };
    memcpy(head->magic, PACKED_MAGIC, sizeof head->magic);
    strncpy(head->library, ATTNRUN_VERSION, sizeof head->library - 1);
    strncpy(head->isa, attn_isa_name((enum attn_isa)writer->model->isa),
            sizeof head->isa - 1);
    attn_packed_hash_begin(&sink.hash);
    TRY(give_data(&sink, writer));
    head->data_hash = attn_packed_hash_end(&sink.hash);
    head->head_hash = attn_packed_head_hash(head);
    return ATTNRUN_OK;
}

static attn_status save(struct attn_packed_writer *writer, struct sink *sink)
{
    struct attn_packed_head head;
    if (writer->model->graph->ragged != NULL)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "a model that runs on the tokens of ragged batches cannot be "
                         "written to a packed file");
    if (writer->model->flags & ATTNRUN_IN_PLACE)
        return attn_fail(
            ATTNRUN_E_UNSUPPORTED,
            "a model that was opened with ATTNRUN_IN_PLACE has matrices that "
            "are not packed; open it without the flag to save it");
    TRY(attn_model_pack(writer->model));
    TRY(attn_packed_lay_out(writer));
    TRY(attn_packed_write_graph(writer));
    attn_packed_order_data(writer);
    TRY(make_head(writer, &head));
    TRY(give(sink, &head, (int64_t)sizeof head));
    TRY(give_zeros(sink, (int64_t)head.graph_at - (int64_t)sizeof head));
    TRY(give(sink, writer->words, writer->n_words * 8));
    TRY(give_zeros(sink, (int64_t)(head.data_at - head.graph_at - head.graph_bytes)));
    return give_data(sink, writer);
}

attnrun_status attnrun_model_save(attnrun_model *model, attnrun_write_fn write,
                                  void *user)
{
    attnrun_error before;
    if (model == NULL || write == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_save: %s is NULL",
                         model == NULL ? "model" : "write");
    struct attn_packed_writer writer = { .model = model_of(model) };
    struct sink sink = { .write = write, .user = user };
    struct attn_memory *memory = writer.model->pool.memory;
    attn_call_begin(&before);
    attn_pool_init(&writer.pool, memory, ATTN_MEM_MODEL);
    attn_status status = save(&writer, &sink);
    attn_free(memory, ATTN_MEM_MODEL, writer.words, writer.words_capacity * 8);
    attn_pool_free(&writer.pool);
    return attn_call_end(status, &before);
}
