"""Models of transformers by name, with tiny configurations: each is a file that its proof holds for
at several sizes, or ends in one sentence that says what to do. The table in the README of the
converter has these rows.

usage: test_table.py ROOT ATTNRUN [NAME …]
"""
import json

import common
from common import run_converter as run

README = common.ROOT / "tools" / "convert" / "README.md"
BERT = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 90}
T5 = {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
LONG = {**T5, "local_radius": 7, "global_block_size": 8}
FUNNEL = {"vocab_size": 60, "block_sizes": [1, 1], "d_model": 16, "num_decoder_layers": 1,
          "n_head": 2, "d_head": 8, "d_inner": 24}
TWO = {"vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
       "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
       "decoder_ffn_dim": 24}
LED = {**TWO, "max_encoder_position_embeddings": 90, "max_decoder_position_embeddings": 90,
       "attention_window": [8]}
PEGASUS = {**TWO, "max_position_embeddings": 150, "block_size": 8, "num_random_blocks": 1,
           "attention_type": "block_sparse"}
REFORMER = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2,
            "attention_head_size": 8, "feed_forward_size": 24, "attn_layers": ["local", "lsh"],
            "axial_pos_embds": False, "max_position_embeddings": 128, "is_decoder": True,
            "lsh_attn_chunk_length": 64, "local_attn_chunk_length": 64, "hash_seed": 1}
NYSTROM = {**BERT, "segment_means_seq_len": 64}
IMAGE = {"num_hidden_layers": 1, "hidden_size": 16, "image_size": 32, "patch_size": 8,
         "num_attention_heads": 2, "intermediate_size": 24}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1],
        "num_heads": [2, 2], "window_size": 4}
