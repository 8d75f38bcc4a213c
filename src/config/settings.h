/* Settings: machinery only. One table row defines a setting: name, old spellings, type, default, help, and the field
 * for its value. Parsing, overriding, validation, --help, the resolved file and docs/settings.md all follow from the
 * rows, which are in their owners' files (model/settings.c, data/settings.c, ...).
 *
 * Order of sources: YAML files, then flags; later wins. An unknown key is TT_ERR_USAGE, with the nearest known key as
 * hint. A key without effect is accepted and logged once with the reason in its row. A key of an unsupported feature is
 * accepted only at the values that turn the feature off. Choices may have the prefix "torch." (torch.bfloat16). */
#ifndef TT_CONFIG_SETTINGS_H
#define TT_CONFIG_SETTINGS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include <stdint.h>

enum tt_setting_type {
    /* const char *; NULL when the default is NULL. "null" is NULL; so is "none", unless it is one of the row's
     * `choices` or `only` */
    TT_SETTING_STRING,
    TT_SETTING_INT,    /* int64_t */
    TT_SETTING_DOUBLE, /* double; with `choices` the place of a word, from 0 */
    /* bool; flags: --x, --x true, --x=false, --no_x. With `choices`: exactly two words, for false and true */
    TT_SETTING_BOOL,
    TT_SETTING_TRISTATE, /* int: -1 not given, 0, 1 */
    TT_SETTING_CHOICE,   /* int (an enum); `choices` names the enum's values in order, from 0 */
    TT_SETTING_BYTES,    /* size_t: "24GiB" */
    /* const char *: a YAML list or mapping, or several words of a flag, stored as JSON text; a single word stays plain
     * ("q_proj,v_proj" is a list of two) */
    TT_SETTING_JSON,
    /* unsigned: a bit for each word of `choices`, from bit 0. A word, a list of words or words separated by commas; an
     * empty list is no bit */
    TT_SETTING_WORDS,
};

/* An offset for a setting that is checked and stored, but written to no struct. */
#define TT_SETTING_NO_FIELD SIZE_MAX

/* The kind of thing that a value names on a disk. Such a value may be SCHEME://... where a
 * store has the scheme (base/store.h), except where the row is `local`. */
enum tt_setting_path {
    TT_PATH_NONE,
    TT_PATH_READ,  /* a file or folder; of a JSON row: where the value is no list and no mapping */
    TT_PATH_WRITE, /* a file or folder that is written */
    TT_PATH_HUB,   /* a folder, or the name of a model or adapter of the hub */
    TT_PATH_ROWS,  /* as READ, or the name of a data set of the hub */
    TT_PATH_MIXTURE, /* JSON: a list of mappings, each with a `path` and perhaps `data_files` (data/sources.h) */
};

/* The things that another value changes. Rows of data, LoRA, optimizer, run and detection all say it. */
enum tt_setting_changes {
    TT_CHANGES_ROWS = 1, /* how rows become tokens: part of the key of rows that are kept (job/data_key.h) */
    TT_CHANGES_RESULT = 2, /* the trained weights: part of the identity of a run (run/resume.h) */
    TT_CHANGES_PLACE = 4,  /* where a run lies, whether it goes on there: a complete one stays the same run */
    TT_CHANGES_OTHER = 8,  /* none of these; or what follows from the value is compared in its place */
    /* as RESULT, but recorded only where it is not the default: for new rows, which earlier checkpoints lack */
    TT_CHANGES_RESULT_IF_SET = 16,
};

struct tt_setting {
    const char *name;    /* NULL: the end of the table */
    const char *aliases; /* NULL or "max_seq_length other": old spellings, separated by blanks */
    enum tt_setting_type type;
    /* in the section's struct, or TT_SETTING_NO_FIELD; ignored when `unneeded` is set */
    size_t offset;
    const char *default_text; /* NULL: a NULL string / JSON */
    /* the value of null where the type has none; NULL: texts and BOOL get their default, numbers and CHOICE refuse
     * null */
    const char *null_text;
    const char *choices; /* CHOICE, WORDS: "truncate drop error"; STRING: allowed words, or NULL for any */
    double minimum, maximum; /* INT, DOUBLE: inclusive range; both 0: any */
    const char *help;        /* one or two sentences */
    /* not NULL: accepted without effect (any value, unless `only`), for this reason */
    const char *unneeded;
    /* not NULL: the supported values ("null {}"), compared by type; others are TT_ERR_UNSUPPORTED */
    const char *only;
    /* NULL, or the hint for an unsupported value that has one of its own (NULL: only_reason) */
    const char *(*instead)(const char *text);
    const char *only_reason; /* hint for an unsupported value: the reason or the alternative */
    const char *synonyms;    /* NULL or "1=FULL_SHARD 2=SHARD_GRAD_OP": other words for `choices` */
    /* JSON, not NULL: a mapping whose keys set the settings of these names; the allowed prefixes of the names,
     * separated by blanks */
    const char *spread;
    /* not NULL: what the words of the value are called in other settings, "full_shard=sharding_strategy:FULL_SHARD
     * auto_wrap="; "*=NAME": the value is that of NAME. A word that is not listed is an error where the type is
     * STRING, and has no meaning elsewhere */
    const char *means;
    const char *environment; /* not NULL: the variable that has the value where no source sets it */
    bool local;              /* may differ between the processes of a run */
    enum tt_setting_path path;
    const char *path_words; /* with `path`: NULL, or values that name no path, separated by blanks */
    /* with TT_PATH_WRITE: NULL, or the conditions, as in `needs`, without which a run goes on where it cannot write */
    const char *must_write;
    unsigned changes; /* bits of enum tt_setting_changes */
    bool is_axis;     /* CHOICE: its words may stand in the `of` of other rows */
    const char *like; /* NULL, or of an axis "a=b c=b": with the words a and c rows of b act too */
    /* NULL: for all; or words of one axis ("detection"; "sft dpo"). With another word of the axis a given value is an
     * error */
    const char *of;
    /* NULL, or what gives the value an effect: alternatives separated by blanks, each made of conditions joined by '+'.
     * A condition is NAME (true, a text, a number above 0) or NAME=VALUE (WORDS: VALUE is among them), negated by '!'
     * before it. A given value without effect is a warning. Conditions on settings that the command lacks hold */
    const char *needs;
    bool required;
    /* settings, separated by blanks, each of which replaces a required one in commands that have it; NULL: none */
    const char *or_else;
    bool transient; /* acts on this call only (--print_config); not part of the resolved file */
    bool secret;    /* the words of a command line that have the value are overwritten when it is read */
};

