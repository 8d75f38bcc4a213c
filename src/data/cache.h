/* Tokenized rows that several runs share: one file (data/store_file.h) in a folder for each set of rows, settings and
 * tokenizer. A run that finds its file maps it: nothing is tokenized, and the rows may be larger than the memory. A run
 * that finds none, one of other rows, of another version or a damaged one, writes it, with a lock, under another name
 * that a rename publishes; other processes that want the same wait for it. Whatever goes wrong with the folder
 * (read-only, full) costs time and one line of the log, never the run. */
#ifndef TT_DATA_CACHE_H
#define TT_DATA_CACHE_H

#include "data/dataset.h"
#include "data/sources.h"

struct tt_dataset_cache {
    const char *folder;
    /* lines of text: all that determines the tokens but for the files of the sources, their weights and the seed */
    const char *settings;
    int rules; /* raised by whom fills this when the same settings mean other tokens than before */
};

/* The same as tt_dataset_load_sources. Sets *hit: the rows were not tokenized. */
TT_MUST_USE tt_status tt_dataset_load_cached(const struct tt_dataset_cache *cache,
                                             const struct tt_dataset_request *request,
                                             struct tt_dataset **out, bool *hit);

#endif
