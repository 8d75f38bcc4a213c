/* The files beside the weights of a model folder: their list, checks before they are copied, copies. */
#include <string.h>

#include "base/file.h"
#include "io/model_folder.h"

enum { TEMPLATES_MAX = 1000 };

static const char templates_name[] = "additional_chat_templates";

struct listing {
    const char *folder;
    tt_status (*visit)(void *context, const char *name);
    void *context;
    size_t templates;
};

static tt_status visit_one(const struct listing *listing, const char *name)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, listing->folder, name));
    bool there = tt_path_exists(path.text) && !tt_path_is_dir(path.text);
    return there ? listing->visit(listing->context, name) : TT_OK;
}

static tt_status visit_template(void *context, const char *name)
{
    struct listing *listing = context;
    if (listing->templates++ == TEMPLATES_MAX)
        return tt_fail(TT_ERR_DATA, "'%s/%s' holds more than %d files", listing->folder, templates_name,
                       TEMPLATES_MAX);
    struct tt_path path;
    TT_TRY(tt_path_set(&path, templates_name, name));
    return visit_one(listing, path.text);
}

tt_status tt_model_folder_list_tokenizer(const char *folder, bool generation_config,
                                         tt_status (*visit)(void *context, const char *name), void *context)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "processor_config.json",
                                        "preprocessor_config.json",
                                        "video_preprocessor_config.json"};
    struct listing listing = {folder, visit, context, 0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) TT_TRY(visit_one(&listing, names[i]));
    if (generation_config) TT_TRY(visit_one(&listing, "generation_config.json"));
    struct tt_path templates;
    TT_TRY(tt_path_set(&templates, folder, templates_name));
    return tt_path_is_dir(templates.text) ? tt_dir_list(templates.text, visit_template, &listing) : TT_OK;
}

struct copy {
    const char *from, *to;
};

static tt_status check_one(void *context, const char *name)
{
    const struct copy *copy = context;
    int descriptor = -1;
    uint64_t bytes;
    TT_TRY(tt_file_open_inside(copy->from, name, TT_MODEL_FOLDER_COPY_BYTES_MAX, &descriptor, &bytes));
    tt_file_close(descriptor);
    return TT_OK;
}

tt_status tt_model_folder_check_copied(const char *from, bool whole_model)
{
    struct copy copy = {from, NULL};
    if (whole_model) TT_TRY(check_one(&copy, "config.json"));
    return tt_model_folder_list_tokenizer(from, whole_model, check_one, &copy);
}

static tt_status copy_one(void *context, const char *name)
{
    const struct copy *copy = context;
    struct tt_path to, folder;
    TT_TRY(tt_path_set(&to, copy->to, name));
    TT_TRY(tt_path_set(&folder, copy->to, templates_name));
    if (strchr(name, '/') != NULL) TT_TRY(tt_dir_create(folder.text));
    return tt_file_copy_inside(copy->from, name, TT_MODEL_FOLDER_COPY_BYTES_MAX, to.text);
}

tt_status tt_model_folder_copy_tokenizer(const char *from, const char *to, bool generation_config)
{
    struct copy copy = {from, to};
    return tt_model_folder_list_tokenizer(from, generation_config, copy_one, &copy);
}
