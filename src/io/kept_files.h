/* The small files of a model folder that every save has beside its weights, read once: a checkpoint has the tokenizer
 * that its run began with, whatever happens to the model folder meanwhile. */
#ifndef TT_IO_KEPT_FILES_H
#define TT_IO_KEPT_FILES_H

#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct tt_kept_file {
    char *name, *data; /* owned; name: below the folder */
    uint64_t bytes;
};

/* A zeroed struct is empty. */
struct tt_kept_files {
    struct tt_kept_file *files;
    size_t count, capacity;
};

/* Reads the files that tt_model_folder_check_copied checks, with its limits. On error the struct is empty. */
TT_MUST_USE tt_status tt_kept_files_read(const char *from, bool whole_model, struct tt_kept_files *kept);
/* Writes config.json anew, as `change` leaves it. */
typedef tt_status tt_config_change(const void *context, struct tt_json_value *config);
TT_MUST_USE tt_status tt_kept_files_change(struct tt_kept_files *kept, tt_config_change *change,
                                           const void *context);
/* Writes them into the folder `to`, byte for byte. */
TT_MUST_USE tt_status tt_kept_files_write(const struct tt_kept_files *kept, const char *to);
void tt_kept_files_deinit(struct tt_kept_files *kept);

#endif
