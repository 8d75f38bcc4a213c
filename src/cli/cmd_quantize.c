#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/name_index.h"
#include "checkpoint/unread.h"
#include "cli/commands.h"
#include "convert/quantized_folder.h"
#include "model/module.h"
#include "model/pattern.h"
#include "model/quantization.h"
#include "tensor/format.h"

struct quantize_command {
    const char *model, *output_dir, *compute_dtype, *storage, *skip_modules;
    bool load_in_8bit, double_quant, experts, overwrite, json;
    int to; /* 0: what the settings of bitsandbytes name; else enum tt_quant_type, in the order of formats.def */
    int quant_type; /* its place among the formats of 4 bits (tt_format_of_width) */
    size_t max_shard_bytes;
};

#define FIELD(member) .offset = offsetof(struct quantize_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "model_name_or_path", .aliases = "model_name model", .type = TT_SETTING_STRING, FIELD(model),
     .required = true, .path = TT_PATH_HUB, .help = "Folder of the model in bfloat16, float16 or float32."},
    {.name = "output_dir", .type = TT_SETTING_STRING, FIELD(output_dir), .required = true, .path = TT_PATH_WRITE,
     .help = "Folder for the quantized model. It becomes visible when it is complete."},
    {.name = "to", .type = TT_SETTING_CHOICE, FIELD(to), .default_text = "auto",
     .choices = "auto nf4 fp4 int8 fp8",
     .help = "Format: fp8 is that of compressed-tensors (E4M3, one scale a row), the others are those of bitsandbytes; "
             "auto: what load_in_8bit and bnb_4bit_quant_type name."},
    {.name = "bnb_4bit_quant_type", .type = TT_SETTING_CHOICE, FIELD(quant_type),
     .default_text = TT_FORMAT_4BIT_DEFAULT, .choices = TT_FORMATS_4BIT, .needs = "!load_in_8bit",
     .help = "The sixteen values that 4 bits stand for."},
    {.name = "bnb_4bit_use_double_quant", .aliases = "use_bnb_nested_quant", .type = TT_SETTING_BOOL,
     FIELD(double_quant), .default_text = "false", .needs = "!load_in_8bit",
     .help = "Store the scales of 4-bit weights in 8 bits: 4.13 instead of 4.5 bits a weight."},
    {.name = "bnb_4bit_compute_dtype", .type = TT_SETTING_STRING, FIELD(compute_dtype), .default_text = "bfloat16",
     .choices = "bfloat16 float32 float16", .needs = "!load_in_8bit+!to=int8+!to=fp8",
     .help = "Written into config.json: the type that transformers computes in."},
    {.name = "bnb_4bit_quant_storage", .type = TT_SETTING_STRING, FIELD(storage), .default_text = "uint8",
     .choices = "uint8 bfloat16 float16 float32", .needs = "!load_in_8bit+!to=int8+!to=fp8",
     .help = "Type by which the files declare the bytes of the codes; PyTorch's FSDP needs that of the other "
             "weights."},
    {.name = "load_in_8bit", .type = TT_SETTING_BOOL, FIELD(load_in_8bit), .default_text = "false",
     .help = "8 bits with one scale a row instead of 4 bits."},
    {.name = "quantize_moe_experts", .type = TT_SETTING_BOOL, FIELD(experts), .default_text = "false",
     .help = "Quantize the matrices of experts too, where the folder has one for each linear of each expert."},
    {.name = "llm_int8_skip_modules", .type = TT_SETTING_JSON, FIELD(skip_modules),
     .help = "Names of linears that are not quantized; lm_head and the embeddings never are."},
    {.name = "max_shard_size", .type = TT_SETTING_BYTES, FIELD(max_shard_bytes), .default_text = "50GB",
     .help = "Largest size of one weights file."},
    {.name = "overwrite_output_dir", .type = TT_SETTING_BOOL, FIELD(overwrite), .default_text = "false",
     .help = "Replace all of an output_dir that is not empty."},
    {.name = "json", .type = TT_SETTING_BOOL, FIELD(json), .default_text = "false",
     .help = "Print the sizes and errors as one JSON object."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Quantize", own_settings, 0};
    return 1;
}

/* Root mean square of the quantization error, relative to that of the weights. */
static double relative(const struct tt_quantize_error *error)
{
    return error->squares > 0 ? sqrt(error->errors / error->squares) : 0.0;
}

