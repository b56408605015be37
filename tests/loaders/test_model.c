/* test_model.c - whole models: cut at every byte, mutated, reaching for files, of more
 * than 2 GiB; nothing may crash, and nothing may be held afterwards. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fuzz/guard.h"
#include "run_model.h"

enum { MUTANTS = 20000 };

/* x -> Add(w) -> If(cond) {Mul(w)} {Relu} -> f.Neg -> y, with value_info and metadata. */
static struct pb small_model(void)
{
    const float values[3] = { 1, 2, 3 };
    struct pb graph = { 0 }, tensor = pb_f32("w", values, 3), node, attr = { 0 },
              branch = { 0 };
    pb_string(&graph, 2, "small");
    pb_message(&graph, 5, &tensor);
    pb_value(&graph, 11, "x", 3);
    pb_value(&graph, 11, "c", 3);
    pb_value(&graph, 12, "y", 3);
    pb_value(&graph, 13, "a", 3);
    pb_add_node(&graph, 1, "", "Add", "x,w", "a");
    pb_add_node(&graph, 1, "", "ReduceMax", "c", "m");
    pb_add_node(&graph, 1, "", "Greater", "m,m", "cond");
    node = pb_node("", "If", "cond", "b");
    pb_add_node(&branch, 1, "", "Mul", "a,w", "t");
    pb_value(&branch, 12, "t", 3);
    pb_string(&attr, 1, "then_branch");
    pb_int(&attr, 20, 5);
    pb_message(&attr, 6, &branch);
    pb_message(&node, 5, &attr);
    pb_add_node(&branch, 1, "", "Relu", "a", "e");
    pb_value(&branch, 12, "e", 3);
    pb_string(&attr, 1, "else_branch");
    pb_int(&attr, 20, 5);
    pb_message(&attr, 6, &branch);
    pb_message(&node, 5, &attr);
    pb_message(&graph, 1, &node);
    pb_add_node(&graph, 1, "f", "Minus", "b", "y");
    struct pb model = pb_model(&graph), f = { 0 }, property = { 0 };
    pb_string(&f, 1, "Minus");
    pb_string(&f, 10, "f");
    pb_names(&f, 4, "u");
    pb_names(&f, 5, "v");
    pb_opset(&f, 9, "", 18);
    pb_add_node(&f, 7, "", "Neg", "u", "v");
    pb_message(&model, 25, &f);
    pb_string(&property, 1, "key");
    pb_string(&property, 2, "value");
    pb_message(&model, 14, &property);
    return model;
}

static void what_it_tells(void **state)
{
    (void)state;
    struct pb pb = small_model();
    attnrun_model *model = NULL;
    assert_int_equal(open_bytes(pb.data, pb.bytes, 0, &model), ATTNRUN_OK);
    attnrun_model_info info = { .struct_size = sizeof info };
    assert_int_equal(attnrun_model_query(model, &info), ATTNRUN_OK);
    assert_int_equal(info.n_inputs, 2);
    assert_int_equal(info.n_outputs, 1);
    assert_int_equal(info.n_file_nodes, 5);
    assert_int_equal(info.n_functions, 1);
    assert_int_equal(info.n_parameters, 3);
    assert_int_equal(info.weights_bytes, 12);
    assert_int_equal(info.file_bytes, (int64_t)pb.bytes);
    assert_int_equal(info.ir_version, 8);
    assert_string_equal(info.graph_name, "small");
    assert_string_equal(info.domain, "");
    assert_string_equal(info.graph_doc, "");
    assert_int_equal(info.model_version, INT64_MAX);
    const char *key, *value;
    assert_int_equal(attnrun_model_metadata(model, 0, &key, &value), ATTNRUN_OK);
    assert_string_equal(key, "key");
    assert_string_equal(value, "value");
    attnrun_model_release(model);
    pb_free(&pb);
}

