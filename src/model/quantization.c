#include "model/quantization.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "io/coded_experts.h"
#include "io/quantized.h"
#include "model/pattern.h"
#include "tensor/format.h"

static const char stored_regex[] = "re:", weight_end[] = ".weight";

#define FIELD(member) .offset = offsetof(struct tt_quantization_config, member)

/* One row is one paragraph. */
/* clang-format off */
const struct tt_setting tt_quantization_settings[] = {
    {.name = "load_in_4bit", .aliases = "_load_in_4bit", .type = TT_SETTING_BOOL, FIELD(load_in_4bit),
     .default_text = "false", .of = "language",
     .help = "Store the frozen linears in 4 bits (QLoRA), quantized during loading."},
    {.name = "load_in_8bit", .aliases = "_load_in_8bit", .type = TT_SETTING_BOOL, FIELD(load_in_8bit),
     .default_text = "false", .of = "language", .help = "Store the frozen linears as int8 with one scale a row."},
    {.name = "bnb_4bit_quant_type", .type = TT_SETTING_CHOICE, FIELD(quant_type),
     .default_text = TT_FORMAT_4BIT_DEFAULT, .choices = TT_FORMATS_4BIT, .of = "language", .needs = "load_in_4bit",
     .help = "Table of the sixteen values of 4 bits."},
    {.name = "bnb_4bit_use_double_quant", .aliases = "use_bnb_nested_quant", .type = TT_SETTING_BOOL,
     FIELD(use_double_quant), .default_text = "false", .of = "language", .needs = "load_in_4bit",
     .help = "Store the scales of 4 bits in 8 bits: 4.13 instead of 4.5 bits a weight."},
    {.name = "bnb_4bit_compute_dtype", .type = TT_SETTING_STRING, FIELD(compute_dtype),
     .choices = "bfloat16 float32 float16", .of = "language", .needs = "load_in_4bit",
     .help = "Compute type of the quantized linears; must be that of the run, which bf16 sets; float16 is "
             "bfloat16."},
    {.name = "quantize_moe_experts", .type = TT_SETTING_BOOL, FIELD(experts), .default_text = "false",
     .changes = TT_CHANGES_RESULT_IF_SET, .of = "language",
     .needs = "load_in_4bit load_in_8bit load_in_fp8 base_dtype=fp8",
     .help = "Quantize the matrices of experts too (Axolotl's name). transformers leaves them as they are, and so does "
             "false."},
    {.name = "llm_int8_skip_modules", .type = TT_SETTING_JSON, FIELD(skip_modules),
     .of = "language", .needs = "load_in_4bit load_in_8bit load_in_fp8 base_dtype=fp8 fp8_blocks=rows",
     .help = "Names of linears that are not quantized; the embeddings never are, and lm_head only with fp8_lm_head."},
    {.name = "base_dtype", .type = TT_SETTING_CHOICE, FIELD(base_dtype), .default_text = "auto",
     .choices = "auto fp8", .of = "language",
     .help = "Storage of the frozen linears: fp8 is E4M3 with one scale a row, quantized during loading and multiplied "
             "as it is, with activations and gradients quantized by rows."},
    {.name = "load_in_fp8", .type = TT_SETTING_BOOL, FIELD(load_in_fp8), .default_text = "false", .of = "language",
     .help = "The same as base_dtype fp8 (Unsloth's spelling)."},
    {.name = "fp8_products", .type = TT_SETTING_CHOICE, FIELD(fp8_products), .default_text = "all",
     .choices = "all forward none single", .of = "language",
     .help = "Products in FP8 over an fp8 base: all keeps a transposed copy of each weight for the gradients of "
             "inputs; single has one copy and transposes its codes for these, in half of the memory; forward decodes "
             "it for these; none decodes for all, on any device. Over 4 bits and int8 single and forward quantize each "
             "decoded weight to FP8 for its products; all and none multiply it in the compute type."},
    {.name = "fp8_blocks", .type = TT_SETTING_CHOICE, FIELD(fp8_blocks), .default_text = "keep",
     .choices = "keep rows", .of = "language",
     .help = "A folder in FP8 with scales of 128 x 128 weights: keep has them as stored, multiplied in the compute "
             "type with activations rounded as a server does (fp8_products none: not rounded); rows quantizes anew, "
             "with a scale a row, for products in FP8."},
    {.name = "fp8_gate_up", .type = TT_SETTING_CHOICE, FIELD(fp8_gate_up), .default_text = "bf16",
     .choices = "bf16 e4m3", .of = "language",
     .help = "What a training over an fp8 base keeps of gate and up for backward: bf16 as computed; e4m3 in FP8 with a "
             "scale a row, in half of the memory (activation_func_fp8_input_store of Megatron-Core)."},
    {.name = "fp8_lm_head", .type = TT_SETTING_BOOL, FIELD(fp8_lm_head), .default_text = "false", .of = "language",
     .help = "Over an fp8 base: quantize lm_head too, with a scale a row, and multiply it in FP8. Only where it is not "
             "the table of the embeddings."},
    {.name = "quantization_config", .type = TT_SETTING_JSON, .offset = TT_SETTING_NO_FIELD,
     .spread = "load_in_ _load_in_ bnb_4bit_ llm_int8_ quant_method", .transient = true,
     .help = "The settings of this group as one mapping, as in BitsAndBytesConfig."},
    {.name = NULL},
};
/* clang-format on */

