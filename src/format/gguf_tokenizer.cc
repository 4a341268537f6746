// GGUF keeps only the name of a pipeline; the steps written out here are what llama.cpp does for that name.
#include "format/gguf_tokenizer.h"

#include <algorithm>
#include <string>

namespace regard {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr int64_t kMaxId = static_cast<int64_t>(kMaxVocabulary) - 1;

Result<Done> read_merges(const GgufMetadata& metadata, BpeSpec& bpe) {
  constexpr std::string_view key = "tokenizer.ggml.merges";
  REGARD_TRY(const StringList* merges, metadata.optional_strings(key));
  if (merges == nullptr) return metadata.refuse(key, "is missing");
  if (merges->size() > kMaxMerges) return metadata.refuse(key, fmt::format("has more than {} merges", kMaxMerges));
  bpe.merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view merge = (*merges)[i];
    const size_t space = merge.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() || merge.find(' ', space + 1) != std::string_view::npos)
      return metadata.refuse(key, fmt::format("merge {} is '{}', expected two tokens with one space between", i, merge));
    bpe.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return Done{};
}

Result<Done> read_tokens(const GgufMetadata& metadata, TokenizerSpec& spec) {
  constexpr std::string_view key = "tokenizer.ggml.tokens", kinds_key = "tokenizer.ggml.token_type";
  REGARD_TRY(const StringList* tokens, metadata.optional_strings(key));
  if (tokens == nullptr) return metadata.refuse(key, "is missing");
  if (tokens->size() > kMaxVocabulary) return metadata.refuse(key, fmt::format("has more than {} tokens", kMaxVocabulary));
  spec.pieces.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) spec.pieces.emplace_back((*tokens)[i]);
  REGARD_TRY(const auto kinds, metadata.optional_integers(kinds_key, 1, 6));
  spec.kinds.assign(spec.pieces.size(), TokenKind::kNormal);
  if (kinds) {
    if (kinds->size() != spec.pieces.size())
      return metadata.refuse(kinds_key, fmt::format("has {} entries for {} tokens", kinds->size(), spec.pieces.size()));
    std::transform(kinds->begin(), kinds->end(), spec.kinds.begin(), [](int64_t k) { return static_cast<TokenKind>(k); });
  }
  spec.added_order = AddedTokenOrder::kLongestFirst;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const TokenKind kind = spec.kinds[i];
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined && kind != TokenKind::kUnknown) continue;
    if (spec.pieces[i].empty()) continue;
    spec.added.push_back({.content = spec.pieces[i], .id = static_cast<int32_t>(i), .special = kind != TokenKind::kUserDefined});
  }
  return Done{};
}

Result<std::optional<int32_t>> read_id(const GgufMetadata& metadata, std::string_view key, const TokenizerSpec& spec) {
  REGARD_TRY(const auto id, metadata.optional_integer(key, 0, kMaxId));
  if (!id) return std::optional<int32_t>();
  if (static_cast<size_t>(*id) >= spec.pieces.size())
    return metadata.refuse(key, fmt::format("is {}, but there are {} tokens", *id, spec.pieces.size()));
  return std::optional(static_cast<int32_t>(*id));
}

/// The id that the file names, or the token that is usually called so.
Result<std::optional<int32_t>> read_id_or(const GgufMetadata& metadata, std::string_view key, const TokenizerSpec& spec,
                                          std::string_view usual) {
  REGARD_TRY(auto id, read_id(metadata, key, spec));
  if (id) return id;
  const auto token = std::find_if(spec.added.begin(), spec.added.end(), [&](const AddedTokenSpec& t) { return t.content == usual; });
  return token == spec.added.end() ? id : std::optional(token->id);
}

Result<Done> read_byte_level(const GgufMetadata& metadata, TokenizerSpec& spec, bool& add_bos) {
  REGARD_TRY(const std::string_view pre, metadata.string("tokenizer.ggml.pre"));
  auto builtin = builtin_pre_tokenizer(pre);
  if (!builtin) return failure(builtin.failure().code, "[{}] tokenizer.ggml.pre: {}", spec.origin, builtin.failure().message);
  spec.pre_tokenizer = std::move(builtin->steps);
  add_bos = builtin->add_bos;
  BpeSpec bpe;
  bpe.ignore_merges = builtin->ignore_merges;
  REGARD_CHECK(read_merges(metadata, bpe));
  spec.model = std::move(bpe);
  spec.decoder = {ByteLevelDecode{}};
  REGARD_TRY(spec.bos, read_id(metadata, "tokenizer.ggml.bos_token_id", spec));
  REGARD_TRY(spec.eos, read_id(metadata, "tokenizer.ggml.eos_token_id", spec));
  REGARD_TRY(spec.unk, read_id(metadata, "tokenizer.ggml.unknown_token_id", spec));
  return Done{};
}