/* A copy that ends at a page which nobody may touch; for guard_free(). */
static uint8_t *at_an_end(const void *data, size_t bytes)
{
    uint8_t *copy = guard_alloc(bytes, 1);
    assert_non_null(copy);
    return memcpy(copy, data, bytes);
}

static void cut_at_every_byte(void **state)
{
    (void)state;
    struct pb pb = small_model();
    assert_int_equal(try_bytes(pb.data, pb.bytes, 0), ATTNRUN_OK);
    for (size_t n = 0; n < pb.bytes; n++) {
        uint8_t *cut = at_an_end(pb.data, n);
        attnrun_status status = try_bytes(n > 0 ? cut : pb.data, n, 0);
        int32_t code = attnrun_status_exit(status);
        assert_true(code == 0 || code == 3 || code == 4);
        assert_true(guard_free(cut, n, 1));
    }
    pb_free(&pb);
}

static void mutants(void **state)
{
    (void)state;
    struct pb pb = small_model();
    uint64_t seed = 20260727;
    uint8_t *bytes = at_an_end(pb.data, pb.bytes);
    int opened = 0;
    for (int k = 0; k < MUTANTS; k++) {
        memcpy(bytes, pb.data, pb.bytes);
        for (int64_t m = 1 + random_below(&seed, 3); m > 0; m--) {
            size_t at = (size_t)random_below(&seed, (int64_t)pb.bytes);
            if (random_below(&seed, 2) == 0)
                bytes[at] = (uint8_t)random_below(&seed, 256);
            else
                bytes[at] ^= (uint8_t)(1u << random_below(&seed, 8));
        }
        uint32_t flags = (uint32_t)random_below(&seed, 32);
        opened += try_bytes(bytes, pb.bytes, flags) == ATTNRUN_OK;
    }
    assert_true(opened > 0 && opened < MUTANTS);
    assert_true(guard_free(bytes, pb.bytes, 1));
    pb_free(&pb);
}

/* ---- files that are no models ---- */

#define FILE_OF(text, words) { text, sizeof(text) - 1, words }
#define BYTES_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
/* Each is as short as can be: without its last byte it is something else. */
static const struct other_file {
    const char *bytes;
    size_t n;
    const char *words;
} other_files[] = {
    FILE_OF("version https://git-lfs", "a Git LFS pointer"),
    FILE_OF("\x93NUMPY", "a NumPy array"),
    FILE_OF("GGUF", "a GGUF file"),
    FILE_OF("\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
    FILE_OF("\x1f\x8b", "a gzip archive"),
    FILE_OF(BYTES_64 BYTES_64 BYTES_64 BYTES_64 "0ustar", "a tar archive"),
    FILE_OF("\x89PNG", "a PNG image"),
    FILE_OF("\xff\xd8\xff", "a JPEG image"),
    FILE_OF("<html", "an HTML page"),
    FILE_OF("<!DocType HTML", "an HTML page"),
    FILE_OF("\xef\xbb\xbf \r\n\t<HTML", "an HTML page"),
    FILE_OF("<?xml", "an XML file"),
    FILE_OF("PK\3\4and the 26 bytes of a head", "a zip archive"),
    FILE_OF("PK\3\4and the head, then a data.pkl", "a PyTorch file"),
    FILE_OF("PK\3\4and the head, then a name.npy", "a NumPy archive"),
    FILE_OF("\2\0\0\0\0\0\0\0{}", "a safetensors file"),
    FILE_OF("\5\0\0\0\0\0\0\0{\"\":", NULL), /* longer than the file */
};

static void other_files_are_named(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof other_files / sizeof *other_files; k++) {
        const struct other_file *file = &other_files[k];
        for (size_t cut = 0; cut < 2; cut++) {
            const size_t n = file->n - cut;
            uint8_t *bytes = at_an_end(file->bytes, n);
            assert_int_equal(attnrun_status_exit(try_bytes(bytes, n, 0)), 3);
            const char *said = attnrun_last_error()->message;
            const bool named = file->words != NULL
                                   ? strstr(said, file->words) != NULL
                                   : strstr(said, "expected an ONNX model") != NULL;
            if (named != (cut == 0 && file->words != NULL))
                fail_msg("file %zu without %zu bytes: '%s'", k, cut, said);
            assert_true(guard_free(bytes, n, 1));
        }
    }
}

