#include "objective/dpo_losses.h"

#include <math.h>

#include "objective/logistic.h"

static double logistic(double x)
{
    return exp(tt_log_logistic(x));
}

/* A function of x = beta * (chosen - rejected), its value and its derivative by x. */
static struct tt_dpo_loss of_difference(const struct tt_dpo_pair *pair, double value, double slope)
{
    return (struct tt_dpo_loss){value, pair->beta * slope, -pair->beta * slope};
}

/* The loss has no bias for preferences that are the wrong way round with the probability e (arXiv 2403.00409). */
static struct tt_dpo_loss robust(const struct tt_dpo_pair *pair, double x)
{
    double e = pair->smoothing, right = tt_log_logistic(x), wrong = tt_log_logistic(-x);
    return of_difference(pair, (-(1 - e) * right + e * wrong) / (1 - 2 * e),
                         -((1 - e) * exp(wrong) + e * exp(right)) / (1 - 2 * e));
}

/* KL divergence of the model's choice between both from (1 - e, e) (arXiv 2402.00856). */
static struct tt_dpo_loss exo(const struct tt_dpo_pair *pair, double x)
{
    double e = pair->smoothing, log_w = tt_log_logistic(x), log_l = tt_log_logistic(-x);
    double w = exp(log_w), l = exp(log_l), to_w = log_w - log1p(-e), to_l = log_l - log(e);
    return of_difference(pair, w * to_w + l * to_l, w * l * (to_w - to_l));
}

/* The loss lies between the logistic and the exponential one, by the size of x (arXiv 2406.08414). */
static struct tt_dpo_loss discopop(const struct tt_dpo_pair *pair, double x)
{
    double share = logistic(x / pair->tau), other = logistic(-x / pair->tau);
    double smooth = -tt_log_logistic(x), steep = exp(-x), mixed = share * steep;
    if (share == 0) mixed = 0; /* steep may be infinite */
    double slope = -logistic(-x) * other - mixed;
    if (share > 0) slope += share * other / pair->tau * (steep - smooth);
    return of_difference(pair, smooth * other + mixed, slope);
}

/* A squared distance of the mean log ratios of tokens (arXiv 2310.12036), or the logistic loss of it. */
static struct tt_dpo_loss of_means(const struct tt_dpo_pair *pair, int loss)
{
    double difference = pair->chosen / pair->chosen_tokens - pair->rejected / pair->rejected_tokens;
    double error = difference - 1 / (2 * pair->beta), x = pair->beta * difference;
    double value = loss == TT_DPO_IPO ? error * error : -tt_log_logistic(x);
    double slope = loss == TT_DPO_IPO ? 2 * error : -pair->beta * logistic(-x);
    return (struct tt_dpo_loss){value, slope / pair->chosen_tokens, -slope / pair->rejected_tokens};
}

/* Distances of both rewards from 1/2 and -1/2 (arXiv 2405.00675). */
static struct tt_dpo_loss sppo(const struct tt_dpo_pair *pair)
{
    double won = pair->chosen - 0.5 / pair->beta, lost = pair->rejected + 0.5 / pair->beta;
    return (struct tt_dpo_loss){won * won + lost * lost, 2 * won, 2 * lost};
}

/* Sums of functions of the rewards c and r of both answers (arXiv 2402.05369, 2404.04656, 2408.06266). */
static struct tt_dpo_loss of_rewards(const struct tt_dpo_pair *pair, int loss)
{
    double beta = pair->beta, c = beta * pair->chosen, r = beta * pair->rejected;
    double at_c = logistic(c), off_c = logistic(-c), at_r = logistic(r), off_r = logistic(-r);
    double up = logistic(c - r), down = logistic(r - c);
    switch (loss) {
    case TT_DPO_NCA_PAIR:
        return (struct tt_dpo_loss){-tt_log_logistic(c) - 0.5 * tt_log_logistic(-c) -
                                        0.5 * tt_log_logistic(-r),
                                    beta * (0.5 * at_c - off_c), beta * 0.5 * at_r};
    case TT_DPO_BCO_PAIR:
        return (struct tt_dpo_loss){-tt_log_logistic(c) - tt_log_logistic(-r), -beta * off_c, beta * at_r};
    case TT_DPO_APO_ZERO:
        return (struct tt_dpo_loss){off_c + at_r, -beta * at_c * off_c, beta * at_r * off_r};
    default: /* apo_down */
        return (struct tt_dpo_loss){at_c + down, beta * (at_c * off_c - up * down), beta * up * down};
    }
}

struct tt_dpo_loss tt_dpo_transport(double beta, double smoothing, double difference)
{
    double right = tt_log_logistic(beta * difference), wrong = tt_log_logistic(-beta * difference);
    return (struct tt_dpo_loss){.loss = -(1 - smoothing) * right - smoothing * wrong,
                                .by_chosen = beta * (smoothing * exp(right) - (1 - smoothing) * exp(wrong))};
}

struct tt_dpo_score tt_dpo_score_of(int divergence, double alpha, double ratio)
{
    const double most = 80; /* of an exponent, as TRL has it */
    double power = (alpha - 1) * ratio;
    switch (divergence) {
    case TT_DPO_FORWARD_KL:
        return (struct tt_dpo_score){-expm1(-ratio), exp(-ratio)};
    case TT_DPO_JS_DIVERGENCE:
        return (struct tt_dpo_score){log(2) + tt_log_logistic(ratio), logistic(-ratio)};
    case TT_DPO_ALPHA_DIVERGENCE:
        if (fabs(alpha - 1) < 1e-6) break;
        if (power > most) return (struct tt_dpo_score){expm1(most) / (alpha - 1), 0};
        return (struct tt_dpo_score){expm1(power) / (alpha - 1), exp(power)};
    default:
        break;
    }
    return (struct tt_dpo_score){ratio, 1};
}

bool tt_dpo_loss_reads_scores(int loss)
{
    switch (loss) {
    case TT_DPO_NCA_PAIR:
    case TT_DPO_BCO_PAIR:
    case TT_DPO_SPPO_HARD:
    case TT_DPO_APO_ZERO:
    case TT_DPO_APO_DOWN:
    case TT_DPO_AOT:
    case TT_DPO_AOT_UNPAIRED:
        return false;
    default:
        return true;
    }
}

struct tt_dpo_loss tt_dpo_loss_of(int loss, const struct tt_dpo_pair *pair)
{
    double x = pair->beta * (pair->chosen - pair->rejected);
    switch (loss) {
    case TT_DPO_SIGMOID:
        return of_difference(pair, -tt_log_logistic(x), -logistic(-x));
    case TT_DPO_ROBUST:
        return robust(pair, x);
    case TT_DPO_HINGE:
        return of_difference(pair, x < 1 ? 1 - x : 0, x < 1 ? -1 : 0);
    case TT_DPO_EXO_PAIR:
        return exo(pair, x);
    case TT_DPO_DISCOPOP:
        return discopop(pair, x);
    case TT_DPO_IPO:
    case TT_DPO_SIGMOID_NORM:
        return of_means(pair, loss);
    case TT_DPO_SPPO_HARD:
        return sppo(pair);
    default:
        return of_rewards(pair, loss);
    }
}
