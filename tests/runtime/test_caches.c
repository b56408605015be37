/* test_caches.c - caches of a fixed size as states: what a run that fails leaves of them. */
#include <math.h>

#include "harness.h"

enum { DIM = 8, ROOM = 4 };

/* A length that is wrong ends the run before the caches of other samples are written. */
static void test_a_failed_run_leaves_the_state(void **state)
{
    (void)state;
    enum { CACHE = 2 * ROOM * DIM };
    static float x[2 * DIM], past[CACHE], before[CACHE];
    int32_t lens[2] = { 1, 1 };
    struct onnx_writer *w = onnx_begin(19);
    onnx_domain(w, "com.microsoft");
    onnx_input(w, "pk", ATTNRUN_F32, "2,1,P,8");
    onnx_input(w, "pv", ATTNRUN_F32, "2,1,P,8");
    onnx_input(w, "x", ATTNRUN_F32, "2,1,8");
    onnx_input(w, "lens", ATTNRUN_I32, "2");
    onnx_constant(w, "total", ATTNRUN_I32, "1", &(int32_t){ ROOM });
    onnx_node(w, "com.microsoft::GroupQueryAttention", "x,x,x,pk,pv,lens,total", "y,k,v");
    onnx_attrs(w, "num_heads=1 kv_num_heads=1");
    onnx_output(w, "k", ATTNRUN_F32, "2,1,4,8");
    onnx_output(w, "v", ATTNRUN_F32, "2,1,4,8");
    attnrun_model *model = open_model(NULL, w, 0);
    attnrun_context *context = make_context(model);
    for (int i = 0; i < CACHE; i++)
        past[i] = x[i % (2 * DIM)] = (float)(i + 1);
    for (int i = 0; i < 2; i++) {
        OK(attnrun_add_state(context, i, i, 0));
        set_input(context, i, ATTNRUN_F32, "2,1,4,8", past);
    }
    set_input(context, 2, ATTNRUN_F32, "2,1,8", x);
    set_input(context, 3, ATTNRUN_I32, "2", lens);
    OK(attnrun_run(context, NULL));
    memcpy(before, get_output(context, 0).data, sizeof before);
    lens[0] = 0;
    lens[1] = ROOM;
    FAILS(ATTNRUN_E_RANGE, "holds 4 for sample 1", attnrun_run(context, NULL));
    lens[0] = lens[1] = 2;
    OK(attnrun_run(context, NULL));
    assert_memory_equal(get_output(context, 0).data, before, 2 * DIM * sizeof *x);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

static struct onnx_writer *write_fixed(int which)
{
    struct onnx_writer *w = onnx_begin(19);
    onnx_domain(w, "com.microsoft");
    onnx_input(w, "pk", ATTNRUN_F32, "1,1,4,8");
    onnx_input(w, "pv", ATTNRUN_F32, "1,1,4,8");
    onnx_input(w, "x", ATTNRUN_F32, "1,1,8");
    onnx_input(w, "before", ATTNRUN_I32, "1");
    onnx_constant(w, "total", ATTNRUN_I32, "1", &(int32_t){ ROOM });
    if (which == 0)
        onnx_node(w, "com.microsoft::GroupQueryAttention", "x,x,x,pk,pv,before,total",
                  "y,k,v");
    else
        onnx_node(w, "com.microsoft::DecoderMaskedMultiHeadAttention",
                  "x,x,x,,,pk,pv,before", "y,k,v");
    onnx_attrs(w, which == 0 ? "num_heads=1 kv_num_heads=1"
                             : "num_heads=1 past_present_share_buffer=1");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    onnx_output(w, "k", ATTNRUN_F32, "1,1,4,8");
    onnx_output(w, "v", ATTNRUN_F32, "1,1,4,8");
    return w;
}

/* Adds a token of these numbers behind `before` others. */
static attnrun_status add_token(attnrun_context *context, int32_t before, float number)
{
    static float x[DIM];
    static int32_t n;
    attnrun_run_options options = { .struct_size = sizeof options, .validate = 1 };
    n = before;
    for (int i = 0; i < DIM; i++)
        x[i] = number;
    set_input(context, 2, ATTNRUN_F32, "1,1,8", x);
    set_input(context, 3, ATTNRUN_I32, "1", &n);
    return attnrun_run(context, &options);
}

/* A run that fails has overwritten a place behind the tokens that count, or a token: then nobody
 * goes on from what is left. */
static void test_a_failed_run_loses_what_it_overwrote(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        static float zeros[ROOM * DIM];
        attnrun_model *model = open_model(NULL, write_fixed(which), 0);
        attnrun_context *context = make_context(model);
        for (int i = 0; i < 2; i++) {
            OK(attnrun_add_state(context, i, 1 + i, 0));
            set_input(context, i, ATTNRUN_F32, "1,1,4,8", zeros);
        }
        OK(add_token(context, 0, 1));
        OK(add_token(context, 1, 2));
        FAILS(ATTNRUN_E_NONFINITE, "", add_token(context, 2, NAN));
        OK(add_token(context, 2, 3));
        const float *k = get_output(context, 1).data;
        for (int i = 0; i < ROOM; i++)
            assert_true(k[i * DIM] == (float)(i < 3 ? i + 1 : 0));
        FAILS(ATTNRUN_E_NONFINITE, "", add_token(context, 1, NAN));
        FAILS(ATTNRUN_E_INPUT, "'pk'", add_token(context, 3, 4));
        for (int i = 0; i < 2; i++)
            set_input(context, i, ATTNRUN_F32, "1,1,4,8", zeros);
        OK(add_token(context, 0, 1));
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failed_run_leaves_the_state),
        cmocka_unit_test(test_a_failed_run_loses_what_it_overwrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
