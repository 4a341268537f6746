// SentencePiece's table of what characters are replaced by, as tokenizer.json carries it ("Precompiled"). Start at append_normalized.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace regard {

inline constexpr size_t kMaxCharsmapBytes = size_t{4} << 20;

/// A double array (Aoe, 1989, "An efficient digital search algorithm by using a double-array structure") over the bytes of what is
/// replaced; its leaves are places in a text of replacements, each ended by a NUL.
class Charsmap {
 public:
  /// `bytes`: the size of the array in bytes (4, little-endian), the array, the replacements. Refused: sizes that do not go together,
  /// replacements that are no UTF-8 or longer than 1 KiB. Units that point outside lead nowhere.
  static Result<Charsmap> make(std::string_view bytes);

  /// Appends `text`, which is UTF-8, with its replacements: of a grapheme of up to 5 bytes as a whole, else of its characters. As the reference
  /// has it, the shortest beginning that the table has decides for all of them.
  void append_normalized(std::string_view text, std::string& out) const;

 private:
  std::optional<std::string_view> find(std::string_view text) const noexcept;
  void append_grapheme(std::string_view grapheme, std::string& out) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace regard
