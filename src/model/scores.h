/* Models whose head gives each sequence scores: reward models and classifiers of sequences. Their classes are those of
 * transformers (modeling_layers.py, GenericForSequenceClassification, and modeling_auto.py,
 * MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, 5.24). */
#ifndef TT_MODEL_SCORES_H
#define TT_MODEL_SCORES_H

#include "model/model.h"

/* The scores that a job asks for. A zeroed struct asks for none. */
struct tt_scores {
    bool wanted;
    int64_t labels;    /* 0: those of `names`, or where these are NULL the model's own */
    const char *names; /* NULL, or lent: the labels as JSON (io/labels.h) */
};

/* The facts of a folder whose model is a language model, or where scores are wanted has a head of them. A language
 * model gets such a head, which begins with random numbers, in the place of lm_head; of a model that has one the number
 * of labels is checked. TT_ERR_USAGE: another number, or none at all; TT_ERR_UNSUPPORTED: transformers has no such
 * class of this model, or scores are not wanted (tt_model_facts_of_folder). */
TT_MUST_USE tt_status tt_model_facts_for(const struct tt_model_folder *folder, const struct tt_scores *scores,
                                         struct tt_model_facts *facts);
/* The same of a config.json without weights. */
TT_MUST_USE tt_status tt_model_facts_parse_for(const struct tt_json *json, const struct tt_scores *scores,
                                               struct tt_model_facts *facts);
/* Writes into a copy of config.json what says that the model has scores: the class, and the names of labels, which are
 * transformers' LABEL_0, LABEL_1, ... where the facts have none, but for a config.json with as many. */
TT_MUST_USE tt_status tt_model_scores_describe(const struct tt_model_facts *facts,
                                               struct tt_json_value *config);

#endif
