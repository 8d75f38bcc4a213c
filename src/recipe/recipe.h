/* Configurations of other trainers as settings of a training.
 *
 * Each key of the file is set in the store of a training, at its meaning there (config/elsewhere.def, and
 * the readers of recipe/<program>.c for keys that several settings stand for, such as data sets). Defaults
 * of the other program that differ from ours are set too. What changes the result and cannot be carried
 * over is an error that lists all of it. */
#ifndef TT_RECIPE_RECIPE_H
#define TT_RECIPE_RECIPE_H

#include "base/str.h"
#include "config/settings.h"

struct tt_recipe_request {
    const char *path;
    const char *from; /* the program ("axolotl", "llama-factory"); NULL: found by the keys */
    bool partial;     /* what cannot be carried over is listed in `lacking` and is no error */
};

/* Names of the programs, separated by blanks. */
extern const char tt_recipe_programs[];

/* Sets the settings of the file in `settings`, which has those of a training and no values yet. Appends to `notes`
 * lines about keys without effect and about differences, to `lacking` one line for each key that is not carried over.
 * TT_ERR_USAGE for a file of neither program; TT_ERR_UNSUPPORTED where a key is not carried over, unless `partial`. */
TT_MUST_USE tt_status tt_recipe_convert(const struct tt_recipe_request *request, struct tt_settings *settings,
                                        struct tt_str *notes, struct tt_str *lacking);

#endif
