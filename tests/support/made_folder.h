/* For tests: model folders with tensors made by hand, below the root of the test. */
#ifndef TT_TESTS_SUPPORT_MADE_FOLDER_H
#define TT_TESTS_SUPPORT_MADE_FOLDER_H

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "io/safetensors.h"
#include "support/root.h"

static inline void ok(tt_status status)
{
    if (status != TT_OK) fail_msg("%s", tt_error_last()->message);
}

struct made {
    struct tt_safetensors_entry entry; /* name, dtype, rank, dims */
    const void *data;
};

static inline void put_folder(const char *name, const char *config, const struct made *made, size_t count)
{
    struct tt_safetensors_entry entries[64];
    struct tt_str file = {0};
    uint64_t bytes;
    for (size_t i = 0; i < count; i++) entries[i] = made[i].entry;
    ok(tt_safetensors_layout(entries, count, &file, &bytes));
    for (size_t e = 0; e < count; e++)
        for (size_t i = 0; i < count; i++)
            if (made[i].entry.name == entries[e].name)
                ok(tt_str_append(&file, made[i].data, entries[e].bytes));
    char folder[256];
    snprintf(folder, sizeof folder, "%s", test_at(name));
    ok(tt_dir_create(folder));
    char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ok(tt_file_write_atomic(path, file.data, file.bytes));
    snprintf(path, sizeof path, "%s/config.json", folder);
    ok(tt_file_write_atomic(path, config, strlen(config)));
    tt_str_deinit(&file);
}

#endif
