#include "model/weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/kv_layout.h"
#include "model/trained_shape.h"
#include "runtime/thread_pool.h"

namespace regard::model {
namespace {

// Tensors that some writers store and nobody needs: they can be computed.
constexpr std::array<std::string_view, 3> kComputedBuffers = {"rotary_emb.inv_freq", "masked_bias", ".attn.bias"};
constexpr size_t kNamesInMessage = 10;

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesInMessage); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesInMessage) text += fmt::format(" and {} more", names.size() - kNamesInMessage);
  return text;
}

class Reader {
 public:
  /// Whose names linear(), norm() and the like go by.
  void turn_to(Side side) { side_ = side; }

  Reader(OpenedModel& opened, const Family& family, const DecoderConfig& config, const ModelOptions& options)
      : source_(opened.source), facts_(opened.facts), family_(family), config_(config), options_(options) {
    for (const TensorInfo& tensor : source_.tensors()) total_ += tensor.bytes;
  }

  // The tensor of a part with a suffix; null after noting its name as missing.
  const TensorInfo* find(const PartNames& part, int64_t layer, std::string_view suffix, bool needed) {
    const bool gguf = facts_.kind == FileKind::kGguf;
    const std::string name = tensor_name(gguf ? part.gguf : part.hugging_face, layer, suffix);
    const TensorInfo* tensor = source_.find(name);
    if (tensor == nullptr && !gguf && name.starts_with(family_.hf_prefix)) tensor = source_.find(std::string_view(name).substr(family_.hf_prefix.size()));
    if (tensor == nullptr) {
      if (needed) missing_.push_back(name);
      return nullptr;
    }
    source_.ignore(tensor->name);  // marks it as used
    return tensor;
  }

  bool wants_bias(const PartNames& part, int64_t layer, const char* suffix) {
    if (part.bias != Bias::kByFile) return part.bias == Bias::kAlways;
    const bool mlp = part.part == Part::kGate || part.part == Part::kUp || part.part == Part::kDown;
    const std::optional<bool>& stated = mlp ? facts_.mlp_bias : facts_.qkv_bias;
    if (stated) return *stated;
    const bool gguf = facts_.kind == FileKind::kGguf;
    return source_.find(tensor_name(gguf ? part.gguf : part.hugging_face, layer, suffix)) != nullptr;
  }

  nn::Linear linear(Part which, int64_t layer, int64_t out, int64_t in) {
    const PartNames* part = family_.find(which, side_);
    if (part == nullptr) return {};
    const TensorInfo* tensor = find(*part, layer, ".weight", true);
    if (tensor == nullptr) return {};
    const bool transposed = facts_.kind == FileKind::kHuggingFace && part->hf_layout == HfLayout::kInOut;
    nn::Linear result = transposed ? transposed_matrix(*tensor, out, in) : matrix(*tensor, out, in);
    if (wants_bias(*part, layer, ".bias"))
      if (const TensorInfo* bias = find(*part, layer, ".bias", true)) result.set_bias(vector(*bias, out, 0));
    bytes_ += result.bytes();
    return result;
  }

  nn::Norm norm(Part which, int64_t layer, int64_t size) {
    const PartNames* part = family_.find(which, side_);
    if (part == nullptr) return {};
    const TensorInfo* weight = find(*part, layer, ".weight", true);
    const bool biased = part->bias == Bias::kAlways || (part->bias == Bias::kByFile && config_.norm == nn::NormKind::kLayer);
    const TensorInfo* bias = biased ? find(*part, layer, ".bias", true) : nullptr;
    if (weight == nullptr) return {};
    const float offset = facts_.kind == FileKind::kHuggingFace ? family_.hf_norm_offset : 0.0f;
    AlignedBuffer<float> biases;
    if (bias != nullptr) biases = vector(*bias, size, 0);
    bytes_ += static_cast<size_t>(size) * sizeof(float) * (bias != nullptr ? 2 : 1);
    return {{config_.norm, size, config_.norm_eps}, vector(*weight, size, offset), std::move(biases)};
  }

  AlignedBuffer<float> vector(const TensorInfo& tensor, int64_t size, float offset) { return numbers(tensor, {size}, offset); }

