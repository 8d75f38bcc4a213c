/* Settings of quantization and the table of formats: a word of bnb_4bit_quant_type is the format of that name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/str.h"
#include "config/store.h"
#include "model/quantization.h"
#include "tensor/format.h"

static enum tt_quant_type resolved(struct tt_quantization_config given)
{
    static struct tt_model_facts facts; /* of a folder that is not quantized */
    struct tt_base_quant quant;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    return quant.type;
}

static void words_are_the_formats_of_their_names(void **state)
{
    (void)state;
    const struct tt_setting *row = tt_quantization_settings;
    const struct tt_weight_format *format;
    int words = 1, four = 0, place;
    while (strcmp(row->name, "bnb_4bit_quant_type") != 0) row++;
    for (const char *at = row->choices; (at = strchr(at, ' ')) != NULL; at++) words++;
    for (int type = TT_QUANT_NONE + 1; (format = tt_weight_format((enum tt_quant_type)type)) != NULL;
         type++) {
        if (format->load_bits != 4) continue;
        four++;
        if (!tt_words_find(row->choices, format->name, &place)) fail_msg("no choice is %s", format->name);
        assert_int_equal(resolved((struct tt_quantization_config){.load_in_4bit = true, .quant_type = place}),
                         type);
    }
    assert_int_equal(words, four);
    assert_true(tt_words_find(row->choices, row->default_text, &place));
    assert_int_equal(place, 0); /* the field of a run without the setting */
}

static void bits_choose_the_width(void **state)
{
    (void)state;
    assert_int_equal(resolved((struct tt_quantization_config){0}), TT_QUANT_NONE);
    assert_int_equal(resolved((struct tt_quantization_config){.load_in_8bit = true, .quant_type = 1}),
                     TT_QUANT_INT8);
}

static void fp8_has_two_spellings(void **state)
{
    (void)state;
    assert_int_equal(resolved((struct tt_quantization_config){.base_dtype = TT_BASE_FP8}), TT_QUANT_FP8);
    assert_int_equal(resolved((struct tt_quantization_config){.load_in_fp8 = true}), TT_QUANT_FP8);
    struct tt_quantization_config both = {.load_in_fp8 = true, .load_in_4bit = true};
    assert_int_equal(tt_quantization_check(&both, TT_BF16), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "load_in_fp8 and load_in_4bit are both on"));
    both = (struct tt_quantization_config){.base_dtype = TT_BASE_FP8, .load_in_8bit = true};
    assert_int_equal(tt_quantization_check(&both, TT_BF16), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "base_dtype fp8 and load_in_8bit are both on"));
}

/* A folder with codes decides; what asks for other codes is refused. */
static void stored_codes_decide(void **state)
{
    (void)state;
    static struct tt_model_facts facts;
    struct tt_base_quant quant;
    struct tt_quantization_config given = {.base_dtype = TT_BASE_FP8, .fp8_products = TT_FP8_FORWARD};
    facts.stored_quant = TT_QUANT_FP8;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    assert_int_equal(quant.type, TT_QUANT_FP8);
    assert_int_equal(quant.products, TT_FP8_FORWARD);
    assert_false(quant.blocks);
    facts.stored_fp8_blocks = facts.stored_fp8_powers = true;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    assert_true(quant.blocks && quant.powers);
    given.fp8_blocks = TT_FP8_BLOCKS_ROWS;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    assert_false(quant.blocks);
    facts.stored_fp8_blocks = facts.stored_fp8_powers = false;
    given.load_in_4bit = true;
    given.base_dtype = TT_BASE_AUTO;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "are fp8 already"));
    facts.stored_quant = TT_QUANT_NF4;
    given = (struct tt_quantization_config){.load_in_fp8 = true};
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "are nf4 already"));
}

