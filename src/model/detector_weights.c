#include "model/detector_weights.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "io/pth.h"
#include "nn/pass.h"

enum { NAME_BYTES = 160, SUM_BLOCK = 1 << 20, BLOCKS_MAX = 64 };

static const char body[] = "backbone.body.";
static const char classifier[] = "head.classification_head.cls_logits.";
/* torchvision publishes RetinaNet_ResNet50_FPN_Weights.COCO_V1 as retinanet_resnet50_fpn_coco-eeacb38b.pth: the name
 * ends in the first bytes of the file's SHA-256. */
static const uint8_t coco_v1[4] = {0xee, 0xac, 0xb3, 0x8b};

/* Releases of torchvision before 0.13 wrote "inner_blocks.0.weight" for "inner_blocks.0.0.weight", and a head had every
 * second of its modules: "conv.4.weight" for "conv.2.0.weight". */
static bool make_new_name(const char *old, char *name, size_t bytes)
{
    static const struct {
        const char *part;
        int step;
    } parts[] = {{"inner_blocks.", 1}, {"layer_blocks.", 1}, {"_head.conv.", 2}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(old, parts[i].part);
        if (at == NULL) continue;
        const char *number = at + strlen(parts[i].part);
        bool ends = strcmp(number + (number[0] != '\0'), ".weight") == 0 ||
                    strcmp(number + (number[0] != '\0'), ".bias") == 0;
        if (number[0] < '0' || number[0] > '9' || !ends) return false;
        (void)snprintf(name, bytes, "%.*s%d.0%s", (int)(number - old), old, (number[0] - '0') / parts[i].step,
                       number + 1);
        return true;
    }
    return false;
}

/* Counters of batches have no effect on frozen norms, and the last layer of a ResNet is no part of a detector. */
static bool rename_tensor(void *context, const struct tt_safetensors_entry *entry, char *to, size_t bytes)
{
    const struct tt_detector_weights *weights = context;
    const char *name = entry->name;
    if (tt_ends_with(name, ".num_batches_tracked")) return false;
    if (weights->backbone_alone) {
        (void)snprintf(to, bytes, "%s%s", body, name);
        return !tt_starts_with(name, "fc.");
    }
    if (!make_new_name(name, to, bytes)) (void)snprintf(to, bytes, "%s", name);
    return !(weights->replaces_classes && tt_starts_with(to, classifier));
}

static tt_status find_dim(const struct tt_safetensors *file, const char *name, int64_t *dim)
{
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
    if (entry == NULL || entry->rank < 1) {
        tt_fail(TT_ERR_DATA, "'%s' is not a RetinaNet of torchvision: it has no tensor '%s'",
                tt_safetensors_path(file), name);
        tt_hint("weights of retinanet_resnet50_fpn, as a state dictionary or as the member model of a "
                "checkpoint, are "
                "read");
        return TT_ERR_DATA;
    }
    *dim = entry->dims[0];
    return TT_OK;
}

static tt_status choose_eps(const char *path, double *eps)
{
    crypto_hash_sha256_state state;
    uint8_t sum[crypto_hash_sha256_BYTES];
    int descriptor;
    uint64_t bytes;
    if (*eps >= 0) return TT_OK;
    TT_TRY(tt_file_open_read(path, &descriptor, &bytes));
    uint8_t *block = tt_calloc(SUM_BLOCK, 1);
    tt_status status = block != NULL ? TT_OK : TT_ERR_MEMORY;
    crypto_hash_sha256_init(&state);
    for (uint64_t at = 0; at < bytes && status == TT_OK; at += SUM_BLOCK) {
        size_t now = bytes - at < SUM_BLOCK ? (size_t)(bytes - at) : SUM_BLOCK;
        status = tt_file_pread(descriptor, path, block, now, at);
        if (status == TT_OK) crypto_hash_sha256_update(&state, block, now);
    }
    crypto_hash_sha256_final(&state, sum);
    tt_free(block);
    tt_file_close(descriptor);
    *eps = memcmp(sum, coco_v1, sizeof coco_v1) == 0 ? 0 : 1e-5;
    return status;
}

