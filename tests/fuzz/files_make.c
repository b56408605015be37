/* files_make.c - in: random numbers; out: files of the kinds that the command line reads, whose
 * fields mostly fit each other. See files_make.h. */
#include "files_make.h"

#include <stdio.h>
#include <zlib.h>

#include "attnrun.h"
#include "wire.h"

#define PICK(r, words)                                                                   \
    ((words)[fuzz_below((r), (int64_t)(sizeof(words) / sizeof *(words)))])

enum { TEXT = 1 << 16 };

static void put_text(struct pb *to, const char *text) { pb_put(to, text, strlen(text)); }

static void put_number(struct pb *to, uint64_t value, size_t bytes)
{
    pb_put(to, &value, bytes); /* little-endian */
}

static void put_noise(struct fuzz_random *r, struct pb *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        put_number(to, fuzz_chance(r, 30) ? 0 : fuzz_next(r), 1);
}

/* ---- npy ---- */

static int64_t put_shape(struct fuzz_random *r, char *text, size_t room)
{
    static const char *const odd[] = { "-3",  "4294967296", "18446744073709551617",
                                       "1e3", "2, ,2",      "281474976710656" };
    int64_t n = 1, rank = fuzz_chance(r, 95) ? fuzz_below(r, 4) : fuzz_below(r, 40);
    size_t at = (size_t)snprintf(text, room, "(");
    for (int64_t i = 0; i < rank && at < room; i++) {
        const int64_t d = fuzz_below(r, 6);
        n *= rank < 12 ? d : 0;
        at += fuzz_chance(r, 98)
                  ? (size_t)snprintf(text + at, room - at, "%lld,%s", (long long)d,
                                     fuzz_chance(r, 80) ? " " : "")
                  : (size_t)snprintf(text + at, room - at, "%s,", PICK(r, odd));
    }
    if (at < room)
        snprintf(text + at, room - at, ")");
    return n; /* 0 for a rank above 11, whose product may overflow */
}

void files_make_npy(struct fuzz_random *r, struct pb *to)
{
    static const struct {
        const char *text;
        int bytes;
    } types[] = { { "<f4", 4 }, { ">f4", 4 },       { "<f8", 8 },         { "|b1", 1 },
                  { "|i1", 1 }, { "<i8", 8 },       { ">i2", 2 },         { "<u4", 4 },
                  { ">u8", 8 }, { "<f2", 2 },       { "<c8", 8 },         { ">c16", 16 },
                  { "|S3", 3 }, { "<U2", 8 },       { ">U1", 4 },         { "|S0", 0 },
                  { "<U0", 0 }, { "|O", 8 },        { "<M8", 8 },         { "<f16", 16 },
                  { "=f4", 4 }, { "S99999999", 1 }, { "<U999999999", 1 }, { "", 1 } };
    const int64_t type = fuzz_below(r, fuzz_chance(r, 90) ? 17 : 24);
    char shape[256], header[1024];
    const int64_t n = put_shape(r, shape, sizeof shape);
    const char *const order = fuzz_chance(r, 75)   ? "False"
                              : fuzz_chance(r, 95) ? "True"
                                                   : "Maybe";
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': %s%s}",
             types[type].text, order, shape,
             fuzz_chance(r, 95) ? ", " : ", 'descr': '<f4', 'x': 1");
    const int version =
        fuzz_chance(r, 95) ? 1 + (int)fuzz_below(r, 3) : (int)fuzz_below(r, 256);
    const int64_t pad = fuzz_below(r, 70);
    const uint64_t bytes = (uint64_t)(strlen(header) + (size_t)pad) + 1;
    put_text(to, "\x93NUMPY");
    put_number(to, (uint64_t)version, 1);
    put_number(to, 0, 1);
    put_number(to, fuzz_chance(r, 97) ? bytes : fuzz_next(r), version == 1 ? 2 : 4);
    put_text(to, header);
    for (int64_t i = 0; i < pad; i++)
        put_text(to, " ");
    put_text(to, "\n");
    if (strchr(types[type].text, 'U') != NULL) /* code points */
        for (int64_t i = 0; i < n * types[type].bytes / 4; i++)
            put_number(to,
                       fuzz_chance(r, 97) ? 0x20 + (uint64_t)fuzz_below(r, 4000)
                                          : fuzz_next(r),
                       4);
    else
        put_noise(r, to, n * types[type].bytes);
    if (fuzz_chance(r, 4))
        put_noise(r, to, fuzz_below(r, 40));
}