/* Gate and up are kept in FP8 over a base in FP8, whichever way it became one, and over no other. */
static void gate_and_up_need_fp8(void **state)
{
    (void)state;
    static struct tt_model_facts facts;
    struct tt_base_quant quant;
    struct tt_quantization_config given = {.base_dtype = TT_BASE_FP8, .fp8_gate_up = TT_GATE_UP_E4M3};
    facts.stored_quant = TT_QUANT_NONE;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    assert_int_equal(quant.gate_up, TT_GATE_UP_E4M3);
    given.base_dtype = TT_BASE_AUTO;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "fp8_gate_up"));
    given.load_in_4bit = true;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_ERR_USAGE);
    given.load_in_4bit = false;
    facts.stored_quant = TT_QUANT_FP8;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    assert_int_equal(quant.gate_up, TT_GATE_UP_E4M3);
    facts.stored_quant = TT_QUANT_INT8;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_ERR_USAGE);
}

/* The modules that are quantized, an x each; - for the others. */
static void expect_quantized(bool stored, const char *skip, const char *plain, const char *expected)
{
    struct tt_module modules[] = {
        {.path = "model.layers.1.mlp.gate_proj", .kind = TT_MODULE_LINEAR},
        {.path = "model.layers.10.mlp.gate_proj", .kind = TT_MODULE_LINEAR},
        {.path = "model.layers.10.self_attn.q_proj", .kind = TT_MODULE_LINEAR},
        {.path = "lm_head", .kind = TT_MODULE_HEAD},
    };
    enum { COUNT = sizeof modules / sizeof *modules };
    struct tt_module_list list = {.items = modules, .count = COUNT};
    struct tt_model_options options = {
        .quant = {.type = TT_QUANT_FP8, .skip_modules = skip, .plain_modules = plain}};
    char found[COUNT + 1] = {0};
    if (tt_quantization_apply(&options, stored, &list) != TT_OK)
        fail_msg("%s: %s", skip, tt_error_last()->message);
    for (int i = 0; i < COUNT; i++) found[i] = modules[i].quantized ? 'x' : '-';
    if (strcmp(found, expected) != 0)
        fail_msg("%s: %s, not %s", skip != NULL ? skip : plain, found, expected);
}

/* As should_convert_module of transformers 5.24 reads them. */
static void skipped_names_end_where_a_name_ends(void **state)
{
    (void)state;
    for (int stored = 0; stored < 2; stored++) {
        expect_quantized(stored, "[\"model.layers.1\"]", NULL, "-xx-");
        expect_quantized(stored, "[\"model.layers.10\"]", NULL, "x---");
        expect_quantized(stored, "[\"gate_proj\"]", NULL, "--x-");
        expect_quantized(stored, "[\"model.layers.\\\\d+.mlp\"]", NULL, "--x-");
        expect_quantized(stored, "[\"model.layers.10.\"]", NULL, "x---");
    }
    expect_quantized(true, "[\"model.layers.10.mlp.gate\", \"lm_head\"]", NULL, "xxx-");
    expect_quantized(true, "[\"re:.*q_pro\"]", NULL, "xx--");
    struct tt_module module = {.path = "model.layers.1.mlp.gate_proj", .kind = TT_MODULE_LINEAR};
    struct tt_module_list list = {.items = &module, .count = 1};
    struct tt_model_options options = {.quant = {.type = TT_QUANT_INT8, .skip_modules = "[\"(\"]"}};
    assert_int_equal(tt_quantization_apply(&options, false, &list), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->context[0], "llm_int8_skip_modules"));
    options.quant.skip_modules = ".*_proj";
    assert_int_equal(tt_quantization_apply(&options, false, &list), TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message, "llm_int8_skip_modules must be a list of names");
}

/* Over 4 bits and int8 products in FP8 are those that were asked for. */
static void products_in_fp8_over_other_formats(void **state)
{
    (void)state;
    static struct tt_model_facts facts;
    struct tt_base_quant quant;
    for (int products = TT_FP8_ALL; products <= TT_FP8_SINGLE; products++) {
        bool asked = products == TT_FP8_SINGLE || products == TT_FP8_FORWARD;
        struct tt_quantization_config given = {.fp8_products = products};
        facts.stored_quant = TT_QUANT_NONE;
        assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
        assert_false(quant.recodes);
        given.load_in_4bit = true;
        assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
        assert_true(quant.recodes == asked);
        facts.stored_quant = TT_QUANT_NF4;
        assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
        assert_true(quant.recodes == asked && (int)quant.products == products);
        given = (struct tt_quantization_config){.fp8_products = products, .base_dtype = TT_BASE_FP8};
        facts.stored_quant = TT_QUANT_NONE;
        assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
        assert_false(quant.recodes);
    }
}

