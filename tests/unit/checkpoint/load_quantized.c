/* A base that is quantized while it is loaded: what lies in the shards is, byte for byte, the segment that
 * the whole tensor gives, in every format, on any number of ranks and with either kind of memory; a folder
 * that is quantized already gives what it holds; and made-up weights are the same everywhere too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backend/ops/gemm_scaled.h"
#include "base/alloc.h"
#include "checkpoint/load.h"
#include "io/quantized.h"
#include "load_world.h"
#include "support/ranks.h"

#define FOLDERS TT_TEST_ROOT "/golden"

struct how {
    const char *family;
    struct tt_base_quant quant;
    bool late, random, stored;  /* stored: the folder is quantized already */
    struct tt_str *made;        /* random: segments of one rank, to compare with */
    size_t transposed, skipped; /* of a layer of a stored folder */
    size_t scratch;             /* bytes lent for the device to quantize in */
};

/* Ops that quantized on a device with memory of its own, over all ranks. */
static atomic_int quantized_rows, quantized_columns;

static tt_status count_rows(struct tt_stream *stream, const struct tt_quantize_rows_args *args)
{
    atomic_fetch_add(&quantized_rows, 1);
    return tt_cpu_device_table.ops->quantize_rows(stream, args);
}

static tt_status count_columns(struct tt_stream *stream, const struct tt_quantize_columns_args *args)
{
    atomic_fetch_add(&quantized_columns, 1);
    return tt_cpu_device_table.ops->quantize_columns(stream, args);
}

/* Lends the bytes and counts the ops. */
static tt_status lend(struct load_world *world, const struct how *how, struct tt_op_table *ops,
                      struct tt_buffer **buffer, tt_tensor *scratch)
{
    if (how->scratch == 0) return TT_OK;
    *ops = *world->late->table.ops;
    ops->quantize_rows = count_rows;
    ops->quantize_columns = count_columns;
    world->late->table.ops = ops;
    TT_TRY(tt_buffer_create(world->device, how->scratch, TT_PURPOSE_ACTIVATIONS, buffer));
    *scratch = tt_tensor_1d(tt_buffer_data(*buffer), TT_U8, (int64_t)how->scratch);
    return TT_OK;
}

static tt_status open_world(struct tt_comm *comm, const struct how *how, const struct tt_model_folder *folder,
                            struct load_world *world)
{
    struct tt_model_options options = {
        .compute_dtype = TT_BF16, .quant = how->quant, .random_init = how->random};
    return open_load_world(comm, how->late, &options, folder, world);
}

static tt_status give(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

static const tt_param *original_of(const tt_param *param)
{
    return param->transposed_of != NULL ? param->transposed_of : param;
}

/* The numbers of a tensor; of one in FP8, code * scale. */
static tt_status read_numbers(const char *name, const struct tt_model_folder *folder, int64_t count,
                              float *to)
{
    struct tt_quantized tensor;
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
    TEST_RANK_CHECK(entry != NULL);
    TT_TRY(tt_quantized_find(folder, name, &tensor));
    if (tensor.layout.format.type == TT_QUANT_FP8)
        return tt_quantized_read_weights(folder, &tensor, 0, count, to);
    return tt_model_folder_read(folder, entry, 0, count, to, TT_F32);
}

/* The weights of a parameter: of a transposed copy, the transposed ones of its original. */
static tt_status read_weights(const tt_param *param, const struct tt_model_folder *folder, float *weights)
{
    const tt_param *original = original_of(param);
    int64_t rows = original->dims[0], cols = original->dims[1];
    if (param->transposed_of == NULL) return read_numbers(original->name, folder, rows * cols, weights);
    float *straight = tt_calloc((size_t)(rows * cols), sizeof *straight);
    tt_status status = read_numbers(original->name, folder, rows * cols, straight);
    for (int64_t i = 0; i < rows * cols; i++) weights[i % cols * rows + i / cols] = straight[i];
    tt_free(straight);
    return status;
}

/* The segment from the whole tensor, at once. */
static tt_status make_segment(const tt_param *param, const struct tt_model_folder *folder, bool stored,
                              uint8_t *segment)
{
    const struct tt_quant_layout *layout = &param->quant;
    if (stored) {
        struct tt_quantized tensor;
        TT_TRY(tt_quantized_find(folder, original_of(param)->name, &tensor));
        if (param->transposed_of == NULL && layout->row_squares > 0) TT_TRY(tt_quantized_in_blocks(&tensor));
        if (param->transposed_of == NULL && tensor.layout.row_squares == layout->row_squares)
            return tt_quantized_read(folder, &tensor, 0, layout->bytes, segment);
    }
    float *weights = tt_calloc((size_t)layout->count, sizeof *weights);
    float *absmax = tt_calloc((size_t)layout->blocks, sizeof *absmax);
    tt_status status = read_weights(param, folder, weights);
    tt_quant_absmax(layout, 0, layout->blocks, weights, TT_F32, absmax);
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = tt_quant_mean(absmax, layout->blocks),
                                     .dtype = TT_F32,
                                     .read = give,
                                     .context = weights};
    if (status == TT_OK) status = tt_quant_encode(layout, &source, 0, layout->bytes, segment);
    tt_free(weights);
    tt_free(absmax);
    return status;
}

