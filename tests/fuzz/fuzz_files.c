/* fuzz_files.c - files of tensors, configurations and packed models, right and almost right,
 * through the readers of the command line.
 *
 * usage: fuzz_files [--seconds N] [--seed N] [--only N] [--save FILE] [CORPUS...]
 *
 * A case is a seed: a file of one KIND, with up to four changes, which is read as the command line
 * reads it, from a path. CORPUS (folders of the ONNX backend form) gives the models of packed
 * files; without it there are none. It is wrong when
 *   - a status is INTERNAL or none of the header, or a sentence is missing or has control
 *     characters;
 *   - what is taken has more bytes than the budget, or its struct is malformed;
 *   - an npy file that is taken and written again is not the same tensor;
 *   - memory, or a file, is held afterwards.
 * Cases run in child processes (children.h). Exit code 1 where one is a finding. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include "../../tools/cli/cli.h"
#include "../../tools/cli/files.h"
#include "../../tools/io/input_limits.h"
#include "../../tools/io/map.h"
#include "../../tools/io/npy.h"
#include "../../tools/io/npz.h"
#include "../runtime/harness.h"
#include "children.h"
#include "files_make.h"
#include "mutate.h"
#include "packed.h"

/* TIMES: free() keeps up to 7 blocks of a size aside, which count as in use. */
enum { BUDGET = 1 << 20, TIMES = 20 };

enum kind { NPY, NPZ, YAML, INLINE, PB, PACKED, KINDS };

/* The commands, for what a configuration may say to each. */
const struct cli_command cli_commands[] = { { .name = "run", .bit = CLI_RUN },
                                            { .name = "check", .bit = CLI_CHECK },
                                            { .name = "plan", .bit = CLI_PLAN },
                                            { .name = "bench", .bit = CLI_BENCH },
                                            { .name = "compare", .bit = CLI_COMPARE },
                                            { .name = "ops", .bit = CLI_OPS },
                                            { .name = NULL } };

static void one_case(struct fuzz_progress *progress);
static void free_corpus(void);
static struct fuzz_cases cases = { .seconds = 20,
                                   .seed = 1,
                                   .bytes = sizeof(struct fuzz_progress),
                                   .one_case = one_case,
                                   .end = free_corpus };
static const char *save_to; /* --save, or NULL */

static struct fuzz_corpus corpus;

struct files_case {
    uint64_t seed;
    struct fuzz_random r; /* of what the reader is asked */
    enum kind kind;
    struct pb file;
    char path[32]; /* of a copy in memory */
    int fd;
    attnrun_status status;
    struct fuzz_case packed;
};

_Noreturn static void wrong(const struct files_case *c, const char *what)
{
    fprintf(stderr, "seed %llu, kind %d: %s\n", (unsigned long long)c->seed, c->kind,
            what);
    abort();
}

