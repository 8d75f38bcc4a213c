/* Private header of the readers of a program's keys. */
#ifndef TT_RECIPE_RECIPE_IMPL_H
#define TT_RECIPE_RECIPE_IMPL_H

#include "config/foreign.h"
#include "config/yaml.h"
#include "recipe/recipe.h"

struct tt_recipe;

/* A key that more than one row of elsewhere.def is needed for. */
struct tt_recipe_key {
    const char *key; /* NULL: the end of the table */
    tt_status (*read)(struct tt_recipe *recipe, const struct tt_yaml_node *node);
};

/* A value that the program has where its file says nothing, and we have not. */
struct tt_recipe_default {
    const char *setting, *value; /* NULL: the end of the table */
};

struct tt_recipe_format {
    const char *name;    /* of the flag */
    const char *program; /* in elsewhere.def */
    const struct tt_recipe_key *keys;
    const struct tt_recipe_default *defaults;
    tt_status (*finish)(struct tt_recipe *recipe); /* after all keys, before the defaults */
};

struct tt_recipe {
    const struct tt_recipe_format *format;
    const struct tt_yaml_node *root;
    const char *path;
    struct tt_settings *settings; /* lent */
    struct tt_str *notes, *lacking;
    size_t lacking_count;
};

/* The text of a scalar of the file's top level; NULL: absent, null, or none. */
const char *tt_recipe_text(const struct tt_recipe *recipe, const char *key);
/* Whether such a scalar is true. */
bool tt_recipe_is_true(const struct tt_recipe *recipe, const char *key);
/* Whether one of the values is that text. */
bool tt_recipe_is_one(const char *text, const char *words);
/* Sets a setting for the key `node`; a value that it refuses is not carried over. */
TT_MUST_USE tt_status tt_recipe_put(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                                    const char *setting, const char *value);
/* The same with the value of the node, whatever it is. */
TT_MUST_USE tt_status tt_recipe_put_node(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                                         const char *setting);
/* The program's own value where the file gives none. */
TT_MUST_USE tt_status tt_recipe_suppose(struct tt_recipe *recipe, const char *setting, const char *value);
/* The key is not carried over: `what` to write. */
TT_MUST_USE tt_status tt_recipe_lack(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                                     const char *format, ...) TT_PRINTF(3, 4);
/* The key has no effect, or a somewhat different one: why. */
TT_MUST_USE tt_status tt_recipe_note(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                                     const char *format, ...) TT_PRINTF(3, 4);
/* A file of DeepSpeed: the stage that its name or its text says. */
TT_MUST_USE tt_status tt_recipe_read_deepspeed(struct tt_recipe *recipe, const struct tt_yaml_node *node);

/* The rows of a data set: one source, or a mixture as a JSON list. */
struct tt_recipe_sources {
    struct tt_str list; /* of {"path", "split", "data_files"} as JSON, without brackets */
    char only[512];     /* the path of the first one */
    size_t count;
    bool plain; /* the only one is a path alone */
};
TT_MUST_USE tt_status tt_recipe_add_source(struct tt_recipe_sources *sources, const char *path,
                                           const char *split, const char *data_files);
/* Sets dataset_name, or datasets. */
TT_MUST_USE tt_status tt_recipe_put_sources(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                                            const struct tt_recipe_sources *sources);

#define FORMAT(name) extern const struct tt_recipe_format tt_recipe_##name;
#include "recipe/formats.def"
#undef FORMAT

#endif
