/* The last part of a save, on rank 0, after all ranks have written: the small files, the manifest, a check of the files
 * on disk, and the rename that makes them visible. Internal to src/checkpoint. */
#ifndef TT_CHECKPOINT_PUBLISH_H
#define TT_CHECKPOINT_PUBLISH_H

#include "checkpoint/manifest.h"
#include "checkpoint/save.h"
#include "io/kept_files.h"

struct tt_publication {
    const struct tt_model *model; /* lent, as all below */
    const struct tt_weights_layout *weights;
    const struct tt_model_folder *base; /* or NULL */
    const char *base_name;
    const struct tt_first_adapter *first;     /* where it changed the base; else NULL */
    const struct tt_kept_files *kept;         /* of the model folder */
    const struct tt_save_template *templates; /* as in tt_saver_config */
    size_t template_count;
    const char *torch_name;
    const char *temporary;
    const struct tt_save_job *job;
    struct tt_manifest *manifest; /* lists the large files */
};
TT_MUST_USE tt_status tt_publish(const struct tt_publication *publication);

#endif
