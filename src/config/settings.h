/* Settings: machinery only. One table row says all about a setting: name, old spellings, type, default, help, where its
 * value goes. Parsing, overriding, validation, --help, the resolved file and docs/settings.md all follow from the rows.
 * The rows stand with their owners (model/settings.c, data/settings.c, ...).
 *
 * Order of sources: YAML files, then flags; later wins. A key of unknown name is TT_ERR_USAGE and names the nearest
 * known one. A key that is accepted but has no meaning here carries the reason and is said once, as a log line. */
#ifndef TT_CONFIG_SETTINGS_H
#define TT_CONFIG_SETTINGS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include <stdint.h>

enum tt_setting_type {
    TT_SETTING_STRING, /* const char *; NULL when the default is NULL. "none"/"null" in YAML give NULL */
    TT_SETTING_INT,    /* int64_t */
    TT_SETTING_DOUBLE, /* double */
    TT_SETTING_BOOL,   /* bool; flags: --x, --x true, --x=false, --no_x */
    TT_SETTING_TRISTATE, /* int: -1 not said, 0, 1 */
    TT_SETTING_CHOICE, /* int (an enum); `choices` gives names in order of the enum's values from 0 */
    TT_SETTING_BYTES,  /* size_t: "24GiB" */
    TT_SETTING_JSON,   /* const char *: a YAML list or mapping, or several words of a flag, kept as JSON text; a
                          single word stays the plain word */
};

struct tt_setting {
    const char *name;
    const char *aliases;       /* NULL or "max_seq_length other": old spellings, separated by blanks */
    enum tt_setting_type type;
    size_t offset;             /* in the section's struct; ignored when `unneeded` is set */
    const char *default_text;  /* NULL: a NULL string / JSON */
    const char *choices;       /* CHOICE: "truncate drop error"; STRING: allowed words, or NULL for any */
    double minimum, maximum;   /* INT, DOUBLE: inclusive range; both 0: any */
    const char *help;          /* one or two sentences */
    const char *unneeded;      /* not NULL: accepted without meaning here, and why */
    bool required;
};

/* A group of rows with one struct they fill. */
struct tt_setting_section {
    const char *title;         /* heading in help and docs */
    const struct tt_setting *rows;
    size_t row_count;
    size_t base_offset;        /* of the section's struct in the target */
};

struct tt_settings; /* the store: resolved texts, where each came from; owns all strings */
TT_MUST_USE tt_status tt_settings_create(const struct tt_setting_section *sections, size_t section_count, void *target,
                                         size_t target_bytes, struct tt_settings **out); /* writes the defaults */
void tt_settings_destroy(struct tt_settings *settings);
TT_MUST_USE tt_status tt_settings_read_yaml(struct tt_settings *settings, const char *path);
/* One value as text; `origin` for messages ("--learning_rate", "sft.yaml line 7"). */
TT_MUST_USE tt_status tt_settings_set(struct tt_settings *settings, const char *name, const char *value, const char *origin);
/* Flags: argv[0 .. argc-1] (without program and command names); `--config FILE` is a YAML file, read in place. Names in
 * `handled_elsewhere` (NULL-terminated, e.g. "config_file") take one value and are skipped. */
TT_MUST_USE tt_status tt_settings_parse_flags(struct tt_settings *settings, int argc, char *const *argv,
                                              const char *const *handled_elsewhere);
TT_MUST_USE tt_status tt_settings_check(struct tt_settings *settings); /* required ones are there */
bool tt_settings_is_set(const struct tt_settings *settings, const char *name); /* by a source, not by default */
TT_MUST_USE tt_status tt_settings_write_yaml(const struct tt_settings *settings, struct tt_str *text); /* resolved, with where each came from */
TT_MUST_USE tt_status tt_settings_help(const struct tt_setting_section *sections, size_t section_count, int columns, struct tt_str *text);
TT_MUST_USE tt_status tt_settings_docs(const struct tt_setting_section *sections, size_t section_count, struct tt_str *markdown);

#endif
