/* Parameters that files hold in pieces: matrices of experts, stacks, rows in turn and in groups, transposed, vectors;
 * any run of elements is read, and written back to its place; what is missing, of another shape, in two parameters or
 * in none is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/model_folder.h"
#include "support/made_folder.h"

enum { EXPERTS = 3, ROWS = 4, COLUMNS = 5 };

static const char config[] = "{\"model_type\": \"llama\"}";

static struct made made(const char *name, int rank, int64_t a, int64_t b, int64_t c, const float *data)
{
    return (struct made){{.name = name, .dtype = TT_F32, .rank = rank, .dims = {a, b, c}}, data};
}

static struct tt_model_folder *open_joined(const struct tt_param_sources *sources)
{
    struct tt_model_folder *folder = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("toy"));
    ok(tt_model_folder_open(path, true, &folder));
    ok(tt_model_folder_join(folder, sources));
    return folder;
}

/* ---- Reading: any run of elements is as it is in the whole ---- */

static void check(const struct tt_model_folder *folder, const char *name, int64_t count, const float *wanted)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
    if (entry == NULL) fail_msg("there is no '%s'", name);
    assert_int_equal(entry->bytes, (uint64_t)count * sizeof *wanted);
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

/* ---- Writing: the pieces of all joined tensors make the files' tensors again ---- */

struct written {
    const struct tt_model_folder *folder;
    const struct tt_safetensors_entry *entry; /* joined */
    const char *tensor;                       /* of the files, which is made again */
    const char *path;
    int descriptor;
    int64_t step;
};

static tt_status write_piece(void *context, const struct tt_source_piece *piece)
{
    const struct written *written = context;
    const struct tt_source_output to = {written->descriptor, written->path, 8, sizeof(float)};
    if (strcmp(piece->tensor, written->tensor) != 0) return TT_OK;
    int64_t count = piece->rows * piece->columns;
    for (int64_t first = 0; first < count; first += written->step) {
        int64_t some = count - first < written->step ? count - first : written->step;
        float *values = malloc((size_t)some * sizeof *values);
        ok(tt_model_folder_read(written->folder, written->entry, piece->first + first, some, values, TT_F32));
        ok(tt_source_piece_write(piece, &to, first, some, values));
        free(values);
    }
    return TT_OK;
}

static void check_written(const struct tt_model_folder *folder, const char *tensor, int64_t step)
{
    const struct tt_safetensors_entry *stored = tt_model_folder_find_stored(folder, tensor);
    char path[300];
    int descriptor;
    assert_non_null(stored);
    snprintf(path, sizeof path, "%s", test_at("written"));
    ok(tt_file_create(path, stored->bytes + 8, &descriptor));
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        struct written written = {folder, tt_model_folder_tensor(folder, i), tensor, path, descriptor, step};
        bool joined;
        ok(tt_model_folder_pieces(folder, tt_model_folder_tensor_name(folder, i), write_piece, &written,
                                  &joined));
    }
    float *got = malloc(stored->bytes), *wanted = malloc(stored->bytes);
    ok(tt_file_pread(descriptor, path, got, stored->bytes, 8));
    ok(tt_model_folder_read(folder, stored, 0, (int64_t)(stored->bytes / sizeof *wanted), wanted, TT_F32));
    assert_memory_equal(got, wanted, stored->bytes);
    tt_file_close(descriptor);
    free(got);
    free(wanted);
}

/* ---- Experts ---- */

#define MLP "layers.#.mlp."
static const struct tt_param_sources of_experts = {
    .path = "model",
    .rows = {{.param = MLP "gate_up",
              .parts = {{.tensor = MLP "experts.*.gate.weight"}, {.tensor = MLP "experts.*.up.weight"}}},
             {.param = MLP "bias", .parts = {{.tensor = MLP "experts.*.bias"}}, .vector = true}}};
