/* attnrun.h - the public interface of libattnrun. attnrun.hpp adds C++ owners and exceptions.
 *
 * Contents
 *   status              statuses, the last error
 *   names               names from files made safe to print
 *   element types       dtypes, tensors
 *   runtime             allocator, threads, log, budget
 *   model               opening, packing, saving; inputs, outputs, nodes
 *   context             inputs, outputs, runs, profiles, states, plans, memory
 *   operators           rows of your own: infer, pack, run, formulas
 *
 * tools/examples/embed.c runs a model in ten lines; tools/examples/ also has servers.
 *
 * Which thread may make a call
 *   Any threads may call at the same time: functions that take a runtime or a model, functions
 *   that take neither, and attnrun_cancel().
 *   One thread at a time may call: every other function that takes a context. The same holds for
 *   reading the tensors that a context shows. Threads may take turns.
 *
 * Which thread the library calls back from
 *   on_step, on_node     the thread that called attnrun_run()
 *   log                  the thread whose call writes the message
 *   on_tasks             several threads at the same time
 *   alloc, free          several threads at the same time
 *   run() of a row       several threads at the same time, each with other tasks
 *   infer(), pack()      one call at a time for each model or context; contexts of several
 *                        threads call at the same time
 *
 * How long memory must live, or stays valid
 *   data of attnrun_source             as long as the model, unless ATTNRUN_COPY is set
 *   an input's data                    until the run returns; the library copies strings and
 *                                      elements that an output may show
 *   memory of attnrun_set_output()     until the run returns; each later run writes it again
 *   memory of attnrun_set_arena()      until the context ends or gets another arena
 *   tensors of attnrun_output() and    until the next run of the context, or a call whose
 *     attnrun_value()                  comment says that outputs are gone
 *   names and strings of a model       as long as the model
 *   attnrun_value_info.constant        until the model is packed: attnrun_model_pack(),
 *                                      attnrun_model_save(), the first context. What is asked for
 *                                      afterwards stays as long as the model
 *   attnrun_last_error()               until the next call of this thread that fails
 *   operator rows, allocator, pool     as long as the runtime; a model keeps its runtime alive
 *   what a callback is given           until the callback returns
 *
 * A callback or an operator must not throw an exception and must not leave by longjmp(): its
 * caller is C. It may call functions that take no object. An operator may also call the
 * attnrun_step_ and attnrun_work_ functions with what it was given. Neither may call the
 * context that is running.
 *
 * Which bits are the same
 *   The model, its inputs, the options and the instruction set decide every bit of the outputs,
 *   except the sign and payload of a NaN. Threads, the pool, addresses, the process and earlier
 *   runs do not matter. If samples lie along the first axis, the bits of a sample do not depend on
 *   the other samples (tests/ops/check_batch_walk.py, check_batch_rows.py at larger sizes), except
 *   in these cases, where the order of a sum may change:
 *     - products of up to four rows by a transposed second operand that is not constant: Gemm with
 *       transB, a Transpose before MatMul
 *     - few rows of MatMulBnb4 and MatMulNBits, and the tokens of an expert of MoE and QMoE
 *     - the last queries of GroupQueryAttention with local_window_size
 *     - products of doubles of 16 rows and more, if OpenBLAS multiplies them: never with max_memory
 *       or an allocator of the caller. Its version, its choice of a core and whether it can be
 *       loaded then decide, too
 *   Tensors that are rounded or normalized as a whole, such as in DynamicQuantizeLinear, have no
 *   samples. tests/ops/batch_open.txt lists the operators that are not tested, with the reason.
 *   Another instruction set, another precision and ATTNRUN_NO_FUSION round differently. With them,
 *   a product by a zero of a convolution's padding may be computed or left out, and so may the
 *   score of a hidden key and the product of its value and its probability 0. This matters only if
 *   the other factor or that score is NaN or infinite: the result is then NaN or a number.
 *
 * Four objects:
 *   runtime  allocator, memory budget, thread pool, log, operators. Thread-safe.
 *   model    one loaded file: graph and weights. Immutable, reference counted, thread-safe.
 *   context  one run at a time: plans, arena, bindings. For one thread at a time: a call returns
 *            E_USAGE while a call of another thread is under way (attnrun_cancel() does not).
 *   tensor   a view (dtype, rank, dims, byte strides, pointer). Owns nothing.
 *
 * Rules for every call:
 *   - it returns an attnrun_status; 0 is ATTNRUN_OK; out-parameters are untouched on failure;
 *   - attnrun_last_error() then has the message, in the thread that made the call;
 *   - the caller destroys what it creates; what a call shows belongs to the library;
 *   - the caller sets struct_size = sizeof(the struct) in each struct, and zeros the rest: zero
 *     means the default. A struct_size of 0, or one that is not a multiple of 8, is refused. A
 *     smaller struct comes from an older header: members that it lacks count as zero. A larger
 *     one comes from a newer header: it is accepted if all bytes that this library does not
 *     know are zero;
 *   - a member `reserved` is 0. The library refuses another number with E_USAGE in each struct
 *     that it reads, elements of sequences, optionals and maps included, and with E_INTERNAL in
 *     the results of an operator's infer(). It writes 0 into each struct that it fills;
 *   - unknown flags and names, negative counts and negative times are refused with E_USAGE;
 *   - the library never aborts, exits, prints, installs signal handlers or reads the
 *     environment after attnrun_runtime_create(). */
#ifndef ATTNRUN_H
#define ATTNRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNRUN_VERSION_MAJOR 0
#define ATTNRUN_VERSION_MINOR 2
#define ATTNRUN_VERSION_PATCH 0
#define ATTNRUN_VERSION "0.2.0"

#define ATTNRUN_API __attribute__((visibility("default")))

#define ATTNRUN_MAX_RANK 8
#define ATTNRUN_MAX_PHASES 10
#define ATTNRUN_ARENA_ALIGN 64 /* of memory for attnrun_set_arena() */

/* ---- status -------------------------------------------------------------------------- */

typedef int32_t attnrun_status;

/* exit code * 100 + k: attnrun_status_exit() gives the exit code back. */
#define ATTNRUN_STATUS_LIST(X)                                                              \
    X(OK, 0, "ok")                                                                          \
    X(E_USAGE, 200, "the call itself is wrong")                                             \
    X(E_IO, 300, "a file cannot be read or written")                                        \
    X(E_PARSE, 301, "the bytes are not of the expected format")                             \
    X(E_MODEL, 302, "the model breaks a rule of ONNX")                                      \
    X(E_PATH, 303, "a path that the model names is not allowed")                            \
    X(E_UNSUPPORTED, 400, "valid, but not supported here")                                  \
    X(E_VERSION, 401, "a newer IR or opset than this library knows")                        \
    X(E_SHAPE, 500, "shapes do not fit")                                                    \
    X(E_DTYPE, 501, "element types do not fit")                                             \
    X(E_ATTR, 502, "an attribute does not fit")                                             \
    X(E_INPUT, 503, "an input is missing, unknown or does not fit")                         \
    X(E_MEMORY, 600, "out of memory, or over the memory budget")                            \
    X(E_LIMIT, 601, "over another limit")                                                   \
    X(E_RANGE, 700, "a value at run time is out of range")                                  \
    X(E_NONFINITE, 800, "an output is not finite")                                          \
    X(E_INTERNAL, 7000, "a fault of attnrun itself, or of a registered operator")           \
    X(E_TIME, 12400, "the deadline passed")                                                 \
    X(E_CANCELLED, 13000, "the run was cancelled")

enum {
#define X(name, code, text) ATTNRUN_##name = code,
    ATTNRUN_STATUS_LIST(X)
#undef X
};

typedef struct attnrun_error {
    attnrun_status status;
    int32_t node_index;   /* -1 if the error is not about a node */
    char node_name[96];   /* cut and escaped: safe for a terminal */
    char op_type[64];
    char tensor[96];
    char message[768];    /* "SHAPE: node 'enc.3' (MatMul): input 1 'k' is f32[2,511], …"; safe for
                           * a terminal, too, and one line */
    char hint[256];       /* what to do about it, or "" */
} attnrun_error;

ATTNRUN_API const char *attnrun_version(void);
ATTNRUN_API int32_t attnrun_abi_version(void);
/* The exit code that the command line uses for a status. */
ATTNRUN_API int32_t attnrun_status_exit(attnrun_status status);
/* "SHAPE" for ATTNRUN_E_SHAPE; "UNKNOWN" for a number that is not a status. */
ATTNRUN_API const char *attnrun_status_name(attnrun_status status);
/* The error of the last failed call of this thread. It is valid until the next call of this thread
 * that fails; a call that succeeds does not change it. */
ATTNRUN_API const attnrun_error *attnrun_last_error(void);

/* ---- names from files and users -------------------------------------------------------- */

/* The length of the UTF-8 sequence that begins at `text`, where `bytes` bytes can be read; 0 if
 * there is no valid sequence. */
ATTNRUN_API int32_t attnrun_utf8_length(const char *text, size_t bytes);
/* Makes a name safe for a terminal. Valid UTF-8 is unchanged. Control characters, characters that
 * change the direction of text, and bytes that are not UTF-8 become \xNN. If `bytes` bytes, NUL
 * included, are too few, the result is cut and ends with "...". Returns its length. */
ATTNRUN_API size_t attnrun_escape(const char *text, char *to, size_t bytes);
/* Writes a number and its noun, which is given in the singular: "1 node", "2 nodes", "3 branches".
 * If `bytes` bytes are too few, the result is cut. Returns its length. */
