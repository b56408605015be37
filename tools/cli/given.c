/* given.c - inputs that the user gives.
 *
 * In: -i NAME=WHAT (a file, inline values, ones, zeros, random), -i FILE.npz, --inputs FOLDER and
 * --shape. Out: the tensors, checked against what the model declares; shapes of those to be made
 * up. What names no input of the model, or an input twice, is refused. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../io/map.h"
#include "../io/npy.h"
#include "../io/npz.h"
#include "files.h"
#include "inputs.h"

/* "f32[B,128]" of what the model declares. */
static const char *declared(const attnrun_value_info *info)
{
    static char text[320];
    int n = snprintf(text, sizeof text, "%s[", attnrun_dtype_name(info->dtype));
    for (int32_t d = 0; d < info->rank; d++) {
        const char *comma = d > 0 ? "," : "";
        if (info->dims[d] >= 0)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%" PRId64, comma,
                          info->dims[d]);
        else
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%.24s", comma,
                          info->dim_names[d][0] ? tool_quote(info->dim_names[d]) : "?");
    }
    snprintf(text + n, sizeof text - (size_t)n, info->rank < 0 ? "...]" : "]");
    return text;
}

attnrun_status check_fit(const struct input *input, const attnrun_tensor *tensor)
{
    const attnrun_value_info *info = &input->info;
    if (info->kind != ATTNRUN_TENSOR || tensor->kind != ATTNRUN_TENSOR)
        return ATTNRUN_OK; /* the library's part */
    if (tensor->dtype != info->dtype && info->dtype != 0)
        return tool_fail(ATTNRUN_E_DTYPE, "input '%s' is %s, expected %s",
                         tool_quote(info->name), value_shape(tensor), declared(info));
    bool fits = info->rank < 0 || tensor->rank == info->rank;
    for (int32_t d = 0; fits && d < info->rank; d++)
        fits = info->dims[d] < 0 || info->dims[d] == tensor->dims[d];
    if (!fits)
        return tool_fail(ATTNRUN_E_INPUT, "input '%s' is %s, expected %s",
                         tool_quote(info->name), value_shape(tensor), declared(info));
    return ATTNRUN_OK;
}

attnrun_status given_narrow(struct held *held, int32_t wanted)
{
    struct held narrowed;
    const int32_t got = held->tensor.dtype;
    bool small_float = value_is_float(wanted) && wanted != ATTNRUN_F16 &&
                       value_has_code(wanted) && got == ATTNRUN_F32;
    bool small_int = value_is_int(wanted) && attnrun_dtype_bits(wanted) < 8 &&
                     (got == ATTNRUN_I8 || got == ATTNRUN_U8);
    if (!small_float && !small_int)
        return ATTNRUN_OK;
    TRY(held_make(&narrowed, wanted, held->tensor.rank, held->tensor.dims, 0));
    int64_t n = attnrun_tensor_count(&held->tensor);
    for (int64_t k = 0; k < n; k++)
        if (!value_set(&narrowed.tensor, k, value_get(&held->tensor, k))) {
            tool_fail(ATTNRUN_E_INPUT, "%s does not fit %s", value_text(&held->tensor, k),
                      attnrun_dtype_name(wanted));
            held_free(&narrowed);
            return tool_error.status;
        }
    held_free(held);
    *held = narrowed;
    return ATTNRUN_OK;
}

static attnrun_status unknown_input(const struct inputs *inputs, const char *name)
{
    const char *names[256];
    char list[240] = "";
    int64_t n = 0;
    for (; n < inputs->n && n < 256; n++) {
        size_t used = strlen(list);
        names[n] = inputs->v[n].info.name;
        if (used + 100 < sizeof list)
            snprintf(list + used, sizeof list - used, "%s'%s'", n > 0 ? ", " : "",
                     tool_quote(names[n]));
    }
    tool_fail(ATTNRUN_E_INPUT, "the model has no input '%s'", tool_quote(name));
    tool_suggest(name, names, n);
    tool_hint(n == 1 ? "its input is %s" : "its inputs are %s", list);
    return ATTNRUN_E_INPUT;
}

static struct input *known_input(const struct inputs *inputs, const char *name, size_t n)
{
    for (int32_t i = 0; i < inputs->n; i++) {
        const char *known = inputs->v[i].info.name;
        if (strncmp(known, name, n) == 0 && known[n] == 0)
            return &inputs->v[i];
    }
    return NULL;
}