static const struct tt_param_sources in_turn = {
    .path = "model",
    .rows = {{.param = MLP "gate_up",
              .parts = {{.tensor = MLP "fused", .transposed = true, .units = 2, .unit = 0, .unit_rows = 1},
                        {.tensor = MLP "fused", .transposed = true, .units = 2, .unit = 1, .unit_rows = 1}}},
             {.param = MLP "bias",
              .parts = {{.tensor = MLP "fused_bias", .units = 2, .unit = 0, .unit_rows = 1},
                        {.tensor = MLP "fused_bias", .units = 2, .unit = 1, .unit_rows = 1}},
              .vector = true}}};

/* gate [X, R, C] and up [X, R, C]: element e of the first is e, of the second 1000 + e. */
static float value(bool up, int64_t expert, int64_t row, int64_t column)
{
    return (float)((up ? 1000 : 0) + (expert * ROWS + row) * COLUMNS + column);
}

static void check_experts(const struct tt_param_sources *sources, const char *left)
{
    float wanted[EXPERTS * 2 * ROWS * COLUMNS], *next = wanted, biases[EXPERTS * 2 * ROWS];
    struct tt_model_folder *folder = open_joined(sources);
    for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t r = 0; r < 2 * ROWS; r++) {
            for (int64_t c = 0; c < COLUMNS; c++) *next++ = value(r >= ROWS, e, r % ROWS, c);
            biases[e * 2 * ROWS + r] = value(r >= ROWS, e, r % ROWS, 0);
        }
    assert_int_equal(tt_model_folder_tensor_count(folder), 3);
    assert_non_null(tt_model_folder_find(folder, "model.norm.weight"));
    assert_null(tt_model_folder_find(folder, left));
    assert_non_null(tt_model_folder_find_stored(folder, left));
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, "model.layers.0.mlp.gate_up");
    assert_non_null(entry);
    assert_true(entry->rank == 3 && entry->dims[0] == EXPERTS && entry->dims[1] == 2 * ROWS &&
                entry->dims[2] == COLUMNS);
    entry = tt_model_folder_find(folder, "model.layers.0.mlp.bias");
    assert_non_null(entry);
    assert_true(entry->rank == 2 && entry->dims[0] == EXPERTS && entry->dims[1] == 2 * ROWS);
    check(folder, "model.layers.0.mlp.gate_up", EXPERTS * 2 * ROWS * COLUMNS, wanted);
    check(folder, "model.layers.0.mlp.bias", EXPERTS * 2 * ROWS, biases);
    for (int64_t step = 1; step < 50; step += 6) check_written(folder, left, step);
    tt_model_folder_close(folder);
}

static const float norm[4] = {1, 2, 3, 4};

/* The tensors of each expert; `count` of their matrices. */
static void put_experts(size_t count, int64_t last_columns)
{
    static float data[6][ROWS * COLUMNS], biases[EXPERTS][2 * ROWS];
    static const char *const names[] = {
        "model.layers.0.mlp.experts.0.gate.weight", "model.layers.0.mlp.experts.0.up.weight",
        "model.layers.0.mlp.experts.1.gate.weight", "model.layers.0.mlp.experts.1.up.weight",
        "model.layers.0.mlp.experts.2.gate.weight", "model.layers.0.mlp.experts.2.up.weight"};
    static const char *const of_biases[] = {"model.layers.0.mlp.experts.0.bias",
                                            "model.layers.0.mlp.experts.1.bias",
                                            "model.layers.0.mlp.experts.2.bias"};
    struct made tensors[10] = {made("model.norm.weight", 1, 4, 0, 0, norm)};
    for (size_t t = 0; t < count; t++) {
        for (int64_t i = 0; i < ROWS * COLUMNS; i++)
            data[t][i] = value(t % 2 == 1, (int64_t)t / 2, i / COLUMNS, i % COLUMNS);
        tensors[1 + t] = made(names[t], 2, ROWS, t + 1 == count ? last_columns : COLUMNS, 0, data[t]);
    }
    for (int e = 0; e < EXPERTS; e++) {
        for (int r = 0; r < 2 * ROWS; r++) biases[e][r] = value(r >= ROWS, e, r % ROWS, 0);
        tensors[1 + count + (size_t)e] = made(of_biases[e], 1, 2 * ROWS, 0, 0, biases[e]);
    }
    put_folder("toy", config, tensors, count + 4);
}

