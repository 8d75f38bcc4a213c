/* Annotations in the CSV files of Open Images. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "detect/annotations.h"
#include "base/csv.h"

enum { ID_BYTES = 160 };

/* Columns by their names in the header; files of newer versions have more. */
struct columns {
    int image, label, x_min, x_max, y_min, y_max, group;
};

static tt_status find_columns(const struct tt_csv *csv, struct columns *columns)
{
    static const char *const names[] = {"ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"};
    int *const places[] = {&columns->image, &columns->label, &columns->x_min,
                           &columns->x_max, &columns->y_min, &columns->y_max};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *places[i] = tt_csv_column(csv, names[i]);
        if (*places[i] >= 0) continue;
        tt_fail(TT_ERR_DATA, "'%s' has no column '%s'", csv->path, names[i]);
        tt_hint("boxes of Open Images have a header with ImageID, LabelName, XMin, XMax, YMin and YMax");
        return TT_ERR_DATA;
    }
    columns->group = tt_csv_column(csv, "IsGroupOf");
    return TT_OK;
}

static bool copy_field(const struct tt_csv *csv, int column, char text[ID_BYTES])
{
    if (column >= csv->count || csv->fields[column].bytes >= ID_BYTES) return false;
    memcpy(text, csv->fields[column].data, csv->fields[column].bytes);
    text[csv->fields[column].bytes] = '\0';
    return text[0] != '\0';
}

static tt_status read_box(const struct tt_csv *csv, const struct columns *columns, struct tt_detect_box *box)
{
    double x_max, y_max, group = 0;
    TT_TRY(tt_csv_number(csv, columns->x_min, &box->x));
    TT_TRY(tt_csv_number(csv, columns->x_max, &x_max));
    TT_TRY(tt_csv_number(csv, columns->y_min, &box->y));
    TT_TRY(tt_csv_number(csv, columns->y_max, &y_max));
    if (columns->group >= 0) TT_TRY(tt_csv_number(csv, columns->group, &group));
    bool inside =
        box->x >= 0 && box->y >= 0 && x_max <= 1 && y_max <= 1 && box->x <= x_max && box->y <= y_max;
    if (!inside)
        return tt_fail(TT_ERR_DATA, "'%s', row %lld: the box %g, %g to %g, %g is not in the image (0 to 1)",
                       csv->path, (long long)csv->row, box->x, box->y, x_max, y_max);
    box->w = x_max - box->x;
    box->h = y_max - box->y;
    box->crowd = group == 1;
    return TT_OK;
}

/* One row of a box; `absent`: the last image that was not there. */
static tt_status read_row(struct tt_annotations *notes, const struct tt_csv *csv,
                          const struct columns *columns, char absent[ID_BYTES], double share, bool keep_share)
{
    char id[ID_BYTES], key[ID_BYTES];
    struct tt_noted_box noted = {.fractions = true};
    if (!copy_field(csv, columns->image, id) || !copy_field(csv, columns->label, key))
        return tt_fail(TT_ERR_DATA, "'%s', row %lld has no ImageID or no LabelName", csv->path,
                       (long long)csv->row);
    if (share > 0 && tt_annotations_in_share(id, share) != keep_share) return TT_OK;
    if (!tt_name_index_find(&notes->by_name, id, &noted.image)) {
        /* Rows of an image follow each other. */
        if (strcmp(absent, id) != 0 && notes->report.images_absent++ == 0)
            snprintf(notes->report.first_absent, sizeof notes->report.first_absent, "%s", id);
        memcpy(absent, id, ID_BYTES);
        notes->report.rows_absent++;
        return TT_OK;
    }
    notes->images[noted.image].noted = true;
    TT_TRY(read_box(csv, columns, &noted.box));
    TT_TRY(tt_annotations_label(notes, key, &noted.box.label));
    return tt_annotations_add_box(notes, &noted);
}

