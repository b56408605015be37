/* api_args.c - what fuzz_api gives to calls, and what it looks at after them; see api_case.h.
 *
 * Tensors that lie do so in what the library can see: kinds, types, ranks, dims, missing data.
 * All addresses that dims and strides allow are memory of the case. */
#include "api_case.h"
#include "results.h"

enum { PATTERN = 0xc3, MAX_SPREAD = 1 << 16 };

void api_wrong(const struct api_case *a, const char *what)
{
    fprintf(stderr, "seed %llu: call %llu, %s: %s\n", (unsigned long long)a->seed,
            (unsigned long long)a->calls, a->call != NULL ? a->call : "", what);
    abort();
}

attnrun_status api_check(struct api_case *a, attnrun_status status)
{
    const attnrun_error *error = attnrun_last_error();
    a->calls++;
    a->good += status == ATTNRUN_OK;
    if (a->told)
        fprintf(stderr, "%s: %s\n", a->call,
                status == ATTNRUN_OK ? "OK" : error->message);
    if (status == ATTNRUN_OK)
        return status;
    if (strcmp(attnrun_status_name(status), "UNKNOWN") == 0)
        api_wrong(a, "a status that the header does not list");
    if (status == ATTNRUN_E_INTERNAL || error->status != status || error->message[0] == 0)
        api_wrong(a, error->message);
    for (const char *at = error->message; *at != 0; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            api_wrong(a, "a sentence with a control character");
    return status;
}

void *api_hold(struct api_case *a, int64_t bytes)
{
    return fuzz_hold(&a->sources[0], bytes);
}

/* ---- structs ---- */

void *api_given(struct api_case *a, size_t bytes)
{
    uint32_t *given = api_hold(a, API_ROOM);
    memset(given, 0, API_ROOM);
    *given = (uint32_t)bytes;
    return given;
}

static uint32_t other_size(struct api_case *a, size_t bytes)
{
    const uint32_t known = (uint32_t)bytes;
    switch (fuzz_below(&a->r, 5)) {
    case 0:
        return 0;
    case 1:
        return (uint32_t)fuzz_below(&a->r, known + 64);
    case 2:
        return known + 8 * (uint32_t)fuzz_below(&a->r, 33);
    case 3:
        return (uint32_t)fuzz_next(&a->r);
    default:
        return 8 * (uint32_t)fuzz_below(&a->r, known / 8 + 1);
    }
}

void *api_spoil(struct api_case *a, void *given, size_t bytes)
{
    if (!fuzz_chance(&a->r, 4))
        return given;
    if (fuzz_chance(&a->r, 10))
        return NULL;
    const uint32_t size = other_size(a, bytes);
    memcpy(given, &size, sizeof size);
    if (fuzz_chance(&a->r, 20)) /* what a newer header might say */
        ((uint8_t *)given)[bytes + (size_t)fuzz_below(&a->r, 64)] = 1;
    return given;
}

void *api_to_fill(struct api_case *a, struct api_filled *filled, size_t bytes)
{
    uint32_t size = fuzz_chance(&a->r, 4) ? other_size(a, bytes) : (uint32_t)bytes;
    memset(filled->bytes, PATTERN, sizeof filled->bytes);
    for (size_t i = bytes; i < size && i < sizeof filled->bytes; i++)
        filled->bytes[i] = 0;
    memcpy(filled->bytes, &size, sizeof size);
    memcpy(filled->before, filled->bytes, sizeof filled->bytes);
    filled->known = (uint32_t)bytes;
    return filled->bytes;
}

bool api_is_filled(const struct api_case *a, const struct api_filled *filled,
                   attnrun_status status)
{
    uint32_t size;
    memcpy(&size, filled->before, sizeof size);
    size_t from = size < filled->known ? size : filled->known;
    if (status != ATTNRUN_OK)
        from = 0;
    if (memcmp(filled->bytes, filled->before, sizeof size) != 0 ||
        memcmp(filled->bytes + from, filled->before + from, sizeof filled->bytes - from))
        api_wrong(a, status == ATTNRUN_OK ? "it wrote behind the struct"
                                          : "it failed, and wrote into the struct");
    return status == ATTNRUN_OK && size >= filled->known;
}

int32_t api_index(struct api_case *a, int64_t n)
{
    return fuzz_chance(&a->r, 95) ? (int32_t)fuzz_below(&a->r, n)
                                  : (int32_t)fuzz_int(&a->r);
}

/* ---- names ---- */

const char *api_name(struct api_case *a, const struct api_model *model)
{
    static const char *const odd[] = { "", "x", "\x1b[31m", "\xff\xfe", "no such name" };
    attnrun_node_info node = { .struct_size = sizeof node };
    attnrun_value_info value = { .struct_size = sizeof value };
    if (fuzz_chance(&a->r, 8))
        return fuzz_chance(&a->r, 10) ? NULL : odd[fuzz_below(&a->r, 5)];
    const int32_t any = (int32_t)fuzz_below(&a->r, model->info.n_nodes);
    if (fuzz_chance(&a->r, 60) &&
        attnrun_model_node(model->handle, any, &node) == ATTNRUN_OK && node.n_outputs > 0)
        return node.outputs[fuzz_below(&a->r, node.n_outputs)];
    if (fuzz_chance(&a->r, 50) && model->info.n_inputs > 0 &&
        attnrun_model_input(model->handle,
                            (int32_t)fuzz_below(&a->r, model->info.n_inputs),
                            &value) == ATTNRUN_OK)
        return value.name;
    if (attnrun_model_output(model->handle,
                             (int32_t)fuzz_below(&a->r, model->info.n_outputs),
                             &value) == ATTNRUN_OK)
        return value.name;
    return "";
}

/* ---- tensors ---- */

/* The same elements, at other places: in another order, backwards, with gaps, from an odd
 * address. */
static void restride(struct api_case *a, attnrun_tensor *t)
{
    const int64_t size = attnrun_dtype_bits(t->dtype) / 8, n = attnrun_tensor_count(t);
    int64_t order[ATTNRUN_MAX_RANK] = { 0 }, strides[ATTNRUN_MAX_RANK] = { 0 };
    int64_t span = size, low = 0, index[ATTNRUN_MAX_RANK] = { 0 };
    if (t->rank == 0 || size == 0 || n < 1 || n > MAX_SPREAD ||
        t->dtype == ATTNRUN_STRING)
        return;
    for (int32_t i = 0; i < t->rank; i++) {
        const int32_t k = (int32_t)fuzz_below(&a->r, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (int32_t i = 0; i < t->rank; i++) {
        const int64_t axis = order[i], back = fuzz_chance(&a->r, 15) ? -1 : 1;
        strides[axis] = back * span;
        low += back < 0 ? span * (t->dims[axis] - 1) : 0;
        span = span * t->dims[axis] + (fuzz_chance(&a->r, 30) ? size : 0) +
               (fuzz_chance(&a->r, 6) ? 1 : 0);
    }
    if (span > 16 * (int64_t)MAX_SPREAD)
        return;
    uint8_t *wide = api_hold(a, span + 1), *at = wide + low + fuzz_chance(&a->r, 6);
    memset(wide, 0x77, (size_t)span + 1);
    for (int64_t k = 0; k < n; k++) {
        int64_t from = 0, to = 0;
        for (int32_t i = 0; i < t->rank; i++) {
            from += index[i] * t->strides[i];
            to += index[i] * strides[i];
        }
        memcpy(at + to, (const uint8_t *)t->data + from, (size_t)size);
        for (int32_t i = t->rank - 1; i >= 0 && ++index[i] == t->dims[i]; i--)
            index[i] = 0;
    }
    t->data = at;
    memcpy(t->strides, strides, sizeof strides);
}

/* A tensor whose data is not what the rest says, where the library can see it. */
static void lie(struct api_case *a, attnrun_tensor *t)
{
    struct fuzz_random *r = &a->r;
    const int32_t axis = (int32_t)fuzz_below(r, ATTNRUN_MAX_RANK);
    switch (fuzz_below(r, 7)) {
    case 0:
        t->kind = (int32_t)fuzz_int(r);
        t->kind = t->kind == ATTNRUN_TENSOR ? 77 : t->kind;
        t->data = NULL;
        break;
    case 1:
        t->dtype = (int32_t)fuzz_int(r);
        t->data = NULL;
        break;
    case 2:
        t->rank = fuzz_chance(r, 50) ? -1 - (int32_t)fuzz_below(r, 9)
                                     : 9 + (int32_t)fuzz_below(r, 1 << 20);
        break;
    case 3:
        t->dims[axis] = -1 - fuzz_below(r, 5);
        t->data = NULL;
        break;
    case 4: /* all elements are the first one */
        if (t->kind == ATTNRUN_TENSOR && attnrun_dtype_bits(t->dtype) >= 8 &&
            attnrun_tensor_count(t) > 0) {
            t->dims[axis] = INT64_C(1) << fuzz_below(r, 63);
            memset(t->strides, 0, sizeof t->strides);
        }
        break;
    case 5:
        t->data = NULL;
        break;
    default:
        if (t->data != NULL && t->dtype == ATTNRUN_STRING && fuzz_is_dense(t) &&
            attnrun_tensor_count(t) > 0) {
            attnrun_string *text = api_hold(a, attnrun_tensor_bytes(t));
            memcpy(text, t->data, (size_t)attnrun_tensor_bytes(t));
            *text = (attnrun_string){ NULL, fuzz_chance(r, 50) ? -1 : 5 };
            t->data = text;
        }
    }
}

attnrun_tensor api_input(struct api_case *a, const struct api_context *c, int32_t index)
{
    attnrun_tensor t =
        index >= 0 && index < c->n_inputs && index < API_INPUTS
            ? fuzz_input(c->from, index, &c->inputs[index])
            : (attnrun_tensor){ .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_F32 };
    if (t.kind == ATTNRUN_TENSOR && fuzz_chance(&a->r, 20))
        restride(a, &t);
    if (fuzz_chance(&a->r, 4))
        lie(a, &t);
    return t;
}

attnrun_tensor api_room_for(struct api_case *a, const attnrun_tensor *shape)
{
    attnrun_tensor near = *shape, made = { .kind = ATTNRUN_TENSOR };
    if (near.rank > 0 && near.rank <= ATTNRUN_MAX_RANK && fuzz_chance(&a->r, 10))
        near.dims[fuzz_below(&a->r, near.rank)] += fuzz_chance(&a->r, 50) ? 1 : -1;
    if (fuzz_chance(&a->r, 5))
        near.dtype = 1 + (int32_t)fuzz_below(&a->r, ATTNRUN_DTYPE_COUNT - 1);
    if (shape->kind != ATTNRUN_TENSOR ||
        attnrun_tensor_make(near.dtype, near.rank, near.dims, NULL, &made) !=
            ATTNRUN_OK ||
        attnrun_tensor_bytes(&made) > 1 << 20)
        return (
            attnrun_tensor){ .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_F32, .rank = 9 };
    const int64_t odd = fuzz_chance(&a->r, 8);
    made.data = (uint8_t *)api_hold(a, attnrun_tensor_bytes(&made) + odd) + odd;
    memset(made.data, 0, (size_t)attnrun_tensor_bytes(&made));
    if (fuzz_chance(&a->r, 3))
        lie(a, &made);
    return made;
}

const attnrun_tensor *api_shapes(struct api_case *a, struct fuzz_case *from, int32_t n,
                                 const attnrun_value_info *infos)
{
    attnrun_tensor *shapes = api_hold(a, (n + 1) * (int64_t)sizeof *shapes);
    for (int32_t i = 0; i < n; i++) {
        shapes[i] = (attnrun_tensor){ .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_F32 };
        if (i < API_INPUTS)
            shapes[i] = fuzz_input(from, i, &infos[i]);
        const bool tensor = shapes[i].kind == ATTNRUN_TENSOR;
        if (tensor && shapes[i].rank > 0 && fuzz_chance(&a->r, 8))
            shapes[i].dims[fuzz_below(&a->r, shapes[i].rank)] =
                fuzz_chance(&a->r, 50) ? fuzz_int(&a->r)
                                       : INT64_C(1) << fuzz_below(&a->r, 63);
        if (tensor)
            shapes[i].data = NULL;
        if (fuzz_chance(&a->r, 2))
            lie(a, &shapes[i]);
    }
    return fuzz_chance(&a->r, 2) ? NULL : shapes;
}