static void a_matrix_for_each_expert(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    put_experts(6, COLUMNS);
    check_experts(&of_experts, "model.layers.0.mlp.experts.0.gate.weight");
    assert_true(tt_alloc_live() == live);
}

static void rows_in_turn_of_a_transposed_tensor(void **state)
{
    (void)state;
    float data[EXPERTS * COLUMNS * 2 * ROWS], biases[EXPERTS * 2 * ROWS];
    for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t r = 0; r < 2 * ROWS; r++) {
            for (int64_t c = 0; c < COLUMNS; c++)
                data[(e * COLUMNS + c) * 2 * ROWS + r] = value(r % 2 == 1, e, r / 2, c);
            biases[e * 2 * ROWS + r] = value(r % 2 == 1, e, r / 2, 0);
        }
    const struct made tensors[] = {made("model.norm.weight", 1, 4, 0, 0, norm),
                                   made("model.layers.0.mlp.fused", 3, EXPERTS, COLUMNS, 2 * ROWS, data),
                                   made("model.layers.0.mlp.fused_bias", 2, EXPERTS, 2 * ROWS, 0, biases)};
    put_folder("toy", config, tensors, 3);
    check_experts(&in_turn, "model.layers.0.mlp.fused");
    check_experts(&in_turn, "model.layers.0.mlp.fused_bias");
}

/* ---- One matrix ---- */

static const struct tt_param_sources of_one = {
    .path = "model",
    .rows = {{.param = MLP "gate", .parts = {{.tensor = MLP "both", .units = 2, .unit = 0}}},
             {.param = MLP "up", .parts = {{.tensor = MLP "both", .units = 2, .unit = 1}}},
             {.param = MLP "even", .parts = {{.tensor = MLP "turns", .units = 2, .unit = 0, .unit_rows = 1}}},
             {.param = MLP "odd", .parts = {{.tensor = MLP "turns", .units = 2, .unit = 1, .unit_rows = 1}}},
             {.param = MLP "turned", .parts = {{.tensor = MLP "columns", .transposed = true}}},
             {.param = MLP "same", .parts = {{.tensor = MLP "other"}}},
             {.param = "norms.#", .parts = {{.tensor = "old_norms.#"}}}}};

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
                                   made("model.layers.012.mlp.both", 2, 2 * ROWS, COLUMNS, 0, both),
                                   made("mtp.layers.0.mlp.both", 2, 2 * ROWS, COLUMNS, 0, both),
                                   made("model.old_norms.3", 1, 4, 0, 0, norm)};
    put_folder("toy", config, tensors, 7);
    struct tt_model_folder *folder = open_joined(&of_one);
    static const char *const names[] = {"gate", "up", "even", "odd", "turned"};
    for (int n = 0; n < 5; n++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.12.mlp.%s", names[n]);
        for (int64_t i = 0; i < ROWS * COLUMNS; i++)
            wanted[i] = value(n == 1 || n == 3, 0, i / COLUMNS, i % COLUMNS);
        check(folder, name, ROWS * COLUMNS, wanted);
    }
    check(folder, "model.layers.12.mlp.same", 2 * ROWS * COLUMNS, both);
    check(folder, "model.norms.3", 4, norm);
    for (int64_t step = 1; step < 24; step += 3)
        for (int t = 0; t < 4; t++) check_written(folder, tensors[t].entry.name, step);
    check_written(folder, "model.old_norms.3", 3);
    /* A number that nobody writes so is no layer, and other models are left alone. */
    assert_non_null(tt_model_folder_find(folder, "model.layers.012.mlp.both"));
    assert_non_null(tt_model_folder_find(folder, "mtp.layers.0.mlp.both"));
    assert_int_equal(tt_model_folder_tensor_count(folder), 9);
    tt_model_folder_close(folder);
}

/* As Qwen3-Next's in_proj_qkvz: groups of q, k, v and z rows for each of three key heads of two rows, with two value
 * heads each, and the vector beside it. */