static bool wants_fp8(const struct tt_quantization_config *given)
{
    return given->load_in_fp8 || given->base_dtype == TT_BASE_FP8;
}

static const char *fp8_name(const struct tt_quantization_config *given)
{
    return given->load_in_fp8 ? "load_in_fp8" : "base_dtype fp8";
}

tt_status tt_quantization_check(const struct tt_quantization_config *given, tt_dtype compute)
{
    if (given->load_in_4bit && given->load_in_8bit) {
        tt_status status = tt_fail(TT_ERR_USAGE, "load_in_4bit and load_in_8bit are both on");
        tt_hint("set one of them; load_in_4bit is QLoRA");
        return status;
    }
    if (wants_fp8(given) && (given->load_in_4bit || given->load_in_8bit)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "%s and %s are both on", fp8_name(given),
                                   given->load_in_4bit ? "load_in_4bit" : "load_in_8bit");
        tt_hint("set one of them: fp8 is the fastest on GPUs that have it, 4 bits are the smallest");
        return status;
    }
    if (given->compute_dtype == NULL || !given->load_in_4bit) return TT_OK;
    if (strcmp(given->compute_dtype, tt_dtype_torch_name(compute)) == 0) return TT_OK;
    if (strcmp(given->compute_dtype, "float16") == 0 && compute == TT_BF16) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "bnb_4bit_compute_dtype is %s, but the run computes in %s",
                               given->compute_dtype, tt_dtype_torch_name(compute));
    tt_hint("the quantized linears compute in the type of all others: leave it out, or set bf16 to %s",
            compute == TT_BF16 ? "false" : "true");
    return status;
}

static bool is_4bit(enum tt_quant_type type)
{
    return type != TT_QUANT_NONE && tt_weight_format(type)->load_bits == 4;
}

/* Refuses options that only a base in FP8 has. */
static tt_status check_fp8_options(const struct tt_base_quant *quant)
{
    const char *what = quant->head                         ? "fp8_lm_head"
                       : quant->gate_up == TT_GATE_UP_E4M3 ? "fp8_gate_up e4m3"
                                                           : NULL;
    if (what == NULL || tt_quant_multiplies(quant->type)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "%s is for a base in fp8, and this one is not", what);
    tt_hint("set base_dtype fp8, or leave %s out", quant->head ? "fp8_lm_head" : "fp8_gate_up");
    return status;
}

/* Warns of options that act on some folders only. */
static void warn_of_fp8(const struct tt_quantization_config *given, const struct tt_model_facts *model,
                        const struct tt_base_quant *quant)
{
    if (given->fp8_products != TT_FP8_ALL && quant->type == TT_QUANT_NONE)
        tt_warn("fp8_products has no effect: the base is not quantized (base_dtype fp8 quantizes it)");
    if (given->fp8_blocks != TT_FP8_BLOCKS_KEEP && !model->stored_fp8_blocks)
        tt_warn("fp8_blocks has no effect: the folder has no weights in FP8 with scales of 128 x 128");
}