FILM = {**IMAGE, "num_frames": 4, "tubelet_size": 2}
WHISPER = {**TWO, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 90,
           "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
SOUND = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 24, "feature_projection_input_dim": 8}
MIXTURE = {**BERT, "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
FALCON = {**BERT, "ffn_hidden_size": 24, "new_decoder_architecture": False, "multi_query": True}
ANY, ONE = "works, with free sizes", "works at one length"

# name: (class, configuration, options, what the table says, exit code, words of what is said)
CASES = {
    "nystromformer": ("NystromformerModel", {**NYSTROM, "num_landmarks": 8}, "",
                      "refused: its code fails where there are fewer landmarks than tokens; set "
                      "`num_landmarks` equal to `segment_means_seq_len`", 4,
                      "set num_landmarks equal to segment_means_seq_len"),
    "nystromformer_full": ("NystromformerModel", {**NYSTROM, "num_landmarks": 64}, "", ANY, 0, ""),
    "longt5_global": ("LongT5Model", {**LONG, "encoder_attention_type": "transient-global"}, "",
                      "refused at a second length; convert it with `--fix seq`", 1,
                      "for one value of 'seq': keep the example's value with --fix seq,"),
    "longt5_global_fixed": ("LongT5Model", {
        **LONG, "encoder_attention_type": "transient-global"}, "--fix seq", ONE, 0, ""),
    "longt5_local": ("LongT5Model", {**LONG, "encoder_attention_type": "local"}, "", ANY, 0, ""),
    "funnel": ("FunnelModel", FUNNEL, "",
               "its code makes the length a number; convert it with `--fix seq`", 70, "(--fix)"),
    "funnel_fixed": ("FunnelModel", FUNNEL, "--fix seq", ONE, 0, ""),
    "yoso": ("YosoModel", {**BERT, "use_expectation": True}, "", ANY, 0, ""),
    "yoso_sampled": ("YosoModel", {**BERT, "use_expectation": False}, "",
                     "refused: its hashes are a kernel for CUDA; set `use_expectation`", 4,
                     "set use_expectation to true"),
    "deberta": ("DebertaModel", {**BERT, "relative_attention": True,
                                 "pos_att_type": ["c2p", "p2c"]}, "", ANY, 0, ""),
    "deberta_v2": ("DebertaV2Model", {**BERT, "relative_attention": True,
                                      "pos_att_type": ["c2p", "p2c"]}, "", ANY, 0, ""),
    "bigbird_pegasus": ("BigBirdPegasusModel", PEGASUS, "", ANY, 0, ""),
    "reformer": ("ReformerModelWithLMHead", REFORMER, "", ANY, 0, "has no num_buckets"),
    "swin": ("SwinModel", SWIN, "", ANY, 0, ""),
    "vit": ("ViTModel", IMAGE, "", ANY, 0, ""),
    "t5": ("T5ForConditionalGeneration", T5, "", ANY, 0, ""),
    "t5_decoder": ("T5ForConditionalGeneration", T5, "--part decoder", ANY, 0, ""),
    "t5_classifier": ("T5ForSequenceClassification", {**T5, "decoder_start_token_id": 0}, "", ANY,
                      0, ""),
    "whisper": ("WhisperForConditionalGeneration", WHISPER, "", ANY, 0, ""),
    "whisper_decoder": ("WhisperForConditionalGeneration", WHISPER, "--part decoder", ANY, 0, ""),
    "wav2vec2_bert": ("Wav2Vec2BertModel", SOUND, "", ANY, 0, ""),
    "videomae": ("VideoMAEModel", FILM, "", ANY, 0, ""),
    "timesformer": ("TimesformerModel", FILM, "", ANY, 0, ""),
    "vit_mae": ("ViTMAEModel", IMAGE, "", ANY, 0, ""),
    "vilt": ("ViltModel", {**BERT, **IMAGE}, "",
             "refused: its code chooses patches by what a mask holds", 70,
             "of an installed package, so convert a part of the model that does without it"),
    "mixtral": ("MixtralForCausalLM", MIXTURE, "", ANY, 0, ""),
    "gpt_oss": ("GptOssForCausalLM", {**MIXTURE, "head_dim": 8}, "", ANY, 0, ""),
    "falcon_decoder": ("FalconForCausalLM", FALCON, "--part decoder", ANY, 0, ""),
    "xglm": ("XGLMForCausalLM", {"vocab_size": 60, "d_model": 16, "num_layers": 1, "ffn_dim": 24,
                                 "attention_heads": 2, "max_position_embeddings": 150}, "", ANY, 0,
             ""),
    "xlnet": ("XLNetModel", {"vocab_size": 60, "d_model": 16, "n_layer": 1, "n_head": 2,
                             "d_inner": 24}, "", ANY, 0, ""),
    "canine": ("CanineModel", {**BERT, "downsampling_rate": 4, "local_transformer_stride": 16},
               "--fix seq", ONE, 0, ""),
    "choice": ("MPNetForMultipleChoice", BERT, "", ANY, 0, ""),
    "led": ("LEDModel", LED, "", ANY, 0, ""),
    "led_decoder": ("LEDForConditionalGeneration", LED, "--part decoder", ANY, 0, ""),
}


def row(name):
    kind, _, options, says, *_ = CASES[name]
    return f"| {name} | `{' '.join([kind, options]).strip()}` | {says} |"


def case(name):
    kind, config, options, _, expected, words = CASES[name]

    def check(folder):
        path, out = folder / "config.json", folder / "m.onnx"
        path.write_text(json.dumps(config))
        code, said, err = run("--hf", f"{kind}:{path}", *options.split(), "-o", out)
        assert code == expected and words in said + err, (code, said, err)
        if code == 0:
            assert sum(line.endswith(" ok") for line in said.splitlines()) >= 3, said
        else:  # one sentence, and nothing is written
            assert err.count("\n") == 1 and "Traceback" not in err, err
            assert not out.exists()
    check.__name__ = name
    return check


def readme(folder):
    rows = [line for line in README.read_text().splitlines() if line.startswith("| ")]
    missing = [row(name) for name in CASES if row(name) not in rows]
    assert not missing, "\n".join(["the README of the converter has no such rows:", *missing])


if __name__ == "__main__":
    common.main([readme, *map(case, CASES)])
