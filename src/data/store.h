/* Samples in memory, or in a mapped file (data/store_file.h): all ids in one array, in order, which is also one stream
 * of tokens. A store in a file grows no more, and its tokens are checked before they are used. */
#ifndef TT_DATA_STORE_H
#define TT_DATA_STORE_H

#include "data/columns.h"
#include "data/dataset.h"

struct tt_store_file;

struct tt_store_sample {
    uint64_t first; /* of its tokens */
    int32_t count;
    int32_t supervised_count;  /* without token 0 */
    size_t prompt, completion; /* offset in `texts`, plus 1; 0: none */
};

/* A zeroed struct is empty. */
struct tt_store {
    int32_t *ids;
    uint8_t *supervised;
    size_t token_count, token_capacity;
    struct tt_store_sample *samples;
    size_t sample_count, sample_capacity;
    struct tt_str texts; /* terminated one by one */
    size_t group_size;   /* neighbouring samples that belong together; 0: 1 */
    struct tt_columns columns;
    struct tt_store_file *file; /* that has the samples; NULL: memory */
};

void tt_store_deinit(struct tt_store *store);
/* Reserves room for exactly `tokens` and `samples` in total. */
TT_MUST_USE tt_status tt_store_reserve(struct tt_store *store, size_t tokens, size_t samples);
/* Copies; prompt and completion may be NULL. */
TT_MUST_USE tt_status tt_store_append(struct tt_store *store, const int32_t *ids, const uint8_t *supervised,
                                      int32_t count, const char *prompt, const char *completion);
TT_MUST_USE tt_status tt_store_append_sample(struct tt_store *store, const struct tt_store *from,
                                             size_t index);
size_t tt_store_group_size(const struct tt_store *store);
size_t tt_store_group_count(const struct tt_store *store);
/* Gives an empty store the groups and columns of `from`, and room for as many groups. */
TT_MUST_USE tt_status tt_store_init_like(struct tt_store *store, const struct tt_store *from);
/* Appends the samples and column values of a group. `store` was made by tt_store_init_like. */
TT_MUST_USE tt_status tt_store_append_group(struct tt_store *store, const struct tt_store *from,
                                            size_t group);
/* Checks the tokens of a sample, which may come from a file: TT_ERR_DATA. */
TT_MUST_USE tt_status tt_store_check(const struct tt_store *store, size_t index);
struct tt_sample tt_store_sample(const struct tt_store *store, size_t index);
/* prompt or completion of a sample */
const char *tt_store_text(const struct tt_store *store, size_t position);

struct tt_dataset {
    struct tt_store store;
    struct tt_dataset_report report;
    struct tt_dataset_part *parts;
    size_t part_count, part_capacity;
    uint8_t *source_of; /* NULL or of each sample: after a shuffle or a split of several sources */
    size_t source_count;
};
/* Sets the numbers of the report that follow from the samples of the store. */
void tt_dataset_count_samples(struct tt_dataset *dataset);
/* The samples of a data set. */
const struct tt_store *tt_dataset_store(const struct tt_dataset *dataset);

#endif