/* Products over 4 bits and int8 are in FP8 only when asked for: the default `all` would need two more copies. */
static bool recodes(const struct tt_base_quant *quant)
{
    return quant->type != TT_QUANT_NONE && !tt_quant_multiplies(quant->type) &&
           (quant->products == TT_FP8_SINGLE || quant->products == TT_FP8_FORWARD);
}

tt_status tt_quantization_resolve(const struct tt_quantization_config *given,
                                  const struct tt_model_facts *model, tt_dtype compute,
                                  struct tt_base_quant *out)
{
    TT_TRY(tt_quantization_check(given, compute));
    enum tt_quant_type stored = model->stored_quant;
    if (stored != TT_QUANT_NONE) {
        int bits = tt_weight_format(stored)->load_bits;
        bool other = (given->load_in_4bit && bits != 4) || (given->load_in_8bit && bits != 8) ||
                     (wants_fp8(given) && !tt_quant_multiplies(stored));
        if (other) {
            tt_status status =
                tt_fail(TT_ERR_USAGE, "the weights of this model are %s already", tt_quant_type_name(stored));
            tt_hint("leave out load_in_4bit, load_in_8bit and base_dtype, or use the folder of the original "
                    "weights");
            return status;
        }
        if (given->skip_modules != NULL)
            tt_warn("llm_int8_skip_modules is not used: the weights of this model are %s already",
                    tt_quant_type_name(stored));
        *out = (struct tt_base_quant){
            .type = stored,
            .nested = model->stored_quant_nested,
            .products = (enum tt_fp8_products)given->fp8_products,
            .gate_up = (enum tt_fp8_gate_up)given->fp8_gate_up,
            .blocks = model->stored_fp8_blocks && given->fp8_blocks == TT_FP8_BLOCKS_KEEP,
            .powers = model->stored_fp8_powers,
            .head = given->fp8_lm_head,
            .experts = given->experts,
            .skip_modules = model->stored_quant_skip[0] != '\0' ? model->stored_quant_skip : NULL,
            .plain_modules = model->stored_plain,
        };
        out->recodes = recodes(out);
        warn_of_fp8(given, model, out);
        return check_fp8_options(out);
    }
    *out = (struct tt_base_quant){.skip_modules = given->skip_modules};
    out->products = (enum tt_fp8_products)given->fp8_products;
    out->gate_up = (enum tt_fp8_gate_up)given->fp8_gate_up;
    out->head = given->fp8_lm_head;
    if (given->load_in_8bit) out->type = tt_format_of_width(8, 0);
    if (wants_fp8(given)) out->type = TT_QUANT_FP8;
    if (given->load_in_4bit) {
        out->type = tt_format_of_width(4, given->quant_type);
        out->nested = given->use_double_quant;
    }
    out->experts = given->experts && out->type != TT_QUANT_NONE;
    out->recodes = recodes(out);
    warn_of_fp8(given, model, out);
    return check_fp8_options(out);
}

/* The list with the names of the folder's class, as an older version may spell them. Expressions stay. */
static tt_status write_skip(const struct tt_json_value *list, const struct tt_text_part *part,
                            struct tt_str *text)
{
    struct tt_arena arena = {0};
    if (part == NULL) return tt_json_write(list, 0, false, text);
    struct tt_json_value *renamed = tt_json_new_list();
    tt_status status = TT_OK;
    for (size_t i = 0; i < tt_json_count(list) && status == TT_OK; i++) {
        const char *entry = tt_json_text(tt_json_at(list, i));
        const char *name = entry != NULL ? tt_text_part_name(part, entry, &arena) : "";
        if (name == NULL || tt_json_append(renamed, tt_json_new_string(name)) != 0) status = TT_ERR_MEMORY;
    }
    if (status == TT_OK) status = tt_json_write(renamed, 0, false, text);
    tt_json_release(renamed);
    tt_arena_deinit(&arena);
    return status;
}

