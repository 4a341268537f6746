// A run that begins from a model file (run.init): what the file decides, and what a configuration may still say beside it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/trainable.h"
#include "regard/tokenizer.h"
#include "regard/train.h"
#include "train/state_file.h"

namespace regard::train_loop {

/// The file that the run of a checkpoint began from, as its configuration says: empty when it began from nothing.
std::string first_file_of(const RunIdentity& run);

/// Refuses what the section model says differently than the file, naming the field and both values; then writes the file's shape into
/// the section, so that train.json tells it. kInvalidArgument.
void adopt_shape(const nn::TransformerConfig& shape, const std::string& path, TrainConfig& config);

/// The shape with what the configuration is free in: dropouts, smoothing, recomputation, precision.
/// kInvalidArgument when run.sequence is longer than the model's positions.
nn::TransformerConfig with_free_fields(nn::TransformerConfig shape, const TrainConfig& config, const std::string& path);

/// The tokenizer of a file as a checkpoint keeps it.
struct FileTokenizer {
  Tokenizer tokenizer;
  std::string json;                                               ///< tokenizer.json
  std::vector<std::pair<std::string, std::string>> files_beside;  ///< tokenizer_config.json, chat_template.jinja: name and text
};

/// That of the file, or the one at `named`, which must then have the file's pieces. Without either the file has to have one:
/// kInvalidArgument. kUnsupported for one that tokenizer.json cannot say.
FileTokenizer tokenizer_of(const model::TrainableFile& file, const std::string& named);

}  // namespace regard::train_loop
