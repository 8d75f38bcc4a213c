#include "convert/templates.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

static const char default_name[] = "default", default_file[] = "chat_template.jinja",
                  additional[] = "additional_chat_templates";

static bool same_templates(const struct tt_chat_files *a, const struct tt_chat_files *b)
{
    if (a->template_count != b->template_count) return false;
    for (size_t i = 0; i < a->template_count; i++)
        if (strcmp(a->templates[i].name, b->templates[i].name) != 0 ||
            strcmp(a->templates[i].text, b->templates[i].text) != 0)
            return false;
    return true;
}

tt_status tt_templates_load(const struct tt_merge *merge, struct tt_chat_files *files, bool *of_adapter)
{
    tt_status status = TT_OK;
    struct tt_chat_files adapted = {0};
    char *folder = NULL;
    *of_adapter = false;
    TT_GO(tt_chat_files_add_templates(tt_model_folder_path(merge->folder), files));
    if (merge->adapter == NULL) goto out;
    folder = tt_merge_adapter_folder(merge);
    if (folder == NULL) TT_GO(TT_ERR_MEMORY);
    /* They become files of the result, so links that leave the folder are refused. */
    TT_GO(tt_model_folder_check_copied(folder, false));
    TT_GO(tt_chat_files_add_templates(folder, &adapted));
    if (adapted.template_count == 0 || same_templates(files, &adapted)) goto out;
    struct tt_chat_files base = *files;
    *files = adapted;
    adapted = base;
    *of_adapter = true;
out:
    tt_chat_files_deinit(&adapted);
    tt_free(folder);
    return status;
}

static tt_status write_template(const struct tt_chat_template *template, const char *folder)
{
    struct tt_path path, below;
    if (strcmp(template->name, default_name) == 0) {
        TT_TRY(tt_path_set(&path, folder, default_file));
    } else {
        char name[256];
        size_t bytes = strlen(template->name);
        if (bytes == 0 || bytes > 200 || template->name[0] == '.' || strchr(template->name, '/') != NULL)
            return tt_fail(TT_ERR_DATA, "%s: a chat template named '%.200s' cannot be stored as a file",
                           template->path, template->name);
        (void)snprintf(name, sizeof name, "%s.jinja", template->name);
        TT_TRY(tt_path_set(&below, folder, additional));
        TT_TRY(tt_dir_create(below.text));
        TT_TRY(tt_path_set(&path, below.text, name));
    }
    return tt_file_write_atomic(path.text, template->text, strlen(template->text));
}

tt_status tt_templates_write(const struct tt_chat_files *files, const char *folder)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, default_file));
    int failed = tt_file_remove(path.text);
    if (failed != 0 && failed != ENOENT) return tt_fail_errno(failed, "cannot remove '%s'", path.text);
    TT_TRY(tt_path_set(&path, folder, additional));
    TT_TRY(tt_dir_remove(path.text));
    for (size_t i = 0; i < files->template_count; i++) TT_TRY(write_template(&files->templates[i], folder));
    return TT_OK;
}

/* ---- GGUF ---- */

/* Letters, digits and '_' for every other character, as gguf-py makes names of keys. */
static const char *name_of_key(struct tt_arena *arena, const char *name)
{
    char *key = tt_arena_strndup(arena, name, strlen(name)), *to = key;
    if (key == NULL) return NULL;
    for (const char *c = name; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        bool continues = ((unsigned char)*c & 0xc0) == 0x80; /* a character of several bytes */
        if (!continues) *to++ = plain ? *c : '_';
    }
    *to = '\0';
    return key;
}

static tt_status put_named(struct tt_gguf_header *header, const struct tt_chat_files *files,
                           struct tt_arena *arena, struct tt_span *names, size_t *count)
{
    for (size_t i = 0; i < files->template_count; i++) {
        const struct tt_chat_template *template = &files->templates[i];
        const char *name = name_of_key(arena, template->name);
        if (name == NULL) return TT_ERR_MEMORY;
        bool taken = name[0] == '\0' || strcmp(template->name, default_name) == 0;
        for (size_t k = 0; k < *count; k++) taken |= tt_span_equals(names[k], name);
        if (taken) continue; /* a key occurs once: of equal names the first counts */
        const char *key = tt_arena_printf(arena, "tokenizer.chat_template.%s", name);
        if (key == NULL) return TT_ERR_MEMORY;
        names[(*count)++] = tt_span_of(name);
        TT_TRY(tt_gguf_put_string(header, key, tt_span_of(template->text)));
    }
    return TT_OK;
}

tt_status tt_gguf_put_templates(struct tt_gguf_header *header, const struct tt_chat_files *files)
{
    tt_status status = TT_OK;
    struct tt_arena arena = {0};
    size_t count = 0;
    struct tt_span *names = tt_calloc(files->template_count + 1, sizeof *names);
    if (names == NULL) return TT_ERR_MEMORY;
    TT_GO(put_named(header, files, &arena, names, &count));
    if (count > 0) TT_GO(tt_gguf_put_strings(header, "tokenizer.chat_templates", names, count));
    for (size_t i = 0; i < files->template_count; i++) {
        if (strcmp(files->templates[i].name, default_name) != 0) continue;
        TT_GO(tt_gguf_put_string(header, "tokenizer.chat_template", tt_span_of(files->templates[i].text)));
        break;
    }
out:
    tt_arena_deinit(&arena);
    tt_free(names);
    return status;
}
