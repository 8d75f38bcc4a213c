/* The axes of a run: along an axis a rank exchanges with a group of ranks (engine/mesh.h makes the groups, the exchange
 * of nn/pass.h asks them). */
#ifndef TT_NN_AXIS_H
#define TT_NN_AXIS_H

enum tt_axis {
    TT_AXIS_DATA,      /* ranks that take different samples: gradients and sums of a step are added over it */
    TT_AXIS_SHARD,     /* those that split a unit */
    TT_AXIS_REPLICATE, /* those that hold the same slices of it */
    TT_AXIS_EXPERT,    /* those that split the experts of a layer */
    TT_AXIS_COUNT,
    TT_AXES_MAX = 8 /* room for axes that a caller adds */
};

#endif
