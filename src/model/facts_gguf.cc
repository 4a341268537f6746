#include "model/facts_gguf.h"

#include "model/limits.h"

namespace regard::model {
namespace {

// One key under the architecture's prefix.
std::string key(const Facts& facts, std::string_view rest) { return fmt::format("{}.{}", facts.architecture, rest); }

Result<Done> read_rope(const GgufMetadata& m, Facts& facts) {
  RopeConfig rope;
  REGARD_TRY(const auto width, m.optional_integer(key(facts, "rope.dimension_count"), 2, kMaxHeadDim));
  REGARD_TRY(const auto theta, m.optional_number(key(facts, "rope.freq_base"), 1e-3, 1e30));
  REGARD_TRY(const auto type, m.optional_string(key(facts, "rope.scaling.type")));
  REGARD_TRY(const auto factor, m.optional_number(key(facts, "rope.scaling.factor"), 1e-6, 1e6));
  REGARD_TRY(const auto linear, m.optional_number(key(facts, "rope.scale_linear"), 1e-6, 1e6));  // the older spelling
  REGARD_TRY(const auto original, m.optional_integer(key(facts, "rope.scaling.original_context_length"), 1, kMaxContext));
  rope.rotary_dim = width.value_or(0);
  rope.theta = theta.value_or(10000);
  rope.factor = factor ? *factor : linear.value_or(1);
  rope.original_context = original.value_or(0);
  const std::string_view name = type ? *type : (rope.factor != 1 ? "linear" : "none");
  if (name == "none") {
    rope.scaling = RopeScaling::kNone;
  } else if (name == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (name == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    REGARD_TRY(const auto attention, m.optional_number(key(facts, "rope.scaling.attn_factor"), 0, 1e6));
    REGARD_TRY(const auto fast, m.optional_number(key(facts, "rope.scaling.yarn_beta_fast"), 1e-6, 1e6));
    REGARD_TRY(const auto slow, m.optional_number(key(facts, "rope.scaling.yarn_beta_slow"), 1e-6, 1e6));
    rope.attention_factor = attention.value_or(0);
    rope.beta_fast = fast.value_or(32);
    rope.beta_slow = slow.value_or(1);
  } else {
    return Failure{Code::kUnsupported, m.refuse(key(facts, "rope.scaling.type"), fmt::format("'{}' is not implemented", name)).message};
  }
  facts.rope = rope;
  return Done{};
}

}  // namespace

Result<Facts> facts_from_gguf(const GgufMetadata& m) {
  Facts f;
  f.kind = FileKind::kGguf;
  REGARD_TRY(const std::string_view architecture, m.string("general.architecture"));
  f.architecture = architecture;
  REGARD_TRY(const auto name, m.optional_string("general.name"));
  f.name = name.value_or("");

  REGARD_TRY(f.num_layers, m.integer(key(f, "block_count"), 1, kMaxLayers));
  REGARD_TRY(f.hidden_size, m.integer(key(f, "embedding_length"), 1, kMaxWidth));
  REGARD_TRY(f.context, m.integer(key(f, "context_length"), 1, kMaxContext));
  const auto layers = static_cast<size_t>(f.num_layers);
  // Some architectures store one value per layer; the families here have the same in all of them.
  const auto uniform = [&](std::string_view rest, int64_t max, std::optional<int64_t> fallback) -> Result<int64_t> {
    REGARD_TRY(const auto values, m.optional_per_layer(key(f, rest), layers, 1, max));
    if (!values) {
      if (fallback) return *fallback;
      return m.refuse(key(f, rest), "the key is missing");
    }
    for (int64_t v : *values)
      if (v != values->front())
        return Failure{Code::kUnsupported, m.refuse(key(f, rest), "layers of different sizes are not implemented").message};
    return values->front();
  };
  REGARD_TRY(f.ffn_size, uniform("feed_forward_length", kMaxWidth, std::nullopt));
  REGARD_TRY(f.num_q_heads, uniform("attention.head_count", kMaxHeads, std::nullopt));
  REGARD_TRY(f.num_kv_heads, uniform("attention.head_count_kv", kMaxHeads, f.num_q_heads));
  REGARD_TRY(f.head_dim, m.optional_integer(key(f, "attention.key_length"), 1, kMaxHeadDim));
  REGARD_TRY(const auto value_dim, m.optional_integer(key(f, "attention.value_length"), 1, kMaxHeadDim));
  if (value_dim && f.head_dim && *value_dim != *f.head_dim)
    return Failure{Code::kUnsupported, m.refuse(key(f, "attention.value_length"), "values of another size than keys are not implemented for this family").message};
  REGARD_TRY(f.vocab_size, m.optional_integer(key(f, "vocab_size"), 1, kMaxVocab));

  REGARD_TRY(const auto rms_eps, m.optional_number(key(f, "attention.layer_norm_rms_epsilon"), 0, 1));
  REGARD_TRY(const auto eps, m.optional_number(key(f, "attention.layer_norm_epsilon"), 0, 1));
  if (!rms_eps && !eps) return m.refuse(key(f, "attention.layer_norm_rms_epsilon"), "the key is missing");
  f.norm_eps = rms_eps ? *rms_eps : *eps;

  REGARD_TRY(f.attn_softcap, m.optional_number(key(f, "attn_logit_softcapping"), 0, 1e6));
  REGARD_TRY(f.final_softcap, m.optional_number(key(f, "final_logit_softcapping"), 0, 1e6));
  REGARD_TRY(f.window, m.optional_integer(key(f, "attention.sliding_window"), 0, kMaxContext));
  if (f.window == 0) f.window.reset();
  if (f.window) f.use_window = true;
  REGARD_CHECK(read_rope(m, f));

  REGARD_TRY(const auto bos, m.optional_integer("tokenizer.ggml.bos_token_id", 0, kMaxVocab));
  if (bos) f.bos_id = static_cast<int32_t>(*bos);
  for (const char* id : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    REGARD_TRY(const auto value, m.optional_integer(id, 0, kMaxVocab));
    if (value) f.eos_ids.push_back(static_cast<int32_t>(*value));
  }
  return f;
}

}  // namespace regard::model