/* The head is quantized by its own setting, over a base in FP8 alone. */
static void head_has_a_setting(void **state)
{
    (void)state;
    static struct tt_model_facts facts;
    struct tt_base_quant quant;
    struct tt_quantization_config given = {.base_dtype = TT_BASE_FP8, .fp8_lm_head = true};
    facts.stored_quant = TT_QUANT_NONE;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    assert_true(quant.head);
    facts.stored_quant = TT_QUANT_FP8;
    given.base_dtype = TT_BASE_AUTO;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_OK);
    assert_true(quant.head);
    facts.stored_quant = TT_QUANT_INT8;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_ERR_USAGE);
    facts.stored_quant = TT_QUANT_NONE;
    given.load_in_4bit = true;
    assert_int_equal(tt_quantization_resolve(&given, &facts, TT_BF16, &quant), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "fp8_lm_head is for a base in fp8"));

    struct tt_module head = {.path = "lm_head", .kind = TT_MODULE_HEAD};
    struct tt_module_list list = {.items = &head, .count = 1};
    const char *const lists[][2] = {{NULL, NULL}, {"[\"lm_head\"]", NULL}, {NULL, "lm_head\n"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (int on = 0; on < 2; on++) {
            struct tt_model_options options = {.quant = {.type = TT_QUANT_FP8,
                                                         .head = on != 0,
                                                         .skip_modules = lists[i][0],
                                                         .plain_modules = lists[i][1]}};
            assert_int_equal(tt_quantization_apply(&options, true, &list), TT_OK);
            assert_int_equal(head.quantized, on);
        }
}

/* What the weights of a folder say replaces the list of its config.json. */
static void plain_weights_of_a_folder_are_not_quantized(void **state)
{
    (void)state;
    expect_quantized(true, "[\"gate_proj\"]", "", "xxx-");
    expect_quantized(true, NULL, "lm_head\nmodel.layers.10.mlp.gate_proj\n", "x-x-");
    expect_quantized(true, NULL, "odel.layers.1.mlp.gate_proj\nmodel.layers.10.self_attn.q_pro\n", "xxx-");
}

/* Folders name each norm of each layer. */
static void a_long_list_is_kept(void **state)
{
    enum { LAYERS = 126, EACH = 5 };
    static struct tt_model_facts facts;
    struct tt_str text = {0};
    struct tt_json json = {0};
    (void)state;
    assert_int_equal(
        tt_str_printf(&text, "{\"quantization_config\": {\"quant_method\": \"fp8\", \"ignored_layers\": ["),
        TT_OK);
    for (int i = 0; i < LAYERS * EACH; i++)
        assert_int_equal(
            tt_str_printf(&text, "\"model.layers.%d.post_attention_layernorm.%d\", ", i / EACH, i % EACH),
            TT_OK);
    assert_int_equal(tt_str_printf(&text, "\"lm_head\"]}}"), TT_OK);
    assert_int_equal(tt_json_parse(text.data, text.bytes, "config.json", &json), TT_OK);
    if (tt_quantization_read(&json, &facts) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_non_null(strstr(facts.stored_quant_skip, "lm_head"));
    tt_json_deinit(&json);
    tt_str_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_the_formats_of_their_names),
        cmocka_unit_test(bits_choose_the_width),
        cmocka_unit_test(fp8_has_two_spellings),
        cmocka_unit_test(stored_codes_decide),
        cmocka_unit_test(gate_and_up_need_fp8),
        cmocka_unit_test(head_has_a_setting),
        cmocka_unit_test(products_in_fp8_over_other_formats),
        cmocka_unit_test(skipped_names_end_where_a_name_ends),
        cmocka_unit_test(plain_weights_of_a_folder_are_not_quantized),
        cmocka_unit_test(a_long_list_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
