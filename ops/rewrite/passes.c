/* passes.c - the rewrite passes in the order in which they run: what simplifies the graph,
 * then what recognises larger operators, then epilogues, which take what is left. */
#include "../../runtime/graph.h"

extern const struct attn_pass attn_pass_attention, attn_pass_attention_heads,
    attn_pass_common_subexpression, attn_pass_constant_if, attn_pass_identity,
    attn_pass_conv_batch_norm, attn_pass_layer_norm, attn_pass_gelu,
    attn_pass_matmul_epilogue, attn_pass_conv_epilogue, attn_pass_elementwise_chain,
    attn_pass_rotary, attn_pass_head_groups, attn_pass_skip_layer_norm,
    attn_pass_residual_relu, attn_pass_quantized, attn_pass_involution,
    attn_pass_linear_attention, attn_pass_blocked_layout, attn_pass_pad_conv,
    attn_pass_block_attention, attn_pass_performer, attn_pass_fourier_mix,
    attn_pass_causal_linear_attention, attn_pass_map_gates, attn_pass_external_attention,
    attn_pass_softmax_operands, attn_pass_gather_rows;

/* clang-format off */
const struct attn_pass *const attn_passes[] = {
    &attn_pass_constant_if,
    &attn_pass_identity,
    &attn_pass_common_subexpression,
    &attn_pass_quantized,
    &attn_pass_pad_conv,
    &attn_pass_conv_batch_norm,
    &attn_pass_layer_norm,
    &attn_pass_gather_rows,
    &attn_pass_rotary,
    &attn_pass_head_groups,
    &attn_pass_block_attention,
    &attn_pass_softmax_operands,
    &attn_pass_attention,
    &attn_pass_attention_heads,
    &attn_pass_involution,
    &attn_pass_linear_attention,
    &attn_pass_causal_linear_attention,
    &attn_pass_performer,
    &attn_pass_fourier_mix,
    &attn_pass_external_attention,
    &attn_pass_gelu,
    &attn_pass_map_gates,
    &attn_pass_matmul_epilogue,
    &attn_pass_residual_relu,
    &attn_pass_conv_epilogue,
    &attn_pass_skip_layer_norm,
    &attn_pass_blocked_layout,
    &attn_pass_elementwise_chain,
    NULL,
};
/* clang-format on */
