/* The chat templates of a merged model: those beside the adapter, which was trained with them, else the base's. */
#ifndef TT_CONVERT_TEMPLATES_H
#define TT_CONVERT_TEMPLATES_H

#include "convert/gguf.h"
#include "text/chat_files.h"

/* *of_adapter: the adapter's folder has templates other than those of the base. */
TT_MUST_USE tt_status tt_templates_load(const struct tt_merge *merge, struct tt_chat_files *files,
                                        bool *of_adapter);
/* Replaces the templates that were copied into `folder`. TT_ERR_DATA: a name that cannot be a file's. */
TT_MUST_USE tt_status tt_templates_write(const struct tt_chat_files *files, const char *folder);
/* Keys of gguf-py's add_chat_template: tokenizer.chat_template.NAME for each but the default, tokenizer.chat_templates
 * with their names, tokenizer.chat_template. */
TT_MUST_USE tt_status tt_gguf_put_templates(struct tt_gguf_header *header, const struct tt_chat_files *files);

#endif
