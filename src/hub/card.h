/* Configurations of a data set as its card tells them: README.md begins with YAML between two lines "---", and its key
 * `configs` has the name and the files of each. Source:
 * https://huggingface.co/docs/hub/datasets-manual-configuration. */
#ifndef TT_HUB_CARD_H
#define TT_HUB_CARD_H

#include <stddef.h>

#include "config/yaml.h"

/* A zeroed struct is a card without configurations. */
struct tt_hub_card {
    struct tt_yaml yaml;
};
/* Reads the card of `folder`; one that is missing, or no YAML, says nothing. */
TT_MUST_USE tt_status tt_hub_card_read(const char *folder, struct tt_hub_card *card);
/* The same of a text, for tests. */
TT_MUST_USE tt_status tt_hub_card_parse(const char *text, size_t bytes, struct tt_hub_card *card);
void tt_hub_card_deinit(struct tt_hub_card *card);

/* Patterns of files below the repository, lent by the card. */
struct tt_hub_patterns {
    const char *text[64];
    size_t count;
};
/* Those of a configuration and split; none where the card names no files. `config` NULL: the one that is the default,
 * named "default", or alone. `split` NULL: all. TT_ERR_DATA: the card has other configurations. */
TT_MUST_USE tt_status tt_hub_card_files(const struct tt_hub_card *card, const char *config, const char *split,
                                        struct tt_hub_patterns *patterns);

/* Whether a path is one of a file of rows, by its ending, whatever compresses it. */
bool tt_hub_is_row_file(const char *path);
/* Whether a path matches a pattern: '*' stays within a part unless the pattern has "**". */
bool tt_hub_matches(const char *pattern, const char *path);

#endif