ATTNRUN_API size_t attnrun_plural(int64_t n, const char *noun, char *to, size_t bytes);
/* The one of words[0..n) that a misspelt word most likely means, or NULL. */
ATTNRUN_API const char *attnrun_nearest_word(const char *word, const char *const *words,
                                             int64_t n);

/* ---- element types and tensors ------------------------------------------------------- */

/* ONNX's TensorProto.DataType numbers, with the short names used everywhere here. */
#define ATTNRUN_DTYPE_LIST(X)                                                               \
    X(F32, 1, "f32", 32) X(U8, 2, "u8", 8) X(I8, 3, "i8", 8) X(U16, 4, "u16", 16)           \
    X(I16, 5, "i16", 16) X(I32, 6, "i32", 32) X(I64, 7, "i64", 64)                          \
    X(STRING, 8, "string", 128) X(BOOL, 9, "b8", 8) X(F16, 10, "f16", 16)                   \
    X(F64, 11, "f64", 64) X(U32, 12, "u32", 32) X(U64, 13, "u64", 64)                       \
    X(C64, 14, "c64", 64) X(C128, 15, "c128", 128) X(BF16, 16, "bf16", 16)                  \
    X(F8E4M3FN, 17, "f8e4m3fn", 8) X(F8E4M3FNUZ, 18, "f8e4m3fnuz", 8)                       \
    X(F8E5M2, 19, "f8e5m2", 8) X(F8E5M2FNUZ, 20, "f8e5m2fnuz", 8)                           \
    X(U4, 21, "u4", 4) X(I4, 22, "i4", 4) X(F4E2M1, 23, "f4e2m1", 4)                        \
    X(F8E8M0, 24, "f8e8m0", 8) X(U2, 25, "u2", 2) X(I2, 26, "i2", 2)                        \
    X(F6E2M3, 27, "f6e2m3", 6) X(F6E3M2, 28, "f6e3m2", 6)

enum {
    ATTNRUN_UNDEFINED = 0,
#define X(name, code, text, bits) ATTNRUN_##name = code,
    ATTNRUN_DTYPE_LIST(X)
#undef X
    ATTNRUN_DTYPE_COUNT = 29
};

enum { /* what a value is */
    ATTNRUN_ABSENT = 0, ATTNRUN_TENSOR = 1,
    ATTNRUN_SEQUENCE = 2,          /* of tensors */
    ATTNRUN_OPTIONAL = 3,          /* of a tensor */
    ATTNRUN_OPTIONAL_SEQUENCE = 4,
    ATTNRUN_MAP = 5,               /* from i64 or strings to elements of `dtype` */
    ATTNRUN_MAP_SEQUENCE = 6       /* of maps of one type */
};

/* An element of a string tensor: n bytes, which need not be followed by a NUL. */
typedef struct attnrun_string {
    const char *data;
    int64_t n;
} attnrun_string;

/* Lists of an attribute. */
typedef struct attnrun_ints { const int64_t *v; int64_t n; } attnrun_ints;     /* v NULL: absent */
typedef struct attnrun_floats { const float *v; int64_t n; } attnrun_floats;
typedef struct attnrun_strings { const attnrun_string *v; int64_t n; } attnrun_strings;

/* A view. Elements of 8 bits and more are addressed by strides. Types under 8 bits are packed from
 * the low bits upwards and are always dense; their strides are ignored.
 * A sequence has rank 1, dims[0] = its length, data = attnrun_tensor[length].
 * An optional has rank 0 and data = one attnrun_tensor, or NULL for none.
 * A map has rank 1, dims[0] = its entries n, dtype = that of its values, and data =
 * attnrun_tensor[2]: the keys and the values, dense, both of shape [n]. Each key appears once; the
 * order has no meaning. A sequence of maps is a sequence whose elements are maps. */
typedef struct attnrun_tensor {
    int32_t kind, dtype, rank;
    int32_t reserved; /* 0 */
    int64_t dims[ATTNRUN_MAX_RANK];
    int64_t strides[ATTNRUN_MAX_RANK]; /* bytes; 0 where broadcast */
    void *data;
} attnrun_tensor;

ATTNRUN_API const char *attnrun_dtype_name(int32_t dtype); /* "f32"; "undefined" */
ATTNRUN_API int32_t attnrun_dtype_bits(int32_t dtype);     /* 32; 0 for an unknown number */
/* Makes a dense row-major view of `data`. Fails if a size is negative or the sizes overflow. */
ATTNRUN_API attnrun_status attnrun_tensor_make(int32_t dtype, int32_t rank, const int64_t *dims,
                                               void *data, attnrun_tensor *tensor);
/* The number of elements of a tensor, and the bytes of a dense tensor of these dims. -1 where the
 * number overflows, where a dim is negative, or where `tensor` is NULL. */
ATTNRUN_API int64_t attnrun_tensor_count(const attnrun_tensor *tensor);
ATTNRUN_API int64_t attnrun_tensor_bytes(const attnrun_tensor *tensor);

/* ---- runtime ------------------------------------------------------------------------- */

typedef struct attnrun_runtime attnrun_runtime;
typedef struct attnrun_model attnrun_model;
typedef struct attnrun_context attnrun_context;

/* The library takes all of its memory from this allocator. alloc() returns NULL if there is no
 * memory; `align` is a power of two. Several threads may call both functions at the same time. */
typedef struct attnrun_allocator {
    uint32_t struct_size;
    void *user;
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *memory, size_t bytes);
} attnrun_allocator;

/* The caller's threads. parallel_for() calls fn for all tasks of [0, n), in ranges of about `grain`
 * tasks, and returns when all tasks are done. Up to max_workers threads may call fn at the same
 * time. Each of them passes a worker number of its own, from 0 to max_workers - 1. */
typedef void (*attnrun_task_fn)(void *arg, int64_t begin, int64_t end, int32_t worker);
typedef struct attnrun_pool {
    uint32_t struct_size;
    int32_t max_workers;
    void *user;
    void (*parallel_for)(void *user, int64_t n, int64_t grain, attnrun_task_fn fn, void *arg);
} attnrun_pool;

/* Levels: 1 a warning, 2 what was loaded and packed, 3 each plan. The environment variable
 * ATTNRUN_LOG sets the highest level that is passed on; the default is 3. The library calls the
 * function in the thread whose call writes the message. */
typedef void (*attnrun_log_fn)(void *user, int32_t level, const char *message);

typedef struct attnrun_runtime_options {
    uint32_t struct_size;
    int32_t threads;                    /* 0: ATTNRUN_NUM_THREADS, OMP_NUM_THREADS, or CPUs */
    const char *isa;                    /* NULL: ATTNRUN_ISA or the best; see `isas` below */
    uint64_t max_memory;                /* bytes; 0: the smaller of RAM/2 and 8 GiB */
    const attnrun_allocator *allocator; /* NULL: malloc */
    const attnrun_pool *pool;           /* NULL: own threads, started at the first run */
    attnrun_log_fn log;
    void *log_user;
} attnrun_runtime_options;

/* `options` may be NULL. The call starts no thread. Where the CPU and `isa` have AMX, it requests
 * the permission to use tiles from Linux. That permission is for the whole process: an alternate
 * signal stack that is set up afterwards needs getauxval(AT_MINSIGSTKSZ) bytes and room to work.
 * With isa "avx2" the call requests nothing. */
ATTNRUN_API attnrun_status attnrun_runtime_create(const attnrun_runtime_options *options,
                                                  attnrun_runtime **runtime);
/* Drops the caller's reference. The runtime ends when its last model has ended as well. NULL is
 * allowed. */
ATTNRUN_API void attnrun_runtime_destroy(attnrun_runtime *runtime);

typedef struct attnrun_runtime_info {
    uint32_t struct_size;
    int32_t threads;
    const char *isa;          /* the instruction set in use: "base", "avx2", "neon", … */
    const char *cpu_features; /* space-separated, those that matter here */
    const char *blas; /* "OpenBLAS 0.3.21", or "none"; the version that was there at build until a
                       * model with products of doubles loads the library */
    /* Bytes of the budget, held now, and the most that was held so far, the runtime's own
     * included; calls of the allocator so far. */
    uint64_t max_memory, used_memory, peak_memory, allocations;
    const char *isas; /* space-separated: those that this CPU and build have, the best last */
} attnrun_runtime_info;
ATTNRUN_API attnrun_status attnrun_runtime_query(attnrun_runtime *runtime,
                                                 attnrun_runtime_info *info);

/* ---- model --------------------------------------------------------------------------- */

enum { /* attnrun_source.flags */
    ATTNRUN_COPY = 1,          /* read the weights instead of mapping them */
    ATTNRUN_NO_FUSION = 2,     /* no rewrite pass that changes the arithmetic */
    ATTNRUN_FORCE_BODIES = 4,  /* run function bodies even where a native operator exists */
    ATTNRUN_ALLOW_NEWER = 8,   /* accept an IR or opset that is newer than the known ones */
    ATTNRUN_ALLOW_MISSING = 16, /* open for inspection even if operators are missing */
    ATTNRUN_VERIFY = 32,       /* read a whole packed file and compare its hash */
    /* The f32 matrices of products stay where the file has them instead of being packed. This is
     * for a model that runs once, or if memory matters more than time. The first result comes
     * sooner, and the matrices are in memory once, in pages that processes share. The results have
     * the same bits. Each run takes longer: MiniLM 2.3 times as long with 16 tokens, 1.17 with 128,
     * 1.05 with 512 (one thread of a Zen 4 core), so packing pays from the fourth run of 16 tokens
     * on. These are packed as usual: transposed matrices, other types, other kinds of operators,
     * and subgraphs, which a run may compute often. The flag does not change how a packed file is
     * used. */
    ATTNRUN_IN_PLACE = 64,
    /* A name of a dim means a size of one input, and may mean another one in the next input. ONNX
     * says that equal names are equal sizes: a run whose inputs disagree is E_SHAPE. Files that
     * use "batch" for images and for texts need this flag. Fewer nodes are fused. */
    ATTNRUN_SEPARATE_DIMS = 128
};

