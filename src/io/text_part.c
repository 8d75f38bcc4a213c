#include "io/text_part.h"

#include <string.h>

#include "base/str.h"

/* The names of the Llava kind before 4.52, which transformers still writes; the later ones it reads as they are. */
static const struct tt_part_rename llava_renames[] = {
    {"language_model.lm_head.", "lm_head."},
    {"language_model.model.", "model.language_model."},
    {"language_model.", "model.language_model."},
    {"vision_tower.", "model.vision_tower."},
    {"multi_modal_projector.", "model.multi_modal_projector."},
    {NULL, NULL},
};
static const char *const llava_others[] = {"model.vision_tower.", "model.multi_modal_projector.", NULL};

static const struct tt_part_rename qwen2_vl_renames[] = {
    {"model.language_model.", "model.language_model."},
    {"model.visual.", "model.visual."},
    {"model.", "model.language_model."},
    {"visual.", "model.visual."},
    {NULL, NULL},
};
static const struct tt_part_rename no_renames[] = {{NULL, NULL}};
static const char *const visual[] = {"model.visual.", "mtp.", NULL};
static const char *const muse_others[] = {"model.vision_tower.", "model.vision_adapter.",
                                          "model.vision_projection.", NULL};
static const char *const gemma4_others[] = {"model.vision_tower.", "model.embed_vision.",
                                            "model.audio_tower.", "model.embed_audio.", NULL};
static const char *const lfm2_others[] = {"model.vision_tower.", "model.multi_modal_projector.", NULL};
static const char *const smolvlm_others[] = {"model.vision_model.", "model.connector.", NULL};

#define AT(where) .path = (where), .table = where ".embed_tokens.weight"

static const struct tt_text_part parts[] = {
    {.model_type = "gemma3",
     .architecture = "Gemma3ForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "gemma3_text",
     .what = "vision tower and projector",
     .tied = true,
     .renames = llava_renames,
     .others = llava_others},
    {.model_type = "gemma4",
     .architecture = "Gemma4ForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "gemma4_text",
     .what = "vision and audio towers and their embedders",
     .tied = true,
     .renames = no_renames,
     .others = gemma4_others},
    {.model_type = "mistral3",
     .architecture = "Mistral3ForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "mistral",
     .what = "vision tower and projector",
     .tied = true,
     .has_head = true,
     .renames = llava_renames,
     .others = llava_others},
    {.model_type = "qwen2_5_vl",
     .architecture = "Qwen2_5_VLForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "qwen2_5_vl_text",
     .what = "vision tower",
     .text_ties = true,
     .renames = qwen2_vl_renames,
     .others = visual},
    {.model_type = "qwen3_vl",
     .architecture = "Qwen3VLForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "qwen3_vl_text",
     .what = "vision tower",
     .renames = no_renames,
     .others = visual},
    {.model_type = "qwen3_5",
     .architecture = "Qwen3_5ForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "qwen3_5_text",
     .what = "vision tower",
     .renames = no_renames,
     .others = visual},
    {.model_type = "qwen3_5_moe",
     .architecture = "Qwen3_5MoeForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "qwen3_5_moe_text",
     .what = "vision tower",
     .renames = no_renames,
     .others = visual},
    {.model_type = "lfm2_vl",
     .architecture = "Lfm2VlForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "lfm2",
     .what = "vision tower and projector",
     .tied = true,
     .renames = no_renames,
     .others = lfm2_others},
    {.model_type = "smolvlm",
     .architecture = "SmolVLMForConditionalGeneration",
     AT("model.text_model"),
     .text_type = "llama",
     .what = "vision tower and connector",
     .renames = no_renames,
     .others = smolvlm_others},
    {.model_type = "muse_glimmer",
     .architecture = "MuseGlimmerForConditionalGeneration",
     AT("model.language_model"),
     .text_type = "muse_glimmer_text",
     .what = "vision tower, adapter and projection",
     .renames = no_renames,
     .others = muse_others},
};
enum { PARTS = sizeof parts / sizeof *parts };

const struct tt_text_part *tt_text_part_find(const struct tt_json_value *config)
{
    const char *model_type = tt_json_text(tt_json_get(config, "model_type"));
    for (int i = 0; i < PARTS && model_type != NULL; i++)
        if (strcmp(parts[i].model_type, model_type) == 0) return &parts[i];
    return NULL;
}

const struct tt_text_part *tt_text_part_at(size_t index)
{
    return index < PARTS ? &parts[index] : NULL;
}

struct tt_json_value *tt_text_part_config(const struct tt_json_value *config)
{
    const struct tt_json_value *text = tt_json_get(config, "text_config");
    return (struct tt_json_value *)(tt_json_is_object(text) ? text : config);
}

static const char *replace_beginning(const char *name, const char *from, const char *to,
                                     struct tt_arena *arena)
{
    return strcmp(from, to) == 0 ? name : tt_arena_printf(arena, "%s%s", to, name + strlen(from));
}

const char *tt_part_renamed(const struct tt_part_rename *renames, const char *name, struct tt_arena *arena)
{
    for (; renames != NULL && renames->from != NULL; renames++)
        if (tt_starts_with(name, renames->from))
            return replace_beginning(name, renames->from, renames->to, arena);
    return name;
}

const char *tt_part_stored_name(const struct tt_part_rename *renames, const char *name,
                                struct tt_arena *arena)
{
    for (; renames != NULL && renames->from != NULL; renames++)
        if (tt_starts_with(name, renames->to))
            return replace_beginning(name, renames->to, renames->from, arena);
    return name;
}

const char *tt_text_part_name(const struct tt_text_part *part, const char *name, struct tt_arena *arena)
{
    return tt_part_renamed(part->renames, name, arena);
}

/* Whether `name` is `path`, a dot and more. */
static bool is_below(const char *name, const char *path)
{
    size_t bytes = strlen(path);
    return strncmp(name, path, bytes) == 0 && name[bytes] == '.';
}

const char *tt_text_part_adapted_name(const struct tt_text_part *part, const char *name,
                                      struct tt_arena *arena)
{
    const char *renamed = tt_text_part_name(part, name, arena);
    if (renamed == NULL || is_below(renamed, part->path) || tt_text_part_leaves(part, renamed))
        return renamed;
    if (!is_below(renamed, "model")) return renamed;
    return tt_arena_printf(arena, "%s%s", part->path, renamed + strlen("model"));
}

bool tt_text_part_leaves(const struct tt_text_part *part, const char *name)
{
    for (const char *const *other = part != NULL ? part->others : NULL; other != NULL && *other != NULL;
         other++)
        if (tt_starts_with(name, *other)) return true;
    return false;
}

void tt_text_part_untie(struct tt_json_value *config)
{
    static const char key[] = "tie_word_embeddings";
    const struct tt_json_value *text = tt_json_get(config, "text_config");
    tt_json_set(config, key, tt_json_new_bool(false));
    if (tt_json_get(text, key) == NULL) return;
    struct tt_json_value *copy = tt_json_copy(text);
    tt_json_set(copy, key, tt_json_new_bool(false));
    tt_json_set(config, "text_config", copy);
}