/* Text, as far as is looked. */
static void text_is_named(void **state)
{
    (void)state;
    char text[600];
    for (size_t n = 1; n <= sizeof text; n += n < 20 ? 1 : 29) {
        for (int control = 0; control < 2; control++) {
            memset(text, 'l', sizeof text); /* the end of a group: no model begins so */
            if (control)
                text[n - 1] = 127;
            uint8_t *bytes = at_an_end(text, n);
            assert_int_equal(attnrun_status_exit(try_bytes(bytes, n, 0)), 3);
            assert_int_equal(strstr(attnrun_last_error()->message, "a text file") != NULL,
                             !control || n > 512);
            assert_true(guard_free(bytes, n, 1));
        }
    }
}

/* ---- an allocator that says no ---- */

static struct {
    int64_t calls, fail_at; /* -1: never */
    bool stay;              /* all later calls fail too */
    int64_t held;
} failing;

static void *failing_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    int64_t call = failing.calls++;
    if (failing.fail_at >= 0 &&
        (call == failing.fail_at || (failing.stay && call > failing.fail_at)))
        return NULL;
    void *block = NULL;
    if (posix_memalign(&block, align < sizeof block ? sizeof block : align, bytes) != 0)
        return NULL;
    failing.held++;
    return block;
}

static void failing_free(void *user, void *block, size_t bytes)
{
    (void)user;
    (void)bytes;
    failing.held -= block != NULL;
    free(block);
}

static attnrun_status open_with_failure(const struct pb *pb, uint32_t flags,
                                        int64_t fail_at, bool stay)
{
    attnrun_allocator allocator = { .struct_size = sizeof allocator,
                                    .alloc = failing_alloc,
                                    .free = failing_free };
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = 1,
                                        .allocator = &allocator };
    attnrun_runtime *runtime = NULL;
    attnrun_model *model = NULL;
    failing.fail_at = -1;
    assert_int_equal(attnrun_runtime_create(&options, &runtime), ATTNRUN_OK);
    attnrun_source source = {
        .struct_size = sizeof source, .flags = flags, .data = pb->data, .bytes = pb->bytes
    };
    failing.calls = 0;
    failing.fail_at = fail_at;
    failing.stay = stay;
    attnrun_status status = attnrun_model_open(runtime, &source, &model);
    failing.fail_at = -1;
    if (status == ATTNRUN_OK)
        attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    assert_int_equal(failing.held, 0);
    return status;
}

/* The n-th allocation fails, once or for ever: an error or, where the failure can be
 * lived with, a model; and nothing is left. */
static void no_memory(void **state)
{
    (void)state;
    struct pb pb = small_model();
    for (uint32_t flags = 0; flags <= ATTNRUN_COPY; flags++) {
        assert_int_equal(open_with_failure(&pb, flags, -1, false), ATTNRUN_OK);
        int64_t calls = failing.calls;
        assert_true(calls > 5);
        for (int64_t n = 0; n < calls; n++)
            for (int stay = 0; stay <= 1; stay++) {
                attnrun_status status = open_with_failure(&pb, flags, n, stay != 0);
                if (status != ATTNRUN_E_MEMORY && status != ATTNRUN_OK)
                    fail_msg("call %d fails: %s", (int)n, attnrun_last_error()->message);
            }
    }
    pb_free(&pb);
}

