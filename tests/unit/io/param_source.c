/* Parameters that files hold in pieces: matrices of experts, stacks, rows in turn, transposed; what is missing or of
 * another shape is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/model_folder.h"
#include "support/made_folder.h"

enum { EXPERTS = 3, ROWS = 4, COLUMNS = 5 };

static const char config[] = "{\"model_type\": \"llama\"}";

/* gate [X, R, C] and up [X, R, C]: element e of the first is e, of the second 1000 + e. */
static float value(bool up, int64_t expert, int64_t row, int64_t column)
{
    return (float)((up ? 1000 : 0) + (expert * ROWS + row) * COLUMNS + column);
}

static struct made made(const char *name, int rank, int64_t a, int64_t b, int64_t c, const float *data)
{
    return (struct made){{.name = name, .dtype = TT_F32, .rank = rank, .dims = {a, b, c}}, data};
}

#define MLP "model.layers.#.mlp."
static const struct tt_param_source of_experts[] = {
    {MLP "gate_up", {{.tensor = MLP "experts.*.gate.weight"}, {.tensor = MLP "experts.*.up.weight"}}},
    {NULL, {{0}}}};
static const struct tt_param_source in_turn[] = {
    {MLP "gate_up",
     {{.tensor = MLP "fused", .transposed = true, .ways = 2, .way = 0, .interleaved = true},
      {.tensor = MLP "fused", .transposed = true, .ways = 2, .way = 1, .interleaved = true}}},
    {NULL, {{0}}}};
static const struct tt_param_source of_halves[] = {
    {MLP "gate", {{.tensor = MLP "both", .ways = 2, .way = 0}}},
    {MLP "up", {{.tensor = MLP "both", .ways = 2, .way = 1}}},
    {MLP "even", {{.tensor = MLP "turns", .ways = 2, .way = 0, .interleaved = true}}},
    {MLP "odd", {{.tensor = MLP "turns", .ways = 2, .way = 1, .interleaved = true}}},
    {MLP "turned", {{.tensor = MLP "columns", .transposed = true}}},
    {MLP "same", {{.tensor = MLP "other"}}},
    {NULL, {{0}}}};

static struct tt_model_folder *open_joined(const struct tt_param_source *sources)
{
    struct tt_model_folder *folder = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("toy"));
    ok(tt_model_folder_open(path, true, &folder));
    ok(tt_model_folder_join(folder, sources));
    return folder;
}

/* Any run of elements is read as it is in the whole. */
static void check(const struct tt_model_folder *folder, const char *name, int64_t count, const float *wanted)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
    if (entry == NULL) fail_msg("there is no '%s'", name);
    for (int64_t first = 0; first < count; first++)
        for (int64_t run = 1; first + run <= count; run += 1 + run / 7) {
            float got[256];
            uint16_t halves[256];
            ok(tt_model_folder_read(folder, entry, first, run, got, TT_F32));
            assert_memory_equal(got, wanted + first, (size_t)run * sizeof *got);
            ok(tt_model_folder_read(folder, entry, first, run, halves, TT_BF16));
            for (int64_t i = 0; i < run; i++) assert_int_equal(halves[i], tt_f32_to_bf16(wanted[first + i]));
        }
}

static void fill_joined(float *wanted)
{
    for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t r = 0; r < 2 * ROWS; r++)
            for (int64_t c = 0; c < COLUMNS; c++) *wanted++ = value(r >= ROWS, e, r % ROWS, c);
}

static void check_joined(const struct tt_param_source *sources, const char *left)
{
    float wanted[EXPERTS * 2 * ROWS * COLUMNS];
    struct tt_model_folder *folder = open_joined(sources);
    fill_joined(wanted);
    assert_int_equal(tt_model_folder_tensor_count(folder), 2);
    assert_non_null(tt_model_folder_find(folder, "model.norm.weight"));
    assert_null(tt_model_folder_find(folder, left));
    assert_non_null(tt_model_folder_find_stored(folder, left));
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, "model.layers.0.mlp.gate_up");
    assert_non_null(entry);
    assert_true(entry->rank == 3 && entry->dims[0] == EXPERTS && entry->dims[1] == 2 * ROWS &&
                entry->dims[2] == COLUMNS);
    check(folder, "model.layers.0.mlp.gate_up", EXPERTS * 2 * ROWS * COLUMNS, wanted);
    tt_model_folder_close(folder);
}

static const float norm[4] = {1, 2, 3, 4};

/* The tensors of each expert; `count` of them. */
static void put_experts(size_t count, int64_t last_columns)
{
    static float data[6][ROWS * COLUMNS];
    static const char *const names[] = {
        "model.layers.0.mlp.experts.0.gate.weight", "model.layers.0.mlp.experts.0.up.weight",
        "model.layers.0.mlp.experts.1.gate.weight", "model.layers.0.mlp.experts.1.up.weight",
        "model.layers.0.mlp.experts.2.gate.weight", "model.layers.0.mlp.experts.2.up.weight"};
    struct made tensors[7] = {made("model.norm.weight", 1, 4, 0, 0, norm)};
    for (size_t t = 0; t < count; t++) {
        for (int64_t i = 0; i < ROWS * COLUMNS; i++)
            data[t][i] = value(t % 2 == 1, (int64_t)t / 2, i / COLUMNS, i % COLUMNS);
        tensors[1 + t] = made(names[t], 2, ROWS, t + 1 == count ? last_columns : COLUMNS, 0, data[t]);
    }
    put_folder("toy", config, tensors, count + 1);
}

