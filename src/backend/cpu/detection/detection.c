/* Matching of anchors to boxes, and the losses of a detector. */
#ifndef TT_VECTOR_LANES

#include <math.h>
#include <string.h>

#include "backend/cpu/parallel.h"
#include "backend/ops/detection.h"

enum {
    GROUP_ROWS = 1024,                                         /* anchors whose losses make one partial sum */
    SUMS_MAX = TT_CPU_SCRATCH_BYTES / (int)sizeof(double) / 2, /* partial sums kept at once */
};

#define TT_VECTOR_SOURCE "backend/cpu/detection/detection.c"
#include "backend/cpu/vector_math_passes.h"

/* The order of operations of torchvision.ops.boxes.box_iou. */
static float overlap(const float *box, const float *anchor)
{
    float left = box[0] > anchor[0] ? box[0] : anchor[0], top = box[1] > anchor[1] ? box[1] : anchor[1];
    float right = box[2] < anchor[2] ? box[2] : anchor[2], bottom = box[3] < anchor[3] ? box[3] : anchor[3];
    float width = right > left ? right - left : 0.0f, height = bottom > top ? bottom - top : 0.0f;
    float inner = width * height;
    float box_area = (box[2] - box[0]) * (box[3] - box[1]);
    float anchor_area = (anchor[2] - anchor[0]) * (anchor[3] - anchor[1]);
    return inner / (box_area + anchor_area - inner);
}

static const float *boxes_of(const struct tt_anchor_match_args *args, int64_t image, int64_t *first,
                             int64_t *end)
{
    const int32_t *offsets = args->offsets.data;
    *first = offsets[image];
    *end = offsets[image + 1];
    return args->boxes_M4.data;
}

static void find_best_of_boxes(const struct tt_anchor_match_args *args, int64_t image, int threads)
{
    const float *anchors = args->anchors_A4.data;
    float *best = args->best_M.data;
    int64_t first, end, count = args->anchors_A4.dims[0];
    const float *boxes = boxes_of(args, image, &first, &end);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t m = first; m < end; m++) {
        float largest = 0.0f;
        for (int64_t a = 0; a < count; a++) {
            float iou = overlap(boxes + 4 * m, anchors + 4 * a);
            if (iou > largest) largest = iou;
        }
        best[m] = largest;
    }
}

static int32_t match_anchor(const struct tt_anchor_match_args *args, int64_t image, const float *anchor)
{
    const float *best = args->best_M.data;
    int64_t first, end, own = -1;
    const float *boxes = boxes_of(args, image, &first, &end);
    float largest = -1.0f;
    bool is_best = false;
    for (int64_t m = first; m < end; m++) {
        float iou = overlap(boxes + 4 * m, anchor);
        is_best |= iou == best[m];
        if (iou <= largest) continue;
        largest = iou;
        own = m;
    }
    if (own < 0) return TT_MATCH_BACKGROUND; /* an image without boxes */
    if (is_best || largest >= args->high) return (int32_t)own;
    return largest < args->low ? TT_MATCH_BACKGROUND : TT_MATCH_IGNORED;
}

tt_status tt_cpu_anchor_match(struct tt_stream *stream, const struct tt_anchor_match_args *args)
{
    int64_t images = args->match_NA.dims[0], anchors = args->match_NA.dims[1];
    const float *boxes = args->anchors_A4.data;
    int threads = tt_cpu_threads(stream, images * anchors * 8);
    for (int64_t n = 0; n < images; n++) {
        int32_t *match = (int32_t *)args->match_NA.data + n * anchors;
        int32_t foreground = 0;
        find_best_of_boxes(args, n, threads);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : foreground)
        for (int64_t a = 0; a < anchors; a++) {
            match[a] = match_anchor(args, n, boxes + 4 * a);
            foreground += match[a] >= 0;
        }
        ((int32_t *)args->foreground_N.data)[n] = foreground;
    }
    return TT_OK;
}

/* The predictions of one loss, `columns` for each anchor: row p belongs to anchor p % anchors of image p / anchors. */
struct predictions {
    tt_tensor rows;
    int64_t row_anchors, columns;
    tt_tensor match, foreground;
    float weight;
};