static tt_status write_text(struct tt_str *text, const struct tt_quantize_report *report, const char *what,
                            const char *folder)
{
    char before[32], after[32];
    TT_TRY(
        tt_str_printf(text, "%-24s %8s %16s %15s\n", "weights", "tensors", "parameters", "relative error"));
    for (int k = 0; k < report->kind_count; k++) {
        const struct tt_quantize_error *error = &report->kinds[k].error;
        TT_TRY(tt_str_printf(text, "%-24s %8lld %16lld %15.3e\n", report->kinds[k].name,
                             (long long)error->tensors, (long long)error->count, relative(error)));
    }
    TT_TRY(tt_str_printf(text, "%-24s %8lld %16lld %15.3e\n", "all quantized weights",
                         (long long)report->total.tensors, (long long)report->total.count,
                         relative(&report->total)));
    return tt_str_printf(text, "%s: %s of tensors became %s, in %zu file%s in '%s'\n", what,
                         tt_format_bytes((double)report->bytes_before, before, sizeof before),
                         tt_format_bytes((double)report->bytes_after, after, sizeof after), report->files,
                         report->files == 1 ? "" : "s", folder);
}

static struct tt_json_value *error_to_json(const struct tt_quantize_error *error)
{
    return tt_json_pack("{s:I,s:I,s:f}", "tensors", (int64_t)error->tensors, "parameters",
                        (int64_t)error->count, "relative_error", relative(error));
}

static tt_status write_json(struct tt_str *text, const struct tt_quantize_report *report)
{
    struct tt_json_value *kinds = tt_json_new_object();
    for (int k = 0; k < report->kind_count; k++)
        tt_json_set(kinds, report->kinds[k].name, error_to_json(&report->kinds[k].error));
    struct tt_json_value *root =
        tt_json_pack("{s:o,s:o,s:I,s:I,s:I}", "kinds", kinds, "total", error_to_json(&report->total),
                     "bytes_before", (int64_t)report->bytes_before, "bytes_after",
                     (int64_t)report->bytes_after, "files", (int64_t)report->files);
    tt_status status = tt_json_write(root, 2, false, text);
    tt_json_release(root);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

/* A tensor of the files that parameters are parts of. */
struct fused {
    struct tt_quant_layout layout; /* of all its rows */
    const char *plain;             /* NULL, or a parameter that is not quantized */
};

/* The formats of the tensors of the files. */
struct formats {
    const struct tt_model *model;
    struct tt_arena *arena;
    struct tt_quantized_config *config;
    struct fused *fused;
    size_t count, room;
    struct tt_name_index index;
    const tt_param *param; /* whose pieces are listed */
    size_t first;          /* its first tensor */
};

static const struct tt_quant_layout *layout_of(void *context, const char *name)
{
    const struct formats *formats = context;
    size_t number;
    if (tt_name_index_find(&formats->index, name, &number))
        return formats->fused[number].layout.bytes > 0 ? &formats->fused[number].layout : NULL;
    const tt_param *param = tt_model_find_param(formats->model, name);
    return param != NULL && tt_param_is_quantized(param) ? &param->quant : NULL;
}

static tt_status add_skipped(const char *name, struct tt_quantized_config *config)
{
    if (config->skip_count + 1 == TT_QUANTIZED_SKIP_MAX)
        return tt_fail(TT_ERR_USAGE, "llm_int8_skip_modules must be a list of fewer than %d names",
                       TT_QUANTIZED_SKIP_MAX);
    config->skip[config->skip_count++] = name;
    return TT_OK;
}

/* Paths of the parts beside the text model, whose weights are copied as they are. */
static tt_status list_others(const struct tt_model *model, struct tt_arena *arena, bool expressions,
                             struct tt_quantized_config *config)
{
    const struct tt_text_part *part = model->facts.part;
    for (const char *const *other = part != NULL ? part->others : NULL; other != NULL && *other != NULL;
         other++) {
        size_t bytes = strlen(*other) - 1; /* without the dot */
        const char *entry = expressions ? tt_arena_printf(arena, "re:.*%.*s.*", (int)bytes, *other)
                                        : tt_arena_strndup(arena, *other, bytes);
        if (entry == NULL) return TT_ERR_MEMORY;
        TT_TRY(add_skipped(entry, config));
    }
    return TT_OK;
}

/* transformers skips the head by itself only without a list, so a list must name the head. */
static tt_status list_skipped(const struct tt_model *model, const struct tt_name_pattern *list,
                              struct tt_arena *arena, struct tt_quantized_config *config)
{
    const char *head = tt_module_head(&model->modules);
    bool listed = false;
    TT_TRY(list_others(model, arena, false, config));
    for (size_t i = 0; i < list->count; i++) {
        const char *name = tt_name_pattern_entry(list, i);
        listed |= strcmp(name, head) == 0;
        TT_TRY(add_skipped(name, config));
    }
    if (config->skip_count > 0 && !listed) config->skip[config->skip_count++] = head;
    return TT_OK;
}

/* compressed-tensors takes whole paths and expressions: an entry becomes an expression that re.match finds where
 * model/quantization.h skips a module. It skips no head by itself. */
static tt_status list_ignored(const struct tt_model *model, const struct tt_name_pattern *list,
                              struct tt_arena *arena, struct tt_quantized_config *config)
{
    struct tt_str escaped = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < list->count; i++) {
        tt_str_clear(&escaped);
        for (const char *c = tt_name_pattern_entry(list, i); *c != '\0'; c++) {
            if (strchr(".^$*+?()[]{}|\\", *c) != NULL) TT_GO(tt_str_append_char(&escaped, '\\'));
            TT_GO(tt_str_append_char(&escaped, *c));
        }
        const char *entry = tt_arena_printf(arena, "re:((%s)((?<=\\.)|(?=\\.|$))|.*%s$)",
                                            tt_name_pattern_entry(list, i), tt_str_text(&escaped));
        if (entry == NULL) TT_GO(TT_ERR_MEMORY);
        TT_GO(add_skipped(entry, config));
    }
    TT_GO(list_others(model, arena, true, config));
    status = add_skipped(tt_module_head(&model->modules), config);
out:
    tt_str_deinit(&escaped);
    return status;
}

