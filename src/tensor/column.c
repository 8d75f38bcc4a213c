#include "tensor/column.h"

const char *tt_per_name(enum tt_per per)
{
    static const char *const names[] = {"token", "row", "sequence", "group"};
    return (unsigned)per < sizeof names / sizeof names[0] ? names[per] : "unknown";
}
