/* A Hugging Face model folder: config.json and weights in one file or in several with an index: safetensors, else
 * those of torch.save (pytorch_model.bin, io/pth.h). */
#ifndef TT_IO_MODEL_FOLDER_H
#define TT_IO_MODEL_FOLDER_H

#include "base/json.h"
#include "io/param_source.h"
#include "io/safetensors.h"

struct tt_model_folder;

/* Opens `path` (a folder, or the name of a model in the hub's cache: base/hub_cache.h): parses config.json, finds the
 * weights, checks index and files against each other. Without `require_weights` the weights may be absent (training
 * from random weights). */
TT_MUST_USE tt_status tt_model_folder_open(const char *path, bool require_weights,
                                           struct tt_model_folder **out);
/* A folder without files beside its weights: one file, which the folder owns from now on, also after an error.
 * `name_of` gives the name of each of its tensors, as text of at most `bytes` in `to`; false: the tensor is left out.
 * Its path is that of the file, and it has no config.json. */
typedef bool tt_tensor_rename(void *context, const struct tt_safetensors_entry *entry, char *to,
                              size_t bytes);
TT_MUST_USE tt_status tt_model_folder_of_file(struct tt_safetensors *file, tt_tensor_rename *name_of,
                                              void *context, struct tt_model_folder **out);
/* Shows the parameters of `sources` (lent for the call; NULL: none) instead of tensors that hold them in pieces, all
 * under the names of transformers' class (io/param_source.h). Called once, before threads share the folder. */
TT_MUST_USE tt_status tt_model_folder_join(struct tt_model_folder *folder,
                                           const struct tt_param_sources *sources);
/* The pieces of a joined tensor, in order of its elements, with the files' names; false in *joined: the folder has no
 * such tensor, or has it whole under its own name. */
TT_MUST_USE tt_status tt_model_folder_pieces(const struct tt_model_folder *folder, const char *name,
                                             tt_source_visit *visit, void *context, bool *joined);
/* Gives tables the rows of new tokens (io/grown_rows.h). Tables that the folder lacks are left out; one that is stored
 * quantized is TT_ERR_UNSUPPORTED. Called once, after tt_model_folder_join, before threads share the folder. */
struct tt_growth;
TT_MUST_USE tt_status tt_model_folder_grow(struct tt_model_folder *folder, const struct tt_growth *growth);
void tt_model_folder_close(struct tt_model_folder *folder); /* takes NULL */
/* Path of the folder, also when opened by a name of the hub. */
const char *tt_model_folder_path(const struct tt_model_folder *folder);
const struct tt_json *tt_model_folder_config(const struct tt_model_folder *folder);
bool tt_model_folder_has_weights(const struct tt_model_folder *folder);
/* Whether some of its tensors are in MXFP4, and shown decoded (io/mxfp4.h); whether all of this one is. */
bool tt_model_folder_has_mxfp4(const struct tt_model_folder *folder);
bool tt_model_folder_is_mxfp4(const struct tt_model_folder *folder, const struct tt_safetensors_entry *entry);

size_t tt_model_folder_tensor_count(const struct tt_model_folder *folder);
/* Tensor `index` of all files, in order of name. */
const struct tt_safetensors_entry *tt_model_folder_tensor(const struct tt_model_folder *folder, size_t index);
/* Its name in the folder, which is the file's unless it was renamed: by tt_model_folder_of_file, or to have the
 * "model." that files of a model without its head lack, or to have that of its class (io/text_part.h). */
const char *tt_model_folder_tensor_name(const struct tt_model_folder *folder, size_t index);
/* Its name for a folder that is written from this one: the file's own where the class has another; and that of a tensor
 * of this name, which is `name` itself where there is none. */
const char *tt_model_folder_stored_name(const struct tt_model_folder *folder, size_t index);
const char *tt_model_folder_spelling(const struct tt_model_folder *folder, const char *name);
/* How many of the tensors belong to parts beside the text model. */
size_t tt_model_folder_left_alone(const struct tt_model_folder *folder);
const struct tt_safetensors_entry *tt_model_folder_find(const struct tt_model_folder *folder,
                                                        const char *name);
/* The same by the name in the files. */
const struct tt_safetensors_entry *tt_model_folder_find_stored(const struct tt_model_folder *folder,
                                                               const char *name);
/* The open file that contains `entry`; NULL (record set) when the entry is not from this folder. */
const struct tt_safetensors *tt_model_folder_file(const struct tt_model_folder *folder,
                                                  const struct tt_safetensors_entry *entry);
/* The weights files, in order of name. */
size_t tt_model_folder_file_count(const struct tt_model_folder *folder);
const struct tt_safetensors *tt_model_folder_file_at(const struct tt_model_folder *folder, size_t index);
/* The same as tt_safetensors_read. `entry` must come from this folder. */
TT_MUST_USE tt_status tt_model_folder_read(const struct tt_model_folder *folder,
                                           const struct tt_safetensors_entry *entry, int64_t first,
                                           int64_t count, void *to, tt_dtype dtype);
/* The weights of a PEFT adapter: adapter_model.safetensors, else adapter_model.bin. */
TT_MUST_USE tt_status tt_adapter_weights_open(const char *folder, struct tt_safetensors **out);

/* Limit of the length of one copied file (below); tokenizer.json is the longest. */
#define TT_MODEL_FOLDER_COPY_BYTES_MAX ((uint64_t)512 << 20)
/* Calls `visit` for each existing file of the tokenizer and its chat templates (tokenizer.json,
 * tokenizer_config.json, special_tokens_map.json, added_tokens.json, tokenizer.model, vocab.json, merges.txt,
 * chat_template.jinja, chat_template.json, additional_chat_templates/...) and of the processor (processor_config.json,
 * preprocessor_config.json, video_preprocessor_config.json); `generation_config` adds that file. */
TT_MUST_USE tt_status tt_model_folder_list_tokenizer(const char *folder, bool generation_config,
                                                     tt_status (*visit)(void *context, const char *name),
                                                     void *context);
/* Checks the files that are copied beside a saved adapter, or beside a saved model (`whole_model`:
 * generation_config.json and config.json too): each must be a regular file inside `from`, of a bounded length
 * (tt_file_open_inside). */
TT_MUST_USE tt_status tt_model_folder_check_copied(const char *from, bool whole_model);
/* Copies them, byte for byte, into `to`. */
TT_MUST_USE tt_status tt_model_folder_copy_tokenizer(const char *from, const char *to,
                                                     bool generation_config);

#endif
