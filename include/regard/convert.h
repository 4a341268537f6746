// Model files from one format into the other: a Hugging Face directory becomes a GGUF file, a GGUF file a directory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "regard/dtype.h"
#include "regard/export.h"
#include "regard/stop_token.h"

namespace regard {

struct ConvertOptions {
  /// What matrices are stored in: F32, F16, BF16, or Q8_0 (GGUF only; rows that are no multiple of 32 become F16). Nothing: what they
  /// are stored in now, with blocks written out as F32 in directories. Vectors and learned positions are F32 in GGUF files; in
  /// directories they have the type of the matrices where that holds them exactly or `type` is given.
  std::optional<DType> type;
  enum class Tokenizer {
    kConvert,   ///< refused when the other format has no word for it
    kLeaveOut,  ///< the result works with token ids alone
  } tokenizer = Tokenizer::kConvert;
  enum class Existing { kRefuse, kReplace } existing = Existing::kRefuse;
  const StopToken* stop = nullptr;
  std::function<void(uint64_t done, uint64_t total)> progress;  ///< bytes of tensors read
};

struct ConvertReport {
  std::string family;
  int64_t tensors = 0;
  uint64_t tensor_bytes = 0;  ///< written
  int64_t added_rows = 0;     ///< of the vocabulary: see below
  bool added_unlikely = false;  ///< whether their logits lie far below the mean in programs that have these rows
  int64_t f16_instead = 0;    ///< matrices whose rows do not divide into blocks
};

/// Converts the model at `from` to `to`: a name that ends in .gguf is a file, any other one a directory. Families: llama, qwen2, qwen3, gemma2,
/// gemma3, gpt2. Every number is decoded to f32 and rounded to nearest once, so converting to F32 and back gives the same bits
/// (gemma3: of norms that are not smaller than 2^-16; the formats store them 1 apart).
/// A vocabulary of single characters gets 256 byte tokens and <unk> in a GGUF file, as llama.cpp needs them. A key of the file
/// (regard.trained_rows) lets this library read it as if they were not there: ids, logits and texts are the directory's. Other programs see them. Behind a
/// layer norm (gpt2) their logit lies 40 below the mean of all, where the stored type has such a row; else it is the mean, which is never the largest but takes probability.
/// Before anything is written the configuration is read back as the new file will say it, and refused, naming the field, where that
/// would be another model. Memory: one tensor in f32 twice, and the
/// whole result where it is a directory.
/// Errors: those of Model::load for `from`; kUnsupported, naming it, for what the other format cannot say; kInvalidArgument for two
/// names of one format, or a `to` that exists and is not an empty directory; kIo; kCancelled. What was written by then is removed.
REGARD_API ConvertReport convert_model(const std::string& from, const std::string& to, const ConvertOptions& options = {});

}  // namespace regard
