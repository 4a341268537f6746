// The chat template that a Hugging Face checkpoint carries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace regard {

/// The field chat_template of a tokenizer_config.json: text, or a list of named templates of which the one called "default"
/// is taken. Nothing when there is none.
Result<std::optional<std::string>> chat_template_of_config(std::string_view text);

}  // namespace regard
