// What stands behind Model and Sequence, and the loader that takes a family from outside.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "model/family.h"
#include "model/open.h"
#include "regard/model.h"
#include "regard/tokenizer.h"

namespace regard {

struct Model::Impl {
  Impl(ModelInfo model_info, model::Decoder model_decoder) : info(std::move(model_info)), decoder(std::move(model_decoder)) {}

  ModelInfo info;
  nn::Architecture architecture = nn::Architecture::kDecoder;
  model::Decoder decoder;                 // what has the head; of a model that is an encoder alone, that encoder
  std::optional<model::Decoder> encoder;  // of an encoder-decoder
  std::optional<int32_t> decoder_start;
  std::optional<Tokenizer> tokenizer;
  std::optional<std::string> chat_template;
  std::vector<int32_t> eos_ids;

  // Calls take turns: they share the pool, and so the scratch memory too.
  mutable std::mutex turn;
  mutable nn::Scratch scratch;
};

struct Sequence::Impl {
  std::shared_ptr<const Model::Impl> model;
  model::Caches caches;
  std::vector<int32_t> tokens;
  std::shared_ptr<const model::Caches> source;  // of an encoder-decoder: shared by all forks
  int64_t source_size = 0;
};

namespace model {

/// Loads an opened model as `family`, or as the one that it names when null.
Model load_opened(OpenedModel opened, const Family* family, const ModelOptions& options);

}  // namespace model
}  // namespace regard
