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
    double value;              /* of its row; 0: rows of the kind have none */
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
/* Checks tokens first .. first + count - 1 of a sample, which may come from a file: TT_ERR_DATA. */
TT_MUST_USE tt_status tt_store_check(const struct tt_store *store, size_t index, int32_t first,
                                     int32_t count);
struct tt_sample tt_store_sample(const struct tt_store *store, size_t index);
/* prompt or completion of a sample */
const char *tt_store_text(const struct tt_store *store, size_t position);

struct tt_dataset {
    struct tt_store store;
    struct tt_dataset_report report;
    struct tt_dataset_part *parts; /* of each source with rows */
    size_t part_count;
    uint16_t *origins; /* of each sample: its source, a copy or not; NULL: one source, no copies */
};
/* Sets the numbers of the report that follow from the samples of the store. */
void tt_dataset_count_samples(struct tt_dataset *dataset);
/* dataset_parts.c: makes the parts and origins of a data set whose samples are those of `files`, one after the other.
 */
TT_MUST_USE tt_status tt_dataset_set_files(struct tt_dataset *dataset, const struct tt_dataset_part *files,
                                           size_t count);
/* Adds the counts of rows; those of samples are counted when they are complete. */
void tt_dataset_report_add(struct tt_dataset_report *sum, const struct tt_dataset_report *report);
/* The part of a sample; NULL: the data set has none. */
struct tt_dataset_part *tt_dataset_part_of(struct tt_dataset *dataset, size_t index);
TT_MUST_USE tt_status tt_dataset_copy_parts(const struct tt_dataset *from, struct tt_dataset *to);
/* *out stays NULL where `from` has no origins. */
TT_MUST_USE tt_status tt_dataset_reserve_origins(const struct tt_dataset *from, size_t samples,
                                                 uint16_t **out);
/* Copies the origins of a group to those from sample `at`. `to` may be NULL. */
void tt_dataset_copy_origins(uint16_t *to, size_t at, const struct tt_dataset *from, size_t group);
void tt_dataset_take_origins(struct tt_dataset *dataset, uint16_t **origins);
/* Sets the numbers of the parts that follow from the samples. */
void tt_dataset_count_parts(struct tt_dataset *dataset);
/* Divides the reports of `kept`, of all rows, after samples have moved to `held`. */
void tt_dataset_divide_reports(struct tt_dataset *kept, struct tt_dataset *held);
/* Replaces the samples by those of `store`, which are the ones with keeps[i], changed. `store` gets those before. */
TT_MUST_USE tt_status tt_dataset_keep(struct tt_dataset *dataset, const bool *keeps, struct tt_store *store);
/* The samples of a data set. */
const struct tt_store *tt_dataset_store(const struct tt_dataset *dataset);

#endif
