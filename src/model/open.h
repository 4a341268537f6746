// Opening a model file: which family it holds, what it says, where its tensors lie. No tensor is read here.
#pragma once

#include <optional>
#include <string>

#include "format/tensor_source.h"
#include "model/facts.h"
#include "regard/model.h"
#include "text/tokenizer_spec.h"

namespace regard::model {

struct OpenedModel {
  std::string path;
  TensorSource source;
  Facts facts;
  std::optional<TokenizerSpec> tokenizer;  ///< only where it was asked for
  bool has_tokenizer = false;
  std::optional<std::string> chat_template;
};

/// What a directory is called, however it was written: "run/latest/" and "." too.
std::string directory_name(const std::string& path);

enum class WithTokenizer { kNo, kYes };

/// Opens a GGUF file or a Hugging Face directory and reads everything but the tensors. Errors: as Model::load.
OpenedModel open_model(const std::string& path, FileAccess access, WithTokenizer with_tokenizer);

}  // namespace regard::model
