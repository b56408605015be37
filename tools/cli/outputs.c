/* outputs.c - the outputs of a run.
 *
 * In: a job that has run. Out: summaries on the screen (type, shape, range, digest), all values,
 * their JSON, or files: npy, npz, JSON, or a folder. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../io/digest.h"
#include "../io/npy.h"
#include "../io/npz.h"
#include "files.h"
#include "job.h"
#include "name_set.h"
#include "screen.h"

static bool is_dense(const attnrun_tensor *tensor)
{
    int64_t stride = attnrun_dtype_bits(tensor->dtype) / 8;
    if (tensor->kind != ATTNRUN_TENSOR || attnrun_dtype_bits(tensor->dtype) < 8 ||
        attnrun_tensor_count(tensor) == 0)
        return true;
    for (int32_t d = tensor->rank - 1; d >= 0; d--) {
        if (tensor->dims[d] != 1 && tensor->strides[d] != stride)
            return false;
        stride *= tensor->dims[d];
    }
    return true;
}

static attnrun_status make_dense(attnrun_tensor *tensor, struct held *copy)
{
    int64_t index[ATTNRUN_MAX_RANK] = { 0 }, n = attnrun_tensor_count(tensor);
    int64_t bytes = attnrun_dtype_bits(tensor->dtype) / 8;
    TRY(held_make(copy, tensor->dtype, tensor->rank, tensor->dims, 0));
    const uint8_t *from = tensor->data;
    for (int64_t k = 0; k < n; k++) {
        memcpy((uint8_t *)copy->memory + k * bytes, from, (size_t)bytes);
        for (int32_t d = tensor->rank - 1; d >= 0; d--) {
            from += tensor->strides[d];
            if (++index[d] < tensor->dims[d])
                break;
            from -= tensor->strides[d] * tensor->dims[d];
            index[d] = 0;
        }
    }
    *tensor = copy->tensor;
    return ATTNRUN_OK;
}

attnrun_status output_dense(struct job *job, int32_t index, attnrun_tensor *tensor,
                            struct held *copy)
{
    memset(copy, 0, sizeof *copy);
    TRY_LIB(attnrun_output(job->context, index, tensor));
    return is_dense(tensor) ? ATTNRUN_OK : make_dense(tensor, copy);
}

static uint64_t digest_strings(const attnrun_tensor *tensor, int64_t n)
{
    const attnrun_string *s = tensor->data;
    uint64_t digest = 0;
    for (int64_t k = 0; k < n; k++)
        digest = digest_xxh64(s[k].data, (size_t)s[k].n, digest + 1);
    return digest;
}

void summarize(const attnrun_tensor *tensor, struct summary *summary)
{
    int64_t n = attnrun_tensor_count(tensor), counted = 0;
    double sum = 0;
    memset(summary, 0, sizeof *summary);
    if (tensor->dtype == ATTNRUN_STRING) {
        summary->digest = digest_strings(tensor, n);
        return;
    }
    summary->digest = digest_xxh64(tensor->data, (size_t)attnrun_tensor_bytes(tensor), 0);
    for (int64_t k = 0; k < n; k++) {
        const double v = value_get(tensor, k), i = value_get_imaginary(tensor, k);
        if (!isfinite(v) || !isfinite(i)) {
            const bool nan = isnan(v) || isnan(i);
            summary->nan += nan;
            summary->infinite += !nan;
            continue;
        }
        summary->min = counted == 0 || v < summary->min ? v : summary->min;
        summary->max = counted == 0 || v > summary->max ? v : summary->max;
        sum += v;
        counted++;
    }
    summary->has_numbers = counted > 0;
    summary->mean = counted > 0 ? sum / (double)counted : 0;
    if (isfinite(sum))
        return;
    summary->mean = 0; /* the sum of large f64 overflows, their mean does not */
    for (int64_t k = 0; k < n; k++)
        if (isfinite(value_get(tensor, k)))
            summary->mean += value_get(tensor, k) / (double)counted;
}

/* Optionals are looked into; `none` stands for an empty one. */
static const attnrun_tensor *unwrap(const attnrun_tensor *value)
{
    static const attnrun_tensor none = { .kind = ATTNRUN_ABSENT };
    while (value->kind == ATTNRUN_OPTIONAL || value->kind == ATTNRUN_OPTIONAL_SEQUENCE)
        value = value->data == NULL ? &none : value->data;
    return value;
}

