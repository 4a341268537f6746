#include "format/gguf_tokenizer_writer.h"

#include <algorithm>
#include <array>
#include <string>

#include "format/gguf_tokenizer.h"
#include "format/gguf_writer.h"
#include "text/builtin_pre.h"

namespace regard {
namespace {

constexpr std::string_view kWrittenSpace = "\xE2\x96\x81";  // U+2581
constexpr int kBytes = 256;

Failure unsupported(const TokenizerSpec& spec, std::string_view what) {
  return failure(Code::kUnsupported, "[convert] {}: {}; a GGUF file cannot say that", spec.origin, what);
}

// A byte-level step with the pattern of GPT-2 is a split and a step without it.
std::vector<PreTokenizerStep> in_single_steps(const std::vector<PreTokenizerStep>& steps) {
  std::vector<PreTokenizerStep> all;
  for (const PreTokenizerStep& step : steps) {
    const auto* bytes = std::get_if<ByteLevelStep>(&step);
    if (bytes == nullptr || !bytes->use_regex || bytes->add_prefix_space) {
      all.push_back(step);
      continue;
    }
    all.emplace_back(SplitStep{{TextPattern::Kind::kRegex, std::string(kGpt2Pattern)}, SplitBehavior::kIsolated, false});
    all.emplace_back(ByteLevelStep{.add_prefix_space = false, .use_regex = false});
  }
  return all;
}

bool same_step(const PreTokenizerStep& a, const PreTokenizerStep& b) {
  if (const auto *x = std::get_if<ByteLevelStep>(&a), *y = std::get_if<ByteLevelStep>(&b); x != nullptr && y != nullptr)
    return x->add_prefix_space == y->add_prefix_space && x->use_regex == y->use_regex;
  const auto *x = std::get_if<SplitStep>(&a), *y = std::get_if<SplitStep>(&b);
  return x != nullptr && y != nullptr && x->pattern.kind == y->pattern.kind && x->pattern.text == y->pattern.text && x->behavior == y->behavior &&
         x->invert == y->invert;
}

// The name that llama.cpp has for these steps. Without merges every byte is a token, however the text is cut.
Result<std::string_view> pre_name(const TokenizerSpec& spec, const BpeSpec& bpe) {
  const std::vector<PreTokenizerStep> steps = in_single_steps(spec.pre_tokenizer);
  for (const std::string_view name : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    REGARD_TRY(const BuiltinPre known, builtin_pre_tokenizer(name));
    const bool same = std::equal(steps.begin(), steps.end(), known.steps.begin(), known.steps.end(), same_step);
    if (same && known.ignore_merges == bpe.ignore_merges) return name;
  }
  const bool only_bytes = steps.size() == 1 && same_step(steps[0], ByteLevelStep{.add_prefix_space = false, .use_regex = false});
  if (only_bytes && bpe.merges.empty()) return std::string_view("gpt-2");
  return unsupported(spec, "its pre-tokenizer is none of gpt-2, smollm, llama-bpe, qwen2");
}

// Pieces and kinds of a GGUF vocabulary in the making.
struct Vocabulary {
  std::vector<std::string> pieces;
  std::vector<int32_t> kinds;

