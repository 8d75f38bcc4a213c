/* Internals of the settings store, shared by the files of this folder. */
#ifndef TT_CONFIG_STORE_H
#define TT_CONFIG_STORE_H

#include "config/settings.h"
#include "config/yaml.h"

struct tt_setting_entry {
    const struct tt_setting *row;
    size_t base_offset;
    const char *of;                /* words of the row, and of those that repeat it */
    struct tt_setting_entry *twin; /* of the next row that repeats this one: its field gets the same values */
    bool repeats;                  /* an earlier row has the name */
    const char *text;              /* canonical; NULL is null */
    const char *by_default;        /* canonical; lent as `text` */
    const char *origin;            /* NULL: the default */
    int level;                     /* how near the source is (enum tt_setting_level); of defaults 0 */
    const struct tt_setting *route; /* the mapping whose key set it; NULL: it was set by its own name */
    bool is_probe;                  /* a value is only brought into its canonical form: no field is written */
    int file_index;                 /* of the YAML file that set it last; 0: none */
    size_t file_line;
};

/* How near a source is to the call. Between the two stand the files of --config, the n-th at n. */
enum tt_setting_level { TT_SETTING_LEVEL_SUGGESTED = 0, TT_SETTING_LEVEL_DIRECT = 1 << 30 };

struct tt_settings {
    const struct tt_setting_section *sections;
    size_t section_count;
    struct tt_setting_entry *entries; /* in order of sections and rows */
    size_t count;
    char *target;
    size_t target_bytes;
    int file_count;
    int level;                      /* of the value that is being assigned */
    const struct tt_setting *route; /* likewise: the mapping whose keys are assigned, or NULL */
    size_t refused;                 /* settings that a source gives and that are not taken */
    struct tt_error first;          /* the error of the first one */
    struct tt_str refusals;         /* a line for each */
    const char *convertible; /* the program of a key among them, whose files can be converted; NULL: none */
    struct tt_arena arena;
};

/* The row by name or alias, dashes read as underscores; NULL when there is none. */
struct tt_setting_entry *tt_settings_find(const struct tt_settings *settings, const char *name);
/* unknown.c. The error for an unknown name. The hint: what takes the place of another program's key (elsewhere.def), or
 * the nearest known name. */
tt_status tt_settings_fail_unknown(struct tt_settings *settings, const char *name, const char *origin);
/* unknown.c. Hints what takes the place of another program's value of this setting (elsewhere.def), if it is one. */
void tt_settings_hint_value(const struct tt_setting *row, const char *value);
/* unknown.c. TT_ERR_USAGE for such a value of a text or a path, unless a file of this name is there. */
TT_MUST_USE tt_status tt_settings_check_foreign(const struct tt_setting *row, const char *value,
                                                const char *origin);
/* unknown.c. Whether the name is a key of another program that says nothing at this value (NULL: null), which is then
 * logged. */
bool tt_settings_leave_out(const struct tt_settings *settings, const char *name, const char *value,
                           const char *origin);
/* unknown.c. Notes that `status` is the error of one setting among others, which are still to be read, and returns
 * TT_OK; another status is returned. */
TT_MUST_USE tt_status tt_settings_refuse(struct tt_settings *settings, tt_status status);
/* unknown.c. After the last setting: the error that was noted, or one that lists all of them, which are then forgotten.
 */
TT_MUST_USE tt_status tt_settings_refusals(struct tt_settings *settings);
/* `text` NULL is null; `quoted` text is never null. */
TT_MUST_USE tt_status tt_settings_assign(struct tt_settings *settings, struct tt_setting_entry *entry,
                                         const char *text, bool quoted, const char *origin);
/* settle.c. Makes `entry` a twin of the entry of its name, which gets the words of both. TT_ERR_INTERNAL: the rows are
 * for all or for the same word, or differ in type. */
TT_MUST_USE tt_status tt_settings_join(struct tt_settings *settings, struct tt_setting_entry *first,
                                       struct tt_setting_entry *entry);
/* effect.c. TT_ERR_USAGE where the value of a row with `path` lies in a store. */
TT_MUST_USE tt_status tt_settings_check_path(const struct tt_setting *row, const char *text,
                                             const char *origin);
/* effect.c. Refuses a given setting of another axis' word, and warns of one whose `needs` does not hold. */
TT_MUST_USE tt_status tt_settings_check_effect(const struct tt_settings *settings,
                                               const struct tt_setting_entry *entry);
/* settle.c. Each key of the mapping sets the setting of its name, as if it stood in the mapping's place. */
TT_MUST_USE tt_status tt_settings_spread(struct tt_settings *settings, struct tt_setting_entry *entry);
/* settle.c. TT_ERR_USAGE when the same source gives `entry` another value by another route: its own name, a mapping. */
TT_MUST_USE tt_status tt_settings_check_route(const struct tt_settings *settings,
                                              const struct tt_setting_entry *entry, const char *text,
                                              const char *origin);
/* True when `words` (separated by blanks) contains `word`, in any case; *index gets its position from 0. */
bool tt_words_find(const char *words, const char *word, int *index);

#endif