static bool is_input(const struct inputs *inputs, const char *name, size_t n)
{
    return known_input(inputs, name, n) != NULL;
}

static attnrun_status find_input(struct inputs *inputs, const char *name, size_t n,
                                 struct input **input)
{
    char copy[256];
    *input = known_input(inputs, name, n);
    if (*input != NULL)
        return ATTNRUN_OK;
    snprintf(copy, sizeof copy, "%.*s", n > 250 ? 250 : (int)n, name);
    return unknown_input(inputs, copy);
}

const char *inputs_equals(const struct inputs *inputs, const char *text,
                          bool (*is_known)(const struct inputs *, const char *, size_t))
{
    const char *found = strchr(text, '=');
    for (const char *at = found; at != NULL; at = strchr(at + 1, '='))
        if (is_known(inputs, text, (size_t)(at - text)))
            found = at;
    return found;
}

/* What is read counts as given, and binds the symbols of its shape. */
static attnrun_status take(struct inputs *inputs, struct input *input, const char *how)
{
    input->given = inputs->some_given = true;
    snprintf(input->how, sizeof input->how, "%.150s", how);
    TRY(given_narrow(&input->held, input->info.dtype));
    map_narrow(&input->held, input->info.key_dtype, input->info.dtype);
    TRY(check_fit(input, &input->held.tensor));
    symbols_bind(inputs, input);
    return ATTNRUN_OK;
}

static attnrun_status read_npz_key(struct inputs *inputs, struct input *input,
                                   const char *path, const char *key)
{
    struct zip zip;
    char only[256];
    TRY(zip_open(&zip, path));
    const struct zip_entry *entry = npz_find(&zip, key);
    if (entry == NULL && key[0] == 0 && zip.n == 1 &&
        npz_key(zip.entries, only, sizeof only))
        entry = zip.entries;
    attnrun_status status =
        entry != NULL
            ? npz_read(&zip, entry, inputs->max_bytes, &input->held)
            : tool_fail(ATTNRUN_E_INPUT, "%s has no array '%s'", tool_path(path),
                        tool_quote(key[0] != 0 ? key : input->info.name));
    zip_close(&zip);
    return status;
}

/* f.npy, f.npz (the key is the input's name), f.npz:key, f.pb; - is npy */
static attnrun_status read_file(struct inputs *inputs, struct input *input,
                                const char *path)
{
    char copy[4096];
    const char *key = strstr(path, ".npz:");
    if (file_has_extension(path, ".npy") || file_is_stream(path))
        return npy_read(path, inputs->max_bytes, &input->held);
    if (file_has_extension(path, ".pb"))
        return file_read_pb(inputs->cli->runtime, path, input->info.kind, &input->held);
    if (file_has_extension(path, ".npz") && !file_exists(path))
        return tool_fail(ATTNRUN_E_IO, "%s does not exist", tool_path(path));
    if (file_has_extension(path, ".npz"))
        return read_npz_key(inputs, input, path, input->info.name);
    if (key != NULL && strlen(path) < sizeof copy) {
        snprintf(copy, sizeof copy, "%.*s", (int)(key + 4 - path), path);
        return read_npz_key(inputs, input, copy, key + 5);
    }
    tool_fail(ATTNRUN_E_USAGE, "-i %s=%s: neither an npy, npz or pb file nor a value",
              tool_quote(input->info.name), tool_path(path));
    if (file_exists(path))
        tool_hint("the suffix gives the kind of a file: .npy, .npz or .pb");
    return ATTNRUN_E_USAGE;
}

/* A single value for a shape of ones: rank 0 becomes the declared rank. */
static void raise_rank(struct input *input)
{
    attnrun_tensor *tensor = &input->held.tensor;
    int32_t rank = input->info.rank;
    bool ones = tensor->rank == 0 && rank > 0;
    for (int32_t d = 0; d < rank; d++)
        ones = ones && (input->info.dims[d] < 0 || input->info.dims[d] == 1);
    for (int32_t d = 0; ones && d < rank; d++) {
        tensor->dims[d] = 1;
        tensor->strides[d] = attnrun_dtype_bits(tensor->dtype) / 8;
    }
    tensor->rank = ones ? rank : tensor->rank;
}

