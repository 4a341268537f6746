// Making a tokenizer from texts: characters, bytes, or byte-level BPE, as a tokenizer.json that other programs read too.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/stop_token.h"
#include "regard/tokenizer.h"

namespace regard {

enum class TokenizerKind {
  kCharacters,  ///< one token per character (code point) seen, in the order of their code points
  kBytes,       ///< the 256 bytes; the id is the byte
  kBytePairs,   ///< byte-level BPE: the 256 bytes in the order of GPT-2, then one token per merge
};

/// What a character tokenizer does with a character that it has no token for: an error that names it, or the token "<unk>".
enum class UnknownCharacters { kRefuse, kToken };

struct TokenizerTraining {
  TokenizerKind kind = TokenizerKind::kCharacters;

  /// kBytePairs: tokens in all, special ones included. Fewer come out when no pair is left that occurs min_count times.
  int64_t vocab_size = 0;

  /// kCharacters: rarer characters get no token. kBytePairs: rarer pairs are not merged. 0 means 1 for characters and 2 for pairs.
  int64_t min_count = 0;

  UnknownCharacters unknown = UnknownCharacters::kRefuse;

  /// Tokens that text never becomes by itself, such as "<|endoftext|>": the last ids, in this order ("<unk>" before them).
  std::vector<std::string> special{};

  const StopToken* stop = nullptr;
  /// Called now and then with what is being done and how far it is.
  std::function<void(std::string_view what, uint64_t done, uint64_t total)> progress{};
};

struct TrainedTokenizer {
  Tokenizer tokenizer;
  std::string json;  ///< the file tokenizer.json; PyPI `tokenizers` gives the same ids from it
};

/// A tokenizer for texts like `texts`; the files of one collection are separate texts, so that no token spans two of them.
///
/// Byte pairs: the pattern of GPT-2 cuts each text into words, and inside words the pair of neighbouring tokens that occurs most
/// often becomes a token, again and again. Of pairs that occur equally often the one with the smallest left id wins, then the
/// smallest right id. A pair whose text is a token already is passed over, so that every merge adds one token.
///
/// Deterministic: the result is a function of texts and options. Cost: O(n log n) in the bytes of the different words.
/// Errors: kInvalidArgument for options that do not fit or, with kCharacters, a text without characters or one that is not UTF-8
/// (named with its place); kResourceExhausted for words of more than 2^31 bytes in all; kCancelled when `stop` was requested.
/// Source: Sennrich, Haddow, Birch, 2016, "Neural machine translation of rare words with subword units", algorithm 1.
REGARD_API TrainedTokenizer train_tokenizer(std::span<const std::string> texts, const TokenizerTraining& training);

}  // namespace regard