/* Weights too large to be copied at load, at every address modulo 4. */
static void weights_at_odd_addresses(void **state)
{
    (void)state;
    enum { N = 20000 };
    static float w[N], x[N], y[N];
    for (int k = 0; k < N; k++) {
        w[k] = (float)(k % 97) + 0.5f;
        x[k] = (float)(k % 31) - 7;
    }
    for (size_t shift = 0; shift < 4; shift++) {
        struct pb graph = { 0 }, tensor = pb_f32("w", w, N);
        pb_bytes(&graph, 2, "name", shift);
        pb_message(&graph, 5, &tensor);
        pb_value(&graph, 11, "x", N);
        pb_value(&graph, 12, "y", N);
        pb_add_node(&graph, 1, "", "Neg", "w", "v"); /* folded */
        pb_add_node(&graph, 1, "", "Mul", "x,w", "a");
        pb_add_node(&graph, 1, "", "Add", "a,v", "y");
        struct pb model = pb_model(&graph);
        assert_int_equal(run_model(&model, 0, x, N, y), ATTNRUN_OK);
        for (int k = 0; k < N; k++)
            if (y[k] != x[k] * w[k] - w[k])
                fail_msg("shift %zu, element %d: %g", shift, k, (double)y[k]);
    }
}

static void wrong_calls(void **state)
{
    (void)state;
    static const char *const names[] = { "a", NULL };
    attnrun_source source = { .struct_size = sizeof source };
    attnrun_model *model = NULL;
    assert_int_equal(attnrun_model_open(test_runtime, NULL, &model), ATTNRUN_E_USAGE);
    assert_int_equal(attnrun_model_open(test_runtime, &source, &model), ATTNRUN_E_USAGE);
    source.path = "/nonexistent/model.onnx";
    assert_int_equal(attnrun_model_open(test_runtime, &source, &model), ATTNRUN_E_IO);
    assert_int_equal(attnrun_model_open(test_runtime, &source, NULL), ATTNRUN_E_USAGE);
    source.data = "x";
    assert_int_equal(attnrun_model_open(test_runtime, &source, &model), ATTNRUN_E_USAGE);
    struct pb pb = small_model();
    source.path = NULL;
    source.data = pb.data;
    source.bytes = pb.bytes;
    source.more_outputs = names;
    source.n_more_outputs = 2;
    assert_int_equal(attnrun_model_open(test_runtime, &source, &model), ATTNRUN_E_USAGE);
    assert_non_null(strstr(attnrun_last_error()->message, "more_outputs[1] is NULL"));
    pb_free(&pb);
    assert_null(model);
}

static struct pb versioned(int64_t ir, int64_t opset)
{
    struct pb graph = { 0 }, model = { 0 };
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "y", 2);
    pb_add_node(&graph, 1, "", "Relu", "x", "y");
    pb_int(&model, 1, ir);
    if (opset > 0)
        pb_opset(&model, 8, "ai.onnx", opset);
    pb_message(&model, 7, &graph);
    return model;
}

static void versions(void **state)
{
    (void)state;
    static const struct {
        int64_t ir, opset;
        uint32_t flags;
        attnrun_status status;
    } cases[] = {
        { 3, 7, 0, ATTNRUN_OK },
        { 14, 28, 0, ATTNRUN_OK },
        { 15, 28, 0, ATTNRUN_E_VERSION },
        { 14, 29, 0, ATTNRUN_E_VERSION },
        { 15, 29, ATTNRUN_ALLOW_NEWER, ATTNRUN_OK },
        { 2, 7, 0, ATTNRUN_E_VERSION },
        { 0, 7, 0, ATTNRUN_E_MODEL },
        { 8, 0, 0, ATTNRUN_E_MODEL },
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct pb pb = versioned(cases[k].ir, cases[k].opset);
        assert_int_equal(try_bytes(pb.data, pb.bytes, cases[k].flags), cases[k].status);
        pb_free(&pb);
    }
}

/* ---- external data ---- */

