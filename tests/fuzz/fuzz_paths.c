/* fuzz_paths.c - external data of models in random trees of files, links, pipes and sockets.
 *
 * usage: fuzz_paths [--seconds N] [--seed N] [--only N]
 *
 * A case is a seed: a tree on the disk (tree.h), and a model of one to three tensors whose bytes
 * are in files of it. In a third of the cases an entry of the tree is replaced while the model is
 * opened. It is wrong when
 *   - the status is another one than the rules give (where nothing is replaced), or a sentence is
 *     missing or has control characters;
 *   - a tensor has other bytes than the file that the rules give, or, where an entry is replaced,
 *     bytes of a file outside of the folder that had no second name in it: one whose second name
 *     goes away between open and fstat is as any other;
 *   - memory, or a file, is held afterwards.
 * Cases run in child processes (children.h). Exit code 1 where one is a finding. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../loaders/pb_write.h"
#include "../runtime/harness.h"
#include "children.h"
#include "io.h"
#include "tree.h"

enum { TENSORS = 3, WANTED = 8 /* bytes of a tensor, two floats */ };

static void one_case(struct fuzz_progress *progress);
static struct fuzz_cases cases = {
    .seconds = 20, .seed = 1, .bytes = sizeof(struct fuzz_progress), .one_case = one_case
};

struct place {
    char location[TREE_LOCATION];
    int64_t offset, length; /* -1: not given */
    int entry;
};

struct paths_case {
    uint64_t seed;
    struct fuzz_random r;
    struct tree tree;
    struct place places[TENSORS];
    int n;
    attnrun_status expected; /* where nothing is replaced */
};

static struct paths_case the_case;

_Noreturn static void wrong(const struct paths_case *c, const char *what)
{
    fprintf(stderr, "seed %" PRIu64 ": %s\n", c->seed, what);
    for (int i = 0; i < c->n; i++)
        fprintf(stderr, "  location '%s', offset %" PRId64 ", length %" PRId64 "\n",
                c->places[i].location, c->places[i].offset, c->places[i].length);
    abort();
}

/* ---- another program at work while a model is opened ---- */

static int (*openat_any)(int dir, const char *path, int flags);
static int (*fstat_any)(int fd, struct stat *st);
static int64_t disturb_at; /* the call from now on after which it acts; below 0: never */

static void count_call(void)
{
    if (disturb_at-- == 0)
        tree_disturb(&the_case.tree, &the_case.r);
}

static int disturbed_openat(int dir, const char *path, int flags)
{
    const int fd = openat_any(dir, path, flags);
    const int error = errno;
    count_call();
    errno = error;
    return fd;
}

static int disturbed_fstat(int fd, struct stat *st)
{
    count_call();
    return fstat_any(fd, st);
}

/* ---- the model ---- */

static void add_number(struct pb *tensor, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    if (value >= 0)
        pb_entry(tensor, 13, key, text);
}

/* y = x + w0 + w1 + ...: each tensor is read. */
static struct pb make_model(const struct paths_case *c)
{
    struct pb graph = { 0 };
    char name[16], from[16] = "x", in[32], out[16];
    for (int i = 0; i < c->n; i++) {
        struct pb tensor = { 0 };
        snprintf(name, sizeof name, "w%d", i);
        pb_int(&tensor, 1, WANTED / 4);
        pb_int(&tensor, 2, 1);
        pb_string(&tensor, 8, name);
        pb_entry(&tensor, 13, "location", c->places[i].location);
        add_number(&tensor, "offset", c->places[i].offset);
        add_number(&tensor, "length", c->places[i].length);
        pb_int(&tensor, 14, 1);
        pb_message(&graph, 5, &tensor);
        snprintf(in, sizeof in, "%s,%s", from, name);
        snprintf(out, sizeof out, i + 1 == c->n ? "y" : "s%d", i);
        pb_add_node(&graph, 1, "", "Add", in, out);
        memcpy(from, out, sizeof from);
    }
    pb_value(&graph, 11, "x", WANTED / 4);
    pb_value(&graph, 12, "y", WANTED / 4);
    return pb_model(&graph);
}

/* What one tensor must give. */
static attnrun_status expect(const struct paths_case *c, struct place *p)
{
    if (p->location[0] == 0)
        return ATTNRUN_E_MODEL;
    if (p->location[0] == '*' || strlen(p->location) > 4095)
        return ATTNRUN_E_PATH;
    const attnrun_status status = tree_expect(&c->tree, p->location, &p->entry);
    if (status != ATTNRUN_OK)
        return status;
    const int64_t bytes = c->tree.entries[p->entry].bytes;
    const int64_t offset = p->offset < 0 ? 0 : p->offset;
    if (offset > bytes || WANTED > bytes - offset)
        return ATTNRUN_E_IO;
    return p->length >= 0 && p->length != WANTED ? ATTNRUN_E_MODEL : ATTNRUN_OK;
}

static void make_case(struct paths_case *c, struct fuzz_random *r)
{
    tree_make(&c->tree, r);
    c->n = 1 + (int)fuzz_below(r, fuzz_chance(r, 70) ? 1 : TENSORS);
    for (int i = 0; i < c->n; i++) {
        struct place *p = &c->places[i];
        tree_location(&c->tree, r, p->location);
        p->offset = fuzz_chance(r, 50) ? -1 : fuzz_below(r, 64);
        p->length = fuzz_chance(r, 70) ? -1 : WANTED;
        if (fuzz_chance(r, 4))
            p->offset = INT64_MAX - fuzz_below(r, 16);
        if (fuzz_chance(r, 4))
            p->length = fuzz_below(r, 20);
        if (i > 0 && fuzz_chance(r, 30)) /* several tensors in a file */
            memcpy(p->location, c->places[0].location, sizeof p->location);
        const attnrun_status status = expect(c, p);
        if (c->expected == ATTNRUN_OK)
            c->expected = status;
    }
}

