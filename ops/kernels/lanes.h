/* lanes.h - loads and stores of some lanes of a vector. Bit l of a mask is lane l. The
 * memory of the other lanes is not touched. */
#ifndef ATTN_LANES_H
#define ATTN_LANES_H

#include "isa.h"

/* Lanes from … to - 1; 0 <= from <= to <= VF. */
static ALWAYS_INLINE uint32_t v_bits(int64_t from, int64_t to)
{
    return (1u << to) - (1u << from);
}

#endif
