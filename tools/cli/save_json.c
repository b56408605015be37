/* save_json.c - the outputs of a run as one JSON object: a tensor as nested lists, a
 * sequence as a list, a map as an object (integer keys as text), an optional as what it
 * holds or null. A number that is not finite is null, a complex one [real, imaginary]. */
#include <inttypes.h>
#include <math.h>

#include "../io/file.h"
#include "../io/map.h"
#include "job.h"
#include "name_set.h"

enum { MAX_EMPTY = 1 << 20 }; /* lists without an element, of one tensor */

static void put_element(struct json *json, const attnrun_tensor *tensor, int64_t k)
{
    const attnrun_string *text = tensor->data;
    if (tensor->dtype == ATTNRUN_STRING) {
        json_string(json, text[k].data, text[k].n);
    } else if (tensor->dtype == ATTNRUN_BOOL) {
        json_raw(json, value_get_int(tensor, k) != 0 ? "true" : "false");
    } else if (tensor->dtype == ATTNRUN_U64) {
        json_raw(json, value_text(tensor, k));
    } else if (value_is_complex(tensor->dtype)) {
        json_raw(json, "[");
        json_number(json, value_get(tensor, k), tensor->dtype);
        json_raw(json, ", ");
        json_number(json, value_get_imaginary(tensor, k), tensor->dtype);
        json_raw(json, "]");
    } else if (value_is_float(tensor->dtype)) {
        json_number(json, value_get(tensor, k), tensor->dtype);
    } else {
        json_raw(json, value_text(tensor, k));
    }
}

/* The rank of the lists whose elements are the empty lists of an empty tensor: [2,0] is [[],[]].
 * -1: they would be too many. */
static int32_t rank_around_empty(const attnrun_tensor *tensor)
{
    int64_t lists = 1;
    for (int32_t d = 0; d < tensor->rank && lists <= MAX_EMPTY; d++) {
        if (tensor->dims[d] == 0)
            return d;
        lists *= tensor->dims[d];
    }
    return -1;
}

static void put_tensor(struct json *json, const attnrun_tensor *tensor)
{
    const bool empty = attnrun_tensor_count(tensor) == 0;
    attnrun_tensor lists = *tensor;
    if (empty)
        lists.rank = rank_around_empty(tensor) > 0 ? rank_around_empty(tensor) : 0;
    const int64_t n = attnrun_tensor_count(&lists);
    for (int64_t k = 0; k < n; k++) {
        int64_t block = 1;
        int closed = 0;
        for (int32_t d = lists.rank - 1; d >= 0; d--) {
            block *= lists.dims[d];
            if (k % block == 0)
                json_raw(json, "[");
            closed += (k + 1) % block == 0;
        }
        if (empty)
            json_raw(json, "[]");
        else
            put_element(json, tensor, k);
        for (int i = 0; i < closed; i++)
            json_raw(json, "]");
        if (k + 1 < n)
            json_raw(json, closed > 0 ? ",\n" : ", ");
    }
}

static void put_map(struct json *json, const attnrun_tensor *map)
{
    const attnrun_tensor *keys = map_column(map, 0);
    const attnrun_string *text = keys->data;
    json_raw(json, "{");
    for (int64_t i = 0; i < map->dims[0]; i++) {
        json_raw(json, i > 0 ? ", " : "");
        if (keys->dtype == ATTNRUN_STRING) {
            json_string(json, text[i].data, text[i].n);
        } else {
            json_raw(json, "\"");
            json_raw(json, value_text(keys, i));
            json_raw(json, "\"");
        }
        json_raw(json, ": ");
        put_element(json, map_column(map, 1), i);
    }
    json_raw(json, "}");
}

static void put_plain(struct json *json, const attnrun_tensor *value)
{
    if (value->kind == ATTNRUN_MAP)
        put_map(json, value);
    else
        put_tensor(json, value);
}

void json_value(struct json *json, const char *key, const attnrun_tensor *value)
{
    json_key(json, key);
    while (value->kind == ATTNRUN_OPTIONAL || value->kind == ATTNRUN_OPTIONAL_SEQUENCE) {
        if (value->data == NULL) {
            json_raw(json, "null");
            return;
        }
        value = value->data;
    }
    if (value->kind != ATTNRUN_SEQUENCE && value->kind != ATTNRUN_MAP_SEQUENCE) {
        put_plain(json, value);
        return;
    }
    const attnrun_tensor *items = value->data;
    json_raw(json, "[");
    for (int64_t i = 0; i < value->dims[0]; i++) {
        json_raw(json, i > 0 ? ",\n" : "");
        put_plain(json, &items[i]);
    }
    json_raw(json, "]");
}

static ssize_t to_file(void *file, const char *data, size_t bytes)
{
    return output_file_write(file, data, (int64_t)bytes) == ATTNRUN_OK ? (ssize_t)bytes
                                                                       : 0;
}

/* Beside a shape, [] is enough for a tensor of too many empty lists; here it would be another. */
static attnrun_status check_empty(const char *name, const attnrun_tensor *value)
{
    while (
        (value->kind == ATTNRUN_OPTIONAL || value->kind == ATTNRUN_OPTIONAL_SEQUENCE) &&
        value->data != NULL)
        value = value->data;
    const bool list = value->kind == ATTNRUN_SEQUENCE;
    const attnrun_tensor *items = list ? value->data : value;
    for (int64_t i = 0; i < (list ? value->dims[0] : 1); i++)
        if (items[i].kind == ATTNRUN_TENSOR && attnrun_tensor_count(&items[i]) == 0 &&
            rank_around_empty(&items[i]) < 0)
            return tool_fail(
                ATTNRUN_E_LIMIT,
                "output '%s' is %s, which is more than %d empty lists in JSON",
                tool_quote(name), value_shape(&items[i]), MAX_EMPTY);
    return ATTNRUN_OK;
}

static attnrun_status write_outputs(struct job *job, struct json *json,
                                    struct name_set *seen)
{
    json_open(json, NULL, '{');
    for (int32_t i = 0; i < job->info.n_outputs; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        attnrun_tensor tensor;
        struct held copy;
        TRY_LIB(attnrun_model_output(job->model, i, &info));
        if (name_set_has(seen, info.name, NULL))
            continue; /* it is listed twice */
        if (!name_set_add(seen, info.name, NULL))
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
        TRY(output_dense(job, i, &tensor, &copy));
        const attnrun_status status = check_empty(info.name, &tensor);
        if (status == ATTNRUN_OK)
            json_value(json, info.name, &tensor);
        held_free(&copy);
        TRY(status);
    }
    json_close(json, '}');
    return ATTNRUN_OK;
}

attnrun_status outputs_save_json(struct job *job, const char *path)
{
    struct output_file file;
    struct json json = { .out = NULL };
    struct name_set seen = { .n = 0 };
    TRY(output_file_open(&file, path));
    json.out = fopencookie(&file, "w", (cookie_io_functions_t){ .write = to_file });
    attnrun_status status = json.out == NULL
                                ? tool_fail(ATTNRUN_E_MEMORY, "no memory for a stream")
                                : write_outputs(job, &json, &seen);
    name_set_free(&seen);
    if (json.out != NULL)
        fclose(json.out); /* a failure to write is the file's */
    return output_file_finish(&file, status);
}