static void print_line(const char *name, const attnrun_tensor *tensor)
{
    struct summary s;
    struct line line = { .n = 0 };
    line_add(&line, "%s %s", tool_quote(name), value_shape(tensor));
    if (tensor->kind == ATTNRUN_TENSOR) {
        summarize(tensor, &s);
        if (s.has_numbers)
            line_add(&line, "  mean %.5g  min %.5g  max %.5g", s.mean, s.min, s.max);
        if (s.nan > 0)
            line_add(&line, "  %" PRId64 " NaN", s.nan);
        if (s.infinite > 0)
            line_add(&line, "  %" PRId64 " infinite", s.infinite);
        if (s.nan + s.infinite > 0)
            line_add(&line, " of %" PRId64, attnrun_tensor_count(tensor));
        else if (s.has_numbers && value_is_float(tensor->dtype))
            line_add(&line, "  finite");
        line_add(&line, "  xxh64 %016" PRIx64, s.digest);
    }
    screen_text("output", 9, line.text);
}

/* One output: its name, and itself or a tensor of the sequence that it is. */
typedef attnrun_status output_visit(void *user, const char *name,
                                    const attnrun_tensor *tensor);

static attnrun_status visit_value(const char *name, const attnrun_tensor *value,
                                  output_visit *visit, void *user)
{
    value = unwrap(value);
    if (value->kind != ATTNRUN_SEQUENCE)
        return visit(user, name, value);
    const attnrun_tensor *items = value->data;
    const size_t bytes = strlen(name) + 24;
    char *item = malloc(bytes);
    attnrun_status status =
        item != NULL ? ATTNRUN_OK : tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
    for (int64_t i = 0; i < value->dims[0] && status == ATTNRUN_OK; i++) {
        snprintf(item, bytes, "%s.%" PRId64, name, i);
        status = visit(user, item, &items[i]);
    }
    free(item);
    return status;
}

/* An output that the model lists twice is one. */
static attnrun_status visit_output(struct job *job, int32_t index, struct name_set *seen,
                                   output_visit *visit, void *user)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_tensor tensor;
    struct held copy;
    TRY_LIB(attnrun_model_output(job->model, index, &info));
    if (name_set_has(seen, info.name, NULL))
        return ATTNRUN_OK;
    if (!name_set_add(seen, info.name, NULL))
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
    TRY(output_dense(job, index, &tensor, &copy));
    attnrun_status status = visit_value(info.name, &tensor, visit, user);
    held_free(&copy);
    return status;
}

static attnrun_status visit_outputs(struct job *job, output_visit *visit, void *user)
{
    struct name_set seen = { .n = 0 };
    attnrun_status status = ATTNRUN_OK;
    for (int32_t i = 0; i < job->info.n_outputs && status == ATTNRUN_OK; i++)
        status = visit_output(job, i, &seen, visit, user);
    name_set_free(&seen);
    return status;
}

static attnrun_status print_one(void *user, const char *name,
                                const attnrun_tensor *tensor)
{
    (void)user;
    print_line(name, tensor);
    return ATTNRUN_OK;
}

attnrun_status outputs_print(struct job *job)
{
    return visit_outputs(job, print_one, NULL);
}

static attnrun_status count_not_finite(void *user, const char *name,
                                       const attnrun_tensor *tensor)
{
    int64_t *count = user;
    const bool counted =
        tensor->kind == ATTNRUN_TENSOR &&
        (value_is_float(tensor->dtype) || value_is_complex(tensor->dtype));
    const int64_t n = counted ? attnrun_tensor_count(tensor) : 0;
    (void)name;
    for (int64_t k = 0; k < n; k++)
        *count +=
            !isfinite(value_get(tensor, k)) || !isfinite(value_get_imaginary(tensor, k));
    return ATTNRUN_OK;
}

attnrun_status outputs_count_not_finite(struct job *job, int64_t *count)
{
    *count = 0;
    return visit_outputs(job, count_not_finite, count);
}

/* Nested lists, one innermost list a line. */
static attnrun_status print_values(void *user, const char *name,
                                   const attnrun_tensor *tensor)
{
    int64_t n = tensor->kind == ATTNRUN_TENSOR ? attnrun_tensor_count(tensor) : 0;
    (void)user;
    printf("%s %s\n", tool_quote(name), value_shape(tensor));
    if (tensor->kind == ATTNRUN_MAP || tensor->kind == ATTNRUN_MAP_SEQUENCE) {
        struct json json = { .out = stdout };
        json_value(&json, NULL, tensor);
        putchar('\n');
    }
    for (int64_t k = 0; k < n; k++) {
        int opened = 0, closed = 0;
        int64_t block = 1;
        for (int32_t d = tensor->rank - 1; d >= 0; d--) {
            block *= tensor->dims[d];
            opened += k % block == 0;
            closed += (k + 1) % block == 0;
        }
        for (int i = 0; i < opened; i++)
            putchar('[');
        fputs(value_text(tensor, k), stdout);
        for (int i = 0; i < closed; i++)
            putchar(']');
        fputs(k + 1 == n ? "\n" : closed > 0 ? ",\n" : ", ", stdout);
    }
    return ATTNRUN_OK;
}

