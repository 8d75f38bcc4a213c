/* Matrices of experts in codes (quantize_moe_experts): a training over them is that over the numbers that the codes
 * stand for, bit for bit; ranks give one curve; levels of recomputation and a resumed run give the same bits; packed
 * rows train as rows alone. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/model_folder.h"
#include "model/model.h"
#include "support/must.h"
#include "support/train_run.h"
#include "tensor/format.h"

#define GOLDEN TT_TEST_ROOT "/golden/dense/"
#define BOTH "[\"mlp.experts.gate_up_proj\",\"mlp.experts.down_proj\"]"
enum { STEPS = 20 };

static const char *const families[] = {"qwen3_moe", "gpt_oss"};
enum { FAMILIES = sizeof families / sizeof *families };

static const struct format {
    const char *words;
    enum tt_quant_type type;
    bool nested;
} formats[] = {
    {"load_in_4bit true", TT_QUANT_NF4, false},
    {"load_in_4bit true bnb_4bit_use_double_quant true", TT_QUANT_NF4, true},
    {"load_in_4bit true bnb_4bit_quant_type fp4", TT_QUANT_FP4, false},
    {"load_in_8bit true", TT_QUANT_INT8, false},
    {"base_dtype fp8 fp8_products none", TT_QUANT_FP8, false},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Experts that are multiplied in FP8, as the other linears are. */
static const char products[] = "base_dtype fp8";

static void run(const char *model, const char *output, const char *words, const char *more)
{
    struct test_words settings = {0};
    struct tt_train_summary summary;
    test_words_pair(&settings, "model_name_or_path", model);
    test_words_pair(&settings, "dataset_name", GOLDEN "train.jsonl");
    test_words_pair(&settings, "target_parameters", BOTH);
    test_words_add(&settings,
                   "logging_steps 1 threads 1 lora_r 4 lora_dropout 0 lora_target_modules all-linear "
                   "learning_rate 0.001");
    test_words_add(&settings, words);
    test_words_add(&settings, more);
    test_train_ok(settings.list, output, &summary);
}

static const char *model_of(const char *family)
{
    static char path[512];
    (void)snprintf(path, sizeof path, GOLDEN "%s/model", family);
    return path;
}

static const char *with_experts(const char *words)
{
    static char text[400];
    (void)snprintf(text, sizeof text, "%s quantize_moe_experts true", words);
    return text;
}

/* ---- The numbers of the codes, as a folder ---- */

struct writing {
    const char *folder;                         /* of the copy */
    const struct tt_model_folder *from, *plain; /* joined, and as the files are */
    const uint16_t *numbers;
};

static tt_status read_numbers(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

static tt_status write_piece(void *context, const struct tt_source_piece *piece)
{
    const struct writing *writing = context;
    const struct tt_safetensors_entry *entry = tt_model_folder_find(writing->plain, piece->tensor);
    char path[600];
    assert_non_null(entry);
    assert_int_equal(entry->dtype, TT_BF16);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", writing->folder);
    struct tt_source_output output = {open(path, O_RDWR), path, entry->offset, sizeof(uint16_t)};
    assert_true(output.descriptor >= 0);
    test_must(tt_source_piece_write(piece, &output, 0, piece->rows * piece->columns,
                                    writing->numbers + piece->first));
    (void)close(output.descriptor);
    return TT_OK;
}

/* The numbers as the values of the parameter in the copy. */
static void write_param(struct writing *writing, const char *name, const uint16_t *numbers)
{
    bool joined;
    writing->numbers = numbers;
    test_must(tt_model_folder_pieces(writing->from, name, write_piece, writing, &joined));
    if (joined) return;
    const struct tt_safetensors_entry *entry = tt_model_folder_find(writing->plain, name);
    if (entry == NULL) fail_msg("no '%s'", name);
    int64_t count = tt_safetensors_elements(entry);
    struct tt_source_piece whole = {.tensor = name,
                                    .rows = 1,
                                    .columns = count,
                                    .group_rows = 1,
                                    .group_stride = count,
                                    .row_stride = count,
                                    .column_stride = 1};
    test_must(write_piece(writing, &whole));
}

/* Quantizes a parameter and writes what its codes stand for, rounded to bf16 as products read it. */
static void write_numbers(struct writing *writing, const tt_param *param)
{
    const struct tt_quant_layout *layout = &param->quant;
    const struct tt_safetensors_entry *entry = tt_model_folder_find(writing->from, param->name);
    size_t count = (size_t)layout->count;
    float *wide = tt_alloc_aligned(count * sizeof *wide);
    float *absmax = tt_alloc_aligned((size_t)layout->blocks * sizeof *absmax);
    uint16_t *numbers = tt_alloc_aligned(count * sizeof *numbers);
    void *segment = tt_alloc_aligned(layout->bytes);
    assert_true(entry != NULL && wide != NULL && absmax != NULL && numbers != NULL && segment != NULL);
    test_must(tt_model_folder_read(writing->from, entry, 0, layout->count, wide, TT_F32));
    tt_quant_absmax(layout, 0, layout->blocks, wide, TT_F32, absmax);
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = tt_quant_offset(layout, absmax),
                                     .dtype = TT_F32,
                                     .read = read_numbers,
                                     .context = wide};
    test_must(tt_quant_encode(layout, &source, 0, layout->bytes, segment));
    tt_quant_decode(layout, segment, 0, layout->count, numbers, TT_BF16);
    write_param(writing, param->name, numbers);
    tt_free(segment);
    tt_free(numbers);
    tt_free(absmax);
    tt_free(wide);
}

