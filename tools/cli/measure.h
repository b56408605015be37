/* measure.h - what this machine can do at best, measured in about three seconds. */
#ifndef TOOL_MEASURE_H
#define TOOL_MEASURE_H

#include "../io/value.h"

/* The best of several short repetitions. GFLOP/s count a multiply-add as two; GB/s are
 * 1e9 bytes. `all`: the sum over all threads. */
struct measured {
    double fp32_peak_gflops, fp32_peak_all_gflops;
    /* Products of bf16 added in fp32, of bytes added in integers; 0: no such instruction. */
    double bf16_peak_gflops, bf16_peak_all_gflops;
    double int8_peak_gops, int8_peak_all_gops;
    double read_gbs, read_all_gbs; /* 256 MB: more than the last cache */
    double l2_read_gbs;            /* 256 KB, by one thread */
};
/* With the vectors of `isa` ("base", "avx2", "avx512_vnni", …), which this CPU must have. */
attnrun_status measure_machine(const char *isa, int32_t threads,
                               struct measured *measured);

/* The fp32 peak of one thread alone, in a tenth of a second. */
double measure_fp32_peak(const char *isa);

#endif