/* ---- npz ---- */

struct part {
    char name[48];
    uint64_t at, stored, bytes;
    uint32_t crc;
    int method;
    size_t name_bytes;
};

/* Raw deflate; the bytes as they are where that fails. */
static void put_deflated(const struct pb *data, struct pb *to, struct part *part)
{
    z_stream stream = { 0 };
    const size_t room = data->bytes * 2 + 200;
    uint8_t *out = malloc(room);
    if (out == NULL || deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, 0) != Z_OK)
        abort();
    stream.next_in = data->data;
    stream.avail_in = (uInt)data->bytes;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END)
        abort();
    part->stored = stream.total_out;
    pb_put(to, out, part->stored);
    deflateEnd(&stream);
    free(out);
}

static void put_part(struct fuzz_random *r, struct pb *to, struct part *part)
{
    static const char *const names[] = { "x.npy", "y.npy", "arr_0.npy",  "../../x.npy",
                                         "x",     ".npy",  "\x1b[2J.npy" };
    struct pb data = { 0 };
    if (fuzz_chance(r, 95))
        files_make_npy(r, &data);
    else /* what packs well */
        for (int i = 0; i < 1 << 18; i++)
            put_number(&data, 0, 1);
    snprintf(part->name, sizeof part->name, "%s", PICK(r, names));
    part->name_bytes = strlen(part->name) + (fuzz_chance(r, 2) ? 1 : 0);
    part->method = fuzz_chance(r, 97) ? 8 * fuzz_chance(r, 60) : (int)fuzz_below(r, 100);
    part->crc = (uint32_t)crc32(0, data.data, (uInt)data.bytes);
    part->bytes = part->stored = data.bytes;
    part->at = to->bytes;
    put_text(to, "PK\3\4");
    put_noise(r, to, 22); /* the directory says it all again */
    put_number(to, part->name_bytes, 2);
    put_number(to, 0, 2);
    pb_put(to, part->name, part->name_bytes);
    if (part->method == 8)
        put_deflated(&data, to, part);
    else
        pb_put(to, data.data, data.bytes);
    pb_free(&data);
    if (fuzz_chance(r, 3)) {
        uint64_t *const fields[] = { &part->at, &part->stored, &part->bytes };
        *PICK(r, fields) += (uint64_t)fuzz_int(r);
    }
    if (fuzz_chance(r, 2))
        part->crc ^= 1;
}

static void put_entry(struct fuzz_random *r, struct pb *to, const struct part *part)
{
    const bool wide = fuzz_chance(r, 15); /* sizes in an extra field, as zip64 has them */
    const uint64_t none = UINT32_MAX;
    put_text(to, "PK\1\2");
    put_noise(r, to, 4);
    put_number(to, fuzz_chance(r, 98) ? 0 : 1, 2);
    put_number(to, (uint64_t)part->method, 2);
    put_noise(r, to, 4);
    put_number(to, part->crc, 4);
    put_number(to, wide ? none : part->stored, 4);
    put_number(to, wide ? none : part->bytes, 4);
    put_number(to, part->name_bytes, 2);
    put_number(to, wide ? 28 : 0, 2);
    put_number(to, fuzz_chance(r, 97) ? 0 : fuzz_next(r), 2);
    put_noise(r, to, 8);
    put_number(to, wide ? none : part->at, 4);
    pb_put(to, part->name, part->name_bytes);
    if (!wide)
        return;
    put_number(to, 1, 2);
    put_number(to, fuzz_chance(r, 95) ? 24 : (uint64_t)fuzz_below(r, 40), 2);
    put_number(to, part->bytes, 8);
    put_number(to, part->stored, 8);
    put_number(to, part->at, 8);
}

