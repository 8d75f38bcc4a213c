/* Settings of quantization and the table of formats: a word of bnb_4bit_quant_type is the format of that name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_the_formats_of_their_names),
        cmocka_unit_test(bits_choose_the_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
