// Small Transformers of every kind, with batches to train them on. The registry of training_gradient_test.cc: a module or a
// mask term that no case uses is an error there.
#pragma once

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "nn/training/transformer.h"

namespace regard::test {

/// The memory of a TokenBatch.
struct BatchData {
  int64_t batch = 0, seq = 0, source_seq = 0, first_sequence = 0;
  std::vector<int32_t> tokens, labels, documents, encoding_positions, source;
  std::vector<int64_t> lengths, source_lengths;

  nn::TokenBatch view() const {
    nn::TokenBatch b;
    b.batch = batch;
    b.seq = seq;
    b.tokens = tokens;
    b.labels = labels;
    b.lengths = lengths;
    b.documents = documents;
    b.encoding_positions = encoding_positions;
    b.source_seq = source_seq;
    b.source = source;
    b.source_lengths = source_lengths;
    b.first_sequence = first_sequence;
    return b;
  }

  /// Sequences [begin, end) as a micro-batch of their own.
  BatchData part(int64_t begin, int64_t end) const {
    BatchData p;
    p.batch = end - begin;
    p.seq = seq;
    p.source_seq = source_seq;
    p.first_sequence = first_sequence + begin;
    const auto cut = [&](const auto& from, int64_t width) {
      return std::decay_t<decltype(from)>(from.begin() + (from.empty() ? 0 : begin * width), from.begin() + (from.empty() ? 0 : end * width));
    };
    p.tokens = cut(tokens, seq);
    p.labels = cut(labels, seq);
    p.documents = cut(documents, seq);
    p.encoding_positions = cut(encoding_positions, seq);
    p.source = cut(source, source_seq);
    p.lengths = cut(lengths, 1);
    p.source_lengths = cut(source_lengths, 1);
    return p;
  }
};

struct TrainingCase {
  std::string name;
  nn::TransformerConfig config;
  BatchData data;
  friend void PrintTo(const TrainingCase& c, std::ostream* out) { *out << c.name; }
};

inline int64_t random_below(uint64_t stream, uint64_t index, int64_t n) {
  return static_cast<int64_t>(random_bits(77, stream, index) % static_cast<uint64_t>(n));
}

/// Random tokens and labels, one label in five ignored; every sequence whole.
inline BatchData random_batch(const nn::TransformerConfig& config, int64_t batch, int64_t seq, int64_t source_seq = 0) {
  BatchData d;
  d.batch = batch;
  d.seq = seq;
  d.source_seq = source_seq;
  const int64_t classes = config.num_classes > 0 ? config.num_classes : config.vocab_size;
  for (int64_t i = 0; i < batch * seq; ++i) {
    const auto at = static_cast<uint64_t>(i);
    d.tokens.push_back(static_cast<int32_t>(random_below(1, at, config.vocab_size)));
    d.labels.push_back(random_below(2, at, 5) == 0 ? nn::kIgnoredLabel : static_cast<int32_t>(random_below(3, at, classes)));
  }
  for (int64_t i = 0; i < batch * source_seq; ++i)
    d.source.push_back(static_cast<int32_t>(random_below(4, static_cast<uint64_t>(i), config.vocab_size)));
  return d;
}

inline nn::TransformerConfig small_config() {
  nn::TransformerConfig c;
  c.vocab_size = 11;
  c.hidden_size = 12;
  c.num_layers = 2;
  c.num_q_heads = 2;
  c.intermediate_size = 20;
  c.max_positions = 16;
  c.init_std = 0.4;  // far from a model that knows nothing, so that no gradient is near 0
  return c;
}

inline nn::TransformerConfig llama_config() {
  nn::TransformerConfig c = small_config();
  c.hidden_size = 16;
  c.num_q_heads = 4;
  c.num_kv_heads = 2;
  c.position = nn::PositionKind::kRope;
  c.norm = nn::NormKind::kRms;
  c.activation = nn::Activation::kSilu;
  c.feed_forward = nn::FeedForwardKind::kGated;
  c.biases = nn::Biases::kNone;
  c.head = nn::Head::kUntied;
  return c;
}

/// Qwen 3: norms of queries and keys.
inline nn::TransformerConfig qwen3_config() {
  nn::TransformerConfig c = llama_config();
  c.query_key_norm = true;
  c.head_dim = 6;
  return c;
}

/// Gemma 2: norms on both sides of branches that add 1 to what is stored, windows on some layers, soft-caps.
inline nn::TransformerConfig gemma2_config() {
  nn::TransformerConfig c = llama_config();
  c.num_layers = 3;
  c.placement = nn::NormPlacement::kSandwich;
  c.norm_gain = nn::NormGain::kOnePlusStored;
  c.activation = nn::Activation::kGeluTanh;
  c.head = nn::Head::kTied;
  c.embedding_scale = 4;
  c.windowed = {true, false, true};
  c.window = 3;
  c.attention_scale = 0.4;
  c.attention_softcap = 2;
  c.final_softcap = 5;
  return c;
}

/// Gemma 3: no soft-caps, but norms of queries and keys, and rotations of its own for layers with a window.
inline nn::TransformerConfig gemma3_config() {
  nn::TransformerConfig c = gemma2_config();
  c.attention_softcap = c.final_softcap = 0;
  c.query_key_norm = true;
  c.rope.theta = 50;
  c.windowed_rope.theta = 5;
  return c;
}

/// T5 version 1.0: scores are not scaled, what the tied head reads is.
inline nn::TransformerConfig t5_config() {
  nn::TransformerConfig c = small_config();
  c.architecture = nn::Architecture::kEncoderDecoder;
  c.num_layers = 1;
  c.num_encoder_layers = 2;
  c.head_dim = 5;
  c.position = nn::PositionKind::kT5;
  c.t5_buckets = 8;
  c.t5_max_distance = 6;
  c.norm = nn::NormKind::kRms;
  c.activation = nn::Activation::kRelu;
  c.biases = nn::Biases::kNone;
  c.attention_scale = 1;
  c.head_scale = 1 / std::sqrt(12.0);
  c.naming = nn::ParameterNaming::kT5;
  return c;
}

/// T5 version 1.1: a gated feed-forward, and a head of its own that reads what is there.
inline nn::TransformerConfig t5_gated_config() {
  nn::TransformerConfig c = t5_config();
  c.activation = nn::Activation::kGeluTanh;
  c.feed_forward = nn::FeedForwardKind::kGated;
  c.head = nn::Head::kUntied;
  c.head_scale = 1;
  return c;
}

/// Nodes hang from the one two before.
inline Mask test_tree() { return Mask::tree(MaskList{2}, MaskList{-1, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}); }

inline Mask test_table() {
  std::vector<uint8_t> bits(16 * 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = random_below(9, i, 3) > 0;
  return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {16, 16}));
}

