/* Rows of input_ids, with labels or masks. */
#include <string.h>

#include "data/row_reader_impl.h"

/* A list of integers as long as input_ids, or NULL when the row has none. */
static tt_status find_list(const struct tt_row_reader *reader, const struct tt_json_value *row,
                           const char *key, size_t count, const struct tt_json_value **out)
{
    const struct tt_json_value *list = tt_json_get(row, key);
    *out = NULL;
    if (list == NULL || tt_json_is_null(list)) return TT_OK;
    if (!tt_json_is_list(list)) return tt_row_fail(reader, TT_ERR_DATA, "'%s' must be a list", key);
    if (tt_json_count(list) != count) {
        return tt_row_fail(reader, TT_ERR_DATA, "'%s' has %zu entries, but input_ids has %zu", key,
                           tt_json_count(list), count);
    }
    *out = list;
    return TT_OK;
}

static tt_status take_ids(struct tt_row_reader *reader, const struct tt_json_value *list)
{
    struct tt_json_walk walk = tt_json_walk(list);
    enum tt_json_type type;
    int64_t id;
    tt_row_clear_ids(&reader->ids, 0);
    while (tt_json_walk_next(&walk, &type, &id)) {
        if (type != TT_JSON_INTEGER || id < 0 || id > INT32_MAX) {
            return tt_row_fail(reader, TT_ERR_DATA, "input_ids[%zu] is not a token id", reader->ids.count);
        }
        TT_TRY(tt_ids_append(&reader->ids, (int32_t)id));
    }
    return tt_row_check_ids(reader, false);
}

static tt_status apply_labels(struct tt_row_reader *reader, const struct tt_json_value *labels)
{
    struct tt_json_walk walk = tt_json_walk(labels);
    enum tt_json_type type;
    int64_t label;
    for (size_t i = 0; tt_json_walk_next(&walk, &type, &label); i++) {
        if (type != TT_JSON_INTEGER)
            return tt_row_fail(reader, TT_ERR_DATA, "labels[%zu] is not an integer", i);
        if (label != TT_LABEL_NONE && label != reader->ids.data[i]) {
            return tt_row_fail(reader, TT_ERR_UNSUPPORTED,
                               "labels[%zu] is %lld: a label must repeat its input id (%d) or be -100", i,
                               (long long)label, (int)reader->ids.data[i]);
        }
        if (label == TT_LABEL_NONE) reader->supervised.data[i] = 0;
    }
    return TT_OK;
}

static tt_status apply_mask(struct tt_row_reader *reader, const char *key, const struct tt_json_value *mask)
{
    struct tt_json_walk walk = tt_json_walk(mask);
    enum tt_json_type type;
    int64_t value;
    for (size_t i = 0; tt_json_walk_next(&walk, &type, &value); i++) {
        bool on = type == TT_JSON_TRUE || (type == TT_JSON_INTEGER && value == 1);
        bool off = type == TT_JSON_FALSE || (type == TT_JSON_INTEGER && value == 0);
        if (!on && !off) return tt_row_fail(reader, TT_ERR_DATA, "%s[%zu] must be 0 or 1", key, i);
        if (off) reader->supervised.data[i] = 0;
    }
    return TT_OK;
}

/* Removes the padding that an attention_mask says, at the start and the end. */
static tt_status strip_padding(struct tt_row_reader *reader, const struct tt_json_value *mask)
{
    struct tt_json_walk walk = tt_json_walk(mask);
    enum tt_json_type type;
    int64_t value;
    size_t first = SIZE_MAX, end = 0, ones = 0;
    for (size_t i = 0; tt_json_walk_next(&walk, &type, &value); i++) {
        if (type != TT_JSON_INTEGER || value < 0 || value > 1)
            return tt_row_fail(reader, TT_ERR_DATA, "attention_mask[%zu] must be 0 or 1", i);
        if (value == 0) continue;
        if (ones++ == 0) first = i;
        end = i + 1;
    }
    if (ones == reader->ids.count) return TT_OK;
    if (ones > 0 && end - first != ones) {
        tt_row_fail(reader, TT_ERR_UNSUPPORTED, "attention_mask has zeros between ones");
        tt_hint("zeros are padding, at the start or the end of a row; give each sample of a pack a row of "
                "its own");
        return TT_ERR_UNSUPPORTED;
    }
    if (ones > 0) {
        memmove(reader->ids.data, reader->ids.data + first, ones * sizeof *reader->ids.data);
        memmove(reader->supervised.data, reader->supervised.data + first, ones);
    }
    reader->ids.count = reader->supervised.bytes = ones;
    return TT_OK;
}

/* Refused beside input_ids. */
static const char *const foreign_masks[] = {"loss_mask", "loss_scale", NULL};

static tt_status refuse_masks(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    for (const char *const *key = foreign_masks; *key != NULL; key++) {
        const struct tt_json_value *value = tt_json_get(row, *key);
        if (value == NULL || tt_json_is_null(value)) continue;
        tt_row_fail(reader, TT_ERR_UNSUPPORTED, "'%s' beside input_ids is not read, and tokens would train",
                    *key);
        tt_hint("give labels with -100 where nothing trains, or zeros and ones as completion_mask");
        return TT_ERR_UNSUPPORTED;
    }
    return TT_OK;
}

static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    const struct tt_json_value *ids = tt_json_get(row, "input_ids"), *labels, *mask, *assistant, *attention;
    if (!tt_json_is_list(ids))
        return tt_row_fail(reader, TT_ERR_DATA, "'input_ids' must be a list of integers");
    TT_TRY(refuse_masks(reader, row));
    TT_TRY(take_ids(reader, ids));
    TT_TRY(find_list(reader, row, "labels", reader->ids.count, &labels));
    TT_TRY(find_list(reader, row, "completion_mask", reader->ids.count, &mask));
    TT_TRY(find_list(reader, row, "assistant_masks", reader->ids.count, &assistant));
    TT_TRY(find_list(reader, row, "attention_mask", reader->ids.count, &attention));
    if (reader->config->completion_only_loss == 0) mask = NULL;
    if (reader->config->assistant_only_loss && assistant == NULL && labels == NULL)
        return tt_row_fail(reader, TT_ERR_DATA,
                           "assistant_only_loss is set, but the row has no assistant_masks");
    if (reader->config->completion_only_loss == 1 && mask == NULL && labels == NULL) {
        return tt_row_fail(reader, TT_ERR_DATA,
                           "completion_only_loss is set, but the row has no completion_mask");
    }
    TT_TRY(tt_row_set_supervised(reader, 0));
    if (labels != NULL) TT_TRY(apply_labels(reader, labels));
    if (mask != NULL) TT_TRY(apply_mask(reader, "completion_mask", mask));
    if (assistant != NULL) TT_TRY(apply_mask(reader, "assistant_masks", assistant));
    if (attention != NULL) TT_TRY(strip_padding(reader, attention));
    tt_row_forget_source(reader);
    *out = (struct tt_row){0};
    return TT_OK;
}

static bool accepts(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    (void)reader;
    return tt_json_get(row, "input_ids") != NULL;
}

static const char *const members[] = {"input_ids",      "labels",    "completion_mask", "assistant_masks",
                                      "attention_mask", "loss_mask", "loss_scale",      NULL};

const struct tt_row_kind tt_row_ids = {.name = "ids", .members = members, .accepts = accepts, .read = read};
