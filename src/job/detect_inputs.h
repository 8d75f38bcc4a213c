/* The inputs of a detection: images with boxes, the network, and the weights that it begins with. */
#ifndef TT_JOB_DETECT_INPUTS_H
#define TT_JOB_DETECT_INPUTS_H

#include "data/dataset.h"
#include "detect/loader.h"
#include "job/detect_spec.h"
#include "job/inputs.h"
#include "model/detector_weights.h"

/* A zeroed struct is empty. */
struct tt_detect_inputs {
    const struct tt_detect_spec *spec;      /* lent */
    struct tt_pixel_cache *cache;           /* NULL: none */
    struct tt_detect_dataset *train, *eval; /* NULL when not asked for */
    struct tt_detector_weights weights;     /* empty: random ones */
    enum tt_norms norm;                     /* of a training: frozen or batch */
    /* of a training: the annotations have classes that are not among those beside the weights */
    bool other_classes;
    /* Files stored with the weights: the network as config.json, and the classes as Open Images lists them, by which a
     * later job numbers them alike. */
    struct tt_str config_json, classes_csv;
};

struct tt_detect_inputs_config {
    const struct tt_detect_spec *spec; /* lent, as long as the inputs live */
    const struct tt_data_config *data; /* dataset_name, eval_dataset and their splits; lent */
    bool trains, evaluates;
};
/* Fills `facts` too. */
TT_MUST_USE tt_status tt_detect_inputs_open(const struct tt_detect_inputs_config *config,
                                            struct tt_detect_inputs *inputs, struct tt_model_facts *facts);
void tt_detect_inputs_close(struct tt_detect_inputs *inputs);
/* Those of the inputs of a job whose task is detection. */
struct tt_detect_inputs *tt_detect_inputs_of(const struct tt_inputs *inputs);
/* "training data: 200 images, 1234 boxes, 12 classes; ...", with what was left out. */
TT_MUST_USE tt_status tt_detect_inputs_describe(const struct tt_detect_dataset *dataset, const char *what,
                                                struct tt_str *text);
/* "weights: ...", with what begins anew. */
TT_MUST_USE tt_status tt_detect_inputs_describe_weights(const struct tt_detect_inputs *inputs,
                                                        struct tt_str *text);

/* The network without its data: that of weights_path, else one of random weights. `class_count`: columns of the
 * classifier; 0: those of the weights, or COCO's 91. */
TT_MUST_USE tt_status tt_detect_network(const struct tt_detect_spec *spec, int64_t class_count,
                                        struct tt_model_facts *facts);

/* How images are ordered and placed. Evaluation: each image on a canvas of its own, so that nothing depends on who
 * shares its batch. */
struct tt_detect_order_config tt_detect_inputs_order(const struct tt_detect_spec *spec, bool train,
                                                     int64_t batch_size, int world_size, int64_t accumulation,
                                                     uint64_t seed);
/* A sum of names, sizes and boxes of the images, in their order. */
uint64_t tt_detect_inputs_sum(const struct tt_detect_dataset *dataset);

#endif
