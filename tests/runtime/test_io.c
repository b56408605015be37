/* test_io.c - reading and mapping files, calls that fail, and paths that a model must not
 * reach. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io.h"

enum { MAX = 1 << 20 };
static const struct attn_file_limit limit = { MAX, ATTN_LIMIT_EXTERNAL_BYTES };

/* root/secret.bin; root/model/{w.bin,sub/v.bin,...}: `model` is where models may look. */
struct place {
    char root[64], model[96];
    struct attn_memory *memory;
    struct attn_io saved;
};

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static int run_in(const char *dir, const char *command)
{
    char line[400];
    snprintf(line, sizeof line, "cd '%s' && %s", dir, command);
    return system(line);
}

static int set_up(void **state)
{
    static struct place place;
    strcpy(place.root, "/tmp/attnrun_io_XXXXXX");
    if (mkdtemp(place.root) == NULL)
        return 1;
    snprintf(place.model, sizeof place.model, "%s/model", place.root);
    if (run_in(place.root, "mkdir -p model/sub model_evil && ln -s .. model/up && "
                           "ln -s sub model/inner && mkfifo model/fifo") != 0)
        return 1;
    write_file(place.root, "secret.bin", "secret");
    write_file(place.model, "w.bin", "weights");
    write_file(place.model, "empty.bin", "");
    write_file(place.model, "sub/v.bin", "inner");
    write_file(place.model, "sub/..x", "dots");
    if (run_in(place.root, "ln -s ../secret.bin model/link.bin && "
                           "ln -s w.bin model/near.bin && ln -s /dev/zero model/zero && "
                           "ln secret.bin model/hard.bin && "
                           "cp secret.bin model_evil/w.bin") != 0)
        return 1;
    place.memory = attn_memory_create(NULL, MAX);
    place.saved = attn_io;
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    attn_io = place->saved;
    attn_memory_destroy(place->memory);
    return run_in("/", "true") != 0 ||
           run_in(place->root, "rm -rf model model_evil *.bin") ||
           rmdir(place->root) != 0;
}

static attn_status open_beneath(struct place *place, const char *location)
{
    struct attn_file file;
    attn_status status = attn_file_open_beneath(place->memory, place->model, location,
                                                limit, false, &file);
    if (status == ATTNRUN_OK)
        attn_file_close(place->memory, &file);
    return status;
}

static void test_beneath_opens_plain_files(void **state)
{
    struct place *place = *state;
    for (int copy = 0; copy < 2; copy++) {
        struct attn_file file;
        assert_int_equal(attn_file_open_beneath(place->memory, place->model, "sub/v.bin",
                                                limit, copy != 0, &file),
                         ATTNRUN_OK);
        assert_int_equal(file.bytes, 5);
        assert_memory_equal(file.data, "inner", 5);
        assert_int_equal(file.mapped, copy == 0);
        attn_file_close(place->memory, &file);
    }
    assert_int_equal(open_beneath(place, "w.bin"), ATTNRUN_OK);
    assert_int_equal(open_beneath(place, "./w.bin"), ATTNRUN_OK);
    assert_int_equal(open_beneath(place, "./sub/./v.bin"), ATTNRUN_OK);
    assert_int_equal(open_beneath(place, "sub/..x"),
                     ATTNRUN_OK); /* a name, not a way up */
    assert_int_equal(open_beneath(place, "empty.bin"), ATTNRUN_OK);
}

static void test_beneath_refuses_ways_out(void **state)
{
    static const char *const locations[] = {
        "",
        "/",
        "/etc/passwd",
        "..",
        "../secret.bin",
        "sub/../../secret.bin",
        "sub/../w.bin",
        "../model/w.bin",
        "../model_evil/w.bin",
        ".",
        "./",
        "sub",
        "sub/",
        "sub/.",
        "sub//v.bin",
        "w.bin/",
        "link.bin",
        "near.bin",
        "up/secret.bin",
        "up/model/w.bin",
        "inner/v.bin",
        "hard.bin",
        "fifo",
        "zero",
        "w.bin/x", /* a file where a directory is needed */
    };
    struct place *place = *state;
    char absolute[128], longest[600];
    for (size_t i = 0; i < sizeof locations / sizeof *locations; i++)
        if (open_beneath(place, locations[i]) != ATTNRUN_E_PATH)
            fail_msg("'%s' gave: %s", locations[i], attnrun_last_error()->message);
    snprintf(absolute, sizeof absolute, "%s/w.bin", place->model);
    assert_int_equal(open_beneath(place, absolute), ATTNRUN_E_PATH);
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(open_beneath(place, longest), ATTNRUN_E_PATH);
    assert_int_equal(open_beneath(place, NULL), ATTNRUN_E_PATH);
    assert_int_equal(open_beneath(place, "missing.bin"), ATTNRUN_E_IO);
    assert_int_equal(open_beneath(place, "missing/w.bin"), ATTNRUN_E_IO);
}

