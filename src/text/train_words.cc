// Cutting texts into words and counting them. A text is taken in chunks, so that a long one shows how far it is and can be
// stopped; a chunk ends where the pattern would cut anyway.
#include "base/check.h"
#include "text/builtin_pre.h"
#include "text/pieces.h"
#include "text/train_tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace regard {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

/// Whether the character that ends before `at` is one, and no white space.
bool follows_text(std::string_view text, size_t at) {
  for (size_t back = 1; back <= 4 && back <= at; ++back) {
    const Utf8Char c = next_char(text.substr(at - back));
    if (c.valid() && c.size == back) return !is_white_space(c.code_point);
  }
  return false;
}

/// The end of the chunk that begins at `begin`: no piece of the pattern goes on from a character that is no white space to a line
/// end, and none looks back, so the pieces of the chunks are those of the whole text.
size_t chunk_end(std::string_view text, size_t begin) {
  if (text.size() - begin <= kChunkBytes) return text.size();
  for (size_t at = text.find('\n', begin + kChunkBytes); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    if (follows_text(text, at)) return at;
  }
  return text.size();
}

}  // namespace

WordCounts count_words(std::span<const std::string> texts, const TokenizerTraining& training) {
  const SplitStep split{{TextPattern::Kind::kRegex, std::string(kGpt2Pattern)}, SplitBehavior::kIsolated, false};
  const std::vector<CompiledPreTokenizer> steps = compile_pre_tokenizer({split}).value_or_throw();
  RegexScratch scratch;
  WordCounts counts;
  uint64_t total = 0, done = 0;
  for (const std::string& text : texts) total += text.size();
  for (const std::string& text : texts) {
    for (size_t begin = 0; begin < text.size();) {
      check_stop(training);
      if (training.progress) training.progress("counting words", done, total);
      const size_t end = chunk_end(text, begin);
      const TextPieces cut = run_pre_tokenizer(steps, text.substr(begin, end - begin), InputStart::kNo, scratch);
      for (const Piece& piece : cut.pieces) ++counts[std::string(cut.view(piece))];
      done += end - begin;
      begin = end;
    }
  }
  return counts;
}

}  // namespace regard
