/* Quantized storage of the base: QLoRA's 4 bits (Dettmers et al., arXiv 2305.14314) and rows of int8, selected by
 * bitsandbytes' settings or by the folder's config.json; FP8, selected by base_dtype (docs/fp8.md). Names of settings:
 * transformers' BitsAndBytesConfig and TRL's ModelConfig; the defaults are TRL's, because those of BitsAndBytesConfig
 * (fp4, computing in float32) are not QLoRA.
 *
 * Every linear of the layers is quantized, unless it is trainable or llm_int8_skip_modules names it: a name matches the
 * end of a module's path, or as an expression its beginning up to the border of a name, as in transformers. Of a
 * folder in FP8 those are quantized whose weights have scales. The embeddings are not quantized, and lm_head is
 * where the options say so (head). */
#ifndef TT_MODEL_QUANTIZATION_H
#define TT_MODEL_QUANTIZATION_H

#include "base/json.h"
#include "config/settings.h"
#include "io/model_folder.h"
#include "model/module.h"

/* bnb_4bit_quant_type: the formats of 4 bits in the order of tensor/formats.def, and the default, which is TRL's. */
#define TT_FORMATS_4BIT "nf4 fp4"
#define TT_FORMAT_4BIT_DEFAULT "nf4"

enum { TT_BASE_AUTO, TT_BASE_FP8 };
enum { TT_FP8_BLOCKS_KEEP, TT_FP8_BLOCKS_ROWS };

/* The settings as given; table rows: tt_quantization_settings. */
struct tt_quantization_config {
    bool load_in_4bit, load_in_8bit, load_in_fp8;
    int base_dtype;   /* TT_BASE_AUTO, TT_BASE_FP8 */
    int fp8_products; /* enum tt_fp8_products */
    int fp8_gate_up;  /* enum tt_fp8_gate_up */
    int fp8_blocks;   /* TT_FP8_BLOCKS_KEEP, TT_FP8_BLOCKS_ROWS */
    bool fp8_lm_head;
    bool experts;   /* matrices of experts too */
    int quant_type; /* its place among the formats of 4 bits (tt_format_of_width) */
    bool use_double_quant;
    const char *compute_dtype; /* NULL: the compute type of the run */
    const char *skip_modules;  /* NULL or JSON */
};
extern const struct tt_setting tt_quantization_settings[];

/* TT_ERR_USAGE for two formats at once, or another compute type than the run's; float16 is
 * computed in bfloat16. */
TT_MUST_USE tt_status tt_quantization_check(const struct tt_quantization_config *given, tt_dtype compute);
/* Resolves the format: that of a quantized folder (TT_ERR_USAGE when the settings request another width), or that of
 * the settings. The text of skip_modules is borrowed from either. */
TT_MUST_USE tt_status tt_quantization_resolve(const struct tt_quantization_config *given,
                                              const struct tt_model_facts *model, tt_dtype compute,
                                              struct tt_base_quant *out);
/* Parses quantization_config of a config.json (io/quantized.h). */
TT_MUST_USE tt_status tt_quantization_read(const struct tt_json *json, struct tt_model_facts *config);
/* Reads from the weights of a folder in FP8 the facts that its config.json may omit: the modules without scales
 * (transformers does not quantize matrices that its blocks do not divide; config_groups may name targets), and whether
 * scales are of blocks. The list of these modules, a line each, is in `arena`. No effect on other folders, and on a
 * folder without weights. */
TT_MUST_USE tt_status tt_quantization_inspect(const struct tt_model_folder *folder, struct tt_arena *arena,
                                              struct tt_model_facts *facts);
/* Sets `quantized` of the modules. `stored`: the names are from the folder, so a name may match nothing. */
TT_MUST_USE tt_status tt_quantization_apply(const struct tt_model_options *options, bool stored,
                                            struct tt_module_list *modules);
/* Appends "4-bit base: nf4 in blocks of 64, double quantization, computes in bfloat16"; nothing without
 * quantization. */
TT_MUST_USE tt_status tt_quantization_describe(const struct tt_model *model, struct tt_str *text);
TT_MUST_USE tt_status tt_quantization_report(const struct tt_model *model); /* the same as a message */

#endif