static const struct tt_param_sources by_heads = {
    .path = "model",
    .rows = {{.param = "layers.#.qkv",
              .parts = {{.tensor = "layers.#.qkvz", .units = 6, .unit = 0, .unit_rows = 2},
                        {.tensor = "layers.#.qkvz", .units = 6, .unit = 1, .unit_rows = 2},
                        {.tensor = "layers.#.qkvz", .units = 6, .unit = 2, .count = 2, .unit_rows = 2}}},
             {.param = "layers.#.z",
              .parts = {{.tensor = "layers.#.qkvz", .units = 6, .unit = 4, .count = 2, .unit_rows = 2}}},
             {.param = "layers.#.b",
              .parts = {{.tensor = "layers.#.ba", .units = 4, .unit = 0, .count = 3}},
              .vector = true},
             {.param = "layers.#.a",
              .parts = {{.tensor = "layers.#.ba", .units = 4, .unit = 3}},
              .vector = true}}};

static void groups_of_rows(void **state)
{
    (void)state;
    enum { HEADS = 3, GROUP = 12, WIDE = 3 };
    float packed[HEADS * GROUP * WIDE], qkv[HEADS * 8 * WIDE], z[HEADS * 4 * WIDE], ba[8];
    for (int i = 0; i < HEADS * GROUP * WIDE; i++) packed[i] = (float)i;
    for (int i = 0; i < 8; i++) ba[i] = (float)(500 + i);
    for (int h = 0; h < HEADS; h++)
        for (int c = 0; c < WIDE; c++) {
            const float *group = packed + h * GROUP * WIDE + c;
            for (int r = 0; r < 2; r++) {
                qkv[(h * 2 + r) * WIDE + c] = group[r * WIDE];
                qkv[(HEADS * 2 + h * 2 + r) * WIDE + c] = group[(2 + r) * WIDE];
            }
            for (int r = 0; r < 4; r++) {
                qkv[(HEADS * 4 + h * 4 + r) * WIDE + c] = group[(4 + r) * WIDE];
                z[(h * 4 + r) * WIDE + c] = group[(8 + r) * WIDE];
            }
        }
    const struct made tensors[] = {made("model.layers.0.qkvz", 2, HEADS * GROUP, WIDE, 0, packed),
                                   made("model.layers.0.ba", 1, 8, 0, 0, ba)};
    put_folder("toy", config, tensors, 2);
    struct tt_model_folder *folder = open_joined(&by_heads);
    check(folder, "model.layers.0.qkv", HEADS * 8 * WIDE, qkv);
    check(folder, "model.layers.0.z", HEADS * 4 * WIDE, z);
    check(folder, "model.layers.0.b", 6, ba);
    check(folder, "model.layers.0.a", 2, ba + 6);
    for (int64_t step = 1; step < 30; step += 4) check_written(folder, "model.layers.0.qkvz", step);
    check_written(folder, "model.layers.0.ba", 4);
    tt_model_folder_close(folder);
}

/* Which of two ways a file has is told by the number of columns. */
static void ways_of_files(void **state)
{
    (void)state;
    static const struct tt_param_sources sources = {
        .path = "model",
        .rows = {
            {.param = MLP "down", .parts = {{.tensor = MLP "down", .transposed = true}}, .columns = COLUMNS},
            {.param = MLP "down", .parts = {{.tensor = MLP "experts.*.down"}}}}};
    float data[ROWS * COLUMNS], turned[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = (float)i;
    for (int i = 0; i < ROWS * COLUMNS; i++) turned[i] = data[i % COLUMNS * ROWS + i / COLUMNS];
    const struct made tensors[] = {made("model.layers.0.mlp.down", 2, ROWS, COLUMNS, 0, data),
                                   made("model.layers.1.mlp.down", 2, COLUMNS, ROWS, 0, data),
                                   made("model.layers.2.mlp.experts.0.down", 2, ROWS, COLUMNS, 0, data)};
    put_folder("toy", config, tensors, 3);
    struct tt_model_folder *folder = open_joined(&sources);
    check(folder, "model.layers.0.mlp.down", ROWS * COLUMNS, data);
    check(folder, "model.layers.1.mlp.down", ROWS * COLUMNS, turned);
    check(folder, "model.layers.2.mlp.down", ROWS * COLUMNS, data);
    assert_int_equal(tt_model_folder_find(folder, "model.layers.2.mlp.down")->rank, 3);
    tt_model_folder_close(folder);
}

/* A matrix larger than what is read and written at once, in chunks that end anywhere: its elements are their numbers
 * in the tensor, which are `row` apart from row to row and `column` from column to column of the parameter. */
static void check_large(const struct tt_param_sources *sources, int64_t rows, int64_t columns, int64_t row,
                        int64_t column)
{
    const char *tensor = "model.layers.0.mlp.t", *param = "model.layers.0.mlp.w";
    float *data = malloc((size_t)(rows * columns) * sizeof *data);
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)i;
    const struct made tensors[] = {made(tensor, 2, rows, columns, 0, data)};
    put_folder("toy", config, tensors, 1);
    struct tt_model_folder *folder = open_joined(sources);
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, param);
    assert_non_null(entry);
    int64_t count = (int64_t)(entry->bytes / sizeof *data);
    float *got = malloc(entry->bytes);
    for (int64_t step = 100003; step < 2 * count; step *= 5) {
        memset(got, 0xff, entry->bytes);
        for (int64_t first = 0; first < count; first += step)
            ok(tt_model_folder_read(folder, entry, first, count - first < step ? count - first : step,
                                    got + first, TT_F32));
        for (int64_t i = 0; i < count; i++)
            assert_true(got[i] == (float)(i / entry->dims[1] * row + i % entry->dims[1] * column));
        check_written(folder, tensor, step);
    }
    free(got);
    free(data);
    tt_model_folder_close(folder);
}