/* The names as a JSON list. */
static tt_status keep_skip(const struct tt_json *json, const struct tt_quantized_config *stored,
                           struct tt_model_facts *config)
{
    struct tt_str text = {0};
    if (stored->skip_list == NULL) return TT_OK;
    tt_status status = write_skip(stored->skip_list, config->part, &text);
    if (status == TT_OK && text.bytes >= sizeof config->stored_quant_skip)
        status = tt_fail(TT_ERR_UNSUPPORTED,
                         "%s: the list of modules that are not quantized is longer than %d bytes",
                         json->origin, TT_MODEL_SKIP_BYTES - 1);
    if (status == TT_OK)
        (void)snprintf(config->stored_quant_skip, sizeof config->stored_quant_skip, "%s", tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

tt_status tt_quantization_read(const struct tt_json *json, struct tt_model_facts *config)
{
    struct tt_quantized_config stored;
    TT_TRY(tt_quantized_config_read(json, &stored));
    config->stored_quant = stored.type;
    config->stored_quant_nested = stored.nested;
    if (stored.mxfp4) config->stored_experts = tt_quant_format_make(TT_QUANT_MXFP4, true);
    config->stored_fp8_blocks = stored.fp8_blocks;
    config->stored_fp8_powers = stored.fp8_powers;
    return keep_skip(json, &stored, config);
}

/* The format of the matrices of experts, where it is one for all of them. */
static tt_status inspect_experts(const struct tt_model_folder *folder, struct tt_model_facts *facts)
{
    struct tt_quant_layout layout;
    bool first = true;
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const struct tt_safetensors_entry *entry = tt_model_folder_tensor(folder, i);
        /* a short convolution has [columns, 1, taps] */
        if (entry->rank != 3 || entry->dims[1] == 1) continue;
        TT_TRY(tt_model_folder_coded(folder, entry, &layout));
        const struct tt_quant_format *format = &layout.format, *all = &facts->stored_experts;
        if (first && layout.bytes > 0) facts->stored_experts = *format;
        if (layout.bytes == 0 || format->type != all->type || format->block != all->block) {
            facts->stored_experts.type = TT_QUANT_NONE;
            return TT_OK;
        }
        first = false;
    }
    return TT_OK;
}

tt_status tt_quantization_inspect(const struct tt_model_folder *folder, struct tt_arena *arena,
                                  struct tt_model_facts *facts)
{
    struct tt_str plain = {0};
    tt_status status = TT_OK;
    if (tt_model_folder_has_weights(folder) && !tt_model_folder_has_mxfp4(folder) &&
        facts->stored_experts.type == TT_QUANT_MXFP4)
        facts->stored_experts.type = TT_QUANT_NONE; /* config.json was kept when they were decoded */
    if (tt_model_folder_has_weights(folder) && facts->stored_quant != TT_QUANT_NONE)
        TT_TRY(inspect_experts(folder, facts));
    if (!tt_quant_is_compressed(facts->stored_quant) || !tt_model_folder_has_weights(folder)) return TT_OK;
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const char *name = tt_model_folder_tensor_name(folder, i);
        struct tt_quantized tensor;
        if (!tt_ends_with(name, weight_end)) continue;
        TT_GO(tt_quantized_find(folder, name, &tensor));
        bool coded = tensor.layout.format.type != TT_QUANT_NONE;
        if (coded && tensor.scales == TT_FP8_BLOCK_SCALES) facts->stored_fp8_blocks = true;
        if (!coded && tt_model_folder_tensor(folder, i)->dtype != TT_F8_E4M3)
            TT_GO(tt_str_printf(&plain, "%.*s\n", (int)(strlen(name) - strlen(weight_end)), name));
    }
    facts->stored_plain = tt_arena_strdup(arena, tt_str_text(&plain));
    if (facts->stored_plain == NULL) status = TT_ERR_MEMORY;
out:
    tt_str_deinit(&plain);
    return status;
}

/* An entry of the list as an expression for whole paths. As should_convert_module of transformers
 * (quantizers/quantizers_utils.py, 5.24) reads it, it matches from the beginning up to the border of a name; one of
 * compressed-tensors, "re:EXPRESSION", matches any beginning, as Python's re.match. */