/* Whether the settings of bitsandbytes name another format. */
static bool contradicts(const struct quantize_command *command, enum tt_quant_type wanted)
{
    if (command->load_in_8bit) return wanted != tt_format_of_width(8, 0);
    if (command->quant_type != 0) return wanted != tt_format_of_width(4, command->quant_type);
    return command->double_quant && tt_weight_format(wanted)->load_bits != 4;
}

static tt_status choose_type(const struct quantize_command *command, enum tt_quant_type *type)
{
    *type = command->load_in_8bit ? tt_format_of_width(8, 0) : tt_format_of_width(4, command->quant_type);
    if (command->to == 0) return TT_OK;
    *type = (enum tt_quant_type)command->to;
    if (!contradicts(command, *type)) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "to is %s, and other settings name another format", tt_quant_type_name(*type));
    tt_hint("leave out load_in_8bit, bnb_4bit_quant_type and bnb_4bit_use_double_quant");
    return status;
}

/* Whether the end of a path names a quantized module too, or one inside of what it names: transformers takes an entry
 * for the end of a path, and before version 5 for any part of one that ends at a dot. */
static bool names_quantized(const struct tt_module_list *modules, const char *name)
{
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        const char *at = module->quantized ? strstr(module->path, name) : NULL;
        for (; at != NULL; at = strstr(at + 1, name))
            if (at[strlen(name)] == '\0' || at[strlen(name)] == '.') return true;
    }
    return false;
}

/* The shortest end of a path that names no quantized module. */
static const char *shortest_name(const struct tt_module_list *modules, const char *path)
{
    const char *name = path + strlen(path);
    while (name > path) {
        do name--;
        while (name > path && name[-1] != '.');
        if (!names_quantized(modules, name)) break;
    }
    return name;
}

/* A module by the end of its path, each end once; `inside`: the modules that it has. */
static tt_status skip_module(const struct formats *formats, const char *path, bool inside)
{
    struct tt_quantized_config *config = formats->config;
    const char *name = shortest_name(&formats->model->modules, path), *form = "%s";
    if (tt_quant_is_compressed(config->type)) form = inside ? "re:.*%s\\..*" : "re:.*%s$";
    const char *entry = tt_arena_printf(formats->arena, form, name);
    if (entry == NULL) return TT_ERR_MEMORY;
    for (int i = 0; i < config->skip_count; i++)
        if (strcmp(config->skip[i], entry) == 0) return TT_OK;
    return add_skipped(entry, config);
}

