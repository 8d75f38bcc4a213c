/* Where the rows of a data set are: sources, and the files of each in order.
 *
 * A source is a file; a folder, with the rows of a split in SPLIT.jsonl, SPLIT-*.jsonl, the folder SPLIT or
 * data/SPLIT-*.jsonl (the first of these that exist; also .json, .ndjson, .txt, and .gz or .zst behind any of them, and
 * .parquet or .arrow), else as `datasets` reads it: in the files with a word of the split in their names, and where no
 * name says a split, in all files for train; a folder of datasets' save_to_disk; or a pattern (glob(7)). Files of a
 * source are in the order of their names' bytes, or of state.json.
 *
 * A mixture is a JSON list [{"path", "name", "revision", "split", "data_files", "weight"}, ...], TRL's `datasets` with
 * the revision of datasets' load_dataset and a weight: how often each row of the source is used in an epoch, 1 by
 * default. */
#ifndef TT_DATA_SOURCES_H
#define TT_DATA_SOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

enum { TT_SOURCES_MAX = 256 };

struct tt_source {
    char *name; /* owned: as it was given */
    double weight;
};

struct tt_source_file {
    char *path; /* owned */
    size_t source;
};

/* A zeroed struct is empty. */
struct tt_sources {
    struct tt_source *sources;
    size_t count, capacity;
    struct tt_source_file *files;
    size_t file_count, file_capacity;
};

/* Adds the source `path` and its files. A folder without the split, and a pattern without a match, add nothing. */
TT_MUST_USE tt_status tt_sources_add(struct tt_sources *sources, const char *path, const char *split,
                                     double weight);
/* Whether a folder is what datasets' save_to_disk writes for one split: all its rows are of any split. */
bool tt_sources_is_saved(const char *folder);
/* Whether the name is a pattern and no path that exists. */
bool tt_sources_is_pattern(const char *name);
/* Checks that no file is there twice. */
TT_MUST_USE tt_status tt_sources_check(const struct tt_sources *sources);
/* Appends the name of a source; "#2" follows it where an earlier source has the same. */
TT_MUST_USE tt_status tt_sources_label(const struct tt_sources *sources, size_t index, struct tt_str *text);
void tt_sources_deinit(struct tt_sources *sources);

/* A data set as it is named: an entry of a mixture, whose texts are lent by its JSON. All but path may be NULL; name (a
 * configuration) and revision (a branch, tag or commit) are of a repository of the hub. */
struct tt_mixture_entry {
    const char *path, *split, *name, *revision;
    const char *data_files; /* a file or pattern below path */
    bool streams;           /* of no JSON: files of the hub are read by ranges */
    double weight;
};
struct tt_json_value;
/* Reads entry `index` of a parsed mixture. TT_ERR_USAGE for members that are unknown or wrong. */
TT_MUST_USE tt_status tt_mixture_read(const struct tt_json_value *list, size_t index,
                                      struct tt_mixture_entry *entry);

#endif