inline std::vector<TrainingCase> training_cases() {
  using namespace nn;
  std::vector<TrainingCase> all;
  const auto add = [&](std::string name, const TransformerConfig& config, int64_t source_seq = 0) -> TrainingCase& {
    all.push_back({std::move(name), config, random_batch(config, 3, 9, source_seq)});
    return all.back();
  };

  TransformerConfig c = small_config();
  add("gpt2", c);
  c.embedding_dropout = 0.1;
  c.residual_dropout = 0.2;
  c.attention_dropout = 0.3;
  c.label_smoothing = 0.1;
  c.z_loss = 0.01;
  add("gpt2_dropout", c);
  add("llama", llama_config());
  c = llama_config();
  c.head = Head::kTied;
  c.rope.order = RopeOrder::kInterleaved;
  c.rope.rotary_dim = 2;
  c.attention_dropout = 0.2;
  c.head_dim = 6;
  add("rope_part_of_a_wide_head", c).data.encoding_positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 0, 1, 2, 3, 4, 5, 6, 7};

  // Norms, placements, activations, gates.
  for (const Activation f : {Activation::kSilu, Activation::kGeluErf, Activation::kGeluTanh, Activation::kRelu})
    for (const FeedForwardKind kind : {FeedForwardKind::kPlain, FeedForwardKind::kGated}) {
      c = small_config();
      c.num_layers = 1;
      c.activation = f;
      c.feed_forward = kind;
      c.norm = kind == FeedForwardKind::kPlain ? NormKind::kLayer : NormKind::kRms;
      c.placement = f == Activation::kRelu ? NormPlacement::kPost : NormPlacement::kPre;
      c.residual_dropout = 0.1;
      add("activation_" + std::to_string(static_cast<int>(f)) + (kind == FeedForwardKind::kGated ? "_gated" : ""), c);
    }
  c = small_config();
  c.intermediate_size = 0;
  add("attention_only", c);

  // Biases here and there.
  c = llama_config();
  c.num_layers = 1;
  c.biases = Biases::kProjections;
  add("biases_of_projections", c);
  c.biases = Biases::kAttention;
  add("biases_of_attention", c);

  // Norms of queries and keys, on both sides, with gains above what is stored; windows on some layers; soft-caps.
  add("qwen3", qwen3_config());
  c = qwen3_config();
  c.norm = NormKind::kLayer;
  c.biases = Biases::kAll;
  c.num_layers = 1;
  c.attention_dropout = c.residual_dropout = 0.2;
  TrainingCase& queries = add("query_key_layer_norm", c);
  queries.data.lengths = {9, 0, 5};
  add("gemma2", gemma2_config()).data.lengths = {9, 4, 7};
  add("gemma3", gemma3_config());
  c = small_config();
  c.placement = NormPlacement::kSandwich;
  c.num_layers = 1;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.2;
  add("sandwich_layer_norm", c);
  c.architecture = Architecture::kEncoder;
  c.query_key_norm = true;
  c.position = PositionKind::kXl;
  c.attention_softcap = 1.5;
  add("sandwich_encoder", c).data.lengths = {9, 4, 7};
  c = small_config();
  c.position = PositionKind::kT5;
  c.t5_buckets = 6;
  c.t5_max_distance = 8;
  c.attention_softcap = 1.5;
  c.final_softcap = 3;
  c.windowed = {false, true};
  c.window = 4;
  c.label_smoothing = 0.1;
  c.z_loss = 0.01;
  add("soft_caps_t5", c);
  c.architecture = Architecture::kEncoderDecoder;
  c.windowed.clear();
  c.query_key_norm = true;
  add("soft_caps_encoder_decoder", c, 7).data.source_lengths = {7, 3, 0};

  // Positions.
  for (const PositionKind position : {PositionKind::kNone, PositionKind::kSinusoidal, PositionKind::kAlibi, PositionKind::kT5, PositionKind::kXl}) {
    c = small_config();
    c.position = position;
    c.t5_buckets = 6;
    c.t5_max_distance = 8;
    c.embedding_scale = 1.5;
    add("position_" + std::to_string(static_cast<int>(position)), c);
    if (position == PositionKind::kNone) continue;
    c.architecture = Architecture::kEncoder;
    c.num_kv_heads = 1;
    TrainingCase& encoder = add("encoder_position_" + std::to_string(static_cast<int>(position)), c);
    encoder.data.lengths = {9, 4, 7};
    if (position == PositionKind::kXl || position == PositionKind::kT5)
      for (int i = 0; i < 27; ++i) encoder.data.encoding_positions.push_back(i % 9 / 2);
  }

  // Masks.
  const Mask w = Mask::window(3, 1);
  const std::pair<const char*, Mask> masks[] = {
      {"full", Mask::full()}, {"none", Mask::none()}, {"window", Mask::window(2, 0)}, {"prefix", Mask::causal() | Mask::prefix(3)},
      {"lengths", Mask::causal() & Mask::lengths(MaskList{9, 0, 5})}, {"lengths_per_row", Mask::lengths(MaskList{9, 0, 5})},
      {"documents", Mask::causal() & Mask::documents(MaskList{0, 0, 1, 1, 1, 2, 2, 2, 2})}, {"blocks", Mask::blocks(3)}, {"chunk", Mask::chunk(4)},
      {"dilated", Mask::causal() & Mask::dilated(2)}, {"tree", test_tree()}, {"table", test_table()},
      {"per_head", Mask::per_head({Mask::causal(), w})}, {"not", ~Mask::window(1, 1)}};
  for (const auto& [name, mask] : masks) {
    c = small_config();
    c.num_layers = 1;
    c.mask = mask;
    add(std::string("mask_") + name, c);
  }

  // What a batch may say.
  add("batch_lengths", small_config()).data.lengths = {9, 0, 5};
  TrainingCase& packed = add("batch_documents", small_config());
  for (int i = 0; i < 27; ++i) {
    packed.data.documents.push_back(i % 9 / 3);
    packed.data.encoding_positions.push_back(i % 3);
  }

  // Encoders and pairs.
  c = small_config();
  c.architecture = Architecture::kEncoder;
  c.residual_dropout = c.attention_dropout = 0.1;
  add("masked_language_model", c);
  c.num_classes = 3;
  TrainingCase& classes = add("sequence_classification", c);
  for (int64_t i = 0; i < 27; ++i) classes.data.labels[static_cast<size_t>(i)] = i % 9 == 0 ? static_cast<int32_t>(i / 9) : kIgnoredLabel;
  c = small_config();
  c.architecture = Architecture::kEncoderDecoder;
  c.num_encoder_layers = 1;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  TrainingCase& pair = add("encoder_decoder", c, 7);
  pair.data.source_lengths = {7, 3, 0};
  pair.data.lengths = {9, 8, 6};
  c.placement = NormPlacement::kPost;
  c.position = PositionKind::kSinusoidal;
  c.activation = Activation::kRelu;
  c.embedding_scale = std::sqrt(12.0);
  c.num_kv_heads = 1;
  add("encoder_decoder_of_the_paper", c, 5);
  c = llama_config();
  c.architecture = Architecture::kEncoderDecoder;
  c.position = PositionKind::kT5;
  c.attention_scale = 1;
  add("encoder_decoder_t5", c, 6);
  add("t5_version_1_0", t5_config(), 6).data.source_lengths = {6, 2, 0};
  add("t5_version_1_1", t5_gated_config(), 6).data.lengths = {9, 4, 7};
  return all;
}

}  // namespace regard::test