attnrun_status outputs_print_full(struct job *job)
{
    return visit_outputs(job, print_values, NULL);
}

struct written {
    struct json *json;
    bool values;
};

static attnrun_status json_one(void *user, const char *name, const attnrun_tensor *tensor)
{
    struct written *to = user;
    struct json *json = to->json;
    struct summary s;
    char digest[24];
    const bool wide = tensor->dtype == ATTNRUN_F64 || !value_is_float(tensor->dtype);
    const int32_t dtype = wide ? ATTNRUN_F64 : ATTNRUN_F32;
    json_open(json, NULL, '{');
    json_text(json, "name", name);
    json_text(json, "kind", value_kind_name(tensor->kind));
    json_text(json, "dtype", attnrun_dtype_name(tensor->dtype));
    json_dims(json, "shape", tensor);
    if (tensor->kind == ATTNRUN_TENSOR) {
        summarize(tensor, &s);
        json_real(json, "mean", s.has_numbers ? s.mean : (double)NAN);
        json_real_of(json, "min", s.has_numbers ? s.min : (double)NAN, dtype);
        json_real_of(json, "max", s.has_numbers ? s.max : (double)NAN, dtype);
        json_int(json, "nan_count", s.nan);
        json_int(json, "infinite_count", s.infinite);
        snprintf(digest, sizeof digest, "%016" PRIx64, s.digest);
        json_text(json, "xxh64", digest);
    }
    if (to->values)
        json_value(json, "values", tensor);
    json_close(json, '}');
    return ATTNRUN_OK;
}

attnrun_status outputs_json(struct job *job, struct json *json)
{
    json_open(json, "outputs", '[');
    const char *print = job->cli->print;
    struct written to = { json, print != NULL && strcmp(print, "full") == 0 };
    attnrun_status status = visit_outputs(job, json_one, &to);
    json_close(json, ']');
    return status;
}

static attnrun_status add_to_archive(void *user, const char *name,
                                     const attnrun_tensor *tensor)
{
    return tensor->kind == ATTNRUN_TENSOR ? npz_add(user, name, tensor) : ATTNRUN_OK;
}

static attnrun_status write_archive(struct job *job, const char *path)
{
    struct zip_writer zip;
    TRY(zip_create(&zip, path));
    attnrun_status status = visit_outputs(job, add_to_archive, &zip);
    if (status == ATTNRUN_OK)
        return zip_commit(&zip);
    zip_abandon(&zip);
    return status;
}

static attnrun_status save_in_folder(void *user, const char *name,
                                     const attnrun_tensor *tensor)
{
    char path[4096], file[512];
    if (tensor->kind != ATTNRUN_TENSOR)
        return ATTNRUN_OK;
    file_name_of(name, ".npy", file, sizeof file);
    TRY(file_join(path, sizeof path, user, file));
    return npy_save(path, tensor);
}

static bool has_maps(const struct job *job)
{
    for (int32_t i = 0; i < job->info.n_outputs; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        if (attnrun_model_output(job->model, i, &info) == ATTNRUN_OK &&
            (info.kind == ATTNRUN_MAP || info.kind == ATTNRUN_MAP_SEQUENCE))
            return true;
    }
    return false;
}

/* The form that outputs take at a path: by its extension, and what has none to go by (a
 * device, a FIFO, "-") takes one output as npy, several as npz, and maps as JSON. */
enum form { FORM_NPZ, FORM_NPY, FORM_JSON, FORM_FOLDER };

static enum form form_of(const struct job *job, const char *path)
{
    if (file_has_extension(path, ".npz"))
        return FORM_NPZ;
    if (file_has_extension(path, ".npy"))
        return FORM_NPY;
    if (file_has_extension(path, ".json"))
        return FORM_JSON;
    if (file_is_special(path) && has_maps(job))
        return FORM_JSON;
    if (file_is_special(path))
        return job->info.n_outputs == 1 ? FORM_NPY : FORM_NPZ;
    return FORM_FOLDER;
}

/* The formats of NumPy hold no maps. */
static attnrun_status check_kinds(const struct job *job, const char *path)
{
    for (int32_t i = 0; i < job->info.n_outputs; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        TRY_LIB(attnrun_model_output(job->model, i, &info));
        if (info.kind != ATTNRUN_MAP && info.kind != ATTNRUN_MAP_SEQUENCE)
            continue;
        tool_fail(ATTNRUN_E_USAGE,
                  "-o %s: output '%s' is made of maps, which %s cannot hold",
                  tool_path(path), tool_quote(info.name),
                  file_has_extension(path, ".npz") ? "a npz file" : "a npy file");
        tool_hint("-o out.json");
        return ATTNRUN_E_USAGE;
    }
    return ATTNRUN_OK;
}