/* attnrun_source.precision: how elements are multiplied in matrix products, convolution and
 * attention. Sums, softmax and norms are always f32. The values between operators are f32, too,
 * with one exception: with products of bf16, a map that only dense convolutions read is rounded to
 * bf16 once, when it is stored. */
enum {
    ATTNRUN_PRECISION_F32 = 0, /* exactly */
    /* Operands are rounded to bf16, which has 8 significant bits: a sum of products is off by at
     * most 2^-8 of the sum of their magnitudes. Constant operands take half the memory. Instruction
     * sets with products of bf16 (avx512_bf16) are about twice as fast. Other sets round only
     * constant matrices and multiply floats: they are as fast as F32 for many rows, and faster for
     * few. */
    ATTNRUN_PRECISION_BF16 = 1,
    /* BF16 if the instruction set has products of bf16, otherwise F32. In addition, if the set has
     * products of bytes (VNNI, dot products of AArch64), numbers that are multiplied by weights of
     * 2, 4 or 8 bits (MatMulNBits, QMoE; not with g_idx) are rounded to 8 bits. Such a number is
     * off by at most 1/254 of the largest magnitude in its part of the row. A part is a block of
     * the weights, or 128 numbers of a longer block. A file permits the same with accuracy_level 4,
     * at any precision. If the set multiplies tiles of bf16 (AMX) and a matrix of MatMulNBits is
     * multiplied by 32 rows or more, both are rounded to bf16 instead. */
    ATTNRUN_PRECISION_AUTO = 2
};

/* attnrun_source.ragged: an encoder whose input is a mask (batch, tokens) of 0 and 1, of integers
 * or b8, computes only the tokens that the mask shows, so a batch costs the sum of its lengths. The
 * tokens of a sample are those from its first 1 to its last 1. Their results do not change if
 * padding had no weight for them. Each run checks that the model's own attention mask hides the
 * tokens that are left out, and otherwise returns E_RANGE. A mask that adds a finite number hides a
 * token if the sum is at least 4096 below the scores of the query's other tokens. attnrun_plan(),
 * attnrun_reserve() and attnrun_model_plan() plan for all tokens. A run is planned for its own
 * number of tokens, rounded up; attnrun_run_options.all_tokens requests all tokens. With
 * attnrun_set_max_plans() of 1 and attnrun_reserve(), a run of a batch of that size or a smaller
 * one takes no memory from the allocator. Such models cannot be saved as packed files. */
enum {
    ATTNRUN_RAGGED_OFF = 0,
    /* The padding rows of outputs (batch, tokens, …), and what the rest of the model reads of them,
     * are 0; without this option they hold meaningless numbers. E_UNSUPPORTED, with the reason, if
     * the model is not such an encoder. */
    ATTNRUN_RAGGED_ON = 1,
    /* As ON if nothing reads padding rows: the model takes a token from the beginning of each
     * sample, or multiplies by the mask, and has no output of all tokens. The outputs do not
     * change. Otherwise as OFF. */
    ATTNRUN_RAGGED_AUTO = 2
};

/* A symbol of the dims of a file, and the constant that takes its place. */
typedef struct attnrun_fixed_dim {
    const char *symbol;
    int64_t size; /* from 0 on */
} attnrun_fixed_dim;

/* What a file may ask for: X(ID, member, default, the largest that can be set, what it is). A call
 * that exceeds a limit returns E_LIMIT, and its message names the limit. `made_bytes` bounds an
 * output that is more than 1,024 times as large as the inputs of its operator; only the memory
 * budget bounds large outputs of large inputs. `elements` bounds the product of the dims that are
 * not 0, also of a tensor that has no element. Nothing fails above `fold_bytes` and `folded_bytes`:
 * each run then computes what could have been computed at load. */
#define ATTNRUN_LIMIT_LIST(X)                                                               \
    X(FILE_BYTES, file_bytes, INT64_C(1) << 36, INT64_C(1) << 42, "bytes of the model file") \
    X(EXTERNAL_BYTES, external_bytes, INT64_C(1) << 36, INT64_C(1) << 42,                   \
      "bytes of its external data, all files")                                              \
    X(EXTERNAL_FILES, external_files, 4096, 65536, "files of external data")                \
    X(GRAPH_BYTES, graph_bytes, 512 << 20, 1 << 30, "bytes of the file without its weights") \
    X(MESSAGE_DEPTH, message_depth, 112, 112, "depth of nested protobuf messages")          \
    X(SUBGRAPH_DEPTH, subgraph_depth, 32, 32, "depth of nested subgraphs")                  \
    X(FUNCTION_DEPTH, function_depth, 64, 1024, "depth of calls of functions")              \
    X(NODES, nodes, 1 << 20, 1 << 26, "nodes of the file")                                  \
    X(EXPANDED_NODES, expanded_nodes, 16384, 1 << 26,                                       \
      "nodes that functions become, besides 32 for each node of the file")                  \
    X(TENSORS, tensors, 1 << 20, 1 << 26, "tensors of the file")                            \
    X(ITEMS, items, 1 << 20, 1 << 26, "entries of a list that has no limit of its own")     \
    X(OPERANDS, operands, 65536, 1 << 20, "inputs or outputs of a node")                    \
    X(ATTRIBUTES, attributes, 256, 65536, "attributes of a node")                           \
    X(ATTRIBUTE_ITEMS, attribute_items, 1 << 26, 1 << 28, "numbers or strings in a list")    \
    X(STRING_BYTES, string_bytes, 1 << 20, 1 << 28, "bytes of a string")                    \
    X(NAME_BYTES, name_bytes, 4096, 4096, "bytes of a name")                                \
    X(RANK, rank, ATTNRUN_MAX_RANK, ATTNRUN_MAX_RANK, "dims of a tensor")                   \
    X(DIM, dim, INT64_C(1) << 47, INT64_C(1) << 47, "the largest dim")                      \
    X(ELEMENTS, elements, INT64_C(1) << 46, INT64_C(1) << 46, "elements of a tensor")       \
    X(FOLD_BYTES, fold_bytes, 64 << 20, INT64_C(1) << 36,                                   \
      "bytes of the results of one node that is computed at load")                          \
    X(FOLDED_BYTES, folded_bytes, 256 << 20, INT64_C(1) << 36,                              \
      "bytes of the results of all nodes that are computed at load")                        \
    X(MADE_BYTES, made_bytes, 1 << 30, INT64_C(1) << 46,                                    \
      "bytes that an operator makes of much smaller inputs")                                \
    X(LOOP_ITERATIONS, loop_iterations, 1000000000, INT64_MAX,                              \
      "iterations of a Loop or Scan")

typedef struct attnrun_limits {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
#define X(id, member, standard, largest, text) int64_t member; /* 0: the default */
    ATTNRUN_LIMIT_LIST(X)
#undef X
} attnrun_limits;

/* Where a model comes from: `path`, or `data` of `bytes` bytes, which stays the caller's and
 * must live as long as the model unless ATTNRUN_COPY is set. */
typedef struct attnrun_source {
    uint32_t struct_size;
    uint32_t flags;
    const char *path;
    const void *data;
    uint64_t bytes;
    const char *external_dir;   /* for external data; NULL: the directory of `path` */
    const char *disable_passes; /* comma-separated names, or NULL */
    /* The time that attnrun_model_open() may take (0: any time), and a flag with which another
     * thread or a signal handler ends it (or NULL; it must live as long as the model). Both apply
     * once more when the first context packs the weights, and to attnrun_model_plan(). */
    int64_t timeout_us;
    const int32_t *cancel;
    int32_t precision; /* ATTNRUN_PRECISION_F32 … */
    int32_t ragged;    /* ATTNRUN_RAGGED_OFF … */
    /* Names of inner values of the main graph that become outputs, after those of the file. The
     * nodes that compute them are not fused with the nodes that read them. E_USAGE if the model has
     * no such value. */
    const char *const *more_outputs;
    int64_t n_more_outputs;
    /* Symbols of the file's dims that become constants at load, so that shapes that depend on them
     * are computed then. E_USAGE if no value of the model has such a symbol, if a symbol is named
     * twice, and for packed files. */
    const attnrun_fixed_dim *fixed_dims;
    int64_t n_fixed_dims;
    const attnrun_limits *limits; /* NULL: the defaults */
} attnrun_source;