  // A small tensor as floats, each with `offset` added.
  AlignedBuffer<float> numbers(const TensorInfo& tensor, const std::vector<int64_t>& shape, float offset) {
    if (tensor.shape != shape) refuse_shape(tensor, shape);
    const auto count = static_cast<size_t>(tensor.values());
    AlignedBuffer<uint8_t> raw(tensor.bytes);
    read(tensor, 0, {raw.data(), raw.size()});
    AlignedBuffer<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      uint16_t half = 0;
      if (tensor.type == DType::kF32) {
        std::memcpy(&values[i], raw.data() + 4 * i, 4);
      } else if (tensor.type == DType::kF16 || tensor.type == DType::kBF16) {
        std::memcpy(&half, raw.data() + 2 * i, 2);
        values[i] = tensor.type == DType::kF16 ? half_to_float(half) : bf16_to_float(half);
      } else {
        fail(Code::kUnsupported, "[Model::load] tensor {} is of type {}; expected f32, f16 or bf16 for a vector", tensor.name, info(tensor.type).name);
      }
      values[i] += offset;
    }
    return values;
  }

  nn::Linear matrix(const TensorInfo& tensor, int64_t out, int64_t in) {
    if (tensor.shape != std::vector<int64_t>{out, in}) refuse_shape(tensor, {out, in});
    if (!is_weight_type(tensor.type))
      fail(Code::kUnsupported, "[Model::load] tensor {} is of type {}, which no kernel multiplies", tensor.name, info(tensor.type).name);
    nn::LinearPack pack({.type = tensor.type, .out = out, .in = in, .arena = &arena_});
    constexpr uint64_t kStretch = uint64_t{1} << 20;
    std::vector<uint8_t> bytes(static_cast<size_t>(std::min(kStretch, tensor.bytes)));
    for (uint64_t at = 0; at < tensor.bytes; at += bytes.size()) {
      bytes.resize(static_cast<size_t>(std::min<uint64_t>(bytes.size(), tensor.bytes - at)));
      read(tensor, at, bytes);
      if (auto done = pack.add(bytes); !done) fail(done.failure().code, "[Model::load] tensor {}: {}", tensor.name, done.failure().message);
    }
    return pack.finish();
  }

  std::vector<float> t5_table() {
    const TensorInfo* tensor = find(*family_.find(Part::kT5Table, side_), 0, ".weight", true);
    if (tensor == nullptr) return {};
    const AlignedBuffer<float> table = numbers(*tensor, {config_.t5_buckets, config_.num_q_heads}, 0);
    bytes_ += table.size() * sizeof(float);
    return {table.begin(), table.end()};
  }

  // Transformer-XL's terms of a layer, for the distances that a sequence of `context` tokens has.
  nn::AttentionLayerConfig::Xl xl_terms(int64_t layer, const DecoderConfig& c, int64_t context) {
    nn::AttentionLayerConfig::Xl xl;
    const int64_t width = c.num_q_heads * c.head_dim;
    const nn::Linear distances = linear(Part::kXlDistances, layer, width, c.hidden_size);
    for (const auto& [part, to] : {std::pair{Part::kXlContentBias, &xl.u}, std::pair{Part::kXlPositionBias, &xl.v}})
      if (const TensorInfo* tensor = find(*family_.find(part, side_), layer, "", true)) {
        const AlignedBuffer<float> values = numbers(*tensor, {c.num_q_heads, c.head_dim}, 0);
        to->assign(values.begin(), values.end());
      }
    if (anything_missing()) return xl;
    // A decoder's keys are never behind their queries.
    const bool both_ways = c.t5_direction == T5Direction::kBidirectional;
    xl.first_distance = both_ways ? 1 - context : 0;
    const int64_t count = context - xl.first_distance;
    std::vector<float> sinusoids(static_cast<size_t>(count * c.hidden_size));
    for (int64_t i = 0; i < count; ++i)
      sinusoidal(c.sinusoidal, xl.first_distance + i, std::span(sinusoids).subspan(static_cast<size_t>(i * c.hidden_size), static_cast<size_t>(c.hidden_size)));
    xl.r.resize(static_cast<size_t>(count * width));
    distances.forward(default_pool(), {sinusoids.data(), {count, c.hidden_size}}, {xl.r.data(), {count, width}}, options_.stop);
    bytes_ += xl.r.size() * sizeof(float);
    return xl;
  }

  // A matrix that the file has with a row per input: read whole, and turned 64 outputs at a time.
  nn::Linear transposed_matrix(const TensorInfo& tensor, int64_t out, int64_t in) {
    if (tensor.shape != std::vector<int64_t>{in, out}) refuse_shape(tensor, {in, out});
    if (tensor.type != DType::kF32 && tensor.type != DType::kF16 && tensor.type != DType::kBF16)
      fail(Code::kUnsupported, "[Model::load] tensor {} is of type {}; expected f32, f16 or bf16", tensor.name, info(tensor.type).name);
    const size_t size = tensor.type == DType::kF32 ? 4 : 2;
    AlignedBuffer<uint8_t> raw(tensor.bytes);
    read(tensor, 0, {raw.data(), raw.size()});
    nn::LinearPack pack({.type = tensor.type, .out = out, .in = in, .arena = &arena_});
    std::vector<uint8_t> rows;
    for (int64_t begin = 0; begin < out; begin += kernels::kPanelColumns) {
      const int64_t count = std::min<int64_t>(kernels::kPanelColumns, out - begin);
      rows.resize(static_cast<size_t>(count * in) * size);
      for (int64_t i = 0; i < in; ++i)
        for (int64_t n = 0; n < count; ++n)
          std::memcpy(rows.data() + static_cast<size_t>(n * in + i) * size, raw.data() + static_cast<size_t>(i * out + begin + n) * size, size);
      if (auto done = pack.add(rows); !done) fail(done.failure().code, "[Model::load] tensor {}: {}", tensor.name, done.failure().message);
    }
    return pack.finish();
  }

  void finish() const {
    if (!missing_.empty())
      fail(Code::kCorruptData, "[Model::load] the file lacks {} tensors that a {} model has: {}", missing_.size(), family_.name, join_names(missing_));
    std::vector<std::string> unused = source_.unused();
    std::erase_if(unused, [](const std::string& name) {
      return std::any_of(kComputedBuffers.begin(), kComputedBuffers.end(), [&](std::string_view buffer) { return name.ends_with(buffer); });
    });
    if (!unused.empty())
      fail(Code::kCorruptData, "[Model::load] the file has {} tensors that no {} model uses, so it is probably something else: {}", unused.size(), family_.name,
           join_names(unused));
  }

  // Whether two tensors hold the same bytes, read in stretches.
  bool same(const TensorInfo& a, const TensorInfo& b) {
    if (a.type != b.type || a.shape != b.shape) return false;
    std::vector<uint8_t> x(uint64_t{1} << 20), y(x.size());
    for (uint64_t at = 0; at < a.bytes; at += x.size()) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(x.size(), a.bytes - at));
      read(a, at, {x.data(), n});
      read(b, at, {y.data(), n});
      if (std::memcmp(x.data(), y.data(), n) != 0) return false;
    }
    return true;
  }

  bool anything_missing() const { return !missing_.empty(); }
  uint64_t bytes() const { return bytes_; }

 private:
  void read(const TensorInfo& tensor, uint64_t first, std::span<uint8_t> out) {
    if (options_.stop != nullptr && options_.stop->stop_requested()) fail(Code::kCancelled, "[Model::load] stopped on request");
    if (auto result = source_.read(tensor, first, out); !result) throw_error(result.failure().code, result.failure().message);
    done_ += out.size();
    if (options_.progress) options_.progress(std::min(done_, total_), total_);
  }

  [[noreturn]] void refuse_shape(const TensorInfo& tensor, const std::vector<int64_t>& expected) const {
    fail(Code::kCorruptData, "[Model::load] tensor {} has shape {}; the configuration implies {}", tensor.name, shape_text(tensor.shape), shape_text(expected));
  }

  TensorSource& source_;
  const Facts& facts_;
  const Family& family_;
  const DecoderConfig& config_;
  const ModelOptions& options_;
  Side side_ = Side::kDecoder;
  Arena arena_;  // all matrices side by side, in the order in which a token reads them
  std::vector<std::string> missing_;
  uint64_t total_ = 0, done_ = 0, bytes_ = 0;
};

