/* Model cards: the front matter of a folder's README.md, YAML between two lines "---", as general.* keys of GGUF: those
 * that llama.cpp's converter (gguf-py's Metadata) makes of the card. Its guesses from names of folders are left out.
 *
 * A card never ends an export: one that cannot be read as a map is ignored with one warning. */
#ifndef TT_CONVERT_CARD_H
#define TT_CONVERT_CARD_H

#include "config/yaml.h"
#include "convert/gguf.h"

/* A zeroed struct is empty. */
struct tt_card {
    struct tt_yaml yaml; /* without a root: there is no card */
};
/* Fails only when memory runs out. */
TT_MUST_USE tt_status tt_card_read(const char *folder, struct tt_card *card);
void tt_card_deinit(struct tt_card *card);

/* general.name is the card's, else `name`. `more`: for license and languages, where `card` has none. `parameters`: of
 * the model, less than 0 for an adapter; a number in a model's name that is far from it is not taken for its size. */
TT_MUST_USE tt_status tt_gguf_put_card(struct tt_gguf_header *header, const struct tt_card *card,
                                       const struct tt_card *more, const char *name, int64_t parameters);

/* "owner/name-7B-v0.1" as gguf-py reads it; texts of no bytes where there is none. */
struct tt_model_id {
    struct tt_str name, organization, version, url; /* "Name 7B v0.1", "Owner", "v0.1", the page on the hub */
};
TT_MUST_USE tt_status tt_model_id_read(const char *text, int64_t parameters, struct tt_model_id *id);
void tt_model_id_deinit(struct tt_model_id *id);

#endif
