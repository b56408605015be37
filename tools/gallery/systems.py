"""systems.py - what the gallery says about the systems of models/*.yaml, by file name:
section, a sentence, formula, pictures, and the cases that are measured for it (names of
measure.ALL). Name, paper, operators and the model's cost are read from the description.

Formulas are written as formula.py reads them. A description that is not listed here is
shown as the first system here that has one of its operators.
"""
from dataclasses import dataclass

import maps
import minilm
import patterns

DENSE, FIXED, CONTENT = "Dense attention", "Fixed patterns", "Patterns from content"
LINEAR, POOLS = "Kernels, low rank, states", "Learned weights, pooling, recurrent networks"
MIXERS, MAPS = "Mixers", "Maps of pixels"
SECTIONS = (DENSE, FIXED, CONTENT, LINEAR, POOLS, MIXERS, MAPS)
SOFTMAX = "Y = softmax({Q K^⊤}/{√d}) V"


@dataclass(frozen=True)
class System:
    section: str
    text: str
    formula: tuple       # lines
    pictures: object     # Runner -> [Picture]
    cases: tuple = ()
    standard: tuple = ()  # operators of ONNX itself that do the attention
    note: str = ""       # about the figures


ONE_RESULT = "Pools all tokens to one result; dense attention computes one result for each token."
GATE = ("It scales channels or pixels and does not relate pixels to each other, so it is not "
        "compared with dense attention.")

