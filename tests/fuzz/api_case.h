/* api_case.h - one case of fuzz_api: some models, the objects that calls have made of them, and
 * what every call is looked at for. */
#ifndef ATTN_FUZZ_API_CASE_H
#define ATTN_FUZZ_API_CASE_H

#include "../runtime/harness.h"
#include "case.h"

enum {
    API_SOURCES = 3,
    API_RUNTIMES = 2,
    API_MODELS = 4,
    API_CONTEXTS = 5,
    API_INPUTS = 16,
    API_ROOM = 1536 /* of the largest struct of the API, and what a newer one may add */
};

struct api_model {
    attnrun_model *handle; /* NULL: a free place */
    struct fuzz_case *from;
    attnrun_model_info info;
    uint64_t budget; /* of its runtime */
};

struct api_context {
    attnrun_context *handle; /* NULL: a free place */
    struct fuzz_case *from;
    int32_t n_inputs, n_outputs;
    attnrun_value_info inputs[API_INPUTS]; /* their names live as long as the context */
    attnrun_value_info outputs[API_INPUTS];
    const attnrun_model *model; /* only compared with those of `models` */
};

struct api_case {
    uint64_t seed;
    struct fuzz_random r;
    struct test_memory memory;
    struct fuzz_case
        sources[API_SOURCES]; /* models of the corpus, and all memory of inputs */
    attnrun_runtime *runtimes[API_RUNTIMES];
    uint64_t budgets[API_RUNTIMES];
    struct api_model models[API_MODELS];
    struct api_context contexts[API_CONTEXTS];
    const char *call; /* under way, for messages */
    bool told;        /* each call is printed */
    uint64_t calls, good;
    uint64_t sum; /* of what was read: keeps the compiler from leaving it out */
};

/* ---- api_args.c: what calls are given ---- */

/* Says what is wrong with the call under way, and aborts. */
_Noreturn void api_wrong(const struct api_case *a, const char *what);
/* A status that the header lists, not INTERNAL, and a sentence of one line. */
attnrun_status api_check(struct api_case *a, attnrun_status status);
#define API(a, call_) ((a)->call = #call_, api_check((a), (call_)))

/* Memory until the case ends. */
void *api_hold(struct api_case *a, int64_t bytes);

/* A struct that is given: zeroed room of API_ROOM bytes whose struct_size is `bytes`. Once it is
 * filled, api_spoil() seldom makes it one of another ABI. */
void *api_given(struct api_case *a, size_t bytes);
void *api_spoil(struct api_case *a, void *given, size_t bytes);
/* A struct that is to be filled, of this ABI or another; and, after the call, the look at what was
 * written: all of it on success, at most `struct_size` bytes; nothing on failure. */
struct api_filled {
    _Alignas(16) uint8_t bytes[API_ROOM], before[API_ROOM];
    uint32_t known;
};
void *api_to_fill(struct api_case *a, struct api_filled *filled, size_t bytes);
/* Whether it was filled as a struct of this ABI. */
bool api_is_filled(const struct api_case *a, const struct api_filled *filled,
                   attnrun_status status);

/* Mostly from 0 to n - 1; seldom another number. */
int32_t api_index(struct api_case *a, int64_t n);
/* The name of a value of the model, or another one. */
const char *api_name(struct api_case *a, const struct api_model *model);
/* A value for input `index`: one that fits, one with other strides, or one that lies. */
attnrun_tensor api_input(struct api_case *a, const struct api_context *c, int32_t index);
/* Dense memory for an output of these dims, or near them. */
attnrun_tensor api_room_for(struct api_case *a, const attnrun_tensor *shape);
/* One tensor for each of n inputs, whose data nobody looks at. */
const attnrun_tensor *api_shapes(struct api_case *a, struct fuzz_case *from, int32_t n,
                                 const attnrun_value_info *infos);

/* ---- api_objects.c: calls on runtimes and models; api_calls.c: calls on contexts ---- */

/* NULL where there is none, and seldom otherwise. */
attnrun_runtime *api_any_runtime(struct api_case *a);
struct api_model *api_any_model(struct api_case *a); /* never NULL; its handle may be */
struct api_context *api_any_context(struct api_case *a);

/* Opens a context of a model in a free place; NULL where it cannot. */
struct api_context *api_open_context(struct api_case *a, struct api_model *model);
void api_close_context(struct api_context *c);
void api_close_model(struct api_model *model);
/* One call on a runtime or a model; on a context. */
void api_call_object(struct api_case *a);
void api_call_context(struct api_case *a);

#endif
