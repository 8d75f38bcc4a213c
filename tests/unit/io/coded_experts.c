/* Matrices of single experts in codes (io/coded_experts.h): a folder shows them joined, in numbers and as one segment
 * of codes with the same numbers, from any byte on; where blocks are not whole in each matrix, in numbers alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "io/coded_experts.h"
#include "io/quantized.h"
#include "support/must.h"
#include "support/root.h"

enum { EXPERTS = 3, PARTS = 2, TENSORS = EXPERTS * PARTS, ENTRIES = TENSORS * TT_QUANTIZED_ENTRIES };

#define EXPERT "layers.#.mlp.experts.*."
static const struct tt_param_sources sources = {
    .path = "model",
    .rows = {{.param = "layers.#.mlp.experts.gate_up_proj",
              .parts = {{.tensor = EXPERT "gate_proj.weight"}, {.tensor = EXPERT "up_proj.weight"}}}}};

/* ---- A folder ---- */

struct matrix {
    struct tt_quantized_output out;
    struct tt_quant_layout layout;
    uint8_t *segment;
    float *numbers;
    float offset;
};

static tt_status read_numbers(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

static void make_matrix(struct matrix *m, struct tt_quant_format format, int64_t rows, int64_t cols,
                        int number)
{
    struct tt_rng rng = tt_rng_make((uint64_t)number);
    test_must(tt_quant_layout_make(format, rows, cols, &m->layout));
    m->segment = tt_alloc_aligned(m->layout.bytes);
    m->numbers = tt_alloc_aligned((size_t)m->layout.count * sizeof(float));
    float *absmax = tt_alloc_aligned((size_t)m->layout.blocks * sizeof *absmax);
    assert_true(m->segment != NULL && m->numbers != NULL && absmax != NULL);
    for (int64_t i = 0; i < m->layout.count; i++)
        m->numbers[i] =
            (float)(int)(tt_rng_u64(rng, (uint64_t)i) % 2001 - 1000) * 1e-4f * (float)(1 + number);
    tt_quant_absmax(&m->layout, 0, m->layout.blocks, m->numbers, TT_F32, absmax);
    m->offset = tt_quant_offset(&m->layout, absmax);
    struct tt_quant_source source = {
        .absmax = absmax, .offset = m->offset, .dtype = TT_F32, .read = read_numbers, .context = m->numbers};
    test_must(tt_quant_encode(&m->layout, &source, 0, m->layout.bytes, m->segment));
    tt_free(absmax);
}

static void put_entry(struct tt_str *file, const struct tt_safetensors_entry *entry, const void *bytes,
                      size_t count)
{
    assert_int_equal(entry->bytes, count);
    memcpy((char *)file->data + entry->offset, bytes, count);
}

static const struct tt_safetensors_entry *entry_of(const struct tt_safetensors_entry *entries, size_t count,
                                                   const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    fail_msg("no '%s'", name);
    return NULL;
}

/* Squares: codes of rows, with [ceil(rows / 128), ceil(cols / 128)] scales of their own. */
static void write_folder(struct tt_quant_format format, bool squares, int64_t rows, int64_t cols,
                         bool own_table)
{
    static struct matrix matrices[TENSORS];
    static char names[TENSORS][100], scales[TENSORS][120];
    struct tt_safetensors_entry entries[ENTRIES];
    struct tt_arena arena = {0};
    struct tt_str file = {0};
    size_t count = 0;
    uint64_t bytes;
    int64_t wide = (cols + TT_FP8_BLOCK - 1) / TT_FP8_BLOCK, high = (rows + TT_FP8_BLOCK - 1) / TT_FP8_BLOCK;
    for (int t = 0; t < TENSORS; t++) {
        struct matrix *m = &matrices[t];
        (void)snprintf(names[t], sizeof names[t], "model.layers.0.mlp.experts.%d.%s_proj.weight", t / PARTS,
                       t % PARTS == 0 ? "gate" : "up");
        (void)snprintf(scales[t], sizeof scales[t], "model.layers.0.mlp.experts.%d.%s_proj.weight_scale_inv",
                       t / PARTS, t % PARTS == 0 ? "gate" : "up");
        make_matrix(m, format, rows, cols, t);
        test_must(tt_quantized_describe(names[t], &m->layout, TT_BF16, TT_U8, &arena, &m->out));
        if (squares) {
            m->out.entries[1] = (struct tt_safetensors_entry){
                .name = scales[t], .dtype = TT_F32, .rank = 2, .dims = {high, wide}};
        }
        for (int e = 0; e < m->out.count; e++) entries[count++] = m->out.entries[e];
    }
    test_must(tt_safetensors_layout(entries, count, &file, &bytes));
    size_t header = file.bytes;
    for (uint64_t i = header; i < bytes; i++) test_must(tt_str_append_char(&file, '\0'));
    for (int t = 0; t < TENSORS; t++) {
        struct matrix *m = &matrices[t];
        float *map = (float *)(void *)(m->segment + m->layout.map.offset);
        if (own_table && t == TENSORS - 1) map[3] += 0.5f;
        for (int e = 0; e < m->out.count; e++) {
            const struct tt_safetensors_entry *entry = entry_of(entries, count, m->out.entries[e].name);
            const struct tt_quant_section *section = &m->out.sections[e];
            struct tt_str state = {0};
            float values[64] = {0};
            for (int i = 0; i < 64; i++) values[i] = 0.001f * (float)(1 + i + t);
            if (squares && e == 1)
                put_entry(&file, entry, values, (size_t)(wide * high) * sizeof(float));
            else if (section->bytes > 0)
                put_entry(&file, entry, m->segment + section->offset, section->bytes);
            else if (e == m->out.state && tt_weight_format(format.type)->has_state) {
                test_must(tt_quantized_state_write(&m->layout, TT_BF16, m->offset, &state));
                put_entry(&file, entry, state.data, state.bytes);
            }
            tt_str_deinit(&state);
        }
        tt_free(m->segment);
        tt_free(m->numbers);
    }
    test_must(tt_file_write_atomic(test_at("model.safetensors"), file.data, file.bytes));
    test_must(tt_file_write_atomic(test_at("config.json"), "{}", 2));
    tt_str_deinit(&file);
    tt_arena_deinit(&arena);
}

/* ---- What it shows ---- */

static const struct tt_safetensors_entry *open_joined(struct tt_model_folder **folder)
{
    test_must(tt_model_folder_open(test_root(), true, folder));
    test_must(tt_model_folder_join(*folder, &sources));
    assert_int_equal(tt_model_folder_tensor_count(*folder), 1);
    const struct tt_safetensors_entry *entry =
        tt_model_folder_find(*folder, "model.layers.0.mlp.experts.gate_up_proj");
    assert_non_null(entry);
    assert_int_equal(entry->dtype, TT_BF16);
    assert_int_equal(entry->dims[0], EXPERTS);
    return entry;
}

static void check_kept(struct tt_quant_format format, bool squares, int64_t rows, int64_t cols)
{
    struct tt_model_folder *folder;
    struct tt_quant_layout layout;
    write_folder(format, squares, rows, cols, false);
    const struct tt_safetensors_entry *entry = open_joined(&folder);
    test_must(tt_model_folder_coded(folder, entry, &layout));
    assert_true(layout.bytes > 0);
    assert_int_equal(layout.format.type, format.type);
    assert_int_equal(layout.format.block, squares ? TT_FP8_BLOCK : format.block);
    assert_false(layout.format.nested);
    assert_int_equal(layout.rows, TENSORS * rows);
    assert_int_equal(layout.cols, cols);
    size_t count = (size_t)layout.count;
    uint8_t *whole = tt_alloc_aligned(layout.bytes), *part = tt_alloc_aligned(layout.bytes);
    uint16_t *numbers = tt_alloc_aligned(count * 2), *shown = tt_alloc_aligned(count * 2);
    assert_true(whole != NULL && part != NULL && numbers != NULL && shown != NULL);
    test_must(tt_model_folder_read_coded(folder, entry, &layout, 0, layout.bytes, whole));
    tt_quant_decode(&layout, whole, 0, layout.count, numbers, TT_BF16);
    test_must(tt_model_folder_read(folder, entry, 0, layout.count, shown, TT_BF16));
    for (size_t i = 0; i < count; i++)
        if (numbers[i] != shown[i])
            fail_msg("%s: number %zu is %04x, shown as %04x", tt_quant_type_name(format.type), i, numbers[i],
                     shown[i]);
    for (size_t first = 0, run = 1; first < layout.bytes; first += run, run = run * 5 % 4099 + 1) {
        if (run > layout.bytes - first) run = layout.bytes - first;
        test_must(tt_model_folder_read_coded(folder, entry, &layout, first, run, part));
        assert_memory_equal(part, whole + first, run);
    }
    tt_free(whole);
    tt_free(part);
    tt_free(numbers);
    tt_free(shown);
    tt_model_folder_close(folder);
}

static void codes_and_numbers_agree(void **state)
{
    (void)state;
    check_kept(tt_quant_format_make(TT_QUANT_NF4, false), false, 6, 64);
    check_kept(tt_quant_format_make(TT_QUANT_NF4, true), false, 40, 128);
    check_kept(tt_quant_format_make(TT_QUANT_FP4, false), false, 16, 12);
    check_kept(tt_quant_format_make(TT_QUANT_INT8, false), false, 7, 20);
    check_kept(tt_quant_format_make(TT_QUANT_FP8, false), false, 5, 48);
    check_kept(tt_quant_format_make(TT_QUANT_FP8, false), true, 128, 136);
    check_kept(tt_quant_format_make(TT_QUANT_FP8, false), true, 256, 40);
}

static void blocks_that_are_not_whole_are_numbers(void **state)
{
    struct tt_model_folder *folder;
    struct tt_quant_layout layout;
    (void)state;
    write_folder(tt_quant_format_make(TT_QUANT_NF4, false), false, 3, 24, false);
    const struct tt_safetensors_entry *entry = open_joined(&folder);
    test_must(tt_model_folder_coded(folder, entry, &layout));
    assert_int_equal(layout.bytes, 0);
    tt_model_folder_close(folder);
    write_folder(tt_quant_format_make(TT_QUANT_FP8, false), true, 12, 136, false);
    entry = open_joined(&folder);
    test_must(tt_model_folder_coded(folder, entry, &layout));
    assert_int_equal(layout.bytes, 0);
    tt_model_folder_close(folder);
}

static void a_table_of_its_own_is_refused(void **state)
{
    static uint8_t segment[1 << 16];
    struct tt_model_folder *folder;
    struct tt_quant_layout layout;
    (void)state;
    write_folder(tt_quant_format_make(TT_QUANT_NF4, false), false, 6, 64, true);
    const struct tt_safetensors_entry *entry = open_joined(&folder);
    test_must(tt_model_folder_coded(folder, entry, &layout));
    assert_in_range(layout.bytes, 1, sizeof segment);
    assert_int_equal(tt_model_folder_read_coded(folder, entry, &layout, 0, layout.bytes, segment),
                     TT_ERR_UNSUPPORTED);
    assert_string_equal(tt_error_last()->message,
                        "'model.layers.0.mlp.experts.2.up_proj.weight' is of an expert, and "
                        "its nf4 has values of its own");
    tt_model_folder_close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_numbers_agree),
        cmocka_unit_test(blocks_that_are_not_whole_are_numbers),
        cmocka_unit_test(a_table_of_its_own_is_refused),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