static struct predictions predictions_of(tt_tensor rows, int64_t row_anchors, tt_tensor match,
                                         tt_tensor foreground, float weight)
{
    int64_t each = row_anchors > 0 ? row_anchors : 1;
    return (struct predictions){rows, each, rows.dims[1] / each, match, foreground, weight};
}

static int32_t match_of(const struct predictions *p, int64_t row, float *weight)
{
    int64_t anchors = p->match.dims[1], image = row / anchors;
    int32_t foreground = ((const int32_t *)p->foreground.data)[image];
    *weight = p->weight / (float)(foreground > 1 ? foreground : 1);
    return ((const int32_t *)p->match.data)[image * p->match.strides[0] + row % anchors];
}

static void *prediction(const struct predictions *p, int64_t row)
{
    int64_t at = row / p->row_anchors * p->rows.strides[0] + row % p->row_anchors * p->columns;
    return (char *)p->rows.data + at * (int64_t)tt_dtype_bytes(p->rows.dtype);
}

static void clear_row(const struct predictions *p, int64_t row, bool gradient)
{
    if (gradient) memset(prediction(p, row), 0, (size_t)p->columns * tt_dtype_bytes(p->rows.dtype));
}

/* Adds the sums of groups of rows, in order. */
typedef double group_sum(const void *context, int64_t first, int64_t end);

static void add_groups(struct tt_stream *stream, group_sum *sum, const void *context,
                       const struct predictions *p, double *to)
{
    int64_t count = p->rows.dims[0] * p->row_anchors, groups = (count + GROUP_ROWS - 1) / GROUP_ROWS;
    double *sums = tt_cpu_scratch(stream, 0); /* the whole team writes it */
    int threads = tt_cpu_threads(stream, count * p->columns * 4);
    for (int64_t done = 0; done < groups; done += SUMS_MAX) {
        int64_t now = groups - done < SUMS_MAX ? groups - done : SUMS_MAX;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t g = 0; g < now; g++) {
            int64_t first = (done + g) * GROUP_ROWS;
            sums[g] = sum(context, first, first + GROUP_ROWS < count ? first + GROUP_ROWS : count);
        }
        for (int64_t g = 0; g < now; g++) *to += sums[g];
    }
}

struct focal {
    const struct tt_focal_loss_args *args;
    struct predictions rows;
    double (*row)(const struct tt_focal_loss_args *, void *, int64_t, int64_t, float);
};

static double focal_group(const void *context, int64_t first, int64_t end)
{
    const struct focal *focal = context;
    double sum = 0;
    for (int64_t row = first; row < end; row++) {
        float weight;
        int32_t match = match_of(&focal->rows, row, &weight);
        if (match == TT_MATCH_IGNORED) {
            clear_row(&focal->rows, row, focal->args->gradient);
            continue;
        }
        int64_t label = match < 0 ? -1 : ((const int32_t *)focal->args->labels_M.data)[match];
        sum += focal->row(focal->args, prediction(&focal->rows, row), focal->rows.columns, label, weight);
    }
    return sum;
}

tt_status tt_cpu_focal_loss(struct tt_stream *stream, const struct tt_focal_loss_args *args)
{
    const struct focal focal = {.args = args,
                                .rows = predictions_of(args->logits_PK, args->row_anchors, args->match_NA,
                                                       args->foreground_N, args->weight),
                                .row = TT_BEST(stream, focal_row)};
    add_groups(stream, focal_group, &focal, &focal.rows, args->sums.data);
    return TT_OK;
}

static void encode(const float *anchor, const float *box, float target[4])
{
    float width = anchor[2] - anchor[0], height = anchor[3] - anchor[1];
    float box_width = box[2] - box[0], box_height = box[3] - box[1];
    target[0] = ((box[0] + 0.5f * box_width) - (anchor[0] + 0.5f * width)) / width;
    target[1] = ((box[1] + 0.5f * box_height) - (anchor[1] + 0.5f * height)) / height;
    target[2] = logf(box_width / width);
    target[3] = logf(box_height / height);
}

struct box_rows {
    const struct tt_box_loss_args *args;
    struct predictions rows;
};

