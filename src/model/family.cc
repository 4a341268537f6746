// From the facts of a file to a configuration: the rules that all families share.
#include "model/family.h"

#include <cmath>

#include "base/check.h"

namespace regard::model {
namespace {

bool names(std::span<const std::string_view> list, std::string_view name) {
  for (std::string_view entry : list)
    if (entry == name) return true;
  return false;
}

RopeConfig finish_rope(const Family& family, const Facts& facts, RopeConfig rope, int64_t head_dim) {
  if (rope.rotary_dim == 0) {
    const double share = facts.partial_rotary_factor.value_or(1.0);
    rope.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  }
  rope.order = facts.kind == FileKind::kGguf ? family.gguf_rope_order : RopeOrder::kHalfSplit;
  if (rope.original_context == 0) rope.original_context = facts.context;
  RopeConfig declared = rope;
  declared.declared_length = facts.context;
  try {
    const Rope possible(declared);
  } catch (const Error& error) {
    fail(Code::kCorruptData, "[Model::load] the file's rotary embedding: {}", error.what());
  }
  if (rope.rotary_dim > head_dim || rope.rotary_dim % 2 != 0)
    fail(Code::kCorruptData, "[Model::load] rotary width {} for heads of {}; expected an even number up to that", rope.rotary_dim, head_dim);
  return rope;
}

}  // namespace

const PartNames* Family::find(Part part, Side side) const {
  for (const PartNames& entry : side == Side::kDecoder ? parts : encoder_parts)
    if (entry.part == part) return &entry;
  return nullptr;
}

const Family& find_family(const Facts& facts) {
  std::string known;
  for (const Family& family : families()) {
    const auto& list = facts.kind == FileKind::kGguf ? family.gguf_architectures : family.hf_model_types;
    if (names(list, facts.architecture)) return family;
    for (std::string_view name : list) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fail(Code::kUnsupported, "[Model::load] the file holds a model of type '{}'; this library runs {}", facts.architecture, known);
}

DecoderConfig configure(const Family& family, const Facts& facts) {
  DecoderConfig c;
  c.num_layers = facts.num_layers;
  c.hidden_size = facts.hidden_size;
  c.num_q_heads = facts.num_q_heads;
  c.num_kv_heads = facts.num_kv_heads;
  c.ffn_size = facts.ffn_size.value_or(family.ffn_multiple * facts.hidden_size);
  if (!facts.ffn_size && c.ffn_size < 1) fail(Code::kCorruptData, "[Model::load] the file does not say how wide the feed-forward is (intermediate_size)");
  c.vocab_size = facts.vocab_size.value_or(0);
  c.context = facts.context;
  if (c.num_q_heads % c.num_kv_heads != 0)
    fail(Code::kCorruptData, "[Model::load] {} query heads cannot share {} key/value heads evenly", c.num_q_heads, c.num_kv_heads);
  if (facts.head_dim) {
    c.head_dim = *facts.head_dim;
  } else {
    if (c.hidden_size % c.num_q_heads != 0)
      fail(Code::kCorruptData, "[Model::load] hidden size {} cannot be cut into {} heads evenly, and the file gives no head size", c.hidden_size,
           c.num_q_heads);
    c.head_dim = c.hidden_size / c.num_q_heads;
  }

  c.norm = family.norm;
  c.norm_eps = static_cast<float>(facts.norm_eps);
  c.placement = family.placement;
  c.query_key_norm = family.find(Part::kQueryNorm) != nullptr;
  c.feed_forward = family.find(Part::kGate) != nullptr ? nn::FeedForwardKind::kGated : nn::FeedForwardKind::kPlain;
  c.activation = family.activation;
  if (facts.activation) {
    const auto known = nn::activation_from_name(*facts.activation);
    if (!known) fail(Code::kUnsupported, "[Model::load] activation '{}' is not implemented", *facts.activation);
    c.activation = *known;
  }
  c.attention_scale = 1 / std::sqrt(static_cast<float>(facts.query_pre_attn_scalar.value_or(static_cast<double>(c.head_dim))));
  c.attention_softcap = static_cast<float>(facts.attn_softcap.value_or(0));
  c.final_softcap = static_cast<float>(facts.final_softcap.value_or(0));

  c.position = facts.shape ? facts.shape->position : family.position;
  if (c.position == nn::PositionKind::kLearned) c.max_positions = facts.context;
  if (c.position == nn::PositionKind::kRope) {
    c.rope = finish_rope(family, facts, facts.rope.value_or(RopeConfig{}), c.head_dim);
    c.windowed_rope = facts.windowed_rope ? finish_rope(family, facts, *facts.windowed_rope, c.head_dim) : c.rope;
  }
  c.window = facts.window.value_or(0);
  c.windowed = facts.windowed_layers;
  c.windowed.resize(static_cast<size_t>(c.num_layers), false);

  c.tied_embeddings = facts.tied_embeddings.value_or(family.tied == Family::Tied::kUnlessStated);
  c.eos_ids = facts.eos_ids;
  if (family.refine != nullptr) family.refine(facts, c);
  for (bool windowed : c.windowed)
    if (windowed && c.window < 1)
      fail(Code::kCorruptData, "[Model::load] layers have a window but its size is {}; expected at least 1", c.window);
  return c;
}

std::string tensor_name(std::string_view stem, int64_t layer, std::string_view suffix) {
  std::string name(stem);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name.append(suffix);
}

}  // namespace regard::model