static tt_status check_piece(const struct how *how, const struct tt_piece *piece,
                             const struct tt_model_folder *folder, size_t *at)
{
    tt_status status = TT_OK;
    const tt_param *param = piece->param;
    TEST_RANK_CHECK(piece->dtype == TT_U8);
    uint8_t *segment = tt_calloc(param->quant.bytes, 1);
    if (!how->random)
        status = make_segment(param, folder, how->stored, segment);
    else
        memcpy(segment, how->made->data + *at, param->quant.bytes);
    *at += param->quant.bytes;
    if (status == TT_OK && piece->count > 0 &&
        memcmp(segment + piece->first, piece->data, (size_t)piece->count) != 0)
        status = tt_fail(TT_ERR_INTERNAL, "'%s' is not its segment", param->name);
    tt_free(segment);
    return status;
}

static tt_status check_pieces(const struct load_world *world, const struct how *how, int ranks,
                              const struct tt_model_folder *folder)
{
    size_t at = 0, quantized = 0, transposed = 0;
    for (int u = 0; u < world->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(world->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(world->units[u], p);
            if (!tt_param_is_quantized(piece.param)) continue;
            quantized += piece.param->transposed_of == NULL;
            transposed += piece.param->transposed_of != NULL;
            if (how->random && ranks == 1)
                TT_TRY(tt_str_append(how->made, piece.data, (size_t)piece.count));
            else
                TT_TRY(check_piece(how, &piece, folder, &at));
        }
    }
    bool transposes =
        how->quant.trains && strncmp(how->family, "mistral", 7) == 0; /* q, k, v, o: the rest is odd */
    size_t layers = (size_t)world->model->facts.num_hidden_layers;
    TEST_RANK_CHECK(transposed == (how->stored ? how->transposed : transposes ? 4 : 0) * layers);
    TEST_RANK_CHECK(quantized == (7 - how->skipped) * layers);
    return TT_OK;
}

static tt_status run_rank(struct tt_comm *comm, void *argument)
{
    const struct how *how = argument;
    char path[512];
    struct load_world world = {0};
    struct tt_model_folder *folder = NULL;
    struct tt_op_table ops;
    struct tt_buffer *scratch = NULL;
    tt_status status = TT_OK;
    struct tt_memory_use memory;
    (void)snprintf(path, sizeof path, "%s/%s", FOLDERS, how->family);
    TT_GO(tt_model_folder_open(path, true, &folder));
    TT_GO(open_world(comm, how, folder, &world));
    struct tt_load_source source = {.folder = how->random ? NULL : folder, .seed = 5};
    TT_GO(tt_load_check(world.model, &source));
    TT_GO(lend(&world, how, &ops, &scratch, &source.scratch));
    TT_GO(tt_load_units(world.model, world.units, world.stream, &source));
    TT_GO(check_pieces(&world, how, tt_comm_world_size(comm), folder));
    tt_device_memory(world.device, &memory);
    if (memory.host_total != 0) TT_GO(tt_fail(TT_ERR_INTERNAL, "a staging buffer is left"));
out:
    tt_buffer_destroy(scratch);
    close_load_world(&world);
    tt_model_folder_close(folder);
    return status;
}

static const struct tt_base_quant formats[] = {
    {.type = TT_QUANT_NF4},
    {.type = TT_QUANT_NF4, .nested = true},
    {.type = TT_QUANT_FP4, .nested = true},
    {.type = TT_QUANT_INT8},
    {.type = TT_QUANT_FP8},
    {.type = TT_QUANT_FP8, .trains = true},
};

static void test_segments(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        for (int late = 0; late < 2; late++) {
            struct how how = {.family = "llama_sharded/model", .quant = formats[f], .late = late != 0};
            for (int ranks = 1; ranks <= 5; ranks++) test_ranks(ranks, run_rank, &how);
            how.family = "mistral/model";
            for (int ranks = 1; ranks <= 3; ranks += 2) test_ranks(ranks, run_rank, &how);
        }
    }
}

