#include "model/trainable.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "format/hf_config.h"
#include "model/convert_config.h"
#include "model/convert_tensor.h"
#include "model/facts_hf.h"
#include "model/file_parts.h"

namespace regard::model {
namespace {

[[noreturn]] void cannot_train(const std::string& path, std::string_view what) {
  fail(Code::kUnsupported, "[train] '{}' has {}, which can be run but not trained; begin from another file", path, what);
}

// Which linear layers have biases, as the tensors of the first layer show.
nn::Biases biases_of(const OpenedModel& opened, const Family& family) {
  const auto has = [&](Part part) {
    const PartNames* names = family.find(part);
    return names != nullptr && find_part(opened, family, *names, 0, ".bias") != nullptr;
  };
  const bool projections = has(Part::kQuery) || has(Part::kFused), output = has(Part::kOutput), feed_forward = has(Part::kUp);
  if (!projections && !output && !feed_forward) return nn::Biases::kNone;
  if (projections && !output && !feed_forward) return nn::Biases::kProjections;
  if (projections && output) return feed_forward || family.find(Part::kUp) == nullptr ? nn::Biases::kAll : nn::Biases::kAttention;
  cannot_train(opened.path, "biases in other layers than a family of this library has them");
}

nn::ParameterNaming naming_of(const Family& family) {
  if (family.name == "gpt2") return nn::ParameterNaming::kGpt2;
  return family.name == "t5" ? nn::ParameterNaming::kT5 : nn::ParameterNaming::kLlama;
}

}  // namespace

TrainableFile::TrainableFile(const std::string& path)
    : opened_(open_model(path, FileAccess::kRead, WithTokenizer::kYes)), family_(&find_family(opened_.facts)) {
  complete_facts("train", opened_, *family_);
  config_ = configure(*family_, opened_.facts);
  if (config_.num_classes > 0) cannot_train(opened_.path, "a head that tells classes apart");
  const bool head = find_part(opened_, *family_, *family_->find(Part::kHead), 0, ".weight") != nullptr;
  const bool told_by_head = opened_.facts.shape && !opened_.facts.tied_embeddings;  // T5 1.1: a head that is there is one of its own
  config_.tied_embeddings = !head || (config_.tied_embeddings && !told_by_head);
  biases_ = opened_.facts.shape ? opened_.facts.shape->biases : biases_of(opened_, *family_);
  opened_.facts.qkv_bias = biases_ != nn::Biases::kNone;
  opened_.facts.mlp_bias = biases_ == nn::Biases::kAll;
}

nn::TransformerConfig TrainableFile::shape(int64_t sequence) const {
  const DecoderConfig& c = config_;
  nn::TransformerConfig t = opened_.facts.shape.value_or(nn::TransformerConfig{});
  t.vocab_size = c.vocab_size;
  t.hidden_size = c.hidden_size;
  t.num_layers = c.num_layers;
  t.num_q_heads = c.num_q_heads;
  t.num_kv_heads = c.num_kv_heads;
  t.head_dim = c.head_dim;
  t.intermediate_size = c.ffn_size;
  t.max_positions = c.context;
  t.activation = c.activation;
  t.feed_forward = c.feed_forward;
  t.norm = c.norm;
  t.norm_eps = static_cast<double>(c.norm_eps);  // what runs it has
  t.placement = c.placement;
  t.norm_gain = family_->hf_norm_offset == 1 ? nn::NormGain::kOnePlusStored : nn::NormGain::kStored;  // parameters are as Hugging Face stores them
  t.query_key_norm = c.query_key_norm;
  t.position = c.position;
  if (t.architecture != nn::Architecture::kEncoder) t.mask = c.mask;  // an encoder's own stands in the shape
  // A window of W in these files counts the query's own key.
  const auto windows = std::count(c.windowed.begin(), c.windowed.end(), true);
  const bool windowed = windows > 0 && windows == c.num_layers;
  if (windowed) {
    t.mask = Mask::causal() & Mask::window(c.window - 1, 0);
  } else if (windows > 0) {
    t.windowed = c.windowed;
    t.window = c.window;
  }
  if (c.position == nn::PositionKind::kRope) {
    t.rope = windowed ? c.windowed_rope : c.rope;
    t.windowed_rope = c.windowed_rope;
    for (RopeConfig* rope : {&t.rope, &t.windowed_rope}) {
      rope->order = RopeOrder::kHalfSplit;  // read() brings the rows into this order
      rope->declared_length = sequence;
    }
    if (t.rope.scaling == RopeScaling::kDynamic) t.max_positions = std::max(t.max_positions, sequence);  // what it is for
  }
  t.attention_scale = static_cast<double>(c.attention_scale);
  t.attention_softcap = static_cast<double>(c.attention_softcap);
  t.final_softcap = static_cast<double>(c.final_softcap);
  t.embedding_scale = static_cast<double>(c.embedding_scale);
  t.head_scale = static_cast<double>(c.head_scale);
  t.biases = biases_;
  t.head = c.tied_embeddings ? nn::Head::kTied : nn::Head::kUntied;
  if (family_->name != "regard") t.naming = naming_of(*family_);
  return nn::completed(t);
}

template <class T>
void TrainableFile::read(nn::ParameterStore<T>& parameters, const StopToken* stop) const {
  const std::span<const nn::Parameter> all = parameters.parameters();
  const bool from_gguf = opened_.facts.kind == FileKind::kGguf;
  std::vector<bool> filled(all.size(), false);
  std::vector<std::string_view> known;  // tensors that have their place
  const auto fill = [&](const PartNames& part, int64_t layer, std::string_view suffix) {
    if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[train] stopped while the weights were read");
    const TensorInfo* source = find_part(opened_, *family_, part, layer, suffix);
    const std::string name = tensor_name(part.hugging_face, layer, suffix);
    const auto parameter = std::find_if(all.begin(), all.end(), [&](const nn::Parameter& p) { return p.name == name; });
    if (source != nullptr && part.part == Part::kHead && config_.tied_embeddings) return known.push_back(source->name);  // the embedding again
    if (parameter == all.end()) return;  // what nobody asks for is named below
    if (source == nullptr)
      fail(Code::kCorruptData, "[train] '{}' lacks tensor {}, which its configuration implies", opened_.path, part_name(opened_.facts, part, layer, suffix));
    known.push_back(source->name);
    const Rearrangement how = rearrangement_of(*family_, config_, part.part, suffix == ".bias");
    std::vector<int64_t> shape = parameter->shape;
    if (how.transposed && from_gguf) std::swap(shape[0], shape[1]);
    if (source->shape != shape)
      fail(Code::kCorruptData, "[train] tensor {} of '{}' has shape {}; the configuration implies {}", source->name, opened_.path, shape_text(source->shape),
           shape_text(shape));
    std::vector<float> values = decode_tensor(opened_.source, *source);
    if (from_gguf) rearrange(how, Towards::kHuggingFace, values, shape);
    const auto index = static_cast<size_t>(parameter - all.begin());
    std::copy(values.begin(), values.end(), parameters.value(static_cast<int>(index)));
    filled[index] = true;
  };
  const auto fill_stack = [&](const std::vector<PartNames>& parts, int64_t layers) {
    for (const PartNames& part : parts) {
      if (part.part == Part::kRopeDivisors) continue;
      const bool once = part.hugging_face.find("{}") == std::string_view::npos;
      for (int64_t layer = 0; layer < (once ? 1 : layers); ++layer)
        for (const std::string_view suffix : {".weight", ".bias", ""}) fill(part, layer, suffix);  // Transformer-XL's u and v have no suffix
    }
  };
  const bool both = opened_.facts.shape && opened_.facts.shape->architecture == nn::Architecture::kEncoderDecoder;
  fill_stack(family_->parts, config_.num_layers);
  fill_stack(family_->encoder_parts, both ? opened_.facts.shape->num_encoder_layers : config_.num_layers);
  for (size_t i = 0; i < all.size(); ++i)
    if (!filled[i]) fail(Code::kCorruptData, "[train] '{}' has no tensor for {}", opened_.path, all[i].name);
  for (const std::string& name : opened_.source.unused()) {
    const bool computed = name.ends_with("inv_freq") || name.ends_with("masked_bias") || name.ends_with(".attn.bias");
    if (!computed && std::find(known.begin(), known.end(), name) == known.end())
      fail(Code::kCorruptData, "[train] '{}' has a tensor {}, which no {} model of its configuration has", opened_.path, name, family_->name);
  }
}

template void TrainableFile::read(nn::ParameterStore<float>&, const StopToken*) const;
template void TrainableFile::read(nn::ParameterStore<double>&, const StopToken*) const;

std::string TrainableFile::config_json(std::string_view dtype) const {
  const std::string json = hf_config_json(*family_, opened_.facts, config_, dtype);
  expect_same(config_, configure(*family_, facts_from_hf(read_hf_config(json).value_or_throw()).value_or_throw()));
  return json;
}

}  // namespace regard::model