tt_status tt_open_images_read(struct tt_annotations *notes, const char *path, double share, bool keep_share)
{
    struct tt_csv csv;
    struct columns columns;
    char absent[ID_BYTES] = "";
    bool found = false;
    TT_TRY(tt_csv_open(path, &csv));
    tt_status status = tt_csv_next(&csv, &found);
    if (status == TT_OK && !found) status = tt_fail(TT_ERR_DATA, "'%s' is empty", path);
    if (status == TT_OK) status = find_columns(&csv, &columns);
    while (status == TT_OK) {
        status = tt_csv_next(&csv, &found);
        if (status != TT_OK || !found) break;
        status = read_row(notes, &csv, &columns, absent, share, keep_share);
    }
    tt_csv_close(&csv);
    return status;
}

static tt_status add_class(struct tt_annotations *notes, const struct tt_csv *csv, int64_t label)
{
    char key[ID_BYTES], name[ID_BYTES];
    size_t other;
    if (!copy_field(csv, 0, key) || !copy_field(csv, 1, name))
        return tt_fail(TT_ERR_DATA, "'%s', row %lld: a class needs a key and a name", csv->path,
                       (long long)csv->row);
    if (tt_name_index_find(&notes->by_key, key, &other))
        return tt_fail(TT_ERR_DATA, "'%s', row %lld: the class '%s' is there twice", csv->path,
                       (long long)csv->row, key);
    TT_TRY(tt_annotations_set_class(notes, label, key, name, label));
    return tt_name_index_add(&notes->by_key, notes->classes[label].key, (size_t)label);
}

tt_status tt_open_images_read_classes(struct tt_annotations *notes, const char *path)
{
    struct tt_csv csv;
    bool found = false;
    int64_t label = 1;
    TT_TRY(tt_csv_open(path, &csv));
    tt_status status = TT_OK;
    for (;;) {
        status = tt_csv_next(&csv, &found);
        if (status != TT_OK || !found) break;
        if (label == 1 && tt_csv_column(&csv, "LabelName") == 0) continue;
        status = add_class(notes, &csv, label++);
        if (status != TT_OK) break;
    }
    tt_csv_close(&csv);
    if (status == TT_OK && label == 1) return tt_fail(TT_ERR_DATA, "'%s' lists no classes", path);
    notes->classes_fixed = true;
    return status;
}

static tt_status read_label(struct tt_annotations *notes, const struct tt_csv *csv, const int columns[3])
{
    char id[ID_BYTES], key[ID_BYTES];
    struct tt_noted_label noted;
    size_t label;
    double there;
    if (!copy_field(csv, columns[0], id) || !copy_field(csv, columns[1], key))
        return tt_fail(TT_ERR_DATA, "'%s', row %lld has no ImageID or no LabelName", csv->path,
                       (long long)csv->row);
    TT_TRY(tt_csv_number(csv, columns[2], &there));
    if (!tt_name_index_find(&notes->by_name, id, &noted.image) ||
        !tt_name_index_find(&notes->by_key, key, &label))
        return TT_OK;
    noted.label = (int32_t)label;
    noted.there = there > 0;
    TT_TRY(tt_grow(&notes->labels, notes->label_count, &notes->label_capacity));
    notes->labels[notes->label_count++] = noted;
    return TT_OK;
}

tt_status tt_open_images_read_labels(struct tt_annotations *notes, const char *path)
{
    static const char *const names[] = {"ImageID", "LabelName", "Confidence"};
    struct tt_csv csv;
    int columns[3];
    bool found = false;
    TT_TRY(tt_csv_open(path, &csv));
    tt_status status = tt_csv_next(&csv, &found);
    for (int i = 0; i < 3 && status == TT_OK; i++) {
        columns[i] = found ? tt_csv_column(&csv, names[i]) : -1;
        if (columns[i] < 0)
            status = tt_fail(TT_ERR_DATA, "'%s' has no column '%s': it is no file of image labels", path,
                             names[i]);
    }
    while (status == TT_OK) {
        status = tt_csv_next(&csv, &found);
        if (status != TT_OK || !found) break;
        status = read_label(notes, &csv, columns);
    }
    tt_csv_close(&csv);
    return status;
}
