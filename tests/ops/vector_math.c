/* The vector layer itself: exp, exp2 and sigmoid against libm in double, on every instruction set. */
#ifndef TT_VECTOR_LANES

#include <math.h>

#include "ops/isa.h"

#define TT_VECTOR_SOURCE "ops/vector_math.c"
#include "backend/cpu/vector_math_passes.h"

enum { KINDS = 3 };

static const struct {
    const char *name;
    float low, high;
    double units; /* in the last place, at most */
} kinds[KINDS] = {
    {"exp", -87.0f, 88.6f, 1.2}, {"exp2", -125.9f, 127.4f, 1.2}, {"sigmoid", -80.0f, 80.0f, 2.5}};

static double exact(int kind, double x)
{
    return kind == 0 ? exp(x) : kind == 1 ? exp2(x) : 1 / (1 + exp(-x));
}

static void check_run(struct test_device *device, int threads, void *context)
{
    (void)context;
    if (threads > 1) return;
    void (*apply)(int, const float *, float *) = TT_BEST(device->stream, apply);
    for (int kind = 0; kind < KINDS; kind++) {
        double worst = 0;
        for (float x = kinds[kind].low; x < kinds[kind].high; x += 0.0009765625f) {
            float in[16], out[16];
            for (int i = 0; i < 16; i++) in[i] = x + (float)i * 6.1e-5f;
            apply(kind, in, out);
            for (int i = 0; i < 16; i++) {
                double want = exact(kind, (double)in[i]);
                int exponent;
                frexp(want, &exponent);
                worst = fmax(worst, fabs((double)out[i] - want) / ldexp(1, exponent - 24));
            }
        }
        if (worst > kinds[kind].units)
            fail_msg("%s is off by %.2f units in the last place", kinds[kind].name, worst);
        const float odd[16] = {NAN, INFINITY, -INFINITY, 1000, -1000, 0, -0.0f, 1e38f, -1e38f};
        float out[16];
        apply(kind, odd, out);
        assert_true(isnan(out[0]));
        bool saturates = kind < 2;
        for (int i = 1; i <= 8; i++) assert_true(isfinite(out[i]));
        for (int i = 1; i <= 7; i += i == 1 ? 2 : 4) assert_true(saturates ? out[i] > 1e38f : out[i] == 1);
        assert_true(out[2] < 1e-37f && out[4] < 1e-37f && out[8] < 1e-37f);
        assert_true(out[5] == (kind == 2 ? 0.5f : 1.0f) && out[6] == out[5]);
    }
}

static void accurate_on_every_isa(void **state)
{
    (void)state;
    test_on_each_isa(check_run, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(accurate_on_every_isa)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void TT_PASS(apply)(int kind, const float *in, float *out)
{
    for (int i = 0; i < 16; i += TT_VECTOR_LANES) {
        vf x = vload(in, i, false);
        vstore(out, i, false, kind == 0 ? vexp(x) : kind == 1 ? vexp2(x) : vsigmoid(x));
    }
}

#endif