static void large_matrices(void **state)
{
    (void)state;
    static const struct tt_param_sources turned = {
        .path = "model", .rows = {{.param = MLP "w", .parts = {{.tensor = MLP "t", .transposed = true}}}}};
    static const struct tt_param_sources turns = {
        .path = "model",
        .rows = {
            {.param = MLP "w",
             .parts = {{.tensor = MLP "t", .transposed = true, .units = 2, .unit = 0, .unit_rows = 1}}},
            {.param = MLP "v",
             .parts = {{.tensor = MLP "t", .transposed = true, .units = 2, .unit = 1, .unit_rows = 1}}}}};
    static const struct tt_param_sources rows = {
        .path = "model",
        .rows = {{.param = MLP "w", .parts = {{.tensor = MLP "t", .units = 2, .unit = 0, .unit_rows = 1}}},
                 {.param = MLP "v", .parts = {{.tensor = MLP "t", .units = 2, .unit = 1, .unit_rows = 1}}}}};
    check_large(&turned, 700, 1100, 1, 1100);
    check_large(&turns, 700, 1100, 2, 1100);
    check_large(&rows, 1100, 700, 1400, 1);
    check_large(&rows, 20, 40000, 80000, 1);
}

/* ---- Refusals ---- */

static void refuse_as(const struct tt_param_sources *sources, tt_status status, const char *wanted)
{
    struct tt_model_folder *folder = NULL;
    uint64_t live = tt_alloc_live();
    char path[300];
    snprintf(path, sizeof path, "%s", test_at("toy"));
    ok(tt_model_folder_open(path, true, &folder));
    assert_int_equal(tt_model_folder_join(folder, sources), status);
    if (strstr(tt_error_last()->message, wanted) == NULL) fail_msg("%s", tt_error_last()->message);
    tt_model_folder_close(folder);
    assert_true(tt_alloc_live() == live);
}

static void refuse(const struct tt_param_sources *sources, const char *wanted)
{
    refuse_as(sources, TT_ERR_DATA, wanted);
}