/* ---- what came of it ---- */

static bool is_utf8(const char *text)
{
    for (const uint8_t *at = (const uint8_t *)text; *at != 0; at++) {
        const int more = *at < 0x80 ? 0 : *at >= 0xc2 && *at < 0xe0 ? 1 : -1;
        if (more < 0 || (more == 1 && (*++at & 0xc0) != 0x80))
            return false; /* the names of a tree have none of three bytes */
    }
    return true;
}

static void check_sentence(const struct paths_case *c, attnrun_status status)
{
    const attnrun_error *error = attnrun_last_error();
    if (status == ATTNRUN_E_INTERNAL || error->status != status || error->message[0] == 0)
        wrong(c, error->message);
    for (const char *at = error->message; *at != 0; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            wrong(c, "a sentence with a control character");
}

static void check_bytes(const struct paths_case *c, attnrun_model *model, bool disturbed)
{
    char name[16];
    for (int i = 0; i < c->n; i++) {
        const struct place *p = &c->places[i];
        attnrun_value_info info = { .struct_size = sizeof info };
        snprintf(name, sizeof name, "w%d", i);
        if (attnrun_model_value(model, name, &info) != ATTNRUN_OK ||
            info.constant == NULL)
            wrong(c, "a tensor has no bytes");
        const uint8_t *got = info.constant->data;
        for (int64_t k = 0; k < WANTED; k++) {
            if ((got[k] & 0x80) && !(disturbed && tree_links_secret(&c->tree)))
                wrong(c, "bytes of a file outside of the folder");
            if (!disturbed && got[k] != tree_byte(c->tree.entries[p->entry].content,
                                                  (p->offset < 0 ? 0 : p->offset) + k))
                wrong(c, "other bytes than those of the file");
        }
    }
}

static attnrun_status open_model_of(struct paths_case *c, const struct pb *pb,
                                    uint32_t flags, bool disturbed)
{
    struct test_memory memory;
    attnrun_runtime *runtime = NULL;
    attnrun_model *model = NULL;
    test_memory_init(&memory);
    const attnrun_runtime_options made = { .struct_size = sizeof made,
                                           .threads = 1,
                                           .max_memory = 64 << 20,
                                           .allocator = &memory.allocator };
    const attnrun_source source = { .struct_size = sizeof source,
                                    .flags = flags,
                                    .data = pb->data,
                                    .bytes = pb->bytes,
                                    .external_dir = c->tree.base };
    if (attnrun_runtime_create(&made, &runtime) != ATTNRUN_OK)
        wrong(c, "no runtime");
    disturb_at = disturbed ? fuzz_below(&c->r, 8) : -1;
    const attnrun_status status = attnrun_model_open(runtime, &source, &model);
    disturb_at = -1;
    if (status == ATTNRUN_OK)
        check_bytes(c, model, disturbed);
    else
        check_sentence(c, status);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    if (atomic_load(&memory.live_blocks) != 0 || atomic_load(&memory.faults) != 0)
        wrong(c, "memory is held, or a block was written behind its end");
    return status;
}

static int lowest_free(void)
{
    const int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

static void one_case(struct fuzz_progress *progress)
{
    struct paths_case *c = &the_case;
    struct fuzz_random r = { progress->seed };
    const struct tree tree = c->tree; /* its root */
    memset(c, 0, sizeof *c);
    c->tree = tree;
    c->seed = progress->seed;
    c->r.state = fuzz_next(&r);
    tree_remove(&c->tree, false); /* that of a case before, which may have failed */
    make_case(c, &r);
    const bool disturbed = fuzz_chance(&r, 33);
    struct pb pb = make_model(c);
    const int lowest = lowest_free();
    const attnrun_status status =
        open_model_of(c, &pb, fuzz_chance(&r, 50) ? ATTNRUN_COPY : 0, disturbed);
    if (lowest_free() != lowest)
        wrong(c, "a file is open afterwards");
    bool utf8 = true;
    for (int i = 0; i < c->n; i++)
        utf8 = utf8 && is_utf8(c->places[i].location);
    if (!disturbed && status != c->expected && (utf8 || status == ATTNRUN_OK))
        wrong(c, attnrun_status_name(status));
    progress->cases++;
    progress->good += status == ATTNRUN_OK;
    if (cases.only)
        printf("seed %" PRIu64 ": '%s': %s, expected %s%s: %s\n", c->seed,
               c->places[0].location, attnrun_status_name(status),
               attnrun_status_name(c->expected), disturbed ? " without changes" : "",
               status == ATTNRUN_OK ? "" : attnrun_last_error()->message);
    pb_free(&pb);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!fuzz_take_option(&cases, argc, argv, &i)) {
            fprintf(stderr, "usage: fuzz_paths [--seconds N] [--seed N] [--only N]\n");
            return 2;
        }
    if (!tree_root(&the_case.tree))
        return 2;
    openat_any = attn_io.openat;
    fstat_any = attn_io.fstat;
    attn_io.openat = disturbed_openat;
    attn_io.fstat = disturbed_fstat;
    const int code = fuzz_run_cases(&cases, 0);
    tree_remove(&the_case.tree, true);
    return code;
}