static attnrun_status check(struct files_case *c, attnrun_status status)
{
    if (status == ATTNRUN_OK)
        return status;
    c->status = status;
    if (strcmp(attnrun_status_name(status), "UNKNOWN") == 0)
        wrong(c, "a status that the header does not list");
    if (status == ATTNRUN_E_INTERNAL || tool_error.status != status ||
        tool_error.message[0] == 0)
        wrong(c, tool_error.message);
    for (const char *at = tool_error.message; *at != 0; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            wrong(c, "a sentence with a control character");
    return status;
}

/* ---- what was read ---- */

static uint64_t sum_of; /* keeps the compiler from leaving out what reads */

static void look_at(const struct files_case *c, const attnrun_tensor *t)
{
    if (t->rank < 0 || t->rank > ATTNRUN_MAX_RANK ||
        (t->kind == ATTNRUN_TENSOR && attnrun_dtype_bits(t->dtype) == 0))
        wrong(c, "a malformed struct is taken");
    if (t->kind == ATTNRUN_MAP) {
        const attnrun_tensor *keys = map_column(t, 0), *values = map_column(t, 1);
        if (t->rank != 1 || keys->rank != 1 || values->rank != 1 ||
            keys->dims[0] != t->dims[0] || values->dims[0] != t->dims[0])
            wrong(c, "a map with more keys than values, or less");
    }
    sum_of = fuzz_read(&c->packed, t, sum_of);
}

static attnrun_status append(void *user, const void *data, int64_t bytes)
{
    pb_put(user, data, (size_t)bytes);
    return ATTNRUN_OK;
}

/* Written and read again it is the same. */
static void write_again(struct files_case *c, const attnrun_tensor *t)
{
    struct pb file = { 0 };
    struct held again = { 0 };
    if (check(c, npy_write(t, append, &file)) != ATTNRUN_OK ||
        (int64_t)file.bytes != npy_file_bytes(t) ||
        check(c, npy_parse("again", file.data, (int64_t)file.bytes, 0, &again)) !=
            ATTNRUN_OK)
        wrong(c, "what was read cannot be written and read again");
    const attnrun_tensor *got = &again.tensor;
    if (got->dtype != t->dtype || got->rank != t->rank ||
        memcmp(got->dims, t->dims, (size_t)t->rank * sizeof *t->dims) != 0 ||
        fuzz_read(&c->packed, got, 0) != fuzz_read(&c->packed, t, 0))
        wrong(c, "what was read and written again is another tensor");
    held_free(&again);
    pb_free(&file);
}

static void take(struct files_case *c, attnrun_status status, struct held *held)
{
    if (status != ATTNRUN_OK)
        return;
    if (held->tensor.kind == ATTNRUN_TENSOR && held->tensor.dtype != ATTNRUN_STRING &&
        attnrun_tensor_bytes(&held->tensor) > BUDGET)
        wrong(c, "more bytes than the budget");
    look_at(c, &held->tensor);
    if (held->tensor.kind == ATTNRUN_TENSOR && c->kind <= NPZ)
        write_again(c, &held->tensor);
    held_free(held);
}

/* ---- the readers ---- */

static void read_npy(struct files_case *c)
{
    struct held held = { 0 };
    take(c, check(c, npy_read(c->path, BUDGET, &held)), &held);
}

static void read_npz(struct files_case *c)
{
    struct zip zip;
    char key[1024];
    if (check(c, zip_open(&zip, c->path)) != ATTNRUN_OK)
        return;
    for (int64_t i = 0; i < zip.n; i++) {
        struct held held = { 0 };
        if (npz_key(&zip.entries[i], key, sizeof key) && npz_find(&zip, key) == NULL)
            wrong(c, "an entry is not found by its key");
        take(c, check(c, npz_read(&zip, &zip.entries[i], BUDGET, &held)), &held);
    }
    zip_close(&zip);
}

static void read_yaml(struct files_case *c)
{
    const struct tool_limits before = tool_limits;
    struct cli cli = { .command = &cli_commands[fuzz_below(&c->r, 6)] };
    check(c, cli_read_config(&cli, c->path));
    for (int64_t i = 0; i < cli.inputs.n; i++)
        sum_of += strlen(cli.inputs.v[i]);
    cli_free(&cli);
    tool_limits = before;
}

static void read_inline(struct files_case *c)
{
    static const int32_t dtypes[] = { ATTNRUN_F32, ATTNRUN_I64,  ATTNRUN_STRING,
                                      ATTNRUN_U8,  ATTNRUN_BF16, ATTNRUN_I4,
                                      ATTNRUN_C64, ATTNRUN_BOOL, ATTNRUN_F6E2M3 };
    const int32_t dtype = dtypes[fuzz_below(&c->r, 9)];
    const int32_t keys = fuzz_chance(&c->r, 50) ? ATTNRUN_I64 : ATTNRUN_STRING;
    struct held held = { 0 };
    char *text = malloc(c->file.bytes + 1); /* to its last byte */
    if (text == NULL)
        wrong(c, "the fuzz itself has no memory left");
    memcpy(text, c->file.data, c->file.bytes);
    text[c->file.bytes] = 0;
    const attnrun_status status = text[0] == '{'
                                      ? json_parse_map(text, keys, dtype, &held)
                                      : json_parse_tensor(text, dtype, &held);
    take(c, check(c, status), &held);
    free(text);
}

static attnrun_runtime *runtime_of(struct test_memory *memory)
{
    attnrun_runtime *runtime = NULL;
    const attnrun_runtime_options made = { .struct_size = sizeof made,
                                           .threads = 1,
                                           .max_memory = 64 << 20,
                                           .allocator = &memory->allocator };
    return attnrun_runtime_create(&made, &runtime) == ATTNRUN_OK ? runtime : NULL;
}

static void end_runtime(const struct files_case *c, attnrun_runtime *runtime,
                        struct test_memory *memory)
{
    attnrun_runtime_destroy(runtime);
    if (atomic_load(&memory->live_blocks) != 0 || atomic_load(&memory->faults) != 0)
        wrong(c, "memory is held, or a block was written behind its end");
}

static void read_pb(struct files_case *c)
{
    struct test_memory memory;
    struct held held = { 0 };
    test_memory_init(&memory);
    attnrun_runtime *runtime = runtime_of(&memory);
    const int32_t kind = 1 + (int32_t)fuzz_below(&c->r, 6);
    take(c, check(c, file_read_pb(runtime, c->path, kind, &held)), &held);
    end_runtime(c, runtime, &memory);
}

static void read_packed(struct files_case *c)
{
    struct test_memory memory;
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    test_memory_init(&memory);
    attnrun_runtime *runtime = runtime_of(&memory);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .flags = (uint32_t)fuzz_below(&c->r, 2) |
                                             32 * (uint32_t)fuzz_below(&c->r, 2),
                                    .path = c->path,
                                    .timeout_us = 1000000 };
    attnrun_status status = attnrun_model_open(runtime, &source, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    if (status != ATTNRUN_OK)
        check(c, tool_fail_library(status));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    end_runtime(c, runtime, &memory);
}

/* ---- a case ---- */

static bool make_packed(struct files_case *c, struct fuzz_random *r)
{
    struct fuzz_case *p = &c->packed;
    p->seed = c->seed;
    if (!fuzz_mutate(p, r, &corpus, (struct fuzz_changes){ 0 }) || !fuzz_pack(p, r))
        return false;
    pb_put(&c->file, p->model, p->bytes);
    return true;
}

static void make(struct files_case *c, struct fuzz_random *r)
{
    switch (c->kind) {
    case NPY:
        files_make_npy(r, &c->file);
        break;
    case NPZ:
        files_make_npz(r, &c->file);
        break;
    case YAML:
        files_make_yaml(r, &c->file);
        break;
    case INLINE:
        files_make_inline(r, &c->file);
        break;
    case PB: {
        struct fuzz_random kind = c->r; /* mostly the kind that is asked for */
        files_make_pb(r, 1 + (int32_t)fuzz_below(fuzz_chance(r, 90) ? &kind : r, 6),
                      &c->file);
        break;
    }
    default:
        if (!make_packed(c, r))
            c->kind = NPY;
    }
    files_change(r, &c->file);
}

static void save(const struct files_case *c)
{
    FILE *file = save_to != NULL ? fopen(save_to, "wb") : NULL;
    if (file != NULL && fwrite(c->file.data, 1, c->file.bytes, file) != c->file.bytes)
        perror(save_to);
    if (file != NULL)
        fclose(file);
}

static void read_once(struct files_case *c)
{
    static void (*const readers[KINDS])(struct files_case *) = { read_npy,  read_npz,
                                                                 read_yaml, read_inline,
                                                                 read_pb,   read_packed };
    const struct fuzz_random before = c->r;
    const int lowest = dup(c->fd);
    close(lowest);
    readers[c->kind](c);
    const int again = dup(c->fd);
    close(again);
    if (again != lowest)
        wrong(c, "a file is open afterwards");
    c->r = before;
}

/* Bytes of malloc in use: 0 under a sanitizer, which looks itself. MemorySanitizer does not know
 * that mallinfo2() writes what it returns. */
static size_t in_use(void)
{
#if defined __has_feature
#if __has_feature(memory_sanitizer)
    return 0;
#endif
#endif
    return mallinfo2().uordblks;
}

/* What is read several times takes no more memory from one time to the next. */
static void read_case(struct files_case *c)
{
    size_t held = in_use();
    for (int i = 0; i < TIMES; i++) {
        read_once(c);
        const size_t now = in_use();
        if (now <= held)
            return;
        held = now;
    }
    wrong(c, "memory is held afterwards");
}

static void one_case(struct fuzz_progress *progress)
{
    static struct files_case c;
    struct fuzz_random r = { progress->seed };
    memset(&c, 0, sizeof c);
    c.seed = progress->seed;
    c.r.state = fuzz_next(&r);
    c.kind = (enum kind)(fuzz_next(&r) %
                         (corpus.n > 0 && fuzz_chance(&r, 30) ? KINDS : PACKED));
    make(&c, &r);
    if (save_to != NULL)
        save(&c);
    c.fd = memfd_create("fuzz_files", MFD_CLOEXEC);
    if (c.fd < 0 || write(c.fd, c.file.data, c.file.bytes) != (ssize_t)c.file.bytes) {
        perror("memfd");
        exit(2);
    }
    snprintf(c.path, sizeof c.path, "/proc/self/fd/%d", c.fd);
    read_case(&c);
    progress->cases++;
    progress->good += c.status == ATTNRUN_OK;
    if (cases.only)
        printf("seed %llu, kind %d: %s: %s\n", (unsigned long long)c.seed, c.kind,
               attnrun_status_name(c.status),
               c.status == ATTNRUN_OK ? "" : tool_error.message);
    close(c.fd);
    pb_free(&c.file);
    fuzz_case_end(&c.packed);
}

static void free_corpus(void) { fuzz_corpus_free(&corpus); }

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            fuzz_corpus_add(&corpus, argv[i]);
        else if (i + 1 < argc && strcmp(argv[i], "--save") == 0)
            save_to = argv[++i];
        else if (!fuzz_take_option(&cases, argc, argv, &i))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!read_options(argc, argv)) {
        fprintf(stderr, "usage: fuzz_files [--seconds N] [--seed N] [--only N] "
                        "[--save FILE] [CORPUS...]\n");
        return 2;
    }
    const int code = fuzz_run_cases(&cases, corpus.n);
    free_corpus();
    return code;
}
