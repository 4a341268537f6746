// The three ways to make a tokenizer from texts; include/regard/tokenizer_training.h says what they mean. Each gives what a
// tokenizer.json says; writing and checking it is the matter of format/.
#pragma once

#include <span>
#include <string>
#include <unordered_map>

#include "regard/tokenizer_training.h"
#include "text/tokenizer_spec.h"

namespace regard {

inline constexpr std::string_view kUnknownToken = "<unk>";

TokenizerSpec train_characters(std::span<const std::string> texts, const TokenizerTraining& training);
TokenizerSpec train_bytes(const TokenizerTraining& training);
TokenizerSpec train_byte_pairs(std::span<const std::string> texts, const TokenizerTraining& training);

/// Throws Error(kCancelled) when a stop was requested.
void check_stop(const TokenizerTraining& training);

/// Puts the special tokens behind the pieces that are there. Errors: kInvalidArgument for one that is empty, not UTF-8, there
/// twice, or spelt like a piece of text.
void add_special_tokens(const TokenizerTraining& training, TokenizerSpec& spec);

/// How often each word occurs, a word being a piece that the pattern of GPT-2 cuts out (or a run of bytes that is not UTF-8).
/// The bytes of a word are those of the text.
using WordCounts = std::unordered_map<std::string, int64_t>;
WordCounts count_words(std::span<const std::string> texts, const TokenizerTraining& training);

}  // namespace regard
