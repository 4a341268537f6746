#include "model/file_parts.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "kernels/reference/linear.h"
#include "model/convert_config.h"

namespace regard::model {
namespace {

// The scaling that has these divisors. Published files differ in the factor alone, which the slowest frequency shows.
std::optional<RopeConfig> llama3_of(RopeConfig rope, int64_t head_dim, std::span<const float> divisors) {
  if (divisors.empty() || rope.scaling != RopeScaling::kNone) return std::nullopt;
  if (rope.rotary_dim == 0) rope.rotary_dim = head_dim;
  if (static_cast<size_t>(rope.rotary_dim / 2) != divisors.size()) return std::nullopt;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = std::round(static_cast<double>(*std::max_element(divisors.begin(), divisors.end())));
  rope.original_context = 8192;
  if (!(rope.factor >= 1)) return std::nullopt;
  const std::vector<float> want = rope_divisors(rope);
  const auto near = [](float a, float b) { return std::fabs(a - b) <= 1e-5f * std::fabs(b); };
  return std::equal(divisors.begin(), divisors.end(), want.begin(), want.end(), near) ? std::optional(rope) : std::nullopt;
}

}  // namespace

std::string part_name(const Facts& facts, const PartNames& part, int64_t layer, std::string_view suffix) {
  return tensor_name(facts.kind == FileKind::kGguf ? part.gguf : part.hugging_face, layer, suffix);
}

const TensorInfo* find_part(const OpenedModel& opened, const Family& family, const PartNames& part, int64_t layer, std::string_view suffix) {
  const std::string name = part_name(opened.facts, part, layer, suffix);
  const TensorInfo* tensor = opened.source.find(name);
  if (tensor == nullptr && opened.facts.kind == FileKind::kHuggingFace && name.starts_with(family.hf_prefix))
    tensor = opened.source.find(std::string_view(name).substr(family.hf_prefix.size()));
  return tensor;
}

std::vector<float> decode_tensor(const TensorSource& source, const TensorInfo& tensor) {
  if (!is_weight_type(tensor.type))
    fail(Code::kUnsupported, "[Model::load] tensor {} is of type {}, which no model computes with", tensor.name, info(tensor.type).name);
  std::vector<uint8_t> bytes(tensor.bytes);
  std::move(source.read(tensor, bytes)).value_or_throw();
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  kernels::reference::decode_row(tensor.type, bytes.data(), tensor.values(), values.data());
  return values;
}

void complete_facts(std::string_view who, OpenedModel& opened, const Family& family) {
  Facts& f = opened.facts;
  if (f.kind != FileKind::kGguf) return;
  const auto first = [&](Part part, std::string_view suffix) -> const TensorInfo* {
    const PartNames* names = family.find(part);
    return names == nullptr ? nullptr : find_part(opened, family, *names, 0, suffix);
  };
  if (!f.vocab_size) {
    const TensorInfo* embedding = first(Part::kEmbedding, ".weight");
    if (embedding == nullptr || embedding->shape.empty()) fail(Code::kCorruptData, "[{}] {} has no embedding", who, opened.path);
    f.vocab_size = embedding->shape[0];
  }
  f.qkv_bias = first(Part::kQuery, ".bias") != nullptr;
  f.mlp_bias = first(Part::kUp, ".bias") != nullptr;
  const TensorInfo* divisors = first(Part::kRopeDivisors, ".weight");
  if (divisors == nullptr) return;
  const auto scaling = llama3_of(f.rope.value_or(RopeConfig{}), f.head_dim.value_or(f.hidden_size / f.num_q_heads), decode_tensor(opened.source, *divisors));
  if (!scaling) {
    fail(Code::kUnsupported, "[{}] tensor {} divides the frequencies one by one, otherwise than the scaling of Llama 3 does, and config.json has no place for such divisors",
         who, divisors->name);
  }
  f.rope = scaling;
  opened.source.ignore(divisors->name);
}

}  // namespace regard::model