static double box_row(const struct tt_box_loss_args *args, void *deltas, const float target[4], float weight)
{
    bool bf16 = args->deltas_P4.dtype == TT_BF16;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        float x = bf16 ? tt_bf16_to_f32(((uint16_t *)deltas)[i]) : ((float *)deltas)[i];
        float distance = x - target[i], slope = distance > 0.0f ? 1.0f : distance < 0.0f ? -1.0f : 0.0f;
        float loss = fabsf(distance);
        if (args->kind == TT_BOX_SMOOTH_L1 && loss < 1.0f) {
            slope = distance;
            loss = 0.5f * distance * distance;
        } else if (args->kind == TT_BOX_SMOOTH_L1) {
            loss -= 0.5f;
        }
        sum += (double)(weight * loss);
        if (!args->gradient) continue;
        if (bf16)
            ((uint16_t *)deltas)[i] = tt_f32_to_bf16(weight * slope);
        else
            ((float *)deltas)[i] = weight * slope;
    }
    return sum;
}

/* Corners of the box that deltas mean; `sides`: its width and height before the clamp lets them grow no further. */
static void decode(const float anchor[4], const float deltas[4], float box[4], float sides[2])
{
    for (int axis = 0; axis < 2; axis++) {
        float side = anchor[2 + axis] - anchor[axis], centre = anchor[axis] + 0.5f * side;
        float log_side = deltas[2 + axis] < TT_BOX_LOG_MAX ? deltas[2 + axis] : TT_BOX_LOG_MAX;
        sides[axis] = expf(log_side) * side;
        float middle = deltas[axis] * side + centre;
        box[axis] = middle - 0.5f * sides[axis];
        box[2 + axis] = middle + 0.5f * sides[axis];
    }
}

/* The part of a gradient that the first of two sides has in their larger one. */
static float share(float own, float other)
{
    return own > other ? 1.0f : own < other ? 0.0f : 0.5f;
}

static double giou_row(const struct tt_box_loss_args *args, void *deltas, const float *anchor,
                       const float *truth, float weight)
{
    bool bf16 = args->deltas_P4.dtype == TT_BF16;
    float x[4], box[4], sides[2], inner[2], outer[2], slope[4];
    for (int i = 0; i < 4; i++) x[i] = bf16 ? tt_bf16_to_f32(((uint16_t *)deltas)[i]) : ((float *)deltas)[i];
    decode(anchor, x, box, sides);
    for (int axis = 0; axis < 2; axis++) {
        int far = 2 + axis;
        inner[axis] = fminf(box[far], truth[far]) - fmaxf(box[axis], truth[axis]);
        outer[axis] = fmaxf(box[far], truth[far]) - fminf(box[axis], truth[axis]);
    }
    bool meets = inner[0] > 0.0f && inner[1] > 0.0f;
    float shared = meets ? inner[0] * inner[1] : 0.0f, hull = outer[0] * outer[1];
    float both =
        (box[2] - box[0]) * (box[3] - box[1]) + (truth[2] - truth[0]) * (truth[3] - truth[1]) - shared;
    float loss = 1.0f - shared / (both + TT_GIOU_EPS) + (hull - both) / (hull + TT_GIOU_EPS);
    if (!args->gradient) return (double)(weight * loss);
    float of_both = shared / ((both + TT_GIOU_EPS) * (both + TT_GIOU_EPS)) - 1.0f / (hull + TT_GIOU_EPS);
    float of_shared = -1.0f / (both + TT_GIOU_EPS) - of_both;
    float of_hull = (both + TT_GIOU_EPS) / ((hull + TT_GIOU_EPS) * (hull + TT_GIOU_EPS));
    for (int axis = 0; axis < 2; axis++) {
        int far = 2 + axis;
        float side = anchor[far] - anchor[axis], across = box[3 - axis] - box[1 - axis];
        float in = meets ? of_shared * inner[1 - axis] : 0.0f, out = of_hull * outer[1 - axis];
        float high = of_both * across + in * share(truth[far], box[far]) + out * share(box[far], truth[far]);
        float low =
            -of_both * across - in * share(box[axis], truth[axis]) - out * share(truth[axis], box[axis]);
        slope[axis] = side * (low + high);
        slope[far] = x[far] <= TT_BOX_LOG_MAX ? 0.5f * sides[axis] * (high - low) : 0.0f;
    }
    for (int i = 0; i < 4; i++) {
        if (bf16)
            ((uint16_t *)deltas)[i] = tt_f32_to_bf16(weight * slope[i]);
        else
            ((float *)deltas)[i] = weight * slope[i];
    }
    return (double)(weight * loss);
}