static void refusals(void **state)
{
    (void)state;
    float data[3 * COLUMNS] = {0};
    put_experts(5, COLUMNS);
    refuse(&of_experts, "has a part of 'model.layers.0.mlp.gate_up' and lacks "
                        "'model.layers.0.mlp.experts.2.up.weight' of shape [4, 5]");
    put_experts(6, COLUMNS - 1);
    refuse(&of_experts,
           "model.safetensors': 'model.layers.0.mlp.experts.2.up.weight' is F32 [4, 4], and as a "
           "part of 'model.layers.0.mlp.gate_up' must be F32 [4, 5]");
    const struct made odd[] = {made("model.layers.0.mlp.both", 2, 3, COLUMNS, 0, data)};
    put_folder("toy", config, odd, 1);
    refuse(&of_one, "model.safetensors': 'model.layers.0.mlp.both' is [3, 5], and as a part of "
                    "'model.layers.0.mlp.gate' must have a multiple of 2 rows");
    const struct made flat[] = {made("model.layers.0.mlp.both", 1, 10, 0, 0, data)};
    put_folder("toy", config, flat, 1);
    refuse(&of_one,
           "'model.layers.0.mlp.both' is [10], and as a part of 'model.layers.0.mlp.gate' must have");
    static const struct tt_param_sources twice = {
        .path = "model",
        .rows = {{.param = MLP "a", .parts = {{.tensor = MLP "both", .units = 3, .unit = 0, .count = 2}}},
                 {.param = MLP "b", .parts = {{.tensor = MLP "both", .units = 3, .unit = 1, .count = 2}}}}};
    static const struct tt_param_sources rest = {
        .path = "model",
        .rows = {{.param = MLP "a", .parts = {{.tensor = MLP "both", .units = 3, .unit = 0}}},
                 {.param = MLP "b", .parts = {{.tensor = MLP "both", .units = 3, .unit = 2}}}}};
    static const struct tt_param_sources both_ways = {
        .path = "model",
        .rows = {{.param = MLP "a", .parts = {{.tensor = MLP "both"}}},
                 {.param = MLP "b", .parts = {{.tensor = MLP "both", .transposed = true}}}}};
    const struct made gap[] = {made("model.layers.0.mlp.experts.0.bias", 1, 3, 0, 0, data),
                               made("model.layers.0.mlp.experts.2.bias", 1, 3, 0, 0, data)};
    put_folder("toy", config, gap, 2);
    refuse(&of_experts,
           "has 'model.layers.0.mlp.experts.2.bias' and lacks 'model.layers.0.mlp.experts.1.bias'");
    struct made codes = made("model.layers.0.mlp.both", 2, 4, COLUMNS, 0, data);
    codes.entry.dtype = TT_F8_E4M3;
    put_folder("toy", config, &codes, 1);
    refuse_as(&of_one, TT_ERR_UNSUPPORTED,
              "model.safetensors': 'model.layers.0.mlp.both' is F8_E4M3, and a part of "
              "'model.layers.0.mlp.gate': quantized tensors are read in pieces where");
    put_folder("toy", config, odd, 1);
    refuse(&twice,
           "row 1 of 'model.layers.0.mlp.both' is in 'model.layers.0.mlp.b' and in another parameter");
    refuse(&rest, "row 1 of 'model.layers.0.mlp.both' is in no parameter");
    refuse(&both_ways, "row 0 of 'model.layers.0.mlp.both' is in 'model.layers.0.mlp.b' and in another");
}

static tt_status take_no_piece(void *context, const struct tt_source_piece *piece)
{
    (void)context;
    (void)piece;
    return TT_ERR_INTERNAL;
}

static void shapes_that_cannot_be_cut(void **state)
{
    (void)state;
    const int64_t dims[] = {COLUMNS, COLUMNS}, heads[] = {6, COLUMNS};
    assert_int_equal(tt_param_source_pieces(&of_one, &of_one.rows[0], 0, 1, dims, take_no_piece, NULL),
                     TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "is in pieces of rank 2 and has rank 1"));
    assert_int_equal(tt_param_source_pieces(&by_heads, &by_heads.rows[0], 0, 2, dims, take_no_piece, NULL),
                     TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "has 5 rows, which do not make whole pieces"));
    assert_int_equal(tt_param_source_pieces(&by_heads, &by_heads.rows[1], 0, 2, heads, take_no_piece, NULL),
                     TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "has 6 rows, which do not make whole pieces"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_for_each_expert),
        cmocka_unit_test(rows_in_turn_of_a_transposed_tensor),
        cmocka_unit_test(parts_of_one_tensor),
        cmocka_unit_test(groups_of_rows),
        cmocka_unit_test(ways_of_files),
        cmocka_unit_test(large_matrices),
        cmocka_unit_test(refusals),
        cmocka_unit_test(shapes_that_cannot_be_cut),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