/* A packed file (attnrun_model_save()) is opened in the same way; its first bytes identify it. It
 * keeps the choices of attnrun_model_save(). Precision F32, which is the default, and AUTO open it
 * with the precision that it was packed with (attnrun_model_info.precision), and a flag that is not
 * set is as the file has it. Refused (E_USAGE) are precision BF16 where it has products of f32,
 * NO_FUSION, FORCE_BODIES and SEPARATE_DIMS where it was packed without them, disable_passes,
 * more_outputs, fixed_dims and RAGGED_ON. It runs with the instruction set that it
 * was packed for, even if the runtime uses a better one. E_VERSION: the CPU, the library or the
 * choice of the runtime does not have that set, or the file is for another version of the library.
 * Its weights are used where they are mapped; if `data` is not 64-byte aligned, it is copied.
 *
 * Loads, checks and prepares a model. `runtime` NULL: a runtime of default options.
 * Returns E_IO, E_PARSE, E_MODEL, …; E_TIME or E_CANCELLED where `source` says so.
 * Cost: reads the graph; weights stay in the mapped file. Packs nothing.
 * A mapped file, of the model or of its external data, must not shrink or be written to until
 * the model ends: its sizes are checked here, but to read a page that is gone later raises
 * SIGBUS in the thread that reads, and the library installs no handler. Replacing the file by
 * another (rename) is harmless. With ATTNRUN_COPY all bytes are read here: a file that shrinks
 * then ends in E_IO, and what happens to it later does not matter. */
ATTNRUN_API attnrun_status attnrun_model_open(attnrun_runtime *runtime,
                                              const attnrun_source *source,
                                              attnrun_model **model);
ATTNRUN_API void attnrun_model_retain(attnrun_model *model);
/* The model ends with its last holder; contexts hold it, too. NULL is allowed. */
ATTNRUN_API void attnrun_model_release(attnrun_model *model);

/* Packs the constant weights now. Otherwise the first context does it. */
ATTNRUN_API attnrun_status attnrun_model_pack(attnrun_model *model);
/* Writes a model as it is run: the graph after rewriting, and its weights as they are packed for
 * the instruction set in use. The model file is then no longer needed, processes that map the same
 * packed file share its memory, and opening it packs nothing. The library calls `write` with one
 * piece after the other; it returns 0, or another number if it failed (E_IO). E_UNSUPPORTED for a
 * model that cannot be written, such as one with missing operators. */
typedef int32_t (*attnrun_write_fn)(void *user, const void *bytes, uint64_t n);
ATTNRUN_API attnrun_status attnrun_model_save(attnrun_model *model, attnrun_write_fn write,
                                              void *user);

/* What attnrun_save_onnx() writes. */
enum { /* attnrun_onnx_edit.flags */
    /* Computes nodes with constant inputs, drops nodes that nothing reads, that only pass on their
     * input, or that compute the same as another node, replaces an If with a constant condition by
     * its branch, and folds BatchNormalization into convolutions. The result has only nodes of the
     * file: no operators of this library's own, no changed element types, and no weights that were
     * decoded from fewer bits. */
    ATTNRUN_ONNX_SIMPLIFY = 1
};
typedef struct attnrun_onnx_edit {
    uint32_t struct_size;
    uint32_t flags;
    /* The values of the main graph that become the inputs and the outputs of the new model. Without
     * names, the outputs are those of the model, and the inputs are those that they need. */
    const char *const *inputs, *const *outputs;
    int64_t n_inputs, n_outputs;
    /* The name of a file beside the new model for constants of 64 KiB and more, which models over 2
     * GiB need, and the function that writes its bytes; or NULL. */
    const char *external_name;
    attnrun_write_fn write_external;
} attnrun_onnx_edit;
typedef struct attnrun_onnx_saved {
    uint32_t struct_size;
    int32_t n_file_nodes, n_nodes; /* of the main graph, in the source and as written */
    int32_t reserved; /* 0 */
    int64_t bytes, external_bytes;
} attnrun_onnx_saved;
/* Writes an ONNX model made of another one: simplified, or a part of it, or with dims fixed
 * (attnrun_source.fixed_dims). Other runtimes can read it, and it gives the same outputs. Function
 * bodies stay with the nodes that call them. `saved` may be NULL. E_UNSUPPORTED if nodes of bodies
 * need an opset other than the model's; E_LIMIT above 2 GiB. */
ATTNRUN_API attnrun_status attnrun_save_onnx(attnrun_runtime *runtime,
                                             const attnrun_source *source,
                                             const attnrun_onnx_edit *edit,
                                             attnrun_write_fn write, void *user,
                                             attnrun_onnx_saved *saved);

typedef struct attnrun_model_info {
    uint32_t struct_size;
    int32_t n_inputs, n_outputs;   /* inputs: those that are not initializers */
    int32_t n_nodes, n_file_nodes; /* after rewriting; in the file's main graph */
    int32_t n_functions, n_metadata, n_opsets, n_passes, n_missing;
    int64_t ir_version;
    int64_t n_parameters, weights_bytes; /* of initializers and Constant nodes */
    int64_t file_bytes;                  /* of the model and its external data */
    const char *producer, *producer_version, *graph_name, *doc; /* doc: of the model */
    const char *missing;         /* "Foo-11, dom::Bar-1", or "" */
    const char *precision; /* of products: "f32", "bf16", "bf16 by floats" where the set does
                              not have them; "f32 and i8", "bf16 and i8": see AUTO */
    const char *packed_for; /* a packed file: its instruction set, with which it runs; else "" */
    int32_t n_notes;
    int32_t reserved; /* 0 */
    int64_t model_version; /* INT64_MAX: the file does not state it */
    const char *domain, *graph_doc; /* the producer's name space; the doc string of the graph */
} attnrun_model_info;
ATTNRUN_API attnrun_status attnrun_model_query(const attnrun_model *model,
                                               attnrun_model_info *info);

/* An input, output or inner value: what is known of it before a run. */
typedef struct attnrun_value_info {
    uint32_t struct_size;
    int32_t kind, dtype;
    int32_t rank;                               /* -1: unknown */
    int64_t dims[ATTNRUN_MAX_RANK];             /* -1: symbolic or unknown */
    char dim_names[ATTNRUN_MAX_RANK][48];       /* "S", "2*S+1"; "" where constant */
    const char *name;
    const attnrun_tensor *constant; /* NULL unless known at load, or where only its packed
                                     * form is left once a context exists; its elements may
                                     * stand at any address of a mapped file: memcpy them.
                                     * Packing moves it or frees it: see the top */
    int32_t key_dtype;              /* of maps: that of the keys */
} attnrun_value_info;
ATTNRUN_API attnrun_status attnrun_model_input(const attnrun_model *model, int32_t index,
                                               attnrun_value_info *info);
ATTNRUN_API attnrun_status attnrun_model_output(const attnrun_model *model, int32_t index,
                                                attnrun_value_info *info);
ATTNRUN_API attnrun_status attnrun_model_value(const attnrun_model *model, const char *name,
                                               attnrun_value_info *info);
/* The index of a named input or output, or -1. */
ATTNRUN_API int32_t attnrun_model_find_input(const attnrun_model *model, const char *name);
ATTNRUN_API int32_t attnrun_model_find_output(const attnrun_model *model, const char *name);

enum { ATTNRUN_NATIVE = 0, ATTNRUN_BODY = 1, ATTNRUN_MISSING = 2 };
typedef struct attnrun_node_info {
    uint32_t struct_size;
    int32_t coverage; /* ATTNRUN_NATIVE …; BODY: came out of a function body */
    int32_t opset, n_inputs, n_outputs;
    const char *name, *op_type, *domain;
    const char *function;    /* the function, or operator that is a formula, it came from; or "" */
    const char *const *inputs, *const *outputs; /* names; "" where absent */
    int32_t n_attributes;
    int32_t n_graphs;        /* within it: attnrun_subgraph() */
} attnrun_node_info;
/* Nodes of the main graph in the order of execution, after rewriting. */
ATTNRUN_API attnrun_status attnrun_model_node(const attnrun_model *model, int32_t index,
                                              attnrun_node_info *info);
/* An attribute that the node has. Attributes at their defaults are not listed. */
typedef struct attnrun_attribute_info {
    uint32_t struct_size;
    int32_t kind; /* ATTNRUN_ATTR_INT, _FLOAT, _STRING, _INTS, _FLOATS, _STRINGS, or another one */
    const char *name;
    int64_t i;
    double f;
    attnrun_string s;
    attnrun_ints ints;
    attnrun_floats floats;
    attnrun_strings strings;
} attnrun_attribute_info;
ATTNRUN_API attnrun_status attnrun_model_attribute(const attnrun_model *model, int32_t node,
                                                   int32_t index, attnrun_attribute_info *info);

/* A graph of a model: the main one, a branch of an If, or the body of a Loop, a Scan or a
 * SequenceMap. It belongs to the model. The calls above are about the main graph; these are the
 * same for any graph. */
typedef struct attnrun_graph attnrun_graph;
typedef struct attnrun_graph_info {
    uint32_t struct_size;
    int32_t n_nodes, n_inputs, n_outputs; /* without the values that it takes from around it */
    const char *name;                     /* as the file has it, or "" */
} attnrun_graph_info;
ATTNRUN_API attnrun_status attnrun_model_graph(const attnrun_model *model,
                                               const attnrun_graph **graph);
ATTNRUN_API attnrun_status attnrun_graph_query(const attnrun_graph *graph,
                                               attnrun_graph_info *info);
ATTNRUN_API attnrun_status attnrun_graph_node(const attnrun_graph *graph, int32_t index,
                                              attnrun_node_info *info);
ATTNRUN_API attnrun_status attnrun_graph_attribute(const attnrun_graph *graph, int32_t node,
                                                   int32_t index, attnrun_attribute_info *info);
