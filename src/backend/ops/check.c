#include "backend/ops/check.h"

#include <stdarg.h>
#include <stdio.h>
#include "base/number.h"

static void fail_tensor(struct tt_check *check, tt_status status, const char *name, tt_tensor tensor,
                        const char *why)
{
    char text[128];
    check->status = tt_fail(status, "%s: %s is %s, %s", check->op, name,
                            tt_tensor_format(tensor, text, sizeof text), why);
}

/* The number of elements from the first to the last one; -1 when its bytes do not fit size_t. */
static int64_t span_elements(tt_tensor tensor)
{
    int64_t span = 1;
    for (int d = 0; d < tensor.rank; d++) {
        if (tensor.dims[d] == 0) return 0;
        int64_t reach;
        if (__builtin_mul_overflow(tensor.dims[d] - 1, tensor.strides[d], &reach) ||
            __builtin_add_overflow(span, reach, &span)) {
            return -1;
        }
    }
    int64_t bytes;
    if (__builtin_mul_overflow(span, (int64_t)tt_dtype_bytes(tensor.dtype), &bytes)) return -1;
    return span;
}

static bool rows_are_contiguous(tt_tensor tensor)
{
    return tensor.rank == 0 || tensor.strides[tensor.rank - 1] == 1 || tensor.dims[tensor.rank - 1] <= 1;
}

/* Whether each dimension's stride exceeds the extent of the inner ones, so that no two elements overlap. */
static bool strides_nest(tt_tensor tensor)
{
    int64_t reach = 1;
    for (int d = tensor.rank - 1; d >= 0; d--) {
        if (tensor.dims[d] == 0) return true;
        if (tensor.dims[d] == 1) continue;
        if (tensor.strides[d] < reach) return false;
        reach += (tensor.dims[d] - 1) * tensor.strides[d];
    }
    return true;
}

void tt_check_tensor(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types, int rank_min,
                     int rank_max)
{
    if (check->status != TT_OK) return;
    if (tt_tensor_is_empty(tensor)) {
        check->status = tt_fail(TT_ERR_INTERNAL, "%s: %s is not given", check->op, name);
        return;
    }
    if (tensor.rank < rank_min || tensor.rank > rank_max || tensor.rank > TT_RANK_MAX) {
        char why[64];
        snprintf(why, sizeof why, "but its rank must be %d..%d", rank_min, rank_max);
        fail_tensor(check, TT_ERR_INTERNAL, name, tensor, why);
        return;
    }
    for (int d = 0; d < tensor.rank; d++) {
        if (tensor.dims[d] < 0) {
            fail_tensor(check, TT_ERR_INTERNAL, name, tensor, "with a negative dimension");
            return;
        }
    }
    if ((types & (1u << tensor.dtype)) == 0) {
        fail_tensor(check, TT_ERR_UNSUPPORTED, name, tensor,
                    "a type that the operation does not support there");
    } else if (span_elements(tensor) < 0) {
        fail_tensor(check, TT_ERR_INTERNAL, name, tensor, "larger than memory can be");
    } else if (!rows_are_contiguous(tensor)) {
        fail_tensor(check, TT_ERR_INTERNAL, name, tensor, "but its rows are not contiguous");
    } else if (!strides_nest(tensor)) {
        fail_tensor(check, TT_ERR_INTERNAL, name, tensor, "but its rows overlap");
    } else if (tensor.data == NULL && tt_tensor_count(tensor) > 0) {
        fail_tensor(check, TT_ERR_INTERNAL, name, tensor, "without memory");
    }
}

void tt_check_shape(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types, int rank,
                    const int64_t *dims)
{
    tt_check_tensor(check, name, tensor, types, rank, rank);
    if (check->status != TT_OK) return;
    tt_tensor expected = tensor;
    for (int d = 0; d < rank; d++) expected.dims[d] = dims[d];
    if (!tt_tensor_same_shape(tensor, expected)) {
        char text[128], why[192];
        snprintf(why, sizeof why, "but must be %s", tt_tensor_format(expected, text, sizeof text));
        fail_tensor(check, TT_ERR_INTERNAL, name, tensor, why);
    }
}

void tt_check_like(struct tt_check *check, const char *name, tt_tensor tensor, unsigned types,
                   const char *like_name, tt_tensor like)
{
    tt_check_tensor(check, name, tensor, types, 0, TT_RANK_MAX);
    if (check->status != TT_OK || tt_tensor_same_shape(tensor, like)) return;
    char text[128], why[224];
    snprintf(why, sizeof why, "but must have the shape of %s, which is %s", like_name,
             tt_tensor_format(like, text, sizeof text));
    fail_tensor(check, TT_ERR_INTERNAL, name, tensor, why);
}

void tt_check_contiguous(struct tt_check *check, const char *name, tt_tensor tensor)
{
    if (check->status != TT_OK || tt_tensor_is_contiguous(tensor)) return;
    fail_tensor(check, TT_ERR_INTERNAL, name, tensor, "but must be contiguous");
}

void tt_check_type(struct tt_check *check, const char *name, tt_tensor tensor, tt_dtype dtype)
{
    if (check->status != TT_OK || tensor.dtype == dtype) return;
    char why[64];
    snprintf(why, sizeof why, "but must be %s here", tt_dtype_name(dtype));
    fail_tensor(check, TT_ERR_INTERNAL, name, tensor, why);
}