/* A key without effect; a key that is supported only at its neutral values. */
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

/* Whether a row of sections[index] repeats one of an earlier section: two words of an axis may have a setting of one
 * name and type, each with a field, a default and a help of its own (`of`). Its values go to all of them. */
bool tt_setting_repeats(const struct tt_setting_section *sections, size_t index,
                        const struct tt_setting *row);
/* Whether the value of a row with `path` is a path: no word of the row, no list or mapping. Takes NULL. */
bool tt_setting_is_path(const struct tt_setting *row, const char *value);
/* TT_ERR_USAGE where `text`, the value of `what`, is SCHEME://...; a comma may stand before it. */
TT_MUST_USE tt_status tt_setting_check_scheme(const char *what, const char *text);

/* The word of a CHOICE row for the enum's `value`; empty beyond the choices. Returns `word`. */
const char *tt_setting_word(const struct tt_setting *row, int value, char *word, size_t word_bytes);

struct tt_settings; /* the store: resolved texts and their origins; owns all strings */
/* Writes the defaults into `target`. Borrows `sections` and `target` for its life. */
TT_MUST_USE tt_status tt_settings_create(const struct tt_setting_section *sections, size_t section_count,
                                         void *target, size_t target_bytes, struct tt_settings **out);
void tt_settings_destroy(struct tt_settings *settings); /* takes NULL */
TT_MUST_USE tt_status tt_settings_read_yaml(struct tt_settings *settings, const char *path);
/* The same from text in memory; messages name `origin` instead of a path. */
TT_MUST_USE tt_status tt_settings_parse_yaml(struct tt_settings *settings, const char *text, size_t bytes,
                                             const char *origin);
/* One value as text; `origin` for messages ("--learning_rate", "sft.yaml line 7"). */
TT_MUST_USE tt_status tt_settings_set(struct tt_settings *settings, const char *name, const char *value,
                                      const char *origin);
/* Flags: argv[0 .. argc-1] (without program and command names). `--config FILE` names a YAML file; all such files are
 * read before the first flag takes effect, so that a flag always overrides a file. Flags in `handled_elsewhere`
 * (NULL-terminated or NULL) have one value and are skipped. Dashes in names read as underscores. */
TT_MUST_USE tt_status tt_settings_parse_flags(struct tt_settings *settings, int argc, char *const *argv,
                                              const char *const *handled_elsewhere);
/* A value from a source farther than files and flags (a launcher's file): set where nothing else has set it. A setting
 * that the command does not have is left out. */
TT_MUST_USE tt_status tt_settings_suggest(struct tt_settings *settings, const char *name, const char *value,
                                          const char *origin);
/* Called after the last source: reads the environment's values and settles what aliases mean (`means`). Of two sources
 * the nearer one wins, and the other is forgotten; a contradiction within one source is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_settings_settle(struct tt_settings *settings);
/* The same for a meaning that no row can hold: `alias`, where it is set, says that `name` is `value`. */
TT_MUST_USE tt_status tt_settings_imply(struct tt_settings *settings, const char *alias, const char *name,
                                        const char *value);
/* the command has such a setting */
bool tt_settings_has(const struct tt_settings *settings, const char *name);
/* Checks that required settings are set and that no setting of another axis' word is given; logs once each given
 * setting without effect. A default in a file is not
 * given: a resolved file lists every setting. */
TT_MUST_USE tt_status tt_settings_check(struct tt_settings *settings);
/* True if a source has set it; false for a default. */
bool tt_settings_is_set(const struct tt_settings *settings, const char *name);
/* True if its value is the default, whether a source has set it or not. */
bool tt_settings_has_default(const struct tt_settings *settings, const char *name);
/* Whether conditions hold, written as in struct tt_setting's `needs`. */
bool tt_settings_hold(const struct tt_settings *settings, const char *conditions);
/* Origin of the value ("sft.yaml line 7"); NULL: the default, or no such name. */
const char *tt_settings_origin(const struct tt_settings *settings, const char *name);
/* The resolved settings with the origin of each; parsing the text gives the same values. */
TT_MUST_USE tt_status tt_settings_write_yaml(const struct tt_settings *settings, struct tt_str *text);
/* Only those that a source has set, without keys that have no effect here. */
TT_MUST_USE tt_status tt_settings_write_given(const struct tt_settings *settings, struct tt_str *text);
TT_MUST_USE tt_status tt_settings_help(const struct tt_setting_section *sections, size_t section_count,
                                       int columns, struct tt_str *text);
TT_MUST_USE tt_status tt_settings_docs(const struct tt_setting_section *sections, size_t section_count,
                                       struct tt_str *markdown);

#endif
