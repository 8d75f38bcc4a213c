/* The parts of a tokenizer's files that conversations need: chat templates, special tokens by name, tokens that end a
 * turn.
 *
 * Templates, in transformers' order: chat_template.jinja is "default" and additional_chat_templates/NAME.jinja are
 * others; where one of these files exists, chat_template of tokenizer_config.json (a text, which is "default", or a
 * list of {name, template}) is ignored. Special tokens are the members NAME_token of tokenizer_config.json (else of
 * special_tokens_map.json) and what extra_special_tokens and model_specific_special_tokens name. Turns end with
 * eos_token_id of generation_config.json, besides the tokenizer's own end token. */
#ifndef TT_TEXT_CHAT_FILES_H
#define TT_TEXT_CHAT_FILES_H

#include "base/arena.h"
#include "text/tokenizer.h"

struct tt_chat_template {
    const char *name; /* "default", "tool_use" */
    const char *text;
    const char *path; /* the file that it is in */
};

struct tt_chat_token {
    const char *name; /* "bos_token" */
    const char *text;
};

/* A zeroed struct is empty. Owns its texts. */
struct tt_chat_files {
    struct tt_arena arena;
    struct tt_chat_template *templates;
    size_t template_count, template_capacity;
    struct tt_chat_token *tokens;
    size_t token_count, token_capacity;
    struct tt_ids ends; /* generation_config.json's */
};

/* `path` is a folder, or NULL: without templates and tokens. */
TT_MUST_USE tt_status tt_chat_files_load(const char *path, struct tt_chat_files *files);
/* Adds the templates of a folder, if it has any; nothing else is read. */
TT_MUST_USE tt_status tt_chat_files_add_templates(const char *folder, struct tt_chat_files *files);
/* Adds the templates and the end tokens of a folder, each where there are none yet; NULL: nothing. */
TT_MUST_USE tt_status tt_chat_files_complete(const char *folder, struct tt_chat_files *files);
/* Replaces the templates by those of `path`: a file with one template, or a folder as above. TT_ERR_USAGE where there
 * is none. */
TT_MUST_USE tt_status tt_chat_files_take_template(const char *path, struct tt_chat_files *files);
/* The same with a text: Jinja, or the name of a template in chat_templates.def. TT_ERR_USAGE for another one. */
TT_MUST_USE tt_status tt_chat_files_take_text(const char *text, struct tt_chat_files *files);
void tt_chat_files_deinit(struct tt_chat_files *files);
/* "tool_use" for a conversation with tools, else "default"; TT_ERR_DATA when there is neither, with the names that
 * exist. */
TT_MUST_USE tt_status tt_chat_files_choose(const struct tt_chat_files *files, bool tools,
                                           const struct tt_chat_template **out);

#endif
