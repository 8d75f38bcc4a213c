/* A store in a file: tokenized rows that several runs read, mapped into memory. Internal to src/data.
 *
 * Layout, in the byte order of the machine, each part at a multiple of 64 bytes: header, key, ids [tokens], supervised
 * [tokens], samples, texts, parts (struct tt_dataset_part, one for each file of rows), sums (of each block of tokens:
 * its ids, its supervision). The header has a sum of itself and of the key, and one of everything from the samples on.
 *
 * What a file says is never trusted. Opening checks both sums, the size, and that all samples, one after the other, and
 * their texts lie inside; tokens are checked when they are first used (tt_store_check), because a set may be larger
 * than the memory. A file that somebody shortens while it is mapped ends the process, as for every mapped file. */
#ifndef TT_DATA_STORE_FILE_H
#define TT_DATA_STORE_FILE_H

#include "data/store.h"

/* The number is raised when the same rows and settings give other tokens than before. */
enum { TT_STORE_FILE_RULES = 3 };

struct tt_store_counts {
    int64_t samples, tokens, supervised;
};

struct tt_store_writer;
/* Creates the file `path`, which grows as samples are appended. Borrows the texts. */
TT_MUST_USE tt_status tt_store_writer_open(const char *path, const char *key, struct tt_store_writer **out);
TT_MUST_USE tt_status tt_store_writer_append(struct tt_store_writer *writer, const struct tt_store *from,
                                             size_t index);
/* Writes the tables behind the tokens, then the header, and closes the file. */
TT_MUST_USE tt_status tt_store_writer_finish(struct tt_store_writer *writer,
                                             const struct tt_dataset_report *report,
                                             const struct tt_dataset_part *parts, size_t part_count);
/* Whether an error was one of the file, not of the memory or the rows. */
bool tt_store_writer_failed(const struct tt_store_writer *writer);
void tt_store_writer_destroy(struct tt_store_writer *writer); /* takes NULL; does not remove the file */

/* Limits of the samples of a file. */
struct tt_store_bounds {
    int64_t vocab_size, max_length; /* ids are below; the most tokens of a sample */
    bool stream;                    /* a sample may have one token, and no label */
};
/* Maps the file as an empty store. The first line of a key is the version of what made the rows. TT_ERR_DATA: it is
 * damaged, was made from another key, or has samples beyond the bounds. `parts`, of *part_count, are the store's. */
TT_MUST_USE tt_status tt_store_file_open(const char *path, const char *key,
                                         const struct tt_store_bounds *bounds, struct tt_store *store,
                                         struct tt_dataset_report *report,
                                         const struct tt_dataset_part **parts, size_t *part_count);
/* The sum of all samples that the file was written with (tt_store_sum_sample over all of them). */
uint64_t tt_store_file_sum(const struct tt_store_file *file);
TT_MUST_USE tt_status tt_store_file_check(const struct tt_store *store, size_t index, int32_t first,
                                          int32_t count);
void tt_store_file_close(struct tt_store_file *file);
/* Reads the rows of a request into a file, whose writer it finishes, with little memory: only a source whose weight is
 * not 1 is tokenized as a whole. */
TT_MUST_USE tt_status tt_dataset_write(const struct tt_dataset_request *request,
                                       struct tt_store_writer *writer);
/* A data set of a store that was opened; takes the store over, also on failure. */
TT_MUST_USE tt_status tt_dataset_adopt(struct tt_store *store, const struct tt_dataset_report *report,
                                       const struct tt_dataset_part *files, size_t file_count,
                                       struct tt_dataset **out);
/* The most tokens of a sample. */
int64_t tt_dataset_limit(const struct tt_data_config *config);
/* Continues a sum over a sample. */
uint64_t tt_store_sum_sample(uint64_t sum, struct tt_sample sample);

#endif