static struct pb external_model(const char *location, const char *offset,
                                const char *length)
{
    struct pb graph = { 0 }, tensor = { 0 };
    pb_int(&tensor, 1, 2);
    pb_int(&tensor, 2, 1);
    pb_string(&tensor, 8, "w");
    if (location != NULL)
        pb_entry(&tensor, 13, "location", location);
    if (offset != NULL)
        pb_entry(&tensor, 13, "offset", offset);
    if (length != NULL)
        pb_entry(&tensor, 13, "length", length);
    pb_entry(&tensor, 13, "checksum", "ignored");
    pb_int(&tensor, 14, 1);
    pb_message(&graph, 5, &tensor);
    pb_value(&graph, 11, "x", 2);
    pb_value(&graph, 12, "y", 2);
    pb_add_node(&graph, 1, "", "Add", "x,w", "y");
    return pb_model(&graph);
}

static attnrun_status open_external(const char *dir, const char *location,
                                    const char *offset, const char *length,
                                    uint32_t flags)
{
    struct pb pb = external_model(location, offset, length);
    uint64_t before = memory_in_use();
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = flags,
                              .data = pb.data,
                              .bytes = pb.bytes,
                              .external_dir = dir };
    attnrun_model *model = NULL;
    attnrun_status status = attnrun_model_open(test_runtime, &source, &model);
    if (status == ATTNRUN_OK) {
        attnrun_value_info info = { .struct_size = sizeof info };
        assert_int_equal(attnrun_model_value(model, "w", &info), ATTNRUN_OK);
        assert_non_null(info.constant);
        const float expected[2] = { 5, 6 };
        assert_memory_equal(info.constant->data, expected, sizeof expected);
        attnrun_model_release(model);
    }
    assert_int_equal(memory_in_use(), before);
    pb_free(&pb);
    return status;
}