ATTNRUN_API attnrun_status attnrun_graph_value(const attnrun_graph *graph, const char *name,
                                               attnrun_value_info *info);
/* Graph `index` of a node, from 0 to n_graphs - 1, and the attribute that holds it:
 * "then_branch", "else_branch", "body". */
ATTNRUN_API attnrun_status attnrun_subgraph(const attnrun_graph *graph, int32_t node,
                                            int32_t index, const char **attribute,
                                            const attnrun_graph **subgraph);
ATTNRUN_API attnrun_status attnrun_model_metadata(const attnrun_model *model, int32_t index,
                                                  const char **key, const char **value);
ATTNRUN_API attnrun_status attnrun_model_opset(const attnrun_model *model, int32_t index,
                                               const char **domain, int64_t *version);
/* Rewrite passes in order, with how often each applied to this model. */
ATTNRUN_API attnrun_status attnrun_model_pass(const attnrun_model *model, int32_t index,
                                              const char **name, int32_t *applied);

/* A place where all but one condition of a rewrite pass was met, so that the pass left it
 * unchanged: the pass, the node at which it began, and the first condition that was not met.
 * `index` from 0 to n_notes - 1. */
ATTNRUN_API attnrun_status attnrun_model_note(const attnrun_model *model, int32_t index,
                                              const char **pass, const char **node,
                                              const char **why);

/* ---- context ------------------------------------------------------------------------- */

/* The first context of a model packs its constant weights, once for all contexts. */
ATTNRUN_API attnrun_status attnrun_context_create(attnrun_model *model,
                                                  attnrun_context **context);
ATTNRUN_API void attnrun_context_destroy(attnrun_context *context);

/* Binds input `index` to the caller's memory, which must live and stay unchanged until the run
 * returns. Any byte strides are accepted. The dtype, the rank and the constant dims must be those
 * of the model. This call and the run refuse a string with a negative length or with a length but
 * no data, also inside of sequences and optionals. With `tensor` NULL the input is no longer set; a
 * state keeps its content. */
ATTNRUN_API attnrun_status attnrun_set_input(attnrun_context *context, int32_t index,
                                             const attnrun_tensor *tensor);
/* Later runs write output `index` into the caller's dense memory. The tensor must have the output's
 * dtype and shape; otherwise the run returns E_DTYPE or E_SHAPE. If the shape does not depend on
 * data, it does so before it computes anything. With `tensor` NULL the output is in the context's
 * own memory again. The step that makes the output writes it there directly: the arena holds no
 * copy. The run copies it at its end where it is an input, a constant, a part of another value, or
 * the same as another output or watched value; where its shape depends on data; and where the
 * memory is not aligned as its elements are, or overlaps an input or another output. The caller
 * must not use the memory during a run. Its content after a failed run is undefined. A plan is made
 * for the outputs that are bound then, so bind them before attnrun_plan() and attnrun_reserve(). */
ATTNRUN_API attnrun_status attnrun_set_output(attnrun_context *context, int32_t index,
                                              const attnrun_tensor *tensor);
/* Selects the outputs that later plans and runs compute: those in `indices`, and those of states.
 * Nodes that only other outputs need are not run. With `indices` NULL and n 0, all outputs are
 * computed again. attnrun_output() of an output that is not selected returns E_USAGE, and memory
 * that is bound to it is not written. Each selection has plans of its own. E_USAGE for an output
 * that does not exist. */
ATTNRUN_API attnrun_status attnrun_choose_outputs(attnrun_context *context,
                                                  const int32_t *indices, int32_t n);
/* Later runs keep the value of this name, whether an output needs it or not. The name is one of the
 * graph as it is run, and so are its dtype and shape (attnrun_model_value()): a map that is kept in
 * blocks of channels has rank 5. Call it before plans are made: runs do not use earlier ones. A
 * value that rewriting has fused into a larger node does not exist any more, nor does a constant of
 * which only the packed form is left; more_outputs of attnrun_source keeps both, in the shape of
 * the file. E_USAGE where there is no such value. */
ATTNRUN_API attnrun_status attnrun_watch(attnrun_context *context, const char *name);
/* A view of a watched value of the last successful run, valid until the next run. For an input it
 * is the caller's memory, and for that of a state a copy of what the run began with. */
ATTNRUN_API attnrun_status attnrun_value(attnrun_context *context, const char *name,
                                         attnrun_tensor *tensor);

/* What one step of the main graph did in a run, for attnrun_run_options.on_node. Times are
 * nanoseconds; `start_ns` counts from the start of the run. */
typedef struct attnrun_node_profile {
    uint32_t struct_size;
    int32_t node_index; /* of attnrun_model_node() */
    const char *name, *op_type, *domain;
    int64_t start_ns, ns;
    /* Bytes of the operands, each once: of what is read, constants included, and written. */
    int64_t read_bytes, written_bytes;
    int64_t flops;   /* floating-point operations as the operator states them; -1: it does not */
    int64_t n_tasks; /* of all phases */
    int32_t n_phases, n_threads; /* n_threads: that ran tasks of it */
} attnrun_node_profile;
/* A range of tasks that one thread ran, for attnrun_run_options.on_tasks. */
typedef struct attnrun_tasks_profile {
    uint32_t struct_size;
    int32_t node_index, phase, worker; /* worker 0 is the thread of the call */
    int64_t begin, end;                /* tasks of the phase */
    int64_t start_ns, ns;
} attnrun_tasks_profile;

typedef struct attnrun_run_options {
    uint32_t struct_size;
    int32_t validate;      /* nonzero: fail with E_NONFINITE where an output is not finite */
    int64_t timeout_us;    /* 0: none */
    /* Called after each step from the running thread, or NULL. Steps that only view their input
     * do not run: no callback is called for them. */
    void (*on_step)(void *user, int32_t node_index, const char *name, const char *op_type,
                    double microseconds);
    void *on_step_user;
    /* Callbacks for a profile, or NULL. on_node is called after each step by the running thread,
     * on_tasks after each range of tasks by the thread that ran it, so by several threads at once.
     * Their arguments are valid only during the call. They must not call the context or throw. */
    void (*on_node)(void *user, const attnrun_node_profile *node);
    void (*on_tasks)(void *user, const attnrun_tasks_profile *tasks);
    void *profile_user;
    /* Nonzero: a model that was opened with `ragged` computes all tokens of this batch, as if it
     * had been opened without the option. It has no effect on other models. */
    int32_t all_tokens;
    int32_t reserved; /* 0 */
} attnrun_run_options;

/* Computes all outputs from the inputs set. `options` may be NULL. Returns E_INPUT for an input
 * that is not set, E_SHAPE or E_DTYPE if an input does not fit, E_MEMORY above the budget, E_RANGE
 * for a value out of range, E_CANCELLED, or E_TIME. Cost: plans and allocates only if the input
 * shapes are new to this context. */
ATTNRUN_API attnrun_status attnrun_run(attnrun_context *context,
                                       const attnrun_run_options *options);
/* A view of output `index` of the last successful run; it is valid until the next run, and so are
 * its strings and elements, which never lie in the caller's inputs. */
ATTNRUN_API attnrun_status attnrun_output(attnrun_context *context, int32_t index,
                                          attnrun_tensor *tensor);
/* Makes output `output` of each run the input `input` of the next one, such as a KV cache or the
 * state of a recurrent layer. The context keeps the tensor. It reserves `capacity_bytes` at once
 * (0: as needed, doubled when full), so that growing within it allocates nothing. The first run,
 * and the first one after a reset, reads what attnrun_set_input() binds, for example a past of
 * length 0. If the output is the input with more elements after it along one axis (Concat,
 * Attention), and all readers accept strides, a run writes only the new elements. attnrun_output()
 * then shows the state's memory, which has room after that axis, so its strides are not those of a
 * dense tensor. A run that fails leaves the states as they were, except those of which it has
 * overwritten something: a cache with tokens behind those that seqlens_k (GroupQueryAttention) or
 * past_sequence_length counts. They are empty afterwards, and the next run is E_INPUT until
 * attnrun_set_input() gives their inputs again. Returns E_USAGE for indices or dtypes that do not
 * match. */
ATTNRUN_API attnrun_status attnrun_add_state(attnrun_context *context, int32_t input,
                                             int32_t output, int64_t capacity_bytes);
/* Cuts the state that becomes input `input` to its first `length` elements along the axis on which
 * runs extend it, for example to compute tokens again or to drop tokens that were guessed wrongly.
 * Returns E_USAGE if there is no such state, axis or length, or if elements share bytes and the
 * axis is not the first. */
ATTNRUN_API attnrun_status attnrun_truncate_state(attnrun_context *context, int32_t input,
                                                  int64_t length);
/* Forgets the content of all states of the selected sequence (attnrun_select_sequence()). */
ATTNRUN_API void attnrun_reset_states(attnrun_context *context);
/* A context holds the states of any number of sequences, of any lengths. Runs, cuts and the calls
 * below use the states of the selected sequence, which is 0 at first. A sequence begins empty: its
 * first run reads what attnrun_set_input() binds after this call. Plans and the arena are shared.
 * The outputs of the previous run are invalid after the four calls below. Returns E_USAGE for a
 * negative number, or E_MEMORY. */
ATTNRUN_API attnrun_status attnrun_select_sequence(attnrun_context *context,
                                                   int64_t sequence);