static void test_stored(void **state)
{
    static const struct {
        const char *family;
        struct tt_base_quant quant;
    } folders[] = {
        {"quant/nf4", {.type = TT_QUANT_NF4, .nested = true}},
        {"quant/fp4", {.type = TT_QUANT_FP4}},
        {"quant/int8", {.type = TT_QUANT_INT8}},
        {"qlora/nf4_double", {.type = TT_QUANT_NF4, .nested = true}},
    };
    (void)state;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        for (int late = 0; late < 2; late++) {
            struct how how = {folders[f].family, folders[f].quant, .late = late != 0, .stored = true};
            for (int ranks = 1; ranks <= 4; ranks++) test_ranks(ranks, run_rank, &how);
        }
    }
}

/* FP8: scales of rows, of the matrix and of blocks as stored, blocks for rows and transposed copies quantized anew. */
static void test_stored_fp8(void **state)
{
    static const char *const families[] = {"fp8/channel", "fp8/tensor", "fp8/mistral", "fp8/blocks",
                                           "fp8/powers"};
    static const char *const skips[] = {"[\"k_proj\"]", NULL, NULL, "[\"v_proj\"]", "[\"v_proj\"]"};
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        for (int bits = 0; bits < 4; bits++) {
            size_t skipped = skips[f] != NULL;
            struct how how = {.family = families[f],
                              .quant = {.type = TT_QUANT_FP8, .trains = bits >= 2, .skip_modules = skips[f]},
                              .late = bits % 2 != 0,
                              .stored = true,
                              .skipped = skipped,
                              .transposed = bits >= 2 ? 7 - skipped : 0};
            for (int ranks = 1; ranks <= 4; ranks++) test_ranks(ranks, run_rank, &how);
            if (f == 0) continue; /* no segment in blocks has scales of rows */
            how.quant.blocks = true;
            how.transposed = 0;
            for (int ranks = 1; ranks <= 4; ranks++) test_ranks(ranks, run_rank, &how);
        }
    }
}

/* A folder that is not what config.json says. */
static void test_stored_otherwise(void **state)
{
    static const struct {
        const char *folder;
        struct tt_base_quant quant;
        const char *message;
    } cases[] = {
        {FOLDERS "/quant/nf4", {.type = TT_QUANT_FP4, .nested = true}, "is nf4 with nested scales"},
        {FOLDERS "/quant/fp4", {.type = TT_QUANT_FP4, .nested = true}, "is fp4 with plain scales"},
        {FOLDERS "/quant/int8", {.type = TT_QUANT_NF4}, "is int8 with plain scales"},
        {FOLDERS "/fp8/channel",
         {.type = TT_QUANT_FP8},
         "'model.layers.0.self_attn.k_proj.weight' is not quantized"},
        {FOLDERS "/quant/nf4",
         {.type = TT_QUANT_NF4, .nested = true, .skip_modules = "[\"q_proj\"]"},
         "'model.layers.0.self_attn.q_proj.weight'"},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct tt_model_folder *folder = NULL;
        struct tt_model_facts config;
        struct tt_model *model = NULL;
        struct tt_model_options options = {.compute_dtype = TT_BF16, .quant = cases[c].quant};
        assert_int_equal(tt_model_folder_open(cases[c].folder, true, &folder), TT_OK);
        assert_int_equal(tt_model_facts_parse(tt_model_folder_config(folder), &config), TT_OK);
        assert_int_equal(tt_model_create(&config, &options, &model), TT_OK);
        struct tt_load_source source = {.folder = folder};
        assert_true(test_failed_with(tt_load_check(model, &source), TT_ERR_DATA, cases[c].message));
        tt_model_destroy(model);
        tt_model_folder_close(folder);
    }
}

static void test_blocks_of_rows(void **state)
{
    struct tt_model_folder *folder = NULL;
    struct tt_model_facts config;
    struct tt_model *model = NULL;
    struct tt_model_options options = {
        .compute_dtype = TT_BF16,
        .quant = {.type = TT_QUANT_FP8, .blocks = true, .skip_modules = "[\"k_proj\"]"}};
    (void)state;
    assert_int_equal(tt_model_folder_open(FOLDERS "/fp8/channel", true, &folder), TT_OK);
    assert_int_equal(tt_model_facts_parse(tt_model_folder_config(folder), &config), TT_OK);
    assert_int_equal(tt_model_create(&config, &options, &model), TT_OK);
    struct tt_load_source source = {.folder = folder};
    assert_true(test_failed_with(tt_load_check(model, &source), TT_ERR_UNSUPPORTED, "has scales of rows"));
    assert_non_null(strstr(tt_error_last()->hint, "--fp8_blocks rows"));
    tt_model_destroy(model);
    tt_model_folder_close(folder);
}

