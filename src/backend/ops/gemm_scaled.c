#include "backend/ops/gemm_scaled.h"

#include "backend/cpu/gemm/scaled.h"
#include "backend/device_impl.h"
#include "backend/ops/check.h"

enum { CODES = 1u << TT_F8_E4M3 };

tt_status tt_quantize_rows(struct tt_stream *stream, const struct tt_quantize_rows_args *args)
{
    struct tt_check check = {.op = "quantize_rows"};
    tt_tensor x = args->x_MK;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_like(&check, "codes", args->codes_MK, CODES, "x", x);
    tt_check_contiguous(&check, "codes", args->codes_MK);
    tt_check_shape(&check, "scale", args->scale_M, TT_TYPES_F32, 1, TT_DIMS(x.dims[0]));
    tt_check_contiguous(&check, "scale", args->scale_M);
    tt_check_apart(&check, "codes", args->codes_MK, "x", x);
    tt_check_apart(&check, "scale", args->scale_M, "x", x);
    if (check.status != TT_OK) return check.status;
    if (x.dims[0] == 0 || x.dims[1] == 0) return TT_OK;
    return tt_dispatch_quantize_rows(stream, args);
}

static void check_operand(struct tt_check *check, const char *name, tt_tensor codes, tt_tensor scale)
{
    tt_check_tensor(check, name, codes, CODES, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_shape(check, "its scale", scale, TT_TYPES_F32, 1, TT_DIMS(codes.dims[0]));
    tt_check_contiguous(check, "its scale", scale);
}

static void check_transposed(struct tt_check *check, tt_tensor x, const char *name, tt_tensor transposed)
{
    tt_check_that(check, tt_gemm_scaled_takes(x.dims[0], x.dims[1]), "%lld x %lld: not multiples of 16",
                  (long long)x.dims[0], (long long)x.dims[1]);
    tt_check_that(check, transposed.dims[0] == x.dims[1] && transposed.dims[1] == x.dims[0],
                  "%s is [%lld, %lld]", name, (long long)transposed.dims[0], (long long)transposed.dims[1]);
}

tt_status tt_quantize_columns(struct tt_stream *stream, const struct tt_quantize_columns_args *args)
{
    struct tt_check check = {.op = "quantize_columns"};
    tt_tensor x = args->x_MK, codes = args->codes_KM;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    tt_check_contiguous(&check, "x", x);
    check_operand(&check, "codes", codes, args->scale_K);
    tt_check_contiguous(&check, "codes", codes);
    if (check.status != TT_OK) return check.status;
    check_transposed(&check, x, "codes", codes);
    tt_check_that(&check, (uintptr_t)x.data % 16 == 0, "x does not lie at a multiple of 16 bytes");
    tt_check_apart(&check, "codes", codes, "x", x);
    tt_check_apart(&check, "its scale", args->scale_K, "x", x);
    return check.status != TT_OK ? check.status : tt_dispatch_quantize_columns(stream, args);
}

tt_status tt_transpose_codes(struct tt_stream *stream, const struct tt_transpose_codes_args *args)
{
    struct tt_check check = {.op = "transpose_codes"};
    tt_tensor codes = args->codes_NK, transposed = args->transposed_KN;
    check_operand(&check, "codes", codes, args->scale_N);
    tt_check_contiguous(&check, "codes", codes);
    check_operand(&check, "transposed", transposed, args->transposed_scale_K);
    tt_check_contiguous(&check, "transposed", transposed);
    if (check.status != TT_OK) return check.status;
    int64_t count = args->matrices == 0 ? 1 : args->matrices;
    tt_check_that(&check, count > 0 && codes.dims[0] % count == 0 && transposed.dims[0] % count == 0,
                  "%lld and %lld rows do not divide into %lld matrices", (long long)codes.dims[0],
                  (long long)transposed.dims[0], (long long)count);
    if (check.status != TT_OK) return check.status;
    check_transposed(&check, tt_tensor_rows(codes, 0, codes.dims[0] / count), "transposed",
                     tt_tensor_rows(transposed, 0, transposed.dims[0] / count));
    tt_check_apart(&check, "transposed", transposed, "codes", codes);
    tt_check_apart(&check, "its scale", args->transposed_scale_K, "scale", args->scale_N);
    return check.status != TT_OK ? check.status : tt_dispatch_transpose_codes(stream, args);
}

size_t tt_gemm_scaled_scratch(const struct tt_device *device, int64_t m, int64_t n, int64_t k)
{
    return tt_device_is_host(device) ? tt_cpu_gemm_scaled_layout(m, n, k).bytes : 0;
}

tt_status tt_gemm_scaled(struct tt_stream *stream, const struct tt_gemm_scaled_args *args)
{
    struct tt_check check = {.op = "gemm_scaled"};
    tt_tensor a = args->a_MK, b = args->b_NK, y = args->y_MN;
    check_operand(&check, "a", a, args->a_scale_M);
    check_operand(&check, "b", b, args->b_scale_N);
    tt_check_contiguous(&check, "b", b);
    if (check.status != TT_OK) return check.status;
    int64_t m = a.dims[0], n = b.dims[0], k = b.dims[1];
    tt_check_that(&check, a.dims[1] == k, "a has %lld columns, b %lld", (long long)a.dims[1], (long long)k);
    tt_check_that(&check, tt_gemm_scaled_takes(n, k), "%lld x %lld: not multiples of 16", (long long)n,
                  (long long)k);
    tt_check_shape(&check, "y", y, TT_TYPES_REAL, 2, TT_DIMS(m, n));
    tt_check_apart(&check, "y", y, "a", a);
    tt_check_apart(&check, "y", y, "b", b);
    tt_check_addend(&check, args->addend_MN, "y", y);
    tt_check_scratch(&check, args->scratch, tt_gemm_scaled_scratch(tt_stream_device(stream), m, n, k), 64);
    if (check.status != TT_OK) return check.status;
    return m == 0 ? TT_OK : tt_dispatch_gemm_scaled(stream, args);
}