/* Whatever opens lies beneath the directory. */
static void test_random_paths_stay_beneath(void **state)
{
    static const char *const parts[] = { "..",       ".",         "",      "sub",
                                         "up",       "..x",       "inner", "w.bin",
                                         "v.bin",    "link.bin",  "fifo",  "model",
                                         "hard.bin", "secret.bin" };
    struct place *place = *state;
    uint64_t seed = 1;
    int opened = 0;
    for (int turn = 0; turn < 20000; turn++) {
        char location[128] = "", path[256], real[PATH_MAX], base[PATH_MAX];
        int n = 1 + (int)random_below(&seed, 5);
        for (int i = 0; i < n; i++) {
            if (i > 0 || random_below(&seed, 20) == 0)
                strcat(location, "/");
            strcat(location, parts[random_below(&seed, sizeof parts / sizeof *parts)]);
        }
        if (open_beneath(place, location) != ATTNRUN_OK)
            continue;
        opened++;
        snprintf(path, sizeof path, "%s/%s", place->model, location);
        assert_non_null(realpath(place->model, base));
        assert_non_null(realpath(path, real));
        if (strncmp(real, base, strlen(base)) != 0 || real[strlen(base)] != '/')
            fail_msg("'%s' opened %s", location, real);
    }
    assert_true(opened > 100);
}

/* The directory itself is the caller's: it may be a link. */
static void test_directory_may_be_a_link(void **state)
{
    struct place *place = *state;
    struct attn_file file;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/inner", place->model);
    assert_int_equal(
        attn_file_open_beneath(place->memory, dir, "v.bin", limit, true, &file),
        ATTNRUN_OK);
    attn_file_close(place->memory, &file);
}

/* The file is swapped for a link between the walk and the look at it: what was opened
 * counts.
 */
static char swap_command[300];
static int swapping_fstat(int fd, struct stat *st)
{
    if (system(swap_command) != 0)
        return -1;
    return fstat(fd, st);
}

static void test_swapped_file_is_not_followed(void **state)
{
    struct place *place = *state;
    struct attn_file file;
    snprintf(swap_command, sizeof swap_command,
             "cd '%s' && mv w.bin kept.bin && ln -s ../secret.bin w.bin", place->model);
    attn_io.fstat = swapping_fstat;
    assert_int_equal(
        attn_file_open_beneath(place->memory, place->model, "w.bin", limit, true, &file),
        ATTNRUN_OK);
    assert_memory_equal(file.data, "weights", 7);
    attn_file_close(place->memory, &file);
    attn_io.fstat = place->saved.fstat;
    assert_int_equal(open_beneath(place, "w.bin"), ATTNRUN_E_PATH); /* now it is a link */
}

static attn_status open_named(struct place *place, const char *name, int64_t max,
                              bool copy, struct attn_file *file)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", place->model, name);
    const struct attn_file_limit most = { max, ATTN_LIMIT_FILE_BYTES };
    return attn_file_open(place->memory, path, most, copy, file);
}

static void test_open_maps_or_reads(void **state)
{
    struct place *place = *state;
    struct attn_memory_counts counts;
    struct attn_file file;
    assert_int_equal(open_named(place, "w.bin", MAX, true, &file), ATTNRUN_OK);
    assert_memory_equal(file.data, "weights", 7);
    attn_memory_counts(place->memory, &counts);
    assert_int_equal(counts.kind_bytes[ATTN_MEM_WEIGHTS], 7);
    attn_file_close(place->memory, &file);
    assert_int_equal(open_named(place, "link.bin", MAX, false, &file), ATTNRUN_OK);
    attn_memory_counts(place->memory, &counts);
    assert_int_equal(counts.used_bytes, 0); /* mapped pages are outside the budget */
    attn_file_drop(&file, file.data, file.bytes);
    assert_memory_equal(file.data, "secret", 6);
    attn_file_close(place->memory, &file);
    assert_int_equal(open_named(place, "empty.bin", MAX, false, &file), ATTNRUN_OK);
    assert_int_equal(file.bytes, 0);
    assert_non_null(file.data);
    attn_file_close(place->memory, &file);
}

