/* The losses of a pair of answers, TRL's loss_type by the same names. */
#ifndef TT_OBJECTIVE_DPO_LOSSES_H
#define TT_OBJECTIVE_DPO_LOSSES_H

#include <stdbool.h>

/* Losses in the order of the words in objectives.def. */
enum {
    TT_DPO_SIGMOID,
    TT_DPO_ROBUST,
    TT_DPO_HINGE,
    TT_DPO_IPO,
    TT_DPO_EXO_PAIR,
    TT_DPO_NCA_PAIR,
    TT_DPO_BCO_PAIR,
    TT_DPO_SPPO_HARD,
    TT_DPO_APO_ZERO,
    TT_DPO_APO_DOWN,
    TT_DPO_DISCOPOP,
    TT_DPO_SIGMOID_NORM,
    TT_DPO_LOSSES,
    TT_DPO_SFT = TT_DPO_LOSSES, /* no loss of a pair: the cross entropy of the chosen answers */
    TT_DPO_AOT,                 /* of differences whose places in two lists of the step are the same */
    TT_DPO_AOT_UNPAIRED
};

/* Divergences, TRL's f_divergence_type by the same names (Wang et al., arXiv 2309.16240). */
enum { TT_DPO_REVERSE_KL, TT_DPO_FORWARD_KL, TT_DPO_JS_DIVERGENCE, TT_DPO_ALPHA_DIVERGENCE };

struct tt_dpo_pair {
    double chosen, rejected; /* log p of an answer less that of the reference, or their scores */
    double chosen_tokens, rejected_tokens; /* supervised ones */
    double beta, smoothing, tau;           /* settings: beta, label_smoothing, discopop_tau */
};

struct tt_dpo_loss {
    double loss, by_chosen, by_rejected; /* derivatives by the members of the pair */
};

/* The score of a divergence for log p less that of the reference, and its derivative. alpha_divergence: (e^((a - 1)
 * ratio) - 1) / (a - 1), whose exponent is at most 80; a = 1 is the reverse KL divergence. */
struct tt_dpo_score {
    double score, slope;
};
struct tt_dpo_score tt_dpo_score_of(int divergence, double alpha, double ratio);
/* Whether a loss reads scores of divergences: the others are of log ratios. */
bool tt_dpo_loss_reads_scores(int loss);

/* A term of the losses of alignment by optimal transport (Melnyk et al., arXiv 2406.05882): -(1 - e) log s(beta d) -
 * e log s(-beta d), e the smoothing, and its derivative by d, in by_chosen. */
struct tt_dpo_loss tt_dpo_transport(double beta, double smoothing, double difference);
struct tt_dpo_loss tt_dpo_loss_of(int loss, const struct tt_dpo_pair *pair);

#endif