// What the tensors themselves settle: the size of the vocabulary where the file leaves it to them, frequency divisors.
void complete_config(const OpenedModel& opened, const Family& family, Reader& reader, DecoderConfig& config) {
  const bool gguf = opened.facts.kind == FileKind::kGguf;
  const PartNames* embedding = family.find(Part::kEmbedding);
  if (config.vocab_size == 0)
    if (const TensorInfo* tensor = reader.find(*embedding, 0, ".weight", false); tensor != nullptr && tensor->shape.size() == 2)
      config.vocab_size = tensor->shape[0];
  if (const PartNames* part = family.find(Part::kRopeDivisors); part != nullptr && gguf)
    if (const TensorInfo* tensor = reader.find(*part, 0, ".weight", false)) {
      const AlignedBuffer<float> values = reader.vector(*tensor, config.rope.rotary_dim / 2, 0);
      config.rope.divisors.assign(values.begin(), values.end());
      config.windowed_rope.divisors = config.rope.divisors;
    }
}

// The blocks of one stack, with what belongs to it alone.
void read_stack(Reader& reader, const Family& family, const DecoderConfig& c, int64_t context, Side side, DecoderWeights& w) {
  reader.turn_to(side);
  if (c.position == nn::PositionKind::kLearned) w.positions = reader.linear(Part::kPositions, 0, c.max_positions, c.hidden_size);
  if (c.placement != nn::NormPlacement::kPost) w.final_norm = reader.norm(Part::kFinalNorm, 0, c.hidden_size);
  const std::vector<float> slopes = c.position == nn::PositionKind::kAlibi ? alibi_slopes(c.num_q_heads) : std::vector<float>();
  const std::vector<float> t5_table = c.position == nn::PositionKind::kT5 ? reader.t5_table() : std::vector<float>();
  const int64_t q = c.num_q_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const Mask causal = Mask::causal();
  const bool sandwich = c.placement == nn::NormPlacement::kSandwich;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    nn::AttentionLayerWeights attention{.query = reader.linear(Part::kQuery, i, q, c.hidden_size),
                                        .key = reader.linear(Part::kKey, i, kv, c.hidden_size),
                                        .value = reader.linear(Part::kValue, i, kv, c.hidden_size),
                                        .fused = reader.linear(Part::kFused, i, q + 2 * kv, c.hidden_size),
                                        .output = reader.linear(Part::kOutput, i, c.hidden_size, q),
                                        .query_norm = {},
                                        .key_norm = {}};
    if (c.query_key_norm) {
      attention.query_norm = reader.norm(Part::kQueryNorm, i, c.head_dim);
      attention.key_norm = reader.norm(Part::kKeyNorm, i, c.head_dim);
    }
    nn::AttentionLayerConfig::Xl xl;
    if (c.position == nn::PositionKind::kXl) xl = reader.xl_terms(i, c, context);
    nn::CrossAttentionWeights cross;
    nn::Norm cross_norm;
    if (c.cross_attention) {
      cross_norm = reader.norm(Part::kCrossNorm, i, c.hidden_size);
      cross = {reader.linear(Part::kCrossQuery, i, q, c.hidden_size), reader.linear(Part::kCrossKey, i, kv, c.hidden_size),
               reader.linear(Part::kCrossValue, i, kv, c.hidden_size), reader.linear(Part::kCrossOutput, i, c.hidden_size, q)};
    }
    nn::BlockNorms norms{.attention = reader.norm(Part::kAttnNorm, i, c.hidden_size),
                         .feed_forward = c.ffn_size > 0 ? reader.norm(Part::kFfnNorm, i, c.hidden_size) : nn::Norm(),
                         .attention_branch = sandwich ? reader.norm(Part::kPostAttnNorm, i, c.hidden_size) : nn::Norm(),
                         .feed_forward_branch = sandwich && c.ffn_size > 0 ? reader.norm(Part::kPostFfnNorm, i, c.hidden_size) : nn::Norm()};
    nn::Linear gate, up, down;
    if (c.ffn_size > 0) {
      const bool gated = c.feed_forward == nn::FeedForwardKind::kGated;
      if (gated) gate = reader.linear(Part::kGate, i, c.ffn_size, c.hidden_size);
      const Part up_part = !gated && family.find(Part::kPlainUp, side) != nullptr ? Part::kPlainUp : Part::kUp;
      up = reader.linear(up_part, i, c.ffn_size, c.hidden_size);
      down = reader.linear(Part::kDown, i, c.hidden_size, c.ffn_size);
    }
    if (reader.anything_missing()) continue;  // go on only to learn all the names
    const bool windowed = c.windowed[static_cast<size_t>(i)];
    nn::AttentionLayerConfig config{.hidden_size = c.hidden_size,
                                    .num_q_heads = c.num_q_heads,
                                    .num_kv_heads = c.num_kv_heads,
                                    .head_dim = c.head_dim,
                                    .scale = c.attention_scale,
                                    .softcap = c.attention_softcap,
                                    // A window of W in these files counts the query's own key.
                                    .mask = windowed ? causal & Mask::window(c.window - 1, 0) : c.mask,
                                    .rope_order = c.rope.order,
                                    .alibi_slopes = slopes,
                                    .t5_table = t5_table,
                                    .t5_max_distance = c.t5_max_distance,
                                    .t5_direction = c.t5_direction,
                                    .xl = std::move(xl)};
    std::optional<nn::CrossBranch> cross_branch;
    if (c.cross_attention) cross_branch.emplace(nn::CrossBranch{std::move(cross_norm), nn::CrossAttention(config, std::move(cross))});
    w.blocks.emplace_back(c.placement, std::move(norms), nn::AttentionLayer(std::move(config), std::move(attention)),
                          nn::FeedForward(c.activation, std::move(gate), std::move(up), std::move(down)), std::move(cross_branch));
  }
  reader.turn_to(Side::kDecoder);
}

