/* Folders of models that have other parts beside a text model: a vision tower, a projector. One row of a table for each
 * class of transformers: where the text model is inside the class, how the folders of old and new versions spell the
 * names of its tensors, and which tensors belong to the other parts. The text model is read, trained and written; the
 * other parts' tensors are left alone. Source: conversion_mapping.py, configuration_*.py and modeling_*.py of
 * transformers 5.24. */
#ifndef TT_IO_TEXT_PART_H
#define TT_IO_TEXT_PART_H

#include "base/json.h"

/* Names that begin with `from` are those of the class with `to` instead. Lists end with a NULL from; the first that
 * fits counts. */
struct tt_part_rename {
    const char *from, *to;
};

struct tt_text_part {
    const char *model_type;   /* of the folder: "gemma3" */
    const char *architecture; /* "Gemma3ForConditionalGeneration" */
    const char *path;         /* of the text model in the class: "model.language_model" */
    const char *table;        /* the weight of its embeddings */
    const char *text_type;    /* the text model's model_type where the configuration names none */
    const char *what;         /* the parts that are left alone: "vision tower and projector" */
    bool tied;                /* tie_word_embeddings where the configuration lacks it */
    bool text_ties;           /* true in text_config counts too */
    bool has_head;            /* published folders may lack it and have a head of their own */
    const struct tt_part_rename *renames;
    const char *const *others; /* beginnings of the other parts' names; ends with NULL */
};

/* The row of a folder with this config.json; NULL: the whole folder is a text model, or the class is unknown. */
const struct tt_text_part *tt_text_part_find(const struct tt_json_value *config);
const struct tt_text_part *tt_text_part_at(size_t index); /* NULL after the last one */
/* The text model's configuration: text_config, or where there is none the whole, as files before transformers 4.52 have
 * it. */
struct tt_json_value *tt_text_part_config(const struct tt_json_value *config);
/* The class's name for a tensor by a list (NULL: none), and the files' name for one of the class; `name` itself where
 * it is that. Memory of `arena`; NULL: none left (record set). */
const char *tt_part_renamed(const struct tt_part_rename *renames, const char *name, struct tt_arena *arena);
const char *tt_part_stored_name(const struct tt_part_rename *renames, const char *name,
                                struct tt_arena *arena);
/* The first by the row's list. */
const char *tt_text_part_name(const struct tt_text_part *part, const char *name, struct tt_arena *arena);
/* The same for a parameter's path in the file of an adapter, which may also have been made over the text model alone:
 * "model.layers.0..." */
const char *tt_text_part_adapted_name(const struct tt_text_part *part, const char *name,
                                      struct tt_arena *arena);
/* Whether the class's name `name` is of a part that is left alone. NULL for `part`: false. */
bool tt_text_part_leaves(const struct tt_text_part *part, const char *name);
/* Sets tie_word_embeddings to false in a copy of config.json, wherever it is read. */
void tt_text_part_untie(struct tt_json_value *config);

#endif