attnrun_status outputs_check_path(const struct job *job, const char *path)
{
    enum form form = form_of(job, path);
    if (form == FORM_JSON)
        return ATTNRUN_OK;
    TRY(check_kinds(job, path));
    if (form == FORM_NPY && job->info.n_outputs != 1)
        return tool_fail(ATTNRUN_E_USAGE,
                         "-o %s: an npy file holds one output, the model has %d",
                         tool_path(path), job->info.n_outputs);
    if (form == FORM_FOLDER && !file_is_folder(path) && path[strlen(path) - 1] != '/')
        return tool_fail(ATTNRUN_E_USAGE,
                         "-o %s: neither an npz, npy or json file nor a folder "
                         "(a new folder ends in /)",
                         tool_path(path));
    return ATTNRUN_OK;
}

static attnrun_status write_single(struct job *job, const char *path)
{
    attnrun_tensor tensor;
    struct held copy;
    TRY(output_dense(job, 0, &tensor, &copy));
    attnrun_status status = tensor.kind == ATTNRUN_TENSOR
                                ? npy_save(path, &tensor)
                                : tool_fail(ATTNRUN_E_USAGE, "-o %s: the output is a %s",
                                            tool_path(path), value_shape(&tensor));
    held_free(&copy);
    return status;
}

/* NumPy has no bf16, f8, i4 …: the reader of the file should know that its elements are wider. */
static attnrun_status note_wider(void *user, const char *name,
                                 const attnrun_tensor *tensor)
{
    int32_t wider = tensor->kind == ATTNRUN_TENSOR ? npy_wider_type(tensor->dtype) : 0;
    if (wider != 0)
        fprintf(
            stderr,
            "attnrun: note: output '%s' is %s, which NumPy lacks: %s holds it as %s\n",
            tool_quote(name), attnrun_dtype_name(tensor->dtype), tool_path(user),
            attnrun_dtype_name(wider));
    return ATTNRUN_OK;
}

/* No tensor of the sequence `value`, whose name is `sequence`, is called like an output. */
static attnrun_status check_items(const struct name_set *names, const char *sequence,
                                  const attnrun_tensor *value)
{
    const size_t bytes = strlen(sequence) + 24;
    const int64_t n = value->kind == ATTNRUN_SEQUENCE ? value->dims[0] : 0;
    char *item = malloc(bytes);
    attnrun_status status =
        item != NULL ? ATTNRUN_OK : tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
    for (int64_t i = 0; i < n && status == ATTNRUN_OK; i++) {
        snprintf(item, bytes, "%s.%" PRId64, sequence, i);
        if (name_set_has(names, item, NULL))
            status =
                tool_fail(ATTNRUN_E_USAGE,
                          "output '%s' has the name of a tensor of the sequence '%s': "
                          "-o out.json holds both",
                          tool_quote(item), tool_quote(sequence));
    }
    free(item);
    return status;
}

/* The tensors of a sequence 'y' are called y.0, y.1, ...: no other output may be. The first pass
 * takes the names, the second looks for them. */
static attnrun_status check_names(struct job *job)
{
    struct name_set names = { .n = 0 };
    attnrun_status status = ATTNRUN_OK;
    for (int64_t k = 0; k < 2 * (int64_t)job->info.n_outputs && !status; k++) {
        const int32_t i = (int32_t)(k % job->info.n_outputs);
        attnrun_value_info info = { .struct_size = sizeof info };
        attnrun_tensor value;
        status = attnrun_model_output(job->model, i, &info);
        if (status == ATTNRUN_OK)
            status = attnrun_output(job->context, i, &value);
        if (status != ATTNRUN_OK)
            tool_fail_library(status);
        else if (k >= job->info.n_outputs)
            status = check_items(&names, info.name, unwrap(&value));
        else if (!name_set_add(&names, info.name, NULL))
            status = tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
    }
    name_set_free(&names);
    return status;
}

static attnrun_status write_folder(struct job *job, const char *path)
{
    char folder[4096];
    if (!file_is_folder(path) && mkdir(path, 0777) != 0)
        return tool_fail_io("cannot make the folder %s", tool_path(path));
    snprintf(folder, sizeof folder, "%s", path);
    return visit_outputs(job, save_in_folder, folder);
}

attnrun_status outputs_write(struct job *job, const char *path)
{
    enum form form = form_of(job, path);
    char where[4096];
    if (form == FORM_JSON)
        return outputs_save_json(job, path);
    TRY(check_names(job));
    TRY(form == FORM_FOLDER ? write_folder(job, path)
        : form == FORM_NPZ  ? write_archive(job, path)
                            : write_single(job, path));
    snprintf(where, sizeof where, "%s", path);
    return visit_outputs(job, note_wider, where);
}