// Tied weights are stored once. A head that is there is used, unless the file says that it is the embedding: then it has
// to be the same, because nobody can know which of two different ones was meant.
void read_head(Reader& reader, const Family& family, const Facts& facts, const DecoderConfig& c, DecoderWeights& w) {
  if (c.num_classes > 0) {
    w.head = reader.linear(Part::kClassifier, 0, c.num_classes, c.hidden_size);
    return;
  }
  const TensorInfo* head = reader.find(*family.find(Part::kHead), 0, ".weight", !c.tied_embeddings && facts.kind == FileKind::kHuggingFace);
  if (head != nullptr && c.tied_embeddings && facts.tied_embeddings.value_or(false)) {
    const TensorInfo* embedding = reader.find(*family.find(Part::kEmbedding), 0, ".weight", true);
    if (embedding != nullptr && !reader.same(*head, *embedding))
      fail(Code::kCorruptData, "[Model::load] the configuration says that head and embedding are the same weights, but tensor {} differs from {}", head->name,
           embedding->name);
  } else if (head != nullptr) {
    w.head = reader.linear(Part::kHead, 0, c.vocab_size, c.hidden_size);
  }
}

}  // namespace

LoadedModel read_weights(OpenedModel& opened, const Family& family, const ModelOptions& options) {
  LoadedModel loaded;
  DecoderConfig& c = loaded.main.config = configure(family, opened.facts);
  if (!kernels::is_cache_type(options.cache_type))
    fail(Code::kUnsupported, "[Model::load] caches of type {} are not supported, use f32, f16, bf16 or i8", info(options.cache_type).name);
  c.cache_type = options.cache_type;
  Reader reader(opened, family, c, options);
  complete_config(opened, family, reader, c);
  if (c.vocab_size < 1) fail(Code::kCorruptData, "[Model::load] neither the metadata nor an embedding gives the size of the vocabulary");
  const int64_t context = options.context == 0 ? c.context : options.context;
  const auto architecture = opened.facts.shape ? opened.facts.shape->architecture : nn::Architecture::kDecoder;

  DecoderWeights& w = loaded.main.weights;
  const auto embedding = std::make_shared<const nn::Linear>(reader.linear(Part::kEmbedding, 0, c.vocab_size, c.hidden_size));
  w.embedding = embedding;
  if (architecture == nn::Architecture::kEncoderDecoder) {
    LoadedStack& encoder = loaded.encoder.emplace();
    encoder.config = encoder_config(*opened.facts.shape, c);
    encoder.weights.embedding = embedding;
    read_stack(reader, family, encoder.config, context, Side::kEncoder, encoder.weights);
  }
  read_head(reader, family, opened.facts, c, w);
  read_stack(reader, family, c, context, architecture == nn::Architecture::kEncoder ? Side::kEncoder : Side::kDecoder, w);
  reader.finish();
  loaded.weight_bytes = reader.bytes();
  return loaded;
}

}  // namespace regard::model
