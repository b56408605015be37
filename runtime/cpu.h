/* cpu.h - the instruction sets of ops/kernels/isa.def: their names, and which of them this
 * CPU has. */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include <stdbool.h>

#include "status.h"

/* ATTN_ISA_base, ATTN_ISA_avx2, …: those of other machines, too; better ones later. */
enum attn_isa {
#define ISA(name, ...) ATTN_ISA_##name,
#include "../ops/kernels/isa.def"
    ATTN_ISA_COUNT
};

const char *attn_isa_name(enum attn_isa isa);
/* The set whose floats `isa` computes: itself, or the parent that has a text of all kernels. */
enum attn_isa attn_isa_of_floats(enum attn_isa isa);
/* Whether it has an instruction for products of bf16; others compute them with floats. */
bool attn_isa_has_bf16(enum attn_isa isa);
/* The same for products of bytes that are added by fours. */
bool attn_isa_has_dots(enum attn_isa isa);
/* Whether CPU and OS support it and the compiler of this build knew it. */
bool attn_cpu_has(enum attn_isa isa);
enum attn_isa attn_cpu_isa(void); /* the best that CPU and OS support */
/* `isa`, or its first parent that the OS lets this process use: Linux is asked for the tiles
 * of AMX, which are 8 KiB more of a thread's registers once they are used. */
enum attn_isa attn_cpu_permitted(enum attn_isa isa);
/* Whether reads reach the bandwidth of memory only with prefetches far ahead. */
bool attn_cpu_needs_prefetch(void);
/* The features of isa.def that this CPU has, or the names of its sets, with spaces between. */
void attn_cpu_describe(char *text, size_t bytes);
void attn_cpu_list(char *text, size_t bytes);
/* Parses a name, lowered to what the CPU has. E_USAGE for other words. */
attn_status attn_isa_parse(const char *name, enum attn_isa *isa);

#endif
