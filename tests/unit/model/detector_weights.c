/* Weights of a detector in one file: names of today and of torchvision before 0.13, a ResNet alone, other classes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/pth.h"
#include "model/detector_weights.h"
#include "support/root.h"

enum { NAME_BYTES = 200, TENSORS_MAX = 200, CLASSES = 3 };

/* What becomes of the name of a parameter; false: the file lacks it. */
typedef bool rename_function(const char *name, char to[NAME_BYTES]);

static bool same(const char *name, char to[NAME_BYTES])
{
    (void)snprintf(to, NAME_BYTES, "%s", name);
    return true;
}

/* Takes the second number out of "inner_blocks.0.0.weight", and doubles the one of "_head.conv.1.0.weight". */
static bool old(const char *name, char to[NAME_BYTES])
{
    static const char *const parts[] = {"inner_blocks.", "layer_blocks.", "_head.conv."};
    (void)same(name, to);
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(name, parts[i]);
        if (at == NULL) continue;
        const char *number = at + strlen(parts[i]);
        (void)snprintf(to, NAME_BYTES, "%.*s%d%s", (int)(number - name), name,
                       (number[0] - '0') * (i == 2 ? 2 : 1), number + 3);
    }
    return true;
}

static bool alone(const char *name, char to[NAME_BYTES])
{
    static const char body[] = "backbone.body.";
    if (strncmp(name, body, strlen(body)) != 0) return false;
    return same(name + strlen(body), to);
}

static bool without_p6(const char *name, char to[NAME_BYTES])
{
    return strstr(name, ".p6.") == NULL && same(name, to);
}

static struct tt_model *make_model(int64_t classes)
{
    struct tt_retinanet_config config = tt_retinanet_config_default(classes);
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    struct tt_model *model = NULL;
    config.width = 2;
    config.pyramid = 4;
    for (int i = 0; i < TT_RETINANET_STAGES; i++) config.blocks[i] = i == 1 ? 2 : 1;
    assert_non_null(facts);
    assert_int_equal(tt_retinanet_facts(&config, facts), TT_OK);
    const struct tt_model_options options = {.compute_dtype = TT_F32, .random_init = true};
    assert_int_equal(tt_model_create(facts, &options, &model), TT_OK);
    tt_free(facts);
    return model;
}

/* Every value is the number of its parameter. */
static tt_status read_number(void *context, size_t index, int64_t first, int64_t count, void *to)
{
    (void)context, (void)first;
    for (int64_t i = 0; i < count; i++) ((float *)to)[i] = (float)index;
    return TT_OK;
}

/* Writes the file, with a tensor that no detector has where `extra` is given. Returns its path. */
static const char *write_file(const struct tt_model *model, rename_function *rename, const char *extra)
{
    static char names[TENSORS_MAX][NAME_BYTES];
    struct tt_safetensors_entry entries[TENSORS_MAX] = {{0}};
    size_t count = 0;
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        struct tt_safetensors_entry *entry = &entries[count];
        if (!rename(param->name, names[count])) continue;
        *entry = (struct tt_safetensors_entry){.name = names[count], .dtype = TT_F32, .rank = param->rank};
        memcpy(entry->dims, param->dims, (size_t)param->rank * sizeof *param->dims);
        count++;
    }
    if (extra != NULL)
        entries[count++] =
            (struct tt_safetensors_entry){.name = extra, .dtype = TT_F32, .rank = 1, .dims = {1}};
    assert_int_equal(tt_pth_write(test_at("weights.pth"), entries, count, read_number, NULL), TT_OK);
    return test_at("weights.pth");
}

static void check_value(const struct tt_detector_weights *weights, const char *name, float value)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(weights->folder, name);
    float first = -1;
    assert_non_null(entry);
    assert_int_equal(tt_model_folder_read(weights->folder, entry, 0, 1, &first, TT_F32), TT_OK);
    if (first != value) fail_msg("%s begins with %g, not %g", name, first, value);
}