struct copy {
    struct writing writing;
    struct tt_model_folder *from, *plain;
    struct tt_model *model;
};

/* A copy of `model`, to write into. */
static void open_copy(const char *model, const struct tt_base_quant *quant, const char *folder,
                      struct copy *copy)
{
    static struct tt_model_facts facts;
    struct tt_model_options options = {.compute_dtype = TT_BF16, .quant = *quant};
    char command[1200];
    (void)snprintf(command, sizeof command, "cp -r '%s/.' '%s' && chmod -R u+w '%s'", model, folder, folder);
    assert_int_equal(system(command), 0);
    test_must(tt_model_folder_open(model, true, &copy->from));
    test_must(tt_model_folder_open(model, true, &copy->plain));
    test_must(tt_model_facts_of_folder(copy->from, &facts));
    test_must(tt_model_folder_join(copy->from, &facts.sources));
    test_must(tt_model_create(&facts, &options, &copy->model));
    copy->writing = (struct writing){.folder = folder, .from = copy->from, .plain = copy->plain};
}

static void close_copy(struct copy *copy)
{
    tt_model_destroy(copy->model);
    tt_model_folder_close(copy->plain);
    tt_model_folder_close(copy->from);
}

/* The number of parameters of experts. */
static int write_decoded(const char *model, const struct format *format, const char *folder)
{
    const struct tt_base_quant quant = {
        .type = format->type, .nested = format->nested, .experts = true, .products = TT_FP8_NONE};
    struct copy copy;
    int experts = 0;
    open_copy(model, &quant, folder, &copy);
    for (size_t i = 0; i < copy.model->param_count; i++) {
        const tt_param *param = copy.model->params[i];
        if (!tt_param_is_quantized(param)) continue;
        experts += param->rank == 3;
        write_numbers(&copy.writing, param);
    }
    close_copy(&copy);
    return experts;
}

static void codes_train_as_their_numbers(void **state)
{
    static const char words[] = "bf16 true max_steps 20 per_device_train_batch_size 4 save_strategy no";
    double wanted[STEPS], got[STEPS], plain[STEPS];
    char a[600], b[600];
    (void)state;
    for (int m = 0; m < FAMILIES; m++) {
        char *coded = test_folder_create(), *apart = test_folder_create(), *numbers;
        run(model_of(families[m]), coded, words, "");
        assert_int_equal(test_read_log(coded, "loss", plain, STEPS), STEPS);
        for (int f = 0; f < FORMATS; f++) {
            numbers = test_folder_create();
            assert_int_equal(write_decoded(model_of(families[m]), &formats[f], numbers), 4);
            run(model_of(families[m]), coded, words, with_experts(formats[f].words));
            run(numbers, apart, words, "");
            assert_int_equal(test_read_log(coded, "loss", got, STEPS), STEPS);
            assert_int_equal(test_read_log(apart, "loss", wanted, STEPS), STEPS);
            for (int s = 0; s < STEPS; s++)
                if (got[s] != wanted[s])
                    fail_msg("%s, %s, step %d: loss %.9f, over the numbers %.9f", families[m],
                             formats[f].words, s + 1, got[s], wanted[s]);
            assert_true(got[0] != plain[0] && got[STEPS - 1] != got[0]);
            (void)snprintf(a, sizeof a, "%s/adapter_model.safetensors", coded);
            (void)snprintf(b, sizeof b, "%s/adapter_model.safetensors", apart);
            test_same_file(a, b);
            test_folder_remove(numbers);
        }
        test_folder_remove(coded);
        test_folder_remove(apart);
    }
}

/* ---- A folder in MXFP4 ---- */

