/* Settings: machinery only. One table row says all about a setting: name, old spellings, type, default, help, where its
 * value goes. Parsing, overriding, validation, --help, the resolved file and docs/settings.md all follow from the rows.
 * The rows stand with their owners (model/settings.c, data/settings.c, ...).
 *
 * Order of sources: YAML files, then flags; later wins. A key of unknown name is TT_ERR_USAGE and names the nearest
 * known one. A key that is accepted but has no meaning here carries the reason and is said once, as a log line. A key
 * that means something we do not do is accepted at the values that leave it off and refused otherwise. A word of a row
 * may have "torch." before it (torch.bfloat16). */
#ifndef TT_CONFIG_SETTINGS_H
#define TT_CONFIG_SETTINGS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include <stdint.h>

enum tt_setting_type {
    /* const char *; NULL when the default is NULL. "null" gives NULL; so does "none", unless it is among the row's
     * `choices` or `only` */
    TT_SETTING_STRING,
    TT_SETTING_INT,    /* int64_t */
    TT_SETTING_DOUBLE, /* double */
    /* bool; flags: --x, --x true, --x=false, --no_x. With `choices` of two words: the words for false and true, and
     * nothing else */
    TT_SETTING_BOOL,
    TT_SETTING_TRISTATE, /* int: -1 not said, 0, 1 */
    TT_SETTING_CHOICE,   /* int (an enum); `choices` gives names in order of the enum's values from 0 */
    TT_SETTING_BYTES,    /* size_t: "24GiB" */
    /* const char *: a YAML list or mapping, or several words of a flag, kept as JSON text; a single word stays the
     * plain word ("q_proj,v_proj" is a list of two) */
    TT_SETTING_JSON,
};

/* As an offset: the setting is checked and kept, but no struct gets it. */
#define TT_SETTING_NO_FIELD SIZE_MAX

struct tt_setting {
    const char *name;    /* NULL: the end of the table */
    const char *aliases; /* NULL or "max_seq_length other": old spellings, separated by blanks */
    enum tt_setting_type type;
    /* in the section's struct, or TT_SETTING_NO_FIELD; ignored when `unneeded` is set */
    size_t offset;
    const char *default_text; /* NULL: a NULL string / JSON */
    /* what null stands for where the type has no null; NULL: texts and BOOL their default, numbers and CHOICE refuse
     * it */
    const char *null_text;
    const char *choices;     /* CHOICE: "truncate drop error"; STRING: allowed words, or NULL for any */
    double minimum, maximum; /* INT, DOUBLE: inclusive range; both 0: any */
    const char *help;        /* one or two sentences */
    /* not NULL: accepted without meaning here (any value, unless `only`), and why */
    const char *unneeded;
    /* not NULL: the values served ("null {}"), compared by type; others are TT_ERR_UNSUPPORTED */
    const char *only;
    const char *only_reason; /* what to do instead of a value that is refused, or why; becomes the hint */
    const char *synonyms;    /* NULL or "1=FULL_SHARD 2=SHARD_GRAD_OP": other words for `choices` */
    /* JSON, not NULL: a mapping whose keys set the settings of their names; the beginnings of the names that may
     * stand there, separated by blanks */
    const char *spread;
    /* not NULL: what the words of the value are called in other settings, "full_shard=sharding_strategy:FULL_SHARD
     * auto_wrap="; "*=NAME": the value is that of NAME. A word that is not listed is an error where the type is
     * STRING, and has no meaning elsewhere */
    const char *means;
    const char *environment; /* not NULL: the variable that has the value where no source sets it */
    bool local;              /* may differ between the processes of a run */
    bool required;
    /* the setting that takes the place of a required one in commands that have it; NULL: none */
    const char *or_else;
    bool transient; /* acts on this call (--print_config); not part of the resolved file */
};