Result<Done> read_scored(const GgufMetadata& metadata, TokenizerSpec& spec) {
  constexpr std::string_view key = "tokenizer.ggml.scores";
  REGARD_TRY(const auto scores, metadata.optional_numbers(key));
  if (!scores) return metadata.refuse(key, "is missing");
  if (scores->size() != spec.pieces.size())
    return metadata.refuse(key, fmt::format("has {} entries for {} tokens", scores->size(), spec.pieces.size()));
  SpmSpec spm;
  spm.scores.reserve(scores->size());
  for (const double score : *scores) spm.scores.push_back(static_cast<float>(score));
  spec.model = std::move(spm);

  REGARD_TRY(const auto add_space, metadata.optional_bool("tokenizer.ggml.add_space_prefix"));
  const bool prefix_space = add_space.value_or(true);
  if (prefix_space) spec.normalizer.emplace_back(PrependStep{" "});
  spec.normalizer.emplace_back(ReplaceStep{{TextPattern::Kind::kLiteral, " "}, std::string(kSpaceMark)});
  spec.decoder = {ReplaceDecode{std::string(kSpaceMark), " "}, ByteFallbackDecode{}, FuseDecode{}};
  if (prefix_space) spec.decoder.emplace_back(StripDecode{" ", 1, 0});
  REGARD_TRY(spec.bos, read_id_or(metadata, "tokenizer.ggml.bos_token_id", spec, "<s>"));
  REGARD_TRY(spec.eos, read_id_or(metadata, "tokenizer.ggml.eos_token_id", spec, "</s>"));
  REGARD_TRY(spec.unk, read_id_or(metadata, "tokenizer.ggml.unknown_token_id", spec, "<unk>"));
  return Done{};
}

Result<Done> read_ends(const GgufMetadata& metadata, std::string_view key, std::string_view name, bool usual,
                       std::optional<int32_t> id, std::vector<int32_t>& out) {
  REGARD_TRY(const auto wanted, metadata.optional_bool(key));
  if (!wanted.value_or(usual)) return Done{};
  if (!id) {
    if (!wanted) return Done{};
    return metadata.refuse(key, fmt::format("is true, but the file has no {} token", name));
  }
  out.push_back(*id);
  return Done{};
}

// The tokenizer of characters that such a file was made from: train_characters() in text/train_tokenizer.cc.
Result<Done> read_characters(const GgufMetadata& metadata, size_t rows, TokenizerSpec& spec) {
  if (rows > spec.pieces.size()) return metadata.refuse(kTrainedRowsKey, fmt::format("is {}, but there are {} tokens", rows, spec.pieces.size()));
  const std::pair<std::string_view, std::optional<int32_t>*> ids[] = {{"tokenizer.ggml.bos_token_id", &spec.bos},
                                                                      {"tokenizer.ggml.eos_token_id", &spec.eos},
                                                                      {"tokenizer.ggml.unknown_token_id", &spec.unk}};
  for (const auto& [key, id] : ids) {
    REGARD_TRY(*id, read_id(metadata, key, spec));
    if (*id && static_cast<size_t>(**id) >= rows) id->reset();
  }
  for (size_t i = 0; i < rows; ++i) {
    if (spec.kinds[i] == TokenKind::kUnused) spec.pieces[i].clear();
    if (spec.kinds[i] == TokenKind::kNormal && spec.pieces[i] == kSpaceMark) spec.pieces[i] = " ";
  }
  spec.pieces.resize(rows);
  while (!spec.pieces.empty() && spec.pieces.back().empty()) spec.pieces.pop_back();  // rows without a token
  spec.kinds.clear();
  std::erase_if(spec.added, [rows](const AddedTokenSpec& token) { return static_cast<size_t>(token.id) >= rows; });
  spec.added_order = AddedTokenOrder::kLeftmostLongest;
  REGARD_TRY(const auto unknown, metadata.optional_string(kUnknownTokenKey));
  spec.model = WordLevelSpec{std::string(unknown.value_or(""))};
  spec.pre_tokenizer = {SplitStep{{TextPattern::Kind::kRegex, R"([\s\S])"}, SplitBehavior::kIsolated, false}};
  spec.decoder = {FuseDecode{}};
  return Done{};
}

}  // namespace

Result<TokenizerSpec> gguf_tokenizer_spec(const GgufMetadata& metadata, std::string_view name) {
  TokenizerSpec spec;
  spec.origin = std::string(name);
  REGARD_TRY(const auto model, metadata.optional_string("tokenizer.ggml.model"));
  if (!model) return failure(Code::kNotFound, "[{}] the file has no tokenizer: tokenizer.ggml.model is missing", name);
  if (*model != "gpt2" && *model != "llama")
    return failure(Code::kUnsupported, "[{}] tokenizer.ggml.model: unknown tokenizer '{}'; known are gpt2, llama", name, *model);
  REGARD_CHECK(read_tokens(metadata, spec));
  bool add_bos = *model == "llama";
  REGARD_TRY(const auto trained_rows, metadata.optional_integer(kTrainedRowsKey, 1, kMaxId));
  if (*model == "llama" && trained_rows) {
    REGARD_CHECK(read_characters(metadata, static_cast<size_t>(*trained_rows), spec));
  } else if (*model == "gpt2") {
    REGARD_CHECK(read_byte_level(metadata, spec, add_bos));
  } else {
    REGARD_CHECK(read_scored(metadata, spec));
  }
  REGARD_TRY(spec.eot, read_id(metadata, "tokenizer.ggml.eot_token_id", spec));
  REGARD_TRY(spec.pad, read_id(metadata, "tokenizer.ggml.padding_token_id", spec));
  REGARD_CHECK(read_ends(metadata, "tokenizer.ggml.add_bos_token", "begin", add_bos, spec.bos, spec.prefix));
  REGARD_CHECK(read_ends(metadata, "tokenizer.ggml.add_eos_token", "end", false, spec.eos, spec.suffix));
  return spec;
}

}  // namespace regard