static double box_group(const void *context, int64_t first, int64_t end)
{
    const struct box_rows *rows = context;
    const struct tt_box_loss_args *args = rows->args;
    int64_t anchors = args->anchors_A4.dims[0];
    double sum = 0;
    for (int64_t row = first; row < end; row++) {
        float weight, target[4];
        int32_t match = match_of(&rows->rows, row, &weight);
        if (match < 0) {
            clear_row(&rows->rows, row, args->gradient);
            continue;
        }
        const float *anchor = (const float *)args->anchors_A4.data + 4 * (row % anchors);
        const float *truth = (const float *)args->boxes_M4.data + (int64_t)4 * match;
        void *deltas = prediction(&rows->rows, row);
        if (args->kind == TT_BOX_GIOU) {
            sum += giou_row(args, deltas, anchor, truth, weight);
            continue;
        }
        encode(anchor, truth, target);
        sum += box_row(args, deltas, target, weight);
    }
    return sum;
}

tt_status tt_cpu_box_loss(struct tt_stream *stream, const struct tt_box_loss_args *args)
{
    const struct box_rows rows = {args, predictions_of(args->deltas_P4, args->row_anchors, args->match_NA,
                                                       args->foreground_N, args->weight)};
    add_groups(stream, box_group, &rows, &rows.rows, args->sums.data);
    return TT_OK;
}

#else

#define log1p_of TT_PASS(log1p_of)
/* ln(1 + e) for e in [0, 1], as 2 atanh(s) with s = e / (2 + e) <= 1/3: the series to s^15, 2e-9 off at most. */
TT_INLINE vf log1p_of(vf e)
{
    vf s = e / (2.0f + e), q = s * s;
    vf series =
        ((((((q * (1.0f / 15) + 1.0f / 13) * q + 1.0f / 11) * q + 1.0f / 9) * q + 1.0f / 7) * q + 1.0f / 5) *
             q +
         1.0f / 3) *
            q +
        1.0f;
    return 2.0f * s * series;
}
/* The loss, with p = sigmoid(x): for a target of 1 L = -alpha (1 - p)^gamma ln p, for 0 L = -(1 - alpha) p^gamma
 * ln (1 - p). Both are one function of z = x or -x: f(z) = -(1 - s)^gamma ln s with s = sigmoid(z), whose derivative is
 * (1 - s)^gamma (gamma s ln s - (1 - s)). ln s = min(z, 0) - ln(1 + exp(-|z|)). */
TT_INLINE vf TT_PASS(focal)(vf z, float gamma, vf *slope)
{
    const vf zero = vsplat(0.0f);
    vf e = vexp(-vmax(z, -z)), ln = vmin(z, zero) - log1p_of(e);
    vf large = 1.0f / (1.0f + e), small = e / (1.0f + e);
    vi positive = z >= zero;
    vf s = vselect(positive, large, small), rest = vselect(positive, small, large), power = rest * rest;
    if (gamma != 2.0f)
        for (int i = 0; i < TT_VECTOR_LANES; i++) power[i] = powf(rest[i], gamma);
    *slope = power * (gamma * s * ln - rest);
    return -power * ln;
}

static double TT_PASS(focal_row)(const struct tt_focal_loss_args *args, void *logits, int64_t classes,
                                 int64_t label, float weight)
{
    bool bf16 = args->logits_PK.dtype == TT_BF16;
    const vf up = vsplat(args->alpha * weight), down = vsplat((1.0f - args->alpha) * weight);
    vf sum = vsplat(0.0f);
    vi lane;
    for (int i = 0; i < TT_VECTOR_LANES; i++) lane[i] = i;
    for (int64_t k = 0; k < classes; k += TT_VECTOR_LANES) {
        int64_t left = classes - k;
        vi target = lane == vsplat_int((int32_t)(label - k));
        vf x = vload_part(logits, k, bf16, left), slope;
        vf loss = TT_PASS(focal)(vselect(target, x, -x), args->gamma, &slope) * vselect(target, up, down);
        if (left < TT_VECTOR_LANES) loss = vselect(lane < vsplat_int((int32_t)left), loss, vsplat(0.0f));
        sum += loss;
        if (args->gradient) vstore_part(logits, k, bf16, slope * vselect(target, up, -down), left);
    }
    return (double)vsum(sum);
}

#endif
