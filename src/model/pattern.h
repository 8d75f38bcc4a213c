/* Patterns over module paths, as PEFT defines them.
 * Sources: peft/tuners/tuners_utils.py check_target_module_exists; peft/utils/other.py
 * match_target_against_key and get_pattern_key; behaviour compared with PEFT 0.21. */
#ifndef TT_MODEL_PATTERN_H
#define TT_MODEL_PATTERN_H

#include "base/json.h"
#include "base/regex.h"

/* A list of names (a path matches when it equals an entry or ends with ".entry") or one regular expression
 * that must match the whole path. A zeroed struct is "not given" and matches nothing. */
struct tt_name_pattern {
    const char *setting;    /* for messages: "target_modules" */
    struct tt_regex *regex; /* of `expression`, or: */
    const char *expression;
    struct tt_json list; /* strings */
    size_t count;
    bool *used; /* [count]: the entry matched some path */
    bool given;
};

/* How a text is read. PEFT's adapter_config.json has a JSON list or an expression. In a setting a single word of
 * letters, digits and underscores is a list of one (as an expression it could only match a module at the top), and a
 * list of one expression is the expression, as in TRL. A list of names takes a name, also one with points, or a JSON
 * list, whose entries stay what they are; an expression is TT_ERR_USAGE. */
enum tt_name_spelling { TT_NAMES_OF_ADAPTER, TT_NAMES_OF_SETTING, TT_NAMES_AS_LIST };

/* `text`: NULL is "not given". It is lent. */
TT_MUST_USE tt_status tt_name_pattern_init(struct tt_name_pattern *pattern, const char *setting,
                                           const char *text, enum tt_name_spelling spelling);
void tt_name_pattern_deinit(struct tt_name_pattern *pattern);
const char *tt_name_pattern_entry(const struct tt_name_pattern *pattern, size_t index);
/* `exact` (may be NULL): an entry of the list is the whole path. */
TT_MUST_USE tt_status tt_name_pattern_match(struct tt_name_pattern *pattern, const char *path, bool *matched,
                                            bool *exact);

/* Parses the JSON text of a setting; invalid JSON is TT_ERR_USAGE, which names the setting. */
TT_MUST_USE tt_status tt_pattern_parse(const char *setting, const char *text, struct tt_json *json);

/* rank_pattern and alpha_pattern: {key: number}; the value of the first key for which (.*\.)?(key) matches the path. */
struct tt_value_pattern {
    const char *setting;
    struct tt_json object;
    struct tt_regex **regexes; /* [count], in the order of the object */
    const char **keys;
    double *values;
    bool *used;
    size_t count;
};

/* Values must be in [minimum, maximum], integers when `integers`. */
TT_MUST_USE tt_status tt_value_pattern_init(struct tt_value_pattern *pattern, const char *setting,
                                            const char *text, bool integers, double minimum, double maximum);
void tt_value_pattern_deinit(struct tt_value_pattern *pattern);
/* *value is unchanged when no key matches. `ambiguous` (may be NULL) is set when a later key with another value also
 * matches: then the order of the keys matters. */
TT_MUST_USE tt_status tt_value_pattern_find(struct tt_value_pattern *pattern, const char *path, double *value,
                                            bool *ambiguous);

#endif
