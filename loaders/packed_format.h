/* packed_format.h - what a packed file is made of, for packed_*.c.
 *
 *   head     struct attn_packed_head, and zeros up to a multiple of 64
 *   graph    words of 8 bytes, in the order in which packed_write.c puts them
 *   data     from a page on: constants and packed weights, each at a multiple of 64 bytes, so
 *            that they are used where they are mapped
 *
 * All in the byte order of the machine. Texts in the graph are a length and the bytes, filled
 * up to whole words with zeros, at least one of them. The head has hashes: of itself, of the
 * graph, which loading compares, and of the data, which it compares where it is told to. */
#ifndef ATTN_PACKED_FORMAT_H
#define ATTN_PACKED_FORMAT_H

#include "../runtime/graph.h"

enum {
    PACKED_VERSION = 7,
    PACKED_ORDER = 0x01020304,
    PACKED_ALIGN = 64,
    PACKED_PAGE = 4096,
    PACKED_MAX_SHRINK = 64 /* floats that are packed as one bit each shrink 32 times */
};
#define PACKED_MAGIC "ATTNPACK"

struct attn_packed_head {
    char magic[8];
    uint32_t version, order;
    char library[32], isa[32]; /* ended by NUL */
    uint32_t flags;            /* attnrun_source.flags that it was packed with */
    uint32_t products_bf16;
    uint64_t file_bytes, graph_at, graph_bytes, data_at, data_bytes;
    /* Of the largest constant whose bytes are not there. The data, which has its packed form,
     * has at least 1 / PACKED_MAX_SHRINK of these bytes. */
    uint64_t released_bytes;
    uint64_t graph_hash, data_hash;
    uint32_t precision;    /* attnrun_source.precision that it was packed with */
    uint32_t reserved[15]; /* 0 */
    uint64_t head_hash;    /* with 0 in its own place */
};
_Static_assert(sizeof(struct attn_packed_head) == 224, "the head has no holes");

/* What was chosen when the graph was rewritten. */
enum { PACKED_FLAGS = ATTNRUN_NO_FUSION | ATTNRUN_FORCE_BODIES | ATTNRUN_SEPARATE_DIMS };

/* Where the bytes of a constant are: an offset into the data, or one of these. */
enum { PACKED_NONE = -1, PACKED_RELEASED = -2, PACKED_STRINGS = -3 };

/* A hash of bytes, piece by piece: against accidents, not against forgers. */
struct attn_packed_hash {
    uint64_t lanes[4];
    uint8_t left[32];
    int64_t n_left, bytes;
};
void attn_packed_hash_begin(struct attn_packed_hash *hash);
void attn_packed_hash_add(struct attn_packed_hash *hash, const void *bytes, int64_t n);
uint64_t attn_packed_hash_end(struct attn_packed_hash *hash);
/* Of one piece. */
uint64_t attn_packed_hash_of(const void *bytes, int64_t n);
/* Of a head, whatever is in the place of its hash. */
uint64_t attn_packed_head_hash(const struct attn_packed_head *head);

/* ---- writing ---- */

/* Bytes of the data: constants that share some are one region. */
struct attn_packed_region {
    const char *start;
    int64_t bytes, offset;
};

struct attn_packed_writer {
    struct attn_model *model;
    struct attn_pool pool;
    struct attn_graph **graphs; /* the main graph first, each one behind that around it */
    int64_t n_graphs, graphs_capacity;
    int32_t **ids; /* by graph: of a value the number that it has in the file, or -1 */
    struct attn_packed_region *regions;
    int64_t n_regions, regions_capacity, data_bytes, released_bytes;
    int64_t *words;
    int64_t n_words, words_capacity;
};

/* A constant that something uses. What infer() knows of an output it says again. */
bool attn_packed_is_constant(const struct attn_value *value);
/* Whether the file has the bytes of a constant: some node, output or subgraph reads them. */
bool attn_packed_is_read(const struct attn_value *value);
/* Numbers graphs and values, and lays out the data. */
attn_status attn_packed_lay_out(struct attn_packed_writer *writer);
/* The offset of bytes that attn_packed_lay_out() has seen. */
int64_t attn_packed_offset(const struct attn_packed_writer *writer, const void *start);
/* Puts the regions in the order of their offsets; attn_packed_offset() works no more. */
void attn_packed_order_data(struct attn_packed_writer *writer);
/* The graph part, into writer->words. */
attn_status attn_packed_write_graph(struct attn_packed_writer *writer);

/* ---- reading ---- */

/* A node whose weights lie packed in the file. */
struct attn_packed_job {
    struct attn_graph *graph;
    struct attn_node *node;
    const void *packed;
    int64_t bytes;
};

struct attn_packed_reader {
    struct attn_model *model;
    struct attn_pool *pool; /* ends with the load */
    const int64_t *words;
    int64_t n_words, at;
    bool failed; /* a word that is not there was asked for, or one made no sense */
    const uint8_t *data;
    int64_t data_bytes, released_bytes;
    void *zeros; /* released_bytes of them */
    int32_t *symbols;
    int64_t n_symbols;
    struct attn_graph **graphs;
    int32_t *outer; /* by graph: the number of that around it */
    uint8_t *taken; /* by graph: a node has it */
    int64_t n_graphs;
    struct attn_packed_job *jobs;
    int64_t n_jobs, jobs_capacity;
};

/* packed_words.c: the next word, 0 past the end; one of low to high; a text; an array of n
 * pieces of `size` bytes where it lies. What is wrong sets reader->failed. */
int64_t attn_packed_word(struct attn_packed_reader *reader);
int64_t attn_packed_number(struct attn_packed_reader *reader, int64_t low, int64_t high);
const char *attn_packed_text(struct attn_packed_reader *reader, int64_t *bytes);
const void *attn_packed_array(struct attn_packed_reader *reader, int64_t n, int64_t size);
void attn_packed_type(struct attn_packed_reader *reader, attnrun_type *type);
/* The symbols of the model, before any dim. */
attn_status attn_packed_symbols(struct attn_packed_reader *reader);
/* A constant of a type: kind ABSENT where it has no bytes; *released: they are not there. */
attn_status attn_packed_constant(struct attn_packed_reader *reader,
                                 const attnrun_type *type, attnrun_tensor *tensor,
                                 bool *released);
/* E_PARSE where reader->failed. */
attn_status attn_packed_check(const struct attn_packed_reader *reader);
/* packed_graph.c: all of it, into the model. */
attn_status attn_packed_read_graph(struct attn_packed_reader *reader);

/* packed_open.c */
bool attn_packed_is(const uint8_t *bytes, int64_t n);
/* A model whose file's bytes these are; it is ready to run then. */
attn_status attn_packed_load(struct attn_model *model, const attnrun_source *source,
                             const uint8_t *bytes, int64_t n);

#endif