/* Its numbers, in a copy of the folder of the same model in bf16. */
static void write_mxfp4_decoded(const char *model, const char *folder)
{
    static struct tt_model_facts facts;
    struct tt_model_folder *coded;
    struct copy copy;
    open_copy(model_of("gpt_oss"), &(struct tt_base_quant){.type = TT_QUANT_NONE}, folder, &copy);
    test_must(tt_model_folder_open(model, true, &coded));
    test_must(tt_model_facts_of_folder(coded, &facts));
    test_must(tt_model_folder_join(coded, &facts.sources));
    for (size_t i = 0; i < copy.model->param_count; i++) {
        const char *name = copy.model->params[i]->name;
        const struct tt_safetensors_entry *entry = tt_model_folder_find(coded, name);
        assert_non_null(entry);
        int64_t count = tt_safetensors_elements(entry);
        uint16_t *numbers = tt_alloc_aligned((size_t)count * sizeof *numbers);
        assert_non_null(numbers);
        test_must(tt_model_folder_read(coded, entry, 0, count, numbers, TT_BF16));
        write_param(&copy.writing, name, numbers);
        tt_free(numbers);
    }
    tt_model_folder_close(coded);
    close_copy(&copy);
}

/* They are kept in 4.25 bits a weight. */
static void mxfp4_trains_as_its_numbers(void **state)
{
    static const char *const words[] = {
        "bf16 true max_steps 20 per_device_train_batch_size 4 save_strategy no",
        "bf16 false max_steps 4 per_device_train_batch_size 2 ranks 2 save_strategy no",
        "bf16 true max_steps 4 per_device_train_batch_size 4 save_strategy no load_in_4bit true"};
    static const char model[] = GOLDEN "gpt_oss/mxfp4/model";
    static struct tt_model_facts facts;
    struct tt_model_folder *folder;
    struct tt_model *made;
    (void)state;
    test_must(tt_model_folder_open(model, true, &folder));
    test_must(tt_model_facts_of_folder(folder, &facts));
    test_must(tt_model_create(&facts, &(struct tt_model_options){.compute_dtype = TT_BF16}, &made));
    int kept = 0;
    for (size_t i = 0; i < made->param_count; i++)
        kept += made->params[i]->quant.format.type == TT_QUANT_MXFP4;
    assert_int_equal(kept, 4);
    tt_model_destroy(made);
    tt_model_folder_close(folder);
    char *numbers = test_folder_create(), *coded = test_folder_create(), *apart = test_folder_create();
    char a[600], b[600];
    write_mxfp4_decoded(model, numbers);
    (void)snprintf(a, sizeof a, "%s/adapter_model.safetensors", coded);
    (void)snprintf(b, sizeof b, "%s/adapter_model.safetensors", apart);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        run(model, coded, words[i], "");
        run(numbers, apart, words[i], "");
        test_same_file(a, b);
    }
    test_folder_remove(numbers);
    test_folder_remove(coded);
    test_folder_remove(apart);
}

/* ---- Splits ---- */

static void ranks_give_one_curve(void **state)
{
    enum { FEW = 5 };
    static const char *const splits[] = {
        "ranks 2 per_device_train_batch_size 4 recompute cheap sharding_strategy SHARD_GRAD_OP",
        "ranks 4 per_device_train_batch_size 2 recompute block",
        "ranks 2 per_device_train_batch_size 4 sharding_strategy NO_SHARD"};
    double wanted[FEW], got[FEW];
    (void)state;
    for (int m = 0; m < FAMILIES; m++)
        for (int f = 0; f < FORMATS; f++) {
            char *output = test_folder_create(), words[400];
            static const char few[] = "bf16 false max_steps 5 save_strategy no";
            (void)snprintf(words, sizeof words, "%s ranks 1 per_device_train_batch_size 8 recompute none",
                           few);
            run(model_of(families[m]), output, words, with_experts(formats[f].words));
            assert_int_equal(test_read_log(output, "loss", wanted, FEW), FEW);
            for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
                (void)snprintf(words, sizeof words, "%s %s", few, splits[i]);
                run(model_of(families[m]), output, words, with_experts(formats[f].words));
                assert_int_equal(test_read_log(output, "loss", got, FEW), FEW);
                for (int s = 0; s < FEW; s++)
                    if (!(fabs(got[s] - wanted[s]) <= 2e-5 * wanted[s]))
                        fail_msg("%s, %s, %s, step %d: loss %.8f, wanted %.8f", families[m], formats[f].words,
                                 splits[i], s + 1, got[s], wanted[s]);
            }
            test_folder_remove(output);
        }
}