static void a_matrix_for_each_expert(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    put_experts(6, COLUMNS);
    check_joined(of_experts, "model.layers.0.mlp.experts.0.gate.weight");
    assert_true(tt_alloc_live() == live);
}

static void rows_in_turn_of_a_transposed_tensor(void **state)
{
    (void)state;
    float data[EXPERTS * COLUMNS * 2 * ROWS];
    for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t c = 0; c < COLUMNS; c++)
            for (int64_t r = 0; r < 2 * ROWS; r++)
                data[(e * COLUMNS + c) * 2 * ROWS + r] = value(r % 2 == 1, e, r / 2, c);
    const struct made tensors[] = {made("model.norm.weight", 1, 4, 0, 0, norm),
                                   made("model.layers.0.mlp.fused", 3, EXPERTS, COLUMNS, 2 * ROWS, data)};
    put_folder("toy", config, tensors, 2);
    check_joined(in_turn, "model.layers.0.mlp.fused");
}

static void parts_of_one_tensor(void **state)
{
    (void)state;
    float both[2 * ROWS * COLUMNS], turns[2 * ROWS * COLUMNS], columns[ROWS * COLUMNS],
        wanted[ROWS * COLUMNS];
    for (int64_t r = 0; r < 2 * ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            both[r * COLUMNS + c] = value(r >= ROWS, 0, r % ROWS, c);
            turns[r * COLUMNS + c] = value(r % 2 == 1, 0, r / 2, c);
            if (r < ROWS) columns[c * ROWS + r] = value(false, 0, r, c);
        }
    const struct made tensors[] = {made("model.layers.12.mlp.both", 2, 2 * ROWS, COLUMNS, 0, both),
                                   made("model.layers.12.mlp.turns", 2, 2 * ROWS, COLUMNS, 0, turns),
                                   made("model.layers.12.mlp.columns", 2, COLUMNS, ROWS, 0, columns),
                                   made("model.layers.12.mlp.other", 2, 2 * ROWS, COLUMNS, 0, both),
                                   made("model.layers.012.mlp.both", 2, 2 * ROWS, COLUMNS, 0, both)};
    put_folder("toy", config, tensors, 5);
    struct tt_model_folder *folder = open_joined(of_halves);
    static const char *const names[] = {"gate", "up", "even", "odd", "turned"};
    for (int n = 0; n < 5; n++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.12.mlp.%s", names[n]);
        for (int64_t i = 0; i < ROWS * COLUMNS; i++)
            wanted[i] = value(n == 1 || n == 3, 0, i / COLUMNS, i % COLUMNS);
        check(folder, name, ROWS * COLUMNS, wanted);
    }
    check(folder, "model.layers.12.mlp.same", 2 * ROWS * COLUMNS, both);
    /* A number that nobody writes so is no layer. */
    assert_non_null(tt_model_folder_find(folder, "model.layers.012.mlp.both"));
    assert_int_equal(tt_model_folder_tensor_count(folder), 7);
    tt_model_folder_close(folder);
}

static void refuse(const struct tt_param_source *sources, const char *wanted)
{
    struct tt_model_folder *folder = NULL;
    uint64_t live = tt_alloc_live();
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("toy"));
    ok(tt_model_folder_open(path, true, &folder));
    assert_int_equal(tt_model_folder_join(folder, sources), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, wanted) == NULL) fail_msg("%s", tt_error_last()->message);
    tt_model_folder_close(folder);
    assert_true(tt_alloc_live() == live);
}

static void refusals(void **state)
{
    (void)state;
    float data[3 * COLUMNS] = {0};
    put_experts(5, COLUMNS);
    refuse(of_experts, "has a part of 'model.layers.0.mlp.gate_up' and lacks "
                       "'model.layers.0.mlp.experts.2.up.weight'");
    put_experts(6, COLUMNS - 1);
    refuse(of_experts, "'model.layers.0.mlp.experts.2.up.weight' has another shape or type than the other "
                       "parts of 'model.layers.0.mlp.gate_up'");
    const struct made odd[] = {made("model.layers.0.mlp.both", 2, 3, COLUMNS, 0, data)};
    put_folder("toy", config, odd, 1);
    refuse(of_halves, "'model.layers.0.mlp.both' has another shape or type");
}

static tt_status take_no_piece(void *context, const struct tt_source_piece *piece)
{
    (void)context;
    (void)piece;
    return TT_ERR_INTERNAL;
}

static void a_vector_has_no_pieces(void **state)
{
    (void)state;
    const int64_t dims[] = {COLUMNS};
    assert_int_equal(tt_param_source_pieces(of_halves, 0, 1, dims, NULL, take_no_piece, NULL),
                     TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "has pieces and 1 dimensions: pieces are matrices"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_for_each_expert), cmocka_unit_test(rows_in_turn_of_a_transposed_tensor),
        cmocka_unit_test(parts_of_one_tensor),      cmocka_unit_test(refusals),
        cmocka_unit_test(a_vector_has_no_pieces),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