void files_make_npz(struct fuzz_random *r, struct pb *to)
{
    struct part parts[6];
    const int64_t n = fuzz_below(r, 6);
    for (int64_t i = 0; i < n; i++)
        put_part(r, to, &parts[i]);
    const uint64_t directory = to->bytes;
    for (int64_t i = 0; i < n; i++)
        put_entry(r, to, &parts[fuzz_chance(r, 97) ? i : 0]);
    const uint64_t bytes = to->bytes - directory, end = to->bytes;
    const bool wide = fuzz_chance(r, 15);
    if (wide) {
        put_text(to, "PK\6\6");
        put_noise(r, to, 28);
        put_number(to, (uint64_t)n, 8);
        put_number(to, bytes, 8);
        put_number(to, fuzz_chance(r, 95) ? directory : fuzz_next(r), 8);
        put_text(to, "PK\6\7");
        put_number(to, 0, 4);
        put_number(to, fuzz_chance(r, 95) ? end : (uint64_t)fuzz_int(r), 8);
        put_number(to, 1, 4);
    }
    put_text(to, "PK\5\6");
    put_number(to, 0, 4);
    put_number(to, wide ? 0xffff : (uint64_t)n, 2);
    put_number(to, wide ? 0xffff : (uint64_t)n, 2);
    put_number(to, wide ? UINT32_MAX : bytes, 4);
    put_number(to, wide ? UINT32_MAX : directory, 4);
    const int64_t comment = fuzz_chance(r, 90) ? 0 : fuzz_below(r, 300);
    put_number(to, (uint64_t)comment, 2);
    put_noise(r, to, comment);
}

/* ---- YAML, and values that are written on the command line ---- */

static void put_scalar(struct fuzz_random *r, struct pb *to)
{
    static const char *const words[] = { "4",
                                         "true",
                                         "x=1",
                                         "S=128",
                                         "512M",
                                         "3s",
                                         "1e-3",
                                         "\"a b\"",
                                         "'it''s'",
                                         "base",
                                         "-1",
                                         "nan",
                                         "f.npz:key",
                                         "~",
                                         "inf",
                                         "nodes=7",
                                         "99999999999999999999",
                                         "\"\\u0000\"",
                                         "bf16",
                                         "off",
                                         "\"\\e[2J\"",
                                         "1e400",
                                         "0x10" };
    put_text(to, PICK(r, words));
}

static void put_yaml_value(struct fuzz_random *r, struct pb *to)
{
    static const char *const odd[] = {
        "&a [ 1 ]", "*a",  "!!str x", "|\n  text\n", "[",
        "{ a: ",    "? x", "---",     "%YAML 9.9",   "- -"
    };
    int64_t n = fuzz_below(r, 4);
    switch (fuzz_below(r, 10)) {
    case 0:
    case 1:
        put_text(to, "[ ");
        for (; n > 0; n--) {
            put_scalar(r, to);
            put_text(to, n > 1 ? ", " : "");
        }
        put_text(to, " ]");
        break;
    case 2:
    case 3:
        put_text(to, "{ ");
        for (; n > 0; n--) {
            put_text(to, fuzz_chance(r, 50) ? "S: " : "nodes: ");
            if (fuzz_chance(r, 20))
                put_yaml_value(r, to);
            else
                put_scalar(r, to);
            put_text(to, n > 1 ? ", " : "");
        }
        put_text(to, " }");
        break;
    case 4:
        put_text(to, PICK(r, odd));
        break;
    case 5:
        for (n = fuzz_below(r, 40); n > 0; n--)
            put_text(to, fuzz_chance(r, 95) ? "[" : "[1,");
        break;
    default:
        put_scalar(r, to);
    }
}

