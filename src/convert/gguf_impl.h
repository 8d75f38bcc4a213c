/* Parts of the conversion of tokenizers to GGUF: for src/convert alone. */
#ifndef TT_CONVERT_GGUF_IMPL_H
#define TT_CONVERT_GGUF_IMPL_H

#include "base/json.h"

/* True if a step of a tokenizer (pre-tokenizer, normalizer, post-processor) has this type. */
bool gguf_is_step(const struct tt_json_value *step, const char *type);

/* llama.cpp knows the pre-tokenizers of byte-level tokenizers by name (tokenizer.ggml.pre), and with most names
 * whether a text that is a token is looked up before merges are (ignore_merges). Sources: src/llama-vocab.cpp of
 * llama.cpp b10605; the tokenizer.json of the models, whose expressions are compared as texts. The last one of `steps`
 * is ByteLevel, which itself splits by GPT-2's expression where `splits_text`. NULL: no name; *other_merges then says
 * that there is one for the other value of ignore_merges. */
const char *gguf_pre_name(const struct tt_json_value *const *steps, size_t count, bool splits_text,
                          bool ignore_merges, bool *other_merges);

#endif
