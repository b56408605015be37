/* inputs.h - the inputs of a run: given ones from files and the command line, the others
 * made up so that a model of its kind runs. */
#ifndef TOOL_INPUTS_H
#define TOOL_INPUTS_H

#include "cli.h"

/* What an unknown dimension most likely is, and so how large it is made. */
enum dim_class { DIM_BATCH, DIM_SEQUENCE, DIM_PAST, DIM_CHANNELS, DIM_IMAGE, DIM_AUDIO };

struct symbol {
    char name[48];
    int64_t value;
    enum dim_class class;
    int64_t asked;           /* the size that an operator asked for, or 0 */
    bool unclear;            /* neither its name nor its place says what it is */
    bool total;              /* the length of a mask over the past and the sequence */
    bool in_mask, elsewhere; /* a dim of an input that is a mask, of another one */
    bool set;                /* by --set */
    bool bound;              /* by a given input */
};

struct input {
    attnrun_value_info info;
    struct held held;
    bool given;
    int64_t given_by;               /* the last -i that gives it, counted from 1, or 0 */
    bool random;                    /* made up of random numbers */
    const char *value;              /* of -i name=value, or NULL */
    int64_t dims[ATTNRUN_MAX_RANK]; /* of --shape, or -1 */
    int32_t shape_rank;             /* of --shape, or -1 */
    char how[160]; /* "ones", "random 0..30521 (rows of 'emb')", "a.npy" */
};

/* How far the search for made-up sizes is (sizes.c). */
enum { SIZES_ASKED = 16 };
struct sizes {
    double start_ms;                 /* all tries together take no longer than one may */
    int32_t tries;                   /* after the first */
    int32_t profile;                 /* of the usual sizes */
    int32_t best_profile, best_node; /* what got furthest: the node that failed there */
    int32_t trying;                  /* the symbol that has an asked size, or -1 */
    int64_t before;                  /* what that had */
    int64_t asked[SIZES_ASKED], n_asked, at;
    char sentence[1024];
};

struct inputs {
    struct cli *cli;
    attnrun_model *model;
    attnrun_model_info model_info;
    uint64_t max_bytes;
    struct input *v;
    int32_t n;
    struct symbol *symbols;
    int64_t n_symbols;
    int64_t *slots;  /* symbols by name: index + 1; open addressing */
    int64_t n_slots; /* a power of two; twice the room for symbols */
    struct sizes sizes;
    bool shapes_only; /* for a plan: inputs have shapes and no data */
    bool some_given;  /* by files or values */
    bool guessed;     /* a size was made up: another one may be tried */
    char conflict
        [256]; /* a symbol that is set and an input that has another size, or "" */
};

/* Reads what is given; the rest is made up by inputs_fit(). */
attnrun_status inputs_make(struct inputs *inputs, struct cli *cli, attnrun_model *model);
/* Other made-up sizes after this failure; false where there is nothing left to try. */
bool inputs_retry(struct inputs *inputs, const struct tool_error *failure);
/* Where no sizes fit: the failure of the first ones, which were asked for, says most; but that
 * there was no memory for usual ones is said. */
void inputs_blame(const struct inputs *inputs, const struct tool_error *first, bool ran);
attnrun_status inputs_set(const struct inputs *inputs, attnrun_context *context);
/* An array of inputs->n tensors for attnrun_plan(), to free(); NULL without memory. */
attnrun_tensor *inputs_tensors(const struct inputs *inputs);
void inputs_free(struct inputs *inputs);

/* ---- symbols.c ---- */
struct symbol *symbol_find(const struct inputs *inputs, const char *name, size_t n);
attnrun_status symbols_collect(struct inputs *inputs);
attnrun_status symbols_set(struct inputs *inputs); /* --set */
/* E_USAGE: the text of a --set or --fix is not of the form. "batch=4,seq=16" gives a hint how to
 * write it: one option for each. */
attnrun_status symbols_refuse(const char *option, const char *text, const char *form);
/* "S=128": the size behind '='. */
attnrun_status symbols_size(const char *option, const char *text, const char *equals,
                            int64_t *value);
void symbols_bind(struct inputs *inputs, const struct input *input);
/* Sizes of the symbols that are neither set nor bound. */
void symbols_default(struct inputs *inputs);
/* The size of dimension d of an input that is made up, once symbols have their sizes. */
attnrun_status symbols_dim(struct inputs *inputs, const struct input *input, int32_t d,
                           int64_t *size);

/* ---- sizes.c ---- */
int64_t sizes_default(const struct inputs *inputs, enum dim_class class);
int64_t sizes_of_symbol(const struct inputs *inputs, const struct symbol *symbol);
/* Larger than the usual ones, or asked for by an operator: there may be no memory for them. */
bool sizes_are_large(const struct sizes *sizes);
/* The next sizes to try, after a failure; false where there are none. */
bool sizes_next(struct inputs *inputs, const struct tool_error *failure);
/* Adds to the recorded error what is to be given. */
void sizes_explain(const struct inputs *inputs);

/* ---- explain.c ---- */
/* Puts the error recorded last, of a plan (`run`: of a run) with these inputs, in the words of
 * the file and of the user who gave the inputs. */
void explain_failure(const struct inputs *inputs, bool run);

/* ---- trace.c: rows of the smallest table that the values of an input index; 0: none
 * ---- */
attnrun_status trace_table_rows(const struct inputs *inputs, const char *name,
                                int64_t *rows, char *table, size_t bytes);

/* ---- make_up.c, given.c ---- */
attnrun_status make_up_shape(struct inputs *inputs, struct input *input);
attnrun_status make_up_data(struct inputs *inputs, struct input *input);
attnrun_status give_inputs(struct inputs *inputs);
/* The '=' of NAME=VALUE, where names may hold one: the last that follows a known name, else
 * the first; NULL: there is none. */
const char *inputs_equals(const struct inputs *inputs, const char *text,
                          bool (*is_known)(const struct inputs *, const char *, size_t));
attnrun_status check_fit(const struct input *input, const attnrun_tensor *tensor);
/* NumPy has no bf16, f8 or i4: values of such a type that come as the wider one become it. */
attnrun_status given_narrow(struct held *held, int32_t wanted);

/* Finds sizes for the inputs that are made up, plans, fills them and binds all to the
 * context. */
attnrun_status inputs_fit(struct inputs *inputs, attnrun_context *context,
                          attnrun_plan_info *plan);
/* What the model takes with inputs of these shapes, and with these states. */
attnrun_status inputs_need(struct inputs *inputs, const attnrun_state_pair *states,
                           int64_t n_states, attnrun_model_need *need);

#endif