/* A key without meaning here; a key that is served only at its neutral values. */
#define TT_SETTING_UNNEEDED(name_, why_)                                                                     \
    {                                                                                                        \
        .name = name_, .type = TT_SETTING_JSON, .offset = TT_SETTING_NO_FIELD, .unneeded = why_              \
    }
#define TT_SETTING_ONLY(name_, type_, default_, only_, why_)                                                 \
    {                                                                                                        \
        .name = name_, .type = TT_SETTING_##type_, .offset = TT_SETTING_NO_FIELD, .default_text = default_,  \
        .only = only_, .only_reason = why_                                                                   \
    }

/* A group of rows with one struct they fill. */
struct tt_setting_section {
    const char *title;             /* heading in help and docs */
    const struct tt_setting *rows; /* ended by a row without name */
    size_t base_offset;            /* of the section's struct in the target */
};

struct tt_settings; /* the store: resolved texts, where each came from; owns all strings */
/* Writes the defaults into `target`. Borrows `sections` and `target` for its life. */
TT_MUST_USE tt_status tt_settings_create(const struct tt_setting_section *sections, size_t section_count,
                                         void *target, size_t target_bytes, struct tt_settings **out);
void tt_settings_destroy(struct tt_settings *settings); /* takes NULL */
TT_MUST_USE tt_status tt_settings_read_yaml(struct tt_settings *settings, const char *path);
/* The same from text in memory; `origin` stands for the path in messages. */
TT_MUST_USE tt_status tt_settings_parse_yaml(struct tt_settings *settings, const char *text, size_t bytes,
                                             const char *origin);
/* One value as text; `origin` for messages ("--learning_rate", "sft.yaml line 7"). */
TT_MUST_USE tt_status tt_settings_set(struct tt_settings *settings, const char *name, const char *value,
                                      const char *origin);
/* Flags: argv[0 .. argc-1] (without program and command names). `--config FILE` is a YAML file; such files are read
 * before the first flag takes effect, wherever they stand, so that a flag always wins over a file. Names in
 * `handled_elsewhere` (NULL-terminated or NULL) take one value and are skipped. Dashes in names read as underscores. */
TT_MUST_USE tt_status tt_settings_parse_flags(struct tt_settings *settings, int argc, char *const *argv,
                                              const char *const *handled_elsewhere);
/* A value from a source farther than files and flags (a launcher's file): set where nothing else has set it. A setting
 * that the command does not have is left out. */
TT_MUST_USE tt_status tt_settings_suggest(struct tt_settings *settings, const char *name, const char *value,
                                          const char *origin);
/* After the last source: reads the environment's values and settles what aliases mean (`means`). Of two sources the
 * nearer one wins, and the other is forgotten; a contradiction within one source is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_settings_settle(struct tt_settings *settings);
/* The same for a meaning that no row can hold: `alias`, where it is set, says that `name` is `value`. */
TT_MUST_USE tt_status tt_settings_imply(struct tt_settings *settings, const char *alias, const char *name,
                                        const char *value);
bool tt_settings_has(const struct tt_settings *settings,
                     const char *name); /* the command has such a setting */
/* Required ones are there; says once what was given and is not needed. */
TT_MUST_USE tt_status tt_settings_check(struct tt_settings *settings);
/* by a source, not by default */
bool tt_settings_is_set(const struct tt_settings *settings, const char *name);
/* Where the value came from ("sft.yaml line 7"); NULL: the default, or no such name. */
const char *tt_settings_origin(const struct tt_settings *settings, const char *name);
/* Resolved, with where each came from; reading it gives the same values. */
TT_MUST_USE tt_status tt_settings_write_yaml(const struct tt_settings *settings, struct tt_str *text);
TT_MUST_USE tt_status tt_settings_help(const struct tt_setting_section *sections, size_t section_count,
                                       int columns, struct tt_str *text);
TT_MUST_USE tt_status tt_settings_docs(const struct tt_setting_section *sections, size_t section_count,
                                       struct tt_str *markdown);

#endif
