/* Columns: named values beside the tokens of a micro batch, f32. The data holds them (data/batch.h); objectives and
 * blocks name those that they read (objective/objective.h, nn/block.h). */
#ifndef TT_TENSOR_COLUMN_H
#define TT_TENSOR_COLUMN_H

/* A column has one value for each of these. */
enum tt_per { TT_PER_TOKEN, TT_PER_ROW, TT_PER_SEQUENCE, TT_PER_GROUP };
/* "token", "row", "sequence", "group" */
const char *tt_per_name(enum tt_per per);

struct tt_column_name {
    const char *name;
    enum tt_per per;
};

#endif