static void write_floats(const char *dir, const char *name)
{
    const float values[4] = { 0, 5, 6, 7 };
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(values, sizeof values, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void external_data(void **state)
{
    (void)state;
    char root[] = "/tmp/attnrun-loaders-XXXXXX", dir[64], path[128];
    assert_non_null(mkdtemp(root));
    snprintf(dir, sizeof dir, "%s/model", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    write_floats(root, "secret.bin");
    write_floats(dir, "w.bin");
    snprintf(path, sizeof path, "%s/link.bin", dir);
    assert_int_equal(symlink("../secret.bin", path), 0);
    snprintf(path, sizeof path, "%s/secret.bin", root);
    const struct {
        const char *location, *offset, *length;
        attnrun_status status;
    } cases[] = {
        { "w.bin", "4", "8", ATTNRUN_OK },
        { "w.bin", "4", NULL, ATTNRUN_OK },
        { "w.bin", "4", "12", ATTNRUN_E_MODEL },
        { "w.bin", "12", NULL, ATTNRUN_E_IO },
        { "w.bin", "17", "8", ATTNRUN_E_IO },
        { "w.bin", "-4", "8", ATTNRUN_E_MODEL },
        { "w.bin", "four", "8", ATTNRUN_E_MODEL },
        { "w.bin", "", "8", ATTNRUN_E_MODEL },
        { "w.bin", "9223372036854775808", "8", ATTNRUN_E_MODEL },
        { "w.bin", "18446744073709551612", "8", ATTNRUN_E_MODEL },
        { "w.bin", "9223372036854775807", "8", ATTNRUN_E_IO },
        { "none.bin", "4", "8", ATTNRUN_E_IO },
        { "../secret.bin", "4", "8", ATTNRUN_E_PATH },
        { "x/../../secret.bin", "4", "8", ATTNRUN_E_PATH },
        { "link.bin", "4", "8", ATTNRUN_E_PATH },
        { path, "4", "8", ATTNRUN_E_PATH },
        { "*/_ORT_MEM_ADDR_/*", "4", "8", ATTNRUN_E_PATH },
        { "", "4", "8", ATTNRUN_E_MODEL },
        { NULL, NULL, NULL, ATTNRUN_E_MODEL },
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (uint32_t flags = 0; flags <= ATTNRUN_COPY; flags++) {
            attnrun_status status = open_external(dir, cases[k].location, cases[k].offset,
                                                  cases[k].length, flags);
            if (status != cases[k].status)
                fail_msg("case %zu: status %d, expected %d", k, status, cases[k].status);
        }
    assert_int_equal(open_external(NULL, "w.bin", "4", "8", 0), ATTNRUN_E_PATH);
    char command[160];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
}

/* ---- more than 2 GiB in one file ---- */

enum { WIDE = 1 << 10 };
#define ROWS (INT64_C(1) << 20)

static void write_wide_model(int fd)
{
    struct pb graph = { 0 }, head = { 0 }, tensor = { 0 }, model = { 0 };
    int64_t bytes = ROWS * WIDE * 4; /* raw_data: 4 GiB, a hole in the file */
    pb_value(&graph, 11, "x", WIDE);
    pb_value(&graph, 12, "y", -1);
    pb_add_node(&graph, 1, "", "MatMul", "w,x", "y");
    pb_int(&tensor, 1, ROWS);
    pb_int(&tensor, 1, WIDE);
    pb_int(&tensor, 2, 1);
    pb_string(&tensor, 8, "w");
    pb_varint(&tensor, 9u << 3 | 2);
    pb_varint(&tensor, (uint64_t)bytes);
    pb_varint(&graph, 5u << 3 | 2);
    pb_varint(&graph, tensor.bytes + (uint64_t)bytes);
    pb_put(&graph, tensor.data, tensor.bytes);
    pb_int(&model, 1, 8);
    pb_opset(&model, 8, "", 18);
    pb_varint(&model, 7u << 3 | 2);
    pb_varint(&model, graph.bytes + (uint64_t)bytes);
    pb_put(&head, model.data, model.bytes);
    pb_put(&head, graph.data, graph.bytes);
    assert_int_equal(write(fd, head.data, head.bytes), (ssize_t)head.bytes);
    assert_int_equal(ftruncate(fd, (off_t)((int64_t)head.bytes + bytes)), 0);
    pb_free(&graph);
    pb_free(&head);
    pb_free(&tensor);
    pb_free(&model);
}

static int64_t resident_bytes(void)
{
    long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld", &pages, &resident), 2);
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

static void four_gigabytes(void **state)
{
    (void)state;
    char path[] = "/tmp/attnrun-wide-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    if (ftruncate(fd, (off_t)1 << 33) != 0) {
        print_message("skipped: no files of 8 GiB in /tmp\n");
        close(fd);
        unlink(path);
        skip();
    }
    assert_int_equal(ftruncate(fd, 0), 0);
    write_wide_model(fd);
    close(fd);
    attnrun_source source = { .struct_size = sizeof source, .path = path };
    attnrun_model *model = NULL;
    int64_t before = resident_bytes();
    attnrun_status status = attnrun_model_open(test_runtime, &source, &model);
    int64_t after = resident_bytes();
    unlink(path);
    if (status != ATTNRUN_OK)
        fail_msg("%s", attnrun_last_error()->message);
    attnrun_model_info info = { .struct_size = sizeof info };
    assert_int_equal(attnrun_model_query(model, &info), ATTNRUN_OK);
    assert_int_equal(info.weights_bytes, ROWS * WIDE * 4);
    assert_true(info.file_bytes > ROWS * WIDE * 4);
    assert_true(after - before < 64 << 20);
    attnrun_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_tells),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(mutants),
        cmocka_unit_test(other_files_are_named),
        cmocka_unit_test(text_is_named),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(versions),
        cmocka_unit_test(external_data),
        cmocka_unit_test(four_gigabytes),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(weights_at_odd_addresses),
    };
    return cmocka_run_group_tests(tests, start_runtime, stop_runtime);
}
