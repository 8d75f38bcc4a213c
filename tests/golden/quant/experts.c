/* A parameter of all experts in 4 bits is the matrix of all their rows in the bits of bitsandbytes, which quantizes the
 * parameter as a whole (make_experts.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/safetensors.h"
#include "support/must.h"
#include "support/root.h"
#include "tensor/quant.h"

static struct tt_safetensors *file;

/* All of a tensor, owned by the caller. */
static void *read_all(const char *name, const char *part, tt_dtype dtype, int64_t *count)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s.%s", name, part);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, key);
    if (entry == NULL) fail_msg("no '%s'", key);
    *count = tt_safetensors_elements(entry);
    void *values = tt_alloc_aligned((size_t)*count * tt_dtype_bytes(dtype));
    assert_non_null(values);
    test_must(tt_safetensors_read(file, entry, 0, *count, values, dtype));
    return values;
}

static void same(const char *name, const char *part, tt_dtype dtype, const void *got, size_t bytes)
{
    int64_t count;
    void *wanted = read_all(name, part, dtype, &count);
    assert_int_equal((size_t)count * tt_dtype_bytes(dtype), bytes);
    if (memcmp(got, wanted, bytes) != 0) fail_msg("%s.%s differs", name, part);
    tt_free(wanted);
}

/* The library decodes a code of FP4 to -0. */
static void same_numbers(const char *name, const uint16_t *got, int64_t got_count)
{
    int64_t count;
    uint16_t *wanted = read_all(name, "numbers", TT_BF16, &count);
    assert_int_equal(count, got_count);
    for (int64_t i = 0; i < count; i++)
        if (got[i] != wanted[i] && ((got[i] | wanted[i]) & 0x7fff) != 0)
            fail_msg("%s: number %d is %04x, wanted %04x", name, (int)i, got[i], wanted[i]);
    tt_free(wanted);
}

static tt_status read_numbers(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const uint16_t *)context + first, (size_t)count * sizeof(uint16_t));
    return TT_OK;
}

static void check(const char *name, enum tt_quant_type type, bool nested, int64_t rows, int64_t columns)
{
    struct tt_quant_layout layout;
    int64_t count;
    uint16_t *weight = read_all(name, "weight", TT_BF16, &count);
    test_must(tt_quant_layout_make(tt_quant_format_make(type, nested), rows, columns, &layout));
    assert_int_equal(layout.count, count);
    float *absmax = tt_alloc_aligned((size_t)layout.blocks * sizeof *absmax);
    uint16_t *numbers = tt_alloc_aligned((size_t)count * sizeof *numbers);
    uint8_t *segment = tt_alloc_aligned(layout.bytes);
    assert_true(absmax != NULL && numbers != NULL && segment != NULL);
    tt_quant_absmax(&layout, 0, layout.blocks, weight, TT_BF16, absmax);
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = tt_quant_offset(&layout, absmax),
                                     .dtype = TT_BF16,
                                     .read = read_numbers,
                                     .context = weight};
    test_must(tt_quant_encode(&layout, &source, 0, layout.bytes, segment));
    same(name, "codes", TT_U8, segment + layout.codes.offset, layout.codes.bytes);
    same(name, "absmax", nested ? TT_U8 : TT_F32, segment + layout.absmax.offset, layout.absmax.bytes);
    if (nested) {
        same(name, "nested_absmax", TT_F32, segment + layout.nested_absmax.offset,
             layout.nested_absmax.bytes);
        same(name, "offset", TT_F32, segment + layout.offset.offset, layout.offset.bytes);
    }
    tt_quant_decode(&layout, segment, 0, count, numbers, TT_BF16);
    same_numbers(name, numbers, count);
    tt_free(segment);
    tt_free(numbers);
    tt_free(absmax);
    tt_free(weight);
}

static void parameters_of_experts_have_the_bits_of_the_library(void **state)
{
    (void)state;
    test_must(tt_safetensors_open(TT_TEST_ROOT "/golden/quant/experts.safetensors", &file));
    check("nf4_24", TT_QUANT_NF4, false, 96, 64);
    check("nf4_nested_24", TT_QUANT_NF4, true, 96, 64);
    check("fp4_24", TT_QUANT_FP4, false, 96, 64);
    check("nf4_14", TT_QUANT_NF4, false, 42, 36);
    check("nf4_nested_14", TT_QUANT_NF4, true, 42, 36);
    check("fp4_14", TT_QUANT_FP4, false, 42, 36);
    tt_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_of_experts_have_the_bits_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