void files_make_yaml(struct fuzz_random *r, struct pb *to)
{
    static const char *const keys[] = { "threads", "set",    "input",     "max-memory",
                                        "timeout", "limit",  "verbose",   "isa",
                                        "outputs", "shape",  "precision", "rtol",
                                        "seed",    "config", "fix",       "repeat",
                                        "json",    "thread", "help",      "plugin" };
    for (int64_t n = fuzz_below(r, fuzz_chance(r, 97) ? 6 : 600); n > 0; n--) {
        put_text(to, PICK(r, keys));
        put_text(to, fuzz_chance(r, 95) ? ": " : " ");
        put_yaml_value(r, to);
        put_text(to, fuzz_chance(r, 95) ? "\n" : " # \t\n");
    }
    if (to->bytes == 0)
        put_text(to, "\n");
}

static void put_list(struct fuzz_random *r, struct pb *to, int64_t depth)
{
    static const char *const items[] = { "1",
                                         "2.5",
                                         "-3",
                                         "true",
                                         "\"a\"",
                                         "\"\\u00e9\"",
                                         "1e99",
                                         "\"\\\"",
                                         "",
                                         "nan",
                                         "[]",
                                         "0x1p-3",
                                         "340282366920938463463374607431768211456" };
    if (depth == 0) {
        put_text(to, fuzz_chance(r, 80) ? items[fuzz_below(r, 3)] : PICK(r, items));
        return;
    }
    put_text(to, "[");
    for (int64_t n = fuzz_chance(r, 90) ? 2 : fuzz_below(r, 4); n > 0; n--) {
        put_list(r, to, depth - (fuzz_chance(r, 98) ? 1 : 0));
        put_text(to, n > 1 ? "," : "");
    }
    put_text(to, "]");
}

void files_make_inline(struct fuzz_random *r, struct pb *to)
{
    if (fuzz_chance(r, 60)) {
        put_list(r, to, fuzz_chance(r, 95) ? fuzz_below(r, 4) : fuzz_below(r, 10));
        put_number(to, 0, 1);
        return;
    }
    put_text(to, "{");
    for (int64_t n = fuzz_below(r, 4); n > 0; n--) {
        static const char *const names[] = { "\"a\": ",     "\"1\": ", "\"-7\" :",
                                             "\"1,2\": ",   "\"\": ",  "\"[1\":",
                                             "\"a\\\"\": ", "b: " };
        put_text(to, fuzz_chance(r, 80) ? names[fuzz_below(r, 3)] : PICK(r, names));
        put_list(r, to, fuzz_chance(r, 97) ? 0 : 1);
        put_text(to, n > 1 ? ", " : "");
    }
    put_text(to, "}");
    put_number(to, 0, 1);
}

/* ---- test data ---- */

static void put_tensor(struct fuzz_random *r, struct pb *to)
{
    static uint8_t data[1 << 12];
    static const attnrun_string words[] = { { "", 0 }, { "ab", 2 }, { "\xc3\xa9", 2 } };
    attnrun_tensor t = { .kind = ATTNRUN_TENSOR, .rank = (int32_t)fuzz_below(r, 4) };
    t.dtype = 1 + (int32_t)fuzz_below(r, ATTNRUN_DTYPE_COUNT - 1);
    for (int i = 0; i < t.rank; i++)
        t.dims[i] = fuzz_below(r, 5);
    if (attnrun_tensor_bytes(&t) > (int64_t)sizeof data / 2)
        t.rank = 0;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)fuzz_next(r);
    for (size_t i = 0; t.dtype == ATTNRUN_STRING && i < sizeof data / sizeof *words; i++)
        ((attnrun_string *)(void *)data)[i] = PICK(r, words);
    t.data = data;
    if (fuzz_chance(r, 4)) /* the sizes and the bytes are not of one tensor */
        t.dims[0] += 1;
    struct pb tensor = wire_tensor("t", &t);
    if (fuzz_chance(r, 10))
        pb_int(&tensor, 1, fuzz_int(r));
    if (fuzz_chance(r, 6)) /* where elements of some types lie */
        pb_int(&tensor, 5 + 2 * (uint32_t)fuzz_below(r, 4), fuzz_int(r));
    pb_put(to, tensor.data, tensor.bytes);
    pb_free(&tensor);
}