static bool is_inline(const char *what)
{
    char *end;
    if (strchr("[{\"", what[0]) != NULL)
        return true;
    (void)strtod(what, &end);
    return end != what && *end == 0
               ? true
               : strcmp(what, "true") == 0 || strcmp(what, "false") == 0;
}

static attnrun_status read_inline(struct input *input, const char *what)
{
    const attnrun_value_info *info = &input->info;
    attnrun_status status =
        info->kind == ATTNRUN_MAP && what[0] == '{'
            ? json_parse_map(what, info->key_dtype, info->dtype, &input->held)
            : json_parse_tensor(what, info->dtype, &input->held);
    if (status != ATTNRUN_OK)
        return tool_fail_at("input '%s'", tool_quote(input->info.name));
    raise_rank(input);
    return ATTNRUN_OK;
}

/* The same input may be given several times: the last time counts, nothing else is read. */
static attnrun_status give_value(struct inputs *inputs, const char *text, int64_t turn)
{
    const char *equals = inputs_equals(inputs, text, is_input);
    struct input *input = NULL;
    TRY(find_input(inputs, text, (size_t)(equals - text), &input));
    const char *what = equals + 1;
    if (input->given_by > turn)
        return ATTNRUN_OK;
    if (what[0] == 0)
        return tool_fail(ATTNRUN_E_USAGE,
                         "-i '%s': a value is missing after the =", tool_quote(text));
    if (strcmp(what, "ones") == 0 || strcmp(what, "zeros") == 0 ||
        strcmp(what, "random") == 0) {
        input->value = what; /* once all symbols are bound */
        return ATTNRUN_OK;
    }
    TRY(is_inline(what) ? read_inline(input, what) : read_file(inputs, input, what));
    return take(inputs, input, is_inline(what) ? "given" : tool_path(what));
}

/* The input that an entry of an archive is for: by its key; arr_0, arr_1, … count the inputs
 * where none has such a name. */
static attnrun_status archive_input(struct inputs *inputs, const char *path,
                                    const struct zip_entry *entry, struct input **input)
{
    char key[1024], *end = NULL;
    if (!npz_key(entry, key, sizeof key))
        return tool_fail(ATTNRUN_E_INPUT, "%s: entry '%s' is not an npy array",
                         tool_path(path), tool_quote(entry->name));
    const bool numbered = strncmp(key, "arr_", 4) == 0 && isdigit((unsigned char)key[4]);
    long place = numbered ? strtol(key + 4, &end, 10) : -1;
    bool by_place = attnrun_model_find_input(inputs->model, key) < 0 && place >= 0 &&
                    place < inputs->n && *end == 0;
    if (!by_place && find_input(inputs, key, strlen(key), input) != ATTNRUN_OK)
        return tool_fail_at("%s", tool_path(path));
    if (!by_place)
        return ATTNRUN_OK;
    *input = &inputs->v[place];
    return ATTNRUN_OK;
}

/* All arrays of an archive, or only a note of what it gives. */
static attnrun_status give_archive(struct inputs *inputs, const char *path, int64_t turn,
                                   bool note_only)
{
    struct zip zip;
    attnrun_status status = ATTNRUN_OK;
    TRY(zip_open(&zip, path));
    for (int64_t i = 0; i < zip.n && status == ATTNRUN_OK; i++) {
        struct input *input = NULL;
        status = archive_input(inputs, path, &zip.entries[i], &input);
        if (status != ATTNRUN_OK)
            break;
        if (note_only && input->given_by == turn)
            status = tool_fail(ATTNRUN_E_INPUT, "%s holds input '%s' twice",
                               tool_path(path), tool_quote(input->info.name));
        if (note_only)
            input->given_by = turn;
        if (note_only || input->given_by > turn)
            continue;
        held_free(&input->held);
        status = npz_read(&zip, &zip.entries[i], inputs->max_bytes, &input->held);
        if (status == ATTNRUN_OK)
            status = take(inputs, input, tool_path(path));
    }
    zip_close(&zip);
    return status;
}

