/* text.c - quantities as people read them.
 *
 * In: bytes, counts, milliseconds, and what a model says of itself. Out: short texts with units,
 * in one of eight buffers that are used in turn. */
#include <inttypes.h>
#include <string.h>

#include "job.h"
#include "screen.h"

enum { TEXT_BYTES = 512 };

static char *text_buffer(void)
{
    static char buffers[8][TEXT_BYTES];
    static unsigned next;
    return buffers[next++ % 8];
}

/* Three digits and a unit of a thousand. */
static const char *scaled(double value, const char *const *units, const char *last)
{
    char *out = text_buffer();
    int unit = 0;
    while (value >= 999.5 && unit < 4) {
        value /= 1000;
        unit++;
    }
    int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, TEXT_BYTES, "%.*f%s%s", digits, value, units[unit], last);
    return out;
}

const char *text_bytes(int64_t bytes)
{
    static const char *const units[] = { " B", " kB", " MB", " GB", " TB" };
    return scaled((double)bytes, units, "");
}

const char *text_count(int64_t count)
{
    static const char *const units[] = { "", " k", " M", " G", " T" };
    return scaled((double)count, units, "");
}

const char *text_rate(double per_second)
{
    char *out = text_buffer();
    const double units[] = { 1e9, 1e6, 1e3 };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (per_second >= units[i]) {
            snprintf(out, TEXT_BYTES, "%.3g %c", per_second / units[i], "GMk"[i]);
            return out;
        }
    snprintf(out, TEXT_BYTES, "%.3g", per_second);
    return out;
}

const char *text_ms(double ms)
{
    char *out = text_buffer();
    if (ms < 0.0995)
        snprintf(out, TEXT_BYTES, "%.*f us", ms < 0.00995 ? 2 : 1, ms * 1000);
    else if (ms >= 9995)
        snprintf(out, TEXT_BYTES, "%.1f s", ms / 1000);
    else
        snprintf(out, TEXT_BYTES, "%.*f ms", ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2, ms);
    return out;
}

const char *text_producer(const attnrun_model_info *info)
{
    char *out = text_buffer();
    snprintf(out, TEXT_BYTES, "%s%s%s", tool_quote(info->producer),
             info->producer_version[0] != 0 ? " " : "",
             tool_quote(info->producer_version));
    return out;
}

const char *text_opsets(const attnrun_model *model, const attnrun_model_info *info)
{
    char *out = text_buffer();
    size_t n = 0;
    out[0] = 0;
    for (int32_t i = 0; i < info->n_opsets && n < 200; i++) {
        const char *domain;
        int64_t version;
        if (attnrun_model_opset(model, i, &domain, &version) != ATTNRUN_OK)
            continue;
        n += (size_t)snprintf(out + n, TEXT_BYTES - n, "%s%s %" PRId64, i > 0 ? ", " : "",
                              domain[0] == 0 ? "ai.onnx" : tool_quote(domain), version);
    }
    return out;
}

const char *text_input(const struct input *input)
{
    static struct line lines[2];
    static unsigned next;
    struct line *line = &lines[next++ % 2];
    const attnrun_tensor *tensor = &input->held.tensor;
    if (tensor->kind != ATTNRUN_TENSOR)
        return value_shape(tensor);
    line->n = 0;
    line_add(line, "%s[", attnrun_dtype_name(tensor->dtype));
    for (int32_t d = 0; d < tensor->rank; d++) {
        const char *name = input->info.rank == tensor->rank && input->info.dims[d] < 0
                               ? input->info.dim_names[d]
                               : "";
        line_add(line, "%s%s%s%" PRId64, d > 0 ? "," : "", tool_quote(name),
                 name[0] != 0 ? "=" : "", tensor->dims[d]);
    }
    line_add(line, "]");
    return line->text;
}

const char *text_blas(const char *blas)
{
    char *out = text_buffer();
    size_t n = strcspn(blas, " ");
    n += blas[n] == ' ' ? 1 + strcspn(blas + n + 1, " ") : 0;
    snprintf(out, TEXT_BYTES, "%.*s", (int)n, blas);
    return out;
}

const char *text_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return tool_path(slash == NULL ? path : slash + 1);
}
