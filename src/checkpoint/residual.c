#include "checkpoint/residual.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/number.h"
#include "base/str.h"
#include "model/adapter_config.h"
#include "model/module.h"

static tt_status find_entry(const struct tt_safetensors *file, const char *module, const char *suffix,
                            const struct tt_safetensors_entry **entry)
{
    char name[600];
    (void)tt_snprintf(name, sizeof name, "%s.%s", module, suffix);
    char *key = tt_adapter_key(name);
    if (key == NULL) return TT_ERR_MEMORY;
    *entry = tt_safetensors_find(file, key);
    tt_free(key);
    return TT_OK;
}

tt_status tt_residual_find(const struct tt_model *model, const struct tt_safetensors *first, bool negated,
                           const tt_param *param, struct tt_residual *residual)
{
    static const char end[] = ".weight";
    char path[512];
    *residual = (struct tt_residual){.first = NULL};
    if (first == NULL || param->adapter || !tt_ends_with(param->name, end)) return TT_OK;
    (void)snprintf(path, sizeof path, "%.*s", (int)(strlen(param->name) - strlen(end)), param->name);
    const struct tt_module *module = tt_model_find_module(model, path);
    if (module == NULL || !module->adapted) return TT_OK;
    TT_TRY(find_entry(first, path, "lora_A.weight", &residual->a));
    TT_TRY(find_entry(first, path, "lora_B.weight", &residual->b));
    if (residual->a == NULL || residual->b == NULL)
        return tt_fail(TT_ERR_DATA, "'%s' has no first values of '%s'", tt_safetensors_path(first), path);
    const int64_t *a = residual->a->dims, *b = residual->b->dims;
    if (residual->a->rank != 2 || residual->b->rank != 2 || a[0] != module->r || b[1] != module->r ||
        a[1] != param->dims[1] || b[0] != param->dims[0])
        return tt_fail(TT_ERR_DATA, "'%s' has first values of '%s' of another shape",
                       tt_safetensors_path(first), path);
    residual->first = first;
    residual->scaling = (double)module->scaling * (negated ? -1 : 1);
    return TT_OK;
}

/* A with the rows of B that the elements need. */
struct factors {
    float *a_RI, *b_R; /* rows of B from row `row` on */
    double *sum_I;
    int64_t in, r, row;
};

static tt_status read_factors(const struct tt_residual *residual, int64_t first, int64_t count,
                              struct factors *factors)
{
    int64_t in = residual->a->dims[1], r = residual->a->dims[0];
    int64_t row = first / in, rows = (first + count - 1) / in - row + 1;
    *factors = (struct factors){.in = in, .r = r, .row = row};
    factors->a_RI = tt_alloc_aligned((size_t)(r * in) * sizeof *factors->a_RI);
    factors->b_R = tt_alloc_aligned((size_t)(rows * r) * sizeof *factors->b_R);
    factors->sum_I = tt_alloc_aligned((size_t)in * sizeof *factors->sum_I);
    if (factors->a_RI == NULL || factors->b_R == NULL || factors->sum_I == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_safetensors_read(residual->first, residual->a, 0, r * in, factors->a_RI, TT_F32));
    return tt_safetensors_read(residual->first, residual->b, row * r, rows * r, factors->b_R, TT_F32);
}

/* Takes scaling B A out of columns first .. end - 1 of a row. */
static void take_row(const struct factors *factors, double scaling, int64_t row, int64_t first, int64_t end,
                     float *values)
{
    double *sum = factors->sum_I;
    memset(sum + first, 0, (size_t)(end - first) * sizeof *sum);
    for (int64_t j = 0; j < factors->r; j++) {
        const float *a_I = factors->a_RI + j * factors->in;
        double by = scaling * (double)factors->b_R[(row - factors->row) * factors->r + j];
        for (int64_t i = first; i < end; i++) sum[i] += by * (double)a_I[i];
    }
    for (int64_t i = first; i < end; i++) values[i - first] -= (float)sum[i];
}

tt_status tt_residual_read(void *context, int64_t first, int64_t count, void *to)
{
    const struct tt_residual *residual = context;
    struct factors factors = {.in = 0};
    tt_status status = TT_OK;
    bool wide = residual->dtype == TT_F32;
    float *values = wide ? to : tt_alloc_aligned((size_t)count * sizeof *values);
    if (values == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_safetensors_read(residual->file, residual->entry, first, count, values, TT_F32));
    for (int64_t i = 0; residual->turned && i < count; i++) values[i] = -values[i];
    if (!residual->turned) TT_GO(read_factors(residual, first, count, &factors));
    for (int64_t at = first, end = first + count; !residual->turned && at < end;) {
        int64_t row = at / factors.in, stop = tt_smaller((row + 1) * factors.in, end);
        take_row(&factors, residual->scaling, row, at % factors.in, stop - row * factors.in,
                 values + (at - first));
        at = stop;
    }
    if (!wide && !tt_dtype_convert(to, residual->dtype, values, TT_F32, (size_t)count))
        status = TT_ERR_INTERNAL;
out:
    if (!wide) tt_free(values);
    tt_free(factors.a_RI);
    tt_free(factors.b_R);
    tt_free(factors.sum_I);
    return status;
}