/* Linears that the family leaves as they are. */
static tt_status list_plain(const struct formats *formats)
{
    const struct tt_module_list *modules = &formats->model->modules;
    for (size_t i = 0; i < modules->count; i++)
        if (modules->items[i].plain) TT_TRY(skip_module(formats, modules->items[i].path, false));
    return TT_OK;
}

static tt_status refuse_piece(const struct formats *formats, const struct tt_source_piece *piece,
                              const char *why)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED,
                "'%s' is a part of '%s' in the files, %s: it is quantized while loading, and not in a folder",
                formats->param->name, piece->tensor, why);
    tt_hint("name it in llm_int8_skip_modules, to have it copied as it is");
    return status;
}

/* A tensor is quantized as a whole where each parameter that has rows of it has whole blocks. */
static tt_status add_fused(struct formats *formats, const struct tt_source_piece *piece)
{
    size_t number;
    bool quantized = tt_param_is_quantized(formats->param);
    if (!tt_name_index_find(&formats->index, piece->tensor, &number)) {
        const char *name = tt_arena_strdup(formats->arena, piece->tensor);
        if (name == NULL) return TT_ERR_MEMORY;
        TT_TRY(tt_grow(&formats->fused, formats->count, &formats->room));
        formats->fused[number = formats->count++] = (struct fused){.plain = NULL};
        TT_TRY(tt_name_index_add(&formats->index, name, number));
    }
    struct fused *fused = &formats->fused[number];
    if (!quantized) fused->plain = formats->param->name;
    if (quantized && piece->rank == 2)
        TT_TRY(tt_quant_layout_make(formats->param->quant.format, piece->dims[0], piece->dims[1],
                                    &fused->layout));
    if (fused->plain != NULL && fused->layout.bytes > 0)
        return refuse_piece(formats, piece, "of which not all is quantized");
    if (!quantized) return TT_OK;
    bool each = formats->param->rank == 3 && piece->rank == 2; /* a matrix of a single expert */
    if (piece->first == 0) formats->first = number;
    if (piece->rank != 2 || (number != formats->first && !each))
        return refuse_piece(formats, piece, "of several matrices");
    if (!tt_source_piece_by_rows(piece)) return refuse_piece(formats, piece, "transposed");
    if (!tt_quantized_piece_fits(&fused->layout, piece))
        return refuse_piece(formats, piece, "and its rows are no whole blocks");
    return TT_OK;
}

static tt_status list_piece(void *context, const struct tt_source_piece *piece)
{
    static const char end[] = ".weight";
    struct formats *formats = context;
    bool each = formats->param->rank == 3 && piece->rank == 2; /* a matrix of a single expert */
    TT_TRY(add_fused(formats, piece));
    if (tt_param_is_quantized(formats->param) || !tt_ends_with(piece->tensor, end)) return TT_OK;
    char *path = tt_arena_strndup(formats->arena, piece->tensor, strlen(piece->tensor) - strlen(end));
    if (path == NULL) return TT_ERR_MEMORY;
    for (int cut = 0; cut < 2 && each; cut++) { /* the linear, the expert's number */
        char *dot = strrchr(path, '.');
        if (dot != NULL) *dot = '\0';
    }
    return skip_module(formats, path, each);
}

static tt_status refuse_experts(const tt_param *param)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED,
                "'%s' has all experts in one tensor, for which folders have no form in codes", param->name);
    tt_hint("leave quantize_moe_experts out: with it a training quantizes them while it loads");
    return status;
}

/* The modules of the files whose weights are in pieces and stay as they are are named in config.json. */
static tt_status list_pieces(struct formats *formats, const struct tt_model_folder *joined)
{
    bool in_pieces;
    for (size_t i = 0; i < formats->model->param_count; i++) {
        formats->param = formats->model->params[i];
        if (formats->param->rank < 2) continue;
        TT_TRY(tt_model_folder_pieces(joined, formats->param->name, list_piece, formats, &in_pieces));
        if (in_pieces || formats->param->rank < 3 || !tt_param_is_quantized(formats->param)) continue;
        return refuse_experts(formats->param);
    }
    return TT_OK;
}

