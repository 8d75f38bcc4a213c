/* io/quantized.h against folders that transformers saved: every quantized weight is read to the bits that the
 * library gets, and quantizing the model anew gives the bytes that are stored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/quantized.h"
#include "support/must.h"

#define FOLDER TT_TEST_ROOT "/golden/quant/"

/* The weights before: what transformers quantized were the float32 ones, rounded to bfloat16. */
static struct tt_model_folder *source;

static int open_source(void **state)
{
    (void)state;
    return tt_model_folder_open(TT_TEST_ROOT "/golden/llama2/model", true, &source) == TT_OK ? 0 : -1;
}

static int close_source(void **state)
{
    (void)state;
    tt_model_folder_close(source);
    return 0;
}

static void compare_values(const struct tt_safetensors *reference, const char *name,
                           const struct tt_quant_layout *layout, const uint8_t *segment)
{
    const struct tt_safetensors_entry *entry = tt_safetensors_find(reference, name);
    if (entry == NULL) fail_msg("no reference for %s", name);
    float *expected = tt_alloc_aligned((size_t)layout->count * 4),
          *got = tt_alloc_aligned((size_t)layout->count * 4);
    test_must(tt_safetensors_read(reference, entry, 0, layout->count, expected, TT_F32));
    tt_quant_decode(layout, segment, 0, layout->count, got, TT_F32);
    for (int64_t i = 0; i < layout->count; i++)
        if (expected[i] != got[i])
            fail_msg("%s[%lld] is %.9g, not %.9g", name, (long long)i, got[i], expected[i]);
    tt_free(expected);
    tt_free(got);
}

static tt_status read_weights(void *context, int64_t first, int64_t count, void *to)
{
    return tt_model_folder_read(source, context, first, count, to, TT_BF16);
}

static void compare_quantized(const char *name, const struct tt_quant_layout *layout, const uint8_t *segment)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(source, name);
    uint16_t *weights = tt_alloc_aligned((size_t)layout->count * 2);
    float *absmax = tt_alloc_aligned((size_t)layout->blocks * sizeof *absmax);
    uint8_t *made = tt_alloc_aligned(layout->bytes);
    assert_non_null(entry);
    test_must(tt_model_folder_read(source, entry, 0, layout->count, weights, TT_BF16));
    tt_quant_absmax(layout, 0, layout->blocks, weights, TT_BF16, absmax);
    struct tt_quant_source from = {.absmax = absmax,
                                   .offset = tt_quant_mean(absmax, layout->blocks),
                                   .dtype = TT_BF16,
                                   .read = read_weights,
                                   .context = (void *)(uintptr_t)entry};
    test_must(tt_quant_encode(layout, &from, 0, layout->bytes, made));
    for (size_t i = 0; i < layout->bytes; i++)
        if (made[i] != segment[i]) fail_msg("%s: byte %zu of the segment differs", name, i);
    tt_free(made);
    tt_free(absmax);
    tt_free(weights);
}

static void compare_folder(const char *kind, enum tt_quant_type type, bool nested, tt_dtype storage)
{
    char path[256];
    struct tt_model_folder *folder;
    struct tt_safetensors *reference;
    struct tt_quantized_config config;
    int quantized = 0, parts = 0;
    size_t module_bytes;
    snprintf(path, sizeof path, FOLDER "%s", kind);
    test_must(tt_model_folder_open(path, true, &folder));
    snprintf(path, sizeof path, FOLDER "%s_reference.safetensors", kind);
    test_must(tt_safetensors_open(path, &reference));
    test_must(tt_quantized_config_read(tt_model_folder_config(folder), &config));
    assert_int_equal(config.type, type);
    assert_int_equal(config.nested, nested);
    assert_int_equal(config.storage_dtype, storage);
    assert_int_equal(config.skip_count, 0);
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const char *name = tt_model_folder_tensor(folder, i)->name;
        struct tt_quantized tensor;
        if (tt_quantized_is_part(name, &module_bytes)) {
            parts++;
            continue;
        }
        test_must(tt_quantized_find(folder, name, &tensor));
        if (tensor.layout.format.type == TT_QUANT_NONE) continue;
        quantized++;
        assert_int_equal(tensor.layout.format.type, type);
        assert_int_equal(tensor.layout.format.nested, nested);
        test_must(tt_quantized_check_values(folder, &tensor));
        uint8_t *segment = tt_alloc_aligned(tensor.layout.bytes),
                *pieces = tt_alloc_aligned(tensor.layout.bytes);
        test_must(tt_quantized_read(folder, &tensor, 0, tensor.layout.bytes, segment));
        for (size_t at = 0; at < tensor.layout.bytes; at += 61)
            test_must(tt_quantized_read(folder, &tensor, at,
                                        tensor.layout.bytes - at < 61 ? tensor.layout.bytes - at : 61,
                                        pieces + at));
        assert_memory_equal(segment, pieces, tensor.layout.bytes);
        compare_values(reference, name, &tensor.layout, segment);
        compare_quantized(name, &tensor.layout, segment);
        tt_free(pieces);
        tt_free(segment);
    }
    assert_int_equal(quantized, 14);
    assert_int_equal(parts, type == TT_QUANT_INT8 ? 28 : nested ? 70 : 42);
    tt_safetensors_close(reference);
    tt_model_folder_close(folder);
}

static void nf4_stored_as_bfloat16(void **state)
{
    (void)state;
    compare_folder("nf4", TT_QUANT_NF4, true, TT_BF16);
}

static void fp4_with_plain_scales(void **state)
{
    (void)state;
    compare_folder("fp4", TT_QUANT_FP4, false, TT_U8);
}

static void rows_of_int8(void **state)
{
    (void)state;
    compare_folder("int8", TT_QUANT_INT8, false, TT_U8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nf4_stored_as_bfloat16),
        cmocka_unit_test(fp4_with_plain_scales),
        cmocka_unit_test(rows_of_int8),
    };
    return cmocka_run_group_tests(tests, open_source, close_source);
}