/* Gives back the memory of the states of a sequence that is not selected. */
ATTNRUN_API attnrun_status attnrun_drop_sequence(attnrun_context *context,
                                                 int64_t sequence);
/* Copies the states of `sequence` of `from` to the selected sequence of `to`. `from` may be `to`,
 * or another context of the same model with the same states. On failure no state is changed.
 * Returns E_USAGE if the contexts or the sequence do not fit, or E_MEMORY. */
ATTNRUN_API attnrun_status attnrun_copy_states(attnrun_context *to, attnrun_context *from,
                                               int64_t sequence);
/* Reorders rows of a state along `axis`: row i becomes what row rows[i] was. `input` names the
 * state by the input that it becomes; -1 means all states that are not empty. This serves to select
 * beams, to drop finished samples of a batch, or to copy one prompt for many samples. n and the
 * previous number of rows may differ. On failure no state is changed. Returns E_USAGE for a state,
 * axis or row that does not exist, or E_MEMORY. */
ATTNRUN_API attnrun_status attnrun_reorder_states(attnrun_context *context, int32_t input,
                                                  int32_t axis, const int64_t *rows,
                                                  int64_t n);
/* Requests that the current run of this context ends with E_CANCELLED at its next poll. Any thread
 * or signal handler may call it. If there is no current run, the next one is not affected. */
ATTNRUN_API void attnrun_cancel(attnrun_context *context);
/* Sets the time that each later call that plans or runs may take, unless attnrun_run_options gives
 * one for the call. 0: any time. Returns E_USAGE for a negative time. */
ATTNRUN_API attnrun_status attnrun_set_timeout(attnrun_context *context, int64_t timeout_us);
/* Frees all plans, the side heap and the arena (but not an arena of the caller). The outputs of the
 * previous run become invalid. */
ATTNRUN_API void attnrun_trim(attnrun_context *context);

typedef struct attnrun_plan_info {
    uint32_t struct_size;
    /* of dynamic shape: known only at run */
    int32_t n_steps, n_blocks, n_dynamic_steps, peak_step;
    int64_t arena_bytes;       /* exact, for the steps of known shape */
    int64_t lower_bound_bytes; /* largest sum of bytes alive at one step */
    /* Constants in files, packed by the first context, computed at load. */
    int64_t weights_bytes, packed_bytes, folded_bytes;
    const char *peak_node, *peak_op;
    /* The largest memory that a run needs besides the arena: tensors whose sizes depend on data,
     * strings, and arenas of subgraphs. For n_unbounded_steps no bound is known; only max_memory
     * bounds them. */
    int64_t side_heap_bytes;
    int32_t n_unbounded_steps;
} attnrun_plan_info;
/* One piece of the arena: `name` lives at [offset, offset + bytes) from the first step to the
 * last. */
typedef struct attnrun_plan_block {
    uint32_t struct_size;
    int32_t first_step, last_step;
    int64_t offset, bytes;
    const char *name;    /* value name; "scratch" for a step's scratch */
    const char *op_type; /* of the producer */
    attnrun_tensor tensor; /* dtype and dims; data NULL */
} attnrun_plan_block;
/* Plans for these input shapes, without allocating the arena. Data is not read: steps whose shapes
 * depend on it are dynamic. `inputs` has one tensor for each input of the model. `info` may be
 * NULL. If the plan replaces that of the previous run (attnrun_set_max_plans()), the outputs of
 * that run become invalid, even if this call fails. */
ATTNRUN_API attnrun_status attnrun_plan(attnrun_context *context, const attnrun_tensor *inputs,
                                        attnrun_plan_info *info);
/* Dtype and dims of output `index` in the last plan made or run; data NULL. E_SHAPE where they
 * depend on data. */
ATTNRUN_API attnrun_status attnrun_plan_output(attnrun_context *context, int32_t index,
                                               attnrun_tensor *tensor);
/* Block of the last plan made or run. */
ATTNRUN_API attnrun_status attnrun_plan_get_block(attnrun_context *context, int32_t index,
                                                  attnrun_plan_block *block);
/* Plans as attnrun_plan() does and also allocates the arena: later runs of these or smaller shapes
 * need no more. If the arena has to grow, or the context has states, the outputs of the previous
 * run become invalid, even if this call fails. */
ATTNRUN_API attnrun_status attnrun_reserve(attnrun_context *context,
                                           const attnrun_tensor *inputs);

/* Tasks of a step that follow one phase and come before the next. */
typedef struct attnrun_phase {
    int64_t n_tasks;   /* independent, at most 2^46; the split depends on shapes only */
    int64_t task_cost; /* about how many nanoseconds one task takes; 0: tiny */
} attnrun_phase;
/* One step of the last plan made or run; it shows what more threads could do. Phases run one after
 * the other. The tasks of a phase run in any order and on any thread. `index` from 0 to n_steps -
 * 1. */
typedef struct attnrun_plan_step {
    uint32_t struct_size;
    int32_t node_index, n_phases; /* n_phases 0: a view, nothing runs */
    uint32_t shared;              /* bit p: phase p is worth sharing among threads */
    const char *name, *op_type;
    attnrun_phase phases[ATTNRUN_MAX_PHASES];
    int64_t read_bytes, written_bytes, flops; /* as in attnrun_node_profile */
} attnrun_plan_step;
ATTNRUN_API attnrun_status attnrun_plan_get_step(attnrun_context *context, int32_t index,
                                                 attnrun_plan_step *step);
/* Sets how many plans the context keeps, 1 to 16 (16 by default): those that were used last. The
 * others are freed, and outputs of the previous run with its plan; a new plan that replaces another
 * one takes its memory. With 1 plan, and after attnrun_reserve() for the longest input and states
 * of that capacity, a decoder whose states grow takes nothing from the allocator. E_USAGE for
 * another number. */
ATTNRUN_API attnrun_status attnrun_set_max_plans(attnrun_context *context, int32_t n);
/* Makes `bytes` bytes of the caller at `memory` the arena of the context, until the context ends or
 * this is called again. NULL and 0: its own memory again. `memory` must be a multiple of
 * ATTNRUN_ARENA_ALIGN. A run writes only the first `arena_bytes` of it, which attnrun_plan() and
 * attnrun_model_plan() state. If these are more than `bytes`, attnrun_run() and attnrun_reserve()
 * return E_MEMORY, and the message names both; the caller may then give more memory. This memory
 * does not count for max_memory. Arenas of subgraphs, states, and tensors whose sizes depend on
 * data still come from the allocator. The outputs of the previous run become invalid. E_USAGE for
 * another address or a negative size. */
ATTNRUN_API attnrun_status attnrun_set_arena(attnrun_context *context, void *memory,
                                             int64_t bytes);

/* The bytes that a first context of a model and its first run with inputs of these shapes need. If
 * the model is already packed, packing adds nothing. */
typedef struct attnrun_model_need {
    uint32_t struct_size;
    int32_t n_unbounded_steps; /* of dynamic shape: what they take is not in the sums */
    int64_t held_bytes;      /* used_memory now: this model, and all else of the runtime */
    int64_t packed_bytes;    /* weights that will be packed */
    int64_t packing_bytes;   /* the most that packing takes besides while it works */
    int64_t constants_bytes; /* constants that are copied for their alignment, less those that
                              * packing releases: may be negative */
    int64_t context_bytes;   /* the context and its plan */
    int64_t arena_bytes;
    int64_t scratch_bytes;   /* of the arena: the largest scratch of a step, of all threads */
    int64_t side_heap_bytes; /* bound of what depends on data, and of subgraphs */
    /* The largest sum that is held at once from now on, which is the smallest max_memory that works
     * for an open model. Opening a small model may have held more: peak_memory of a runtime with
     * this model alone. The sum is exactly what an allocator sees if no shape depends on data,
     * there are no subgraphs, and there is one thread or the weights are aligned in the file;
     * otherwise it is an upper bound. attnrun_model_plan_states() includes states. */
    int64_t total_bytes;
    int64_t states_bytes; /* of the states, with their capacity */
} attnrun_model_need;
/* A state that will be added by attnrun_add_state(). */
typedef struct attnrun_state_pair {
    int32_t input, output;
    /* Less than a run makes counts as twice what it makes. total_bytes then has both, since the
     * run copies one to the other. */
    int64_t capacity_bytes;
} attnrun_state_pair;
/* Needs no context and packs nothing. The data of `inputs` is not read. */
ATTNRUN_API attnrun_status attnrun_model_plan(attnrun_model *model,
                                              const attnrun_tensor *inputs,
                                              attnrun_model_need *need);
/* The same for a context with states, whose plan appends to them in place if it can. It is exact if
 * the capacities hold what a run writes; later runs of those shapes then need no more memory. */
ATTNRUN_API attnrun_status attnrun_model_plan_states(attnrun_model *model,
                                                     const attnrun_tensor *inputs,
                                                     const attnrun_state_pair *states,
                                                     int64_t n_states,
                                                     attnrun_model_need *need);

typedef struct attnrun_memory_info {
    uint32_t struct_size;
    /* Held now, with those of subgraphs and the caller's; the highest byte that the last run's
     * plan touched; of sizes that depend on data, the most of the last run, subgraphs included. */
    int64_t arena_bytes, arena_used_bytes, side_heap_bytes;
    int32_t n_plans;
} attnrun_memory_info;
ATTNRUN_API attnrun_status attnrun_context_memory(const attnrun_context *context,
                                                  attnrun_memory_info *info);

