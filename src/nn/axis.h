/* The axes of a run: along an axis a rank exchanges with a group of ranks (engine/mesh.h makes the groups, the exchange
 * of nn/pass.h asks them). */
#ifndef TT_NN_AXIS_H
#define TT_NN_AXIS_H

enum tt_axis {
#define AXIS(value, name) TT_AXIS_##value,
#include "nn/axis.def"
#undef AXIS
    TT_AXIS_COUNT,
    TT_AXES_MAX = 8 /* room for axes that a caller adds */
};
/* "data", ...; "added" for those of a caller */
const char *tt_axis_name(enum tt_axis axis);

#endif