static tt_status compile_entry(const char *entry, bool stored, struct tt_regex **out)
{
    bool any_beginning = stored && tt_starts_with(entry, stored_regex);
    struct tt_str whole = {0};
    tt_status status = tt_str_printf(&whole, "(?:%s)%s.*", entry + (any_beginning ? strlen(stored_regex) : 0),
                                     any_beginning ? "" : "(?:(?<=\\.)|(?=\\.|$))");
    if (status == TT_OK) status = tt_regex_compile(tt_str_text(&whole), out);
    tt_str_deinit(&whole);
    return status;
}

/* Clears `quantized` of the modules that the entry names; it also names those whose paths end with it. */
static tt_status skip_entry(const char *entry, bool stored, struct tt_module_list *modules, bool *used)
{
    struct tt_regex *regex = NULL;
    tt_status status = TT_OK;
    if (*entry == '\0') return TT_OK;
    TT_GO(compile_entry(entry, stored, &regex));
    for (size_t i = 0; i < modules->count; i++) {
        struct tt_module *module = &modules->items[i];
        bool named = tt_ends_with(module->path, entry);
        if (!named) TT_GO(tt_regex_fullmatch(regex, module->path, &named));
        if (!named) continue;
        *used = true;
        module->quantized = false;
    }
out:
    if (status != TT_OK)
        tt_while("reading %s", stored ? "the modules that the folder's config.json does not quantize"
                                      : "llm_int8_skip_modules");
    tt_regex_destroy(regex);
    return status;
}

/* lm_head is no name of the list: its own setting decides. */
static void mark_head(bool quantized, struct tt_module_list *modules)
{
    for (size_t i = 0; i < modules->count; i++)
        if (modules->items[i].kind == TT_MODULE_HEAD) modules->items[i].quantized = quantized;
}

static tt_status mark(struct tt_name_pattern *skip, bool stored, bool experts, struct tt_module_list *modules)
{
    for (size_t i = 0; i < modules->count; i++) {
        struct tt_module *module = &modules->items[i];
        module->quantized = (module->kind == TT_MODULE_LINEAR && (stored || !module->plain)) ||
                            (experts && tt_module_is_of_experts(module));
    }
    for (size_t e = 0; e < skip->count; e++)
        TT_TRY(skip_entry(tt_name_pattern_entry(skip, e), stored, modules, &skip->used[e]));
    for (size_t e = 0; e < skip->count && !stored; e++) {
        if (skip->used[e]) continue;
        tt_status status =
            tt_fail(TT_ERR_USAGE, "llm_int8_skip_modules: '%s' matches no module of this model",
                    tt_name_pattern_entry(skip, e));
        tt_hint("a name is the beginning or the end of a path such as '%s'", tt_module_example(modules));
        return status;
    }
    return TT_OK;
}

/* Whether `path` is a line of `names`. */
static bool has_line(const char *names, const char *path)
{
    size_t bytes = strlen(path);
    for (const char *at = names; (at = strstr(at, path)) != NULL; at++)
        if ((at == names || at[-1] == '\n') && at[bytes] == '\n') return true;
    return false;
}

static tt_status check_experts(const struct tt_module_list *modules)
{
    for (size_t i = 0; i < modules->count; i++)
        if (tt_module_is_of_experts(&modules->items[i])) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "quantize_moe_experts is set, and this model has no experts");
    tt_hint("leave it out: the linears are quantized without it");
    return status;
}

tt_status tt_quantization_apply(const struct tt_model_options *options, bool stored,
                                struct tt_module_list *modules)
{
    struct tt_name_pattern skip = {0};
    if (options->quant.type == TT_QUANT_NONE) return TT_OK;
    if (options->train_base) {
        tt_status status = tt_fail(TT_ERR_USAGE, "a quantized base cannot train");
        tt_hint("train an adapter over it: use_peft true");
        return status;
    }
    if (options->quant.experts) TT_TRY(check_experts(modules));
    if (options->quant.plain_modules != NULL) {
        for (size_t i = 0; i < modules->count; i++) {
            struct tt_module *module = &modules->items[i];
            module->quantized =
                (module->kind == TT_MODULE_LINEAR && !has_line(options->quant.plain_modules, module->path)) ||
                (options->quant.experts && tt_module_is_of_experts(module));
        }
        mark_head(options->quant.head, modules);
        return TT_OK;
    }
    tt_status status =
        tt_name_pattern_init(&skip, "llm_int8_skip_modules", options->quant.skip_modules, TT_NAMES_AS_LIST);
    if (status == TT_OK) status = mark(&skip, stored, options->quant.experts, modules);
    if (status == TT_OK) mark_head(options->quant.head, modules);
    tt_name_pattern_deinit(&skip);
    return status;
}

