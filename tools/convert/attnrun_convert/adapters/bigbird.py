"""BigBird's block-sparse attention of transformers, and that of BigBird-Pegasus' encoder, in
evaluation: all its random blocks are block 0. The model pads to whole blocks and cuts off again;
the operator takes any length."""
import torch

from ..call import call
from ..registry import Adapter, companion, need, need_linear

BIG_BIRD = "transformers.models.big_bird.modeling_big_bird."
PEGASUS = "transformers.models.bigbird_pegasus.modeling_bigbird_pegasus."


class BigBirdBlockSparseAttention(Adapter):
    names = (BIG_BIRD + "BigBirdBlockSparseAttention",
             PEGASUS + "BigBirdPegasusBlockSparseAttention")
    operator = "BigBirdAttention"

    def check(self):
        need_linear(self.module, "query", "key", "value")
        need(not self.module.training, "in training mode its blocks are random")

    def forward(self, hidden_states, band_mask=None, from_mask=None, to_mask=None,
                from_blocked_mask=None, to_blocked_mask=None, output_attentions=None,
                **kwargs):
        m = self.module
        need(not output_attentions, "output_attentions=True asks for the weights")
        need(to_mask is not None, "it is called without to_mask")
        block = m.block_size
        rows = (hidden_states.shape[1] + block - 1) // block
        blocks = torch.zeros((1, rows - 2, m.num_random_blocks), dtype=torch.int32)
        y = call("BigBirdAttention", m.query(hidden_states), m.key(hidden_states),
                 m.value(hidden_states), blocks, to_mask[:, 0, 0, :] > 0,
                 q_num_heads=m.num_attention_heads, block_size=block)
        return y, None

    def shortest(self):
        m = self.module
        return (5 + 2 * m.num_random_blocks) * m.block_size + 1

    def note(self):
        return (f"; in the file at all lengths, where the model attends to all tokens of a text of "
                f"at most {self.shortest() - 1} if its first one is that short")

    def results(self, output):
        return output[0]  # upstream's second one is a table of its weights


@companion(BIG_BIRD + "BigBirdModel", "_pad_to_block_size", BigBirdBlockSparseAttention)
def _pads_nothing(self, input_ids, attention_mask, token_type_ids, position_ids,
                  inputs_embeds, pad_token_id):
    return 0, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds


@companion(PEGASUS + "BigBirdPegasusEncoder", "_pad_to_block_size", BigBirdBlockSparseAttention)
def _pegasus_pads_nothing(self, hidden_states, attention_mask):
    return 0, hidden_states, attention_mask


@companion(PEGASUS + "BigBirdPegasusEncoder", "create_masks_for_block_sparse_attn",
           BigBirdBlockSparseAttention)
@companion(BIG_BIRD + "BigBirdModel", "create_masks_for_block_sparse_attn",
           BigBirdBlockSparseAttention)
def _masks_of_tokens(self, attention_mask, block_size):
    return None, None, attention_mask[:, None, :, None], attention_mask[:, None, None, :]
