/* file_kind.c - what a file is that is no ONNX model, by its first bytes.
 *
 * In: the bytes of a file that did not parse. Out: its kind in words, and what to do. */
#include "file_kind.h"

#include <stdbool.h>
#include <string.h>

struct signature {
    const char *bytes;
    int32_t length, offset;
    struct attn_file_kind kind;
};

static const char exporting[] =
    "export it to ONNX: attnrun convert does this for PyTorch";
static const char array_hint[] = "if this file is an input, give it as -i NAME=FILE";

#define BYTES(text) text, sizeof text - 1
static const struct signature signatures[] = {
    { BYTES("version https://git-lfs"),
      0,
      { "a Git LFS pointer, not the file itself", "git lfs pull fetches the file" } },
    { BYTES("\x93NUMPY"), 0, { "a NumPy array (.npy)", array_hint } },
    { BYTES("GGUF"), 0, { "a GGUF file of llama.cpp", exporting } },
    { BYTES("TFL3"), 4, { "a TensorFlow Lite model", "tf2onnx converts it to ONNX" } },
    { BYTES("\x89HDF\r\n"),
      0,
      { "an HDF5 file (Keras)", "tf2onnx converts it to ONNX" } },
    { BYTES("\x80\x02"), 0, { "a Python pickle (PyTorch)", exporting } },
    { BYTES("\x80\x04\x95"), 0, { "a Python pickle", exporting } },
    { BYTES("\x1f\x8b"), 0, { "a gzip archive", "gunzip unpacks it" } },
    { BYTES("\x28\xb5\x2f\xfd"), 0, { "a zstd archive", "unzstd unpacks it" } },
    { BYTES("ustar"), 257, { "a tar archive", "tar -xf unpacks it" } },
    { BYTES("ORTM"),
      4,
      { "a model in the ORT format of ONNX Runtime",
        "use the .onnx file that it was made from" } },
    { BYTES("\x7f"
            "ELF"),
      0,
      { "a program or a shared library", "" } },
    { BYTES("\x89PNG"), 0, { "a PNG image", "" } },
    { BYTES("\xff\xd8\xff"), 0, { "a JPEG image", "" } },
    { BYTES("%PDF-"), 0, { "a PDF document", "" } },
    { BYTES("<!doctype html"),
      0,
      { "an HTML page", "the download may have saved a login or error page" } },
    { BYTES("<html"),
      0,
      { "an HTML page", "the download may have saved a login or error page" } },
    { BYTES("<?xml"),
      0,
      { "an XML file (OpenVINO?)", "use the .onnx file that it was made from" } },
};

static bool begins(const uint8_t *data, int64_t bytes, const struct signature *s)
{
    if (bytes < s->offset + s->length)
        return false;
    for (int32_t i = 0; i < s->length; i++) {
        int c = data[s->offset + i];
        if (c >= 'A' && c <= 'Z' && s->bytes[0] == '<') /* HTML in capitals */
            c += 'a' - 'A';
        if (c != (uint8_t)s->bytes[i])
            return false;
    }
    return true;
}

/* Local file header of the zip format. What is in it tells archives of PyTorch and NumPy. */
static bool is_zip(const uint8_t *data, int64_t bytes, struct attn_file_kind *kind)
{
    enum { NAMES = 1024 };
    if (bytes < 30 || memcmp(data, "PK\x03\x04", 4) != 0)
        return false;
    int64_t looked = bytes < NAMES ? bytes : NAMES;
    *kind = (struct attn_file_kind){ "a zip archive", "unpack it first" };
    if (memmem(data, (size_t)looked, "data.pkl", 8) != NULL)
        *kind = (struct attn_file_kind){ "a PyTorch file (.pt, .pth)", exporting };
    else if (memmem(data, (size_t)looked, ".npy", 4) != NULL)
        *kind = (struct attn_file_kind){ "a NumPy archive (.npz)",
                                         "it may hold inputs: -i FILE.npz" };
    return true;
}

/* Eight bytes of length, then a JSON object. */
static bool is_safetensors(const uint8_t *data, int64_t bytes)
{
    uint64_t length = 0;
    for (int i = 0; i < 8 && bytes >= 10; i++)
        length |= (uint64_t)data[i] << 8 * i;
    return bytes >= 10 && data[8] == '{' && (data[9] == '"' || data[9] == '}') &&
           length > 1 && length <= (uint64_t)bytes - 8;
}

/* Nothing but printable characters, as far as is looked. */
static bool is_text(const uint8_t *data, int64_t bytes)
{
    enum { LOOKED = 512 };
    for (int64_t i = 0; i < bytes && i < LOOKED; i++)
        if ((data[i] < 32 && strchr("\t\n\r\f", data[i]) == NULL) || data[i] == 0 ||
            data[i] == 127)
            return false;
    return bytes > 0;
}

struct attn_file_kind attn_file_kind_of(const uint8_t *data, int64_t bytes)
{
    struct attn_file_kind kind = { NULL, "" };
    int64_t at = bytes > 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < bytes && at < 64 && data[at] != 0 && strchr(" \t\r\n", data[at]) != NULL)
        at++; /* before text */
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (begins(data, bytes, &signatures[i]) ||
            (signatures[i].bytes[0] == '<' &&
             begins(data + at, bytes - at, &signatures[i])))
            return signatures[i].kind;
    if (is_zip(data, bytes, &kind))
        return kind;
    if (is_safetensors(data, bytes))
        return (struct attn_file_kind){ "a safetensors file: weights without a graph",
                                        exporting };
    if (is_text(data, bytes))
        return (struct attn_file_kind){ "a text file", "" };
    return kind;
}