/* Tensors of the backbone: their names have `prefix`. */
static tt_status read_backbone(const struct tt_safetensors *file, const char *prefix,
                               struct tt_retinanet_config *shape)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "%sconv1.weight", prefix);
    TT_TRY(find_dim(file, name, &shape->width));
    for (int stage = 0; stage < TT_RETINANET_STAGES; stage++) {
        int64_t *blocks = &shape->blocks[stage];
        for (*blocks = 0; *blocks < BLOCKS_MAX; ++*blocks) {
            (void)snprintf(name, sizeof name, "%slayer%d.%lld.conv1.weight", prefix, stage + 1,
                           (long long)*blocks);
            if (tt_safetensors_find(file, name) == NULL) break;
        }
    }
    return TT_OK;
}

static tt_status read_shape(const struct tt_safetensors *file, int64_t class_count,
                            enum tt_classifier_fit fit, struct tt_detector_weights *weights)
{
    struct tt_retinanet_config *shape = &weights->shape;
    int64_t columns;
    const char *inner = "backbone.fpn.inner_blocks.0.0.weight", *old = "backbone.fpn.inner_blocks.0.weight";
    *shape = tt_retinanet_config_default(class_count > 0 ? class_count : 2);
    weights->backbone_alone = class_count > 0 && tt_safetensors_find(file, "conv1.weight") != NULL &&
                              tt_safetensors_find(file, "backbone.body.conv1.weight") == NULL;
    if (weights->backbone_alone) return read_backbone(file, "", shape);
    TT_TRY(find_dim(file, "head.classification_head.cls_logits.weight", &columns));
    TT_TRY(find_dim(file, tt_safetensors_find(file, old) != NULL ? old : inner, &shape->pyramid));
    columns /= TT_ANCHORS_EACH;
    if (tt_safetensors_find(file, "head.classification_head.conv.0.1.weight") != NULL)
        shape->head_groups = TT_RETINANET_GROUPS;
    bool takes = class_count == 0 || (fit != TT_CLASSIFIER_ANEW && columns == class_count) ||
                 (fit == TT_CLASSIFIER_OR_MORE && columns > class_count);
    weights->replaces_classes = !takes;
    shape->class_count = takes ? columns : class_count;
    return read_backbone(file, body, shape);
}

tt_status tt_detector_weights_open(const char *path, double norm_eps, int64_t class_count,
                                   enum tt_classifier_fit fit, struct tt_detector_weights *weights)
{
    struct tt_safetensors *file = NULL;
    bool pickled;
    *weights = (struct tt_detector_weights){0};
    tt_status status = tt_weights_open(path, &file, &pickled);
    if (status == TT_OK) status = read_shape(file, class_count, fit, weights);
    weights->shape.norm_eps = norm_eps;
    if (status == TT_OK) status = choose_eps(path, &weights->shape.norm_eps);
    if (status != TT_OK)
        tt_safetensors_close(file);
    else
        status = tt_model_folder_of_file(file, rename_tensor, weights, &weights->folder);
    return status;
}

void tt_detector_weights_close(struct tt_detector_weights *weights)
{
    tt_model_folder_close(weights->folder);
    *weights = (struct tt_detector_weights){0};
}

static bool is_expected(const struct tt_detector_weights *weights, const char *name)
{
    if (weights->backbone_alone) return tt_starts_with(name, body);
    return !(weights->replaces_classes && tt_starts_with(name, classifier));
}

tt_status tt_detector_weights_check(const struct tt_detector_weights *weights, const struct tt_model *model)
{
    const char *path = tt_model_folder_path(weights->folder);
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        const struct tt_safetensors_entry *entry = tt_model_folder_find(weights->folder, param->name);
        if (!is_expected(weights, param->name)) continue;
        if (entry == NULL) return tt_fail(TT_ERR_DATA, "'%s' has no tensor '%s'", path, param->name);
        bool same = entry->rank == param->rank;
        for (int d = 0; same && d < param->rank; d++) same = entry->dims[d] == param->dims[d];
        if (!same)
            return tt_fail(TT_ERR_DATA, "'%s': tensor '%s' has another shape than the network", path,
                           param->name);
    }
    return TT_OK;
}
