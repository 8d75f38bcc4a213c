#include "objective/pairs.h"

struct tt_pair_side tt_pair_side_read(const struct tt_objective_rows *rows, int64_t sequence, int64_t first)
{
    const struct tt_batch *batch = rows->batch;
    struct tt_pair_side side = {.first = first, .end = tt_objective_rows_end(batch, sequence, first)};
    for (int64_t n = first; n < side.end; n++) {
        bool counts = batch->supervised == NULL || batch->supervised[n] != 0;
        side.all += (double)rows->logp_N[n];
        side.logits += (double)rows->mean_N[n];
        side.logp += counts ? (double)rows->logp_N[n] : 0;
        side.tokens += counts;
    }
    return side;
}

void tt_pair_add(double *sums, double beta, const struct tt_pair_side sides[2],
                 const struct tt_pair_report reports[2])
{
    double chosen = reports[0].reward, rejected = reports[1].reward;
    sums[TT_PAIR_CHOSEN_ROWS] += (double)(sides[0].end - sides[0].first);
    sums[TT_PAIR_REJECTED_ROWS] += (double)(sides[1].end - sides[1].first);
    sums[TT_PAIR_CHOSEN_LOGITS] += sides[0].logits;
    sums[TT_PAIR_REJECTED_LOGITS] += sides[1].logits;
    sums[TT_PAIR_CHOSEN_REWARD] += beta * chosen;
    sums[TT_PAIR_REJECTED_REWARD] += beta * rejected;
    sums[TT_PAIR_ACCURACY] += chosen > rejected;
    sums[TT_PAIR_MARGIN] += beta * (chosen - rejected);
    sums[TT_PAIR_CHOSEN_LOGP] += reports[0].logp;
    sums[TT_PAIR_REJECTED_LOGP] += reports[1].logp;
}
