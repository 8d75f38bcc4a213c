/* Files of data sets by the names that people give: files, folders, patterns, names of the hub's cache. */
#ifndef TT_JOB_DATA_FILES_H
#define TT_JOB_DATA_FILES_H

#include "data/dataset.h"
#include "data/sources.h"

/* Adds the files of a data set (dataset_name, eval_dataset, an entry of datasets); none where a folder has no such
 * split. TT_ERR_DATA: there is nothing of that name, or no file of its data_files. `named->split` is given. */
TT_MUST_USE tt_status tt_data_files_add(struct tt_sources *sources, const struct tt_mixture_entry *named);
/* The data set of dataset_name, with its revision. */
struct tt_mixture_entry tt_data_files_named(const struct tt_data_config *data, const char *split);
/* Whether a name, of a file that may not exist, has the ending of a file of rows. */
bool tt_data_files_has_ending(const char *name);
/* Whether a name is of a folder that may have files for each split; or may become one. */
bool tt_data_files_has_splits(const char *name);

/* The tables of a detection. A zeroed struct is empty. */
struct tt_detect_tables {
    struct tt_sources sources;
    const char **paths; /* [count], owned; the texts are those of the sources */
    size_t count;       /* 0: images and annotations are not in tables */
    bool of_split;      /* they are those of the split alone */
};
/* Training: dataset_name's split. Evaluation: eval_dataset, the split of the folder (dataset_test_split, else val,
 * valid or test), or the tables of the training, of which a share evaluates. */
TT_MUST_USE tt_status tt_detect_tables_find(const struct tt_data_config *data, bool train,
                                            struct tt_detect_tables *tables);
void tt_detect_tables_deinit(struct tt_detect_tables *tables);

#endif
