#include <string.h>

#include "cli/commands.h"
#include "convert/gguf.h"

struct export_command {
    const char *model, *adapter, *output_file;
    int outtype;
    bool adapter_only, overwrite;
};

enum { AUTO, PLAIN_F32, PLAIN_F16, PLAIN_BF16, MIXTURES };
#define PLAIN_WORDS "auto f32 f16 bf16"
#define MIXTURE(name, file_type, type) " " name
#define FIELD(member) .offset = offsetof(struct export_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "model_name_or_path", .aliases = "model_name model base_model", .type = TT_SETTING_STRING, FIELD(model),
     .required = true, .path = TT_PATH_HUB, .help = "Folder of the model, or of the adapter's base model."},
    {.name = "adapter_name_or_path", .aliases = "adapter adapter_path", .type = TT_SETTING_STRING, FIELD(adapter),
     .path = TT_PATH_HUB,
     .help = "PEFT adapter folder; the adapter is merged into the exported model."},
    {.name = "adapter_only", .type = TT_SETTING_BOOL, FIELD(adapter_only), .default_text = "false",
     .help = "Write the adapter alone, as a file to load beside that of its base model."},
    {.name = "output_file", .aliases = "outfile", .type = TT_SETTING_STRING, FIELD(output_file), .required = true,
     .path = TT_PATH_WRITE,
     .help = "The GGUF file to write. It becomes visible when it is complete."},
    {.name = "outtype", .type = TT_SETTING_CHOICE, FIELD(outtype), .choices = PLAIN_WORDS
#include "convert/gguf_mixtures.def"
     ,
     .synonyms = "q3_k=q3_k_m q4_k=q4_k_m q5_k=q5_k_m", .default_text = "auto",
     .only_reason = "types that need an importance matrix, as iq4_xs, are made from the file of outtype f32 by "
                    "llama.cpp: llama-quantize --imatrix MATRIX.gguf FILE.gguf SMALL.gguf IQ4_XS",
#undef MIXTURE
#define MIXTURE(name, file_type, type) ", " name
     .help = "Type of matrices: auto (theirs in the model), f32, f16, bf16"
#include "convert/gguf_mixtures.def"
             ". From q8_0 on they are quantized as by llama.cpp's llama-quantize without an importance matrix; q4_k_m "
             "and others have more bits for some tensors. Norms and biases are always f32."},
    {.name = "overwrite", .type = TT_SETTING_BOOL, FIELD(overwrite), .default_text = "false",
     .help = "Replace output_file when it exists."},
    {.name = NULL},
};
#undef MIXTURE
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"GGUF", own_settings, 0};
    return 1;
}

/* The types of the tensors and how many have each: rows that are no whole blocks have others than asked for. */
static tt_status add_types(const struct tt_gguf_report *report, struct tt_str *text)
{
    const char *between = "";
    for (int type = 0; type < TT_GGUF_TYPES; type++) {
        if (report->of_type[type] == 0) continue;
        TT_TRY(
            tt_str_printf(text, "%s%zu %s", between, report->of_type[type], tt_gguf_type_facts(type)->name));
        between = ", ";
    }
    return tt_str_printf(text, "; %.2f bits a weight\n",
                         8 * (double)report->weight_bytes / (double)report->weights);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct export_command *command = call->target;
    static const tt_dtype types[] = {
        [AUTO] = TT_DTYPE_NONE, [PLAIN_F32] = TT_F32, [PLAIN_F16] = TT_F16, [PLAIN_BF16] = TT_BF16};
    bool mixed = command->outtype >= MIXTURES;
    tt_status status = TT_OK;
    struct tt_merge merge = {0};
    struct tt_gguf_report report;
    struct tt_str text = {0};
    char bytes[32];
    struct tt_gguf_options options = {.output_file = command->output_file,
                                      .overwrite = command->overwrite,
                                      .dtype = mixed ? TT_DTYPE_NONE : types[command->outtype],
                                      .mixture =
                                          mixed ? tt_gguf_mixture_at(command->outtype - MIXTURES) : NULL,
                                      .adapter_only = command->adapter_only,
                                      .work = {.cancel = cli->cancel}};
    TT_GO(tt_merge_open(command->model, command->adapter, &merge));
    TT_GO(tt_gguf_export(&merge, &options, &report));
    TT_GO(tt_str_printf(&text, "%s: %s of architecture '%s', %zu tensors, matrices %s, %s\n",
                        command->output_file, command->adapter_only ? "LoRA adapter" : "model",
                        report.architecture, report.tensors,
                        mixed ? options.mixture->name : tt_dtype_torch_name(report.dtype),
                        tt_format_bytes((double)report.bytes, bytes, sizeof bytes)));
    if (mixed) TT_GO(add_types(&report, &text));
    TT_GO(tt_report_print_wrapped(cli->report, tt_str_text(&text), 2));
out:
    tt_str_deinit(&text);
    tt_merge_close(&merge);
    return status;
}

/* Words that a user may take for a format, and the command or the flag that makes it. */
static const char *find_way(const char *word)
{
    static const struct {
        const char *words, *way;
    } ways[] = {
        {"lora adapter peft",
         "the adapter alone: trimtab export gguf --adapter_only true with --model_name_or_path, "
         "--adapter_name_or_path and --output_file; a PEFT folder is what train writes"},
        {"merged hf safetensors huggingface model", "one plain model folder: trimtab merge"},
        {"fp8 int8 nf4 bnb 4bit 8bit bitsandbytes compressed-tensors quantized",
         "a quantized model folder: trimtab quantize"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (tt_starts_with_one_of(word, ways[i].words)) return ways[i].way;
    return NULL;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = 1;
    if (argc >= 1 && strcmp(argv[0], "gguf") == 0) return TT_OK;
    bool none = argc < 1 || argv[0][0] == '-';
    const char *way = none ? NULL : find_way(argv[0]);
    tt_status status = none ? tt_fail(TT_ERR_USAGE, "export needs a format, before its flags")
                            : tt_fail(TT_ERR_USAGE, "there is no format '%.60s'", argv[0]);
    if (way != NULL)
        tt_hint("%s", way);
    else
        tt_hint("trimtab export gguf --model_name_or_path FOLDER --output_file FILE.gguf");
    return status;
}

const struct tt_command_ops tt_cmd_export = {
    .usage = " gguf --model_name_or_path FOLDER [--adapter_name_or_path FOLDER [--adapter_only]] "
             "--output_file FILE.gguf [--outtype f16]",
    .sections = list_sections,
    .target_bytes = sizeof(struct export_command),
    .parse_words = parse_words,
    .run = run,
};
