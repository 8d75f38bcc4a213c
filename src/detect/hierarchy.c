#include "detect/hierarchy.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"

enum { DEPTH_MAX = 64 };
#define FILE_BYTES_MAX ((size_t)64 << 20)

struct pair {
    int32_t of, other;
};

struct reading {
    const struct tt_name_index *by_key;
    const struct tt_json *json;
    int32_t above[DEPTH_MAX]; /* labels on the way from the root */
    int depth;
    struct pair *pairs; /* a class, and one above it */
    size_t count, capacity;
};

static tt_status add_node(struct reading *reading, const struct tt_json_value *node, bool root)
{
    const char *key;
    size_t label;
    const struct tt_json_value *below = tt_json_get(node, "Subcategory");
    int depth = reading->depth;
    TT_TRY(tt_json_string(reading->json, node, "LabelName", &key));
    bool known = !root && tt_name_index_find(reading->by_key, key, &label);
    for (int i = 0; known && i < depth; i++) {
        TT_TRY(tt_grow(&reading->pairs, reading->count, &reading->capacity));
        if (reading->above[i] == (int32_t)label)
            return tt_fail(TT_ERR_DATA, "%s: the class '%.60s' is below itself", reading->json->origin, key);
        reading->pairs[reading->count++] = (struct pair){(int32_t)label, reading->above[i]};
    }
    if (known && depth == DEPTH_MAX)
        return tt_fail(TT_ERR_DATA, "%s: more than %d classes are above each other", reading->json->origin,
                       DEPTH_MAX);
    if (known) reading->above[reading->depth++] = (int32_t)label;
    for (size_t i = 0; i < tt_json_count(below); i++) TT_TRY(add_node(reading, tt_json_at(below, i), false));
    reading->depth = depth;
    return TT_OK;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->of != y->of) return x->of < y->of ? -1 : 1;
    return (x->other > y->other) - (x->other < y->other);
}

/* Sorts the pairs and removes duplicates. */
static tt_status relate(struct pair *pairs, size_t count, int64_t class_count,
                        struct tt_class_relation *relation)
{
    int64_t used = 0;
    relation->first = tt_calloc((size_t)class_count + 1, sizeof *relation->first);
    relation->labels = tt_calloc(count + 1, sizeof *relation->labels);
    if (relation->first == NULL || relation->labels == NULL) return TT_ERR_MEMORY;
    if (count > 0) qsort(pairs, count, sizeof *pairs, compare_pairs);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && compare_pairs(&pairs[i - 1], &pairs[i]) == 0) continue;
        relation->labels[used++] = pairs[i].other;
        relation->first[pairs[i].of + 1] = used;
    }
    for (int64_t k = 0; k < class_count; k++)
        if (relation->first[k + 1] < relation->first[k]) relation->first[k + 1] = relation->first[k];
    return TT_OK;
}

static tt_status relate_both(struct reading *reading, struct tt_hierarchy *hierarchy)
{
    TT_TRY(relate(reading->pairs, reading->count, hierarchy->class_count, &hierarchy->above));
    for (size_t i = 0; i < reading->count; i++)
        reading->pairs[i] = (struct pair){reading->pairs[i].other, reading->pairs[i].of};
    return relate(reading->pairs, reading->count, hierarchy->class_count, &hierarchy->below);
}

tt_status tt_hierarchy_read(const char *path, const struct tt_name_index *by_key, int64_t class_count,
                            struct tt_hierarchy *hierarchy)
{
    struct tt_json json = {0};
    struct reading reading = {.by_key = by_key, .json = &json};
    tt_status status = TT_OK;
    *hierarchy = (struct tt_hierarchy){.class_count = class_count};
    TT_GO(tt_json_read(path, FILE_BYTES_MAX, &json));
    if (!tt_json_is_object(json.root))
        TT_GO(tt_fail(TT_ERR_DATA, "'%s' is no hierarchy: an object with LabelName and Subcategory", path));
    TT_GO(add_node(&reading, json.root, true));
    if (reading.count == 0)
        TT_GO(tt_fail(TT_ERR_DATA, "'%s' has no two classes of the annotations above each other", path));
    status = relate_both(&reading, hierarchy);
out:
    tt_free(reading.pairs);
    tt_json_deinit(&json);
    if (status != TT_OK) tt_hierarchy_deinit(hierarchy);
    return status;
}

void tt_hierarchy_deinit(struct tt_hierarchy *hierarchy)
{
    tt_free(hierarchy->above.first);
    tt_free(hierarchy->above.labels);
    tt_free(hierarchy->below.first);
    tt_free(hierarchy->below.labels);
    *hierarchy = (struct tt_hierarchy){0};
}

static int64_t related(const struct tt_hierarchy *hierarchy, const struct tt_class_relation *relation,
                       int32_t label, const int32_t **labels)
{
    if (label < 0 || label >= hierarchy->class_count) return 0;
    *labels = relation->labels + relation->first[label];
    return relation->first[label + 1] - relation->first[label];
}

tt_status tt_hierarchy_expand_truths(const struct tt_hierarchy *hierarchy, const struct tt_map_truth *truths,
                                     int64_t count, struct tt_map_truth **expanded, int64_t *expanded_count)
{
    const int32_t *above = NULL;
    int64_t most = 0, used = 0;
    for (int64_t i = 0; i < count; i++)
        most += 1 + related(hierarchy, &hierarchy->above, truths[i].label, &above);
    struct tt_map_truth *out = tt_calloc((size_t)most + 1, sizeof *out);
    if (out == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int64_t more = related(hierarchy, &hierarchy->above, truths[i].label, &above);
        out[used++] = truths[i];
        for (int64_t j = 0; j < more; j++) {
            out[used] = truths[i];
            out[used++].label = above[j];
        }
    }
    *expanded = out;
    *expanded_count = used;
    return TT_OK;
}

tt_status tt_hierarchy_expand_labels(const struct tt_hierarchy *hierarchy, const struct tt_map_label *labels,
                                     int64_t count, struct tt_map_label **expanded, int64_t *expanded_count)
{
    const int32_t *others = NULL;
    int64_t most = 0, used = 0;
    for (int64_t i = 0; i < count; i++)
        most += 1 + related(hierarchy, labels[i].there ? &hierarchy->above : &hierarchy->below,
                            labels[i].label, &others);
    struct tt_map_label *out = tt_calloc((size_t)most + 1, sizeof *out);
    if (out == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int64_t more = related(hierarchy, labels[i].there ? &hierarchy->above : &hierarchy->below,
                               labels[i].label, &others);
        out[used++] = labels[i];
        for (int64_t j = 0; j < more; j++) {
            out[used] = labels[i];
            out[used++].label = others[j];
        }
    }
    *expanded = out;
    *expanded_count = used;
    return TT_OK;
}