static void test_open_says_why_not(void **state)
{
    struct place *place = *state;
    struct attn_file file;
    assert_int_equal(open_named(place, "missing", MAX, false, &file), ATTNRUN_E_IO);
    assert_non_null(strstr(attnrun_last_error()->message, "No such file"));
    assert_int_equal(open_named(place, "sub", MAX, false, &file), ATTNRUN_E_IO);
    assert_non_null(strstr(attnrun_last_error()->message, "a directory"));
    assert_int_equal(open_named(place, "fifo", MAX, false, &file), ATTNRUN_E_IO);
    assert_int_equal(open_named(place, "zero", MAX, true, &file), ATTNRUN_E_IO);
    assert_int_equal(open_named(place, "w.bin", 7, true, &file), ATTNRUN_OK);
    attn_file_close(place->memory, &file);
    assert_int_equal(open_named(place, "w.bin", 6, true, &file), ATTNRUN_E_LIMIT);
}

/* ---- calls that fail ---- */
static int countdown; /* the call that fails; each injected call counts down */
static int open_fds;

static bool fails_now(void)
{
    if (--countdown != 0)
        return false;
    errno = EIO;
    return true;
}

static int failing_open(const char *path, int flags, int mode)
{
    int fd = fails_now() ? -1 : open(path, flags, mode);
    open_fds += fd >= 0;
    return fd;
}
static int failing_openat(int dir, const char *path, int flags)
{
    int fd = fails_now() ? -1 : openat(dir, path, flags);
    open_fds += fd >= 0;
    return fd;
}
static int failing_fstat(int fd, struct stat *st)
{
    return fails_now() ? -1 : fstat(fd, st);
}
static ssize_t failing_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    return fails_now() ? -1 : pread(fd, buffer, bytes > 2 ? 2 : bytes, offset);
}
static void *failing_mmap(size_t bytes, int fd)
{
    return fails_now() ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
}
static int counting_close(int fd)
{
    open_fds--;
    return close(fd);
}

static void test_every_failing_call_is_reported(void **state)
{
    struct place *place = *state;
    attn_io =
        (struct attn_io){ failing_open, failing_openat, failing_fstat,  failing_pread,
                          failing_mmap, munmap,         counting_close, NULL };
    for (int copy = 0; copy < 2; copy++) {
        attn_status status = ATTNRUN_E_IO;
        for (int call = 1; status != ATTNRUN_OK; call++) {
            struct attn_file file;
            countdown = call;
            assert_in_range(call, 1, 20);
            status = attn_file_open_beneath(place->memory, place->model, "sub/v.bin",
                                            limit, copy != 0, &file);
            assert_int_equal(open_fds, 0);
            if (status == ATTNRUN_OK) {
                assert_memory_equal(file.data, "inner", 5); /* after short reads */
                attn_file_close(place->memory, &file);
            } else {
                assert_int_equal(status, ATTNRUN_E_IO);
            }
        }
    }
    struct attn_memory_counts counts;
    attn_memory_counts(place->memory, &counts);
    assert_int_equal(counts.used_bytes, 0);
}

static int interruptions;
static ssize_t interrupted_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    if (interruptions-- > 0) {
        errno = EINTR;
        return -1;
    }
    return pread(fd, buffer, bytes, offset);
}

static ssize_t shrunk_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    return offset >= 3 ? 0 : pread(fd, buffer, bytes > 3 ? 3 : bytes, offset);
}

static void test_reads_survive_signals_but_not_shrinking(void **state)
{
    struct place *place = *state;
    struct attn_file file;
    attn_io.pread = interrupted_pread;
    interruptions = 3;
    assert_int_equal(open_named(place, "w.bin", MAX, true, &file), ATTNRUN_OK);
    assert_memory_equal(file.data, "weights", 7);
    attn_file_close(place->memory, &file);
    attn_io.pread = shrunk_pread;
    assert_int_equal(open_named(place, "w.bin", MAX, true, &file), ATTNRUN_E_IO);
    assert_non_null(strstr(attnrun_last_error()->message, "ended at byte 3"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_beneath_opens_plain_files),
        TEST(test_beneath_refuses_ways_out),
        TEST(test_random_paths_stay_beneath),
        TEST(test_directory_may_be_a_link),
        TEST(test_swapped_file_is_not_followed),
        TEST(test_open_maps_or_reads),
        TEST(test_open_says_why_not),
        TEST(test_every_failing_call_is_reported),
        TEST(test_reads_survive_signals_but_not_shrinking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