/* A view as rows of `width` bytes whose starts are `stride` bytes apart (stride 0: one row). */
struct footprint {
    uintptr_t first, end;
    uintptr_t width, stride;
};

static struct footprint footprint_of(tt_tensor tensor)
{
    struct footprint print = {0};
    uintptr_t element = tt_dtype_bytes(tensor.dtype);
    print.first = (uintptr_t)tensor.data;
    print.end = print.first + (uintptr_t)span_elements(tensor) * element;
    print.width = print.end - print.first;
    if (tensor.rank >= 2 && tensor.dims[0] > 1) {
        tt_tensor row = tensor;
        row.dims[0] = 1;
        print.width = (uintptr_t)span_elements(row) * element;
        print.stride = (uintptr_t)tensor.strides[0] * element;
    }
    return print;
}

/* Whether two views overlap. The answer is exact for single rows and for equal row strides (columns of one fused
 * matrix). Otherwise everything between the first and the last byte counts as occupied. */
static bool overlaps(tt_tensor a, tt_tensor b)
{
    if (tt_tensor_is_empty(a) || tt_tensor_is_empty(b)) return false;
    if (tt_tensor_count(a) == 0 || tt_tensor_count(b) == 0) return false;
    struct footprint fa = footprint_of(a), fb = footprint_of(b);
    if (fa.end <= fb.first || fb.end <= fa.first) return false;
    uintptr_t stride = fa.stride != 0 ? fa.stride : fb.stride;
    if (stride == 0 || (fa.stride != 0 && fb.stride != 0 && fa.stride != fb.stride)) return true;
    if (fa.width > stride || fb.width > stride) return true;
    uintptr_t offset = fb.first >= fa.first ? (fb.first - fa.first) % stride
                                            : (stride - (fa.first - fb.first) % stride) % stride;
    return offset < fa.width || offset + fb.width > stride;
}

static void fail_pair(struct tt_check *check, const char *a_name, tt_tensor a, const char *b_name,
                      tt_tensor b)
{
    char a_text[128], b_text[128];
    check->status = tt_fail(TT_ERR_INTERNAL, "%s: %s %s and %s %s overlap in memory", check->op, a_name,
                            tt_tensor_format(a, a_text, sizeof a_text), b_name,
                            tt_tensor_format(b, b_text, sizeof b_text));
}

void tt_check_apart(struct tt_check *check, const char *a_name, tt_tensor a, const char *b_name, tt_tensor b)
{
    if (check->status != TT_OK) return;
    if (overlaps(a, b)) fail_pair(check, a_name, a, b_name, b);
}

void tt_check_same_or_apart(struct tt_check *check, const char *a_name, tt_tensor a, const char *b_name,
                            tt_tensor b)
{
    if (check->status != TT_OK || !overlaps(a, b)) return;
    bool same = a.data == b.data && a.dtype == b.dtype && tt_tensor_same_shape(a, b);
    for (int d = 0; same && d < a.rank; d++) same = a.dims[d] <= 1 || a.strides[d] == b.strides[d];
    if (!same) fail_pair(check, a_name, a, b_name, b);
}

void tt_check_addend(struct tt_check *check, tt_tensor addend, const char *result_name, tt_tensor result)
{
    if (check->status != TT_OK || tt_tensor_is_empty(addend)) return;
    tt_check_like(check, "addend", addend, TT_TYPES_REAL, result_name, result);
    tt_check_type(check, "addend", addend, result.dtype);
    tt_check_same_or_apart(check, result_name, result, "addend", addend);
    tt_check_that(check, result.dims[0] <= 1 || addend.strides[0] == result.strides[0],
                  "rows of addend lie %lld apart, those of %s %lld", (long long)addend.strides[0],
                  result_name, (long long)result.strides[0]);
}

void tt_check_scratch(struct tt_check *check, tt_tensor scratch, size_t needed, size_t alignment)
{
    if (check->status != TT_OK || needed == 0) return;
    tt_check_tensor(check, "scratch", scratch, 1u << TT_U8, 1, 1);
    if (check->status != TT_OK) return;
    tt_check_that(check, tt_tensor_bytes(scratch) >= needed, "scratch has %zu bytes of %zu",
                  tt_tensor_bytes(scratch), needed);
    tt_check_that(check, (uintptr_t)scratch.data % alignment == 0, "scratch is not %zu-byte aligned",
                  alignment);
}

void tt_check_quantized_rows(struct tt_check *check, int64_t rows, int64_t cols, tt_tensor codes,
                             tt_tensor scale)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, "codes", codes, 1u << TT_F8_E4M3, 2, TT_DIMS(rows, cols));
    tt_check_contiguous(check, "codes", codes);
    tt_check_shape(check, "scale", scale, TT_TYPES_F32, 1, TT_DIMS(rows));
    tt_check_contiguous(check, "scale", scale);
}

void tt_check_that(struct tt_check *check, bool holds, const char *format, ...)
{
    if (check->status != TT_OK || holds) return;
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    check->status = tt_fail(TT_ERR_INTERNAL, "%s: %s", check->op, text);
}
