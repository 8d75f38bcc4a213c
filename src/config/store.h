/* The inside of the settings store, shared by the files of this folder. */
#ifndef TT_CONFIG_STORE_H
#define TT_CONFIG_STORE_H

#include "config/settings.h"
#include "config/yaml.h"

struct tt_setting_entry {
    const struct tt_setting *row;
    size_t base_offset;
    const char *text;   /* canonical; NULL is null */
    const char *origin; /* NULL: the default */
    int file_index;     /* of the YAML file that set it last; 0: none */
    size_t file_line;
};

struct tt_settings {
    const struct tt_setting_section *sections;
    size_t section_count;
    struct tt_setting_entry *entries; /* in order of sections and rows */
    size_t count;
    char *target;
    size_t target_bytes;
    int file_count;
    struct tt_arena arena;
};

/* By name or alias, dashes read as underscores; NULL when there is none. */
struct tt_setting_entry *tt_settings_find(const struct tt_settings *settings, const char *name);
/* The error for a name that is not known, with the nearest that is. */
tt_status tt_settings_fail_unknown(const struct tt_settings *settings, const char *name, const char *origin);
/* `text` NULL is null; `quoted` text is never null. */
TT_MUST_USE tt_status tt_settings_assign(struct tt_settings *settings, struct tt_setting_entry *entry,
                                         const char *text, bool quoted, const char *origin);
/* True when `words` (separated by blanks) holds `word`; *index gets its place from 0. Upper and lower case are one. */
bool tt_words_find(const char *words, const char *word, int *index);

#endif