/* A change of the last bit can move an activation to the next code, 6 % away. */
static void ranks_of_products_in_fp8_give_one_curve(void **state)
{
    enum { FEW = 5 };
    static const char one[] = "bf16 false max_steps 5 save_strategy no per_device_train_batch_size 8",
                      two[] = "bf16 false max_steps 5 save_strategy no per_device_train_batch_size 4 ranks 2";
    double decoded[FEW], wanted[FEW], got[FEW];
    (void)state;
    for (int m = 0; m < FAMILIES; m++) {
        char *output = test_folder_create();
        run(model_of(families[m]), output, one, with_experts("base_dtype fp8 fp8_products none"));
        assert_int_equal(test_read_log(output, "loss", decoded, FEW), FEW);
        run(model_of(families[m]), output, one, with_experts(products));
        assert_int_equal(test_read_log(output, "loss", wanted, FEW), FEW);
        run(model_of(families[m]), output, two, with_experts(products));
        assert_int_equal(test_read_log(output, "loss", got, FEW), FEW);
        run(model_of(families[m]), output, one, products);
        double plain;
        assert_int_equal(test_read_log(output, "loss", &plain, 1), 1);
        assert_true(wanted[0] != decoded[0] && wanted[0] != plain);
        for (int s = 0; s < FEW; s++)
            if (!(fabs(got[s] - wanted[s]) <= 5e-4 * wanted[s] &&
                  fabs(wanted[s] - decoded[s]) <= 0.02 * decoded[s]))
                fail_msg("%s, step %d: loss %.8f on two ranks, %.8f on one, decoded %.8f", families[m], s + 1,
                         got[s], wanted[s], decoded[s]);
        test_folder_remove(output);
    }
}

static void same_adapter(const char *family, const char *a, const char *words, const char *format)
{
    char *output = test_folder_create(), b[600];
    run(model_of(family), output, words, with_experts(format));
    (void)snprintf(b, sizeof b, "%s/adapter_model.safetensors", output);
    test_same_file(a, b);
    test_folder_remove(output);
}

/* Levels, the same command again, and a run that is stopped and resumed. */
static void ways_give_the_same_bits(const char *family, const char *format)
{
    static const char few[] = "bf16 true max_steps 4 per_device_train_batch_size 4 ranks 2";
    static const char *const ways[] = {"save_strategy no recompute none", "save_strategy no recompute cheap",
                                       "save_strategy no recompute block",
                                       "save_strategy no recompute offload",
                                       "save_strategy steps save_steps 2"};
    char words[900], a[600], *saved = test_folder_create();
    (void)snprintf(words, sizeof words, "%s save_strategy steps save_steps 2", few);
    run(model_of(family), saved, words, with_experts(format));
    (void)snprintf(a, sizeof a, "%s/adapter_model.safetensors", saved);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        (void)snprintf(words, sizeof words, "%s %s", few, ways[i]);
        same_adapter(family, a, words, format);
    }
    (void)snprintf(words, sizeof words, "%s resume_from_checkpoint '%s/checkpoint-2'", few, saved);
    same_adapter(family, a, words, format);
    test_folder_remove(saved);
}

static void other_ways_give_the_same_bits(void **state)
{
    (void)state;
    for (int m = 0; m < FAMILIES; m++) {
        ways_give_the_same_bits(families[m], formats[1].words);
        ways_give_the_same_bits(families[m], products);
    }
}

static void packing_changes_nothing(void **state)
{
    static const char one[] = "bf16 false max_steps 1 per_device_train_batch_size 64 save_strategy no";
    char packed[400];
    double alone, together;
    (void)state;
    (void)snprintf(packed, sizeof packed, "%s packing true max_length 96", one);
    for (int m = 0; m < FAMILIES; m++) {
        char *output = test_folder_create();
        run(model_of(families[m]), output, one, with_experts(formats[0].words));
        assert_int_equal(test_read_log(output, "loss", &alone, 1), 1);
        run(model_of(families[m]), output, packed, with_experts(formats[0].words));
        assert_int_equal(test_read_log(output, "loss", &together, 1), 1);
        if (!(fabs(alone - together) <= 1e-6 * alone))
            fail_msg("%s: loss %.8f packed, %.8f alone", families[m], together, alone);
        test_folder_remove(output);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_train_as_their_numbers),
        cmocka_unit_test(mxfp4_trains_as_its_numbers),
        cmocka_unit_test(ranks_give_one_curve),
        cmocka_unit_test(other_ways_give_the_same_bits),
        cmocka_unit_test(packing_changes_nothing),
        cmocka_unit_test(ranks_of_products_in_fp8_give_one_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
