/* test_file_kind.c - what a file is said to be: every signature, each with one byte changed, files
 * that end within it, and text and containers, which are told by more than their first bytes. */
#include "../runtime/check.h"

#include <string.h>

#include "../../loaders/file_kind.h"

enum { ROOM = 512 };

struct signature {
    int64_t at, n; /* where it is, and its bytes */
    const char *bytes, *says;
};

static const struct signature rows[] = {
    { 0, 23, "version https://git-lfs", "a Git LFS pointer" },
    { 0, 6, "\x93NUMPY", "a NumPy array" },
    { 0, 4, "GGUF", "a GGUF file" },
    { 4, 4, "TFL3", "a TensorFlow Lite model" },
    { 0, 6, "\x89HDF\r\n", "an HDF5 file" },
    { 0, 2, "\x80\x02", "a Python pickle (PyTorch)" },
    { 0, 3, "\x80\x04\x95", "a Python pickle" },
    { 0, 2, "\x1f\x8b", "a gzip archive" },
    { 0, 4, "\x28\xb5\x2f\xfd", "a zstd archive" },
    { 257, 5, "ustar", "a tar archive" },
    { 4, 4, "ORTM", "a model in the ORT format" },
    { 0, 4, "\x7f\x45LF", "a program or a shared library" },
    { 0, 4, "\x89PNG", "a PNG image" },
    { 0, 3, "\xff\xd8\xff", "a JPEG image" },
    { 0, 5, "%PDF-", "a PDF document" },
    { 0, 14, "<!doctype html", "an HTML page" },
    { 0, 5, "<HTML", "an HTML page" },
    { 0, 5, "<?xml", "an XML file" },
};

static void says(const void *data, int64_t n, const char *kind)
{
    const struct attn_file_kind found = attn_file_kind_of(data, n);
    if (kind == NULL && found.name != NULL)
        fail_msg("%d bytes are '%s'", (int)n, found.name);
    if (kind != NULL && (found.name == NULL || strstr(found.name, kind) != found.name))
        fail_msg("%d bytes are '%s', expected '%s'", (int)n,
                 found.name == NULL ? "nothing" : found.name, kind);
}

static void test_file_kind_of_signatures(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        uint8_t data[ROOM] = { 1 }; /* no text */
        memcpy(data + rows[k].at, rows[k].bytes, (size_t)rows[k].n);
        says(data, ROOM, rows[k].says);
        says(data, rows[k].at + rows[k].n, rows[k].says);
        for (int64_t i = 0; i < rows[k].n; i++) {
            uint8_t *const byte = &data[rows[k].at + i], right = *byte;
            *byte = 1;
            says(data, ROOM, NULL);
            *byte = right;
        }
    }
    uint8_t data[ROOM] = { 1 };
    says(data, ROOM, NULL);
    memcpy(data, "\x93NUMPY", 6);
    says(data, 5, "a text file");
}

/* Spaces and a byte order mark may be in front of what begins with <. */
static void test_file_kind_of_text(void **state)
{
    (void)state;
    says("\xef\xbb\xbf \r\n\t<HtMl>", 13, "an HTML page");
    says(" GGUF", 5, "a text file");
    says("a line\nand a second one\r\f", 25, "a text file");
    says("a\tb\x7f", 4, NULL);
    says("a\tb\x1f", 4, NULL);
    says("a\0b", 3, NULL);
    says("", 0, NULL);
}

static void test_file_kind_of_containers(void **state)
{
    uint8_t zip[ROOM] = "PK\x03\x04";
    (void)state;
    says(zip, 30, "a zip archive");
    says(zip, 29, NULL);
    memcpy(zip + 40, "x.npy", 5);
    says(zip, 45, "a NumPy archive");
    says(zip, 44, "a zip archive");
    memcpy(zip + 60, "data.pkl", 8);
    says(zip, 68, "a PyTorch file");
    zip[3]++;
    says(zip, ROOM, NULL);
    uint8_t tensors[12] = { 4, 0, 0, 0, 0, 0, 0, 0, '{', '"', 'a', '}' };
    says(tensors, 12, "a safetensors file");
    tensors[0] = 5; /* more than there is */
    says(tensors, 12, NULL);
    tensors[0] = 2;
    tensors[9] = '}';
    says(tensors, 10, "a safetensors file");
    says(tensors, 9, NULL);
    tensors[0] = 1;
    says(tensors, 12, NULL);
    tensors[0] = 2;
    tensors[7] = 1;
    says(tensors, 12, NULL);
    tensors[7] = 0;
    tensors[8] = '[';
    says(tensors, 12, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_kind_of_signatures),
        cmocka_unit_test(test_file_kind_of_text),
        cmocka_unit_test(test_file_kind_of_containers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
