/* The losses of a pair of answers, TRL's loss_type by the same names. */
#ifndef TT_OBJECTIVE_DPO_LOSSES_H
#define TT_OBJECTIVE_DPO_LOSSES_H

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
    TT_DPO_LOSSES
};

struct tt_dpo_pair {
    double chosen, rejected;               /* log p of an answer less that of the reference */
    double chosen_tokens, rejected_tokens; /* supervised ones */
    double beta, smoothing, tau;           /* settings: beta, label_smoothing, discopop_tau */
};

struct tt_dpo_loss {
    double loss, by_chosen, by_rejected; /* derivatives by the members of the pair */
};

struct tt_dpo_loss tt_dpo_loss_of(int loss, const struct tt_dpo_pair *pair);

#endif