struct sums {
    int64_t matrices;
    double weights, bytes;
};

static double bits_of(const struct sums *sums)
{
    return sums->weights > 0 ? 8.0 * sums->bytes / sums->weights : 0.0;
}

/* Sums of the base, and of experts in the folder's own format. */
static void add_sums(const struct tt_model *model, struct sums *base, struct sums *experts)
{
    const struct tt_base_quant *quant = &model->options.quant;
    *base = *experts = (struct sums){0};
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        if (!tt_param_is_quantized(param) || param->transposed_of != NULL) continue;
        bool own = param->rank == 3 && !quant->experts;
        struct sums *sums = own ? experts : base;
        sums->matrices++;
        sums->weights += (double)tt_param_count(param);
        sums->bytes += (double)param->quant.bytes;
    }
}

static tt_status describe_base(const struct tt_model *model, const struct sums *sums, struct tt_str *text)
{
    static const char *const products[] = {", products in fp8", ", forward products in fp8", "",
                                           ", products in fp8 with one copy"};
    const struct tt_base_quant *quant = &model->options.quant;
    if (is_4bit(quant->type))
        TT_TRY(tt_str_printf(text, "4-bit base: %s in blocks of %d, %s", tt_quant_type_name(quant->type),
                             TT_QUANT_BLOCK, quant->nested ? "double quantization" : "scales in float32"));
    else if (quant->blocks)
        TT_TRY(tt_str_printf(
            text, "8-bit base: %s with a scale for 128 x 128 weights%s", tt_quant_type_name(quant->type),
            quant->products == TT_FP8_NONE ? ""
            : quant->powers                ? ", activations rounded to fp8 in groups of 128 by powers of two"
                                           : ", activations rounded to fp8 in groups of 128"));
    else
        TT_TRY(tt_str_printf(text, "8-bit base: %s with a scale a row%s", tt_quant_type_name(quant->type),
                             tt_quant_multiplies(quant->type) ? products[quant->products] : ""));
    if (quant->head) TT_TRY(tt_str_printf(text, ", lm_head too"));
    if (quant->experts) TT_TRY(tt_str_printf(text, ", experts too"));
    if (quant->recodes) TT_TRY(tt_str_printf(text, "%s", products[quant->products]));
    if (quant->gate_up == TT_GATE_UP_E4M3) TT_TRY(tt_str_printf(text, ", gate and up kept in fp8"));
    const char *source = "";
    if (model->facts.stored_fp8_blocks && !quant->blocks)
        source = ", quantized anew by rows from the folder's blocks of 128 x 128";
    else if (model->facts.stored_quant != TT_QUANT_NONE)
        source = ", as the folder has them";
    return tt_str_printf(text, ", computes in %s: %lld matrices, %.2f bits a weight%s",
                         tt_dtype_torch_name(model->options.compute_dtype), (long long)sums->matrices,
                         bits_of(sums), source);
}

tt_status tt_quantization_describe(const struct tt_model *model, struct tt_str *text)
{
    struct sums base, experts;
    bool quantizes = model->options.quant.type != TT_QUANT_NONE;
    add_sums(model, &base, &experts);
    if (quantizes) TT_TRY(describe_base(model, &base, text));
    if (experts.matrices == 0) return TT_OK;
    return tt_str_printf(text, "%sexperts: %s as the folder has them, decoded to %s: %.2f bits a weight",
                         quantizes ? "; " : "", tt_quant_type_name(model->facts.stored_experts.type),
                         tt_dtype_torch_name(model->options.compute_dtype), bits_of(&experts));
}

tt_status tt_quantization_report(const struct tt_model *model)
{
    struct tt_str text = {0};
    tt_status status = tt_quantization_describe(model, &text);
    if (status == TT_OK && text.bytes > 0) tt_info("%s", tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}