static void test_made_up(void **state)
{
    static const struct tt_base_quant blocks = {.type = TT_QUANT_FP8, .blocks = true};
    const size_t count = sizeof formats / sizeof *formats;
    (void)state;
    for (size_t f = 0; f <= count; f++) {
        struct tt_str made = {0};
        const struct tt_base_quant *quant = f < count ? &formats[f] : &blocks;
        struct how how = {.family = quant->trains ? "mistral/model" : "llama_sharded/model",
                          .quant = *quant,
                          .random = true,
                          .made = &made};
        test_ranks(1, run_rank, &how);
        for (int bits = 0; bits < 4; bits++) {
            how.late = bits & 1;
            test_ranks(2 + (bits >> 1), run_rank, &how);
        }
        tt_str_deinit(&made);
    }
}

/* The largest matrices of these folders are 176 x 64 and 128 x 48: all at once, a few at a time, parts of each, and
 * fewer than 16 rows of some transposed copies. */
static const size_t scratches[] = {4 << 20, 100000, 20000, 3000};

static void test_on_device(void **state)
{
    static const char *const families[] = {"llama_sharded/model", "mistral/model", "fp8/mistral",
                                           "fp8/blocks"};
    (void)state;
    for (size_t s = 0; s < sizeof scratches / sizeof *scratches; s++) {
        atomic_store(&quantized_rows, 0);
        atomic_store(&quantized_columns, 0);
        for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
            for (int trains = 0; trains < 2; trains++) {
                bool stored = f >= 2, skips = f == 3;
                struct how how = {.family = families[f],
                                  .quant = {.type = TT_QUANT_FP8,
                                            .trains = trains != 0,
                                            .skip_modules = skips ? "[\"v_proj\"]" : NULL},
                                  .late = true,
                                  .stored = stored,
                                  .skipped = skips,
                                  .transposed = trains ? 7 - (size_t)skips : 0,
                                  .scratch = scratches[s]};
                for (int ranks = 1; ranks <= 4; ranks++) test_ranks(ranks, run_rank, &how);
            }
        }
        assert_true(atomic_load(&quantized_rows) > 0);
        assert_true(atomic_load(&quantized_columns) > 0 || scratches[s] < 10000);
    }
}

/* Numbers in bf16, and not the codes that a processor makes up. */
static void test_made_up_on_device(void **state)
{
    struct tt_str made = {0}, codes = {0};
    struct how how = {.family = "mistral/model",
                      .quant = {.type = TT_QUANT_FP8, .trains = true},
                      .late = true,
                      .random = true,
                      .made = &codes};
    (void)state;
    test_ranks(1, run_rank, &how);
    how.made = &made;
    how.scratch = scratches[0];
    test_ranks(1, run_rank, &how);
    assert_int_equal(made.bytes, codes.bytes);
    assert_memory_not_equal(made.data, codes.data, made.bytes);
    for (size_t s = 0; s < 3; s++) {
        how.scratch = scratches[s];
        for (int ranks = 2; ranks <= 4; ranks++) test_ranks(ranks, run_rank, &how);
    }
    tt_str_deinit(&made);
    tt_str_deinit(&codes);
}

static void test_skipped(void **state)
{
    struct tt_model_folder *folder = NULL;
    struct tt_model_facts config;
    struct tt_model *model = NULL;
    struct tt_model_options options = {.compute_dtype = TT_BF16,
                                       .quant = {.type = TT_QUANT_NF4, .skip_modules = "[\"down_proj\"]"}};
    (void)state;
    assert_int_equal(tt_model_folder_open(FOLDERS "/llama2/model", true, &folder), TT_OK);
    assert_int_equal(tt_model_facts_parse(tt_model_folder_config(folder), &config), TT_OK);
    assert_int_equal(tt_model_create(&config, &options, &model), TT_OK);
    for (size_t i = 0; i < model->param_count; i++) {
        const char *name = model->params[i]->name;
        bool linear = strstr(name, "_proj.weight") != NULL && strstr(name, "down_proj") == NULL;
        assert_int_equal(tt_param_is_quantized(model->params[i]), linear);
    }
    tt_model_destroy(model);
    options.quant.skip_modules = "[\"doun_proj\"]";
    assert_true(test_failed_with(tt_model_create(&config, &options, &model), TT_ERR_USAGE, "doun_proj"));
    options.quant.skip_modules = NULL;
    options.train_base = true;
    assert_true(test_failed_with(tt_model_create(&config, &options, &model), TT_ERR_USAGE, "cannot train"));
    tt_model_folder_close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments),       cmocka_unit_test(test_stored),
        cmocka_unit_test(test_stored_fp8),     cmocka_unit_test(test_stored_otherwise),
        cmocka_unit_test(test_blocks_of_rows), cmocka_unit_test(test_made_up),
        cmocka_unit_test(test_on_device),      cmocka_unit_test(test_made_up_on_device),
        cmocka_unit_test(test_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
