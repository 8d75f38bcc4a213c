/* Which weights of the base are stored quantized, and how: QLoRA's 4 bits (Dettmers et al., arXiv 2305.14314)
 * and rows of int8, told in bitsandbytes' words or found in the folder's config.json. Names of settings:
 * transformers' BitsAndBytesConfig and TRL's ModelConfig; the defaults are TRL's, because those of
 * BitsAndBytesConfig (fp4, computing in float32) are not what QLoRA means.
 *
 * Every linear of the layers is quantized, unless it trains or llm_int8_skip_modules names it: a name matches
 * at the beginning or the end of a module's path, as in transformers. lm_head and the embeddings stay. */
#ifndef TT_MODEL_QUANTIZATION_H
#define TT_MODEL_QUANTIZATION_H

#include "base/json.h"
#include "config/settings.h"
#include "model/module.h"

/* As given; the rows that fill it: tt_quantization_settings. */
struct tt_quantization_config {
    bool load_in_4bit, load_in_8bit;
    enum { TT_4BIT_NF4, TT_4BIT_FP4 } quant_type;
    bool use_double_quant;
    const char *compute_dtype; /* NULL: the type that computes */
    const char *skip_modules;  /* NULL or JSON */
};
extern const struct tt_setting tt_quantization_settings[];

/* What goes together: TT_ERR_USAGE for both widths at once, or another compute type than the run's. */
TT_MUST_USE tt_status tt_quantization_check(const struct tt_quantization_config *given, tt_dtype compute);
/* What is in force: a folder that is quantized already stays as it is (TT_ERR_USAGE when the settings ask for
 * another width). The text of skip_modules is borrowed from either. */
TT_MUST_USE tt_status tt_quantization_resolve(const struct tt_quantization_config *given,
                                              const struct tt_model_config *model, tt_dtype compute,
                                              struct tt_base_quant *out);
/* Reads quantization_config of a config.json; TT_ERR_UNSUPPORTED for other methods than bitsandbytes. */
TT_MUST_USE tt_status tt_quantization_read(const struct tt_json *json, struct tt_model_config *config);
/* Sets `quantized` of the modules. `stored`: the folder says so, so a name may match nothing. */
TT_MUST_USE tt_status tt_quantization_apply(const struct tt_model_options *options, bool stored,
                                            struct tt_module_list *modules);
/* "4-bit base: nf4 in blocks of 64, double quantization, computes in bfloat16": what is in force. Nothing
 * when nothing is quantized. */
TT_MUST_USE tt_status tt_quantization_describe(const struct tt_model *model, struct tt_str *text);
TT_MUST_USE tt_status tt_quantization_say(const struct tt_model *model); /* the same as a message */

#endif