/* input_N.pb, or NAME.npy; what is in neither form is left to others. */
static attnrun_status give_folder(struct inputs *inputs, const char *folder)
{
    char path[4096], name[512];
    int32_t found = 0;
    if (!file_is_folder(folder))
        return tool_fail(ATTNRUN_E_IO, "--inputs: there is no folder %s",
                         tool_path(folder));
    for (int32_t i = 0; i < inputs->n; i++) {
        struct input *input = &inputs->v[i];
        snprintf(name, sizeof name, "input_%d.pb", i);
        TRY(file_join(path, sizeof path, folder, name));
        if (!file_exists(path)) {
            file_name_of(input->info.name, ".npy", name, sizeof name);
            TRY(file_join(path, sizeof path, folder, name));
        }
        if (!file_exists(path))
            continue;
        found++;
        if (input->given_by > 0)
            continue;
        TRY(read_file(inputs, input, path));
        TRY(take(inputs, input, tool_path(path)));
    }
    if (found == 0)
        return tool_fail(ATTNRUN_E_INPUT,
                         "%s holds neither input_N.pb nor an npy file named "
                         "like an input",
                         tool_path(folder));
    return ATTNRUN_OK;
}

/* "x=1x3x224x224" or "x=[1,3,224,224]" */
static attnrun_status set_shape(struct inputs *inputs, const char *text)
{
    const char *equals = inputs_equals(inputs, text, is_input);
    struct input *input = NULL;
    if (equals == NULL)
        return tool_fail(ATTNRUN_E_USAGE, "--shape: '%s' is not NAME=SHAPE",
                         tool_quote(text));
    TRY(find_input(inputs, text, (size_t)(equals - text), &input));
    const char *at = equals + 1;
    bool bracket = *at == '[', scalar = strcmp(at, "[]") == 0;
    at += bracket;
    input->shape_rank = 0;
    while (!scalar) {
        char *end;
        long long d = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : -1;
        if (d < 0 || d > INT64_C(1) << 47 || input->shape_rank == ATTNRUN_MAX_RANK)
            return tool_fail(ATTNRUN_E_USAGE,
                             "--shape: '%s' is not a shape such as 1x3x224x224",
                             tool_quote(equals + 1));
        input->dims[input->shape_rank++] = d;
        at = end;
        if (*at == 0 || strcmp(at, "]") == 0)
            break;
        at += strchr("xX,", *at) != NULL; /* what else stands there is no number */
    }
    attnrun_tensor shape = { .kind = ATTNRUN_TENSOR,
                             .dtype = input->info.dtype,
                             .rank = input->shape_rank };
    memcpy(shape.dims, input->dims, sizeof shape.dims);
    TRY(check_fit(input, &shape));
    input->held.tensor = shape; /* binds symbols; the memory comes with the values */
    symbols_bind(inputs, input);
    memset(&input->held, 0, sizeof input->held);
    return ATTNRUN_OK;
}

static bool is_archive(const char *text)
{
    return file_has_extension(text, ".npz") &&
           (strchr(text, '=') == NULL || file_exists(text));
}

/* Which of the -i, counted from 1, is the last one that gives each input. */
static attnrun_status note_turns(struct inputs *inputs)
{
    const struct list *list = &inputs->cli->inputs;
    for (int64_t i = 0; i < list->n; i++) {
        const char *text = list->v[i], *equals;
        struct input *input = NULL;
        if (is_archive(text)) {
            TRY(give_archive(inputs, text, i + 1, true));
            continue;
        }
        equals = inputs_equals(inputs, text, is_input);
        if (equals == NULL)
            return tool_fail(ATTNRUN_E_USAGE,
                             "-i: '%s' is neither NAME=WHAT nor an npz file",
                             tool_quote(text));
        TRY(find_input(inputs, text, (size_t)(equals - text), &input));
        input->given_by = i + 1;
    }
    return ATTNRUN_OK;
}

attnrun_status give_inputs(struct inputs *inputs)
{
    const struct cli *cli = inputs->cli;
    for (int64_t i = 0; i < cli->shapes.n; i++)
        TRY(set_shape(inputs, cli->shapes.v[i]));
    TRY(note_turns(inputs));
    if (cli->inputs_dir != NULL)
        TRY(give_folder(inputs, cli->inputs_dir));
    for (int64_t i = 0; i < cli->inputs.n; i++) {
        const char *text = cli->inputs.v[i];
        TRY(is_archive(text) ? give_archive(inputs, text, i + 1, false)
                             : give_value(inputs, text, i + 1));
    }
    return ATTNRUN_OK;
}