/* Reads a serialized TensorProto, SequenceProto, OptionalProto or MapProto (`kind` ATTNRUN_TENSOR
 * …). The memory belongs to the caller, who frees it with attnrun_tensor_free(). If `name` is not
 * NULL, it is set to the name in the message, or to "". */
ATTNRUN_API attnrun_status attnrun_tensor_from_pb(attnrun_runtime *runtime, const void *data,
                                                  uint64_t bytes, int32_t kind,
                                                  attnrun_tensor **tensor, const char **name);
ATTNRUN_API void attnrun_tensor_free(attnrun_runtime *runtime, attnrun_tensor *tensor);

/* ---- operators (unstable until the attention operators are all here) ------------------ */

/* A dimension or a small integer: a constant (expr 0), or an expression of symbols. The
 * attnrun_dim_ functions read and combine it. An overflow gives an invalid one, which the runtime
 * refuses after infer(). */
typedef struct attnrun_dim {
    int64_t value; /* where expr is 0 */
    int32_t expr;  /* 0 constant, > 0 expression, < 0 unknown or invalid */
    int32_t reserved; /* 0 */
} attnrun_dim;

/* What is known of a value at infer time. */
typedef struct attnrun_type {
    int32_t kind, dtype;
    int32_t rank;      /* -1: unknown */
    int32_t key_dtype; /* of maps: that of the keys; 0: unknown */
    attnrun_dim dims[ATTNRUN_MAX_RANK];
} attnrun_type;


enum { /* attribute kinds, and the C type of the member of the args struct */
    ATTNRUN_ATTR_END = 0,
    ATTNRUN_ATTR_INT,     /* int64_t */
    ATTNRUN_ATTR_FLOAT,   /* float */
    ATTNRUN_ATTR_STRING,  /* attnrun_string, terminated by NUL; data NULL: absent */
    ATTNRUN_ATTR_ENUM,    /* int32_t: index into the words of `text` ("a|b|c") */
    ATTNRUN_ATTR_INTS,    /* attnrun_ints */
    ATTNRUN_ATTR_FLOATS,  /* attnrun_floats */
    ATTNRUN_ATTR_STRINGS, /* attnrun_strings */
    ATTNRUN_ATTR_TENSOR,  /* attnrun_tensor; kind ABSENT: absent */
    ATTNRUN_ATTR_GRAPH,   /* int32_t: number of the subgraph within the node, -1: absent */
    ATTNRUN_ATTR_TYPE,    /* attnrun_type; kind ABSENT: absent */
    ATTNRUN_ATTR_IGNORED  /* known, checked by nobody, stored nowhere */
};
enum { ATTNRUN_ATTR_REQUIRED = 1 };

typedef struct attnrun_attr_def {
    const char *name;
    int32_t kind;
    uint32_t offset;      /* of the member in the args struct */
    uint32_t flags;
    int64_t int_default;  /* INT, ENUM */
    float float_default;
    /* STRING: default or NULL; ENUM: the words; INT, INTS: what the file may say, as "0..3"
     * or "1 10 11", or NULL for all */
    const char *text;
} attnrun_attr_def;

typedef struct attnrun_op_def attnrun_op_def;
struct attn_kernels;

/* A node: const after load, belongs to the model. */
typedef struct attnrun_node {
    const char *name, *op_type, *domain;
    int32_t index, n_in, n_out;
    int32_t opset;             /* of the node's domain */
    const char *const *inputs; /* names, "" where absent */
    const char *const *outputs;
    const attnrun_op_def *op;
    const void *args;          /* parsed attributes: the op's args struct */
    const void *packed;        /* what pack() wrote, or NULL */
    const char *function;      /* of whose body the node is a part: a function of the model, or an
                                * operator that is a formula (expand() of its row); else "" */
    uint32_t in_place; /* bit i: pack() left the constant input i where it is; its data may have
                        * any address */
} attnrun_node;

/* What depends on a shape: written by infer(), read by run(). */
typedef struct attnrun_step {
    const attnrun_node *node;
    const void *args;                   /* node->args */
    const struct attn_kernels *kernels; /* this CPU's table; opaque outside the library */
    int32_t n_in, n_out;
    const attnrun_type *in;             /* kind ABSENT where not given */
    attnrun_type *out;                  /* dtype and shape to be set by infer() */
    const attnrun_tensor *x;            /* run: inputs. infer: data is NULL unless known */
    attnrun_tensor *y;                  /* run: outputs; kind ABSENT where nobody reads it */
    void *state;                        /* op->state_bytes, zeroed before infer() */
    int32_t n_phases;                   /* 1 by default */
    int32_t concrete;                   /* infer: all input dims are constant */
    attnrun_phase phases[ATTNRUN_MAX_PHASES]; /* one task by default */
    int64_t scratch_bytes;              /* per worker */
    int64_t shared_bytes;               /* one for all workers, kept between phases */
    void *internal;
    int32_t precision; /* what the model was opened with: ATTNRUN_PRECISION_F32 … */
    int32_t reserved;  /* 0 */
} attnrun_step;

/* One call of run(): tasks [begin, end) of a phase. */
typedef struct attnrun_work {
    int32_t phase, worker;
    int64_t begin, end;
    void *scratch;         /* 64-byte aligned; this worker's alone; undefined content */
    void *shared;          /* 64-byte aligned; undefined content in phase 0 */
    const int32_t *cancel; /* nonzero: return E_CANCELLED soon. attnrun_work_poll() looks at
                            * the deadline too */
    void *internal;
} attnrun_work;

/* Constant inputs to pack: x[i].data is NULL where input i is not constant. */
typedef struct attnrun_pack {
    const attnrun_node *node;
    const void *args;
    const struct attn_kernels *kernels;
    int32_t n_in;
    const attnrun_type *in;
    const attnrun_tensor *x;
    uint32_t replaces; /* out, in both calls: bit i set: input i is not read any more once
                        * packed, by infer() neither */
    /* out, in the first call: where `form` is not NULL, the packed bytes depend on nothing but
     * this address (of an object of the operator's own), on the kernels, and on the constant
     * inputs whose bits are set in `sources`, which also are all that `replaces` may name.
     * Nodes of one form with the same constants share one packed copy, whatever their
     * operators. */
    uint32_t sources;
    const void *form;
    /* in: 1 for nodes of the main graph where the source has ATTNRUN_IN_PLACE. pack() may then set
     * *bytes to 0, and in `in_place` the bits of the inputs that run() reads at any address,
     * aligned or not. */
    int32_t may_stay;
    uint32_t in_place; /* out, in the first call */
} attnrun_pack;

enum { /* attnrun_op_def.flags */
    ATTNRUN_OP_DYNAMIC = 1,    /* output shapes are known only at run: see attnrun_step_alloc */
    ATTNRUN_OP_IMPURE = 2,  /* not to be folded, merged or passed over: random numbers, checks */
    ATTNRUN_OP_GRAPHS = 4,  /* runs subgraphs; captured values follow its inputs in x */
    ATTNRUN_OP_NO_PROMOTION = 8  /* f16/bf16 are refused rather than computed in f32 */
};

/* The formula that takes the place of a node, while expand() writes it: attnrun_body_add(). */
typedef struct attnrun_body attnrun_body;

/* One operator from one opset on. Inputs and outputs are listed as words "name:T", where T is
 * a letter of `types` or a dtype; a mark follows: '?' optional, '*' variadic (last only,
 * zero or more), '!' not of one dtype among variadic operands. `types` is like
 * "T=f32,f64 I=i32,i64"; groups: all, float, int, uint, num, fixed (all but strings). All
 * operands of one letter have one dtype. Where a letter lists f32, but not f16 and bf16,
 * operands of these types are promoted: the operator sees f32, and the runtime casts at the
 * borders of the region that computes so. Kinds: "x:seq(T)",
 * "x:opt(T)", "x:map(T)" and "x:maps(T)" (a map to T, a sequence of such; infer checks the
 * keys), "x:any" (checked by infer). */