static tt_status open_model(const struct quantize_command *command, struct tt_model_folder **folder,
                            struct tt_model **model)
{
    enum tt_quant_type type;
    TT_TRY(choose_type(command, &type));
    struct tt_model_options options = {
        .compute_dtype = TT_F32,
        .quant = {.type = type,
                  .nested = command->double_quant && tt_weight_format(type)->load_bits == 4,
                  .experts = command->experts,
                  .skip_modules = command->skip_modules}};
    struct tt_model_facts *config = tt_calloc(1, sizeof *config);
    tt_status status = TT_OK;
    if (config == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_model_folder_open(command->model, true, folder));
    TT_GO(tt_model_facts_of_folder(*folder, config));
    TT_GO(tt_model_folder_join(*folder, &config->sources));
    if (config->stored_quant != TT_QUANT_NONE) {
        status = tt_fail(TT_ERR_USAGE, "the weights of '%s' are %s already", command->model,
                         tt_quant_type_name(config->stored_quant));
        tt_hint(
            "it is trained, evaluated and served as it is; to quantize it otherwise, use the folder of the "
            "original weights");
        goto out;
    }
    TT_GO(tt_tied_head_inspect(*folder, config));
    TT_GO(tt_model_create(config, &options, model));
    TT_GO(tt_load_check(*model, &(struct tt_load_source){.folder = *folder}));
out:
    tt_free(config);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct quantize_command *command = call->target;
    tt_status status = TT_OK;
    struct tt_model_folder *joined = NULL, *folder = NULL; /* the parameters; the tensors of the files */
    struct tt_model *model = NULL;
    struct tt_name_pattern skip = {0};
    struct tt_str text = {0};
    struct tt_arena arena = {0};
    struct formats formats = {.model = NULL};
    struct tt_param_sources names; /* how the files begin theirs, and no parts */
    struct tt_quantize_report report;
    struct tt_quantize_options options = {.output_dir = command->output_dir,
                                          .overwrite = command->overwrite,
                                          .names = &names,
                                          .layout_of = layout_of,
                                          .max_shard_bytes = command->max_shard_bytes,
                                          .cancel = cli->cancel};
    TT_GO(open_model(command, &joined, &model));
    names = (struct tt_param_sources){model->facts.sources.path, .renames = model->facts.sources.renames};
    TT_GO(tt_model_folder_open(command->model, true, &folder));
    TT_GO(tt_model_folder_join(folder, &names));
    TT_GO(tt_name_pattern_init(&skip, "llm_int8_skip_modules", command->skip_modules, TT_NAMES_AS_LIST));
    options.config.type = model->options.quant.type;
    options.unties = model->facts.own_head;
    formats = (struct formats){.model = model, .arena = &arena, .config = &options.config};
    TT_GO(list_plain(&formats));
    TT_GO(list_pieces(&formats, joined));
    if (tt_quant_is_compressed(options.config.type))
        TT_GO(list_ignored(model, &skip, &arena, &options.config));
    else
        TT_GO(list_skipped(model, &skip, &arena, &options.config));
    options.context = &formats;
    options.config.nested = model->options.quant.nested;
    options.config.compute_dtype = tt_dtype_from_torch_name(command->compute_dtype);
    options.config.storage_dtype = tt_dtype_from_torch_name(command->storage);
    TT_GO(tt_quantized_folder_write(folder, &options, &report));
    TT_GO(command->json
              ? write_json(&text, &report)
              : write_text(&text, &report, tt_quant_type_name(options.config.type), command->output_dir));
    TT_GO(tt_report_print_wrapped(cli->report, tt_str_text(&text), command->json ? -1 : 2));
out:
    tt_str_deinit(&text);
    tt_name_index_deinit(&formats.index);
    tt_free(formats.fused);
    tt_arena_deinit(&arena);
    tt_name_pattern_deinit(&skip);
    tt_model_destroy(model);
    tt_model_folder_close(folder);
    tt_model_folder_close(joined);
    return status;
}

const struct tt_command_ops tt_cmd_quantize = {
    .usage = " --model_name_or_path FOLDER --output_dir FOLDER [--to fp8] [--bnb_4bit_quant_type nf4] "
             "[--load_in_8bit] [--json]",
    .sections = list_sections,
    .target_bytes = sizeof(struct quantize_command),
    .run = run,
};