static void names_of_today_and_before(void **state)
{
    (void)state;
    struct tt_model *model = make_model(CLASSES);
    rename_function *const renames[] = {same, old};
    for (int i = 0; i < 2; i++) {
        struct tt_detector_weights weights;
        const char *extra = "backbone.body.bn1.num_batches_tracked";
        assert_int_equal(tt_detector_weights_open(write_file(model, renames[i], extra), -1, 0,
                                                  TT_CLASSIFIER_EXACT, &weights),
                         TT_OK);
        assert_int_equal(weights.shape.class_count, CLASSES);
        assert_int_equal(weights.shape.width, 2);
        assert_int_equal(weights.shape.pyramid, 4);
        assert_int_equal(weights.shape.blocks[1], 2);
        assert_true(weights.shape.norm_eps == 1e-5);
        assert_int_equal(tt_detector_weights_check(&weights, model), TT_OK);
        assert_int_equal(tt_model_folder_tensor_count(weights.folder), model->param_count);
        for (size_t p = 0; p < model->param_count; p++)
            check_value(&weights, model->params[p]->name, (float)p);
        tt_detector_weights_close(&weights);
    }
    tt_model_destroy(model);
}

static void another_number_of_classes(void **state)
{
    (void)state;
    struct tt_model *model = make_model(CLASSES), *wider = make_model(CLASSES + 2);
    struct tt_detector_weights weights;
    const char *path = write_file(model, same, NULL), *last = "head.classification_head.cls_logits.weight";
    assert_int_equal(tt_detector_weights_open(path, 0, CLASSES + 2, TT_CLASSIFIER_OR_MORE, &weights), TT_OK);
    assert_true(weights.replaces_classes && weights.shape.class_count == CLASSES + 2);
    assert_null(tt_model_folder_find(weights.folder, last));
    assert_int_equal(tt_detector_weights_check(&weights, wider), TT_OK);
    tt_detector_weights_close(&weights);
    assert_int_equal(tt_detector_weights_open(path, 0, CLASSES, TT_CLASSIFIER_ANEW, &weights), TT_OK);
    assert_true(weights.replaces_classes && weights.shape.class_count == CLASSES);
    tt_detector_weights_close(&weights);
    assert_int_equal(tt_detector_weights_open(path, 0, CLASSES - 1, TT_CLASSIFIER_OR_MORE, &weights), TT_OK);
    assert_true(!weights.replaces_classes && weights.shape.class_count == CLASSES);
    tt_detector_weights_close(&weights);
    assert_int_equal(tt_detector_weights_open(path, 0, CLASSES - 1, TT_CLASSIFIER_EXACT, &weights), TT_OK);
    assert_true(weights.replaces_classes && weights.shape.class_count == CLASSES - 1);
    assert_int_equal(tt_detector_weights_check(&weights, model), TT_OK); /* all but the classifier */
    tt_detector_weights_close(&weights);
    tt_model_destroy(model);
    tt_model_destroy(wider);
}

static void a_backbone_alone(void **state)
{
    (void)state;
    struct tt_model *model = make_model(CLASSES);
    struct tt_detector_weights weights;
    const char *path = write_file(model, alone, "fc.weight");
    assert_int_equal(tt_detector_weights_open(path, -1, CLASSES, TT_CLASSIFIER_EXACT, &weights), TT_OK);
    assert_true(weights.backbone_alone && weights.shape.width == 2 && weights.shape.blocks[1] == 2);
    assert_null(tt_model_folder_find(weights.folder, "backbone.body.fc.weight"));
    assert_int_equal(tt_detector_weights_check(&weights, model), TT_OK);
    check_value(&weights, "backbone.body.conv1.weight", 0);
    tt_detector_weights_close(&weights);
    /* It finds nothing by itself. */
    assert_int_equal(tt_detector_weights_open(path, -1, 0, TT_CLASSIFIER_EXACT, &weights), TT_ERR_DATA);
    tt_model_destroy(model);
}

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    struct tt_model *model = make_model(CLASSES);
    struct tt_detector_weights weights;
    assert_int_equal(tt_detector_weights_open(write_file(model, without_p6, NULL), -1, CLASSES,
                                              TT_CLASSIFIER_EXACT, &weights),
                     TT_OK);
    assert_int_equal(tt_detector_weights_check(&weights, model), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "extra_blocks.p6."));
    tt_detector_weights_close(&weights);
    tt_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_today_and_before),
        cmocka_unit_test(another_number_of_classes),
        cmocka_unit_test(a_backbone_alone),
        cmocka_unit_test(a_missing_tensor_is_named),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