struct attnrun_op_def {
    uint32_t struct_size, flags;
    const char *domain; /* "" is ai.onnx */
    const char *name;
    int32_t since;      /* first opset version; the next row of this name ends it */
    uint32_t args_bytes, state_bytes;
    const char *inputs, *outputs, *types;
    const attnrun_attr_def *attrs; /* ends with kind END; NULL: no attributes */
    /* Sets the output types, tasks, scratch, aliases and state, and checks everything that can be
     * checked. It is called with symbolic dims at load, and with constant dims for each new shape.
     * If a rank is not known (in[i].rank -1), it sets what follows from the rest: always the dtype,
     * rank -1 if the rank does not follow, and attnrun_dim_unknown() for single dims. It is called
     * again once more is known. n_phases, tasks and scratch are read if `concrete` is set. It fails
     * with E_SHAPE, E_DTYPE, E_ATTR, E_INPUT, E_MODEL, E_UNSUPPORTED or E_LIMIT. */
    attnrun_status (*infer)(attnrun_step *step);
    /* NULL, or packs the constants of a node that infer() accepted. The first call has packed NULL
     * and sets *bytes (0: nothing). The second call has 64-byte aligned memory of that size, whose
     * content must not depend on its address. It fails as infer() does; attnrun_step_fail() with
     * NULL instead of a step records the message. In later calls of run() and infer(), x[i].data of
     * an input that `replaces` names is NULL; its dtype and dims are still there. */
    attnrun_status (*pack)(attnrun_pack *pack, int64_t *bytes, void *packed);
    /* Computes the tasks of a range. NULL for rows whose outputs are all views of inputs
     * (attnrun_step_view()), and for formulas (expand() below). It fails with E_RANGE (a value),
     * E_SHAPE or E_LIMIT (a step whose shapes depend on data), E_MEMORY, or the status that
     * attnrun_work_poll() returned. Where all outputs are tensors without an element there is
     * nothing to run, and no call. For all functions of a row, E_USAGE, E_IO, E_PARSE, E_PATH,
     * E_VERSION, E_NONFINITE and numbers that are not a status count as E_INTERNAL. */
    attnrun_status (*run)(const attnrun_step *step, const attnrun_work *work);
    void (*release)(void *user); /* when the runtime ends; or NULL */
    void *user;
    /* strided_in, bit i: input i may have any strides except in the last dim, which is dense;
     * without the bit, the whole input is dense. unaligned_in, bit i: input i may have any
     * address. */
    uint32_t strided_in, unaligned_in;
    const char *cost, *source; /* for listings: "O(n d)"; paper or standard; or NULL */
    /* Bit i: input i may be a constant in f16 or bf16 where the operands around it were
     * promoted to f32; and no constant, too, if `types` lists these types for it. Not bit 0. */
    uint32_t storage_in;
    /* NULL, or writes the operator as a formula over other operators (attnrun_body_add()). It is
     * called at load, after infer() has checked the node and its operands were promoted; ranks and
     * dims may be unknown. If it writes nothing, the node stays and run() computes it. The nodes of
     * a built-in row's formula run built-in rows, even if other rows are registered. */
    attnrun_status (*expand)(const attnrun_step *step, attnrun_body *body);
    /* NULL, or checks `bytes` packed bytes of a packed file, which may be hostile; it returns OK if
     * run() can use them. Before, pack() was called with packed NULL, returned this number of bytes
     * and set `replaces`. The constants that it replaces are missing: their data is zeros. Nodes of
     * rows without check_packed() keep their constants in packed files and are packed again. */
    attnrun_status (*check_packed)(const attnrun_pack *pack, int64_t bytes,
                                   const void *packed);
};

/* Adds an operator. In models that are opened later, it replaces earlier and built-in operators of
 * the same domain, name and since. Rewrite passes do not change nodes that such a row runs. Folding
 * runs it like a built-in one, unless it has ATTNRUN_OP_IMPURE. `op` must live as long as the
 * runtime. Fails for a malformed row. */
ATTNRUN_API attnrun_status attnrun_register_op(attnrun_runtime *runtime,
                                               const attnrun_op_def *op);
/* Loads a shared library and calls its `attnrun_status attnrun_plugin(attnrun_runtime *)`. */
ATTNRUN_API attnrun_status attnrun_load_plugin(attnrun_runtime *runtime, const char *path);
/* The operators in the order of domain, name, since; NULL past the end. */
ATTNRUN_API const attnrun_op_def *attnrun_get_op(attnrun_runtime *runtime, int32_t index);

/* The names of the rewrite passes, in their order. attnrun_source.disable_passes takes these names.
 * NULL past the end. */
ATTNRUN_API const char *attnrun_get_pass(int32_t index);

/* Calls see() with the row of each node of a model as it is run, subgraphs included, once for each
 * node. */
ATTNRUN_API attnrun_status
attnrun_model_ops(const attnrun_model *model,
                  void (*see)(void *user, const attnrun_op_def *op), void *user);

/* Calls see() once for each built-in row that a node of any model of this runtime has had since the
 * runtime was created: in the file, in formulas, between rewrite passes, and as it is run. A
 * library with only these rows (ATTNRUN_OPS of CMake) opens and runs the same files. */
ATTNRUN_API attnrun_status
attnrun_runtime_ops(attnrun_runtime *runtime,
                    void (*see)(void *user, const attnrun_op_def *op), void *user);

/* For infer() and run(): records the message and returns `status`. Characters that a terminal would
 * obey become \xNN, as in attnrun_escape(). Without a step (NULL), as in pack(), the message does
 * not name the node. In the functions below, NULL for a step and indices that the node does not
 * have are allowed and have no effect. */
ATTNRUN_API attnrun_status attnrun_step_fail(const attnrun_step *step, attnrun_status status,
                                             const char *message);
ATTNRUN_API attnrun_dim attnrun_dim_make(int64_t value);
ATTNRUN_API attnrun_dim attnrun_dim_add(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
ATTNRUN_API attnrun_dim attnrun_dim_sub(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
ATTNRUN_API attnrun_dim attnrun_dim_mul(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
/* Rounds towards minus infinity; b must not be 0. */
ATTNRUN_API attnrun_dim attnrun_dim_div(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
ATTNRUN_API attnrun_dim attnrun_dim_min(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
ATTNRUN_API attnrun_dim attnrun_dim_max(const attnrun_step *step, attnrun_dim a, attnrun_dim b);
/* A size that is known only at run. */
ATTNRUN_API attnrun_dim attnrun_dim_unknown(const attnrun_step *step);
/* infer: output `out` is a dense view of the bytes of input `in` from `byte_offset` on. E_INTERNAL
 * if they are not all within the input. */
ATTNRUN_API void attnrun_step_view(attnrun_step *step, int32_t out, int32_t in,
                                   int64_t byte_offset);
/* infer: output `out` may overwrite input `in` if nothing reads that input later, and if no other
 * input of the node shares its memory. Inputs from 64 on are never overwritten. */
ATTNRUN_API void attnrun_step_inplace(attnrun_step *step, int32_t out, int32_t in);
/* infer: output `out` is input `in` with more elements after it along `axis`; both have the same
 * dtype. Returns 1 if the plan has put them into one buffer (infer() is then called again): in
 * run(), y[out] and x[in] begin at the same address and have the same strides, and the content of
 * x[in] need not be written. Otherwise returns 0. Needs strided_in for input `in`. */
ATTNRUN_API int32_t attnrun_step_append(attnrun_step *step, int32_t out, int32_t in,
                                        int32_t axis);
/* infer: gives element k of input `in` (i64, i32 or b8) and returns 1 if it is known. Otherwise 0;
 * infer() is then called again in each run, with the values, and must give the same outputs. */
ATTNRUN_API int32_t attnrun_step_value(const attnrun_step *step, int32_t in, int64_t k,
                                       attnrun_dim *value);
/* infer: gives the n elements of integer output `out` (at most 64; a longer list is ignored). */
ATTNRUN_API void attnrun_step_set_values(attnrun_step *step, int32_t out, int64_t n,
                                         const attnrun_dim *values);
/* infer: run() needs at most `bytes` for outputs whose sizes depend on data; attnrun_plan() adds
 * these up. Without this call no bound is known. */
ATTNRUN_API void attnrun_step_heap_bound(attnrun_step *step, int64_t bytes);
/* infer: run() executes about this many floating-point operations, for profiles; calls in one
 * infer() add up. Without this call the number is unknown. */
ATTNRUN_API void attnrun_step_flops(attnrun_step *step, int64_t flops);
/* run: returns OK, or E_CANCELLED or E_TIME if the run has to end; run() then returns that status.
 * It reads the flag, and the clock if there is a deadline, in some 30 ns. Call it after each
 * megabyte that is read or written, or 10 million operations, whichever comes first. */
ATTNRUN_API attnrun_status attnrun_work_poll(const attnrun_work *work);
/* run of an ATTNRUN_OP_DYNAMIC operator: allocates output `out` with these dims and sets
 * step->y[out]. The memory budget bounds it. E_SHAPE if infer() gave other dims. */
ATTNRUN_API attnrun_status attnrun_step_alloc(const attnrun_step *step, int32_t out,
                                              int32_t dtype, int32_t rank, const int64_t *dims);

/* expand: adds formulas, separated by ';':
 *
 *   d = X - mean; Y = d / Sqrt(ReduceMean<keepdims=1>(d * d, axes)); a, b = Split<axis=0>(Y)
 *
 * + - * / are Add, Sub, Mul, Div. A call names an operator of ai.onnx in its newest form, or
 * "domain.Op", and may give attributes: ints, [1,2], "text", or names. A name is an operand of the
 * row, a number or list that was named below, or what a formula before has given; names may be
 * given anew, and an absent operand is absent in the call. 2 is a scalar; [0,1] is an i64 vector.
 * Each wanted output must be given. E_INTERNAL where the text is malformed. */
ATTNRUN_API attnrun_status attnrun_body_add(attnrun_body *body, const char *formulas);
/* expand: sets the element type of the numbers that are written or named from here on. At first it
 * is that of input 0. */
ATTNRUN_API void attnrun_body_dtype(attnrun_body *body, int32_t dtype);
/* expand: `name` stands for this scalar, or for this i64 vector, which is copied.
 * attnrun_body_add() reports a failure. */
ATTNRUN_API void attnrun_body_number(attnrun_body *body, const char *name, double value);
ATTNRUN_API void attnrun_body_ints(attnrun_body *body, const char *name, int64_t n,
                                   const int64_t *values);
/* expand: `name` stands for input `in`, or for output `out`. Operands that are not variadic already
 * have the names of the row. */
ATTNRUN_API void attnrun_body_input(attnrun_body *body, const char *name, int32_t in);
ATTNRUN_API void attnrun_body_output(attnrun_body *body, const char *name, int32_t out);

#ifdef __cplusplus
}
#endif
#endif
