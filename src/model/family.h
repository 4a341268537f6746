// What distinguishes one family of models from another, as data: the names of its tensors in both file formats,
// which of them carry a bias, how its norms are placed. What is no data is one small function. To add a family, copy the
// nearest one in families.cc; tests/model/family_test.cc adds one from outside in a few lines.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/facts.h"

namespace regard::model {

/// The weights that a stack may have. A family has those that its table names.
enum class Part {
  kEmbedding, kPositions, kT5Table, kFinalNorm, kHead, kRopeDivisors,            // once
  kClassifier,                                                                   // instead of kHead where classes are told apart
  kAttnNorm, kQuery, kKey, kValue, kFused, kOutput, kQueryNorm, kKeyNorm,        // per layer
  kPostAttnNorm, kFfnNorm, kGate, kUp, kDown, kPostFfnNorm,
  kPlainUp,                                                                      // instead of kUp where nothing is gated
  kCrossNorm, kCrossQuery, kCrossKey, kCrossValue, kCrossOutput,                 // of decoders that look at an encoder
  kXlDistances, kXlContentBias, kXlPositionBias,                                 // Transformer-XL's W_r, u and v
};

/// The stacks of an encoder-decoder.
enum class Side { kDecoder, kEncoder };

/// Whether a weight has a bias beside it.
enum class Bias {
  kNever,
  kAlways,
  kByFile,  ///< as the configuration says; where it says nothing, when the file has one. A norm: when it is a LayerNorm
};

/// How Hugging Face files store a matrix; GGUF files always have a row per output.
enum class HfLayout {
  kOutIn,  ///< a row per output
  kInOut,  ///< a row per input: the transposed one
};

/// The stems of a tensor's names, to which ".weight" or ".bias" is appended; {} stands for the layer.
struct PartNames {
  Part part;
  std::string_view gguf;
  std::string_view hugging_face;
  Bias bias = Bias::kNever;
  HfLayout hf_layout = HfLayout::kOutIn;
};

struct Family {
  std::string_view name;
  std::vector<std::string_view> gguf_architectures;
  std::vector<std::string_view> hf_model_types;
  std::vector<PartNames> parts;
  std::vector<PartNames> encoder_parts = {};  ///< of families that have encoders: the names of what is not shared with the decoder

  nn::NormKind norm = nn::NormKind::kRms;
  nn::NormPlacement placement = nn::NormPlacement::kPre;
  nn::PositionKind position = nn::PositionKind::kRope;
  nn::Activation activation = nn::Activation::kSilu;  ///< where the file names none
  RopeOrder gguf_rope_order = RopeOrder::kHalfSplit;  ///< Hugging Face files are half-split in every family here
  int64_t ffn_multiple = 0;  ///< of hidden_size, where the file does not say how wide the feed-forward is; 0: it has to
  /// What the names of the base model's tensors begin with. Files of the base model alone leave it out.
  std::string_view hf_prefix = "model.";
  /// Hugging Face files of some families store norm weights less this; GGUF files have it added already.
  float hf_norm_offset = 0;
  /// Some families tie the embedding to the head whatever their configuration leaves out.
  enum class Tied { kByFile, kUnlessStated } tied = Tied::kByFile;

  /// What this family derives from the facts beyond the common rules. May be null.
  void (*refine)(const Facts& facts, DecoderConfig& config) = nullptr;

  const PartNames* find(Part part, Side side = Side::kDecoder) const;
};

/// The families of this library.
std::span<const Family> families();

/// The family that calls itself as the file does. Errors: kUnsupported with the name and the known ones.
const Family& find_family(const Facts& facts);

/// The configuration of a model of this family. Errors: kCorruptData or kUnsupported with the field.
DecoderConfig configure(const Family& family, const Facts& facts);

/// A tensor's full name.
std::string tensor_name(std::string_view stem, int64_t layer, std::string_view suffix);

}  // namespace regard::model