SYSTEMS = {
    "transformer": System(
        DENSE, "Each token of the encoder sees all tokens. A token of the decoder sees the tokens "
        "before it and the whole encoder.", (SOFTMAX,), patterns.transformer,
        ("dense", "dense, causal"), ("Attention",)),
    "bert": System(
        DENSE, "Only the encoder of the Transformer. A mask hides the padding.",
        ("Y = softmax({Q K^⊤}/{√d} + M) V",), patterns.bert, ("dense",), ("Attention",)),
    "minilm": System(
        DENSE, "A small BERT that learned the attention of a large one. The pictures show heads "
        "with its real weights on 64 tokens of a text: some see neighbours, some phrases, some "
        "single words.",
        ("Y = softmax({Q K^⊤}/{√d} + M) V",), minilm.pictures, ("dense",), ("Attention",)),
    "llama": System(
        DENSE, "Several query heads share one head of keys and values, which keeps the cache "
        "small. Queries and keys are rotated by their positions.",
        ("y_h = softmax({R(q_h) R(k_g)^⊤}/{√d}) v_g", "g = ⌊h G ∕ H⌋"),
        patterns.grouped_queries, ("grouped queries, 8 on 2, causal",),
        ("Attention",)),
    "memory-compressed": System(
        DENSE, "A strided convolution reduces the number of keys and values. The layers in between "
        "see blocks.", ("K_c = conv_r(K),  V_c = conv_r(V)",
                    "Y = softmax({Q K_c^⊤}/{√d}) V_c"), patterns.compressed,
        ("compressed, 4", "blocks of 256, causal")),
    "longformer": System(
        FIXED, "A window around each token, which can be dilated, and a few global tokens that see "
        "all tokens and that all tokens see.",
        ("y_i = ∑_{j ∈ S(i)} softmax_j({q_i ⋅ k_j}/{√d}) v_j",
         'S(i) = {{j : |i − j| ≤ w}} ∪ "global"'),
        patterns.longformer, ("Longformer ±256",)),
    "led": System(
        FIXED, "Longformer's encoder, and a plain decoder that sees the whole encoder.",
        ('"encoder:"  |i − j| ≤ w " or global"', '"decoder:"  j ≤ i " and the encoder"'),
        patterns.led, ("LED ±256, one global token", "dense, causal"), ("Attention",)),
    "big-bird": System(
        FIXED, "Blocks of tokens see their neighbours, the first and the last block, and a few "
        "random blocks. The first and the last block see all blocks.",
        ("y_i = ∑_{j ∈ S(b)} softmax_j({q_i ⋅ k_j}/{√d}) v_j",
         'S(b) = {{1, b − 1, b, b + 1, B}} ∪ "random"(b)'), patterns.big_bird, ("BigBird",)),
    "sparse-transformer-strided": System(
        FIXED, "Attention in two factors: one sees the last l tokens, the other every l-th token.",
        ("i − j < l", '"or " (i − j) mod l = 0'), patterns.sparse_strided,
        ("Sparse Transformer, strided",)),
    "sparse-transformer-fixed": System(
        FIXED, "Attention in two factors: one sees its block of l tokens, the other the last c "
        "tokens of each earlier block.",
        ("⌊i ∕ l⌋ = ⌊j ∕ l⌋", '"or " j mod l ≥ l − c'), patterns.sparse_fixed,
        ("Sparse Transformer, fixed",)),
    "reformer": System(
        CONTENT, "Tokens are hashed by random rotations and sorted by bucket. Each token sees its "
        "own chunk and the one before. Several rounds are combined.",
        ("b(x) = argmax [x R; −x R]",
         "y_i = ∑_{j ∈ S(i)} softmax_j({q_i ⋅ k_j}/{√d}) v_j",
         'S(i) = "chunks around " i " in the order of " b'),
        patterns.reformer, ("Reformer, 2 rounds", "Reformer, 4 rounds")),
    "routing-transformer": System(
        CONTENT, "k-means in the space of queries and keys: each cluster takes the w nearest "
        "queries and keys, and these see each other. The other heads are local.",
        ('S_c = "the " w " largest of " μ_c ⋅ k_j',
         "y_i = ∑_{j ∈ S_c} softmax_j({q_i ⋅ k_j}/{√d}) v_j"), patterns.routing,
        ("Routing, window 256", "blocks of 256, causal")),
    "sinkhorn-transformer": System(
        CONTENT, "A bucket of queries sees its own keys and the buckets that a learned sorting "
        "assigns to it.", ("P = Sinkhorn(R(K))",
                          "Y_b = softmax({Q_b [K_b; (P K)_b]^⊤}/{√d}) [V_b; (P V)_b]"),
        patterns.sinkhorn, ("Sinkhorn, buckets of 64",)),
    "explicit-sparse": System(
        CONTENT, "A query keeps its k largest scores, and the softmax is taken over these.",
        ("S(i) = top_k(q_i K^⊤)",
         "y_i = ∑_{j ∈ S(i)} softmax_j({q_i ⋅ k_j}/{√d}) v_j"), patterns.top_k, ("top 32",)),
    "linear-transformer": System(
        LINEAR, "A feature map replaces the exponential, so the sums over the keys are computed "
        "once for all queries.",
        ("y_i = {φ(q_i) ∑_j φ(k_j)^⊤ v_j}/{φ(q_i) ∑_j φ(k_j)^⊤}", "φ(x) = elu(x) + 1"),
        patterns.linear_attention, ("linear",)),
    "linear-transformer-causal": System(
        LINEAR, "The same sums, updated from token to token: a recurrent network whose state does "
        "not grow.", ("S_t = S_{t−1} + φ(k_t)^⊤ v_t,  z_t = z_{t−1} + φ(k_t)",
                           "y_t = {φ(q_t) S_t}/{φ(q_t) z_t^⊤}"),
        lambda runner: patterns.linear_attention(runner, causal=True), ("linear, causal",)),
    "performer": System(
        LINEAR, "Random features whose products are, on average, the exponential of the score.",
        ("φ(x) = {1}/{√m} exp(W x − {|x|^2}/{2})",
         "Y = {φ(Q) (φ(K)^⊤ V)}/{φ(Q) (φ(K)^⊤ 1)}"), patterns.performer,
        ("Performer, 256 features",)),
    "performer-causal": System(
        LINEAR, "Performer's features, with sums that are updated from token to token.",
        ("S_t = S_{t−1} + φ(k_t)^⊤ v_t,  z_t = z_{t−1} + φ(k_t)",
         "y_t = {φ(q_t) S_t}/{φ(q_t) z_t^⊤}"),
        lambda runner: patterns.performer(runner, causal=True), ("Performer, causal",)),
    "linformer": System(
        LINEAR, "Keys and values are projected along the sequence to a fixed number of slots.",
        ("Y = softmax({Q (E^⊤ K)^⊤}/{√d}) (F^⊤ V)",), patterns.linformer,
        ("Linformer, 256",)),
    "gated-delta": System(
        LINEAR, "A state that a gate lets decay, and in which a key replaces its earlier value. "
        "The weights of earlier values can be negative.",
        ("S_t = α_t S_{t−1} (I − β_t k_t k_t^⊤) + β_t v_t k_t^⊤", "y_t = S_t q_t"),
        patterns.gated_delta, ("gated delta",), ("LinearAttention",)),
    "fastformer": System(
        LINEAR, "The queries are pooled to one vector, which multiplies the keys. The keys are "
        "then pooled to one vector, which multiplies the values.",
        ("g = ∑_i softmax_i(q_i ⋅ w_q) q_i", "u = ∑_i softmax_i((g ∘ k_i) ⋅ w_k) (g ∘ k_i)",
         "y_i = u ∘ v_i"), patterns.fastformer, ("Fastformer",)),
    "synthesizer": System(
        POOLS, "Weights without products of queries and keys: they are computed from each token "
        "alone, or learned. Both can be factorized.",
        ("Y = softmax(B) V",
         "B_i = W_2 relu(W_1 x_i),  B = R,  B_i = a_i ⊗ b_i,  B = R_1 R_2^⊤"),
        patterns.synthesizer,
        ("Synthesizer, dense", "Synthesizer, random", "Synthesizer, factorized dense",
         "Synthesizer, factorized random")),
    "sha-rnn": System(
        POOLS, "An LSTM with one attention head, over a memory that serves as both keys and "
        "values.", ("y_i = ∑_{j ≤ i} softmax_j({(g_q ∘ g_k ∘ q_i) ⋅ m_j}/{√d}) (g_v ∘ m_j)",),
        patterns.sha_rnn, ("SHA-RNN",), ("LSTM",)),
    "lama": System(
        POOLS, "Heads of rank 1 pool all tokens for one context vector.",
        ("f_{h n} = tanh((P^⊤ c)_h (Q^⊤ x_n)_h)",
         "y_h = ∑_n softmax_n({f_h}/{|f|}) x_n"), patterns.lama, ("LAMA, 16",),
        note=ONE_RESULT),
    "bahdanau-encoder": System(
        POOLS, "The encoder of the translator: a recurrent network in both directions. The "
        "influence of other words fades with their distance.",
        ("h_i = [GRU(x_i, h_{i−1}); GRU(x_i, h_{i+1})]",), patterns.bahdanau_encoder,
        ("GRU, both directions",), ("GRU",)),
    "bahdanau-step": System(
        POOLS, "The first attention: a small network scores each pair of a decoder's state and "
        "an annotation.", ("e_{i j} = v^⊤ tanh(W s_{i−1} + U h_j)",
                           "c_i = ∑_j softmax_j(e_{i j}) h_j"), patterns.bahdanau,
        ("Bahdanau, 64 queries",)),
    "luong-dot": System(
        POOLS, "The score is the product of the decoder's state with the encoder's.",
        ("e_{i j} = q_i ⋅ h_j", "c_i = ∑_j softmax_j(e_{i j}) h_j"), patterns.luong_dot,
        ("Luong, dot, 64 queries",)),
    "luong-general": System(
        POOLS, "A learned matrix stands between the two states.",
        ("e_{i j} = q_i^⊤ W h_j", "c_i = ∑_j softmax_j(e_{i j}) h_j"), patterns.luong_general,
        ("Luong, dot, 64 queries",), note="W q is a product before this operator."),
    "luong-concat": System(
        POOLS, "A small network scores each pair, as in Bahdanau's attention.",
        ("e_{i j} = v^⊤ tanh(W [q_i; h_j])", "c_i = ∑_j softmax_j(e_{i j}) h_j"),
        patterns.luong_concat, ("Luong, concat, 64 queries",)),
    "luong-local-p": System(
        POOLS, "A state predicts a position in the source and sees only a window around it.",
        ("p_i = S σ(v^⊤ tanh(W q_i))",
         "a_{i j} = softmax_j(e_{i j}) exp(− {(j − p_i)^2}/{2 σ^2}),  |j − p_i| ≤ D"),
        patterns.luong_local, ("Luong, local-p, 64 queries",)),
    "han": System(
        POOLS, "Words are pooled to sentences and sentences to the document, each with a learned "
        "vector.", ("a_n = softmax_n(c^⊤ tanh(W x_n + b))", "y = ∑_n a_n x_n"),
        patterns.hierarchical, ("pooling, 64 sentences of 64",),
        note="Pools each sentence to one result; dense attention computes one result for each "
        "word."),
    "afm": System(
        POOLS, "Features are multiplied in pairs. The products are scored and summed.",
        ("p_{i j} = e_i ∘ e_j", "y = ∑_{i<j} softmax(h^⊤ relu(W p_{i j} + b)) p_{i j}"),
        patterns.factorization_machine, ("AFM, 256 samples of 39 fields",),
        note="It weighs pairs of a few fields and has no long sequence, so it is not compared with "
        "dense attention."),
    "fnet": System(
        MIXERS, "A Fourier transform over tokens and channels replaces attention. It has no "
        "learned weights.", ('Y = Re F_"tokens" (F_"channels" (X))',), patterns.fourier,
        ("FNet",)),
    "gmlp": System(
        MIXERS, "A learned matrix over tokens gates the other half of the channels.",
        ("[U, G] = X", "Y = U ∘ (W LayerNorm(G) + b)"), patterns.gating_unit, ("gMLP",)),
    "mlp-mixer": System(
        MIXERS, "A network of two layers over the tokens, the same for each channel.",
        ("Y = W_2 gelu(W_1 X)",), patterns.mixer, ("MLP-Mixer, 256 hidden",)),
    "se-resnet": System(
        MAPS, "Each channel is multiplied by a number that is computed from the means of all "
        "channels. A pixel therefore depends on itself and slightly on all others.",
        ("g = σ(W_2 relu(W_1 mean(x)))", "y = g ∘ x"), maps.squeeze_excite,
        ("Squeeze-and-Excitation",), note=GATE),
    "resnet-cbam": System(
        MAPS, "Channels are gated by their means and maxima, then pixels by a convolution over "
        "mean and maximum of the channels.",
        ("v = σ(f(mean x) + f(max x)) ∘ x", "y = σ(conv([max v; mean v])) ∘ v"), maps.cbam,
        ("CBAM",), note=GATE),
    "sknet": System(
        MAPS, "Convolutions of several sizes. Each channel is a mixture of them, which the means "
        "of their sum select.", ("α = softmax_m(W_m relu(W mean(∑_m f_m)))",
                                "y = ∑_m α_m ∘ f_m"), maps.selective_kernel,
        ("Selective Kernel block, 32 groups",), ("Conv",), note="Time and memory include the two "
        "convolutions. It weighs channels, so it is not compared with dense attention."),
    "sagan": System(
        MAPS, "Each pixel sees all pixels, by content. The result is added with a learned factor.",
        ("o_i = ∑_j softmax_j(q_i ⋅ k_j) v_j", "y = γ o + x"), maps.sagan,
        ("SAGAN self-attention",), note="This is dense attention over all pixels; the other maps "
        "are compared with it."),
    "external-attention": System(
        MAPS, "Pixels see learned slots and interact only through the normalization. The pictures "
        "show the slots with the largest weights for disc, bar and ground.",
        ('A = "L1"_"slots" (softmax_"pixels" (X M_k^⊤))', "Y = A M_v"), maps.external,
        ("External attention, 64 slots",)),
    "halonet": System(
        MAPS, "A block of pixels sees itself and a border around it.",
        ("y_i = ∑_{j ∈ S(i)} softmax_j({q_i ⋅ (k_j + r_{j−i})}/{√d}) v_j",
         'S(i) = "block"(i) + "halo"'), maps.halo, ("HaloNet, block 8, halo 3",)),
    "rednet": System(
        MAPS, "Involution: each pixel computes the kernel that is applied around it. Groups of "
        "channels share a kernel.",
        ("κ_i = W_2 relu(W_1 x_i)", "y_i = ∑_{j ∈ S(i)} κ_{i, j−i} x_j"),
        maps.involution, ("Involution 7×7, 16 groups",)),
}

def system_of(model, operators, described):
    """The entry of a model; described: {model: its operators}, to find one that is alike."""
    if model in SYSTEMS:
        return SYSTEMS[model]
    for other, system in SYSTEMS.items():
        if set(operators) & set(described.get(other, ())):
            return system
    raise LookupError(f"tools/gallery/systems.py says nothing of models/{model}.yaml")
