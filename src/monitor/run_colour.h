/* Colours of runs that are drawn in one chart. */
#ifndef TT_MONITOR_RUN_COLOUR_H
#define TT_MONITOR_RUN_COLOUR_H

#include <stddef.h>
#include <stdint.h>

/* 0xrrggbb of run `run` of `count`, readable on white and on black. All differ up to 72 runs: twelve hues a round, each
 * round of another lightness and between the hues of the one before. */
uint32_t tt_run_colour(size_t run, size_t count);

#endif