void files_make_pb(struct fuzz_random *r, int32_t kind, struct pb *to)
{
    if (kind == ATTNRUN_TENSOR) {
        put_tensor(r, to);
        return;
    }
    pb_string(to, 1, "value");
    if (kind == ATTNRUN_MAP) {
        const bool words = fuzz_chance(r, 50);
        const int64_t n = fuzz_below(r, 4);
        struct pb values = { 0 };
        pb_int(to, 2, words ? 8 : 7);
        for (int64_t i = 0; i < n; i++)
            words ? pb_string(to, 4, fuzz_chance(r, 90) ? "k" : "q") : pb_int(to, 3, i);
        pb_int(&values, 2, 1);
        for (int64_t i = 0; i < n; i++) {
            struct pb tensor = { 0 };
            put_tensor(r, &tensor);
            pb_message(&values, 3, &tensor);
        }
        pb_message(to, 5, &values);
        return;
    }
    pb_int(to, 2, fuzz_chance(r, 90) ? 1 : fuzz_below(r, 7));
    const uint32_t field = kind == ATTNRUN_MAP_SEQUENCE        ? 6
                           : kind == ATTNRUN_OPTIONAL_SEQUENCE ? 5
                                                               : 3;
    const int32_t within = field == 6   ? ATTNRUN_MAP
                           : field == 5 ? ATTNRUN_SEQUENCE
                                        : ATTNRUN_TENSOR;
    const bool one = kind == ATTNRUN_OPTIONAL || kind == ATTNRUN_OPTIONAL_SEQUENCE;
    for (int64_t n = one ? 1 : fuzz_below(r, 4); n > 0; n--) {
        struct pb item = { 0 };
        files_make_pb(r, within, &item);
        pb_message(to, field, &item);
    }
}

/* ---- changes ---- */

void files_change(struct fuzz_random *r, struct pb *file)
{
    static const uint8_t marks[] = { 0,   0xff, 0x80, '[', ']', '{', '}', '\'', '"',
                                     ',', ':',  '\n', '&', '*', '-', '9', 1,    0x7f };
    if (file->bytes == 0 || fuzz_chance(r, 40))
        return;
    for (int64_t n = 1 + fuzz_below(r, 4); n > 0 && file->bytes > 0; n--) {
        const size_t at = (size_t)fuzz_below(r, (int64_t)file->bytes);
        const size_t left = file->bytes - at;
        const size_t some = 1 + (size_t)fuzz_below(r, left < 9 ? (int64_t)left : 9);
        switch (fuzz_below(r, 7)) {
        case 0:
            file->data[at] ^= (uint8_t)(1u << fuzz_below(r, 8));
            break;
        case 1:
        case 2:
            file->data[at] = PICK(r, marks);
            break;
        case 3:
            file->data[at] = (uint8_t)fuzz_next(r);
            break;
        case 4: /* a piece is lost */
            memmove(file->data + at, file->data + at + (some < left ? some : left),
                    left - (some < left ? some : left));
            file->bytes -= some < left ? some : left;
            break;
        case 5: { /* a piece is there twice */
            uint8_t piece[9] = { 0 };
            memcpy(piece, file->data + at, some < left ? some : left);
            pb_put(file, piece, some);
            memmove(file->data + at + some, file->data + at, file->bytes - some - at);
            break;
        }
        default:
            if (fuzz_chance(r, 30))
                file->bytes = at;
        }
    }
}
