// What a Tokenizer holds.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "regard/tokenizer.h"
#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/models.h"
#include "text/pieces.h"
#include "text/vocabulary.h"

namespace regard {

struct Tokenizer::Impl {
  Vocabulary vocabulary;
  std::vector<bool> special;               // by id
  Model model;
  AddedTokenMatcher raw_added;             // looked for in the text as it comes
  AddedTokenMatcher normalized_added;      // and in what the normalizer makes of it
  std::vector<CompiledNormalizer> normalizer;
  std::vector<CompiledPreTokenizer> pre_tokenizer;
  TokenDecoder decoder;
  std::unordered_map<int32_t, std::string> normalized_text;  // of added tokens that the normalizer changes
  std::vector<int32_t> prefix, suffix;
  std::optional<int32_t> bos, eos, eot, unk, pad;
  bool adds_bos = false, adds_eos = false;

  /// The piece as decoding takes it: of an added token that is looked for in normalized text, that text.
  const std::string& decoded_piece(int32_t id) const {
    const auto found = normalized_text.find(id);
    return found == normalized_text.end() ? vocabulary.piece(id) : found->second;
  }

  /// Throws unless `id` is in the vocabulary; `function` is named in the message.
  void check_id(int32_t id, std::string_view function) const;
};

}  // namespace regard