  void add(std::string piece, TokenKind kind) {
    pieces.push_back(std::move(piece));
    kinds.push_back(static_cast<int32_t>(kind));
  }
  bool has(std::string_view piece) const { return std::find(pieces.begin(), pieces.end(), piece) != pieces.end(); }
};

Result<Vocabulary> vocabulary_of(const TokenizerSpec& spec, int64_t rows) {
  if (static_cast<int64_t>(spec.pieces.size()) > rows)
    return failure(Code::kCorruptData, "[convert] {} has {} ids, the embedding {} rows", spec.origin, spec.pieces.size(), rows);
  Vocabulary v;
  for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
    const bool known = i < spec.pieces.size() && !spec.pieces[i].empty();
    if (known) v.add(spec.pieces[i], i < spec.kinds.size() ? spec.kinds[i] : TokenKind::kNormal);
    else v.add(fmt::format("[PAD{}]", i), TokenKind::kUnused);
  }
  for (const AddedTokenSpec& token : spec.added) {
    if (token.lstrip || token.rstrip || token.single_word)
      return unsupported(spec, fmt::format("the added token '{}' swallows white space or stands between words", token.content));
    if (token.id < 0 || token.id >= static_cast<int32_t>(spec.pieces.size())) continue;
    const auto id = static_cast<size_t>(token.id);
    v.pieces[id] = token.content;
    v.kinds[id] = static_cast<int32_t>(token.special ? TokenKind::kControl : TokenKind::kUserDefined);
  }
  return v;
}

void write_vocabulary(const Vocabulary& v, GgufMetadata& metadata) {
  StringList tokens;
  for (const std::string& piece : v.pieces) tokens.append(piece);
  metadata.insert("tokenizer.ggml.tokens", gguf_value(std::move(tokens)));
  metadata.insert("tokenizer.ggml.token_type", gguf_value(std::span<const int32_t>(v.kinds)));
}

// Ids around a text. Files say whether one stands before and behind it, and which.
Result<Done> write_ids(const TokenizerSpec& spec, std::optional<int32_t> instead, GgufMetadata& metadata) {
  const auto fits = [](const std::vector<int32_t>& around, const std::optional<int32_t>& id) {
    return around.empty() || (around.size() == 1 && id && around[0] == *id);
  };
  if (!fits(spec.prefix, spec.bos) || !fits(spec.suffix, spec.eos)) return unsupported(spec, "it puts other tokens around a text than one begin and one end token");
  const auto id = [&](std::string_view name, std::optional<int32_t> value, std::optional<int32_t> otherwise) {
    if (!value) value = otherwise;
    if (value) metadata.insert(fmt::format("tokenizer.ggml.{}_token_id", name), gguf_value(static_cast<uint32_t>(*value)));
  };
  id("bos", spec.bos, instead);
  id("eos", spec.eos, instead);
  id("unknown", spec.unk, instead);
  id("padding", spec.pad, std::nullopt);
  id("eot", spec.eot, std::nullopt);
  metadata.insert("tokenizer.ggml.add_bos_token", gguf_value(!spec.prefix.empty()));
  metadata.insert("tokenizer.ggml.add_eos_token", gguf_value(!spec.suffix.empty()));
  return Done{};
}

Result<int64_t> add_byte_level(const TokenizerSpec& spec, const BpeSpec& bpe, int64_t rows, GgufMetadata& metadata) {
  if (spec.decoder.size() != 1 || !std::holds_alternative<ByteLevelDecode>(spec.decoder[0]) || bpe.byte_fallback)
    return unsupported(spec, "its byte-pair encoding is not byte-level");
  if (!bpe.continuing_subword_prefix.empty() || !bpe.end_of_word_suffix.empty()) return unsupported(spec, "its pieces mark the middle or end of words");
  REGARD_TRY(const std::string_view pre, pre_name(spec, bpe));
  // GGUF files of the families that normalise (Qwen) leave it to the caller, as llama.cpp does.
  for (const NormalizerStep& step : spec.normalizer)
    if (!std::holds_alternative<NfcStep>(step) || pre != "qwen2") return unsupported(spec, "it rewrites the text before it is cut");
  REGARD_TRY(const Vocabulary v, vocabulary_of(spec, rows));
  metadata.insert("tokenizer.ggml.model", gguf_value(std::string_view("gpt2")));
  metadata.insert("tokenizer.ggml.pre", gguf_value(pre));
  write_vocabulary(v, metadata);
  StringList merges;
  for (const auto& [left, right] : bpe.merges) merges.append(left + " " + right);
  metadata.insert("tokenizer.ggml.merges", gguf_value(std::move(merges)));
  REGARD_CHECK(write_ids(spec, std::nullopt, metadata));
  return rows;
}

// The number of characters of UTF-8 text.
size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Result<int64_t> add_characters(const TokenizerSpec& spec, int64_t rows, GgufMetadata& metadata) {
  if (!spec.normalizer.empty()) return unsupported(spec, "it rewrites the text before it is cut");
  REGARD_TRY(Vocabulary v, vocabulary_of(spec, rows));
  if (v.has(kWrittenSpace)) return unsupported(spec, "it has U+2581, which the file writes for a space");
  for (size_t i = 0; i < v.pieces.size(); ++i) {
    if (v.kinds[i] != static_cast<int32_t>(TokenKind::kNormal)) continue;
    if (v.pieces[i] == " ") v.pieces[i] = kWrittenSpace;
    if (characters(v.pieces[i]) != 1) return unsupported(spec, fmt::format("its token '{}' is longer than a character", v.pieces[i]));
  }
  for (int byte = 0; byte < kBytes; ++byte) v.add(fmt::format("<0x{:02X}>", byte), TokenKind::kByte);
  std::string unknown = "<unk>";
  while (v.has(unknown)) unknown.insert(1, "_");
  v.add(unknown, TokenKind::kUnknown);
  const auto last = static_cast<int32_t>(v.pieces.size()) - 1;
  metadata.insert("tokenizer.ggml.model", gguf_value(std::string_view("llama")));
  metadata.insert("tokenizer.ggml.pre", gguf_value(std::string_view("default")));
  write_vocabulary(v, metadata);
  const std::vector<float> scores(v.pieces.size());
  metadata.insert("tokenizer.ggml.scores", gguf_value(std::span<const float>(scores)));
  metadata.insert("tokenizer.ggml.add_space_prefix", gguf_value(false));
  metadata.insert(std::string(kTrainedRowsKey), gguf_value(static_cast<uint32_t>(rows)));
  metadata.insert(std::string(kUnknownTokenKey), gguf_value(std::string_view(std::get<WordLevelSpec>(spec.model).unk_token)));
  REGARD_CHECK(write_ids(spec, last, metadata));
  return static_cast<int64_t>(v.pieces.size());
}

}  // namespace

Result<int64_t> add_gguf_tokenizer(const TokenizerSpec& spec, int64_t rows, GgufMetadata& metadata) {
  if (const auto* bpe = std::get_if<BpeSpec>(&spec.model)) return add_byte_level(spec, *bpe, rows, metadata);
  if (std::holds_alternative<WordLevelSpec>(spec.model)) return add_characters(spec, rows, metadata);
  return unsupported(spec, "a vocabulary that merges by score and did not come from a GGUF file");
}

}  // namespace regard
